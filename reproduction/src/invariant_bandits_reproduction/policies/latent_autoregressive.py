"""LinUCB for rewards that follow a latent autoregressive state (Trella et al. 2024)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

import numpy as np

from invariant_bandits.checks import Array, probability, whole_number
from invariant_bandits.policies import base
from invariant_bandits.policies.base import BasePolicy, Option
from invariant_bandits.policies.choice import Choice
from invariant_bandits.policies.linear import LinUCB
from invariant_bandits.policies.registry import register_policy
from invariant_bandits.storage import ANYTHING, ArraySpec, StateSchema, prefixed, under

INNER = "inner."


@register_policy("latent-ar-linucb")
class LatentARLinUCB(BasePolicy):
    """LinUCB for coefficients that follow a hidden autoregressive state (Trella et al. 2024).

    The expected reward of an action with features φ is φᵀ(γ + z·b), where γ and b are fixed coefficients and
    the hidden state z is an autoregressive process. The policy predicts the state z from its latest
    prediction errors. The inputs of LinUCB are the features φ and the products of φ with a vector h, which
    summarises past prediction errors. The vector h is the discounted sum of past features times their
    prediction errors.

    Parameters
    ----------
    dim : int
        Number of features p. The regression of LatentARLinUCB has p(1 + p) coefficients.
    decay : float
        Factor, between 0 and 1, by which the weight of old prediction errors shrinks in each round.
    **common :
        The parameters ridge, delta, noise_scale, norm_bound, feature_bound and exploration of
        LinearPolicy.

    >>> from invariant_bandits_reproduction.policies import LatentARLinUCB
    >>> import numpy as np, invariant_bandits as ib
    >>> policy = LatentARLinUCB(2, exploration=0.1)
    >>> for t in range(400):                                # signs that change every 20 rounds
    ...     row = np.eye(2)[t % 2]
    ...     policy.update(row, float(row @ [1.0, -1.0]) * (1.0 if t // 20 % 2 else -1.0))
    >>> policy.select(np.eye(2))                            # the first action was good in the last rounds
    0
    """

    options: ClassVar[Mapping[str, Option]] = {
        **LinUCB.options,
        "decay": Option(0.8, probability),
    }
    needs = LinUCB.needs
    shown = ("dim", "decay")
    decay: float

    def __init__(self, dim: int, **options: Any) -> None:
        self.dim = whole_number("dim", dim, 1)
        self._take_options(options)
        self._recent = np.zeros(self.dim)
        common = {name: getattr(self, name) for name in LinUCB.options}
        self._regression = LinUCB(self.dim * (1 + self.dim), **common)

    @property
    def rounds(self) -> int:
        """Number of rounds learned so far."""
        return int(self._regression.rounds)

    def _extended(self, features: Array) -> Array:
        """φ ⊗ [1, h] of features (K, p), shape (K, p(1 + p))."""
        factors = np.concatenate([[1.0], self._recent])
        products = factors[:, None] * features[:, None, :]
        return np.ascontiguousarray(products.reshape(len(features), -1))

    def decide(self, offered: Any, *, draw: float | None = None) -> Choice:
        """Choose one of K actions as LinUCB does, given the products of their features and past errors."""
        with self._lock:
            rows = self._extended(base.offered_array(offered, self.dim))
            return self._regression.decide(rows)

    def update(
        self,
        features: Any,
        reward: float,
        *,
        offered: Any = None,
        action: int | None = None,
    ) -> None:
        """Learn the reward of the played action with features (p,) and record the prediction error."""
        row, value = base.chosen_array(features, self.dim), base.reward_number(reward)
        with self._lock:
            extended = self._extended(row[None])[0]
            still = np.where(np.arange(len(extended)) < self.dim, extended, 0.0)
            error = value - float(self._regression.scores(still[None]).mean[0])
            self._regression.update(extended, value)
            self._recent = self.decay * self._recent + (1.0 - self.decay) * error * row

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """The discounted errors and the regression."""
        with self._lock:
            return {"recent": self._recent.copy()} | prefixed(
                INNER, self._regression.arrays()
            )

    @classmethod
    def state_schema(
        cls, settings: Mapping[str, Any], names: Collection[str]
    ) -> StateSchema:
        """The discounted errors, and the regression."""
        dim = whole_number("dim", settings["dim"], 1)
        return StateSchema({"recent": ArraySpec((dim,))}, parts={INNER: ANYTHING})

    def _restore(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        self._recent = np.array(arrays["recent"])
        self._regression._restore(under(arrays, INNER))
