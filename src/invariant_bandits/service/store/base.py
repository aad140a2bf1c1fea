"""What an engine needs of a store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from invariant_bandits.service.store.chain import Row


class Head(NamedTuple):
    """The end of the chain: how many events there ever were, and the digest after the last."""

    seq: int
    digest: bytes


class UnavailableError(Exception):
    """The store could not take events now (full, not reachable); nothing was acknowledged. It may later."""


class OvertakenError(Exception):
    """Others have appended since; nothing was stored, and nobody else can append before the next call.

    Parameters
    ----------
    rows : list of Row
        What they appended.
    """

    def __init__(self, rows: list[Row]) -> None:
        super().__init__(f"{len(rows)} events were appended by others")
        self.rows = rows


class Store(Protocol):
    """Events in a chain, contents by their SHA-256, snapshots. One process writes; any number read.

    Where `shared` is true, processes that only decide may append, too: `append` then takes `seen`, how many events
    were known when the new ones were proposed, and raises OvertakenError if there are more.
    """

    @property
    def seed(self) -> int:
        """Number from 0 to 2^63 − 1 that random draws are a function of; chosen when the store was made."""

    def head(self) -> Head:
        """The end of the chain as it is stored."""

    def append(self, events: Sequence[tuple[str | None, bytes]], contents: Sequence[bytes] = ()) -> list[Row]:
        """Add events (key, event) as one batch, with contents; durable when this returns, or UnavailableError."""

    def rows(self, first: int = 0, last: int | None = None) -> Iterator[Row]:
        """Rows from number `first` to before `last`, in order."""

    def of_key(self, key: str) -> list[Row]:
        """Rows that belong to the decision with this key, in order."""

    def keys_from(self, prefix: str) -> set[str]:
        """All keys that begin so."""

    def content(self, digest: str) -> bytes:
        """Content by its SHA-256 in hexadecimal digits."""

    def save_snapshot(self, seq: int, body: bytes) -> None:
        """Keep the state after the first `seq` events; older snapshots but one are dropped."""

    def latest_snapshot(self) -> tuple[int, bytes] | None:
        """The newest whole snapshot, and how many events it holds."""

    def start(self) -> Head:
        """The beginning of the chain: number of the first event that is kept, and the digest before it."""

    def base(self) -> tuple[int, bytes] | None:
        """The snapshot that a replay begins with, and how many events it holds; None: with the first event."""

    def reopen(self) -> None:
        """Connect anew after a failure."""

    def close(self) -> None:
        """Let go of everything."""
