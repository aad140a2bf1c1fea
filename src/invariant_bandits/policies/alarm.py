"""The alarm of AutoISD: whether what was stable in the logs has moved, and which part it was.

The null hypothesis is that no stable coefficient moves further than the logs allow. A direction is stable if
its block did not drift in the logs; the logs allow the drift that their windows may hide. Drifting directions
may move as far as they like: they are projected out, as the baseline is. Whether one of those moved further
than in the logs is a question of its own (`drifting_evidence`), and no broken invariance.
"""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from invariant_bandits.checks import Array
from invariant_bandits.decomposition.drift_prior import DriftPrior
from invariant_bandits.decomposition.fit_constants import PRIOR, TINY
from invariant_bandits.policies import mixture_kernels
from invariant_bandits.policies.mixture import break_units, marginal_sums

kernels: Any = mixture_kernels  # compiled: its functions have no Python signature

FIRST_LOOK = 10
"""Rounds per coordinate before the first look at the evidence."""
LOOK_RATIO = 1.25
FEWEST_WINDOWS = 5
WORST_MISFIT = 3.1
SCALE_DOUBT = 0.01
"""Variance of the scale of all coefficients together."""
NEW_SCALES = (1.5, 4.0)
"""Factors on all coefficients and their drift that do not count as a break: rewards on a steeper part of
their range.
"""
DRIFT_FACTORS, BREAK_SIZES = (1.0, 4.0, 16.0), (0.05, 0.5, 2.0, 10.0)
"""c and k of the breaks: drift in units of the logs', breaks in those of the typical squared coefficient."""
SEARCH_STEPS = 4
LEAST_PLAYS = 10.0
"""Online rounds of a labelled arm, where rewards are no clicks, from which its coefficients count."""
ARM_SEARCH_STEPS, ARM_BREAK_SIZE = 8, 0.3
"""Of labelled arms: steps of the search for the likeliest drift, and the size of breaks."""
ALL_BREAK = 0.1
DIRECTION_BREAK = 0.3
FADING = 0.6
"""Weights of breaks of all coefficients at once, of breaks along one direction, and of slopes that fade."""
FADED_PART, FADED_VARIANCE = 0.5, 0.0625
"""Mean and variance of the part of its size that a fading slope loses: half, give or take a quarter."""
LEAST_VARIATION, SILENCED = 0.05, 1e4
ONLY_ROUNDING = 1e-9
"""A feature with less than this share of its square left once its mean is taken off has not varied."""
NOTICED_ROUNDS = 2000
"""Rounds within which a fall of an arm's level is to be noticed, where the logs say how large it must be."""
USUAL_CHANCE = 1.0
"""Standard errors by which a score falls short in one run of six: falls beyond are noticed in five of six."""


class Evidence(NamedTuple):
    """Evidence that directions have moved further than the logs allow.

    Attributes
    ----------
    log_ratio : float
        Log of the likelihood ratio of moved against unmoved directions; 0 before the first look.
    direction : int
        Index, among the directions of `DriftPrior.drift_bounds`, of the one whose move explains most; -1
        before the first look.
    """

    log_ratio: float
    direction: int


NOTHING_SEEN = Evidence(0.0, -1)


def next_look(rounds: int, dim: int) -> int:
    """The first round after `rounds` at which the evidence is looked at: 10·dim, then every quarter more."""
    look = FIRST_LOOK * dim
    while look <= rounds:
        look = int(np.ceil(LOOK_RATIO * look))
    return look


def why_no_alarm(prior: DriftPrior) -> str:
    """Why these logs cannot support an alarm; empty if they can.

    They can if they have five windows or more that inform some stable direction, so that what they say of its
    drift has four degrees of freedom, and if the windows do not contradict drift along the basis
    (`drift_misfit` up to 3.1, one log in a thousand).
    """
    bounds = prior.drift_bounds
    if len(bounds.hidden) != len(bounds.seen):
        return "how far they drift from window to window is not known"
    if prior.windows < FEWEST_WINDOWS:
        return f"{prior.windows} windows say too little about drift, it takes {FEWEST_WINDOWS}"
    informing = bounds.informing[: len(prior.mean)]
    if len(informing) and informing.max() < FEWEST_WINDOWS:
        few = f"{int(informing.max())} of {prior.windows} windows, it takes {FEWEST_WINDOWS}"
        return f"no direction is informed by more than {few}"
    if drifts_in_logs(prior).all():
        return "every direction drifts in them, so that nothing is stable"
    if prior.drift_misfit > WORST_MISFIT:
        return "their covariances do not show which directions drift"
    return ""


