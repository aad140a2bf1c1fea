"""Results of an evaluation per interval of time, in the two forms that the protocol had."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.service.learners.telling import finite
from invariant_bandits.service.protocols.evaluating import POLICIES, Stretch
from invariant_bandits.service.protocols.personalizer.times import duration, moment

NORMAL = 1.959963984540054
"""Quantile of the normal distribution for intervals of 95 %."""


def in_new_form(
    whole: Stretch, minutes: int, start: float, settings: dict[str, str], window: Literal["Expanding", "Rolling"]
) -> list[dict[str, Any]]:
    """Per policy: its mean reward with an interval, and the same up to (or within) each interval of time."""
    told = []
    for policy in POLICIES:
        value, _ = whole.estimates(policy)
        sums, times = _sums(whole, policy, minutes, start)
        sums = np.cumsum(sums, axis=0) if window == "Expanding" else sums
        points = [
            {"timeStamp": moment(time), "expectedReward": finite(mean), "confidenceInterval": _around(mean, half)}
            for time, mean, half in zip(times, *_mean_and_half(sums), strict=True)
        ]
        summary = {"expectedReward": finite(value.value), "confidenceInterval": _ends(value.low, value.high)}
        told.append({**_named(policy, settings), "slotId": "", "summary": summary, "timeseries": {"data": points}})
    return told


def in_old_form(whole: Stretch, minutes: int, start: float, settings: dict[str, str]) -> list[dict[str, Any]]:
    """Per policy: numerators and denominators of IPS and SNIPS, in all and within each interval of time."""
    told = []
    for policy in POLICIES:
        sums, times = _sums(whole, policy, minutes, start)
        parts = [_summary(row, moment(time), duration(60.0 * minutes)) for row, time in zip(sums, times, strict=True)]
        span = duration(float(round(whole.times[-1] - start)))
        total = _summary(sums.sum(axis=0), moment(start), span)
        told.append({**_named(policy, settings), "summary": parts, "totalSummary": total})
    return told


def _named(policy: str, settings: dict[str, str]) -> dict[str, str]:
    """Learning settings of a policy: those that run, or none."""
    if policy == "Online":
        return {"name": settings["name"], "arguments": settings["arguments"], "policySource": policy}
    return {"name": policy, "arguments": "", "policySource": policy}


def _sums(whole: Stretch, policy: str, minutes: int, start: float) -> tuple[Array, list[float]]:
    """Sums over each interval that has decisions, and when they begin.

    Columns: decisions, w, w·r, (w·r)², w², w²·r, whether w > 0; with w the importance weights and r the rewards.
    """
    weights, rewards = whole.weights(policy), whole.rewards
    columns = np.stack(
        [
            np.ones_like(weights),
            weights,
            weights * rewards,
            (weights * rewards) ** 2,
            weights**2,
            weights**2 * rewards,
            (weights > 0.0).astype(np.float64),
        ],
        axis=1,
    )
    places = np.floor((whole.times - start) / (60.0 * minutes))
    begins = np.unique(places, return_index=True)[1]
    return np.add.reduceat(columns, begins, axis=0), [start + 60.0 * minutes * place for place in places[begins]]


def _mean_and_half(sums: Array) -> tuple[list[float], list[float]]:
    """SNIPS Σwr/Σw per row of sums, and half its interval: 1.96·√Σw²(r − mean)²/Σw."""
    _, weights, gains, squares, weights2, gains2, _ = sums.T
    with np.errstate(divide="ignore", invalid="ignore"):
        means = gains / weights
        spread = np.maximum(squares - 2.0 * means * gains2 + means**2 * weights2, 0.0)
        return means.tolist(), (NORMAL * np.sqrt(spread) / weights).tolist()


def _summary(sums: Array, time: str, window: str) -> dict[str, Any]:
    count, weights, gains, squares, _, _, possible = sums.tolist()
    [mean], [half] = _mean_and_half(sums[None, :])
    return {
        "timeStamp": time,
        "ipsEstimatorNumerator": gains,
        "ipsEstimatorDenominator": count,
        "snipsEstimatorDenominator": weights,
        "aggregateTimeWindow": window,
        "nonZeroProbability": possible / count,
        "sumOfSquares": squares,
        "confidenceInterval": finite(half),
        "averageReward": finite(mean),
    }


def _around(mean: float, half: float) -> list[float]:
    return _ends(mean - half, mean + half)


def _ends(low: float, high: float) -> list[float]:
    """Both ends, or none if nothing can be concluded."""
    return [low, high] if np.isfinite(low) and np.isfinite(high) else []
