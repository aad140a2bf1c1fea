"""Column: one raw column of a log, and the features that it becomes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError


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

    >>> Column("country", categories=("DE", "FR")).features
    ('country=DE', 'country=FR')
    """

    name: str
    categories: tuple[str, ...] | None = None
    width: int | None = None

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features that it becomes."""
        if self.categories is not None:
            return tuple(f"{self.name}={category}" for category in self.categories)
        if self.width is not None:
            return tuple(f"{self.name}[{index}]" for index in range(self.width))
        return (self.name,)

    def expanded(self, values: Any, rows: int) -> Array:
        """Its features (rows, number of features) from its values, (rows,) or (rows, width)."""
        if self.categories is not None:
            return _indicators(self.categories, values)
        try:
            array = np.asarray(values, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(f"column {self.name!r} must be numbers: {error}") from None
        wanted = (rows,) if self.width is None else (rows, self.width)
        if array.shape != wanted:
            raise InputError(f"column {self.name!r} must have shape {wanted}, got {array.shape}")
        return array.reshape(rows, -1)


def _indicators(categories: tuple[str, ...], values: Any) -> Array:
    """Indicators (rows, categories) of the values; zeros where the category is unknown."""
    index = {category: place for place, category in enumerate(categories)}
    places = np.array([index.get(word, -1) for word in _texts(values)], dtype=np.int64)
    block = np.zeros((len(places), len(categories)))
    known = np.flatnonzero(places >= 0)
    block[known, places[known]] = 1.0
    return block


def _texts(values: Any) -> list[str]:
    """Categories as text, whatever they are."""
    words: list[Any] = np.asarray(values).tolist()
    return [word if isinstance(word, str) else str(word) for word in words]
