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
lemma1_radius, lemma1_trace_bound = njit(bounds.lemma1_radius), njit(bounds.lemma1_trace_bound)


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
        worst_trace = max(worst_trace, np.sqrt(error) / lemma1_radius(trace, ETA, 1.0, RIDGE, norm_bound))
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
        result[run] = largest_excess(offered, rng.normal(size=150), gamma, residual, lift, bound, 2.0)
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
        rewards = features @ component + np.einsum("tj,tj->t", features @ split.residual, drifting)
        moments = ib.WindowedMoments.from_arrays(features, rewards + rng.normal(size=240), windows=4)
        fit = ib.InvariantSubspaceDecomposition(split=split).fit(moments)
        error = split.invariant.T @ (fit.component_ - component)
        covariance = split.invariant.T @ fit.component_covariance_ @ split.invariant
        ratios[run] = np.sqrt(error @ np.linalg.solve(covariance, error)) / radius
        gram = split.invariant.T @ moments.second_moment() @ split.invariant
        longest = float(np.linalg.norm(features, axis=1).max())
        bound = float(np.linalg.norm(component)) + float(np.linalg.norm(drifting, axis=1).max())
        wide = bounds.theorem2_invariant_radius(
            3, fit.min_eigenvalue_, bounds.Assumptions(ETA, norm_bound=bound, feature_bound=longest)
        )
        theorem[run] = np.sqrt(error @ gram @ error) / wide
    assert failures(ratios) <= ETA * RUNS
    assert failures(ratios, shrink=0.7) > ETA * RUNS
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
        rewards = features @ component + np.einsum("tj,tj->t", features @ split.residual, drifting)
        moments = ib.WindowedMoments.from_arrays(features, rewards + rng.normal(size=240), windows=4)
        residual = rng.normal(size=2)
        gamma = component + split.residual @ residual
        policy = ib.ISDLinUCB.from_history(
            moments, split=split, confidence=ETA, norm_bound=float(np.linalg.norm(residual))
        )
        for _ in range(40):
            offered = rng.normal(size=(5, 5))
            action = policy.select(offered)
            policy.update(offered[action], offered[action] @ gamma + rng.normal())
        scores = policy.scores(offered)
        outside += bool((np.abs(offered @ gamma - scores.mean) > scores.width).any())
    assert outside <= 2 * ETA * runs
