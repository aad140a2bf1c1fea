"""InvariantSubspaceDecomposition: from windowed moments to the split, the component and a report."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from invariant_bandits.checks import (
    Array,
    InputError,
    finite_array,
    number_between,
    one_of,
    probability,
    whole_number,
)
from invariant_bandits.decomposition.blocks import find_blocks, floored
from invariant_bandits.decomposition.invariance import (
    COMPONENTS,
    InvarianceResult,
    component_along,
    constancy_test,
    select_invariant,
)
from invariant_bandits.decomposition.paths import (
    CoefficientPaths,
    check_estimable,
    singular_roots,
    unseen_directions,
    window_freedom,
    window_paths,
)
from invariant_bandits.decomposition.published import published_decomposition
from invariant_bandits.decomposition.split import Split
from invariant_bandits.decomposition.summary import findings, published_findings, summarize
from invariant_bandits.moments.windowed import WindowedMoments

METRICS = ("euclidean", "whitened")
COVARIANCES = ("auto", "offered", "chosen")
RECIPES = ("windowed", "published")


@dataclass(kw_only=True, eq=False, repr=False)
class InvariantSubspaceDecomposition:
    """Learn from logs which directions of the reward model never change.

    Parameters
    ----------
    metric : "euclidean" or "whitened"
        "euclidean" looks for orthogonal subspaces of the features as they are (the paper). "whitened" first
        gives the features unit average covariance, for features whose natural subspaces are not orthogonal,
        and makes the result independent of units.
    covariances : "auto", "offered" or "chosen"
        Whose covariances reveal the basis. Those of all offered actions do not depend on how actions were
        chosen. "auto" takes them when the log has them.
    component : "within-window" or "pooled"
        How β_inv is estimated: precision-weighted over the windows, or the paper's least squares over all
        rounds.
    alpha : float
        Level of the tests that call a block varying, shared over the blocks.
    block_alpha : float
        Level of the tests that link columns into blocks, shared over the pairs.
    invariant_dim : int, optional
        Fixes the dimension of the invariant part.
    blocks : sequence, optional
        Fixes the blocks: groups of feature indices, or (p, d) orthonormal bases, that together fill R^p.
    split : Split, optional
        Fixes the whole split. Then only the component is estimated.
    feature_names : p strings, optional
        For messages, summary and plots.
    recipe : "windowed" or "published"
        "windowed" is what everything above describes. "published" is the authors' own estimation, for
        comparison (see `decomposition.published`): it needs features and rewards in time order, chooses its
        own overlapping windows, takes chosen actions only and the pooled component, and ignores alpha,
        block_alpha and component.

    Attributes
    ----------
    split_ : Split
        Invariant and residual part.
    component_ : array, shape (p,)
        β̂_inv, in rewards per unit of each feature.
    component_covariance_ : array, shape (p, p)
        Its sampling covariance.
    noise_scale_ : float
        Standard deviation of a reward about its expectation.
    basis_ : array, shape (p, p)
        Columns are the directions, invariant ones first.
    blocks_ : list of arrays of int, shape (d,)
        For each block its columns of basis_.
    varies_ : array of bool, shape (blocks,)
        Which blocks belong to the residual part.
    p_values_, log_p_values_ : arrays, shape (blocks,)
        Of constant coefficients, by block. Not with recipe="published", which tests nothing.
    testable_ : array of bool, shape (blocks,)
        Whether at least two windows inform every direction of a block. One that is not counts as varying.
    statistics_ : array, shape (blocks,)
        With recipe="published" only: mean absolute correlation of rest and prediction.
    threshold_ : float
        With recipe="published" only: a block counts as invariant if its statistic lies below.
    coefficients_ : array, shape (m, p)
        Least squares in each window.
    coefficient_covariances_ : array, shape (m, p, p)
        Their sampling covariances.
    paths_ : CoefficientPaths
        Both, and which windows do not inform every direction: there they hold what the other windows expect,
        which is not evidence.
    window_noise_ : array, shape (m,)
        Variance of the noise by window.
    window_covariances_ : array, shape (m, p, p)
        Covariances of the features by window.
    tail_weights_ : array, shape (m,)
        Mean kurtosis of the features over 3, by window. Not with recipe="published".
    min_eigenvalue_ : float
        λ0 of Assumption 2.
    feature_stability_ : array, shape (p,)
        Share of each feature that lies in the invariant part, from 0 to 1.
    converged_ : bool
        Whether the search for the basis came to an end.
    distinct_ : bool
        Whether the windows distinguish the blocks found. If not, other directions would do as well.
    findings_ : list of str
        What to be careful about, in words.
    covariances_used_, recipe_used_ : str
        Where the covariances came from, and which recipe was followed.
    rounds_, windows_, n_features_in_ : int
        How much was fitted.

    >>> import numpy as np, invariant_bandits as ib
    >>> rng = np.random.default_rng(1)
    >>> scales = np.repeat(rng.uniform(0.5, 2.0, size=(8, 3)), 500, axis=0)   # covariances change over time
    >>> features = rng.normal(size=(4000, 3)) * scales
    >>> drifting = np.repeat(rng.normal(size=8), 500)                         # so does one coefficient
    >>> rewards = features @ [1.0, -1.0, 0.0] + drifting * features[:, 2] + rng.normal(size=4000)
    >>> fit = ib.InvariantSubspaceDecomposition().fit(features, rewards, windows=8)
    >>> fit.split_
    Split(invariant_dim=2, residual_dim=1)
    >>> fit.component_.round(1)
    array([ 1., -1.,  0.])
    """

    metric: str = "euclidean"
    covariances: str = "auto"
    component: str = "within-window"
    alpha: float = 0.002
    block_alpha: float = 0.002
    invariant_dim: int | None = None
    blocks: Sequence[Any] | None = None
    split: Split | None = None
    feature_names: Sequence[str] | None = None
    recipe: str = "windowed"

    split_: Split = field(init=False)
    component_: Array = field(init=False)
    component_covariance_: Array = field(init=False)
    noise_scale_: float = field(init=False)
    basis_: Array = field(init=False)
    blocks_: list[np.ndarray[Any, Any]] = field(init=False)
    varies_: np.ndarray[Any, Any] = field(init=False)
    log_p_values_: Array = field(init=False)
    testable_: np.ndarray[Any, Any] = field(init=False)
    statistics_: Array = field(init=False)
    threshold_: float = field(init=False)
    paths_: CoefficientPaths = field(init=False)
    window_noise_: Array = field(init=False)
    window_covariances_: Array = field(init=False)
    tail_weights_: Array = field(init=False)
    min_eigenvalue_: float = field(init=False)
    converged_: bool = field(init=False)
    distinct_: bool = field(init=False)
    findings_: list[str] = field(init=False)
    covariances_used_: str = field(init=False)
    recipe_used_: str = field(init=False)
    rounds_: int = field(init=False)
    windows_: int = field(init=False)
    n_features_in_: int = field(init=False)

    # -- parameters --

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's parameters by name."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: Any) -> Self:
        """Set constructor parameters by name."""
        allowed = list(self.get_params())
        for name in params:
            one_of("parameter", name, allowed)
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self)).parameters
        changed = {
            name: value for name, value in self.get_params().items() if value is not defaults[name].default
        }
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in changed.items())})"

    def names(self, dim: int) -> list[str]:
        """The feature names, or x0, x1, … where none were given."""
        if self.feature_names is None:
            return [f"x{index}" for index in range(dim)]
        return [str(name) for name in self.feature_names]

    def _check_windowed(self, moments: WindowedMoments) -> None:
        """Raise InputError unless the parameters fit each other and the moments."""
        one_of("metric", self.metric, METRICS)
        one_of("covariances", self.covariances, COVARIANCES)
        one_of("component", self.component, COMPONENTS)
        probability("alpha", self.alpha)
        probability("block_alpha", self.block_alpha)
        if self.covariances == "offered" and moments.offered is None:
            raise InputError(
                "covariances='offered' needs the offered actions, but the moments hold chosen ones only"
            )
        p = moments.dim
        if self.invariant_dim is not None and whole_number("invariant_dim", self.invariant_dim, 0) > p:
            raise InputError(
                f"invariant_dim must be at most the number of features, {p}, got {self.invariant_dim}"
            )
        if self.split is not None and (self.blocks is not None or self.invariant_dim is not None):
            raise InputError("split fixes everything: give it without blocks and invariant_dim")
        if self.split is not None and getattr(self.split, "dim", None) != p:
            raise InputError(f"split must be a Split of dim {p}, got {self.split!r}")
        if (self.split is not None or self.blocks is not None) and self.metric != "euclidean":
            raise InputError("metric='whitened' finds its own subspaces: give no split and no blocks with it")
        self._check_names(p)
        if self.blocks is not None:
            block_bases(self.blocks, p)
        check_estimable(moments, self.names(p), use_offered=self.covariances != "chosen")

    def _check_names(self, p: int) -> None:
        if self.feature_names is not None and len(self.feature_names) != p:
            raise InputError(f"feature_names must have {p} entries, got {len(self.feature_names)}")

    def _check_published(self, p: int) -> None:
        """Refuse what contradicts the published recipe; alpha, block_alpha and component play no part in
        it.
        """
        one_of("metric with recipe='published'", self.metric, ("euclidean",))
        one_of("covariances with recipe='published'", self.covariances, ("auto", "chosen"))
        for name in ("invariant_dim", "blocks", "split"):
            if getattr(self, name) is not None:
                raise InputError(
                    f"{name} cannot be fixed with recipe='published', which finds it from the rows"
                )
        self._check_names(p)

    # -- fitting --

    def fit(
        self,
        moments: Any,
        rewards: Any = None,
        *,
        windows: int | None = None,
        offered: Any = None,
        times: Any = None,
        edges: Any = None,
    ) -> Self:
        """Fit from moments, or from arrays as in WindowedMoments.from_arrays; a fit that fails changes
        nothing.

        Parameters
        ----------
        moments : WindowedMoments, or array, shape (n, p)
            Moments, or features of the chosen actions. With recipe="published" features in time order.
        rewards : array, shape (n,)
            Of the chosen actions, with features only.
        windows, offered, times, edges
            As in WindowedMoments.from_arrays, with features and rewards only. Not with recipe="published".
        """
        fitted = type(self)(**self.get_params())
        others = {"windows": windows, "offered": offered, "times": times, "edges": edges}
        if one_of("recipe", self.recipe, RECIPES) == "published":
            fitted._fit_published(moments, rewards, others)
        else:
            fitted._fit_windowed(_moments_of(moments, rewards, others))
        vars(self).clear()
        vars(self).update(vars(fitted))
        return self

    def _fit_windowed(self, moments: WindowedMoments) -> None:
        self._check_windowed(moments)
        p, singular = moments.dim, singular_roots(moments.chosen, moments.dim)
        observed = FeatureCovariances.of(moments, self.covariances, singular)
        whitened = self.metric == "whitened"
        change = _whitening(observed.stack.mean(axis=0)) if whitened else np.eye(p)
        turned = moments.transformed(change) if whitened else moments
        covariances, sizes, unseen = observed.transform(change, moments.counts)
        blocks = self._blocks(covariances, sizes, unseen)
        directions = np.linalg.solve(change, np.hstack(blocks)) if singular else None
        paths, noise = window_paths(moments, directions, singular=singular)
        self.paths_, self.window_noise_ = paths, noise
        if whitened:
            paths = paths.along(np.linalg.inv(change)) if singular else window_paths(turned, singular={})[0]
        result = self._judge(blocks, paths, covariances, sizes)
        invariant, residual = (_side_by_side(result, varies, p) for varies in (False, True))
        mean, covariance = component_along(invariant, turned, paths, self.component)
        self.split_ = _oblique_split(change.T @ residual) if whitened else Split(invariant, residual)
        self.component_ = change.T @ invariant @ mean
        self.component_covariance_ = change.T @ invariant @ covariance @ invariant.T @ change
        self.basis_ = change.T @ np.hstack([invariant, residual])
        self.blocks_ = np.split(np.arange(p), np.cumsum([block.shape[1] for block in result.blocks])[:-1])
        self.varies_ = np.array(result.varies, dtype=bool)
        self.log_p_values_ = np.array([test.log_p for test in result.tests])
        self.testable_ = np.array([test.possible for test in result.tests], dtype=bool)
        freedom = window_freedom(moments, singular)
        self.noise_scale_ = float(np.sqrt(freedom @ noise / freedom.sum()))
        self.window_covariances_, self.tail_weights_ = observed.stack, observed.tails
        self.min_eigenvalue_ = float(np.linalg.eigvalsh(moments.second_moment() / moments.rounds)[0])
        self.covariances_used_, self.recipe_used_, self.rounds_ = observed.used, "windowed", moments.rounds
        self.n_features_in_, self.windows_ = p, moments.windows
        self.findings_ = findings(self, moments)

    def _blocks(self, covariances: Array, sizes: Array, unseen: Array | None) -> list[Array]:
        """Bases (p, d) of the blocks: the given ones, or what the covariances show."""
        self.converged_ = self.distinct_ = True
        if self.split is not None:
            return [np.asarray(part) for part in (self.split.invariant, self.split.residual)]
        if self.blocks is not None:
            return block_bases(self.blocks, covariances.shape[1])
        structure = find_blocks(covariances, sizes, alpha=self.block_alpha, unseen=unseen)
        self.converged_, self.distinct_ = structure.converged, structure.distinct
        return [structure.basis[:, columns] for columns in structure.blocks]

    def _judge(
        self, blocks: list[Array], paths: CoefficientPaths, covariances: Array, sizes: Array
    ) -> InvarianceResult:
        """The blocks with their verdicts; those of a given split are known, and its tests are only
        reported.
        """
        if self.split is not None:
            sides = [varies for varies in (False, True) if blocks[varies].shape[1]]
            parts = [blocks[varies] for varies in sides]
            return InvarianceResult(parts, sides, [constancy_test(paths.along(part)) for part in parts])
        return select_invariant(
            blocks,
            paths,
            covariances,
            sizes,
            alpha=self.alpha,
            invariant_dim=self.invariant_dim,
            refine=self.blocks is None,
        )

    def _fit_published(self, features: Any, rewards: Any, others: dict[str, Any]) -> None:
        if isinstance(features, WindowedMoments) or rewards is None:
            raise InputError(
                "recipe='published' needs rows: fit takes features (n, p) and rewards (n,) in time order,"
                f" got {type(features).__name__} alone"
            )
        if any(value is not None for value in others.values()):
            raise InputError(
                "recipe='published' has its own windows and uses chosen actions only:"
                " give no windows, offered, times and edges"
            )
        features = finite_array("features", features, ("n", "p"))
        p = features.shape[1]
        self._check_published(p)
        result = published_decomposition(features, rewards, names=self.names(p))
        for name, value in vars(result).items():
            setattr(self, f"{name}_", value)
        self.window_covariances_ = result.moments.chosen.covariance()[:, :p, :p]
        self.covariances_used_, self.recipe_used_ = "chosen", "published"
        self.n_features_in_, self.windows_ = p, result.moments.windows
        self.findings_ = published_findings(self, result.moments)

    # -- using --

    @property
    def coefficients_(self) -> Array:
        """Least squares in each window (m, p)."""
        return self.paths_.coefficients

    @property
    def coefficient_covariances_(self) -> Array:
        """Their sampling covariances (m, p, p)."""
        return self.paths_.covariances

    @property
    def p_values_(self) -> Array:
        """p-values of constant coefficients, by block."""
        return np.asarray(np.exp(self.log_p_values_))

    @property
    def feature_stability_(self) -> Array:
        """Share of each original feature that lies in the invariant part (p,), from 0 to 1."""
        return np.asarray((self.split_.invariant**2).sum(axis=1))

    def predict(self, features: Any, residual: Any = None) -> Array:
        """Expected rewards (n,) up to a baseline.

        Parameters
        ----------
        features : array, shape (n, p)
            Of the actions to predict.
        residual : array, shape (p,), optional
            What `adapt` returned. Without it the invariant part φᵀβ̂_inv alone predicts.
        """
        self._check_fitted()
        features = finite_array("features", features, ("n", self.n_features_in_))
        if residual is None:
            return np.asarray(features @ self.component_)
        residual = finite_array("residual", residual, (self.n_features_in_,))
        return np.asarray(features @ (self.component_ + residual))

    def adapt(self, features: Any, rewards: Any, *, ridge: float = 0.1, baseline: bool = False) -> Array:
        """Residual part δ̂ (p,) of the reward model from a few recent rows, the invariant part held fixed.

        Ridge regression of rewards − φᵀβ̂_inv on the residual coordinates. Pass the result to `predict`.

        Parameters
        ----------
        features : array, shape (n, p)
            Recent rows, of chosen actions.
        rewards : array, shape (n,)
            Their rewards.
        ridge : float
            Added to the sums of squares of the residual coordinates.
        baseline : bool
            Centre the rows first, so that the level of the rewards does not matter.
        """
        self._check_fitted()
        features = finite_array("features", features, ("n", self.n_features_in_))
        rewards = finite_array("rewards", rewards, (len(features),))
        number_between("ridge", ridge, 0.0, np.inf)
        coordinates = features @ self.split_.residual
        rest = rewards - features @ self.component_
        if baseline:
            coordinates, rest = coordinates - coordinates.mean(axis=0), rest - rest.mean()
        gram = coordinates.T @ coordinates + ridge * np.eye(self.split_.residual_dim)
        return np.asarray(self.split_.residual @ np.linalg.solve(gram, coordinates.T @ rest))

    def summary(self) -> str:
        """A table for people: blocks, verdicts, evidence, and what to be careful about."""
        self._check_fitted()
        return summarize(self)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "split_")

    def _check_fitted(self) -> None:
        if not hasattr(self, "split_"):
            raise InputError(f"this {type(self).__name__} is not fitted yet: call fit first")


def _moments_of(data: Any, rewards: Any, others: dict[str, Any]) -> WindowedMoments:
    """The moments, or those of the arrays."""
    if not isinstance(data, WindowedMoments):
        if rewards is None:
            raise InputError(
                f"fit takes WindowedMoments, or features and rewards, got {type(data).__name__} alone"
            )
        return WindowedMoments.from_arrays(data, rewards, **others)
    if rewards is not None or any(value is not None for value in others.values()):
        raise InputError("rewards, windows, offered, times and edges go with arrays, not with moments")
    return data


def block_bases(blocks: Sequence[Any], p: int) -> list[Array]:
    """Blocks given as groups of feature indices or as (p, d) bases, checked to fill R^p orthonormally."""
    if not isinstance(blocks, Sequence | np.ndarray):
        raise InputError(f"blocks must be a sequence of blocks, got {blocks!r}")
    bases = []
    for block in blocks:
        array = np.asarray(block)
        if array.ndim == 2:
            bases.append(finite_array("blocks", array, (p, "d")))
        elif array.ndim == 1 and array.dtype.kind in "iu" and ((array >= 0) & (array < p)).all():
            bases.append(np.eye(p)[:, array])
        else:
            raise InputError(
                f"each of blocks must be feature indices below {p} or a (p, d) basis, got {block!r}"
            )
    joint = np.hstack(bases) if bases else np.zeros((p, 0))
    if joint.shape != (p, p) or np.abs(joint.T @ joint - np.eye(p)).max() > 1e-8:
        raise InputError(
            f"blocks must name each of the {p} features exactly once, or be orthonormal bases that fill R^{p}"
        )
    return bases


@dataclass(frozen=True, eq=False)
class FeatureCovariances:
    """Whose covariances reveal the basis, and how much they may be trusted.

    Attributes
    ----------
    used : "offered" or "chosen"
        Whose features they are of.
    stack : array, shape (m, p, p)
        One covariance per window.
    sizes : array, shape (m,)
        How many independent Gaussian rows each is worth.
    tails : array, shape (m,)
        Mean kurtosis of the features over 3, by window: 1 for Gaussian ones.
    singular : mapping of int to array, shape (p, r)
        Roots of the singular ones among them, by window (`singular_roots`).
    """

    used: str
    stack: Array
    sizes: Array
    tails: Array
    singular: dict[int, Array]

    @classmethod
    def of(cls, moments: WindowedMoments, asked: str, singular: dict[int, Array]) -> FeatureCovariances:
        """Those of the offered actions where there are any and not only chosen ones are `asked` for.

        singular: the `singular_roots` of the chosen actions.
        """
        p = moments.dim
        if moments.offered is None or asked == "chosen":
            source, used, rows = moments.chosen, "chosen", moments.chosen.count
        else:
            source, used, rows = moments.offered, "offered", moments.offered.independent_rows(moments.counts)
            singular = singular_roots(source, p)
        tails = source.tail_weight(p)
        stack = source.scatter[:, :p, :p] / np.maximum(source.count, 1.0)[:, None, None]
        return cls(used, stack, rows / np.maximum(1.0, tails), tails, singular)

    def transform(self, change: Array, counts: Array) -> tuple[Array, Array, Array | None]:
        """Of the windows whose rounds, `counts` (m,), are enough for a covariance of full rank: what finds
        the blocks.

        Covariances of change @ φ, (w, p, p), floored; their sizes (w,); and the projections (w, p, p) on the
        directions in which each does not vary, None if there are none.
        """
        p = self.stack.shape[1]
        enough = counts >= p + 2
        covariances = floored(change @ self.stack[enough] @ change.T)
        turned = {window: change @ root for window, root in self.singular.items() if enough[window]}
        unseen = unseen_directions(turned, len(counts), p)[enough] if turned else None
        return covariances, self.sizes[enough], unseen


def _side_by_side(result: InvarianceResult, varies: bool, p: int) -> Array:
    """The blocks of one side as one basis; rotations have left it orthonormal up to rounding, made exact
    here.
    """
    blocks = [block for block, moves in zip(result.blocks, result.varies, strict=True) if moves == varies]
    if not blocks:
        return np.zeros((p, 0))
    left, _, right = np.linalg.svd(np.hstack(blocks), full_matrices=False)
    return np.asarray(left @ right)


def _whitening(covariance: Array) -> Array:
    """A matrix T (p, p) with T S Tᵀ = I; features get unit variance first, so that units cost no digits."""
    scale = np.sqrt(np.diagonal(covariance))
    values, vectors = np.linalg.eigh(covariance / np.outer(scale, scale))
    return np.asarray((vectors / np.sqrt(values)) @ vectors.T / scale)


def _oblique_split(residual: Array) -> Split:
    """The orthogonal split whose residual part is spanned by columns (p, p_res) that need not be
    orthogonal.
    """
    p, dim = residual.shape
    return Split.from_residual(residual) if dim < p else Split(np.zeros((p, 0)), np.eye(p))
