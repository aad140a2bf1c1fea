"""Policies behind the interfaces of other packages, and environments of other packages for `simulate`.

It must not know reports, experiments and the service.
"""
