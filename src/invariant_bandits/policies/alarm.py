"""The alarm: whether the online rounds contradict the logs' invariance, however the noise and the baseline
change.

It does not use the filters' likelihoods. Sums of the online rounds with coordinates z and reward r, about the
mean of the logs m₀ = [μ, b₀], are u = Σ z(r − zᵀm₀), G = Σ zzᵀ and B = Σ v(e²/S + 2l)zzᵀ, where e is the
error of prediction of the filter that knows online rounds alone, S = v + zᵀPz its variance, and v that of the
noise, so that E[ve²/S] = v. If the coefficients are μ + δ then u − Gδ has mean 0 and covariance Σ(ve²/S)zzᵀ,
also if the noise differs from that of the logs, has heavy tails, or grows with the reward. The leverage l =
zᵀPz/S is near 1 in the first rounds of a direction and adds up to the logarithm of their number: one square
says nothing of a variance, and a few tests of an arm that is always the same would otherwise raise false
alarms. The baseline is projected out of all three.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.decomposition.drift_prior import UNLIMITED, DriftPrior
from invariant_bandits.policies import mixture_kernels
from invariant_bandits.policies.mixture import break_units

kernels: Any = mixture_kernels  # compiled: its functions have no Python signature

FIRST_LOOK = 10
"""Rounds per coordinate before the first look at the evidence."""
LOOK_RATIO = 1.25
FEWEST_WINDOWS = 5
WORST_MISFIT = 3.1
SCALE_DOUBT = 0.01
"""Variance of the scale of all coefficients together."""
NEW_SCALES = (1.5, 4.0)
"""Factors on all coefficients and their drift that are no break, either: rewards on a steeper part of
their range.
"""
DRIFT_FACTORS, BREAK_SIZES = (1.0, 4.0, 16.0), (0.05, 0.5, 2.0, 10.0)
"""c and k of the breaks: drift in units of the logs', breaks in those of the typical squared coefficient."""
SEARCH_STEPS = 4
LEAST_VARIATION, SILENCED = 0.05, 1e4
ONLY_ROUNDING = 1e-9
"""A feature with less than this share of its square left once its mean is taken off has not varied."""


def next_look(rounds: int, dim: int) -> int:
    """The first round after `rounds` at which the evidence is looked at: 10·dim, then at every quarter
    more.
    """
    look = FIRST_LOOK * dim
    while look <= rounds:
        look = int(np.ceil(LOOK_RATIO * look))
    return look


class Alarm:
    """Whether the online rounds contradicted the logs' invariance at any look.

    The evidence is looked at after 10·d rounds, then at every quarter more.

    Parameters
    ----------
    prior : DriftPrior
        What the logs teach.
    level : float
        Probability of a false alarm, over all rounds together, if invariance holds.
    coordinates : int
        Number of coordinates d.
    rounds : int
        Rounds learned so far.
    peak_evidence : float
        Largest log evidence at the looks so far.
    """

    def __init__(
        self, prior: DriftPrior, level: float, coordinates: int, rounds: int = 0, peak_evidence: float = 0.0
    ) -> None:
        self.prior, self.level, self.coordinates = prior, level, coordinates
        self.peak_evidence = peak_evidence
        self.next_look = next_look(rounds, coordinates)

    def look(self, online: Array, rounds: int) -> None:
        """Look at the evidence of the sums `online` (2, d + 1, d + 1) after so many rounds."""
        self.next_look = next_look(rounds, self.coordinates)
        self.peak_evidence = max(self.peak_evidence, self.log_evidence(online))

    def log_evidence(self, online: Array) -> float:
        """Log of the likelihood ratio of broken against held invariance; 0 where the logs know no limit
        of drift.
        """
        return log_evidence(online, self.prior)

    @property
    def is_raised(self) -> bool:
        """Whether invariance was ever rejected; never, if the logs cannot support an alarm."""
        return not self.unsupported and self.peak_evidence >= float(np.log(1.0 / self.level))

    @property
    def unsupported(self) -> str:
        """Why these logs cannot support an alarm; empty if they can.

        They can if they have five windows or more that inform some direction, so that what they say of its
        drift has four degrees of freedom, and if the windows do not contradict drift along the basis
        (`drift_misfit` up to 3.1, one log in a thousand).
        """
        prior = self.prior
        if len(prior.drift_limit) != len(prior.drift):
            return "how far they drift from window to window is not known, as with labelled arms"
        if prior.windows < FEWEST_WINDOWS:
            return f"{prior.windows} windows say too little about drift, it takes {FEWEST_WINDOWS}"
        if len(prior.informing) and prior.informing.max() < FEWEST_WINDOWS:
            most = int(prior.informing.max())
            few = f"more than {most} of {prior.windows} windows, it takes {FEWEST_WINDOWS}"
            return f"no direction is informed by {few}"
        if prior.drift_misfit > WORST_MISFIT:
            return "their covariances do not show which directions drift"
        return ""


