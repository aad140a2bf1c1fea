"""Policies with two regressions, of which the lower of two upper confidence bounds counts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.policies import base
from invariant_bandits.policies.base import BasePolicy
from invariant_bandits.policies.choice import Choice, choice_of
from invariant_bandits.policies.linear import LinearPolicy
from invariant_bandits.storage import ANYTHING, StateSchema, prefixed

NARROW, WIDE = "narrow.", "wide."
"""Before the names of the arrays of the two regressions."""


class LowerOfTwoBounds(BasePolicy):
    """Base class: a regression that uses the logs and may be biased, and one that is not.

    Both learn every round. The upper confidence bound of an action is the lower one of the two.

    Attributes
    ----------
    _narrow : LinearPolicy
        The regression that may be biased.
    _wide : LinearPolicy
        The regression in all features that knows nothing of the logs.
    """

    _narrow: LinearPolicy
    _wide: LinearPolicy

    @abstractmethod
    def _bias(self, features: Array) -> Array:
        """Return bounds (K,) on the bias of the narrow regression for features (K, p)."""

    @property
    def rounds(self) -> int:
        """Number of rounds learned so far."""
        return int(self._wide.rounds)

    def decide(self, offered: Any, *, draw: float | None = None) -> Choice:
        """Choose the highest upper confidence bound, where the bound is the lower one of two regressions."""
        features = base.offered_array(offered, self.dim)
        with self._lock:
            narrow, wide = self._narrow.scores(features), self._wide.scores(features)
            bias = self._bias(features)
        factor = self._wide.exploration
        # Exploration does not lessen a bias.
        narrow_bounds = narrow.mean + factor * narrow.width + bias
        wide_bounds = wide.mean + factor * wide.width
        lower = narrow_bounds <= wide_bounds
        means = np.where(lower, narrow.mean, wide.mean)
        widths = np.where(lower, narrow.width + bias, wide.width)
        action = int(np.argmax(np.minimum(narrow_bounds, wide_bounds)))
        return choice_of(action, means, widths)

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
