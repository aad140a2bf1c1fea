"""What moves while policies play: fast rotation of the drifting part (the authors' seventh experiment), and
what had been stable; and AutoISD against all, in worlds that keep or break the assumptions.
"""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from invariant_bandits.policies.registry import Contender
from invariant_bandits.reports.plots import regret_chart
from invariant_bandits.simulation.cells import Cell
from invariant_bandits.simulation.episodes import PaperEpisodes
from invariant_bandits.simulation.paper import PaperWorld
from invariant_bandits_reproduction import contenders as who
from invariant_bandits_reproduction.claims import (
    Bound,
    Claim,
    Results,
    Sample,
    below,
    ratio,
)
from invariant_bandits_reproduction.contenders import named
from invariant_bandits_reproduction.figures import drawing
from invariant_bandits_reproduction.figures.experiment import (
    REASONS,
    TEXTS,
    Panel,
    PublishedResult,
    add_experiment,
    claim_words,
)
from invariant_bandits_reproduction.figures.stationary import LOGGED_CELLS

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
    with drawing.panels(theme_name, 2, height=3.4) as (figure, (left, right)):
        drawing.over_rounds(left, Sample(results), ROTATION.name, every, theme_name)
        drawing.over_rounds(right, Sample(results), ROTATION.name, low, theme_name)
        left.set_title("all policies")
        right.set(title="the lowest three, enlarged", ylabel="")
        drawing.legend(figure, left, columns=2)
    return figure


add_experiment(
    name="fast-rotation",
    cells=(ROTATION,),
    claims=tuple(
        below(
            *claim_words(
                "fast-rotation", "below", policy=policy, rival=rival, factor=factor
            ),
            cells=(ROTATION.name,),
            policies=(policy, rival),
            most=factor,
            source=source,
        )
        for policy, rival, factor, source in (
            (ISD_SW, SW, 0.5, "ours"),
            (ISD_SW, who.LINUCB, 0.5, "ours"),
            (who.AUTO, ISD_SW, 1.0, "ours"),
            (who.AUTO, who.LINUCB_TUNED, 1.0, "ours"),
        )
    ),
    draw=draw_rotation,
    levels=(
        PublishedResult(ROTATION.name, who.LINUCB, 137.0),
        PublishedResult(ROTATION.name, SW, 170.0, why=REASONS["radii"]),
        PublishedResult(ROTATION.name, D, 327.0, why=REASONS["radii"]),
        PublishedResult(ROTATION.name, ISD_SW, 36.0, why=REASONS["radii"]),
    ),
)

UNBROKEN = LOGGED_CELLS[3500]
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


add_experiment(
    name="violated-invariance",
    cells=(UNBROKEN, *VIOLATED_CELLS),
    claims=(
        Claim(
            *claim_words("violated-invariance", "breaks"),
            ratio(VIOLATED["jump"][2.0].name, who.ISD_ESTIMATED, who.LINUCB),
            *(Bound(low=1.0), (VIOLATED["jump"][2.0].name,), "ours"),
        ),
        below(
            *claim_words("violated-invariance", "below LinUCB"),
            *((UNBROKEN.name, *BROKEN), (who.AUTO, who.LINUCB)),
        ),
        below(
            *claim_words("violated-invariance", "below tuned"),
            BROKEN,
            (who.AUTO, who.LINUCB_TUNED),
        ),
    ),
    draw=draw_violated,
    panels=tuple(VIOLATED_PANELS.values()),
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
OWN = {
    "no-drift": PaperEpisodes(PaperWorld(varying=None), logged=1000),
    "weak-drift": PaperEpisodes(PaperWorld(drift=0.2), logged=3500),
    "greedy-logs": PaperEpisodes(PaperWorld(logging="greedy"), logged=3500),
    "epsilon-greedy-logs": PaperEpisodes(
        PaperWorld(logging="epsilon-greedy"), logged=3500
    ),
    "well-conditioned": PaperEpisodes(PaperWorld(conditioning="well"), logged=1000),
    "heavy-tails": PaperEpisodes(PaperWorld(noise="t"), logged=3500),
    "abrupt": PaperEpisodes(logged=3500, online="abrupt"),
    "recurring": PaperEpisodes(logged=3500, online="recurring"),
}
WORLDS = {
    "the paper (T0 = 1,000)": LOGGED_CELLS[1000],
    "the paper (T0 = 8,000)": LOGGED_CELLS[8000],
    "stable part jumps by 2": VIOLATED["jump"][2.0],
    "stable part creeps by 2": VIOLATED["creep"][2.0],
    "fast rotation online": ROTATION,
    **{
        TEXTS["hedge"]["worlds"][name]: Cell(name, of, 500, named(*PLAYED))
        for name, of in OWN.items()
    },
    FIXED: Cell(
        "fixed-actions",
        PaperEpisodes(logged=3500, fixed_actions=20),
        1000,
        {**named(*PLAYED), AUTO_FREE: Contender("auto-isd", {"caution": None})},
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


add_experiment(
    name="hedge",
    cells=WORLDS.values(),
    claims=tuple(
        below(
            *claim_words("hedge", "below", policy=auto, rival=rival, world=words),
            *((cell.name,), (auto, rival)),
        )
        for auto in (who.AUTO, AUTO_FREE)
        for rival in PLAYED
        for words, cell in WORLDS.items()
        if rival != who.AUTO and {auto, rival} <= cell.policies.keys()
    ),
    draw=draw_hedge,
)
