"""What the real-data study must show, on flights and on every set, as code: paired differences with their errors."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.experiments.claims import Goal, Measurement, Verdict, mean_of, word_for
from studies.real import Outcome
from studies.real_policies import (
    AUTO_DEFAULT,
    AUTO_TUNED,
    COLD,
    COLD_TUNED,
    DISCOUNT,
    FROZEN,
    SLIDING,
    UNIFORM,
    WARM,
)

BLOCKS = 26
RIVALS = (FROZEN, COLD, COLD_TUNED, WARM, SLIDING)
OURS = (AUTO_DEFAULT, AUTO_TUNED)
CLEAR_AFTER = (100, 500)
JUDGED = "flights"
SEVERAL_SETS = 3
SIMPLE = (FROZEN, COLD_TUNED, WARM, SLIDING, DISCOUNT)
ALLOWED = 3.0
EVERY_SET = "all sets"


def samples(outcome: Outcome) -> dict[str, dict[str, Array]]:
    """Stretch of play -> policy -> mean gains over which standard errors are taken, averaged over replications.

    From many dates: one number per date (dates,). Second half: one per block of neighbouring rounds (26,), about a week
    of flights each, so that what neighbours have in common is not counted as independent.
    """
    found = {
        f"next {horizon}": {name: gains[:, :, place].mean(axis=0) for name, gains in outcome.rolling.items()}
        for place, horizon in enumerate(outcome.horizons)
    }
    found["second half"] = {
        name: np.array([block.mean() for block in np.array_split(gains.mean(axis=0), BLOCKS)])
        for name, gains in outcome.half.items()
    }
    return found


def differences(outcome: Outcome, policy: str) -> dict[str, dict[str, Measurement]]:
    """Stretch -> rival -> policy − rival, paired."""
    return {
        stretch: {rival: mean_of(here[policy] - here[rival]) for rival in here if rival != policy}
        for stretch, here in samples(outcome).items()
    }


def verdicts(outcome: Outcome, policy: str) -> list[tuple[Goal, Verdict]]:
    """Never two standard errors below the best rival; early, better than cold LinUCB by more than two."""
    here = samples(outcome)
    goals = []
    for stretch in here:
        best = max(RIVALS, key=lambda rival: here[stretch][rival].mean())
        goals.append(_goal(policy, "not worse than the best rival", stretch, best, -2.0))
    for horizon in CLEAR_AFTER:
        stretch = f"next {horizon}"
        if stretch in here:
            goals += [_goal(policy, f"better than {rival}", stretch, rival, 2.0) for rival in (COLD, COLD_TUNED)]
    against = differences(outcome, policy)
    return [(goal, goal.judge(against)) for goal in goals]


def _goal(policy: str, words: str, stretch: str, rival: str, errors: float) -> Goal:
    """ours − rival must lie above so many standard errors; decided by its paired mean."""

    def judge(against: Mapping[str, Mapping[str, Measurement]]) -> Verdict:
        apart = against[stretch][rival]
        reached = apart.value > errors * apart.error or (errors < 0.0 and apart.value == errors * apart.error)
        return Verdict(word_for(reached), apart, numbers=rival)

    return Goal(f"{policy}: {words}", stretch, judge, policy)


def verdicts_everywhere(outcomes: Mapping[str, Outcome], policy: str) -> list[tuple[Goal, Verdict]]:
    """On every set at most 3 % of the gain below the best simple policy at every horizon, and above it on average."""
    found = {key: shares(outcome, policy) for key, outcome in outcomes.items()}
    goals = [
        _share_goal(policy, key, f"{outcomes[key].name}, {stretch}", stretch)
        for key, here in found.items()
        for stretch in here
    ]
    goals.append(_average_goal(policy))
    return [(goal, goal.judge(found)) for goal in goals]


def shares(outcome: Outcome, policy: str) -> dict[str, tuple[str, Measurement]]:
    """Horizon -> (best simple policy, policy − it in percent of its gain); the best is chosen after play."""
    found = {}
    for horizon in outcome.horizons:
        stretch = f"next {horizon}"
        here = samples(outcome)[stretch]
        best = max((name for name in SIMPLE if name in here), key=lambda name: here[name].mean())
        gain = abs(float(here[best].mean()))
        found[stretch] = (best, mean_of(100.0 * (here[policy] - here[best]) / gain))
    return found


Shares = Mapping[str, Mapping[str, tuple[str, Measurement]]]
"""Data set -> horizon -> (best simple policy, how far from it in percent of its gain)."""


def _share_goal(policy: str, key: str, where: str, stretch: str) -> Goal:
    def judge(found: Shares) -> Verdict:
        best, apart = found[key][stretch]
        margin = Measurement(-ALLOWED - apart.value, error=apart.error)
        return Verdict(word_for(apart.value >= -ALLOWED), apart, numbers=best, margin=margin)

    return Goal(f"{policy}: at most {ALLOWED:g} % below the best simple policy", where, judge, policy)


def _average_goal(policy: str) -> Goal:
    def judge(found: Shares) -> Verdict:
        sets = np.array([np.mean([apart.value for _, apart in here.values()]) for here in found.values()])
        apart = mean_of(sets)
        margin = Measurement(-apart.value, error=apart.error)
        return Verdict(word_for(apart.value > 0.0), apart, numbers="the best of each", margin=margin)

    return Goal(f"{policy}: above the best simple policy on average", EVERY_SET, judge, policy)


def all_verdicts(outcomes: Mapping[str, Outcome], policy: str) -> list[tuple[Goal, Verdict]]:
    """Those of the judged set, and those of every set where several fields were played."""
    found = verdicts(outcomes[JUDGED], policy) if JUDGED in outcomes else []
    return found + (verdicts_everywhere(outcomes, policy) if len(outcomes) >= SEVERAL_SETS else [])


def losses(outcome: Outcome, policy: str) -> list[tuple[str, str, Measurement]]:
    """(stretch, rival, difference) wherever a rival that is not AutoISD has the higher mean."""
    return [
        (stretch, rival, apart)
        for stretch, here in differences(outcome, policy).items()
        for rival, apart in here.items()
        if rival not in OURS and apart.value < 0.0
    ]


def means(outcome: Outcome) -> Mapping[str, Mapping[str, Measurement]]:
    """Policy -> stretch -> mean gain with its standard error."""
    here = samples(outcome)
    return {name: {stretch: mean_of(values[name]) for stretch, values in here.items()} for name in outcome.half}


def charted(outcome: Outcome, reference: str = AUTO_TUNED) -> dict[str, dict[str, tuple[float, float]]]:
    """For the picture: stretch -> policy -> (mean gain, two errors of its paired difference to the reference)."""
    apart = differences(outcome, reference)
    return {
        stretch: {
            name: (float(values.mean()), 0.0 if name == reference else 2.0 * apart[stretch][name].error)
            for name, values in here.items()
            if name != UNIFORM
        }
        for stretch, here in samples(outcome).items()
    }
