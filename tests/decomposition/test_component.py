"""The component, its covariance and the predictors: unbiased, covering, and adapting to what was planted."""

import numpy as np
import pytest
from scipy import stats

from invariant_bandits import InvariantSubspaceDecomposition, Split, WindowedMoments
from invariant_bandits.simulation.paper import PaperWorld
from worlds import piecewise_world, random_basis, within


def fitted(world, **parameters):
    return InvariantSubspaceDecomposition(**parameters).fit(
        world.features, world.rewards, windows=world.windows
    )


def greedy_rounds(rng, setting, rounds=200, actions=5):
    """Rounds of a fixed world in which the action of largest expected reward was chosen."""
    basis, scales, coefficients = setting
    offered = np.einsum(
        "mtkj,mj,pj->mtkp", rng.standard_normal((6, rounds, actions, 5)), scales, basis
    )
    means = np.einsum("mtkp,mp->mtk", offered, coefficients)
    best = means.argmax(axis=2)[:, :, None]
    features = np.take_along_axis(offered, best[..., None], axis=2).reshape(-1, 5)
    rewards = np.take_along_axis(means, best, axis=2).ravel() + rng.standard_normal(
        6 * rounds
    )
    return WindowedMoments.from_arrays(features, rewards, windows=6)


def hotelling_p_value(errors):
    """P-value of "the mean error is zero" from (runs, d) errors."""
    runs, d = errors.shape
    mean = errors.mean(axis=0)
    statistic = (
        runs
        * mean
        @ np.linalg.solve(np.cov(errors.T), mean)
        * (runs - d)
        / (d * (runs - 1))
    )
    return float(stats.f.sf(statistic, d, runs - d))


def test_greedy_logs_bias_the_pooled_component_and_not_the_one_within_windows():
    """One fixed world, logged 50 times by its greedy policy; the test of no bias fails with probability
    1e-3.
    """
    rng = np.random.default_rng(15)
    basis = random_basis(5, rng)
    split = Split(basis[:, :3], basis[:, 3:])
    component = split.invariant @ [1.0, 0.7, -0.8]
    coefficients = component + rng.standard_normal((6, 2)) @ split.residual.T
    setting = basis, rng.uniform(0.5, 2.0, (6, 5)), coefficients
    logs = [greedy_rounds(rng, setting) for _ in range(50)]
    errors = {
        kind: np.array(
            [
                split.invariant.T
                @ (
                    InvariantSubspaceDecomposition(split=split, component=kind)
                    .fit(log)
                    .component_
                    - component
                )
                for log in logs
            ]
        )
        for kind in ("within-window", "pooled")
    }
    assert hotelling_p_value(errors["within-window"]) > 1e-3
    assert hotelling_p_value(errors["pooled"]) < 1e-9


def test_under_greedy_logs_of_strong_rewards_the_error_within_windows_is_a_third():
    """With coefficients of length one the selection bias is small and the two are closer."""
    squares = {"within-window": 0.0, "pooled": 0.0}
    for seed in range(50):
        log = PaperWorld(logging="greedy", unit_start=False).log(
            3500, np.random.default_rng(seed)
        )
        moments = WindowedMoments.from_arrays(log.features, log.rewards, windows=8)
        for kind in squares:
            fit = InvariantSubspaceDecomposition(split=log.split, component=kind).fit(
                moments
            )
            squares[kind] += np.sum((fit.component_ - log.component) ** 2)
    assert np.sqrt(squares["pooled"] / squares["within-window"]) > 3.0


def test_the_pooled_component_is_least_squares_over_all_rounds():
    """The paper's estimator: no intercept, residual coordinates left out; classical covariance."""
    world = piecewise_world(np.random.default_rng(22))
    features, rewards = world.features + 2.0, world.rewards - 1.0
    fit = InvariantSubspaceDecomposition(split=world.split, component="pooled").fit(
        features, rewards, windows=6
    )
    W = world.split.invariant
    direct, residual, _, _ = np.linalg.lstsq(features @ W, rewards)
    np.testing.assert_allclose(fit.component_, W @ direct, rtol=1e-9)
    inverse = np.linalg.inv(W.T @ features.T @ features @ W)
    np.testing.assert_allclose(
        fit.component_covariance_,
        residual[0] / (1800 - 3) * W @ inverse @ W.T,
        rtol=1e-8,
        atol=1e-12,
    )


def component_wald_values(component, runs, drift):
    values = []
    for seed in range(runs):
        world = piecewise_world(np.random.default_rng(seed), rounds=100, drift=drift)
        fit = fitted(world, split=world.split, component=component)
        W = world.split.invariant
        error = W.T @ (fit.component_ - world.component)
        covariance = W.T @ fit.component_covariance_ @ W
        values.append(float(error @ np.linalg.solve(covariance, error)))
    return np.array(values)


