"""Rounds that a log holds more than once: which row is the round, and which reward counts.

A stream that delivers at least once repeats its rows, and many systems write a second row when the outcome
arrives. The first row of an id is the decision; the rewards of its copies are combined.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from invariant_bandits.checks import Array, InputError
from invariant_bandits.logs import decode
from invariant_bandits.logs.arms import label_words
from invariant_bandits.logs.quality import MERGED, RowProblems
from invariant_bandits.logs.schema import REPEATED, Schema
from invariant_bandits.logs.sources import Task


@dataclass(frozen=True, eq=False)
class RepeatedRounds:
    """Rows that repeat the id of an earlier row, and the rewards that count.

    Parameters
    ----------
    copies : array of int, shape (c,)
        Sorted positions in the log of the rows that are merged into an earlier row.
    strangers : array of int, shape (s,)
        Sorted positions of the rows that repeat an id with another arm or, without labels, with other
        features; they are left out.
    firsts : array of int, shape (k,)
        Sorted positions of the rows that stay.
    rewards : array, shape (k,)
        Rewards of the rows that stay, NaN where no copy has one.
    differing : int
        Number of ids whose copies have different rewards.
    """

    copies: Array
    strangers: Array
    firsts: Array
    rewards: Array
    differing: int

    def merged_rewards(
        self,
        positions: Array,
        rewards: Array,
        problems: RowProblems,
    ) -> Array:
        """Return rewards (n,) in which those of repeated rounds are the combined ones.

        A row without a reward has no problem any more if a copy has one.
        """
        index = np.searchsorted(self.firsts, positions)
        index = np.minimum(index, len(self.firsts) - 1)
        replaced = (self.firsts[index] == positions) & np.isfinite(self.rewards[index])
        problems.clear(replaced)
        return np.where(replaced, self.rewards[index], rewards)

    def leave_out(
        self,
        positions: Array,
        schema: Schema,
        problems: RowProblems,
    ) -> None:
        """Leave out the rows that are merged into an earlier one, and those with another action."""
        action = "arm" if schema.labelled else "value of a feature"
        problems.leave_out(np.isin(positions, self.copies), f"{MERGED}{schema.round}")
        problems.leave_out(
            np.isin(positions, self.strangers),
            f"duplicated {schema.round} with another {action}",
        )

    def note(self, schema: Schema) -> str:
        """Say how many rows repeat an id, and which reward counts."""
        rows = len(self.copies) + len(self.strangers)
        counted = f"{rows:,} rows repeat the {schema.round} of an earlier row"
        if not len(self.copies):
            return f"{counted} with another action, and were left out; is it the round (--round none)?"
        if not self.differing:
            return f"{counted}; they were merged with it, all with the same reward"
        differ = f"{self.differing:,} of {len(self.firsts):,} repeated rounds have different rewards"
        others = ", ".join(way for way in REPEATED if way != schema.repeated)
        return f"{counted}; {differ}: {COUNTED[schema.repeated]} (--repeated chooses: {others})"


class _Repeats(NamedTuple):
    """Rows with a repeated id: which id, their positions in the log, and what they say, each (n,)."""

    groups: Array
    positions: Array
    rewards: Array
    actions: Array
    times: Array


class RepeatProbe:
    """Reads the rewards, actions and times of the rows whose ids come more than once.

    Parameters
    ----------
    schema : Schema
        Roles of the columns; `schema.repeated` says how rewards are combined.
    ids : array of int, shape (k,)
        Sorted hashes of the ids that come more than once.
    hashes : callable
        Column → hashes of its values.
    dates : bool
        Whether times are dates.
    """

    def __init__(
        self,
        schema: Schema,
        ids: Array,
        hashes: Callable[[Any], Array],
        dates: bool,
    ) -> None:
        self.schema = schema
        self.ids = ids
        self.hashes = hashes
        self.dates = dates
        action = schema.arm or (schema.action if schema.offered is not None else None)
        self.compared = list(schema.features) if action is None else [action]
        wanted = (schema.round, schema.reward, schema.time, *self.compared)
        self.columns = [name for name in wanted if name is not None]
        self._parts: list[_Repeats] = []

    def add(
        self,
        task: Task,
        row: int,
        batch: Any,
    ) -> None:
        """Keep what is needed of the rows of a batch whose id is repeated."""
        hashed = self.hashes(batch.column(self.schema.round))
        group = np.minimum(np.searchsorted(self.ids, hashed), len(self.ids) - 1)
        rows = np.flatnonzero(self.ids[group] == hashed)
        part = batch.take(rows)
        repeats = _Repeats(
            groups=group[rows],
            positions=task.position + row - task.first_row + rows,
            rewards=decode.numbers_or_nan(part.column(self.schema.reward)),
            actions=self._action_hashes(part),
            times=self._times(part),
        )
        self._parts.append(repeats)

    def _action_hashes(self, part: Any) -> Array:
        """Hashes (n,) of what was chosen: of the action or, if only its features are known, of these."""
        if self.schema.arm is not None:
            return self.hashes(label_words(part.column(self.schema.arm)))
        rows = part.select(self.compared).to_pylist()
        hashed = [hash(repr(list(row.values()))) for row in rows]
        return np.array(hashed, dtype=np.int64)

    def _times(self, part: Any) -> Array:
        """Times (n,) as numbers; 0 where there is none, so that the order of the rows decides."""
        name = self.schema.time
        if name is None:
            return np.zeros(len(part))
        problems = RowProblems(len(part))
        times = decode.times(part.column(name), name, self.dates, problems)
        return np.where(problems.usable, times.astype(np.float64), 0.0)

    def results(self) -> dict[str, Any]:
        """Return the repeated rounds."""
        columns = zip(*self._parts, strict=True)
        repeats = _Repeats(*map(np.concatenate, columns))
        order = np.lexsort((repeats.positions, repeats.times, repeats.groups))
        groups, positions, rewards, actions, _ = (part[order] for part in repeats)

        # The first row of a group is the decision; rows with another action are none of its copies.
        is_first = np.append(True, groups[1:] != groups[:-1])
        starts = np.flatnonzero(is_first)
        group = np.cumsum(is_first) - 1
        same_action = actions == actions[starts][group]
        rewards = np.where(same_action, rewards, np.nan)

        least = np.fmin.reduceat(rewards, starts)
        most = np.fmax.reduceat(rewards, starts)
        differing = int((least < most).sum())
        if differing and self.schema.repeated == "error":
            raise InputError(self._refusal(differing, len(starts)))
        combined = COMBINATIONS[self.schema.repeated](rewards, starts)
        firsts = positions[starts]
        by_position = np.argsort(firsts)
        rounds = RepeatedRounds(
            copies=np.sort(positions[~is_first & same_action]),
            strangers=np.sort(positions[~is_first & ~same_action]),
            firsts=firsts[by_position],
            rewards=self.schema.learned_reward(combined[by_position]),
            differing=differing,
        )
        return {"repeats": rounds}

    def _refusal(self, differing: int, ids: int) -> str:
        ways = ", ".join(way for way in REPEATED if way != "error")
        return (
            f"{differing:,} of {ids:,} repeated values of {self.schema.round!r} have "
            f"different rewards; say which one counts: --repeated {ways} (in Python "
            "schema={'repeated': …})"
        )


def first_reward(rewards: Array, starts: Array) -> Array:
    """Return the first reward of every group that is not missing (k,); rows are in the order of time."""
    rows = np.where(np.isfinite(rewards), np.arange(len(rewards)), len(rewards))
    first = np.minimum.reduceat(rows, starts)
    return np.append(rewards, np.nan)[first]


def last_reward(rewards: Array, starts: Array) -> Array:
    """Return the last reward of every group that is not missing (k,); rows are in the order of time."""
    rows = np.where(np.isfinite(rewards), np.arange(len(rewards)), -1)
    last = np.maximum.reduceat(rows, starts)
    return np.append(rewards, np.nan)[last]  # row −1 is the NaN


def largest_reward(rewards: Array, starts: Array) -> Array:
    """Return the largest reward of every group (k,), NaN where all are missing."""
    return np.fmax.reduceat(rewards, starts)


def reward_sum(rewards: Array, starts: Array) -> Array:
    """Return the sum of the rewards of every group (k,), NaN where all are missing."""
    is_known = np.isfinite(rewards)
    sums = np.add.reduceat(np.where(is_known, rewards, 0.0), starts)
    return np.where(np.logical_or.reduceat(is_known, starts), sums, np.nan)


COMBINATIONS: dict[str, Callable[[Array, Array], Array]] = {
    "last": last_reward,
    "first": first_reward,
    "max": largest_reward,
    "sum": reward_sum,
    "error": last_reward,  # only reached if no rewards differ
}
"""How the rewards of the copies of a round become one, by the value of `Schema.repeated`."""
COUNTED = {
    "last": "the last one counts",
    "first": "the first one counts",
    "max": "the largest one counts",
    "sum": "their sum counts",
}
"""What `COMBINATIONS` do, in words."""
