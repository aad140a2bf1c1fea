"""What bad input is told: the argument's name, what was given, and what is needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]


class InputError(ValueError):
    """An argument that cannot be used; nothing was changed."""


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
        given = np.asarray(value)
        if given.dtype.kind == "c":
            raise ValueError("complex numbers have no order")
        array = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be numbers of shape {_words(shape)}: {error}") from None
    if array.ndim != len(shape):
        raise InputError(f"{name} must have shape {_words(shape)}, got {array.shape}")
    for length, wanted in zip(array.shape, shape, strict=True):
        if isinstance(wanted, int) and length != wanted:
            raise InputError(f"{name} must have shape {_words(shape)}, got {array.shape}")
        if length == 0:
            raise InputError(f"{name} is empty: shape {array.shape}")
    return array


def require_finite(name: str, array: Array) -> None:
    """Raise if any entry is NaN or infinite, naming the first one."""
    if np.isfinite(array).all():
        return
    bad = np.argwhere(~np.isfinite(array))
    first = ", ".join(str(int(index)) for index in bad[0])
    more = f" and {len(bad) - 1} more such entries" if len(bad) > 1 else ""
    raise InputError(f"{name} must be finite, got {array[tuple(bad[0])]} at index ({first}){more}")


def probability(name: str, value: float) -> float:
    """Return `value` as a float strictly between 0 and 1, or raise."""
    return number_between(name, value, 0.0, 1.0)


def number_between(name: str, value: float, low: float, high: float) -> float:
    """Return `value` as a float strictly between `low` and `high`, or raise."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise InputError(f"{name} must be a number between {low:g} and {high:g}, got {value!r}")
    if not low < float(value) < high:
        raise InputError(f"{name} must lie strictly between {low:g} and {high:g}, got {value!r}")
    return float(value)


def whole_number(name: str, value: Any, least: int) -> int:
    """Return `value` as an int of at least `least`, or raise."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InputError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return int(value)


def one_of(name: str, value: str, allowed: Sequence[str]) -> str:
    """Return `value` if it is one of `allowed`, or raise."""
    if value not in allowed:
        raise InputError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")
    return value


def _words(shape: Sequence[int | str]) -> str:
    inside = ", ".join(map(str, shape))
    return f"({inside},)" if len(shape) == 1 else f"({inside})"
