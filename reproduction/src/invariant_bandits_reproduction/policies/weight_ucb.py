"""LinUCB with discounted weights and one matrix (Wang, Zhao & Zhou 2023)."""

from __future__ import annotations

from invariant_bandits.checks import Array, InputError
from invariant_bandits.policies.linear import DLinUCB
from invariant_bandits.policies.memory import Discount, DiscountedState
from invariant_bandits.policies.registry import register_policy


class WeightedState(DiscountedState):
    """Sums with weights γ^s, whose width is the norm of A⁻¹ instead of A⁻¹ṼA⁻¹."""

    def learn(self, features: Array, reward: float, lift: Array) -> float:
        """Discount and add one round."""
        volume = super().learn(features, reward, lift)
        # With Ṽ = A the matrix A⁻¹ṼA⁻¹ of the widths is A⁻¹.
        self.factor[self.dim :, : self.dim] = self.sums[:, : self.dim]
        return volume


@register_policy("weight-ucb")
class WeightUCB(DLinUCB):
    """Discounted LinUCB whose widths need one matrix only (Wang et al. 2023).

    The radius is that of DLinUCB. Its norm is that of the inverse of the regularised weighted Gram matrix,
    which is never smaller, because no weight exceeds 1.

    The class `DLinUCB` documents the parameters.

    >>> from invariant_bandits_reproduction.policies import WeightUCB
    >>> WeightUCB(3, discount=0.99)
    WeightUCB(dim=3, memory=Discount(discount=0.99), rounds=0)
    """

    def _begin(self) -> None:
        super()._begin()
        if not isinstance(self.memory, Discount):
            raise InputError(f"memory must be Discount, got {self.memory}")
        self._memory = WeightedState(self.dim, self.ridge, self.memory.discount)
