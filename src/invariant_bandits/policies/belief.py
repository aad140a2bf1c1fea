"""What AutoISD believes, for people to read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError
from invariant_bandits.policies.base import reward_number

MOVED_BASELINE = 3.0
"""From how many standard deviations on a moved baseline is reported."""


@dataclass(frozen=True)
class Belief:
    """What AutoISD believes at present.

    Attributes
    ----------
    hypotheses : dict
        Probability of each of the four.
    log_evidence : float
        Log of the likelihood ratio of broken against held invariance, the largest so far.
    alarm : bool
        Whether that ever passed log(1/alarm_level), if the logs can support an alarm.
    shifts, errors : (p,)
        For every direction of the basis how far its coefficient stands from the mean of the logs, and the
        standard deviation of that.
    names : list of str
        The main features of every direction.
    noise_ratio : float
        Standard deviation of the noise over that of the logs.
    no_alarm_because : str
        Why the logs cannot support an alarm; empty if they can.
    baseline_shift : (float, float)
        How far the reward baseline stands from that of the logs; and a standard deviation, of what is left
        open and of how it varied in the logs.
    winsorised, refused : int
        Rounds whose error was cut, and rounds or offers too far from anything in the logs.
    """

    hypotheses: dict[str, float]
    log_evidence: float
    alarm: bool
    alarm_level: float
    shifts: Array
    errors: Array
    names: list[str]
    rounds: int
    noise_ratio: float = 1.0
    no_alarm_because: str = ""
    baseline_shift: tuple[float, float] = (0.0, 0.0)
    winsorised: int = 0
    refused: int = 0

    def __str__(self) -> str:
        lines = [f"After {self.rounds:,} round{'s' if self.rounds != 1 else ''}:"]
        lines += [f"  {name:<22} {100.0 * share:5.1f} %" for name, share in self.hypotheses.items()]
        if self.no_alarm_because:
            lines.append(f"  these logs cannot support an alarm: {self.no_alarm_because}")
        else:
            verdict = "ALARM: the logs' invariance does not hold" if self.alarm else "no alarm"
            lines.append(
                f"  evidence against invariance: 10^{self.log_evidence / np.log(10.0):.1f} to 1, {verdict}"
            )
        shift, error = self.baseline_shift
        if abs(shift) > MOVED_BASELINE * error:
            lines.append(f"  baseline: moved by {shift:+.3g} ± {error:.2g} since the logs")
        if self.noise_ratio != 1.0:
            lines.append(f"  noise: {self.noise_ratio:.2f} × that of the logs")
        if self.winsorised or self.refused:
            lines.append(f"  outliers: {self.winsorised:,} rounds cut short, {self.refused:,} refused")
        size = np.abs(self.shifts) / self.errors
        moved = [j for j in np.argsort(-size) if size[j] > 2.0][:5]
        if moved:
            lines.append(
                "  moved since the logs (coefficient along a direction, mainly of the features named):"
            )
        lines += [
            f"    direction {j + 1:>2} ({self.names[j]}): {self.shifts[j]:+.3g} ± {self.errors[j]:.2g}"
            for j in moved
        ]
        return "\n".join(lines)


LARGEST = 1e100


def chance(odds: Array) -> Array:
    """σ(odds), without overflow."""
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * odds)))


def check_click(reward: Any) -> None:
    """Raise if a reward is not a click, from 0 to 1; one too large for anything is left to other checks."""
    number = reward_number(reward)
    if not 0.0 <= number <= 1.0 and abs(number) < LARGEST:
        raise InputError(f"reward must be from 0 to 1, because the logs' rewards are clicks, got {number:g}")
