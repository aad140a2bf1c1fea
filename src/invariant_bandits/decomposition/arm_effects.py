"""Random effects of labelled arms by expectation–maximisation in precision form: windows may be silent about an arm.

θ_i = μ + Rε_i with ε_ij ~ N(0, ω_j), R = [I_p, E]: every coefficient drifts by itself, and along extra directions E,
among them those that all arms have in common. Ω = R·diag(ω)·Rᵀ. With Λ_i the information and η_i the score of window
i, W_i = (I + Λ_iΩ)⁻¹Λ_i and w_i = (I + Λ_iΩ)⁻¹η_i; no inverse of Λ_i is taken. Arms are drawn from a population: Π is
the prior precision of μ, flat in its common part.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.decomposition.arm_catalogue import contrast
from invariant_bandits.decomposition.arm_layout import ArmLayout
from invariant_bandits.decomposition.arm_statistics import ArmStatistics

FIRST_ITERATIONS, ITERATIONS = 30, 50
START = 3.0
"""Drift at the start, in units of what the windows could tell apart."""
WIDE_START = 10.0
SHRINKAGE = 4.0
"""Windows that the median drift of all arms counts for, in the drift of one."""
SPREAD_COUNT = 2.0
VAGUE = 100.0
SILENT = 1e-9
ALTERNATIONS = 20


@dataclass(frozen=True, eq=False)
class Windows:
    """What the windows say given the drift: W (m, p, p), pull_i = w_i − W_iμ (m, p), μ (p,), C_μ (p, p), Ω (p, p)."""

    weights: Array
    pull: Array
    mean: Array
    covariance: Array
    drift: Array

    def last(self) -> tuple[Array, Array]:
        """Mean (p,) and covariance (p, p) of the coefficients of the last window, given all."""
        W, gain = self.weights[-1], self.drift @ self.weights[-1]
        kept = np.eye(len(W)) - gain
        covariance = self.drift - gain @ self.drift + kept @ self.covariance @ kept.T
        return self.mean + self.drift @ self.pull[-1], 0.5 * (covariance + covariance.T)


def windows_given(statistics: ArmStatistics, drift: Array, prior: Array) -> Windows:
    """What the windows say if coefficients drift by N(0, Ω), Ω = `drift` (p, p), and μ has prior precision (p, p)."""
    p = len(drift)
    joined = np.concatenate([statistics.information, statistics.scores[:, :, None]], axis=2)
    solved = np.linalg.solve(np.eye(p) + statistics.information @ drift, joined)
    W, w = solved[:, :, :p], solved[:, :, p]
    W = 0.5 * (W + W.swapaxes(1, 2))
    covariance = np.linalg.inv(prior + W.sum(axis=0))
    covariance = 0.5 * (covariance + covariance.T)
    mean = covariance @ w.sum(axis=0)
    return Windows(W, w - W @ mean, mean, covariance, drift)


@dataclass(frozen=True, eq=False)
class ArmEffects:
    """The fitted random effects.

    Attributes
    ----------
    own : array, shape (p,)
        ω of every coefficient by itself.
    along, sizes : arrays, shapes (p, e), (e,)
        Extra directions E, the common ones first, and their ω.
    spread : array, shape (own,)
        Ψ, the variance of the arms' coefficients in the population.
    typical : array, shape (own,)
        ω̄, the mean drift of the arms that were seen.
    shared : float
        Variance of the shared coefficients about 0.
    windows : Windows
        At these values.
    evidence : float
        Log-likelihood of the log, μ integrated out.
    """

    own: Array
    along: Array
    sizes: Array
    spread: Array
    typical: Array
    shared: float
    windows: Windows
    evidence: float


class Population:
    """The population of arms: how alike they are, and the prior precision of μ that follows.

    relation (A, A): covariance of the arms' coefficients in units of Ψ, the identity if nothing is known of them.
    """

    def __init__(self, statistics: ArmStatistics, relation: Array) -> None:
        self.layout: ArmLayout = statistics.layout
        self.seen = statistics.rounds.sum(axis=0) > 0.0
        self.relation = relation
        self.precision = contrast(relation)
        self.precision_of_seen = contrast(relation[np.ix_(self.seen, self.seen)])
        self.faint = 1.0 / (VAGUE * statistics.scale)

    def prior(self, spread: Array, shared: float) -> Array:
        """Π (p, p): arms differ by N(0, Ψ·relation), their common part is nearly flat; shared ones are N(0, shared)."""
        result = self.faint * np.eye(self.layout.dim)
        own = self.layout.arms * self.layout.own
        result[:own, :own] += np.kron(self.precision, np.diag(1.0 / spread))
        result[own:, own:] += np.eye(self.layout.shared) / shared
        return np.asarray(result)

    def shared(self, mean: Array, covariance: Array) -> float:
        """Variance of the shared coefficients about 0, given what is known of them; any number if there are none."""
        own = self.layout.arms * self.layout.own
        squares = mean[own:] ** 2 + np.diagonal(covariance)[own:]
        return max(float(squares.mean()), 1e-8 / self.faint) if len(squares) else 1.0

    def spread(self, mean: Array, covariance: Array, least: Array) -> Array:
        """Ψ (own,) given the arms' coefficients, each drawn to what is usual of the other slopes."""
        layout, P, count = self.layout, self.precision_of_seen, int(self.seen.sum())
        if count < 2:
            size = float((mean**2).mean())
            return np.asarray(np.maximum(size, least))
        theta = layout.by_arm(mean)[self.seen]
        own = layout.arms * layout.own
        C = covariance[:own, :own].reshape(layout.arms, layout.own, layout.arms, layout.own)
        C = np.einsum("akbk->kab", C)[:, self.seen][:, :, self.seen]
        squares = np.einsum("ak,ab,bk->k", theta, P, theta) + np.einsum("ab,kab->k", P, C)
        each = squares / (count - 1)
        usual = np.full(layout.own, each[1:].mean() if layout.own > 1 else each.mean())
        usual[0] = each.mean()
        return np.asarray(np.maximum((SPREAD_COUNT * usual + squares) / (count - 1 + SPREAD_COUNT), least))


