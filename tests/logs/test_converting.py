"""Every format written from every other: the log stays the log; nothing is overwritten by accident."""

import json
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

import invariant_bandits as ib
from event_logs import event, rows_of, written
from invariant_bandits import cli
from invariant_bandits.logs.convert import convert
from invariant_bandits.logs.formats.registry import FORMATS, open_source
from log_tables import lists_of_offered, planted_log, rows_per_action, wide
from worlds import assert_same_moments

LOG = planted_log(seed=31, rounds=200)
TABLES = ["log.csv", "log.tsv.gz", "log.jsonl", "log.ndjson.zst", "log.parquet", "log.arrow"]
EVENTS = ["log.vw", "log.vw.gz", "log.dsjson"]


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("place", range(6))
def test_a_table_goes_through_two_formats(place, step, tmp_path):
    first, second = TABLES[place], TABLES[(place + step) % 6]
    (tmp_path / "two").mkdir()
    expected = ib.read_moments(wide(LOG), every="1d").moments
    for source, out in ((wide(LOG), tmp_path / first), (tmp_path / first, tmp_path / "two" / second)):
        done = convert(source, out)
        assert (done.quality.rows, done.quality.rounds) == (200, 200)
    assert_same_moments(ib.read_moments(tmp_path / "two" / second, every="1d").moments, expected)


@pytest.mark.parametrize("name", EVENTS)
def test_rows_per_action_become_events_and_come_back(name, tmp_path):
    expected = ib.read_moments(rows_per_action(LOG), {"time": None}, windows=4)
    done = convert(rows_per_action(LOG), tmp_path / name)
    assert done.quality.rounds == 200
    read = ib.read_moments(tmp_path / name, {"time": None}, windows=4)
    assert read.feature_map.names == expected.feature_map.names
    assert_same_moments(read.moments, expected.moments)
    batches = list(ib.read_rounds(tmp_path / name))
    np.testing.assert_array_equal(np.concatenate([batch.action for batch in batches]), LOG.actions)
    np.testing.assert_allclose(np.concatenate([batch.propensity for batch in batches]), LOG.propensities)


def test_dsjson_through_vowpal_text_and_tables_keeps_every_feature(tmp_path):
    rng = np.random.default_rng(4)
    lines = []
    for n in range(40):
        items = [
            {"B": {"x": float(rng.normal()), "w": f"word {(n + k) % 3}"}, "_tag": f"t{k}"}
            for k in range(1 + n % 3)
        ]
        context = {"U": {"age": n % 5, "Inner": {"deep": 2.5}}, "top": "here", "_multi": items}
        lines.append(event(n, chosen=0, cost=float(rng.normal()), context=context))
    origin = written(tmp_path / "origin.json", lines)
    convert(origin, tmp_path / "again.dsjson")
    assert rows_of(tmp_path / "again.dsjson") == rows_of(origin)
    convert(origin, tmp_path / "log.vw")
    convert(origin, tmp_path / "log.parquet")
    for found, row in zip(rows_of(tmp_path / "log.vw"), rows_of(origin), strict=True):
        expected = {name: value for name, value in row.items() if name not in ("event_id", "time")}
        expected["B.w"] = expected["B.w"].replace(" ", "_")
        assert {name: value for name, value in found.items() if name != "event_id"} == expected
    schema = ib.open_log(tmp_path / "log.parquet").schema
    assert (schema.reward, schema.chosen, schema.round, schema.time) == (
        "reward",
        "chosen",
        "event_id",
        "time",
    )
    assert ib.read_moments(tmp_path / "log.parquet", {"features": ["B.x"]}, windows=1).moments.rounds == 40


def test_vowpal_reads_what_is_written(tmp_path):
    pyvw = pytest.importorskip("vowpalwabbit", reason="Vowpal's own parser is the judge")
    convert(rows_per_action(LOG), tmp_path / "log.vw")
    convert(rows_per_action(LOG), tmp_path / "log.dsjson")
    texts = (tmp_path / "log.vw").read_text().split("\n\n")[:-1]
    lines = (tmp_path / "log.dsjson").read_text().splitlines()
    seen = {}
    for kind, events in (
        ("--cb_explore_adf", [text.split("\n") for text in texts]),
        ("--cb_explore_adf --dsjson", lines),
    ):
        with pyvw.Workspace(f"{kind} --quiet") as workspace:
            for one in events:
                parsed = workspace.parse(one)
                costs = [example.get_label(pyvw.LabelType.CONTEXTUAL_BANDIT).costs for example in parsed]
                costs = [
                    [(cost.cost, cost.probability) for cost in item if cost.cost < 1e30] for item in costs
                ]
                seen.setdefault(kind, []).append(costs[-int(LOG.counts[len(seen.get(kind, []))]) :])
                workspace.finish_example(parsed)
    text, from_json = seen.values()
    assert len(text) == len(from_json) == 200
    for costs, action, reward, share in zip(text, LOG.actions, LOG.rewards, LOG.propensities, strict=True):
        assert [bool(item) for item in costs] == [place == action for place in range(len(costs))]
        assert costs[action][0] == pytest.approx((-reward, share), rel=1e-6)
    for costs, again in zip(text, from_json, strict=True):
        assert [bool(item) for item in again] == [bool(item) for item in costs]
        assert again[-1] == [pytest.approx(item, rel=1e-6) for item in costs[-1]]


