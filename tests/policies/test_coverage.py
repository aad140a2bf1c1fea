"""Confidence sets contain the truth at least as often as promised, and not because they are infinite.

Each test counts failures in 2,000 runs with fixed seeds. The sets are conservative: failure rates between
0.0005 and 0.011 are seen where 0.1 is promised, so a false alarm (more than 200 failures) has no chance. The
shrunken sets beside them fail more often than promised, so the counts can tell a wrong radius from a right
one.
"""

import numpy as np
import pytest
from numba import njit

import invariant_bandits as ib
from invariant_bandits.policies import kernels
from invariant_bandits.policies import radii as bounds

RUNS, ETA, RIDGE = 2000, 0.1, 0.1
choose, learn_growing = kernels.choose, kernels.learn_growing
lemma1_radius, lemma1_trace_bound = (
    njit(bounds.lemma1_radius),
    njit(bounds.lemma1_trace_bound),
)


@njit
def largest_excess(offered, noise, gamma, target, lift, norm_bound, feature_bound):
    """Largest ratio over all rounds of ‖estimate − target‖_A to the radius, with the determinant and the
    trace bound.

    A is the policy's own Gram matrix, made by its own optimistic choices: the data depend on the noise.
    """
    T = len(offered)
    q = len(target)
    factor = np.zeros((q, q + 1))
    for i in range(q):
        factor[i, i] = np.sqrt(RIDGE)
    worst, worst_trace, volume = 0.0, 0.0, 0.0
    for t in range(T):
        radius = lemma1_radius(volume, ETA, 1.0, RIDGE, norm_bound)
        error = 0.0
        for i in range(q):
            rest = factor[i, q]
            for j in range(i, q):
                rest -= factor[i, j] * target[j]
            error += rest * rest
        trace = lemma1_trace_bound(t, q, RIDGE, feature_bound)
        worst = max(worst, np.sqrt(error) / radius)
        worst_trace = max(
            worst_trace,
            np.sqrt(error) / lemma1_radius(trace, ETA, 1.0, RIDGE, norm_bound),
        )
        action = choose(offered[t], lift, factor, 0, radius, 0.0)
        row = offered[t, action]
        volume = learn_growing(row, row @ gamma + noise[t], lift, factor, RIDGE)
    return worst, worst_trace


def excesses(split, seed):
    """Per run the largest excess of the residual set, for actions inside a ball of radius 2."""
    rng = np.random.default_rng(seed)
    p = split.dim
    result = np.empty((RUNS, 2))
    for run in range(RUNS):
        offered = rng.normal(size=(150, 4, p))
        offered *= 2.0 / np.linalg.norm(offered, axis=2, keepdims=True)
        gamma = rng.normal(size=p)
        residual = split.residual.T @ gamma
        component = split.invariant @ (split.invariant.T @ gamma)
        lift = np.column_stack([component, split.residual])
        bound = float(np.linalg.norm(residual))
        result[run] = largest_excess(
            offered, rng.normal(size=150), gamma, residual, lift, bound, 2.0
        )
    return result


def failures(ratios, shrink=1.0):
    return int((ratios > shrink).sum())


def test_lemma_1_covers_the_truth_in_all_rounds_at_once():
    everything = ib.Split(np.zeros((5, 0)), np.eye(5))
    ratios = excesses(everything, seed=0)
    assert failures(ratios[:, 0]) <= ETA * RUNS
    assert failures(ratios[:, 1]) <= failures(ratios[:, 0])
    assert failures(ratios[:, 0], shrink=0.6) > ETA * RUNS


def test_the_residual_set_of_theorem_1_covers_the_residual_component():
    basis = np.linalg.qr(np.random.default_rng(1).normal(size=(6, 6)))[0]
    ratios = excesses(ib.Split(basis[:, 2:], basis[:, :2]), seed=1)
    assert failures(ratios[:, 0]) <= ETA * RUNS
    assert failures(ratios[:, 1]) <= ETA * RUNS
    assert failures(ratios[:, 0], shrink=0.6) > ETA * RUNS


@pytest.mark.slow
def test_the_invariant_set_covers_the_component():
    rng = np.random.default_rng(2)
    basis = np.linalg.qr(rng.normal(size=(5, 5)))[0]
    split = ib.Split(basis[:, :3], basis[:, 3:])
    component = split.invariant @ np.array([1.0, -0.5, 0.8])
    radius = bounds.self_normalised_invariant_radius(3, ETA)
    ratios, theorem = np.empty(RUNS), np.empty(RUNS)
    for run in range(RUNS):
        scales = np.repeat(rng.uniform(0.5, 1.5, size=(4, 5)), 60, axis=0)
        features = (rng.normal(size=(240, 5)) * scales) @ basis.T
        drifting = np.repeat(rng.normal(size=(4, 2)), 60, axis=0)
        rewards = features @ component + np.einsum(
            "tj,tj->t", features @ split.residual, drifting
        )
        moments = ib.WindowedMoments.from_arrays(
            features, rewards + rng.normal(size=240), windows=4
        )
        fit = ib.InvariantSubspaceDecomposition(split=split).fit(moments)
        error = split.invariant.T @ (fit.component_ - component)
        covariance = split.invariant.T @ fit.component_covariance_ @ split.invariant
        ratios[run] = np.sqrt(error @ np.linalg.solve(covariance, error)) / radius
        gram = split.invariant.T @ moments.second_moment() @ split.invariant
        longest = float(np.linalg.norm(features, axis=1).max())
        bound = float(np.linalg.norm(component)) + float(
            np.linalg.norm(drifting, axis=1).max()
        )
        wide = bounds.theorem2_invariant_radius(
            3,
            fit.min_eigenvalue_,
            bounds.Assumptions(ETA, norm_bound=bound, feature_bound=longest),
        )
        theorem[run] = np.sqrt(error @ gram @ error) / wide
    assert failures(ratios) <= ETA * RUNS
    assert failures(ratios, shrink=0.7) > ETA * RUNS
    # The crossing term is so wide here that no constant could fail; `errors_of_logs` is where one can.
    assert failures(theorem) == 0


