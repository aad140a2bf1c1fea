"""dsjson: what Azure Personalizer and the decision service of Vowpal Wabbit log, one JSON object per event.

The label is where Vowpal takes it from: the chosen action from _labelIndex, its propensity from
_label_probability, its reward is −_label_cost. Features are those under "c": of the event, and of every
action under "_multi"; the innermost object that holds a feature is its namespace.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec

from invariant_bandits.logs.events import (
    OBSERVED,
    WEIGHT,
    EventSource,
    Feature,
    LoggedEvent,
)
from invariant_bandits.logs.formats.registry import register_log_format
from invariant_bandits.logs.json_values import MOST_NESTED, too_deep, value_of
from invariant_bandits.logs.quality import NOTED
from invariant_bandits.logs.text_files import first_lines, text_blocks
from invariant_bandits.storage import FileError

SIGNS = re.compile(rb'"(_label_cost|_labelIndex|_outcomes|_multi|_slots)"\s*:')
DAMAGED = "damaged line"
DANGLING = "outcome without an event"
UNLABELLED = "event without a label"
NOT_LEARNED = "event that says _skipLearn"
ALL_DROPPED = "event with pdrop 1"
OUTSIDE = "event whose chosen action is not among its actions"
NO_OUTCOME = f"{NOTED}event without an outcome, its cost is the default"
APPRENTICE = f"{NOTED}event in apprentice mode, _label_cost is not what was observed"
DROPPED = (
    f"{NOTED}event with pdrop, it stands for 1/(1 - pdrop) events, but counts once"
)
BLOCK_BYTES = 4 << 20
MOST_PARTS = 4096
"""So many actions and parts of contexts are remembered with their features."""


def _is_dsjson(path: str) -> bool:
    return SIGNS.search(first_lines(path)) is not None


@register_log_format(
    "dsjson",
    label="dsjson",
    suffixes=(".dsjson", ".json", ".jsonl", ".ndjson"),
    packed=True,
    recognises=_is_dsjson,
)
@dataclass
class DsjsonSource(EventSource):
    """Events of a decision service, one row per offered action.

    Columns beside the features: event_id, action (its _tag, or its position from 1), chosen, reward,
    propensity, time; __observed_reward (−_original_label_cost) where the log has events in apprentice mode,
    and __weight (1/(1 − pdrop)) where it has events with pdrop.
    """

    def events(
        self, path: str, *, features: bool
    ) -> Iterator[tuple[int, LoggedEvent | str]]:
        """Yield (line, event or why there is none) of a file."""
        file = self.paths.index(path)
        line = 0
        for block in text_blocks(path, size=BLOCK_BYTES):
            for number, text in enumerate(block.split(b"\n"), start=line):
                if text and not text.isspace():
                    yield number, _event(path, file, number, text)
            line += block.count(b"\n")


class _Line(msgspec.Struct):
    """The fields of a line that are used; parts of the context are decoded once, because many come again."""

    c: dict[str, msgspec.Raw] = {}
    cost: Any = msgspec.field(default=None, name="_label_cost")
    original: Any = msgspec.field(default=None, name="_original_label_cost")
    probability: Any = msgspec.field(default=None, name="_label_probability")
    index: Any = msgspec.field(default=None, name="_labelIndex")
    skip: Any = msgspec.field(default=False, name="_skipLearn")
    drop: Any = msgspec.field(default=None, name="pdrop")
    name: Any = msgspec.field(default=None, name="EventId")
    time: Any = msgspec.field(default=None, name="Timestamp")
    outcomes: Any = msgspec.field(default=None, name="o")
    slots: Any = msgspec.field(default=None, name="_outcomes")


LINE = msgspec.json.Decoder(_Line)
ACTIONS = msgspec.json.Decoder(list[msgspec.Raw])


def _event(path: str, which: int, number: int, text: bytes) -> LoggedEvent | str:
    try:
        line = _parsed_line(text)
        if line.slots is None and "_slots" not in line.c and "_slot" not in line.c:
            return _usable(line, f"{which}:{number}")
    except (
        TypeError,
        ValueError,
        AttributeError,
        ArithmeticError,
        RecursionError,
        msgspec.MsgspecError,
    ):
        return DAMAGED
    raise FileError(
        f"{path}: line {number} has decisions for several slots (slates or conditional "
        "bandits); one decision per event is needed"
    )


def _parsed_line(text: bytes) -> _Line:
    """Return the fields of a line; what only Python's parser takes, such as NaN, is missing."""
    if too_deep(text):
        raise ValueError(f"lists and objects stand more than {MOST_NESTED} deep")
    try:
        return LINE.decode(text)
    except msgspec.MsgspecError:
        return LINE.decode(msgspec.json.encode(value_of(text)))


