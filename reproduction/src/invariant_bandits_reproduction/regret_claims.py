"""Tests of claims about regret: statistics with a bootstrap interval, and comparisons of paired runs.

A statistic of cells is judged by an interval: 95 % percentile bootstrap over repetitions, drawn within each
cell so that policies stay paired. The claim *holds* if the whole interval meets the bound, *fails* if none of
it does, and is *undecided* otherwise. A comparison of a study is judged by the measured value itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.simulation.loop import SimulationResult
from invariant_bandits_reproduction.claims import (
    FAILS,
    HOLDS,
    UNDECIDED,
    UNTESTED,
    Bound,
    Claim,
    Measurement,
    Verdict,
    decide,
    mean_of,
)

RESAMPLES = 1000
"""Draws of the bootstrap: the quantiles of its interval then vary by less than a hundredth of it."""
LEVEL = 0.95
"""Coverage of the bootstrap's interval, as everywhere in the reports."""
MOST_UNDEFINED = 0.05
"""Share of draws without a value (no repetition left) above which a claim is not testable."""
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
        """Return regret paths (n, kept rounds)."""
        result = self.results[cell]
        paths = result.regret[policy]
        rows = np.arange(len(paths)) if self.chosen is None else self.chosen[cell]
        observed = result.observations.get(policy, {})
        if self.right_only and RIGHT_DIMENSIONS in observed:
            rows = rows[observed[RIGHT_DIMENSIONS][rows] == 1.0]
        return paths[rows]

    def final(self, cell: str, policy: str) -> Array:
        """Return the regret at the horizon (n,)."""
        return self.regret(cell, policy)[:, -1]

    def mean(self, cell: str, policy: str) -> float:
        """Return the mean regret at the horizon; NaN if no repetition is left."""
        values = self.final(cell, policy)
        return float(values.mean()) if len(values) else float("nan")

    def observed(self, cell: str, policy: str, quantity: str) -> Array:
        """Return what was observed of a policy in each repetition (n,)."""
        values = self.results[cell].observations[policy][quantity]
        return values if self.chosen is None else values[self.chosen[cell]]

    def rounds(self, cell: str) -> Array:
        """Return the rounds that the regret paths keep, from 1."""
        return self.results[cell].rounds


Statistic: TypeAlias = Callable[[Sample], float]


@dataclass(frozen=True)
class BootstrapTest:
    """Whether a statistic of cells meets a bound.

    Attributes
    ----------
    statistic : callable
        Sample -> value.
    bound : Bound
        What the value must meet.
    cells : tuple of str
        The cells that the statistic looks at.
    reading : str
        What the statistic says, in words with {value}.
    right_only : str, optional
        A policy of which only the runs with the right dimensions count.
    """

    statistic: Statistic
    bound: Bound
    cells: tuple[str, ...]
    reading: str
    right_only: str | None = None

    def __call__(
        self, results: Results, seed: int = 0, resamples: int = RESAMPLES
    ) -> Verdict:
        """Return the verdict with the statistic and its interval."""
        sample = Sample(results, right_only=self.right_only is not None)
        value = float(self.statistic(sample))
        rng = np.random.default_rng(seed)
        draws = np.array(
            [self.statistic(self._resampled(results, rng)) for _ in range(resamples)]
        )
        if not np.isfinite(value) or np.isnan(draws).mean() > MOST_UNDEFINED:
            word = UNTESTED
            measured = Measurement(value)
        else:
            edges = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
            low, high = np.nanquantile(draws, edges).tolist()
            measured = Measurement(value, low, high)
            word = self._word(measured)
        return Verdict(
            word,
            measured,
            numbers=self.reading.format(value=f"{value:.3g}"),
            repetitions=self._counts(sample),
            bound=self.bound,
        )

    def _word(self, measured: Measurement) -> str:
        if measured.high < self.bound.low or measured.low > self.bound.high:
            return FAILS
        edges = (measured.value, measured.low, measured.high)
        return HOLDS if all(map(self.bound.meets, edges)) else UNDECIDED

    def _resampled(self, results: Results, rng: np.random.Generator) -> Sample:
        chosen = {}
        for cell in self.cells:
            size = results[cell].replications
            chosen[cell] = rng.integers(size, size=size)
        return Sample(results, chosen, self.right_only is not None)

    def _counts(self, sample: Sample) -> str:
        counts = []
        for cell in self.cells:
            policy = self.right_only or next(iter(sample.results[cell].regret))
            counts.append(str(len(sample.regret(cell, policy))))
        return counts[0] if len(set(counts)) == 1 else ", ".join(counts)


def growth_exponent(cell: str, policy: str) -> Statistic:
    """Return the slope of log mean regret over log t, in the last four fifths of the horizon.

    Below 1 is sublinear.
    """

    def statistic(sample: Sample) -> float:
        rounds = sample.rounds(cell)
        mean = sample.regret(cell, policy).mean(axis=0)
        late = rounds > rounds[-1] / 5
        return slope(np.log(rounds[late]), np.log(mean[late]))

    return statistic


