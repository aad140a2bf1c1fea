"""A log in one format written in another."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from invariant_bandits.checks import InputError
from invariant_bandits.logs import decode
from invariant_bandits.logs.decode import is_number, is_text, is_time, run_starts
from invariant_bandits.logs.events import NONE, EventSource, Feature, LoggedEvent
from invariant_bandits.logs.external_sort import round_batches
from invariant_bandits.logs.formats.registry import COMPRESSIONS, LogFormat, format_to_write, open_source
from invariant_bandits.logs.log import Log, open_log
from invariant_bandits.logs.quality import QualityReport, RowProblems
from invariant_bandits.logs.schema import PROBABILITIES, SchemaLike
from invariant_bandits.logs.sources import Source, is_remote
from invariant_bandits.optional import pyarrow as pa
from invariant_bandits.storage import FileError, atomic_write

UNUSABLE = "round without one chosen action, its reward and its propensity"


class TypedRows:
    """All rows of a source, typed; what cannot be read as its type is missing, and counted.

    Parameters
    ----------
    source : Source
        Where the rows come from.

    Attributes
    ----------
    arrow_schema : pyarrow.Schema
        Names and types of what `batches` gives: plain text instead of dictionaries, times in microseconds.
    unreadable : Counter of str
        By column, how many values were not of its type.
    rows : int
        Rows that `batches` has given.
    """

    def __init__(self, source: Source) -> None:
        self.source, self.rows, self.unreadable = source, 0, Counter[str]()
        schema, whole = source.arrow_schema, _whole_columns(source)
        fractions = {column.name for column in schema if pa.types.is_integer(column.type)} - whole
        kinds = [pa.float64() if column.name in fractions else _plain(column.type) for column in schema]
        self.arrow_schema = pa.schema(list(zip(schema.names, kinds, strict=True)))

    def batches(self) -> Iterator[Any]:
        """The rows in the order of the log."""
        for task in self.source.tasks:
            for _, batch in self.source.batches(task, self.arrow_schema.names):
                self.rows += len(batch)
                yield self.typed(batch)

    def typed(self, batch: Any) -> Any:
        """A batch of some of the columns with their types."""
        fields = [self.arrow_schema.field(name) for name in batch.schema.names]
        columns = [self._column(batch.column(index), wanted) for index, wanted in enumerate(fields)]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))

    def _column(self, column: Any, wanted: Any) -> Any:
        if column.type == wanted.type:
            return column
        if not is_text(column.type) or is_text(wanted.type) or pa.types.is_integer(wanted.type):
            return column.cast(wanted.type, safe=False)
        problems = RowProblems(len(column))
        if is_time(wanted.type):
            values = decode.times(column, wanted.name, True, problems)
        elif is_number(wanted.type):
            values = decode.numbers(column, wanted.name, problems)
        else:
            return column
        missing = decode.is_missing(column)
        self.unreadable[wanted.name] += int((~problems.usable & ~missing).sum())
        return pa.array(values, mask=~problems.usable).cast(wanted.type)


def _whole_columns(source: Source) -> set[str]:
    """Columns that are whole numbers to the end of the log, not only in the first lines."""
    whole = {column.name for column in source.arrow_schema if pa.types.is_integer(column.type)}
    for task in source.tasks:
        for _, batch in source.batches(task, sorted(whole)) if whole else ():
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                with suppress(pa.ArrowInvalid):
                    column.cast(source.arrow_schema.field(name).type)
                    continue
                whole.discard(name)
    return whole


def _plain(kind: Any) -> Any:
    """The type as every format can hold it."""
    if is_text(kind):
        return pa.string()
    if is_time(kind):
        return pa.timestamp("us", getattr(kind, "tz", None))
    return kind


def events_of(source: Source, schema: SchemaLike, report: QualityReport) -> Iterator[LoggedEvent]:
    """The rounds of a log as events; what cannot be used is put down in `report`.

    Parameters
    ----------
    source : Source
        Events, or rows: one per offered action, or one per round with the label of the chosen arm.
    schema : Schema, mapping, path of a TOML file or None
        What the columns mean; what is not said is inferred.
    report : QualityReport
        Counts what was read and what was left out.
    """
    for file, row, event in _rounds(source, schema, report):
        if isinstance(event, LoggedEvent):
            report.rounds += 1
            yield event
        else:
            report.add(event, file, [row])


def _rounds(source: Source, schema: SchemaLike, report: QualityReport) -> Iterator[tuple[str, int, Any]]:
    """Yield (file, row, event or why there is none) of every round; count the rows."""
    if isinstance(source, EventSource):
        for path in source.paths:
            for line, event in source.events(path, features=True):
                report.rows += 1
                yield path, line, event
        return
    log = open_log(source, schema)
    if log.schema.propensity is None:
        raise InputError("schema: propensity is missing; events have the probability of the chosen action")
    if not log.schema.labelled and log.schema.chosen is None:
        raise InputError("events need one row per offered action (round and chosen), or labels of arms")
    typed, position = TypedRows(log.source), 0
    for task in log.source.tasks:
        for row, batch in round_batches(log.source, task, log.schema):
            rows = typed.typed(batch).to_pylist()
            if log.schema.one_row_per_action:
                events = _from_groups(log, batch, rows)
            else:
                events = _from_labels(log, batch, rows, f"{task.file}:", row, position)
            for place, event in events:
                yield task.file, row + place, event
            report.rows += len(batch)
            position += len(batch)


def _from_groups(log: Log, batch: Any, rows: list[dict[str, Any]]) -> Iterator[tuple[int, LoggedEvent | str]]:
    """Yield (first row, event) of rounds of several rows."""
    schema, starts = log.schema, run_starts(batch.column(log.schema.round)).tolist()
    chosen, label = decode.flags(batch.column(schema.chosen)), schema.row_label
    words = [None] * len(batch) if label is None else batch.column(label).to_pylist()
    for first, last in zip(starts, [*starts[1:], len(batch)], strict=True):
        offered, marked = rows[first:last], np.flatnonzero(chosen[first:last]).tolist()
        numbered = enumerate(words[first:last], start=1)
        labels = [str(place if word is None else word) for place, word in numbered]
        outcome = _outcome(log, offered[marked[0]] if len(marked) == 1 else {})
        if outcome is None:
            yield first, UNUSABLE
            continue
        name, (reward, propensity, time) = str(offered[0][str(schema.round)]), outcome
        features = [_features(log, action) for action in offered]
        yield first, LoggedEvent(name, labels, marked[0], reward, propensity, [], features, time)


def _from_labels(
    log: Log, batch: Any, rows: list[dict[str, Any]], file: str, first: int, position: int
) -> Iterator[tuple[int, LoggedEvent | str]]:
    """Yield (row, event) of rows with labels; what was offered is known from the log's arms."""
    schema = log.schema
    if schema.arms_offered is not None:
        offered = log.arms.offered_in(batch.column(schema.arms_offered))
    elif schema.time is not None:
        problems, dates = RowProblems(len(batch)), log.times_are_dates
        offered = log.arms.offered_at(decode.times(batch.column(schema.time), schema.time, dates, problems))
    else:
        offered = log.arms.offered_at(position + np.arange(len(batch)))
    for place, values in enumerate(rows):
        label = str(batch.column(schema.arm)[place].as_py())
        arms = [log.arms.labels[index] for index in np.flatnonzero(offered[place])]
        where = arms.index(label) if label in arms else -1
        actions: list[list[Feature]] = [[(str(schema.arm), arm)] for arm in arms]
        name = str(values[schema.round]) if schema.round is not None else f"{file}{first + place}"
        outcome = _outcome(log, values if where >= 0 else {})
        if outcome is None:
            yield place, UNUSABLE
            continue
        reward, propensity, time = outcome
        yield place, LoggedEvent(name, arms, where, reward, propensity, _features(log, values), actions, time)


