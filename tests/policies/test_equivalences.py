"""Different descriptions of the same policy give the same scores."""

import numpy as np
import pytest

import invariant_bandits as ib
from invariant_bandits.policies import radii as bounds

P, K = 6, 5
EXACT = {"rtol": 1e-9, "atol": 1e-9}
MEMORIES = [ib.Forever(), ib.SlidingWindow(30), ib.Discount(0.95), ib.Restart(40)]


def rounds_of(count, seed=0, p=P):
    rng = np.random.default_rng(seed)
    offered = rng.normal(size=(count, K, p)) * rng.uniform(0.3, 2.0, size=p)
    return offered, rng.integers(K, size=count), rng.normal(size=count)


def random_split(residual_dim, seed=1):
    basis = np.linalg.qr(np.random.default_rng(seed).normal(size=(P, P)))[0]
    return ib.Split(basis[:, residual_dim:], basis[:, :residual_dim])


def assert_same_scores(
    left,
    right,
    right_features=lambda features: features,
    extra_mean=lambda features: 0.0,
):
    for features in np.random.default_rng(9).normal(size=(5, K, P)):
        a, b = left.scores(features), right.scores(right_features(features))
        np.testing.assert_allclose(a.mean, b.mean + extra_mean(features), **EXACT)
        np.testing.assert_allclose(a.width, b.width, **EXACT)


@pytest.mark.parametrize("memory", MEMORIES, ids=repr)
def test_linucb_is_isdlinucb_with_an_empty_invariant_part(memory):
    plain = ib.LinUCB(P, memory=memory)
    lifted = ib.ISDLinUCB(random_split(P), np.zeros(P), memory=memory)
    for features, action, reward in zip(*rounds_of(200), strict=True):
        plain.update(features[action], reward)
        lifted.update(features[action], reward)
    assert_same_scores(plain, lifted)


@pytest.mark.parametrize("memory", MEMORIES, ids=repr)
def test_both_oracles_are_linucb_on_the_residual_coordinates_of_what_the_component_leaves(
    memory,
):
    split = random_split(2)
    component = split.invariant @ np.array([1.0, -2.0, 0.5, 3.0])
    lifted = ib.ISDLinUCB(split, component, memory=memory)
    plain = ib.LinUCB(2, memory=memory)
    for features, action, reward in zip(*rounds_of(200), strict=True):
        chosen = features[action]
        lifted.update(chosen, reward)
        plain.update(chosen @ split.residual, reward - chosen @ component)
    assert_same_scores(
        lifted, plain, lambda x: x @ split.residual, lambda x: x @ component
    )


@pytest.mark.parametrize("memory", MEMORIES, ids=repr)
def test_decisions_do_not_depend_on_the_coordinate_system(memory):
    turn = np.linalg.qr(np.random.default_rng(3).normal(size=(P, P)))[0]
    here, there = ib.LinUCB(P, memory=memory), ib.LinUCB(P, memory=memory)
    for features, action, reward in zip(*rounds_of(200), strict=True):
        here.update(features[action], reward)
        there.update(features[action] @ turn, reward)
    assert_same_scores(here, there, lambda x: x @ turn)


def test_a_window_longer_than_the_past_has_the_estimate_and_norms_of_linucb():
    common = {"ridge": 0.3, "noise_scale": 0.7, "norm_bound": 2.0, "delta": 0.05}
    window, plain = (
        ib.SWLinUCB(P, window=300, feature_bound=3.0, **common),
        ib.LinUCB(P, **common),
    )
    offered, actions, rewards = rounds_of(300)
    gram = 0.3 * np.eye(P)
    for features, action, reward in zip(offered, actions, rewards, strict=True):
        window.update(features[action], reward)
        plain.update(features[action], reward)
        gram += np.outer(features[action], features[action])
    published = bounds.sliding_window_radius(
        P, 300, bounds.Assumptions(0.05, 0.7, 0.3, 2.0, 3.0)
    )
    volume = np.linalg.slogdet(gram)[1] - P * np.log(0.3)
    own = bounds.lemma1_radius(volume, 0.05, 0.7, 0.3, 2.0)
    a, b = window.scores(offered[0]), plain.scores(offered[0])
    np.testing.assert_allclose(a.mean, b.mean, **EXACT)
    np.testing.assert_allclose(a.width / published, b.width / own, **EXACT)


def test_a_discount_near_one_has_the_estimate_and_norms_of_linucb():
    discounted, plain = (
        ib.DLinUCB(P, discount=1 - 1e-13, ridge=0.3),
        ib.LinUCB(P, ridge=0.3),
    )
    offered, actions, rewards = rounds_of(300)
    for features, action, reward in zip(offered, actions, rewards, strict=True):
        discounted.update(features[action], reward)
        plain.update(features[action], reward)
    a, b = discounted.scores(offered[0]), plain.scores(offered[0])
    np.testing.assert_allclose(a.mean, b.mean, **EXACT)
    np.testing.assert_allclose(a.width / a.width[0], b.width / b.width[0], **EXACT)


