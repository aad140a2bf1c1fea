"""Logs with many columns in which nothing drifts: how often drift is said, and whether intervals hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import special

from invariant_bandits.checks import Array
from invariant_bandits.decomposition.arm_statistics import ArmStatistics
from invariant_bandits.decomposition.drift_prior import DriftPrior
from invariant_bandits.decomposition.estimator import InvariantSubspaceDecomposition
from invariant_bandits.features.arm_maps import SharedSlopes
from invariant_bandits.features.columns import Column
from invariant_bandits.features.rows import RowFeatures
from invariant_bandits_reproduction.claims import (
    Bound,
    Claim,
    Judged,
    Measurement,
    Verdict,
    decide,
    judge_all,
    mean_of,
    share_of,
)
from invariant_bandits_reproduction.studies.harness import (
    Progress,
    StudyOutcome,
    cell_seed,
    gather,
    verdict_lines,
)

ARMS = 3
LARGE = 3.0
NOISE = 8.0
LEVELS = 2.0
"""The effects that are not 0, the noise, and the spread of the arms' levels; log-odds are an eighth of it."""
CAUSES = 3
"""Columns with an effect; those of all others are 0."""
WINDOWS = 8
OWN_SLOPES = 10
"""Slopes that arms have of their own where they share the others."""
Z = 1.959964
HIGHEST_LEVEL = 0.05
LEAST_COVERAGE = 0.93
LEAST_POWER = 0.97
NODES = 40
"""Of the Gauss-Hermite rule for the slope of a probability."""
FALSE_DRIFT, COVER_OF_NULL, COVER_OF_LARGE, NAMED = range(4)
"""Columns of what `trial` measures."""
ROWS = "rows"
OWN = "own"
PARTIAL = "partial"
SHARED = "shared"
KINDS = {
    SHARED: "arms that share all slopes",
    PARTIAL: f"arms with {OWN_SLOPES} slopes of their own, which share the others",
    OWN: "arms with slopes of their own",
    ROWS: "rows without arms",
}


@dataclass(frozen=True)
class LevelCell:
    """One row of the page.

    Attributes
    ----------
    kind : str
        One of KINDS.
    clicks : bool
        Whether rewards are 0 or 1.
    columns, rounds : int
        Size of a log.
    share : float
        Part of the repetitions that are drawn: large fits are slow.
    """

    kind: str
    clicks: bool
    columns: int
    rounds: int
    share: float = 1.0

    @property
    def name(self) -> str:
        """The row's name on the page."""
        rewards = "clicks" if self.clicks else "linear"
        size = f"{self.columns} columns, {self.rounds:,} rounds"
        return f"{self.kind}, {rewards}, {size}"


SIZES = {
    SHARED: {
        (30, 1200): 1.0,
        (70, 1200): 1.0,
        (120, 1200): 1.0,
        (30, 20_000): 0.5,
        (120, 20_000): 0.2,
    },
    PARTIAL: {(30, 1200): 1.0, (120, 1200): 0.1},
    OWN: {
        (30, 1200): 1.0,
        (70, 1200): 0.2,
        (120, 1200): 0.06,
        (30, 20_000): 0.3,
        (120, 20_000): 0.02,
    },
    ROWS: {
        (30, 1200): 1.0,
        (70, 1200): 0.3,
        (120, 1200): 0.1,
        (30, 20_000): 0.5,
        (120, 20_000): 0.05,
    },
}
"""Share of the repetitions, by kind and (columns, rounds): fits take from .02 to about 5 seconds."""


def cells() -> list[LevelCell]:
    """Every row of the page."""
    return [
        LevelCell(kind=kind, clicks=clicks, columns=columns, rounds=rounds, share=share)
        for kind, sizes in SIZES.items()
        for clicks in (False, True)
        for (columns, rounds), share in sizes.items()
    ]


class PlantedLog(NamedTuple):
    """One log with its truth.

    Attributes
    ----------
    features, arms, rewards : arrays, shapes (n, q), (n,), (n,)
        Columns, arms and rewards of n rounds in time order.
    effects : array, shape (A, q)
        Effect of every column for every arm, in units of the fit.
    """

    features: Array
    arms: np.ndarray[tuple[int], np.dtype[np.int64]]
    rewards: Array
    effects: Array


