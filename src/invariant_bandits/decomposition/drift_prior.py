"""DriftPrior: what the logs teach about how far each direction of the reward model moves (empirical Bayes)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy import special

from invariant_bandits.checks import Array
from invariant_bandits.decomposition.paths import CoefficientPaths, window_freedom, window_paths
from invariant_bandits.decomposition.random_effects import random_effects
from invariant_bandits.decomposition.rank_deficiency import singular_roots
from invariant_bandits.decomposition.state_space import last_window
from invariant_bandits.moments.windowed import WindowedMoments

HIDDEN_LEVEL = 0.08
HALVINGS = 60


def informing_windows(paths: CoefficientPaths) -> Array:
    """How many windows inform each direction (p,): all of them, unless some are silent about it."""
    return np.asarray(np.isfinite(paths.singly()[1]).sum(axis=0), dtype=np.float64)


def drift_limit(paths: CoefficientPaths) -> Array:
    """Upper confidence limits ω⁺ (p,) of the drift along every direction, each at level 8 %.

    If ω is the drift of a direction, Q(ω) = Σ_i (g_i − ḡ_ω)²/(ω + h_i), with ḡ_ω the mean weighted by 1/(ω + h_i), is
    χ² with m − 1 degrees of freedom, and it falls with ω; ω⁺ is where it reaches the 8 % quantile (the Q-profile
    interval of Viechtbauer 2007). With two windows ω⁺ is a hundred times what was seen, with eight three times. m
    counts the windows that inform the direction; ω⁺ is infinite if there are fewer than two.
    """
    g, h = paths.singly()
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
    """Sums of squares (p,) of the coefficients g (m, p) about their means over the windows with finite variances h."""
    if np.isfinite(h).all():
        return np.asarray(g.var(axis=0, ddof=1) * (len(g) - 1))
    heard = np.where(np.isfinite(h), g, np.nan)
    return np.asarray(np.nansum((heard - np.nanmean(heard, axis=0)) ** 2, axis=0))


def drift_misfit(paths: CoefficientPaths, mean: Array, drift: Array) -> float:
    """How far the windows contradict independent drift along the directions, in standard deviations.

    Sum of the squared correlations, over all pairs of directions, of the windows' standardised deviations
    (Ω + H_i)^(−1/2)(ĝ_i − μ), less its mean Σ1/n and over its standard deviation if there are none, n = m − 1
    (Schott 2005), m the windows that inform both directions of a pair. Large where the basis is not identified: then
    drift has no directions of its own. 0 if there are too few windows or directions to tell.
    """
    m, p = paths.coefficients.shape
    if m < 3 or p < 2:
        return 0.0
    values, vectors = np.linalg.eigh(np.diag(drift) + paths.covariances)
    roots = 1.0 / np.sqrt(values)
    if paths.silence is not None:
        L = paths.silence.roots
        A = L @ np.linalg.solve(np.eye(L.shape[2]) + (L.swapaxes(1, 2) * drift) @ L, L.swapaxes(1, 2))
        values, vectors[paths.silence.windows] = np.linalg.eigh(A)
        roots[paths.silence.windows] = np.sqrt(np.maximum(values, 0.0))
    apart = np.einsum("mji,mj->mi", vectors, paths.coefficients - mean) * roots
    standard = np.einsum("mij,mj->mi", vectors, apart)
    told = np.ones((m, p)) if paths.silence is None else np.isfinite(paths.singly()[1]).astype(np.float64)
    standard = standard * told - told * ((standard * told).sum(axis=0) / np.maximum(told.sum(axis=0), 1.0))
    length = np.sqrt((standard**2).sum(axis=0))
    standard = standard / np.where(length > 0.0, length, 1.0)
    pairs = np.triu_indices(p, 1)
    n = (told.T @ told - 1.0)[pairs]
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


@dataclass(frozen=True)
class DriftPrior:
    """Random effects over windows: γ_i ~ N(μ, Ω), Ω = V·diag(ω)·Vᵀ, and ĝ_i given γ_i ~ N(γ_i, H_i).

    Coefficients are in units of the reward per unit of a feature, and variances in their squares.

    Attributes
    ----------
    basis : array, shape (p, p)
        V, orthonormal. Everything else is in its coordinates.
    mean : array, shape (p,)
        μ.
    mean_covariance : array, shape (p, p)
        Sampling covariance of μ.
    drift : array, shape (p,)
        ω, the variance over windows along each direction.
    pooled : array, shape (p,)
        Mean if nothing ever moved (ω = 0).
    pooled_covariance : array, shape (p, p)
        Its sampling covariance.
    unit : array, shape (p,)
        A typical squared coefficient along each direction, which makes other priors free of units.
    noise_variance : float
        Of a reward about its expectation.
    baseline : float
        Mean reward at φ = 0.
    baseline_variance : float
        Its variance between windows beyond sampling error.
    baseline_error : float
        Sampling variance of the mean baseline.
    baseline_moves : bool
        Whether the window baselines differ by more than sampling error.
    signal_variance : float
        Variance of the expected reward over the logged actions, at the mean coefficients.
    feature_mean, feature_precision : arrays, shapes (p,), (p, p)
        Mean of the features of the logged actions along the basis, and the inverse of their covariance.
    last_means, last_covariances, last_steps : arrays, shapes (h, p), (h, p, p), (h, p)
        If drift persists, in h ways: mean and covariance of the coefficients when the logs ended, and the variance by
        which they move on in every round.
    windows : int
        m, 0 if not known.
    drift_limit : array, shape (p,)
        ω⁺, the drift that the windows could be hiding (`drift_limits`); empty if not known.
    informing : array, shape (p,)
        How many windows inform each direction; empty if not known.
    drift_misfit : float
        How far the windows contradict independent drift along the basis, in standard deviations.

    >>> import numpy as np, invariant_bandits as ib
    >>> rng = np.random.default_rng(1)
    >>> features = rng.normal(size=(8000, 2))
    >>> coefficients = np.repeat(1.0 + rng.normal(size=(40, 2)) * [0.0, 2.0], 200, axis=0)   # only the second one moves
    >>> rewards = (features * coefficients).sum(axis=1) + rng.normal(size=8000)
    >>> moments = ib.WindowedMoments.from_arrays(features, rewards, windows=40)
    >>> ib.DriftPrior.from_moments(moments, np.eye(2)).drift.round(1)
    array([0., 4.])
    """

    basis: Array
    mean: Array
    mean_covariance: Array
    drift: Array
    pooled: Array
    pooled_covariance: Array
    unit: Array
    noise_variance: float
    baseline: float
    baseline_variance: float
    baseline_error: float
    baseline_moves: bool
    signal_variance: float = 0.0
    last_means: Array = field(default_factory=lambda: np.zeros((0, 0)))
    last_covariances: Array = field(default_factory=lambda: np.zeros((0, 0, 0)))
    last_steps: Array = field(default_factory=lambda: np.zeros((0, 0)))
    windows: int = 0
    drift_limit: Array = field(default_factory=lambda: np.zeros(0))
    informing: Array = field(default_factory=lambda: np.zeros(0))
    drift_misfit: float = 0.0
    feature_mean: Array = field(default_factory=lambda: np.zeros(0))
    feature_precision: Array = field(default_factory=lambda: np.zeros((0, 0)))

    @classmethod
    def from_moments(cls, moments: WindowedMoments, basis: Array, *, iterations: int = 200) -> DriftPrior:
        """Estimate by expectation–maximisation.

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
        mean, mean_covariance, drift = random_effects(paths.coefficients, paths.covariances, iterations, paths.silence)
        freedom = window_freedom(moments, singular)
        variance = moments.gram.sum(axis=0).diagonal() / moments.rounds
        center = basis @ mean
        square = max(float((center**2 * variance).mean()), 1e-12 * float(moments.reward_square.sum()) / moments.rounds)
        unit = (basis**2 * (square / variance)[:, None]).sum(axis=0)
        vague = np.diag(unit + drift) + mean_covariance
        center_of_features, precision = _usual_features(moments, basis)
        last = [last_window(paths, mean, drift, vague, factor, lasting) for factor, lasting in PERSISTENT]
        steps = [2.0 * factor * drift / (lasting * moments.rounds) for factor, lasting in PERSISTENT]
        limit = drift_limit(paths)
        level, between, error, moves = _baseline(moments, own, noise)
        return cls(
            basis=basis,
            mean=mean,
            mean_covariance=mean_covariance,
            drift=drift,
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
            last_steps=np.stack(steps),
            feature_mean=center_of_features,
            feature_precision=precision,
            windows=int(moments.windows),
            drift_limit=np.where(np.isfinite(limit), limit, UNLIMITED * (unit + drift)),
            informing=informing_windows(paths),
            drift_misfit=drift_misfit(paths, mean, drift),
        )

    @property
    def link(self) -> str:
        """The expected reward itself is linear."""
        return "identity"

    @property
    def level_unit(self) -> float:
        """What a moving baseline is measured in: the noise variance."""
        return self.noise_variance

    def usual_precision(self, intercept: bool) -> Array:
        """Q, the inverse of the logs' mean of zzᵀ, z the features along the basis, and 1 if there is a baseline.

        zᵀQz is the number of coordinates on average over the logged actions. Empty if the features are not known.
        """
        P, pull = self.feature_precision, self.feature_precision @ self.feature_mean
        length = float(self.feature_mean @ pull)
        if not len(P):
            return P
        if not intercept:
            return np.asarray(P - np.outer(pull, pull) / (1.0 + length))
        return np.block([[P, -pull[:, None]], [-pull[None, :], np.array([[1.0 + length]])]])


