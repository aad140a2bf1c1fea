"""What was wrong with a log: rows counted by reason, with the first examples; nothing disappears silently."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from invariant_bandits.checks import InputError

EXAMPLES = 5
KEPT = ("out of order in time", "unknown category")


@dataclass
class Problem:
    """One reason: how many rounds or rows, and the first of them as (file, row), rows counted from 0."""

    count: int = 0
    examples: list[tuple[str, int]] = field(default_factory=list)


@dataclass
class QualityReport:
    """Rows read, rounds used, and problems by reason.

    Rounds that are out of order in time or have an unknown category are counted and kept (order does not matter where
    windows are bounded by time; an unknown category is all zeros); every other problem leaves the round out.
    """

    rows: int = 0
    rounds: int = 0
    problems: dict[str, Problem] = field(default_factory=dict)

    def add(self, reason: str, file: str, rows: Iterable[int], count: int | None = None) -> None:
        """Count `rows` of `file` under `reason`; `count` if there are more than those given."""
        rows = [int(row) for row in rows]
        problem = self.problems.setdefault(reason, Problem())
        problem.count += len(rows) if count is None else count
        problem.examples += [(file, row) for row in rows[: max(0, EXAMPLES - len(problem.examples))]]

    def merge(self, later: QualityReport) -> None:
        """Add what was found in a later part of the log."""
        self.rows += later.rows
        self.rounds += later.rounds
        for reason, found in later.problems.items():
            problem = self.problems.setdefault(reason, Problem())
            problem.count += found.count
            problem.examples += found.examples[: max(0, EXAMPLES - len(problem.examples))]

    @staticmethod
    def is_kept(reason: str) -> bool:
        """Whether rounds with this problem are used all the same."""
        return reason.startswith(KEPT)

    @property
    def left_out(self) -> int:
        """Rounds that were not used."""
        return sum(problem.count for reason, problem in self.problems.items() if not self.is_kept(reason))

    @property
    def clean(self) -> bool:
        """Whether nothing at all was found."""
        return not self.problems

    def describe(self) -> str:
        """A table a person can read."""
        lines = [f"{self.rows:,} rows read, {self.rounds:,} rounds used, {self.left_out:,} left out"]
        for reason, problem in sorted(self.problems.items(), key=lambda pair: (-pair[1].count, pair[0])):
            where = ", ".join(f"{file} row {row}" for file, row in problem.examples[:2])
            fate = "kept" if self.is_kept(reason) else "left out"
            lines.append(f"  {problem.count:>9,}  {reason} ({fate}); first: {where}")
        return "\n".join(lines)

    def refuse_problems(self) -> None:
        """Raise InputError if anything was found (`strict`)."""
        if not self.clean:
            raise InputError(f"the log has problems and strict was asked for:\n{self.describe()}")

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON-able values."""
        problems = {
            reason: {"count": problem.count, "examples": [list(pair) for pair in problem.examples]}
            for reason, problem in self.problems.items()
        }
        return {"rows": self.rows, "rounds": self.rounds, "left_out": self.left_out, "problems": problems}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> QualityReport:
        """The report that `to_dict` came from."""
        problems = {
            reason: Problem(found["count"], [(file, row) for file, row in found["examples"]])
            for reason, found in values["problems"].items()
        }
        return cls(values["rows"], values["rounds"], problems)
