"""The store under an address: a file, or a PostgreSQL database."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from invariant_bandits.service.store.base import StoreError
from invariant_bandits.service.store.postgres import is_address
from invariant_bandits.service.store.sqlite import SqliteStore
from invariant_bandits.service.store.verify import verify


def open_store(
    address: str | Path,
    *,
    writing: bool = True,
    check: Callable[[Path | str], object] | None = None,
    **more: Any,
) -> Any:
    """The store under a path or `postgresql://…`; `check` is asked about it before it is used.

    What is said besides is for PostgreSQL.
    """
    if not is_address(str(address)):
        return SqliteStore(address, writing=writing, check=check)
    from invariant_bandits.service.store.postgres import PostgresStore

    store = PostgresStore(str(address), writing=writing, **more)
    try:
        if check is not None:
            check(store.path)
    except BaseException:
        store.close()
        raise
    return store


class VerifyingStore(NamedTuple):
    """A store, and what waits for the end of its check: it raises StoreError if the store is damaged.

    Nothing may be written, and nothing that was read may be told, before.
    """

    store: SqliteStore
    finish: Callable[[], None]


def begin(path: str | Path) -> VerifyingStore:
    """Open a file for writing, its check going on in a process of its own."""
    checks: list[Check] = []
    store = SqliteStore(path, check=lambda path: checks.append(Check(path)))
    return VerifyingStore(store, checks[0].finish)


class Check:
    """A check in a process of its own; it is begun before its file is opened here, because it forks."""

    def __init__(self, path: Path) -> None:
        context = multiprocessing.get_context("fork")
        self._path = path
        self._answer, telling = context.Pipe(duplex=False)
        self._process = context.Process(target=_check, args=(path, telling))
        self._process.start()
        telling.close()

    def finish(self) -> None:
        """Wait for its end; StoreError says what is damaged."""
        try:
            damage: str | None = self._answer.recv()
        except EOFError:
            damage = f"{self._path} could not be checked: the process that did it has ended"
        self._process.join()
        if damage is not None:
            raise StoreError(damage)


def _check(path: Path, telling: Any) -> None:
    try:
        verify(path)
        telling.send(None)
    except StoreError as error:
        telling.send(str(error))
