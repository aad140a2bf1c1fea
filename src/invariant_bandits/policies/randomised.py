"""Randomised: any policy, made to leave logs that can be evaluated later, its propensities exact."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from hashlib import blake2b
from math import fsum
from typing import Any, ClassVar

import numpy as np

from invariant_bandits.checks import Array, one_of
from invariant_bandits.policies import base
from invariant_bandits.policies.base import SEED, Option
from invariant_bandits.policies.choice import Choice, choice_of, draw_action
from invariant_bandits.policies.registry import register_policy
from invariant_bandits.policies.wrapper import NEEDED, Wrapper

UNIFORM, INVERSE_GAP = "uniform", "inverse-gap"
DEFAULT_FLOOR = {UNIFORM: 0.05, INVERSE_GAP: 0.0}
"""Shares of uniform decisions: one in twenty; none where the gaps leave every action a chance."""
DEFAULT_SHARPNESS = 100.0
"""Costs at most a hundredth of the noise per round and additional action."""
STREAM = 2  # of random numbers: policies that are wrapped use others


@register_policy("randomised-inverse-gap", wraps="auto-isd", kind=INVERSE_GAP)
@register_policy("randomised", wraps="auto-isd")
class Randomised(Wrapper):
    """Wrapper that adds random choices to any policy, so that its log can be used to evaluate other policies.

    The wrapper gives each action a share w of the decisions and leaves all other decisions to the wrapped
    policy. Actions are drawn with exactly the probabilities that `propensities` returns: write these
    propensities into the log. The wrapped policy learns as it would without the wrapper.

    Parameters
    ----------
    policy : Policy
        The policy to wrap, with the attributes dim and rounds. With kind "inverse-gap" the wrapped policy
        also needs the method scores.
    floor : float, optional
        Share of the decisions, from 0 to 1, that is drawn uniformly: each of K actions has at least
        probability floor/K. The default floor is 0.05 for kind "uniform" and 0 for kind "inverse-gap".
    kind : "uniform" or "inverse-gap"
        Rule for the share w that the wrapper adds to each of K actions. With kind "uniform" the share of each
        action is w = floor/K. With kind "inverse-gap" the share is w = 1/(K + sharpness · gap), so that
        actions that look bad are tried less (Abe & Long 1999; Foster & Rakhlin 2020). The gap of an action is
        the largest expected reward minus its own, divided by the policy's `noise_scale` if there is one. If
        the policy's expected rewards are right, kind "inverse-gap" lowers the mean reward per round by at
        most (K − 1)/sharpness standard deviations of the noise.
    sharpness : float
        How fast the probability of an action falls as its expected reward falls below the best.
    seed : int or numpy.random.Generator
        Seed or generator for the random choices. A choice depends only on the seed, the number of learned
        rounds and the features.

    >>> import numpy as np, invariant_bandits as ib
    >>> policy = ib.Randomised(ib.LinUCB(2, exploration=0.0), floor=0.1, seed=0)
    >>> policy.update([0.0, 1.0], 1.0)
    >>> policy.propensities(np.eye(2)).tolist()
    [0.05, 0.9500000000000001]
    >>> choice = policy.decide(np.eye(2))
    >>> choice.action, float(choice.propensities[choice.action])
    (1, 0.9500000000000001)
    """

    options: ClassVar[Mapping[str, Option]] = {
        "floor": Option(None),
        "kind": Option(UNIFORM, partial(one_of, allowed=tuple(DEFAULT_FLOOR))),
        "sharpness": Option(DEFAULT_SHARPNESS, base.positive),
        "seed": SEED,
    }
    randomised = True
    kind: str
    floor: float
    sharpness: float

    def __init__(
        self,
        policy: Any,
        floor: float | None = None,
        kind: str = UNIFORM,
        **options: Any,
    ) -> None:
        one_of("kind", kind, tuple(DEFAULT_FLOOR))
        needed = (*NEEDED, "scores") if kind == INVERSE_GAP else NEEDED
        super().__init__(policy, needed=needed, floor=floor, kind=kind, **options)
        least = DEFAULT_FLOOR[self.kind] if floor is None else floor
        self.floor = base.not_negative("floor", least, 1.0)

    # -- deciding --

    def decide(self, offered: Any, *, draw: float | None = None) -> Choice:
        """Choose one of K actions with features (K, p), drawn with exactly the propensities returned.

        Expected rewards and widths are those of the wrapped policy. By default the draw depends on the seed,
        the rounds learned and the features.
        """
        features = base.offered_array(offered, self.dim)
        with self._lock:
            inner = self.policy.decide(features)
            shares = self._shares(inner.means)
            # fsum: the same in any order of the actions
            remainder = max(0.0, 1.0 - fsum(shares.tolist()))
            propensities = shares + remainder * inner.propensities
            number = self._number(features) if draw is None else draw
        action = draw_action(propensities.tolist(), number)
        reason = inner.reason if action == inner.action else ""
        return choice_of(action, inner.means, inner.widths, propensities, reason)

    def _shares(self, means: Array) -> Array:
        """The share of chance w of every action (K,), at most 1/K each."""
        actions = len(means)
        least = np.full(actions, self.floor / actions)
        if self.kind == UNIFORM:
            return least
        scale = float(getattr(self.policy, "noise_scale", 1.0))
        gaps = (means.max() - means) / max(scale, np.finfo(float).tiny)
        return np.asarray(np.maximum(1.0 / (actions + self.sharpness * gaps), least))

    def _number(self, features: Array) -> float:
        """Return the number in [0, 1) of the stream of this state and these features."""
        assert self._draws is not None
        key = bytes(8)
        digest = blake2b(features.tobytes(), digest_size=8, key=key).digest()
        within = int.from_bytes(digest, "little")
        return self._draws.at(self.rounds, STREAM, within).random()

    def __repr__(self) -> str:
        how = f", sharpness={self.sharpness:g}" if self.kind == INVERSE_GAP else ""
        return f"Randomised({self.policy!r}, floor={self.floor:g}, kind={self.kind!r}{how})"
