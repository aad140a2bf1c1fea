"""One process writes: the lock beside a store."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from invariant_bandits.service.store.chain import StoreError


def locked(path: Path) -> int:
    """The lock of the one process that writes to `path`, held until it is closed or the process ends."""
    try:
        handle = os.open(_lock(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreError(f"{path} cannot be written to: {error.strerror}") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise StoreError(f"{path} is in use by another process") from None
    return handle


def is_in_use(path: Path) -> bool:
    """Whether a process has a store open for writing."""
    try:
        handle = os.open(_lock(path), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


def _lock(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")
