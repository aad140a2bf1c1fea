"""Off-policy estimators against planted truth: what they are by hand, when they are right, and when they
refuse.
"""

import numpy as np
import pytest

import invariant_bandits as ib
from invariant_bandits.evaluation import estimators
from invariant_bandits.evaluation.estimators import (
    replayed_rounds,
    target_probabilities,
)
from invariant_bandits.logs.feedback import Feedback
from invariant_bandits.policies.choice import choice_of
from logged_worlds import ACTIONS, DIM, GAMMA, World, best_of, of_rounds, soft, softmax


class FirstAction(ib.BasePolicy):
    """Always plays action 0, and keeps what it is told."""

    dim = 1

    def __init__(self):
        self.told = []

    def played(self):
        return 0

    def decide(self, offered, *, draw=None):
        nothing = np.zeros(len(offered))
        return choice_of(self.played() % len(offered), nothing, nothing)

    def update(self, features, reward, *, offered=None, action=None):
        self.told.append((float(features[0]), reward, len(offered), action))


def small():
    """Four rounds, two or three actions, propensities of the logged actions."""
    return Feedback.from_arrays(
        np.arange(9.0)[:, None],
        [0, 1, 0, 1],
        [1.0, 2.0, 3.0, 4.0],
        counts=[2, 2, 3, 2],
        propensities=[0.5, 0.25, 0.2, 0.5],
    )


def test_ips_and_snips_are_the_weighted_means_of_the_textbook():
    feedback = small()
    target = np.array([0.5, 0.5, 0.0, 1.0, 0.2, 0.4, 0.4, 1.0, 0.0])
    weights = np.array([1.0, 4.0, 1.0, 0.0])
    np.testing.assert_allclose(
        estimators.importance_weights(feedback, target), weights, rtol=1e-15
    )
    assert estimators.ips(feedback, target).value == pytest.approx(
        weights @ [1, 2, 3, 4] / 4, rel=1e-14
    )
    assert estimators.snips(feedback, target).value == pytest.approx(
        weights @ [1, 2, 3, 4] / 6, rel=1e-14
    )


def test_a_followed_policy_learns_every_logged_round_and_a_replayed_one_the_accepted_rounds_only():
    followed, replayed = FirstAction(), FirstAction()
    chances = target_probabilities(followed, small(), baseline=1.0)
    np.testing.assert_array_equal(chances, [1, 0, 1, 0, 1, 0, 0, 1, 0])
    assert followed.told == [
        (0.0, 0.0, 2, 0),
        (3.0, 1.0, 2, 1),
        (4.0, 2.0, 3, 0),
        (8.0, 3.0, 2, 1),
    ]
    even = small().with_propensities(np.full(4, 0.5))
    np.testing.assert_array_equal(replayed_rounds(replayed, even), [0, 2])
    assert replayed.told == [(0.0, 1.0, 2, 0), (4.0, 3.0, 3, 0)]


def test_a_round_is_decided_before_it_is_learned():
    """Changing the last reward changes no decision; changing the first may."""
    feedback, _ = World().log(300, np.random.default_rng(0))
    chances = target_probabilities(ib.Greedy(DIM), feedback)
    rewards = feedback.rewards.copy()
    rewards[-1] += 100.0
    later = Feedback.from_arrays(of_rounds(feedback), feedback.actions, rewards)
    np.testing.assert_array_equal(target_probabilities(ib.Greedy(DIM), later), chances)
    rewards[0] += 100.0
    sooner = Feedback.from_arrays(of_rounds(feedback), feedback.actions, rewards)
    assert not np.array_equal(target_probabilities(ib.Greedy(DIM), sooner), chances)


def test_playing_with_full_information_earns_the_rewards_of_the_own_choices():
    rng = np.random.default_rng(2)
    offered, rewards = (
        rng.standard_normal((200, ACTIONS, DIM)),
        rng.standard_normal((200, ACTIONS)),
    )
    feedback = Feedback.from_full_information(offered, rewards, seed=0)
    policy, by_hand = ib.LinUCB(DIM), []
    for features, values in zip(offered, rewards, strict=True):
        action = policy.select(features)
        policy.update(features[action], values[action])
        by_hand.append(values[action])
    assert estimators.exact(feedback, ib.LinUCB(DIM)).value == pytest.approx(
        np.mean(by_hand), rel=1e-14
    )


