"""Events: decisions with features of their own and of every offered action, named as they come; one or many at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from invariant_bandits.checks import Array

Feature: TypeAlias = tuple[str, float | str]
"""A name with a number, or with a word: the feature "name=word" is then 1."""

Columns: TypeAlias = dict[str, Any]
"""Name → Arrow array."""

NONE = "(none)"
OBSERVED, WEIGHT = "__observed_reward", "__weight"
"""Columns that some logs have beside the others; names with two bars are never taken for features."""


@dataclass(slots=True)
class Event:
    """One decision.

    Parameters
    ----------
    round : str
        What tells it from others.
    labels : sequence of str
        What the offered actions are called.
    chosen : int
        Index of the chosen one.
    reward : float
        What it earned.
    propensity : float
        Probability with which it was chosen.
    shared : list of Feature
        Features of the event, the same for all actions.
    actions : list of lists of Feature
        Features of every offered action.
    time : str, optional
        When it was, ISO 8601.
    more : mapping of str to float
        Where they say something: OBSERVED, what was earned if that is not the reward to learn from; WEIGHT, for how
        many events it stands.
    notes : tuple of str
        What is strange about it, although it is used.
    """

    round: str
    labels: Sequence[str]
    chosen: int
    reward: float
    propensity: float
    shared: list[Feature]
    actions: list[list[Feature]]
    time: str | None = None
    more: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class EventColumns:
    """Events of a block, one row per offered action.

    Parameters
    ----------
    lines : int
        Lines of the block.
    events : int
        Events that can be used.
    rows : int
        Their offered actions.
    fixed : mapping of str to array, shape (rows,)
        What is known beside the features.
    numbers, words : mapping of str to array, shape (rows,)
        The features, 0 or NONE where an action has none.
    own : frozenset of str
        The features that are the actions', not the event's.
    counts : mapping of str to int
        By feature, how many events or actions have it.
    problems : mapping of str to array
        Lines by what is wrong with them, or strange about them.
    """

    lines: int
    events: int
    rows: int
    fixed: Columns
    numbers: Columns
    words: Columns
    own: frozenset[str]
    counts: Mapping[str, int]
    problems: Mapping[str, Array]

    def feature(self, which: str) -> Any:
        """A feature (rows,) by its kind and name: "number:…", "word:…" or "flag:name=word"."""
        import pyarrow as pa
        from pyarrow import compute

        kind, _, name = which.partition(":")
        if kind == "number":
            return self.numbers.get(name, pa.repeat(0.0, self.rows))
        if kind == "word":
            return self.words.get(name, pa.repeat(NONE, self.rows))
        key = next((one for one in self.words if name.startswith(f"{one}=")), None)
        if key is None:
            return pa.repeat(0.0, self.rows)
        return compute.equal(self.words[key], name.removeprefix(f"{key}=")).cast(pa.float64())

    def known(self, name: str) -> Any:
        """A column (rows,) beside the features."""
        import pyarrow as pa

        if name in self.fixed:
            return self.fixed[name]
        if name == "time":
            return pa.nulls(self.rows, pa.string())
        return self.fixed["reward"] if name == OBSERVED else pa.array(np.ones(self.rows))
