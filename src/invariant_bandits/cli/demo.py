"""The command that shows everything at once."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from invariant_bandits.cli.common import Seed
from invariant_bandits.cli.common import plain_console as console


def demo(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen at; 0: any that is free.")] = 0,
    store: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where events are kept; if not given, only until the end.")
    ] = None,
    rate: Annotated[float, typer.Option(min=0.1, max=1000.0, help="Visits per second.")] = 25.0,
    break_after: Annotated[int, typer.Option(min=0, help="Visits after which what lasted changes.")] = 600,
    seed: Seed = 0,
) -> None:
    """Serve a simulated shop, page included: its tastes drift, and half-way what lasted breaks and the alarm rings."""
    from invariant_bandits.cli.demonstration import Plan, demonstrate

    plan = Plan(rate=rate, break_after=break_after, seed=seed)
    with tempfile.TemporaryDirectory(prefix="invariant-bandits-") as folder:
        where = Path(folder) / "decisions.db" if store is None else store
        code = demonstrate(where, plan, port=port, say=lambda line: console.print(line))
    raise typer.Exit(code)


COMMANDS: tuple[Callable[..., None], ...] = (demo,)
