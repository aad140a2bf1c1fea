"""Random effects over windows: θ_i ~ N(μ, Ω), and window i has the log-likelihood η_iᵀθ_i − ½θ_iᵀΛ_iθ_i.

One model for rows and for labelled arms. Its expectation–maximisation is written in precision form, in which
Λ_i may be singular (`condition_windows`, `drift_change`). `random_effects` is its special case for a diagonal
Ω and no population, compiled, in the covariance form ĝ_i ~ N(θ_i, H_i) with H_i = Λ_i⁻¹ where a window is
regular: the same numbers up to rounding. `fit_effects` is the case of labelled arms, which are drawn from a
population and share drift.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import special

from invariant_bandits.checks import Array
from invariant_bandits.decomposition.population import ArmLayout, contrast_precision

if TYPE_CHECKING:
    from invariant_bandits.decomposition.arm_statistics import ArmStatistics
    from invariant_bandits.decomposition.paths import CoefficientPaths, PartialWindows

INFORMS = 1e-6
"""Share of what all windows know of a direction below which a window does not inform it."""
LEAST = 1e-300
UNINFORMED = 1e-9
"""Information, relative to the largest of any arm and window, that counts as none."""


# -- drift along given directions --


def random_effects(
    g: Array, H: Array, iterations: int, partial: PartialWindows | None = None
) -> tuple[Array, Array, Array]:
    """μ (p,), its covariance C_μ (p, p) and the drift variances ω (p,) by EM, from the windows' ĝ and H.

    Windows that do not inform some direction enter with what they know, (Ω + H_i)⁻¹ = L(I + LᵀΩL)⁻¹Lᵀ. A step
    of ω counts the windows that inform its direction.
    """
    from invariant_bandits.decomposition import kernels

    m, p = g.shape
    regular = np.ones(m, dtype=np.bool_)
    roots, informing = np.zeros((0, p, 1)), np.full(p, float(m))
    if partial is not None:
        regular[partial.windows] = False
        roots = np.ascontiguousarray(partial.roots)
        known = np.concatenate([1.0 / np.einsum("mii->mi", H[regular]), (roots**2).sum(axis=2)])
        informing = (known > INFORMS * known.sum(axis=0)).sum(axis=0).astype(np.float64)
    drift = np.maximum(((g - g.mean(axis=0)) ** 2).mean(axis=0), LEAST)
    effects = kernels.MutableEffects(np.empty_like(drift), np.empty_like(H[0]), drift)
    windows = kernels.WindowCoefficients(
        np.ascontiguousarray(g), np.ascontiguousarray(H), regular, roots, informing
    )
    kernels.random_effects(windows, effects, iterations)
    return effects.mean, effects.covariance, drift


@dataclass(frozen=True, eq=False)
class ConditionedWindows:
    """What the windows say given Ω: W (m, p, p), pull_i = w_i − W_iμ (m, p), μ (p,), C_μ (p, p), Ω (p, p)."""

    weights: Array
    pull: Array
    mean: Array
    covariance: Array
    drift: Array


def condition_windows(windows: ArmStatistics, drift: Array, precision: Array) -> ConditionedWindows:
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


def drift_change(effects: ConditionedWindows, *, restricted: bool = True) -> Array:
    """M step: Σ_i[pull_ij² − W_i,jj] (p,); ω_j grows by ω_j²/m_j times this.

    restricted: add (W_iC_μW_i)_jj, since μ is not known either (restricted maximum likelihood).
    """
    W, pull = effects.weights, effects.pull
    change = pull**2 - np.einsum("mpp->mp", W)
    if restricted:
        change = change + np.einsum("mpq,mpq->mp", W @ effects.covariance, W)
    return np.asarray(change.sum(axis=0))


def _change_along(effects: ConditionedWindows, directions: Array) -> Array:
    """`drift_change` along other directions (p, e): (e,)."""
    WE = effects.weights @ directions
    change = (effects.pull @ directions) ** 2 - np.einsum("pe,mpe->me", directions, WE)
    return np.asarray((change + np.einsum("mpe,mpe->me", WE, effects.covariance @ WE)).sum(axis=0))


# -- labelled arms --

FIRST_ITERATIONS, ITERATIONS = 30, 50
START = 3.0
"""Drift at the start, in units of what the windows could just detect."""
WIDE_START = 10.0
SHRINKAGE = 4.0
"""Windows that the median drift of all arms counts for, in the drift of one."""
SPREAD_COUNT = 2.0
VAGUE_ARMS = 100.0
ALTERNATIONS = 20


@dataclass(frozen=True, eq=False)
class ArmEffects:
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


class _Population:
    """The hyperparameters of the arms' population: Ψ, and the prior precision of μ that follows from it."""

    def __init__(self, statistics: ArmStatistics, relation: Array) -> None:
        layout = statistics.layout
        self.dim, self.own_dim, self.by_arm = layout.dim, layout.own_dim, (layout.arms, layout.own)
        self.seen = statistics.rounds.sum(axis=0) > 0.0
        self.contrast = contrast_precision(relation)
        self.contrast_of_seen = contrast_precision(relation[np.ix_(self.seen, self.seen)])
        self.faint = 1.0 / (VAGUE_ARMS * statistics.scale)

    def precision(self, spread: Array, shared: float) -> Array:
        """Π (p, p): arms differ by N(0, Ψ·relation), their common part is nearly flat; shared ones are N(0,
        shared).
        """
        result, own = self.faint * np.eye(self.dim), self.own_dim
        result[:own, :own] += np.kron(self.contrast, np.diag(1.0 / spread))
        result[own:, own:] += np.eye(self.dim - own) / shared
        return np.asarray(result)

    def shared(self, mean: Array, covariance: Array) -> float:
        """Variance of the shared coefficients about 0, given what is known of them; any number if there are
        none.
        """
        squares = mean[self.own_dim :] ** 2 + np.diagonal(covariance)[self.own_dim :]
        return max(float(squares.mean()), 1e-8 / self.faint) if len(squares) else 1.0

    def spread(self, mean: Array, covariance: Array, least: Array) -> Array:
        """Ψ (own,) given the arms' coefficients, each drawn to the mean of the other slopes'."""
        P, count, own = self.contrast_of_seen, int(self.seen.sum()), self.own_dim
        if count < 2:
            return np.asarray(np.maximum(float((mean**2).mean()), least))
        theta = mean[:own].reshape(self.by_arm)[self.seen]
        C = covariance[:own, :own].reshape(self.by_arm * 2)
        C = np.einsum("akbk->kab", C)[:, self.seen][:, :, self.seen]
        squares = np.einsum("ak,ab,bk->k", theta, P, theta) + np.einsum("ab,kab->k", P, C)
        each = squares / (count - 1)
        usual = np.full(len(each), each[1:].mean() if len(each) > 1 else each.mean())
        usual[0] = each.mean()
        return np.asarray(np.maximum((SPREAD_COUNT * usual + squares) / (count - 1 + SPREAD_COUNT), least))


