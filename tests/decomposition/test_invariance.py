"""Invariance: tests of constancy keep their level, have the power they should, and the selection follows them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from invariant_bandits import Split, WindowedMoments
from invariant_bandits.decomposition.blocks import find_blocks, floored
from invariant_bandits.decomposition.invariance import (
    constancy_test,
    log_survival,
    refine_split,
    select_invariant,
)
from invariant_bandits.decomposition.paths import CoefficientPaths, window_paths
from worlds import piecewise_world, random_basis, random_spd, slight_turn, within

M, D = 6, 3


def drawn_paths(rng, centres, scale=0.1):
    """Coefficients N(centre_i, H_i) with random known covariances H_i of about scale²."""
    covariances = scale**2 * np.stack([random_spd(centres.shape[1], rng) for _ in centres])
    errors = [root @ rng.standard_normal(len(root)) for root in np.linalg.cholesky(covariances)]
    return CoefficientPaths(centres + errors, covariances)


# -- the χ² tail --


@pytest.mark.parametrize("freedom", [1, 2, 3, 7, 20, 56, 101, 400])
def test_log_survival_agrees_with_scipy_wherever_scipy_does_not_underflow(freedom):
    statistics = np.concatenate([[0.0, 1e-3], np.geomspace(0.1, 1000.0, 60)])
    ours = np.array([log_survival(statistic, freedom) for statistic in statistics])
    theirs = stats.chi2.logsf(statistics, freedom)
    usable = theirs > -700
    np.testing.assert_allclose(ours[usable], theirs[usable], rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize("freedom", [2, 4, 20, 56, 400, 5000])
def test_log_survival_is_exact_far_beyond_underflow(freedom):
    """For even freedom 2a the tail is e^(−x/2) Σ_{k<a} (x/2)^k / k!, summed here in logarithms."""
    powers = np.arange(freedom // 2)
    for statistic in np.geomspace(10.0, 1e8, 40):
        half = statistic / 2.0
        exact = special.logsumexp(powers * np.log(half) - special.gammaln(powers + 1.0)) - half
        assert log_survival(statistic, freedom) == pytest.approx(exact, rel=2e-6, abs=1e-9)


@pytest.mark.parametrize("freedom", [1, 5, 40])
def test_more_evidence_never_raises_the_p_value(freedom):
    values = np.array([log_survival(statistic, freedom) for statistic in np.linspace(0.0, 5000.0, 4001)])
    assert (np.diff(values) <= 0).all()
    assert values[0] == 0.0


# -- the tests of constancy --


def test_p_values_are_uniform_when_coefficients_are_constant():
    # Exact χ² here: each Kolmogorov–Smirnov p-value falls below 1e-3 with probability 1e-3 for fresh seeds.
    tests = [
        constancy_test(drawn_paths(np.random.default_rng(seed), np.ones((M, 1)) * [1.0, -2.0, 0.5]))
        for seed in range(1000)
    ]
    assert stats.kstest(np.exp([test.log_wald for test in tests]), "uniform").pvalue > 1e-3
    assert stats.kstest(np.exp([test.log_trend for test in tests]), "uniform").pvalue > 1e-3


def test_p_values_from_logs_are_uniform_when_coefficients_are_constant():
    # As above, with noise and covariances estimated from 60 rounds per window.
    values = []
    for seed in range(600):
        rng = np.random.default_rng(seed)
        features = rng.standard_normal((6 * 60, 3)) + 5.0
        rewards = features @ [1.0, -1.0, 2.0] + rng.standard_normal(6 * 60)
        paths, _ = window_paths(WindowedMoments.from_arrays(features, rewards, windows=6))
        values.append(np.exp(constancy_test(paths).log_wald))
    assert stats.kstest(values, "uniform").pvalue > 1e-3


def test_the_combined_p_value_keeps_the_level():
    # P(p ≤ 0.05) ≤ 0.05: Binomial(3000, 0.05) exceeds its mean by four deviations with probability below 1e-3.
    # The smaller of the two p-values alone would fall below 0.05 in about 8 % of the runs.
    rejected = sum(
        constancy_test(drawn_paths(np.random.default_rng(5000 + seed), np.zeros((M, D)))).log_p <= np.log(0.05)
        for seed in range(3000)
    )
    assert rejected <= 3000 * 0.05 + 4 * np.sqrt(3000 * 0.05 * 0.95)


@pytest.mark.parametrize("drift", [0.1, 0.2, 0.3])
def test_the_power_against_planted_drift_is_that_of_the_noncentral_chi_square(drift):
    # Binomial(400, power), four standard deviations: fails with probability below 1e-3 for fresh seeds.
    centres = drift * np.cos(np.arange(M * D)).reshape(M, D)
    covariance = 0.1**2 * np.eye(D)
    rejected = 0
    for seed in range(400):
        rng = np.random.default_rng(seed)
        coefficients = centres + 0.1 * rng.standard_normal((M, D))
        paths = CoefficientPaths(coefficients, np.broadcast_to(covariance, (M, D, D)))
        rejected += constancy_test(paths).log_wald < np.log(0.01)
    noncentrality = ((centres - centres.mean(axis=0)) ** 2).sum() / 0.1**2
    freedom = (M - 1) * D
    power = stats.ncx2.sf(stats.chi2.isf(0.01, freedom), freedom, noncentrality)
    assert within(rejected, 400, power)


def test_the_trend_test_sees_slow_drift_that_the_wald_test_misses():
    centres = 0.12 * np.linspace(-1.0, 1.0, 20)[:, None] * np.ones(2)
    found = {"wald": 0, "trend": 0}
    for seed in range(100):
        test = constancy_test(drawn_paths(np.random.default_rng(seed), centres, scale=0.1))
        found["wald"] += test.log_wald < np.log(0.01)
        found["trend"] += test.log_trend < np.log(0.01)
    assert found["trend"] >= found["wald"] + 20


@given(st.integers(0, 2**32 - 1))
def test_the_wald_test_does_not_care_about_the_order_of_the_windows(seed):
    rng = np.random.default_rng(seed)
    paths = drawn_paths(rng, rng.standard_normal((M, D)) * 0.1)
    order = rng.permutation(M)
    shuffled = CoefficientPaths(paths.coefficients[order], paths.covariances[order])
    assert constancy_test(shuffled).log_wald == pytest.approx(constancy_test(paths).log_wald, rel=1e-9, abs=1e-12)


@given(st.integers(0, 2**32 - 1))
def test_both_tests_do_not_care_about_the_coordinates_of_the_block(seed):
    rng = np.random.default_rng(seed)
    paths = drawn_paths(rng, rng.standard_normal((M, D)) * 0.1)
    change = random_basis(D, rng) @ np.diag(rng.uniform(0.1, 10.0, D))
    one, other = constancy_test(paths), constancy_test(paths.along(change))
    assert other.log_wald == pytest.approx(one.log_wald, rel=1e-7, abs=1e-9)
    assert other.log_trend == pytest.approx(one.log_trend, rel=1e-7, abs=1e-9)


def test_two_windows_leave_only_the_wald_test():
    paths = CoefficientPaths(np.array([[0.0], [3.0]]), np.ones((2, 1, 1)))
    test = constancy_test(paths)
    assert np.exp(test.log_wald) == pytest.approx(stats.chi2.sf(4.5, 1), rel=1e-9)
    assert test.log_trend == test.log_wald


# -- refinement of the split --


def joint_criterion(split, paths, covariances, sizes):
    """J(V): covariance part plus weighted squares of the deviations of the invariant coordinates, written out."""
    W, V = split
    value = sizes @ (np.linalg.slogdet(W.T @ covariances @ W)[1] + np.linalg.slogdet(V.T @ covariances @ V)[1])
    inside = paths.along(W)
    mean, _ = inside.weighted_mean()
    for coefficients, covariance in zip(inside.coefficients, inside.covariances, strict=True):
        value += (coefficients - mean) @ np.linalg.solve(covariance, coefficients - mean)
    return float(value)


def test_refining_a_disturbed_split_lowers_the_joint_criterion_and_the_error():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        world = piecewise_world(rng, rounds=500)
        paths, _ = window_paths(world.moments)
        covariances = floored(world.moments.chosen.covariance()[:, :5, :5])
        sizes = world.moments.counts
        turn = slight_turn(5, rng)
        disturbed = np.hsplit(turn @ world.split.basis, [3])
        stay, moved = refine_split([disturbed[0]], [disturbed[1]], paths, covariances, sizes)
        refined = (np.hstack(stay), np.hstack(moved))
        assert joint_criterion(refined, paths, covariances, sizes) < joint_criterion(
            disturbed, paths, covariances, sizes
        )
        assert Split(*refined).distance(world.split) < 0.5 * Split(*disturbed).distance(world.split)


def test_evidence_of_change_sharpens_a_split_that_covariances_alone_cannot_see():
    """Equal covariances in all windows say nothing about the basis; moving coefficients do.

    A path of length ℓ measured with covariances of at most 2·0.02² leaves an error of at most 0.028/ℓ times the root
    of a χ²(3) variable, which exceeds 4.6 with probability 1e-4.
    """
    for seed in range(10):
        rng = np.random.default_rng(seed)
        basis = random_basis(4, rng)
        truth = Split(*np.hsplit(basis, [3]))
        path = rng.standard_normal((M, 1))
        centres = truth.invariant @ [1.0, 1.0, 1.0] + path @ truth.residual.T
        paths = drawn_paths(rng, centres, scale=0.02)
        turn = slight_turn(4, rng)
        start = np.hsplit(turn @ basis, [3])
        stay, moved = refine_split([start[0]], [start[1]], paths, np.tile(np.eye(4), (M, 1, 1)), np.full(M, 100.0))
        refined = Split(stay[0], moved[0])
        assert refined.distance(truth) < 4.6 * 0.02 * np.sqrt(2.0) / np.linalg.norm(path - path.mean())
        assert refined.distance(truth) < 0.5 * Split(*start).distance(truth)


# -- the selection --


def selection(world, **options):
    moments = world.moments
    p = moments.dim
    paths, _ = window_paths(moments)
    covariances = floored(moments.chosen.covariance()[:, :p, :p])
    found = find_blocks(covariances, moments.counts)
    blocks = [found.basis[:, columns] for columns in found.blocks]
    return select_invariant(blocks, paths, covariances, moments.counts, **options)


def side(result, varies, p=5):
    parts = [block for block, moves in zip(result.blocks, result.varies, strict=True) if moves == varies]
    return np.hstack(parts) if parts else np.zeros((p, 0))


def test_the_planted_split_is_selected():
    right = 0
    for seed in range(20):
        world = piecewise_world(np.random.default_rng(seed), rounds=600)
        result = selection(world)
        found = side(result, False), side(result, True)
        if found[1].shape[1] == 2:
            right += np.linalg.norm(found[0].T @ world.split.residual, ord=2) < 0.15
    assert right >= 19


@pytest.mark.parametrize("residual_dim", [0, 5])
def test_everything_or_nothing_may_be_invariant(residual_dim):
    for seed in range(10):
        rng = np.random.default_rng(seed)
        world = piecewise_world(rng, invariant_dim=5 - residual_dim, residual_dim=residual_dim, rounds=600)
        assert side(selection(world), True).shape[1] == residual_dim


@pytest.mark.parametrize("invariant_dim", range(6))
def test_a_fixed_invariant_dimension_is_met_exactly(invariant_dim):
    for seed in range(5):
        world = piecewise_world(np.random.default_rng(seed), rounds=200)
        result = selection(world, invariant_dim=invariant_dim)
        joint = np.hstack([side(result, False), side(result, True)])
        assert side(result, False).shape == (5, invariant_dim)
        np.testing.assert_allclose(joint.T @ joint, np.eye(5), atol=1e-8)


def test_a_block_that_must_be_divided_gives_up_the_direction_that_moves():
    rng = np.random.default_rng(0)
    moving = random_basis(3, rng)[:, :1]
    paths = drawn_paths(rng, np.ones((20, 3)) + rng.standard_normal((20, 1)) @ moving.T, scale=0.02)
    unit = np.tile(np.eye(3), (20, 1, 1))
    result = select_invariant([np.eye(3)], paths, unit, np.full(20, 100.0), invariant_dim=2, refine=False)
    assert side(result, True, 3).shape == (3, 1)
    assert abs(float(side(result, True, 3)[:, 0] @ moving[:, 0])) > 0.999


def test_every_remaining_block_is_insignificant_and_every_moved_one_was_not():
    world = piecewise_world(np.random.default_rng(1), rounds=400)
    result = selection(world, alpha=0.05)
    limit = 0.05 / len(result.blocks)
    for varies, test in zip(result.varies, result.tests, strict=True):
        assert (test.log_p <= np.log(limit)) == varies


def test_all_blocks_together_keep_the_level():
    # At most 20 % of 300 constant worlds move any of five blocks; four deviations more have probability below 1e-3.
    blocks, unit = [np.eye(5)[:, [column]] for column in range(5)], np.tile(np.eye(5), (M, 1, 1))
    moved = 0
    for seed in range(300):
        paths = drawn_paths(np.random.default_rng(seed), np.zeros((M, 5)))
        moved += any(select_invariant(blocks, paths, unit, np.full(M, 100.0), alpha=0.2, refine=False).varies)
    assert moved <= 300 * 0.2 + 4 * np.sqrt(300 * 0.2 * 0.8)


def test_a_stricter_level_never_calls_more_directions_varying():
    for seed in range(10):
        world = piecewise_world(np.random.default_rng(seed), rounds=100, drift=0.15)
        moved = [side(selection(world, alpha=alpha), True).shape[1] for alpha in (1e-8, 1e-3, 0.1)]
        assert moved == sorted(moved)
