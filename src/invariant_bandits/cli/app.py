"""All commands together, what comes before any of them, and the one that lists licences."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module, metadata
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from invariant_bandits import __version__
from invariant_bandits.checks import InputError
from invariant_bandits.cli import experiments, models, service
from invariant_bandits.cli.common import console, plain_console, print_json, register, width

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,  # its panels leave the words a fifth of a terminal
    context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 120},
    pretty_exceptions_enable=False,
    help="Contextual bandits that remember what lasts and relearn what changed.",
)

# -- licences --

PRODUCT = "invariant-bandits"
CLASSIFIER = "License :: OSI Approved :: "
UNKNOWN = "not stated"
LONGEST = 60
"""Characters of a licence field that is a name; some packages put the whole text there."""
NAME = re.compile(r"[A-Za-z0-9._-]+")
EXTRA_MARKER = re.compile(r";.*\bextra\b")


class Licence(NamedTuple):
    """An installed package and the licence that it states.

    Attributes
    ----------
    package, version : str
        Its name and version.
    words : str
        The licence, as an SPDX expression where the package has one.
    needed : bool
        Whether the library requires it; otherwise one of its extras does.
    """

    package: str
    version: str
    words: str
    needed: bool


def installed_licences() -> list[Licence]:
    """List the licences of this package and of all its installed requirements, extras included, by name.

    >>> [licence.words for licence in installed_licences() if licence.package == "invariant-bandits"]
    ['BSD-3-Clause']
    """
    needed = _requirements(extras=False)
    licences = [_licence(package, name in needed) for name, package in _requirements(extras=True).items()]
    return sorted(licences, key=lambda licence: (not licence.needed, licence.package.lower()))


def _requirements(*, extras: bool) -> dict[str, metadata.Distribution]:
    """Normalised name -> package, of all transitive requirements; `extras` are those of this package."""
    packages: dict[str, metadata.Distribution] = {}
    pending = [PRODUCT]
    while pending:
        name = re.sub(r"[-_.]+", "-", pending.pop()).lower()
        if name not in packages:
            with suppress(metadata.PackageNotFoundError):
                packages[name] = metadata.distribution(name)
                wanted = packages[name].requires or ()
                if not extras or name != PRODUCT:
                    wanted = [requirement for requirement in wanted if not EXTRA_MARKER.search(requirement)]
                pending += [NAME.findall(requirement)[0] for requirement in wanted]
    return packages


def _licence(package: metadata.Distribution, needed: bool) -> Licence:
    about: Any = package.metadata
    classifiers = [line for line in about.get_all("Classifier") or () if CLASSIFIER in line]
    listed = ", ".join(line.removeprefix(CLASSIFIER) for line in classifiers)
    stated = [about.get("License-Expression"), about.get("License"), listed]
    words = next((text for text in stated if text and len(text) <= LONGEST and "\n" not in text), UNKNOWN)
    return Licence(str(about["Name"]), package.version, words, needed)


def licences(as_json: bool = False) -> None:
    """List the licences of this package and of everything it needs that is installed."""
    from invariant_bandits.reports.page import table_lines

    installed = installed_licences()
    if as_json:
        print_json({"packages": [licence._asdict() for licence in installed]})
        return
    rows = [[*item[:3], "needed" if item.needed else "extra"] for item in installed]
    plain_console.print("\n".join(table_lines(("package", "version", "licence", ""), rows, width())))


# -- all commands --

commands: tuple[Callable[..., None], ...] = (
    *(models.fit, models.inspect, models.evaluate, models.update, models.arms, service.serve, service.demo),
    *(models.convert, models.sample, experiments.reproduce, experiments.compile_, experiments.report),
    *(experiments.simulate, models.decompose, licences),
)
register(app, *commands)
app.add_typer(service.store_commands, name="store")


def _show_version(wanted: bool) -> None:
    if wanted:
        console.print(f"invariant-bandits {__version__}")
        raise typer.Exit


def _load(plugins: list[str] | None) -> None:
    """Import modules that register the user's own policies, estimators, log formats or environments."""
    for plugin in plugins or ():
        path = Path(plugin)
        name = path.stem if path.suffix == ".py" else plugin
        sys.path.insert(0, str(path.parent))  # the present folder, which console scripts leave out
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name.partition(".")[0]:
                raise
            raise InputError(f"--plugin: there is no module {plugin!r}") from None


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
