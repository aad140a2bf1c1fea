"""PooledArms: levels of many arms beside what they share, learned offline and online."""

import numpy as np
import pytest

import invariant_bandits as ib
import invariant_bandits.testing as laws
from invariant_bandits.checks import InputError
from invariant_bandits.decomposition.arm_deviations import fit_levels, level_drift
from invariant_bandits.decomposition.arm_statistics import ArmStatistics
from invariant_bandits.policies.pooled_arms import NO_DEVIATIONS, PooledArms

ARMS = 50


def pooled(clicks=False, spread=1.0, step=0.0):
    """A policy over ARMS unknown levels; the shared part is [1, x] of 4,000 rounds without signal."""
    rng = np.random.default_rng(0)
    z, arms = (
        np.column_stack([np.ones(4000), rng.normal(size=4000)]),
        np.zeros(4000, dtype=int),
    )
    rewards = (
        (rng.random(4000) < 0.5).astype(float) if clicks else rng.normal(size=4000)
    )
    statistics = ArmStatistics.from_rounds(z, arms, rewards, windows=8, coding="shared")
    unknown = NO_DEVIATIONS._replace(
        means=np.zeros((ARMS, 1)),
        covariances=np.full((ARMS, 1, 1), spread),
        spread=np.array([spread]),
        steps=np.array([step]),
    )
    return PooledArms(ib.AutoISD.from_arms(statistics), unknown)


def offered(*places, x=0.0):
    return np.column_stack([places, np.full(len(places), x)]).astype(float)


# -- offline --


