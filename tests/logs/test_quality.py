"""Bad rows are counted by reason and place, the rest gives the moments of the clean log, strict refuses."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

import invariant_bandits as ib
from invariant_bandits import InputError, WindowedMoments
from invariant_bandits.features.maps import FeatureOptions
from invariant_bandits.logs.quality import QualityReport
from log_tables import lists_of_offered, planted_log, rows_per_action, wide
from reading import read_feedback, read_moments, read_rounds
from worlds import assert_same_moments

LOG = planted_log(seed=5, rounds=200)
WHOLE = FeatureOptions(impute=False)


def with_values(table, column, changes):
    """The table with some rows of a column changed; values become Python objects."""
    values = table[column].to_pylist()
    for row, value in changes.items():
        values[row] = value
    return table.set_column(
        table.schema.get_field_index(column),
        column,
        pa.array(values, table[column].type),
    )


def damaged():
    table = with_values(wide(LOG), "reward", {3: None, 4: float("nan")})
    table = with_values(table, "x1", {9: float("inf"), 10: None, 11: None})
    return with_values(table, "time", {12: None, 50: wide(LOG)["time"][2].as_py()})


EXPECTED = {
    "missing reward": [3],
    "reward not finite": [4],
    "x1 not finite": [9],
    "missing x1": [10, 11],
    "missing time": [12],
    "out of order in time": [50],
}
LEFT_OUT = [3, 4, 9, 10, 11, 12]


def found(report):
    return {
        reason: [row for _, row in problem.examples]
        for reason, problem in report.problems.items()
    }


def without(rows):
    good = np.setdiff1d(np.arange(200), rows)
    return WindowedMoments.empty(3, 1).update(
        LOG.features[good], LOG.rewards[good], window=0
    )


def as_parquet(table, folder):
    pq.write_table(table, folder / "log.parquet", row_group_size=40)
    return folder / "log.parquet"


def as_csv(table, folder):
    csv.write_csv(table, folder / "log.csv")
    return folder / "log.csv"


@pytest.mark.parametrize(
    "make", [as_parquet, lambda table, folder: table], ids=["Parquet", "table"]
)
def test_every_bad_row_is_counted_under_its_reason_and_the_others_are_used(
    make, tmp_path
):
    read = read_moments(make(damaged(), tmp_path), windows=1, features=WHOLE)
    assert found(read.quality) == EXPECTED
    assert {
        reason: problem.count for reason, problem in read.quality.problems.items()
    } == {reason: len(rows) for reason, rows in EXPECTED.items()}
    assert (read.quality.rows, read.quality.rounds, read.quality.left_out) == (
        200,
        194,
        6,
    )
    assert_same_moments(read.moments, without(LEFT_OUT))


def test_strict_refuses_and_says_what_was_found():
    with pytest.raises(
        InputError,
        match=r"(?s)strict was asked for.*194 rounds used, 6 left out.*2  missing x1",
    ):
        read_moments(damaged(), windows=1, strict=True, features=WHOLE)
    assert read_moments(wide(LOG), windows=1, strict=True).quality.clean


def test_values_of_csv_files_that_are_no_numbers_cost_one_row_each(tmp_path):
    path = as_csv(wide(LOG), tmp_path)
    lines = path.read_text().splitlines()
    cells = [line.split(",") for line in lines]
    cells[1 + 7][2] = "n/k"
    cells[1 + 8][1] = ""
    cells[1 + 9][0] = '"yesterday"'
    cells[1 + 20] = cells[1 + 20][:3]
    cells[1 + 30][2] = "nan"
    path.write_text("\n".join(",".join(row) for row in cells) + "\n")
    read = read_moments(path, {"features": ["x*"]}, windows=1, features=WHOLE)
    assert found(read.quality) == {
        "unparsable x0": [7],
        "missing reward": [8],
        "unparsable time": [9],
        "row with another number of values than the header": [20],
        "missing x0": [30],
    }
    assert_same_moments(read.moments, without([7, 8, 9, 20, 30]))


@pytest.mark.parametrize(
    "written",
    [
        "2024-01-01T06:00:00Z",
        "2024-01-01 08:00:00+02:00",
        "2024-01-01T06:00:00.000000",
        "2024-01-01 06:00",
    ],
)
def test_iso_times_of_csv_files_are_utc(written, tmp_path):
    (tmp_path / "log.csv").write_text(
        f"time,reward,x\n{written},1.0,2.0\n2024-01-02T00:00:00,2,3\n"
    )
    (rounds,) = read_rounds(tmp_path / "log.csv")
    np.testing.assert_array_equal(
        rounds.times, np.array(["2024-01-01T06", "2024-01-02T00"], "datetime64[us]")
    )


def test_zones_become_utc_and_dates_midnights():
    times = (
        pa.array(LOG.times)
        .cast(pa.timestamp("us", "UTC"))
        .cast(pa.timestamp("us", "America/New_York"))
    )
    table = wide(LOG).set_column(0, "time", times)
    np.testing.assert_array_equal(next(read_rounds(table)).times, LOG.times)
    days = wide(LOG).set_column(0, "time", pa.array(LOG.times.astype("datetime64[D]")))
    np.testing.assert_array_equal(
        next(read_rounds(days)).times, LOG.times.astype("datetime64[D]")
    )


def test_rounds_outside_the_edges_are_counted():
    middle = LOG.times[100]
    read = read_moments(wide(LOG), edges=[LOG.times[0], middle])
    outside = int((LOG.times > middle).sum())
    assert read.quality.problems["outside the window edges"].count == outside
    assert read.quality.rounds == read.moments.rounds == 200 - outside


def test_order_is_also_checked_between_row_groups(tmp_path):
    table = pa.concat_tables([wide(LOG).slice(100), wide(LOG).slice(0, 100)])
    pq.write_table(table, tmp_path / "log.parquet", row_group_size=100)
    assert found(read_moments(tmp_path / "log.parquet", windows=1).quality) == {
        "out of order in time": [100]
    }


def test_repeated_round_ids_are_counted_once_more_and_left_out(tmp_path):
    ids = [str(index) for index in range(200)]
    ids[150], ids[151] = "3", "3"
    table = wide(LOG).append_column("round_id", pa.array(ids))
    read = read_moments(as_parquet(table, tmp_path), windows=1)
    assert found(read.quality) == {
        "duplicated round_id with another value of a feature": [150, 151]
    }
    assert_same_moments(read.moments, without([150, 151]))


def test_a_round_that_comes_again_is_left_out_the_second_time(tmp_path):
    table = rows_per_action(LOG)
    first = table.slice(0, int(LOG.counts[0]))
    pq.write_table(
        pa.concat_tables([table, first]), tmp_path / "log.parquet", row_group_size=13
    )
    read = read_moments(tmp_path / "log.parquet", windows=1)
    assert found(read.quality) == {"duplicated round_id": [len(table)]}
    assert read.quality.rounds == 200


def test_actions_and_propensities_are_checked():
    table = with_values(lists_of_offered(LOG), "action", {2: int(LOG.counts[2]), 5: -1})
    table = with_values(table, "propensity", {7: 0.0, 8: 1.5, 9: None})
    table = with_values(
        table,
        "offered",
        {
            11: [],
            12: None,
            13: [[1.0, 2.0]],
            14: [[1.0, None, 2.0]] * int(LOG.counts[14]),
        },
    )
    read = read_moments(table, {"rewards": None}, windows=1, features=WHOLE)
    assert found(read.quality) == {
        "chosen action outside the offered": [2, 5],
        "propensity outside (0, 1]": [7, 8],
        "missing propensity": [9],
        "no offered actions": [11, 12],
        "offered without its 3 numbers": [13],
        "missing offered": [14],
    }
    good = np.setdiff1d(np.arange(200), [2, 5, 7, 8, 9, 11, 12, 13, 14])
    rows = np.isin(np.repeat(np.arange(200), LOG.counts), good)
    direct = WindowedMoments.empty(3, 1, offered=True).update(
        LOG.features[good],
        LOG.rewards[good],
        window=0,
        offered=LOG.offered[rows],
        offered_counts=LOG.counts[good],
    )
    assert_same_moments(read.moments, direct)


def test_rounds_need_exactly_one_chosen_row_and_whole_features():
    table = rows_per_action(LOG)
    several = next(index for index in range(200) if LOG.counts[index] > 1)
    start = int(LOG.starts[several])
    none_at, twice_at = (
        int(LOG.starts[80] + LOG.actions[80]),
        start + (1 if LOG.actions[several] == 0 else 0),
    )
    bad_feature = int(LOG.starts[120] + LOG.counts[120] - 1)
    table = with_values(
        with_values(table, "chosen", {none_at: False, twice_at: True}),
        "x2",
        {bad_feature: None},
    )
    read = read_moments(table, windows=1, features=WHOLE)
    assert found(read.quality) == {
        "chosen action outside the offered": [int(LOG.starts[80])],
        "more than one chosen action": [start],
        "missing x2": [int(LOG.starts[120])],
    }
    assert read.quality.rounds == 197


def test_rewards_of_all_actions_must_be_complete():
    table = with_values(
        lists_of_offered(LOG),
        "offered_rewards",
        {4: [1.0] * 9, 6: [None] * int(LOG.counts[6])},
    )
    report = QualityReport()
    rounds = list(read_rounds(table, report=report))
    assert found(report) == {
        "offered_rewards without one number per offered action": [4],
        "offered_rewards missing or not finite": [6],
    }
    good = ~np.isin(np.repeat(np.arange(200), LOG.counts), [4, 6])
    np.testing.assert_array_equal(
        np.concatenate([batch.all_rewards for batch in rounds]), LOG.all_rewards[good]
    )


def test_only_the_first_examples_are_kept_and_parts_add_up():
    first, second = QualityReport(10, 9), QualityReport(20, 12)
    first.add("missing x", "a", [3])
    second.add("missing x", "b", range(8))
    first.merge(second)
    assert (first.rows, first.rounds, first.left_out) == (30, 21, 9)
    assert first.problems["missing x"].examples == [
        ("a", 3),
        ("b", 0),
        ("b", 1),
        ("b", 2),
        ("b", 3),
    ]
    assert "9  missing x (left out); first: a row 3, b row 0" in first.describe()


def test_offered_actions_that_are_all_the_same_are_refused():
    """The context repeated for every action: any policy would pick the first, and be praised for it."""
    table = rows_per_action(LOG)
    repeated = LOG.offered[np.repeat(LOG.starts, LOG.counts)]
    for j in range(3):
        table = table.set_column(
            table.schema.get_field_index(f"x{j}"), f"x{j}", pa.array(repeated[:, j])
        )
    for ask in (read_moments, read_feedback):
        with pytest.raises(
            InputError, match="all offered actions have the same features"
        ):
            ask(table)
    lists = lists_of_offered(LOG).set_column(
        4,
        "offered",
        pa.array([[[1.0, 2.0, 3.0]] * count for count in LOG.counts.tolist()]),
    )
    with pytest.raises(InputError, match="all offered actions have the same features"):
        read_feedback(lists)


def test_rounds_with_one_action_have_no_choice_to_look_at():
    quality = read_moments(rows_per_action(LOG)).quality
    assert quality.choices == (LOG.counts > 1).sum()
    assert quality.identical == 0


def test_an_action_that_reaches_no_feature_is_refused():
    table = wide(LOG).append_column("which", pa.array(LOG.actions))
    with pytest.raises(InputError, match="action 'which' reaches no feature"):
        read_moments(table, ib.Schema("reward", ("x*",), action="which"))
    assert (
        read_moments(
            table, ib.Schema("reward", ("x*", "which"), action="which")
        ).moments.dim
        == 4
    )
