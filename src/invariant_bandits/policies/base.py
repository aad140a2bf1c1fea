"""What every policy offers: Policy, Scores, and the random draws of policies that randomise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol, Self, runtime_checkable

import numpy as np

from invariant_bandits.checks import Array, InputError, finite_array, number_between, shaped_array, whole_number
from invariant_bandits.policies.past import Past


@dataclass(frozen=True, eq=False)
class Scores:
    """What a policy thinks of the offered actions.

    Attributes
    ----------
    mean : array, shape (K,)
        Expected rewards.
    width : array, shape (K,)
        Radius × norm of the confidence set, in units of the reward, before the factor `exploration`.
    propensities : array, shape (K,), or None
        Probabilities of being chosen, where the policy randomises and they are known exactly.

    >>> import numpy as np, invariant_bandits as ib
    >>> scores = ib.LinUCB(2, noise_scale=0.1).scores(np.eye(2))
    >>> isinstance(scores, ib.Scores), scores.mean.tolist(), scores.width.round(2).tolist()
    (True, [0.0, 0.0], [1.96, 1.96])
    """

    mean: Array
    width: Array
    propensities: Array | None = None


@runtime_checkable
class Policy(Protocol):
    """Chooses one of K offered actions from their features and learns from its reward.

    `select` never changes the policy. Only `update` does. It takes what else is known of the round, for the policies
    that can use it: `offered` (K, p), all features of the round, and `action`, the index that was played. `settings`
    and `arrays` are the whole state: `rebuilt` from them, a policy continues bit for bit.

    Attributes
    ----------
    dim : int
        Number of features p.
    rounds : int
        Rounds learned so far.

    >>> import invariant_bandits as ib
    >>> isinstance(ib.LinUCB(3), ib.Policy), isinstance("LinUCB", ib.Policy)
    (True, False)
    """

    dim: int

    @property
    def rounds(self) -> int:
        """Rounds learned so far."""

    def select(self, features: Any) -> int:
        """Index of the action to play, given features (K, p)."""

    def select_many(self, features: Any) -> np.ndarray[Any, Any]:
        """Actions (N,) for N independent rounds (N, K, p) in the present state."""

    def scores(self, features: Any) -> Scores:
        """Means and widths of the actions with features (K, p)."""

    def propensities(self, features: Any) -> Array:
        """Probability (K,) of each action being the next choice, over the policy's own randomness."""

    def update(self, features: Any, reward: float, *, offered: Any = None, action: int | None = None) -> None:
        """Learn the reward of the chosen action with features (p,)."""

    def settings(self) -> dict[str, Any]:
        """What the constructor was given, as plain numbers, strings and dictionaries."""

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """Everything else, as arrays by name."""

    @classmethod
    def from_past(cls, past: Past, **options: Any) -> Self:
        """A fresh policy that knows the past."""

    @classmethod
    def rebuilt(cls, settings: Mapping[str, Any], arrays: Mapping[str, np.ndarray[Any, Any]]) -> Self:
        """The policy that had these `settings` and `arrays`."""


class Draws:
    """Random numbers that are a function of (seed, rounds learned) alone: deciding twice gives the same decision.

    Philox is counter-based (Salmon et al. 2011): every round has its own stream, none has to be stored.

    Parameters
    ----------
    seed : int or numpy.random.Generator
        A whole number from 0 to 2^63 − 1, or a generator of the caller's from which one is drawn.
    """

    def __init__(self, seed: int | np.random.Generator) -> None:
        if isinstance(seed, np.random.Generator):
            seed = int(seed.integers(2**63))
        self.seed = whole_number("seed", seed, 0)
        if self.seed >= 2**63:
            raise InputError(f"seed must be below 2^63, got {seed}")
        self._source = np.random.Philox(key=self.seed)
        self._state = self._source.state
        self._generator = np.random.Generator(self._source)

    def at(self, rounds: int, purpose: int = 0) -> np.random.Generator:
        """The stream of the decision after `rounds` learned rounds. Other purposes have streams of their own.

        One generator is moved to the start of the stream, which is five times faster than making a new one: use it up
        before asking again.
        """
        self._state["state"]["counter"][:] = (0, 0, rounds, purpose)
        self._source.state = self._state
        return self._generator


def offered_array(features: Any, dim: int) -> Array:
    """Features of offered actions (K, p), contiguous, or InputError."""
    return np.ascontiguousarray(finite_array("features", features, ("K", dim)))


def chosen_array(features: Any, dim: int) -> Array:
    """Features of the chosen action (p,), contiguous, or InputError."""
    return np.ascontiguousarray(finite_array("features", features, (dim,)))


def reward_number(reward: Any) -> float:
    """One finite reward, or InputError."""
    return float(finite_array("reward", reward, ()))


def batch_array(features: Any, dim: int) -> Array:
    """Features of N rounds (N, K, p), contiguous, or InputError; finiteness is left to the compiled pass."""
    return np.ascontiguousarray(shaped_array("features", features, ("N", "K", dim)))


def too_large() -> InputError:
    """The refusal of finite numbers whose squares cannot be summed."""
    return InputError("features and reward must be smaller: the sum of their squares must stay below 1e200")


def refuse_offered(features: Any, dim: int) -> NoReturn:
    """Say what is wrong with offered features (K, p) that a compiled loop has refused."""
    offered_array(features, dim)
    raise too_large()


def refuse_round(features: Any, reward: Any, dim: int) -> NoReturn:
    """Say what is wrong with a chosen action (p,) and its reward that a compiled loop has refused."""
    chosen_array(features, dim)
    reward_number(reward)
    raise too_large()


def certain(action: int, actions: int) -> Array:
    """Probabilities (K,) of a policy that does not randomise: one for its action."""
    result = np.zeros(actions)
    result[action] = 1.0
    return result


def best_of_values(values: Array) -> np.ndarray[Any, Any]:
    """Index of the largest of each row of values (N, K), the first in a tie. Refuses what `select` would refuse."""
    if not (np.abs(values) < 1e100).all():
        raise too_large()
    return np.asarray(values.argmax(axis=1))


def positive(name: str, value: float) -> float:
    """Return `value` as a positive finite float, or raise."""
    return number_between(name, value, 0.0, np.inf)


def not_negative(name: str, value: float) -> float:
    """Return `value` as a finite float of at least 0, or raise."""
    if value == 0:
        return 0.0
    return number_between(name, value, 0.0, np.inf)
