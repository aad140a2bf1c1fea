"""ISD-linUCB and ISD-linTS: from logs, with oracles, recomputing, and as lifts of other policies."""

import numpy as np
import pytest

import invariant_bandits as ib
import policy_laws
from invariant_bandits.policies.isd import RecomputeWarning
from invariant_bandits.simulation.paper import PaperWorld

WORLD = PaperWorld()


def logs(rounds=2000, seed=0):
    world = WORLD.log(rounds, np.random.default_rng(seed))
    moments = ib.WindowedMoments.from_arrays(
        world.features, world.rewards, windows=8, offered=world.offered
    )
    return world, moments


def regret_of(policy, gamma, roots, rounds, seed):
    """Cumulative regret of a policy against constant coefficients, features N(0, roots·rootsᵀ)."""
    rng = np.random.default_rng(seed)
    total = 0.0
    for _ in range(rounds):
        offered = rng.normal(size=(5, len(gamma))) @ roots.T
        means = offered @ gamma
        action = policy.select(offered)
        policy.update(offered[action], means[action] + rng.normal(), offered=offered)
        total += means.max() - means[action]
    return total


def test_from_history_holds_what_the_decomposition_found():
    _, moments = logs()
    fit = ib.InvariantSubspaceDecomposition().fit(moments)
    policy = ib.ISDLinUCB.from_history(moments)
    assert policy.split.distance(fit.split_) < 1e-12
    assert np.array_equal(policy.component, fit.component_)
    assert policy.noise_scale == fit.noise_scale_
    basis = fit.split_.invariant
    covariance = basis @ np.linalg.inv(policy.component_precision) @ basis.T
    np.testing.assert_allclose(covariance, fit.component_covariance_, atol=1e-12)


def test_a_known_split_is_kept_and_only_the_component_is_estimated():
    world, moments = logs()
    policy = ib.ISDLinUCB.from_history(moments, split=world.split)
    assert policy.split.distance(world.split) < 1e-12
    assert np.linalg.norm(policy.component - world.component) < 0.5


def test_the_invariant_part_lowers_the_regret_of_linucb():
    """Twenty paired worlds: 57 against 19 was seen, their difference more than ten standard errors from 0."""
    plain, lifted = [], []
    for seed in range(20):
        world, moments = logs(seed=seed)
        rng = np.random.default_rng(1000 + seed)
        gamma = world.component + world.split.residual @ rng.uniform(
            0.5, 1.5, size=world.split.residual_dim
        )
        roots = world.split.basis * rng.uniform(0.5, 1.5, size=10)
        common = {"delta": 1 / 200, "noise_scale": 1.0}
        plain.append(regret_of(ib.LinUCB(10, **common), gamma, roots, 200, seed))
        policy = ib.ISDLinUCB.from_history(moments, split=world.split, **common)
        lifted.append(regret_of(policy, gamma, roots, 200, seed))
    assert np.mean(lifted) < 0.5 * np.mean(plain)


def test_the_literal_radius_is_far_wider_than_the_self_normalised_one():
    _, moments = logs()
    literal = ib.ISDLinUCB.from_history(moments, radius="theorem", feature_bound=8.0)
    usable = ib.ISDLinUCB.from_history(moments)
    offered = np.random.default_rng(1).normal(size=(5, 10))
    assert (literal.scores(offered).width > 5 * usable.scores(offered).width).all()


def test_a_known_component_leaves_only_the_residual_width():
    split = policy_laws.SPLIT
    policy = ib.ISDLinUCB(split, policy_laws.COMPONENT)
    scores = policy.scores(split.invariant.T)
    np.testing.assert_allclose(scores.width, 0.0, atol=1e-12)
    np.testing.assert_allclose(scores.mean, split.invariant.T @ policy_laws.COMPONENT)


