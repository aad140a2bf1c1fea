"""Tables of many series over time, (times, series), as rounds: what each was before describes what it may be
now.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits_reproduction.studies.real_rounds import RealData, rounds_of


def before(values: Array, lag: int) -> Array:
    """What each series was `lag` times earlier; NaN where that is before the first."""
    if lag < 1:
        raise ValueError("only earlier times may describe")
    shifted = np.full(values.shape, np.nan)
    shifted[lag:] = values[:-lag]
    return shifted


def mean_before(values: Array, lags: range) -> Array:
    """Mean over what each series was at these lags; NaN where one of them is missing."""
    return np.asarray(np.mean([before(values, lag) for lag in lags], axis=0))


def panel_rounds(
    name: str,
    unit: str,
    features: Mapping[str, Array],
    rewards: Array,
    times: Array,
    groups: Array,
    horizons: tuple[int, ...],
) -> RealData:
    """A round is a time and one of the groups (times, series), below 0 for none; what is not known is left
    out.
    """
    shape = rewards.shape
    columns = {
        words: np.broadcast_to(values, shape).astype(np.float64)
        for words, values in features.items()
    }
    known = np.isfinite(rewards) & (groups >= 0)
    for values in columns.values():
        known &= np.isfinite(values)
    time, series = np.nonzero(known)
    order = np.lexsort((series, groups[time, series], time))
    at = time[order], series[order]
    day = times[at[0]]
    chosen = {words: values[at] for words, values in columns.items()}
    return rounds_of(
        name, unit, chosen, rewards[at], [at[0], groups[at]], day, horizons
    )
