"""Arms as deviations from what they share: the truth is recovered, and the blocks say what one matrix does."""

import numpy as np
import pytest

from invariant_bandits.decomposition.arm_deviations import (
    fit_deviations,
    shared_statistics,
    statistics_by_arm,
)
from invariant_bandits.decomposition.arm_statistics import ArmLayout, ArmStatistics
from invariant_bandits.decomposition.drift_prior import DriftPrior

ARMS, SLOPES, ROUNDS = 12, 6, 24_000
SPREAD = np.array([0.04, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25])


def planted(seed, clicks=False, walk=0.0, together=0.0):
    """Statistics of ARMS arms whose coefficients differ by SPREAD, and the coefficients (A, d)."""
    rng = np.random.default_rng(seed)
    z = np.column_stack([np.ones(ROUNDS), rng.normal(size=(ROUNDS, SLOPES))])
    arms = rng.integers(ARMS, size=ROUNDS)
    window = np.arange(ROUNDS) * 8 // ROUNDS
    shared = np.linspace(-0.5, 0.5, 1 + SLOPES)
    truth = shared + np.sqrt(SPREAD) * rng.normal(size=(ARMS, 1 + SLOPES))
    paths = np.tile(truth, (8, 1, 1))
    paths[:, :, 1] += walk * rng.normal(size=(8, ARMS)).cumsum(axis=0)
    paths[:, :, 2] += together * rng.normal(size=(8, 1))
    linear = (z * paths[window, arms]).sum(axis=1)
    rewards = linear + rng.normal(size=ROUNDS)
    if clicks:
        rewards = (rng.random(ROUNDS) < 1.0 / (1.0 + np.exp(-linear))).astype(float)
    return ArmStatistics.from_rounds(z, arms, rewards, windows=window), paths


@pytest.mark.parametrize("clicks", [False, True])
def test_coefficients_and_their_errors_are_right(clicks):
    statistics, paths = planted(1, clicks)
    fit = fit_deviations(statistics)
    errors = fit.theta + fit.means - paths[-1]
    standard = errors / np.sqrt(np.diagonal(fit.covariances, axis1=1, axis2=2))
    # Of 84 standard errors the mean square is 1 ± .15; what they share has an error, too.
    assert 0.5 < (standard**2).mean() < 1.6
    # Twelve arms tell a variance to within a factor of 3 with probability 0.999.
    assert (fit.spread[1:] > SPREAD[1:] / 3.0).all()
    assert (fit.spread[1:] < SPREAD[1:] * 3.0).all()
    assert not fit.steps.any()


def test_blocks_say_what_one_matrix_of_all_arms_says():
    """Given τ², the deviations are the posterior of one regression with all coefficients."""
    statistics, _ = planted(2)
    fit = fit_deviations(statistics)
    d = 1 + SLOPES
    total = statistics.information.sum(axis=0)
    design = statistics.layout.to_one_arm
    joint = np.block(
        [[design.T @ total @ design, design.T @ total], [total @ design, total]]
    )
    joint[d:, d:] += np.diag(np.tile(1.0 / fit.spread, ARMS))
    scores = statistics.scores.sum(axis=0)
    solved = np.linalg.solve(joint, np.concatenate([design.T @ scores, scores]))
    assert fit.theta == pytest.approx(solved[:d], abs=2e-3)
    assert fit.fitted.ravel() == pytest.approx(solved[d:], abs=2e-3)
    alone = np.linalg.inv(joint[d:, d:])
    block = slice(3 * d, 4 * d)
    assert fit.covariances[3] == pytest.approx(alone[block, block], rel=1e-3, abs=1e-9)


def test_what_is_not_there_is_shrunk_away():
    rng = np.random.default_rng(3)
    z = np.column_stack([np.ones(4000), rng.normal(size=(4000, 20))])
    arms = rng.integers(30, size=4000)
    rewards = z[:, 1] + rng.normal(size=4000)
    fit = fit_deviations(ArmStatistics.from_rounds(z, arms, rewards))
    assert fit.theta[1] == pytest.approx(1.0, abs=0.1)
    # Least squares would have a mean squared error of 1/110 per coefficient.
    assert (fit.means**2).mean() < 0.1 / 110.0


def test_deviations_that_walk_are_followed_and_common_drift_is_not_theirs():
    walking, paths = planted(4, walk=0.4)
    fit = fit_deviations(walking)
    assert fit.steps[1] > 0.0
    # What a slope that walks leaves unexplained looks a little like drift of the others.
    assert fit.steps[3:].max() < 0.02 * fit.steps[1]
    error = (fit.theta + fit.means - paths[-1])[:, 1]
    still = (fit.theta + fit.fitted - paths[-1])[:, 1]
    assert np.abs(error).mean() < 0.6 * np.abs(still).mean()
    together, _ = planted(5, together=0.5)
    fit = fit_deviations(together)
    assert not fit.steps.any()
    prior = DriftPrior.from_arms(shared_statistics(together, fit))
    drifting = [effect.place for effect in prior.effects if effect.drifts]
    assert drifting == [2]


def test_shared_slopes_beside_own_ones_are_solved_together():
    """The last three slopes are shared: the same rounds, with own coefficients for the first four entries."""
    rng = np.random.default_rng(6)
    z = np.column_stack([np.ones(9000), rng.normal(size=(9000, 6))])
    arms = rng.integers(8, size=9000)
    own = rng.normal(size=(8, 4))
    rewards = (z[:, :4] * own[arms]).sum(axis=1) + z[:, 4:] @ [1.0, -1.0, 0.5]
    rewards += rng.normal(size=9000)
    layout = ArmLayout(8, 4, 3)
    phi = np.hstack(
        [
            np.eye(8)[arms][:, :, None] * z[:, None, :4],
        ]
    ).reshape(9000, 32)
    phi = np.hstack([phi, z[:, 4:]])
    windows = np.arange(9000) // 1500
    statistics = ArmStatistics(
        layout=layout,
        information=np.stack(
            [phi[windows == i].T @ phi[windows == i] for i in range(6)]
        ),
        scores=np.stack(
            [phi[windows == i].T @ rewards[windows == i] for i in range(6)]
        ),
        rounds=np.stack(
            [np.bincount(arms[windows == i], minlength=8) for i in range(6)]
        ).astype(float),
        noise_variance=1.0,
        context_square=z.T @ z / 9000,
        scale=float((rewards**2).mean()),
        catalogue=np.zeros((8, 0)),
    )
    fit = fit_deviations(statistics)
    assert fit.theta[4:] == pytest.approx([1.0, -1.0, 0.5], abs=0.05)
    assert np.abs(fit.theta[:4] + fit.means - own).max() < 0.15
    alone = statistics_by_arm(statistics, fit)
    assert len(alone) == 8
    estimate = np.linalg.solve(
        alone[2].information.sum(axis=0), alone[2].scores.sum(axis=0)
    )
    assert estimate == pytest.approx(own[2], abs=0.15)
