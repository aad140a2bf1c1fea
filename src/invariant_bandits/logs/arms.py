"""ArmTable: the labelled actions of a log, when each of them was used, and which were offered in a round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError, format_names, one_of
from invariant_bandits.features.catalogue import (
    ArmTraits,
    Catalogue,
    Places,
    is_category_of,
)
from invariant_bandits.logs import decode
from invariant_bandits.logs.column_names import NAMES, identifies
from invariant_bandits.logs.decode import is_list, is_number, is_text
from invariant_bandits.logs.formats.registry import open_source
from invariant_bandits.logs.quality import RowProblems
from invariant_bandits.logs.schema import Schema
from invariant_bandits.optional import compute
from invariant_bandits.optional import pyarrow as pa

WHOLE = r"^(-?\d+)\.0+$"
SEPARATOR = r"[|;,]"
AROUND_LABELS = r"[\[\]\"'\s]"


def as_labels(column: Any) -> Any:
    """A column of labels as Arrow text; 14.0, as frames write whole numbers beside missing ones, is 14."""
    words = column.cast(pa.string())
    first = next(
        (word for word in words.slice(0, 100).to_pylist() if word is not None), ""
    )
    return (
        compute.replace_substring_regex(words, WHOLE, r"\1")
        if first.endswith(".0")
        else words
    )


def label_words(column: Any) -> Any:
    """A column of labels as an Arrow dictionary of text."""
    words = decode.as_dictionary(column)
    return pa.DictionaryArray.from_arrays(words.indices, as_labels(words.dictionary))


def flatten_labels(column: Any) -> tuple[Any, Array]:
    """(labels as an Arrow dictionary, their row (Σ lengths,)) of a column of lists, or of text that
    separates them.
    """
    if not is_list(column.type):
        words = compute.replace_substring_regex(
            column.cast(pa.string()), AROUND_LABELS, ""
        )
        column = compute.split_pattern_regex(words, SEPARATOR)
    rows = compute.list_parent_indices(column).to_numpy(zero_copy_only=False)
    return label_words(compute.list_flatten(column)), np.asarray(rows)


SOURCES = {
    "lists": "the log says of every round which arms were offered",
    "catalogue": "the catalogue says when each arm could be offered",
    "caller": "the caller named the arms; all of them were offered in every round",
    "log": "the log does not say what was offered; an arm counts as offered from its first to its last use",
}
SILENT_SHARE = 0.02
"""An arm whose last use is at most this share of the log before its end counts as active."""
SURPRISING_SILENCE = 10.0
"""So many uses that were to be expected after the last one, had the arm been offered, say that it was
retired.
"""


@dataclass(frozen=True)
class Arm:
    """A labelled action that exists over many rounds.

    Parameters
    ----------
    label : str
        What the log calls it.
    first, last : datetime64, number or None
        Its first and its last use: times, or rows of the log if it has no times; None if it was never used.
    plays : int
        Rounds in which it was chosen.
    active : bool
        Whether it can still be chosen after the log.
    valid_from, valid_until : datetime64, number or None
        When a catalogue says that it could be chosen; None is not bounded.
    """

    label: str
    first: Any = None
    last: Any = None
    plays: int = 0
    active: bool = True
    valid_from: Any = None
    valid_until: Any = None


@dataclass(frozen=True)
class ArmTable:
    """The arms of a log, and where it is known from which of them were offered.

    Parameters
    ----------
    arms : tuple of Arm
        In the order of their labels.
    source : str
        "lists", "catalogue", "caller" or "log".

    >>> table = ArmTable((Arm("a", 0, 99, 60), Arm("b", 50, 99, 40)), "log")
    >>> table.offered_at([10, 70])
    array([[ True, False],
           [ True,  True]])
    >>> table.index("c")
    Traceback (most recent call last):
        ...
    invariant_bandits.checks.InputError: arm 'c' is not known; the arms are a, b
    """

    arms: tuple[Arm, ...]
    source: str

    def __post_init__(self) -> None:
        one_of("source", self.source, tuple(SOURCES))
        _require_different(self.labels)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Labels of all arms."""
        return tuple(arm.label for arm in self.arms)

    @cached_property
    def _places(self) -> Places:
        return Places(self.labels)

    @property
    def active(self) -> tuple[str, ...]:
        """Labels of the arms that can still be chosen after the log."""
        return tuple(arm.label for arm in self.arms if arm.active)

    def __len__(self) -> int:
        return len(self.arms)

    def index(self, label: str) -> int:
        """Place of an arm; InputError names the known ones."""
        return self._places[str(label)]

    def offerable(self, arms: Any) -> tuple[str, ...]:
        """Labels of arms that may be offered together, as text; InputError for an unknown or a retired
        one.
        """
        if isinstance(arms, str) or not hasattr(arms, "__iter__"):
            raise InputError(f"arms must be a list of labels, got {arms!r}")
        wanted = tuple(str(label) for label in arms)
        _require_different(wanted)
        for label in wanted:
            if not self.arms[self.index(label)].active:
                raise InputError(
                    f"arm {label!r} is retired; the active ones are {format_names(self.active)}"
                )
        return wanted

    def with_arm(self, label: str) -> ArmTable:
        """This table with one more arm, active, the last; a label that is or was there is refused."""
        if label in self.labels:
            raise InputError(
                f"arm {label!r} is there already, or was: labels are never used again"
            )
        return replace(self, arms=(*self.arms, Arm(label)))

    def without(self, label: str) -> ArmTable:
        """This table with an arm retired; the last active one cannot be."""
        place = self.index(label)
        if self.active == (str(label),):
            raise InputError(
                f"arm {label!r} is the only active one and cannot be retired"
            )
        retired = replace(self.arms[place], active=False)
        return replace(
            self, arms=(*self.arms[:place], retired, *self.arms[place + 1 :])
        )

    def followed_by(self, later: ArmTable) -> ArmTable:
        """This table after a later log of the same arms: plays add; who is retired stays so."""
        if later.labels != self.labels:
            both = f"{format_names(self.labels)}, got {format_names(later.labels)}"
            raise InputError(f"later must have the arms {both}")
        pairs = zip(self.arms, later.arms, strict=True)
        return replace(
            self, arms=tuple(_continued(earlier, after) for earlier, after in pairs)
        )

    def offered_in(self, column: Any) -> Array:
        """Return a mask (n, arms) of what was offered, from an Arrow column of lists of labels."""
        words, rows = flatten_labels(column)
        codes = decode.category_places(words, self.labels).places
        mask = np.zeros((len(column), len(self)), dtype=bool)
        mask[rows[codes >= 0], codes[codes >= 0]] = True
        return mask

    def offered_at(self, when: Any) -> Array:
        """Mask (n, arms) of what was offered, from times (n,), or from rows of the log if it has no times."""
        times = np.asarray(when)
        mask = np.ones((len(times), len(self)), dtype=bool)
        for offered, (begin, end) in zip(
            mask.T, map(self.bounds, self.arms), strict=True
        ):
            offered &= True if begin is None else times >= begin
            offered &= True if end is None else times <= end
        return mask

    def bounds(self, arm: Arm) -> tuple[Any, Any]:
        """(from, until) between which an arm was offered, both included; None is not bounded."""
        if self.source == "catalogue" and (
            arm.valid_from is not None or arm.valid_until is not None
        ):
            return arm.valid_from, arm.valid_until
        return (arm.first, arm.last) if self.source == "log" else (None, None)

    # -- saying and storing --

    def rows(self) -> list[tuple[str, str, str, str, str]]:
        """(label, plays, first use, last use, active or retired) of every arm, as words."""
        uses = (
            (f"{arm.plays:,}", _word(arm.first), _word(arm.last)) for arm in self.arms
        )
        states = ("active" if arm.active else "retired" for arm in self.arms)
        return [
            (label, *use, state)
            for label, use, state in zip(self.labels, uses, states, strict=True)
        ]

    def describe(self, most: int | None = None) -> str:
        """A table a person can read, with at most so many arms."""
        head = ("arm", "plays", "first use", "last use", "")
        shown = [head, *self.rows()[:most]]
        wide = [max(len(row[column]) for row in shown) for column in range(len(head))]
        lines = ["  ".join(map(str.ljust, row, wide)).rstrip() for row in shown]
        more = (
            []
            if most is None or len(self) <= most
            else [f"and {len(self) - most} more"]
        )
        return "\n".join([f"{len(self)} arms: {SOURCES[self.source]}", *lines, *more])


