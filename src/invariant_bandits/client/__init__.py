"""Talk to a decision service from Python: what is sent, what comes back, and when to ask again.

It knows nothing of the service but its protocol.
"""
