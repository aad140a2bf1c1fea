"""The alarm of AutoISD: whether what was stable in the logs has moved, and which part it was.

The null hypothesis is that no stable coefficient moves further than the logs allow. A direction is stable if
its block did not drift in the logs; the logs allow the drift that their windows may hide. Drifting directions
may move as far as they like: they are projected out, as the baseline is. Whether one of those moved further
than in the logs is a question of its own (`drifting_evidence`), and is not broken invariance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class AlarmSettings:
    """Constants of the alarm, each with its reason or the study that fixed it.

    "Study" is the page docs/studies/alarm.md: it says how often the alarm is false and right with these
    numbers, which were chosen on other seeds.
    """

    first_look: int = 10
    """Online rounds per coordinate before the first look at the evidence. The variance of the sums, which the
    same rounds estimate, then has a relative error below one half in every direction, √(2/10).
    """
    look_ratio: float = 1.25
    """Rounds from look to look grow by this factor: the work stays small, and a break is found at most a
    quarter later than by looking at every round.
    """
    fewest_windows: int = 5
    """Windows that must inform a direction. The limit of its drift is then 4.3 times the variance that was
    seen; with two windows it is 99 times.
    """
    worst_misfit: float = 3.1
    """Largest `DriftPrior.drift_misfit`, a standard normal score that one right basis in a thousand exceeds.
    """
    scale_doubt: float = 0.01
    """Variance of a common factor on all coefficients: 10 % up or down is not a break."""
    new_scales: tuple[float, float] = (1.5, 4.0)
    """Common factors on all coefficients and their drift that are not a break: rewards on a steeper part of
    their range. Smaller factors are within twice the error of the estimated scale.
    """
    drift_factors: tuple[float, ...] = (1.0, 4.0, 16.0)
    """Variances of breaks in units of the logs' drift. Between two neighbours a variance is wrong by a factor
    of two at most, which costs 0.15 of the log-likelihood per direction.
    """
    break_sizes: tuple[float, ...] = (0.05, 0.5, 2.0, 10.0)
    """Variances of breaks in typical squared coefficients: breaks from a fifth of a coefficient to three."""
    search_steps: int = 4
    """Steps of the search for the likeliest drift of features."""
    least_variation: float = 0.05
    """Share of the logs' variation that online rounds need in a direction so that it counts. With less, a
    few tests of an arm say too little of their own variance (stress study, fixed arms).
    """
    silence: float = 1e4
    """Variance, in units of the sums' total variance, of directions that do not count."""
    rounding: float = 1e-9
    """A feature with less than this share of its square left, once its mean is taken off, has not varied."""
    least_plays: float = 10.0
    """Online rounds of a labelled arm, where rewards are not clicks, from which its coefficients count: as
    `first_look`, for the level of the arm (study, greedy logs).
    """
    arm_search_steps: int = 8
    """Steps of the search for the likeliest drift of labelled arms, which have more directions (study)."""
    arm_break: float = 0.3
    """Variance of the breaks of labelled arms, in typical squared coefficients (study)."""
    weight_of_all: float = 0.1
    """Weight of breaks of all coefficients of labelled arms at once (study)."""
    weight_of_one: float = 0.3
    """Weight of breaks along one direction (study)."""
    weight_of_fading: float = 0.6
    """Weight of one slope that fades, the most frequent way in which effects end (study)."""
    faded_part: float = 0.5
    """Mean part of its size that a fading slope loses."""
    faded_variance: float = 0.0625
    """Variance of that part: half, give or take a quarter."""
    noticed_rounds: int = 2000
    """Rounds within which `noticeable_falls` asks an arm's fall to be noticed, as in the study's rows."""
    noticed_error: float = 1.0
    """Standard errors by which a score falls short in one run of six: what a fall must have to spare."""


ALARM = AlarmSettings()


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


class OnlineSums(NamedTuple):
    """What online rounds say of some coordinates (k,), the others projected out.

    Attributes
    ----------
    scores : array, shape (k,)
        u = Σ z(r − zᵀm₀), the errors of prediction by the logs' coefficients times the features.
    design : array, shape (k, k)
        G = Σ zzᵀ.
    noise : array, shape (k, k)
        B = Σ v(e²/S + 2l)zzᵀ, the covariance of u that the noise makes.
    """

    scores: Array
    design: Array
    noise: Array