def brute_force(memory, rows, rewards, features, ridge):
    """Means and norms of `features` from the raw history, by the definitions of the papers."""
    age = np.arange(len(rows))[::-1]
    weights = np.ones(len(rows))
    if isinstance(memory, ib.SlidingWindow):
        weights = (age < memory.window).astype(float)
    if isinstance(memory, ib.Restart):
        weights = (age < len(rows) % memory.every).astype(float)
    if isinstance(memory, ib.Discount):
        weights = memory.discount**age
    identity = ridge * np.eye(rows.shape[1])
    first = (rows * weights[:, None]).T @ rows + identity
    middle = (
        (rows * weights[:, None] ** 2).T @ rows + identity
        if isinstance(memory, ib.Discount)
        else first
    )
    solved = np.linalg.solve(first, features.T)
    mean = solved.T @ (rows.T @ (weights * rewards))
    return mean, np.sqrt(np.einsum("jk,jl,lk->k", solved, middle, solved))


@pytest.mark.parametrize("split", [None, random_split(3)], ids=["plain", "lifted"])
@pytest.mark.parametrize(
    "memory",
    [ib.Forever(), ib.SlidingWindow(333), ib.Discount(0.99), ib.Restart(700)],
    ids=repr,
)
def test_ten_thousand_rounds_later_scores_are_those_of_the_raw_history_solved_afresh(
    memory, split
):
    ridge = 0.2
    component = (
        np.zeros(P) if split is None else split.invariant @ np.array([1.0, -1.0, 0.5])
    )
    basis = np.eye(P) if split is None else split.residual
    common = {
        "memory": memory,
        "ridge": ridge,
        "noise_scale": 1.0,
        "norm_bound": 1.0,
        "delta": 0.1,
    }
    policy = (
        ib.LinUCB(P, **common)
        if split is None
        else ib.ISDLinUCB(split, component, **common)
    )
    offered, actions, rewards = rounds_of(10_000)
    rows = offered[np.arange(10_000), actions]
    for row, reward in zip(rows, rewards, strict=True):
        policy.update(row, reward)
    features = np.random.default_rng(4).normal(size=(K, P))
    mean, norm = brute_force(
        memory, rows @ basis, rewards - rows @ component, features @ basis, ridge
    )
    scores = policy.scores(features)
    np.testing.assert_allclose(scores.mean, mean + features @ component, **EXACT)
    np.testing.assert_allclose(scores.width / scores.width[0], norm / norm[0], **EXACT)


@pytest.mark.parametrize("residual_dim", range(P))
def test_invariant_width_is_the_norm_in_the_covariance_of_the_component(residual_dim):
    split, size = random_split(residual_dim), P - residual_dim
    root = np.random.default_rng(2).normal(size=(size, size))
    precision = root @ root.T + np.eye(size)
    known = ib.ISDLinUCB(split, np.zeros(P))
    estimated = ib.ISDLinUCB(
        split, np.zeros(P), component_precision=precision, radius="self-normalised"
    )
    features = np.random.default_rng(4).normal(size=(K, P))
    coordinates = features @ split.invariant
    norm = np.sqrt(
        np.einsum("ki,ij,kj->k", coordinates, np.linalg.inv(precision), coordinates)
    )
    radius = bounds.self_normalised_invariant_radius(size, 0.01)
    more = estimated.scores(features).width - known.scores(features).width
    np.testing.assert_allclose(more, radius * norm, **EXACT)


