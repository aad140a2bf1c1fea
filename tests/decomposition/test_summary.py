"""The summary says what was found, and the findings appear exactly when there is reason for care."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from invariant_bandits import InvariantSubspaceDecomposition, Split, WindowedMoments
from invariant_bandits.decomposition.estimator import (
    block_spread,
    direction_paths,
    findings,
    main_features,
    p_value_words,
)
from invariant_bandits.simulation.paper import PaperWorld
from worlds import piecewise_world


def fit_of(log, offered=True, **parameters):
    return InvariantSubspaceDecomposition(**parameters).fit(
        log.features, log.rewards, windows=8, offered=log.offered if offered else None
    )


def has_finding(fit, words):
    return any(words in finding for finding in fit.findings_)


def test_the_summary_states_dimensions_verdicts_evidence_and_names():
    world = piecewise_world(np.random.default_rng(0), basis=np.eye(5), rounds=600)
    names = ["price", "age", "hour", "rain", "wind"]
    fit = InvariantSubspaceDecomposition(feature_names=names).fit(world.moments)
    text = fit.summary()
    assert "rounds 3,600 in 6 windows, 5 features, basis from chosen actions" in text
    assert "drifting: 2 of 5 dimensions   no drift detected: 3" in text
    assert f"noise sd {fit.noise_scale_:.3g}" in text
    assert f"λ0 {fit.min_eigenvalue_:.3g}" in text
    verdicts = re.compile(r" +\d+ +\d+  (stable|drifts|no drift detected) ")
    rows = [line for line in text.splitlines() if verdicts.match(line)]
    assert len(rows) == len(fit.blocks_)
    for row, block, varies, log_p in zip(
        rows, fit.blocks_, fit.varies_, fit.log_p_values_, strict=True
    ):
        assert ("drifts" in row) == varies
        assert p_value_words(log_p) in row
        main = names[int(np.argmax((fit.basis_[:, block] ** 2).sum(axis=1)))]
        assert main in row
        if len(block) == 1:
            assert (main in ("rain", "wind")) == varies
    for finding in fit.findings_:
        assert f"note: {finding}" in text


def test_offered_actions_from_a_uniform_policy_leave_nothing_to_warn_of_in_most_logs():
    """Three stable blocks fall below 0.05 in at most 15 % of logs; more than 8 of 20 then have
    probability 2e-3.
    """
    quiet = sum(
        not fit_of(PaperWorld().log(4000, np.random.default_rng(seed))).findings_
        for seed in range(20)
    )
    assert quiet >= 12


def test_chosen_actions_of_a_uniform_policy_are_noted_mildly():
    fit = fit_of(PaperWorld().log(2000, np.random.default_rng(1)), offered=False)
    assert has_finding(fit, "the log has chosen actions only")
    assert not has_finding(fit, "far from centred")


@pytest.mark.parametrize("logging", ["greedy", "linucb"])
def test_chosen_actions_of_a_selective_policy_are_warned_of(logging):
    log = PaperWorld(logging=logging).log(3500, np.random.default_rng(2))
    assert has_finding(
        fit_of(log, offered=False),
        "only chosen actions were used, and their features are far",
    )
    assert has_finding(
        fit_of(log, covariances="chosen"),
        "only chosen actions were used, and their features are far",
    )
    assert not has_finding(fit_of(log), "chosen actions")


@pytest.mark.parametrize(
    ("shift", "warned"), [(np.sqrt(0.25), True), (np.sqrt(0.05), False)]
)
def test_features_count_as_far_from_centred_from_a_squared_shift_of_a_tenth(
    shift, warned
):
    """Standard normal features about a mean of this length: 4000 rounds know its square to about 0.01."""
    rng = np.random.default_rng(9)
    features = rng.standard_normal((4000, 5)) + shift / np.sqrt(5.0)
    fit = InvariantSubspaceDecomposition().fit(
        features, features.sum(axis=1) + rng.standard_normal(4000), windows=8
    )
    assert has_finding(fit, "far from centred") == warned
    if warned:
        assert has_finding(fit, f"mean shift {shift:.1f} standard deviations")


def test_many_features_in_short_windows_are_not_mistaken_for_a_selective_policy():
    """Noise alone gives a mean of 150 rounds a squared length near 20/128; less 20/150, 0.02 is left,
    with sd 0.02.
    """
    rng = np.random.default_rng(10)
    features = rng.standard_normal((8 * 150, 20))
    everything = Split(np.eye(20), np.zeros((20, 0)))
    fit = InvariantSubspaceDecomposition(split=everything).fit(
        features, rng.standard_normal(8 * 150), windows=8
    )
    assert not has_finding(fit, "far from centred")


def test_few_rounds_per_window_are_warned_of():
    log = PaperWorld().log(8 * 50, np.random.default_rng(3))
    assert not has_finding(fit_of(log), "few rounds per window")
    fewer = PaperWorld().log(8 * 49, np.random.default_rng(3))
    assert has_finding(
        fit_of(fewer),
        "few rounds per window: 49 for 10 features; 50 or more are better",
    )


def test_the_shortest_window_is_the_one_that_is_warned_of():
    world = piecewise_world(np.random.default_rng(14))
    moments = WindowedMoments.from_arrays(
        world.features, world.rewards, times=np.arange(1800), edges=[0, 900, 920, 1800]
    )
    fit = InvariantSubspaceDecomposition(split=world.split).fit(moments)
    assert has_finding(fit, "few rounds per window: 20 for 5 features")


def test_heavy_tails_are_warned_of():
    assert has_finding(
        fit_of(PaperWorld(degrees_of_freedom=5.0).log(4000, np.random.default_rng(4))),
        "heavy-tailed",
    )
    assert not has_finding(
        fit_of(PaperWorld().log(4000, np.random.default_rng(4))), "heavy-tailed"
    )


def test_tails_count_as_heavy_from_half_beyond_the_gaussian_on():
    fit = fit_of(PaperWorld().log(1000, np.random.default_rng(11)))
    moments = WindowedMoments.empty(10, 8, offered=True)
    moments.chosen.count[:] = 1000.0
    for weight, warned in ((1.4, False), (1.6, True)):
        fit.tail_weights_ = weight + np.linspace(-0.3, 0.3, 8)
        warnings = [
            finding for finding in findings(fit, moments) if "heavy-tailed" in finding
        ]
        assert bool(warnings) == warned
        assert not warnings or f"inflated {weight}-fold" in warnings[0]


def test_evidence_near_the_line_is_called_weak_and_only_then():
    """Near is between a hundredth of the level of one block and 0.05."""
    fit = fit_of(PaperWorld().log(2000, np.random.default_rng(5)))
    near = {"stable": 0.04, "varying": 0.02 * fit.alpha / len(fit.blocks_)}
    far = {"stable": 0.06, "varying": 0.005 * fit.alpha / len(fit.blocks_)}
    moments = WindowedMoments.empty(10, 8, offered=True)
    moments.chosen.count[:] = 1000.0
    for p_values, expected in (
        (near, True),
        (near | {"stable": 1.0}, True),
        (far | near, True),
        (far, False),
    ):
        fit.log_p_values_ = np.log(
            np.where(fit.varies_, p_values["varying"], p_values["stable"])
        )
        assert (
            any("weak evidence" in finding for finding in findings(fit, moments))
            == expected
        )


def test_a_search_that_has_not_converged_is_reported():
    fit = fit_of(PaperWorld().log(2000, np.random.default_rng(6)))
    moments = WindowedMoments.empty(10, 8, offered=True)
    moments.chosen.count[:] = 1000.0
    fit.converged_ = False
    assert any("has not converged" in finding for finding in findings(fit, moments))


def test_windows_that_are_alike_are_reported_and_nothing_is_said_of_convergence():
    rng = np.random.default_rng(7)
    features = rng.standard_normal((8000, 20))
    fit = InvariantSubspaceDecomposition().fit(
        features, features[:, 0] + rng.standard_normal(8000), windows=8
    )
    assert "the windows do not distinguish directions" in fit.summary()
    assert fit.converged_
    assert not fit.distinct_


@given(st.floats(-1e5, 0.0))
def test_a_p_value_in_words_is_the_p_value_to_one_digit(log_p):
    mantissa, _, exponent = p_value_words(log_p).partition("e")
    stated = np.log(float(mantissa)) + float(exponent or 0) * np.log(10.0)
    assert abs(stated - log_p) <= np.log(1.5) + 1e-6


def test_p_values_beyond_floats_are_written_out():
    assert p_value_words(np.log(0.0321)) == "0.0321"
    assert p_value_words(np.log(9.4e-5)) == "9e-5"
    assert p_value_words(np.log(9.7e-5)) == "1e-4"
    assert p_value_words(-2000.0 * np.log(10.0)) == "1e-2000"


def test_the_drift_of_a_block_is_the_standard_deviation_that_was_planted():
    """Twenty worlds of 40 windows: the mean of the 20 estimates of τ = 0.5 has standard error
    0.5/√(2·40·20).
    """
    estimates, stable = [], []
    for seed in range(20):
        world = piecewise_world(
            np.random.default_rng(seed),
            invariant_dim=2,
            residual_dim=1,
            windows=40,
            rounds=200,
            drift=0.5,
        )
        fit = InvariantSubspaceDecomposition(split=world.split).fit(world.moments)
        estimates.append(block_spread(fit, 1)[0])
        stable.append(block_spread(fit, 0)[0])
    assert abs(np.mean(estimates) - 0.5) < 4 * 0.5 / np.sqrt(2 * 40 * 20)
    assert np.mean(stable) < 0.05


def test_the_drift_of_one_direction_is_the_estimate_of_dersimonian_and_laird():
    """Few windows of very different lengths, where a degree of freedom more or less shows."""
    world = piecewise_world(
        np.random.default_rng(12), invariant_dim=1, residual_dim=1, windows=4
    )
    edges = [0, 30, 200, 230, 1200]
    moments = WindowedMoments.from_arrays(
        world.features, world.rewards, times=np.arange(1200), edges=edges
    )
    fit = InvariantSubspaceDecomposition(split=world.split).fit(moments)
    paths = direction_paths(fit, fit.blocks_[1])
    weights, values = 1.0 / paths.covariances[:, 0, 0], paths.coefficients[:, 0]
    excess = weights @ (values - np.average(values, weights=weights)) ** 2 - 3.0
    tau = np.sqrt(excess / (weights.sum() - (weights**2).sum() / weights.sum()))
    assert tau > 0.0
    assert block_spread(fit, 1)[0] == pytest.approx(tau, rel=1e-9)


def test_between_three_and_five_features_are_named_the_heaviest_first():
    names = ["price", "age", "hour", "rain", "wind", "snow", "tide"]
    basis = np.linalg.qr(np.diag([7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0]) + 0.1)[0]
    world = piecewise_world(
        np.random.default_rng(13), invariant_dim=6, residual_dim=1, basis=basis
    )
    fit = InvariantSubspaceDecomposition(split=world.split, feature_names=names).fit(
        world.moments
    )
    for block, shown in ((0, 5), (1, 3)):
        weight = (fit.basis_[:, fit.blocks_[block]] ** 2).sum(axis=1)
        heaviest = sorted(
            names, key=lambda name, weight=weight: -weight[names.index(name)]
        )
        assert main_features(fit, block).split(", ") == heaviest[:shown]


def test_the_stated_error_is_the_standard_error_in_one_window():
    world = piecewise_world(np.random.default_rng(7), rounds=400)
    fit = InvariantSubspaceDecomposition(split=world.split).fit(world.moments)
    direct = direction_paths(fit, fit.blocks_[0]).covariances
    harmonic = np.mean(
        [np.trace(np.linalg.inv(covariance)) / 3 for covariance in direct]
    )
    assert block_spread(fit, 0)[1] == pytest.approx(1.0 / np.sqrt(harmonic), rel=1e-9)


@pytest.mark.parametrize("metric", ["euclidean", "whitened"])
def test_coefficients_are_the_basis_times_their_paths(metric):
    world = piecewise_world(np.random.default_rng(8))
    fit = InvariantSubspaceDecomposition(metric=metric).fit(world.moments)
    coordinates = direction_paths(fit, np.arange(5)).coefficients
    np.testing.assert_allclose(
        coordinates @ fit.basis_.T, fit.coefficients_, atol=1e-10
    )
