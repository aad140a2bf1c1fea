"""Logs of events: a decision per event, with features of its own and of every offered action, named as they come.

Such a log becomes one row per offered action. Which names there are is known after a first pass; the most frequent are
columns. A feature that an action does not have is 0, or "(none)" where the column holds words.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from invariant_bandits.files import FileError
from invariant_bandits.logs.events import NONE, OBSERVED, WEIGHT, Event, EventColumns, Feature
from invariant_bandits.logs.schema import Schema
from invariant_bandits.logs.sources import Task

MOST_FEATURES = 500
MANY_WORDS = 100
MOST_NAMES = 200_000
"""How many names are counted before the rarer half of them is forgotten."""
CELLS_AT_ONCE = 2_000_000


@dataclass
class _Names:
    """What the first pass found."""

    events: int = 0
    numbers: Counter[str] = field(default_factory=Counter)
    words: Counter[str] = field(default_factory=Counter)
    distinct: dict[str, set[str]] = field(default_factory=dict)
    several: set[str] = field(default_factory=set)
    more: set[str] = field(default_factory=set)
    timed: bool = False
    forgotten: int = 0

    def see(self, piece: Event | str | EventColumns) -> None:
        """What has this piece of the log?"""
        if isinstance(piece, Event):
            self._see_event(piece)
        elif not isinstance(piece, str):
            self._see_columns(piece)
        for counts in (self.numbers, self.words):
            if len(counts) > MOST_NAMES:
                self._forget_rare(counts)

    def _forget_rare(self, counts: Counter[str]) -> None:
        for name, _ in counts.most_common()[MOST_NAMES // 2 :]:
            del counts[name]
            self.distinct.pop(name, None)
            self.several.discard(name)
            self.forgotten += 1

    def _see_columns(self, piece: EventColumns) -> None:
        self.events += piece.events
        self.timed = self.timed or "time" in piece.fixed
        self.more.update({OBSERVED, WEIGHT} & set(piece.fixed))
        for name in piece.numbers:
            self.numbers[name] += piece.counts[name]
        for name, column in piece.words.items():
            self.words[name] += piece.counts[name]
            known = self.distinct.setdefault(name, set())
            if len(known) <= MANY_WORDS:
                known.update(word for word in column.unique().slice(0, MANY_WORDS + 2).to_pylist() if word != NONE)

    def _see_event(self, event: Event) -> None:
        self.events += 1
        self.timed = self.timed or event.time is not None
        self.more.update(event.more)
        shared: set[str] = set()
        self._see_features(event.shared, shared)
        for features in event.actions:
            self._see_features(features, set(shared))

    def _see_features(self, features: Sequence[Feature], here: set[str]) -> None:
        """Count names; `here` has those that had a word before, and gets the others."""
        for name, value in features:
            if type(value) is str:
                self._see_word(name, value, here)
            else:
                self.numbers[name] += 1

    def _see_word(self, name: str, word: str, here: set[str]) -> None:
        self.words[name] += 1
        if name in here:
            self.several.add(name)
        here.add(name)
        known = self.distinct.setdefault(name, set())
        if len(known) <= MANY_WORDS:
            known.add(word)


@dataclass
class EventSource(ABC):
    """Files of events as one row per offered action.

    Parameters
    ----------
    paths : tuple of str
        The files in the order of the log.
    """

    paths: tuple[str, ...]
    arrow_schema: Any = field(init=False)
    tasks: tuple[Task, ...] = field(init=False)
    total_rows: int | None = field(init=False, default=None)
    in_files: bool = field(init=False, default=True)
    schema: Schema = field(init=False)
    columns: dict[str, str] = field(init=False, default_factory=dict)
    _problems: dict[str, dict[str, list[int]]] = field(init=False, default_factory=dict, repr=False)

    @abstractmethod
    def events(self, path: str, *, features: bool) -> Iterator[tuple[int, Event | str]]:
        """(line, event or why there is none) of a file; events may come without features if none are wanted."""

    def pieces(self, path: str, *, features: bool) -> Iterator[tuple[int, Event | str | EventColumns]]:
        """The same, many events at once where that can be done."""
        return self.events(path, features=features)

    def __post_init__(self) -> None:
        names = _Names()
        for path in self.paths:
            for _, piece in self.pieces(path, features=True):
                names.see(piece)
        if not names.events:
            raise FileError(f"{self.paths[0]} is not readable: it has no event that can be used")
        self.tasks = tuple(Task(path, 0, 0, 0) for path in self.paths)
        self._settle(names)

    def _settle(self, names: _Names) -> None:
        """Columns, and what they mean."""
        import pyarrow as pa

        fixed = {"event_id": pa.string(), "action": pa.string(), "chosen": pa.bool_(), "reward": pa.float64()}
        fixed |= {"propensity": pa.float64()} | ({"time": pa.string()} if names.timed else {})
        fixed |= {name: pa.float64() for name in sorted(names.more)}
        for name, kind, _ in _most_frequent(names):
            taken = name in fixed or name in self.columns
            self.columns[f"{name} ({kind})" if taken else name] = f"{kind}:{name}"
        kinds = {"word": pa.string()}
        features = {name: kinds.get(which.partition(":")[0], pa.float64()) for name, which in self.columns.items()}
        self.arrow_schema = pa.schema(list((fixed | features).items()))
        too_many = {name for name, which in self.columns.items() if _many_words(which, names)}
        left_out = names.forgotten + len(names.numbers) + len(names.words) - len(names.several) - len(self.columns)
        reasons = {f"!{name}": f"has more than {MANY_WORDS} different words" for name in sorted(too_many)}
        if left_out > 0:
            reasons["!…"] = f"{left_out:,} features that are not among the {MOST_FEATURES} most frequent"
        self.schema = Schema(
            "reward",
            tuple(name for name in features if name not in too_many),
            time="time" if names.timed else None,
            action="action",
            propensity="propensity",
            round="event_id",
            chosen="chosen",
            reasons=reasons,
        )

    def batches(self, task: Task, columns: Sequence[str], first_row: int | None = None) -> Iterator[tuple[int, Any]]:
        """Batches of whole events of one file; nothing is behind it."""
        if first_row is not None:
            return
        problems = self._problems[task.file] = dict[str, list[int]]()
        wanted = any(name in self.columns for name in columns)
        most_rows = max(1000, CELLS_AT_ONCE // max(1, len(columns)))
        row, rows, held = 0, 0, list[Event]()
        for line, piece in self.pieces(task.file, features=wanted):
            if isinstance(piece, Event):
                held.append(piece)
                rows += len(piece.labels)
            for reason, lines in _strange(line, piece):
                problems.setdefault(reason, []).extend(lines)
            whole = None if isinstance(piece, Event | str) else piece
            if held and (whole is not None or rows >= most_rows):
                yield row, self._batch(held, rows, columns)
                row, rows, held = row + rows, 0, []
            if whole is not None:
                yield row, self._batch_of_columns(whole, columns)
                row += whole.rows
        if held:
            yield row, self._batch(held, rows, columns)

    def _batch_of_columns(self, piece: EventColumns, columns: Sequence[str]) -> Any:
        import pyarrow as pa

        arrays = [piece.feature(self.columns[name]) if name in self.columns else piece.known(name) for name in columns]
        return pa.RecordBatch.from_arrays(arrays, list(columns))

    def _batch(self, events: Sequence[Event], rows: int, columns: Sequence[str]) -> Any:
        import pyarrow as pa

        wanted = {self.columns[name]: name for name in columns if name in self.columns}
        values = _feature_values(events, rows, wanted) if wanted else {}
        for name in columns:
            if name not in self.columns:
                values[name] = _fixed_values(events, name)
        arrays = [pa.array(values[name], type=self.arrow_schema.field(name).type) for name in columns]
        return pa.RecordBatch.from_arrays(arrays, list(columns))

    def skipped(self, task: Task) -> Sequence[int]:
        """Lines are no rows: see `skipped_by_reason`."""
        return ()

    def skipped_by_reason(self, task: Task) -> Mapping[str, Sequence[int]]:
        """Lines without an event that can be used, and those with something strange about it, by the reason."""
        return self._problems.get(task.file, {})


def _strange(line: int, piece: Event | str | EventColumns) -> Iterator[tuple[str, list[int]]]:
    """(reason, lines) of what is wrong with a piece that begins at a line, or strange about it."""
    if isinstance(piece, Event | str):
        for reason in (piece,) if isinstance(piece, str) else piece.notes:
            yield reason, [line]
        return
    for reason, lines in piece.problems.items():
        if len(lines):
            yield reason, [line + int(one) for one in lines]


def _most_frequent(names: _Names) -> list[tuple[str, str, int]]:
    """(name, kind, count) of the features that become columns, in the order of the alphabet.

    A name that has several words in one action is one number per word.
    """
    found = [(name, "number", count) for name, count in names.numbers.items()]
    found += [(name, "word", count) for name, count in names.words.items() if name not in names.several]
    for name in names.several:
        share = names.words[name] // max(1, len(names.distinct[name]))
        found += [(f"{name}={word}", "flag", share) for word in names.distinct[name]]
    found.sort(key=lambda one: (-one[2], one[0], one[1]))
    return sorted(found[:MOST_FEATURES])


def _many_words(which: str, names: _Names) -> bool:
    kind, _, name = which.partition(":")
    return kind == "word" and len(names.distinct[name]) > MANY_WORDS


def _feature_values(events: Sequence[Event], rows: int, wanted: Mapping[str, str]) -> dict[str, list[Any]]:
    """Values (rows,) of the wanted features; keys of `wanted` are "number:…", "word:…" and "flag:…"."""
    values: dict[str, list[Any]] = {}
    numbers, words, flags = dict[str, list[Any]](), dict[str, list[Any]](), dict[str, list[Any]]()
    for which, column in wanted.items():
        kind, _, name = which.partition(":")
        values[column] = [NONE if kind == "word" else 0.0] * rows
        {"number": numbers, "word": words, "flag": flags}[kind][name] = values[column]
    row = 0
    for event in events:
        end = row + len(event.actions)
        for features, first, last in ((event.shared, row, end), *_places(event.actions, row)):
            for name, value in features:
                if type(value) is str and (found := words.get(name)) is not None:
                    found[first:last] = [value] * (last - first)
                    continue
                is_word = type(value) is str
                found = flags.get(f"{name}={value}") if is_word else numbers.get(name)
                if found is not None:
                    for place in range(first, last):
                        found[place] += 1.0 if is_word else value
        row = end
    return values


def _places(actions: Sequence[list[Feature]], row: int) -> Iterator[tuple[list[Feature], int, int]]:
    for place, features in enumerate(actions, start=row):
        yield features, place, place + 1


def _fixed_values(events: Sequence[Event], name: str) -> list[Any]:
    """Values of a column that is no feature; those of the decision stand where the action was chosen."""
    if name == "action":
        return [label for event in events for label in event.labels]
    if name == "chosen":
        return [place == event.chosen for event in events for place in range(len(event.labels))]
    if name in ("event_id", "time"):
        of_event = "round" if name == "event_id" else "time"
        return [value for event in events for value in [getattr(event, of_event)] * len(event.labels)]
    values: list[Any] = []
    for event in events:
        if name in ("reward", "propensity"):
            own = getattr(event, name)
        else:
            own = event.more.get(name, event.reward if name == OBSERVED else 1.0)
        values += [own if place == event.chosen else None for place in range(len(event.labels))]
    return values
