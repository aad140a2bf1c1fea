"""Feedback: logged rounds in time order, as arrays; rounds may offer different numbers of actions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError, finite_array, probability, whole_number
from invariant_bandits.moments.windowed import WindowedMoments
from invariant_bandits.moments.windows import place_times

Whole = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Feedback:
    """n logged rounds in time order; make it with `from_arrays` or `from_full_information`, which check.

    offered (rows, p): features of all offered actions, round after round; counts (n,): how many each round offers;
    actions (n,): index of the logged action within its round; rewards (n,): its reward; times (n,) or None;
    propensities (n,): probability with which the logged action was chosen, or None; offered_propensities (rows,):
    those of all offered actions, or None; offered_rewards (rows,): rewards of all offered actions (full
    information), or None.
    """

    offered: Array
    counts: Whole
    actions: Whole
    rewards: Array
    times: Whole | None = None
    propensities: Array | None = None
    offered_propensities: Array | None = None
    offered_rewards: Array | None = None

    # -- making --

    @classmethod
    def from_arrays(
        cls,
        offered: Any,
        actions: Any,
        rewards: Any,
        *,
        counts: Any = None,
        times: Any = None,
        propensities: Any = None,
        offered_rewards: Any = None,
    ) -> Feedback:
        """Check arrays and copy none that fits.

        offered: (n, K, p), or (rows, p) with counts (n,). rewards: (n,). propensities: (n,) of the logged actions, or
        of all offered ones, (n, K) or (rows,). offered_rewards: (n, K) or (rows,).

        >>> import numpy as np
        >>> from invariant_bandits.logs.feedback import Feedback
        >>> feedback = Feedback.from_arrays(np.ones((5, 2)), [1, 0], [0.5, 1.0], counts=[2, 3])
        >>> feedback
        Feedback(rounds=2, dim=2, 2 to 3 actions, without propensities)
        """
        flat, sizes = _flattened(offered, counts)
        n, rows = len(sizes), len(flat)
        chosen = _whole_numbers("actions", actions, n)
        outside = (chosen < 0) | (chosen >= sizes)
        if outside.any():
            at = int(np.flatnonzero(outside)[0])
            raise InputError(f"actions must index the {sizes[at]} actions of their round, got {chosen[at]} at {at}")
        every, own = None, None
        if propensities is not None:
            every, own = _checked_propensities(propensities, sizes, chosen)
        return cls(
            offered=flat,
            counts=sizes,
            actions=chosen,
            rewards=finite_array("rewards", rewards, (n,)),
            times=None if times is None else _checked_times(times, n),
            propensities=own,
            offered_propensities=every,
            offered_rewards=None if offered_rewards is None else _per_row("offered_rewards", offered_rewards, rows),
        )

    @classmethod
    def from_full_information(
        cls,
        offered: Any,
        offered_rewards: Any,
        *,
        seed: int | np.random.Generator,
        counts: Any = None,
        times: Any = None,
    ) -> Feedback:
        """Rounds in which every reward is known, with a logged action drawn uniformly at random for each."""
        flat, sizes = _flattened(offered, counts)
        every = _per_row("offered_rewards", offered_rewards, len(flat))
        rng = np.random.default_rng(seed if isinstance(seed, np.random.Generator) else whole_number("seed", seed, 0))
        actions = np.floor(rng.random(len(sizes)) * sizes).astype(np.int64)
        return cls.from_arrays(
            flat,
            actions,
            every[_starts(sizes)[:-1] + actions],
            counts=sizes,
            times=times,
            propensities=np.repeat(1.0 / sizes, sizes),
            offered_rewards=every,
        )

    # -- parts --

    def between(self, start: int, stop: int) -> Feedback:
        """The rounds from `start` up to, not including, `stop`."""
        if not 0 <= start < stop <= self.rounds:
            raise InputError(f"start and stop must satisfy 0 <= start < stop <= {self.rounds}, got {start}, {stop}")
        rounds = slice(start, stop)
        rows = slice(int(self.starts[start]), int(self.starts[stop]))

        def cut(array: Any, part: slice) -> Any:
            return None if array is None else array[part]

        return Feedback(
            offered=self.offered[rows],
            counts=self.counts[rounds],
            actions=self.actions[rounds],
            rewards=self.rewards[rounds],
            times=cut(self.times, rounds),
            propensities=cut(self.propensities, rounds),
            offered_propensities=cut(self.offered_propensities, rows),
            offered_rewards=cut(self.offered_rewards, rows),
        )

    def split(self, fraction: float | None = None, *, time: Any = None) -> tuple[Feedback, Feedback]:
        """(earlier, later): the first `fraction` of the rounds, or those before `time`, and the others."""
        if (fraction is None) == (time is None):
            raise InputError("give either fraction (of the rounds) or time (where the later part begins)")
        if fraction is not None:
            at = round(probability("fraction", fraction) * self.rounds)
        elif self.times is None:
            raise InputError("time was given, but this feedback has no times")
        else:
            at = int(np.searchsorted(self.times, time, side="left"))
        if not 0 < at < self.rounds:
            raise InputError(f"both parts must have rounds, got {at} earlier and {self.rounds - at} later")
        return self.between(0, at), self.between(at, self.rounds)

    def with_propensities(self, propensities: Any) -> Feedback:
        """The same rounds with other propensities, (n,) or (rows,)."""
        every, own = _checked_propensities(propensities, self.counts, self.actions)
        return replace(self, propensities=own, offered_propensities=every)

    def with_uniform_propensities(self) -> Feedback:
        """The same rounds as if every offered action had been equally likely: an assumption of the caller's."""
        return self.with_propensities(np.repeat(1.0 / self.counts, self.counts))

    def shifted(self, baseline: float) -> Feedback:
        """The same rounds with `baseline` taken off all rewards."""
        every = None if self.offered_rewards is None else self.offered_rewards - baseline
        return replace(self, rewards=self.rewards - baseline, offered_rewards=every)

    # -- reading --

    @property
    def rounds(self) -> int:
        """Number of rounds n."""
        return len(self.counts)

    @property
    def dim(self) -> int:
        """Number of features p."""
        return int(self.offered.shape[1])

    @cached_property
    def starts(self) -> Whole:
        """First row of every round, and the number of rows (n + 1,)."""
        return _starts(self.counts)

    @cached_property
    def logged_rows(self) -> Whole:
        """Row of every logged action (n,)."""
        return np.asarray(self.starts[:-1] + self.actions)

    @property
    def features(self) -> Array:
        """Features of the logged actions (n, p)."""
        return np.asarray(self.offered[self.logged_rows])

    def sums_per_round(self, values: Array) -> Array:
        """Sums (n, ...) over the offered actions of per-row values (rows, ...)."""
        return np.asarray(np.add.reduceat(values, self.starts[:-1], axis=0))

    def moments(self, windows: int | None = None, *, edges: Any = None, offered: bool = True) -> WindowedMoments:
        """Windowed moments: a number of equal stretches of rounds (8 if nothing is said), or the `edges` of times."""
        if edges is None:
            m = whole_number("windows", 8 if windows is None else windows, 1)
            if m > self.rounds:
                raise InputError(f"windows must be at most the number of rounds, {self.rounds}, got {m}")
            moments = WindowedMoments.empty(self.dim, m, offered=offered)
            bounds = np.linspace(0, self.rounds, m + 1).round().astype(int)
            place: Any = np.repeat(np.arange(m), np.diff(bounds))
        else:
            if windows is not None:
                raise InputError("give either windows or edges, not both")
            if self.times is None:
                raise InputError("edges were given, but this feedback has no times")
            moments = WindowedMoments.empty(self.dim, edges=edges, offered=offered)
            place = place_times(self.rounds, self.times, moments.edges)
        features = self.features
        if not offered:
            return moments.update(features, self.rewards, window=place)
        for count in np.unique(self.counts):
            alike = np.flatnonzero(self.counts == count)
            choices = self.offered[self.starts[alike][:, None] + np.arange(count)]
            moments.update(features[alike], self.rewards[alike], window=place[alike], offered=choices)
        return moments

    def __repr__(self) -> str:
        least, most = int(self.counts.min()), int(self.counts.max())
        actions = f"{least} actions" if least == most else f"{least} to {most} actions"
        known = "without propensities" if self.propensities is None else "with propensities"
        full = "" if self.offered_rewards is None else ", full information"
        return f"Feedback(rounds={self.rounds}, dim={self.dim}, {actions}, {known}{full})"


