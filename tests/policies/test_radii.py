"""Radii and regret bounds say what their theorems say."""

from math import exp, log, sqrt

import numpy as np
import pytest
from scipy import special

import invariant_bandits as ib
from invariant_bandits.policies import radii as bounds


def test_lemma_1_with_the_trace_bound_is_never_smaller_than_with_the_determinant():
    rng = np.random.default_rng(0)
    for _ in range(200):
        p, t, ridge = (
            int(rng.integers(1, 8)),
            int(rng.integers(0, 50)),
            float(rng.uniform(0.01, 3)),
        )
        rows = rng.normal(size=(t, p))
        length = float(np.linalg.norm(rows, axis=1).max(initial=0.0))
        volume = np.linalg.slogdet(ridge * np.eye(p) + rows.T @ rows)[1] - p * log(
            ridge
        )
        assert volume <= bounds.lemma1_trace_bound(t, p, ridge, length) + 1e-9


def test_radii_are_the_published_formulas():
    given = bounds.Assumptions(
        delta=0.1, noise_scale=2.0, ridge=0.25, norm_bound=4.0, feature_bound=3.0
    )
    assert bounds.lemma1_radius(3.0, 0.1, 2.0, 0.25, 4.0) == pytest.approx(
        2 * sqrt(2 * log(10) + 3) + 0.5 * 4
    )
    sliding = 2 * sqrt(5 * log((1 + 100 * 9 / 0.25) / 0.1)) + 0.5 * 4
    assert bounds.sliding_window_radius(5, 100, given) == pytest.approx(sliding)
    weight = (1 - 0.9**14) / (1 - 0.81)
    discounted = 0.5 * 4 + 2 * sqrt(2 * log(10) + 5 * log(1 + 9 * weight / (0.25 * 5)))
    assert bounds.discounted_radius(7, 5, 0.9, given) == pytest.approx(discounted)
    assert bounds.thompson_scale(6, 5, 0.1, 2.0) == pytest.approx(
        2 * sqrt(9 * 5 * log(7 / 0.1))
    )
    assert bounds.disjoint_radius(0.1) == pytest.approx(1 + sqrt(log(20) / 2))
    theorem1 = 2 * sqrt(2 * log(10) + 3 * log(1 + 7 * 9 / (0.25 * 3))) + 0.5 * 4
    assert bounds.theorem1_residual_radius(7, 3, given) == pytest.approx(theorem1)
    crossing = 2 * 9 * 4 * sqrt(2 / 0.2 * log(7 / 0.1))
    printed = 2 * sqrt(2 * log(10) + 6 * log(9 / (6 * 0.2))) + crossing
    theorem2 = 2 * sqrt(4 * log(10) + 2 * 6 * log(1 + 9 / (6 * 0.2))) + crossing
    assert bounds.theorem2_invariant_radius(6, 0.2, given) == pytest.approx(theorem2)
    assert bounds.theorem2_invariant_radius(
        6, 0.2, given, constants="paper"
    ) == pytest.approx(printed)
    logs = bounds.Logs(6, 0.2, 900, 0.05)
    tilted = sqrt(6 * 900) * 0.05 * 12 + sqrt(900 / 0.2) * 0.05 * 9 * 4
    lemma2 = theorem2 + tilted
    assert bounds.lemma2_invariant_radius(logs, given) == pytest.approx(lemma2)
    assert bounds.lemma2_invariant_radius(
        logs, given, constants="paper"
    ) == pytest.approx(printed + tilted)
    error = lemma2 / sqrt(0.2 * 900) + 0.05 * 4
    assert bounds.component_error(lemma2, logs, 4.0) == pytest.approx(error)
    lemma3 = theorem1 + 3 * 4 * 0.05 * sqrt(3 * 7) + 3 * error * sqrt(3 * 7)
    assert bounds.lemma3_residual_radius(7, 3, error, 0.05, given) == pytest.approx(
        lemma3
    )