def draw(
    cell: LevelCell, rng: np.random.Generator, reversed_effect: bool
) -> PlantedLog:
    """Draw one log; with `reversed_effect`, the first effect of the first arm changes its sign halfway.

    Three columns have an effect of 3 for every arm, and all others have none. Where arms have slopes of their
    own, arm k has an effect of column k alone. Where slopes are shared the sign changes for all arms.
    """
    n, q = cell.rounds, cell.columns
    effects = np.zeros((ARMS, q))
    effects[:, :CAUSES] = LARGE
    if cell.kind in (OWN, PARTIAL):
        effects[:, :CAUSES] = LARGE * np.eye(ARMS, CAUSES)
    features = rng.normal(size=(n, q))
    arms = rng.integers(ARMS, size=n)
    levels = LEVELS * rng.normal(size=ARMS)
    expected = levels[arms] + np.einsum("nq,nq->n", effects[arms], features)
    if reversed_effect:
        late = np.arange(n) >= n // 2
        expected -= 2.0 * late * effects[arms, 0] * features[:, 0]
    if not cell.clicks:
        return PlantedLog(
            features, arms, expected + NOISE * rng.normal(size=n), effects
        )
    rewards = rng.random(n) < special.expit(expected / NOISE)
    of_odds = effects / NOISE
    if cell.kind == ROWS:  # a linear model of the probability
        of_odds = of_odds * mean_slope(levels, float(np.linalg.norm(of_odds[0])))
    return PlantedLog(features, arms, rewards.astype(np.float64), of_odds)


def mean_slope(levels: Array, spread: float) -> float:
    """Return E[π(1 − π)] of log-odds N(level, spread²), averaged over the levels of the arms.

    Least squares of clicks on normal features estimates this multiple of the effects on the log-odds (Stein
    1981).
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    chances = special.expit(levels[:, None] / NOISE + spread * nodes)
    return float((chances * (1.0 - chances) @ weights).mean() / np.sqrt(2.0 * np.pi))


class FitResult(NamedTuple):
    """What a fit says of a log: whether anything drifts, whether the reversed effect does, and the effects
    (A, q) with their errors.
    """

    drifts: bool
    names_reversed: bool
    effects: Array
    errors: Array


def fit(cell: LevelCell, log: PlantedLog) -> FitResult:
    """Fit the model of the cell's kind."""
    if cell.kind == ROWS:
        return _fit_rows(log)
    statistics = _statistics(cell, log)
    prior = DriftPrior.from_arms(statistics)
    layout, evidence = prior.layout, prior.arms.evidence
    drifting = [effect for effect in prior.effects if effect.drifts]
    # The first effect is the first slope of the first arm, of all arms together, or the first shared one.
    places = {1, layout.dim + 1} if layout.own > 1 else {layout.own_dim}

    def by_arm(values: Array) -> Array:
        own = layout.by_arm(values)[:, 1:]
        shared = np.tile(values[layout.own_dim : layout.dim], (ARMS, 1))
        return np.hstack([own, shared])

    return FitResult(
        bool(drifting),
        bool(places & {effect.place for effect in drifting}),
        by_arm(evidence.estimate[: layout.dim]),
        by_arm(evidence.error[: layout.dim]),
    )


def _statistics(cell: LevelCell, log: PlantedLog) -> ArmStatistics:
    if cell.kind != PARTIAL:
        contexts = np.column_stack([np.ones(len(log.features)), log.features])
        return ArmStatistics.from_rounds(
            contexts,
            log.arms,
            log.rewards,
            windows=WINDOWS,
            coding=cell.kind,
            count=ARMS,
        )
    columns = tuple(Column(f"x{j}") for j in range(cell.columns))
    labels = tuple(f"arm {k}" for k in range(ARMS))
    encoding = SharedSlopes(RowFeatures(columns), labels, own_slopes=OWN_SLOPES)
    own = np.column_stack([np.ones(len(log.features)), log.features[:, :OWN_SLOPES]])
    blocks = np.eye(ARMS)[log.arms][:, :, None] * own[:, None, :]
    phi = np.hstack([blocks.reshape(len(own), -1), log.features[:, OWN_SLOPES:]])
    return ArmStatistics.from_features(encoding, phi, log.rewards, WINDOWS)


def _fit_rows(log: PlantedLog) -> FitResult:
    # The levels of the arms are part of the noise: these rows say nothing of arms.
    decomposition = InvariantSubspaceDecomposition()
    decomposition.fit(log.features, log.rewards, windows=WINDOWS)
    mean, covariance = decomposition.paths_.weighted_mean()
    first = decomposition.split_.residual[0]
    return FitResult(
        bool(decomposition.varies_.any()),
        bool(first @ first > 0.5),
        mean[None, :],
        np.sqrt(np.diagonal(covariance))[None, :],
    )


def trial(task: tuple[LevelCell, int, int]) -> tuple[float, float, float, float]:
    """Whether drift is said in a log without any, the shares of the effects of 0 and of 3 within their
    intervals, and whether a reversed effect is named in a second log; NaN in every other repetition.
    """
    cell, seed, index = task
    rng = np.random.default_rng((seed, index))
    log = draw(cell, rng, reversed_effect=False)
    fitted = fit(cell, log)
    effects = log.effects[: len(fitted.effects)]
    covered = np.abs(fitted.effects - effects) <= Z * fitted.errors
    named = float("nan")
    if index % 2 == 0:
        named = float(fit(cell, draw(cell, rng, reversed_effect=True)).names_reversed)
    return (
        float(fitted.drifts),
        float(covered[effects == 0.0].mean()),
        float(covered[effects != 0.0].mean()),
        named,
    )


