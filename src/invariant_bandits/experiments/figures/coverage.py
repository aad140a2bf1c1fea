"""Do the confidence widths contain the truth as often as promised, while the policies play?"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from matplotlib.figure import Figure

from invariant_bandits.experiments.cells import AUTO, ISD_ESTIMATED, ISD_KNOWN, ISD_ORACLE, LINUCB, NAMED, Cell
from invariant_bandits.experiments.claims import Bound, Claim, Results, Sample
from invariant_bandits.experiments.figures.drawing import look, panels
from invariant_bandits.experiments.figures.experiment import EXPERIMENTS, Experiment
from invariant_bandits.plotting import theme
from invariant_bandits.simulation.episodes import PaperEpisodes

HORIZON = 500
PLAYED = (LINUCB, ISD_KNOWN, ISD_ORACLE, ISD_ESTIMATED, AUTO)
CELLS = {
    logged: Cell(
        name=f"coverage-{logged}",
        environment=PaperEpisodes(logged=logged),
        horizon=HORIZON,
        policies={name: NAMED[name] for name in PLAYED},
        observe="coverage",
    )
    for logged in (1000,)
}
PROMISED = 1.0 - 1.0 / HORIZON


def share_of_rounds(cell: str, policy: str) -> Callable[[Sample], float]:
    """Mean over repetitions of the share of rounds in which mean ± width holds all true means."""
    return lambda sample: float(sample.observed(cell, policy, "rounds covered").mean())


CLAIMS = tuple(
    Claim(
        name=f"covered, {policy}, T0 = {logged}",
        statement="mean ± width holds the true means of all offered actions in at least 1 − η of the rounds, η = 1/T.",
        quantity="share of rounds covered",
        statistic=share_of_rounds(cell.name, policy),
        bound=Bound(low=PROMISED),
        cells=(cell.name,),
        source="ours" if policy == AUTO else "paper",
    )
    for logged, cell in CELLS.items()
    for policy in PLAYED
)


def draw(results: Results, theme_name: str) -> Figure:
    """Share of rounds, and of repetitions, that are not covered."""
    sample = Sample(results)
    floor = 1e-4
    with theme(theme_name) as colours:
        figure, axes = panels(colours, 1, height=2.4)
        for axis, (logged, cell) in zip(axes, CELLS.items(), strict=True):
            for place, policy in enumerate(PLAYED):
                rounds = 1.0 - sample.observed(cell.name, policy, "rounds covered").mean()
                runs = 1.0 - sample.observed(cell.name, policy, "covered").mean()
                style = look(policy, theme_name)
                axis.plot(max(rounds, floor), place, ls="", marker="o", ms=7, color=style["color"])
                axis.plot(max(runs, floor), place, ls="", marker="o", ms=7, mfc="none", color=style["color"])
            axis.axvline(1.0 / HORIZON, color=colours["ink"], lw=1.0, ls="--")
            axis.set_xscale("log")
            axis.set_xlim(floor / 1.5, 1.0)
            axis.set_xticks([floor, 1e-3, 1e-2, 1e-1, 1.0], ["0", "0.001", "0.01", "0.1", "1"])
            axis.set_title(f"T0 = {logged:,}, T = {HORIZON}")
            axis.set_xlabel("not covered (line: η = 1/T)")
        axes[0].set_yticks(np.arange(len(PLAYED)), PLAYED)
        axes[0].invert_yaxis()
    return figure


EXPERIMENT = Experiment(
    name="coverage",
    title="Coverage of the confidence widths",
    question="A low regret does not validate a radius. Does mean ± width contain the truth as often as it promises?",
    cells=tuple(CELLS.values()),
    claims=CLAIMS,
    draw=draw,
    caption="Full dots: share of rounds in which some offered action's true mean lies outside mean ± width; open dots:"
    " share of repetitions with at least one such round. T = 500, η = 1/T; the leftmost tick stands for none at all.",
    place=10,
)
EXPERIMENTS.add(EXPERIMENT)
