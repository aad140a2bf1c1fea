"""Beyond the paper: AutoISD against all, in worlds that keep and that break the assumptions."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from invariant_bandits.experiments.cells import (
    AUTO,
    GREEDY,
    ISD_ESTIMATED,
    LINUCB,
    LINUCB_TUNED,
    LINUCB_WARM,
    NAMED,
    Cell,
)
from invariant_bandits.experiments.claims import Bound, Claim, Results, Sample, ratio
from invariant_bandits.experiments.figures import fast_rotation, logged_rounds, violated_invariance
from invariant_bandits.experiments.figures.drawing import look
from invariant_bandits.experiments.figures.experiment import EXPERIMENTS, Experiment
from invariant_bandits.reports.plots import regret_chart
from invariant_bandits.simulation.episodes import PaperEpisodes
from invariant_bandits.simulation.paper import PaperWorld

PLAYED = (LINUCB, LINUCB_TUNED, GREEDY, LINUCB_WARM, ISD_ESTIMATED, AUTO)


def _cell(name: str, environment: PaperEpisodes, horizon: int = 500) -> Cell:
    return Cell(name, environment, horizon, {policy: NAMED[policy] for policy in PLAYED})


OWN = {
    "nothing drifts (T0 = 1,000)": _cell("no-drift", PaperEpisodes(PaperWorld(varying=None), logged=1000)),
    "weak drift (0.2)": _cell("weak-drift", PaperEpisodes(PaperWorld(drift=0.2), logged=3500)),
    "logs of a greedy policy": _cell("greedy-logs", PaperEpisodes(PaperWorld(logging="greedy"), logged=3500)),
    "logs of an ε-greedy policy": _cell(
        "epsilon-greedy-logs", PaperEpisodes(PaperWorld(logging="epsilon-greedy"), logged=3500)
    ),
    "well-conditioned (T0 = 1,000)": _cell(
        "well-conditioned", PaperEpisodes(PaperWorld(conditioning="well"), logged=1000)
    ),
    "heavy-tailed noise (t, 3 degrees)": _cell("heavy-tails", PaperEpisodes(PaperWorld(noise="t"), logged=3500)),
    "abrupt changes online": _cell("abrupt", PaperEpisodes(logged=3500, online="abrupt")),
    "recurring changes online": _cell("recurring", PaperEpisodes(logged=3500, online="recurring")),
    "20 fixed actions (T = 1,000)": _cell("fixed-actions", PaperEpisodes(logged=3500, fixed_actions=20), horizon=1000),
}
SHARED = {
    "the paper (T0 = 1,000)": logged_rounds.CELLS[1000],
    "the paper (T0 = 8,000)": logged_rounds.CELLS[8000],
    "stable part jumps by 2": violated_invariance.CELLS["jump"][2.0],
    "stable part creeps by 2": violated_invariance.CELLS["creep"][2.0],
    "fast rotation online": fast_rotation.CELL,
}
ROWS = {**SHARED, **OWN}

CLAIMS = tuple(
    Claim(
        name=f"AutoISD below {rival}: {words}",
        statement=f"AutoISD has a lower mean regret than {rival}, in every world where both play.",
        quantity="ratio of mean regrets",
        statistic=ratio(cell.name, AUTO, rival),
        bound=Bound(high=1.0),
        cells=(cell.name,),
        source="ours",
    )
    for rival in PLAYED
    for words, cell in ROWS.items()
    if rival != AUTO and rival in cell.policies
)


def draw(results: Results, theme_name: str) -> Figure:
    """Mean and worst run of every policy in every world."""
    sample = Sample(results)
    shown = (LINUCB, LINUCB_TUNED, LINUCB_WARM, ISD_ESTIMATED, AUTO)
    chart = {}
    for words, cell in ROWS.items():
        finals = {policy: sample.final(cell.name, policy) for policy in shown if policy in cell.policies}
        chart[words] = {policy: (float(np.mean(values)), float(values.max())) for policy, values in finals.items()}
    looks = {
        policy: (str(look(policy, theme_name)["color"]), str(look(policy, theme_name)["marker"])) for policy in shown
    }
    return regret_chart(chart, theme_name=theme_name, looks=looks)


EXPERIMENT = Experiment(
    name="hedge",
    title="AutoISD against all",
    question="One policy without tuning, in worlds that keep the paper's assumptions and in worlds that break them.",
    cells=tuple(ROWS.values()),
    claims=CLAIMS,
    draw=draw,
    caption="Mean regret (mark) and worst run (end of the line) on a logarithmic axis; to the left is better."
    " T0 = 3,500 and T = 500 unless the row says otherwise.",
    place=11,
)
EXPERIMENTS.add(EXPERIMENT)
