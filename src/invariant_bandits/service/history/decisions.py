"""Which columns decisions become: the names and types that `fit`, `update` and `evaluate` find by
themselves.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, NamedTuple

from invariant_bandits.logs.schema import NAMES, Schema
from invariant_bandits.service.events import AnyEvent, Closed, Configured, Decided, decision_key, decode_event
from invariant_bandits.service.learners.base import Learner
from invariant_bandits.service.learners.fitted import FittedLearner
from invariant_bandits.service.learners.open import CONSTANT, action_numbers, named_numbers
from invariant_bandits.service.settings import Configuration, aggregate
from invariant_bandits.service.state import Record, Records, record_of, set_aside_events

MOST_OPEN = 20_000


class SettledDecision(NamedTuple):
    """A decision, and what it earned."""

    decided: Decided
    reward: float

    @property
    def propensity(self) -> float:
        """Probability of the chosen action."""
        return self.decided.propensities[self.decided.place]


def events_between(store: Any, first: int, last: int) -> Iterator[tuple[int, AnyEvent]]:
    """Yield the numbers and events from number `first` to before `last` that were not set aside."""
    aside = set_aside_events(store)
    return ((row.seq, decode_event(row.event)) for row in store.rows(first, last) if row.seq not in aside)


def settled_decisions(
    store: Any,
    model: str,
    configuration: Configuration | None = None,
    *,
    first: int | None = None,
    last: int | None = None,
    most_open: int = MOST_OPEN,
) -> Iterator[SettledDecision]:
    """Decisions of a model that were made and settled between two events, in the order in which they were
    made.

    Parameters
    ----------
    store : Store
    model : str
    configuration : Configuration, optional
        Rules at the first event, for decisions that were not learned in their mode: they have earned what
        their rewards come to by these rules. Later changes are followed.
    first, last : int, optional
        Numbers of events; all that there are.
    most_open : int
        So many decisions are kept until they are settled; what became of an earlier one is looked up.
    """
    rules = configuration or Configuration()
    begin, end = store.start().seq, store.head().seq
    begin, end = max(begin, first or 0), end if last is None else min(end, last)
    waiting: OrderedDict[str, Record] = OrderedDict()
    for _, event in events_between(store, begin, end):
        if getattr(event, "model", None) != model:
            continue
        if isinstance(event, Configured):
            rules = event.configuration
        elif isinstance(event, Decided):
            waiting[event.id] = Record()
        record = waiting.get(getattr(event, "id", ""))
        if record is not None:
            record.take(event)
        while waiting and (len(waiting) > most_open or next(iter(waiting.values())).closed is not None):
            yield from _outcome(waiting.popitem(last=False)[1], store, end, rules)
    while waiting:
        yield from _outcome(waiting.popitem(last=False)[1], store, end, rules)


def learned_decisions(store: Any, model: str, first: int, last: int) -> Iterator[tuple[int, SettledDecision]]:
    """Learned decisions of a model with the number of the event that settled them, in the order they are
    learned in.
    """
    records = Records(store.of_key)
    for seq, event in events_between(store, max(first, store.start().seq), last):
        if isinstance(event, Decided) and event.model == model:
            records.take(event, fresh=True)
        elif isinstance(event, Closed) and event.model == model and event.value is not None:
            record = records.find(decision_key(event.id, model))
            if record is not None and record.decided is not None:  # else it was removed with the first events
                yield seq, SettledDecision(record.decided, event.value)


def _outcome(record: Record, store: Any, end: int, rules: Configuration) -> Iterator[SettledDecision]:
    if record.closed is None and record.decided is not None:
        rows = store.of_key(decision_key(record.decided.id, record.decided.model))
        record = record_of(decode_event(row.event) for row in rows if row.seq < end) or record
    if record.decided is None or record.closed is None:
        return
    reward = record.closed.value
    if record.closed.why == "not learned in this mode":
        values = record.joined()
        reward = aggregate(values, rules.aggregation) if values else rules.default_reward
    if reward is not None:
        yield SettledDecision(record.decided, reward)


Kind = Literal["number", "word", "list"]
MOST_COLUMNS = 500
"""Features beyond these many, the rarest, are left out of a table."""
MOST_COUNTED = 50_000
TAKEN = {word for words in NAMES.values() for word in words.split()}
"""Names that a reader takes for something else than a feature."""


@dataclass(frozen=True)
class Roles:
    """Names of the columns beside the features."""

    reward: str = "reward"
    time: str = "time"
    propensity: str = "propensity"
    arm: str = "action"
    offered: str = "arms_offered"
    round: str = "decision_id"
    chosen: str = "chosen"

    @classmethod
    def of(cls, schema: Schema) -> Roles:
        """As a schema calls them; where it has none, the usual names, unless these are features."""
        names = {}
        for role in fields(cls):
            known = getattr(schema, "arms_offered" if role.name == "offered" else role.name)
            if role.name == "arm":
                known = known or schema.action
            usual = f"served_{role.default}" if role.default in schema.features else str(role.default)
            names[role.name] = known or usual
        return cls(**names)


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
    roles : Roles
    columns : tuple of str
        What rows without names hold, in their order.
    features : mapping of str to "number", "word" or "list"
        Columns of features, and what they hold.
    left_out : int
        Features that were too rare for a column.
    decisions : int
        Those that were looked at.
    chosen_only : bool
        Whether rows of actions that were not chosen are left out.
    """

    rows: bool
    named: bool
    roles: Roles
    columns: tuple[str, ...] = ()
    features: Mapping[str, Kind] = field(default_factory=dict)
    left_out: int = 0
    decisions: int = 0
    chosen_only: bool = False

    def schema_like(self, schema: Schema) -> Schema:
        """What the columns mean, if the model was fitted to a log with this schema; times are not looked
        at.
        """
        roles, features = self.roles, schema.features or self.columns
        like = Schema(schema.reward, features, propensity=roles.propensity, categorical=schema.categorical)
        if self.chosen_only:
            return like
        if self.rows:
            return replace(like, round=roles.round, chosen=roles.chosen)
        return replace(like, arm=roles.arm)

    def rows_of(self, settled: SettledDecision) -> Iterator[dict[str, Any]]:
        """Rows of a decision: features by name."""
        if not self.rows:
            yield self._of_context(settled)
            return
        for place in range(len(settled.decided.propensities)):
            yield self.of_action(settled, place)

    def _of_context(self, settled: SettledDecision) -> dict[str, Any]:
        context = settled.decided.context or {}
        if not self.named:
            return dict(context)
        return {f"context.{name}" if name.lower() in TAKEN else name: value for name, value in flat(context)}

    def of_action(self, settled: SettledDecision, place: int) -> dict[str, Any]:
        """Features of an offered action."""
        decided = settled.decided
        own = None if decided.actions is None else decided.actions[place]
        if not self.named:
            row = own if isinstance(own, Mapping) else dict(zip(self.columns, own or (), strict=False))
            return {**(decided.context or {}), **row}
        label = decided.labels[place] if decided.labels else None
        numbers = action_numbers(named_numbers(decided.context, "context"), label, named_numbers(own, "arms"))
        return {name: value for name, value in numbers.items() if name != CONSTANT}


