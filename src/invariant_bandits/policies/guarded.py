"""Guarded: any policy, with a regret of at most (1 + α) times the bound of LinUCB."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import inf, log, sqrt
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from invariant_bandits.checks import Array, InputError
from invariant_bandits.policies import base
from invariant_bandits.policies.base import Option
from invariant_bandits.policies.choice import Choice, draw_action
from invariant_bandits.policies.linear import LinearPolicy, LinUCB
from invariant_bandits.policies.memory import Discount, Forever
from invariant_bandits.policies.past import Past
from invariant_bandits.policies.registry import (
    PolicySpec,
    find_policy,
    name_of,
    register_policy,
)
from invariant_bandits.policies.wrapper import INNER, Wrapper
from invariant_bandits.storage import (
    ArraySpec,
    StateSchema,
    finite_number,
    prefixed,
    under,
)

GUARD = "guard"
"""Reason of a choice that the wrapped policy did not want."""
LARGEST_LOSS_DEVIATIONS = 6.0
"""Standard deviations of the logged rewards that no round is assumed to lose by a wrong action."""
BOUND = "bound."
"""Before the names of the bound's arrays."""


def at_least_zero(name: str, value: Any) -> float:
    """Return `value` as a float of at least 0, which may be infinite, or raise."""
    if value == inf:
        return inf
    return base.not_negative(name, value)


def loss_or_none(name: str, value: Any) -> float | None:
    """Return `value` as a positive float, or None, or raise."""
    return None if value is None else base.positive(name, value)


class Watch(NamedTuple):
    """What the confidence set of the bound says of K offered actions.

    Attributes
    ----------
    action : int
        Index of the action with the highest upper confidence bound.
    charges : array, shape (K,)
        How far the upper confidence bound of each action lies below the highest, at most the largest loss.
    budgets : array, shape (K,)
        What may have been charged in all if the action is played: α times the regret bound.
    """

    action: int
    charges: Array
    budgets: Array


