"""WindowedMoments: their algebra, memory and digits; bad input and files have their own tests."""

import tracemalloc
from copy import deepcopy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from invariant_bandits import InputError, WindowedMoments
from worlds import assert_same_moments, draw_log

P = 3


@st.composite
def partitioned_logs(draw):
    """A log with a window per row, cut into shards of shuffled rows."""
    seed = draw(st.integers(0, 2**32 - 1))
    rounds = draw(st.integers(4, 40))
    windows = draw(st.integers(1, 4))
    shards = draw(st.integers(1, 6))
    rng = np.random.default_rng(seed)
    log = draw_log(seed, rounds, offered=draw(st.booleans()))
    place = rng.integers(windows, size=rounds)
    owner = rng.permutation(np.arange(rounds) % shards)
    return (
        log,
        windows,
        place,
        [rng.permutation(np.flatnonzero(owner == shard)) for shard in range(shards)],
    )


def moments_of(log, windows, place, rows=slice(None)):
    features, rewards, offered = log
    moments = WindowedMoments.empty(P, windows, offered=offered is not None)
    if len(place[rows]) == 0:
        return moments
    return moments.update(
        features[rows],
        rewards[rows],
        window=place[rows],
        offered=None if offered is None else offered[rows],
    )


@given(partitioned_logs())
def test_merging_shards_in_any_order_gives_the_moments_of_the_whole(case):
    log, windows, place, shards = case
    whole = moments_of(log, windows, place)
    parts = [moments_of(log, windows, place, rows) for rows in shards]
    forwards, backwards = (
        WindowedMoments.empty(P, windows, offered=log[2] is not None),
        parts[-1],
    )
    for part in parts:
        forwards = forwards + part
    for part in parts[-2::-1]:
        backwards = backwards + part
    assert_same_moments(forwards, whole)
    assert_same_moments(backwards, whole)


@given(partitioned_logs())
def test_updating_batch_by_batch_gives_the_moments_of_the_whole(case):
    (features, rewards, offered), windows, place, shards = case
    moments = WindowedMoments.empty(P, windows, offered=offered is not None)
    for rows in shards:
        if len(rows):
            given_offered = None if offered is None else offered[rows]
            assert (
                moments.update(
                    features[rows],
                    rewards[rows],
                    window=place[rows],
                    offered=given_offered,
                )
                is moments
            )
    assert_same_moments(
        moments, moments_of((features, rewards, offered), windows, place)
    )


@given(partitioned_logs())
def test_merging_is_commutative_and_associative_with_nothing_as_neutral_element(case):
    log, windows, place, shards = case
    parts = [moments_of(log, windows, place, rows) for rows in (shards * 3)[:3]]
    a, b, c = parts
    assert_same_moments(a + b, b + a)
    assert_same_moments((a + b) + c, a + (b + c))
    nothing = WindowedMoments.empty(P, windows, offered=log[2] is not None)
    assert a + nothing == a
    assert nothing + a == a


def test_the_moments_are_what_their_names_say():
    features, rewards, offered = draw_log(0, 200)
    moments = WindowedMoments.from_arrays(features, rewards, windows=2, offered=offered)
    assert (moments.dim, moments.windows, moments.rounds) == (P, 2, 200)
    np.testing.assert_array_equal(moments.counts, [100, 100])
    for window, rows in enumerate([slice(0, 100), slice(100, 200)]):
        x, r = features[rows], rewards[rows]
        centred, reward = x - x.mean(axis=0), r - r.mean()
        np.testing.assert_allclose(
            moments.feature_mean[window], x.mean(axis=0), rtol=1e-13
        )
        np.testing.assert_allclose(moments.reward_mean[window], r.mean(), rtol=1e-13)
        np.testing.assert_allclose(
            moments.gram[window], centred.T @ centred, rtol=1e-9, atol=1e-9
        )
        np.testing.assert_allclose(moments.cross[window], centred.T @ reward, rtol=1e-9)
        np.testing.assert_allclose(
            moments.reward_square[window], reward @ reward, rtol=1e-11
        )
        flat = offered[rows].reshape(-1, P)
        np.testing.assert_allclose(
            moments.offered.covariance()[window], np.cov(flat.T, bias=True), rtol=1e-9
        )
    np.testing.assert_allclose(
        moments.second_moment(), features.T @ features, rtol=1e-12
    )


def test_rows_fall_into_windows_by_their_times_and_the_last_edge_is_closed():
    times = np.array([0.0, 0.9, 1.0, 1.5, 2.0, 2.0])
    features = np.arange(6.0)[:, None]
    moments = WindowedMoments.from_arrays(
        features, np.zeros(6), times=times, edges=[0.0, 1.0, 2.0]
    )
    np.testing.assert_array_equal(moments.counts, [2, 4])
    np.testing.assert_array_equal(moments.feature_mean[:, 0], [0.5, 3.5])


