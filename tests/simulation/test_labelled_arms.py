"""The world of labelled arms: who is there when, what drifts, and what the new arm is."""

import numpy as np
import pytest

import invariant_bandits as ib
from invariant_bandits.checks import InputError
from invariant_bandits.simulation.labelled_arms import LATER, LabelledArms


def test_arms_are_launched_and_retired_and_only_those_left_are_offered():
    logs = LabelledArms(logged=12_000).draw(5, np.random.default_rng(0)).logs
    plays = np.zeros((12, 5))
    np.add.at(plays, (logs.windows, logs.arms), 1)
    assert not plays[:7, 3].any()
    assert (plays[7:, 3] > 0).all()
    assert (plays[:6, 4] > 0).all()
    assert not plays[6:, 4].any()
    episode = LabelledArms(logged=1200).draw(5, np.random.default_rng(0))
    assert episode.active == (0, 1, 2, 3)
    assert episode.offered.shape == (5, 4, 35)


@pytest.mark.parametrize("later", LATER)
def test_expected_rewards_are_logistic_in_the_features(later):
    episode = LabelledArms(later, logged=1200).draw(200, np.random.default_rng(1))
    odds = np.log(episode.means / (1.0 - episode.means))
    still = np.abs(odds - episode.offered @ episode.logs.truth.ravel()).max()
    assert (still > 0.01) if later == "drift" else (still < 1e-9)
    assert set(np.unique(episode.rewards)) == {0.0, 1.0}


def test_the_new_arm_is_the_best_or_the_worst():
    for later, sign in ((LATER[2], 1.0), (LATER[3], -1.0)):
        truth = (
            LabelledArms(later, logged=1200)
            .draw(1, np.random.default_rng(2))
            .logs.truth
        )
        assert truth.shape == (6, 7)
        assert (sign * truth[5, 0] > sign * truth[:4, 0]).all()


def test_clicks_follow_the_planted_coefficients():
    logs = (
        LabelledArms(drifting=0, logged=60_000).draw(1, np.random.default_rng(3)).logs
    )
    prior = ib.DriftPrior.from_arms(logs.statistics())
    apart = (prior.layout.by_arm(prior.pooled) - logs.truth) / np.sqrt(
        prior.layout.by_arm(np.diagonal(prior.pooled_covariance))
    )
    assert np.abs(apart).max() < 4.5  # 35 of them: beyond by chance once in 4,000


def test_a_registered_policy_plays_it():
    result = ib.simulate(
        ["auto-isd", "uniform"], LabelledArms(logged=6000), 200, replications=2, seed=0
    )
    assert result.final("auto-isd").mean() < 0.5 * result.final("uniform").mean()


@pytest.mark.parametrize(
    "wrong", [{"later": "never"}, {"arms": 3}, {"logging": "magic"}, {"drifting": 19}]
)
def test_settings_are_checked(wrong):
    with pytest.raises(InputError):
        LabelledArms(**wrong)
