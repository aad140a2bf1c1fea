"""Laws of deciding: what `select`, `scores`, `propensities` and `select_many` have to do with each other."""

from __future__ import annotations

import numpy as np

from invariant_bandits.policies.base import Policy
from invariant_bandits.testing.checking import law
from invariant_bandits.testing.playing import ACTIONS, DIM, Make, bits, is_randomised, play, played, some_rounds


@law("the interface is whole")
def the_interface_is_whole(make: Make) -> None:
    """Every method of Policy is there."""
    policy = make()
    assert isinstance(policy, Policy), f"{type(policy).__name__} lacks some of the methods of Policy"
    assert policy.dim == DIM
    assert policy.rounds >= 0


@law("deciding never changes the policy")
def deciding_never_changes_the_policy(make: Make) -> None:
    """Nor does asking for scores and propensities."""
    policy, features = played(make, 25), some_rounds(6)
    before, first = bits(policy), [policy.select(x) for x in features]
    policy.scores(features[0])
    policy.select_many(features)
    policy.propensities(features[0])
    assert [policy.select(x) for x in features] == first
    assert bits(policy) == before


@law("the same seed gives the same decisions")
def the_same_seed_gives_the_same_decisions(make: Make) -> None:
    """No randomness but the policy's own."""
    assert play(make(), 60, seed=2) == play(make(), 60, seed=2)


@law("permuting actions permutes the choice")
def permuting_actions_permutes_the_choice(make: Make) -> None:
    """The place of an action in the list means nothing."""
    policy, rng = played(make, 30), np.random.default_rng(1)
    for _ in range(20):
        features, order = rng.normal(size=(ACTIONS, DIM)), rng.permutation(ACTIONS)
        if is_randomised(policy):
            assert np.array_equal(policy.propensities(features[order]), policy.propensities(features)[order])
        else:
            assert order[policy.select(features[order])] == policy.select(features)


@law("any array-like of the right shape will do")
def any_array_like_of_the_right_shape_will_do(make: Make) -> None:
    """Lists, other number types, other memory layouts, frozen arrays."""
    policy, plain = make(), make()
    rng = np.random.default_rng(1)
    for _ in range(10):
        features = rng.integers(-3, 4, size=(ACTIONS, DIM)).astype(float) + 0.25
        frozen = features.copy()
        frozen.flags.writeable = False
        action = plain.select(features)
        for same in (features.tolist(), features.astype(np.float32), np.asfortranarray(features), frozen):
            assert policy.select(same) == action
        wide = np.repeat(features, 2, axis=1)
        assert policy.select(wide[:, ::2]) == action
        policy.update(wide[action, ::2], np.float32(0.5), offered=features.tolist(), action=np.int64(action))
        plain.update(features[action], 0.5, offered=features, action=action)
    assert bits(policy) == bits(plain)


@law("a batch is decided like its rounds")
def a_batch_is_decided_like_its_rounds(make: Make) -> None:
    """The first as `select` decides it; all, unless the policy draws."""
    policy, batch = played(make, 40), some_rounds(50)
    chosen = policy.select_many(batch)
    assert chosen.shape == (50,)
    assert chosen[0] == policy.select(batch[0])
    if not is_randomised(policy):
        assert chosen.tolist() == [policy.select(features) for features in batch]
    else:
        likely = policy.propensities(batch[0]).max()
        drawn = policy.select_many(np.repeat(batch[:1], 500, axis=0))
        assert len(set(drawn.tolist())) > 1 or likely > 0.98


@law("scores explain the choice")
def scores_explain_the_choice(make: Make) -> None:
    """`select` maximises mean + exploration · width, unless the policy draws."""
    policy = played(make, 40)
    for features in some_rounds(20):
        scores = policy.scores(features)
        assert scores.mean.shape == scores.width.shape == (ACTIONS,)
        assert (scores.width >= 0).all()
        if not is_randomised(policy):
            inner = getattr(policy, "exploration", 1.0)
            assert policy.select(features) == np.argmax(scores.mean + inner * scores.width)


@law("propensities are a distribution")
def propensities_are_a_distribution(make: Make) -> None:
    """Not negative, adding up to one, and all on the choice of a policy that does not draw."""
    policy = played(make, 40)
    for features in some_rounds(5):
        propensities = policy.propensities(features)
        assert propensities.shape == (ACTIONS,)
        assert (propensities >= 0).all()
        assert abs(propensities.sum() - 1.0) <= 1e-12
        if not is_randomised(policy):
            assert propensities[policy.select(features)] == 1.0
