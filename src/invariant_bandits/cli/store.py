"""Commands about the store of a service."""

from __future__ import annotations

import typer

from invariant_bandits.cli import store_care, store_export

store = typer.Typer(no_args_is_help=True, help="Look after the events of a service.")
for command in (store_care.verify, store_care.repair, store_care.replay, store_export.export, store_care.compact):
    store.command(command.__name__, short_help=str(command.__doc__).partition("\n")[0])(command)
