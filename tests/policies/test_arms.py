"""AutoISD over labelled arms: clicks, new arms, names that mean nothing, and the laws of policies."""

import numpy as np
import pytest

import invariant_bandits as ib
import invariant_bandits.testing as laws
from arm_logs import arm_log, reordered
from invariant_bandits.checks import InputError
from invariant_bandits.decomposition.arm_statistics import ArmStatistics
from invariant_bandits.decomposition.drift_prior import DriftPrior
from invariant_bandits.decomposition.drift_tests import contrast_limit
from invariant_bandits.policies.mixture import HYPOTHESES, Member, marginal_sums

LINKS = ("identity", "logit")


def statistics_of(log, **options):
    return ArmStatistics.from_rounds(
        log.contexts, log.arms, log.rewards, windows=log.windows, **options
    )


def arm_policy(seed=0, link="logit", arms=4, **options):
    log = arm_log(
        seed, arms=arms, rounds=6000, clicks=link == "logit", drifting=[(0, 1)]
    )
    return ib.AutoISD.from_arms(statistics_of(log), **options)


def played(policy, rounds, seed=1, truth=None, order=None):
    """Arms chosen; truth (A, d), arms offered in `order`."""
    rng = np.random.default_rng(seed)
    layout = policy.prior.layout
    if truth is None:
        truth = np.random.default_rng(7).normal(size=(layout.arms, layout.own)) * 0.5
    names = (
        np.arange(layout.arms) if order is None else np.asarray(order)
    )  # names[i]: who stands in place i
    chosen = []
    for _ in range(rounds):
        z, luck = np.append(1.0, rng.normal(size=layout.own - 1)), rng.random()
        features = layout.features(np.tile(z, (layout.arms, 1)), np.arange(layout.arms))
        action = policy.select(features)
        odds = truth[names[action]] @ z
        click = float(luck < 1.0 / (1.0 + np.exp(-odds)))
        policy.update(
            features[action], click if policy.link == "logit" else odds + luck
        )
        chosen.append(int(names[action]))
    return chosen


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("law", laws.LAWS)
def test_laws(law, link):
    def make():
        log = arm_log(
            3, arms=2, slopes=1, rounds=1500, windows=4, clicks=link == "logit"
        )
        return ib.AutoISD.from_arms(statistics_of(log))

    laws.LAWS[law](make)


def test_one_filter_of_clicks_is_the_extended_kalman_filter():
    log = arm_log(1, arms=2, slopes=1, rounds=2000)
    prior = DriftPrior.from_arms(statistics_of(log))
    rng = np.random.default_rng(2)
    root = rng.normal(size=(4, 4))
    m, P = rng.normal(size=4), root @ root.T + np.eye(4)
    start = Member(HYPOTHESES[0], 1.0, m.copy(), P.copy(), np.full(4, 0.01))
    policy = ib.AutoISD(prior, intercept=False, members=[start], share=0.0)
    for _ in range(300):
        x, click = rng.normal(size=4), float(rng.random() < 0.4)
        policy.update(x, click)
        v = x @ P @ x
        chance = 1.0 / (1.0 + np.exp(-(m @ x) / np.sqrt(1.0 + 0.393 * v)))
        h = max(chance * (1.0 - chance), 1e-4)
        S, g = 1.0 / h + v, P @ x
        m = m + g * (click - chance) / (h * S)
        P = P - np.outer(g, g) / S + 0.01 * np.eye(4)
    assert policy.coefficients == pytest.approx(m, rel=1e-8)
    assert np.tril(policy.arrays()["covariances"][0]) == pytest.approx(
        np.tril(P), rel=1e-7
    )


