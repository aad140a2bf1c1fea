"""One module per experiment: its settings, how one repetition runs, and what is claimed of the results."""
