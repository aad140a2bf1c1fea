"""Damage in the write-ahead log of a SQLite file, which SQLite itself takes for the end of the log.

A frame whose checksum does not match ends the log: right for a last transaction that was torn before it was
acknowledged, wrong for a flipped bit, which would silently take back all that came after it. The two differ:

- a frame that one flipped bit makes whole was whole, and has been damaged since;
- a transaction that others follow was durable before these were written, so a bad frame before them is damage.

What a failed commit left behind, or an earlier round of the log, is neither.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import numpy as np

from invariant_bandits.service.store.chain import StoreError

HEADER, FRAME_HEADER = 32, 24
MAGIC = 0x377F0682
"""Followed by one that says that words are big-endian."""
MOST_AT_ONCE = 4_096
"""Frames that are read together."""

Words = np.ndarray[Any, np.dtype[np.uint32]]


def check_journal(path: Path) -> None:
    """Raise StoreError if the log beside a SQLite file that nobody writes to was damaged."""
    log = path.with_name(f"{path.name}-wal")
    try:
        content = np.memmap(log, dtype=np.uint8, mode="r") if log.stat().st_size else None
    except FileNotFoundError:
        return
    if content is not None and content.any():
        _Log(content, log).check()


def what_is_left(path: Path) -> str:
    """Which events a damaged log leaves, in words."""
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
    try:
        (last,) = connection.execute("SELECT max(seq) FROM events").fetchone()
        return f"event {0 if last is None else last + 1} and those after it cannot be read"
    except sqlite3.DatabaseError:
        return "no event can be read"
    finally:
        connection.close()


class _Log:
    """The frames of a log and their checksums: s0 += word + s1, s1 += word + s0 over pairs of words, modulo 2^32."""

    def __init__(self, content: np.ndarray[Any, Any], path: Path) -> None:
        self.content, self.path = content, path

    def check(self) -> None:
        header = self.content[:HEADER]
        big = header[:HEADER].view(">u4") if len(header) == HEADER else np.zeros(8, dtype=">u4")
        order = ">u4" if big[0] == MAGIC + 1 else "<u4"
        stored = big[6:8].astype(np.uint32)
        difference = stored - _sums(_words(header[:24], order)[None], Coefficients(6))[0]
        size = int(big[2])
        if int(big[0]) not in (MAGIC, MAGIC + 1) or difference.any() or size < 512 or size & (size - 1):
            raise StoreError(f"{self.path} is damaged: its header does not match its checksum")
        self.order, self.salts, self.size = order, big[4:6].astype(np.uint32), size
        self.step = FRAME_HEADER + size
        self.coefficients = Coefficients(2 + size // 4)
        frames = (len(self.content) - HEADER) // self.step
        bad, before = self._whole(frames, stored)
        if bad < frames and (self._is_flipped(bad, before) or self._is_followed(bad + 1, frames)):
            raise StoreError(f"{self.path} is damaged in frame {bad + 1}: events that were acknowledged are in it")

    def _frames(self, first: int, last: int) -> tuple[np.ndarray[Any, Any], Words]:
        """Headers as words (n, 6), and the checksum that each frame alone gives (n, 2)."""
        part = self.content[HEADER + first * self.step : HEADER + last * self.step].reshape(last - first, self.step)
        headers = np.ascontiguousarray(part[:, :FRAME_HEADER]).view(">u4").astype(np.uint32)
        covered = np.concatenate([part[:, :8], part[:, FRAME_HEADER:]], axis=1)
        return headers, _sums(_words(covered, self.order), self.coefficients)

    def _whole(self, frames: int, before: Words) -> tuple[int, Words]:
        """Number of the first frame that does not follow, and the checksum before it."""
        for first in range(0, frames, MOST_AT_ONCE):
            headers, alone = self._frames(first, min(first + MOST_AT_ONCE, frames))
            starts = np.vstack([before[None], headers[:-1, 4:6]])
            whole = (self._continued(starts, alone) == headers[:, 4:6]).all(axis=1)
            whole &= (headers[:, 2:4] == self.salts).all(axis=1)
            if not whole.all():
                bad = int(np.argmin(whole))
                return first + bad, starts[bad]
            before = headers[-1, 4:6]
        return frames, before

    def _continued(self, before: Words, alone: Words) -> Words:
        """Checksums of frames after the checksums `before` (n, 2)."""
        return alone + before @ self.coefficients.carried

    def _is_flipped(self, bad: int, before: Words) -> bool:
        """Whether one flipped bit explains a frame."""
        headers, alone = self._frames(bad, bad + 1)
        salts = headers[0, 2:4] ^ self.salts
        difference = headers[0, 4:6] - self._continued(before[None], alone)[0]
        if not difference.any():
            return _bits(salts) == 1
        if salts.any():
            return False
        if _bits(headers[0, 4:6] ^ self._continued(before[None], alone)[0]) == 1:  # of the checksum itself
            return True
        powers = (np.uint32(1) << np.arange(32, dtype=np.uint32))[:, None, None]
        changes = powers * self.coefficients.of_words[None]  # (32, words, 2)
        return bool((changes == difference).all(axis=2).any() or (changes == -difference).all(axis=2).any())

    def _is_followed(self, first: int, frames: int) -> bool:
        """Whether a transaction was written after one that ended behind the bad frame."""
        for start in range(first, frames - 1, MOST_AT_ONCE):
            headers, alone = self._frames(start, min(start + MOST_AT_ONCE + 1, frames))
            follows = (self._continued(headers[:-1, 4:6], alone[1:]) == headers[1:, 4:6]).all(axis=1)
            ours = (headers[:, 2:4] == self.salts).all(axis=1)
            if (follows & (headers[:-1, 1] != 0) & ours[:-1] & ours[1:]).any():
                return True
        return False


class Coefficients:
    """What each of `words` words, and the checksum before them, add to a checksum: Fibonacci numbers modulo 2^32.

    Attributes
    ----------
    of_words : array of uint32, shape (words, 2)
    carried : array of uint32, shape (2, 2)
    """

    def __init__(self, words: int) -> None:
        step = np.array([[1, 1], [1, 2]], dtype=np.uint32)  # (s0, s1) before a pair of words -> after it, transposed
        after = np.eye(2, dtype=np.uint32)
        rows = []
        for _ in range(words // 2):
            rows.append(np.array([[1, 1], [0, 1]], dtype=np.uint32) @ after)
            after = step @ after
        self.of_words = np.concatenate(rows[::-1])
        self.carried = after


def _words(content: np.ndarray[Any, Any], order: str) -> Words:
    return np.ascontiguousarray(content).view(order).astype(np.uint32)


def _sums(words: Words, coefficients: Coefficients) -> Words:
    """Checksums (n, 2) of words (n, m), each from zero."""
    return words @ coefficients.of_words


def _bits(words: Words) -> int:
    """How many bits are set."""
    return int(np.unpackbits(words.view(np.uint8)).sum())
