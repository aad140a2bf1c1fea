"""Logs of known value whose rewards are rare, heavy, skewed or dependent; a fixed target, nothing is learned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import numpy as np
from scipy import signal, special

from invariant_bandits.checks import Array
from invariant_bandits.logs.feedback import Feedback

ACTIONS, DIM = 4, 3
TARGET = np.array([0.6, 0.8, 0.0])
SOFTMAX = np.array([1.0, 0.0, 2.0])
GREEDY = np.array([0.4, 0.0, 0.9])
FLOOR, EPSILON = 0.2, 0.1
SLOPE = 0.5
LOGNORMAL_SPREAD = 1.5
MEMORY = 0.95
TRUTH_ROUNDS, TRUTH_CHUNK = 2_000_000, 50_000
TRUTH_SEED = 987_654_321

Rng: TypeAlias = np.random.Generator


@dataclass(frozen=True)
class World:
    """Rewards given scores: the first feature of an action, standard normal.

    Parameters
    ----------
    mean : callable
        Scores of any shape -> expected rewards, up to what averages to zero over a log.
    draw : callable
        Scores (n,) of the logged actions, generator -> rewards (n,).
    """

    mean: Callable[[Array], Array]
    draw: Callable[[Array, Rng], Array]


def _linear(scores: Array) -> Array:
    return 1.0 + SLOPE * scores


def _with_noise(noise: Callable[[int, Rng], Array]) -> World:
    """Rewards linear in the score, plus noise (n,) of mean 0."""
    return World(_linear, lambda scores, rng: _linear(scores) + noise(len(scores), rng))


def _lognormal(scores: Array) -> Array:
    return np.asarray(np.exp(SLOPE * scores + 0.5 * LOGNORMAL_SPREAD**2))


def _lognormal_rewards(scores: Array, rng: Rng) -> Array:
    return np.asarray(np.exp(SLOPE * scores + LOGNORMAL_SPREAD * rng.standard_normal(len(scores))))


def _clicks(rate: float, amount: Callable[[int, Rng], Array] | None = None) -> World:
    """Rewards of 1, or amounts of mean 1, at a rate logistic in the score; 0 otherwise."""

    def mean(scores: Array) -> Array:
        return np.asarray(special.expit(special.logit(rate) + SLOPE * scores))

    def draw(scores: Array, rng: Rng) -> Array:
        hits = (rng.random(len(scores)) < mean(scores)).astype(np.float64)
        return hits if amount is None else hits * amount(len(scores), rng)

    return World(mean, draw)


def _amounts(n: int, rng: Rng) -> Array:
    return np.asarray(np.exp(rng.standard_normal(n) - 0.5))


def _wave(n: int, rng: Rng) -> Array:
    """A baseline that falls and rises again by three standard deviations of the noise."""
    return np.asarray(1.5 * np.cos(2.0 * np.pi * (np.arange(n) + 0.5) / n) + rng.standard_normal(n))


def _autoregressive(n: int, rng: Rng) -> Array:
    """Stationary noise of variance 1; every round remembers MEMORY of the one before."""
    shocks = np.sqrt(1.0 - MEMORY**2) * rng.standard_normal(n)
    return np.asarray(signal.lfilter([1.0], [1.0, -MEMORY], shocks, zi=[MEMORY * rng.standard_normal()])[0])


WORLDS: dict[str, World] = {
    "Gaussian": _with_noise(lambda n, rng: rng.standard_normal(n)),
    "t2.5": _with_noise(lambda n, rng: rng.standard_t(2.5, n) / np.sqrt(5.0)),
    "lognormal": World(_lognormal, _lognormal_rewards),
    "clicks 30 %": _clicks(0.3),
    "clicks 5 %": _clicks(0.05),
    "clicks 1 %": _clicks(0.01),
    "revenue, 99 % zeros": _clicks(0.01, _amounts),
    "drifting baseline": _with_noise(_wave),
    "AR(0.95) noise": _with_noise(_autoregressive),
}


def _best(offered: Array, coefficients: Array) -> Array:
    """One-hot choices (n, K) of the largest score."""
    return np.asarray(np.eye(ACTIONS)[(offered @ coefficients).argmax(axis=1)])


def target_chances(offered: Array) -> Array:
    """What the evaluated policy would choose (n, K): always the same of two equal rounds, another one than the log."""
    return _best(offered, TARGET)


LOGGING: dict[str, Callable[[Array], Array]] = {
    "uniform": lambda offered: np.full(offered.shape[:2], 1.0 / ACTIONS),
    "softmax": lambda offered: (1.0 - FLOOR) * special.softmax(offered @ SOFTMAX, axis=1) + FLOOR / ACTIONS,
    "ε-greedy": lambda offered: (1.0 - EPSILON) * _best(offered, GREEDY) + EPSILON / ACTIONS,
}


@dataclass(frozen=True, eq=False)
class Log:
    """One log, the target's probabilities (rows,) and the rounds that its replay accepts."""

    feedback: Feedback
    target: Array
    accepted: np.ndarray[Any, Any]


def draw_log(world: str, logging: str, rounds: int, rng: Rng) -> Log:
    """A log of one world by one logging policy."""
    offered = rng.standard_normal((rounds, ACTIONS, DIM))
    every, chances, target = np.arange(rounds), LOGGING[logging](offered), target_chances(offered)
    actions = (rng.random((rounds, 1)) > np.cumsum(chances, axis=1)).sum(axis=1).clip(0, ACTIONS - 1)
    rewards = WORLDS[world].draw(offered[every, actions, 0], rng)
    feedback = Feedback.from_arrays(offered, actions, rewards, propensities=chances[every, actions])
    propensities = chances[every, actions]
    lucky = rng.random(rounds) * propensities < propensities.min() * (1.0 + 1e-12)
    return Log(feedback, target.ravel(), np.flatnonzero(lucky & (target[every, actions] == 1.0)))


@cache
def true_values() -> dict[tuple[str, str], tuple[float, float]]:
    """(world, logging) -> the values of the target and of the logging policy, over two million rounds of contexts."""
    rng = np.random.default_rng(TRUTH_SEED)
    sums = {(world, logging): np.zeros(2) for world in WORLDS for logging in LOGGING}
    for _ in range(TRUTH_ROUNDS // TRUTH_CHUNK):
        offered = rng.standard_normal((TRUTH_CHUNK, ACTIONS, DIM))
        target, chances = target_chances(offered), {name: policy(offered) for name, policy in LOGGING.items()}
        found = {each.mean: each.mean(offered[:, :, 0]) for each in WORLDS.values()}
        for (world, logging), total in sums.items():
            means = found[WORLDS[world].mean]
            total += [np.vdot(target, means), np.vdot(chances[logging], means)]
    return {key: (float(total[0]) / TRUTH_ROUNDS, float(total[1]) / TRUTH_ROUNDS) for key, total in sums.items()}
