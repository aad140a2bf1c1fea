"""Windows that are silent about some directions: nothing is lost but what they lack."""

import numpy as np
import pytest

import invariant_bandits as ib
from invariant_bandits import InvariantSubspaceDecomposition, WindowedMoments
from invariant_bandits.decomposition.log_end import last_window
from invariant_bandits.decomposition.paths import (
    CoefficientPaths,
    PartialWindows,
    random_effects,
    singular_roots,
    window_paths,
)
from invariant_bandits.decomposition.split import constancy_test
from worlds import drawn_paths, random_basis, within

WINDOWS, P, MOVING = 8, 6, (4, 5)
LAST_AND_MIDDLE = ((7, 2), (3, 5))
"""(window, direction): a stable one is constant in the last window, a moving one in the middle."""


def silent_world(rng, *, silent=LAST_AND_MIDDLE, rounds=150, drift=0.5, basis=None):
    """Features (n, 6), rewards, coefficients (8, 6) along the columns of the basis, of which the last two
    move.
    """
    basis = np.eye(P) if basis is None else basis
    coefficients = np.tile(rng.uniform(0.5, 1.5, P), (WINDOWS, 1))
    coefficients[:, MOVING] += drift * rng.standard_normal((WINDOWS, len(MOVING)))
    coordinates = rng.standard_normal((WINDOWS, rounds, P)) * rng.uniform(
        0.5, 2.0, (WINDOWS, 1, P)
    )
    for window, direction in silent:
        coordinates[window, :, direction] = rng.normal()
    rewards = np.einsum("mnp,mp->mn", coordinates, coefficients) + rng.standard_normal(
        (WINDOWS, rounds)
    )
    return (coordinates @ basis.T).reshape(-1, P), rewards.ravel(), coefficients


def silent_moments(seed, **options):
    features, rewards, coefficients = silent_world(
        np.random.default_rng(seed), **options
    )
    return WindowedMoments.from_arrays(features, rewards, windows=WINDOWS), coefficients


# -- what a window knows --


def test_a_window_tells_what_least_squares_without_the_constant_feature_tells():
    features, rewards, _ = silent_world(np.random.default_rng(0))
    paths, noise, _ = window_paths(
        WindowedMoments.from_arrays(features, rewards, windows=WINDOWS)
    )
    rows = slice(7 * 150, None)
    others = np.delete(np.arange(P), 2)
    design = np.column_stack([np.ones(150), features[rows][:, others]])
    solution, squares = np.linalg.lstsq(design, rewards[rows], rcond=None)[:2]
    np.testing.assert_allclose(paths.coefficients[7, others], solution[1:], rtol=1e-9)
    assert noise[7] == pytest.approx(squares[0] / (150 - 6), rel=1e-9)
    values, variances = paths.marginals()
    assert np.isinf(variances[7, 2])
    assert np.isfinite(variances).sum() == WINDOWS * P - 2
    np.testing.assert_allclose(values[7, others], solution[1:], rtol=1e-9)
    precision = paths.precisions()[7]
    assert np.abs(precision[2]).max() < 1e-12 * precision.max()


def test_windows_that_are_regular_have_nothing_to_be_silent_about():
    moments, _ = silent_moments(0, silent=())
    assert singular_roots(moments.chosen, P) == {}
    assert window_paths(moments)[0].partial is None


def in_precision_form(paths, windows):
    """The same paths, some windows of which are given by what they know, as silent ones are."""
    roots = np.linalg.cholesky(np.linalg.inv(paths.covariances[windows]))
    seen = np.einsum("kir,ki->kr", roots, paths.coefficients[windows])
    p = paths.coefficients.shape[1]
    partial = PartialWindows(
        np.array(windows), roots, seen, np.zeros(p), 1e9 * np.eye(p)
    )
    return CoefficientPaths(paths.coefficients, paths.covariances, partial)


