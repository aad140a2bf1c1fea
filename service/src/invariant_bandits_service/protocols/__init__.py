"""Protocols of others, spoken by the same engine.

They must not know how events are stored.
"""
