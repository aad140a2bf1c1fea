"""Logs with labels of arms: found, read per window and arm, on files and tables, with what was offered."""

from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

import invariant_bandits as ib
from invariant_bandits import InputError, WindowedMoments, storage
from invariant_bandits.features.arm_maps import OwnCoefficients
from invariant_bandits.logs import spill
from invariant_bandits.logs.arms import Arm, ArmTable
from invariant_bandits.logs.formats import columnar
from invariant_bandits.logs.log import open_log
from invariant_bandits.logs.quality import QualityReport
from invariant_bandits.logs.reader import encoded_rounds
from invariant_bandits.logs.scan import read_arm_sample
from labelled_logs import LABELS, labelled_log
from reading import read_clicks, read_feedback, read_moments, read_rounds, read_schema
from worlds import assert_same_moments

LOG = labelled_log(seed=0)
TABLE = LOG.table()
EDGES = np.datetime64("2024-01-01", "us") + np.arange(7) * np.timedelta64(
    60 * 86_400_000_000, "us"
)


def contexts(log=LOG):
    """z = [1, age, hour, country=DE], standardised."""
    raw = np.column_stack([log.contexts, log.country == "DE"])
    return np.column_stack(
        [np.ones(len(raw)), (raw - raw.mean(axis=0)) / raw.std(axis=0)]
    )


def crossed(z, arms, count):
    phi = np.zeros((len(z), count, z.shape[1]))
    phi[np.arange(len(z)), arms] = z
    return phi.reshape(len(z), -1)


def as_csv(folder):
    csv.write_csv(TABLE, folder / "log.csv")
    return folder / "log.csv"


def as_parquet(folder):
    pq.write_table(TABLE, folder / "log.parquet", row_group_size=371)
    return folder / "log.parquet"


@pytest.mark.parametrize(
    "make", [lambda folder: TABLE, as_csv, as_parquet], ids=["table", "CSV", "Parquet"]
)
def test_statistics_per_window_and_arm_are_those_of_the_arrays(make, tmp_path):
    read = read_moments(make(tmp_path), edges=EDGES)
    assert read.feature_map.labels == LABELS
    assert isinstance(read.feature_map, OwnCoefficients)
    assert read.feature_map.context_names == ("1", "age", "hour", "country=DE")
    z, window = contexts(), np.searchsorted(EDGES, LOG.times, side="right") - 1
    for i in range(6):
        for a in range(4):
            rows = (window == i) & (LOG.arms == a)
            np.testing.assert_allclose(
                read.of_arms.gram[i, a], z[rows].T @ z[rows], atol=1e-8
            )
            np.testing.assert_allclose(
                read.of_arms.cross[i, a], z[rows].T @ LOG.rewards[rows], atol=1e-8
            )
            assert read.of_arms.rounds[i, a] == rows.sum()
    assert (read.of_arms.rounds[3:, 2] == 0).all()
    assert read.of_arms.rewards_are_binary


@pytest.mark.parametrize("coding", ["own", "shared"])
def test_moments_of_features_are_those_of_the_crossed_rows(coding):
    options = ib.FeatureOptions(arm_model=coding)
    read = read_moments(TABLE, edges=EDGES, features=options)
    z = contexts()
    phi = (
        crossed(z, LOG.arms, 4)
        if coding == "own"
        else np.column_stack([np.eye(4)[LOG.arms], z[:, 1:]])
    )
    direct = WindowedMoments.from_arrays(phi, LOG.rewards, times=LOG.times, edges=EDGES)
    assert_same_moments(read.moments, direct)
    assert read.feature_map.names[:2] == (
        ("banner_A", "banner_A × age") if coding == "own" else LABELS[:2]
    )
    assert f"coefficients: {coding}, as asked for" in read.describe()


def test_shards_add_to_the_whole():
    whole = read_moments(TABLE, edges=EDGES)
    arms = {"arms": LABELS}
    parts = [open_log(TABLE.slice(start, 2000), **arms) for start in (0, 2000)]
    first, second = (
        read_moments(part, edges=EDGES, features=whole.feature_map).of_arms
        for part in parts
    )
    assert_same_moments((first + second).of_features(), whole.of_arms.of_features())


