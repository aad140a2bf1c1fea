"""Where events are kept: one append-only table in a checksum chain, contents of versions, snapshots.

It must not know what the events say.
"""