@register_policy("guarded", wraps="auto-isd")
class Guarded(Wrapper):
    """Wrapper that keeps the regret of any policy below (1 + alpha) times the regret bound of LinUCB.

    A LinUCB policy, the *bound*, learns every round and has a confidence set for the coefficients. Playing
    an action whose upper confidence bound (UCB) is not the highest can cost more than LinUCB pays: the round
    is charged with the difference of the two UCBs. The wrapped policy decides as long as all charges
    together are at most alpha times the regret bound of LinUCB. Otherwise the action with the highest UCB is
    played, and the reason of the choice is "guard".

    With probability 1 − delta the regret after t rounds is at most (1 + alpha)·B_t, whatever the wrapped
    policy does, with σ = noise_scale and D = largest_loss::

        B_t = max(D, 2r_t)·√(2t·(log det A_t/det λI + p·t·log 1/γ))       r_t the radius of the bound

    γ is 1 for LinUCB and the discount for DLinUCB. The statement needs that expected rewards are linear in
    the features, with coefficients that do not change online, σ-sub-Gaussian noise, and no loss larger than D
    in a round. With DLinUCB it holds up to what the coefficients move within the memory of the discount.

    Parameters
    ----------
    policy : Policy
        The policy to wrap, with the attributes dim and rounds.
    alpha : float
        Share of the bound that may be charged. 0 plays LinUCB, infinity the wrapped policy.
    bound : LinUCB or DLinUCB, optional
        The policy whose bound is kept, over the same p features, or over these and a constant feature 1. By
        default LinUCB with a constant feature.
    largest_loss : float, optional
        Largest difference D of two expected rewards in a round. The default is 2LM, with L and M the
        feature_bound and the norm_bound of the bound.
    baseline : float
        Constant that is subtracted from the rewards that the bound learns.

    >>> import numpy as np, invariant_bandits as ib
    >>> policy = ib.Guarded(ib.Greedy(2), alpha=0.5)
    >>> policy.decide(np.eye(2)).reason
    'greedy'
    """

    options: ClassVar[Mapping[str, Option]] = {
        "alpha": Option(1.0, at_least_zero),
        "largest_loss": Option(None, loss_or_none),
        "baseline": Option(0.0, finite_number),
    }
    starting = ("policy", "bound")
    alpha: float
    largest_loss: float
    baseline: float

    def __init__(
        self,
        policy: Any,
        alpha: float = 1.0,
        *,
        bound: LinearPolicy | None = None,
        largest_loss: float | None = None,
        baseline: float = 0.0,
    ) -> None:
        super().__init__(
            policy, alpha=alpha, largest_loss=largest_loss, baseline=baseline
        )
        if bound is None:
            bound = LinUCB(self.dim + 1)
        self._check_bound(bound)
        self.bound = bound
        if largest_loss is None:
            self.largest_loss = 2.0 * bound.feature_bound * bound.norm_bound
        self.charged = 0.0
        self._offered: Array | None = None

    def _check_bound(self, bound: Any) -> None:
        """Raise InputError unless the policy's confidence set is one that the statement is about."""
        memory = getattr(bound, "memory", None)
        is_linucb = isinstance(bound, LinearPolicy) and not bound.samples
        if not is_linucb or not isinstance(memory, Forever | Discount):
            raise InputError(f"bound must be a LinUCB or DLinUCB policy, got {bound!r}")
        if bound.dim not in (self.dim, self.dim + 1):
            raise InputError(
                f"bound must have {self.dim} features, or {self.dim + 1} with a constant one, got {bound.dim}"
            )

    @classmethod
    def from_past(
        cls,
        past: Past,
        *,
        policy: str = "auto-isd",
        bound: str = "linucb",
        alpha: float = 1.0,
        largest_loss: float | None = None,
        **options: Any,
    ) -> Self:
        """Wrap a registered policy that knows the past, with a bound in the units of the logs.

        Parameters
        ----------
        past : Past
            What is known before the first round.
        policy : str
            Registered name of the wrapped policy.
        bound : str
            "linucb", or "d-linucb" with its discount, such as "d-linucb,discount=0.999".
        alpha : float
            Share of the bound that may be charged.
        largest_loss : float, optional
            Largest difference of two expected rewards in a round. By default six standard deviations of the
            logged rewards.
        **options :
            Options of the wrapped policy.
        """
        inner = PolicySpec(policy, options)
        moments = past.moments
        if largest_loss is None:
            deviation = sqrt(moments.reward_square.sum() / max(moments.rounds - 1, 1))
            largest_loss = LARGEST_LOSS_DEVIATIONS * max(deviation, 1e-6)
        # The constant feature adds 1 to the squared norm of the others.
        length = sqrt(1.0 + past.feature_bound**2)
        kept = find_policy(bound)
        known = {
            "noise_scale": past.noise_scale,
            "feature_bound": length,
            "norm_bound": largest_loss / (2.0 * length),
            "delta": past.delta,
        }
        level = moments.counts @ moments.reward_mean / max(moments.rounds, 1)
        return cls(
            inner.build(past),
            alpha,
            bound=kept.kind(past.dim + 1, **known, **kept.options),
            largest_loss=largest_loss,
            baseline=float(level) if inner.keeps_baseline else 0.0,
        )

    # -- deciding --

    def _with_constant(self, features: Array) -> Array:
        """Features (K, p) as the bound takes them, perhaps with a constant one."""
        if self.bound.dim == self.dim:
            return features
        return np.column_stack([features, np.ones(len(features))])

    def watch(self, offered: Any) -> Watch:
        """Return what playing each of K actions with features (K, p) would be charged, and may be."""
        scores = self.bound.scores(self._with_constant(offered))
        upper = scores.mean + scores.width
        best = int(upper.argmax())
        charges = np.minimum(upper[best] - upper, self.largest_loss)
        budgets = self.alpha * self._regret_bounds(scores.width)
        return Watch(best, charges, budgets)

    def _regret_bounds(self, widths: Array) -> Array:
        """Return the bound B_t (K,) after a further round, by the action that is played in it.

        A_t has the determinant of A_{t−1} times 1 + ‖φ‖², with ‖φ‖ = width/r.
        """
        bound = self.bound
        radius = bound.radius
        rounds = bound.rounds + 1
        memory = bound.memory
        fading = -log(memory.discount) if isinstance(memory, Discount) else 0.0
        volume = bound.log_volume + np.log1p((widths / radius) ** 2)
        volume += bound.dim * rounds * fading
        largest = max(self.largest_loss, 2.0 * radius)
        return np.asarray(largest * np.sqrt(2.0 * rounds * volume))

    def decide(self, offered: Any, *, draw: float | None = None) -> Choice:
        """Choose as the wrapped policy does, unless the budget does not allow it.

        Expected rewards and widths are those of the wrapped policy. The propensity of actions that the budget
        does not allow goes to the action with the highest UCB.
        """
        features = base.offered_array(offered, self.dim)
        with self._lock:
            wanted: Choice = self.policy.decide(features, draw=draw)
            watch = self.watch(features)
            self._offered = features
        allowed = self.charged + watch.charges <= watch.budgets
        allowed[watch.action] = True
        propensities = np.where(allowed, wanted.propensities, 0.0)
        propensities[watch.action] += wanted.propensities[~allowed].sum()
        action = wanted.action
        if draw is not None:
            action = draw_action(propensities.tolist(), draw)
        elif not allowed[action]:
            action = watch.action
        reason = wanted.reason if action == wanted.action else GUARD
        return wanted._replace(action=action, propensities=propensities, reason=reason)

    # -- learning --

    def update(
        self,
        features: Any,
        reward: float,
        *,
        offered: Any = None,
        action: int | None = None,
    ) -> None:
        """Let both policies learn the reward of the played action, and charge the round.

        The charge needs the features `offered` (K, p). Without them they are those of the last decision. A
        round without either is not charged: another system decided it.
        """
        row = base.chosen_array(features, self.dim)
        gain = base.reward_number(reward)
        with self._lock:
            if offered is None:
                offered = self._offered
            charge = 0.0 if offered is None else self._charge(row, offered)
            self.policy.update(row, gain, offered=offered, action=action)
            self.bound.update(self._with_constant(row[None])[0], gain - self.baseline)
            self.charged += charge
            self._offered = None

    def _charge(self, row: Array, offered: Any) -> float:
        """Return what the played action with features (p,) is charged among the offered ones (K, p)."""
        rows = np.vstack([row, base.offered_array(offered, self.dim)])
        return float(self.watch(rows).charges[0])

    def around(self, policy: Any) -> Self:
        """Return another policy with the same guard, whose bound and charges begin anew."""
        bound = self.bound
        options = {name: getattr(bound, name) for name in bound.options}
        constant = bound.dim - self.dim
        fresh = type(bound)(policy.dim + constant, memory=bound.memory, **options)
        return type(self)(
            policy,
            self.alpha,
            bound=fresh,
            largest_loss=self.largest_loss,
            baseline=self.baseline,
        )

    # -- storing --

    def settings(self) -> dict[str, Any]:
        """Return what the constructor was given, with the names and settings of both policies."""
        kept = {"policy": name_of(self.bound), "settings": self.bound.settings()}
        return super().settings() | {"bound": kept}

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """The arrays of both policies, and the sum of all charges."""
        with self._lock:
            bound = prefixed(BOUND, self.bound.arrays())
            return super().arrays() | bound | {"charged": np.array([self.charged])}

    @classmethod
    def state_schema(
        cls, settings: Mapping[str, Any], names: Collection[str]
    ) -> StateSchema:
        """The arrays of both policies, and one sum."""
        inner = super().state_schema(settings, names).parts
        kept = list(under(dict.fromkeys(names), BOUND))
        bound = {BOUND: base.state_schema(settings["bound"], kept)}
        charged = ArraySpec(shape=(1,), least=0.0)
        return StateSchema({"charged": charged}, parts={**inner, **bound})

    @classmethod
    def from_state(
        cls, settings: Mapping[str, Any], arrays: Mapping[str, np.ndarray[Any, Any]]
    ) -> Self:
        """The policy that had these settings and arrays."""
        policy = cls(
            base.from_state(settings, under(arrays, INNER)),
            bound=base.from_state(settings["bound"], under(arrays, BOUND)),
            **{name: settings[name] for name in cls.options},
        )
        policy.charged = float(arrays["charged"][0])
        return policy

    def __repr__(self) -> str:
        return f"Guarded({self.policy!r}, alpha={self.alpha:g}, bound={self.bound!r})"
