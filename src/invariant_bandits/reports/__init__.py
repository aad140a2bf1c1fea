"""Pages that load nothing: HTML without script, font or picture from elsewhere, drawn by matplotlib.

It draws what it is given and must not know where the numbers come from.
"""
