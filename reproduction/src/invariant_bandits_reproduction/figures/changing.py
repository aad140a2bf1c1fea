"""What moves while policies play: fast rotation of the drifting part (the authors' seventh experiment), and
what had been stable; and AutoISD against all, in worlds that keep or break the assumptions.
"""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from invariant_bandits.policies.registry import PolicySpec
from invariant_bandits.reports.plots import regret_chart
from invariant_bandits.simulation.cells import Cell
from invariant_bandits.simulation.episodes import PaperEpisodes
from invariant_bandits.simulation.paper import PaperWorld
from invariant_bandits_reproduction import contenders as who
from invariant_bandits_reproduction.claims import Bound, Claim
from invariant_bandits_reproduction.contenders import named
from invariant_bandits_reproduction.figures import drawing
from invariant_bandits_reproduction.figures.experiment import (
    EXPERIMENTS,
    RADII,
    Experiment,
    Panel,
    PublishedResult,
)
from invariant_bandits_reproduction.figures.stationary import CODE
from invariant_bandits_reproduction.regret_claims import (
    BootstrapTest,
    Results,
    Sample,
    below,
    ratio,
)

SW = "SW-linUCB, window 25"
D = "D-linUCB, 0.85"
ISD_SW = "ISD-linUCB, oracle subspaces, window 25"
ISD_SW_ESTIMATED = "ISD-linUCB, estimated, window 25"
ROTATION = Cell(
    name="fast-rotation",
    environment=PaperEpisodes(
        PaperWorld(blocks=(8, 2), varying=1, regimes=5),
        logged=2000,
        windows=5,
        online="rotating",
    ),
    horizon=500,
    policies={
        **named(who.LINUCB, who.LINUCB_TUNED, who.GREEDY),
        SW: PolicySpec("sw-linucb", {"window": 25}),
        D: PolicySpec("d-linucb", {"discount": 0.85}),
        ISD_SW: PolicySpec("isd-linucb", {"split": "oracle", "window": 25}),
        ISD_SW_ESTIMATED: PolicySpec("isd-linucb", {"window": 25}),
        **named(who.AUTO),
    },
    observe="split",
)
"""The authors' seventh experiment, with our policies beside theirs."""


def draw_rotation(results: Results, theme_name: str) -> Figure:
    """Mean regret over the rounds: left all, right only the low ones."""
    low = (ISD_SW, ISD_SW_ESTIMATED, who.AUTO)
    every = (who.LINUCB, who.LINUCB_TUNED, who.GREEDY, SW, D, *low)
    with drawing.panels(theme_name, 2, height=3.4) as (figure, (left, right)):
        drawing.over_rounds(left, Sample(results), ROTATION.name, every, theme_name)
        drawing.over_rounds(right, Sample(results), ROTATION.name, low, theme_name)
        left.set_title("all policies")
        right.set(title="the lowest three, enlarged", ylabel="")
        drawing.legend(figure, left, columns=2)
    return figure


def rotation_claim(policy: str, rival: str, factor: float) -> Claim:
    """Return the claim that a policy has at most a share of another's regret under fast rotation."""
    return Claim(
        statement=(
            f"Under fast rotation {policy} has at most {factor:g} times the regret"
            f" of {rival}."
        ),
        name=f"{policy} below {factor:g} × {rival}",
        quantity="ratio of mean regrets",
        test=below((ROTATION.name,), (policy, rival), "{value} times", factor),
    )


