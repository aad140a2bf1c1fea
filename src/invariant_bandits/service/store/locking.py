"""One process writes: a lock on the file of a store itself, whichever name leads to it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from invariant_bandits.service.store.chain import StoreError

_held: set[tuple[int, int]] = set()
"""Device and inode of each file that this process has locked."""


class FileLock:
    """The lock of the one process that writes to a file; the file is made if it does not exist.

    The lock belongs to the inode: links to the file and other mounts of its folder lead to the same lock. It is a lock
    of flock, which does not collide with the locks of SQLite (fcntl). These end as soon as the process closes any
    descriptor of the file. Therefore a process never opens a file that it has locked a second time, and releases
    the lock after it has closed its connections.

    Parameters
    ----------
    path : Path
        The file, links resolved.
    """

    def __init__(self, path: Path) -> None:
        if _is_held(path):
            raise _in_use(path)
        try:
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StoreError(f"{path} cannot be written to: {error.strerror}") from None
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._handle)
            raise _in_use(path) from None
        self.inode = _inode(os.fstat(self._handle))
        _held.add(self.inode)

    def release(self) -> None:
        """Let other processes write."""
        _held.discard(self.inode)
        os.close(self._handle)


def is_in_use(path: Path) -> bool:
    """Whether a process has a file open for writing. SQLite must not have it open in this process."""
    if _is_held(path):
        return True
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def _is_held(path: Path) -> bool:
    return path.exists() and _inode(path.stat()) in _held


def _inode(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _in_use(path: Path) -> StoreError:
    return StoreError(f"{path} is in use by another process")
