"""Learning in the background: a new version from the service's own history, beside the one that serves.

It must not know HTTP.
"""