EXPERIMENTS.add(
    Experiment(
        name="fast-rotation",
        title="The drifting part rotates fast online",
        paper=(
            "not in the paper; the authors' later experiment, which Appendix B.2"
            " proposes"
        ),
        question=(
            "What if the drifting dimensions never come to rest? Here their"
            " coefficients turn round and round."
        ),
        caption=(
            "p = 10, of which 2 drift; T0 = 2,000, T = 500; bands are two"
            " standard errors. AutoISD needs no window."
        ),
        cells=(ROTATION,),
        claims=(
            rotation_claim(ISD_SW, SW, 0.5),
            rotation_claim(ISD_SW, who.LINUCB, 0.5),
            rotation_claim(who.AUTO, ISD_SW, 1.0),
            rotation_claim(who.AUTO, who.LINUCB_TUNED, 1.0),
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

UNBROKEN = CODE.logged[3500]
"""The cell of the paper in which invariance holds, with as many logged rounds."""
FACING_VIOLATION = named(
    who.LINUCB,
    who.LINUCB_TUNED,
    who.GREEDY,
    who.ISD_ORACLE,
    who.ISD_ESTIMATED,
    who.AUTO,
)
VIOLATED = {
    breach: {
        size: Cell(
            f"{breach}-{size:g}",
            PaperEpisodes(logged=3500, violation=size, breach=breach),
            *(500, FACING_VIOLATION),
        )
        for size in (0.5, 1.0, 2.0)
    }
    for breach in ("jump", "creep")
}
"""Breach -> size of the violation -> cell; the invariant part has a length of about 0.8."""
VIOLATED_CELLS = tuple(cell for cells in VIOLATED.values() for cell in cells.values())
BROKEN = tuple(cell.name for cell in VIOLATED_CELLS)


VIOLATED_PANELS = {
    breach: Panel(
        {
            "none": UNBROKEN.name,
            **{f"{size:g}": cell.name for size, cell in of_breach.items()},
        },
        (who.LINUCB, who.ISD_ORACLE, who.ISD_ESTIMATED, who.AUTO),
    )
    for breach, of_breach in VIOLATED.items()
}


def draw_violated(results: Results, theme_name: str) -> Figure:
    """Mean regret over the size of the violation: a jump, and a creep."""
    with drawing.panels(theme_name, 2, height=3.3, sharey=True) as (figure, axes):
        for axis, panel in zip(axes, VIOLATED_PANELS.values(), strict=True):
            drawing.over_setting(axis, results, panel, theme_name)
            drawing.plain_log_axis(axis)
            axis.set_xlabel("how far the stable part moves")
        axes[0].set_title("it jumps before the first round")
        axes[1].set(title="it creeps away over all rounds", ylabel="")
        drawing.legend(figure, axes[0], columns=4)
    return figure


LARGEST_JUMP = VIOLATED["jump"][2.0].name
"""Where ISD-linUCB must break."""
VIOLATED_CLAIMS = (
    Claim(
        statement="When the stable part jumps by 2, ISD-linUCB is worse than LinUCB.",
        name="ISD-linUCB breaks when invariance does",
        quantity="ratio of mean regrets",
        test=BootstrapTest(
            ratio(LARGEST_JUMP, who.ISD_ESTIMATED, who.LINUCB),
            Bound(low=1.0),
            cells=(LARGEST_JUMP,),
            reading="{value} times",
        ),
    ),
    Claim(
        statement="AutoISD stays below LinUCB, with invariance kept or violated.",
        name="AutoISD below LinUCB whatever happens to invariance",
        quantity="largest ratio of mean regrets",
        test=below(
            (UNBROKEN.name, *BROKEN),
            (who.AUTO, who.LINUCB),
            "{value} times in the worst world",
        ),
    ),
    Claim(
        statement=(
            "With invariance violated AutoISD stays below LinUCB with a tuned"
            " exploration (0.3)."
        ),
        name="AutoISD below tuned LinUCB whatever happens to invariance",
        quantity="largest ratio of mean regrets",
        test=below(
            BROKEN, (who.AUTO, who.LINUCB_TUNED), "{value} times in the worst world"
        ),
    ),
)
"""What a violation does to ISD-linUCB, and not to AutoISD."""
EXPERIMENTS.add(
    Experiment(
        name="violated-invariance",
        title="When the stable part is not stable",
        paper="no figure; what if Assumption 1 is broken",
        question=(
            "The logs promise that seven dimensions never change. What if they"
            " do, once the policy is live?"
        ),
        caption=(
            "T0 = 3,500, T = 500; the invariant coefficients move in a random"
            " direction by the distance shown (their own length is about 0.8)."
            " Logarithmic axis; bars are two standard errors."
        ),
        cells=(UNBROKEN, *VIOLATED_CELLS),
        claims=VIOLATED_CLAIMS,
        draw=draw_violated,
        panels=tuple(VIOLATED_PANELS.values()),
    )
)

PLAYED = (
    who.LINUCB,
    who.LINUCB_TUNED,
    who.GREEDY,
    who.LINUCB_WARM,
    who.ISD_ESTIMATED,
    who.AUTO,
)
FIXED, AUTO_FREE = "20 fixed actions (T = 1,000)", "AutoISD, caution None"


def _played_cell(name: str, environment: PaperEpisodes) -> Cell:
    return Cell(name, environment, 500, named(*PLAYED))


WORLDS = {
    "the paper (T0 = 1,000)": CODE.logged[1000],
    "the paper (T0 = 8,000)": CODE.logged[8000],
    "stable part jumps by 2": VIOLATED["jump"][2.0],
    "stable part creeps by 2": VIOLATED["creep"][2.0],
    "fast rotation online": ROTATION,
    "nothing drifts (T0 = 1,000)": _played_cell(
        "no-drift", PaperEpisodes(PaperWorld(varying=None), logged=1000)
    ),
    "weak drift (0.2)": _played_cell(
        "weak-drift", PaperEpisodes(PaperWorld(drift=0.2), logged=3500)
    ),
    "logs of a greedy policy": _played_cell(
        "greedy-logs", PaperEpisodes(PaperWorld(logging="greedy"), logged=3500)
    ),
    "logs of an ε-greedy policy": _played_cell(
        "epsilon-greedy-logs",
        PaperEpisodes(PaperWorld(logging="epsilon-greedy"), logged=3500),
    ),
    "well-conditioned (T0 = 1,000)": _played_cell(
        "well-conditioned", PaperEpisodes(PaperWorld(conditioning="well"), logged=1000)
    ),
    "heavy-tailed noise (t, 3 degrees)": _played_cell(
        "heavy-tails", PaperEpisodes(PaperWorld(noise="t"), logged=3500)
    ),
    "abrupt changes online": _played_cell(
        "abrupt", PaperEpisodes(logged=3500, online="abrupt")
    ),
    "recurring changes online": _played_cell(
        "recurring", PaperEpisodes(logged=3500, online="recurring")
    ),
    FIXED: Cell(
        "fixed-actions",
        PaperEpisodes(logged=3500, fixed_actions=20),
        1000,
        {**named(*PLAYED), AUTO_FREE: PolicySpec("auto-isd", {"caution": None})},
    ),
}
"""With fixed actions caution None is recommended: both play there."""


def draw_hedge(results: Results, theme_name: str) -> Figure:
    """Mean and worst run of every policy in every world."""
    sample = Sample(results)
    shown = (*PLAYED, AUTO_FREE)
    chart = {}
    for words, cell in WORLDS.items():
        finals = {
            policy: sample.final(cell.name, policy)
            for policy in shown
            if policy in cell.policies
        }
        chart[words] = {
            policy: (float(np.mean(v)), float(v.max())) for policy, v in finals.items()
        }
    styles = {policy: drawing.look(policy, theme_name) for policy in shown}
    looks = {
        policy: (str(style["color"]), str(style["marker"]))
        for policy, style in styles.items()
    }
    return regret_chart(chart, theme_name=theme_name, looks=looks)


def hedge_claim(policy: str, rival: str, world: str) -> Claim:
    """Return the claim that a policy has less regret than another in a world."""
    reading = f"{{value}} times with {world}"
    return Claim(
        statement=(
            f"{policy} has a lower mean regret than {rival}, in every world where"
            " both play."
        ),
        name=f"{policy} below {rival}: {world}",
        quantity="ratio of mean regrets",
        test=below((WORLDS[world].name,), (policy, rival), reading),
    )


EXPERIMENTS.add(
    Experiment(
        name="hedge",
        title="AutoISD against all",
        paper="no figure; beyond the paper",
        question=(
            "One policy without tuning, in worlds that keep the paper's"
            " assumptions and in worlds that break them."
        ),
        caption=(
            "Mean regret (mark) and worst run (end of the line) on a logarithmic"
            " axis; to the left is better. T0 = 3,500 and T = 500 unless the row"
            " says otherwise."
        ),
        cells=tuple(WORLDS.values()),
        claims=tuple(
            hedge_claim(policy, rival, world)
            for policy in (who.AUTO, AUTO_FREE)
            for rival in PLAYED
            for world, cell in WORLDS.items()
            if rival != who.AUTO and {policy, rival} <= cell.policies.keys()
        ),
        draw=draw_hedge,
    )
)
