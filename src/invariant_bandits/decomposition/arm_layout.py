"""Where the coefficients of labelled arms stand in one vector, and the features that go with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError, one_of
from invariant_bandits.logs.arm_features import ArmFeatures

CODINGS = ("own", "shared")


@dataclass(frozen=True)
class ArmLayout:
    """Coordinates of A arms: first `own` coefficients of every arm, arm by arm, then `shared` ones.

    Parameters
    ----------
    arms : int
        A.
    own : int
        Coefficients that every arm has of its own: all d of them ("own" coding), or its intercept ("shared").
    shared : int
        Coefficients that all arms have in common; 0 in the "own" coding.

    >>> ArmLayout.of(arms=3, width=2, coding="own"), ArmLayout.of(arms=3, width=2, coding="shared").dim
    (ArmLayout(arms=3, own=2, shared=0), 4)
    """

    arms: int
    own: int
    shared: int = 0

    @classmethod
    def of(cls, *, arms: int, width: int, coding: str = "own", described: int = 0) -> ArmLayout:
        """The layout of arms with contexts z of `width` numbers, 1 first, and `described` features of every arm.

        own: φ = e_a ⊗ z. shared: φ = [e_a, x], z = [1, x]; with features f of the arms φ = [e_a, x, f(a) ⊗ x].
        """
        if one_of("coding", coding, CODINGS) == "own":
            return cls(arms, width)
        return cls(arms, 1, (width - 1) * (1 + described))

    @classmethod
    def of_features(cls, features: ArmFeatures) -> ArmLayout:
        """The layout of the features φ(x, a) that a log was read with."""
        arms = len(features.labels)
        return cls(arms, features.width) if features.coding == "own" else cls(arms, 1, features.dim - arms)

    @property
    def dim(self) -> int:
        """Number of coefficients p."""
        return self.arms * self.own + self.shared

    @property
    def groups(self) -> Array:
        """Common directions (p, own): column k is one for the k-th own coefficient of every arm."""
        result = np.zeros((self.dim, self.own))
        result[: self.arms * self.own] = np.tile(np.eye(self.own), (self.arms, 1))
        return result

    def arm(self, index: int) -> slice:
        """The own coordinates of an arm."""
        return slice(index * self.own, (index + 1) * self.own)

    def by_arm(self, values: Array) -> Array:
        """The own part of coefficients (..., p) as (..., A, own)."""
        own = values[..., : self.arms * self.own]
        return own.reshape(*own.shape[:-1], self.arms, self.own)

    def features(self, contexts: Array, arms: np.ndarray[Any, Any], described: Array | None = None) -> Array:
        """φ (n, p) of rounds with contexts z (n, d), 1 first, and arms (n,); described: features of the arms (A, c)."""
        n = len(contexts)
        result = np.zeros((n, self.dim))
        each = np.arange(n)
        for k in range(self.own):
            result[each, arms * self.own + k] = contexts[:, k]
        if self.shared:
            slopes = contexts[:, 1:]
            first = self.arms * self.own
            result[:, first : first + slopes.shape[1]] = slopes
            if described is not None and described.size:
                pairs = described[arms][:, :, None] * slopes[:, None, :]
                result[:, first + slopes.shape[1] :] = pairs.reshape(n, -1)
        return result

    def grown(self) -> ArmLayout:
        """With one arm more, after the others."""
        return ArmLayout(self.arms + 1, self.own, self.shared)

    def shrunk(self) -> ArmLayout:
        """With one arm less."""
        if self.arms < 2:
            raise InputError("the last arm cannot be taken out")
        return ArmLayout(self.arms - 1, self.own, self.shared)

    def without(self, index: int) -> np.ndarray[Any, Any]:
        """Coordinates that are left without an arm."""
        if not 0 <= index < self.arms:
            raise InputError(f"arm must be from 0 to {self.arms - 1}, got {index!r}")
        every = np.arange(self.dim)
        return np.delete(every, every[self.arm(index)])
