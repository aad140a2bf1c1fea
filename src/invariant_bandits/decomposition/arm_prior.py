"""ArmPrior: what the logs teach about labelled arms, about how they drift, and about an arm that is yet to come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from invariant_bandits.checks import Array, InputError
from invariant_bandits.decomposition.arm_catalogue import relation, standardised
from invariant_bandits.decomposition.arm_changes import with_arm, without_arm
from invariant_bandits.decomposition.arm_effects import ArmEffects, Population, fit_effects, windows_given
from invariant_bandits.decomposition.arm_layout import ArmLayout
from invariant_bandits.decomposition.arm_statistics import ArmStatistics as ArmStatistics
from invariant_bandits.decomposition.arm_walk import walked
from invariant_bandits.decomposition.drift_tests import no_drift

LIKENESS = (0.0, 0.3, 0.6, 0.9)
"""Parts of the arms' variance that their features may explain."""
DRIFT_LEVEL = 0.05
"""Of all effects together (Holm 1979)."""
COMMON_LEVEL = 0.01
ENOUGH_CLICKS = 5.0


class Effect(NamedTuple):
    """One coefficient of an arm: estimate and standard error, drift from window to window, and a test of none.

    drifts: whether the test rejects at 5 % for all effects of the log together. The p-value is NaN where there were too
    few clicks for a test.
    """

    arm: int
    coefficient: int
    estimate: float
    error: float
    drift: float
    p_value: float
    drifts: bool


