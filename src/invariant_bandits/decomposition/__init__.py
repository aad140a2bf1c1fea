"""Which directions of the reward model last: from windowed moments to blocks, tests of invariance and the fitted split.

This room must not know who decides: policies, and whatever happens online, round by round.
"""
