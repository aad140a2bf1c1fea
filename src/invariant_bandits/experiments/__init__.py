"""The paper reproduced, and more: cells, claims, grids, runs and their report; figures and slow studies in rooms of
their own.

Settings, playing and analysis are kept apart: a cell does not know its claims, a claim not how its cells are played.
"""
