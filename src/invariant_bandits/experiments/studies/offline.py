"""The offline phase over many fresh repetitions: how often it is right, how accurate, and where it is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.experiments.studies.recovery import LOGGED_ROUNDS, Recovery, Setting, judge
from invariant_bandits.simulation.paper import PaperWorld

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


@dataclass(frozen=True)
class Goal:
    """One line of what must be true: a figure of one kind of logs, its bound at each T0, and which way it points."""

    words: str
    kind: str
    figure: str
    bounds: tuple[float, float, float]
    at_least: bool


GOALS = [
    Goal("right (p_inv, p_res), uniform logs, chosen actions", PROMISED[0], "right", (0.97, 0.98, 0.99), True),
    Goal("right (p_inv, p_res), uniform logs, offered actions", PROMISED[1], "right", (0.97, 0.98, 0.99), True),
    Goal("median projection error × √T0, chosen", PROMISED[0], "projection", (1.0, 1.0, 1.0), False),
    Goal("median projection error × √T0, offered", PROMISED[1], "projection", (0.5, 0.5, 0.5), False),
    Goal("median ‖β̂ − β‖, chosen", PROMISED[0], "component", (0.155, 0.080, 0.054), False),
    Goal("median ‖β̂ − β‖, offered", PROMISED[1], "component", (0.155, 0.080, 0.054), False),
    Goal("right dimension, LinUCB logs, offered actions", PROMISED[2], "right", (0.97, 0.98, 0.98), True),
    Goal("right dimension, greedy logs, offered actions", PROMISED[3], "right", (0.97, 0.98, 0.98), True),
    Goal("no drift at all: something called varying", PROMISED[4], "wrong", (0.03, 0.02, 0.02), False),
    *(Goal(f"p_inv overestimated, {kind}", kind, "overestimated", (0.01, 0.01, 0.01), False) for kind in PROMISED[:4]),
]


@dataclass(frozen=True)
class Figure:
    """A measured figure with its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.low:.3f}–{self.high:.3f})"


Results = dict[tuple[str, int], list[Recovery]]


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
    work = [(index, cell, seed, replications) for index, cell in enumerate(cells)]
    results: Results = {}
    with ProcessPoolExecutor(jobs) as pool:
        for done, (cell, outcome) in enumerate(zip(cells, pool.map(_run_cell, work), strict=True), start=1):
            results[cell.name, cell.rounds] = outcome
            if progress is not None:
                progress(done, len(cells))
    return results


def _run_cell(work: tuple[int, Setting, int, int]) -> list[Recovery]:
    index, cell, seed, replications = work
    return [judge(cell, (seed, index, repetition)) for repetition in range(replications)]


def figure(outcomes: Sequence[Recovery], rounds: int, name: str) -> Figure:
    """One figure of one cell: a share (Wilson interval) or a median (order-statistics interval)."""
    if name in ("projection", "component"):
        values = {
            "projection": [outcome.projection_error * np.sqrt(rounds) for outcome in outcomes],
            "component": [outcome.component_error for outcome in outcomes],
        }[name]
        return _median(np.array(values))
    hits = {
        "right": [outcome.right for outcome in outcomes],
        "wrong": [not outcome.right for outcome in outcomes],
        "overestimated": [outcome.overestimates_invariance for outcome in outcomes],
        "converged": [outcome.converged for outcome in outcomes],
    }[name]
    return _share(int(np.sum(hits)), len(hits))


def _share(hits: int, total: int) -> Figure:
    z = 1.96
    share = hits / total
    centre = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z * np.sqrt(share * (1 - share) / total + z * z / (4 * total * total)) / (1 + z * z / total)
    return Figure(share, float(max(0.0, centre - half)), float(min(1.0, centre + half)))


def _median(values: Array) -> Figure:
    ordered = np.sort(values)
    n = len(ordered)
    reach = 0.98 * np.sqrt(n)
    low, high = int(np.floor(n / 2 - reach)), int(np.ceil(n / 2 + reach))
    return Figure(float(np.median(ordered)), float(ordered[max(low, 0)]), float(ordered[min(high, n - 1)]))


def verdicts(results: Results) -> Iterator[tuple[Goal, list[Figure], list[bool]]]:
    """Every goal with its three figures and whether each reaches its bound."""
    for goal in GOALS:
        figures = [figure(results[goal.kind, rounds], rounds, goal.figure) for rounds in LOGGED_ROUNDS]
        reached = [
            (found.value >= bound) if goal.at_least else (found.value <= bound)
            for found, bound in zip(figures, goal.bounds, strict=True)
        ]
        yield goal, figures, reached


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
    for goal, figures, reached in verdicts(results):
        sign = "≥" if goal.at_least else "≤"
        cells = [
            f"{found} [{sign} {bound:g}] {'✓' if fine else '✗'}"
            for found, bound, fine in zip(figures, goal.bounds, reached, strict=True)
        ]
        lines.append(f"| {goal.words} | {' | '.join(cells)} |")
    lines += ["", "## All settings", "", "Right dimensions, then p_inv overestimated:", "", head, rule]
    lines += _lines_by_kind(results, lambda value: f"{value('right')} / {value('overestimated').value:.3f}")
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


def _lines_by_kind(results: Results, cell: Callable[[Callable[[str], Figure]], str]) -> list[str]:
    """One table line per kind of logs; `cell` words the figures of one T0, which it asks for by name."""
    lines = []
    for kind in KINDS:
        if (kind, LOGGED_ROUNDS[0]) in results:
            cells = [cell(partial(figure, results[kind, rounds], rounds)) for rounds in LOGGED_ROUNDS]
            lines.append(f"| {kind} | {' | '.join(cells)} |")
    return lines
