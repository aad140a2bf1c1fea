"""WindowedMoments: what the offline phase keeps of the logs.

Per window: the number of rounds, the means, and sums of products about those means. They add over rows, batches
and shards, and nothing later needs the rows again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from invariant_bandits import files
from invariant_bandits.checks import Array, InputError, finite_array, require_finite, shaped_array, whole_number
from invariant_bandits.moments.power_sums import Spread, mapped, rescaled, spread_of_rows, stacked
from invariant_bandits.moments.rows import OfferedRows, offered_rows
from invariant_bandits.moments.windows import checked_edges, even_starts, place_times, same_edges

KIND = "windowed-moments"
ROWS_AT_ONCE = 65_536
CELLS_PER_WINDOW = 16
LARGEST = 1e70


@dataclass(eq=False)
class WindowedMoments:
    """Additive sufficient statistics of logged rounds, one set per window of time.

    `chosen` holds the moments of [features of the chosen action, reward], p + 1 variables, reward last; `offered`
    those of the features of all offered actions, where the log has them. `edges` are the m + 1 times that bound
    the windows, where they were given.
    """

    chosen: Spread
    offered: Spread | None = None
    edges: np.ndarray[Any, Any] | None = None

    # -- making --

    @classmethod
    def empty(
        cls, dim: int, windows: int | None = None, *, offered: bool = False, edges: Any = None
    ) -> WindowedMoments:
        """Moments of no rounds, ready for `update`: a number of `windows`, or the `edges` of their times."""
        dim = whole_number("dim", dim, 1)
        checked = None if edges is None else checked_edges(edges)
        if (windows is None) == (checked is None):
            raise InputError("give either windows (their number) or edges (their bounding times)")
        m = len(checked) - 1 if checked is not None else whole_number("windows", windows, 1)
        return cls(Spread.empty(m, dim + 1), Spread.empty(m, dim) if offered else None, checked)

    @classmethod
    def from_arrays(
        cls,
        features: Any,
        rewards: Any,
        *,
        windows: int | None = None,
        offered: Any = None,
        times: Any = None,
        edges: Any = None,
    ) -> WindowedMoments:
        """Moments of rounds held in memory.

        features: (n, p) of the chosen actions; rewards: (n,); offered: (n, K, p) of all offered actions.
        Either `windows`, a number of equal stretches of rows in time order, or `times` (n,) with `edges`
        (m + 1,), strictly increasing; window i is edges[i] <= time < edges[i + 1], the last one closed.

        >>> import numpy as np, invariant_bandits as ib
        >>> rng = np.random.default_rng(0)
        >>> features = rng.normal(size=(400, 3))
        >>> moments = ib.WindowedMoments.from_arrays(features, features.sum(axis=1), windows=4)
        >>> moments.dim, moments.windows, moments.rounds
        (3, 4, 400)
        """
        features = shaped_array("features", features, ("n", "p"))
        if (times is None) != (edges is None):
            raise InputError("times and edges belong together: give both or neither")
        if times is None:
            m = whole_number("windows", 8 if windows is None else windows, 1)
            if m > len(features):
                raise InputError(f"windows must be at most the number of rounds, {len(features)}, got {m}")
            moments = cls.empty(features.shape[1], m, offered=offered is not None)
            bounds = np.linspace(0, len(features), m + 1).round().astype(int)
            place: Any = np.repeat(np.arange(m), np.diff(bounds))
            return moments.update(features, rewards, window=place, offered=offered)
        if windows is not None:
            raise InputError("give either windows or times with edges, not both")
        moments = cls.empty(features.shape[1], edges=edges, offered=offered is not None)
        return moments.update(features, rewards, times=times, offered=offered)

    @classmethod
    def from_batches(cls, batches: Iterable[Any], *, windows: int | None = None, edges: Any = None) -> WindowedMoments:
        """Moments of any number of batches in bounded memory.

        Each batch is a tuple (features, rewards) or (features, rewards, offered), or a mapping with these keys,
        `offered_counts` where rounds differ in size and, if `edges` is given, `times`. With `windows`, batches
        must come in time order; their total need not be known: rounds are gathered in at most 32 × windows equal
        cells, which are then grouped into `windows` stretches of nearly equal length.
        """
        rows = (_as_mapping(batch) for batch in batches)
        if edges is not None:
            if windows is not None:
                raise InputError("give either windows or edges, not both")
            return _from_timed_batches(cls, rows, edges)
        return _from_ordered_batches(cls, rows, whole_number("windows", 8 if windows is None else windows, 1))

    # -- adding --

    def update(
        self,
        features: Any,
        rewards: Any,
        *,
        window: Any = None,
        times: Any = None,
        offered: Any = None,
        offered_counts: Any = None,
    ) -> WindowedMoments:
        """Add a batch of rounds, in place, and return self.

        features (n, p), rewards (n,), offered (n, K, p) if these moments keep offered actions; where rounds offer
        different numbers of actions, offered (rows, p), round after round, with offered_counts (n,). Which window
        a round belongs to: `window`, an int or n of them, or `times` (n,) if these moments have edges. Everything
        is checked before anything is added.
        """
        features = np.ascontiguousarray(shaped_array("features", features, ("n", self.dim)))
        n = len(features)
        rewards = np.ascontiguousarray(shaped_array("rewards", rewards, (n,)))
        if (offered is None) != (self.offered is None):
            raise InputError(
                "offered is missing: these moments keep the offered actions"
                if offered is None
                else "offered was given, but these moments keep chosen actions only"
            )
        several = None
        if offered is not None:
            several = offered_rows(offered, offered_counts, n, self.dim)
        elif offered_counts is not None:
            raise InputError("offered_counts were given without offered")
        place = self._place(n, window, times)
        if (place[:-1] > place[1:]).any():
            order = np.argsort(place, kind="stable")
            features, rewards, place = features[order], rewards[order], place[order]
            several = None if several is None else several.taken(order)
        starts = np.concatenate([[0], np.flatnonzero(place[:-1] != place[1:]) + 1, [n]])
        parts = []
        for start, stop in pairwise(starts.tolist()):
            for first in range(start, stop, ROWS_AT_ONCE):
                rows = slice(first, min(first + ROWS_AT_ONCE, stop))
                others = None if several is None else several.stretch(rows)
                parts.append((int(place[start]), *_spreads(features[rows], rewards[rows], others)))
        spreads = [part for _, *both in parts for part in both if part is not None]
        if not all((part.quartics <= LARGEST**4).all() and (np.abs(part.mean) <= LARGEST).all() for part in spreads):
            _explain_unusable(features=features, rewards=rewards, offered=offered)
        for index, chosen, spread in parts:
            self.chosen.put(index, chosen)
            if spread is not None and self.offered is not None:
                self.offered.put(index, spread)
        return self

    def _place(self, n: int, window: Any, times: Any) -> np.ndarray[Any, Any]:
        if (window is None) == (times is None):
            raise InputError("give either window (an index per round) or times (if there are edges)")
        if times is not None:
            return place_times(n, times, self.edges)
        place = np.asarray(window)
        if place.dtype.kind not in "iu":
            raise InputError(f"window must be whole numbers, got dtype {place.dtype}")
        if place.ndim > 1 or (place.ndim == 1 and len(place) != n):
            raise InputError(f"window must be an int or have shape ({n},), got shape {place.shape}")
        if (place < 0).any() or (place >= self.windows).any():
            raise InputError(f"window must lie in 0..{self.windows - 1}, got {int(place.min())}..{int(place.max())}")
        return np.broadcast_to(place, n)

    def __add__(self, other: object) -> WindowedMoments:
        """Moments of two shards of the same windows."""
        if not isinstance(other, WindowedMoments):
            return NotImplemented
        self._check_alike(other)
        if self.windows != other.windows:
            raise InputError(f"shards must have the same windows, got {self.windows} and {other.windows}")
        if not same_edges(self.edges, other.edges):
            raise InputError("shards must have the same window edges")
        both = None
        if self.offered is not None and other.offered is not None:
            both = self.offered.merged(other.offered)
        return WindowedMoments(self.chosen.merged(other.chosen), both, self.edges)

    def merge_windows(self, first: int, part: WindowedMoments) -> None:
        """Add, in place, moments of some of these windows, the first of them being window `first`."""
        last = whole_number("first", first, 0) + part.windows
        merged = self.stretch(first, last) + part
        for name, array in self._arrays().items():
            array[first:last] = merged._arrays()[name]

    def followed_by(self, later: WindowedMoments) -> WindowedMoments:
        """These windows, then those of `later`."""
        self._check_alike(later)
        if (self.edges is None) != (later.edges is None):
            raise InputError("either both or neither of the moments must have window edges")
        edges = None
        if self.edges is not None and later.edges is not None:
            if self.edges[-1] != later.edges[0]:
                raise InputError(f"later must begin where these windows end, at {self.edges[-1]}, got {later.edges[0]}")
            edges = np.concatenate([self.edges, later.edges[1:]])
        both = None
        if self.offered is not None and later.offered is not None:
            both = stacked(self.offered, later.offered)
        return WindowedMoments(stacked(self.chosen, later.chosen), both, edges)

    def coarsen(self, windows: int) -> WindowedMoments:
        """Merge neighbours into `windows` windows of rounds as equal as the present windows allow."""
        windows = whole_number("windows", windows, 1)
        if windows > self.windows:
            raise InputError(f"windows must be at most the present {self.windows}, got {windows}")
        return self.regrouped(even_starts(self.chosen.count, windows))

    def regrouped(self, starts: Array) -> WindowedMoments:
        """Merge neighbours: a new window begins at each of `starts`, increasing indices of which the first is 0."""
        both = None if self.offered is None else self.offered.grouped(starts)
        edges = None if self.edges is None else self.edges[np.append(starts, self.windows)]
        return WindowedMoments(self.chosen.grouped(starts), both, edges)

    def stretch(self, start: int, stop: int) -> WindowedMoments:
        """The windows from `start` up to, not including, `stop`."""
        if not 0 <= start < stop <= self.windows:
            raise InputError(f"start and stop must satisfy 0 <= start < stop <= {self.windows}, got {start}, {stop}")
        part = slice(start, stop)
        both = None if self.offered is None else self.offered.at(part)
        edges = None if self.edges is None else self.edges[start : stop + 1]
        return WindowedMoments(self.chosen.at(part), both, edges)

    def _check_alike(self, other: WindowedMoments) -> None:
        if self.dim != other.dim:
            raise InputError(f"moments must have the same dim, got {self.dim} and {other.dim}")
        if (self.offered is None) != (other.offered is None):
            raise InputError("either both or neither of the moments must hold offered actions")

    # -- reading --

    @property
    def dim(self) -> int:
        """Number of features p."""
        return int(self.chosen.mean.shape[1]) - 1

    @property
    def windows(self) -> int:
        """Number of windows m."""
        return len(self.chosen.count)

    @property
    def rounds(self) -> int:
        """Number of logged rounds in all windows."""
        return int(self.chosen.count.sum())

    @property
    def counts(self) -> Array:
        """Rounds per window (m,)."""
        return self.chosen.count

    @property
    def feature_mean(self) -> Array:
        """Mean features of the chosen actions per window (m, p)."""
        return self.chosen.mean[:, :-1]

    @property
    def reward_mean(self) -> Array:
        """Mean reward per window (m,)."""
        return self.chosen.mean[:, -1]

    @property
    def gram(self) -> Array:
        """Centred sums of products of the chosen features per window (m, p, p)."""
        return self.chosen.scatter[:, :-1, :-1]

    @property
    def cross(self) -> Array:
        """Centred sums of chosen features times rewards per window (m, p)."""
        return self.chosen.scatter[:, :-1, -1]

    @property
    def reward_square(self) -> Array:
        """Centred sums of squared rewards per window (m,)."""
        return self.chosen.scatter[:, -1, -1]

    def second_moment(self) -> Array:
        """Uncentred Σφφᵀ of the chosen actions over all rounds (p, p), as in Assumption 2 of the paper."""
        mean = self.feature_mean
        return np.asarray(self.gram.sum(axis=0) + (mean * self.counts[:, None]).T @ mean)

    def residual_after(self, component: Any) -> WindowedMoments:
        """Moments of the rewards that `component` (p,) leaves unexplained (linear, so exact)."""
        component = finite_array("component", component, (self.dim,))
        change = np.eye(self.dim + 1)
        change[-1, :-1] = -component
        return self.transformed(change)

    def transformed(self, change: Array) -> WindowedMoments:
        """Moments of the linearly changed variables.

        `change` is (p, p), features become change @ φ, or (p + 1, p + 1), acting on [φ, reward]. Third and fourth
        powers do not follow a linear map; they are left as they are.
        """
        square = self.dim + 1 if np.shape(change)[:1] == (self.dim + 1,) else self.dim
        change = finite_array("change", change, (square, square))
        features = change[: self.dim, : self.dim]
        both = np.eye(self.dim + 1)
        both[: len(change), : len(change)] = change
        offered = None if self.offered is None else mapped(self.offered, features)
        return WindowedMoments(mapped(self.chosen, both), offered, self.edges)

    def rescaled(self, kept: Any, shift: Any, scale: Any) -> WindowedMoments:
        """Moments of the features (φ − shift) / scale at the indices `kept` (q,); all powers follow exactly.

        shift and scale are (q,), scale positive.
        """
        kept = np.asarray(kept)
        if kept.ndim != 1 or kept.dtype.kind not in "iu" or not len(kept):
            raise InputError(f"kept must be at least one index in one row, got {kept!r}")
        if (kept < 0).any() or (kept >= self.dim).any():
            raise InputError(f"kept must index the {self.dim} features, got {kept.min()}..{kept.max()}")
        shift, scale = finite_array("shift", shift, kept.shape), finite_array("scale", scale, kept.shape)
        if not (scale > 0.0).all():
            raise InputError(f"scale must be positive, got {scale.min()}")
        both = rescaled(self.chosen, np.append(kept, self.dim), np.append(shift, 0.0), np.append(scale, 1.0))
        offered = None if self.offered is None else rescaled(self.offered, kept, shift, scale)
        return WindowedMoments(both, offered, self.edges)

    def __eq__(self, other: object) -> bool:
        """Equal to the last bit, edges included."""
        if not isinstance(other, WindowedMoments):
            return NotImplemented
        mine, theirs = self._arrays(), other._arrays()
        return (
            mine.keys() == theirs.keys()
            and same_edges(self.edges, other.edges)
            and all(np.array_equal(mine[name], theirs[name]) for name in mine)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        kind = "chosen and offered" if self.offered is not None else "chosen"
        return f"WindowedMoments(dim={self.dim}, windows={self.windows}, rounds={self.rounds}, of {kind} actions)"

    # -- files --

    def _arrays(self) -> dict[str, Array]:
        arrays = {f"chosen.{name}": array for name, array in self.chosen.arrays().items()}
        if self.offered is not None:
            arrays |= {f"offered.{name}": array for name, array in self.offered.arrays().items()}
        return arrays

    def to_bytes(self) -> bytes:
        """The content of a file: self-describing and checksummed, for storing or sending."""
        arrays: dict[str, Any] = dict(self._arrays())
        about: dict[str, Any] = {"dim": self.dim, "windows": self.windows, "rounds": self.rounds}
        if self.edges is not None:
            about["edges"] = str(self.edges.dtype)
            arrays["edges"] = self.edges.view("int64") if self.edges.dtype.kind == "M" else self.edges
        return files.encode(KIND, arrays, about)

    def save(self, path: str | PathLike[str]) -> None:
        """Write a self-describing, checksummed file, whole or not at all."""
        files.replace_file(path, self.to_bytes())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> WindowedMoments:
        """Read a file written by `save`; refuses a damaged or foreign one."""
        return cls.from_bytes(Path(path).read_bytes(), str(path))

    @classmethod
    def from_bytes(cls, content: bytes, name: str = "content") -> WindowedMoments:
        """The moments in the content of a file; `name` is for messages."""
        arrays, about = files.decode(content, KIND, name)
        edges = None
        if "edges" in arrays:
            stored = arrays.pop("edges")
            edges = stored.view(about["edges"]) if str(about["edges"]).startswith("datetime") else stored
        parts: dict[str, dict[str, Array]] = {"chosen": {}, "offered": {}}
        for name, array in arrays.items():
            part, field = name.split(".")
            parts[part][field] = array
        offered = Spread(**parts["offered"]) if parts["offered"] else None
        return cls(Spread(**parts["chosen"]), offered, edges)


def _spreads(features: Array, rewards: Array, offered: OfferedRows | None) -> tuple[Spread, Spread | None]:
    with np.errstate(all="ignore"):  # what is not finite shows in the sums and is reported from there
        chosen = spread_of_rows(features, rewards, 1)
        if offered is None:
            return chosen, None
        return chosen, spread_of_rows(offered.rows, None, offered.per_round)


def _explain_unusable(**arrays: Array | None) -> None:
    """Say why sums over these rows are not finite; looking at every entry is slow, so only done when they are not."""
    for name, array in arrays.items():
        if array is not None:
            array = np.asarray(array, dtype=np.float64)
            require_finite(name, array)
            if np.abs(array).max() > LARGEST:
                raise InputError(f"{name} must lie within ±{LARGEST:g}, or sums of fourth powers overflow: rescale")
    raise InputError("features and rewards are too large: sums of fourth powers overflow; rescale them")


def _as_mapping(batch: Any) -> Mapping[str, Any]:
    if isinstance(batch, Mapping):
        for name in ("features", "rewards"):
            if name not in batch:
                raise InputError(f"each batch must have {name}, got only {', '.join(map(repr, batch))}")
        return batch
    names = ("features", "rewards", "offered")
    if not isinstance(batch, tuple) or not 2 <= len(batch) <= 3:
        raise InputError("each batch must be a mapping or a tuple (features, rewards[, offered])")
    return dict(zip(names, batch, strict=False))


def _from_timed_batches(cls: type[WindowedMoments], rows: Iterator[Mapping[str, Any]], edges: Any) -> WindowedMoments:
    moments: WindowedMoments | None = None
    for batch in rows:
        features = shaped_array("features", batch["features"], ("n", "p"))
        offered = batch.get("offered")
        if "times" not in batch:
            raise InputError("each batch must carry its times when edges are given")
        if moments is None:
            moments = cls.empty(features.shape[1], edges=edges, offered=offered is not None)
        counts = batch.get("offered_counts")
        moments.update(features, batch["rewards"], times=batch["times"], offered=offered, offered_counts=counts)
    if moments is None:
        raise InputError("batches are empty: at least one is needed")
    return moments


def _from_ordered_batches(
    cls: type[WindowedMoments], rows: Iterator[Mapping[str, Any]], windows: int
) -> WindowedMoments:
    cells = 2 * CELLS_PER_WINDOW * windows
    width, filled, moments = 1, 0, None
    for batch in rows:
        features = shaped_array("features", batch["features"], ("n", "p"))
        offered = batch.get("offered")
        if moments is None:
            moments = cls.empty(features.shape[1], cells, offered=offered is not None)
            width = -(-len(features) // cells)
        while filled + len(features) > cells * width:
            half = moments.regrouped(np.arange(0, cells, 2))
            moments = half.followed_by(cls.empty(moments.dim, cells // 2, offered=offered is not None))
            width *= 2
        place = (filled + np.arange(len(features))) // width
        counts = batch.get("offered_counts")
        moments.update(features, batch["rewards"], window=place, offered=offered, offered_counts=counts)
        filled += len(features)
    if moments is None:
        raise InputError("batches are empty: at least one is needed")
    if filled < windows:
        raise InputError(f"windows must be at most the number of rounds, {filled}, got {windows}")
    used = -(-filled // width)
    return moments.stretch(0, used).coarsen(windows)
