"""Figure (e): the comparison over p with SW- and D-linUCB."""

from __future__ import annotations

from matplotlib.figure import Figure

from invariant_bandits.experiments.claims import Bound, Claim, Results, Sample
from invariant_bandits.experiments.contenders import D_LINUCB, ISD_ORACLE, LINUCB, SW_LINUCB
from invariant_bandits.experiments.figures.dimension import ALL, CELLS, PLACES
from invariant_bandits.experiments.figures.drawing import legend, over_setting, panels
from invariant_bandits.experiments.figures.experiment import EXPERIMENTS, Experiment
from invariant_bandits.experiments.statistics import largest_ratio, smallest_ratio
from invariant_bandits.reports.plots import theme

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


def draw(results: Results, theme_name: str) -> Figure:
    """Mean regret over p, four policies."""
    with theme(theme_name) as colours:
        figure, (axis,) = panels(colours, 1)
        over_setting(axis, Sample(results), PLACES, (LINUCB, SW_LINUCB, D_LINUCB, ISD_ORACLE), theme_name)
        axis.set_xlabel("number of features p, of which 2 drift")
        axis.set_ylim(bottom=0.0)
        legend(figure, axis, columns=4)
    return figure


EXPERIMENT = Experiment(
    name="dimension-comparison",
    title="Policies that forget, over the number of features",
    question="Online nothing changes. Do policies made for change, SW- and D-linUCB, do as LinUCB does?",
    cells=tuple(CELLS.values()),
    claims=(*comparable(SW_LINUCB, ALL, "p"), *comparable(D_LINUCB, ALL, "p")),
    draw=draw,
    caption="As the figure before, with SW-linUCB (window T) and D-linUCB (discount 0.999). " + SW_RADIUS,
    place=5,
)
EXPERIMENTS.add(EXPERIMENT)
