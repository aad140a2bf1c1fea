"""The service's own past: decisions with what they earned, as logs that can be fitted.

Parquet files have the columns that `fit`, `update` and `evaluate` find by themselves.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple

from invariant_bandits.checks import InputError
from invariant_bandits.logs.column_names import NAMES
from invariant_bandits.logs.schema import Schema
from invariant_bandits.storage import atomic_write
from invariant_bandits_service import learners
from invariant_bandits_service.events import (
    AnyEvent,
    Closed,
    Configured,
    Decided,
    DecisionEvent,
    decision_key,
    decode_event,
    is_decision_with,
)
from invariant_bandits_service.replay import restore
from invariant_bandits_service.settings import AGGREGATES, Configuration
from invariant_bandits_service.state import Record, Records, set_aside_events
from invariant_bandits_service.store.sql import Row

SCANNED_TOGETHER = 1_000
"""Events that a search backwards reads at a time: about a megabyte."""


class SettledDecision(NamedTuple):
    """A decision, what it earned, and the number of the event that settled it."""

    decided: Decided
    reward: float
    seq: int


Decisions = Callable[[], Iterable[SettledDecision]]
"""Gives settled decisions from the first on, whenever it is called."""


def events_of(
    store: Any, model: str, first: int, last: int
) -> Iterator[tuple[int, AnyEvent, Record]]:
    """Yield what happened to a model from event `first` to before `last`.

    Each item is the number of an event, the event, and the record of its decision, which is empty
    if there is none. Events that were set aside are left out.
    """
    aside = set_aside_events(store)
    records = Records(store.of_key)
    for row in store.rows(first, last):
        event = None if row.seq in aside else decode_event(row.event)
        if event is None or getattr(event, "model", None) != model:
            continue
        record = Record()
        if isinstance(event, DecisionEvent):
            records.take(event, fresh=isinstance(event, Decided))
            record = records.find(decision_key(event.id, event.model)) or record
        yield row.seq, event, record


def decisions_that_mention(
    store: Any, text: str, first: int, last: int
) -> Iterator[tuple[str, str]]:
    """Yield id and model of decisions with an event that has exactly this text as its id or as a value."""
    for row in store.rows(first, last):
        if row.key is not None and text.encode() in row.event:
            event = decode_event(row.event)
            if isinstance(event, DecisionEvent) and (
                event.id == text
                or _mentions(getattr(event, "context", None), text)
                or _mentions(getattr(event, "actions", None), text)
            ):
                yield event.id, event.model


def _mentions(value: Any, text: str) -> bool:
    """Return whether a text is one of the values, or of the names, in nested JSON."""
    if isinstance(value, Mapping):
        return text in value or any(_mentions(part, text) for part in value.values())
    if isinstance(value, list | tuple):
        return any(_mentions(part, text) for part in value)
    return bool(value == text)


def latest_decisions(
    store: Any, first: int, last: int, text: bytes = b""
) -> Iterator[tuple[Row, Decided]]:
    """Yield decisions between two numbers, the latest first: all in whose stored form this text occurs."""
    for end in range(last, first, -SCANNED_TOGETHER):
        for row in reversed(list(store.rows(max(end - SCANNED_TOGETHER, first), end))):
            if is_decision_with(row.event, text):
                yield row, decode_event(row.event)


def settled_decisions(
    store: Any,
    model: str,
    rules: Configuration | None = None,
    *,
    first: int = 0,
    last: int | None = None,
) -> Iterator[SettledDecision]:
    """Yield decisions of a model that were settled between two events, in the order in which they were.

    Parameters
    ----------
    store : Store
    model : str
    rules : Configuration, optional
        Rules at the first event: decisions that were not learned in their mode have earned what their rewards
        come to by these rules. Later changes are followed. None: such decisions are left out.
    first, last : int, optional
        Numbers of events; all that there are.
    """
    end = store.head().seq if last is None else last
    for seq, event, record in events_of(store, model, first, end):
        if isinstance(event, Configured) and rules is not None:
            rules = event.configuration
        # a decision that is not in the store was removed
        if not isinstance(event, Closed) or record.decided is None:
            continue
        reward = event.value
        if event.why == "not learned in this mode" and rules is not None:
            values = record.joined()
            reward = rules.default_reward
            if values:
                reward = AGGREGATES[rules.aggregation](values)
        if reward is not None:
            yield SettledDecision(record.decided, reward, seq)


# -- decisions as rows --

Kind = Literal["number", "word", "list"]
MOST_COLUMNS = 500
"""Features beyond these many, the rarest, are left out of a table."""
MOST_COUNTED = 50_000
TAKEN = {word for words in NAMES.values() for word in words.split()}
"""Names that a reader takes for something else than a feature."""
ROLES = {
    name: name for name in ("reward", "time", "propensity", "arms_offered", "chosen")
}
ROLES |= {"arm": "action", "round": "decision_id"}
"""Usual names of the columns beside the features, by their role in a schema."""


@dataclass(frozen=True)
class Layout:
    """How decisions become rows.

    Parameters
    ----------
    rows : bool
        Whether every offered action is a row, described by features; else a row is a decision among labelled
        arms, described by its context.
    named : bool
        Whether the model began empty: features have the names that they got there, context crossed with
        actions.
    roles : mapping of str to str
        Names of the columns beside the features.
    columns : tuple of str
        What rows without names hold, in their order.
    features : mapping of str to "number", "word" or "list"
        Columns of features, and what they hold.
    left_out : int
        Features that were too rare for a column.
    chosen_only : bool
        Whether rows of actions that were not chosen are left out.
    """

    rows: bool
    named: bool = True
    roles: Mapping[str, str] = field(default_factory=lambda: ROLES)
    columns: tuple[str, ...] = ()
    features: Mapping[str, Kind] = field(default_factory=dict)
    left_out: int = 0
    chosen_only: bool = False

    def schema_like(self, schema: Schema) -> Schema:
        """Return what the columns mean, for a model that was fitted to a log with this schema.

        Times are not looked at.
        """
        roles = self.roles
        features = schema.features or self.columns
        like = Schema(
            schema.reward,
            features,
            propensity=roles["propensity"],
            categorical=schema.categorical,
        )
        like = replace(
            like, minimise=bool(schema.minimise), reward_offset=schema.reward_offset
        )
        if self.chosen_only:
            return like
        if self.rows:
            return replace(like, round=roles["round"], chosen=roles["chosen"])
        return replace(like, arm=roles["arm"])

    def rows_of(self, decided: Decided) -> list[dict[str, Any]]:
        """Rows of a decision: features by name, of the context or of each offered action."""
        context = decided.context or {}
        if self.rows:
            indices = range(len(decided.propensities))
            if self.named:
                return [numbers_of(decided, index) for index in indices]
            return [{**context, **self._own(decided, index)} for index in indices]
        if not self.named:
            return [dict(context)]
        row: dict[str, Any] = {}
        for name, value in learners.leaves(context, "context"):
            column = f"context.{name}" if name.lower() in TAKEN else name
            row[column] = value
        return [row]

    def _own(self, decided: Decided, index: int) -> Mapping[str, Any]:
        own = None if decided.actions is None else decided.actions[index]
        if isinstance(own, Mapping):
            return own
        return dict(zip(self.columns, own or (), strict=False))


def numbers_of(decided: Decided, index: int) -> dict[str, float]:
    """Return the named numbers of an offered action, as a model that began empty has them.

    The constant is left out.
    """
    own = None if decided.actions is None else decided.actions[index]
    label = decided.labels[index] if decided.labels else None
    context = learners.named_numbers(decided.context, "context")
    numbers = learners.action_numbers(
        context, label, learners.named_numbers(own, "arms")
    )
    return {name: value for name, value in numbers.items() if name != learners.CONSTANT}


def layout_of(
    decisions: Decisions, learner: learners.Learner, *, rows: bool = False
) -> Layout:
    """The layout that fits all decisions: one row each, unless that is not asked for or does not do.

    Parameters
    ----------
    learner : Learner
        Of the model; one that was fitted says what its columns are called.
    """
    empty = Layout(rows)
    if isinstance(learner, learners.FittedLearner):
        columns = tuple(column.name for column in learner.model.feature_map.columns)
        empty = Layout(rows, False, _roles(learner.model.schema), columns)
    seen: dict[str, tuple[int, Kind]] = {}
    for settled in decisions():
        if not rows and (
            settled.decided.actions is not None or not settled.decided.labels
        ):
            return layout_of(decisions, learner, rows=True)
        for row in empty.rows_of(settled.decided):
            for name, value in row.items():
                if name in seen or len(seen) < MOST_COUNTED:
                    often, kind = seen.get(name, (0, "number"))
                    seen[name] = often + (value is not None), _wider(kind, value)
    usual = set(sorted(seen, key=lambda name: -seen[name][0])[:MOST_COLUMNS])
    features = {name: kind for name, (_, kind) in seen.items() if name in usual}
    return replace(empty, features=features, left_out=len(seen) - len(features))


def _roles(schema: Schema) -> dict[str, str]:
    """Return names of columns as a schema has them; else the usual ones, unless these are features."""
    known = {role: getattr(schema, role) for role in ROLES}
    known["arm"] = known["arm"] or schema.action
    other = {
        role: f"served_{name}" if name in schema.features else name
        for role, name in ROLES.items()
    }
    return {role: known[role] or other[role] for role in ROLES}


def _wider(kind: Kind, value: Any) -> Kind:
    """Return the kind of a column that has held `kind` and also holds `value`."""
    if isinstance(value, str) or kind == "word":
        return "word"
    return "list" if isinstance(value, list | tuple) else kind


# -- files --

BATCH_ROUNDS = 8_192
"""Decisions that are written at once."""


def write_parquet(
    path: Path, layout: Layout, decisions: Iterable[SettledDecision]
) -> tuple[int, int]:
    """Write decisions as rows, a few thousand at a time; how many decisions and rows there were."""
    import pyarrow as pa
    from pyarrow import parquet

    roles = layout.roles
    text = pa.string()
    number = pa.float64()
    kinds = {"number": number, "word": text, "list": pa.list_(number)}
    fields = [
        (roles["round"], text),
        (roles["time"], pa.timestamp("us", tz="UTC")),
        ("version_id", text),
        (roles["arm"], text),
    ]
    if layout.rows:
        fields.append((roles["chosen"], pa.bool_()))
    else:
        fields.append((roles["arms_offered"], pa.list_(text)))
    fields += [(roles["reward"], number), (roles["propensity"], number)]
    for name, kind in layout.features.items():
        fields.append((name, kinds[kind]))
    schema = pa.schema(fields)
    written = 0
    rows = 0
    source = iter(decisions)
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        while some := list(islice(source, BATCH_ROUNDS)):
            table = [row for settled in some for row in _rows(layout, settled)]
            writer.write_batch(pa.RecordBatch.from_pylist(table, schema))
            written = written + len(some)
            rows = rows + len(table)
    return written, rows


def _rows(layout: Layout, settled: SettledDecision) -> Iterator[dict[str, Any]]:
    (decided, reward, _) = settled
    roles = layout.roles
    when = datetime.fromtimestamp(decided.time, UTC)
    absent = 0.0 if layout.named and layout.rows else None
    for number, features in enumerate(layout.rows_of(decided)):
        index = number if layout.rows else decided.index
        is_chosen = index == decided.index
        if layout.chosen_only and not is_chosen:
            continue
        row: dict[str, Any] = {}
        for name, kind in layout.features.items():
            row[name] = _value(features.get(name, absent), kind)
        row[roles["round"]] = decided.id
        row[roles["time"]] = when
        row["version_id"] = decided.version
        row[roles["arm"]] = decided.labels[index] if decided.labels else str(index)
        if layout.rows:
            row[roles["chosen"]] = is_chosen
        else:
            row[roles["arms_offered"]] = decided.labels
        row[roles["reward"]] = reward if is_chosen else None
        row[roles["propensity"]] = decided.propensities[index]
        yield row


def _value(value: Any, kind: str) -> Any:
    """A value as its column holds it."""
    if value is None or isinstance(value, str) or kind == "list":
        return value
    return f"{value:g}" if kind == "word" else float(value)


class Exported(NamedTuple):
    """What was written.

    Parameters
    ----------
    decisions, rows : int
        Settled decisions, and rows or lines they became.
    left_out : int
        Features that were too rare for a column of their own.
    """

    decisions: int
    rows: int
    left_out: int = 0


def export(
    store: Any,
    out: str | PathLike[str],
    *,
    model: str | None = None,
    since: float = -math.inf,
    until: float = math.inf,
    force: bool = False,
) -> Exported:
    """Write the settled decisions of a model; the file appears when it is whole.

    Parameters
    ----------
    store : Store
        Opened for reading.
    out : path
        A file with the suffix .parquet.
    model : str, optional
        Which model; may be left out if there is only one.
    since, until : float
        Only decisions from this time on, and before that one; seconds since 1970.
    force : bool
        Whether a file that is there is replaced.
    """
    target = Path(os.path.realpath(out))
    if target.suffix.lower() != ".parquet":
        raise InputError(f"OUT must end in .parquet, got {out}")
    if target.exists() and not force:
        raise InputError(f"OUT: {out} is there already; --force replaces it")
    state = restore(store)
    if model is None and len(state.models) != 1:
        raise InputError(
            f"model: is needed; there are {', '.join(sorted(state.models)) or 'none'}"
        )
    served = state.model(model or next(iter(state.models)))

    def decisions() -> Iterator[SettledDecision]:
        every = settled_decisions(store, served.name, Configuration(), last=state.seq)
        return (settled for settled in every if since <= settled.decided.time < until)

    with atomic_write(target) as scratch:
        scratch.touch()
        scratch.chmod(0o600)
        layout = layout_of(decisions, served.learner)
        done = Exported(*write_parquet(scratch, layout, decisions()), layout.left_out)
        if not done.decisions:
            raise InputError(
                f"model: {served.name!r} has no settled decisions in this time"
            )
    return done
