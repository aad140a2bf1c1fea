"""From a log to a model that decides and learns, in one file."""
