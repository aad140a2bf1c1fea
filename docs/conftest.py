"""Only pages hold examples here; the modules belong to the site."""

collect_ignore_glob = ["*.py"]