def test_the_precision_form_is_the_covariance_form_where_windows_are_regular():
    """With nothing expected of the rest (a huge spread) every answer is the same, so none of it is a
    second method.
    """
    rng = np.random.default_rng(1)
    paths = drawn_paths(rng, 1.0 + rng.standard_normal((7, 4)))
    same = in_precision_form(paths, [0, 3, 6])
    directions = random_basis(4, rng)[:, :2]
    for one, other in zip(
        paths.along(directions).weighted_mean(),
        same.along(directions).weighted_mean(),
        strict=True,
    ):
        np.testing.assert_allclose(other, one, rtol=1e-6)
    one, other = (constancy_test(each.along(directions)) for each in (paths, same))
    assert other.log_wald == pytest.approx(one.log_wald, rel=1e-6)
    assert other.log_trend == pytest.approx(one.log_trend, rel=1e-6)
    one = random_effects(paths, 200)
    other = random_effects(same, 200)
    for mine, theirs in zip(one, other, strict=True):
        np.testing.assert_allclose(theirs, mine, rtol=1e-8, atol=1e-12)
    mean, _, drift = one
    for mine, theirs in zip(
        *(last_window(each, mean, drift, np.eye(4), 0.75) for each in (paths, same)),
        strict=True,
    ):
        np.testing.assert_allclose(theirs, mine, rtol=1e-6, atol=1e-12)


def test_a_window_that_knows_nothing_leaves_the_last_coefficients_where_they_were_going():
    rng = np.random.default_rng(2)
    paths = drawn_paths(rng, 1.0 + rng.standard_normal((5, 2)))
    nothing = PartialWindows(
        np.array([4]), np.zeros((1, 2, 1)), np.zeros((1, 1)), np.ones(2), np.eye(2)
    )
    silent = CoefficientPaths(paths.coefficients, paths.covariances, nothing)
    drift, decay = np.ones(2), np.exp(-0.1)
    mean, _ = last_window(silent, np.ones(2), drift, 1e-12 * np.eye(2), decay)
    # The fifth window says nothing: from the fourth on there is one step towards the mean 1.
    four = CoefficientPaths(paths.coefficients[:4], paths.covariances[:4])
    before, _ = last_window(four, np.ones(2), drift, 1e-12 * np.eye(2), decay)
    np.testing.assert_allclose(mean - 1.0, np.exp(-0.1) * (before - 1.0), rtol=1e-9)


# -- the offline phase --


def right_splits(silent, seeds):
    right, errors = 0, []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        basis = random_basis(P, rng)
        features, rewards, coefficients = silent_world(
            rng, silent=silent, rounds=60, basis=basis
        )
        fit = InvariantSubspaceDecomposition().fit(features, rewards, windows=WINDOWS)
        truth = ib.Split(basis[:, :4], basis[:, 4:])
        if fit.split_.residual_dim == 2 and fit.split_.distance(truth) < 0.5:
            right += 1
            errors.append(
                np.linalg.norm(fit.component_ - basis[:, :4] @ coefficients[0, :4])
            )
    return right, np.mean(errors)


def test_the_split_is_found_as_often_as_with_regular_windows():
    """60 rounds in a window: in 0.923 of 1,000 logs with silent windows, 0.941 without
    (benchmarks/silent.py).
    """
    regular, error = right_splits((), range(40))
    silent, silent_error = right_splits(LAST_AND_MIDDLE, range(40))
    assert (
        silent >= regular - 7
    )  # four standard errors of a difference of counts that are both about 37
    assert silent >= 30
    assert silent_error < 1.2 * error


def test_the_test_of_constancy_keeps_its_level():
    """Each of four stable directions, one of them unknown to the last window, at 5 %; 1,000 logs:
    benchmarks.
    """
    rejected, logs = 0, 100
    for seed in range(logs):
        moments, _ = silent_moments(seed)
        paths, *_ = window_paths(moments)
        rejected += sum(
            constancy_test(paths.along(np.eye(P)[:, [j]])).log_p < np.log(0.05)
            for j in range(4)
        )
    assert within(rejected, 4 * logs, 0.045)


def test_coefficients_and_drift_are_recovered():
    drifts, apart = [], []
    for seed in range(60):
        moments, coefficients = silent_moments(seed)
        prior = ib.DriftPrior.from_moments(moments, np.eye(P))
        drifts.append(prior.drift)
        apart.append(
            (prior.mean - coefficients.mean(axis=0))[:4]
            / np.sqrt(np.diagonal(prior.mean_covariance)[:4])
        )
        assert prior.informing.tolist() == [8, 8, 7, 8, 8, 7]
    # EM's variance is that of 7 or 8 draws about their mean, 0.25·7/8; known to 7 % from 60 × 8 draws.
    np.testing.assert_allclose(np.mean(drifts, axis=0)[4:], 0.21, rtol=0.28)
    assert (np.mean(drifts, axis=0)[:4] < 2e-3).all()
    assert np.square(apart).mean() == pytest.approx(1.0, abs=0.4)  # χ²(1)/1, sd 0.09


