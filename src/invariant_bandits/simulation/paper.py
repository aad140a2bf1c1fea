"""The simulation of the paper: block-diagonal covariances in a hidden basis, one block drifting."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from invariant_bandits.checks import (
    Array,
    InputError,
    one_of,
    probability,
    whole_number,
)
from invariant_bandits.decomposition.split import Split
from invariant_bandits.moments.windowed import WindowedMoments
from invariant_bandits.policies.linear import LinUCB


@dataclass(frozen=True)
class LoggedRounds:
    """n logged rounds with the truth behind them.

    Parameters
    ----------
    offered : array, shape (n, K, p)
        Features of all offered actions.
    actions : array of int, shape (n,)
        Index of the chosen action, from 0.
    rewards : array, shape (n,)
        Their rewards.
    coefficients : array, shape (n, p)
        True γ_t.
    split : Split
        True invariant and residual part.
    component : array, shape (p,)
        True β_inv.
    basis : array, shape (p, p)
        The hidden basis, columns in the order of the blocks.
    propensities : array, shape (n,), or None
        Probability with which the chosen action was chosen. None if the logging policy never randomised.
    """

    offered: Array
    actions: Array
    rewards: Array
    coefficients: Array
    split: Split
    component: Array
    basis: Array
    propensities: Array | None = None

    @cached_property
    def features(self) -> Array:
        """Features of the chosen actions (n, p)."""
        return np.asarray(self.offered[np.arange(len(self.actions)), self.actions])

    def moments(self, windows: int | None = None) -> WindowedMoments:
        """Return moments with the offered actions, in so many equal windows of rounds (8 by default)."""
        return WindowedMoments.from_arrays(
            self.features, self.rewards, windows=windows, offered=self.offered
        )


@dataclass(frozen=True)
class PaperWorld:
    """Settings of the simulated data in Section 5 of the paper behind this library.

    In a random orthogonal basis, the features have a block-diagonal covariance matrix. Coefficients drift in
    some blocks of the covariance matrix and are stable in the other blocks.

    The defaults follow the script of the paper's authors. The text has two blocks, a time that runs from −1
    to 0 in the logs, and no scaled start; the experiments of the reproduction play both.

    Parameters
    ----------
    blocks : tuple of int
        Sizes of the blocks of the features' covariance matrix; the number of features p is their sum.
    varying : int, tuple of int or None
        Indices of the blocks whose coefficients drift; None if no coefficient drifts.
    actions : int
        Number of actions K that every round offers.
    regimes : int
        Number of different covariance matrices of the features that follow each other in the logs.
    drift : float
        Factor that multiplies the drift of the coefficients in the paper's simulation.
    noise_scale : float
        Standard deviation of the noise in a reward, in logged and online rounds.
    conditioning : "published" or "well"
        How covariance matrices are drawn. With `conditioning="published"`, a covariance matrix is A Aᵀ, where
        the entries of the matrix A are uniform between 0 and 1. Covariance matrices drawn as "published" are
        often nearly singular. With `conditioning="well"`, the eigenvalues of a covariance matrix are uniform
        between 0.5 and 2.
    degrees_of_freedom : float, optional
        Degrees of freedom, above 2, of features with a multivariate t distribution; Gaussian by default.
    logging : "uniform", "epsilon-greedy", "greedy" or "linucb"
        Name of the policy that chose the logged actions.
    epsilon : float
        Probability with which the logging policy "epsilon-greedy" draws an action at random.
    noise : "gaussian" or "t"
        Distribution of the noise in the rewards, in logged and online rounds.
    noise_freedom : float
        Degrees of freedom, above 2, of the noise if `noise="t"`.
    unit_start : bool
        Whether the first coefficient vector is scaled to length 1, as in the script of the paper's authors.

    >>> import numpy as np, invariant_bandits as ib
    >>> logs = ib.simulation.PaperWorld().log(400, np.random.default_rng(0))
    >>> logs.offered.shape, logs.split
    ((400, 5, 10), Split(invariant_dim=7, residual_dim=3))
    >>> logs.moments(windows=4)
    WindowedMoments(dim=10, windows=4, rounds=400, of chosen and offered actions)
    """

    blocks: tuple[int, ...] = (4, 1, 3, 2)
    varying: int | tuple[int, ...] | None = 2
    actions: int = 5
    regimes: int = 8
    drift: float = 1.0
    noise_scale: float = 1.0
    conditioning: str = "published"
    degrees_of_freedom: float | None = None
    logging: str = "uniform"
    epsilon: float = 0.1
    noise: str = "gaussian"
    noise_freedom: float = 3.0
    unit_start: bool = True

    def __post_init__(self) -> None:
        one_of("conditioning", self.conditioning, ("published", "well"))
        one_of(
            "logging", self.logging, ("uniform", "epsilon-greedy", "greedy", "linucb")
        )
        one_of("noise", self.noise, ("gaussian", "t"))
        for size in self.blocks:
            whole_number("blocks", size, 1)
        check_counts(self, actions=1, regimes=1)
        probability("epsilon", self.epsilon)
        for name in ("degrees_of_freedom", "noise_freedom"):
            freedom = getattr(self, name)
            if freedom is not None and not freedom > 2:
                raise InputError(
                    f"{name} must exceed 2 to have a covariance, got {freedom}"
                )
        varying = self.varying_blocks
        blocks = range(len(self.blocks))
        if len(set(varying)) < len(varying) or not set(varying) <= set(blocks):
            raise InputError(
                f"varying must index different ones of {len(blocks)} blocks, got {self.varying}"
            )

    @property
    def dim(self) -> int:
        """Number of features p."""
        return sum(self.blocks)

    def log(self, rounds: int, rng: np.random.Generator) -> LoggedRounds:
        """Draw a basis of the feature space, coefficients and feature covariances, then logged rounds.

        Parameters
        ----------
        rounds : int
            Number of logged rounds n.
        rng : numpy.random.Generator
            Source of all random numbers.

        Returns
        -------
        LoggedRounds
            Logged rounds, with the true coefficients of every round.
        """
        whole_number("rounds", rounds, 1)
        p = self.dim
        basis = random_basis(p, rng)
        moving = self.moving_coordinates()
        base = rng.uniform(0.5, 1.5, size=p)
        if self.unit_start:
            base /= np.linalg.norm(base)
        inner = np.tile(base, (rounds, 1))
        time = self.clock(rounds)
        for j, column in enumerate(moving, start=1):
            inner[:, column] -= (
                self.drift * 1.5 * time * np.sin(0.25 * j * time + j) ** 2
            )
        coefficients = inner @ basis.T
        offered = self._offered(rounds, basis, rng)
        noise = self.draw_noise(rounds, rng)
        means = np.einsum("tkp,tp->tk", offered, coefficients)
        actions, propensities = self._choose(offered, means + noise[:, None], rng)
        component = basis[:, [j for j in range(p) if j not in moving]]
        split = Split(component, basis[:, moving])
        rewards = means[np.arange(rounds), actions] + noise
        return LoggedRounds(
            offered=offered,
            actions=actions,
            rewards=rewards,
            coefficients=coefficients,
            split=split,
            component=component @ (component.T @ basis @ base),
            basis=basis,
            propensities=propensities,
        )

    def clock(self, rounds: int) -> Array:
        """Time of every logged round (rounds,), in units of the log's length."""
        return np.arange(rounds) / rounds

    @property
    def varying_blocks(self) -> tuple[int, ...]:
        """Indices of the drifting blocks."""
        if self.varying is None:
            return ()
        return self.varying if isinstance(self.varying, tuple) else (self.varying,)

    def moving_coordinates(self) -> list[int]:
        """Indices of the drifting coordinates, in the hidden basis."""
        sizes = self.blocks
        varying = self.varying_blocks
        return [
            sum(sizes[:block]) + j for block in varying for j in range(sizes[block])
        ]

    def draw_noise(self, rounds: int, rng: np.random.Generator) -> Array:
        """Noise of so many rounds (rounds,), of standard deviation noise_scale for every kind of tails."""
        if self.noise == "gaussian":
            return self.noise_scale * rng.standard_normal(rounds)
        nu = self.noise_freedom
        return np.asarray(
            self.noise_scale * np.sqrt((nu - 2.0) / nu) * rng.standard_t(nu, rounds)
        )

    def _offered(self, rounds: int, basis: Array, rng: np.random.Generator) -> Array:
        """One N(0, Σ) or t vector per action and round (rounds, K, p), Σ new in every regime."""
        p = self.dim
        regime = regimes_of(rounds, self.regimes)
        roots = np.stack(
            [self.covariance_root(basis, rng) for _ in range(self.regimes)]
        )
        normal = rng.standard_normal((rounds, self.actions, p))
        if self.degrees_of_freedom is not None:
            nu = self.degrees_of_freedom
            chi = rng.chisquare(nu, size=(rounds, self.actions, 1))
            normal *= np.sqrt((nu - 2.0) / chi)
        result = np.empty_like(normal)
        for index, root in enumerate(roots):
            inside = regime == index
            result[inside] = normal[inside] @ root.T
        return result

    def covariance_root(self, basis: Array, rng: np.random.Generator) -> Array:
        """A square root of one random covariance U·blockdiag(Σ_b)·Uᵀ (p, p)."""
        from scipy.linalg import block_diag

        if self.conditioning == "published":
            roots = [rng.uniform(size=(size, size)) for size in self.blocks]
        else:
            roots = [
                random_basis(size, rng) * np.sqrt(rng.uniform(0.5, 2.0, size))
                for size in self.blocks
            ]
        return basis @ block_diag(*roots)

    def _choose(
        self, offered: Array, rewards: Array, rng: np.random.Generator
    ) -> tuple[Array, Array | None]:
        """Draw logged actions (n,) and their probabilities (n,), None if the policy is deterministic."""
        rounds, count, _ = offered.shape
        if self.logging == "uniform":
            return np.asarray(rng.integers(count, size=rounds)), np.full(
                rounds, 1.0 / count
            )
        forced = np.full(rounds, -1)
        if self.logging == "epsilon-greedy":
            forced = np.where(
                rng.random(rounds) < self.epsilon,
                rng.integers(count, size=rounds),
                forced,
            )
        exploration = 1.0 if self.logging == "linucb" else 0.0
        logger = LinUCB(self.dim, delta=1.0 / max(rounds, 2), exploration=exploration)
        preferred = np.empty(rounds, dtype=np.int64)
        for t, (features, outcome) in enumerate(
            zip(offered, rewards.tolist(), strict=True)
        ):
            preferred[t] = logger.select(features)
            played = forced[t] if forced[t] >= 0 else preferred[t]
            logger.update(features[played], outcome[played])
        if self.logging != "epsilon-greedy":
            return preferred, None
        actions = np.where(forced >= 0, forced, preferred)
        return actions, self.epsilon / count + (1.0 - self.epsilon) * (
            actions == preferred
        )