def drifts_in_logs(prior: DriftPrior) -> Any:
    """Which directions of `DriftPrior.drift_bounds` drift in the logs, as a boolean array (q,).

    Of features, those of the blocks that the decomposition calls drifting, or none if the prior does not know
    them; of labelled arms, the effects whose test rejects.
    """
    result = np.zeros(len(prior.drift_bounds.seen), dtype=bool)
    if prior.population is not None:
        result[[effect.place for effect in prior.effects if effect.drifts]] = True
    elif len(prior.drifting):
        result[:] = prior.drifting > 0.0
    return result


def stable_evidence(online: Array, prior: DriftPrior) -> Evidence:
    """Evidence that a direction moved that was stable in the logs: broken invariance."""
    return evidence_along(online, prior, ~drifts_in_logs(prior))


def drifting_evidence(online: Array, prior: DriftPrior) -> Evidence:
    """Evidence that a direction that drifts in the logs moved further than it did there."""
    return evidence_along(online, prior, drifts_in_logs(prior))


def evidence_along(online: Array, prior: DriftPrior, tested: Any) -> Evidence:
    """Evidence that some of the tested directions (q,) moved further than the logs allow.

    Moved: u ~ N(0, B + G(C_μ + .01μμᵀ + diag(c·ω + k·unit))G), a mixture over c and k. Held: the likeliest of
    N(0, B + G(C_μ + .01μμᵀ + diag w)G), ω ≤ w ≤ ω⁺, all the drift that the windows could be hiding; and of
    the same with all coefficients and drift s times as large, if rewards ask for 1.5 ≤ s ≤ 4. A mixture over
    the largest of what it is tested against: if that contained the truth, and B were known, it would ever
    exceed 1/α with probability at most α (Ville 1939). Both hold only nearly: B is estimated, ω⁺ is a limit
    at 8 % for each direction, and four steps search for the largest. Directions in which the online rounds
    hardly vary, or that fewer than five windows inform, do not count. 0 before the first look.

    The filters' likelihoods are not used, so that noise and baseline may change. Sums of the online
    rounds with coordinates z and reward r, about the mean of the logs m₀ = [μ, b₀], are u = Σ z(r −
    zᵀm₀), G = Σ zzᵀ and B = Σ v(e²/S + 2l)zzᵀ, where e is the error of prediction of the filter that
    knows online rounds alone, S = v + zᵀPz its variance, and v that of the noise, so that E[ve²/S] = v.
    If the coefficients are μ + δ then u − Gδ has mean 0 and covariance Σ(ve²/S)zzᵀ, also if the noise
    differs from that of the logs, has heavy tails, or grows with the reward. The leverage l = zᵀPz/S is
    near 1 in the first rounds of a direction and adds up to the logarithm of their number: one square
    says nothing of a variance, and a few tests of an arm that is always the same would otherwise raise
    false alarms. What is not tested is projected out of all three (`marginal_sums`). Of labelled arms:
    `_arm_evidence`.

    Parameters
    ----------
    online : array, shape (2, d + 1, d + 1)
        Sums of the online rounds, as `Filters` has them.
    prior : DriftPrior
        What the logs teach.
    tested : array of bool, shape (q,)
        Which directions of `prior.drift_bounds` are tested.
    """
    d = online.shape[1] - 1
    if online[0, d, d] < FIRST_LOOK * d or not np.isfinite(online).all():
        return NOTHING_SEEN
    if prior.population is not None:
        return _arm_evidence(online, prior, tested)
    if len(prior.drift_limit) != len(prior.mean):
        return NOTHING_SEEN
    if len(prior.informing):
        tested = tested & (prior.informing >= min(FEWEST_WINDOWS, prior.windows))
    places = np.flatnonzero(tested)
    if not len(places):
        return NOTHING_SEEN
    return _row_evidence(online, prior, places)


