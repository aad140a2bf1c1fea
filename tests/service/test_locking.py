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
from invariant_bandits.service.events import decision_key
from invariant_bandits.service.store.open_store import open_store
from invariant_bandits.service.store.sql import StoreError
from invariant_bandits.service.store.sqlite import FileLock
from served_models import running, serve
from started_service import PATIENCE, Started, service

pytestmark = pytest.mark.system

COMMAND = [sys.executable, "-c", "from invariant_bandits.cli import main; main()"]


def decide(started: Started, first: int, last: int) -> list[str]:
    """Ids of decisions that were acknowledged."""
    ids = [f"visit {n}" for n in range(first, last)]
    for id in ids:
        assert started.ask("POST", "/v1/decisions", {"arms": ["a", "b"], "id": id})[0] == 200
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
        arguments, cwd=folder, capture_output=True, text=True, check=False, timeout=PATIENCE
    )


def hard_link(folder: Path) -> str:
    os.link(folder / "decisions.db", folder / "link.db")
    return "link.db"


def symbolic_link(folder: Path) -> str:
    (folder / "link.db").symlink_to("decisions.db")
    return "link.db"


def linked_folder(folder: Path) -> str:
    (folder / "link").symlink_to(folder)
    return "link/decisions.db"


def tidied(folder: Path) -> str:
    """The same name, after everything but the database and its journal was removed."""
    for path in folder.iterdir():
        if path.suffix == ".lock":
            path.unlink()
    return "decisions.db"


@pytest.mark.system
@pytest.mark.parametrize("other", [hard_link, symbolic_link, linked_folder, tidied])
def test_a_second_process_is_refused_whichever_name_it_comes_by(tmp_path: Path, other) -> None:  # type: ignore[no-untyped-def]
    with service(tmp_path) as started:
        ids = decide(started, 0, 10)
        refused = pytest.raises(
            RuntimeError, match=r"exit code 2: .*(in use by another process|2 names \(hard links\))"
        )
        with refused, service(tmp_path, store=other(tmp_path)):
            pass
        ids += decide(started, 10, 20)
        assert started.end() == 0
    (tmp_path / "link.db").unlink(missing_ok=True)
    assert missing(tmp_path / "decisions.db", ids) == []
    assert run(tmp_path, *COMMAND, "store", "verify", "decisions.db").returncode == 0


@pytest.mark.system
def test_another_mount_of_the_folder_leads_to_the_same_lock(tmp_path: Path) -> None:
    """Two containers, or machines, that have the same folder under different names."""
    served, mounted = tmp_path / "served", tmp_path / "mounted"
    served.mkdir()
    mounted.mkdir()
    mount = f"mount --bind {shlex.quote(str(served))} {shlex.quote(str(mounted))}"
    if shutil.which("unshare") is None or run(tmp_path, "unshare", "--mount", "sh", "-c", mount).returncode:
        pytest.skip("this user cannot mount a folder in a namespace of its own")
    with service(served) as started:
        ids = decide(started, 0, 10)
        second = shlex.join([*COMMAND, "serve", "--port", "1", "--store", str(mounted / "decisions.db")])
        done = run(tmp_path, "unshare", "--mount", "sh", "-c", f"{mount} && exec {second}")
        assert done.returncode == 2
        assert "in use by another process" in done.stderr
        ids += decide(started, 10, 20)
        assert started.end() == 0
    assert missing(served / "decisions.db", ids) == []


@pytest.mark.system
def test_readers_go_on_while_a_store_is_served_and_no_file_is_left_for_the_lock(tmp_path: Path) -> None:
    with service(tmp_path) as started:
        decide(started, 0, 10)
        for arguments in (["verify", "decisions.db"], ["replay", "decisions.db"]):
            assert run(tmp_path, *COMMAND, "store", *arguments).returncode == 0
        with pytest.raises(RuntimeError, match="in use by another process"), service(tmp_path):
            pass
        assert started.end() == 0
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".txt"] == ["decisions.db"]


@pytest.mark.system
def test_events_of_a_killed_service_are_not_lost_through_another_name(tmp_path: Path) -> None:
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


@pytest.mark.system
def test_the_lock_belongs_to_the_file_and_not_to_its_name(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    os.link(tmp_path / "a", tmp_path / "b")
    script = f"""
from pathlib import Path
from invariant_bandits.service.store.sqlite import FileLock
FileLock(Path({str(tmp_path / "b")!r}))
"""
    lock = FileLock(tmp_path / "a")
    assert "in use by another process" in run(tmp_path, sys.executable, "-c", script).stderr
    lock.release()
    assert run(tmp_path, sys.executable, "-c", script).returncode == 0


@pytest.mark.system
def test_what_is_refused_or_looked_at_does_not_end_the_locks_of_sqlite(tmp_path: Path) -> None:
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
        assert run(tmp_path, sys.executable, "-c", f"{script}; c.close()", str(path)).returncode == 0
        assert (tmp_path / "d.db-wal").stat().st_size
        serve(engine, name="other")
        events = engine.state.seq
    store = open_store(path, writing=False)
    assert len(list(store.rows())) == events
    store.close()
