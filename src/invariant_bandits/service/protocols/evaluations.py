"""What policies would have earned over a stretch of the event log, from its logged propensities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from invariant_bandits.checks import Array, InputError
from invariant_bandits.logs.feedback import Feedback
from invariant_bandits.service.history.decisions import SettledDecision, settled_decisions
from invariant_bandits.service.replay import first_since
from invariant_bandits.service.settings import Configuration

if TYPE_CHECKING:
    from invariant_bandits.evaluation.intervals import Estimate

MOST_DECISIONS = 1_000_000
"""So many can be evaluated at once."""


class TooManyError(InputError):
    """More decisions than can be evaluated at once."""


@dataclass(frozen=True)
class Stretch:
    """SettledDecision decisions of one model, in their order.

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


def stretch(
    store: Any, events: int, model: str, rules: Configuration, start: float, end: float, most: int = MOST_DECISIONS
) -> Stretch:
    """The settled decisions of a model among so many events.

    Parameters
    ----------
    store : Store
    events : int
        How many there are.
    model : str
    rules : Configuration
        Its rules, by which decisions that were not learned in their mode have earned something.
    start, end : float
        When they were made, in seconds since 1970; those at the end do not count.
    most : int
        How many there may be.
    """
    found: list[SettledDecision] = []
    begin = first_since(store, start, next(iter(store.rows())).seq, events)
    for one in settled_decisions(store, model, rules, first=begin, last=events):
        if one.decided.time >= end:
            break
        if len(found) == most:
            raise TooManyError(f"startTime: more than {most:,} decisions lie in this range")
        if one.decided.time >= start:
            found.append(one)
    if not found:
        raise InputError("startTime: no settled decisions lie in this range")
    counts = [len(one.decided.propensities) for one in found]
    feedback = Feedback.from_arrays(
        np.ones((sum(counts), 1)),
        [one.decided.place for one in found],
        [one.reward for one in found],
        counts=counts,
        propensities=np.concatenate([one.decided.propensities for one in found]),
    )
    return Stretch(np.array([one.decided.time for one in found]), feedback)
