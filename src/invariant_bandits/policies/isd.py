"""ISD-linUCB, the paper's Algorithm 1, and ISD-linTS: linear policies that keep what lasts from the logs."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from math import sqrt
from typing import Any, ClassVar, Self

import numpy as np

from invariant_bandits import storage
from invariant_bandits.checks import (
    Array,
    InputError,
    finite_array,
    one_of,
    whole_number,
)
from invariant_bandits.decomposition.estimator import InvariantSubspaceDecomposition
from invariant_bandits.decomposition.split import Split
from invariant_bandits.moments.windowed import WindowedMoments
from invariant_bandits.policies import base
from invariant_bandits.policies import radii as bounds
from invariant_bandits.policies.base import SEED, Option
from invariant_bandits.policies.linear import LinearPolicy
from invariant_bandits.policies.memory import (
    FOREVER,
    Forever,
    Memory,
    MemoryState,
    Restart,
    SlidingWindow,
)
from invariant_bandits.policies.past import Past
from invariant_bandits.policies.registry import register_policy
from invariant_bandits.storage import ANYTHING, StateSchema, prefixed, under

RECORD, RECOMPUTE = "record.", "recompute."
SELF_NORMALISED, JOINT, THEOREM = RADII = "self-normalised", "joint", "theorem"
JOINT_MEMORIES = Forever, Restart
"""Memories that only add rounds, as the radius "joint" needs."""
PART_OPTIONS = ("radius", "logged_rounds", "min_eigenvalue", "subspace_error")
ESTIMATED, PUBLISHED = "estimated", "published"
MOST_WINDOWS = 64
"""Windows of a growing history, beyond which they are joined in pairs: a fit takes time for each of them."""
LARGEST_RECORDED = 1e60
"""Recorded numbers stay below it: moments of fourth order of them are finite."""


class RecomputeWarning(UserWarning):
    """Warning that a policy such as ISDLinUCB could not update its estimate of which coefficients drift.

    After a RecomputeWarning the policy continues with its previous estimate.

    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", RecomputeWarning)  # stop instead of going on with the old one
    """


@dataclass(eq=False)
class InvariantPart:
    """What lasts of the coefficients: the split, its component, and how far the component may be wrong.

    With the radius "joint" all p coordinates are learned online. The drifting ones start with the precision
    λ, the stable ones with the precision G₀ = σ²·precision of the component. In the coordinates z of `lift`
    both precisions are λ, so that the memory is one of p coordinates with the ridge λ.

    Parameters
    ----------
    split, component, radius, logged_rounds, min_eigenvalue, subspace_error :
        As in ISDLinUCB.
    precision :
        As component_precision there.

    Attributes
    ----------
    lift : array, shape (p, 1 + q + r)
        The matrix of `kernels`.
    learned_dim : int
        Number q of coordinates that are learned online.
    stable : int
        How many of them, the last ones, have a prior from the logs: p_inv with the radius "joint", else 0.
    """

    split: Split
    component: Any
    precision: Any = None
    radius: str = SELF_NORMALISED
    logged_rounds: int | None = None
    min_eigenvalue: float | None = None
    subspace_error: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.split, Split):
            raise InputError(f"split must be a Split, got {type(self.split).__name__}")
        self.component = finite_array(
            "component", self.component, (self.split.dim,)
        ).copy()
        self.precision = _checked_precision(self.precision, self.split)
        one_of("radius", self.radius, RADII)
        base.not_negative("subspace_error", self.subspace_error)
        estimated = self.radius == THEOREM and self.precision is not None
        if self.logged_rounds is not None or estimated:
            whole_number("logged_rounds", self.logged_rounds, 1)
        if self.min_eigenvalue is not None or estimated:
            base.positive("min_eigenvalue", self.min_eigenvalue)  # type: ignore[arg-type]
        self.invariant_dim = self.split.invariant_dim
        self.residual_dim = self.split.residual_dim
        estimated_dim = 0 if self.precision is None else self.invariant_dim
        self.stable = estimated_dim if self.radius == JOINT else 0
        self.learned_dim = self.residual_dim + self.stable
        self._trace = float(np.trace(self.precision)) if self.stable else 0.0
        self.scale(noise_scale=1.0, ridge=1.0)

    def scale(self, noise_scale: float, ridge: float) -> None:
        """Set the lift for a noise scale σ and a ridge λ; only the radius "joint" depends on them.

        Without "joint" its columns are [β | U_res | W] with WWᵀ = U_inv·precision⁻¹·U_invᵀ, W (p, p_inv)
        lower trapezoidal. With "joint" they are [β | U_res | √λ·U_inv·K⁻ᵀ] with KKᵀ = G₀: then the stable
        coordinates of γ are Kᵀγ_inv/√λ, and λ times their square is γ_invᵀG₀γ_inv.
        """
        columns = [self.component[:, None], self.split.residual]
        if self.precision is not None and self.invariant_dim:
            root = np.linalg.cholesky(self.precision)
            spread = np.linalg.solve(root, self.split.invariant.T)
            if self.stable:
                columns.append(np.sqrt(ridge) / noise_scale * spread.T)
            else:
                columns.append(np.linalg.qr(spread)[1].T)
        self.lift = np.ascontiguousarray(np.hstack(columns))

    def radii(
        self, memory: MemoryState, volume: float, assumed: bounds.Assumptions
    ) -> tuple[float, float]:
        """Return the radii of the residual part and of β̂.

        The norm of β̂ is that of its inverse covariance, the Gram matrix over σ².
        """
        if self.radius == THEOREM:
            return self._theorem_radii(memory.rounds, assumed)
        estimated_dim = 0 if self.precision is None else self.invariant_dim
        invariant = bounds.self_normalised_invariant_radius(
            estimated_dim, assumed.delta
        )
        if self.stable:
            invariant = self._prior_radius(invariant, assumed)
        return memory.radius(volume, assumed), invariant

    def _prior_radius(self, invariant: float, assumed: bounds.Assumptions) -> float:
        """Radius of the prior's error in the norm of `kernels`, ‖y‖ = ‖U_invᵀA⁻¹φ‖_{G₀}/√λ."""
        trace = assumed.noise_scale**2 * self._trace
        error = bounds.tilted_prior_error(
            trace, self.subspace_error, assumed.norm_bound
        )
        return sqrt(assumed.ridge) * (assumed.noise_scale * invariant + error)

    def _theorem_radii(
        self, rounds: int, assumed: bounds.Assumptions
    ) -> tuple[float, float]:
        """Lemma 3's radius of the residual part, and Lemma 2's of β̂, which is 0 for an exact component.

        The sets contain Π̂β and Π̂δ, not β and δ: for ΔΠ > 0 an expected reward may lie L·M·ΔΠ outside.
        """
        gram = 0.0
        error = 0.0
        tilt = self.subspace_error
        if self.precision is not None and self.logged_rounds and self.min_eigenvalue:
            logs = bounds.Logs(
                self.invariant_dim, self.min_eigenvalue, self.logged_rounds, tilt
            )
            gram = bounds.lemma2_invariant_radius(logs, assumed)
            error = bounds.component_error(gram, logs, assumed.norm_bound)
        residual = bounds.lemma3_residual_radius(
            rounds, self.residual_dim, error, tilt, assumed
        )
        return residual, gram / assumed.noise_scale

    def thompson_scale(self, rounds: int, delta: float) -> float:
        """Scale of the draws of the component, in standard deviations; 0 for an exact one."""
        if self.precision is None:
            return 0.0
        return bounds.thompson_scale(rounds, self.invariant_dim, delta, 1.0)


