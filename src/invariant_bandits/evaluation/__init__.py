"""What would another policy have earned? Off-policy estimators, replay, exact play, and how sure they are.

It must not know pages, pictures, the command and HTTP.
"""
