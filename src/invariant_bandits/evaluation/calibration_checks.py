"""The checks that `calibration` makes: what propensities promise, and what was seen, added up over parts of a log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.logs.feedback import Feedback

ROUNDING = 1e-9  # of numbers near 1: differences and spreads below it are not real
MOST_POSITIONS = 10
ENOUGH_FOR_BINS = 1_000_000  # propensities of so many actions say where bins end, if a log comes in parts


@dataclass(frozen=True)
class Check:
    """One comparison of what the propensities promise with what was seen.

    Attributes
    ----------
    kind : "all", "sum", "bin", "position" or "feature"
        What is compared.
    name : str
        What tables call it.
    expected, observed : float
        Frequencies. For features, means in standard deviations.
    standard_error : float
        Of their difference.
    """

    kind: str
    name: str
    expected: float
    observed: float
    standard_error: float

    @property
    def gap(self) -> float:
        """Relative difference of frequencies. For features the difference itself, in standard deviations."""
        difference = self.observed - self.expected
        return difference if self.kind == "feature" else difference / max(self.expected, 1e-12)

    @property
    def gap_in_words(self) -> str:
        """The gap with its unit."""
        return f"{self.gap:+.2f} standard deviations" if self.kind == "feature" else f"{100.0 * self.gap:+.1f} %"

    @property
    def z(self) -> float:
        """Difference in standard errors."""
        difference = abs(self.observed - self.expected)
        if difference <= ROUNDING * max(1.0, abs(self.expected)):
            return 0.0
        if self.standard_error > 0.0:
            return difference / self.standard_error
        return 0.0 if difference < 1e-6 else float("inf")


def checks_of_all(feedback: Feedback, bins: int) -> list[Check]:
    """Checks for propensities of all offered actions (rows,)."""
    every = feedback.offered_propensities
    sums = feedback.per_round(lambda part, chances: part.sums_per_round(chances), every)
    furthest = float(sums[np.abs(sums - 1.0).argmax()])
    edges = np.unique(np.quantile(_some_chances(feedback), np.linspace(0.0, 1.0, bins + 1)))
    most = min(int(feedback.counts.max()), MOST_POSITIONS)
    shares = np.zeros((bins + most, 4))
    standardised, of_features = _standardised(feedback), np.zeros((3, feedback.dim))
    for part in feedback.parts():
        chances = _adding_up(part)
        place = np.clip(np.searchsorted(edges, chances, side="right") - 1, 0, max(len(edges) - 2, 0))
        positions = _positions(part)
        for b in np.unique(place):
            shares[b] += _share(part, chances, place == b)
        for k in range(most):
            shares[bins + k] += _share(part, chances, positions == k)
        features = standardised(part)
        mean = part.sums_per_round(chances[:, None] * features)
        away = features - np.repeat(mean, part.counts, axis=0)
        of_features[0] += mean.sum(axis=0)
        of_features[1] += features[part.logged_rows].sum(axis=0)
        of_features[2] += (chances[:, None] * away**2).sum(axis=0)
    names = [("bin", f"propensity {low:.3f} to {edges[min(b + 1, len(edges) - 1)]:.3f}") for b, low in enumerate(edges)]
    groups = [*names[:bins], *[("none", "")] * (bins - len(names))]
    groups += [("position", f"position {k}") for k in range(most)]
    checks = [Check("sum", "sum over a round, furthest", 1.0, furthest, 0.0)]
    for (kind, name), (rows, expected, chosen, variance) in zip(groups, shares.tolist(), strict=True):
        if rows:
            checks.append(Check(kind, name, expected / rows, chosen / rows, float(np.sqrt(variance)) / rows))
    expected, observed, error = of_features[0], of_features[1], np.sqrt(of_features[2])
    numbers = np.column_stack([expected, observed, error]) / feedback.rounds
    return checks + [Check("feature", f"feature {j}", *row) for j, row in enumerate(numbers.tolist())]


def _adding_up(part: Feedback) -> Array:
    """Propensities (rows,) that add up to 1, so that rounded ones are judged for more than their sum."""
    chances = part.offered_propensities
    return np.asarray(chances / np.repeat(part.sums_per_round(chances), part.counts))


def _some_chances(feedback: Feedback) -> Array:
    """Propensities of all offered actions or, of a log in parts, of enough of them, evenly spread."""
    found = [_adding_up(part) for part in _spread_parts(feedback)]
    return found[0] if len(found) == 1 else np.concatenate(found)


def _spread_parts(feedback: Feedback) -> Iterator[Feedback]:
    """The feedback itself, or of each of its parts the first rounds, as many as enough actions make."""
    share = min(1.0, ENOUGH_FOR_BINS / len(feedback.offered))
    for part in feedback.parts():
        whole = part.rounds == feedback.rounds
        yield part if whole else part.between(0, max(1, round(share * part.rounds)))


def _share(part: Feedback, chances: Array, inside: Array) -> tuple[float, float, float, float]:
    """How many actions are `inside` (rows,), their expected and their observed choices, and the variance of these.

    A round's chance of one of them is a Bernoulli's.
    """
    expected = np.minimum(part.sums_per_round(np.where(inside, chances, 0.0)), 1.0)
    chosen = float(inside[part.logged_rows].sum())
    return float(inside.sum()), float(expected.sum()), chosen, float((expected * (1.0 - expected)).sum())


def checks_of_logged(feedback: Feedback) -> list[Check]:
    """Checks for propensities of the logged actions only (n,): weighted by them, do these look like all offered?"""
    most = min(int(feedback.counts.max()), MOST_POSITIONS)
    names = [("all", "all actions"), *(("position", f"position {k}") for k in range(most))]
    names += [("feature", f"feature {j}") for j in range(feedback.dim)]
    standardised, sums = _standardised(feedback), [_Weighted() for _ in names]
    for part in feedback.parts():
        sums[0].add(part, np.ones(len(part.offered)))
        positions = _positions(part)
        for k in range(most):
            sums[1 + k].add(part, (positions == k).astype(np.float64))
        features = standardised(part)
        for j in range(feedback.dim):
            sums[1 + most + j].add(part, features[:, j])
    return [one.check(kind, name, len(feedback.offered)) for (kind, name), one in zip(names, sums, strict=True)]


@dataclass
class _Weighted:
    """Sums of a value over all offered actions, and from the logged ones by weighting; how the rounds' differ."""

    offered: float = 0.0
    weighted: float = 0.0
    rounds: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, part: Feedback, values: Array) -> None:
        """One part, with a value (rows,) per offered action."""
        total = part.sums_per_round(values)
        weighted = values[part.logged_rows] / part.propensities
        difference = weighted - total
        mean = difference.sum() / part.rounds
        away = difference - mean
        before, self.rounds = self.rounds, self.rounds + part.rounds
        apart = mean - self.mean
        self.squares += float((away * away).sum()) + apart * apart * before * part.rounds / self.rounds
        self.mean += apart * part.rounds / self.rounds
        self.offered += float(total.sum())
        self.weighted += float(weighted.sum())

    def check(self, kind: str, name: str, rows: int) -> Check:
        """Means per offered action."""
        scale = rows if kind == "feature" else max(self.offered, 1e-12)
        error = float(np.sqrt(self.squares / self.rounds) * np.sqrt(self.rounds)) / scale
        return Check(kind, name, self.offered / scale, self.weighted / scale, error)


def _positions(part: Feedback) -> Array:
    """Place of every row within its round (rows,)."""
    return np.asarray(np.arange(len(part.offered)) - np.repeat(part.starts[:-1], part.counts))


def _standardised(feedback: Feedback) -> Callable[[Feedback], Array]:
    """Part -> offered features (rows, p) in standard deviations; zero where they, or all but rounding, are constant."""
    rows, dim = len(feedback.offered), feedback.dim
    sums, largest = np.zeros(dim), np.zeros(dim)
    for part in feedback.parts():
        sums += part.offered.sum(axis=0)
        largest = np.maximum(largest, np.abs(part.offered).max(axis=0))
    mean = sums / rows
    left = sum(((part.offered - mean).sum(axis=0) for part in feedback.parts()), np.zeros(dim)) / rows
    squares = sum(((part.offered - mean - left) ** 2).sum(axis=0) for part in feedback.parts())
    spread = np.sqrt(squares / rows)
    varies = spread > ROUNDING * largest

    def of_part(part: Feedback) -> Array:
        return np.asarray(np.where(varies, part.offered - mean, 0.0) / np.where(varies, spread, 1.0))

    return of_part