def fit_effects(statistics: ArmStatistics, relation: Array) -> tuple[ArmEffects, ArmEffects]:
    """Random effects with common directions alone, and with two more that the windows ask for (own
    coding).
    """
    population = _Population(statistics, relation)
    layout, groups = statistics.layout, statistics.layout.groups
    own = _start(np.einsum("mpp->mp", statistics.information))
    sizes = _start(np.einsum("pe,mpq,qe->me", groups, statistics.information, groups))
    spread = WIDE_START * np.maximum(layout.by_arm(own).mean(axis=0), 1e-300)
    plain = _iterate(statistics, population, (own, groups, sizes, spread), FIRST_ITERATIONS)
    extra = _joint_directions(plain, layout)
    if not extra.shape[1]:
        return plain, plain
    start = np.concatenate([plain.sizes, np.full(extra.shape[1], plain.own.mean())])
    wide = np.hstack([groups, extra])
    return plain, _iterate(statistics, population, (plain.own, wide, start, plain.spread), ITERATIONS)


def _informed(information: Array) -> Any:
    """Which windows inform each direction, from information along directions (m, J)."""
    return information > UNINFORMED * max(float(information.max()), 1e-300)


def _start(information: Array) -> Array:
    """Drift that the windows could just detect, 3/(mean information), from information along directions (m,
    J).
    """
    informed = _informed(information)
    mean = np.where(informed, information, 0.0).sum(axis=0) / np.maximum(informed.sum(axis=0), 1)
    usual = mean[mean > 0.0].mean() if (mean > 0.0).any() else 1.0
    return np.asarray(START / np.where(mean > 0.0, mean, usual))


