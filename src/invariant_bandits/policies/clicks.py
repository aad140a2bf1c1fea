"""Rewards that are clicks: what is believed of their log-odds, on the scale of probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError
from invariant_bandits.policies.base import reward_number

LARGEST = 1e100


def chance(odds: Array) -> Array:
    """σ(odds), without overflow."""
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * odds)))


def mean_and_width(odds: Array, width: Array, exploration: float) -> tuple[Array, Array]:
    """Probabilities (K,) of actions whose log-odds have these means and widths, and their widths.

    Mean: σ(odds). Mean + exploration · width: σ(odds + exploration · width), which keeps the order of the choices;
    without exploration the width is the slope of σ times that of the log-odds.
    """
    mean = chance(odds)
    if exploration == 0.0:
        return mean, mean * (1.0 - mean) * width
    return mean, (chance(odds + exploration * width) - mean) / exploration


def refuse(reward: Any) -> None:
    """Say that a reward is no click, if it is none; one too large for anything is left to others."""
    given = reward_number(reward)
    if not 0.0 <= given <= 1.0 and abs(given) < LARGEST:
        raise InputError(f"reward must be from 0 to 1, because the logs' rewards are clicks, got {given:g}")
