"""What is kept of a log: counts, means and power sums per window of time, which add over rows, batches and
shards.

This room must not know what its sums are for, subspaces or policies, nor which files and tables logs come in.
"""
