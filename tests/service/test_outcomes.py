"""How decisions fared: estimates from logged propensities hold the truth that was planted."""

from __future__ import annotations

import numpy as np

from invariant_bandits.service.events import Decided
from invariant_bandits.service.learners import logged_reward
from invariant_bandits.service.timeline import MOST_SEGMENTS, RewardSums, Timeline

WORTH = np.array([1.0, 2.0, 4.0])
FLOOR = 0.3


def decided(place: int, propensities: list[float]) -> Decided:
    return Decided(0.0, "x", "m", "1", 0, None, [], [1, 2, 3], place, propensities)


def played(rounds: int, rng: np.random.Generator) -> Timeline:
    """The best of three actions is played but for a floor of 0.3; the reward is its worth with noise of 1."""
    propensities = [FLOOR / 3, FLOOR / 3, 1.0 - 2 * FLOOR / 3]
    timeline = Timeline()
    for number, place in enumerate(rng.choice(3, rounds, p=propensities)):
        reward = float(WORTH[place] + rng.normal())
        timeline.add(decided(int(place), propensities), reward, float(number), None)
    return timeline


def all_of(timeline: Timeline) -> RewardSums:
    return timeline.whole + timeline.last


def test_intervals_hold_what_was_earned_and_what_uniform_play_would_have_earned() -> None:
    """At 95 % each; of 200 intervals fewer than 180 hold the truth once in 400 if they do what they
    promise.
    """
    rng, hits = np.random.default_rng(0), np.zeros(2)
    mean = 0.7 * 4.0 + FLOOR * WORTH.mean()
    for _ in range(200):
        whole = all_of(played(200, rng))
        for place, (estimate, truth) in enumerate(((whole.mean(), mean), (whole.uniform(), WORTH.mean()))):
            assert estimate is not None
            hits[place] += abs(estimate["value"] - truth) < 1.96 * estimate["error"]
    assert (hits >= 180).all()
    assert (hits < 200).any()  # intervals that always hold would be too wide


def test_nothing_is_shown_of_actions_that_had_no_chance_nor_by_a_handful_of_decisions() -> None:
    certain = RewardSums()
    for _ in range(100):
        certain.add(decided(0, [1.0, 0.0, 0.0]), 1.0)
    assert certain.uniform() is None
    assert certain.mean() is not None
    few = all_of(played(10, np.random.default_rng(0)))
    assert few.uniform() is None
    assert RewardSums().mean() is None


def test_segments_stay_few_and_cover_everything() -> None:
    timeline = played(5_003, np.random.default_rng(1))
    sums = np.array(timeline.show()["segments"])
    assert len(sums) <= MOST_SEGMENTS + 1
    assert len(set(sums[:-1, 1])) == 1
    np.testing.assert_allclose(sums[:, 1:].sum(axis=0), all_of(timeline).values[:3])
    np.testing.assert_array_equal(sums[:, 0], np.cumsum(sums[:, 1]) - 1)  # when the last of each was settled


def test_the_interval_of_the_logs_policy_comes_from_its_windows() -> None:
    """Windows differ by more than their noise; the interval holds the mean over windows of both worlds in
    95 %.
    """
    rng, hits = np.random.default_rng(2), 0
    for _ in range(400):
        told = logged_reward(np.full(8, 500.0), 1.0 + rng.normal(scale=0.2, size=8))
        low, high = told["logged_reward_interval"]
        hits += low < 1.0 < high
    assert 360 <= hits <= 396  # 380 expected; outside once in 10^4
    assert logged_reward(np.array([10.0]), np.array([0.5])) == {
        "logged_reward": 0.5,
        "logged_reward_interval": None,
    }
