"""Which labels of arms a log uses, how often, and from when to when: a question of the first pass over it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from invariant_bandits.checks import Array, InputError
from invariant_bandits.logs import decoding, labels
from invariant_bandits.logs.arms import Arm, ordered
from invariant_bandits.logs.quality import RowProblems
from invariant_bandits.logs.schema import Schema
from invariant_bandits.logs.sources import Task

if TYPE_CHECKING:
    from invariant_bandits.logs.survey import Survey

MOST_ARMS = 500


class ArmUses:
    """First and last use and number of plays of every label; times are rows of the log if it has none."""

    def __init__(self, schema: Schema, dates: bool) -> None:
        self.schema, self.dates = schema, dates
        wanted = [schema.arm, schema.arms_offered, schema.time, schema.chosen if schema.one_row_per_action else None]
        self.columns = [name for name in wanted if name is not None]
        self.plays: dict[str, int] = {}
        self.span: dict[str, tuple[Any, Any]] = {}

    def see(self, task: Task, row: int, batch: Any) -> None:
        """Look at a batch that begins at `row` of the task's file."""
        name = str(self.schema.arm)
        when = self._when(task, row, batch)
        own = labels.as_labels(batch.column(name))
        everything, of_row = own, np.arange(len(batch))
        if self.schema.arms_offered is not None:
            everything, of_row = labels.flattened(batch.column(self.schema.arms_offered))
        self._note_span(everything, when[of_row])
        self._note_span(own, when)
        chosen = self._chosen(batch)
        for pair in (own if chosen is None else own.filter(chosen)).value_counts().to_pylist():
            if pair["values"] is not None:
                self.plays[pair["values"]] = self.plays.get(pair["values"], 0) + pair["counts"]
        if len(self.span) > MOST_ARMS:
            raise InputError(
                f"column {name!r} has more than {MOST_ARMS} different labels, too many for arms; say which column is"
                " the arm (--arm COLUMN), or 'none'"
            )

    def _when(self, task: Task, row: int, batch: Any) -> Array:
        """Times (n,), or rows of the log; dates as microseconds. NaN, or the smallest number, where there is none."""
        if self.schema.time is None:
            return np.asarray(task.position + row - task.first_row + np.arange(len(batch)))
        problems = RowProblems(len(batch))
        times = decoding.times(batch.column(self.schema.time), self.schema.time, self.dates, problems)
        return np.where(problems.usable, times, np.datetime64("NaT") if self.dates else np.nan)

    def _chosen(self, batch: Any) -> Any:
        """Mask of the rows of chosen arms, None if all of them are, or labels say it."""
        import pyarrow as pa

        if not self.schema.one_row_per_action or self.schema.chosen is None:
            return None
        column = batch.column(self.schema.chosen)
        if decoding.are_flags(column):
            return pa.array(decoding.flags(column))
        own = labels.as_labels(batch.column(str(self.schema.arm)))
        return pa.compute.equal(labels.as_labels(column), own).fill_null(False)

    def _note_span(self, words: Any, when: Array) -> None:
        there = ~np.isnat(when) if when.dtype.kind == "M" else np.isfinite(when)
        encoded = words.dictionary_encode()
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        for code, word in enumerate(encoded.dictionary.to_pylist()):
            at = when[(codes == code) & there]
            if not len(at):
                continue
            first, last = at.min(), at.max()
            known = self.span.get(word, (first, last))
            self.span[word] = (min(first, known[0]), max(last, known[1]))

    def answered(self, found: Survey) -> Survey:
        """The survey with the arms that were used."""
        from dataclasses import replace

        if not self.span:
            raise InputError(f"column {self.schema.arm!r} has no label in any row with a time")
        arms = [Arm(name, *self.span[name], self.plays.get(name, 0)) for name in ordered(list(self.span))]
        return replace(found, arm_uses=tuple(arms))


def span_of(uses: tuple[Arm, ...]) -> tuple[Any, Any]:
    """The earliest and the latest use of any arm."""
    return min(arm.first for arm in uses), max(arm.last for arm in uses)


def by_label(uses: tuple[Arm, ...]) -> Mapping[str, Arm]:
    """The arms by their labels."""
    return {arm.label: arm for arm in uses}
