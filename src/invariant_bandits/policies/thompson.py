"""Thompson sampling over any memory and invariant part: uncertainty becomes an action by drawing, not by optimism."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Unpack

import numpy as np

from invariant_bandits.checks import Array, whole_number
from invariant_bandits.policies import kernels
from invariant_bandits.policies import radii as bounds
from invariant_bandits.policies.base import Draws, batch_array, check_rounds, offered_array, refuse_offered, seed_number
from invariant_bandits.policies.linear import Common, LinearPolicy
from invariant_bandits.policies.memory import FOREVER, Memory
from invariant_bandits.policies.registry import policy
from invariant_bandits.storage import Check


class ThompsonPolicy(LinearPolicy):
    """Draws its coefficients once per learned round and plays the best action under them.

    The draw is N(estimate, (exploration · scale)² · covariance), with the published scale of Agrawal & Goyal (2013)
    for each of the two parts. Under Discount the covariance is A⁻¹ṼA⁻¹ (Kim & Tewari 2020).

    Parameters
    ----------
    dim : int
        Number of features p.
    seed : int or numpy.random.Generator
        Draws the coefficients.
    **rest :
        As in LinearPolicy.
    """

    randomised = True
    stored_settings: ClassVar[Mapping[str, Check]] = {**LinearPolicy.stored_settings, "seed": seed_number}

    def __init__(self, dim: int, *, seed: int | np.random.Generator = 0, **rest: Any) -> None:
        self._draws = Draws(seed)
        self._sampled_at = -1
        super().__init__(dim, **rest)

    def _residual_radius(self, volume: float) -> float:
        return bounds.thompson_scale(self._memory.rounds, self._memory.dim, self.confidence, self.noise_scale)

    def _refresh(self, volume: float) -> None:
        super()._refresh(volume)
        self._sampled_at = -1

    def _sample(self) -> None:
        """Draw the coefficients of the next decision, a function of seed and state alone."""
        q = self._memory.dim
        invariant = self._lift[:, 1 + q :]
        noise = self._draws.at(self.rounds).standard_normal(q + invariant.shape[1])
        self._sampled_factor = self._memory.perturbed(self._spread * noise[:q])
        self._sampled_lift = self._lift.copy()
        if invariant.size:
            self._sampled_lift[:, 0] += self._invariant_spread * (invariant @ noise[q:])
        self._sampled_at = self.rounds

    def select(self, features: Any) -> int:
        """The best action under the drawn coefficients, given features (K, p)."""
        lock = self._lock
        try:
            lock.acquire()  # `with` would take twice as long
            if self._sampled_at != self.rounds:
                self._sample()
            if type(features) is not np.ndarray:  # such as a masked array, which the loop would take as it is
                features = offered_array(features, self.dim)
            action: int = kernels.choose(features, self._sampled_lift, self._sampled_factor, 0.0, 0.0)
        except kernels.WRONG_TYPE:  # another type or layout than the compiled loop takes
            return ThompsonPolicy.select(self, offered_array(features, self.dim))
        finally:
            lock.release()
        return action if action >= 0 else refuse_offered(features, self.dim)

    def select_many(self, features: Any) -> np.ndarray[Any, Any]:
        """Actions (N,) for N rounds (N, K, p), coefficients drawn anew for each. The first is as in `select`."""
        features = batch_array(features, self.dim)
        check_rounds(features)
        panel, noise = self._drawn(len(features))
        with np.errstate(invalid="ignore", over="ignore"):
            projected = features @ panel
            values = projected[:, :, 0] + np.einsum("nkj,nj->nk", projected[:, :, 1:], noise)
        return np.asarray(values.argmax(axis=1))

    def propensities(self, features: Any, *, samples: int = 1000) -> Array:
        """Share (K,) of so many draws of the coefficients in which each action is the best.

        Parameters
        ----------
        features : array, shape (K, p)
            Features of the offered actions.
        samples : int
            Number of draws. The standard error is at most 0.5/√samples.
        """
        features = offered_array(features, self.dim)
        check_rounds(features[None])
        panel, noise = self._drawn(whole_number("samples", samples, 1), purpose=1)
        with np.errstate(invalid="ignore", over="ignore"):
            projected = features @ panel
            values = projected[:, 0] + noise @ projected[:, 1:].T
        return np.bincount(values.argmax(axis=1), minlength=len(features)) / samples

    def _drawn(self, count: int, purpose: int = 0) -> tuple[Array, Array]:
        """The panel (p, 1 + q + r), and standard normal draws (count, q + r) times the spreads of the two parts."""
        with self._lock:
            panel, q = self._panel(), self._memory.dim
            noise = self._draws.at(self.rounds, purpose).standard_normal((count, panel.shape[1] - 1))
            noise[:, :q] *= self._spread
            noise[:, q:] *= self._invariant_spread
        return panel, noise

    def settings(self) -> dict[str, Any]:
        """What the constructor was given, the seed as a number."""
        return {**super().settings(), "seed": self._draws.seed}


@policy("lints", label="LinTS")
class LinTS(ThompsonPolicy):
    """Thompson sampling for linear rewards (Agrawal & Goyal 2013).

    Parameters
    ----------
    dim : int
        Number of features p.
    seed : int or numpy.random.Generator
        Draws the coefficients.
    memory : Memory
        What of the online past counts.
    **common :
        As in LinearPolicy: ridge, confidence, noise_scale, norm_bound, feature_bound and exploration.

    >>> import numpy as np, invariant_bandits as ib
    >>> policy = ib.LinTS(2, noise_scale=0.1, seed=0)
    >>> for _ in range(1000):
    ...     policy.update([0.0, 1.0], 1.0)
    ...     policy.update([1.0, 0.0], 0.0)
    >>> policy.propensities(np.eye(2)).tolist()
    [0.0, 1.0]
    """

    def __init__(
        self,
        dim: int,
        *,
        seed: int | np.random.Generator = 0,
        memory: Memory = FOREVER,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(dim, seed=seed, memory=memory, **common)
