"""ISD-linUCB, the paper's Algorithm 1, and ISD-linTS: an invariant part, and how each explores."""

from __future__ import annotations

from typing import Any

from invariant_bandits.checks import InputError, one_of, whole_number
from invariant_bandits.decomposition.estimator import InvariantSubspaceDecomposition
from invariant_bandits.decomposition.split import Split
from invariant_bandits.moments.windowed import WindowedMoments
from invariant_bandits.policies import radii as bounds
from invariant_bandits.policies.base import not_negative, positive
from invariant_bandits.policies.invariant import InvariantPolicy
from invariant_bandits.policies.registry import policy
from invariant_bandits.policies.thompson import ThompsonPolicy

RADII = ("self-normalised", "theorem")


@policy("isd-linucb", label="ISD-linUCB")
class ISDLinUCB(InvariantPolicy):
    """ISD-linUCB, the paper's Algorithm 1, over any memory.

    Parameters
    ----------
    split : Split
        Invariant and residual part.
    component : array, shape (p,)
        β̂_inv.
    component_precision : array, shape (p_inv, p_inv) or (p, p), optional
        Inverse covariance of its coordinates along split.invariant, or of all p, which is restricted to them. None if
        the component is known exactly (Theorem 1).
    radius : "self-normalised" or "theorem"
        "self-normalised" takes the residual radius published with the memory and Chernoff's bound for the component.
        "theorem" takes Lemmas 2 and 3 literally (sound, far too wide to be useful). It needs feature_bound and, unless
        the component is exact, the next three.
    logged_rounds : int, optional
        T0.
    min_eigenvalue : float, optional
        λ0 of the logs' Gram matrix per round.
    subspace_error : float
        ΔΠ = ‖Π̂ − Π‖, 0 if the split is known.
    **rest :
        As in LinearPolicy, but for dim, lift and residual_dim.

    >>> import numpy as np, invariant_bandits as ib
    >>> split = ib.Split(np.eye(3)[:, :2], np.eye(3)[:, 2:])
    >>> ib.ISDLinUCB(split, [1.0, 0.5, 0.0])
    ISDLinUCB(Split(invariant_dim=2, residual_dim=1), memory=Forever(), rounds=0)
    """

    def __init__(
        self,
        split: Split,
        component: Any,
        *,
        component_precision: Any = None,
        radius: str = "self-normalised",
        logged_rounds: int | None = None,
        min_eigenvalue: float | None = None,
        subspace_error: float = 0.0,
        **rest: Any,
    ) -> None:
        self.radius = one_of("radius", radius, RADII)
        self.logged_rounds = None if logged_rounds is None else whole_number("logged_rounds", logged_rounds, 1)
        self.min_eigenvalue = None if min_eigenvalue is None else positive("min_eigenvalue", min_eigenvalue)
        self.subspace_error = not_negative("subspace_error", subspace_error)
        if radius == "theorem" and component_precision is not None:
            for name, value in (("logged_rounds", logged_rounds), ("min_eigenvalue", min_eigenvalue)):
                if value is None:
                    raise InputError(f"{name} is missing: radius='theorem' with an estimated component needs it")
        super().__init__(split, component, component_precision=component_precision, **rest)

    @classmethod
    def _history_facts(cls, fit: InvariantSubspaceDecomposition, moments: WindowedMoments) -> dict[str, Any]:
        return {"logged_rounds": moments.rounds, "min_eigenvalue": fit.min_eigenvalue_}

    def _gram_radius(self) -> float:
        """Lemma 2's bound on ‖β̂ − β‖ in the logs' Gram matrix; 0 for an exact component."""
        if self.component_precision is None or self.logged_rounds is None or self.min_eigenvalue is None:
            return 0.0
        return bounds.lemma2_invariant_radius(
            self.split.invariant_dim,
            self.min_eigenvalue,
            self.logged_rounds,
            self.subspace_error,
            self.confidence,
            self.noise_scale,
            self.norm_bound,
            self.feature_bound,
        )

    def _component_radius(self) -> float:
        """Radius in the norm of the inverse covariance of β̂, which is the Gram matrix over σ²."""
        if self.component_precision is None:
            return 0.0
        if self.radius == "theorem":
            return self._gram_radius() / self.noise_scale
        return bounds.self_normalised_invariant_radius(self.split.invariant_dim, self.confidence)

    def _residual_radius(self, volume: float) -> float:
        if self.radius == "self-normalised":
            return super()._residual_radius(volume)
        error = 0.0
        if self.component_precision is not None and self.logged_rounds and self.min_eigenvalue:
            error = bounds.component_error(
                self._gram_radius(), self.min_eigenvalue, self.logged_rounds, self.subspace_error, self.norm_bound
            )
        return bounds.lemma3_residual_radius(
            self._memory.rounds,
            self.split.residual_dim,
            error,
            self.subspace_error,
            self.confidence,
            self.noise_scale,
            self.ridge,
            self.norm_bound,
            self.feature_bound,
        )

    def settings(self) -> dict[str, Any]:
        """What the constructor was given, but for the arrays."""
        names = ("radius", "logged_rounds", "min_eigenvalue", "subspace_error")
        return super().settings() | {name: getattr(self, name) for name in names}


@policy("isd-lints", label="ISD-linTS")
class ISDLinTS(InvariantPolicy, ThompsonPolicy):
    """Thompson sampling with an invariant part, over any memory.

    Parameters
    ----------
    split : Split
        Invariant and residual part.
    component : array, shape (p,)
        β̂_inv.
    component_precision : array, shape (p_inv, p_inv) or (p, p), optional
        As in ISDLinUCB.
    seed : int or numpy.random.Generator
        Draws the coefficients.
    **rest :
        As in LinearPolicy, but for dim, lift and residual_dim.

    >>> import numpy as np, invariant_bandits as ib
    >>> split = ib.Split(np.eye(3)[:, :2], np.eye(3)[:, 2:])
    >>> ib.ISDLinTS(split, [1.0, 0.5, 0.0], seed=0)
    ISDLinTS(Split(invariant_dim=2, residual_dim=1), memory=Forever(), rounds=0)
    """

    def _component_radius(self) -> float:
        if self.component_precision is None:
            return 0.0
        return bounds.thompson_scale(self._memory.rounds, self.split.invariant_dim, self.confidence, 1.0)
