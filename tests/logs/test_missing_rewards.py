"""Rewards that some contexts lack more often are named and, on request, weighted; a log with few rewards can
update a model.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import invariant_bandits as ib
from invariant_bandits import InputError
from invariant_bandits.evaluation.estimators import logged_value, snips
from invariant_bandits.logs.log import open_log
from reading import read_feedback


def thumbs(seed, share, rounds=6000):
    """Requests of two tasks; users rate a share of them, which depends on the task."""
    rng = np.random.default_rng(seed)
    task = rng.choice(["chat", "code"], rounds)
    model = rng.choice(["small", "large"], rounds)
    tokens = rng.normal(size=rounds)
    thumb = (rng.random(rounds) < np.where(model == "large", 0.6, 0.4)).astype(float)
    rated = rng.random(rounds) < np.where(task == "code", share["code"], share["chat"])
    table = {
        "task": task,
        "tokens": tokens,
        "model": model,
        "thumb": np.where(rated, thumb, np.nan),
    }
    table["thumb"] = pa.array(table["thumb"], from_pandas=True)
    return pa.table(table)


ROLES = {"reward": "thumb", "arm": "model"}


def test_contexts_whose_rewards_are_missing_more_often_are_named():
    model = ib.fit_logs(thumbs(0, {"code": 0.9, "chat": 0.6}), ROLES)
    note = next(note for note in model.notes if "missing" in note)
    assert "more often where task = chat" in note
    assert "tokens" not in note
    assert "rounds with a reward" in note


def test_rewards_that_are_missing_by_chance_are_not_blamed_on_a_column():
    """A false sentence in one of 20 logs has probability 0.002."""
    for seed in range(20):
        model = ib.fit_logs(thumbs(seed, {"code": 0.7, "chat": 0.7}), ROLES)
        assert not [note for note in model.notes if "rewards are missing" in note]


def test_a_model_can_be_updated_with_a_log_most_of_whose_rewards_are_missing():
    few = {"code": 0.3, "chat": 0.3}
    model = ib.fit_logs(thumbs(1, few), ROLES, keep_going=True)
    with pytest.raises(InputError, match="keep_going=True"):
        model.update_from(thumbs(2, few))
    update = model.update_from(thumbs(2, few), keep_going=True)
    assert update.model.moments.rounds == model.moments.rounds + update.new.rounds


def rated_log(seed=0, rounds=12_000):
    """Three arms at random. Thumbs are up for 0.6 of the easy requests, for 0.9 of those with arm b, and for 0.2
    of the hard ones; 0.2 of the easy and 0.8 of the hard ones are rated.
    """
    rng = np.random.default_rng(seed)
    easy = rng.random(rounds) < 0.5
    arm = rng.choice(["a", "b", "c"], rounds)
    chance = np.where(easy, 0.6 + 0.3 * (arm == "b"), 0.2)
    up = (rng.random(rounds) < chance).astype(float)
    rated = rng.random(rounds) < np.where(easy, 0.2, 0.8)
    columns = {
        "task": np.where(easy, "easy", "hard"),
        "length": rng.normal(size=rounds).round(3),
        "arm": arm,
        "propensity": np.full(rounds, 1.0 / 3.0),
    }
    thumbs = pa.array(np.where(rated, up, np.nan), from_pandas=True)
    return pa.table({**columns, "reward": thumbs})


def test_rounds_with_a_reward_stand_for_those_without_on_request():
    """All requests earn 0.45, rated ones 0.3. 95 % intervals hold 0.45 in fewer than 15 of 20 logs with
    probability 0.0003.
    """
    held, held_without = 0, 0
    for seed in range(20):
        log = rated_log(seed)
        values = [earned(log, weight_missing) for weight_missing in ((), ("task",))]
        held_without += values[0].low <= 0.45 <= values[0].high
        held += values[1].low <= 0.45 <= values[1].high
    assert held >= 15
    assert held_without == 0


def earned(log, weight_missing):
    """Estimate of what the log earned per round."""
    read = read_feedback(log, keep_going=True, weight_missing=weight_missing)
    return logged_value(read.feedback)


@pytest.mark.parametrize("column", ["task", "arm"])
def test_weights_add_up_to_all_rounds(column):
    log = rated_log()
    read = read_feedback(log, keep_going=True, weight_missing=[column])
    assert read.feedback.round_weights.sum() == pytest.approx(12_000)
    assert any(f"the same {column}" in note for note in read.notes)


def test_a_gain_is_that_of_all_rounds():
    """b everywhere instead of the uniform log: +0.1 for all rounds (0.3 · ½ less a third of it), +0.04 for rated
    ones.
    """
    log = rated_log(3)
    opened = open_log(log, arms=["a", "b", "c"])
    gains = {}
    for weight_missing in ((), ("task",)):
        read = read_feedback(opened, keep_going=True, weight_missing=weight_missing)
        feedback = read.feedback
        target = feedback.per_row(lambda part: np.tile([0.0, 1.0, 0.0], part.rounds))
        gains[weight_missing] = snips(feedback, target).minus(logged_value(feedback))
    assert gains["task",].low <= 0.1 <= gains["task",].high
    assert gains[()].high < 0.1


def test_weights_need_known_columns_and_some_rewards_in_every_group():
    log = rated_log()
    with pytest.raises(
        ib.InputError, match="must name features or the arm, got 'colour'"
    ):
        read_feedback(log, keep_going=True, weight_missing=["colour"])
    never = pc.if_else(pc.equal(log["task"], "hard"), None, log["reward"])
    with pytest.raises(ib.InputError, match=r"0 of .* rewards are there for task hard"):
        read_feedback(
            log.set_column(4, "reward", never),
            keep_going=True,
            weight_missing=["task"],
        )


def test_evaluation_says_first_that_it_is_about_rated_rounds():
    read = read_feedback(rated_log(2), keep_going=True)
    note = next(note for note in read.notes if "rewards are missing" in note)
    assert "more often where task = easy" in note
    assert note.endswith("; --weight-missing task weights them for all rounds")


def test_rows_out_of_order_have_their_own_weights():
    log = rated_log(1, 6000)
    times = np.random.default_rng(1).permutation(6000)
    ordered = log.append_column("time", pa.array(times))
    read = read_feedback(ordered, keep_going=True, weight_missing=["task"])
    plain = read_feedback(log, keep_going=True, weight_missing=["task"])
    mean, same = (logged_value(part.feedback).value for part in (read, plain))
    assert mean == pytest.approx(same)


@pytest.mark.filterwarnings(
    "ignore::invariant_bandits.features.arm_maps.SharedSlopesWarning"
)
@pytest.mark.parametrize("clicks", [True, False], ids=["clicks", "numbers"])
def test_coefficients_are_those_of_all_rounds_on_request(clicks):
    """b has 0.3 more in easy requests. With slopes that arms share b has 0.15 more in all rounds, 0.06 more in
    rated ones.

    The difference has a standard error of 0.02 by weighted rounds and of 0.015 by equal ones: the limits are
    3 of them away, and each fails with probability 0.003.
    """
    log = rated_log(5)
    if not clicks:
        noise = 0.1 * np.random.default_rng(5).normal(size=len(log))
        reward = pc.add(log["reward"], pa.array(noise))
        log = log.set_column(log.schema.get_field_index("reward"), "reward", reward)
    differences = {}
    for weight_missing in ((), ("task",)):
        model = ib.fit_logs(
            log,
            reward="reward",
            arm="arm",
            arm_model="shared",
            keep_going=True,
            weight_missing=weight_missing,
        )
        a, b, c = model.scores({"task": "easy", "length": 0.0}).mean
        differences[weight_missing] = b - (a + c) / 2.0
    assert differences["task",] == pytest.approx(0.15, abs=0.06)
    assert differences[()] < 0.105
    assert any("same task" in note for note in model.notes)


def test_weighted_rounds_count_as_the_equal_ones_that_they_are_worth():
    """Of the easy rounds a fifth is rated and weighs 5, of the hard ones four fifths, which weigh 1.25."""
    log = rated_log(4)
    model = ib.fit_logs(
        log, reward="reward", arm="arm", keep_going=True, weight_missing=["task"]
    )
    rated = log.filter(pc.is_valid(log["reward"]))
    shares = [
        pc.mean(pc.equal(part["task"], "easy")).as_py() * len(part)
        for part in (rated, log)
    ]
    easy = shares[1] / shares[0]
    hard = (len(log) - shares[1]) / (len(rated) - shares[0])
    squares = shares[0] * easy**2 + (len(rated) - shares[0]) * hard**2
    assert model.moments.rounds == int(len(log) ** 2 / squares)
    with pytest.raises(InputError, match="levels are not pooled"):
        ib.fit_logs(
            log,
            reward="reward",
            arm="arm",
            arm_model="pooled",
            keep_going=True,
            weight_missing=["task"],
        )
