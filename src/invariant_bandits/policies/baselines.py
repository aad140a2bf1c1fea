"""Policies to compare with: greedy, ε-greedy, uniform, and LinUCB with a model per action."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Self, Unpack, cast

import numpy as np

from invariant_bandits.checks import (
    Array,
    InputError,
    finite_array,
    probability,
    whole_number,
)
from invariant_bandits.policies import base, kernels
from invariant_bandits.policies import radii as bounds
from invariant_bandits.policies.base import BasePolicy, Draws, Scores, Seed
from invariant_bandits.policies.linear import Estimation, LinearPolicy
from invariant_bandits.policies.memory import FOREVER, Memory
from invariant_bandits.policies.past import Past
from invariant_bandits.policies.registry import register_policy
from invariant_bandits.storage import ArraySpec, StateSchema, counters


@register_policy("greedy")
class Greedy(LinearPolicy):
    """Policy that always plays the action with the highest estimated reward.

    The method `scores` also reports confidence widths, which do not affect the choice.

    Parameters
    ----------
    dim : int
        Number of features p.
    ridge : float
        Regulariser λ of the ridge regression.
    delta : float
        Allowed probability η that a confidence bound fails, for the reported widths.
    noise_scale : float
        Standard deviation σ of the noise in a reward, for the reported widths.
    norm_bound : float
        Upper bound M on the norm of the coefficients γ, for the reported widths.
    feature_bound : float
        Upper bound L on the norm of a feature vector φ, for the reported widths.
    memory : Memory
        Rule for forgetting old rounds: Forever, SlidingWindow, Discount or Restart.

    >>> import numpy as np, invariant_bandits as ib
    >>> policy = ib.Greedy(2)
    >>> policy.update([0.0, 1.0], 1.0)
    >>> policy.select(np.eye(2))
    1
    """

    options = tuple(Estimation.__annotations__)

    def __init__(
        self, dim: int, *, memory: Memory = FOREVER, **rest: Unpack[Estimation]
    ) -> None:
        super().__init__(dim, exploration=0.0, memory=memory, **rest)


@register_policy("frozen")
class Frozen(Greedy):
    """Greedy policy that fits a ridge regression to the logs and never learns online.

    The class `Greedy` documents the parameters.

    >>> import numpy as np, invariant_bandits as ib
    >>> rng = np.random.default_rng(0)
    >>> features = rng.normal(size=(100, 2))
    >>> moments = ib.WindowedMoments.from_arrays(features, features @ [1.0, -1.0], windows=2)
    >>> policy = ib.Frozen.from_past(ib.Past(moments=moments))
    >>> before = policy.coefficients
    >>> policy.update([1.0, 1.0], 5.0)
    >>> bool((policy.coefficients == before).all()), policy.rounds
    (True, 101)
    """

    @classmethod
    def from_past(cls, past: Past, *, warm: bool | int = True, **options: Any) -> Self:
        """Fit the ridge regression to the logged rounds and return a Frozen policy.

        If the parameter `warm` is a number n, the regression uses only the n latest logged rounds.
        """
        return super().from_past(past, warm=warm, **options)

    def update(
        self,
        features: Any,
        reward: float,
        *,
        offered: Any = None,
        action: int | None = None,
    ) -> None:
        """Check and count the round without learning from it."""
        row, value = base.chosen_array(features, self.dim), base.reward_number(reward)
        if not len(kernels.residual_row(row, value, self._lift, self.dim)):
            raise base.too_large()
        with self._lock:
            self.rounds += 1


@register_policy("epsilon-greedy")
class EpsilonGreedy(Greedy):
    """Greedy policy that plays a random action with probability `epsilon`.

    The method `propensities` returns exact probabilities of all actions.

    Parameters
    ----------
    dim : int
        Number of features p.
    epsilon : float
        Probability, from 0 to 1, of drawing the action uniformly at random.
    seed : int or numpy.random.Generator
        Seed or generator for the random choices.
    **rest :
        Parameters of the class Greedy.

    >>> import numpy as np, invariant_bandits as ib
    >>> policy = ib.EpsilonGreedy(2, epsilon=0.1, seed=0)
    >>> policy.update([0.0, 1.0], 1.0)
    >>> policy.propensities(np.eye(2)).tolist()
    [0.05, 0.9500000000000001]
    """

    options = (*Greedy.options, "epsilon", "seed")

    def __init__(
        self, dim: int, *, epsilon: float = 0.1, seed: Seed = 0, **rest: Any
    ) -> None:
        super().__init__(dim, **rest)
        self.epsilon = base.not_negative("epsilon", epsilon, 1.0)
        self.randomised = True
        self._draws: Draws = Draws(seed)

    def select(self, features: Any) -> int:
        """Return the index of the best action or, with probability epsilon, of a random one."""
        with self._lock:
            greedy = super().select(features)
            explore, place = self._draws.at(self.rounds).random(2)
        return int(place * len(features)) if explore < self.epsilon else greedy

    def select_many(self, features: Any) -> np.ndarray[Any, Any]:
        """Return the actions (N,) for N rounds with features (N, K, p), each round with its own random draw.

        The first action is the one that `select` returns for the first round.
        """
        with self._lock:
            greedy = super().select_many(features)
            explore, place = self._draws.at(self.rounds).random((len(greedy), 2)).T
        actions = np.shape(features)[1]
        return np.where(
            explore < self.epsilon, (place * actions).astype(np.int64), greedy
        )

    def scores(self, features: Any) -> Scores:
        """Return expected rewards, confidence widths and the probability of choosing each action."""
        with self._lock:
            scores = super().scores(features)
            return Scores(scores.mean, scores.width, self.propensities(features))

    def propensities(self, features: Any, *, samples: int = 0) -> Array:
        """Return the probability (K,) of choosing each of K actions.

        Every action has the probability ε/K, and the action with the highest estimated reward has 1 − ε in
        addition.
        """
        features = base.offered_array(features, self.dim)
        result = np.full(len(features), self.epsilon / len(features))
        result[super().select(features)] += 1.0 - self.epsilon
        return result


@register_policy("uniform")
class Uniform(BasePolicy):
    """Policy that chooses every action with the same probability and learns nothing.

    Parameters
    ----------
    dim : int
        Number of features p.
    seed : int or numpy.random.Generator
        Seed or generator for the random choices.

    >>> import numpy as np, invariant_bandits as ib
    >>> ib.Uniform(2, seed=0).propensities(np.ones((4, 2))).tolist()
    [0.25, 0.25, 0.25, 0.25]
    """

    options = ("dim", "seed")
    randomised = True
    exempt_laws: ClassVar[dict[str, str]] = {
        "numbers too large to square are refused": "it computes nothing from features"
    }

    def __init__(self, dim: int, *, seed: Seed = 0) -> None:
        self.dim = whole_number("dim", dim, 1)
        self.rounds = 0
        self._draws: Draws = Draws(seed)

    @classmethod
    def from_past(cls, past: Past, *, seed: Seed = 0) -> Self:
        """Return a Uniform policy for the number of features of a Past object."""
        return cls(past.dim, seed=seed)

    def select(self, features: Any) -> int:
        """Return the index of an action drawn uniformly at random."""
        actions = len(base.offered_array(features, self.dim))
        with self._lock:
            return int(self._draws.at(self.rounds).random() * actions)

    def select_many(self, features: Any) -> np.ndarray[Any, Any]:
        """Return independently drawn actions (N,) for N rounds with features (N, K, p).

        The first action is the one that `select` returns for the first round.
        """
        rounds, actions, _ = finite_array(
            "features", features, ("N", "K", self.dim)
        ).shape
        with self._lock:
            places = self._draws.at(self.rounds).random(rounds)
        return np.asarray(places * actions).astype(np.int64)

    def scores(self, features: Any) -> Scores:
        """Return 0 as every expected reward and width, and the probability 1/K of each of K actions."""
        share = self.propensities(features)
        return Scores(np.zeros_like(share), np.zeros_like(share), share)

    def propensities(self, features: Any) -> Array:
        """Return the probability 1/K of each of K actions."""
        actions = len(base.offered_array(features, self.dim))
        return np.full(actions, 1.0 / actions)

    def update(
        self,
        features: Any,
        reward: float,
        *,
        offered: Any = None,
        action: int | None = None,
    ) -> None:
        """Check and count the round without learning from it."""
        base.chosen_array(features, self.dim)
        base.reward_number(reward)
        with self._lock:
            self.rounds += 1

    @classmethod
    def state_schema(
        cls, settings: Mapping[str, Any], names: Collection[str]
    ) -> StateSchema:
        """The counter."""
        return StateSchema({"counters": counters(1)})


@register_policy("disjoint-linucb")
class DisjointLinUCB(BasePolicy):
    """LinUCB with a separate ridge regression per action (Li et al. 2010, Algorithm 1).

    Every round must offer the same K actions in the same order. The confidence width of an action
    with features φ is α√(φᵀA⁻¹φ), where A is the regularised Gram matrix of that action. The factor α of the
    confidence width is 1 + √(log(2/η)/2), where η is the parameter `delta`.

    Parameters
    ----------
    dim : int
        Number of features p.
    arms : int
        Number K of actions, which every round offers in the same order.
    ridge : float
        Regulariser λ of each ridge regression, which is 1 in the publication.
    delta : float
        Allowed probability η that a confidence bound fails.
    exploration : float
        Factor on the confidence widths.

    >>> import numpy as np, invariant_bandits as ib
    >>> policy = ib.DisjointLinUCB(2, arms=3, exploration=0.0)
    >>> policy.update([1.0, 0.0], 1.0, action=2)
    >>> policy.select(np.ones((3, 2)))
    2
    """

    options = ("dim", "arms", "ridge", "delta", "exploration")
    shown = ("dim", "arms")
    exempt_laws: ClassVar[dict[str, str]] = {
        "permuting actions permutes the choice": "a model per position: positions have a meaning"
    }

    def __init__(
        self,
        dim: int,
        arms: int,
        *,
        ridge: float = 1.0,
        delta: float = 0.01,
        exploration: float = 1.0,
    ) -> None:
        self.dim = whole_number("dim", dim, 1)
        self.arms = whole_number("arms", arms, 1)
        self.ridge = base.positive("ridge", ridge)
        self.delta = probability("delta", delta)
        self.exploration = base.not_negative("exploration", exploration)
        self.rounds = 0
        self._radius = bounds.disjoint_radius(self.delta)
        self._identity = np.zeros((self.dim, 0))
        self._factors = np.zeros((self.arms, self.dim, self.dim + 1))
        self._factors[:, range(self.dim), range(self.dim)] = np.sqrt(self.ridge)

    @classmethod
    def from_past(cls, past: Past, *, arms: int | None = None, **options: Any) -> Self:
        """Return a DisjointLinUCB policy, by default for `past.actions` actions per round."""
        arms = past.actions if arms is None else arms
        return cls(past.dim, cast(int, arms), **{"delta": past.delta, **options})

    def scores(self, features: Any) -> Scores:
        """Return the expected rewards and confidence widths of all K actions with features (K, p)."""
        features = finite_array("features", features, (self.arms, self.dim))
        means, widths = self._bounds(features[None])
        return Scores(means[:, 0], widths[:, 0])

    def _bounds(self, features: Array) -> tuple[Array, Array]:
        """Means and widths (K, N) of the actions of N rounds, given features (N, K, p)."""
        parts = np.empty((self.arms, 3, len(features)))
        with self._lock:
            for arm, factor in enumerate(self._factors):
                rows = np.ascontiguousarray(features[:, arm])
                if kernels.score(rows, self._identity, factor, 0, parts[arm]) < 0:
                    raise base.too_large()
        return parts[:, 0], self._radius * np.sqrt(parts[:, 1])

    def select(self, features: Any) -> int:
        """Return the index of the action with the highest upper confidence bound."""
        scores = self.scores(features)
        return int(np.argmax(scores.mean + self.exploration * scores.width))

    def select_many(self, features: Any) -> np.ndarray[Any, Any]:
        """Return the actions (N,) for N rounds with features (N, K, p), without learning in between."""
        means, widths = self._bounds(
            finite_array("features", features, ("N", self.arms, self.dim))
        )
        return np.asarray(np.argmax(means + self.exploration * widths, axis=0))

    def update(
        self,
        features: Any,
        reward: float,
        *,
        offered: Any = None,
        action: int | None = None,
    ) -> None:
        """Learn the reward of the played action with features (p,); its index must be passed as `action`."""
        arm = whole_number("action", action, 0)
        if arm >= self.arms:
            raise InputError(
                f"action must be below the number of arms, {self.arms}, got {arm}"
            )
        row, value = base.chosen_array(features, self.dim), base.reward_number(reward)
        with self._lock:
            if (
                kernels.learn_growing(
                    row, value, self._identity, self._factors[arm], self.ridge
                )
                < 0.0
            ):
                raise base.too_large()
            self.rounds += 1

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """The factors of all actions and the counter."""
        with self._lock:
            return {"factors": self._factors.copy(), **super().arrays()}

    @classmethod
    def state_schema(
        cls, settings: Mapping[str, Any], names: Collection[str]
    ) -> StateSchema:
        """A factor for each of K actions, and the counter."""
        sizes = {
            "p": whole_number("dim", settings["dim"], 1),
            "K": whole_number("arms", settings["arms"], 1),
        }
        return StateSchema(
            {"factors": ArraySpec(("K", "p", "p+1")), "counters": counters(1)},
            sizes=sizes,
        )

    def _restore(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        super()._restore(arrays)
        self._factors[...] = arrays["factors"]
