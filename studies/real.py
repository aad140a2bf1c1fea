"""Real data played as a practitioner would: logs of one action per round, then a policy that decides and learns.

Everything that can be tuned is tuned on the first half: fitted on its first half, played on its second. Then the second
half of the data is played once, and from many dates in it policies are started afresh, from all logs before the date.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from invariant_bandits.checks import Array, InputError, whole_number
from invariant_bandits.evaluation.rolling import play_from, rolling_origins
from invariant_bandits.parallel import map_unordered
from invariant_bandits.policies.registry import Maker
from studies.real_policies import Tunable, past_of, tunable
from studies.real_rounds import RealData

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
    data: RealData,
    *,
    replications: int = REPLICATIONS,
    dates: int = DATES,
    horizons: Sequence[int] | None = None,
    seed: int = SEED,
    jobs: int = 2,
    choices: Tunable | None = None,
    progress: Progress | None = None,
) -> Outcome:
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
        raise InputError(f"horizons must be at most {rounds - middle}, the rounds of the second half: {longest}")
    offered = tunable() if choices is None else choices
    total = replications * (sum(len(settings) > 1 for settings in offered.values()) + 1 + dates)
    before = 0

    def note(words: str, done: int) -> None:
        if progress is not None:
            progress(f"{data.name}: {words}", before + done, total)

    first_half = data.until(middle).scaled(middle)
    tuned = tune(first_half, offered, replications, seed, jobs, lambda done: note("tuning", done))
    before += replications * len(tuned)
    players = {
        name: settings[tuned[name].settings] if name in tuned else next(iter(settings.values()))
        for name, settings in offered.items()
    }
    whole = data.scaled(middle)
    half = _second_half(whole, players, middle, replications, seed, jobs, lambda done: note("second half", done))
    before += replications
    origins = np.linspace(middle, rounds - longest, dates).round().astype(int)
    rolling = _from_dates(
        whole, players, origins, horizons, replications, seed, jobs, lambda done: note("from many dates", done)
    )
    return Outcome(
        name=data.name,
        unit=data.unit,
        rounds=rounds,
        actions=float(np.median(data.rounds.counts)),
        feature_names=data.feature_names,
        period=tuple(str(_times(data)[at]) for at in (0, middle, -1)),  # type: ignore[arg-type]
        tuned=tuned,
        half=half,
        rolling=rolling,
        dates=_times(data)[origins],
        horizons=tuple(horizons),
        replications=replications,
        seed=seed,
    )


def _times(data: RealData) -> Array:
    return np.asarray(data.rounds.times)


def _second_half(
    data: RealData,
    players: Mapping[str, Maker],
    middle: int,
    replications: int,
    seed: int,
    jobs: int,
    progress: Callable[[int], None],
) -> dict[str, Array]:
    """Gain (replications, rounds of the second half) of every player that starts from the logs of the first."""

    def work(r: int) -> dict[str, Array]:
        return play_all(data, players, r, middle, data.rounds.rounds, middle, seed)

    played: dict[int, dict[str, Array]] = {}
    for r, gains in map_unordered(work, range(replications), jobs):
        played[r] = gains
        progress(len(played))
    return {name: np.stack([played[r][name] for r in range(replications)]) for name in players}


def _from_dates(
    data: RealData,
    players: Mapping[str, Maker],
    origins: Array,
    horizons: Sequence[int],
    replications: int,
    seed: int,
    jobs: int,
    progress: Callable[[int], None],
) -> dict[str, Array]:
    """Mean gain (replications, dates, horizons) of every player, started afresh at each origin from all logs before."""
    gains, found, middle = data.gains(), dict[str, list[Array]](), data.rounds.rounds // 2
    for r in range(replications):
        played = rolling_origins(
            data.logged(np.random.default_rng((seed, r)), middle),
            players,
            origins=origins.tolist(),
            horizons=horizons,
            past_of=past_of,
            jobs=jobs,
            progress=partial(_after, progress, r * len(origins)),
        )
        for name, rows in played.chosen_rows.items():
            means = [[gains[row[:horizon]].mean() for horizon in horizons] for row in rows]
            found.setdefault(name, []).append(np.array(means))
    return {name: np.stack(means) for name, means in found.items()}


def _after(progress: Callable[[int], None], before: int, done: int, _: int) -> None:
    progress(before + done)


def tune(
    data: RealData,
    offered: Tunable,
    replications: int,
    seed: int,
    jobs: int = 1,
    progress: Callable[[int], None] | None = None,
) -> dict[str, Choice]:
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

    found: dict[tuple[str, int], dict[str, float]] = {}
    for index, gains in map_unordered(work, tasks, jobs):
        found[tasks[index]] = gains
        if progress is not None:
            progress(len(found))
    choices = {}
    for name, settings in groups.items():
        gains_of = {words: np.array([found[name, r][words] for r in range(replications)]) for words in settings}
        choices[name] = Choice(max(gains_of, key=lambda words: gains_of[words].mean()), gains_of)
    return choices


def play_all(
    data: RealData, players: Mapping[str, Maker], replication: int, start: int, stop: int, known: int, seed: int
) -> dict[str, Array]:
    """Gain (stop − start,) of every player that starts from all logs before `start`; all see the same logs and rounds.

    Rewards are shifted and scaled by the logged ones among the first `known` rounds.
    """
    logged = data.logged(np.random.default_rng((seed, replication)), known)
    gains = data.gains()
    chosen = play_from(logged, players, start, stop, past_of=past_of)
    return {name: gains[rows] for name, rows in chosen.items()}
