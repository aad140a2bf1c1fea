"""The command that lists, adds and retires the arms of a model; arguments and printing only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from invariant_bandits.checks import InputError
from invariant_bandits.cli.common import AsJson, Force, check_target, print_json, words_on_stderr
from invariant_bandits.cli.common import plain_console as console


def arms(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A file written by `fit` for a log of labelled arms.")],
    add: Annotated[
        str | None, typer.Option(metavar="LABEL", help="Make a new arm known; it begins as the log's arms let expect.")
    ] = None,
    feature: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Of the new arm, by a column of the catalogue; several times."),
    ] = None,
    retire: Annotated[
        list[str] | None,
        typer.Option(metavar="LABEL", help="Never choose an arm again; its name stays known. Several times."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="MODEL", help="Where the changed model goes; replaces MODEL if not given."),
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """List the arms of a model, add one or retire some."""
    if feature and add is None:
        raise InputError("--feature describes a new arm: give --add, too")
    target = model if out is None else out
    check_target(target, "--out", "model", force=force)
    with words_on_stderr(as_json):
        from invariant_bandits.model.model import Model
        from invariant_bandits.reports import values

        loaded = Model.load(model)
        if loaded.arms is None:
            raise InputError(f"{model} is a model of feature rows: it has no labelled arms")
        for label in retire or ():
            loaded.retire_arm(label)
        if add is not None:
            loaded.add_arm(add, dict(map(_pair, feature)) if feature else None)
        if add is not None or retire:
            loaded.save(target)
        if not as_json:
            console.print(loaded.arms.describe())
        if add is not None or retire:
            console.print(f"\nmodel: {target}, version {loaded.identity}")
    if as_json:
        print_json({"model": str(target), "version": loaded.identity, "arms": values.of_arms(loaded.arms)})


def _pair(words: str) -> tuple[str, Any]:
    name, sign, value = words.partition("=")
    if not sign or not name:
        raise InputError(f"--feature must be NAME=VALUE, got {words!r}")
    return name, value


COMMANDS: tuple[Callable[..., None], ...] = (arms,)
