"""What the online study must show, as code: every goal judges the regret of all repetitions and gives its numbers."""

from __future__ import annotations

from collections.abc import Sequence

from invariant_bandits.experiments.cells import ISD_ESTIMATED, ISD_ORACLE, LINUCB
from invariant_bandits.experiments.claims import (
    Goal,
    Regret,
    Verdict,
    mean_at_most,
    worst_at_most,
    worst_below,
)
from studies.online_rows import (
    AUTO_DEFAULT,
    AUTO_FULL,
    AUTO_TUNED,
    FIXED_ACTIONS,
    LARGE_JUMP,
    MEMORIES,
    PAPER_ROWS,
    ROWS,
    SEVENTH,
    published_pairs,
    tuned_name,
)


def estimated_goals() -> list[Goal]:
    """ISD-linUCB from the logs keeps up with its oracle and is never as bad as LinUCB at its worst."""
    goals: list[Goal] = []
    for row in PAPER_ROWS:
        words = f"{ISD_ESTIMATED} ≤ 1.15 × oracle subspaces"
        goals.append(mean_at_most(words, row.name, ISD_ESTIMATED, (ISD_ORACLE,), 1.15))
        words = f"{ISD_ESTIMATED}: worst run below LinUCB's"
        goals.append(worst_at_most(words, row.name, ISD_ESTIMATED, LINUCB, strictly=True))
    return goals


def auto_goals(policy: str) -> list[Goal]:
    """What AutoISD promises: better than the oracle where the paper's assumptions hold, safe where they do not."""
    goals: list[Goal] = [
        mean_at_most(f"{policy} ≤ ISD-linUCB with oracle subspaces", row.name, policy, (ISD_ORACLE,))
        for row in PAPER_ROWS
    ]
    goals.append(mean_at_most(f"{policy} ≤ 0.75 × LinUCB", LARGE_JUMP.name, policy, (LINUCB,), 0.75))
    goals.append(forgetting_goal(policy))
    goals += [mean_at_most(f"{policy} ≤ LinUCB", row.name, policy, (LINUCB,)) for row in ROWS]
    goals += [worst_at_most(f"{policy}: worst run ≤ LinUCB's", row.name, policy, LINUCB) for row in ROWS]
    goals.append(worst_below(f"{policy}: worst run below 150", FIXED_ACTIONS.name, policy, 150.0))
    return goals


def forgetting_goal(policy: str) -> Goal:
    """AutoISD keeps up with every policy that forgets, tuned on other seeds, the lifted ones knowing the true split."""
    forgetful = tuple(tuned_name(memory, lifted) for memory in MEMORIES for lifted in (False, True))
    words = f"{policy} ≤ 1.1 × the best tuned policy that forgets"
    return mean_at_most(words, SEVENTH.name, policy, forgetful, 1.1)


def lift_goals() -> list[Goal]:
    """The invariant part halves the regret of every policy that forgets, at the published memories."""
    return [
        mean_at_most(
            f"ISD lift ≤ 0.5 × {plain.kind}, {plain.memory_words}", SEVENTH.name, lifted.words, (plain.words,), 0.5
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
