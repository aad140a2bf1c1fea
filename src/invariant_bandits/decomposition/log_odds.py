"""LogOdds: what windows of clicks say of log-odds, to second order about one fit; windows of later logs join."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.moments.windowed import WindowedMoments


@dataclass(frozen=True, eq=False)
class LogOdds:
    """Windows of clicks, expanded about coefficients θ⁰ on the logit scale.

    Parameters
    ----------
    theta : array, shape (p,)
        θ⁰; π = σ(φᵀθ⁰), h = π(1 − π).
    moments : WindowedMoments
        Of √h·φ and √h·(φᵀθ⁰ + (r − π)/h): its sums of squares and products are Σhφφᵀ and Σhφφᵀθ⁰ + Σφ(r − π).
    """

    theta: Array
    moments: WindowedMoments

    def padded(self, places: Any) -> LogOdds:
        """With coefficients of arms that were never played, 0 so far, before those at `places`."""
        return LogOdds(np.insert(self.theta, places, 0.0), self.moments.padded(places))
