"""Policies of other packages behind our two methods: `select(features)` and `update(features, reward)`.

Each plays through its real package. Peers with one model for all actions get the feature rows; peers with a
model per arm get context and arm, which only labelled arms have. Every peer learns the logs it is given
before the first round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import product
from typing import Any

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.policies.past import Past


@dataclass(frozen=True)
class Peer:
    """A policy of another package.

    Parameters
    ----------
    package : str
        As it is installed.
    module : str
        As it is imported.
    make : callable
        (past, *setting) -> policy; the past says p, K and the logs.
    settings : words -> setting
        What it may be tuned to.
    labelled : bool
        Whether it has a model per arm, so that it needs labelled arms.
    """

    package: str
    module: str
    make: Callable[..., Any]
    settings: Mapping[str, tuple[Any, ...]]
    labelled: bool = False

    @property
    def is_installed(self) -> bool:
        """Whether it can be imported."""
        return find_spec(self.module) is not None


class Coba:
    """coba's LinUCB over the features of the actions."""

    def __init__(self, past: Past, alpha: float) -> None:
        from coba.learners import LinUCBLearner

        self.learner = LinUCBLearner(alpha=alpha, features=["a"])
        for row, reward in zip(
            past.logs.features.tolist(), past.logs.rewards.tolist(), strict=True
        ):
            self.learner.learn(None, tuple(row), reward, 1.0)

    def select(self, features: Array) -> int:
        """The action that coba predicts."""
        offered = [tuple(row) for row in features.tolist()]
        action, self.probability, *_ = self.learner.predict(None, offered)
        return offered.index(tuple(action))

    def update(self, features: Array, reward: float) -> None:
        """Learn the reward of the chosen action."""
        self.learner.learn(None, tuple(features.tolist()), reward, self.probability)