def _starts(counts: Whole) -> Whole:
    return np.concatenate([[0], np.cumsum(counts)])


def _flattened(offered: Any, counts: Any) -> tuple[Array, Whole]:
    """Features (rows, p) and actions per round (n,) from either form."""
    if counts is None:
        array = finite_array("offered", offered, ("n", "K", "p"))
        n, actions, p = array.shape
        return np.ascontiguousarray(array.reshape(n * actions, p)), np.full(n, actions, dtype=np.int64)
    flat = np.ascontiguousarray(finite_array("offered", offered, ("rows", "p")))
    sizes = _whole_numbers("counts", counts, None)
    if (sizes < 1).any():
        raise InputError(f"counts must be at least 1, got {sizes.min()}")
    if sizes.sum() != len(flat):
        raise InputError(f"counts must add up to the {len(flat)} rows of offered, got {sizes.sum()}")
    return flat, sizes


def _whole_numbers(name: str, value: Any, length: int | None) -> Whole:
    array = np.asarray(value)
    if array.ndim != 1 or len(array) == 0 or (length is not None and len(array) != length):
        raise InputError(f"{name} must have shape ({'n' if length is None else length},), got {array.shape}")
    if array.dtype.kind not in "iu":
        raise InputError(f"{name} must be whole numbers, got dtype {array.dtype}")
    return array.astype(np.int64)


