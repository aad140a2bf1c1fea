"""The command as a guest in a terminal: widths, completion, missing packages, compiling, Ctrl-C."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import invariant_bandits as ib
from invariant_bandits.cli import common
from invariant_bandits.cli.app import commands
from invariant_bandits.reports.page import number, table_lines
from invariant_bandits.simulation.sample_logs import write_samples
from invariant_bandits.simulation.wild_logs import WILD_LOGS

MAIN = "from invariant_bandits.cli import main\nmain()"
HOME = str(Path(ib.__file__).parents[1])


def run(*words, code="", cwd=None, **surroundings):
    """The command in a process of its own, after `code`."""
    return subprocess.run(
        [sys.executable, "-c", f"{code}\n{MAIN}", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": HOME, **surroundings},
    )


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("logs")
    write_samples(folder, rounds=1000)
    return folder


@pytest.mark.system
@pytest.mark.parametrize(
    ("words", "columns"),
    [(("--help",), 80), (("fit", "-h"), 80), (("fit", "--help"), 130)],
)
def test_help_fits_the_terminal_and_leaves_words_whole(words, columns):
    shown = run(*words, COLUMNS=str(columns)).stdout
    assert max(map(len, shown.splitlines())) <= min(columns, 120)
    assert "invariant-bandits" in shown.splitlines()[0]
    alone = r"^[^\w\n]*\w+[^\w\n]*$"
    assert not re.search(
        rf"{alone}\n{alone}\n{alone}", shown, re.MULTILINE
    )  # no column of single words
    if words == ("--help",):
        assert "..." not in shown.split("Commands:")[-1]
        for command in commands:
            assert re.search(rf"^  {command.__name__.strip('_')} ", shown, re.MULTILINE)


def in_terminal(words, answers, prompt, cwd):
    """Run the command in a pseudo-terminal, answer every prompt; (exit code, what was shown)."""
    ours, theirs = os.openpty()
    surroundings = os.environ | {"PYTHONPATH": HOME, "COLUMNS": "150", "TERM": "dumb"}
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, *words],
        **dict.fromkeys(("stdin", "stdout", "stderr"), theirs),
        cwd=cwd,
        env=surroundings,
        start_new_session=True,
    )
    os.close(theirs)
    shown, waiting = b"", list(answers)
    while True:
        try:
            shown += os.read(ours, 65_536)
        except OSError:  # the command has ended and closed the terminal
            break
        if waiting and shown.count(prompt) > len(answers) - len(waiting):
            os.write(ours, waiting.pop(0))
    os.close(ours)
    return process.wait(), shown.decode()


@pytest.mark.system
def test_roles_are_changed_by_keyboard_and_the_same_command_without_asking_is_printed(
    tmp_path,
):
    """The log of a call centre has two columns that may be the action; the user says which, after a slip."""
    log = WILD_LOGS["call_centre"](tmp_path, 0, rounds=3000)
    words = ["fit", str(log.path), "--ask", "-o", "asked.model", "--no-value"]
    answers = (b"\n", b"33 arm\n", b"3 arm\n", b"4 ignored\n", b"\n")
    code, shown = in_terminal(words, answers, b"or Enter to go on: ", tmp_path)
    assert code == 0, shown
    assert "no column was found to be the action" in shown
    assert "type a number of the list and a role" in shown
    same = next(
        line
        for line in shown.splitlines()
        if line.startswith("  invariant-bandits fit")
    )
    assert same.endswith("--no-value --arm Guide --ignore Region")
    again = [word.replace("asked", "named") for word in shlex.split(same)[1:]]
    assert run(*again, cwd=tmp_path).returncode == 0
    asked, named = (
        ib.Model.load(tmp_path / name) for name in ("asked.model", "named.model")
    )
    assert asked.schema == named.schema
    assert asked.arms.labels == ("Kurz", "Länger", "Persönlich")
    assert "Region" not in asked.schema.features


@pytest.mark.system
def test_completion_can_be_installed_and_is_shown():
    shown = run(
        "--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1"
    )
    assert (
        "complete -o default -F _invariant_bandits_completion invariant-bandits"
        in shown.stdout
    )
    asked = {"COMP_WORDS": "invariant-bandits ins", "COMP_CWORD": "1"}
    completed = run(_INVARIANT_BANDITS_COMPLETE="complete_bash", **asked)
    assert completed.stdout.split() == ["inspect"]


def test_lines_are_as_wide_as_the_terminal_within_reason(monkeypatch):
    for columns, wanted in (("80", 80), ("20", 60), ("500", 140)):
        monkeypatch.setenv("COLUMNS", columns)
        assert common.width() == wanted
    monkeypatch.delenv("COLUMNS")
    assert common.width() == 100


def test_what_does_not_fit_goes_below_or_is_wrapped():
    rows = [
        [
            "LinUCB",
            "DR",
            number("+1.25 [+1.1, +1.4]"),
            number("+0.25 [+0.1, +0.4]"),
            "yes " * 8,
        ]
    ]
    lines = table_lines(
        ("policy", "by", "value", "gain", "would it have helped?"), rows, width=50
    )
    assert max(map(len, lines)) <= 50
    assert " ".join(" ".join(lines).split()).count("yes") == 8
    assert sum(line.split()[:2] == ["LinUCB", "DR"] for line in lines) > 1
    (head, row) = table_lines(("a", "b"), [["x", number("1")]], width=50)
    assert (head, row) == ("  a  b", "  x  1")


WITHOUT = "import sys; sys.modules[{!r}] = None"


@pytest.mark.system
def test_a_missing_extra_is_one_line_that_names_it(logs):
    shown = run("--help", code=WITHOUT.format("typer"))
    assert shown.returncode == 2
    assert (
        "'typer' is needed for this and is not installed: pip install 'invariant-bandits[command]'"
        in shown.stderr
    )
    shown = run("fit", logs / "rows.parquet", "-o", "m", code=WITHOUT.format("pyarrow"))
    assert shown.returncode == 2
    (line,) = shown.stderr.strip().splitlines()
    assert (
        "needs pyarrow, which is not installed: pip install 'invariant-bandits[logs]'"
        in line
    )
    code = (
        WITHOUT.format("pyarrow")
        + "\nimport invariant_bandits as ib\nib.fit_logs('log.csv')"
    )
    library = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": HOME},
    )
    assert (
        "reading a log needs pyarrow, which is not installed"
        in library.stderr.splitlines()[-1]
    )


@pytest.mark.system
def test_compiling_is_announced_once_on_a_machine_and_only_if_it_happens(tmp_path):
    code = """
