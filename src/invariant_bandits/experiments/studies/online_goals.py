"""What the online study must show, as code: every goal judges the regret of all repetitions and gives its numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.experiments.contenders import ISD_ESTIMATED, ISD_ORACLE, LINUCB
from invariant_bandits.experiments.studies.online_rows import (
    AUTO_DEFAULT,
    AUTO_FULL,
    AUTO_TUNED,
    FAMILIES,
    FIXED_ACTIONS,
    LARGE_JUMP,
    PAPER_ROWS,
    ROWS,
    SEVENTH,
    published_pairs,
    tuned_name,
)

Regret: TypeAlias = Mapping[str, Mapping[str, Array]]
"""Row -> policy -> regret at the horizon (replications,), repetitions paired within a row."""


@dataclass(frozen=True)
class Estimate:
    """A mean over repetitions with its standard error."""

    mean: float
    error: float

    def __str__(self) -> str:
        return f"{self.mean:.1f} ± {self.error:.1f}".replace("-", "−")


def estimate(values: Array) -> Estimate:
    """Mean of values (n,) and the standard error of that mean, n ≥ 2."""
    return Estimate(float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))))


@dataclass(frozen=True)
class Verdict:
    """Whether a goal is reached, the figures that decide it, and how sure that is.

    difference: mean of what should not be positive, over pairs, where the goal compares means.
    """

    reached: bool
    numbers: str
    difference: Estimate | None = None

    @property
    def close(self) -> bool:
        """Within two standard errors of the bound: other repetitions could tip it."""
        return self.difference is not None and abs(self.difference.mean) < 2.0 * self.difference.error


@dataclass(frozen=True)
class MeanAtMost:
    """Mean regret of `policy` ≤ factor × that of the best (by its mean here) of `rivals`."""

    words: str
    row: str
    policy: str
    rivals: tuple[str, ...]
    factor: float = 1.0

    def judge(self, regret: Regret) -> Verdict:
        """Paired difference policy − factor × rival."""
        here = regret[self.row]
        rival = min(self.rivals, key=lambda name: here[name].mean())
        difference = estimate(here[self.policy] - self.factor * here[rival])
        ours, theirs = here[self.policy].mean(), here[rival].mean()
        product = "" if self.factor == 1.0 else f" = {self.factor:g} × {theirs:.1f}"
        named = f" ({rival})" if len(self.rivals) > 1 else ""
        numbers = f"{ours:.1f}, bound {self.factor * theirs:.1f}{product}{named}"
        return Verdict(bool(difference.mean <= 0.0), numbers, difference)


@dataclass(frozen=True)
class WorstAtMost:
    """Largest regret of `policy` over all repetitions ≤ that of `rival`, or < where `strictly`."""

    words: str
    row: str
    policy: str
    rival: str
    strictly: bool = False

    def judge(self, regret: Regret) -> Verdict:
        """Two worst runs."""
        ours, theirs = (float(regret[self.row][name].max()) for name in (self.policy, self.rival))
        reached = ours < theirs if self.strictly else ours <= theirs
        return Verdict(reached, f"{ours:.0f}, bound {theirs:.0f}")


@dataclass(frozen=True)
class WorstBelow:
    """Largest regret of `policy` over all repetitions < bound."""

    words: str
    row: str
    policy: str
    bound: float

    def judge(self, regret: Regret) -> Verdict:
        """One worst run and its bound."""
        ours = float(regret[self.row][self.policy].max())
        return Verdict(ours < self.bound, f"{ours:.0f}, bound {self.bound:g}")


Goal: TypeAlias = MeanAtMost | WorstAtMost | WorstBelow
"""One line of what must be true: its words, the row it looks at, and `judge`."""


def estimated_goals() -> list[Goal]:
    """ISD-linUCB from the logs keeps up with its oracle and is never as bad as LinUCB at its worst."""
    goals: list[Goal] = []
    for row in PAPER_ROWS:
        words = f"{ISD_ESTIMATED} ≤ 1.15 × oracle subspaces"
        goals.append(MeanAtMost(words, row.name, ISD_ESTIMATED, (ISD_ORACLE,), 1.15))
        words = f"{ISD_ESTIMATED}: worst run below LinUCB's"
        goals.append(WorstAtMost(words, row.name, ISD_ESTIMATED, LINUCB, strictly=True))
    return goals


def auto_goals(policy: str) -> list[Goal]:
    """What AutoISD promises: better than the oracle where the paper's assumptions hold, safe where they do not."""
    goals: list[Goal] = [
        MeanAtMost(f"{policy} ≤ ISD-linUCB with oracle subspaces", row.name, policy, (ISD_ORACLE,))
        for row in PAPER_ROWS
    ]
    goals.append(MeanAtMost(f"{policy} ≤ 0.75 × LinUCB", LARGE_JUMP.name, policy, (LINUCB,), 0.75))
    goals.append(forgetting_goal(policy))
    goals += [MeanAtMost(f"{policy} ≤ LinUCB", row.name, policy, (LINUCB,)) for row in ROWS]
    goals += [WorstAtMost(f"{policy}: worst run ≤ LinUCB's", row.name, policy, LINUCB) for row in ROWS]
    goals.append(WorstBelow(f"{policy}: worst run below 150", FIXED_ACTIONS.name, policy, 150.0))
    return goals


def forgetting_goal(policy: str) -> Goal:
    """AutoISD keeps up with every policy that forgets, tuned on other seeds, the lifted ones knowing the true split."""
    forgetful = tuple(tuned_name(family, lifted) for family in FAMILIES for lifted in (False, True))
    words = f"{policy} ≤ 1.1 × the best tuned policy that forgets"
    return MeanAtMost(words, SEVENTH.name, policy, forgetful, 1.1)


def lift_goals() -> list[Goal]:
    """The invariant part halves the regret of every policy that forgets, at the published memories."""
    return [
        MeanAtMost(
            f"ISD lift ≤ 0.5 × {plain.family}, {plain.memory_words}", SEVENTH.name, lifted.words, (plain.words,), 0.5
        )
        for plain, lifted in published_pairs()
    ]


GOALS: Sequence[Goal] = (
    *estimated_goals(),
    *auto_goals(AUTO_FULL),
    *auto_goals(AUTO_DEFAULT),
    forgetting_goal(AUTO_TUNED),
    *lift_goals(),
)


def verdicts(regret: Regret) -> list[tuple[Goal, Verdict]]:
    """Every goal with its verdict."""
    return [(goal, goal.judge(regret)) for goal in GOALS]
