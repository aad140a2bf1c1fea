"""What theory promises: the appendix's lower bound on regret, and the coverage of the confidence widths."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from matplotlib.figure import Figure

from invariant_bandits.experiments import cells as who
from invariant_bandits.experiments.cells import Cell, named
from invariant_bandits.experiments.claims import Bound, Claim, Results, Sample
from invariant_bandits.experiments.figures.drawing import legend, look, over_setting, panels
from invariant_bandits.experiments.figures.experiment import add_experiment, claim_words
from invariant_bandits.plotting import THEMES
from invariant_bandits.policies.radii import regret_lower_bound
from invariant_bandits.simulation.episodes import HypercubeEpisodes, PaperEpisodes

HORIZON = 500
HYPERCUBE_POLICIES = named(who.LINUCB, who.LINUCB_TUNED, who.GREEDY, who.ISD_KNOWN, who.ISD_ORACLE, who.AUTO)
HYPERCUBE_CELLS = {
    p_res: Cell(f"lower-bound-{p_res}", HypercubeEpisodes(residual_dim=p_res), HORIZON, HYPERCUBE_POLICIES)
    for p_res in (1, 2, 3, 4)
}
HYPERCUBE = {p_res: cell.name for p_res, cell in HYPERCUBE_CELLS.items()}


def smallest_multiple(policy: str) -> Callable[[Sample], float]:
    """Mean regret in units of e⁻²/8·p_res·√T, where it is lowest over p_res."""
    return lambda sample: min(
        sample.mean(cell, policy) / regret_lower_bound(HORIZON, p_res) for p_res, cell in HYPERCUBE.items()
    )


def draw_lower_bound(results: Results, theme_name: str) -> Figure:
    """Mean regret over p_res, with the bound."""
    ink = THEMES[theme_name]["ink"]
    with panels(theme_name, 1) as (figure, (axis,)):
        over_setting(axis, Sample(results), HYPERCUBE, tuple(HYPERCUBE_POLICIES), theme_name)
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
            *(smallest_multiple(policy), Bound(low=1.0), tuple(HYPERCUBE.values())),
        )
        for policy in HYPERCUBE_POLICIES
    ),
    draw=draw_lower_bound,
)

LOGGED = 1000
COVERED_POLICIES = (who.LINUCB, who.ISD_KNOWN, who.ISD_ORACLE, who.ISD_ESTIMATED, who.AUTO)
COVERAGE = Cell(
    f"coverage-{LOGGED}", PaperEpisodes(logged=LOGGED), HORIZON, named(*COVERED_POLICIES), observe="coverage"
)


def share_of_rounds(policy: str) -> Callable[[Sample], float]:
    """Mean over repetitions of the share of rounds in which mean ± width holds all true means."""
    return lambda sample: float(sample.observed(COVERAGE.name, policy, "rounds covered").mean())


def draw_coverage(results: Results, theme_name: str) -> Figure:
    """Share of rounds, and of repetitions, that are not covered."""
    sample, floor = Sample(results), 1e-4
    with panels(theme_name, 1, height=2.4) as (figure, (axis,)):
        for place, policy in enumerate(COVERED_POLICIES):
            style = {"ls": "", "marker": "o", "ms": 7, "color": look(policy, theme_name)["color"]}
            rounds = 1.0 - sample.observed(COVERAGE.name, policy, "rounds covered").mean()
            runs = 1.0 - sample.observed(COVERAGE.name, policy, "covered").mean()
            axis.plot(max(rounds, floor), place, **style)
            axis.plot(max(runs, floor), place, mfc="none", **style)
        axis.axvline(1.0 / HORIZON, color=THEMES[theme_name]["ink"], lw=1.0, ls="--")
        axis.set(title=f"T0 = {LOGGED:,}, T = {HORIZON}", xlabel="not covered (line: η = 1/T)")
        axis.set(xscale="log", xlim=(floor / 1.5, 1.0))
        axis.set_xticks([floor, 1e-3, 1e-2, 1e-1, 1.0], ["0", "0.001", "0.01", "0.1", "1"])
        axis.set_yticks(np.arange(len(COVERED_POLICIES)), COVERED_POLICIES)
        axis.invert_yaxis()
    return figure


add_experiment(
    name="coverage",
    cells=(COVERAGE,),
    claims=tuple(
        Claim(
            *claim_words("coverage", "covered", policy=policy, logged=LOGGED),
            *(share_of_rounds(policy), Bound(low=1.0 - 1.0 / HORIZON), (COVERAGE.name,)),
            source="ours" if policy == who.AUTO else "paper",
        )
        for policy in COVERED_POLICIES
    ),
    draw=draw_coverage,
)