def _per_row(name: str, value: Any, rows: int) -> Array:
    """One finite number per offered action, (rows,) or (n, K)."""
    array = np.asarray(value)
    return finite_array(name, array.reshape(-1) if array.ndim == 2 else array, (rows,))


def _checked_propensities(value: Any, counts: Whole, actions: Whole) -> tuple[Array | None, Array]:
    """(of all offered actions or None, of the logged ones (n,)); whether they are right is for `calibration` to say."""
    rows, n = int(counts.sum()), len(counts)
    array = np.asarray(value)
    several = array.ndim == 2 or (array.ndim == 1 and len(array) == rows != n)
    every = _per_row("propensities", value, rows) if several else None
    own = finite_array("propensities", value, (n,)) if every is None else every[_starts(counts)[:-1] + actions]
    if every is not None and ((every < 0.0) | (every > 1.0)).any():
        raise InputError("propensities must lie between 0 and 1")
    wrong = np.flatnonzero((own <= 0.0) | (own > 1.0))
    if len(wrong):
        raise InputError(
            f"propensities of logged actions must lie above 0 and at most 1, got {own[wrong[0]]} in round {wrong[0]}"
        )
    return every, own


def _checked_times(value: Any, n: int) -> Whole:
    array = np.asarray(value)
    if array.shape != (n,):
        raise InputError(f"times must have shape ({n},), got {array.shape}")
    if array.dtype.kind not in "iufM":
        raise InputError(f"times must be numbers or datetimes, got dtype {array.dtype}")
    if not np.isfinite(array).all():
        raise InputError("times must be finite")
    falling = np.flatnonzero(array[1:] < array[:-1])
    if len(falling):
        at = int(falling[0])
        raise InputError(f"times must not decrease, got {array[at]} before {array[at + 1]} at index {at}: sort the log")
    return array
