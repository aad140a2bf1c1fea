"""InvariantSubspaceDecomposition: from windowed moments to the split, the component and a report."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from invariant_bandits.checks import Array, InputError, finite_array, number_between, one_of, probability, whole_number
from invariant_bandits.decomposition.blocks import find_blocks, floored
from invariant_bandits.decomposition.invariance import InvarianceResult, constancy_test, select_invariant
from invariant_bandits.decomposition.paths import CoefficientPaths, check_estimable, window_paths
from invariant_bandits.decomposition.published import PublishedFit, published_decomposition
from invariant_bandits.decomposition.split import Split
from invariant_bandits.decomposition.summary import findings, published_findings, summarize, summarize_published
from invariant_bandits.moments.windowed import WindowedMoments

RECIPES = ("windowed", "published")


class InvariantSubspaceDecomposition:
    """Learn from logs which directions of the reward model never change.

    Parameters
    ----------
    metric : "euclidean" looks for orthogonal subspaces of the features as they are (the paper); "whitened" first
        gives the features unit average covariance, for features whose natural subspaces are not orthogonal, and
        makes the result independent of units.
    covariances : "offered", "chosen" or "auto": whose covariances reveal the basis. Those of all offered actions do
        not depend on how actions were chosen; "auto" takes them when the log has them.
    component : "within-window" (default), or "pooled", the paper's least squares over all rounds at once.
    alpha : level of the tests that call a block varying, shared over the blocks.
    block_alpha : level of the tests that link columns into blocks, shared over the pairs.
    invariant_dim : fix the dimension of the invariant part.
    blocks : fix the blocks: groups of feature indices, or (p, d) orthonormal bases, that together fill R^p.
    split : fix the whole split; then only the component is estimated.
    feature_names : p names for messages, summary and plots.
    recipe : "windowed" (default), what everything above describes; "published", the authors' own estimation, for
        comparison (see `decomposition.published`): it needs features and rewards in time order, chooses its own
        overlapping windows, takes chosen actions only and the pooled component, and makes no use of alpha, block_alpha
        and component.

    After `fit`
    -----------
    split_ : Split. component_ (p,), component_covariance_ (p, p), noise_scale_. basis_ (p, p): columns are the found
    directions, invariant ones first; blocks_: for each block its columns of basis_; varies_, p_values_ per block.
    coefficients_ (m, p) and coefficient_covariances_ (m, p, p): least squares in each window. min_eigenvalue_: λ0 of
    Assumption 2. feature_stability_ (p,): share of each feature that lies in the invariant part. converged_,
    findings_ (warnings in words), recipe_used_. recipe="published" tests nothing: instead of p_values_ it has
    statistics_ per block and the threshold_ below which a block counts as invariant.

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

    split_: Split
    component_: Array
    component_covariance_: Array
    noise_scale_: float
    basis_: Array
    blocks_: list[np.ndarray[Any, Any]]
    varies_: np.ndarray[Any, Any]
    p_values_: Array
    log_p_values_: Array
    statistics_: Array
    threshold_: float
    coefficients_: Array
    coefficient_covariances_: Array
    window_noise_: Array
    window_covariances_: Array
    min_eigenvalue_: float
    converged_: bool
    n_features_in_: int
    findings_: list[str]
    covariances_used_: str
    recipe_used_: str

    def __init__(
        self,
        *,
        metric: str = "euclidean",
        covariances: str = "auto",
        component: str = "within-window",
        alpha: float = 0.002,
        block_alpha: float = 0.002,
        invariant_dim: int | None = None,
        blocks: Sequence[Any] | None = None,
        split: Split | None = None,
        feature_names: Sequence[str] | None = None,
        recipe: str = "windowed",
    ) -> None:
        self.metric = metric
        self.covariances = covariances
        self.component = component
        self.alpha = alpha
        self.block_alpha = block_alpha
        self.invariant_dim = invariant_dim
        self.blocks = blocks
        self.split = split
        self.feature_names = feature_names
        self.recipe = recipe

    # -- scikit-learn conventions --

    @classmethod
    def _parameter_names(cls) -> list[str]:
        return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's parameters by name."""
        return {name: getattr(self, name) for name in self._parameter_names()}

    def set_params(self, **params: Any) -> Self:
        """Set constructor parameters by name."""
        allowed = self._parameter_names()
        for name in params:
            one_of("parameter", name, allowed)
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "split_")

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self).__init__).parameters
        given = {name: value for name, value in self.get_params().items() if value is not defaults[name].default}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in given.items())})"

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
        """Fit from WindowedMoments, or from arrays as in WindowedMoments.from_arrays.

        With recipe="published" from features (n, p) and rewards (n,) alone.
        """
        given = (rewards, windows, offered, times, edges)
        if one_of("recipe", self.recipe, RECIPES) == "published":
            return self._fit_published(moments, *given)
        if isinstance(moments, WindowedMoments):
            if any(value is not None for value in given):
                raise InputError("rewards, windows, offered, times and edges go with arrays, not with moments")
        elif rewards is None:
            raise InputError(f"fit takes WindowedMoments, or features and rewards, got {type(moments).__name__} alone")
        else:
            moments = WindowedMoments.from_arrays(
                moments, rewards, windows=windows, offered=offered, times=times, edges=edges
            )
        self._check_parameters(moments)
        names = self.names(moments.dim)
        check_estimable(moments, names, use_offered=self.covariances != "chosen")
        fitted = type(self)(**self.get_params())
        fitted._estimate(moments)
        return self._become(fitted)

    def _fit_published(self, features: Any, rewards: Any, *others: Any) -> Self:
        if isinstance(features, WindowedMoments) or rewards is None:
            raise InputError(
                "recipe='published' needs rows: fit takes features (n, p) and rewards (n,) in time order,"
                f" got {type(features).__name__} alone"
            )
        if any(value is not None for value in others):
            raise InputError(
                "recipe='published' has its own windows and uses chosen actions only:"
                " give no windows, offered, times and edges"
            )
        features = finite_array("features", features, ("n", "p"))
        self._check_published(features.shape[1])
        fitted = type(self)(**self.get_params())
        fitted._take(published_decomposition(features, rewards, names=self.names(features.shape[1])))
        return self._become(fitted)

    def _become(self, fitted: Self) -> Self:
        """Take over a finished fit; nothing of an earlier one stays."""
        vars(self).clear()
        vars(self).update(vars(fitted))
        return self

    def names(self, dim: int) -> list[str]:
        """The feature names, or x0, x1, … where none were given."""
        if self.feature_names is None:
            return [f"x{index}" for index in range(dim)]
        return [str(name) for name in self.feature_names]

    def _check_published(self, p: int) -> None:
        """Settings that contradict the published recipe are refused; alpha, block_alpha and component play no part."""
        one_of("metric with recipe='published'", self.metric, ("euclidean",))
        one_of("covariances with recipe='published'", self.covariances, ("auto", "chosen"))
        for name in ("invariant_dim", "blocks", "split"):
            if getattr(self, name) is not None:
                raise InputError(f"{name} cannot be fixed with recipe='published', which finds it from the rows")
        self._check_names(p)

    def _check_names(self, p: int) -> None:
        if self.feature_names is not None and len(self.feature_names) != p:
            raise InputError(f"feature_names must have {p} entries, got {len(self.feature_names)}")

    def _check_parameters(self, moments: WindowedMoments) -> None:
        p = moments.dim
        one_of("metric", self.metric, ("euclidean", "whitened"))
        one_of("covariances", self.covariances, ("auto", "offered", "chosen"))
        one_of("component", self.component, ("within-window", "pooled"))
        probability("alpha", self.alpha)
        probability("block_alpha", self.block_alpha)
        if self.covariances == "offered" and moments.offered is None:
            raise InputError("covariances='offered' needs the offered actions, but the moments hold chosen ones only")
        if self.invariant_dim is not None and whole_number("invariant_dim", self.invariant_dim, 0) > p:
            raise InputError(f"invariant_dim must be at most the number of features, {p}, got {self.invariant_dim}")
        if self.split is not None and (self.blocks is not None or self.invariant_dim is not None):
            raise InputError("split fixes everything: give it without blocks and invariant_dim")
        if self.split is not None and not isinstance(self.split, Split):
            raise InputError(f"split must be a Split, got {type(self.split).__name__}")
        if self.split is not None and self.split.dim != p:
            raise InputError(f"split must have dim {p}, got {self.split.dim}")
        if (self.split is not None or self.blocks is not None) and self.metric != "euclidean":
            raise InputError("metric='whitened' finds its own subspaces: give no split and no blocks with it")
        self._check_names(p)
        if self.blocks is not None:
            _block_bases(self.blocks, p)

    def _estimate(self, original: WindowedMoments) -> None:
        p = original.dim
        use_offered = original.offered is not None and self.covariances != "chosen"
        source = original.offered if use_offered and original.offered is not None else original.chosen
        tails = source.tail_weight(p)
        rows = source.independent_rows(original.counts) if use_offered else source.count
        sizes = rows / np.maximum(1.0, tails)
        covariances = source.covariance()[:, :p, :p]

        change = np.eye(p)
        if self.metric == "whitened":
            change = _whitening(covariances.mean(axis=0))
        moments = original if self.metric == "euclidean" else original.transformed(change)
        covariances = floored(change @ covariances @ change.T)
        paths, noise = window_paths(moments)

        result, self.converged_ = self._find(covariances, sizes, paths)
        staying = [block for block, varies in zip(result.blocks, result.varies, strict=True) if not varies]
        moving = [block for block, varies in zip(result.blocks, result.varies, strict=True) if varies]
        invariant, residual = _side_by_side(staying, p), _side_by_side(moving, p)
        mean, covariance = self._component_along(invariant, moments, paths)

        self.n_features_in_ = p
        if self.metric == "euclidean":
            self.split_ = Split(invariant, residual)
        else:
            self.split_ = Split.from_residual(change.T @ residual) if residual.shape[1] < p else _all_residual(p)
        self.component_ = change.T @ invariant @ mean
        self.component_covariance_ = change.T @ invariant @ covariance @ invariant.T @ change
        self.basis_ = change.T @ np.hstack([invariant, residual])
        sizes_of_blocks = [block.shape[1] for block in result.blocks]
        self.blocks_ = np.split(np.arange(p), np.cumsum(sizes_of_blocks)[:-1])
        self.varies_ = np.array(result.varies, dtype=bool)
        self.log_p_values_ = np.array([test.log_p for test in result.tests])
        self.p_values_ = np.exp(self.log_p_values_)
        own, self.window_noise_ = (paths, noise) if moments is original else window_paths(original)
        self.coefficients_, self.coefficient_covariances_ = own.coefficients, own.covariances
        freedom = original.counts - p - 1
        self.noise_scale_ = float(np.sqrt(freedom @ self.window_noise_ / freedom.sum()))
        self.min_eigenvalue_ = float(np.linalg.eigvalsh(original.second_moment() / original.rounds)[0])
        self.window_covariances_ = source.covariance()[:, :p, :p]
        self.covariances_used_ = "offered" if use_offered else "chosen"
        self.recipe_used_ = "windowed"
        self._tails, self._rounds, self._windows = tails, original.rounds, original.windows
        self.findings_ = findings(self, original)

    def _take(self, found: PublishedFit) -> None:
        """The attributes of a fit by the published recipe."""
        moments = found.moments
        self.n_features_in_ = moments.dim
        self.split_, self.basis_, self.blocks_ = found.split, found.basis, list(found.blocks)
        self.component_, self.component_covariance_ = found.component, found.component_covariance
        self.noise_scale_, self.window_noise_ = found.noise_scale, found.window_noise
        self.varies_, self.statistics_, self.threshold_ = found.varies, found.statistics, found.threshold
        self.coefficients_, self.coefficient_covariances_ = found.paths.coefficients, found.paths.covariances
        self.window_covariances_ = moments.chosen.covariance()[:, : moments.dim, : moments.dim]
        self.min_eigenvalue_ = found.min_eigenvalue
        self.converged_ = found.converged
        self.covariances_used_, self.recipe_used_ = "chosen", "published"
        self._rounds, self._windows = found.rounds, moments.windows
        self.findings_ = published_findings(self, moments)

    def _find(self, covariances: Array, sizes: Array, paths: CoefficientPaths) -> tuple[InvarianceResult, bool]:
        p = covariances.shape[1]
        if self.split is not None:
            halves = [(self.split.invariant, False), (self.split.residual, True)]
            kept = [(np.asarray(part), varies) for part, varies in halves if part.shape[1]]
            tests = [constancy_test(paths.along(part)) for part, _ in kept]
            return InvarianceResult([part for part, _ in kept], [varies for _, varies in kept], tests), True
        converged = True
        if self.blocks is not None:
            blocks = _block_bases(self.blocks, p)
        else:
            found = find_blocks(covariances, sizes, alpha=self.block_alpha)
            blocks = [found.basis[:, columns] for columns in found.blocks]
            converged = found.converged
        result = select_invariant(
            blocks,
            paths,
            covariances,
            sizes,
            alpha=self.alpha,
            invariant_dim=self.invariant_dim,
            refine=self.blocks is None,
        )
        return result, converged

    def _component_along(
        self, invariant: Array, moments: WindowedMoments, paths: CoefficientPaths
    ) -> tuple[Array, Array]:
        """Coordinates of β_inv along the invariant directions (p_inv,) and their covariance."""
        if invariant.shape[1] == 0:
            return np.zeros(0), np.zeros((0, 0))
        if self.component == "within-window":
            return paths.along(invariant).weighted_mean()
        return _pooled_component(invariant, moments)

    # -- using --

    @property
    def feature_stability_(self) -> Array:
        """Share of each original feature that lies in the invariant part (p,), from 0 to 1."""
        return np.asarray((self.split_.invariant**2).sum(axis=1))

    def predict(self, features: Any, residual: Any = None) -> Array:
        """Expected rewards (n,) up to a baseline: φᵀβ̂_inv alone, or with the `residual` (p,) that `adapt` returned."""
        self._check_fitted()
        features = finite_array("features", features, ("n", self.n_features_in_))
        if residual is None:
            return np.asarray(features @ self.component_)
        residual = finite_array("residual", residual, (self.n_features_in_,))
        return np.asarray(features @ (self.component_ + residual))

    def adapt(self, features: Any, rewards: Any, *, ridge: float = 0.1, baseline: bool = False) -> Array:
        """Residual part δ̂ (p,) of the reward model from a few recent rows, the invariant part held fixed.

        Ridge regression of rewards − φᵀβ̂_inv on the residual coordinates of features (n, p); with `baseline` the
        rows are centred first. Pass the result to `predict`.
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
        return summarize_published(self) if self.recipe_used_ == "published" else summarize(self)

    def _check_fitted(self) -> None:
        if not hasattr(self, "split_"):
            raise InputError(f"this {type(self).__name__} is not fitted yet: call fit first")


def _side_by_side(blocks: list[Array], p: int) -> Array:
    """The blocks as one orthonormal basis; rotations have left it orthonormal up to rounding, made exact here."""
    if not blocks:
        return np.zeros((p, 0))
    left, _, right = np.linalg.svd(np.hstack(blocks), full_matrices=False)
    return np.asarray(left @ right)


def _all_residual(p: int) -> Split:
    return Split(np.zeros((p, 0)), np.eye(p))


def _pooled_component(invariant: Array, moments: WindowedMoments) -> tuple[Array, Array]:
    """The paper's estimator: least squares over all rounds on the invariant coordinates, without an intercept."""
    second = moments.second_moment()
    weights = moments.counts[:, None] * moments.feature_mean
    cross = moments.cross.sum(axis=0) + weights.T @ moments.reward_mean
    square = float(moments.reward_square.sum() + moments.counts @ moments.reward_mean**2)
    gram = invariant.T @ second @ invariant
    inverse = np.linalg.inv(gram)
    pull = invariant.T @ cross
    mean = inverse @ pull
    variance = max(square - float(mean @ pull), 0.0) / (moments.rounds - invariant.shape[1])
    return mean, variance * 0.5 * (inverse + inverse.T)


def _whitening(covariance: Array) -> Array:
    """A matrix T (p, p) with T S Tᵀ = I; features get unit variance first, so that units cost no digits."""
    scale = np.sqrt(np.diagonal(covariance))
    values, vectors = np.linalg.eigh(covariance / np.outer(scale, scale))
    return np.asarray((vectors / np.sqrt(values)) @ vectors.T / scale)


def _block_bases(blocks: Sequence[Any], p: int) -> list[Array]:
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
            raise InputError(f"each of blocks must be feature indices below {p} or a (p, d) basis, got {block!r}")
    joint = np.hstack(bases) if bases else np.zeros((p, 0))
    if joint.shape != (p, p) or np.abs(joint.T @ joint - np.eye(p)).max() > 1e-8:
        raise InputError(
            f"blocks must name each of the {p} features exactly once, or be orthonormal bases that fill R^{p}"
        )
    return bases
