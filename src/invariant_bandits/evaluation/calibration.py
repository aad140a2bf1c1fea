"""Are these propensities right? Observed choices against expected ones, check by check, with a test over all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from invariant_bandits.checks import Array, InputError, probability, whole_number
from invariant_bandits.logs.feedback import Feedback

MATERIAL = 0.02
ROUNDING = 1e-9  # of numbers near 1: differences and spreads below it are not real
MOST_POSITIONS = 10


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


@dataclass(frozen=True)
class Calibration:
    """All checks of the propensities of a log.

    Attributes
    ----------
    checks : tuple of Check
        One per comparison.
    p_value : float
        Of the worst one, corrected for how many there are.
    level : float
        The propensities are flagged if the p-value is below it.
    rounds : int
        Number of rounds n.
    """

    checks: tuple[Check, ...]
    p_value: float
    level: float
    rounds: int

    @property
    def worst(self) -> Check | None:
        """The most significant check whose gap matters (MATERIAL: 2 % or 0.02 standard deviations)."""
        large = [check for check in self.checks if abs(check.gap) > MATERIAL]
        return max(large, key=lambda check: check.z, default=None)

    @property
    def harmless(self) -> Check | None:
        """The most significant check whose gap is too small to matter, if chance does not explain it at `level`."""
        small = [check for check in self.checks if abs(check.gap) <= MATERIAL]
        worst = max(small, key=lambda check: check.z, default=None)
        return worst if worst is not None and _corrected(worst.z, len(self.checks)) < self.level else None

    def named(self, names: Sequence[str]) -> Calibration:
        """The same checks with the names (p,) of the features."""
        checks = [
            replace(one, name=names[int(one.name.split()[1])]) if one.kind == "feature" else one for one in self.checks
        ]
        return replace(self, checks=tuple(checks))

    @property
    def words(self) -> str:
        """What all checks say together, without the end of a sentence."""
        worst, harmless, odds = self.worst, self.harmless, f"p = {self.p_value:.2g} over all checks"
        if worst is not None and self.flagged:
            return f"WRONG: {worst.name} is off by {worst.gap_in_words}, {odds}"
        if harmless is not None:
            return (
                f"nothing that matters speaks against them ({odds}); {harmless.name} is off by"
                f" {harmless.gap_in_words}, more than chance allows, but too little to matter"
            )
        return f"nothing speaks against them ({odds})"

    @property
    def flagged(self) -> bool:
        """Whether the propensities must not be trusted."""
        return self.p_value < self.level

    def summary(self) -> str:
        """A table a person can read."""
        lines = [f"{'check':<28} {'expected':>9} {'observed':>9} {'std. err.':>9} {'z':>6}"]
        lines += [
            f"{one.name:<28} {one.expected:>9.4f} {one.observed:>9.4f} {one.standard_error:>9.4f} {one.z:>6.1f}"
            for one in self.checks
        ]
        return "\n".join([*lines, self.words])


def calibration(feedback: Feedback, *, bins: int = 10, level: float = 0.01) -> Calibration:
    """Check the propensities of the feedback against its choices.

    With the propensities of all offered actions: do they add up to 1, are actions of each bin of predicted
    propensity, each position and each feature chosen as often as predicted? With those of the logged actions only: for
    any f, the mean of f(logged)/propensity must be that of the sum of f over the offered actions. The choices f = 1,
    positions and features are tried. That also fails if some offered actions are never played: weights cannot make up
    for them.
    Right propensities are flagged with probability at most `level`, in large samples (Bonferroni over z-tests, each
    round's error having mean zero given the rounds before). Estimated ones are flagged a little more often.

    Parameters
    ----------
    feedback : Feedback
        Rounds with propensities.
    bins : int
        Of predicted propensity, at least 2.
    level : float
        Of the test over all checks.

    Returns
    -------
    Calibration
        All checks, and whether the propensities are flagged.

    >>> import numpy as np, invariant_bandits as ib
    >>> from invariant_bandits.evaluation.calibration import calibration
    >>> rng = np.random.default_rng(0)
    >>> rounds = ib.Feedback.from_arrays(rng.normal(size=(2000, 2, 1)), rng.integers(2, size=2000), np.zeros(2000))
    >>> calibration(rounds.with_uniform_propensities()).flagged
    False
    >>> calibration(rounds.with_propensities(np.tile([0.9, 0.1], 2000))).flagged
    True
    """
    whole_number("bins", bins, 2)
    probability("level", level)
    if feedback.propensities is None:
        raise InputError("propensities are missing: there is nothing to check")
    every = feedback.offered_propensities
    checks = _weighted_checks(feedback, feedback.propensities) if every is None else _checks(feedback, every, bins)
    large = [check for check in checks if abs(check.gap) > MATERIAL]
    worst = max((check.z for check in large), default=0.0)
    return Calibration(tuple(checks), _corrected(worst, len(checks)), level, feedback.rounds)


def _corrected(z: float, checks: int) -> float:
    """p-value of the largest of so many z (Bonferroni)."""
    return min(1.0, 2.0 * checks * float(special.ndtr(-z)))


def _standardised(feedback: Feedback) -> Array:
    """Offered features (rows, p) in standard deviations, constant ones zero, also those that only rounding varies."""
    away = feedback.offered - feedback.offered.mean(axis=0)
    spread = away.std(axis=0)
    varies = spread > ROUNDING * np.abs(feedback.offered).max(axis=0)
    return np.asarray(np.where(varies, away, 0.0) / np.where(varies, spread, 1.0))


def _positions(feedback: Feedback) -> Array:
    """Place of every row within its round (rows,)."""
    return np.asarray(np.arange(len(feedback.offered)) - np.repeat(feedback.starts[:-1], feedback.counts))


def _checks(feedback: Feedback, chances: Array, bins: int) -> list[Check]:
    """Checks for propensities of all offered actions (rows,)."""
    sums = feedback.sums_per_round(chances)
    furthest = float(sums[np.abs(sums - 1.0).argmax()])
    checks = [Check("sum", "sum over a round, furthest", 1.0, furthest, 0.0)]
    chances = chances / np.repeat(sums, feedback.counts)  # so that rounded ones are judged for more than their sum
    edges = np.unique(np.quantile(chances, np.linspace(0.0, 1.0, bins + 1)))
    place = np.clip(np.searchsorted(edges, chances, side="right") - 1, 0, max(len(edges) - 2, 0))
    for b in np.unique(place):
        name = f"propensity {edges[b]:.3f} to {edges[min(b + 1, len(edges) - 1)]:.3f}"
        checks.append(_share(feedback, chances, place == b, "bin", name))
    positions = _positions(feedback)
    for k in range(min(int(feedback.counts.max()), MOST_POSITIONS)):
        checks.append(_share(feedback, chances, positions == k, "position", f"position {k}"))
    features = _standardised(feedback)
    mean = feedback.sums_per_round(chances[:, None] * features)
    away = features - np.repeat(mean, feedback.counts, axis=0)
    error = np.sqrt((chances[:, None] * away**2).sum(axis=0)) / feedback.rounds
    observed = features[feedback.logged_rows].mean(axis=0)
    for j, numbers in enumerate(zip(mean.mean(axis=0).tolist(), observed.tolist(), error.tolist(), strict=True)):
        checks.append(Check("feature", f"feature {j}", *numbers))
    return checks


def _share(feedback: Feedback, chances: Array, inside: Array, kind: str, name: str) -> Check:
    """How often actions `inside` (rows,) are chosen, per such action; a round's chance of one is a Bernoulli's."""
    expected = np.minimum(feedback.sums_per_round(np.where(inside, chances, 0.0)), 1.0)
    rows = float(inside.sum())
    error = float(np.sqrt((expected * (1.0 - expected)).sum())) / rows
    return Check(kind, name, float(expected.sum()) / rows, float(inside[feedback.logged_rows].sum()) / rows, error)


def _weighted_checks(feedback: Feedback, propensities: Array) -> list[Check]:
    """Checks for propensities of the logged actions only (n,)."""
    checks = [_weighted(feedback, np.ones(len(feedback.offered)), "all", "all actions", propensities)]
    positions = _positions(feedback)
    for k in range(min(int(feedback.counts.max()), MOST_POSITIONS)):
        inside = (positions == k).astype(np.float64)
        checks.append(_weighted(feedback, inside, "position", f"position {k}", propensities))
    features = _standardised(feedback)
    for j in range(feedback.dim):
        checks.append(_weighted(feedback, features[:, j], "feature", f"feature {j}", propensities))
    return checks


def _weighted(feedback: Feedback, values: Array, kind: str, name: str, propensities: Array) -> Check:
    """Mean per offered action of `values` (rows,): over all offered, and from the logged ones by weighting."""
    n, rows = feedback.rounds, len(values)
    total = feedback.sums_per_round(values)
    weighted = values[feedback.logged_rows] / propensities
    difference = weighted - total
    scale = rows if kind == "feature" else max(float(total.sum()), 1e-12)
    error = float(difference.std() * np.sqrt(n)) / scale
    return Check(kind, name, float(total.sum()) / scale, float(weighted.sum()) / scale, error)
