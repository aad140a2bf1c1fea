"""Logs as they are → moments from which every window can be estimated: short windows join, unusable features go."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from invariant_bandits.checks import InputError
from invariant_bandits.logs.features import Dropped, FeatureMap, FeatureOptions, collinear_features
from invariant_bandits.moments.windowed import WindowedMoments


@dataclass(frozen=True)
class Estimable:
    """Moments that pass `check_estimable`, the map of their features, and what had to be done for it."""

    moments: WindowedMoments
    feature_map: FeatureMap
    dropped: tuple[Dropped, ...]
    notes: tuple[str, ...]


def fewest_rounds(dim: int) -> int:
    """Rounds that a window of `dim` features should have at least: three per coefficient, intercept included."""
    return 3 * (dim + 1)


def make_estimable(
    moments: WindowedMoments, feature_map: FeatureMap, options: FeatureOptions | None = None
) -> Estimable:
    """Join windows with too few rounds to a neighbour, learn the map, leave out what some window cannot estimate.

    moments: of the features that `feature_map` expands to, and `options` what to learn from them; without options the
    map has been learned before and the moments are those of its features. A category that does not occur in a window
    is constant there; no coefficient of it can be had in that window.
    """
    least = fewest_rounds(moments.dim)
    joined = _without_short_windows(moments, least)
    if joined.windows < 2:
        raise InputError(
            f"windows: at least 2 with {least} rounds each are needed for {moments.dim} features,"
            f" the log has {moments.rounds:,} usable rounds in {moments.windows}"
        )
    notes = []
    if joined.windows < moments.windows:
        short = int((moments.counts < least).sum())
        notes.append(
            f"{short} of {moments.windows} windows had fewer than {least} rounds and were joined to a neighbour:"
            f" {joined.windows} windows remain"
        )
    everywhere: list[Dropped] = []
    if options is not None:
        feature_map, everywhere = feature_map.learned(joined, options)
        joined = feature_map.finish_moments(joined)
    somewhere: dict[str, Dropped] = {}
    for window in range(joined.windows):
        for one in collinear_features(joined.stretch(window, window + 1), feature_map.names):
            somewhere.setdefault(one.name, replace(one, window=window))
    if somewhere:
        if len(somewhere) == joined.dim:
            raise InputError("features: none can be estimated in every window; use fewer windows")
        stays = np.array([j for j, name in enumerate(feature_map.names) if name not in somewhere])
        joined = joined.rescaled(stays, np.zeros(len(stays)), np.ones(len(stays)))
        feature_map = feature_map.without(somewhere)
        which = "a feature was" if len(somewhere) == 1 else f"{len(somewhere)} features were"
        notes.append(f"{which} left out because some window cannot estimate it; fewer windows may keep it")
    return Estimable(joined, feature_map, (*everywhere, *somewhere.values()), tuple(notes))


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