def _features(log: Log, row: Mapping[str, Any]) -> list[Feature]:
    """Features of a row: words of categories, numbers of the others; lists are numbers with places."""
    features: list[Feature] = []
    for name in log.schema.features:
        value, is_word = row[name], name in log.schema.categorical
        if isinstance(value, list):
            features += [(f"{name}[{place}]", float(number)) for place, number in enumerate(value) if number]
        elif value not in (None, NONE) and (is_word or value):
            features.append((name, str(value) if is_word else float(value)))
    return features


def _outcome(log: Log, row: Mapping[str, Any]) -> tuple[float, float, str | None] | None:
    """Return reward, propensity and time of the row of a chosen action; None if it is not usable."""
    schema = log.schema
    reward, propensity = row.get(schema.reward), row.get(str(schema.propensity))
    if reward is None or propensity is None:
        return None
    propensity = float(PROBABILITIES[schema.propensity_unit](np.asarray(propensity, dtype=float)))
    if not 0.0 < propensity <= 1.0:
        return None
    time: Any = None if schema.time is None else row.get(schema.time)
    return float(reward), float(propensity), f"{time.isoformat()}Z" if hasattr(time, "isoformat") else None


@dataclass(frozen=True)
class Conversion:
    """What was written, and what was not.

    Parameters
    ----------
    label : str
        What the format is called.
    quality : QualityReport
        Rows or events that were read, those that were written (its rounds), and the others by reason.
    unreadable : mapping of str to int
        By column, values that were not of its type and are missing now.
    """

    label: str
    quality: QualityReport
    unreadable: Mapping[str, int]

    def describe(self) -> str:
        """A few lines a person can read."""
        lines = [f"{self.label}: {self.quality.rounds:,} written of {self.quality.rows:,} read"]
        counts = {reason: problem.count for reason, problem in sorted(self.quality.problems.items())}
        for name, count in self.unreadable.items():
            counts[f"values of {name} are not of its type: missing"] = count
        return "\n".join([*lines, *(f"{count:>11,}  {reason}" for reason, count in counts.items())])


