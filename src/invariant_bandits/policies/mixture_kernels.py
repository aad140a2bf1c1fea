"""The compiled inner loops of a mixture of Kalman filters: plain functions on arrays.

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

from invariant_bandits.policies.alarm_kernels import gather
from invariant_bandits.policies.kernels import IN1, IN2, LARGEST_SQUARE, NOT_FINITE, OPTIONS, V1, V2, V3, WRONG_SHAPE

NEGLIGIBLE = 1e-9
LAG_FROM = 3.0
REFUSED = np.nan
OUTLIER = 10.0
PARKED, REST = 1e-4, 8
NOISE_PRIOR_ROUNDS = 30.0
NOISE_MEMORY = 1000.0
INT1 = int64[::1]
IN3 = types.Array(float64, 3, "C", readonly=True)
CALM_PRICE, CHANGED_PRICE = 30.0, 2.0
TEST_ROUNDS = 8.0
LEAST_DOUBT = 0.01
SMALLEST_GAP = 1e-6
UNLIKELY, IMPOSSIBLE = 1e-5, 1e-12
ROOT_TWO, ROOT_TWO_PI = math.sqrt(2.0), math.sqrt(2.0 * math.pi)


@njit(types.boolean(IN1, IN2, V1), **OPTIONS)
def _coordinates(x: Any, V: Any, z: Any) -> Any:
    """z ← [Vᵀx, 1] or Vᵀx; whether x is finite and can be squared."""
    p = len(x)
    size = 0.0
    for i in range(len(z)):
        z[i] = 0.0
    for j in range(p):
        size += x[j] * x[j]
        for i in range(p):
            z[i] += x[j] * V[j, i]
    if len(z) > p:
        z[p] = 1.0
    return size < LARGEST_SQUARE


@njit(float64(V1, IN2), **OPTIONS)
def _form(z: Any, A: Any) -> Any:
    """zᵀAz of a symmetric matrix with len(z) columns, from its lower triangle."""
    total = 0.0
    for i in range(len(z)):
        row = 0.0
        for j in range(i):
            row += A[i, j] * z[j]
        total += z[i] * (2.0 * row + A[i, i] * z[i])
    return total


@njit(int64(IN2, IN2, V2, V3, int64, float64, float64, float64, V2), **OPTIONS)
def score(
    X: Any, V: Any, blend: Any, P: Any, reference: int, most: float, noise: float, rounds: float, parts: Any
) -> Any:
    """Mean, width and neglect of every action; X (K, p), parts (3, K).

    Neglect: t·zᵀP_u z/(d·s²), P_u of the filter `reference`, which knows online rounds alone. After t rounds of varied
    actions it is about 1; for an action hardly tried it grows with t. Width: the mixture's standard deviation, times
    the fourth root of neglect/3 if that is above 1, by `most` at most.
    """
    d = blend.shape[1]
    if X.shape[1] != V.shape[0] or X.shape[0] == 0:
        return WRONG_SHAPE
    z = np.empty(d)
    for k in range(X.shape[0]):
        if not _coordinates(X[k], V, z):
            return NOT_FINITE
        mean = 0.0
        for i in range(d):
            mean += blend[0, i] * z[i]
        parts[0, k] = mean
        parts[2, k] = rounds * max(_form(z, P[reference]), 0.0) / (noise * d)
        lag = min(max(1.0, np.sqrt(parts[2, k] / LAG_FROM)), most)
        parts[1, k] = np.sqrt(max(_form(z, blend[1:]), 0.0) * lag)
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
        likely, hope = _hope(mean, np.sqrt(max(_form(apart, P[c]), 0.0)))
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
    _coordinates(X[leader], V, best)
    top, chosen = 1.0, -1
    for k in range(K):
        if k == leader or parts[2, k] < neglect or parts[2, k] < parts[2, leader]:
            continue
        _coordinates(X[k], V, z)
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
    int64(IN2, IN2, V2, V3, int64, float64, float64, float64, float64, V2, V2, V1, INT1, float64, float64, float64),
    **OPTIONS,
)
def choose(
    X: Any,
    V: Any,
    blend: Any,
    P: Any,
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
    status = score(X, V, blend, P, reference, most, noise, rounds, parts)
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
    types.boolean(
        IN3, IN2, V2, V3, int64, float64, float64, float64, float64, V2, V2, V1, INT1, float64, float64, float64, INT1
    ),
    **OPTIONS,
)
def choose_many(
    rounds_offered: Any,
    V: Any,
    blend: Any,
    P: Any,
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
    chosen: Any,
) -> Any:
    """What `choose` makes of every round (N, K, p); False if it refuses one."""
    for n in range(len(chosen)):
        chosen[n] = choose(
            *(rounds_offered[n], V, blend, P, reference, most, noise, rounds, multiplier),
            *(M, q, weights, settled, remaining, neglect, patience),
        )
        if chosen[n] < 0:
            return False
    return True


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
            A[i, i] += elapsed * q[i]
        else:
            off = weight * apart[i]
            for j in range(i):
                entry = A[i, j] - scaled * g[j]
                A[i, j] = entry
                blend[i + 1, j] += weight * entry + off * apart[j]
            entry = A[i, i] - scaled * g[i] + elapsed * q[i]
            A[i, i] = entry
            blend[i + 1, i] += weight * entry + off * apart[i]


@njit(
    float64(IN1, float64, IN2, V2, V3, V2, V1, V1, V2, V1, V3, V1, int64, float64, float64, float64, float64),
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
    reference: int,
    share: float,
    freedom: float,
    temper: float,
    rounds: float,
) -> Any:
    """One round for every filter, then the weights and the blend. Returns 0, or NaN if it is refused.

    Filter c: S = v + zᵀPz, e = r − zᵀm, m += Pz·e/S, P −= (Pz)(Pz)ᵀ/S, then P += diag(q). With `freedom` ν > 0 weights
    follow Student's t, w ∝ w·[S(1 + e²/νS)^(ν+1)]^(−temper/2), which outliers cannot rule, and the noise variance moves
    towards its expectation given the round, v·zᵀPz/S + (v/S)²e², by one part in 30 + min(`rounds`, 1000). Errors beyond
    ten standard deviations count as ten. With ν = 0 the noise is known: w ∝ w·N(e; 0, S). A `share` of the weights
    returns to the prior weights. The alarm gathers (v/S)e² of the filter `reference`, and how far the reward is from
    what `start` (d,), the mean of the logs, expects.

    With learned noise, filters of weight below PARKED learn every eighth round only, the one that knows online rounds
    alone excepted, and the blend's covariance does without them. In the other rounds they predict what the rest
    predicts, so that their weight stays (Freund et al. 1997).
    """
    C, d = M.shape
    if len(x) != V.shape[0]:
        return REFUSED
    z = np.empty(d)
    if not _coordinates(x, V, z) or not reward * reward < LARGEST_SQUARE:
        return REFUSED
    counted = NOISE_PRIOR_ROUNDS + min(rounds, NOISE_MEMORY)
    all_awake = freedom <= 0.0 or int(rounds) % REST == 0
    G, gains, likelihoods, elapsed = np.empty((C, d)), np.zeros(C), np.zeros(C), np.zeros(C)
    awake = np.zeros(C, dtype=np.bool_)
    largest = -np.inf
    apart, square = 0.0, 0.0
    for c in range(C):
        awake[c] = all_awake or weights[c] >= PARKED or c == reference
        if not awake[c]:
            continue
        g = G[c]
        _product(z, P[c], g)
        S, e = v[c], reward
        for i in range(d):
            S += g[i] * z[i]
            e -= M[c, i] * z[i]
        gain = 1.0 / S
        if freedom > 0.0:
            furthest = OUTLIER * np.sqrt(S)
            e = min(max(e, -furthest), furthest)
        if c == reference:
            apart, square = e, e * e * v[c] * gain
            for i in range(d):
                apart += z[i] * (M[c, i] - start[i])
        for i in range(d):
            M[c, i] += g[i] * e * gain
        surprise = e * e * gain
        if freedom > 0.0:
            likelihood = -0.5 * (np.log(S) + (freedom + 1.0) * np.log(1.0 + surprise / freedom)) * temper
            kept = v[c] * gain
            v[c] += (v[c] * (1.0 - kept) + kept * kept * e * e - v[c]) / counted
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
    return noise
