"""dsjson: what Azure Personalizer and the decision service of Vowpal Wabbit log, one JSON object per event.

The label is where Vowpal takes it from: the chosen action from _labelIndex, its propensity from
_label_probability, its reward is −_label_cost. Features are those under "c": of the event, and of every
action under "_multi"; the innermost object that holds a feature is its namespace.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from invariant_bandits.logs.events import OBSERVED, WEIGHT, Event, EventSource, Feature
from invariant_bandits.logs.formats.registry import log_format
from invariant_bandits.logs.quality import NOTED
from invariant_bandits.logs.sources import first_lines, text_blocks, value_of
from invariant_bandits.storage import FileError

SIGNS = re.compile(rb'"(_label_cost|_labelIndex|_outcomes|_multi|_slots)"\s*:')
DAMAGED, DANGLING = "damaged line", "outcome without an event"
UNLABELLED, NOT_LEARNED = "event without a label", "event that says _skipLearn"
ALL_DROPPED, OUTSIDE = "event with pdrop 1", "event whose chosen action is not among its actions"
NO_OUTCOME = f"{NOTED}event without an outcome, its cost is the default"
APPRENTICE = f"{NOTED}event in apprentice mode, _label_cost is not what was observed"
DROPPED = f"{NOTED}event with pdrop, it stands for 1/(1 - pdrop) events, but counts once"
BLOCK_BYTES = 4 << 20


def _is_dsjson(path: str) -> bool:
    return SIGNS.search(first_lines(path)) is not None


@log_format(
    "dsjson",
    label="dsjson",
    suffixes=(".dsjson", ".json", ".jsonl", ".ndjson"),
    packed=True,
    recognises=_is_dsjson,
)
@dataclass
class DsjsonSource(EventSource):
    """Events of a decision service, one row per offered action.

    Columns beside the features: event_id, action (its _tag, or its place from 1), chosen, reward, propensity,
    time; __observed_reward (−_original_label_cost) where the log has events in apprentice mode, and __weight
    (1/(1 − pdrop)) where it has events with pdrop.

    Parameters
    ----------
    block_bytes : int
        About how many bytes are read at once.
    """

    block_bytes: int = BLOCK_BYTES

    def events(self, path: str, *, features: bool) -> Iterator[tuple[int, Event | str]]:
        """Yield (line, event or why there is none) of a file."""
        file, line = self.paths.index(path), 0
        for block in text_blocks(path, size=self.block_bytes):
            for place, text in enumerate(block.split(b"\n"), start=line):
                if text and not text.isspace():
                    yield place, _event(path, file, place, text, features)
            line += block.count(b"\n")

    @staticmethod
    def write_events(sink: Any, events: Iterable[Event]) -> None:
        """Write one object per event; of probabilities, only the chosen action's is known."""
        for event in events:
            sink.write(
                (json.dumps(_as_json(event), separators=(",", ":"), ensure_ascii=False) + "\n").encode()
            )


def _event(path: str, which: int, line: int, text: bytes, features: bool) -> Event | str:
    try:
        content = value_of(text)
        context = content.get("c")
    except (ValueError, AttributeError):
        return DAMAGED
    if "_outcomes" in content or (type(context) is dict and ("_slots" in context or "_slot" in context)):
        raise FileError(
            f"{path}: line {line} has decisions for several slots (slates or conditional bandits), which is "
            "another form; one decision per event is needed"
        )
    try:
        return _usable(content, context, f"{which}:{line}", features)
    except (TypeError, ValueError, AttributeError, OverflowError, RecursionError):
        return DAMAGED