def _row_evidence(online: Array, prior: DriftPrior, places: Any) -> Evidence:
    """The evidence along directions of features, those with the indices `places` (k,)."""
    sums = marginal_sums(online, places)
    squares = np.diagonal(online[0])[places]
    G, B = (np.ascontiguousarray(part) for part in sums[:, :-1, :-1])
    u = np.ascontiguousarray(sums[0, -1, :-1])
    # Directions that never varied online carry no information: remove them from the sums.
    constant = np.diagonal(G) <= ONLY_ROUNDING * squares
    u[constant] = 0.0
    for matrix in (G, B):
        matrix[constant, :] = 0.0
        matrix[:, constant] = 0.0
    rounds = float(online[0, -1, -1])
    B = np.ascontiguousarray(B + _hardly_varied(G, B, rounds, prior, places))
    mean = prior.mean[places]
    unsure = prior.mean_covariance[np.ix_(places, places)]
    doubt = G @ (unsure + SCALE_DOUBT * np.outer(mean, mean)) @ G
    low = prior.drift[places]
    high = np.maximum(prior.drift_limit[places], low)
    breaks = product(DRIFT_FACTORS, BREAK_SIZES, break_units(prior))
    extra = [factor * low + size * unit[places] for factor, size, unit in breaks]
    broken = np.array([kernels.log_normal(u, G, drift, B + doubt) for drift in extra])
    if not np.isfinite(broken.max()):
        return NOTHING_SEEN
    held, pull, precision = _held(u, G, B, doubt, (mean, low, high))
    explained = pull**2 / np.maximum(precision, TINY)
    most = int(places[np.argmax(np.where(precision > 0.0, explained, 0.0))])
    return Evidence(_log_mean(broken) - held, most)


def _arm_evidence(online: Array, prior: DriftPrior, tested: Any) -> Evidence:
    """The same for labelled arms: breaks on top of the likeliest drift ŵ, against ŵ alone.

    Coefficients count that five windows inform, and online about five clicks, or ten rounds. The others,
    those of new arms among them, are projected out as the baseline is: they have no stable value to break.
    Arms drift by themselves and together, along the directions of `DriftPrior.drift_bounds`; those that are
    not tested may drift without limit. Three kinds of breaks share the weight: of all coefficients, along one
    direction, both measured in the typical square of a coefficient and its own, and of one slope that loses
    about half of its size. Slopes share the last weight by μ²/C_μ: a fading effect is easiest to see, and
    costs most, where the logs are surest of it. With ŵ in both, the evidence is not a martingale:
    docs/studies/alarm.md has its level.
    """
    p, bounds = len(prior.mean), prior.drift_bounds
    least = PRIOR.enough_clicks if prior.link == "logit" else LEAST_PLAYS
    squares = np.diagonal(online[0])[:p]
    places = np.flatnonzero(
        (squares >= least) & (bounds.informing[:p] >= FEWEST_WINDOWS)
    )
    sums = marginal_sums(online, places)
    varied = np.diagonal(sums[0])[:-1] > ONLY_ROUNDING * squares[places]
    if not varied.any():
        return NOTHING_SEEN
    places = places[varied]
    G, B = sums[:, :-1, :-1][:, varied][:, :, varied]
    u = sums[0, -1, :-1][varied]
    used = bounds.directions[places].any(axis=0)
    directions, seen, hidden, informing = (part[..., used] for part in bounds)
    tested = tested[used]
    if not tested.any():
        return NOTHING_SEEN
    directions, unit = directions[places], prior.unit[places] + prior.mean[places] ** 2
    units = unit @ directions**2 / (directions**2).sum(axis=0)
    most = np.where(
        (informing < FEWEST_WINDOWS) | ~tested,
        PRIOR.unlimited * (units + seen),
        np.maximum(hidden, seen),
    )
    along = np.ascontiguousarray(G @ directions)
    rest = np.ascontiguousarray(
        B + G @ prior.mean_covariance[np.ix_(places, places)] @ G
    )
    held, likeliest, pull, precision = likeliest_drift(
        u, along, rest, seen, most, ARM_SEARCH_STEPS
    )
    if not np.isfinite(held):
        return NOTHING_SEEN
    every = np.append(unit, np.zeros(len(units) - len(unit)))
    of_all = (
        kernels.log_normal(u, along, likeliest + ARM_BREAK_SIZE * every, rest) - held
    )
    along_one = _shifted(0.0, ARM_BREAK_SIZE * units, pull, precision)
    along_one[~tested] = -np.inf
    result = np.logaddexp(
        np.log(ALL_BREAK) + of_all,
        np.log(DIRECTION_BREAK) + _log_mean(along_one, tested.astype(float)),
    )
    direction = int(np.flatnonzero(used)[np.argmax(along_one)])
    # The first directions are the coordinates themselves.
    slopes = np.flatnonzero(
        (places >= prior.layout.own_dim) | (places % prior.layout.own > 0)
    )
    if len(slopes):
        mean = prior.mean[places[slopes]]
        doubt = np.diagonal(prior.mean_covariance)[places[slopes]]
        fading = _shifted(
            -FADED_PART * mean,
            FADED_VARIANCE * mean**2,
            pull[slopes],
            precision[slopes],
        )
        result = np.logaddexp(
            result,
            np.log(FADING)
            + _log_mean(fading, tested[slopes] * mean**2 / np.maximum(doubt, TINY)),
        )
    return Evidence(float(result), direction)


