"""Rows that do not fit into memory: kept in a file without a name, read stretch by stretch."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError
from invariant_bandits.files import FileError

IN_MEMORY = 2**24
"""So many numbers (128 MB) are kept in memory; more go to a file."""
AT_ONCE = 2**21
"""So many numbers (16 MB) are read from it at once."""


class NamelessFile:
    """Float64 numbers in a temporary file without a name, which is gone with the last who holds this."""

    def __init__(self) -> None:
        with tempfile.TemporaryFile() as file:
            self.descriptor = os.dup(file.fileno())

    def __del__(self) -> None:
        if "descriptor" in vars(self):
            os.close(self.descriptor)

    def append(self, numbers: Array) -> None:
        """Write numbers behind those that are there."""
        left = _bytes_of(numbers)
        try:
            while len(left):
                left = left[os.write(self.descriptor, left) :]
        except OSError as error:
            raise FileError(
                f"{tempfile.gettempdir()} cannot hold the offered actions, which are too many for memory"
                f" ({error.strerror}); set TMPDIR to a folder with more room, or take fewer rounds (latest)"
            ) from None

    def read(self, first: int, shape: tuple[int, ...]) -> Array:
        """Numbers from `first` on; the position of the file, which forked processes share, is left alone."""
        array = np.empty(shape)
        left, offset = _bytes_of(array), first * array.itemsize
        while len(left):
            got = os.preadv(self.descriptor, [left], offset)
            if got == 0:
                raise FileError("a temporary file has become shorter than what was written to it")
            left, offset = left[got:], offset + got
        return array


def _bytes_of(array: Array) -> memoryview:
    return memoryview(array.reshape(-1).view(np.uint8))  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class StoredRows:
    """Rows in a file that nobody else sees, made by RowCollector.

    Slices are read into arrays; forked processes may read at the same time.

    Parameters
    ----------
    file : NamelessFile
        Holds the numbers, row after row.
    first, rows : int
        Which rows of the file these are: the first one, and how many.
    tail : tuple of int
        Shape of a row in the file: (p,), or () if rows are numbers.
    change : callable, optional
        What is made of rows as they are read; one row in, one row out.
    width : int, optional
        Features of a row after `change`, if that is another number.
    """

    file: NamelessFile
    first: int
    rows: int
    tail: tuple[int, ...]
    change: Callable[[Array], Array] | None = None
    width: int | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """(rows, p), or (rows,)."""
        return (self.rows, *(self.tail if self.width is None else (self.width,)))

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, part: slice) -> Array:
        """The rows of a slice without a step, as an array."""
        start, stop, step = part.indices(self.rows)
        if step != 1:
            raise InputError(f"stored rows are read in stretches, got a slice with step {step}")
        numbers_before = (self.first + start) * int(np.prod(self.tail))
        raw = self.file.read(numbers_before, (max(stop - start, 0), *self.tail))
        return raw if self.change is None else np.ascontiguousarray(self.change(raw))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """All of them, in memory."""
        return np.asarray(self[:], dtype=dtype)

    def between(self, start: int, stop: int) -> StoredRows:
        """The rows from `start` up to, not including, `stop`; nothing is read."""
        return replace(self, first=self.first + start, rows=stop - start)

    def mapped(self, change: Callable[[Array], Array]) -> StoredRows:
        """`change` of every row as it is read."""
        before = self.change
        both = change if before is None else lambda rows: change(before(rows))
        width = None if not self.tail else int(change(self[:1]).shape[1])
        return replace(self, change=both, width=width)


class RowCollector:
    """Collects rows batch by batch: in memory as long as they are few, then in a file."""

    def __init__(self) -> None:
        self._held: list[Array] = []
        self._numbers = 0
        self._stored: StoredRows | None = None

    def append(self, rows: Array) -> None:
        """Add rows (n, p) or numbers (n,)."""
        self._held.append(rows)
        self._numbers += rows.size
        if self._numbers > (IN_MEMORY if self._stored is None else AT_ONCE):
            self._store()

    def drop(self, rows: int) -> None:
        """Forget the first so many."""
        if self._stored is not None:
            self._store()
            self._stored = self._stored.between(rows, len(self._stored))
            return
        while rows:
            first = self._held[0]
            self._held[0] = first[rows:]
            self._numbers -= first.size - self._held[0].size
            rows -= len(first) - len(self._held[0])
            if not len(self._held[0]):
                self._held.pop(0)

    @property
    def used(self) -> bool:
        """Whether anything was added."""
        return bool(self._held) or self._stored is not None

    def taken(self, starts: Array, sizes: Array) -> Array | StoredRows:
        """Stretches of what was added, one after the other: `sizes` (n,) rows from each of `starts` (n,)."""
        apart = np.flatnonzero(starts[1:] != starts[:-1] + sizes[:-1]) + 1
        runs = np.concatenate([[0], apart])
        lengths, rows = np.add.reduceat(sizes, runs), self.rows()
        if len(runs) == 1 and isinstance(rows, StoredRows):
            return rows.between(int(starts[0]), int(starts[0] + lengths[0]))
        if not isinstance(rows, StoredRows):
            ends = np.cumsum(sizes)
            return np.asarray(rows[np.arange(ends[-1]) + np.repeat(starts - (ends - sizes), sizes)])
        most = max(1, AT_ONCE // max(1, int(np.prod(rows.tail))))
        return collected(
            rows[at : min(at + most, start + length)]
            for start, length in zip(starts[runs].tolist(), lengths.tolist(), strict=True)
            for at in range(start, start + length, most)
        )

    def rows(self) -> Array | StoredRows:
        """All that were added: an array if they are few."""
        if self._stored is None:
            return self._held[0] if len(self._held) == 1 else np.concatenate(self._held)
        self._store()
        return self._stored

    def _store(self) -> None:
        """Move what is held to the file."""
        if self._stored is None:
            self._stored = StoredRows(NamelessFile(), 0, 0, self._held[0].shape[1:])
        if self._held:
            rows = np.concatenate(self._held, dtype=np.float64)
            self._stored.file.append(rows)
            self._stored = replace(self._stored, rows=self._stored.rows + len(rows))
        self._held, self._numbers = [], 0


def collected(batches: Iterable[Array]) -> Array | StoredRows:
    """The rows of all batches: an array if they are few."""
    found = RowCollector()
    for rows in batches:
        found.append(rows)
    return found.rows()


def release_memory() -> None:
    """Give back what reading a log has left in Arrow's pool."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()