def _require_different(labels: Sequence[str]) -> None:
    if not labels or len(set(labels)) < len(labels):
        raise InputError(
            f"arms must be different labels, at least one, got {format_names(labels) or 'none'}"
        )


def _continued(earlier: Arm, later: Arm) -> Arm:
    """An arm with the uses of two logs; rows of different files cannot be compared, the later ones count."""
    first = later.first if earlier.first is None else earlier.first
    last = earlier.last if later.last is None else later.last
    return replace(earlier, first=first, last=last, plays=earlier.plays + later.plays)


def is_active(arm: Arm, begin: Any, end: Any) -> bool:
    """Whether an arm can be chosen after a log from `begin` to `end`: its silence at the end does not say
    otherwise.
    """
    if arm.last is None or end - arm.last <= SILENT_SHARE * (end - begin):
        return True
    used = max((arm.last - arm.first) / (end - begin), 1e-12)
    return bool(
        arm.plays * ((end - arm.last) / (end - begin)) / used < SURPRISING_SILENCE
    )


def sort_labels(names: Sequence[str]) -> list[str]:
    """Labels in the order of the alphabet, whole numbers by their size."""
    numbers = all(name.lstrip("-").isdigit() for name in names)
    return sorted(names, key=(lambda name: (int(name), name)) if numbers else None)


