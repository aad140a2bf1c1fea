"""Do off-policy intervals cover, how wide are they, and how often do they refuse? Beside the rule they
replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy import signal, special

from invariant_bandits.checks import Array
from invariant_bandits.evaluation import estimators
from invariant_bandits.evaluation.intervals import (
    Contributions,
    Estimate,
    block_sums,
    reasons_in_rewards,
)
from invariant_bandits.logs.feedback import Feedback
from invariant_bandits_reproduction.claims import (
    Bound,
    Claim,
    Judged,
    Measurement,
    Verdict,
    decide,
    judge_all,
    share_of,
)
from invariant_bandits_reproduction.studies.harness import (
    Progress,
    StudyOutcome,
    gather,
)

ACTIONS, DIM = 4, 3
TARGET = np.array([0.6, 0.8, 0.0])
SOFTMAX = np.array([1.0, 0.0, 2.0])
GREEDY = np.array([0.4, 0.0, 0.9])
FLOOR, EPSILON = 0.2, 0.1
SLOPE = 0.5
LOGNORMAL_SPREAD = 1.5
MEMORY = 0.95
TRUTH_ROUNDS, TRUTH_CHUNK = 2_000_000, 50_000
TRUTH_SEED = 987_654_321
"""Worlds: sizes, the weights of the target policy and of two that log, their uniform shares, the
reward's slope, spread and memory; and the rounds from which true values are taken.
"""

Rng: TypeAlias = np.random.Generator


@dataclass(frozen=True)
class RewardWorld:
    """Rewards given scores: the first feature of an action, standard normal.

    Parameters
    ----------
    mean : callable
        Scores of any shape -> expected rewards, up to what averages to zero over a log.
    draw : callable
        Scores (n,) of the logged actions, generator -> rewards (n,).
    """

    mean: Callable[[Array], Array]
    draw: Callable[[Array, Rng], Array]


def _linear(scores: Array) -> Array:
    return 1.0 + SLOPE * scores


def _with_noise(noise: Callable[[int, Rng], Array]) -> RewardWorld:
    """Rewards linear in the score, plus noise (n,) of mean 0."""
    return RewardWorld(
        _linear, lambda scores, rng: _linear(scores) + noise(len(scores), rng)
    )


def _lognormal(scores: Array) -> Array:
    return np.exp(SLOPE * scores + 0.5 * LOGNORMAL_SPREAD**2)


def _lognormal_rewards(scores: Array, rng: Rng) -> Array:
    return np.exp(SLOPE * scores + LOGNORMAL_SPREAD * rng.standard_normal(len(scores)))


def _clicks(
    rate: float, amount: Callable[[int, Rng], Array] | None = None
) -> RewardWorld:
    """Rewards of 1, or amounts of mean 1, at a rate logistic in the score; 0 otherwise."""

    def mean(scores: Array) -> Array:
        return special.expit(special.logit(rate) + SLOPE * scores)

    def draw(scores: Array, rng: Rng) -> Array:
        hits = (rng.random(len(scores)) < mean(scores)).astype(np.float64)
        return hits if amount is None else hits * amount(len(scores), rng)

    return RewardWorld(mean, draw)


def _amounts(n: int, rng: Rng) -> Array:
    return np.exp(rng.standard_normal(n) - 0.5)


def _wave(n: int, rng: Rng) -> Array:
    """A baseline that falls and rises again by three standard deviations of the noise."""
    return np.asarray(
        1.5 * np.cos(2.0 * np.pi * (np.arange(n) + 0.5) / n) + rng.standard_normal(n)
    )


def _autoregressive(n: int, rng: Rng) -> Array:
    """Stationary noise of variance 1; every round remembers MEMORY of the one before."""
    shocks = np.sqrt(1.0 - MEMORY**2) * rng.standard_normal(n)
    return np.asarray(
        signal.lfilter(
            [1.0], [1.0, -MEMORY], shocks, zi=[MEMORY * rng.standard_normal()]
        )[0]
    )


WORLDS: dict[str, RewardWorld] = {
    "Gaussian": _with_noise(lambda n, rng: rng.standard_normal(n)),
    "t2.5": _with_noise(lambda n, rng: rng.standard_t(2.5, n) / np.sqrt(5.0)),
    "lognormal": RewardWorld(_lognormal, _lognormal_rewards),
    "clicks 30 %": _clicks(0.3),
    "clicks 5 %": _clicks(0.05),
    "clicks 1 %": _clicks(0.01),
    "revenue, 99 % zeros": _clicks(0.01, _amounts),
    "drifting baseline": _with_noise(_wave),
    "AR(0.95) noise": _with_noise(_autoregressive),
}
"""Name -> rewards."""


def _best(offered: Array, coefficients: Array) -> Array:
    """One-hot choices (n, K) of the largest score."""
    return np.asarray(np.eye(ACTIONS)[(offered @ coefficients).argmax(axis=1)])


def target_chances(offered: Array) -> Array:
    """What the evaluated policy would choose (n, K): always the same of two equal rounds, another one than
    the log.
    """
    return _best(offered, TARGET)


LOGGING: dict[str, Callable[[Array], Array]] = {
    "uniform": lambda offered: np.full(offered.shape[:2], 1.0 / ACTIONS),
    "softmax": lambda offered: (
        (1.0 - FLOOR) * special.softmax(offered @ SOFTMAX, axis=1) + FLOOR / ACTIONS
    ),
    "ε-greedy": lambda offered: (
        (1.0 - EPSILON) * _best(offered, GREEDY) + EPSILON / ACTIONS
    ),
}
"""Name -> probabilities (n, K) of the logging policy."""


@dataclass(frozen=True, eq=False)
class DrawnLog:
    """One log, the target's probabilities (rows,) and the rounds that its replay accepts."""

    feedback: Feedback
    target: Array
    accepted: np.ndarray[Any, Any]


