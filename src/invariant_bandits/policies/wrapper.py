"""Wrapper: a policy around another one, which learns every round and lends what it knows."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Self

import numpy as np

from invariant_bandits.checks import InputError
from invariant_bandits.policies import base
from invariant_bandits.policies.base import BasePolicy
from invariant_bandits.policies.choice import as_policy
from invariant_bandits.policies.past import Past
from invariant_bandits.policies.registry import PolicySpec, name_of
from invariant_bandits.storage import StateSchema, ThreadSafe, prefixed, under

INNER = "inner."
"""Before the names of the wrapped policy's arrays."""
NEEDED = ("select", "update", "dim", "rounds")
"""What a policy must have to be wrapped."""


class Wrapper(BasePolicy):
    """Base class of policies that decide with the help of another one, which learns every round.

    Parameters
    ----------
    policy : Policy
        The policy to wrap, with the attributes dim and rounds.
    needed : tuple of str
        Names of the attributes that the policy must have.
    **options :
        Options of the wrapper.
    """

    starting: ClassVar[tuple[str, ...]] = ("policy",)
    needs = ()

    def __init__(
        self, policy: Any, *, needed: tuple[str, ...] = NEEDED, **options: Any
    ) -> None:
        missing = [name for name in needed if not hasattr(policy, name)]
        if missing:
            name = getattr(policy, "__name__", type(policy).__name__)
            raise InputError(
                f"policy must be a policy, got {name}, which lacks {', '.join(missing)}"
            )
        self._take_options(options)
        self.policy = as_policy(policy)
        self._share_lock()
        self.dim: int = policy.dim

    @classmethod
    def from_past(cls, past: Past, *, policy: str = "auto-isd", **options: Any) -> Self:
        """Create a registered policy by its name from a Past object and wrap it.

        The options may be those of the wrapper and those of the wrapped policy.
        """
        own = {name: options.pop(name) for name in cls.options if name in options}
        return cls(PolicySpec(policy, options).build(past), **own)

    def _share_lock(self) -> None:
        """Use the lock of the wrapped policy: no thread changes that one between its answers and the draw."""
        if isinstance(self.policy, ThreadSafe):
            self._lock = self.policy._lock

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._share_lock()

    @property
    def rounds(self) -> int:
        """Number of rounds learned so far."""
        return int(self.policy.rounds)

    @property
    def alarm(self) -> bool:
        """Whether the wrapped policy has raised an alarm."""
        return bool(self.policy.alarm)

    def explain(self, feature_names: Any = None) -> Any:
        """Return what the wrapped policy believes."""
        return self.policy.explain(feature_names)

    def update(
        self,
        features: Any,
        reward: float,
        *,
        offered: Any = None,
        action: int | None = None,
    ) -> None:
        """Pass the round to the wrapped policy, which learns from it."""
        with self._lock:
            self.policy.update(features, reward, offered=offered, action=action)

    def around(self, policy: Any) -> Self:
        """Return another policy, wrapped like this one."""
        own = {option: getattr(self, option) for option in self.options}
        return type(self)(policy, **own)

    def __getattr__(self, name: str) -> Any:
        """What else the wrapped policy can do or say, such as `coefficients`.

        What makes another policy of it, with an arm more or less, makes another one wrapped like this.
        """
        if name.startswith("_") or name == "policy":
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}"
            )
        attribute = getattr(self.policy, name)
        if name not in ("with_arm", "without_arm"):
            return attribute
        return lambda *values, **named: self.around(attribute(*values, **named))

    def settings(self) -> dict[str, Any]:
        """Return what the constructor was given, and name and settings of the wrapped policy."""
        with self._lock:
            wrapped = {
                "policy": name_of(self.policy),
                "settings": self.policy.settings(),
            }
        return super().settings() | wrapped

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """The arrays of the wrapped policy, under "inner."."""
        with self._lock:
            return prefixed(INNER, self.policy.arrays())

    @classmethod
    def state_schema(
        cls, settings: Mapping[str, Any], names: Collection[str]
    ) -> StateSchema:
        """Nothing but the arrays of the wrapped policy, which its class describes."""
        inner = base.state_schema(settings, list(under(dict.fromkeys(names), INNER)))
        return StateSchema(parts={INNER: inner})

    @classmethod
    def from_state(
        cls, settings: Mapping[str, Any], arrays: Mapping[str, np.ndarray[Any, Any]]
    ) -> Self:
        """The policy that had these settings and arrays."""
        own = {name: settings[name] for name in cls.options}
        return cls(base.from_state(settings, under(arrays, INNER)), **own)


def unwrapped(policy: Any) -> Any:
    """The policy inside all wrappers; the policy itself if there are none."""
    return unwrapped(policy.policy) if isinstance(policy, Wrapper) else policy
