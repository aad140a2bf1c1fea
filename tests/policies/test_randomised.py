"""Randomised policies: their draws have the distribution they state, and bandit over bandit finds a good
window.
"""

import numpy as np
import pytest
from scipy.stats import norm

import invariant_bandits as ib
import policy_laws
from invariant_bandits.policies import linear
from invariant_bandits.policies.base import Draws

MEMORIES = policy_laws.MEMORIES


def frequencies(make, features, seeds=4000):
    """How often each action is chosen over seeds, the policies having learned the same rounds."""
    counts = np.zeros(len(features))
    rng = np.random.default_rng(0)
    rows, rewards = rng.normal(size=(12, 4)), rng.normal(size=12)
    for seed in range(seeds):
        policy = make(seed)
        for row, reward in zip(rows, rewards, strict=True):
            policy.update(row, reward)
        counts[policy.select(features)] += 1
    return counts / seeds, policy


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: ib.EpsilonGreedy(4, epsilon=0.4, seed=seed),
        lambda seed: ib.Uniform(4, seed=seed),
        lambda seed: ib.LinTS(4, seed=seed),
        lambda seed: ib.LinTS(4, seed=seed, memory=ib.Discount(0.8)),
        lambda seed: ib.ISDLinTS(
            policy_laws.SPLIT,
            policy_laws.COMPONENT,
            component_precision=policy_laws.PRECISION,
            seed=seed,
        ),
    ],
    ids=["epsilon-greedy", "uniform", "LinTS", "discounted LinTS", "ISDLinTS"],
)
def test_propensities_are_the_frequencies_of_the_choices(make):
    """4,000 seeds, and 1,000 draws where propensities are estimated: 0.08 is beyond four standard errors."""
    features = np.random.default_rng(3).normal(size=(3, 4))
    seen, policy = frequencies(make, features)
    assert np.abs(seen - policy.propensities(features)).max() < 0.08


@pytest.mark.parametrize("memory", MEMORIES.values(), ids=repr)
def test_thompson_draws_have_the_stated_mean_and_spread(memory, monkeypatch):
    """An action beats the zero vector with probability Φ(mean/spread): 20,000 draws, four standard errors.

    The spread of a residual or invariant direction is exploration × width; the two parts are independent.
    """
    monkeypatch.setattr(linear, "SAMPLES", 20_000)
    policy = ib.ISDLinTS(
        policy_laws.SPLIT,
        policy_laws.COMPONENT,
        component_precision=policy_laws.PRECISION,
        memory=memory,
        exploration=0.1,
        seed=2,
    )
    policy_laws.play(policy, 30, seed=1)
    residual = policy_laws.SPLIT.residual @ policy_laws.SPLIT.residual.T
    invariant = np.eye(4) - residual
    for projector in (residual, invariant, np.eye(4)):
        rows = np.random.default_rng(3).normal(size=(2000, 4)) @ projector
        widths = (
            policy.scores(rows @ residual).width,
            policy.scores(rows @ invariant).width,
        )
        ratios = policy.scores(rows).mean / (policy.exploration * np.hypot(*widths))
        for wanted in (-1.0, 0.0, 1.0):
            nearest = np.abs(ratios - wanted).argmin()
            assert ratios[nearest] == pytest.approx(wanted, abs=0.02)
            offered = np.array([rows[nearest], np.zeros(4)])
            expected = norm.cdf(ratios[nearest])
            error = 4.0 * np.sqrt(expected * (1.0 - expected) / 20_000)
            wins = np.mean(
                policy.select_many(np.broadcast_to(offered, (20_000, 2, 4))) == 0
            )
            assert wins == pytest.approx(expected, abs=error)
            assert policy.propensities(offered)[0] == pytest.approx(expected, abs=error)


def test_the_stream_of_a_round_does_not_depend_on_what_was_drawn_before():
    draws = Draws(11)
    draws.at(5).random(3)
    draws.at(2).integers(7, size=5, dtype=np.uint32)
    fresh = np.random.Generator(np.random.Philox(key=11, counter=[0, 0, 9, 0]))
    assert np.array_equal(draws.at(9).standard_normal(6), fresh.standard_normal(6))
    first = draws.at(9).random(4)
    assert not np.array_equal(draws.at(9, purpose=1).random(4), first)


def test_a_generator_may_give_the_seed_and_zero_is_a_seed():
    zero, again, other = ib.LinTS(4, seed=0), ib.LinTS(4, seed=0), ib.LinTS(4, seed=1)
    drawn = ib.LinTS(4, seed=np.random.default_rng(7))
    same = ib.LinTS(4, seed=np.random.default_rng(7))
    batch = np.random.default_rng(1).normal(size=(200, 5, 4))
    assert np.array_equal(zero.select_many(batch), again.select_many(batch))
    assert np.array_equal(drawn.select_many(batch), same.select_many(batch))
    assert not np.array_equal(zero.select_many(batch), other.select_many(batch))
    for bad in (-1, 2**63, 1.5, "seed", True):
        with pytest.raises(ib.InputError, match="seed"):
            ib.LinTS(4, seed=bad)


@pytest.mark.parametrize("epsilon", [-0.1, 1.5, np.nan, "often"])
def test_epsilon_must_be_a_probability(epsilon):
    with pytest.raises(ib.InputError, match="epsilon"):
        ib.EpsilonGreedy(4, epsilon=epsilon)
