"""Policies to compare with: greedy, ε-greedy, uniform, and LinUCB with a model per action."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from invariant_bandits.checks import (
    InputError,
    finite_array,
    probability,
    whole_number,
)
from invariant_bandits.policies import base, kernels
from invariant_bandits.policies import radii as bounds
from invariant_bandits.policies.base import SEED, BasePolicy, Option
from invariant_bandits.policies.choice import Choice, choice_of, draw_action
from invariant_bandits.policies.linear import ESTIMATION, LinearPolicy
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

    options = ESTIMATION
    exploration = 0.0


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

    options: ClassVar[Mapping[str, Option]] = {
        **Greedy.options,
        "epsilon": Option(0.1, partial(base.not_negative, most=1.0)),
        "seed": SEED,
    }
    randomised = True
    epsilon: float

    def decide(self, offered: Any, *, draw: float | None = None) -> Choice:
        """Choose the best of K actions or, with probability epsilon, a random one.

        Every action has the propensity ε/K, and the one with the highest estimated reward 1 − ε in addition.
        """
        assert self._draws is not None
        with self._lock:
            greedy = super().decide(offered)
            explore, luck = self._draws.at(self.rounds).random(2)
        actions = len(greedy.means)
        propensities = np.full(actions, self.epsilon / actions)
        propensities[greedy.action] += 1.0 - self.epsilon
        action = greedy.action
        if draw is not None:
            action = draw_action(propensities.tolist(), draw)
        elif explore < self.epsilon:
            action = int(luck * actions)
        return choice_of(action, greedy.means, greedy.widths, propensities)


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

    options: ClassVar[Mapping[str, Option]] = {"seed": SEED}
    randomised = True
    exempt_laws: ClassVar[dict[str, str]] = {
        "numbers too large to square are refused": "it computes nothing from features"
    }

    def decide(self, offered: Any, *, draw: float | None = None) -> Choice:
        """Choose one of K actions, each with the propensity 1/K. Expected rewards and widths are 0."""
        assert self._draws is not None
        actions = len(base.offered_array(offered, self.dim))
        if draw is None:
            with self._lock:
                draw = self._draws.at(self.rounds).random()
        shares = np.full(actions, 1.0 / actions)
        nothing = np.zeros(actions)
        return choice_of(draw_action(shares.tolist(), draw), nothing, nothing, shares)

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

    options: ClassVar[Mapping[str, Option]] = {
        "arms": Option(None, partial(whole_number, least=1)),
        "ridge": Option(1.0, base.positive),
        "delta": Option(0.01, probability),
        "exploration": Option(1.0, base.not_negative),
    }
    needs = ("dim", "delta")
    shown = ("dim", "arms")
    arms: int
    ridge: float
    delta: float
    exploration: float
    exempt_laws: ClassVar[dict[str, str]] = {
        "permuting actions permutes the choice": "a model per position: positions have a meaning"
    }

    def __init__(self, dim: int, arms: int, **options: Any) -> None:
        super().__init__(dim, arms=arms, **options)
        self._radius = bounds.disjoint_radius(self.delta)
        self._identity = np.zeros((self.dim, 0))
        self._factors = np.zeros((self.arms, self.dim, self.dim + 1))
        self._factors[:, range(self.dim), range(self.dim)] = np.sqrt(self.ridge)

    @classmethod
    def from_past(cls, past: Past, *, arms: int | None = None, **options: Any) -> Self:
        """Return a DisjointLinUCB policy, by default for `past.actions` actions per round."""
        arms = past.actions if arms is None else arms
        return super().from_past(past, arms=arms, **options)

    def decide(self, offered: Any, *, draw: float | None = None) -> Choice:
        """Choose the action with the highest upper confidence bound among all K, with features (K, p)."""
        features = finite_array("features", offered, (self.arms, self.dim))
        parts = np.empty((self.arms, 3, 1))
        with self._lock:
            for arm, factor in enumerate(self._factors):
                row = np.ascontiguousarray(features[arm : arm + 1])
                if kernels.score(row, self._identity, factor, 0, parts[arm]) < 0:
                    raise base.too_large()
        means = parts[:, 0, 0]
        widths = self._radius * np.sqrt(parts[:, 1, 0])
        return choice_of(
            int(np.argmax(means + self.exploration * widths)), means, widths
        )

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
