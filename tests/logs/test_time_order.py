"""Logs whose rows are in no order of time, or whose rounds are split, are read as if they were in order."""

import gc

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

import invariant_bandits as ib
from invariant_bandits import InputError, WindowedMoments
from invariant_bandits.logs import external_sort
from invariant_bandits.logs.sources import Task
from invariant_bandits.logs.survey import MOST_TIMES, TimeProbe
from labelled_logs import labelled_log
from log_tables import lists_of_offered, planted_log, rows_per_action, wide
from reading import read_feedback, read_moments, read_rounds
from worlds import assert_same_moments

LOG = planted_log(seed=0, rounds=400)


def shuffled(table, seed=1):
    return table.take(np.random.default_rng(seed).permutation(table.num_rows))


@pytest.mark.parametrize("as_text", [False, True])
def test_windows_are_bounded_by_times_in_whatever_order_the_rows_are(as_text, tmp_path):
    source, table = tmp_path / "log.csv", shuffled(wide(LOG))
    csv.write_csv(table, source)
    read = read_moments(source if as_text else table, windows=4)
    assert_same_moments(read.moments, read_moments(wide(LOG), windows=4).moments)
    place = np.arange(400) * 4 // 400
    by_place = WindowedMoments.empty(3, 4).update(
        LOG.features, LOG.rewards, window=place
    )
    np.testing.assert_allclose(read.moments.gram, by_place.gram, rtol=1e-9)
    assert read.edges[0] == LOG.times[0]
    assert read.edges[-1] == LOG.times[-1]
    assert read.quality.problems["out of order in time"].count > 100