@dataclass(eq=False)
class Recomputation:
    """Algorithm 1's recompute: every so many rounds become a window of the history, which is decomposed anew.

    Parameters
    ----------
    record : MemoryState
        The memory in all p coordinates, to be expressed in those of each new split.
    history : WindowedMoments
        Of the logs, and of the windows since.
    recent : WindowedMoments
        Of the rounds of the present window.
    every : int
        Number of these rounds.
    estimates_noise, keeps_split, intercept : bool
        Whether the noise scale is estimated, whether the split is known and stays, and whether windows have
        intercepts, as in InvariantSubspaceDecomposition.
    """

    record: MemoryState = field(metadata={"stored": False})
    history: WindowedMoments
    recent: WindowedMoments
    every: int
    estimates_noise: bool
    keeps_split: bool
    intercept: bool = True

    def __post_init__(self) -> None:
        whole_number("recompute_every", self.every, self.record.dim + 2)

    def learn(
        self, row: Array, reward: float, choice: Array, split: Split
    ) -> InvariantSubspaceDecomposition | None:
        """Record a round with chosen features (p,) and offered ones (K, p), and return a fit that is due.

        Nothing is returned between two fits, or if the decomposition fails.
        """
        self.record.learn(row, reward, np.zeros((self.record.dim, 0)))
        offered = None if self.history.offered is None else choice[None]
        self.recent.update(row[None], [reward], window=0, offered=offered)
        if self.recent.rounds % self.every:
            return None
        grown = self.history.followed_by(self.recent)
        if grown.windows > MOST_WINDOWS:
            grown = grown.coarsen(MOST_WINDOWS // 2)
        try:
            known = split if self.keeps_split else None
            fit = InvariantSubspaceDecomposition(
                split=known, intercept=self.intercept
            ).fit(grown)
        except InputError as error:
            warnings.warn(
                f"the decomposition was not recomputed: {error}",
                RecomputeWarning,
                stacklevel=3,
            )
            return None
        self.history, self.recent = grown, _empty_window(grown)
        return fit


class ISDPolicy(LinearPolicy):
    """Base class of ISDLinUCB and ISDLinTS, which take the stable coefficients from the logs.

    An ISD policy learns only the residual coefficients (those that drift) online.

    Attributes
    ----------
    split : Split
        Directions with stable coefficients (invariant part) and with drifting coefficients (residual part).
    component : array, shape (p,)
        Estimate β̂_inv of the stable coefficients.
    component_precision : array, shape (p_inv, p_inv), or None
        Inverse covariance of the stable coefficients `component`, or None if they are exact.
    """

    needs: ClassVar[tuple[str, ...]] = ("feature_bound", "delta")
    starting: ClassVar[tuple[str, ...]] = (
        "split",
        "component",
        "component_precision",
        "window",
        "every",
        "recompute_every",
        "intercept",
        "memory",
    )

    part_options: ClassVar[tuple[str, ...]] = ()
    """Options of the invariant part that the constructor takes and that are stored."""

    def __init__(
        self,
        split: Split,
        component: Any,
        *,
        component_precision: Any = None,
        **options: Any,
    ) -> None:
        self._recomputation: Recomputation | None = None
        given = options.keys() & set(self.part_options)
        part = {name: options.pop(name) for name in given}
        if "radius" in self.part_options and "radius" not in given:
            adds_only = isinstance(options.get("memory", FOREVER), JOINT_MEMORIES)
            part["radius"] = JOINT if adds_only else SELF_NORMALISED
        self._take(InvariantPart(split, component, component_precision, **part))
        super().__init__(split.dim, invariant=self.part, **options)

    def _take(self, part: InvariantPart) -> None:
        """Show what lasts."""
        self._invariant = self.part = part
        self.split = part.split
        self.component = part.component
        self.component_precision = part.precision

    def _begin(self) -> None:
        """An empty memory in the coordinates of the invariant part, which the radius "joint" scales."""
        if self.part.radius == JOINT and not isinstance(self.memory, JOINT_MEMORIES):
            raise InputError(
                f'radius="joint" needs memory Forever or Restart, which add rounds only, got {self.memory}'
            )
        self.part.scale(self.noise_scale, self.ridge)
        super()._begin()

    # -- from logs --

    @classmethod
    def from_history(
        cls,
        moments: WindowedMoments,
        *,
        split: Split | None = None,
        recompute_every: int | None = None,
        intercept: bool = True,
        **rest: Any,
    ) -> Self:
        """Estimate the stable coefficients from logs and return a policy that uses them.

        Parameters
        ----------
        moments : WindowedMoments
            Means and covariances of the logged features and rewards in each window (period of the log).
        split : Split, optional
            The true directions with stable and with drifting coefficients, if they are known (Theorem 2 of
            the paper).
        recompute_every : int, optional
            Number n: after every n online rounds, these rounds join the logs as a new window (period) and the
            stable directions are estimated again. With `recompute_every`, pass all offered features to
            `update`, because covariances of the policy's own choices are biased.
        intercept : bool
            Whether every window (period of the log) has an intercept. Use `intercept=False` if the actions
            are labelled arms (actions with an identity, such as adverts).
        **rest :
            Parameters of the constructor. By default the noise scale is estimated from the logs. An estimated
            split counts as exact in the confidence widths unless you pass its error as `subspace_error`.
        """
        if not isinstance(moments, WindowedMoments):
            raise InputError(
                f"moments must be WindowedMoments, got {type(moments).__name__}"
            )
        fit = InvariantSubspaceDecomposition(split=split, intercept=intercept).fit(
            moments
        )
        return cls._from_fitted(
            fit, moments, split is not None, recompute_every, **rest
        )

    @classmethod
    def from_past(
        cls,
        past: Past,
        *,
        split: str | Split = ESTIMATED,
        component: Any = None,
        window: int | str | None = None,
        every: int | None = None,
        **options: Any,
    ) -> Self:
        """Algorithm 1, with what is known of the split and of the component.

        Parameters
        ----------
        past : Past
            What is known before the first round.
        split : "estimated", "published" or Split
            "estimated": from the logs. "published": from the logged rows by the recipe of the ISD framework.
            A Split: the true one. In simulations, "oracle" stands for the true split and "known" for the true
            split and component.
        component : array, shape (p,), optional
            The true stable coefficients, if the true split is given; by default they are estimated.
        window : int or "horizon", optional
            Rounds that the residual part remembers; by default it forgets nothing. A window that is as long
            as the run causes a warning, unless it is "horizon".
        every : int, optional
            Rounds after which the residual part forgets everything and starts again.
        **options :
            As in `from_history`.
        """
        settings = {**cls.known_from(past), **options}
        settings.setdefault("noise_scale", past.known_noise_scale)
        if window is not None:
            settings["memory"] = SlidingWindow(
                past.memory_length("window", window, share=1.0)
            )
        if every is not None:
            settings["memory"] = Restart(past.memory_length("every", every, share=1.0))
        if isinstance(split, Split):
            if component is None:
                return cls.from_history(past.moments, split=split, **settings)
            if settings["noise_scale"] is None:
                settings["noise_scale"] = past.noise_scale
            return cls(split, component, **settings)
        if split in ("oracle", "known"):
            raise InputError(
                f"split={split!r}: this past has no truth, oracles exist in simulations only"
            )
        one_of("split", split, (ESTIMATED, PUBLISHED))
        if split == ESTIMATED:
            recompute_every = settings.pop("recompute_every", None)
            return cls._from_fitted(
                past.decomposition, past.moments, False, recompute_every, **settings
            )
        if past.logs is None:
            raise InputError("split='published' needs the logged rounds row by row")
        published = InvariantSubspaceDecomposition(recipe=PUBLISHED)
        return cls.from_fit(
            published.fit(past.logs.features, past.logs.rewards), **settings
        )

    @classmethod
    def _from_fitted(
        cls,
        fit: Any,
        moments: WindowedMoments,
        keeps_split: bool,
        recompute_every: int | None,
        **rest: Any,
    ) -> Self:
        """The policy of a decomposition of the moments, ready to recompute it if that is asked for."""
        if "logged_rounds" in cls.part_options:
            rest |= {
                "logged_rounds": moments.rounds,
                "min_eigenvalue": fit.min_eigenvalue_,
            }
            if recompute_every is not None:
                rest.setdefault("radius", SELF_NORMALISED)
        policy = cls.from_fit(fit, **rest)
        estimates_noise = rest.get("noise_scale") is None
        if recompute_every is not None and policy.part.radius == JOINT:
            raise InputError(
                'recompute_every needs another radius than "joint", which learns the stable coefficients'
                " online: the same rounds would count twice"
            )
        if recompute_every is not None:
            record = policy.memory.begin(policy.dim, policy.ridge)
            own = deepcopy(moments)
            windows = WindowedMoments(own.chosen, own.offered), _empty_window(own)
            policy._recomputation = Recomputation(
                record,
                *windows,
                recompute_every,
                estimates_noise,
                keeps_split,
                fit.intercept,
            )
        return policy

    @classmethod
    def from_fit(
        cls, fit: Any, *, noise_scale: float | None = None, **rest: Any
    ) -> Self:
        """Return a policy that uses a fitted InvariantSubspaceDecomposition.

        By default the policy uses the noise scale of the fitted decomposition.
        """
        rest |= {
            "noise_scale": fit.noise_scale_ if noise_scale is None else noise_scale
        }
        precision = _precision_of(fit)
        return cls(fit.split_, fit.component_, component_precision=precision, **rest)

    # -- learning --

    def update(
        self,
        features: Any,
        reward: float,
        *,
        offered: Any = None,
        action: int | None = None,
    ) -> None:
        """Learn the reward of the played action with features (p,).

        If the policy has the option `recompute_every`, pass the features (K, p) of all actions as parameter
        `offered`.
        """
        if self._recomputation is None:
            super().update(features, reward)
            return
        row, value = base.chosen_array(features, self.dim), base.reward_number(reward)
        choice = row[None] if offered is None else base.offered_array(offered, self.dim)
        if max(abs(value), np.abs(row).max(), np.abs(choice).max()) >= LARGEST_RECORDED:
            raise InputError(
                f"squares of features, reward and offered must stay below {LARGEST_RECORDED**2:g}"
            )
        with self._lock:
            super().update(row, value)
            fit = self._recomputation.learn(row, value, choice, self.split)
            if fit is not None:
                self._adopt(fit, self._recomputation)

    def _adopt(
        self, fit: InvariantSubspaceDecomposition, recomputation: Recomputation
    ) -> None:
        """Express the memory in the residual coordinates of a new decomposition."""
        if recomputation.estimates_noise:
            self.noise_scale = fit.noise_scale_
        known, rounds = self.part, recomputation.history.rounds
        estimated = fit.split_, fit.component_, _precision_of(fit)
        logs = rounds, fit.min_eigenvalue_, known.subspace_error
        self._take(InvariantPart(*estimated, known.radius, *logs))
        self._begin()
        self._memory.recall(recomputation.record, self.split.residual, self.component)
        self.refresh_radii(self._memory.log_volume())

    # -- storing --

    def settings(self) -> dict[str, Any]:
        """Return what the constructor was given, but for the arrays, and how the policy recomputes."""
        part = {name: getattr(self.part, name) for name in self.part_options}
        settings = {**super().settings(), **part}
        if self._recomputation is not None:
            settings["recompute"], _ = storage.to_state(self._recomputation)
        return settings

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """The invariant part, the memory, and what recomputing needs."""
        with self._lock:
            arrays = {
                f"split.{side}": getattr(self.split, side)
                for side in ("invariant", "residual")
            }
            arrays["component"] = self.component
            if self.component_precision is not None:
                arrays["component_precision"] = self.component_precision
            if self._recomputation is not None:
                arrays |= prefixed(RECORD, self._recomputation.record.arrays())
                arrays |= prefixed(RECOMPUTE, storage.to_state(self._recomputation)[1])
            return super().arrays() | deepcopy(arrays)

    @classmethod
    def state_schema(
        cls, settings: Mapping[str, Any], names: Collection[str]
    ) -> StateSchema:
        """Return what the arrays must be: those of LinearPolicy, the invariant part, and the record."""
        schema = super().state_schema(settings, names)
        arrays, parts = {**schema.arrays}, {"split.": ANYTHING, "component": ANYTHING}
        if settings.get("recompute") is None:
            return StateSchema(arrays, parts=parts)
        arrays |= prefixed(
            RECORD, Memory.from_settings(settings["memory"]).array_specs("p")
        )
        recomputed = storage.schema_of(
            Recomputation, list(under(dict.fromkeys(names), RECOMPUTE))
        )
        return StateSchema(arrays, parts={**parts, RECOMPUTE: recomputed})

    @classmethod
    def from_state(
        cls, settings: Mapping[str, Any], arrays: Mapping[str, np.ndarray[Any, Any]]
    ) -> Self:
        """The policy that had these settings and arrays."""
        known = {
            "component": arrays["component"],
            "component_precision": arrays.get("component_precision"),
        }
        options = {**settings, **known, "split": Split(**under(arrays, "split."))}
        recompute = options.pop("recompute", None)
        policy = super().from_state(options, arrays)
        if recompute is not None:
            record = policy.memory.begin(policy.dim, policy.ridge)
            record.restore(under(arrays, RECORD), policy._memory.rounds)
            stored = under(arrays, RECOMPUTE)
            policy._recomputation = storage.from_state(
                Recomputation, recompute, stored, record=record
            )
        return policy

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.split!r}, memory={self.memory}, rounds={self.rounds})"


