"""Every linear policy is one policy: a memory, an exploration, and perhaps an invariant part.

score(φ) = φᵀβ̂ + z·δ̂ + exploration · (radius · ‖z‖ + invariant radius · ‖φ‖_inv), z the residual coordinates
of φ. LinUCB is the case without an invariant part, z = φ.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Self, TypedDict, Unpack

import numpy as np

from invariant_bandits.checks import Array, InputError, probability, whole_number
from invariant_bandits.policies import base, kernels
from invariant_bandits.policies import radii as bounds
from invariant_bandits.policies.base import (
    SEED,
    BasePolicy,
    Option,
    Scores,
    Seed,
    chosen_array,
    offered_array,
)
from invariant_bandits.policies.choice import Choice, choice_of, draw_action
from invariant_bandits.policies.memory import (
    FOREVER,
    Discount,
    Memory,
    Restart,
    SlidingWindow,
)
from invariant_bandits.policies.past import Past
from invariant_bandits.policies.registry import register_policy
from invariant_bandits.storage import StateSchema, counters, prefixed, under

WINDOW_SHARE, RESTART_SHARE = 0.25, 0.5
"""Parts of the horizon that SWLinUCB and RestartLinUCB remember by default.

Of the parts 1, 1/2, 1/3, … 1/20 these two had the lowest mean regret of those that forget: 1.20 times that of
the best part for a window of a quarter, 1.53 times for restarts after a half. These are geometric means over
nine worlds (constant, rotating, abrupt, recurring, creeping, and one that is drawn anew every 250 rounds; T
from 100 to 2,000; exploration 1 and 0.3; 12 repetitions, seed 11). Each restart begins with nothing.
"""


SAMPLES = 1000
"""Draws of the coefficients by which Thompson sampling estimates its propensities.

