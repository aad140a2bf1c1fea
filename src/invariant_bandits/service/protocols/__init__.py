"""Protocols of others, spoken by the same engine."""
