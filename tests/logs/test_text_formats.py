"""Text as people write it: delimiters, decimals, encodings, compression, JSON lines; each gives the
planted moments.
"""

import json
import pickle
import subprocess
import sys
import threading

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import feather

import invariant_bandits as ib
from invariant_bandits.logs import text_files
from invariant_bandits.logs.formats import delimited as csv_format
from invariant_bandits.logs.formats.delimited import Dialect
from invariant_bandits.logs.formats.registry import COMPRESSIONS, open_source
from invariant_bandits.logs.spill import SpooledSource
from invariant_bandits.logs.text_files import text_blocks
from log_tables import planted_log, rows_per_action, wide
from reading import read_moments, read_rounds
from worlds import assert_same_moments

TABLE = wide(planted_log(seed=11, rounds=300))
EXPECTED = read_moments(TABLE, windows=3).moments


def as_text(delimiter=",", decimal="."):
    frame = TABLE.to_pandas()
    return frame.to_csv(
        index=False, sep=delimiter, decimal=decimal, float_format="%.17g"
    )


def as_json_lines():
    rows = TABLE.to_pylist()
    return "".join(
        json.dumps({**row, "time": row["time"].isoformat()}) + "\n" for row in rows
    )


def same_as_planted(path):
    assert_same_moments(read_moments(path, windows=3).moments, EXPECTED)


def test_json_lines_have_the_moments_of_the_table(tmp_path):
    for name in ("log.jsonl", "log.ndjson", "log.json"):
        (tmp_path / name).write_text(as_json_lines())
        same_as_planted(tmp_path / name)
    assert ib.open_log(tmp_path / "log.json").schema.time == "time"


@pytest.mark.parametrize("suffix", COMPRESSIONS)
@pytest.mark.parametrize(
    ("name", "text"),
    [("log.csv", as_text()), ("log.tsv", as_text("\t")), ("log.json", as_json_lines())],
)
def test_compressed_text_is_read_like_plain_text(name, text, suffix, tmp_path):
    path = tmp_path / f"{name}{suffix}"
    with pa.CompressedOutputStream(str(path), COMPRESSIONS[suffix]) as file:
        file.write(text.encode())
    same_as_planted(path)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ib.FileError, match="is not readable"):
        read_moments(path, windows=3)


def test_what_a_file_is_its_content_says(tmp_path):
    (tmp_path / "unpacked.csv.gz").write_text(as_text())
    same_as_planted(tmp_path / "unpacked.csv.gz")


@pytest.mark.parametrize("decimal", [".", ","])
@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_delimiters_and_decimals_are_recognised(delimiter, decimal, tmp_path):
    (tmp_path / "log.csv").write_text(as_text(delimiter, decimal))
    same_as_planted(tmp_path / "log.csv")


def test_thousands_in_a_table_with_decimal_commas():
    column = Dialect(";", ",").with_points(
        pa.array(["1.234,5", "1.234", "0,25", "-12.345.678,75", "3", None])
    )
    assert column.cast(pa.float64()).to_pylist() == [
        1234.5,
        1234.0,
        0.25,
        -12345678.75,
        3.0,
        None,
    ]


@pytest.mark.parametrize(
    "text",
    [
        as_text().replace("\n", "\r\n"),
        "sep=;\n" + as_text(";", ","),
        "# made by a report\n# in two lines\n" + as_text(),
    ],
)
def test_line_ends_and_what_stands_before_the_header(text, tmp_path):
    (tmp_path / "log.csv").write_bytes(text.encode())
    same_as_planted(tmp_path / "log.csv")


