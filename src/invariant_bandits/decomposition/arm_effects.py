"""Random effects of labelled arms, fitted by expectation–maximisation.

Everything is in precision form, in which the information Λ_i of a window may be singular.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.decomposition.arm_blocks import ArmBlocks, BlockStep
from invariant_bandits.decomposition.arm_population import contrast_precision
from invariant_bandits.decomposition.arm_statistics import ArmLayout, ArmStatistics
from invariant_bandits.decomposition.fit_constants import ARM, SMALLEST, TINY


class ConditionedWindows(NamedTuple):
    """What the windows say given Ω: W (m, p, p), pull_i = w_i − W_iμ (m, p), μ (p,), C_μ (p, p), Ω (p, p)."""

    weights: Array
    pull: Array
    mean: Array
    covariance: Array
    drift: Array


def condition_windows(
    windows: ArmStatistics, drift: Array, precision: Array
) -> ConditionedWindows:
    """E step. W_i = (I + Λ_iΩ)⁻¹Λ_i, w_i = (I + Λ_iΩ)⁻¹η_i, C_μ = (Π + ΣW_i)⁻¹, μ = C_μΣw_i.

    Parameters
    ----------
    windows : ArmStatistics, or another object with the same two fields
        Its `information` (m, p, p) is Λ, its `scores` (m, p) are η.
    drift : array, shape (p, p)
        Ω.
    precision : array, shape (p, p)
        Π, the prior precision of μ; zero if there is no population.
    """
    p = len(drift)
    joined = np.concatenate([windows.information, windows.scores[:, :, None]], axis=2)
    solved = np.linalg.solve(np.eye(p) + windows.information @ drift, joined)
    W, w = solved[:, :, :p], solved[:, :, p]
    W = 0.5 * (W + W.swapaxes(1, 2))
    covariance = np.linalg.inv(precision + W.sum(axis=0))
    covariance = 0.5 * (covariance + covariance.T)
    mean = covariance @ w.sum(axis=0)
    return ConditionedWindows(W, w - W @ mean, mean, covariance, drift)


def drift_change(effects: ConditionedWindows) -> Array:
    """M step: Σ_i[pull_ij² − W_i,jj + (W_iC_μW_i)_jj] (p,); ω_j grows by ω_j²/m_j times this.

    The last term is there because μ is not known either (restricted maximum likelihood).
    """
    W = effects.weights
    change = effects.pull**2 - np.einsum("mpp->mp", W)
    return np.asarray(
        (change + np.einsum("mpq,mpq->mp", W @ effects.covariance, W)).sum(axis=0)
    )


def _change_along(effects: ConditionedWindows, directions: Array) -> Array:
    """`drift_change` along other directions (p, e): (e,)."""
    WE = effects.weights @ directions
    change = (effects.pull @ directions) ** 2 - np.einsum("pe,mpe->me", directions, WE)
    return np.asarray(
        (change + np.einsum("mpe,mpe->me", WE, effects.covariance @ WE)).sum(axis=0)
    )


class ArmEffects(NamedTuple):
    """The fitted random effects of labelled arms.

    Attributes
    ----------
    own : array, shape (p,)
        ω of every coefficient by itself.
    along, sizes : arrays, shapes (p, e), (e,)
        Extra directions, the common ones first, and their ω.
    spread : array, shape (own,)
        Ψ, the variance of the arms' coefficients in the population.
    typical : array, shape (own,)
        ω̄, the mean drift of the arms that were seen.
    precision : array, shape (p, p)
        Π, the prior precision of μ that follows from the population.
    windows : ConditionedWindows
        At these values.
    evidence : float
        Log-likelihood of the log, μ integrated out.
    """

    own: Array
    along: Array
    sizes: Array
    spread: Array
    typical: Array
    precision: Array
    windows: ConditionedWindows
    evidence: float


class PopulationPrior:
    """The hyperparameters of the arms' population: Ψ, and the prior precision of μ that follows from it."""

    def __init__(self, statistics: ArmStatistics, relation: Array) -> None:
        self.layout = statistics.layout
        self.seen = statistics.rounds.sum(axis=0) > 0.0
        self.contrast = contrast_precision(relation)
        self.contrast_of_seen = contrast_precision(
            relation[np.ix_(self.seen, self.seen)]
        )
        self.faint = 1.0 / (ARM.vague_arms * statistics.scale)

    def precision(self, spread: Array) -> Array:
        """Π (p, p): arms differ by N(0, Ψ·relation); their common part and what they share are nearly flat.

        A common variance of all shared coefficients would draw a few large ones among many null ones to 0.
        The windows would then depart from that mean in the same direction, and count as drift.
        """
        result, own = self.faint * np.eye(self.layout.dim), self.layout.own_dim
        result[:own, :own] += np.kron(self.contrast, np.diag(1.0 / spread))
        return np.asarray(result)

    def spread(self, mean: Array, covariance: Array, least: Array) -> Array:
        """Ψ (own,) given the arms' coefficients, each drawn to the mean of the other slopes'.

        A slope that differs far more between arms than the others is drawn to them less. Else the few slopes
        that do differ would be shrunk as if they did not.
        """
        P = self.contrast_of_seen
        arms = int(self.seen.sum())
        own = self.layout.own_dim
        if arms < 2:
            return np.asarray(np.maximum(float((mean**2).mean()), least))
        theta = mean[:own].reshape(self.layout.arms, self.layout.own)[self.seen]
        C = covariance[:own, :own].reshape((self.layout.arms, self.layout.own) * 2)
        C = np.einsum("akbk->kab", C)[:, self.seen][:, :, self.seen]
        squares = np.einsum("ak,ab,bk->k", theta, P, theta) + np.einsum(
            "ab,kab->k", P, C
        )
        each = squares / (arms - 1)
        usual = np.full(len(each), each[1:].mean() if len(each) > 1 else each.mean())
        usual[0] = each.mean()
        count = ARM.spread_count * np.minimum(1.0, usual / np.maximum(each, TINY))
        pooled = (count * usual + squares) / (arms - 1 + count)
        return np.asarray(np.maximum(pooled, least))


