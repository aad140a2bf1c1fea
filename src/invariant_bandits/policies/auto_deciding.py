"""How AutoISD decides: the mixture's mean and doubt of every action, and tests of neglected ones."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.policies import choice_kernels, clicks, rehearsal_kernels
from invariant_bandits.policies.auto_learning import TESTS, AutoLearning
from invariant_bandits.policies.base import Scores, batch_array, certain, offered_array, refuse_offered
from invariant_bandits.policies.kernels import WRONG_TYPE
from invariant_bandits.policies.offered_sets import OfferedSets
from invariant_bandits.policies.rehearsal import World

# Compiled: their functions have no Python signature.
choosing: Any = choice_kernels
rehearsing: Any = rehearsal_kernels
LONG_ENOUGH = 1000
"""Rounds to come, where nobody said how many."""


class AutoDeciding(AutoLearning):
    """Chooses by what the filters believe."""

    horizon: int | None

    @property
    def _remaining(self) -> float:
        """Rounds to come, as far as known; who plays longer than he said is taken to go on for as long as before.

        What a test tells of an arm with several coefficients of its own pays in contexts like this one alone: the
        rounds are shared among them.
        """
        if self.horizon is not None and self._rounds < self.horizon:
            return (self.horizon - self._rounds) / self._sharing
        return max(LONG_ENOUGH, self._rounds) / self._sharing

    def select(self, features: Any) -> int:
        """Index of the action to play, given features (K, p)."""
        lock = self._lock
        try:
            lock.acquire()  # `with` would take twice as long
            if type(features) is not np.ndarray:  # such as a masked array, which the loop would take as it is
                features = offered_array(features, self.dim)
            now = (self._noise_now, float(self._rounds), self._multiplier)
            action: int = choosing.choose(
                features, *self._scoring, *now, *self._testing, self._remaining, *self._when_to_test
            )
        except WRONG_TYPE:  # another type or layout than the compiled loop takes
            return self.select(offered_array(features, self.dim))
        finally:
            lock.release()
        return action if action >= 0 else self._refuse_offered(features)

    def _refuse_offered(self, features: Any) -> NoReturn:
        self._refuse_far(offered_array(features, self.dim))
        refuse_offered(features, self.dim)

    def scores(self, features: Any) -> Scores:
        """Expected rewards and widths (K,); `select` maximises mean + exploration · width.

        The width of an action that is played for a test is what it takes to be chosen. Where rewards are clicks, mean
        is the probability at the mean of the log-odds, and mean + exploration · width that at their upper end.
        """
        features = offered_array(features, self.dim)
        parts = np.empty((3, len(features)))
        with self._lock:
            if choosing.score(features, *self._scoring, self._noise_now, float(self._rounds), parts) < 0:
                self._refuse_offered(features)
            chosen = self.select(features)
        mean, width = parts[0], self._radius * parts[1]
        if self.link == "logit":
            mean, width = clicks.mean_and_width(mean, width, self.exploration)
        values = mean + self.exploration * width
        if self.exploration and chosen != np.argmax(values):
            width[chosen] = (values.max() - mean[chosen]) / self.exploration * (1.0 + 1e-9) + 1e-300
        return Scores(mean, width)

    def contrasts(self, features: Any) -> tuple[Array, Array]:
        """Differences of the expected rewards (K − 1,) from the first action's, and their standard deviations.

        Where rewards are clicks, of their log-odds.
        """
        features = offered_array(features, self.dim)
        apart = (features[1:] - features[0]) @ self._basis
        with self._lock:
            middle, lower = self._blend[0, : self.dim].copy(), np.tril(self._blend[1:, : self.dim][: self.dim])
        covariance = lower + np.tril(lower, -1).T
        variances = np.einsum("kd,de,ke->k", apart, covariance, apart)
        return apart @ middle, np.sqrt(np.maximum(variances, 0.0))

    def select_many(self, features: Any) -> np.ndarray[Any, Any]:
        """Actions (N,) for N rounds (N, K, p) in the present state."""
        features = batch_array(features, self.dim)
        with self._lock:
            return np.array([self.select(offered) for offered in features], dtype=np.int64)

    def propensities(self, features: Any) -> Array:
        """Probabilities (K,) of the next choice: one for the action that `select` returns, the policy being certain."""
        return certain(self.select(features), len(features))

    def rehearsed(self, world: World, offered: OfferedSets, candidate: tuple[float, str], horizon: int) -> float:
        """Regret in a drawn world with another exploration and other tests; the policy stays as it is."""
        exploration, tests = candidate
        with self._lock:
            filters = (self._means.copy(), self._covariances.copy(), self._process, self._weights.copy())
            noise = self._noise.copy()
        when = (max(1.0, 1.0 / exploration**2), exploration * self._radius, *TESTS[tests])
        regret: float = rehearsing.rehearse(
            *(offered.rows, offered.starts, world.order, world.truth, world.luck, self.prior.baseline, self._basis),
            *(*filters, noise, self._settled, self._prior_weights),
            *(self._usually, self._reference, *when),
            *(self.share, *self._trust, float(horizon)),
        )
        return regret
