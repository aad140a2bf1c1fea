"""Guarded: never far above LinUCB's bound, whoever decides, and out of the way where nothing is at risk."""

import numpy as np
import pytest

import invariant_bandits as ib
import policy_laws
from invariant_bandits.testing import example_past

DIM = policy_laws.DIM
FEATURES = np.random.default_rng(3).normal(size=(5, DIM))


class Worst:
    """Knows the truth, and plays the worst action."""

    def __init__(self, truth):
        self.truth = np.asarray(truth)
        self.dim = len(self.truth)
        self.rounds = 0

    def select(self, features):
        return int(np.argmin(features @ self.truth))

    def update(self, features, reward, **_):
        self.rounds += 1


def play(policy, truth, rounds, actions, seed):
    """Regret (rounds,), twice the widths of the played actions, and where the guard decided (rounds,).

    The noise is standard normal, features lie on the unit sphere.
    """
    rng = np.random.default_rng(seed)
    lost = []
    guarded = []
    paid = 0.0
    for _ in range(rounds):
        offered = rng.normal(size=(actions, len(truth)))
        offered /= np.linalg.norm(offered, axis=1, keepdims=True)
        choice = policy.decide(offered)
        means = offered @ truth
        width = policy.bound.scores(offered).width[choice.action]
        paid += min(policy.largest_loss, 2.0 * width)
        policy.update(offered[choice.action], means[choice.action] + rng.normal())
        lost.append(means.max() - means[choice.action])
        guarded.append(choice.reason == "guard")
    return np.cumsum(lost), paid, np.array(guarded)


@pytest.mark.parametrize("alpha", [0.02, 0.05])
def test_each_step_of_the_proof_holds_for_the_worst_policy(alpha):
    """Regret ≤ Σ 2·width + charges, Σ 2·width ≤ B_t, charges ≤ α·B_t.

    40 runs. The confidence set fails with probability 1 % in each: three or more fail with 0.8 %.
    """
    truth = np.array([0.6, -0.5, 0.3, 0.2])
    failures = 0
    for seed in range(40):
        policy = ib.Guarded(Worst(truth), alpha, bound=ib.LinUCB(4, delta=0.01))
        regret, paid, guarded = play(policy, truth, 400, 4, seed)
        bounds = policy.watch(np.eye(4)).budgets / alpha
        failures += regret[-1] > paid + policy.charged
        assert paid <= bounds.max()
        assert policy.charged <= alpha * bounds.max()
        assert guarded[-100:].any()
    assert failures <= 2


def test_the_guard_takes_over_from_a_policy_that_ruins_the_run():
    truth = np.array([0.6, -0.5, 0.3, 0.2])

    def run(alpha):
        policy = ib.Guarded(Worst(truth), alpha, bound=ib.LinUCB(4, norm_bound=0.9))
        return play(policy, truth, 3000, 4, seed=0)

    regret, _, guarded = run(0.1)
    assert regret[-1] < 0.6 * run(np.inf)[0][-1]
    assert guarded[-500:].mean() > 0.5


def test_a_share_of_zero_plays_linucb_and_an_infinite_one_the_policy():
    rng = np.random.default_rng(1)
    plain = ib.LinUCB(DIM)
    careful = ib.Guarded(ib.Greedy(DIM), 0.0, bound=ib.LinUCB(DIM))
    greedy = ib.Greedy(DIM)
    free = ib.Guarded(ib.Greedy(DIM), np.inf)
    for _ in range(100):
        offered = rng.normal(size=(4, DIM))
        action = plain.select(offered)
        assert careful.select(offered) == action
        assert free.select(offered) == greedy.select(offered)
        reward = float(offered[action, 0] + rng.normal())
        for policy in (plain, careful, greedy, free):
            policy.update(offered[action], reward)


def test_a_round_is_charged_alike_whether_the_offered_actions_are_told_or_remembered():
    told = ib.Guarded(ib.Greedy(DIM))
    remembered = ib.Guarded(ib.Greedy(DIM))
    rng = np.random.default_rng(2)
    for _ in range(50):
        offered = rng.normal(size=(4, DIM))
        action = told.select(offered)
        assert remembered.select(offered) == action
        reward = float(rng.normal())
        told.update(offered[action], reward, offered=offered, action=action)
        remembered.update(offered[action], reward)
    assert told.charged == remembered.charged > 0.0


def test_propensities_that_the_budget_does_not_allow_go_to_linucbs_action():
    inner = ib.Randomised(ib.Greedy(DIM), floor=0.5, seed=0)
    careful = ib.Guarded(inner, 0.0)
    choice = careful.decide(FEATURES)
    best = careful.watch(FEATURES).action
    assert choice.propensities[best] == pytest.approx(1.0)
    assert choice.action == best
    allowed = ib.Guarded(inner, np.inf).decide(FEATURES)
    np.testing.assert_allclose(allowed.propensities, inner.propensities(FEATURES))


def test_a_new_arm_begins_a_new_comparison():
    past = example_past(3)
    policy = ib.Guarded.from_past(past)
    again = policy.around(policy.policy)
    assert again.charged == 0.0
    assert again.bound.rounds == 0
    assert again.bound.settings() == policy.bound.settings()


@pytest.mark.parametrize("bound", ["linucb", "d-linucb,discount=0.99"])
def test_from_a_past_the_bound_is_in_the_units_of_the_logs(bound):
    past = example_past(3)
    policy = ib.Guarded.from_past(past, bound=bound, alpha=2.0)
    assert policy.bound.dim == DIM + 1
    assert policy.bound.noise_scale == past.noise_scale
    assert policy.alpha == 2.0
    assert policy.largest_loss > past.noise_scale


@pytest.mark.parametrize(
    ("message", "change"),
    [
        ("alpha must", {"alpha": -1.0}),
        ("largest_loss must", {"largest_loss": 0.0}),
        ("bound must be a LinUCB", {"bound": ib.SWLinUCB(DIM, window=3)}),
        ("bound must be a LinUCB", {"bound": ib.LinTS(DIM)}),
        ("bound must have 5 features, or 6", {"bound": ib.LinUCB(3)}),
    ],
)
def test_bad_settings_are_refused_by_name(message, change):
    message = message.replace("5", str(DIM)).replace("6", str(DIM + 1))
    with pytest.raises(ib.InputError, match=message):
        ib.Guarded(ib.LinUCB(DIM), **change)
