"""Small worlds whose logs have known propensities and known policy values."""

from dataclasses import dataclass, field

import numpy as np

from invariant_bandits.logs.feedback import Feedback

ACTIONS, DIM = 4, 3
GAMMA = np.array([1.0, -0.5, 0.5])


def softmax(scores):
    """Probabilities (n, K)."""
    raised = np.exp(scores - scores.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)


@dataclass(frozen=True)
class World:
    """Standard normal features; rewards base + φᵀγ + bend·(φ_0² − 1) + noise, autocorrelated if `memory` > 0.

    The log is drawn from a softmax of `logging` · φ, mixed with 20 % of uniform play.
    """

    base: float = 1.0
    bend: float = 0.0
    memory: float = 0.0
    logging: np.ndarray = field(default_factory=lambda: np.array([0.5, 0.5, 0.0]))

    def chances(self, offered):
        """Propensities (n, K) of the logging policy."""
        return 0.8 * softmax(offered @ self.logging) + 0.2 / ACTIONS

    def means(self, offered):
        """Expected rewards (n, K)."""
        return self.base + offered @ GAMMA + self.bend * (offered[..., 0] ** 2 - 1.0)

    def log(self, rounds, rng):
        """Feedback with the propensities of all offered actions, and its expected rewards (n, K)."""
        offered = rng.standard_normal((rounds, ACTIONS, DIM))
        chances, means = self.chances(offered), self.means(offered)
        actions = (rng.random((rounds, 1)) > np.cumsum(chances, axis=1)).sum(axis=1)
        noise = rng.standard_normal(rounds)
        if self.memory:
            for t in range(1, rounds):
                noise[t] = (
                    self.memory * noise[t - 1]
                    + np.sqrt(1.0 - self.memory**2) * noise[t]
                )
        rewards = means[np.arange(rounds), actions] + noise
        return Feedback.from_arrays(
            offered, actions, rewards, propensities=chances
        ), means

    def value(self, target, rounds=1_000_000):
        """Value of a fixed target policy, a function of offered (n, K, p), by a long simulation of its
        own.
        """
        rng = np.random.default_rng(987_654_321)
        offered = rng.standard_normal((rounds, ACTIONS, DIM))
        return float((target(offered) * self.means(offered)).sum(axis=1).mean())


def best_of(coefficients):
    """The deterministic policy that maximises φᵀcoefficients."""

    def target(offered):
        return np.eye(ACTIONS)[(offered @ coefficients).argmax(axis=1)]

    return target


def soft(coefficients):
    """The randomised policy softmax(φᵀcoefficients)."""
    return lambda offered: softmax(offered @ coefficients)


def of_rounds(feedback):
    """Offered features (n, K, p) of feedback with K actions throughout."""
    return feedback.offered.reshape(feedback.rounds, ACTIONS, DIM)
