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


def linear_statistics(read: ArmLogMoments) -> ArmStatistics:
    """What a log says of its arms if expected rewards are linear in the context."""
    gram, cross = _sums(read.moments.of_features())
    return ArmStatistics.from_sums(gram, cross, float(read.moments.reward_squares.sum()), *_about(read))


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
    start = _logistic_start(log, read.features, ArmLayout.of_features(read.features))
    weighted = read_arm_moments(log, features=read.features, logit_at=start, keep_going=True, **how)
    information, scores = _sums(weighted.moments.of_features())
    spread = float(weighted.moments.gram[..., 0, 0].sum())
    return ArmStatistics.on_logit_scale(information, scores, spread, *_about(read))


def _about(read: ArmLogMoments) -> tuple[ArmLayout, Array, Array, Array | None]:
    """Layout, rounds (m, A), mean of zzᵀ (d, d), features of the arms."""
    moments = read.moments
    square = np.asarray(moments.gram.sum(axis=(0, 1)) / moments.rounds.sum())
    return ArmLayout.of_features(read.features), moments.rounds, square, read.features.catalogue


def _sums(moments: WindowedMoments) -> tuple[Array, Array]:
    """Σφφᵀ (m, p, p) and Σφr (m, p) of every window."""
    sums = moments.chosen
    whole = sums.scatter + sums.count[:, None, None] * sums.mean[:, :, None] * sums.mean[:, None, :]
    return whole[:, :-1, :-1], whole[:, :-1, -1]


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
