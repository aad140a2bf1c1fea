"""What moves while policies play: fast rotation of the drifting part (the seventh), and of what had been
stable.
"""

from __future__ import annotations

from matplotlib.figure import Figure

from invariant_bandits.experiments import cells as who
from invariant_bandits.experiments.cells import Cell, named
from invariant_bandits.experiments.claims import Bound, Claim, Results, Sample, largest_ratio, ratio
from invariant_bandits.experiments.figures import drawing, logged_rounds
from invariant_bandits.experiments.figures.experiment import EXPERIMENTS, Experiment, PublishedResult
from invariant_bandits.plotting import theme
from invariant_bandits.policies.registry import Contender
from invariant_bandits.simulation.episodes import PaperEpisodes
from invariant_bandits.simulation.paper import PaperWorld

SW = "SW-linUCB, window 25"
D = "D-linUCB, 0.85"
ISD_SW = "ISD-linUCB, oracle subspaces, window 25"
ISD_SW_ESTIMATED = "ISD-linUCB, estimated, window 25"
RADII = (
    "The levels of the policies that forget depend on constants of their radii which the paper does not"
    " state, above all the bound L on the length of a feature vector: here L = 1 and the radius published"
    " with each memory."
)
ROTATION = Cell(
    name="fast-rotation",
    environment=PaperEpisodes(
        PaperWorld(blocks=(8, 2), varying=1, regimes=5), logged=2000, windows=5, online="rotating"
    ),
    horizon=500,
    policies={
        **named(who.LINUCB, who.LINUCB_TUNED, who.GREEDY),
        SW: Contender("sw-linucb", {"window": 25}),
        D: Contender("d-linucb", {"discount": 0.85}),
        ISD_SW: Contender("isd-linucb", {"split": "oracle", "window": 25}),
        ISD_SW_ESTIMATED: Contender("isd-linucb", {"window": 25}),
        **named(who.AUTO),
    },
    observe="split",
)


def draw_rotation(results: Results, theme_name: str) -> Figure:
    """Mean regret over the rounds: left all, right only the low ones."""
    low = (ISD_SW, ISD_SW_ESTIMATED, who.AUTO)
    every = (who.LINUCB, who.LINUCB_TUNED, who.GREEDY, SW, D, *low)
    with theme(theme_name) as colours:
        figure, (left, right) = drawing.panels(colours, 2, height=3.4)
        drawing.over_rounds(left, Sample(results), ROTATION.name, every, theme_name)
        drawing.over_rounds(right, Sample(results), ROTATION.name, low, theme_name)
        left.set_title("all policies")
        right.set_title("the lowest three, enlarged")
        right.set_ylabel("")
        drawing.legend(figure, left, columns=2)
    return figure


EXPERIMENTS.add(
    Experiment(
        name="fast-rotation",
        cells=(ROTATION,),
        claims=tuple(
            Claim(
                f"{policy} below {factor:g} × {rival}",
                f"Under fast rotation {policy} has at most {factor:g} times the regret of {rival}.",
                "ratio of mean regrets",
                *(ratio(ROTATION.name, policy, rival), Bound(high=factor), (ROTATION.name,), source),
            )
            for policy, rival, factor, source in (
                (ISD_SW, SW, 0.5, "paper"),
                (ISD_SW, who.LINUCB, 0.5, "paper"),
                (who.AUTO, ISD_SW, 1.0, "ours"),
                (who.AUTO, who.LINUCB_TUNED, 1.0, "ours"),
            )
        ),
        draw=draw_rotation,
        levels=(
            PublishedResult(ROTATION.name, who.LINUCB, 137.0),
            PublishedResult(ROTATION.name, SW, 170.0, why=RADII),
            PublishedResult(ROTATION.name, D, 327.0, why=RADII),
            PublishedResult(ROTATION.name, ISD_SW, 36.0, why=RADII),
        ),
    )
)

UNBROKEN = logged_rounds.CELLS[3500]
VIOLATED = {
    breach: {
        size: Cell(
            f"{breach}-{size:g}",
            PaperEpisodes(logged=3500, violation=size, breach=breach),
            *(
                500,
                named(who.LINUCB, who.LINUCB_TUNED, who.GREEDY, who.ISD_ORACLE, who.ISD_ESTIMATED, who.AUTO),
            ),
        )
        for size in (0.5, 1.0, 2.0)
    }
    for breach in ("jump", "creep")
}
VIOLATED_CELLS = tuple(cell for cells in VIOLATED.values() for cell in cells.values())
BROKEN = tuple(cell.name for cell in VIOLATED_CELLS)


def draw_violated(results: Results, theme_name: str) -> Figure:
    """Mean regret over the size of the violation: a jump, and a creep."""
    shown = (who.LINUCB, who.ISD_ORACLE, who.ISD_ESTIMATED, who.AUTO)
    with theme(theme_name) as colours:
        figure, axes = drawing.panels(colours, 2, height=3.3, sharey=True)
        for axis, cells in zip(axes, VIOLATED.values(), strict=True):
            places = {"none": UNBROKEN.name, **{f"{size:g}": cell.name for size, cell in cells.items()}}
            drawing.over_setting(axis, Sample(results), places, shown, theme_name)
            drawing.plain_log_axis(axis)
            axis.set_xlabel("how far the stable part moves")
        axes[0].set_title("it jumps before the first round")
        axes[1].set_title("it creeps away over all rounds")
        axes[1].set_ylabel("")
        drawing.legend(figure, axes[0], columns=4)
    return figure


def _violated_claim(name: str, statement: str, rival: str, cells: tuple[str, ...]) -> Claim:
    statistic = largest_ratio(cells, who.AUTO, rival)
    return Claim(
        name, statement, "largest ratio of mean regrets", statistic, Bound(high=1.0), cells, source="ours"
    )


EXPERIMENTS.add(
    Experiment(
        name="violated-invariance",
        cells=(UNBROKEN, *VIOLATED_CELLS),
        claims=(
            Claim(
                "ISD-linUCB breaks when invariance does",
                "When the stable part jumps by 2, ISD-linUCB is worse than LinUCB.",
                "ratio of mean regrets",
                ratio(VIOLATED["jump"][2.0].name, who.ISD_ESTIMATED, who.LINUCB),
                *(Bound(low=1.0), (VIOLATED["jump"][2.0].name,)),
                source="ours",
            ),
            _violated_claim(
                "AutoISD below LinUCB whatever happens to invariance",
                "AutoISD stays below LinUCB, kept or violated.",
                *(who.LINUCB, (UNBROKEN.name, *BROKEN)),
            ),
            _violated_claim(
                "AutoISD below tuned LinUCB whatever happens to invariance",
                "… and below LinUCB with a tuned exploration (0.3).",
                *(who.LINUCB_TUNED, BROKEN),
            ),
        ),
        draw=draw_violated,
    )
)
