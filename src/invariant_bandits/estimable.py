"""Logs as they are → moments from which every window can be estimated: short windows join, unusable features go."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from invariant_bandits.checks import InputError
from invariant_bandits.features import Dropped, FeatureMap, collinear_features
from invariant_bandits.moments import WindowedMoments


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


def make_estimable(moments: WindowedMoments, feature_map: FeatureMap) -> Estimable:
    """Join windows with too few rounds to a neighbour, then leave out features that some window cannot estimate.

    A category that does not occur in a window is constant there; no coefficient of it can be had in that window.
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
    dropped: dict[str, Dropped] = {}
    for window in range(joined.windows):
        for one in collinear_features(joined.stretch(window, window + 1), feature_map.names):
            dropped.setdefault(one.name, replace(one, window=window))
    if dropped:
        if len(dropped) == moments.dim:
            raise InputError("features: none can be estimated in every window; use fewer windows")
        stays = np.array([j for j, name in enumerate(feature_map.names) if name not in dropped])
        joined = joined.rescaled(stays, np.zeros(len(stays)), np.ones(len(stays)))
        feature_map = feature_map.without(dropped)
        notes.append(
            f"{len(dropped)} feature{'s' if len(dropped) > 1 else ''} left out because some window cannot estimate"
            " them; fewer windows may keep them"
        )
    return Estimable(joined, feature_map, tuple(dropped.values()), tuple(notes))


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
