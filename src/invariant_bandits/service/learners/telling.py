"""What a policy believes, as plain values that can be sent."""

from __future__ import annotations

import math
from typing import Any

from scipy.special import stdtrit

from invariant_bandits.checks import Array
from invariant_bandits.policies.belief import Belief

SPEAKS = 2.0
"""A direction is listed as moved if it stands at least so many standard deviations from the logs."""


def belief_of(told: Any) -> dict[str, Any]:
    """Beliefs, drift, alarm and rehearsal of a policy that has them; else nothing."""
    if not isinstance(told, Belief):
        return {}
    moved: list[dict[str, Any]] = [
        {"direction": name, "shift": finite(shift), "error": finite(error)}
        for name, shift, error in zip(told.names, told.shifts.tolist(), told.errors.tolist(), strict=True)
    ]
    moved.sort(key=lambda one: -abs(one["shift"] or 0.0) / max(one["error"] or 1.0, 1e-300))
    rehearsal = told.rehearsal
    return {
        "beliefs": {name: finite(share) for name, share in told.hypotheses.items()},
        "alarm": bool(told.alarm),
        "alarm_level": told.alarm_level,
        "log_evidence": finite(told.log_evidence),
        "no_alarm_because": told.no_alarm_because,
        "drift": moved,
        "noise_ratio": finite(told.noise_ratio),
        "baseline_shift": [finite(one) for one in told.baseline_shift],
        "rehearsal": None if rehearsal is None else str(rehearsal),
    }


def logged_reward(counts: Array, means: Array) -> dict[str, Any]:
    """What the logs' policy earned per round, and an interval at 95 % from how its windows differ.

    Parameters
    ----------
    counts, means : array, shape (m,)
        Rounds and mean reward per window.
    """
    share = counts / counts.sum()
    mean, windows = float(share @ means), len(means)
    if windows < 2:
        return {"logged_reward": mean, "logged_reward_interval": None}
    error = math.sqrt(float(share**2 @ (means - mean) ** 2) * windows / (windows - 1))
    half = float(stdtrit(windows - 1, 0.975)) * error
    return {"logged_reward": mean, "logged_reward_interval": [mean - half, mean + half]}


def finite(value: float) -> float | None:
    """A number that JSON can say, or None."""
    return float(value) if math.isfinite(value) else None