def test_a_drift_is_found_in_a_warehouse_export_as_in_the_log_itself():
    """Rows in the order of anything but time once made every direction look stable."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(4000, 3))
    slope = np.repeat([2.0, -1.0, 0.5, -2.0, 1.0, 3.0, -3.0, 0.0], 500)
    reward = x[:, 0] + slope * x[:, 2] + rng.normal(size=4000)
    times = np.datetime64("2024-01-01", "us") + np.arange(4000) * np.timedelta64(
        3600, "s"
    )
    table = pa.table(
        {"when": times, "reward": reward, **{f"x{j}": x[:, j] for j in range(3)}}
    )
    fits = [
        ib.InvariantSubspaceDecomposition().fit(read_moments(log).moments)
        for log in (table, shuffled(table))
    ]
    assert [fit.split_.residual.shape[1] for fit in fits] == [1, 1]
    assert fits[0].split_.distance(fits[1].split_) < 1e-6


def test_times_that_hardly_differ_leave_windows_to_the_places_in_the_log():
    days = np.repeat(np.array(["2024-01-01", "2024-01-02"], dtype="datetime64[D]"), 200)
    table = wide(LOG).set_column(0, "time", pa.array(days))
    assert read_moments(table, windows=4).moments.counts.tolist() == [100.0] * 4
    with pytest.raises(InputError, match="too few times differ for 4 windows"):
        read_moments(shuffled(table), windows=4)
    assert read_moments(shuffled(table), windows=1).moments.rounds == 400


def test_equal_shares_of_very_many_times_come_from_a_sample():
    """The share of a window in a draw of 131,072 or more deviates by 0.4 % with a probability below 1e-3."""
    probe = TimeProbe("t", dates=False)
    times = np.random.default_rng(3).permutation(3 * MOST_TIMES)
    for row in range(0, len(times), 65_536):
        probe.add(
            Task("f", 0, 0, 0),
            row,
            pa.RecordBatch.from_arrays([pa.array(times[row : row + 65_536])], ["t"]),
        )
    seen = probe.results()["times"]
    assert MOST_TIMES / 3 < len(seen.sample) <= MOST_TIMES
    assert not seen.in_order
    shares = np.diff(seen.equal_shares(8)) / len(times)
    np.testing.assert_allclose(shares, 1 / 8, atol=0.004)


def test_statistics_of_labelled_arms_do_not_depend_on_the_order_of_rows():
    table = labelled_log(seed=5, rounds=1000).table()
    first, second = (read_moments(log, windows=5) for log in (table, shuffled(table)))
    assert_same_moments(first.moments, second.moments)
    assert first.arms == second.arms


# -- rearranging --


@pytest.fixture
def few_rows_at_once(monkeypatch):
    monkeypatch.setattr(external_sort, "ROWS_AT_ONCE", 97)


def rounds_of(log):
    """(features of the chosen, rewards, offered, counts, actions, times) of all rounds."""
    batches = list(read_rounds(log))
    names = ("features", "rewards", "offered", "offered_counts", "action", "times")
    return [
        np.concatenate([getattr(batch, name) for batch in batches]) for name in names
    ]


@pytest.mark.parametrize("form", [rows_per_action, lists_of_offered])
@pytest.mark.parametrize("kind", ["table", "parquet"])
def test_a_log_is_sorted_by_time_in_parts(form, kind, few_rows_at_once, tmp_path):
    table = form(LOG)
    rounds = (
        np.repeat(np.arange(400), LOG.counts)
        if form is rows_per_action
        else np.arange(400)
    )
    place = np.random.default_rng(4).permutation(400)[rounds]
    source = mixed = table.take(np.argsort(place, kind="stable"))
    if kind == "parquet":
        source = tmp_path / "log.parquet"
        pq.write_table(mixed, source, row_group_size=61)
    log = ib.open_log(source)
    ordered = external_sort.in_time_order(log)
    assert ordered is not log
    assert len(ordered.source.tasks) > 4
    times = rounds_of(ordered)[5]
    assert (times[1:] >= times[:-1]).all()
    distinct = np.unique(LOG.times, return_counts=True)[1].max() == 1
    assert distinct  # so that the order is the only one
    for found, expected in zip(
        rounds_of(ordered), rounds_of(ib.open_log(table)), strict=True
    ):
        np.testing.assert_array_equal(found, expected)
    folder = ordered.source.folder
    assert folder.exists()
    del ordered
    gc.collect()
    assert not folder.exists()


def test_a_log_in_order_is_left_alone():
    for table in (wide(LOG), rows_per_action(LOG), wide(LOG).drop(["time"])):
        log = ib.open_log(table)
        assert external_sort.in_time_order(log) is log


def test_feedback_of_an_unsorted_log_is_that_of_the_sorted_one(few_rows_at_once):
    table = labelled_log(seed=6, rounds=600).table()
    first, second = (read_feedback(log) for log in (table, shuffled(table)))
    np.testing.assert_array_equal(first.feedback.rewards, second.feedback.rewards)
    np.testing.assert_allclose(
        first.feedback.offered, second.feedback.offered, atol=1e-12
    )
    assert not any("sorted" in note for note in first.notes)
    assert (
        "the rounds were not in the order of time and have been sorted by it"
        in second.notes
    )


@pytest.mark.parametrize("as_text", [False, True])
def test_split_rounds_are_put_together(as_text, few_rows_at_once, tmp_path):
    """Rows sorted by anything but the round once lost 96 % of the rounds without a word."""
    table = rows_per_action(LOG)
    split = table.take(
        np.argsort(np.random.default_rng(7).random(table.num_rows), kind="stable")
    )
    source = tmp_path / "log.csv"
    csv.write_csv(split, source)
    log = ib.open_log(source if as_text else split)
    read = read_moments(log, windows=4)
    assert read.quality.rounds == 400
    assert read.quality.left_out == 0
    assert "put together by 'round_id'" in log.notes[0]
    np.testing.assert_allclose(read.moments.offered.count.sum(), len(LOG.offered))
    expected = read_moments(table, edges=read.edges).moments
    np.testing.assert_allclose(read.moments.gram, expected.gram, rtol=1e-9)
    feedback = read_feedback(log).feedback
    np.testing.assert_allclose(np.sort(feedback.rewards), np.sort(LOG.rewards))
    assert ib.fit_logs(log, windows=4).notes[0] == log.notes[0]


def test_rounds_that_were_logged_twice_are_not_taken_for_split_ones():
    table = rows_per_action(LOG)
    log = ib.open_log(pa.concat_tables([table, table]), {"time": None})
    read = read_moments(log, windows=2)
    assert log.notes == ()
    assert read.quality.problems["duplicated round_id"].count == 400
    assert read.quality.rounds == 400