class DriftFit(NamedTuple):
    """The likeliest drift of u ~ N(0, M), M = noise + G·diag(drift)·Gᵀ.

    Attributes
    ----------
    log_likelihood : float
        Of u, up to a constant.
    drift : array, shape (q,)
        Variance of the coefficients along every direction.
    scores, precision : arrays, shape (q,)
        GᵀM⁻¹u and the diagonal of GᵀM⁻¹G: what u says of each direction alone.
    """

    log_likelihood: float
    drift: Array
    scores: Array
    precision: Array


# -- when it looks, and when it cannot --


def next_look(rounds: int, dim: int) -> int:
    """The first round after `rounds` at which the evidence is looked at: 10·dim, then every quarter more."""
    look = ALARM.first_look * dim
    while look <= rounds:
        look = int(np.ceil(ALARM.look_ratio * look))
    return look


def why_no_alarm(prior: DriftPrior) -> str:
    """Why these logs cannot support an alarm; empty if they can.

    They can if they have five windows or more that inform some stable direction, so that what they say of its
    drift has four degrees of freedom, and if the windows do not contradict drift along the basis
    (`drift_misfit` up to 3.1, one log in a thousand).
    """
    bounds = prior.drift_bounds
    fewest = ALARM.fewest_windows
    if len(bounds.hidden) != len(bounds.seen):
        return "how far they drift from window to window is not known"
    if prior.windows < fewest:
        return f"{prior.windows} windows say too little about drift, it takes {fewest}"
    informing = bounds.informing[: len(prior.mean)]
    if len(informing) and informing.max() < fewest:
        few = f"{int(informing.max())} of {prior.windows} windows, it takes {fewest}"
        return f"no direction is informed by more than {few}"
    if drifts_in_logs(prior).all():
        return "every direction drifts in them, so that nothing is stable"
    if prior.drift_misfit > ALARM.worst_misfit:
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


# -- the evidence --


def stable_evidence(online: Array, prior: DriftPrior) -> Evidence:
    """Evidence that a direction moved that was stable in the logs: broken invariance."""
    return evidence_along(online, prior, ~drifts_in_logs(prior))


def drifting_evidence(online: Array, prior: DriftPrior) -> Evidence:
    """Evidence that a direction that drifts in the logs moved further than it did there."""
    return evidence_along(online, prior, drifts_in_logs(prior))


