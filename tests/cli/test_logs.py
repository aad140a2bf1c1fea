"""fit, inspect and evaluate: from files on a disk to verdicts, and what is left when something goes wrong."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import invariant_bandits as ib
from invariant_bandits import storage
from invariant_bandits.simulation.paper import PaperWorld
from log_tables import lists_of_offered, planted_log, rows_per_action, wide
from reading import read_feedback

FEATURES = [f"x{j}" for j in range(10)]


def paper_table(rounds=2000, seed=5):
    """The paper's log, one row per offered action, over eight weeks; logged uniformly at random."""
    logs = PaperWorld().log(rounds, np.random.default_rng(seed))
    n, K = logs.offered.shape[:2]
    times = np.datetime64("2024-01-01", "us") + np.arange(n) * (
        np.timedelta64(8 * 7 * 86400 * 10**6, "us") // n
    )
    chosen = (np.arange(K) == logs.actions[:, None]).reshape(-1)
    columns = {
        "round_id": np.repeat(np.arange(n), K),
        "time": np.repeat(times, K),
        "chosen": chosen,
        "propensity": np.full(n * K, 1.0 / K),
        "reward": pa.array(
            np.where(chosen, np.repeat(logs.rewards, K), np.nan), from_pandas=True
        ),
    }
    return pa.table(
        columns
        | {name: logs.offered[:, :, j].reshape(-1) for j, name in enumerate(FEATURES)}
    ), logs


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("logs")
    pq.write_table(paper_table()[0], folder / "rows.parquet", row_group_size=2500)
    return folder


# -- fit and inspect --


def test_fit_finds_what_was_planted_and_inspect_says_it_again(run, folder, tmp_path):
    code, said = run(
        "fit", folder / "rows.parquet", "-o", tmp_path / "m.model", "--every", "7d"
    )
    assert code == 0, said
    assert "chosen chosen by its name" in said
    assert (
        "3 of 10 dimensions drift, in 7 no drift was detected; 2,000 logged rounds in 8 windows"
        in said
    )
    model = ib.Model.load(tmp_path / "m.model")
    assert model.decomposition.split_.distance(paper_table()[1].split) < 0.1
    assert (
        model.value["lines"][0]["low"] > 0.0
    )  # choosing well beats choosing at random, by twenty standard errors
    code, again = run("inspect", tmp_path / "m.model")
    assert code == 0
    shared = said[said.index("What lasts") : said.index("model: ")]
    assert again.startswith(shared.strip())


def test_the_report_is_one_file_that_fetches_nothing_and_says_it_all(
    run, folder, tmp_path
):
    run("fit", folder / "rows.parquet", "-o", tmp_path / "m.model", "--every", "7d")
    page = (tmp_path / "m.html").read_text()
    assert re.findall(r'(?:src|href)="(?!#|data:)[^"]*"', page) == []
    assert page.count("<svg") == 1
    for part in (
        "Directions",
        "Drift",
        "Features",
        "Expected value",
        "Data quality",
        "Windows",
        "Columns",
    ):
        assert f">{part}</h2>" in page
    assert sorted(os.listdir(tmp_path)) == ["m.html", "m.model"]


def test_a_log_of_chosen_actions_is_fitted_with_a_warning_and_no_claim_of_value(
    run, tmp_path
):
    pq.write_table(wide(planted_log(0, 2000)), tmp_path / "wide.parquet")
    code, said = run(
        "fit",
        tmp_path / "wide.parquet",
        "-o",
        tmp_path / "m.model",
        "--policy",
        "linucb",
    )
    assert code == 0, said
    assert (
        "The log has chosen actions only; offered actions would give a more accurate basis."
        in said
    )
    assert (
        "The log has the chosen actions only, so what others would have earned cannot be known."
        in said
    )
    assert isinstance(ib.Model.load(tmp_path / "m.model").policy, ib.LinUCB)


