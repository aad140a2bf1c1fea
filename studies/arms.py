"""Labelled arms: contexts, a label, a click; regret against what people use, drifting effects named, new arms found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, whole_number
from invariant_bandits.decomposition.drift_prior import DriftPrior
from invariant_bandits.experiments.cells import Probe
from invariant_bandits.parallel import map_unordered
from invariant_bandits.policies.registry import Maker
from invariant_bandits.simulation.labelled_arms import LATER, LOGGING, LabelledArms
from invariant_bandits.simulation.loop import simulate
from studies.arm_players import Auto, Disjoint, Refit

LOGIT, LINEAR = "AutoISD, log-odds", "AutoISD, linear"
WARM, COLD = "disjoint LinUCB 0.25, warm", "disjoint LinUCB 0.25, cold"
ALL, RECENT = "logistic, all logs", "logistic, last 3 months"
PLAYERS: Mapping[str, Maker] = {
    LOGIT: Auto(),
    LINEAR: Auto("identity"),
    WARM: Disjoint(warm=True),
    COLD: Disjoint(),
    ALL: Refit(),
    RECENT: Refit(3),
}
ORACLE, FIXED = "oracle", "best fixed arm"
HORIZON, NEW_ARM_HORIZON = 5000, 1000
FREQUENT, RARE = 0.3, 0.03
CLEARLY_BEST = 2.5
FROM, TO = 500, 1000
LATE = LabelledArms(logged=20_000, launched_after=2 / 3)
GOALS: Mapping[str, float] = dict(zip(LATER, (2.6, 3.4, 8.0, 6.2), strict=True))
"""Regret per 1,000 rounds of AutoISD on the log-odds, at most."""
LEAST_COVERAGE, LEAST_PLAYED, LEAST_NAMED = 0.93, 0.8, 0.9


@dataclass(frozen=True, eq=False)
class Outcome:
    """Everything the study measured.

    regret: world -> policy -> regret per 1,000 rounds (n,); rewards: world -> oracle and best fixed arm -> mean reward;
    played: share of rounds 500 to 1,000 in which an arm that is clearly best was played (n,); covered: of coefficients
    of an arm launched late, whether they are within two standard errors; named, flags: logs whose drifting effects were
    named exactly (n,), and false flags of each (n,).
    """

    regret: Mapping[str, Mapping[str, Array]]
    rewards: Mapping[str, Mapping[str, float]]
    played: Array
    covered: Array
    named: Array
    flags: Array
    replications: int
    rare_replications: int
    seed: int


def worlds() -> dict[str, LabelledArms]:
    """Name -> world: what is new online at 30 % of clicks, and how logs were collected at 3 %."""
    frequent = {later: LabelledArms(later, rate=FREQUENT) for later in LATER}
    return frequent | {f"3 % of clicks, {kind} logs": LabelledArms(rate=RARE, logging=kind) for kind in LOGGING}


def run(
    *,
    replications: int = 40,
    logs: int = 200,
    seed: int = 20261218,
    jobs: int = 2,
    horizon: int = HORIZON,
    progress: Callable[[str, int, int], None] | None = None,
) -> Outcome:
    """All repetitions, none discarded; progress: called with what is played, and how much is done."""
    whole_number("replications", replications, 2)
    every = worlds()
    rare = max(replications // 2, 2)
    counts = [rare if world.rate == RARE else replications for world in every.values()]
    total, before = sum(counts) + replications, 0
    regret, rewards = {}, {}

    def note(name: str) -> Callable[[int, int], None]:
        return lambda done, _: progress(name, before + done, total) if progress is not None else None

    for place, ((name, world), count) in enumerate(zip(every.items(), counts, strict=True)):
        result = simulate(PLAYERS, world, horizon, count, _seed(seed, place), jobs, note(name), observe=_rewards)
        regret[name] = {policy: 1000.0 * result.final(policy) / horizon for policy in PLAYERS}
        rewards[name] = {what: float(values.mean()) for what, values in result.observations[LOGIT].items()}
        before += count
    best = LabelledArms(LATER[2], lead=CLEARLY_BEST)
    found = simulate(
        *({LOGIT: Auto()}, best, NEW_ARM_HORIZON, replications, _seed(seed, 100), jobs, note("a clearly best arm")),
        observe=NewArm(),
    )
    named = [one for _, one in map_unordered(named_drift, [(seed, 101, i) for i in range(logs // 2)], jobs)]
    late = [one for _, one in map_unordered(late_arm, [(seed, 102, i) for i in range(logs)], jobs)]
    return Outcome(
        regret=regret,
        rewards=rewards,
        played=found.observations[LOGIT]["played"],
        covered=np.array(late).ravel(),
        named=np.array([exact for exact, _ in named]),
        flags=np.array([false for _, false in named]),
        replications=replications,
        rare_replications=rare,
        seed=seed,
    )


def _seed(seed: int, place: int) -> int:
    return int(np.random.SeedSequence((seed, place)).generate_state(1, np.uint64)[0])


def _rewards(_: Any, episode: Any) -> dict[str, float]:
    """Mean reward of the best arm of every round, and of the one arm that is best over all."""
    return {ORACLE: float(episode.means.max(axis=1).mean()), FIXED: float(episode.means.mean(axis=0).max())}


def named_drift(place: tuple[int, int, int]) -> tuple[bool, int]:
    """Whether the drifting effects of one log were named exactly, and how many others were."""
    logs = LabelledArms().draw(1, np.random.default_rng(place)).logs
    named = {(one.arm, one.coefficient) for one in DriftPrior.from_arms(logs.statistics()).effects if one.drifts}
    return named == set(logs.drifting), len(named - set(logs.drifting))


def late_arm(place: tuple[int, int, int]) -> list[bool]:
    """Of one log with an arm launched in its last third: which of its coefficients are within 2 standard errors."""
    logs, arm = LATE.draw(1, np.random.default_rng(place)).logs, LATE.arms - 2
    effects = [one for one in DriftPrior.from_arms(logs.statistics()).effects if one.arm == arm]
    return [abs(one.estimate - logs.truth[arm, one.coefficient]) <= 2.0 * one.error for one in effects]


class _Plays(Probe):
    """Counts the rounds in which the last offered arm is played."""

    def __init__(self, policy: Any, episode: Any) -> None:
        super().__init__(policy, episode)
        self.played = 0

    def compare(self, features: Any, means: Array) -> None:
        """Nothing to compare."""

    def select(self, features: Any) -> int:
        """The policy's own choice."""
        action = super().select(features)
        self.played += FROM < self.rounds <= TO and action == len(features) - 1
        return action


class NewArm:
    """How often a new arm is played in rounds 500 to 1,000."""

    def watch(self, policy: Any, episode: Any) -> _Plays:
        """What plays in the policy's place."""
        return _Plays(policy, episode)

    def __call__(self, probe: _Plays, episode: Any) -> dict[str, float]:
        """The share."""
        return {"played": probe.played / (TO - FROM)}
