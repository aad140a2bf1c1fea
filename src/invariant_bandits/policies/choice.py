"""Choice: what a policy decides, how a number draws an action, and policies that only select."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import accumulate
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

import numpy as np

from invariant_bandits.checks import Array, InputError

GREEDY, EXPLORATION = "greedy", "exploration"
"""Reasons of a choice: the largest expected reward, or anything else. A policy may have further ones."""


class Choice(NamedTuple):
    """What a policy decides about K offered actions.

    Attributes
    ----------
    action : int
        Index of the chosen action.
    propensities : array, shape (K,)
        Probability of choosing each action.
    means : array, shape (K,)
        Expected reward of each action.
    widths : array, shape (K,)
        Uncertainty of each expected reward, before multiplication by the policy's parameter `exploration`.
    reason : str
        Why the action was chosen: "greedy" (largest expected reward), "exploration" or "test".

    >>> import numpy as np, invariant_bandits as ib
    >>> choice = ib.EpsilonGreedy(2, epsilon=0.1).decide(np.eye(2), draw=0.99)
    >>> choice.action, choice.propensities.tolist(), choice.reason
    (1, [0.9500000000000001, 0.05], 'greedy')
    """

    action: int
    propensities: Array
    means: Array
    widths: Array
    reason: str


@runtime_checkable
class Policy(Protocol):
    """Interface of a policy: decide among K offered actions by their features, then learn the reward.

    The classes of the library derive from `BasePolicy`, which adds `select`, `propensities`, `scores`,
    `why` and files. Any other object with the methods `select(features)` and `update(features, reward)` can
    be used in `simulate`, `compare` and experiment grids.

    Attributes
    ----------
    alarm : bool
        Whether the policy has noticed that what the logs taught no longer holds.

    >>> import invariant_bandits as ib
    >>> isinstance(ib.LinUCB(3), ib.Policy), isinstance("LinUCB", ib.Policy)
    (True, False)
    >>> class First:
    ...     def select(self, features):
    ...         return 0
    ...     def update(self, features, reward):
    ...         pass
    >>> ib.simulate({"first": First}, ib.simulation.PaperEpisodes(logged=100), 20, replications=2, seed=0)
    SimulationResult(first; 2 repetitions of 20 rounds)
    """

    @property
    def alarm(self) -> bool:
        """Whether the policy has noticed that what the logs taught no longer holds."""

    def decide(self, offered: Any, *, draw: float | None = None) -> Choice:
        """Choose one of K actions with features (K, p), without changing the policy.

        `draw` is a number from 0 to 1 that draws the action from the propensities. By default the policy
        draws with its own seed.
        """

    def update(
        self,
        features: Any,
        reward: float,
        *,
        offered: Any = None,
        action: int | None = None,
    ) -> None:
        """Learn the reward of the played action with features (p,).

        `offered` are the features (K, p) of all actions, and `action` is the index of the played one.
        """

    def explain(self, feature_names: Any = None) -> Any:
        """Return what the policy believes has changed, or None if it has no such beliefs."""


def one_hot(action: int, actions: int) -> Array:
    """Return the probabilities (K,) of a certain choice: one for its action."""
    result = np.zeros(actions)
    result[action] = 1.0
    return result


def draw_action(propensities: Iterable[float], draw: float) -> int:
    """Return the action that a number from 0 to 1 draws with these propensities (K,).

    It is the first action whose cumulative propensity exceeds the number, in units of their sum. Rounding
    never draws an action of propensity 0.
    """
    if not 0.0 <= draw <= 1.0:
        raise InputError(f"draw must be a number from 0 to 1, got {draw!r}")
    steps = list(accumulate(propensities))
    total = steps[-1]
    return min(bisect_right(steps, draw * total), bisect_left(steps, total))


def choice_of(
    action: int,
    means: Array,
    widths: Array,
    propensities: Array | None = None,
    reason: str = "",
) -> Choice:
    """Return a choice whose propensities, if not given, are those of certainty.

    The reason, if not given, is whether the action has the largest mean.
    """
    if propensities is None:
        propensities = one_hot(action, len(means))
    if not reason:
        reason = GREEDY if means[action] >= means.max() else EXPLORATION
    return Choice(action, propensities, means, widths, reason)


class SelectingPolicy:
    """Adapter of an object with `select` and `update`, which thereby decides as other policies do.

    Its choice is certain, unless the object has a method `propensities`. Nothing is known of expected
    rewards. Other attributes are those of the object.

    Parameters
    ----------
    policy : object
        It has the methods `select(features)` and `update(features, reward)`.
    """

    def __init__(self, policy: Any) -> None:
        self.policy = policy

    def select(self, features: Any) -> int:
        """Return the index of the action that the object selects."""
        action = self.policy.select(features)
        if not 0 <= action < len(features):
            raise InputError(
                f"select must return an action from 0 to {len(features) - 1}, got {action!r}"
            )
        return cast(int, action)

    def propensities(self, features: Any) -> Array:
        """Return the probabilities (K,) of the object's choices."""
        if hasattr(self.policy, "propensities"):
            return np.asarray(self.policy.propensities(features), dtype=np.float64)
        return one_hot(self.select(features), len(features))

    def decide(self, offered: Any, *, draw: float | None = None) -> Choice:
        """Choose one of K actions with features (K, p)."""
        unknown = np.full(len(offered), np.nan)
        action = self.select(offered)
        propensities = one_hot(action, len(offered))
        if hasattr(self.policy, "propensities"):
            propensities = self.propensities(offered)
        if draw is not None:
            action = draw_action(propensities.tolist(), draw)
        return choice_of(action, unknown, unknown, propensities)

    def update(
        self,
        features: Any,
        reward: float,
        *,
        offered: Any = None,
        action: int | None = None,
    ) -> None:
        """Let the object learn the reward of the played action with features (p,)."""
        self.policy.update(features, reward)

    def explain(self, feature_names: Any = None) -> None:
        """Return None: nothing is known of the object's beliefs."""

    @property
    def alarm(self) -> bool:
        """Whether the object has an alarm, and it is raised."""
        return bool(getattr(self.policy, "alarm", False))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "policy":
            raise AttributeError(name)
        return getattr(self.policy, name)


def as_policy(policy: Any) -> Any:
    """Return a policy that decides: the object itself, or an adapter if it has only `select` and `update`."""
    if hasattr(policy, "decide"):
        return policy
    for method in ("select", "update"):
        if not callable(getattr(policy, method, None)):
            raise InputError(
                f"policy must have the methods select, update, got {type(policy).__name__}"
            )
    return SelectingPolicy(policy)
