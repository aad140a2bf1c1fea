"""Estimate: a value with an interval that allows for rewards not seen yet, or a refusal with its reasons.

Every estimator here is a ratio Σ gain_t / Σ weight_t over rounds. Neighbouring rounds may depend on each
other, so the unit of uncertainty is a block of consecutive rounds. Where rewards are rare, a log that happens
to hold few of them has both a low value and a small spread, so the interval is the union of Student's t over
blocks and of two gamma intervals that include one reward more than was seen (`rare_reward_interval` has the
formulas).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import special

from invariant_bandits.checks import Array, InputError, probability

BLOCKS = 30
"""Blocks of consecutive rounds: Student's t with 29 degrees of freedom is 4 % wider than a normal."""
PIECES = 4
"""Pieces of a block, by which `dependence_of_blocks` sees what crosses a boundary between blocks."""
UNSEEN_MEMORY = 2.0
"""m in `dependence_of_blocks`, which says what memory it suffices for."""


def mean_and_error(values: Array) -> tuple[float, float]:
    """Mean of values (n,) and its standard error over blocks of time."""
    mean = float(values.mean())
    return mean, float(np.linalg.norm(scaled_block_sums(values - mean))) / len(values)


def mean_over_clusters(counts: Array, sums: Array) -> dict[str, Any]:
    """Return the mean per item of clusters and its standard error, None where there are too few clusters.

    The clusters (B,) are given as their numbers of items and their sums; the error is from how the clusters
    that are not empty differ.
    """
    used = counts > 0.0
    total = float(counts.sum())
    clusters = int(used.sum())
    mean = None
    error = None
    if clusters:
        mean = float(sums.sum()) / total
    # A ratio estimator: s − mean·c adds up to 0, and its squares say how clusters differ.
    if mean is not None and clusters > 1:
        distance = np.linalg.norm((sums - mean * counts)[used])
        error = float(distance * np.sqrt(clusters / (clusters - 1.0))) / total
    return {"decisions": int(total), "mean": mean, "error": error, "buckets": clusters}


def scaled_block_sums(values: Array) -> Array:
    """Return block sums of (n,) whose sum of squares estimates the variance of the total.

    They are the sums over B blocks, times √(F·B/(B−1)). F ≥ 1 is for blocks that depend on each other
    (`dependence_of_blocks`). The values should add up to 0: so does the one block that two or three values
    make.
    """
    sums = block_sums(values)
    blocks = len(sums)
    factor = dependence_of_blocks(values) * blocks / max(blocks - 1, 1)
    return np.asarray(sums * np.sqrt(factor))


def dependence_of_blocks(values: Array) -> float:
    """Return F: the variance of the total of values (n,) over that of B independent blocks.

    Rounds on either side of a boundary between blocks may depend on each other. Thirty block sums cannot show
    it, 120 quarters of blocks can. With q_j their sums, Q_h the mean of q_j·q_{j+h} over j, and σ² = B/(B−1)
    · the sum of squared block sums,

        F = 1 + max(0, 2·m·(B−1)·(Q₁ − max(0, (Q₄ + Q₅ + Q₆ + Q₇)/4))/σ²),    m = 2.

    Q₁ is the covariance across a boundary, which counts twice at each of the B−1 boundaries. What quarters a
    block or more apart have in common is subtracted: it changes slowly (a drifting mean), and the blocks have
    counted it already. If the covariance decays by a factor c per quarter, all of what crosses a boundary is
    Q₁·(1 + 2c + 3c² + …) = Q₁/(1−c)²; m = 2 is that for c = 0.29, more than enough for memory that is
    shorter. Independent rounds have F = 1 in 60 % of logs and 1.02 on average, 1 % in the standard error. F =
    1 if there are fewer rounds than quarters.
    """
    sums = block_sums(values)
    blocks = len(sums)
    squares = float(sums @ sums)
    if len(values) < PIECES * blocks or squares == 0.0:
        return 1.0
    quarters = np.add.reduceat(values, _starts(len(values), PIECES * blocks))

    def covariance(lag: int) -> float:
        """Q_h: mean product of quarters h apart."""
        return float((quarters[lag:] * quarters[:-lag]).mean())

    # What quarters a block or more apart share is a slow drift of the mean, which blocks have counted.
    slow = sum(map(covariance, range(PIECES, 2 * PIECES))) / PIECES
    across = covariance(1) - max(0.0, slow)
    # σ², what independent blocks would make of it
    independent = squares * blocks / (blocks - 1)
    return 1.0 + max(0.0, 2.0 * UNSEEN_MEMORY * (blocks - 1) * across / independent)


