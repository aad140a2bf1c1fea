"""The offline phase over many fresh repetitions: how often it is right, how accurate, and where it is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from invariant_bandits.experiments.claims import Bound, Goal, Measurement, Verdict, median_of, share_of, word_for
from invariant_bandits.parallel import map_unordered
from invariant_bandits.simulation.paper import PaperWorld
from studies.recovery import LOGGED_ROUNDS, Recovery, Setting, judge

UNIFORM = PaperWorld()
KINDS = {
    "uniform logs, chosen actions": Setting("", 0, UNIFORM, covariances="chosen"),
    "uniform logs": Setting("", 0, UNIFORM),
    "LinUCB logs": Setting("", 0, replace(UNIFORM, logging="linucb")),
    "greedy logs": Setting("", 0, replace(UNIFORM, logging="greedy")),
    "no drift": Setting("", 0, replace(UNIFORM, varying=None)),
    "no drift, chosen actions": Setting("", 0, replace(UNIFORM, varying=None), covariances="chosen"),
    "weak drift, 0.2 of the paper's": Setting("", 0, replace(UNIFORM, drift=0.2)),
    "weak drift, 0.5 of the paper's": Setting("", 0, replace(UNIFORM, drift=0.5)),
    "well-conditioned blocks": Setting("", 0, replace(UNIFORM, conditioning="well")),
    "misaligned windows (11 regimes, 8 windows)": Setting("", 0, replace(UNIFORM, regimes=11)),
    "t features, 5 degrees of freedom": Setting("", 0, replace(UNIFORM, degrees_of_freedom=5.0)),
    "16 windows": Setting("", 0, UNIFORM, windows=16),
    "25 windows": Setting("", 0, UNIFORM, windows=25),
}
CHOSEN = (
    "How the settings were chosen: the test levels were first 0.01. On seed 2026 (200 repetitions) that missed 2 "
    "of the 39 bounds, both by ordinary false alarms, and the levels were lowered to 0.002. With them seed 31 "
    "(200) missed one bound (median ‖β̂ − β‖ of chosen actions at T0 = 3500: 0.080) and seed 2026 (400) none. "
    "This page is one run on a seed that none of these choices has seen."
)
PROMISED = ("uniform logs, chosen actions", "uniform logs", "LinUCB logs", "greedy logs", "no drift")


Results = dict[tuple[str, int], list[Recovery]]


def figure_goals(words: str, kind: str, name: str, bounds: tuple[Bound, ...]) -> list[Goal]:
    """What one figure of one kind of logs must meet at each T0."""

    def goal(rounds: int, bound: Bound) -> Goal:
        def judged(results: Results) -> Verdict:
            found = figure(results[kind, rounds], rounds, name)
            return Verdict(word_for(bound.meets(found.value)), found, numbers=f"{found.with_interval()} [{bound}]")

        return Goal(words, kind, judged)

    return [goal(rounds, bound) for rounds, bound in zip(LOGGED_ROUNDS, bounds, strict=True)]


def at_least(*bounds: float) -> tuple[Bound, ...]:
    """Lower bounds, one per T0."""
    return tuple(Bound(low=bound) for bound in bounds)


def at_most(*bounds: float) -> tuple[Bound, ...]:
    """Upper bounds, one per T0."""
    return tuple(Bound(high=bound) for bound in bounds)


RIGHT, DIMENSION = "right (p_inv, p_res), uniform logs", "right dimension"
GOALS = [
    figure_goals(f"{RIGHT}, chosen actions", PROMISED[0], "right", at_least(0.97, 0.98, 0.99)),
    figure_goals(f"{RIGHT}, offered actions", PROMISED[1], "right", at_least(0.97, 0.98, 0.99)),
    figure_goals("median projection error × √T0, chosen", PROMISED[0], "projection", at_most(1.0, 1.0, 1.0)),
    figure_goals("median projection error × √T0, offered", PROMISED[1], "projection", at_most(0.5, 0.5, 0.5)),
    figure_goals("median ‖β̂ − β‖, chosen", PROMISED[0], "component", at_most(0.155, 0.080, 0.054)),
    figure_goals("median ‖β̂ − β‖, offered", PROMISED[1], "component", at_most(0.155, 0.080, 0.054)),
    figure_goals(f"{DIMENSION}, LinUCB logs, offered actions", PROMISED[2], "right", at_least(0.97, 0.98, 0.98)),
    figure_goals(f"{DIMENSION}, greedy logs, offered actions", PROMISED[3], "right", at_least(0.97, 0.98, 0.98)),
    figure_goals("no drift at all: something called varying", PROMISED[4], "wrong", at_most(0.03, 0.02, 0.02)),
    *(
        figure_goals(f"p_inv overestimated, {kind}", kind, "overestimated", at_most(0.01, 0.01, 0.01))
        for kind in PROMISED[:4]
    ),
]
"""Every line of what must be true, with a goal for each T0."""


def settings(kinds: Sequence[str] = tuple(KINDS)) -> list[Setting]:
    """Every kind of logs at every T0."""
    return [replace(KINDS[kind], name=kind, rounds=rounds) for kind in kinds for rounds in LOGGED_ROUNDS]


def run(
    cells: Sequence[Setting],
    *,
    replications: int = 200,
    seed: int = 20261115,
    jobs: int = 2,
    progress: Callable[[int, int], None] | None = None,
) -> Results:
    """All repetitions of all cells, none discarded; the same for any number of `jobs`."""

    def outcomes(index: int) -> list[Recovery]:
        return [judge(cells[index], (seed, index, repetition)) for repetition in range(replications)]

    found: dict[int, list[Recovery]] = {}
    for index, outcome in map_unordered(outcomes, range(len(cells)), jobs):
        found[index] = outcome
        if progress is not None:
            progress(len(found), len(cells))
    return {(cell.name, cell.rounds): found[index] for index, cell in enumerate(cells)}


def figure(outcomes: Sequence[Recovery], rounds: int, name: str) -> Measurement:
    """One figure of one cell: a share (Wilson interval) or a median (order-statistics interval)."""
    if name in ("projection", "component"):
        values = {
            "projection": [outcome.projection_error * np.sqrt(rounds) for outcome in outcomes],
            "component": [outcome.component_error for outcome in outcomes],
        }[name]
        return median_of(np.array(values))
    hits = {
        "right": [outcome.right for outcome in outcomes],
        "wrong": [not outcome.right for outcome in outcomes],
        "overestimated": [outcome.overestimates_invariance for outcome in outcomes],
        "converged": [outcome.converged for outcome in outcomes],
    }[name]
    return share_of(int(np.sum(hits)), len(hits))


def verdicts(results: Results) -> Iterator[tuple[str, list[Verdict]]]:
    """Every line of what must be true with its verdict at each T0."""
    for goals in GOALS:
        yield goals[0].words, [goal.judge(results) for goal in goals]


def report(results: Results, *, replications: int, seed: int) -> str:
    """The study as a Markdown page."""
    head = "| | " + " | ".join(f"T0 = {rounds}" for rounds in LOGGED_ROUNDS) + " |"
    rule = "|---|" + "---|" * len(LOGGED_ROUNDS)
    lines = [
        "# The offline phase, measured",
        "",
        f"The paper's generator (blocks 4, 1, 3, 2; the block of 3 drifts), {replications} repetitions per cell with"
        f" seed {seed}, none discarded; 8 windows unless the row says otherwise, and the covariances of all offered"
        " actions unless it says *chosen*. Shares and medians with 95 % intervals; the bound to reach in brackets.",
        "",
        CHOSEN,
        "",
        "## What must be true",
        "",
        head,
        rule,
    ]
    for words, judged in verdicts(results):
        lines.append(f"| {words} | {' | '.join(f'{one.numbers} {one.mark}' for one in judged)} |")
    lines += ["", "## All settings", "", "Right dimensions, then p_inv overestimated:", "", head, rule]
    lines += _lines_by_kind(
        results, lambda value: f"{value('right').with_interval()} / {value('overestimated').value:.3f}"
    )
    lines += ["", "Median projection error × √T0, then median ‖β̂ − β‖:", "", head, rule]
    lines += _lines_by_kind(results, lambda value: f"{value('projection').value:.2f} / {value('component').value:.3f}")
    slowest = max(np.median([outcome.seconds for outcome in outcomes]) for outcomes in results.values())
    unfinished = sum(not outcome.converged for outcomes in results.values() for outcome in outcomes)
    total = sum(len(outcomes) for outcomes in results.values())
    refused = sum(outcome.refused for outcomes in results.values() for outcome in outcomes)
    lines += [
        "",
        f"The rotation search reported that it had not converged in {unfinished} of {total} fits; they are counted like"
        f" all others. {refused} logs were refused as collinear, because the generator had drawn a block that is "
        f"singular to rounding; they count as wrong. Slowest cell: {1e3 * slowest:.0f} ms per fit (median).",
        "",
        "Weak drift and well-conditioned blocks are the known limits: where a block drifts less than the sampling"
        " error of its coefficients, or where the covariances of two blocks hardly differ between windows, the data do"
        " not say which directions drift. The error made there is shown above: mostly too little invariance, which"
        " costs speed of learning, except for weak drift, where what moves unnoticed also moves little.",
        "",
    ]
    return "\n".join(lines)


def _lines_by_kind(results: Results, cell: Callable[[Callable[[str], Measurement]], str]) -> list[str]:
    """One table line per kind of logs; `cell` words the figures of one T0, which it asks for by name."""
    lines = []
    for kind in KINDS:
        if (kind, LOGGED_ROUNDS[0]) in results:
            cells = [cell(partial(figure, results[kind, rounds], rounds)) for rounds in LOGGED_ROUNDS]
            lines.append(f"| {kind} | {' | '.join(cells)} |")
    return lines