class Hyperparameters(NamedTuple):
    """Drift and population of the arms, which expectation–maximisation fits.

    Attributes
    ----------
    own : array, shape (p,)
        ω of every coefficient by itself.
    along, sizes : arrays, shapes (p, e), (e,)
        Extra directions of drift, and their ω.
    spread : array, shape (own,)
        Ψ, the variance of the arms' coefficients in the population.
    """

    own: Array
    along: Array
    sizes: Array
    spread: Array

    @property
    def drift(self) -> Array:
        """Ω = diag(own) + GSGᵀ (p, p)."""
        common = (self.along * self.sizes) @ self.along.T
        return np.asarray(np.diag(self.own) + common)


class FittedEffects(NamedTuple):
    """Two fits of one log: with common directions, for tests, and with the joint ones, for decisions."""

    plain: ArmEffects
    joint: ArmEffects


def fit_effects(statistics: ArmStatistics, relation: Array) -> FittedEffects:
    """Fit random effects with common directions alone, and with two more that the windows ask for.

    There are joint directions in the own coding only. Shared slopes with a catalogue drift along its terms,
    not along their coordinates.
    """
    population, layout = PopulationPrior(statistics, relation), statistics.layout
    information = statistics.information
    groups = statistics.common_directions
    own = _start(np.einsum("mpp->mp", information))
    if groups[layout.own_dim :].any():
        own[layout.own_dim :] *= SMALLEST
    sizes = _start(np.einsum("pe,mpq,qe->me", groups, information, groups))
    spread = ARM.wide_start * np.maximum(layout.by_arm(own).mean(axis=0), TINY)
    start = Hyperparameters(own, groups, sizes, spread)
    plain = _fit(statistics, population, start, ARM.first_iterations)
    extra = _joint_directions(plain, layout)
    if not extra.shape[1]:
        return FittedEffects(plain, plain)
    start = Hyperparameters(
        own=plain.own,
        along=np.hstack([groups, extra]),
        sizes=np.append(plain.sizes, np.full(extra.shape[1], plain.own.mean())),
        spread=plain.spread,
    )
    joint = _fit(statistics, population, start, ARM.iterations)
    return FittedEffects(plain, joint)