The standard error of a propensity is at most 0.5/√1000 = 0.016.
"""
ESTIMATION: Mapping[str, Option] = {
    "ridge": Option(0.1, base.positive),
    "delta": Option(0.01, probability),
    "noise_scale": Option(1.0, base.positive),
    "norm_bound": Option(1.0, base.not_negative),
    "feature_bound": Option(1.0, base.positive),
}
"""Options of every linear policy."""


class LinearOptions(TypedDict, total=False):
    """Types of the options of every linear policy, for editors and type checkers."""

    ridge: float
    delta: float
    noise_scale: float
    norm_bound: float
    feature_bound: float
    exploration: float


class LinearPolicy(BasePolicy):
    """Base class of the linear policies: LinUCB and Thompson sampling.

    The policy expects the reward φᵀγ for features φ, and learns the coefficients γ by ridge regression.
    The policy plays the action with the highest upper confidence bound. With the class attribute `samples`
    it uses Thompson sampling: it draws coefficients from N(estimate, (exploration · scale)² · covariance)
    and plays the best action for them. Thompson sampling draws the coefficients once after each `update`, so
    repeated calls of `select` agree. The scale of the draws is that
    of Agrawal & Goyal (2013). With the memory Discount, the covariance of the draws is that of Kim & Tewari
    (2020).

    Parameters
    ----------
    dim : int
        Number of features p.
    ridge : float
        Regulariser λ of the ridge regression.
    delta : float
        Allowed probability η that a confidence bound fails.
    noise_scale : float
        Standard deviation σ of the noise in a reward, in units of the reward.
    norm_bound : float
        Upper bound M on the norm of the coefficients γ.
    feature_bound : float
        Upper bound L on the norm of a feature vector φ, which the memories SlidingWindow and Discount use.
    exploration : float
        Factor on the confidence widths, or on the standard deviation of the draws in Thompson sampling.
    memory : Memory
        Rule for forgetting old rounds: Forever, SlidingWindow, Discount or Restart.
    invariant : isd.InvariantPart, optional
        Part of the coefficients that is known from the logs. By default the policy learns all coefficients.
    """

    samples: ClassVar[bool] = False
    """Whether the policy draws coefficients instead of using upper confidence bounds."""

    options: ClassVar[Mapping[str, Option]] = {
        **ESTIMATION,
        "exploration": Option(1.0, base.not_negative),
    }
    starting: ClassVar[tuple[str, ...]] = ("warm", "memory")
    needs: ClassVar[tuple[str, ...]] = ("dim", "noise_scale", "feature_bound", "delta")
    shown = ("dim", "memory")
    ridge: float
    delta: float
    noise_scale: float
    norm_bound: float
    feature_bound: float
    exploration: float

    def __init__(
        self,
        dim: int,
        *,
        memory: Memory = FOREVER,
        invariant: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(dim, **options)
        if not isinstance(memory, Memory):
            raise InputError(
                f"memory must be Forever, SlidingWindow, Discount or Restart, got {memory!r}"
            )
        self.memory = memory
        self._invariant = invariant
        self._decision: tuple[Array, Array, int, float, float] | None = None
        self._begin()
        self.refresh_radii(0.0)

    def _begin(self) -> None:
        """An empty memory in the coordinates of the invariant part; radii are those of `refresh_radii`."""
        part = self._invariant
        self._lift = np.zeros((self.dim, 0)) if part is None else part.lift
        self._stable = 0 if part is None else part.stable
        self._memory = self.memory.begin(
            self.dim if part is None else part.learned_dim, self.ridge
        )
        self._assumed = bounds.Assumptions(
            self.delta,
            self.noise_scale,
            self.ridge,
            self.norm_bound,
            self.feature_bound,
        )

    # -- starting --

    @classmethod
    def from_past(cls, past: Past, *, warm: bool | int = False, **options: Any) -> Self:
        """Return a new policy with the noise scale, feature bound and delta of a Past object.

        Parameters
        ----------
        past : Past
            What is known before the first round, such as logs and horizon.
        warm : bool or int
            Whether the policy first learns the logged rounds, or how many of the latest logged rounds it
            learns.
        **options :
            Parameters of the constructor, which take precedence over the values in `past`.
        """
        memory = options.get("memory")
        if isinstance(memory, Memory) and memory.length is not None:
            past.warn_if_nothing_is_forgotten(*memory.length, warm)
        policy = super().from_past(past, **options)
        if warm is not False:
            policy._learn_past(past, None if warm is True else warm)
        return policy

    def _learn_past(self, past: Past, latest: int | None) -> None:
        """Learn every logged round, or the latest ones.

        Rows are learned one by one if they are at hand, else all at once from their moments.
        """
        if past.logs is None:
            if latest is not None:
                raise InputError(
                    "warm: the logged rounds are not at hand, only the moments of all of them"
                )
            self._learn_moments(past)
            return
        skipped = 0 if latest is None else max(0, len(past.logs.rewards) - latest)
        for part in getattr(
            past.logs, "parts", lambda: (past.logs,)
        )():  # that fit into memory
            rows = zip(
                part.features[skipped:], part.rewards[skipped:].tolist(), strict=True
            )
            skipped = max(0, skipped - len(part.rewards))
            for features, reward in rows:
                LinearPolicy.update(self, features, reward)

    def _learn_moments(self, past: Past) -> None:
        """Take the state after learning all rows, up to rounding, from their moments.

        A = λI + Σφφᵀ and b = Σφ(r − baseline) are sums. The factor is [R | w] with A = RᵀR and w = R⁻ᵀb.
        """
        if self.memory != FOREVER:
            raise InputError(
                f"warm: a memory that forgets needs the logged rounds themselves: {self.memory}"
            )
        moments = past.moments
        gram = moments.second_moment() + self.ridge * np.eye(self.dim)
        weights = moments.counts[:, None] * moments.feature_mean
        pull = moments.cross.sum(axis=0) + weights.T @ (
            moments.reward_mean - past.baseline
        )
        root = np.linalg.cholesky(gram)
        factor = np.column_stack([root.T, np.linalg.solve(root, pull)])
        self._restore(
            {"counters": np.array([moments.rounds] * 2), "memory.factor": factor}
        )

    # -- deciding --

    def select(self, features: Any) -> int:
        """Return the index of the action to play, given the features (K, p) of K actions."""
        lock = self._lock
        try:
            lock.acquire()  # `with` would take twice as long
            if (
                type(features) is not np.ndarray
            ):  # such as a masked array, which the loop would take as it is
                features = offered_array(features, self.dim)
            action: int = kernels.choose(
                features, *(self._decision or self._drawn_decision())
            )
        except (
            kernels.WRONG_TYPE
        ):  # another type or layout than the compiled loop takes
            return LinearPolicy.select(self, offered_array(features, self.dim))
        finally:
            lock.release()
        return action if action >= 0 else base.refuse(features, self.dim)

    def _drawn_decision(self) -> tuple[Array, Array, int, float, float]:
        """Draw the coefficients of the next decision, a function of seed and state alone."""
        assert self._draws is not None
        q = self._memory.dim
        invariant = self._lift[:, 1 + q :]
        noise = self._draws.at(self.rounds).standard_normal(q + invariant.shape[1])
        factor = self._memory.perturbed(self._spread * noise[:q])
        lift = self._lift.copy()
        if invariant.size:
            lift[:, 0] += self._invariant_spread * (invariant @ noise[q:])
        decision = self._decision = lift, factor, 0, 0.0, 0.0
        return decision

    def decide(self, offered: Any, *, draw: float | None = None) -> Choice:
        """Choose one of K actions by their upper confidence bounds, or for drawn coefficients.

        The propensities of Thompson sampling are shares of a thousand simulated draws. Without it, the
        choice is certain, and the action is the one with the largest mean + exploration · width.
        """
        features = offered_array(offered, self.dim)
        propensities = None
        with self._lock:
            scores = LinearPolicy.scores(self, features)
            action = LinearPolicy.select(self, features)
            if self.samples:
                propensities = self._simulated_propensities(features)
        if propensities is not None and draw is not None:
            action = draw_action(propensities.tolist(), draw)
        return choice_of(action, scores.mean, scores.width, propensities)

    def scores(self, features: Any) -> Scores:
        """Return the expected rewards and widths (K,) of K actions with features (K, p)."""
        features = offered_array(features, self.dim)
        parts = np.empty((3, len(features)))
        with self._lock:
            factor = self._memory.factor
            if kernels.score(features, self._lift, factor, self._stable, parts) < 0:
                base.refuse(features, self.dim)
            residual = self._radius * np.sqrt(parts[1])
            widths = residual + self._invariant_radius * np.sqrt(parts[2])
        return Scores(parts[0], widths)

    def select_many(self, features: Any) -> np.ndarray[Any, Any]:
        """Return the actions (N,) for N rounds with features (N, K, p), without learning in between.

        The first action is the one that `select` returns for the first round. Thompson sampling draws new
        coefficients for each of the N rounds.
        """
        features = base.batch_array(features, self.dim)
        if not self.samples:
            return self._best_bounds(features)
        base.check_rounds(features)
        panel, noise = self._draw_many(len(features))
        with np.errstate(invalid="ignore", over="ignore"):
            projected = features @ panel
            values = projected[:, :, 0] + np.einsum(
                "nkj,nj->nk", projected[:, :, 1:], noise
            )
        return np.asarray(values.argmax(axis=1))

    def _best_bounds(self, features: Array) -> np.ndarray[Any, Any]:
        """Actions (N,) with the highest upper confidence bounds, given features (N, K, p)."""
        with self._lock:
            panel, q = self._panel().T, self._memory.dim
            parts = [
                (slice(1, 1 + q), self._spread),
                (slice(1 + q, None), self._invariant_spread),
            ]
        blocks = base.upper_bounds(features, panel, parts)
        return np.concatenate([bounds.argmax(axis=1) for _, bounds in blocks])

    def _simulated_propensities(self, features: Array) -> Array:
        """Return the share of draws (K,) in which each action with features (K, p) is the best one."""
        panel, noise = self._draw_many(SAMPLES, purpose=1)
        with np.errstate(invalid="ignore", over="ignore"):
            projected = features @ panel
            values = projected[:, 0] + noise @ projected[:, 1:].T
        return np.bincount(values.argmax(axis=1), minlength=len(features)) / SAMPLES

    def _draw_many(self, count: int, purpose: int = 0) -> tuple[Array, Array]:
        """Return the panel (p, 1 + q + r), and draws (count, q + r) of the noise of its coordinates."""
        assert self._draws is not None
        with self._lock:
            panel, q = self._panel(), self._memory.dim
            noise = self._draws.at(self.rounds, purpose).standard_normal(
                (count, panel.shape[1] - 1)
            )
            noise[:, :q] *= self._spread
            noise[:, q:] *= self._invariant_spread
        return panel, noise

    def _panel(self) -> Array:
        """Return the matrix (p, 1 + q + r) that takes φ to its mean and to the coordinates of both norms.

        The next q columns give ‖z‖ as a Euclidean norm, the last r columns ‖φ‖_inv.
        """
        estimate = self._memory.estimate()
        root = self._memory.norm_root()
        q = self._memory.dim
        if not self._lift.size:
            return np.column_stack([estimate, root])
        component = self._lift[:, 0]
        residual = self._lift[:, 1 : 1 + q]
        spread = self._lift[:, 1 + q :]
        if self._stable:  # the coordinates of A⁻¹z that have a prior, A⁻¹ = NNᵀ
            spread = residual @ root @ root[-self._stable :].T
        return np.column_stack(
            [component + residual @ estimate, residual @ root, spread]
        )

    # -- learning --

    def update(
        self,
        features: Any,
        reward: float,
        *,
        offered: Any = None,
        action: int | None = None,
    ) -> None:
        """Learn the reward of the played action with features (p,)."""
        lock = self._lock
        try:
            lock.acquire()  # `with` would take twice as long
            try:
                row = (
                    features
                    if type(features) is np.ndarray
                    else chosen_array(features, self.dim)
                )
                volume = self._memory.learn(row, reward, self._lift)
            except (
                kernels.WRONG_TYPE
            ):  # another type or layout than the compiled loop takes
                row = chosen_array(features, self.dim)
                volume = self._memory.learn(row, base.reward_number(reward), self._lift)
            if volume < 0.0:
                base.refuse(features, self.dim, reward)
            self.rounds += 1
            self.refresh_radii(volume)
        finally:
            lock.release()

    def refresh_radii(self, volume: float) -> None:
        """Recompute what decisions need after a change of the memory, whose log det A/det λI is `volume`.

        Derived policies may change `exploration` here before they call this method.
        """
        memory = self._memory
        part = self._invariant
        assumed = self._assumed
        if self.samples:
            residual = bounds.thompson_scale(
                memory.rounds, memory.dim, self.delta, self.noise_scale
            )
            radii = (
                residual,
                0.0 if part is None else part.thompson_scale(memory.rounds, self.delta),
            )
        elif part is None:
            radii = memory.radius(volume, assumed), 0.0
        else:
            radii = part.radii(memory, volume, assumed)
        self._radius, self._invariant_radius = radii
        spread = self._spread = self.exploration * radii[0]
        invariant_spread = self._invariant_spread = self.exploration * radii[1]
        # Coefficients are drawn when they are first needed.
        bounds_of_actions = (
            self._lift,
            memory.factor,
            self._stable,
            spread,
            invariant_spread,
        )
        self._decision = None if self.samples else bounds_of_actions

    @property
    def radius(self) -> float:
        """Radius of the confidence set of the coefficients that are learned online."""
        return self._radius

    @property
    def log_volume(self) -> float:
        """log det A/det λI, with A the regularised Gram matrix of the rounds remembered."""
        return self._memory.log_volume()

    @property
    def coefficients(self) -> Array:
        """The present estimate of γ (p,), invariant part included."""
        with self._lock:
            return self._panel()[:, 0].copy()

    # -- storing --

    def settings(self) -> dict[str, Any]:
        """Return what the constructor was given, as plain values."""
        dim = {"dim": self.dim} if "dim" in self.needs else {}
        return {**dim, "memory": self.memory.to_settings(), **super().settings()}

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """The memory and the counters."""
        with self._lock:
            counts = np.array([self.rounds, self._memory.rounds], dtype=np.int64)
            return {"counters": counts} | prefixed(
                "memory.", copy.deepcopy(self._memory.arrays())
            )

    @classmethod
    def state_schema(
        cls, settings: Mapping[str, Any], names: Collection[str]
    ) -> StateSchema:
        """Two counters, and what the memory keeps of q coordinates."""
        memory = prefixed(
            "memory.", Memory.from_settings(settings["memory"]).array_specs("q")
        )
        sizes = (
            {"q": whole_number("dim", settings["dim"], 1)} if "dim" in settings else {}
        )
        return StateSchema({"counters": counters(2), **memory}, sizes=sizes)

    @classmethod
    def from_state(
        cls, settings: Mapping[str, Any], arrays: Mapping[str, np.ndarray[Any, Any]]
    ) -> Self:
        """The policy that had these settings and arrays."""
        memory = Memory.from_settings(settings["memory"])
        return super().from_state({**settings, "memory": memory}, arrays)

    def _restore(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        self.rounds, inside = (int(value) for value in arrays["counters"])
        self._memory.restore(under(arrays, "memory."), inside)
        self.refresh_radii(self._memory.log_volume())


@register_policy("linucb-warm", warm=True)
@register_policy("linucb-cold", warm=False)
@register_policy("linucb")
class LinUCB(LinearPolicy):
    """LinUCB: play the action with the highest upper confidence bound.

    The bound is that of Abbasi-Yadkori et al. (2011, Theorem 2). The class `LinearPolicy` documents the
    parameters.

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
        self, dim: int, *, memory: Memory = FOREVER, **options: Unpack[LinearOptions]
    ) -> None:
        super().__init__(dim, memory=memory, **options)


