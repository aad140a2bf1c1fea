"""The command: what it prints, what it writes, and how it fails."""

import re
import subprocess
import sys

import numpy as np
import pytest

import invariant_bandits as ib
from invariant_bandits.environments.paper import PaperWorld


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
    assert all(word in text for word in ("reproduce", "decompose", "study"))
    assert run("--version").stdout.strip() == f"invariant-bandits {ib.__version__}"


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
    assert message in re.sub(r"\s+", " ", result.stdout)
    assert "Traceback" not in result.stdout + result.stderr


def test_a_damaged_or_missing_file_is_named(stored):
    stored.write_bytes(stored.read_bytes()[:-5])
    for path, reason in ((stored, "damaged"), (stored.with_name("nowhere"), "No such file")):
        result = run("decompose", path)
        assert result.returncode == 2
        shown = result.stdout.replace("\n", "")
        assert reason.replace(" ", "") in shown.replace(" ", "")
        assert path.name in shown


def test_reproduce_compares_found_with_planted_and_saves_pictures(tmp_path):
    result = run("reproduce", "--out", tmp_path / "results", "--replications", 2)
    assert result.returncode == 0, result.stdout + result.stderr
    rows = [line for line in result.stdout.splitlines() if "ms │" in line]
    assert len(rows) == 3
    assert all(line.count("7 + 3") == 2 for line in rows)
    assert len(list((tmp_path / "results").glob("offline-*-*.png"))) == 6
    assert "Regret after 500 rounds" in result.stdout
    assert len(list((tmp_path / "results").glob("online-*.svg"))) == 2
