"""From a log of labelled arms to what a policy may know of them: the bridge from reading to statistics."""

from __future__ import annotations

from typing import Any

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.decomposition.arm_layout import ArmLayout
from invariant_bandits.decomposition.arm_statistics import CHUNK, ArmStatistics
from invariant_bandits.decomposition.log_odds import LogOdds
from invariant_bandits.decomposition.logistic import LogitSums, fit_logistic
from invariant_bandits.logs.arm_features import ArmFeatures
from invariant_bandits.logs.log import Log
from invariant_bandits.logs.reading_arms import read_arm_moments, read_arm_sample
from invariant_bandits.moments.windowed import WindowedMoments


def linear_statistics(features: ArmFeatures, moments: WindowedMoments) -> ArmStatistics:
    """What moments of φ(x, a) say of the arms if expected rewards are linear in the context."""
    gram, cross, squares = _sums(moments)
    return ArmStatistics.from_sums(gram, cross, squares, *_about(features, gram))


def logit_statistics(features: ArmFeatures, moments: WindowedMoments, odds: LogOdds) -> ArmStatistics:
    """The same for rewards that are 0 or 1, on the scale of their log-odds."""
    gram, _, _ = _sums(moments)
    information, scores, _ = _sums(odds.moments)
    layout, rounds, square, described = _about(features, gram)
    levels = np.arange(layout.arms) * layout.own
    spread = float(np.diagonal(information, axis1=1, axis2=2)[:, levels].sum())
    return ArmStatistics.on_logit_scale(information, scores, spread, layout, rounds, square, described)


def read_log_odds(log: Log, features: ArmFeatures, theta: Array | None = None, **how: Any) -> LogOdds:
    """What the windows of a log of clicks say of log-odds.

    Parameters
    ----------
    log : Log
        Opened.
    features : ArmFeatures
        As learned from it, or before.
    theta : array, shape (p,), optional
        What to expand about; a fit to a sample of the log if not given, which is one more pass.
    how :
        How `read_arm_moments` is to cut and read it: windows, every, edges, engine, address.
    """
    start = logistic_start(log, features) if theta is None else theta
    read = read_arm_moments(log, features=features, logit_at=start, keep_going=True, **how)
    return LogOdds(start, read.moments.of_features())


def _sums(moments: WindowedMoments) -> tuple[Array, Array, float]:
    """Σφφᵀ (m, p, p) and Σφr (m, p) of every window, and Σr² of the whole log."""
    whole = moments.chosen.products()
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


def logistic_start(log: Log, features: ArmFeatures) -> Array:
    """Coefficients (p,) of a ridge fit to a sample of the log's clicks."""
    layout, sample = ArmLayout.of_features(features), read_arm_sample(log, features)
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
