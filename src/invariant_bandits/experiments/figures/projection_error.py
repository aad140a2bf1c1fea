"""Figure (d): how fast the estimated split approaches the true one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from matplotlib.figure import Figure

from invariant_bandits.checks import Array
from invariant_bandits.experiments.cells import ISD_ESTIMATED, ISD_PUBLISHED, NAMED, Cell
from invariant_bandits.experiments.claims import RIGHT_SPLIT, Bound, Claim, Results, Sample, slope
from invariant_bandits.experiments.figures import logged_rounds
from invariant_bandits.experiments.figures.drawing import legend, look, panels
from invariant_bandits.experiments.figures.experiment import EXPERIMENTS, Experiment
from invariant_bandits.plotting import theme
from invariant_bandits.simulation.episodes import PaperEpisodes

ERROR = "projection error"
RECIPES = (ISD_ESTIMATED, ISD_PUBLISHED)
BETWEEN = {
    logged: Cell(
        name=f"split-{logged}",
        environment=PaperEpisodes(logged=logged),
        horizon=10,
        policies={name: NAMED[name] for name in RECIPES},
        observe="split",
    )
    for logged in (2000, 5500)
}
CELLS = dict(sorted({**logged_rounds.CELLS, **BETWEEN}.items()))
ALL = tuple(cell.name for cell in CELLS.values())


def errors(sample: Sample, cell: str, recipe: str, right_only: bool) -> Array:
    """‖Π̂ − Π‖ of the repetitions that count (n,)."""
    values = sample.observed(cell, recipe, ERROR)
    return np.asarray(values[sample.observed(cell, recipe, RIGHT_SPLIT) == 1.0] if right_only else values)


def rate(recipe: str, right_only: bool) -> Callable[[Sample], float]:
    """Slope of the log median error over log T0."""

    def statistic(sample: Sample) -> float:
        found = [errors(sample, cell.name, recipe, right_only) for cell in CELLS.values()]
        if any(len(values) == 0 for values in found):
            return float("nan")
        return slope(np.log(np.array(list(CELLS))), np.log([np.median(values) for values in found]))

    return statistic


def _claim(recipe: str, label: str, right_only: bool) -> Claim:
    runs = "runs with the right split" if right_only else "all runs"
    return Claim(
        name=f"error falls as 1/√T0: {label}, {runs}",
        statement="The distance between the estimated and the true subspaces, times √T0, stays constant.",
        quantity="slope of the log median of ‖Π̂−Π‖ over log T0",
        statistic=rate(recipe, right_only),
        bound=Bound(-0.65, -0.35),
        cells=ALL,
        source="recipe" if recipe == ISD_PUBLISHED else "paper",
        right_only=recipe if right_only else None,
    )


CLAIMS = tuple(
    _claim(recipe, label, right_only)
    for recipe, label in ((ISD_ESTIMATED, "estimated"), (ISD_PUBLISHED, "published recipe"))
    for right_only in (False, True)
)


def draw(results: Results, theme_name: str) -> Figure:
    """Left: median error over T0; right: times √T0. Full lines all runs, thin ones only those with the right split."""
    sample = Sample(results)
    logged = np.array(list(CELLS), dtype=float)
    with theme(theme_name) as colours:
        figure, (left, right) = panels(colours, 2)
        for recipe in RECIPES:
            for right_only, width in ((False, 1.8), (True, 0.9)):
                found = [errors(sample, cell.name, recipe, right_only) for cell in CELLS.values()]
                low, middle, high = np.array(
                    [np.quantile(v, [0.25, 0.5, 0.75]) if len(v) else [np.nan] * 3 for v in found]
                ).T
                style = look(recipe, theme_name)
                style["ls"] = ":" if right_only else style["ls"]
                label = recipe + (", right split only" if right_only else "")
                for axis, factor in ((left, np.ones_like(logged)), (right, np.sqrt(logged))):
                    axis.plot(logged, middle * factor, lw=width, label=label, **style)
                    if not right_only:
                        axis.fill_between(logged, low * factor, high * factor, color=style["color"], alpha=0.15, lw=0)
        for axis, title in ((left, r"$\|\hat{\Pi}-\Pi\|$"), (right, r"$\|\hat{\Pi}-\Pi\|\cdot\sqrt{T_0}$")):
            axis.set_title(title)
            axis.set_xscale("log")
            axis.set_yscale("log")
            axis.set_xticks(logged, [f"{int(x):,}" for x in logged])
            axis.minorticks_off()
            axis.set_xlabel("logged rounds T0")
        legend(figure, left, columns=2)
    return figure


EXPERIMENT = Experiment(
    name="projection-error",
    title="How fast the estimated split approaches the true one",
    question="Does the distance between the estimated and the true subspaces fall as 1/√T0?",
    cells=tuple(CELLS.values()),
    claims=CLAIMS,
    draw=draw,
    caption="Median over repetitions of the operator norm of the difference of the projections (1 where the dimensions"
    " are wrong), bands from the lower to the upper quartile of all runs.",
    place=4,
)
EXPERIMENTS.add(EXPERIMENT)