from invariant_bandits.cli.common import announce_compiling
import numba
announce_compiling()
announce_compiling()
print("loaded", flush=True)
numba.njit(lambda x: x + 1)(1)
numba.njit(lambda x: x + 2)(1)
"""
    shown = [
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | {"PYTHONPATH": HOME, "XDG_CACHE_HOME": str(tmp_path)},
        ).stderr.splitlines()
        for _ in range(2)
    ]
    assert shown == [
        [
            "compiling the inner loops, once after installation; this takes up to a minute"
        ],
        [],
    ]


WAITS = {
    "in Python": "time.sleep(30.0)",
    "in a thread that cannot be ended": "ThreadPoolExecutor().submit(time.sleep, 30.0).result()",
    "where it is swallowed": "\n        try: time.sleep(30.0)\n        except BaseException: time.sleep(30.0)",
    "in workers": "list(map_unordered(time.sleep, [30.0, 30.0], jobs=2))",
    "where it becomes an error": "\n        try: time.sleep(30.0)\n        except BaseException: raise AttributeError",
    "where nothing can be raised": "type('Dying', (), {'__del__': lambda self: time.sleep(30.0)})()",
    "in a library that does not come back": "ctypes.CDLL(None).sleep(30)\n        ctypes.CDLL(None).sleep(30)",
}


def start_waiting(where, folder):
    """A command, in a process of its own, that waits in the middle of its work."""
    folder.mkdir()
    code = f"""