def draw_shared_to_zero(
    statistics: ArmStatistics, fit: ArmEffects, layout: ArmLayout
) -> ArmEffects:
    """The fit with shared coefficients drawn to 0, for decisions and expected rewards: they are many, and
    most of them are null.

    They are t-distributed about 0, with a scale for slopes and one for their products with the catalogue,
    which may all be null though slopes are large; expectation–maximisation finds both. The tails are heavy: a
    few large coefficients among many null ones are hardly shrunk. What the scales are found from is the fit
    with a flat prior, whose drift stays as it is. So what is drawn to 0 does not come back as drift.
    """
    own, windows = layout.own_dim, fit.windows
    known = np.linalg.inv(windows.covariance[own:, own:])
    pull = known @ windows.mean[own:]
    mean: Array = windows.mean[own:]
    covariance: Array = np.zeros_like(known)
    slopes = len(statistics.context_square) - layout.own
    # The group of every coefficient (J,): slopes come first.
    group = (np.arange(layout.shared) >= slopes).astype(int)
    sizes = np.bincount(group)
    scale = np.bincount(group, weights=mean**2) / sizes
    precision = np.zeros(layout.shared)
    for _ in range(ARM.scale_iterations):
        squares = mean**2 + np.diagonal(covariance)
        of_each = np.maximum(scale, TINY)[group]
        weights = (ARM.tail_freedom + 1.0) / (ARM.tail_freedom + squares / of_each)
        precision = weights / of_each
        covariance = np.linalg.inv(known + np.diag(precision))
        mean = covariance @ pull
        before = scale
        scale = np.bincount(group, weights=weights * squares) / sizes
        if (abs(scale - before) <= ARM.scale_tolerance * before).all():
            break
    whole = fit.precision.copy()
    whole[own:, own:] += np.diag(precision)
    conditioned = condition_windows(statistics, windows.drift, whole)
    return fit._replace(precision=whole, windows=conditioned)


class OwnEstimates(NamedTuple):
    """Mean over the log and its variance (p,), an arm's own coefficients not drawn to other arms'."""

    mean: Array
    variance: Array


def estimates_by_own_rounds(fit: ArmEffects, own_dim: int) -> OwnEstimates:
    """Return estimates of every coefficient, an arm's own ones not drawn to other arms'.

    An interval about an estimate that is drawn to those of other arms misses a coefficient that differs from
    theirs. So the prior of coefficient j given all others is taken out: Π becomes Π − vvᵀ/Π_jj, v its column
    j, and C becomes C + CvvᵀC/(Π_jj − vᵀCv) (Sherman and Morrison). Where that more than doubles the error,
    the rounds of the arm say little, and the estimate stays as it is.
    """
    windows, prior = fit.windows, fit.precision
    mean, variance = windows.mean.copy(), np.diagonal(windows.covariance).copy()
    pulled = windows.covariance @ prior
    left = np.diagonal(prior) - np.einsum("pj,pj->j", prior, pulled)
    at_itself = np.diagonal(pulled)
    own = np.arange(len(mean)) < own_dim
    grown = ARM.largest_growth * variance * left
    told = own & (left > 0.0) & (variance * left + at_itself**2 <= grown)
    factor = at_itself[told] / left[told]
    mean[told] += factor * (prior @ windows.mean)[told]
    variance[told] += factor * at_itself[told]
    return OwnEstimates(mean, variance)


def informs(information: Array) -> Any:
    """Which windows inform each direction, from information along directions (m, J)."""
    return information > ARM.uninformed * max(float(information.max()), 1e-300)


def _start(information: Array) -> Array:
    """Return the drift that the windows could just detect, 3/(mean information).

    information: that of each window along directions (m, J).
    """
    informed = informs(information)
    total = np.where(informed, information, 0.0).sum(axis=0)
    mean = total / np.maximum(informed.sum(axis=0), 1)
    positive = mean > 0.0
    # Directions of which nothing is known start at the mean of the others.
    default = mean[positive].mean() if positive.any() else 1.0
    return np.asarray(ARM.start / np.where(positive, mean, default))


