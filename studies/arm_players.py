"""Who plays labelled arms in the study: AutoISD on two scales, and what people use today."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.policies.auto import AutoISD
from invariant_bandits.policies.belief import chance
from invariant_bandits.policies.past import Past

CONFIDENCE = 0.01
REFIT_EVERY = 500
NEWTON_STEPS = 6
SMALLEST = 1e-3


@dataclass(frozen=True)
class Auto:
    """AutoISD over arms, linear in the rewards or in their log-odds."""

    link: str = "logit"

    def __call__(self, past: Past) -> AutoISD:
        """A fresh policy."""
        logs: Any = past.logs
        return AutoISD.from_arms(logs.statistics(self.link), confidence=CONFIDENCE, horizon=past.horizon)


class _ByArm:
    """A policy that keeps a model per arm; actions have features e_a ⊗ z."""

    def __init__(self, arms: int, width: int) -> None:
        self.arms, self.width = arms, width
        self.dim = arms * width

    def taken_apart(self, features: Any) -> tuple[np.ndarray[Any, Any], Array]:
        """Arms (K,) and contexts (K, d) of features (K, p)."""
        blocks = np.asarray(features).reshape(-1, self.arms, self.width)
        arms = blocks[:, :, 0].argmax(axis=1)
        return arms, blocks[np.arange(len(blocks)), arms]


class DisjointArms(_ByArm):
    """LinUCB with a ridge regression per arm (Li et al. 2010): mean + exploration · α√(zᵀA_a⁻¹z), λ = 1."""

    def __init__(self, arms: int, width: int, exploration: float) -> None:
        super().__init__(arms, width)
        self.inverse = np.tile(np.eye(width), (arms, 1, 1))
        self.sums = np.zeros((arms, width))
        self.factor = exploration * (1.0 + np.sqrt(np.log(2.0 / CONFIDENCE) / 2.0))

    def warmed(self, contexts: Array, arms: Any, rewards: Array) -> DisjointArms:
        """After all rounds of a log."""
        for arm in range(self.arms):
            z = contexts[arms == arm]
            self.inverse[arm] = np.linalg.inv(np.eye(self.width) + z.T @ z)
            self.sums[arm] = z.T @ rewards[arms == arm]
        return self

    def select(self, features: Any) -> int:
        """Index of the largest upper confidence bound."""
        arms, z = self.taken_apart(features)
        known = np.einsum("kde,ke->kd", self.inverse[arms], z)
        mean = (known * self.sums[arms]).sum(axis=1)
        width = np.sqrt(np.maximum((known * z).sum(axis=1), 0.0))
        return int(np.argmax(mean + self.factor * width))

    def update(self, features: Any, reward: float, **_: Any) -> None:
        """One round of an arm, by Sherman and Morrison."""
        arms, contexts = self.taken_apart(features)
        arm, z = int(arms[0]), contexts[0]
        known = self.inverse[arm] @ z
        self.inverse[arm] -= np.outer(known, known) / (1.0 + z @ known)
        self.sums[arm] += reward * z


class LogisticRefit(_ByArm):
    """A logistic regression per arm, ridge 1 towards that of all arms, fitted every 500 rounds; plays the best."""

    def __init__(self, arms: int, contexts: Array, played: Any, rewards: Array) -> None:
        super().__init__(arms, contexts.shape[1])
        self.rows = [(contexts, np.asarray(played), rewards)]
        self.fresh: list[tuple[Array, int, float]] = []
        self.theta = np.zeros((arms, self.width))
        self.all = np.zeros(self.width)
        self._fit()

    def select(self, features: Any) -> int:
        """Index of the largest log-odds."""
        arms, z = self.taken_apart(features)
        return int(np.argmax((self.theta[arms] * z).sum(axis=1)))

    def update(self, features: Any, reward: float, **_: Any) -> None:
        """Keep the round; every 500th, fit again."""
        arms, contexts = self.taken_apart(features)
        self.fresh.append((contexts[0].copy(), int(arms[0]), float(reward)))
        if len(self.fresh) == REFIT_EVERY:
            z, arm, r = zip(*self.fresh, strict=True)
            self.rows.append((np.stack(z), np.array(arm), np.array(r)))
            self.fresh = []
            self._fit()

    def _fit(self) -> None:
        z, played, r = (np.concatenate(part) for part in zip(*self.rows, strict=True))
        self.all = _logistic(z, r, self.all, np.zeros(self.width))
        for arm in range(self.arms):
            own = played == arm
            self.theta[arm] = _logistic(z[own], r[own], self.theta[arm], self.all)


def _logistic(z: Array, rewards: Array, start: Array, center: Array) -> Array:
    """Coefficients of a logistic regression with ridge 1 towards `center`, by Newton's method."""
    theta = start
    for _ in range(NEWTON_STEPS):
        expected = chance(z @ theta)
        spread = np.maximum(expected * (1.0 - expected), SMALLEST)
        slope = z.T @ (rewards - expected) - (theta - center)
        step = np.linalg.solve(z.T @ (z * spread[:, None]) + np.eye(len(theta)), slope)
        theta = theta + step * min(1.0, 2.0 / max(float(np.abs(step).max()), 1e-12))
        if np.abs(step).max() < SMALLEST:
            break
    return np.asarray(theta)


@dataclass(frozen=True)
class Disjoint:
    """Disjoint LinUCB, cold or warm on all logged rounds."""

    warm: bool = False
    exploration: float = 0.25

    def __call__(self, past: Past) -> DisjointArms:
        """A fresh policy."""
        logs: Any = past.logs
        policy = DisjointArms(logs.count, logs.contexts.shape[1], self.exploration)
        return policy.warmed(logs.contexts, logs.arms, logs.rewards) if self.warm else policy


@dataclass(frozen=True)
class Refit:
    """Logistic regression fitted again and again, on all logged rounds or on those of the last months."""

    months: int | None = None

    def __call__(self, past: Past) -> LogisticRefit:
        """A fresh policy."""
        logs: Any = past.logs
        kept = np.ones(len(logs.rewards), dtype=bool)
        if self.months is not None:
            kept = logs.windows > logs.windows.max() - self.months
        return LogisticRefit(logs.count, logs.contexts[kept], logs.arms[kept], logs.rewards[kept])
