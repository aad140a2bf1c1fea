"""Rewards predicted from the past only: ridge regression within blocks of time, with a baseline that may move."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.evaluation.blocks import BLOCKS, block_starts
from invariant_bandits.logs.feedback import Feedback


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predicted rewards of all offered actions, each block's from the blocks before it.

    Attributes
    ----------
    values : array, shape (rows,)
        Predicted rewards, 0 where nothing came before.
    known : array of bool, shape (n,)
        Whether a round has a prediction.
    block : array of int, shape (n,)
        The block of each round.
    covariances : array, shape (blocks, p, p)
        Of the coefficients that predict each block, 0 for the first if nothing came before.
    centers : array, shape (blocks, p)
        Features at which the baseline was taken.
    """

    values: Array
    known: Array
    block: Array
    covariances: Array
    centers: Array

    def errors_under(self, feedback: Feedback, target: Array) -> Array:
        """What the coefficients' errors cause in the mean prediction under a target policy.

        Parameters
        ----------
        feedback : Feedback
            The rounds that were predicted.
        target : array, shape (rows,)
            Probabilities of all offered actions under the target policy.

        Returns
        -------
        array, shape (blocks, p)
            Row b holds independent standard errors. Coefficients of neighbouring blocks share their past, so the rows
            are to be added up as if fully dependent.
        """
        expected = feedback.sums_per_round(target[:, None] * feedback.offered)
        result = np.zeros_like(self.centers)
        for b in np.unique(self.block[self.known]):
            here = self.block == b
            values, vectors = np.linalg.eigh(self.covariances[b])
            away = expected[here].mean(axis=0) - self.centers[b]
            share = float(here.sum() / self.known.sum())
            result[b] = share * np.sqrt(np.maximum(values, 0.0)) * (vectors.T @ away)
        return result


def predict_rewards(feedback: Feedback, earlier: Feedback | None = None) -> Predictions:
    """Predict every block of rounds from the logged actions and rewards of the blocks before it.

    Slopes: ridge regression on features and rewards centred within blocks, so that a drifting mean reward does not
    bend them. The ridge is worth p rounds. Baseline: mean reward of the block before.

    Parameters
    ----------
    feedback : Feedback
        n rounds with `rows` offered actions.
    earlier : Feedback, optional
        Rounds before these, which predict, too.

    Returns
    -------
    Predictions
        Of all offered actions.
    """
    p = feedback.dim
    first = block_starts(feedback.rounds)
    moments = feedback.moments(len(first), offered=False)
    before = 0
    if earlier is not None:
        before = min(BLOCKS, earlier.rounds // 2)
        moments = earlier.moments(before, offered=False).followed_by(moments)
    gram, cross = np.cumsum(moments.gram, axis=0), np.cumsum(moments.cross, axis=0)
    squares, counts = np.cumsum(moments.reward_square), np.cumsum(moments.counts)
    block = np.searchsorted(first, np.arange(feedback.rounds), side="right") - 1
    rows = np.append(feedback.starts[first], len(feedback.offered))
    values = np.zeros(len(feedback.offered))
    covariances, centers = np.zeros((len(first), p, p)), np.zeros((len(first), p))
    for b in range(len(first)):
        past = before + b
        if past == 0:
            continue
        G, c, n = gram[past - 1], cross[past - 1], counts[past - 1]
        scale = np.diagonal(G) / n
        ridge = np.diag(np.where(scale > 0.0, p * scale, 1.0))
        inverse = np.linalg.inv(G + ridge)
        slopes = inverse @ c
        noise = max(float(squares[past - 1] - slopes @ c), 0.0) / max(n - past - p, 1.0)
        centers[b] = moments.feature_mean[past - 1]
        covariances[b] = noise * inverse
        here = slice(rows[b], rows[b + 1])
        values[here] = moments.reward_mean[past - 1] + (feedback.offered[here] - centers[b]) @ slopes
    known = np.ones(feedback.rounds, dtype=bool) if before else block > 0
    return Predictions(values, known, block, covariances, centers)
