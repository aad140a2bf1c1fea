"""AutoISD: a hedge over what may have changed since the logs, for a user who has logs and wants to tune nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, NoReturn, Self

import numpy as np

from invariant_bandits.checks import Array, InputError, finite_array, probability
from invariant_bandits.decomposition.estimator import InvariantSubspaceDecomposition
from invariant_bandits.decomposition.prior import DriftPrior
from invariant_bandits.moments.windowed import WindowedMoments
from invariant_bandits.policies import mixture_kernels as kernels
from invariant_bandits.policies.base import (
    Scores,
    batch_array,
    best_of_values,
    chosen_array,
    not_negative,
    offered_array,
    reward_number,
    too_large,
)
from invariant_bandits.policies.hypotheses import FAMILIES, INVARIANCE_HOLDS, Hypothesis, default_hypotheses

DEFAULT_EXPLORATION = 0.5
DEFAULT_SHARE = 1e-5


@dataclass(frozen=True)
class Belief:
    """What AutoISD believes now.

    families: probability of each of the four; log_evidence: log of the likelihood ratio of broken against held
    invariance; alarm: whether it ever passed log(1/alarm_level); shifts, errors (p,): for every direction of the basis
    how far its coefficient stands from the mean of the logs, and the standard deviation of that; names: its main
    features.
    """

    families: dict[str, float]
    log_evidence: float
    alarm: bool
    alarm_level: float
    shifts: Array
    errors: Array
    names: list[str]
    rounds: int

    def __str__(self) -> str:
        lines = [f"After {self.rounds:,} round{'s' if self.rounds != 1 else ''}:"]
        lines += [f"  {name:<22} {100.0 * share:5.1f} %" for name, share in self.families.items()]
        verdict = "ALARM: the logs' invariance does not hold" if self.alarm else "no alarm"
        lines.append(f"  evidence against invariance: 10^{self.log_evidence / np.log(10.0):.1f} to 1, {verdict}")
        size = np.abs(self.shifts) / self.errors
        moved = [j for j in np.argsort(-size) if size[j] > 2.0][:5]
        if moved:
            lines.append("  moved since the logs (coefficient along a direction, mainly of the features named):")
        lines += [
            f"    direction {j + 1:>2} ({self.names[j]}): {self.shifts[j]:+.3g} ± {self.errors[j]:.2g}" for j in moved
        ]
        return "\n".join(lines)


class AutoISD:
    """Weighs four stories of what changed since the logs, and acts on all of them.

    Nothing changed; drift as in the logs, at several sizes and speeds; invariance broken; logs useless. Each is one or
    more Kalman filters over the coefficients (and the reward baseline), weighted by how well they predicted so far. The
    score of an action is the mixture's mean plus exploration · (√(2 log 1/η) + 1) standard deviations of the mixture
    (law of total variance), more where the online rounds say little about the action. Start it with `from_history`.

    prior: what the logs teach. intercept: keep the reward baseline as a coordinate of its own. confidence: η.
    share: part of the weights that returns to the prior weights each round. alarm_level: probability of a false alarm,
    over all rounds together, if invariance holds. hypotheses: others than the default ones.

    >>> import numpy as np, invariant_bandits as ib
    >>> from invariant_bandits.simulation.episodes import PaperEpisodes
    >>> episode = PaperEpisodes(logged=2000).draw(300, np.random.default_rng(0))
    >>> policy = ib.AutoISD.from_history(episode.moments)
    >>> regret = 0.0
    >>> for features, means, noise in zip(episode.offered, episode.means, episode.noise):
    ...     action = policy.select(features)
    ...     policy.update(features[action], means[action] + noise)
    ...     regret += means.max() - means[action]
    >>> bool(regret < 30)
    True
    """

    def __init__(
        self,
        prior: DriftPrior,
        *,
        intercept: bool = True,
        exploration: float = DEFAULT_EXPLORATION,
        confidence: float = 0.01,
        share: float = DEFAULT_SHARE,
        alarm_level: float = 0.01,
        hypotheses: Sequence[Hypothesis] | None = None,
    ) -> None:
        if not isinstance(prior, DriftPrior):
            raise InputError(f"prior must be a DriftPrior, got {type(prior).__name__}; from_history makes one")
        self.prior = prior
        self.dim = len(prior.mean)
        self.intercept = bool(intercept)
        self.exploration = not_negative("exploration", exploration)
        self.confidence = probability("confidence", confidence)
        self.share = not_negative("share", share)
        if self.share >= 1.0:
            raise InputError(f"share must be below 1, got {share!r}")
        self.alarm_level = probability("alarm_level", alarm_level)
        chosen = default_hypotheses(prior, intercept=self.intercept) if hypotheses is None else list(hypotheses)
        self._begin(chosen)

    @classmethod
    def from_history(
        cls,
        moments: WindowedMoments,
        *,
        intercept: bool = True,
        exploration: float = DEFAULT_EXPLORATION,
        confidence: float = 0.01,
        share: float = DEFAULT_SHARE,
        alarm_level: float = 0.01,
    ) -> Self:
        """Learn the basis and the drift prior from the logs, then start."""
        basis = InvariantSubspaceDecomposition().fit(moments).basis_
        prior = DriftPrior.from_moments(moments, basis)
        return cls(
            prior,
            intercept=intercept,
            exploration=exploration,
            confidence=confidence,
            share=share,
            alarm_level=alarm_level,
        )

    def _begin(self, hypotheses: Sequence[Hypothesis]) -> None:
        d = self.dim + self.intercept
        if not hypotheses or any(len(one.mean) != d for one in hypotheses):
            raise InputError(f"hypotheses must not be empty and must have {d} coordinates each")
        weights = np.array([one.weight for one in hypotheses])
        weights = weights / weights.sum()
        self._clock = np.zeros(2)
        self._families = [FAMILIES.index(one.family) for one in hypotheses]
        self._means = np.stack([one.mean for one in hypotheses])
        self._covariances = np.stack([one.covariance for one in hypotheses])
        self._process = np.stack([one.process for one in hypotheses])
        held = np.array([float(one.family in INVARIANCE_HOLDS) for one in hypotheses])
        self._table = np.stack([weights, weights, np.zeros(len(weights)), held])
        self._settle()

    def _settle(self) -> None:
        """What follows from the state: the blend, the multiplier, and the filter that knows online rounds alone."""
        self._basis = np.ascontiguousarray(self.prior.basis)
        self._blend = np.empty((self._means.shape[1] + 1, self._means.shape[1]))
        kernels.blend_filters(self._means, self._covariances, self._table, self._blend)
        self._radius = float(np.sqrt(2.0 * np.log(1.0 / self.confidence)) + 1.0)
        still = self._process.sum(axis=1) == 0.0
        widest = np.where(still, np.array(self._families), -1)
        self._reference = int(np.argmax(widest)) if still.any() else int(np.argmax(self._families))
        self._multiplier = self.exploration * self._radius
        # Actions hardly tried are judged more generously, but never beyond what exploration 1 grants to all.
        self._most_lag = max(1.0, 1.0 / max(self.exploration, 1e-3) ** 2)

    # -- deciding --

    def select(self, features: Any) -> int:
        """Index of the action to play, given features (K, p)."""
        state = (self._basis, self._blend, self._covariances, self._reference, self._most_lag)
        noise, rounds = self.prior.noise_variance, self._clock[0]
        try:
            action: int = kernels.choose(features, *state, noise, rounds, self._multiplier)
        except TypeError:
            features = offered_array(features, self.dim)
            action = kernels.choose(features, *state, noise, rounds, self._multiplier)
        if action < 0:
            self._refuse(features)
        return action

    def scores(self, features: Any) -> Scores:
        """Expected rewards and widths (K,); `select` maximises mean + exploration · width."""
        features = offered_array(features, self.dim)
        parts = np.empty((3, len(features)))
        state = (self._basis, self._blend, self._covariances, self._reference, self._most_lag)
        if kernels.score(features, *state, self.prior.noise_variance, float(self.rounds), parts) < 0:
            self._refuse(features)
        return Scores(parts[0], self._radius * np.sqrt(parts[1] * parts[2]))

    def select_many(self, features: Any) -> np.ndarray[Any, Any]:
        """Actions (N,) for N rounds (N, K, p) in the present state."""
        features = batch_array(features, self.dim)
        rounds, actions, _ = features.shape
        flat = features.reshape(-1, self.dim)
        parts = np.empty((3, len(flat)))
        state = (self._basis, self._blend, self._covariances, self._reference, self._most_lag)
        if kernels.score(flat, *state, self.prior.noise_variance, float(self.rounds), parts) < 0:
            finite_array("features", features, ("N", "K", self.dim))
            raise too_large()
        values = parts[0] + self._multiplier * np.sqrt(parts[1] * parts[2])
        return best_of_values(values.reshape(rounds, actions))

    def propensities(self, features: Any) -> Array:
        """Probabilities (K,) of the next choice: one for the action that `select` returns, the policy being certain."""
        features = offered_array(features, self.dim)
        result = np.zeros(len(features))
        result[self.select(features)] = 1.0
        return result

    def _refuse(self, features: Any) -> NoReturn:
        offered_array(features, self.dim)
        raise too_large()

    # -- learning --

    def update(self, features: Any, reward: float, *, offered: Any = None, action: int | None = None) -> None:
        """Learn the reward of the chosen action with features (p,)."""
        state = (self._basis, self._means, self._covariances, self._process, self._table, self._blend, self._clock)
        noise = self.prior.noise_variance
        try:
            status = kernels.learn(features, reward, *state, noise, self.share)
        except TypeError:
            features, reward = chosen_array(features, self.dim), reward_number(reward)
            status = kernels.learn(features, reward, *state, noise, self.share)
        if status < 0:
            chosen_array(features, self.dim)
            reward_number(reward)
            raise too_large()

    @property
    def alarm(self) -> bool:
        """Whether invariance was ever rejected, at `alarm_level` over all rounds together."""
        return bool(self._clock[1] >= np.log(1.0 / self.alarm_level))

    @property
    def rounds(self) -> int:
        """Rounds learned online."""
        return int(self._clock[0])

    @property
    def coefficients(self) -> Array:
        """The mixture's mean of γ (p,)."""
        return np.asarray(self.prior.basis @ self._blend[0, : self.dim])

    def beliefs(self) -> dict[str, float]:
        """What a simulation traces: the probability of each family, and the log evidence against invariance."""
        return self._family_weights() | {"log evidence": float(kernels.log_evidence(self._table))}

    def _family_weights(self) -> dict[str, float]:
        weights = np.bincount(self._families, weights=self._table[0], minlength=len(FAMILIES))
        return dict(zip(FAMILIES, weights.tolist(), strict=True))

    def explain(self, feature_names: Sequence[str] | None = None) -> Belief:
        """What the policy believes now; print it for a text, read its fields for numbers."""
        names = [f"x{j}" for j in range(self.dim)] if feature_names is None else list(feature_names)
        if len(names) != self.dim:
            raise InputError(f"feature_names must have {self.dim} entries, got {len(names)}")
        main = [np.argsort(-np.abs(self.prior.basis[:, j]))[:2] for j in range(self.dim)]
        return Belief(
            families=self._family_weights(),
            log_evidence=float(kernels.log_evidence(self._table)),
            alarm=self.alarm,
            alarm_level=self.alarm_level,
            shifts=self._blend[0, : self.dim] - self.prior.mean,
            errors=np.sqrt(np.diagonal(self._blend[1:])[: self.dim]),
            names=[", ".join(names[i] for i in pair) for pair in main],
            rounds=self.rounds,
        )

    # -- storing --

    def settings(self) -> dict[str, Any]:
        """What the constructor was given, as plain values."""
        prior = {name: value for name, value in asdict(self.prior).items() if not isinstance(value, np.ndarray)}
        own = ("intercept", "exploration", "confidence", "share", "alarm_level")
        return {"prior": prior, **{name: getattr(self, name) for name in own}}

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """The prior's arrays and the state of every filter."""
        prior = {f"prior.{name}": value for name, value in asdict(self.prior).items() if isinstance(value, np.ndarray)}
        return prior | {
            "families": np.array(self._families, dtype=np.int64),
            "means": self._means,
            "covariances": self._covariances,
            "process": self._process,
            "table": self._table,
            "clock": self._clock,
        }

    @classmethod
    def rebuilt(cls, settings: Mapping[str, Any], arrays: Mapping[str, np.ndarray[Any, Any]]) -> Self:
        """The policy that had these settings and arrays."""
        given = dict(settings)
        scalars = given.pop("prior")
        known = {one.name for one in fields(DriftPrior)}
        stored = {name.removeprefix("prior."): a for name, a in arrays.items() if name.startswith("prior.")}
        if known != scalars.keys() | stored.keys():
            raise InputError("the prior is not whole")
        whole: dict[str, Any] = {**scalars, **stored}
        _check_shapes(arrays, stored, bool(given.get("intercept")))
        policy = cls(DriftPrior(**whole), **given)
        policy._families = [int(family) for family in arrays["families"]]
        policy._means, policy._covariances = arrays["means"].copy(), arrays["covariances"].copy()
        policy._process, policy._table = arrays["process"].copy(), arrays["table"].copy()
        policy._clock = arrays["clock"].copy()
        policy._settle()
        return policy

    def __repr__(self) -> str:
        return f"AutoISD(dim={self.dim}, hypotheses={len(self._families)}, rounds={self.rounds})"


def _check_shapes(arrays: Mapping[str, Array], prior: Mapping[str, Array], intercept: bool) -> None:
    """Raise unless the stored arrays fit together: compiled loops would not notice."""
    p, filters = len(prior["mean"]), len(arrays["families"])
    d = p + intercept
    squares = ("basis", "mean_covariance", "pooled_covariance")
    shapes: dict[str, tuple[int, ...]] = {f"prior.{name}": (p, p) if name in squares else (p,) for name in prior}
    shapes |= {"means": (filters, d), "process": (filters, d), "covariances": (filters, d, d)}
    shapes |= {"table": (4, filters), "clock": (2,)}
    for name, shape in shapes.items():
        if arrays[name].shape != shape or arrays[name].dtype != np.float64:
            raise InputError(f"{name} must be float64 of shape {shape}, got {arrays[name].dtype} {arrays[name].shape}")
    if arrays["families"].dtype != np.int64 or not np.isin(arrays["families"], np.arange(len(FAMILIES))).all():
        raise InputError(f"families must be whole numbers below {len(FAMILIES)}")