def fit_effects(statistics: ArmStatistics, relation: Array) -> tuple[ArmEffects, ArmEffects]:
    """Random effects with common directions alone, and with two more that the windows ask for (own coding)."""
    population = Population(statistics, relation)
    layout = statistics.layout
    groups = layout.groups
    diagonal = np.einsum("mpp->mp", statistics.information)
    along = np.einsum("pe,mpq,qe->me", groups, statistics.information, groups)
    own, sizes = _start(diagonal), _start(along)
    spread = WIDE_START * np.maximum(layout.by_arm(own).mean(axis=0), 1e-300)
    plain = _iterate(statistics, population, (own, groups, sizes, spread), FIRST_ITERATIONS)
    extra = _directions(plain, layout)
    if not extra.shape[1]:
        return plain, plain
    start = np.concatenate([plain.sizes, np.full(extra.shape[1], plain.own.mean())])
    wide = np.hstack([groups, extra])
    return plain, _iterate(statistics, population, (plain.own, wide, start, plain.spread), ITERATIONS)


def _start(information: Array) -> Array:
    """Drift that the windows could just tell, 3/(mean information), from information along directions (m, J)."""
    told = information > SILENT * max(float(information.max()), 1e-300)
    mean = np.where(told, information, 0.0).sum(axis=0) / np.maximum(told.sum(axis=0), 1)
    usual = mean[mean > 0.0].mean() if (mean > 0.0).any() else 1.0
    return np.asarray(START / np.where(mean > 0.0, mean, usual))