@dataclass(frozen=True, eq=False)
class ArmPrior:
    """Random effects over windows and arms: θ_i ~ N(μ, Ω), and the arms' coefficients ~ N(θ̄, Ψ).

    Coefficients stand as `layout` says, on the scale of the link.

    Attributes
    ----------
    layout : ArmLayout
        Which coefficient is whose.
    link : "identity" or "logit"
        What is linear: the expected reward, or its log-odds.
    mean, mean_covariance : arrays, shapes (p,), (p, p)
        μ and what is open about it, an arm never played included.
    drift : array, shape (p, p)
        Ω without its common part.
    common : array, shape (own,)
        Drift that all arms have in common, of every own coefficient.
    pooled, pooled_covariance : arrays, shapes (p,), (p, p)
        Mean if nothing but the common part ever moved, and its covariance.
    last_mean, last_covariance : arrays, shapes (p,), (p, p)
        Coefficients when the logs ended, if drift is a walk (`arm_walk`).
    spread, typical_drift : arrays, shapes (own,)
        Ψ, and the mean drift of an arm's coefficient.
    unit : array, shape (p,)
        A typical squared distance of a coefficient from what is usual: Ψ for own ones.
    relation : array, shape (A, A)
        Covariance of the arms' coefficients in units of Ψ; the identity if nothing is known of them.
    described, described_mean, described_scale : arrays, shapes (A, c), (c,), (c,)
        Standardised features of the arms, and how they were standardised.
    likeness : float
        Part of the arms' variance that these explain.
    estimates, errors, drift_sizes, p_values : arrays, shapes (p,)
        Of every effect: mean over the log, standard error, variance over windows, and the test of no drift.
    plays : array, shape (A,)
        Rounds of every arm.
    noise_variance : float
        Of a reward about its expectation; on the logit scale the mean of 1/π(1 − π).
    level_unit : float
        What a reward's level is measured in: the noise variance, 1 on the logit scale.
    context_square : array, shape (d, d)
        Mean of zzᵀ over the log.
    baseline_moves : bool
        Whether the level of all arms together moved.
    windows : int

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> contexts = np.column_stack([np.ones(20_000), rng.normal(size=20_000)])
    >>> arms, month = rng.integers(3, size=20_000), np.arange(20_000) // 2000
    >>> slopes = np.tile([1.0, 0.0, -1.0], (10, 1))
    >>> slopes[:, 1] = rng.normal(size=10)                                    # the slope of arm 1 drifts
    >>> rewards = contexts[:, 1] * slopes[month, arms] + rng.normal(size=20_000)
    >>> prior = ArmPrior.from_statistics(ArmStatistics.from_rounds(contexts, arms, rewards, windows=month))
    >>> [(one.arm, one.coefficient) for one in prior.effects if one.drifts]
    [(1, 1)]
    """

    layout: ArmLayout
    link: str
    mean: Array
    mean_covariance: Array
    drift: Array
    common: Array
    pooled: Array
    pooled_covariance: Array
    last_mean: Array
    last_covariance: Array
    spread: Array
    typical_drift: Array
    unit: Array
    relation: Array
    described: Array
    described_mean: Array
    described_scale: Array
    likeness: float
    estimates: Array
    errors: Array
    drift_sizes: Array
    p_values: Array
    plays: Array
    noise_variance: float
    level_unit: float
    context_square: Array
    baseline_moves: bool
    windows: int
    basis: Array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "basis", np.eye(self.layout.dim))

    @classmethod
    def from_statistics(cls, statistics: ArmStatistics) -> ArmPrior:
        """Estimate by expectation–maximisation; see `arm_effects`.

        With features of the arms, the part of the variance between arms that they explain is the likeliest of a few.
        """
        if not statistics.rounds.sum():
            raise InputError("the statistics hold no rounds")
        described, center, scale = standardised(statistics.described, statistics.layout.arms)
        best: tuple[ArmEffects, ArmEffects] | None = None
        likeness, alike = 0.0, np.eye(statistics.layout.arms)
        for part in LIKENESS if described.shape[1] else LIKENESS[:1]:
            found = fit_effects(statistics, relation(described, part))
            if best is None or found[1].evidence > best[1].evidence:
                best, likeness, alike = found, part, relation(described, part)
        assert best is not None
        plain, fit = best
        layout = statistics.layout
        groups = layout.groups
        common = fit.sizes[: layout.own]
        level = (groups * common) @ groups.T
        prior = Population(statistics, alike).prior(fit.spread, fit.shared)
        still = windows_given(statistics, level, prior)
        last_mean, last_covariance = walked(statistics, prior, fit.windows.drift)
        unit = np.concatenate([np.tile(fit.spread, layout.arms), _shared_unit(fit, layout)])
        logit = statistics.link == "logit"
        return cls(
            layout=layout,
            link=statistics.link,
            mean=fit.windows.mean,
            mean_covariance=fit.windows.covariance,
            drift=fit.windows.drift - level,
            common=common,
            pooled=still.mean,
            pooled_covariance=still.covariance,
            last_mean=last_mean,
            last_covariance=last_covariance,
            spread=fit.spread,
            typical_drift=fit.typical,
            unit=unit,
            relation=alike,
            described=described,
            described_mean=center,
            described_scale=scale,
            likeness=likeness,
            estimates=plain.windows.mean,
            errors=np.sqrt(np.diagonal(plain.windows.covariance)),
            drift_sizes=plain.own,
            p_values=np.where(_can_tell(statistics), _drift_tests(plain, np.eye(layout.dim), plain.own), np.nan),
            plays=statistics.rounds.sum(axis=0),
            noise_variance=statistics.noise_variance,
            level_unit=1.0 if logit else statistics.noise_variance,
            context_square=statistics.context_square,
            baseline_moves=bool(_drift_tests(plain, plain.along.T[:1], plain.sizes[:1])[0] < COMMON_LEVEL),
            windows=statistics.windows,
        )

    @property
    def baseline(self) -> float:
        """Level beside the arms' own intercepts: 0."""
        return 0.0

    @property
    def baseline_error(self) -> float:
        """What is open about it: 0, the arms have intercepts."""
        return 0.0

    @property
    def baseline_variance(self) -> float:
        """Its variance between windows: 0, drift in common is in the coefficients."""
        return 0.0

    @property
    def level_drift(self) -> Array:
        """Covariance (p, p) of the drift that all arms have in common."""
        groups = self.layout.groups
        return np.asarray((groups * self.common) @ groups.T)

    @property
    def usual_arm(self) -> Array:
        """θ̄ (own,), the coefficients of an arm of which nothing is known but that it is one."""
        inverse = np.linalg.inv(self.relation).sum(axis=0)
        return np.asarray(inverse @ self.layout.by_arm(self.mean) / inverse.sum())

    @property
    def effects(self) -> list[Effect]:
        """Every own coefficient of every arm that was played, and whether it drifts; Holm's rule over all of them."""
        layout = self.layout
        own = [j for j in range(layout.arms * layout.own) if self.plays[j // layout.own] > 0]
        flagged: set[int] = set()
        tested = sorted((j for j in own if np.isfinite(self.p_values[j])), key=lambda j: float(self.p_values[j]))
        for rank, j in enumerate(tested):
            if self.p_values[j] > DRIFT_LEVEL / (len(tested) - rank):
                break
            flagged.add(j)
        return [
            Effect(
                *divmod(j, layout.own),
                estimate=float(self.estimates[j]),
                error=float(self.errors[j]),
                drift=float(np.sqrt(self.drift_sizes[j])),
                p_value=float(self.p_values[j]),
                drifts=j in flagged,
            )
            for j in own
        ]

    def usual_precision(self, intercept: bool) -> Array:
        """Q: zᵀQz is the number of coordinates, on average over contexts, if all arms were played equally often."""
        layout = self.layout
        own = np.linalg.pinv(self.context_square[: layout.own, : layout.own])
        Q = np.zeros((layout.dim + intercept, layout.dim + intercept))
        count = layout.arms * layout.own
        Q[:count, :count] = np.kron(layout.arms * np.eye(layout.arms), own)
        if layout.shared:
            slopes = np.linalg.pinv(self.context_square[1:, 1:])
            q = len(slopes)
            Q[count : count + q, count : count + q] = slopes
        return Q

    # -- arms come and go --

    def with_arm(self, features: Sequence[float] | None = None) -> ArmPrior:
        """The prior with one arm more, never played: what the population, and its features, say of it.

        features: its features (c,), where the other arms have some.
        """
        return with_arm(self, features)

    def without_arm(self, arm: int) -> ArmPrior:
        """The prior of the other arms."""
        return without_arm(self, arm)


def _shared_unit(fit: ArmEffects, layout: ArmLayout) -> Array:
    """A typical square of the shared coefficients, for each of them."""
    shared = fit.windows.mean[layout.arms * layout.own :]
    errors = np.diagonal(fit.windows.covariance)[layout.arms * layout.own :]
    typical: Any = float((shared**2 + errors).mean()) if len(shared) else 0.0
    return np.full(layout.shared, max(typical, 1e-12))


def _can_tell(statistics: ArmStatistics) -> Array:
    """Whether two windows tell enough of each coefficient (p,) for a test: of clicks, about five of the rarer kind."""
    if statistics.link == "identity":
        return np.ones(statistics.layout.dim, dtype=bool)
    return np.asarray((np.einsum("mpp->mp", statistics.information) >= ENOUGH_CLICKS).sum(axis=0) >= 2)


def _drift_tests(fit: ArmEffects, directions: Array, sizes: Array) -> Array:
    """p-values of no drift along directions (J, p) that have these sizes in the fit."""
    seen = (fit.windows.weights, fit.windows.pull, fit.windows.covariance)
    return np.array([no_drift(*seen, one, float(size)) for one, size in zip(directions, sizes, strict=True)])
