"""What randomised decisions cost, and what their log is worth: regret against the width of a later
evaluation.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from invariant_bandits.checks import Array, InputError, whole_number
from invariant_bandits.evaluation import estimators
from invariant_bandits.logs.feedback import Feedback
from invariant_bandits.plotting import theme
from invariant_bandits.policies.auto import AutoISD
from invariant_bandits.policies.baselines import Frozen
from invariant_bandits.policies.randomised import (
    DEFAULT_FLOOR,
    DEFAULT_SHARPNESS,
    INVERSE_GAP,
    UNIFORM,
    Randomised,
)
from invariant_bandits.simulation.episodes import KnownEpisode
from invariant_bandits.simulation.stress_worlds import StressEpisodes
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
    gather,
    picture_lines,
    table,
    table_row,
)
from invariant_bandits_reproduction.studies.intervals_study import Intervals

ROUNDS = 4000
CONFIDENCE = 0.95
WORLD = StressEpisodes(drift="walk", step=0.01)
SIGNAL = 0.3
"""Factor on that world's coefficients: noise is larger than differences between actions, as in most logs."""
TRUTH_ROUNDS = 20_000  # of contexts, for their covariance
BEST_OF_FIVE = 1.162964473640519  # expected largest of five standard normal numbers
LINES = ("DR, value", "DR, difference", "SNIPS, value", "SNIPS, difference")


@dataclass(frozen=True)
class Randomisation:
    """How AutoISD is randomised."""

    kind: str
    amount: float

    @property
    def name(self) -> str:
        """What tables call it."""
        return (
            f"floor {self.amount:g}"
            if self.kind == UNIFORM
            else f"inverse gap, {self.amount:g}"
        )

    def wrapped(self, policy: AutoISD, seed: int) -> Randomised:
        """The policy, randomised."""
        if self.kind == UNIFORM:
            return Randomised(policy, self.amount, seed=seed)
        return Randomised(policy, kind=self.kind, sharpness=self.amount, seed=seed)


SETTINGS = (
    *(Randomisation(UNIFORM, floor) for floor in (0.0, 0.01, 0.02, 0.05, 0.1, 0.2)),
    *(
        Randomisation(INVERSE_GAP, sharpness)
        for sharpness in (1000.0, 300.0, 100.0, 30.0, 10.0)
    ),
)
DEFAULTS = (
    Randomisation(UNIFORM, DEFAULT_FLOOR[UNIFORM]),
    Randomisation(INVERSE_GAP, DEFAULT_SHARPNESS),
)
"""The settings whose coverage is judged: they play every world, the others only some."""


@dataclass(frozen=True, eq=False)
class RandomisedLogs(Intervals):
    """One setting over all logs, (n, 4): DR and SNIPS, each of the challenger's value and of its difference
    to the log.

    regret (n,): per round.
    """

    regret: Array