@pytest.mark.parametrize("dim", [1, 3, 7, 40])
@pytest.mark.parametrize("eta", [0.2, 0.01, 1e-4])
def test_the_self_normalised_invariant_radius_covers_gaussian_errors_and_is_the_best_of_its_family(
    dim, eta
):
    squared = bounds.self_normalised_invariant_radius(dim, eta) ** 2
    assert special.gammaincc(dim / 2, squared / 2) <= eta
    family = [
        (1 + c) * (2 * log(1 / eta) + dim * log(1 + 1 / c))
        for c in np.geomspace(1e-3, 1e2, 400)
    ]
    assert squared <= min(family) * (1 + 1e-12)
    assert squared == pytest.approx(min(family), rel=1e-3)


def test_without_invariant_directions_there_is_nothing_to_be_uncertain_about():
    assert bounds.self_normalised_invariant_radius(0, 0.01) == 0.0
    assert bounds.theorem2_invariant_radius(0, 0.1, bounds.Assumptions(0.01)) == 0.0


def test_a_feature_bound_that_contradicts_the_eigenvalue_is_refused():
    with pytest.raises(ib.InputError, match="feature_bound"):
        bounds.theorem2_invariant_radius(6, 2.0, bounds.Assumptions(0.1))


def test_constants_of_another_name_are_refused():
    given = bounds.Assumptions(0.1)
    with pytest.raises(ib.InputError, match="constants must be one of"):
        bounds.theorem2_invariant_radius(3, 0.1, given, constants="printed")
    with pytest.raises(ib.InputError, match="constants must be one of"):
        bounds.theorem1_regret_bound(100, 3, constants="printed")


def test_regret_bounds_are_the_formulas_of_their_docstrings():
    scales = {
        "noise_scale": 2.0,
        "ridge": 0.25,
        "norm_bound": 4.0,
        "feature_bound": 3.0,
    }
    volume = 3 * log(1 + 50 * 9 / (0.25 * 3))
    radius = 2 * sqrt(2 * log(50) + volume) + 0.5 * 4
    corrected = 2 * max(12, radius) * sqrt(2 * 50 * volume)
    assert bounds.theorem1_regret_bound(50, 3, **scales) == pytest.approx(corrected)
    printed = 2 * 12 * radius * sqrt(50 * volume)
    assert bounds.theorem1_regret_bound(
        50, 3, constants="paper", **scales
    ) == pytest.approx(printed)

    logs = bounds.Logs(6, 0.2, 900, 0.05)
    given = bounds.Assumptions(1 / (11 * 50), **scales)
    for constants, sides in (("corrected", 2.0), ("paper", 1.0)):
        stable = bounds.lemma2_invariant_radius(logs, given, constants=constants)
        error = bounds.component_error(stable, logs, 4.0)
        radius = bounds.lemma3_residual_radius(50, 3, error, 0.05, given)
        explored = 2 * max(12, radius) * sqrt(2 * 50 * volume)
        if constants == "paper":
            explored = 2 * 12 * radius * sqrt(50 * volume)
        stable_cost = 50 * (2 * 3 * stable / sqrt(0.2 * 900) + sides * 12 * 0.05)
        bound = bounds.theorem3_regret_bound(50, 3, logs, constants=constants, **scales)
        assert bound == pytest.approx(stable_cost + explored)


