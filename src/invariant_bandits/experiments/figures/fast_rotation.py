"""The seventh experiment: the drifting part rotates fast while the policies play."""

from __future__ import annotations

from matplotlib.figure import Figure

from invariant_bandits.experiments.cells import AUTO, GREEDY, LINUCB, LINUCB_TUNED, NAMED, Cell
from invariant_bandits.experiments.claims import Bound, Claim, Results, Sample, ratio
from invariant_bandits.experiments.figures.drawing import legend, over_rounds, panels
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
    "The levels of the policies that forget depend on constants of their radii which the paper does not state, above"
    " all the bound L on the length of a feature vector: here L = 1 and the radius published with each memory."
)
CELL = Cell(
    name="fast-rotation",
    environment=PaperEpisodes(
        PaperWorld(blocks=(8, 2), varying=1, regimes=5), logged=2000, windows=5, online="rotating"
    ),
    horizon=500,
    policies={
        **{name: NAMED[name] for name in (LINUCB, LINUCB_TUNED, GREEDY)},
        SW: Contender("sw-linucb", {"window": 25}),
        D: Contender("d-linucb", {"discount": 0.85}),
        ISD_SW: Contender("isd-linucb", {"split": "oracle", "window": 25}),
        ISD_SW_ESTIMATED: Contender("isd-linucb", {"window": 25}),
        AUTO: NAMED[AUTO],
    },
    observe="split",
)


def _below(policy: str, rival: str, factor: float, source: str) -> Claim:
    return Claim(
        name=f"{policy} below {factor:g} × {rival}",
        statement=f"Under fast rotation {policy} has at most {factor:g} times the regret of {rival}.",
        quantity="ratio of mean regrets",
        statistic=ratio(CELL.name, policy, rival),
        bound=Bound(high=factor),
        cells=(CELL.name,),
        source=source,
    )


def draw(results: Results, theme_name: str) -> Figure:
    """Mean regret over the rounds: left all, right only the low ones."""
    sample = Sample(results)
    low = (ISD_SW, ISD_SW_ESTIMATED, AUTO)
    with theme(theme_name) as colours:
        figure, (left, right) = panels(colours, 2, height=3.4)
        over_rounds(left, sample, CELL.name, (LINUCB, LINUCB_TUNED, GREEDY, SW, D, *low), theme_name)
        over_rounds(right, sample, CELL.name, low, theme_name)
        left.set_title("all policies")
        right.set_title("the lowest three, enlarged")
        right.set_ylabel("")
        legend(figure, left, columns=2)
    return figure


EXPERIMENT = Experiment(
    name="fast-rotation",
    title="The drifting part rotates fast online",
    question="What if the drifting dimensions never come to rest? Here their coefficients turn round and round.",
    cells=(CELL,),
    claims=(
        _below(ISD_SW, SW, 0.5, "paper"),
        _below(ISD_SW, LINUCB, 0.5, "paper"),
        _below(AUTO, ISD_SW, 1.0, "ours"),
        _below(AUTO, LINUCB_TUNED, 1.0, "ours"),
    ),
    draw=draw,
    caption="p = 10, of which 2 drift; T0 = 2,000, T = 500; bands are two standard errors. AutoISD needs no window.",
    levels=(
        PublishedResult(CELL.name, LINUCB, 137.0),
        PublishedResult(CELL.name, SW, 170.0, why=RADII),
        PublishedResult(CELL.name, D, 327.0, why=RADII),
        PublishedResult(CELL.name, ISD_SW, 36.0, why=RADII),
    ),
    place=7,
)
EXPERIMENTS.add(EXPERIMENT)