def test_the_sum_of_both_sets_covers_the_reward_of_every_action():
    """Algorithm 1 from logs with a known split: |φᵀγ − mean| ≤ width for all actions of the last round."""
    rng = np.random.default_rng(3)
    basis = np.linalg.qr(rng.normal(size=(5, 5)))[0]
    split = ib.Split(basis[:, :3], basis[:, 3:])
    component = split.invariant @ np.array([1.0, -0.5, 0.8])
    outside, runs = 0, 300
    for _ in range(runs):
        scales = np.repeat(rng.uniform(0.5, 1.5, size=(4, 5)), 60, axis=0)
        features = (rng.normal(size=(240, 5)) * scales) @ basis.T
        drifting = np.repeat(rng.normal(size=(4, 2)), 60, axis=0)
        rewards = features @ component + np.einsum(
            "tj,tj->t", features @ split.residual, drifting
        )
        moments = ib.WindowedMoments.from_arrays(
            features, rewards + rng.normal(size=240), windows=4
        )
        residual = rng.normal(size=2)
        gamma = component + split.residual @ residual
        policy = ib.ISDLinUCB.from_history(
            moments,
            split=split,
            delta=ETA,
            norm_bound=float(np.linalg.norm(residual)),
        )
        for _ in range(40):
            offered = rng.normal(size=(5, 5))
            action = policy.select(offered)
            policy.update(offered[action], offered[action] @ gamma + rng.normal())
        scores = policy.scores(offered)
        outside += bool((np.abs(offered @ gamma - scores.mean) > scores.width).any())
    assert outside <= 2 * ETA * runs


def errors_of_logs(runs, *, invariant_dim, drift, rounds=2000):
    """Errors of equation 6 in logs on the hypercube, where the crossing term vanishes with the drift.

    Yields features (T0, p), rewards (T0,) and the error of the pooled regression in the norm of the logs'
    Gram matrix. All stable coefficients are 0, the drifting one is ± `drift` in each of four windows.
    """
    rng = np.random.default_rng(5)
    for _ in range(runs):
        features = rng.choice([-1.0, 1.0], size=(rounds, invariant_dim + 1))
        signs = rng.choice([-1.0, 1.0], size=4)
        rewards = features[:, -1] * np.repeat(drift * signs, rounds // 4) + rng.normal(
            size=rounds
        )
        stable = features[:, :-1]
        pull = stable.T @ rewards
        yield (
            features,
            rewards,
            np.sqrt(pull @ np.linalg.solve(stable.T @ stable, pull)),
        )


@pytest.mark.parametrize(("invariant_dim", "eta"), [(20, 0.05), (8, 0.01)])
@pytest.mark.parametrize("drift", [0.0, 0.01])
def test_theorem_2_covers_with_the_corrected_constants_where_the_printed_ones_do_not(
    invariant_dim, eta, drift
):
    """2η is promised. Seen: corrected 0 to 2 of 400 runs; printed 383, 89, 96 and 13."""
    runs = 400
    missed = {"corrected": 0, "paper": 0}
    for features, _, error in errors_of_logs(
        runs, invariant_dim=invariant_dim, drift=drift
    ):
        smallest = np.linalg.eigvalsh(features.T @ features / len(features))[0]
        given = bounds.Assumptions(
            eta, norm_bound=drift, feature_bound=np.sqrt(invariant_dim + 1.0)
        )
        for constants in missed:
            radius = bounds.theorem2_invariant_radius(
                invariant_dim, smallest, given, constants=constants
            )
            missed[constants] += error > radius
    assert missed["corrected"] <= 2 * eta * runs
    if drift == 0.0 or invariant_dim == 20:
        assert missed["paper"] > 2 * eta * runs


