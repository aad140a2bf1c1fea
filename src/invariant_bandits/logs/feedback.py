"""Feedback: logged rounds in time order, as arrays; rounds may offer different numbers of actions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from invariant_bandits.checks import (
    Array,
    InputError,
    finite_array,
    probability,
    whole_seed,
)
from invariant_bandits.features.arm_maps import ArmFeatures
from invariant_bandits.logs import spill
from invariant_bandits.logs.spill import StoredRows, collect_rows
from invariant_bandits.moments.batches import (
    checked_counts,
    even_windows,
    finite_times,
    window_of_times,
)
from invariant_bandits.moments.windowed import WindowedMoments


def row_starts(counts: Array) -> Array:
    """First row of every round, and the number of rows (n + 1,)."""
    return np.concatenate([[0], np.cumsum(counts)])


def flatten_offered(offered: Any, counts: Any) -> tuple[Any, Array]:
    """(features (rows, p), actions per round (n,)) from (n, K, p), or from (rows, p) with counts."""
    if counts is None:
        array = finite_array("offered", offered, ("n", "K", "p"))
        n, actions, p = array.shape
        return np.ascontiguousarray(array.reshape(n * actions, p)), np.full(
            n, actions, dtype=np.int64
        )
    flat = offered
    if not isinstance(offered, StoredRows):
        flat = np.ascontiguousarray(finite_array("offered", offered, ("rows", "p")))
    return flat, checked_counts("counts", counts, len(flat))


def checked_actions(value: Any, counts: Array) -> Array:
    """Indices (n,) of the logged actions, each within its round."""
    actions = np.asarray(value)
    if actions.shape != counts.shape or actions.dtype.kind not in "iu":
        raise InputError(
            f"actions must be whole numbers of shape {counts.shape}, got {actions.dtype} of "
            f"shape {actions.shape}"
        )
    outside = (actions < 0) | (actions >= counts)
    if outside.any():
        at = int(np.flatnonzero(outside)[0])
        raise InputError(
            f"actions must index the {counts[at]} of their round, got {actions[at]} at {at}"
        )
    return actions.astype(np.int64)


def per_row(name: str, value: Any, rows: int) -> Any:
    """Return one finite number per offered action, (rows,) or (n, K).

    Stored rows were checked when they were stored.
    """
    if isinstance(value, StoredRows) and value.shape == (rows,):
        return value
    array = np.asarray(value)
    return finite_array(name, array.reshape(-1) if array.ndim == 2 else array, (rows,))


def checked_propensities(
    value: Any, counts: Array, actions: Array
) -> tuple[Array | None, Array]:
    """Return propensities of all offered actions or None, and of the logged ones (n,).

    Whether they are right is for `calibration` to say.
    """
    rows = int(counts.sum())
    n = len(counts)
    array = np.asarray(value)
    several = array.ndim == 2 or (array.ndim == 1 and len(array) == rows != n)
    every = per_row("propensities", value, rows) if several else None
    if every is not None and ((every < 0.0) | (every > 1.0)).any():
        raise InputError("propensities must lie between 0 and 1")
    logged = row_starts(counts)[:-1] + actions
    of_logged = (
        finite_array("propensities", value, (n,)) if every is None else every[logged]
    )
    wrong = np.flatnonzero((of_logged <= 0.0) | (of_logged > 1.0))
    if len(wrong):
        raise InputError(
            f"propensities of logged actions must lie above 0 and at most 1, got {of_logged[wrong[0]]} "
            f"in round {wrong[0]}"
        )
    return every, of_logged


def checked_times(value: Any, n: int) -> Array:
    """Times (n,), numbers or datetimes, that do not decrease."""
    array = finite_times("times", value)
    if array.shape != (n,):
        raise InputError(f"times must have shape ({n},), got {array.shape}")
    falling = np.flatnonzero(array[1:] < array[:-1])
    if len(falling):
        at = int(falling[0])
        raise InputError(
            f"times must not decrease, got {array[at]} before {array[at + 1]} at index {at}: "
            "sort the log"
        )
    return array


def segments(feedback: Feedback) -> Iterator[tuple[int, int]]:
    """Yield (first round, the one after the last) of segments that fit into memory several times over."""
    most = max(1, spill.AT_ONCE // feedback.dim)
    start = 0
    while start < feedback.rounds:
        last_row = feedback.starts[start] + most
        stop = int(np.searchsorted(feedback.starts, last_row, side="right")) - 1
        stop = max(stop, start + 1)
        yield start, stop
        start = stop


def change_rows(values: Any, change: Callable[[Array], Array]) -> Any:
    """`change` of an array, or of stored rows as they are read; None of None."""
    if isinstance(values, StoredRows):
        return values.mapped(change)
    return None if values is None else np.ascontiguousarray(change(values))


def in_parts(feedback: Feedback, *values: Any) -> Iterator[tuple[Any, ...]]:
    """(first round, part, its share of each of the per-row values) of all parts of the feedback."""
    start = row = 0
    for part in feedback.parts():
        stop = row + len(part.offered)
        yield start, part, *(value[row:stop] for value in values)
        start = start + part.rounds
        row = stop


PER_ROUND = (
    "counts",
    "actions",
    "rewards",
    "times",
    "propensities",
    "round_weights",
)
PER_ROW = ("offered", "offered_propensities", "offered_rewards")


@dataclass(frozen=True, eq=False)
class Feedback:
    """Logged rounds in time order: offered actions, logged actions and rewards.

    Create a Feedback with `from_arrays` or `from_full_information`. Arrays that are too large for memory may
    be kept in a file, as StoredRows.

    Parameters
    ----------
    offered : array, shape (rows, p)
        Features of all offered actions, round after round.
    counts : array of int, shape (n,)
        Number of actions that each round offers; the sum of `counts` is the number of rows.
    actions : array of int, shape (n,)
        Index of the logged action among the offered actions of its round, from 0.
    rewards : array, shape (n,)
        Reward of the logged action.
    times : array, shape (n,), or None
        Times of the rounds: numbers or datetimes that do not decrease.
    propensities : array, shape (n,), or None
        Probability with which the logged action was chosen.
    offered_propensities : array, shape (rows,), or None
        Probability with which each offered action could have been chosen.
    offered_rewards : array, shape (rows,), or None
        Rewards of all offered actions, if the log has full information.
    arm_features : ArmFeatures or None
        Rule that computes features from a context and the label of an arm, if actions are labelled arms.
    feature_names : tuple of str
        Names of the p features, for messages; empty if they are not known.
    round_weights : array, shape (n,), or None
        Weight of each round in mean rewards, if rounds without a reward were left out; None: all alike.

    >>> import numpy as np, invariant_bandits as ib
    >>> rng = np.random.default_rng(0)
    >>> offered = rng.normal(size=(100, 3, 2))
    >>> actions = rng.integers(3, size=100)
    >>> rewards = offered[np.arange(100), actions, 0]
    >>> ib.evaluation.Feedback.from_arrays(offered, actions, rewards, propensities=np.full(100, 1 / 3))
    Feedback(rounds=100, dim=2, 3 actions, with propensities)
    """

    offered: Any
    counts: Array
    actions: Array
    rewards: Array
    times: Array | None = None
    propensities: Array | None = None
    offered_propensities: Any = None
    offered_rewards: Any = None
    arm_features: ArmFeatures | None = None
    feature_names: tuple[str, ...] = ()
    round_weights: Array | None = None

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
        """Create a Feedback from arrays, after checking their shapes and values.

        Parameters
        ----------
        offered : array, shape (n, K, p), or (rows, p) with `counts`
            Features of all offered actions.
        actions : array of int, shape (n,)
            Index of the logged action among the offered actions of its round, from 0.
        rewards : array, shape (n,)
            Reward of the logged action.
        counts : array of int, shape (n,), optional
            Number of actions that each round offers, if the numbers differ.
        times : array, shape (n,), optional
            Times of the rounds: numbers or datetimes that do not decrease.
        propensities : array, shape (n,), or (n, K) or (rows,), optional
            Probabilities with which the logged actions of the n rounds were chosen, or the probabilities of
            all offered actions.
        offered_rewards : array, shape (n, K) or (rows,), optional
            Rewards of all offered actions.

        >>> import numpy as np
        >>> from invariant_bandits.logs.feedback import Feedback
        >>> feedback = Feedback.from_arrays(np.ones((5, 2)), [1, 0], [0.5, 1.0], counts=[2, 3])
        >>> feedback
        Feedback(rounds=2, dim=2, 2 to 3 actions, without propensities)
        """
        flat, sizes = flatten_offered(offered, counts)
        n = len(sizes)
        rows = len(flat)
        chosen = checked_actions(actions, sizes)
        feedback = cls(flat, sizes, chosen, finite_array("rewards", rewards, (n,)))
        if propensities is not None:
            every, of_logged = checked_propensities(propensities, sizes, chosen)
            feedback = replace(
                feedback, propensities=of_logged, offered_propensities=every
            )
        if times is not None:
            feedback = replace(feedback, times=checked_times(times, n))
        if offered_rewards is not None:
            known = per_row("offered_rewards", offered_rewards, rows)
            feedback = replace(feedback, offered_rewards=known)
        return feedback

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
        """Create a Feedback from rounds in which the reward of every offered action is known.

        The logged action of each round is drawn uniformly at random.

        Parameters
        ----------
        offered : array, shape (n, K, p), or (rows, p) with `counts`
            Features of all offered actions.
        offered_rewards : array, shape (n, K) or (rows,)
            Rewards of all offered actions.
        seed : int or numpy.random.Generator
            Seed of the random choice of the logged actions.
        counts : array of int, shape (n,), optional
            Number of actions that each round offers, if the numbers differ.
        times : array, shape (n,), optional
            Times of the rounds: numbers or datetimes that do not decrease.

        >>> import numpy as np
        >>> Feedback.from_full_information(np.ones((4, 3, 2)), np.zeros((4, 3)), seed=0)
        Feedback(rounds=4, dim=2, 3 actions, with propensities, full information)
        """
        flat, sizes = flatten_offered(offered, counts)
        every = per_row("offered_rewards", offered_rewards, len(flat))
        rng = np.random.default_rng(
            seed if isinstance(seed, np.random.Generator) else whole_seed(seed)
        )
        actions = np.floor(rng.random(len(sizes)) * sizes).astype(np.int64)
        drawn = cls(flat, sizes, actions, np.zeros(len(sizes)))
        rewards = drawn.of_logged(every)
        known = cls.from_arrays(
            flat, actions, rewards, counts=sizes, times=times, offered_rewards=every
        )
        return known.with_uniform_propensities()

    # -- parts --

    def between(self, start: int, stop: int) -> Feedback:
        """Return the rounds from index `start` up to, but not including, index `stop`."""
        if not 0 <= start < stop <= self.rounds:
            raise InputError(
                f"0 <= start < stop <= {self.rounds} is needed, got {start}, {stop}"
            )
        first = int(self.starts[start])
        last = int(self.starts[stop])
        parts: dict[str, Any] = {}
        for name in PER_ROUND:
            values = getattr(self, name)
            if values is not None:
                parts[name] = values[start:stop]
        for name in PER_ROW:
            rows = getattr(self, name)
            if isinstance(rows, StoredRows):
                parts[name] = rows.between(first, last)
            elif rows is not None:
                parts[name] = rows[first:last]
        return replace(self, **parts)

    def split(
        self, fraction: float | None = None, *, time: Any = None
    ) -> tuple[Feedback, Feedback]:
        """Split the rounds in time: return the earlier and the later rounds.

        Parameters
        ----------
        fraction : float
            Share of the rounds in the earlier part, strictly between 0 and 1.
        time : number or datetime
            Time at which the later part begins, instead of the argument `fraction`.
        """
        if (fraction is None) == (time is None):
            raise InputError(
                "give either fraction (of the rounds) or time (where the later part begins)"
            )
        if fraction is not None:
            at = round(probability("fraction", fraction) * self.rounds)
        elif self.times is None:
            raise InputError("time was given, but this feedback has no times")
        else:
            at = int(np.searchsorted(self.times, time, side="left"))
        if not 0 < at < self.rounds:
            raise InputError(
                f"both parts must have rounds, got {at} earlier and {self.rounds - at} later"
            )
        return self.between(0, at), self.between(at, self.rounds)

    def with_propensities(self, propensities: Any) -> Feedback:
        """Return the same rounds with the given propensities.

        Propensities are the probabilities with which the logging policy chose actions.

        Parameters
        ----------
        propensities : array, shape (n,), or (n, K) or (rows,)
            Propensities of the n logged actions, or of all offered actions.
        """
        if isinstance(propensities, StoredRows):
            of_logged = self.of_logged(propensities)
            return replace(
                self, propensities=of_logged, offered_propensities=propensities
            )
        every, of_logged = checked_propensities(propensities, self.counts, self.actions)
        return replace(self, propensities=of_logged, offered_propensities=every)

    def with_uniform_propensities(self) -> Feedback:
        """Return the rounds with equal propensities for all offered actions of a round.

        Equal propensities are right only if the logging policy chose uniformly at random.
        """
        return self.with_propensities(
            self.per_row(lambda part: np.repeat(1.0 / part.counts, part.counts))
        )

    def shifted(self, baseline: float) -> Feedback:
        """The same rounds with `baseline` taken off all rewards."""
        every = change_rows(self.offered_rewards, lambda rewards: rewards - baseline)
        return replace(self, rewards=self.rewards - baseline, offered_rewards=every)

    def mapped(self, change: Callable[[Array], Array]) -> Feedback:
        """The same rounds with other features: `change` (rows, p) -> (rows, q), each row by itself."""
        return replace(self, offered=change_rows(self.offered, change))

    def recoded(self, features: ArmFeatures | None) -> Feedback:
        """The same rounds of labelled arms with features that share other coefficients between arms."""
        source = self.arm_features
        if features is None or source is None or features is source:
            return self
        return replace(
            self.mapped(lambda rows: features.recode(rows, source)),
            arm_features=features,
        )

    def parts(self) -> Iterator[Feedback]:
        """Yield these rounds in order, in segments of at most 16 MB of features as arrays.

        One segment if 128 MB hold them all.

        What is added up over parts is, where there are several, rounded otherwise than in one.
        """
        is_stored = isinstance(self.offered, StoredRows)
        parts: Iterable[Feedback] = [self]
        if is_stored or self.offered.size > spill.IN_MEMORY:
            parts = (self.between(start, stop) for start, stop in segments(self))
        for part in parts:
            arrays = {}
            for name in PER_ROW:
                rows = getattr(part, name)
                if rows is not None:
                    arrays[name] = rows[:]
            yield replace(part, **arrays)

    def per_row(self, function: Callable[[Feedback], Array]) -> Any:
        """Return `function` of every part, one number per offered action (rows,).

        StoredRows if they are many.
        """
        return collect_rows(map(function, self.parts()))

    def per_round(self, function: Callable[..., Array], *values: Any) -> Array:
        """Return `function` of every part and its share of `values`, one entry per round (n, ...)."""
        return np.concatenate(
            [function(part, *shares) for _, part, *shares in in_parts(self, *values)]
        )

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
    def starts(self) -> Array:
        """First row of every round, and the number of rows (n + 1,)."""
        return row_starts(self.counts)

    @cached_property
    def logged_rows(self) -> Array:
        """Row of every logged action (n,)."""
        return self.starts[:-1] + self.actions

    @property
    def features(self) -> Array:
        """Values of the p features of the n logged actions, as an array (n, p)."""
        return self.per_round(lambda part: part.offered[part.logged_rows])

    def of_logged(self, values: Any) -> Array:
        """Per-row values (rows,) of the logged actions (n,)."""
        return self.per_round(lambda part, rows: rows[part.logged_rows], values)

    def sums_per_round(self, values: Array) -> Array:
        """Sums (n, ...) over the offered actions of per-row values (rows, ...)."""
        return np.add.reduceat(values, self.starts[:-1], axis=0)

    def moments(
        self, windows: int | None = None, *, edges: Any = None, offered: bool = True
    ) -> WindowedMoments:
        """Compute the moments (counts, means and sums of products) of the rounds in every time window.

        Parameters
        ----------
        windows : int, optional
            Number of time windows with equally many rounds; 8 by default.
        edges : array, shape (m + 1,), optional
            Times at which the m windows begin and end, instead of the argument `windows`.
        offered : bool
            Whether to include the moments of all offered actions.

        >>> import numpy as np
        >>> offered = np.random.default_rng(0).normal(size=(20, 3, 2))
        >>> feedback = Feedback.from_arrays(offered, [1] * 20, [0.0] * 20)
        >>> feedback.moments(windows=4)
        WindowedMoments(dim=2, windows=4, rounds=20, of chosen and offered actions)
        """
        if edges is not None and self.times is None:
            raise InputError("edges were given, but this feedback has no times")
        m = 8 if windows is None and edges is None else windows
        moments = WindowedMoments.empty(self.dim, m, edges=edges, offered=offered)
        if edges is None:
            window = even_windows(self.rounds, moments.windows)
        else:
            window = window_of_times(self.rounds, self.times, moments.edges)
        for start, part in in_parts(self):
            moments.update(
                part.offered[part.logged_rows],
                part.rewards,
                window=window[start : start + part.rounds],
                offered=part.offered if offered else None,
                offered_counts=part.counts if offered else None,
            )
        return moments

    def __repr__(self) -> str:
        least = int(self.counts.min())
        most = int(self.counts.max())
        actions = f"{most}" if least == most else f"{least} to {most}"
        known = "without" if self.propensities is None else "with"
        full = "" if self.offered_rewards is None else ", full information"
        return (
            f"Feedback(rounds={self.rounds}, dim={self.dim}, {actions} actions,"
            f" {known} propensities{full})"
        )
