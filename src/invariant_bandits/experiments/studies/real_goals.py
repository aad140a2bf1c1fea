"""What the real-data study must show on flights, as code: paired differences with their standard errors."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.experiments.claims import Goal, Measurement, Verdict, mean_of, word_for
from invariant_bandits.experiments.studies.real import Outcome
from invariant_bandits.experiments.studies.real_policies import (
    AUTO_DEFAULT,
    AUTO_TUNED,
    COLD,
    COLD_TUNED,
    FROZEN,
    SLIDING,
    UNIFORM,
    WARM,
)

BLOCKS = 26
RIVALS = (FROZEN, COLD, COLD_TUNED, WARM, SLIDING)
OURS = (AUTO_DEFAULT, AUTO_TUNED)
CLEAR_AFTER = (100, 500)


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