def _checked_precision(precision: Any, split: Split) -> Array | None:
    if precision is None or split.invariant_dim == 0:
        return None if precision is None else np.zeros((0, 0))
    if np.shape(precision) == (split.dim, split.dim) and split.residual_dim > 0:
        whole = finite_array("component_precision", precision, (split.dim, split.dim))
        precision = split.invariant.T @ whole @ split.invariant
    array = finite_array(
        "component_precision", precision, (split.invariant_dim, split.invariant_dim)
    ).copy()
    symmetric = np.abs(array - array.T).max() <= 1e-8 * np.abs(array).max()
    if not symmetric or np.linalg.eigvalsh(array)[0] <= 0.0:
        raise InputError("component_precision must be symmetric and positive definite")
    return array


def _precision_of(fit: InvariantSubspaceDecomposition) -> Array:
    """Inverse covariance of the component's coordinates along the invariant part (p_inv, p_inv)."""
    basis = fit.split_.invariant
    inverse = np.linalg.inv(basis.T @ fit.component_covariance_ @ basis)
    return np.asarray(0.5 * (inverse + inverse.T))


def _empty_window(moments: WindowedMoments) -> WindowedMoments:
    """A window without rounds, of the same kind as those of the moments."""
    return WindowedMoments.empty(moments.dim, 1, offered=moments.offered is not None)