def test_labels_of_arms_become_events_with_the_active_arms(tmp_path):
    rng = np.random.default_rng(8)
    n = 300
    arms = np.where(np.arange(n) < 100, rng.choice(["a", "b"], n), rng.choice(["a", "b", "c"], n))
    uses = {arm: np.flatnonzero(arms == arm) for arm in "abc"}
    table = pa.table(
        {
            "banner": arms,
            "click": (rng.random(n) < 0.3).astype(int),
            "age": rng.normal(40, 9, n).round(2),
            "propensity": np.where(np.arange(n) < 100, 0.5, 1 / 3),
            "time": np.datetime64("2024-01-01", "us") + np.arange(n) * np.timedelta64(1, "h"),
        }
    )
    convert(table, tmp_path / "log.dsjson")
    rounds = {}
    for row in rows_of(tmp_path / "log.dsjson"):
        rounds.setdefault(row["event_id"], []).append(row)
    active = [[arm for arm, rows in uses.items() if rows[0] <= place <= rows[-1]] for place in range(n)]
    assert [[row["action"] for row in rows] for rows in rounds.values()] == active
    assert uses["c"][0] >= 100
    assert [row["action"] for rows in rounds.values() for row in rows if row["chosen"]] == arms.tolist()
    assert [rows[0]["age"] for rows in rounds.values()] == table["age"].to_pylist()


def test_what_seemed_whole_and_is_not_and_what_is_no_number(tmp_path):
    """The first megabyte has whole numbers only."""
    rows = [
        f"{i % 2},{i if i < 150_000 else i + 0.5},2024-01-01 00:00:{i % 60:02d},{i % 3 == 0}"
        for i in range(160_000)
    ]
    rows[5], rows[9] = "1,many,2024-01-01 00:00:05,True", "1,2,3"
    (tmp_path / "log.csv").write_text("\n".join(["reward,x,time,flag", *rows]))
    done = convert(tmp_path / "log.csv", tmp_path / "log.parquet")
    assert done.describe().splitlines() == [
        "Parquet: 159,999 written of 160,000 read",
        "          1  row with another number of values than the header",
        "          1  values of x are not of its type: missing",
    ]
    table = pq.read_table(tmp_path / "log.parquet")
    assert table.schema.types == [pa.int64(), pa.float64(), pa.timestamp("us"), pa.bool_()]
    assert table["x"][-1].as_py() == 159_999.5
    assert table["x"].null_count == 1


def test_nothing_is_overwritten_by_accident(tmp_path):
    path = tmp_path / "log.csv"
    csv.write_csv(wide(LOG), path)
    before = path.read_bytes()
    (tmp_path / "there.jsonl").write_text("mine")
    with pytest.raises(ib.InputError, match=r"there\.jsonl is there already; --force"):
        convert(path, tmp_path / "there.jsonl")
    (tmp_path / "link.csv").symlink_to(path)
    for out in (path, tmp_path / "link.csv"):
        with pytest.raises(ib.InputError, match="OUT must not be a file that is read"):
            convert(path, out, force=True)
    assert path.read_bytes() == before
    assert (tmp_path / "there.jsonl").read_text() == "mine"
    convert(path, tmp_path / "there.jsonl", force=True)
    assert len((tmp_path / "there.jsonl").read_text().splitlines()) == 200


@pytest.mark.parametrize(
    ("source", "out", "message"),
    [
        (wide(LOG), "log.xlsx", r"OUT must end as .*Parquet \.parquet, \.pq.*got"),
        (wide(LOG), "nowhere/log.csv", "OUT must be a file in a folder that is there"),
        (wide(LOG), "log.vw", "propensity is missing"),
        (
            wide(LOG).append_column("propensity", pa.array([0.5] * 200)),
            "log.vw",
            "one row per offered action",
        ),
        (lists_of_offered(LOG), "log.csv", r"could not be written: Unsupported Type"),
    ],
)
def test_what_cannot_be_written_leaves_nothing_behind(source, out, message, tmp_path):
    with pytest.raises(ib.InputError, match=message):
        convert(source, tmp_path / out)
    assert list(tmp_path.iterdir()) == []


def test_lists_survive_json_lines(tmp_path):
    convert(lists_of_offered(LOG), tmp_path / "log.jsonl")
    expected = ib.read_moments(lists_of_offered(LOG), windows=3).moments
    assert_same_moments(ib.read_moments(tmp_path / "log.jsonl", windows=3).moments, expected)
    assert json.loads((tmp_path / "log.jsonl").read_text().splitlines()[0])["time"].startswith("2024-01-01T")


def test_every_format_of_files_can_be_written():
    files = [
        log_format
        for log_format in FORMATS
        if log_format.suffixes and log_format.kind.__module__.startswith("invariant_bandits.")
    ]
    assert len(files) == 6
    assert all({"write_table", "write_events"} & set(dir(file.kind)) for file in files)


def test_the_command_converts(tmp_path, monkeypatch, capsys):
    csv.write_csv(wide(LOG), tmp_path / "log.csv")

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["invariant-bandits", "convert", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        shown = capsys.readouterr()
        return ended.value.code, shown.out + shown.err

    code, shown = run(tmp_path / "log.csv", tmp_path / "log.parquet")
    assert (code, "Parquet: 200 written of 200 read" in shown) == (0, True)
    assert open_source(tmp_path / "log.parquet").total_rows == 200
    code, shown = run(tmp_path / "log.csv", tmp_path / "log.parquet")
    assert (code, "is there already" in shown) == (2, True)
    assert run(tmp_path / "log.csv", tmp_path / "log.parquet", "--force")[0] == 0
