"""--json: one object on standard output, words on standard error, and exit codes that can be relied on."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import invariant_bandits as ib
from invariant_bandits.reports import model_page
from log_tables import planted_log, rows_per_action, wide


def one_object(out):
    (line,) = out.splitlines()
    return json.loads(
        line, parse_constant=lambda word: pytest.fail(f"{word} is no JSON")
    )


@pytest.fixture
def log(tmp_path):
    pq.write_table(rows_per_action(planted_log(0, 1500)), tmp_path / "log.parquet")
    return tmp_path / "log.parquet"


def test_fit_and_inspect_answer_with_the_same_object(run_apart, log, tmp_path):
    code, out, words = run_apart(
        "fit", log, "-o", tmp_path / "m.model", "--every", "1d", "--json"
    )
    assert code == 0, words
    fitted = one_object(out)
    assert "What lasts and what changed" in words
    assert fitted["rounds"] == fitted["quality"]["rounds"] == 1500
    assert (
        fitted["stable_dim"] + fitted["drifting_dim"]
        == 3
        == sum(block["dim"] for block in fitted["blocks"])
    )
    assert [window["begins"] for window in fitted["windows"]][:2] == [
        "2024-01-01T00:00:00",
        "2024-01-02T00:00:00",
    ]
    slopes = {
        feature["name"]: (feature["coefficient"], feature["error"])
        for feature in fitted["features"]
    }
    for name, planted in zip(("x0", "x1", "x2"), (1.0, -0.2, 3.0), strict=True):
        assert abs(slopes[name][0] - planted) < 5.0 * slopes[name][1]
    assert fitted["value"]["known"]
    assert (fitted["model"], fitted["report"]) == (
        str(tmp_path / "m.model"),
        str(tmp_path / "m.html"),
    )
    code, out, words = run_apart("inspect", tmp_path / "m.model", "--json")
    assert (code, words) == (0, "")
    again = one_object(out)
    assert again.pop("report") is None
    assert again == {name: value for name, value in fitted.items() if name != "report"}


def test_evaluate_answers_with_one_word_per_policy(run_apart, log):
    code, out, words = run_apart(
        "evaluate",
        log,
        "--jobs",
        1,
        "--policy",
        "linucb-warm",
        "--policy",
        "uniform",
        "--json",
    )
    assert code == 0, words
    found = one_object(out)
    answers = {verdict["policy"]: verdict["answer"] for verdict in found["verdicts"]}
    assert answers == {"linucb-warm": "yes", "uniform": "no difference"}
    first = found["verdicts"][0]["gain"]
    assert 0.0 < first["low"] < first["value"] < first["high"]
    assert {line["estimator"] for line in found["estimates"]} >= {"DR", "SNIPS"}
    assert found["propensities"]["flagged"] is False
    assert "Would it have helped?" in words


def test_what_cannot_be_known_is_null_and_has_an_exit_code_of_its_own(
    run_apart, log, tmp_path
):
    pq.write_table(
        pq.read_table(log).drop_columns(["propensity"]), tmp_path / "bare.parquet"
    )
    code, out, _ = run_apart(
        "evaluate",
        tmp_path / "bare.parquet",
        "--jobs",
        1,
        "--policy",
        "linucb-warm",
        "--json",
    )
    assert code == 3
    (verdict,) = one_object(out)["verdicts"]
    assert (verdict["answer"], verdict["gain"]) == ("unknown", None)


def test_errors_leave_standard_output_empty(run_apart, tmp_path):
    pq.write_table(wide(planted_log(0, 500)), tmp_path / "wide.parquet")
    code, out, words = run_apart("evaluate", tmp_path / "wide.parquet", "--json")
    assert (code, out) == (2, "")
    assert "the log has the chosen actions only" in words


def test_the_model_is_there_even_if_its_report_cannot_be_drawn(
    run_apart, log, tmp_path, monkeypatch
):
    def broken(model):
        raise RuntimeError("no ink")

    monkeypatch.setattr(model_page, "report", broken)
    code, out, words = run_apart(
        "fit", log, "-o", tmp_path / "m.model", "--no-value", "--json"
    )
    assert code == 1
    assert "error: the report could not be drawn (RuntimeError: no ink)" in words
    assert one_object(out)["report"] is None
    assert ib.Model.load(tmp_path / "m.model").moments.rounds == 1500
    assert not (tmp_path / "m.html").exists()


STRANGE = [
    r"$\frac$",
    "--><script>alert(1)</script>",
    "a_b^c",
    "naïve 価格",
    r"\$",
    "<b>&",
]


def test_names_of_columns_are_only_names(run_apart, tmp_path):
    rng = np.random.default_rng(0)
    features = rng.normal(size=(1200, len(STRANGE)))
    columns = {
        "reward": features.sum(axis=1) + rng.normal(size=1200),
        **dict(zip(STRANGE, features.T, strict=True)),
    }
    pq.write_table(pa.table(columns), tmp_path / "log.parquet")
    code, _, said = run_apart(
        "fit", tmp_path / "log.parquet", "-o", tmp_path / "m.model"
    )
    assert code == 0, said
    page = (tmp_path / "m.html").read_text()
    assert "<script" not in page
    assert "<b>" not in page
    model = ib.Model.load(tmp_path / "m.model")
    assert model.names == tuple(STRANGE)
    assert np.isfinite(model.scores({name: [1.0] for name in STRANGE}).mean).all()
