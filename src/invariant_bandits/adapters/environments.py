"""Environments of coba and Gymnasium for `simulate`: what every action of a round would bring."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import islice
from types import SimpleNamespace
from typing import Any

import numpy as np

from invariant_bandits.adapters.learners import FeatureAdapter
from invariant_bandits.checks import Array, InputError


def _episode(
    offered: Sequence[Array], rewards: Sequence[Sequence[float]]
) -> SimpleNamespace:
    """The episode of these rounds, which must offer equally many actions."""
    shapes = sorted({features.shape for features in offered})
    if len(shapes) != 1:
        raise InputError(
            f"every round must offer as many actions with as many features, got {shapes}"
        )
    return SimpleNamespace(
        offered=np.stack(offered), rewards=np.asarray(rewards, dtype=np.float64)
    )


class CobaEpisodes:
    """Rounds of a coba environment; regret is measured by its rewards.

    Parameters
    ----------
    environment : coba Environment, or function of a seed that returns one
        An environment reads the same rounds in every repetition; a function is called for each.
    """

    def __init__(self, environment: Any) -> None:
        self.environment = environment

    def draw(self, horizon: int, rng: np.random.Generator) -> SimpleNamespace:
        """Its first `horizon` interactions; features as in `FeatureAdapter`."""
        seed, adapter = int(rng.integers(2**31)), FeatureAdapter(None)
        source = (
            self.environment
            if hasattr(self.environment, "read")
            else self.environment(seed)
        )
        rounds = list(islice(source.read(), horizon))
        if len(rounds) < horizon:
            raise InputError(
                f"environment must have at least {horizon} interactions, got {len(rounds)}"
            )
        offered = [
            adapter.features(each.get("context"), each["actions"]) for each in rounds
        ]
        rewards = [
            [each["rewards"](action) for action in each["actions"]]
            if callable(each["rewards"])
            else each["rewards"]
            for each in rounds
        ]
        return _episode(offered, rewards)


class GymnasiumEpisodes:
    """Rounds of a Gymnasium environment with K discrete actions, whose observations are arrays of numbers.

    In every round a copy of the environment is stepped with each action. What comes next must not depend on
    the action: it is a bandit.

    Parameters
    ----------
    environment : gymnasium.Env, or function without parameters that returns one
    """

    def __init__(self, environment: Any) -> None:
        self.environment = environment

    def draw(self, horizon: int, rng: np.random.Generator) -> SimpleNamespace:
        """`horizon` steps; features as in `FeatureAdapter`, actions are labels 0 to K − 1."""
        source, adapter = self.environment, FeatureAdapter(None)
        world = source() if callable(source) else copy.deepcopy(source)
        actions = _discrete_actions(world.action_space)
        labels = range(len(actions))
        offered, rewards = [], []
        observation, ended = world.reset(seed=int(rng.integers(2**31)))[0], False
        for _ in range(horizon):
            if ended:
                observation = world.reset()[0]
            offered.append(adapter.features(_numbers(observation), labels))
            tried = [copy.deepcopy(world) for _ in actions]
            steps = [
                each.step(action) for each, action in zip(tried, actions, strict=True)
            ]
            rewards.append([float(step[1]) for step in steps])
            world = tried[0]
            observation = steps[0][0]
            ended = steps[0][2] or steps[0][3]
        return _episode(offered, rewards)


def _discrete_actions(space: Any) -> range:
    """Return the actions of a Discrete space, or raise InputError for any other space."""
    count, first = getattr(space, "n", None), getattr(space, "start", None)
    if count is None or first is None:
        raise InputError(
            f"environment must have a Discrete action space, got {space!r:.80}"
        )
    return range(int(first), int(first) + int(count))


def _numbers(observation: Any) -> Array:
    """Return an observation as a vector, or raise InputError if it is not an array of numbers."""
    try:
        return np.asarray(observation, dtype=np.float64).ravel()
    except (TypeError, ValueError):
        flatten = "wrap it, for instance in gymnasium.wrappers.FlattenObservation"
        kind = type(observation).__name__
        raise InputError(
            f"environment must have arrays of numbers as observations, got a {kind}: {flatten}"
        ) from None
