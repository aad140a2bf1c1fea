"""The study of labelled arms: what it notes is what happened, and its page says so."""

import numpy as np
import pytest

from invariant_bandits.simulation.labelled_arms import LATER, LabelledArms
from invariant_bandits.simulation.loop import simulate
from invariant_bandits_reproduction.studies import arms_study
from invariant_bandits_reproduction.studies.arms_study import (
    GOALS,
    LOGIT,
    PLAYERS,
    Auto,
    Disjoint,
    DisjointArms,
    LogisticRefit,
    NewArm,
    Refit,
    late_arm,
    named_drift,
)
from invariant_bandits_reproduction.studies.harness import StudyOutcome

SMALL = LabelledArms(LATER[2], logged=6000, lead=2.5)


def test_every_player_does_better_than_chance_and_the_new_arm_is_counted():
    players = {
        "auto": Auto(),
        "warm": Disjoint(warm=True),
        "cold": Disjoint(),
        "all": Refit(),
        "recent": Refit(3),
    }
    result = simulate(
        {**players, "chance": "uniform"},
        SMALL,
        800,
        replications=2,
        seed=0,
        observe=NewArm(),
    )
    worst = result.final("chance").mean()
    assert all(result.final(name).mean() < 0.9 * worst for name in players)
    assert result.observations["auto"]["played"].min() > 0.3
    assert result.observations["chance"]["played"].max() < 0.2


def test_a_warm_ridge_regression_is_one_that_saw_every_round():
    logs = LabelledArms(logged=300).draw(1, np.random.default_rng(0)).logs
    warm = DisjointArms(5, 7, 0.25).warmed(logs.contexts, logs.arms, logs.rewards)
    slow = DisjointArms(5, 7, 0.25)
    for features, reward in zip(logs.features, logs.rewards, strict=True):
        slow.update(features, reward)
    assert warm.inverse == pytest.approx(slow.inverse)
    assert warm.sums == pytest.approx(slow.sums)


def test_logistic_regression_recovers_what_was_planted():
    logs = (
        LabelledArms(logged=60_000, drifting=0).draw(1, np.random.default_rng(1)).logs
    )
    policy = LogisticRefit(5, logs.contexts, logs.arms, logs.rewards)
    assert policy.theta == pytest.approx(logs.truth, abs=0.2)


def test_logs_are_read_for_drifting_effects_and_a_late_arm():
    exact, flags = named_drift((1, 2, 3))
    assert exact == (flags == 0)  # in this log both drifting effects are found
    inside = late_arm((1, 2, 3))
    assert len(inside) == 7
    assert sum(inside) >= 5


def test_the_page_tells_goals_that_are_missed():
    def outcome(regret):
        table = {
            world: {name: np.full(3, regret) for name in PLAYERS} for world in GOALS
        }
        means = {world: {"oracle": 0.5, "best fixed arm": 0.4} for world in GOALS}
        shares = {
            "played": np.full(3, 0.9),
            "covered": np.full(21, 0.95),
            "named": np.ones(4),
            "flags": np.zeros(4),
        }
        return StudyOutcome(
            table, 3, 1, {"rewards": means, "rare_replications": 2, **shares}
        )

    good, bad = arms_study.report(outcome(2.0)), arms_study.report(outcome(7.0))
    assert "7 of 7 goals reached" in good
    assert "4 of 7 goals reached" in bad
    assert (
        f"{LOGIT}: regret per 1,000 rounds ≤ 2.6, nothing new | 7.00 ± 0.00 | ✗" in bad
    )
