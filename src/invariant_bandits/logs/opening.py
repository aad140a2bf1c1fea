"""Which source is behind what the user gave: paths, or what is in memory; the registered formats decide."""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike
from typing import Any

from invariant_bandits.checks import InputError
from invariant_bandits.extras import needed
from invariant_bandits.files import FileError
from invariant_bandits.logs.formats.registry import FORMATS, format_of_file, format_of_object, has_known_suffix
from invariant_bandits.logs.partitions import PartitionedSource, keys_of
from invariant_bandits.logs.sources import Source
from invariant_bandits.logs.storage import find_files


def open_source(source: Any) -> Source:
    """The source behind a path, folder or pattern, several of them, or an object that some format accepts.

    Parameters
    ----------
    source : path, folder, pattern, list of these, Arrow table, frame, obp dictionary or Source
        Files must have the suffix of a registered format, all of them the same one; a folder is searched for them,
        hidden files left aside. Files are in the order of their names; keys of folders (date=2024-01-01) are columns,
        and then in the order of the keys.

    >>> import pyarrow as pa
    >>> open_source(pa.table({"reward": [1.0, 0.0], "x": [0.5, 2.0]})).total_rows
    2
    """
    needed("pyarrow", "reading a log")
    if isinstance(source, str | PathLike):
        return _open_files(str(source), _files_of(str(source)))
    if isinstance(source, list | tuple) and source and all(isinstance(one, str | PathLike) for one in source):
        return _open_files("source", [pair for one in source for pair in _files_of(str(one))])
    if isinstance(source, Source):
        return source
    found = format_of_object(source)
    if found is None:
        known = _either(["a path", "a folder", "a pattern", *_labels(in_memory=True)])
        raise InputError(f"source must be {known}, got {type(source).__name__}")
    return found.kind(source)


def _files_of(given: str) -> list[tuple[str, str]]:
    """(root, file) of the files of a registered format behind a path, folder or pattern."""
    root, found = find_files(given)
    if found != [given]:
        found = [name for name in found if has_known_suffix(name)]
    if not found:
        raise FileError(f"{given}: no {_either(_labels(in_memory=False))} file is there")
    return [(root, name) for name in found]


def _open_files(given: str, rooted: list[tuple[str, str]]) -> Source:
    keys = keys_of(rooted)
    paths = [path for _, path in rooted] if keys is None else keys.in_order()
    kinds = {format_of_file(path) for path in paths}
    found = kinds.pop()
    if kinds or found is None:
        by_label = sorted(FORMATS, key=lambda one: one.label)
        known = _either(f"all {one.label} ({one.endings})" for one in by_label if one.suffixes)
        raise FileError(f"{given}: files must be {known}, got {paths[:3]}")
    source = found.kind(tuple(paths))
    return source if keys is None else PartitionedSource(source, keys)


def _labels(*, in_memory: bool) -> list[str]:
    """What the formats of files, or of what is in memory, are called, in the order of the alphabet."""
    return sorted(one.label for one in FORMATS if (one.accepts is not None) == in_memory)


def _either(words: Iterable[str]) -> str:
    """'a, b or c'."""
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last
