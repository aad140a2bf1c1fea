"""Where files are and how to open them: on this machine or behind an address such as s3://…, compressed or not."""

from __future__ import annotations

import glob
import re
from pathlib import Path
from typing import Any

from invariant_bandits.files import FileError

ADDRESS = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]+://")
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".lz4": "lz4"}
"""Suffixes of compressed files; what a file really is, its first bytes say."""
PATIENCE = 10
"""Seconds after which a store of pyarrow's that does not answer is given up, where it can be told."""
MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2", b"\x04\x22\x4d\x18": "lz4"}


def is_remote(path: str) -> bool:
    """Whether a path is an address, not a file of this machine."""
    return ADDRESS.match(path) is not None


def without_compression(path: str) -> str:
    """The path without the suffix of a compressed file.

    >>> without_compression("log.csv.gz"), without_compression("log.csv")
    ('log.csv', 'log.csv')
    """
    suffix = next((one for one in COMPRESSIONS if path.endswith(one)), "")
    return path.removesuffix(suffix)


def open_file(path: str) -> Any:
    """A file opened for reading at any place, a pyarrow.NativeFile; close it."""
    import pyarrow as pa

    if not is_remote(path):
        return pa.OSFile(path)
    system, inner = _file_system(path)
    return pa.PythonFile(system.open(inner, "rb"), mode="r")


def open_stream(path: str) -> Any:
    """The content of a file from its beginning, decompressed if its first bytes say that it is compressed; close it."""
    import pyarrow as pa

    file = open_file(path)
    try:
        head = file.read(4)
        file.seek(0)
    except BaseException:
        file.close()
        raise
    found = next((name for magic, name in MAGIC.items() if head.startswith(magic)), None)
    return file if found is None else pa.CompressedInputStream(file, found)


def find_files(given: str) -> tuple[str, list[str]]:
    """The folder that a path, folder or pattern is about, and the files in it, sorted; hidden ones left aside."""
    if is_remote(given):
        return _find_remote(given)
    path = Path(given)
    if path.is_dir():
        below = [one for one in path.rglob("*") if one.is_file() and not _is_hidden(one.relative_to(path).parts)]
        return given, sorted(map(str, below))
    if path.is_file():
        return str(path.parent), [given]
    return _root(given), sorted(name for name in glob.glob(given, recursive=True) if Path(name).is_file())


def _find_remote(given: str) -> tuple[str, list[str]]:
    system, inner = _file_system(given)
    scheme = given.partition("://")[0]
    try:
        if system.isfile(inner):
            return given.rpartition("/")[0], [given]
        if glob.has_magic(inner):
            root, found = _root(given), system.glob(inner)
        else:
            root, found = given, system.find(inner) if system.exists(inner) else []
    except OSError as error:
        raise FileError(f"{given} is not readable: {' '.join(str(error).split())}") from error
    full = (str(system.unstrip_protocol(name)) if "://" not in name else name for name in found)
    named = sorted(f"{scheme}://{name.partition('://')[2]}" for name in full)
    inside = len(root.rstrip("/")) + 1
    return root, [name for name in named if not _is_hidden(tuple(name[inside:].split("/")))]


def _file_system(address: str) -> tuple[Any, str]:
    """The fsspec file system behind an address, and the path within it."""
    scheme = address.partition("://")[0]
    try:
        import fsspec
    except ModuleNotFoundError:
        raise FileError(
            f"{address}: {scheme}:// needs the package fsspec: pip install 'invariant-bandits[remote]'"
        ) from None
    try:
        found: tuple[Any, str] = fsspec.core.url_to_fs(address)
    except (ImportError, ValueError) as error:
        if scheme in ("s3", "gs", "gcs", "hdfs", "abfs", "abfss"):
            return _arrow_file_system(address, error)
        raise FileError(f"{address}: {scheme}:// cannot be opened: {error}") from None
    return found


def _arrow_file_system(address: str, why_not: Exception) -> tuple[Any, str]:
    """The same through a file system that pyarrow itself brings along."""
    import pyarrow as pa
    from fsspec.implementations.arrow import ArrowFSWrapper
    from pyarrow import fs

    scheme, _, inner = address.partition("://")
    limit = f"?retry_limit_seconds={PATIENCE}" if scheme in ("gs", "gcs") else ""
    try:
        system, _ = fs.FileSystem.from_uri(f"{scheme}://{inner.partition('/')[0]}{limit}")
    except (pa.ArrowException, OSError, ValueError) as error:
        raise FileError(f"{address} cannot be opened: {why_not}; and with pyarrow alone: {error}") from None
    return ArrowFSWrapper(system), inner


def _root(pattern: str) -> str:
    """The folder before the first wildcard of a pattern."""
    return re.split(r"[*?\[]", pattern, maxsplit=1)[0].rpartition("/")[0]


def _is_hidden(parts: tuple[str, ...]) -> bool:
    """Spark and others leave files such as _SUCCESS and .crc beside the data."""
    return any(part.startswith(("_", ".")) for part in parts)
