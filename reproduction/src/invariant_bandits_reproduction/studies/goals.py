"""Goals of the studies: what must be true, judged by the measured value itself; verdicts say how close it
was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from invariant_bandits.checks import Array


@dataclass(frozen=True)
class Measurement:
    """A measured value with its 95 % interval or its standard error, NaN where it has none."""

    value: float
    low: float = float("nan")
    high: float = float("nan")
    error: float = float("nan")

    def with_error(self, digits: int = 1, sign: str = "") -> str:
        """For instance "1.2 ± 0.3"; sign "+" shows it always."""
        return f"{self.value:{sign}.{digits}f} ± {self.error:.{digits}f}".replace(
            "-", "−"
        )

    def with_interval(self, digits: int = 3) -> str:
        """For instance "0.970 (0.950–0.985)"."""
        return f"{self.value:.{digits}f} ({self.low:.{digits}f}–{self.high:.{digits}f})"


def mean_of(values: Array) -> Measurement:
    """Mean of values (n,) and the standard error of that mean; NaN for a single value."""
    error = (
        float(values.std(ddof=1) / np.sqrt(len(values)))
        if len(values) > 1
        else float("nan")
    )
    return Measurement(float(values.mean()), error=error)


def share_of(hits: int, total: int) -> Measurement:
    """A share with its Wilson interval."""
    z = 1.96
    share = hits / total
    centre = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = (
        z
        * np.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
        / (1 + z * z / total)
    )
    return Measurement(
        share, float(max(0.0, centre - half)), float(min(1.0, centre + half))
    )


def median_of(values: Array) -> Measurement:
    """A median with its interval of order statistics."""
    ordered = np.sort(values)
    n = len(ordered)
    reach = 0.98 * np.sqrt(n)
    low, high = int(np.floor(n / 2 - reach)), int(np.ceil(n / 2 + reach))
    return Measurement(
        float(np.median(ordered)),
        float(ordered[max(low, 0)]),
        float(ordered[min(high, n - 1)]),
    )


@dataclass(frozen=True)
class GoalVerdict:
    """What a study says about a goal.

    Attributes
    ----------
    reached : bool
        Whether it is met.
    measured : Measurement
        What decides.
    numbers : str
        The figures behind it in words, where the measurement alone does not tell.
    margin : Measurement, optional
        Mean of what should not be positive, over pairs, where a goal compares means.
    """

    reached: bool
    measured: Measurement
    numbers: str = ""
    margin: Measurement | None = None

    @property
    def close(self) -> bool:
        """Within two standard errors of the bound: other repetitions could tip it."""
        return (
            self.margin is not None and abs(self.margin.value) < 2.0 * self.margin.error
        )

    @property
    def mark(self) -> str:
        """A tick or a cross."""
        return "✓" if self.reached else "✗"


@dataclass(frozen=True)
class Goal:
    """One line of what a study must show.

    Attributes
    ----------
    words : str
        What must be true.
    where : str
        The row, stretch or kind of logs it looks at.
    judge : callable
        What the study measured -> GoalVerdict.
    policy : str
        Whose goal it is, where it is one of a policy.
    """

    words: str
    where: str
    judge: Callable[[Any], GoalVerdict]
    policy: str = ""


def judge_all(goals: Iterable[Goal], measured: Any) -> list[tuple[Goal, GoalVerdict]]:
    """Every goal of a study with its verdict on what was measured."""
    return [(goal, goal.judge(measured)) for goal in goals]


Regret: TypeAlias = Mapping[str, Mapping[str, Array]]
"""Row -> policy -> regret at the horizon (replications,), repetitions paired within a row."""


def mean_at_most(
    words: str, row: str, policy: str, rivals: tuple[str, ...], factor: float = 1.0
) -> Goal:
    """Mean regret of `policy` ≤ factor × that of the best (by its mean there) of `rivals`, by the paired
    difference.
    """

    def judge(regret: Regret) -> GoalVerdict:
        regret_of = regret[row]
        rival = min(rivals, key=lambda name: regret_of[name].mean())
        margin = mean_of(regret_of[policy] - factor * regret_of[rival])
        ours, theirs = regret_of[policy].mean(), regret_of[rival].mean()
        product = "" if factor == 1.0 else f" = {factor:g} × {theirs:.1f}"
        named = f" ({rival})" if len(rivals) > 1 else ""
        numbers = f"{ours:.1f}, bound {factor * theirs:.1f}{product}{named}"
        return GoalVerdict(
            margin.value <= 0.0,
            mean_of(regret_of[policy]),
            numbers=numbers,
            margin=margin,
        )

    return Goal(words, row, judge, policy)


def worst_at_most(
    words: str,
    row: str,
    policy: str,
    rival: str,
    *,
    strictly: bool = False,
    factor: float = 1.0,
) -> Goal:
    """Largest regret of `policy` over all repetitions ≤ factor × that of `rival`, or < where `strictly`."""

    def judge(regret: Regret) -> GoalVerdict:
        ours, theirs = (float(regret[row][name].max()) for name in (policy, rival))
        bound = factor * theirs
        reached = ours < bound if strictly else ours <= bound
        return GoalVerdict(
            reached, Measurement(ours), numbers=f"{ours:.0f}, bound {bound:.0f}"
        )

    return Goal(words, row, judge, policy)


def worst_below(words: str, row: str, policy: str, bound: float) -> Goal:
    """Largest regret of `policy` over all repetitions < bound."""

    def judge(regret: Regret) -> GoalVerdict:
        ours = float(regret[row][policy].max())
        return GoalVerdict(
            ours < bound, Measurement(ours), numbers=f"{ours:.0f}, bound {bound:g}"
        )

    return Goal(words, row, judge, policy)
