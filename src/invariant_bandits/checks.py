"""Input validation: an error names the argument, what was given, and what is needed."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from decimal import Decimal
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]

LARGEST_WHOLE = 2**63 - 1
"""Largest whole number of NumPy's int64."""
LARGEST_SEED = 2**128 - 1
"""Largest seed: a SeedSequence mixes 128 bits."""


class InputError(ValueError):
    """Error: an argument cannot be used. The call that raised the error has changed nothing.

    >>> import invariant_bandits as ib
    >>> ib.LinUCB(0)
    Traceback (most recent call last):
        ...
    invariant_bandits.checks.InputError: dim must be ...
    """


def finite_array(name: str, value: Any, shape: Sequence[int | str]) -> Array:
    """Return `value` as a finite float64 array of the given shape, or raise.

    `shape` lists one entry per axis: an int where the length is fixed, a letter where it is free.
    """
    array = shaped_array(name, value, shape)
    require_finite(name, array)
    return array


def shaped_array(name: str, value: Any, shape: Sequence[int | str]) -> Array:
    """Return `value` as a float64 array of the given shape, finite or not, or raise."""
    try:
        array = raw = np.asarray(value)
        if type(value) is not np.ndarray or raw.dtype != np.float64:
            _refuse_no_numbers(value, raw)
            array = np.asarray(raw, dtype=np.float64)
    except (TypeError, ValueError, OverflowError, Warning) as error:
        raise InputError(
            f"{name} must be numbers of shape {_words(shape)}: {error}"
        ) from None
    if array.ndim != len(shape):
        raise InputError(f"{name} must have shape {_words(shape)}, got {array.shape}")
    for length, wanted in zip(array.shape, shape, strict=True):
        if isinstance(wanted, int) and length != wanted:
            raise InputError(
                f"{name} must have shape {_words(shape)}, got {array.shape}"
            )
        if length == 0:
            raise InputError(f"{name} is empty: shape {array.shape}")
    return array


def _refuse_no_numbers(value: Any, raw: Array) -> None:
    """Raise unless the array that was made of `value` holds numbers, all of them at hand."""
    if _is_masked(value):
        raise ValueError(
            "masked entries have no value, fill them in or leave their rows out"
        )
    foreign = raw.dtype.kind == "O" and any(
        not isinstance(entry, Real | Decimal) for entry in raw.flat
    )
    if (
        foreign
        or raw.dtype.kind not in "biufO"
        or (raw.dtype.kind == "O" and raw is value)
    ):
        raise ValueError(f"values of type {raw.dtype.name} are not numbers")


def _is_masked(value: Any) -> bool:
    """Whether an array, or one in a list of such, may have masked entries."""
    if isinstance(value, list | tuple) and value and not isinstance(value[0], Real):
        return any(_is_masked(item) for item in value)
    return isinstance(value, np.ma.MaskedArray)


def require_finite(name: str, array: Array) -> None:
    """Raise if any entry is NaN or infinite, naming the first one."""
    if np.isfinite(array).all():
        return
    bad = np.argwhere(~np.isfinite(array))
    first = ", ".join(str(int(index)) for index in bad[0])
    more = f" and {len(bad) - 1} more such entries" if len(bad) > 1 else ""
    raise InputError(
        f"{name} must be finite, got {array[tuple(bad[0])]} at index ({first}){more}"
    )


LEAST_PROBABILITY = 1e-300
"""Its inverse is finite, and so is the logarithm of that."""


def probability(name: str, value: float) -> float:
    """Return `value` as a float strictly between 0 and 1, with a finite inverse, or raise."""
    number = number_between(name, value, 0.0, 1.0)
    if number < LEAST_PROBABILITY:
        raise InputError(
            f"{name} must be at least {LEAST_PROBABILITY:g}, got {value!r}"
        )
    return number


def number_between(name: str, value: float, low: float, high: float) -> float:
    """Return `value` as a float strictly between `low` and `high`, or raise."""
    if isinstance(value, bool) or not isinstance(
        value, int | float | np.integer | np.floating
    ):
        raise InputError(
            f"{name} must be a number between {low:g} and {high:g}, got {value!r}"
        )
    if not low < value < high or abs(value) > sys.float_info.max:
        raise InputError(
            f"{name} must lie strictly between {low:g} and {high:g}, got {value!r:.40}"
        )
    return float(value)


def whole_number(name: str, value: Any, least: int, most: int = LARGEST_WHOLE) -> int:
    """Return `value` as an int of at least `least` and at most `most`, 2^63 − 1 if not given, or raise."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int | np.integer)
        or value < least
    ):
        raise InputError(
            f"{name} must be a whole number of at least {least}, got {value!r:.40}"
        )
    if value > most:
        raise InputError(
            f"{name} must be below 2^{most.bit_length()}, got {value!r:.40}"
        )
    return int(value)


def whole_seed(value: Any) -> int:
    """Return the seed of a generator as an int from 0 to 2^128 − 1, or raise."""
    return whole_number("seed", value, 0, LARGEST_SEED)


def one_of(name: str, value: Any, allowed: Sequence[str]) -> str:
    """Return `value` if it is one of `allowed`, or raise."""
    if not isinstance(value, str) or value not in allowed:
        raise InputError(
            f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r:.80}"
        )
    return value


def _words(shape: Sequence[int | str]) -> str:
    return str(tuple(shape)).replace("'", "")


CONTROL_CHARS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # controls, the beginnings of escape sequences among them
    "\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff"  # direction, and zero-width characters
    "\u2028\u2029\ufff9-\ufffb\U000e0000-\U000e0fff\ud800-\udfff]"  # line ends, tags, lone surrogates
)
LINE_ENDS = re.compile(r"[\t\n]")


def escape_control_chars(text: str) -> str:
    """Return the text with control characters escaped; newlines and tabs stay.

    >>> print(escape_control_chars("price\\x1b[31m\\u202e"))
    price\\x1b[31m\\u202e
    """
    return CONTROL_CHARS.sub(_escaped, text)


def escape_line(text: str) -> str:
    """Return the text with control characters, newlines and tabs escaped, for single lines."""
    return LINE_ENDS.sub(_escaped, escape_control_chars(text))


def _escaped(match: re.Match[str]) -> str:
    return match.group().encode("unicode_escape").decode()


def escape_json(text: str) -> str:
    """Return equivalent JSON text with control characters escaped as JSON escapes them.

    >>> print(escape_json('{"a\\u202e": 1}'))
    {"a\\u202e": 1}
    """
    return CONTROL_CHARS.sub(_escaped_json, text)


def _escaped_json(match: re.Match[str]) -> str:
    units = match.group().encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def in_sentence(note: str) -> str:
    """Return a note with a capital and a full stop, if it does not end with a question mark.

    >>> in_sentence("is a unit wrong?"), in_sentence("units differ")
    ('Is a unit wrong?', 'Units differ.')
    """
    end = "" if note.endswith("?") else "."
    return f"{note[0].upper()}{note[1:]}{end}"


def format_names(names: Sequence[str]) -> str:
    """The first twenty names, for messages."""
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return ", ".join(map(escape_line, names[:20])) + more