@pytest.mark.parametrize(
    ("delimiter", "between", "decimal"),
    [(",", ",", "."), (";", ".", ","), ("\t", ",", ".")],
)
def test_signs_between_thousands(delimiter, between, decimal, tmp_path):
    """In a table with decimal commas 1.234 is a thousand and more; its rewards say that commas are
    decimal.
    """
    numbers = [1234 + 1000 * i for i in range(60)]
    words = [f"{number:,}".replace(",", between) for number in numbers]
    rows = [
        delimiter.join([f'"{i % 7}{decimal}5"', f'"{word}"'])
        for i, word in enumerate(words)
    ]
    (tmp_path / "log.csv").write_text("\n".join([f"reward{delimiter}spent", *rows]))
    batches = list(read_rounds(tmp_path / "log.csv"))
    assert [value for batch in batches for value in batch.features[:, 0]] == numbers
    assert [value for batch in batches for value in batch.rewards] == [
        i % 7 + 0.5 for i in range(60)
    ]


def test_a_comma_table_with_semicolons_in_its_values_is_a_comma_table():
    assert Dialect.of(b"note,reward\na;b;c,1\nd;e;f,2\n") == Dialect(",", ".")
    assert Dialect.of(b"reward\n1\n2\n") == Dialect(",", ".")


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "latin-1", "cp1252", "utf-16"]
)
def test_encodings_are_recognised(encoding, tmp_path):
    cities = [
        "Zürich",
        "Málaga",
        "Çeşme" if encoding.startswith("utf") else "Orléans",
    ] * 100
    text = as_text().splitlines()
    with_city = [
        f"{line},{city}" for line, city in zip(text, ["city", *cities], strict=True)
    ]
    (tmp_path / "log.csv").write_bytes("\r\n".join(with_city).encode(encoding))
    log = ib.open_log(tmp_path / "log.csv")
    assert sorted(log.survey().categories["city"]) == sorted(set(cities))
    assert_same_moments(
        read_moments(
            tmp_path / "log.csv", {"features": ["x0", "x1", "x2"]}, windows=3
        ).moments,
        EXPECTED,
    )


def test_characters_and_quoted_line_ends_survive_any_cut_into_blocks(tmp_path):
    text = "reward,note\n" + "".join(
        f'{i},"a ""quoted""\nZürich €{i}"\n' for i in range(60)
    )
    (tmp_path / "log.csv").write_text(text)
    for size in (7, 64, 1000):
        blocks = list(text_blocks(str(tmp_path / "log.csv"), quoted=True, size=size))
        assert b"".join(blocks) == text.encode()
        assert all(
            block.count(b'"') % 2 == 0 and block.endswith(b"\n") for block in blocks
        )


def test_quoted_line_ends_across_blocks_cost_no_row(tmp_path, monkeypatch):
    rows = [f'{i % 7},"line one of {i}\nline two",{i % 3}' for i in range(500)]
    (tmp_path / "log.csv").write_text("\n".join(["reward,note,x", *rows]))
    monkeypatch.setattr(text_files, "BLOCK_BYTES", 512)
    source = open_source(tmp_path / "log.csv")
    read = [
        (row, batch)
        for row, batch in source.batches(source.tasks[0], ["reward", "note"])
    ]
    assert len(read) > 10
    assert [row for row, _ in read] == np.cumsum(
        [0, *(len(batch) for _, batch in read)]
    )[:-1].tolist()
    assert (
        pa.concat_arrays([batch.column("note") for _, batch in read]).to_pylist()[-1]
        == "line one of 499\nline two"
    )
    assert sum(len(batch) for _, batch in read) == 500


def test_a_quote_that_stands_alone_does_not_swallow_the_log(tmp_path):
    rows = [f'{i},a 5" pipe' for i in range(100)]
    (tmp_path / "log.csv").write_text("\n".join(["reward,note", *rows]))
    source = open_source(tmp_path / "log.csv")
    assert (
        sum(len(batch) for _, batch in source.batches(source.tasks[0], ["reward"]))
        == 100
    )


