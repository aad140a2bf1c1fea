"""Real data played as a practitioner would: logs of one action per round, then a policy that decides and
learns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from invariant_bandits.checks import Array, InputError, whole_number
from invariant_bandits.plotting import literal, one_line_each, theme
from invariant_bandits_reproduction.claims import (
    Claim,
    Judged,
    Measurement,
    Verdict,
    count_reached,
    decide,
    judge_all,
    mean_of,
)
from invariant_bandits_reproduction.studies import real_data
from invariant_bandits_reproduction.studies.harness import (
    Progress,
    StudyOutcome,
    gather,
    picture_lines,
    table,
)
from invariant_bandits_reproduction.studies.real_policies import (
    AUTO_CAUTIONS,
    AUTO_DEFAULT,
    AUTO_TUNED,
    AUTO_WINDOWS,
    COLD,
    COLD_TUNED,
    DEFAULT_WINDOWS,
    DISCOUNT,
    FROZEN,
    SLIDING,
    UNIFORM,
    WARM,
    Tunable,
    auto_words,
    past_of,
    tunable,
)
from invariant_bandits_reproduction.studies.real_rounds import RealData
from invariant_bandits_reproduction.studies.rolling import play_from, rolling_origins

DATES = 24
REPLICATIONS = 4
SEED = 20270113
"""Of the page: starting dates, draws of the logged actions, and their seed."""


@dataclass(frozen=True, eq=False)
class TunedChoice:
    """How a policy was tuned: gains[settings] (replications,) are mean gains per tuning round."""

    settings: str
    gains: Mapping[str, Array]


@dataclass(frozen=True, eq=False)
class RealOutcome:
    """Everything measured on one data set; gains are rewards above the mean action of the round, in `unit`.

    tuned: policy -> how it was tuned; half: policy -> gain (replications, rounds of the second half);
    rolling: policy -> mean gain (replications, dates, horizons); dates (dates,): when the starts were.
    """

    name: str
    unit: str
    rounds: int
    actions: float
    feature_names: tuple[str, ...]
    period: tuple[str, str, str]
    tuned: Mapping[str, TunedChoice]
    half: Mapping[str, Array]
    rolling: Mapping[str, Array]
    dates: Array
    horizons: tuple[int, ...]
    replications: int
    seed: int


def play_data(
    data: RealData,
    *,
    replications: int = REPLICATIONS,
    dates: int = DATES,
    horizons: Sequence[int] | None = None,
    seed: int = SEED,
    jobs: int = 2,
    choices: Tunable | None = None,
    progress: Progress | None = None,
) -> RealOutcome:
    """Tune, play the second half once, and play from many dates; `replications` draw the logged actions anew.

    The same for any number of `jobs`. horizons: by default those of the data; choices: other policies
    and settings than `tunable()`.
    """
    whole_number("replications", replications, 1)
    whole_number("dates", dates, 3)
    horizons = data.horizons if horizons is None else horizons
    longest = max(whole_number("horizons", horizon, 1) for horizon in horizons)
    rounds = data.rounds.rounds
    middle = rounds // 2
    if middle + longest > rounds:
        raise InputError(
            f"horizons must be at most {rounds - middle}, the rounds of the second half: {longest}"
        )
    offered = tunable() if choices is None else choices
    first_half = data.until(middle).scaled(middle)
    tuned = tune(first_half, offered, replications, seed, jobs, progress)
    players = {
        name: settings[tuned[name].settings]
        if name in tuned
        else next(iter(settings.values()))
        for name, settings in offered.items()
    }
    whole = data.scaled(middle)
    half = second_half(whole, players, middle, replications, seed, jobs, progress)
    origins = np.linspace(middle, rounds - longest, dates).round().astype(int)
    logs = [
        whole.logged(np.random.default_rng((seed, r)), middle)
        for r in range(replications)
    ]
    played = [
        rolling_origins(
            log,
            players,
            origins=origins.tolist(),
            horizon=longest,
            past_of=past_of,
            jobs=jobs,
            progress=progress,
        )
        for log in logs
    ]
    return RealOutcome(
        name=data.name,
        unit=data.unit,
        rounds=rounds,
        actions=float(np.median(data.rounds.counts)),
        feature_names=data.feature_names,
        period=tuple(str(_times(data)[at]) for at in (0, middle, -1)),  # type: ignore[arg-type]
        tuned=tuned,
        half=half,
        rolling={
            name: np.stack(
                [mean_gains(whole, chosen[name], horizons) for chosen in played]
            )
            for name in players
        },
        dates=_times(data)[origins],
        horizons=tuple(horizons),
        replications=replications,
        seed=seed,
    )


def run(
    names: Sequence[str] = (),
    *,
    replications: int = REPLICATIONS,
    dates: int = DATES,
    seed: int = SEED,
    jobs: int = 2,
    progress: Progress | None = None,
) -> StudyOutcome:
    """Play the data sets of these names, all by default: name -> RealOutcome."""
    options: dict[str, Any] = {
        "replications": replications,
        "dates": dates,
        "seed": seed,
        "jobs": jobs,
        "progress": progress,
    }
    chosen = real_data.chosen(names or real_data.PLAYED)
    values = {name: play_data(real_data.DATA[name](), **options) for name in chosen}
    return StudyOutcome(values, replications, seed)


def _times(data: RealData) -> Array:
    return np.asarray(data.rounds.times)


def second_half(
    data: RealData,
    players: Mapping[str, Any],
    middle: int,
    replications: int,
    seed: int,
    jobs: int,
    progress: Progress | None,
) -> dict[str, Array]:
    """Gain (replications, rounds of the second half) of every player, from the logs of the first."""

    def work(r: int) -> dict[str, Array]:
        return play_all(data, players, r, middle, data.rounds.rounds, middle, seed)

    words = f"second half: {data.name}"
    played = gather(work, range(replications), jobs, progress, words)
    return {name: np.stack([gains[name] for gains in played]) for name in players}


def mean_gains(data: RealData, rows: Array, horizons: Sequence[int]) -> Array:
    """Mean gain (dates, horizons) of the first rounds, from the rows (dates, rounds) that were chosen."""
    gains = data.gains()[rows]
    return np.stack([gains[:, :horizon].mean(axis=1) for horizon in horizons], axis=1)


def tune(
    data: RealData,
    offered: Tunable,
    replications: int,
    seed: int,
    jobs: int = 1,
    progress: Progress | None = None,
) -> dict[str, TunedChoice]:
    """The settings of highest mean gain for every policy that has a choice.

    Fitted on the first half of the rounds and played once on the second.
    """
    groups = {name: settings for name, settings in offered.items() if len(settings) > 1}
    rounds = data.rounds.rounds
    tasks = [(name, r) for name in groups for r in range(replications)]

    def work(task: tuple[str, int]) -> dict[str, float]:
        name, r = task
        gains = play_all(data, groups[name], r, rounds // 2, rounds, rounds, seed)
        return {settings: float(gain.mean()) for settings, gain in gains.items()}

    words = f"tuning: {data.name}"
    played = dict(zip(tasks, gather(work, tasks, jobs, progress, words), strict=True))
    choices = {}
    for name, settings in groups.items():
        gains_of = {
            words: np.array([played[name, r][words] for r in range(replications)])
            for words in settings
        }
        choices[name] = TunedChoice(
            max(gains_of, key=lambda words: gains_of[words].mean()), gains_of
        )
    return choices


def play_all(
    data: RealData,
    players: Mapping[str, Any],
    replication: int,
    start: int,
    stop: int,
    known: int,
    seed: int,
) -> dict[str, Array]:
    """Gain (stop − start,) of every player that starts from all logs before `start`; all see the same logs
    and rounds.

    Rewards are shifted and scaled by the logged ones among the first `known` rounds.
    """
    logged = data.logged(np.random.default_rng((seed, replication)), known)
    gains = data.gains()
    chosen = play_from(logged, players, start, stop, past_of=past_of)
    return {name: gains[rows] for name, rows in chosen.items()}


BLOCKS = 26
"""Blocks of time over which the error of a mean is taken: neighbouring rounds depend on each other."""
RIVALS = (FROZEN, COLD, COLD_TUNED, WARM, SLIDING)
OURS = (AUTO_DEFAULT, AUTO_TUNED)
CLEAR_AFTER = (100, 500)
"""Rounds after which a lead must be clear."""
JUDGED = "flights"
SEVERAL_SETS = 3
"""Data sets from which on the page judges them together."""
SIMPLE = (FROZEN, COLD_TUNED, WARM, SLIDING, DISCOUNT)
ALLOWED = 3.0
"""Percent of the gain by which AutoISD may be below the best simple policy of a set."""
EVERY_SET = "all sets"


def samples(outcome: RealOutcome) -> dict[str, dict[str, Array]]:
    """Stretch of play -> policy -> mean gains over which standard errors are taken, averaged over
    replications.

    From many dates: one number per date (dates,). Second half: one per block of neighbouring rounds (26,),
    about a week of flights each, so that what neighbours have in common is not counted as independent.
    """
    by_stretch = {
        f"next {horizon}": {
            name: gains[:, :, index].mean(axis=0)
            for name, gains in outcome.rolling.items()
        }
        for index, horizon in enumerate(outcome.horizons)
    }
    by_stretch["second half"] = {
        name: blocks_of(gains) for name, gains in outcome.half.items()
    }
    return by_stretch


def blocks_of(gains: Array) -> Array:
    """Mean gain (26,) of blocks of neighbouring rounds, from gains (replications, rounds)."""
    return np.array(
        [block.mean() for block in np.array_split(gains.mean(axis=0), BLOCKS)]
    )


def differences(outcome: RealOutcome, policy: str) -> dict[str, dict[str, Measurement]]:
    """Stretch -> rival -> policy − rival, paired."""
    return {
        stretch: {
            rival: mean_of(by_policy[policy] - by_policy[rival])
            for rival in by_policy
            if rival != policy
        }
        for stretch, by_policy in samples(outcome).items()
    }


def set_verdicts(outcome: RealOutcome, policy: str) -> Judged:
    """Never two standard errors below the best rival; early, better than cold LinUCB by more than two."""
    by_stretch = samples(outcome)
    goals = []
    for stretch in by_stretch:
        best = max(RIVALS, key=lambda rival: by_stretch[stretch][rival].mean())
        goals.append(
            _goal(policy, "not worse than the best rival", stretch, best, -2.0)
        )
    for horizon in CLEAR_AFTER:
        stretch = f"next {horizon}"
        if stretch in by_stretch:
            goals += [
                _goal(policy, f"better than {rival}", stretch, rival, 2.0)
                for rival in (COLD, COLD_TUNED)
            ]
    return judge_all(goals, differences(outcome, policy))


def _goal(policy: str, words: str, stretch: str, rival: str, errors: float) -> Claim:
    """ours − rival must lie above so many standard errors; decided by its paired mean."""

    def judge(against: Mapping[str, Mapping[str, Measurement]]) -> Verdict:
        apart = against[stretch][rival]
        reached = apart.value > errors * apart.error or (
            errors < 0.0 and apart.value == errors * apart.error
        )
        return decide(reached, apart, numbers=rival)

    return Claim(f"{policy}: {words}", stretch, judge, policy=policy)


def verdicts_everywhere(outcomes: Mapping[str, RealOutcome], policy: str) -> Judged:
    """On every set at most 3 % of the gain below the best simple policy at every horizon, and above it on
    average.
    """
    shares_of = {key: shares(outcome, policy) for key, outcome in outcomes.items()}
    goals = [
        _share_goal(policy, key, f"{outcomes[key].name}, {stretch}", stretch)
        for key, by_horizon in shares_of.items()
        for stretch in by_horizon
    ]
    goals.append(_average_goal(policy))
    return judge_all(goals, shares_of)


def shares(outcome: RealOutcome, policy: str) -> dict[str, tuple[str, Measurement]]:
    """Horizon -> (best simple policy, policy − it in percent of its gain); the best is chosen after play."""
    by_horizon = {}
    for horizon in outcome.horizons:
        stretch = f"next {horizon}"
        by_policy = samples(outcome)[stretch]
        best = max(
            (name for name in SIMPLE if name in by_policy),
            key=lambda name: by_policy[name].mean(),
        )
        gain = abs(float(by_policy[best].mean()))
        by_horizon[stretch] = (
            best,
            mean_of(100.0 * (by_policy[policy] - by_policy[best]) / gain),
        )
    return by_horizon


Shares = Mapping[str, Mapping[str, tuple[str, Measurement]]]
"""Data set -> horizon -> (best simple policy, how far from it in percent of its gain)."""


def _share_goal(policy: str, key: str, where: str, stretch: str) -> Claim:
    def judge(shares_of: Shares) -> Verdict:
        best, apart = shares_of[key][stretch]
        margin = Measurement(-ALLOWED - apart.value, error=apart.error)
        return decide(apart.value >= -ALLOWED, apart, numbers=best, margin=margin)

    return Claim(
        f"{policy}: at most {ALLOWED:g} % below the best simple policy",
        where,
        judge,
        policy=policy,
    )


def _average_goal(policy: str) -> Claim:
    def judge(shares_of: Shares) -> Verdict:
        sets = np.array(
            [
                np.mean([apart.value for _, apart in by_horizon.values()])
                for by_horizon in shares_of.values()
            ]
        )
        apart = mean_of(sets)
        margin = Measurement(-apart.value, error=apart.error)
        return decide(
            apart.value > 0.0, apart, numbers="the best of each", margin=margin
        )

    return Claim(
        f"{policy}: above the best simple policy on average",
        EVERY_SET,
        judge,
        policy=policy,
    )


def all_verdicts(outcomes: Mapping[str, RealOutcome], policy: str) -> Judged:
    """Those of the judged set, and those of every set where several fields were played."""
    judged = set_verdicts(outcomes[JUDGED], policy) if JUDGED in outcomes else []
    return judged + (
        verdicts_everywhere(outcomes, policy) if len(outcomes) >= SEVERAL_SETS else []
    )


def verdicts(outcome: StudyOutcome) -> Judged:
    """All goals of both versions of AutoISD, with their verdicts."""
    return [
        judged for policy in OURS for judged in all_verdicts(outcome.values, policy)
    ]


def losses(outcome: RealOutcome, policy: str) -> list[tuple[str, str, Measurement]]:
    """(stretch, rival, difference) wherever a rival that is not AutoISD has the higher mean."""
    return [
        (stretch, rival, apart)
        for stretch, by_rival in differences(outcome, policy).items()
        for rival, apart in by_rival.items()
        if rival not in OURS and apart.value < 0.0
    ]


def means(outcome: RealOutcome) -> Mapping[str, Mapping[str, Measurement]]:
    """Policy -> stretch -> mean gain with its standard error."""
    by_stretch = samples(outcome)
    return {
        name: {stretch: mean_of(values[name]) for stretch, values in by_stretch.items()}
        for name in outcome.half
    }


def charted(outcome: RealOutcome) -> dict[str, dict[str, Measurement]]:
    """For the picture: stretch -> policy -> mean gain, its error that of the difference to AUTO_TUNED."""
    apart = differences(outcome, AUTO_TUNED)
    gains = means(outcome)
    return {
        stretch: {
            name: replace(
                gains[name][stretch],
                error=0.0 if name == AUTO_TUNED else apart[stretch][name].error,
            )
            for name in gains
            if name != UNIFORM
        }
        for stretch in apart
    }


DIGITS = {"minutes": 2, "stars": 3, "percent": 2, "goals": 3, "doublings": 3}
"""Unit of the reward -> decimals that a page shows."""


def report(outcome: StudyOutcome, *, pictures: str | None = None) -> str:
    """The page; `pictures`: where it finds real-light.png and real-dark.png."""
    outcomes: Mapping[str, RealOutcome] = outcome.values
    picture = picture_lines(
        *(pictures, "real", "Gain of every policy early and late, on every data set"),
        "Dots are mean gains, and bars are two standard errors of the paired difference to tuned AutoISD"
        " (blue, dashed line); to the right is better.",
    )
    lines = ["# Real data", "", *_played(outcomes), *picture, *_short_lines(outcomes)]
    if len(outcomes) >= SEVERAL_SETS:
        lines += _everywhere_lines(outcomes)
    if JUDGED in outcomes:
        lines += _goal_lines(outcomes[JUDGED])
    for key, of_set in outcomes.items():
        lines += _data_lines(key, of_set)
    return "\n".join(lines)


def _played(outcomes: Mapping[str, RealOutcome]) -> list[str]:
    some = next(iter(outcomes.values()))
    return [
        "In the data sets of this page the reward of every offered action is known, so the study can play"
        " any policy on them.",
        "",
        "| word | meaning |",
        "|---|---|",
        "| logs | what a practitioner has: the features of all offered actions, one action chosen"
        " uniformly at random, and its reward |",
        "| online | a policy sees the offered features and then the reward of its own choice |",
        "| gain | the reward of the chosen action minus the mean reward of the round's actions |",
        "| frozen | a ridge regression on all logs that never learns again |",
        "| cold LinUCB | LinUCB without logs |",
        "| sliding window, discount | start from the latest logs, as many as they remember |",
        "",
        "| | how it was measured |",
        "|---|---|",
        "| features | centred within each round; features and rewards are scaled by the first half of the"
        " data; features that do not vary within every sixteenth of the first quarter were merged or left"
        " out |",
        "| tuning | **only on the first half of the data**: policies learned from its first part and were"
        " compared on its second part |",
        "| second half | played once, starting from the logs of the first half |",
        f"| dates | policies were also started from all earlier logs at {len(some.dates)} dates of the"
        " second half, for the numbers of rounds in the tables |",
        f"| repetitions | {some.replications}, with newly drawn logged actions, seed {some.seed} |",
        f"| standard errors | over dates, and for the second half over {BLOCKS} blocks of neighbouring"
        " rounds; differences between policies are paired |",
        "| overlap | where a run from one date is longer than the time to the next date, runs overlap and"
        " the error is too small, so that a verdict *better* needs a clear margin |",
        "| seen before the study | the gains of three simple choices on the second halves of flights and"
        " films, once, while the data were prepared (features were not changed afterwards); of the other"
        " sets, tables of names, counts and ranges |",
        "| earlier versions of AutoISD | had been played on these second halves three times |",
        "| this version of AutoISD | chosen on the first halves and in simulations, among about twenty"
        " configurations; this page is its single run |",
        "| change after this run | AutoISD's trust uses the signal among all offered actions, not only"
        " among the logged actions; for logs with uniformly random choices, as here, the two differ only"
        " by sampling error |",
        "| drift in AutoISD's trust | chosen on the first halves and in simulations; then it and seven"
        " other forms were played on some of these second halves, and forms that raise the trust further"
        " were dropped because of them |",
        "",
    ]


def _short_lines(outcomes: Mapping[str, RealOutcome]) -> list[str]:
    """The best policy of every stretch, and how far each AutoISD is from it."""
    lines = [
        "## In short",
        "",
        "The table has the highest mean gain among the policies other than AutoISD, and the paired"
        " difference of AutoISD to that policy.",
        "",
    ]
    rows = []
    for outcome in outcomes.values():
        apart = {policy: differences(outcome, policy) for policy in OURS}
        gains = means(outcome)
        for stretch in apart[OURS[0]]:
            best = max(
                (name for name in gains if name not in OURS),
                key=lambda name: gains[name][stretch].value,
            )
            cells = [best, _plain(gains[best][stretch], outcome.unit)]
            cells += [
                _signed(apart[policy][stretch][best], outcome.unit) for policy in OURS
            ]
            rows.append((f"{outcome.name}, {stretch}", *cells))
    return [*lines, *table(("data, stretch", "best other", "its gain", *OURS), rows)]


def _everywhere_lines(outcomes: Mapping[str, RealOutcome]) -> list[str]:
    lines = [
        "## What must be true, on every set",
        "",
        "| word | meaning |",
        "|---|---|",
        f"| simple policies, each tuned | {'; '.join(SIMPLE)} |",
        "| best simple policy | chosen after play, which favours it |",
        f"| goal at every horizon | the gain of AutoISD is at most {ALLOWED:g} % below that of the best"
        " simple policy |",
        "| goal on average over the data sets | the gain of AutoISD is above that of the best simple"
        " policy |",
        "| close | the bound is within two standard errors |",
        "",
    ]
    judged = {policy: verdicts_everywhere(outcomes, policy) for policy in OURS}
    for policy, pairs in judged.items():
        lines += [
            f"{policy}: {count_reached(pairs)} of {len(pairs)} goals reached, over"
            " all data sets.",
            "",
        ]
    rows = []
    for pairs in judged.values():
        for goal, verdict in pairs:
            apart = verdict.measured.with_error(1, sign="+")
            mark = f"{verdict.mark}, close" if verdict.close else verdict.mark
            rows.append((goal.statement, goal.name, verdict.numbers, apart, mark))
    headings = ("goal", "where", "best simple policy", "ours − it, % of its gain", "")
    return [*lines, *table(headings, rows)]


def _goal_lines(outcome: RealOutcome) -> list[str]:
    lines = [
        "## What must be true, on flights",
        "",
        "| word | meaning |",
        "|---|---|",
        f"| rivals | {'; '.join(RIVALS)} |",
        "| not worse | at most two standard errors of the paired difference below the best rival |",
        "| better | more than two standard errors above the best rival |",
        "",
    ]
    for policy in OURS:
        judged = set_verdicts(outcome, policy)
        reached = count_reached(judged)
        lines += [f"{policy}: {reached} of {len(judged)} goals reached.", ""]
    rows = []
    for policy in OURS:
        for goal, verdict in set_verdicts(outcome, policy):
            apart = _signed(verdict.measured, outcome.unit)
            row = (goal.statement, goal.name, verdict.numbers, apart, verdict.mark)
            rows.append(row)
    headings = ("goal", "stretch", "decided by", "ours − rival", "")
    return [*lines, *table(headings, rows)]


def _data_lines(key: str, outcome: RealOutcome) -> list[str]:
    begin, middle, end = outcome.period
    return [
        f"## {outcome.name}",
        "",
        *table(("", "description"), real_data.ABOUT.get(key, {}).items())[:-1],
        f"| size | {outcome.rounds:,} rounds, median {outcome.actions:g} actions,"
        f" {len(outcome.feature_names)} features |",
        f"| period | from {begin} to {end}, the second half from {middle} |",
        f"| starts | {len(outcome.dates)} dates, about {_way(outcome)} rounds apart |",
        "",
        *_gain_lines(outcome),
        *_tuning_lines(outcome),
        *_exploration_lines(outcome),
        *_loss_lines(outcome),
    ]


def _way(outcome: RealOutcome) -> int:
    """Rounds from one starting date to the next."""
    free = outcome.rounds - outcome.rounds // 2 - max(outcome.horizons)
    return round(free / (len(outcome.dates) - 1))


def _gain_lines(outcome: RealOutcome) -> list[str]:
    unit, gains = outcome.unit, means(outcome)
    stretches = list(next(iter(gains.values())))
    rows = []
    best = {
        stretch: max(by_stretch[stretch].value for by_stretch in gains.values())
        for stretch in stretches
    }
    for name, by_stretch in gains.items():
        cells = []
        for stretch in stretches:
            cell = _plain(by_stretch[stretch], unit)
            cells.append(
                f"**{cell}**" if by_stretch[stretch].value == best[stretch] else cell
            )
        rows.append((name, *cells))
    headings = ("policy", *stretches)
    lines = [f"### Gain per round, in {unit}", "", *table(headings, rows)]
    for policy in OURS:
        words = f"Each cell has the gain of “{policy}” minus that of another policy in the same rounds:"
        apart = differences(outcome, policy)
        rivals = [name for name in gains if name not in (policy, UNIFORM)]
        rows = [
            (name, *(_signed(apart[stretch][name], unit) for stretch in stretches))
            for name in rivals
        ]
        lines += [words, "", *table(("other", *stretches), rows)]
    return lines


def _tuning_lines(outcome: RealOutcome) -> list[str]:
    lines = [
        "### What tuning chose, on the first half",
        "",
        "| policy | choice | gain there | settings tried |",
        "|---|---|---|---|",
    ]
    for name, choice in outcome.tuned.items():
        gain = choice.gains[choice.settings].mean()
        shown = f"{gain:.{_digits(outcome.unit)}f}"
        lines.append(f"| {name} | {choice.settings} | {shown} | {len(choice.gains)} |")
    return [*lines, ""]


def _exploration_lines(outcome: RealOutcome) -> list[str]:
    """AutoISD at every caution and number of windows, on the first half."""
    if AUTO_TUNED not in outcome.tuned:
        return []
    gains = outcome.tuned[AUTO_TUNED].gains
    cells = {
        (e, m): gains.get(auto_words(e, m)) for e in AUTO_CAUTIONS for m in AUTO_WINDOWS
    }
    if any(cell is None for cell in cells.values()):
        return []
    lines = [
        "Each cell has the gain of AutoISD on the first half of the data for other values of its options"
        f" `caution` and windows. By default `caution` is 0 and the logs are divided into {DEFAULT_WINDOWS}"
        " windows (periods). The standard errors in the table cover only the random choice of the"
        " logged actions.",
        "",
    ]
    rows = []
    for windows in AUTO_WINDOWS:
        shown = [
            _plain(_over_draws(cells[caution, windows]), outcome.unit)
            for caution in AUTO_CAUTIONS
        ]
        rows.append((windows, *shown))
    headings = ("windows", *(f"caution {caution:g}" for caution in AUTO_CAUTIONS))
    return [*lines, *table(headings, rows)]


def _over_draws(values: np.ndarray | None) -> Measurement:
    assert values is not None
    return mean_of(values)


def _loss_lines(outcome: RealOutcome) -> list[str]:
    lines = [
        "### Where AutoISD does not win",
        "",
        "| policy | below these by 2 standard errors | by less |",
    ]
    lines.append("|---|---|---|")
    for policy in OURS:
        lost = losses(outcome, policy)
        clear = [loss for loss in lost if loss[2].value < -2.0 * loss[2].error]
        unclear = [loss for loss in lost if loss not in clear]
        lines.append(f"| {policy} | {_grouped(clear)} | {_grouped(unclear)} |")
    return [*lines, ""]


def _grouped(lost: Sequence[tuple[str, str, Measurement]]) -> str:
    """For instance "frozen (next 100, next 500)"."""
    stretches: dict[str, list[str]] = {}
    for stretch, rival, _ in lost:
        stretches.setdefault(rival, []).append(stretch)
    return (
        "; ".join(f"{rival} ({', '.join(where)})" for rival, where in stretches.items())
        or "none"
    )


def _digits(unit: str) -> int:
    return DIGITS.get(unit, 2)


def _plain(value: Measurement, unit: str) -> str:
    return value.with_error(_digits(unit))


def _signed(value: Measurement, unit: str) -> str:
    return value.with_error(_digits(unit), sign="+")


def draw(outcome: StudyOutcome, theme_name: str) -> Figure:
    """Gain of every policy, early and late: one row of panels per data set, one panel per stretch of play."""
    charts = {of_set.name: charted(of_set) for of_set in outcome.values.values()}
    columns = max(map(len, charts.values()))
    policies = len(next(iter(next(iter(charts.values())).values())))
    with theme(theme_name) as colours:
        figure = plt.figure(
            figsize=(10.0, len(charts) * (0.9 + 0.22 * policies)), layout="constrained"
        )
        panels = figure.subplots(len(charts), columns, squeeze=False, sharey="row")
        for row, (title, stretches) in zip(panels, charts.items(), strict=True):
            for axis, (stretch, points) in zip(row, stretches.items(), strict=False):
                axis.axvline(
                    points[AUTO_TUNED].value, color=colours["stable"], lw=0.9, ls="--"
                )
                for index, (name, point) in enumerate(points.items()):
                    half = 2.0 * point.error
                    ours = name in OURS
                    colour = colours["stable" if ours else "ink"]
                    ends = (point.value - half, point.value + half)
                    axis.hlines(index, *ends, color=colour, lw=1.4)
                    marker = "s" if ours else "o"
                    axis.plot(point.value, index, marker=marker, ms=4.5, color=colour)
                axis.set_title(literal(f"{title}, {stretch}", 80))
                one_line_each(axis, list(points), colours)
            for axis in row[len(stretches) :]:
                axis.set_visible(False)
    return figure
