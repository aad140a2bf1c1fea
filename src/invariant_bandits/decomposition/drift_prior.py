"""DriftPrior: what the logs teach about the coefficients and how far they move (empirical Bayes).

Random effects over windows: θ_i ~ N(μ, Ω), and window i has the log-likelihood η_iᵀθ_i − ½θ_iᵀΛ_iθ_i. One
prior for rows, whose directions come from a decomposition, and for labelled arms, which are drawn from a
population and share drift. For arms expectation–maximisation is written in precision form, in which Λ_i may
be singular (`condition_windows`, `drift_change`). For rows it has a diagonal Ω and no population, and is
compiled (`paths.random_effects`): the same numbers up to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, NamedTuple

import numpy as np
from scipy import special

from invariant_bandits.checks import Array, InputError, number_between, one_of
from invariant_bandits.decomposition.arm_effects import (
    PopulationPrior,
    condition_windows,
    draw_shared_to_zero,
    estimates_by_own_rounds,
    fit_effects,
)
from invariant_bandits.decomposition.arm_population import (
    ArmPopulation,
    Effect,
    EffectEvidence,
    common_measures,
    relate_arms,
)
from invariant_bandits.decomposition.arm_statistics import (
    LINKS,
    ArmLayout,
    ArmStatistics,
    standardize_catalogue,
)
from invariant_bandits.decomposition.coefficient_specs import (
    LARGEST_VARIANCE,
    LEAST_NOISE,
    Coefficients,
    Covariance,
    Variances,
    optional_spec,
)
from invariant_bandits.decomposition.drift_tests import (
    assess_drift,
    drift_limit,
    drift_misfit,
    informing_windows,
    variance_inflation,
)
from invariant_bandits.decomposition.fit_constants import ARM, PRIOR, TINY
from invariant_bandits.decomposition.log_end import (
    break_end,
    join_ends,
    last_window,
    persistence,
    single_estimates,
    walk_end,
)
from invariant_bandits.decomposition.paths import (
    CoefficientPaths,
    random_effects,
    window_paths,
)
from invariant_bandits.moments.windowed import WindowedMoments
from invariant_bandits.storage import ArraySpec, count, truth_value, variance


class DriftBounds(NamedTuple):
    """Directions (p, q) along which coefficients drift; per direction (q,) the drift that was seen, what may
    be hidden, and how many windows inform it.
    """

    directions: Array
    seen: Array
    hidden: Array
    informing: Array


_no_vector, _no_matrix, _no_stack = (
    partial(np.zeros, (0,) * axes) for axes in (1, 2, 3)
)


@dataclass(frozen=True, eq=False)
class DriftPrior:
    """Normal prior for reward coefficients that differ between windows (periods of the log).

    The coefficients of window i are γᵢ ~ N(μ, Ω), with the mean μ and the drift covariance Ω. Create a
    DriftPrior with the method `from_moments` or, for labelled arms, with `from_arms`. For clicks with
    `link="logit"`, coefficients are effects on the log-odds.

    Attributes
    ----------
    basis : array, shape (p, p)
        Orthonormal directions, one per column; all other arrays are in the coordinates of this basis.
    mean, mean_covariance : arrays, shapes (p,), (p, p)
        Estimate of the mean coefficients μ over all time windows, and the covariance of its error.
    drift_covariance : array, shape (p, p)
        Drift covariance Ω of the coefficients over time windows, without drift that all arms share.
    noise_variance : float
        Variance of a reward about its expectation. For clicks, the variance is on the scale of log-odds:
        1 divided by the mean of π(1 − π), with the click probability π.
    baseline : float
        Mean reward of an action whose features are all 0. For labelled arms, which have intercepts of their
        own, the baseline is 0.
    baseline_variance : float
        Variance of the baseline (mean reward at features 0) between windows, beyond sampling error.
    baseline_error : float
        Sampling variance of the baseline (mean reward at features 0).
    baseline_moves : bool
        Whether the baseline, or the common level of all arms, differs between windows beyond sampling error.
    link : "identity" or "logit"
        Quantity that is linear in the features: the expected reward ("identity") or its log-odds ("logit").
    persistence : array, shape (p,)
        Probability, for each direction, that drift carries over to the next window and is not drawn anew.
    windows : int
        Number of time windows from which the prior was estimated; 0 if unknown.
    drift_limit : array, shape (p,)
        Upper confidence limit, for each direction, of the variance of the coefficient over time windows.

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
    # If nothing ever moved but what all arms have in common: the mean, and its covariance.
    pooled: Coefficients
    pooled_covariance: Covariance
    # A typical squared coefficient along each direction, which makes other priors free of units.
    unit: Variances
    noise_variance: Annotated[
        float, partial(number_between, low=LEAST_NOISE, high=LARGEST_VARIANCE)
    ]
    baseline: float = 0.0
    baseline_variance: Annotated[float, variance] = 0.0
    baseline_error: Annotated[float, variance] = 0.0
    baseline_moves: Annotated[bool, truth_value] = False
    link: Annotated[str, partial(one_of, allowed=LINKS)] = "identity"
    # Variance of the expected reward at the mean coefficients, over the offered actions if the logs have
    # them, else over the logged ones; None if it is not known.
    signal_variance: Annotated[float, variance] | None = None
    # Variance that drift alone gives to the expected reward of the same actions, along the direction where it
    # is largest; None if it is not known.
    drift_signal: Annotated[float, variance] | None = None
    # If drift persists, in h ways: mean and covariance of the coefficients when the logs ended, and in s ways
    # for each the variance by which they move on in every round.
    last_means: Annotated[Array, optional_spec("h", "p")] = field(
        default_factory=_no_matrix
    )
    last_covariances: Annotated[Array, optional_spec("h", "p", "p")] = field(
        default_factory=_no_stack
    )
    last_steps: Annotated[Array, optional_spec("h", "s", "p", least=0.0)] = field(
        default_factory=_no_stack
    )
    persistence: Annotated[Array, optional_spec("p", least=0.0)] = field(
        default_factory=_no_vector
    )
    # If drift persists, mean and covariance of the coefficients when the logs ended, over all courses of it.
    end_mean: Annotated[Array, optional_spec("p")] = field(default_factory=_no_vector)
    end_covariance: Annotated[Array, optional_spec("p", "p")] = field(
        default_factory=_no_matrix
    )
    windows: Annotated[int, count] = 0
    drift_limit: Annotated[Array, optional_spec("p", least=0.0)] = field(
        default_factory=_no_vector
    )
    # 1 for directions of blocks that drift in the logs, 0 for the others; empty if not known.
    drifting: Annotated[Array, optional_spec("p", least=0.0)] = field(
        default_factory=_no_vector
    )
    # How many windows inform each direction; empty if not known.
    informing: Annotated[Array, optional_spec("p", least=0.0)] = field(
        default_factory=_no_vector
    )
    # How far the windows contradict independent drift along the basis, in standard deviations.
    drift_misfit: float = 0.0
    # Features of the logged actions along the basis: mean and inverse covariance; empty if not known.
    feature_mean: Annotated[Array, optional_spec("p")] = field(
        default_factory=_no_vector
    )
    feature_precision: Annotated[Array, optional_spec("p", "p")] = field(
        default_factory=_no_matrix
    )
    # Mean reward at the mean features when the logs ended; None if it is not known.
    present_level: float | None = None
    # The labelled arms that the coefficients belong to.
    population: ArmPopulation | None = None

    @classmethod
    def from_moments(
        cls,
        moments: WindowedMoments,
        basis: Array,
        *,
        iterations: int = 120,
        drifting: Array | None = None,
    ) -> DriftPrior:
        """Estimate the prior from the moments of a log by expectation–maximisation.

        Parameters
        ----------
        moments : WindowedMoments
            Moments (means and sums of products) of the log in at least two time windows.
        basis : array, shape (p, p)
            Orthonormal directions, one per column, along which coefficients drift independently.
        iterations : int
            Number of iterations of expectation–maximisation.
        drifting : array of bool, shape (p,), optional
            Whether each direction belongs to a block that drifts in the log
            (`InvariantSubspaceDecomposition.drifting_directions`).

        Returns
        -------
        DriftPrior
            Prior in the coordinates of `basis`.
        """
        own, noise, noise_variance = window_paths(moments, basis, common_noise=True)
        paths = own.along(basis)
        pooled, pooled_covariance = paths.weighted_mean()
        mean, mean_covariance, drift = random_effects(paths, iterations)
        covariance = moments.gram.sum(axis=0) / moments.rounds
        variance = covariance.diagonal()
        # A selective policy's own choices vary less, and would hide the signal.
        if moments.offered is not None:
            count = moments.offered.count.sum()
            covariance = moments.offered.scatter.sum(axis=0) / count
        offered = covariance.diagonal()
        along = np.einsum("ij,ik,kj->j", basis, covariance, basis)
        center = basis @ mean
        least = 1e-12 * float(moments.reward_square.sum()) / moments.rounds
        square = max(float((center**2 * variance).mean()), least)
        unit = (basis**2 * (square / variance)[:, None]).sum(axis=0)
        vague = np.diag(unit + drift) + mean_covariance
        persists = persistence(*paths.marginals(), mean, drift)
        last = []
        steps = []
        for factor, lasting in PRIOR.persistent:
            decay = np.exp(-1.0 / (moments.windows * lasting))
            last.append(last_window(paths, mean, factor * drift, vague, decay))
            # Per round 1 − a² of the variance is new, nearly 2/(time constant in rounds).
            steps.append(2.0 * factor * drift / (lasting * moments.rounds))
        after_break = last_window(paths, mean, drift, vague, 1.0 - persists.breaks)
        end = join_ends([*last, after_break], persists.courses)
        limit = drift_limit(paths)
        feature_mean, feature_precision = _feature_moments(moments, basis)
        baseline = _estimate_baseline(moments, own, noise)
        return cls(
            basis=basis,
            mean=mean,
            mean_covariance=mean_covariance,
            drift_covariance=np.diag(drift),
            pooled=pooled,
            pooled_covariance=pooled_covariance,
            unit=unit,
            noise_variance=noise_variance,
            baseline=baseline.level,
            baseline_variance=baseline.between,
            baseline_error=baseline.error,
            baseline_moves=baseline.moves,
            present_level=_present_level(moments, own, noise),
            signal_variance=float((center**2 * offered).sum()),
            drift_signal=float(max((drift * along).max(), 0.0)),
            last_means=np.stack([mean for mean, _ in last]),
            last_covariances=np.stack([covariance for _, covariance in last]),
            last_steps=np.stack(steps)[:, None],
            persistence=persists.probability,
            end_mean=end.mean,
            end_covariance=end.covariance,
            feature_mean=feature_mean,
            feature_precision=feature_precision,
            windows=int(moments.windows),
            drift_limit=np.where(
                np.isfinite(limit), limit, PRIOR.unlimited * (unit + drift)
            ),
            informing=np.asarray(
                np.isfinite(paths.marginals()[1]).sum(axis=0), dtype=np.float64
            ),
            drift_misfit=drift_misfit(paths, mean, drift),
            drifting=np.zeros(0) if drifting is None else np.asarray(drifting, float),
        )

    @classmethod
    def from_arms(cls, statistics: ArmStatistics) -> DriftPrior:
        """Estimate the prior of labelled arms by expectation–maximisation.

        >>> import numpy as np, invariant_bandits as ib
        >>> from invariant_bandits.decomposition.arm_statistics import ArmStatistics
        >>> rng = np.random.default_rng(0)
        >>> contexts = np.column_stack([np.ones(20_000), rng.normal(size=20_000)])
        >>> arms, month = rng.integers(3, size=20_000), np.arange(20_000) // 2000
        >>> slopes = np.tile([1.0, 0.0, -1.0], (10, 1))
        >>> slopes[:, 1] = rng.normal(size=10)                                    # the slope of arm 1 drifts
        >>> rewards = contexts[:, 1] * slopes[month, arms] + rng.normal(size=20_000)
        >>> statistics = ArmStatistics.from_rounds(contexts, arms, rewards, windows=month)
        >>> prior = ib.DriftPrior.from_arms(statistics)
        >>> [(effect.arm, effect.coefficient) for effect in prior.effects if effect.drifts]
        [(1, 1)]
        """
        if not statistics.rounds.sum():
            raise InputError("the statistics hold no rounds")
        layout = statistics.layout
        standard = standardize_catalogue(statistics.catalogue.reshape(layout.arms, -1))
        catalogue = standard.features
        candidates = ARM.likeness if catalogue.shape[1] else ARM.likeness[:1]
        fits = {
            likeness: fit_effects(statistics, relate_arms(catalogue, likeness))
            for likeness in candidates
        }
        likeness = max(fits, key=lambda likeness: fits[likeness].joint.evidence)
        plain, fit = fits[likeness]
        if layout.shared:
            fit = draw_shared_to_zero(statistics, fit, layout)
        count, coordinates = layout.dim, np.eye(layout.dim)
        directions = np.vstack([coordinates, plain.along.T])
        sizes = np.append(plain.own, plain.sizes)
        of_coefficients = variance_inflation(statistics, plain.windows.mean, plain.own)
        squares = directions**2
        inflation = squares @ of_coefficients / squares.sum(axis=1).clip(TINY)
        tests = assess_drift(plain, layout, directions, sizes, inflation)
        p_values = tests.p_values
        if statistics.link == "logit":
            # A test takes two windows with about five clicks of the rarer kind.
            of_windows = np.einsum("mpp->mp", statistics.information)
            enough = (of_windows >= PRIOR.enough_clicks).sum(axis=0) >= 2
            p_values[:count] = np.where(enough, p_values[:count], np.nan)
        slopes = len(statistics.context_square) - 1
        measures = np.hstack(
            [coordinates, common_measures(layout, plain.along, catalogue, slopes)]
        )
        estimates = measures.T @ plain.windows.mean
        variances = ((plain.windows.covariance @ measures) * measures).sum(axis=0)
        own_estimates = estimates_by_own_rounds(plain, layout.own_dim)
        estimates[:count] = own_estimates.mean
        variances[:count] = own_estimates.variance
        evidence = EffectEvidence(
            estimate=estimates,
            error=np.sqrt(inflation * variances),
            variance=sizes,
            p_value=p_values,
            detectable=tests.detectable,
            hidden=np.where(np.isfinite(tests.limits), tests.limits, LARGEST_VARIANCE),
            informing=informing_windows(statistics, directions),
        )
        population = ArmPopulation(
            layout=layout,
            common=fit.sizes[: layout.own],
            spread=fit.spread,
            typical_drift=fit.typical,
            relation=relate_arms(catalogue, likeness),
            catalogue=catalogue,
            catalogue_mean=standard.mean,
            catalogue_scale=standard.scale,
            likeness=likeness,
            together=plain.along,
            evidence=evidence,
            plays=statistics.rounds.sum(axis=0),
            context_square=statistics.context_square,
        )
        squares = (fit.windows.mean**2 + np.diagonal(fit.windows.covariance))[
            layout.own_dim :
        ]
        shared_unit = np.full(
            layout.shared, max(float(squares.mean()), 1e-12) if len(squares) else 0.0
        )
        common = population.common_drift
        still = condition_windows(statistics, common, fit.precision)
        drift = fit.windows.drift - common
        persists = persistence(
            *single_estimates(statistics, fit.windows.mean),
            fit.windows.mean,
            np.diagonal(drift),
        )
        # The windows of arms tell one walk from a break, not how fast it goes.
        last = walk_end(statistics, fit.precision, fit.windows.drift)
        after_break = break_end(
            statistics, fit.precision, fit.windows.drift, persists.breaks
        )
        walks = persists.courses[:-1].sum(axis=0)
        end = join_ends([last, after_break], np.stack([walks, persists.courses[-1]]))
        return cls(
            basis=np.eye(layout.dim),
            mean=fit.windows.mean,
            mean_covariance=fit.windows.covariance,
            drift_covariance=drift,
            pooled=still.mean,
            pooled_covariance=still.covariance,
            unit=np.concatenate([np.tile(fit.spread, layout.arms), shared_unit]),
            noise_variance=statistics.noise_variance,
            baseline_moves=bool(p_values[count] < PRIOR.common_level),
            link=statistics.link,
            last_means=last.mean[None],
            last_covariances=last.covariance[None],
            last_steps=_walk_steps(drift),
            persistence=persists.probability,
            end_mean=end.mean,
            end_covariance=end.covariance,
            windows=len(statistics.scores),
            population=population,
        )

    def where_logs_ended(self, mean: Array, covariance: Array) -> tuple[Array, Array]:
        """Mean (p,) and covariance (p, p) of the coefficients after the logs.

        Along each direction drift persists with its probability, and the coefficient is that of the last
        window; else it is as `mean` (p,) and `covariance` (p, p) say.
        """
        if not len(self.end_mean):
            return mean, covariance
        share = self.persistence
        step = self.end_mean - mean
        # The moments of the mixture, direction by direction: within both cases, and between them.
        persists = np.sqrt(share)
        afresh = np.sqrt(1.0 - share)
        last = self.end_covariance + self.common_drift
        within = covariance * np.outer(afresh, afresh) + last * np.outer(
            persists, persists
        )
        between = np.diag(share * (1.0 - share) * step**2)
        return mean + share * step, within + between

    @property
    def drift(self) -> Array:
        """Variance of the coefficients over time windows along each of the p directions (p,)."""
        return np.asarray(np.maximum(np.diagonal(self.drift_covariance), 0.0))

    @property
    def drift_bounds(self) -> DriftBounds:
        """Directions (p, q) along which coefficients drift, and what the windows say of each."""
        coordinates, seen = np.eye(len(self.mean)), self.drift
        if self.population is not None:
            evidence = self.arms.evidence
            return DriftBounds(
                np.hstack([coordinates, self.arms.together]),
                evidence.variance,
                evidence.hidden,
                evidence.informing,
            )
        return DriftBounds(coordinates, seen, self.drift_limit, self.informing)

    @property
    def level_unit(self) -> float:
        """What a moving baseline is measured in: the noise variance, 1 on the logit scale."""
        return 1.0 if self.link == "logit" else self.noise_variance

    @property
    def common_drift(self) -> Array:
        """Covariance (p, p) of the drift that all arms have in common; zero without arms."""
        p = len(self.mean)
        return (
            np.zeros((p, p))
            if self.population is None
            else self.population.common_drift
        )

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
        return np.block(
            [[P, -pull[:, None]], [-pull[None, :], np.array([[1.0 + length]])]]
        )

    # -- labelled arms --

    @property
    def arms(self) -> ArmPopulation:
        """The population of labelled arms, or InputError if there are none."""
        if self.population is None:
            raise InputError(
                "this policy knows no labelled arms: it was not started with from_arms"
            )
        return self.population

    @property
    def layout(self) -> ArmLayout:
        """Which coefficient belongs to which arm."""
        return self.arms.layout

    @property
    def effects(self) -> list[Effect]:
        """Coefficients of all played arms and coefficients that arms share, each with its test for drift."""
        return self.arms.effects

    def mean_precision(self, statistics: ArmStatistics) -> Array:
        """Π (p, p), the prior precision of the arms' mean coefficients that follows from their population."""
        hyper = PopulationPrior(statistics, self.arms.relation)
        return hyper.precision(self.arms.spread)

    def with_arm(self, features: Sequence[float] | None = None) -> DriftPrior:
        """Return the prior with one more labelled arm, which was never played.

        For the new arm, the prior takes the mean coefficients of similar arms and the variance between arms.

        Parameters
        ----------
        features : sequence of float, length c, optional
            Features of the new arm, if the other arms have c features.
        """
        new = self.arms.with_arm(features)
        population, layout = new.population, new.population.layout
        own = layout.arm(self.layout.arms)
        added = _AddedVariances(*np.zeros((3, layout.dim)))
        added.of_mean[own] = new.variance * population.spread
        added.drift[own] = population.typical_drift
        added.unit[own] = population.spread
        others = np.delete(np.eye(layout.dim), own, axis=1)
        means = self.layout.insertion(new.weights)
        return self._carry(population, means, others, added)

    def without_arm(self, arm: int) -> DriftPrior:
        """The prior of the other arms."""
        others = np.eye(len(self.mean))[self.layout.coordinates_without(arm)]
        nothing = _AddedVariances(*np.zeros((3, len(others))))
        return self._carry(self.arms.without_arm(arm), others, others, nothing)

    def _carry(
        self,
        population: ArmPopulation,
        means: Array,
        positions: Array,
        added: _AddedVariances,
    ) -> DriftPrior:
        """Return the prior of other arms.

        means, positions: (p', p), what coefficients become, and where those that stay are.
        """
        drift = positions @ self.drift_covariance @ positions.T + np.diag(added.drift)

        def extend(covariance: Array, variances: Array) -> Array:
            return np.asarray(means @ covariance @ means.T + np.diag(variances))

        of_end = added.of_mean + added.drift
        return replace(
            self,
            basis=np.eye(len(positions)),
            mean=means @ self.mean,
            mean_covariance=extend(self.mean_covariance, added.of_mean),
            drift_covariance=drift,
            pooled=means @ self.pooled,
            pooled_covariance=extend(self.pooled_covariance, added.of_mean),
            unit=positions @ self.unit + added.unit,
            last_means=self.last_means @ means.T,
            last_covariances=np.stack(
                [extend(last, of_end) for last in self.last_covariances]
            ),
            last_steps=_walk_steps(drift),
            persistence=positions @ self.persistence,
            end_mean=means @ self.end_mean,
            end_covariance=extend(self.end_covariance, of_end),
            population=population,
        )


