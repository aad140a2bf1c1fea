"""The study of labelled arms as a Markdown page."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from invariant_bandits.experiments.claims import mean_of
from studies.arms import (
    FIXED,
    FROM,
    GOALS,
    HORIZON,
    LATE,
    LEAST_COVERAGE,
    LEAST_NAMED,
    LEAST_PLAYED,
    LOGIT,
    ORACLE,
    PLAYERS,
    TO,
    Outcome,
)


class Judged(NamedTuple):
    """A goal in words, what was measured, and whether it was reached."""

    words: str
    measured: str
    reached: bool


def verdicts(outcome: Outcome) -> list[Judged]:
    """Every goal of the study."""
    result = [
        Judged(
            f"{LOGIT}: regret per 1,000 rounds ≤ {bound:g}, {world}",
            mean_of(outcome.regret[world][LOGIT]).with_error(2),
            bool(outcome.regret[world][LOGIT].mean() <= bound),
        )
        for world, bound in GOALS.items()
    ]
    shares = (
        ("drifting effects named exactly, none beside them", outcome.named, LEAST_NAMED),
        ("coefficients of an arm launched late within 2 standard errors", outcome.covered, LEAST_COVERAGE),
        (f"a new arm that is clearly best is played, rounds {FROM} to {TO:,}", outcome.played, LEAST_PLAYED),
    )
    for words, values, bound in shares:
        share = float(np.mean(values))
        result.append(Judged(f"{words}: ≥ {bound:.0%}", f"{share:.1%} of {len(values):,}", share >= bound))
    return result


def report(outcome: Outcome) -> str:
    """The page."""
    judged = verdicts(outcome)
    lines = [
        "# Labelled arms, measured",
        "",
        f"{outcome.replications} fresh repetitions per world with seed {outcome.seed}, none discarded; within a row all"
        " policies play the same logs and luck. World: `LabelledArms`, five arms with six context numbers, log-odds of"
        " a click linear in them with coefficients of every arm's own; 50,000 logged rounds in twelve months, two"
        " coefficients walk (by 0.25 a month), one arm is launched in month 8 and one retired in month 6. Online"
        f" {HORIZON:,} rounds with the arms that are left. New arms have no logs: their intercept is 0.4 above the best"
        " or 0.6 below the worst.",
        "",
        "AutoISD comes as it is, exploration 0.25. Disjoint LinUCB has a ridge regression per arm and its published"
        " width times 0.25; logistic regression has one per arm, ridge 1 towards that of all arms, is fitted again"
        " every 500 rounds and plays greedily.",
        "",
        "The members of AutoISD, when it tests arms and the test of drift were settled on other seeds, about ten"
        " configurations of 6 to 16 repetitions; so were the sizes of the world, so that disjoint LinUCB on all logs"
        " loses about as much as a cold one. In the world tried before, with slopes a quarter larger and walks of 0.2 a"
        " month, the same AutoISD has 1.6, 2.0, 5.7 and 5.7 in the first four rows (20 repetitions, standard errors 0.1"
        " to 0.4). This page is one run.",
        "",
        "## What must be true",
        "",
        f"{sum(one.reached for one in judged)} of {len(judged)} reached.",
        "",
        "| goal | measured | |",
        "|---|---|---|",
        *(f"| {one.words} | {one.measured} | {'✓' if one.reached else '✗'} |" for one in judged),
        "",
        "## Regret per 1,000 rounds",
        "",
        "Mean ± standard error (worst run); bold: the lowest mean. Then the mean reward of an oracle and of the best"
        " single arm.",
        "",
        "| world | " + " | ".join(PLAYERS) + f" | {ORACLE} | {FIXED} |",
        "|---|" + "---|" * (len(PLAYERS) + 2),
    ]
    for world, here in outcome.regret.items():
        lowest = min(values.mean() for values in here.values())
        cells = []
        for values in here.values():
            cell = f"{mean_of(values).with_error(2)} ({values.max():.1f})"
            cells.append(f"**{cell}**" if values.mean() == lowest else cell)
        cells += [f"{outcome.rewards[world][what]:.4f}" for what in (ORACLE, FIXED)]
        lines.append(f"| {world} | {' | '.join(cells)} |")
    lines += [
        "",
        f"At 3 % of clicks ({outcome.rare_replications} repetitions) nothing is new online. Greedy logs play, nine"
        " times in ten, what a stale model calls best; deterministic ones always do, and never show some arms in some"
        " contexts.",
        "",
        "## What the logs are said to show",
        "",
        f"Of {len(outcome.named)} logs as above, the two drifting effects were named exactly in"
        f" {outcome.named.mean():.1%}; {outcome.flags.mean():.2f} false flags per log (35 effects, Holm's rule at 5 %)."
        f" In {len(outcome.covered) // LATE.width} logs of {LATE.logged:,} rounds an arm is launched after two thirds:"
        f" {outcome.covered.mean():.1%} of its {len(outcome.covered):,} coefficients are within two standard errors.",
        "",
    ]
    return "\n".join(lines)
