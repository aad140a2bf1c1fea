"""The instance behind the paper's lower bound: no policy has an average regret below e⁻²/8·p_res·√T on it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from invariant_bandits.checks import Array, InputError, one_of, whole_number
from invariant_bandits.decomposition.split import Split
from invariant_bandits.simulation.episodes import Episode, environment
from invariant_bandits.simulation.paper import LoggedRounds

VERTICES = ("residual", "all")
MOST_VERTICES = 4096


@environment("hypercube", seeded_as="invariant_bandits.environments.lower_bound.HypercubeEpisodes")
@dataclass(frozen=True)
class HypercubeEpisodes:
    """Vertices of [−1, 1]^p as actions, residual coefficients ±1/√T, unit Gaussian noise (the paper's last
    appendix).

    The signs of an episode are uniform over all 2^p_res sign vectors and independent of its logs: the mean
    over episodes estimates the mean over instances, which `policies.radii.regret_lower_bound` bounds for
    every policy, with or without history. A linear reward is largest at a vertex, so the vertices stand for
    the whole cube. Invariant coefficients are uniform(0.5, 1.5).

    The logs lie in the cube as well: in each of `regimes` stretches every coordinate has its own scale from
    uniform(0.2, 1) and every residual coefficient its own sign, so that they show what stays (the basis is
    the coordinates') and say nothing of the signs to come.

    Parameters
    ----------
    invariant_dim : int
        Invariant coordinates p_inv, the first of the features.
    residual_dim : int
        Residual coordinates p_res.
    logged : int
        Number of logged rounds.
    vertices : "residual" or "all"
        "residual" offers the 2^p_res vertices with the invariant coordinates at 1, where they are best. "all"
        offers 2^p.
    actions : int
        Actions that a logged round offers.
    regimes : int
        Stretches of the logs.
    windows : int
        Into how many equal stretches the logs are cut for moments.

    >>> import numpy as np
    >>> from invariant_bandits.simulation.lower_bound import HypercubeEpisodes
    >>> HypercubeEpisodes(logged=100).draw(horizon=4, rng=np.random.default_rng(0)).offered.shape
    (4, 8, 6)
    """

    invariant_dim: int = 3
    residual_dim: int = 3
    logged: int = 2000
    vertices: str = "residual"
    actions: int = 5
    regimes: int = 8
    windows: int = 8

    def __post_init__(self) -> None:
        whole_number("invariant_dim", self.invariant_dim, 0)
        for name in ("residual_dim", "logged", "actions", "regimes"):
            whole_number(name, getattr(self, name), 1)
        one_of("vertices", self.vertices, VERTICES)
        free = self.residual_dim + (self.invariant_dim if self.vertices == "all" else 0)
        if free >= MOST_VERTICES.bit_length():  # 2^free may have more digits than memory
            raise InputError(
                f"vertices={self.vertices!r} would offer 2^{free} actions, at most {MOST_VERTICES} are"
                " possible"
            )

    @property
    def dim(self) -> int:
        """Number of features p. The invariant ones come first."""
        return self.invariant_dim + self.residual_dim

    def draw(self, horizon: int, rng: np.random.Generator) -> Episode:
        """One instance, its logs and `horizon` online rounds."""
        whole_number("horizon", horizon, 1)
        invariant = rng.uniform(0.5, 1.5, self.invariant_dim)
        logs = self._log(invariant, rng)
        signs = rng.choice([-1.0, 1.0], self.residual_dim)
        actions = self._vertices()
        return Episode(
            logs=logs,
            offered=np.ascontiguousarray(np.broadcast_to(actions, (horizon, *actions.shape))),
            coefficients=np.tile(np.concatenate([invariant, signs / np.sqrt(horizon)]), (horizon, 1)),
            noise=rng.standard_normal(horizon),
            windows=self.windows,
        )

    def _vertices(self) -> Array:
        """The offered actions (K, p)."""
        invariant = (1.0,) if self.vertices == "residual" else (1.0, -1.0)
        sides = [invariant] * self.invariant_dim + [(1.0, -1.0)] * self.residual_dim
        return np.array(list(product(*sides)))

    def _log(self, invariant: Array, rng: np.random.Generator) -> LoggedRounds:
        regime = np.minimum(np.arange(self.logged) * self.regimes // self.logged, self.regimes - 1)
        scales = rng.uniform(0.2, 1.0, (self.regimes, self.dim))[regime]
        offered = scales[:, None] * rng.choice([-1.0, 1.0], (self.logged, self.actions, self.dim))
        residual = rng.choice([-1.0, 1.0], (self.regimes, self.residual_dim))[regime]
        coefficients = np.hstack([np.tile(invariant, (self.logged, 1)), residual])
        actions = rng.integers(self.actions, size=self.logged)
        features = offered[np.arange(self.logged), actions]
        basis = np.eye(self.dim)
        split = Split(basis[:, : self.invariant_dim], basis[:, self.invariant_dim :])
        truth = coefficients, split, split.invariant @ invariant, basis
        rewards = np.einsum("tp,tp->t", features, coefficients) + rng.standard_normal(self.logged)
        even = np.full(self.logged, 1.0 / self.actions)
        return LoggedRounds.from_choices(offered, actions, rewards, truth, even)
