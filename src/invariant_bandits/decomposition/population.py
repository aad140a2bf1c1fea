"""Labelled arms: where their coefficients stand, and the population from which the arms are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, NamedTuple, TypeAlias

import numpy as np

from invariant_bandits.checks import Array, InputError, finite_array, number_between, one_of
from invariant_bandits.logs.features import ArmFeatures
from invariant_bandits.storage import MOST_ROUNDS, ArraySpec

LARGEST_MEAN, LARGEST_VARIANCE = 1e100, 1e200
"""Of coefficients in a stored state; squares of them are still numbers."""
Coefficients: TypeAlias = Annotated[Array, ArraySpec(("p",), least=-LARGEST_MEAN, most=LARGEST_MEAN)]
Variances: TypeAlias = Annotated[Array, ArraySpec(("p",), least=0.0, most=LARGEST_VARIANCE)]
Covariance: TypeAlias = Annotated[
    Array, ArraySpec(("p", "p"), least=-LARGEST_VARIANCE, most=LARGEST_VARIANCE)
]
OwnVariances: TypeAlias = Annotated[Array, ArraySpec(("o",), least=0.0, most=LARGEST_VARIANCE)]
"""Coefficients of all arms (p,), variances and covariance of them, and variances of an arm's own ones (o,).
"""
CODINGS = ("own", "shared")
DRIFT_LEVEL = 0.05
"""Level of the tests of drift, for all effects of a log together (Holm 1979)."""


@dataclass(frozen=True)
class ArmLayout:
    """Coordinates of A arms: first `own` coefficients of every arm, arm by arm, then `shared` ones.

    Parameters
    ----------
    arms : int
        A.
    own : int
        Coefficients that every arm has of its own: all d of them ("own" coding), or its intercept ("shared").
    shared : int
        Coefficients that all arms have in common; 0 in the "own" coding.

    >>> ArmLayout.of(arms=3, width=2, coding="own"), ArmLayout.of(arms=3, width=2, coding="shared").dim
    (ArmLayout(arms=3, own=2, shared=0), 4)
    """

    arms: int
    own: int
    shared: int = 0

    @classmethod
    def of(cls, *, arms: int, width: int, coding: str = "own", catalogue: int = 0) -> ArmLayout:
        """The layout of arms with contexts z of `width` numbers, 1 first, and `catalogue` features of every
        arm.

        own: φ = e_a ⊗ z. shared: φ = [e_a, x], z = [1, x]; with features f of the arms φ = [e_a, x, f(a) ⊗
        x].
        """
        if one_of("coding", coding, CODINGS) == "own":
            return cls(arms, width)
        return cls(arms, 1, (width - 1) * (1 + catalogue))

    @classmethod
    def of_features(cls, features: ArmFeatures) -> ArmLayout:
        """The layout of the features φ(x, a) that a log was read with."""
        arms = len(features.labels)
        return cls(arms, features.width) if features.coding == "own" else cls(arms, 1, features.dim - arms)

    @property
    def dim(self) -> int:
        """Number of coefficients p."""
        return self.own_dim + self.shared

    @property
    def own_dim(self) -> int:
        """Number of coefficients that belong to an arm; the shared ones stand behind them."""
        return self.arms * self.own

    @property
    def groups(self) -> Array:
        """Common directions (p, own): column k is one for the k-th own coefficient of every arm."""
        result = np.zeros((self.dim, self.own))
        result[: self.own_dim] = np.tile(np.eye(self.own), (self.arms, 1))
        return result

    def arm(self, index: int) -> slice:
        """The own coordinates of an arm."""
        return slice(index * self.own, (index + 1) * self.own)

    def by_arm(self, values: Array) -> Array:
        """The own part of coefficients (..., p) as (..., A, own)."""
        own = values[..., : self.own_dim]
        return own.reshape(*own.shape[:-1], self.arms, self.own)

    def features(self, contexts: Array, arms: np.ndarray[Any, Any], catalogue: Array | None = None) -> Array:
        """φ (n, p) of rounds with contexts z (n, d), 1 first, and arms (n,); catalogue: features of the arms
        (A, c).
        """
        n = len(contexts)
        result = np.zeros((n, self.dim))
        each = np.arange(n)
        for k in range(self.own):
            result[each, arms * self.own + k] = contexts[:, k]
        if self.shared:
            slopes = contexts[:, 1:]
            crossed = self.own_dim + slopes.shape[1]
            result[:, self.own_dim : crossed] = slopes
            if catalogue is not None and catalogue.size:
                result[:, crossed:] = (catalogue[arms][:, :, None] * slopes[:, None, :]).reshape(n, -1)
        return result

    def coordinates_without(self, arm: int) -> np.ndarray[Any, Any]:
        """Coordinates that are left without an arm."""
        if not 0 <= arm < self.arms:
            raise InputError(f"arm must be from 0 to {self.arms - 1}, got {arm!r}")
        if self.arms < 2:
            raise InputError("the last arm cannot be taken out")
        every = np.arange(self.dim)
        return np.delete(every, every[self.arm(arm)])

    def insertion(self, weights: Array) -> Array:
        """The linear map (p', p) that puts the mean of the arms with these weights (A,) behind them as a new
        arm.
        """
        count = self.own_dim
        result = np.zeros((self.dim + self.own, self.dim))
        result[:count, :count] = np.eye(count)
        result[count : count + self.own, :count] = np.kron(weights[None, :], np.eye(self.own))
        result[count + self.own :, count:] = np.eye(self.shared)
        return result


class ArmPrediction(NamedTuple):
    """What the known arms say of a new one, by the best linear unbiased prediction.

    weights (A,): its expectation is this mean of the arms, adding up to 1. rest: variance left, in units of
    Ψ, that of the unknown mean included. relation (A,), own: covariances with the known arms, and its
    variance, in the same units.
    """

    weights: Array
    rest: float
    relation: Array
    own: float


class Effect(NamedTuple):
    """One coefficient of an arm: estimate and standard error, drift from window to window, and a test of
    none.

    drifts: whether the test rejects at 5 % for all effects of the log together. The p-value is NaN where
    there were too few clicks for a test.
    """

    arm: int
    coefficient: int
    estimate: float
    error: float
    drift: float
    p_value: float
    drifts: bool


def standardize_catalogue(catalogue: Array, arms: int) -> tuple[Array, Array, Array]:
    """Features of the arms with mean 0 and variance 1, their means and scales; columns that are all the same
    are 0.
    """
    if not catalogue.size:
        return np.zeros((arms, 0)), np.zeros(0), np.zeros(0)
    center, scale = catalogue.mean(axis=0), catalogue.std(axis=0)
    scale = np.where(scale > 0.0, scale, 1.0)
    return (catalogue - center) / scale, center, scale


def relate_arms(catalogue: Array, likeness: float) -> Array:
    """M (A, A) of arms whose standardised features (A, c) explain this part of their variance."""
    A, c = catalogue.shape
    return np.asarray((1.0 - likeness) * np.eye(A) + likeness * catalogue @ catalogue.T / max(c, 1))


def contrast_precision(relation: Array) -> Array:
    """Precision (A, A) of arms with covariance M = `relation` about an unknown mean: flat along (1, …, 1)."""
    inverse = np.linalg.inv(relation)
    total = inverse.sum(axis=0)
    return np.asarray(inverse - np.outer(total, total) / total.sum())


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
    estimates, errors, drift_sizes, p_values : arrays, shapes (p,)
        Of every effect: mean over the log, standard error, variance over windows, and the test of no drift.
    plays : array, shape (A,)
        Rounds of every arm.
    context_square : array, shape (d, d)
        Mean of zzᵀ over the log.
    """

    layout: ArmLayout
    common: OwnVariances
    spread: OwnVariances
    typical_drift: OwnVariances
    relation: Annotated[Array, ArraySpec(("A", "A"), least=-LARGEST_VARIANCE, most=LARGEST_VARIANCE)]
    catalogue: Annotated[Array, ArraySpec(("A", "c"), least=-LARGEST_MEAN, most=LARGEST_MEAN)]
    catalogue_mean: Annotated[Array, ArraySpec(("c",), least=-LARGEST_MEAN, most=LARGEST_MEAN)]
    catalogue_scale: Annotated[Array, ArraySpec(("c",), least=1.0 / LARGEST_MEAN, most=LARGEST_MEAN)]
    likeness: Annotated[float, partial(number_between, low=-1e-9, high=1.0)]
    estimates: Coefficients
    errors: Variances
    drift_sizes: Variances
    p_values: Annotated[Array, ArraySpec(("p",), least=0.0, most=1.0, or_nan=True)]
    plays: Annotated[Array, ArraySpec(("A",), least=0.0, most=MOST_ROUNDS)]
    context_square: Annotated[Array, ArraySpec(("d", "d"), least=-LARGEST_VARIANCE, most=LARGEST_VARIANCE)]

    def __post_init__(self) -> None:
        sizes = (len(self.plays), len(self.spread), len(self.estimates))
        if sizes != (self.layout.arms, self.layout.own, self.layout.dim):
            raise InputError(f"layout {self.layout} does not fit {sizes} arms, own and all coefficients")

    @property
    def effects(self) -> list[Effect]:
        """Every own coefficient of every arm that was played, and whether it drifts; Holm's rule over all of
        them.
        """
        layout = self.layout
        own = [j for j in range(layout.own_dim) if self.plays[j // layout.own] > 0]
        drifting: set[int] = set()
        tested = sorted(
            (j for j in own if np.isfinite(self.p_values[j])), key=lambda j: float(self.p_values[j])
        )
        for rank, j in enumerate(tested):
            if self.p_values[j] > DRIFT_LEVEL / (len(tested) - rank):
                break
            drifting.add(j)
        return [
            Effect(
                *divmod(j, layout.own),
                estimate=float(self.estimates[j]),
                error=float(self.errors[j]),
                drift=float(np.sqrt(self.drift_sizes[j])),
                p_value=float(self.p_values[j]),
                drifts=j in drifting,
            )
            for j in own
        ]

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
        layout, count = self.layout, self.layout.own_dim
        own = np.linalg.pinv(self.context_square[: layout.own, : layout.own])
        Q = np.zeros((layout.dim + intercept, layout.dim + intercept))
        Q[:count, :count] = np.kron(layout.arms * np.eye(layout.arms), own)
        if layout.shared:
            slopes = np.linalg.pinv(self.context_square[1:, 1:])
            q = len(slopes)
            Q[count : count + q, count : count + q] = slopes
        return Q

    def predict_arm(self, features: Array | None) -> ArmPrediction:
        """A new arm with standardised features (c,), or with unknown ones."""
        c = max(self.catalogue.shape[1], 1)
        known = np.zeros(self.catalogue.shape[1]) if features is None else features
        relation = self.likeness * self.catalogue @ known / c
        own = 1.0 if features is None else 1.0 - self.likeness + self.likeness * float(known @ known) / c
        inverse = np.linalg.inv(self.relation)
        total = inverse.sum(axis=0)
        missing = (1.0 - float(total @ relation)) / float(total.sum())
        rest = own - float(relation @ inverse @ relation) + missing**2 * float(total.sum())
        return ArmPrediction(inverse @ relation + total * missing, rest, relation, own)

    def with_arm(self, features: Sequence[float] | None) -> tuple[ArmPopulation, ArmPrediction]:
        """The population with one arm more that was never played, and what the others say of that arm."""
        c = self.catalogue.shape[1]
        if features is not None and not c:
            raise InputError("features of the new arm were given, but the arms of the logs have none")
        row = np.zeros(c)
        if features is not None:
            row = (finite_array("features", features, (c,)) - self.catalogue_mean) / self.catalogue_scale
        new, place = self.predict_arm(None if features is None else row), self.layout.own_dim
        of_effects: dict[str, Any] = {
            name: np.insert(getattr(self, name), place, np.full(self.layout.own, value))
            for name, value in (("errors", 0.0), ("drift_sizes", 0.0), ("p_values", 1.0))
        }
        grown = replace(
            self,
            layout=replace(self.layout, arms=self.layout.arms + 1),
            relation=np.block(
                [[self.relation, new.relation[:, None]], [new.relation[None, :], np.array([[new.own]])]]
            ),
            catalogue=np.vstack([self.catalogue, row[None, :]]),
            plays=np.append(self.plays, 0.0),
            estimates=self.layout.insertion(new.weights) @ self.estimates,
            **of_effects,
        )
        return grown, new

    def without_arm(self, arm: int) -> ArmPopulation:
        """The population of the other arms."""
        at, others = self.layout.coordinates_without(arm), np.delete(np.arange(self.layout.arms), arm)
        of_effects: dict[str, Any] = {
            name: getattr(self, name)[at] for name in ("estimates", "errors", "drift_sizes", "p_values")
        }
        return replace(
            self,
            layout=replace(self.layout, arms=len(others)),
            relation=self.relation[np.ix_(others, others)],
            catalogue=self.catalogue[others],
            plays=self.plays[others],
            **of_effects,
        )
