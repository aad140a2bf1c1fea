"""The commands around the decision service."""

from __future__ import annotations

import logging
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, cast

import typer

from invariant_bandits.checks import InputError
from invariant_bandits.cli.common import plain_console as console

if TYPE_CHECKING:
    from invariant_bandits.service.background.schedule import Activation
    from invariant_bandits.service.serve import FleetRole as Role


def serve(
    models: list[str] | None = None,
    store: str = "decisions.db",
    host: str = "127.0.0.1",
    port: int = 8080,
    token_file: Path | None = None,
    rate: float = 0.0,
    role: str = "alone",
    logs: list[str] | None = None,
    learn_at: str = "03:30",
    learn_every: float | None = None,
    activate: str = "better",
) -> None:
    """Serve decisions over HTTP: durable before they are answered, and the same in every replay."""
    from invariant_bandits.service.access import read_tokens
    from invariant_bandits.service.store.postgres import is_address
    from invariant_bandits.service.store.verify import open_while_verifying

    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})  # until it can be answered with other tokens
    tokens = {} if token_file is None else read_tokens(token_file)
    model_files, log_files = _model_files(models or []), _by_model(logs or [], "--logs", "logs")
    schedule = _plan(learn_at, learn_every, activate)
    # the store is checked while the rest is imported
    begun = open_while_verifying(store) if role == "alone" and not is_address(store) else None
    from invariant_bandits.service.background.schedule import RefitSchedule
    from invariant_bandits.service.responses import Limits
    from invariant_bandits.service.serve import ServiceSettings, serve

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    settings = ServiceSettings(
        store=store,
        models=model_files,
        host=host,
        port=port,
        tokens=tokens,
        token_file=token_file,
        limits=Limits(rate=rate),
        role=cast("Role", role),
        logs=log_files,
        plan=RefitSchedule(*schedule),
    )
    raise typer.Exit(serve(settings, lambda line: console.print(line), begun))


def _by_model(entries: list[str], option: str, files: str) -> dict[str, str]:
    """Files by the name of their model: NAME=FILE, or one FILE for "default"."""
    by_name: dict[str, str] = {}
    for entry in entries:
        name, sign, path = entry.partition("=")
        if not sign or Path(entry).exists():
            name, path = "default", entry
        if name in by_name:
            raise InputError(f"{option}: two {files} for the model {name!r}; say NAME=FILE")
        by_name[name] = path
    return by_name


def _model_files(entries: list[str]) -> dict[str, Path]:
    """Model files by name; all must exist."""
    paths = {name: Path(path) for name, path in _by_model(entries, "MODEL", "files").items()}
    for path in paths.values():
        if not path.is_file():
            raise InputError(f"MODEL: {path} does not exist")
    return paths


def _plan(
    at: str, every: float | None, activate: str
) -> tuple[float | None, tuple[int, int] | None, Activation]:
    """When to learn, as it was said: what a RefitSchedule is made of."""
    rules: dict[str, Activation] = {"better": "better", "always": "always", "never": "never"}
    if activate not in rules:
        raise InputError(f"--activate must be better, always or never, got {activate!r}")
    time: tuple[int, int] | None = None
    if at != "never":
        hour, _, minute = at.partition(":")
        if not (hour.isdecimal() and minute.isdecimal() and int(hour) < 24 and int(minute) < 60):
            raise InputError(f"--learn-at must be a time such as 03:30, or never, got {at!r}")
        time = int(hour), int(minute)
    return None if every is None else 3_600.0 * every, time, rules[activate]


def demo(
    port: int = 0, store: Path | None = None, rate: float = 25.0, break_after: int = 600, seed: int = 0
) -> None:
    """Serve a simulated shop, page included: its tastes drift, and half-way what lasted breaks and the alarm
    rings.
    """
    from invariant_bandits.cli.demonstration import DemonstrationPlan, demonstrate

    plan = DemonstrationPlan(rate=rate, break_after=break_after, seed=seed)
    with tempfile.TemporaryDirectory(prefix="invariant-bandits-") as folder:
        where = Path(folder) / "decisions.db" if store is None else store
        code = demonstrate(where, plan, port=port, say=lambda line: console.print(line))
    raise typer.Exit(code)
