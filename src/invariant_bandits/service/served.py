"""One served model: its versions, its rules, its counters. Changed by events only."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import msgspec

from invariant_bandits.checks import InputError
from invariant_bandits.service.configuration import Configuration
from invariant_bandits.service.events import VersionAdded
from invariant_bandits.service.learners.base import Learner, learner_from_bytes
from invariant_bandits.service.waiting import Waiting

MOST_COUNTED = 10_000
"""Plays of so many arms are counted one by one."""
OTHERS = "(others)"

MOST_STEPS_BACK = 10
"""So many activated versions can be returned to, one by one, where new ones come every night."""


class Counts(msgspec.Struct):
    """What happened to a model, in numbers.

    Parameters
    ----------
    decisions, explored : int
        Decisions, and those in which chance chose another action than the most probable one.
    rewards, late, unknown : int
        Rewards that were joined; came after the decision was settled; came without a decision (of the default model).
    learned, defaulted, unlearned, refused : int
        Decisions learned; of these with the default reward; settled without being learned; not learned because the
        policy refused the round.
    chance_measured, chance_cost : int, float
        Decisions whose expected loss by chance was worked out, and the sum of these losses.
    """

    decisions: int = 0
    explored: int = 0
    rewards: int = 0
    late: int = 0
    unknown: int = 0
    learned: int = 0
    defaulted: int = 0
    unlearned: int = 0
    refused: int = 0
    reward_sum: float = 0.0
    chance_measured: int = 0
    chance_cost: float = 0.0


@dataclass
class Served:
    """A named model.

    Parameters
    ----------
    name : str
    configuration : Configuration
    versions : dict of str to VersionAdded
        In the order in which they came.
    learners : dict of str to Learner
        Their states; only that of the active version changes.
    activations : list of str
        Versions in the order in which they were activated, the active one last.
    waiting : Waiting
        Decisions whose wait has not ended.
    plays : dict of str to int
        How often each arm was played; of at most MOST_COUNTED arms, the others together.
    kept : dict of str to mapping
        What doors want to find again, see the event Kept.
    """

    name: str
    configuration: Configuration = field(default_factory=Configuration)
    versions: dict[str, VersionAdded] = field(default_factory=dict)
    learners: dict[str, Learner] = field(default_factory=dict)
    activations: list[str] = field(default_factory=list)
    waiting: Waiting = field(default_factory=Waiting)
    counts: Counts = field(default_factory=Counts)
    plays: dict[str, int] = field(default_factory=dict)
    kept: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def version(self) -> str:
        """The active one."""
        if not self.activations:
            raise InputError(f"model: {self.name!r} has no active version")
        return self.activations[-1]

    @property
    def learner(self) -> Learner:
        """Of the active version."""
        return self.learners[self.version]

    def count_play(self, label: str) -> None:
        """One more decision for an arm."""
        if label not in self.plays and len(self.plays) >= MOST_COUNTED:
            label = OTHERS
        self.plays[label] = self.plays.get(label, 0) + 1

    def previous(self) -> str:
        """The version before the active one."""
        if len(self.activations) < 2:
            raise InputError(f"model: {self.name!r} has no earlier version to return to")
        return self.activations[-2]

    def forget_old_versions(self, newest: str) -> None:
        """Let go of versions from background learning that `roll back` will not come to, all but the newest."""
        self.activations = self.activations[-MOST_STEPS_BACK:]
        for name in [name for name, one in self.versions.items() if one.origin == "background"]:
            if name != newest and name not in self.activations:
                del self.versions[name], self.learners[name]

    def state_hash(self) -> str:
        """SHA-256 over everything that decisions and learning depend on, in hexadecimal digits."""
        content = hashlib.sha256(self.version.encode())
        content.update(msgspec.json.encode([self.configuration, self.counts, list(self.waiting), self.activations]))
        for name, learner in self.learners.items():
            content.update(name.encode() + hashlib.sha256(learner.to_bytes()).digest())
        return content.hexdigest()

    def to_plain(self) -> dict[str, Any]:
        """The whole state, for a snapshot."""
        return {
            "name": self.name,
            "configuration": msgspec.to_builtins(self.configuration),
            "versions": [msgspec.msgpack.encode(one) for one in self.versions.values()],
            "learners": {name: [one.kind, one.to_bytes()] for name, one in self.learners.items()},
            "activations": self.activations,
            "waiting": list(self.waiting),
            "counts": msgspec.to_builtins(self.counts),
            "plays": self.plays,
            "kept": self.kept,
        }

    @classmethod
    def from_plain(cls, told: dict[str, Any]) -> Served:
        """The model with this state."""
        versions = [msgspec.msgpack.decode(one, type=VersionAdded) for one in told["versions"]]
        learners = told["learners"].items()
        return cls(
            told["name"],
            msgspec.convert(told["configuration"], Configuration),
            {one.version: one for one in versions},
            {name: learner_from_bytes(kind, content, f"version {name}") for name, (kind, content) in learners},
            list(told["activations"]),
            Waiting((float(end), str(id)) for end, id in told["waiting"]),
            msgspec.convert(told["counts"], Counts),
            dict(told["plays"]),
            dict(told.get("kept", {})),
        )
