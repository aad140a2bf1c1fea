"""InvariantSubspaceDecomposition: from windowed moments to the split, the component and a report in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from scipy import linalg

from invariant_bandits.checks import (
    Array,
    InputError,
    finite_array,
    number_between,
    one_of,
    probability,
    whole_number,
)
from invariant_bandits.decomposition.joint_diagonalization import (
    find_blocks,
    floored,
    with_fixed_signs,
)
from invariant_bandits.decomposition.paths import (
    EXACT,
    CoefficientPaths,
    MissingColumn,
    check_estimable,
    detectable_drift,
    informed_directions,
    singular_roots,
    unseen_directions,
    window_paths,
)
from invariant_bandits.decomposition.recipes import find_recipe
from invariant_bandits.decomposition.split import (
    COMPONENTS,
    Split,
    component_along,
    select_invariant,
)
from invariant_bandits.moments.windowed import WindowedMoments
from invariant_bandits.plotting import curves, notebook_html

METRICS = ("euclidean", "whitened")
COVARIANCES = ("auto", "offered", "chosen")
RECIPES = ("windowed", "published")
SUPPORTED = 0.5
"""A part is called stable if a drift of this share of its size would have been detected."""
NOT_DETECTED = "no drift detected"
DRIFTS = "drifts"
SELECTIVE_SHIFT = 0.1
"""Squared Mahalanobis distance of the mean features from 0, from which a finding says so."""
HEAVY_TAILS = 1.5
"""Mean kurtosis, relative to a normal, from which a finding says so."""
ROUNDS_PER_FEATURE = 5
"""Rounds per feature that a finding asks for, where windows are too short for tests."""
LEAST_LEVERAGE = 1e-9
"""Share of all information below which nothing is known of a block's drift."""
MOST_NAMED = 4
"""Features that a sentence names before it counts the others."""
LEAST_WEIGHT = 0.1
"""Share of the largest weight below which a feature is not named as part of a direction."""
RELATIVE_ROUNDING = 1e-9
"""Share of the largest weight below which a weight is zero."""
SEEN, INVOLVED = 1e-6, 1e-4
"""Of features scaled to one size: directions that a window sees, and features that are part of one it does
not see.
"""


