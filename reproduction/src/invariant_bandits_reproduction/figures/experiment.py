"""An experiment is data plus claims: which cells are played, what must follow, how it is drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from invariant_bandits.registry import Registry
from invariant_bandits.simulation.cells import Cell
from invariant_bandits_reproduction.claims import Claim
from invariant_bandits_reproduction.regret_claims import Results, Sample

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER_REPLICATIONS = 20
"""Repetitions behind every published mean."""
REPORT_ORDER = (
    "residual-dimension",
    "dimension",
    "logged-rounds",
    "projection-error",
    "dimension-comparison",
    "logged-rounds-comparison",
    "printed-residual-dimension",
    "printed-dimension",
    "printed-logged-rounds",
    "printed-projection-error",
    "printed-dimension-comparison",
    "printed-logged-rounds-comparison",
    "epochs",
    "horizon",
    "fast-rotation",
    "violated-invariance",
    "lower-bound",
    "coverage",
    "hedge",
)
"""Experiments from top to bottom of the report; others follow."""

# Why a level may differ from the published one.
CHANCE = "No difference of settings is known that explains these distances."
BLOW_UPS = (
    "Means of the published recipe are ruled by a few runs that call a drifting"
    " direction stable and then cost hundreds or thousands: they vary much from"
    " one set of repetitions to the next. The authors' logs also share one series"
    " of covariances over all repetitions; here every repetition draws its own,"
    " which the recipe finds harder."
)
RADII = (
    "The levels of the policies that forget depend on constants of their radii"
    " which the paper does not state, above all the bound L on the length of a"
    " feature vector: here L = 1 and the radius published with each memory."
)


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
            points.append(
                Point(
                    cell=cell,
                    policy=policy,
                    right_only=self.right_only,
                    mean=mean,
                    standard_error=error,
                    repetitions=count,
                )
            )
        return points


@dataclass(frozen=True)
class Experiment:
    """One question, with what is played, what must follow and how it is drawn.

    Attributes
    ----------
    name : str
        On the command line.
    title, question, caption : str
        What the report says above and below the figure.
    paper : str
        Where the paper shows it.
    cells : tuple of Cell
        What is played.
    claims : tuple of Claim
        What must follow.
    draw : callable
        Results and theme -> figure.
    levels : tuple of PublishedResult
        Means of the authors' implementation.
    table : callable, optional
        Results -> row -> column -> words: a table that the figure does not show.
    panels : tuple of Panel
        What the figure shows, where they say all of it.
    is_slow : bool
        Whether it is played only where it is named.
    """

    name: str
    cells: tuple[Cell, ...]
    claims: tuple[Claim, ...]
    draw: Callable[[Results, str], Figure]
    title: str
    question: str = ""
    caption: str = ""
    paper: str = ""
    levels: tuple[PublishedResult, ...] = ()
    table: Callable[[Results], Mapping[str, Mapping[str, str]]] | None = None
    panels: tuple[Panel, ...] = ()
    is_slow: bool = False

    def points(self, results: Results) -> list[Point]:
        """Return every point of the figure's panels."""
        return [
            point
            for panel in self.panels
            for policy in panel.policies
            for point in panel.points(results, policy)
        ]


EXPERIMENTS: Registry[Experiment] = Registry(
    "experiment", "invariant_bandits_reproduction.figures"
)


def chosen(names: Iterable[str]) -> list[Experiment]:
    """The experiments of these names in their order, or those that are not slow in that of the report."""
    names = list(dict.fromkeys(names))
    if names:
        return [EXPERIMENTS.find(name) for name in names]
    order = {name: index for index, name in enumerate(REPORT_ORDER)}
    return sorted(
        (experiment for experiment in EXPERIMENTS if not experiment.is_slow),
        key=lambda experiment: order.get(experiment.name, len(order)),
    )


def cells_of(experiments: Iterable[Experiment]) -> list[Cell]:
    """Their cells, each once: experiments that look at the same worlds share them."""
    return list(
        {
            cell.name: cell for experiment in experiments for cell in experiment.cells
        }.values()
    )