def check_counts(environment: Any, **least: int) -> None:
    """Raise unless these fields of an environment are whole numbers that are not below their least values."""
    for name, smallest in least.items():
        whole_number(name, getattr(environment, name), smallest)


def regimes_of(rounds: int, regimes: int) -> Array:
    """The regime, from 0, of every logged round (rounds,): equally long ones follow each other."""
    return np.arange(rounds) * regimes // rounds


def random_basis(p: int, rng: np.random.Generator) -> Array:
    """A Haar-distributed orthogonal matrix (p, p)."""
    q, r = np.linalg.qr(rng.standard_normal((p, p)))
    return np.asarray(q * np.sign(np.diagonal(r)))


ROTATION_CLOCK = 2000
"""Rounds of a unit of time in the seventh experiment, as printed in the paper."""


def rotating(dim: int, rounds: int) -> Array:
    """The fast rotation of the seventh experiment, as an array (rounds, dim) whose rows have length 1.

    It starts at (1, …, 1)/√p_res. In round t each coordinate j moves by −0.5(t/2000)sin²(50jt/2000 + j), then
    all are renormalised.
    """
    j = np.arange(1, dim + 1)
    path = np.empty((rounds, dim))
    path[0] = 1.0 / np.sqrt(dim)
    for t in range(1, rounds):
        clock = t / ROTATION_CLOCK
        step = path[t - 1] - 0.5 * clock * np.sin(50.0 * j * clock + j) ** 2
        path[t] = step / np.linalg.norm(step)
    return path


