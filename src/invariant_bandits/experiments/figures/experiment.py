"""An experiment is data plus claims: which cells are played, what must follow, how it is drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from invariant_bandits.checks import InputError
from invariant_bandits.experiments.cells import Cell
from invariant_bandits.experiments.claims import Claim, Results, Sample
from invariant_bandits.registry import Registry
from invariant_bandits.storage import read_toml

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER_REPLICATIONS = 20
TEXTS = read_toml(Path(__file__).with_name("texts.toml"))
REASONS = TEXTS["reasons"]
"""Why a level may differ from the published one."""


@dataclass(frozen=True)
class PublishedResult:
    """Mean regret of the authors' implementation in one cell, over their 20 repetitions.

    right_only: they counted only runs whose block structure came out right; `why`: the explanation where ours
    differs.
    """

    cell: str
    policy: str
    published: float
    right_only: bool = False
    why: str = ""

    def compare(self, results: Results) -> tuple[float, float, float]:
        """(our mean, its standard error, distance to the published mean in standard errors of the
        difference).

        The published mean is given the error of 20 repetitions with the spread of ours.
        """
        values = Sample(results, right_only=self.right_only).final(self.cell, self.policy)
        if len(values) < 2:
            return float("nan"), float("nan"), float("nan")
        spread = values.std(ddof=1)
        both = spread * np.sqrt(1.0 / len(values) + 1.0 / PAPER_REPLICATIONS)
        return (
            float(values.mean()),
            float(spread / np.sqrt(len(values))),
            float((values.mean() - self.published) / both),
        )


@dataclass(frozen=True)
class Experiment:
    """One question.

    name: on the command line; texts: title, question and caption of its figure, those in texts.toml by
    default.
    """

    name: str
    cells: tuple[Cell, ...]
    claims: tuple[Claim, ...]
    draw: Callable[[Results, str], Figure]
    levels: tuple[PublishedResult, ...] = ()
    table: Callable[[Results], Mapping[str, Mapping[str, str]]] | None = None
    texts: Mapping[str, str] = field(default_factory=dict)

    def text(self, part: str) -> str:
        """The title, the question or the caption."""
        return self.texts.get(part) or TEXTS.get(self.name, {}).get(
            part, self.name if part == "title" else ""
        )


EXPERIMENTS: Registry[Experiment] = Registry("experiment", "invariant_bandits.experiments.figures")


def chosen(names: Iterable[str]) -> list[Experiment]:
    """The experiments of these names in their order, all of them in that of the report if there is none."""
    names = list(dict.fromkeys(names))
    if names:
        return [EXPERIMENTS.find(name) for name in names]
    order = {name: place for place, name in enumerate(TEXTS)}
    return sorted(EXPERIMENTS, key=lambda experiment: order.get(experiment.name, len(order)))


def cells_of(experiments: Iterable[Experiment]) -> list[Cell]:
    """Their cells, each once: experiments that look at the same worlds share them."""
    cells: dict[str, Cell] = {}
    for experiment in experiments:
        for cell in experiment.cells:
            if cells.setdefault(cell.name, cell) != cell:
                raise InputError(f"two different cells are called {cell.name!r}")
    return list(cells.values())
