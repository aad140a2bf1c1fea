"""What may have changed since the logs: the hypotheses that AutoISD weighs, each with one or more members.

A member is a Gaussian belief that may wander. Coordinates: along the columns of the prior's basis, then the reward
baseline, if it is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from invariant_bandits.checks import Array, InputError
from invariant_bandits.decomposition.prior import DriftPrior

HYPOTHESES = ("nothing changed", "drift as in the logs", "invariance broken", "logs useless")
HYPOTHESIS_WEIGHTS = (0.1, 0.6, 0.2, 0.1)
INVARIANCE_HOLDS = HYPOTHESES[:2]

DRIFT_FACTORS = (1.0, 4.0, 16.0)
DRIFT_RATES = (0.0, 1e-3, 1e-2, 5e-2)
BREAK_SIZES = (0.05, 0.5)
USELESS_RATES = (0.0, 1e-3, 1e-2)
FLAT = 10.0

BASELINE_RATE = 0.02
MOVING_BASELINE_WEIGHT = {True: 0.8, False: 0.02}


@dataclass(frozen=True, eq=False)
class Member:
    """Coefficients start as N(mean, covariance) and wander by N(0, diag(process)) each round.

    Parameters
    ----------
    hypothesis : str
        Which of HYPOTHESES it belongs to.
    weight : float
        Its prior probability.
    mean : (d,)
    covariance : (d, d)
    process : (d,)
        Variances of the steps.
    """

    hypothesis: str
    weight: float
    mean: Array
    covariance: Array
    process: Array

    def __post_init__(self) -> None:
        d = len(self.mean)
        if self.covariance.shape != (d, d) or self.process.shape != (d,):
            raise InputError(
                f"a member over {d} coordinates needs covariance ({d}, {d}) and process ({d},),"
                f" got {self.covariance.shape} and {self.process.shape}"
            )
        if not self.weight > 0 or (self.process < 0).any():
            raise InputError("a member needs a positive weight and process variances of at least 0")
        if self.hypothesis not in HYPOTHESES:
            raise InputError(f"hypothesis must be one of {', '.join(HYPOTHESES)}, got {self.hypothesis!r}")


def default_members(prior: DriftPrior, *, intercept: bool) -> list[Member]:
    """The members of AutoISD's four hypotheses; if there is a baseline, each with a still and a moving one.

    Sizes are in units of the data: drift in those of the logs, breaks and flat priors in `prior.unit`, the typical
    squared coefficient along each direction.
    """
    result = []
    for hypothesis, weight in zip(HYPOTHESES, HYPOTHESIS_WEIGHTS, strict=True):
        members = list(_coefficients(hypothesis, prior))
        for mean, covariance, process in members:
            share = weight / len(members)
            if intercept:
                result += _with_baseline(hypothesis, share, mean, covariance, process, prior)
            else:
                result.append(Member(hypothesis, share, mean, covariance, process))
    return result


def _coefficients(hypothesis: str, prior: DriftPrior) -> Iterator[tuple[Array, Array, Array]]:
    """Mean, covariance and process variances of the coefficients for every member of a hypothesis."""
    still = np.zeros(len(prior.mean))
    drift, unit = np.diag(prior.drift), np.diag(prior.unit)
    if hypothesis == "nothing changed":
        yield prior.pooled, prior.pooled_covariance, still
    elif hypothesis == "drift as in the logs":
        for factor in DRIFT_FACTORS:
            for rate in DRIFT_RATES:
                yield prior.mean, factor * drift + prior.mean_covariance, rate * factor * prior.drift
    elif hypothesis == "invariance broken":
        for size in BREAK_SIZES:
            yield prior.mean, 4.0 * drift + prior.mean_covariance + size * unit, still
    else:
        for rate in USELESS_RATES:
            yield still, FLAT * unit, rate * prior.unit


def _with_baseline(
    hypothesis: str, weight: float, mean: Array, covariance: Array, process: Array, prior: DriftPrior
) -> list[Member]:
    """The member with a baseline that moves, and with one that does not."""
    noise = prior.noise_variance
    if hypothesis == "logs useless":
        level, doubt = 0.0, FLAT * noise + prior.baseline**2
    elif hypothesis == "nothing changed":
        level, doubt = prior.baseline, prior.baseline_error
    else:
        level, doubt = prior.baseline, prior.baseline_error + prior.baseline_variance
    d = len(mean) + 1
    wide = np.zeros((d, d))
    wide[:-1, :-1] = covariance
    wide[-1, -1] = doubt
    moving = MOVING_BASELINE_WEIGHT[prior.baseline_moves]
    start = np.append(mean, level)
    return [
        Member(hypothesis, weight * moving, start, wide, np.append(process, BASELINE_RATE * noise)),
        Member(hypothesis, weight * (1.0 - moving), start, wide, np.append(process, 0.0)),
    ]
