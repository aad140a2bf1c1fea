"""What theory promises: the appendix's lower bound on regret, and the coverage of the confidence widths."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from matplotlib.figure import Figure

from invariant_bandits.plotting import THEMES
from invariant_bandits.policies.radii import regret_lower_bound
from invariant_bandits.policies.registry import PolicySpec
from invariant_bandits.simulation.cells import Cell
from invariant_bandits.simulation.episodes import HypercubeEpisodes, PaperEpisodes
from invariant_bandits.simulation.paper import PaperWorld
from invariant_bandits_reproduction import contenders as who
from invariant_bandits_reproduction.claims import CHECK, Bound, Claim
from invariant_bandits_reproduction.contenders import named
from invariant_bandits_reproduction.figures.drawing import (
    legend,
    look,
    over_setting,
    panels,
)
from invariant_bandits_reproduction.figures.experiment import (
    EXPERIMENTS,
    Experiment,
    Panel,
)
from invariant_bandits_reproduction.regret_claims import (
    BootstrapTest,
    Results,
    Sample,
    Statistic,
)

HORIZON = 500
"""T of the lower bound and of the paper's coverage."""
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
"""p_res -> cell of Appendix D.2."""
HYPERCUBE = {p_res: cell.name for p_res, cell in HYPERCUBE_CELLS.items()}


def smallest_multiple(policy: str) -> Statistic:
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


def bound_claim(policy: str) -> Claim:
    """Return the claim that a policy has at least the regret of the lower bound."""
    reading = f"{{value}} times the bound with {policy}"
    cells = tuple(HYPERCUBE.values())
    return Claim(
        statement=(
            "Averaged over the instances, no policy has less than e⁻²/8·p_res·√T"
            " of regret."
        ),
        name=f"lower bound: {policy}",
        quantity="mean regret in units of the bound, smallest over p_res",
        test=BootstrapTest(
            smallest_multiple(policy), Bound(low=1.0), cells=cells, reading=reading
        ),
        source=CHECK,
    )


EXPERIMENTS.add(
    Experiment(
        name="lower-bound",
        title="The lower bound",
        paper="Appendix D.2",
        question=(
            "Is there a world in which even full knowledge of the stable part"
            " leaves a regret of order p_res·√T?"
        ),
        caption=(
            "Actions are the vertices of the hypercube, residual coefficients"
            " ±1/√T with random signs, T = 500; the mean over repetitions"
            " estimates the mean over instances. Bars are two standard errors."
        ),
        cells=tuple(HYPERCUBE_CELLS.values()),
        claims=tuple(map(bound_claim, HYPERCUBE_POLICIES)),
        draw=draw_lower_bound,
    )
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
    who.ISD_ORACLE: {"split": "oracle", **who.SELF_NORMALISED},
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
    policies = {who.LINUCB: PolicySpec("linucb", bounds)}
    for policy, options in COVERED_SPLITS.items():
        policies[policy] = PolicySpec("isd-linucb", {**options, **bounds})
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
"""The paper's world, the same with noise that hides the terms of M, and T far beyond T0."""
COVERAGE_CELLS = {
    "T0 = 1,000, T = 500": PAPER_COVERAGE,
    "thirty times the noise": WEAK_COVERAGE,
    "T0 = 200, T = 5,000": LONG_COVERAGE,
}


def share_of_misses(cell: Cell, policy: str) -> Statistic:
    """Share of repetitions in which some true mean lies outside mean ± width in some round."""
    return lambda sample: float(
        1.0 - sample.observed(cell.name, policy, "covered").mean()
    )


def coverage_claims() -> Iterator[Claim]:
    """Every set misses as seldom as promised; the separate ones of ISD-linUCB do not if T ≫ T0."""
    for world, cell in COVERAGE_CELLS.items():
        for policy in FAILING_SETS:
            if policy == who.ISD_ORACLE and cell is LONG_COVERAGE:
                yield missed(policy, world)
            else:
                yield covered(policy, world)


def covered(policy: str, world: str) -> Claim:
    """Return the claim that the sets of a policy miss as seldom as promised."""
    promised = FAILING_SETS[policy] * LEVEL
    return Claim(
        statement=(
            f"In at most {promised:.0%} of the runs mean ± width misses a true"
            " mean in any round."
        ),
        name=f"covered, {policy}, {world}",
        quantity="share of runs with a miss",
        test=_misses_test(policy, world, Bound(high=promised)),
    )


def missed(policy: str, world: str) -> Claim:
    """Return the claim that the sets of a policy miss more often than promised."""
    promised = FAILING_SETS[policy] * LEVEL
    return Claim(
        statement=(
            f"In more than {promised:.0%} of the runs the self-normalised width, which"
            " leaves out the error that the stable part carries over, misses a"
            " true mean."
        ),
        name=f"not covered, {policy}, {world}",
        quantity="share of runs with a miss",
        test=_misses_test(policy, world, Bound(low=promised)),
    )


def _misses_test(policy: str, world: str, bound: Bound) -> BootstrapTest:
    cell = COVERAGE_CELLS[world]
    reading = f"{{value}} of the runs of {policy}, {world}"
    return BootstrapTest(
        share_of_misses(cell, policy), bound, cells=(cell.name,), reading=reading
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


EXPERIMENTS.add(
    Experiment(
        name="coverage",
        title="Coverage of the confidence widths",
        paper="not in the paper; the confidence sets of this library",
        question=(
            "A low regret does not validate a radius. Does mean ± width contain"
            " the truth as often as it promises?"
        ),
        caption=(
            "Dots: share of repetitions with at least one round in which some"
            " offered action's true mean lies outside mean ± width. Lines: what is"
            " promised, η = 0.05 for each set that may fail. The middle world has"
            " thirty times the noise, so that the terms with the bound M hide no"
            " error of the other terms."
        ),
        cells=tuple(COVERAGE_CELLS.values()),
        claims=tuple(coverage_claims()),
        draw=draw_coverage,
    )
)
