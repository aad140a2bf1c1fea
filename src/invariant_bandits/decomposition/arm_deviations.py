"""Arms as deviations from what they share: a block of coefficients per arm, for any number of arms.

The expected reward, or its log-odds, is φᵀθ + zᵀδ_a. All arms share θ (p,); z (w,) are the first w
features of φ, and δ_a ~ N(0, diag(τ²)) are the coefficients by which arm a departs from the others. With w =
1 an arm has a level of its own, with w = p slopes as well. Given θ the arms are independent, so that they can
be eliminated one by one: the cost is that of A blocks (w, w), not of one matrix with A·w rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy import sparse, special

from invariant_bandits.checks import Array
from invariant_bandits.decomposition.arm_statistics import ArmLayout, ArmStatistics
from invariant_bandits.decomposition.fit_constants import ARM, PRIOR, TINY
from invariant_bandits.decomposition.paths import EXACT

Rounds: TypeAlias = tuple[Array, Array, np.ndarray[Any, Any], np.ndarray[Any, Any]]
"""Features (n, p), 1 first, rewards (n,), arms (n,) and windows (n,) of rounds."""


class ArmDeviations(NamedTuple):
    """Coefficients of arms about what they share, partially pooled: δ_a ~ N(0, diag(τ²)).

    Attributes
    ----------
    theta : array, shape (p,)
        θ, shared coefficients, the level of the population first.
    fitted : array, shape (A, w)
        δ over the whole log.
    means, covariances : arrays, shapes (A, w), (A, w, w)
        Of δ when the log ends.
    spread : array, shape (w,)
        τ², the likeliest ones.
    steps : array, shape (w,)
        Variance by which the deviations walk in every round.
    """

    theta: Array
    fitted: Array
    means: Array
    covariances: Array
    spread: Array
    steps: Array


class DeviationSums(NamedTuple):
    """Information and scores of a log at θ and δ.

    G = Σhφφᵀ (p, p), g = Σφe (p,), per arm K = Σhzφᵀ (A, w, p), per window and arm H = Σhzzᵀ (m, A, w, w) and
    E = Σze (m, A, w). h and e are 1/noise and (r − φᵀθ − zᵀδ)/noise or, of clicks, π(1 − π) and r − π. Then
    Σe² and the number of rounds.
    """

    G: Array
    g: Array
    K: Array
    H: Array
    E: Array
    squares: float
    rounds: int


class NewtonStep(NamedTuple):
    """One step for θ and δ together.

    Attributes
    ----------
    theta, deviations : arrays, shapes (p,), (A, w)
        By how much θ moves, and the new δ.
    remaining : array, shape (A, w, w)
        Covariance of δ given θ.
    unsure : array, shape (A, w)
        What the error of θ adds to the variance of δ.
    """

    theta: Array
    deviations: Array
    remaining: Array
    unsure: Array


def newton_step(sums: DeviationSums, deviations: Array, spread: Array) -> NewtonStep:
    """Eliminate the deviations, solve for θ, and return both.

    With L = (H + diag(1/τ²))⁻¹ of every arm, (G − ΣKᵀLK)Δθ = g − ΣKᵀL(E − δ/τ²).
    """
    w = len(spread)
    K = sums.K
    remaining = _inverses(sums.H.sum(axis=0) + np.diag(1.0 / spread))
    pull = sums.E.sum(axis=0) - deviations / spread
    LK = remaining @ K
    of_pull = (remaining @ pull[:, :, None])[:, :, 0]
    stacked = K.reshape(-1, K.shape[2])
    system = sums.G - stacked.T @ LK.reshape(stacked.shape)
    system = 0.5 * (system + system.T)
    # A faint ridge makes the system regular; it shortens the step, not the solution.
    system += ARM.faint_ridge * np.diag(np.maximum(np.diagonal(system), TINY))
    right = sums.g - stacked.T @ of_pull.ravel()
    inverse = np.linalg.inv(system)
    move = inverse @ right
    return NewtonStep(
        theta=move,
        deviations=deviations + of_pull - LK @ move,
        remaining=remaining,
        unsure=((LK @ inverse) * LK).sum(axis=2).reshape(-1, w),
    )


def _inverses(blocks: Array) -> Array:
    """The inverses of many small matrices (..., w, w)."""
    if blocks.shape[-1] == 1:
        return np.asarray(1.0 / blocks)
    inverse = np.linalg.inv(blocks)
    return np.asarray(0.5 * (inverse + inverse.swapaxes(-1, -2)))


def likeliest_spread(
    sums: DeviationSums,
    deviations: Array,
    unsure: Array,
    spread: Array,
    least: float,
    steps: int,
) -> Array:
    """Return τ² (w,) after steps of expectation–maximisation: the mean of E[δ²] over the arms that were seen.

    The scores are at `deviations` (A, w), so that δ has the mean L(Hδ + E). As in `PopulationPrior.spread`,
    the variance of a slope is drawn to that of the other slopes.
    """
    H = sums.H.sum(axis=0)
    seen = H[:, 0, 0] > 0.0
    H = H[seen]
    scores = (H @ deviations[seen][:, :, None])[:, :, 0] + sums.E.sum(axis=0)[seen]
    count = max(len(H), 1)
    for _ in range(steps):
        remaining = _inverses(H + np.diag(1.0 / spread))
        means = (remaining @ scores[:, :, None])[:, :, 0]
        variances = np.diagonal(remaining, axis1=1, axis2=2) + unsure[seen]
        each = (means**2 + variances).sum(axis=0) / count
        usual = np.full(len(each), each[1:].mean() if len(each) > 1 else each.mean())
        usual[0] = each.mean()
        drawn = ARM.spread_count * np.minimum(1.0, usual / np.maximum(each, TINY))
        pooled = (drawn * usual + count * each) / (drawn + count)
        spread = np.maximum(pooled, least)
    return spread


def fit_deviations(statistics: ArmStatistics) -> ArmDeviations:
    """Return θ and δ of arms with several coefficients of their own, from the statistics of a log.

    The log-likelihood is quadratic, so that no pass over the rounds is needed.

    >>> import numpy as np
    >>> from invariant_bandits.decomposition.arm_statistics import ArmStatistics
    >>> rng = np.random.default_rng(0)
    >>> z = np.column_stack([np.ones(20_000), rng.normal(size=20_000)])
    >>> arms = rng.integers(40, size=20_000)
    >>> slopes = 2.0 + 0.5 * rng.normal(size=40)
    >>> statistics = ArmStatistics.from_rounds(z, arms, slopes[arms] * z[:, 1] + rng.normal(size=20_000))
    >>> deviations = fit_deviations(statistics)
    >>> deviations.theta.round() + 0.0, deviations.spread.round(1)
    (array([0., 2.]), array([0. , 0.2]))
    """
    layout = statistics.layout
    total = statistics.information.sum(axis=0) @ layout.to_one_arm
    theta = np.zeros(layout.own + layout.shared)
    deviations = np.zeros((layout.arms, layout.own))
    spread = np.full(layout.own, statistics.scale)
    least = ARM.least_spread * statistics.scale
    sums = DeviationSums(
        G=layout.to_one_arm.T @ total,
        g=theta,
        K=total[: layout.own_dim].reshape(layout.arms, layout.own, -1),
        H=statistics.blocks[0],
        E=np.zeros((0, *deviations.shape)),
        squares=0.0,
        rounds=int(statistics.rounds.sum()),
    )
    for _ in range(ARM.level_passes):
        scores = _scores_at(statistics, theta, deviations)
        g = scores.sum(axis=0) @ layout.to_one_arm
        sums = sums._replace(g=g, E=layout.by_arm(scores))
        step = newton_step(sums, deviations, spread)
        before = spread
        spread = likeliest_spread(
            sums, deviations, step.unsure, spread, least, ARM.few_spread_steps
        )
        theta = theta + step.theta
        deviations = step.deviations
        if (np.abs(spread - before) <= ARM.level_tolerance * spread).all():
            break
    E = layout.by_arm(_scores_at(statistics, theta, deviations))
    least = PRIOR.enough_clicks if statistics.link == "logit" else 0.0
    return _at_the_end(sums._replace(E=E), theta, deviations, spread, least)


def _scores_at(statistics: ArmStatistics, theta: Array, deviations: Array) -> Array:
    """Return η − Λγ (m, p), the scores at the coefficients γ that θ and δ make."""
    own = deviations.shape[1]
    coefficients = np.append((theta[:own] + deviations).ravel(), theta[own:])
    return np.asarray(statistics.scores - statistics.information @ coefficients)


def shared_statistics(
    statistics: ArmStatistics, deviations: ArmDeviations, drift: Array | None = None
) -> ArmStatistics:
    """Return what a log says of the coefficients that all arms share, as statistics of one arm.

    Rewards count less zᵀδ of their arms. Coefficients of single arms that drift by Ω = diag(drift) (p,) count
    for less: in window i Λ becomes (I + ΛΩ)⁻¹Λ, else what they do would look like drift of all arms.
    """
    to_one_arm = statistics.layout.to_one_arm
    still = np.zeros(to_one_arm.shape[1])
    scores = _scores_at(statistics, still, deviations.fitted)
    information = statistics.information
    if drift is not None and drift.any():
        # By the identity of Woodbury, over the few coefficients J that drift: Λ − Λ_J(Ω_J⁻¹ + Λ_JJ)⁻¹Λ_Jᵀ.
        J = np.flatnonzero(drift)
        across = information[:, :, J]
        inner = np.diag(1.0 / drift[J]) + across[:, J]
        gain = np.linalg.solve(inner, across.swapaxes(1, 2)).swapaxes(1, 2)
        information = information - gain @ across.swapaxes(1, 2)
        scores = scores - (gain @ scores[:, J, None])[..., 0]
    return replace(
        statistics,
        layout=ArmLayout(1, 1, len(still) - 1),
        information=to_one_arm.T @ information @ to_one_arm,
        scores=scores @ to_one_arm,
        rounds=statistics.rounds.sum(axis=1, keepdims=True),
        catalogue=np.zeros((1, 0)),
        terms=np.zeros((0, 0)),
        noise_inflation=_shared_inflation(statistics),
    )


def _shared_inflation(statistics: ArmStatistics) -> Array:
    """Return the inflation of the noise of what all arms share: the mean over arms, by their information."""
    inflation = statistics.noise_inflation
    if not len(inflation):
        return inflation
    to_one_arm = statistics.layout.to_one_arm
    weights = np.diagonal(statistics.information.sum(axis=0))
    total = np.maximum(weights @ to_one_arm, TINY)
    return np.asarray((weights * inflation) @ to_one_arm / total)


def statistics_by_arm(
    statistics: ArmStatistics, deviations: ArmDeviations
) -> list[ArmStatistics]:
    """Return what a log says of the own coefficients of every arm alone, what all arms share being known."""
    own = statistics.layout.own
    theta = deviations.theta.copy()
    theta[:own] = 0.0
    nothing = np.zeros_like(deviations.fitted)
    scores = statistics.layout.by_arm(_scores_at(statistics, theta, nothing))
    information = statistics.blocks[0]
    whole = len(deviations.theta) == own
    return [
        replace(
            statistics,
            layout=ArmLayout(1, 1, own - 1),
            information=information[:, arm],
            scores=scores[:, arm],
            rounds=statistics.rounds[:, [arm]],
            context_square=statistics.context_square[:own, :own],
            catalogue=np.zeros((1, 0)),
            terms=np.zeros((0, 0)),
            missing=statistics.missing if whole else (),
            noise_inflation=statistics.noise_inflation[statistics.layout.arm(arm)],
        )
        for arm in range(statistics.layout.arms)
    ]


def _at_the_end(
    sums: DeviationSums, theta: Array, fitted: Array, spread: Array, least: float
) -> ArmDeviations:
    """Return the deviations when the log ends, if they walk as far as the windows show.

    Windows that have less information on a coefficient than `least` say nothing of its drift. A Kalman filter
    per arm goes over the windows; the last one speaks of its middle.
    """
    windows, arms, w = sums.E.shape
    E = sums.E - _common_scores(sums, least)
    drift = _drift_of_each(sums.H, E, least)
    step = ARM.walk_variance * drift / windows
    mean = np.zeros((arms, w))
    covariance = np.broadcast_to(np.diag(spread + drift), (arms, w, w))
    for i in range(windows):
        H = sums.H[i]
        if i:
            covariance = covariance + np.diag(step)
        # P ← P(I + HP)⁻¹, symmetric up to rounding; H may be singular.
        covariance = np.linalg.solve(np.eye(w) + covariance @ H, covariance)
        covariance = 0.5 * (covariance + covariance.swapaxes(1, 2))
        score = E[i] - (H @ (mean - fitted)[:, :, None])[:, :, 0]
        mean = mean + (covariance @ score[:, :, None])[:, :, 0]
    return ArmDeviations(
        theta=theta,
        fitted=fitted,
        means=mean,
        covariances=covariance + 0.5 * np.diag(step),
        spread=spread,
        steps=ARM.walk_variance * drift / sums.rounds,
    )


def _common_scores(sums: DeviationSums, least: float) -> Array:
    """The part of the scores (m, A, w) that is drift of all arms together: it belongs to what they share.

    In window i all arms depart by c = D(I + HD)⁻¹E, H and E added over the arms, D the drift that is clear.
    """
    H = sums.H.sum(axis=1)
    E = sums.E.sum(axis=1)
    drift = _drift_of_each(H[:, None], E[:, None], least)
    departure = (
        drift * np.linalg.solve(np.eye(len(drift)) + H * drift, E[..., None])[..., 0]
    )
    return np.asarray((sums.H @ departure[:, None, :, None])[..., 0])


def _drift_of_each(H: Array, E: Array, least: float) -> Array:
    """`level_drift` of every coefficient by itself (w,); H (m, A, w, w), E (m, A, w)."""
    information = np.diagonal(H, axis1=2, axis2=3)
    return np.array(
        [level_drift(information[..., k], E[..., k], least) for k in range(E.shape[2])]
    )


# -- levels, by passes over the rounds --


def sum_levels(
    rounds: Iterable[Rounds],
    theta: Array,
    levels: Array,
    windows: int,
    noise: float | None,
) -> DeviationSums:
    """One pass over chunks of rounds at θ (p,) and levels (A,); noise None: rewards are clicks."""
    p, A = len(theta), len(levels)
    G = np.zeros((p, p))
    g = np.zeros(p)
    K = np.zeros((A, p))
    squares = 0.0
    count = 0
    H, E = np.zeros(windows * A), np.zeros(windows * A)
    for features, rewards, arms, window in rounds:
        n, expected = len(rewards), features @ theta + levels[arms]
        if noise is None:
            expected = special.expit(expected)
        h = expected * (1.0 - expected) if noise is None else np.full(n, 1.0 / noise)
        e, weighted = (rewards - expected) / (noise or 1.0), features * h[:, None]
        G += features.T @ weighted
        g += features.T @ e
        K += sparse.csr_array((np.ones(n), arms, np.arange(n + 1)), (n, A)).T @ weighted
        cell = window * A + arms
        H += np.bincount(cell, h, windows * A)
        E += np.bincount(cell, e, windows * A)
        squares, count = squares + float(e @ e), count + n
    return DeviationSums(
        G=G,
        g=g,
        K=K[:, None],
        H=H.reshape(windows, A, 1, 1),
        E=E.reshape(windows, A, 1),
        squares=squares,
        rounds=count,
    )


def fit_levels(
    rounds: Callable[[], Iterable[Rounds]],
    *,
    dim: int,
    arms: int,
    windows: int,
    clicks: bool,
) -> ArmDeviations:
    """Levels of arms and what they share, by Newton's method; rounds: makes a new pass over the log.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> codes, x = rng.integers(400, size=20_000), rng.normal(size=20_000)
    >>> rewards = 0.5 * rng.normal(size=400)[codes] + 2.0 * x + rng.normal(size=20_000)
    >>> whole = (np.column_stack([np.ones(20_000), x]), rewards, codes, np.zeros(20_000, dtype=int))
    >>> levels = fit_levels(lambda: [whole], dim=2, arms=400, windows=1, clicks=False)
    >>> round(float(levels.theta[1]), 1), levels.spread.round(2)
    (2.0, array([0.25]))
    """
    theta = np.zeros(dim)
    levels = np.zeros((arms, 1))
    spread = np.ones(1)
    noise = None if clicks else 1.0
    least = 0.0
    for _ in range(ARM.level_passes):
        sums = sum_levels(rounds(), theta, levels[:, 0], windows, noise)
        before = spread
        least = least or max(EXACT * sums.squares / sums.rounds, TINY)
        step = newton_step(sums, levels, spread)
        spread = likeliest_spread(
            sums,
            levels,
            step.unsure,
            spread,
            ARM.least_spread * (noise or 1.0),
            ARM.spread_steps,
        )
        step = newton_step(sums, levels, spread)
        move = step.theta
        largest = float(np.abs(move).max())
        if clicks and largest > ARM.largest_move:
            # The levels follow the shorter move of θ.
            short = move * (ARM.largest_move / largest)
            LK = (step.remaining @ sums.K)[:, 0]
            step = step._replace(
                deviations=step.deviations + (LK @ (move - short))[:, None]
            )
            move = short
        theta = theta + move
        levels = step.deviations
        settled = largest <= ARM.level_tolerance * float(np.abs(theta).max())
        if noise is not None:
            # A level counts for the share of it that its rounds determine.
            determined = float((step.remaining * sums.H.sum(axis=0)).sum())
            free = max(sums.rounds - dim - determined, 1.0)
            unexplained = max(sums.squares * noise**2 / free, least)
            settled &= abs(unexplained - noise) <= ARM.level_tolerance * noise
            noise = unexplained
        if settled and abs(spread - before)[0] <= ARM.level_tolerance * spread[0]:
            break
    sums = sum_levels(rounds(), theta, levels[:, 0], windows, noise)
    return _at_the_end(sums, theta, levels, spread, ARM.least_information)


def level_drift(H: Array, E: Array, least: float = ARM.least_information) -> float:
    """Variance of the levels of arms between windows, pooled over arms (DerSimonian and Laird 1986); 0 unless
    it is clear. H, E: (m, A), information and scores.
    """
    H = np.where(least <= H, H, 0.0)
    known = H > 0.0
    E = np.where(known, E, 0.0)
    total = np.maximum(H.sum(axis=0), TINY)
    # Cochran's Q about each arm's mean: χ² with one degree of freedom less than windows per arm.
    departures = E - H * (E.sum(axis=0) / total)
    statistic = float((departures**2 / np.where(known, H, 1.0)).sum())
    freedom = float(np.maximum(known.sum(axis=0) - 1, 0).sum())
    excess = statistic - freedom
    # Its expectation exceeds that by the drift times this weight.
    weight = float((total - (H**2).sum(axis=0) / total).sum())
    if weight <= 0.0 or excess <= ARM.drift_errors * np.sqrt(2.0 * freedom):
        return 0.0
    return excess / weight
