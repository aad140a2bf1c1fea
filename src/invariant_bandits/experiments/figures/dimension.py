"""Figure (b): LinUCB pays for every dimension, ISD-linUCB only for the drifting ones."""

from __future__ import annotations

from matplotlib.figure import Figure

from invariant_bandits.experiments.cells import AUTO, D_LINUCB, ISD_ORACLE, LINUCB, NAMED, SW_LINUCB, Cell
from invariant_bandits.experiments.claims import (
    Bound,
    Claim,
    Results,
    Sample,
    largest_ratio,
    ratio_of_trends,
    smallest_ratio,
    straightness,
    trend,
)
from invariant_bandits.experiments.figures.drawing import legend, over_setting, panels
from invariant_bandits.experiments.figures.experiment import EXPERIMENTS, Experiment, PublishedResult
from invariant_bandits.plotting import theme
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


SW_RADIUS = (
    "With a window of T rounds nothing is ever forgotten: SW-linUCB differs from LinUCB by its radius alone. The"
    " published one, σ√(d·log((1 + wL²/λ)/δ)) + √λ·S, is wider than LinUCB's log-determinant, and what it explores"
    " more is the whole difference."
)


def comparable(policy: str, cells: tuple[str, ...], over: str) -> tuple[Claim, Claim]:
    """Within a tenth of LinUCB, from above and from below, in every cell."""
    statement = f"In this stationary online phase {policy} is comparable to LinUCB, for every {over}."
    high = Claim(
        name=f"{policy} comparable, not above, over {over}",
        statement=statement,
        quantity="largest ratio of its mean regret to LinUCB's",
        statistic=largest_ratio(cells, policy, LINUCB),
        bound=Bound(high=1.1),
        cells=cells,
    )
    low = Claim(
        name=f"{policy} comparable, not below, over {over}",
        statement=statement,
        quantity="smallest ratio of its mean regret to LinUCB's",
        statistic=smallest_ratio(cells, policy, LINUCB),
        bound=Bound(low=0.9),
        cells=cells,
    )
    return high, low


def draw_dimension_comparison(results: Results, theme_name: str) -> Figure:
    """Mean regret over p, four policies."""
    with theme(theme_name) as colours:
        figure, (axis,) = panels(colours, 1)
        over_setting(axis, Sample(results), PLACES, (LINUCB, SW_LINUCB, D_LINUCB, ISD_ORACLE), theme_name)
        axis.set_xlabel("number of features p, of which 2 drift")
        axis.set_ylim(bottom=0.0)
        legend(figure, axis, columns=4)
    return figure


EXPERIMENT_dimension_comparison = Experiment(
    name="dimension-comparison",
    title="Policies that forget, over the number of features",
    question="Online nothing changes. Do policies made for change, SW- and D-linUCB, do as LinUCB does?",
    cells=tuple(CELLS.values()),
    claims=(*comparable(SW_LINUCB, ALL, "p"), *comparable(D_LINUCB, ALL, "p")),
    draw=draw_dimension_comparison,
    caption="As the figure before, with SW-linUCB (window T) and D-linUCB (discount 0.999). " + SW_RADIUS,
    place=5,
)
EXPERIMENTS.add(EXPERIMENT_dimension_comparison)
