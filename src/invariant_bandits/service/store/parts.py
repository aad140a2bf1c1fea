"""What a store holds beside its events: where they begin and end, contents of versions, snapshots."""

from __future__ import annotations

import hashlib
from typing import Any

from invariant_bandits.service.store.chain import SIZE, START, StoreError


def check_parts(connection: Any, path: str) -> tuple[int, bytes, int]:
    """Number of the first event, the digest before it, the number after the last; StoreError if a part is damaged."""
    first, before = _beginning(connection, path)
    heads = connection.execute("SELECT seq, digest FROM head").fetchall()
    if len(heads) != 1 or not isinstance(heads[0][0], int) or heads[0][0] < first:
        raise StoreError(f"{path} is damaged: where its events end is not told")
    ((end, digest),) = heads
    ((last,),) = connection.execute("SELECT max(seq) FROM events").fetchall()
    if (first if last is None else last + 1) != end:
        raise StoreError(f"event {end if last is not None and last >= end else end - 1} is missing or one too many")
    if last is not None:
        ((body,),) = connection.execute("SELECT body FROM events WHERE seq = ?", (last,)).fetchall()
        if not isinstance(body, bytes) or body[-SIZE:] != digest:
            raise StoreError(f"event {last} is damaged: the chain does not end with it")
    _check_contents(connection, path)
    _check_snapshots(connection, path, end)
    return first, before, end


def _beginning(connection: Any, path: str) -> tuple[int, bytes]:
    cuts = connection.execute("SELECT first, before, base FROM cut").fetchall()
    if not cuts:
        return 0, START
    first, before, base = cuts[0]
    kept = connection.execute("SELECT count(*) FROM snapshots WHERE seq = ?", (base,)).fetchone()[0]
    if len(cuts) != 1 or not isinstance(first, int) or not isinstance(before, bytes) or not kept:
        raise StoreError(f"{path} is damaged: where its events begin is not told")
    return first, before


def _check_contents(connection: Any, path: str) -> None:
    for number, (digest, size) in enumerate(connection.execute("SELECT digest, length(body) FROM contents").fetchall()):
        ((body,),) = connection.execute("SELECT body FROM contents WHERE digest = ?", (digest,)).fetchall() or [(b"",)]
        if not isinstance(body, bytes) or hashlib.sha256(body).hexdigest() != digest:
            raise StoreError(f"{path} is damaged: content {number + 1} ({size} bytes) does not match its checksum")


def _check_snapshots(connection: Any, path: str, end: int) -> None:
    for (seq,) in connection.execute("SELECT seq FROM snapshots").fetchall():
        ((body, digest),) = connection.execute("SELECT body, digest FROM snapshots WHERE seq = ?", (seq,)).fetchall()
        if seq > end:
            raise StoreError(f"{path} is damaged: events {end} to {seq - 1}, which a snapshot holds, are missing")
        if not isinstance(body, bytes) or snapshot_digest(seq, body) != digest:
            raise StoreError(f"{path} is damaged: the snapshot after event {seq - 1} does not match its checksum")


def snapshot_digest(seq: int, body: bytes) -> bytes:
    """Checksum of a snapshot with its number."""
    return hashlib.sha256(seq.to_bytes(8, "little", signed=True) + body).digest()
