"""A few arms that are always the same, with or without contexts: the hard case for a policy that trusts its
logs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from invariant_bandits.checks import Array, InputError, whole_number
from invariant_bandits.decomposition.split import Split
from invariant_bandits.simulation.episodes import Episode, environment
from invariant_bandits.simulation.paper import LoggedRounds

SLOPE = 0.7


@environment("fixed-arms")
@dataclass(frozen=True)
class FixedArms:
    """K arms, coded by indicators of all but the first, whose values may change between the logs and the
    online rounds.

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
        Of their moments.

    >>> import numpy as np, invariant_bandits as ib
    >>> episode = ib.FixedArms(arms=3, contexts=2).draw(10, np.random.default_rng(0))
    >>> episode.offered.shape
    (10, 3, 8)
    """

    arms: int = 5
    changed: float = 1.0
    contexts: int = 0
    logged: int = 4000
    windows: int = 8

    def __post_init__(self) -> None:
        whole_number("arms", self.arms, 2)
        whole_number("contexts", self.contexts, 0)
        whole_number("logged", self.logged, 1)
        if not 0.0 <= self.changed <= 1.0:
            raise InputError(f"changed must be from 0 to 1, got {self.changed!r}")

    def draw(self, horizon: int, rng: np.random.Generator) -> Episode:
        """One world, its logs and `horizon` online rounds."""
        whole_number("horizon", horizon, 1)
        values = self._values(self.arms, rng)
        later = values.copy()
        moved = rng.permutation(self.arms)[: round(self.changed * self.arms)]
        later[moved] = self._values(len(moved), rng)
        offered, means = self._rounds(self.logged, values, rng)
        actions, each = rng.integers(self.arms, size=self.logged), np.arange(self.logged)
        p = offered.shape[2]
        everything = Split(np.eye(p), np.zeros((p, 0)))
        coefficients = self._coefficients(values)
        truth = np.tile(coefficients, (self.logged, 1)), everything, coefficients, np.eye(p)
        rewards = means[each, actions] + rng.standard_normal(self.logged)
        even = np.full(self.logged, 1.0 / self.arms)
        logs = LoggedRounds.from_choices(offered, actions, rewards, truth, even)
        ahead, expected = self._rounds(horizon, later, rng)
        return Episode(
            logs=logs,
            offered=ahead,
            coefficients=np.tile(self._coefficients(later), (horizon, 1)),
            noise=np.zeros(horizon),
            windows=self.windows,
            expected=expected,
            outcomes=expected + rng.standard_normal(horizon)[:, None],
        )

    def _values(self, arms: int, rng: np.random.Generator) -> Array:
        """Value and slopes of every arm (arms, 1 + contexts)."""
        sizes = np.append(1.0, np.full(self.contexts, SLOPE))
        return np.asarray(rng.standard_normal((arms, 1 + self.contexts)) * sizes)

    def _coefficients(self, values: Array) -> Array:
        """As coefficients of the features (p,); the value of the first arm is the baseline."""
        return np.concatenate([values[1:, 0] - values[0, 0], values[:, 1:].ravel()])

    def _rounds(self, count: int, values: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        """Features (count, K, p) and expected rewards (count, K) of so many rounds."""
        K, q = self.arms, self.contexts
        contexts = rng.standard_normal((count, q))
        offered = np.zeros((count, K, K - 1 + K * q))
        offered[:, np.arange(1, K), np.arange(K - 1)] = 1.0
        for arm in range(K):
            offered[:, arm, K - 1 + arm * q : K - 1 + (arm + 1) * q] = contexts
        return offered, values[:, 0] + contexts @ values[:, 1:].T
