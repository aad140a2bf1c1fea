"""What the page and the metrics show: plain values that the engine's thread makes now and then, so
reading them needs
no lock."""

from __future__ import annotations

import math
import time
from collections import deque
from heapq import nlargest
from operator import add
from typing import Any

import msgspec

from invariant_bandits.service.events import AnyEvent, Closed, Decided, VersionActivated
from invariant_bandits.service.state import ServedModel, State

MOST_SEGMENTS = 160
FIRST_LENGTH = 5
"""Decisions per segment at the beginning; neighbours are joined as there get to be more."""
FEWEST = 30
"""Decisions, and effective decisions of the other policy, before a value is shown."""
LEAST_CHANCE = 1e-12
TERMS = 15
MOST_POINTS = 240
"""Points of the curve of beliefs; every other one is dropped when there are more."""
MOST_MARKS = 20
MOST_ARMS = 50
LATEST = 12
"""Decisions, and settled decisions, that are shown."""

Shown = dict[str, Any]


class RewardSums:
    """Sums over decisions: n, r, r², w, wr, w²·(1, r, r²), g·(1, r, r²), g²·(1, r, r²), and unsupported ones.

    w is the importance weight of uniform play, g that of always playing the most probable action. They
    are plain numbers: the engine's thread adds a dozen at a time, which arrays would take longer for.

    Parameters
    ----------
    values : list of 15 floats, optional
    """

    def __init__(self, values: list[float] | None = None) -> None:
        self.values = values or [0.0] * TERMS

    def add(self, decided: Decided, reward: float) -> None:
        """Add a settled decision."""
        propensities, square = decided.propensities, reward * reward
        chance = max(propensities[decided.place], LEAST_CHANCE)
        w = 1.0 / (len(propensities) * chance)
        g = 1.0 / chance if chance >= max(propensities) else 0.0
        w2, g2, unsupported = w * w, g * g, float(min(propensities) <= 0.0)
        of_uniform = (w, w * reward, w2, w2 * reward, w2 * square)
        of_best = (g, g * reward, g * square, g2, g2 * reward, g2 * square)
        self.values = list(map(add, self.values, (1.0, reward, square, *of_uniform, *of_best, unsupported)))

    def __add__(self, other: RewardSums) -> RewardSums:
        return RewardSums(list(map(add, self.values, other.values)))

    @property
    def count(self) -> int:
        """Decisions."""
        return int(self.values[0])

    def mean(self) -> Shown | None:
        """Return the mean reward per decision, and its standard error."""
        n, r, r2 = self.values[:3]
        if n < 2:
            return None
        return {"value": r / n, "error": math.sqrt(max(r2 - r * r / n, 0.0) / (n - 1.0) / n)}

    def uniform(self) -> Shown | None:
        """Return what uniform play among the same offers would have earned by SNIPS; None if there
        is too little.
        """
        n, w, wr, w2, w2r, w2r2 = self.values[0], *self.values[3:8]
        if self.values[14] or n < FEWEST or w * w < FEWEST * w2:
            return None
        value, effective = wr / w, w * w / w2
        spread = max(w2r2 - 2.0 * value * w2r + value * value * w2, 0.0) * effective / (effective - 2.0)
        return {"value": value, "error": math.sqrt(spread) / w}

    def cost(self) -> Shown | None:
        """Return the reward per decision that exploration costs; it is negative if chance did better."""
        n, r, r2 = self.values[:3]
        g, gr, gr2, g2, g2r, g2r2 = self.values[8:14]
        if n < FEWEST or g * g < FEWEST * g2:
            return None
        best, mean, scale = gr / g, r / n, g / n
        own = (g2r2 - 2.0 * best * g2r + best * best * g2) / scale**2
        both = (gr2 - (best + mean) * gr + best * mean * g) / scale
        spread = max(own - 2.0 * both + r2 - n * mean * mean, 0.0)
        return {"value": best - mean, "error": math.sqrt(spread) / n}


class Segments:
    """Sums over segments of decisions, at most 160 of equal length, that together cover everything
    since the start.
    """

    def __init__(self) -> None:
        self.length = FIRST_LENGTH
        self._complete: list[RewardSums] = []
        self._last, self._whole = RewardSums(), RewardSums()

    @property
    def all(self) -> RewardSums:
        """Of all segments together."""
        return self._whole + self._last

    def add(self, decided: Decided, reward: float) -> None:
        """Add a settled decision."""
        self._last.add(decided, reward)
        if self._last.count >= self.length:
            self._complete.append(self._last)
            self._whole += self._last
            self._last = RewardSums()
        if len(self._complete) >= MOST_SEGMENTS:
            pairs = zip(self._complete[::2], self._complete[1::2], strict=True)
            self._complete = [left + right for left, right in pairs]
            self.length *= 2

    def sums(self) -> list[tuple[int, float, float]]:
        """Return number, sum and sum of squares of the rewards of every segment, the incomplete one last."""
        parts = [sums for sums in (*self._complete, self._last) if sums.count]
        return [(sums.count, sums.values[1], sums.values[2]) for sums in parts]


def versions_of(served: ServedModel) -> list[Shown]:
    """Return all versions of a model, the active one marked."""
    before = served.activations[-2] if len(served.activations) > 1 else None
    return [
        {
            **added.show("version", "time", "origin", "note", "evaluation"),
            "active": added.version == served.version,
            "previous": added.version == before,
            "rounds": served.learners[added.version].rounds,
        }
        for added in served.versions.values()
    ]


