"""Is a new version better than the one that served? From the logged propensities, while it learns as it would have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from invariant_bandits.checks import InputError
from invariant_bandits.evaluation.estimators import ones, support
from invariant_bandits.evaluation.intervals import Estimate, estimated
from invariant_bandits.service.events import Decided
from invariant_bandits.service.learners.base import Learner

FEWEST_JUDGED = 200
"""Decisions of the running version below which nothing is concluded."""
MOST_WAITING = 100_000


class Seen(NamedTuple):
    """What a new version would have done where the running one decided.

    Attributes
    ----------
    weight : float
        Its probability of what was played, over that of the running version.
    difference : float
        What it expects of its own probabilities, less what it expects of those that were played from.
    expected : float
        What it expected of what was played.
    """

    weight: float
    difference: float
    expected: float


class Judge:
    """Gathers, decision by decision, what a new version would have earned more.

    Every decision says Σ_a (π(a) − p(a))·q̂(a) + (w − 1)·(r − q̂ of what was played): π are the probabilities of the
    new version in the state it had learned by then, p the logged ones, w = π/p of what was played, q̂ what the new
    version expected before it saw the reward r. Its mean is the doubly robust difference, unbiased as long as the
    logged propensities are right.

    Parameters
    ----------
    version : str
        The running version; only its decisions count.
    floor : float
        Share of uniform chance that the new version would be served with.
    """

    def __init__(self, version: str, floor: float) -> None:
        self.version, self.floor = version, floor
        self.refused: str | None = None
        self._waiting: dict[str, Seen] = {}
        self._seen: list[Seen] = []
        self._rewards: list[float] = []

    def decided(self, learner: Learner, event: Decided) -> None:
        """The running version decided: what would the new one have done?"""
        if event.version != self.version or len(self._waiting) >= MOST_WAITING:
            return
        try:
            round = learner.round_of(event.context, event.labels, event.actions)
            mine = learner.policy_for(round, self.floor).propensities(round.features).tolist()
            means = learner.means(round)
        except InputError as error:
            self.refused = str(error)
            return
        logged = event.propensities
        difference = sum((p - q) * mean for p, q, mean in zip(mine, logged, means, strict=True))
        self._waiting[event.id] = Seen(mine[event.place] / logged[event.place], difference, means[event.place])

    def settled(self, id: str, reward: float) -> None:
        """What the running version earned with a decision."""
        seen = self._waiting.pop(id, None)
        if seen is not None:
            self._seen.append(seen)
            self._rewards.append(reward)

    def verdict(self) -> Verdict:
        """What the decisions say together."""
        told = np.array(self._seen).reshape(-1, 3)
        rewards, weights, expected = np.array(self._rewards), told[:, 0], told[:, 2]
        effective, reasons = support(weights) if len(weights) else (0.0, ())
        if len(weights) < FEWEST_JUDGED:
            reasons = (f"{len(weights)} decisions of the running version, {FEWEST_JUDGED} are needed",)
        if self.refused is not None:
            reasons = (f"it refuses what the running version decides: {self.refused}", *reasons)
        gain = estimated(
            told[:, 1] + (weights - 1.0) * (rewards - expected),
            ones(len(weights)),
            effective_sample=effective,
            reasons=reasons,
            rewards=rewards,
            expected=expected,
            reach=weights - 1.0,
        )
        return Verdict(gain, float(rewards.mean()) if len(rewards) else None)


class Verdict(NamedTuple):
    """How much more per decision a new version would have earned, and what the running one did earn."""

    gain: Estimate
    earned: float | None

    @property
    def better(self) -> bool:
        """Whether it is better for all that can be known: the whole interval lies above 0."""
        return self.gain.concludes and self.gain.low > 0.0

    def to_plain(self) -> dict[str, Any]:
        """Plain values to be kept and shown."""
        gain, known = self.gain, self.gain.concludes
        return {
            "decisions": gain.rounds,
            "earned": self.earned,
            "gain": float(gain.value) if np.isfinite(gain.value) else None,
            "low": float(gain.low) if known else None,
            "high": float(gain.high) if known else None,
            "confidence": gain.confidence,
            "better": self.better,
            "worse": gain.concludes and gain.high < 0.0,
            "unknown_because": list(gain.reasons),
        }


def in_words(told: Mapping[str, Any]) -> str:
    """One line about a verdict, given as plain values.

    >>> in_words({"gain": 0.03, "low": 0.01, "high": 0.05, "decisions": 900, "unknown_because": []})
    '+0.03 [+0.01, +0.05] per decision against the running version, on 900 later decisions'
    """
    if told["unknown_because"]:
        return f"not compared: {told['unknown_because'][0]}"
    ends = f"[{told['low']:+.3g}, {told['high']:+.3g}]"
    return (
        f"{told['gain']:+.3g} {ends} per decision against the running version, on {told['decisions']:,} later decisions"
    )