def arm_table(
    uses: tuple[Arm, ...], schema: Schema, catalogue: Catalogue | None, named: Any
) -> ArmTable:
    """Return the arms of a log, from the first of these: lists in the log, catalogue, names by the caller,
    uses.

    Parameters
    ----------
    uses : tuple of Arm
        First and last use and plays of every label in the log.
    schema : Schema
        Whether the log says itself what was offered.
    catalogue : Catalogue, optional
        Arms with validity; labels of the log that it lacks are known from the log.
    named : sequence of str, optional
        Labels of the arms that were offered in every round.
    """
    used = {arm.label: arm for arm in uses}
    begin, end = min(arm.first for arm in uses), max(arm.last for arm in uses)
    active = tuple(replace(arm, active=is_active(arm, begin, end)) for arm in uses)
    if schema.arms_offered is not None or schema.one_row_per_action:
        return ArmTable(active, "lists")
    if catalogue is not None:
        return ArmTable(_catalogued(used, catalogue, begin, end), "catalogue")
    if named is not None:
        return ArmTable(
            tuple(used.get(label, Arm(label)) for label in _checked(named, used)),
            "caller",
        )
    _require_overlap(uses, schema)
    return ArmTable(active, "log")


def _catalogued(
    used: Mapping[str, Arm], catalogue: Catalogue, begin: Any, end: Any
) -> tuple[Arm, ...]:
    """Return the arms of a catalogue, and those of the log that it lacks, which their uses bound."""
    validity = zip(catalogue.valid_from, catalogue.valid_until, strict=True)
    valid = dict(zip(catalogue.labels, validity, strict=True))
    arms: list[Arm] = []
    for label in sort_labels(list({**valid, **used})):
        arm = used.get(label, Arm(label))
        first, last = valid.get(label, (arm.first, arm.last))
        active = (
            (last is None or bool(last >= end))
            if label in valid
            else is_active(arm, begin, end)
        )
        arms.append(replace(arm, valid_from=first, valid_until=last, active=active))
    return tuple(arms)