def layout_of(decisions: Callable[[], Iterable[SettledDecision]], learner: Learner) -> Layout:
    """The layout that fits all decisions.

    Parameters
    ----------
    decisions : callable
        Gives them from the first on, whenever it is called.
    learner : Learner
        Of the model; one that was fitted says what its columns are called.
    """
    labelled = _layout(decisions(), learner, rows=False)
    layout = labelled or _layout(decisions(), learner, rows=True)
    assert layout is not None
    return layout


def _layout(decisions: Iterable[SettledDecision], learner: Learner, *, rows: bool) -> Layout | None:
    """The layout of this form; None if a decision has rows that it has no place for."""
    empty = Layout(rows, True, Roles())
    if isinstance(learner, FittedLearner):
        columns = tuple(column.name for column in learner.model.feature_map.columns)
        empty = Layout(rows, False, Roles.of(learner.model.schema), columns)
    seen: dict[str, tuple[int, Kind]] = {}
    count = 0
    for count, settled in enumerate(decisions, start=1):  # noqa: B007 - how many there are
        if not rows and (settled.decided.actions is not None or not settled.decided.labels):
            return None
        for row in empty.rows_of(settled):
            for name, value in row.items():
                if name in seen or len(seen) < MOST_COUNTED:
                    often, kind = seen.get(name, (0, "number"))
                    seen[name] = often + (value is not None), _wider(kind, value)
    usual = set(sorted(seen, key=lambda name: -seen[name][0])[:MOST_COLUMNS])
    features = {name: kind for name, (_, kind) in seen.items() if name in usual}
    return replace(empty, features=features, left_out=len(seen) - len(features), decisions=count)


def _wider(kind: Kind, value: Any) -> Kind:
    """What a column holds that has held `kind` and holds `value`, too."""
    if isinstance(value, str) or kind == "word":
        return "word"
    return "list" if isinstance(value, list | tuple) else kind


def flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Leaves of nested JSON by dotted name: numbers as they are, truth as 0 and 1, words as words.

    >>> dict(flat({"user": {"age": 31, "new": True}, "tags": ["a"], "at": [1.5, 2.0]}))
    {'user.age': 31.0, 'user.new': 1.0, 'tags=a': 1.0, 'at[0]': 1.5, 'at[1]': 2.0}
    """
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from flat(part, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple):
        for place, part in enumerate(value):
            if isinstance(part, str):
                yield f"{name}={part}", 1.0
            else:
                yield from flat(part, f"{name}[{place}]")
    else:
        yield name, value if value is None or isinstance(value, str) else float(value)
