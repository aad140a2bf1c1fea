"""Logs as they are → moments that can be estimated: windows with hardly any rounds join, unusable features go."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from invariant_bandits.checks import InputError
from invariant_bandits.logs.collinearity import Dropped, collinear_features
from invariant_bandits.logs.features import FeatureMap, FeatureOptions
from invariant_bandits.moments.windowed import WindowedMoments

HARDLY_ANY = 10
"""Rounds below which a window is not worth one of its own."""


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


def fewest_rounds(dim: int) -> int:
    """Rounds that a window of `dim` features should have at least: three per coefficient, intercept included."""
    return 3 * (dim + 1)


def prune(moments: WindowedMoments, feature_map: FeatureMap, options: FeatureOptions | None = None) -> Pruned:
    """Join windows with hardly any rounds to a neighbour, learn the map, leave out what no window can estimate.

    A category that does not occur in a window is constant there: that window is silent about it, the others are not.

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
    >>> features = rng.normal(size=(90, 3))
    >>> features[:30, 1], features[:, 2] = 5.0, 1.0
    >>> moments = WindowedMoments.from_arrays(features, features[:, 0], windows=3)
    >>> pruned = prune(moments, FeatureMap((Column("price"), Column("discount"), Column("tax"))))
    >>> pruned.feature_map.names, str(pruned.dropped[0])
    (('price', 'discount'), 'tax is constant within every window')
    """
    joined, notes = _joined(moments)
    dropped: list[Dropped] = []
    if options is not None:
        feature_map, dropped = feature_map.learned(joined, options)
        joined = feature_map.finish_moments(joined)
    unusable = {one.name: one for one in collinear_features(joined, feature_map.names)}
    if unusable:
        joined, feature_map = _without(unusable, joined, feature_map)
    return Pruned(joined, feature_map, (*dropped, *unusable.values()), tuple(notes))


def _joined(moments: WindowedMoments) -> tuple[WindowedMoments, list[str]]:
    """Moments without windows of hardly any rounds, and what was done in words; at least two windows must remain.

    What is hardly any: fewer than ten, if at least two windows have three rounds per coefficient and these have most of
    the rounds; otherwise what is fewer than that.
    """
    enough = fewest_rounds(moments.dim)
    long = moments.counts >= enough
    carried = long.sum() >= 2 and 2.0 * float(moments.counts[long].sum()) >= moments.rounds
    least = min(HARDLY_ANY, enough) if carried else enough
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


def _without(
    dropped: dict[str, Dropped], moments: WindowedMoments, feature_map: FeatureMap
) -> tuple[WindowedMoments, FeatureMap]:
    if len(dropped) == moments.dim:
        raise InputError("features: none varies within any window; use fewer windows")
    stays = np.array([j for j, name in enumerate(feature_map.names) if name not in dropped])
    return moments.rescaled(stays, np.zeros(len(stays)), np.ones(len(stays))), feature_map.without(dropped)