def convert(
    source: Any, out: str | PathLike[str], schema: SchemaLike = None, *, force: bool = False
) -> Conversion:
    """Write a log in the format that the suffix of `out` says; the file appears when it is whole.

    Tables keep their columns and types. Vowpal's forms (.vw, .dsjson) get an event per round, from a log with
    one row per offered action or with labels of arms, and with propensities.

    Parameters
    ----------
    source : path, folder, pattern, list of these, Arrow table, frame or Source
        Where the rows come from; see `open_source`.
    out : path
        Where they go.
    schema : Schema, mapping, path of a TOML file or None
        What the columns mean, for events; what is not said is inferred.
    force : bool
        Whether a file that is there is replaced; one that is read is never.

    >>> import pyarrow as pa, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> convert(pa.table({"reward": [1.0, 0.0], "price": [2.5, 3.0]}), f"{folder}/log.csv").describe()
    'CSV: 2 written of 2 read'
    """
    kind = format_to_write(str(out))
    target = _checked_target(str(out), force)
    opened = open_source(source)
    if target.exists() and any(_same_file(task.file, target) for task in opened.tasks):
        raise InputError(f"OUT must not be a file that is read, got {out}")
    try:
        with atomic_write(target) as scratch:
            return _write(kind, opened, str(out), scratch, schema)
    except pa.ArrowException as error:
        raise FileError(f"{out} could not be written: {' '.join(str(error).split())}") from error


def _checked_target(out: str, force: bool) -> Path:
    if is_remote(out):
        raise InputError(f"OUT must be a file of this machine, got {out}")
    target = Path(os.path.realpath(out))
    if target.is_dir() or not target.parent.is_dir():
        raise FileError(f"OUT must be a file in a folder that is there, got {out}")
    if target.exists() and not force:
        raise InputError(f"OUT: {out} is there already; --force (force=True) replaces it")
    return target


def _same_file(path: str, target: Path) -> bool:
    return not is_remote(path) and Path(path).exists() and os.path.samefile(path, target)


def _write(kind: LogFormat, source: Source, out: str, scratch: Path, schema: SchemaLike) -> Conversion:
    report, unreadable = QualityReport(), dict[str, int]()
    with _open_sink(scratch, out if kind.packed else "") as sink:
        if hasattr(kind.kind, "write_events"):
            kind.kind.write_events(sink, events_of(source, schema, report))
            return Conversion(kind.label, report, unreadable)
        rows = TypedRows(source)
        kind.kind.write_table(sink, out, rows.arrow_schema, rows.batches())
    report.rows = report.rounds = rows.rows
    for task in source.tasks:
        for reason, lines in source.skipped(task).items():
            if lines and not report.is_kept(reason):
                report.add(reason, task.file, lines)
                report.rows += len(lines)
    return Conversion(kind.label, report, {name: count for name, count in rows.unreadable.items() if count})


def _open_sink(scratch: Path, out: str) -> Any:
    """Where bytes go, compressed if the suffix of `out` says so."""
    codec = next((name for suffix, name in COMPRESSIONS.items() if out.endswith(suffix)), None)
    return pa.OSFile(str(scratch), "wb") if codec is None else pa.CompressedOutputStream(str(scratch), codec)
