"""Related methods of the literature: each recovers what was planted for it, and earns more than LinUCB there.

The comparisons of regret fix their seeds. Differences are five standard errors or more in the study of these
worlds, so that another seed would fail less than once in a thousand.
"""

import numpy as np
import pytest

import invariant_bandits as ib
from invariant_bandits.policies.registry import PolicySpec
from invariant_bandits_reproduction.policies import (
    AffineLinUCB,
    InvariantSetPolicy,
    LatentLinUCB,
    SequentialLinUCB,
)
from invariant_bandits_reproduction.policies.affine_subspace import Tasks
from invariant_bandits_reproduction.studies.related_study import (
    RELATED,
    WORLDS,
    contender,
)


def past_of(kind, seed=0):
    environment, horizon, _ = WORLDS[kind]
    return environment.draw(horizon, np.random.default_rng(seed)).past


def angle(left, right):
    """Largest angle between two subspaces of the same dimension, as a sine."""
    left, right = np.linalg.qr(left)[0], np.linalg.qr(right)[0]
    return np.linalg.norm(left @ left.T - right @ right.T, 2)


def test_the_latent_subspace_and_its_dimension_are_recovered():
    past = past_of("latent subspace")
    truth = np.linalg.svd(past.truth.logs.coefficients, full_matrices=False)[2][:2].T
    policy = LatentLinUCB.from_past(past)
    axes = policy.arrays()["narrow.axes"]
    assert axes.shape == (20, 2)
    assert angle(axes, truth) < 0.15
    assert angle(axes, truth) < 3.0 * policy.subspace_error


def test_a_wrong_subspace_does_not_stop_latent_linucb_from_learning():
    rng, coefficients = np.random.default_rng(0), np.array([0.0, 2.0])
    policy = LatentLinUCB(
        [[1.0], [0.0]], subspace_error=1.0, norm_bound=2.0, exploration=0.3
    )
    for _ in range(300):
        features = rng.standard_normal((5, 2))
        action = policy.select(features)
        policy.update(
            features[action], features[action] @ coefficients + rng.standard_normal()
        )
    offered = rng.standard_normal((200, 5, 2))
    right = (offered @ coefficients).argmax(axis=1)
    assert (policy.select_many(offered) == right).mean() > 0.9


def test_the_affine_subspace_has_the_planted_center_and_directions():
    past = past_of("affine subspace")
    truth = past.truth.logs.coefficients
    tasks = Tasks.of(past, centered=True)
    directions, _ = tasks.directions(2)
    apart = truth - truth.mean(axis=0)
    assert np.linalg.norm(tasks.center - truth.mean(axis=0)) < 0.2 * np.linalg.norm(
        truth.mean(axis=0)
    )
    assert angle(directions, np.linalg.svd(apart, full_matrices=False)[2][:2].T) < 0.2


def test_a_representation_that_changes_is_forgotten_and_learned_again():
    rng = np.random.default_rng(1)
    policy = SequentialLinUCB(8, task=60, rank=1, exploration=0.1)
    first, second = np.linalg.qr(rng.standard_normal((8, 2)))[0].T
    for axis in (first, second):
        for _ in range(4):
            coefficients = axis * rng.choice([-3.0, 3.0])
            for _ in range(60):
                features = rng.standard_normal((5, 8))
                action = policy.select(features)
                policy.update(
                    features[action],
                    features[action] @ coefficients + rng.standard_normal(),
                )
        assert angle(policy.representation, axis[:, None]) < 0.2


@pytest.mark.parametrize("others", [2, 8])
def test_the_invariant_set_is_the_planted_one(others):
    """Up to ten features by trying all sets, beyond by dropping the worst."""
    rng, dim = np.random.default_rng(0), 4 + others
    features, flips = (
        rng.standard_normal((4000, dim)),
        np.repeat([1.0, -1.0, 2.0, -2.0], 1000),
    )
    rewards = (
        features[:, :4].sum(axis=1)
        + flips * features[:, 4:].sum(axis=1)
        + rng.standard_normal(4000)
    )
    moments = ib.WindowedMoments.from_arrays(features, rewards, windows=4)
    policy = InvariantSetPolicy.from_past(ib.Past(moments=moments))
    policy.update(np.ones(dim), 5.0)
    assert policy.rounds == 1
    assert np.flatnonzero(policy.coefficients).tolist() == [0, 1, 2, 3]


def test_features_that_no_window_can_tell_apart_are_refused_by_name():
    row = np.random.default_rng(0).standard_normal((200, 1))
    moments = ib.WindowedMoments.from_arrays(
        np.hstack([row, 2.0 * row]), row[:, 0], windows=2
    )
    with pytest.raises(ib.InputError, match="collinear: x0, x1"):
        AffineLinUCB.from_past(ib.Past(moments=moments))


@pytest.mark.slow
@pytest.mark.parametrize("name", RELATED)
def test_each_method_beats_linucb_in_the_world_it_was_made_for(name):
    environment, horizon, memory = WORLDS[RELATED[name]]
    players = {
        "linucb": contender("linucb", 0.1, memory),
        name: contender(name, 0.1, memory),
    }
    players["invariant-set"] = PolicySpec("invariant-set")
    players = {label: players[label] for label in ("linucb", name)}
    result = ib.simulate(players, environment, horizon, replications=16, seed=5)
    assert result.final(name).mean() < result.final("linucb").mean()