def run(
    *,
    replications: int = 100,
    seed: int = 20270301,
    jobs: int = 2,
    progress: Progress | None = None,
) -> StudyOutcome:
    """All repetitions, none discarded: values are, cell -> what `trial` measures (n, 4)."""
    values = {}
    for index, cell in enumerate(cells()):
        count = max(round(cell.share * replications), 2)
        places = [(cell, cell_seed(seed, index), i) for i in range(count)]
        values[cell] = np.array(gather(trial, places, jobs, progress, cell.name))
    return StudyOutcome(values, replications, seed)


def summarise(values: Array, column: int) -> tuple[Measurement, str]:
    """Summarise what `trial` measured in one column of values (n, 4), with the words of the page."""
    measured = values[~np.isnan(values[:, column]), column]
    if column in (COVER_OF_NULL, COVER_OF_LARGE):
        mean = mean_of(measured)
        return mean, mean.with_error(3)
    share = share_of(int(measured.sum()), len(measured))
    return share, share.with_interval()


def goals() -> list[Claim]:
    """What the tests of drift and the intervals promise, for each kind over all sizes and rewards."""

    def goal(kind: str, column: int, words: str, bound: Bound) -> Claim:
        def judge(outcome: StudyOutcome) -> Verdict:
            of_kind = [v for cell, v in outcome.values.items() if cell.kind == kind]
            measured, numbers = summarise(np.concatenate(of_kind), column)
            return decide(bound.meets(measured.value), measured, numbers=numbers)

        return Claim(words, kind, judge)

    false = "drift is said where nothing drifts"
    null = "intervals of effects of 0 cover"
    large = "intervals of effects of 3 cover"
    named = "a reversed effect is named"
    level = Bound(high=HIGHEST_LEVEL)
    cover = Bound(low=LEAST_COVERAGE)
    result = []
    for kind, words in KINDS.items():
        result += [
            goal(kind, FALSE_DRIFT, f"{false}, {words}: ≤ 5 %", level),
            goal(kind, COVER_OF_NULL, f"{null}, {words}: ≥ 93 %", cover),
            goal(kind, COVER_OF_LARGE, f"{large}, {words}: ≥ 93 %", cover),
        ]
    power = f"{named}, {KINDS[SHARED]}: ≥ 97 %"
    return [*result, goal(SHARED, NAMED, power, Bound(low=LEAST_POWER))]


def verdicts(outcome: StudyOutcome) -> Judged:
    """Every goal of the study with its verdict."""
    return judge_all(goals(), outcome)


def report(outcome: StudyOutcome) -> str:
    """The page."""
    lines = [
        "# Drift where nothing drifts, measured",
        "",
        "How often does a fit say that an effect drifts in a log with many columns in which nothing"
        " drifts? Do the intervals of effects hold? Is an effect named that does drift?",
        "",
        "| | how it was measured |",
        "|---|---|",
        f"| repetitions | {outcome.replications} fresh logs in the rows with small fits and fewer in the"
        f" others, as the table says, seed {outcome.seed}, none discarded |",
        f"| logs | normal columns, {CAUSES} of which have an effect of {LARGE:g} per standard deviation,"
        f" the others none; {ARMS} arms played at random, levels N(0, {LEVELS:g}²), noise N(0, {NOISE:g}²)"
        f" |",
        "| own and partial | column k has its effect for arm k alone |",
        f"| partial | arms have {OWN_SLOPES} slopes of their own and share the others |",
        f"| clicks | rewards are 0 or 1; the log-odds are the linear reward divided by {NOISE:g} |",
        "| rows | a decomposition of the columns, which is not told the arms; a probability is linear in"
        " them, so the true effect is that of least squares |",
        f"| fit | {WINDOWS} windows; tests of drift at their default level |",
        "| drift said | share of logs in which any effect or direction is said to drift, with its 95 %"
        " interval |",
        "| cover | share of effects that lie within their estimate ± 1.96 errors, with the standard error"
        " over logs |",
        "| named | share of half as many further logs in which one effect changes its sign halfway, and"
        " that effect (of rows: most of its column) is said to drift |",
        "",
        *verdict_lines(verdicts(outcome)),
        "## Each size of log",
        "",
        "| log | logs | drift said | cover, effects of 0 | cover, effects of 3 | named |",
        "|---|---|---|---|---|---|",
    ]
    for cell, values in outcome.values.items():
        words = [summarise(values, column)[1] for column in range(values.shape[1])]
        lines.append(f"| {cell.name} | {len(values)} | {' | '.join(words)} |")
    lines += [
        "",
        "Rows name little in short logs, because their directions come from how the covariances of the"
        " columns change. Here they do not change, and the drift of one column is spread over many"
        " directions. With clicks, an effect that one of three arms has and that changes its sign takes"
        " more than 1,200 rounds.",
    ]
    return "\n".join([*lines, ""])