@pytest.mark.parametrize(
    "words",
    [
        ("True", "False"),
        ("true", "false"),
        ("TRUE", "FALSE"),
        ("yes", "no"),
        ("Yes", "No"),
    ],
)
def test_truth_values_in_words_are_numbers(words, tmp_path):
    rng = np.random.default_rng(3)
    member, clicked = rng.random(400) < 0.5, rng.random(400) < 0.3
    frame = pd.DataFrame(
        {"clicked": clicked, "member": member, "x": rng.normal(size=400)}
    )
    expected = read_moments(frame, windows=2)
    written = frame.assign(
        clicked=np.where(clicked, *words), member=np.where(member, *words)
    )
    written.to_csv(tmp_path / "log.csv", index=False, float_format="%.17g")
    found = read_moments(tmp_path / "log.csv", windows=2)
    assert found.feature_map.names == ("member", "x")
    assert_same_moments(found.moments, expected.moments)


@pytest.mark.parametrize(
    "kind", ["frame", "log.arrow", "log.parquet", "log.csv", "log.ndjson"]
)
def test_polars_frames_with_text(kind, tmp_path):
    rng = np.random.default_rng(5)
    frame = pl.DataFrame(
        {
            "reward": rng.normal(size=90),
            "country": rng.choice(["DE", "FR"], 90),
            "device": rng.choice(["a", "b"], 90),
        }
    ).with_columns(pl.col("device").cast(pl.Categorical))
    writers = {
        "arrow": frame.write_ipc,
        "parquet": frame.write_parquet,
        "csv": frame.write_csv,
        "ndjson": frame.write_ndjson,
    }
    if kind != "frame":
        writers[kind.partition(".")[2]](tmp_path / kind)
    read = read_moments(frame if kind == "frame" else tmp_path / kind, windows=1)
    assert read.feature_map.names == ("country=DE", "device=a")
    assert read.moments.rounds == 90


def test_arrow_files_and_streams_and_feather(tmp_path):
    feather.write_feather(
        TABLE, str(tmp_path / "log.feather"), compression="zstd", chunksize=70
    )
    with (
        pa.OSFile(str(tmp_path / "log.ipc"), "wb") as sink,
        pa.ipc.new_stream(sink, TABLE.schema) as writer,
    ):
        writer.write_table(TABLE)
    same_as_planted(tmp_path / "log.feather")
    same_as_planted(tmp_path / "log.ipc")
    (tmp_path / "log.ipc").write_bytes(b"nothing of the kind")
    with pytest.raises(ib.FileError, match=r"log\.ipc is not readable"):
        read_moments(tmp_path / "log.ipc")


def test_objects_within_json_become_columns(tmp_path):
    rows = [
        {
            "user": {"age": 20 + i % 9, "home": {"rooms": i % 4}},
            "reward": i % 2,
            "tags": ["a"],
        }
        for i in range(50)
    ]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, rows)))
    log = ib.open_log(tmp_path / "log.jsonl")
    assert log.schema.features == ("user.age", "user.home.rooms")
    assert read_moments(log, windows=1).moments.rounds == 50


def test_a_damaged_line_or_a_value_of_another_type_costs_its_row_only(tmp_path):
    lines = [
        json.dumps({"reward": i / 2, "x": i % 5, "late": i if i < 60 else i + 0.5})
        for i in range(100)
    ]
    lines[10], lines[20], lines[30] = (
        '{"reward": 1, "x"',
        "[1, 2]",
        '{"reward": 1, "x": "unknown", "late": 2}',
    )
    (tmp_path / "log.jsonl").write_text("\n".join(lines))
    quality = read_moments(tmp_path / "log.jsonl", windows=1).quality
    assert quality.rows == 100
    assert quality.problems["line that is no JSON object"].count == 2
    assert quality.problems["unparsable x"].count == 1
    assert quality.rounds == 97


