"""What may have changed since the logs: the hypotheses that AutoISD weighs, each with one or more members.

A member is a Gaussian belief that may wander. Coordinates: along the columns of the prior's basis, then the reward
baseline, if it is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from invariant_bandits.checks import Array, InputError
from invariant_bandits.decomposition.arm_prior import ArmPrior
from invariant_bandits.decomposition.drift_prior import DriftPrior

HYPOTHESES = ("nothing changed", "drift as in the logs", "invariance broken", "logs useless")
HYPOTHESIS_WEIGHTS = (0.1, 0.6, 0.2, 0.1)
INVARIANCE_HOLDS = HYPOTHESES[:2]

SCALE_DOUBT = 0.25
"""Variance of the scale of all coefficients together, in the second member of "nothing changed"."""
DRIFTS = (
    *((0.25, 0.0), (1.0, 0.0), (4.0, 0.0), (16.0, 0.0), (1.0, 1e-3)),
    *((1.0, 1e-2), (4.0, 1e-2), (4.0, 5e-2), (16.0, 5e-2)),
)
"""(factor on the logs' drift, steps per round in units of it)."""
CONTINUING = 0.2
"""Part of the weight of drift that goes to drift which goes on from where the logs ended."""
BREAK_SIZES = (0.05, 0.5)
LARGE_BREAK = 2.0
FLAT, VERY_FLAT = 10.0, 30.0
USELESS_RATES = (1e-3, 1e-2)

BASELINE_RATE = 0.02
BASELINE_DOUBT = 10.0
BROKEN_BASELINE_DOUBT = 0.5

LEAST_TEMPER = 0.1
WEAKEST_SIGNAL = 1e-4
WEAK_SIGNAL_WEIGHTS = (0.8, 0.17, 0.02, 0.01)


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
    settled : bool
        Whether it trusts the logs' model, its baseline included; probability lost by such members is reason for tests.
    """

    hypothesis: str
    weight: float
    mean: Array
    covariance: Array
    process: Array
    settled: bool = False

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


CORE_BASELINES = {
    False: (Baseline(0.88), Baseline(0.10, doubt=BASELINE_DOUBT), Baseline(0.02, step=BASELINE_RATE)),
    True: (Baseline(0.8, step=BASELINE_RATE), Baseline(0.2)),
}
STILL_BASELINE = (Baseline(1.0),)
OTHER_BASELINES = {False: STILL_BASELINE, True: (Baseline(1.0, step=BASELINE_RATE),)}
BROKEN_BASELINES = {
    False: (Baseline(1.0, doubt=BROKEN_BASELINE_DOUBT),),
    True: (Baseline(1.0, step=BASELINE_RATE, doubt=BROKEN_BASELINE_DOUBT),),
}
"""Whether the baseline moved in the logs -> how it may behave: in the likeliest members, others, broken ones."""


class Level(Protocol):
    """What a prior says of the reward baseline."""

    @property
    def level_unit(self) -> float:
        """What steps and doubts of the baseline are measured in, a variance."""

    @property
    def baseline(self) -> float:
        """Where the logs have it."""

    @property
    def baseline_error(self) -> float:
        """Sampling variance of that."""

    @property
    def baseline_variance(self) -> float:
        """Variance between windows."""

    @property
    def baseline_moves(self) -> bool:
        """Whether it moved in the logs."""


class Coefficients(NamedTuple):
    """Coefficients of a member: mean (p,), covariance (p, p), process variances (p,); and how its baseline behaves.

    share: its part of the weight of its hypothesis, up to a factor.
    """

    mean: Array
    covariance: Array
    process: Array
    baselines: Sequence[Baseline]
    share: float = 1.0


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


def default_members(prior: DriftPrior, *, intercept: bool) -> list[Member]:
    """The members of AutoISD's four hypotheses, each with what it believes of the reward baseline.

    Sizes are in units of the data: drift in those of the logs, breaks and flat priors in `prior.unit`, the typical
    squared coefficient along each direction, and in that which the noise could hide, where the logs' signal is weaker
    than their noise. The first member of "logs useless" knows online rounds alone, and nothing in it moves.
    """
    beliefs = [list(_beliefs(hypothesis, prior)) for hypothesis in HYPOTHESES]
    return weighed(prior, hypothesis_weights(prior).tolist(), beliefs, intercept=intercept)


def weighed(
    prior: Level, weights: Sequence[float], beliefs: Sequence[Sequence[Coefficients]], *, intercept: bool
) -> list[Member]:
    """Members of HYPOTHESES with these prior probabilities and beliefs, the reward baseline added if it is kept."""
    result: list[Member] = []
    for hypothesis, weight, of in zip(HYPOTHESES, weights, beliefs, strict=True):
        total = sum(one.share for one in of)
        for belief in of:
            share = float(weight) * belief.share / total
            if intercept:
                result += _with_baseline(hypothesis, share, belief, prior)
            else:
                settled = hypothesis in INVARIANCE_HOLDS
                result.append(Member(hypothesis, share, belief.mean, belief.covariance, belief.process, settled))
    return result


def _with_baseline(hypothesis: str, weight: float, belief: Coefficients, prior: Level) -> Iterator[Member]:
    noise = prior.level_unit
    level, doubt = prior.baseline, prior.baseline_error
    if hypothesis == "logs useless":
        level, doubt = 0.0, VERY_FLAT * noise + prior.baseline**2
    elif hypothesis != "nothing changed":
        doubt += prior.baseline_variance
    d = len(belief.mean) + 1
    for one in belief.baselines:
        wide = np.zeros((d, d))
        wide[:-1, :-1] = belief.covariance
        wide[-1, -1] = doubt + one.doubt * noise
        process = np.append(belief.process, one.step * noise)
        settled = hypothesis in INVARIANCE_HOLDS and not one.doubt and (prior.baseline_moves or not one.step)
        yield Member(hypothesis, weight * one.share, np.append(belief.mean, level), wide, process, settled)


def _beliefs(hypothesis: str, prior: DriftPrior) -> Iterator[Coefficients]:
    kinds = {
        "nothing changed": _unchanged,
        "drift as in the logs": _drifted,
        "invariance broken": _broken,
        "logs useless": _useless,
    }
    return kinds[hypothesis](prior)


def _unchanged(prior: DriftPrior) -> Iterator[Coefficients]:
    still, core = np.zeros(len(prior.mean)), CORE_BASELINES[prior.baseline_moves]
    yield Coefficients(prior.pooled, prior.pooled_covariance, still, core)
    scaled = SCALE_DOUBT * np.outer(prior.pooled, prior.pooled)
    yield Coefficients(prior.pooled, prior.pooled_covariance + scaled, still, core)


def _drifted(prior: DriftPrior) -> Iterator[Coefficients]:
    """Coefficients drawn afresh as those of a window; and, if the logs tell, going on from where they ended."""
    core, other = CORE_BASELINES[prior.baseline_moves], OTHER_BASELINES[prior.baseline_moves]
    for factor, rate in DRIFTS:
        likeliest = rate == 0.0 and factor in (1.0, 4.0)
        spread = factor * np.diag(prior.drift) + prior.mean_covariance
        yield Coefficients(prior.mean, spread, rate * factor * prior.drift, core if likeliest else other)
    goes_on = len(prior.last_means)
    for mean, covariance, step in zip(prior.last_means, prior.last_covariances, prior.last_steps, strict=True):
        yield Coefficients(mean, covariance, step, other, len(DRIFTS) * CONTINUING / (1.0 - CONTINUING) / goes_on)


def _broken(prior: DriftPrior) -> Iterator[Coefficients]:
    still, units = np.zeros(len(prior.mean)), break_units(prior)
    sizes = [(size, unit) for size in BREAK_SIZES for unit in units]
    for size, unit in [*sizes, (LARGE_BREAK, prior.unit)]:
        spread = 4.0 * np.diag(prior.drift) + prior.mean_covariance + size * np.diag(unit)
        yield Coefficients(prior.mean, spread, still, BROKEN_BASELINES[prior.baseline_moves])


def _useless(prior: DriftPrior) -> Iterator[Coefficients]:
    still, other = np.zeros(len(prior.mean)), OTHER_BASELINES[prior.baseline_moves]
    yield Coefficients(still, VERY_FLAT * np.diag(break_units(prior)[-1]), still, STILL_BASELINE)
    yield Coefficients(still, np.diag(prior.unit), still, other)
    for rate in USELESS_RATES:
        yield Coefficients(still, FLAT * np.diag(prior.unit), rate * prior.unit, other)
    for unit in break_units(prior)[1:]:
        yield Coefficients(still, FLAT * np.diag(unit), still, other)


def break_units(prior: DriftPrior) -> list[Array]:
    """Typical squared coefficients (p,): the logs', and those that would be as strong as noise that hides them."""
    if prior.noise_variance <= prior.signal_variance:
        return [prior.unit]
    weakest = max(prior.signal_variance, WEAKEST_SIGNAL * prior.noise_variance)
    return [prior.unit, prior.unit * (prior.noise_variance / weakest)]


ARM_WEIGHTS = (0.1, 0.6, 0.2, 0.1)
RECENT = 0.5
"""Part of the weight of drift that goes to coefficients as they were in the last window."""
RECENT_RATES = (0.0, 1e-4, 1e-3, 1e-2)


def members_of(prior: DriftPrior | ArmPrior, *, intercept: bool) -> list[Member]:
    """The members that a policy starts with."""
    if isinstance(prior, DriftPrior):
        return default_members(prior, intercept=intercept)
    kinds = (
        _unchanged_arm_hypotheses(prior),
        _drifted_arm_hypotheses(prior),
        _broken_arm_hypotheses(prior),
        _useless_arm_hypotheses(prior),
    )
    return weighed(prior, ARM_WEIGHTS, [list(one) for one in kinds], intercept=intercept)


def _unchanged_arm_hypotheses(prior: ArmPrior) -> Iterator[Coefficients]:
    still, core = np.zeros(prior.layout.dim), CORE_BASELINES[prior.baseline_moves]
    yield Coefficients(prior.pooled, prior.pooled_covariance + prior.level_drift, still, core)


def _drifted_arm_hypotheses(prior: ArmPrior) -> Iterator[Coefficients]:
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


def _broken_arm_hypotheses(prior: ArmPrior) -> Iterator[Coefficients]:
    still = np.zeros(prior.layout.dim)
    for size in (*BREAK_SIZES, LARGE_BREAK):
        spread = prior.mean_covariance + 4.0 * prior.drift + prior.level_drift + size * np.diag(prior.unit)
        yield Coefficients(prior.mean, spread, still, BROKEN_BASELINES[prior.baseline_moves])


def _useless_arm_hypotheses(prior: ArmPrior) -> Iterator[Coefficients]:
    """All arms alike, at what is usual of an arm, and very open."""
    still, other = np.zeros(prior.layout.dim), OTHER_BASELINES[prior.baseline_moves]
    groups, usual = prior.layout.groups, prior.usual_arm
    together = np.maximum(usual**2, prior.spread)
    together[0] = prior.level_unit
    spread = FLAT * (np.diag(prior.unit) + (groups * together) @ groups.T)
    yield Coefficients(groups @ usual, spread, still, STILL_BASELINE)
    for rate in USELESS_RATES:
        yield Coefficients(groups @ usual, spread, rate * prior.unit, other)