def test_metrics_and_offered_actions_allow_partial_windows():
    rng = np.random.default_rng(3)
    features, rewards, _ = silent_world(rng, rounds=300)
    offered = np.stack([features, features[:, ::1]], axis=1)
    offered[:2100, 1] += 0.1 * rng.standard_normal((2100, P))
    for metric in ("euclidean", "whitened"):
        fit = InvariantSubspaceDecomposition(metric=metric).fit(
            features, rewards, windows=WINDOWS, offered=offered
        )
        assert fit.split_.residual_dim == 2
        np.testing.assert_allclose(fit.feature_stability_, [1, 1, 1, 1, 0, 0], atol=0.1)
        assert np.isfinite(fit.summary().count("block"))


def test_short_and_empty_windows_are_kept():
    features, rewards, _ = silent_world(np.random.default_rng(4), silent=(), rounds=200)
    edges = [0, 400, 403, 800, 1200, 1200.5, 1600]
    times = np.concatenate([np.arange(1200), 1201 + np.arange(399), [1600]])
    moments = WindowedMoments.from_arrays(features, rewards, times=times, edges=edges)
    assert moments.counts.tolist() == [400, 3, 397, 400, 0, 400]
    fit = InvariantSubspaceDecomposition().fit(moments)
    assert fit.split_.residual_dim == 2
    assert "2 of 6 windows have fewer than 8 rounds: they tell little" in fit.findings_
    policy = ib.AutoISD.from_history(moments)
    assert np.isfinite(policy.scores(features[:5]).mean).all()


# -- what cannot be estimated --


def test_a_block_that_one_window_tells_cannot_be_tested_and_counts_as_varying():
    features, rewards, _ = silent_world(
        np.random.default_rng(5),
        silent=[(window, 0) for window in range(7)],
        drift=0.0,
        rounds=300,
    )
    fit = InvariantSubspaceDecomposition(blocks=[[j] for j in range(P)]).fit(
        features, rewards, windows=WINDOWS
    )
    assert fit.split_.residual_dim == 1
    np.testing.assert_allclose(np.abs(fit.split_.residual[0]), 1.0, atol=1e-9)
    assert fit.testable_.tolist() == [True] * 5 + [False]
    assert any(
        "block 6 cannot be tested, because fewer than two windows inform some direction"
        in one
        for one in fit.findings_
    )
    assert (
        "windows 1, 2, 3, 4, 5, 6, 7 do not tell the coefficients of x0; the others do"
        in fit.summary()
    )


def test_the_drift_of_a_direction_that_few_windows_tell_raises_no_alarm():
    moments, _ = silent_moments(
        6, silent=[(window, 0) for window in range(4)], rounds=300
    )
    prior = ib.DriftPrior.from_moments(moments, np.eye(P))
    assert prior.informing[0] == 4
    policy = ib.AutoISD(prior)
    assert policy.explain().no_alarm_because == ""
    everywhere = [
        (window, j)
        for j in range(P)
        for window in (j % 2, 2 + j % 2, 4 + j % 2, 6 + j % 2)
    ]
    moments, _ = silent_moments(6, silent=everywhere, rounds=300)
    policy = ib.AutoISD(ib.DriftPrior.from_moments(moments, np.eye(P)))
    reason = "no direction is informed by more than 4 of 8 windows, it takes 5"
    assert policy.explain().no_alarm_because == reason


def test_a_policy_from_silent_windows_is_stored_and_goes_on(tmp_path):
    moments, coefficients = silent_moments(7)
    policy = ib.AutoISD.from_history(moments)
    ib.save(policy, tmp_path / "policy")
    again = ib.load(tmp_path / "policy")
    offered = np.random.default_rng(8).standard_normal((100, 5, P))
    assert np.array_equal(again.select_many(offered), policy.select_many(offered))
    best = (offered @ coefficients.mean(axis=0)).argmax(axis=1)
    assert (policy.select_many(offered) == best).mean() > 0.6
