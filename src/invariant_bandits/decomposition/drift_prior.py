"""DriftPrior: what the logs teach about the coefficients and how far they move (empirical Bayes).

Random effects over windows: θ_i ~ N(μ, Ω), and window i has the log-likelihood η_iᵀθ_i − ½θ_iᵀΛ_iθ_i. One
prior for rows, whose directions come from a decomposition, and for labelled arms, which are drawn from a
population and share drift. For arms expectation–maximisation is written in precision form, in which Λ_i may
be singular (`condition_windows`, `drift_change`). For rows it has a diagonal Ω and no population, and is
compiled (`paths.random_effects`): the same numbers up to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, NamedTuple, TypeAlias

import numpy as np
from scipy import special

from invariant_bandits.checks import (
    Array,
    InputError,
    finite_array,
    number_between,
    one_of,
)
from invariant_bandits.decomposition.arm_blocks import ArmBlocks, BlockStep
from invariant_bandits.decomposition.arm_statistics import (
    LINKS,
    TINY,
    WALK_VARIANCE,
    ArmLayout,
    ArmStatistics,
    standardize_catalogue,
)
from invariant_bandits.decomposition.paths import (
    CoefficientPaths,
    detectable_drift,
    random_effects,
    window_paths,
)
from invariant_bandits.moments.windowed import WindowedMoments
from invariant_bandits.storage import (
    MOST_ROUNDS,
    ArraySpec,
    count,
    truth_value,
    variance,
)

LARGEST_MEAN, LARGEST_VARIANCE = 1e100, 1e200
"""Of coefficients in a stored state; squares of them are still numbers."""
Coefficients: TypeAlias = Annotated[
    Array, ArraySpec(("p",), least=-LARGEST_MEAN, most=LARGEST_MEAN)
]
Variances: TypeAlias = Annotated[
    Array, ArraySpec(("p",), least=0.0, most=LARGEST_VARIANCE)
]
_spread = partial(ArraySpec, least=-LARGEST_VARIANCE, most=LARGEST_VARIANCE)
Covariance: TypeAlias = Annotated[Array, _spread(("p", "p"))]
OwnVariances: TypeAlias = Annotated[
    Array, ArraySpec(("o",), least=0.0, most=LARGEST_VARIANCE)
]
"""Coefficients of all arms (p,), variances and covariance of them, and variances of an arm's own ones (o,).
"""
DRIFT_LEVEL = 0.05
"""Level of the tests of drift, for all effects of a log together (Holm 1979)."""
UNINFORMED = 1e-9
"""Information, relative to the largest of any arm and window, that counts as none."""
FIRST_ITERATIONS, ITERATIONS = 30, 50
START = 3.0
"""Drift at the start, in units of what the windows could just detect."""
WIDE_START = 10.0
SHRINKAGE = 4.0
"""Windows that the median drift of all arms counts for, in the drift of one."""
SPREAD_COUNT = 2.0
"""Arms that the mean of the other slopes' spreads counts for, at most, in the spread of one."""
TAIL_FREEDOM, SCALE_ITERATIONS = 1.0, 200
"""Degrees of freedom of shared coefficients about 0, for decisions (a Cauchy distribution), and the steps
that find their scale: in simulated logs without any product more steps changed nothing.
"""
SCALE_TOLERANCE = 1e-3
LARGEST_GROWTH = 4.0
"""Of the variance of an estimate that is no longer drawn to those of other arms. In simulated logs of
clicks with three arms and 120 columns, intervals covered less than 93 % with 2.
"""
VAGUE_ARMS = 100.0
ALTERNATIONS = 20
LARGEST_FACTOR, STEPS = 1e4, 200
SMALLEST = 1e-12
VAGUE = 100.0
HIDDEN_LEVEL, POOLED_HIDDEN_LEVEL = 0.08, 0.4
"""Of the limits of drift, of each direction by itself and pooled over arms."""
HALVINGS = 60
BASELINE_ALPHA = 0.01
UNLIMITED = 1e4
"""Limit of a drift of which nothing is known, in typical squared coefficients."""
PERSISTENT = ((1.0, 0.5), (4.0, 0.5), (4.0, 2.0))
"""(factor on the drift, time constant in log lengths) of drift that goes on from where the logs ended."""
RARELY_PERSISTENT = 0.05
"""Probability that the drift of a direction persists, before its windows are looked at."""
WALK_RATES = (0.0, 1e-4, 1e-3, 1e-2)
"""Steps per round, in units of the logs' drift, of labelled arms that go on from where the logs ended."""
LIKENESS = (0.0, 0.3, 0.6, 0.9)
"""Parts of the arms' variance that their features may explain."""
COMMON_LEVEL = 0.01
ENOUGH_CLICKS = 5.0
LEAST_NOISE = 1e-200
"""Variance of the noise in a stored state."""


# -- the population of labelled arms --


@dataclass(frozen=True)
class DriftEvidence:
    """What a log says of one effect: estimate, drift from window to window, and its test.

    Attributes
    ----------
    estimate, error, drift : float
        Mean over the log, its standard error, and the standard deviation between windows beyond sampling
        error.
    detectable : float
        Drift that would have been detected in four of five such logs.
    p_value : float
        Of no drift. NaN where it cannot be tested.
    drifts : bool
        Whether the test rejects at the level of all effects of the log together.
    """

    estimate: float
    error: float
    drift: float
    detectable: float
    p_value: float
    drifts: bool


