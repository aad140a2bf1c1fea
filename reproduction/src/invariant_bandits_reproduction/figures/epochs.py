"""What the theory beyond one epoch says: twenty epochs after 200 logged rounds, and horizons from a tenth to
ten times the logged rounds.
"""

from __future__ import annotations

from functools import partial

from matplotlib.figure import Figure

from invariant_bandits.policies.registry import PolicySpec
from invariant_bandits.simulation.cells import Cell
from invariant_bandits_reproduction import contenders as who
from invariant_bandits_reproduction.claims import Bound, Claim
from invariant_bandits_reproduction.contenders import AUTO, ISD_ESTIMATED, LINUCB
from invariant_bandits_reproduction.figures import drawing
from invariant_bandits_reproduction.figures.experiment import (
    EXPERIMENTS,
    Experiment,
    Panel,
)
from invariant_bandits_reproduction.printed_world import (
    EpochEpisodes,
    PrintedEpisodes,
    PrintedWorld,
)
from invariant_bandits_reproduction.regret_claims import (
    BootstrapTest,
    Results,
    Sample,
    below,
    ratio,
)

LOGGED = 200
"""T0 of both experiments: so few rounds that what online rounds add to them shows."""
WORLD = PrintedWorld(blocks=(8, 2))
KNOWN = {"norm_bound": WORLD.norm_bound}

# -- epochs --

EPOCH = 100
EPOCHS = 20
RESTART = "Restart-linUCB"
ISD_RESTART = "ISD-linUCB, estimated, restarted"
ISD_RECOMPUTED = "ISD-linUCB, estimated, restarted and recomputed"
IN_EPOCHS = EpochEpisodes(WORLD, logged=LOGGED, windows=5, epoch=EPOCH)
RESTARTED = {"every": EPOCH, **KNOWN}
EPOCHS_CELL = Cell(
    "epochs",
    IN_EPOCHS,
    EPOCHS * EPOCH,
    {
        RESTART: PolicySpec("restart-linucb", RESTARTED),
        ISD_RESTART: PolicySpec("isd-linucb", {**RESTARTED, **who.SELF_NORMALISED}),
        **who.named(AUTO),
    },
)
RECOMPUTED_CELL = Cell(
    "epochs-recomputed",
    IN_EPOCHS,
    EPOCHS * EPOCH,
    {
        ISD_RESTART: PolicySpec("isd-linucb", {**RESTARTED, **who.SELF_NORMALISED}),
        ISD_RECOMPUTED: PolicySpec(
            "isd-linucb", {"recompute_every": EPOCH, **RESTARTED}
        ),
    },
)
"""The same rounds."""


def lower_claim(cell: Cell, policy: str, rival: str, factor: float) -> Claim:
    """Return the claim that a policy has at most a share of another's regret over all epochs."""
    return Claim(
        statement=(
            f"Over {EPOCHS} epochs {policy} has at most {factor:g} times the regret"
            f" of {rival}."
        ),
        name=f"epochs: {policy} below {factor:g} × {rival}",
        quantity="ratio of mean regrets",
        test=below((cell.name,), (policy, rival), "{value} times", factor),
    )


def draw_epochs(cell: Cell, results: Results, theme_name: str) -> Figure:
    """Mean regret over the rounds of all epochs."""
    policies = tuple(cell.policies)
    with drawing.panels(theme_name, 1, height=3.4) as (figure, (axis,)):
        drawing.over_rounds(axis, Sample(results), cell.name, policies, theme_name)
        drawing.legend(figure, axis, columns=2)
    return figure


EXPERIMENTS.add(
    Experiment(
        name="epochs",
        title="Many epochs after few logged rounds",
        paper="no figure; Section 2, where observations move to the logs",
        question=(
            "The drifting coefficients are drawn anew in every epoch. Who pays for"
            " the stable ones only once?"
        ),
        caption=(
            f"p = 10, of which 2 drift; T0 = {LOGGED}, {EPOCHS} epochs of {EPOCH}"
            " rounds. Restarts know when an epoch ends; AutoISD does not. Bands are"
            " two standard errors."
        ),
        cells=(EPOCHS_CELL,),
        claims=(
            lower_claim(EPOCHS_CELL, ISD_RESTART, RESTART, 0.5),
            lower_claim(EPOCHS_CELL, AUTO, ISD_RESTART, 0.5),
        ),
        draw=partial(draw_epochs, EPOCHS_CELL),
    )
)
EXPERIMENTS.add(
    Experiment(
        name="epochs-recomputed",
        title="Many epochs, with the split estimated again after each",
        paper="no figure; Section 2, where observations move to the logs",
        question=(
            "If the rounds of every epoch join the logs, does the stable part become"
            " better than that of the few logged rounds?"
        ),
        caption=(
            "The rounds of the experiment on epochs; the split and the stable part are"
            f" estimated again every {EPOCH} rounds. Bands are two standard errors."
        ),
        cells=(RECOMPUTED_CELL,),
        claims=(lower_claim(RECOMPUTED_CELL, ISD_RECOMPUTED, ISD_RESTART, 1.0),),
        draw=partial(draw_epochs, RECOMPUTED_CELL),
        is_slow=True,
    )
)