def evidence_along(online: Array, prior: DriftPrior, tested: Any) -> Evidence:
    """Evidence that some of the tested directions (q,) moved further than the logs allow.

    Moved: u ~ N(0, B + G(C_μ + .01μμᵀ + diag(c·ω + k·unit))G), a mixture over c and k. Unmoved: the likeliest
    of N(0, B + G(C_μ + .01μμᵀ + diag w)G), ω ≤ w ≤ ω⁺, all the drift that the windows could be hiding; and of
    the same with all coefficients and drift s times as large, if rewards ask for 1.5 ≤ s ≤ 4. A mixture over
    the largest of what it is tested against: if that contained the truth, and B were known, it would ever
    exceed 1/α with probability at most α (Ville 1939). Both hold only nearly: B is estimated, ω⁺ is a limit
    at 8 % for each direction, and four steps search for the largest. Directions in which the online
    rounds hardly vary, or that fewer than five windows inform, do not count. 0 before the first look.

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
    rounds = online[0, d, d]
    if rounds < ALARM.first_look * d or not np.isfinite(online).all():
        return NOTHING_SEEN
    if prior.population is not None:
        return _arm_evidence(online, prior, tested)
    if len(prior.drift_limit) != len(prior.mean):
        return NOTHING_SEEN
    if len(prior.informing):
        fewest = min(ALARM.fewest_windows, prior.windows)
        tested = tested & (prior.informing >= fewest)
    indices = np.flatnonzero(tested)
    if not len(indices):
        return NOTHING_SEEN
    return _feature_evidence(online, prior, indices)


# -- actions described by features --


def _feature_evidence(online: Array, prior: DriftPrior, indices: Any) -> Evidence:
    """The evidence along directions of features with these indices (k,)."""
    sums = _varied_sums(online, prior, indices)
    mean = prior.mean[indices]
    # The logs do not know μ itself better than C_μ, nor the unit of rewards better than 10 %.
    unsure = prior.mean_covariance[np.ix_(indices, indices)]
    common_factor = ALARM.scale_doubt * np.outer(mean, mean)
    doubt = sums.design @ (unsure + common_factor) @ sums.design
    # Moved: the mixture over the variances c·ω + k·unit of a break.
    seen = prior.drift[indices]
    noise = sums.noise + doubt
    likelihoods = []
    for factor, size, unit in product(
        ALARM.drift_factors, ALARM.break_sizes, break_units(prior)
    ):
        moved = factor * seen + size * unit[indices]
        likelihoods.append(kernels.log_normal(sums.scores, sums.design, moved, noise))
    broken = np.array(likelihoods)
    if not np.isfinite(broken.max()):
        return NOTHING_SEEN
    # Unmoved: the likeliest drift between what was seen, ω, and what the windows may hide, ω⁺.
    hidden = np.maximum(prior.drift_limit[indices], seen)
    fit = likeliest_drift(
        sums.scores, sums.design, noise, seen, hidden, ALARM.search_steps
    )
    unmoved = _unmoved_likelihood(sums, doubt, mean, seen, hidden)
    # The direction whose own move would raise the likelihood most, by half its squared score.
    explained = fit.scores**2 / np.maximum(fit.precision, TINY)
    most = np.argmax(np.where(fit.precision > 0.0, explained, 0.0))
    return Evidence(_log_mean(broken) - unmoved, int(indices[most]))


def _varied_sums(online: Array, prior: DriftPrior, indices: Any) -> OnlineSums:
    """The sums of the coordinates (k,), where directions that hardly varied online say nothing."""
    marginal = marginal_sums(online, indices)
    squares = np.diagonal(online[0])[indices]
    scores = np.ascontiguousarray(marginal[0, -1, :-1])
    design = np.ascontiguousarray(marginal[0, :-1, :-1])
    noise = np.ascontiguousarray(marginal[1, :-1, :-1])
    # Directions that never varied online carry no information: remove them from the sums.
    constant = np.diagonal(design) <= ALARM.rounding * squares
    scores[constant] = 0.0
    for matrix in (design, noise):
        matrix[constant, :] = 0.0
        matrix[:, constant] = 0.0
    sums = OnlineSums(scores, design, noise)
    rounds = float(online[0, -1, -1])
    silence = _silence(sums, rounds, prior, indices)
    return sums._replace(noise=np.ascontiguousarray(noise + silence))


def _silence(sums: OnlineSums, rounds: float, prior: DriftPrior, indices: Any) -> Array:
    """What to add to the noise (k, k) so that directions in which online rounds hardly vary say nothing.

    These are the directions with less than a twentieth of the variation that as many rounds of the logs have:
    where a few actions are always the same and one of them is played, a few tests of the others say too
    little of their own variance. indices (k,): of the coordinates.
    """
    if not len(prior.feature_precision):
        return np.zeros_like(sums.noise)
    # With Q = RRᵀ the precision of the logs' features, RᵀGR is n·I if online features vary as the logs'.
    root = np.linalg.cholesky(prior.feature_precision[np.ix_(indices, indices)])
    variation, directions = np.linalg.eigh(root.T @ sums.design @ root)
    weak = directions[:, variation < ALARM.least_variation * rounds]
    weak = np.linalg.solve(root.T, weak)
    total = np.trace(root.T @ sums.noise @ root)
    return np.asarray(ALARM.silence * total * (weak @ weak.T))


def _unmoved_likelihood(
    sums: OnlineSums, doubt: Array, mean: Array, seen: Array, hidden: Array
) -> float:
    """Largest log-likelihood of u if nothing moved, on the scale of the logs or on the best other one.

    mean, seen, hidden (k,): coefficients of the logs, and the drift that was seen and that may be hidden.
    """
    # If all coefficients are s times as large, u has the mean (s − 1)Gμ.
    slope = sums.design @ mean
    scales = [1.0]
    other = _likeliest_scale(sums, doubt, slope, hidden)
    if other >= ALARM.new_scales[0]:
        scales.append(other)
    likelihoods = []
    for scale in scales:
        scores = sums.scores - (scale - 1.0) * slope
        noise = sums.noise + scale**2 * doubt
        low = scale**2 * seen
        high = scale**2 * hidden
        fit = likeliest_drift(scores, sums.design, noise, low, high, ALARM.search_steps)
        likelihoods.append(fit.log_likelihood)
        # The search starts from the upper limits: a log without any hidden drift is looked at, too.
        likelihoods.append(kernels.log_normal(scores, sums.design, low, noise))
    return float(max(likelihoods))


def _likeliest_scale(
    sums: OnlineSums, doubt: Array, slope: Array, hidden: Array
) -> float:
    """The common factor on all coefficients for which u is likeliest, at most the largest that is allowed.

    1 + (Gμ)ᵀM⁻¹u/(Gμ)ᵀM⁻¹Gμ, by generalised least squares; slope (k,) is Gμ.
    """
    whitened = np.column_stack([slope, sums.scores])
    kernels.half_solved(sums.design, hidden, sums.noise + doubt, whitened)
    size = float(whitened[:, 0] @ whitened[:, 0])
    if size <= 0.0:
        return 1.0
    factor = 1.0 + float(whitened[:, 0] @ whitened[:, 1]) / size
    return min(factor, ALARM.new_scales[1])


def likeliest_drift(
    scores: Array, design: Array, noise: Array, low: Array, high: Array, steps: int
) -> DriftFit:
    """Largest log N(u; 0, M), M = noise + G·diag(w)·Gᵀ, over low ≤ w ≤ high (q,), with w.

    u (p,) are the scores, G (p, q) is the design. By w_j ← w_j·(g_jᵀM⁻¹u)²/g_jᵀM⁻¹g_j, the fixed point of the
    likelihood's gradient ½(g_jᵀM⁻¹u)² − ½g_jᵀM⁻¹g_j, from w = high; the best of all points visited.
    """
    best = DriftFit(-np.inf, high, high, high)
    drift = high
    for _ in range(steps):
        # Whitened by M = LLᵀ: columns L⁻¹G, and L⁻¹u last.
        whitened = np.column_stack([design, scores])
        likelihood = kernels.half_solved(design, drift, noise, whitened)
        pull = whitened[:, :-1].T @ whitened[:, -1]
        precision = (whitened[:, :-1] ** 2).sum(axis=0)
        if likelihood > best.log_likelihood:
            best = DriftFit(likelihood, drift, pull, precision)
        step = drift * pull**2 / np.maximum(precision, TINY)
        drift = np.clip(step, low, high)
    return best


# -- labelled arms --


class ArmTest(NamedTuple):
    """The coefficients (k,) of labelled arms that are looked at, and what may drift along directions (q,).

    Attributes
    ----------
    indices : array of int, shape (k,)
        Of the coefficients.
    sums : OnlineSums
        Of the coefficients.
    directions : array, shape (k, q)
        Along which coefficients drift; the first k are the coefficients themselves.
    numbers : array of int, shape (q,)
        Index of every direction in `DriftPrior.drift_bounds`.
    tested : array of bool, shape (q,)
        Whether the direction is tested; others may drift without limit.
    seen, hidden : arrays, shape (q,)
        Variances: the drift that was seen in the logs, and the largest that is allowed.
    units : array, shape (q,)
        Typical square of a coefficient and its own, along every direction.
    """

    indices: Array
    sums: OnlineSums
    directions: Array
    numbers: Array
    tested: Array
    seen: Array
    hidden: Array
    units: Array


def _arm_evidence(online: Array, prior: DriftPrior, tested: Any) -> Evidence:
    """The same for labelled arms: breaks on top of the likeliest drift ŵ, against ŵ alone.

    Coefficients count that five windows inform, and online about five clicks, or ten rounds. The others,
    those of new arms among them, are projected out as the baseline is: they have no stable value to break.
    Arms drift by themselves and together, along the directions of `DriftPrior.drift_bounds`; those that are
    not tested may drift without limit. Three kinds of breaks share the weight: of all coefficients, along one
    direction, both measured in the typical square of a coefficient and its own, and of one slope that loses
    about half of its size. With ŵ in both, the evidence is not a martingale: docs/studies/alarm.md has its
    level.
    """
    test = _arm_test(online, prior, tested)
    if test is None:
        return NOTHING_SEEN
    sums = test.sums
    # M without drift: noise, and what the logs do not know of the mean coefficients.
    unsure = prior.mean_covariance[np.ix_(test.indices, test.indices)]
    noise = np.ascontiguousarray(sums.noise + sums.design @ unsure @ sums.design)
    along = np.ascontiguousarray(sums.design @ test.directions)
    fit = likeliest_drift(
        sums.scores, along, noise, test.seen, test.hidden, ALARM.arm_search_steps
    )
    if not np.isfinite(fit.log_likelihood):
        return NOTHING_SEEN
    # All coefficients at once: their variance grows, ŵ + .3·square.
    grown = fit.drift.copy()
    coordinates = len(test.indices)
    grown[:coordinates] += ALARM.arm_break * test.units[:coordinates]
    of_all = kernels.log_normal(sums.scores, along, grown, noise) - fit.log_likelihood
    # One direction: its variance grows, on top of ŵ.
    variances = ALARM.arm_break * test.units
    along_one = _move_log_ratios(0.0, variances, fit.scores, fit.precision)
    along_one[~test.tested] = -np.inf
    of_one = _log_mean(along_one, test.tested.astype(float))
    kinds = [
        np.log(ALARM.weight_of_all) + of_all,
        np.log(ALARM.weight_of_one) + of_one,
        np.log(ALARM.weight_of_fading) + _fading_log_ratio(prior, test, fit),
    ]
    direction = int(test.numbers[np.argmax(along_one)])
    return Evidence(float(np.logaddexp.reduce(kinds)), direction)


def _arm_test(online: Array, prior: DriftPrior, tested: Any) -> ArmTest | None:
    """What is looked at of labelled arms; None if no tested direction has varied online."""
    bounds = prior.drift_bounds
    p = len(prior.mean)
    least = PRIOR.enough_clicks if prior.link == "logit" else ALARM.least_plays
    squares = np.diagonal(online[0])[:p]
    informed = bounds.informing[:p] >= ALARM.fewest_windows
    indices = np.flatnonzero((squares >= least) & informed)
    marginal = marginal_sums(online, indices)
    # What is constant once the others are projected out carries no information.
    varied = np.diagonal(marginal[0])[:-1] > ALARM.rounding * squares[indices]
    indices = indices[varied]
    numbers = np.flatnonzero(bounds.directions[indices].any(axis=0))
    tested = tested[numbers]
    if not tested.any():
        return None
    directions = bounds.directions[np.ix_(indices, numbers)]
    seen = bounds.seen[numbers]
    # A direction's typical square is the mean of its coefficients', weighted by their squared share.
    square = prior.unit[indices] + prior.mean[indices] ** 2
    units = square @ directions**2 / (directions**2).sum(axis=0)
    free = (bounds.informing[numbers] < ALARM.fewest_windows) | ~tested
    allowed = np.maximum(bounds.hidden[numbers], seen)
    return ArmTest(
        indices=indices,
        sums=OnlineSums(
            scores=marginal[0, -1, :-1][varied],
            design=marginal[0, :-1, :-1][varied][:, varied],
            noise=marginal[1, :-1, :-1][varied][:, varied],
        ),
        directions=directions,
        numbers=numbers,
        tested=tested,
        seen=seen,
        hidden=np.where(free, PRIOR.unlimited * (units + seen), allowed),
        units=units,
    )


def _fading_log_ratio(prior: DriftPrior, test: ArmTest, fit: DriftFit) -> float:
    """Log-likelihood ratio of one slope that loses about half of its size; -inf without slopes.

    Slopes share the weight by μ²/C_μ: a fading effect is easiest to see, and costs most, where the logs are
    surest of it.
    """
    # Levels are the first of every arm's coefficients; all that arms share are slopes.
    layout = prior.layout
    is_slope = (test.indices >= layout.own_dim) | (test.indices % layout.own > 0)
    slopes = np.flatnonzero(is_slope)
    if not len(slopes):
        return -np.inf
    coefficients = test.indices[slopes]
    mean = prior.mean[coefficients]
    unsure = np.diagonal(prior.mean_covariance)[coefficients]
    ratios = _move_log_ratios(
        -ALARM.faded_part * mean,
        ALARM.faded_variance * mean**2,
        fit.scores[slopes],
        fit.precision[slopes],
    )
    sure = mean**2 / np.maximum(unsure, TINY)
    return _log_mean(ratios, test.tested[slopes] * sure)


def _move_log_ratios(
    mean: Any, variance: Array, scores: Array, precision: Array
) -> Array:
    """Log-likelihood ratios of coefficients that moved by N(mean, variance) against none, one at a time.

    A score s with precision q has log-likelihood δs − ½δ²q in the move δ; integrated over N(m, v) it is (ms +
    ½vs² − ½m²q)/(1 + vq) − ½log(1 + vq).
    """
    grown = 1.0 + variance * precision
    explained = mean * scores + 0.5 * (variance * scores**2 - mean**2 * precision)
    return np.asarray(explained / grown - 0.5 * np.log(grown))


def _log_mean(logs: Array, weights: Any = 1.0) -> float:
    """Log of the mean of exp(logs), by weights that need not add up to 1."""
    weights = np.broadcast_to(weights, logs.shape)
    return float(special.logsumexp(logs, b=weights / max(weights.sum(), TINY)))


# -- what the logs could tell --


def noticeable_falls(prior: DriftPrior, delta: float) -> Array:
    """How far the level of each labelled arm (A,) must fall for the alarm to notice it in most runs.

    Within `AlarmSettings.noticed_rounds` rounds, if arms are played as often as in the logs. Infinite where
    the logs cannot tell: the level drifts, fewer than five windows inform it, or the arm is not played.

    The level has the precision q of an estimate from n online rounds, after all drift that the logs may hide.
    A move by δ along one of J tested directions gives the evidence ½δ²q·vq/(1 + vq) − ½log(1 + vq) +
    log(weight/J), v being the variance of the breaks. The fall is the δ for which this reaches log(1/delta),
    and a standard error.
    """
    layout = prior.layout
    falls = np.full(layout.arms, np.inf)
    if why_no_alarm(prior):
        return falls
    tested = ~drifts_in_logs(prior)
    tested &= prior.drift_bounds.informing >= ALARM.fewest_windows
    directions = max(int(tested.sum()), 1)
    log_odds = np.log(directions / (delta * ALARM.weight_of_one))
    plays = prior.arms.plays
    rounds = ALARM.noticed_rounds * plays / max(float(plays.sum()), 1.0)
    least = ALARM.least_plays
    if prior.link == "logit":
        least = PRIOR.enough_clicks * prior.noise_variance
    for arm in range(layout.arms):
        level = arm * layout.own
        if not tested[level] or rounds[arm] < least:
            continue
        precision = _level_precision(prior, tested, arm, rounds[arm])
        square = float(prior.unit[level] + prior.mean[level] ** 2)
        variance = ALARM.arm_break * square
        grown = 1.0 + variance * precision
        # Solved for the score δ√q, in standard errors.
        needed = log_odds + 0.5 * np.log(grown)
        score = np.sqrt(2.0 * needed * grown / (variance * precision))
        falls[arm] = (score + ALARM.noticed_error) / np.sqrt(precision)
    return falls


def _level_precision(
    prior: DriftPrior, tested: Array, arm: int, rounds: float
) -> float:
    """Precision of an arm's level after these online rounds, for all that the logs leave open.

    Open is the mean over the logs, C_μ, and the drift that they may hide, without limit where a direction is
    not tested.
    """
    bounds = prior.drift_bounds
    without_limit = PRIOR.unlimited * (float(prior.unit.mean()) + bounds.seen)
    allowed = np.maximum(bounds.hidden, bounds.seen)
    limits = np.where(tested, allowed, without_limit)
    own = prior.layout.arm(arm)
    along = bounds.directions[own]
    hidden = (along * limits) @ along.T
    # The baseline is projected out of G = n·S: of n rounds a share 1 − n/N is left for the level.
    count = prior.layout.own
    contexts = prior.arms.context_square[:count, :count]
    share = rounds / ALARM.noticed_rounds
    design = rounds * (contexts - share * np.outer(contexts[0], contexts[0]))
    # The leverages that B adds: 1 in the first rounds, one per coordinate, and then k/t in round t.
    leverage = min(count * (1.0 + np.log(max(rounds / count, 1.0))), rounds)
    noise = prior.noise_variance * (1.0 + 2.0 * leverage / rounds)
    sampling = noise * np.linalg.pinv(design, hermitian=True)
    unsure = sampling + prior.mean_covariance[own, own] + hidden
    return float(np.linalg.inv(unsure)[0, 0])


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
        within = f"would be noticed within {ALARM.noticed_rounds:,} rounds"
        parts.append(f"a fall {_listed(noticed, most)} {within}")
    if never:
        parts.append(f"a fall of {_listed(never, most)} never")
    return "; ".join(parts) + ", if arms are played as often as in the logs"


def _listed(items: Sequence[str], most: int) -> str:
    """The first items, separated by commas, and how many more there are."""
    listed = ", ".join(items[:most])
    if len(items) > most:
        listed += f" and {len(items) - most} more"
    return listed
