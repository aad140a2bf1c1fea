"""Bandit over bandit: the window of SW-LinUCB chosen by EXP3 from the rewards of whole blocks of rounds."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import ceil, e, log, sqrt
from typing import Any, Self, Unpack

import numpy as np

from invariant_bandits.checks import Array, InputError, whole_number
from invariant_bandits.policies.base import BasePolicy, Draws, Scores, positive, seed_number
from invariant_bandits.policies.linear import Common, SWLinUCB
from invariant_bandits.policies.past import Past
from invariant_bandits.policies.registry import policy
from invariant_bandits.storage import ANYTHING, MOST_ROUNDS, ArraySpec, StateSchema, prefixed, under

INNER = "inner."
LONGEST_BLOCK = 10_000_000
LARGEST_REWARD = 1e110
"""Of the rewards of a block together."""


@policy("bob-linucb", label="BOB-linUCB")
class BOBLinUCB(BasePolicy):
    """SW-LinUCB that needs no variation budget (Cheung, Simchi-Levi & Zhu 2019, Algorithm 2).

    Rounds are cut into blocks of H. In each block a fresh SW-LinUCB runs with one of the windows H^{j/Δ}, j =
    0..Δ = ⌈log H⌉, drawn by EXP3. The draw depends on seed and block alone. Given it, the policy does not
    randomise.

    Parameters
    ----------
    dim : int
        Number of features p.
    horizon : int
        Rounds T that will be played.
    block : int, optional
        Rounds H of a block, ⌊p^{2/3}√T⌋ if not given.
    reward_bound : float
        Bounds the absolute value of expected rewards, 1 in the paper.
    seed : int or numpy.random.Generator
        Draws the windows.
    **common :
        As in LinearPolicy: ridge, confidence, noise_scale, norm_bound, feature_bound and exploration.

    Attributes
    ----------
    windows : list of int
        The windows to choose from, in rounds.

    >>> import invariant_bandits as ib
    >>> policy = ib.BOBLinUCB(2, horizon=100, seed=0)
    >>> policy.block, policy.windows, policy.window_probabilities().round(2).tolist()
    (15, [1, 2, 6, 15], [0.25, 0.25, 0.25, 0.25])
    """

    options = ("dim", "horizon", "block", "reward_bound", "seed")

    def __init__(
        self,
        dim: int,
        *,
        horizon: int,
        block: int | None = None,
        reward_bound: float = 1.0,
        seed: int | np.random.Generator = 0,
        **common: Unpack[Common],
    ) -> None:
        self.dim = whole_number("dim", dim, 1)
        self.horizon = whole_number("horizon", horizon, 2)
        published = min(self.horizon, max(2, int(self.dim ** (2 / 3) * sqrt(self.horizon))))
        self.block = published if block is None else whole_number("block", block, 2)
        self.reward_bound = positive("reward_bound", reward_bound)
        self.rounds = 0
        self._draws: Draws = Draws(seed)
        self._common: Common = common
        self.windows = windows_of(self.block)
        arms = len(self.windows)
        blocks = ceil(self.horizon / self.block)
        self._mixing = min(1.0, sqrt(arms * log(arms) / ((e - 1.0) * blocks)))
        self._log_weights = np.zeros(arms)
        self._block_reward = 0.0
        self._begin_block()

    @classmethod
    def from_past(cls, past: Past, *, horizon: int | None = None, **options: Any) -> Self:
        """The past's horizon, noise scale, feature bound and confidence, unless `options` say otherwise."""
        horizon = horizon or past.needed_horizon("horizon")
        return cls(past.dim, horizon=horizon, **{**past.settings(), **options})

    def window_probabilities(self) -> Array:
        """EXP3's probabilities (Δ + 1,) of the windows for the next block."""
        with self._lock:
            weights = np.exp(self._log_weights - self._log_weights.max())
        arms = len(weights)
        return np.asarray((1.0 - self._mixing) * weights / weights.sum() + self._mixing / arms)

    @property
    def window(self) -> int:
        """The window of the present block."""
        return self.windows[self._arm]

    def _begin_block(self) -> None:
        place = self._draws.at(self.rounds).random()
        steps = np.cumsum(self.window_probabilities())
        self._arm = min(int(np.searchsorted(steps, place, side="right")), len(steps) - 1)
        self._block_reward = 0.0
        self._playing: SWLinUCB | None = None

    @property
    def _inner(self) -> SWLinUCB:
        """The policy of the present block, made when it is first needed: its window may be long."""
        if self._playing is None:
            self._playing = SWLinUCB(self.dim, window=self.windows[self._arm], **self._common)
        return self._playing

    def _end_block(self) -> None:
        """EXP3: the window that was played gets credit for the block's reward, scaled to about [0, 1]."""
        H, R = self.block, self._inner.noise_scale
        deviation = R * sqrt(H * max(log(self.horizon / sqrt(H)), 0.0))
        gain = 0.5 + self._block_reward / (2.0 * H * self.reward_bound + 4.0 * deviation)
        share = self.window_probabilities()[self._arm]
        self._log_weights[self._arm] += self._mixing / len(self.windows) * gain / share

    def select(self, features: Any) -> int:
        """Index of the action to play, given features (K, p)."""
        with self._lock:
            return self._inner.select(features)

    def select_many(self, features: Any) -> np.ndarray[Any, Any]:
        """Actions (N,) for N rounds (N, K, p) in the present state."""
        with self._lock:
            return self._inner.select_many(features)

    def scores(self, features: Any) -> Scores:
        """Means and widths under the present window."""
        with self._lock:
            return self._inner.scores(features)

    def update(self, features: Any, reward: float, *, offered: Any = None, action: int | None = None) -> None:
        """Learn the reward of the chosen action; at the end of a block, choose the next window."""
        with self._lock:
            self._inner.update(features, reward)
            self.rounds += 1
            self._block_reward += float(reward)
            if self.rounds % self.block == 0:
                self._end_block()
                self._begin_block()

    def settings(self) -> dict[str, Any]:
        """What the constructor was given, the seed as a number."""
        return {**super().settings(), **self._common}

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """Counters, weights of the windows, and the inner policy."""
        with self._lock:
            return prefixed(INNER, self._inner.arrays()) | {
                "rounds": np.array([self.rounds, self._arm], dtype=np.int64),
                "weights": self._log_weights.copy(),
                "block_reward": np.array([self._block_reward]),
            }

    @classmethod
    def state_schema(cls, settings: Mapping[str, Any], names: Collection[str]) -> StateSchema:
        """Counter and place of the window, log-weights of the windows, the block's reward, and the inner
        policy.
        """
        windows = windows_of(whole_number("block", settings["block"], 2))
        arrays = {
            "rounds": ArraySpec((2,), "int64", 0, (MOST_ROUNDS, len(windows) - 1)),
            "weights": ArraySpec((len(windows),), least=-LARGEST_REWARD, most=LARGEST_REWARD),
            "block_reward": ArraySpec((1,), least=-LARGEST_REWARD, most=LARGEST_REWARD),
        }
        return StateSchema(arrays, {"seed": seed_number}, parts={INNER: ANYTHING})

    def _restore(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        self.rounds, self._arm = (int(value) for value in arrays["rounds"])
        self._log_weights[...] = arrays["weights"]
        self._block_reward = float(arrays["block_reward"][0])
        settings = {"dim": self.dim, "window": self.window, **self._common}
        self._playing = SWLinUCB.from_state(settings, under(arrays, INNER))

    def __repr__(self) -> str:
        windows = f"windows={self.windows}, window={self.window}"
        return f"BOBLinUCB(dim={self.dim}, {windows}, rounds={self.rounds})"


def windows_of(block: int) -> list[int]:
    """The windows to choose from in blocks of so many rounds."""
    if block > LONGEST_BLOCK:
        raise InputError(f"block must be at most {LONGEST_BLOCK:,} rounds, which are kept, got {block}")
    steps = max(1, ceil(log(block)))
    return [max(1, int(block ** (j / steps) + 1e-9)) for j in range(steps + 1)]
