"""What a past works out when it is asked: bounds, noise, delta, windows; and what it refuses to
invent.
"""

import warnings

import numpy as np
import pytest

import invariant_bandits as ib
from invariant_bandits.policies.past import ForgetsNothingWarning
from invariant_bandits.policies.registry import PolicySpec


def feedback(rounds=400, sizes=(3,), seed=0):
    rng = np.random.default_rng(seed)
    counts = rng.choice(sizes, size=rounds)
    offered = rng.normal(size=(counts.sum(), 2))
    actions = (rng.random(rounds) * counts).astype(int)
    starts = np.cumsum(counts) - counts
    rewards = (
        7.0
        + offered[starts + actions] @ [1.0, -1.0]
        + rng.normal(scale=2.0, size=rounds)
    )
    return ib.evaluation.Feedback.from_arrays(offered, actions, rewards, counts=counts)


def test_bounds_and_noise_are_those_of_the_rounds_and_the_baseline_is_their_mean():
    log = feedback(4000)
    past = ib.Past.from_feedback(log, 100, windows=5)
    assert past.baseline == log.rewards.mean()
    assert past.logs.rewards.mean() == pytest.approx(0.0, abs=1e-12)
    assert past.feature_bound == np.linalg.norm(log.offered, axis=1).max()
    assert past.noise_scale == pytest.approx(
        2.0, rel=0.05
    )  # standard error 0.011 of 2, relative
    assert (past.delta, past.suggested_window, past.actions) == (0.01, 800, 3)
    assert past.moments.windows == 5


def test_features_that_are_all_zero_still_have_a_bound():
    log = ib.evaluation.Feedback.from_arrays(
        np.zeros((20, 2, 1)), np.zeros(20, dtype=int), np.arange(20.0)
    )
    assert ib.Past.from_feedback(log, windows=2).feature_bound == 1e-6


def test_rounds_of_different_sizes_have_no_number_of_actions():
    past = ib.Past.from_feedback(feedback(sizes=(2, 3)), 10)
    assert past.actions is None
    with pytest.raises(ib.InputError, match="arms must be a whole number"):
        ib.DisjointLinUCB.from_past(past)


def test_what_the_caller_knows_comes_first():
    moments = feedback().moments(4)
    past = ib.Past(
        moments=moments, noise_scale=3.0, feature_bound=9.0, delta=0.2, horizon=50
    )
    assert ib.LinUCB.known_from(past) == {
        "dim": past.dim,
        "noise_scale": 3.0,
        "feature_bound": 9.0,
        "delta": 0.2,
    }
    plain = ib.Past(moments=moments)
    assert (plain.feature_bound, plain.delta) == (1.0, 0.01)
    assert ib.Past(moments=moments, horizon=1).delta == 0.5
    assert ib.Past(moments=moments, horizon=400).delta == 1 / 400


def test_other_windows_come_from_the_rows_and_everything_else_stays():
    past = ib.Past.from_feedback(feedback(), 100, windows=8)
    other = past.in_windows(4)
    assert (other.moments.windows, other.baseline, other.feature_bound) == (
        4,
        past.baseline,
        past.feature_bound,
    )
    assert past.moments.windows == 8
    with pytest.raises(ib.InputError, match="only their moments"):
        ib.Past(moments=past.moments).in_windows(4)


def test_the_decomposition_is_found_once_and_by_whoever_asks():
    past = ib.Past.from_feedback(feedback(), 100, windows=4)
    assert past.decomposition is past.decomposition
    given = ib.Past(moments=past.moments, decomposition=past.decomposition)
    assert given.decomposition is past.decomposition


def test_nobody_is_told_a_truth_that_nobody_knows():
    past = ib.Past.from_feedback(feedback(), 100)
    with pytest.raises(ib.InputError, match="oracles exist in simulations only"):
        ib.ISDLinUCB.from_past(past, split="oracle")
    with pytest.raises(ib.InputError, match="a past needs logs or moments"):
        ib.Past()


def test_a_warm_start_may_take_the_latest_rounds_only():
    log = feedback()
    past = ib.Past(logs=log.shifted(7.0), noise_scale=2.0)
    some = ib.LinUCB.from_past(past, warm=30)
    by_hand = ib.LinUCB(2, noise_scale=2.0, feature_bound=1.0)
    for features, reward in zip(
        log.features[-30:], log.rewards[-30:] - 7.0, strict=True
    ):
        by_hand.update(features, reward)
    assert some.rounds == 30
    np.testing.assert_array_equal(some.coefficients, by_hand.coefficients)
    with pytest.raises(ib.InputError, match="only the moments of all of them"):
        ib.LinUCB.from_past(ib.Past(moments=log.moments(4)), warm=30)
    with pytest.raises(
        ib.InputError, match="a memory that forgets needs the logged rounds themselves"
    ):
        ib.LinUCB.from_past(
            ib.Past(moments=log.moments(4)), warm=True, memory=ib.Restart(9)
        )


