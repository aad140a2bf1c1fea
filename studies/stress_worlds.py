"""What the stress study plays: worlds in which one thing is not as the logs say, arms that never change, and rivals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.experiments.cells import Probe
from invariant_bandits.experiments.claims import Goal, mean_at_most, worst_at_most
from invariant_bandits.policies.linear import LinUCB
from invariant_bandits.policies.memory import FOREVER, Discount, Memory
from invariant_bandits.policies.past import Past
from invariant_bandits.policies.registry import Contender, Maker
from invariant_bandits.simulation.fixed_arms import FixedArms
from invariant_bandits.simulation.loop import Environment
from invariant_bandits.simulation.stress import StressEpisodes

AUTO = "AutoISD"
LINUCB, LINUCB_3, LINUCB_1 = "LinUCB", "LinUCB 0.3", "LinUCB 0.1"
WARM, WARM_1, WARM_D = "warm", "warm 0.1", "warm D 0.99, 0.1"
CONFIDENCE = 0.01


@dataclass(frozen=True)
class World:
    """One environment, its horizon, and how many repetitions it gets at least."""

    name: str
    environment: Environment
    horizon: int = 1000
    at_least: int = 0


class WithBaseline:
    """A linear policy over the features and a constant one: linear policies have no intercept of their own."""

    def __init__(self, policy: LinUCB) -> None:
        self.policy = policy
        self.dim = policy.dim - 1

    def select(self, features: Any) -> int:
        """As the policy."""
        return self.policy.select(np.hstack([features, np.ones((len(features), 1))]))

    def update(self, features: Any, reward: float, **_: Any) -> None:
        """As the policy."""
        self.policy.update(np.append(features, 1.0), float(reward))


@dataclass(frozen=True)
class Linear:
    """LinUCB with a constant feature, cold or warm on all logged rounds."""

    exploration: float = 1.0
    warm: bool = False
    memory: Memory = FOREVER

    def __call__(self, past: Past) -> WithBaseline:
        """A fresh policy."""
        inner = LinUCB(past.dim + 1, exploration=self.exploration, memory=self.memory, confidence=CONFIDENCE)
        policy = WithBaseline(inner)
        if self.warm and past.logs is not None:
            for features, reward in zip(past.logs.features, past.logs.rewards, strict=True):
                policy.update(features, float(reward))
        return policy


PLAYERS: Mapping[str, Maker] = {
    LINUCB: Linear(),
    LINUCB_3: Linear(0.3),
    LINUCB_1: Linear(0.1),
    WARM: Linear(1.0, warm=True),
    WARM_1: Linear(0.1, warm=True),
    WARM_D: Linear(0.1, warm=True, memory=Discount(0.99)),
    AUTO: Contender("auto-isd", {"confidence": CONFIDENCE}),
}

NOISE_3 = World("noise × 3", StressEpisodes(noise_factor=3.0))
NOISE_15 = World("noise × 1.5", StressEpisodes(noise_factor=1.5))
CLICKS = World("clicks of 3 %", StressEpisodes(rewards="clicks"))
CALM_CLICKS = World("clicks of 3 %, nothing drifts", StressEpisodes(rewards="clicks", drift="none"))
NO_SIGNAL = World("logs without signal", StressEpisodes(signal=0.0))
LONG_NO_SIGNAL = World("logs without signal, T0 = 40,000", StressEpisodes(signal=0.0, logged=40_000))
WALK = World("a walk that goes on, 0.01", StressEpisodes(drift="walk", residual_dim=10))
FAST_WALK = World("a walk that goes on, 0.03", StressEpisodes(drift="walk", residual_dim=10, step=0.03))
BASELINE = World("baseline + 2", StressEpisodes(baseline_jump=2.0))
VARIED = (
    World("as the logs say", StressEpisodes()),
    World("invariance broken by 1", StressEpisodes(broken=1.0)),
    *(NOISE_3, NOISE_15, CLICKS, CALM_CLICKS, NO_SIGNAL, LONG_NO_SIGNAL, WALK, FAST_WALK, BASELINE),
    World("t with 3 degrees of freedom", StressEpisodes(rewards="t3")),
    World("noise grows with the mean", StressEpisodes(rewards="heteroscedastic")),
    World("revenue", StressEpisodes(rewards="revenue")),
)
CHANGED = (("no arm changes", 0.0), ("half of the arms change", 0.5), ("all arms change", 1.0))
ALL_CHANGE = tuple(World(f"{arms} arms, all arms change", FixedArms(arms), 2000, 200) for arms in (2, 5, 20))
FIXED = tuple(
    World(f"{arms} arms, {words}", FixedArms(arms, changed=changed), 2000, 200 if changed == 1.0 else 0)
    for arms in (2, 5, 20)
    for words, changed in CHANGED
)
CONTEXTUAL = tuple(
    World(f"5 arms × 2 contexts, {words}", FixedArms(5, changed=changed, contexts=2), 2000)
    for words, changed in CHANGED
)
WORLDS = (*VARIED, *FIXED, *CONTEXTUAL)


HELD = (
    World("as the logs say", StressEpisodes()),
    World("nothing drifts", StressEpisodes(drift="none")),
    World("a walk goes on", StressEpisodes(drift="walk")),
    *(World(f"noise × {factor:g}", StressEpisodes(noise_factor=factor)) for factor in (1.5, 2.0, 3.0)),
    World("t with 3 degrees of freedom", StressEpisodes(rewards="t3")),
    World("noise grows with the mean", StressEpisodes(rewards="heteroscedastic")),
    *(CLICKS, CALM_CLICKS, BASELINE),
    World("revenue", StressEpisodes(rewards="revenue")),
    World("T0 = 200", StressEpisodes(logged=200)),
    World("two windows", StressEpisodes(windows=2)),
    *(World(f"{arms} arms, no arm changes", FixedArms(arms, changed=0.0)) for arms in (2, 5, 20)),
    World("5 arms × 2 contexts, no arm changes", FixedArms(5, changed=0.0, contexts=2)),
)
"""Worlds in which invariance holds: an alarm is false."""
BROKEN = tuple(World(f"invariance broken by {size:g}", StressEpisodes(broken=size)) for size in (0.5, 1.0))
"""Worlds in which it is right."""
ALARMED = Contender("auto-isd", {"confidence": CONFIDENCE, "exploration": 0.25})
ALARM_ROUNDS = 2000


def alarm_of(policy: Any, _: Any) -> dict[str, float]:
    """Whether the alarm was raised, and whether the logs support one."""
    return {"alarm": float(policy.alarm), "supported": float(policy.alarm_supported)}


def goals() -> list[Goal]:
    """What AutoISD promises in these worlds."""
    bounds: list[tuple[World, str, float]] = [
        (NOISE_3, LINUCB_1, 1.0),
        (NOISE_15, LINUCB_1, 0.6),
        (CLICKS, LINUCB_1, 1.0),
        (CALM_CLICKS, WARM_1, 2.0),
        (NO_SIGNAL, LINUCB_1, 1.3),
        (LONG_NO_SIGNAL, LINUCB_1, 1.3),
        (WALK, WARM_D, 1.1),
        (FAST_WALK, WARM_D, 1.1),
        (BASELINE, LINUCB_1, 0.6),
        (FIXED[3], WARM, 2.0),
    ]
    found = [
        mean_at_most(f"{AUTO} ≤ {factor:g} × {rival}", world.name, AUTO, (rival,), factor)
        for world, rival, factor in bounds
    ]
    for world in ALL_CHANGE:
        found += [mean_at_most(f"{AUTO} ≤ {rival}", world.name, AUTO, (rival,)) for rival in (LINUCB, LINUCB_3)]
        found.append(worst_at_most(f"{AUTO}: worst run ≤ LinUCB's", world.name, AUTO, LINUCB))
    return found


class Contrasts(Probe):
    """How often differences of expected rewards lie beyond two and three of the policy's standard deviations."""

    every = 25

    def __init__(self, policy: Any, episode: Any) -> None:
        super().__init__(policy, episode)
        self.counted, self.beyond = 0, np.zeros(2)

    def compare(self, features: Any, means: Array) -> None:
        """Every 25th round compare all actions with the first."""
        if self.rounds % self.every == self.every - 1:
            apart, deviation = self.policy.contrasts(features)
            off = np.abs(apart - (means[1:] - means[0])) / np.maximum(deviation, 1e-300)
            self.counted += len(off)
            self.beyond += [(off > 2.0).sum(), (off > 3.0).sum()]


class Watching:
    """Notes how the widths of AutoISD fare."""

    def watch(self, policy: Any, episode: Any) -> Any:
        """What plays in the policy's place."""
        return Contrasts(policy, episode) if hasattr(policy, "contrasts") else policy

    def __call__(self, policy: Any, episode: Any) -> dict[str, float]:
        """What was seen; nothing of other policies."""
        if not isinstance(policy, Contrasts):
            return {}
        shares = policy.beyond / max(policy.counted, 1)
        return {"beyond 2": float(shares[0]), "beyond 3": float(shares[1])}