@register_policy("lints")
class LinTS(LinearPolicy):
    """Thompson sampling for linear rewards (Agrawal & Goyal 2013).

    Parameters
    ----------
    dim : int
        Number of features p.
    seed : int or numpy.random.Generator
        Seed or generator for the random draws of the coefficients.
    memory : Memory
        Rule for forgetting old rounds: Forever, SlidingWindow, Discount or Restart.
    **common :
        The parameters ridge, delta, noise_scale, norm_bound, feature_bound and exploration of
        LinearPolicy.

    >>> import numpy as np, invariant_bandits as ib
    >>> policy = ib.LinTS(2, noise_scale=0.1, seed=0)
    >>> for _ in range(1000):
    ...     policy.update([0.0, 1.0], 1.0)
    ...     policy.update([1.0, 0.0], 0.0)
    >>> policy.propensities(np.eye(2)).tolist()
    [0.0, 1.0]
    """

    options: ClassVar[Mapping[str, Option]] = {**LinearPolicy.options, "seed": SEED}
    samples = randomised = True

    def __init__(
        self,
        dim: int,
        *,
        seed: Seed = 0,
        memory: Memory = FOREVER,
        **options: Unpack[LinearOptions],
    ) -> None:
        super().__init__(dim, memory=memory, seed=seed, **options)


