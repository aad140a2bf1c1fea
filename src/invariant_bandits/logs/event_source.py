"""Logs of events: a decision per event, with features of its own and of every offered action, named as they come.

Such a log becomes one row per offered action. Which names there are is known after a first pass; the most frequent are
columns. A feature that an action does not have is 0, or "(none)" where the column holds words.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from invariant_bandits.files import FileError
from invariant_bandits.logs.event_names import MANY_WORDS, MOST_FEATURES, Names
from invariant_bandits.logs.events import NONE, OBSERVED, Event, EventColumns, Feature
from invariant_bandits.logs.schema import Schema
from invariant_bandits.logs.sources import Task

CELLS_AT_ONCE = 2_000_000


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
        names = Names()
        for path in self.paths:
            for _, piece in self.pieces(path, features=True):
                names.see(piece)
        if not names.events:
            why = ", ".join(f"{count:,} × {reason}" for reason, count in names.unusable.most_common(3)) or "it is empty"
            raise FileError(f"{self.paths[0]} is not readable: it has no event that can be used: {why}")
        self.tasks = tuple(Task(path, 0, 0, 0) for path in self.paths)
        self._settle(names)

    def _settle(self, names: Names) -> None:
        """Columns, and what they mean."""
        import pyarrow as pa

        fixed = {"event_id": pa.string(), "action": pa.string(), "chosen": pa.bool_(), "reward": pa.float64()}
        fixed |= {"propensity": pa.float64()} | ({"time": pa.string()} if names.timed else {})
        fixed |= {name: pa.float64() for name in sorted(names.more)}
        features: dict[str, Any] = {}
        reasons: dict[str, str] = {}
        for name, kind, plain in names.most_frequent():
            column = f"{name} ({kind})" if name in fixed or name in self.columns else name
            self.columns[column] = f"{kind}:{name}"
            features[column] = pa.string() if kind == "word" else pa.float64()
            if names.are_of_arms and plain in names.own:
                reasons[f"!{column}"] = "depends on the arm only"
            elif kind == "word" and len(names.distinct[plain]) > MANY_WORDS:
                reasons[f"!{column}"] = f"has more than {MANY_WORDS} different words"
        if names.left_out(len(self.columns)) > 0:
            left_out = f"{names.left_out(len(self.columns)):,} features"
            reasons["!…"] = f"{left_out} that are not among the {MOST_FEATURES} most frequent"
        if names.are_of_arms:
            reasons["arm"] = f"{len(names.arms.known)} labels, each with the same features throughout"
        self.arrow_schema = pa.schema(list((fixed | features).items()))
        self.schema = Schema(
            "reward",
            tuple(name for name in features if f"!{name}" not in reasons),
            time="time" if names.timed else None,
            arm="action" if names.are_of_arms else None,
            action=None if names.are_of_arms else "action",
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