@dataclass(kw_only=True, eq=False, repr=False)
class InvariantSubspaceDecomposition:
    """Estimator that finds, from logs, the directions of feature space along which coefficients drift.

    The estimator splits the feature space into stable (invariant) directions and drifting directions.

    Parameters
    ----------
    metric : "euclidean" or "whitened"
        Transformation of the features before directions are found. With `metric="euclidean"`, the features
        are used as they are, as in the original paper. With `metric="whitened"`, the features are first
        transformed to unit average covariance, so that the result does not depend on their units.
    covariances : "auto", "offered" or "chosen"
        Actions whose feature covariances determine the directions. Covariances of all offered actions do not
        depend on how actions were chosen. With `covariances="auto"`, the covariances are those of all offered
        actions if the log has them.
    component : "within-window" or "pooled"
        How the invariant (stable) coefficients are estimated. With `component="within-window"`, the estimator
        averages the coefficients of all time windows, weighted by their precision. With `component="pooled"`,
        the estimator fits one least-squares regression to all rounds, as in the original paper.
    alpha : float
        Significance level of the tests for drift, divided by the number of blocks (groups of directions).
    block_alpha : float
        Significance level of the tests that group directions, divided by the number of pairs of directions.
    invariant_dim : int, optional
        Fixed dimension of the invariant part (the stable directions); estimated by default.
    blocks : sequence, optional
        Fixed blocks (groups of directions): lists of feature indices, or orthonormal bases of shape (p, d).
        The blocks (groups of directions) together must span the feature space.
    split : Split, optional
        Fixed split into invariant (stable) and residual (drifting) directions; estimated by default.
    feature_names : p strings, optional
        Names of the features for messages, summary and plots.
    intercept : bool
        Whether every window (period of the log) has its own intercept. Use `intercept=False` for features
        that contain an intercept for every labelled arm.
    missing : sequence of MissingColumn
        Features that indicate missing values of other features. Rewards of rows with missing values vary
        more, and the tests for drift allow for the larger variance.
    recipe : "windowed" or "published"
        Estimation method: "windowed" of this library, or "published" of the original paper, which is in the
        package invariant-bandits-reproduction.
        The method "published" needs features and rewards in time order and uses chosen actions only. The
        method "published" ignores the parameters `alpha`, `block_alpha` and `component`.

    Attributes
    ----------
    split_ : Split
        Estimated split into invariant (stable) and residual (drifting) directions.
    component_ : array, shape (p,)
        Estimated invariant coefficients β_inv, in units of the reward per unit of each feature.
    component_covariance_ : array, shape (p, p)
        Sampling covariance of `component_`.
    noise_scale_ : float
        Standard deviation of a reward about its expectation.
    basis_ : array, shape (p, p)
        Basis with one direction per column, invariant (stable) directions first.
    blocks_ : list of arrays of int, shape (d,)
        Column indices in `basis_` of each block (group of directions).
    varies_ : array of bool, shape (blocks,)
        Whether each block (group of directions) drifts.
    p_values_, log_p_values_ : arrays, shape (blocks,)
        p-values, and their logarithms, of tests of constant coefficients in each block (group of directions).
    testable_ : array of bool, shape (blocks,)
        Whether each block (group of directions) can be tested for drift, which needs data on all of its
        directions in two time windows. A block (group of directions) that cannot be tested counts as
        drifting.
    statistics_ : array, shape (blocks,)
        Mean absolute correlation of prediction and prediction error per block (group of directions); only for
        `recipe="published"`.
    threshold_ : float
        Value of `statistics_` below which a block of directions counts as stable; only for
        `recipe="published"`.
    coefficients_ : array, shape (m, p)
        Least-squares coefficients in each of the m time windows.
    coefficient_covariances_ : array, shape (m, p, p)
        Sampling covariance of the coefficients in each of the m time windows.
    paths_ : CoefficientPaths
        Coefficients and their covariances in all time windows. Along directions without data in a window,
        `paths_` holds the values expected from the other windows.
    window_noise_ : array, shape (m,)
        Variance of the noise in each of the m time windows.
    window_covariances_ : array, shape (m, p, p)
        Covariance matrix of the features in each of the m time windows.
    tail_weights_ : array, shape (m,)
        Mean kurtosis of the features, divided by 3, in each time window; not for `recipe="published"`.
    min_eigenvalue_ : float
        Smallest eigenvalue of the mean of φφᵀ over all rounds, where φ are the features of the chosen action.
    feature_stability_ : array, shape (p,)
        Share of each feature, from 0 to 1, that lies in the invariant part (the stable directions).
    converged_ : bool
        Whether the iterative search for the basis converged.
    distinct_ : bool
        Whether the data determine the blocks (groups of directions); if False, other blocks fit as well.
    findings_ : list of str
        Warnings about the fit, in sentences.
    covariances_used_, recipe_used_ : str
        Kind of actions ("offered" or "chosen") and value of `recipe` that the fit used.
    rounds_, windows_, n_features_in_ : int
        Numbers of rounds, time windows and features in the fit.

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
    intercept: bool = True
    missing: Sequence[MissingColumn] = ()
    recipe: str = "windowed"

    # -- parameters --

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor's parameters by name."""
        return {
            parameter.name: getattr(self, parameter.name) for parameter in fields(self)
        }

    def set_params(self, **params: Any) -> Self:
        """Set constructor parameters by name."""
        for name in params:
            one_of("parameter", name, list(self.get_params()))
        vars(self).update(params)
        return self

    def __repr__(self) -> str:
        settings = self.get_params().items()
        changed = (
            f"{name}={value!r}"
            for name, value in settings
            if value is not getattr(type(self), name)
        )
        return f"{type(self).__name__}({', '.join(changed)})"

    def names(self, dim: int) -> list[str]:
        """The feature names, or x0, x1, … where none were given; InputError if `dim` is not their number."""
        names = (
            [f"x{index}" for index in range(dim)]
            if self.feature_names is None
            else self.feature_names
        )
        if len(names) != dim:
            raise InputError(f"feature_names must have {dim} entries, got {len(names)}")
        return [str(name) for name in names]

    def _check_windowed(self, moments: WindowedMoments) -> None:
        """Raise InputError unless the parameters fit each other and the moments."""
        one_of("metric", self.metric, METRICS)
        one_of("covariances", self.covariances, COVARIANCES)
        one_of("component", self.component, COMPONENTS)
        probability("alpha", self.alpha)
        probability("block_alpha", self.block_alpha)
        if self.covariances == "offered" and moments.offered is None:
            raise InputError(
                "covariances='offered' needs the offered actions: the moments hold chosen ones"
            )
        p = moments.dim
        if (
            self.invariant_dim is not None
            and whole_number("invariant_dim", self.invariant_dim, 0) > p
        ):
            most = f"at most the number of features, {p}"
            raise InputError(f"invariant_dim must be {most}, got {self.invariant_dim}")
        if self.split is not None and (
            self.blocks is not None or self.invariant_dim is not None
        ):
            raise InputError(
                "split fixes everything: give it without blocks and invariant_dim"
            )
        if self.split is not None and getattr(self.split, "dim", None) != p:
            raise InputError(f"split must be a Split of dim {p}, got {self.split!r}")
        if (
            self.split is not None or self.blocks is not None
        ) and self.metric != "euclidean":
            raise InputError(
                "metric='whitened' finds its own subspaces: give no split and no blocks with it"
            )
        if self.blocks is not None:
            block_bases(self.blocks, p)
        check_estimable(
            moments, self.names(p), use_offered=self.covariances != "chosen"
        )

    def _check_published(self) -> None:
        """Refuse what contradicts the published recipe; alpha, block_alpha and component play no part in
        it.
        """
        one_of("metric with recipe='published'", self.metric, ("euclidean",))
        one_of(
            "covariances with recipe='published'", self.covariances, ("auto", "chosen")
        )
        for name in ("invariant_dim", "blocks", "split"):
            if getattr(self, name) is not None:
                raise InputError(
                    f"{name} cannot be fixed with recipe='published', which finds it from rows"
                )

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
        """Fit the decomposition to moments, or to arrays of features and rewards.

        A fit that raises an error does not change the object.

        Parameters
        ----------
        moments : WindowedMoments, or array, shape (n, p)
            Moments of the log, or features of the chosen actions. For `recipe="published"`, give features in
            time order.
        rewards : array, shape (n,)
            Rewards of the chosen actions; only if `moments` is an array of features.
        windows, offered, times, edges
            Arguments of WindowedMoments.from_arrays; only if `moments` is an array of features.
        """
        others = {
            "windows": windows,
            "offered": offered,
            "times": times,
            "edges": edges,
        }
        fitted = type(self)(**self.get_params())
        fitted._fit(
            moments,
            rewards,
            {name: value for name, value in others.items() if value is not None},
        )
        vars(self).clear()
        vars(self).update(vars(fitted))
        return self

    def _fit(self, data: Any, rewards: Any, others: dict[str, Any]) -> None:
        if one_of("recipe", self.recipe, RECIPES) == "published":
            moments = self._fit_published(data, rewards, others)
        else:
            moments = _moments_of(data, rewards, others)
            moments = moments if self.intercept else moments.about_zero()
            self._fit_windowed(moments)
        self.recipe_used_ = self.recipe
        self.n_features_in_ = moments.dim
        self.windows_ = moments.windows
        self.findings_ = findings(self, moments)

    def _fit_windowed(self, moments: WindowedMoments) -> None:
        self._check_windowed(moments)
        p, whitened = moments.dim, self.metric == "whitened"
        singular = singular_roots(moments.chosen, p)
        change, covariances, sizes, unseen = self._observe(moments, singular)
        blocks = self._blocks(covariances, sizes, unseen)
        directions = np.linalg.solve(change, np.hstack(blocks)) if singular else None
        about: dict[str, Any] = {"singular": singular, "missing": self.missing}
        paths, noise, noise_variance = window_paths(moments, directions, **about)
        self.paths_ = paths
        self.window_noise_ = noise
        self.noise_scale_ = float(np.sqrt(noise_variance))
        turned = moments.transformed(change) if whitened else moments
        if whitened:
            known = bool(singular or self.missing)
            paths = (
                paths.along(np.linalg.inv(change))
                if known
                else window_paths(turned, singular={})[0]
            )
        if self.split is not None:
            result = self.split.tested(paths)
        else:
            until: dict[str, Any] = {
                "alpha": self.alpha,
                "invariant_dim": self.invariant_dim,
            }
            result = select_invariant(
                blocks, paths, covariances, sizes, refine=self.blocks is None, **until
            )
        invariant, residual = result.side(False), result.side(True)
        mean, covariance = component_along(invariant, turned, paths, self.component)
        spanned = change.T @ residual if invariant.size else np.eye(p)
        self.split_ = (
            Split.from_residual(spanned) if whitened else Split(invariant, residual)
        )
        self.component_ = change.T @ invariant @ mean
        self.component_covariance_ = (
            change.T @ invariant @ covariance @ invariant.T @ change
        )
        self.basis_ = change.T @ np.hstack([invariant, residual])
        self.blocks_ = np.split(
            np.arange(p), np.cumsum([block.shape[1] for block in result.blocks])[:-1]
        )
        self.varies_ = np.array(result.varies, dtype=bool)
        self.log_p_values_ = np.array([test.log_p for test in result.tests])
        self.testable_ = np.array([test.possible for test in result.tests], dtype=bool)
        self.min_eigenvalue_ = float(
            np.linalg.eigvalsh(moments.second_moment() / moments.rounds)[0]
        )
        self.rounds_ = moments.rounds

    def _observe(
        self, moments: WindowedMoments, singular: dict[int, Array]
    ) -> tuple[Array, Array, Array, Array | None]:
        """What finds the blocks: covariances in the windows with enough rounds for one of full rank.

        Those of the offered actions where there are any and not only chosen ones are asked for.

        Parameters
        ----------
        singular : mapping of int to array
            The `singular_roots` of the chosen actions.

        Returns
        -------
        change : array, shape (p, p)
            Whitens the features; the identity if they are taken as they are.
        covariances : array, shape (w, p, p)
            Of change @ φ, floored.
        sizes : array, shape (w,)
            How many independent Gaussian rows each is worth.
        unseen : array, shape (w, p, p), or None
            Projections on the directions in which each does not vary; None if there are none.
        """
        p = moments.dim
        source = moments.chosen
        rows = moments.counts
        if moments.offered is not None and self.covariances != "chosen":
            source = moments.offered
            rows = moments.offered.independent_rows(moments.counts)
            singular = singular_roots(source, p)
        scatter = np.ascontiguousarray(source.scatter[:, :p, :p])
        stack = scatter / np.maximum(source.count, 1.0)[:, None, None]
        self.covariances_used_ = "chosen" if source is moments.chosen else "offered"
        self.window_covariances_, self.tail_weights_ = stack, source.tail_weight(p)
        change = (
            _whitening(stack.mean(axis=0)) if self.metric == "whitened" else np.eye(p)
        )
        enough = moments.counts >= p + 2
        turned = {
            window: change @ root for window, root in singular.items() if enough[window]
        }
        unseen = (
            unseen_directions(turned, moments.windows, p)[enough] if turned else None
        )
        sizes = rows / np.maximum(1.0, self.tail_weights_)
        return change, floored(change @ stack[enough] @ change.T), sizes[enough], unseen

    def _blocks(
        self, covariances: Array, sizes: Array, unseen: Array | None
    ) -> list[Array]:
        """Bases (p, d) of the blocks: the given ones, or what the covariances show."""
        self.converged_ = self.distinct_ = True
        if self.split is not None:
            return [
                np.asarray(part) for part in (self.split.invariant, self.split.residual)
            ]
        if self.blocks is not None:
            return block_bases(self.blocks, covariances.shape[1])
        structure = find_blocks(
            covariances, sizes, alpha=self.block_alpha, unseen=unseen
        )
        self.converged_, self.distinct_ = structure.converged, structure.distinct
        return [structure.basis[:, columns] for columns in structure.blocks]

    def _fit_published(
        self, features: Any, rewards: Any, others: dict[str, Any]
    ) -> WindowedMoments:
        if isinstance(features, WindowedMoments) or rewards is None:
            needed = "features and rewards in time order"
            raise InputError(
                f"recipe='published' needs rows: {needed}, got {type(features).__name__} alone"
            )
        if others:
            own = "has its own windows and uses chosen actions only"
            raise InputError(f"recipe='published' {own}: give no {', '.join(others)}")
        self._check_published()
        features = finite_array("features", features, ("n", "p"))
        p = features.shape[1]
        result = find_recipe("published")(features, rewards, names=self.names(p))
        moments: WindowedMoments = result.moments
        for name, value in vars(result).items():
            setattr(self, f"{name}_", value)
        self.statistics_, self.threshold_ = result.statistics, result.threshold
        self.window_covariances_ = moments.chosen.covariance()[:, :p, :p]
        self.covariances_used_ = "chosen"
        return moments

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
    def drifting_directions(self) -> Any:
        """Whether each column of `basis_` belongs to a drifting block, as a boolean array (p,)."""
        return np.repeat(self.varies_, [len(block) for block in self.blocks_])

    @property
    def feature_stability_(self) -> Array:
        """Share of each original feature that lies in the invariant part (p,), from 0 to 1."""
        return np.asarray((self.split_.invariant**2).sum(axis=1))

    def predict(self, features: Any, residual: Any = None) -> Array:
        """Predict the expected rewards of n actions (n,), up to a constant.

        Parameters
        ----------
        features : array, shape (n, p)
            Features of the n actions.
        residual : array, shape (p,), optional
            Drifting part of the coefficients, as the method `adapt` returns it. Without `residual`, the
            prediction uses only the invariant (stable) coefficients.
        """
        self._check_fitted()
        features = finite_array("features", features, ("n", self.n_features_in_))
        if residual is not None:
            residual = finite_array("residual", residual, (self.n_features_in_,))
        return np.asarray(
            features
            @ (self.component_ if residual is None else self.component_ + residual)
        )

    def adapt(
        self, features: Any, rewards: Any, *, ridge: float = 0.1, baseline: bool = False
    ) -> Array:
        """Estimate the drifting part of the coefficients (p,) from a few recent rounds.

        The invariant (stable) coefficients stay fixed. A ridge regression along the drifting directions fits
        the part of the rewards that the stable coefficients leave unexplained. Pass the result to the method
        `predict` as the argument `residual`.

        Parameters
        ----------
        features : array, shape (n, p)
            Features of the chosen actions in recent rounds.
        rewards : array, shape (n,)
            Rewards of the chosen actions.
        ridge : float
            Penalty of the ridge regression.
        baseline : bool
            Whether to centre features and rewards first, so that the level of the rewards does not matter.
        """
        self._check_fitted()
        features = finite_array("features", features, ("n", self.n_features_in_))
        rewards = finite_array("rewards", rewards, (len(features),))
        number_between("ridge", ridge, 0.0, np.inf)
        coordinates = features @ self.split_.residual
        rest = rewards - features @ self.component_
        if baseline:
            coordinates = coordinates - coordinates.mean(axis=0)
            rest = rest - rest.mean()
        gram = coordinates.T @ coordinates + ridge * np.eye(self.split_.residual_dim)
        return np.asarray(
            self.split_.residual @ np.linalg.solve(gram, coordinates.T @ rest)
        )

    def summary(self) -> str:
        """Return a readable table: for each group of directions whether it drifts, with the evidence."""
        self._check_fitted()
        return _summary(self)

    def _repr_html_(self) -> str:
        """What a notebook shows: the summary and the picture."""
        fitted = hasattr(self, "split_")
        return notebook_html(
            self.summary() if fitted else repr(self), self.plot if fitted else None
        )

    def plot(
        self,
        axes: Any = None,
        *,
        most: int = 6,
        edges: Any = None,
        theme: str = "light",
    ) -> Any:
        """Draw the coefficient along each direction over the time windows, with 95 % intervals.

        Drifting directions come first. The method needs matplotlib.

        Parameters
        ----------
        axes : matplotlib Axes, or array of them, optional
            Axes to draw on, one for each direction; a new figure by default.
        most : int
            Largest number of directions in a new figure.
        edges : array, shape (m + 1,), optional
            Times at which the m windows begin and end; by default the windows are numbered.
        theme : "light" or "dark"
            Colour theme of the figure.

        Returns
        -------
        array of Axes
        """
        from invariant_bandits.decomposition.effects import direction_effects

        self._check_fitted()
        shown = direction_effects(self)[: most if axes is None else np.size(axes)]
        return curves(shown, edges, axes=axes, theme_name=theme)

    def _check_fitted(self) -> None:
        if not hasattr(self, "split_"):
            raise InputError(
                f"this {type(self).__name__} is not fitted yet: call fit first"
            )


