"""The compiled loop of a rehearsal: a mixture of filters plays rounds whose truth was drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import float64, int64, njit

from invariant_bandits.policies.choice_kernels import choose
from invariant_bandits.policies.kernels import IN1, IN2, OPTIONS, V1, V2, V3
from invariant_bandits.policies.mixture_kernels import INT1, LOGIT, blend_filters, learn


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
