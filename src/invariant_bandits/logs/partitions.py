"""Folders such as date=2024-01-01: their keys as columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import date
from typing import Any
from urllib.parse import unquote

from invariant_bandits.logs.sources import Batches, Source, SourceAround, Task
from invariant_bandits.optional import pyarrow as pa
from invariant_bandits.storage import FileError

MISSING = "__HIVE_DEFAULT_PARTITION__"


def partition_keys(rooted: Sequence[tuple[str, str]]) -> dict[str, dict[str, Any]]:
    """Return path → key → Arrow scalar of the keys in the folders between root and file.

    `rooted` has pairs (root, path).

    Values are whole numbers, dates or text. All files have the same keys, or none; they are in the order of
    the keys, numbers as numbers, then of their names.
    """
    words = {path: _words(path.removeprefix(root)) for root, path in rooted}
    names = tuple(next(iter(words.values()), {}))
    for path, keys in words.items():
        if tuple(keys) != names:
            own, first = (
                "/".join(map("{}=…".format, some)) or "none" for some in (keys, names)
            )
            raise FileError(
                f"{path}: all folders must have the same keys, got {own} after {first}"
            )
    columns = {name: _typed([keys[name] for keys in words.values()]) for name in names}
    keys_of = {
        path: {name: columns[name][index] for name in names}
        for index, path in enumerate(words)
    }

    def rank(path: str) -> tuple[list[Any], str]:
        return [(not key.is_valid, key.as_py()) for key in keys_of[path].values()], path

    return {
        path: keys_of[path]
        for path in (sorted(keys_of, key=rank) if names else keys_of)
    }


def _words(path: str) -> dict[str, str | None]:
    """Key → value of the folders of a path."""
    pairs = [
        part.partition("=")
        for part in path.replace("\\", "/").split("/")[:-1]
        if "=" in part[1:]
    ]
    return {
        unquote(key): None if value == MISSING else unquote(value)
        for key, _, value in pairs
    }


def _typed(texts: Sequence[str | None]) -> Any:
    """Return an Arrow array of the first of whole numbers, dates and text that all values are."""
    for parse in (_whole, date.fromisoformat):
        with suppress(ValueError):
            return pa.array([None if text is None else parse(text) for text in texts])
    return pa.array(texts, pa.string())


def _whole(text: str) -> int:
    """A whole number as it is usually written; 007 is a name."""
    number = int(text)
    # Months and hours have two digits.
    if str(number) != text and not (text.isdigit() and len(text) == 2):
        raise ValueError(text)
    return number


class PartitionedSource(SourceAround):
    """A source of files with the keys of their folders as columns.

    A column of the files themselves goes before.

    Parameters
    ----------
    inner : Source
        The files.
    keys : mapping of str to mapping of str to Arrow scalar
        Path → key → value.
    """

    def __init__(self, inner: Source, keys: Mapping[str, Mapping[str, Any]]) -> None:
        super().__init__(inner)
        self.keys, self.arrow_schema = keys, inner.arrow_schema
        for name, value in next(iter(keys.values())).items():
            if name not in inner.arrow_schema.names:
                self.arrow_schema = self.arrow_schema.append(pa.field(name, value.type))

    def batches(self, task: Task, columns: Sequence[str]) -> Batches:
        """Yield batches of the files with the keys that are wanted."""
        own, keys = self.inner.arrow_schema.names, self.keys[task.file]
        read = [name for name in columns if name in own] or list(own[:1])
        for row, batch in self.inner.batches(task, read):
            for name in columns:
                if name not in own:
                    batch = batch.append_column(name, pa.repeat(keys[name], len(batch)))
            yield row, batch.select(list(columns))
