"""The compiled choices of a mixture of Kalman filters: scores, and tests of neglected actions.

State and coordinates as in `mixture_kernels`; `settled` (C,) says which filters trust the logs' model. A negative
result is a status, and then nothing was changed.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import float64, int64, njit

from invariant_bandits.policies.kernels import IN2, NOT_FINITE, OPTIONS, V1, V2, V3, WRONG_SHAPE
from invariant_bandits.policies.mixture_kernels import FARTHEST, INT1, coordinates, form

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
