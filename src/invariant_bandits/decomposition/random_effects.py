"""Random effects over windows: the mean of the coefficients and how far they drift along each direction."""

from __future__ import annotations

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.decomposition.rank_deficiency import INFORMS, Silence

LEAST = 1e-300


def random_effects(g: Array, H: Array, iterations: int, silence: Silence | None = None) -> tuple[Array, Array, Array]:
    """μ (p,), its covariance C_μ (p, p) and the drift variances ω (p,) by EM, from the windows' ĝ and H.

    γ_i ~ N(μ, diag ω) and ĝ_i given γ_i ~ N(γ_i, H_i). Windows that are silent about some direction enter with what
    they know, (Ω + H_i)⁻¹ = L(I + LᵀΩL)⁻¹Lᵀ; a step of ω counts the windows that inform its direction.
    """
    from invariant_bandits.decomposition import kernels

    m, p = g.shape
    regular = np.ones(m, dtype=np.bool_)
    roots, informing = np.zeros((0, p, 1)), np.full(p, float(m))
    if silence is not None:
        regular[silence.windows] = False
        roots = np.ascontiguousarray(silence.roots)
        known = np.concatenate([1.0 / np.einsum("mii->mi", H[regular]), (roots**2).sum(axis=2)])
        informing = (known > INFORMS * known.sum(axis=0)).sum(axis=0).astype(np.float64)
    drift = np.maximum(((g - g.mean(axis=0)) ** 2).mean(axis=0), LEAST)
    mean, covariance = np.empty_like(drift), np.empty_like(H[0])
    kernels.random_effects(
        *(np.ascontiguousarray(g), np.ascontiguousarray(H), regular, roots, informing),
        *(drift, iterations, mean, covariance),
    )
    return mean, covariance, drift
