"""Logs that nobody writes by accident, made by hand."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROWS = 300


def write_hostile(folder: Path) -> list[Path]:
    """Write them all; their paths."""
    for name, content in _contents():
        (folder / name).write_bytes(content)
    with gzip.open(
        folder / "bomb.csv.gz", "wb", compresslevel=1
    ) as file:  # ten gigabytes of zeros
        for _ in range(640):
            file.write(bytes(1 << 24))
    with gzip.open(folder / "endless-line.csv.gz", "wb", compresslevel=1) as file:
        file.write(b"x,reward\n")
        for _ in range(64):
            file.write(b"1" * (1 << 24))
    return sorted(folder.iterdir())


def _contents() -> Iterator[tuple[str, bytes]]:
    rng = np.random.default_rng(0)
    table = "x,y,reward\n" + "".join(
        f"{a:.4f},{b:.4f},{c:.4f}\n" for a, b, c in rng.normal(size=(ROWS, 3))
    )
    text, line = table.encode(), b'{"reward": 1, "x": '
    yield "columns-100000.csv", _wide(100_000)
    yield "columns-1000000.csv", _wide(1_000_000)
    yield (
        "keys-100000.jsonl",
        (
            json.dumps({f"c{i}": i for i in range(100_000)} | {"reward": 1}) + "\n"
        ).encode()
        * 3,
    )
    yield "binary.csv", rng.bytes(1_000_000)
    yield "signs.csv", bytes(rng.integers(32, 256, 1_000_000, dtype=np.uint8))
    yield "twice.csv", b"x,x,reward\n" + b"1,2,3\n" * ROWS
    yield "ebcdic.csv", table.encode("cp500")
    yield "nul.csv", text.replace(b"\n0", b"\n\0", 1)
    yield "endless-name.csv", b"a" * (20 << 20) + b",reward\n" + b"1,2\n" * ROWS
    yield "open-quote.csv", b'x,reward\n"' + b"z" * (10 << 20)
    yield "newlines.csv", b"\n" * 1_000_000
    yield "spaces.csv", b" " * 10_000_000
    yield "header.csv", b"x,y,reward"
    for suffix in ("csv", "csv.gz", "jsonl", "parquet", "arrow", "dsjson", "vw"):
        yield f"empty.{suffix}", b""
        yield f"bytes.{suffix}", rng.bytes(100_000)
    yield "cut.csv.gz", gzip.compress(text)[:-200]
    yield "tail.csv.gz", gzip.compress(text) + b"garbage"
    for codec, suffix in (("zstd", "zst"), ("bz2", "bz2"), ("lz4", "lz4")):
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, codec) as stream:
            stream.write(text)
        whole = sink.getvalue().to_pybytes()
        yield f"cut.csv.{suffix}", whole[: len(whole) // 2]
    yield "deep-lists.jsonl", (line + b"[" * 100_000 + b"]" * 100_000 + b"}\n") * 3
    yield "deep-objects.jsonl", (b'{"x":' * 100_000 + b"1" + b"}" * 100_000 + b"\n") * 3
    yield "digits.jsonl", (line + b"9" * 1_000_000 + b"}\n") * 5
    yield "exponents.jsonl", (line + b"1e999999}\n") * ROWS
    yield "no-objects.jsonl", b'[1, 2]\n3\n"a"\nnull\n' * 100
    yield "steering.jsonl", (line + b'2, "\\u001b[2J": 1, "\\u202e": 1}\n') * ROWS
    yield "dates.csv", b"time,x,reward\n" + b"9999-99-99,1,1\n" * ROWS
    yield "huge.csv", b"x,reward\n" + b"1e308,1\n-1e308,0\n" * ROWS
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.table({"x": rng.normal(size=ROWS), "reward": rng.normal(size=ROWS)}), sink
    )
    parquet = sink.getvalue().to_pybytes()
    yield "cut.parquet", parquet[: len(parquet) // 2]
    yield "tail.parquet", parquet[len(parquet) // 2 :]
    for number in (0, 2**31 - 1, 2**32 - 1):
        yield (
            f"footer-{number}.parquet",
            parquet[:-8] + number.to_bytes(4, "little") + b"PAR1",
        )
    rows = parquet.replace(
        ROWS.to_bytes(2, "little"), (2**15 - 1).to_bytes(2, "little")
    )
    yield "lying.parquet", rows
    yield "magic.arrow", b"ARROW1\0\0" + rng.bytes(100_000) + b"ARROW1"


def _wide(columns: int) -> bytes:
    return (
        ",".join(f"c{i}" for i in range(columns))
        + "\n"
        + (",".join(["1"] * columns) + "\n") * 3
    ).encode()