def straightness(cells: Mapping[int, str], policy: str) -> Statistic:
    """Return the share of the variation of the means over x that a straight line explains (R²)."""
    x = np.array(list(cells))

    def statistic(sample: Sample) -> float:
        y = np.array([sample.mean(cell, policy) for cell in cells.values()])
        centred = y - y.mean()
        residual = centred - slope(x, y) * (x - x.mean())
        unexplained = (residual**2).sum()
        variation = (centred**2).sum()
        return float(1.0 - unexplained / variation)

    return statistic


def trend(cells: Mapping[int, str], policy: str) -> Statistic:
    """Return the slope of the mean regret over x."""
    x = np.array(list(cells))

    def statistic(sample: Sample) -> float:
        means = [sample.mean(cell, policy) for cell in cells.values()]
        return slope(x, np.array(means))

    return statistic


def ratio_of_trends(cells: Mapping[int, str], policy: str, rival: str) -> Statistic:
    """Return the slope of one policy over that of another."""
    trend_of_policy = trend(cells, policy)
    trend_of_rival = trend(cells, rival)
    return lambda sample: trend_of_policy(sample) / trend_of_rival(sample)


def ratio(cell: str, policy: str, rival: str) -> Statistic:
    """Return the mean regret of one policy over that of another."""
    return lambda sample: sample.mean(cell, policy) / sample.mean(cell, rival)


def largest_ratio(cells: Iterable[str], policy: str, rival: str) -> Statistic:
    """Return the ratio of means in the cell where it is largest."""
    return lambda sample: max(ratio(cell, policy, rival)(sample) for cell in cells)


def largest_factor(cells: Iterable[str], policy: str, rival: str) -> Statistic:
    """Return by what factor the means differ, up or down, in the cell where they differ most."""

    def statistic(sample: Sample) -> float:
        ratios = [ratio(cell, policy, rival)(sample) for cell in cells]
        return max(max(value, 1.0 / value) for value in ratios)

    return statistic


def below(
    cells: Iterable[str],
    policies: tuple[str, str],
    reading: str,
    most: float = 1.0,
    right_only: str | None = None,
) -> BootstrapTest:
    """Test that the first policy has in every cell at most `most` times the mean regret of the second."""
    cells = tuple(cells)
    statistic = largest_ratio(cells, *policies)
    return BootstrapTest(
        statistic, Bound(high=most), cells=cells, reading=reading, right_only=right_only
    )


def slope(x: Array, y: Array) -> float:
    """Return the least-squares slope of y over x."""
    centred = x - x.mean()
    return float(centred @ (y - y.mean()) / (centred @ centred))


Regret: TypeAlias = Mapping[str, Mapping[str, Array]]
"""Row -> policy -> regret at the horizon (replications,), repetitions paired within a row."""


def mean_at_most(
    statement: str, row: str, policy: str, rivals: tuple[str, ...], factor: float = 1.0
) -> Claim:
    """Claim: mean regret of `policy` ≤ factor × that of the best (by its mean there) of `rivals`.

    The paired difference decides.
    """

    def test(regret: Regret) -> Verdict:
        regret_of = regret[row]
        rival = min(rivals, key=lambda name: regret_of[name].mean())
        measured = mean_of(regret_of[policy])
        margin = mean_of(regret_of[policy] - factor * regret_of[rival])
        theirs = regret_of[rival].mean()
        product = "" if factor == 1.0 else f" = {factor:g} × {theirs:.1f}"
        named = f" ({rival})" if len(rivals) > 1 else ""
        numbers = f"{measured.value:.1f}, bound {factor * theirs:.1f}{product}{named}"
        return decide(margin.value <= 0.0, measured, numbers, margin)

    return Claim(statement, row, test, policy=policy)


def worst_at_most(
    statement: str,
    row: str,
    policy: str,
    rival: str,
    *,
    strictly: bool = False,
    factor: float = 1.0,
) -> Claim:
    """Claim: largest regret of `policy` ≤ factor × the largest of `rival`, or < if `strictly`."""

    def test(regret: Regret) -> Verdict:
        ours = float(regret[row][policy].max())
        bound = factor * float(regret[row][rival].max())
        reached = ours < bound if strictly else ours <= bound
        return decide(reached, Measurement(ours), f"{ours:.0f}, bound {bound:.0f}")

    return Claim(statement, row, test, policy=policy)


def worst_below(statement: str, row: str, policy: str, bound: float) -> Claim:
    """Claim: largest regret of `policy` over all repetitions < bound."""

    def test(regret: Regret) -> Verdict:
        ours = float(regret[row][policy].max())
        return decide(ours < bound, Measurement(ours), f"{ours:.0f}, bound {bound:g}")

    return Claim(statement, row, test, policy=policy)