@pytest.mark.parametrize(
    ("dim", "horizon", "ridge", "noise_scale"),
    [(1, 2, 0.1, 1e-6), (10, 20, 1e-4, 1e-3), (10, 100, 1e-6, 1e-3)],
)
def test_where_noise_and_ridge_are_small_the_regret_exceeds_the_printed_bound_of_theorem_1_only(
    dim, horizon, ridge, noise_scale
):
    """Actions ±e_j, all coefficients −1/√p: a cold LinUCB tries each wrong side once, a loss of 2√p.

    The noise is at most a thousandth of what decides, so that the regret hardly depends on the seed.
    """
    scales = {
        "ridge": ridge,
        "noise_scale": noise_scale,
        "norm_bound": 1.0,
        "feature_bound": 1.0,
    }
    policy = ib.LinUCB(dim, delta=1.0 / horizon, **scales)
    actions = np.vstack([np.eye(dim), -np.eye(dim)])
    means = actions @ np.full(dim, -1.0 / sqrt(dim))
    rng = np.random.default_rng(0)
    regret = 0.0
    for _ in range(horizon):
        action = policy.select(actions)
        policy.update(actions[action], means[action] + noise_scale * rng.normal())
        regret += means.max() - means[action]
    assert regret > bounds.theorem1_regret_bound(
        horizon, dim, constants="paper", **scales
    )
    assert regret <= bounds.theorem1_regret_bound(horizon, dim, **scales)


def test_with_few_rounds_the_regret_exceeds_the_printed_bound_of_theorem_3_only():
    """p_inv = p_res = 1, logs so long that the stable part costs nothing; −e_1 is the best action."""
    scales = {
        "ridge": 0.1,
        "noise_scale": 1e-6,
        "norm_bound": 1.0,
        "feature_bound": 1.0,
    }
    logs = bounds.Logs(invariant_dim=1, min_eigenvalue=0.4, logged_rounds=10**12)
    policy = ib.ISDLinUCB(
        ib.Split(np.array([[0.0], [1.0]]), np.array([[1.0], [0.0]])),
        np.zeros(2),
        component_precision=[[1e24]],
        radius="theorem",
        logged_rounds=logs.logged_rounds,
        min_eigenvalue=logs.min_eigenvalue,
        delta=1.0 / 22.0,
        **scales,
    )
    actions = np.array([[1.0, 0.0], [-1.0, 0.0]])
    regret = 0.0
    for _ in range(2):
        action = policy.select(actions)
        policy.update(actions[action], -actions[action, 0])
        regret += 1.0 + actions[action, 0]
    assert regret > bounds.theorem3_regret_bound(
        2, 1, logs, constants="paper", **scales
    )
    assert regret <= bounds.theorem3_regret_bound(2, 1, logs, **scales)


def test_the_bound_of_theorem_3_falls_to_that_of_theorem_1_as_logs_grow():
    common = {"delta": 0.01, "feature_bound": 2.0}
    least = bounds.theorem1_regret_bound(300, 3, **common)
    third = [
        bounds.theorem3_regret_bound(
            300, 3, bounds.Logs(7, 0.1, 10**k, 10 ** (-k / 2)), **common
        )
        for k in range(3, 19, 3)
    ]
    assert all(np.diff(third) < 0)
    assert third[-1] > least
    assert third[-1] == pytest.approx(least, rel=0.01)


def test_regret_bounds_lie_above_the_lower_bound_and_grow_like_the_square_root_of_time():
    for residual_dim in (1, 3, 10):
        for horizon in (10, 1000, 100_000):
            upper = bounds.theorem1_regret_bound(horizon, residual_dim)
            lower = bounds.regret_lower_bound(horizon, residual_dim)
            assert lower == pytest.approx(exp(-2) / 8 * residual_dim * sqrt(horizon))
            assert upper > lower
    growth = bounds.theorem1_regret_bound(4 * 10**8, 3) / bounds.theorem1_regret_bound(
        10**8, 3
    )
    assert 2.0 < growth < 2.3


