"""Events: decisions with features of their own and of every offered action, named as they come; one or many at once."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.logs.decode import is_number
from invariant_bandits.logs.formats.json_lines import DEEPEST, as_written, depth_of, read_json
from invariant_bandits.logs.schema import Schema
from invariant_bandits.logs.sources import Task
from invariant_bandits.storage import FileError

Feature: TypeAlias = tuple[str, float | str]
"""A name with a number, or with a word: the feature "name=word" is then 1."""

Columns: TypeAlias = dict[str, Any]
"""Name → Arrow array."""

NONE = "(none)"
OBSERVED, WEIGHT = "__observed_reward", "__weight"
"""Columns that some logs have beside the others; names with two bars are never taken for features."""


@dataclass(slots=True)
class Event:
    """One decision.

    Parameters
    ----------
    round : str
        What tells it from others.
    labels : sequence of str
        What the offered actions are called.
    chosen : int
        Index of the chosen one.
    reward : float
        What it earned.
    propensity : float
        Probability with which it was chosen.
    shared : list of Feature
        Features of the event, the same for all actions.
    actions : list of lists of Feature
        Features of every offered action.
    time : str, optional
        When it was, ISO 8601.
    more : mapping of str to float
        Where they say something: OBSERVED, what was earned if that is not the reward to learn from; WEIGHT, for how
        many events it stands.
    notes : tuple of str
        What is strange about it, although it is used.
    """

    round: str
    labels: Sequence[str]
    chosen: int
    reward: float
    propensity: float
    shared: list[Feature]
    actions: list[list[Feature]]
    time: str | None = None
    more: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class EventColumns:
    """Events of a block, one row per offered action.

    Parameters
    ----------
    lines : int
        Lines of the block.
    events : int
        Events that can be used.
    rows : int
        Their offered actions.
    fixed : mapping of str to array, shape (rows,)
        What is known beside the features.
    numbers, words : mapping of str to array, shape (rows,)
        The features, 0 or NONE where an action has none.
    own : frozenset of str
        The features that are the actions', not the event's.
    counts : mapping of str to int
        By feature, how many events or actions have it.
    problems : mapping of str to array
        Lines by what is wrong with them, or strange about them.
    """

    lines: int
    events: int
    rows: int
    fixed: Columns
    numbers: Columns
    words: Columns
    own: frozenset[str]
    counts: Mapping[str, int]
    problems: Mapping[str, Array]

    def feature(self, which: str) -> Any:
        """A feature (rows,) by its kind and name: "number:…", "word:…" or "flag:name=word"."""
        import pyarrow as pa
        from pyarrow import compute

        kind, _, name = which.partition(":")
        if kind == "number":
            return self.numbers.get(name, pa.repeat(0.0, self.rows))
        if kind == "word":
            return self.words.get(name, pa.repeat(NONE, self.rows))
        key = next((one for one in self.words if name.startswith(f"{one}=")), None)
        if key is None:
            return pa.repeat(0.0, self.rows)
        return compute.equal(self.words[key], name.removeprefix(f"{key}=")).cast(pa.float64())

    def known(self, name: str) -> Any:
        """A column (rows,) beside the features."""
        import pyarrow as pa

        if name in self.fixed:
            return self.fixed[name]
        if name == "time":
            return pa.nulls(self.rows, pa.string())
        return self.fixed["reward"] if name == OBSERVED else pa.array(np.ones(self.rows))


SLOTS = ("_slots", "_slot")
LONGEST_LIST = 64
PROBE_BYTES, MOST_NEW_NAMES = 1 << 16, 50
KEY = re.compile(rb'"([^"\\]*)"\s*:')


class IrregularBlockError(Exception):
    """A block that has to be read event by event."""


@dataclass(frozen=True)
class Reasons:
    """What the lines of a block that are strange or cannot be used are said to be."""

    dangling: str
    not_learned: str
    unlabelled: str
    all_dropped: str
    outside: str
    no_outcome: str
    apprentice: str
    dropped: str


class BlockReader:
    """Blocks of dsjson as columns; the types of one block are expected of the next.

    Parameters
    ----------
    reasons : Reasons
        What to say about lines.
    """

    def __init__(self, reasons: Reasons) -> None:
        self.reasons = reasons
        self._expected: Any = None

    def read(self, block: bytes, *, features: bool) -> EventColumns:
        """The events of a block of whole lines, or IrregularBlockError."""
        if _has_ever_new_names(block):
            raise IrregularBlockError
        table = self._parsed(block)
        if len(table) != block.count(b"\n") + (not block.endswith(b"\n")):
            raise IrregularBlockError  # empty lines would be miscounted
        lines = _Lines(table, self.reasons)
        counts: dict[str, int] = {}
        numbers: Columns = {}
        words: Columns = {}
        shared: frozenset[str] = frozenset()
        if features:
            _walk(lines.context, "", lines.parents, numbers, words, counts)
            shared = frozenset(counts)
            _walk(lines.actions, "", None, numbers, words, counts)
        own, sizes = frozenset(counts) - shared, (len(table), len(lines.sizes), len(lines.parents))
        return EventColumns(*sizes, lines.fixed(), numbers, words, own, counts, lines.problems)

    def _parsed(self, block: bytes) -> Any:
        """A table of a block; text stays text, whatever it looks like."""
        import pyarrow as pa

        for _ in range(2):
            try:
                table = read_json(block, self._expected, others="infer")
            except pa.ArrowInvalid:
                if self._expected is None:
                    raise IrregularBlockError from None
                self._expected = None
                continue
            wanted = as_written(table.schema)
            if table.schema == wanted:
                return table.combine_chunks()
            self._expected = wanted
        raise IrregularBlockError


class _Lines:
    """The lines of a block: which can be used, and what they say beside their features."""

    def __init__(self, table: Any, reasons: Reasons) -> None:
        import pyarrow as pa
        from pyarrow import compute

        self.names = set(table.schema.names)
        if not {"c", "EventId", "_label_cost", "_labelIndex", "_label_probability"} <= self.names:
            raise IrregularBlockError
        kind = table.schema.field("c").type
        if depth_of(kind) > DEEPEST:
            raise IrregularBlockError
        if not pa.types.is_struct(kind) or "_outcomes" in self.names or any(one.name in SLOTS for one in kind):
            raise IrregularBlockError
        context = _single(table.column("c"))
        place = context.type.get_field_index("_multi")
        if place < 0 or not pa.types.is_list(context.type.field(place).type):
            raise IrregularBlockError
        multi = compute.struct_field(context, [place])
        self.table = table
        self.problems: dict[str, Array] = {}
        used = self._used(compute.list_value_length(multi).fill_null(-1).to_numpy(zero_copy_only=False), reasons)
        self._note(used, reasons)
        keep = pa.array(used)
        self.table, self.context, multi = table.filter(keep), context.filter(keep), multi.filter(keep)
        self.actions = multi.flatten()
        if not pa.types.is_struct(self.actions.type) or self.actions.null_count:
            raise IrregularBlockError
        self.sizes = np.asarray(compute.list_value_length(multi).to_numpy(zero_copy_only=False))
        self.parents = np.repeat(np.arange(len(self.sizes)), self.sizes)

    def _numbers(self, name: str, missing: float) -> Array:
        """A column of numbers or truth values; `missing` where there is none."""
        import pyarrow as pa

        if name not in self.names:
            return np.full(len(self.table), missing)
        column = _single(self.table.column(name))
        if not is_number(column.type) and not pa.types.is_null(column.type):
            raise IrregularBlockError
        values = column.cast(pa.float64(), safe=False).fill_null(missing)
        return np.asarray(values.to_numpy(zero_copy_only=False))

    def _used(self, sizes: Array, reasons: Reasons) -> Array:
        """Mask of the lines with an event that can be used; the others are put down by the first reason."""
        index = self._numbers("_labelIndex", np.nan)
        needed = (index, self._numbers("_label_cost", np.nan), self._numbers("_label_probability", np.nan))
        checks = {
            reasons.dangling: sizes < 0,
            reasons.not_learned: self._numbers("_skipLearn", 0.0) != 0.0,
            reasons.unlabelled: np.isnan(needed).any(axis=0),
            reasons.all_dropped: self._numbers("pdrop", 0.0) >= 1.0,
            reasons.outside: ~((index >= 0) & (index < sizes) & (index == np.floor(index))),
        }
        used = np.ones(len(self.table), dtype=bool)
        for reason, bad in checks.items():
            self.problems[reason] = np.flatnonzero(bad & used)
            used &= ~bad
        ids = _single(self.table.column("EventId"))
        if np.asarray(ids.is_null())[used | (sizes < 0)].any() or "" in ids.unique().to_pylist():
            raise IrregularBlockError
        return used

    def _note(self, used: Array, reasons: Reasons) -> None:
        cost = self._numbers("_label_cost", np.nan)
        self.apprentice = used & (self._observed(cost) != cost)
        self.dropped = used & (self._numbers("pdrop", 0.0) != 0.0)
        silent = np.asarray(_single(self.table.column("o")).is_null()) if "o" in self.names else np.ones_like(used)
        self.problems[reasons.no_outcome] = np.flatnonzero(used & silent)
        self.problems[reasons.apprentice] = np.flatnonzero(self.apprentice)
        self.problems[reasons.dropped] = np.flatnonzero(self.dropped)

    def _observed(self, cost: Array) -> Array:
        original = self._numbers("_original_label_cost", np.nan)
        return np.where(np.isnan(original), cost, original)

    def fixed(self) -> Columns:
        """What is known beside the features, one value per offered action; missing where it was not chosen."""
        import pyarrow as pa

        places = np.arange(len(self.parents)) - np.repeat(np.cumsum(self.sizes) - self.sizes, self.sizes)
        chosen = places == self._numbers("_labelIndex", 0.0)[self.parents]
        cost = self._numbers("_label_cost", 0.0)
        of_event = {"reward": 0.0 - cost, "propensity": self._numbers("_label_probability", 0.0)}
        if self.apprentice.any():
            of_event[OBSERVED] = 0.0 - self._observed(cost)
        if self.dropped.any():
            of_event[WEIGHT] = 1.0 / (1.0 - self._numbers("pdrop", 0.0))
        columns = {name: pa.array(values[self.parents], mask=~chosen) for name, values in of_event.items()}
        columns["event_id"] = _single(self.table.column("EventId")).cast(pa.string()).take(pa.array(self.parents))
        columns["chosen"] = pa.array(chosen)
        columns["action"] = self._labels(places)
        if "Timestamp" in self.names:
            columns["time"] = _single(self.table.column("Timestamp")).cast(pa.string()).take(pa.array(self.parents))
        return columns

    def _labels(self, places: Array) -> Any:
        """Tags, or places from 1."""
        import pyarrow as pa
        from pyarrow import compute

        numbered = pa.array(places + 1).cast(pa.string())
        index = self.actions.type.get_field_index("_tag")
        if index < 0:
            return numbered
        tags = compute.struct_field(self.actions, [index])
        if not pa.types.is_string(tags.type):
            raise IrregularBlockError
        return compute.coalesce(tags, numbered)


def _has_ever_new_names(block: bytes) -> bool:
    """Whether names keep coming up at the beginning of a block: as columns they would fill the memory."""
    half = block.rfind(b"\n", 0, PROBE_BYTES) + 1
    whole = block.rfind(b"\n", 0, 2 * PROBE_BYTES) + 1
    before, after = (set(KEY.findall(text)) for text in (block[:half], block[half:whole]))
    return len(after - before) > MOST_NEW_NAMES


def _single(column: Any) -> Any:
    """The one chunk of a column."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _walk(
    given: Any, namespace: str, parents: Array | None, numbers: Columns, words: Columns, counts: dict[str, int]
) -> None:
    """Add the features of an array of structs; those of events are repeated for their actions, the rows `parents`."""
    import pyarrow as pa
    from pyarrow import compute

    for index in range(given.type.num_fields):
        name, kind = given.type.field(index).name, given.type.field(index).type
        if name.startswith("_") or pa.types.is_null(kind):
            if name == "_text":
                raise IrregularBlockError
            continue
        inner = compute.struct_field(given, [index])
        if pa.types.is_struct(kind):
            _walk(inner, f"{name}.", parents, numbers, words, counts)
        elif pa.types.is_string(kind):
            _add(f"{namespace}{name}", inner, parents, words, NONE, counts)
        elif is_number(kind):
            _add(f"{namespace}{name}", inner.cast(pa.float64(), safe=False), parents, numbers, 0.0, counts)
        elif pa.types.is_list(kind):
            _walk_list(inner, name, parents, numbers, words, counts)
        else:
            raise IrregularBlockError


