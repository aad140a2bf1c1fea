"""The first pass over a log, of the few columns that need one: how many rows, which times, categories and rounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from invariant_bandits.checks import Array, InputError
from invariant_bandits.logs.arm_uses import ArmUses
from invariant_bandits.logs.arms import Arm
from invariant_bandits.logs.round_ids import RoundIds, TornRounds
from invariant_bandits.logs.schema import Schema
from invariant_bandits.logs.sources import Source, Task
from invariant_bandits.logs.times_seen import TimeQuestion, TimesSeen

MOST_CATEGORIES = 100_000


@dataclass(frozen=True)
class Survey:
    """What the first pass found.

    Parameters
    ----------
    tasks : tuple of Task
        Those of the source, with their positions in the whole log where rows were counted.
    total_rows : int or None
        Rows of the log; None if nobody has counted them yet.
    time_span : (earliest, latest) or None
        Of the usable times, (None, None) if there is none; None if nobody has asked yet.
    times : TimesSeen or None
        More about them, where there is a usable one.
    duplicates : array or None
        Positions of the first row of every round whose id had come before.
    torn : TornRounds or None
        Where rounds began, if many of them are torn apart.
    categories : mapping of str to Counter
        Rows per category, by column.
    arm_uses : tuple of Arm
        Where the log has labels of arms: their first and last use, and how often each was chosen.
    """

    tasks: tuple[Task, ...]
    total_rows: int | None
    time_span: tuple[Any, Any] | None = None
    times: TimesSeen | None = None
    duplicates: Array | None = None
    torn: TornRounds | None = None
    categories: Mapping[str, Counter[str]] = field(default_factory=dict)
    arm_uses: tuple[Arm, ...] = ()

    def most_frequent(self, column: str, most: int) -> tuple[str, ...]:
        """The most frequent categories of a column, at most so many, in the order of the alphabet."""
        counts = self.categories[column]
        ranked = sorted(counts, key=lambda word: (-counts[word], word))
        return tuple(sorted(ranked[:most]))


def survey(
    source: Source, schema: Schema, *, dates: bool, times: bool, rows: bool, known: Survey | None = None
) -> Survey:
    """Read what is needed and not yet `known`; nothing is read if nothing is needed.

    Parameters
    ----------
    source : Source
        Where the rows come from.
    schema : Schema
        What the columns mean; categories and ids of rounds are always looked at.
    dates : bool
        Whether times are dates, not numbers.
    times : bool
        Whether the earliest and latest time are needed (calendar windows).
    rows : bool
        Whether the number of rows is needed (windows of equal counts).
    known : Survey, optional
        What was found before.
    """
    questions = _questions(schema, dates, times, known)
    found = Survey(tuple(source.tasks), source.total_rows) if known is None else known
    if not questions and (found.total_rows is not None or not rows):
        return found
    tasks, total = _ask(source, questions, schema.reward)
    found = replace(found, tasks=tasks, total_rows=total)
    for one in questions:
        found = one.answered(found)
    return found


class _Question(Protocol):
    """Something that is found out by looking at some columns."""

    @property
    def columns(self) -> Sequence[str]: ...

    def see(self, task: Task, row: int, batch: Any) -> None: ...

    def answered(self, found: Survey) -> Survey: ...


def _questions(schema: Schema, dates: bool, times: bool, known: Survey | None) -> list[_Question]:
    """What is not known yet: rounds and categories at the first time, times when they are asked for."""
    questions: list[_Question] = []
    if schema.round is not None and known is None:
        questions.append(RoundIds(schema))
    if schema.time is not None and times and (known is None or known.time_span is None):
        questions.append(TimeQuestion(schema.time, dates))
    if schema.categorical and known is None:
        questions.append(_Categories(schema.categorical))
    if schema.labelled and known is None:
        questions.append(ArmUses(schema, dates))
    return questions


def _ask(source: Source, questions: Sequence[_Question], any_column: str) -> tuple[tuple[Task, ...], int]:
    """Show every batch to every question; returns the tasks with their positions, and the number of rows."""
    columns = list(dict.fromkeys(name for one in questions for name in one.columns)) or [any_column]
    tasks: list[Task] = []
    total = 0
    for task in source.tasks:
        tasks.append(replace(task, position=total))
        end = task.first_row
        for row, batch in source.batches(task, columns):
            end = row + len(batch)
            for one in questions:
                one.see(tasks[-1], row, batch)
        end = max([end, *(row + 1 for row in source.skipped(task))])
        total += end - task.first_row
    return tuple(tasks), total


class _Categories:
    """How many rows each category of each column has."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = columns
        self.counts: dict[str, Counter[str]] = {name: Counter() for name in columns}

    def see(self, task: Task, row: int, batch: Any) -> None:
        import pyarrow as pa

        for name, counts in self.counts.items():
            for pair in batch.column(name).cast(pa.string()).value_counts().to_pylist():
                if pair["values"] is not None:
                    counts[pair["values"]] += pair["counts"]
            if len(counts) > MOST_CATEGORIES:
                raise InputError(
                    f"column {name!r} has more than {MOST_CATEGORIES:,} categories: it is no categorical feature"
                )

    def answered(self, found: Survey) -> Survey:
        return replace(found, categories=self.counts)
