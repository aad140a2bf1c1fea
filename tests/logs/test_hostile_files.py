"""Files that nobody writes by accident: one line, soon, and the process lives."""

import gzip
import json
import subprocess
import sys

import numpy as np
import pytest

from invariant_bandits.logs.json_values import MOST_NESTED, too_deep, value_of
from invariant_bandits.storage import FileError
from reading import read_moments

RNG = np.random.default_rng(0)
ROWS = [",".join(f"{value:.4f}" for value in row) for row in RNG.normal(size=(300, 3))]
TABLE = "x,größe,reward\n" + "\n".join(ROWS) + "\n"
OBJECTS = "".join(
    json.dumps(dict(zip(("x", "y", "reward"), map(float, row.split(",")), strict=True)))
    + "\n"
    for row in ROWS
)


def nested(depth, opening="[", closing="]"):
    return f'{{"reward": 1, "x": {opening * depth}1{closing * depth}}}\n'


@pytest.mark.system
@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("log.jsonl", nested(100_000) * 3, "deeper than 16"),
        ("log.jsonl", nested(100_000, '{"x":', "}") * 3, "deeper than 16"),
        (
            "log.dsjson",
            '{"c": {"_multi": ' + "[" * 100_000 + "\n",
            "no event that can be used",
        ),
        ("log.csv", "a" * 200_000 + ",reward\n1,2\n", "its first line is not a header"),
        (
            "log.csv",
            "x,reward\n1,2\n".encode("utf-16") + b"\0\0" * 9,
            "is not text: byte 13 is 0x00",
        ),
    ],
)
def test_what_cannot_be_a_log_is_refused_in_one_line(name, content, message, tmp_path):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    program = "from invariant_bandits.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "fit", path, "-o", tmp_path / "m"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert message in line


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
def test_the_encoding_of_a_table_changes_nothing(encoding, tmp_path):
    plain, other = tmp_path / "plain.csv", tmp_path / "other.csv.gz"
    plain.write_text(TABLE, encoding="utf-8")
    other.write_bytes(gzip.compress(TABLE.encode(encoding)))
    found, wanted = (read_moments(path, windows=2) for path in (other, plain))
    assert found.moments == wanted.moments
    assert found.schema.features == ("x", "größe")


def test_a_line_that_is_too_deep_costs_itself_only(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text(OBJECTS + nested(2 * MOST_NESTED) + OBJECTS)
    read = read_moments(path, windows=2)
    assert read.moments.rounds == 600
    assert read.quality.problems["line that is no JSON object"].count == 1


def test_halves_of_signs_are_replaced_and_cost_nothing(tmp_path):
    path = tmp_path / "log.jsonl"
    halves = OBJECTS.replace('{"x"', '{"note": "\\ud83d", "half \\uD800": 1, "x"')
    path.write_text(halves + "no JSON\n")
    read = read_moments(path, {"features": ["x", "y"]}, windows=2)
    assert read.moments.rounds == 300
    assert value_of(rb'{"a": "\ud83d\ude00"}') == {"a": "😀"}
    with pytest.raises(ValueError, match="deep"):
        value_of(b"[" * 100_000)


def test_depth_is_counted_within_lines_and_outside_of_text():
    flat = b'{"x": [[1], [2]], "words": "' + b"[" * 5000 + b'"}\n'
    assert not too_deep(flat * 3)
    assert not too_deep(b"[1]\n" * 5000)
    assert not too_deep(b'{"a": [' + b"[1], " * 3000 + b"[1]]}")
    assert too_deep(flat * 3 + b"[" * (MOST_NESTED + 1))
    assert too_deep(b'{"a\\"[": ' + b'{"a": ' * (MOST_NESTED + 1) + b"\n" + flat)


def test_a_value_that_is_long_does_not_hide_the_header(tmp_path):
    """The rows behind the first block have no header of their own: one of them must not be taken for it."""
    path, long = tmp_path / "log.csv", 150_000
    rows = "".join(f"{row},k\n" for row in ROWS)
    path.write_text(
        "x,y,reward,note\n" + ROWS[0] + "," + "z" * long + "\n" + rows * 2000
    )
    read = read_moments(path, {"features": ["x", "y"]}, windows=2)
    assert path.stat().st_size > 8 << 20
    assert read.moments.rounds == 600_001


def test_a_bomb_is_not_unpacked(tmp_path):
    """One sign, 268 million times, packed: the reader gives up at the first line that is too long."""
    path = tmp_path / "log.csv.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b"x,reward\n")
        for _ in range(16):
            file.write(b"1" * (1 << 24))
    with pytest.raises(FileError, match="has a line of more than 128 MB"):
        read_moments(path)
