"""Estimate: a value with an interval, or a refusal with its reasons. Intervals come from a bootstrap of blocks of time.

Every estimator here is a ratio Σ gain_t / Σ weight_t over rounds. Neighbouring rounds may depend on each other, so the
unit that is resampled is a block of consecutive rounds. The statistic that is resampled is studentised (Hall 1992),
which corrects the skewness of importance weights. Each end is the wider one of this and of Student's t over blocks: the
first alone covered 94 to 96 % at nominal 95 %, depending on the environment.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
from scipy import special

from invariant_bandits.checks import Array, InputError, probability

BLOCKS = 30
RESAMPLES = 2000
SEED = 20_261_130


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
    gains, weights : array, shape (n,)
        Contributions of the rounds, whose ratio of sums is the value.
    model_errors : array, shape (B, p)
        What the error of a model adds: one vector of independent standard errors per block, blocks being fully
        dependent.
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
    gains: Array = field(default_factory=lambda: np.zeros(0), repr=False)
    weights: Array = field(default_factory=lambda: np.zeros(0), repr=False)
    model_errors: Array = field(default_factory=lambda: np.zeros((1, 1)), repr=False)

    @property
    def concludes(self) -> bool:
        """Whether the interval may be used."""
        return not self.reasons

    def minus(self, other: Estimate) -> Estimate:
        """The paired difference of two estimates from the same rounds, blocks resampled together."""
        if self.rounds != other.rounds or self.confidence != other.confidence:
            raise InputError("estimates must come from the same rounds at the same confidence")
        return estimated(
            [self.gains, other.gains],
            [self.weights, other.weights],
            confidence=self.confidence,
            effective_sample=min(self.effective_sample, other.effective_sample),
            reasons=tuple(dict.fromkeys(self.reasons + other.reasons)),
            model_errors=self.model_errors - other.model_errors,
        )

    def refused(self, reason: str) -> Estimate:
        """The same estimate with one more reason not to conclude from it."""
        return replace(self, low=-np.inf, high=np.inf, reasons=(*self.reasons, reason))

    def __str__(self) -> str:
        if not self.concludes:
            return f"cannot be known: {'; '.join(self.reasons)}"
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"


def estimated(
    gains: list[Array],
    weights: list[Array],
    *,
    effective_sample: float,
    confidence: float = 0.95,
    reasons: tuple[str, ...] = (),
    notes: tuple[str, ...] = (),
    model_errors: Array | None = None,
) -> Estimate:
    """The ratio Σ gains / Σ weights with its interval, or the difference of two such ratios.

    Parameters
    ----------
    gains : list of one or two arrays, shape (n,)
        Numerators, by round.
    weights : list of as many arrays, shape (n,)
        Denominators, by round.
    effective_sample : float
        How many rounds of the target policy's own the weighted rounds are worth.
    confidence : float
        Coverage of the interval.
    reasons : tuple of str
        Why nothing can be concluded. With any the interval is infinite.
    notes : tuple of str
        What else to know.
    model_errors : array, shape (B, p), optional
        As in Estimate. Their lengths are added up, and that to the blocks' standard error in quadrature.

    Returns
    -------
    Estimate
        Of the ratio, or of the first less the second.

    >>> import numpy as np
    >>> from invariant_bandits.evaluation.intervals import estimated
    >>> estimated([np.tile([0.0, 1.0], 50)], [np.ones(100)], effective_sample=100.0).value
    0.5
    """
    probability("confidence", confidence)
    n = len(gains[0])
    totals = [(float(gain.sum()), float(weight.sum())) for gain, weight in zip(gains, weights, strict=True)]
    errors = np.zeros((1, 1)) if model_errors is None else model_errors
    one = len(gains) == 1
    kept = {"gains": gains[0], "weights": weights[0], "model_errors": errors} if one else {}
    if any(weight == 0.0 for _, weight in totals) or n < 4:
        reasons = reasons or ("there are no rounds to average",)
        return Estimate(np.nan, -np.inf, np.inf, np.inf, effective_sample, n, reasons, notes, confidence, **kept)
    ratios = [gain / weight for gain, weight in totals]
    value = ratios[0] if one else ratios[0] - ratios[1]
    error, lower, upper = _block_bootstrap(gains, weights, ratios, confidence)
    error = float(np.hypot(error, np.linalg.norm(errors, axis=1).sum()))
    low, high = value - upper * error, value - lower * error
    if reasons:
        low, high = -np.inf, np.inf
    return Estimate(value, low, high, error, effective_sample, n, reasons, notes, confidence, **kept)


def mean_and_error(values: Array) -> tuple[float, float]:
    """Mean of values (n,) and its standard error over blocks of time."""
    mean = float(values.mean())
    sums = block_sums(values - mean)
    blocks = len(sums)
    return mean, float(np.sqrt(sums @ sums * blocks / (blocks - 1))) / len(values)


def block_sums(values: Array, blocks: int = BLOCKS) -> Array:
    """Sums of (n,) over at most `blocks` consecutive stretches of at least two rounds, as equal as can be."""
    return np.asarray(np.add.reduceat(values, block_starts(len(values), blocks)))


def block_starts(rounds: int, blocks: int = BLOCKS) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """First round of each block."""
    return np.linspace(0, rounds, min(blocks, rounds // 2) + 1)[:-1].round().astype(np.int64)


def _block_bootstrap(
    gains: list[Array], weights: list[Array], ratios: list[float], confidence: float
) -> tuple[float, float, float]:
    """Standard error of the (difference of) ratios, and the two quantiles of the studentised error.

    A block's influence is Σ_i ±(gain_i − ratio_i·weight_i)/W_i, W_i the sum of all weights; the variance of the
    estimate is the sum of squared influences times B/(B − 1).
    """
    columns = []
    for gain, weight, ratio in zip(gains, weights, ratios, strict=True):
        columns += [block_sums(gain - ratio * weight), block_sums(weight)]
    table = np.stack(columns, axis=1)
    blocks = len(table)
    counts = _resamples(blocks)
    error, _ = _studentised(np.ones((1, blocks)), table)
    errors, shifts = _studentised(counts, table)
    if error[0] == 0.0:
        return 0.0, 0.0, 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled = np.nan_to_num(shifts / errors, nan=0.0, posinf=np.inf, neginf=-np.inf)
    tail = 0.5 * (1.0 - confidence)
    lower, upper = np.quantile(scaled, [tail, 1.0 - tail], method="inverted_cdf")
    student = float(special.stdtrit(blocks - 1, 1.0 - tail))
    return float(error[0]), min(float(lower), -student), max(float(upper), student)


def _studentised(counts: Array, table: Array) -> tuple[Array, Array]:
    """Standard errors (R,) and values (R,) of the ratios when block b counts `counts`[r, b] times.

    table (B, 2) or (B, 4): columns centred gain, weight, of one ratio or two.
    """
    blocks, width = table.shape
    sums = counts @ table
    products = (counts @ (table[:, :, None] * table[:, None, :]).reshape(blocks, -1)).reshape(-1, width, width)
    slope = np.empty((len(counts), width))
    value = np.zeros(len(counts))
    with np.errstate(divide="ignore", invalid="ignore"):
        for first, sign in zip(range(0, width, 2), (1.0, -1.0), strict=False):
            ratio = sums[:, first] / sums[:, first + 1]
            slope[:, first] = sign / sums[:, first + 1]
            slope[:, first + 1] = -sign * ratio / sums[:, first + 1]
            value += sign * ratio
        variance = np.einsum("ri,rij,rj->r", slope, products, slope) * blocks / (blocks - 1)
    return np.sqrt(np.maximum(variance, 0.0)), value


@lru_cache(maxsize=8)
def _resamples(blocks: int) -> Array:
    """How often each block is drawn in each of the resamples (R, B); the same ones every time."""
    rng = np.random.default_rng(SEED)
    return np.asarray(rng.multinomial(blocks, np.full(blocks, 1.0 / blocks), size=RESAMPLES), dtype=np.float64)