def _shifted(mean: Any, variance: Array, pull: Array, precision: Array) -> Array:
    """Log-likelihood ratios of coefficients that moved by N(mean, variance) against none, one at a time, from
    their scores `pull` and the `precision` of these.
    """
    grown = 1.0 + variance * precision
    explained = mean * pull + 0.5 * (variance * pull**2 - mean**2 * precision)
    return np.asarray(explained / grown - 0.5 * np.log(grown))


def _log_mean(logs: Array, weights: Any = 1.0) -> float:
    """Log of the mean of exp(logs), by weights that need not add up to 1."""
    weights = np.broadcast_to(weights, logs.shape)
    return float(special.logsumexp(logs, b=weights / max(weights.sum(), TINY)))


def _hardly_varied(
    G: Array, B: Array, rounds: float, prior: DriftPrior, places: Any
) -> Array:
    """What to add to B (k, k) so that directions in which the online rounds hardly vary say nothing.

    These are the directions with less than a twentieth of the variation that as many rounds of the logs have:
    where a few actions are always the same and one of them is played, a few tests of the others say too
    little of their own variance. places (k,): indices of the coordinates.
    """
    if not len(prior.feature_precision):
        return np.zeros_like(B)
    root = np.linalg.cholesky(prior.feature_precision[np.ix_(places, places)])
    variation, directions = np.linalg.eigh(root.T @ G @ root)
    weak = np.linalg.solve(root.T, directions[:, variation < LEAST_VARIATION * rounds])
    return np.asarray(SILENCED * np.trace(root.T @ B @ root) * (weak @ weak.T))


def _held(
    u: Array, G: Array, B: Array, doubt: Array, logs: tuple[Array, Array, Array]
) -> tuple[float, Array, Array]:
    """Largest log-likelihood of u if invariance holds, on the scale of the logs or on the best other one; and
    the scores of the directions with their precisions, on the scale of the logs.

    logs: mean coefficients (k,) of the logs, and the least and largest drift of each direction (k,).
    """
    mean, least, most = logs
    slope = G @ mean
    half = np.column_stack([slope, u])
    kernels.half_solved(G, most, B + doubt, half)
    size, scales = float(half[:, 0] @ half[:, 0]), [1.0]
    if size > 0.0:  # the scale for which u is likeliest
        scales.append(min(1.0 + float(half[:, 0] @ half[:, 1]) / size, NEW_SCALES[1]))
    _, _, pull, precision = likeliest_drift(u, G, B + doubt, least, most, SEARCH_STEPS)
    likelihoods = []
    for scale in scales[: 1 + (scales[-1] >= NEW_SCALES[0])]:
        rest, low, high = (scale**2 * part for part in (doubt, least, most))
        moved, rest = u - (scale - 1.0) * slope, B + rest
        likelihoods.append(likeliest_drift(moved, G, rest, low, high, SEARCH_STEPS)[0])
        likelihoods.append(kernels.log_normal(moved, G, low, rest))
    return float(max(likelihoods)), pull, precision


