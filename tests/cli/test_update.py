"""update and sample: from the first log to the next week's, as a user would."""

import json

import pyarrow.parquet as pq

import invariant_bandits as ib


def test_a_week_is_added_to_the_model_and_what_changed_is_said(
    run_apart, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    code, out, _ = run_apart("sample", "logs", "--rounds", 2000)
    assert code == 0
    assert "logs/banners.csv" in out
    assert "effects last in seven directions and drift in the other three" in " ".join(
        out.split()
    )
    code, _, words = run_apart("sample", "logs")
    assert code == 2
    assert "would be overwritten" in words
    table = pq.read_table("logs/chosen.parquet")
    pq.write_table(table.slice(0, 1750), "old.parquet")
    pq.write_table(table.slice(1750), "new.parquet")
    assert (
        run_apart(
            "fit",
            "old.parquet",
            "-o",
            "m.model",
            "--every",
            "7d",
            "--no-value",
            "--policy",
            "linucb",
        )[0]
        == 0
    )
    before = (tmp_path / "m.model").read_bytes()
    code, out, words = run_apart("update", "m.model", "new.parquet", "-o", "n.model")
    assert code == 0, words
    said = " ".join(out.split())
    assert (
        "250 new rounds, 1 window more; 0 rounds of the new log were left out." in said
    )
    assert "Nothing says that what showed no drift before has moved" in said
    assert "Drifting dimensions: 3 of 10, as before." in said
    assert ">What changed since</h2>" in (tmp_path / "n.html").read_text()
    assert (tmp_path / "m.model").read_bytes() == before
    assert ib.Model.load("n.model").moments.windows == 8
    code, out, words = run_apart("update", "m.model", "new.parquet", "--json")
    assert code == 0, words
    found = json.loads(out)
    assert (
        found["rounds"],
        found["update"]["new_rounds"],
        found["update"]["alarm"],
    ) == (2000, 250, False)
    assert ib.Model.load("m.model").moments.rounds == 2000
    code, out, words = run_apart("update", "m.model", "new.parquet", "--json")
    assert (code, out) == (2, "")
    assert "counted twice" in words
    assert ib.Model.load("m.model").moments.rounds == 2000
