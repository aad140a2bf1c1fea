"""What theory promises: the appendix's lower bound on regret, and the coverage of the confidence widths."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from matplotlib.figure import Figure

from invariant_bandits.plotting import THEMES
from invariant_bandits.policies.radii import regret_lower_bound
from invariant_bandits.policies.registry import Contender
from invariant_bandits.simulation.cells import Cell
from invariant_bandits.simulation.episodes import HypercubeEpisodes, PaperEpisodes
from invariant_bandits.simulation.paper import PaperWorld
from invariant_bandits_reproduction import contenders as who
from invariant_bandits_reproduction.claims import Bound, Claim, Results, Sample
from invariant_bandits_reproduction.contenders import named
from invariant_bandits_reproduction.figures.drawing import (
    legend,
    look,
    over_setting,
    panels,
)
from invariant_bandits_reproduction.figures.experiment import (
    Panel,
    add_experiment,
    claim_words,
)

HORIZON = 500
HYPERCUBE_POLICIES = named(
    who.LINUCB, who.LINUCB_TUNED, who.GREEDY, who.ISD_KNOWN, who.ISD_ORACLE, who.AUTO
)
HYPERCUBE_CELLS = {
    p_res: Cell(
        f"lower-bound-{p_res}",
        HypercubeEpisodes(residual_dim=p_res),
        HORIZON,
        HYPERCUBE_POLICIES,
    )
    for p_res in (1, 2, 3, 4)
}
HYPERCUBE = {p_res: cell.name for p_res, cell in HYPERCUBE_CELLS.items()}


def smallest_multiple(policy: str) -> Callable[[Sample], float]:
    """Mean regret in units of e⁻²/8·p_res·√T, where it is lowest over p_res."""
    return lambda sample: min(
        sample.mean(cell, policy) / regret_lower_bound(HORIZON, p_res)
        for p_res, cell in HYPERCUBE.items()
    )


def draw_lower_bound(results: Results, theme_name: str) -> Figure:
    """Mean regret over p_res, with the bound."""
    ink = THEMES[theme_name]["ink"]
    with panels(theme_name, 1) as (figure, (axis,)):
        panel = Panel(HYPERCUBE, tuple(HYPERCUBE_POLICIES))
        over_setting(axis, results, panel, theme_name)
        at = np.array(list(HYPERCUBE), dtype=float)
        bound = [regret_lower_bound(HORIZON, p_res) for p_res in HYPERCUBE]
        axis.plot(at, bound, color=ink, lw=2.2, label="lower bound")
        axis.fill_between(at, 0.0, bound, color=ink, alpha=0.12, lw=0)
        axis.set(xlabel="drifting dimensions p_res", ylim=(0.0, None))
        legend(figure, axis)
    return figure


add_experiment(
    name="lower-bound",
    cells=HYPERCUBE_CELLS.values(),
    claims=tuple(
        Claim(
            *claim_words("lower-bound", "bound", policy=policy),
            smallest_multiple(policy),
            Bound(low=1.0),
            tuple(HYPERCUBE.values()),
            source="check",
        )
        for policy in HYPERCUBE_POLICIES
    ),
    draw=draw_lower_bound,
)

LEVEL = 0.05
"""Allowed probability η that one of the sets of a policy fails in a run."""
TRUE_BOUND = 3.0
"""A true bound M on the length of the coefficients: (1 + 3·1.5²)^½ = 2.8 in the paper's world."""
WEAK_SIGNAL = 30.0
"""Noise so large that the terms with M, which hide an error of the other terms, are about 1 % of a width."""
JOINT = "ISD-linUCB, joint set"
COVERED_SPLITS = {
    who.ISD_KNOWN: {"split": "known"},
    who.ISD_ORACLE: {"split": "oracle"},
    JOINT: {"split": "oracle", "radius": "joint"},
}
FAILING_SETS = {who.LINUCB: 1, who.ISD_KNOWN: 1, who.ISD_ORACLE: 2, JOINT: 2}
"""How many sets of a policy may fail, each with probability η: one that is learned online, one from logs."""


def coverage_cell(name: str, environment: PaperEpisodes, horizon: int) -> Cell:
    """A world in which true means are compared with mean ± width in every round."""
    bounds = {
        "delta": LEVEL,
        "norm_bound": TRUE_BOUND,
        "noise_scale": environment.world.noise_scale,
    }
    policies = {who.LINUCB: Contender("linucb", bounds)}
    for policy, options in COVERED_SPLITS.items():
        policies[policy] = Contender("isd-linucb", {**options, **bounds})
    return Cell(f"coverage-{name}", environment, horizon, policies, observe="coverage")


PAPER_COVERAGE = coverage_cell("paper", PaperEpisodes(logged=1000), HORIZON)
WEAK_COVERAGE = coverage_cell(
    "weak-signal",
    PaperEpisodes(PaperWorld(noise_scale=WEAK_SIGNAL), logged=1000),
    HORIZON,
)
LONG_COVERAGE = coverage_cell(
    "long",
    PaperEpisodes(
        PaperWorld(blocks=(3, 1), varying=1, actions=30, conditioning="well"),
        logged=200,
        windows=4,
    ),
    5000,
)
COVERAGE_CELLS = {
    "T0 = 1,000, T = 500": PAPER_COVERAGE,
    "thirty times the noise": WEAK_COVERAGE,
    "T0 = 200, T = 5,000": LONG_COVERAGE,
}


def share_of_misses(cell: Cell, policy: str) -> Callable[[Sample], float]:
    """Share of repetitions in which some true mean lies outside mean ± width in some round."""
    return lambda sample: float(
        1.0 - sample.observed(cell.name, policy, "covered").mean()
    )


def coverage_claims() -> Iterator[Claim]:
    """Every set misses as seldom as promised; the default one of ISD-linUCB does not if T ≫ T0."""
    for world, cell in COVERAGE_CELLS.items():
        for policy, sets in FAILING_SETS.items():
            promised = sets * LEVEL
            misses = share_of_misses(cell, policy)
            fails = policy == who.ISD_ORACLE and cell is LONG_COVERAGE
            words = {"policy": policy, "world": world, "promised": promised}
            bound = Bound(low=promised) if fails else Bound(high=promised)
            yield Claim(
                *claim_words("coverage", "missed" if fails else "covered", **words),
                misses,
                bound,
                (cell.name,),
                source="ours",
            )


def draw_coverage(results: Results, theme_name: str) -> Figure:
    """Share of repetitions with a miss, per world; lines mark what is promised."""
    sample = Sample(results)
    ink = THEMES[theme_name]["ink"]
    with panels(theme_name, len(COVERAGE_CELLS), height=2.4, sharey=True) as (
        figure,
        axes,
    ):
        for axis, (world, cell) in zip(axes, COVERAGE_CELLS.items(), strict=True):
            for row, (policy, sets) in enumerate(FAILING_SETS.items()):
                color = look(policy, theme_name)["color"]
                axis.plot(
                    share_of_misses(cell, policy)(sample),
                    row,
                    ls="",
                    marker="o",
                    ms=7,
                    color=color,
                )
                axis.plot(
                    [sets * LEVEL] * 2, [row - 0.35, row + 0.35], color=ink, lw=1.5
                )
            axis.set(title=world, xlabel="runs with a miss", xlim=(-0.03, 1.0))
            axis.set_yticks(np.arange(len(FAILING_SETS)), list(FAILING_SETS))
        axes[0].invert_yaxis()
    return figure


add_experiment(
    name="coverage",
    cells=COVERAGE_CELLS.values(),
    claims=coverage_claims(),
    draw=draw_coverage,
)
