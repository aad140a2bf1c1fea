"""What all studies share: one kind of outcome, seeds, gathering over processes, and pieces of their pages.

A study is a module with `run(...) -> StudyOutcome`, `verdicts(outcome)`, the goals with their verdicts,
`report(outcome)`, its Markdown page, and, where it has a picture, `draw(outcome, theme_name)`.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.parallel import map_unordered
from invariant_bandits.simulation.cells import Cell, Tally
from invariant_bandits.simulation.loop import SimulationResult
from invariant_bandits_reproduction.claims import Claim, Verdict, count_reached, mean_of

Item = TypeVar("Item")
Value = TypeVar("Value")
Progress = Callable[[str, int, int], None]
PAGE_WIDTH = 100
"""Longest line of prose in a page, in columns."""
NO_BREAK = "\N{NO-BREAK SPACE}"
"""Keeps a number and its percent sign on one line."""


@dataclass(frozen=True, eq=False)
class StudyOutcome:
    """Everything that a study measured.

    Parameters
    ----------
    values : cell -> what was measured there
        For studies of regret: policy -> regret at the horizon (n,), repetitions paired within a cell.
    replications, seed : int
        As they were asked for.
    more : name -> value
        What only this study has; its `run` says what.
    """

    values: Mapping[Any, Any]
    replications: int
    seed: int
    more: Mapping[str, Any] = field(default_factory=dict)


def cell_seed(seed: int, index: int) -> int:
    """Return a seed for every index, so that no two cells share their repetitions."""
    return int(np.random.SeedSequence((seed, index)).generate_state(1, np.uint64)[0])


def gather(
    function: Callable[[Item], Value],
    items: Sequence[Item],
    jobs: int,
    progress: Progress | None,
    words: str = "cells",
) -> list[Value]:
    """What the function returns for every item, in their order, the same for any number of `jobs`.

    progress: called with `words`, the items done and all.
    """
    values: dict[int, Value] = {}
    for index, value in map_unordered(function, items, jobs):
        values[index] = value
        if progress is not None:
            progress(words, len(values), len(items))
    return [values[index] for index in range(len(items))]


@dataclass
class CellPlayer:
    """Plays the cells of a study, each with a seed of its own, and counts their repetitions together.

    Parameters
    ----------
    seed : int
        From which the seeds of the cells are derived.
    jobs : int
        Processes.
    progress : callable, optional
        Called with the name of a cell, the repetitions done and `total`.
    total : int
        Repetitions of all cells.
    """

    seed: int
    jobs: int
    progress: Progress | None
    total: int

    def __post_init__(self) -> None:
        self.tally = Tally(self.progress, self.total)

    def play(
        self, cell: Cell, index: int, count: int, words: str = ""
    ) -> SimulationResult:
        """Return so many repetitions of a cell, with the seed of this index."""
        note = self.tally.begin(words or cell.name, count)
        return cell.play(count, cell_seed(self.seed, index), self.jobs, note)

    def regrets(
        self, cell: Cell, index: int, count: int, words: str = ""
    ) -> dict[str, Array]:
        """Return policy -> regret at the horizon (count,)."""
        result = self.play(cell, index, count, words)
        return {name: result.final(name) for name in cell.policies}


def wrap_prose(page: str) -> str:
    """Break lines of prose after at most 100 columns; tables, code and pictures stay as they are.

    A line never begins with "%", because Markdown with MyST takes such a line for a comment.
    """
    lines: list[str] = []
    for line in page.splitlines():
        is_prose = not line.lstrip().startswith(
            ("|", "<", "#", "!", "```")
        ) and not line.startswith("    ")
        marker = re.match(r" *(?:[-*] |\d+\. )?", line)
        indent = " " * (marker.end() if marker else 0)
        wrapped = textwrap.wrap(
            line.replace(" %", f"{NO_BREAK}%"),
            PAGE_WIDTH,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
        lines += (
            [part.replace(f"{NO_BREAK}%", " %") for part in wrapped]
            if is_prose and wrapped
            else [line]
        )
    return "\n".join(lines) + "\n"


def table_row(*cells: object) -> str:
    """Return a line of a table."""
    return "|" + "".join(f" {cell} |" if cell != "" else " |" for cell in cells)


def table(headings: Iterable[str], rows: Iterable[Iterable[object]] = ()) -> list[str]:
    """Return the lines of a table, with an empty line at the end."""
    heads = list(headings)
    rule = "|" + "---|" * len(heads)
    return [table_row(*heads), rule, *(table_row(*row) for row in rows), ""]


def picture_lines(pictures: str | None, name: str, alt: str, caption: str) -> list[str]:
    """Lines of a page that show name-light.png or name-dark.png of the folder `pictures`; none without a
    folder.
    """
    if pictures is None:
        return []
    return [
        "<picture>",
        f'  <source media="(prefers-color-scheme: dark)" srcset="{pictures}/{name}-dark.png">',
        f'  <img alt="{alt}" src="{pictures}/{name}-light.png">',
        "</picture>",
        "",
        f"*{caption}*",
        "",
    ]


def verdict_lines(
    judged: Sequence[tuple[Claim, Verdict]], heading: str = ""
) -> list[str]:
    """Return the section of a page that says which goals were reached.

    heading: of a column with the names of the claims; no such column if it is empty.
    """
    reached = count_reached(judged)
    lines = [
        "## What must be true",
        "",
        f"{reached} of {len(judged)} goals reached.",
        "",
    ]
    if any(verdict.close for _, verdict in judged):
        lines += [
            "A verdict on a goal is in brackets if the measured value is within two standard errors of the"
            " bound.",
            "",
        ]
    headings = ["goal", "measured", ""]
    rows = [
        [claim.statement, verdict.numbers, verdict.careful_mark]
        for claim, verdict in judged
    ]
    if heading:
        headings.insert(1, heading)
        for row, (claim, _) in zip(rows, judged, strict=True):
            row.insert(1, claim.name)
    return [*lines, *table(headings, rows)]


def regret_cell(values: Array, digits: int = 1, worst: int = 0) -> str:
    """Mean ± standard error (worst run)."""
    return f"{mean_of(values).with_error(digits)} ({values.max():.{worst}f})"


def with_lowest_bold(
    regret: Mapping[str, Array],
    names: Iterable[str],
    aside: str = "",
    digits: int = 1,
    worst: int = 0,
) -> list[str]:
    """One table cell per policy, the lowest mean bold, "–" where it did not play; `aside` is never bold."""
    lowest = min(
        regret[name].mean() for name in names if name in regret and name != aside
    )
    cells = []
    for name in names:
        cell = regret_cell(regret[name], digits, worst) if name in regret else "–"
        best = name in regret and name != aside and regret[name].mean() == lowest
        cells.append(f"**{cell}**" if best else cell)
    return cells
