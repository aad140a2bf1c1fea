"""What a policy believes, as plain values that can be sent."""

from __future__ import annotations

import math
from typing import Any

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


def finite(value: float) -> float | None:
    """A number that JSON can say, or None."""
    return float(value) if math.isfinite(value) else None
