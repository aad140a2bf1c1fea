"""The command that writes logs to try everything on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from invariant_bandits.cli.common import plain_console as console


def sample(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where the logs go; made if it is not there.")],
    rounds: Annotated[int, typer.Option(min=200, help="Rounds per log.")] = 4000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all randomness.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Replace files of the same names.")] = False,
) -> None:
    """Write sample logs with known truth: labelled banners, and features of offered actions in three forms."""
    from invariant_bandits.simulation.sample_logs import write_samples

    for path, words in write_samples(folder, rounds, seed, replace=force).items():
        console.print(f"{path}: {words}")


COMMANDS: tuple[Callable[..., None], ...] = (sample,)
