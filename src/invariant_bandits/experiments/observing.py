"""What is noted of a policy beside its regret: how good its split is, and whether its widths cover the truth."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.policies.base import Policy
from invariant_bandits.simulation.episodes import Episode
from invariant_bandits.simulation.loop import Observer


def estimated_split(policy: Any, episode: Episode) -> dict[str, float]:
    """How the policy's split compares with the true one; nothing for a policy that has none."""
    split = getattr(policy, "split", None)
    if split is None:
        return {}
    truth = episode.logs.split
    return {
        "right split": float(split.invariant_dim == truth.invariant_dim),
        "invariant dimensions": float(split.invariant_dim),
        "projection error": float(split.distance(truth)),
        "component error": float(np.linalg.norm(np.asarray(policy.component) - episode.logs.component)),
    }


class Probe(ABC):
    """Plays in a policy's place and compares it with the truth in every round before it decides."""

    def __init__(self, policy: Any, episode: Episode) -> None:
        self.policy = policy
        self.means: Array = episode.means
        self.rounds = 0

    @abstractmethod
    def compare(self, features: Any, means: Array) -> None:
        """Note how the policy judges the offered actions (K, p), whose expected rewards are `means` (K,)."""

    def select(self, features: Any) -> int:
        """The policy's own choice."""
        self.compare(features, self.means[self.rounds])
        self.rounds += 1
        return int(self.policy.select(features))

    def update(self, features: Any, reward: float, *, offered: Any = None, action: int | None = None) -> None:
        """As the policy."""
        self.policy.update(features, reward, offered=offered, action=action)


class CoverageProbe(Probe):
    """Whether any offered action has its true mean outside mean ± width."""

    uncovered = 0

    def compare(self, features: Any, means: Array) -> None:
        """Count the rounds in which one has."""
        scores = self.policy.scores(features)
        self.uncovered += bool((np.abs(scores.mean - means) > scores.width).any())


class Coverage:
    """Share of rounds, and whether all rounds, in which mean ± width held the true means of all offered actions."""

    def watch(self, policy: Policy, episode: Episode) -> CoverageProbe:
        """What plays in the policy's place."""
        return CoverageProbe(policy, episode)

    def __call__(self, probe: CoverageProbe, episode: Episode) -> dict[str, float]:
        """What the probe has seen."""
        return {"covered": float(probe.uncovered == 0), "rounds covered": 1.0 - probe.uncovered / probe.rounds}


OBSERVERS: Mapping[str, Observer] = {
    "split": estimated_split,
    "coverage": Coverage(),
}
