"""Settings of all tests: hypothesis draws the same examples every time and has no stopwatch."""

from hypothesis import settings

settings.register_profile("fixed", derandomize=True, deadline=None, max_examples=30)
settings.load_profile("fixed")
