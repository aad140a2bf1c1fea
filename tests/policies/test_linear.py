"""What the linear policies do in worlds whose answer is known, and how they answer misuse."""

import numpy as np
import pytest

import invariant_bandits as ib

ARMS = np.array([[1.0, 0.0], [0.0, 1.0]])
GAMMA = np.array([0.5, 1.0])


def regret_with_fixed_arms(policy, rounds, seed):
    """Cumulative regret over time when the same two orthogonal arms are offered in every round."""
    rng = np.random.default_rng(seed)
    lost = np.zeros(rounds)
    for t in range(rounds):
        action = policy.select(ARMS)
        policy.update(ARMS[action], GAMMA[action] + rng.normal(), action=action)
        lost[t] = GAMMA.max() - GAMMA[action]
    return lost.cumsum()


def test_with_fixed_arms_greedy_loses_linearly_and_linucb_does_not():
    """40 runs of 1,000 rounds. Greedy is stuck on the worse arm in about half of them (chance of fewer than
    10: 1e-3, and the seeds are fixed): what it loses in the second half is as much as in the first.
    """
    greedy = np.mean(
        [regret_with_fixed_arms(ib.Greedy(2), 1000, seed) for seed in range(40)], axis=0
    )
    linucb = np.mean(
        [regret_with_fixed_arms(ib.LinUCB(2), 1000, seed) for seed in range(40)], axis=0
    )
    assert greedy[-1] - greedy[499] > 0.8 * greedy[499]
    assert linucb[-1] - linucb[499] < 0.5 * linucb[499]
    assert linucb[-1] < greedy[-1]


@pytest.mark.parametrize(
    "make",
    [
        lambda: ib.SWLinUCB(3, window=60),
        lambda: ib.DLinUCB(3, discount=0.95),
        lambda: ib.RestartLinUCB(3, every=60),
    ],
    ids=["window", "discount", "restart"],
)
def test_after_a_change_the_forgetting_policies_estimate_the_new_coefficients(make):
    rng = np.random.default_rng(0)
    before, after = np.array([2.0, -1.0, 0.0]), np.array([-2.0, 1.0, 3.0])
    forgetting, keeping = make(), ib.LinUCB(3)
    for t in range(1051):
        row = rng.normal(size=3)
        reward = row @ (before if t < 900 else after) + 0.1 * rng.normal()
        forgetting.update(row, reward)
        keeping.update(row, reward)
    assert np.linalg.norm(forgetting.coefficients - after) < 0.2
    assert np.linalg.norm(keeping.coefficients - after) > 2.0


def test_without_any_round_means_are_zero_and_widths_are_those_of_the_ridge():
    policy = ib.LinUCB(3, ridge=4.0, norm_bound=0.5, noise_scale=2.0, delta=0.1)
    features = np.array([[3.0, 0.0, 4.0], [0.0, 1.0, 0.0]])
    scores = policy.scores(features)
    assert scores.mean.tolist() == [0.0, 0.0]
    radius = 2.0 * np.sqrt(2 * np.log(10)) + 2.0 * 0.5
    np.testing.assert_allclose(scores.width, radius * np.array([5.0, 1.0]) / 2.0)


def test_all_scores_may_be_negative():
    policy = ib.Greedy(1)
    policy.update([1.0], -5.0)
    assert policy.select([[3.0], [1.0], [2.0]]) == 1


def test_the_first_of_equal_actions_is_chosen():
    assert ib.LinUCB(2).select(np.ones((4, 2))) == 0


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: ib.LinUCB(0), "dim"),
        (lambda: ib.LinUCB(2.5), "dim"),
        (lambda: ib.LinUCB(2, ridge=0.0), "ridge"),
        (lambda: ib.LinUCB(2, ridge=np.nan), "ridge"),
        (lambda: ib.LinUCB(2, delta=0.0), "delta"),
        (lambda: ib.LinUCB(2, noise_scale=-1.0), "noise_scale"),
        (lambda: ib.LinUCB(2, norm_bound=np.inf), "norm_bound"),
        (lambda: ib.LinUCB(2, exploration=-0.1), "exploration"),
        (lambda: ib.LinUCB(2, memory=7), "memory"),
        (lambda: ib.SWLinUCB(2, window=0), "window"),
        (lambda: ib.DLinUCB(2, discount=1.0), "discount"),
        (lambda: ib.RestartLinUCB(2, every=0), "every"),
        (lambda: ib.DisjointLinUCB(2, 0), "arms"),
        (lambda: ib.SlidingWindow(2.5), "window"),
    ],
)
def test_bad_settings_are_refused_by_name(make, name):
    with pytest.raises(ib.InputError, match=name):
        make()


def test_the_disjoint_policy_must_be_told_which_action_was_played():
    policy = ib.DisjointLinUCB(2, 3)
    for action, reason in (
        (None, "whole number"),
        (3, "below the number of arms"),
        (-1, "whole number"),
    ):
        with pytest.raises(ib.InputError, match=reason):
            policy.update([1.0, 2.0], 1.0, action=action)
    assert policy.rounds == 0


def test_the_message_names_the_argument_what_was_given_and_what_is_needed():
    policy = ib.LinUCB(3)
    with pytest.raises(
        ib.InputError, match=r"features must have shape \(K, 3\), got \(2, 4\)"
    ):
        policy.select(np.ones((2, 4)))
    with pytest.raises(
        ib.InputError, match=r"features must be finite, got nan at index \(1\)"
    ):
        policy.update([1.0, np.nan, 2.0], 1.0)
    with pytest.raises(ib.InputError, match="reward must be finite, got inf"):
        policy.update([1.0, 2.0, 3.0], np.inf)


def test_every_policy_is_a_policy():
    for policy in (
        ib.LinUCB(2),
        ib.LinTS(2),
        ib.Uniform(2),
        ib.DisjointLinUCB(2, 2),
    ):
        assert isinstance(policy, ib.Policy)
    assert not isinstance(object(), ib.Policy)