def _iterate(
    statistics: ArmStatistics,
    population: _Population,
    start: tuple[Array, Array, Array, Array],
    iterations: int,
) -> ArmEffects:
    own, along, sizes, spread = start
    seen, own_dim, by_arm_shape = population.seen, population.own_dim, population.by_arm
    across = np.einsum("pe,mpq,qe->me", along, statistics.information, along)
    informing = _informed(np.einsum("mpp->mp", statistics.information)).sum(axis=0).astype(np.float64)
    informing_along = np.maximum(_informed(across).sum(axis=0).astype(np.float64), 1.0)
    of_arm = informing[:own_dim].reshape(by_arm_shape)
    shared = 1.0 / population.faint
    least, floor = 1e-8 * spread, 1e-12 * own
    for step in range(iterations + 1):
        drift = np.diag(own) + (along * sizes) @ along.T
        effects = condition_windows(statistics, drift, population.precision(spread, shared))
        if step == iterations:
            break
        own = np.maximum(own + own**2 * drift_change(effects) / np.maximum(informing, 1.0), floor)
        sizes = np.maximum(sizes + sizes**2 * _change_along(effects, along) / informing_along, 1e-300)
        by_arm = own[:own_dim].reshape(by_arm_shape).copy()
        typical = by_arm[seen].mean(axis=0)
        by_arm = (SHRINKAGE * np.median(by_arm[seen], axis=0) + of_arm * by_arm) / (SHRINKAGE + of_arm)
        by_arm[~seen] = typical
        own = np.concatenate([by_arm.ravel(), own[own_dim:]])
        spread = population.spread(effects.mean, effects.covariance, least)
        shared = population.shared(effects.mean, effects.covariance)
    typical = own[:own_dim].reshape(by_arm_shape)[seen].mean(axis=0)
    precision = population.precision(spread, shared)
    evidence = _evidence(statistics, effects, precision)
    return ArmEffects(own, along, sizes, spread, typical, precision, effects, evidence)


def _evidence(windows: ArmStatistics, effects: ConditionedWindows, precision: Array) -> float:
    """Log-likelihood of the windows up to a constant, μ integrated out under its prior precision (p, p)."""
    _, sizes = np.linalg.slogdet(np.eye(len(effects.mean)) + windows.information @ effects.drift)
    w = effects.pull + effects.weights @ effects.mean
    explained = np.einsum("mp,pq,mq->", windows.scores, effects.drift, w)
    of_prior, of_mean = np.linalg.slogdet(precision)[1], np.linalg.slogdet(effects.covariance)[1]
    total = w.sum(axis=0)
    return float(0.5 * (explained - sizes.sum() + total @ effects.mean + of_mean + of_prior))


def _joint_directions(fit: ArmEffects, layout: ArmLayout) -> Array:
    """Two directions (p, 2) in which arms drift together, each a pattern over arms times the same one over
    contexts.
    """
    if layout.shared or layout.arms < 2:
        return np.zeros((layout.dim, 0))
    W, pull, C = fit.windows.weights, fit.windows.pull, fit.windows.covariance
    excess = np.einsum("mp,mq->pq", pull, pull) - W.sum(axis=0) + np.einsum("mpq,mqr->pr", W @ C, W)
    size = np.sqrt(np.diagonal(W.sum(axis=0)))
    scale = np.divide(1.0, size, out=np.zeros_like(size), where=size > UNINFORMED * size.max())
    A, d = layout.arms, layout.own
    tensor = (excess * np.outer(scale, scale)).reshape(A, d, A, d)
    x = np.linalg.eigh(np.einsum("akal->kl", tensor))[1][:, -1]
    for _ in range(ALTERNATIONS):
        a = np.linalg.eigh(np.einsum("akbl,k,l->ab", tensor, x, x))[1][:, -1]
        x = np.linalg.eigh(np.einsum("akbl,a,b->kl", tensor, a, a))[1][:, -1]
    sizes, arms = np.linalg.eigh(np.einsum("akbl,k,l->ab", tensor, x, x))
    drifting = [i for i in (A - 1, A - 2) if sizes[i] > UNINFORMED * np.abs(sizes).max()]
    result = np.array([np.outer(arms[:, i], x).ravel() * scale for i in drifting]).reshape(
        len(drifting), layout.dim
    )
    return np.asarray((result / np.linalg.norm(result, axis=1, keepdims=True)).T)


