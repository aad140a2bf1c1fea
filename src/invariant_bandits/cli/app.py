"""All commands together, and the options that come before any of them.

Those of the service and of the reproduction are in packages of their own: `houses` finds them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from invariant_bandits import __version__
from invariant_bandits.checks import InputError
from invariant_bandits.cli import grids, models
from invariant_bandits.cli.common import console, register
from invariant_bandits.cli.houses import CommandGroup

app = typer.Typer(
    cls=CommandGroup,
    no_args_is_help=True,
    rich_markup_mode=None,  # its panels leave the words a fifth of a terminal
    context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 120},
    pretty_exceptions_enable=False,
    help="Contextual bandits that remember what lasts and relearn what changed.",
)

# -- all commands --

commands: tuple[Callable[..., None], ...] = (
    models.fit,
    models.inspect,
    models.evaluate,
    models.update,
    models.arms,
    models.sample,
    grids.compile_,
    grids.simulate,
)
register(app, *commands)


def _show_version(wanted: bool) -> None:
    if wanted:
        console.print(f"invariant-bandits {__version__}")
        raise typer.Exit


def _load(plugins: list[str] | None) -> None:
    """Import modules that register the user's own policies, estimators, log formats or environments."""
    for plugin in plugins or ():
        path = Path(plugin)
        name = path.stem if path.suffix == ".py" else plugin
        sys.path.insert(
            0, str(path.parent)
        )  # the present folder, which console scripts leave out
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name.partition(".")[0]:
                raise
            raise InputError(f"--plugin: there is no module {plugin!r}") from None


@app.callback()
def _common(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version."
        ),
    ] = False,
    plugin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODULE",
            callback=_load,
            help="Import your own policies, estimators, log formats or environments first: a module, or a .py"
            " file. It is code and runs with your rights.",
        ),
    ] = None,
) -> None:
    pass
