"""Contextual bandits in the text form of Vowpal Wabbit (--cb_adf): lines of one event, then an empty one.

    shared |user age:0.3 country=DE
    |action price:2.5 color=red
    0:-1.0:0.25 |action price:1.5 color=blue

The line that begins action:cost:probability is the chosen one. "color=red" is the word red of the column
action.color.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby

from invariant_bandits.logs.events import EventSource, Feature, LoggedEvent
from invariant_bandits.logs.formats.registry import register_log_format
from invariant_bandits.logs.text_files import text_blocks

DAMAGED = "damaged event"
UNLABELLED = "event without a label"
SEVERAL = "event with more than one labelled action"
NO_ACTIONS = "event without actions"


@register_log_format(
    "cb_adf", label="Vowpal text", suffixes=(".vw", ".adf", ".dat"), packed=True
)
@dataclass
class CbAdfSource(EventSource):
    """Events in Vowpal's text form, one row per offered action.

    Columns beside the features: event_id (file:event, from 0), action (its tag, or its position from 1),
    chosen, reward (−cost), propensity.
    """

    def events(
        self, path: str, *, features: bool
    ) -> Iterator[tuple[int, LoggedEvent | str]]:
        """(first line, event or why there is none) of a file."""
        which = self.paths.index(path)
        for count, (line, lines) in enumerate(_groups(path)):
            yield line, _event(f"{which}:{count}", lines, features)


def _groups(path: str) -> Iterator[tuple[int, list[str]]]:
    """(first line, lines) of every event."""
    lines = chain.from_iterable(
        block.decode().splitlines() for block in text_blocks(path)
    )
    for is_event, pairs in groupby(
        enumerate(lines), key=lambda pair: bool(pair[1].strip())
    ):
        if is_event:
            numbers, texts = zip(*pairs, strict=True)
            yield numbers[0], list(texts)


def _event(name: str, lines: Sequence[str], features: bool) -> LoggedEvent | str:
    shared: list[Feature] = []
    labels: list[str] = []
    actions: list[list[Feature]] = []
    chosen: list[tuple[int, float, float]] = []
    try:
        for text in lines:
            head, _, body = text.partition("|")
            words = head.split()
            named = _features(body) if features else []
            if words and words[0] == "shared":
                shared = named
                continue
            if words and words[0].count(":") >= 2:
                label = words.pop(0).split(":")
                chosen.append((len(actions), float(label[1]), float(label[2])))
            tag = words[-1].lstrip("'") if words else ""
            labels.append(tag or str(len(actions) + 1))
            actions.append(named)
    except ValueError:
        return DAMAGED
    if not actions:
        return NO_ACTIONS
    if len(chosen) != 1:
        return SEVERAL if chosen else UNLABELLED
    index, cost, probability = chosen[0]
    return LoggedEvent(
        round=name,
        labels=labels,
        chosen=index,
        reward=0.0 - cost,
        propensity=probability,
        shared=shared,
        actions=actions,
    )


def _features(body: str) -> list[Feature]:
    """Features of the namespaces of a line, without the bar before the first."""
    features: list[Feature] = []
    for part in body.split("|"):
        words = part.split()
        prefix = ""
        factor = 1.0
        if words and not part[:1].isspace():
            name, _, weight = words.pop(0).partition(":")
            prefix = f"{name}."
            factor = float(weight) if weight else 1.0
        for word in words:
            name, _, value = word.partition(":")
            key, equals, said = name.partition("=")
            if equals and not value and factor == 1.0:
                features.append((f"{prefix}{key}", said))
            else:
                number = factor * (float(value) if value else 1.0)
                if number:
                    features.append((f"{prefix}{name}", number))
    return features