def _usable(content: dict[str, Any], context: Any, name: str, features: bool) -> Event | str:
    """The event of an object, or why it is none; `name` is what it is called if it has no id."""
    if type(context) is not dict or type(context.get("_multi")) is not list:
        return DANGLING if "EventId" in content else DAMAGED
    cost, index = content.get("_label_cost"), content.get("_labelIndex")
    drop = content.get("pdrop") or 0.0
    if content.get("_skipLearn"):
        return NOT_LEARNED
    if cost is None or index is None or content.get("_label_probability") is None:
        return UNLABELLED
    if drop >= 1.0:
        return ALL_DROPPED
    actions = context["_multi"]
    if not 0 <= index < len(actions) or index != int(index):
        return OUTSIDE
    original = content.get("_original_label_cost", cost)
    return Event(
        str(content.get("EventId") or name),
        [str(action.get("_tag", place)) for place, action in enumerate(actions, start=1)],
        int(index),
        0.0 - float(cost),
        float(content["_label_probability"]),
        _features(context, "") if features else [],
        [_features(action, "") for action in actions] if features else [[]] * len(actions),
        content.get("Timestamp"),
        _more(original, cost, drop),
        _notes(content, original != cost, drop),
    )


def _as_json(event: Event) -> dict[str, Any]:
    """The object that `_event` reads as this event."""
    tags = [
        {} if label == str(place) else {"_tag": label} for place, label in enumerate(event.labels, start=1)
    ]
    actions = [tag | _nested(features) for tag, features in zip(tags, event.actions, strict=True)]
    written = {
        "_label_cost": 0.0 - event.reward,
        "_label_probability": event.propensity,
        "_label_Action": event.chosen + 1,
        "_labelIndex": event.chosen,
        "o": [{"v": event.more.get(OBSERVED, event.reward), "EventId": event.round}],
        "Timestamp": event.time,
        "Version": "1",
        "EventId": event.round,
        "a": [event.chosen + 1, *(place + 1 for place in range(len(actions)) if place != event.chosen)],
        "c": _nested(event.shared) | {"_multi": actions},
    }
    if event.time is None:
        del written["Timestamp"]
    if NO_OUTCOME in event.notes:
        del written["o"]
    if OBSERVED in event.more:
        written["_original_label_cost"] = 0.0 - event.more[OBSERVED]
    if WEIGHT in event.more:
        written["pdrop"] = 1.0 - 1.0 / event.more[WEIGHT]
    return written


def _nested(features: Sequence[Feature]) -> dict[str, Any]:
    """Namespace → name → value; a word that comes again under its name is a number of its own."""
    spaces: dict[str, Any] = {}
    for full, value in features:
        space, point, name = full.partition(".")
        inside = spaces.setdefault(space, {}) if point and isinstance(spaces.get(space, {}), dict) else spaces
        key = name if inside is not spaces else full
        if key in inside and isinstance(value, str):
            key, value = f"{key}={value}", 1.0
        inside[key] = inside.get(key, 0.0) + value if isinstance(value, float) else value
    return spaces


def _more(original: float, cost: float, drop: float) -> dict[str, float]:
    """What was observed, and for how many events this one stands, where that says something."""
    observed = {} if original == cost else {OBSERVED: 0.0 - float(original)}
    return observed | ({WEIGHT: 1.0 / (1.0 - drop)} if drop else {})


def _notes(content: dict[str, Any], apprentice: bool, drop: float) -> tuple[str, ...]:
    """What is strange about an event that is used."""
    if "o" in content and not apprentice and not drop:
        return ()
    strange = {NO_OUTCOME: "o" not in content, APPRENTICE: apprentice, DROPPED: bool(drop)}
    return tuple(words for words, is_so in strange.items() if is_so)


def _features(content: dict[str, Any], namespace: str) -> list[Feature]:
    """Features of an object: numbers as they are, words as words, true as 1; what is 0, false or missing
    is none.
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
            features.append((f"{namespace}{key}", value if kind is float else _float(value)))
    return features


def _float(value: Any) -> float:
    """A whole number or truth value as a float; infinite where it is too large for one."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _listed(values: list[Any], key: str, namespace: str) -> list[Feature]:
    """Features of a list: of objects, those of the objects; of numbers, key[0], key[1], …; of words, one
    per word.
    """
    features: list[Feature] = []
    for place, value in enumerate(values):
        if type(value) is dict:
            features += _features(value, f"{key}.")
        elif type(value) is str:
            features.append((f"{namespace}{key}", value))
        elif type(value) is list:
            features += _listed(value, f"{key}[{place}]", namespace)
        elif value:
            features.append((f"{key}[{place}]", _float(value)))
    return features
