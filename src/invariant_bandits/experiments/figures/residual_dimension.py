"""Figure (a): regret of ISD-linUCB with oracle subspaces over the number of drifting dimensions."""

from __future__ import annotations

from matplotlib.figure import Figure

from invariant_bandits.experiments.cells import AUTO, ISD_ORACLE, LINUCB, NAMED, Cell
from invariant_bandits.experiments.claims import Bound, Claim, Results, Sample, growth_exponent, straightness, trend
from invariant_bandits.experiments.figures.drawing import PALETTE, distributions, look, over_rounds, panels
from invariant_bandits.experiments.figures.experiment import CHANCE, EXPERIMENTS, Experiment, PublishedResult
from invariant_bandits.plotting import theme
from invariant_bandits.simulation.episodes import PaperEpisodes
from invariant_bandits.simulation.paper import PaperWorld

DRIFTING_BLOCKS = {2: (3,), 4: (0,), 6: (0, 3), 8: (0, 1, 2)}
"""p_res -> which of the blocks of sizes (4, 1, 3, 2) drift."""
CELLS = {
    p_res: Cell(
        name=f"residual-{p_res}",
        environment=PaperEpisodes(PaperWorld(varying=blocks, regimes=5), logged=2000, windows=5),
        horizon=100,
        policies={name: NAMED[name] for name in (LINUCB, ISD_ORACLE, AUTO)},
    )
    for p_res, blocks in DRIFTING_BLOCKS.items()
}
NAMES = {float(p_res): cell.name for p_res, cell in CELLS.items()}

CLAIMS = (
    *(
        Claim(
            name=f"sublinear in T, p_res = {p_res}",
            statement="The regret of ISD-linUCB grows sublinearly in T.",
            quantity="slope of log regret over log t",
            statistic=growth_exponent(cell.name, ISD_ORACLE),
            bound=Bound(high=1.0),
            cells=(cell.name,),
        )
        for p_res, cell in CELLS.items()
    ),
    Claim(
        name="grows with p_res",
        statement="The regret of ISD-linUCB grows with the number of drifting dimensions.",
        quantity="regret per further dimension",
        statistic=trend(NAMES, ISD_ORACLE),
        bound=Bound(low=0.0),
        cells=tuple(NAMES.values()),
    ),
    Claim(
        name="linear in p_res",
        statement="It does so (approximately) linearly.",
        quantity="R² of a straight line through the means",
        statistic=straightness(NAMES, ISD_ORACLE),
        bound=Bound(low=0.9),
        cells=tuple(NAMES.values()),
    ),
)

LEVELS = tuple(
    PublishedResult(CELLS[p_res].name, policy, published, why=CHANCE)
    for policy, levels in ((LINUCB, (36, 38, 35, 40)), (ISD_ORACLE, (11, 18, 21, 36)))
    for p_res, published in zip(CELLS, levels, strict=True)
)


def draw(results: Results, theme_name: str) -> Figure:
    """Left: mean regret over rounds; right: every repetition at the horizon."""
    sample = Sample(results)
    shades = ("sky", "blue", "green", "violet")
    with theme(theme_name) as colours:
        figure, (left, right) = panels(colours, 2, sharey=False)
        for shade, (p_res, cell) in zip(shades, CELLS.items(), strict=True):
            over_rounds(left, sample, cell.name, (ISD_ORACLE,), theme_name)
            line, band = left.lines[-1], left.collections[-1]
            line.set(
                color=PALETTE[theme_name][shade], label=f"p_res = {p_res}", marker="osD^"[shades.index(shade)], ls="-"
            )
            band.set_facecolor(PALETTE[theme_name][shade])
        left.set_ylim(0.0, 1.35 * left.get_ylim()[1])
        left.legend(frameon=False, loc="upper left", ncols=2)
        left.set_title("ISD-linUCB, oracle subspaces: mean")
        groups = {str(p_res): sample.final(cell.name, ISD_ORACLE) for p_res, cell in CELLS.items()}
        distributions(right, groups, look(ISD_ORACLE, theme_name)["color"], colours["ink"])
        right.set_xlabel("drifting dimensions p_res")
        right.set_title("after 100 rounds: every repetition")
    return figure


EXPERIMENT = Experiment(
    name="residual-dimension",
    title="Regret over the number of drifting dimensions",
    question="If the split is known, does the regret follow the number of drifting dimensions, p_res, not p = 10?",
    cells=tuple(CELLS.values()),
    claims=CLAIMS,
    draw=draw,
    caption="p = 10, T0 = 2,000 logged rounds, T = 100. Left: mean over repetitions, band of two standard errors. "
    "Right: all repetitions, box from the lower to the upper quartile with the median.",
    levels=LEVELS,
    place=1,
)
EXPERIMENTS.add(EXPERIMENT)
