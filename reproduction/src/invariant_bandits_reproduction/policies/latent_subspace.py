"""LinUCB in a latent subspace that is learned offline (Kausik, Tan & Tewari 2024)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.policies import base
from invariant_bandits.policies.base import Option
from invariant_bandits.policies.linear import LinUCB
from invariant_bandits.policies.past import Past
from invariant_bandits.policies.registry import register_policy
from invariant_bandits.storage import under
from invariant_bandits_reproduction.policies.affine_subspace import AffineLinUCB, Tasks
from invariant_bandits_reproduction.policies.two_regressions import (
    NARROW,
    WIDE,
    LowerOfTwoBounds,
)


@register_policy("latent-linucb")
class LatentLinUCB(LowerOfTwoBounds):
    """LinUCB in a low-dimensional subspace that is estimated from logs (Kausik et al. 2024).

    The policy assumes that the coefficients online lie in the same subspace as in every window (period) of
    the logs. Two regressions learn every round: one in the subspace and one in all features. Each regression
    gives an upper confidence bound, and the policy uses the smaller of the two bounds. The bound in the
    subspace is widened by the error of the estimated subspace.

    Parameters
    ----------
    axes : array, shape (p, r)
        Matrix U, whose orthonormal columns span the subspace.
    subspace_error : float
        Distance ‖Π̂ − Π‖ between the projections on the estimated and the true subspace.
    **common :
        The parameters ridge, delta, noise_scale, norm_bound, feature_bound and exploration of
        LinearPolicy.

    >>> from invariant_bandits_reproduction.policies import LatentLinUCB
    >>> import numpy as np, invariant_bandits as ib
    >>> policy = LatentLinUCB([[1.0], [0.0]], exploration=0.0)   # the second coefficient is 0
    >>> policy.update([1.0, 0.0], 1.0)
    >>> policy.select(np.eye(2))
    0
    """

    options: ClassVar[Mapping[str, Option]] = {
        **LinUCB.options,
        "subspace_error": Option(0.0, partial(base.not_negative, most=1.0)),
    }
    starting = ("rank",)
    needs = AffineLinUCB.needs
    subspace_error: float

    def __init__(self, axes: Any, **options: Any) -> None:
        self._take_options(options)
        common = {name: getattr(self, name) for name in LinUCB.options}
        self._narrow = AffineLinUCB(np.zeros(len(axes)), axes, **common)
        self.dim = self._narrow.dim
        self._wide = LinUCB(self.dim, **common)

    @classmethod
    def from_past(cls, past: Past, *, rank: int | None = None, **options: Any) -> Self:
        """Estimate the subspace from the windows (periods) of the logs and return a LatentLinUCB policy.

        By default the subspace has every direction in which the estimated coefficients clearly exceed their
        sampling error. The parameter `rank` sets the dimension of the estimated subspace.
        """
        tasks = Tasks.of(past, centered=False)
        axes, sizes = tasks.directions(rank)
        error = min(
            1.0, float(np.sqrt(past.dim * tasks.error / (tasks.windows * sizes.min())))
        )
        settings = cls.known_from(past) | {"norm_bound": float(np.sqrt(sizes.sum()))}
        return cls(axes, subspace_error=error, **{**settings, **options})

    def _bias(self, features: Array) -> Array:
        """Bounds (K,) on what the estimated subspace leaves out."""
        length = self.subspace_error * self._wide.norm_bound
        return np.asarray(length * np.linalg.norm(features, axis=1))

    @classmethod
    def from_state(
        cls, settings: Mapping[str, Any], arrays: Mapping[str, np.ndarray[Any, Any]]
    ) -> Self:
        """The policy that had these settings and arrays."""
        policy = cls(arrays[f"{NARROW}axes"], **settings)
        policy._narrow._restore(under(arrays, NARROW))
        policy._wide._restore(under(arrays, WIDE))
        return policy
