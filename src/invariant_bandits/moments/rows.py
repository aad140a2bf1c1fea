"""Features of the actions offered in many rounds, as one row per action; rounds may offer different numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError, shaped_array


@dataclass(frozen=True)
class OfferedRows:
    """Features of the actions offered in n rounds, one row per action, round after round.

    Attributes
    ----------
    rows : array, shape (Σ K_t, p)
        One row per action.
    per_round : int, or array of int, shape (n,)
        K if every round has K rows, else their numbers K_t.
    """

    rows: Array
    per_round: int | Array

    def offsets(self) -> Array:
        """Where each round begins, and the end (n + 1,)."""
        if isinstance(self.per_round, int):
            return np.arange(0, len(self.rows) + 1, self.per_round)
        return np.concatenate([[0], np.cumsum(self.per_round)])

    def stretch(self, rounds: slice) -> OfferedRows:
        """The rounds from rounds.start up to rounds.stop."""
        if isinstance(self.per_round, int):
            return OfferedRows(self.rows[rounds.start * self.per_round : rounds.stop * self.per_round], self.per_round)
        start, stop = self.per_round[: rounds.start].sum(), self.per_round[: rounds.stop].sum()
        return OfferedRows(self.rows[start:stop], self.per_round[rounds])

    def taken(self, rounds: Array) -> OfferedRows:
        """The rounds at these indices, in their order."""
        begin = self.offsets()
        counts = np.diff(begin)[rounds]
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        rows = self.rows[np.repeat(begin[:-1][rounds], counts) + within]
        return OfferedRows(rows, self.per_round if isinstance(self.per_round, int) else counts)


def offered_rows(offered: Any, counts: Any, rounds: int, dim: int) -> OfferedRows:
    """Check offered (n, K, p), or (rows, p) with counts (n,), against the number of rounds n and of features p."""
    if counts is None:
        array = np.ascontiguousarray(shaped_array("offered", offered, (rounds, "K", dim)))
        return OfferedRows(array.reshape(-1, dim), int(array.shape[1]))
    rows = np.ascontiguousarray(shaped_array("offered", offered, ("rows", dim)))
    counts = np.asarray(counts)
    if counts.shape != (rounds,) or counts.dtype.kind not in "iu":
        raise InputError(
            f"offered_counts must be whole numbers of shape ({rounds},), got {counts.dtype} of shape {counts.shape}"
        )
    if (counts < 1).any():
        raise InputError(f"offered_counts must be at least 1, got {int(counts.min())}")
    if counts.sum() != len(rows):
        raise InputError(f"offered_counts must add up to the {len(rows)} rows of offered, got {int(counts.sum())}")
    return OfferedRows(rows, counts.astype(np.int64))