def exploration_of(served: ServedModel) -> Shown:
    """Return the share of uniform chance, the share of other actions than the best, and their expected cost.

    `cost` is per decision, by the model's own expected rewards, over the `measured` decisions it was
    computed for.
    """
    counts, rules = served.counts, served.configuration
    return {
        "floor": served.learner.floor_of(rules.floor) if rules.mode == "online" else 0.0,
        "share": counts.explored / counts.decisions if counts.decisions else None,
        "cost": counts.chance_cost / counts.chance_measured if counts.chance_measured else None,
        "measured": counts.chance_measured,
    }


def arms_of(served: ServedModel) -> Shown:
    """Return the arms that were chosen most, whether the registered ones are active, and how many
    there are.
    """
    registered = served.learner.arms
    known = registered or served.plays
    most = nlargest(MOST_ARMS, known, key=lambda label: served.plays.get(label, 0))
    return {
        "registered": {label: registered[label] for label in most if label in registered},
        "plays": {label: served.plays.get(label, 0) for label in most},
        "count": len(known),
    }


class ModelHistory:
    """What happened to one model since the service was started.

    Attributes
    ----------
    has_changed : bool
        Whether anything happened since it was last shown.
    served : ServedModel or None
        The model that was last shown; another one of its name where a whole state was taken over.
    """

    def __init__(self) -> None:
        self.has_changed = True
        self.served: ServedModel | None = None
        self._segments = Segments()
        self._latest: deque[Shown] = deque(maxlen=LATEST)
        self._settlements: deque[Shown] = deque(maxlen=LATEST)
        self._marks: deque[Shown] = deque(maxlen=MOST_MARKS)
        self._points: list[Shown] = []
        self._in_alarm = False
        self._beliefs: tuple[tuple[str, int], Shown] = (("", -1), {})

    def take(self, event: AnyEvent, state: State) -> None:
        """Follow an event that the state has followed."""
        self.has_changed = True
        if isinstance(event, Decided):
            self._latest.append(_shown(event))
        elif isinstance(event, VersionActivated):
            self._mark("version", event.version)
        elif isinstance(event, Closed):
            record = state.records.of(event)
            if record is not None and record.decided is not None:
                outcome = {**event.show("value", "why"), "after": event.time - record.decided.time}
                self._settlements.append({**_shown(record.decided), **outcome})
                if event.value is not None:
                    self._segments.add(record.decided, event.value)

    def _mark(self, kind: str, words: str) -> None:
        settled = self._segments.all.count
        self._marks.append({"kind": kind, "words": words, "settled": settled, "time": time.time()})

    def show(self, served: ServedModel) -> Shown:
        """Return everything that is shown of a model, plain values."""
        self.has_changed, self.served = False, served
        about = self._about(served)
        self._follow_beliefs(about)
        whole = self._segments.all
        return {
            "version": served.version,
            "versions": versions_of(served),
            "counts": msgspec.to_builtins(served.counts),
            "waiting": len(served.waiting),
            "configuration": msgspec.to_builtins(served.configuration),
            "exploration": exploration_of(served),
            "arms": arms_of(served),
            "about": about,
            "story": {
                "settled": whole.count,
                "mean": whole.mean(),
                "uniform": whole.uniform(),
                "exploration_cost": whole.cost(),
                "stretches": self._segments.sums(),
                "points": list(self._points),
                "marks": list(self._marks),
                "latest": list(reversed(self._latest)),
                "settlements": list(reversed(self._settlements)),
            },
        }

    def _about(self, served: ServedModel) -> Shown:
        """Return what the learner says about itself, computed again only when it has learned."""
        learned = served.version, served.learner.rounds
        if self._beliefs[0] != learned:
            self._beliefs = learned, served.learner.about()
        return self._beliefs[1]

    def _follow_beliefs(self, about: Shown) -> None:
        """Add what the model believes to the curve, and a mark if its alarm begins."""
        in_alarm = bool(about.get("alarm"))
        if in_alarm and not self._in_alarm:
            self._mark("alarm", "alarm")
        self._in_alarm = in_alarm
        point = {"settled": self._segments.all.count, "beliefs": about.get("beliefs")}
        if point["beliefs"] and (not self._points or self._points[-1] != point):
            self._points.append(point)
        if len(self._points) > MOST_POINTS:
            self._points = self._points[::2]  # an odd number: the first and the last one stay


class Dashboard:
    """What every model believed over time, and how it fared, since the service was started."""

    def __init__(self) -> None:
        self.since = time.time()
        self._histories: dict[str, ModelHistory] = {}
        self._shown: dict[str, Shown] = {}

    def take(self, event: AnyEvent, state: State) -> None:
        """Follow an event that the state has followed."""
        model = getattr(event, "model", None)
        if model is not None:
            self._histories.setdefault(model, ModelHistory()).take(event, state)

    def __call__(self, state: State) -> Shown:
        """Return the part of a view that shows models; a model to which nothing happened is shown
        as before.
        """
        for name, served in state.models.items():
            history = self._histories.setdefault(name, ModelHistory())
            if (history.has_changed or history.served is not served) and served.activations:
                self._shown[name] = history.show(served)
        return {"since": self.since, "models": dict(self._shown)}


def _shown(event: Decided) -> Shown:
    shown = event.show("id", "time", "action", "propensity", "explored")
    return {**shown, "offered": len(event.propensities)}