def test_datetimes_bound_windows_as_numbers_do():
    days = np.datetime64("2024-01-01") + np.arange(60)
    edges = np.array(["2024-01-01", "2024-02-01", "2024-02-29"], dtype="datetime64[D]")
    features, rewards, _ = draw_log(1, 60)
    by_date = WindowedMoments.from_arrays(features, rewards, times=days, edges=edges)
    by_number = WindowedMoments.from_arrays(
        features, rewards, times=np.arange(60), edges=[0, 31, 59]
    )
    np.testing.assert_array_equal(by_date.counts, [31, 29])
    assert_same_moments(by_date, by_number, rtol=0)
    assert by_date != by_number


def test_later_windows_follow_earlier_ones():
    features, rewards, offered = draw_log(2, 90)
    whole = WindowedMoments.from_arrays(features, rewards, windows=3, offered=offered)
    early = WindowedMoments.from_arrays(
        features[:60], rewards[:60], windows=2, offered=offered[:60]
    )
    late = WindowedMoments.from_arrays(
        features[60:], rewards[60:], windows=1, offered=offered[60:]
    )
    assert early.followed_by(late) == whole
    assert whole.between(0, 2) == early
    assert whole.between(2, 3) == late


def test_edges_continue_where_the_earlier_windows_end():
    features, rewards, _ = draw_log(3, 40)
    times = np.arange(40.0)
    early = WindowedMoments.from_arrays(
        features[:20], rewards[:20], times=times[:20], edges=[0, 10, 20]
    )
    late = WindowedMoments.from_arrays(
        features[20:], rewards[20:], times=times[20:], edges=[20, 40]
    )
    np.testing.assert_array_equal(early.followed_by(late).edges, [0, 10, 20, 40])
    with pytest.raises(InputError, match="later must begin where these windows end"):
        late.followed_by(early)
    with pytest.raises(
        InputError, match="both or neither of the moments must have window edges"
    ):
        early.followed_by(
            WindowedMoments.from_arrays(features[20:], rewards[20:], windows=1)
        )


@given(st.integers(1, 12), st.integers(0, 1000))
def test_coarsening_merges_neighbours_and_loses_no_round(windows, seed):
    features, rewards, offered = draw_log(seed, 120)
    fine = WindowedMoments.from_arrays(features, rewards, windows=12, offered=offered)
    coarse = fine.coarsen(windows)
    assert coarse.windows == windows
    assert coarse.rounds == 120
    if 12 % windows == 0:
        assert_same_moments(
            coarse,
            WindowedMoments.from_arrays(
                features, rewards, windows=windows, offered=offered
            ),
        )
    assert fine.coarsen(12) == fine


def test_coarsening_keeps_the_edges_of_what_it_merged():
    features, rewards, _ = draw_log(4, 40)
    fine = WindowedMoments.from_arrays(
        features, rewards, times=np.arange(40), edges=[0, 10, 20, 30, 40]
    )
    np.testing.assert_array_equal(fine.coarsen(2).edges, [0, 20, 40])


def test_as_many_rounds_as_windows_are_enough():
    features, rewards, _ = draw_log(15, 5)
    moments = WindowedMoments.from_arrays(features, rewards, windows=5)
    np.testing.assert_array_equal(moments.counts, np.ones(5))


def test_there_are_eight_windows_unless_another_number_is_given():
    features, rewards, _ = draw_log(16, 80)
    assert WindowedMoments.from_arrays(features, rewards).windows == 8


def test_timed_batches_need_no_order():
    features, rewards, offered = draw_log(6, 100)
    times = np.arange(100.0)
    cut = [slice(70, 100), slice(0, 30), slice(30, 70)]
    batches = (
        {
            "features": features[s],
            "rewards": rewards[s],
            "offered": offered[s],
            "times": times[s],
        }
        for s in cut
    )
    moments = WindowedMoments.empty(features.shape[1], edges=[0, 50, 100], offered=True)
    for batch in batches:
        moments.update(**batch)
    whole = WindowedMoments.from_arrays(
        features, rewards, offered=offered, times=times, edges=[0, 50, 100]
    )
    assert_same_moments(moments, whole)


def test_moments_of_some_windows_are_added_where_they_belong():
    features, rewards, offered = draw_log(13, 80)
    place = np.repeat(np.arange(4), 20)
    whole = moments_of((features, rewards, offered), 4, place)
    early, late = np.arange(80) < 50, np.arange(80) >= 50
    gathered = moments_of((features, rewards, offered), 4, place, early)
    gathered.merge_windows(
        2, moments_of((features, rewards, offered), 2, place - 2, late)
    )
    assert_same_moments(gathered, whole)


def peak_memory(batches):
    def stream():
        rng = np.random.default_rng(7)
        for _ in range(batches):
            yield rng.standard_normal((100, 20)), rng.standard_normal(100)

    def add_all():
        moments = WindowedMoments.empty(20, 4)
        for place, (features, rewards) in enumerate(stream()):
            moments.update(features, rewards, window=place % 4)

    add_all()
    tracemalloc.start()
    try:
        add_all()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_sixteen_times_as_many_batches_need_no_more_memory():
    few, many = peak_memory(20), peak_memory(320)
    assert many <= 1.1 * few


