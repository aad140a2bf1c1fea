"""Statistics of claims: functions of a Sample, made for given cells and policies."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.experiments.claims import Sample


def growth_exponent(cell: str, policy: str) -> Callable[[Sample], float]:
    """Slope of log mean regret over log t, in the last four fifths of the horizon: below 1 is sublinear."""

    def statistic(sample: Sample) -> float:
        rounds, mean = sample.rounds(cell), sample.regret(cell, policy).mean(axis=0)
        late = rounds > rounds[-1] / 5
        return slope(np.log(rounds[late]), np.log(mean[late]))

    return statistic


def straightness(cells: Mapping[float, str], policy: str) -> Callable[[Sample], float]:
    """Share of the variation of the means over x that a straight line explains (R²)."""
    x = np.array(list(cells))

    def statistic(sample: Sample) -> float:
        y = np.array([sample.mean(cell, policy) for cell in cells.values()])
        spread = ((y - y.mean()) ** 2).sum()
        return float(1.0 - ((y - y.mean() - slope(x, y) * (x - x.mean())) ** 2).sum() / spread)

    return statistic


def trend(cells: Mapping[float, str], policy: str) -> Callable[[Sample], float]:
    """Slope of the mean regret over x."""
    x = np.array(list(cells))
    return lambda sample: slope(x, np.array([sample.mean(cell, policy) for cell in cells.values()]))


def ratio_of_trends(cells: Mapping[float, str], policy: str, rival: str) -> Callable[[Sample], float]:
    """Slope of one policy over that of another."""
    return lambda sample: trend(cells, policy)(sample) / trend(cells, rival)(sample)


def ratio(cell: str, policy: str, rival: str) -> Callable[[Sample], float]:
    """Mean regret of one policy over that of another."""
    return lambda sample: sample.mean(cell, policy) / sample.mean(cell, rival)


def largest_ratio(cells: tuple[str, ...], policy: str, rival: str) -> Callable[[Sample], float]:
    """The ratio of means in the cell where it is largest."""
    return lambda sample: max(ratio(cell, policy, rival)(sample) for cell in cells)


def smallest_ratio(cells: tuple[str, ...], policy: str, rival: str) -> Callable[[Sample], float]:
    """The ratio of means in the cell where it is smallest."""
    return lambda sample: min(ratio(cell, policy, rival)(sample) for cell in cells)


def slope(x: Array, y: Array) -> float:
    """Least-squares slope of y over x."""
    centred = x - x.mean()
    return float(centred @ (y - y.mean()) / (centred @ centred))