def abrupt(
    first: Array, change_points: Array, rounds: int, rng: np.random.Generator
) -> Array:
    """Values `first` (p_res,) until the first change point, then new uniform(0.5, 1.5) ones at each."""
    redrawn = rng.uniform(0.5, 1.5, size=(len(change_points), len(first)))
    return np.concatenate([first[None], redrawn])[_segments(change_points, rounds)]


def recurring(states: Array, change_points: Array, rounds: int) -> Array:
    """The states (m, p_res) in turn, the next one at each change point and the first again after the last."""
    return np.asarray(states[_segments(change_points, rounds) % len(states)])


def _segments(change_points: Array, rounds: int) -> Array:
    """How many change points every round (rounds,) has reached; each is the first round of the new."""
    return np.searchsorted(change_points, np.arange(rounds), side="right")


def change_points(
    changes: int | tuple[int, ...], rounds: int, rng: np.random.Generator
) -> Array:
    """Sorted rounds (from 0) at which something changes: those given, or so many different ones at random."""
    if isinstance(changes, tuple):
        if max(changes, default=0) >= rounds:
            raise InputError(
                f"changes must lie below the horizon {rounds}, got {max(changes)}"
            )
        return np.array(changes, dtype=np.int64)
    if changes >= rounds:
        raise InputError(
            f"changes must be fewer than the {rounds} online rounds, got {changes}"
        )
    return np.sort(rng.choice(np.arange(1, rounds), size=changes, replace=False))


def checked_changes(changes: int | tuple[int, ...]) -> None:
    """Raise unless `changes` is a whole number, or increasing rounds from 1 on."""
    for point in changes if isinstance(changes, tuple) else ():
        whole_number("changes", point, 1)
    if not isinstance(changes, tuple):
        whole_number("changes", changes, 0)
    elif list(changes) != sorted(set(changes)):
        raise InputError(f"changes must increase, got {changes}")
