"""A run can be killed, resumed, parallel or not: the files are the same, and a report never
plays anything.
"""

import html
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from invariant_bandits.checks import InputError
from invariant_bandits.policies.registry import PolicySpec
from invariant_bandits.simulation import cells
from invariant_bandits.simulation.cells import Cell
from invariant_bandits.simulation.episodes import PaperEpisodes
from invariant_bandits.simulation.paper import PaperWorld
from invariant_bandits.storage import FileError
from invariant_bandits_reproduction import claims
from invariant_bandits_reproduction import run as reproduction
from invariant_bandits_reproduction.contenders import AUTO, LINUCB, NAMED
from invariant_bandits_reproduction.figures.experiment import (
    EXPERIMENTS,
    chosen,
)

EXPERIMENT = "residual-dimension"
RUN = {"replications": 4, "seed": 5}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    reproduction.play([EXPERIMENT], folder, jobs=1, **RUN)
    return folder


def stored_bytes(folder):
    return {
        path.name: path.read_bytes()
        for path in sorted((folder / "cells").glob("*.parquet"))
    }


@pytest.mark.system
def test_the_number_of_processes_does_not_change_a_byte(whole, tmp_path):
    reproduction.play([EXPERIMENT], tmp_path, jobs=2, **RUN)
    assert len(stored_bytes(whole)) == 4
    assert stored_bytes(tmp_path) == stored_bytes(whole)


@pytest.mark.system
def test_a_killed_run_goes_on_and_ends_with_the_same_bytes(whole, tmp_path):
    program = (
        "import sys; from pathlib import Path; from invariant_bandits_reproduction import run as reproduction;"
        f"reproduction.play([{EXPERIMENT!r}], Path(sys.argv[1]), jobs=2, **{RUN!r})"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], start_new_session=True
    )
    deadline = time.monotonic() + 300
    while (
        not stored_bytes(tmp_path)
        and process.poll() is None
        and time.monotonic() < deadline
    ):
        time.sleep(0.001)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    survived = {
        path: path.stat().st_mtime_ns for path in (tmp_path / "cells").glob("*.parquet")
    }
    assert 1 <= len(survived) < 4
    with pytest.raises(InputError, match="not finished"):
        reproduction.read(tmp_path)
    reproduction.play([EXPERIMENT], tmp_path, jobs=1, **RUN)
    assert stored_bytes(tmp_path) == stored_bytes(whole)
    assert all(
        path.stat().st_mtime_ns == written for path, written in survived.items()
    ), "a finished cell was replayed"


def test_a_report_plays_nothing(whole, monkeypatch):
    monkeypatch.setattr(
        cells, "simulate", lambda *_, **__: pytest.fail("a report played a cell")
    )
    found = reproduction.read(whole)
    reproduction.write_figures(found, whole)
    text = reproduction.write_report(found, whole).read_text()
    for claim, verdict in found.verdicts[EXPERIMENT]:
        assert text.count(f"<td>{html.escape(claim.name)}</td>") >= 2, (
            "among all tests, and in its own section"
        )
        assert verdict.word in text
    for words in claims.findings(found.verdicts[EXPERIMENT]):
        assert words.startswith("Claimed: ")
        assert html.escape(words, quote=False) in text or html.escape(words) in text
    for author in ("Lazzaretto", "Peters", "Pfister"):
        assert author in text
    assert "Invariance-based dynamic regret minimization" in text
    assert "<svg" in text
    assert f"seed {RUN['seed']}" in text
    assert (
        json.loads(reproduction.write_claims(found, whole).read_text())[0]["claim"]
        == found.verdicts[EXPERIMENT][0][0].name
    )


@pytest.mark.system
def test_figures_come_as_png_svg_and_pdf(whole):
    paths = reproduction.write_figures(reproduction.read(whole), whole, jobs=2)
    assert sorted(path.name for path in paths) == [
        f"{EXPERIMENT}-dark.png",
        f"{EXPERIMENT}-light.pdf",
        f"{EXPERIMENT}-light.png",
        f"{EXPERIMENT}-light.svg",
    ]
    assert all(path.stat().st_size > 1000 for path in paths)


