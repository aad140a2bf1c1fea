"""Where coefficients stood when the logs ended: filters over the windows, and whether drift persists."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from scipy import special

from invariant_bandits.checks import Array
from invariant_bandits.decomposition.arm_statistics import ArmStatistics
from invariant_bandits.decomposition.fit_constants import ARM, PRIOR, SMALLEST, TINY
from invariant_bandits.decomposition.paths import CoefficientPaths


class CoefficientsAtEnd(NamedTuple):
    """Mean (p,) and covariance (p, p) of the coefficients where the logs ended, under one course of drift."""

    mean: Array
    covariance: Array


class Persistence(NamedTuple):
    """Whether the drift of each direction goes on, and how.

    Attributes
    ----------
    probability : array, shape (p,)
        That it goes on; else every window draws the coefficient afresh.
    courses : array, shape (h, p)
        If it goes on, the probability of each course: those of PRIOR.persistent, then a single break.
    breaks : array, shape (m, p)
        If there was a single break, the probability that it lies before each window.
    """

    probability: Array
    courses: Array
    breaks: Array


def last_window(
    paths: CoefficientPaths,
    mean: Array,
    drift: Array,
    vague: Array,
    decay: Array | float,
) -> CoefficientsAtEnd:
    """Return the coefficients of the last window, given all windows.

    State space: γ_i = μ + x_i, x_i = a_i·x_{i−1} + N(0, (1 − a_i²)ω) along every direction, of stationary
    variance ω; ĝ_i | γ_i ~ N(γ_i, H_i). A window that does not inform a direction says nothing of it.

    Parameters
    ----------
    paths : CoefficientPaths
        ĝ (m, p) and H (m, p, p), along the directions.
    mean, drift : array, shape (p,)
        μ, where the filter starts, and ω.
    vague : array, shape (p, p)
        What μ may be off by, a hundredth of its prior covariance.
    decay : float, or array, shape (m, p)
        a_i, what is left of the last window's departure from μ. An autoregressive course has the same a in
        all windows; one with a break has 1, and 0 in the window where the coefficient is drawn anew.
    """
    partial = paths.partial
    roots = {}
    if partial is not None:
        roots = dict(zip(partial.windows.tolist(), partial.roots, strict=True))
    p = len(mean)
    decay = np.broadcast_to(decay, paths.coefficients.shape)
    # The state is (μ, x) (2p,): μ keeps, x decays; γ = μ + x is what windows see.
    state = np.concatenate([mean, np.zeros(p)])
    covariance = np.zeros((2 * p, 2 * p))
    covariance[:p, :p] = PRIOR.vague * vague
    covariance[p:, p:] = np.diag(drift)
    for i, (g, H) in enumerate(zip(paths.coefficients, paths.covariances, strict=True)):
        if i:
            # Prediction; the noise (1 − a²)ω keeps the variance of x at ω.
            move = np.concatenate([np.ones(p), decay[i]])
            noise = np.concatenate([np.zeros(p), drift * (1.0 - decay[i] ** 2)])
            state = move * state
            covariance = covariance * np.outer(move, move) + np.diag(noise)
        with_sum = covariance[:, :p] + covariance[:, p:]  # of the state with γ (2p, p)
        of_sum = with_sum[:p] + with_sum[p:]
        L = roots.get(i)
        if L is None:
            gain = np.linalg.solve(of_sum + H, with_sum.T).T
        else:
            # A partial window has no H; (P + H)⁻¹ = L(I + LᵀPL)⁻¹Lᵀ exists all the same.
            inner = np.eye(L.shape[1]) + L.T @ of_sum @ L
            gain = with_sum @ L @ np.linalg.solve(inner, L.T)
        state = state + gain @ (g - state[:p] - state[p:])
        covariance = covariance - gain @ with_sum.T
        covariance = 0.5 * (covariance + covariance.T)
    total = (
        covariance[:p, :p]
        + covariance[p:, p:]
        + covariance[:p, p:]
        + covariance[p:, :p]
    )
    return CoefficientsAtEnd(state[:p] + state[p:], 0.5 * (total + total.T))


def walk_end(
    windows: ArmStatistics, precision: Array, drift: Array
) -> CoefficientsAtEnd:
    """Return the coefficients when the logs end, if their drift is a walk.

    The walk θ_i = θ_{i−1} + N(0, 6Ω/m) varies as much over the m windows as Ω says. The last window speaks of
    its middle: after it the walk went on for half a window.

    Parameters
    ----------
    precision : array, shape (p, p)
        Π, the prior precision of the coefficients.
    drift : array, shape (p, p)
        Ω.
    """
    step = ARM.walk_variance / len(windows.scores) * drift
    end = _filter_steps(windows, precision, drift, [step] * len(windows.scores))
    return CoefficientsAtEnd(end.mean, end.covariance + 0.5 * step)


def break_end(
    windows: ArmStatistics, precision: Array, drift: Array, breaks: Array
) -> CoefficientsAtEnd:
    """Return the coefficients when the logs end, if each was constant but for one break.

    breaks (m, p): the probability that the break lies before each window. Two independent draws from N(μ, Ω)
    differ by N(0, 2Ω), so that window i adds the step 2BΩB, B² the diagonal of its probabilities.
    """
    roots = np.sqrt(breaks)
    steps = [2.0 * drift * np.outer(root, root) for root in roots]
    return _filter_steps(windows, precision, drift, steps)


def _filter_steps(
    windows: ArmStatistics, precision: Array, drift: Array, steps: Sequence[Array]
) -> CoefficientsAtEnd:
    """Return the coefficients of the last window if window i moves them by N(0, steps[i]).

    θ_1 ~ N(0, Π⁻¹ + Ω). The filter in precision form: P ← P − P(I + ΛP)⁻¹ΛP, θ ← θ + P(I + ΛP)⁻¹(η − Λθ).
    """
    p = len(drift)
    state = np.zeros(p)
    P = _inverse(precision) + drift
    for i, (information, scores) in enumerate(
        zip(windows.information, windows.scores, strict=True)
    ):
        if i:
            P = P + steps[i]
        # One solution for both gains: (I + ΛP)⁻¹[ΛP, η − Λθ] (p, p + 1); Λ may be singular.
        joined = np.column_stack([information @ P, scores - information @ state])
        gain = np.linalg.solve(np.eye(p) + information @ P, joined)
        state = state + P @ gain[:, p]
        P = P - P @ gain[:, :p]
        P = _without_negative_variances(0.5 * (P + P.T))
    return CoefficientsAtEnd(state, P)


def persistence(
    estimates: Array, errors: Array, mean: Array, drift: Array
) -> Persistence:
    """Return the probability that drift along each direction goes on from one period of the log to the next.

    The function compares models of a coefficient: every window (period of the log) draws it independently; it
    follows an autoregressive process; or it is constant but for one break. A break lies before each window
    but the first with the same probability, and both values are drawn like those of the windows. Every
    direction has a model of its own, or the drift of all goes on in one way: effects that change together
    show more clearly than each alone that the change lasts.

    Parameters
    ----------
    estimates, errors : arrays, shape (m, p)
        Estimated coefficient along each direction in each window (period), and its variance (infinite if the
        window has no data along the direction).
    mean, drift : arrays, shape (p,)
        Mean μ and drift variance ω of the coefficient along each direction.
    """
    m, w = len(estimates), np.maximum(drift, TINY)
    departures = np.where(np.isfinite(errors), estimates - mean, 0.0)
    # One row per hypothesis: afresh, the persistent courses, a break before every window but the first.
    evidence = [_sum_log_densities(departures, w + errors)]
    for factor, lasting in PRIOR.persistent:
        decay = np.exp(-1.0 / (m * lasting))
        evidence.append(_autoregressive_evidence(departures, errors, factor * w, decay))
    likelihood = np.vstack([*evidence, _break_evidence(departures, errors, w)])
    # The courses share their prior probability equally, and so do the windows of a break.
    courses = len(evidence)
    prior = np.full((len(likelihood), 1), PRIOR.rarely_persistent / courses)
    prior[0] = 1.0 - PRIOR.rarely_persistent
    prior[courses:] /= max(m - 1, 1)
    own = np.log(prior) + likelihood
    # Drift of all directions may go on in one course, with a break at the same time.
    alike = (np.log(prior) + likelihood.sum(axis=1, keepdims=True))[1:]
    log_odds = special.logsumexp(alike) - special.logsumexp(own, axis=0).sum()
    share = special.expit(log_odds)
    posterior = (1.0 - share) * special.softmax(own, axis=0)
    posterior[1:] += share * special.softmax(alike, axis=0)
    of_break = posterior[courses:].sum(axis=0)
    probability = np.minimum(posterior[1:].sum(axis=0), 1.0)  # up to rounding
    of_courses = np.vstack([posterior[1:courses], of_break])
    breaks_before = np.zeros_like(estimates)
    breaks_before[1:] = posterior[courses:] / np.maximum(of_break, TINY)
    return Persistence(
        probability=probability,
        courses=of_courses / np.maximum(probability, TINY),
        breaks=breaks_before,
    )


def _autoregressive_evidence(
    departures: Array, errors: Array, drift: Array, decay: float
) -> Array:
    """Return the log-likelihood (p,) of x_i = a·x_{i−1} + N(0, (1 − a²)ω), seen with variances `errors`.

    One Kalman filter per direction: each window is predicted from those before it.
    """
    state = np.zeros(len(drift))
    P = drift
    evidence = np.zeros(len(drift))
    for i, (e, h) in enumerate(zip(departures, errors, strict=True)):
        if i:
            state = decay * state
            P = decay**2 * P + (1.0 - decay**2) * drift
        error = np.where(np.isfinite(h), e - state, 0.0)
        evidence = evidence + _log_density(error, P + h)
        gain = P / (P + h)
        state = state + gain * error
        P = P * (1.0 - gain)
    return evidence


def _break_evidence(departures: Array, errors: Array, drift: Array) -> Array:
    """Return the log-likelihood (m − 1, p) of one break before each window but the first.

    Windows without a break between them share x ~ N(0, ω) and see e_i = x + N(0, h_i). With s = Σ1/h and t =
    Σe/h, their likelihood is ∏N(e_i; 0, h_i) · (1 + ωs)^(−½) · exp(½ωt²/(1 + ωs)).
    """
    known = np.cumsum(1.0 / errors, axis=0)
    scores = np.cumsum(departures / errors, axis=0)

    def segment(s: Array, t: Array) -> Array:
        grown = 1.0 + drift * s
        return np.asarray(0.5 * (drift * t**2 / grown - np.log(grown)))

    before = segment(known[:-1], scores[:-1])
    after = segment(known[-1] - known[:-1], scores[-1] - scores[:-1])
    return np.asarray(_sum_log_densities(departures, errors) + before + after)


def join_ends(ends: Sequence[CoefficientsAtEnd], weights: Array) -> CoefficientsAtEnd:
    """Return what courses of these probabilities (h, p), direction by direction, expect where logs ended."""
    means = np.stack([end.mean for end in ends])
    mean = (weights * means).sum(axis=0)
    between = np.diag((weights * (means - mean) ** 2).sum(axis=0))
    within = [
        end.covariance * np.outer(root, root)
        for end, root in zip(ends, np.sqrt(weights), strict=True)
    ]
    return CoefficientsAtEnd(mean, sum(within, between))


def _sum_log_densities(errors: Array, variances: Array) -> Array:
    """Return the log-density (p,) of all windows, independent of each other, up to a constant."""
    return np.asarray(
        sum(_log_density(e, v) for e, v in zip(errors, variances, strict=True))
    )


def _log_density(error: Array, variance: Array) -> Array:
    """Return the log-density of N(0, variance) up to a constant; 0 where the variance is infinite."""
    finite = np.isfinite(variance)
    variance = np.where(finite, variance, 1.0)
    return np.where(finite, -0.5 * (np.log(variance) + error**2 / variance), 0.0)


def single_estimates(statistics: ArmStatistics, mean: Array) -> tuple[Array, Array]:
    """Estimates (m, p) of each coefficient by itself, the others at their means, and their variances."""
    information = np.diagonal(statistics.information, axis1=1, axis2=2)
    known = np.where(information > 0.0, information, 1.0)
    estimates = mean + (statistics.scores - statistics.information @ mean) / known
    return estimates, np.where(information > 0.0, 1.0 / known, np.inf)


def _inverse(precision: Array) -> Array:
    """Covariance (p, p) of a precision; what rounding makes singular counts as hardly known."""
    with suppress(np.linalg.LinAlgError):
        return np.asarray(np.linalg.inv(precision))
    values, vectors = np.linalg.eigh(precision)
    return np.asarray(
        (vectors / np.maximum(values, SMALLEST * values.max())) @ vectors.T
    )


def _without_negative_variances(covariance: Array) -> Array:
    """The covariance as it is, or its positive part where rounding has made a variance negative, as rewards
    without noise do.
    """
    if (np.diagonal(covariance) >= 0.0).all():
        return covariance
    values, vectors = np.linalg.eigh(covariance)
    positive = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return np.asarray(0.5 * (positive + positive.T))