def run(
    settings: Sequence[Randomisation] = SETTINGS,
    *,
    replications: int = 300,
    others: int | None = None,
    rounds: int = ROUNDS,
    world: StressEpisodes = WORLD,
    truth_rounds: int = TRUTH_ROUNDS,
    seed: int = 20261217,
    jobs: int = 2,
    progress: Progress | None = None,
) -> StudyOutcome:
    """All settings on the same worlds, logs, contexts and luck; the same for any number of `jobs`.

    others: in how many of the worlds settings other than DEFAULTS play, a third by default; truth_rounds: of
    contexts, from which the true value is computed.
    """
    whole_number("replications", replications, 2)
    others = max(2, replications // 3) if others is None else others

    def replication(number: int) -> dict[Randomisation, tuple[float, Array]]:
        playing = [
            setting for setting in settings if setting in DEFAULTS or number < others
        ]
        drawn = world.draw(
            rounds + truth_rounds, rng := np.random.default_rng((seed, number))
        )
        return _replication(playing, fainter(drawn, SIGNAL), rounds, rng)

    outcomes = gather(replication, range(replications), jobs, progress, "worlds")
    values = {}
    for setting in settings:
        played = [outcome[setting] for outcome in outcomes if setting in outcome]
        low, high, truth = np.moveaxis(np.stack([ends for _, ends in played]), 2, 0)
        values[setting] = RandomisedLogs(
            low, high, truth, np.array([regret for regret, _ in played])
        )
    return StudyOutcome(values, replications, seed)


def _replication(
    settings: Sequence[Randomisation],
    drawn: KnownEpisode,
    rounds: int,
    rng: np.random.Generator,
) -> dict[Randomisation, tuple[float, Array]]:
    """Regret per round and intervals (4, 3) of every setting in one world."""
    contexts, episode = drawn.offered[rounds:], _first(drawn, rounds)
    first = Feedback.from_arrays(
        episode.logs.offered, episode.logs.actions, episode.logs.rewards
    )
    auto = AutoISD.from_past(episode.past)
    challenger = Frozen.from_past(episode.past).coefficients
    seed = int(rng.integers(2**62))
    value = true_value(challenger, contexts, episode.coefficients)
    outcomes = {}
    for setting in settings:
        log = written_log(setting.wrapped(copy.deepcopy(auto), seed), episode)
        chosen = episode.means[np.arange(rounds), log.actions]
        regret = float((episode.means.max(axis=1) - chosen).mean())
        outcomes[setting] = (
            regret,
            _intervals(log, first, challenger, value - float(chosen.mean()), value),
        )
    return outcomes


def fainter(episode: KnownEpisode, factor: float) -> KnownEpisode:
    """The same episode with all coefficients times `factor` and the same noise."""
    logs = episode.logs
    expected = episode.means
    outcomes = episode.rewards
    shift = (factor - 1.0) * np.einsum("tp,tp->t", logs.features, logs.coefficients)
    calmer = replace(
        logs,
        rewards=logs.rewards + shift,
        coefficients=factor * logs.coefficients,
        component=factor * logs.component,
    )
    return replace(
        episode,
        logs=calmer,
        coefficients=factor * episode.coefficients,
        expected=factor * expected,
        outcomes=outcomes + (factor - 1.0) * expected,
    )


def _first(episode: KnownEpisode, rounds: int) -> KnownEpisode:
    """The first online rounds of an episode."""
    parts = ("offered", "coefficients", "noise", "expected", "outcomes")
    return replace(episode, **{name: getattr(episode, name)[:rounds] for name in parts})


def written_log(policy: Randomised, episode: KnownEpisode) -> Feedback:
    """What the policy logs while it plays: features of all actions, its choices, rewards and propensities."""
    rewards = episode.rewards
    actions = np.empty(episode.horizon, dtype=np.int64)
    propensities = np.empty(rewards.shape)
    for t, offered in enumerate(episode.offered):
        actions[t], propensities[t], *_ = policy.decide(offered)
        policy.update(offered[actions[t]], float(rewards[t, actions[t]]))
    own = propensities[np.arange(episode.horizon), actions]
    return Feedback.from_arrays(
        episode.offered,
        actions,
        rewards[np.arange(episode.horizon), actions],
        propensities=own,
    )


def true_value(challenger: Array, contexts: Array, coefficients: Array) -> float:
    """Expected reward per round of playing the largest φᵀθ of five, over contexts as in `contexts` (n, 5, p).

    They are N(0, Σ), so the mean of the chosen features is m·Σθ/√(θᵀΣθ), m the expected largest of five
    standard normal numbers; the reward is linear, with the coefficients (T, p) of every round.
    """
    flat = contexts.reshape(-1, contexts.shape[2])
    covariance = flat.T @ flat / len(flat)
    pull = covariance @ challenger
    return float(
        coefficients.mean(axis=0) @ pull * BEST_OF_FIVE / np.sqrt(challenger @ pull)
    )


def _intervals(
    log: Feedback, first: Feedback, challenger: Array, difference: float, value: float
) -> Array:
    """(4, 3): low, high and truth by DR and SNIPS, of the challenger's value and difference to the log."""
    scores = (log.offered @ challenger).reshape(log.rounds, -1)
    target = np.eye(scores.shape[1])[scores.argmax(axis=1)].ravel()
    logged = estimators.logged_value(log, confidence=CONFIDENCE)
    robust = estimators.doubly_robust(log, target, earlier=first, confidence=CONFIDENCE)
    rows = []
    for estimate in (robust, estimators.snips(log, target, confidence=CONFIDENCE)):
        for answer, truth in ((estimate, value), (estimate.minus(logged), difference)):
            ends = (answer.low, answer.high) if answer.concludes else (np.nan, np.nan)
            rows.append((*ends, truth))
    return np.array(rows)


COVERED = Bound(0.93, 0.97)
JUDGED = ("DR, value", "SNIPS, value")
ALONE = SETTINGS[0]
GAIN = 0.1
"""A gain per round that a user may want to see, in standard deviations of the noise."""
FEWEST_CONCLUDING = 50
WORLD_IN_WORDS = (
    '| environment | `StressEpisodes(drift="walk")` with coefficients times 0.3, ten features, five'
    " actions and noise of standard deviation 1; the expected rewards of the actions differ by about 0.7"
    " |\n"
    "| drift | three of the ten coefficients follow a random walk with steps of 0.003 per round, through"
    " the first logs and the rounds that follow |\n"
    "| first logs | 4,000 rounds with uniform choices |\n"
    "| second log | AutoISD starts from the first logs, is randomised, and plays; its log has"
    " propensities |\n"
    "| challenger | the greedy policy of a regression on the first logs, which does not learn; evaluated"
    " from the second log; its true value is known, because features are Gaussian and rewards linear |"
)
LOOKS = (
    "| trial runs | 24 logs on seed 7, then 40 logs on seed 8 |\n"
    "| changes after the first trial run | smaller coefficients, because differences between actions had"
    " exceeded the noise; DR got the first logs for its reward model |\n"
    "| changes of defaults after the trial runs | none |"
)
THIN = 0.2
"""Share of refused logs above which those that conclude are a selection."""


def coverage_goal(setting: Randomisation, line: str) -> Claim:
    """A default setting covers as often as promised, judged by the measured share itself."""

    def judge(results: Mapping[Randomisation, RandomisedLogs]) -> Verdict:
        share = coverage(results[setting], line)
        assert share is not None
        return decide(COVERED.meets(share.value), share, numbers=share.with_interval())

    return Claim(f"{setting.name}, {line}", setting.name, judge)


def verdicts(outcome: StudyOutcome) -> Judged:
    """Coverage of the default settings, where enough logs conclude."""
    results = outcome.values
    goals = [
        coverage_goal(setting, line)
        for setting in DEFAULTS
        for line in JUDGED
        if setting in results and coverage(results[setting], line) is not None
    ]
    return judge_all(goals, results)


def coverage(measured: RandomisedLogs, line: str) -> Measurement | None:
    """Share of the concluding intervals that hold the truth; None where there are too few."""
    position = LINES.index(line)
    concludes = measured.concludes[:, position]
    if concludes.sum() < FEWEST_CONCLUDING:
        return None
    return share_of(
        int(measured.covers[concludes, position].sum()), int(concludes.sum())
    )


def half_width(measured: RandomisedLogs, line: str) -> float:
    """Median over the logs; a refusal is infinitely wide."""
    position = LINES.index(line)
    wide = np.where(
        measured.concludes[:, position],
        measured.high[:, position] - measured.low[:, position],
        np.inf,
    )
    return float(np.median(wide)) / 2.0


def price(
    results: Mapping[Randomisation, RandomisedLogs], setting: Randomisation
) -> Measurement:
    """Regret per round beyond that of AutoISD alone in the same worlds."""
    alone = results[ALONE].regret
    return mean_of(results[setting].regret[: len(alone)] - alone)


def priced(
    results: Mapping[Randomisation, RandomisedLogs],
) -> dict[str, list[tuple[str, float, float]]]:
    """Kind -> (label, price, half width of the value by DR) of the settings that conclude."""
    rows: dict[str, list[tuple[str, float, float]]] = {}
    for setting, measured in results.items():
        wide, cost = half_width(measured, "DR, value"), price(results, setting).value
        if setting != ALONE and np.isfinite(wide):
            rows.setdefault(setting.kind, []).append(
                (f"{setting.amount:g}", max(cost, 1e-4), wide)
            )
    return rows


def report(
    outcome: StudyOutcome, *, rounds: int = ROUNDS, pictures: str | None = None
) -> str:
    """The study as a Markdown page; `pictures`: the folder of its pictures."""
    results: Mapping[Randomisation, RandomisedLogs] = outcome.values
    counts = [len(measured.regret) for measured in results.values()]
    lines = [
        "# The price of randomised decisions, measured",
        "",
        "How much reward do randomised decisions cost, and how much narrower do they make later"
        " off-policy intervals?",
        "",
        "| | how it was measured |",
        "|---|---|",
        f"| repetitions | {max(counts)} logs of {rounds:,} rounds with the default settings,"
        f" {min(counts)} with the others, seed {outcome.seed}; none discarded, all settings in the same"
        " worlds |",
        WORLD_IN_WORDS,
        LOOKS,
        "",
        *picture_lines(
            *(
                pictures,
                "randomised",
                "Regret that randomising adds, against the half width of a later evaluation",
            ),
            "The horizontal axis is the regret that randomising adds, and the vertical axis is the half"
            " width of later intervals; lower left is better.",
        ),
        *_goal_lines(outcome),
        *_table_lines(results),
        *_advice_lines(results),
    ]
    return "\n".join(lines)


def _goal_lines(outcome: StudyOutcome) -> list[str]:
    lines = [
        "## What must be true",
        "",
        "The measured number is the share of nominal 95 % intervals that contain the true value of the"
        f" challenger, a policy evaluated from the log (goal: {COVERED}):",
        "",
    ]
    rows = (
        (goal.statement, verdict.numbers, verdict.mark)
        for goal, verdict in verdicts(outcome)
    )
    return [*lines, *table(("", "measured (95 % interval)", ""), rows)]


def _table_lines(results: Mapping[Randomisation, RandomisedLogs]) -> list[str]:
    lines = [
        "## Price and worth",
        "",
        "| column | content |",
        "|---|---|",
        "| regret, added | regret per round, and the part of it that randomising adds |",
        "| DR ±, SNIPS ± | median half width of 95 % intervals of the challenger's value (doubly robust,"
        " self-normalised) |",
        "| difference, DR ± | the same for its difference to the log |",
        "| refused | share of refused logs, from which DR concludes nothing |",
        f"| rounds | number of rounds after which the half width of the difference would be {GAIN:g} |",
        "",
        "| | regret | added | DR ± | SNIPS ± | difference, DR ± | refused | coverage DR, SNIPS | rounds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    return [*lines, *(_row(results, setting) for setting in results), ""]


def _row(
    results: Mapping[Randomisation, RandomisedLogs], setting: Randomisation
) -> str:
    measured = results[setting]
    added = "" if setting == ALONE else price(results, setting).with_error(4, "+")
    widths = [
        half_width(measured, line)
        for line in ("DR, value", "SNIPS, value", "DR, difference")
    ]
    covered = [coverage(measured, line) for line in JUDGED]
    shares = ", ".join(
        "–" if share is None else f"{share.value:.3f}" for share in covered
    )
    refused = 1.0 - float(measured.concludes[:, 0].mean())
    cells = [
        mean_of(measured.regret).with_error(4),
        added,
        *("none" if np.isinf(wide) else f"{wide:.3f}" for wide in widths),
        f"{refused:.0%}",
        shares,
        "–"
        if np.isinf(widths[2])
        else f"{round(ROUNDS * (widths[2] / GAIN) ** 2, -2):,.0f}",
    ]
    return table_row(setting.name, *cells)


def _advice_lines(results: Mapping[Randomisation, RandomisedLogs]) -> Sequence[str]:
    thin = [
        logs
        for logs in results.values()
        if 1.0 - float(logs.concludes[:, 0].mean()) > THIN
    ]
    shares = [coverage(logs, line) for logs in thin for line in JUDGED]
    lowest = [share.value for share in shares if share is not None]
    warning = (
        f" If an evaluation refuses more than {THIN:.0%} of the logs, the other logs are a lucky"
        " selection: their intervals contain the true value less often than promised (down to"
        f" {min(lowest):.3f} here). If many logs are refused, use a larger floor or more rounds."
        if lowest
        else ""
    )
    return [
        "## How to choose",
        "",
        "A log has information about an action only if the logging policy tried the action. If a"
        " challenger (a policy to be evaluated) prefers other actions, its value is estimated from the"
        " few rounds in which these actions were drawn at random. With a uniform floor (a share of random"
        " decisions) each randomly drawn round has weight K/floor, for K actions. Four times the floor"
        " halves the later intervals and costs four times as much reward. Inverse-gap weighting mostly"
        " draws actions that are nearly as good as the best action, so that it costs less than a uniform"
        " floor. With floor 0 (no random decisions) the value of a challenger cannot be known, however"
        f" long the log is.{warning}",
        "",
    ]


LINE_STYLES = {
    "uniform": ("stable", "o", "-", "uniform floor"),
    "inverse-gap": ("varies", "s", "--", "inverse gap, sharpness"),
}


def draw(outcome: StudyOutcome, theme_name: str) -> Figure:
    """The price of every setting against what its log is worth."""
    return price_chart(priced(outcome.values), theme_name=theme_name)


def price_chart(
    rows: Mapping[str, Sequence[tuple[str, float, float]]], *, theme_name: str = "light"
) -> Figure:
    """Price against half width on logarithmic axes, a line per kind: (label, price, half width), both
    positive.
    """
    if not any(rows.values()):
        raise InputError("rows is empty: there is nothing to draw")
    with theme(theme_name) as colours:
        figure = plt.figure(figsize=(7.4, 4.4), layout="constrained")
        axis = figure.subplots()
        for kind, points in rows.items():
            colour, marker, style, words = LINE_STYLES[kind]
            ordered = sorted(points, key=lambda point: point[1])
            prices = [point[1] for point in ordered]
            widths = [point[2] for point in ordered]
            axis.plot(
                prices,
                widths,
                marker=marker,
                ls=style,
                lw=1.4,
                color=colours[colour],
                label=words,
            )
            for label, price, wide in ordered:
                axis.annotate(
                    label,
                    (price, wide),
                    xytext=(5, 5),
                    textcoords="offset points",
                    fontsize=8.0,
                )
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.xaxis.set_major_formatter("{x:g}")
        axis.yaxis.set_major_formatter("{x:g}")
        axis.yaxis.set_minor_formatter("{x:g}")
        axis.set_xlabel("regret per round that randomising adds")
        axis.set_ylabel("half width of a later evaluation")
        axis.grid(color=colours["faint"], lw=0.5, alpha=0.6)
        axis.legend(frameon=False)
    return figure
