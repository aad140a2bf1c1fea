"""Policies as learners of coba, obp and mabwiser: contexts and actions become features, nothing else changes.

None of these packages is imported here, so that the classes can be used wherever their methods fit.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from invariant_bandits.checks import Array, InputError
from invariant_bandits.logs.formats.table import cross_features
from invariant_bandits.moments.windowed import WindowedMoments
from invariant_bandits.policies.base import learn_from, own_propensities
from invariant_bandits.policies.past import Past
from invariant_bandits.policies.registry import find_policy


class FeatureAdapter:
    """A policy that meets contexts x and actions a instead of features: φ(x, a) = [a, x ⊗ a].

    An action that is a number or a word is a label. It stands for its indicator among the labels of the first
    round. Without a context φ(a) = a.

    Parameters
    ----------
    policy : Policy or str
        A policy over these features, or a registered name, such as "linucb,exploration=0.3": that policy is
        made in the first round and knows no logs.

    >>> adapter = FeatureAdapter("linucb")
    >>> adapter.features([2.0], ["left", "right"]).tolist()
    [[1.0, 0.0, 2.0, 0.0], [0.0, 1.0, 0.0, 2.0]]
    >>> adapter.features({"age": 3.0}, [[1.0, 5.0]]).tolist()
    [[1.0, 5.0, 3.0, 15.0]]
    """

    def __init__(self, policy: Any) -> None:
        self.policy: Any = find_policy(policy) if isinstance(policy, str) else policy
        self._indicators: dict[Any, Array] = {}

    def features(self, context: Any, actions: Sequence[Any]) -> Array:
        """Features (K, p) of the actions; a mapping is taken in the order of its sorted names."""
        if isinstance(context, Mapping):
            context = [context[name] for name in sorted(context)]
        numbers = np.atleast_1d(np.asarray([] if context is None else context, dtype=np.float64))
        if np.ndim(actions[0]) == 0:
            self._indicators = self._indicators or dict(zip(actions, np.eye(len(actions)), strict=True))
            unknown = [action for action in actions if action not in self._indicators]
            if unknown:
                known = ", ".join(map(str, self._indicators))
                raise InputError(f"actions must be among those of the first round, {known}; got {unknown[0]}")
            actions = [self._indicators[action] for action in actions]
        return np.asarray(cross_features(numbers[None], np.asarray(actions, dtype=np.float64))[0])

    def choose(self, context: Any, actions: Sequence[Any]) -> tuple[int, Array]:
        """Index of the chosen action, and the features (K, p)."""
        features = self.features(context, actions)
        if hasattr(self.policy, "build"):
            moments = WindowedMoments.empty(features.shape[1], 1)
            self.policy = self.policy.build(Past(moments=moments, actions=len(features), noise_scale=1.0))
        return int(self.policy.select(features)), features


class CobaLearner(FeatureAdapter):
    """A policy as a learner of coba: `Experiment(environments, [CobaLearner("auto-isd")])`.

    Parameters as in `FeatureAdapter`.
    """

    @property
    def params(self) -> dict[str, Any]:
        """What coba's tables call it."""
        return {"family": getattr(self.policy, "name", type(self.policy).__name__)}

    def predict(self, context: Any, actions: Sequence[Any]) -> tuple[Any, float, dict[str, Any]]:
        """The action, its probability, and what `learn` is handed besides."""
        place, features = self.choose(context, actions)
        chance = float(own_propensities(self.policy, features)[place])
        return actions[place], chance, {"place": place, "offered": features}

    def learn(
        self,
        context: Any,
        action: Any,
        reward: float,
        probability: float,
        place: int | None = None,
        offered: Array | None = None,
    ) -> None:
        """Learn the reward of an action, one of another policy if nothing was predicted."""
        row = self.features(context, [action])[0] if offered is None or place is None else offered[place]
        learn_from(self.policy)(row, reward, offered=offered, action=place)


class ObpPolicy(FeatureAdapter):
    """A policy as a contextual policy of the Open Bandit Pipeline, for the loops of `obp.simulator`.

    Parameters
    ----------
    policy : Policy or str
        As in `FeatureAdapter`.
    n_actions : int
        Number of actions, which are labels 0 to n_actions − 1.
    """

    len_list = 1

    def __init__(self, policy: Any, n_actions: int) -> None:
        super().__init__(policy)
        self.n_actions = n_actions

    @property
    def policy_type(self) -> Any:
        """What obp asks for."""
        from obp.policy.policy_type import PolicyType

        return PolicyType.CONTEXTUAL

    def select_action(self, context: Array) -> np.ndarray[Any, Any]:
        """The chosen action (1,) for a context (1, d)."""
        return np.array([self.choose(context[0], range(self.n_actions))[0]])

    def update_params(self, action: int, reward: float, context: Array) -> None:
        """Learn the reward of an action in a context (1, d)."""
        offered = self.features(context[0], range(self.n_actions))
        learn_from(self.policy)(offered[action], float(reward), offered=offered, action=int(action))


class MabwiserPolicy(FeatureAdapter):
    """A policy with the methods of mabwiser's MAB.

    Parameters
    ----------
    arms : sequence
        Labels of the arms.
    policy : Policy or str
        As in `FeatureAdapter`.

    >>> mab = MabwiserPolicy(["a", "b"], "linucb").fit(["a", "b"], [1.0, 0.0], [[1.0], [1.0]])
    >>> mab.predict([[1.0]])
    'a'
    """

    def __init__(self, arms: Sequence[Any], policy: Any) -> None:
        super().__init__(policy)
        self.arms, self._fresh = list(arms), copy.deepcopy(self.policy)

    def fit(self, decisions: Any, rewards: Any, contexts: Any = None) -> Self:
        """Start anew and learn these rounds: arms (n,), rewards (n,) and contexts (n, d)."""
        self.policy = copy.deepcopy(self._fresh)
        return self.partial_fit(decisions, rewards, contexts)

    def partial_fit(self, decisions: Any, rewards: Any, contexts: Any = None) -> Self:
        """Learn further rounds."""
        rows = [None] * len(decisions) if contexts is None else np.asarray(contexts)
        for arm, reward, context in zip(decisions, rewards, rows, strict=True):
            offered, place = self.choose(context, self.arms)[1], self.arms.index(arm)
            learn_from(self.policy)(offered[place], float(reward), offered=offered, action=place)
        return self

    def predict(self, contexts: Any = None) -> Any:
        """The arm for one context, or a list of arms for several."""
        rows = [None] if contexts is None else np.asarray(contexts)
        arms = [self.arms[self.choose(context, self.arms)[0]] for context in rows]
        return arms[0] if len(arms) == 1 else arms

    def predict_expectations(self, contexts: Any = None) -> Any:
        """Arm -> expected reward, for one context or as a list for several."""
        rows = [None] if contexts is None else np.asarray(contexts)
        means = [self.policy.scores(self.choose(context, self.arms)[1]).mean for context in rows]
        named = [dict(zip(self.arms, mean.tolist(), strict=True)) for mean in means]
        return named[0] if len(named) == 1 else named