def _fit(
    statistics: ArmStatistics,
    population: PopulationPrior,
    start: Hyperparameters,
    iterations: int,
) -> ArmEffects:
    """Fit the random effects of arms by steps of expectation–maximisation from `start`."""
    layout, along = statistics.layout, start.along
    by_coordinate = informs(np.einsum("mpp->mp", statistics.information))
    across = np.einsum("pe,mpq,qe->me", along, statistics.information, along)
    maximisation = _MStep(
        population=population,
        informing=by_coordinate.sum(axis=0).astype(np.float64),
        informing_along=np.maximum(informs(across).sum(axis=0).astype(np.float64), 1.0),
        least_own=1e-12 * start.own,
        least_spread=1e-8 * start.spread,
    )
    # Without shared coefficients Λ_i has one block per arm, which saves a factor of A².
    blocks = None if layout.shared else ArmBlocks(statistics)
    fitted = start
    for _ in range(iterations):
        own, along, sizes, spread = fitted
        precision = population.precision(spread)
        if blocks is not None:
            expected = blocks.step(own, along, sizes, precision)
        else:
            expected = dense_step(statistics, own, along, sizes, precision)
        fitted = maximisation.step(fitted, expected)
    precision = population.precision(fitted.spread)
    windows = condition_windows(statistics, fitted.drift, precision)
    return ArmEffects(
        own=fitted.own,
        along=fitted.along,
        sizes=fitted.sizes,
        spread=fitted.spread,
        typical=layout.by_arm(fitted.own)[population.seen].mean(axis=0),
        precision=precision,
        windows=windows,
        evidence=_log_likelihood(statistics, windows, precision),
    )


class _MStep(NamedTuple):
    """The M step: new hyperparameters from what the E step expects.

    Attributes
    ----------
    population : PopulationPrior
    informing, informing_along : arrays, shapes (p,), (e,)
        How many windows inform each coefficient, and each extra direction.
    least_own, least_spread : arrays, shapes (p,), (own,)
        Lower bounds, so that no variance becomes 0 and stays there.
    """

    population: PopulationPrior
    informing: Array
    informing_along: Array
    least_own: Array
    least_spread: Array

    def step(self, before: Hyperparameters, expected: BlockStep) -> Hyperparameters:
        """Return the hyperparameters after one step; ω grows by ω²/m times `drift_change`."""
        own_step = before.own**2 * expected.change / np.maximum(self.informing, 1.0)
        along_step = before.sizes**2 * expected.change_along / self.informing_along
        own = np.maximum(before.own + own_step, self.least_own)
        return Hyperparameters(
            own=self._pooled(own),
            along=before.along,
            sizes=np.maximum(before.sizes + along_step, TINY),
            spread=self.population.spread(
                expected.mean, expected.covariance, self.least_spread
            ),
        )

    def _pooled(self, own: Array) -> Array:
        """Return ω (p,) with that of each arm drawn to the median of the arms, as if of four more windows."""
        layout, seen = self.population.layout, self.population.seen
        windows = layout.by_arm(self.informing)
        by_arm = layout.by_arm(own)
        typical = by_arm[seen].mean(axis=0)
        median = np.median(by_arm[seen], axis=0)
        pooled = ARM.shrinkage * median + windows * by_arm
        by_arm = pooled / (ARM.shrinkage + windows)
        by_arm[~seen] = typical
        return np.concatenate([by_arm.ravel(), own[layout.own_dim :]])


def dense_step(
    statistics: ArmStatistics, own: Array, along: Array, sizes: Array, precision: Array
) -> BlockStep:
    """`ArmBlocks.step` where arms share coefficients."""
    drift = Hyperparameters(own, along, sizes, own).drift
    effects = condition_windows(statistics, drift, precision)
    return BlockStep(
        effects.mean,
        effects.covariance,
        drift_change(effects),
        _change_along(effects, along),
    )


def _log_likelihood(
    windows: ArmStatistics, effects: ConditionedWindows, precision: Array
) -> float:
    """Return the log-likelihood of the windows up to a constant, μ integrated out under its prior precision.

    ½[Σ_i(η_iᵀΩw⁰_i − log|I + Λ_iΩ|) + (Σw⁰_i)ᵀμ + log|C_μ| + log|Π|] with w⁰_i = w_i + W_iμ: the marginal of
    window i given μ, then the Gaussian integral over μ. Determinants as logarithms: they leave the range of
    floating point with many coefficients.
    """
    scaled = np.eye(len(effects.mean)) + windows.information @ effects.drift
    of_windows = np.linalg.slogdet(scaled).logabsdet.sum()
    w = effects.pull + effects.weights @ effects.mean
    explained = np.einsum("mp,pq,mq->", windows.scores, effects.drift, w)
    of_prior = np.linalg.slogdet(precision).logabsdet
    of_mean = np.linalg.slogdet(effects.covariance).logabsdet
    gained = w.sum(axis=0) @ effects.mean
    return float(0.5 * (explained - of_windows + gained + of_mean + of_prior))


