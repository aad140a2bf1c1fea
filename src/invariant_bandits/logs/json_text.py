"""Lines of JSON from anywhere: what stands too deep, or is half a sign, is found before it does harm."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

MOST_NESTED = 1000
"""Parsers call themselves for each level; a hundred thousand levels end the process."""
STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*"?')


def too_deep(text: bytes) -> bool:
    """Whether lists and objects stand more than MOST_NESTED deep within one another in one of the lines.

    >>> too_deep(b"[[1]]"), too_deep(b"[" * 2000)
    (False, True)
    """
    return any(_depth(line) > MOST_NESTED for line in _long_lines(text, MOST_NESTED))


def value_of(line: bytes) -> Any:
    """What a line says, or ValueError; a half of a sign of two halves becomes a question mark.

    >>> value_of(rb'{"name": "\\ud83d"}')
    {'name': '?'}
    """
    if too_deep(line):
        raise ValueError(f"lists and objects stand more than {MOST_NESTED} deep")
    try:
        found = json.loads(line)
    except RecursionError:
        raise ValueError("lists and objects stand too deep") from None
    if b"\\ud" in line or b"\\uD" in line:
        found = json.loads(json.dumps(found, ensure_ascii=False).encode(errors="replace"))
    return found


def _long_lines(text: bytes, length: int) -> Iterator[bytes]:
    """The lines with more than `length` bytes; the others are leapt over."""
    start = 0
    while start + length < len(text):
        end = text.rfind(b"\n", start, start + length)
        if end < 0:
            end = text.find(b"\n", start + length)
            end = len(text) if end < 0 else end
            yield text[start:end]
        start = end + 1


def _depth(line: bytes) -> int:
    """How deep a line goes, at most; exactly if it may be much."""
    most = line.count(b"[") + line.count(b"{")
    if most <= MOST_NESTED:
        return most
    depth = deepest = 0
    for sign in re.finditer(rb"[\[{]+|[\]}]+", STRINGS.sub(b"", line)):
        run = sign.end() - sign.start()
        depth += run if sign.group()[0] in b"[{" else -run
        deepest = max(deepest, depth)
    return deepest
