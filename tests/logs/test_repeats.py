"""Rows that repeat a decision: counted, merged into one round, and the reward that counts is chosen."""

import json

import numpy as np
import pyarrow as pa
import pytest

import invariant_bandits as ib
from invariant_bandits import InputError
from invariant_bandits.features.arm_maps import SharedSlopesWarning
from invariant_bandits.logs.quality import QualityReport
from reading import read_moments, read_rounds


def rewards_of(log):
    """Rewards of the rounds of a log, and what was counted on the way."""
    quality = QualityReport()
    parts = [part.rewards for part in read_rounds(log, report=quality)]
    return np.concatenate(parts), quality


def at_least_once(rounds=2000, seed=0, repeats=0.4, name="event_id"):
    """Rows of a stream that sends `clicked: false` at once, and some rows again with what came of them."""
    rng = np.random.default_rng(seed)
    arm = rng.choice(["red", "green"], rounds)
    age = rng.normal(40.0, 10.0, rounds)
    clicked = rng.random(rounds) < np.where(arm == "red", 0.2, 0.5)
    again = rng.random(rounds) < repeats
    rows = []
    for index in range(rounds):
        row = {
            "time": index,
            name: f"e{index}",
            "age": age[index],
            "banner": arm[index],
            "clicked": False,
        }
        rows.append((float(index), row))
        if clicked[index] or again[index]:
            rows.append(
                (
                    index + 40.5,
                    {**row, "time": index + 40.5, "clicked": bool(clicked[index])},
                )
            )
    rows.sort(key=lambda pair: pair[0])
    return pa.Table.from_pylist([row for _, row in rows]), age, clicked


@pytest.mark.parametrize(
    "name", ["event_id", "notification_id", "message_id", "uuid", "id", "callId"]
)
def test_a_click_that_a_later_row_reports_is_the_reward_of_the_decision(name):
    table, _, clicked = at_least_once(name=name)
    log = ib.open_log(table)
    rewards, quality = rewards_of(log)
    assert log.schema.round == name
    assert quality.rounds == len(clicked)
    assert quality.left_out == 0
    assert quality.problems[f"repeated {name}"].count == len(table) - len(clicked)
    np.testing.assert_array_equal(rewards, clicked)
    assert "have different rewards: the last one counts" in log.notes[0]
    assert "--repeated" in log.notes[0]


def test_the_reward_of_copies_is_the_last_first_largest_or_their_sum():
    table = pa.table(
        {
            "event_id": ["a", "b", "a", "c", "a", "b"],
            "time": [1, 2, 5, 3, 4, 6],
            "x": [1.0, 2.0, 1.0, 3.0, 1.0, 2.0],
            "reward": [1.0, 0.5, 2.0, 7.0, 4.0, None],
        }
    )
    rewards = {}
    for way in ("last", "first", "max", "sum"):
        log = ib.open_log(table, {"repeated": way, "time": "time", "round": "event_id"})
        rewards[way] = rewards_of(log)[0].tolist()
    assert rewards == {
        "last": [2.0, 0.5, 7.0],
        "first": [1.0, 0.5, 7.0],
        "max": [4.0, 0.5, 7.0],
        "sum": [7.0, 0.5, 7.0],
    }


def test_a_reward_that_only_a_copy_has_is_used():
    rows = {
        "event_id": ["a", "a", "b"],
        "x": [1.0, 1.0, 2.0],
        "reward": [None, 3.0, None],
    }
    rewards, quality = rewards_of(ib.open_log(pa.table(rows), {"round": "event_id"}))
    assert rewards.tolist() == [3.0]
    assert quality.problems["missing reward"].count == 1