@register_policy("isd-linucb")
class ISDLinUCB(ISDPolicy):
    """LinUCB that learns only drifting coefficients and takes the stable ones from logs.

    It is the paper's Algorithm 1.

    With the memories SlidingWindow and Discount and with `recompute_every` the widths are too narrow if the
    online rounds are many times the logged ones: they leave out the error that the stable coefficients carry
    into the drifting ones.

    Parameters
    ----------
    split : Split
        Directions with stable coefficients (invariant part) and with drifting coefficients (residual part).
    component : array, shape (p,)
        Estimate β̂_inv of the stable coefficients.
    component_precision : array, shape (p_inv, p_inv) or (p, p), optional
        Inverse covariance matrix of the estimated stable coefficients, either along the p_inv stable
        directions or for all p features. By default the stable coefficients count as exact (Theorem 1 of the
        paper).
    radius : "self-normalised", "joint" or "theorem"
        Which confidence widths the policy uses. The default is "joint" where it is possible, that is with the
        memories Forever and Restart and without `recompute_every`, else "self-normalised".

        "self-normalised" adds a width of the stable coefficients, from Chernoff's bound, to the width
        published with the memory (rule for forgetting old rounds). The second takes the stable coefficients
        as exact.

        "joint" learns all coefficients online. The stable ones start at their estimate with the precision
        that the logs give them. With probability 1 − 2·`delta` its widths hold in all rounds, for any
        number of logged and online rounds, if the windows of the logs have constant coefficients. It needs
        the memory Forever or Restart, and no `recompute_every`.

        "theorem" takes Lemmas 2 and 3 of the paper, with corrected constants. It is far too wide in practice.
        It needs `feature_bound` and, unless the stable coefficients are exact, `logged_rounds` and
        `min_eigenvalue`.
    logged_rounds : int, optional
        Number T0 of logged rounds.
    min_eigenvalue : float, optional
        Smallest eigenvalue λ0 of the Gram matrix of the logged features, divided by the number of rounds.
    subspace_error : float
        Distance ΔΠ = ‖Π̂ − Π‖ between the projections on the estimated and the true subspace, 0 if the true
        subspace is known. The default 0 stays if the split is estimated: the widths then leave out the error
        of the split. "joint" widens its set by ΔΠ. The sets of "theorem" contain the projections of the
        coefficients on the estimated subspaces; an expected reward may lie a further L·M·ΔΠ outside. The
        radius "self-normalised" does not use ΔΠ.
    **rest :
        Parameters of LinearPolicy other than dim, invariant and draws.

    >>> import numpy as np, invariant_bandits as ib
    >>> split = ib.Split(np.eye(3)[:, :2], np.eye(3)[:, 2:])
    >>> ib.ISDLinUCB(split, [1.0, 0.5, 0.0])
    ISDLinUCB(Split(invariant_dim=2, residual_dim=1), memory=Forever(), rounds=0)
    """

    part_options = PART_OPTIONS
    starting = (*ISDPolicy.starting, *PART_OPTIONS)


@register_policy("isd-lints")
class ISDLinTS(ISDPolicy):
    """Thompson sampling that learns only drifting coefficients and takes the stable ones from logs.

    The draws leave out the error that the stable coefficients carry into the drifting ones, as the widths
    "self-normalised" of ISDLinUCB do: it shows if the online rounds are many times the logged ones.

    Parameters
    ----------
    split, component, component_precision :
        The parameters of the same names in ISDLinUCB.
    seed : int or numpy.random.Generator
        Seed or generator for the random draws of the coefficients.
    **rest :
        Parameters of LinearPolicy other than dim, invariant and draws.

    >>> import numpy as np, invariant_bandits as ib
    >>> split = ib.Split(np.eye(3)[:, :2], np.eye(3)[:, 2:])
    >>> ib.ISDLinTS(split, [1.0, 0.5, 0.0], seed=0)
    ISDLinTS(Split(invariant_dim=2, residual_dim=1), memory=Forever(), rounds=0)
    """

    options: ClassVar[Mapping[str, Option]] = {**LinearPolicy.options, "seed": SEED}
    samples = randomised = True
