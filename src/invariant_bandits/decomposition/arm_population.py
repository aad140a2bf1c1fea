"""The population that labelled arms are drawn from, and what a log says of every effect of theirs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, NamedTuple

import numpy as np

from invariant_bandits.checks import Array, InputError, finite_array, number_between
from invariant_bandits.decomposition.arm_statistics import ArmLayout
from invariant_bandits.decomposition.coefficient_specs import (
    LARGEST_MEAN,
    OwnVariances,
    covariance_spec,
    variance_spec,
)
from invariant_bandits.decomposition.fit_constants import PRIOR
from invariant_bandits.storage import MOST_ROUNDS, ArraySpec


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


@dataclass(frozen=True, eq=False)
class EffectEvidence:
    """What a log says of f effects, each array of shape (f,).

    Attributes
    ----------
    estimate, error : arrays
        Mean over the log, and its standard error.
    variance : array
        Variance over windows.
    p_value : array
        Of no drift; NaN without a test.
    detectable : array
        Drift (standard deviation) that would have been detected.
    hidden : array
        Variance over windows that may be hidden (`contrast_limit`).
    informing : array
        How many windows inform the effect.
    """

    estimate: Annotated[Array, covariance_spec(("f",))]
    error: Annotated[Array, variance_spec(("f",))]
    variance: Annotated[Array, variance_spec(("f",))]
    p_value: Annotated[Array, variance_spec(("f",), or_nan=True)]
    detectable: Annotated[Array, variance_spec(("f",))]
    hidden: Annotated[Array, variance_spec(("f",))]
    informing: Annotated[Array, variance_spec(("f",))]

    @property
    def active(self) -> Array:
        """Whether each effect differs from 0 in the mean of the log (f,)."""
        return np.abs(self.estimate) > PRIOR.active_errors * self.error

    def with_arm(self, layout: ArmLayout, means: Array) -> EffectEvidence:
        """Return the evidence with a new arm: its estimates are expected by `means` (p', p), not informed."""
        new = np.full(layout.own, layout.own_dim)
        grown = {
            name: np.insert(values, new, 0.0) for name, values in vars(self).items()
        }
        own = slice(layout.own_dim, layout.own_dim + layout.own)
        grown["estimate"][own] = (means @ self.estimate[: layout.dim])[own]
        grown["p_value"][own] = 1.0
        return EffectEvidence(**grown)

    def without(self, effects: slice) -> EffectEvidence:
        """Return the evidence of all other effects."""
        return EffectEvidence(
            **{name: np.delete(values, effects) for name, values in vars(self).items()}
        )


def level_weights(active: Array) -> Array:
    """Return the weights (f,) of the tests of f effects in Holm's rule; their mean is 1.

    Half of the level goes to all effects, and half to the `active` ones (f,): in a log with many columns most
    effects are null and do not drift. Without drift the mean of an effect is independent of its differences
    between windows, so the rule keeps its level (Genovese, Roeder and Wasserman 2006).
    """
    if not active.any():
        return np.ones(len(active))
    return np.asarray(0.5 + 0.5 * active / active.mean())


class NewArm(NamedTuple):
    """A population with one more arm, and what the other arms say of it.

    Attributes
    ----------
    population : ArmPopulation
    weights : array, shape (A,)
        The new arm's expectation is the mean of the other arms with these weights, which add up to 1.
    variance : float
        What is left open, in units of Ψ, that of the unknown mean included.
    """

    population: ArmPopulation
    weights: Array
    variance: float


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
    evidence : EffectEvidence
        Of every coefficient, and along every direction in which arms move together (p + g).
    plays : array, shape (A,)
        Rounds of every arm.
    context_square : array, shape (d, d)
        Mean of zzᵀ over the log.
    drift_level : float
        Level of the tests of drift, for all effects together (Holm 1979).
    """

    layout: ArmLayout
    common: OwnVariances
    spread: OwnVariances
    typical_drift: OwnVariances
    relation: Annotated[Array, covariance_spec(("A", "A"))]
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
    together: Annotated[Array, covariance_spec(("p", "g"))]
    evidence: EffectEvidence
    plays: Annotated[Array, ArraySpec(("A",), least=0.0, most=MOST_ROUNDS)]
    context_square: Annotated[Array, covariance_spec(("d", "d"))]
    drift_level: Annotated[float, partial(number_between, low=0.0, high=1.0)] = (
        PRIOR.drift_level
    )

    def __post_init__(self) -> None:
        A, own = len(self.plays), len(self.spread)
        p, g = self.together.shape
        fits = self.layout == ArmLayout(A, own, p - A * own)
        if not fits or len(self.evidence.estimate) != p + g:
            raise InputError(
                f"{self.layout} does not fit {own} coefficients of each of {A} arms"
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
        layout, evidence = self.layout, self.evidence
        first = layout.own_dim
        if self.together[layout.own_dim :].any():
            first = layout.dim  # products stand for the terms of the catalogue
        several_arms = (self.plays > 0).sum() > 1
        last = len(evidence.estimate) if several_arms else layout.dim
        played = np.flatnonzero(np.repeat(self.plays > 0, layout.own))
        listed = [*played.tolist(), *range(first, last)]
        drifting = self._drifting(listed)
        result = []
        for index in listed:
            arm, coefficient = -1, index
            if index < layout.own_dim:
                arm, coefficient = divmod(index, layout.own)
            result.append(
                Effect(
                    estimate=float(evidence.estimate[index]),
                    error=float(evidence.error[index]),
                    drift=float(np.sqrt(evidence.variance[index])),
                    detectable=float(evidence.detectable[index]),
                    p_value=float(evidence.p_value[index]),
                    drifts=index in drifting,
                    arm=arm,
                    coefficient=coefficient,
                    place=index,
                )
            )
        return result

    def _drifting(self, listed: Sequence[int]) -> set[int]:
        """Return those effects whose tests reject, by Holm's rule with the weights of `level_weights`."""
        evidence = self.evidence
        tested = np.array([i for i in listed if evidence.p_value[i] <= 1.0], int)
        active = evidence.active & (np.arange(len(evidence.active)) < self.layout.dim)
        weights = level_weights(active[tested])
        weighted = evidence.p_value[tested] / weights
        order = np.argsort(weighted, kind="stable")
        # Each is held against the level over all weights that remain; the first failure ends the list.
        remaining = np.cumsum(weights[order][::-1])[::-1]
        rejected = weighted[order] <= self.drift_level / remaining
        return set(tested[order][np.logical_and.accumulate(rejected)].tolist())

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

    def with_arm(self, features: Sequence[float] | None) -> NewArm:
        """Return the population with one more arm, which was never played, and what the others say of it.

        The best linear unbiased prediction of a new arm with covariances r to the others, R their relation
        and v its own variance, under an unknown mean: weights w = R⁻¹r + R⁻¹1·(1 − 1ᵀR⁻¹r)/1ᵀR⁻¹1, and the
        variance v − rᵀR⁻¹r + (1 − 1ᵀR⁻¹r)²/1ᵀR⁻¹1.
        """
        c, likeness = self.catalogue.shape[1], self.likeness
        row = np.zeros(c)
        own_variance = 1.0
        if features is not None:
            if not c:
                raise InputError(
                    "features of the new arm were given, but the arms of the logs have none"
                )
            given = finite_array("features", features, (c,))
            row = (given - self.catalogue_mean) / self.catalogue_scale
            own_variance = 1.0 - likeness + likeness * float(row @ row) / c
        relation = likeness * self.catalogue @ row / max(c, 1)
        inverse = np.linalg.inv(self.relation)
        total = inverse.sum(axis=0)
        missing = (1.0 - float(total @ relation)) / float(total.sum())
        explained = float(relation @ inverse @ relation)
        variance = own_variance - explained + missing**2 * float(total.sum())
        weights = inverse @ relation + total * missing
        means = self.layout.insertion(weights)
        grown = np.block(
            [
                [self.relation, relation[:, None]],
                [relation[None, :], np.array([[own_variance]])],
            ]
        )
        population = replace(
            self,
            layout=replace(self.layout, arms=self.layout.arms + 1),
            relation=grown,
            catalogue=np.vstack([self.catalogue, row[None, :]]),
            plays=np.append(self.plays, 0.0),
            together=means @ self.together,
            evidence=self.evidence.with_arm(self.layout, means),
        )
        return NewArm(population, weights, variance)

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
            evidence=self.evidence.without(self.layout.arm(arm)),
        )