def _iterate(
    statistics: ArmStatistics, population: Population, start: tuple[Array, Array, Array, Array], iterations: int
) -> ArmEffects:
    own, along, sizes, spread = start
    layout, seen = population.layout, population.seen
    diagonal = np.einsum("mpp->mp", statistics.information)
    across = np.einsum("pe,mpq,qe->me", along, statistics.information, along)
    told_own, told_along = _told(diagonal), _told(across)
    of_arm = layout.by_arm(told_own)
    shared = 1.0 / population.faint
    least = 1e-8 * spread
    floor = 1e-12 * own
    for step in range(iterations + 1):
        drift = np.diag(own) + (along * sizes) @ along.T
        given = windows_given(statistics, drift, population.prior(spread, shared))
        if step == iterations:
            break
        W, C, pull = given.weights, given.covariance, given.pull
        change = (pull**2 - np.einsum("mpp->mp", W) + np.einsum("mpq,mpq->mp", W @ C, W)).sum(axis=0)
        own = np.maximum(own + own**2 * change / np.maximum(told_own, 1.0), floor)
        WE = W @ along
        change = (pull @ along) ** 2 - np.einsum("pe,mpe->me", along, WE) + np.einsum("mpe,mpe->me", WE, C @ WE)
        sizes = np.maximum(sizes + sizes**2 * change.sum(axis=0) / np.maximum(told_along, 1.0), 1e-300)
        by_arm = layout.by_arm(own).copy()
        typical = by_arm[seen].mean(axis=0)
        by_arm = (SHRINKAGE * np.median(by_arm[seen], axis=0) + of_arm * by_arm) / (SHRINKAGE + of_arm)
        by_arm[~seen] = typical
        own = np.concatenate([by_arm.ravel(), own[layout.arms * layout.own :]])
        spread = population.spread(given.mean, C, least)
        shared = population.shared(given.mean, C)
    typical = layout.by_arm(own)[seen].mean(axis=0)
    evidence = _evidence(statistics, given, population.prior(spread, shared))
    return ArmEffects(own, along, sizes, spread, typical, shared, given, evidence)


def _told(information: Array) -> Array:
    """How many windows inform each direction."""
    told = information > SILENT * max(float(information.max()), 1e-300)
    return np.asarray(told.sum(axis=0), dtype=np.float64)


def _evidence(statistics: ArmStatistics, given: Windows, prior: Array) -> float:
    """Log-likelihood of the windows up to a constant, μ integrated out under its prior precision (p, p)."""
    p = len(given.mean)
    _, sizes = np.linalg.slogdet(np.eye(p) + statistics.information @ given.drift)
    w = given.pull + given.weights @ given.mean
    explained = np.einsum("mp,pq,mq->", statistics.scores, given.drift, w)
    of_prior, of_mean = np.linalg.slogdet(prior)[1], np.linalg.slogdet(given.covariance)[1]
    total = w.sum(axis=0)
    return float(0.5 * (explained - sizes.sum() + total @ given.mean + of_mean + of_prior))


def _directions(fit: ArmEffects, layout: ArmLayout) -> Array:
    """Two directions (p, 2) in which arms drift together, each a pattern over arms times the same one over contexts."""
    if layout.shared or layout.arms < 2:
        return np.zeros((layout.dim, 0))
    W, pull, C = fit.windows.weights, fit.windows.pull, fit.windows.covariance
    excess = np.einsum("mp,mq->pq", pull, pull) - W.sum(axis=0) + np.einsum("mpq,mqr->pr", W @ C, W)
    size = np.sqrt(np.diagonal(W.sum(axis=0)))
    scale = np.divide(1.0, size, out=np.zeros_like(size), where=size > SILENT * size.max())
    A, d = layout.arms, layout.own
    tensor = (excess * np.outer(scale, scale)).reshape(A, d, A, d)
    start = np.einsum("akal->kl", tensor)
    x = np.linalg.eigh(start)[1][:, -1]
    for _ in range(ALTERNATIONS):
        arms = np.linalg.eigh(np.einsum("akbl,k,l->ab", tensor, x, x))[1]
        a = arms[:, -1]
        x = np.linalg.eigh(np.einsum("akbl,a,b->kl", tensor, a, a))[1][:, -1]
    sizes, arms = np.linalg.eigh(np.einsum("akbl,k,l->ab", tensor, x, x))
    drifting = [i for i in (A - 1, A - 2) if sizes[i] > SILENT * np.abs(sizes).max()]
    result = np.array([np.outer(arms[:, i], x).ravel() * scale for i in drifting]).reshape(len(drifting), layout.dim)
    return np.asarray((result / np.linalg.norm(result, axis=1, keepdims=True)).T)
