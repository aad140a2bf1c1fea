"""DriftPrior: what the logs teach about the coefficients and how far they move (empirical Bayes).

One prior for rows, whose directions come from a decomposition, and for labelled arms, which belong to a
population.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any

import numpy as np
from scipy import special

from invariant_bandits.checks import Array, InputError, number_between, one_of
from invariant_bandits.decomposition.arm_statistics import LINKS, ArmStatistics
from invariant_bandits.decomposition.paths import (
    CoefficientPaths,
    singular_roots,
    window_freedom,
    window_paths,
)
from invariant_bandits.decomposition.population import (
    LARGEST_VARIANCE,
    ArmLayout,
    ArmPopulation,
    Coefficients,
    Covariance,
    Effect,
    Variances,
    relate_arms,
    standardize_catalogue,
)
from invariant_bandits.decomposition.random_effects import (
    ArmEffects,
    condition_windows,
    drift_p_value,
    fit_effects,
    last_window,
    random_effects,
    walk_end,
)
from invariant_bandits.moments.windowed import WindowedMoments
from invariant_bandits.storage import ArraySpec, count, truth_value, variance

HIDDEN_LEVEL = 0.08
HALVINGS = 60


def drift_limit(paths: CoefficientPaths) -> Array:
    """Upper confidence limits ω⁺ (p,) of the drift along every direction, each at level 8 %.

    If ω is the drift of a direction, Q(ω) = Σ_i (g_i − ḡ_ω)²/(ω + h_i), with ḡ_ω the mean weighted by 1/(ω +
    h_i), is χ² with m − 1 degrees of freedom, and it falls with ω; ω⁺ is where it reaches the 8 % quantile
    (the Q-profile interval of Viechtbauer 2007). With two windows ω⁺ is a hundred times what was seen, with
    eight three times. m counts the windows that inform the direction; ω⁺ is infinite if there are fewer than
    two.
    """
    g, h = paths.marginals()
    informing = np.isfinite(h).sum(axis=0)
    freedom = np.maximum(informing - 1, 1)
    quantile = 2.0 * special.gammaincinv(freedom / 2.0, HIDDEN_LEVEL)
    low, high = np.zeros(g.shape[1]), _sample_squares(g, h) / quantile + 1e-300
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        weight = 1.0 / (middle + h)
        center = (weight * g).sum(axis=0) / weight.sum(axis=0)
        above = (weight * (g - center) ** 2).sum(axis=0) > quantile
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.where(informing > 1, high, np.inf)


def _sample_squares(g: Array, h: Array) -> Array:
    """Sums of squares (p,) of the coefficients g (m, p) about their means over the windows with finite
    variances h.
    """
    if np.isfinite(h).all():
        return np.asarray(g.var(axis=0, ddof=1) * (len(g) - 1))
    informed = np.where(np.isfinite(h), g, np.nan)
    return np.asarray(np.nansum((informed - np.nanmean(informed, axis=0)) ** 2, axis=0))


def drift_misfit(paths: CoefficientPaths, mean: Array, drift: Array) -> float:
    """How far the windows contradict independent drift along the directions, in standard deviations.

    Sum of the squared correlations, over all pairs of directions, of the windows' standardised deviations (Ω
    + H_i)^(−1/2)(ĝ_i − μ), less its mean Σ1/n and over its standard deviation if there are none, n = m − 1
    (Schott 2005), m the windows that inform both directions of a pair. Large where the basis is not
    identified: then drift has no directions of its own. 0 if there are too few windows or directions.
    """
    m, p = paths.coefficients.shape
    if m < 3 or p < 2:
        return 0.0
    values, vectors = np.linalg.eigh(np.diag(drift) + paths.covariances)
    roots = 1.0 / np.sqrt(values)
    if paths.partial is not None:
        L = paths.partial.roots
        A = L @ np.linalg.solve(np.eye(L.shape[2]) + (L.swapaxes(1, 2) * drift) @ L, L.swapaxes(1, 2))
        values, vectors[paths.partial.windows] = np.linalg.eigh(A)
        roots[paths.partial.windows] = np.sqrt(np.maximum(values, 0.0))
    apart = np.einsum("mji,mj->mi", vectors, paths.coefficients - mean) * roots
    standard = np.einsum("mij,mj->mi", vectors, apart)
    informed = (
        np.ones((m, p)) if paths.partial is None else np.isfinite(paths.marginals()[1]).astype(np.float64)
    )
    standard = standard * informed - informed * (
        (standard * informed).sum(axis=0) / np.maximum(informed.sum(axis=0), 1.0)
    )
    length = np.sqrt((standard**2).sum(axis=0))
    standard = standard / np.where(length > 0.0, length, 1.0)
    pairs = np.triu_indices(p, 1)
    n = (informed.T @ informed - 1.0)[pairs]
    squares = ((standard.T @ standard) ** 2)[pairs][n >= 2.0]
    n = n[n >= 2.0]
    if not len(n):
        return 0.0
    return float((squares.sum() - (1.0 / n).sum()) / np.sqrt((2.0 * (n - 1.0) / (n**2 * (n + 2.0))).sum()))


BASELINE_ALPHA = 0.01
UNLIMITED = 1e4
"""Limit of a drift of which nothing is known, in typical squared coefficients."""
PERSISTENT = ((1.0, 0.5), (4.0, 0.5), (4.0, 2.0))
"""(factor on the drift, time constant in log lengths) of drift that goes on from where the logs ended."""
WALK_RATES = (0.0, 1e-4, 1e-3, 1e-2)
"""Steps per round, in units of the logs' drift, of labelled arms that go on from where the logs ended."""
LIKENESS = (0.0, 0.3, 0.6, 0.9)
"""Parts of the arms' variance that their features may explain."""
COMMON_LEVEL = 0.01
ENOUGH_CLICKS = 5.0
LEAST_NOISE = 1e-200
"""Variance of the noise in a stored state."""