def _moments_of(data: Any, rewards: Any, others: dict[str, Any]) -> WindowedMoments:
    """The moments, or those of the arrays."""
    if isinstance(data, WindowedMoments):
        if rewards is not None or others:
            raise InputError(
                "rewards, windows, offered, times and edges go with arrays, not with moments"
            )
        return data
    if rewards is None:
        alone = type(data).__name__
        raise InputError(
            f"fit takes WindowedMoments, or features and rewards, got {alone} alone"
        )
    return WindowedMoments.from_arrays(data, rewards, **others)


def block_bases(blocks: Sequence[Any], p: int) -> list[Array]:
    """Blocks given as groups of feature indices or as (p, d) bases, checked to fill R^p orthonormally."""
    if not isinstance(blocks, Sequence | np.ndarray):
        raise InputError(f"blocks must be a sequence of blocks, got {blocks!r}")
    bases = []
    for block in blocks:
        array = np.asarray(block)
        if array.ndim == 2:
            bases.append(finite_array("blocks", array, (p, "d")))
        elif (
            array.ndim == 1
            and array.dtype.kind in "iu"
            and ((array >= 0) & (array < p)).all()
        ):
            bases.append(np.eye(p)[:, array])
        else:
            raise InputError(
                f"each of blocks must be feature indices below {p} or a basis, got {block!r}"
            )
    joint = np.hstack(bases) if bases else np.zeros((p, 0))
    if joint.shape != (p, p) or np.abs(joint.T @ joint - np.eye(p)).max() > 1e-8:
        either = f"name each of the {p} features exactly once"
        raise InputError(
            f"blocks must {either}, or be orthonormal bases that fill R^{p}"
        )
    return bases