class ForgettingLinUCB(LinearPolicy):
    """Base class of LinUCB with one kind of memory, which one number defines.

    The class `LinearPolicy` documents all other parameters.

    Attributes
    ----------
    kind : type of Memory
        The memory.
    number : str
        Name of the number that defines it.
    share : float
        Part of the horizon that is remembered by default.
    """

    kind: ClassVar[type[Memory]]
    number: ClassVar[str]
    share: ClassVar[float]

    def __init__(
        self, dim: int, *, memory: Memory | None = None, **options: Any
    ) -> None:
        number = options.pop(self.number, None)
        memory = self.kind(**{self.number: number}) if memory is None else memory
        super().__init__(dim, memory=memory, **options)

    @classmethod
    def from_past(cls, past: Past, *, warm: bool | int = False, **options: Any) -> Self:
        """Return a policy for what is known before the first round.

        The default length of the memory is `past.suggested_window`, or else a share of `past.horizon`. With
        the length "horizon" the policy forgets no online round. Any other length that is as long as the run
        causes a warning. `Past.memory_length` has the exact rule.
        """
        options[cls.number] = cls._length(past, options.get(cls.number), warm)
        return super().from_past(past, warm=warm, **options)

    @classmethod
    def _length(cls, past: Past, asked: Any, warm: bool | int) -> Any:
        """Return the number that defines the memory."""
        return past.memory_length(cls.number, asked, share=cls.share, warm=warm)


