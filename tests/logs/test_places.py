"""Where logs are: folders whose names are keys, and addresses."""

import pickle
import sys

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

import invariant_bandits as ib
from invariant_bandits.logs.formats.registry import open_source
from log_formats import write_log
from log_tables import planted_log, rows_per_action, wide
from reading import read_moments
from worlds import assert_same_moments

LOG = planted_log(seed=21, rounds=240)
TABLE = wide(LOG)


def write_parts(folder, write, suffix):
    """The log in folders of a day and an hour each, without its times; the hours have one digit or two."""
    for part in range(24):
        place = (
            folder
            / f"date=2024-01-0{1 + part // 12}"
            / f"hour={part % 12}"
            / f"country={'DE' if part % 2 else 'FR'}"
        )
        place.mkdir(parents=True)
        write(TABLE.drop(["time"]).slice(10 * part, 10), place / f"part{suffix}")


@pytest.mark.parametrize(
    ("write", "suffix"), [(pq.write_table, ".parquet"), (csv.write_csv, ".csv")]
)
def test_keys_of_folders_are_typed_columns_in_the_order_of_the_keys(
    write, suffix, tmp_path
):
    write_parts(tmp_path, write, suffix)
    (tmp_path / "_SUCCESS").write_text("")
    source = open_source(tmp_path)
    kinds = {
        name: source.arrow_schema.field(name).type
        for name in ("date", "hour", "country")
    }
    assert kinds == {"date": pa.date32(), "hour": pa.int64(), "country": pa.string()}
    hours = [
        batch.column("hour")[0].as_py()
        for task in source.tasks
        for _, batch in source.batches(task, ["hour"])
    ]
    assert hours == [*range(12), *range(12)]
    log = ib.open_log(source)
    assert log.schema.time == "date"
    assert log.schema.categorical == ("country",)
    read = read_moments(log, every="1d")
    assert read.moments.rounds == 240
    assert read.moments.windows == 2
    assert "country=DE" in read.feature_map.names
    reordered = read_moments(
        tmp_path, {"features": ["x0", "x1", "x2"], "time": None}, windows=4
    )
    assert_same_moments(
        reordered.moments, read_moments(TABLE, {"time": None}, windows=4).moments
    )


def test_a_pattern_finds_keys_behind_its_first_wildcard_only(tmp_path):
    outer = tmp_path / "run=5"
    write_parts(outer, pq.write_table, ".parquet")
    assert open_source(f"{outer}/date=2024-01-01/*/*/*.parquet").arrow_schema.names[
        -2:
    ] == [
        "hour",
        "country",
    ]
    assert "run" not in open_source(outer).arrow_schema.names
    assert (
        open_source(next(outer.rglob("*.parquet"))).arrow_schema
        == TABLE.drop(["time"]).schema
    )


def test_missing_keys_and_escaped_ones(tmp_path):
    for name in ("city=K%C3%B6ln%20S%C3%BCd", "city=__HIVE_DEFAULT_PARTITION__"):
        (tmp_path / name).mkdir()
        pq.write_table(TABLE.slice(0, 10), tmp_path / name / "a.parquet")
    source = open_source(tmp_path)
    cities = [
        batch.column("city")[0].as_py()
        for task in source.tasks
        for _, batch in source.batches(task, ["city"])
    ]
    assert cities == ["Köln Süd", None]


def test_a_column_of_the_files_goes_before_the_key(tmp_path):
    (tmp_path / "x0=7").mkdir()
    pq.write_table(TABLE, tmp_path / "x0=7" / "a.parquet")
    assert_same_moments(
        read_moments(tmp_path, windows=2).moments,
        read_moments(TABLE, windows=2).moments,
    )


def test_folders_with_different_keys_are_refused(tmp_path):
    for name in ("date=2024-01-01", "day=2024-01-02"):
        (tmp_path / name).mkdir()
        pq.write_table(TABLE, tmp_path / name / "a.parquet")
    with pytest.raises(ib.FileError, match=r"same keys, got day=… after date=…"):
        open_source(tmp_path)


def test_rounds_of_several_rows_in_folders(tmp_path):
    rows = rows_per_action(LOG)
    half = int(LOG.counts[:120].sum())
    for name, part in (("day=1", rows.slice(0, half)), ("day=2", rows.slice(half))):
        (tmp_path / name).mkdir()
        pq.write_table(part, tmp_path / name / "a.parquet", row_group_size=50)
    read = read_moments(tmp_path, {"features": ["x0", "x1", "x2"]}, windows=2)
    assert_same_moments(read.moments, read_moments(rows, windows=2).moments)


@pytest.mark.parametrize(
    "suffix", [".csv", ".jsonl", ".parquet", ".arrow", ".dsjson", ".vw"]
)
def test_sources_of_files_can_be_sent_to_another_machine(suffix, tmp_path):
    place = tmp_path / "day=7"
    place.mkdir()
    write_log(rows_per_action(LOG), place / f"log{suffix}")
    log = ib.open_log(tmp_path)
    sent = pickle.loads(pickle.dumps(log.source))
    names = list(log.source.arrow_schema.names)
    for task in log.source.tasks:
        here, there = (
            [batch for _, batch in item.batches(task, names)]
            for item in (log.source, sent)
        )
        assert pa.Table.from_batches(here) == pa.Table.from_batches(there)
    assert sent.in_files
    assert set(pa.Table.from_batches(here)["day"].to_pylist()) == {7}


@pytest.fixture
def store():
    system = fsspec.filesystem("memory")
    yield system
    system.store.clear()
    system.pseudo_dirs[:] = [""]


def test_addresses_are_read_like_paths(store, tmp_path):
    pq.write_table(TABLE, tmp_path / "log.parquet", row_group_size=60)
    csv.write_csv(TABLE, tmp_path / "log.csv")
    with pa.CompressedOutputStream(str(tmp_path / "log.csv.gz"), "gzip") as packed:
        packed.write((tmp_path / "log.csv").read_bytes())
    expected = read_moments(TABLE, windows=3).moments
    for name in ("log.parquet", "log.csv", "log.csv.gz"):
        place = f"/logs-{name}/year=2024/{name}"
        store.pipe(place, (tmp_path / name).read_bytes())
        store.pipe(f"/logs-{name}/_SUCCESS", b"")
        for given in (f"memory://{place}", f"memory://logs-{name}/*/{name}"):
            assert_same_moments(
                read_moments(
                    given, {"features": ["x0", "x1", "x2"]}, windows=3
                ).moments,
                expected,
            )
        folder = open_source(f"memory://logs-{name}")
        assert "year" in folder.arrow_schema.names
        assert folder.tasks[0].file.startswith("memory://")


def test_addresses_that_lead_nowhere_are_said_in_one_line(store, monkeypatch):
    with pytest.raises(ib.FileError, match="memory://nowhere: no Arrow"):
        read_moments("memory://nowhere")
    with pytest.raises(
        ib.FileError, match=r"strange://x.csv: strange:// cannot be opened"
    ) as error:
        read_moments("strange://x.csv")
    assert "\n" not in str(error.value)
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(
        ib.FileError,
        match=r"s3:// needs the package fsspec: pip install 'invariant-bandits\[remote\]'",
    ):
        read_moments("s3://bucket/log.csv")
