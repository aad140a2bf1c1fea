"""Invariant policy learning in its linear form (Saengkyongam et al. 2023)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import combinations
from typing import Any, NamedTuple, Self

import numpy as np
from scipy import special

from invariant_bandits.checks import Array, probability
from invariant_bandits.decomposition.paths import check_logged
from invariant_bandits.moments.windowed import WindowedMoments
from invariant_bandits.policies.past import Past
from invariant_bandits.policies.registry import register_policy
from invariant_bandits.storage import StateSchema
from invariant_bandits_reproduction.policies.affine_subspace import AffineLinUCB

MOST_FOR_ALL_SETS = 10
"""Up to so many features every set of them is tried; beyond, features are dropped one by one."""
SMALLEST_SQUARES = 1e-12
"""Floor of a window's unexplained squares, so that no window has infinite weight."""


class SetFit(NamedTuple):
    """The regression on some features: coefficients (p,), 0 for the others, how far they differ between
    windows (χ² per degree of freedom) with its p-value, and the sum of squares that they explain.
    """

    coefficients: Array
    misfit: float
    p_value: float
    explained: float


def fit_set(moments: WindowedMoments, columns: list[int]) -> SetFit:
    """Fit the regression on these features, with an intercept per window."""
    # Least squares in every window: gram (M, k, k), cross and solutions (M, k).
    gram = moments.gram[:, columns][:, :, columns]
    cross = moments.cross[:, columns]
    in_window = np.linalg.solve(gram, cross[:, :, None])[:, :, 0]
    explained_in_window = np.einsum("mi,mi->m", in_window, cross)
    unexplained = np.maximum(
        moments.reward_square - explained_in_window, SMALLEST_SQUARES
    )
    freedom_left = np.maximum(moments.counts - len(columns) - 1.0, 1.0)
    noise = unexplained / freedom_left
    # The common coefficients weigh every window by the precision of its own.
    weights = gram / noise[:, None, None]
    weighted = np.einsum("mij,mj->i", weights, in_window)
    common = np.linalg.solve(weights.sum(axis=0), weighted)
    # Cochran's Q: χ² with (M − 1) k degrees of freedom if all windows agree.
    apart = in_window - common
    misfit = float(np.einsum("mi,mij,mj->", apart, weights, apart))
    freedom = (moments.windows - 1) * len(columns)
    coefficients = np.zeros(moments.dim)
    coefficients[columns] = common
    return SetFit(
        coefficients,
        misfit=misfit / freedom,
        p_value=float(special.chdtrc(freedom, misfit)),
        explained=float(common @ cross.sum(axis=0)),
    )


def fitted_sets(moments: WindowedMoments) -> Iterator[SetFit]:
    """Fits of all sets of features, or of sets that lose feature after feature, the worst first."""
    columns = list(range(moments.dim))
    if moments.dim <= MOST_FOR_ALL_SETS:
        for size in range(1, moments.dim + 1):
            for subset in combinations(columns, size):
                yield fit_set(moments, list(subset))
        return
    yield fit_set(moments, columns)
    while len(columns) > 1:
        subsets = [_without(column, columns) for column in columns]
        fits = [fit_set(moments, subset) for subset in subsets]
        best = min(range(len(fits)), key=lambda index: fits[index].misfit)
        columns = subsets[best]
        yield fits[best]


def _without(column: int, columns: list[int]) -> list[int]:
    return [other for other in columns if other != column]


@register_policy("invariant-set")
class InvariantSetPolicy(AffineLinUCB):
    """Greedy policy that uses only features whose coefficients are equal in all windows (periods) of the
    logs.

    The policy is the linear form of invariant policy learning (Saengkyongam et al. 2023). Among the sets of
    features with equal coefficients in all windows, `from_past` takes the set that explains most of the
    rewards. The policy does not learn online, so features whose coefficients change cannot mislead it. If no
    set of features has equal coefficients, all actions have the same score.

    The class `AffineLinUCB` documents the parameters.

    >>> from invariant_bandits_reproduction.policies import InvariantSetPolicy
    >>> import numpy as np, invariant_bandits as ib
    >>> rng = np.random.default_rng(0)
    >>> features = rng.normal(size=(800, 2))
    >>> flips = np.repeat([1.0, -1.0], 400)
    >>> rewards = features[:, 0] + flips * features[:, 1] + rng.normal(size=800)
    >>> moments = ib.WindowedMoments.from_arrays(features, rewards, windows=4)
    >>> policy = InvariantSetPolicy.from_past(ib.Past(moments=moments))
    >>> policy.coefficients.round(1).tolist()
    [1.0, 0.0]
    """

    starting = ("level", "memory")

    @classmethod
    def from_past(cls, past: Past, *, level: float = 0.01, **options: Any) -> Self:
        """Find the best set of features with equal coefficients in all windows (periods) of the logs and
        return the policy.

        A set of features is rejected if the test of equal coefficients has a p-value below the given `level`.
        """
        probability("level", level)
        check_logged(past.moments)
        invariant = [fit for fit in fitted_sets(past.moments) if fit.p_value >= level]
        best = max(invariant, key=lambda fit: fit.explained, default=None)
        center = np.zeros(past.dim) if best is None else best.coefficients
        return cls(center, (), **{**cls.known_from(past), **options})

    @classmethod
    def state_schema(
        cls, settings: Mapping[str, Any], names: Collection[str]
    ) -> StateSchema:
        """As that of AffineLinUCB."""
        return super().state_schema(settings, names)
