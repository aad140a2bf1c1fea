"""Policies as learners of coba, obp and mabwiser: contexts and actions become features, nothing else changes.

None of these packages is imported here, so that the classes can be used wherever their methods fit.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from invariant_bandits.checks import Array, InputError
from invariant_bandits.decomposition.paths import NoLogsError
from invariant_bandits.logs.formats.table import cross_features
from invariant_bandits.moments.windowed import WindowedMoments
from invariant_bandits.policies.choice import as_policy
from invariant_bandits.policies.past import Past
from invariant_bandits.policies.registry import PolicySpec, find_policy


class FeatureAdapter:
    """A policy that meets contexts x and actions a instead of features: φ(x, a) = [a, x ⊗ a].

    An action that is a number or a word is a label. It stands for its indicator among `labels`. Without a
    context φ(a) = a.

    Parameters
    ----------
    policy : Policy or str
        A policy over these features, or a registered name, such as "linucb,exploration=0.3". A named policy
        is made in the first round and knows no logs, so that it must be one that can start without logs. One
        that cannot, such as AutoISD, is fitted first: `ib.AutoISD.from_history(moments)`, with moments of
        the features that the method `features` returns.
    labels : sequence, optional
        All labels that will ever be offered; by default those of the first round.

    >>> adapter = FeatureAdapter("linucb")
    >>> adapter.features([2.0], ["left", "right"]).tolist()
    [[1.0, 0.0, 2.0, 0.0], [0.0, 1.0, 0.0, 2.0]]
    >>> adapter.features({"age": 3.0}, [[1.0, 5.0]]).tolist()
    [[1.0, 5.0, 3.0, 15.0]]
    """

    def __init__(self, policy: Any, labels: Sequence[Any] | None = None) -> None:
        self.policy: Any = None
        if isinstance(policy, str):
            self.policy = find_policy(policy)
        elif policy is not None:
            self.policy = as_policy(policy)
        self._indicators: dict[Any, Array] = {}
        if labels is not None and np.ndim(labels[0]) == 0:
            self._register(labels)
        if isinstance(policy, str):
            _check_starts_cold(self.policy)

    def _register(self, labels: Sequence[Any]) -> None:
        """Give every label its indicator."""
        self._indicators = dict(zip(labels, np.eye(len(labels)), strict=True))

    def features(self, context: Any, actions: Sequence[Any]) -> Array:
        """Features (K, p) of the actions; a mapping is taken in the order of its sorted names."""
        if isinstance(context, Mapping):
            context = [context[name] for name in sorted(context)]
        numbers = np.array([] if context is None else context, np.float64, ndmin=1)
        if np.ndim(actions[0]) == 0:
            if not self._indicators:
                self._register(actions)
            unknown = [action for action in actions if action not in self._indicators]
            if unknown:
                known = ", ".join(map(str, self._indicators))
                more = "give all that will ever be offered as `labels`"
                raise InputError(
                    f"actions must be among those of the first round, {known}; got {unknown[0]}: {more}"
                )
            actions = [self._indicators[action] for action in actions]
        rows = np.asarray(actions, dtype=np.float64)
        return np.asarray(cross_features(numbers[None], rows)[0])

    def choose(self, context: Any, actions: Sequence[Any]) -> tuple[int, Array]:
        """Index of the chosen action, and the features (K, p)."""
        features = self.features(context, actions)
        if isinstance(self.policy, PolicySpec):
            self.policy = self.policy.build(
                _empty_past(features.shape[1], len(features))
            )
        return int(self.policy.select(features)), features

    def learn_row(self, offered: Array, index: int, reward: Any) -> None:
        """Learn the reward of one of the offered actions (K, p)."""
        self.policy.update(offered[index], float(reward), offered=offered, action=index)


def _empty_past(dim: int, actions: int) -> Past:
    """Return what a policy knows that is made in its first round, without logs."""
    return Past(moments=WindowedMoments.empty(dim, 1), actions=actions, noise_scale=1.0)


def _check_starts_cold(policy: PolicySpec) -> None:
    """Raise InputError for a policy that cannot start without logs.

    Packages with loops of their own may report an error of the first round late or never, hence the trial.
    """
    try:
        policy.build(_empty_past(dim=2, actions=2))
    except NoLogsError:
        fitted = "hand over one fitted on logs, for instance ib.AutoISD.from_history(moments)"
        raise InputError(
            f"policy: {policy.name!r} needs logs and cannot be made by its name here: {fitted}"
        ) from None
    except InputError:  # of such a small round: the first true round decides
        return


def place_of(arm: Any, arms: Sequence[Any], name: str) -> int:
    """Return the index of an arm among those offered, or raise InputError."""
    if arm not in arms:
        raise InputError(
            f"{name} must be one of {', '.join(map(str, arms)) or 'the arms offered'}, got {arm!r}"
        )
    return arms.index(arm)


class CobaLearner(FeatureAdapter):
    """A policy as a learner of coba: `Experiment(environments, [CobaLearner("linucb,exploration=0.3")])`.

    Parameters as in `FeatureAdapter`.

    >>> learner = CobaLearner("linucb,exploration=0.3")
    >>> action, probability, about = learner.predict([0.5], ["left", "right"])
    >>> learner.learn([0.5], action, 1.0, probability, **about)
    >>> action, probability, learner.policy.rounds
    ('left', 1.0, 1)
    """

    @property
    def params(self) -> dict[str, Any]:
        """What coba's tables call it."""
        return {"family": getattr(self.policy, "name", type(self.policy).__name__)}

    def predict(
        self, context: Any, actions: Sequence[Any]
    ) -> tuple[Any, float, dict[str, Any]]:
        """The action, its probability, and what `learn` is handed besides."""
        place, features = self.choose(context, actions)
        chance = float(self.policy.propensities(features)[place])
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
        row = None if offered is None or place is None else offered[place]
        if row is None:
            row = self.features(context, [action])[0]
        self.policy.update(row, reward, offered=offered, action=place)


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
        super().__init__(policy, range(n_actions))
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
        self.learn_row(offered, int(action), reward)


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
        super().__init__(policy, list(arms))
        self.arms = list(arms)
        self._fresh = copy.deepcopy(self.policy)

    def fit(self, decisions: Any, rewards: Any, contexts: Any = None) -> Self:
        """Start anew and learn these rounds: arms (n,), rewards (n,) and contexts (n, d)."""
        self.policy = copy.deepcopy(self._fresh)
        return self.partial_fit(decisions, rewards, contexts)

    def partial_fit(self, decisions: Any, rewards: Any, contexts: Any = None) -> Self:
        """Learn further rounds."""
        rows = [None] * len(decisions) if contexts is None else np.asarray(contexts)
        places = [place_of(arm, self.arms, "decisions") for arm in decisions]
        for place, reward, context in zip(places, rewards, rows, strict=True):
            offered = self.choose(context, self.arms)[1]
            self.learn_row(offered, place, reward)
        return self

    def predict(self, contexts: Any = None) -> Any:
        """The arm for one context, or a list of arms for several."""
        rows = [None] if contexts is None else np.asarray(contexts)
        arms = [self.arms[self.choose(context, self.arms)[0]] for context in rows]
        return arms[0] if len(arms) == 1 else arms

    def predict_expectations(self, contexts: Any = None) -> Any:
        """Arm -> expected reward, for one context or as a list for several."""
        rows = [None] if contexts is None else np.asarray(contexts)
        means = [
            self.policy.scores(self.choose(context, self.arms)[1]).mean
            for context in rows
        ]
        named = [dict(zip(self.arms, mean.tolist(), strict=True)) for mean in means]
        return named[0] if len(named) == 1 else named