def test_the_joint_bound_is_its_formula_and_falls_to_that_of_theorem_1_as_logs_grow():
    scales = {
        "noise_scale": 2.0,
        "ridge": 0.25,
        "norm_bound": 4.0,
        "feature_bound": 3.0,
    }
    logs = bounds.Logs(6, 0.2, 900, 0.05)
    volume_res = 3 * log(1 + 50 * 9 / (0.25 * 3))
    volume_inv = 6 * log(1 + 50 * 9 / (0.2 * 900 * 6))
    online = 2 * sqrt(2 * log(100) + volume_res + volume_inv) + 0.5 * 4
    prior = 2 * bounds.self_normalised_invariant_radius(6, 0.01)
    prior += 2 * 4 * 0.05 * sqrt(9 * 900)
    explored = 2 * max(12, online) * sqrt(2 * 50 * (volume_res + volume_inv))
    expected = explored + 4 * prior * sqrt(50 * volume_inv)
    assert bounds.joint_regret_bound(50, 3, logs, **scales) == pytest.approx(expected)
    falling = [
        bounds.joint_regret_bound(300, 3, bounds.Logs(7, 0.1, 10.0**k), delta=0.01)
        for k in range(1, 20, 3)
    ]
    assert all(np.diff(falling) < 0)
    limit = bounds.theorem1_regret_bound(300, 3, delta=0.01)
    assert falling[-1] == pytest.approx(limit, rel=1e-3)


def test_the_joint_bound_has_the_rate_of_theorem_1_and_beats_theorem_3_where_logs_are_few():
    """T from 10^8 to 4·10^8, far above T0 = 200: both parts of order √T, up to logarithms."""
    few = bounds.Logs(20, 0.05, 200)
    growth = bounds.joint_regret_bound(4 * 10**8, 3, few) / bounds.joint_regret_bound(
        10**8, 3, few
    )
    assert 2.0 < growth < 2.3
    for horizon in (500, 5000, 10**6):
        joint = bounds.joint_regret_bound(horizon, 3, few)
        assert joint < bounds.theorem3_regret_bound(horizon, 3, few)
        assert joint > bounds.regret_lower_bound(horizon, 3, few)


HARD_WORLDS = {
    "few logs": {"logged": 5},
    "no coefficients": {"length": 1e-3},
    "many stable": {"stable": 20},
    "small ridge": {"ridge": 1e-4},
    "small noise": {"noise": 1e-3},
}


def play_joint_set(seed, *, logged, length, stable, ridge, noise, horizon=200):
    """Play actions ±e_j with a prior of precision logged·I; return regret, sum of the widths, bound."""
    rng = np.random.default_rng(seed)
    dim = stable + 2
    coefficients = np.full(dim, -length / sqrt(dim))
    component = np.append(coefficients[:stable], [0.0, 0.0])
    component[:stable] += noise / sqrt(logged) * rng.normal(size=stable)
    scales = {"noise_scale": noise, "ridge": ridge, "norm_bound": length}
    basis = np.eye(dim)
    policy = ib.ISDLinUCB(
        ib.Split(basis[:, :stable], basis[:, stable:]),
        component,
        component_precision=logged / noise**2 * np.eye(stable),
        radius="joint",
        delta=0.5 / horizon,
        **scales,
    )
    actions = np.vstack([basis, -basis])
    means = actions @ coefficients
    regret = 0.0
    widths = 0.0
    for _ in range(horizon):
        action = policy.select(actions)
        # The proof cuts every width at the larger one of LM and the radius.
        cut = max(length, policy.radius)
        widths += 2.0 * min(cut, policy.scores(actions).width[action])
        policy.update(actions[action], means[action] + noise * rng.normal())
        regret += means.max() - means[action]
    logs = bounds.Logs(stable, 1.0, logged)
    return regret, widths, bounds.joint_regret_bound(horizon, 2, logs, **scales)


@pytest.mark.parametrize("change", HARD_WORLDS.values(), ids=HARD_WORLDS.keys())
def test_the_joint_bound_lies_above_the_widths_and_these_above_the_regret(change):
    """The first holds for every choice of actions; the second may fail in one of 200 runs, and never did.

    The bound is 2.5 to 5.7 times the sum of the widths: it is not merely large.
    """
    world = {"logged": 50, "length": 1.0, "stable": 3, "ridge": 0.1, "noise": 1.0}
    for seed in range(5):
        regret, widths, bound = play_joint_set(seed, **world | change)
        assert 0.0 < regret <= widths <= bound <= 6.0 * widths


