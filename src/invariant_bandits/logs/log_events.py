"""The rounds of any log with offered actions as events, to be written in the forms of Vowpal Wabbit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError
from invariant_bandits.logs import decoding, labels
from invariant_bandits.logs.event_source import EventSource
from invariant_bandits.logs.events import NONE, Event, Feature
from invariant_bandits.logs.log import Log, open_log
from invariant_bandits.logs.quality import QualityReport, RowProblems
from invariant_bandits.logs.schema import SchemaLike
from invariant_bandits.logs.sources import Source, Task
from invariant_bandits.logs.typed import TypedRows
from invariant_bandits.logs.whole_rounds import run_starts, whole_rounds

UNUSABLE = "round without one chosen action, its reward and its propensity"


def events_of(source: Source, schema: SchemaLike, report: QualityReport) -> Iterator[Event]:
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
    if isinstance(source, EventSource):
        yield from _own_events(source, report)
        return
    log = open_log(source, schema)
    if log.schema.propensity is None:
        raise InputError("schema: propensity is missing; events are written with the probability of the chosen action")
    if log.schema.one_row_per_action and log.schema.chosen is not None:
        yield from _from_rows(log, report)
    elif log.schema.labelled:
        yield from _from_labels(log, report)
    else:
        raise InputError(
            "events need one row per offered action (round and chosen), or the label of the chosen arm; this log has"
            " neither"
        )


def _own_events(source: EventSource, report: QualityReport) -> Iterator[Event]:
    for path in source.paths:
        for line, event in source.events(path, features=True):
            report.rows += 1
            if isinstance(event, Event):
                report.rounds += 1
                yield event
            else:
                report.add(event, path, [line])


def _from_rows(log: Log, report: QualityReport) -> Iterator[Event]:
    """One event per round of several rows."""
    schema, typed = log.schema, TypedRows(log.source)
    for task in log.source.tasks:
        for row, batch in whole_rounds(log.source, task, schema.used_columns, str(schema.round)):
            report.rows += len(batch)
            starts = run_starts(batch.column(schema.round))
            chosen, names = decoding.flags(batch.column(schema.chosen)), _labels(log, batch)
            rows = typed.typed(batch).to_pylist()
            for first, last in zip(starts, [*starts[1:], len(batch)], strict=True):
                here, (marked,) = rows[first:last], np.nonzero(chosen[first:last])
                its = here[int(marked[0])] if len(marked) == 1 else {}
                features = [_features(log, one) for one in here]
                place = int(marked[0]) if len(marked) else 0
                event = _event(log, its, str(here[0][schema.round]), names[first:last], place, [], features)
                yield from _counted(event, task, row + int(first), report)


def _labels(log: Log, batch: Any) -> list[str]:
    """Labels of the rows; their places in the round are put in where there are none."""
    column = log.schema.arm or log.schema.action
    return [""] * len(batch) if column is None else [str(one) for one in batch.column(column).to_pylist()]


def _from_labels(log: Log, report: QualityReport) -> Iterator[Event]:
    """One event per row; what was offered is known from the log's arms."""
    schema, typed, position = log.schema, TypedRows(log.source), 0
    for task in log.source.tasks:
        for row, batch in log.source.batches(task, schema.used_columns):
            report.rows += len(batch)
            offered = _offered(log, batch, position)
            position += len(batch)
            for place, one in enumerate(typed.typed(batch).to_pylist()):
                label = str(batch.column(schema.arm)[place].as_py())
                arms = [log.arms.labels[index] for index in np.flatnonzero(offered[place])]
                where = arms.index(label) if label in arms else -1
                actions: list[list[Feature]] = [[(str(schema.arm), arm)] for arm in arms]
                name = str(one[schema.round]) if schema.round is not None else f"{task.file}:{row + place}"
                event = _event(log, one if where >= 0 else {}, name, arms, where, _features(log, one), actions)
                yield from _counted(event, task, row + place, report)


def _offered(log: Log, batch: Any, position: int) -> Array:
    """Which arms every row offered (n, arms)."""
    schema = log.schema
    if schema.arms_offered is not None:
        words, of_row = labels.flattened(batch.column(schema.arms_offered))
        codes, mask = labels.places(words, log.arms.labels), np.zeros((len(batch), len(log.arms)), dtype=bool)
        mask[of_row[codes >= 0], codes[codes >= 0]] = True
        return mask
    when: Array = position + np.arange(len(batch))
    if schema.time is not None:
        when = decoding.times(batch.column(schema.time), schema.time, log.times_are_dates, RowProblems(len(batch)))
    return log.arms.offered_at(when)


def _features(log: Log, row: Mapping[str, Any]) -> list[Feature]:
    """Features of a row: words of categories, numbers of the others; lists are numbers with places."""
    found: list[Feature] = []
    for name in log.schema.features:
        value = row[name]
        if name in log.schema.categorical:
            if value is not None and value != NONE:
                found.append((name, str(value)))
        elif isinstance(value, list):
            found += [(f"{name}[{place}]", float(one)) for place, one in enumerate(value) if one]
        elif value:
            found.append((name, float(value)))
    return found


def _event(
    log: Log,
    row: Mapping[str, Any],
    name: str,
    names: Sequence[str],
    chosen: int,
    shared: list[Feature],
    actions: list[list[Feature]],
) -> Event | None:
    """The event of a round whose chosen action has this row; None if it lacks what an event needs."""
    schema = log.schema
    reward, propensity = row.get(schema.reward), row.get(str(schema.propensity))
    if reward is None or propensity is None or not 0.0 < propensity <= 1.0:
        return None
    time: Any = None if schema.time is None else row.get(schema.time)
    stamp = f"{time.isoformat()}Z" if hasattr(time, "isoformat") else None
    labelled = [label or str(place) for place, label in enumerate(names, start=1)]
    return Event(name, labelled, chosen, float(reward), float(propensity), shared, actions, stamp)


def _counted(event: Event | None, task: Task, row: int, report: QualityReport) -> Iterator[Event]:
    if event is None:
        report.add(UNUSABLE, task.file, [row])
        return
    report.rounds += 1
    yield event