def _whitening(covariance: Array) -> Array:
    """A matrix T (p, p) with T S Tᵀ = I; features get unit variance first, so that units cost no digits."""
    scale = np.sqrt(np.diagonal(covariance))
    values, vectors = np.linalg.eigh(covariance / np.outer(scale, scale))
    return np.asarray((vectors / np.sqrt(values)) @ vectors.T / scale)


# -- in words --


def findings(
    fit: InvariantSubspaceDecomposition, moments: WindowedMoments
) -> list[str]:
    """Reasons for care, in words; empty when there are none."""
    notes = _selection_finding(moments) if fit.covariances_used_ == "chosen" else []
    if fit.recipe_used_ == "windowed":
        if fit.covariances_used_ == "chosen" and not notes and moments.offered is None:
            notes.append(
                "the log has chosen actions only; offered actions would give a more accurate basis"
            )
        notes += _windowed_findings(fit, moments)
    elif fit.varies_.all():
        notes.append(
            "nothing counts as invariant: the result is an ordinary linear policy"
        )
    if not fit.converged_:
        notes.append(
            "the search for the basis has not converged; treat the blocks with care"
        )
    return notes


def _windowed_findings(
    fit: InvariantSubspaceDecomposition, moments: WindowedMoments
) -> list[str]:
    p = moments.dim
    fewest = int(moments.counts.min())
    tails = float(fit.tail_weights_.mean())
    lower, upper = np.log(0.01 * fit.alpha / len(fit.blocks_)), np.log(0.05)
    close = np.flatnonzero(
        fit.testable_ & (fit.log_p_values_ > lower) & (fit.log_p_values_ < upper)
    )
    untested, better = np.flatnonzero(~fit.testable_), ROUNDS_PER_FEATURE * p
    reasons = {
        f"few rounds per window: {fewest} for {p} features; {better} or more are better": fewest
        < better,
        f"heavy-tailed features: the variance of correlations is inflated {tails:.1f}-fold;"
        " the tests allow for it, extreme rows still weigh much": tails > HEAVY_TAILS,
        f"block {_numbers(untested)} cannot be tested, because fewer than two windows inform some"
        " direction of it; it counts as varying": len(untested),
        f"weak evidence: block {_numbers(close)} is close to the line between stable and varying": len(
            close
        ),
        "the windows do not distinguish directions: their covariances are alike, so that other blocks fit"
        " them as well": not fit.distinct_,
    }
    uninformed = partial_findings(fit.paths_, fit.names(p), moments.counts)
    notes = [sentence for sentence, holds in reasons.items() if holds]
    return notes + exactness_findings(fit.noise_scale_**2, moments) + uninformed


