"""Commands of other packages: found by their entry points, and imported when one of them is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Any

import typer
from typer.core import TyperGroup

from invariant_bandits.checks import InputError
from invariant_bandits.optional import install_house

GROUP = "invariant_bandits.command"
"""Entry points of this group have the name of a command and load a typer app that has it."""
HOUSES = {
    "serve": "service",
    "demo": "service",
    "store": "service",
    "reproduce": "reproduction",
    "report": "reproduction",
}
"""Commands of this project's other packages -> the package."""
ORDER = (
    *("fit", "inspect", "evaluate", "update", "arms", "serve", "demo", "sample"),
    *("reproduce", "compile", "report", "simulate", "store"),
)
"""The order in which commands are listed; others come last."""


class CommandGroup(TyperGroup):
    """The commands of the library and those that installed packages name.

    A command of this project whose package is not installed says how to get it.
    """

    def list_commands(self, context: Any) -> list[str]:
        """Return the names of all commands in their order."""
        points = (point.name for point in entry_points(group=GROUP))
        names = dict.fromkeys([*super().list_commands(context), *points, *HOUSES])
        return sorted(names, key=_rank)

    def get_command(self, context: Any, name: str) -> Any:
        """Return the command of this name, or None."""
        own_command = super().get_command(context, name)
        if own_command is not None:
            return own_command
        for point in entry_points(group=GROUP, name=name):
            house = typer.main.get_group(point.load())
            return house.commands[name]
        return _missing(name) if name in HOUSES else None


def _rank(name: str) -> int:
    return ORDER.index(name) if name in ORDER else len(ORDER)


def _missing(name: str) -> Any:
    """Return a command that takes any arguments and says how to get the command of this name."""
    how = install_house(HOUSES[name])
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.command(
        name,
        short_help=f"Not installed: {how}.",
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )(_refusing(f"the command {name!r} is not installed: {how}"))
    return typer.main.get_command(app)


def _refusing(words: str) -> Any:
    def refuse(context: typer.Context) -> None:
        raise InputError(words)

    return refuse


def subcommands(command: Any, context: Any = None) -> Sequence[tuple[str, Any]]:
    """Return the names and commands of a group, nothing for a single command."""
    if not hasattr(command, "list_commands"):
        return ()
    names = command.list_commands(context)
    return [(name, command.get_command(context, name)) for name in names]
