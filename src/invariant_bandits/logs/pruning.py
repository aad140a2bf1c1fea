"""Pruning: joined windows and features left out, so that the moments of a log can be estimated."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from invariant_bandits.checks import (
    InputError,
)
from invariant_bandits.features.collinearity import Dropped, collinear_features
from invariant_bandits.features.maps import FeatureMap, FeatureOptions
from invariant_bandits.logs.windows import join_sparse
from invariant_bandits.moments.windowed import WindowedMoments


@dataclass(frozen=True)
class Pruned:
    """Moments that can be estimated, and what had to be done for it.

    Parameters
    ----------
    moments : WindowedMoments
        Moments of the features of `feature_map`.
    feature_map : FeatureMap
        The map without the features that were left out.
    dropped : tuple of Dropped
        Which features were left out and why.
    notes : tuple of str
        What was done, in words.
    """

    moments: WindowedMoments
    feature_map: FeatureMap
    dropped: tuple[Dropped, ...]
    notes: tuple[str, ...]


def prune(
    moments: WindowedMoments,
    feature_map: FeatureMap,
    options: FeatureOptions | None = None,
) -> Pruned:
    """Leave out what no window can estimate, after joining windows with hardly any rounds.

    The map is learned from the joined windows.

    A category that does not occur in a window is constant there: that window is silent about it, the others
    are not.

    Parameters
    ----------
    moments : WindowedMoments
        Moments of the features that `feature_map` expands to or, without `options`, of its features.
    feature_map : FeatureMap
        What the features are.
    options : FeatureOptions, optional
        What to learn from the moments; None if the map has been learned before.

    >>> import numpy as np
    >>> from invariant_bandits.features.columns import Column
    >>> from invariant_bandits.features.rows import RowFeatures
    >>> rng = np.random.default_rng(0)
    >>> features = rng.normal(size=(90, 3))
    >>> features[:30, 1], features[:, 2] = 5.0, 1.0
    >>> moments = WindowedMoments.from_arrays(features, features[:, 0], windows=3)
    >>> pruned = prune(moments, RowFeatures((Column("price"), Column("discount"), Column("tax"))))
    >>> pruned.feature_map.names, str(pruned.dropped[0])
    (('price', 'discount'), 'tax is constant within every window')
    """
    joined, notes = join_sparse(moments)
    dropped: tuple[Dropped, ...] = ()
    if options is not None:
        feature_map, dropped, _ = feature_map.learned(joined, options)
        joined = feature_map.standardise_moments(joined)
    unusable = {
        feature.name: feature
        for feature in collinear_features(joined, feature_map.names)
    }
    if len(unusable) == joined.dim:
        raise InputError("features: none varies within any window; use fewer windows")
    if unusable:
        stays = np.array(
            [j for j, name in enumerate(feature_map.names) if name not in unusable]
        )
        joined = joined.rescaled(stays, np.zeros(len(stays)), np.ones(len(stays)))
        feature_map = feature_map.without(unusable)
    return Pruned(joined, feature_map, (*dropped, *unusable.values()), tuple(notes))