def exactness_findings(
    noise_variance: float, moments: WindowedMoments, *, levels: bool = False
) -> list[str]:
    """Whether the rewards leave no noise at all; levels: whether their mean was to be explained as well."""
    varied = float(moments.reward_square.sum()) / moments.rounds
    level = float(moments.counts @ moments.reward_mean**2) / moments.rounds
    if varied <= EXACT * level:
        return [
            "rewards hardly vary within any window: there is nothing to learn from them"
        ]
    if noise_variance > 4.0 * EXACT * (varied + levels * level):
        return []
    return [
        "rewards are an exact function of the features, no noise is left: were they computed from them, or"
        " does a feature give the reward away?"
    ]


def partial_findings(
    paths: CoefficientPaths, names: Sequence[str], counts: Array
) -> list[str]:
    """Which coefficients windows do not inform, in words; counts (m,): how many rounds each has."""
    p = len(names)
    uninformed = uninformed_features(paths)
    notes = []
    short = int((counts < p + 2).sum())
    if short:
        notes.append(
            f"{short} of {len(counts)} windows have fewer than {p + 2} rounds: they tell little"
        )
    by_features: dict[tuple[int, ...], list[int]] = {}
    for window in np.flatnonzero(uninformed.any(axis=1) & (counts >= p + 2)).tolist():
        by_features.setdefault(tuple(np.flatnonzero(uninformed[window])), []).append(
            window
        )
    for features, windows in by_features.items():
        named = ", ".join(names[j] for j in features[:MOST_NAMED])
        more = (
            f" and {len(features) - MOST_NAMED} more"
            if len(features) > MOST_NAMED
            else ""
        )
        named = "single features" if len(features) == p else f"{named}{more}"
        which = (
            f"window {_numbers(windows)} does"
            if len(windows) == 1
            else f"windows {_numbers(windows)} do"
        )
        notes.append(f"{which} not tell the coefficients of {named}; the others do")
    return notes


