"""The command that writes a log in another format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from invariant_bandits.cli.common import plain_console as console


def convert(
    source: Annotated[str, typer.Argument(metavar="IN", help="A file, a folder, or a pattern in quotes.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Its suffix says the format: .parquet, .jsonl.gz, .vw, …")],
    schema: Annotated[
        Path | None,
        typer.Option(
            "--schema", metavar="FILE.toml", help="What the columns mean; for .vw and .dsjson, if not guessed."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace OUT if it is there; never what is read.")] = False,
) -> None:
    """Write a log in another format; the suffixes of the files say which."""
    from invariant_bandits.logs.convert import convert as converted

    console.print(f"{out}: {converted(source, out, schema, force=force).describe()}")


COMMANDS: tuple[Callable[..., None], ...] = (convert,)
