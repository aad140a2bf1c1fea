"""Beyond the paper: AutoISD against all, in worlds that keep and that break the assumptions."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from invariant_bandits.experiments import cells as who
from invariant_bandits.experiments.cells import Cell, named
from invariant_bandits.experiments.claims import Bound, Claim, Results, Sample, ratio
from invariant_bandits.experiments.figures import logged_rounds, online_drift
from invariant_bandits.experiments.figures.drawing import look
from invariant_bandits.experiments.figures.experiment import EXPERIMENTS, Experiment
from invariant_bandits.reports.plots import regret_chart
from invariant_bandits.simulation.episodes import PaperEpisodes
from invariant_bandits.simulation.paper import PaperWorld

PLAYED = (who.LINUCB, who.LINUCB_TUNED, who.GREEDY, who.LINUCB_WARM, who.ISD_ESTIMATED, who.AUTO)
OWN = {
    "nothing drifts (T0 = 1,000)": ("no-drift", PaperEpisodes(PaperWorld(varying=None), logged=1000)),
    "weak drift (0.2)": ("weak-drift", PaperEpisodes(PaperWorld(drift=0.2), logged=3500)),
    "logs of a greedy policy": ("greedy-logs", PaperEpisodes(PaperWorld(logging="greedy"), logged=3500)),
    "logs of an ε-greedy policy": (
        "epsilon-greedy-logs",
        PaperEpisodes(PaperWorld(logging="epsilon-greedy"), logged=3500),
    ),
    "well-conditioned (T0 = 1,000)": (
        "well-conditioned",
        PaperEpisodes(PaperWorld(conditioning="well"), logged=1000),
    ),
    "heavy-tailed noise (t, 3 degrees)": ("heavy-tails", PaperEpisodes(PaperWorld(noise="t"), logged=3500)),
    "abrupt changes online": ("abrupt", PaperEpisodes(logged=3500, online="abrupt")),
    "recurring changes online": ("recurring", PaperEpisodes(logged=3500, online="recurring")),
    "20 fixed actions (T = 1,000)": ("fixed-actions", PaperEpisodes(logged=3500, fixed_actions=20)),
}
WORLDS = {
    "the paper (T0 = 1,000)": logged_rounds.CELLS[1000],
    "the paper (T0 = 8,000)": logged_rounds.CELLS[8000],
    "stable part jumps by 2": online_drift.VIOLATED["jump"][2.0],
    "stable part creeps by 2": online_drift.VIOLATED["creep"][2.0],
    "fast rotation online": online_drift.ROTATION,
    **{
        words: Cell(name, environment, 1000 if name == "fixed-actions" else 500, named(*PLAYED))
        for words, (name, environment) in OWN.items()
    },
}


def draw(results: Results, theme_name: str) -> Figure:
    """Mean and worst run of every policy in every world."""
    sample = Sample(results)
    shown = (who.LINUCB, who.LINUCB_TUNED, who.LINUCB_WARM, who.ISD_ESTIMATED, who.AUTO)
    chart = {}
    for words, cell in WORLDS.items():
        finals = {policy: sample.final(cell.name, policy) for policy in shown if policy in cell.policies}
        chart[words] = {policy: (float(np.mean(v)), float(v.max())) for policy, v in finals.items()}
    styles = {policy: look(policy, theme_name) for policy in shown}
    looks = {policy: (str(style["color"]), str(style["marker"])) for policy, style in styles.items()}
    return regret_chart(chart, theme_name=theme_name, looks=looks)


EXPERIMENTS.add(
    Experiment(
        name="hedge",
        cells=tuple(WORLDS.values()),
        claims=tuple(
            Claim(
                f"AutoISD below {rival}: {words}",
                f"AutoISD has a lower mean regret than {rival}, in every world where both play.",
                "ratio of mean regrets",
                *(ratio(cell.name, who.AUTO, rival), Bound(high=1.0), (cell.name,)),
                source="ours",
            )
            for rival in PLAYED
            for words, cell in WORLDS.items()
            if rival != who.AUTO and rival in cell.policies
        ),
        draw=draw,
    )
)
