"""Text from elsewhere, made safe to show: signs that steer terminals or turn lines around are written out."""

from __future__ import annotations

import re

STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # controls, the beginnings of escape sequences among them
    "\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff"  # direction, and signs of no width
    "\u2028\u2029\ufff9-\ufffb\U000e0000-\U000e0fff\ud800-\udfff]"  # line ends, annotations, tags, halves of signs
)
LINE_ENDS = re.compile(r"[\t\n]")


def visible(text: str) -> str:
    """The text with signs that are no writing written out; newlines and tabs stay.

    >>> print(visible("price\\x1b[31m\\u202e"))
    price\\x1b[31m\\u202e
    """
    return STEERING.sub(_written_out, text)


def visible_line(text: str) -> str:
    """The same for what has to stay in one line, such as a name: newlines and tabs are written out, too."""
    return LINE_ENDS.sub(_written_out, visible(text))


def _written_out(found: re.Match[str]) -> str:
    return found.group().encode("unicode_escape").decode()


def visible_json(text: str) -> str:
    """JSON text that means the same, with such signs as JSON writes them out.

    >>> print(visible_json('{"a\\u202e": 1}'))
    {"a\\u202e": 1}
    """
    return STEERING.sub(_in_json, text)


def _in_json(found: re.Match[str]) -> str:
    units = found.group().encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
