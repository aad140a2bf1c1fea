"""Beyond the paper: what was stable in the logs does change online, at once or little by little."""

from __future__ import annotations

from matplotlib.figure import Figure

from invariant_bandits.experiments.cells import (
    AUTO,
    GREEDY,
    ISD_ESTIMATED,
    ISD_ORACLE,
    LINUCB,
    LINUCB_TUNED,
    NAMED,
    Cell,
)
from invariant_bandits.experiments.claims import Bound, Claim, Results, Sample, largest_ratio, ratio
from invariant_bandits.experiments.figures import logged_rounds
from invariant_bandits.experiments.figures.drawing import legend, over_setting, panels
from invariant_bandits.experiments.figures.experiment import EXPERIMENTS, Experiment
from invariant_bandits.plotting import theme
from invariant_bandits.simulation.episodes import PaperEpisodes

PLAYED = (LINUCB, LINUCB_TUNED, GREEDY, ISD_ORACLE, ISD_ESTIMATED, AUTO)
SIZES = (0.5, 1.0, 2.0)


def _cell(breach: str, size: float) -> Cell:
    return Cell(
        name=f"{breach}-{size:g}",
        environment=PaperEpisodes(logged=3500, violation=size, breach=breach),
        horizon=500,
        policies={name: NAMED[name] for name in PLAYED},
    )


KEPT = logged_rounds.CELLS[3500]
CELLS = {breach: {size: _cell(breach, size) for size in SIZES} for breach in ("jump", "creep")}
BROKEN = tuple(cell.name for cells in CELLS.values() for cell in cells.values())
ALL = (KEPT.name, *BROKEN)

CLAIMS = (
    Claim(
        name="ISD-linUCB breaks when invariance does",
        statement="When the stable part jumps by 2, ISD-linUCB is worse than LinUCB.",
        quantity="ratio of mean regrets",
        statistic=ratio(CELLS["jump"][2.0].name, ISD_ESTIMATED, LINUCB),
        bound=Bound(low=1.0),
        cells=(CELLS["jump"][2.0].name,),
        source="ours",
    ),
    Claim(
        name="AutoISD below LinUCB whatever happens to invariance",
        statement="AutoISD stays below LinUCB, kept or violated.",
        quantity="largest ratio of mean regrets",
        statistic=largest_ratio(ALL, AUTO, LINUCB),
        bound=Bound(high=1.0),
        cells=ALL,
        source="ours",
    ),
    Claim(
        name="AutoISD below tuned LinUCB whatever happens to invariance",
        statement="… and below LinUCB with a tuned exploration (0.3).",
        quantity="largest ratio of mean regrets",
        statistic=largest_ratio(BROKEN, AUTO, LINUCB_TUNED),
        bound=Bound(high=1.0),
        cells=BROKEN,
        source="ours",
    ),
)


def draw(results: Results, theme_name: str) -> Figure:
    """Mean regret over the size of the violation: a jump, and a creep."""
    shown = (LINUCB, ISD_ORACLE, ISD_ESTIMATED, AUTO)
    with theme(theme_name) as colours:
        figure, axes = panels(colours, 2, height=3.3, sharey=True)
        for axis, cells in zip(axes, CELLS.values(), strict=True):
            places = {"none": KEPT.name, **{f"{size:g}": cell.name for size, cell in cells.items()}}
            over_setting(axis, Sample(results), places, shown, theme_name)
            axis.set_yscale("log")
            axis.yaxis.set_major_formatter("{x:g}")
            axis.yaxis.set_minor_formatter("")
            axis.set_xlabel("how far the stable part moves")
        axes[0].set_title("it jumps before the first round")
        axes[1].set_title("it creeps away over all rounds")
        axes[1].set_ylabel("")
        legend(figure, axes[0], columns=4)
    return figure


EXPERIMENT = Experiment(
    name="violated-invariance",
    title="When the stable part is not stable",
    question="The logs promise that seven dimensions never change. What if they do, once the policy is live?",
    cells=(KEPT, *(cell for cells in CELLS.values() for cell in cells.values())),
    claims=CLAIMS,
    draw=draw,
    caption="T0 = 3,500, T = 500; the invariant coefficients move in a random direction by the distance shown (their"
    " own length is about 0.8). Logarithmic axis; bars are two standard errors.",
    place=8,
)
EXPERIMENTS.add(EXPERIMENT)