def test_files_of_json_lines_may_lack_columns_but_not_all(tmp_path):
    (tmp_path / "0.jsonl").write_text(
        "\n".join(json.dumps({"reward": i, "x": i % 3}) for i in range(20))
    )
    late = [{"reward": i + 0.5, "x": i % 3, "coupon": i % 2} for i in range(20)]
    (tmp_path / "1.jsonl").write_text("\n".join(map(json.dumps, late)))
    schema = ib.open_log(tmp_path).schema
    assert schema.features == ("x", "coupon")
    read = read_moments(tmp_path, {"features": ["x"]}, windows=1)
    assert read.moments.rounds == 40
    (tmp_path / "2.jsonl").write_text('{"other": 1}')
    with pytest.raises(
        ib.FileError,
        match=r"2\.jsonl has none of the columns of the files before: reward, x, coupon",
    ):
        read_moments(tmp_path)


def test_rounds_go_on_where_a_block_of_json_turns_to_text(tmp_path, monkeypatch):
    rows = rows_per_action(planted_log(seed=3, rounds=300)).drop(["time"]).to_pylist()
    expected = read_moments(pa.Table.from_pylist(rows), windows=2).moments
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    monkeypatch.setattr(text_files, "BLOCK_BYTES", 4000)
    assert_same_moments(read_moments(path, windows=2).moments, expected)
    for row in (5, 300, 301):
        rows[row]["x1"] = "broken"
    path.write_text("\n".join(map(json.dumps, rows)))
    quality = read_moments(path, windows=2).quality
    assert quality.problems["unparsable x1"].count in (2, 3)
    assert quality.rounds == 300 - quality.problems["unparsable x1"].count


def test_whole_numbers_that_become_fractions_later_are_read(tmp_path):
    filler = "x" * 1000
    lines = [
        json.dumps({"reward": i if i < 2000 else i + 0.5, "x": i % 5, "filler": filler})
        for i in range(4000)
    ]
    (tmp_path / "log.jsonl").write_text("\n".join(lines))
    read = read_moments(tmp_path / "log.jsonl", {"features": ["x"]}, windows=1)
    assert read.moments.rounds == 4000


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("log.csv", b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "is not text: byte"),
        ("log.csv", bytes(range(256)) * 50, "is not text: byte"),
        ("log.jsonl", bytes(range(256)) * 50, "is not text: byte"),
        (
            "log.json",
            b'[{"reward": 1}]',
            "is one JSON array; what is needed is one object per line",
        ),
        ("log.json", b"reward,x\n1,2", "does not begin with a JSON object"),
        ("log.json", b" \n", "it is empty"),
        (
            "log.json",
            b'{"a":' * 2000 + b"1" + b"}" * 2000,
            "has objects within objects, deeper than 16",
        ),
        (
            "log.csv",
            b"a report\nreward,x\n1,2\n3,4\n",
            r"none of its first rows has as many values as its header",
        ),
        (
            "log.csv",
            b"x,reward,x,y,y\n1,2,3,4,5\n",
            "several columns of the same name: x, y",
        ),
        (
            "log.csv",
            b"x,reward,,\n1,2,,\n",
            r"several columns of the same name: \(no name\)",
        ),
        (
            "log.csv",
            b"c"
            + b",c".join(b"%d" % i for i in range(100_000))
            + b"\n1"
            + b",1" * 99_999,
            "has 100,000 columns",
        ),
    ],
)
def test_what_cannot_be_read_is_said_in_one_line(name, content, message, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ib.FileError, match=message) as error:
        read_moments(tmp_path / name)
    assert "\n" not in str(error.value)
    assert str(tmp_path / name) in str(error.value)


def test_frames_with_two_columns_of_one_name_are_refused():
    frame = pd.DataFrame([[1.0, 2.0, 3.0]], columns=["reward", "x", "x"])
    with pytest.raises(
        ib.FileError, match="frame has several columns of the same name: x"
    ):
        read_moments(frame)


def test_frames_with_columns_of_mixed_types_are_refused_in_one_line():
    frame = pd.DataFrame({"reward": [1.0, 2.0], "x": pd.Series(["a", 3], dtype=object)})
    with pytest.raises(ib.InputError, match=r"the frame cannot be read: .*column x"):
        read_moments(frame)


