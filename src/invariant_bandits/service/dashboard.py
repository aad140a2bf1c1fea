"""What pages and metrics see: plain values made by the engine's thread now and then, so that looking costs no lock."""

from __future__ import annotations

import math
import time
from collections import deque
from heapq import nlargest
from operator import add
from typing import Any, NamedTuple

import msgspec

from invariant_bandits.service.events import AnyEvent, Closed, Decided, VersionActivated, decision_key
from invariant_bandits.service.state import Record, ServedModel, State

MOST_STRETCHES = 160
FIRST_LENGTH = 5
"""Decisions per stretch at the beginning; neighbours are joined as the story gets longer."""
FEWEST = 30
"""Decisions, and effective decisions of the other policy, before a value is told."""
LEAST_CHANCE = 1e-12
TERMS = 15


class Estimate(NamedTuple):
    """A value and its standard error."""

    value: float
    error: float


class Sums:
    """Sums over decisions: n, r, r², w, wr, w²·(1, r, r²), g·(1, r, r²), g²·(1, r, r²), and unsupported ones.

    Plain numbers: they are added up in the engine's thread, a dozen at a time, which arrays would take longer for.

    Parameters
    ----------
    values : list of 15 floats, optional
    """

    def __init__(self, values: list[float] | None = None) -> None:
        self.values = [0.0] * TERMS if values is None else values

    def add(self, decided: Decided, reward: float) -> None:
        """One more settled decision."""
        self.values = list(map(add, self.values, _terms(decided.propensities, decided.place, reward)))

    def __add__(self, other: Sums) -> Sums:
        return Sums(list(map(add, self.values, other.values)))

    @property
    def count(self) -> int:
        """Decisions."""
        return int(self.values[0])

    @property
    def total(self) -> float:
        """Sum of rewards."""
        return self.values[1]

    @property
    def squares(self) -> float:
        """Sum of squared rewards."""
        return self.values[2]

    def mean(self) -> Estimate | None:
        """Mean reward per decision."""
        n, r, r2 = self.values[:3]
        if n < 2:
            return None
        return Estimate(r / n, math.sqrt(max(r2 - r * r / n, 0.0) / (n - 1.0) / n))

    def uniform(self) -> Estimate | None:
        """What uniform play among the same offers would have earned; None if too little tells of it."""
        n, w, wr, w2, w2r, w2r2 = self.values[0], *self.values[3:8]
        if self.values[14] or n < FEWEST or w * w < FEWEST * w2:
            return None
        value, effective = wr / w, w * w / w2
        spread = max(w2r2 - 2.0 * value * w2r + value * value * w2, 0.0) * effective / (effective - 2.0)
        return Estimate(value, math.sqrt(spread) / w)

    def cost(self) -> Estimate | None:
        """Reward per decision that is given up because chance chooses now and then; negative if chance did better."""
        n, r, r2 = self.values[:3]
        g, gr, gr2, g2, g2r, g2r2 = self.values[8:14]
        if n < FEWEST or g * g < FEWEST * g2:
            return None
        best, mean, scale = gr / g, r / n, g / n
        own = (g2r2 - 2.0 * best * g2r + best * best * g2) / scale**2
        both = (gr2 - (best + mean) * gr + best * mean * g) / scale
        spread = max(own - 2.0 * both + r2 - n * mean * mean, 0.0)
        return Estimate(best - mean, math.sqrt(spread) / n)


def _terms(propensities: list[float], place: int, reward: float) -> tuple[float, ...]:
    chance, most, square = max(propensities[place], LEAST_CHANCE), max(propensities), reward * reward
    w = 1.0 / (len(propensities) * chance)
    g = 1.0 / chance if chance >= most else 0.0
    w2, g2, unsupported = w * w, g * g, float(min(propensities) <= 0.0)
    of_uniform = (w, w * reward, w2, w2 * reward, w2 * square)
    of_best = (g, g * reward, g * square, g2, g2 * reward, g2 * square)
    return (1.0, reward, square, *of_uniform, *of_best, unsupported)


class Stretches:
    """Sums over stretches of decisions, at most 160 of equal length, that together tell everything since the start."""

    def __init__(self) -> None:
        self.length = FIRST_LENGTH
        self.done: list[Sums] = []
        self.last = Sums()
        self._whole = Sums()

    @property
    def all(self) -> Sums:
        """Of all stretches together."""
        return self._whole + self.last

    @property
    def count(self) -> int:
        """SettledDecision decisions."""
        return self._whole.count + self.last.count

    def add(self, decided: Decided, reward: float) -> None:
        """One more settled decision."""
        self.last.add(decided, reward)
        if self.last.count >= self.length:
            self.done.append(self.last)
            self._whole += self.last
            self.last = Sums()
        if len(self.done) >= MOST_STRETCHES:
            self.done = [one + other for one, other in zip(self.done[::2], self.done[1::2], strict=True)]
            self.length *= 2

    def told(self) -> list[tuple[int, float, float]]:
        """Number, sum and sum of squares of the rewards of every stretch, the one under way last."""
        return [(one.count, one.total, one.squares) for one in (*self.done, self.last) if one.count]


MOST_POINTS = 240
"""Points of the story of beliefs; every other one is dropped when there are more."""
MOST_MARKS = 20
MOST_ARMS = 50
LATEST = 12
"""Decisions, and settled decisions, that are shown."""


def versions_of(served: ServedModel) -> list[dict[str, Any]]:
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


def exploration_of(served: ServedModel) -> dict[str, Any]:
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


def arms_of(served: ServedModel) -> dict[str, Any]:
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
    served : ServedModel or None
        The model that was last told of; another one of its name where a whole state was taken over.
    """

    def __init__(self) -> None:
        self.changed = True
        self.served: ServedModel | None = None
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

    def _tell(self, served: ServedModel, chapter: Chapter) -> dict[str, Any]:
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

    def _about_of(self, served: ServedModel) -> dict[str, Any]:
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
