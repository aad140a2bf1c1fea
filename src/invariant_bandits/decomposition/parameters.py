"""The parameters of the estimator: kept as given, after the conventions of scikit-learn, and checked when fitting."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from invariant_bandits.checks import Array, InputError, finite_array, one_of, probability, whole_number
from invariant_bandits.decomposition.component import COMPONENTS
from invariant_bandits.decomposition.split import Split
from invariant_bandits.moments.windowed import WindowedMoments

METRICS = ("euclidean", "whitened")
COVARIANCES = ("auto", "offered", "chosen")
RECIPES = ("windowed", "published")


class Parameters:
    """What may be chosen before fitting; `InvariantSubspaceDecomposition` says what each parameter means."""

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

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self).__init__).parameters
        given = {name: value for name, value in self.get_params().items() if value is not defaults[name].default}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in given.items())})"

    def names(self, dim: int) -> list[str]:
        """The feature names, or x0, x1, … where none were given."""
        if self.feature_names is None:
            return [f"x{index}" for index in range(dim)]
        return [str(name) for name in self.feature_names]


def check_windowed(given: Parameters, moments: WindowedMoments) -> None:
    """Raise InputError unless the parameters fit each other and the moments."""
    one_of("metric", given.metric, METRICS)
    one_of("covariances", given.covariances, COVARIANCES)
    one_of("component", given.component, COMPONENTS)
    probability("alpha", given.alpha)
    probability("block_alpha", given.block_alpha)
    if given.covariances == "offered" and moments.offered is None:
        raise InputError("covariances='offered' needs the offered actions, but the moments hold chosen ones only")
    p = moments.dim
    if given.invariant_dim is not None and whole_number("invariant_dim", given.invariant_dim, 0) > p:
        raise InputError(f"invariant_dim must be at most the number of features, {p}, got {given.invariant_dim}")
    if given.split is not None:
        _check_split(given, p)
    if (given.split is not None or given.blocks is not None) and given.metric != "euclidean":
        raise InputError("metric='whitened' finds its own subspaces: give no split and no blocks with it")
    _check_names(given, p)
    if given.blocks is not None:
        block_bases(given.blocks, p)


def check_published(given: Parameters, p: int) -> None:
    """Refuse what contradicts the published recipe; alpha, block_alpha and component play no part in it."""
    one_of("metric with recipe='published'", given.metric, ("euclidean",))
    one_of("covariances with recipe='published'", given.covariances, ("auto", "chosen"))
    for name in ("invariant_dim", "blocks", "split"):
        if getattr(given, name) is not None:
            raise InputError(f"{name} cannot be fixed with recipe='published', which finds it from the rows")
    _check_names(given, p)


def _check_split(given: Parameters, p: int) -> None:
    if given.blocks is not None or given.invariant_dim is not None:
        raise InputError("split fixes everything: give it without blocks and invariant_dim")
    if not isinstance(given.split, Split):
        raise InputError(f"split must be a Split, got {type(given.split).__name__}")
    if given.split.dim != p:
        raise InputError(f"split must have dim {p}, got {given.split.dim}")


def _check_names(given: Parameters, p: int) -> None:
    if given.feature_names is not None and len(given.feature_names) != p:
        raise InputError(f"feature_names must have {p} entries, got {len(given.feature_names)}")


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
            raise InputError(f"each of blocks must be feature indices below {p} or a (p, d) basis, got {block!r}")
    joint = np.hstack(bases) if bases else np.zeros((p, 0))
    if joint.shape != (p, p) or np.abs(joint.T @ joint - np.eye(p)).max() > 1e-8:
        raise InputError(
            f"blocks must name each of the {p} features exactly once, or be orthonormal bases that fill R^{p}"
        )
    return bases
