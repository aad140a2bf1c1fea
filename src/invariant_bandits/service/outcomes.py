"""How decisions fared: sums over settled decisions, from which means, other policies' values and costs follow.

With propensities p of K offered actions and the chosen one a, uniform play weighs a decision with w = 1/(K p_a), and
always playing the most probable action with g = 1/p_a where a is that action, else 0. Values are self-normalised
(Σwr/Σw), errors those of the ratio to first order, widened for the few decisions that carry most of the weight.
"""

from __future__ import annotations

import math
from operator import add
from typing import NamedTuple

from invariant_bandits.service.events import Decided

MOST_STRETCHES = 160
FIRST_LENGTH = 5
"""Decisions per stretch at the beginning; neighbours are joined as the story gets longer."""
FEWEST = 30
"""Decisions, and effective decisions of the other policy, before a value is told."""
LEAST_CHANCE = 1e-12
TERMS = 15


class Estimate(NamedTuple):
    """A value and its standard error."""

    value: float
    error: float


class Sums:
    """Sums over decisions: n, r, r², w, wr, w²·(1, r, r²), g·(1, r, r²), g²·(1, r, r²), and unsupported ones.

    Plain numbers: they are added up in the engine's thread, a dozen at a time, which arrays would take longer for.

    Parameters
    ----------
    values : list of 15 floats, optional
    """

    def __init__(self, values: list[float] | None = None) -> None:
        self.values = [0.0] * TERMS if values is None else values

    def add(self, decided: Decided, reward: float) -> None:
        """One more settled decision."""
        self.values = list(map(add, self.values, _terms(decided.propensities, decided.place, reward)))

    def __add__(self, other: Sums) -> Sums:
        return Sums(list(map(add, self.values, other.values)))

    @property
    def count(self) -> int:
        """Decisions."""
        return int(self.values[0])

    @property
    def total(self) -> float:
        """Sum of rewards."""
        return self.values[1]

    @property
    def squares(self) -> float:
        """Sum of squared rewards."""
        return self.values[2]

    def mean(self) -> Estimate | None:
        """Mean reward per decision."""
        n, r, r2 = self.values[:3]
        if n < 2:
            return None
        return Estimate(r / n, math.sqrt(max(r2 - r * r / n, 0.0) / (n - 1.0) / n))

    def uniform(self) -> Estimate | None:
        """What uniform play among the same offers would have earned; None if too little tells of it."""
        n, w, wr, w2, w2r, w2r2 = self.values[0], *self.values[3:8]
        if self.values[14] or n < FEWEST or w * w < FEWEST * w2:
            return None
        value, effective = wr / w, w * w / w2
        spread = max(w2r2 - 2.0 * value * w2r + value * value * w2, 0.0) * effective / (effective - 2.0)
        return Estimate(value, math.sqrt(spread) / w)

    def cost(self) -> Estimate | None:
        """Reward per decision that is given up because chance chooses now and then; negative if chance did better."""
        n, r, r2 = self.values[:3]
        g, gr, gr2, g2, g2r, g2r2 = self.values[8:14]
        if n < FEWEST or g * g < FEWEST * g2:
            return None
        best, mean, scale = gr / g, r / n, g / n
        own = (g2r2 - 2.0 * best * g2r + best * best * g2) / scale**2
        both = (gr2 - (best + mean) * gr + best * mean * g) / scale
        spread = max(own - 2.0 * both + r2 - n * mean * mean, 0.0)
        return Estimate(best - mean, math.sqrt(spread) / n)


def _terms(propensities: list[float], place: int, reward: float) -> tuple[float, ...]:
    chance, most, square = max(propensities[place], LEAST_CHANCE), max(propensities), reward * reward
    w = 1.0 / (len(propensities) * chance)
    g = 1.0 / chance if chance >= most else 0.0
    w2, g2, unsupported = w * w, g * g, float(min(propensities) <= 0.0)
    of_uniform = (w, w * reward, w2, w2 * reward, w2 * square)
    of_best = (g, g * reward, g * square, g2, g2 * reward, g2 * square)
    return (1.0, reward, square, *of_uniform, *of_best, unsupported)


class Stretches:
    """Sums over stretches of decisions, at most 160 of equal length, that together tell everything since the start."""

    def __init__(self) -> None:
        self.length = FIRST_LENGTH
        self.done: list[Sums] = []
        self.last = Sums()
        self._whole = Sums()

    @property
    def all(self) -> Sums:
        """Of all stretches together."""
        return self._whole + self.last

    @property
    def count(self) -> int:
        """Settled decisions."""
        return self._whole.count + self.last.count

    def add(self, decided: Decided, reward: float) -> None:
        """One more settled decision."""
        self.last.add(decided, reward)
        if self.last.count >= self.length:
            self.done.append(self.last)
            self._whole += self.last
            self.last = Sums()
        if len(self.done) >= MOST_STRETCHES:
            self.done = [one + other for one, other in zip(self.done[::2], self.done[1::2], strict=True)]
            self.length *= 2

    def told(self) -> list[tuple[int, float, float]]:
        """Number, sum and sum of squares of the rewards of every stretch, the one under way last."""
        return [(one.count, one.total, one.squares) for one in (*self.done, self.last) if one.count]
