"""What pages and metrics see: plain values made by the engine's thread now and then, so that looking costs no lock."""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec

from invariant_bandits.service.served import Served
from invariant_bandits.service.state import State

LONGEST_STORY = 720
"""Points of the story of beliefs that are kept."""


def versions_of(served: Served) -> list[dict[str, Any]]:
    """All versions of a model, the active one marked."""
    before = served.activations[-2] if len(served.activations) > 1 else None
    return [
        {
            "version": one.version,
            "time": one.time,
            "origin": one.origin,
            "note": one.note,
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


class Story:
    """What every model believed over time, and how it fared."""

    def __init__(self) -> None:
        self._points: dict[str, deque[dict[str, Any]]] = {}
        self._about: dict[str, tuple[tuple[str, int], dict[str, Any]]] = {}

    def __call__(self, state: State) -> dict[str, Any]:
        """The part of a view that tells of models."""
        return {"models": {name: self._told(served) for name, served in state.models.items()}}

    def _told(self, served: Served) -> dict[str, Any]:
        counts = msgspec.to_builtins(served.counts)
        about = self._about_of(served)
        points = self._points.setdefault(served.name, deque(maxlen=LONGEST_STORY))
        if not points or points[-1]["decisions"] != counts["decisions"] or points[-1]["learned"] != counts["learned"]:
            points.append(
                {
                    "decisions": counts["decisions"],
                    "learned": counts["learned"],
                    "reward_sum": counts["reward_sum"],
                    "beliefs": about.get("beliefs", {}),
                }
            )
        return {
            "version": served.version,
            "versions": versions_of(served),
            "counts": counts,
            "waiting": len(served.waiting),
            "configuration": msgspec.to_builtins(served.configuration),
            "exploration": exploration_of(served),
            "arms": {"registered": served.learner.arms, "plays": dict(served.plays)},
            "about": about,
            "story": list(points),
        }

    def _about_of(self, served: Served) -> dict[str, Any]:
        """What the learner tells, asked again only when it has changed."""
        now = (served.version, served.learner.rounds)
        if served.name not in self._about or self._about[served.name][0] != now:
            self._about[served.name] = (now, served.learner.about())
        return self._about[served.name][1]
