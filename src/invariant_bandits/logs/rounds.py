"""Rounds: a batch of checked rounds, as arrays."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from invariant_bandits.checks import Array

PER_ROUND = ("rows", "features", "rewards", "times", "action", "propensity", "position", "offered_counts", "arm")
PER_OFFERED = ("offered", "all_rewards", "offered_arms")


@dataclass(frozen=True)
class Rounds:
    """A batch of n rounds in the order of the log; what the log does not have is None.

    With full information there may be no chosen action: then features and rewards are those of the first offered one,
    and action is None.

    Parameters
    ----------
    file : str
        Path of the file, or a name for what is in memory.
    rows : array, shape (n,)
        First row of each round in the file, counted from 0.
    features : array, shape (n, p)
        Features of the chosen actions.
    rewards : array, shape (n,)
        Rewards of the chosen actions.
    times : array, shape (n,)
        datetime64[us] (UTC), or numbers.
    offered : array, shape (Σ offered_counts, p)
        Features of all offered actions, round after round.
    offered_counts : array, shape (n,)
        How many actions each round offers.
    action : array, shape (n,)
        Which of the offered actions was chosen, from 0.
    propensity : array, shape (n,)
        Probability with which the chosen action was chosen.
    position : array, shape (n,)
        Position at which it was shown, NaN where it is missing.
    all_rewards : array, shape (Σ offered_counts,)
        Rewards of all offered actions.
    arm : array, shape (n,)
        Place of the chosen arm in the table of arms, where the log has labels.
    offered_arms : array, shape (Σ offered_counts,)
        Places of all offered arms, round after round.
    """

    file: str
    rows: Array
    features: Array
    rewards: Array
    times: Array | None = None
    offered: Array | None = None
    offered_counts: Array | None = None
    action: Array | None = None
    propensity: Array | None = None
    position: Array | None = None
    all_rewards: Array | None = None
    arm: Array | None = None
    offered_arms: Array | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def where(self, good: Array) -> Rounds:
        """The rounds where the mask `good` (n,) is true."""
        if good.all():
            return self
        changes = {name: getattr(self, name)[good] for name in PER_ROUND if getattr(self, name) is not None}
        if self.offered_counts is not None:
            of_row = np.repeat(good, self.offered_counts)
            changes |= {name: getattr(self, name)[of_row] for name in PER_OFFERED if getattr(self, name) is not None}
        return replace(self, **changes)

    def between(self, start: int, stop: int) -> Rounds:
        """The rounds from `start` up to, not including, `stop`."""
        changes = {name: getattr(self, name)[start:stop] for name in PER_ROUND if getattr(self, name) is not None}
        if self.offered_counts is not None:
            first = int(self.offered_counts[:start].sum())
            rows = slice(first, first + int(self.offered_counts[start:stop].sum()))
            changes |= {name: getattr(self, name)[rows] for name in PER_OFFERED if getattr(self, name) is not None}
        return replace(self, **changes)

    def offering(self, mask: Array) -> Rounds:
        """These rounds with the arms that each offered, a mask (n, arms); the chosen one is always among them."""
        assert self.arm is not None
        chosen = np.arange(len(mask)), self.arm
        mask = mask.copy()
        mask[chosen] = True
        return replace(
            self,
            offered_arms=np.nonzero(mask)[1],
            offered_counts=mask.sum(axis=1),
            action=mask.cumsum(axis=1)[chosen] - 1,
        )


def last_rounds(batches: Iterable[Rounds], latest: int) -> Iterable[Rounds]:
    """The batches that hold the last `latest` rounds; earlier ones are let go as soon as they are not needed."""
    kept: deque[Rounds] = deque()
    total = 0
    for batch in batches:
        kept.append(batch)
        total += len(batch)
        while total - len(kept[0]) >= latest:
            total -= len(kept.popleft())
    return kept