def log_evidence(online: Array, prior: DriftPrior) -> float:
    """Log of the likelihood ratio of broken against held invariance; online (2, d + 1, d + 1) as `gather`
    leaves it.

    Broken: u ~ N(0, B + G(C_μ + .01μμᵀ + diag(c·ω + k·unit))G), a mixture over c and k. Held: the likeliest
    of N(0, B + G(C_μ + .01μμᵀ + diag w)G), ω ≤ w ≤ ω⁺, all the drift that the windows could be hiding; and of
    the same with all coefficients and drift s times as large, if rewards ask for 1.5 ≤ s ≤ 4. A mixture over
    the largest of what it is tested against: if that contained the truth, and B were known, it would ever
    exceed 1/α with probability at most α (Ville 1939). Both hold only nearly: B is estimated, ω⁺ is a limit
    at 8 % for each direction, and four steps search for the largest. Directions in which the online rounds
    hardly vary do not count. 0 before the first look.
    """
    d, p = online.shape[1] - 1, len(prior.mean)
    if online[0, d, d] < FIRST_LOOK * d or len(prior.drift_limit) != p or not np.isfinite(online).all():
        return 0.0
    sums = np.tril(online) + np.tril(online, -1).swapaxes(1, 2)
    G, B, u = sums[0, :d, :d], sums[1, :d, :d], sums[0, d, :d]
    apart = np.eye(p, d)
    if d > p:
        apart[:, p] = -G[:p, p] / G[p, p]
    there = np.diagonal(G)[:p]
    u, G, B = apart @ u, (apart @ G)[:, :p], apart @ B @ apart.T
    constant = np.diagonal(G) <= ONLY_ROUNDING * there
    u[constant], G[constant], G[:, constant], B[constant], B[:, constant] = 0.0, 0.0, 0.0, 0.0, 0.0
    u, G, B = (np.ascontiguousarray(part) for part in (u, G, B))
    B = np.ascontiguousarray(B + _hardly_varied(G, B, float(online[0, d, d]), prior))
    doubt = G @ (prior.mean_covariance + SCALE_DOUBT * np.outer(prior.mean, prior.mean)) @ G
    broken = np.array([kernels.log_normal(u, G, extra, B + doubt) for extra in _breaks(prior)])
    top = broken.max()
    if not np.isfinite(top):
        return 0.0
    return float(top + np.log(np.exp(broken - top).mean()) - _held(u, G, B, doubt, prior))


def _hardly_varied(G: Array, B: Array, rounds: float, prior: DriftPrior) -> Array:
    """What to add to B (p, p) so that directions in which the online rounds hardly vary say nothing.

    These are the directions with less than a twentieth of the variation that as many rounds of the logs have:
    where a few actions are always the same and one of them is played, a few tests of the others say too
    little of their own variance.
    """
    if not len(prior.feature_precision):
        return np.zeros_like(B)
    root = np.linalg.cholesky(prior.feature_precision)
    variation, directions = np.linalg.eigh(root.T @ G @ root)
    weak = np.linalg.solve(root.T, directions[:, variation < LEAST_VARIATION * rounds])
    return np.asarray(SILENCED * np.trace(root.T @ B @ root) * (weak @ weak.T))


def _most_drift(prior: DriftPrior) -> Array:
    """Largest drift (p,) that is no break; any at all along directions that too few windows inform."""
    limit = np.maximum(prior.drift_limit, prior.drift)
    if not len(prior.informing):
        return limit
    thin = prior.informing < min(FEWEST_WINDOWS, prior.windows)
    return np.where(thin, UNLIMITED * (prior.unit + prior.drift), limit)


def _breaks(prior: DriftPrior) -> Iterator[Array]:
    sizes = [(size, unit) for size in BREAK_SIZES for unit in break_units(prior)]
    for factor in DRIFT_FACTORS:
        for size, unit in sizes:
            yield factor * prior.drift + size * unit


def _held(u: Array, G: Array, B: Array, doubt: Array, prior: DriftPrior) -> float:
    """Largest log-likelihood of u if invariance holds, on the scale of the logs or on the best other one."""
    limit = _most_drift(prior)
    result: float = kernels.likeliest_drift(u, G, B + doubt, prior.drift, limit, SEARCH_STEPS)
    slope = G @ prior.mean
    scale = min(1.0 + kernels.best_multiple(u, G, B + doubt, limit, slope), NEW_SCALES[1])
    if scale >= NEW_SCALES[0]:
        u, square = u - (scale - 1.0) * slope, scale**2
        rest, low, high = B + square * doubt, square * prior.drift, square * limit
        result = max(result, kernels.likeliest_drift(u, G, rest, low, high, SEARCH_STEPS))
    return result
