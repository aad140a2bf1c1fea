"""PooledArms: labelled arms in any number, with coefficients of their own beside what all of them share."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np

from invariant_bandits.checks import Array, InputError
from invariant_bandits.decomposition.arm_deviations import (
    ArmDeviations,
    fit_deviations,
    shared_statistics,
)
from invariant_bandits.decomposition.arm_statistics import ArmStatistics
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
NO_DEVIATIONS = ArmDeviations(
    theta=np.zeros(0),
    fitted=np.zeros((0, 1)),
    means=np.zeros((0, 1)),
    covariances=np.zeros((0, 1, 1)),
    spread=np.zeros(1),
    steps=np.zeros(1),
)
OF_SHARED_PART = (
    "These beliefs and the alarm are about what all {arms} arms share. One filter per arm follows its own"
    " coefficients, and takes them to change as they did in the logs."
)
VARIANCES = ArraySpec(("w",), least=0.0, most=LARGEST_VARIANCE)
ARRAYS: Mapping[str, ArraySpec] = {
    "deviations": ArraySpec(("A", "w"), least=-LARGEST_MEAN, most=LARGEST_MEAN),
    "covariances": ArraySpec(
        ("A", "w", "w"), least=-LARGEST_VARIANCE, most=LARGEST_VARIANCE
    ),
    "learned": ArraySpec(("A",), "int64", 0),
    "spread": VARIANCES,
    "steps": VARIANCES,
    "rows_are_crossed": ArraySpec((1,), "int64", 0, 1),
}


class _Offer(NamedTuple):
    """Actions as the policy sees them.

    Attributes
    ----------
    codes : array of int, shape (K,)
        Index of each arm.
    rows : array, shape (K, p)
        Features of the shared part.
    level, variance : arrays, shape (K,)
        What the arm's own coefficients add to the expectation, and its variance.
    """

    codes: np.ndarray[Any, Any]
    rows: Array
    level: Array
    variance: Array


@register_policy("pooled-arms")
class PooledArms(BasePolicy):
    """AutoISD over what arms share, and for every arm the coefficients by which it departs from that.

    The shared part is learned by AutoISD, which takes what the played arm adds as known up to its variance.
    That is learned from what the shared part leaves, by one Kalman filter per arm (extended, for clicks), and
    walks as it did in the logs. An arm of which nothing is known has no departure and the variance of the
    population. A decision costs as much as there are arms offered, not known. Without arms it is AutoISD
    itself.

    Parameters
    ----------
    shared : AutoISD
        Over [1, shared features], from the logs less what arms add.
    deviations : ArmDeviations, optional
        Of the arms, in the order of their indices: of the first w shared features.
    rows_are_crossed : bool
        Whether features are [e_a ⊗ z, x]: w numbers per arm, 0 but for the action's own arm, then what all
        arms share. Otherwise they are [index of the arm, shared features without their 1].

    >>> import numpy as np, invariant_bandits as ib
    >>> from invariant_bandits.policies.pooled_arms import NO_DEVIATIONS
    >>> from invariant_bandits.testing import example_past
    >>> levels = NO_DEVIATIONS._replace(
    ...     means=np.zeros((3, 1)), covariances=np.ones((3, 1, 1)), spread=np.ones(1)
    ... )
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

    def __init__(
        self,
        shared: AutoISD,
        deviations: ArmDeviations = NO_DEVIATIONS,
        *,
        rows_are_crossed: bool = False,
    ) -> None:
        self.shared = shared
        self.deviations = deviations.means.copy()
        self.covariances = np.ascontiguousarray(deviations.covariances)
        self.spread = deviations.spread
        self.steps = deviations.steps
        self.learned = np.zeros(len(self.deviations), dtype=np.int64)
        self.rows_are_crossed = rows_are_crossed
        self.dim = self._length()

    def _length(self) -> int:
        """Length of the features of an action."""
        if not self.rows_are_crossed:
            return int(self.shared.dim)
        arms, own = self.deviations.shape
        return int(arms * own + self.shared.dim - own)

    @classmethod
    def from_past(cls, past: Past, **options: Any) -> Self:
        """AutoISD of this past, without arms; options as of AutoISD."""
        return cls(AutoISD.from_past(past, **options))

    @classmethod
    def from_statistics(cls, statistics: ArmStatistics, **options: Any) -> Self:
        """Return the policy of arms with several coefficients of their own; options as of AutoISD."""
        deviations = fit_deviations(statistics)
        shared = AutoISD.from_arms(shared_statistics(statistics, deviations), **options)
        return cls(shared, deviations, rows_are_crossed=True)

    @property
    def arms(self) -> int:
        """How many arms have coefficients of their own."""
        return len(self.deviations)

    @property
    def rounds(self) -> int:
        """Rounds learned."""
        return self.shared.rounds

    @property
    def alarm(self) -> bool:
        """Whether the shared part has raised an alarm."""
        return self.shared.alarm

    # -- deciding --

    def _offer(self, features: Any) -> _Offer:
        """Return actions with features (K, dim) as the policy sees them; InputError for an unknown arm."""
        given = offered_array(features, self.dim)
        if self.rows_are_crossed:
            arms, own = self.deviations.shape
            blocks = given[:, : arms * own].reshape(len(given), arms, own)
            levels = blocks[:, :, 0]
            codes = levels.argmax(axis=1)
            played = blocks[np.arange(len(given)), codes]
            rows = np.hstack([played, given[:, arms * own :]])
            if (levels.sum(axis=1) != 1.0).any() or (rows[:, 0] != 1.0).any():
                raise InputError("features must have a 1 for the level of one arm")
        else:
            rows = given.copy()
            codes = given[:, 0].astype(np.int64)
            if (
                (codes != given[:, 0]).any()
                or codes.min() < 0
                or codes.max() >= self.arms
            ):
                needed = f"from 0 to {self.arms - 1}, got {given[:, 0].tolist()[:5]}"
                raise InputError(
                    f"features must begin with the index of an arm, {needed}"
                )
            rows[:, 0] = 1.0
        # Deviations have walked since they were learned last.
        elapsed = (self.rounds - self.learned[codes]).astype(np.float64)
        level, variance = kernels.deviation_moments(
            codes, rows, self.deviations, self.covariances, self.steps, elapsed
        )
        return _Offer(codes, rows, level, variance)

    def decide(self, offered: Any, *, draw: float | None = None) -> Choice:
        """Choose the largest mean plus one standard deviation of what the logs leave open.

        Expected rewards and widths are those of AutoISD.
        """
        with self._lock:
            if not self.arms:
                return self.shared.decide(offered)
            offer = self._offer(offered)
            mean = self.shared._means(offer.rows) + offer.level
            chosen = self._best(offer, mean)
            _, width = self.shared._predict(offer.rows)
        width = np.sqrt(width**2 + offer.variance)
        if self.shared.link == "logit":
            width = chance(mean + width) - chance(mean)
            mean = chance(mean)
        return choice_of(chosen, mean, width)

    def select(self, features: Any) -> int:
        """Return the index of the action to play, without the widths that `decide` computes."""
        with self._lock:
            if not self.arms:
                return self.shared.select(features)
            offer = self._offer(features)
            return self._best(offer, self.shared._means(offer.rows) + offer.level)

    def _best(self, offer: _Offer, mean: Array) -> int:
        """Return the action with the largest mean (K,) plus deviation of what the logs leave open."""
        z = self.shared.mixture.coordinates(offer.rows)
        left_open = self.shared.mixture.left_open()
        shared_variance = np.maximum(((z @ left_open) * z).sum(axis=1), 0.0)
        return int(np.argmax(mean + np.sqrt(shared_variance + offer.variance)))

    # -- learning --

    def update(
        self,
        features: Any,
        reward: float,
        *,
        offered: Any = None,
        action: int | None = None,
    ) -> None:
        """Learn the reward of the chosen arm with features (dim,)."""
        with self._lock:
            if not self.arms:
                self.shared.update(features, reward)
                return
            chosen = base.chosen_array(features, self.dim)
            offer = self._offer(chosen[None])
            mean, width = self.shared._predict(offer.rows)[:, 0]
            level = float(offer.level[0])
            variance = float(offer.variance[0])
            shared_variance = width * width
            noise = self.shared.mixture.believed_noise
            elapsed = self.rounds
            self.shared.update_with_offset(offer.rows[0], reward, level, variance)
            error = reward - mean - level
            total = shared_variance + variance + noise
            if self.shared.link == "logit":
                error, total, _, _ = kernels.click_evidence(
                    reward, mean + level, shared_variance + variance, 1.0
                )
            largest = OUTLIER * np.sqrt(total)
            error = float(np.clip(error, -largest, largest))
            # A Kalman filter: δ ← δ + Pz·e/S, P ← P − (Pz)(Pz)ᵀ/S.
            code = int(offer.codes[0])
            P = self.covariances[code]
            walked = elapsed - self.learned[code]
            P += np.diag(walked * self.steps)
            Pz = P @ offer.rows[0, : len(P)]
            self.deviations[code] += Pz * (error / total)
            P -= np.outer(Pz, Pz / total)
            self.learned[code] = self.rounds

    # -- explaining --

    def explain(self, feature_names: Sequence[str] | None = None) -> Any:
        """Return what the policy believes about changes since the logs of what all arms share."""
        names = feature_names
        if names is not None and self.rows_are_crossed:
            if len(names) != self.dim:
                raise InputError(
                    f"feature_names must have {self.dim} entries, got {len(names)}"
                )
            # The names of an arm begin with its label: "A", "A × hour".
            arms, own = self.deviations.shape
            label, *slopes = names[:own]
            slopes = [name[len(label) :].strip(" ×") for name in slopes]
            names = ["level", *slopes, *names[arms * own :]]
        belief = self.shared.explain(names)
        if not self.arms:
            return belief
        return replace(belief, scope=OF_SHARED_PART.format(arms=self.arms))

    # -- arms that come and go --

    def with_arm(self, features: Sequence[float] | None = None) -> Self:
        """Return a copy of this policy with one more arm, whose coefficients are those of the population.

        What the features of the new arm say is in the shared part.
        """
        if not self.arms:
            raise InputError(
                "this policy knows no labelled arms: it was not started with them"
            )
        with self._lock:
            grown = self.from_state(self.settings(), self.arrays())
        new = np.zeros((1, len(grown.spread)))
        grown.deviations = np.vstack([grown.deviations, new])
        grown.covariances = np.concatenate(
            [grown.covariances, np.diag(grown.spread)[None]]
        )
        grown.learned = np.append(grown.learned, grown.rounds)
        grown.dim = grown._length()
        return grown

    def __getattr__(self, name: str) -> Any:
        """What else the policy of the shared part can do or say, such as `prior`."""
        if name.startswith("_") or name in ("shared", "deviations"):
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}"
            )
        return getattr(self.shared, name)

    # -- storing --

    def settings(self) -> dict[str, Any]:
        """Those of the shared part."""
        return self.shared.settings()

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """What is known of the arms, when each was learned last, and the arrays of the shared part."""
        with self._lock:
            own = {
                name: getattr(self, name).copy()
                for name in ("deviations", "covariances", "learned", "spread", "steps")
            }
            own["rows_are_crossed"] = np.array([self.rows_are_crossed], dtype=np.int64)
            return {**own, **prefixed(SHARED, self.shared.arrays())}

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
        shared = AutoISD.from_state(settings, under(arrays, SHARED))
        known = NO_DEVIATIONS._replace(
            means=arrays["deviations"],
            covariances=arrays["covariances"].copy(),
            spread=arrays["spread"],
            steps=arrays["steps"],
        )
        crossed = bool(arrays["rows_are_crossed"][0])
        made = cls(shared, known, rows_are_crossed=crossed)
        made.learned = np.array(arrays["learned"])
        return made
