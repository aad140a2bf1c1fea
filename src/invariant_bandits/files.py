"""One file form for everything that is stored: named arrays with a checked header, written whole or not at all.

A file is a safetensors container (no pickle, no code) whose metadata carry the product, the format version, the
kind of content, a JSON description and a SHA-256 over all of it. Reading verifies every one of them.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from invariant_bandits.checks import InputError

PRODUCT = "invariant-bandits"
FORMAT_VERSION = 1
LONGEST_HEADER = 1 << 28


class FileError(InputError):
    """A stored file that is damaged, foreign or too new."""


def write(
    path: str | PathLike[str], kind: str, arrays: Mapping[str, np.ndarray[Any, Any]], about: Mapping[str, Any]
) -> None:
    """Store `arrays` and the JSON-able `about` under `path`, replacing it in one step."""
    replace_file(path, encode(kind, arrays, about))


def encode(kind: str, arrays: Mapping[str, np.ndarray[Any, Any]], about: Mapping[str, Any]) -> bytes:
    """The content of a file that holds `arrays` and the JSON-able `about`."""
    from safetensors.numpy import save

    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    described = json.dumps(dict(about), sort_keys=True, allow_nan=False)
    header = {
        "product": PRODUCT,
        "format": str(FORMAT_VERSION),
        "kind": kind,
        "about": described,
        "sha256": digest(kind, described, arrays),
    }
    return _in_order(save(arrays, metadata=header))


def _in_order(content: bytes) -> bytes:
    """The same file with its metadata in the order of the alphabet: the same state has the same bytes."""
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    return content[:8] + text.ljust(length) + content[8 + length :]


def replace_file(path: str | PathLike[str], content: bytes) -> None:
    """Put `content` under `path` so that a reader sees the old file or the new one, never a part.

    Where the system can (Linux), what is being written has no name until it is whole. What a process that was killed
    left behind is removed. A link is followed; what is no file (a device, a pipe, a folder) is refused.
    """
    target = _checked_target(path)
    with _beside(target) as scratch:
        try:
            _write_unnamed(scratch, content, target)
        except (AttributeError, NotImplementedError, OSError):
            with _held(scratch) as handle:
                _write_through(handle, content, _mode(target))
                os.replace(scratch, target)


@contextmanager
def replacing(path: str | PathLike[str]) -> Iterator[Path]:
    """A path to write to, by whatever writes; when the block ends well, its content is put under `path`.

    The same promises as of `replace_file`, but for a name while it is written.

    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp(), "log.csv")
    >>> with replacing(target) as scratch:
    ...     _ = scratch.write_text("x,reward")
    ...     target.exists()
    False
    >>> target.read_text()
    'x,reward'
    """
    target = _checked_target(path)
    with _beside(target) as scratch, _held(scratch) as handle:
        yield scratch
        os.fsync(handle)
        os.chmod(handle, _mode(target))
        os.replace(scratch, target)


def _checked_target(path: str | PathLike[str]) -> Path:
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        raise InputError(f"{path} is not a file and is not written to")
    return target


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
    """A name beside the target that nothing has in the end, and errors that name the target."""
    _remove_left_behind(target)
    scratch = target.with_name(f".{target.name}.{os.getpid()}-{secrets.token_hex(4)}")
    try:
        yield scratch
    except OSError as error:
        if error.errno is None or (error.filename is not None and str(error.filename) != str(scratch)):
            raise
        raise OSError(error.errno, f"it could not be written: {os.strerror(error.errno)}", str(target)) from None
    finally:
        scratch.unlink(missing_ok=True)
    _write_folder_through(target.parent)


@contextmanager
def _held(scratch: Path) -> Iterator[int]:
    """A handle of a new file that is locked meanwhile: whoever finds it unlocked knows that its writer was killed."""
    while True:
        handle = os.open(scratch, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        try:
            _lock(handle)
            if scratch.exists():  # else it was removed before it was locked
                yield handle
                return
        finally:
            os.close(handle)


def _lock(handle: int) -> bool | None:
    """Lock a file if nobody else has; whether that is so, None where there are no such locks."""
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ModuleNotFoundError, OSError):
        return None
    return True


def _remove_left_behind(target: Path) -> None:
    """Remove scratch files of writers that are no more."""
    for path in target.parent.glob(f".{glob.escape(target.name)}.*"):
        owner = re.fullmatch(r"(\d+)-[0-9a-f]{8}", path.name.removeprefix(f".{target.name}."))
        if owner and path.is_file():
            with suppress(OSError):
                handle = os.open(path, os.O_RDONLY)
                try:
                    locked = _lock(handle)
                    if locked or (locked is None and not _is_running(int(owner[1]))):
                        path.unlink()
                finally:
                    os.close(handle)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's
        return True
    return True


def _write_folder_through(folder: Path) -> None:
    """Have the new name on the disk, where folders can be opened."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:  # some file systems cannot
        pass
    finally:
        os.close(handle)