def _joint_directions(fit: ArmEffects, layout: ArmLayout) -> Array:
    """Return two directions (p, 2) in which arms drift together.

    Each is a pattern over arms times the same pattern over contexts.
    """
    if layout.shared or layout.arms < 2:
        return np.zeros((layout.dim, 0))
    W = fit.windows.weights
    pull = fit.windows.pull
    # The gradient of the log-likelihood in Ω, Σ(pull·pullᵀ − W_i + W_iC_μW_i) (p, p).
    of_mean = np.einsum("mpq,mqr->pr", W @ fit.windows.covariance, W)
    information = W.sum(axis=0)
    excess = np.einsum("mp,mq->pq", pull, pull) - information + of_mean
    # Scaled so that each coefficient has information 1; those without any drop out.
    size = np.sqrt(np.diagonal(information))
    known = size > ARM.uninformed * size.max()
    scale = np.divide(1.0, size, out=np.zeros_like(size), where=known)
    A, d = layout.arms, layout.own
    tensor = (excess * np.outer(scale, scale)).reshape(A, d, A, d)
    # The largest (a ⊗ x)ᵀE(a ⊗ x) by turns: each of a and x is a leading eigenvector given the other.
    x = np.linalg.eigh(np.einsum("akal->kl", tensor)).eigenvectors[:, -1]
    for _ in range(ARM.alternations):
        over_arms = np.einsum("akbl,k,l->ab", tensor, x, x)
        a = np.linalg.eigh(over_arms).eigenvectors[:, -1]
        over_contexts = np.einsum("akbl,a,b->kl", tensor, a, a)
        x = np.linalg.eigh(over_contexts).eigenvectors[:, -1]
    sizes, arms = np.linalg.eigh(np.einsum("akbl,k,l->ab", tensor, x, x))
    least = ARM.uninformed * np.abs(sizes).max()
    patterns = [
        np.outer(arms[:, i], x).ravel() * scale
        for i in (A - 1, A - 2)
        if sizes[i] > least
    ]
    directions = np.array(patterns).reshape(-1, layout.dim)
    lengths = np.linalg.norm(directions, axis=1, keepdims=True)
    return np.asarray((directions / lengths).T)


def effect_path(
    effects: ConditionedWindows, direction: Array, functional: Array, size: float
) -> tuple[Array, Array]:
    """The effect fᵀθ_i along a direction d (p,), fᵀd = 1, in every window (m,), free in each of them, and its
    covariance (m, m); NaN and infinite variance in windows that do not inform it.

    size: its drift in the fit, which is taken out of Ω; W_i then is W_i + sW_iddᵀW_i/(1 − sdᵀW_id) (Sherman
    and Morrison). With θ_i = μ + dδ_i and flat δ, (μ, δ) have the joint precision [[Π + ΣW_i, W_id], [·,
    dᵀW_id]]. The effect is fᵀμ + δ_i; all others drift as fitted.
    """
    m = len(effects.pull)
    own = effects.weights @ direction
    w = effects.pull + effects.weights @ effects.mean
    gain = size / np.maximum(1.0 - size * (own @ direction), SMALLEST)
    w = w + (gain * (w @ direction))[:, None] * own
    rows = own * (1.0 + gain * (own @ direction))[:, None]
    # (C⁻¹ + Σ gain·W_iddᵀW_i)⁻¹ x for the few x that are needed, by the identity of Woodbury.
    wanted = np.column_stack([w.sum(axis=0), functional, rows.T])
    spread_own = own @ effects.covariance
    inner = np.linalg.solve(
        np.eye(m) + gain[:, None] * (spread_own @ own.T), np.diag(gain)
    )
    solved = effects.covariance @ wanted - spread_own.T @ (
        inner @ (spread_own @ wanted)
    )
    mean = solved[:, 0]
    of_functional = solved[:, 1]
    of_rows = solved[:, 2:]
    known = np.flatnonzero(informs(rows @ direction))
    Q = (np.diag(rows @ direction) - rows @ of_rows)[np.ix_(known, known)]
    inverse = np.linalg.inv(0.5 * (Q + Q.T))
    shift = inverse @ (w @ direction - rows @ mean)[known]
    pull = functional @ of_rows[:, known]
    turn = np.eye(len(known)) - pull
    value, spread = np.full(m, np.nan), np.diag(np.full(m, np.inf))
    value[known] = functional @ mean + turn @ shift
    error = turn @ inverse @ turn.T + functional @ of_functional
    spread[np.ix_(known, known)] = 0.5 * (error + error.T)
    return value, spread