def test_filters_are_weighed_by_the_likelihood_of_clicks():
    log = arm_log(1, arms=2, slopes=1, rounds=2000)
    prior = DriftPrior.from_arms(statistics_of(log))
    tight = 1e-12 * np.eye(4)
    pair = [
        Member(name, 0.5, np.array([odds, 0.0, 0.0, 0.0]), tight, np.zeros(4))
        for name, odds in zip(HYPOTHESES, (1.0, -1.0), strict=False)
    ]
    policy = ib.AutoISD(prior, intercept=False, members=pair, share=0.0)
    for click in (1.0, 1.0, 0.0, 1.0):
        policy.update(np.array([1.0, 0.0, 0.0, 0.0]), click)
    likely, other = 1.0 / (1.0 + np.exp(-1.0)), 1.0 / (1.0 + np.exp(1.0))
    expected = likely**3 * other / (likely**3 * other + other**3 * likely)
    assert policy.explain().hypotheses[HYPOTHESES[0]] == pytest.approx(
        expected, rel=1e-6
    )


def test_scores_of_clicks_are_probabilities_that_explain_the_choice():
    policy = arm_policy()
    played(policy, 50)
    layout = policy.prior.layout
    for seed in range(20):
        z = np.append(
            1.0, 2.0 * np.random.default_rng(seed).normal(size=layout.own - 1)
        )
        features = layout.features(np.tile(z, (4, 1)), np.arange(4))
        scores = policy.scores(features)
        assert ((scores.mean > 0.0) & (scores.mean < 1.0)).all()
        assert (scores.mean + scores.width <= 1.0 + 1e-8).all()
        if policy.why(features) == "greedy":
            assert policy.select(features) == np.argmax(scores.mean)


def test_a_reward_that_is_no_click_is_refused():
    policy = arm_policy()
    before = laws.bits(policy)
    with pytest.raises(InputError, match=r"reward must be from 0 to 1.*got 2"):
        policy.update(np.eye(policy.dim)[0], 2.0)
    assert laws.bits(policy) == before


@pytest.mark.parametrize("link", LINKS)
def test_the_names_of_arms_mean_nothing(link):
    log = arm_log(4, rounds=6000, clicks=link == "logit", drifting=[(1, 1)])
    statistics, order = statistics_of(log), np.array([2, 0, 3, 1])
    one = ib.AutoISD.from_arms(statistics)
    other = ib.AutoISD.from_arms(reordered(statistics, order))
    assert played(one, 600) == played(other, 600, order=order)


def test_the_unit_of_rewards_means_nothing():
    log = arm_log(6, rounds=4000, clicks=False)
    policies = []
    for unit in (1.0, 1000.0):
        log_in_units = ArmStatistics.from_rounds(
            log.contexts, log.arms, unit * log.rewards, windows=log.windows
        )
        policies.append((unit, ib.AutoISD.from_arms(log_in_units)))
    rng = np.random.default_rng(1)
    for _ in range(200):
        z = np.append(1.0, rng.normal(size=2))
        features = policies[0][1].prior.layout.features(
            np.tile(z, (4, 1)), np.arange(4)
        )
        chosen = {policy.select(features) for _, policy in policies}
        assert len(chosen) == 1
        reward = rng.normal()
        for unit, policy in policies:
            policy.update(features[min(chosen)], unit * reward)


@pytest.mark.parametrize("link", LINKS)
def test_a_new_arm_that_is_best_is_found(link):
    policy = arm_policy(2, link=link)
    truth = np.vstack([policy.prior.layout.by_arm(policy.prior.mean), np.zeros(3)])
    truth[4] = truth[:4].mean(axis=0)
    truth[4, 0] = truth[:4, 0].max() + 1.5
    grown = policy.with_arm()
    chosen = played(grown, 1000, truth=truth)
    assert np.mean(np.array(chosen[500:]) == 4) > 0.7
    truth[4, 0] = truth[:4, 0].min() - 1.5
    avoided = played(policy.with_arm(), 1000, truth=truth)
    assert np.mean(np.array(avoided[500:]) == 4) < 0.1


