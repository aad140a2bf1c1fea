"""Files behind paths, folders, patterns and addresses; keys of folders such as date=2024-01-01."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import date
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from invariant_bandits.logs.sources import Batches, Source, SourceAround, Task
from invariant_bandits.optional import pyarrow as pa
from invariant_bandits.storage import FileError


@contextmanager
def naming_file(path: str) -> Iterator[None]:
    """Errors of pyarrow and of the disk about a file become FileError with its path."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise FileError(
            f"{path} is not readable: {' '.join(str(error).split())}"
        ) from error


ADDRESS = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]+://")
MAGIC = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bz2",
    b"\x04\x22\x4d\x18": "lz4",
}


def is_remote(path: str) -> bool:
    """Whether a path is an address, not a file of this machine."""
    return ADDRESS.match(path) is not None


def open_file(path: str) -> Any:
    """A file opened for random access, a pyarrow.NativeFile; close it."""
    if not is_remote(path):
        return pa.OSFile(path)
    system, inner = _file_system(path)
    return pa.PythonFile(system.open(inner, "rb"), mode="r")


def open_stream(path: str) -> Any:
    """Return the content of a file from its beginning, decompressed; close it.

    Its first bytes say whether it is compressed.
    """
    file = open_file(path)
    head = file.read(4)
    file.seek(0)
    codec = next(
        (name for magic, name in MAGIC.items() if head.startswith(magic)), None
    )
    return file if codec is None else pa.CompressedInputStream(file, codec)


def find_files(location: str) -> tuple[str, list[str]]:
    """Return the folder of a path, folder or pattern, and the files in it, sorted.

    Hidden files are left aside.
    """
    if is_remote(location):
        return _find_remote(location)
    path = Path(location)
    if path.is_dir():
        below = (
            file
            for file in path.rglob("*")
            if not _is_hidden(file.relative_to(path).parts)
        )
        return location, sorted(str(file) for file in below if file.is_file())
    if path.is_file():
        return str(path.parent), [location]
    return _root(location), sorted(
        name for name in glob.glob(location, recursive=True) if Path(name).is_file()
    )


def _find_remote(address: str) -> tuple[str, list[str]]:
    system, inner = _file_system(address)
    scheme = address.partition("://")[0]
    with naming_file(address):
        if system.isfile(inner):
            return address.rpartition("/")[0], [address]
        if glob.has_magic(inner):
            root = _root(address)
            names = system.glob(inner)
        else:
            root = address
            names = system.find(inner) if system.exists(inner) else []
    full = (
        str(system.unstrip_protocol(name)) if "://" not in name else name
        for name in names
    )
    named = sorted(f"{scheme}://{name.partition('://')[2]}" for name in full)
    inside = len(root.rstrip("/")) + 1
    return root, [
        name for name in named if not _is_hidden(tuple(name[inside:].split("/")))
    ]


def _file_system(address: str) -> tuple[Any, str]:
    """The fsspec file system behind an address, and the path within it."""
    scheme = address.partition("://")[0]
    try:
        import fsspec
    except ModuleNotFoundError:
        raise FileError(
            f"{address}: {scheme}:// needs the package fsspec: pip install "
            "'invariant-bandits[remote]'"
        ) from None
    try:
        system: tuple[Any, str] = fsspec.core.url_to_fs(address)
    except (ImportError, ValueError) as error:
        raise FileError(f"{address}: {scheme}:// cannot be opened: {error}") from None
    return system


def _root(pattern: str) -> str:
    """The folder before the first wildcard of a pattern."""
    return re.split(r"[*?\[]", pattern, maxsplit=1)[0].rpartition("/")[0]


def _is_hidden(parts: tuple[str, ...]) -> bool:
    """Spark and others leave files such as _SUCCESS and .crc beside the data."""
    return any(part.startswith(("_", ".")) for part in parts)


MISSING = "__HIVE_DEFAULT_PARTITION__"


def partition_keys(rooted: Sequence[tuple[str, str]]) -> dict[str, dict[str, Any]]:
    """Return path → key → Arrow scalar of the keys in the folders between root and file.

    `rooted` has pairs (root, path).

    Values are whole numbers, dates or text. All files have the same keys, or none; they are in the order of
    the keys, numbers as numbers, then of their names.
    """
    words = {path: _words(path.removeprefix(root)) for root, path in rooted}
    names = tuple(next(iter(words.values()), {}))
    if not any(words.values()):
        return {path: {} for path in words}
    for path, keys in words.items():
        if tuple(keys) != names:
            these, first = (
                "/".join(map("{}=…".format, some)) or "none" for some in (keys, names)
            )
            raise FileError(
                f"{path}: all folders must have the same keys, got {these} after {first}"
            )
    columns = {name: _typed([keys[name] for keys in words.values()]) for name in names}
    keys_of = {}
    for index, path in enumerate(words):
        keys_of[path] = {name: columns[name][index] for name in names}

    def rank(path: str) -> tuple[list[Any], str]:
        return [(not key.is_valid, key.as_py()) for key in keys_of[path].values()], path

    return {path: keys_of[path] for path in sorted(keys_of, key=rank)}


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
        self.keys = keys
        self.arrow_schema = inner.arrow_schema
        for name, value in next(iter(keys.values())).items():
            if name not in inner.arrow_schema.names:
                self.arrow_schema = self.arrow_schema.append(pa.field(name, value.type))

    def batches(self, task: Task, columns: Sequence[str]) -> Batches:
        """Yield batches of the files with the keys that are wanted."""
        in_file = self.inner.arrow_schema.names
        keys = self.keys[task.file]
        read = [name for name in columns if name in in_file] or list(in_file[:1])
        for row, batch in self.inner.batches(task, read):
            for name in columns:
                if name not in in_file:
                    batch = batch.append_column(name, pa.repeat(keys[name], len(batch)))
            yield row, batch.select(list(columns))
