"""Files behind paths, folders, patterns and addresses, compressed or not."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
            root, names = _root(address), system.glob(inner)
        else:
            root, names = address, system.find(inner) if system.exists(inner) else []
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
        how = "pip install 'invariant-bandits[remote]'"
        raise FileError(
            f"{address}: {scheme}:// needs the package fsspec: {how}"
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
