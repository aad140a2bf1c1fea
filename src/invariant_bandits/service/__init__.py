"""The decision service: decisions over HTTP, durable, replayable, evaluable.

It must not know simulated worlds, experiments, figures, or the command that starts it.
"""
