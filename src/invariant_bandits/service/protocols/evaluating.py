"""What policies would have earned over a stretch of the event log, from its logged propensities."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from invariant_bandits.checks import Array, InputError
from invariant_bandits.logs.feedback import Feedback
from invariant_bandits.service.events import AnyEvent, Closed, Decided, decoded

if TYPE_CHECKING:
    from invariant_bandits.evaluation.intervals import Estimate

MOST_DECISIONS = 1_000_000
"""So many can be evaluated at once."""


class TooManyError(InputError):
    """More decisions than can be evaluated at once."""


@dataclass(frozen=True)
class Stretch:
    """Settled decisions of one model, in their order.

    Parameters
    ----------
    times : array, shape (n,)
        When they were decided, in seconds since 1970.
    feedback : Feedback
        Actions, rewards and propensities; features are not looked at.
    """

    times: Array
    feedback: Feedback

    @property
    def rewards(self) -> Array:
        """Of the decisions (n,)."""
        return self.feedback.rewards

    def target(self, policy: str) -> Array:
        """Probabilities of all offered actions (rows,) under "Baseline", the first one, or "Random"."""
        counts = self.feedback.counts
        if policy == "Random":
            return np.repeat(1.0 / counts, counts)
        first = np.zeros(int(counts.sum()))
        first[np.cumsum(counts) - counts] = 1.0
        return first

    def weights(self, policy: str) -> Array:
        """Importance weights (n,); "Online" is whoever decided."""
        if policy == "Online":
            return np.ones(self.feedback.rounds)
        assert self.feedback.propensities is not None
        return np.asarray(self.feedback.of_logged(self.target(policy)) / self.feedback.propensities)

    def estimates(self, policy: str) -> tuple[Estimate, Estimate]:
        """Reward per decision by SNIPS and by IPS; both are the mean reward for whoever decided."""
        from invariant_bandits.evaluation.estimators import ips, logged_value, snips

        if policy == "Online":
            value = logged_value(self.feedback)
            return value, value
        target = self.target(policy)
        return snips(self.feedback, target), ips(self.feedback, target)


POLICIES = ("Online", "Baseline", "Random")


def stretch(store: Any, events: int, model: str, start: float, end: float) -> Stretch:
    """The settled decisions of a model among so many events.

    Parameters
    ----------
    store : Store
    events : int
        How many there are.
    model : str
    start, end : float
        When they were made, in seconds since 1970; those at the end do not count.
    """
    decided: dict[str, Decided] = {}
    rewards: dict[str, float] = {}
    for event in _since(store, events, start):
        if isinstance(event, Decided) and event.model == model and start <= event.time < end:
            if len(decided) == MOST_DECISIONS:
                raise TooManyError(f"startTime: more than {MOST_DECISIONS:,} decisions lie in this range")
            decided[event.id] = event
        elif isinstance(event, Closed) and event.id in decided and event.value is not None:
            rewards[event.id] = event.value
    settled = [one for one in decided.values() if one.id in rewards]
    if not settled:
        raise InputError("startTime: no settled decisions lie in this range")
    counts = [len(one.propensities) for one in settled]
    feedback = Feedback.from_arrays(
        np.ones((sum(counts), 1)),
        [one.place for one in settled],
        [rewards[one.id] for one in settled],
        counts=counts,
        propensities=np.concatenate([one.propensities for one in settled]),
    )
    return Stretch(np.array([one.time for one in settled]), feedback)


def _since(store: Any, events: int, start: float) -> Iterator[AnyEvent]:
    """Events from a time on: their times do not fall, so that the first one is found by halving."""
    low, high = next(iter(store.rows())).seq, events
    while low < high:
        middle = (low + high) // 2
        row = next(iter(store.rows(middle, middle + 1)))
        low, high = (middle + 1, high) if decoded(row.event).time < start else (low, middle)
    for row in store.rows(low, events):
        yield decoded(row.event)
