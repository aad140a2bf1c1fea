"""The appendix's lower bound: on the hypercube with residual coefficients ±1/√T nobody does better."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from matplotlib.figure import Figure

from invariant_bandits.experiments.cells import AUTO, GREEDY, ISD_KNOWN, ISD_ORACLE, LINUCB, LINUCB_TUNED, NAMED, Cell
from invariant_bandits.experiments.claims import Bound, Claim, Results, Sample
from invariant_bandits.experiments.figures.drawing import legend, over_setting, panels
from invariant_bandits.experiments.figures.experiment import EXPERIMENTS, Experiment
from invariant_bandits.plotting import theme
from invariant_bandits.policies.radii import regret_lower_bound
from invariant_bandits.simulation.lower_bound import HypercubeEpisodes

HORIZON = 500
PLAYED = {name: NAMED[name] for name in (LINUCB, LINUCB_TUNED, GREEDY, ISD_KNOWN, ISD_ORACLE, AUTO)}
CELLS = {
    p_res: Cell(
        name=f"lower-bound-{p_res}",
        environment=HypercubeEpisodes(residual_dim=p_res),
        horizon=HORIZON,
        policies=PLAYED,
    )
    for p_res in (1, 2, 3, 4)
}
ALL = tuple(cell.name for cell in CELLS.values())


def smallest_multiple(policy: str) -> Callable[[Sample], float]:
    """Mean regret in units of e⁻²/8·p_res·√T, where it is lowest over p_res."""
    return lambda sample: min(
        sample.mean(cell.name, policy) / regret_lower_bound(HORIZON, p_res) for p_res, cell in CELLS.items()
    )


CLAIMS = tuple(
    Claim(
        name=f"lower bound: {policy}",
        statement="Averaged over the instances, no policy has less than e⁻²/8·p_res·√T of regret.",
        quantity="mean regret in units of the bound, smallest over p_res",
        statistic=smallest_multiple(policy),
        bound=Bound(low=1.0),
        cells=ALL,
    )
    for policy in PLAYED
)


def draw(results: Results, theme_name: str) -> Figure:
    """Mean regret over p_res, with the bound."""
    places = {p_res: cell.name for p_res, cell in CELLS.items()}
    with theme(theme_name) as colours:
        figure, (axis,) = panels(colours, 1)
        over_setting(axis, Sample(results), places, tuple(PLAYED), theme_name)
        at = np.array(list(CELLS), dtype=float)
        bound = [regret_lower_bound(HORIZON, p_res) for p_res in CELLS]
        axis.plot(at, bound, color=colours["ink"], lw=2.2, label="lower bound")
        axis.fill_between(at, 0.0, bound, color=colours["ink"], alpha=0.12, lw=0)
        axis.set_xlabel("drifting dimensions p_res")
        axis.set_ylim(bottom=0.0)
        legend(figure, axis)
    return figure


EXPERIMENT = Experiment(
    name="lower-bound",
    title="The lower bound",
    question="Is there a world in which even full knowledge of the stable part leaves a regret of order p_res·√T?",
    cells=tuple(CELLS.values()),
    claims=CLAIMS,
    draw=draw,
    caption="Actions are the vertices of the hypercube, residual coefficients ±1/√T with random signs, T = 500; the"
    " mean over repetitions estimates the mean over instances. Bars are two standard errors.",
    place=9,
)
EXPERIMENTS.add(EXPERIMENT)