import ctypes, time, pathlib
from concurrent.futures import ThreadPoolExecutor
from invariant_bandits.model.model import Model
from invariant_bandits.parallel import map_unordered
class Slow:
    @staticmethod
    def load(path):
        pathlib.Path("reached").touch()
        {WAITS[where]}
import invariant_bandits.model.model
invariant_bandits.model.model.Model = Slow
"""
    return subprocess.Popen(
        [sys.executable, "-c", f"{code}\n{MAIN}", "inspect", "m"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": HOME},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.system
def test_an_interrupt_ends_the_command_soon_with_one_line_and_exit_code_130(tmp_path):
    """Wherever the command waits; all of the waits at once."""
    processes = {where: start_waiting(where, tmp_path / where) for where in WAITS}
    patience = time.monotonic() + 120.0
    while not all((tmp_path / where / "reached").exists() for where in WAITS):
        assert all(process.poll() is None for process in processes.values())
        assert time.monotonic() < patience
        time.sleep(0.02)
    time.sleep(0.3)
    for process in processes.values():
        os.killpg(process.pid, signal.SIGINT)
    for where, process in processes.items():
        out, err = process.communicate(timeout=20)  # each of the waits takes 30 s
        assert (where, process.returncode) == (where, 130)
        assert (where, out, err.split()) == (where, "", ["interrupted"])


@pytest.mark.system
def test_an_interrupted_run_says_how_to_go_on_and_does(tmp_path, run_apart):
    """Interrupted once a cell is there: the same command keeps it, and ends with the bytes of a run left
    alone.
    """
    grid = tmp_path / "grid.toml"
    grid.write_text(
        "replications = 3\nhorizon = 60\n[environment]\nlogged = [200, 300, 400, 500]\n[policies.linucb]\n"
    )
    words = ["simulate", grid, "--jobs", "1", "--out"]
    slow = (
        "import time, invariant_bandits.simulation.loop as loop\nplay = loop.simulate\n"
    )
    slow += "def slowly(*words, **options):\n    time.sleep(0.2)\n    return play(*words, **options)\n"
    slow += (
        "import invariant_bandits.simulation.cells as cells\ncells.simulate = slowly\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", slow + MAIN, *words, tmp_path / "out"],
        env=os.environ | {"PYTHONPATH": HOME},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    patience = time.monotonic() + 120.0
    while not list((tmp_path / "out").glob("*.parquet")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < patience
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    (line,) = err.split("\n")[-2:-1]
    assert (
        line
        == "interrupted; finished cells are kept, the same command goes on from there"
    )
    kept = {
        path.name: path.stat().st_mtime_ns
        for path in (tmp_path / "out").glob("*.parquet")
    }
    assert 1 <= len(kept) < 4
    assert run_apart(*words, tmp_path / "out")[0] == 0
    assert run_apart(*words, tmp_path / "alone")[0] == 0
    both = [
        {path.name: path.read_bytes() for path in (tmp_path / name).glob("*.parquet")}
        for name in ("out", "alone")
    ]
    assert both[0] == both[1]
    assert len(both[0]) == 4
    assert all(
        (tmp_path / "out" / name).stat().st_mtime_ns == written
        for name, written in kept.items()
    )


def test_without_a_terminal_a_line_every_half_minute_says_how_long_it_will_take(
    monkeypatch, capsys
):
    clock = [0.0]
    monkeypatch.setattr(common.time, "monotonic", lambda: clock[0])
    with common.counting("playing") as progress:
        for done in range(1, 13):  # ten seconds each
            clock[0] += 10.0
            progress("playing", done, 24)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(",")[0] for line in lines] == [
        "3 of 24",
        "6 of 24",
        "9 of 24",
        "12 of 24",
    ]
    assert "about 2.0 minutes left" in lines[-1]