def test_a_folder_that_holds_no_run_is_refused(tmp_path):
    with pytest.raises(FileError, match="not the folder of a run"):
        reproduction.read(tmp_path)


def test_an_unknown_experiment_is_named_with_those_there_are():
    with pytest.raises(InputError, match=r"residual-dimension.*got 'residual'"):
        chosen(["residual"])


def small(policies=(LINUCB,), **options):
    world = PaperEpisodes(
        PaperWorld(blocks=(2, 1), varying=1, regimes=2), logged=60, windows=2
    )
    return Cell(
        "small", replace(world, **options), 20, {name: NAMED[name] for name in policies}
    )


def test_a_cell_is_played_again_when_anything_about_it_changes(tmp_path):
    first = cells.run([small()], tmp_path, replications=3, seed=1)["small"]
    again = cells.run([small()], tmp_path, replications=3, seed=1)["small"]
    np.testing.assert_array_equal(first.regret[LINUCB], again.regret[LINUCB])
    changed = [
        (small(violation=1.0), 3, 1),
        (small(), 4, 1),
        (small(), 3, 2),
        (
            replace(
                small(), policies={LINUCB: PolicySpec("LinUCB", {"exploration": 0.1})}
            ),
            3,
            1,
        ),
    ]
    for cell, replications, seed in changed:
        fresh = cells.run(
            [cell], tmp_path / "fresh", replications=replications, seed=seed
        )["small"]
        found = cells.run([cell], tmp_path, replications=replications, seed=seed)[
            "small"
        ]
        np.testing.assert_array_equal(found.regret[LINUCB], fresh.regret[LINUCB])
    identities = {small().identity(3, 1)} | {
        cell.identity(n, seed) for cell, n, seed in changed
    }
    assert len(identities) == 5


def test_adding_a_policy_does_not_change_the_rounds_of_the_others(tmp_path):
    alone = cells.run([small()], tmp_path / "a", replications=3, seed=1)["small"]
    both = cells.run([small((LINUCB, AUTO))], tmp_path / "b", replications=3, seed=1)[
        "small"
    ]
    np.testing.assert_array_equal(alone.regret[LINUCB], both.regret[LINUCB])


def test_a_damaged_cell_is_played_again(tmp_path):
    first = cells.run([small()], tmp_path, replications=3, seed=1)["small"]
    path = tmp_path / "small.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    again = cells.run([small()], tmp_path, replications=3, seed=1)["small"]
    np.testing.assert_array_equal(first.regret[LINUCB], again.regret[LINUCB])


def test_claims_and_levels_name_cells_and_policies_of_their_own_experiment():
    for experiment in EXPERIMENTS:
        named = {cell.name: cell for cell in experiment.cells}
        for claim in experiment.claims:
            assert set(claim.test.cells) <= set(named), claim.name
        for level in experiment.levels:
            assert level.policy in named[level.cell].policies


OUR_POLICIES = ("AutoISD", "Greedy", "exploration 0.3", "joint set")
"""How policies appear in names and statements of claims."""


def test_only_what_the_paper_claims_of_its_own_policies_counts_as_the_papers():
    """Our policies, our experiments, checks that cannot fail and our estimators are labelled as such."""
    sources = {}
    for experiment in EXPERIMENTS:
        for claim in experiment.claims:
            sources.setdefault(claim.source, []).append(claim)
            if experiment.paper.startswith(("no", "not")):
                assert claim.source == "ours", claim.name
            if any(name in claim.name + claim.statement for name in OUR_POLICIES):
                assert claim.source in ("ours", "check"), claim.name
            if "our rebuild" in claim.name:
                assert claim.source == "rebuilt"
            if "our estimator" in claim.name:
                assert claim.source == "estimator"
            if experiment.name == "lower-bound":
                assert claim.source == "check"
    assert set(sources) == set(reproduction.SOURCES) == set(reproduction.LABELS)
    every = [claim.name for claims in sources.values() for claim in claims]
    assert len(every) == len(set(every))
    assert len(sources["paper"]) == 26, "13 in each reading of the simulation"


def test_slow_experiments_are_played_only_if_they_are_named():
    slow = {experiment.name for experiment in EXPERIMENTS if experiment.is_slow}
    assert slow == {"epochs-recomputed", "printed-published-logged-rounds"}
    assert slow.isdisjoint(experiment.name for experiment in chosen([]))
    assert [experiment.name for experiment in chosen(slow)] == list(slow)


