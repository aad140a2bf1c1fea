"""ArmPrior: what the logs teach about labelled arms, about how they drift, and about an arm that is yet to come."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from invariant_bandits.checks import Array, InputError, finite_array, number_between, one_of, whole_number
from invariant_bandits.decomposition.arm_statistics import ArmLayout, ArmStatistics
from invariant_bandits.decomposition.drift_prior import DriftPrior
from invariant_bandits.decomposition.state_space import walked
from invariant_bandits.storage import (
    ArraySpec,
    Check,
    StateSchema,
    count,
    covariance,
    finite_number,
    orthonormal,
    truth_value,
    variance,
)


class Likened(NamedTuple):
    """A new arm seen from the known ones.

    weights (A,): its expectation is this mean of the arms, adding up to 1; rest: variance left, in units of Ψ, that of
    the unknown mean included; row (A,), own: covariances with the known arms, and its variance, in the same units.
    """

    weights: Array
    rest: float
    row: Array
    own: float


def standardised(described: Array, arms: int) -> tuple[Array, Array, Array]:
    """Features of the arms with mean 0 and variance 1, their means and scales; columns that are all the same are 0."""
    if not described.size:
        return np.zeros((arms, 0)), np.zeros(0), np.zeros(0)
    center, scale = described.mean(axis=0), described.std(axis=0)
    scale = np.where(scale > 0.0, scale, 1.0)
    return (described - center) / scale, center, scale


def relation(described: Array, part: float) -> Array:
    """M (A, A) of arms with standardised features (A, c), of which they explain this part."""
    A, c = described.shape
    return np.asarray((1.0 - part) * np.eye(A) + part * described @ described.T / max(c, 1))


def contrast(alike: Array) -> Array:
    """Precision (A, A) of arms with covariance M = `alike` about an unknown mean: flat along (1, …, 1)."""
    inverse = np.linalg.inv(alike)
    total = inverse.sum(axis=0)
    return np.asarray(inverse - np.outer(total, total) / total.sum())


def likened(alike: Array, described: Array, part: float, features: Array | None) -> Likened:
    """A new arm with standardised features (c,), or with unknown ones, by the best linear unbiased prediction."""
    c = max(described.shape[1], 1)
    known = np.zeros(described.shape[1]) if features is None else features
    row = part * described @ known / c
    own = 1.0 if features is None else 1.0 - part + part * float(known @ known) / c
    inverse = np.linalg.inv(alike)
    total = inverse.sum(axis=0)
    missing = (1.0 - float(total @ row)) / float(total.sum())
    rest = own - float(row @ inverse @ row) + missing**2 * float(total.sum())
    return Likened(inverse @ row + total * missing, rest, row, own)


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


def with_arm(prior: ArmPrior, features: Sequence[float] | None) -> ArmPrior:
    """The prior with an arm that was never played: its coefficients are those of the arms like it, and Ψ wide.

    Nothing else changes: with C_μ of the arms, their mean's own uncertainty is in the new arm's, too.
    """
    c = prior.described.shape[1]
    if features is not None and not c:
        raise InputError("features of the new arm were given, but the arms of the logs have none")
    new = np.zeros(c)
    if features is not None:
        new = (finite_array("features", features, (c,)) - prior.described_mean) / prior.described_scale
    seen = likened(prior.relation, prior.described, prior.likeness, None if features is None else new)
    layout, grown = prior.layout, prior.layout.grown()
    L = _map(prior.layout, seen.weights)
    here = np.arange(grown.dim)[grown.arm(layout.arms)]
    kept = np.delete(np.arange(grown.dim), here)
    doubt, drifting = np.zeros(grown.dim), np.zeros(grown.dim)
    doubt[here], drifting[here] = seen.rest * prior.spread, prior.typical_drift
    drift = np.diag(drifting)
    drift[np.ix_(kept, kept)] = prior.drift
    changed: dict[str, Any] = {name: L @ getattr(prior, name) for name in ("mean", "pooled", "last_mean", "estimates")}
    for name, value in (("errors", 0.0), ("drift_sizes", 0.0), ("p_values", 1.0)):
        changed[name] = np.insert(getattr(prior, name), here[0], np.full(layout.own, value))
    return replace(
        prior,
        layout=grown,
        mean_covariance=_through(L, prior.mean_covariance, doubt),
        drift=drift,
        pooled_covariance=_through(L, prior.pooled_covariance, doubt),
        last_covariance=_through(L, prior.last_covariance, doubt + drifting),
        unit=np.insert(prior.unit, here[0], prior.spread),
        relation=_bordered(prior.relation, seen),
        described=np.vstack([prior.described, new[None, :]]),
        plays=np.append(prior.plays, 0.0),
        **changed,
    )


def without_arm(prior: ArmPrior, arm: int) -> ArmPrior:
    """The prior of the other arms."""
    at = prior.layout.without(arm)
    vectors = ("mean", "pooled", "last_mean", "unit", "estimates", "errors", "drift_sizes", "p_values")
    squares = ("mean_covariance", "drift", "pooled_covariance", "last_covariance")
    rest = np.delete(np.arange(prior.layout.arms), arm)
    changed: dict[str, Any] = {name: getattr(prior, name)[at] for name in vectors}
    changed |= {name: getattr(prior, name)[np.ix_(at, at)] for name in squares}
    return replace(
        prior,
        layout=prior.layout.shrunk(),
        relation=prior.relation[np.ix_(rest, rest)],
        described=prior.described[rest],
        plays=prior.plays[rest],
        **changed,
    )


def _map(layout: ArmLayout, weights: Array) -> Array:
    """The linear map (p', p) that puts a weighted mean of the arms in the place of a new one."""
    grown = layout.grown()
    count = layout.arms * layout.own
    L = np.zeros((grown.dim, layout.dim))
    L[:count, :count] = np.eye(count)
    L[count : count + layout.own, :count] = np.kron(weights[None, :], np.eye(layout.own))
    L[count + layout.own :, count:] = np.eye(layout.shared)
    return L


def _through(L: Array, covariance: Array, doubt: Array) -> Array:
    return np.asarray(L @ covariance @ L.T + np.diag(doubt))


def _bordered(alike: Array, seen: Likened) -> Array:
    """The relation of the arms with the new one."""
    return np.block([[alike, seen.row[:, None]], [seen.row[None, :], np.array([[seen.own]])]])


LARGEST_FACTOR, STEPS = 1e4, 200
SMALLEST = 1e-12


def no_drift(weights: Array, pull: Array, covariance: Array, direction: Array, size: float) -> float:
    """p-value of no drift along a direction (p,), whose drift is `size` in the fit; the others' stay as fitted.

    Against two kinds of drift: drawn afresh in every window, and a walk over the windows; the smaller p-value, times 2.

    Parameters
    ----------
    weights : array, shape (m, p, p)
        W of every window.
    pull : array, shape (m, p)
        w_i − W_iμ.
    covariance : array, shape (p, p)
        C_μ.
    """
    rows = weights @ direction
    Q = np.diag(rows @ direction) - rows @ covariance @ rows.T
    # As they would be without drift along the direction.
    still = np.linalg.inv(np.eye(len(Q)) - size * Q)
    Q, u = still @ Q, still @ (pull @ direction)
    step = np.tril(np.ones_like(Q)) / np.sqrt(len(Q))
    return min(1.0, 2.0 * min(_against(Q, u, size), _against(step.T @ Q @ step, step.T @ u, size)))


def _against(Q: Array, u: Array, size: float) -> float:
    """p-value of δ = 0, where drift δ changes the log-likelihood by −½log|I + δQ| + ½δuᵀ(I + δQ)⁻¹u.

    Q (m, m) is the joint precision of the effect in all windows, μ integrated out, and u (m,) its score: exact. The
    best δ is searched on a grid about `size`; twice the logarithm of the ratio to δ = 0 is ½χ²₀ + ½χ²₁ if there is no
    drift (Self and Liang 1987).
    """
    values, vectors = np.linalg.eigh(0.5 * (Q + Q.T))
    squares = (vectors.T @ u) ** 2
    drifts = size * np.geomspace(1.0 / LARGEST_FACTOR, LARGEST_FACTOR, STEPS)
    grown = np.maximum(1.0 + np.outer(drifts, np.maximum(values, 0.0)), SMALLEST)
    likelihood = 0.5 * (drifts[:, None] * squares / grown - np.log(grown)).sum(axis=1)
    ratio = 2.0 * float(likelihood.max())
    return 0.5 * float(special.erfc(np.sqrt(ratio / 2.0))) if ratio > 0.0 else 0.5


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


LARGEST_MEAN, LARGEST_VARIANCE, LEAST_NOISE = 1e100, 1e200, 1e-200


def _means(*shape: str, **rest: Any) -> ArraySpec:
    return ArraySpec(shape, least=-LARGEST_MEAN, most=LARGEST_MEAN, **rest)


def _covariances(*shape: str, **rest: Any) -> ArraySpec:
    return ArraySpec(shape, least=-LARGEST_VARIANCE, most=LARGEST_VARIANCE, constraint=covariance, **rest)


def _variances(*shape: str, **rest: Any) -> ArraySpec:
    return ArraySpec(shape, least=0.0, most=LARGEST_VARIANCE, **rest)


def _noise(name: str, value: Any) -> float:
    return number_between(name, value, LEAST_NOISE, LARGEST_VARIANCE)


DRIFT_ARRAYS: dict[str, ArraySpec] = {
    "basis": ArraySpec(("p", "p"), constraint=orthonormal),
    **dict.fromkeys(("mean", "pooled"), _means("p")),
    **dict.fromkeys(("mean_covariance", "pooled_covariance"), _covariances("p", "p")),
    **dict.fromkeys(("drift", "unit"), _variances("p")),
    "last_means": _means("h", "p", or_empty=True),
    "last_covariances": _covariances("h", "p", "p", or_empty=True),
    "last_steps": _variances("h", "p", or_empty=True),
    **dict.fromkeys(("drift_limit", "informing"), _variances("p", or_empty=True)),
    "feature_mean": _means("p", or_empty=True),
    "feature_precision": _covariances("p", "p", or_empty=True),
}
DRIFT_NUMBERS: dict[str, Check] = {
    "noise_variance": _noise,
    **dict.fromkeys(("baseline", "drift_misfit"), finite_number),
    **dict.fromkeys(("baseline_variance", "baseline_error", "signal_variance"), variance),
    "baseline_moves": truth_value,
    "windows": count,
}
ARM_ARRAYS: dict[str, ArraySpec] = {
    **dict.fromkeys(("mean", "pooled", "last_mean", "estimates"), _means("p")),
    **dict.fromkeys(("mean_covariance", "pooled_covariance", "last_covariance"), _covariances("p", "p")),
    "drift": ArraySpec(("p", "p"), least=-LARGEST_VARIANCE, most=LARGEST_VARIANCE),
    **dict.fromkeys(("common", "spread", "typical_drift"), _variances("o")),
    **dict.fromkeys(("unit", "errors", "drift_sizes"), _variances("p")),
    "relation": _covariances("A", "A"),
    "described": _means("A", "c"),
    "described_mean": _means("c"),
    "described_scale": ArraySpec(("c",), least=1e-100, most=LARGEST_MEAN),
    "p_values": ArraySpec(("p",), least=0.0, most=1.0, or_nan=True),
    "plays": ArraySpec(("A",), least=0.0, most=float(2**62)),
    "context_square": _covariances("w", "w"),
}
ARM_NUMBERS: dict[str, Check] = {
    "layout": lambda name, value: None,  # its sizes are those of the arrays
    "link": partial(one_of, allowed=("identity", "logit")),
    "likeness": lambda name, value: number_between(name, value, -1e-9, 1.0),
    **dict.fromkeys(("noise_variance", "level_unit"), _noise),
    "baseline_moves": truth_value,
    "windows": count,
}


def drift_prior_schema(numbers: Mapping[str, Any], names: Collection[str]) -> StateSchema:
    """What a stored DriftPrior must be; earlier files lack what has a default."""
    needed = {one.name for one in fields(DriftPrior) if one.default is MISSING and one.default_factory is MISSING}
    arrays = {name: one for name, one in DRIFT_ARRAYS.items() if name in needed or name in names}
    if not numbers.keys() <= DRIFT_NUMBERS.keys() or not needed <= numbers.keys() | arrays.keys():
        raise InputError("the prior is not whole")
    return StateSchema(arrays, DRIFT_NUMBERS)


def arm_prior_schema(numbers: Mapping[str, Any]) -> StateSchema:
    """What a stored ArmPrior must be."""
    layout = numbers["layout"]
    if numbers.keys() != ARM_NUMBERS.keys() or layout.keys() != {"arms", "own", "shared"}:
        raise InputError("the prior is not whole")
    arms, own = whole_number("layout.arms", layout["arms"], 1), whole_number("layout.own", layout["own"], 1)
    shared = whole_number("layout.shared", layout["shared"], 0)
    return StateSchema(ARM_ARRAYS, ARM_NUMBERS, {"A": arms, "o": own, "p": arms * own + shared})


def wrong_contexts(numbers: Mapping[str, Any], width: int) -> str:
    """Why an ArmPrior with these numbers cannot have contexts of this width; empty if it can."""
    layout = numbers["layout"]
    fits = layout["own"] <= width and (not layout["shared"] or width - 1 <= layout["shared"])
    return "" if fits else f"contexts of {width} numbers do not fit the layout of the arms"
