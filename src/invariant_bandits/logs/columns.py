"""Column: one raw column of a log, and the features that it becomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError

MANY_ROWS = 1000
"""More rows than these come from a file, and are looked up at once."""


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
        What stands for a missing value: one number, `width` numbers, or the shares of the categories, () for none of
        them; None if a missing value cannot be used.
    marks_missing : bool
        Whether one more feature says that the value was missing.

    >>> Column("country", categories=("DE", "FR")).features
    ('country=DE', 'country=FR')
    >>> Column("age", filler=(40.0,), marks_missing=True).expanded([31.0, None], rows=2)
    array([[31.,  0.],
           [40.,  1.]])
    """

    name: str
    categories: tuple[str, ...] | None = None
    width: int | None = None
    filler: tuple[float, ...] | None = None
    marks_missing: bool = False

    @property
    def imputes(self) -> bool:
        """Whether a missing value can be used."""
        return self.filler is not None

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features that it becomes."""
        mark = (f"{self.name} missing",) if self.marks_missing else ()
        if self.categories is not None:
            return (*(f"{self.name}={category}" for category in self.categories), *mark)
        if self.width is not None:
            return (*(f"{self.name}[{index}]" for index in range(self.width)), *mark)
        return (self.name, *mark)

    def expanded(self, values: Any, rows: int) -> Array:
        """Its features (rows, number of features) from its values, (rows,) or (rows, width); missing: None or NaN."""
        block, missing = self._numbers(values, rows) if self.categories is None else self._indicators(values)
        return np.column_stack([block, missing]) if self.marks_missing else block

    def _numbers(self, values: Any, rows: int) -> tuple[Array, Array]:
        """Numbers (rows, 1 or width), missing ones filled where that is possible, and a mask (rows,) of those."""
        try:
            given = np.asarray(values)
            among = given.flat if given.dtype.kind == "O" else ()
            if given.dtype.kind in "Mm" or any(isinstance(one, np.datetime64 | np.timedelta64) for one in among):
                raise ValueError("dates and durations are none")
            array = np.asarray(given, dtype=np.float64)
        except (TypeError, ValueError, OverflowError, Warning) as error:
            raise InputError(f"column {self.name!r} must be numbers: {error}") from None
        wanted = (rows,) if self.width is None else (rows, self.width)
        if array.shape != wanted:
            raise InputError(f"column {self.name!r} must have shape {wanted}, got {array.shape}")
        array = array.reshape(rows, -1)
        missing = np.isnan(array)
        if self.filler is not None and missing.any():
            array = np.where(missing, self.filler, array)
        return array, np.asarray(missing.any(axis=1))

    def _indicators(self, values: Any) -> tuple[Array, Array]:
        """Indicators (rows, categories), zeros where the category is unknown, and a mask (rows,) of missing values."""
        assert self.categories is not None
        places, missing = _places(values, self.categories)
        block = np.zeros((len(places), len(self.categories)))
        known = np.flatnonzero(places >= 0)
        block[known, places[known]] = 1.0
        if self.filler and missing.any():
            block[missing] = self.filler
        return block, missing

    @classmethod
    def rebuilt(cls, described: Mapping[str, Any]) -> Column:
        """The column that these fields, from JSON, came from; those that older files lack have their defaults."""
        fields: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in described.items()}
        return cls(**fields)


def _places(values: Any, categories: Sequence[str]) -> tuple[Array, Array]:
    """(places (rows,) among the categories, −1 where there is none; mask (rows,) of missing values)."""
    array = np.asarray(values)
    if len(array) > MANY_ROWS and array.dtype == object:
        found = _places_of_texts(array, categories)
        if found is not None:
            return found
    words: list[Any] = array.tolist()
    index = {category: place for place, category in enumerate(categories)}
    places = [index.get(word if isinstance(word, str) else str(word), -1) for word in words]
    missing = [word is None or word != word for word in words]
    return np.array(places, dtype=np.int64), np.array(missing, dtype=bool)


def _places_of_texts(texts: Array, categories: Sequence[str]) -> tuple[Array, Array] | None:
    """The same for many rows of text, as they come from files; None if something else is among them."""
    import pyarrow as pa
    from pyarrow import compute

    try:
        column = pa.array(texts, type=pa.string(), from_pandas=True)
    except pa.ArrowException:
        return None
    places = compute.index_in(column, value_set=pa.array(list(categories), type=pa.string())).fill_null(-1)
    return np.asarray(places).astype(np.int64), np.asarray(column.is_null())
