"""The service's own past: decisions with what they earned, as logs that can be fitted, and taught to a
learner.

It must not know HTTP.
"""
