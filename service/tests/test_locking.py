"""One process writes to a store, whichever way leads to its file; readers go on."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from invariant_bandits.cli.app import app
from invariant_bandits_service.commands import DecisionCommand
from invariant_bandits_service.events import decision_key
from invariant_bandits_service.store.open_store import open_store
from invariant_bandits_service.store.sql import StoreError
from invariant_bandits_service.store.sqlite import FileLock
from served_models import running, serve
from started_service import PATIENCE, Started, service

pytestmark = pytest.mark.system

SECOND = "import sys; from invariant_bandits_service.store.open_store import open_store; open_store(sys.argv[1])"


def decide(started: Started, first: int, last: int) -> list[str]:
    """Ids of decisions that were acknowledged."""
    ids = [f"visit {n}" for n in range(first, last)]
    for id in ids:
        assert (
            started.ask("POST", "/v1/decisions", {"arms": ["a", "b"], "id": id})[0]
            == 200
        )
    return ids


def missing(path: Path, ids: list[str]) -> list[str]:
    """Ids that a store does not know."""
    store = open_store(path, writing=False)
    try:
        return [id for id in ids if not store.of_key(decision_key(id, "default"))]
    finally:
        store.close()


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        arguments,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )


def test_another_process_is_refused_whichever_name_it_comes_by_and_readers_go_on(
    tmp_path: Path,
) -> None:
    """The service is one process, the test another."""
    path, link = tmp_path / "decisions.db", tmp_path / "link.db"
    with service(tmp_path) as started:
        ids = decide(started, 0, 10)
        (tmp_path / "link").symlink_to(tmp_path)
        link.symlink_to("decisions.db")
        for name in ("decisions.db", "link.db", "link/decisions.db"):
            with pytest.raises(StoreError, match="in use by another process"):
                open_store(tmp_path / name)
        link.unlink()
        os.link(path, link)
        with pytest.raises(StoreError, match=r"2 names \(hard links\)"):
            open_store(link)
        link.unlink()
        (tmp_path / "link").unlink()
        ids += decide(started, 10, 20)
        for command in ("verify", "replay"):
            assert CliRunner().invoke(app, ["store", command, str(path)]).exit_code == 0
        assert [
            file.name for file in tmp_path.iterdir() if file.suffix == ".lock"
        ] == []
        assert started.end() == 0
    assert [file.name for file in tmp_path.iterdir() if file.suffix != ".txt"] == [
        "decisions.db"
    ]
    assert missing(path, ids) == []
    assert CliRunner().invoke(app, ["store", "verify", str(path)]).exit_code == 0


def test_another_mount_of_the_folder_leads_to_the_same_lock(tmp_path: Path) -> None:
    """Two containers, or machines, that have the same folder under different names."""
    served, mounted = tmp_path / "served", tmp_path / "mounted"
    served.mkdir()
    mounted.mkdir()
    mount = f"mount --bind {shlex.quote(str(served))} {shlex.quote(str(mounted))}"
    if (
        shutil.which("unshare") is None
        or run(tmp_path, "unshare", "--mount", "sh", "-c", mount).returncode
    ):
        pytest.skip("this user cannot mount a folder in a namespace of its own")
    with running(served / "decisions.db") as engine:
        serve(engine)
        second = shlex.join(
            [sys.executable, "-c", SECOND, str(mounted / "decisions.db")]
        )
        done = run(
            tmp_path, "unshare", "--mount", "sh", "-c", f"{mount} && exec {second}"
        )
        assert "in use by another process" in done.stderr
        engine.call(DecisionCommand(id="visit"))
    assert missing(served / "decisions.db", ["visit"]) == []


def test_events_of_a_killed_service_are_not_lost_through_another_name(
    tmp_path: Path,
) -> None:
    """The last events are in a log that SQLite finds by the name of the file."""
    with service(tmp_path) as started:
        ids = decide(started, 0, 20)
        started.end(signal.SIGKILL)
    os.link(tmp_path / "decisions.db", tmp_path / "link.db")
    for name in ("link.db", "decisions.db"):
        with pytest.raises(StoreError, match="names"):
            open_store(tmp_path / name)
        with pytest.raises(StoreError, match="names"):
            open_store(tmp_path / name, writing=False)
    (tmp_path / "link.db").unlink()
    open_store(tmp_path / "decisions.db").close()
    assert missing(tmp_path / "decisions.db", ids) == []


def test_a_journal_without_its_database_is_not_thrown_away(tmp_path: Path) -> None:
    path = tmp_path / "d.db"
    store = open_store(path)
    store.append([("a", b"one")])
    path.rename(tmp_path / "moved.db")
    journal = (tmp_path / "d.db-wal").read_bytes()
    for content in (None, b""):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(StoreError, match="missing or empty"):
            open_store(path)
    assert (tmp_path / "d.db-wal").read_bytes() == journal
    path.unlink()
    (tmp_path / "moved.db").rename(path)
    assert [row.event for row in store.of_key("a")] == [b"one"]
    store.close()


def test_the_lock_belongs_to_the_file_and_not_to_its_name(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    os.link(tmp_path / "a", tmp_path / "b")
    script = f"""
from pathlib import Path
from invariant_bandits_service.store.sqlite import FileLock
FileLock(Path({str(tmp_path / "b")!r}))
"""
    lock = FileLock(tmp_path / "a")
    assert (
        "in use by another process"
        in run(tmp_path, sys.executable, "-c", script).stderr
    )
    lock.release()
    assert run(tmp_path, sys.executable, "-c", script).returncode == 0


def test_what_is_refused_or_looked_at_does_not_end_the_locks_of_sqlite(
    tmp_path: Path,
) -> None:
    """A process that closes any descriptor of a file loses its fcntl locks on it; others then remove the
    log.
    """
    path = tmp_path / "d.db"
    with running(path) as engine:
        serve(engine)
        with pytest.raises(StoreError, match="in use"):
            open_store(path)
        assert CliRunner().invoke(app, ["store", "verify", str(path)]).exit_code == 0
        script = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT * FROM head').fetchone()"
        assert (
            run(
                tmp_path, sys.executable, "-c", f"{script}; c.close()", str(path)
            ).returncode
            == 0
        )
        assert (tmp_path / "d.db-wal").stat().st_size
        serve(engine, name="other")
        events = engine.state.seq
    store = open_store(path, writing=False)
    assert len(list(store.rows())) == events
    store.close()
