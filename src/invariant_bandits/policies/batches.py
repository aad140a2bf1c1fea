"""Batches of rounds: refused wherever one of their rounds would be."""

from __future__ import annotations

import numpy as np

from invariant_bandits.checks import Array, require_finite
from invariant_bandits.policies import kernels
from invariant_bandits.policies.base import too_large


def check_rounds(features: Array, start: int = 0, stop: int | None = None) -> None:
    """Raise if `select` would refuse one of the rounds from `start` to `stop` of features (N, K, p), contiguous.

    One sum over all of them is enough, nearly always; else every round is asked for its own.
    """
    part = features[start:stop]
    numbers = part.reshape(-1)
    with np.errstate(invalid="ignore", over="ignore"):
        total = numbers @ numbers
    if total < kernels.LARGEST_SQUARE:
        return
    if not np.isfinite(numbers).all():
        require_finite("features", features)
    if not all(kernels.usable(one) for one in part):
        raise too_large()
