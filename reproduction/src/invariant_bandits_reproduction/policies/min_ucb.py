"""MIN-UCB (Cheung & Lyu 2024), Ellipsoidal-MINUCB (Han et al. 2026): LinUCB with logs of a bounded bias."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Self

import numpy as np

from invariant_bandits.checks import Array, finite_array
from invariant_bandits.policies import base
from invariant_bandits.policies.base import Option
from invariant_bandits.policies.linear import LinUCB
from invariant_bandits.policies.past import Past
from invariant_bandits.policies.registry import register_policy
from invariant_bandits.storage import ArraySpec, StateSchema, under
from invariant_bandits_reproduction.policies.two_regressions import (
    NARROW,
    WIDE,
    LowerOfTwoBounds,
)


@register_policy("ellipsoidal-minucb")
class EllipsoidalMinUCB(LowerOfTwoBounds):
    """LinUCB whose bounds use the logs where a certificate of their bias lets them (Han et al. 2026).

    One regression learns the logged and the online rounds, the other the online rounds alone. The
    coefficients of the logs are constant, and differ from those online by at most what the certificate says.
    The paper plays in the layers of SupLinUCB; this is the same rule with upper confidence bounds.

    Parameters
    ----------
    shifts : array, shape (p, k)
        The certificate: coefficients online minus those of the logs are Su with S this matrix and
        ‖u‖ ≤ `bias_bound`. In the paper's notation SSᵀ is the inverse of the matrix M.
    logged_gram : array, shape (p, p)
        Gram matrix of the logged features.
    bias_bound : float
        Length of the certificate.
    **common :
        The parameters ridge, delta, noise_scale, norm_bound, feature_bound and exploration of
        LinearPolicy.

    >>> from invariant_bandits_reproduction.policies import EllipsoidalMinUCB
    >>> import numpy as np, invariant_bandits as ib
    >>> features = np.tile(np.eye(2), (50, 1))
    >>> moments = ib.WindowedMoments.from_arrays(features, features @ [0.5, 1.0], windows=1)
    >>> past = ib.Past(moments=moments, noise_scale=0.1)
    >>> only_first = EllipsoidalMinUCB.from_past(past, shifts=[[1.0], [0.0]])
    >>> only_first.decide(np.eye(2)).widths.round(1).tolist()       # the second coefficient lasts
    [1.1, 0.1]
    """

    options: ClassVar[Mapping[str, Option]] = {
        **LinUCB.options,
        "bias_bound": Option(1.0, base.not_negative),
    }
    starting: ClassVar[tuple[str, ...]] = ("shifts",)
    needs = ("noise_scale", "feature_bound", "delta")
    bias_bound: float

    def __init__(self, shifts: Any, logged_gram: Any, **options: Any) -> None:
        self._take_options(options)
        self.shifts = finite_array("shifts", shifts, ("p", "k"))
        self.dim = len(self.shifts)
        self.logged_gram = finite_array("logged_gram", logged_gram, (self.dim,) * 2)
        common = {name: getattr(self, name) for name in LinUCB.options}
        self._narrow = LinUCB(self.dim, **common)
        self._wide = LinUCB(self.dim, **common)

    @classmethod
    def from_past(cls, past: Past, *, shifts: Any = None, **options: Any) -> Self:
        """Return a policy whose first regression has learned the logs.

        By default the certificate lets the coefficients move in the drifting directions of the logs only.
        """
        if shifts is None:
            drifting = past.decomposition.split_.residual
            shifts = drifting if drifting.size else np.zeros((past.dim, 1))
        gram = past.moments.second_moment()
        policy = cls(shifts, gram, **{**cls.known_from(past), **options})
        policy._narrow._learn_past(past, None)
        return policy

    def _bias(self, features: Array) -> Array:
        """ρ‖SᵀGA⁻¹φ‖ (K,), because the estimate is off by A⁻¹G(γ_logs − γ)."""
        root = self._narrow._memory.norm_root()  # NNᵀ = A⁻¹
        weights_of_logs = features @ root @ root.T @ self.logged_gram
        return np.asarray(
            self.bias_bound * np.linalg.norm(weights_of_logs @ self.shifts, axis=1)
        )

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """The certificate, the logged Gram matrix and the two regressions."""
        own = {"shifts": self.shifts.copy(), "logged_gram": self.logged_gram.copy()}
        return own | super().arrays()

    @classmethod
    def state_schema(
        cls, settings: Mapping[str, Any], names: Collection[str]
    ) -> StateSchema:
        """As `arrays`."""
        own = {"shifts": ArraySpec(("p", "k")), "logged_gram": ArraySpec(("p", "p"))}
        return StateSchema(own, parts=super().state_schema(settings, names).parts)

    @classmethod
    def from_state(
        cls, settings: Mapping[str, Any], arrays: Mapping[str, np.ndarray[Any, Any]]
    ) -> Self:
        """The policy that had these settings and arrays."""
        policy = cls(arrays["shifts"], arrays["logged_gram"], **settings)
        policy._narrow._restore(under(arrays, NARROW))
        policy._wide._restore(under(arrays, WIDE))
        return policy


@register_policy("min-ucb")
class MinUCB(EllipsoidalMinUCB):
    """LinUCB that uses the logs where a bound on the length of their bias lets it (Cheung & Lyu 2024).

    It is the linear form of a policy for arms: the certificate is a ball, ‖γ − γ_logs‖ ≤ `bias_bound`.

    The class `EllipsoidalMinUCB` documents the parameters.
    """

    starting = ()

    @classmethod
    def from_past(cls, past: Past, **options: Any) -> Self:
        """Return a policy whose first regression has learned the logs."""
        return super().from_past(past, shifts=np.eye(past.dim), **options)
