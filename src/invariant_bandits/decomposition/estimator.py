"""InvariantSubspaceDecomposition: from windowed moments to the split, the component and a report."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from invariant_bandits.checks import Array, InputError, finite_array, number_between, one_of
from invariant_bandits.decomposition.parameters import RECIPES, Parameters, check_published, check_windowed
from invariant_bandits.decomposition.paths import CoefficientPaths, check_estimable
from invariant_bandits.decomposition.published import PublishedFit, published_decomposition
from invariant_bandits.decomposition.split import Split
from invariant_bandits.decomposition.summary import findings, published_findings, summarize, summarize_published
from invariant_bandits.decomposition.windowed import WindowedFit, windowed_decomposition
from invariant_bandits.moments.windowed import WindowedMoments


class InvariantSubspaceDecomposition(Parameters):
    """Learn from logs which directions of the reward model never change.

    Parameters
    ----------
    metric : "euclidean" or "whitened"
        "euclidean" looks for orthogonal subspaces of the features as they are (the paper). "whitened" first gives the
        features unit average covariance, for features whose natural subspaces are not orthogonal, and makes the
        result independent of units.
    covariances : "auto", "offered" or "chosen"
        Whose covariances reveal the basis. Those of all offered actions do not depend on how actions were chosen.
        "auto" takes them when the log has them.
    component : "within-window" or "pooled"
        How β_inv is estimated: precision-weighted over the windows, or the paper's least squares over all rounds.
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
        "windowed" is what everything above describes. "published" is the authors' own estimation, for comparison
        (see `decomposition.published`): it needs features and rewards in time order, chooses its own overlapping
        windows, takes chosen actions only and the pooled component, and ignores alpha, block_alpha and component.

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
        Columns are the found directions, invariant ones first.
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
        Both, and what each window is silent about: there they hold what the other windows expect, which is no evidence.
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
        Whether the search for the basis has converged.
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

    split_: Split
    component_: Array
    component_covariance_: Array
    noise_scale_: float
    basis_: Array
    blocks_: list[np.ndarray[Any, Any]]
    varies_: np.ndarray[Any, Any]
    p_values_: Array
    log_p_values_: Array
    testable_: np.ndarray[Any, Any]
    statistics_: Array
    threshold_: float
    paths_: CoefficientPaths
    coefficients_: Array
    coefficient_covariances_: Array
    window_noise_: Array
    window_covariances_: Array
    tail_weights_: Array
    min_eigenvalue_: float
    converged_: bool
    findings_: list[str]
    covariances_used_: str
    recipe_used_: str
    rounds_: int
    windows_: int
    n_features_in_: int

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
        """Fit from moments, or from arrays as in WindowedMoments.from_arrays; a fit that fails changes nothing.

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
            fitted._fit_windowed(moments, rewards, others)
        vars(self).clear()
        vars(self).update(vars(fitted))
        return self

    def _fit_windowed(self, given: Any, rewards: Any, others: dict[str, Any]) -> None:
        moments = _moments_of(given, rewards, others)
        check_windowed(self, moments)
        check_estimable(moments, self.names(moments.dim), use_offered=self.covariances != "chosen")
        found = windowed_decomposition(moments, self)
        self._take(found, moments)
        self.p_values_, self.log_p_values_ = np.exp(found.log_p_values), found.log_p_values
        self.testable_ = found.testable
        self.window_covariances_, self.tail_weights_ = found.covariances.stack, found.covariances.tails
        self.covariances_used_, self.recipe_used_ = found.covariances.used, "windowed"
        self.rounds_ = moments.rounds
        self.findings_ = findings(self, moments)

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
        check_published(self, p)
        found = published_decomposition(features, rewards, names=self.names(p))
        self._take(found, found.moments)
        self.statistics_, self.threshold_ = found.statistics, found.threshold
        self.window_covariances_ = found.moments.chosen.covariance()[:, :p, :p]
        self.covariances_used_, self.recipe_used_ = "chosen", "published"
        self.rounds_ = found.rounds
        self.findings_ = published_findings(self, found.moments)

    def _take(self, found: WindowedFit | PublishedFit, moments: WindowedMoments) -> None:
        """The attributes that every recipe gives."""
        self.split_, self.basis_ = found.split, found.basis
        self.blocks_, self.varies_ = list(found.blocks), found.varies
        self.component_, self.component_covariance_ = found.component, found.component_covariance
        self.paths_ = found.paths
        self.coefficients_, self.coefficient_covariances_ = found.paths.coefficients, found.paths.covariances
        self.noise_scale_, self.window_noise_ = found.noise_scale, found.window_noise
        self.min_eigenvalue_, self.converged_ = found.min_eigenvalue, found.converged
        self.n_features_in_, self.windows_ = moments.dim, moments.windows

    # -- using --

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
        return summarize_published(self) if self.recipe_used_ == "published" else summarize(self)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "split_")

    def _check_fitted(self) -> None:
        if not hasattr(self, "split_"):
            raise InputError(f"this {type(self).__name__} is not fitted yet: call fit first")


def _moments_of(given: Any, rewards: Any, others: dict[str, Any]) -> WindowedMoments:
    """The moments that were given, or those of the arrays."""
    if not isinstance(given, WindowedMoments):
        if rewards is None:
            raise InputError(f"fit takes WindowedMoments, or features and rewards, got {type(given).__name__} alone")
        return WindowedMoments.from_arrays(given, rewards, **others)
    if rewards is not None or any(value is not None for value in others.values()):
        raise InputError("rewards, windows, offered, times and edges go with arrays, not with moments")
    return given