def uninformed_features(paths: CoefficientPaths) -> np.ndarray[Any, Any]:
    """Which coefficients each window does not inform, because its features do not vary by themselves: (m,
    p).
    """
    result = np.zeros(paths.coefficients.shape, dtype=bool)
    if paths.partial is not None:
        for window, root in zip(
            paths.partial.windows, paths.partial.roots, strict=True
        ):
            size = np.sqrt((root**2).sum(axis=1))
            scaled = root / np.where(size > 0.0, size, 1.0)[:, None]
            left, values, _ = np.linalg.svd(scaled, full_matrices=True)
            rank = int((values > SEEN).sum())
            result[window] = np.abs(left[:, rank:]).max(axis=1, initial=0.0) > INVOLVED
    return result


def _numbers(places: Iterable[int]) -> str:
    return ", ".join(str(int(place) + 1) for place in places)


def _selection_finding(moments: WindowedMoments) -> list[str]:
    """Whether the chosen features are far from centred, over the windows that vary in every direction.

    By the mean of the squared Mahalanobis distances of their means from zero, less its noise.
    """
    singular = singular_roots(moments.chosen, moments.dim)
    regular = [window for window in range(moments.windows) if window not in singular]
    if not regular:
        return []
    mean, counts = moments.feature_mean[regular], moments.counts[regular]
    solved = np.linalg.solve(
        moments.gram[regular] / counts[:, None, None], mean[:, :, None]
    )[:, :, 0]
    shift = float((np.einsum("mi,mi->m", mean, solved) - moments.dim / counts).mean())
    if shift <= SELECTIVE_SHIFT:
        return []
    return [
        "only chosen actions were used, and their features are far from centred"
        f" (mean shift {np.sqrt(shift):.1f} standard deviations): if the logging policy preferred"
        " some actions, the basis is distorted; log the offered actions"
    ]


