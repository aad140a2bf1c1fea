"""LinUCB whose coefficients lie near an affine subspace that earlier tasks share (Bilaj, Dhouib & Maghsudi
2024).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from invariant_bandits.checks import Array, finite_array
from invariant_bandits.decomposition.paths import check_estimable, window_paths
from invariant_bandits.policies import radii as bounds
from invariant_bandits.policies.linear import LinearPolicy
from invariant_bandits.policies.memory import MemoryState
from invariant_bandits.policies.past import Past
from invariant_bandits.policies.registry import register_policy
from invariant_bandits.storage import ArraySpec, StateSchema

OFF_SUBSPACE = 0.05
"""Standard deviation off the subspace, in units of the smallest along it."""


class Tasks(NamedTuple):
    """What the windows of the logs say of how coefficients differ between tasks.

    second_moment (p, p): mean of γγᵀ about `center` (p,), sampling error taken off. error: mean variance of a
    window's estimate along a direction. windows: their number.
    """

    second_moment: Array
    center: Array
    error: float
    windows: int

    @classmethod
    def of(cls, past: Past, *, centered: bool) -> Tasks:
        """The windows of a past, about their mean if `centered`, else about 0."""
        check_estimable(
            past.moments, [f"x{j}" for j in range(past.dim)], use_offered=False
        )
        paths, _, _ = window_paths(past.moments)
        center = paths.coefficients.mean(axis=0) * centered
        apart, error = paths.coefficients - center, paths.covariances.mean(axis=0)
        moment = apart.T @ apart / (len(apart) - centered) - error
        return cls(moment, center, float(np.trace(error)) / past.dim, len(apart))

    def directions(self, rank: int | None) -> tuple[Array, Array]:
        """The leading directions (p, r) and their second moments (r,).

        Without a rank, all whose second moment exceeds twice the largest that sampling error alone would show
        (Marchenko & Pastur 1967).
        """
        values, vectors = np.linalg.eigh(self.second_moment)
        values, vectors = values[::-1], vectors[:, ::-1]
        ratio = len(values) / self.windows
        largest = self.error * (2.0 * np.sqrt(ratio) + ratio)
        rank = int((values > 2.0 * largest).sum()) if rank is None else rank
        rank = min(max(rank, 1), len(values))
        return vectors[:, :rank], np.maximum(values[:rank], self.error)


class AffinePart:
    """Coefficients μ + Mc, of which c is learned: what LinearPolicy asks of an invariant part."""

    stable = 0

    def __init__(self, center: Array, axes: Array) -> None:
        self.lift = np.ascontiguousarray(np.column_stack([center, axes]))
        self.learned_dim = axes.shape[1]

    def radii(
        self, memory: MemoryState, volume: float, assumed: bounds.Assumptions
    ) -> tuple[float, float]:
        """The memory's own radius; the center counts as exact."""
        return memory.radius(volume, assumed), 0.0


@register_policy("affine-linucb")
class AffineLinUCB(LinearPolicy):
    """LinUCB in an affine subspace of coefficients that several tasks share (Bilaj et al. 2024).

    The method `from_past` treats every window (period of the log) as an earlier task. The center of the
    subspace is the mean of the tasks' coefficients, and the axes are their principal directions. Ridge
    regression pulls the coefficients towards the center, weakly along the subspace and strongly in all other
    directions.

    Parameters
    ----------
    center : array, shape (p,)
        Center μ of the subspace: the coefficients before any reward is seen.
    axes : array, shape (p, q)
        Axes M of the subspace, scaled by the typical deviation of coefficients from the center. Without any
        axes the policy learns nothing.
    **rest :
        Parameters of LinearPolicy other than dim, invariant and draws.

    >>> from invariant_bandits_reproduction.policies import AffineLinUCB
    >>> import numpy as np, invariant_bandits as ib
    >>> policy = AffineLinUCB([1.0, 1.0], [[1.0], [0.0]])     # the second coefficient is known
    >>> policy.update([1.0, 0.0], 3.0)
    >>> policy.coefficients.round(1).tolist()
    [2.8, 1.0]
    """

    needs = ("noise_scale", "feature_bound", "delta")
    starting: ClassVar[tuple[str, ...]] = ("rank", "memory")

    def __init__(self, center: Any, axes: Any, **rest: Any) -> None:
        self.center = finite_array("center", center, ("p",)).copy()
        empty = np.zeros((len(self.center), 0))
        self.axes = (
            finite_array("axes", axes, (len(self.center), "q")).copy()
            if np.size(axes)
            else empty
        )
        super().__init__(
            len(self.center), invariant=AffinePart(self.center, self.axes), **rest
        )

    @classmethod
    def from_past(cls, past: Past, *, rank: int | None = None, **options: Any) -> Self:
        """Estimate center and axes from the windows (periods) of the logs and return an AffineLinUCB policy.

        By default the subspace has every direction in which the coefficients vary clearly more than by
        sampling error. The parameter `rank` sets the dimension of the estimated subspace.
        """
        tasks = Tasks.of(past, centered=True)
        along, sizes = tasks.directions(rank)
        others = np.linalg.qr(along, mode="complete")[0][:, along.shape[1] :]
        axes = np.column_stack(
            [along * np.sqrt(sizes), others * (OFF_SUBSPACE * np.sqrt(sizes.min()))]
        )
        length = float(np.sqrt(along.shape[1]))
        settings = cls.known_from(past) | {
            "ridge": past.noise_scale**2,
            "norm_bound": length,
        }
        return cls(tasks.center, axes, **{**settings, **options})

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """The subspace and the memory."""
        return {
            "center": self.center.copy(),
            "axes": self.axes.copy(),
            **super().arrays(),
        }

    @classmethod
    def state_schema(
        cls, settings: Mapping[str, Any], names: Collection[str]
    ) -> StateSchema:
        """The subspace, and what LinearPolicy keeps of its q coordinates."""
        subspace = {"center": ArraySpec(("p",)), "axes": ArraySpec(("p", "q"))}
        return StateSchema({**super().state_schema(settings, names).arrays, **subspace})

    @classmethod
    def from_state(
        cls, settings: Mapping[str, Any], arrays: Mapping[str, np.ndarray[Any, Any]]
    ) -> Self:
        """The policy that had these settings and arrays."""
        return super().from_state(
            {**settings, "center": arrays["center"], "axes": arrays["axes"]}, arrays
        )
