"""One module per figure of the paper and of ours: which cells are played, what must follow, how it is drawn.

A figure must not know how cells are played.
"""
