"""From a log of labelled arms to what a policy may know of them: the bridge from reading to statistics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.decomposition.arm_layout import ArmLayout
from invariant_bandits.decomposition.arm_statistics import CHUNK, ArmStatistics
from invariant_bandits.decomposition.logistic import LogitSums, fit_logistic
from invariant_bandits.logs.arm_features import ArmFeatures
from invariant_bandits.logs.log import Log
from invariant_bandits.logs.reading_arms import ArmLogMoments, read_arm_moments, read_arm_sample
from invariant_bandits.moments.windowed import WindowedMoments


def linear_statistics(features: ArmFeatures, moments: WindowedMoments) -> ArmStatistics:
    """What moments of φ(x, a) say of the arms if expected rewards are linear in the context."""
    gram, cross, squares = _sums(moments)
    return ArmStatistics.from_sums(gram, cross, squares, *_about(features, gram))


def logit_statistics(log: Log, read: ArmLogMoments, how: Mapping[str, Any]) -> ArmStatistics:
    """The same for rewards that are 0 or 1, on the scale of their log-odds.

    Two more passes: over a sample, for coefficients to expand about, and over the whole log.

    Parameters
    ----------
    log : Log
        Opened.
    read : ArmLogMoments
        As read from it.
    how : mapping
        How `read_arm_moments` was told to cut and read it: windows, every, edges, engine, address.
    """
    features = read.features
    start = _logistic_start(log, features, ArmLayout.of_features(features))
    weighted = read_arm_moments(log, features=features, logit_at=start, keep_going=True, **how)
    information, scores, _ = _sums(weighted.moments.of_features())
    spread = float(weighted.moments.gram[..., 0, 0].sum())
    gram, _, _ = _sums(read.moments.of_features())
    return ArmStatistics.on_logit_scale(information, scores, spread, *_about(features, gram))


def _sums(moments: WindowedMoments) -> tuple[Array, Array, float]:
    """Σφφᵀ (m, p, p) and Σφr (m, p) of every window, and Σr² of the whole log."""
    sums = moments.chosen
    whole = sums.scatter + sums.count[:, None, None] * sums.mean[:, :, None] * sums.mean[:, None, :]
    return whole[:, :-1, :-1], whole[:, :-1, -1], float(whole[:, -1, -1].sum())


def _about(features: ArmFeatures, gram: Array) -> tuple[ArmLayout, Array, Array, Array | None]:
    """Layout, rounds (m, A), mean of zzᵀ (d, d), features of the arms; from Σφφᵀ (m, p, p)."""
    layout, slopes = ArmLayout.of_features(features), features.width - 1
    levels = np.arange(layout.arms) * layout.own
    rounds = np.diagonal(gram, axis1=1, axis2=2)[:, levels]
    whole = gram.sum(axis=0)
    # z of every round is one block of φ, arm by arm, or the sum of the levels and the shared slopes.
    if features.coding == "own":
        places = [np.eye(layout.own, layout.dim, k=int(first)) for first in levels]
    else:
        places = [np.zeros((1 + slopes, layout.dim))]
        places[0][0, levels] = 1.0
        places[0][1:, layout.arms : layout.arms + slopes] = np.eye(slopes)
    square = np.sum([take @ whole @ take.T for take in places], axis=0)
    return layout, np.round(rounds), np.asarray(square) / rounds.sum(), features.catalogue


def _logistic_start(log: Log, features: ArmFeatures, layout: ArmLayout) -> Array:
    """Coefficients (p,) of a ridge fit to a sample of the log's clicks."""
    sample = read_arm_sample(log, features)
    crossed = None if features.catalogue is None else features.catalogue[:, : features.crossed]
    parts = [slice(first, first + CHUNK) for first in range(0, len(sample.rewards), CHUNK)]

    def evaluate(theta: Array) -> LogitSums:
        total: LogitSums | None = None
        for part in parts:
            phi = layout.features(sample.contexts[part], sample.arms[part], crossed)
            one_window = np.zeros(len(phi), dtype=np.int64)
            sums = LogitSums.of(phi, sample.rewards[part], one_window, theta, 1)
            total = sums if total is None else total + sums
        assert total is not None
        return total

    return fit_logistic(evaluate, layout).theta
