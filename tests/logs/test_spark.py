"""A real Spark standalone master with two workers on loopback: the moments of here, even if a worker is
killed.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import cluster_tasks
from invariant_bandits import FileError
from invariant_bandits.logs import engines, scan
from invariant_bandits.logs.formats import columnar
from invariant_bandits.logs.schema import Schema
from labelled_logs import labelled_log
from log_tables import many_row_groups, rows_per_action, wide
from reading import read_clicks, read_moments

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(
        shutil.which("java") is None and "JAVA_HOME" not in os.environ,
        reason="Spark needs Java 17, and there is no java on the PATH and no JAVA_HOME",
    ),
    pytest.mark.filterwarnings(
        "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"
    ),
]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def accepts(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Standalone:
    """A master and two workers, each in a process group of its own."""

    def __init__(self, folder):
        import pyspark

        self.folder = folder
        self.home = Path(pyspark.__file__).parent
        self.processes = []
        self.environment = os.environ | {
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_HOME": str(self.home),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join(
                [str(ROOT / "src"), str(ROOT / "tests" / "support")]
            ),
        }
        port = free_port()
        self.address = f"spark://127.0.0.1:{port}"
        self.start(
            "master.Master",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            "--webui-port",
            "0",
        )
        cluster_tasks.wait_for(lambda: accepts(port))
        self.workers = [self.start_worker(index) for index in range(2)]

    def start(self, role, *arguments):
        command = [
            str(self.home / "bin" / "spark-class"),
            f"org.apache.spark.deploy.{role}",
            *arguments,
        ]
        log = (self.folder / f"{role}{len(self.processes)}.log").open("w")
        with log:
            process = subprocess.Popen(
                command,
                env=self.environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def start_worker(self, index):
        place = [
            "--host",
            "127.0.0.1",
            "--webui-port",
            "0",
            "--work-dir",
            str(self.folder / f"work{index}"),
        ]
        return self.start(
            "worker.Worker", *place, "--cores", "1", "--memory", "1g", self.address
        )

    def kill(self, process):
        """The process and everything in its group, the executor that it started included."""
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture(autouse=True)
def _one_task_per_row_group(monkeypatch):
    monkeypatch.setattr(columnar, "ROWS_PER_TASK", 1)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("spark")
    standalone = Standalone(folder)
    try:
        session = engines.open_spark_session(standalone.address)
        yield standalone, session
        session.stop()
    finally:
        for process in reversed(standalone.processes):
            standalone.kill(process)


@pytest.mark.parametrize("form", [wide, rows_per_action])
def test_the_cluster_gives_the_same_bits(form, cluster, tmp_path):
    path = many_row_groups(tmp_path, form)
    here, there = (
        read_moments(path, every="1d", engine=engine)
        for engine in ("local", cluster[1])
    )
    assert there.moments == here.moments
    assert there.quality == here.quality


def test_the_statistics_of_labelled_arms_have_the_same_bits(cluster, tmp_path):
    path = tmp_path / "log.parquet"
    pq.write_table(labelled_log(seed=7, rounds=600).table(), path, row_group_size=101)
    here = read_moments(path, every="1mo")
    there = read_moments(path, every="1mo", engine=cluster[1])
    assert there.of_arms.cells == here.of_arms.cells
    assert there.quality == here.quality
    theta = np.linspace(-1.0, 1.0, here.feature_map.dim)
    weighed = [
        read_clicks(path, here.feature_map, theta, every="1mo", engine=engine)
        for engine in ("local", cluster[1])
    ]
    assert weighed[0].cells == weighed[1].cells


def test_what_a_worker_cannot_read_is_named_here(cluster, tmp_path):
    path = many_row_groups(tmp_path)
    content = bytearray(path.read_bytes())
    content[4 : len(content) // 2] = bytes(len(content) // 2 - 4)
    path.write_bytes(content)
    with pytest.raises(FileError, match=r"log\.parquet is not readable"):
        read_moments(path, Schema("reward", ("x*",)), engine=cluster[1])


def test_a_worker_killed_in_the_middle_changes_nothing(cluster, tmp_path, monkeypatch):
    standalone, session = cluster
    path = many_row_groups(tmp_path)
    here = read_moments(path, windows=3)
    folder = tmp_path / "held"
    folder.mkdir()
    slow = partial(scan.run_tasks, function=cluster_tasks.Held(folder))
    monkeypatch.setattr(scan, "run_tasks", slow)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read_moments, path, windows=3, engine=session)
        cluster_tasks.wait_for(lambda: len(cluster_tasks.running(folder)) == 2)
        held = cluster_tasks.running(folder)
        standalone.kill(standalone.workers[0])
        (folder / "go").touch()
        there = reading.result(timeout=60)
    assert there.moments == here.moments
    assert there.quality == here.quality
    after = cluster_tasks.running(folder)
    ran_twice = [
        part
        for pid in held
        for part in held[pid]
        if sum(part in parts for parts in after.values()) > 1
    ]
    assert len(ran_twice) == 1


def test_a_session_of_its_own_is_started_and_ended(tmp_path):
    path = many_row_groups(tmp_path)
    code = (
        "import invariant_bandits as ib; "
        f"there, here = (ib.open_log({str(path)!r}).moments(windows=3, engine=engine) for engine in ('spark', "
        f"'local')); "
        "print(there.moments == here.moments)"
    )
    bare = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYSPARK", "SPARK"))
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=bare,
        check=False,
    )
    assert done.stdout.split() == ["True"], done.stderr
