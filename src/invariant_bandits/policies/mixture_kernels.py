"""The compiled learning of a mixture of Kalman filters: plain functions on arrays.

State of C filters over d coordinates: means M (C, d), covariances P (C, d, d), process variances q (C, d), weights and
prior weights (C,), log-likelihoods (C,) and noise variances v (C,).
Covariances are kept as lower triangles. `blend` (d + 1, d) is the mixture's mean (first row) and its covariance by the
law of total variance: deciding needs nothing else of the filters.
Coordinates of an action: z = [Vᵀφ, 1] if d = p + 1, else Vᵀφ. Signatures are explicit and input is checked here; a
negative result is a status, and then nothing was changed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import float64, int64, njit, types

from invariant_bandits.policies.alarm_kernels import gather
from invariant_bandits.policies.kernels import IN1, IN2, LARGEST_SQUARE, OPTIONS, V1, V2, V3

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