def test_a_logit_pass_gives_the_weighted_sums():
    read = read_moments(TABLE, edges=EDGES)
    theta = np.random.default_rng(1).normal(size=(4, 4))
    weighed = read_clicks(TABLE, read.feature_map, theta, edges=EDGES)
    z = contexts()
    window = np.searchsorted(EDGES, LOG.times, side="right") - 1
    linear = np.einsum("ij,ij->i", z, theta[LOG.arms])
    chance = 1.0 / (1.0 + np.exp(-linear))
    weight = chance * (1.0 - chance)
    for i, a in [(0, 0), (2, 2), (5, 3), (4, 2)]:
        rows = (window == i) & (LOG.arms == a)
        gram = (z[rows] * weight[rows, None]).T @ z[rows]
        np.testing.assert_allclose(weighed.gram[i, a], gram, atol=1e-8)
        expected = gram @ theta[a] + z[rows].T @ (LOG.rewards - chance)[rows]
        np.testing.assert_allclose(weighed.cross[i, a], expected, atol=1e-8)


def test_a_logit_pass_refuses_rewards_that_are_no_clicks():
    table = TABLE.set_column(2, "click", pa.array(LOG.rewards * 0.5))
    read = read_moments(table)
    assert not read.of_arms.rewards_are_binary
    with pytest.raises(InputError, match="rewards must be 0 or 1"):
        read_clicks(table, read.feature_map, np.zeros((4, 4)))


def test_one_reward_that_is_no_click_is_noticed():
    rewards = np.tile(LOG.rewards, 50)
    rewards[77] = 0.5
    arms = np.tile(LOG.labels, 50)
    assert not read_moments(
        pa.table({"arm": arms, "reward": rewards})
    ).of_arms.rewards_are_binary


