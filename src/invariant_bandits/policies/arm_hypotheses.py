"""What may have changed since the logs, where actions are labelled arms: the members of AutoISD's four hypotheses.

Drift that all arms have in common is in every member but those that know nothing of the logs, and is never multiplied:
it moves no choice. Coordinates: as the prior's layout says, then the level of all rewards, if it is kept.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from invariant_bandits.decomposition.arm_prior import ArmPrior
from invariant_bandits.decomposition.prior import DriftPrior
from invariant_bandits.policies.hypotheses import (
    BREAK_SIZES,
    BROKEN_BASELINES,
    CORE_BASELINES,
    DRIFTS,
    FLAT,
    LARGE_BREAK,
    OTHER_BASELINES,
    STILL_BASELINE,
    USELESS_RATES,
    Coefficients,
    Member,
    default_members,
    weighed,
)

ARM_WEIGHTS = (0.1, 0.6, 0.2, 0.1)
RECENT = 0.5
"""Part of the weight of drift that goes to coefficients as they were in the last window."""
RECENT_RATES = (0.0, 1e-4, 1e-3, 1e-2)


def members_of(prior: DriftPrior | ArmPrior, *, intercept: bool) -> list[Member]:
    """The members that a policy starts with."""
    if isinstance(prior, DriftPrior):
        return default_members(prior, intercept=intercept)
    kinds = (_unchanged(prior), _drifted(prior), _broken(prior), _useless(prior))
    return weighed(prior, ARM_WEIGHTS, [list(one) for one in kinds], intercept=intercept)


def _unchanged(prior: ArmPrior) -> Iterator[Coefficients]:
    still, core = np.zeros(prior.layout.dim), CORE_BASELINES[prior.baseline_moves]
    yield Coefficients(prior.pooled, prior.pooled_covariance + prior.level_drift, still, core)


def _drifted(prior: ArmPrior) -> Iterator[Coefficients]:
    """Coefficients drawn afresh as those of a window; and those of the last window, which may go on moving."""
    core, other = CORE_BASELINES[prior.baseline_moves], OTHER_BASELINES[prior.baseline_moves]
    steps = np.maximum(np.diagonal(prior.drift), 0.0)
    for factor, rate in DRIFTS:
        likeliest = rate == 0.0 and factor in (1.0, 4.0)
        spread = prior.mean_covariance + factor * prior.drift + prior.level_drift
        yield Coefficients(prior.mean, spread, rate * factor * steps, core if likeliest else other)
    share = len(DRIFTS) * RECENT / (1.0 - RECENT) / len(RECENT_RATES)
    for rate in RECENT_RATES:
        yield Coefficients(prior.last_mean, prior.last_covariance, rate * steps, other, share)


def _broken(prior: ArmPrior) -> Iterator[Coefficients]:
    still = np.zeros(prior.layout.dim)
    for size in (*BREAK_SIZES, LARGE_BREAK):
        spread = prior.mean_covariance + 4.0 * prior.drift + prior.level_drift + size * np.diag(prior.unit)
        yield Coefficients(prior.mean, spread, still, BROKEN_BASELINES[prior.baseline_moves])


def _useless(prior: ArmPrior) -> Iterator[Coefficients]:
    """All arms alike, at what is usual of an arm, and very open."""
    still, other = np.zeros(prior.layout.dim), OTHER_BASELINES[prior.baseline_moves]
    groups, usual = prior.layout.groups, prior.usual_arm
    together = np.maximum(usual**2, prior.spread)
    together[0] = prior.level_unit
    spread = FLAT * (np.diag(prior.unit) + (groups * together) @ groups.T)
    yield Coefficients(groups @ usual, spread, still, STILL_BASELINE)
    for rate in USELESS_RATES:
        yield Coefficients(groups @ usual, spread, rate * prior.unit, other)
