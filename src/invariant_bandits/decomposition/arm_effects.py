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


def fit_effects(
    statistics: ArmStatistics, relation: Array
) -> tuple[ArmEffects, ArmEffects]:
    """Random effects with common directions alone, and with two more that the windows ask for (own
    coding).

    Shared slopes with a catalogue drift along its terms, not along their coordinates.
    """
    population, layout = PopulationPrior(statistics, relation), statistics.layout
    groups = statistics.common_directions
    own = _start(np.einsum("mpp->mp", statistics.information))
    if groups[layout.own_dim :].any():
        own[layout.own_dim :] *= SMALLEST
    sizes = _start(np.einsum("pe,mpq,qe->me", groups, statistics.information, groups))
    spread = ARM.wide_start * np.maximum(layout.by_arm(own).mean(axis=0), 1e-300)
    plain = _iterate(
        statistics, population, (own, groups, sizes, spread), ARM.first_iterations
    )
    extra = _joint_directions(plain, layout)
    if not extra.shape[1]:
        return plain, plain
    start = np.concatenate([plain.sizes, np.full(extra.shape[1], plain.own.mean())])
    wide = np.hstack([groups, extra])
    return plain, _iterate(
        statistics, population, (plain.own, wide, start, plain.spread), ARM.iterations
    )


def draw_shared_to_zero(
    statistics: ArmStatistics, fit: ArmEffects, layout: ArmLayout
) -> ArmEffects:
    """The fit with shared coefficients drawn to 0, for decisions and expected rewards: they are many, and
    most of them are null.

    They are t-distributed about 0, with one scale that expectation–maximisation finds. The tails are heavy:
    a few large coefficients among many null ones are hardly shrunk. What the scale is found from is the fit
    with a flat prior, whose drift stays as it is. So what is drawn to 0 does not come back as drift.
    """
    own, windows = layout.own_dim, fit.windows
    known = np.linalg.inv(windows.covariance[own:, own:])
    pull = known @ windows.mean[own:]
    mean: Array = windows.mean[own:]
    covariance: Array = np.zeros_like(known)
    scale = float((mean**2).mean())
    precision = np.zeros(layout.shared)
    for _ in range(ARM.scale_iterations):
        squares = mean**2 + np.diagonal(covariance)
        scale = max(scale, TINY)
        weights = (ARM.tail_freedom + 1.0) / (ARM.tail_freedom + squares / scale)
        precision = weights / scale
        covariance = np.linalg.inv(known + np.diag(precision))
        mean = covariance @ pull
        before, scale = scale, float((weights * squares).mean())
        if abs(scale - before) <= ARM.scale_tolerance * before:
            break
    whole = fit.precision.copy()
    whole[own:, own:] += np.diag(precision)
    conditioned = condition_windows(statistics, windows.drift, whole)
    return fit._replace(precision=whole, windows=conditioned)