def test_the_lower_bound_with_logs_lies_between_unknown_and_known_stable_coefficients():
    """No logs: all p directions are unknown. Endless logs: the paper's bound."""
    assert bounds.regret_lower_bound(400, 3, bounds.Logs(5, 0.5, 0)) == pytest.approx(
        bounds.regret_lower_bound(400, 8)
    )
    some = [
        bounds.regret_lower_bound(400, 3, bounds.Logs(5, 0.5, 10.0**k))
        for k in range(0, 25, 4)
    ]
    assert all(np.diff(some) < 0)
    assert some[-1] == pytest.approx(bounds.regret_lower_bound(400, 3))
    expected = exp(-2) / 8 * (3 * 20 + 5 * 400 / sqrt(400 + 1200))
    logs = bounds.Logs(5, 0.5, 2400)
    assert bounds.regret_lower_bound(400, 3, logs) == pytest.approx(expected)


def test_the_rate_of_forgetting_is_that_of_the_best_length_of_the_memory():
    """The minimum of p·T/√H + √p·B·H^{3/2} is the same multiple of the rate in every setting: 4·3^{−3/4}."""
    lengths = np.geomspace(1e-3, 1e6, 20_001)
    for dim, horizon, variation in ((2, 1e4, 1.0), (10, 1e4, 3.0), (5, 1e6, 0.1)):
        learning = dim * horizon / np.sqrt(lengths)
        drift = np.sqrt(dim) * variation * lengths**1.5
        rate = bounds.forgetting_rate(horizon, dim, variation)
        assert (learning + drift).min() / rate == pytest.approx(4 / 3**0.75, rel=1e-4)


def test_no_rate_of_forgetting_lies_below_the_lower_rate():
    """From B = p/√T, where the lower rate is the p√T of a world without drift, to B = T."""
    assert bounds.forgetting_lower_rate(1e4, 5, 5 / 1e2) == pytest.approx(5 * 1e2)
    for variation in np.geomspace(5 / 1e2, 1e4, 20):
        lower = bounds.forgetting_lower_rate(1e4, 5, variation)
        assert lower <= bounds.forgetting_rate(1e4, 5, variation)


@pytest.mark.parametrize("constants", ["corrected", "paper"])
@pytest.mark.parametrize("constant", [0.0, 0.3])
def test_logs_needed_is_the_smallest_number_that_keeps_the_promise(constant, constants):
    def bound(logged):
        tilt = constant * sqrt(log(10 * 11 * 500) / logged)
        logs = bounds.Logs(7, 0.05, logged, tilt)
        return bounds.theorem3_regret_bound(500, 3, logs, constants=constants)

    needed = ib.logs_needed(
        500, 3, 7, 0.05, share=0.2, subspace_constant=constant, constants=constants
    )
    goal = 1.2 * bound(1e300)
    assert bound(needed) <= goal < bound(needed - 1)


def test_longer_plans_need_more_logs():
    needs = [ib.logs_needed(horizon, 3, 7, 0.05) for horizon in (50, 500, 5000)]
    assert needs == sorted(needs)
    assert needs[0] < needs[-1]
    assert ib.logs_needed(500, 3, 7, 0.05, share=0.5) < ib.logs_needed(
        500, 3, 7, 0.05, share=0.05
    )


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("horizon", {"horizon": 1}),
        ("share", {"share": 0.0}),
        ("min_eigenvalue", {"min_eigenvalue": -1.0}),
    ],
)
def test_impossible_plans_are_refused_by_name(name, change):
    plan = {
        "horizon": 500,
        "residual_dim": 3,
        "invariant_dim": 7,
        "min_eigenvalue": 0.05,
    } | change
    with pytest.raises(ib.InputError, match=name):
        ib.logs_needed(**plan)
