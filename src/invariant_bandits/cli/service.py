"""The commands around the decision service."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from invariant_bandits.checks import InputError
from invariant_bandits.cli.common import plain_console as console

if TYPE_CHECKING:
    from invariant_bandits.service.roles import Role

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
        Path | None, typer.Option(help="File with one 'read TOKEN', 'decide TOKEN' or 'admin TOKEN' per line.")
    ] = None,
    rate: Annotated[float, typer.Option(min=0.0, help="Requests per second and token; 0: without bound.")] = 0.0,
    role: Annotated[
        str, typer.Option(help="In a fleet on one PostgreSQL store: 'learner' or 'decider'.", metavar="ROLE")
    ] = "alone",
) -> None:
    """Serve decisions over HTTP: durable before they are answered, and the same in every replay."""
    from invariant_bandits.service.access import read_tokens
    from invariant_bandits.service.limits import Limits
    from invariant_bandits.service.serving import Settings, serve

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    settings = Settings(
        store=store,
        models=_named(models or []),
        host=host,
        port=port,
        tokens={} if token_file is None else read_tokens(token_file),
        limits=Limits(rate=rate),
        role=cast("Role", role),
    )
    raise typer.Exit(serve(settings, lambda line: console.print(line)))


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


COMMANDS: tuple[Callable[..., None], ...] = (serve,)
