"""What a first pass over a log of events finds: the names of features, and whether its actions are arms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from invariant_bandits.logs.events import NONE, OBSERVED, WEIGHT, Event, EventColumns, Feature

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
