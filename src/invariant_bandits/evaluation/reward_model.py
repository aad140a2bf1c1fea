"""Rewards predicted from the past only: ridge regression within blocks of time, with a baseline that may
move.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.evaluation.intervals import BLOCKS, block_starts
from invariant_bandits.logs.external_sort import collect_rows
from invariant_bandits.logs.feedback import Feedback, in_parts


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predicted rewards of all offered actions, each block's from the blocks before it.

    Attributes
    ----------
    values : array or StoredRows, shape (rows,)
        Predicted rewards, 0 where nothing came before.
    logged : array, shape (n,)
        Those of the logged actions.
    known : array of bool, shape (n,)
        Whether a round has a prediction.
    block : array of int, shape (n,)
        The block of each round.
    covariances : array, shape (blocks, p, p)
        Of the coefficients that predict each block, 0 for the first if nothing came before.
    centers : array, shape (blocks, p)
        Features at which the baseline was taken.
    """

    values: Any
    logged: Array
    known: Array
    block: Array
    covariances: Array
    centers: Array

    def under(self, feedback: Feedback, target: Any) -> Array:
        """Predicted rewards (n,) of the rounds under a target policy with probabilities (rows,)."""
        return feedback.per_round(
            lambda part, own, model: part.sums_per_round(own * model), target, self.values
        )

    def errors_under(self, feedback: Feedback, target: Any) -> Array:
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
            Row b holds independent standard errors. Coefficients of neighbouring blocks share their past, so
            the rows are to be added up as if fully dependent.
        """
        sums = np.zeros_like(self.centers)
        for start, part, chances in in_parts(feedback, target):
            expected = part.sums_per_round(chances[:, None] * part.offered)
            block = self.block[start : start + part.rounds]
            for b in np.unique(block):
                sums[b] += expected[block == b].sum(axis=0)
        result = np.zeros_like(self.centers)
        for b in np.unique(self.block[self.known]):
            rounds = (self.block == b).sum()
            values, vectors = np.linalg.eigh(self.covariances[b])
            away = sums[b] / rounds - self.centers[b]
            share = float(rounds / self.known.sum())
            result[b] = share * np.sqrt(np.maximum(values, 0.0)) * (vectors.T @ away)
        return result


def predict_rewards(feedback: Feedback, earlier: Feedback | None = None) -> Predictions:
    """Predict every block of rounds from the logged actions and rewards of the blocks before it.

    Slopes: ridge regression on features and rewards centred within blocks, so that a drifting mean reward
    does not bend them. The ridge is worth p rounds. Baseline: mean reward of the block before.

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
    slopes, bases = np.zeros((len(first), p)), np.zeros(len(first))
    covariances, centers = np.zeros((len(first), p, p)), np.zeros((len(first), p))
    for b in range(len(first)):
        past = before + b
        if past == 0:
            continue
        G, c, n = gram[past - 1], cross[past - 1], counts[past - 1]
        scale = np.diagonal(G) / n
        ridge = np.diag(np.where(scale > 0.0, p * scale, 1.0))
        inverse = np.linalg.inv(G + ridge)
        slopes[b] = inverse @ c
        noise = max(float(squares[past - 1] - slopes[b] @ c), 0.0) / max(n - past - p, 1.0)
        bases[b], centers[b] = moments.reward_mean[past - 1], moments.feature_mean[past - 1]
        covariances[b] = noise * inverse

    def predicted(part: Feedback, start: int) -> Array:
        values, own = np.empty(len(part.offered)), block[start : start + part.rounds]
        for b in np.unique(own):
            inside = np.flatnonzero(own == b)
            rows = slice(part.starts[inside[0]], part.starts[inside[-1] + 1])
            values[rows] = bases[b] + (part.offered[rows] - centers[b]) @ slopes[b]
        return values

    known = np.ones(feedback.rounds, dtype=bool) if before else block > 0
    values = collect_rows(predicted(part, start) for start, part in in_parts(feedback))
    return Predictions(values, feedback.of_logged(values), known, block, covariances, centers)