class _AddedVariances(NamedTuple):
    """What a new arm adds to the variances of the means, to the drift and to the unit, each (p',)."""

    of_mean: Array
    drift: Array
    unit: Array


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


class BaselineEstimate(NamedTuple):
    """The reward of an action whose features are 0, over the windows.

    Attributes
    ----------
    level, error : float
        Mean over the windows, and its sampling variance.
    between : float
        Variance between windows beyond sampling error.
    moves : bool
        Whether a test rejects that all windows have the same.
    """

    level: float
    error: float
    between: float
    moves: bool


def _estimate_baseline(
    moments: WindowedMoments, paths: CoefficientPaths, noise: Array
) -> BaselineEstimate:
    """Return the mean of the window intercepts r̄_i − x̄_iᵀγ_i, and how far they move."""
    mean = moments.feature_mean
    level = moments.reward_mean - np.einsum("mi,mi->m", mean, paths.coefficients)
    # The sampling variance s²(1/n + x̄ᵀ(Σxxᵀ)⁻¹x̄), which a partial window knows by its covariance alone.
    if paths.partial is None:
        solved = np.linalg.solve(moments.gram, mean[:, :, None])[:, :, 0]
        sampling = noise * (1.0 / moments.counts + np.einsum("mi,mi->m", mean, solved))
    else:
        informed = moments.counts > 0
        level = level[informed]
        mean = mean[informed]
        covariances = paths.covariances[informed]
        sampling = noise[informed] / moments.counts[informed]
        sampling = sampling + np.einsum("mi,mij,mj->m", mean, covariances, mean)
    weight = 1.0 / sampling
    center = float(weight @ level / weight.sum())
    squares = (level - center) ** 2
    # Σ(ℓ_i − ℓ̄)²/s_i² is χ² with m − 1 degrees of freedom if nothing moves.
    freedom = len(level) - 1
    p_value = special.gammaincc(freedom / 2.0, float(weight @ squares) / 2.0)
    return BaselineEstimate(
        level=center,
        error=float(1.0 / weight.sum()),
        between=max(float((squares - sampling).mean()), 0.0),
        moves=bool(p_value < PRIOR.baseline_level),
    )


