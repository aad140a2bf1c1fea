"""Figure (b): LinUCB pays for every dimension, ISD-linUCB only for the drifting ones."""

from __future__ import annotations

from matplotlib.figure import Figure

from invariant_bandits.experiments.cells import Cell
from invariant_bandits.experiments.claims import Bound, Claim, Results, Sample
from invariant_bandits.experiments.contenders import AUTO, D_LINUCB, ISD_ORACLE, LINUCB, NAMED, SW_LINUCB
from invariant_bandits.experiments.figures.drawing import legend, over_setting, panels
from invariant_bandits.experiments.figures.experiment import EXPERIMENTS, Experiment, PublishedResult
from invariant_bandits.experiments.statistics import largest_ratio, ratio_of_trends, straightness, trend
from invariant_bandits.reports.plots import theme
from invariant_bandits.simulation.episodes import PaperEpisodes
from invariant_bandits.simulation.paper import PaperWorld

CELLS = {
    p: Cell(
        name=f"dimension-{p}",
        environment=PaperEpisodes(PaperWorld(blocks=(p - 2, 2), varying=1, regimes=5), logged=2000, windows=5),
        horizon=100,
        policies={name: NAMED[name] for name in (LINUCB, SW_LINUCB, D_LINUCB, ISD_ORACLE, AUTO)},
    )
    for p in range(3, 11)
}
NAMES = {float(p): cell.name for p, cell in CELLS.items()}
PLACES = {p: cell.name for p, cell in CELLS.items()}
ALL = tuple(NAMES.values())

CLAIMS = (
    Claim(
        name="LinUCB grows with p",
        statement="The regret of LinUCB increases with the number of features p.",
        quantity="regret per further feature",
        statistic=trend(NAMES, LINUCB),
        bound=Bound(low=0.0),
        cells=ALL,
    ),
    Claim(
        name="LinUCB linear in p",
        statement="It does so linearly.",
        quantity="R² of a straight line through the means",
        statistic=straightness(NAMES, LINUCB),
        bound=Bound(low=0.9),
        cells=ALL,
    ),
    Claim(
        name="ISD-linUCB flat in p",
        statement="The regret of ISD-linUCB remains approximately constant, since p_res is fixed.",
        quantity="its slope over p, as a share of LinUCB's",
        statistic=ratio_of_trends(NAMES, ISD_ORACLE, LINUCB),
        bound=Bound(low=-0.2, high=0.2),
        cells=ALL,
    ),
    Claim(
        name="AutoISD below ISD-linUCB for every p",
        statement="AutoISD, which is not told the split, stays below ISD-linUCB, which is.",
        quantity="largest ratio of mean regrets over p",
        statistic=largest_ratio(ALL, AUTO, ISD_ORACLE),
        bound=Bound(high=1.0),
        cells=ALL,
        source="ours",
    ),
)

LEVELS = tuple(
    PublishedResult(cell.name, LINUCB, published)
    for cell, published in zip(CELLS.values(), (12, 14, 18, 23, 26, 30, 32, 38), strict=True)
) + tuple(PublishedResult(cell.name, ISD_ORACLE, 7.0) for cell in CELLS.values())


def draw(results: Results, theme_name: str) -> Figure:
    """Mean regret over p."""
    with theme(theme_name) as colours:
        figure, (axis,) = panels(colours, 1)
        over_setting(axis, Sample(results), PLACES, (LINUCB, ISD_ORACLE, AUTO), theme_name)
        axis.set_xlabel("number of features p, of which 2 drift")
        axis.set_ylim(bottom=0.0)
        legend(figure, axis)
    return figure


EXPERIMENT = Experiment(
    name="dimension",
    title="Regret over the number of features",
    question="Two dimensions drift, more and more features are stable: who has to learn them again?",
    cells=tuple(CELLS.values()),
    claims=CLAIMS,
    draw=draw,
    caption="p_res = 2, T0 = 2,000, T = 100: mean regret after 100 rounds; bars are two standard errors.",
    levels=LEVELS,
    place=2,
)
EXPERIMENTS.add(EXPERIMENT)
