"""The policies that are compared: how each starts from the logged past."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from invariant_bandits.checks import Array, InputError, whole_number
from invariant_bandits.decomposition.joint_diagonalization import ConvergenceWarning
from invariant_bandits.evaluation.playing import Player
from invariant_bandits.logs.feedback import Feedback
from invariant_bandits.moments.windowed import WindowedMoments
from invariant_bandits.policies.auto import AutoISD
from invariant_bandits.policies.base import make_from
from invariant_bandits.policies.baselines import Greedy, Uniform
from invariant_bandits.policies.isd import ISDLinUCB
from invariant_bandits.policies.linear import DLinUCB, LinearPolicy, LinUCB, SWLinUCB

AUTO = "AutoISD"
ISD = "ISD-linUCB"
COLD = "LinUCB cold"
WARM = "LinUCB warm"
WINDOW = "sliding window"
DISCOUNT = "discount"
FROZEN = "frozen"
UNIFORM = "uniform"


@dataclass(frozen=True, eq=False)
class Past:
    """What is known before the first round that is played: logged rounds, their moments, and how many will be played.

    The mean logged reward has been taken off all rewards, as it is off those that the policies will be told: linear
    policies have no intercept.
    """

    feedback: Feedback
    moments: WindowedMoments
    horizon: int

    @classmethod
    def of(cls, earlier: Feedback, horizon: int, windows: int = 8) -> tuple[Past, float]:
        """The past of logged rounds, and the baseline that was taken off."""
        baseline = float(earlier.rewards.mean())
        shifted = earlier.shifted(baseline)
        return cls(shifted, shifted.moments(windows), whole_number("horizon", horizon, 1)), baseline

    @property
    def dim(self) -> int:
        """Number of features p."""
        return self.moments.dim

    @cached_property
    def noise_scale(self) -> float:
        """Standard deviation of rewards about one linear model with a baseline per window."""
        gram, cross = self.moments.gram.sum(axis=0), self.moments.cross.sum(axis=0)
        slopes = np.linalg.lstsq(gram, cross, rcond=None)[0]
        squares = float(self.moments.reward_square.sum() - slopes @ cross)
        freedom = max(self.moments.rounds - self.moments.windows - self.dim, 1)
        return float(np.sqrt(max(squares / freedom, 1e-12)))

    @cached_property
    def feature_bound(self) -> float:
        """Largest norm of offered features."""
        return max(float(np.sqrt((self.feedback.offered**2).sum(axis=1).max())), 1e-6)

    @property
    def window(self) -> int:
        """Rounds in one window of the moments."""
        return max(self.moments.rounds // self.moments.windows, 1)


Maker: TypeAlias = Callable[[Past], Player]


def default_policies(*, exploration: float = 1.0) -> dict[str, Maker]:
    """The policies to compare, by name, each made from the Past; exploration: of all but AutoISD.

    Cold LinUCB begins with nothing; warm LinUCB has learned every logged round; sliding window and discount are cold
    and remember about one window of the moments; frozen is the warm ridge regression, which never learns again.
    """

    def published(past: Past) -> dict[str, Any]:
        return {
            "noise_scale": past.noise_scale,
            "feature_bound": past.feature_bound,
            "confidence": 1.0 / max(past.horizon, 2),
        }

    def linear(past: Past) -> dict[str, Any]:
        return published(past) | {"exploration": exploration}

    return {
        AUTO: lambda past: AutoISD.from_history(past.moments, confidence=1.0 / max(past.horizon, 2)),
        ISD: lambda past: ISDLinUCB.from_history(past.moments, **linear(past) | {"noise_scale": None}),
        COLD: lambda past: LinUCB(past.dim, **linear(past)),
        WARM: lambda past: warmed(LinUCB(past.dim, **linear(past)), past.feedback),
        WINDOW: lambda past: SWLinUCB(past.dim, window=past.window, **linear(past)),
        DISCOUNT: lambda past: DLinUCB(past.dim, discount=1.0 - 1.0 / max(past.window, 2), **linear(past)),
        FROZEN: lambda past: Frozen(warmed(Greedy(past.dim, **published(past)), past.feedback)),
        UNIFORM: lambda past: Uniform(past.dim),
    }


def warmed(policy: LinearPolicy, feedback: Feedback) -> LinearPolicy:
    """The policy after it has learned every logged round."""
    for features, reward in zip(feedback.features, feedback.rewards.tolist(), strict=True):
        policy.update(features, reward)
    return policy


class Frozen:
    """A policy that decides as another one would in its present state, and never learns."""

    def __init__(self, policy: LinearPolicy) -> None:
        self.dim = policy.dim
        self._policy = policy

    def select(self, features: Any) -> int:
        """The other policy's choice among features (K, p)."""
        return self._policy.select(features)

    def propensities(self, features: Any) -> Array:
        """The other policy's probabilities (K,)."""
        return self._policy.propensities(features)

    def update(self, features: Any, reward: float, *, offered: Any = None, action: int | None = None) -> None:
        """Nothing is learned."""


def made(maker: Maker, past: Past) -> Player:
    """The policy that a maker makes of the past, or without it if the maker takes nothing."""
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):  # such a fit is used like any other
        policy = make_from(maker, past)
    for method in ("select", "propensities", "update"):
        if not callable(getattr(policy, method, None)):
            raise InputError(f"a maker must return a policy, got {type(policy).__name__}")
    checked: Player = policy
    return checked


def checked_policies(policies: Any) -> dict[str, Maker]:
    """The given makers, or the default ones, or InputError."""
    if policies is None:
        return default_policies()
    if not isinstance(policies, Mapping) or not policies:
        raise InputError(f"policies must map names to makers, at least one, got {type(policies).__name__}")
    for name, maker in policies.items():
        if not callable(maker):
            raise InputError(f"policies[{name!r}] must be callable, past -> policy, got {type(maker).__name__}")
    return dict(policies)
