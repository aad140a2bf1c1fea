"""What the real-data study must show on flights, as code: paired differences with their standard errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.experiments.studies.online_goals import Estimate, estimate
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


def differences(outcome: Outcome, policy: str) -> dict[str, dict[str, Estimate]]:
    """Stretch -> rival -> policy − rival, paired."""
    return {
        stretch: {rival: estimate(here[policy] - here[rival]) for rival in here if rival != policy}
        for stretch, here in samples(outcome).items()
    }


@dataclass(frozen=True)
class Verdict:
    """A goal in words, the paired difference (ours − rival) that decides it, and whether it is reached."""

    words: str
    stretch: str
    rival: str
    difference: Estimate
    reached: bool


def verdicts(outcome: Outcome, policy: str) -> list[Verdict]:
    """Never two standard errors below the best rival; early, better than cold LinUCB by more than two."""
    against = differences(outcome, policy)
    here = samples(outcome)
    result = []
    for stretch, apart in against.items():
        best = max(RIVALS, key=lambda rival: here[stretch][rival].mean())
        result.append(_not_worse(policy, stretch, best, apart[best]))
    for horizon in CLEAR_AFTER:
        stretch = f"next {horizon}"
        if stretch in against:
            result += [_better(policy, stretch, rival, against[stretch][rival]) for rival in (COLD, COLD_TUNED)]
    return result


def _not_worse(policy: str, stretch: str, rival: str, apart: Estimate) -> Verdict:
    words = f"{policy}: not worse than the best rival"
    return Verdict(words, stretch, rival, apart, apart.mean >= -2.0 * apart.error)


def _better(policy: str, stretch: str, rival: str, apart: Estimate) -> Verdict:
    words = f"{policy}: better than {rival}"
    return Verdict(words, stretch, rival, apart, apart.mean > 2.0 * apart.error)


def losses(outcome: Outcome, policy: str) -> list[tuple[str, str, Estimate]]:
    """(stretch, rival, difference) wherever a rival that is not AutoISD has the higher mean."""
    return [
        (stretch, rival, apart)
        for stretch, here in differences(outcome, policy).items()
        for rival, apart in here.items()
        if rival not in OURS and apart.mean < 0.0
    ]


def means(outcome: Outcome) -> Mapping[str, Mapping[str, Estimate]]:
    """Policy -> stretch -> mean gain with its standard error."""
    here = samples(outcome)
    return {name: {stretch: estimate(values[name]) for stretch, values in here.items()} for name in outcome.half}


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