def test_copies_with_different_rewards_can_be_refused():
    table, _, _ = at_least_once()
    with pytest.raises(
        InputError, match="repeated values of 'event_id' have different rewards"
    ):
        ib.fit_logs(table, {"repeated": "error"})
    same = table.set_column(
        table.schema.get_field_index("clicked"),
        "clicked",
        pa.array([True] * len(table)),
    )
    log = ib.open_log(same, {"repeated": "error"})
    assert log.survey().repeats.differing == 0
    with pytest.raises(InputError, match="repeated must be one of last, first"):
        ib.open_log(table, {"repeated": "newest"})


def test_the_reward_that_counts_is_minimised_where_less_is_better():
    rows = {"event_id": ["a", "a", "b"], "x": [1.0, 1.0, 2.0], "cost": [1.0, 4.0, 2.0]}
    rewards, _ = rewards_of(
        ib.open_log(pa.table(rows), {"reward": "cost", "minimise": True, "time": None})
    )
    assert rewards.tolist() == [-4.0, -2.0]


def test_a_copy_with_another_arm_is_left_out_and_counted():
    rows = {
        "event_id": ["a", "a", "b"],
        "arm": ["u", "v", "u"],
        "x": [1.0, 1.0, 2.0],
        "reward": [1.0, 9.0, 2.0],
    }
    log = ib.open_log(pa.table(rows), {"round": "event_id", "arm": "arm"})
    rewards, quality = rewards_of(log)
    assert quality.problems["duplicated event_id with another arm"].count == 1
    assert rewards.tolist() == [1.0, 2.0]


def test_rows_of_a_round_with_other_features_are_not_merged_in_silence():
    """Items of one request are no copies of it; most rows would be lost, so the log is refused."""
    rng = np.random.default_rng(4)
    rows = {
        "request_id": np.repeat(np.arange(500), 4),
        "price": rng.normal(size=2000),
        "clicked": rng.integers(0, 2, 2000),
    }
    with pytest.raises(
        InputError, match="duplicated request_id with another value of a feature"
    ):
        ib.fit_logs(pa.table(rows))
    log = ib.open_log(pa.table(rows))
    log.survey()
    assert "is it the round" in log.notes[0]


def test_people_who_come_again_are_no_repeated_decisions():
    rng = np.random.default_rng(1)
    rounds = 3000
    table = pa.table(
        {
            "user_id": rng.integers(0, 500, rounds),
            "session_id": rng.integers(0, 900, rounds),
            "order_id": rng.integers(
                0, 900, rounds
            ),  # an order of several rows that differ
            "hour": rng.integers(0, 24, rounds),
            "banner": rng.choice(["a", "b"], rounds),
            "clicked": rng.integers(0, 2, rounds),
        }
    )
    log = ib.open_log(table)
    assert log.schema.round is None
    assert read_moments(log, windows=2).quality.rounds == rounds


def test_files_in_which_the_newest_row_stands_first_give_the_same_rounds(tmp_path):
    table, _, clicked = at_least_once(seed=3)
    rows = table.to_pylist()
    first, second = tmp_path / "1.jsonl", tmp_path / "2.jsonl"
    newest = rows[::-1]
    first.write_text("\n".join(map(json.dumps, newest[: len(rows) // 3])))
    second.write_text("\n".join(map(json.dumps, newest[len(rows) // 3 :])))
    moments = read_moments([str(first), str(second)], windows=4).moments
    expected = read_moments(table, windows=4).moments
    np.testing.assert_allclose(moments.gram, expected.gram, rtol=1e-9)
    np.testing.assert_allclose(moments.cross, expected.cross, rtol=1e-9)
    assert moments.rounds == len(clicked)


def test_a_log_whose_rewards_are_all_equal_stops():
    rng = np.random.default_rng(2)
    table = pa.table(
        {
            "x": rng.normal(size=500),
            "arm": rng.choice(["a", "b"], 500),
            "reward": np.zeros(500),
        }
    )
    with pytest.raises(InputError, match="every reward of the log is 0"):
        ib.fit_logs(table)
    with pytest.warns(SharedSlopesWarning):  # no reward tells arms apart
        model = ib.fit_logs(table, keep_going=True)
    assert model.moments.rounds == 500
