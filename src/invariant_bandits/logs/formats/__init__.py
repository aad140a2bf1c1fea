"""Formats of logs, one module each.

A format registers itself with `registry.register_log_format`; nothing lists the modules.

A format must not know what is done with the rows.
"""
