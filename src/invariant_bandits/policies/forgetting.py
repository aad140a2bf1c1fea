"""The published policies that forget: LinUCB over a window, with a discount, or with restarts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self, Unpack

from invariant_bandits.policies.linear import Common, LinearPolicy
from invariant_bandits.policies.memory import Discount, Memory, Restart, SlidingWindow
from invariant_bandits.policies.past import Past, needed_horizon
from invariant_bandits.policies.registry import policy


class ForgettingPolicy(LinearPolicy):
    """LinUCB whose memory is one number, the `option` of its constructor."""

    option: ClassVar[str]
    kind_of_memory: ClassVar[type[Memory]]

    def settings(self) -> dict[str, Any]:
        """What the constructor was given."""
        return {"dim": self.dim, self.option: getattr(self.memory, self.option), **self._common()}

    @classmethod
    def _stored_memory(cls, settings: Mapping[str, Any]) -> Memory | None:
        return cls.kind_of_memory(**{cls.option: settings[cls.option]}) if cls.option in settings else None


@policy("sw-linucb", label="sliding window")
class SWLinUCB(ForgettingPolicy):
    """LinUCB over the last `window` rounds (Cheung et al. 2019). Other parameters as in LinearPolicy.

    >>> SWLinUCB(3, window=100)
    SWLinUCB(dim=3, memory=SlidingWindow(window=100), rounds=0)
    """

    option, kind_of_memory = "window", SlidingWindow

    def __init__(self, dim: int, *, window: int, **common: Unpack[Common]) -> None:
        super().__init__(dim, memory=SlidingWindow(window), **common)

    @classmethod
    def from_past(cls, past: Past, *, window: int | None = None, **options: Any) -> Self:
        """Without a `window` the rounds that the past says should be remembered, or the horizon, as in the paper."""
        return super().from_past(past, window=window or past.remembered or needed_horizon(past, "window"), **options)


@policy("d-linucb", label="discount")
class DLinUCB(ForgettingPolicy):
    """LinUCB with weights discount^age, both matrices kept (Russac et al. 2019). Other parameters as in LinearPolicy.

    >>> DLinUCB(3, discount=0.99)
    DLinUCB(dim=3, memory=Discount(discount=0.99), rounds=0)
    """

    option, kind_of_memory = "discount", Discount

    def __init__(self, dim: int, *, discount: float, **common: Unpack[Common]) -> None:
        super().__init__(dim, memory=Discount(discount), **common)

    @classmethod
    def from_past(cls, past: Past, *, discount: float | None = None, **options: Any) -> Self:
        """Without a `discount` one that remembers as many rounds as the past says, or 0.999, as in the paper."""
        if discount is None:
            discount = 0.999 if past.remembered is None else 1.0 - 1.0 / max(past.remembered, 2)
        return super().from_past(past, discount=discount, **options)


@policy("restart-linucb", label="Restart-linUCB")
class RestartLinUCB(ForgettingPolicy):
    """LinUCB that starts afresh after `every` rounds (Zhao et al. 2020). Other parameters as in LinearPolicy.

    >>> RestartLinUCB(3, every=100)
    RestartLinUCB(dim=3, memory=Restart(every=100), rounds=0)
    """

    option, kind_of_memory = "every", Restart

    def __init__(self, dim: int, *, every: int, **common: Unpack[Common]) -> None:
        super().__init__(dim, memory=Restart(every), **common)

    @classmethod
    def from_past(cls, past: Past, *, every: int | None = None, **options: Any) -> Self:
        """Without `every` the rounds that the past says should be remembered, or the horizon."""
        return super().from_past(past, every=every or past.remembered or needed_horizon(past, "every"), **options)
