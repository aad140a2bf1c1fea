"""Do off-policy intervals cover, how wide are they, and how often do they refuse? Beside the rule they replaced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from scipy import special

from invariant_bandits.checks import Array
from invariant_bandits.evaluation import estimators
from invariant_bandits.evaluation.intervals import Contributions, Estimate, block_sums, reasons_in_rewards
from invariant_bandits.parallel import map_unordered
from studies.interval_worlds import LOGGING, WORLDS, Log, draw_log, true_values

ROUNDS = (4000, 20_000)
ESTIMATORS = ("DR", "SNIPS", "IPS", "replay", "the log")
VALUE, DIFFERENCE = "value", "difference to the log"
LINES = (*((name, quantity) for name in ESTIMATORS[:-1] for quantity in (VALUE, DIFFERENCE)), ("the log", VALUE))
CONFIDENCE = 0.95
RESAMPLES = 2000
RESAMPLING_SEED = 20_261_130


# -- the rule of before --


def bootstrap_interval(parts: Sequence[Contributions], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Ends of a studentised bootstrap of blocks (Hall 1992), or of Student's t over blocks where that is wider.

    parts: those of one value, or of the two of a difference. Its quantiles come from what was seen, so it cannot know
    that a rare reward was missed.
    """
    table = np.stack(
        [column for part in parts for column in (block_sums(part.gains), block_sums(part.weights))],
        axis=1,
    )
    for first, part in zip(range(0, table.shape[1], 2), parts, strict=True):
        table[:, first] -= part.value * table[:, first + 1]
    blocks = len(table)
    value = parts[0].value - sum(part.value for part in parts[1:])
    error = _studentised(np.ones((1, blocks)), table)[0][0]
    if error == 0.0:
        return value, value
    errors, shifts = _studentised(_resamples(blocks), table)
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled = np.nan_to_num(shifts / errors, nan=0.0, posinf=np.inf, neginf=-np.inf)
    tail = 0.5 * (1.0 - confidence)
    lower, upper = np.quantile(scaled, [tail, 1.0 - tail], method="inverted_cdf")
    student = float(special.stdtrit(blocks - 1, 1.0 - tail))
    return value - max(float(upper), student) * error, value - min(float(lower), -student) * error


def _studentised(counts: Array, table: Array) -> tuple[Array, Array]:
    """Standard errors (R,) and values (R,) of the ratios when block b counts `counts`[r, b] times.

    table (B, 2) or (B, 4): columns centred gain, weight, of one ratio or two.
    """
    blocks, width = table.shape
    sums = counts @ table
    slope = np.empty((len(counts), width))
    value = np.zeros(len(counts))
    with np.errstate(divide="ignore", invalid="ignore"):
        for first, sign in zip(range(0, width, 2), (1.0, -1.0), strict=False):
            ratio = sums[:, first] / sums[:, first + 1]
            slope[:, first] = sign / sums[:, first + 1]
            slope[:, first + 1] = -sign * ratio / sums[:, first + 1]
            value += sign * ratio
        variance = (counts * (slope @ table.T) ** 2).sum(axis=1) * blocks / (blocks - 1)
    return np.sqrt(variance), value


@lru_cache(maxsize=8)
def _resamples(blocks: int) -> Array:
    """How often each block is drawn in each of the resamples (R, B); the same ones every time."""
    rng = np.random.default_rng(RESAMPLING_SEED)
    return np.asarray(rng.multinomial(blocks, np.full(blocks, 1.0 / blocks), size=RESAMPLES), dtype=np.float64)


# -- measuring --


@dataclass(frozen=True)
class Setting:
    """One world, logged by one policy for so many rounds."""

    world: str
    logging: str
    rounds: int


@dataclass(frozen=True, eq=False)
class Ends:
    """Intervals of one rule over the logs of one setting, all (logs, lines): NaN where it refused.

    truth (lines,): what they should cover.
    """

    low: Array
    high: Array
    truth: Array

    @property
    def concludes(self) -> Array:
        """Where there is an interval."""
        return ~np.isnan(self.low)

    @property
    def covers(self) -> Array:
        """Where it holds the truth."""
        return np.asarray((self.low <= self.truth) & (self.truth <= self.high))

    @property
    def wrong(self) -> Array:
        """Where it lies on the other side of zero than the truth."""
        return np.asarray((self.low > 0.0) & (self.truth <= 0.0) | (self.high < 0.0) & (self.truth >= 0.0))


@dataclass(frozen=True, eq=False)
class Outcome:
    """Both rules on the same logs of one setting."""

    now: Ends
    before: Ends


Results: TypeAlias = dict[Setting, Outcome]


def settings() -> list[Setting]:
    """Every world, logging policy and length, the long ones first."""
    return [Setting(world, logging, rounds) for rounds in ROUNDS[::-1] for world in WORLDS for logging in LOGGING]


def run(
    cells: Sequence[Setting],
    *,
    replications: int,
    seed: int,
    jobs: int = 2,
    progress: Callable[[int, int], None] | None = None,
) -> Results:
    """All logs of all cells; the same for any number of `jobs`."""
    truths = true_values()
    places = {cell: place for place, cell in enumerate(settings())}

    def outcome(cell: Setting) -> Outcome:
        rngs = (np.random.default_rng((seed, places[cell], replication)) for replication in range(replications))
        found = np.array([_intervals(draw_log(cell.world, cell.logging, cell.rounds, rng)) for rng in rngs])
        target, logged = truths[cell.world, cell.logging]
        truth = np.array([_truth(line, target, logged) for line in LINES])
        return Outcome(Ends(found[:, :, 0], found[:, :, 1], truth), Ends(found[:, :, 2], found[:, :, 3], truth))

    outcomes: dict[int, Outcome] = {}
    for index, found in map_unordered(outcome, cells, jobs):
        outcomes[index] = found
        if progress is not None:
            progress(len(outcomes), len(cells))
    return {cell: outcomes[index] for index, cell in enumerate(cells)}


def _truth(line: tuple[str, str], target: float, logged: float) -> float:
    if line[0] == "the log":
        return logged
    return target if line[1] == VALUE else target - logged


def _intervals(log: Log) -> list[tuple[float, float, float, float]]:
    """Per line: low and high by the rule of now and by that of before, NaN where they refuse or are not finite."""
    feedback, logged = log.feedback, estimators.logged_value(log.feedback, confidence=CONFIDENCE)
    values = {
        "DR": estimators.doubly_robust(feedback, log.target, confidence=CONFIDENCE),
        "SNIPS": estimators.snips(feedback, log.target, confidence=CONFIDENCE),
        "IPS": estimators.ips(feedback, log.target, confidence=CONFIDENCE),
        "replay": estimators.accepted_value(feedback, log.accepted, confidence=CONFIDENCE),
        "the log": logged,
    }
    new_reasons = reasons_in_rewards(feedback.rewards)
    rows = []
    for name, quantity in LINES:
        value = values[name]
        one, sides = (value, [value]) if quantity == VALUE else (value.minus(logged), [value, logged])
        now = (one.low, one.high) if one.concludes else (np.nan, np.nan)
        before = (np.nan, np.nan) if set(one.reasons) - set(new_reasons) else bootstrap_interval(_parts(sides))
        rows.append((*now, *(before if np.isfinite(before).all() else (np.nan, np.nan))))
    return rows


def _parts(estimates: Sequence[Estimate]) -> list[Contributions]:
    return [one.contributions for one in estimates if one.contributions is not None]
