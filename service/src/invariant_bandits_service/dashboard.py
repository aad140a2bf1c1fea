"""What the page and the metrics show, as plain values.

The engine's thread makes them now and then, so reading them needs no lock.
"""

from __future__ import annotations

import time
from heapq import nlargest

import msgspec

from invariant_bandits_service.state import ServedModel, State
from invariant_bandits_service.timeline import Shown

MOST_ARMS = 50
"""Arms that the page lists, those that were chosen most."""


def versions_of(served: ServedModel) -> list[Shown]:
    """Return all versions of a model, the active one marked."""
    return [
        {
            **added.show("version", "time", "origin", "note", "evaluation"),
            "active": added.version == served.version,
            "previous": [added.version] == served.activations[-2:-1],
            "rounds": served.learners[added.version].rounds,
        }
        for added in served.versions.values()
    ]


def exploration_of(served: ServedModel) -> Shown:
    """Return the share of uniform chance, the share of other actions than the best, and their expected cost.

    `cost` is per decision, by the model's own expected rewards, over the `measured` decisions it was
    computed for.
    """
    counts = served.counts
    rules = served.configuration
    floor = 0.0
    share = cost = None
    if rules.mode == "online":
        floor = served.learner.floor_of(rules.floor)
    if counts.decisions:
        share = counts.explored / counts.decisions
    if counts.chance_measured:
        cost = counts.chance_cost / counts.chance_measured
    return {
        "floor": floor,
        "share": share,
        "cost": cost,
        "measured": counts.chance_measured,
    }


def summary_of(served: ServedModel) -> Shown:
    """Return what the page and `GET /v1/model` both say of a model."""
    return {
        "version": served.version,
        "counts": msgspec.to_builtins(served.counts),
        "waiting": len(served.waiting),
        "configuration": msgspec.to_builtins(served.configuration),
        "exploration": exploration_of(served),
        "holdout": served.timeline.holdout.uplift(served.configuration),
    }


def arms_of(served: ServedModel) -> Shown:
    """Return the arms that were chosen most, and how many there are.

    Of registered arms it says whether they are active.
    """
    registered = served.learner.arms
    known = registered or served.plays
    most = nlargest(MOST_ARMS, known, key=lambda label: served.plays.get(label, 0))
    return {
        "registered": {
            label: registered[label] for label in most if label in registered
        },
        "plays": {label: served.plays.get(label, 0) for label in most},
        "count": len(known),
    }


def show(served: ServedModel) -> Shown:
    """Return everything that is shown of a model, plain values."""
    return {
        **summary_of(served),
        "versions": versions_of(served),
        "arms": arms_of(served),
        "about": served.learner.about(),
        "timeline": served.timeline.show(),
    }


class Dashboard:
    """What is shown of every model; one to which nothing happened is shown as before."""

    def __init__(self) -> None:
        self.since = time.time()
        self._shown: dict[str, tuple[ServedModel, Shown]] = {}

    def __call__(self, state: State) -> Shown:
        """Return the part of a view that shows models."""
        for name in self._shown.keys() - state.models.keys():
            del self._shown[name]
        for name, served in state.models.items():
            known = self._shown.get(name)
            if served.activations and (
                known is None or known[0] is not served or name in state.changed
            ):
                self._shown[name] = served, show(served)
        state.changed.clear()
        return {
            "since": self.since,
            "models": {name: shown for name, (_, shown) in self._shown.items()},
        }
