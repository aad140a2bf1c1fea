"""The rule of the intervals: its formulas by hand, what it does not depend on, and when it refuses."""

import numpy as np
import pytest
from scipy import stats

import invariant_bandits as ib
from invariant_bandits.evaluation import estimators
from invariant_bandits.evaluation.intervals import (
    block_starts,
    block_sums,
    clustering,
    dependence_of_blocks,
    estimated,
    reasons_in_rewards,
    unseen_sizes,
)
from invariant_bandits.logs.feedback import Feedback
from logged_worlds import ACTIONS, DIM, GAMMA, World, best_of, of_rounds

ENDS = ("value", "low", "high")


def of(gains, weights, rewards, reach, **more):
    return estimated(
        gains,
        weights,
        effective_sample=float(len(gains)),
        rewards=np.asarray(rewards),
        reach=np.asarray(reach),
        **more,
    )


# -- by hand: a second implementation, round by round --


def gamma_end(values, unseen, level):
    k2 = sum(x**2 for x in values) + unseen**2
    k3 = 2 * (sum(x**3 for x in values) + unseen**3)
    skewed = stats.gamma(4 * k2**3 / k3**2, scale=abs(k3) / (2 * k2))
    if k3 > 0:
        return unseen - skewed.mean() + skewed.ppf(level)
    return unseen + skewed.mean() - skewed.ppf(1 - level)


def excess(residuals, sign):
    positive = [max(sign * e, 0) for e in residuals]
    squares = sum(e**2 for e in residuals)
    gaussian = np.sqrt(2 / np.pi) * np.sqrt(squares / len(residuals))
    return max(0, sum(e**3 for e in positive) / squares - gaussian)


def block_ratio(values, sums):
    return sum(s**2 for s in sums(values)) / sum(x**2 for x in values)


def shared_by_blocks(values, independent, B, quarter):
    """How many times the variance exceeds that of independent blocks, by the sums of quarters of blocks."""
    q = [sum(values[quarter * j : quarter * (j + 1)]) for j in range(4 * B)]
    Q = {
        h: sum(q[j] * q[j + h] for j in range(4 * B - h)) / (4 * B - h)
        for h in (1, 4, 5, 6, 7)
    }
    return 1 + max(
        0, 4 * (B - 1) * (Q[1] - max(0, (Q[4] + Q[5] + Q[6] + Q[7]) / 4)) / independent
    )