def test_an_offset_of_a_hundred_million_costs_no_digits():
    rng = np.random.default_rng(8)
    # Multiples of 2⁻¹⁶ up to 8 stay exact beside 1e8, so the shifted rows are exactly the shifted rows.
    features = np.round(rng.standard_normal((500, P)) * 2**16) / 2**16
    rewards = np.round(rng.standard_normal(500) * 2**16) / 2**16
    near = WindowedMoments.from_arrays(features, rewards, windows=2)
    far = WindowedMoments.from_arrays(features + 1e8, rewards - 1e8, windows=2)
    assert_same_moments(far.transformed(np.eye(P)), far, rtol=0)
    np.testing.assert_allclose(
        far.gram, near.gram, rtol=1e-12, atol=1e-12 * near.gram.max()
    )
    np.testing.assert_allclose(
        far.cross, near.cross, rtol=1e-12, atol=1e-12 * near.gram.max()
    )
    np.testing.assert_allclose(far.reward_square, near.reward_square, rtol=1e-12)
    # Merged row by row, the mean is rounded 500 times: no worse than changing each number in its last place.
    rowwise = WindowedMoments.empty(P, 1)
    for row in range(500):
        rowwise.update(
            features[row : row + 1] + 1e8, rewards[row : row + 1] - 1e8, window=0
        )
    np.testing.assert_allclose(
        rowwise.gram, near.coarsen(1).gram, rtol=0, atol=500 * np.spacing(1e8)
    )


def test_the_rewards_a_component_leaves_unexplained_have_the_moments_of_the_difference():
    features, rewards, offered = draw_log(9, 100)
    component = np.array([0.5, -0.1, 2.0])
    moments = WindowedMoments.from_arrays(features, rewards, windows=2, offered=offered)
    rest = moments.residual_after(component)
    direct = WindowedMoments.from_arrays(
        features, rewards - features @ component, windows=2, offered=offered
    )
    for name in (
        "counts",
        "feature_mean",
        "reward_mean",
        "gram",
        "cross",
        "reward_square",
    ):
        np.testing.assert_allclose(
            getattr(rest, name), getattr(direct, name), rtol=1e-9, atol=1e-9
        )


DERIVED = {
    "sum with nothing": lambda moments: (
        moments + WindowedMoments.empty(P, moments.windows, offered=True)
    ),
    "between": lambda moments: moments.between(0, 2),
    "coarsened": lambda moments: moments.coarsen(moments.windows),
    "followed": lambda moments: moments.followed_by(moments),
    "transformed": lambda moments: moments.transformed(np.eye(P)),
    "residual": lambda moments: moments.residual_after(np.zeros(P)),
}


@pytest.mark.parametrize("derive", DERIVED.values(), ids=DERIVED.keys())
def test_updating_derived_moments_leaves_the_original_alone(derive):
    features, rewards, offered = draw_log(10, 60)
    moments = WindowedMoments.from_arrays(features, rewards, windows=3, offered=offered)
    before = deepcopy(moments)
    derive(moments).update(features[:5], rewards[:5], window=0, offered=offered[:5])
    assert moments == before


def test_later_changes_to_the_callers_arrays_change_nothing():
    features, rewards, _ = draw_log(11, 20)
    edges = np.array([0.0, 10.0, 20.0])
    moments = WindowedMoments.from_arrays(
        features, rewards, times=np.arange(20.0), edges=edges
    )
    before = deepcopy(moments)
    edges[1], features[:], rewards[:] = 3.0, 0.0, 0.0
    assert moments == before


def test_moments_are_equal_to_the_last_bit_or_not_at_all():
    features, rewards, _ = draw_log(12, 20)
    moments = WindowedMoments.from_arrays(features, rewards, windows=2)
    other = deepcopy(moments)
    assert moments == other
    other.chosen.mean[0, 0] = np.nextafter(other.chosen.mean[0, 0], np.inf)
    assert moments != other
    assert moments != "moments"
    with pytest.raises(TypeError):
        hash(moments)


def test_shards_in_a_list_are_summed():
    rng = np.random.default_rng(0)
    features, rewards, window = (
        rng.normal(size=(90, 3)),
        rng.normal(size=90),
        np.arange(90) // 30,
    )
    shards = [
        WindowedMoments.empty(3, 3).update(
            features[k::4], rewards[k::4], window=window[k::4]
        )
        for k in range(4)
    ]
    whole = WindowedMoments.empty(3, 3).update(features, rewards, window=window)
    assert sum(shards).rounds == 90
    np.testing.assert_allclose(sum(shards).gram, whole.gram, rtol=1e-12)
    np.testing.assert_allclose(sum(shards).cross, whole.cross, rtol=1e-12)
    with pytest.raises(TypeError):
        1 + shards[0]