def draw_log(world: str, logging: str, rounds: int, rng: Rng) -> DrawnLog:
    """A log of one world by one logging policy."""
    offered = rng.standard_normal((rounds, ACTIONS, DIM))
    every = np.arange(rounds)
    chances = LOGGING[logging](offered)
    target = target_chances(offered)
    actions = (
        (rng.random((rounds, 1)) > np.cumsum(chances, axis=1))
        .sum(axis=1)
        .clip(0, ACTIONS - 1)
    )
    rewards = WORLDS[world].draw(offered[every, actions, 0], rng)
    feedback = Feedback.from_arrays(
        offered, actions, rewards, propensities=chances[every, actions]
    )
    propensities = chances[every, actions]
    lucky = rng.random(rounds) * propensities < propensities.min() * (1.0 + 1e-12)
    return DrawnLog(
        feedback,
        target.ravel(),
        np.flatnonzero(lucky & (target[every, actions] == 1.0)),
    )


@cache
def true_values() -> dict[tuple[str, str], tuple[float, float]]:
    """(world, logging) -> the values of the target and of the logging policy, over two million rounds of
    contexts.
    """
    rng = np.random.default_rng(TRUTH_SEED)
    sums = {(world, logging): np.zeros(2) for world in WORLDS for logging in LOGGING}
    for _ in range(TRUTH_ROUNDS // TRUTH_CHUNK):
        offered = rng.standard_normal((TRUTH_CHUNK, ACTIONS, DIM))
        target = target_chances(offered)
        chances = {name: policy(offered) for name, policy in LOGGING.items()}
        means_of = {each.mean: each.mean(offered[:, :, 0]) for each in WORLDS.values()}
        for (world, logging), total in sums.items():
            means = means_of[WORLDS[world].mean]
            total += [np.vdot(target, means), np.vdot(chances[logging], means)]
    return {
        key: (float(total[0]) / TRUTH_ROUNDS, float(total[1]) / TRUTH_ROUNDS)
        for key, total in sums.items()
    }


ROUNDS = (4000, 20_000)
"""Sizes of a log: a small one, and one in which intervals are narrow."""
ESTIMATORS = ("DR", "SNIPS", "IPS", "replay", "the log")
VALUE, DIFFERENCE = "value", "difference to the log"
LINES = (
    *((name, quantity) for name in ESTIMATORS[:-1] for quantity in (VALUE, DIFFERENCE)),
    ("the log", VALUE),
)
"""Estimator and quantity of every interval."""
CONFIDENCE = 0.95
RESAMPLES = 2000
RESAMPLING_SEED = 20_261_130
"""The rule of before: an interval of 95 % by the bootstrap over blocks."""


# -- the rule of before --


def bootstrap_interval(
    parts: Sequence[Contributions], confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Intervals of a studentised bootstrap of blocks (Hall 1992), or of Student's t over blocks where that is
    wider.

    parts: those of one value, or of the two of a difference. Its quantiles come from what was seen, so it
    cannot know that a rare reward was missed.
    """
    table = np.stack(
        [
            column
            for part in parts
            for column in (block_sums(part.gains), block_sums(part.weights))
        ],
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
    return value - max(float(upper), student) * error, value - min(
        float(lower), -student
    ) * error


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
    return np.asarray(
        rng.multinomial(blocks, np.full(blocks, 1.0 / blocks), size=RESAMPLES),
        dtype=np.float64,
    )


# -- measuring --


@dataclass(frozen=True)
class LoggedWorld:
    """One world, logged by one policy for so many rounds."""

    world: str
    logging: str
    rounds: int


@dataclass(frozen=True, eq=False)
class Intervals:
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
        return (self.low <= self.truth) & (self.truth <= self.high)

    @property
    def wrong(self) -> Array:
        """Where it lies on the other side of zero than the truth."""
        return (self.low > 0.0) & (self.truth <= 0.0) | (self.high < 0.0) & (
            self.truth >= 0.0
        )


class BothRules(NamedTuple):
    """The present rule and the one before on the same logs of one setting."""

    now: Intervals
    before: Intervals


Results: TypeAlias = Mapping[LoggedWorld, BothRules]


def settings() -> list[LoggedWorld]:
    """Every world, logging policy and length, the long ones first."""
    return [
        LoggedWorld(world, logging, rounds)
        for rounds in ROUNDS[::-1]
        for world in WORLDS
        for logging in LOGGING
    ]


def run(
    cells: Sequence[LoggedWorld] | None = None,
    *,
    replications: int = 400,
    seed: int = 20261216,
    jobs: int = 2,
    progress: Progress | None = None,
) -> StudyOutcome:
    """All logs of all cells: cell -> intervals by both rules."""
    cells = settings() if cells is None else cells
    truths = true_values()
    places = {cell: index for index, cell in enumerate(settings())}

    def outcome(cell: LoggedWorld) -> BothRules:
        rngs = (
            np.random.default_rng((seed, places[cell], replication))
            for replication in range(replications)
        )
        ends = np.array(
            [
                _intervals(draw_log(cell.world, cell.logging, cell.rounds, rng))
                for rng in rngs
            ]
        )
        target, logged = truths[cell.world, cell.logging]
        truth = np.array([_truth(line, target, logged) for line in LINES])
        return BothRules(
            *(Intervals(ends[:, :, k], ends[:, :, k + 1], truth) for k in (0, 2))
        )

    values = dict(zip(cells, gather(outcome, cells, jobs, progress), strict=True))
    return StudyOutcome(values, replications, seed)


def _truth(line: tuple[str, str], target: float, logged: float) -> float:
    if line[0] == "the log":
        return logged
    return target if line[1] == VALUE else target - logged


def _intervals(log: DrawnLog) -> list[tuple[float, float, float, float]]:
    """Per line: low and high by the rule of now and by that of before, NaN where they refuse or are not
    finite.
    """
    feedback = log.feedback
    logged = estimators.logged_value(log.feedback, confidence=CONFIDENCE)
    values = {
        "DR": estimators.doubly_robust(feedback, log.target, confidence=CONFIDENCE),
        "SNIPS": estimators.snips(feedback, log.target, confidence=CONFIDENCE),
        "IPS": estimators.ips(feedback, log.target, confidence=CONFIDENCE),
        "replay": estimators.accepted_value(
            feedback, log.accepted, confidence=CONFIDENCE
        ),
        "the log": logged,
    }
    new_reasons = reasons_in_rewards(feedback.rewards)
    rows = []
    for name, quantity in LINES:
        value = values[name]
        answer, sides = (
            (value, [value])
            if quantity == VALUE
            else (value.minus(logged), [value, logged])
        )
        present = (answer.low, answer.high) if answer.concludes else (np.nan, np.nan)
        before = (
            (np.nan, np.nan)
            if set(answer.reasons) - set(new_reasons)
            else bootstrap_interval(_parts(sides))
        )
        rows.append(
            (*present, *(before if np.isfinite(before).all() else (np.nan, np.nan)))
        )
    return rows


def _parts(estimates: Sequence[Estimate]) -> list[Contributions]:
    return [
        estimate.contributions
        for estimate in estimates
        if estimate.contributions is not None
    ]


PROMISED = ("DR", "SNIPS", "replay")
ENOUGH = Bound(low=0.92)
FEWEST_CONCLUDING = 50
"""Coverage to reach, .03 below the nominal .95: nearly three errors of a share over 400 logs; and the
fewest conclusive logs for a judgement: with fewer the error is above .03.
"""
IN_DETAIL = ("clicks 1 %", "revenue, 99 % zeros", "AR(0.95) noise")
WHY_MISSED = (
    "Blocks see dependence only that is short against them. Noise that remembers 0.95 of the round before"
    " has a correlation time of 39 rounds, a block of 4,000 rounds has 133: by calculation the standard"
    " error over blocks taken as independent is 8 % too small, which makes 93 % of 95 %; what quarters of"
    " blocks show of it is added."
)
CHOSEN = (
    "| choice of settings | |\n"
    "|---|---|\n"
    "| logging policies | in a trial (seed 7, 100 logs of 4,000 rounds) milder ones (ε = 0.2, a softmax"
    " half as sharp) made the task easier, so they were made sharper |\n"
    "| first run (seed 20261201, 400 logs per cell) | took blocks of rounds as independent; coverage was"
    " too low for AR(0.95) noise at 4,000 rounds (DR 0.902, SNIPS 0.905, replay 0.905) and at least 0.937"
    " elsewhere |\n"
    "| change after the first run | the standard error includes the correlation of neighbouring blocks;"
    " its formula was chosen among about twenty on other seeds |\n"
    "| this page | the second run, with a seed that was not used for these choices |"
)
WORLDS_IN_WORDS = (
    "| rewards | formula |\n"
    "|---|---|\n"
    "| *Gaussian* | 1 + score/2 + noise of variance 1 |\n"
    "| *t2.5*, *AR(0.95)* | as *Gaussian*, with heavy-tailed or autocorrelated noise |\n"
    "| *drifting baseline* | as *Gaussian*, and a wave of amplitude 1.5 is added |\n"
    "| *lognormal* | exp(score/2 + 1.5·normal) |\n"
    "| *clicks* | 0 or 1, at a rate that is logistic in the score |\n"
    "| *revenue* | clicks of 1 % times lognormal amounts of mean 1 |"
)


@dataclass(frozen=True)
class Summary:
    """Figures of one rule, world and estimator over all logging policies, lengths and quantities.

    Attributes
    ----------
    lowest : Measurement or None
        Coverage of concluding intervals where it is lowest, among cells with FEWEST_CONCLUDING of them.
    where : str
        That cell.
    refused : float
        Share of refused logs.
    wrong : float
        Largest share of verdicts on the wrong side of zero, among concluding differences.
    """

    lowest: Measurement | None
    where: str
    refused: float
    wrong: float


def summary(results: Results, world: str, estimator: str, rule: str = "now") -> Summary:
    """What one estimator did in one world; rule: "now" or "before"."""
    refused = []
    wrong = [0.0]
    shares = []
    for cell, outcome, line in _columns(results, world, estimator):
        ends: Intervals = getattr(outcome, rule)
        kept = ends.concludes[:, line]
        count = int(kept.sum())
        refused.append(1.0 - kept.mean())
        if count < FEWEST_CONCLUDING:
            continue
        covered = int(ends.covers[kept, line].sum())
        quantity = LINES[line][1]
        where = f"{quantity}, {cell.logging}, {cell.rounds:,} rounds"
        shares.append((covered / count, count, where, covered))
        if quantity == DIFFERENCE:
            wrong.append(ends.wrong[kept, line].mean())
    lowest = min(shares, default=None)
    return Summary(
        lowest=None if lowest is None else share_of(lowest[3], lowest[1]),
        where="" if lowest is None else lowest[2],
        refused=float(np.mean(refused)),
        wrong=float(max(wrong)),
    )


def _columns(
    results: Results, world: str, estimator: str
) -> Iterator[tuple[LoggedWorld, BothRules, int]]:
    for cell, outcome in results.items():
        for index, (name, _) in enumerate(LINES):
            if cell.world == world and name == estimator:
                yield cell, outcome, index


def width_ratio(outcome: BothRules, line: int) -> float:
    """Ratio of median widths, now to before, over logs in which both rules conclude; NaN if these are few."""
    both = outcome.now.concludes[:, line] & outcome.before.concludes[:, line]
    if both.sum() < FEWEST_CONCLUDING:
        return float("nan")
    now, before = (np.median((ends.high - ends.low)[both, line]) for ends in outcome)
    return float(now / before)


def coverage_goal(world: str, estimator: str) -> Claim:
    """The lowest coverage of an estimator in a world must be ENOUGH."""

    def judge(results: Results) -> Verdict:
        measured = summary(results, world, estimator)
        assert measured.lowest is not None
        return decide(
            ENOUGH.meets(measured.lowest.value), measured.lowest, numbers=measured.where
        )

    return Claim(estimator, world, judge)


def verdicts(outcome: StudyOutcome) -> Judged:
    """Every world (`where`) and estimator (`words`) that concludes often enough, with its verdict."""
    results = outcome.values
    goals = [
        coverage_goal(world, estimator)
        for world in _worlds(results)
        for estimator in PROMISED
        if summary(results, world, estimator).lowest is not None
    ]
    return judge_all(goals, results)


def report(outcome: StudyOutcome) -> str:
    """The study as a Markdown page."""
    results: Results = outcome.values
    lines = [
        "# Intervals of off-policy estimates, measured",
        "",
        "How often do 95 % intervals of off-policy estimates contain the true value, and how wide are they?",
        "",
        "| | how it was measured |",
        "|---|---|",
        f"| repetitions | {outcome.replications} logs per cell with seed {outcome.seed} |",
        "| actions | four, with three standard normal features each; rewards depend on the first feature,"
        " the *score* |",
        "| evaluated policy | plays the best action by a score of its own and does not learn |",
        "| logging policies | uniform, softmax with at least 0.05 per action, and ε-greedy with ε = 0.1 |",
        "",
        WORLDS_IN_WORDS,
        "",
        CHOSEN,
        "",
        "| word | meaning |",
        "|---|---|",
        "| *before* | the interval that ours replaced: a studentised bootstrap of 30 blocks of time, or"
        " Student's t over the blocks where that was wider |",
        "| coverage | share of intervals that contain the true value, among intervals that are finite and"
        f" that no check refused, in cells with at least {FEWEST_CONCLUDING} of them |",
        "",
        "## What must be true",
        "",
        "Each cell has the lowest coverage (share of intervals that contain the true value) of an"
        " estimator for one kind of reward. The lowest coverage is taken over three logging policies,"
        " two lengths of the log, and two estimated quantities: the value of a policy, and its difference"
        f" to the value of the logging policy. The goal is a coverage {ENOUGH}:",
        "",
        f"| | {' | '.join(PROMISED)} |",
        "|---|" + "---|" * len(PROMISED),
        *_promised_lines(outcome),
        "",
        _missed(outcome),
        "",
        "## All estimators",
        "",
        "| column | content |",
        "|---|---|",
        "| coverage now, before | lowest coverage of our interval, and of the interval that ours replaced |",
        "| width ratio | ratio of their median widths, from the narrowest cell to the widest; near 0"
        " where the bootstrap was nearly infinite, because many resamples contained no reward |",
        "| refused, before | share of refused logs, and of infinite intervals before |",
        "| wrong, before | largest share of wrong verdicts: intervals of a difference that lie on the"
        " wrong side of zero |",
        "",
        "| world | by | coverage now | before | width ratio | refused, before | wrong, before | lowest now"
        " in |",
        "|---|---|---|---|---|---|---|---|",
        *(
            _summary_line(results, world, name)
            for world in _worlds(results)
            for name in ESTIMATORS
        ),
        "",
        "## Rare rewards and long dependence, cell by cell",
        "",
        "Each cell has the coverage (share of intervals that contain the true value) of our interval / of"
        " the interval that ours replaced. The number after × is the median width of our interval divided"
        " by the median width of the replaced interval:",
        "",
        f"| world | log | rounds | of | {' | '.join(PROMISED)} |",
        "|---|---|---|---|" + "---|" * len(PROMISED),
        *_detailed_lines(results),
        "",
    ]
    return "\n".join(lines)


def _worlds(results: Results) -> list[str]:
    return list(dict.fromkeys(cell.world for cell in results))


def _promised_lines(outcome: StudyOutcome) -> Iterator[str]:
    judged = {
        (goal.name, goal.statement): verdict for goal, verdict in verdicts(outcome)
    }
    for world in _worlds(outcome.values):
        cells = [judged.get((world, name)) for name in PROMISED]
        shown = [
            "–" if cell is None else f"{cell.measured.with_interval()} {cell.mark}"
            for cell in cells
        ]
        yield f"| {world} | {' | '.join(shown)} |"


def _missed(outcome: StudyOutcome) -> str:
    """Where the promise is not kept, in words."""
    missed = [
        f"{goal.name} by {goal.statement}, {verdict.measured.value:.3f} ({verdict.numbers})"
        for goal, verdict in verdicts(outcome)
        if not verdict.reached
    ]
    return f"Missed: {'; '.join(missed)}. {WHY_MISSED}" if missed else "None is missed."


def _summary_line(results: Results, world: str, estimator: str) -> str:
    now, before = (
        summary(results, world, estimator, rule) for rule in BothRules._fields
    )
    covered = [
        "–" if rule.lowest is None else f"{rule.lowest.value:.3f}"
        for rule in (now, before)
    ]
    ratios = [
        width_ratio(outcome, line)
        for _, outcome, line in _columns(results, world, estimator)
    ]
    ratio = "nan–nan"
    if not np.isnan(ratios).all():
        ratio = f"{np.nanmin(ratios):.2f}–{np.nanmax(ratios):.2f}"
    refused = f"{now.refused:.3f}, {before.refused:.3f}"
    wrong = "" if estimator == "the log" else f"{now.wrong:.3f}, {before.wrong:.3f}"
    cells = (world, estimator, *covered, ratio, refused, wrong, now.where)
    return f"| {' | '.join(cells)} |"


def _detailed_lines(results: Results) -> Iterator[str]:
    for cell, outcome in results.items():
        for quantity in (
            dict.fromkeys(line[1] for line in LINES) if cell.world in IN_DETAIL else ()
        ):
            shown = [
                _detailed_figures(outcome, LINES.index((name, quantity)))
                for name in PROMISED
            ]
            yield f"| {cell.world} | {cell.logging} | {cell.rounds:,} | {quantity} | {' | '.join(shown)} |"


def _detailed_figures(outcome: BothRules, line: int) -> str:
    shares = []
    for ends in outcome:
        kept = ends.concludes[:, line]
        few = kept.sum() < FEWEST_CONCLUDING
        shares.append("–" if few else f"{ends.covers[kept, line].mean():.3f}")
    ratio = width_ratio(outcome, line)
    return f"{shares[0]} / {shares[1]}{'' if np.isnan(ratio) else f', × {ratio:.2f}'}"
