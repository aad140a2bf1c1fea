"""The command: what it prints, what it writes, and how it fails."""

import re
import subprocess
import sys

import numpy as np
import pytest

import invariant_bandits as ib
from invariant_bandits.simulation.paper import PaperWorld

pytestmark = pytest.mark.system


def run(*words):
    command = [sys.executable, "-c", "from invariant_bandits.cli import main; main()", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=None)


@pytest.fixture
def stored(tmp_path):
    logs = PaperWorld().log(2000, np.random.default_rng(5))
    path = tmp_path / "logs.moments"
    ib.WindowedMoments.from_arrays(logs.features, logs.rewards, windows=16, offered=logs.offered).save(path)
    return path


def test_help_names_every_command():
    text = run("--help").stdout
    commands = "fit inspect evaluate reproduce report simulate decompose store"
    assert all(word in text for word in commands.split())
    assert run("--version").stdout.strip() == f"invariant-bandits {ib.__version__}"


def test_compile_says_when_it_is_done():
    result = run("compile")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "compiled" in result.stdout


def test_decompose_prints_the_summary_and_draws(stored, tmp_path):
    picture = tmp_path / "picture.svg"
    result = run("decompose", stored, "--windows", 8, "--plot", picture, "--theme", "dark")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "stable: 7 of 10 dimensions   drifting: 3" in result.stdout
    assert picture.read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--metric", "manhattan"), "metric must be one of 'euclidean', 'whitened'"),
        (("--alpha", "2"), "alpha must lie strictly between 0 and 1"),
        (("--windows", "99"), "windows must be at most the present 16, got 99"),
    ],
)
def test_bad_options_end_in_one_line_and_exit_code_two(stored, words, message):
    result = run("decompose", stored, *words)
    assert result.returncode == 2
    assert message in re.sub(r"\s+", " ", result.stderr)
    assert result.stdout == ""
    assert "Traceback" not in result.stdout + result.stderr


def test_a_damaged_or_missing_file_is_named(stored):
    stored.write_bytes(stored.read_bytes()[:-5])
    for path, reason in ((stored, "damaged"), (stored.with_name("nowhere"), "No such file")):
        result = run("decompose", path)
        assert result.returncode == 2
        shown = result.stderr.replace("\n", "")
        assert reason.replace(" ", "") in shown.replace(" ", "")
        assert path.name in shown


def test_reproduce_plays_judges_draws_and_reports(tmp_path):
    folder = tmp_path / "results"
    result = run(
        "reproduce", "residual-dimension", "--out", folder, "--replications", 3, "--jobs", 2, "--seed", 4
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "tests of the paper's claims" in " ".join(result.stdout.split())
    assert (folder / "report.html").exists()
    written = {path.name: path.read_bytes() for path in (folder / "cells").glob("*.parquet")}
    assert len(written) == 4
    again = run("report", folder)
    assert again.returncode == 0, again.stdout + again.stderr
    assert {path.name: path.read_bytes() for path in (folder / "cells").glob("*.parquet")} == written


def test_an_unknown_experiment_or_two_numbers_of_repetitions_end_in_one_line(tmp_path):
    for words, message in (
        (("nonsense",), "experiment must be one of coverage"),
        (("--paper", "--replications", 3), "either --paper or --replications"),
    ):
        result = run("reproduce", *words, "--out", tmp_path)
        assert result.returncode == 2
        assert message in " ".join(result.stderr.split())
        assert "Traceback" not in result.stderr


def test_simulate_plays_a_grid_from_a_file_and_draws_it(tmp_path):
    config = tmp_path / "grid.toml"
    config.write_text(
        "replications = 2\nhorizon = 20\n[environment]\nlogged = [100, 200]\nwindows = 2\n"
        "[environment.world]\nblocks = [2, 1]\nvarying = 1\n[policies.LinUCB]\n[policies.AutoISD]\n"
    )
    result = run("simulate", config, "--out", tmp_path / "out")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "logged=100" in result.stdout
    names = sorted(path.name for path in (tmp_path / "out").glob("[!.]*"))
    assert names == [
        "logged=100.parquet",
        "logged=200.parquet",
        "regret.pdf",
        "regret.png",
        "regret.svg",
        "timings.json",
    ]
