"""What decides and learns inside a service: fitted models, and models that begin empty.

Learners must not know events, the store or HTTP.
"""