def test_options_say_what_columns_mean_and_what_becomes_of_them(run, tmp_path):
    rng = np.random.default_rng(0)
    n = 1600
    table = pa.table(
        {
            "when": np.arange(n),
            "gain": rng.normal(size=n),
            "size": rng.normal(size=n),
            "shop": rng.integers(1, 4, size=n),
            "note": rng.normal(size=n),
        }
    )
    pyarrow.csv.write_csv(table.slice(0, 700), tmp_path / "a.csv")
    pyarrow.csv.write_csv(table.slice(700), tmp_path / "b.csv")
    (tmp_path / "schema.toml").write_text('reward = "note"\ntime = "when"\n')
    words = (
        "--schema",
        tmp_path / "schema.toml",
        "--reward",
        "gain",
        "--features",
        "size,shop",
        "--one-hot",
        "shop",
    )
    more = (
        "--interactions",
        "size:shop",
        "--standardise",
        "scale",
        "--edges",
        "0,400, 800,1200,1600",
    )
    code, said = run(
        "fit",
        tmp_path / "a.csv",
        tmp_path / "b.csv",
        "-o",
        tmp_path / "m",
        *words,
        *more,
    )
    assert code == 0, said
    model = ib.Model.load(tmp_path / "m")
    assert model.names == ("size", "shop=1", "shop=2", "size:shop=1", "size:shop=2")
    assert model.moments.edges.tolist() == [0, 400, 800, 1200, 1600]
    assert model.schema.reward == "gain"
    assert (tmp_path / "m.html").exists()


def test_bad_rows_are_counted_or_refused(run, tmp_path):
    table = wide(planted_log(1, 1000))
    rewards = [None, float("nan"), *table["reward"].to_pylist()[2:]]
    pq.write_table(
        table.set_column(1, "reward", pa.array(rewards)), tmp_path / "log.parquet"
    )
    code, said = run("fit", tmp_path / "log.parquet", "-o", tmp_path / "m.model")
    assert code == 0
    assert "2 rounds (0.2 %) were left out" in said
    assert "1 missing reward (left out)" in said
    (tmp_path / "m.model").unlink()
    code, said = run(
        "fit", tmp_path / "log.parquet", "-o", tmp_path / "m.model", "--strict"
    )
    assert code == 2
    assert "the log has problems and strict was asked for" in said
    assert not (tmp_path / "m.model").exists()


def test_missing_values_are_filled_in_and_said_by_column_or_cost_their_rounds(
    run, tmp_path
):
    table = wide(planted_log(1, 1000))
    gaps = pa.array(table["x1"].to_pylist(), mask=np.arange(1000) % 3 == 0)
    pq.write_table(table.set_column(3, "x1", gaps), tmp_path / "log.parquet")
    code, said = run(
        "fit", tmp_path / "log.parquet", "-o", tmp_path / "m.model", "--windows", 4
    )
    assert code == 0, said
    assert re.search(
        r"Missing values were filled in: x1 in 334 rows \(33 %, by [\d.]+\)\.", said
    ), said
    assert "334 imputed x1 (kept)" in said
    assert ib.Model.load(tmp_path / "m.model").quality.rounds == 1000
    code, said = run(
        "fit",
        tmp_path / "log.parquet",
        "-o",
        tmp_path / "m.model",
        "--windows",
        4,
        "--no-impute",
    )
    assert "334 missing x1 (left out)" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("--reward", "clicks"),
            "reward column 'clicks' is not in the log, which has round_id, time, chosen",
        ),
        (("--policy", "best"), "policy must be one of affine-linucb, auto-isd"),
        (("--every", "7x"), "every must be a whole number and one of min, h, d"),
        (
            ("--every", "7d", "--windows", "4"),
            "give only one of windows, every and edges",
        ),
        (("--engine", "abacus"), "engine must be one of 'local', 'dask', 'spark'"),
        (("--standardise", "much"), "standardise must be one of 'none', 'scale'"),
        (("--features", "y*"), "features 'y*' match no column"),
        (
            ("--report", "nowhere/page.html"),
            "--report: the folder nowhere does not exist",
        ),
        (
            ("--windows", "20000"),
            "windows must be at most the number of rows, 10000, got 20000",
        ),
    ],
)
def test_bad_options_end_in_one_line_and_exit_code_two(
    run, folder, tmp_path, words, message
):
    code, said = run("fit", folder / "rows.parquet", "-o", tmp_path / "m.model", *words)
    assert code == 2
    assert message in said
    assert not (tmp_path / "m.model").exists()


# -- evaluate --


