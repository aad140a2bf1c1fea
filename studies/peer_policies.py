"""Policies of other packages behind our two methods: `select(features)` and `update(features, reward)`.

Each plays through its real package. Peers with one model for all actions get the feature rows; peers with a
model per arm get context and arm, which only labelled arms have. Where a peer can learn from logs it has
learned them before the first round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
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
        (past, setting) -> policy; the past says p, K and the logs.
    settings : sequence
        What it may be tuned to.
    labelled : bool
        Whether it has a model per arm, so that it needs labelled arms.
    """

    package: str
    module: str
    make: Callable[[Past, Any], Any]
    settings: Sequence[Any]
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
        for row, reward in zip(past.logs.features.tolist(), past.logs.rewards.tolist(), strict=True):
            self.learner.predict(None, [tuple(row)])
            self.learner.learn(None, tuple(row), reward, 1.0)

    def select(self, features: Array) -> int:
        """The action that coba predicts."""
        offered = [tuple(row) for row in features.tolist()]
        action, self.probability, *_ = self.learner.predict(None, offered)
        return offered.index(tuple(action))

    def update(self, features: Array, reward: float) -> None:
        """Learn the reward of the chosen action."""
        self.learner.learn(None, tuple(features.tolist()), reward, self.probability)


class Vowpal:
    """vowpalwabbit's contextual bandit with action features; logs are learned with their propensities."""

    def __init__(self, past: Past, arguments: str) -> None:
        import vowpalwabbit

        self.workspace = vowpalwabbit.Workspace(f"--cb_explore_adf {arguments} --quiet")
        self.rng = np.random.default_rng(0)
        actions = int(past.actions or 1)
        for row, reward in zip(past.logs.features, past.logs.rewards.tolist(), strict=True):
            self.workspace.learn([f"0:{-reward}:{1.0 / actions} {self._line(row)}"])

    @staticmethod
    def _line(row: Array) -> str:
        return "| " + " ".join(f"f{j}:{value:.6g}" for j, value in enumerate(row.tolist()) if value)

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


class BayesianBandits:
    """bayesianbandits' Thompson sampling with one linear model, with any of its forgetting rules."""

    def __init__(self, past: Past, rule: str, rate: float) -> None:
        import bayesianbandits as bb

        forgetting = None if rule == "none" else getattr(bb, f"{rule}Forgetting")(rate)
        learner: Any = bb.NormalRegressor(alpha=0.1, beta=1.0, forgetting=forgetting, random_state=0)
        if len(past.logs.rewards):
            learner.partial_fit(past.logs.features, past.logs.rewards)
        actions, dim = int(past.actions or 1), past.dim

        def featurize(context: Any, tokens: Any) -> Any:
            return np.asarray(context).reshape(-1, actions, dim).transpose(0, 2, 1)[:, :, list(tokens)]

        self.agent = bb.LipschitzContextualAgent(
            [bb.Arm(action) for action in range(actions)],
            policy=bb.ThompsonSampling(),
            arm_featurizer=bb.FunctionArmFeaturizer(featurize),
            learner=learner,
            random_seed=0,
        )

    def select(self, features: Array) -> int:
        """The best action under coefficients drawn from the posterior."""
        self.context = features.reshape(1, -1)
        return int(self.agent.pull(self.context)[0])

    def update(self, features: Array, reward: float) -> None:
        """Learn the reward of the chosen action."""
        self.agent.update(self.context, np.array([reward]))


class PerArm:
    """What peers with a model per arm share: rows e_a ⊗ z taken apart into the arm and its context."""

    def __init__(self, past: Past) -> None:
        self.width = past.logs.contexts.shape[1]
        self.arms = list(range(past.dim // self.width))

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
        self.model = LinUCB(len(self.arms), alpha=alpha, fit_intercept=False, random_state=1)
        self.model.fit(past.logs.contexts, past.logs.arms, past.logs.rewards)

    def choose(self, offered: list[int], context: Array) -> int:
        """By its decision function, which has upper bounds."""
        return best_of(np.ravel(self.model.decision_function(context[None])), offered)

    def update(self, features: Array, reward: float) -> None:
        """Learn the reward of the chosen arm."""
        self.model.partial_fit(self.context[None], np.array([self.arm]), np.array([reward]))


class River(PerArm):
    """river's LinUCB; its exploration cannot be set, only the priors of its regressions."""

    def __init__(self, past: Past, precision: float) -> None:
        from river.bandit import LinUCBDisjoint

        super().__init__(past)
        self.policy = LinUCBDisjoint(alpha=precision, beta=1.0, seed=0)
        logs = zip(past.logs.contexts, past.logs.arms.tolist(), past.logs.rewards.tolist(), strict=True)
        for context, arm, reward in logs:
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
        self.policy = DisjointLinUCBPolicy(names, self.width, alpha, forgetting_factor=factor, seed=0)
        logs = zip(past.logs.contexts, past.logs.arms.tolist(), past.logs.rewards.tolist(), strict=True)
        for context, arm, reward in logs:
            self.policy.update(str(arm), context, reward)

    def choose(self, offered: list[int], context: Array) -> int:
        """The arm with the highest bound."""
        return int(self.policy.select_arm(context, [str(arm) for arm in offered])[0])

    def update(self, features: Array, reward: float) -> None:
        """Learn the reward of the chosen arm."""
        self.policy.update(str(self.arm), self.context, reward)


ALPHAS = (0.1, 0.3, 1.0)
RATES = (0.9, 0.97, 0.99)
FORGETTING = ("Exponential", "Stabilized", "FeatureWise", "Sift")
PEERS: Mapping[str, Peer] = {
    "coba LinUCB": Peer("coba", "coba", Coba, ALPHAS),
    "vowpalwabbit squarecb": Peer(
        *("vowpalwabbit", "vowpalwabbit", Vowpal),
        tuple(f"--squarecb --gamma_scale {scale:g}" for scale in (10, 100, 1000)),
    ),
    "vowpalwabbit cover": Peer(
        *("vowpalwabbit", "vowpalwabbit", Vowpal),
        tuple(f"--cover {size} --epsilon {share:g}" for size, share in ((3, 0.0), (3, 0.05), (10, 0.0))),
    ),
    "bayesianbandits": Peer(
        *("bayesianbandits", "bayesianbandits"),
        lambda past, rate: BayesianBandits(past, "none", rate),
        (1.0,),
    ),
    **{
        f"bayesianbandits, {rule}": Peer(
            *("bayesianbandits", "bayesianbandits"),
            lambda past, rate, rule=rule: BayesianBandits(past, rule, rate),  # type: ignore[misc]
            RATES,
        )
        for rule in FORGETTING
    },
    "mabwiser LinUCB": Peer("mabwiser", "mabwiser", Mabwiser, ALPHAS, labelled=True),
    "contextualbandits LinUCB": Peer(
        "contextualbandits", "contextualbandits", ContextualBandits, ALPHAS, labelled=True
    ),
    "river LinUCBDisjoint": Peer("river", "river", River, (1.0, 10.0, 100.0), labelled=True),
    "paretobandit": Peer(
        *("paretobandit", "pareto_bandit"),
        lambda past, setting: Pareto(past, *setting),
        tuple((alpha, factor) for alpha in (0.01, 0.1) for factor in (1.0, 0.999)),
        labelled=True,
    ),
}
