"""Who decides: linear policies over any memory, with an invariant part or without, AutoISD, and baselines.

Policies start from a Past and must not know environments, truth (but for oracles, which are given it), files of logs.
"""