def _write_unnamed(scratch: Path, content: bytes, target: Path) -> None:
    """Write a file that gets its name when it is on the disk."""
    handle = os.open(target.parent, os.O_TMPFILE | os.O_WRONLY, 0o600)
    try:
        _lock(handle)
        _write_through(handle, content, _mode(target))
        # A directory makes Python call linkat, which alone follows the link; for an absolute path it has no meaning.
        os.link(f"/proc/self/fd/{handle}", scratch, src_dir_fd=handle)
        os.replace(scratch, target)
    finally:
        os.close(handle)


def _write_through(handle: int, content: bytes, mode: int) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(handle, rest) :]
    os.fsync(handle)
    os.chmod(handle, mode)


def _mode(target: Path) -> int:
    """The permissions of the file that is replaced, or those of any new file of this user."""
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def read(path: str | PathLike[str], kind: str) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, Any]]:
    """Return the arrays and the description stored under `path`, or raise FileError saying what is wrong."""
    return decode(Path(path).read_bytes(), kind, str(path))


def decode(content: bytes, kind: str, name: str) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, Any]]:
    """The arrays and the description in the content of a file, or FileError; `name` is for messages."""
    from safetensors.numpy import load

    header = _header(name, content)
    if header.get("product") != PRODUCT:
        raise FileError(f"{name} was not written by {PRODUCT}")
    if header.get("format") != str(FORMAT_VERSION):
        raise FileError(
            f"{name} has format {header.get('format')}, this version reads format {FORMAT_VERSION}:"
            " a newer release may be needed"
        )
    if header.get("kind") != kind:
        raise FileError(f"{name} holds {header.get('kind')!r}, not {kind!r}")
    try:
        arrays = load(content)
        found = digest(kind, header["about"], arrays)
        about = json.loads(header["about"])
    except Exception as error:
        raise FileError(f"{name} is damaged: {error}") from None
    if found != header.get("sha256"):
        raise FileError(f"{name} is damaged: its checksum does not match its content")
    if not _is_compact(content):
        raise FileError(f"{name} is damaged: its header has been rearranged")
    return arrays, about


def kind_of(path: str | PathLike[str]) -> str | None:
    """What a file that was written here holds, such as "model"; None for any other file. Its content is not checked."""
    with Path(path).open("rb") as file:
        start = file.read(8)
        length = int.from_bytes(start, "little")
        if len(start) < 8 or not 0 < length <= LONGEST_HEADER:
            return None
        try:
            header = _header(str(path), start + file.read(length))
        except FileError:
            return None
    return header.get("kind") if header.get("product") == PRODUCT else None


def _header(name: str, content: bytes) -> dict[str, str]:
    try:
        length = int.from_bytes(content[:8], "little")
        if len(content) < 8 or not 0 < length <= len(content) - 8:
            raise ValueError("it is too short, or not such a file")
        metadata = json.loads(content[8 : 8 + length])["__metadata__"]
        return {str(key): str(value) for key, value in metadata.items()}
    except Exception as error:
        raise FileError(f"{name} is damaged or foreign: {error}") from None


def _is_compact(content: bytes) -> bool:
    """Whether the header is as safetensors writes it: no spaces but at its end, every key once."""
    text = content[8 : 8 + int.from_bytes(content[:8], "little")]
    return json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False).encode() == text.rstrip(b" ")


def under(arrays: Mapping[str, np.ndarray[Any, Any]], prefix: str) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays whose names begin with `prefix`, under what follows it."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def digest(kind: str, described: str, arrays: Mapping[str, np.ndarray[Any, Any]]) -> str:
    """SHA-256, in hexadecimal digits, over all that a stored file says."""
    content = hashlib.sha256()
    for part in (PRODUCT, str(FORMAT_VERSION), kind, described):
        content.update(f"{len(part)}:{part}".encode())
    for name in sorted(arrays):
        array = arrays[name]
        content.update(f"{name}|{array.dtype.str}|{array.shape}|".encode())
        content.update(array.tobytes())
    return content.hexdigest()