@pytest.mark.system
def test_evaluate_with_propensities_says_yes_for_good_policies_and_nothing_for_uniform(
    run, folder, tmp_path
):
    code, said = run(
        "evaluate", folder / "rows.parquet", "--report", tmp_path / "e.html"
    )
    assert code == 0, said
    assert "auto-isd against what the log did: yes, by" in said
    assert re.search(r"uniform +\d+ % +DR +no difference can be seen", said)
    assert "nothing speaks against them" in said
    page = (tmp_path / "e.html").read_text()
    assert re.findall(r'(?:src|href)="(?!#|data:)[^"]*"', page) == []
    assert page.count("<svg") == 1


def test_evaluate_without_propensities_says_what_cannot_be_known(run, tmp_path):
    table = paper_table(1200)[0].drop_columns(["propensity"])
    pq.write_table(table, tmp_path / "log.parquet")
    code, said = run("evaluate", tmp_path / "log.parquet", "--jobs", 1)
    assert code == 3, said
    assert (
        "auto-isd against what the log did: cannot be known, because the log has no propensities"
        in said
    )
    code, said = run(
        "evaluate",
        tmp_path / "log.parquet",
        "--propensities",
        "uniform",
        "--direct",
        "--jobs",
        1,
    )
    assert "auto-isd against what the log did: yes, by" in said
    assert "Propensities: taken as uniform, as the caller says." in said
    assert "Direct method: assumes that rewards are linear" in said


def test_evaluate_flags_propensities_that_are_wrong_and_refuses_to_conclude(
    run, tmp_path
):
    table = paper_table(2000)[0]
    half = pa.array(np.full(len(table), 0.4))
    pq.write_table(table.set_column(3, "propensity", half), tmp_path / "log.parquet")
    code, said = run("evaluate", tmp_path / "log.parquet", "--jobs", 1)
    assert code == 3, said
    assert "The verdict: WRONG" in said
    assert "auto-isd against what the log did: cannot be known" in said


def test_evaluate_with_full_information_is_exact(run, tmp_path):
    log = planted_log(2, 1500)
    pq.write_table(lists_of_offered(log), tmp_path / "lists.parquet")
    pq.write_table(
        rows_per_action(log, every_reward=True).drop_columns(["chosen", "propensity"]),
        tmp_path / "rows.pq",
    )
    code, said = run("evaluate", tmp_path / "lists.parquet", "--jobs", 1)
    assert code == 0, said
    assert re.search(r"auto-isd +exact +yes, by", said)
    code, said = run(
        "evaluate",
        tmp_path / "rows.pq",
        "--full-information",
        "--centre",
        "--latest",
        1000,
        "--jobs",
        1,
    )
    assert code == 0, said
    assert re.search(r"auto-isd +exact +yes, by", said)
    assert "'the log' is here a choice at random among the offered" in said
    assert "Only the last 1,000 of 1,500 rounds were taken" in said


def test_evaluate_says_what_a_log_of_chosen_actions_lacks(run, tmp_path):
    pq.write_table(wide(planted_log(0, 500)), tmp_path / "wide.parquet")
    code, said = run("evaluate", tmp_path / "wide.parquet")
    assert code == 2
    assert "the log has the chosen actions only" in said


def test_rounds_are_sorted_by_time_and_features_learned_from_the_fitted_part_only(
    tmp_path,
):
    log = planted_log(3, 1000)
    table = rows_per_action(log)
    later = np.flatnonzero(np.asarray(table["time"]) >= np.sort(log.times)[500])
    spoiled = np.asarray(table["x0"]).copy()
    spoiled[later] *= 1000.0
    table = table.set_column(
        table.schema.get_field_index("x0"), "x0", pa.array(spoiled)
    )
    options = ib.FeatureOptions(standardise="scale")
    read = read_feedback(table, features=options)
    turned = pa.concat_tables([table.slice(later[0]), table.slice(0, later[0])])
    again = read_feedback(turned, features=options)
    assert read.feature_map.scale[0] < 2.0
    np.testing.assert_array_equal(again.feedback.offered, read.feedback.offered)
    np.testing.assert_array_equal(again.feedback.rewards, read.feedback.rewards)
    assert read.notes == ()
    assert again.notes == (
        "the rounds were not in the order of time and have been sorted by it",
    )