def _present_level(
    moments: WindowedMoments, paths: CoefficientPaths, noise: Array
) -> float:
    """Mean reward at the mean features of the log when the log ended.

    In window i it is ℓ_i = r̄_i − (x̄_i − x̄)ᵀγ_i. Unlike the intercept r̄_i − x̄_iᵀγ_i it does not change with
    drifting coefficients γ_i where features are not centred. The last window's own level is shrunk to the
    mean of all windows as far as windows differ by chance alone.
    """
    used = moments.counts > 0
    if paths.partial is None:
        used = np.ones(len(used), dtype=bool)
    counts, features = moments.counts[used], moments.feature_mean[used]
    apart = features - counts @ features / counts.sum()
    levels = moments.reward_mean[used] - np.einsum(
        "mi,mi->m", apart, paths.coefficients[used]
    )
    sampling = noise[used] / counts
    weight = 1.0 / sampling
    center = float(weight @ levels / weight.sum())
    between = max(float(((levels - center) ** 2 - sampling).mean()), 0.0)
    own_share = between / (between + float(sampling[-1]))
    return center + own_share * (float(levels[-1]) - center)


def _walk_steps(drift: Array) -> Array:
    """`last_steps` (1, s, p) of arms whose coefficients drift by Ω (p, p)."""
    return np.asarray(
        np.array(PRIOR.walk_rates)[:, None] * np.maximum(np.diagonal(drift), 0.0)
    )[None]