def test_decisions_start_from_where_an_effect_that_drifted_has_ended():
    """The slope of arm 1 fell from +1 to −1 log-odds: near the chance it has now, not that of the average."""
    rng, n = np.random.default_rng(1), 24_000
    z = np.column_stack([np.ones(n), rng.normal(size=(n, 2))])
    arms, window = rng.integers(3, size=n), np.arange(n) * 12 // n
    truth = np.array([[-1.0, 0.3, 0.0], [-1.2, 0.0, 0.2], [-0.8, 0.0, -0.3]])
    slopes = truth[arms, 1] + np.where(arms == 1, np.where(window < 6, 1.0, -1.0), 0.0)
    odds = truth[arms, 0] + slopes * z[:, 1] + truth[arms, 2] * z[:, 2]
    clicks = (rng.random(n) < 1.0 / (1.0 + np.exp(-odds))).astype(float)
    policy = ib.AutoISD.from_arms(
        ArmStatistics.from_rounds(z, arms, clicks, windows=window)
    )
    at = policy.prior.layout.features(np.tile([1.0, 1.0, 0.0], (3, 1)), np.arange(3))
    chance = policy.scores(at).mean[1]
    now, average = 1.0 / (1.0 + np.exp(2.2)), 1.0 / (1.0 + np.exp(1.2))
    assert abs(chance - now) < 0.6 * (average - now)


@pytest.mark.parametrize("link", LINKS)
def test_growing_before_the_first_round_is_starting_with_the_arm(link):
    policy = arm_policy(link=link)
    grown, started = policy.with_arm(), ib.AutoISD(policy.prior.with_arm())
    for name in ("means", "covariances", "process"):
        assert np.tril(grown.arrays()[name]) == pytest.approx(
            np.tril(started.arrays()[name]), abs=1e-6
        )


@pytest.mark.parametrize("link", LINKS)
def test_an_arm_that_comes_and_goes_leaves_the_others_as_they_were(link, tmp_path):
    policy = arm_policy(link=link)
    played(policy, 200)
    before = laws.bits(policy)
    grown = policy.with_arm()
    assert laws.bits(policy) == before
    ib.save(grown, tmp_path / "grown")
    assert laws.bits(ib.load(tmp_path / "grown")) == laws.bits(grown)
    back = grown.without_arm(4)
    assert played(back, 100, seed=5) == played(policy, 100, seed=5)
    assert grown.rounds == 200
    old = np.append(np.arange(12), 15)
    mean = grown.arrays()["means"]
    assert mean[:, old] == pytest.approx(arm_means(policy, 200, link))
    assert np.isfinite(mean).all()


def arm_means(policy, rounds, link):
    again = arm_policy(link=link)
    played(again, rounds)
    return again.arrays()["means"]


def test_what_was_learned_of_all_arms_is_believed_of_a_new_one():
    """Clicks have become far more frequent with every arm: a new one is expected to have more, too."""
    policy = arm_policy()
    before = policy.with_arm().coefficients[12]
    played(policy, 800, truth=np.tile([3.0, 0.0, 0.0], (4, 1)))
    layout = policy.with_arm().prior.layout
    features = layout.features(np.array([[1.0, 0.0, 0.0]]), np.array([4]))
    assert (
        policy.with_arm().scores(features).mean[0]
        > 0.75
        > 1.0 / (1.0 + np.exp(-before)) + 0.2
    )


def test_only_labelled_arms_come_and_go():
    policy = ib.AutoISD.from_past(laws.example_past())
    with pytest.raises(InputError, match="knows no labelled arms"):
        policy.with_arm()
    with pytest.raises(InputError, match="arm must be from 0 to 3"):
        arm_policy().without_arm(4)


# -- the alarm --


def test_the_alarm_says_why_it_is_silent():
    log = arm_log(0, rounds=6000, windows=3)
    policy = ib.AutoISD.from_arms(statistics_of(log))
    assert not policy.alarm_supported
    assert "3 windows say too little about drift" in str(policy.explain())
    rare = arm_log(0, rounds=300, windows=6)
    few = ib.AutoISD.from_arms(statistics_of(rare)).explain().no_alarm_because
    assert few.startswith("no direction is informed by more than")


