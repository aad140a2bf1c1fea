"""`invariant-bandits arms`: list, add, retire."""

import json

from pyarrow import csv

import invariant_bandits as ib
from labelled_logs import labelled_log


def test_arms_are_listed_added_and_retired(run_apart, tmp_path):
    path, out = tmp_path / "model", tmp_path / "changed"
    ib.fit_logs(labelled_log(0, 4000).table()).save(path)
    before = path.read_bytes()
    code, shown, _ = run_apart("arms", path)
    assert code == 0
    assert "banner_C" in shown
    assert "retired" in shown
    assert path.read_bytes() == before
    code, shown, _ = run_apart(
        "arms", path, "--add", "banner_E", "--retire", "banner_A", "-o", out, "--json"
    )
    assert code == 0
    active = {arm["label"]: arm["active"] for arm in json.loads(shown)["arms"]}
    assert active == {
        "banner_A": False,
        "banner_B": True,
        "banner_C": False,
        "banner_D": True,
        "banner_E": True,
    }
    model = ib.Model.load(out)
    assert set(model.decide({"age": 30.0, "hour": 9.0, "country": "DE"}).scores) == {
        "banner_B",
        "banner_D",
        "banner_E",
    }
    assert path.read_bytes() == before
    for words, message in (
        (("--add", "banner_A"), "labels are never used again"),
        (("--retire", "nobody"), "'nobody' is not known"),
        (("--feature", "size=1"), "give --add as well"),
        (("--add", "x", "--feature", "size"), "must be NAME=VALUE"),
        (("--add", "x", "--feature", "size=1"), "without a catalogue"),
    ):
        code, _, errors = run_apart("arms", path, *words)
        assert code == 2
        assert message in errors
    assert path.read_bytes() == before


def test_no_command_writes_over_its_input_or_a_file_of_another_kind(
    run_apart, tmp_path
):
    log, model, page = (
        tmp_path / "log.csv",
        tmp_path / "shop.model",
        tmp_path / "page.html",
    )
    csv.write_csv(labelled_log(0, 1500).table(), log)
    notes = tmp_path / "notes.txt"
    notes.write_text("keep me")
    before = log.read_bytes()
    for words in (
        ("fit", log, "-o", log),
        ("fit", log, "-o", model, "--report", log),
        ("fit", log, "-o", notes),
        ("evaluate", log, "--report", log),
    ):
        code, _, errors = run_apart(*words)
        assert code == 2
        assert "it is not overwritten" in errors
    assert log.read_bytes() == before
    assert notes.read_text() == "keep me"
    for _ in range(2):  # a model and a page may be replaced by others
        assert (
            run_apart("fit", log, "-o", model, "--report", page, "--no-value")[0] == 0
        )
    code, _, errors = run_apart("arms", model, "--retire", "banner_A", "-o", page)
    assert code == 2
    assert "exists and is not a model; it is not overwritten" in errors
    assert page.read_text().lower().startswith("<!doctype html")
