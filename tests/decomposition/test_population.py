"""What logs of labelled arms teach: planted coefficients, planted drift, silent windows, arms that are
new.
"""

from dataclasses import replace

import numpy as np
import pytest
from scipy import optimize

from arm_logs import arm_log, reordered
from invariant_bandits.checks import InputError
from invariant_bandits.decomposition import arm_effects
from invariant_bandits.decomposition.arm_blocks import ArmBlocks
from invariant_bandits.decomposition.arm_statistics import (
    ArmLayout,
    ArmStatistics,
    fit_logistic,
    sum_logit,
)
from invariant_bandits.decomposition.drift_prior import DriftPrior
from invariant_bandits.decomposition.fit_constants import ARM


def statistics_of(log, **options):
    return ArmStatistics.from_rounds(
        log.contexts, log.arms, log.rewards, windows=log.windows, **options
    )


def prior_of(log, **options):
    return DriftPrior.from_arms(statistics_of(log, **options))


# -- statistics --


def test_a_window_in_which_an_arm_was_not_played_says_nothing_of_it():
    active = np.ones((8, 4))
    active[:5, 3] = 0
    statistics = statistics_of(arm_log(0, active=active))
    assert (statistics.rounds[:5, 3] == 0).all()
    assert (statistics.rounds[5:, 3] > 0).all()
    own = statistics.layout.arm(3)
    assert not statistics.information[:5, own].any()
    assert not statistics.scores[:5, own].any()
    assert (np.linalg.eigvalsh(statistics.information[5:, own, own]) > 1.0).all()


@pytest.mark.parametrize("coding", ["own", "shared"])
def test_linear_statistics_are_those_of_least_squares(coding):
    log = arm_log(1, clicks=False, rounds=4000, noise=0.5)
    statistics = statistics_of(log, coding=coding)
    assert statistics.link == "identity"
    if coding == "own":
        assert statistics.noise_variance == pytest.approx(0.25, rel=0.1)
    phi = statistics.layout.features(log.contexts, log.arms)
    at = log.windows == 2
    expected = np.linalg.lstsq(phi[at], log.rewards[at], rcond=None)[0]
    assert np.linalg.solve(
        statistics.information[2], statistics.scores[2]
    ) == pytest.approx(expected, abs=1e-8)


def test_the_logistic_fit_is_the_penalised_likeliest_and_its_sums_add():
    log = arm_log(2, rounds=3000, windows=3, arms=3)
    layout = ArmLayout.of(arms=3, width=3)
    phi = layout.features(log.contexts, log.arms)

    def evaluate(theta):
        halves = (slice(0, 1111), slice(1111, None))
        return sum_logit(
            [(phi[s], log.rewards[s], log.windows[s]) for s in halves], theta, 3
        )

    found = fit_logistic(evaluate, layout)
    whole = sum_logit([(phi, log.rewards, log.windows)], found.theta, 3)
    assert found.information == pytest.approx(whole.information)
    assert found.gradient == pytest.approx(whole.gradient, abs=1e-9)

    def loss(theta):
        odds, by_arm = phi @ theta, theta.reshape(3, 3)
        apart = ((by_arm - by_arm.mean(axis=0)) ** 2).sum()
        likelihood = log.rewards @ odds - np.logaddexp(0.0, odds).sum()
        return (
            0.5 * ARM.ridge * apart + 0.5 * ARM.faint_ridge * theta @ theta - likelihood
        )

    best = optimize.minimize(loss, np.zeros(9), method="BFGS", options={"gtol": 1e-6})
    assert found.theta == pytest.approx(best.x, abs=1e-4)


def test_an_arm_all_of_whose_rounds_are_clicks_has_a_finite_fit():
    rng = np.random.default_rng(0)
    arms = np.repeat([0, 1], [900, 100])
    contexts = np.column_stack([np.ones(1000), rng.normal(size=1000)])
    order = rng.permutation(1000)
    rewards = np.where(arms == 1, 1.0, (rng.random(1000) < 0.3).astype(float))
    prior = DriftPrior.from_arms(
        ArmStatistics.from_rounds(
            contexts[order], arms[order], rewards[order], windows=4
        )
    )
    assert np.isfinite(prior.mean).all()
    assert 1.0 < prior.mean[2] < 15.0


# -- random effects --


@pytest.mark.parametrize("clicks", [True, False])
def test_the_drifting_effects_are_named_and_no_others(clicks):
    """Holm at 5 %: one of twelve logs in twenty has a false flag; three or more with probability below 2
    %.
    """
    planted, exact = {(0, 1), (2, 2)}, 0
    for seed in range(12):
        effects = prior_of(
            arm_log(seed, clicks=clicks, drifting=planted, rounds=16_000)
        ).effects
        found = {(one.arm, one.coefficient) for one in effects if one.drifts}
        assert planted <= found
        exact += found == planted
    assert exact >= 10