@dataclass(frozen=True)
class Effect(DriftEvidence):
    """One coefficient of an arm, or one that arms share.

    Attributes
    ----------
    arm, coefficient : int
        Whose, and which of its coefficients; arm is −1 for what arms share, and coefficient is then `place`.
    place : int
        As in `ArmPopulation.direction`.
    """

    arm: int
    coefficient: int
    place: int


def relate_arms(catalogue: Array, likeness: float) -> Array:
    """M (A, A) of arms whose standardised features (A, c) explain this part of their variance."""
    A, c = catalogue.shape
    return np.asarray(
        (1.0 - likeness) * np.eye(A) + likeness * catalogue @ catalogue.T / max(c, 1)
    )


def contrast_precision(relation: Array) -> Array:
    """Precision (A, A) of arms with covariance M = `relation` about an unknown mean: flat along (1, …, 1)."""
    inverse = np.linalg.inv(relation)
    total = inverse.sum(axis=0)
    return np.asarray(inverse - np.outer(total, total) / total.sum())


def common_measures(
    layout: ArmLayout, together: Array, catalogue: Array, slopes: int
) -> Array:
    """What measures a move along each direction `together` (p, g), column by column (p, g).

    A move by g(a) of arm a is measured by Σ_a g(a)·θ_a/Σ_a g(a)²: the mean over arms, or over those of a
    category, or the regression on a feature of the catalogue (A, c). θ_a is a coefficient of the arm or, of
    shared slopes, what the slope and its products add up to for it; slopes: how many there are.
    """
    own, result = layout.own_dim, np.zeros_like(together)
    squares = (together[:own] ** 2).sum(axis=0)
    result[:own] = together[:own] / np.where(squares > 0.0, squares, 1.0)
    shared = together[own:]
    if shared.any():
        of_arms = np.column_stack(
            [np.ones(layout.arms), catalogue[:, : layout.shared // slopes - 1]]
        )
        moves = np.tensordot(
            of_arms, shared.reshape(of_arms.shape[1], slopes, -1), axes=1
        )
        size = (moves**2).sum(axis=0)
        measured = np.tensordot(
            of_arms.T, moves / np.where(size > 0.0, size, 1.0), axes=1
        )
        result[own:] = measured.reshape(shared.shape)
    return result


@dataclass(frozen=True, eq=False)
class ArmPopulation:
    """The labelled arms of a log, and the population they are drawn from: their coefficients are N(θ̄,
    Ψ·relation).

    Attributes
    ----------
    layout : ArmLayout
        Which coefficient is whose.
    common : array, shape (own,)
        Drift that all arms have in common, of every own coefficient.
    spread, typical_drift : arrays, shapes (own,)
        Ψ, and the mean drift of an arm's coefficient.
    relation : array, shape (A, A)
        Covariance of the arms' coefficients in units of Ψ; the identity if nothing is known of them.
    catalogue, catalogue_mean, catalogue_scale : arrays, shapes (A, c), (c,), (c,)
        Standardised features of the arms, and how they were standardised.
    likeness : float
        Part of the arms' variance that these explain.
    together : array, shape (p, g)
        Directions in which arms move together (`ArmStatistics.common_directions`).
    evidence : array, shape (7, p + g)
        Of every coefficient, and along every direction in which arms move together: mean over the log,
        standard error, variance over windows, p-value of no drift (NaN without a test), the drift (standard
        deviation) that would have been detected, the variance over windows that may be hidden
        (`contrast_limit`), and how many windows inform it.
    plays : array, shape (A,)
        Rounds of every arm.
    context_square : array, shape (d, d)
        Mean of zzᵀ over the log.
    """

    layout: ArmLayout
    common: OwnVariances
    spread: OwnVariances
    typical_drift: OwnVariances
    relation: Annotated[Array, _spread(("A", "A"))]
    catalogue: Annotated[
        Array, ArraySpec(("A", "c"), least=-LARGEST_MEAN, most=LARGEST_MEAN)
    ]
    catalogue_mean: Annotated[
        Array, ArraySpec(("c",), least=-LARGEST_MEAN, most=LARGEST_MEAN)
    ]
    catalogue_scale: Annotated[
        Array, ArraySpec(("c",), least=1.0 / LARGEST_MEAN, most=LARGEST_MEAN)
    ]
    likeness: Annotated[float, partial(number_between, low=-1e-9, high=1.0)]
    together: Annotated[Array, _spread(("p", "g"))]
    evidence: Annotated[Array, _spread((7, "f"), or_nan=True)]
    plays: Annotated[Array, ArraySpec(("A",), least=0.0, most=MOST_ROUNDS)]
    context_square: Annotated[Array, _spread(("d", "d"))]

    def __post_init__(self) -> None:
        A, own = len(self.plays), len(self.spread)
        p, g = self.together.shape
        if (
            self.layout != ArmLayout(A, own, p - A * own)
            or self.evidence.shape[1] != p + g
        ):
            raise InputError(
                f"{self.layout} does not fit {own} coefficients of each of {A} arms"
            )
        if (self.evidence[1:] < 0.0).any() or np.isnan(
            np.delete(self.evidence, 3, axis=0)
        ).any():
            raise InputError(
                "evidence must be numbers, and not negative but for the means"
            )

    def direction(self, place: int) -> tuple[Array, Array]:
        """Direction (p,) of the effect at a place, a coefficient or what arms have in common, and the linear
        function (p,) of the coefficients that is the effect.
        """
        if place < self.layout.dim:
            return (np.eye(self.layout.dim)[place],) * 2
        slopes = len(self.context_square) - 1
        measures = common_measures(self.layout, self.together, self.catalogue, slopes)
        return self.together[:, place - self.layout.dim], measures[
            :, place - self.layout.dim
        ]

    @property
    def effects(self) -> list[Effect]:
        """Every coefficient of every arm that was played, what arms share, and whether it drifts.

        Holm's rule holds over all of them. What all arms have in common is left out of a log of one arm.
        """
        layout, crossed = self.layout, bool(self.together[self.layout.own_dim :].any())
        seen = np.repeat(self.plays > 0, layout.own)
        estimate, error, size, p_value, detectable = self.evidence[:5]
        first = (
            layout.dim if crossed else layout.own_dim
        )  # products stand for the terms of the catalogue
        last = len(p_value) if (self.plays > 0).sum() > 1 else layout.dim
        listed = [*np.flatnonzero(seen).tolist(), *range(first, last)]
        tested = sorted(
            (j for j in listed if p_value[j] <= 1.0), key=p_value.__getitem__
        )
        limits = DRIFT_LEVEL / np.arange(len(tested), 0, -1)
        drifting = set(
            tested[: np.logical_and.accumulate(p_value[tested] <= limits).sum()]
        )
        numbers = np.column_stack(
            [estimate, error, np.sqrt(size), detectable, p_value]
        ).tolist()
        owners = {
            j: divmod(j, layout.own) if j < layout.own_dim else (-1, j) for j in listed
        }
        named = {j: (j in drifting, *owners[j], j) for j in listed}
        return [Effect(*numbers[j], *about) for j, about in named.items()]

    @property
    def common_drift(self) -> Array:
        """Covariance (p, p) of the drift that all arms have in common."""
        groups = self.layout.groups
        return np.asarray((groups * self.common) @ groups.T)

    def typical_arm(self, mean: Array) -> Array:
        """θ̄ (own,), the coefficients of an arm of which nothing is known, from those of all arms (p,)."""
        inverse = np.linalg.inv(self.relation).sum(axis=0)
        return np.asarray(inverse @ self.layout.by_arm(mean) / inverse.sum())

    def feature_precision(self, intercept: bool) -> Array:
        """Q: zᵀQz is the number of coordinates, on average over contexts, if all arms were played equally
        often.
        """
        A = self.layout.arms
        d = self.layout.own
        count = self.layout.own_dim
        Q = np.zeros((self.layout.dim + intercept,) * 2)
        Q[:count, :count] = np.kron(
            A * np.eye(A), np.linalg.pinv(self.context_square[:d, :d])
        )
        if self.layout.shared:
            at = slice(count, count + len(self.context_square) - d)
            Q[at, at] = np.linalg.pinv(self.context_square[d:, d:])
        return Q

    def with_arm(
        self, features: Sequence[float] | None
    ) -> tuple[ArmPopulation, Array, float]:
        """The population with one arm more that was never played, and what the others say of that arm, by the
        best linear unbiased prediction.

        Its expectation is the mean of the arms with these weights (A,), which add up to 1. The last number is
        the variance left, in units of Ψ, that of the unknown mean included.
        """
        c, likeness = self.catalogue.shape[1], self.likeness
        row, own = np.zeros(c), 1.0
        if features is not None:
            if not c:
                raise InputError(
                    "features of the new arm were given, but the arms of the logs have none"
                )
            row = (
                finite_array("features", features, (c,)) - self.catalogue_mean
            ) / self.catalogue_scale
            own = 1.0 - likeness + likeness * float(row @ row) / c
        relation = likeness * self.catalogue @ row / max(c, 1)
        inverse = np.linalg.inv(self.relation)
        total = inverse.sum(axis=0)
        missing = (1.0 - float(total @ relation)) / float(total.sum())
        rest = (
            own - float(relation @ inverse @ relation) + missing**2 * float(total.sum())
        )
        weights = inverse @ relation + total * missing
        place, means = self.layout.own_dim, self.layout.insertion(weights)
        new = np.zeros((len(self.evidence), self.layout.own))
        new[0] = (means @ self.evidence[0, : self.layout.dim])[
            place : place + self.layout.own
        ]
        new[3] = 1.0
        grown = replace(
            self,
            layout=replace(self.layout, arms=self.layout.arms + 1),
            relation=np.block(
                [
                    [self.relation, relation[:, None]],
                    [relation[None, :], np.array([[own]])],
                ]
            ),
            catalogue=np.vstack([self.catalogue, row[None, :]]),
            plays=np.append(self.plays, 0.0),
            together=means @ self.together,
            evidence=np.insert(
                self.evidence, np.full(self.layout.own, place), new, axis=1
            ),
        )
        return grown, weights, rest

    def without_arm(self, arm: int) -> ArmPopulation:
        """The population of the other arms."""
        at = self.layout.coordinates_without(arm)
        others = np.delete(np.arange(self.layout.arms), arm)
        return replace(
            self,
            layout=replace(self.layout, arms=len(others)),
            relation=self.relation[np.ix_(others, others)],
            catalogue=self.catalogue[others],
            plays=self.plays[others],
            together=self.together[at],
            evidence=np.delete(
                self.evidence, np.arange(self.layout.dim)[self.layout.arm(arm)], axis=1
            ),
        )


# -- random effects of labelled arms --


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


class _Population:
    """The hyperparameters of the arms' population: Ψ, and the prior precision of μ that follows from it."""

    def __init__(self, statistics: ArmStatistics, relation: Array) -> None:
        self.layout = statistics.layout
        self.seen = statistics.rounds.sum(axis=0) > 0.0
        self.contrast = contrast_precision(relation)
        self.contrast_of_seen = contrast_precision(
            relation[np.ix_(self.seen, self.seen)]
        )
        self.faint = 1.0 / (VAGUE_ARMS * statistics.scale)

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
        count = SPREAD_COUNT * np.minimum(1.0, usual / np.maximum(each, TINY))
        pooled = (count * usual + squares) / (arms - 1 + count)
        return np.asarray(np.maximum(pooled, least))


def fit_effects(
    statistics: ArmStatistics, relation: Array
) -> tuple[ArmEffects, ArmEffects]:
    """Random effects with common directions alone, and with two more that the windows ask for (own
    coding).

    Shared slopes with a catalogue drift along its terms, not along their coordinates.
    """
    population, layout = _Population(statistics, relation), statistics.layout
    groups = statistics.common_directions
    own = _start(np.einsum("mpp->mp", statistics.information))
    if groups[layout.own_dim :].any():
        own[layout.own_dim :] *= SMALLEST
    sizes = _start(np.einsum("pe,mpq,qe->me", groups, statistics.information, groups))
    spread = WIDE_START * np.maximum(layout.by_arm(own).mean(axis=0), 1e-300)
    plain = _iterate(
        statistics, population, (own, groups, sizes, spread), FIRST_ITERATIONS
    )
    extra = _joint_directions(plain, layout)
    if not extra.shape[1]:
        return plain, plain
    start = np.concatenate([plain.sizes, np.full(extra.shape[1], plain.own.mean())])
    wide = np.hstack([groups, extra])
    return plain, _iterate(
        statistics, population, (plain.own, wide, start, plain.spread), ITERATIONS
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
    for _ in range(SCALE_ITERATIONS):
        squares = mean**2 + np.diagonal(covariance)
        scale = max(scale, TINY)
        weights = (TAIL_FREEDOM + 1.0) / (TAIL_FREEDOM + squares / scale)
        precision = weights / scale
        covariance = np.linalg.inv(known + np.diag(precision))
        mean = covariance @ pull
        before, scale = scale, float((weights * squares).mean())
        if abs(scale - before) <= SCALE_TOLERANCE * before:
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
    grown = LARGEST_GROWTH * variance * left
    told = own & (left > 0.0) & (variance * left + at_itself**2 <= grown)
    factor = at_itself[told] / left[told]
    mean[told] += factor * (prior @ windows.mean)[told]
    variance[told] += factor * at_itself[told]
    return mean, variance


def _informed(information: Array) -> Any:
    """Which windows inform each direction, from information along directions (m, J)."""
    return information > UNINFORMED * max(float(information.max()), 1e-300)


def _start(information: Array) -> Array:
    """Drift that the windows could just detect, 3/(mean information), from information along directions (m,
    J).
    """
    informed = _informed(information)
    mean = np.where(informed, information, 0.0).sum(axis=0) / np.maximum(
        informed.sum(axis=0), 1
    )
    usual = mean[mean > 0.0].mean() if (mean > 0.0).any() else 1.0
    return np.asarray(START / np.where(mean > 0.0, mean, usual))


def _iterate(
    statistics: ArmStatistics,
    population: _Population,
    start: tuple[Array, Array, Array, Array],
    iterations: int,
) -> ArmEffects:
    own, along, sizes, spread = start
    seen, layout = population.seen, statistics.layout
    across = np.einsum("pe,mpq,qe->me", along, statistics.information, along)
    informing = (
        _informed(np.einsum("mpp->mp", statistics.information))
        .sum(axis=0)
        .astype(np.float64)
    )
    informing_along = np.maximum(_informed(across).sum(axis=0).astype(np.float64), 1.0)
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
        by_arm = (SHRINKAGE * np.median(by_arm[seen], axis=0) + of_arm * by_arm) / (
            SHRINKAGE + of_arm
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
        1.0, size, out=np.zeros_like(size), where=size > UNINFORMED * size.max()
    )
    A, d = layout.arms, layout.own
    tensor = (excess * np.outer(scale, scale)).reshape(A, d, A, d)
    x = np.linalg.eigh(np.einsum("akal->kl", tensor))[1][:, -1]
    for _ in range(ALTERNATIONS):
        a = np.linalg.eigh(np.einsum("akbl,k,l->ab", tensor, x, x))[1][:, -1]
        x = np.linalg.eigh(np.einsum("akbl,a,b->kl", tensor, a, a))[1][:, -1]
    sizes, arms = np.linalg.eigh(np.einsum("akbl,k,l->ab", tensor, x, x))
    drifting = [
        i for i in (A - 1, A - 2) if sizes[i] > UNINFORMED * np.abs(sizes).max()
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
    known = np.flatnonzero(_informed(rows @ direction))
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


def drift_p_value(
    effects: ConditionedWindows,
    direction: Array,
    size: float,
    inflation: float = 1.0,
    usual: float = 0.0,
) -> tuple[float, Array, float]:
    """p-value of no drift along a direction (p,), whose drift is `size` in the fit, the eigenvalues (m − 1,)
    of what the windows know of its contrasts, and the drift that they may hide, where `usual` is usual; the
    others' drift stays as fitted.

    Against two kinds of drift: drawn afresh in every window, and a walk over the windows; the smaller
    p-value, times 2. inflation: by which sampling variances exceed those of the model.
    """
    rows = effects.weights @ direction
    Q = np.diag(rows @ direction) - rows @ effects.covariance @ rows.T
    # As they would be without drift along the direction.
    still = np.linalg.inv(np.eye(len(Q)) - size * Q)
    Q, u = still @ Q / inflation, still @ (effects.pull @ direction) / inflation
    step = np.tril(np.ones_like(Q)) / np.sqrt(len(Q))
    walk = _ratio_p_value(step.T @ Q @ step, step.T @ u, size)
    p_value = min(1.0, 2.0 * min(_ratio_p_value(Q, u, size), walk))
    known = np.linalg.eigvalsh(0.5 * (Q + Q.T))[1:].clip(0.0)  # without their mean
    return p_value, known, contrast_limit(0.5 * (Q + Q.T), u, usual)


def contrast_limit(Q: Array, u: Array, usual: float) -> float:
    """Upper confidence limit ω⁺ of the drift along a direction, pooled over arms as drift is.

    As in `drift_limit`: with λ and c the eigenvalues of Q (m, m), the joint precision of the effect in all
    windows, and its scores u (m,) along them, both without the mean, Σ c²/λ(1 + ωλ) is χ². SHRINKAGE more
    contrasts have the drift that is usual. The level is 40 %, because the alarm searches for the likeliest
    drift of all coefficients at once. Infinite without two informed contrasts.
    """
    level, total = Q.sum(axis=0), float(Q.sum())
    if total > UNINFORMED * np.trace(Q):  # else nothing is known of the mean
        Q, u = Q - np.outer(level, level) / total, u - level * (u.sum() / total)
    values, vectors = np.linalg.eigh(Q)
    scores, known = vectors.T @ u, _informed(values)
    if known.sum() < 2:
        return np.inf
    values, squares = values[known], scores[known] ** 2 / values[known]
    typical, count = float(np.median(values)), len(values) + SHRINKAGE
    values = np.append(values, typical)
    squares = np.append(squares, SHRINKAGE * (1.0 + usual * typical))
    quantile = 2.0 * float(special.gammaincinv(count / 2.0, POOLED_HIDDEN_LEVEL))
    low, high = 0.0, float((squares / values).sum()) / quantile
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        above = float((squares / (1.0 + middle * values)).sum()) > quantile
        low, high = (middle, high) if above else (low, middle)
    return high


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


def last_window(
    paths: CoefficientPaths,
    mean: Array,
    drift: Array,
    vague: Array,
    factor: float,
    lasting: float,
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
    partial = paths.partial
    roots = (
        {}
        if partial is None
        else dict(zip(partial.windows.tolist(), partial.roots, strict=True))
    )
    m, p = paths.coefficients.shape
    decay = np.exp(-1.0 / (m * lasting))
    state, spread = np.concatenate([mean, np.zeros(p)]), np.zeros((2 * p, 2 * p))
    spread[:p, :p], spread[p:, p:] = VAGUE * vague, np.diag(factor * drift)
    move = np.concatenate([np.ones(p), np.full(p, decay)])
    news = np.diag(np.concatenate([np.zeros(p), factor * drift * (1.0 - decay**2)]))
    for i, (g, H) in enumerate(zip(paths.coefficients, paths.covariances, strict=True)):
        if i:
            state, spread = move * state, spread * np.outer(move, move) + news
        seen = spread[:, :p] + spread[:, p:]  # covariance of the state with μ + x
        P, L = seen[:p] + seen[p:], roots.get(i)
        if L is None:
            gain = np.linalg.solve(P + H, seen.T).T
        else:  # (P + H)⁻¹ = L(I + LᵀPL)⁻¹Lᵀ in a partial window
            gain = seen @ L @ np.linalg.solve(np.eye(L.shape[1]) + L.T @ P @ L, L.T)
        state = state + gain @ (g - state[:p] - state[p:])
        spread = spread - gain @ seen.T
        spread = 0.5 * (spread + spread.T)
    total = spread[:p, :p] + spread[p:, p:] + spread[:p, p:] + spread[p:, :p]
    return state[:p] + state[p:], 0.5 * (total + total.T)


def walk_end(
    windows: ArmStatistics, precision: Array, drift: Array
) -> tuple[Array, Array]:
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
    state, P = np.zeros(p), _inverse(precision) + drift
    for i, (information, scores) in enumerate(
        zip(windows.information, windows.scores, strict=True)
    ):
        P = P + step if i else P
        joined = np.column_stack([information @ P, scores - information @ state])
        gain = np.linalg.solve(np.eye(p) + information @ P, joined)
        state, P = state + P @ gain[:, p], P - P @ gain[:, :p]
        P = _without_negative_variances(0.5 * (P + P.T))
    return state, P + 0.5 * step


def persistence(estimates: Array, errors: Array, mean: Array, drift: Array) -> Array:
    """Return the probability (p,) that drift along each direction goes on from one period of the log to the
    next.

    The function compares two models: every window (period of the log) draws its coefficient independently, or
    the coefficient follows an autoregressive process.

    Parameters
    ----------
    estimates, errors : arrays, shape (m, p)
        Estimated coefficient along each direction in each window (period), and its variance (infinite if the
        window has no data along the direction).
    mean, drift : arrays, shape (p,)
        Mean μ and drift variance ω of the coefficient along each direction.
    """
    m, w = len(estimates), np.maximum(drift, TINY)
    apart = np.where(np.isfinite(errors), estimates - mean, 0.0)
    afresh = np.zeros(len(mean))
    for e, h in zip(apart, errors, strict=True):
        afresh += _log_density(e, w + h)
    courses = []
    for factor, lasting in PERSISTENT:
        decay = np.exp(-1.0 / (m * lasting))
        state = np.zeros(len(mean))
        P = factor * w
        evidence = -afresh
        for i, (e, h) in enumerate(zip(apart, errors, strict=True)):
            if i:
                state, P = decay * state, decay**2 * P + (1.0 - decay**2) * factor * w
            error = np.where(np.isfinite(h), e - state, 0.0)
            evidence = evidence + _log_density(error, P + h)
            gain = P / (P + h)
            state, P = state + gain * error, P * (1.0 - gain)
        courses.append(evidence)
    evidence = np.logaddexp.reduce(courses, axis=0) - np.log(len(PERSISTENT))
    return np.asarray(special.expit(special.logit(RARELY_PERSISTENT) + evidence))


def _log_density(error: Array, variance: Array) -> Array:
    """Of N(0, variance) up to a constant; 0 where the variance is infinite."""
    finite = np.isfinite(variance)
    variance = np.where(finite, variance, 1.0)
    return np.where(finite, -0.5 * (np.log(variance) + error**2 / variance), 0.0)


def _single_estimates(statistics: ArmStatistics, mean: Array) -> tuple[Array, Array]:
    """Estimates (m, p) of each coefficient by itself, the others at their means, and their variances."""
    information = np.diagonal(statistics.information, axis1=1, axis2=2)
    known = np.where(information > 0.0, information, 1.0)
    estimates = mean + (statistics.scores - statistics.information @ mean) / known
    return estimates, np.where(information > 0.0, 1.0 / known, np.inf)


def _inverse(precision: Array) -> Array:
    """Covariance (p, p) of a precision; what rounding makes singular counts as hardly known."""
    with suppress(np.linalg.LinAlgError):
        return np.asarray(np.linalg.inv(precision))
    values, vectors = np.linalg.eigh(precision)
    return np.asarray(
        (vectors / np.maximum(values, SMALLEST * values.max())) @ vectors.T
    )


def _without_negative_variances(covariance: Array) -> Array:
    """The covariance as it is, or its positive part where rounding has made a variance negative, as rewards
    without noise do.
    """
    if (np.diagonal(covariance) >= 0.0).all():
        return covariance
    values, vectors = np.linalg.eigh(covariance)
    positive = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return np.asarray(0.5 * (positive + positive.T))


# -- drift along given directions --


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
    squares = g.var(axis=0, ddof=1) * (len(g) - 1)
    if not np.isfinite(h).all():
        known = np.where(np.isfinite(h), g, np.nan)
        squares = np.nansum((known - np.nanmean(known, axis=0)) ** 2, axis=0)
    low, high = np.zeros(g.shape[1]), squares / quantile + 1e-300
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        weight = 1.0 / (middle + h)
        center = (weight * g).sum(axis=0) / weight.sum(axis=0)
        above = (weight * (g - center) ** 2).sum(axis=0) > quantile
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.where(informing > 1, high, np.inf)


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
        A = L @ np.linalg.solve(
            np.eye(L.shape[2]) + (L.swapaxes(1, 2) * drift) @ L, L.swapaxes(1, 2)
        )
        values, vectors[paths.partial.windows] = np.linalg.eigh(A)
        roots[paths.partial.windows] = np.sqrt(np.maximum(values, 0.0))
    apart = np.einsum("mji,mj->mi", vectors, paths.coefficients - mean) * roots
    standard = np.einsum("mij,mj->mi", vectors, apart)
    informed = np.isfinite(paths.marginals()[1]).astype(np.float64)
    center = (standard * informed).sum(axis=0) / np.maximum(informed.sum(axis=0), 1.0)
    standard = standard * informed - informed * center
    length = np.sqrt((standard**2).sum(axis=0))
    standard = standard / np.where(length > 0.0, length, 1.0)
    pairs = np.triu_indices(p, 1)
    n = (informed.T @ informed - 1.0)[pairs]
    squares = ((standard.T @ standard) ** 2)[pairs][n >= 2.0]
    n = n[n >= 2.0]
    if not len(n):
        return 0.0
    return float(
        (squares.sum() - (1.0 / n).sum())
        / np.sqrt((2.0 * (n - 1.0) / (n**2 * (n + 2.0))).sum())
    )


class DriftBounds(NamedTuple):
    """Directions (p, q) along which coefficients drift; per direction (q,) the drift that was seen, what may
    be hidden, and how many windows inform it.
    """

    directions: Array
    seen: Array
    hidden: Array
    informing: Array


def _optional(*shape: str, least: float = -LARGEST_VARIANCE) -> ArraySpec:
    """An array that is empty where nothing is known."""
    return ArraySpec(shape, least=least, most=LARGEST_VARIANCE, or_empty=True)


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
    last_means: Annotated[Array, _optional("h", "p")] = field(
        default_factory=_no_matrix
    )
    last_covariances: Annotated[Array, _optional("h", "p", "p")] = field(
        default_factory=_no_stack
    )
    last_steps: Annotated[Array, _optional("h", "s", "p", least=0.0)] = field(
        default_factory=_no_stack
    )
    persistence: Annotated[Array, _optional("p", least=0.0)] = field(
        default_factory=_no_vector
    )
    windows: Annotated[int, count] = 0
    drift_limit: Annotated[Array, _optional("p", least=0.0)] = field(
        default_factory=_no_vector
    )
    # 1 for directions of blocks that drift in the logs, 0 for the others; empty if not known.
    drifting: Annotated[Array, _optional("p", least=0.0)] = field(
        default_factory=_no_vector
    )
    # How many windows inform each direction; empty if not known.
    informing: Annotated[Array, _optional("p", least=0.0)] = field(
        default_factory=_no_vector
    )
    # How far the windows contradict independent drift along the basis, in standard deviations.
    drift_misfit: float = 0.0
    # Features of the logged actions along the basis: mean and inverse covariance; empty if not known.
    feature_mean: Annotated[Array, _optional("p")] = field(default_factory=_no_vector)
    feature_precision: Annotated[Array, _optional("p", "p")] = field(
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
        last = [
            last_window(paths, mean, drift, vague, factor, lasting)
            for factor, lasting in PERSISTENT
        ]
        steps = [
            2.0 * factor * drift / (lasting * moments.rounds)
            for factor, lasting in PERSISTENT
        ]
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
            noise_variance=noise_variance,
            baseline=level,
            baseline_variance=between,
            baseline_error=error,
            baseline_moves=moves,
            present_level=_present_level(moments, own, noise),
            signal_variance=float((center**2 * offered).sum()),
            drift_signal=float(max((drift * along).max(), 0.0)),
            last_means=np.stack([mean for mean, _ in last]),
            last_covariances=np.stack([covariance for _, covariance in last]),
            last_steps=np.stack(steps)[:, None],
            persistence=persistence(*paths.marginals(), mean, drift),
            feature_mean=feature_mean,
            feature_precision=feature_precision,
            windows=int(moments.windows),
            drift_limit=np.where(np.isfinite(limit), limit, UNLIMITED * (unit + drift)),
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
        catalogue, center, scale = standardize_catalogue(
            statistics.catalogue.reshape(layout.arms, -1)
        )
        fits = {
            likeness: fit_effects(statistics, relate_arms(catalogue, likeness))
            for likeness in (LIKENESS if catalogue.shape[1] else LIKENESS[:1])
        }
        likeness = max(fits, key=lambda likeness: fits[likeness][1].evidence)
        plain, fit = fits[likeness]
        if layout.shared:
            fit = draw_shared_to_zero(statistics, fit, layout)
        count, coordinates = layout.dim, np.eye(layout.dim)
        directions = np.vstack([coordinates, plain.along.T])
        sizes = np.append(plain.own, plain.sizes)
        inflation = missing_inflation(statistics, plain.windows.mean, plain.own)
        tests, detectable, limit = _drift_tests(
            plain, layout, directions, sizes, inflation
        )
        informing = _informing(statistics, directions)
        limit = np.where(np.isfinite(limit), limit, LARGEST_VARIANCE)
        if (
            statistics.link == "logit"
        ):  # a test takes two windows with about five clicks of the rarer kind
            enough = (
                np.einsum("mpp->mp", statistics.information) >= ENOUGH_CLICKS
            ).sum(axis=0) >= 2
            tests[:count] = np.where(enough, tests[:count], np.nan)
        slopes = len(statistics.context_square) - 1
        measures = np.hstack(
            [coordinates, common_measures(layout, plain.along, catalogue, slopes)]
        )
        estimates = measures.T @ plain.windows.mean
        variances = ((plain.windows.covariance @ measures) * measures).sum(axis=0)
        estimates[:count], variances[:count] = estimates_by_own_rounds(
            plain, layout.own_dim
        )
        evidence = np.vstack(
            [
                estimates,
                np.sqrt(variances),
                sizes,
                tests,
                detectable,
                limit,
                informing,
            ]
        )
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
        last_mean, last_covariance = walk_end(
            statistics, fit.precision, fit.windows.drift
        )
        drift = fit.windows.drift - common
        single = _single_estimates(statistics, fit.windows.mean)
        return cls(
            basis=np.eye(layout.dim),
            mean=fit.windows.mean,
            mean_covariance=fit.windows.covariance,
            drift_covariance=drift,
            pooled=still.mean,
            pooled_covariance=still.covariance,
            unit=np.concatenate([np.tile(fit.spread, layout.arms), shared_unit]),
            noise_variance=statistics.noise_variance,
            baseline_moves=bool(tests[count] < COMMON_LEVEL),
            link=statistics.link,
            last_means=last_mean[None],
            last_covariances=last_covariance[None],
            last_steps=_walk_steps(drift),
            persistence=persistence(*single, fit.windows.mean, np.diagonal(drift)),
            windows=len(statistics.scores),
            population=population,
        )

    def where_logs_ended(self, mean: Array, covariance: Array) -> tuple[Array, Array]:
        """Mean (p,) and covariance (p, p) of the coefficients after the logs.

        Along each direction drift persists with its probability, and the coefficient is that of the last
        window; else it is as `mean` (p,) and `covariance` (p, p) say.
        """
        if not len(self.last_means) or not len(self.persistence):
            return mean, covariance
        share, apart = self.persistence, self.last_means.mean(axis=0) - mean
        stays, differs = np.sqrt(share), np.sqrt(1.0 - share)
        last = self.last_covariances.mean(axis=0) + self.common_drift
        spread = covariance * np.outer(differs, differs) + last * np.outer(stays, stays)
        return mean + share * apart, spread + np.diag(share * (1.0 - share) * apart**2)

    @property
    def drift(self) -> Array:
        """Variance of the coefficients over time windows along each of the p directions (p,)."""
        return np.asarray(np.maximum(np.diagonal(self.drift_covariance), 0.0))

    @property
    def drift_bounds(self) -> DriftBounds:
        """Directions (p, q) along which coefficients drift, and what the windows say of each."""
        coordinates, seen = np.eye(len(self.mean)), self.drift
        if self.population is not None:
            together = self.arms.together
            (_, _, seen, _, _, hidden, informing) = self.arms.evidence
            return DriftBounds(
                np.hstack([coordinates, together]), seen, hidden, informing
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
        hyper = _Population(statistics, self.arms.relation)
        return hyper.precision(self.arms.spread)

    def with_arm(self, features: Sequence[float] | None = None) -> DriftPrior:
        """Return the prior with one more labelled arm, which was never played.

        For the new arm, the prior takes the mean coefficients of similar arms and the variance between arms.

        Parameters
        ----------
        features : sequence of float, length c, optional
            Features of the new arm, if the other arms have c features.
        """
        population, weights, rest = self.arms.with_arm(features)
        layout = population.layout
        own = layout.arm(self.layout.arms)
        more = np.zeros((3, layout.dim))
        more[:, own] = (
            rest * population.spread,
            population.typical_drift,
            population.spread,
        )
        others = np.delete(np.eye(layout.dim), own, axis=1)
        return self._carry(population, self.layout.insertion(weights), others, more)

    def without_arm(self, arm: int) -> DriftPrior:
        """The prior of the other arms."""
        others = np.eye(len(self.mean))[self.layout.coordinates_without(arm)]
        return self._carry(
            self.arms.without_arm(arm), others, others, np.zeros((3, len(others)))
        )

    def _carry(
        self, population: ArmPopulation, means: Array, places: Array, more: Array
    ) -> DriftPrior:
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
            last_covariances=np.stack(
                [extend(last, doubt + drifting) for last in self.last_covariances]
            ),
            last_steps=_walk_steps(drift),
            persistence=places @ self.persistence,
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
        level = level[informed]
        mean = mean[informed]
        sampling = noise[informed] / moments.counts[informed]
        sampling = sampling + np.einsum(
            "mi,mij,mj->m", mean, paths.covariances[informed], mean
        )
    weight = 1.0 / sampling
    center = float(weight @ level / weight.sum())
    statistic = float(weight @ (level - center) ** 2)
    moves = bool(
        special.gammaincc((len(level) - 1) / 2.0, statistic / 2.0) < BASELINE_ALPHA
    )
    between = max(float(((level - center) ** 2 - sampling).mean()), 0.0)
    return center, between, float(1.0 / weight.sum()), moves


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
        np.array(WALK_RATES)[:, None] * np.maximum(np.diagonal(drift), 0.0)
    )[None]


def _informing(statistics: ArmStatistics, directions: Array) -> Array:
    """How many windows inform each direction (J, p); a window of clicks by about five of the rarer kind."""
    known = ((statistics.information @ directions.T) * directions.T).sum(axis=1)
    least = ENOUGH_CLICKS if statistics.link == "logit" else 0.0
    return np.asarray(
        (_informed(known) & (known >= least)).sum(axis=0), dtype=np.float64
    )


def _drift_tests(
    fit: ArmEffects,
    layout: ArmLayout,
    directions: Array,
    sizes: Array,
    inflation: Array,
) -> tuple[Array, Array, Array]:
    """p-values (J,) of no drift along directions (J, p) that have these sizes in the fit, the drift that
    would have been detected, and the drift that may be hidden; inflation (p,): of the sampling variances of
    the coefficients. Usual is the median over arms of their drift, or the own drift of what arms share.
    """
    usual, own = sizes.copy(), layout.own_dim
    usual[:own] = np.tile(np.median(layout.by_arm(sizes), axis=0), layout.arms)
    squares = directions**2
    factors = (squares @ inflation) / squares.sum(axis=1).clip(1e-300)
    of_each = zip(
        directions, sizes.tolist(), factors.tolist(), usual.tolist(), strict=True
    )
    tests = [drift_p_value(fit.windows, *each) for each in of_each]
    level = 0.5 * DRIFT_LEVEL / len(tests)
    detectable = [detectable_drift(known, level) for _, known, _ in tests]
    p_values, _, limits = zip(*tests, strict=True)
    return np.array(p_values), np.array(detectable), np.array(limits)


def missing_inflation(statistics: ArmStatistics, mean: Array, drift: Array) -> Array:
    """How far sampling variances (p,) of indicators of missing values exceed those of the model.

    Rewards with noise only: the variance of a click follows from its mean. mean, drift: (p,), of the
    coefficients.
    """
    layout, noise = statistics.layout, statistics.noise_variance
    result, own = np.ones(layout.dim), layout.own
    slopes = max(len(statistics.context_square) - own, 1)

    def coordinate(arm: int, entry: int) -> int:
        """Where the coefficient of an arm for an entry of the context stands, or the shared one."""
        return arm * own + entry if entry < own else layout.own_dim + entry - own

    for column in statistics.missing if statistics.link == "identity" else ():
        for arm in range(layout.arms):
            values = [coordinate(arm, entry) for entry in column.values]
            spread = np.outer(mean[values], mean[values]) + np.diag(drift[values])
            factor = column.inflation(spread, statistics.context_square, noise)
            indicator = coordinate(arm, column.indicator)
            result[indicator] = factor
            if (
                indicator >= layout.own_dim
            ):  # products with the catalogue follow in steps of the slopes
                result[indicator::slopes] = factor
    return result
