"""The command with labelled arms: what was offered is logged, named, or looked up; too much that is lost is
refused.
"""

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

import invariant_bandits as ib
from labelled_logs import LABELS, labelled_log
from linear_logs import linear_log


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("labelled")
    csv.write_csv(labelled_log(seed=0, rounds=1200).table(), folder / "log.csv")
    known = {
        "from": pa.array([None, None, None, "2024-08-28"]),
        "until": pa.array([None, None, "2024-06-28", None]),
    }
    csv.write_csv(
        pa.table({"banner": LABELS, "price": [1.0, 2.0, 3.0, 4.0], **known}),
        folder / "items.csv",
    )
    return folder


def test_evaluate_takes_a_labelled_log_as_it_is(run, files):
    code, said = run("evaluate", files / "log.csv", "--policy", "greedy", "--jobs", 1)
    assert code == 0, said
    assert "arm banner by its name" in said
    assert "an arm counts as offered from its first to its last use" in said
    assert "banner_C" in said
    assert "greedy against what the log did:" in said
    assert "chosen actions only" not in said


def test_arms_may_be_named_or_catalogued(run, files):
    command = (
        "evaluate",
        files / "log.csv",
        "--policy",
        "greedy",
        "--jobs",
        1,
        "--arm-model",
        "shared",
    )
    code, said = run(*command, "--arms", "banner_A,banner_B,banner_C,banner_D,banner_E")
    assert code == 3, (
        said
    )  # they were not all offered in every round, and the propensities show it
    assert "the caller named the arms" in said
    assert "the propensities are wrong" in said
    assert "banner_E 0 never never active" in said
    code, said = run(*command, "--catalogue", files / "items.csv", "--arm", "banner")
    assert code == 0, said
    assert "the catalogue says when each arm could be offered" in said


def test_a_log_that_is_mostly_lost_is_refused_unless_asked_to_keep_going(run, files):
    words = (
        "evaluate",
        files / "log.csv",
        "--policy",
        "greedy",
        "--jobs",
        1,
        "--arms",
        "banner_A,banner_D",
    )
    code, said = run(*words)
    assert code != 0
    assert "most rounds of the log cannot be used" in said
    code, said = run(*words, "--keep-going")
    assert code == 3, said  # what is left speaks against its propensities
    lost = int(
        (
            ~np.isin(labelled_log(seed=0, rounds=1200).labels, ["banner_A", "banner_D"])
        ).sum()
    )
    assert f"{lost} label of no known arm (left out)" in said


def test_wrong_words_about_arms_are_named(run, files):
    code, said = run("evaluate", files / "log.csv", "--arm", "nothing")
    assert code != 0
    assert "arm column 'nothing' is not in the log" in said
    code, said = run("evaluate", files / "log.csv", "--catalogue", files / "log.csv")
    assert code != 0
    assert "catalogue: column 'banner' must hold every label once" in said


def test_fit_takes_the_caution_and_recommends_it_where_arms_are_always_the_same(
    run, tmp_path
):
    rng = np.random.default_rng(5)
    arms = rng.integers(3, size=900)
    table = pa.table(
        {"arm": np.array(["a", "b", "c"])[arms], "reward": arms + rng.normal(size=900)}
    )
    csv.write_csv(table, tmp_path / "log.csv")
    command = ("fit", tmp_path / "log.csv", "--out", tmp_path / "model", "--force")
    code, said = run(*command)
    assert code == 0, said
    assert "--caution none" in said
    assert "--caution none" in (tmp_path / "model.html").read_text()
    code, said = run(*command, "--caution", "none")
    assert code == 0, said
    assert "--caution none" not in said
    assert ib.load(tmp_path / "model").policy.caution is None
    code, said = run(*command, "--caution", "much")
    assert code != 0
    assert "caution must be a number of at least 0, or none, got 'much'" in said


def test_fit_says_first_that_the_context_cannot_change_the_choice(run_apart, tmp_path):
    planted = linear_log(3, arms=6, columns=20, rounds=600, differing=0)
    parquet.write_table(planted.log, tmp_path / "log.parquet")
    words = ("fit", tmp_path / "log.parquet", "-o", tmp_path / "m.ib", "--no-value")
    code, said, errors = run_apart(*words)
    assert code == 0, errors
    _, _, report = said.partition("What lasts and what changed")
    first = "The context cannot change the choice, every context gets the same arm"
    assert " ".join(report.partition("===\n")[2].split()).startswith(first)
    _, _, caution = said.partition("Read this first\n---------------\n")
    assert " ".join(caution.split()).startswith(first)
    page = (tmp_path / "m.html").read_text()
    assert page.index(first) < page.index("effects drift")
    assert "SharedSlopesWarning" not in errors
