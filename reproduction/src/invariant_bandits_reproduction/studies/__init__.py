"""The slow studies behind docs/studies: the offline phase, the online phase, real data.

A study must not know the figures and the report of the reproduction.
"""
