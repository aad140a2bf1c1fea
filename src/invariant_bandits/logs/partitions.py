"""Folders such as date=2024-01-01/country=DE, as Hive and Spark write them: keys are columns of the files below."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any
from urllib.parse import unquote

from invariant_bandits.files import FileError
from invariant_bandits.logs.sources import SourceAround, Task

MISSING = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class Keys:
    """The keys of all files of a log, typed: whole numbers, dates or text.

    Parameters
    ----------
    names : tuple of str
        The keys in the order of the folders.
    kinds : tuple of pyarrow.DataType
        Their types.
    values : mapping of str to tuple
        Path → one value per key.
    """

    names: tuple[str, ...]
    kinds: tuple[Any, ...]
    values: Mapping[str, tuple[Any, ...]]

    def in_order(self) -> list[str]:
        """The files in the order of their keys, numbers as numbers; then of their names."""
        return sorted(self.values, key=lambda path: ([(one is None, one) for one in self.values[path]], path))


def keys_of(rooted: Sequence[tuple[str, str]]) -> Keys | None:
    """The keys in the folders between root and file, from pairs (root, path); None if there are none."""
    import pyarrow as pa

    words = {path: _words(path.removeprefix(root)) for root, path in rooted}
    names = tuple(next(iter(words.values()), {}))
    for path, found in words.items():
        if tuple(found) != names:
            here, there = ("/".join(map("{}=…".format, one)) or "none" for one in (found, names))
            raise FileError(f"{path}: all files must be in folders with the same keys, got {here} after {there}")
    if not names:
        return None
    kinds, columns = [], []
    for name in names:
        texts = [found[name] for found in words.values()]
        kind, parsed = _typed(texts)
        kinds.append({int: pa.int64(), date: pa.date32(), str: pa.string()}[kind])
        columns.append(parsed)
    return Keys(names, tuple(kinds), dict(zip(words, zip(*columns, strict=True), strict=True)))


def _words(path: str) -> dict[str, str | None]:
    """Key → value of the folders of a path."""
    pairs = [part.partition("=") for part in path.replace("\\", "/").split("/")[:-1] if "=" in part[1:]]
    return {unquote(key): None if value == MISSING else unquote(value) for key, _, value in pairs}


def _typed(texts: Sequence[str | None]) -> tuple[type, list[Any]]:
    """The first of whole numbers, dates and text that all values are."""
    parsers: dict[type, Callable[[str], Any]] = {int: _whole, date: date.fromisoformat}
    for kind, parse in parsers.items():
        try:
            return kind, [None if text is None else parse(text) for text in texts]
        except ValueError:
            continue
    return str, list(texts)


def _whole(text: str) -> int:
    """A whole number as it is usually written; 007 is a name."""
    number = int(text)
    if str(number) != text and not (text.isdigit() and len(text) == 2):  # months and hours have two digits
        raise ValueError(text)
    return number


@dataclass
class PartitionedSource(SourceAround):
    """A source of files with the keys of their folders as columns; a column of the files themselves goes before.

    Parameters
    ----------
    inner : Source
        The files.
    keys : Keys
        The keys of every file.
    """

    keys: Keys
    arrow_schema: Any = field(init=False)

    def __post_init__(self) -> None:
        import pyarrow as pa

        self.arrow_schema = self.inner.arrow_schema
        for name, kind in zip(self.keys.names, self.keys.kinds, strict=True):
            if name not in self.arrow_schema.names:
                self.arrow_schema = self.arrow_schema.append(pa.field(name, kind))

    def batches(self, task: Task, columns: Sequence[str], first_row: int | None = None) -> Iterator[tuple[int, Any]]:
        """Batches of the files with the keys that are wanted."""
        import pyarrow as pa

        here = self.inner.arrow_schema.names
        read = [name for name in columns if name in here] or list(here[:1])
        values = dict(zip(self.keys.names, self.keys.values[task.file], strict=True))
        kinds = dict(zip(self.keys.names, self.keys.kinds, strict=True))
        for row, batch in self.inner.batches(task, read, first_row):
            arrays = [
                batch.column(name) if name in here else pa.repeat(pa.scalar(values[name], kinds[name]), len(batch))
                for name in columns
            ]
            yield row, pa.RecordBatch.from_arrays(arrays, list(columns))
