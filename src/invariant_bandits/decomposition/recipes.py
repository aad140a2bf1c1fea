"""Estimation recipes that other packages bring: each is found by its entry point."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from types import SimpleNamespace

from invariant_bandits.checks import InputError
from invariant_bandits.optional import install_house

GROUP = "invariant_bandits.recipe"
Recipe = Callable[..., SimpleNamespace]
"""(features, rewards, names) -> the attributes of a fitted decomposition."""


def find_recipe(name: str) -> Recipe:
    """Return the recipe of this name, or InputError that says how to get it."""
    for point in entry_points(group=GROUP, name=name):
        recipe: Recipe = point.load()
        return recipe
    how = install_house("reproduction")
    raise InputError(f"recipe={name!r} is not installed: {how}")
