"""Rolling origins: fit on what came before only, and play on from every origin."""

import numpy as np

import invariant_bandits as ib
from invariant_bandits.evaluation.estimators import played_rows
from invariant_bandits.logs.feedback import Feedback
from invariant_bandits.policies.registry import PolicySpec
from invariant_bandits_reproduction.studies.rolling import rolling_origins

ROUNDS = 1500
GAMMA = np.array([1.0, -1.0])


def full_log(seed=0, jump=None, **more):
    """Rounds with all rewards known; from round `jump` on the coefficients change sign."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(2, 5, size=ROUNDS)
    offered = rng.standard_normal((counts.sum(), 2))
    sign = np.ones(ROUNDS)
    if jump is not None:
        sign[jump:] = -1.0
    rewards = (
        3.0
        + np.repeat(sign, counts) * (offered @ GAMMA)
        + rng.standard_normal(counts.sum())
    )
    return Feedback.from_full_information(
        offered, rewards, seed=1, counts=counts, **more
    )


def small_policies():
    names = {
        "LinUCB cold": "linucb-cold",
        "LinUCB warm": "linucb-warm",
        "frozen": "frozen",
    }
    return {label: PolicySpec(name) for label, name in names.items()}


def test_every_choice_is_that_of_a_play_by_hand():
    feedback = full_log()
    origins = (700, 900, 1300)
    chosen = rolling_origins(feedback, small_policies(), origins=origins, horizon=200)
    for i, start in enumerate(origins):
        past = ib.Past.from_feedback(feedback.between(0, start), 200)
        ahead = feedback.between(start, start + 200)
        for name, maker in small_policies().items():
            rows = played_rows(maker.build(past), ahead, baseline=past.baseline)
            np.testing.assert_array_equal(
                chosen[name][i] - feedback.starts[start], rows
            )


def test_nothing_after_the_origin_reaches_the_fit():
    """Rewards change from round 1,000 on: what is chosen before that stays the same."""
    how = {"origins": (500, 800, 1200), "horizon": 100}
    plain = rolling_origins(full_log(), small_policies(), **how)
    moved = rolling_origins(full_log(jump=1000), small_policies(), **how)
    for name in small_policies():
        np.testing.assert_array_equal(plain[name][:2], moved[name][:2])
    assert (plain["LinUCB cold"][2] != moved["LinUCB cold"][2]).any()


def test_any_number_of_processes_gives_the_same_choices():
    how = {"origins": (500, 800, 1200), "horizon": 50}
    alone = rolling_origins(full_log(), small_policies(), **how)
    both = rolling_origins(full_log(), small_policies(), jobs=2, **how)
    for name in small_policies():
        np.testing.assert_array_equal(alone[name], both[name])
