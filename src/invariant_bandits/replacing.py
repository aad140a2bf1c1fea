"""Files written whole or not at all: a reader sees the old one or the new one, whatever happens to the writer."""

from __future__ import annotations

import glob
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path

from invariant_bandits.checks import InputError


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
            _lock(handle, wait=True)
            if scratch.exists():  # else it was removed before it was locked
                yield handle
                return
        finally:
            os.close(handle)


def _lock(handle: int, *, wait: bool = False) -> bool | None:
    """Lock a file if nobody else has, or once nobody has; whether it is locked, None where there are no such locks."""
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
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
