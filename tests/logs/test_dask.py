"""A real Dask cluster, a scheduler and two worker processes on loopback: same bits as here, even if one
is killed.
"""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from distributed import Client

import cluster_tasks
from invariant_bandits import FileError, InputError
from invariant_bandits.logs import scan
from invariant_bandits.logs.formats import columnar
from invariant_bandits.logs.schema import Schema
from labelled_logs import labelled_log
from log_tables import many_row_groups, rows_per_action, wide
from reading import read_clicks, read_moments

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.system


@pytest.fixture(autouse=True)
def _one_task_per_row_group(monkeypatch):
    monkeypatch.setattr(columnar, "ROWS_PER_TASK", 1)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """The scheduler's address and the two worker processes, of which one test kills the first."""
    folder = tmp_path_factory.mktemp("dask")
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests" / "support")])
    surroundings = os.environ | {"PYTHONPATH": paths}
    written = folder / "scheduler.json"
    quiet = {
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
        "env": surroundings,
    }
    started = []
    try:
        scheduler = [
            sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0",
            "--no-dashboard", "--scheduler-file", str(written),
        ]  # fmt: skip
        started.append(subprocess.Popen(scheduler, **quiet))
        cluster_tasks.wait_for(lambda: written.exists() and written.read_text())
        worker = [
            sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file", str(written),
            "--host", "127.0.0.1", "--nthreads", "1", "--no-nanny", "--no-dashboard",
            "--local-directory", str(folder),
        ]  # fmt: skip
        workers = [subprocess.Popen(worker, **quiet) for _ in range(2)]
        started += workers
        with Client(scheduler_file=str(written)) as client:
            client.wait_for_workers(2, timeout=60)
            yield client, workers
    finally:
        for process in started:
            process.kill()
            process.wait()


@pytest.mark.parametrize("form", [wide, rows_per_action])
def test_the_cluster_gives_the_same_bits(form, cluster, tmp_path):
    client, _ = cluster
    path = many_row_groups(tmp_path, form)
    here = read_moments(path, every="1d")
    there = read_moments(path, every="1d", engine=client)
    by_address = read_moments(
        path, every="1d", engine="dask", address=client.scheduler.address
    )
    assert here.moments == there.moments == by_address.moments
    assert here.quality == there.quality
    np.testing.assert_array_equal(here.edges, there.edges)


def test_the_statistics_of_labelled_arms_have_the_same_bits(cluster, tmp_path):
    path = tmp_path / "log.parquet"
    pq.write_table(labelled_log(seed=7, rounds=600).table(), path, row_group_size=101)
    here = read_moments(path, every="1mo")
    there = read_moments(path, every="1mo", engine=cluster[0])
    assert there.of_arms.cells == here.of_arms.cells
    assert there.quality == here.quality
    theta = np.linspace(-1.0, 1.0, here.feature_map.dim)
    weighed = [
        read_clicks(path, here.feature_map, theta, every="1mo", engine=engine)
        for engine in ("local", cluster[0])
    ]
    assert weighed[0].cells == weighed[1].cells


def test_a_worker_killed_in_the_middle_changes_nothing(cluster, tmp_path, monkeypatch):
    client, workers = cluster
    path = many_row_groups(tmp_path)
    here = read_moments(path, windows=3)
    folder = tmp_path / "held"
    folder.mkdir()
    held = partial(scan.run_tasks, function=cluster_tasks.Held(folder))
    monkeypatch.setattr(scan, "run_tasks", held)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read_moments, path, windows=3, engine=client)
        cluster_tasks.wait_for(lambda: len(cluster_tasks.running(folder)) == 2)
        lost = cluster_tasks.running(folder)[workers[0].pid]
        workers[0].send_signal(signal.SIGKILL)
        workers[0].wait()
        (folder / "go").touch()
        there = reading.result(timeout=60)
    assert there.moments == here.moments
    assert there.quality == here.quality
    assert lost <= cluster_tasks.running(folder)[workers[1].pid]


def test_a_cluster_of_its_own_is_started_and_ended(tmp_path):
    path = many_row_groups(tmp_path)
    assert (
        read_moments(path, windows=3, engine="dask").moments
        == read_moments(path, windows=3).moments
    )


def test_what_a_worker_cannot_read_is_named_here(cluster, tmp_path):
    client, _ = cluster
    path = many_row_groups(tmp_path)
    content = bytearray(path.read_bytes())
    content[4 : len(content) // 2] = bytes(len(content) // 2 - 4)
    path.write_bytes(content)
    with pytest.raises(FileError, match=r"log\.parquet is not readable"):
        read_moments(path, Schema("reward", ("x*",)), engine=client)


def test_an_address_without_a_scheduler_is_named(tmp_path):
    path = many_row_groups(tmp_path)
    with pytest.raises(
        InputError, match="address 'nowhere' is not that of a Dask scheduler"
    ):
        read_moments(path, engine="dask", address="nowhere")
