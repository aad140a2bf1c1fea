"""The vocabulary of judgement: measurements, bounds, verdicts; claims of the experiments and goals of the
studies.

A *claim* is judged by an interval: 95 % percentile bootstrap over repetitions, drawn within each cell so that
policies stay paired. It *holds* if the whole interval meets the bound, *fails* if none of it does, and is
*undecided* otherwise. A *goal* is judged by the measured value itself; its verdict says how close it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.simulation.results import SimulationResult

RESAMPLES = 1000
LEVEL = 0.95
HOLDS, UNDECIDED, FAILS, UNTESTED = "holds", "undecided", "fails", "not testable"
RIGHT_SPLIT = "right split"

Results: TypeAlias = Mapping[str, SimulationResult]
"""Cell -> what was simulated there."""


@dataclass(frozen=True)
class Sample:
    """Results seen through one choice of repetitions per cell; the identity, or one bootstrap draw.

    right_only: only the repetitions in which the policy's own estimated split has the right dimensions count.
    """

    results: Results
    chosen: Mapping[str, Array] | None = None
    right_only: bool = False

    def regret(self, cell: str, policy: str) -> Array:
        """Regret paths (n, kept rounds)."""
        paths, result = self.results[cell].regret[policy], self.results[cell]
        rows = np.arange(len(paths)) if self.chosen is None else self.chosen[cell]
        if self.right_only and RIGHT_SPLIT in result.observations.get(policy, {}):
            rows = rows[result.observations[policy][RIGHT_SPLIT][rows] == 1.0]
        return np.asarray(paths[rows])

    def final(self, cell: str, policy: str) -> Array:
        """Regret at the horizon (n,)."""
        return np.asarray(self.regret(cell, policy)[:, -1])

    def mean(self, cell: str, policy: str) -> float:
        """Mean regret at the horizon; NaN if no repetition is left."""
        values = self.final(cell, policy)
        return float(values.mean()) if len(values) else float("nan")

    def observed(self, cell: str, policy: str, quantity: str) -> Array:
        """What was observed of a policy in each repetition (n,)."""
        values = self.results[cell].observations[policy][quantity]
        return np.asarray(values if self.chosen is None else values[self.chosen[cell]])

    def rounds(self, cell: str) -> Array:
        """The rounds that the regret paths keep, from 1."""
        return np.asarray(self.results[cell].rounds)


@dataclass(frozen=True)
class Bound:
    """What a statistic must meet: low ≤ statistic ≤ high."""

    low: float = -np.inf
    high: float = np.inf

    def meets(self, value: float) -> bool:
        """Whether one number lies within."""
        return self.low <= value <= self.high

    def __str__(self) -> str:
        if np.isinf(self.low):
            return f"≤ {self.high:g}"
        return f"≥ {self.low:g}" if np.isinf(self.high) else f"{self.low:g} to {self.high:g}"


@dataclass(frozen=True)
class Measurement:
    """A measured value with its 95 % interval or its standard error, NaN where it has none."""

    value: float
    low: float = float("nan")
    high: float = float("nan")
    error: float = float("nan")

    def with_error(self, digits: int = 1, sign: str = "") -> str:
        """For instance "1.2 ± 0.3"; sign "+" shows it always."""
        return f"{self.value:{sign}.{digits}f} ± {self.error:.{digits}f}".replace("-", "−")

    def with_interval(self, digits: int = 3) -> str:
        """For instance "0.970 (0.950–0.985)"."""
        return f"{self.value:.{digits}f} ({self.low:.{digits}f}–{self.high:.{digits}f})"


def mean_of(values: Array) -> Measurement:
    """Mean of values (n,) and the standard error of that mean; NaN for a single value."""
    error = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")
    return Measurement(float(values.mean()), error=error)


def share_of(hits: int, total: int) -> Measurement:
    """A share with its Wilson interval."""
    z = 1.96
    share = hits / total
    centre = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z * np.sqrt(share * (1 - share) / total + z * z / (4 * total * total)) / (1 + z * z / total)
    return Measurement(share, float(max(0.0, centre - half)), float(min(1.0, centre + half)))


def median_of(values: Array) -> Measurement:
    """A median with its interval of order statistics."""
    ordered = np.sort(values)
    n = len(ordered)
    reach = 0.98 * np.sqrt(n)
    low, high = int(np.floor(n / 2 - reach)), int(np.ceil(n / 2 + reach))
    return Measurement(
        float(np.median(ordered)), float(ordered[max(low, 0)]), float(ordered[min(high, n - 1)])
    )


@dataclass(frozen=True)
class ClaimVerdict:
    """What the repetitions say about a claim or a goal.

    Attributes
    ----------
    word : str
        HOLDS, UNDECIDED, FAILS or UNTESTED.
    measured : Measurement
        The statistic that decides.
    repetitions : str
        Per cell; one number for each where they differ.
    numbers : str
        The figures behind it in words, where the statistic alone does not tell.
    margin : Measurement, optional
        Mean of what should not be positive, over pairs, where a goal compares means.
    """

    word: str
    measured: Measurement
    repetitions: str = ""
    numbers: str = ""
    margin: Measurement | None = None

    @property
    def reached(self) -> bool:
        """Whether it holds."""
        return self.word == HOLDS

    @property
    def close(self) -> bool:
        """Within two standard errors of the bound: other repetitions could tip it."""
        return self.margin is not None and abs(self.margin.value) < 2.0 * self.margin.error

    @property
    def mark(self) -> str:
        """A tick or a cross."""
        return "✓" if self.reached else "✗"


def word_for(reached: bool) -> str:
    """What a goal's verdict says."""
    return HOLDS if reached else FAILS


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
        What the study measured -> ClaimVerdict.
    policy : str
        Whose goal it is, where it is one of a policy.
    """

    words: str
    where: str
    judge: Callable[[Any], ClaimVerdict]
    policy: str = ""


def judge_all(goals: Iterable[Goal], measured: Any) -> list[tuple[Goal, ClaimVerdict]]:
    """Every goal of a study with its verdict on what was measured."""
    return [(goal, goal.judge(measured)) for goal in goals]


Regret: TypeAlias = Mapping[str, Mapping[str, Array]]
"""Row -> policy -> regret at the horizon (replications,), repetitions paired within a row."""


def mean_at_most(words: str, row: str, policy: str, rivals: tuple[str, ...], factor: float = 1.0) -> Goal:
    """Mean regret of `policy` ≤ factor × that of the best (by its mean there) of `rivals`, by the paired
    difference.
    """

    def judge(regret: Regret) -> ClaimVerdict:
        regret_of = regret[row]
        rival = min(rivals, key=lambda name: regret_of[name].mean())
        margin = mean_of(regret_of[policy] - factor * regret_of[rival])
        ours, theirs = regret_of[policy].mean(), regret_of[rival].mean()
        product = "" if factor == 1.0 else f" = {factor:g} × {theirs:.1f}"
        named = f" ({rival})" if len(rivals) > 1 else ""
        numbers = f"{ours:.1f}, bound {factor * theirs:.1f}{product}{named}"
        return ClaimVerdict(
            word_for(margin.value <= 0.0), mean_of(regret_of[policy]), numbers=numbers, margin=margin
        )

    return Goal(words, row, judge, policy)


def worst_at_most(words: str, row: str, policy: str, rival: str, *, strictly: bool = False) -> Goal:
    """Largest regret of `policy` over all repetitions ≤ that of `rival`, or < where `strictly`."""

    def judge(regret: Regret) -> ClaimVerdict:
        ours, theirs = (float(regret[row][name].max()) for name in (policy, rival))
        reached = ours < theirs if strictly else ours <= theirs
        return ClaimVerdict(word_for(reached), Measurement(ours), numbers=f"{ours:.0f}, bound {theirs:.0f}")

    return Goal(words, row, judge, policy)


def worst_below(words: str, row: str, policy: str, bound: float) -> Goal:
    """Largest regret of `policy` over all repetitions < bound."""

    def judge(regret: Regret) -> ClaimVerdict:
        ours = float(regret[row][policy].max())
        return ClaimVerdict(word_for(ours < bound), Measurement(ours), numbers=f"{ours:.0f}, bound {bound:g}")

    return Goal(words, row, judge, policy)


@dataclass(frozen=True)
class Claim:
    """A statement that can be wrong.

    source: "paper"; "recipe", the paper's statement tested with the published estimation recipe; or "ours",
    beyond the paper. cells: those it looks at. right_only: a policy of which only the runs with the right
    split count.
    """

    name: str
    statement: str
    quantity: str
    statistic: Callable[[Sample], float]
    bound: Bound
    cells: tuple[str, ...]
    source: str = "paper"
    right_only: str | None = None

    def judge(self, results: Results, seed: int = 0, resamples: int = RESAMPLES) -> ClaimVerdict:
        """Statistic, interval and verdict; with `right_only` (a policy) only its runs with the right split
        count.
        """
        sample = Sample(results, right_only=self.right_only is not None)
        value = float(self.statistic(sample))
        rng = np.random.default_rng(seed)
        draws = np.array([self.statistic(self._resampled(results, rng)) for _ in range(resamples)])
        counts = self._counts(sample)
        if not np.isfinite(value) or np.isnan(draws).mean() > 0.05:
            return ClaimVerdict(UNTESTED, Measurement(value), counts)
        low, high = (float(edge) for edge in np.nanquantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]))
        inside, low_in, high_in = self.bound.meets(value), self.bound.meets(low), self.bound.meets(high)
        apart = high < self.bound.low or low > self.bound.high
        word = HOLDS if inside and low_in and high_in else FAILS if apart else UNDECIDED
        return ClaimVerdict(word, Measurement(value, low, high), counts)

    def _resampled(self, results: Results, rng: np.random.Generator) -> Sample:
        chosen = {}
        for cell in self.cells:
            n = len(next(iter(results[cell].regret.values())))
            chosen[cell] = rng.integers(n, size=n)
        return Sample(results, chosen, self.right_only is not None)

    def _counts(self, sample: Sample) -> str:
        policy = self.right_only
        sizes = [
            len(sample.regret(cell, policy or next(iter(sample.results[cell].regret)))) for cell in self.cells
        ]
        return f"{sizes[0]}" if len(set(sizes)) == 1 else ", ".join(map(str, sizes))


def growth_exponent(cell: str, policy: str) -> Callable[[Sample], float]:
    """Slope of log mean regret over log t, in the last four fifths of the horizon: below 1 is sublinear."""

    def statistic(sample: Sample) -> float:
        rounds, mean = sample.rounds(cell), sample.regret(cell, policy).mean(axis=0)
        late = rounds > rounds[-1] / 5
        return slope(np.log(rounds[late]), np.log(mean[late]))

    return statistic


def straightness(cells: Mapping[int, str], policy: str) -> Callable[[Sample], float]:
    """Share of the variation of the means over x that a straight line explains (R²)."""
    x = np.array(list(cells))

    def statistic(sample: Sample) -> float:
        y = np.array([sample.mean(cell, policy) for cell in cells.values()])
        spread = ((y - y.mean()) ** 2).sum()
        return float(1.0 - ((y - y.mean() - slope(x, y) * (x - x.mean())) ** 2).sum() / spread)

    return statistic


def trend(cells: Mapping[int, str], policy: str) -> Callable[[Sample], float]:
    """Slope of the mean regret over x."""
    x = np.array(list(cells))
    return lambda sample: slope(x, np.array([sample.mean(cell, policy) for cell in cells.values()]))


def ratio_of_trends(cells: Mapping[int, str], policy: str, rival: str) -> Callable[[Sample], float]:
    """Slope of one policy over that of another."""
    return lambda sample: trend(cells, policy)(sample) / trend(cells, rival)(sample)


def ratio(cell: str, policy: str, rival: str) -> Callable[[Sample], float]:
    """Mean regret of one policy over that of another."""
    return lambda sample: sample.mean(cell, policy) / sample.mean(cell, rival)


def largest_ratio(cells: Iterable[str], policy: str, rival: str) -> Callable[[Sample], float]:
    """The ratio of means in the cell where it is largest."""
    return lambda sample: max(ratio(cell, policy, rival)(sample) for cell in cells)


def smallest_ratio(cells: Iterable[str], policy: str, rival: str) -> Callable[[Sample], float]:
    """The ratio of means in the cell where it is smallest."""
    return lambda sample: min(ratio(cell, policy, rival)(sample) for cell in cells)


def slope(x: Array, y: Array) -> float:
    """Least-squares slope of y over x."""
    centred = x - x.mean()
    return float(centred @ (y - y.mean()) / (centred @ centred))
