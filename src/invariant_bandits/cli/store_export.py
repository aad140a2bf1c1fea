"""The command that writes the decisions of a store as a log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from invariant_bandits.checks import InputError
from invariant_bandits.cli.common import plain_console as console


def export(
    store: Annotated[str, typer.Argument(metavar="STORE", help="Where the events are; it may be in use.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="FILE.parquet, or FILE.dsjson or FILE.jsonl for dsjson.")],
    model: Annotated[str | None, typer.Option("--model", help="Which model, if there are several.")] = None,
    since: Annotated[str | None, typer.Option(help="Only decisions from this time on: 2026-11-01T12:00, UTC.")] = None,
    until: Annotated[str | None, typer.Option(help="Only decisions before this time.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace OUT if it is there.")] = False,
) -> None:
    """Write settled decisions with their rewards and propensities as a log that fit, update and evaluate read."""
    from invariant_bandits.service.history.export import export as exported
    from invariant_bandits.service.store.open_store import open_store

    opened = open_store(store, writing=False)
    try:
        done = exported(
            opened,
            out,
            model=model,
            since=time_of("--since", since),
            until=time_of("--until", until),
            force=force,
        )
    finally:
        opened.close()
    rare = f", without {done.left_out:,} features that are too rare" if done.left_out else ""
    console.print(f"{out}: {done.decisions:,} decisions, {done.rows:,} rows{rare}")


def time_of(option: str, given: str | None) -> float | None:
    """Seconds since 1970 of a time that says its zone, or is meant as UTC."""
    from datetime import UTC, datetime

    if given is None:
        return None
    try:
        time = datetime.fromisoformat(given)
    except ValueError:
        raise InputError(f"{option} must be a date or time such as 2026-11-01T12:00, got {given!r}") from None
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