def test_shifting_all_rewards_shifts_snips_and_doubly_robust_with_its_model():
    """DR is unmoved but for the first block, which no model predicts; with an earlier part it is exactly
    unmoved.
    """
    feedback, _ = World().log(1000, np.random.default_rng(4))
    earlier, later = feedback.split(0.5)
    target = best_of(GAMMA)(of_rounds(later)).ravel()
    for estimator, more in (
        (estimators.snips, [{}, {}]),
        (estimators.doubly_robust, [earlier, earlier.shifted(-1e4)]),
    ):
        options = [
            {"earlier": item} if isinstance(item, Feedback) else item for item in more
        ]
        plain, moved = (
            estimator(later, target, **options[0]),
            estimator(later.shifted(-1e4), target, **options[1]),
        )
        for name in ("value", "low", "high"):
            assert getattr(moved, name) - 1e4 == pytest.approx(
                getattr(plain, name), abs=1e-7
            )


# -- doubly robust: one right model is enough --

LARGE = 200_000


def off_by(estimate, truth):
    """Error in standard errors."""
    return abs(estimate.value - truth) / estimate.standard_error


def test_doubly_robust_is_right_with_wrong_propensities_and_a_right_reward_model():
    """Off by 4 standard errors with probability 1e-4; IPS, with the same propensities, by more than 20."""
    feedback, _ = World(logging=np.array([1.0, 1.0, 0.0])).log(
        LARGE, np.random.default_rng(11)
    )
    offered = of_rounds(feedback)
    wrong = feedback.with_propensities(
        0.5 * softmax(offered @ [0.2, -0.5, 0.5]) + 0.5 / ACTIONS
    )
    target, truth = (
        best_of(GAMMA)(offered).ravel(),
        World().value(best_of(GAMMA), 4 * LARGE),
    )
    assert off_by(estimators.doubly_robust(wrong, target), truth) < 4.0
    assert off_by(estimators.ips(wrong, target), truth) > 20.0


def test_doubly_robust_is_right_with_right_propensities_and_a_wrong_reward_model():
    """Off by 4 standard errors with probability 1e-4; the direct method, with the same model, by more than
    20.
    """
    world = World(bend=1.0, logging=np.array([1.0, 1.0, 0.0]))
    feedback, _ = world.log(LARGE, np.random.default_rng(12))
    goal = best_of(np.array([-1.0, 0.0, 0.0]))
    target, truth = goal(of_rounds(feedback)).ravel(), world.value(goal, 4 * LARGE)
    assert off_by(estimators.doubly_robust(feedback, target), truth) < 4.0
    assert off_by(estimators.direct(feedback, target), truth) > 20.0


def test_predictions_use_nothing_but_the_past():
    """New rewards from round 150 on leave every prediction of the blocks before untouched, and change later
    ones.
    """
    feedback, _ = World().log(300, np.random.default_rng(6))
    rewards = feedback.rewards.copy()
    rewards[150:] += 10.0 * feedback.features[150:, 0]
    changed = Feedback.from_arrays(of_rounds(feedback), feedback.actions, rewards)
    before, after = (
        estimators.predict_rewards(item).values.reshape(300, ACTIONS)
        for item in (feedback, changed)
    )
    np.testing.assert_array_equal(before[:160], after[:160])
    assert (before[160:] != after[160:]).all()


def test_the_direct_method_is_right_where_its_assumption_holds():
    """Off by 4 standard errors with probability 1e-4."""
    feedback, _ = World().log(20_000, np.random.default_rng(13))
    target = soft(GAMMA)(of_rounds(feedback)).ravel()
    estimate = estimators.direct(feedback, target)
    assert off_by(estimate, World().value(soft(GAMMA))) < 4.0
    assert any("linear" in note for note in estimate.notes)


