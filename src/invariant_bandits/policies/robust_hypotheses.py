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
    HYPOTHESIS_WEIGHTS,
    USELESS_RATES,
    Baseline,
    Coefficients,
    Member,
    build_members,
)

SCALE_DOUBT = 0.25
DRIFTS = (
    *((0.25, 0.0), (1.0, 0.0), (4.0, 0.0), (16.0, 0.0), (1.0, 1e-3)),
    *((1.0, 1e-2), (4.0, 1e-2), (4.0, 5e-2), (16.0, 5e-2)),
)
"""(factor on the logs' drift, steps per round in units of it)."""
CORE_BASELINES = {
    False: (Baseline(0.88), Baseline(0.10, doubt=10.0), Baseline(0.02, step=BASELINE_RATE)),
    True: (Baseline(0.8, step=BASELINE_RATE), Baseline(0.2)),
}
OTHER_BASELINES = {False: (Baseline(1.0),), True: (Baseline(1.0, step=BASELINE_RATE),)}
BROKEN_BASELINES = {False: (Baseline(1.0, doubt=0.5),), True: (Baseline(1.0, step=BASELINE_RATE, doubt=0.5),)}
"""Whether the baseline moved in the logs -> how it may behave: in the likeliest members, others, broken ones."""
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
    return build_members(prior, hypothesis_weights(prior).tolist(), _beliefs, intercept=intercept)


def _beliefs(hypothesis: str, prior: DriftPrior) -> Iterator[Coefficients]:
    still = np.zeros(len(prior.mean))
    drift, units = np.diag(prior.drift), _units(prior)
    core, other, broken = (one[prior.baseline_moves] for one in (CORE_BASELINES, OTHER_BASELINES, BROKEN_BASELINES))
    if hypothesis == "nothing changed":
        yield Coefficients(prior.pooled, prior.pooled_covariance, still, core)
        scaled = SCALE_DOUBT * np.outer(prior.pooled, prior.pooled)
        yield Coefficients(prior.pooled, prior.pooled_covariance + scaled, still, core)
    elif hypothesis == "drift as in the logs":
        for factor, rate in DRIFTS:
            likeliest = rate == 0.0 and factor in (1.0, 4.0)
            spread = factor * drift + prior.mean_covariance
            yield Coefficients(prior.mean, spread, rate * factor * prior.drift, core if likeliest else other)
    elif hypothesis == "invariance broken":
        for size in BREAK_SIZES:
            for unit in units:
                spread = 4.0 * drift + prior.mean_covariance + size * np.diag(unit)
                yield Coefficients(prior.mean, spread, still, broken)
    else:
        for rate in USELESS_RATES:
            yield Coefficients(still, FLAT * np.diag(prior.unit), rate * prior.unit, other)
        for unit in units[1:]:
            yield Coefficients(still, FLAT * np.diag(unit), still, other)


def _units(prior: DriftPrior) -> list[Array]:
    """Typical squared coefficients (p,): the logs', and those that would be as strong as noise that hides them."""
    if prior.noise_variance <= prior.signal_variance:
        return [prior.unit]
    weakest = max(prior.signal_variance, WEAKEST_SIGNAL * prior.noise_variance)
    return [prior.unit, prior.unit * (prior.noise_variance / weakest)]
