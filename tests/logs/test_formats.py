"""Log formats: one file with one decorator, and reading, fitting, folders, patterns and messages know it."""

import sys
from importlib import import_module

import numpy as np
import pyarrow as pa
import pytest

import invariant_bandits as ib
from invariant_bandits.logs.formats.registry import (
    FORMATS,
    open_source,
    register_log_format,
)
from invariant_bandits.logs.formats.table import TableSource
from log_tables import planted_log, wide
from reading import read_moments, read_rounds, read_schema
from worlds import assert_same_moments

LOG = planted_log(seed=8, rounds=400)
PAIRS = '''
"""Lines such as a=1;b=2."""
from pathlib import Path

import pyarrow as pa

from invariant_bandits.logs.formats.registry import register_log_format
from invariant_bandits.logs.sources import Source, Task


@register_log_format("pairs", suffixes=(".pairs",))
class PairsSource(Source):
    def __init__(self, paths):
        self.tasks = [Task(path, 0, 0, 0) for path in paths]
        self.arrow_schema = self._table(paths[0]).schema

    def _table(self, path):
        lines = [dict(pair.split("=") for pair in line.split(";")) for line in Path(path).read_text().splitlines()]
        return pa.table({name: [float(line[name]) for line in lines] for name in lines[0]})

    def batches(self, task, columns):
        yield 0, self._table(task.file).select(list(columns)).combine_chunks().to_batches()[0]
'''


@pytest.fixture
def pairs(tmp_path, monkeypatch):
    """A module of somebody else's that registers a format, and a folder with the log in two of its files."""
    (tmp_path / "pairs_of_somebody.py").write_text(PAIRS)
    monkeypatch.syspath_prepend(tmp_path)
    import_module("pairs_of_somebody")
    folder = tmp_path / "log"
    folder.mkdir()
    rows = wide(LOG).drop(["time"]).to_pylist()
    for name, part in (("0.pairs", rows[:150]), ("1.pairs", rows[150:])):
        lines = [
            ";".join(f"{name}={value!r}" for name, value in row.items()) for row in part
        ]
        (folder / name).write_text("\n".join(lines))
    (folder / "notes.txt").write_text("not a log")
    yield folder
    FORMATS.remove("pairs")
    del sys.modules["pairs_of_somebody"]


def test_a_format_is_one_file_of_at_most_thirty_lines():
    assert len(PAIRS.strip().splitlines()) <= 30


@pytest.mark.parametrize("given", ["folder", "pattern", "list of files"])
def test_a_format_of_somebody_else_is_read_like_ours(given, pairs):
    source = {
        "folder": pairs,
        "pattern": f"{pairs}/*.pairs",
        "list of files": [pairs / "0.pairs", pairs / "1.pairs"],
    }
    read = read_moments(source[given], windows=4)
    assert_same_moments(read.moments, read_moments(wide(LOG), windows=4).moments)
    assert read_schema(source[given]) == ib.Schema("reward", ("x0", "x1", "x2"))
    assert ib.fit_logs(source[given], windows=4).moments.rounds == 400
    assert sum(len(batch) for batch in read_rounds(source[given])) == 400


def test_messages_name_every_format(pairs, tmp_path):
    with pytest.raises(ib.FileError, match=r"no Arrow, CSV, .* or pairs file is there"):
        read_moments(tmp_path / "nothing")
    (tmp_path / "log.csv").write_text("reward,x\n1,2\n")
    with pytest.raises(
        ib.FileError,
        match=r"all CSV \(.csv, .tsv; also .gz, .*\), .* or all pairs \(.pairs\)",
    ):
        read_moments([tmp_path / "log.csv", pairs / "0.pairs"])


def test_a_format_that_was_forgotten_is_unknown(pairs):
    FORMATS.remove("pairs")
    with pytest.raises(ib.FileError, match="files must be"):
        read_moments(pairs / "0.pairs")


def test_our_formats_find_themselves():
    assert {"csv", "obp", "parquet", "table"} <= {
        log_format.name for log_format in tuple(FORMATS)
    }


def test_what_is_in_memory_is_taken_by_the_format_that_was_registered_last():
    class Arrays(dict):
        """A dictionary, but no obp feedback."""

    @register_log_format(
        "arrays",
        label="a dictionary of columns",
        accepts=lambda source: isinstance(source, Arrays),
    )
    def open_arrays(source):
        return TableSource(pa.table(dict(source)))

    try:
        read = read_moments(
            Arrays(reward=np.arange(5.0), x=np.arange(5.0) ** 2), windows=1
        )
        with pytest.raises(
            ib.InputError,
            match=r"a pattern, .*a dictionary of columns, .*an Arrow table",
        ):
            read_moments(5)
    finally:
        FORMATS.remove("arrays")
    assert read.moments.rounds == 5


def test_what_is_open_stays_open():
    source = TableSource(wide(LOG))
    assert open_source(source) is source


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("mine", {}, "needs either suffixes"),
        ("mine", {"suffixes": ".mine"}, "needs either suffixes"),
        (
            "mine",
            {"suffixes": (".mine",), "accepts": callable},
            "needs either suffixes",
        ),
        (
            "csv",
            {"suffixes": (".mine",)},
            "'csv' is registered already, by invariant_bandits.logs.formats.delimited",
        ),
    ],
)
def test_names_and_suffixes_of_others_are_refused(name, arguments, message):
    before = tuple(FORMATS)
    with pytest.raises(ib.InputError, match=message):
        register_log_format(name, **arguments)(TableSource)
    assert tuple(FORMATS) == before
