"""The command: what it prints, what it writes, and how it fails."""

import re

import numpy as np
import pytest

import invariant_bandits as ib
from invariant_bandits.simulation.paper import PaperWorld


@pytest.fixture
def stored(tmp_path):
    logs = PaperWorld().log(2000, np.random.default_rng(5))
    path = tmp_path / "logs.moments"
    ib.WindowedMoments.from_arrays(
        logs.features, logs.rewards, windows=16, offered=logs.offered
    ).save(path)
    return path


def test_help_names_every_command(run_apart):
    _, text, _ = run_apart("--help")
    commands = "fit inspect evaluate reproduce report simulate store"
    assert all(word in text for word in commands.split())
    assert run_apart("--version")[1].strip() == f"invariant-bandits {ib.__version__}"


def test_compile_says_when_it_is_done(run):
    code, said = run("compile")
    assert code == 0, said
    assert "compiled" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nonsense",), "experiment must be one of"),
        (
            ("--paper", "--replications", "3"),
            "give either --paper or --replications, not both",
        ),
    ],
)
def test_bad_options_end_in_one_line_and_exit_code_two(words, message, run_apart):
    code, out, err = run_apart("reproduce", *words)
    assert code == 2
    assert message in re.sub(r"\s+", " ", err)
    assert out == ""
    assert "Traceback" not in err


def test_a_damaged_or_missing_file_is_named(stored, run_apart):
    stored.write_bytes(stored.read_bytes()[5:])
    for path, reason in (
        (stored, "damaged"),
        (stored.with_name("nowhere"), "No such file"),
    ):
        code, _, err = run_apart("inspect", path)
        assert code == 2
        shown = err.replace("\n", "")
        assert reason.replace(" ", "") in shown.replace(" ", "")
        assert path.name in shown


@pytest.mark.system
def test_reproduce_plays_judges_draws_and_reports(tmp_path, run):
    folder = tmp_path / "results"
    code, said = run(
        "reproduce",
        "residual-dimension",
        "--out",
        folder,
        "--replications",
        3,
        "--jobs",
        2,
        "--seed",
        4,
    )
    assert code == 0, said
    assert "tests of the paper's claims" in said
    assert (folder / "report.html").exists()
    written = {
        path.name: path.read_bytes() for path in (folder / "cells").glob("*.parquet")
    }
    assert len(written) == 4
    code, said = run("report", folder)
    assert code == 0, said
    assert {
        path.name: path.read_bytes() for path in (folder / "cells").glob("*.parquet")
    } == written


def test_an_unknown_experiment_or_two_numbers_of_repetitions_end_in_one_line(
    tmp_path, run_apart
):
    for words, message in (
        (("nonsense",), "experiment must be one of coverage"),
        (("--paper", "--replications", 3), "either --paper or --replications"),
    ):
        code, _, err = run_apart("reproduce", *words, "--out", tmp_path)
        assert code == 2
        assert message in " ".join(err.split())
        assert "Traceback" not in err


@pytest.mark.system
def test_simulate_plays_a_grid_from_a_file_and_draws_it(tmp_path, run):
    config = tmp_path / "grid.toml"
    config.write_text(
        "replications = 2\nhorizon = 20\n[environment]\nlogged = [100, 200]\nwindows = 2\n"
        "[environment.world]\nblocks = [2, 1]\nvarying = 1\n[policies.LinUCB]\n[policies.AutoISD]\n"
    )
    code, said = run("simulate", config, "--out", tmp_path / "out")
    assert code == 0, said
    assert "logged=100" in said
    names = sorted(path.name for path in (tmp_path / "out").glob("[!.]*"))
    assert names == [
        "logged=100.parquet",
        "logged=200.parquet",
        "regret.csv",
        "regret.pdf",
        "regret.png",
        "regret.svg",
    ]
