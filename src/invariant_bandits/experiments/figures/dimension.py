"""Regret over the number of drifting dimensions (figure a) and of all features (figures b and e)."""

from __future__ import annotations

from matplotlib.figure import Figure

from invariant_bandits.experiments.cells import AUTO, D_LINUCB, ISD_ORACLE, LINUCB, SW_LINUCB, Cell, named
from invariant_bandits.experiments.claims import (
    Bound,
    Claim,
    Results,
    Sample,
    growth_exponent,
    largest_ratio,
    ratio_of_trends,
    smallest_ratio,
    straightness,
    trend,
)
from invariant_bandits.experiments.figures import drawing
from invariant_bandits.experiments.figures.experiment import CHANCE, EXPERIMENTS, Experiment, PublishedResult
from invariant_bandits.plotting import theme
from invariant_bandits.simulation.episodes import PaperEpisodes
from invariant_bandits.simulation.paper import PaperWorld

DRIFTING_BLOCKS = {2: (3,), 4: (0,), 6: (0, 3), 8: (0, 1, 2)}
"""p_res -> which of the blocks of sizes (4, 1, 3, 2) drift."""


def _cell(name: str, world: PaperWorld, *policies: str) -> Cell:
    return Cell(name, PaperEpisodes(world, logged=2000, windows=5), 100, named(*policies))


RESIDUAL_CELLS = {
    p_res: _cell(f"residual-{p_res}", PaperWorld(varying=blocks, regimes=5), LINUCB, ISD_ORACLE, AUTO)
    for p_res, blocks in DRIFTING_BLOCKS.items()
}
RESIDUAL = {p_res: cell.name for p_res, cell in RESIDUAL_CELLS.items()}
DIMENSION_CELLS = {
    p: _cell(
        f"dimension-{p}",
        PaperWorld(blocks=(p - 2, 2), varying=1, regimes=5),
        *(LINUCB, SW_LINUCB, D_LINUCB, ISD_ORACLE, AUTO),
    )
    for p in range(3, 11)
}
DIMENSION = {p: cell.name for p, cell in DIMENSION_CELLS.items()}


def grows_linearly(
    cells: dict[int, str], policy: str, names: tuple[str, str], statements: tuple[str, str], unit: str
) -> tuple[Claim, Claim]:
    """The claims that the mean regret of a policy grows with a setting, and that it does so on a straight
    line.
    """
    every = tuple(cells.values())
    grows = trend(cells, policy), Bound(low=0.0), every
    straight = straightness(cells, policy), Bound(low=0.9), every
    return (
        Claim(names[0], statements[0], f"regret per further {unit}", *grows),
        Claim(names[1], statements[1], "R² of a straight line through the means", *straight),
    )


def draw_residual(results: Results, theme_name: str) -> Figure:
    """Left: mean regret over rounds; right: every repetition at the horizon."""
    sample, palette = Sample(results), drawing.PALETTE[theme_name]
    with theme(theme_name) as colours:
        figure, (left, right) = drawing.panels(colours, 2, sharey=False)
        for shade, marker, (p_res, cell) in zip(
            ("sky", "blue", "green", "violet"), "osD^", RESIDUAL.items(), strict=True
        ):
            drawing.over_rounds(left, sample, cell, (ISD_ORACLE,), theme_name)
            left.lines[-1].set(color=palette[shade], label=f"p_res = {p_res}", marker=marker, ls="-")
            left.collections[-1].set_facecolor(palette[shade])
        left.set_ylim(0.0, 1.35 * left.get_ylim()[1])
        left.legend(frameon=False, loc="upper left", ncols=2)
        left.set_title("ISD-linUCB, oracle subspaces: mean")
        groups = {str(p_res): sample.final(cell, ISD_ORACLE) for p_res, cell in RESIDUAL.items()}
        drawing.distributions(right, groups, drawing.look(ISD_ORACLE, theme_name)["color"], colours["ink"])
        right.set_xlabel("drifting dimensions p_res")
        right.set_title("after 100 rounds: every repetition")
    return figure