@pytest.mark.parametrize("clicks", [True, False])
def test_levels_are_the_posterior_of_ridge_regression_with_the_likeliest_spread(clicks):
    rng = np.random.default_rng(1)
    codes, x = rng.integers(200, size=12_000), rng.normal(size=12_000)
    truth = 0.7 * rng.normal(size=200)
    linear = truth[codes] - 0.5 + 0.8 * x
    rewards = linear + rng.normal(size=12_000)
    if clicks:
        rewards = (rng.random(12_000) < 1.0 / (1.0 + np.exp(-linear))).astype(float)
    phi = np.column_stack([np.ones(12_000), x])
    chunks = [
        (phi[i::3], rewards[i::3], codes[i::3], np.arange(12_000)[i::3] * 4 // 12_000)
        for i in range(3)
    ]
    levels = fit_levels(lambda: chunks, dim=2, arms=200, windows=4, clicks=clicks)
    # The slope is within 4 of its standard errors, 0.01 or 0.023; the spread within 4 of its 10 to 14 %.
    assert levels.theta[1] == pytest.approx(0.8, abs=0.09 if clicks else 0.04)
    assert levels.spread[0] == pytest.approx(0.49, rel=0.5)
    assert levels.steps[0] == 0.0
    assert levels.means == pytest.approx(levels.fitted, abs=0.01)
    fitted = levels.fitted[:, 0]
    expected = phi @ levels.theta + fitted[codes]
    if clicks:
        expected = 1.0 / (1.0 + np.exp(-expected))
    # Newton has converged: the score of every level is its prior's pull, that of the shared part is 0.
    noise = 1.0 if clicks else float(((rewards - expected) ** 2).sum() / (12_000 - 190))
    scores = np.bincount(codes, (rewards - expected) / noise, 200)
    assert scores == pytest.approx(fitted / levels.spread, abs=0.05)
    assert phi.T @ (rewards - expected) == pytest.approx([0.0, 0.0], abs=1.0)
    variances = levels.covariances[:, 0, 0]
    covered = np.abs(levels.means[:, 0] - truth) < 2.0 * np.sqrt(variances)
    assert (
        covered.mean() > 0.85
    )  # of 200 at 95 %, less than 0.88 has probability 1e-5; the population's mean


def test_arms_that_were_never_played_have_the_population_alone():
    chunk = (
        np.ones((90, 1)),
        np.tile([0.0, 1.0, 2.0], 30),
        np.tile([0, 1, 2], 30),
        np.arange(90) // 45,
    )
    levels = fit_levels(lambda: [chunk], dim=1, arms=5, windows=2, clicks=False)
    assert levels.fitted[3:, 0].tolist() == [0.0, 0.0]
    assert levels.covariances[3:, 0, 0] == pytest.approx([levels.spread[0]] * 2)
    assert levels.fitted[0] < levels.fitted[1] < levels.fitted[2]


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_levels_are_in_units_of_the_reward(scale):
    rng = np.random.default_rng(6)
    codes, phi, window = (
        rng.integers(30, size=900),
        np.ones((900, 1)),
        np.arange(900) // 450,
    )
    rewards = rng.normal(size=30)[codes] + rng.normal(size=900)

    def levels(unit):
        chunk = (phi, unit * rewards, codes, window)
        return fit_levels(lambda: [chunk], dim=1, arms=30, windows=2, clicks=False)

    assert levels(scale).fitted == pytest.approx(scale * levels(1.0).fitted, rel=1e-2)
    assert levels(scale).covariances == pytest.approx(
        scale**2 * levels(1.0).covariances, rel=1e-2
    )


def test_drift_of_levels_is_found_where_it_is_and_not_where_it_is_not():
    # In 20 logs without drift the test at three standard deviations errs with probability 0.03 in all.
    rng = np.random.default_rng(2)
    H = rng.uniform(2.0, 30.0, size=(8, 500))
    scores = np.sqrt(H) * rng.normal(size=(20, 8, 500))
    assert [level_drift(H, E) for E in scores] == [0.0] * 20
    moved = level_drift(H, scores[0] + H * np.sqrt(0.1) * rng.normal(size=H.shape))
    assert moved == pytest.approx(0.1, rel=0.25)


# -- online --


@pytest.mark.parametrize("clicks", [True, False])
def test_a_level_follows_its_rewards_and_the_others_stay(clicks):
    policy = pooled(clicks)
    for _ in range(300):
        policy.update(offered(7)[0], 1.0 if clicks else 2.0)
    assert policy.select(offered(3, 7, 11)) == 1
    untouched = np.delete(np.arange(ARMS), 7)
    assert (policy.deviations[untouched] == 0.0).all()
    assert policy.covariances[7, 0, 0] < 0.3 < 1.0 == policy.covariances[3, 0, 0]
    means = policy.scores(offered(7)).mean
    assert means[0] > 0.9 if clicks else means[0] == pytest.approx(2.0, abs=0.1)


def test_levels_walk_from_where_they_were_learned_last():
    policy = pooled(step=0.01)
    for _ in range(100):
        policy.update(offered(0)[0], 0.0)
    for _ in range(50):
        policy.update(offered(1)[0], 0.0)
    now = policy.scores(offered(0)).width[0]
    shared = policy.shared.scores(np.array([[1.0, 0.0]])).width[0]
    assert now**2 - shared**2 == pytest.approx(policy.covariances[0, 0, 0] + 50 * 0.01)


@pytest.mark.parametrize("clicks", [True, False])
def test_it_is_stored_grows_and_learns_many(clicks, tmp_path):
    policy = pooled(clicks)
    rows = np.column_stack([np.arange(30) % 7, np.linspace(-1.0, 1.0, 30)])
    policy.update_many(rows, np.arange(30) % 2)
    ib.save(policy, tmp_path / "policy")
    loaded = ib.load(tmp_path / "policy")
    assert laws.bits(loaded) == laws.bits(policy)
    grown = policy.with_arm()
    assert grown.arms == ARMS + 1
    assert grown.scores(offered(ARMS)).width[0] >= policy.scores(offered(2)).width[0]
    assert grown.scores(offered(2)).mean == policy.scores(offered(2)).mean
    assert (
        policy.select_many(np.stack([offered(1, 2)] * 3)).tolist()
        == [policy.select(offered(1, 2))] * 3
    )


def test_bad_rounds_are_refused_and_change_nothing():
    policy = pooled()
    before = laws.bits(policy)
    for row in (offered(ARMS), offered(-1), offered(0.5), np.array([[1.0, np.nan]])):
        with pytest.raises(InputError, match="features"):
            policy.update(row[0], 1.0)
        with pytest.raises(InputError, match="features"):
            policy.select(row)
    with pytest.raises(InputError, match="reward"):
        policy.update(offered(0)[0], np.nan)
    assert laws.bits(policy) == before
    with pytest.raises(InputError, match="no labelled arms"):
        PooledArms(policy.shared).with_arm()


def test_the_shared_part_is_learned_beside_the_level_as_by_more_noise():
    """Given level and variance, the filters do what they do with the reward less the level and wider noise."""
    policy = pooled().shared
    P, m = (policy.mixture.arrays()[name].copy() for name in ("covariances", "means"))
    row, v = np.array([1.0, 0.7]), policy.mixture.arrays()["noise"][0]
    policy.update_with_offset(row, 2.0, 0.5, 0.3)
    z = np.append(row, 1.0)
    lower = np.tril(P[0]) + np.tril(P[0], -1).T
    S = z @ lower @ z + v + 0.3
    expected = m[0] + lower @ z * (2.0 - 0.5 - z @ m[0]) / S
    assert policy.mixture.arrays()["means"][0] == pytest.approx(expected)


def play(policy, truth, seed, rounds=600, context=True):
    """Regret of offers of 20 arms; truth: levels (A,) and a slope of the context, in rewards with noise 1."""
    rng, regret = np.random.default_rng(seed), 0.0
    levels, slopes = truth
    for _ in range(rounds):
        arms, x = rng.choice(len(levels), 20, replace=False), rng.normal(size=20)
        means = levels[arms] + slopes * x
        action = policy.select(np.column_stack([arms, x if context else np.zeros(20)]))
        reward = means[action] + rng.normal()
        policy.update(
            np.array([arms[action], x[action] if context else 0.0]), float(reward)
        )
        regret += means.max() - means[action]
    return regret


def test_pooling_and_context_save_regret():
    """2,000 arms with two logged rounds each: against levels that are not pooled, and without contexts."""
    rng, A = np.random.default_rng(4), 2000
    levels, codes, x = (
        0.4 * rng.normal(size=A),
        rng.integers(A, size=4000),
        rng.normal(size=4000),
    )
    rewards = levels[codes] + 0.5 * x + rng.normal(size=4000)
    window, regrets = np.arange(4000) // 500, {}
    for name, context, spread in (
        ("pooled", True, None),
        ("apart", True, 10.0),
        ("no context", False, None),
    ):
        phi = np.column_stack(
            [np.ones(4000), x if context else 1e-3 * rng.normal(size=4000)]
        )
        fit = fit_levels(
            lambda phi=phi: [(phi, rewards, codes, window)],
            dim=2,
            arms=A,
            windows=8,
            clicks=False,
        )
        if spread is not None:
            counts = np.bincount(codes, minlength=A)
            precision = counts + 1.0 / spread
            left = np.bincount(codes, rewards - phi @ fit.theta, A) / precision
            fit = fit._replace(
                means=left[:, None],
                covariances=(1.0 / precision)[:, None, None],
                spread=np.array([spread]),
            )
        less = rewards - fit.fitted[codes, 0]
        statistics = ArmStatistics.from_rounds(
            phi,
            np.zeros(4000, dtype=int),
            less,
            windows=window,
            coding="shared",
            link="identity",
        )
        policy = PooledArms(ib.AutoISD.from_arms(statistics), fit)
        regrets[name] = play(policy, (levels, 0.5), seed=5, context=context)
    assert regrets["pooled"] < 0.6 * regrets["apart"]
    assert regrets["pooled"] < 0.6 * regrets["no context"]
