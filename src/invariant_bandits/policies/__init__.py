"""Who decides: linear policies over any memory, with an invariant part or without, AutoISD, and baselines.

Policies start from a Past. They must not know environments, files of logs, or the truth of a simulation, but
for oracles, which ask a simulated past for it.
"""
