"""The interval of a mean whose rewards may be rare: Student's t over blocks, and what one reward more would change.

Where rewards are rare, a log that happens to hold few of them has both a low value and a small spread: every interval
made of the spread alone misses together with the value. Gamma intervals, which are skewed as the rewards are, and that
hold one reward more than was seen, do not.
"""

from __future__ import annotations

import numpy as np
from scipy import special

from invariant_bandits.checks import Array
from invariant_bandits.evaluation.blocks import block_starts, scaled_block_sums

ALMOST_SYMMETRIC = 1e-4


def covering_interval(
    influence: Array, unseen_up: float, unseen_down: float, clustered: float, confidence: float
) -> tuple[float, float, float]:
    """Standard error over blocks, and how far the interval reaches below and above the value.

    With z the influences, S_b = √(F·B/(B−1)) · their sums over B blocks, F ≥ 1 for what neighbouring blocks share
    (`dependence_of_blocks`), D the clustering, u₋ ≤ 0 ≤ u₊ the unseen moves and α = (1 − confidence)/2, the ends are

        low  = V + min(−t_{B−1}(1−α)·√ΣS², Gamma(z, u₋, α), Gamma(S, D·u₋, α)),
        high = V + max( t_{B−1}(1−α)·√ΣS², Gamma(z, u₊, 1−α), Gamma(S, D·u₊, 1−α)).

    Parameters
    ----------
    influence : array, shape (n,)
        By how much each round moves the value.
    unseen_up, unseen_down : float
        By how much one reward not seen yet may move the value up (≥ 0) and down (≤ 0).
    clustered : float
        How many times the variance over blocks exceeds that of independent rounds, at least 1.
    confidence : float
        Of the interval.
    """
    alpha = 0.5 * (1.0 - confidence)
    scale = max(float(np.abs(influence).max()), unseen_up, -unseen_down)
    if scale == 0.0:
        return 0.0, 0.0, 0.0
    z, up, down = influence / scale, unseen_up / scale, unseen_down / scale
    S = scaled_block_sums(z)
    error = float(np.sqrt(S @ S))
    student = student_quantile(len(z), confidence) * error
    lows = (-student, _gamma_end(z, down, alpha), _gamma_end(S, clustered * down, alpha))
    highs = (student, _gamma_end(z, up, 1.0 - alpha), _gamma_end(S, clustered * up, 1.0 - alpha))
    return scale * error, -scale * float(np.min(lows)), scale * float(np.max(highs))


def _gamma_end(x: Array, u: float, p: float) -> float:
    """Gamma(x, u, p): the p-quantile of a shifted gamma distribution with mean u and the cumulants of x and u.

    With κ₂ = Σx² + u² and κ₃ = 2(Σx³ + u³) its shape is a = 4κ₂³/κ₃², its scale s = κ₃/(2κ₂), and the quantile
    u − a·s + s·gammaincinv(a, p if s > 0 else 1 − p). Where |κ₃| < 1e-4·κ₂^1.5 it is that of a normal distribution.
    """
    k2, k3 = float(x @ x) + u * u, 2.0 * (float((x * x) @ x) + u**3)
    if abs(k3) < ALMOST_SYMMETRIC * k2**1.5 or k2 == 0.0:
        return u + float(np.sqrt(k2) * special.ndtri(p))
    a, s = 4.0 * k2**3 / k3**2, k3 / (2.0 * k2)
    return u - a * s + s * float(special.gammaincinv(a, p if s > 0.0 else 1.0 - p))


def student_quantile(rounds: int, confidence: float) -> float:
    """How many standard errors over the blocks of so many rounds each end of Student's interval is away."""
    return float(special.stdtrit(len(block_starts(rounds)) - 1, 0.5 * (1.0 + confidence)))


def unseen_sizes(residuals: Array) -> tuple[float, float]:
    """How far above and below what is expected a reward not seen yet may lie, beyond Gaussian residuals (n,).

    With e the residuals, u⁺ = max(0, Σ(e⁺)³/Σe² − √(2/π)·rms(e)), the mean size of positive residuals by their share
    in the variance, less what it is for Gaussian ones; u⁻ is the same of −e.
    """
    scale = float(np.abs(residuals).max())
    if scale == 0.0:
        return 0.0, 0.0
    e = residuals / scale
    squares = float(e @ e)
    gaussian = float(np.sqrt(2.0 / np.pi * squares / len(e)))
    cubes_above, cubes_below = (float(np.maximum(one, 0.0) @ (e * e)) for one in (e, -e))
    above, below = (max(0.0, cubes / squares - gaussian) for cubes in (cubes_above, cubes_below))
    return scale * above, scale * below