# -- is there drift along a direction? --

LARGEST_FACTOR, STEPS = 1e4, 200
SMALLEST = 1e-12


def drift_p_value(effects: ConditionedWindows, direction: Array, size: float) -> float:
    """p-value of no drift along a direction (p,), whose drift is `size` in the fit; the others' stay as
    fitted.

    Against two kinds of drift: drawn afresh in every window, and a walk over the windows; the smaller
    p-value, times 2.
    """
    rows = effects.weights @ direction
    Q = np.diag(rows @ direction) - rows @ effects.covariance @ rows.T
    # As they would be without drift along the direction.
    still = np.linalg.inv(np.eye(len(Q)) - size * Q)
    Q, u = still @ Q, still @ (effects.pull @ direction)
    step = np.tril(np.ones_like(Q)) / np.sqrt(len(Q))
    return min(
        1.0, 2.0 * min(_ratio_p_value(Q, u, size), _ratio_p_value(step.T @ Q @ step, step.T @ u, size))
    )


def _ratio_p_value(Q: Array, u: Array, size: float) -> float:
    """p-value of δ = 0, where drift δ changes the log-likelihood by −½log|I + δQ| + ½δuᵀ(I + δQ)⁻¹u.

    Q (m, m) is the joint precision of the effect in all windows, μ integrated out, and u (m,) its score:
    exact. The best δ is searched on a grid about `size`; twice the logarithm of the ratio to δ = 0 is ½χ²₀ +
    ½χ²₁ if there is no drift (Self and Liang 1987).
    """
    values, vectors = np.linalg.eigh(0.5 * (Q + Q.T))
    squares = (vectors.T @ u) ** 2
    drifts = size * np.geomspace(1.0 / LARGEST_FACTOR, LARGEST_FACTOR, STEPS)
    grown = np.maximum(1.0 + np.outer(drifts, np.maximum(values, 0.0)), SMALLEST)
    likelihood = 0.5 * (drifts[:, None] * squares / grown - np.log(grown)).sum(axis=1)
    ratio = 2.0 * float(likelihood.max())
    return 0.5 * float(special.erfc(np.sqrt(ratio / 2.0))) if ratio > 0.0 else 0.5


# -- the windows in their order: where the coefficients stood when the logs ended --

VAGUE = 100.0
WALK_VARIANCE = 6.0
"""A walk of m steps of variance s² varies by m·s²/6 about its mean."""

Update = Callable[[Array, Array], tuple[Array, Array]]
"""(mean, covariance) of the state before a window -> after it."""


def filter_windows(
    updates: Iterable[Update], state: Array, spread: Array, move: Array, news: Array
) -> tuple[Array, Array]:
    """Kalman filter over the windows: mean and covariance of the state after the last.

    Parameters
    ----------
    updates : one function per window
        What it says of the state.
    state, spread : arrays, shapes (d,), (d, d)
        Mean and covariance before the first window.
    move, news : arrays, shapes (d,), (d, d)
        From window to window every coordinate is multiplied by `move`, and N(0, news) is added.
    """
    for i, update in enumerate(updates):
        if i:
            state = move * state
            spread = spread * np.outer(move, move) + news
        state, spread = update(state, spread)
        spread = 0.5 * (spread + spread.T)
    return state, spread


