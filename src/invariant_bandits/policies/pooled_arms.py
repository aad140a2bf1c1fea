"""PooledArms: thousands of labelled arms, each with a level of its own beside what all of them share."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Self

import numpy as np

from invariant_bandits.checks import Array, InputError
from invariant_bandits.decomposition.arm_statistics import ArmLevels
from invariant_bandits.decomposition.coefficient_specs import (
    LARGEST_MEAN,
    LARGEST_VARIANCE,
)
from invariant_bandits.policies import base
from invariant_bandits.policies.auto import AutoISD, chance, kernels
from invariant_bandits.policies.base import BasePolicy, offered_array
from invariant_bandits.policies.choice import Choice, choice_of
from invariant_bandits.policies.past import Past
from invariant_bandits.policies.registry import register_policy
from invariant_bandits.storage import ArraySpec, StateSchema, prefixed, under

SHARED = "shared."
OUTLIER = 10.0
"""Standard deviations beyond which an error counts as so many, as in the filters."""
NO_LEVELS = ArmLevels(
    np.zeros(0), np.zeros(0), np.zeros(0), np.zeros(0), spread=0.0, step=0.0
)
ARRAYS: Mapping[str, ArraySpec] = {
    "levels": ArraySpec(("A",), least=-LARGEST_MEAN, most=LARGEST_MEAN),
    "variances": ArraySpec(("A",), least=0.0, most=LARGEST_VARIANCE),
    "learned": ArraySpec(("A",), "int64", 0),
    "sizes": ArraySpec((2,), least=0.0, most=LARGEST_VARIANCE),
}


@register_policy("pooled-arms")
class PooledArms(BasePolicy):
    """AutoISD over what arms share, and the level of every arm as a number with its variance.

    Features are [index of the arm, what all arms share]. The shared part is learned by AutoISD, which takes
    the level of the played arm as known up to its variance. The level is learned from what the shared part
    leaves, by a scalar filter (extended, for clicks), and walks as levels did in the logs. An arm of which
    nothing is known has level 0 and the variance of the population. A decision costs as much as there are
    arms offered, not known. Without levels it is AutoISD itself.

    Parameters
    ----------
    shared : AutoISD
        Over [1, shared features], from the logs less the levels of the arms.
    levels : ArmLevels, optional
        Of the arms, in the order of their indices.

    >>> import numpy as np, invariant_bandits as ib
    >>> from invariant_bandits.decomposition.arm_statistics import ArmLevels
    >>> from invariant_bandits.testing import example_past
    >>> levels = ArmLevels(np.zeros(4), *np.zeros((2, 3)), np.ones(3), spread=1.0, step=0.0)
    >>> arms = PooledArms(ib.AutoISD.from_past(example_past()), levels)
    >>> rows = np.column_stack([[0.0, 1.0, 2.0], np.zeros((3, 3))])
    >>> for _ in range(20):
    ...     arms.update(rows[1], 3.0)
    >>> arms.select(rows)
    1
    """

    options = AutoISD.options
    starting = AutoISD.starting
    needs = ()
    shown = ("dim", "arms")

    def __init__(self, shared: AutoISD, levels: ArmLevels = NO_LEVELS) -> None:
        self.shared, self.dim = shared, shared.dim
        self.levels, self.variances = levels.levels.copy(), levels.variances.copy()
        self.spread, self.step = levels.spread, levels.step
        self.learned = np.zeros(len(self.levels), dtype=np.int64)

    @classmethod
    def from_past(cls, past: Past, **options: Any) -> Self:
        """AutoISD of this past, without levels; options as of AutoISD."""
        return cls(AutoISD.from_past(past, **options))

    @property
    def arms(self) -> int:
        """How many arms have a level."""
        return len(self.levels)

    @property
    def rounds(self) -> int:
        """Rounds learned."""
        return self.shared.rounds

    @property
    def alarm(self) -> bool:
        """Whether the shared part has raised an alarm."""
        return self.shared.alarm

    def explain(self, feature_names: Any = None) -> Any:
        """Return what the policy of the shared part believes."""
        return self.shared.explain(feature_names)

    # -- deciding --

    def _rows_and_levels(self, features: Any) -> tuple[Array, Array, Array]:
        """Rows (K, p) of the shared part, and mean and variance (K,) of the levels of their arms."""
        rows = offered_array(features, self.dim).copy()
        codes = rows[:, 0].astype(np.int64)
        if (codes != rows[:, 0]).any() or codes.min() < 0 or codes.max() >= self.arms:
            needed = f"from 0 to {self.arms - 1}, got {rows[:, 0].tolist()[:5]}"
            raise InputError(f"features must begin with the place of an arm, {needed}")
        rows[:, 0] = 1.0
        walked = self.step * (
            self.rounds - self.learned[codes]
        )  # since they were learned last
        return rows, self.levels[codes], self.variances[codes] + walked

    def decide(self, offered: Any, *, draw: float | None = None) -> Choice:
        """Choose the largest mean plus one standard deviation of what the logs leave open.

        Expected rewards and widths are those of AutoISD.
        """
        with self._lock:
            if not self.arms:
                return self.shared.decide(offered)
            rows, level, variance = self._rows_and_levels(offered)
            mean, width = self.shared._predict(rows)
            z = np.column_stack([rows, np.ones(len(rows))])[
                :, : len(self.shared.mixture.filters.mean)
            ]
            left_open = self.shared.mixture.left_open()
            bonus = np.sqrt(
                np.maximum(((z @ left_open) * z).sum(axis=1), 0.0) + variance
            )
        mean = mean + level
        width = np.sqrt(width**2 + variance)
        chosen = int(np.argmax(mean + bonus))
        if self.shared.link == "logit":
            width = chance(mean + width) - chance(mean)
            mean = chance(mean)
        return choice_of(chosen, mean, width)

    # -- learning --

    def update(
        self,
        features: Any,
        reward: float,
        *,
        offered: Any = None,
        action: int | None = None,
    ) -> None:
        """Learn the reward of the chosen arm with features (p,)."""
        with self._lock:
            if not self.arms:
                self.shared.update(features, reward)
                return
            chosen = base.chosen_array(features, self.dim)
            rows, levels, variances = self._rows_and_levels(chosen[None])
            mean, width = self.shared._predict(rows)[:, 0]
            level = float(levels[0])
            variance = float(variances[0])
            shared_variance = width * width
            noise = self.shared.mixture.believed_noise
            self.shared.update_with_offset(rows[0], reward, level, variance)
            # A scalar Kalman filter: gain = variance/total, and variance·(1 − gain) is left.
            error = reward - mean - level
            total = shared_variance + variance + noise
            if self.shared.link == "logit":
                error, total, _, _ = kernels.click_evidence(
                    reward, mean + level, shared_variance + variance, 1.0
                )
            error = float(
                np.clip(error, -OUTLIER * np.sqrt(total), OUTLIER * np.sqrt(total))
            )
            code = int(chosen[0])
            gain = variance / total
            self.levels[code] = level + gain * error
            self.variances[code] = variance * (1.0 - gain)
            self.learned[code] = self.rounds

    def with_arm(self, features: Sequence[float] | None = None) -> Self:
        """Return a copy of this policy with one more arm, whose level is that of the population.

        What the features of the new arm say is in the shared part.
        """
        if not self.arms:
            raise InputError(
                "this policy knows no labelled arms: it was not started with levels"
            )
        with self._lock:
            grown = self.from_state(self.settings(), self.arrays())
        grown.levels = np.append(grown.levels, 0.0)
        grown.variances = np.append(grown.variances, self.spread)
        grown.learned = np.append(grown.learned, grown.rounds)
        return grown

    def __getattr__(self, name: str) -> Any:
        """What else the policy of the shared part can do or say, such as `prior`."""
        if name.startswith("_") or name in ("shared", "levels"):
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}"
            )
        return getattr(self.shared, name)

    # -- storing --

    def settings(self) -> dict[str, Any]:
        """Those of the shared part."""
        return self.shared.settings()

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """Levels, variances, when each was learned last, spread and step; and those of the shared part."""
        with self._lock:
            own = {
                name: getattr(self, name).copy()
                for name in ("levels", "variances", "learned")
            }
            sizes = np.array([self.spread, self.step])
            return {**own, "sizes": sizes, **prefixed(SHARED, self.shared.arrays())}

    @classmethod
    def state_schema(
        cls, settings: Mapping[str, Any], names: Collection[str]
    ) -> StateSchema:
        """The numbers of A arms, and the arrays of the shared part."""
        shared = AutoISD.state_schema(
            settings, list(under(dict.fromkeys(names), SHARED))
        )
        return StateSchema(ARRAYS, parts={SHARED: shared})

    @classmethod
    def from_state(
        cls, settings: Mapping[str, Any], arrays: Mapping[str, np.ndarray[Any, Any]]
    ) -> Self:
        """The policy that had these settings and arrays."""
        known = NO_LEVELS._replace(
            levels=arrays["levels"], variances=arrays["variances"]
        )
        spread, step = arrays["sizes"].tolist()
        shared = AutoISD.from_state(settings, under(arrays, SHARED))
        made = cls(shared, known._replace(spread=spread, step=step))
        made.learned = np.array(arrays["learned"])
        return made
