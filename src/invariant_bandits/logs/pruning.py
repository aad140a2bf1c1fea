"""Logs as they are → moments from which every window can be estimated: short windows join, unusable features go."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from invariant_bandits.checks import InputError
from invariant_bandits.logs.collinearity import Dropped, collinear_features
from invariant_bandits.logs.features import FeatureMap, FeatureOptions
from invariant_bandits.moments.windowed import WindowedMoments


@dataclass(frozen=True)
class Pruned:
    """Moments of which every window can be estimated, and what had to be done for it.

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


def fewest_rounds(dim: int) -> int:
    """Rounds that a window of `dim` features should have at least: three per coefficient, intercept included."""
    return 3 * (dim + 1)


def prune(moments: WindowedMoments, feature_map: FeatureMap, options: FeatureOptions | None = None) -> Pruned:
    """Join windows with too few rounds to a neighbour, learn the map, leave out what some window cannot estimate.

    A category that does not occur in a window is constant there; no coefficient of it can be had in that window.

    Parameters
    ----------
    moments : WindowedMoments
        Moments of the features that `feature_map` expands to or, without `options`, of its features.
    feature_map : FeatureMap
        What the features are.
    options : FeatureOptions, optional
        What to learn from the moments; None if the map has been learned before.

    >>> import numpy as np
    >>> from invariant_bandits.logs.features import Column
    >>> rng = np.random.default_rng(0)
    >>> features = rng.normal(size=(90, 2))
    >>> features[:30, 1] = 5.0
    >>> moments = WindowedMoments.from_arrays(features, features[:, 0], windows=3)
    >>> pruned = prune(moments, FeatureMap((Column("price"), Column("discount"))))
    >>> pruned.feature_map.names, str(pruned.dropped[0])
    (('price',), 'discount is constant within window 1')
    """
    joined, notes = _joined(moments)
    everywhere: list[Dropped] = []
    if options is not None:
        feature_map, everywhere = feature_map.learned(joined, options)
        joined = feature_map.finish_moments(joined)
    somewhere = _dropped_somewhere(joined, feature_map)
    if somewhere:
        joined, feature_map = _without(somewhere, joined, feature_map)
        which = "a feature was" if len(somewhere) == 1 else f"{len(somewhere)} features were"
        notes.append(f"{which} left out because some window cannot estimate it; fewer windows may keep it")
    return Pruned(joined, feature_map, (*everywhere, *somewhere.values()), tuple(notes))


def _joined(moments: WindowedMoments) -> tuple[WindowedMoments, list[str]]:
    """Moments without short windows, and what was done in words; at least two windows must remain."""
    least = fewest_rounds(moments.dim)
    joined = _without_short_windows(moments, least)
    if joined.windows < 2:
        raise InputError(
            f"windows: at least 2 with {least} rounds each are needed for {moments.dim} features,"
            f" the log has {moments.rounds:,} usable rounds in {moments.windows}"
        )
    if joined.windows == moments.windows:
        return joined, []
    short = int((moments.counts < least).sum())
    note = (
        f"{short} of {moments.windows} windows had fewer than {least} rounds and were joined to a neighbour:"
        f" {joined.windows} windows remain"
    )
    return joined, [note]


def _without_short_windows(moments: WindowedMoments, least: int) -> WindowedMoments:
    """Neighbours merged from the first window on until each has `least` rounds; what is left joins the last."""
    starts, rounds = [0], 0.0
    for window, count in enumerate(moments.counts):
        if rounds >= least:
            starts.append(window)
            rounds = 0.0
        rounds += count
    if rounds < least and len(starts) > 1:
        starts.pop()
    return moments if len(starts) == moments.windows else moments.regrouped(np.array(starts))


def _dropped_somewhere(moments: WindowedMoments, feature_map: FeatureMap) -> dict[str, Dropped]:
    """Features that some window cannot estimate, by name, with the first such window."""
    found: dict[str, Dropped] = {}
    for window in range(moments.windows):
        for one in collinear_features(moments.stretch(window, window + 1), feature_map.names):
            found.setdefault(one.name, replace(one, window=window))
    return found


def _without(
    dropped: dict[str, Dropped], moments: WindowedMoments, feature_map: FeatureMap
) -> tuple[WindowedMoments, FeatureMap]:
    if len(dropped) == moments.dim:
        raise InputError("features: none can be estimated in every window; use fewer windows")
    stays = np.array([j for j, name in enumerate(feature_map.names) if name not in dropped])
    return moments.rescaled(stays, np.zeros(len(stays)), np.ones(len(stays))), feature_map.without(dropped)
