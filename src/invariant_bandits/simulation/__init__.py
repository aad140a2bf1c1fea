"""Rounds whose truth is known and the loop that plays them: only here a policy meets the truth.

It must not know pages, pictures and the command.
"""
