"""Claims of the experiments: statistics of regret, bounds on them, and verdicts.

A claim is judged by an interval: 95 % percentile bootstrap over repetitions, drawn within each cell so that
policies stay paired. It *holds* if the whole interval meets the bound, *fails* if none of it does, and is
*undecided* otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.simulation.loop import SimulationResult

RESAMPLES = 1000
LEVEL = 0.95
HOLDS = "holds"
UNDECIDED = "undecided"
FAILS = "fails"
UNTESTED = "not testable"
RIGHT_DIMENSIONS = "right dimensions"
"""Observed of an estimated split: 1 if it has as many invariant dimensions as the true one, else 0."""

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
        if self.right_only and RIGHT_DIMENSIONS in result.observations.get(policy, {}):
            rows = rows[result.observations[policy][RIGHT_DIMENSIONS][rows] == 1.0]
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
        return (
            f"≥ {self.low:g}"
            if np.isinf(self.high)
            else f"{self.low:g} to {self.high:g}"
        )


@dataclass(frozen=True)
class ClaimVerdict:
    """What the repetitions say about a claim.

    word: HOLDS, UNDECIDED, FAILS or UNTESTED. value, low, high: the statistic that decides, and its 95 %
    interval. repetitions: per cell, where they differ.
    """

    word: str
    value: float
    low: float = float("nan")
    high: float = float("nan")
    repetitions: str = ""

    @property
    def reached(self) -> bool:
        """Whether it holds."""
        return self.word == HOLDS


@dataclass(frozen=True)
class Claim:
    """A statement that can be wrong.

    source: "paper", a claim of the paper about a policy of the paper; "rebuilt" or "estimator", such a claim
    tested with our rebuild of the paper's estimator or with our own estimator; "check", a theorem that only a
    mistake of the code can miss; "ours", beyond the paper. cells: those it looks at. right_only: a policy of
    which only the runs with the right dimensions count. reading: what the statistic says, in words with
    {value}.
    """

    name: str
    statement: str
    quantity: str
    reading: str
    statistic: Callable[[Sample], float]
    bound: Bound
    cells: tuple[str, ...]
    source: str = "paper"
    right_only: str | None = None

    def judge(
        self, results: Results, seed: int = 0, resamples: int = RESAMPLES
    ) -> ClaimVerdict:
        """Statistic, interval and verdict; with `right_only` (a policy) only its runs with the right
        dimensions count.
        """
        sample = Sample(results, right_only=self.right_only is not None)
        value = float(self.statistic(sample))
        rng = np.random.default_rng(seed)
        draws = np.array(
            [self.statistic(self._resampled(results, rng)) for _ in range(resamples)]
        )
        counts = self._counts(sample)
        if not np.isfinite(value) or np.isnan(draws).mean() > 0.05:
            return ClaimVerdict(UNTESTED, value, repetitions=counts)
        low, high = (
            float(edge)
            for edge in np.nanquantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        )
        inside = all(map(self.bound.meets, (value, low, high)))
        apart = high < self.bound.low or low > self.bound.high
        word = HOLDS if inside else FAILS if apart else UNDECIDED
        return ClaimVerdict(word, value, low, high, counts)

    def _resampled(self, results: Results, rng: np.random.Generator) -> Sample:
        sizes = {cell: results[cell].replications for cell in self.cells}
        chosen = {cell: rng.integers(n, size=n) for cell, n in sizes.items()}
        return Sample(results, chosen, self.right_only is not None)

    def _counts(self, sample: Sample) -> str:
        first = {cell: next(iter(sample.results[cell].regret)) for cell in self.cells}
        sizes = [
            len(sample.regret(cell, self.right_only or policy))
            for cell, policy in first.items()
        ]
        return f"{sizes[0]}" if len(set(sizes)) == 1 else ", ".join(map(str, sizes))


def finding(judged: Sequence[tuple[Claim, ClaimVerdict]]) -> str:
    """Return one sentence about claims with one statement: the statement, and what became of it.

    A statement holds if every test of it holds; otherwise the sentence names the tests that do not hold, with
    their values.
    """
    statement = judged[0][0].statement.rstrip(".")
    parts = []
    for word in (FAILS, UNDECIDED, UNTESTED):
        readings = [
            claim.reading.format(value=f"{verdict.value:.3g}")
            for claim, verdict in judged
            if verdict.word == word
        ]
        if readings:
            parts.append(f"{word}: {', '.join(readings)}")
    held = sum(verdict.reached for _, verdict in judged)
    if not parts:
        parts = [HOLDS]
    elif held:
        parts.append(f"{HOLDS} in {held} of {len(judged)} tests")
    return f"Claimed: {statement}; {'; '.join(parts)}."


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
        return float(
            1.0 - ((y - y.mean() - slope(x, y) * (x - x.mean())) ** 2).sum() / spread
        )

    return statistic


def trend(cells: Mapping[int, str], policy: str) -> Callable[[Sample], float]:
    """Slope of the mean regret over x."""
    x = np.array(list(cells))
    return lambda sample: slope(
        x, np.array([sample.mean(cell, policy) for cell in cells.values()])
    )


def ratio_of_trends(
    cells: Mapping[int, str], policy: str, rival: str
) -> Callable[[Sample], float]:
    """Slope of one policy over that of another."""
    return lambda sample: trend(cells, policy)(sample) / trend(cells, rival)(sample)


def ratio(cell: str, policy: str, rival: str) -> Callable[[Sample], float]:
    """Mean regret of one policy over that of another."""
    return lambda sample: sample.mean(cell, policy) / sample.mean(cell, rival)


def largest_ratio(
    cells: Iterable[str], policy: str, rival: str
) -> Callable[[Sample], float]:
    """The ratio of means in the cell where it is largest."""
    return lambda sample: max(ratio(cell, policy, rival)(sample) for cell in cells)


def largest_factor(
    cells: Iterable[str], policy: str, rival: str
) -> Callable[[Sample], float]:
    """Return by what factor the means differ, up or down, in the cell where they differ most."""

    def statistic(sample: Sample) -> float:
        ratios = [ratio(cell, policy, rival)(sample) for cell in cells]
        return max(max(value, 1.0 / value) for value in ratios)

    return statistic


def below(
    name: str,
    statement: str,
    quantity: str,
    reading: str,
    cells: Iterable[str],
    policies: tuple[str, str],
    most: float = 1.0,
    source: str = "ours",
    right_only: str | None = None,
) -> Claim:
    """The claim that the first policy has at most so many times the mean regret of the second in every cell;
    the other parameters are those of Claim.
    """
    cells = tuple(cells)
    statistic = largest_ratio(cells, *policies)
    return Claim(
        name,
        statement,
        quantity,
        reading,
        statistic,
        Bound(high=most),
        cells,
        source,
        right_only,
    )


def slope(x: Array, y: Array) -> float:
    """Least-squares slope of y over x."""
    centred = x - x.mean()
    return float(centred @ (y - y.mean()) / (centred @ centred))
