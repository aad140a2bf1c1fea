"""WindowedMoments: what the offline phase keeps of the logs.

Per window: the number of rounds, the means, and sums of products about those means. They add over rows,
batches and shards, and nothing later needs the rows again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np

from invariant_bandits import storage
from invariant_bandits.checks import (
    Array,
    InputError,
    finite_array,
    shaped_array,
    whole_number,
)
from invariant_bandits.moments.batches import (
    checked_batch,
    checked_edges,
    even_starts,
    even_windows,
    explain_unusable,
    segments,
    window_of_rounds,
)
from invariant_bandits.moments.power_sums import PowerSums
from invariant_bandits.storage import StateSchema

KIND = "windowed-moments"


@dataclass(eq=False)
class WindowedMoments:
    """Counts, means and sums of products of logged features and rewards, per window (period of the log).

    Counts, means and sums are all that later estimates need: the rounds themselves are not kept. Create a
    WindowedMoments with `from_arrays` or of a log with `Log.moments`, and add further rounds with
    the method `update`.

    Parameters
    ----------
    chosen : PowerSums of p + 1 variables in m windows
        Counts, means and sums of products of the chosen actions' p features and, last, the reward.
    offered : PowerSums of p variables in m windows, optional
        Counts, means and sums of products of the p features of all offered actions, if the log has them.
    edges : array of numbers or datetimes, shape (m + 1,), optional
        Times at which the m windows begin and end.

    >>> import numpy as np, invariant_bandits as ib
    >>> rng = np.random.default_rng(0)
    >>> features = rng.normal(size=(400, 3))
    >>> rewards = features.sum(axis=1)
    >>> morning = ib.WindowedMoments.from_arrays(features[:200], rewards[:200], windows=2)
    >>> evening = ib.WindowedMoments.from_arrays(features[200:], rewards[200:], windows=2)
    >>> morning.followed_by(evening) == ib.WindowedMoments.from_arrays(features, rewards, windows=4)
    True
    """

    chosen: PowerSums
    offered: PowerSums | None = None
    edges: Array | None = None

    # -- reading --

    @property
    def dim(self) -> int:
        """Number of features p."""
        return int(self.chosen.mean.shape[1]) - 1

    @property
    def windows(self) -> int:
        """Number of windows (periods of the log) m."""
        return len(self.chosen.count)

    @property
    def rounds(self) -> int:
        """Number of logged rounds in all windows."""
        return int(self.chosen.count.sum())

    @property
    def counts(self) -> Array:
        """Number of rounds in each of the m windows (m,)."""
        return self.chosen.count

    @property
    def feature_mean(self) -> Array:
        """Mean of the p features of the chosen actions in each of the m windows (m, p)."""
        return self.chosen.mean[:, :-1]

    @property
    def reward_mean(self) -> Array:
        """Mean reward in each of the m windows (m,)."""
        return self.chosen.mean[:, -1]

    @property
    def gram(self) -> Array:
        """Sums of products of the p features, each minus its window mean, in m windows (m, p, p)."""
        return self.chosen.scatter[:, :-1, :-1]

    @property
    def cross(self) -> Array:
        """Sums of products of p features and the reward, each minus its window mean, in m windows (m, p)."""
        return self.chosen.scatter[:, :-1, -1]

    @property
    def reward_square(self) -> Array:
        """Sums of squared rewards, each reward minus its window mean, in m windows (m,)."""
        return self.chosen.scatter[:, -1, -1]

    def second_moment(self) -> Array:
        """Return the sum (p, p) of φφᵀ over all rounds, where φ are the features of the chosen action."""
        mean = self.feature_mean
        return np.asarray(
            self.gram.sum(axis=0) + (mean * self.counts[:, None]).T @ mean
        )

    # -- making --

    @classmethod
    def empty(
        cls,
        dim: int,
        windows: int | None = None,
        *,
        offered: bool = False,
        edges: Any = None,
    ) -> WindowedMoments:
        """Return moments without any rounds, to which the method `update` can add rounds.

        Parameters
        ----------
        dim : int
            Number of features p.
        windows : int
            Number of windows (periods of the log) m, instead of the argument `edges`.
        offered : bool
            Whether to keep moments of all offered actions in addition to those of the chosen actions.
        edges : array of numbers or datetimes, shape (m + 1,)
            Times, strictly increasing, at which the m windows begin and end.
        """
        dim = whole_number("dim", dim, 1)
        checked = None if edges is None else checked_edges(edges)
        if (windows is None) == (checked is None):
            raise InputError(
                "give either windows (their number) or edges (their bounding times)"
            )
        m = (
            len(checked) - 1
            if checked is not None
            else whole_number("windows", windows, 1)
        )
        return cls(
            PowerSums.empty(m, dim + 1),
            PowerSums.empty(m, dim) if offered else None,
            checked,
        )

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
        """Compute moments of n rounds that are given as arrays.

        Parameters
        ----------
        features : array, shape (n, p)
            Features of the chosen actions.
        rewards : array, shape (n,)
            Rewards of the chosen actions.
        windows : int
            Number of time windows with equally many rows, for rows in time order; 8 by default.
        offered : array, shape (n, K, p), optional
            Features of all offered actions.
        times : array of numbers or datetimes, shape (n,)
            Times of the rounds, in any order, for use with the argument `edges`.
        edges : array of numbers or datetimes, shape (m + 1,)
            Times, strictly increasing, at which windows begin and end. Window i holds the rounds with
            `edges[i] <= time < edges[i + 1]`, and the last window includes its end.

        >>> import numpy as np, invariant_bandits as ib
        >>> rng = np.random.default_rng(0)
        >>> features = rng.normal(size=(400, 3))
        >>> moments = ib.WindowedMoments.from_arrays(features, features.sum(axis=1), windows=4)
        >>> moments.dim, moments.windows, moments.rounds
        (3, 4, 400)
        """
        n, dim = shaped_array("features", features, ("n", "p")).shape
        if (times is None) != (edges is None):
            raise InputError("times and edges belong together: give both or neither")
        m = 8 if windows is None and edges is None else windows
        moments = cls.empty(dim, m, edges=edges, offered=offered is not None)
        index = even_windows(n, moments.windows) if edges is None else None
        return moments.update(
            features, rewards, window=index, times=times, offered=offered
        )

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
        """Add a batch of n rounds in place, and return self.

        All rounds are checked before any round is added.

        Parameters
        ----------
        features, rewards : arrays, shapes (n, p) and (n,)
            Features and rewards of the chosen actions.
        window : int, or array of int, shape (n,)
            Index of the time window to which each round belongs, instead of the argument `times`.
        times : array of numbers or datetimes, shape (n,)
            Times of the rounds, if the windows are bounded by times (`edges`).
        offered : array, shape (n, K, p), or (rows, p) with offered_counts
            Features of all offered actions, round after round, if the moments include offered actions.
        offered_counts : array of int, shape (n,)
            Number of actions that each round offered, if the numbers differ.
        """
        batch = checked_batch(
            features,
            rewards,
            offered,
            offered_counts,
            dim=self.dim,
            keeps_offered=self.offered is not None,
        )
        index = window_of_rounds(
            len(batch.rewards), window, times, self.windows, self.edges
        )
        parts = [batch.sums(index, rounds) for rounds in segments(index)]
        if not all(part.are_usable for part in parts):
            explain_unusable(features=features, rewards=rewards, offered=offered)
        for part in parts:
            self.chosen.put(part.windows, part.chosen)
            if part.offered is not None and self.offered is not None:
                self.offered.put(part.windows, part.offered)
        return self

    def __add__(self, other: object) -> WindowedMoments:
        """Moments of two shards of the same windows."""
        if not isinstance(other, WindowedMoments):
            return NotImplemented
        self._check_alike(other)
        if self.windows != other.windows:
            raise InputError(
                f"shards must have the same windows, got {self.windows} and {other.windows}"
            )
        if not np.array_equal(self.edges, other.edges):  # type: ignore[arg-type]
            raise InputError("shards must have the same window edges")
        return self._paired(other, PowerSums.merged, self.edges)

    def __radd__(self, other: object) -> WindowedMoments:
        """Return these moments for the 0 with which `sum` begins."""
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def merge_windows(self, first: int, part: WindowedMoments) -> None:
        """Add, in place, moments of some of these windows, the first of them being window `first`."""
        self._check_alike(part)
        windows = slice(first, first + part.windows)
        self.chosen.put(windows, part.chosen)
        if self.offered is not None and part.offered is not None:
            self.offered.put(windows, part.offered)

    def followed_by(self, later: WindowedMoments) -> WindowedMoments:
        """Return moments with the windows of this object, followed by the windows of the argument `later`."""
        self._check_alike(later)
        if (self.edges is None) != (later.edges is None):
            raise InputError(
                "either both or neither of the moments must have window edges"
            )
        edges = None
        if self.edges is not None and later.edges is not None:
            if self.edges[-1] != later.edges[0]:
                raise InputError(
                    f"later must begin where these windows end, at {self.edges[-1]}, got {later.edges[0]}"
                )
            edges = np.concatenate([self.edges, later.edges[1:]])
        return self._paired(later, PowerSums.followed_by, edges)

    def _check_alike(self, other: WindowedMoments) -> None:
        if self.dim != other.dim:
            raise InputError(
                f"moments must have the same dim, got {self.dim} and {other.dim}"
            )
        if (self.offered is None) != (other.offered is None):
            raise InputError(
                "either both or neither of the moments must hold offered actions"
            )

    def _paired(
        self,
        other: WindowedMoments,
        join: Callable[[PowerSums, PowerSums], PowerSums],
        edges: Any,
    ) -> WindowedMoments:
        """`join` of both chosen and of both offered sums."""
        offered = None
        if self.offered is not None and other.offered is not None:
            offered = join(self.offered, other.offered)
        return WindowedMoments(join(self.chosen, other.chosen), offered, edges)

    # -- choosing and joining windows --

    def between(self, start: int, stop: int) -> WindowedMoments:
        """Return the windows from index `start` up to, but not including, index `stop`."""
        if not 0 <= start < stop <= self.windows:
            raise InputError(
                f"start and stop must satisfy 0 <= start < stop <= {self.windows}: {start}, {stop}"
            )
        edges = None if self.edges is None else self.edges[start : stop + 1]
        return self._each(lambda sums: sums.at(slice(start, stop)), edges)

    def coarsen(self, windows: int) -> WindowedMoments:
        """Merge neighbouring windows into fewer windows with numbers of rounds as equal as possible."""
        windows = whole_number("windows", windows, 1)
        if windows > self.windows:
            raise InputError(
                f"windows must be at most the present {self.windows}, got {windows}"
            )
        return self.regrouped(even_starts(self.chosen.count, windows))

    def regrouped(self, starts: Array) -> WindowedMoments:
        """Merge neighbours: a new window begins at each of `starts`, increasing indices of which the
        first is 0.
        """
        edges = (
            None if self.edges is None else self.edges[np.append(starts, self.windows)]
        )
        return self._each(lambda sums: sums.grouped(starts), edges)

    def _each(
        self, change: Callable[[PowerSums], PowerSums], edges: Any
    ) -> WindowedMoments:
        """`change` of the chosen and of the offered sums."""
        return WindowedMoments(
            change(self.chosen),
            None if self.offered is None else change(self.offered),
            edges,
        )

    # -- changing variables --

    def residual_after(self, component: Any) -> WindowedMoments:
        """Subtract the linear prediction `features @ component` from the rewards; return the new moments."""
        component = finite_array("component", component, (self.dim,))
        change = np.eye(self.dim + 1)
        change[-1, :-1] = -component
        return self.transformed(change)

    def transformed(self, change: Array) -> WindowedMoments:
        """Moments of the linearly changed variables.

        Third and fourth powers do not follow a linear map; they are left as they are.

        Parameters
        ----------
        change : array, shape (p, p), or (p + 1, p + 1)
            Features become change @ φ; the larger one acts on [φ, reward].
        """
        with_reward = np.shape(change)[:1] == (self.dim + 1,)
        change = finite_array("change", change, (self.dim + with_reward,) * 2)
        of_both = np.eye(self.dim + 1)
        of_both[: len(change), : len(change)] = change
        of_features = of_both[: self.dim, : self.dim]
        offered = (
            None if self.offered is None else self.offered.transformed(of_features)
        )
        return WindowedMoments(self.chosen.transformed(of_both), offered, self.edges)

    def about_zero(self) -> WindowedMoments:
        """Moments about 0, for a fit without intercepts: features that hold levels have their own."""
        return self._each(PowerSums.about_zero, self.edges)

    def padded(self, indices: Any) -> WindowedMoments:
        """Add features that are always 0 before those at `indices`, as numpy.insert does.

        >>> import numpy as np
        >>> moments = WindowedMoments.from_arrays(np.ones((4, 2)), np.ones(4), windows=2)
        >>> moments.padded([0, 2]).feature_mean[0]
        array([0., 1., 1., 0.])
        """
        return self._each(lambda sums: sums.padded(np.asarray(indices)), self.edges)

    def rescaled(self, kept: Array, shift: Array, scale: Array) -> WindowedMoments:
        """Moments of the features (φ[kept] − shift) / scale; all powers follow exactly.

        Parameters
        ----------
        kept : array of int, shape (q,), which features stay, in this order
        shift : array, shape (q,), subtracted from each, in its unit
        scale : array, shape (q,), its new unit, positive
        """
        offered = (
            None if self.offered is None else self.offered.rescaled(kept, shift, scale)
        )
        chosen = self.chosen.rescaled(
            np.append(kept, self.dim), np.append(shift, 0.0), np.append(scale, 1.0)
        )
        return WindowedMoments(chosen, offered, self.edges)

    # -- comparing and storing --

    def __eq__(self, other: object) -> bool:
        """Equal to the last bit, edges included."""
        if not isinstance(other, WindowedMoments):
            return NotImplemented
        settings, arrays = storage.to_state(self)
        other_settings, others = storage.to_state(other)
        if settings != other_settings or arrays.keys() != others.keys():
            return False
        return all(
            np.array_equal(array, others[name]) for name, array in arrays.items()
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        kind = "chosen and offered" if self.offered is not None else "chosen"
        return (
            f"WindowedMoments(dim={self.dim}, windows={self.windows}, rounds={self.rounds}, "
            f"of {kind} actions)"
        )

    @classmethod
    def state_schema(
        cls, settings: Mapping[str, Any], names: Collection[str]
    ) -> StateSchema:
        """What a file of moments must hold: p + 1 chosen and p offered variables in m windows, and m + 1
        edges.
        """
        return storage.schema_of(cls, names)

    def to_bytes(self) -> bytes:
        """The content of a file: self-describing and checksummed, for storing or sending."""
        settings, arrays = storage.to_state(self)
        try:
            self.state_schema(settings, arrays).check(arrays)
        except InputError as error:
            raise InputError(f"moments cannot be stored: {error}") from None
        return storage.encode(KIND, arrays, settings)

    @classmethod
    def from_bytes(
        cls, content: bytes | bytearray, name: str = "content"
    ) -> WindowedMoments:
        """The moments in the content of a file; `name` is for messages."""
        arrays, settings = storage.decode(content, KIND, name, cls.state_schema)
        try:
            return storage.from_state(cls, settings, arrays)
        except Exception as error:
            raise storage.not_whole(name, KIND, error) from None

    def save(self, path: str | PathLike[str]) -> None:
        """Write the moments to a file with a checksum, completely or not at all."""
        storage.replace_file(path, self.to_bytes())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> WindowedMoments:
        """Read moments from a file that the method `save` wrote; a damaged file raises FileError."""
        return cls.from_bytes(storage.contents(path), str(path))
