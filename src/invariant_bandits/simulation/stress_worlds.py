"""Worlds that a hedge must survive: other noise, rare clicks, no signal, a moved baseline, drift.

The features are Gaussian in a hidden basis whose scales change from regime to regime, so that the logs show
which directions are which; some coefficients drift, the others last. Every option breaks one thing between
the logs and the online rounds, or in both.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from invariant_bandits.checks import Array, InputError, one_of, whole_number
from invariant_bandits.decomposition.split import Split
from invariant_bandits.simulation.episodes import KnownEpisode, register_environment
from invariant_bandits.simulation.paper import (
    LoggedRounds,
    check_counts,
    random_basis,
    regimes_of,
)

SLOPE = 0.7
"""Standard deviation of the slopes of fixed arms."""


@register_environment("stress")
@dataclass(frozen=True)
class StressEpisodes:
    """Rounds with contexts in which the world differs from the logs in one respect.

    Parameters
    ----------
    logged : int
        Logged rounds T0.
    dim, residual_dim : int
        Features p, and how many directions drift.
    actions : int
        Offered actions K, new ones in every round.
    drift : "redrawn", "none" or "walk"
        Drifting coefficients are drawn afresh in every regime and online; or nothing drifts; or they walk by
        steps of `step` per round, through the logs and on.
    step : float
        Standard deviation of a step of the walk.
    signal : float
        Factor on the coefficients of the logs; 0 is a log without signal. Online it is 1.
    broken : float
        How far the lasting coefficients jump online.
    rewards : "gaussian", "t3", "heteroscedastic", "clicks" or "revenue"
        Noise of standard deviation 1, with heavy tails, or growing with the size of the mean; or 0/1 with a
        logistic mean; or an exponential amount on a click.
    rate : float
        Mean of clicks.
    noise_factor : float
        Online noise in units of the logs'.
    baseline_jump : float
        How far the baseline of the rewards moves online.
    regimes, windows : int
        Covariances that follow each other in the logs, and windows of their moments.

    >>> import numpy as np
    >>> world = StressEpisodes(broken=1.0)  # what lasted in the logs jumps when the policy starts
    >>> episode = world.draw(100, np.random.default_rng(0))
    >>> episode.offered.shape, episode.rewards.shape
    ((100, 5, 10), (100, 5))
    """

    logged: int = 4000
    dim: int = 10
    residual_dim: int = 3
    actions: int = 5
    drift: str = "redrawn"
    step: float = 0.01
    signal: float = 1.0
    broken: float = 0.0
    rewards: str = "gaussian"
    rate: float = 0.03
    noise_factor: float = 1.0
    baseline_jump: float = 0.0
    regimes: int = 8
    windows: int = 8

    def __post_init__(self) -> None:
        one_of("drift", self.drift, ("redrawn", "none", "walk"))
        one_of(
            "rewards",
            self.rewards,
            ("gaussian", "t3", "heteroscedastic", "clicks", "revenue"),
        )
        check_counts(self, logged=1, dim=1, actions=1, regimes=1, windows=1)
        if not 0 <= self.residual_dim <= self.dim:
            raise InputError(
                f"residual_dim must be at most dim, {self.dim}, got {self.residual_dim}"
            )

    def draw(self, horizon: int, rng: np.random.Generator) -> KnownEpisode:
        """One world, its logs and `horizon` online rounds."""
        whole_number("horizon", horizon, 1)
        basis = random_basis(self.dim, rng)
        lasting = self.dim - self.residual_dim
        split = Split(basis[:, :lasting], basis[:, lasting:])
        stable = rng.normal(scale=0.5, size=lasting)
        logged_path, online_path = self._residual_paths(horizon, rng)
        regime = regimes_of(self.logged, self.regimes)
        scales = rng.uniform(0.5, 2.0, (self.regimes + 1, self.dim))
        inner = np.hstack([np.tile(stable, (self.logged, 1)), logged_path])
        normal = rng.standard_normal((self.logged, self.actions, self.dim))
        offered = normal * scales[regime][:, None] @ basis.T
        coefficients = self.signal * inner @ basis.T
        linear = np.einsum("tkp,tp->tk", offered, coefficients)
        _, outcomes = self._rewards(linear, 1.0, 0.0, rng)
        actions = rng.integers(self.actions, size=self.logged)
        earned = outcomes[np.arange(self.logged), actions]
        logs = LoggedRounds(
            offered=offered,
            actions=actions,
            rewards=earned,
            coefficients=coefficients,
            split=split,
            component=split.invariant @ (self.signal * stable),
            basis=basis,
            propensities=np.full(self.logged, 1.0 / self.actions),
        )
        jump = rng.standard_normal(lasting)
        jump *= self.broken / max(float(np.linalg.norm(jump)), 1e-12)
        later = np.hstack([np.tile(stable + jump, (horizon, 1)), online_path]) @ basis.T
        normal = rng.standard_normal((horizon, self.actions, self.dim))
        ahead = normal * scales[-1] @ basis.T
        linear = np.einsum("tkp,tp->tk", ahead, later)
        means, outcomes = self._rewards(
            linear, self.noise_factor, self.baseline_jump, rng
        )
        return KnownEpisode(
            logs=logs,
            offered=ahead,
            coefficients=later,
            noise=np.zeros(horizon),
            windows=self.windows,
            expected=means,
            outcomes=outcomes,
        )

    def _residual_paths(
        self, horizon: int, rng: np.random.Generator
    ) -> tuple[Array, Array]:
        """Drifting coefficients of the logged rounds (T0, p_res) and of the online ones (T, p_res)."""
        q = self.residual_dim
        if self.drift == "walk":
            steps = rng.normal(scale=self.step, size=(self.logged + horizon, q))
            path = rng.normal(scale=0.5, size=q) + np.cumsum(steps, axis=0)
            return path[: self.logged], path[self.logged :]
        drawn = rng.normal(scale=0.7, size=(self.regimes + 1, q))
        if self.drift == "none":
            drawn[:] = drawn[0]
        regime = regimes_of(self.logged, self.regimes)
        return drawn[regime], np.tile(drawn[-1], (horizon, 1))

    def _rewards(
        self, linear: Array, factor: float, jump: float, rng: np.random.Generator
    ) -> tuple[Array, Array]:
        """Return expected rewards and outcomes (n, K) from linear predictors (n, K).

        The actions of a round share its luck.
        """
        n = len(linear)
        if self.rewards in ("clicks", "revenue"):
            level = np.log(self.rate / (1.0 - self.rate))
            means = 1.0 / (1.0 + np.exp(-(level + jump + 0.5 * linear)))
            clicked = (rng.random(n)[:, None] < means).astype(float)
            if self.rewards == "clicks":
                return means, clicked
            return means, clicked * rng.exponential(size=n)[:, None]
        # Student's t with 3 degrees of freedom has variance 3.
        t3 = self.rewards == "t3"
        noise = rng.standard_t(3.0, n) / np.sqrt(3.0) if t3 else rng.standard_normal(n)
        scale = np.ones_like(linear)
        if self.rewards == "heteroscedastic":
            scale = np.sqrt(0.25 + 0.5 * linear**2)
        means = linear + jump
        return means, means + factor * scale * noise[:, None]


@register_environment("fixed-arms")
@dataclass(frozen=True)
class FixedArms:
    """K arms, coded by indicators of all but the first, whose values may change after the logs.

    Values are standard normal, and so is the noise. With contexts x ~ N(0, I) every arm also has slopes of
    standard deviation 0.7.

    Parameters
    ----------
    arms : int
        K, at least 2.
    changed : float
        Part of the arms whose values, and slopes, are drawn afresh for the online rounds.
    contexts : int
        Number of context features.
    logged : int
        Logged rounds, arms drawn uniformly.
    windows : int
        Number of windows of their moments.

    >>> import numpy as np
    >>> episode = FixedArms(arms=3, contexts=2).draw(10, np.random.default_rng(0))
    >>> episode.offered.shape
    (10, 3, 8)
    """

    arms: int = 5
    changed: float = 1.0
    contexts: int = 0
    logged: int = 4000
    windows: int = 8

    def __post_init__(self) -> None:
        check_counts(self, arms=2, contexts=0, logged=1)
        if not 0.0 <= self.changed <= 1.0:
            raise InputError(f"changed must be from 0 to 1, got {self.changed!r}")

    def draw(self, horizon: int, rng: np.random.Generator) -> KnownEpisode:
        """One world, its logs and `horizon` online rounds."""
        whole_number("horizon", horizon, 1)
        values = self._values(self.arms, rng)
        later = values.copy()
        moved = rng.permutation(self.arms)[: round(self.changed * self.arms)]
        later[moved] = self._values(len(moved), rng)
        offered, means = self._rounds(self.logged, values, rng)
        actions = rng.integers(self.arms, size=self.logged)
        each = np.arange(self.logged)
        p = offered.shape[2]
        coefficients = self._coefficients(values)
        rewards = means[each, actions] + rng.standard_normal(self.logged)
        logs = LoggedRounds(
            offered=offered,
            actions=actions,
            rewards=rewards,
            coefficients=np.tile(coefficients, (self.logged, 1)),
            split=Split(np.eye(p), np.zeros((p, 0))),
            component=coefficients,
            basis=np.eye(p),
            propensities=np.full(self.logged, 1.0 / self.arms),
        )
        ahead, expected = self._rounds(horizon, later, rng)
        outcomes = expected + rng.standard_normal(horizon)[:, None]
        coefficients = np.tile(self._coefficients(later), (horizon, 1))
        return KnownEpisode(
            logs=logs,
            offered=ahead,
            coefficients=coefficients,
            noise=np.zeros(horizon),
            windows=self.windows,
            expected=expected,
            outcomes=outcomes,
        )

    def _values(self, arms: int, rng: np.random.Generator) -> Array:
        """Value and slopes of every arm (arms, 1 + contexts)."""
        sizes = np.append(1.0, np.full(self.contexts, SLOPE))
        return np.asarray(rng.standard_normal((arms, 1 + self.contexts)) * sizes)

    def _coefficients(self, values: Array) -> Array:
        """As coefficients of the features (p,); the value of the first arm is the baseline."""
        return np.concatenate([values[1:, 0] - values[0, 0], values[:, 1:].ravel()])

    def _rounds(
        self, count: int, values: Array, rng: np.random.Generator
    ) -> tuple[Array, Array]:
        """Features (count, K, p) and expected rewards (count, K) of so many rounds."""
        K = self.arms
        q = self.contexts
        contexts = rng.standard_normal((count, q))
        offered = np.zeros((count, K, K - 1 + K * q))
        offered[:, np.arange(1, K), np.arange(K - 1)] = 1.0
        for arm in range(K):
            offered[:, arm, K - 1 + arm * q : K - 1 + (arm + 1) * q] = contexts
        return offered, values[:, 0] + contexts @ values[:, 1:].T