def _walk_list(
    given: Any, name: str, parents: Array | None, numbers: Columns, words: Columns, counts: dict[str, int]
) -> None:
    """Add the features of an array of lists: of numbers, or of at most one struct."""
    import pyarrow as pa
    from pyarrow import compute

    kind = given.type.value_type
    sizes = np.asarray(compute.list_value_length(given).fill_null(0).to_numpy(zero_copy_only=False)).astype(np.int64)
    longest, starts, flat = int(sizes.max(initial=0)), np.cumsum(sizes) - sizes, given.flatten()
    if pa.types.is_null(kind) or not longest:
        return
    if pa.types.is_struct(kind) and longest == 1:
        _walk(flat.take(pa.array(starts, mask=sizes == 0)), f"{name}.", parents, numbers, words, counts)
        return
    if not is_number(kind) or longest > LONGEST_LIST:
        raise IrregularBlockError
    for place in range(longest):
        values = flat.take(pa.array(starts + place, mask=sizes <= place)).cast(pa.float64(), safe=False)
        _add(f"{name}[{place}]", values, parents, numbers, 0.0, counts)


def _add(
    name: str, values: Any, parents: Array | None, into: Columns, missing: float | str, counts: dict[str, int]
) -> None:
    import pyarrow as pa
    from pyarrow import compute

    if name in counts:
        raise IrregularBlockError
    filled = values.fill_null(missing)
    there = len(values) - values.null_count
    if missing == 0.0:
        there = int(np.count_nonzero(filled.to_numpy(zero_copy_only=False)))
    if there:
        counts[name] = there
        into[name] = filled if parents is None else compute.take(filled, pa.array(parents))