def by_hand(parts, confidence=0.95):
    """Value and ends of one ratio or of a difference; parts: (gains, weights, residuals, reach), blocks being
    equal.
    """
    n = len(parts[0][0])
    B = min(30, n // 2)
    size = n // B

    def sums(values):
        found = [
            np.sqrt(B / (B - 1)) * sum(values[size * b : size * (b + 1)])
            for b in range(B)
        ]
        F = (
            shared_by_blocks(values, sum(s**2 for s in found), B, size // 4)
            if size >= 4
            else 1.0
        )
        return [np.sqrt(F) * s for s in found]

    signs, alpha = (1, -1)[: len(parts)], (1 - confidence) / 2
    values = [sum(gains) / sum(weights) for gains, weights, _, _ in parts]
    value = sum(sign * item for sign, item in zip(signs, values, strict=True))
    z, up, down, reach = np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n)
    clusters = []
    for sign, one, (gains, weights, residuals, reaches) in zip(
        signs, values, parts, strict=True
    ):
        for t in range(n):
            z[t] += sign * (gains[t] - one * weights[t]) / sum(weights)
            up[t] += sign * reaches[t] / sum(weights) * excess(residuals, 1)
            down[t] -= sign * reaches[t] / sum(weights) * excess(residuals, -1)
            reach[t] += sign * reaches[t] / sum(weights)
        clusters.append(
            max(1, block_ratio(np.array(residuals) - np.mean(residuals), sums))
        )
    rho = sum(reach) ** 2 / (n * sum(reach**2))
    D = max(1, block_ratio(z, sums), 1 + (max(clusters) - 1) * rho)
    u_up, u_down = max(0, *up, *down), min(0, *up, *down)
    S = sums(z)
    t_end = stats.t(B - 1).ppf(1 - alpha) * np.sqrt(sum(s**2 for s in S))
    low = min(-t_end, gamma_end(z, u_down, alpha), gamma_end(S, D * u_down, alpha))
    high = max(t_end, gamma_end(z, u_up, 1 - alpha), gamma_end(S, D * u_up, 1 - alpha))
    return value, value + low, value + high


CLICKS = np.array([0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0])
WEIGHTS = np.array([2.0, 0.5, 4.0, 0.0, 1.0, 0.5, 2.0, 0.0])
ONES = np.ones(8)


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_the_interval_of_a_value_is_what_the_formulas_say(confidence):
    value = WEIGHTS @ CLICKS / WEIGHTS.sum()
    found = of(WEIGHTS * CLICKS, WEIGHTS, CLICKS, WEIGHTS, confidence=confidence)
    expected = by_hand(
        [(WEIGHTS * CLICKS, WEIGHTS, CLICKS - value, WEIGHTS)], confidence
    )
    assert [getattr(found, name) for name in ENDS] == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("rewards", [CLICKS, -CLICKS, 3.0 - 2.0 * CLICKS])
def test_the_interval_of_a_difference_is_what_the_formulas_say(rewards):
    weighted = of(WEIGHTS * rewards, ONES, rewards, WEIGHTS, expected=0.0)
    logged = of(rewards, ONES, rewards, ONES)
    expected = by_hand(
        [
            (WEIGHTS * rewards, ONES, rewards, WEIGHTS),
            (rewards, ONES, rewards - rewards.mean(), ONES),
        ],
    )
    assert [getattr(weighted.minus(logged), name) for name in ENDS] == pytest.approx(
        expected, rel=1e-10
    )


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_an_unseen_reward_counts_on_either_side_of_a_difference(sign):
    """Five rewards in 240 rounds, all where the weight is small: the next one may be where it is large."""
    rng = np.random.default_rng(4)
    rewards, weights, ones = (
        np.zeros(240),
        rng.choice([0.2, 8.0], size=240, p=[0.9, 0.1]),
        np.ones(240),
    )
    rewards[np.flatnonzero(weights < 1.0)[[3, 40, 41, 90, 150]]] = sign
    weighted = of(weights * rewards, ones, rewards, weights, expected=0.0)
    logged = of(rewards, ones, rewards, ones)
    parts = [
        (weights * rewards, ones, rewards, weights),
        (rewards, ones, rewards - rewards.mean(), ones),
    ]
    for item, other, order in (
        (weighted, logged, parts),
        (logged, weighted, parts[::-1]),
    ):
        difference = item.minus(other)
        assert [getattr(difference, name) for name in ENDS] == pytest.approx(
            by_hand(order), rel=1e-10
        )
    plain = stats.t(29).ppf(0.975) * weighted.minus(logged).standard_error
    found = weighted.minus(logged)
    assert (
        found.high - found.value if sign > 0.0 else found.value - found.low
    ) > 2.0 * plain


def test_every_estimator_hands_over_what_it_weighs_and_what_it_expected():
    feedback, target = a_log()
    weights, rewards = estimators.importance_weights(feedback, target), feedback.rewards
    predicted = estimators.predict_rewards(feedback).values[feedback.logged_rows]
    logged, accepted = (
        estimators.logged_value(feedback),
        estimators.accepted_value(feedback, np.arange(0, 600, 3)),
    )
    every_third = (np.arange(600) % 3 == 0).astype(float)
    snips, direct = (
        estimators.snips(feedback, target),
        estimators.direct(feedback, target),
    )
    expected = {
        "IPS": (estimators.ips(feedback, target), rewards, weights),
        "SNIPS": (snips, rewards - snips.value, weights),
        "DR": (
            estimators.doubly_robust(feedback, target),
            rewards - predicted,
            weights,
        ),
        "replay": (accepted, rewards - accepted.value, every_third),
        "the log": (logged, rewards - rewards.mean(), np.ones(600)),
        "direct": (
            direct,
            rewards - np.where(np.arange(600) < 20, rewards.mean(), predicted),
            np.arange(600) >= 20,
        ),
    }
    for name, (found, residuals, reach) in expected.items():
        np.testing.assert_allclose(
            found.contributions.residuals, residuals, err_msg=name
        )
        np.testing.assert_allclose(found.contributions.reach, reach, err_msg=name)
    full = Feedback.from_full_information(
        of_rounds(feedback), np.tile(rewards[:, None], (1, ACTIONS)), seed=0
    )
    played = estimators.exact(full, ib.Greedy(DIM)).contributions
    np.testing.assert_allclose(played.residuals, rewards - rewards.mean())
    np.testing.assert_array_equal(played.reach, 1.0)


def test_an_unseen_reward_is_as_large_as_those_that_make_the_variance_less_what_gaussian_ones_are():
    """One residual of 1 among 100: 1 − √(2/π)/10. Of a million Gaussian ones: 0 ± 0.002."""
    assert unseen_sizes(np.eye(100)[7]) == pytest.approx(
        (1.0 - np.sqrt(2.0 / np.pi) / 10.0, 0.0)
    )
    assert unseen_sizes(-3.0 * np.eye(100)[7]) == pytest.approx(
        (0.0, 3.0 - 3.0 * np.sqrt(2.0 / np.pi) / 10.0)
    )
    assert unseen_sizes(
        np.random.default_rng(0).standard_normal(1_000_000)
    ) == pytest.approx((0.0, 0.0), abs=0.01)
    assert unseen_sizes(np.zeros(10)) == (0.0, 0.0)


def test_blocks_are_as_equal_as_can_be_and_clustering_is_what_they_see():
    assert np.diff(np.append(block_starts(100), 100)).tolist().count(3) == 20
    np.testing.assert_array_equal(block_sums(np.arange(8.0)), [1.0, 5.0, 9.0, 13.0])
    assert clustering(np.tile([1.0, -1.0], 300)) == 1.0
    alternating = np.repeat(np.tile([1.0, -1.0], 15), 20)
    between = 1.0 + 4.0 * 29 * 25.0 * (90 - 29) / 119 / (
        400.0 * 30 * 30 / 29
    )  # by quarters: 90 pairs alike, 29 not
    assert clustering(alternating) == pytest.approx(20 * 30 / 29 * between)


def test_what_neighbouring_blocks_share_is_counted_and_a_slow_drift_is_not():
    """Of 4,000 rounds; independent ones: 1.02 on average over 100 logs ± 0.004, above 1.05 with probability
    1e-10.

    A wave as long as the log has much larger block sums than the noise on it, but its neighbours explain each
    other.
    """
    rng = np.random.default_rng(11)
    independent = [
        dependence_of_blocks(item - item.mean())
        for item in rng.standard_normal((100, 4000))
    ]
    assert min(independent) == 1.0
    assert np.mean(independent) < 1.05
    wave = np.cos(2.0 * np.pi * (np.arange(4000) + 0.5) / 4000)
    assert clustering(wave) > 100.0
    assert dependence_of_blocks(wave) == pytest.approx(1.02, abs=0.01)


def test_quarters_that_are_alike_across_boundaries_only_are_found_by_hand():
    """The last quarter of every tenth block and the first of the next are 1, all others 0: Q₁ = 3/119, no
    other Q_h.
    """
    quarters = np.zeros(120)
    quarters[[3, 4, 43, 44, 83, 84]] = 1.0
    expected = 1.0 + 4.0 * 29 * (3 / 119) / (6 * 30 / 29)
    assert dependence_of_blocks(np.repeat(quarters / 10.0, 10)) == pytest.approx(
        expected
    )
    assert dependence_of_blocks(quarters) == pytest.approx(expected)
    quarters[[4, 44, 84]] = -1.0
    assert dependence_of_blocks(quarters) == 1.0


def test_fewer_rounds_than_quarters_of_blocks_count_as_independent_blocks():
    alike = np.repeat([1.0, -1.0], 59)
    assert dependence_of_blocks(alike) == 1.0
    assert dependence_of_blocks(np.zeros(4000)) == 1.0


# -- what it must not depend on --


def a_log(seed=0, rounds=600):
    feedback, _ = World().log(rounds, np.random.default_rng(seed))
    return feedback, best_of(GAMMA)(of_rounds(feedback)).ravel()


def with_rewards(feedback, rewards):
    return Feedback.from_arrays(
        of_rounds(feedback),
        feedback.actions,
        rewards,
        propensities=feedback.propensities,
    )


def rare(feedback):
    """The same rounds with a reward in about 3 % of them."""
    return with_rewards(
        feedback, np.where(feedback.rewards > 3.6, feedback.rewards, 0.0)
    )


ALL = (estimators.ips, estimators.snips, estimators.doubly_robust, estimators.direct)


@pytest.mark.parametrize("estimator", ALL)
def test_rewards_in_other_units_give_the_interval_in_other_units(estimator):
    feedback, target = a_log()
    for log in (feedback, rare(feedback)):
        plain = estimator(log, target)
        for factor in (1e-60, 0.01, 1e60):
            scaled = estimator(with_rewards(log, factor * log.rewards), target)
            assert scaled.concludes
            for name in ENDS:
                assert getattr(scaled, name) == pytest.approx(
                    factor * getattr(plain, name), rel=1e-6
                )


@pytest.mark.parametrize("estimator", ALL)
def test_costs_have_the_mirrored_interval_of_rewards(estimator):
    log, target = rare(a_log()[0]), a_log()[1]
    rewards, costs = (
        estimator(log, target),
        estimator(with_rewards(log, -log.rewards), target),
    )
    assert (-costs.high, -costs.low) == pytest.approx(
        (rewards.low, rewards.high), rel=1e-9
    )
    assert rewards.high - rewards.value > 1.05 * (rewards.value - rewards.low)


def test_a_shift_of_all_rewards_shifts_snips_and_leaves_its_difference_to_the_log():
    feedback, target = a_log()
    for log in (feedback, rare(feedback)):
        moved = log.shifted(-50.0)
        plain, shifted = estimators.snips(log, target), estimators.snips(moved, target)
        differences = (
            plain.minus(estimators.logged_value(log)),
            shifted.minus(estimators.logged_value(moved)),
        )
        for name in ENDS:
            assert getattr(shifted, name) == pytest.approx(
                getattr(plain, name) + 50.0, rel=1e-10
            )
            assert getattr(differences[1], name) == pytest.approx(
                getattr(differences[0], name), abs=1e-9
            )


def test_neither_the_order_of_rounds_within_a_quarter_of_a_block_nor_the_direction_of_time_matters():
    rng = np.random.default_rng(5)
    rewards, weights = (rng.random(600) < 0.1).astype(float), rng.exponential(size=600)
    inside = np.concatenate(
        [5 * quarter + rng.permutation(5) for quarter in range(120)]
    )
    plain = of(weights * rewards, weights, rewards, weights)
    for order in (inside, np.arange(600)[::-1]):
        w, r = weights[order], rewards[order]
        moved = of(w * r, w, r, w)
        assert [getattr(moved, name) for name in ENDS] == pytest.approx(
            [getattr(plain, name) for name in ENDS]
        )


def test_the_order_of_blocks_does_not_matter_where_they_are_too_short_for_quarters():
    rng = np.random.default_rng(6)
    rewards, weights = (rng.random(90) < 0.3).astype(float), rng.exponential(size=90)
    order = (3 * rng.permutation(30)[:, None] + np.arange(3)).ravel()
    plain = of(weights * rewards, weights, rewards, weights)
    moved = of(
        (weights * rewards)[order], weights[order], rewards[order], weights[order]
    )
    assert [getattr(moved, name) for name in ENDS] == pytest.approx(
        [getattr(plain, name) for name in ENDS]
    )


def test_a_policy_does_not_differ_from_itself():
    feedback, target = a_log()
    for log in (feedback, rare(feedback)):
        one = estimators.snips(log, target)
        difference = one.minus(estimators.snips(log, target))
        assert (difference.value, difference.low, difference.high) == (0.0, 0.0, 0.0)
        assert difference.concludes


def test_a_higher_confidence_never_gives_a_narrower_interval():
    feedback, target = a_log()
    found = [
        estimators.snips(rare(feedback), target, confidence=level)
        for level in (0.5, 0.8, 0.95, 0.99, 0.9999)
    ]
    lows, highs = (
        np.array([item.low for item in found]),
        np.array([item.high for item in found]),
    )
    assert (np.diff(lows) < 0.0).all()
    assert (np.diff(highs) > 0.0).all()


# -- refusing --


def test_rewards_that_are_all_equal_say_nothing_of_others():
    feedback, target = a_log()
    constant = with_rewards(feedback, np.full(600, 0.0))
    for estimator in ALL:
        found = estimator(constant, target)
        assert (found.low, found.high) == (-np.inf, np.inf)
        assert "all rewards are equal" in str(found)
    assert (
        not estimators.snips(constant, target)
        .minus(estimators.logged_value(constant))
        .concludes
    )
    full = Feedback.from_full_information(np.ones((50, 2, 1)), np.ones((50, 2)), seed=0)
    assert "all rewards are equal" in str(estimators.exact(full, ib.Uniform(1)))


def test_few_rewards_of_many_sizes_are_refused_and_few_clicks_are_not():
    rewards = np.zeros(4000)
    rewards[:19] = np.arange(1, 20)
    assert reasons_in_rewards(rewards) == (
        "19 rewards differ from 0, 20 are needed to know their sizes",
    )
    rewards[19] = 20.0
    assert reasons_in_rewards(rewards) == ()
    assert reasons_in_rewards(1.0 * (np.arange(4000) == 7)) == ()
    assert not of(rewards * 0.0, np.ones(4000), rewards * 0.0, np.ones(4000)).concludes


def test_the_size_of_rewards_is_no_reason_to_refuse():
    rewards = np.random.default_rng(0).standard_normal(4000)
    rewards[17] = 1e9
    found = of(rewards, np.ones(4000), rewards, np.ones(4000))
    assert found.concludes
    assert found.low < 0.0 < 1e9 / 4000 < found.high


def test_an_end_that_is_not_finite_never_concludes():
    rewards = np.tile([1.0, 2.0, 3.0], 100)
    endless = of(
        rewards, np.ones(300), rewards, np.ones(300), model_errors=np.array([[np.inf]])
    )
    huge = of(rewards * 5e307, np.ones(300), rewards * 5e307, np.ones(300))
    for found in (endless, huge):
        assert found.reasons == ("the interval has no finite end",)
        assert (found.low, found.high) == (-np.inf, np.inf)


# -- the errors of a model, and estimators of other people --


def test_the_error_of_a_model_is_added_in_quadrature_at_each_end():
    rewards, ones = np.tile([0.0, 0.0, 0.0, 0.0, 1.0], 60), np.ones(300)
    plain = of(rewards, ones, rewards, ones)
    errors = np.array([[0.03, 0.04], [0.0, 0.01]])
    found = of(rewards, ones, rewards, ones, model_errors=errors)
    more = stats.t(29).ppf(0.975) * 0.06
    assert found.standard_error == pytest.approx(np.hypot(plain.standard_error, 0.06))
    assert found.high - found.value == pytest.approx(
        np.hypot(plain.high - plain.value, more)
    )
    assert found.value - found.low == pytest.approx(
        np.hypot(plain.value - plain.low, more)
    )


def test_an_estimator_that_only_gives_gains_and_weights_has_an_interval_that_is_not_narrower():
    feedback, target = a_log(rounds=2000)
    clicks = with_rewards(feedback, (feedback.rewards > 3.0).astype(float))
    weights = estimators.importance_weights(clicks, target)
    bare = estimated(
        weights * clicks.rewards,
        np.ones(2000),
        effective_sample=500.0,
        confidence=0.95,
        reasons=(),
    )
    known, logged = estimators.ips(clicks, target), estimators.logged_value(clicks)
    assert bare.concludes
    assert bare.value == known.value
    assert bare.high - bare.low == pytest.approx(known.high - known.low, rel=0.2)
    assert (
        bare.minus(logged).high >= known.minus(logged).high - 0.2 * known.standard_error
    )
    itself = bare.minus(
        estimated(weights * clicks.rewards, np.ones(2000), effective_sample=500.0)
    )
    assert (
        itself.low < 0.0 < itself.high
    )  # an unseen reward could reach one of two such estimates only


def test_differences_of_differences_and_of_other_rounds_are_refused():
    one = of(CLICKS, ONES, CLICKS, ONES)
    with pytest.raises(ib.InputError, match="differences are taken of values"):
        one.minus(one).minus(one)
    with pytest.raises(ib.InputError, match="same rounds"):
        one.minus(of(CLICKS[:6], ONES[:6], CLICKS[:6], ONES[:6]))
    with pytest.raises(ib.InputError, match=r"shape \(n,\) of gains"):
        of(CLICKS, ONES, CLICKS[:6], ONES)
    with pytest.raises(ib.InputError, match=r"shape \(n,\) of gains, got \(2, 8\)"):
        estimated([CLICKS, CLICKS], [ONES, ONES], effective_sample=8.0)


def test_a_difference_among_many_is_that_of_a_higher_confidence():
    """Bonferroni: so many intervals hold at once with the confidence of one."""
    rng = np.random.default_rng(8)
    first, second = rng.normal(1.0, 1.0, (2, 400))
    ones = np.ones(400)
    pair = [of(gains, ones, gains, ones) for gains in (first, second)]
    sure = [
        of(gains, ones, gains, ones, confidence=1.0 - 0.05 / 28)
        for gains in (first, second)
    ]
    among, alone = pair[0].minus(pair[1], among=28), sure[0].minus(sure[1])
    assert [getattr(among, end) for end in ENDS] == pytest.approx(
        [getattr(alone, end) for end in ENDS]
    )
    assert among.low < pair[0].minus(pair[1]).low


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_weights_of_a_few_rounds_are_refused_with_reasons(rounds):
    effective, reasons = estimators.support(np.full(rounds, 1.3))
    assert effective == pytest.approx(rounds)
    assert any("effective sample" in reason for reason in reasons)
