"""An experiment is data plus claims: which cells are played, what must follow, how it is drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from invariant_bandits.registry import Registry
from invariant_bandits.simulation.cells import Cell
from invariant_bandits.storage import read_toml
from invariant_bandits_reproduction.claims import Claim, Results, Sample

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER_REPLICATIONS = 20
TEXTS = read_toml(Path(__file__).with_name("texts.toml"))
REASONS = TEXTS["reasons"]
"""Why a level may differ from the published one."""


@dataclass(frozen=True)
class PublishedResult:
    """Mean regret of the authors' implementation in one cell, over their 20 repetitions.

    right_only: they counted only runs whose block dimensions came out right; `why`: the explanation where
    ours differs.
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
        values = Sample(results, right_only=self.right_only).final(
            self.cell, self.policy
        )
        if len(values) < 2:
            return float("nan"), float("nan"), float("nan")
        mean, spread = float(values.mean()), float(values.std(ddof=1))
        both = spread * np.sqrt(1.0 / len(values) + 1.0 / PAPER_REPLICATIONS)
        return (
            mean,
            float(spread / np.sqrt(len(values))),
            float((mean - self.published) / both),
        )


class Point(NamedTuple):
    """What a picture shows at one place: mean regret at the horizon, its standard error, repetitions."""

    cell: str
    policy: str
    right_only: bool
    mean: float
    standard_error: float
    repetitions: int


@dataclass(frozen=True)
class Panel:
    """Mean regrets of some policies over a setting, as one panel of a figure shows them.

    cells: value of the setting -> name of its cell; right_only: only repetitions count in which a policy's
    own split has the right dimensions.
    """

    cells: Mapping[Any, str]
    policies: tuple[str, ...]
    right_only: bool = False

    def points(self, results: Results, policy: str) -> list[Point]:
        """Return the points of one line of the panel."""
        sample = Sample(results, right_only=self.right_only)
        points = []
        for cell in self.cells.values():
            finals = sample.final(cell, policy)
            count = len(finals)
            mean = float(finals.mean()) if count else float("nan")
            deviation = float(finals.std(ddof=1)) if count > 1 else float("nan")
            error = deviation / max(count, 1) ** 0.5
            points.append(Point(cell, policy, self.right_only, mean, error, count))
        return points


@dataclass(frozen=True)
class Experiment:
    """One question; name: on the command line; panels: what its figure shows, where they say all of it."""

    name: str
    cells: tuple[Cell, ...]
    claims: tuple[Claim, ...]
    draw: Callable[[Results, str], Figure]
    levels: tuple[PublishedResult, ...] = ()
    table: Callable[[Results], Mapping[str, Mapping[str, str]]] | None = None
    panels: tuple[Panel, ...] = ()

    def points(self, results: Results) -> list[Point]:
        """Return every point of the figure's panels."""
        return [
            point
            for panel in self.panels
            for policy in panel.policies
            for point in panel.points(results, policy)
        ]

    def text(self, part: str) -> str:
        """The title, the question, the caption of its figure or its place in the paper, from texts.toml."""
        return str(
            TEXTS.get(self.name, {}).get(part, self.name if part == "title" else "")
        )


EXPERIMENTS: Registry[Experiment] = Registry(
    "experiment", "invariant_bandits_reproduction.figures"
)


def add_experiment(
    name: str,
    cells: Iterable[Cell],
    claims: Iterable[Claim],
    draw: Callable[[Results, str], Figure],
    **more: Any,
) -> None:
    """Register an experiment; more: its other fields."""
    EXPERIMENTS.add(Experiment(name, tuple(cells), tuple(claims), draw, **more))


def claim_words(
    experiment: str, claim: str, **values: Any
) -> tuple[str, str, str, str]:
    """Name, statement, quantity and reading of a claim, from texts.toml.

    values: what stands in braces there; {value} in the reading stays for the statistic.
    """
    name, statement, quantity, reading = (
        words.format(value="{value}", **values)
        for words in TEXTS[experiment]["claims"][claim]
    )
    return name, statement, quantity, reading


def chosen(names: Iterable[str]) -> list[Experiment]:
    """The experiments of these names in their order, all of them in that of the report if there is none."""
    names = list(dict.fromkeys(names))
    if names:
        return [EXPERIMENTS.find(name) for name in names]
    order = {name: place for place, name in enumerate(TEXTS)}
    return sorted(
        EXPERIMENTS, key=lambda experiment: order.get(experiment.name, len(order))
    )


def cells_of(experiments: Iterable[Experiment]) -> list[Cell]:
    """Their cells, each once: experiments that look at the same worlds share them."""
    return list(
        {
            cell.name: cell for experiment in experiments for cell in experiment.cells
        }.values()
    )