def test_without_drift_few_effects_look_as_if_they_drifted():
    """At most 1 % of p-values below 1 %, nominally: 600 of them, 16 or more with probability below 0.1 %."""
    values = [
        one.p_value
        for seed in range(40)
        for one in prior_of(arm_log(seed, rounds=6000)).effects
    ]
    assert len(values) == 600
    assert sum(value < 0.01 for value in values) <= 15
    assert sum(value < 0.5 for value in values) >= 20


def test_coefficients_of_an_arm_launched_late_are_covered():
    """Two standard errors: nominally 95 % of 40 × 3, below 88 % with probability 0.1 %."""
    active = np.ones((9, 4))
    active[:6, 3] = 0
    inside = []
    for seed in range(40):
        log = arm_log(seed, active=active, windows=9, rounds=9000, drifting=[(0, 1)])
        own = [one for one in prior_of(log).effects if one.arm == 3]
        inside += [
            abs(one.estimate - log.truth[-1, 3, one.coefficient]) <= 2.0 * one.error
            for one in own
        ]
    assert len(inside) == 120
    assert np.mean(inside) >= 0.88


def test_arms_in_another_order_are_the_same_arms():
    statistics = statistics_of(arm_log(5, drifting=[(1, 1)]))
    order = np.array([2, 0, 3, 1])
    one, other = (
        DriftPrior.from_arms(statistics),
        DriftPrior.from_arms(reordered(statistics, order)),
    )
    assert other.layout.by_arm(other.mean) == pytest.approx(
        one.layout.by_arm(one.mean)[order], abs=1e-6
    )
    assert other.population.spread == pytest.approx(one.population.spread, rel=1e-5)
    all_mine, all_theirs = (
        np.stack(list(vars(prior.population.evidence).values()))
        for prior in (one, other)
    )
    mine, theirs = one.layout.by_arm(all_mine), other.layout.by_arm(all_theirs)
    assert theirs == pytest.approx(mine[:, order], abs=1e-5)
    common = one.layout.dim
    assert all_theirs[:, common:] == pytest.approx(all_mine[:, common:], abs=1e-5)


# -- new arms --


def test_a_new_arm_is_one_that_was_never_played():
    """Grown by one, the prior is that of a log that knew of the arm from the start; its drift is the
    usual one.
    """
    log = arm_log(6)
    grown, known = prior_of(log).with_arm(), prior_of(log, count=5)
    assert grown.layout == known.layout
    assert grown.mean == pytest.approx(known.mean, abs=0.01)
    assert np.sqrt(np.diagonal(grown.mean_covariance)) == pytest.approx(
        np.sqrt(np.diagonal(known.mean_covariance)), rel=0.02
    )
    new = grown.layout.arm(4)
    assert grown.mean[new] == pytest.approx(
        prior_of(log).population.typical_arm(grown.mean[:12])
    )
    assert (np.diagonal(grown.mean_covariance)[new] > grown.population.spread).all()
    assert grown.drift[new] == pytest.approx(grown.population.typical_drift)


def test_an_arm_that_leaves_takes_nothing_with_it():
    prior = prior_of(arm_log(7))
    back = prior.with_arm().without_arm(4)
    assert back.mean == pytest.approx(prior.mean)
    assert back.drift_covariance == pytest.approx(prior.drift_covariance)
    assert prior.without_arm(1).mean == pytest.approx(np.delete(prior.mean, [3, 4, 5]))


def test_a_catalogue_predicts_an_arm_never_played():
    """Intercepts follow a feature of the arms: with it a new arm is placed where it belongs, and the
    doubt is less.
    """
    rng = np.random.default_rng(3)
    features = rng.normal(size=(10, 1))
    contexts = np.column_stack([np.ones(20_000), rng.normal(size=20_000)])
    arms = rng.integers(10, size=20_000)
    rewards = 2.0 * features[arms, 0] + 0.1 * contexts[:, 1] + rng.normal(size=20_000)
    plain = DriftPrior.from_arms(ArmStatistics.from_rounds(contexts, arms, rewards))
    prior = DriftPrior.from_arms(
        ArmStatistics.from_rounds(contexts, arms, rewards, catalogue=features)
    )
    assert prior.population.likeness > 0.5
    new = replace(prior.layout, arms=11).arm(10)
    for feature in (-1.0, 2.0):
        known, unknown = prior.with_arm([feature]), plain.with_arm()
        assert known.mean[new][0] == pytest.approx(2.0 * feature, abs=0.6)
        assert (
            np.diagonal(known.mean_covariance)[new][0]
            < 0.5 * np.diagonal(unknown.mean_covariance)[new][0]
        )


