"""The same four hypotheses for an AutoISD that learns its noise: fewer members, wider doubts.

The scale of all coefficients, and the baseline, may be wrong even if nothing else is; where the logs' signal is weaker
than their noise, breaks and flat priors are as wide as the noise could hide.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.decomposition.prior import DriftPrior
from invariant_bandits.policies.hypotheses import (
    BASELINE_RATE,
    BREAK_SIZES,
    FLAT,
    HYPOTHESES,
    HYPOTHESIS_WEIGHTS,
    USELESS_RATES,
    Member,
)

SCALE_DOUBT = 0.25
DRIFTS = (
    *((0.25, 0.0), (1.0, 0.0), (4.0, 0.0), (16.0, 0.0), (1.0, 1e-3)),
    *((1.0, 1e-2), (4.0, 1e-2), (4.0, 5e-2), (16.0, 5e-2)),
)
"""(factor on the logs' drift, steps per round in units of it)."""
BASELINE_OF_BROKEN = 0.5
STILL, WRONG, MOVING = (0.0, 0.0), (0.0, 10.0), (BASELINE_RATE, 0.0)
"""How a baseline may behave: (steps per round, further doubt), both in units of the noise variance."""
CORE_BASELINES = {False: ((0.88, STILL), (0.10, WRONG), (0.02, MOVING)), True: ((0.8, MOVING), (0.2, STILL))}
OTHER_BASELINES = {False: ((1.0, STILL),), True: ((1.0, MOVING),)}
"""Whether the baseline moved in the logs -> (share, how it behaves), for the likeliest members and for the others."""
LEAST_TEMPER = 0.1
WEAKEST_SIGNAL = 1e-4
WEAK_SIGNAL_WEIGHTS = (0.8, 0.17, 0.02, 0.01)


def temper(prior: DriftPrior) -> float:
    """How far likelihoods may be trusted to tell the hypotheses apart: 1, or less where a moving baseline and a signal
    weaker than the noise let greedy choices mislead them.
    """
    if not prior.baseline_moves:
        return 1.0
    return float(np.clip(prior.signal_variance / prior.noise_variance, LEAST_TEMPER, 1.0))


def hypothesis_weights(prior: DriftPrior) -> Array:
    """Prior probabilities of HYPOTHESES; the weaker the signal that tells them apart, the more "nothing changed"."""
    trust = (temper(prior) - LEAST_TEMPER) / (1.0 - LEAST_TEMPER)
    return trust * np.array(HYPOTHESIS_WEIGHTS) + (1.0 - trust) * np.array(WEAK_SIGNAL_WEIGHTS)


def robust_members(prior: DriftPrior, *, intercept: bool) -> list[Member]:
    """The members of the four hypotheses where the noise is learned, with what they believe of the reward baseline.

    Sizes are in units of the data: drift in those of the logs, breaks and flat priors in `prior.unit`, the typical
    squared coefficient along each direction, and in that which the noise could hide, where the logs' signal is weaker
    than their noise.
    """
    result = []
    for hypothesis, weight in zip(HYPOTHESES, hypothesis_weights(prior), strict=True):
        members = list(_coefficients(hypothesis, prior))
        for mean, covariance, process, core in members:
            share = float(weight) / len(members)
            if intercept:
                result += _with_baseline(hypothesis, share, mean, covariance, process, core, prior)
            else:
                result.append(Member(hypothesis, share, mean, covariance, process))
    return result


def _coefficients(hypothesis: str, prior: DriftPrior) -> Iterator[tuple[Array, Array, Array, bool]]:
    """Mean, covariance and process variances of every member, and whether it is one of the likeliest."""
    still = np.zeros(len(prior.mean))
    drift, units = np.diag(prior.drift), _units(prior)
    if hypothesis == "nothing changed":
        yield prior.pooled, prior.pooled_covariance, still, True
        scaled = SCALE_DOUBT * np.outer(prior.pooled, prior.pooled)
        yield prior.pooled, prior.pooled_covariance + scaled, still, True
    elif hypothesis == "drift as in the logs":
        for factor, rate in DRIFTS:
            core = rate == 0.0 and factor in (1.0, 4.0)
            yield prior.mean, factor * drift + prior.mean_covariance, rate * factor * prior.drift, core
    elif hypothesis == "invariance broken":
        for size in BREAK_SIZES:
            for unit in units:
                yield prior.mean, 4.0 * drift + prior.mean_covariance + size * np.diag(unit), still, False
    else:
        for rate in USELESS_RATES:
            yield still, FLAT * np.diag(prior.unit), rate * prior.unit, False
        for unit in units[1:]:
            yield still, FLAT * np.diag(unit), still, False


def _units(prior: DriftPrior) -> list[Array]:
    """Typical squared coefficients (p,): the logs', and those that would be as strong as noise that hides them."""
    if prior.noise_variance <= prior.signal_variance:
        return [prior.unit]
    weakest = max(prior.signal_variance, WEAKEST_SIGNAL * prior.noise_variance)
    return [prior.unit, prior.unit * (prior.noise_variance / weakest)]


def _with_baseline(
    hypothesis: str, weight: float, mean: Array, covariance: Array, process: Array, core: bool, prior: DriftPrior
) -> list[Member]:
    """The member with every way in which its baseline may behave."""
    noise = prior.noise_variance
    level, doubt = prior.baseline, prior.baseline_error
    if hypothesis == "logs useless":
        level, doubt = 0.0, FLAT * noise + prior.baseline**2
    elif hypothesis != "nothing changed":
        doubt += prior.baseline_variance
    if hypothesis == "invariance broken":
        doubt += BASELINE_OF_BROKEN * noise
    d = len(mean) + 1
    found = []
    for share, (step, further) in (CORE_BASELINES if core else OTHER_BASELINES)[prior.baseline_moves]:
        wide = np.zeros((d, d))
        wide[:-1, :-1] = covariance
        wide[-1, -1] = doubt + further * noise
        start = np.append(mean, level)
        found.append(Member(hypothesis, weight * share, start, wide, np.append(process, step * noise)))
    return found
