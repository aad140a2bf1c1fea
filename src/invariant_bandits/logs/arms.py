"""ArmTable: the labelled actions of a log, when each of them was used, and which were offered in a round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError
from invariant_bandits.logs import labels
from invariant_bandits.logs.schema import listed

SOURCES = {
    "lists": "the log says of every round which arms were offered",
    "catalogue": "the catalogue says when each arm could be offered",
    "told": "the arms were told; all of them were offered in every round",
    "log": "the log does not say what was offered; an arm counts as offered from its first to its last use",
}
SILENT_SHARE = 0.02
"""An arm whose last use is at most this share of the log before its end counts as active."""
SURPRISING_SILENCE = 10.0
"""So many uses that were to be expected after the last one, had the arm been offered, say that it was retired."""


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
        "lists", "catalogue", "told" or "log".

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
        if self.source not in SOURCES:
            raise InputError(f"source must be one of {', '.join(SOURCES)}, got {self.source!r}")
        twice = sorted({label for label in self.labels if self.labels.count(label) > 1})
        if twice or not self.arms:
            raise InputError(f"arms must have different labels, at least one, got {listed(twice) or 'none'}")

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Labels of all arms."""
        return tuple(arm.label for arm in self.arms)

    @property
    def active(self) -> tuple[str, ...]:
        """Labels of the arms that can still be chosen after the log."""
        return tuple(arm.label for arm in self.arms if arm.active)

    def __len__(self) -> int:
        return len(self.arms)

    def index(self, label: str) -> int:
        """Place of an arm; InputError names the known ones."""
        return labels.place_of(label, self.labels)

    def offerable(self, given: Any) -> tuple[str, ...]:
        """Labels of arms that may be offered together, as text; InputError for an unknown or a retired one."""
        if isinstance(given, str) or not hasattr(given, "__iter__"):
            raise InputError(f"arms must be a list of labels, got {given!r}")
        wanted = tuple(str(label) for label in given)
        if not wanted or len(set(wanted)) < len(wanted):
            raise InputError(f"arms must be different labels, at least one, got {listed(wanted) or 'none'}")
        for label in wanted:
            if not self.arms[self.index(label)].active:
                raise InputError(f"arm {label!r} is retired; the active ones are {listed(self.active)}")
        return wanted

    def with_arm(self, label: str) -> ArmTable:
        """This table with one more arm, active, the last; a label that is or was there is refused."""
        if label in self.labels:
            raise InputError(f"arm {label!r} is there already, or was: labels are never used again")
        return replace(self, arms=(*self.arms, Arm(label)))

    def without(self, label: str) -> ArmTable:
        """This table with an arm retired; the last active one cannot be."""
        place = self.index(label)
        if self.active == (str(label),):
            raise InputError(f"arm {label!r} is the only active one and cannot be retired")
        retired = replace(self.arms[place], active=False)
        return replace(self, arms=(*self.arms[:place], retired, *self.arms[place + 1 :]))

    def followed_by(self, later: ArmTable) -> ArmTable:
        """This table after a later log of the same arms: plays add; who is retired stays so."""
        if later.labels != self.labels:
            raise InputError(f"later must have the arms {listed(self.labels)}, got {listed(later.labels)}")
        pairs = zip(self.arms, later.arms, strict=True)
        return replace(self, arms=tuple(_continued(one, two) for one, two in pairs))

    def codes(self, column: Any) -> Array:
        """Places (n,) of the labels in an Arrow column; −1 where a label is missing or not known."""
        return labels.places(column, self.labels)

    def offered_at(self, when: Any) -> Array:
        """Mask (n, arms) of what was offered, from times (n,), or from rows of the log if it has no times."""
        times = np.asarray(when)
        mask = np.ones((len(times), len(self)), dtype=bool)
        for place, arm in enumerate(self.arms):
            begin, end = self.bounds(arm)
            if begin is not None:
                mask[:, place] &= times >= begin
            if end is not None:
                mask[:, place] &= times <= end
        return mask

    def bounds(self, arm: Arm) -> tuple[Any, Any]:
        """(from, until) between which an arm was offered, both included; None is not bounded."""
        if self.source == "catalogue" and (arm.valid_from is not None or arm.valid_until is not None):
            return arm.valid_from, arm.valid_until
        return (arm.first, arm.last) if self.source == "log" else (None, None)

    # -- saying and storing --

    def rows(self) -> list[tuple[str, str, str, str, str]]:
        """(label, plays, first use, last use, active or retired) of every arm, as words."""
        return [
            (arm.label, f"{arm.plays:,}", _word(arm.first), _word(arm.last), "active" if arm.active else "retired")
            for arm in self.arms
        ]

    def describe(self, most: int | None = None) -> str:
        """A table a person can read, with at most so many arms."""
        head = ("arm", "plays", "first use", "last use", "")
        shown = [head, *self.rows()[:most]]
        wide = [max(len(row[column]) for row in shown) for column in range(len(head))]
        lines = ["  ".join(word.ljust(size) for word, size in zip(row, wide, strict=True)).rstrip() for row in shown]
        more = [] if most is None or len(self) <= most else [f"and {len(self) - most} more"]
        return "\n".join([f"{len(self)} arms: {SOURCES[self.source]}", *lines, *more])

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON-able values."""
        arms = [{name: _plain(value) for name, value in asdict(arm).items()} for arm in self.arms]
        return {"source": self.source, "arms": arms}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ArmTable:
        """The table that `to_dict` came from."""
        known = {one.name for one in fields(Arm)}
        arms = [Arm(**{name: _lively(one[name]) for name in known & one.keys()}) for one in values["arms"]]
        return cls(tuple(arms), str(values["source"]))


def _continued(earlier: Arm, later: Arm) -> Arm:
    """An arm with the uses of two logs; rows of different files cannot be compared, the later ones count."""
    first = later.first if earlier.first is None else earlier.first
    last = earlier.last if later.last is None else later.last
    return replace(earlier, first=first, last=last, plays=earlier.plays + later.plays)


def is_active(arm: Arm, begin: Any, end: Any) -> bool:
    """Whether an arm can be chosen after a log from `begin` to `end`: its silence at the end does not say otherwise."""
    if arm.valid_until is not None:
        return bool(arm.valid_until >= end)
    if arm.last is None or end - arm.last <= SILENT_SHARE * (end - begin):
        return True
    used = max((arm.last - arm.first) / (end - begin), 1e-12)
    return bool(arm.plays * ((end - arm.last) / (end - begin)) / used < SURPRISING_SILENCE)


def ordered(names: Sequence[str]) -> list[str]:
    """Labels in the order of the alphabet, whole numbers by their size."""
    numbers = all(name.lstrip("-").isdigit() for name in names)
    return sorted(names, key=(lambda name: (int(name), name)) if numbers else None)


def _word(when: Any) -> str:
    if when is None:
        return "never"
    if isinstance(when, np.datetime64):
        return str(when.astype("datetime64[s]")).replace("T", " ")
    return f"{when:,}" if isinstance(when, int | np.integer) else f"{when:g}"


def _plain(value: Any) -> Any:
    if isinstance(value, np.datetime64):
        return {"date": str(value)}
    return value.item() if isinstance(value, np.generic) else value


def _lively(value: Any) -> Any:
    return np.datetime64(value["date"]) if isinstance(value, dict) else value