def _optional(*shape: str, least: float = -LARGEST_VARIANCE) -> ArraySpec:
    """An array that is empty where nothing is known."""
    return ArraySpec(shape, least=least, most=LARGEST_VARIANCE, or_empty=True)


_no_vector, _no_matrix, _no_stack = (partial(np.zeros, (0,) * axes) for axes in (1, 2, 3))


def _variance_if_known(name: str, value: Any) -> float | None:
    return None if value is None else variance(name, value)


@dataclass(frozen=True, eq=False)
class DriftPrior:
    """Random effects over windows: γ_i ~ N(μ, Ω), along a basis or of labelled arms.

    Coefficients are in units of the reward (on the logit scale: of the log-odds) per unit of a feature, and
    variances in their squares. Make one with `from_moments` or, of labelled arms, with `from_arms`.

    Attributes
    ----------
    basis : array, shape (p, p)
        V, orthonormal. Everything else is in its coordinates.
    mean, mean_covariance : arrays, shapes (p,), (p, p)
        μ, and what is open about it.
    drift_covariance : array, shape (p, p)
        Ω, without the drift that all arms have in common. Diagonal, unless arms drift together.
    pooled, pooled_covariance : arrays, shapes (p,), (p, p)
        Mean if nothing ever moved but what all arms have in common, and its covariance.
    unit : array, shape (p,)
        A typical squared coefficient along each direction, which makes other priors free of units.
    noise_variance : float
        Of a reward about its expectation; on the logit scale the mean of 1/π(1 − π).
    baseline : float
        Mean reward at φ = 0. Labelled arms have levels of their own: 0, and so are the next two.
    baseline_variance : float
        Its variance between windows beyond sampling error.
    baseline_error : float
        Sampling variance of the mean baseline.
    baseline_moves : bool
        Whether the window baselines, or the levels of all arms together, differ by more than sampling error.
    link : "identity" or "logit"
        What is linear: the expected reward, or its log-odds.
    signal_variance : float, optional
        Variance of the expected reward over the logged actions, at the mean coefficients; None if it is not
        known.
    feature_mean, feature_precision : arrays, shapes (p,), (p, p)
        Mean of the features of the logged actions along the basis, and the inverse of their covariance; empty
        if they are not known.
    last_means, last_covariances : arrays, shapes (h, p), (h, p, p)
        If drift persists, in h ways: mean and covariance of the coefficients when the logs ended.
    last_steps : array, shape (h, s, p)
        In s ways for each: the variance by which they move on in every round.
    windows : int
        m, 0 if not known.
    drift_limit : array, shape (p,)
        ω⁺, the drift that the windows could be hiding (`drift_limit`); empty if not known.
    informing : array, shape (p,)
        How many windows inform each direction; empty if not known.
    drift_misfit : float
        How far the windows contradict independent drift along the basis, in standard deviations.
    population : ArmPopulation, optional
        The labelled arms that the coefficients belong to.

    >>> import numpy as np, invariant_bandits as ib
    >>> rng = np.random.default_rng(1)
    >>> features = rng.normal(size=(8000, 2))
    >>> coefficients = np.repeat(1.0 + rng.normal(size=(40, 2)) * [0.0, 2.0], 200, axis=0)  # the second moves
    >>> rewards = (features * coefficients).sum(axis=1) + rng.normal(size=8000)
    >>> moments = ib.WindowedMoments.from_arrays(features, rewards, windows=40)
    >>> ib.DriftPrior.from_moments(moments, np.eye(2)).drift.round(1)
    array([0., 4.])
    """

    basis: Annotated[Array, ArraySpec(("p", "p"), least=-1.001, most=1.001)]
    mean: Coefficients
    mean_covariance: Covariance
    drift_covariance: Covariance
    pooled: Coefficients
    pooled_covariance: Covariance
    unit: Variances
    noise_variance: Annotated[float, partial(number_between, low=LEAST_NOISE, high=LARGEST_VARIANCE)]
    baseline: float = 0.0
    baseline_variance: Annotated[float, variance] = 0.0
    baseline_error: Annotated[float, variance] = 0.0
    baseline_moves: Annotated[bool, truth_value] = False
    link: Annotated[str, partial(one_of, allowed=LINKS)] = "identity"
    signal_variance: Annotated[float | None, _variance_if_known] = None
    last_means: Annotated[Array, _optional("h", "p")] = field(default_factory=_no_matrix)
    last_covariances: Annotated[Array, _optional("h", "p", "p")] = field(default_factory=_no_stack)
    last_steps: Annotated[Array, _optional("h", "s", "p", least=0.0)] = field(default_factory=_no_stack)
    windows: Annotated[int, count] = 0
    drift_limit: Annotated[Array, _optional("p", least=0.0)] = field(default_factory=_no_vector)
    informing: Annotated[Array, _optional("p", least=0.0)] = field(default_factory=_no_vector)
    drift_misfit: float = 0.0
    feature_mean: Annotated[Array, _optional("p")] = field(default_factory=_no_vector)
    feature_precision: Annotated[Array, _optional("p", "p")] = field(default_factory=_no_matrix)
    population: ArmPopulation | None = None

    @classmethod
    def from_moments(cls, moments: WindowedMoments, basis: Array, *, iterations: int = 200) -> DriftPrior:
        """Estimate by expectation–maximisation (`random_effects`).

        Parameters
        ----------
        moments : WindowedMoments
            Of the logs, at least two windows.
        basis : array, shape (p, p)
            Orthonormal columns, along which coefficients are taken to move independently.
        iterations : int
            Of expectation–maximisation.

        Returns
        -------
        DriftPrior
            In the coordinates of `basis`.
        """
        singular = singular_roots(moments.chosen, moments.dim)
        own, noise = window_paths(moments, basis, singular=singular)
        paths = own.along(basis)
        pooled, pooled_covariance = paths.weighted_mean()
        mean, mean_covariance, drift = random_effects(
            paths.coefficients, paths.covariances, iterations, paths.partial
        )
        freedom = window_freedom(moments, singular)
        variance = moments.gram.sum(axis=0).diagonal() / moments.rounds
        center = basis @ mean
        square = max(
            float((center**2 * variance).mean()), 1e-12 * float(moments.reward_square.sum()) / moments.rounds
        )
        unit = (basis**2 * (square / variance)[:, None]).sum(axis=0)
        vague = np.diag(unit + drift) + mean_covariance
        last = [last_window(paths, mean, drift, vague, factor, lasting) for factor, lasting in PERSISTENT]
        steps = [2.0 * factor * drift / (lasting * moments.rounds) for factor, lasting in PERSISTENT]
        limit = drift_limit(paths)
        feature_mean, feature_precision = _feature_moments(moments, basis)
        level, between, error, moves = _baseline(moments, own, noise)
        return cls(
            basis=basis,
            mean=mean,
            mean_covariance=mean_covariance,
            drift_covariance=np.diag(drift),
            pooled=pooled,
            pooled_covariance=pooled_covariance,
            unit=unit,
            noise_variance=float(freedom @ noise / freedom.sum()),
            baseline=level,
            baseline_variance=between,
            baseline_error=error,
            baseline_moves=moves,
            signal_variance=float((center**2 * variance).sum()),
            last_means=np.stack([mean for mean, _ in last]),
            last_covariances=np.stack([covariance for _, covariance in last]),
            last_steps=np.stack(steps)[:, None],
            feature_mean=feature_mean,
            feature_precision=feature_precision,
            windows=int(moments.windows),
            drift_limit=np.where(np.isfinite(limit), limit, UNLIMITED * (unit + drift)),
            informing=np.asarray(np.isfinite(paths.marginals()[1]).sum(axis=0), dtype=np.float64),
            drift_misfit=drift_misfit(paths, mean, drift),
        )

    @classmethod
    def from_arms(cls, statistics: ArmStatistics) -> DriftPrior:
        """Estimate for labelled arms by expectation–maximisation (`fit_effects`).

        With features of the arms, the part of the variance between arms that they explain is the likeliest of
        a few.

        >>> import numpy as np, invariant_bandits as ib
        >>> rng = np.random.default_rng(0)
        >>> contexts = np.column_stack([np.ones(20_000), rng.normal(size=20_000)])
        >>> arms, month = rng.integers(3, size=20_000), np.arange(20_000) // 2000
        >>> slopes = np.tile([1.0, 0.0, -1.0], (10, 1))
        >>> slopes[:, 1] = rng.normal(size=10)                                    # the slope of arm 1 drifts
        >>> rewards = contexts[:, 1] * slopes[month, arms] + rng.normal(size=20_000)
        >>> statistics = ib.ArmStatistics.from_rounds(contexts, arms, rewards, windows=month)
        >>> prior = ib.DriftPrior.from_arms(statistics)
        >>> [(effect.arm, effect.coefficient) for effect in prior.effects if effect.drifts]
        [(1, 1)]
        """
        if not statistics.rounds.sum():
            raise InputError("the statistics hold no rounds")
        layout = statistics.layout
        catalogue, center, scale = standardize_catalogue(statistics.catalogue, layout.arms)
        fits = {
            likeness: fit_effects(statistics, relate_arms(catalogue, likeness))
            for likeness in (LIKENESS if catalogue.shape[1] else LIKENESS[:1])
        }
        likeness = max(fits, key=lambda likeness: fits[likeness][1].evidence)
        plain, fit = fits[likeness]
        can_test = _enough_information(statistics)
        population = ArmPopulation(
            layout=layout,
            common=fit.sizes[: layout.own],
            spread=fit.spread,
            typical_drift=fit.typical,
            relation=relate_arms(catalogue, likeness),
            catalogue=catalogue,
            catalogue_mean=center,
            catalogue_scale=scale,
            likeness=likeness,
            estimates=plain.windows.mean,
            errors=np.sqrt(np.diagonal(plain.windows.covariance)),
            drift_sizes=plain.own,
            p_values=np.where(can_test, _drift_tests(plain, np.eye(layout.dim), plain.own), np.nan),
            plays=statistics.rounds.sum(axis=0),
            context_square=statistics.context_square,
        )
        common = population.common_drift
        still = condition_windows(statistics, common, fit.precision)
        last_mean, last_covariance = walk_end(statistics, fit.precision, fit.windows.drift)
        drift = fit.windows.drift - common
        return cls(
            basis=np.eye(layout.dim),
            mean=fit.windows.mean,
            mean_covariance=fit.windows.covariance,
            drift_covariance=drift,
            pooled=still.mean,
            pooled_covariance=still.covariance,
            unit=np.concatenate([np.tile(fit.spread, layout.arms), _shared_unit(fit, layout)]),
            noise_variance=statistics.noise_variance,
            baseline_moves=bool(_drift_tests(plain, plain.along.T[:1], plain.sizes[:1])[0] < COMMON_LEVEL),
            link=statistics.link,
            last_means=last_mean[None],
            last_covariances=last_covariance[None],
            last_steps=_walk_steps(drift),
            windows=statistics.windows,
            population=population,
        )

    @property
    def drift(self) -> Array:
        """ω (p,), the variance over windows along each direction."""
        return np.asarray(np.maximum(np.diagonal(self.drift_covariance), 0.0))

    @property
    def level_unit(self) -> float:
        """What a moving baseline is measured in: the noise variance, 1 on the logit scale."""
        return 1.0 if self.link == "logit" else self.noise_variance

    @property
    def common_drift(self) -> Array:
        """Covariance (p, p) of the drift that all arms have in common; zero without arms."""
        p = len(self.mean)
        return np.zeros((p, p)) if self.population is None else self.population.common_drift

    def unlogged(self, unit: Array) -> tuple[Array, Array]:
        """Mean (p,) and covariance (p, p) of coefficients of typical squares `unit` (p,), had there been no
        logs.

        Arms are like each other even then: all of them are at the typical arm, and open together.
        """
        if self.population is None:
            return np.zeros(len(self.mean)), np.diag(unit)
        groups, typical = self.layout.groups, self.population.typical_arm(self.mean)
        together = np.maximum(typical**2, self.population.spread)
        together[0] = self.level_unit
        return groups @ typical, np.diag(unit) + (groups * together) @ groups.T

    def usual_precision(self, intercept: bool) -> Array:
        """Q, the inverse of the logs' mean of zzᵀ, z the features along the basis, and 1 if there is a
        baseline.

        zᵀQz is the number of coordinates on average over the logged actions. Empty if the features are not
        known.
        """
        if self.population is not None:
            return self.population.feature_precision(intercept)
        P, pull = self.feature_precision, self.feature_precision @ self.feature_mean
        length = float(self.feature_mean @ pull)
        if not len(P):
            return P
        if not intercept:
            return np.asarray(P - np.outer(pull, pull) / (1.0 + length))
        return np.block([[P, -pull[:, None]], [-pull[None, :], np.array([[1.0 + length]])]])

    # -- labelled arms --

    @property
    def arms(self) -> ArmPopulation:
        """The population of labelled arms, or InputError if there are none."""
        if self.population is None:
            raise InputError("this policy knows no labelled arms: it was not started with from_arms")
        return self.population

    @property
    def layout(self) -> ArmLayout:
        """Which coefficient belongs to which arm."""
        return self.arms.layout

    @property
    def effects(self) -> list[Effect]:
        """Every coefficient of every arm that was played, and whether it drifts."""
        return self.arms.effects

    def with_arm(self, features: Sequence[float] | None = None) -> DriftPrior:
        """The prior with one arm more, never played: its coefficients are those of the arms like it, and Ψ
        wide.

        features: its features (c,), where the other arms have some. Nothing else changes: with C_μ of the
        arms, their mean's own uncertainty is in the new arm's.
        """
        population, new = self.arms.with_arm(features)
        layout = population.layout
        own = layout.arm(self.layout.arms)
        more = np.zeros((3, layout.dim))
        more[:, own] = new.rest * population.spread, population.typical_drift, population.spread
        others = np.delete(np.eye(layout.dim), own, axis=1)
        return self._carry(population, self.layout.insertion(new.weights), others, more)

    def without_arm(self, arm: int) -> DriftPrior:
        """The prior of the other arms."""
        others = np.eye(len(self.mean))[self.layout.coordinates_without(arm)]
        return self._carry(self.arms.without_arm(arm), others, others, np.zeros((3, len(others))))

    def _carry(self, population: ArmPopulation, means: Array, places: Array, more: Array) -> DriftPrior:
        """The prior of other arms.

        means, places: (p', p), what coefficients become, and where those that stay are. more: what is added
        to the variances of the means, to the drift and to the unit, (3, p').
        """
        doubt, drifting, unit = more
        drift = places @ self.drift_covariance @ places.T + np.diag(drifting)

        def extend(covariance: Array, added: Array) -> Array:
            return np.asarray(means @ covariance @ means.T + np.diag(added))

        return replace(
            self,
            basis=np.eye(len(places)),
            mean=means @ self.mean,
            mean_covariance=extend(self.mean_covariance, doubt),
            drift_covariance=drift,
            pooled=means @ self.pooled,
            pooled_covariance=extend(self.pooled_covariance, doubt),
            unit=places @ self.unit + unit,
            last_means=self.last_means @ means.T,
            last_covariances=np.stack([extend(last, doubt + drifting) for last in self.last_covariances]),
            last_steps=_walk_steps(drift),
            population=population,
        )