# -- horizons --

JOINT = "ISD-linUCB, joint set, estimated"
OVER_HORIZON = {
    **who.named(LINUCB, ISD_ESTIMATED, **KNOWN),
    JOINT: PolicySpec("isd-linucb", {"radius": "joint", **KNOWN}),
    **who.named(AUTO),
}
HORIZON_CELLS = {
    horizon: Cell(
        f"horizon-{horizon}",
        PrintedEpisodes(WORLD, logged=LOGGED, windows=5),
        horizon,
        OVER_HORIZON,
    )
    for horizon in (20, 60, 200, 600, 2000)
}
HORIZONS = {f"{horizon:,}": cell.name for horizon, cell in HORIZON_CELLS.items()}
SHORTEST, *_, LONGEST = HORIZONS.values()


def draw_horizons(results: Results, theme_name: str) -> Figure:
    """Mean regret at the horizon over its length."""
    panel = HORIZON_PANEL
    with drawing.panels(theme_name, 1, height=3.4) as (figure, (axis,)):
        drawing.over_setting(axis, results, panel, theme_name)
        drawing.plain_log_axis(axis)
        axis.set_xlabel(f"online rounds T, after T0 = {LOGGED} logged rounds")
        drawing.legend(figure, axis, columns=2)
    return figure


HORIZON_PANEL = Panel(HORIZONS, tuple(OVER_HORIZON))
HORIZON_CLAIMS = (
    Claim(
        statement=(
            "With few online rounds ISD-linUCB has at most half of LinUCB's regret."
        ),
        name="ISD-linUCB below LinUCB at T = T0/10",
        quantity="ratio of mean regrets",
        test=below((SHORTEST,), (ISD_ESTIMATED, LINUCB), "{value} times", 0.5),
    ),
    Claim(
        statement=(
            "With ten times as many online rounds as logged ones the self-normalised"
            " radius costs more than the logs are worth: ISD-linUCB has more regret"
            " than LinUCB, though invariance holds."
        ),
        name="ISD-linUCB above LinUCB at T = 10 × T0",
        quantity="ratio of mean regrets",
        test=BootstrapTest(
            ratio(LONGEST, ISD_ESTIMATED, LINUCB),
            Bound(low=1.0),
            cells=(LONGEST,),
            reading="{value} times",
        ),
    ),
    Claim(
        statement=(
            "With the joint set ISD-linUCB has at most half of LinUCB's regret at"
            " every horizon."
        ),
        name="joint set below LinUCB at every horizon",
        quantity="largest ratio of mean regrets over T",
        test=below(
            HORIZONS.values(), (JOINT, LINUCB), "{value} times at the worst T", 0.5
        ),
    ),
    Claim(
        statement="AutoISD stays below ISD-linUCB with the joint set at every horizon.",
        name="AutoISD below the joint set at every horizon",
        quantity="largest ratio of mean regrets over T",
        test=below(HORIZONS.values(), (AUTO, JOINT), "{value} times at the worst T"),
    ),
)
EXPERIMENTS.add(
    Experiment(
        name="horizon",
        title="From few online rounds to many",
        paper="no figure; Theorem 3 for T far beyond T0",
        question=(
            "How long do the logs help, and when does the error that they leave in"
            " the stable part dominate?"
        ),
        caption=(
            f"p = 10, of which 2 drift; T0 = {LOGGED}, T from a tenth of it to ten"
            " times as many rounds. Both axes are not linear; bars are two standard"
            " errors."
        ),
        cells=tuple(HORIZON_CELLS.values()),
        claims=HORIZON_CLAIMS,
        draw=draw_horizons,
        panels=(HORIZON_PANEL,),
    )
)
