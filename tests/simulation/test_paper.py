"""The paper's generator draws what the paper describes, with the truth beside it."""

import numpy as np
import pytest

from invariant_bandits import InputError
from invariant_bandits.simulation.paper import PaperWorld
from worlds import within


def test_a_log_has_the_shapes_it_promises():
    world = PaperWorld(actions=4)
    log = world.log(300, np.random.default_rng(0))
    assert world.dim == 10
    assert log.features.shape == log.coefficients.shape == (300, 10)
    assert log.rewards.shape == log.actions.shape == (300,)
    assert log.offered.shape == (300, 4, 10)
    assert (log.split.invariant_dim, log.split.residual_dim) == (7, 3)


def test_the_same_seed_gives_the_same_log_and_another_seed_another():
    one, same, other = (
        PaperWorld().log(100, np.random.default_rng(seed)) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(one.rewards, same.rewards)
    np.testing.assert_array_equal(one.offered, same.offered)
    assert np.abs(one.rewards - other.rewards).max() > 0.1


@pytest.mark.parametrize("logging", ["uniform", "epsilon-greedy", "greedy", "linucb"])
def test_the_chosen_features_are_those_of_the_chosen_action(logging):
    log = PaperWorld(logging=logging).log(500, np.random.default_rng(3))
    np.testing.assert_array_equal(
        log.features, log.offered[np.arange(500), log.actions]
    )


def test_only_the_varying_block_moves_and_it_moves_as_in_the_paper():
    log = PaperWorld(unit_start=False).log(1000, np.random.default_rng(4))
    W, V = log.split.invariant, log.split.residual
    np.testing.assert_allclose(
        log.coefficients @ W, np.tile(log.component @ W, (1000, 1)), atol=1e-12
    )
    np.testing.assert_allclose(V.T @ log.component, 0.0, atol=1e-12)
    start, time = log.coefficients[0] @ V, np.arange(1000) / 1000
    for j in (1, 2, 3):
        expected = start[j - 1] - 1.5 * time * np.sin(0.25 * j * time + j) ** 2
        np.testing.assert_allclose(log.coefficients @ V[:, j - 1], expected, atol=1e-12)
    assert ((start >= 0.5) & (start <= 1.5)).all()
    inner = W.T @ log.component
    assert ((inner >= 0.5) & (inner <= 1.5)).all()


def test_coefficients_of_unit_length_point_where_the_unscaled_ones_do():
    unit, free = (
        PaperWorld(unit_start=unit).log(50, np.random.default_rng(4))
        for unit in (True, False)
    )
    assert np.linalg.norm(unit.coefficients[0]) == pytest.approx(1.0)
    np.testing.assert_allclose(
        unit.coefficients[0],
        free.coefficients[0] / np.linalg.norm(free.coefficients[0]),
    )
    np.testing.assert_array_equal(unit.offered, free.offered)


@pytest.mark.parametrize("world", [PaperWorld(varying=None), PaperWorld(drift=0.0)])
def test_without_drift_coefficients_are_constant(world):
    log = world.log(200, np.random.default_rng(5))
    np.testing.assert_allclose(
        log.coefficients, np.tile(log.coefficients[0], (200, 1)), atol=1e-12
    )
    assert log.split.residual_dim == (0 if world.varying is None else 3)


def test_rewards_are_their_means_plus_noise_of_the_stated_scale():
    log = PaperWorld(noise_scale=0.5).log(20_000, np.random.default_rng(6))
    noise = log.rewards - np.einsum("tp,tp->t", log.features, log.coefficients)
    # Standard errors 0.5/√n and 0.5/√(2n), five of each.
    assert abs(noise.mean()) < 5 * 0.5 / np.sqrt(20_000)
    assert abs(noise.std() - 0.5) < 5 * 0.5 / np.sqrt(40_000)


@pytest.mark.parametrize("conditioning", ["published", "well"])
def test_blocks_are_uncorrelated_in_the_hidden_basis_and_covariances_change_with_the_regime(
    conditioning,
):
    world = PaperWorld(blocks=(2, 2), varying=1, regimes=2, conditioning=conditioning)
    log = world.log(20_000, np.random.default_rng(7))
    rows = log.offered @ log.split.basis
    first, second = (np.corrcoef(part.reshape(-1, 4).T) for part in np.split(rows, 2))
    # A correlation of n rows has standard error 1/√n: five of them.
    for correlation in (first, second):
        assert np.abs(correlation[:2, 2:]).max() < 5 / np.sqrt(50_000)
    scales = [part.reshape(-1, 4).var(axis=0) for part in np.split(rows, 2)]
    assert np.abs(np.log(scales[0] / scales[1])).max() > 0.1
    within_blocks = [np.cov(part.reshape(-1, 4).T) for part in np.split(rows, 2)]
    if conditioning == "well":
        for covariance in within_blocks:
            values = np.concatenate(
                [
                    np.linalg.eigvalsh(covariance[s, s])
                    for s in (slice(0, 2), slice(2, 4))
                ]
            )
            assert ((values > 0.5 * 0.95) & (values < 2.0 * 1.05)).all()


def test_student_features_have_the_covariance_of_gaussian_ones_and_heavier_tails():
    logs = [
        PaperWorld(blocks=(2, 1), varying=0, regimes=1, degrees_of_freedom=freedom).log(
            40_000, np.random.default_rng(8)
        )
        for freedom in (None, 8.0)
    ]
    flat = [log.offered.reshape(-1, 3) for log in logs]
    # Same world, same draws of the roots; t with 8 degrees has kurtosis 4.5, standard errors near 1 %.
    np.testing.assert_allclose(
        np.cov(flat[1].T), np.cov(flat[0].T), atol=0.05 * np.cov(flat[0].T).max()
    )
    kurtosis = [np.mean((rows / rows.std(axis=0)) ** 4, axis=0) for rows in flat]
    np.testing.assert_allclose(kurtosis[0], 3.0, atol=0.1)
    np.testing.assert_allclose(kurtosis[1], 4.5, atol=0.5)


def test_the_uniform_policy_chooses_every_action_equally_often():
    log = PaperWorld().log(10_000, np.random.default_rng(9))
    assert all(
        within(count, 10_000, 0.2) for count in np.bincount(log.actions, minlength=5)
    )


def test_selective_policies_learn_to_choose_better_than_chance():
    gains = {}
    for logging in ("uniform", "greedy", "linucb"):
        log = PaperWorld(logging=logging).log(2000, np.random.default_rng(10))
        means = np.einsum("tkp,tp->tk", log.offered, log.coefficients)[1000:]
        gains[logging] = (
            means[np.arange(1000), log.actions[1000:]] - means.mean(axis=1)
        ).mean()
    assert gains["greedy"] > gains["uniform"] + 0.5
    assert gains["linucb"] > gains["uniform"] + 0.5


def test_the_greedy_policy_is_ridge_regression_replayed():
    log = PaperWorld(blocks=(2, 1), varying=0, logging="greedy").log(
        200, np.random.default_rng(11)
    )
    gram, pull = 0.1 * np.eye(3), np.zeros(3)
    for t in range(200):
        scores = log.offered[t] @ np.linalg.solve(gram, pull)
        assert scores[log.actions[t]] >= scores.max() - 1e-9
        gram += np.outer(log.features[t], log.features[t])
        pull += log.features[t] * log.rewards[t]


def test_linucb_is_replayed_with_its_published_width():
    log = PaperWorld(blocks=(2, 1), varying=0, logging="linucb").log(
        200, np.random.default_rng(12)
    )
    gram, pull = 0.1 * np.eye(3), np.zeros(3)
    for t in range(200):
        inverse = np.linalg.inv(gram)
        radius = np.sqrt(
            2 * np.log(200.0) + np.linalg.slogdet(gram / 0.1)[1]
        ) + np.sqrt(0.1)
        widths = np.sqrt(
            np.einsum("kp,pq,kq->k", log.offered[t], inverse, log.offered[t])
        )
        scores = log.offered[t] @ inverse @ pull + radius * widths
        assert scores[log.actions[t]] >= scores.max() - 1e-9
        gram += np.outer(log.features[t], log.features[t])
        pull += log.features[t] * log.rewards[t]


def test_epsilon_greedy_is_ridge_regression_that_sometimes_tosses_a_coin_and_says_how_likely_each_choice_was():
    rounds, epsilon = 4000, 0.3
    log = PaperWorld(
        blocks=(2, 1), varying=0, logging="epsilon-greedy", epsilon=epsilon
    ).log(rounds, np.random.default_rng(13))
    gram, pull, preferred = 0.1 * np.eye(3), np.zeros(3), np.zeros(rounds, dtype=bool)
    for t in range(rounds):
        scores = log.offered[t] @ np.linalg.solve(gram, pull)
        preferred[t] = scores[log.actions[t]] >= scores.max() - 1e-9
        gram += np.outer(log.features[t], log.features[t])
        pull += log.features[t] * log.rewards[t]
    # In the first round all scores are zero and the first action is preferred.
    preferred[0] = log.actions[0] == 0
    np.testing.assert_allclose(
        log.propensities, np.where(preferred, 1 - epsilon + epsilon / 5, epsilon / 5)
    )
    assert within(preferred.sum(), rounds, 1 - epsilon + epsilon / 5)


def test_propensities_make_the_mean_of_any_action_estimable_without_bias():
    log = PaperWorld(logging="epsilon-greedy", epsilon=0.5).log(
        20_000, np.random.default_rng(14)
    )
    truth = np.einsum("tp,tp->t", log.offered[:, 2], log.coefficients)
    estimate = (log.actions == 2) / log.propensities * log.rewards
    # The differences have mean zero and are uncorrelated over rounds: four standard errors fail once in
    # 16,000.
    difference = estimate - truth
    assert abs(difference.mean()) < 4 * difference.std() / np.sqrt(len(difference))


def test_only_randomising_loggers_have_propensities():
    logs = {
        logging: PaperWorld(logging=logging).log(50, np.random.default_rng(15))
        for logging in ("uniform", "greedy", "linucb")
    }
    np.testing.assert_array_equal(logs["uniform"].propensities, np.full(50, 0.2))
    assert logs["greedy"].propensities is None
    assert logs["linucb"].propensities is None


def test_several_blocks_may_drift_and_are_numbered_through():
    log = PaperWorld(varying=(0, 3)).log(400, np.random.default_rng(16))
    assert (log.split.invariant_dim, log.split.residual_dim) == (4, 6)
    np.testing.assert_array_equal(log.split.residual, log.basis[:, [0, 1, 2, 3, 8, 9]])
    path, time = log.coefficients @ log.split.residual, np.arange(400) / 400
    for j in range(1, 7):
        expected = path[0, j - 1] - 1.5 * time * np.sin(0.25 * j * time + j) ** 2
        np.testing.assert_allclose(path[:, j - 1], expected, atol=1e-12)


def test_heavy_tailed_noise_has_the_stated_scale_and_heavier_tails_than_gaussian_noise():
    world = PaperWorld(noise="t", noise_freedom=5.0, noise_scale=2.0)
    log = world.log(100_000, np.random.default_rng(17))
    noise = log.rewards - np.einsum("tp,tp->t", log.features, log.coefficients)
    # t with 5 degrees has kurtosis 9, so the variance has a standard error of √(8/n) of itself: five of them.
    assert abs(noise.var() / 4.0 - 1.0) < 5 * np.sqrt(8 / 100_000)
    # P(|t5| > 4·√(5/3)) = 0.003573, more than fifty times that of a Gaussian.
    assert within((np.abs(noise) > 8.0).sum(), 100_000, 0.003573)


BAD = {
    "conditioning": ("conditioning must be one of", {"conditioning": "bad"}),
    "logging": ("logging must be one of", {"logging": "thompson"}),
    "varying": ("varying must index different ones of 4 blocks, got 4", {"varying": 4}),
    "blocks": (
        "blocks must be a whole number of at least 1, got 0",
        {"blocks": (3, 0), "varying": 0},
    ),
    "actions": ("actions must be a whole number of at least 1", {"actions": 0}),
    "regimes": ("regimes must be a whole number of at least 1", {"regimes": 0}),
    "varying twice": ("varying must index different ones", {"varying": (2, 2)}),
    "one of varying": (
        r"varying must index different ones of 4 blocks, got \(0, 7\)",
        {"varying": (0, 7)},
    ),
    "epsilon": ("epsilon must lie strictly between 0 and 1, got 1.0", {"epsilon": 1.0}),
    "noise": (
        "noise must be one of 'gaussian', 't', got 'cauchy'",
        {"noise": "cauchy"},
    ),
    "noise_freedom": (
        "noise_freedom must exceed 2",
        {"noise": "t", "noise_freedom": 2.0},
    ),
    "degrees": ("degrees_of_freedom must exceed 2", {"degrees_of_freedom": 2.0}),
}


@pytest.mark.parametrize(("message", "settings"), BAD.values(), ids=BAD.keys())
def test_bad_settings_are_named(message, settings):
    with pytest.raises(InputError, match=message):
        PaperWorld(**settings)


def test_a_log_needs_rounds():
    with pytest.raises(
        InputError, match="rounds must be a whole number of at least 1, got 0"
    ):
        PaperWorld().log(0, np.random.default_rng(0))