def _feature_moments(moments: WindowedMoments, basis: Array) -> tuple[Array, Array]:
    """Mean of the logged features along the basis (p,), and the inverse of their covariance over all windows
    (p, p).
    """
    share = moments.counts / moments.rounds
    mean = share @ moments.feature_mean
    apart = moments.feature_mean - mean
    covariance = moments.gram.sum(axis=0) / moments.rounds + (share * apart.T) @ apart
    inverse = basis.T @ np.linalg.inv(covariance) @ basis
    return basis.T @ mean, np.ascontiguousarray(0.5 * (inverse + inverse.T))


def _baseline(
    moments: WindowedMoments, paths: CoefficientPaths, noise: Array
) -> tuple[float, float, float, bool]:
    """Mean of the window intercepts, their variance beyond sampling error, its error, and whether they
    move.
    """
    mean, coefficients = moments.feature_mean, paths.coefficients
    level = moments.reward_mean - np.einsum("mi,mi->m", mean, coefficients)
    if paths.partial is None:
        solved = np.linalg.solve(moments.gram, mean[:, :, None])[:, :, 0]
        sampling = noise * (1.0 / moments.counts + np.einsum("mi,mi->m", mean, solved))
    else:
        informed = moments.counts > 0
        level, mean, sampling = level[informed], mean[informed], noise[informed] / moments.counts[informed]
        sampling = sampling + np.einsum("mi,mij,mj->m", mean, paths.covariances[informed], mean)
    weight = 1.0 / sampling
    center = float(weight @ level / weight.sum())
    statistic = float(weight @ (level - center) ** 2)
    moves = bool(special.gammaincc((len(level) - 1) / 2.0, statistic / 2.0) < BASELINE_ALPHA)
    between = max(float(((level - center) ** 2 - sampling).mean()), 0.0)
    return center, between, float(1.0 / weight.sum()), moves