def _checked(labels: Sequence[str], used: Mapping[str, Arm]) -> list[str]:
    if isinstance(labels, str):
        raise InputError(f"arms must be a list of labels, got the text {labels!r}")
    names = [str(label) for label in labels]
    if not set(names) & set(used):
        known = format_names(list(used))
        raise InputError(
            f"arms: none of {format_names(names)} is a label of the log, which has {known}"
        )
    return names


def _require_overlap(uses: tuple[Arm, ...], schema: Schema) -> None:
    """Raise InputError if no two arms were in use at the same time: then the log cannot say what was
    offered.
    """
    in_turn = sorted(uses, key=lambda arm: (arm.first, arm.last))
    overlap = any(later.first <= earlier.last for earlier, later in pairwise(in_turn))
    if len(uses) > 1 and not overlap:
        where = (
            "in the same range of rows" if schema.time is None else "at the same time"
        )
        what = f"column {schema.arm!r}: no two arms were in use {where}, so what was offered is not known"
        needed = "arms (--arms), a catalogue (--catalogue), a column of lists (--arms-offered), or the time"
        raise InputError(f"{what}; give {needed} (--time)")


def _word(when: Any) -> str:
    if when is None:
        return "never"
    if isinstance(when, np.datetime64):
        return str(when.astype("datetime64[s]")).replace("T", " ")
    return f"{when:,}" if isinstance(when, int | np.integer) else f"{when:g}"


VALID_FROM = (
    "valid_from from start start_date starts launched launched_at available_from"
)
VALID_UNTIL = (
    "valid_until until valid_to end end_date ends retired retired_at available_until"
)
ARMS_PER_FEATURE = 3
"""So many arms are needed for one feature of the catalogue."""
INDEPENDENT = 1e-6
"""Share of a feature's variance over the arms that the earlier ones must leave."""


def read_catalogue(
    source: Any, arm: str, used: Sequence[str], dates: bool
) -> Catalogue:
    """A catalogue from a file or a table with one row per arm.

    Parameters
    ----------
    source : path, Arrow table, frame, or another source of rows
        One row per arm: a column of labels, features, and perhaps columns such as valid_from and valid_until.
    arm : str
        Name of the label column of the log; the catalogue's has the same name, or is the one that holds its
        labels.
    used : sequence of str
        Labels that occur in the log.
    dates : bool
        Whether the times of the log are dates.
    """
    opened = open_source(source)
    table = _whole(opened)
    kinds = {
        name: opened.arrow_schema.field(name).type for name in opened.arrow_schema.names
    }
    name = _label_column(table, arm, used)
    words = as_labels(table.column(name).combine_chunks()).to_pylist()
    if None in words or len(set(words)) < len(words):
        raise InputError(f"catalogue: column {name!r} must hold every label once")
    begin, end = (_named(kinds, usual, name) for usual in (VALID_FROM, VALID_UNTIL))
    free = [
        column
        for column in kinds
        if column not in (name, begin, end) and column.strip()
    ]
    features = _features(
        table, {column: kinds[column] for column in free if not identifies(column)}
    )
    until = _times(table, end, dates)
    if end is not None and _are_days(
        table, end, kinds[end]
    ):  # the last day is meant as a whole
        until = tuple(
            None if day is None else day + np.timedelta64(86_399_999_999, "us")
            for day in until
        )
    return Catalogue(
        labels=tuple(words),
        traits=features,
        valid_from=_times(table, begin, dates),
        valid_until=until,
    )


def _whole(source: Any) -> Any:
    names = source.arrow_schema.names
    batches = [
        batch for task in source.tasks for _, batch in source.batches(task, names)
    ]
    if batches:
        return pa.Table.from_batches(batches)
    raise InputError("catalogue is empty: one row per arm is needed")


