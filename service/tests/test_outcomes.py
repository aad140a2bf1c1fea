"""How decisions fared: rewards in segments of bounded number, and what the log's policy earned."""

from __future__ import annotations

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits_service.events import Decided
from invariant_bandits_service.learners import logged_reward
from invariant_bandits_service.timeline import MOST_SEGMENTS, Timeline


def decided(place: int, propensities: list[float]) -> Decided:
    return Decided(0.0, "x", "m", "1", 0, None, [], [1, 2, 3], place, propensities)


def played(rounds: int, rng: np.random.Generator) -> tuple[Timeline, Array]:
    """A timeline of one action with noisy rewards, and these."""
    timeline, rewards = Timeline(), 1.0 + rng.normal(size=rounds)
    for number, reward in enumerate(rewards):
        timeline.add(decided(0, [1.0, 0.0, 0.0]), float(reward), float(number), None)
    return timeline, rewards


def test_segments_stay_few_and_cover_everything() -> None:
    timeline, rewards = played(5_003, np.random.default_rng(1))
    sums = np.array(timeline.show()["segments"])
    assert len(sums) <= MOST_SEGMENTS + 1
    assert len(set(sums[:-1, 1])) == 1
    np.testing.assert_allclose(
        sums[:, 1:].sum(axis=0), [5_003, rewards.sum(), rewards @ rewards]
    )
    assert timeline.show()["settled"] == 5_003
    np.testing.assert_array_equal(
        sums[:, 0], np.cumsum(sums[:, 1]) - 1
    )  # when the last of each was settled


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
