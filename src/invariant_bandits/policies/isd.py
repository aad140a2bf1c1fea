"""ISD-linUCB, the paper's Algorithm 1, and ISD-linTS: an invariant part, and how each explores."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from copy import deepcopy
from typing import Any, Self

import numpy as np

from invariant_bandits.checks import Array, InputError, finite_array, one_of, whole_number
from invariant_bandits.decomposition.estimator import InvariantSubspaceDecomposition
from invariant_bandits.decomposition.split import Split
from invariant_bandits.moments.power_sums import PowerSums
from invariant_bandits.moments.windowed import WindowedMoments
from invariant_bandits.policies import radii as bounds
from invariant_bandits.policies.base import chosen_array, not_negative, offered_array, positive, reward_number
from invariant_bandits.policies.linear import LARGEST_COEFFICIENT, LinearPolicy
from invariant_bandits.policies.memory import SlidingWindow, memory_from_settings
from invariant_bandits.policies.past import Past
from invariant_bandits.policies.registry import policy
from invariant_bandits.policies.thompson import ThompsonPolicy
from invariant_bandits.storage import ArraySpec, StateSchema, counters, prefixed, schema_of, under

SPLITS = ("estimated", "oracle", "known", "published")
MOST_WINDOWS = 64
LARGEST_RECORDED = 1e60
LONGEST = 1.001
MOMENTS = ("history.", "recent.")
"""Prefixes of the moments that recomputing keeps."""
"""Of an entry of a stored basis."""


class RecomputeWarning(UserWarning):
    """The decomposition could not be recomputed; the policy keeps the one it has."""


def lift_of(split: Split, component: Array, precision: Array | None) -> Array:
    """The columns [β | U_res | W] of `kernels`: WWᵀ = U_inv·precision⁻¹·U_invᵀ, W (p, p_inv) lower trapezoidal."""
    columns = [component[:, None], split.residual]
    if precision is not None and split.invariant_dim:
        root = np.linalg.cholesky(precision)
        spread = np.linalg.solve(root, split.invariant.T)
        columns.append(np.linalg.qr(spread)[1].T)
    return np.ascontiguousarray(np.hstack(columns))


class InvariantPolicy(LinearPolicy):
    """A linear policy with an invariant part. ISDLinUCB and ISDLinTS say how it explores.

    Parameters
    ----------
    split : Split
        Invariant and residual part.
    component : array, shape (p,)
        β̂_inv.
    component_precision : array, shape (p_inv, p_inv) or (p, p), optional
        Inverse covariance of its coordinates along split.invariant, or of all p, which is restricted to them. None if
        the component is known exactly (Theorem 1).
    **rest :
        As in LinearPolicy, but for dim, lift and residual_dim.
    """

    _fixed_split: Split | None
    _estimates_noise: bool

    def __init__(self, split: Split, component: Any, *, component_precision: Any = None, **rest: Any) -> None:
        if not isinstance(split, Split):
            raise InputError(f"split must be a Split, got {type(split).__name__}")
        self.split = split
        self.component = finite_array("component", component, (split.dim,)).copy()
        self.component_precision = _checked_precision(component_precision, split)
        self.recompute_every: int | None = None
        lift = lift_of(split, self.component, self.component_precision)
        super().__init__(split.dim, lift=lift, residual_dim=split.residual_dim, **rest)

    # -- from logs --

    @classmethod
    def from_history(
        cls,
        moments: WindowedMoments,
        *,
        split: Split | None = None,
        recompute_every: int | None = None,
        noise_scale: float | None = None,
        **rest: Any,
    ) -> Self:
        """Algorithm 1: split and component estimated from the logs' moments.

        Parameters
        ----------
        moments : WindowedMoments
            Of the logs.
        split : Split, optional
            The true one if it is known (the oracle of Theorem 2). Then only the component is estimated.
        recompute_every : int, optional
            So many online rounds at a time join the history as a new window, and the decomposition is estimated again.
            Give `update` the offered features then: without them the round counts as if the chosen action had been the
            only one, and the policy's own selection biases the covariances.
        noise_scale : float, optional
            Standard deviation σ of a reward, estimated if not given.
        **rest :
            As in the constructor.
        """
        if not isinstance(moments, WindowedMoments):
            raise InputError(f"moments must be WindowedMoments, got {type(moments).__name__}")
        fit = InvariantSubspaceDecomposition(split=split).fit(moments)
        return cls._from_fitted(fit, moments, split, recompute_every, noise_scale, **rest)

    @classmethod
    def from_past(cls, past: Past, *, split: str = "estimated", window: int | None = None, **options: Any) -> Self:
        """Algorithm 1, by what it knows of the truth.

        Parameters
        ----------
        past : Past
            What is known before the first round.
        split : "estimated", "oracle", "known" or "published"
            "estimated": split and component from the logs. "oracle": the true split, the component estimated. "known":
            both true. "published": both from the logged rows by the recipe of the ISD framework.
        window : int, optional
            Rounds that the residual part remembers.
        **options :
            As in `from_history`.
        """
        one_of("split", split, SPLITS)
        given = {"feature_bound": past.feature_bound, "confidence": past.confidence, **options}
        noise_scale = given.pop("noise_scale", past.known_noise_scale)
        if window is not None:
            given["memory"] = SlidingWindow(window)
        if split == "known":
            known = past.oracle()
            scale = past.noise_scale if noise_scale is None else noise_scale
            return cls(known.split, known.component, noise_scale=scale, **given)
        if split == "published":
            if past.logs is None:
                raise InputError("split='published' needs the logged rounds row by row")
            published = InvariantSubspaceDecomposition(recipe="published")
            return cls.from_fit(published.fit(past.logs.features, past.logs.rewards), noise_scale=noise_scale, **given)
        if split == "oracle":
            return cls.from_history(past.moments, split=past.oracle().split, noise_scale=noise_scale, **given)
        every = given.pop("recompute_every", None)
        return cls._from_fitted(past.decomposition, past.moments, None, every, noise_scale, **given)

    @classmethod
    def _from_fitted(
        cls,
        fit: InvariantSubspaceDecomposition,
        moments: WindowedMoments,
        split: Split | None,
        recompute_every: int | None,
        noise_scale: float | None,
        **rest: Any,
    ) -> Self:
        """The policy of a decomposition of the moments, ready to recompute it if that is asked for."""
        policy = cls.from_fit(fit, noise_scale=noise_scale, **cls._history_facts(fit, moments), **rest)
        if recompute_every is not None:
            least = moments.dim + 2
            policy.recompute_every = whole_number("recompute_every", recompute_every, least)
            policy._fixed_split = split
            policy._estimates_noise = noise_scale is None
            history = deepcopy(moments)
            policy._follow(WindowedMoments(history.chosen, history.offered))
        return policy

    @classmethod
    def from_fit(cls, fit: InvariantSubspaceDecomposition, *, noise_scale: float | None = None, **rest: Any) -> Self:
        """The policy of a fitted decomposition, whatever its recipe. Without a `noise_scale` it takes the fit's."""
        return cls(
            fit.split_,
            fit.component_,
            component_precision=_precision_of(fit),
            noise_scale=fit.noise_scale_ if noise_scale is None else noise_scale,
            **rest,
        )

    @classmethod
    def _history_facts(cls, fit: InvariantSubspaceDecomposition, moments: WindowedMoments) -> dict[str, Any]:
        """What else the constructor should know of the logs."""
        return {}

    def _follow(self, history: WindowedMoments) -> None:
        """Keep what recomputing needs: the history, the rounds since, and the memory in all p coordinates."""
        self._history = history
        self._recent = WindowedMoments.empty(self.dim, 1, offered=history.offered is not None)
        self._record = self.memory.begin(self.dim, self.ridge)

    def update(self, features: Any, reward: float, *, offered: Any = None, action: int | None = None) -> None:
        """Learn the reward of the chosen action with features (p,); `offered` (K, p) is used when recomputing."""
        if self.recompute_every is None:
            super().update(features, reward)
            return
        row, value = chosen_array(features, self.dim), reward_number(reward)
        choice = row[None] if offered is None else offered_array(offered, self.dim)
        if max(abs(value), np.abs(row).max(), np.abs(choice).max()) >= LARGEST_RECORDED:
            raise InputError(
                f"features, reward and offered must stay below {LARGEST_RECORDED:g} when recomputing,"
                " so that their squares and fourth powers can be summed"
            )
        with self._lock, self._one_change():
            super().update(row, value)
            self._record.learn(row, value, np.zeros((self.dim, 0)))
            offered = None if self._history.offered is None else choice[None]
            self._recent.update(row[None], [value], window=0, offered=offered)
            if self._recent.rounds % self.recompute_every == 0:
                self._recompute()

    def _recompute(self) -> None:
        """Algorithm 1's recompute: the rounds since the last one become a window of the history."""
        grown = self._history.followed_by(self._recent)
        if grown.windows > MOST_WINDOWS:
            grown = grown.coarsen(MOST_WINDOWS // 2)
        try:
            fit = InvariantSubspaceDecomposition(split=self._fixed_split).fit(grown)
        except InputError as error:
            warnings.warn(f"the decomposition was not recomputed: {error}", RecomputeWarning, stacklevel=3)
            return
        self._history = grown
        self._recent = WindowedMoments.empty(self.dim, 1, offered=grown.offered is not None)
        if self._estimates_noise:
            self.noise_scale = fit.noise_scale_
        self.split, self.component = fit.split_, fit.component_
        self.component_precision = _precision_of(fit)
        for name, value in self._history_facts(fit, grown).items():
            setattr(self, name, value)
        self._take_up_invariant_part()

    def _take_up_invariant_part(self) -> None:
        """Express the memory in the residual coordinates of the present split."""
        self._changing = True
        self._lift = lift_of(self.split, self.component, self.component_precision)
        self._memory = self.memory.begin(self.split.residual_dim, self.ridge)
        self._memory.recall(self._record, self.split.residual, self.component)
        self._factor = self._memory.factor
        self._refresh(self._memory.log_volume())

    # -- storing --

    def settings(self) -> dict[str, Any]:
        """What the constructor was given, but for the arrays, and how it recomputes."""
        given = super().settings()
        del given["dim"]
        if self.recompute_every is not None:
            given["recompute"] = {
                "every": self.recompute_every,
                "estimates_noise": self._estimates_noise,
                "offered": self._history.offered is not None,
            }
        return given

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """The invariant part, the memory, and what recomputing needs."""
        with self._lock:
            arrays = {
                "split.invariant": self.split.invariant,
                "split.residual": self.split.residual,
                "component": self.component,
            }
            if self.component_precision is not None:
                arrays["component_precision"] = self.component_precision
            if self.recompute_every is not None:
                arrays |= self._recomputing_arrays()
            return super().arrays() | {name: array.copy() for name, array in arrays.items()}

    def _recomputing_arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        arrays = {f"record.{name}": array for name, array in self._record.arrays().items()}
        arrays["record.rounds"] = np.array([self._record.rounds], dtype=np.int64)
        if self._fixed_split is not None:
            arrays["fixed_split.invariant"] = self._fixed_split.invariant
            arrays["fixed_split.residual"] = self._fixed_split.residual
        for part, moments in (("history", self._history), ("recent", self._recent)):
            arrays |= {f"{part}.chosen.{name}": a for name, a in moments.chosen.arrays().items()}
            if moments.offered is not None:
                arrays |= {f"{part}.offered.{name}": a for name, a in moments.offered.arrays().items()}
        return arrays

    @classmethod
    def state_schema(cls, settings: Mapping[str, Any], names: Collection[str]) -> StateSchema:
        """The arrays of LinearPolicy, the invariant part, and what recomputing needs where it is asked for."""
        linear = super().state_schema(settings, names)
        arrays = {
            "split.invariant": ArraySpec(("p", "i"), least=-LONGEST, most=LONGEST),
            "split.residual": ArraySpec(("p", "q"), least=-LONGEST, most=LONGEST),
            "component": ArraySpec(("p",), least=-LARGEST_COEFFICIENT, most=LARGEST_COEFFICIENT),
            **linear.arrays,
        }
        if "component_precision" in names:
            arrays["component_precision"] = ArraySpec(("i", "i"))
        parts = {}
        if settings.get("recompute") is not None:
            _checked_recompute(settings["recompute"])
            parts = {part: schema_of(WindowedMoments, list(under(dict.fromkeys(names), part))) for part in MOMENTS}
            memory = memory_from_settings(settings["memory"])
            arrays |= {**prefixed("record.", memory.array_specs("p")), "record.rounds": counters(1)}
            if "fixed_split.invariant" in names:
                arrays |= {
                    "fixed_split.invariant": ArraySpec(("p", "j"), least=-LONGEST, most=LONGEST),
                    "fixed_split.residual": ArraySpec(("p", "k"), least=-LONGEST, most=LONGEST),
                }
        return StateSchema(arrays, linear.settings, linear.sizes, parts)

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], arrays: Mapping[str, np.ndarray[Any, Any]]) -> Self:
        """The policy that had these settings and arrays."""
        given = dict(settings)
        given["memory"] = memory_from_settings(given["memory"])
        recompute = given.pop("recompute", None)
        split = Split(**under(arrays, "split."))
        policy = cls(split, arrays["component"], component_precision=arrays.get("component_precision"), **given)
        if recompute is not None:
            policy.recompute_every = whole_number("recompute.every", recompute["every"], split.dim + 2)
            policy._estimates_noise = recompute["estimates_noise"]
            fixed = under(arrays, "fixed_split.")
            policy._fixed_split = Split(**fixed) if fixed else None
            policy._follow(_moments(arrays, "history", recompute["offered"]))
            policy._recent = _moments(arrays, "recent", recompute["offered"])
            record = under(arrays, "record.")
            policy._record.restore(record, int(record["rounds"][0]))
        policy._restore(arrays)
        return policy

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.split!r}, memory={self.memory}, rounds={self.rounds})"


