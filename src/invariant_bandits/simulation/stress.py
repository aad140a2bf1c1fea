"""Worlds that a hedge must survive: other noise, rare clicks, no signal in the logs, a moved baseline,
ongoing drift.

The features are Gaussian in a hidden basis whose scales change from regime to regime, so that the logs show
which directions are which; some coefficients drift, the others last. Every option breaks one thing between
the logs and the online rounds, or in both.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from invariant_bandits.checks import Array, InputError, one_of, whole_number
from invariant_bandits.decomposition.split import Split
from invariant_bandits.simulation.episodes import Episode, environment
from invariant_bandits.simulation.paper import LoggedRounds, random_basis

REWARDS = ("gaussian", "t3", "heteroscedastic", "clicks", "revenue")
DRIFTS = ("redrawn", "none", "walk")
BASELINE_OF_CLICKS = 0.25  # of the standard deviation of the log-odds


@environment("stress")
@dataclass(frozen=True)
class StressEpisodes:
    """Contextual rounds in which one thing is not as the logs say.

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
        one_of("drift", self.drift, DRIFTS)
        one_of("rewards", self.rewards, REWARDS)
        for name in ("logged", "dim", "actions", "regimes", "windows"):
            whole_number(name, getattr(self, name), 1)
        if not 0 <= self.residual_dim <= self.dim:
            raise InputError(f"residual_dim must be at most dim, {self.dim}, got {self.residual_dim}")

    def draw(self, horizon: int, rng: np.random.Generator) -> Episode:
        """One world, its logs and `horizon` online rounds."""
        whole_number("horizon", horizon, 1)
        basis = random_basis(self.dim, rng)
        lasting = self.dim - self.residual_dim
        split = Split(basis[:, :lasting], basis[:, lasting:])
        stable = rng.normal(scale=0.5, size=lasting)
        logged_path, online_path = self._residual_paths(horizon, rng)
        regime = np.minimum(np.arange(self.logged) * self.regimes // self.logged, self.regimes - 1)
        scales = rng.uniform(0.5, 2.0, (self.regimes + 1, self.dim))
        inner = np.hstack([np.tile(stable, (self.logged, 1)), logged_path])
        offered = (
            rng.standard_normal((self.logged, self.actions, self.dim)) * scales[regime][:, None] @ basis.T
        )
        coefficients = self.signal * inner @ basis.T
        means, outcomes = self._rewards(np.einsum("tkp,tp->tk", offered, coefficients), 1.0, 0.0, rng)
        actions = rng.integers(self.actions, size=self.logged)
        truth = coefficients, split, split.invariant @ (self.signal * stable), basis
        earned = outcomes[np.arange(self.logged), actions]
        even = np.full(self.logged, 1.0 / self.actions)
        logs = LoggedRounds.from_choices(offered, actions, earned, truth, even)
        jump = rng.standard_normal(lasting)
        jump *= self.broken / max(float(np.linalg.norm(jump)), 1e-12)
        later = np.hstack([np.tile(stable + jump, (horizon, 1)), online_path]) @ basis.T
        ahead = rng.standard_normal((horizon, self.actions, self.dim)) * scales[-1] @ basis.T
        linear = np.einsum("tkp,tp->tk", ahead, later)
        means, outcomes = self._rewards(linear, self.noise_factor, self.baseline_jump, rng)
        return Episode(
            logs=logs,
            offered=ahead,
            coefficients=later,
            noise=np.zeros(horizon),
            windows=self.windows,
            expected=means,
            outcomes=outcomes,
        )

    def _residual_paths(self, horizon: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Drifting coefficients of the logged rounds (T0, p_res) and of the online ones (T, p_res)."""
        q = self.residual_dim
        if self.drift == "walk":
            steps = rng.normal(scale=self.step, size=(self.logged + horizon, q))
            path = rng.normal(scale=0.5, size=q) + np.cumsum(steps, axis=0)
            return path[: self.logged], path[self.logged :]
        drawn = rng.normal(scale=0.7, size=(self.regimes + 1, q))
        if self.drift == "none":
            drawn[:] = drawn[0]
        regime = np.minimum(np.arange(self.logged) * self.regimes // self.logged, self.regimes - 1)
        return drawn[regime], np.tile(drawn[-1], (horizon, 1))

    def _rewards(
        self, linear: Array, factor: float, jump: float, rng: np.random.Generator
    ) -> tuple[Array, Array]:
        """Expected rewards and outcomes (n, K) from linear predictors (n, K); luck is shared by a round's
        actions.
        """
        n = len(linear)
        if self.rewards in ("clicks", "revenue"):
            level = np.log(self.rate / (1.0 - self.rate))
            means = 1.0 / (1.0 + np.exp(-(level + jump + 0.5 * linear)))
            clicked = (rng.random(n)[:, None] < means).astype(float)
            if self.rewards == "clicks":
                return means, clicked
            return means, clicked * rng.exponential(size=n)[:, None]
        noise = rng.standard_t(3.0, n) / np.sqrt(3.0) if self.rewards == "t3" else rng.standard_normal(n)
        spread = np.ones_like(linear)
        if self.rewards == "heteroscedastic":
            spread = np.sqrt(0.25 + 0.5 * linear**2)
        means = linear + jump
        return means, means + factor * spread * noise[:, None]
