"""No command writes over its input, nor over a file of another kind unless it is told to."""

import os
import resource
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import invariant_bandits as ib
from invariant_bandits.simulation.sample_logs import write_samples
from invariant_bandits.storage import kind_of

GRID = (
    "replications = 2\nhorizon = 20\n[environment]\nlogged = 200\n[policies.linucb]\n"
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Sample logs, a model of each kind, moments and a grid; (name -> content) of what is read."""
    folder = tmp_path_factory.mktemp("made")
    write_samples(folder, rounds=400)
    ib.fit_logs(folder / "chosen.parquet").save(folder / "rows.model")
    ib.fit_logs(folder / "banners.csv").save(folder / "arms.model")
    (folder / "grid.toml").write_text(GRID)
    log = pq.read_table(folder / "chosen.parquet")
    later = pa.array(log["time"].to_numpy() + np.timedelta64(60, "D"))
    pq.write_table(
        log.set_column(log.schema.get_field_index("time"), "time", later),
        folder / "later.parquet",
    )
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def folder(made, tmp_path):
    for name, content in made.items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


WRITING = {
    "fit": (
        "fit",
        "chosen.parquet",
        "-o",
        "{target}",
        "--report",
        "p.html",
        "--no-value",
    ),
    "fit, report": ("fit", "chosen.parquet", "-o", "n.model", "--report", "{target}"),
    "fit, catalogue": (
        "fit",
        "banners.csv",
        "--catalogue",
        "items.csv",
        "-o",
        "{target}",
        "--report",
        "p.html",
    ),
    "inspect": ("inspect", "rows.model", "--report", "{target}"),
    "evaluate": (
        "evaluate",
        "rows.parquet",
        "--report",
        "{target}",
        "--policy",
        "linucb",
        "--jobs",
        "1",
    ),
    "update": (
        "update",
        "rows.model",
        "later.parquet",
        "-o",
        "{target}",
        "--report",
        "p.html",
        "--windows",
        "2",
    ),
    "update, report": (
        "update",
        "rows.model",
        "later.parquet",
        "-o",
        "n.model",
        "--report",
        "{target}",
    ),
    "arms": ("arms", "arms.model", "--retire", "banner_A", "-o", "{target}"),
}
OWN_INPUT = {
    "fit": "chosen.parquet",
    "fit, report": "chosen.parquet",
    "fit, catalogue": "items.csv",
    "inspect": "rows.model",
    "evaluate": "rows.parquet",
    "update": "later.parquet",
    "update, report": "rows.model",
}


def words(command, target):
    return [str(target) if word == "{target}" else word for word in WRITING[command]]


@pytest.mark.parametrize("link", [False, True])
@pytest.mark.parametrize("command", OWN_INPUT)
def test_its_own_input_is_never_written_over_not_even_by_force(
    command, link, folder, run, monkeypatch
):
    monkeypatch.chdir(folder)
    (folder / "items.csv").write_text(
        "banner,price\n" + "".join(f"banner_{x},{ord(x)}\n" for x in "ABCDE")
    )
    given = folder / OWN_INPUT[command]
    before, target = given.read_bytes(), given
    if link:
        target = folder / f"link{given.suffix}"
        os.link(given, target) if command == "fit" else target.symlink_to(given)
    code, said = run(*words(command, target), "--force")
    assert code == 2, said
    assert "written over" in said or "must not be a file that is read" in said
    assert given.read_bytes() == before


@pytest.mark.parametrize(
    "command",
    sorted(WRITING.keys() - {"fit, catalogue", "fit, report", "update, report"}),
)
def test_a_file_of_another_kind_is_replaced_by_force_only(
    command, folder, run, monkeypatch
):
    monkeypatch.chdir(folder)
    target = folder / "thesis.csv"
    target.write_text("years of work\n")
    code, said = run(*words(command, target))
    assert code == 2, said
    assert "thesis" in said
    assert "--force" in said
    assert target.read_text() == "years of work\n"
    code, said = run(*words(command, target), "--force")
    assert code in (0, 3), said
    assert target.read_bytes() != b"years of work\n"
    if command == "arms":
        assert run(*words(command, target))[0] == 0, "its own kind needs no force"


def test_runs_do_not_write_over_what_no_run_wrote(folder, run, monkeypatch):
    monkeypatch.chdir(folder)
    for name in (
        "world.parquet",
        "regret.png",
        "regret.csv",
        "run.json",
        "report.html",
        "claims.json",
    ):
        out = folder / f"out-{name}"
        out.mkdir()
        (out / name).write_bytes((folder / "rows.parquet").read_bytes())
        simulated = name in ("world.parquet", "regret.png", "regret.csv")
        command = (
            ("simulate", "grid.toml")
            if simulated
            else ("reproduce", "residual-dimension", "--replications", 2)
        )
        before = (out / name).read_bytes()
        code, said = run(*command, "--out", out, "--jobs", 1)
        assert code == 2, (name, said)
        assert name in said
        assert "--force" in said
        assert (out / name).read_bytes() == before
        if simulated:
            assert run(*command, "--out", out, "--jobs", 1, "--force")[0] == 0
            assert run(*command, "--out", out, "--jobs", 1)[0] == 0
            assert (out / name).read_bytes() != before


def test_devices_pipes_and_folders_are_not_written_to(folder, run, monkeypatch):
    monkeypatch.chdir(folder)
    os.mkfifo("pipe")
    for target in ("/dev/null", "pipe", "."):
        for command in WRITING:
            code, said = run(*words(command, target), "--force")
            assert code == 2, (command, target, said)
            assert (
                "is not a file and is not written to" in said or "is a folder" in said
            )


@pytest.mark.system
@pytest.mark.parametrize("command", ["fit", "arms"])
def test_on_a_full_disk_the_old_file_stays_whole_and_one_line_says_so(command, folder):
    target = folder / "old.model"
    target.write_bytes((folder / "rows.model").read_bytes())
    before, there = target.read_bytes(), {path.name for path in folder.iterdir()}
    program = "from invariant_bandits.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, *words(command, target), "--force"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000)),
    )
    assert done.returncode != 0
    (line,) = done.stderr.splitlines()
    assert "could not be written: File too large" in line
    assert target.read_bytes() == before
    left = {path.name for path in folder.iterdir()} - there
    assert left <= {"n.model", "p.html"}
    assert all(kind_of(folder / name) in (None, "model") for name in left)


@pytest.mark.system
def test_a_full_disk_behind_standard_output_is_one_line(folder):
    if not os.path.exists("/dev/full"):
        pytest.skip("there is no /dev/full")
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                "from invariant_bandits.cli import main; main()",
                "inspect",
                folder / "rows.model",
            ],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr.splitlines() == ["error: No space left on device"]
