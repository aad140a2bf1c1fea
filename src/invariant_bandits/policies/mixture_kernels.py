"""The compiled learning of a mixture of Kalman filters: plain functions on arrays.

State of C filters over d coordinates: means M (C, d), covariances P (C, d, d), process variances q (C, d), weights and
prior weights (C,), log-likelihoods (C,) and noise variances v (C,).
Covariances are kept as lower triangles. `blend` (d + 1, d) is the mixture's mean (first row) and its covariance by the
law of total variance: deciding needs nothing else of the filters.
Coordinates of an action: z = [Vᵀφ, 1] if d = p + 1, else Vᵀφ. Signatures are explicit and input is checked here; a
negative result is a status, and then nothing was changed.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import float64, int64, njit, types

from invariant_bandits.policies.kernels import (
    IN1,
    IN2,
    LARGEST_SQUARE,
    NOT_FINITE,
    OPTIONS,
    V1,
    V2,
    V3,
    WRONG_SHAPE,
    gather,
)

NEGLIGIBLE = 1e-9
REFUSED = np.nan
OUTLIER = 10.0
PARKED, REST = 1e-4, 8
LEVERAGE = 2.0
FARTHEST = 1e12
"""An action is refused if it is farther from 0 than a million times what is usual in the logs."""
STEEPEST = 1e10
"""One round lessens the variance along its action by this factor at most, far from where rounding matters."""
LEAST_NOISE = 1e-150
"""Of the noise variance, however exact the predictions are."""
NOISE_PRIOR_ROUNDS = 30.0
NOISE_MEMORY = 1000.0
INT1 = int64[::1]
IDENTITY, LOGIT = 0, 1
MODERATION = 0.393
"""π/8: the mean of σ over N(m, v) is near σ(m/√(1 + πv/8)) (MacKay 1992)."""
LEAST_CLICK_VARIANCE = 1e-4


@njit(types.boolean(IN1, IN2, V1), **OPTIONS)
def coordinates(x: Any, V: Any, z: Any) -> Any:
    """z ← [Vᵀx, 1] or Vᵀx; whether x is finite and can be squared."""
    p = len(x)
    size = 0.0
    for i in range(len(z)):
        z[i] = 0.0
    for j in range(p):
        size += x[j] * x[j]
        if x[j] != 0.0:  # most are 0 where actions are labelled arms
            for i in range(p):
                z[i] += x[j] * V[j, i]
    if len(z) > p:
        z[p] = 1.0
    return size < LARGEST_SQUARE


@njit(float64(V1, IN2), **OPTIONS)
def form(z: Any, A: Any) -> Any:
    """zᵀAz of a symmetric matrix with len(z) columns, from its lower triangle."""
    total = 0.0
    for i in range(len(z)):
        if z[i] != 0.0:
            row = 0.0
            for j in range(i):
                row += A[i, j] * z[j]
            total += z[i] * (2.0 * row + A[i, i] * z[i])
    return total


@njit(types.boolean(V1, IN2), **OPTIONS)
def is_too_far(z: Any, usually: Any) -> Any:
    """Whether zᵀQz, d on average over the logs, is above FARTHEST·d; not if Q = `usually` (d, d) is not known."""
    return len(usually) > 0 and not form(z, usually) <= FARTHEST * len(z)


@njit(types.void(V2, V3, V1, V2), **OPTIONS)
def blend_filters(M: Any, P: Any, weights: Any, blend: Any) -> Any:
    """blend ← [Σw m; Σw(P + (m − m̄)(m − m̄)ᵀ)], lower triangles. Zero weights cost nothing."""
    C, d = M.shape
    for i in range(d + 1):
        for j in range(d):
            blend[i, j] = 0.0
    for c in range(C):
        for i in range(d):
            blend[0, i] += weights[c] * M[c, i]
    for c in range(C):
        w = weights[c]
        if w < NEGLIGIBLE:
            continue
        for i in range(d):
            apart = w * (M[c, i] - blend[0, i])
            for j in range(i + 1):
                blend[i + 1, j] += w * P[c, i, j] + apart * (M[c, j] - blend[0, j])


@njit(types.void(V1, V2, V1), **OPTIONS)
def _product(z: Any, A: Any, g: Any) -> Any:
    """g ← Az of a symmetric matrix, from its lower triangle."""
    for i in range(len(z)):
        g[i] = 0.0
    for i in range(len(z)):
        row = 0.0
        zi = z[i]
        for j in range(i):
            row += A[i, j] * z[j]
            g[j] += A[i, j] * zi
        g[i] += row + A[i, i] * zi


@njit(types.void(V1, float64, V1, float64, V2, float64, V1, V2), **OPTIONS)
def _absorb(g: Any, gain: float, q: Any, elapsed: float, A: Any, weight: float, apart: Any, blend: Any) -> Any:
    """A ← A − gain·ggᵀ + elapsed·diag(q), and blend[1:] += weight·(A + apart·apartᵀ), lower triangles, in one pass."""
    for i in range(len(g)):
        scaled = g[i] * gain
        if weight < NEGLIGIBLE:
            for j in range(i + 1):
                A[i, j] -= scaled * g[j]
            A[i, i] = max(A[i, i], 0.0) + elapsed * q[i]
        else:
            off = weight * apart[i]
            for j in range(i):
                entry = A[i, j] - scaled * g[j]
                A[i, j] = entry
                blend[i + 1, j] += weight * entry + off * apart[j]
            entry = max(A[i, i] - scaled * g[i], 0.0) + elapsed * q[i]
            A[i, i] = entry
            blend[i + 1, i] += weight * entry + off * apart[i]


@njit("UniTuple(f8, 4)(f8, f8, f8, f8)", **OPTIONS)
def _clicked(reward: float, odds: float, spread: float, temper: float) -> Any:
    """What a click r says of log-odds N(odds, spread): error (r − π)/h, its variance, log-likelihood of π, and h.

    π = σ(odds/√(1 + .393·spread)), h = π(1 − π), at least 1e-4: the extended Kalman filter of a logistic model.
    """
    chance = 1.0 / (1.0 + np.exp(-odds / np.sqrt(1.0 + MODERATION * spread)))
    chance = min(max(chance, LEAST_CLICK_VARIANCE), 1.0 - LEAST_CLICK_VARIANCE)
    h = max(chance * (1.0 - chance), LEAST_CLICK_VARIANCE)
    likelihood = (reward * np.log(chance) + (1.0 - reward) * np.log(1.0 - chance)) * temper
    return (reward - chance) / h, 1.0 / h + spread, likelihood, h


@njit(
    float64(
        *(IN1, float64, IN2, V2, V3, V2, V1, V1, V2, V1, V3, V1, IN2),
        *(int64, float64, float64, float64, int64, float64),
    ),
    **OPTIONS,
)
def learn(
    x: Any,
    reward: float,
    V: Any,
    M: Any,
    P: Any,
    q: Any,
    weights: Any,
    prior_weights: Any,
    blend: Any,
    v: Any,
    online: Any,
    start: Any,
    usually: Any,
    reference: int,
    share: float,
    freedom: float,
    temper: float,
    link: int,
    rounds: float,
) -> Any:
    """One round for every filter, then the weights and the blend. Returns the noise variance, or NaN if it is refused.

    Filter c: S = v + zᵀPz, e = r − zᵀm, m += Pz·e/S, P −= (Pz)(Pz)ᵀ/S, then P += diag(q). With `freedom` ν > 0 weights
    follow Student's t, w ∝ w·[S(1 + e²/νS)^(ν+1)]^(−temper/2), which outliers cannot rule, and the noise variance moves
    towards its expectation given the round, v·zᵀPz/S + (v/S)²e², by one part in 30 + min(`rounds`, 1000). Errors beyond
    ten standard deviations count as ten. With ν = 0 the noise is known: w ∝ w·N(e; 0, S). A `share` of the weights
    returns to the prior weights. The alarm gathers v(e²/S + 2zᵀPz/S) of the filter `reference`, and how far the
    reward is from what `start` (d,), the mean of the logs, expects.

    With link LOGIT the reward is a click, from 0 to 1, and z·m its log-odds: S and e are those of `_clicked`, weights
    follow the likelihood of the click, and 1/v moves towards π(1 − π) in the same way.

    Variances stay positive: no round lessens one by more than STEEPEST, and an action too far from anything in the
    logs, by `usually`, is refused; so is a round whose squares would overflow, before anything is changed. The result
    is negative if the error, or the leverage, of the round was cut for filters of more than half of the weight.

    With learned noise, filters of weight below PARKED learn every eighth round only, the one that knows online rounds
    alone excepted, and the blend's covariance does without them. In the other rounds they predict what the rest
    predicts, so that their weight stays (Freund et al. 1997).
    """
    C, d = M.shape
    if len(x) != V.shape[0]:
        return REFUSED
    z = np.empty(d)
    if not coordinates(x, V, z) or not reward * reward < LARGEST_SQUARE:
        return REFUSED
    if link == LOGIT and not 0.0 <= reward <= 1.0:
        return REFUSED
    if is_too_far(z, usually):
        return REFUSED
    counted = NOISE_PRIOR_ROUNDS + min(rounds, NOISE_MEMORY)
    all_awake = freedom <= 0.0 or int(rounds) % REST == 0
    G, gains, likelihoods, elapsed = np.empty((C, d)), np.zeros(C), np.zeros(C), np.zeros(C)
    awake = np.zeros(C, dtype=np.bool_)
    largest = -np.inf
    apart, square = 0.0, 0.0
    spreads, errors, cut = np.empty(C), np.empty(C), 0.0
    for c in range(C):
        awake[c] = all_awake or weights[c] >= PARKED or c == reference
        if not awake[c]:
            continue
        g = G[c]
        _product(z, P[c], g)
        spread, e = 0.0, reward
        for i in range(d):
            spread += g[i] * z[i]
            e -= M[c, i] * z[i]
        spreads[c], errors[c] = max(spread, 0.0), e
        if not (spreads[c] < LARGEST_SQUARE and e * e < LARGEST_SQUARE):
            return REFUSED
    for c in range(C):
        if not awake[c]:
            continue
        g, spread, e = G[c], spreads[c], errors[c]
        S = spread + max(v[c], spread / STEEPEST)
        likelihood, h = 0.0, 0.0
        if link == LOGIT:
            e, S, likelihood, h = _clicked(reward, reward - e, spread, temper)
        gain = 1.0 / S
        if freedom > 0.0 and link == IDENTITY:
            furthest = OUTLIER * np.sqrt(S)
            if abs(e) > furthest or spread > STEEPEST * v[c]:
                cut += weights[c]
            e = min(max(e, -furthest), furthest)
        if c == reference:
            apart, square = e, v[c] * (e * e * gain + LEVERAGE * (1.0 - v[c] * gain))
            for i in range(d):
                apart += z[i] * (M[c, i] - start[i])
        for i in range(d):
            M[c, i] += g[i] * e * gain
        surprise = e * e * gain
        if link == LOGIT:
            v[c] = 1.0 / (1.0 / v[c] + (h - 1.0 / v[c]) / counted)
        elif freedom > 0.0:
            likelihood = -0.5 * (np.log(S) + (freedom + 1.0) * np.log(1.0 + surprise / freedom)) * temper
            kept = v[c] * gain
            v[c] = max(v[c] + (v[c] * (1.0 - kept) + kept * kept * e * e - v[c]) / counted, LEAST_NOISE)
        else:
            likelihood = -0.5 * (np.log(S) + surprise)
        gains[c], likelihoods[c] = gain, likelihood
        largest = max(largest, np.log(weights[c]) + likelihood)
    before, after = 0.0, 0.0
    for c in range(C):
        if awake[c]:
            before += weights[c]
            after += weights[c] * np.exp(likelihoods[c] - largest)
    rest = np.log(after / before) + largest
    total = 0.0
    for c in range(C):
        if not awake[c]:
            likelihoods[c] = rest
        weights[c] = np.exp(np.log(weights[c]) + likelihoods[c] - largest)
        total += weights[c]
    for i in range(d + 1):
        for j in range(d):
            blend[i, j] = 0.0
    for c in range(C):
        parked = all_awake and freedom > 0.0 and weights[c] < PARKED * total and c != reference
        elapsed[c] = float(REST) if parked else 1.0  # rounds, for this filter
        weights[c] = (1.0 - share) * weights[c] / total + share * prior_weights[c]
        for i in range(d):
            blend[0, i] += weights[c] * M[c, i]
    off_mean = np.empty(d)
    noise = 0.0
    for c in range(C):
        noise += weights[c] * v[c]
        seen = weights[c] if freedom <= 0.0 or weights[c] >= PARKED or c == reference else 0.0
        for i in range(d):
            off_mean[i] = M[c, i] - blend[0, i]
        if awake[c]:
            _absorb(G[c], gains[c], q[c], elapsed[c], P[c], seen, off_mean, blend)
    gather(z, apart, square, online)
    return -noise if cut > 0.5 else noise


LAG_FROM, LAG_AFTER, LEAST_MOST = 3.0, 3.0, 16.0
CALM_PRICE, CHANGED_PRICE = 30.0, 2.0
TEST_ROUNDS = 8.0
LEAST_DOUBT = 0.01
TOO_FAR = -3
SMALLEST_GAP = 1e-6
UNLIKELY, IMPOSSIBLE = 1e-5, 1e-12
ROOT_TWO, ROOT_TWO_PI = math.sqrt(2.0), math.sqrt(2.0 * math.pi)


@njit(int64(IN2, IN2, V2, V3, IN2, int64, float64, float64, float64, V2), **OPTIONS)
def score(
    X: Any,
    V: Any,
    blend: Any,
    P: Any,
    usually: Any,
    reference: int,
    most: float,
    noise: float,
    rounds: float,
    parts: Any,
) -> Any:
    """Mean, width and neglect of every action; X (K, p), parts (3, K).

    Neglect: t·zᵀP_u z/(s²·zᵀQz), P_u of the filter `reference`, which knows online rounds alone, and Q = `usually`
    (d, d), the inverse of the logs' mean of zzᵀ: how much less is known of the action than t rounds like those of the
    logs would have taught. For an action hardly tried it grows with t. Where none of the offered is well known it is in
    units of the best known one: new contexts neglect nothing. Width: the mixture's standard deviation; for neglect
    above 3, after 3d rounds, times the fourth root of neglect/3, at least √(`most`/16) and at most √`most`. If Q is
    not known, as in files of version 0.1, zᵀQz is taken as d, and neither rounds nor the best known count.
    """
    d = blend.shape[1]
    if X.shape[1] != V.shape[0] or X.shape[0] == 0:
        return WRONG_SHAPE
    z = np.empty(d)
    least = np.inf
    for k in range(X.shape[0]):
        if not coordinates(X[k], V, z):
            return NOT_FINITE
        mean = 0.0
        for i in range(d):
            mean += blend[0, i] * z[i]
        parts[0, k] = mean
        usual = form(z, usually) if len(usually) else float(d)
        if not usual <= FARTHEST * d:
            return TOO_FAR
        parts[2, k] = rounds * max(form(z, P[reference]), 0.0) / (noise * max(usual, 1.0))
        parts[1, k] = max(form(z, blend[1:]), 0.0)
        least = min(least, parts[2, k])
    for k in range(X.shape[0]):
        if not len(usually):
            lag = min(max(1.0, np.sqrt(parts[2, k] / LAG_FROM)), most)
        else:
            parts[2, k] /= max(1.0, least)
            lag = 1.0
            if parts[2, k] >= LAG_FROM and rounds >= LAG_AFTER * d:
                lag = min(max(np.sqrt(parts[2, k] / LAG_FROM), most / LEAST_MOST, 1.0), most)
        parts[1, k] = np.sqrt(parts[1, k] * lag)
    return 0


@njit("Tuple((f8, f8))(f8, f8)", **OPTIONS)
def _hope(mean: float, deviation: float) -> Any:
    """P(a > 0) and E[max(a, 0)] of a normal a."""
    if deviation <= 0.0:
        return (1.0, mean) if mean > 0.0 else (0.0, 0.0)
    size = mean / deviation
    better = 0.5 * math.erfc(-size / ROOT_TWO)
    return better, max(0.0, deviation * math.exp(-0.5 * size * size) / ROOT_TWO_PI + mean * better)


@njit(
    "Tuple((f8, f8, f8))(f8[::1], f8[::1], f8[:, ::1], f8[:, :, ::1], f8[:, ::1], f8[::1], i8, f8, f8, f8)", **OPTIONS
)
def _worth(
    z: Any,
    best: Any,
    M: Any,
    P: Any,
    q: Any,
    weights: Any,
    reference: int,
    least: float,
    behind: float,
    remaining: float,
) -> Any:
    """How far the action z may be better than `best`: P, E[max(advantage, 0)], and the latter over all rounds to come.

    The filter that knows online rounds alone weighs at least `least`. What is learned of coefficients that move by q a
    round lasts as long as they need to move by what there is to gain, `behind` and the expected advantage.
    """
    d = len(z)
    apart = np.empty(d)
    better, gain, worth = 0.0, 0.0, 0.0
    for i in range(d):
        apart[i] = z[i] - best[i]
    for c in range(len(weights)):
        w = max(weights[c], least) if c == reference else weights[c]
        if w < UNLIKELY:
            continue
        mean, moves = 0.0, 0.0
        for i in range(d):
            mean += apart[i] * M[c, i]
            moves += apart[i] * apart[i] * q[c, i]
        likely, hope = _hope(mean, np.sqrt(max(form(apart, P[c]), 0.0)))
        if likely < IMPOSSIBLE:
            continue
        reach = behind + hope / likely
        lasts = min(remaining, reach * reach / moves) if moves > 0.0 else remaining
        better += w * likely
        gain += w * hope
        worth += w * hope * lasts
    return better, gain, worth


@njit(int64(IN2, IN2, V2, V3, V2, V1, INT1, int64, float64, float64, float64, V2), **OPTIONS)
def untested(
    X: Any,
    V: Any,
    M: Any,
    P: Any,
    q: Any,
    weights: Any,
    settled: Any,
    reference: int,
    noise: float,
    remaining: float,
    neglect: float,
    parts: Any,
) -> Any:
    """The neglected action most worth a test, or −1.

    An action is tested if E[max(advantage over the best mean, 0)] over the rounds to come is more than `price` times
    what n rounds of it would cost by the mixture's means; n = 1 + 8s²/δ² rounds tell an advantage of δ from none. With
    the probability that the logs' model, its baseline included, no longer holds, the price falls from thirty to two and
    the weight of the filter that knows online rounds alone rises to 1, from .01 at least.
    """
    K, d = X.shape[0], M.shape[1]
    leader = 0
    for k in range(1, K):
        if parts[0, k] > parts[0, leader]:
            leader = k
    changed = 0.0
    for c in range(len(weights)):
        if not settled[c]:
            changed += weights[c]
    price = CALM_PRICE + (CHANGED_PRICE - CALM_PRICE) * changed
    z, best = np.empty(d), np.empty(d)
    coordinates(X[leader], V, best)
    top, chosen = 1.0, -1
    for k in range(K):
        if k == leader or parts[2, k] < neglect or parts[2, k] < parts[2, leader]:
            continue
        coordinates(X[k], V, z)
        behind = max(parts[0, leader] - parts[0, k], SMALLEST_GAP * np.sqrt(noise))
        better, gain, worth = _worth(z, best, M, P, q, weights, reference, LEAST_DOUBT + changed, behind, remaining)
        if better < IMPOSSIBLE:
            continue
        reach = behind + gain / better
        ratio = worth / (price * (1.0 + TEST_ROUNDS * noise / (reach * reach)) * behind)
        if ratio > top:
            top, chosen = ratio, k
    return chosen


@njit(
    int64(
        IN2, IN2, V2, V3, IN2, int64, float64, float64, float64, float64, V2, V2, V1, INT1, float64, float64, float64
    ),
    **OPTIONS,
)
def choose(
    X: Any,
    V: Any,
    blend: Any,
    P: Any,
    usually: Any,
    reference: int,
    most: float,
    noise: float,
    rounds: float,
    multiplier: float,
    M: Any,
    q: Any,
    weights: Any,
    settled: Any,
    remaining: float,
    neglect: float,
    patience: float,
) -> Any:
    """Index of the largest mean + multiplier · width, or of an action worth a test, or a negative status.

    Tests begin after `patience` · d rounds, of actions neglected more than `neglect`-fold.
    """
    parts = np.empty((3, X.shape[0]))
    status = score(X, V, blend, P, usually, reference, most, noise, rounds, parts)
    if status < 0:
        return status
    if rounds >= patience * M.shape[1]:
        worst = 0.0
        for k in range(X.shape[0]):
            worst = max(worst, parts[2, k])
        if worst >= neglect:
            tested = untested(X, V, M, P, q, weights, settled, reference, noise, remaining, neglect, parts)
            if tested >= 0:
                return tested
    best, chosen = -np.inf, 0
    for k in range(X.shape[0]):
        value = parts[0, k] + multiplier * parts[1, k]
        if value > best:
            best, chosen = value, k
    return chosen


@njit(
    float64(
        *(V2, INT1, INT1, V2, IN1, float64),
        *(IN2, V2, V3, V2, V1, V1, INT1, V1, IN2),
        *(int64, float64, float64, float64, float64, float64, float64, float64, int64, float64),
    ),
    **OPTIONS,
)
def rehearse(
    rows: Any,
    starts: Any,
    order: Any,
    truth: Any,
    luck: Any,
    level: float,
    V: Any,
    M: Any,
    P: Any,
    q: Any,
    weights: Any,
    v: Any,
    settled: Any,
    prior_weights: Any,
    usually: Any,
    reference: int,
    most: float,
    multiplier: float,
    neglect: float,
    patience: float,
    share: float,
    freedom: float,
    temper: float,
    link: int,
    horizon: float,
) -> Any:
    """Regret of T rounds: in round t the set order[t] of `rows`, coefficients truth[t] (T, p), noise luck[t] about
    `level`; with link LOGIT a click if luck[t], from 0 to 1, is below its probability. The state of the filters is
    changed: hand over copies.
    """
    C, d = M.shape
    p = rows.shape[1]
    blend, sums, start = np.empty((d + 1, d)), np.zeros((2, d + 1, d + 1)), np.zeros(d)
    blend_filters(M, P, weights, blend)
    regret = 0.0
    for t in range(len(order)):
        first, last = starts[order[t]], starts[order[t] + 1]
        offered = rows[first:last]
        noise = 0.0
        for c in range(C):
            noise += weights[c] * v[c]
        chosen = choose(
            *(offered, V, blend, P, usually, reference, most, noise, float(t), multiplier),
            *(M, q, weights, settled, horizon - t, neglect, patience),
        )
        best, own = -np.inf, 0.0
        for k in range(last - first):
            value = 0.0
            for j in range(p):
                value += offered[k, j] * truth[t, j]
            if link == LOGIT:
                value = 1.0 / (1.0 + np.exp(-level - value))
            best = max(best, value)
            if k == chosen:
                own = value
        regret += best - own
        reward = level + own + luck[t]
        if link == LOGIT:
            reward = 1.0 if luck[t] < own else 0.0
        learn(
            *(offered[chosen], reward, V, M, P, q, weights, prior_weights, blend, v, sums),
            *(start, usually, reference, share, freedom, temper, link, float(t)),
        )
    return regret
