"""Column: one raw column of a log, and the numbers that its values become."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, NamedTuple, TypeAlias

import numpy as np

from invariant_bandits.checks import Array, InputError, finite_array
from invariant_bandits.storage import ArraySpec


class Categories(NamedTuple):
    """Decoded values of a column of categories.

    Parameters
    ----------
    places : array of int, shape (n,)
        Place of every value among the known categories, −1 where there is none.
    missing : array of bool, shape (n,)
        Whether the value is missing.
    """

    places: Array
    missing: Array


Codes: TypeAlias = tuple[tuple[float, ...], ...]
"""Numbers of every category."""


@dataclass(frozen=True)
class Column:
    """One raw column: numbers, categories, or a vector of numbers per row.

    Parameters
    ----------
    name : str
        Name of the column.
    categories : tuple of str or None
        Its categories, if it is categorical.
    width : int or None
        How many numbers each row has, if it holds vectors.
    filler : tuple of float or None
        What stands for a missing value: one number, `width` numbers, or the shares of the categories, () for
        none of them; None if a missing value cannot be used.
    marks_missing : bool
        Whether one more feature says that the value was missing.
    codes, parts : tuple of tuple of float, tuple of str
        What every category becomes instead of an indicator, and the names of these numbers; zeros if a
        category is unknown or missing.
    directions : array, shape (width, k), optional
        Directions along which the numbers of a vector become k features, instead of one feature each.

    >>> Column("country", categories=("DE", "FR")).features
    ('country=DE', 'country=FR')
    >>> Column("age", filler=(40.0,), marks_missing=True).encode([31.0, None], rows=2)
    array([[31.,  0.],
           [40.,  1.]])
    """

    name: str
    categories: tuple[str, ...] | None = None
    width: int | None = None
    filler: tuple[float, ...] | None = None
    marks_missing: bool = False
    codes: Codes = ()
    parts: tuple[str, ...] = ()
    directions: Annotated[Array, ArraySpec(("width", "k"))] | None = field(
        default=None, compare=False
    )

    def __post_init__(self) -> None:
        if self.directions is not None:
            finite_array("directions", self.directions, (self.width or 0, "k"))

    @cached_property
    def features(self) -> tuple[str, ...]:
        """Names of the features that it becomes."""
        names: tuple[str, ...] = self.parts or (self.name,)
        if self.parts:
            return names
        if self.categories is not None:
            names = tuple(f"{self.name}={category}" for category in self.categories)
        elif self.directions is not None:
            count = self.directions.shape[1]
            names = tuple(f"{self.name} direction {k + 1}" for k in range(count))
        elif self.width is not None:
            names = tuple(f"{self.name}[{index}]" for index in range(self.width))
        if self.marks_missing:
            names += (f"{self.name} missing",)
        return names

    def encode(self, values: Any, rows: int) -> Array:
        """Return its features (rows, number of features) from values (rows,) or (rows, width); missing:
        None, NaN.
        """
        if self.categories is None:
            block, missing = self._numbers(values, rows)
        else:
            block, missing = self._indicators(values)
        if self.marks_missing:
            block = np.column_stack([block, missing])
        return block

    def unknown(self, values: Sequence[Any]) -> set[str]:
        """Return the values that are none of its categories, missing ones aside."""
        known = [word for word in values if word is not None and word == word]
        words = set(map(str, known))
        return words.difference(self.categories or words)

    def _numbers(self, values: Any, rows: int) -> tuple[Array, Array]:
        """Return numbers (rows, 1 or width), filled where possible, and a mask (rows,) of missing ones."""
        try:
            array = _as_numbers(np.asarray(values))
        except (TypeError, ValueError, OverflowError, Warning) as error:
            raise InputError(f"column {self.name!r} must be numbers: {error}") from None
        wanted = (rows,) if self.width is None else (rows, self.width)
        if array.shape != wanted:
            raise InputError(
                f"column {self.name!r} must have shape {wanted}, got {array.shape}"
            )
        array = array.reshape(rows, -1)
        missing = np.isnan(array)
        if self.filler is not None and missing.any():
            array = np.where(missing, self.filler, array)
        if self.directions is not None:
            array = array @ self.directions
        return array, np.asarray(missing.any(axis=1))

    @cached_property
    def _category_codes(self) -> Array:
        """Numbers (L, k) of the categories: their codes, or indicators."""
        if self.codes:
            return np.array(self.codes)
        return np.eye(len(self.categories or ()))

    def _indicators(self, values: Any) -> tuple[Array, Array]:
        """Return indicators or codes (rows, k) and a mask (rows,) of missing values.

        They are zeros where the category is unknown.
        """
        assert self.categories is not None
        indices, missing = _category_indices(values, self.categories)
        codes = self._category_codes
        # The last row, which index −1 takes, is that of unknown categories.
        table = np.vstack([codes, np.zeros(codes.shape[1])])
        block = table.take(indices, axis=0)
        if self.filler and missing.any():
            block[missing] = self.filler
        return block, missing


def _as_numbers(raw: Array) -> Array:
    """Return an array as float64; ValueError for dates and durations, which numpy would convert."""
    kinds = (np.datetime64, np.timedelta64)
    objects = raw.flat if raw.dtype.kind == "O" else ()
    dates = any(isinstance(value, kinds) for value in objects)
    if raw.dtype.kind in "Mm" or dates:
        raise ValueError("dates and durations are not numbers")
    return np.asarray(raw, dtype=np.float64)


def column_length(values: Any) -> tuple[int, ...]:
    """(rows,) of a column, () of a scalar."""
    if isinstance(values, Categories):
        values = values[0]
    shape: tuple[int, ...] = np.shape(values)
    return shape[:1]


def _category_indices(values: Any, categories: Sequence[str]) -> Categories:
    """Find values among the categories; those of a log were found when they were decoded."""
    if isinstance(values, Categories):
        return values
    words: list[Any] = np.asarray(values).tolist()
    known = {category: index for index, category in enumerate(categories)}
    indices = np.array([known.get(str(word), -1) for word in words], dtype=np.int64)
    missing = [word is None or word != word for word in words]
    return Categories(indices, np.array(missing, dtype=bool))