FORGETTING = [(ib.SWLinUCB, "window", 0.25), (ib.RestartLinUCB, "every", 0.5)]


@pytest.mark.parametrize(("kind", "option", "share"), FORGETTING)
def test_what_forgets_takes_the_callers_rounds_then_those_of_the_past_then_a_share_of_the_horizon(
    kind, option, share
):
    def length(past, **options):
        return kind.from_past(past, **options).settings()["memory"][option]

    moments = feedback().moments(4)
    remembering = ib.Past(moments=moments, horizon=80, suggested_window=30)
    assert length(remembering, **{option: 5}) == 5
    assert length(remembering) == 30
    assert length(ib.Past(moments=moments, horizon=80)) == share * 80
    too_long = ib.Past(logs=feedback(), windows=4, horizon=80, suggested_window=80)
    assert length(too_long) == share * 80
    assert length(too_long, warm=True) == 80  # which forgets the logged rounds
    assert length(ib.Past(moments=moments, suggested_window=30)) == 30
    assert length(ib.Past(moments=moments, horizon=1)) == 1
    with pytest.raises(ib.InputError, match=f"{option} is missing"):
        kind.from_past(ib.Past(moments=moments))
    with pytest.raises(ib.InputError, match=f"{option} must be"):
        kind.from_past(remembering, **{option: 0})


@pytest.mark.parametrize(("kind", "option", "share"), FORGETTING)
def test_by_its_name_alone_what_forgets_forgets(kind, option, share):
    """It differs from a memory of everything, which it did not before."""
    past = ib.Past(moments=feedback().moments(4), horizon=80)
    rng = np.random.default_rng(0)
    by_name, everything = (
        kind.from_past(past),
        kind.from_past(past, **{option: "horizon"}),
    )
    for _ in range(60):
        row, reward = rng.normal(size=2), float(rng.normal())
        by_name.update(row, reward)
        everything.update(row, reward)
    assert np.abs(by_name.coefficients - everything.coefficients).max() > 1e-3


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("sw-linucb", "window"),
        ("restart-linucb", "every"),
        ("isd-linucb", "window"),
        ("randomised-sw-linucb", "window"),
    ],
)
def test_a_memory_as_long_as_the_run_warns_unless_it_is_meant(name, option):
    past = ib.Past(moments=feedback().moments(4), horizon=70)
    for length in (70, 700):
        with pytest.warns(
            ForgetsNothingWarning,
            match=f"{option} is {length} rounds and only 70 will be played",
        ):
            PolicySpec(name, {option: length}).build(past)
    with warnings.catch_warnings(action="error"):
        PolicySpec(name, {option: 69}).build(past)
        PolicySpec(name, {option: "horizon"}).build(past)
        endless = ib.Past(moments=past.moments, suggested_window=5)
        PolicySpec(name, {option: 700}).build(endless)


def test_a_memory_that_is_handed_over_warns_alike():
    past = ib.Past(moments=feedback().moments(4), horizon=70)
    for memory in (ib.SlidingWindow(70), ib.Restart(70)):
        with pytest.warns(
            ForgetsNothingWarning, match="70 rounds and only 70 will be played"
        ):
            ib.LinUCB.from_past(past, memory=memory)
    with warnings.catch_warnings(action="error"):
        for memory in (
            ib.SlidingWindow(69),
            ib.Restart(69),
            ib.Discount(0.99),
            ib.Forever(),
        ):
            ib.LinUCB.from_past(past, memory=memory)


def test_what_discounts_remembers_as_many_rounds_as_the_past_says():
    moments = feedback().moments(4)
    assert (
        ib.DLinUCB.from_past(
            ib.Past(moments=moments, suggested_window=50), discount=0.5
        ).memory.discount
        == 0.5
    )
    assert (
        ib.DLinUCB.from_past(
            ib.Past(moments=moments, suggested_window=50)
        ).memory.discount
        == 1.0 - 1.0 / 50
    )
    assert (
        ib.DLinUCB.from_past(
            ib.Past(moments=moments, suggested_window=1)
        ).memory.discount
        == 0.5
    )
    assert ib.DLinUCB.from_past(ib.Past(moments=moments)).memory.discount == 0.999


def test_learning_the_moments_is_learning_every_row():
    log = feedback()
    ridge, baseline = 40.0, 5.0  # both large enough to show in the coefficients
    warm = ib.LinUCB.from_past(
        ib.Past(moments=log.moments(4), baseline=baseline), warm=True, ridge=ridge
    )
    gram = log.features.T @ log.features + ridge * np.eye(2)
    expected = np.linalg.solve(gram, log.features.T @ (log.rewards - baseline))
    assert warm.rounds == len(log.rewards)
    np.testing.assert_allclose(warm.coefficients, expected, rtol=1e-10)
