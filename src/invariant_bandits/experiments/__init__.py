"""The paper reproduced, and more: cells, claims, grids, runs and their report; figures and slow studies in
rooms of their own.

Settings, playing and analysis are kept apart: a cell must not know its claims, a claim must not know how its
cells are played, and nothing here knows the command.
"""
