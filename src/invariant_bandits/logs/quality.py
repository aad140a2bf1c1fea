"""What was wrong with a log: rows counted by reason, with the first examples; nothing disappears silently.

`RowProblems` belongs to one batch while it is decoded, `QualityReport` to the whole log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError

EXAMPLES = 5
"""Rows that a report names per reason; a table shows two of them."""
IMPUTED = "imputed "
"""Begins the reason of rows whose missing value was filled in; the name of the column follows."""
NOTED = "noted: "
"""Begins a reason of a format that leaves nothing out."""
MERGED = "repeated "
"""Begins the reason of rows that were merged with an earlier row of the same round; its column follows."""
NEARLY_ALL = 0.99
"""Share of rounds whose offered actions are all the same from which on a log has no choices."""
KEPT = ("out of order in time", "unknown category", IMPUTED, NOTED, MERGED)


class RowProblems:
    """What is wrong with each of n rows: the first reason to leave it out, if there is one.

    Parameters
    ----------
    rows : int
        Number of rows n.

    Attributes
    ----------
    codes : array, shape (n,)
        Index of a row's reason within `reasons`; 0 if nothing is wrong.
    reasons : list of str
        The reasons in the order in which they were met, after an empty one.
    kept : dict of str to array, shape (n,)
        By reason, a mask of rows that are used although something is strange about them.
    """

    def __init__(self, rows: int) -> None:
        self.codes = np.zeros(rows, dtype=np.int64)
        self.reasons = [""]
        self.kept: dict[str, Array] = {}

    def leave_out(self, rows: Array, reason: str) -> None:
        """Rows where the mask `rows` (n,) is true cannot be used; those with an earlier reason keep it."""
        if not rows.any():
            return
        if reason not in self.reasons:
            self.reasons.append(reason)
        self.codes[rows & (self.codes == 0)] = self.reasons.index(reason)

    def clear(self, rows: Array) -> None:
        """Rows where the mask `rows` (n,) is true have no problem any more."""
        self.codes[rows] = 0

    def keep(self, rows: Array, reason: str) -> None:
        """Rows where the mask `rows` (n,) is true are strange, but can be used."""
        if rows.any():
            self.kept[reason] = rows

    @property
    def any(self) -> bool:
        """Whether any row cannot be used."""
        return len(self.reasons) > 1

    @property
    def usable(self) -> Array:
        """Mask (n,) of the rows without a problem."""
        return np.asarray(self.codes == 0)

    def by_reason(self) -> Iterator[tuple[str, Array]]:
        """(reason, mask (n,) of the rows that are left out for it)."""
        for code, reason in enumerate(self.reasons[1:], start=1):
            yield reason, self.codes == code

    def of_groups(self, starts: Array) -> RowProblems:
        """Problems of groups of rows that begin at `starts`: one of the problems of its rows."""
        groups = RowProblems(len(starts))
        groups.kept = self.kept
        if self.any and len(starts):
            groups.codes = np.maximum.reduceat(self.codes, starts)
            groups.reasons = list(self.reasons)
        return groups

    def leave_out_at(self, where: Array, parts: RowProblems) -> None:
        """Leave out the rows `where` (a mask, or indices) for the problems of their parts."""
        for reason, bad_parts in parts.by_reason():
            bad = np.zeros(len(self.codes), dtype=bool)
            bad[where] = bad_parts
            self.leave_out(bad, reason)


@dataclass
class Problem:
    """One reason: how many rounds or rows, and the first of them as (file, row), rows counted from 0."""

    count: int = 0
    examples: list[tuple[str, int]] = field(default_factory=list)


@dataclass
class QualityReport:
    """Rows read, rounds used, and problems by reason.

    Rounds that are out of order in time, have an unknown category or a value that was filled in are counted
    and kept (order does not matter where windows are bounded by time; an unknown category is all zeros);
    every other problem leaves the round out.

    Parameters
    ----------
    rows : int
        Rows read, used or not.
    rounds : int
        Rounds used.
    problems : dict of str to Problem
        What was found, by reason.
    choices, identical : int
        Rounds with several offered actions that were looked at, and those of them whose features are all the
        same.

    >>> report = QualityReport(rows=10, rounds=9)
    >>> report.add("missing reward", "log.csv", [7])
    >>> print(report.describe())
    10 rows read, 9 rounds used, 1 left out
              1  missing reward (left out); first: log.csv row 7
    """

    rows: int = 0
    rounds: int = 0
    problems: dict[str, Problem] = field(default_factory=dict)
    choices: int = 0
    identical: int = 0

    def add(self, reason: str, file: str, rows: Sequence[int] | Array) -> None:
        """Count `rows` of `file` under `reason`, if there are any."""
        if len(rows):
            self._count(
                reason, len(rows), [(file, int(row)) for row in rows[:EXAMPLES]]
            )

    def merge(self, later: QualityReport) -> None:
        """Add what was found in a later part of the log."""
        for name in ("rows", "rounds", "choices", "identical"):
            setattr(self, name, getattr(self, name) + getattr(later, name))
        for reason, problem in later.problems.items():
            self._count(reason, problem.count, problem.examples)

    def _count(self, reason: str, count: int, examples: list[tuple[str, int]]) -> None:
        problem = self.problems.setdefault(reason, Problem())
        problem.count += count
        problem.examples += examples[: max(0, EXAMPLES - len(problem.examples))]

    @staticmethod
    def is_kept(reason: str) -> bool:
        """Whether rounds with this problem are used all the same."""
        return reason.startswith(KEPT)

    @property
    def left_out(self) -> int:
        """Rounds that were not used."""
        return sum(
            problem.count
            for reason, problem in self.problems.items()
            if not self.is_kept(reason)
        )

    @property
    def merged(self) -> int:
        """Rows that were merged with an earlier row of the same round."""
        return sum(self._counts_after(MERGED).values())

    @property
    def imputed(self) -> dict[str, int]:
        """Rows whose missing value was filled in, by column."""
        return self._counts_after(IMPUTED)

    def _counts_after(self, prefix: str) -> dict[str, int]:
        """Return counts by what follows the prefix in the reasons that begin with it."""
        return {
            reason.removeprefix(prefix): problem.count
            for reason, problem in self.problems.items()
            if reason.startswith(prefix)
        }

    @property
    def clean(self) -> bool:
        """Whether nothing at all was found."""
        return not self.problems

    def describe(self) -> str:
        """A table a person can read."""
        lines = [
            f"{self.rows:,} rows read, {self.rounds:,} rounds used, {self.left_out:,} left out"
        ]
        problems = sorted(
            self.problems.items(), key=lambda pair: (-pair[1].count, pair[0])
        )
        for reason, problem in problems:
            where = ", ".join(f"{file} row {row}" for file, row in problem.examples[:2])
            fate = "kept" if self.is_kept(reason) else "left out"
            if reason.startswith(MERGED):
                fate = "merged"
            lines.append(f"  {problem.count:>9,}  {reason} ({fate}); first: {where}")
        return "\n".join(lines)

    def check(self, *, strict: bool = False, keep_going: bool = False) -> None:
        """Raise InputError if the log is too bad.

        Parameters
        ----------
        strict : bool
            Whether any problem is too bad.
        keep_going : bool
            Whether a log may do of which most rounds cannot be used, or all offered actions are alike.
        """
        if strict and self.problems:
            raise InputError(
                f"the log has problems and strict was asked for:\n{self.describe()}"
            )
        if self.rounds == 0:
            raise InputError(f"the log has no usable round:\n{self.describe()}")
        if keep_going:
            return
        if self.left_out > self.rounds:
            raise InputError(
                "most rounds of the log cannot be used, what is left may mislead; mend the log, "
                f"or go on with keep_going=True (--keep-going):\n{self.describe()}"
            )
        if self.choices and self.identical >= NEARLY_ALL * self.choices:
            raise InputError(
                f"in {self.identical:,} of {self.choices:,} rounds looked at, all offered "
                "actions have the same features: nothing distinguishes them; say which column is "
                "the action's label (--arm COLUMN), or give their features (--features)"
            )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON-able values."""
        return {**asdict(self), "left_out": self.left_out}
