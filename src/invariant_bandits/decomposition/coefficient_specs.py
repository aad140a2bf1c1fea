"""What stored arrays of coefficients, variances and covariances must be."""

from __future__ import annotations

from functools import partial
from typing import Annotated, TypeAlias

from invariant_bandits.checks import Array
from invariant_bandits.storage import ArraySpec

LARGEST_MEAN, LARGEST_VARIANCE = 1e100, 1e200
"""Of coefficients in a stored state; squares of them are still numbers."""
Coefficients: TypeAlias = Annotated[
    Array, ArraySpec(("p",), least=-LARGEST_MEAN, most=LARGEST_MEAN)
]
variance_spec = partial(ArraySpec, least=0.0, most=LARGEST_VARIANCE)
covariance_spec = partial(ArraySpec, least=-LARGEST_VARIANCE, most=LARGEST_VARIANCE)
Variances: TypeAlias = Annotated[Array, variance_spec(("p",))]
Covariance: TypeAlias = Annotated[Array, covariance_spec(("p", "p"))]
OwnVariances: TypeAlias = Annotated[Array, variance_spec(("o",))]
"""Coefficients of all arms (p,), variances and covariance of them, and variances of an arm's own ones (o,).
"""
LEAST_NOISE = 1e-200
"""Variance of the noise in a stored state."""


def optional_spec(*shape: str, least: float = -LARGEST_VARIANCE) -> ArraySpec:
    """An array that is empty where nothing is known."""
    return ArraySpec(shape, least=least, most=LARGEST_VARIANCE, or_empty=True)
