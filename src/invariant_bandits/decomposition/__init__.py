"""Which directions of the reward model last: from windowed moments to blocks, tests of invariance and the
fitted split.

This room does not know policies, nor what happens online, round by round.
"""