def test_the_theorem_radius_of_a_policy_covers_where_the_drift_is_small():
    """The action along which the estimate is worst, in 60 logs; at most 6 misses are promised, 0 are seen."""
    outside, runs, invariant_dim = 0, 60, 20
    basis = np.eye(invariant_dim + 1)
    split = ib.Split(basis[:, :-1], basis[:, -1:])
    for features, rewards, _ in errors_of_logs(
        runs, invariant_dim=invariant_dim, drift=0.0
    ):
        moments = ib.WindowedMoments.from_arrays(features, rewards, windows=4)
        fit = ib.InvariantSubspaceDecomposition(split=split, component="pooled").fit(
            moments
        )
        policy = ib.ISDLinUCB.from_fit(
            fit,
            radius="theorem",
            noise_scale=1.0,
            delta=0.05,
            norm_bound=0.0,
            feature_bound=float(np.sqrt(invariant_dim + 1.0)),
            logged_rounds=moments.rounds,
            min_eigenvalue=fit.min_eigenvalue_,
        )
        worst_action = split.invariant @ (
            split.invariant.T @ moments.second_moment() @ fit.component_
        )
        scores = policy.scores(worst_action[None])
        outside += bool(abs(scores.mean[0]) > scores.width[0])
    assert outside <= 2 * 0.05 * runs


def largest_miss(radius, seed, *, logged, rounds, coefficients, eta=0.05):
    """Largest |φᵀγ − mean| / width over all rounds and 30 offered actions, with a known split.

    Features are N(0, I) in the logs and online, so that the paper's Assumptions 1 and 2 hold. Of p features
    one has a drifting coefficient. All stable coefficients and the drifting one online are `coefficients`.
    """
    rng = np.random.default_rng(seed)
    p = 4
    basis = np.linalg.qr(rng.normal(size=(p, p)))[0]
    split = ib.Split(basis[:, 1:], basis[:, :1])
    gamma = basis.sum(axis=1) * coefficients
    component = split.invariant @ (split.invariant.T @ gamma)
    features = rng.normal(size=(logged, p))
    drifting = np.repeat(coefficients * rng.normal(size=4), logged // 4)
    rewards = (
        features @ component
        + features @ split.residual[:, 0] * drifting
        + rng.normal(size=logged)
    )
    moments = ib.WindowedMoments.from_arrays(features, rewards, windows=4)
    policy = ib.ISDLinUCB.from_history(
        moments,
        split=split,
        radius=radius,
        delta=eta,
        noise_scale=1.0,
        norm_bound=coefficients,
    )
    worst = 0.0
    for _ in range(rounds):
        offered = rng.normal(size=(30, p))
        scores = policy.scores(offered)
        worst = max(
            worst, float((np.abs(offered @ gamma - scores.mean) / scores.width).max())
        )
        chosen = offered[policy.select(offered)]
        policy.update(chosen, chosen @ gamma + rng.normal())
    return worst


def test_only_the_joint_set_covers_when_the_online_rounds_are_many_times_the_logs():
    """T0 = 80, T = 4,000. At most 10 % of the runs may miss; seen: none with "joint", 5 of 12 with the other.

    The largest ratio of "joint" is 0.71. Half its width misses in 7 runs: it is not merely infinite.
    """
    many = {"logged": 80, "rounds": 4000, "coefficients": 1.0}
    joint = np.array([largest_miss("joint", seed, **many) for seed in range(12)])
    separate = np.array(
        [largest_miss("self-normalised", seed, **many) for seed in range(12)]
    )
    assert failures(joint) <= 2 * 0.05 * 12
    assert failures(joint, shrink=0.5) > 2 * 0.05 * 12
    assert failures(separate) > 2 * 0.05 * 12


@pytest.mark.parametrize("radius", ["self-normalised", "joint"])
def test_both_sets_cover_coefficients_of_zero_without_the_term_of_the_norm_bound(
    radius,
):
    """M = 0: only the noise term is left. At most 10 of 100 runs may miss."""
    few = {"logged": 240, "rounds": 60, "coefficients": 0.0}
    ratios = np.array([largest_miss(radius, seed, **few) for seed in range(100)])
    assert failures(ratios) <= 2 * 0.05 * 100
    assert failures(ratios, shrink=0.4) > 2 * 0.05 * 100


def test_an_estimated_split_widens_the_joint_set_until_it_covers():
    """Split tilted by 0.1 from the truth, long logs: without `subspace_error` the set is too narrow."""
    rng = np.random.default_rng(6)
    angle = 0.1
    tilted = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    split = ib.Split(tilted[:, :1], tilted[:, 1:])
    truth = ib.Split(np.eye(2)[:, :1], np.eye(2)[:, 1:])
    features = rng.normal(size=(20_000, 2))
    drifting = np.repeat(rng.uniform(-0.8, -0.4, size=4), 5000)
    rewards = 0.5 * features[:, 0] + drifting * features[:, 1] + rng.normal(size=20_000)
    moments = ib.WindowedMoments.from_arrays(features, rewards, windows=4)
    gamma = np.array([0.5, 0.8])
    common = {"split": split, "radius": "joint", "noise_scale": 1.0}
    offered = split.invariant.T
    narrow = ib.ISDLinUCB.from_history(moments, **common).scores(offered)
    wide = ib.ISDLinUCB.from_history(
        moments, subspace_error=split.distance(truth), **common
    ).scores(offered)
    assert abs(offered @ gamma - narrow.mean) > narrow.width
    assert abs(offered @ gamma - wide.mean) <= wide.width
