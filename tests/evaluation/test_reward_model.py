"""The reward model behind DR and the direct method: ridge regression on past blocks, by hand."""

import numpy as np
import pytest

from invariant_bandits.evaluation.estimators import predict_rewards
from invariant_bandits.logs.feedback import Feedback


def log(rounds, features=(1.0, 3.0), seed=0):
    """Two actions with constant scales per feature; rewards are their features' sum plus noise."""
    rng = np.random.default_rng(seed)
    offered = rng.normal(size=(rounds, 2, len(features))) * features
    actions = rng.integers(2, size=rounds)
    rewards = (
        2.0 + offered[np.arange(rounds), actions].sum(axis=1) + rng.normal(size=rounds)
    )
    return Feedback.from_arrays(offered, actions, rewards)


def test_slopes_are_ridge_regression_within_blocks_with_a_ridge_worth_p_rounds():
    """Ten rounds of `earlier` in five blocks of two: G and c summed about the block means, ridge
    p·diag(G)/n.
    """
    earlier, later = log(10), log(8, seed=1)
    gram, cross = np.zeros((2, 2)), np.zeros(2)
    for start in range(0, 10, 2):
        rows, rewards = (
            earlier.features[start : start + 2],
            earlier.rewards[start : start + 2],
        )
        away = rows - rows.mean(axis=0)
        gram, cross = gram + away.T @ away, cross + away.T @ (rewards - rewards.mean())
    ridge = np.diag(2 * np.diagonal(gram) / 10)
    slopes = np.linalg.solve(gram + ridge, cross)
    baseline, centre = earlier.rewards[8:].mean(), earlier.features[8:].mean(axis=0)
    first_block = later.offered[: later.starts[2]]
    predicted = predict_rewards(later, earlier)
    np.testing.assert_allclose(
        predicted.values[: later.starts[2]], baseline + (first_block - centre) @ slopes
    )
    bare = np.linalg.solve(gram, cross)
    assert np.abs(slopes / bare - 1.0).max() > 0.05  # the ridge can be seen
    assert predicted.known.all()


def test_the_ridge_is_free_of_units():
    earlier, later = log(40), log(20, seed=1)
    scaled = [
        Feedback.from_arrays(
            item.offered * [1000.0, 0.01],
            item.actions,
            item.rewards,
            counts=item.counts,
        )
        for item in (earlier, later)
    ]
    np.testing.assert_allclose(
        predict_rewards(later, earlier).values,
        predict_rewards(scaled[1], scaled[0]).values,
    )


def test_without_earlier_rounds_the_first_block_has_no_prediction():
    predicted = predict_rewards(log(60))
    assert predicted.known.tolist() == [False] * 2 + [True] * 58
    assert (predicted.values[:4] == 0.0).all()


def test_coefficients_that_are_sampled_well_predict_the_planted_rewards():
    later = log(20, seed=1)
    values = predict_rewards(later, log(20_000)).values
    assert values[: later.starts[2]] == pytest.approx(
        2.0 + later.offered[: later.starts[2]].sum(axis=1), abs=1.0
    )
