"""The commands around the decision service."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from invariant_bandits.checks import InputError
from invariant_bandits.cli.common import plain_console as console

if TYPE_CHECKING:
    from invariant_bandits.service.background.schedule import Activation
    from invariant_bandits.service.serve import FleetRole as Role

Store = Annotated[
    str,
    typer.Option(
        "--store", help="Where every event is kept: a file, made if needed, or postgresql://…", metavar="FILE"
    ),
]


def serve(
    models: Annotated[
        list[str] | None,
        typer.Argument(metavar="[MODEL]", help="Model file, or NAME=FILE for several; without any, an empty model."),
    ] = None,
    store: Store = "decisions.db",
    host: Annotated[
        str, typer.Option(help="Address to listen at; beyond this machine tokens are needed.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen at.")] = 8080,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="File with one 'read TOKEN', 'decide TOKEN' or 'admin TOKEN' per line; SIGHUP reads it again."
        ),
    ] = None,
    rate: Annotated[float, typer.Option(min=0.0, help="Requests per second and token; 0: without bound.")] = 0.0,
    role: Annotated[
        str, typer.Option(help="In a fleet on one PostgreSQL store: 'learner' or 'decider'.", metavar="ROLE")
    ] = "alone",
    logs: Annotated[
        list[str] | None,
        typer.Option("--logs", metavar="NAME=FILE", help="Log that a model is fitted to, unless the store has it."),
    ] = None,
    learn_at: Annotated[
        str,
        typer.Option(metavar="HH:MM", help="Learn every day at this time from the service's own decisions; or never."),
    ] = "03:30",
    learn_every: Annotated[
        float | None, typer.Option(min=0.01, metavar="HOURS", help="Learn again and again after so many hours.")
    ] = None,
    activate: Annotated[
        str, typer.Option(help="What was learned takes over if it is better, always, or never by itself.")
    ] = "better",
) -> None:
    """Serve decisions over HTTP: durable before they are answered, and the same in every replay."""
    from invariant_bandits.service.access import read_tokens
    from invariant_bandits.service.store.open_store import begin
    from invariant_bandits.service.store.postgres import is_address

    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})  # until it can be answered with other tokens
    tokens = {} if token_file is None else read_tokens(token_file)
    found, told_logs, told_plan = _named(models or []), _logs(logs or []), _plan(learn_at, learn_every, activate)
    begun = begin(store) if role == "alone" and not is_address(store) else None  # checked while the rest is imported
    from invariant_bandits.service.background.schedule import Plan
    from invariant_bandits.service.responses import Limits
    from invariant_bandits.service.serve import Settings, serve

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    settings = Settings(
        store=store,
        models=found,
        host=host,
        port=port,
        tokens=tokens,
        token_file=token_file,
        limits=Limits(rate=rate),
        role=cast("Role", role),
        logs=told_logs,
        plan=Plan(*told_plan),
    )
    raise typer.Exit(serve(settings, lambda line: console.print(line), begun))


def _named(given: list[str]) -> dict[str, Path]:
    """Model files by name: NAME=FILE, or one FILE for "default"."""
    found: dict[str, Path] = {}
    for one in given:
        name, sign, path = one.partition("=")
        if not sign or Path(one).is_file():
            name, path = "default", one
        if name in found:
            raise InputError(f"MODEL: two files for the model {name!r}; say NAME=FILE")
        if not Path(path).is_file():
            raise InputError(f"MODEL: {path} does not exist")
        found[name] = Path(path)
    return found


def _logs(given: list[str]) -> dict[str, str]:
    """Logs by the name of their model: NAME=FILE, or one FILE for "default"."""
    found: dict[str, str] = {}
    for one in given:
        name, sign, path = one.partition("=")
        if not sign or Path(one).exists():
            name, path = "default", one
        if name in found:
            raise InputError(f"--logs: two logs for the model {name!r}; say NAME=FILE")
        found[name] = path
    return found


def _plan(at: str, every: float | None, activate: str) -> tuple[float | None, tuple[int, int] | None, Activation]:
    """When to learn, as it was said: what a Plan is made of."""
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


COMMANDS: tuple[Callable[..., None], ...] = (serve,)