def last_window(
    paths: CoefficientPaths, mean: Array, drift: Array, vague: Array, factor: float, lasting: float
) -> tuple[Array, Array]:
    """Mean (p,) and covariance (p, p) of the coefficients of the last window, all windows considered.

    State space: γ_i = μ + x_i, x_i = a·x_{i−1} + noise along every direction, of stationary variance `factor`
    · ω and time constant `lasting` log lengths, a = exp(−1/(m·lasting)); ĝ_i | γ_i ~ N(γ_i, H_i). A window
    that does not inform a direction says nothing of it.

    Parameters
    ----------
    paths : CoefficientPaths
        ĝ (m, p) and H (m, p, p), along the directions.
    mean, drift : array, shape (p,)
        μ, where the filter starts, and ω.
    vague : array, shape (p, p)
        What μ may be off by, a hundredth of its prior covariance.
    """
    g, H, partial = paths.coefficients, paths.covariances, paths.partial
    roots = {} if partial is None else dict(zip(partial.windows.tolist(), partial.roots, strict=True))
    m, p = g.shape

    def observe(i: int) -> Update:
        def update(state: Array, spread: Array) -> tuple[Array, Array]:
            seen = spread[:, :p] + spread[:, p:]  # covariance of the state with μ + x
            gain = _gain(seen, seen[:p] + seen[p:], H[i], roots.get(i))
            return state + gain @ (g[i] - state[:p] - state[p:]), spread - gain @ seen.T

        return update

    decay = np.exp(-1.0 / (m * lasting))
    start = np.zeros((2 * p, 2 * p))
    start[:p, :p], start[p:, p:] = VAGUE * vague, np.diag(factor * drift)
    move = np.concatenate([np.ones(p), np.full(p, decay)])
    news = np.diag(np.concatenate([np.zeros(p), factor * drift * (1.0 - decay**2)]))
    state, spread = filter_windows(
        map(observe, range(m)), np.concatenate([mean, np.zeros(p)]), start, move, news
    )
    total = spread[:p, :p] + spread[p:, p:] + spread[:p, p:] + spread[p:, :p]
    return state[:p] + state[p:], 0.5 * (total + total.T)


def _gain(seen: Array, spread: Array, error: Array, root: Array | None) -> Array:
    """Kalman gain (2p, p) of ĝ_i, from its covariance with the state (2p, p), that of γ_i (p, p) and H_i or
    its root L.

    seen·(P + H)⁻¹, where (P + H)⁻¹ = L(I + LᵀPL)⁻¹Lᵀ in a partial window.
    """
    if root is None:
        return np.linalg.solve(spread + error, seen.T).T
    return np.asarray(seen @ root @ np.linalg.solve(np.eye(root.shape[1]) + root.T @ spread @ root, root.T))


def walk_end(windows: ArmStatistics, precision: Array, drift: Array) -> tuple[Array, Array]:
    """Mean (p,) and covariance (p, p) of the coefficients when the logs end, if their drift is a walk.

    θ_1 ~ N(0, Π⁻¹ + Ω), θ_i = θ_{i−1} + N(0, 6Ω/m): a walk that varies as much over the m windows as Ω says.
    The filter in precision form: P ← P − P(I + ΛP)⁻¹ΛP, θ ← θ + P(I + ΛP)⁻¹(η − Λθ). The last window speaks
    of its middle: after it the walk went on for half a window.

    Parameters
    ----------
    precision : array, shape (p, p)
        Π, the prior precision of the coefficients.
    drift : array, shape (p, p)
        Ω.
    """
    step, p = WALK_VARIANCE / len(windows.scores) * drift, len(drift)

    def observe(information: Array, scores: Array) -> Update:
        def update(state: Array, P: Array) -> tuple[Array, Array]:
            joined = np.column_stack([information @ P, scores - information @ state])
            gain = np.linalg.solve(np.eye(p) + information @ P, joined)
            return state + P @ gain[:, p], P - P @ gain[:, :p]

        return update

    updates = map(observe, windows.information, windows.scores)
    state, P = filter_windows(updates, np.zeros(p), np.linalg.inv(precision) + drift, np.ones(p), step)
    return state, P + 0.5 * step