def _checked_recompute(given: Any) -> bool:
    """Whether the moments of stored settings "recompute" are of offered actions, too."""
    if not isinstance(given, Mapping) or given.keys() != {"every", "estimates_noise", "offered"}:
        raise InputError(f"recompute must say every, estimates_noise and offered, got {given!r:.80}")
    for name in ("estimates_noise", "offered"):
        if not isinstance(given[name], bool):
            raise InputError(f"recompute.{name} must be true or false, got {given[name]!r:.80}")
    return bool(given["offered"])


def _checked_precision(precision: Any, split: Split) -> Array | None:
    if precision is None:
        return None
    if split.invariant_dim == 0:
        return np.zeros((0, 0))
    if np.shape(precision) == (split.dim, split.dim) and split.residual_dim > 0:
        whole = finite_array("component_precision", precision, (split.dim, split.dim))
        precision = split.invariant.T @ whole @ split.invariant
    array = finite_array("component_precision", precision, (split.invariant_dim, split.invariant_dim)).copy()
    if np.abs(array - array.T).max() > 1e-8 * np.abs(array).max():
        raise InputError("component_precision must be symmetric")
    if np.linalg.eigvalsh(array)[0] <= 0.0:
        raise InputError("component_precision must be positive definite")
    return array


def _precision_of(fit: InvariantSubspaceDecomposition) -> Array:
    """Inverse covariance of the component's coordinates along the invariant part (p_inv, p_inv)."""
    basis = fit.split_.invariant
    if basis.shape[1] == 0:
        return np.zeros((0, 0))
    inverse = np.linalg.inv(basis.T @ fit.component_covariance_ @ basis)
    return np.asarray(0.5 * (inverse + inverse.T))