def _label_column(table: Any, arm: str, used: Sequence[str]) -> str:
    """The column of labels: named as in the log, usually named, or the one that holds the log's labels."""
    names = table.column_names
    usual = [
        name
        for name in names
        if name.lower() in ("label", "name", "id", *NAMES["arm"].split())
    ]
    for name in [*(name for name in names if name == arm), *usual, *names]:
        if set(as_labels(table.column(name).combine_chunks()).to_pylist()) & set(used):
            return str(name)
    such = f"such as {format_names(list(used)[:5])}; it has the columns {format_names(names)}"
    raise InputError(f"catalogue: no column holds the labels of the log, {such}")


def _named(kinds: dict[str, Any], usual: str, taken: str) -> str | None:
    free = {name.lower(): name for name in reversed(kinds) if name != taken}
    return next((free[word] for word in usual.split() if word in free), None)


def _are_days(table: Any, name: str, kind: Any) -> bool:
    """Whether a column holds dates without a time of the day."""
    words = table.column(name).drop_null().to_pylist()
    return bool(pa.types.is_date(kind)) or all(
        len(str(word).strip()) == 10 for word in words
    )


def _times(table: Any, name: str | None, dates: bool) -> tuple[Any, ...]:
    """Times of a column of the catalogue, None where there is none."""
    if name is None:
        return tuple(None for _ in range(table.num_rows))
    column = table.column(name).combine_chunks()
    problems = RowProblems(len(column))
    values = decode.times(column, name, dates, problems)
    missing = decode.is_missing(column)
    if (~problems.usable & ~missing).any():
        kind = "dates" if dates else "numbers"
        raise InputError(
            f"catalogue: column {name!r} must hold {kind}, as the log's times"
        )
    return tuple(
        None if gone else value for value, gone in zip(values, missing, strict=True)
    )


def _features(table: Any, kinds: dict[str, Any]) -> ArmTraits:
    """Standardised features of the arms: numbers first, then the categories that several arms share."""
    arms = table.num_rows
    candidates = [
        (name, _numbers(table, name)) for name, kind in kinds.items() if is_number(kind)
    ]
    texts = (name for name, kind in kinds.items() if is_text(kind))
    shared = (pair for name in texts for pair in _shared_categories(table, name))
    candidates += sorted(shared, key=lambda pair: -float(pair[1].sum()))
    names: list[str] = []
    references: list[str] = []
    basis = values = np.zeros((arms, 0))
    for name, column in candidates:
        centred = column - column.mean()
        size = float(np.sqrt((centred**2).mean()))
        if len(names) >= max(arms // ARMS_PER_FEATURE, 1) or size <= 1e-12 * (
            1.0 + np.abs(column).max()
        ):
            continue
        left = centred - basis @ (basis.T @ centred)
        if (left @ left) <= INDEPENDENT * (centred @ centred):
            others = [j for j, known in enumerate(names) if is_category_of(known, name)]
            if others and np.array_equal(column, 1.0 - values[:, others].sum(axis=1)):
                references.append(name)
            continue
        names.append(name)
        basis = np.column_stack([basis, left / np.linalg.norm(left)])
        values = np.column_stack([values, column])
    shift = values.mean(axis=0)
    scale = values.std(axis=0)
    return ArmTraits(
        names=tuple(names),
        values=(values - shift) / scale,
        shift=shift,
        scale=scale,
        references=tuple(references),
    )


def _numbers(table: Any, name: str) -> Array:
    """Numbers (A,), the mean where one is missing."""
    column = table.column(name).combine_chunks()
    problems = RowProblems(len(column))
    values = decode.numbers(column, name, problems)
    good = problems.usable
    return np.where(good, values, values[good].mean() if good.any() else 0.0)


def _shared_categories(table: Any, name: str) -> list[tuple[str, Array]]:
    """(name=category, indicator (A,)) of the categories that at least two arms have."""
    words = np.array(
        as_labels(table.column(name).combine_chunks()).fill_null("").to_pylist()
    )
    levels, counts = np.unique(words, return_counts=True)
    several = levels[(counts >= 2) & (counts < len(words)) & (levels != "")].tolist()
    return [(f"{name}={level}", (words == level).astype(float)) for level in several]
