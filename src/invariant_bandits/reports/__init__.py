"""Self-contained pages and every figure: HTML without script, font or picture from elsewhere, pictures by
matplotlib.

It draws what it is given and must not know where the numbers come from.
"""