EXPERIMENTS.add(
    Experiment(
        name="residual-dimension",
        cells=tuple(RESIDUAL_CELLS.values()),
        claims=(
            *(
                Claim(
                    f"sublinear in T, p_res = {p_res}",
                    "The regret of ISD-linUCB grows sublinearly in T.",
                    "slope of log regret over log t",
                    *(growth_exponent(cell, ISD_ORACLE), Bound(high=1.0), (cell,)),
                )
                for p_res, cell in RESIDUAL.items()
            ),
            *grows_linearly(
                *(RESIDUAL, ISD_ORACLE, ("grows with p_res", "linear in p_res")),
                (
                    "The regret of ISD-linUCB grows with the number of drifting dimensions.",
                    "It does so (approximately) linearly.",
                ),
                "dimension",
            ),
        ),
        draw=draw_residual,
        levels=tuple(
            PublishedResult(cell, policy, published, why=CHANCE)
            for policy, levels in ((LINUCB, (36, 38, 35, 40)), (ISD_ORACLE, (11, 18, 21, 36)))
            for cell, published in zip(RESIDUAL.values(), levels, strict=True)
        ),
    )
)
EXPERIMENTS.add(
    Experiment(
        name="dimension",
        cells=tuple(DIMENSION_CELLS.values()),
        claims=(
            *grows_linearly(
                *(DIMENSION, LINUCB, ("LinUCB grows with p", "LinUCB linear in p")),
                ("The regret of LinUCB increases with the number of features p.", "It does so linearly."),
                "feature",
            ),
            Claim(
                "ISD-linUCB flat in p",
                "The regret of ISD-linUCB remains approximately constant, since p_res is fixed.",
                "its slope over p, as a share of LinUCB's",
                ratio_of_trends(DIMENSION, ISD_ORACLE, LINUCB),
                Bound(low=-0.2, high=0.2),
                tuple(DIMENSION.values()),
            ),
            Claim(
                "AutoISD below ISD-linUCB for every p",
                "AutoISD, which does not know the split, stays below ISD-linUCB, which does.",
                "largest ratio of mean regrets over p",
                largest_ratio(DIMENSION.values(), AUTO, ISD_ORACLE),
                Bound(high=1.0),
                tuple(DIMENSION.values()),
                source="ours",
            ),
        ),
        draw=drawing.over_setting_figure(
            DIMENSION, (LINUCB, ISD_ORACLE, AUTO), "number of features p, of which 2 drift"
        ),
        levels=(
            *map(PublishedResult, DIMENSION.values(), [LINUCB] * 8, (12, 14, 18, 23, 26, 30, 32, 38)),
            *(PublishedResult(cell, ISD_ORACLE, 7.0) for cell in DIMENSION.values()),
        ),
    )
)


def comparable(cells: tuple[str, ...], over: str) -> tuple[Claim, ...]:
    """SW- and D-linUCB within a tenth of LinUCB, from above and from below, in every cell."""
    return tuple(
        Claim(
            f"{policy} comparable, not {side}, over {over}",
            f"In this stationary online phase {policy} is comparable to LinUCB, for every {over}.",
            f"{which} ratio of its mean regret to LinUCB's",
            *(statistic(cells, policy, LINUCB), bound, cells),
        )
        for policy in (SW_LINUCB, D_LINUCB)
        for side, which, statistic, bound in (
            ("above", "largest", largest_ratio, Bound(high=1.1)),
            ("below", "smallest", smallest_ratio, Bound(low=0.9)),
        )
    )


EXPERIMENTS.add(
    Experiment(
        name="dimension-comparison",
        cells=tuple(DIMENSION_CELLS.values()),
        claims=comparable(tuple(DIMENSION.values()), "p"),
        draw=drawing.over_setting_figure(
            DIMENSION,
            (LINUCB, SW_LINUCB, D_LINUCB, ISD_ORACLE),
            "number of features p, of which 2 drift",
            columns=4,
        ),
    )
)
