"""Ways to damage the content of a log."""

from __future__ import annotations

import bz2
import gzip
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

Random = np.random.Generator
Damage = Callable[[bytes, Random], bytes]
DAMAGES: dict[str, Damage] = {}
TOKENS = (
    *(
        b"\0",
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b'"',
        b"'",
        b"\r",
        b"\n\n\n",
        b"\t",
        b",",
        b";",
        b"|",
        b":",
        b"{",
        b"}",
    ),
    *(
        b"NaN",
        b"Infinity",
        b"-1e999",
        b"1e308",
        b"1e-320",
        b"0x10",
        b"true",
        b"null",
        b"",
        b"\xc3",
        b"\xed\xa0\x80",
    ),
    *(
        b"9" * 5000,
        b"[" * 3000,
        b'{"a":' * 3000,
        rb"\ud83d",
        rb"\u0000",
        b"\x1b[2J",
        "\u202e".encode(),
        b"2024-99-99",
    ),
    *(
        b"-",
        b"--",
        b"1_000",
        b"1,5",
        "١".encode(),
        b"18446744073709551616",
        b"-9223372036854775809",
        b"9999-12-31",
    ),
)


def damage(words: str) -> Callable[[Damage], Damage]:
    """Register a way under these words."""

    def registered(function: Damage) -> Damage:
        DAMAGES[words] = function
        return function

    return registered


def _span(content: bytes, rng: Random, longest: int = 200) -> tuple[int, int]:
    """Where a part of the content begins and ends, often near its end, where binary formats keep what
    matters.
    """
    size = len(content)
    start = (
        int(rng.integers(size + 1))
        if rng.random() < 0.6
        else max(0, size - 1 - int(rng.integers(600)))
    )
    return start, min(size, start + int(rng.integers(1, longest)))


@damage("bits turned over")
def bits(content: bytes, rng: Random) -> bytes:
    """One to twenty bits."""
    changed = bytearray(content)
    for _ in range(int(rng.integers(1, 21))):
        start, _ = _span(content, rng)
        if start < len(changed):
            changed[start] ^= 1 << int(rng.integers(8))
    return bytes(changed)


@damage("bytes replaced")
def replaced(content: bytes, rng: Random) -> bytes:
    """A part by zeros, ones or anything."""
    start, stop = _span(content, rng)
    filler = (bytes(stop - start), b"\xff" * (stop - start), rng.bytes(stop - start))[
        int(rng.integers(3))
    ]
    return content[:start] + filler + content[stop:]


@damage("cut off")
def cut_off(content: bytes, rng: Random) -> bytes:
    """The end, or the beginning."""
    place = int(rng.integers(len(content) + 1))
    return content[:place] if rng.random() < 0.8 else content[place:]


@damage("a part left out")
def left_out(content: bytes, rng: Random) -> bytes:
    """Up to two hundred bytes."""
    start, stop = _span(content, rng)
    return content[:start] + content[stop:]


@damage("a part repeated")
def repeated(content: bytes, rng: Random) -> bytes:
    """Up to a thousand times."""
    start, stop = _span(content, rng)
    return (
        content[:start]
        + content[start:stop] * int(rng.choice([2, 3, 30, 1000]))
        + content[stop:]
    )


@damage("parts exchanged")
def exchanged(content: bytes, rng: Random) -> bytes:
    """Two parts that do not overlap."""
    a, b, c, d = sorted(int(rng.integers(len(content) + 1)) for _ in range(4))
    return content[:a] + content[c:d] + content[b:c] + content[a:b] + content[d:]


@damage("tokens put in")
def tokens(content: bytes, rng: Random) -> bytes:
    """Words that parsers stumble over, one to five."""
    for _ in range(int(rng.integers(1, 6))):
        place = int(rng.integers(len(content) + 1))
        content = (
            content[:place] + TOKENS[int(rng.integers(len(TOKENS)))] + content[place:]
        )
    return content


@damage("values replaced")
def values(content: bytes, rng: Random) -> bytes:
    """A word between two marks by such a token, in one to fifty places."""
    marks = [place for place, byte in enumerate(content) if byte in b',:;|\t\n"[] ']
    if len(marks) < 2:
        return tokens(content, rng)
    chosen = sorted(
        {
            int(place)
            for place in rng.integers(len(marks) - 1, size=int(rng.integers(1, 51)))
        },
        reverse=True,
    )
    for item in chosen:
        token = TOKENS[int(rng.integers(len(TOKENS)))]
        content = content[: marks[item] + 1] + token + content[marks[item + 1] :]
    return content


@damage("lengths changed")
def lengths(content: bytes, rng: Random) -> bytes:
    """Four or eight bytes by a number that is zero, negative or huge: what binary formats allocate by."""
    start, _ = _span(content, rng)
    width = int(rng.choice([1, 2, 4, 8]))
    number = int(
        rng.choice([0, 1, 2**7, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**62])
    ) % 2 ** (8 * width)
    return content[:start] + number.to_bytes(width, "little") + content[start + width :]


@damage("another encoding")
def encoded(content: bytes, rng: Random) -> bytes:
    """The text in another encoding, cut anywhere."""
    text = content.decode("utf-8", "replace")
    name = str(
        rng.choice(
            [
                "utf-16",
                "utf-16-le",
                "utf-16-be",
                "utf-32",
                "cp500",
                "utf-7",
                "shift_jis",
                "latin-1",
            ]
        )
    )
    return text.encode(name, "replace")[: int(rng.integers(1, 4 * len(content) + 2))]


def packed(content: bytes, name: str) -> bytes:
    """The content compressed as the suffix of a name says."""
    if name.endswith(".gz"):
        return gzip.compress(content, 1, mtime=0)
    if name.endswith(".bz2"):
        return bz2.compress(content, 1)
    codec = {".zst": "zstd", ".lz4": "lz4"}.get(name[-4:])
    if codec is None:
        return content
    sink: Any = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(content)
    return bytes(sink.getvalue())