MOST_FEATURES = 500
MANY_WORDS = 100
MOST_NAMES = 200_000
"""How many names are counted before the rarer half of them is forgotten."""
MOST_ARMS = 50


@dataclass
class Arms:
    """Whether actions are arms: few labels, and what is known of an action depends on its label only.

    Parameters
    ----------
    known : dict of str to frozenset of Feature
        Label → features.
    fixed : bool
        Whether no action was seen with other features than an earlier one of its label, and labels are few.
    """

    known: dict[str, frozenset[Feature]] = field(default_factory=dict)
    fixed: bool = True

    def see_event(self, event: Event) -> None:
        """Compare the actions of an event with those before."""
        for label, features in zip(event.labels, event.actions, strict=True):
            self._see(label, features)

    def see_columns(self, piece: EventColumns) -> None:
        """Compare the actions of many events: with one another, and with those before."""
        import pyarrow as pa
        from pyarrow import compute

        labels = piece.fixed["action"].dictionary_encode()
        if not self.fixed or len(labels.dictionary) > MOST_ARMS:
            self.fixed = False
            return
        codes = np.asarray(labels.indices.to_numpy(zero_copy_only=False))
        _, first = np.unique(codes, return_index=True)
        features = piece.numbers | piece.words
        columns = {name: features[name] for name in piece.own}
        for column in columns.values():
            same = compute.equal(column, column.take(pa.array(first[codes])))
            self.fixed = self.fixed and bool(compute.all(same).as_py())
        for label, row in zip(labels.dictionary.to_pylist(), first.tolist(), strict=True):
            values = ((name, column[row].as_py()) for name, column in columns.items())
            self._see(label, (one for one in values if one[1] not in (0.0, NONE)))

    def _see(self, label: str, features: Iterable[Feature]) -> None:
        if self.fixed:
            features = frozenset(features)
            self.fixed = self.known.setdefault(label, features) == features and len(self.known) <= MOST_ARMS


