"""Real data played as a practitioner would: logs of one action per round, then a policy that decides and learns.

Everything that can be tuned is tuned on the first half: fitted on its first half, played on its second. Then the second
half of the data is played once, and from many dates in it policies are started afresh, from all logs before the date.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from invariant_bandits.checks import Array, InputError, whole_number
from invariant_bandits.experiments.studies.real_data import Rounds, uniform_log
from invariant_bandits.experiments.studies.real_policies import Contender, Families, History, families
from invariant_bandits.parallel import finished

HORIZONS = (100, 500, 2000)
DATES = 24
REPLICATIONS = 4
SEED = 20261116
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, eq=False)
class Choice:
    """How a policy was tuned: gains[settings] (replications,) are mean gains per round in the tuning rounds."""

    settings: str
    gains: Mapping[str, Array]


@dataclass(frozen=True, eq=False)
class Outcome:
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
    tuned: Mapping[str, Choice]
    half: Mapping[str, Array]
    rolling: Mapping[str, Array]
    dates: Array
    horizons: tuple[int, ...]
    replications: int
    seed: int


def run(
    rounds: Rounds,
    *,
    replications: int = REPLICATIONS,
    dates: int = DATES,
    horizons: Sequence[int] = HORIZONS,
    seed: int = SEED,
    jobs: int = 2,
    choices: Families | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Tune, play the second half once, and play from many dates; `replications` draw the logged actions anew.

    The same for any number of `jobs`. choices: other policies and settings than `families()`.
    """
    whole_number("replications", replications, 1)
    whole_number("dates", dates, 2)
    longest = max(whole_number("horizons", horizon, 1) for horizon in horizons)
    middle = len(rounds) // 2
    if middle + longest > len(rounds):
        raise InputError(f"horizons must be at most {len(rounds) - middle}, the rounds of the second half: {longest}")
    offered = families() if choices is None else choices
    origins = np.linspace(middle, len(rounds) - longest, dates).round().astype(int)
    total = replications * (sum(len(members) > 1 for members in offered.values()) + 1 + dates)
    before = 0

    def note(words: str, done: int) -> None:
        if progress is not None:
            progress(f"{rounds.name}: {words}", before + done, total)

    first_half = until(rounds, middle).scaled(middle)
    tuned = tune(first_half, offered, replications, seed, jobs, lambda done: note("tuning", done))
    before += replications * len(tuned)
    players = {
        name: next(one for one in members if name not in tuned or one.settings == tuned[name].settings)
        for name, members in offered.items()
    }
    whole = rounds.scaled(middle)
    starts = [(r, middle, len(rounds)) for r in range(replications)]
    starts += [(r, int(origin), int(origin) + longest) for r in range(replications) for origin in origins]

    def work(start: tuple[int, int, int]) -> dict[str, Array]:
        return play_all(whole, players, *start, middle, seed)

    played: dict[int, dict[str, Array]] = {}
    for index, gains in finished(work, starts, jobs):
        played[index] = gains
        note("second half", len(played))
    later = [played[index] for index in range(replications, len(starts))]
    return Outcome(
        name=rounds.name,
        unit=rounds.unit,
        rounds=len(rounds),
        actions=float(np.median(rounds.sizes)),
        feature_names=rounds.feature_names,
        period=tuple(str(rounds.times[at]) for at in (0, middle, -1)),  # type: ignore[arg-type]
        tuned=tuned,
        half={name: np.stack([played[r][name] for r in range(replications)]) for name in players},
        rolling={
            name: np.array([[one[name][:horizon].mean() for horizon in horizons] for one in later]).reshape(
                replications, dates, len(horizons)
            )
            for name in players
        },
        dates=rounds.times[origins],
        horizons=tuple(horizons),
        replications=replications,
        seed=seed,
    )


def until(rounds: Rounds, stop: int) -> Rounds:
    """The first `stop` rounds and nothing of the others."""
    rows = rounds.starts[stop]
    return replace(
        rounds,
        features=rounds.features[:rows],
        rewards=rounds.rewards[:rows],
        starts=rounds.starts[: stop + 1],
        times=rounds.times[:stop],
    )


def tune(
    rounds: Rounds,
    offered: Families,
    replications: int,
    seed: int,
    jobs: int = 1,
    progress: Callable[[int], None] | None = None,
) -> dict[str, Choice]:
    """The settings of highest mean gain for every policy that has a choice.

    Fitted on the first half of `rounds` and played once on the second.
    """
    groups = {name: members for name, members in offered.items() if len(members) > 1}
    middle = len(rounds) // 2
    tasks = [(name, r) for name in groups for r in range(replications)]

    def work(task: tuple[str, int]) -> dict[str, float]:
        name, r = task
        members = {one.settings: one for one in groups[name]}
        gains = play_all(rounds, members, r, middle, len(rounds), len(rounds), seed)
        return {settings: float(gain.mean()) for settings, gain in gains.items()}

    found: dict[tuple[str, int], dict[str, float]] = {}
    for index, gains in finished(work, tasks, jobs):
        found[tasks[index]] = gains
        if progress is not None:
            progress(len(found))
    choices = {}
    for name, members in groups.items():
        gains = {one.settings: np.array([found[name, r][one.settings] for r in range(replications)]) for one in members}
        choices[name] = Choice(max(gains, key=lambda settings: gains[settings].mean()), gains)
    return choices


def play_all(
    rounds: Rounds, players: Mapping[str, Contender], replication: int, start: int, stop: int, known: int, seed: int
) -> dict[str, Array]:
    """Gain (stop − start,) of every player that starts from all logs before `start`; all see the same logs and rounds.

    Rewards are shifted and scaled by mean and standard deviation of the logged ones among the first `known` rounds.
    """
    rows = uniform_log(rounds, np.random.default_rng((seed, replication)))
    typical = rounds.rewards[rows[:known]]
    rewards = (rounds.rewards - typical.mean()) / typical.std()
    history = History(until(rounds, start), rows[:start], rewards[rows[:start]])
    gains = rounds.gains()
    return {name: gains[play(one, history, rounds, rewards, start, stop)] for name, one in players.items()}


def play(player: Contender, history: History, rounds: Rounds, rewards: Array, start: int, stop: int) -> Array:
    """The rows that a player chooses in the rounds from `start` to `stop`, learning the rewards of these alone."""
    policy = player.make(history)
    chosen = np.empty(stop - start, dtype=np.int64)
    for place, index in enumerate(range(start, stop)):
        first, last = rounds.starts[index], rounds.starts[index + 1]
        offered = rounds.features[first:last].copy()
        action = policy.select(offered)
        chosen[place] = first + action
        if player.learns:
            policy.update(offered[action], rewards[first + action], offered=offered, action=action)
    return chosen
