"""Arms that come and go: the prior of one arm more, or of one less."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from invariant_bandits.checks import Array, InputError, finite_array
from invariant_bandits.decomposition.arm_catalogue import Likened, likened
from invariant_bandits.decomposition.arm_layout import ArmLayout

if TYPE_CHECKING:
    from invariant_bandits.decomposition.arm_prior import ArmPrior


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