def test_the_sample_is_spread_over_the_log_and_always_the_same():
    features = read_moments(TABLE).feature_map
    sample = read_arm_sample(open_log(TABLE), features, most=1000)
    assert 800 < len(sample.rewards) < 1200  # 1000 ± 27 in a random draw
    assert sample.share == 0.25
    z = contexts()
    places = [
        np.flatnonzero(np.isclose(z[:, 1], row[1]) & np.isclose(z[:, 2], row[2]))[0]
        for row in sample.contexts
    ]
    assert [np.sum((np.array(places) // 1000) == part) > 180 for part in range(4)] == [
        True
    ] * 4
    np.testing.assert_array_equal(sample.arms, LOG.arms[places])
    np.testing.assert_array_equal(sample.rewards, LOG.rewards[places])
    whole = read_arm_sample(open_log(TABLE), features)
    np.testing.assert_allclose(whole.contexts, z, atol=1e-9)
    np.testing.assert_array_equal(
        read_arm_sample(open_log(TABLE), features, most=1000).arms, sample.arms
    )


# -- what was offered --


def test_without_anything_else_an_arm_is_offered_from_its_first_to_its_last_use():
    log = open_log(TABLE)
    assert log.arms.source == "log"
    assert [arm.active for arm in log.arms.arms] == [True, True, False, True]
    assert log.arms.arms[2].last == LOG.times[LOG.arms == 2].max()
    assert log.arms.arms[3].first == LOG.times[LOG.arms == 3].min()
    shown = log.arms.describe()
    assert "an arm counts as offered from its first to its last use" in shown
    assert "banner_C  " in shown
    assert "retired" in shown
    rounds = next(read_rounds(log))
    assert_offered_sets(log, LOG.active)
    assert rounds.features.shape == (len(rounds), 16)


def assert_offered_sets(log, active, most_wrong=20):
    """What is offered differs from the truth only between an arm's launch and its first use, and after
    its last.
    """
    batches = list(read_rounds(log))
    counts = np.concatenate([batch.offered_counts for batch in batches])
    arms = np.concatenate([batch.offered_arms for batch in batches])
    mask = np.zeros((len(counts), 4), dtype=bool)
    mask[np.repeat(np.arange(len(counts)), counts), arms] = True
    assert (mask <= active).all()
    assert (mask != active).sum() <= most_wrong
    chosen = np.concatenate([batch.arm for batch in batches])
    action = np.concatenate([batch.action for batch in batches])
    np.testing.assert_array_equal(chosen, LOG.arms)
    np.testing.assert_array_equal(arms[np.cumsum(counts) - counts + action], LOG.arms)
    z = contexts()
    offered = np.concatenate([batch.offered for batch in batches])
    np.testing.assert_allclose(
        offered, crossed(np.repeat(z, counts, axis=0), arms, 4), atol=1e-9
    )


@pytest.mark.parametrize("words", [False, True])
def test_a_column_of_lists_says_what_was_offered(words):
    lists = [[LABELS[a] for a in np.flatnonzero(row)] for row in LOG.active]
    column = pa.array(["|".join(labels) for labels in lists] if words else lists)
    log = open_log(TABLE.append_column("offered_arms", column))
    assert log.schema.arms_offered == "offered_arms"
    assert log.arms.source == "lists"
    assert_offered_sets(log, LOG.active, most_wrong=0)


def test_a_catalogue_says_when_arms_are_valid_and_what_they_are(tmp_path):
    half, eight = (datetime(2024, 1, 1) + timedelta(days=days) for days in (180, 240))
    catalogue = pa.table(
        {
            "name": [*LABELS, "banner_E"],
            "price": [1.0, 2.0, 3.0, 4.0, 5.0],
            "valid_from": pa.array([None, None, None, eight, None], pa.timestamp("us")),
            "valid_until": pa.array([None, None, half, None, None], pa.timestamp("us")),
        }
    )
    csv.write_csv(catalogue, tmp_path / "items.csv")
    for source in (catalogue, tmp_path / "items.csv"):
        log = open_log(TABLE, catalogue=source)
        assert log.arms.labels == (*LABELS, "banner_E")
        assert log.arms.source == "catalogue"
        assert [arm.active for arm in log.arms.arms] == [True, True, False, True, True]
        mask = log.arms.offered_at(LOG.times)
        np.testing.assert_array_equal(mask[:, :4], LOG.active)
        assert mask[:, 4].all()
        features = read_moments(log).feature_map
        assert features.traits.names == ("price",)
        np.testing.assert_allclose(
            features.catalogue[:, 0] * np.std([1, 2, 3, 4, 5]) + 3, [1, 2, 3, 4, 5]
        )
        assert read_moments(log).of_arms.rounds[:, 4].sum() == 0


def test_told_arms_are_offered_in_every_round():
    log = open_log(TABLE, arms=[*LABELS, "banner_Z"])
    batch = next(read_rounds(log))
    assert (batch.offered_counts == 5).all()
    with pytest.raises(
        InputError, match="arms: none of x, y is a label of the log, which has banner_A"
    ):
        open_log(TABLE, arms=["x", "y"]).arms  # noqa: B018
    with pytest.raises(InputError, match="schema: arm is missing"):
        open_log(pa.table({"reward": [1.0], "x": [2.0]}), arms=["x"])


def test_rounds_of_arms_that_were_not_told_are_left_out_and_most_of_them_refused():
    quality = read_moments(open_log(TABLE, arms=LABELS[:3])).quality
    assert quality.problems["label of no known arm"].count == (LOG.arms == 3).sum()
    with pytest.raises(InputError, match="most rounds of the log cannot be used"):
        read_moments(open_log(TABLE, arms=["banner_D"]))


def test_a_log_without_times_bounds_arms_by_rows(tmp_path):
    table = TABLE.drop(["ts"])
    pq.write_table(table.slice(0, 2500), tmp_path / "a.parquet", row_group_size=300)
    pq.write_table(table.slice(2500), tmp_path / "b.parquet", row_group_size=300)
    log = open_log(tmp_path)
    assert log.arms.arms[2].last == np.flatnonzero(LOG.arms == 2)[-1]
    assert not log.arms.arms[2].active
    assert_offered_sets(log, LOG.active)


def test_one_row_per_arm_with_one_context_per_round_is_a_labelled_log():
    """Taken for features of actions, all rows of a round would be the same, and every policy would pick
    the first.
    """
    counts = LOG.active.sum(axis=1)
    arms = np.nonzero(LOG.active)[1]
    rows = np.repeat(np.arange(len(counts)), counts)
    chosen = arms == LOG.arms[rows]
    for name in ("arm", "banner", "action"):
        table = pa.table(
            {
                "round_id": rows,
                "ts": LOG.times[rows],
                name: np.array(LABELS)[arms],
                "chosen": chosen,
                "reward": pa.array(
                    np.where(chosen, LOG.rewards[rows], np.nan), from_pandas=True
                ),
                "age": LOG.contexts[rows, 0],
                "hour": LOG.contexts[rows, 1],
                "country": LOG.country[rows],
            }
        )
        log = open_log(table)
        assert log.schema.arm == name
        assert log.arms.source == "lists"
        assert [arm.plays for arm in log.arms.arms] == np.bincount(LOG.arms).tolist()
        assert_offered_sets(log, LOG.active, most_wrong=0)
        read = read_moments(log, edges=EDGES)
        assert_same_moments(read.moments, read_moments(TABLE, edges=EDGES).moments)


def test_a_log_without_context_is_a_labelled_log():
    read = read_moments(pa.table({"arm": LOG.arms, "reward": LOG.rewards}), windows=2)
    assert read.feature_map.names == ("0", "1", "2", "3")
    np.testing.assert_allclose(
        read.of_arms.cross.sum(axis=0)[:, 0], np.bincount(LOG.arms, LOG.rewards)
    )


def test_feedback_of_labelled_arms_is_ready_for_policies():
    read = read_feedback(TABLE)
    assert read.feedback.rounds == 4000
    assert read.feedback.dim == 16
    np.testing.assert_array_equal(read.feedback.propensities, LOG.propensities)
    np.testing.assert_allclose(
        read.feedback.features, crossed(contexts(), LOG.arms, 4), atol=1e-9
    )


# -- the table --


def test_the_table_survives_storing():
    table = open_log(TABLE).arms
    assert storage.from_state(ArmTable, *storage.to_state(table)) == table
    by_rows = ArmTable((Arm("a", 0, 7, 3), Arm("b")), "caller")
    assert storage.from_state(ArmTable, *storage.to_state(by_rows)) == by_rows


def test_wrong_tables_are_refused():
    with pytest.raises(InputError, match="different labels"):
        ArmTable((Arm("a"), Arm("a")), "caller")
    with pytest.raises(InputError, match="source must be one of"):
        ArmTable((Arm("a"),), "guessed")
    with pytest.raises(
        InputError, match="arm 'banner_X' is not known; the arms are banner_A, banner_B"
    ):
        open_log(TABLE).arms.index("banner_X")


def test_a_column_with_too_many_labels_is_no_arm():
    labels = [f"u{row}" for row in range(4000)]
    assert (
        read_schema(LOG.table("item_id").set_column(1, "item_id", pa.array(labels))).arm
        is None
    )
    table = TABLE.set_column(1, "banner", pa.array(labels))
    with pytest.raises(
        InputError, match="'banner' has 4,000 different labels in 4,000 rounds"
    ):
        read_moments(table, {"arm": "banner"})


def test_a_label_with_too_many_values_is_named_as_what_it_could_be():
    table = LOG.table("item_id").set_column(1, "item_id", pa.array(np.arange(4000)))
    shown = read_schema(table).describe()
    assert (
        "could be the arm, but 1000 different in the first 1000 rows; --arm item_id says that it is"
        in shown
    )


def test_arms_that_were_never_in_use_together_say_nothing_about_what_was_offered():
    """Rows sorted by the label, and no time: their order would pass for time, one arm for all that was
    offered.
    """
    table = TABLE.drop(["ts"]).sort_by("banner")
    with pytest.raises(
        InputError, match=r"'banner': no two arms were in use in the same range of rows"
    ):
        read_moments(table)
    assert read_moments(open_log(table, arms=LABELS)).of_arms.rounds.sum() == 4000
    assert open_log(TABLE.sort_by("banner")).arms == open_log(TABLE).arms


def test_many_arms_are_shown_in_part():
    shown = open_log(TABLE).arms.describe(2)
    assert "banner_B" in shown
    assert "banner_C" not in shown
    assert shown.endswith("and 2 more")


def test_only_the_last_rounds_are_made_if_only_they_are_needed(tmp_path, monkeypatch):
    monkeypatch.setattr(columnar, "ROWS_PER_TASK", 1)
    path = as_parquet(tmp_path)
    features = read_moments(path).feature_map
    batches = list(encoded_rounds(open_log(path), features, QualityReport(), 500))
    assert 500 <= sum(len(batch) for batch in batches) < 500 + 371
    np.testing.assert_array_equal(
        np.concatenate([batch.arm for batch in batches])[-500:], LOG.arms[-500:]
    )
    feedback = read_feedback(path, latest=500).feedback
    np.testing.assert_array_equal(feedback.rewards, LOG.rewards[-500:])


@pytest.mark.parametrize("missing", [0, 40])
def test_the_second_pass_over_clicks_reads_what_the_first_one_kept(
    missing, monkeypatch
):
    rng = np.random.default_rng(3)
    gone = np.arange(TABLE.num_rows) < missing
    clicks = pa.array((rng.random(TABLE.num_rows) < 0.3).astype(int))
    country = pa.array(np.where(gone, None, rng.choice(["DE", "FR"], TABLE.num_rows)))
    index = TABLE.schema.get_field_index(read_schema(TABLE).reward)
    table = TABLE.set_column(index, TABLE.schema.names[index], clicks).append_column(
        "region", country
    )
    kept = ib.fit_logs(table)
    monkeypatch.setattr(spill, "MOST_SPOOLED", 0)
    assert ib.fit_logs(table).log_odds.moments == kept.log_odds.moments


def test_tiny_row_groups_are_read_together(tmp_path):
    whole, tiny = tmp_path / "whole.parquet", tmp_path / "tiny.parquet"
    pq.write_table(TABLE, whole)
    pq.write_table(TABLE, tiny, row_group_size=7)
    assert len(list(read_rounds(tiny))) == 1
    assert read_moments(tiny).moments == read_moments(whole).moments
