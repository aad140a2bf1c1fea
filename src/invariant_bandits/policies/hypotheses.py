"""What may have changed since the logs: the hypotheses that AutoISD weighs, each with one or more members.

A member is a Gaussian belief that may wander. Coordinates: along the columns of the prior's basis, then the
reward baseline, if it is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import special

from invariant_bandits.checks import Array, InputError
from invariant_bandits.decomposition.drift_prior import DriftPrior

HYPOTHESES = ("nothing changed", "drift as in the logs", "invariance broken", "logs useless")
HYPOTHESIS_WEIGHTS = (0.1, 0.6, 0.2, 0.1)
INVARIANCE_HOLDS = HYPOTHESES[:2]

DRIFTS = (
    *((0.25, 0.0), (1.0, 0.0), (4.0, 0.0), (16.0, 0.0), (1.0, 1e-3)),
    *((1.0, 1e-2), (4.0, 1e-2), (4.0, 5e-2), (16.0, 5e-2)),
)
"""(factor on the logs' drift, steps per round in units of it)."""
BREAK_SIZES = (0.05, 0.5)
LARGE_BREAK = 2.0
FLAT, VERY_FLAT = 10.0, 30.0
USELESS_RATES = (1e-3, 1e-2)


class Sizes(NamedTuple):
    """What was chosen by a study of its own for coefficients of features, and for those of labelled arms.

    continuing: part of the weight of drift that goes to drift which goes on from where the logs ended.
    widest, others: factors on the typical square of a coefficient in the still members of "logs useless", the
    first and the rest.
    """

    continuing: float
    widest: float
    others: tuple[float, ...]


FEATURE_SIZES = Sizes(continuing=0.2, widest=VERY_FLAT, others=(1.0,))
ARM_SIZES = Sizes(continuing=0.5, widest=FLAT, others=())

BASELINE_RATE = 0.02
BASELINE_DOUBT = 10.0
BROKEN_BASELINE_DOUBT = 0.5

LEAST_TRUST = 0.1
SIGNAL_LEVEL = 0.9
WEAKEST_SIGNAL = 1e-9
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
    trusts_logs : bool
        Whether it trusts the logs' model, its baseline included; probability lost by such members is reason
        for tests.
    """

    hypothesis: str
    weight: float
    mean: Array
    covariance: Array
    process: Array
    trusts_logs: bool = False

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
    """One way in which the reward baseline of a member may behave; step and doubt in units of the noise
    variance.
    """

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
"""Whether the baseline moved in the logs -> how it may behave: in the likeliest members, others, broken ones.
"""


class CoefficientBelief(NamedTuple):
    """Coefficients of a member: mean (p,), covariance (p, p), process variances (p,); and how its baseline
    behaves.

    share: its part of the weight of its hypothesis, up to a factor.
    """

    mean: Array
    covariance: Array
    process: Array
    baselines: Sequence[Baseline]
    share: float = 1.0


def trust(prior: DriftPrior) -> float:
    """How far likelihoods may be trusted to tell the hypotheses apart, from 0.1 to 1.

    The weaker the logs' signal is against their noise, the more greedy choices mislead the likelihoods. 1 if
    there is no signal to protect.
    """
    if prior.signal_variance is None or _has_no_signal(prior):
        return 1.0
    return float(np.clip((prior.signal_variance / prior.noise_variance) ** 2, LEAST_TRUST, 1.0))


def _has_no_signal(prior: DriftPrior) -> bool:
    """Whether the logs' pooled coefficients could all be 0."""
    size = float(prior.pooled @ np.linalg.pinv(prior.pooled_covariance, hermitian=True) @ prior.pooled)
    return size < 2.0 * float(special.gammaincinv(0.5 * len(prior.pooled), SIGNAL_LEVEL))  # of χ²_p


def hypothesis_weights(prior: DriftPrior) -> Array:
    """Prior probabilities of HYPOTHESES; the weaker the signal that tells them apart, the more "nothing
    changed".
    """
    share = (trust(prior) - LEAST_TRUST) / (1.0 - LEAST_TRUST)
    return share * np.array(HYPOTHESIS_WEIGHTS) + (1.0 - share) * np.array(WEAK_SIGNAL_WEIGHTS)


def default_members(prior: DriftPrior, *, intercept: bool) -> list[Member]:
    """The members of AutoISD's four hypotheses, each with what it believes of the reward baseline.

    Sizes are in units of the data: drift in those of the logs, breaks and flat priors in `prior.unit`, the
    typical squared coefficient along each direction, and in that which the noise could hide, where the logs'
    signal is weaker than their noise. The first member of "logs useless" knows online rounds alone, and
    nothing in it moves.
    """
    sizes = FEATURE_SIZES if prior.population is None else ARM_SIZES
    beliefs = (_unchanged(prior), _drifting(prior, sizes), _broken(prior), _useless(prior, sizes))
    result: list[Member] = []
    for hypothesis, weight, members in zip(
        HYPOTHESES, hypothesis_weights(prior).tolist(), beliefs, strict=True
    ):
        coefficients = list(members)
        total = sum(belief.share for belief in coefficients)
        for belief in coefficients:
            share = float(weight) * belief.share / total
            if intercept:
                result += _with_baseline(hypothesis, share, belief, prior)
            else:
                trusts_logs = hypothesis in INVARIANCE_HOLDS
                result.append(
                    Member(hypothesis, share, belief.mean, belief.covariance, belief.process, trusts_logs)
                )
    return result


def _with_baseline(
    hypothesis: str, weight: float, belief: CoefficientBelief, prior: DriftPrior
) -> Iterator[Member]:
    noise = prior.level_unit
    level, doubt = prior.baseline, prior.baseline_error
    if hypothesis == "logs useless":
        level, doubt = 0.0, VERY_FLAT * noise + prior.baseline**2
    elif hypothesis != "nothing changed":
        doubt += prior.baseline_variance
    d = len(belief.mean) + 1
    for kind in belief.baselines:
        wide = np.zeros((d, d))
        wide[:-1, :-1] = belief.covariance
        wide[-1, -1] = doubt + kind.doubt * noise
        process = np.append(belief.process, kind.step * noise)
        trusts_logs = (
            hypothesis in INVARIANCE_HOLDS and not kind.doubt and (prior.baseline_moves or not kind.step)
        )
        yield Member(
            hypothesis, weight * kind.share, np.append(belief.mean, level), wide, process, trusts_logs
        )


def _unchanged(prior: DriftPrior) -> Iterator[CoefficientBelief]:
    spread = prior.pooled_covariance + prior.common_drift
    yield CoefficientBelief(
        prior.pooled, spread, np.zeros(len(prior.mean)), CORE_BASELINES[prior.baseline_moves]
    )


def _drifting(prior: DriftPrior, sizes: Sizes) -> Iterator[CoefficientBelief]:
    """Coefficients drawn afresh as those of a window; and going on from where the logs ended, if that is
    known.
    """
    core, other = CORE_BASELINES[prior.baseline_moves], OTHER_BASELINES[prior.baseline_moves]
    for factor, rate in DRIFTS:
        likeliest = rate == 0.0 and factor in (1.0, 4.0)
        spread = prior.mean_covariance + factor * prior.drift_covariance + prior.common_drift
        yield CoefficientBelief(prior.mean, spread, rate * factor * prior.drift, core if likeliest else other)
    ways = prior.last_steps.shape[0] * prior.last_steps.shape[1]
    for mean, covariance, steps in zip(
        prior.last_means, prior.last_covariances, prior.last_steps, strict=True
    ):
        share = len(DRIFTS) * sizes.continuing / (1.0 - sizes.continuing) / ways
        yield from (CoefficientBelief(mean, covariance, step, other, share) for step in steps)


def _broken(prior: DriftPrior) -> Iterator[CoefficientBelief]:
    still, units = np.zeros(len(prior.mean)), break_units(prior)
    sizes = [(size, unit) for size in BREAK_SIZES for unit in units]
    known = prior.mean_covariance + 4.0 * prior.drift_covariance + prior.common_drift
    for size, unit in [*sizes, (LARGE_BREAK, prior.unit)]:
        spread = known + size * np.diag(unit)
        yield CoefficientBelief(prior.mean, spread, still, BROKEN_BASELINES[prior.baseline_moves])


def _useless(prior: DriftPrior, sizes: Sizes) -> Iterator[CoefficientBelief]:
    still, other = np.zeros(len(prior.mean)), OTHER_BASELINES[prior.baseline_moves]
    typical, *hidden = break_units(prior)
    mean, widest = prior.unlogged([typical, *hidden][-1])
    yield CoefficientBelief(mean, sizes.widest * widest, still, STILL_BASELINE)
    _, spread = prior.unlogged(typical)
    for factor in sizes.others:
        yield CoefficientBelief(mean, factor * spread, still, other)
    for rate in USELESS_RATES:
        yield CoefficientBelief(mean, FLAT * spread, rate * typical, other)
    for unit in hidden:
        yield CoefficientBelief(mean, FLAT * prior.unlogged(unit)[1], still, other)


def break_units(prior: DriftPrior) -> list[Array]:
    """Typical squared coefficients (p,): the logs', and those that would be as strong as noise that hides
    them.
    """
    signal = prior.signal_variance
    if signal is None or prior.noise_variance <= signal:
        return [prior.unit]
    weakest = max(signal, WEAKEST_SIGNAL * prior.noise_variance)
    return [prior.unit, prior.unit * (prior.noise_variance / weakest)]