def test_the_sums_of_clicks_are_their_scores_and_their_information():
    policy, rng = arm_policy(), np.random.default_rng(5)
    G, u = np.zeros((13, 13)), np.zeros(13)
    for _ in range(50):
        z, click = np.append(rng.normal(size=12), 1.0), float(rng.random() < 0.3)
        now, logs = policy.mixture.filters.mean.copy(), policy.mixture.filters.logs_mean
        chance = 1.0 / (1.0 + np.exp(-z @ now))
        h = chance * (1.0 - chance)
        G += h * np.outer(z, z)
        u += z * (click - chance + h * (z @ (now - logs)))
        policy.update(z[:-1], click)
    online = policy.mixture.filters.online
    assert np.tril(online[0, :13, :13]) == pytest.approx(np.tril(G))
    assert np.tril(online[1, :13, :13]) == pytest.approx(np.tril(G))
    assert online[0, 13, :13] == pytest.approx(u)


def test_coordinates_that_are_projected_out_leave_what_the_others_are_estimated_as():
    rng = np.random.default_rng(6)
    z, rewards = rng.normal(size=(80, 6)), rng.normal(size=80)
    online = np.zeros((2, 7, 7))
    online[0, :6, :6], online[0, 6, :6], online[0, 6, 6] = (
        np.tril(z.T @ z),
        z.T @ rewards,
        80,
    )
    online[1] = online[0]
    kept = np.array([1, 2, 5])
    sums = marginal_sums(online, kept)
    whole = np.linalg.lstsq(z, rewards, rcond=None)[0]
    assert np.linalg.solve(sums[0, :-1, :-1], sums[0, -1, :-1]) == pytest.approx(
        whole[kept]
    )
    assert sums[1, :-1, :-1] == pytest.approx(
        sums[0, :-1, :-1]
    )  # the variance of a score is its information


def broken_runs(change, rounds, runs, new_arm=0.0):
    """In how many runs the alarm is raised if coefficients of arms change by `change` (4, 3); a new arm has
    this level.
    """
    raised = 0
    for run in range(runs):
        log = arm_log(100 + run, drifting=[(3, 2)], step=0.3)
        policy, truth = ib.AutoISD.from_arms(statistics_of(log)), log.truth[-1] + change
        if new_arm:
            policy, truth = policy.with_arm(), np.vstack([truth, [new_arm, 0.0, 0.0]])
        played(policy, rounds, seed=run, truth=truth)
        raised += policy.alarm
    return raised


def test_arms_that_stay_and_a_new_one_that_is_unlike_them_raise_no_alarm():
    # At a rate of 2 % two or more of 6 have probability 0.006.
    assert broken_runs(np.zeros((4, 3)), 800, 6, new_arm=3.0) <= 1


def test_effects_that_break_raise_the_alarm():
    # Two slopes of all arms move by 1.2 log-odds, far beyond what their windows hide.
    assert broken_runs(np.array([0.0, 1.2, -1.2]), 800, 3) == 3


def test_the_limit_of_drift_grows_with_it_and_needs_two_contrasts():
    rng, Q = np.random.default_rng(7), 25.0 * np.eye(10)
    limits = []
    for drift in (0.0, 0.2, 2.0):
        scores = (Q @ rng.normal(size=(10, 400)) * np.sqrt(drift + 0.04)).T
        limits.append(np.median([contrast_limit(Q, u, drift) for u in scores]))
    # At 40 % with four contrasts of the true drift, the limit is on average a little above it.
    assert limits == pytest.approx([0.005, 0.22, 2.2], rel=0.2, abs=0.005)
    assert contrast_limit(np.diag([1.0, 1.0, 0.0]), np.zeros(3), 0.1) == np.inf