# -- refusing --


def test_a_target_that_the_log_never_plays_is_refused():
    """Logged actions are 0 or 1, the target plays 3 in a fifth of the rounds, or always."""
    rng = np.random.default_rng(3)
    offered = rng.standard_normal((4000, ACTIONS, DIM))
    feedback = Feedback.from_arrays(
        offered,
        rng.integers(2, size=4000),
        rng.standard_normal(4000),
        propensities=np.full(4000, 0.5),
    )
    partly = np.tile([0.4, 0.4, 0.0, 0.2], 4000)
    never = np.tile([0.0, 0.0, 0.0, 1.0], 4000)
    for estimator in (estimators.ips, estimators.snips, estimators.doubly_robust):
        for target, words in (
            (partly, "20 % of what the target plays is never played"),
            (never, "the log never plays"),
        ):
            estimate = estimator(feedback, target)
            assert not estimate.concludes
            assert (estimate.low, estimate.high) == (-np.inf, np.inf)
            assert words in str(estimate)
        assert estimator(feedback, np.tile([0.5, 0.5, 0.0, 0.0], 4000)).concludes


class LastAction(FirstAction):
    """Plays the last action in every fifth round it learns, else the first."""

    dim = DIM

    def played(self):
        return -1 if len(self.told) % 5 == 4 else 0


def test_a_replay_that_waits_for_what_never_comes_is_refused():
    rng = np.random.default_rng(3)
    feedback = Feedback.from_arrays(
        rng.standard_normal((4000, ACTIONS, DIM)),
        rng.integers(2, size=4000),
        np.ones(4000),
        propensities=[0.5] * 4000,
    )
    estimate = estimators.replay(feedback, LastAction())
    assert not estimate.concludes
    assert "support missing" in estimate.reasons[0]
    assert "4 of 4,000 rounds were accepted, 50 are needed" in estimate.reasons[1]


def test_few_effective_rounds_and_heavy_weights_are_refused():
    rng = np.random.default_rng(8)
    weights = np.ones(1000)
    assert estimators.support(weights) == (1000.0, ())
    weights[17] = 200.0
    effective, reasons = estimators.support(weights)
    assert effective == pytest.approx(1199**2 / (999 + 200**2))
    assert [reason.split(",")[0] for reason in reasons] == [
        "the effective sample is 35 rounds",
        "one round carries 17 % of the weight",
    ]
    _, reasons = estimators.support(rng.uniform(1.0, 2.0, size=1000))
    assert reasons == (
        "the mean weight is 1.49 instead of 1: the propensities are too small",
    )


def test_without_propensities_there_is_no_weight():
    feedback, _ = World().log(100, np.random.default_rng(0))
    bare = Feedback.from_arrays(of_rounds(feedback), feedback.actions, feedback.rewards)
    target = np.full(400, 0.25)
    for estimator in (estimators.ips, estimators.snips, estimators.doubly_robust):
        with pytest.raises(ib.InputError, match="propensities are missing"):
            estimator(bare, target)
    with pytest.raises(ib.InputError, match="propensities are missing"):
        estimators.replay(bare, ib.LinUCB(DIM))
    with pytest.raises(ib.InputError, match="offered_rewards are missing"):
        estimators.exact(bare, ib.LinUCB(DIM))


@pytest.mark.parametrize(
    "target",
    [np.full(400, 0.3), np.tile([1.5, -0.5, 0.0, 0.0], 100), np.full(399, 0.25)],
)
def test_a_target_that_is_no_probability_is_refused(target):
    feedback, _ = World().log(100, np.random.default_rng(0))
    with pytest.raises(ib.InputError, match="target must"):
        estimators.ips(feedback, target)


def test_a_policy_of_other_dimension_is_refused():
    feedback, _ = World().log(10, np.random.default_rng(0))
    with pytest.raises(
        ib.InputError, match=r"features must have shape \(K, 5\), got \(4, 3\)"
    ):
        target_probabilities(ib.LinUCB(5), feedback)
