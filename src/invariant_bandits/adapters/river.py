"""Policies as contextual policies of river."""

from __future__ import annotations

import copy
from typing import Any

from river.bandit.base import ContextualPolicy

from invariant_bandits.adapters.learners import FeatureAdapter
from invariant_bandits.policies.base import learn_from


class RiverPolicy(ContextualPolicy):  # type: ignore[misc]
    """A policy for `river.bandit.evaluate_offline` and wherever river pulls arms by contexts.

    Parameters
    ----------
    policy : Policy or str
        As in `FeatureAdapter`; contexts are mappings of names to numbers.
    """

    def __init__(self, policy: Any) -> None:
        super().__init__()
        self.policy = policy
        self._adapter = FeatureAdapter(copy.deepcopy(policy))  # clones of river begin anew
        self._arms: list[Any] = []

    def _pull(self, arm_ids: Any, context: dict[str, float]) -> Any:
        self._arms = list(arm_ids)
        return self._arms[self._adapter.choose(context, self._arms)[0]]

    def update(self, arm_id: Any, context: dict[str, float], reward: float) -> None:
        """Learn the reward of one of the arms that could be pulled last."""
        offered, place = self._adapter.features(context, self._arms), self._arms.index(arm_id)
        learn_from(self._adapter.policy)(offered[place], reward, offered=offered, action=place)
        super().update(arm_id, context, reward)
