"""All commands together, and what comes before any of them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Annotated

import typer

from invariant_bandits import __version__
from invariant_bandits.checks import InputError
from invariant_bandits.cli import experiments, licences, logs, models, service, store
from invariant_bandits.cli.common import console, register

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,  # its panels leave the words a fifth of a terminal
    context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 120},
    pretty_exceptions_enable=False,
    help="Contextual bandits that remember what lasts and relearn what changed.",
)
commands: tuple[Callable[..., None], ...] = (
    *(logs.fit, models.inspect, logs.evaluate, models.update, models.arms, service.serve, service.demo),
    *(logs.convert, logs.sample, experiments.reproduce, experiments.compile_, experiments.report),
    *(experiments.simulate, models.decompose, licences.licences),
)
register(app, *commands)
app.add_typer(store.store, name="store")


def _show_version(wanted: bool) -> None:
    if wanted:
        console.print(f"invariant-bandits {__version__}")
        raise typer.Exit


def _load(plugins: list[str] | None) -> None:
    """Import modules that register the user's own policies, estimators, log formats or environments."""
    for plugin in plugins or ():
        path = Path(plugin)
        if path.suffix != ".py":
            sys.path.insert(0, "")  # a console script does not look in the present folder by itself
            try:
                import_module(plugin)
            except ModuleNotFoundError as error:
                if error.name != plugin.partition(".")[0]:
                    raise
                raise InputError(f"--plugin: there is no module {plugin!r}") from None
            continue
        spec = spec_from_file_location(path.stem, path)
        if spec is None or spec.loader is None or not path.is_file():
            raise InputError(f"--plugin: there is no file {plugin}")
        sys.modules[path.stem] = module = module_from_spec(spec)
        spec.loader.exec_module(module)


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
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