@register_policy("sw-linucb")
class SWLinUCB(ForgettingLinUCB):
    """LinUCB that learns from a sliding window of the latest rounds only (Cheung et al. 2019).

    The class `LinearPolicy` documents all parameters except `window`. By its name, `sw-linucb`, the policy
    remembers a quarter of the rounds to be played, unless the logs suggest a window.

    >>> SWLinUCB(3, window=100)
    SWLinUCB(dim=3, memory=SlidingWindow(window=100), rounds=0)
    """

    kind = SlidingWindow
    number = "window"
    starting = ("warm", "window")
    share = WINDOW_SHARE

    def __init__(
        self,
        dim: int,
        *,
        window: int | None = None,
        memory: Memory | None = None,
        **options: Unpack[LinearOptions],
    ) -> None:
        super().__init__(dim, memory=memory, window=window, **options)


@register_policy("d-linucb")
class DLinUCB(ForgettingLinUCB):
    """Discounted LinUCB: a round that is s rounds old has the weight discount^s (Russac et al. 2019).

    The class `LinearPolicy` documents all parameters except `discount`. By its name, `d-linucb`, the policy
    remembers about as many rounds as the logs suggest, or else has the discount 0.999.

    >>> DLinUCB(3, discount=0.99)
    DLinUCB(dim=3, memory=Discount(discount=0.99), rounds=0)
    """

    kind = Discount
    number = "discount"
    starting = ("warm", "discount")

    def __init__(
        self,
        dim: int,
        *,
        discount: float | None = None,
        memory: Memory | None = None,
        **options: Unpack[LinearOptions],
    ) -> None:
        super().__init__(dim, memory=memory, discount=discount, **options)

    @classmethod
    def _length(cls, past: Past, asked: Any, warm: bool | int) -> Any:
        if asked is not None:
            return asked
        window = past.suggested_window
        return 0.999 if window is None else 1.0 - 1.0 / max(window, 2)


@register_policy("restart-linucb")
class RestartLinUCB(ForgettingLinUCB):
    """LinUCB that forgets everything after a fixed number of rounds and starts again (Zhao et al. 2020).

    The class `LinearPolicy` documents all parameters except `every`. By its name, `restart-linucb`, the
    policy restarts after half of the rounds to be played, unless the logs suggest a window.

    >>> RestartLinUCB(3, every=100)
    RestartLinUCB(dim=3, memory=Restart(every=100), rounds=0)
    """

    kind = Restart
    number = "every"
    starting = ("warm", "every")
    share = RESTART_SHARE

    def __init__(
        self,
        dim: int,
        *,
        every: int | None = None,
        memory: Memory | None = None,
        **options: Unpack[LinearOptions],
    ) -> None:
        super().__init__(dim, memory=memory, every=every, **options)
