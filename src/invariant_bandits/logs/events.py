"""Events: decisions with named features of the event and of every offered action, as rows of a log."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from invariant_bandits.logs.schema import Schema
from invariant_bandits.logs.sources import Batches, FileSource, Task
from invariant_bandits.optional import pyarrow as pa
from invariant_bandits.storage import FileError

Feature: TypeAlias = tuple[str, float | str]
"""A name with a number, or with a word: the feature "name=word" is then 1."""

NONE = "(none)"
OBSERVED, WEIGHT = "__observed_reward", "__weight"
"""Columns that some logs have beside the others; names that begin with two underscores are never features."""
MOST_ARMS = 50
MOST_FEATURES = 500
"""So many features become columns, the most frequent ones."""
MANY_WORDS = 100
"""Different words beyond which a column is not taken for a feature."""
MOST_NAMES = 200_000
"""So many names of features are counted before the rarer half of them is forgotten."""
CELLS_AT_ONCE = 2_000_000
"""Values of a batch: 16 MB as numbers."""


@dataclass(slots=True)
class LoggedEvent:
    """One decision.

    Parameters
    ----------
    round : str
        Identifier of the decision.
    labels : sequence of str
        Labels of the offered actions.
    chosen : int
        Index of the chosen action.
    reward : float
        Reward of the chosen action.
    propensity : float
        Probability with which it was chosen.
    shared : list of Feature
        Features of the event, the same for all actions.
    actions : sequence of lists of Feature
        Features of every offered action.
    time : str, optional
        When the decision was made, ISO 8601.
    more : mapping of str to float
        OBSERVED, the observed reward where the model should learn from another one; WEIGHT, the number of
        events that this event stands for.
    notes : tuple of str
        Irregularities of an event that is used nevertheless.
    """

    round: str
    labels: Sequence[str]
    chosen: int
    reward: float
    propensity: float
    shared: list[Feature]
    actions: Sequence[Sequence[Feature]]
    time: str | None = None
    more: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass
class EventSurvey:
    """Which features the events of a log have, and whether their actions are arms.

    Actions are arms if they have few labels and their features depend on the label only.
    """

    events: int = 0
    unusable: Counter[str] = field(default_factory=Counter)
    numbers: Counter[str] = field(default_factory=Counter)
    words: Counter[str] = field(default_factory=Counter)
    distinct: dict[str, set[str]] = field(default_factory=dict)
    several: set[str] = field(default_factory=set)
    own: set[str] = field(default_factory=set)
    shared: set[str] = field(default_factory=set)
    more: set[str] = field(default_factory=set)
    has_times: bool = False
    forgotten: int = 0
    arms: dict[str, frozenset[Feature]] = field(default_factory=dict)
    arms_are_fixed: bool = True

    @property
    def has_arms(self) -> bool:
        """Whether the actions of the log are arms."""
        return self.arms_are_fixed and len(self.arms) > 1 and not self.own & self.shared

    def add(self, event: LoggedEvent | str) -> None:
        """Count the features of an event, or the reason why a line has none."""
        if isinstance(event, str):
            self.unusable[event] += 1
            return
        self.events += 1
        self.has_times = self.has_times or event.time is not None
        self.more.update(event.more)
        names_with_word: set[str] = set()
        self._add_features(event.shared, names_with_word, self.shared)
        for label, features in zip(event.labels, event.actions, strict=True):
            self._add_features(features, set(names_with_word), self.own)
            if self.arms_are_fixed:
                known = self.arms.setdefault(label, frozenset(features))
                self.arms_are_fixed = (
                    known == frozenset(features) and len(self.arms) <= MOST_ARMS
                )
        for counts in (self.numbers, self.words):
            if len(counts) > MOST_NAMES:
                self._forget_rare(counts)

    def _add_features(
        self, features: Sequence[Feature], names_with_word: set[str], owners: set[str]
    ) -> None:
        """Count names; `names_with_word` are those that had a word in this action before."""
        for name, value in features:
            owners.add(name)
            if type(value) is not str:
                self.numbers[name] += 1
                continue
            self.words[name] += 1
            if name in names_with_word:
                self.several.add(name)
            names_with_word.add(name)
            known = self.distinct.setdefault(name, set())
            if len(known) <= MANY_WORDS:
                known.add(value)

    def _forget_rare(self, counts: Counter[str]) -> None:
        for name, _ in counts.most_common()[MOST_NAMES // 2 :]:
            del counts[name]
            self.distinct.pop(name, None)
            for names in (self.several, self.own, self.shared):
                names.discard(name)
            self.forgotten += 1

    def most_frequent(self) -> list[tuple[str, str, str]]:
        """Return (column, kind, name) of the features that become columns, in alphabetical order.

        A name that has several words in one action becomes a flag per word.
        """
        ranked = [
            (-count, name, "number", name) for name, count in self.numbers.items()
        ]
        single = self.words.keys() - self.several
        ranked += [(-self.words[name], name, "word", name) for name in single]
        for name in self.several:
            share = self.words[name] // max(1, len(self.distinct[name]))
            ranked += [
                (-share, f"{name}={word}", "flag", name) for word in self.distinct[name]
            ]
        return sorted(column for _, *column in sorted(ranked)[:MOST_FEATURES])  # type: ignore[misc]


@dataclass
class EventSource(FileSource, ABC):
    """Files of events as one row per offered action.

    Parameters
    ----------
    paths : tuple of str
        The files in the order of the log.
    """

    schema: Schema = field(init=False)
    skips_lines: bool = field(init=False, default=True)
    parses = True
    columns: dict[str, str] = field(init=False, default_factory=dict)
    _problems: dict[str, dict[str, list[int]]] = field(
        init=False, default_factory=dict, repr=False
    )

    @abstractmethod
    def events(
        self, path: str, *, features: bool
    ) -> Iterator[tuple[int, LoggedEvent | str]]:
        """Yield (line, event or why there is none) of a file; without `features` events may lack them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        survey = EventSurvey()
        for path in self.paths:
            for _, event in self.events(path, features=True):
                survey.add(event)
        if not survey.events:
            reasons = ", ".join(
                f"{count:,} × {reason}"
                for reason, count in survey.unusable.most_common(3)
            )
            raise FileError(
                f"{self.paths[0]} is not readable: it has no event that can be used: "
                f"{reasons or 'it is empty'}"
            )
        self._set_columns(survey)

    def _set_columns(self, survey: EventSurvey) -> None:
        """Decide the columns, and what they mean."""
        fixed = {
            "event_id": pa.string(),
            "action": pa.string(),
            "chosen": pa.bool_(),
            "reward": pa.float64(),
            "propensity": pa.float64(),
        }
        roles: dict[str, Any] = {
            "arm" if survey.has_arms else "action": "action",
            "round": "event_id",
            "chosen": "chosen",
            "propensity": "propensity",
        }
        if survey.has_times:
            fixed["time"] = pa.string()
            roles["time"] = "time"
        fixed |= {name: pa.float64() for name in sorted(survey.more)}
        features: dict[str, Any] = {}
        reasons: dict[str, str] = {}
        for name, kind, plain in survey.most_frequent():
            column = (
                f"{name} ({kind})" if name in fixed or name in self.columns else name
            )
            self.columns[column] = f"{kind}:{name}"
            features[column] = pa.string() if kind == "word" else pa.float64()
            if survey.has_arms and plain in survey.own:
                reasons[f"!{column}"] = "depends on the arm only"
            elif kind == "word" and len(survey.distinct[plain]) > MANY_WORDS:
                reasons[f"!{column}"] = f"has more than {MANY_WORDS} different words"
        known = len(survey.numbers) + len(survey.words) - len(survey.several)
        left_out = survey.forgotten + known - len(self.columns)
        if left_out > 0:
            reasons["!…"] = (
                f"{left_out:,} features that are not among the {MOST_FEATURES} most frequent"
            )
        if survey.has_arms:
            reasons["arm"] = (
                f"{len(survey.arms)} labels, each with the same features throughout"
            )
        self.arrow_schema = pa.schema(list((fixed | features).items()))
        used = tuple(name for name in features if f"!{name}" not in reasons)
        self.schema = Schema("reward", used, reasons=reasons, **roles)

    def batches(self, task: Task, columns: Sequence[str]) -> Batches:
        """Yield batches of whole events of one file."""
        problems = self._problems[task.file] = dict[str, list[int]]()
        wanted = any(name in self.columns for name in columns)
        most_rows = max(1000, CELLS_AT_ONCE // max(1, len(columns)))
        row = 0
        rows = 0
        held = list[LoggedEvent]()
        for line, event in self.events(task.file, features=wanted):
            for reason in (event,) if isinstance(event, str) else event.notes:
                problems.setdefault(reason, []).append(line)
            if isinstance(event, str):
                continue
            held.append(event)
            rows += len(event.labels)
            if rows >= most_rows:
                yield row, self._batch(held, rows, columns)
                row = row + rows
                rows = 0
                held = []
        if held:
            yield row, self._batch(held, rows, columns)

    def _batch(
        self, events: Sequence[LoggedEvent], rows: int, columns: Sequence[str]
    ) -> Any:
        wanted = {self.columns[name]: name for name in columns if name in self.columns}
        values = _feature_values(events, rows, wanted) if wanted else {}
        values |= {
            name: _fixed_values(events, name)
            for name in columns
            if name not in self.columns
        }
        arrays = [
            pa.array(values[name], type=self.arrow_schema.field(name).type)
            for name in columns
        ]
        return pa.RecordBatch.from_arrays(arrays, list(columns))

    def skipped(self, task: Task) -> Mapping[str, Sequence[int]]:
        """Return the lines without a usable event, and the irregular ones, by reason."""
        return self._problems.get(task.file, {})


def _feature_values(
    events: Sequence[LoggedEvent], rows: int, wanted: Mapping[str, str]
) -> dict[str, Any]:
    """Return values (rows,) of the wanted features.

    Keys of `wanted` are "number:…", "word:…" and "flag:…".
    """
    values: dict[str, list[Any]] = {}
    by_kind: dict[str, dict[str, list[Any]]] = {"number": {}, "word": {}, "flag": {}}
    for key, column in wanted.items():
        kind, _, name = key.partition(":")
        values[column] = by_kind[kind][name] = [NONE if kind == "word" else 0.0] * rows
    numbers, words, flags = by_kind.values()
    row = 0
    for event in events:
        end = row + len(event.actions)
        of_actions = (
            (features, index, index + 1)
            for index, features in enumerate(event.actions, start=row)
        )
        for features, first, last in ((event.shared, row, end), *of_actions):
            for name, value in features:
                is_word = type(value) is str
                if is_word and name in words:
                    words[name][first:last] = [value] * (last - first)
                    continue
                counts = flags.get(f"{name}={value}") if is_word else numbers.get(name)
                if counts is not None:
                    for index in range(first, last):
                        counts[index] += 1.0 if is_word else value
        row = end
    return values


def _fixed_values(events: Sequence[LoggedEvent], name: str) -> list[Any]:
    """Return the values of a column that is not a feature.

    Those of the decision stand at the chosen action.
    """
    values: list[Any] = []
    for event in events:
        actions = len(event.labels)
        if name == "action":
            values += event.labels
        elif name in OF_EVENT:
            values += [getattr(event, OF_EVENT[name])] * actions
        else:
            of_actions: list[Any] = [False if name == "chosen" else None] * actions
            of_actions[event.chosen] = _of_decision(event, name)
            values += of_actions
    return values


OF_EVENT = {"event_id": "round", "time": "time"}
"""Columns that are the same for all actions -> field of LoggedEvent."""


def _of_decision(event: LoggedEvent, name: str) -> Any:
    """Return the value of a column at the chosen action."""
    if name == "chosen":
        return True
    if name in ("reward", "propensity"):
        return getattr(event, name)
    return event.more.get(name, event.reward if name == OBSERVED else 1.0)