def logged_rounds(past: Past) -> Iterator[tuple[Array, int, float]]:
    """Offered rows, chosen action and reward of every logged round.

    Logs of labelled arms name the played arm only: all arms that have a label count as offered.
    """
    logs = past.logs
    if hasattr(logs, "contexts"):
        one_hot = np.eye(past.dim // logs.contexts.shape[1])
        for context, arm, reward in PerArm.logged(past):
            yield np.kron(one_hot, context), arm, reward
    elif len(logs.rewards):
        offered = (
            np.split(logs.offered, logs.starts[1:-1])
            if logs.offered.ndim == 2
            else logs.offered
        )
        rewards = logs.rewards.tolist()
        yield from zip(offered, logs.actions.tolist(), rewards, strict=True)


class Vowpal:
    """vowpalwabbit's contextual bandit with action features; logs count as chosen uniformly."""

    def __init__(self, past: Past, arguments: str) -> None:
        import vowpalwabbit

        self.workspace = vowpalwabbit.Workspace(f"--cb_explore_adf {arguments} --quiet")
        self.rng = np.random.default_rng(0)
        for offered, action, reward in logged_rounds(past):
            self.lines = [self._line(row) for row in offered]
            self.action, self.chance = action, 1.0 / len(offered)
            self.update(offered[action], reward)

    @staticmethod
    def _line(row: Array) -> str:
        return "| " + " ".join(
            f"f{j}:{value:.6g}" for j, value in enumerate(row.tolist()) if value
        )

    def select(self, features: Array) -> int:
        """An action drawn with vowpal's probabilities."""
        self.lines = [self._line(row) for row in features]
        chances = np.array(self.workspace.predict(self.lines))
        self.action = int(self.rng.choice(len(chances), p=chances / chances.sum()))
        self.chance = float(chances[self.action])
        return self.action

    def update(self, features: Array, reward: float) -> None:
        """Learn the cost, minus the reward, of the chosen action."""
        self.lines[self.action] = f"0:{-reward}:{self.chance} {self.lines[self.action]}"
        self.workspace.learn(self.lines)


def most_offered(past: Past) -> int:
    """The largest number of actions of a round."""
    return int(past.actions or past.logs.counts.max())


class BayesianBandits:
    """bayesianbandits' Thompson sampling with one linear model, with any of its forgetting rules.

    Both precisions are 1/size², so that `size` scales the standard deviations of what it draws and leaves
    the posterior mean alone. Rules that forget what a batch excites learn the logs a row at a time, as they
    learn online: within a batch they forget nothing. Rounds that offer fewer actions than another before
    them repeat their first one.
    """

    def __init__(
        self, past: Past, size: float, rule: str = "", rate: float = 1.0
    ) -> None:
        import bayesianbandits as bb

        forgetting = getattr(bb, f"{rule}Forgetting")(rate) if rule else None
        precision = 1.0 / size**2
        learner: Any = bb.NormalRegressor(
            precision, precision, forgetting=forgetting, random_state=0
        )
        logs = past.logs
        batch = 1 if rule in BY_DIRECTION else len(past.logs.rewards) or 1
        for start in range(0, len(logs.rewards), batch):
            learner.partial_fit(
                logs.features[start : start + batch],
                logs.rewards[start : start + batch],
            )
        dim = past.dim

        def featurize(context: Any, tokens: Any) -> Any:
            offered = np.asarray(context).reshape(len(context), -1, dim)
            return offered.transpose(0, 2, 1)[:, :, list(tokens)]

        self.arm, self.actions = bb.Arm, most_offered(past)
        self.agent = bb.LipschitzContextualAgent(
            [bb.Arm(action) for action in range(self.actions)],
            policy=bb.ThompsonSampling(),
            arm_featurizer=bb.FunctionArmFeaturizer(featurize),
            learner=learner,
            random_seed=0,
        )

    def select(self, features: Array) -> int:
        """The best action under coefficients drawn from the posterior."""
        for action in range(self.actions, len(features)):
            self.agent.add_arm(self.arm(action))
        self.actions = max(self.actions, len(features))
        repeated = np.repeat(features[:1], self.actions - len(features), axis=0)
        self.context = np.concatenate([features, repeated]).reshape(1, -1)
        action = int(self.agent.pull(self.context)[0])
        return action if action < len(features) else 0

    def update(self, features: Array, reward: float) -> None:
        """Learn the reward of the chosen action."""
        self.agent.update(self.context, np.array([reward]))


class PerArm:
    """What peers with a model per arm share: rows e_a ⊗ z taken apart into the arm and its context."""

    def __init__(self, past: Past) -> None:
        self.width = past.logs.contexts.shape[1]
        self.arms = list(range(past.dim // self.width))

    @staticmethod
    def logged(past: Past) -> Iterator[tuple[Array, int, float]]:
        """Context, arm and reward of every logged round."""
        logs = past.logs
        rewards = logs.rewards.tolist()
        return zip(logs.contexts, logs.arms.tolist(), rewards, strict=True)

    def _parts(self, features: Array) -> tuple[list[int], Array]:
        blocks = features.reshape(len(features), -1, self.width)
        arms = blocks[:, :, 0].argmax(axis=1)
        return arms.tolist(), blocks[0, arms[0]]

    def select(self, features: Array) -> int:
        """The offered arm that the peer prefers."""
        offered, self.context = self._parts(features)
        self.arm = self.choose(offered, self.context)
        return offered.index(self.arm)

    def choose(self, offered: list[int], context: Array) -> int:
        """One of the offered arms."""
        raise NotImplementedError


def best_of(values: Any, offered: list[int]) -> int:
    """The offered arm with the largest value."""
    return max(offered, key=lambda arm: float(values[arm]))


class Mabwiser(PerArm):
    """mabwiser's LinUCB."""

    def __init__(self, past: Past, alpha: float) -> None:
        from mabwiser.mab import MAB, LearningPolicy

        super().__init__(past)
        self.mab = MAB(self.arms, LearningPolicy.LinUCB(alpha=alpha, l2_lambda=1.0))
        self.mab.fit(past.logs.arms, past.logs.rewards, past.logs.contexts)

    def choose(self, offered: list[int], context: Array) -> int:
        """By its expectations, which are upper bounds."""
        return best_of(self.mab.predict_expectations(context[None]), offered)

    def update(self, features: Array, reward: float) -> None:
        """Learn the reward of the chosen arm."""
        self.mab.partial_fit([self.arm], [reward], self.context[None])


class ContextualBandits(PerArm):
    """contextualbandits' LinUCB."""

    def __init__(self, past: Past, alpha: float) -> None:
        from contextualbandits.online import LinUCB

        super().__init__(past)
        self.model = LinUCB(
            len(self.arms), alpha=alpha, fit_intercept=False, random_state=1
        )
        self.model.fit(past.logs.contexts, past.logs.arms, past.logs.rewards)

    def choose(self, offered: list[int], context: Array) -> int:
        """By its decision function, which has upper bounds."""
        return best_of(np.ravel(self.model.decision_function(context[None])), offered)

    def update(self, features: Array, reward: float) -> None:
        """Learn the reward of the chosen arm."""
        self.model.partial_fit(
            self.context[None], np.array([self.arm]), np.array([reward])
        )


class River(PerArm):
    """river's LinUCB; both precisions of its regressions are 1/size², and its smoothing forgets."""

    def __init__(self, past: Past, size: float, smoothing: float | None) -> None:
        from river.bandit import LinUCBDisjoint

        super().__init__(past)
        self.policy = LinUCBDisjoint(
            alpha=size**-2, beta=size**-2, smoothing=smoothing, seed=0
        )
        for context, arm, reward in self.logged(past):
            self.policy.update(arm, self._named(context), reward)

    @staticmethod
    def _named(context: Array) -> dict[str, float]:
        return {f"z{j}": value for j, value in enumerate(context.tolist())}

    def choose(self, offered: list[int], context: Array) -> int:
        """The arm it pulls."""
        return int(self.policy.pull(offered, context=self._named(context)))

    def update(self, features: Array, reward: float) -> None:
        """Learn the reward of the chosen arm."""
        self.policy.update(self.arm, self._named(self.context), reward)


class Pareto(PerArm):
    """paretobandit's disjoint LinUCB, which may forget."""

    def __init__(self, past: Past, alpha: float, factor: float) -> None:
        from pareto_bandit import DisjointLinUCBPolicy

        super().__init__(past)
        names = [str(arm) for arm in self.arms]
        self.policy = DisjointLinUCBPolicy(
            names, self.width, alpha, forgetting_factor=factor, seed=0
        )
        for context, arm, reward in self.logged(past):
            self.policy.update(str(arm), context, reward)

    def choose(self, offered: list[int], context: Array) -> int:
        """The arm with the highest bound."""
        return int(self.policy.select_arm(context, [str(arm) for arm in offered])[0])

    def update(self, features: Array, reward: float) -> None:
        """Learn the reward of the chosen arm."""
        self.policy.update(str(self.arm), self.context, reward)


SIZES = (0.03, 0.1, 0.3, 1.0)
"""Exploration of every peer: how many standard deviations are added, or scale what is drawn."""
SIZES_BESIDE_RATES = (0.03, 0.3)
RATES = (0.97, 0.99, 0.999)
"""Weight of a round after the next one, for every policy that forgets."""
FORGETTING = ("Exponential", "Stabilized", "FeatureWise", "Sift")
BY_DIRECTION = ("FeatureWise", "Sift")
POWERS = (0.5, 0.0)
"""Exponents of vowpalwabbit's learning rate over time: as published, and constant."""


def _sizes(words: str) -> dict[str, tuple[Any, ...]]:
    return {f"{words} {size:g}": (size,) for size in SIZES}


def _vowpal(settings: list[str]) -> dict[str, tuple[Any, ...]]:
    both = [
        f"{setting} --power_t {power:g}" for setting, power in product(settings, POWERS)
    ]
    return {arguments: (f"--{arguments}",) for arguments in both}


PEERS: Mapping[str, Peer] = {
    "coba LinUCB": Peer("coba", "coba", Coba, settings=_sizes("alpha")),
    "vowpalwabbit squarecb": Peer(
        *("vowpalwabbit", "vowpalwabbit", Vowpal),
        _vowpal([f"squarecb --gamma_scale {scale}" for scale in (10, 100, 1000)]),
    ),
    "vowpalwabbit cover": Peer(
        *("vowpalwabbit", "vowpalwabbit", Vowpal),
        _vowpal(
            ["cover 3 --epsilon 0", "cover 3 --epsilon 0.05", "cover 10 --epsilon 0"]
        ),
    ),
    "bayesianbandits": Peer(
        "bayesianbandits", "bayesianbandits", BayesianBandits, settings=_sizes("size")
    ),
    **{
        f"bayesianbandits, {rule}": Peer(
            *("bayesianbandits", "bayesianbandits", BayesianBandits),
            {
                f"size {size:g}, rate {rate:g}": (size, rule, rate)
                for size, rate in product(SIZES_BESIDE_RATES, RATES)
            },
        )
        for rule in FORGETTING
    },
    "mabwiser LinUCB": Peer(
        "mabwiser", "mabwiser", Mabwiser, settings=_sizes("alpha"), labelled=True
    ),
    "contextualbandits LinUCB": Peer(
        "contextualbandits",
        "contextualbandits",
        ContextualBandits,
        settings=_sizes("alpha"),
        labelled=True,
    ),
    "river LinUCBDisjoint": Peer(
        *("river", "river", River),
        {
            f"size {size:g}, smoothing {rate}": (size, rate)
            for size in SIZES_BESIDE_RATES
            for rate in (None, *RATES)
        },
        labelled=True,
    ),
    "paretobandit": Peer(
        *("paretobandit", "pareto_bandit", Pareto),
        {
            f"alpha {size:g}, forgetting {rate:g}": (size, rate)
            for size in (0.01, 0.1, 1.0)
            for rate in (1.0, *RATES)
        },
        labelled=True,
    ),
}
"""Policies of other packages, each with the settings among which it is tuned."""
