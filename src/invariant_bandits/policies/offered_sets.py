"""Offered sets: which actions came together, for policies that want to rehearse before they play."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError, finite_array

MOST_SETS = 256


@dataclass(frozen=True, eq=False)
class OfferedSets:
    """Features of the actions that were, or will be, offered together.

    Parameters
    ----------
    rows : array, shape (rows, p)
        Features of all actions, set after set.
    starts : array of int, shape (n + 1,)
        Set i is rows[starts[i] : starts[i + 1]].

    >>> import numpy as np
    >>> OfferedSets.of(np.ones((5, 2))), OfferedSets.of(np.ones((300, 5, 2)))
    (OfferedSets(1 set, 5 actions), OfferedSets(256 sets, 5 actions))
    """

    rows: Array
    starts: np.ndarray[Any, Any]

    @classmethod
    def of(cls, offered: Any, dim: int | None = None) -> OfferedSets:
        """At most 256 sets, evenly spread over those given.

        Parameters
        ----------
        offered : OfferedSets, array of shape (K, p) or (n, K, p), or sequence of arrays of shape (K_i, p)
            One set that never changes; sets of equal size; sets of any size.
        dim : int, optional
            p, if it is to be checked.
        """
        if isinstance(offered, OfferedSets):
            return offered
        sets = _as_sets(offered, dim)
        kept = [sets[i] for i in _spread(len(sets))]
        starts = np.concatenate([[0], np.cumsum([len(one) for one in kept])]).astype(np.int64)
        return cls(np.ascontiguousarray(np.concatenate(kept)), starts)

    @classmethod
    def of_rows(cls, rows: Array, counts: Any) -> OfferedSets:
        """At most 256 sets, evenly spread over those in rows (rows, p), counts (n,) actions each."""
        ends = np.cumsum(counts)
        return cls.of([rows[ends[i] - counts[i] : ends[i]] for i in _spread(len(ends))])

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __repr__(self) -> str:
        sizes = np.unique(np.diff(self.starts))
        actions = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
        return f"OfferedSets({len(self)} set{'s' if len(self) > 1 else ''}, {actions} actions)"


def _as_sets(offered: Any, dim: int | None) -> list[Array]:
    p = "p" if dim is None else dim
    given = getattr(offered, "ndim", None)
    if given == 2:
        return [finite_array("offered", offered, ("K", p))]
    if given == 3:
        return list(finite_array("offered", offered, ("n", "K", p)))
    try:
        sets = [finite_array(f"offered[{i}]", one, ("K", p)) for i, one in enumerate(offered)]
    except TypeError:
        raise InputError("offered must be an array (K, p) or (n, K, p), or a sequence of arrays (K, p)") from None
    if not sets or any(len(one) == 0 for one in sets):
        raise InputError("offered must have at least one set, and every set at least one action")
    return sets


def _spread(count: int) -> np.ndarray[Any, Any]:
    """At most MOST_SETS whole numbers below `count`, evenly spread."""
    return np.unique(np.linspace(0, count - 1, min(count, MOST_SETS)).round().astype(np.int64))
