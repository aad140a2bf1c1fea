"""Small logs of labelled arms with a planted truth."""

from dataclasses import dataclass, replace

import numpy as np


@dataclass
class ArmLog:
    """Contexts z (n, d), arms, rewards and windows (n,), and the true coefficients (m, A, d)."""

    contexts: np.ndarray
    arms: np.ndarray
    rewards: np.ndarray
    windows: np.ndarray
    truth: np.ndarray


def arm_log(
    seed,
    *,
    rounds=12_000,
    windows=8,
    arms=4,
    slopes=2,
    clicks=True,
    drifting=(),
    step=0.8,
    active=None,
    noise=1.0,
):
    """Arms drawn uniformly among the active ones (m, A); effects `drifting` are drawn afresh in every
    window.
    """
    rng = np.random.default_rng(seed)
    first = np.concatenate(
        [rng.normal(-0.8, 0.3, (arms, 1)), rng.normal(0.0, 0.5, (arms, slopes))], axis=1
    )
    truth = np.tile(first, (windows, 1, 1))
    for arm, coefficient in drifting:
        truth[:, arm, coefficient] += step * rng.normal(size=windows)
    window = np.arange(rounds) * windows // rounds
    chances = (
        np.ones((windows, arms)) if active is None else np.asarray(active, dtype=float)
    )
    cumulated = np.cumsum(chances / chances.sum(axis=1, keepdims=True), axis=1)
    played = (rng.random(rounds)[:, None] > cumulated[window]).sum(axis=1)
    contexts = np.column_stack([np.ones(rounds), rng.normal(size=(rounds, slopes))])
    linear = (contexts * truth[window, played]).sum(axis=1)
    if clicks:
        rewards = (rng.random(rounds) < 1.0 / (1.0 + np.exp(-linear))).astype(float)
    else:
        rewards = linear + noise * rng.normal(size=rounds)
    return ArmLog(contexts, played, rewards, window, truth)


def reordered(statistics, order):
    """The statistics of the same log with its arms in another order: arm order[i] becomes arm i."""
    layout = statistics.layout
    at = np.concatenate([np.arange(layout.dim)[layout.arm(arm)] for arm in order])
    return replace(
        statistics,
        information=statistics.information[:, at][:, :, at],
        scores=statistics.scores[:, at],
        rounds=statistics.rounds[:, order],
        catalogue=statistics.catalogue[order],
    )
