"""LinUCB in a latent subspace that is learned offline (Kausik, Tan & Tewari 2024)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Self

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.policies import base
from invariant_bandits.policies.base import ComposedPolicy, Scores
from invariant_bandits.policies.linear import LinUCB
from invariant_bandits.policies.past import Past
from invariant_bandits.policies.registry import register_policy
from invariant_bandits.storage import ANYTHING, StateSchema, prefixed, under
from invariant_bandits_reproduction.policies.affine_subspace import AffineLinUCB, Tasks

NARROW, WIDE = "narrow.", "wide."


@register_policy("latent-linucb")
class LatentLinUCB(ComposedPolicy):
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

    options = ("subspace_error",)

    def __init__(
        self, axes: Any, *, subspace_error: float = 0.0, **common: Any
    ) -> None:
        self.subspace_error = base.not_negative("subspace_error", subspace_error, 1.0)
        self._narrow = AffineLinUCB(np.zeros(len(axes)), axes, **common)
        self.dim = self._narrow.dim
        self._wide = LinUCB(self.dim, **common)
        self._common = common

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
        settings = past.settings() | {"norm_bound": float(np.sqrt(sizes.sum()))}
        return cls(axes, subspace_error=error, **{**settings, **options})

    @property
    def rounds(self) -> int:
        """Number of rounds learned so far."""
        return int(self._wide.rounds)

    def _bounds(self, features: Array) -> tuple[Array, Array]:
        """Means and widths (n,) of actions with features (n, p), by the regression whose bound is lower."""
        with self._lock:
            narrow, wide = self._narrow.scores(features), self._wide.scores(features)
        bias = (
            self.subspace_error
            * self._wide.norm_bound
            * np.linalg.norm(features, axis=1)
        )
        factor = self._wide.exploration
        width = narrow.width + (
            bias / factor if factor > 0.0 else 0.0
        )  # exploration does not lessen a bias
        lower = narrow.mean + factor * width <= wide.mean + factor * wide.width
        return np.where(lower, narrow.mean, wide.mean), np.where(
            lower, width, wide.width
        )

    def scores(self, features: Any) -> Scores:
        """Return the expected rewards and confidence widths of K actions with features (K, p)."""
        return Scores(*self._bounds(base.offered_array(features, self.dim)))

    def select(self, features: Any) -> int:
        """Return the index of the action with the highest upper confidence bound."""
        return int(self.select_many(base.offered_array(features, self.dim)[None])[0])

    def select_many(self, features: Any) -> np.ndarray[Any, Any]:
        """Return the actions (N,) for N rounds with features (N, K, p), without learning in between."""
        rounds = base.batch_array(features, self.dim)
        means, widths = self._bounds(rounds.reshape(-1, self.dim))
        return np.asarray(
            (means + self._wide.exploration * widths)
            .reshape(rounds.shape[:2])
            .argmax(axis=1)
        )

    def update(
        self,
        features: Any,
        reward: float,
        *,
        offered: Any = None,
        action: int | None = None,
    ) -> None:
        """Learn the reward of the played action with features (p,)."""
        with self._lock:
            self._wide.update(features, reward)
            self._narrow.update(features, reward)

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """The two regressions."""
        with self._lock:
            return prefixed(NARROW, self._narrow.arrays()) | prefixed(
                WIDE, self._wide.arrays()
            )

    @classmethod
    def state_schema(
        cls, settings: Mapping[str, Any], names: Collection[str]
    ) -> StateSchema:
        """The two regressions."""
        return StateSchema({}, parts={NARROW: ANYTHING, WIDE: ANYTHING})

    @classmethod
    def from_state(
        cls, settings: Mapping[str, Any], arrays: Mapping[str, np.ndarray[Any, Any]]
    ) -> Self:
        """The policy that had these settings and arrays."""
        policy = cls(arrays[f"{NARROW}axes"], **settings)
        policy._narrow._restore(under(arrays, NARROW))
        policy._wide._restore(under(arrays, WIDE))
        return policy
