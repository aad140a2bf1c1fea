"""Moments of offered actions whose number differs from round to round, and of rescaled features."""

from copy import deepcopy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from invariant_bandits import InputError, WindowedMoments, storage
from worlds import assert_same_moments, draw_log

P = 3


def ragged_log(seed, rounds=60):
    """Rounds with one to four offered actions: features, rewards, offered rows, how many each round has."""
    rng = np.random.default_rng(seed)
    features, rewards, offered = draw_log(seed, rounds)
    counts = rng.integers(1, 5, size=rounds)
    rows = np.concatenate([offered[t, :count] for t, count in enumerate(counts)])
    return features, rewards, rows, counts


def test_equal_counts_give_the_moments_of_the_rectangle():
    features, rewards, offered = draw_log(0, 80)
    place = np.random.default_rng(1).integers(3, size=80)
    rectangle = WindowedMoments.empty(P, 3, offered=True).update(
        features, rewards, window=place, offered=offered
    )
    flat = WindowedMoments.empty(P, 3, offered=True).update(
        features,
        rewards,
        window=place,
        offered=offered.reshape(-1, P),
        offered_counts=np.full(80, 4),
    )
    assert_same_moments(flat, rectangle, rtol=1e-13)


@given(st.integers(0, 1000))
def test_ragged_rounds_are_the_sum_of_their_rectangular_groups(seed):
    features, rewards, rows, counts = ragged_log(seed)
    place = np.random.default_rng(seed).integers(3, size=len(counts))
    whole = WindowedMoments.empty(P, 3, offered=True).update(
        features, rewards, window=place, offered=rows, offered_counts=counts
    )
    begin = np.cumsum(counts) - counts
    parts = WindowedMoments.empty(P, 3, offered=True)
    for size in np.unique(counts):
        group = np.flatnonzero(counts == size)
        offered = rows[begin[group][:, None] + np.arange(size)]
        parts.update(
            features[group], rewards[group], window=place[group], offered=offered
        )
    assert_same_moments(whole, parts)


def test_ragged_batches_stream():
    features, rewards, rows, counts = ragged_log(3, 200)
    end = np.cumsum(counts)

    def batches():
        for start in range(0, 200, 30):
            part = slice(start, min(start + 30, 200))
            first = end[start] - counts[start]
            yield {
                "features": features[part],
                "rewards": rewards[part],
                "offered": rows[first : end[part.stop - 1]],
                "offered_counts": counts[part],
            }

    streamed = WindowedMoments.empty(P, 1, offered=True)
    for batch in batches():
        streamed.update(**batch, window=0)
    whole = WindowedMoments.empty(P, 1, offered=True).update(
        features, rewards, window=0, offered=rows, offered_counts=counts
    )
    assert_same_moments(streamed, whole)


BAD_COUNTS = {
    "too few": (
        r"offered_counts must be whole numbers of shape \(60,\)",
        lambda counts: counts[:-1],
    ),
    "fractional": ("offered_counts must be whole numbers", lambda counts: counts + 0.5),
    "an empty round": (
        "offered_counts must be at least 1, got 0",
        lambda counts: counts * (np.arange(60) > 0),
    ),
    "another total": ("offered_counts must add up to", lambda counts: counts + 1),
}


@pytest.mark.parametrize(
    ("message", "change"), BAD_COUNTS.values(), ids=BAD_COUNTS.keys()
)
def test_counts_that_do_not_fit_are_named_and_change_nothing(message, change):
    features, rewards, rows, counts = ragged_log(4)
    moments = WindowedMoments.empty(P, 1, offered=True)
    before = deepcopy(moments)
    with pytest.raises(InputError, match=message):
        moments.update(
            features, rewards, window=0, offered=rows, offered_counts=change(counts)
        )
    assert moments == before


def test_counts_without_offered_actions_are_refused():
    features, rewards, _, counts = ragged_log(5)
    with pytest.raises(InputError, match="offered_counts were given without offered"):
        WindowedMoments.empty(P, 1).update(
            features, rewards, window=0, offered_counts=counts
        )


def test_rescaled_moments_are_those_of_the_rescaled_features():
    features, rewards, offered = draw_log(6, 200)
    kept, shift, scale = np.array([2, 0]), np.array([-3.0, 0.5]), np.array([0.1, 4.0])
    moments = WindowedMoments.from_arrays(
        features, rewards, windows=2, offered=offered
    ).rescaled(kept, shift, scale)
    direct = WindowedMoments.from_arrays(
        (features[:, kept] - shift) / scale,
        rewards,
        windows=2,
        offered=(offered[..., kept] - shift) / scale,
    )
    assert_same_moments(moments, direct)


def test_bytes_carry_the_moments_to_the_last_bit():
    features, rewards, offered = draw_log(8, 40)
    moments = WindowedMoments.from_arrays(
        features, rewards, offered=offered, times=np.arange(40), edges=[0, 20, 40]
    )
    assert WindowedMoments.from_bytes(moments.to_bytes()) == moments


def test_the_names_inside_a_file_are_those_of_the_fields():
    features, rewards, offered = draw_log(9, 40)
    moments = WindowedMoments.from_arrays(
        features, rewards, offered=offered, times=np.arange(40), edges=[0, 20, 40]
    )
    arrays, about = storage.decode(moments.to_bytes(), "windowed-moments", "content")
    fields = ("count", "mean", "scatter", "cubes", "quartics", "between")
    assert set(arrays) == {"edges"} | {
        f"{part}.{field}" for part in ("chosen", "offered") for field in fields
    }
    assert about == {"chosen": {}, "offered": {}}
    np.testing.assert_array_equal(arrays["chosen.mean"][:, -1], moments.reward_mean)