def _walk_steps(drift: Array) -> Array:
    """`last_steps` (1, s, p) of arms whose coefficients drift by Ω (p, p)."""
    return np.asarray(np.array(WALK_RATES)[:, None] * np.maximum(np.diagonal(drift), 0.0))[None]


def _shared_unit(fit: ArmEffects, layout: ArmLayout) -> Array:
    """A typical square of the shared coefficients, for each of them."""
    shared = fit.windows.mean[layout.own_dim :]
    errors = np.diagonal(fit.windows.covariance)[layout.own_dim :]
    typical = float((shared**2 + errors).mean()) if len(shared) else 0.0
    return np.full(layout.shared, max(typical, 1e-12))


def _enough_information(statistics: ArmStatistics) -> Array:
    """Whether two windows inform each coefficient (p,) enough for a test: of clicks, about five of the rarer
    kind.
    """
    if statistics.link == "identity":
        return np.ones(statistics.layout.dim, dtype=bool)
    return np.asarray((np.einsum("mpp->mp", statistics.information) >= ENOUGH_CLICKS).sum(axis=0) >= 2)


def _drift_tests(fit: ArmEffects, directions: Array, sizes: Array) -> Array:
    """p-values of no drift along directions (J, p) that have these sizes in the fit."""
    return np.array(
        [drift_p_value(fit.windows, *pair) for pair in zip(directions, sizes.tolist(), strict=True)]
    )