# -- when things go wrong --


def start(code, *words, cwd):
    """A process of its own that runs `code` and then the command."""
    home = str(Path(ib.__file__).parents[1])
    program = f"{code}\nfrom invariant_bandits.cli import main\nmain()"
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, words)],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": home},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.parametrize("cut", ["truncated", "damaged inside"])
def test_a_broken_parquet_file_among_many_is_named_and_no_model_is_written(
    cut, folder, tmp_path, run, monkeypatch
):
    whole = (folder / "rows.parquet").read_bytes()
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.parquet").write_bytes(whole)
    broken = bytearray(whole)
    broken[20_000:60_000] = b"\0" * 40_000
    (tmp_path / "logs" / "b.parquet").write_bytes(
        whole[: len(whole) // 2] if cut == "truncated" else broken
    )
    monkeypatch.chdir(tmp_path)
    code, said = run("fit", "logs", "-o", "m.model")
    assert code == 2
    assert "logs/b.parquet is not readable" in said
    assert "Traceback" not in said
    assert os.listdir(tmp_path) == ["logs"]


PAUSE = {
    "reading": """
import pathlib, time
from invariant_bandits.logs import engines
aggregate_task = engines.aggregate_task
def slowly(task, plan):
    pathlib.Path("../reached").touch()
    time.sleep(1.0)
    return aggregate_task(task, plan)
engines.aggregate_task = slowly
""",
    "writing": """
import os, pathlib, time
flush = os.fsync
def slowly(file):
    pathlib.Path("../reached").touch()
    time.sleep(60.0)
    flush(file)
os.fsync = slowly
""",
}


@pytest.mark.system
@pytest.mark.parametrize("moment", ["reading", "writing"])
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_fit_leaves_the_folder_as_it_was(moment, how, folder, tmp_path):
    target = tmp_path / "models"
    target.mkdir()
    yesterdays = storage.encode("model", {"any": np.zeros(1)}, {})
    (target / "m.model").write_bytes(yesterdays)
    process = start(
        PAUSE[moment],
        "fit",
        folder / "rows.parquet",
        "-o",
        "m.model",
        "--no-value",
        cwd=target,
    )
    patience = time.monotonic() + 120.0
    while not (tmp_path / "reached").exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < patience
        time.sleep(0.02)
    process.send_signal(how)
    said, _ = process.communicate(timeout=120)
    assert process.returncode not in (0, None)
    assert "Traceback" not in said
    hidden = {
        name
        for name in os.listdir(target)
        if how == signal.SIGKILL and name.startswith(".m.model.")
    }
    assert {*os.listdir(target)} - hidden == {"m.model"}
    assert (target / "m.model").read_bytes() == yesterdays


def test_options_say_what_values_mean(run, tmp_path):
    """Lower is better, words of a reward, missing values, another name and levels of the arm, in one log."""
    rng = np.random.default_rng(8)
    rows = [["day,price,crp,pain"]]
    words = np.where(rng.random(2000) < 0.4, "sehr", "kaum")
    for day, word in enumerate(words):
        rows.append(
            [
                f"{day},{rng.uniform(1, 9):.2f},{-999 if day % 50 == 0 else rng.uniform(0, 9):.3f},{word}"
            ]
        )
    log, model = tmp_path / "log.csv", tmp_path / "m.ib"
    log.write_text("\n".join(row[0] for row in rows))
    fit = (
        "fit",
        log,
        "-o",
        model,
        "--time",
        "day",
        "--arm",
        "price",
        "--reward",
        "pain",
        "--no-value",
    )
    code, said = run(*fit)
    assert code == 2
    assert "--reward-values" in said
    values = (
        "--levels",
        "3",
        "--reward-values",
        "sehr=1,kaum=0",
        "--missing=-999",
        "--rename",
        "crp=marker",
    )
    code, said = run(*fit, *values)
    assert code == 2
    assert "--minimise" in said
    code, said = run(*fit, *values, "--minimise")
    assert code == 0, said
    assert "1 − pain" in said
    loaded = ib.load(model)
    assert loaded.schema.features == ("marker",)
    assert loaded.quality.imputed == {"marker": 40}
    assert len(loaded.arms.labels) == 3
