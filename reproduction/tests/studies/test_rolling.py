"""Rolling origins: fit on what came before only, one play for all horizons, paired differences over dates."""

import numpy as np
import pytest

import invariant_bandits as ib
from invariant_bandits.evaluation.comparison import COMPARED
from invariant_bandits.evaluation.estimators import played_rows
from invariant_bandits.logs.feedback import Feedback
from invariant_bandits.policies.registry import PolicySpec
from invariant_bandits_reproduction.studies.rolling import (
    rolling_origins,
    standard_error,
)

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


def test_every_number_is_that_of_a_play_by_hand_and_shorter_horizons_come_from_the_longest_play():
    feedback = full_log()
    result = rolling_origins(
        feedback, small_policies(), origins=[700, 900, 1300], horizons=(50, 200)
    )
    for i, start in enumerate((700, 900, 1300)):
        past = ib.Past.from_feedback(feedback.between(0, start), 200)
        ahead = feedback.between(start, start + 200)
        for name, spec in small_policies().items():
            rewards = ahead.offered_rewards[
                played_rows(spec.build(past), ahead, baseline=past.baseline)
            ]
            assert result.rewards[name][i].tolist() == [
                rewards[:50].mean(),
                rewards.mean(),
            ]
        by_round = np.split(ahead.offered_rewards, ahead.starts[1:-1])
        assert result.average[i, 0] == pytest.approx(
            np.mean([item.mean() for item in by_round[:50]])
        )


def test_nothing_after_the_origin_reaches_the_fit():
    """Rewards change from round 1,000 on: what is played before that stays the same to the last bit."""
    plain = rolling_origins(
        full_log(), small_policies(), origins=[500, 800, 1200], horizons=(100,)
    )
    moved = rolling_origins(
        full_log(jump=1000), small_policies(), origins=[500, 800, 1200], horizons=(100,)
    )
    for name in small_policies():
        np.testing.assert_array_equal(plain.rewards[name][:2], moved.rewards[name][:2])
        assert plain.rewards[name][2] != moved.rewards[name][2]


def test_a_warm_start_wins_at_once_and_a_frozen_model_loses_after_a_jump():
    """Cold LinUCB has to learn first; after the jump the frozen model plays the worst actions."""
    before = rolling_origins(full_log(), small_policies(), origins=10, horizons=(50,))
    (difference,) = before.difference("LinUCB warm", "LinUCB cold")
    assert difference.mean > 2.0 * difference.standard_error
    after = rolling_origins(
        full_log(jump=750), small_policies(), origins=[750, 751, 752], horizons=(500,)
    )
    assert (
        after.rewards["frozen"].mean()
        < after.average.mean()
        < after.rewards["LinUCB cold"].mean()
    )


@pytest.mark.system
def test_two_processes_give_the_same_bits():
    alone, heard = rolling_origins(full_log(), origins=4, horizons=(50,)), []
    both = rolling_origins(
        full_log(),
        origins=4,
        horizons=(50,),
        jobs=2,
        progress=lambda done, all_: heard.append((done, all_)),
    )
    assert list(alone.rewards) == list(COMPARED)
    for name in alone.rewards:
        np.testing.assert_array_equal(alone.rewards[name], both.rewards[name])
    assert heard == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_rows_are_tidy_and_the_table_names_everyone():
    times = np.datetime64("2026-01-01T00") + np.arange(ROUNDS)
    result = rolling_origins(
        full_log(times=times), small_policies(), origins=5, horizons=(20, 10)
    )
    rows = result.rows()
    assert len(rows) == 5 * 2 * 3
    assert result.horizons == (10, 20)
    last = rows[-1]
    assert last["date"] == times[result.origins[-1]]
    assert last["reward"] == result.rewards["frozen"][-1, -1]
    table = result.summary("LinUCB cold")
    assert all(name in table for name in result.rewards)
    assert table.count("±") == 2 * 2 + 1


def test_standard_errors_allow_for_rounds_that_origins_share():
    """Means of 500 rounds of noise from 20 origins, 100 or 500 apart, 4,000 times: squared errors are right
    on average.

    The mean of 4,000 squared errors has a relative standard error of at most 0.015; 4 of these are allowed.
    """
    rng = np.random.default_rng(0)
    for spacing in (100, 500):
        origins = spacing * np.arange(20)
        noise = rng.standard_normal(
            (4000, (origins[-1] + 500) // 100)
        )  # in steps of 100 rounds
        steps = origins[:, None] // 100 + np.arange(5)
        values = noise[:, steps].mean(axis=2)
        found = [standard_error(row, origins, 500) for row in values]
        inflation = {100: 4.6, 500: 1.0}[spacing]  # 1 + 2·Σ_k (1 − k/20)(1 − k/5)
        assert np.mean(np.square(found)) == pytest.approx(inflation / 5 / 20, rel=0.06)


BAD = {
    "no rewards of all actions": (
        "offered_rewards are missing",
        {"feedback": Feedback.from_arrays(np.ones((9, 2, 1)), [0] * 9, [0.0] * 9)},
    ),
    "a horizon that does not fit": (
        "so that the longest horizon, 900, fits into the 1500 rounds",
        {"horizons": (900,)},
    ),
    "an origin too late": ("whole numbers from 1 to 1490", {"origins": [5, 6, 1495]}),
    "two origins": ("at least 3 different whole numbers", {"origins": [5, 6]}),
    "the same origin twice": (
        "at least 3 different whole numbers",
        {"origins": [5, 5, 6]},
    ),
    "no horizon": ("horizons is empty", {"horizons": ()}),
    "a policy, not a maker": (
        r"policies\['x'\] must be callable",
        {"policies": {"x": ib.LinUCB(2)}},
    ),
    "half a process": ("jobs must be a whole number of at least 1", {"jobs": 0.5}),
}


@pytest.mark.parametrize(("message", "changes"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_named(message, changes):
    good = {
        "feedback": full_log(),
        "policies": small_policies(),
        "origins": 3,
        "horizons": (10,),
    }
    with pytest.raises(ib.InputError, match=message):
        rolling_origins(**good | changes)


def test_an_error_says_which_policy_and_round_it_comes_from():
    def broken(past):
        raise ZeroDivisionError("planted")

    with pytest.raises(ZeroDivisionError) as caught:
        rolling_origins(
            full_log(), {"broken": broken}, origins=[800, 900, 1000], horizons=(10,)
        )
    assert caught.value.__notes__ == ["while playing policy 'broken' from round 800"]
