"""Radii of confidence sets and bounds on the regret, one function per statement of the literature.

Symbols as in the paper: delta η (probability of failure), noise_scale σ, ridge λ, norm_bound M ≥ ‖γ‖,
feature_bound L ≥ ‖φ‖, min_eigenvalue λ0 of the logs' Gram matrix per round, logged_rounds T0, subspace_error
ΔΠ = ‖Π̂ − Π‖. The appendix of the paper writes some radii as √ρ̂ after having bounded the norm by ρ̂ itself;
here every function returns the bound on the norm, the radius.

Some constants of the paper do not hold as printed. The functions concerned have a parameter `constants`:
"corrected", the default, is what the paper's own argument proves, and "paper" is what the paper prints.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import cache
from math import exp, log, sqrt
from typing import Any, NamedTuple

from invariant_bandits.checks import (
    InputError,
    number_between,
    one_of,
    probability,
    whole_number,
)

CORRECTED, PAPER = CONSTANTS = "corrected", "paper"


class Assumptions(NamedTuple):
    """What the statements assume of rewards and features; symbols as above."""

    delta: float
    noise_scale: float = 1.0
    ridge: float = 0.1
    norm_bound: float = 1.0
    feature_bound: float = 1.0


class Logs(NamedTuple):
    """What the logs leave unknown; symbols as above."""

    invariant_dim: int
    min_eigenvalue: float
    logged_rounds: float
    subspace_error: float = 0.0


# -- radii of published policies --


def lemma1_radius(
    log_volume: float,
    delta: float,
    noise_scale: float,
    ridge: float,
    norm_bound: float,
) -> float:
    """Return the confidence radius of a ridge regression (the paper's Lemma 1).

    It is Theorem 2 of Abbasi-Yadkori et al. (2011). With probability 1 − delta, the radius bounds the
    error of the coefficients in all rounds at once, in the norm of the regularised Gram matrix A::

        σ√(2 log(1/η) + log_volume) + √λ·M        log_volume = log(det A / det λI)
    """
    return noise_scale * sqrt(-2.0 * log(delta) + log_volume) + sqrt(ridge) * norm_bound


def lemma1_trace_bound(
    rounds: float, dim: int, ridge: float, feature_bound: float
) -> float:
    """Lemma 1, second part: log det A/det λI ≤ p·log(1 + tL²/(λp))."""
    return (
        0.0 if dim == 0 else dim * log(1.0 + rounds * feature_bound**2 / (ridge * dim))
    )


def sliding_window_radius(dim: int, window: int, assumed: Assumptions) -> float:
    """Cheung, Simchi-Levi & Zhu (2019), Theorem 2: σ√(d·log((1 + wL²/λ)/η)) + √λ·M."""
    inside = dim * (
        log(1.0 + window * assumed.feature_bound**2 / assumed.ridge)
        - log(assumed.delta)
    )
    return assumed.noise_scale * sqrt(inside) + sqrt(assumed.ridge) * assumed.norm_bound


def discounted_radius(
    rounds: int, dim: int, discount: float, assumed: Assumptions
) -> float:
    """Russac, Vernade & Cappé (2019), Theorem 1, for the norm of A⁻¹ṼA⁻¹.

    √λ·M + σ√(2 log(1/η) + d·log(1 + L²(1 − γ^{2t})/(λd(1 − γ²)))).
    """
    weight = (1.0 - discount ** (2 * rounds)) / (1.0 - discount**2)
    return theorem1_residual_radius(weight, dim, assumed)


def thompson_scale(rounds: int, dim: int, delta: float, noise_scale: float) -> float:
    """Return the scale of the draws in Thompson sampling (Agrawal & Goyal 2013).

    Draws have the standard deviation σ√(9d·log(t/η)) times A^{-1/2}, with rounds t counted from 1.
    """
    return noise_scale * sqrt(9.0 * dim * (log(rounds + 1.0) - log(delta)))


def disjoint_radius(delta: float) -> float:
    """Li et al. (2010), Section 3.1: α = 1 + √(log(2/η)/2), for one action's own regression."""
    return 1.0 + sqrt(0.5 * (log(2.0) - log(delta)))


# -- radii of ISD-linUCB --


def theorem1_residual_radius(
    rounds: float, residual_dim: int, assumed: Assumptions
) -> float:
    """Return the confidence radius of the drifting coefficients if the stable ones are known.

    This is the paper's Theorem 1. The radius is that of Lemma 1 (`lemma1_radius`), with the
    log-determinant replaced by its upper bound after t rounds::

        log(det A / det λI) ≤ p_res·log(1 + tL²/(λ·p_res))
    """
    volume = lemma1_trace_bound(
        rounds, residual_dim, assumed.ridge, assumed.feature_bound
    )
    return lemma1_radius(volume, *assumed[:4])


def theorem2_invariant_radius(
    invariant_dim: int,
    min_eigenvalue: float,
    assumed: Assumptions,
    *,
    constants: str = CORRECTED,
) -> float:
    """Return the confidence radius of the stable coefficients if the stable directions are known.

    This is the paper's Theorem 2. With probability 1 − 2·delta, the radius with the corrected constants
    bounds the error of the regression over all logged rounds (equation 6) in the norm of the logs' Gram
    matrix::

        σ√(4 log(1/η) + 2p_inv·log(1 + L²/(p_inv·λ0))) + 2L²M√(2/λ0·log((p_inv + 1)/η))

    The second term needs features of mean zero along the stable or the drifting directions, and logged
    actions that do not depend on earlier rewards.

    With constants="paper" the first term is as printed, and the statement does not hold. The paper's proof
    applies Lemma 1 with the regulariser λ0·T0, then drops a factor √2 and the regulariser inside the
    determinant::

        σ√(2 log(1/η) + p_inv·log(L²/(p_inv·λ0)))
    """
    one_of("constants", constants, CONSTANTS)
    if invariant_dim == 0:
        return 0.0
    ratio = assumed.feature_bound**2 / (invariant_dim * min_eigenvalue)
    if ratio < 1.0:
        least = sqrt(invariant_dim * min_eigenvalue)
        raise InputError(
            f"feature_bound must be at least {least:g}, got {assumed.feature_bound:g}"
        )
    if constants == PAPER:
        squared = -2.0 * log(assumed.delta) + invariant_dim * log(ratio)
    else:
        # Lemma 1 with the regulariser λ0·T0·I; it at most doubles the Gram matrix, which costs the factor 2.
        squared = 2.0 * (-2.0 * log(assumed.delta) + invariant_dim * log(1.0 + ratio))
    noise = assumed.noise_scale * sqrt(squared)
    crossing = sqrt(
        2.0 / min_eigenvalue * (log(invariant_dim + 1.0) - log(assumed.delta))
    )
    return noise + 2.0 * assumed.feature_bound**2 * assumed.norm_bound * crossing


def lemma2_invariant_radius(
    logs: Logs, assumed: Assumptions, *, constants: str = CORRECTED
) -> float:
    """Return the confidence radius of the stable coefficients if their directions are estimated.

    This is the paper's Lemma 2. With probability 1 − 4·delta, the radius with the corrected constants
    bounds the distance of the estimate from Π̂β, the part of the stable coefficients along the estimated
    directions::

        Theorem 2's radius + √(p_inv·T0)·ΔΠ·LM + √(T0/λ0)·ΔΠ·L²M

    The parameter `constants` is that of `theorem2_invariant_radius`: "paper" does not hold. The stable
    directions must not have been chosen by the noise in the logged rewards.
    """
    exact = theorem2_invariant_radius(
        logs.invariant_dim, logs.min_eigenvalue, assumed, constants=constants
    )
    tilt = sqrt(logs.invariant_dim) + assumed.feature_bound / sqrt(logs.min_eigenvalue)
    length = assumed.feature_bound * assumed.norm_bound
    return exact + sqrt(logs.logged_rounds) * logs.subspace_error * length * tilt


def component_error(radius: float, logs: Logs, norm_bound: float) -> float:
    """‖β̂ − β‖₂ ≤ ρ_inv/√(λ0·T0) + ΔΠ·M, by Assumption 2 and because Π̂β differs from β by at most ΔΠ·M."""
    return (
        radius / sqrt(logs.min_eigenvalue * logs.logged_rounds)
        + logs.subspace_error * norm_bound
    )


def lemma3_residual_radius(
    rounds: int,
    residual_dim: int,
    component_error: float,
    subspace_error: float,
    assumed: Assumptions,
) -> float:
    """Return the confidence radius of the drifting coefficients if the stable ones are estimated.

    This is the paper's Lemma 3. The radius after t online rounds is::

        Theorem 1's radius + L(M·ΔΠ + ‖β̂ − β‖)√(p_res·t)

    It bounds the distance of the estimate from Π̂δ. The error ‖β̂ − β‖ (parameter `component_error`) holds if
    it comes from a radius with the corrected constants.
    """
    exact = theorem1_residual_radius(rounds, residual_dim, assumed)
    carried = assumed.feature_bound * (
        assumed.norm_bound * subspace_error + component_error
    )
    return exact + carried * sqrt(residual_dim * rounds)


def tilted_prior_error(trace: float, subspace_error: float, norm_bound: float) -> float:
    """Return the error that an estimated split adds to the prior of the joint confidence set.

    The stable coefficients β̂ are a mean over windows, weighted by precisions that sum to G₀ (parameter
    `trace` is its trace). Along the estimated stable directions the true coefficients of a window differ from
    those of the online rounds by at most 2M·ΔΠ. The square of the mean of these differences in the norm of G₀
    is at most the sum of their squares in the norms of the windows (Jensen)::

        2M·ΔΠ·√trace(G₀)
    """
    return 2.0 * norm_bound * subspace_error * sqrt(trace)


@cache
def self_normalised_invariant_radius(invariant_dim: int, delta: float) -> float:
    """Bound on ‖β̂ − β‖ in the norm of the inverse covariance of β̂, the logs being a fixed design.

    Lemma 1 with c times the logs' own precision as its regulariser gives (1 + c)(2 log(1/η) + p_inv·log(1 +
    1/c)) for the squared norm. With x = 1/c the best is x − log(1 + x) = 2 log(1/η)/p_inv, and then the bound
    is p_inv(1 + x): for Gaussian noise, Chernoff's bound on the χ² distribution.
    """
    if invariant_dim == 0:
        return 0.0
    goal = -2.0 * log(delta) / invariant_dim
    x = goal + sqrt(2.0 * goal)
    for _ in range(50):
        step = (x - log(1.0 + x) - goal) * (1.0 + x) / x
        x -= step
        if abs(step) <= 1e-15 * x:
            break
    return sqrt(invariant_dim * (1.0 + x))


# -- bounds on the regret; `scales` are noise_scale, ridge, norm_bound and feature_bound as in Assumptions --


def _regret_of_exploration(
    horizon: int, residual_dim: int, radius: float, assumed: Assumptions, constants: str
) -> float:
    """Bound on Σ_t min(2LM, 2ρ‖z_t‖) over T rounds, where ρ is the largest radius of the residual part.

    Corrected: min(2LM, 2ρx) ≤ 2 max(LM, ρ)·min(1, x), the Cauchy–Schwarz inequality, and Σ min(1, x²) ≤
    2Σ log(1 + x²) = 2 log(det A/det λI). The paper writes 2 max(LM, 1)·ρ, which needs ρ ≥ 1, and leaves out
    the last factor 2.
    """
    one_of("constants", constants, CONSTANTS)
    length = assumed.feature_bound * assumed.norm_bound
    volume = lemma1_trace_bound(
        horizon, residual_dim, assumed.ridge, assumed.feature_bound
    )
    if constants == PAPER:
        return 2.0 * max(length, 1.0) * radius * sqrt(horizon * volume)
    return 2.0 * max(length, radius) * sqrt(2.0 * horizon * volume)


def theorem1_regret_bound(
    horizon: int,
    residual_dim: int,
    *,
    delta: float | None = None,
    constants: str = CORRECTED,
    **scales: Any,
) -> float:
    """Return a bound on the regret of ISD-linUCB if the stable part is known (the paper's Theorem 1).

    With the corrected constants the regret of T rounds is at most the bound with probability 1 −
    `delta`, by default 1 − 1/T. With p_res = p it is a bound for LinUCB::

        2 max(LM, ρ)·√(2T·p_res·log(1 + TL²/(λ·p_res)))       ρ = Theorem 1's radius after T rounds

    With constants="paper" the bound is as printed, and does not hold: 2 max(LM, 1)·ρ instead of 2 max(LM, ρ),
    and T instead of 2T.
    """
    assumed = Assumptions(1.0 / horizon if delta is None else delta, **scales)
    radius = theorem1_residual_radius(horizon, residual_dim, assumed)
    return _regret_of_exploration(horizon, residual_dim, radius, assumed, constants)


def theorem3_regret_bound(
    horizon: int,
    residual_dim: int,
    logs: Logs,
    *,
    delta: float | None = None,
    constants: str = CORRECTED,
    **scales: Any,
) -> float:
    """Return a bound on the regret of ISD-linUCB if the stable part is estimated from logs.

    This is the paper's Theorem 3. The policy plays with the radii of Lemmas 2 and 3 (radius="theorem").
    With the corrected constants its regret is at most the bound with probability 1 − 11·`delta`, by
    default 1 − 1/T::

        T·(2Lρ_inv/√(λ0·T0) + 2LM·ΔΠ) + 2 max(LM, ρ_res)·√(2T·p_res·log(1 + TL²/(λ·p_res)))

    With constants="paper" the bound is as printed, and does not hold: Theorem 2's radius is too small, LM·ΔΠ
    is counted once instead of twice, and the last term is that of the paper's Theorem 1.
    """
    assumed = Assumptions(1.0 / (11.0 * horizon) if delta is None else delta, **scales)
    L, M = assumed.feature_bound, assumed.norm_bound
    invariant = lemma2_invariant_radius(logs, assumed, constants=constants)
    error = component_error(invariant, logs, M)
    radius = lemma3_residual_radius(
        horizon, residual_dim, error, logs.subspace_error, assumed
    )
    # The best and the played action may each be misjudged by LM·ΔΠ: the sets hold Π̂γ, not γ.
    tilted_actions = 1.0 if constants == PAPER else 2.0
    per_round = 2.0 * invariant / sqrt(logs.min_eigenvalue * logs.logged_rounds)
    per_round += tilted_actions * M * logs.subspace_error
    explored = _regret_of_exploration(horizon, residual_dim, radius, assumed, constants)
    return horizon * L * per_round + explored


def joint_regret_bound(
    horizon: int,
    residual_dim: int,
    logs: Logs,
    *,
    delta: float | None = None,
    **scales: Any,
) -> float:
    """Return a bound on the regret of ISD-linUCB with one set for both parts (radius="joint").

    With probability 1 − 2·`delta`, by default 1 − 1/T, the regret of T rounds is at most::

        2 max(LM, r)·√(2T·(V_res + V_inv)) + 4ρ·√(T·V_inv)

        V_res = p_res·log(1 + TL²/(λ·p_res))        r = σ√(2 log(1/η) + V_res + V_inv) + √λ·M
        V_inv = p_inv·log(1 + TL²/(λ0·T0·p_inv))    ρ = radius of the prior of the stable coefficients

    It is of order p_res·√T + p_inv·min{√T, T/√(λ0·T0)}, up to logarithms, for features in a cube. The proof
    is in docs/method/proofs.md. All eigenvalues of the precision G₀ of the stable coefficients, in units of
    the noise, must be at least λ0·T0.

    Parameters
    ----------
    horizon, residual_dim : int
        Number T of online rounds and number p_res of drifting directions.
    logs : Logs
        What the logs leave unknown.
    delta : float, optional
        Probability η with which each of the two sets may fail.
    **scales : float
        Values for `noise_scale`, `ridge`, `norm_bound` and `feature_bound`, as in `logs_needed`.
    """
    assumed = Assumptions(1.0 / (2.0 * horizon) if delta is None else delta, **scales)
    L, M = assumed.feature_bound, assumed.norm_bound
    stable_volume = lemma1_trace_bound(
        horizon, logs.invariant_dim, logs.min_eigenvalue * logs.logged_rounds, L
    )
    drifting_volume = lemma1_trace_bound(horizon, residual_dim, assumed.ridge, L)
    volume = drifting_volume + stable_volume
    online = lemma1_radius(volume, *assumed[:4])
    prior = assumed.noise_scale * self_normalised_invariant_radius(
        logs.invariant_dim, assumed.delta
    )
    # The trace of G₀ is at most that of the logs' Gram matrix, L²·T0.
    prior += tilted_prior_error(L**2 * logs.logged_rounds, logs.subspace_error, M)
    explored = 2.0 * max(L * M, online) * sqrt(2.0 * horizon * volume)
    return explored + 4.0 * prior * sqrt(horizon * stable_volume)


def regret_lower_bound(
    horizon: int, residual_dim: int, logs: Logs | None = None
) -> float:
    """Return a regret that no policy can avoid in every environment (the paper's Appendix D, with logs).

    If p_res directions drift over T rounds and T0 logged rounds tell of p_inv stable ones, every policy has
    at least this regret in some environment::

        e⁻²/8·(p_res·√T + p_inv·T/√(T + λ0·T0))

    Without `logs` the stable coefficients are known: T0 = ∞, the paper's bound. It is for features in the
    cube [−1, 1]^p, noise of variance 1 and logs whose Gram matrix is λ0·T0·I along the stable directions.
    """
    per_direction = exp(-2.0) / 8.0
    bound = per_direction * residual_dim * sqrt(horizon)
    if logs is not None:
        informative = horizon + logs.min_eigenvalue * logs.logged_rounds
        bound += per_direction * logs.invariant_dim * horizon / sqrt(informative)
    return bound


def forgetting_rate(horizon: float, dim: float, variation: float) -> float:
    """Return the rate p^{7/8}·T^{3/4}·B^{1/4} of the regret of policies that forget: no constants, no logs.

    It holds for sliding windows, discounts and restarts whose length H is tuned to the total variation B =
    Σ‖γ_{t+1} − γ_t‖ (Zhao & Zhou 2021, who correct the proofs of Cheung et al. and Russac et al. 2019): the
    minimum over H of p·T/√H for learning and √p·B·H^{3/2} for drift, up to a factor.
    """
    return float(dim**0.875 * horizon**0.75 * variation**0.25)


def forgetting_lower_rate(horizon: float, dim: float, variation: float) -> float:
    """Return the rate p^{2/3}·T^{2/3}·B^{1/3} that no policy can beat (Cheung et al. 2019): no constants.

    B is the total variation, between p/√T and p·T/√p.
    """
    return float((dim**2 * horizon**2 * variation) ** (1.0 / 3.0))


def logs_needed(
    horizon: int,
    residual_dim: int,
    invariant_dim: int,
    min_eigenvalue: float,
    *,
    share: float = 0.1,
    subspace_constant: float = 0.0,
    constants: str = CORRECTED,
    **scales: Any,
) -> int:
    """Return how many logged rounds make the cost of estimation errors small.

    The result is the smallest number T0 of logged rounds for which the regret bound of the paper's Theorem 3,
    with the corrected constants, is at most (1 + share) times its limit for T0 → ∞. Regret bounds are loose:
    use the result of `logs_needed` as an order of magnitude, or to compare plans.

    Parameters
    ----------
    horizon : int
        Number T of online rounds.
    residual_dim, invariant_dim : int
        Number p_res of drifting directions and number p_inv of stable directions.
    min_eigenvalue : float
        Smallest eigenvalue λ0 of the Gram matrix of the logged features, divided by the number of rounds.
    share : float
        Allowed relative increase of the regret bound, strictly between 0 and 1.
    subspace_constant : float
        Constant c of the subspace error c·√(log(11pT)/T0) for p features, T online rounds and T0 logged
        rounds (the paper's Assumption 3). The constant c is 0 if the stable directions are known.
    constants : "corrected" or "paper"
        Constants of the regret bound. The bound with "paper", as printed, does not hold.
    **scales : float
        Values for `noise_scale` (default 1), `ridge` (0.1), `norm_bound` (1) and `feature_bound` (1), as in
        LinearPolicy.

    >>> import invariant_bandits as ib
    >>> sizes = {"horizon": 500, "residual_dim": 3, "invariant_dim": 7}
    >>> ib.logs_needed(**sizes, min_eigenvalue=0.05) < ib.logs_needed(**sizes, min_eigenvalue=0.01)
    True
    """
    horizon = whole_number("horizon", horizon, 2)
    residual_dim = whole_number("residual_dim", residual_dim, 1)
    invariant_dim = whole_number("invariant_dim", invariant_dim, 0)
    share = probability("share", share)
    number_between("min_eigenvalue", min_eigenvalue, 0.0, float("inf"))
    eta = 1.0 / (11.0 * horizon)

    def bound(logged: float) -> float:
        tilt = min(
            1.0,
            subspace_constant
            * sqrt((log(residual_dim + invariant_dim) - log(eta)) / logged),
        )
        logs = Logs(invariant_dim, min_eigenvalue, logged, tilt)
        return theorem3_regret_bound(
            horizon, residual_dim, logs, constants=constants, **scales
        )

    goal = (1.0 + share) * bound(1e300)
    high = 2
    while bound(high) > goal:
        high *= 2
    return 1 + bisect_left(
        range(1, high), True, key=lambda logged: bound(logged) <= goal
    )
