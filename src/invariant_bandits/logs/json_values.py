"""JSON values of lines, unless they are nested too deeply."""

from __future__ import annotations

import json
import re
from itertools import accumulate
from typing import Any

MOST_NESTED = 1000
"""Parsers call themselves for each level; a hundred thousand levels end the process."""


def too_deep(text: bytes) -> bool:
    """Whether lists and objects stand more than MOST_NESTED deep within one another in one of the lines.

    >>> too_deep(b"[[1]]"), too_deep(b"[" * 2000)
    (False, True)
    """
    start = 0
    # Leap over lines that are too short to matter.
    while start + MOST_NESTED < len(text):
        end = text.rfind(b"\n", start, start + MOST_NESTED)
        if end < 0:
            end = text.find(b"\n", start + MOST_NESTED)
            end = len(text) if end < 0 else end
            if _depth(text[start:end]) > MOST_NESTED:
                return True
        start = end + 1
    return False


def _depth(line: bytes) -> int:
    """How deep a line goes, at most; exactly if it may be much."""
    most = line.count(b"[") + line.count(b"{")
    if most <= MOST_NESTED:
        return most
    signs = re.findall(rb"[\[{\]}]", STRINGS.sub(b"", line))
    return max(accumulate((1 if sign in b"[{" else -1 for sign in signs), initial=0))


STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*"?')


def value_of(line: bytes) -> Any:
    """Return the JSON value of a line, or raise ValueError; a lone surrogate becomes a question mark.

    >>> value_of(rb'{"name": "\\ud83d"}')
    {'name': '?'}
    """
    if too_deep(line):
        raise ValueError(f"lists and objects stand more than {MOST_NESTED} deep")
    try:
        value = json.loads(line)
    except RecursionError:
        raise ValueError("lists and objects stand too deep") from None
    if b"\\ud" in line or b"\\uD" in line:
        value = json.loads(
            json.dumps(value, ensure_ascii=False).encode(errors="replace")
        )
    return value
