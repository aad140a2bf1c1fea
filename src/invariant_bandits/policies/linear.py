"""Every linear policy is one policy: a memory, an exploration, and perhaps an invariant part.

score(φ) = φᵀβ̂ + z·δ̂ + exploration · (radius · ‖z‖ + invariant radius · ‖φ‖_inv), z the residual coordinates of φ.
LinUCB is the case without an invariant part, z = φ.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Self, TypedDict

import numpy as np

from invariant_bandits.checks import Array, InputError, probability, whole_number
from invariant_bandits.policies import kernels
from invariant_bandits.policies import radii as bounds
from invariant_bandits.policies.base import (
    BasePolicy,
    Scores,
    batch_array,
    check_rounds,
    chosen_array,
    not_negative,
    offered_array,
    one_hot,
    positive,
    refuse_offered,
    refuse_round,
    reward_number,
)
from invariant_bandits.policies.memory import (
    FOREVER,
    Discount,
    Memory,
    SlidingWindow,
    checked_memory,
    memory_from_settings,
    memory_to_settings,
)
from invariant_bandits.policies.past import Past
from invariant_bandits.policies.registry import policy
from invariant_bandits.storage import Check, StateSchema, counters, prefixed, under

NUMBERS_AT_ONCE = 65_536  # projected features of a batch that stay in the processor's cache
DEFAULT_RIDGE = 0.1
LARGEST_COEFFICIENT = 1e140
"""Of estimates, norms and radii: products of larger ones could overflow."""


class Estimation(TypedDict, total=False):
    """Keywords that every linear policy takes, with their defaults in LinearPolicy."""

    ridge: float
    confidence: float
    noise_scale: float
    norm_bound: float
    feature_bound: float


class Common(Estimation, total=False):
    """The same for policies that explore."""

    exploration: float


class LinearPolicy(BasePolicy):
    """Upper-confidence policy over any memory, with the invariant part that `lift` describes.

    Parameters
    ----------
    dim : int
        Number of features p.
    ridge : float
        Regulariser λ.
    confidence : float
        Probability of failure η.
    noise_scale : float
        Standard deviation σ of a reward, in its unit.
    norm_bound, feature_bound : float
        M ≥ ‖γ‖, and L ≥ ‖φ‖, which the radii of SlidingWindow and Discount use.
    exploration : float
        Factor on the widths.
    memory : Memory
        What of the online past counts.
    lift, residual_dim : array, shape (p, 1 + q + r), and int q, optional
        Columns [β | U_res | W], see `kernels`. None: no invariant part, q = p.
    """

    stored_settings: ClassVar[Mapping[str, Check]] = {
        "ridge": positive,
        "confidence": probability,
        "noise_scale": positive,
        "norm_bound": not_negative,
        "feature_bound": positive,
        "exploration": not_negative,
    }

    def __init__(
        self,
        dim: int,
        *,
        ridge: float = DEFAULT_RIDGE,
        confidence: float = 0.01,
        noise_scale: float = 1.0,
        norm_bound: float = 1.0,
        feature_bound: float = 1.0,
        exploration: float = 1.0,
        memory: Memory = FOREVER,
        lift: Array | None = None,
        residual_dim: int | None = None,
    ) -> None:
        self.dim = whole_number("dim", dim, 1)
        self.ridge = positive("ridge", ridge)
        self.confidence = probability("confidence", confidence)
        self.noise_scale = positive("noise_scale", noise_scale)
        self.norm_bound = not_negative("norm_bound", norm_bound)
        self.feature_bound = positive("feature_bound", feature_bound)
        self.exploration = not_negative("exploration", exploration)
        self.memory = checked_memory(memory)
        self.rounds = 0
        self._changes, self._changing, self._within = 0, False, False
        self._grows = not isinstance(self.memory, SlidingWindow | Discount)
        self._lift = np.zeros((self.dim, 0)) if lift is None else np.ascontiguousarray(lift)
        self._memory = self.memory.begin(self.dim if residual_dim is None else residual_dim, self.ridge)
        self._factor = self._memory.factor
        self._refresh(0.0)

    # -- starting --

    @classmethod
    def from_past(cls, past: Past, *, warm: bool | int = False, **options: Any) -> Self:
        """A policy with the past's noise scale, feature bound and confidence, unless `options` say otherwise.

        With `warm` it has learned the logged rounds, or, if that is a number, so many of the latest.
        """
        policy = cls(past.dim, **{**past.settings(), **options})
        if warm is not False:
            policy._learn_past(past, None if warm is True else warm)
        return policy

    def _learn_past(self, past: Past, latest: int | None) -> None:
        """Learn every logged round, or the latest: row by row where the rows are at hand, else from their moments."""
        if past.logs is None:
            if latest is not None:
                raise InputError("warm: the logged rounds are not at hand, only the moments of all of them")
            self._learn_moments(past)
            return
        skipped = 0 if latest is None else max(0, len(past.logs.rewards) - latest)
        for part in past.logs_in_parts():
            first = min(skipped, len(part.rewards))
            skipped -= first
            for features, reward in zip(part.features[first:], part.rewards[first:].tolist(), strict=True):
                LinearPolicy.update(self, features, reward)

    def _learn_moments(self, past: Past) -> None:
        """A = λI + Σφφᵀ and b = Σφ(r − baseline) are sums: the state after learning row by row, up to rounding."""
        if self.memory != FOREVER:
            raise InputError(f"warm: a memory that forgets needs the logged rounds themselves, got {self.memory}")
        moments = past.moments
        gram = moments.second_moment() + self.ridge * np.eye(self.dim)
        weights = moments.counts[:, None] * moments.feature_mean
        pull = moments.cross.sum(axis=0) + weights.T @ (moments.reward_mean - past.baseline)
        try:
            root = np.linalg.cholesky(gram)
        except np.linalg.LinAlgError:
            raise InputError(
                "features must be of similar size: their Gram matrix is singular in double precision"
            ) from None
        counters = np.array([moments.rounds, moments.rounds], dtype=np.int64)
        factor = np.column_stack([root.T, np.linalg.solve(root, pull)])
        self._restore({"counters": counters, "memory.factor": factor})

    # -- deciding --

    def select(self, features: Any) -> int:
        """Index of the action with the highest upper confidence bound, given features (K, p)."""
        # Without the lock, which would cost a tenth: what was decided while nothing changed was decided in one state.
        before = self._changes
        try:
            if type(features) is not np.ndarray:  # such as a masked array, which the loop would take as it is
                features = offered_array(features, self.dim)
            action: int = kernels.choose(features, self._lift, self._factor, self._spread, self._invariant_spread)
            if self._changing or before != self._changes:
                with self._lock:
                    action = kernels.choose(features, self._lift, self._factor, self._spread, self._invariant_spread)
                    self._changing = self._within
        except kernels.WRONG_TYPE:  # another type or layout than the compiled loop takes
            return LinearPolicy.select(self, offered_array(features, self.dim))
        return action if action >= 0 else refuse_offered(features, self.dim)

    def scores(self, features: Any) -> Scores:
        """Means and widths of the actions with features (K, p); `select` maximises mean + exploration · width."""
        features = offered_array(features, self.dim)
        parts = np.empty((3, len(features)))
        with self._lock:
            if kernels.score(features, self._lift, self._factor, parts) < 0:
                refuse_offered(features, self.dim)
            width = self._radius * np.sqrt(parts[1]) + self._invariant_radius * np.sqrt(parts[2])
        return Scores(parts[0], width)

    def select_many(self, features: Any) -> np.ndarray[Any, Any]:
        """Actions (N,) for N rounds (N, K, p) in the present state, by matrix products."""
        features = batch_array(features, self.dim)
        rounds, actions, _ = features.shape
        flat = features.reshape(-1, self.dim).T
        with self._lock:
            panel, q = self._panel().T, self._memory.dim
            spreads = self._spread, self._invariant_spread
        chosen = np.empty(rounds, dtype=np.int64)
        step = max(1, NUMBERS_AT_ONCE // (len(panel) * actions))
        for start in range(0, rounds, step):
            stop = min(start + step, rounds)
            check_rounds(features, start, stop)
            with np.errstate(invalid="ignore", over="ignore"):
                projected = panel @ flat[:, start * actions : stop * actions]
            kernels.best_of_columns(projected, q, *spreads, chosen[start:stop])
        return chosen

    def propensities(self, features: Any) -> Array:
        """Probabilities (K,) of the next choice: one for what `select` returns, as the policy does not randomise."""
        return one_hot(self.select(features), len(features))

    def _panel(self) -> Array:
        """Matrix (p, 1 + q + r) that takes φ to its mean, to coordinates of norm ‖z‖, and to those of ‖φ‖_inv."""
        estimate, root, q = self._memory.estimate(), self._memory.norm_root(), self._memory.dim
        if not self._lift.size:
            return np.column_stack([estimate, root])
        component, residual, spread = self._lift[:, 0], self._lift[:, 1 : 1 + q], self._lift[:, 1 + q :]
        return np.column_stack([component + residual @ estimate, residual @ root, spread])

    # -- learning --

    def update(self, features: Any, reward: float, *, offered: Any = None, action: int | None = None) -> None:
        """Learn the reward of the chosen action with features (p,)."""
        lock = self._lock
        try:
            lock.acquire()  # `with` would take twice as long
            self._changing = True
            try:
                row = features if type(features) is np.ndarray else chosen_array(features, self.dim)
                volume = self._memory.learn(row, reward, self._lift)
            except kernels.WRONG_TYPE:  # another type or layout than the compiled loop takes
                volume = self._memory.learn(chosen_array(features, self.dim), reward_number(reward), self._lift)
            if volume < 0.0:
                refuse_round(features, reward, self.dim)
            self.rounds += 1
            self._refresh(volume)
        finally:
            lock.release()

    def _refresh(self, volume: float) -> None:
        """Radii after a change of the memory, whose log det A/det λI is `volume`; `select` may go ahead again."""
        self._radius = self._residual_radius(volume)
        self._invariant_radius = self._component_radius()
        self._spread = self.exploration * self._radius
        self._invariant_spread = self.exploration * self._invariant_radius
        self._changes += 1
        self._changing = self._within

    @contextmanager
    def _one_change(self) -> Iterator[None]:
        outer, self._within, self._changing = self._within, True, True
        try:
            yield
        finally:
            self._changes += 1
            self._within = self._changing = outer

    def _put_back(self, state: dict[str, Any]) -> None:
        super()._put_back({**state, "_changes": self._changes + 1})

    def _residual_radius(self, volume: float) -> float:
        """The radius that was published with the memory."""
        if self._grows:
            return bounds.lemma1_radius(volume, self.confidence, self.noise_scale, self.ridge, self.norm_bound)
        memory = self.memory
        if isinstance(memory, SlidingWindow):
            return bounds.sliding_window_radius(
                self._memory.dim,
                memory.window,
                self.confidence,
                self.noise_scale,
                self.ridge,
                self.norm_bound,
                self.feature_bound,
            )
        if isinstance(memory, Discount):
            return bounds.discounted_radius(
                self._memory.rounds,
                self._memory.dim,
                memory.discount,
                self.confidence,
                self.noise_scale,
                self.ridge,
                self.norm_bound,
                self.feature_bound,
            )
        return bounds.lemma1_radius(volume, self.confidence, self.noise_scale, self.ridge, self.norm_bound)

    def _component_radius(self) -> float:
        return 0.0

    @property
    def coefficients(self) -> Array:
        """The present estimate of γ (p,), invariant part included."""
        with self._lock:
            estimate = self._memory.estimate()
            if not self._lift.size:
                return estimate
            return np.asarray(self._lift[:, 0] + self._lift[:, 1 : 1 + self._memory.dim] @ estimate)

    # -- storing --

    def _common(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in Common.__annotations__}

    def settings(self) -> dict[str, Any]:
        """What the constructor was given, as plain values."""
        return {"dim": self.dim, **self._common(), "memory": memory_to_settings(self.memory)}

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """The memory and the counters."""
        with self._lock:
            counters = np.array([self.rounds, self._memory.rounds], dtype=np.int64)
            return {"counters": counters} | {f"memory.{k}": v.copy() for k, v in self._memory.arrays().items()}

    @classmethod
    def state_schema(cls, settings: Mapping[str, Any], names: Collection[str]) -> StateSchema:
        """Two counters, and what the memory keeps of q coordinates."""
        arrays, memory = {"counters": counters(2)}, cls._stored_memory(settings)
        if memory is not None:
            arrays |= prefixed("memory.", memory.array_specs("q"))
        sizes = {"q": whole_number("dim", settings["dim"], 1)} if "dim" in settings else {}
        return StateSchema(arrays, cls.stored_settings, sizes)

    @classmethod
    def _stored_memory(cls, settings: Mapping[str, Any]) -> Memory | None:
        """The memory of a policy with these settings; None if they do not tell."""
        return memory_from_settings(settings["memory"]) if "memory" in settings else None

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], arrays: Mapping[str, np.ndarray[Any, Any]]) -> Self:
        """The policy that had these settings and arrays."""
        given = dict(settings)
        if "memory" in given:
            given["memory"] = memory_from_settings(given["memory"])
        policy = cls(**given)
        policy._restore(arrays)
        return policy

    def _restore(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        self.rounds, inside = (int(value) for value in arrays["counters"])
        own = under(arrays, "memory.")
        self._memory.restore(own, inside)
        self._refresh(self._memory.log_volume())
        largest = max(float(np.max(np.abs(self._lift), initial=1.0)), self._radius, self._invariant_radius)
        if not largest * self._memory.largest_coefficient() < LARGEST_COEFFICIENT:
            raise InputError("the memory is too near to a singular one to decide by")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(dim={self.dim}, memory={self.memory}, rounds={self.rounds})"


@policy("linucb-warm", label="LinUCB warm", warm=True)
@policy("linucb-cold", label="LinUCB cold", warm=False)
@policy("linucb", label="LinUCB")
class LinUCB(LinearPolicy):
    """LinUCB (Abbasi-Yadkori et al. 2011), with the determinant itself in the radius. Parameters as in LinearPolicy.

    >>> import numpy as np, invariant_bandits as ib
    >>> rng = np.random.default_rng(0)
    >>> policy = ib.LinUCB(3)
    >>> for _ in range(200):
    ...     features = rng.normal(size=(5, 3))
    ...     action = policy.select(features)
    ...     policy.update(features[action], features[action] @ [1.0, -1.0, 0.0] + rng.normal(scale=0.1))
    >>> policy.coefficients.round(1) + 0.0
    array([ 1., -1.,  0.])
    """

    def __init__(
        self,
        dim: int,
        *,
        ridge: float = 0.1,
        confidence: float = 0.01,
        noise_scale: float = 1.0,
        norm_bound: float = 1.0,
        feature_bound: float = 1.0,
        memory: Memory = FOREVER,
        exploration: float = 1.0,
    ) -> None:
        super().__init__(
            dim,
            ridge=ridge,
            confidence=confidence,
            noise_scale=noise_scale,
            norm_bound=norm_bound,
            feature_bound=feature_bound,
            memory=memory,
            exploration=exploration,
        )
