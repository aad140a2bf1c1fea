"""What a fitted decomposition found, as numbers: pages, tables, figures and JSON all take them from here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.decomposition.estimator import InvariantSubspaceDecomposition
from invariant_bandits.decomposition.summary import block_spread, main_features, uninformed_features
from invariant_bandits.moments.windowed import WindowedMoments


@dataclass(frozen=True)
class Block:
    """A group of directions that are judged together.

    Attributes
    ----------
    number : int
        From 1, in the order of the basis; the same in every table and figure.
    drifts : bool
        Whether its coefficients differ between windows.
    dim : int
        How many directions it has.
    log_p_value : float
        Natural logarithm of the p-value of equal coefficients in all windows.
    drift : float
        Standard deviation of a coefficient between windows, beyond sampling error.
    drift_in_reward : float
        What that changes in the reward of an action one standard deviation away.
    error : float
        Standard error of a coefficient within one window.
    main_features : str
        Names of the features that weigh most in it.
    """

    number: int
    drifts: bool
    dim: int
    log_p_value: float
    drift: float
    drift_in_reward: float
    error: float
    main_features: str


@dataclass(frozen=True)
class Feature:
    """One feature: how much of it is stable, and its coefficient in all windows and in the last, with errors.

    None of the last if that window is silent about it.
    """

    name: str
    stable_share: float
    coefficient: float
    error: float
    last_coefficient: float | None
    last_error: float | None


@dataclass(frozen=True)
class Window:
    """One window: from 1, when it begins if that is known, and its rounds and rewards."""

    number: int
    begins: Any
    rounds: int
    mean_reward: float
    sd_reward: float


def blocks(fit: InvariantSubspaceDecomposition) -> list[Block]:
    """Every block, drifting ones first."""
    covariance = fit.window_covariances_.mean(axis=0)
    blocks_found = []
    for index, columns in enumerate(fit.blocks_):
        drift, error = block_spread(fit, index)
        along = fit.basis_[:, columns]
        spread = float(np.sqrt(np.trace(along.T @ covariance @ along) / len(columns)))
        blocks_found.append(
            Block(
                number=index + 1,
                drifts=bool(fit.varies_[index]),
                dim=len(columns),
                log_p_value=float(fit.log_p_values_[index]),
                drift=drift,
                drift_in_reward=drift * spread,
                error=error,
                main_features=main_features(fit, index),
            )
        )
    return sorted(blocks_found, key=lambda block: not block.drifts)


def features(fit: InvariantSubspaceDecomposition) -> list[Feature]:
    """Every feature, the least stable first."""
    mean, covariance = fit.paths_.weighted_mean()
    own, names, share = _errors(covariance), fit.names(len(mean)), fit.feature_stability_
    silent = uninformed_features(fit.paths_)[-1]
    last, error = (
        [None if unknown else float(value) for value, unknown in zip(values, silent, strict=True)]
        for values in (fit.coefficients_[-1], _errors(fit.coefficient_covariances_[-1]))
    )
    return [
        Feature(names[j], float(share[j]), float(mean[j]), float(own[j]), last[j], error[j])
        for j in np.argsort(share, kind="stable")
    ]


def windows(moments: WindowedMoments) -> list[Window]:
    """Every window, in the order of time."""
    deviation = np.sqrt(moments.reward_square / np.maximum(moments.counts - 1, 1))
    begins: Any = [None] * moments.windows if moments.edges is None else moments.edges
    return [
        Window(i + 1, begins[i], int(moments.counts[i]), float(moments.reward_mean[i]), float(deviation[i]))
        for i in range(moments.windows)
    ]


def _errors(covariance: Array) -> Array:
    return np.asarray(np.sqrt(np.diagonal(covariance)))