def estimates_by_own_rounds(fit: ArmEffects, own_dim: int) -> tuple[Array, Array]:
    """Mean over the log and variance (p,) of every coefficient, an arm's own ones not drawn to other arms'.

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
    return mean, variance


def informs(information: Array) -> Any:
    """Which windows inform each direction, from information along directions (m, J)."""
    return information > ARM.uninformed * max(float(information.max()), 1e-300)


def _start(information: Array) -> Array:
    """Drift that the windows could just detect, 3/(mean information), from information along directions (m,
    J).
    """
    informed = informs(information)
    mean = np.where(informed, information, 0.0).sum(axis=0) / np.maximum(
        informed.sum(axis=0), 1
    )
    usual = mean[mean > 0.0].mean() if (mean > 0.0).any() else 1.0
    return np.asarray(ARM.start / np.where(mean > 0.0, mean, usual))


def _iterate(
    statistics: ArmStatistics,
    population: PopulationPrior,
    start: tuple[Array, Array, Array, Array],
    iterations: int,
) -> ArmEffects:
    own, along, sizes, spread = start
    seen, layout = population.seen, statistics.layout
    across = np.einsum("pe,mpq,qe->me", along, statistics.information, along)
    informing = (
        informs(np.einsum("mpp->mp", statistics.information))
        .sum(axis=0)
        .astype(np.float64)
    )
    informing_along = np.maximum(informs(across).sum(axis=0).astype(np.float64), 1.0)
    of_arm = layout.by_arm(informing)
    least, floor = 1e-8 * spread, 1e-12 * own
    blocks = None if layout.shared else ArmBlocks(statistics)
    for _ in range(iterations):
        precision = population.precision(spread)
        if blocks is not None:
            effects = blocks.step(own, along, sizes, precision)
        else:
            effects = _whole_step(statistics, own, along, sizes, precision)
        own = np.maximum(
            own + own**2 * effects.change / np.maximum(informing, 1.0), floor
        )
        sizes = np.maximum(
            sizes + sizes**2 * effects.change_along / informing_along, 1e-300
        )
        by_arm = own[: layout.own_dim].reshape(of_arm.shape)
        typical = by_arm[seen].mean(axis=0)
        by_arm = (ARM.shrinkage * np.median(by_arm[seen], axis=0) + of_arm * by_arm) / (
            ARM.shrinkage + of_arm
        )
        by_arm[~seen] = typical
        own = np.concatenate([by_arm.ravel(), own[layout.own_dim :]])
        spread = population.spread(effects.mean, effects.covariance, least)
    typical = layout.by_arm(own)[seen].mean(axis=0)
    precision = population.precision(spread)
    windows = condition_windows(
        statistics, np.diag(own) + (along * sizes) @ along.T, precision
    )
    evidence = _evidence(statistics, windows, precision)
    return ArmEffects(own, along, sizes, spread, typical, precision, windows, evidence)


def _whole_step(
    statistics: ArmStatistics, own: Array, along: Array, sizes: Array, precision: Array
) -> BlockStep:
    """`ArmBlocks.step` where arms share coefficients."""
    effects = condition_windows(
        statistics, np.diag(own) + (along * sizes) @ along.T, precision
    )
    change = drift_change(effects)
    return BlockStep(
        effects.mean, effects.covariance, change, _change_along(effects, along)
    )


def _evidence(
    windows: ArmStatistics, effects: ConditionedWindows, precision: Array
) -> float:
    """Log-likelihood of the windows up to a constant, μ integrated out under its prior precision (p, p)."""
    _, sizes = np.linalg.slogdet(
        np.eye(len(effects.mean)) + windows.information @ effects.drift
    )
    w = effects.pull + effects.weights @ effects.mean
    explained = np.einsum("mp,pq,mq->", windows.scores, effects.drift, w)
    of_prior = np.linalg.slogdet(precision)[1]
    of_mean = np.linalg.slogdet(effects.covariance)[1]
    total = w.sum(axis=0)
    return float(
        0.5 * (explained - sizes.sum() + total @ effects.mean + of_mean + of_prior)
    )


def _joint_directions(fit: ArmEffects, layout: ArmLayout) -> Array:
    """Two directions (p, 2) in which arms drift together, each a pattern over arms times the same one over
    contexts.
    """
    if layout.shared or layout.arms < 2:
        return np.zeros((layout.dim, 0))
    W = fit.windows.weights
    pull = fit.windows.pull
    C = fit.windows.covariance
    excess = (
        np.einsum("mp,mq->pq", pull, pull)
        - W.sum(axis=0)
        + np.einsum("mpq,mqr->pr", W @ C, W)
    )
    size = np.sqrt(np.diagonal(W.sum(axis=0)))
    scale = np.divide(
        1.0, size, out=np.zeros_like(size), where=size > ARM.uninformed * size.max()
    )
    A, d = layout.arms, layout.own
    tensor = (excess * np.outer(scale, scale)).reshape(A, d, A, d)
    x = np.linalg.eigh(np.einsum("akal->kl", tensor))[1][:, -1]
    for _ in range(ARM.alternations):
        a = np.linalg.eigh(np.einsum("akbl,k,l->ab", tensor, x, x))[1][:, -1]
        x = np.linalg.eigh(np.einsum("akbl,a,b->kl", tensor, a, a))[1][:, -1]
    sizes, arms = np.linalg.eigh(np.einsum("akbl,k,l->ab", tensor, x, x))
    drifting = [
        i for i in (A - 1, A - 2) if sizes[i] > ARM.uninformed * np.abs(sizes).max()
    ]
    result = np.array(
        [np.outer(arms[:, i], x).ravel() * scale for i in drifting]
    ).reshape(-1, layout.dim)
    return np.asarray((result / np.linalg.norm(result, axis=1, keepdims=True)).T)


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
