"""Reading: every form and source of a log gives the moments of its arrays, at any cut into row groups."""

import gc
from pathlib import Path

import duckdb
import numpy as np
import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv, dataset

import invariant_bandits as ib
from invariant_bandits import FileError, InputError, WindowedMoments
from invariant_bandits.features.maps import FeatureOptions
from invariant_bandits.logs.formats import columnar
from invariant_bandits.logs.quality import QualityReport
from invariant_bandits.logs.schema import Schema
from log_tables import lists_of_offered, planted_log, rows_per_action, wide
from reading import read_moments, read_rounds, read_schema
from worlds import assert_same_moments

LOG = planted_log(seed=0, rounds=400)


def expected(log, windows=4, offered=False):
    moments = WindowedMoments.empty(3, windows, offered=offered)
    place = np.arange(len(log.rewards)) * windows // len(log.rewards)
    if not offered:
        return moments.update(log.features, log.rewards, window=place)
    return moments.update(
        log.features,
        log.rewards,
        window=place,
        offered=log.offered,
        offered_counts=log.counts,
    )


def as_parquet(table, folder):
    pq.write_table(table, folder / "log.parquet", row_group_size=37)
    return folder / "log.parquet"


def as_folder(table, folder):
    (folder / "parts").mkdir()
    for index, start in enumerate(range(0, 400, 150)):
        pq.write_table(
            table.slice(start, 150),
            folder / "parts" / f"{index}.parquet",
            row_group_size=60,
        )
    (folder / "parts" / "_SUCCESS").write_text("")
    return folder / "parts"


def as_csv(table, folder):
    csv.write_csv(table, folder / "log.csv")
    return folder / "log.csv"


SOURCES = {
    "Parquet file": as_parquet,
    "folder": as_folder,
    "pattern": lambda table, folder: f"{as_folder(table, folder)}/*.parquet",
    "list of files": lambda table, folder: sorted(
        as_folder(table, folder).glob("*.parquet")
    ),
    "CSV": as_csv,
    "Arrow table": lambda table, folder: table,
    "pandas": lambda table, folder: table.to_pandas(),
    "Polars": lambda table, folder: polars.from_arrow(table),
    "Polars LazyFrame": lambda table, folder: polars.scan_parquet(
        as_parquet(table, folder)
    ),
    "pyarrow dataset": lambda table, folder: dataset.dataset(as_folder(table, folder)),
    "DuckDB relation": lambda table, folder: duckdb.sql(
        f"from '{as_parquet(table, folder)}'"
    ),
    "reader that can be read once": lambda table, folder: table.to_reader(
        max_chunksize=70
    ),
    "object that speaks Arrow": lambda table, folder: SpeaksArrow(table),
    "list of mappings": lambda table, folder: table.to_pylist(),
}