@pytest.mark.parametrize("residual_dim", range(P + 1))
@pytest.mark.parametrize(
    ("memory", "kept"), [(ib.Forever(), 1000), (ib.Restart(300), 100)], ids=repr
)
def test_the_joint_radius_is_a_ridge_regression_in_all_coordinates_with_the_prior_of_the_logs(
    residual_dim, memory, kept
):
    """Dense algebra in the original coordinates: A₀ = U·diag(G₀, λI)·Uᵀ, prior mean β̂."""
    ridge, noise_scale, norm_bound, tilt, eta = 0.2, 0.7, 1.5, 0.03, 0.05
    split, size = random_split(residual_dim), P - residual_dim
    root = np.random.default_rng(2).normal(size=(size, size))
    precision = 40.0 * (root @ root.T + np.eye(size))
    component = split.invariant @ np.linspace(1.0, -1.0, size)
    policy = ib.ISDLinUCB(
        split,
        component,
        component_precision=precision,
        radius="joint",
        subspace_error=tilt,
        ridge=ridge,
        noise_scale=noise_scale,
        norm_bound=norm_bound,
        delta=eta,
        memory=memory,
    )
    offered, actions, rewards = rounds_of(1000)
    rows = offered[np.arange(1000), actions]
    for row, reward in zip(rows, rewards, strict=True):
        policy.update(row, reward)
    rows, rewards = rows[-kept:], rewards[-kept:]

    stable_gram = noise_scale**2 * precision
    prior = (
        split.invariant @ stable_gram @ split.invariant.T
        + ridge * split.residual @ split.residual.T
    )
    inverse = np.linalg.inv(prior + rows.T @ rows)
    estimate = inverse @ (prior @ component + rows.T @ rewards)
    volume = np.linalg.slogdet(prior + rows.T @ rows)[1] - np.linalg.slogdet(prior)[1]
    features = np.random.default_rng(4).normal(size=(K, P))
    norm = np.sqrt(np.einsum("kp,pq,kq->k", features, inverse, features))
    along = features @ inverse @ split.invariant
    prior_norm = np.sqrt(np.einsum("ki,ij,kj->k", along, stable_gram, along))
    radius = bounds.lemma1_radius(volume, eta, noise_scale, ridge, norm_bound)
    error = noise_scale * bounds.self_normalised_invariant_radius(size, eta)
    error += 2.0 * norm_bound * tilt * np.sqrt(np.trace(stable_gram))
    width = radius * norm + error * prior_norm

    scores = policy.scores(features)
    np.testing.assert_allclose(scores.mean, features @ estimate, **EXACT)
    np.testing.assert_allclose(scores.width, width, **EXACT)
    np.testing.assert_allclose(policy.coefficients, estimate, **EXACT)
    best = int(np.argmax(scores.mean + scores.width))
    assert policy.select(features) == best
    assert policy.select_many(features[None]).tolist() == [best]


@pytest.mark.parametrize(
    ("memory", "kept"),
    [(ib.Forever(), 100), (ib.SlidingWindow(30), 30), (ib.Restart(40), 20)],
)
def test_the_published_scale_of_thompson_sampling_counts_the_rounds_in_memory(
    memory, kept
):
    sampling, optimistic = ib.LinTS(P, memory=memory), ib.LinUCB(P, memory=memory)
    offered, actions, rewards = rounds_of(100)
    for features, action, reward in zip(offered, actions, rewards, strict=True):
        sampling.update(features[action], reward)
        optimistic.update(features[action], reward)
    rows = offered[np.arange(100), actions][-kept:]
    norms = np.sqrt(
        np.einsum(
            "kp,pk->k",
            offered[0],
            np.linalg.solve(rows.T @ rows + 0.1 * np.eye(P), offered[0].T),
        )
    )
    expected = bounds.thompson_scale(kept, P, 0.01, 1.0) * norms
    np.testing.assert_allclose(sampling.scores(offered[0]).width, expected, **EXACT)
    np.testing.assert_allclose(
        sampling.scores(offered[0]).mean, optimistic.scores(offered[0]).mean, **EXACT
    )


@pytest.mark.parametrize("ridge", [0.1, 1.0, 7.0])
def test_an_unvisited_action_of_the_disjoint_policy_has_inverse_one_over_ridge(ridge):
    policy = ib.DisjointLinUCB(P, K, ridge=ridge, delta=0.1)
    features = np.random.default_rng(4).normal(size=(K, P))
    expected = (
        (1 + np.sqrt(np.log(2 / 0.1) / 2))
        * np.linalg.norm(features, axis=1)
        / np.sqrt(ridge)
    )
    np.testing.assert_allclose(policy.scores(features).width, expected, **EXACT)


def test_the_disjoint_policy_is_one_ridge_regression_per_action():
    policy = ib.DisjointLinUCB(P, K, ridge=0.5)
    offered, actions, rewards = rounds_of(200)
    for features, action, reward in zip(offered, actions, rewards, strict=True):
        policy.update(features[action], reward, action=action)
    scores = policy.scores(offered[0])
    for arm in range(K):
        rows, own = offered[actions == arm, arm], rewards[actions == arm]
        gram = rows.T @ rows + 0.5 * np.eye(P)
        np.testing.assert_allclose(
            scores.mean[arm],
            offered[0, arm] @ np.linalg.solve(gram, rows.T @ own),
            **EXACT,
        )
        norm = np.sqrt(offered[0, arm] @ np.linalg.solve(gram, offered[0, arm]))
        np.testing.assert_allclose(
            scores.width[arm], bounds.disjoint_radius(0.01) * norm, **EXACT
        )