def block_spread(
    fit: InvariantSubspaceDecomposition, block: int
) -> tuple[float, float]:
    """How far the coefficients of a block move from window to window, and their sampling error, per
    direction.

    The first is the standard deviation τ over windows beyond sampling noise, by moments: the Wald statistic
    exceeds its degrees of freedom by τ²·(Σ tr P_i − tr((ΣP_i)⁻¹ΣP_i²)), P_i the precisions (DerSimonian &
    Laird 1986). The second is the standard error in one window of a direction of average precision.
    """
    inside = direction_paths(fit, fit.blocks_[block])
    precisions = inside.precisions()
    m, d = inside.coefficients.shape
    known = m * d if inside.partial is None else informed_directions(precisions)
    error = inside.coefficients - inside.weighted_mean()[0]
    excess = np.einsum("mi,mij,mj->", error, precisions, error) - (known - d)
    total = precisions.sum(axis=0)
    leverage = np.trace(total) - np.trace(
        np.linalg.solve(total, (precisions @ precisions).sum(axis=0))
    )
    moved = excess / leverage if leverage > LEAST_LEVERAGE * np.trace(total) else 0.0
    return float(np.sqrt(max(moved, 0.0))), float(np.sqrt(known / np.trace(total)))


def detectable_in_block(fit: InvariantSubspaceDecomposition, block: int) -> float:
    """Drift of one direction of a block, as a standard deviation between windows, that its test would have
    detected in about four of five such logs.
    """
    precisions = direction_paths(fit, fit.blocks_[block]).precisions()
    d = precisions.shape[1]
    known = np.sort(np.einsum("mii->m", precisions) / d)[
        1:
    ]  # contrasts: all windows but one
    return detectable_drift(
        known, 0.5 * fit.alpha / len(fit.blocks_), idle=(d - 1) * len(known)
    )


def block_verdict(fit: InvariantSubspaceDecomposition, block: int) -> str:
    """What is known of a block: it drifts, it cannot be tested, it is stable, or no drift was detected.

    Stable is said only if a drift of half the size of its coefficients would have been detected.
    """
    if fit.recipe_used_ == "published":  # which does not test
        return DRIFTS if fit.varies_[block] else "stable"
    if not fit.testable_[block]:
        return "cannot tell"
    if fit.varies_[block]:
        return DRIFTS
    inside = direction_paths(fit, fit.blocks_[block])
    size = float(np.linalg.norm(inside.weighted_mean()[0]))
    return (
        "stable"
        if detectable_in_block(fit, block) <= SUPPORTED * size
        else NOT_DETECTED
    )


def direction_paths(
    fit: InvariantSubspaceDecomposition, columns: Array
) -> CoefficientPaths:
    """Paths of the coordinates of γ along the given columns of the basis: γ_t = basis · coordinates.

    The basis of a whitened fit is not orthogonal, hence its inverse.
    """
    dual = np.linalg.inv(fit.basis_).T
    return fit.paths_.along(dual[:, columns])


def p_value_words(log_p: float) -> str:
    """A p-value for people, also far below what a float can hold."""
    if log_p > np.log(1e-4):
        return f"{np.exp(log_p):.3g}"
    exponent = int(np.floor(log_p / np.log(10.0)))
    leading = round(float(np.exp(log_p - exponent * np.log(10.0))))
    return f"{leading}e{exponent}" if leading < 10 else f"1e{exponent + 1}"