class SpeaksArrow:
    """Knows nothing but the protocol."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES.keys())
def test_every_source_gives_the_moments_of_its_arrays(make, tmp_path):
    read = read_moments(make(wide(LOG), tmp_path), windows=4)
    assert_same_moments(read.moments, expected(LOG))
    assert read.quality.clean
    assert read.quality.rows == 400
    assert read.feature_map.names == ("x0", "x1", "x2")
    assert read.schema.time == "time"


def test_a_stream_is_read_batch_by_batch_and_its_copy_is_deleted():
    """Three batches at most are in memory at any time; what was kept in a file goes with the log."""
    rng, in_memory = np.random.default_rng(0), []
    batch = pa.record_batch(
        {"x": rng.normal(size=50_000), "reward": rng.normal(size=50_000)}
    )

    def batches():
        before = pa.total_allocated_bytes()
        for _ in range(40):
            yield pa.record_batch(
                [pa.array(column.to_numpy() + 1.0) for column in batch],
                names=["x", "reward"],
            )
            in_memory.append(pa.total_allocated_bytes() - before)

    log = ib.open_log(pa.RecordBatchReader.from_batches(batch.schema, batches()))
    assert read_moments(log, windows=4).moments.rounds == 2_000_000
    assert max(in_memory) <= 3 * batch.nbytes
    folder = Path(log.source.folder)
    assert folder.exists()
    del log
    gc.collect()
    assert not folder.exists()


def test_objects_within_rows_are_columns_and_a_key_may_be_missing():
    rows = [
        {
            "user": {"age": 30 + i % 7},
            "reward": i % 2,
            **({"x": 1.0 * i} if i % 3 else {}),
        }
        for i in range(90)
    ]
    schema = read_schema(rows)
    assert schema.features == ("user.age", "x")
    streamed = read_schema(
        pa.table(
            {"user": [row["user"] for row in rows], "reward": [0.0] * 90}
        ).to_reader()
    )
    assert streamed.features == ("user.age",)
    with pytest.raises(InputError, match="the rows cannot be read"):
        read_schema([{"x": 1.0, "reward": 1}, {"x": [2.0], "reward": 1}])


@pytest.mark.parametrize("form", [lists_of_offered, rows_per_action])
@pytest.mark.parametrize(
    "make", [as_parquet, lambda table, folder: table], ids=["Parquet", "table"]
)
def test_logs_with_offered_actions_give_their_ragged_moments(form, make, tmp_path):
    edges = [
        np.datetime64("2024-01-01"),
        np.datetime64("2024-01-03"),
        np.datetime64("2024-02-01"),
    ]
    read = read_moments(make(form(LOG), tmp_path), edges=edges)
    whole = WindowedMoments.empty(
        3, edges=np.array(edges, dtype="datetime64[us]"), offered=True
    ).update(
        LOG.features,
        LOG.rewards,
        times=LOG.times,
        offered=LOG.offered,
        offered_counts=LOG.counts,
    )
    assert_same_moments(read.moments, whole)
    assert read.quality.clean
    assert read.quality.rounds == 400


def test_one_column_of_lists_holds_the_features():
    table = pa.table({"reward": LOG.rewards, "x": list(LOG.features)})
    read = read_moments(table, windows=4)
    assert_same_moments(read.moments, expected(LOG))
    assert read.feature_map.names == ("x[0]", "x[1]", "x[2]")


@pytest.mark.parametrize("size", [1, 2, 7, 50, 5000])
def test_rounds_cut_by_row_groups_are_put_together(size, tmp_path):
    log = planted_log(seed=1, rounds=60)
    pq.write_table(rows_per_action(log), tmp_path / "log.parquet", row_group_size=size)
    rounds = list(read_rounds(tmp_path / "log.parquet"))
    np.testing.assert_array_equal(
        np.concatenate([batch.offered_counts for batch in rounds]), log.counts
    )
    np.testing.assert_array_equal(
        np.concatenate([batch.offered for batch in rounds]), log.offered
    )
    np.testing.assert_array_equal(
        np.concatenate([batch.action for batch in rounds]), log.actions
    )


def test_a_chosen_column_may_hold_the_label_of_the_chosen_action():
    table = rows_per_action(LOG)
    labels = pa.array([f"action {index}" for index in range(len(table))])
    chosen_rows = np.flatnonzero(table["chosen"].to_numpy())
    chosen_labels = pa.array(
        [f"action {row}" for row in np.repeat(chosen_rows, LOG.counts)]
    )
    table = (
        table.drop(["chosen"])
        .append_column("action", labels)
        .append_column("chosen", chosen_labels)
    )
    schema = Schema(
        "reward",
        ("x*",),
        round="round_id",
        action="action",
        chosen="chosen",
        propensity="propensity",
    )
    assert_same_moments(
        read_moments(table, schema, windows=1).moments, expected(LOG, 1, offered=True)
    )


def test_rounds_come_with_everything_the_log_has():
    rounds = list(read_rounds(lists_of_offered(LOG)))
    joined = {name: np.concatenate([getattr(batch, name) for batch in rounds]) for name in vars(rounds[0]) if name in (
        "features", "rewards", "times", "action", "propensity", "offered", "all_rewards")}  # fmt: skip
    np.testing.assert_array_equal(joined["features"], LOG.features)
    np.testing.assert_array_equal(joined["rewards"], LOG.rewards)
    np.testing.assert_array_equal(joined["times"], LOG.times)
    np.testing.assert_array_equal(joined["action"], LOG.actions)
    np.testing.assert_array_equal(joined["propensity"], LOG.propensities)
    np.testing.assert_array_equal(joined["offered"], LOG.offered)
    np.testing.assert_array_equal(joined["all_rewards"], LOG.all_rewards)


def test_full_information_with_one_row_per_action():
    schema = Schema(
        "reward", ("x*",), round="round_id", chosen="chosen", full_information=True
    )
    rounds = list(read_rounds(rows_per_action(LOG, every_reward=True), schema))
    np.testing.assert_array_equal(
        np.concatenate([batch.all_rewards for batch in rounds]), LOG.all_rewards
    )
    np.testing.assert_array_equal(
        np.concatenate([batch.rewards for batch in rounds]), LOG.rewards
    )


def test_full_information_needs_no_chosen_action_except_for_moments():
    table = rows_per_action(LOG, every_reward=True).drop(["chosen"])
    schema = Schema(
        "reward", ("x*",), round="round_id", time="time", full_information=True
    )
    rounds = list(read_rounds(table, schema))
    np.testing.assert_array_equal(
        np.concatenate([batch.all_rewards for batch in rounds]), LOG.all_rewards
    )
    np.testing.assert_array_equal(
        np.concatenate([batch.times for batch in rounds]), LOG.times
    )
    assert all(batch.action is None for batch in rounds)
    with pytest.raises(InputError, match="chosen is missing"):
        read_moments(table, schema)


def test_a_missing_position_is_no_reason_to_leave_a_round_out():
    table = wide(LOG).append_column(
        "position", pa.array([None, *range(399)], pa.int64())
    )
    read = list(read_rounds(table))
    np.testing.assert_array_equal(
        np.concatenate([batch.position for batch in read]), [np.nan, *range(399)]
    )


def test_the_learned_map_serves_the_features_whose_moments_were_read(tmp_path):
    rng = np.random.default_rng(3)
    country = pa.array(
        rng.choice(["DE", "FR", "IT", "rare"], 400, p=[0.4, 0.3, 0.29, 0.01])
    )
    table = wide(LOG).append_column("country", country)
    path = as_parquet(table, tmp_path)
    options = FeatureOptions(
        interactions=("x0:country",), standardise="scale and shift", max_categories=3
    )
    read = read_moments(path, windows=4, features=options)
    served = read.feature_map.design(
        {name: table[name].to_numpy() for name in ("x0", "x1", "x2", "country")}
    )
    place = np.arange(400) * 4 // 400
    direct = WindowedMoments.empty(served.shape[1], 4).update(
        served, LOG.rewards, window=place
    )
    assert_same_moments(read.moments, direct)
    rare = int((country.to_numpy(zero_copy_only=False) == "rare").sum())
    assert read.quality.problems["unknown category of country"].count == rare
    assert read.quality.rounds == 400
    again = read_moments(path, windows=4, features=read.feature_map)
    assert again.moments == read.moments
    rounds = list(read_rounds(path, features=read.feature_map))
    np.testing.assert_array_equal(
        np.concatenate([batch.features for batch in rounds]), served
    )


def test_centring_within_rounds_is_part_of_the_moments():
    options = FeatureOptions(centre=True)
    read = read_moments(rows_per_action(LOG), windows=1, features=options)
    means = (
        np.add.reduceat(LOG.offered, np.cumsum(LOG.counts) - LOG.counts)
        / LOG.counts[:, None]
    )
    offered = LOG.offered - np.repeat(means, LOG.counts, axis=0)
    direct = WindowedMoments.empty(3, 1, offered=True).update(
        LOG.features - means,
        LOG.rewards,
        window=0,
        offered=offered,
        offered_counts=LOG.counts,
    )
    assert_same_moments(read.moments, direct)
    with pytest.raises(InputError, match="centre: the log has no offered actions"):
        read_moments(wide(LOG), features=options)


def test_an_obp_feedback_dictionary_is_a_log():
    rng = np.random.default_rng(4)
    context, kinds = rng.normal(size=(50, 2)), rng.normal(size=(4, 3))
    feedback = {
        "n_rounds": 50,
        "n_actions": 4,
        "context": context,
        "action_context": kinds,
        "action": rng.integers(4, size=50),
        "position": None,
        "reward": rng.normal(size=50),
        "pscore": np.full(50, 0.25),
    }
    (rounds,) = read_rounds(feedback)
    offered = rounds.offered.reshape(50, 4, 9)
    np.testing.assert_array_equal(
        offered[7, 2],
        np.concatenate([kinds[2], np.outer(context[7], kinds[2]).ravel()]),
    )
    np.testing.assert_array_equal(
        rounds.features, offered[np.arange(50), feedback["action"]]
    )
    np.testing.assert_array_equal(rounds.propensity, 0.25)
    assert read_moments(feedback, windows=2).moments.rounds == 50
    (indicators,) = read_rounds(feedback | {"action_context": None})
    np.testing.assert_array_equal(
        indicators.offered.reshape(50, 4, 12)[:, :, :4],
        np.broadcast_to(np.eye(4), (50, 4, 4)),
    )
    with pytest.raises(InputError, match="feedback lacks action, reward"):
        read_moments({"n_rounds": 5, "n_actions": 2, "context": context})


# -- windows --


def test_calendar_windows_begin_at_midnight_and_cover_everything():
    read = read_moments(wide(LOG), every="1d")
    assert read.edges[0] == np.datetime64("2024-01-01")
    assert set(np.diff(read.edges)) == {np.timedelta64(1, "D")}
    days = LOG.times.astype("datetime64[D]").astype(int)
    np.testing.assert_array_equal(read.moments.counts, np.bincount(days - days.min()))


@pytest.mark.parametrize(
    ("every", "edges"),
    [
        ("1mo", ["2024-01-01", "2024-02-01", "2024-03-01"]),
        ("2w", ["2024-01-20", "2024-02-03", "2024-02-17", "2024-03-02"]),
        ("1y", ["2024-01-01", "2025-01-01"]),
    ],
)
def test_months_weeks_and_years(every, edges):
    times = np.array(["2024-01-20", "2024-01-31", "2024-02-29"], dtype="datetime64[us]")
    table = pa.table({"time": times, "reward": [1.0, 2.0, 3.0], "x": [1.0, 5.0, 2.0]})
    read = read_moments(table, every=every)
    np.testing.assert_array_equal(read.edges, np.array(edges, dtype="datetime64[us]"))
    assert read.moments.rounds == 3


def test_times_may_be_numbers_and_windows_too():
    table = pa.table(
        {"time": np.arange(10), "reward": np.arange(10.0), "x": np.arange(10.0) ** 2}
    )
    np.testing.assert_array_equal(
        read_moments(table, every=4).moments.counts, [4, 4, 2]
    )
    np.testing.assert_array_equal(
        read_moments(table, edges=[0, 3, 9]).moments.counts, [3, 7]
    )


def test_windows_of_equal_counts_need_no_time():
    table = pa.table({"reward": np.arange(10.0), "x": np.arange(10.0) ** 2})
    np.testing.assert_array_equal(
        read_moments(table, windows=3).moments.counts, [4, 3, 3]
    )


def test_progress_is_told_after_every_part_and_small_row_groups_join(
    tmp_path, monkeypatch
):
    told = []
    read_moments(
        as_parquet(wide(LOG), tmp_path),
        windows=2,
        progress=lambda *state: told.append(state),
    )
    assert [rows for rows, _, _ in told] == [400]
    monkeypatch.setattr(columnar, "ROWS_PER_TASK", 37)
    told.clear()
    read_moments(
        as_parquet(wide(LOG), tmp_path),
        windows=2,
        progress=lambda *state: told.append(state),
    )
    assert [rows for rows, _, _ in told] == [*range(37, 400, 37), 400]
    assert {total for _, total, _ in told} == {400}


# -- refusals --

NOTHING_USABLE = pa.table({"reward": [None, np.nan], "x": [1.0, 2.0]})
BAD = {
    "two kinds of windows": ("only one of windows, every and edges", {"windows": 2, "every": "1d"}),
    "an unknown length": ("every must be a whole number and one of", {"every": "7 days"}),
    "too many windows": ("at most 10,000", {"every": "1min", "source": pa.table(
        {"time": np.array(["2020-01-01", "2024-01-01"], "datetime64[us]"), "reward": [0.0, 1.0], "x": [1.0, 2.0]})}),
    "falling edges": ("edges must increase strictly", {"edges": ["2024-02-01", "2024-01-01"]}),
    "more windows than rows": ("windows must be at most the number of rows, 400", {"windows": 401}),
    "an unknown engine": ("engine must be one of", {"engine": "ray"}),
    "an address for here": ("the engine is 'local'", {"address": "tcp://127.0.0.1:1"}),
    "a table for a cluster": ("reads files, what is in memory", {"engine": "dask"}),
    "no log at all": ("source must be a path", {"source": 5}),
    "no time": ("time is missing", {"schema": {"time": None}, "every": "1d"}),
    "an empty table": ("the log is empty", {"source": wide(LOG).slice(0, 0)}),
    "nothing usable": ("no usable round", {"source": NOTHING_USABLE, "windows": 1}),
}  # fmt: skip


@pytest.mark.parametrize(("message", "change"), BAD.values(), ids=BAD.keys())
def test_what_cannot_be_read_is_named(message, change):
    with pytest.raises(InputError, match=message):
        read_moments(**({"source": wide(LOG)} | change))


@pytest.mark.parametrize("keep", [0.3, 0.9, 0.999])
def test_a_truncated_parquet_file_is_named(keep, tmp_path):
    as_folder(wide(LOG), tmp_path)
    path = tmp_path / "parts" / "1.parquet"
    content = path.read_bytes()
    path.write_bytes(content[: int(keep * len(content))])
    with pytest.raises(FileError, match=r"1\.parquet is not readable"):
        read_moments(tmp_path / "parts")


def test_a_parquet_file_with_a_damaged_page_is_named(tmp_path):
    path = as_parquet(wide(LOG), tmp_path)
    content = bytearray(path.read_bytes())
    content[4 : len(content) // 2] = bytes(len(content) // 2 - 4)
    path.write_bytes(content)
    with pytest.raises(FileError, match=r"log\.parquet is not readable"):
        read_moments(path, Schema("reward", ("x*",)))


def test_files_that_do_not_belong_together_are_named(tmp_path):
    as_folder(wide(LOG), tmp_path)
    pq.write_table(wide(LOG).drop(["x1"]), tmp_path / "parts" / "9.parquet")
    with pytest.raises(FileError, match=r"9\.parquet lacks the columns x1"):
        read_moments(tmp_path / "parts")
    with pytest.raises(FileError, match=r"no Arrow, CSV, .* file is there"):
        read_moments(tmp_path / "nothing")
    (tmp_path / "text.csv").write_bytes(b"")
    with pytest.raises(FileError, match=r"text\.csv is not readable"):
        read_moments(tmp_path / "text.csv")


def test_pandas_frames_may_have_categories():
    frame = pandas.DataFrame(
        {
            "reward": LOG.rewards,
            "x": LOG.features[:, 0],
            "kind": pandas.Categorical(["a", "b"] * 200),
        }
    )
    assert read_schema(frame).categorical == ("kind",)
    assert read_moments(frame, windows=2).feature_map.names == ("x", "kind=a")


def test_a_report_can_be_followed_while_rounds_are_read():
    report = QualityReport()
    table = wide(LOG).set_column(1, "reward", pa.array([None, *LOG.rewards[1:]]))
    assert sum(len(batch) for batch in read_rounds(table, report=report)) == 399
    assert report.problems["missing reward"].count == 1
