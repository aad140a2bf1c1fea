"""Streams of rounds whose truth is known, and the loop in which policies play them: only here a policy meets
the truth.

It must not know pages, pictures and the command.
"""