def _summary(fit: InvariantSubspaceDecomposition) -> str:
    """The table behind `summary()`; the overlapping windows of recipe="published" give no p-values and no
    drift sd.
    """
    published, split = fit.recipe_used_ == "published", fit.split_
    wide = 7 if published else len(NOT_DETECTED)
    columns = "statistic" if published else "p-value   drift sd   error sd   detectable"
    lines = [
        "Invariant subspace decomposition"
        + (", published recipe" if published else ""),
        f"  rounds {fit.rounds_:,} in {fit.windows_} {'overlapping ' * published}windows, {split.dim}"
        f" features, basis from {fit.covariances_used_} actions",
        f"  drifting: {split.residual_dim} of {split.dim} dimensions"
        f"   no drift detected: {split.invariant_dim}   noise sd {fit.noise_scale_:.3g}"
        f"   λ0 {fit.min_eigenvalue_:.3g}",
        "",
        f"  block  dim  {'verdict':<{wide}}   {columns}   main features",
    ]
    for index, block in enumerate(fit.blocks_):
        if published:
            evidence = f"{fit.statistics_[index]:>9.3g}"
        else:
            numbers = (*block_spread(fit, index), detectable_in_block(fit, index))
            evidence = f"{p_value_words(fit.log_p_values_[index]):>7}   {{:>8.3g}}   {{:>8.3g}}   {{:>10.3g}}"
            evidence = evidence.format(*numbers)
        verdict = block_verdict(fit, index)
        lines.append(
            f"  {index + 1:>5}  {len(block):>3}  {verdict:<{wide}}   {evidence}   {main_features(fit, index)}"
        )
    legend = (
        f"  p-values: equal coefficients in all windows; level {fit.alpha:g} shared by the blocks\n"
        "  detectable: drift sd that four of five such logs show; stable: half the coefficients are more"
    )
    if published:
        legend = (
            "  statistic: mean |correlation| of rest and prediction;"
            f" stable below {fit.threshold_:.3g} (cross-validated)\n  no p-values: this recipe does not test"
        )
    return "\n".join(
        [*lines, "", legend, *(f"  note: {finding}" for finding in fit.findings_)]
    )


def readable_directions(fit: InvariantSubspaceDecomposition) -> Array:
    """The basis with each block turned to axes that are as close as can be to single features: (p, p).

    Directions within a block are only defined as a group, and this choice is the one people can read. Of the
    block's weights W (p, d) in standard deviations, a QR factorisation with pivots finds d features, and the
    axes are W·Q, Q the rotation with which the rows of these features are closest to the identity.
    """
    basis = np.array(fit.basis_)
    weights = direction_weights(fit, basis)
    for block in fit.blocks_:
        _, _, order = linalg.qr(weights[:, block].T, pivoting=True, mode="economic")
        left, _, right = np.linalg.svd(weights[order[: len(block)]][:, block])
        basis[:, block] = with_fixed_signs(basis[:, block] @ (left @ right).T)
    return basis


def direction_weights(fit: InvariantSubspaceDecomposition, basis: Array) -> Array:
    """Weights (p, d) of the features, in standard deviations, in each direction of the basis (p, d)."""
    scale = np.sqrt(np.diagonal(fit.window_covariances_.mean(axis=0)))
    return np.asarray(basis * scale[:, None])


def mixture_name(weights: Array, names: Sequence[str]) -> str:
    """The combination of features that a direction is, from its weights (p,).

    Weights are relative to the largest. Those below a tenth of it are not named, but for the second; at most
    four are.

    >>> mixture_name(np.array([0.8, -0.4, 0.0]), ["age", "hour", "price"])
    'age − 0.5·hour'
    """
    relative = weights / np.abs(weights).max()
    main = np.argsort(-np.abs(relative), kind="stable")
    least = min(LEAST_WEIGHT, *np.abs(relative[main[1:2]]))
    terms = [j for j in main if abs(relative[j]) >= max(least, RELATIVE_ROUNDING)]
    words = ""
    for j in terms[:MOST_NAMED]:
        minus = relative[j] < 0.0
        sign = (" − " if minus else " + ") if words else ("−" if minus else "")
        size = f"{abs(relative[j]):.1g}"
        words += sign + (names[j] if size == "1" else f"{size}·{names[j]}")
    return words + (" + …" if len(terms) > MOST_NAMED else "")


def main_features(fit: InvariantSubspaceDecomposition, block: int) -> str:
    """Names of the features that weigh most in a block, at most five."""
    columns = fit.blocks_[block]
    weight = (fit.basis_[:, columns] ** 2).sum(axis=1)
    main = np.argsort(-weight, kind="stable")[: max(len(columns), 3)]
    return ", ".join(fit.names(len(weight))[j] for j in main[:5])
