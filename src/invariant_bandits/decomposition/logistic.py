"""Logistic regression of clicks on features, from sums over passes: rows are never kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.decomposition.arm_layout import ArmLayout

RIDGE, FAINT_RIDGE = 1.0, 1e-3
"""Precision of an arm's coefficients about the mean of the arms and of shared ones about 0, and of all about 0."""
MOST_PASSES, HALVINGS = 30, 12
SMALLEST_STEP = 1e-5
LARGEST_ODDS = 30.0


@dataclass(frozen=True, eq=False)
class LogitSums:
    """One pass over the rounds at coefficients θ: π = σ(φᵀθ), h = π(1 − π). Sums of shards add.

    Attributes
    ----------
    theta : array, shape (p,)
        Where the pass was made.
    information : array, shape (m, p, p)
        Σhφφᵀ of every window.
    gradient : array, shape (m, p)
        Σφ(r − π).
    log_likelihood : float
        Σ r·log π + (1 − r)·log(1 − π).
    variance : float
        Σh.
    """

    theta: Array
    information: Array
    gradient: Array
    log_likelihood: float
    variance: float

    @classmethod
    def of(cls, features: Array, rewards: Array, windows: Array, theta: Array, count: int) -> LogitSums:
        """Sums of rounds with features (n, p), rewards from 0 to 1 (n,) and windows (n,); there are `count`."""
        odds = np.clip(features @ theta, -LARGEST_ODDS, LARGEST_ODDS)
        chance = 1.0 / (1.0 + np.exp(-odds))
        spread = chance * (1.0 - chance)
        p = len(theta)
        information, gradient = np.zeros((count, p, p)), np.zeros((count, p))
        for i in np.unique(windows):
            at = windows == i
            rows = features[at]
            information[i] = rows.T @ (rows * spread[at, None])
            gradient[i] = rows.T @ (rewards - chance)[at]
        likelihood = float(rewards @ odds - np.logaddexp(0.0, odds).sum())
        return cls(theta, information, gradient, likelihood, float(spread.sum()))

    def __add__(self, other: LogitSums) -> LogitSums:
        return LogitSums(
            self.theta,
            self.information + other.information,
            self.gradient + other.gradient,
            self.log_likelihood + other.log_likelihood,
            self.variance + other.variance,
        )


def fit_logistic(evaluate: Callable[[Array], LogitSums], layout: ArmLayout) -> LogitSums:
    """The last pass of a ridge fit by Newton's method with halved steps.

    evaluate: one pass over all rounds at coefficients (p,), in whatever way they are read. Every arm's own coefficients
    are drawn to the mean of the arms with ridge 1, so that an arm with few clicks has a finite fit.
    """
    penalty = FAINT_RIDGE * np.eye(layout.dim)
    groups, own = layout.groups, layout.arms * layout.own
    penalty[:own, :own] += RIDGE * (np.eye(own) - (groups @ groups.T)[:own, :own] / layout.arms)
    penalty[own:, own:] += RIDGE * np.eye(layout.shared)

    def value(sums: LogitSums) -> float:
        return sums.log_likelihood - 0.5 * float(sums.theta @ penalty @ sums.theta)

    sums = evaluate(np.zeros(layout.dim))
    for _ in range(MOST_PASSES):
        slope = sums.gradient.sum(axis=0) - penalty @ sums.theta
        step = np.linalg.solve(sums.information.sum(axis=0) + penalty, slope)
        if np.abs(step).max() < SMALLEST_STEP:
            break
        before = value(sums)
        for _ in range(HALVINGS):
            ahead = evaluate(sums.theta + step)
            if value(ahead) > before:
                break
            step = 0.5 * step
        else:
            break
        sums = ahead
    return sums