def test_every_reading_names_its_value():
    for experiment in EXPERIMENTS:
        for claim in experiment.claims:
            assert "{value}" in claim.test.reading, claim.name


@pytest.mark.system
def test_every_experiment_can_be_played_judged_drawn_and_reported(tmp_path):
    """Two repetitions of everything: no statistic, figure or table stumbles over what it names."""
    names = [experiment.name for experiment in EXPERIMENTS]
    reproduction.play(names, tmp_path, replications=2, seed=1, jobs=2)
    found = reproduction.read(tmp_path, resamples=3)
    reproduction.write_figures(found, tmp_path, jobs=2)
    text = reproduction.write_report(found, tmp_path).read_text()
    assert all(f'id="{name}"' in text for name in (each.name for each in EXPERIMENTS))
    assert [
        number for number in range(2, 8) if f"Figure {number}" not in text
    ] == []  # 1 is the scheme
    csv, *tables = reproduction.write_tables(found, tmp_path, latex=True)
    rows = csv.read_text().splitlines()
    assert len(rows) == 1 + sum(len(result.regret) for result in found.results.values())
    assert rows[0].startswith("cell,environment,")
    assert len(tables) == 2 * len(list(EXPERIMENTS))
    for path in tables:
        written = path.read_text()
        assert written.isascii(), path  # any LaTeX can read it
        body = (
            written.split("\\toprule\n")[1]
            .split("\\bottomrule")[0]
            .replace("\\midrule\n", "")
        )
        assert {len(re.findall(r"(?<!\\)&", line)) for line in body.splitlines()} == {
            len(re.search(r"tabular}{(\w+)}", written)[1]) - 1
        }


def test_a_report_refuses_cells_of_another_run(whole, tmp_path):
    other = tmp_path / "other"
    reproduction.play([EXPERIMENT], other, jobs=1, replications=4, seed=6)
    first = sorted((whole / "cells").glob("*.parquet"))[0]
    (other / "cells" / first.name).write_bytes(first.read_bytes())
    with pytest.raises(
        InputError, match=f"{first.name} is missing, damaged or of another run"
    ):
        reproduction.read(other)
    notices = []
    reproduction.play(
        [EXPERIMENT], other, jobs=1, replications=4, seed=6, notice=notices.append
    )
    assert len(notices) == 1
    assert first.name in notices[0]
    assert reproduction.read(other).run.seed == 6


@pytest.mark.system
def test_two_runs_do_not_share_a_folder(tmp_path):
    with cells.only_run_in(tmp_path):
        held = subprocess.run(
            [sys.executable, "-c", RIVAL, str(tmp_path)],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert "another run is writing" in held.stdout
        assert not (tmp_path / "run.json").exists()
    free = subprocess.run(
        [sys.executable, "-c", RIVAL, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert "free" in free.stdout


RIVAL = """
import sys
from pathlib import Path
from invariant_bandits.checks import InputError
from invariant_bandits.simulation import cells
try:
    with cells.only_run_in(Path(sys.argv[1])):
        print("free")
except InputError as error:
    print(error)
"""

PARENT = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the tests run in the background
from pathlib import Path
from invariant_bandits import parallel
def work(item):
    Path(sys.argv[1], str(item)).write_text(str(__import__("os").getpid()))
    time.sleep(600)
try:
    list(parallel.map_unordered(work, range(4), jobs=2))
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.system
@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux ends children with their parent"
)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_no_worker_outlives_its_parent(how, tmp_path):
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    wait_until(lambda: len(workers(tmp_path)) == 2)
    asleep = workers(tmp_path)
    parent.send_signal(how)
    said, _ = parent.communicate(timeout=60)
    assert said == ("interrupted\n" if how == signal.SIGINT else "")
    wait_until(lambda: not any(is_alive(item) for item in asleep))


def workers(folder):
    return [int(words) for path in folder.iterdir() if (words := path.read_text())]


def is_alive(process):
    try:
        with open(f"/proc/{process}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(reached, seconds=60.0):
    end = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.02)
