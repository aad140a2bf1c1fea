"""Log formats by name, found by the suffix of a file or by what is in memory.

Formats are registered where they are defined.

    @register_log_format("pairs", suffixes=(".pairs",))
    class PairsSource: ...

is all it takes for `open_log`, `fit_logs`, folders, patterns and messages to know files that end in
".pairs".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from os import PathLike
from typing import Any, TypeAlias, TypeVar

from invariant_bandits.checks import InputError
from invariant_bandits.logs.files import PartitionedSource, find_files, partition_keys
from invariant_bandits.logs.sources import Source
from invariant_bandits.optional import pyarrow as pa
from invariant_bandits.registry import Registry
from invariant_bandits.storage import FileError

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".lz4": "lz4"}
"""Suffixes of compressed files; what a file really is, its first bytes say."""
Opener: TypeAlias = Callable[[Any], Source]
Kind = TypeVar("Kind", bound=Opener)


@dataclass(frozen=True)
class LogFormat:
    """A way to open logs.

    Parameters
    ----------
    name : str
        What the format is known by.
    kind : callable, returns a Source
        Called with a tuple of paths, or with the object that `accepts` knows.
    label : str
        What messages call it.
    suffixes : tuple of str
        How its files end; empty for what is in memory.
    packed : bool
        Whether its files may be compressed, with one more suffix.
    recognises : callable, (str) -> bool, or None
        Whether the file at a path is of this format, where other formats have the same suffixes.
    accepts : callable, object -> bool, or None
        Whether an object in memory is of this format; None for files.
    """

    name: str
    kind: Any
    label: str = ""
    suffixes: Any = ()
    accepts: Callable[[Any], bool] | None = None
    packed: bool = False
    recognises: Callable[[str], bool] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.suffixes, str) or bool(self.suffixes) == (
            self.accepts is not None
        ):
            raise InputError(
                f"log format {self.name!r} needs either suffixes, such as ('.csv',), or accepts, "
                f"got {self.suffixes!r}"
            )
        object.__setattr__(self, "label", self.label or self.name)

    def has_suffix_of(self, path: str) -> str:
        """Return the longest of the suffixes that the path ends in; empty if none.

        The suffix of a compression is left aside.
        """
        name = without_compression(path) if self.packed else path
        return max(
            (suffix for suffix in self.suffixes if name.endswith(suffix)),
            key=len,
            default="",
        )

    @property
    def endings(self) -> str:
        """The suffixes, for messages."""
        return ", ".join(self.suffixes) + (
            f"; also {', '.join(COMPRESSIONS)}" if self.packed else ""
        )


FORMATS: Registry[LogFormat] = Registry("log format", __name__.rpartition(".")[0])
"""All log formats; those that come with the package stand in the modules beside this one."""


def register_log_format(name: str, **about: Any) -> Callable[[Kind], Kind]:
    """Register a log format: decorate a class, or a function, that opens logs of the format.

    Parameters
    ----------
    name : str
        Name of the format; two formats cannot have the same name.
    label : str, optional
        Name of the format in messages; by default equal to `name`.
    suffixes : sequence of str
        Endings of file names of the format, such as (".csv", ".tsv"). For files, the decorated class or
        function is called with a tuple of paths, in the order of the log.
    accepts : callable, object -> bool
        Function that says whether an object in memory has the format. For objects in memory, the decorated
        class or function is called with the object. If several formats accept an object, the format that was
        registered last is used.
    packed : bool
        Whether the files may be compressed, for example as ".csv.gz" or ".csv.zst". The function
        `files.open_stream` reads compressed files.
    recognises : callable, path -> bool
        Function that says whether a file has the format, if another format has the same suffixes.

    >>> import pyarrow as pa, invariant_bandits as ib
    >>> from invariant_bandits.logs.formats.table import TableSource
    >>> def is_pair(source):
    ...     return isinstance(source, tuple) and len(source) == 2
    >>> @register_log_format("pair of lists", accepts=is_pair)
    ... def open_pair(source):
    ...     return TableSource(pa.table({"x": source[0], "reward": source[1]}))
    >>> ib.open_log(([1.0, 2.0, 4.0], [0.0, 1.0, 0.0])).moments(windows=1).moments
    WindowedMoments(dim=1, windows=1, rounds=3, of chosen actions)
    >>> FORMATS.remove("pair of lists")
    """

    def registered(kind: Kind) -> Kind:
        FORMATS.add(LogFormat(name, kind, **about))
        return kind

    return registered


def without_compression(path: str) -> str:
    """The path without the suffix of a compressed file.

    >>> without_compression("log.csv.gz"), without_compression("log.csv")
    ('log.csv', 'log.csv')
    """
    suffix = next((ending for ending in COMPRESSIONS if path.endswith(ending)), "")
    return path.removesuffix(suffix)


def format_of_file(path: str) -> LogFormat | None:
    """The format whose suffix the path has, the longest one; of several, the one that recognises the file."""
    longest = max((known.has_suffix_of(path) for known in FORMATS), key=len, default="")
    fitting = [
        known for known in FORMATS if longest and known.has_suffix_of(path) == longest
    ]
    if len(fitting) == 1:
        return fitting[0]
    fitting.sort(key=lambda known: known.recognises is None)
    return next(
        (
            known
            for known in fitting
            if known.recognises is None or known.recognises(path)
        ),
        None,
    )


def open_source(source: Any) -> Source:
    """The source behind a path, folder or pattern, several of them, or an object that some format accepts.

    Parameters
    ----------
    source : path, folder, pattern, list of these, Arrow table, frame, obp dictionary or Source
        Files must have the suffix of a registered format, all of them the same one; a folder is searched for
        them, hidden files left aside. Files are in the order of their names; keys of folders
        (date=2024-01-01) are columns, and then in the order of the keys.

    >>> import pyarrow as pa
    >>> open_source(pa.table({"reward": [1.0, 0.0], "x": [0.5, 2.0]})).total_rows
    2
    """
    pa.Table  # noqa: B018 - says that pyarrow is missing before anything is read
    if isinstance(source, str | PathLike):
        return _open_files(str(source), _files_of(str(source)))
    several = isinstance(source, list | tuple) and source
    if several and all(isinstance(path, str | PathLike) for path in source):
        return _open_files(
            "source", [pair for path in source for pair in _files_of(str(path))]
        )
    if isinstance(source, Source):
        return source
    for known in reversed(tuple(FORMATS)):
        if known.accepts is not None and known.accepts(source):
            opened: Source = known.kind(source)
            return opened
    names = _either(["a path", "a folder", "a pattern", *_labels(in_memory=True)])
    raise InputError(f"source must be {names}, got {type(source).__name__}")


def _files_of(location: str) -> list[tuple[str, str]]:
    """(root, file) of the files of a registered format behind a path, folder or pattern."""
    root, files = find_files(location)
    if files != [location]:
        files = [
            name
            for name in files
            if any(known.has_suffix_of(name) for known in FORMATS)
        ]
    if not files:
        raise FileError(
            f"{location}: no {_either(_labels(in_memory=False))} file is there"
        )
    return [(root, name) for name in files]


def _open_files(location: str, rooted: list[tuple[str, str]]) -> Source:
    keys = partition_keys(rooted)
    paths = list(keys)
    kinds = {format_of_file(path) for path in paths}
    log_kind = kinds.pop()
    if kinds or log_kind is None:
        by_label = sorted(
            (known for known in FORMATS if known.suffixes),
            key=lambda known: known.label,
        )
        names = _either(f"all {known.label} ({known.endings})" for known in by_label)
        raise FileError(f"{location}: files must be {names}, got {paths[:3]}")
    source = log_kind.kind(tuple(paths))
    return PartitionedSource(source, keys) if any(keys.values()) else source


def _labels(*, in_memory: bool) -> list[str]:
    """What the formats of files, or of what is in memory, are called, in the order of the alphabet."""
    return sorted(
        known.label for known in FORMATS if (known.accepts is not None) == in_memory
    )


def _either(words: Iterable[str]) -> str:
    """'a, b or c'."""
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last
