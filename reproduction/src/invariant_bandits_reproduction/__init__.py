"""The paper reproduced, and more: claims, runs and their report; figures, related policies and slow studies
in rooms of their own.

Settings, playing and analysis are kept apart: a cell must not know its claims, a claim must not know how its
cells are played, and nothing here knows the command.
"""

from invariant_bandits_reproduction.version import __version__ as __version__