def _usable(line: _Line, name: str) -> LoggedEvent | str:
    """Return the event of a line, or why it is none; `name` is what it is called if it has no id."""
    if "_multi" not in line.c:
        return DAMAGED if line.name is None else DANGLING
    actions = ACTIONS.decode(line.c["_multi"])
    refusal = _why_not_learned(line, len(actions))
    if refusal is not None:
        return refusal
    drop = line.drop or 0.0
    original = line.cost if line.original is None else line.original
    notes = []
    if line.outcomes is None:
        notes.append(NO_OUTCOME)
    more = {}
    if original != line.cost:
        more[OBSERVED] = 0.0 - float(original)
        notes.append(APPRENTICE)
    if drop:
        more[WEIGHT] = 1.0 / (1.0 - drop)
        notes.append(DROPPED)
    shared: list[Feature] = []
    for key, part in line.c.items():
        if key[:1] != "_" or key == "_text":
            shared += _part(key, bytes(part))[1]
    tags, features = zip(*(_part("", bytes(action)) for action in actions), strict=True)
    numbered = enumerate(tags, start=1)
    return LoggedEvent(
        round=str(line.name or name),
        labels=[str(number if tag is None else tag) for number, tag in numbered],
        chosen=int(line.index),
        reward=0.0 - float(line.cost),
        propensity=float(line.probability),
        shared=shared,
        actions=features,
        time=line.time,
        more=more,
        notes=tuple(notes),
    )


def _why_not_learned(line: _Line, actions: int) -> str | None:
    """Say why an event with so many actions teaches nothing; None if it does."""
    if line.skip:
        return NOT_LEARNED
    if line.cost is None or line.index is None or line.probability is None:
        return UNLABELLED
    if (line.drop or 0.0) >= 1.0:
        return ALL_DROPPED
    if not 0 <= line.index < actions or line.index != int(line.index):
        return OUTSIDE
    return None


@lru_cache(MOST_PARTS)
def _part(key: str, content: bytes) -> tuple[Any, list[Feature]]:
    """Return (tag, features) of an action, or of a part of the context that has a key; do not change them."""
    value = msgspec.json.decode(content)
    return None if key else value.get("_tag"), _features(
        {key: value} if key else value, ""
    )


def _features(content: dict[str, Any], namespace: str) -> list[Feature]:
    """Return the features of an object.

    Numbers stay numbers and words stay words, true is 1. What is 0, false or missing gives no feature.
    """
    features: list[Feature] = []
    for key, value in content.items():
        kind = type(value)
        if key[:1] == "_":
            if key == "_text" and kind is str:
                features += [(f"{namespace}{word}", 1.0) for word in value.split()]
        elif kind is str:
            features.append((f"{namespace}{key}", value))
        elif kind is dict:
            features += _features(value, f"{key}.")
        elif kind is list:
            features += _listed(value, key, namespace)
        elif value:
            features.append(
                (f"{namespace}{key}", value if kind is float else _float(value))
            )
    return features


def _float(value: Any) -> float:
    """A whole number or truth value as a float; infinite where it is too large for one."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _listed(values: list[Any], key: str, namespace: str) -> list[Feature]:
    """Return the features of a list.

    Of objects, those of the objects. Of numbers, key[0], key[1], … Of words, one per word.
    """
    features: list[Feature] = []
    for index, value in enumerate(values):
        if type(value) is dict:
            features += _features(value, f"{key}.")
        elif type(value) is str:
            features.append((f"{namespace}{key}", value))
        elif type(value) is list:
            features += _listed(value, f"{key}[{index}]", namespace)
        elif value:
            features.append((f"{key}[{index}]", _float(value)))
    return features
