"""What may have changed since the logs: the hypotheses that AutoISD weighs, each with one or more members.

A member is a Gaussian belief that may wander. Coordinates: along the columns of the prior's basis, then the reward
baseline, if it is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

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


class Baseline(NamedTuple):
    """One way in which the reward baseline of a member may behave; step and doubt in units of the noise variance."""

    share: float
    step: float = 0.0
    doubt: float = 0.0


class Coefficients(NamedTuple):
    """Coefficients of a member: mean (p,), covariance (p, p), process variances (p,); and how its baseline behaves."""

    mean: Array
    covariance: Array
    process: Array
    baselines: Sequence[Baseline]


def build_members(
    prior: DriftPrior,
    weights: Sequence[float],
    beliefs: Callable[[str, DriftPrior], Iterator[Coefficients]],
    *,
    intercept: bool,
) -> list[Member]:
    """Members of HYPOTHESES with these prior probabilities; the beliefs of one hypothesis share its weight equally.

    If there is a baseline, every belief becomes one member for each way in which its baseline may behave.
    """
    result: list[Member] = []
    for hypothesis, weight in zip(HYPOTHESES, weights, strict=True):
        found = list(beliefs(hypothesis, prior))
        for belief in found:
            share = weight / len(found)
            if intercept:
                result += _with_baseline(hypothesis, share, belief, prior)
            else:
                result.append(Member(hypothesis, share, belief.mean, belief.covariance, belief.process))
    return result


def _with_baseline(hypothesis: str, weight: float, belief: Coefficients, prior: DriftPrior) -> Iterator[Member]:
    noise = prior.noise_variance
    level, doubt = prior.baseline, prior.baseline_error
    if hypothesis == "logs useless":
        level, doubt = 0.0, FLAT * noise + prior.baseline**2
    elif hypothesis != "nothing changed":
        doubt += prior.baseline_variance
    d = len(belief.mean) + 1
    for one in belief.baselines:
        wide = np.zeros((d, d))
        wide[:-1, :-1] = belief.covariance
        wide[-1, -1] = doubt + one.doubt * noise
        process = np.append(belief.process, one.step * noise)
        yield Member(hypothesis, weight * one.share, np.append(belief.mean, level), wide, process)


def default_members(prior: DriftPrior, *, intercept: bool) -> list[Member]:
    """The members of AutoISD's four hypotheses; if there is a baseline, each with a moving and a still one.

    Sizes are in units of the data: drift in those of the logs, breaks and flat priors in `prior.unit`, the typical
    squared coefficient along each direction.
    """
    return build_members(prior, HYPOTHESIS_WEIGHTS, _beliefs, intercept=intercept)


def _beliefs(hypothesis: str, prior: DriftPrior) -> Iterator[Coefficients]:
    still = np.zeros(len(prior.mean))
    drift, unit = np.diag(prior.drift), np.diag(prior.unit)
    moving = MOVING_BASELINE_WEIGHT[prior.baseline_moves]
    baselines = (Baseline(moving, step=BASELINE_RATE), Baseline(1.0 - moving))
    if hypothesis == "nothing changed":
        yield Coefficients(prior.pooled, prior.pooled_covariance, still, baselines)
    elif hypothesis == "drift as in the logs":
        for factor in DRIFT_FACTORS:
            for rate in DRIFT_RATES:
                spread = factor * drift + prior.mean_covariance
                yield Coefficients(prior.mean, spread, rate * factor * prior.drift, baselines)
    elif hypothesis == "invariance broken":
        for size in BREAK_SIZES:
            yield Coefficients(prior.mean, 4.0 * drift + prior.mean_covariance + size * unit, still, baselines)
    else:
        for rate in USELESS_RATES:
            yield Coefficients(still, FLAT * unit, rate * prior.unit, baselines)