def _usual_features(moments: WindowedMoments, basis: Array) -> tuple[Array, Array]:
    """Mean of the logged features along the basis (p,), and the inverse of their covariance over all windows (p, p)."""
    share = moments.counts / moments.rounds
    mean = share @ moments.feature_mean
    apart = moments.feature_mean - mean
    covariance = moments.gram.sum(axis=0) / moments.rounds + (share * apart.T) @ apart
    inverse = basis.T @ np.linalg.inv(covariance) @ basis
    return basis.T @ mean, np.ascontiguousarray(0.5 * (inverse + inverse.T))


def _baseline(moments: WindowedMoments, paths: CoefficientPaths, noise: Array) -> tuple[float, float, float, bool]:
    """Mean of the window intercepts, their variance beyond sampling error, its error, and whether they move."""
    mean, coefficients, silence = moments.feature_mean, paths.coefficients, paths.silence
    level = moments.reward_mean - np.einsum("mi,mi->m", mean, coefficients)
    if silence is None:
        solved = np.linalg.solve(moments.gram, mean[:, :, None])[:, :, 0]
        sampling = noise * (1.0 / moments.counts + np.einsum("mi,mi->m", mean, solved))
    else:
        heard = moments.counts > 0
        level, mean, sampling = level[heard], mean[heard], noise[heard] / moments.counts[heard]
        sampling = sampling + np.einsum("mi,mij,mj->m", mean, paths.covariances[heard], mean)
    weight = 1.0 / sampling
    center = float(weight @ level / weight.sum())
    statistic = float(weight @ (level - center) ** 2)
    moves = bool(special.gammaincc((len(level) - 1) / 2.0, statistic / 2.0) < BASELINE_ALPHA)
    between = max(float(((level - center) ** 2 - sampling).mean()), 0.0)
    return center, between, float(1.0 / weight.sum()), moves