def likeliest_drift(
    u: Array, along: Array, rest: Array, low: Array, high: Array, steps: int
) -> tuple[float, Array, Array, Array]:
    """Largest log N(u; 0, M), M = rest + G·diag(w)·Gᵀ, over low ≤ w ≤ high (q,), up to a constant; and w,
    GᵀM⁻¹u and the diagonal of GᵀM⁻¹G there. G is `along` (p, q).

    By w_j ← w_j·(g_jᵀM⁻¹u)²/g_jᵀM⁻¹g_j, the fixed point of the likelihood's gradient, from w = high; the best
    of all points visited.
    """
    best, w = (-np.inf, high, high, high), high
    for _ in range(steps):
        half = np.column_stack([along, u])
        likelihood = kernels.half_solved(along, w, rest, half)
        pull, precision = half[:, :-1].T @ half[:, -1], (half[:, :-1] ** 2).sum(axis=0)
        if likelihood > best[0]:
            best = likelihood, w, pull, precision
        w = np.clip(w * pull**2 / np.maximum(precision, TINY), low, high)
    return best


def noticeable_falls(prior: DriftPrior, delta: float) -> Array:
    """How far the level of each labelled arm (A,) must fall for the alarm to notice it, in five runs of six.

    Within NOTICED_ROUNDS rounds, if arms are played as often as in the logs. Infinite where the logs cannot
    tell: the level drifts, fewer than five windows inform it, or the arm is not played. The level has the
    precision q of an estimate from n online rounds, after all drift that the logs may hide; a move by δ along
    one of J tested directions gives the evidence ½δ²q·vq/(1 + vq) − ½log(1 + vq) + log(weight/J), v being the
    variance of the breaks.
    """
    population = prior.arms
    layout = prior.layout
    bounds = prior.drift_bounds
    stable = ~drifts_in_logs(prior)
    tested = stable & (bounds.informing >= FEWEST_WINDOWS)
    limits = np.where(
        tested,
        np.maximum(bounds.hidden, bounds.seen),
        PRIOR.unlimited * (float(prior.unit.mean()) + bounds.seen),
    )
    falls = np.full(layout.arms, np.inf)
    if why_no_alarm(prior):
        return falls
    shares = population.plays / max(float(population.plays.sum()), 1.0)
    of_contexts = population.context_square[: layout.own, : layout.own]
    least = PRIOR.enough_clicks * prior.noise_variance
    least = least if prior.link == "logit" else LEAST_PLAYS
    log_odds = np.log(max(int(tested.sum()), 1) / (delta * DIRECTION_BREAK))
    for arm in range(layout.arms):
        own = layout.arm(arm)
        level = int(np.arange(layout.dim)[own][0])
        rounds = NOTICED_ROUNDS * shares[arm]
        if not tested[level] or rounds < least:
            continue
        along = bounds.directions[own]
        sampling = np.linalg.pinv(rounds * of_contexts, hermitian=True)
        unsure = prior.noise_variance * sampling + prior.mean_covariance[own, own]
        hidden = (along * limits) @ along.T
        precision = float(np.linalg.inv(unsure + hidden)[0, 0])
        variance = ARM_BREAK_SIZE * float(prior.unit[level] + prior.mean[level] ** 2)
        grown = 1.0 + variance * precision
        needed = log_odds + 0.5 * np.log(grown)
        score = np.sqrt(2.0 * needed * grown / (variance * precision))
        falls[arm] = (score + USUAL_CHANCE) / np.sqrt(precision)
    return falls


def falls_in_words(levels: dict[str, float], most: int = 6) -> str:
    """One line that says which falls of arms' levels would be noticed; levels as in `Belief`."""
    never = [name for name, level in levels.items() if np.isnan(level)]
    noticed = [
        f"of {name} below {level:.3g}"
        for name, level in levels.items()
        if not np.isnan(level)
    ]
    parts = []
    if noticed:
        more = f" and {len(noticed) - most} more" * (len(noticed) > most)
        within = f"would be noticed within {NOTICED_ROUNDS:,} rounds"
        parts.append(f"a fall {', '.join(noticed[:most])}{more} {within}")
    if never:
        more = f" and {len(never) - most} more" * (len(never) > most)
        parts.append(f"a fall of {', '.join(never[:most])}{more} never")
    return "; ".join(parts) + ", if arms are played as often as in the logs"