@dataclass
class Names:
    """Names of features with how often they occur, and what else columns are made of.

    Parameters
    ----------
    events : int
        Events seen.
    unusable : Counter of str
        Lines without one, by the reason; of many at once, with what is merely strange.
    numbers, words : Counter of str
        By name, in how many events or actions it has a number, or a word.
    distinct : dict of str to set of str
        By name, its different words, at most one more than MANY_WORDS.
    several : set of str
        Names that had several words in one action.
    own : set of str
        Names of features of actions.
    shared : set of str
        Names of features of events.
    more : set of str
        Which of OBSERVED and WEIGHT say something.
    timed : bool
        Whether events have times.
    forgotten : int
        Names that were so rare among so many that they are no longer counted.
    arms : Arms
        Whether actions are arms.
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
    timed: bool = False
    forgotten: int = 0
    arms: Arms = field(default_factory=Arms)

    @property
    def are_of_arms(self) -> bool:
        """Whether the actions of the log are arms."""
        return self.arms.fixed and len(self.arms.known) > 1 and not self.own & self.shared

    def see(self, piece: Event | str | EventColumns) -> None:
        """What has this piece of the log?"""
        if isinstance(piece, Event):
            self._see_event(piece)
        elif isinstance(piece, str):
            self.unusable[piece] += 1
        else:
            self._see_columns(piece)
        for counts in (self.numbers, self.words):
            if len(counts) > MOST_NAMES:
                self._forget_rare(counts)

    def _forget_rare(self, counts: Counter[str]) -> None:
        for name, _ in counts.most_common()[MOST_NAMES // 2 :]:
            del counts[name]
            self.distinct.pop(name, None)
            for names in (self.several, self.own, self.shared):
                names.discard(name)
            self.forgotten += 1

    def _see_columns(self, piece: EventColumns) -> None:
        self.events += piece.events
        self.unusable.update({reason: len(lines) for reason, lines in piece.problems.items()})
        self.timed = self.timed or "time" in piece.fixed
        self.more.update({OBSERVED, WEIGHT} & set(piece.fixed))
        self.own |= piece.own
        self.shared |= set(piece.counts) - piece.own
        self.arms.see_columns(piece)
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
        self.arms.see_event(event)
        had_word: set[str] = set()
        self._see_features(event.shared, had_word, self.shared)
        for features in event.actions:
            self._see_features(features, set(had_word), self.own)

    def _see_features(self, features: Sequence[Feature], had_word: set[str], whose: set[str]) -> None:
        """Count names; `had_word` has those that had a word in this action before, and gets the others."""
        for name, value in features:
            whose.add(name)
            if type(value) is str:
                self._see_word(name, value, had_word)
            else:
                self.numbers[name] += 1

    def _see_word(self, name: str, word: str, had_word: set[str]) -> None:
        self.words[name] += 1
        if name in had_word:
            self.several.add(name)
        had_word.add(name)
        known = self.distinct.setdefault(name, set())
        if len(known) <= MANY_WORDS:
            known.add(word)

    def most_frequent(self) -> list[tuple[str, str, str]]:
        """(column, kind, name) of the features that become columns, in the order of the alphabet.

        A name that has several words in one action is one number per word, a flag.
        """
        found = [(count, name, "number", name) for name, count in self.numbers.items()]
        found += [(count, name, "word", name) for name, count in self.words.items() if name not in self.several]
        for name in self.several:
            share = self.words[name] // max(1, len(self.distinct[name]))
            found += [(share, f"{name}={word}", "flag", name) for word in self.distinct[name]]
        found.sort(key=lambda one: (-one[0], *one[1:]))
        return sorted(one[1:] for one in found[:MOST_FEATURES])

    def left_out(self, columns: int) -> int:
        """How many features are none of so many columns."""
        return self.forgotten + len(self.numbers) + len(self.words) - len(self.several) - columns


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