def test_slopes_can_be_shared():
    rng = np.random.default_rng(4)
    contexts = np.column_stack([np.ones(8000), rng.normal(size=(8000, 2))])
    arms = rng.integers(30, size=8000)
    levels = rng.normal(size=30)
    rewards = levels[arms] + contexts[:, 1:] @ [1.0, -0.5] + 0.5 * rng.normal(size=8000)
    prior = DriftPrior.from_arms(
        ArmStatistics.from_rounds(contexts, arms, rewards, coding="shared")
    )
    assert prior.layout == ArmLayout(30, 1, 2)
    assert prior.mean[-2:] == pytest.approx([1.0, -0.5], abs=0.05)
    assert prior.mean[:30] == pytest.approx(levels, abs=0.2)
    grown = prior.with_arm()
    assert grown.mean[-2:] == pytest.approx(prior.mean[-2:])
    assert grown.mean[30] == pytest.approx(levels.mean(), abs=0.2)


# -- bad input --


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"contexts": np.zeros((10, 2))}, "contexts must have 1"),
        ({"arms": np.zeros(9, dtype=int)}, "arms must be 10 whole numbers"),
        ({"arms": np.full(10, 0.5)}, "arms must be 10 whole numbers"),
        ({"rewards": np.full(10, np.nan)}, "rewards must be finite"),
        ({"rewards": np.full(10, 2.0), "link": "logit"}, "from 0 to 1"),
        ({"windows": 1}, "windows"),
        ({"windows": np.repeat([0, 2], 5)}, "none of them empty"),
        ({"link": "probit"}, "link"),
        ({"count": 0}, "count"),
    ],
)
def test_bad_rounds_are_refused_by_name(change, words):
    given = {
        "contexts": np.ones((10, 2)),
        "arms": np.zeros(10, dtype=int),
        "rewards": np.ones(10),
        "windows": 2,
    }
    given |= change
    with pytest.raises(InputError, match=words):
        ArmStatistics.from_rounds(
            given.pop("contexts"), given.pop("arms"), given.pop("rewards"), **given
        )


def test_features_of_a_new_arm_need_features_of_the_others():
    with pytest.raises(InputError, match="arms of the logs have none"):
        prior_of(arm_log(8, rounds=2000)).with_arm([1.0])


@pytest.mark.parametrize("link", ["identity", "logit"])
def test_expectation_maximisation_arm_by_arm_gives_the_same_numbers(link):
    """One step by blocks and one of whole matrices; an arm is silent in the first window."""
    rng = np.random.default_rng(4)
    n, arms, width = 4000, 5, 4
    contexts = np.column_stack([np.ones(n), rng.normal(size=(n, width - 1))])
    played = np.where(
        np.arange(n) < 500, rng.integers(arms - 1, size=n), rng.integers(arms, size=n)
    )
    rewards = (contexts @ rng.normal(size=(width, arms)))[
        np.arange(n), played
    ] + rng.normal(size=n)
    rewards = rewards if link == "identity" else (rewards > 0.0).astype(float)
    statistics = ArmStatistics.from_rounds(contexts, played, rewards, windows=8)
    precision = arm_effects.PopulationPrior(statistics, np.eye(arms)).precision(
        np.full(width, 0.5)
    )
    own = rng.uniform(0.0, 0.1, arms * width)
    own[3] = 1e-14
    along = np.hstack(
        [statistics.common_directions, rng.normal(size=(arms * width, 2))]
    )
    sizes = rng.uniform(0.0, 0.1, along.shape[1])
    sizes[0] = 1e-300
    by_blocks = ArmBlocks(statistics).step(own, along, sizes, precision)
    whole = arm_effects.dense_step(statistics, own, along, sizes, precision)
    for found, wanted in zip(by_blocks, whole, strict=True):
        np.testing.assert_allclose(
            found, wanted, rtol=1e-8, atol=1e-10 * np.abs(wanted).max()
        )


def test_the_noise_is_known_from_few_rounds_per_coefficient():
    """100 coefficients in 8 windows and 400 rounds: windows are merged until a tenth of the rounds is left."""
    rng = np.random.default_rng(5)
    contexts = np.column_stack([np.ones(400), rng.normal(size=(400, 19))])
    played = rng.integers(5, size=400)
    rewards = (contexts @ rng.normal(size=(20, 5)))[
        np.arange(400), played
    ] + 2.0 * rng.normal(size=400)
    statistics = ArmStatistics.from_rounds(
        contexts, played, rewards, windows=8, link="identity"
    )
    assert 3.0 < statistics.noise_variance < 5.2  # 4 ± 0.4: 200 degrees of freedom
