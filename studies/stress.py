"""AutoISD where the logs mislead: other noise, rare clicks, no signal, fixed arms; regret, widths, alarm."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, whole_number
from invariant_bandits.experiments.claims import Goal, Verdict, mean_of
from invariant_bandits.simulation.loop import simulate
from invariant_bandits.simulation.results import SimulationResult
from studies.stress_worlds import (
    ALARM_ROUNDS,
    ALARMED,
    AUTO,
    BROKEN,
    HELD,
    PLAYERS,
    WORLDS,
    Watching,
    World,
    alarm_of,
    goals,
)

BEYOND_TWO, BEYOND_THREE, FALSE_ALARMS, LEAST_POWER = 0.08, 0.02, 0.02, 0.95
ALARM_SEEDS = 1000  # where the places of their seeds begin


@dataclass(frozen=True, eq=False)
class Outcome:
    """Everything the study measured.

    regret: world -> policy -> regret at the horizon (n,), repetitions paired within a world; seen: world -> quantity ->
    what was noted of AutoISD (n,); alarms: world -> share of alarms, share of logs that support one.
    """

    regret: Mapping[str, Mapping[str, Array]]
    seen: Mapping[str, Mapping[str, Array]]
    alarms: Mapping[str, tuple[float, float]]
    replications: int
    alarm_replications: int
    seed: int


def run(
    worlds: Sequence[World] = WORLDS,
    *,
    replications: int = 60,
    alarm_replications: int = 300,
    seed: int = 20261121,
    jobs: int = 2,
    progress: Callable[[str, int, int], None] | None = None,
) -> Outcome:
    """All repetitions of all worlds, none discarded; progress: called with the world and the repetitions done."""
    whole_number("replications", replications, 2)
    counts = [max(replications, world.at_least) if replications >= 60 else replications for world in worlds]
    watched = (*HELD, *BROKEN)
    total = sum(counts) + alarm_replications * len(watched)
    regret, seen, alarms, before = {}, {}, {}, 0

    def play(world: World, place: int, count: int, **options: Any) -> SimulationResult:
        nonlocal before

        def note(done: int, _: int) -> None:
            if progress is not None:
                progress(world.name, before + done, total)

        own = int(np.random.SeedSequence((seed, place)).generate_state(1, np.uint64)[0])
        result = simulate(
            environment=world.environment, replications=count, seed=own, jobs=jobs, progress=note, **options
        )
        before += count
        return result

    for place, (world, count) in enumerate(zip(worlds, counts, strict=True)):
        result = play(world, place, count, policies=PLAYERS, horizon=world.horizon, observe=Watching())
        regret[world.name] = {name: result.final(name) for name in PLAYERS}
        seen[world.name] = result.observations[AUTO]
    for place, world in enumerate(watched if alarm_replications else ()):
        options = {"policies": {AUTO: ALARMED}, "horizon": ALARM_ROUNDS, "observe": alarm_of}
        noted = play(world, ALARM_SEEDS + place, alarm_replications, **options).observations[AUTO]
        alarms[world.name] = (float(noted["alarm"].mean()), float(noted["supported"].mean()))
    return Outcome(regret, seen, alarms, replications, alarm_replications, seed)


def verdicts(outcome: Outcome) -> list[tuple[Goal, Verdict]]:
    """Every goal of the worlds that were played, with its verdict."""
    return [(goal, goal.judge(outcome.regret)) for goal in goals() if goal.where in outcome.regret]


def report(outcome: Outcome) -> str:
    """The study as a Markdown page."""
    lines = [
        "# AutoISD where the logs mislead, measured",
        "",
        f"At least {outcome.replications} fresh repetitions per world with seed {outcome.seed}, none discarded; within"
        " a world all policies play the same logs, features and noise. Regret is dynamic and cumulative: mean ±"
        " standard error (worst run). Worlds: `StressEpisodes` (p = 10, K = 5, T0 = 4,000, T = 1,000 unless said) and"
        " `FixedArms` (T0 = 4,000, T = 2,000), one thing changed in each. Linear policies have a constant feature,"
        " ridge 0.1, noise scale 1 and confidence 0.01; the number is their exploration. AutoISD comes as it is, its"
        " exploration rehearsed on the logs' offered sets.",
        "",
        "The settings of AutoISD were chosen on other seeds, on worlds of these kinds, about sixty configurations of 20"
        " to 200 repetitions. A first run, on seed 20261117, showed false alarms with fixed arms where nothing had"
        " changed (2, 5 and 20 arms: 7, 58 and 100 %), and low exploration for neglected actions; both were mended."
        " This page is the one run after that, on another seed.",
        "",
        *_goal_lines(outcome),
        *_regret_lines(outcome),
        *_seen_lines(outcome),
        *(_alarm_lines(outcome) if outcome.alarms else []),
    ]
    return "\n".join(lines)


def _goal_lines(outcome: Outcome) -> list[str]:
    judged = verdicts(outcome)
    reached = sum(verdict.reached for _, verdict in judged)
    lines = ["## What must be true", "", f"{reached} of {len(judged)} reached.", ""]
    lines += ["A verdict in brackets is within two standard errors of its bound.", ""]
    lines += ["| goal | world | measured | |", "|---|---|---|---|"]
    for goal, verdict in judged:
        shown = f"({verdict.mark})" if verdict.close else verdict.mark
        lines.append(f"| {goal.words} | {goal.where} | {verdict.numbers} | {shown} |")
    return [*lines, ""]


def _regret_lines(outcome: Outcome) -> list[str]:
    lines = ["## Regret", "", "Bold: the lowest mean.", ""]
    lines += ["| world | " + " | ".join(PLAYERS) + " |", "|---|" + "---|" * len(PLAYERS)]
    for world, here in outcome.regret.items():
        lowest = min(values.mean() for values in here.values())
        cells = []
        for values in here.values():
            cell = f"{mean_of(values).with_error()} ({values.max():.0f})"
            cells.append(f"**{cell}**" if values.mean() == lowest else cell)
        lines.append(f"| {world} | {' | '.join(cells)} |")
    return [*lines, ""]


def _seen_lines(outcome: Outcome) -> list[str]:
    lines = [
        "## Widths",
        "",
        "Differences of expected rewards between offered actions beyond two and three posterior standard deviations"
        f" (promised: at most {BEYOND_TWO:.0%} and {BEYOND_THREE:.0%}; ✗ where not). Clicks and revenue are not linear"
        " in the features, so the widths of a linear model are too small there; a walk moves between the rounds that"
        " show it; and of arms that changed unseen, only a test can tell.",
        "",
        "| world | beyond 2 | beyond 3 |",
        "|---|---|---|",
    ]
    for world, seen in outcome.seen.items():
        two, three = (float(seen[name].mean()) for name in ("beyond 2", "beyond 3"))
        widths = [f"{two:.1%}{' ✗' if two > BEYOND_TWO else ''}", f"{three:.1%}{' ✗' if three > BEYOND_THREE else ''}"]
        lines.append(f"| {world} | {' | '.join(widths)} |")
    return [*lines, ""]


def _alarm_lines(outcome: Outcome) -> list[str]:
    lines = [
        "## The alarm",
        "",
        f"{outcome.alarm_replications} logs per world, {ALARM_ROUNDS:,} rounds, level 1 %; promised: at most"
        f" {FALSE_ALARMS:.0%} false alarms, and at least {LEAST_POWER:.0%} right ones at a break of 0.5. Where the logs"
        " do not support an alarm none is given, and `explain()` says why.",
        "",
        "| world | alarms | logs that support one | |",
        "|---|---|---|---|",
    ]
    right = {world.name for world in BROKEN}
    for world, (share, supported) in outcome.alarms.items():
        kept = share >= LEAST_POWER if world in right else share <= FALSE_ALARMS
        lines.append(f"| {world} | {share:.1%} | {supported:.0%} | {'✓' if kept else '✗'} |")
    return [*lines, ""]
