"""What pages and metrics see: plain values made by the engine's thread now and then, so that looking costs no lock."""

from __future__ import annotations

import time
from collections import deque
from heapq import nlargest
from typing import Any

import msgspec

from invariant_bandits.service.events import AnyEvent, Closed, Decided, VersionActivated, decision_key
from invariant_bandits.service.outcomes import Estimate, Stretches
from invariant_bandits.service.records import Record
from invariant_bandits.service.served import Served
from invariant_bandits.service.state import State

MOST_POINTS = 240
"""Points of the story of beliefs; every other one is dropped when there are more."""
MOST_MARKS = 20
MOST_ARMS = 50
LATEST = 12
"""Decisions, and settled decisions, that are shown."""


def versions_of(served: Served) -> list[dict[str, Any]]:
    """All versions of a model, the active one marked."""
    before = served.activations[-2] if len(served.activations) > 1 else None
    return [
        {
            "version": one.version,
            "time": one.time,
            "origin": one.origin,
            "note": one.note,
            "evaluation": one.evaluation,
            "active": one.version == served.version,
            "previous": one.version == before,
            "rounds": served.learners[one.version].rounds,
        }
        for one in served.versions.values()
    ]


def exploration_of(served: Served) -> dict[str, Any]:
    """What chance does and costs: the share of uniform chance, of other actions, and the reward it is expected to cost.

    `cost` is per decision, by the model's own expected rewards, over the `measured` decisions it was worked out for.
    """
    counts, rules = served.counts, served.configuration
    return {
        "floor": served.learner.floor_of(rules.floor) if rules.mode == "online" else 0.0,
        "share": counts.explored / counts.decisions if counts.decisions else None,
        "cost": counts.chance_cost / counts.chance_measured if counts.chance_measured else None,
        "measured": counts.chance_measured,
    }


def arms_of(served: Served) -> dict[str, Any]:
    """The arms that were chosen most, whether the registered ones are active, and how many there are."""
    registered = served.learner.arms
    known = registered or served.plays
    most = nlargest(MOST_ARMS, known, key=lambda label: served.plays.get(label, 0))
    return {
        "registered": {label: registered[label] for label in most if label in registered},
        "plays": {label: served.plays.get(label, 0) for label in most},
        "count": len(known),
    }


class Chapter:
    """What happened to one model since the service was started.

    Attributes
    ----------
    changed : bool
        Whether anything happened since it was last told.
    served : Served or None
        The model that was last told of; another one of its name where a whole state was taken over.
    """

    def __init__(self) -> None:
        self.changed = True
        self.served: Served | None = None
        self.stretches = Stretches()
        self.latest: deque[Decided] = deque(maxlen=LATEST)
        self.settlements: deque[tuple[Decided, Closed]] = deque(maxlen=LATEST)
        self.marks: deque[dict[str, Any]] = deque(maxlen=MOST_MARKS)
        self.points: list[dict[str, Any]] = []
        self._rung = False

    def take(self, event: AnyEvent, state: State) -> None:
        """Follow an event that the state has followed."""
        self.changed = True
        if isinstance(event, Decided):
            self.latest.append(event)
        elif isinstance(event, Closed):
            self._settle(event, state.records.find(decision_key(event.id, event.model)))
        elif isinstance(event, VersionActivated):
            self._mark("version", event.version)

    def _settle(self, event: Closed, record: Record | None) -> None:
        if record is None or record.decided is None:
            return
        self.settlements.append((record.decided, event))
        if event.value is not None:
            self.stretches.add(record.decided, event.value)

    def _mark(self, kind: str, words: str) -> None:
        self.marks.append({"kind": kind, "words": words, "settled": self.stretches.count, "time": time.time()})

    def believe(self, about: dict[str, Any]) -> None:
        """Add what the model believes now to the story."""
        rings = bool(about.get("alarm"))
        if rings and not self._rung:
            self._mark("alarm", "alarm")
        self._rung = rings
        settled = self.stretches.count
        point = {"settled": settled, "beliefs": about.get("beliefs")}
        if point["beliefs"] and (not self.points or self.points[-1] != point):
            self.points.append(point)
        if len(self.points) > MOST_POINTS:
            self.points = self.points[::2]  # an odd number: the first and the last one stay

    def told(self) -> dict[str, Any]:
        """All of it, plain values."""
        whole = self.stretches.all
        return {
            "settled": whole.count,
            "mean": _plain(whole.mean()),
            "uniform": _plain(whole.uniform()),
            "exploration_cost": _plain(whole.cost()),
            "stretches": self.stretches.told(),
            "points": list(self.points),
            "marks": [dict(one) for one in self.marks],
            "latest": [_shown(one) for one in reversed(self.latest)],
            "settlements": [_settled(one, closed) for one, closed in reversed(self.settlements)],
        }


class Story:
    """What every model believed over time, and how it fared, since the service was started."""

    def __init__(self) -> None:
        self.since = time.time()
        self._chapters: dict[str, Chapter] = {}
        self._about: dict[str, tuple[tuple[str, int], dict[str, Any]]] = {}
        self._told: dict[str, dict[str, Any]] = {}

    def take(self, event: AnyEvent, state: State) -> None:
        """Follow an event that the state has followed."""
        model = getattr(event, "model", None)
        if model is not None:
            self._chapters.setdefault(model, Chapter()).take(event, state)

    def __call__(self, state: State) -> dict[str, Any]:
        """The part of a view that tells of models; models to which nothing happened are as they were told before."""
        for name, served in state.models.items():
            chapter = self._chapters.setdefault(name, Chapter())
            if (chapter.changed or chapter.served is not served) and served.activations:
                chapter.changed, chapter.served = False, served
                self._told[name] = self._tell(served, chapter)
        return {"since": self.since, "models": dict(self._told)}

    def _tell(self, served: Served, chapter: Chapter) -> dict[str, Any]:
        about = self._about_of(served)
        chapter.believe(about)
        return {
            "version": served.version,
            "versions": versions_of(served),
            "counts": msgspec.to_builtins(served.counts),
            "waiting": len(served.waiting),
            "configuration": msgspec.to_builtins(served.configuration),
            "exploration": exploration_of(served),
            "arms": arms_of(served),
            "about": about,
            "story": chapter.told(),
        }

    def _about_of(self, served: Served) -> dict[str, Any]:
        """What the learner tells, asked again only when it has changed."""
        now = (served.version, served.learner.rounds)
        if served.name not in self._about or self._about[served.name][0] != now:
            self._about[served.name] = (now, served.learner.about())
        return self._about[served.name][1]


def _shown(event: Decided) -> dict[str, Any]:
    return {
        "id": event.id,
        "time": event.time,
        "action": event.labels[event.place] if event.labels else event.place,
        "offered": len(event.propensities),
        "propensity": event.propensities[event.place],
        "explored": event.explored,
    }


def _settled(one: Decided, closed: Closed) -> dict[str, Any]:
    return {**_shown(one), "value": closed.value, "why": closed.why, "after": closed.time - one.time}


def _plain(estimate: Estimate | None) -> dict[str, float] | None:
    return None if estimate is None else {"value": estimate.value, "error": estimate.error}
