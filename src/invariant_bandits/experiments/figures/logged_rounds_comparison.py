"""Figure (f): the comparison over T0 with SW- and D-linUCB."""

from __future__ import annotations

from matplotlib.figure import Figure

from invariant_bandits.experiments.claims import Results, Sample
from invariant_bandits.experiments.contenders import D_LINUCB, ISD_ESTIMATED, ISD_ORACLE, LINUCB, SW_LINUCB
from invariant_bandits.experiments.figures.dimension_comparison import SW_RADIUS, comparable
from invariant_bandits.experiments.figures.drawing import legend, over_setting, panels
from invariant_bandits.experiments.figures.experiment import EXPERIMENTS, Experiment
from invariant_bandits.experiments.figures.logged_rounds import ALL, CELLS
from invariant_bandits.reports.plots import theme


def draw(results: Results, theme_name: str) -> Figure:
    """Mean regret over T0, five policies."""
    places = {f"{logged:,}": cell.name for logged, cell in CELLS.items()}
    with theme(theme_name) as colours:
        figure, (axis,) = panels(colours, 1)
        shown = (LINUCB, SW_LINUCB, D_LINUCB, ISD_ORACLE, ISD_ESTIMATED)
        over_setting(axis, Sample(results), places, shown, theme_name)
        axis.set_xlabel("logged rounds T0")
        axis.set_ylim(bottom=0.0)
        legend(figure, axis)
    return figure


EXPERIMENT = Experiment(
    name="logged-rounds-comparison",
    title="Policies that forget, over the number of logged rounds",
    question="The same comparison with SW- and D-linUCB where the split is estimated.",
    cells=tuple(CELLS.values()),
    claims=(*comparable(SW_LINUCB, ALL, "T0"), *comparable(D_LINUCB, ALL, "T0")),
    draw=draw,
    caption="T = 500, all repetitions; SW-linUCB with window T, D-linUCB with discount 0.999. " + SW_RADIUS,
    place=6,
)
EXPERIMENTS.add(EXPERIMENT)
