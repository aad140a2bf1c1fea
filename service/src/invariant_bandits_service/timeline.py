"""What became of a model over time: rewards, beliefs, versions and the holdout, in bounded space.

It is part of the state, a function of the events: the same after a restart as before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from operator import add
from typing import Any

import numpy as np
from scipy.special import stdtrit

from invariant_bandits.evaluation.intervals import mean_over_clusters
from invariant_bandits_service.events import Decided
from invariant_bandits_service.settings import BUCKETS, Configuration

MOST_SEGMENTS = 160
"""Points of the chart of rewards; two of them are joined into one as soon as there are so many."""
FIRST_LENGTH = 5
"""Decisions per segment at the beginning; neighbours are joined as there get to be more."""
FEWEST = 30
"""Decisions on both sides of a holdout before the uplift is shown."""
MOST_MARKS = 20
"""Versions and alarms, the latest, that the chart of rewards can show side by side."""
CONFIDENCE = 0.95
"""Coverage of the interval of an uplift, as everywhere in the library."""

Shown = dict[str, Any]


def _empty_buckets() -> list[list[float]]:
    return [[0.0, 0.0] for _ in range(BUCKETS)]


@dataclass
class Holdout:
    """Decisions and their rewards on both sides of a holdout, by bucket of their units.

    Parameters
    ----------
    model, holdout : list of [float, float]
        Number of settled decisions and sum of their rewards in every bucket.
    """

    model: list[list[float]] = field(default_factory=_empty_buckets)
    holdout: list[list[float]] = field(default_factory=_empty_buckets)

    def add(self, decided: Decided, reward: float) -> None:
        """Add a settled decision."""
        sums = getattr(self, decided.group)[decided.bucket]
        sums[0] += 1.0
        sums[1] += reward

    def uplift(self, rules: Configuration) -> Shown | None:
        """Return what both sides of the holdout earned, and how much more the model did.

        None without a holdout. All amounts are per decision.

        The error is that of a ratio, from how buckets of units differ, with Student's t: decisions of one
        unit need not be independent.
        """
        if not rules.holds_out:
            return None
        model = _mean(self.model)
        held = _mean(self.holdout)
        return {
            "share": rules.holdout,
            "to": rules.holdout_to,
            "key": rules.holdout_key,
            "model": model,
            "holdout": held,
            "uplift": _difference(model, held),
        }


def _mean(buckets: list[list[float]]) -> Shown:
    """Return the mean reward over buckets, with its error."""
    counts, sums = np.array(buckets).T
    return dict(mean_over_clusters(counts, sums))


def _difference(model: Shown, held: Shown) -> Shown | None:
    """Return the difference of two means with its interval; None if there is too little of one."""
    for side in (model, held):
        if side["decisions"] < FEWEST or side["error"] is None:
            return None
    value = model["mean"] - held["mean"]
    # the smaller number of buckets, so that the interval is not too short
    freedom = min(model["buckets"], held["buckets"]) - 1
    quantile = float(stdtrit(freedom, 0.5 + CONFIDENCE / 2))
    half = quantile * math.hypot(model["error"], held["error"])
    return {
        "value": value,
        "low": value - half,
        "high": value + half,
        "confidence": CONFIDENCE,
    }


@dataclass
class Timeline:
    """Rewards of a model over time, and what it believed.

    They are kept in at most 160 segments of equally many settled decisions.

    Decisions that were held out are not the model's: they count for the holdout only.

    Parameters
    ----------
    length : int
        Settled decisions per segment.
    segments : list of [float, float, float]
        Those that are complete: number of decisions, sum of their rewards and of the squares of these. They
        are plain numbers, as the engine's thread adds three at a time.
    points : list of (float, mapping or None)
        At the end of each: when that was, and what the model believed.
    last : [float, float, float]
        The incomplete segment.
    latest : float
        When the last decision was settled.
    marks : list of mapping
        When versions were activated and alarms began.
    in_alarm : bool
    holdout : Holdout
    """

    length: int = FIRST_LENGTH
    segments: list[list[float]] = field(default_factory=list)
    points: list[tuple[float, dict[str, float] | None]] = field(default_factory=list)
    last: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    latest: float = 0.0
    marks: list[Shown] = field(default_factory=list)
    in_alarm: bool = False
    holdout: Holdout = field(default_factory=Holdout)

    def add(self, decided: Decided, reward: float, time: float, policy: Any) -> None:
        """Add a decision that was settled, and what the policy believes after it."""
        if decided.group:
            self.holdout.add(decided, reward)
        if decided.group == "holdout":
            return
        self.last = list(map(add, self.last, (1.0, reward, reward * reward)))
        self.latest = time
        alarm = bool(getattr(policy, "alarm", False))
        if alarm and not self.in_alarm:
            self.mark("alarm", "alarm", time)
        self.in_alarm = alarm
        if self.last[0] < self.length:
            return
        mixture = getattr(policy, "mixture", None)
        self.segments.append(self.last)
        self.points.append(
            (time, None if mixture is None else mixture.hypothesis_weights())
        )
        self.last = [0.0, 0.0, 0.0]
        if len(self.segments) >= MOST_SEGMENTS:
            pairs = zip(self.segments[::2], self.segments[1::2], strict=True)
            self.segments = [list(map(add, left, right)) for left, right in pairs]
            self.points = self.points[1::2]
            self.length *= 2

    def mark(self, kind: str, words: str, time: float) -> None:
        """Remember when something happened."""
        self.marks = [*self.marks, {"kind": kind, "words": words, "time": time}][
            -MOST_MARKS:
        ]

    def show(self) -> Shown:
        """Return everything, as plain values; a segment is (time of its end, n, Σr, Σr²)."""
        ends = [time for time, _ in self.points] + [self.latest]
        parts = [*self.segments, self.last]
        return {
            "settled": int(sum(sums[0] for sums in parts)),
            "segments": [
                (time, *sums) for time, sums in zip(ends, parts, strict=True) if sums[0]
            ],
            "points": [
                {"time": time, "beliefs": beliefs}
                for time, beliefs in self.points
                if beliefs
            ],
            "marks": self.marks,
        }