def block_sums(values: Array, blocks: int = BLOCKS) -> Array:
    """Sums of (n,) over at most `blocks` consecutive stretches of at least two rounds, as equal as can be."""
    return np.add.reduceat(values, block_starts(len(values), blocks))


def block_starts(rounds: int, blocks: int = BLOCKS) -> Array:
    """First round of each block."""
    return _starts(rounds, min(blocks, rounds // 2))


def _starts(rounds: int, stretches: int) -> Array:
    """First round of each of so many stretches, as equal as can be."""
    return np.linspace(0, rounds, stretches + 1)[:-1].round().astype(np.int64)


def clustering(values: Array) -> float:
    """How many times the variance of values (n,) over blocks exceeds that of independent ones, at least 1."""
    scale = float(np.abs(values).max())
    if scale == 0.0:
        return 1.0
    # In units of the largest, so that squares of large values do not overflow.
    scaled = values / scale
    sums = scaled_block_sums(scaled)
    return max(1.0, float(sums @ sums) / float(scaled @ scaled))


ALMOST_SYMMETRIC = 1e-4
"""Skewness below which a gamma distribution is a normal one: its quantiles differ by less than a part in
10,000 of a standard deviation, while the shape 4/skewness² loses digits.
"""


def rare_reward_interval(
    influence: Array,
    unseen_up: float,
    unseen_down: float,
    clustered: float,
    confidence: float,
) -> tuple[float, float, float]:
    """Return the standard error of an estimate V, and how far its interval reaches below and above V.

    The interval is the union of Student's t interval over blocks of rounds and of two intervals from gamma
    distributions, which allow for rewards not seen yet::

        low  = V + min(−t_{B−1}(1−α)·√ΣS², Gamma(z, u₋, α), Gamma(S, D·u₋, α))
        high = V + max( t_{B−1}(1−α)·√ΣS², Gamma(z, u₊, 1−α), Gamma(S, D·u₊, 1−α))

        z         influence of each round
        S         √(F·B/(B−1)) times the sums of z over B blocks, F ≥ 1 for dependence between blocks
        D         clustered
        u₋, u₊    unseen_down and unseen_up
        α         (1 − confidence)/2

    Parameters
    ----------
    influence : array, shape (n,)
        By how much each of the n rounds moves the estimate.
    unseen_up, unseen_down : float
        By how much one reward not seen yet may move the estimate up (≥ 0) and down (≤ 0).
    clustered : float
        Variance over blocks of rounds divided by the variance if rounds were independent, at least 1.
    confidence : float
        Coverage of the confidence interval.
    """
    alpha = 0.5 * (1.0 - confidence)
    scale = max(float(np.abs(influence).max()), unseen_up, -unseen_down)
    if scale == 0.0:
        return 0.0, 0.0, 0.0
    # In units of the largest influence, so that third powers of large rewards do not overflow.
    z = influence / scale
    up = unseen_up / scale
    down = unseen_down / scale
    S = scaled_block_sums(z)
    error = float(np.sqrt(S @ S))
    student = student_quantile(len(z), confidence) * error
    # Rounds one by one (z) and blocks (S): rewards may be rare in either.
    low = (
        -student,
        _gamma_end(z, down, alpha),
        _gamma_end(S, clustered * down, alpha),
    )
    high = (
        student,
        _gamma_end(z, up, 1.0 - alpha),
        _gamma_end(S, clustered * up, 1.0 - alpha),
    )
    # NumPy's minimum, because a NaN must not hide behind a finite end.
    return scale * error, -scale * float(np.min(low)), scale * float(np.max(high))


def _gamma_end(x: Array, u: float, p: float) -> float:
    """Return Gamma(x, u, p): a p-quantile of the shifted gamma with mean u and the cumulants of x and u.

    With κ₂ = Σx² + u² and κ₃ = 2(Σx³ + u³) its shape is a = 4κ₂³/κ₃², its scale s = κ₃/(2κ₂), and the
    quantile u − a·s + s·gammaincinv(a, p if s > 0 else 1 − p). Where |κ₃| < 1e-4·κ₂^1.5 it is that of a
    normal distribution.
    """
    # Sums of independent terms have the sums of the terms' cumulants.
    k2 = float(x @ x) + u * u
    k3 = 2.0 * (float((x * x) @ x) + u**3)
    if abs(k3) < ALMOST_SYMMETRIC * k2**1.5 or k2 == 0.0:
        return u + float(np.sqrt(k2) * special.ndtri(p))
    # A gamma of shape a and scale s has variance a·s² = κ₂ and skewness 2/√a; s < 0 mirrors it.
    a = 4.0 * k2**3 / k3**2
    s = k3 / (2.0 * k2)
    quantile = float(special.gammaincinv(a, p if s > 0.0 else 1.0 - p))
    return u - a * s + s * quantile


def student_quantile(rounds: int, confidence: float) -> float:
    """How many standard errors over the blocks of so many rounds each end of Student's interval is away."""
    return float(
        special.stdtrit(len(block_starts(rounds)) - 1, 0.5 * (1.0 + confidence))
    )


def unseen_sizes(residuals: Array) -> tuple[float, float]:
    """How far above and below what is expected a reward not seen yet may lie, beyond Gaussian residuals (n,).

    With e the residuals, u⁺ = max(0, Σ(e⁺)³/Σe² − √(2/π)·rms(e)), the mean size of positive residuals by
    their share in the variance, less what it is for Gaussian ones; u⁻ is the same of −e.
    """
    scale = float(np.abs(residuals).max())
    if scale == 0.0:
        return 0.0, 0.0
    e = residuals / scale
    squares = float(e @ e)
    gaussian = float(np.sqrt(2.0 / np.pi * squares / len(e)))

    def beyond(signed: Array) -> float:
        """u⁺ of residuals with this sign, in units of the largest: Σ(e⁺)³/Σe² less the Gaussian part."""
        cubes = float(np.maximum(signed, 0.0) @ (e * e))
        return scale * max(0.0, cubes / squares - gaussian)

    return beyond(e), beyond(-e)


FEWEST_DIFFERENT = 20
"""Rewards other than the most common one, from which on their sizes are known well enough for an interval."""


@dataclass(frozen=True, eq=False)
class Contributions:
    """What a ratio Σ gains / Σ weights is made of, round by round.

    Parameters
    ----------
    gains, weights : array, shape (n,)
        The ratio of their sums is the value.
    residuals : array, shape (n,)
        Rewards minus what the estimator expected of them, in all evaluated rounds.
    reach : array, shape (n,), or None
        By how much Σ gains would move if the reward of a round were one more. None: it is not known, and the
        residuals are those of the gains.
    """

    gains: Array
    weights: Array
    residuals: Array
    reach: Array | None

    @cached_property
    def value(self) -> float:
        """Σ gains / Σ weights, NaN without weights."""
        total = float(self.weights.sum())
        return float(self.gains.sum()) / total if total != 0.0 else float("nan")

    @property
    def influence(self) -> Array:
        """By how much each round moves the value (n,); they add up to 0."""
        return np.asarray((self.gains - self.value * self.weights) / self.weights.sum())

    @property
    def reach_of_value(self) -> Array:
        """By how much the value would move if the reward of a round were one more (n,)."""
        reach = np.ones_like(self.weights) if self.reach is None else self.reach
        return np.asarray(reach / self.weights.sum())


@dataclass(frozen=True, eq=False)
class Estimate:
    """A value per round, its interval, and what it rests on.

    Attributes
    ----------
    value : float
        The estimate, NaN if there is nothing to average.
    low, high : float
        The interval at `confidence`, infinite if the estimator refuses to conclude.
    standard_error : float
        Of the value.
    effective_sample : float
        How many rounds of the target policy's own the weighted rounds are worth.
    rounds : int
        How many rounds n were read.
    reasons : tuple of str
        Why nothing can be concluded. Empty: it can.
    notes : tuple of str
        What else to know.
    confidence : float
        Coverage of the interval.
    contributions : Contributions or None
        Of the rounds, whose ratio of sums is the value. None for a difference, and in comparisons of many
        rounds.
    model_errors : array, shape (B, p)
        What the error of a model adds: one vector of independent standard errors per block, blocks being
        fully dependent.
    """

    value: float
    low: float
    high: float
    standard_error: float
    effective_sample: float
    rounds: int
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    confidence: float = 0.95
    contributions: Contributions | None = field(default=None, repr=False)
    model_errors: Array = field(default_factory=lambda: np.zeros((1, 1)), repr=False)

    @classmethod
    def inconclusive(
        cls,
        reasons: tuple[str, ...],
        *,
        effective_sample: float,
        rounds: int,
        **fields: Any,
    ) -> Estimate:
        """Return an estimate without a value, and why; `fields` are further attributes."""
        return cls(
            value=np.nan,
            low=-np.inf,
            high=np.inf,
            standard_error=np.inf,
            effective_sample=effective_sample,
            rounds=rounds,
            reasons=reasons,
            **fields,
        )

    @property
    def concludes(self) -> bool:
        """Whether the interval may be used."""
        return not self.reasons

    @property
    def answer(self) -> str:
        """Of a gain: whether there is one. "yes", "no", "no difference" or "unknown"."""
        if not self.concludes:
            return "unknown"
        if self.low > 0.0:
            return "yes"
        return "no" if self.high < 0.0 else "no difference"

    def minus(self, other: Estimate, among: int = 1) -> Estimate:
        """Return the paired difference of two estimates from the same rounds.

        Its interval holds at once with those of all others `among` so many differences (Bonferroni).
        """
        if self.rounds != other.rounds or self.confidence != other.confidence:
            raise InputError(
                "estimates must come from the same rounds at the same confidence"
            )
        if self.contributions is None or other.contributions is None:
            raise InputError(
                "differences are taken of values whose rounds are kept, not of differences or long logs"
            )
        return _concluded(
            (self.contributions, other.contributions),
            confidence=1.0 - (1.0 - self.confidence) / among,
            effective_sample=min(self.effective_sample, other.effective_sample),
            reasons=tuple(dict.fromkeys(self.reasons + other.reasons)),
            model_errors=self.model_errors - other.model_errors,
        )

    def refused(self, reason: str) -> Estimate:
        """The same estimate with one more reason not to conclude from it."""
        return replace(self, low=-np.inf, high=np.inf, reasons=(*self.reasons, reason))

    @property
    def interval(self) -> str:
        """Value and interval with their signs, for tables."""
        if not self.concludes:
            return "cannot be known"
        return f"{self.value:+.3g} [{self.low:+.3g}, {self.high:+.3g}]"

    def __str__(self) -> str:
        if not self.concludes:
            return f"cannot be known: {'; '.join(self.reasons)}"
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"


@np.errstate(over="ignore", invalid="ignore")
def estimated(
    gains: Array,
    weights: Array,
    *,
    effective_sample: float | None = None,
    confidence: float = 0.95,
    reasons: tuple[str, ...] = (),
    notes: tuple[str, ...] = (),
    rewards: Array | None = None,
    expected: Array | float | None = None,
    reach: Array | None = None,
    model_errors: Array | None = None,
    round_weights: Array | None = None,
) -> Estimate:
    """Return the ratio Σ gains / Σ weights with its confidence interval.

    An estimator that weights rewards should pass the parameters `rewards` and `reach`. Without `rewards` and
    `reach`, every gain counts as a reward, and differences between policies get wider intervals.

    Parameters
    ----------
    gains, weights : array, shape (n,)
        Contribution of each evaluated round to Σ gains and to Σ weights, in time order.
    effective_sample : float, optional
        Effective sample size: how many rounds played by the evaluated policy itself would tell as much.
    confidence : float
        Coverage of the confidence interval.
    reasons : tuple of str
        Reasons, known to the caller, why the estimate must not be used.
    notes : tuple of str
        Remarks for the reader of the estimate.
    rewards : array, shape (n,), optional
        Rewards of all evaluated rounds, including rounds with weight 0.
    expected : array, shape (n,), or float, optional
        Reward that the estimator expected in each round, by default the estimated ratio.
    reach : array, shape (n,), optional
        How much Σ gains grows if the reward of a round grows by 1, such as the importance weight of the
        round.
    model_errors : array, shape (B, p), optional
        Standard errors of a reward model in each block of rounds, which widen the interval.
    round_weights : array, shape (n,), optional
        Weight of each round in both sums, such as for rounds whose reward is missing.

    Returns
    -------
    Estimate
        The ratio with its interval, which is infinite if there are `reasons` not to use the estimate.

    >>> import numpy as np
    >>> from invariant_bandits.evaluation.intervals import estimated
    >>> clicks = np.tile([0.0, 0.0, 0.0, 1.0], 50)
    >>> print(estimated(clicks, np.ones(200), effective_sample=200.0, rewards=clicks, reach=np.ones(200)))
    0.25 [0.1924, 0.3135]
    """
    probability("confidence", confidence)
    gains = np.asarray(gains, dtype=np.float64)
    weights = np.asarray(weights, dtype=np.float64)
    if round_weights is not None:
        gains = round_weights * gains
        weights = round_weights * weights
        reach = round_weights * (np.ones_like(gains) if reach is None else reach)
    whole = Contributions(gains, weights, gains, None)
    if rewards is None or reach is None:
        whole = replace(whole, residuals=gains - whole.value * weights)
    else:
        expected = whole.value if expected is None else expected
        residuals = rewards
        if not (isinstance(expected, float) and expected == 0.0):
            residuals = rewards - expected
        whole = replace(whole, residuals=residuals, reach=reach)
    parts = (gains, weights, whole.residuals, gains if reach is None else reach)
    if {np.shape(part) for part in parts} != {(gains.size,)}:
        raise InputError(
            f"weights, rewards, expected and reach must have the shape (n,) of gains, got {gains.shape}"
        )
    if effective_sample is None:
        effective_sample = effective_size(weights if reach is None else reach)
    return _concluded(
        (whole,),
        effective_sample=effective_sample,
        confidence=confidence,
        reasons=(*reasons, *reasons_in_rewards(gains if rewards is None else rewards)),
        notes=notes,
        model_errors=np.zeros((1, 1)) if model_errors is None else model_errors,
    )


def effective_size(weights: Array) -> float:
    """(Σw)²/Σw² (Kish 1965) of weights (n,), 0 if all are."""
    total = float(weights.sum())
    return total * total / float(weights @ weights) if total != 0.0 else 0.0


def reasons_in_rewards(rewards: Array) -> tuple[str, ...]:
    """Return why rewards (n,) cannot say how large others may be; empty if they can.

    The size of rewards is not a reason.
    """
    if len(rewards) == 0:
        return ()
    values, counts = np.unique(rewards, return_counts=True)
    if len(values) == 1:
        return ("all rewards are equal, so how far others may differ cannot be known",)
    different = len(rewards) - int(counts.max())
    if len(values) > 2 and different < FEWEST_DIFFERENT:
        common = values[counts.argmax()]
        return (
            f"{different} rewards differ from {common:g}, {FEWEST_DIFFERENT} are needed to know their sizes",
        )
    return ()


@np.errstate(over="ignore", invalid="ignore")
def _concluded(
    parts: Sequence[Contributions],
    *,
    effective_sample: float,
    confidence: float,
    reasons: tuple[str, ...],
    model_errors: Array,
    notes: tuple[str, ...] = (),
) -> Estimate:
    """Return the estimate of one ratio, or of the difference of two.

    If an end of its interval is infinite, the estimate is inconclusive.
    """
    n = len(parts[0].gains)
    contributions = parts[0] if len(parts) == 1 else None
    if n < 4 or any(part.weights.sum() == 0.0 for part in parts):
        return Estimate.inconclusive(
            reasons or ("there are no rounds to average",),
            effective_sample=effective_sample,
            rounds=n,
            notes=notes,
            confidence=confidence,
            contributions=contributions,
            model_errors=model_errors,
        )
    value = parts[0].value - sum(part.value for part in parts[1:])
    influence = parts[0].influence - sum(part.influence for part in parts[1:])
    # Rewards that come in clusters make one that is not seen yet count as many.
    up, down = _unseen_moves(parts)
    clustered = max(clustering(influence), _clustering_of_rewards(parts))
    error, below, above = rare_reward_interval(
        influence, up, down, clustered, confidence
    )
    # Errors of a model are independent within a block and add up over blocks, beside the error of sampling.
    model_error = float(np.linalg.norm(model_errors, axis=1).sum())
    beyond = student_quantile(n, confidence) * model_error
    low = value - float(np.hypot(below, beyond))
    high = value + float(np.hypot(above, beyond))
    error = float(np.hypot(error, model_error))
    if not (np.isfinite(low) and np.isfinite(high)):
        reasons = reasons or ("the interval has no finite end",)
    if reasons:
        low = -np.inf
        high = np.inf
    return Estimate(
        value=value,
        low=low,
        high=high,
        standard_error=error,
        effective_sample=effective_sample,
        rounds=n,
        reasons=reasons,
        notes=notes,
        confidence=confidence,
        contributions=contributions,
        model_errors=model_errors,
    )


def _unseen_moves(parts: Sequence[Contributions]) -> tuple[float, float]:
    """How far one reward not seen yet may move the value, or the difference, up (≥ 0) and down (≤ 0).

    A reward of one round enters both values of a difference, which it then moves by the difference of its
    reaches; where a reach is not known, it may move one up and the other down.
    """
    if len(parts) == 2 and any(part.reach is None for part in parts):
        up, down = _unseen_moves(parts[:1])
        other_up, other_down = _unseen_moves(parts[1:])
        return up - other_down, down - other_up
    # Moves (2, n) by one reward above and by one below what was expected, in each round.
    moves: Array = np.zeros((2, 1))
    for part, sign in zip(parts, (1.0, -1.0), strict=False):
        above, below = unseen_sizes(part.residuals)
        moves = moves + np.outer((sign * above, -sign * below), part.reach_of_value)
    return max(0.0, float(moves.max())), min(0.0, float(moves.min()))


def _clustering_of_rewards(parts: Sequence[Contributions]) -> float:
    """Return 1 + (D − 1)·ρ, for clustered rewards of which an estimate feels a part only.

    D is the clustering of the centred residuals, of which the reach M lets ρ = (ΣM)²/(nΣM²) through. For a
    difference M is that of the reaches, D the larger one of both. All of it where a reach is not known.
    """
    largest = max(clustering(part.residuals - part.residuals.mean()) for part in parts)
    if any(part.reach is None for part in parts):
        return largest
    reach = parts[0].reach_of_value - sum(part.reach_of_value for part in parts[1:])
    squares = len(reach) * float(reach @ reach)
    if squares == 0.0:
        return 1.0
    return 1.0 + (largest - 1.0) * (float(reach.sum()) ** 2 / squares)