def test_rows_are_judged_in_the_thread_that_reads(tmp_path, monkeypatch):
    """A thread of the reader's own that called Python while the interpreter ended aborted the process."""
    threads = []

    def watched(text, reading, parsing, converting):
        handler = parsing.invalid_row_handler

        def judge(row):
            threads.append(threading.get_ident())
            return handler(row)

        parsing.invalid_row_handler = judge
        return read_csv(text, reading, parsing, converting)

    read_csv = csv_format.arrow_csv.read_csv
    monkeypatch.setattr(csv_format.arrow_csv, "read_csv", watched)
    (tmp_path / "log.csv").write_text("reward,x\n" + "1,2\n1,2,3\n" * 1000)
    source = open_source(tmp_path / "log.csv")
    assert (
        sum(len(batch) for _, batch in source.batches(source.tasks[0], ["reward"]))
        == 1000
    )
    assert set(threads) == {threading.get_ident()}
    assert len(threads) == 2000  # 1,000 when it was opened, 1,000 when it was read


@pytest.mark.parametrize(
    ("name", "text"), [("log.csv", as_text()), ("log.json", as_json_lines())]
)
def test_a_big_text_file_is_divided_into_tasks_and_other_processes_read_it_alike(
    tmp_path, monkeypatch, name, text
):
    lines = text.splitlines(keepends=True)
    lines.insert(250, "broken,,\n")
    (tmp_path / name).write_text("\ufeff" + "".join(lines), encoding="utf-8")
    monkeypatch.setattr(text_files, "BLOCK_BYTES", 1500)
    log = ib.open_log(tmp_path / name)
    tasks = log.survey(rows=True).tasks
    assert len(tasks) > 2
    text_source = pickle.loads(pickle.dumps(log.source))
    assert not isinstance(text_source, SpooledSource)
    typed = [
        pair for task in tasks for pair in log.source.batches(task, ["x1", "reward"])
    ]
    (whole,) = text_source.tasks
    for (row, batch), (again, parsed) in zip(
        typed, text_source.batches(whole, ["x1", "reward"]), strict=True
    ):
        assert row == again
        for column in ("x1", "reward"):
            words = parsed.column(column).cast(pa.string()).cast(pa.float64())
            assert batch.column(column).cast(pa.float64()).equals(words)
    again = [
        row
        for task in tasks
        for row, _ in log.source.batches(task, [*log.source.arrow_schema.names])
    ]
    assert again == [row for row, _ in typed]
    read = read_moments(log, windows=3)
    assert (read.quality.rows, read.quality.left_out) == (301, 1)
    assert_same_moments(read.moments, EXPECTED)


def test_a_full_disk_costs_time_only(tmp_path, monkeypatch):
    (tmp_path / "log.csv").write_text(as_text())
    log = ib.open_log(tmp_path / "log.csv")
    monkeypatch.setattr(
        SpooledSource, "_new_path", lambda *given: tmp_path / "no folder" / "file"
    )
    assert_same_moments(read_moments(log, windows=3).moments, EXPECTED)


EARLY_ERROR = """
import sys
from invariant_bandits.logs.log import open_log
try:
    open_log(sys.argv[1])
except ValueError as error:
    sys.exit(f"refused: {str(error)[:25]}")
"""


@pytest.mark.system
def test_an_early_error_ends_the_process_without_a_crash(tmp_path):
    """2 to 3 of 60 such ends were aborts when pyarrow's streaming reader was used."""
    path = tmp_path / "log.csv"
    path.write_text("a;b;c\n" + "1;2;3.5\n" * 300_000)
    for _ in range(6):
        ended = subprocess.run(
            [sys.executable, "-c", EARLY_ERROR, path], capture_output=True, text=True
        )
        assert (ended.returncode, ended.stderr.strip()) == (
            1,
            "refused: no column was found to be",
        )
