"""Policies as contextual policies of river."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from river.bandit.base import ContextualPolicy

from invariant_bandits.adapters.learners import FeatureAdapter, place_of


class RiverPolicy(ContextualPolicy):  # type: ignore[misc]
    """A policy for `river.bandit.evaluate_offline` and wherever river pulls arms by contexts.

    Parameters
    ----------
    policy : Policy or str
        As in `FeatureAdapter`; contexts are mappings of names to numbers.
    arms : sequence, optional
        All arms that will ever be offered; by default those of the first round.
    """

    def __init__(self, policy: Any, arms: Sequence[Any] | None = None) -> None:
        super().__init__()
        self.policy, self.arms = policy, arms
        # Clones of river begin anew.
        self._adapter = FeatureAdapter(copy.deepcopy(policy), arms)
        self._arms: list[Any] = []

    def _pull(self, arm_ids: Any, context: dict[str, float]) -> Any:
        self._arms = list(arm_ids)
        return self._arms[self._adapter.choose(context, self._arms)[0]]

    def update(self, arm_id: Any, context: dict[str, float], reward: float) -> None:
        """Learn the reward of one of the arms that could be pulled last."""
        place = place_of(arm_id, self._arms, "arm_id")
        offered = self._adapter.features(context, self._arms)
        self._adapter.learn_row(offered, place, reward)
        super().update(arm_id, context, reward)