@pytest.mark.parametrize(
    ("component", "drift"), [("within-window", 1.0), ("pooled", 0.0)]
)
def test_the_component_covers_the_truth_as_often_as_its_covariance_says(
    component, drift
):
    # Binomial(300, 0.95) to four deviations, and Kolmogorov–Smirnov: each fails with probability below 1e-3.
    # The pooled one leaves the residual part in the noise, so its covariance is exact if nothing is left.
    values = component_wald_values(component, 300, drift)
    assert within(int((values < stats.chi2.isf(0.05, 3)).sum()), 300, 0.95)
    assert stats.kstest(values, "chi2", args=(3,)).pvalue > 1e-3


def test_the_noise_scale_and_the_smallest_eigenvalue_are_those_planted():
    world = piecewise_world(np.random.default_rng(16), rounds=2000, noise=0.7)
    fit = fitted(world)
    # The standard error of a standard deviation from n rounds is σ/√(2n): five of them.
    assert abs(fit.noise_scale_ - 0.7) < 5 * 0.7 / np.sqrt(2 * 12_000)
    direct = np.linalg.eigvalsh(
        world.features.T @ world.features / len(world.features)
    )[0]
    assert fit.min_eigenvalue_ == pytest.approx(direct, rel=1e-9)


def test_the_noise_scale_pools_the_squares_that_are_left_over_what_is_free():
    world = piecewise_world(np.random.default_rng(23))
    moments = WindowedMoments.from_arrays(
        world.features, world.rewards, times=np.arange(1800), edges=[0, 16, 200, 1800]
    )
    left = 0.0
    for rows in np.split(np.arange(1800), [16, 200]):
        design = np.column_stack([np.ones(len(rows)), world.features[rows]])
        left += np.linalg.lstsq(design, world.rewards[rows], rcond=None)[1][0]
    fit = InvariantSubspaceDecomposition(split=world.split).fit(moments)
    assert fit.noise_scale_ == pytest.approx(np.sqrt(left / (1800 - 3 * 6)), rel=1e-9)


def test_without_noise_the_pooled_component_is_exact_and_its_covariance_no_less_than_zero():
    for seed in range(20):
        world = piecewise_world(np.random.default_rng(seed), noise=0.0, drift=0.0)
        fit = fitted(world, split=world.split, component="pooled")
        np.testing.assert_allclose(fit.component_, world.component, atol=1e-9)
        assert (np.diagonal(fit.component_covariance_) >= 0.0).all()


def test_the_coefficients_of_each_window_are_its_least_squares():
    world = piecewise_world(np.random.default_rng(17))
    fit = fitted(world, metric="whitened")
    for window, rows in enumerate(np.split(np.arange(1800), 6)):
        design = np.column_stack([np.ones(300), world.features[rows]])
        direct, residual, _, _ = np.linalg.lstsq(design, world.rewards[rows])
        np.testing.assert_allclose(
            fit.coefficients_[window], direct[1:], rtol=1e-8, atol=1e-10
        )
        assert fit.window_noise_[window] == pytest.approx(
            residual[0] / (300 - 6), rel=1e-8
        )


# -- using the fit --


def test_adaptation_recovers_the_planted_residual_and_prediction_uses_it():
    world = piecewise_world(np.random.default_rng(18), rounds=2000)
    fit = fitted(world)
    rng = np.random.default_rng(19)
    recent = rng.standard_normal((400, 5))
    delta = world.split.residual @ [3.0, -2.0]
    rewards = recent @ (world.component + delta) + 0.1 * rng.standard_normal(400)
    found = fit.adapt(recent, rewards)
    assert np.linalg.norm(found - delta) < 0.15
    np.testing.assert_allclose(fit.split_.invariant.T @ found, 0.0, atol=1e-12)
    np.testing.assert_allclose(fit.predict(recent), recent @ fit.component_)
    np.testing.assert_allclose(
        fit.predict(recent, found), recent @ (fit.component_ + found)
    )
    before, after = (
        np.mean((rewards - fit.predict(recent, part)) ** 2) for part in (None, found)
    )
    assert after < 0.1 * before


def test_adaptation_with_a_baseline_ignores_the_level_of_rewards():
    world = piecewise_world(np.random.default_rng(20), rounds=1000)
    fit = fitted(world)
    recent, rewards = world.features[-50:], world.rewards[-50:]
    np.testing.assert_allclose(
        fit.adapt(recent, rewards + 1000.0, baseline=True),
        fit.adapt(recent, rewards, baseline=True),
        atol=1e-9,
    )


def test_a_fixed_split_adapts_from_fewer_rows_than_features():
    world = piecewise_world(np.random.default_rng(21), rounds=5000, noise=0.01)
    fit = fitted(world)
    found = fit.adapt(world.features[-4:], world.rewards[-4:], ridge=1e-6)
    assert np.linalg.norm(fit.component_ + found - world.coefficients[-1]) < 0.2
