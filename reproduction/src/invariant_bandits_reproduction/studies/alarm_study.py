"""The alarm: how often it is false, and how often it finds what breaks; of labelled arms and of features."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.policies.auto import AutoISD, chance
from invariant_bandits.simulation.episodes import PaperEpisodes
from invariant_bandits.simulation.labelled_arms import LATER, LabelledArms
from invariant_bandits.simulation.paper import LoggedRounds, PaperWorld
from invariant_bandits_reproduction.claims import (
    Bound,
    Claim,
    Judged,
    Measurement,
    judge_all,
    measured_claim,
    share_of,
)
from invariant_bandits_reproduction.printed_world import PrintedWorld
from invariant_bandits_reproduction.studies.harness import (
    Progress,
    StudyOutcome,
    cell_seed,
    gather,
    verdict_lines,
)

DELTA = 0.01
LEAST_POWER = 0.9
LEVEL_ROUNDS, POWER_ROUNDS = 2000, 5000
STRONG = 1.0
"""Log-odds that a standard deviation of the context adds, of the effect that breaks."""


@dataclass(frozen=True)
class BreakingArms(LabelledArms):
    """`LabelledArms` of which one slope of the first arm is strong, stable in the logs, and breaks online.

    Parameters
    ----------
    strong : float
        The slope; 0: as the others.
    part : float
        By which part of its size it changes with the first online round.
    """

    strong: float = 0.0
    part: float = 0.0

    def stable(self, effects: Any) -> tuple[int, int]:
        """The first slope of the first arm that is not among the drifting effects."""
        return next((0, k) for k in range(1, self.width) if (0, k) not in effects)

    def _logs(
        self, start: Array, effects: Any, walks: Array, rng: np.random.Generator
    ) -> Any:
        if self.strong:
            start[self.stable(effects)] = self.strong
        return super()._logs(start, effects, walks, rng)


@dataclass(frozen=True)
class AlarmCell:
    """One row of the page: a world, how many rounds are played, and whether arms come and go meanwhile."""

    world: BreakingArms
    rounds: int = LEVEL_ROUNDS
    churn: bool = True
    link: str = "logit"


LEVELS = {
    "30 % of clicks": AlarmCell(BreakingArms(LATER[1])),
    "3 % of clicks": AlarmCell(BreakingArms(LATER[1], rate=0.03)),
}
OTHER_LEVELS = {
    "30 % of clicks, drift stays where the logs left it": AlarmCell(BreakingArms()),
    "30 % of clicks, eight effects drift": AlarmCell(
        BreakingArms(LATER[1], drifting=8)
    ),
    "30 % of clicks, greedy logs": AlarmCell(BreakingArms(LATER[1], logging="greedy")),
    "3 % of clicks, greedy logs": AlarmCell(
        BreakingArms(LATER[1], rate=0.03, logging="greedy")
    ),
    "30 % of clicks, 5,000 logged rounds": AlarmCell(
        BreakingArms(LATER[1], logged=5000)
    ),
    "30 % of clicks, linear in the reward": AlarmCell(
        BreakingArms(LATER[1]), link="identity"
    ),
}
"""Further worlds without a break, in which an alarm is false; they have no goal."""
POWER = "an effect of 1 breaks by half"


# -- actions described by features --


@dataclass(frozen=True)
class DriftingJump(PaperEpisodes):
    """`PaperEpisodes` of which the drifting part alone jumps, from where the logs ended.

    Parameters
    ----------
    jump : float
        Length of the jump, in a random direction of the drifting part.
    """

    jump: float = 2.0

    def _residual_path(
        self,
        logs: LoggedRounds,
        moving: list[int],
        horizon: int,
        rng: np.random.Generator,
    ) -> Array:
        direction = rng.standard_normal(len(moving))
        end = (logs.basis.T @ logs.coefficients[-1])[moving]
        online = end + self.jump * direction / np.linalg.norm(direction)
        return np.tile(online, (horizon, 1))


@dataclass(frozen=True)
class FeatureCell:
    """One row of the page: a world of features, and whether no stable coefficient moves in it.

    share: of the repetitions that rows with a goal have.
    """

    world: PaperEpisodes = field(default_factory=PaperEpisodes)
    holds: bool = True
    share: float = 1.0


FEATURE_ROUNDS = 1000
FEATURE_SEED = 77000  # of the first row of features; the next rows follow
T_NOISE = PaperWorld(noise="t", noise_freedom=3.0)
"""Rounds per run, and noise with heavy tails."""
FEATURE_CELLS = {
    "paper's world, T0 = 1,000": FeatureCell(PaperEpisodes(logged=1000)),
    "t noise with 3 degrees of freedom, T0 = 2,000": FeatureCell(
        PaperEpisodes(world=T_NOISE, logged=2000)
    ),
    "world as printed, T0 = 4,000": FeatureCell(
        PaperEpisodes(world=PrintedWorld(), logged=4000)
    ),
    "the drifting part alone jumps by 2, T0 = 8,000": FeatureCell(
        DriftingJump(), share=0.3
    ),
    "stable part breaks by 0.5, T0 = 8,000": FeatureCell(
        PaperEpisodes(violation=0.5), holds=False, share=0.4
    ),
    "stable part breaks by 2, T0 = 8,000": FeatureCell(
        PaperEpisodes(violation=2.0), holds=False, share=0.2
    ),
    "world as printed, stable part breaks by 0.5, T0 = 4,000": FeatureCell(
        PaperEpisodes(world=PrintedWorld(), logged=4000, violation=0.5),
        holds=False,
        share=0.2,
    ),
}
"""Row of the page -> world of features."""
FEATURE_GOALS = list(FEATURE_CELLS)[:3]
"""Rows with a goal."""


def feature_trial(task: tuple[str, int, int]) -> tuple[bool, bool, bool]:
    """Whether the alarm was raised in one repetition, whether the logs support one, and whether a drifting
    part was said to have moved further than in the logs.
    """
    name, seed, index = task
    world = FEATURE_CELLS[name].world
    episode = world.draw(FEATURE_ROUNDS, np.random.default_rng((seed, index)))
    policy = AutoISD.from_history(episode.moments, delta=DELTA, horizon=FEATURE_ROUNDS)
    rewards = episode.rewards
    for t, offered in enumerate(episode.offered):
        action = policy.select(offered)
        policy.update(offered[action], float(rewards[t, action]))
    moved_further = bool(policy.explain().drifting_moved)
    return policy.alarm, policy.alarm_supported, moved_further


def breaks() -> dict[str, AlarmCell]:
    """Name -> cell in which an effect breaks: by half, of several sizes, and in other ways."""
    worlds = {
        POWER: BreakingArms(LATER[1], strong=STRONG, part=0.5),
        "an effect of 0.75 breaks by half": BreakingArms(
            LATER[1], strong=0.75, part=0.5
        ),
        "an effect of 1.5 breaks by half": BreakingArms(LATER[1], strong=1.5, part=0.5),
        "an effect of 1 grows by half": BreakingArms(
            LATER[1], strong=STRONG, part=-0.5
        ),
        "an effect of 1 is reversed": BreakingArms(LATER[1], strong=STRONG, part=2.0),
    }
    return {
        name: AlarmCell(world, POWER_ROUNDS, churn=False)
        for name, world in worlds.items()
    }


def cells() -> dict[str, AlarmCell]:
    """Every row of the page."""
    return LEVELS | OTHER_LEVELS | breaks()


class _Online:
    """Rounds after the logs: who can be played, and what is true of them."""

    def __init__(self, cell: AlarmCell, rng: np.random.Generator) -> None:
        self.world, self.rng = cell.world, rng
        episode = cell.world.draw(1, rng)
        logs, self.active = episode.logs, list(episode.active)
        self.truth, self.drifting = logs.truth.copy(), list(logs.drifting)
        if cell.world.part:
            self.truth[cell.world.stable(self.drifting)] *= 1.0 - cell.world.part
        self.policy = AutoISD.from_arms(logs.statistics(cell.link), delta=DELTA)
        self.step = cell.world.step / np.sqrt(cell.world.logged / cell.world.months)

    def launch(self) -> None:
        """Offer one more arm."""
        self.policy = self.policy.with_arm()
        self.truth = np.vstack([self.truth, self.world._coefficients(1, self.rng)])
        self.active.append(len(self.truth) - 1)

    def retire(self, forget: bool) -> None:
        """Never offer one of the arms again; `forget`: the policy drops it."""
        gone = self.active.pop(int(self.rng.integers(len(self.active) - 1)))
        if forget:
            self.policy = self.policy.without_arm(gone)
            self.truth = np.delete(self.truth, gone, axis=0)
            self.drifting = [
                (arm - (arm > gone), k) for arm, k in self.drifting if arm != gone
            ]
            self.active = [arm - (arm > gone) for arm in self.active]

    def play(self) -> None:
        """One round: drifting effects move on, the policy plays and learns."""
        if self.world.later == LATER[1]:
            for effect in self.drifting:
                self.truth[effect] += self.step * self.rng.normal()
        z = self.world._contexts(1, self.rng)[0]
        rows = self.policy.prior.layout.features(
            np.tile(z, (len(self.active), 1)), np.array(self.active)
        )
        action = self.policy.select(rows)
        expected = float(chance(self.truth[self.active[action]] @ z))
        self.policy.update(rows[action], float(self.rng.random() < expected))


def trial(task: tuple[str, int, int]) -> tuple[bool, bool]:
    """Whether the alarm was raised in one repetition of a cell, and whether the logs support one."""
    name, seed, index = task
    cell = cells()[name]
    online = _Online(cell, np.random.default_rng((seed, index)))
    for t in range(cell.rounds):
        if cell.churn and t == cell.rounds // 3:
            online.launch()
        if cell.churn and t == 2 * cell.rounds // 3:
            online.retire(forget=index % 2 == 1)
        online.play()
    return online.policy.alarm, online.policy.alarm_supported


def run(
    *,
    replications: int = 300,
    feature_replications: int = 1000,
    seed: int = 20261121,
    jobs: int = 2,
    progress: Progress | None = None,
) -> StudyOutcome:
    """All repetitions, none discarded: values are, cell -> (alarms, supported) (n, 2).

    Of features also whether a drifting coefficient moved further, (n, 3). feature_replications: of the worlds
    of features that have a goal; the others have a share of them.
    """
    counts = {name: max(replications // 5, 2) for name in cells()}
    counts |= dict.fromkeys(LEVELS, replications) | {
        POWER: max(2 * replications // 3, 2)
    }
    values = {}
    for index, (name, count) in enumerate(counts.items()):
        places = [(name, cell_seed(seed, index), i) for i in range(count)]
        values[name] = np.array(gather(trial, places, jobs, progress, name))
    for index, (name, cell) in enumerate(FEATURE_CELLS.items()):
        count = max(round(cell.share * feature_replications), 2)
        places = [(name, FEATURE_SEED + index, i) for i in range(count)]
        values[name] = np.array(gather(feature_trial, places, jobs, progress, name))
    return StudyOutcome(values, replications, seed)


def goals() -> list[Claim]:
    """What the alarm promises."""

    def goal(name: str, words: str, bound: Bound) -> Claim:
        return measured_claim(
            words, name, lambda outcome: alarms_of(outcome.values[name]), bound
        )

    false = f"false alarms in {LEVEL_ROUNDS:,} rounds"
    false_of_features = f"false alarms in {FEATURE_ROUNDS:,} rounds"
    power = f"alarms within {POWER_ROUNDS:,} rounds, {POWER}: ≥ 90 %"
    return [
        *(goal(name, f"{false}, {name}: ≤ 2 %", Bound(high=0.02)) for name in LEVELS),
        goal(POWER, power, Bound(low=LEAST_POWER)),
        *(
            goal(name, f"{false_of_features}, {name}: ≤ 1.2 %", Bound(high=0.012))
            for name in FEATURE_GOALS
        ),
    ]


def alarms_of(values: Array) -> Measurement:
    """Return the share of alarms in what `trial` or `feature_trial` returned (n, 2 or 3)."""
    return share_of(int(values[:, 0].sum()), len(values))


def verdicts(outcome: StudyOutcome) -> Judged:
    """Every goal of the study with its verdict."""
    return judge_all(goals(), outcome)


def report(outcome: StudyOutcome) -> str:
    """The page."""
    lines = [
        "# The alarm, measured",
        "",
        "How often does the policy AutoISD raise its alarm, rightly and wrongly, if the actions are"
        " labelled arms (each with coefficients of its own), and if they are described by features?",
        "The alarm is false if no stable coefficient moves further than the logs allow. Drifting"
        " coefficients may move as far as they like.",
        "",
        "| | how it was measured |",
        "|---|---|",
        f"| repetitions | {outcome.replications} fresh repetitions of the first two rows and fewer of the"
        f" others, seed {outcome.seed}, none discarded |",
        "| environment | `LabelledArms` (see [labelled arms](arms.md)) with 50,000 logged rounds in"
        " twelve months; two slopes follow a random walk, in the logs and online |",
        "| policy | AutoISD with its default settings, with alarms at 1 % |",
        "| rows where no stable effect changes | 2,000 online rounds; an arm is launched after a third of"
        " them, another is retired after two thirds |",
        "| rows where a stable effect changes | one slope of one arm changes before the first of"
        f" {POWER_ROUNDS:,} online rounds with 30 % of clicks |",
        "| choice of the alarm's settings | on other seeds, among about fifty configurations with up to"
        " 150 repetitions per row |",
        "| first run of this study (seed 20261118) | 0.0 %, 0.3 % and 87 % for the three goals |",
        "| second run (seed 20261119) | 0.0 %, 0.0 % and 87 % for the three goals |",
        "| change after the second run | the alarm expects slopes that fade; on a tuning seed it found 97"
        " of 100 changes, with no false alarm in 300 logs |",
        "| third run (seed 20261120) | 0.0 %, 0.0 % and 98 % for the three goals |",
        "| change after the third run | drifting coefficients may move as far as they like, and arms whose"
        " rewards are not clicks count from ten rounds on |",
        "| limits of hidden drift | 8 % for each direction of features. With 40 % for stable directions the"
        " alarm found 121 of 200 breaks by 0.5 instead of 44, but was false in 5 of 150 logs with 3 % of"
        " clicks and in 10 of 200 logs of revenue (worlds of the [stress study](stress.md)) |",
        "| this page | the fourth run |",
        "",
        *verdict_lines(verdicts(outcome)),
        "## Labelled arms",
        "",
        "| world | alarms | repetitions | logs that support an alarm |",
        "|---|---|---|---|",
    ]
    for name, values in outcome.values.items():
        if name in FEATURE_CELLS:
            continue
        share = alarms_of(values)
        lines.append(
            f"| {name} | {share.with_interval()} | {len(values)} | {values[:, 1].mean():.1%} |"
        )
    return "\n".join([*lines, *_feature_lines(outcome), ""])


def _feature_lines(outcome: StudyOutcome) -> list[str]:
    """The section about actions described by features."""
    lines = [
        "",
        "## Actions described by features",
        "",
        f"Every row has {FEATURE_ROUNDS:,} online rounds of `PaperEpisodes`: the drifting coefficients"
        " are drawn anew before the first one, also further than they moved in the logs. The world as"
        " printed has the paper's text: two blocks of features, time from -1 to 0 and coefficients that"
        " are not scaled. The last column is the share of runs whose `explain()` says after the last"
        " round that a drifting coefficient moved further than in the logs. Seeds of the rows are"
        f" {FEATURE_SEED} and the following numbers.",
        "",
        "| world | alarm is | alarms | repetitions | logs that support an alarm | drifting coefficient |",
        "|---|---|---|---|---|---|",
    ]
    for name, cell in FEATURE_CELLS.items():
        values = outcome.values[name]
        share = alarms_of(values).with_interval()
        right = "false" if cell.holds else "right"
        supported, further = values[:, 1].mean(), values[:, 2].mean()
        lines.append(
            f"| {name} | {right} | {share} | {len(values)} | {supported:.1%} | {further:.1%} |"
        )
    return lines