def _moments(arrays: Mapping[str, Array], part: str, offered: bool) -> WindowedMoments:
    chosen = PowerSums(**under(arrays, f"{part}.chosen."))
    return WindowedMoments(chosen, PowerSums(**under(arrays, f"{part}.offered.")) if offered else None)


RADII = ("self-normalised", "theorem")


@policy("isd-linucb", label="ISD-linUCB")
class ISDLinUCB(InvariantPolicy):
    """ISD-linUCB, the paper's Algorithm 1, over any memory.

    Parameters
    ----------
    split : Split
        Invariant and residual part.
    component : array, shape (p,)
        β̂_inv.
    component_precision : array, shape (p_inv, p_inv) or (p, p), optional
        Inverse covariance of its coordinates along split.invariant, or of all p, which is restricted to them. None if
        the component is known exactly (Theorem 1).
    radius : "self-normalised" or "theorem"
        "self-normalised" takes the residual radius published with the memory and Chernoff's bound for the component.
        "theorem" takes Lemmas 2 and 3 literally (sound, far too wide to be useful). It needs feature_bound and, unless
        the component is exact, the next three.
    logged_rounds : int, optional
        T0.
    min_eigenvalue : float, optional
        λ0 of the logs' Gram matrix per round.
    subspace_error : float
        ΔΠ = ‖Π̂ − Π‖, 0 if the split is known.
    **rest :
        As in LinearPolicy, but for dim, lift and residual_dim.

    >>> import numpy as np, invariant_bandits as ib
    >>> split = ib.Split(np.eye(3)[:, :2], np.eye(3)[:, 2:])
    >>> ib.ISDLinUCB(split, [1.0, 0.5, 0.0])
    ISDLinUCB(Split(invariant_dim=2, residual_dim=1), memory=Forever(), rounds=0)
    """

    def __init__(
        self,
        split: Split,
        component: Any,
        *,
        component_precision: Any = None,
        radius: str = "self-normalised",
        logged_rounds: int | None = None,
        min_eigenvalue: float | None = None,
        subspace_error: float = 0.0,
        **rest: Any,
    ) -> None:
        self.radius = one_of("radius", radius, RADII)
        self.logged_rounds = None if logged_rounds is None else whole_number("logged_rounds", logged_rounds, 1)
        self.min_eigenvalue = None if min_eigenvalue is None else positive("min_eigenvalue", min_eigenvalue)
        self.subspace_error = not_negative("subspace_error", subspace_error)
        if radius == "theorem" and component_precision is not None:
            for name, value in (("logged_rounds", logged_rounds), ("min_eigenvalue", min_eigenvalue)):
                if value is None:
                    raise InputError(f"{name} is missing: radius='theorem' with an estimated component needs it")
        super().__init__(split, component, component_precision=component_precision, **rest)

    @classmethod
    def _history_facts(cls, fit: InvariantSubspaceDecomposition, moments: WindowedMoments) -> dict[str, Any]:
        return {"logged_rounds": moments.rounds, "min_eigenvalue": fit.min_eigenvalue_}

    def _gram_radius(self) -> float:
        """Lemma 2's bound on ‖β̂ − β‖ in the logs' Gram matrix; 0 for an exact component."""
        if self.component_precision is None or self.logged_rounds is None or self.min_eigenvalue is None:
            return 0.0
        return bounds.lemma2_invariant_radius(
            self.split.invariant_dim,
            self.min_eigenvalue,
            self.logged_rounds,
            self.subspace_error,
            self.confidence,
            self.noise_scale,
            self.norm_bound,
            self.feature_bound,
        )

    def _component_radius(self) -> float:
        """Radius in the norm of the inverse covariance of β̂, which is the Gram matrix over σ²."""
        if self.component_precision is None:
            return 0.0
        if self.radius == "theorem":
            return self._gram_radius() / self.noise_scale
        return bounds.self_normalised_invariant_radius(self.split.invariant_dim, self.confidence)

    def _residual_radius(self, volume: float) -> float:
        if self.radius == "self-normalised":
            return super()._residual_radius(volume)
        error = 0.0
        if self.component_precision is not None and self.logged_rounds and self.min_eigenvalue:
            error = bounds.component_error(
                self._gram_radius(), self.min_eigenvalue, self.logged_rounds, self.subspace_error, self.norm_bound
            )
        return bounds.lemma3_residual_radius(
            self._memory.rounds,
            self.split.residual_dim,
            error,
            self.subspace_error,
            self.confidence,
            self.noise_scale,
            self.ridge,
            self.norm_bound,
            self.feature_bound,
        )

    def settings(self) -> dict[str, Any]:
        """What the constructor was given, but for the arrays."""
        names = ("radius", "logged_rounds", "min_eigenvalue", "subspace_error")
        return super().settings() | {name: getattr(self, name) for name in names}


@policy("isd-lints", label="ISD-linTS")
class ISDLinTS(InvariantPolicy, ThompsonPolicy):
    """Thompson sampling with an invariant part, over any memory.

    Parameters
    ----------
    split : Split
        Invariant and residual part.
    component : array, shape (p,)
        β̂_inv.
    component_precision : array, shape (p_inv, p_inv) or (p, p), optional
        As in ISDLinUCB.
    seed : int or numpy.random.Generator
        Draws the coefficients.
    **rest :
        As in LinearPolicy, but for dim, lift and residual_dim.

    >>> import numpy as np, invariant_bandits as ib
    >>> split = ib.Split(np.eye(3)[:, :2], np.eye(3)[:, 2:])
    >>> ib.ISDLinTS(split, [1.0, 0.5, 0.0], seed=0)
    ISDLinTS(Split(invariant_dim=2, residual_dim=1), memory=Forever(), rounds=0)
    """

    def _component_radius(self) -> float:
        if self.component_precision is None:
            return 0.0
        return bounds.thompson_scale(self._memory.rounds, self.split.invariant_dim, self.confidence, 1.0)