# -- recomputing
# ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", policy_laws.MEMORIES.values(), ids=repr)
def test_after_recomputing_the_policy_is_the_one_built_from_the_longer_history(memory):
    """Online rounds join as a window, and the memory is re-expressed in the new residual coordinates."""
    moments = policy_laws.history()
    policy = ib.ISDLinUCB.from_history(moments, recompute_every=40, memory=memory)
    rng = np.random.default_rng(1)
    played = []
    for _ in range(100):
        offered = rng.normal(size=(3, 4))
        action = policy.select(offered)
        reward = float(offered[action] @ [1.0, -1.0, 0.5, 2.0] + rng.normal())
        policy.update(offered[action], reward, offered=offered)
        played.append((offered, offered[action], reward))
    grown = moments
    for start in (0, 40):
        offered, chosen, rewards = (
            np.array(part) for part in zip(*played[start : start + 40], strict=True)
        )
        later = ib.WindowedMoments.from_arrays(
            chosen, rewards, windows=1, offered=offered
        )
        grown = grown.followed_by(later)
    fresh = ib.ISDLinUCB.from_history(grown, memory=memory, radius="self-normalised")
    for _, chosen, reward in played:
        fresh.update(chosen, reward)
    assert policy.split.distance(fresh.split) < 1e-6
    np.testing.assert_allclose(policy.component, fresh.component, atol=1e-6)
    for features in rng.normal(size=(5, 3, 4)):
        ours, theirs = policy.scores(features), fresh.scores(features)
        np.testing.assert_allclose(ours.mean, theirs.mean, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(ours.width, theirs.width, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("radius", "options"),
    [
        ("joint", {}),
        ("joint", {"memory": ib.Restart(20)}),
        ("self-normalised", {"memory": ib.SlidingWindow(20)}),
        ("self-normalised", {"memory": ib.Discount(0.9)}),
        ("self-normalised", {"recompute_every": 40}),
    ],
)
def test_the_joint_set_is_the_default_wherever_it_is_possible(radius, options):
    history = policy_laws.history()
    default = ib.ISDLinUCB.from_history(history, **options)
    named = ib.ISDLinUCB.from_history(history, radius=radius, **options)
    assert default.settings() == named.settings()
    assert default.settings()["radius"] == radius


def test_without_offered_features_the_chosen_ones_stand_in():
    policy = ib.ISDLinUCB.from_history(policy_laws.history(), recompute_every=30)
    before = policy.component.copy()
    rng = np.random.default_rng(2)
    for _ in range(30):
        policy.update(rng.normal(size=4), float(rng.normal()))
    assert not np.array_equal(policy.component, before)


def test_a_window_that_tells_nothing_changes_next_to_nothing():
    """The same action over and over: such a window is silent about every direction; only the noise it
    pools moves.
    """
    policy = ib.ISDLinUCB.from_history(policy_laws.history(), recompute_every=10)
    before, split = policy.component.copy(), policy.split
    for _ in range(10):
        policy.update(np.ones(4), 1.0)
    np.testing.assert_allclose(policy.component, before, atol=2e-3)
    assert policy.split.distance(split) < 2e-3


def test_a_window_that_cannot_be_used_is_announced_and_kept_for_later(monkeypatch):
    policy = ib.ISDLinUCB.from_history(policy_laws.history(), recompute_every=10)
    before = policy.component.copy()

    def failing(*_):
        raise ib.InputError("windows cannot be used")

    with monkeypatch.context() as fault:
        fault.setattr(ib.InvariantSubspaceDecomposition, "fit", failing)
        for _ in range(9):
            policy.update(np.ones(4), 1.0)
        with pytest.warns(
            RecomputeWarning, match="not recomputed: windows cannot be used"
        ):
            policy.update(np.ones(4), 1.0)
    assert np.array_equal(policy.component, before)
    rng = np.random.default_rng(2)
    for _ in range(10):
        policy.update(rng.normal(size=4), float(rng.normal()))
    assert not np.array_equal(policy.component, before)


def test_the_history_is_the_policys_own():
    moments, twin = policy_laws.history(), policy_laws.history()
    left = ib.ISDLinUCB.from_history(moments, recompute_every=30)
    right = ib.ISDLinUCB.from_history(twin, recompute_every=30)
    row = np.full((1, 4), 100.0)
    moments.update(row, [5.0], window=0, offered=row[None])
    assert policy_laws.play(left, 60, seed=0) == policy_laws.play(right, 60, seed=0)
    assert policy_laws.bits(left) == policy_laws.bits(right)


def test_rounds_too_large_to_be_recorded_are_refused_unchanged():
    policy = ib.ISDLinUCB.from_history(policy_laws.history(), recompute_every=30)
    good, before = np.ones((3, 4)), policy_laws.bits(policy)
    for row, reward, offered in (
        (good[0] * 1e70, 1.0, good),
        (good[0], 1e70, good),
        (good[0], 1.0, good * 1e70),
    ):
        with pytest.raises(ib.InputError, match="below 1e\\+120"):
            policy.update(row, reward, offered=offered)
    with pytest.raises(ib.InputError, match="features"):
        policy.update(good[0], 1.0, offered=np.full((3, 4), np.nan))
    assert policy_laws.bits(policy) == before


def test_many_recomputed_windows_are_merged():
    policy = ib.ISDLinUCB.from_history(policy_laws.history(), recompute_every=10)
    rng = np.random.default_rng(2)
    for _ in range(900):
        offered = rng.normal(size=(3, 4))
        policy.update(offered[0], float(rng.normal()), offered=offered)
    assert policy._recomputation.history.windows <= 64
    assert policy._recomputation.history.rounds == 600 + 900


# -- input
# ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("split", {"split": np.eye(4)}),
        ("component", {"component": np.ones(3)}),
        ("component", {"component": [1.0, np.nan, 0.0, 0.0]}),
        ("component_precision", {"component_precision": np.eye(3)}),
        ("component_precision", {"component_precision": -np.eye(2)}),
        ("component_precision", {"component_precision": [[1.0, 0.5], [0.0, 1.0]]}),
        ("radius", {"radius": "generous"}),
        ("memory", {"radius": "joint", "memory": ib.SlidingWindow(20)}),
        ("memory", {"radius": "joint", "memory": ib.Discount(0.9)}),
        (
            "logged_rounds",
            {
                "radius": "theorem",
                "component_precision": np.eye(2),
                "min_eigenvalue": 0.1,
            },
        ),
        (
            "min_eigenvalue",
            {
                "radius": "theorem",
                "component_precision": np.eye(2),
                "logged_rounds": 10,
            },
        ),
        ("memory", {"memory": "forever"}),
        ("ridge", {"ridge": 0.0}),
        ("delta", {"delta": 1.0}),
        ("exploration", {"exploration": -1.0}),
    ],
)
def test_bad_settings_are_refused_by_name(name, change):
    given = {"split": policy_laws.SPLIT, "component": policy_laws.COMPONENT} | change
    with pytest.raises(ib.InputError, match=name):
        ib.ISDLinUCB(given.pop("split"), given.pop("component"), **given)


def test_bad_histories_are_refused_by_name():
    with pytest.raises(ib.InputError, match="moments"):
        ib.ISDLinUCB.from_history(np.ones((10, 3)))
    with pytest.raises(ib.InputError, match="recompute_every"):
        ib.ISDLinUCB.from_history(policy_laws.history(), recompute_every=3)
    with pytest.raises(ib.InputError, match="recompute_every needs another radius"):
        ib.ISDLinUCB.from_history(
            policy_laws.history(), recompute_every=40, radius="joint"
        )


def test_a_precision_over_all_features_is_restricted_to_the_invariant_part():
    rng = np.random.default_rng(3)
    root = rng.normal(size=(5, 5))
    whole = root @ root.T + np.eye(5)
    split = ib.Split.from_residual(rng.normal(size=(5, 2)))
    component = split.invariant @ np.ones(3)
    inside = split.invariant.T @ whole @ split.invariant
    first = ib.ISDLinUCB(split, component, component_precision=whole)
    second = ib.ISDLinUCB(split, component, component_precision=inside)
    features = rng.normal(size=(4, 5))
    np.testing.assert_allclose(
        first.scores(features).width, second.scores(features).width, rtol=1e-12
    )
