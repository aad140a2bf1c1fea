"""The alarm of labelled arms with greedy logs: a fall of the best arm's level rings, or cannot, and says so."""

import numpy as np
import pyarrow as pa
import pytest

import invariant_bandits as ib
from invariant_bandits.policies import alarm
from invariant_bandits.reports import model_page

ARMS = ("flash", "llama", "mid", "mini", "opus")
LEVELS = np.array([0.45, 0.7, 0.4, 0.5, 0.55])
BEST = "llama"
COLUMNS = 16
NOISE = 0.4
EPSILON = 0.1


def greedy_log(slopes, rng, rounds=8000):
    """A log of 5 arms x 16 columns in which the best arm of a context is played in 92 % of the rounds, so that
    one arm has 40 to 50 % of all.
    """
    contexts = rng.normal(size=(rounds, COLUMNS))
    means = LEVELS + contexts @ slopes.T
    best = means.argmax(axis=1)
    chosen = np.where(
        rng.random(rounds) < EPSILON, rng.integers(len(ARMS), size=rounds), best
    )
    rewards = means[np.arange(rounds), chosen] + NOISE * rng.normal(size=rounds)
    even = EPSILON / len(ARMS)
    columns = {f"x{j}": contexts[:, j] for j in range(COLUMNS)}
    return pa.table(
        {
            **columns,
            "arm": [ARMS[i] for i in chosen],
            "reward": rewards,
            "propensity": np.where(chosen == best, 1.0 - EPSILON + even, even),
        }
    )


def played(seed, fall, rounds=1500):
    """A model of a greedy log after online rounds in which the best arm's level is lower by `fall`; and what
    it explained before these.
    """
    rng = np.random.default_rng(seed)
    slopes = 0.06 * rng.normal(size=(len(ARMS), COLUMNS))
    model = ib.fit_logs(greedy_log(slopes, rng), windows=8)
    before = model.explain()
    levels = LEVELS - fall * (np.array(ARMS) == BEST)
    for context in rng.normal(size=(rounds, COLUMNS)):
        decision = model.decide(
            {f"x{j}": float(value) for j, value in enumerate(context)}
        )
        arm = ARMS.index(decision.action)
        expected = float(levels[arm] + slopes[arm] @ context)
        model.learn(decision, expected + NOISE * float(rng.normal()))
    return model, before


@pytest.mark.slow
def test_a_fall_of_the_best_arm_rings_although_it_is_soon_dropped():
    """Ten rounds for each of an arm's 17 coefficients were never played once its level had fallen, so that the
    alarm could not ring. If a run rings with probability 0.9, five or fewer of eight have probability 0.04.
    """
    rang = 0
    for seed in range(8):
        model, before = played(seed, fall=0.6)
        assert before.noticeable_levels[BEST] > LEVELS.max() - 0.6
        rang += model.policy.alarm
        if model.policy.alarm:
            assert f"ALARM: a stable coefficient moved (mainly {BEST}" in str(
                model.explain()
            )
    assert rang >= 6


def rings_after_fall(arm, depth, seed, rounds=2000):
    """Whether the alarm rings if arms are played as in the logs, after a fall of an arm's level by `depth`
    times the fall that `explain` says would be noticed.
    """
    rng = np.random.default_rng(seed)
    slopes = 0.06 * rng.normal(size=(len(ARMS), COLUMNS))
    model = ib.fit_logs(greedy_log(slopes, rng), windows=8)
    index = ARMS.index(arm)
    mean = model.policy.prior.layout.by_arm(model.policy.prior.mean)[:, 0]
    noticed = alarm.noticeable_falls(model.policy.prior, 0.01)
    assert mean[index] - noticed[index] == pytest.approx(
        model.explain().noticeable_levels[arm]
    )
    fallen = LEVELS - depth * noticed[index] * (np.arange(len(ARMS)) == index)
    for context in rng.normal(size=(rounds, COLUMNS)):
        played = int((LEVELS + slopes @ context).argmax())
        if rng.random() < EPSILON:
            played = int(rng.integers(len(ARMS)))
        reward = fallen[played] + slopes[played] @ context + NOISE * rng.normal()
        columns = {f"x{j}": float(value) for j, value in enumerate(context)}
        model.update({**columns, "arm": list(ARMS)}, played, float(reward))
    return model.policy.alarm


@pytest.mark.slow
def test_a_fall_to_the_level_that_is_named_is_noticed_and_half_of_it_is_not():
    """Measured: 29 of 40 runs ring at the level that is named, so that 3 or fewer of 8 have probability 0.05;
    where the baseline and the leverages were left out of the formula, 13 of 40 did. After half of the fall
    none of 20 rang.
    """
    for depth, least, most in ((1.0, 4, 8), (0.5, 0, 2)):
        rang = sum(
            rings_after_fall(arm, depth, seed)
            for arm in (BEST, "mini")
            for seed in range(8000, 8004)
        )
        assert least <= rang <= most


def test_what_the_logs_cannot_tell_is_named_per_arm():
    rng = np.random.default_rng(1)
    slopes = 0.06 * rng.normal(size=(len(ARMS), COLUMNS))
    model = ib.fit_logs(greedy_log(slopes, rng), windows=8)
    model.add_arm("fresh")
    belief = model.explain()
    assert np.isnan(belief.noticeable_levels["fresh"])
    level = belief.noticeable_levels[BEST]
    assert f"of {BEST} below {level:.3g}" in str(belief)
    assert "a fall of fresh never" in str(belief)
    assert belief.to_dict()["noticeable_levels"]["fresh"] is None
    page = " ".join(model_page.text(model).split())
    assert "fall of fresh never" in page
