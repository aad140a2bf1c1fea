"""Propensities that the log does not hold, estimated by a conditional logistic model of which action was
chosen, and `calibration`: do the propensities of a log agree with its choices?
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from scipy import special

from invariant_bandits.checks import (
    Array,
    InputError,
    number_between,
    probability,
    whole_number,
)
from invariant_bandits.features.arm_maps import OwnCoefficients, SharedSlopes
from invariant_bandits.logs.feedback import Feedback
from invariant_bandits.logs.spill import RowCollector

MOST_STEPS = 100
SMALL_GAIN = 1e-10
CURVATURE_PARTS = 8
"""How many of the parts of a long log say how the likelihood bends."""
CONSTANT = 1e-20
"""Of its mean square: a feature that varies less within rounds, such as one of the context, says nothing."""


def estimate_propensities(
    feedback: Feedback,
    *,
    earlier: Feedback | None = None,
    blocks: int = 5,
    floor: float = 1e-3,
) -> Any:
    """Propensities of all offered actions, softmax(θᵀφ) within each round (McFadden 1974).

    Every block of rounds gets the θ of all blocks before it and of `earlier`. Without `earlier` the first
    gets that of the second (choices are predicted here, never rewards). Assumes that the logging policy saw
    nothing but these features and chose by a score linear in them: look at `calibration` of the result.

    Parameters
    ----------
    feedback : Feedback
        n rounds with `rows` offered actions.
    earlier : Feedback, optional
        Rounds before these.
    blocks : int
        Into how many stretches the rounds are cut, at least 2.
    floor : float
        No action gets less. For a round of K actions it is at most 1/K.

    Returns
    -------
    array, shape (rows,)
        They add up to 1 in every round. StoredRows if they are too many for memory.

    >>> import numpy as np
    >>> from invariant_bandits.logs.feedback import Feedback
    >>> from invariant_bandits.evaluation.propensities import estimate_propensities
    >>> rng = np.random.default_rng(0)
    >>> offered = rng.normal(size=(5000, 3, 2))
    >>> actions = (offered[:, :, 0] + rng.gumbel(size=(5000, 3))).argmax(axis=1)
    >>> feedback = Feedback.from_arrays(offered, actions, np.zeros(5000))
    >>> right = np.exp(offered[-1, :, 0]) / np.exp(offered[-1, :, 0]).sum()
    >>> bool(np.abs(estimate_propensities(feedback)[-3:] - right).max() < 0.05)
    True
    """
    number_between("floor", floor, 0.0, 1.0)
    whole_number("blocks", blocks, 2)
    if feedback.rounds < 2 * blocks:
        raise InputError(
            f"at least {2 * blocks} rounds are needed for {blocks} blocks, got "
            f"{feedback.rounds}"
        )
    edges = np.linspace(0, feedback.rounds, blocks + 1).round().astype(int)
    chances = RowCollector()
    theta = np.zeros(feedback.dim)
    for b in range(blocks):
        known = [] if earlier is None else [earlier]
        if b > 0:
            known.append(feedback.between(0, int(edges[b])))
        elif earlier is None:
            known.append(feedback.between(int(edges[1]), int(edges[2])))
        theta = fit_choices(known, start=theta)
        for part in feedback.between(int(edges[b]), int(edges[b + 1])).parts():
            least = np.repeat(np.minimum(floor, 1.0 / part.counts), part.counts)
            spare = 1.0 - least * np.repeat(part.counts, part.counts)
            chances.append(least + spare * _choice_chances(part, theta))
    return chances.rows()


def with_propensities(
    earlier: Feedback, later: Feedback, source: str
) -> tuple[Feedback, list[str]]:
    """The later rounds with propensities as logged, uniform, or estimated with the help of the earlier ones;
    and notes on what they assume.
    """
    if source == "uniform":
        return later.with_uniform_propensities(), [
            "propensities: taken as uniform, as the caller says"
        ]
    if source == "estimated":
        return later.with_propensities(estimate_propensities(later, earlier=earlier)), [
            "propensities: estimated by a conditional logistic model from earlier choices; they assume that"
            " the log shows all that the logging policy looked at"
        ]
    return later, []


def fit_choices(parts: list[Feedback], *, start: Array | None = None) -> Array:
    """θ of the conditional logistic model of the logged actions, by Newton's method.

    The penalty on every coefficient is worth one round in which its feature has its usual spread, so that
    choices that a feature predicts perfectly do not send it to infinity. Of rounds in many parts, a few parts
    say how the likelihood bends, all of them how it slopes: steps are a little less good, the maximum is the
    same.

    Parameters
    ----------
    parts : list of Feedback
        The rounds to fit on.
    start : array, shape (p,), optional
        Where the search starts, 0 if not given.

    Returns
    -------
    array, shape (p,)
        θ.
    """
    p = parts[0].dim
    rows = sum(len(part.offered) for part in parts)
    within = np.zeros(p)
    squares = np.zeros(p)
    for part in (part for whole in parts for part in whole.parts()):
        mean = part.sums_per_round(part.offered) / part.counts[:, None]
        away = part.offered - np.repeat(mean, part.counts, axis=0)
        within = within + (away**2).sum(axis=0)
        squares = squares + np.einsum("np,np->p", part.offered, part.offered)
    # A feature that is the same within rounds says nothing; any penalty keeps its θ at 0.
    penalty = np.where(within > CONSTANT * squares, within / rows, 1.0)
    theta = np.zeros(p) if start is None else start.copy()
    value, gradient, curvature = _likelihood(parts, theta, penalty)
    # Newton's steps, halved until the likelihood grows by a tenth of what its slope promises (Armijo).
    for _ in range(MOST_STEPS):
        # H is minus the Hessian, so the step is H⁻¹ times the gradient.
        step = np.linalg.solve(curvature, gradient)
        promised = float(gradient @ step)
        if promised <= SMALL_GAIN * (1.0 + abs(value)):
            break
        size = 1.0
        while size > 1e-6:
            tried = _likelihood(parts, theta + size * step, penalty)
            if tried[0] >= value + 0.1 * size * promised:
                break
            size *= 0.5
        else:
            break
        theta = theta + size * step
        value, gradient, curvature = tried
    return theta


def _choice_chances(feedback: Feedback, theta: Array) -> Array:
    """Return softmax(φᵀθ) within each round (rows,); less the largest score, no exponential overflows."""
    score = feedback.offered @ theta
    score -= np.repeat(
        np.maximum.reduceat(score, feedback.starts[:-1]), feedback.counts
    )
    raised = np.exp(score)
    return np.asarray(
        raised / np.repeat(feedback.sums_per_round(raised), feedback.counts)
    )


def _likelihood(
    parts: list[Feedback], theta: Array, penalty: Array
) -> tuple[float, Array, Array]:
    """Penalised log-likelihood, its gradient (p,) and minus its second derivatives (p, p)."""
    value = -0.5 * float(penalty @ theta**2)
    gradient = -penalty * theta
    curvature = np.diag(penalty)
    rows = sum(len(part.offered) for part in parts)
    seen = 0
    bent = 0
    for part in (part for whole in parts for part in whole.parts()):
        chances = _choice_chances(part, theta)
        with np.errstate(divide="ignore"):
            value += float(np.log(chances[part.logged_rows]).sum())
        before = seen
        seen = seen + len(part.offered)
        if before * CURVATURE_PARTS // rows == seen * CURVATURE_PARTS // rows:
            gradient = gradient + part.features.sum(axis=0) - chances @ part.offered
            continue
        # φ̄ = Σ p·φ per round; the gradient adds φ_chosen − φ̄, the curvature Σ p·(φ − φ̄)(φ − φ̄)ᵀ.
        mean = part.sums_per_round(chances[:, None] * part.offered)
        away = part.offered - np.repeat(mean, part.counts, axis=0)
        gradient = gradient + (part.features - mean).sum(axis=0)
        curvature = curvature + away.T @ (chances[:, None] * away)
        bent += len(part.offered)
    # The parts that were not bent are taken to bend as the others do.
    if bent < rows:
        curvature = curvature + (curvature - np.diag(penalty)) * (rows / bent - 1.0)
    return value, gradient, curvature


ROUNDING = 1e-9  # of numbers near 1: differences and spreads below it are not real
MOST_POSITIONS = 10  # more checks would each need a larger gap (Bonferroni)
ENOUGH_FOR_BINS = 1_000_000  # propensities of so many actions say where bins end, if a log comes in parts


@dataclass(frozen=True)
class PropensityCheck:
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

    @classmethod
    def of(
        cls,
        kind: str,
        name: str,
        scale: float,
        expected: float,
        observed: float,
        error: float,
    ) -> PropensityCheck:
        """Return the comparison of two sums, in units of `scale`."""
        return cls(kind, name, expected / scale, observed / scale, error / scale)

    @property
    def gap(self) -> float:
        """Relative difference of frequencies. For features the difference itself, in standard deviations."""
        difference = self.observed - self.expected
        if self.kind == "feature":
            return difference
        return difference / max(self.expected, 1e-12)

    @property
    def gap_in_words(self) -> str:
        """The gap with its unit."""
        if self.kind == "feature":
            return f"{self.gap:+.2f} standard deviations"
        return f"{100.0 * self.gap:+.1f} %"

    @property
    def z(self) -> float:
        """Difference in standard errors."""
        difference = abs(self.observed - self.expected)
        if difference <= ROUNDING * max(1.0, abs(self.expected)):
            return 0.0
        if self.standard_error > 0.0:
            return difference / self.standard_error
        return 0.0 if difference < 1e-6 else float("inf")


def checks_of_all(feedback: Feedback, bins: int) -> list[PropensityCheck]:
    """Check propensities (rows,): bins, positions and features are chosen as often as they promise.

    With v a value of every action, its expected mean in a round is m = Σ p·v, with variance Σ p·(v − m)².
    """
    every = feedback.offered_propensities
    sums = feedback.per_round(lambda part, chances: part.sums_per_round(chances), every)
    furthest = float(sums[np.abs(sums - 1.0).argmax()])
    step = -(-len(feedback.offered) // ENOUGH_FOR_BINS)
    some = np.concatenate([_adding_up(part)[::step] for part in feedback.parts()])
    edges = np.unique(np.quantile(some, np.linspace(0.0, 1.0, bins + 1)))
    ends = np.append(edges[1:], edges[-1])[: max(len(edges) - 1, 1)]
    names = [
        ("bin", f"propensity {low:.3f} to {high:.3f}")
        for low, high in zip(edges, ends, strict=False)
    ]
    bins = len(names)
    names += _column_names(feedback)
    columns = _columns(feedback)
    totals = np.zeros((len(names), 4))
    for part in feedback.parts():
        chances = _adding_up(part)
        bin_of = np.searchsorted(edges, chances, side="right") - 1
        bin_of = np.clip(bin_of, 0, bins - 1)
        inside = ((bin_of == b).astype(np.float64) for b in range(bins))
        for total, values in zip(totals, chain(inside, columns(part)), strict=True):
            # m = Σ p·v per round, and the variance Σ p·(v − m)² of what is chosen
            mean = part.sums_per_round(chances * values)
            away = values - np.repeat(mean, part.counts)
            chosen = values[part.logged_rows].sum()
            variance = (chances * away * away).sum()
            total += values.sum(), mean.sum(), chosen, variance
    checks = [
        PropensityCheck(
            kind="sum",
            name="sum over a round, furthest",
            expected=1.0,
            observed=furthest,
            standard_error=0.0,
        )
    ]
    for (kind, name), row in zip(names, totals.tolist(), strict=True):
        rows, expected, observed, variance = row
        if scale := feedback.rounds if kind == "feature" else rows:
            error = variance**0.5
            checks.append(
                PropensityCheck.of(kind, name, scale, expected, observed, error)
            )
    return checks


def _adding_up(part: Feedback) -> Array:
    """Propensities (rows,) that add up to 1, so that rounded ones are judged for more than their sum."""
    chances = part.offered_propensities
    return np.asarray(chances / np.repeat(part.sums_per_round(chances), part.counts))


def checks_of_logged(feedback: Feedback) -> list[PropensityCheck]:
    """Check propensities of the logged actions (n,): weighted by them, do these look like all offered?"""
    names = [("all", "all actions"), *_column_names(feedback)]
    columns = _columns(feedback)
    totals = np.zeros((len(names), 4))
    for part in feedback.parts():
        every = np.ones(len(part.offered))
        for total, values in zip(totals, chain([every], columns(part)), strict=True):
            # Σ v / p over logged actions has the mean Σ v over all offered ones, if p is right.
            offered = part.sums_per_round(values)
            weighted = values[part.logged_rows] / part.propensities
            difference = weighted - offered
            total += (
                offered.sum(),
                weighted.sum(),
                difference.sum(),
                difference @ difference,
            )
    checks = []
    for (kind, name), sums in zip(names, totals.tolist(), strict=True):
        expected, observed, gap, squares = sums
        scale = len(feedback.offered) if kind == "feature" else max(expected, 1e-12)
        # The standard error of a sum of n differences is the root of their squares about the mean.
        error = max(squares - gap**2 / feedback.rounds, 0.0) ** 0.5
        checks.append(PropensityCheck.of(kind, name, scale, expected, observed, error))
    return checks


def _column_names(feedback: Feedback) -> list[tuple[str, str]]:
    """Kind and name of each of the `_columns`."""
    names = [("position", f"position {k}") for k in _positions(feedback)]
    of_arms = feedback.arm_features
    known = feedback.feature_names if of_arms is None else of_arms.names
    features = (
        known
        if len(known) == feedback.dim
        else [f"feature {j}" for j in range(feedback.dim)]
    )
    return names + [("feature", name) for name in features]


def _positions(feedback: Feedback) -> range:
    """Positions whose choices are compared: none of labelled arms, whose levels are features."""
    of_arms = feedback.arm_features
    levels = OwnCoefficients | SharedSlopes
    if isinstance(of_arms, levels) and of_arms.dim == feedback.dim:
        return range(0)
    return range(min(int(feedback.counts.max()), MOST_POSITIONS))


def _columns(feedback: Feedback) -> Callable[[Feedback], Iterator[Array]]:
    """Part -> values (rows,) to compare: being at each of the first positions of a round, and every offered
    feature in standard deviations; zero where that, or all but rounding, is constant.
    """
    rows = len(feedback.offered)
    sums = np.zeros(feedback.dim)
    largest = np.zeros(feedback.dim)
    for part in feedback.parts():
        sums += part.offered.sum(axis=0)
        largest = np.maximum(largest, np.abs(part.offered).max(axis=0))
    mean = sums / rows
    rest_of_mean = np.zeros(feedback.dim)
    squares = np.zeros(feedback.dim)
    for part in feedback.parts():
        away = part.offered - mean
        rest_of_mean += away.sum(axis=0) / rows
        squares += (away**2).sum(axis=0)
    # What rounding left of the mean is taken off the mean square: a constant column has none.
    variance = np.maximum(squares / rows - rest_of_mean**2, 0.0)
    deviation = np.sqrt(variance)
    varies = deviation > ROUNDING * largest

    def of_part(part: Feedback) -> Iterator[Array]:
        position = np.arange(len(part.offered))
        position -= np.repeat(part.starts[:-1], part.counts)
        for k in _positions(feedback):
            yield (position == k).astype(np.float64)
        away = np.where(varies, part.offered - mean, 0.0)
        yield from np.ascontiguousarray((away / np.where(varies, deviation, 1.0)).T)

    return of_part


MATERIAL = 0.02
"""Relative gap, or gap in standard deviations, from which on wrong propensities matter."""


@dataclass(frozen=True)
class Calibration:
    """All checks of the propensities of a log.

    Attributes
    ----------
    checks : tuple of PropensityCheck
        One per comparison.
    level : float
        The propensities are flagged if the p-value is below it.
    """

    checks: tuple[PropensityCheck, ...]
    level: float

    @property
    def worst(self) -> PropensityCheck | None:
        """The most significant check whose gap matters (MATERIAL: 2 % or 0.02 standard deviations)."""
        return self._most_significant(material=True)

    @property
    def harmless(self) -> PropensityCheck | None:
        """The worst check whose gap is too small to matter, unless chance explains it at `level`."""
        worst = self._most_significant(material=False)
        return worst if self._corrected(worst) < self.level else None

    def _most_significant(self, *, material: bool) -> PropensityCheck | None:
        checks = [
            check for check in self.checks if (abs(check.gap) > MATERIAL) == material
        ]
        return max(checks, key=lambda check: check.z, default=None)

    def _corrected(self, check: PropensityCheck | None) -> float:
        """The two-sided p-value of a check, times the number of all (Bonferroni)."""
        if check is None:
            return 1.0
        return min(1.0, len(self.checks) * 2.0 * float(special.ndtr(-check.z)))

    @property
    def p_value(self) -> float:
        """Of the worst check, corrected for how many there are."""
        return self._corrected(self.worst)

    @property
    def doubt(self) -> str | None:
        """Why the propensities must not be trusted, if they are flagged."""
        worst = self.worst
        if worst is None or not self.flagged:
            return None
        return (
            f"the propensities are wrong: {worst.name} is off by {worst.gap_in_words}"
        )

    @property
    def words(self) -> str:
        """What all checks say together, without the end of a sentence."""
        harmless = self.harmless
        odds = f"p = {self.p_value:.2g} over all checks"
        if self.doubt is not None:
            return f"WRONG: {self.doubt.removeprefix('the propensities are wrong: ')}, {odds}"
        if harmless is not None:
            return (
                f"nothing that matters speaks against them ({odds}); {harmless.name} is off by "
                f"{harmless.gap_in_words}, more than chance allows, but too little to matter"
            )
        return f"nothing speaks against them ({odds})"

    @property
    def flagged(self) -> bool:
        """Whether the propensities must not be trusted."""
        return self.p_value < self.level

    def summary(self) -> str:
        """A table a person can read."""
        lines = [
            f"{'check':<28} {'expected':>9} {'observed':>9} {'std. err.':>9} {'z':>6}"
        ]
        lines += [
            f"{check.name:<28} {check.expected:>9.4f} {check.observed:>9.4f} {check.standard_error:>9.4f}"
            f" {check.z:>6.1f}"
            for check in self.checks
        ]
        return "\n".join([*lines, self.words])


def calibration(
    feedback: Feedback, *, bins: int = 10, level: float = 0.01
) -> Calibration:
    """Check the propensities (the logging policy's probabilities) of a log against the logged actions.

    If the log has the propensities of all offered actions, they must add up to 1 and predict how often
    actions are chosen. The predicted and the actual frequencies of choices are compared for each bin of
    propensities, each position and each feature. If the log has only the propensities of the logged actions,
    averages weighted by 1/propensity must equal averages over all offered actions. An offered action that is
    never played makes weighted averages differ from averages over all offered actions, even if the
    propensities are right.

    The checks are z-tests with Bonferroni's correction. In large samples, the probability of a false alarm
    is at most `level` for right propensities, and a little higher for estimated propensities.

    Parameters
    ----------
    feedback : Feedback
        Logged rounds with propensities.
    bins : int
        Number of bins of predicted propensities, at least 2.
    level : float
        Significance level of all checks together.

    Returns
    -------
    Calibration
        The result of every check, and whether the propensities are flagged.

    >>> import numpy as np, invariant_bandits as ib
    >>> from invariant_bandits.evaluation.propensities import calibration
    >>> rng = np.random.default_rng(0)
    >>> offered, actions = rng.normal(size=(2000, 2, 1)), rng.integers(2, size=2000)
    >>> rounds = ib.evaluation.Feedback.from_arrays(offered, actions, np.zeros(2000))
    >>> calibration(rounds.with_uniform_propensities()).flagged
    False
    >>> calibration(rounds.with_propensities(np.tile([0.9, 0.1], 2000))).flagged
    True
    """
    whole_number("bins", bins, 2)
    probability("level", level)
    if feedback.propensities is None:
        raise InputError("propensities are missing: there is nothing to check")
    logged_only = feedback.offered_propensities is None
    checks = (
        checks_of_logged(feedback) if logged_only else checks_of_all(feedback, bins)
    )
    return Calibration(tuple(checks), level)
