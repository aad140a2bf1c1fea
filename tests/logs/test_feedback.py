"""Feedback: ragged rounds mean what their arrays say, parts are parts, moments do not depend on how
rounds are kept.
"""

import numpy as np
import pytest

import invariant_bandits as ib
from invariant_bandits.logs.feedback import Feedback
from worlds import assert_same_moments

ROUNDS = 60


def ragged(seed=0, **more):
    """Rounds of 1 to 4 actions with 2 features, their actions and rewards."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 5, size=ROUNDS)
    offered = rng.standard_normal((counts.sum(), 2))
    actions = rng.integers(0, counts)
    return Feedback.from_arrays(
        offered, actions, rng.standard_normal(ROUNDS), counts=counts, **more
    )


def test_the_features_of_the_logged_action_are_found_in_its_own_round():
    feedback = ragged()
    rows = np.split(feedback.offered, feedback.starts[1:-1])
    for t, round_ in enumerate(rows):
        np.testing.assert_array_equal(feedback.features[t], round_[feedback.actions[t]])


def test_sums_per_round_are_those_of_a_loop():
    feedback = ragged()
    by_hand = [
        part.sum(axis=0) for part in np.split(feedback.offered, feedback.starts[1:-1])
    ]
    np.testing.assert_allclose(
        feedback.sums_per_round(feedback.offered), by_hand, rtol=1e-14
    )


def test_moments_of_ragged_rounds_are_those_of_the_rounds_one_by_one():
    feedback = ragged()
    by_hand = ib.WindowedMoments.empty(2, 4, offered=True)
    for t, round_ in enumerate(np.split(feedback.offered, feedback.starts[1:-1])):
        row = round_[feedback.actions[t]]
        by_hand.update(
            row[None],
            [feedback.rewards[t]],
            window=t * 4 // ROUNDS,
            offered=round_[None],
        )
    assert_same_moments(feedback.moments(4), by_hand)


def test_moments_of_even_rounds_are_those_of_the_arrays():
    rng = np.random.default_rng(3)
    offered, actions = rng.standard_normal((40, 3, 2)), rng.integers(3, size=40)
    rewards, times = rng.standard_normal(40), np.arange(40)
    feedback = Feedback.from_arrays(offered, actions, rewards, times=times)
    chosen, edges = offered[np.arange(40), actions], [0, 10, 35, 40]
    whole = ib.WindowedMoments.from_arrays(chosen, rewards, windows=5, offered=offered)
    assert feedback.moments(5) == whole
    timed = ib.WindowedMoments.from_arrays(
        chosen, rewards, times=times, edges=edges, offered=offered
    )
    assert feedback.moments(edges=edges) == timed


def test_a_split_keeps_every_round_once_and_in_order():
    times = np.datetime64("2026-01-01") + np.arange(ROUNDS) // 2
    feedback = ragged(times=times, propensities=np.full(ROUNDS, 0.5))
    by_time = feedback.split(time=np.datetime64("2026-01-11"))
    assert [part.rounds for part in by_time] == [20, 40]
    for earlier, later in (feedback.split(1 / 3), by_time):
        assert earlier.times[-1] < later.times[0]
        for name in (
            "offered",
            "counts",
            "actions",
            "rewards",
            "times",
            "propensities",
        ):
            both = np.concatenate([getattr(earlier, name), getattr(later, name)])
            np.testing.assert_array_equal(both, getattr(feedback, name))


def test_full_information_is_logged_uniformly_at_random():
    """Each position is chosen in 1/3 of 30,000 rounds: off by 4 standard errors with probability 2e-4."""
    rng = np.random.default_rng(1)
    rewards = rng.standard_normal((30_000, 3))
    feedback = Feedback.from_full_information(np.ones((30_000, 3, 1)), rewards, seed=5)
    shares = np.bincount(feedback.actions) / 30_000
    np.testing.assert_allclose(shares, 1 / 3, atol=4 * np.sqrt(2 / 9 / 30_000))
    np.testing.assert_array_equal(
        feedback.rewards, rewards[np.arange(30_000), feedback.actions]
    )
    np.testing.assert_allclose(feedback.propensities, 1 / 3)


def test_a_baseline_is_taken_off_all_rewards_and_nothing_else():
    feedback = Feedback.from_full_information(
        np.ones((5, 2, 1)), np.arange(10.0), seed=0
    )
    lower = feedback.shifted(3.0)
    np.testing.assert_array_equal(lower.rewards, feedback.rewards - 3.0)
    np.testing.assert_array_equal(lower.offered_rewards, np.arange(10.0) - 3.0)


GOOD = {
    "offered": np.ones((5, 2)),
    "actions": [1, 0],
    "rewards": [0.0, 1.0],
    "counts": [2, 3],
}
BAD = {
    "counts that do not add up": (
        "counts must add up to the 5 rows of offered, got 4",
        {"counts": [2, 2]},
    ),
    "an empty round": ("counts must be at least 1, got 0", {"counts": [5, 0]}),
    "an action that is not offered": (
        "actions must index the 2 of their round, got 2 at 0",
        {"actions": [2, 0]},
    ),
    "a fractional action": ("actions must be whole numbers", {"actions": [0.5, 1.0]}),
    "too few rewards": (
        r"rewards must have shape \(2,\), got \(1,\)",
        {"rewards": [1.0]},
    ),
    "a missing reward": ("rewards must be finite", {"rewards": [1.0, np.nan]}),
    "times that go back": (
        "times must not decrease, got 2 before 1",
        {"times": [2, 1]},
    ),
    "times in words": ("times must be numbers or datetimes", {"times": ["a", "b"]}),
    "a propensity of zero": (
        "above 0 and at most 1, got 0.0 in round 1",
        {"propensities": [0.5, 0.0]},
    ),
    "a propensity above one": (
        "above 0 and at most 1, got 1.5 in round 0",
        {"propensities": [1.5, 0.5]},
    ),
    "too few propensities": ("propensities must have shape", {"propensities": [0.5]}),
    "too many rewards of all actions": (
        "offered_rewards must have shape",
        {"offered_rewards": np.ones(6)},
    ),
}


@pytest.mark.parametrize(("message", "changes"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_named(message, changes):
    assert Feedback.from_arrays(**GOOD).rounds == 2
    with pytest.raises(ib.InputError, match=message):
        Feedback.from_arrays(**GOOD | changes)


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        ("give either fraction", {}),
        ("this feedback has no times", {"time": 3}),
        ("both parts must have rounds, got 0 earlier", {"fraction": 0.001}),
    ],
)
def test_a_split_that_is_none_is_refused(message, arguments):
    with pytest.raises(ib.InputError, match=message):
        ragged().split(**arguments)
