"""One's own grid of worlds and policies, from a TOML file: every combination of the lists in it is a cell.

replications = 50
horizon = 500
seed = 1

[environment]                    # fields of PaperEpisodes; a list means: each of these
logged = [1000, 8000]
violation = [0.0, 2.0]
[environment.world]              # fields of PaperWorld
drift = 1.0

[policies.LinUCB]                # the name is the kind, unless `kind` says otherwise
[policies."LinUCB, tuned"]
kind = "LinUCB"
exploration = 0.3
[policies."my own"]
kind = "mymodule:make"           # called with the options, returns episode -> policy
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from itertools import product
from pathlib import Path
from typing import Any

from invariant_bandits.checks import InputError, whole_number
from invariant_bandits.experiments.cells import Cell
from invariant_bandits.experiments.contenders import Contender
from invariant_bandits.simulation.episodes import PaperEpisodes
from invariant_bandits.simulation.lower_bound import HypercubeEpisodes
from invariant_bandits.simulation.paper import PaperWorld

TOP = {"replications", "horizon", "seed", "environment", "policies"}
SEQUENCES = {"blocks"}
KINDS = {"paper": PaperEpisodes, "hypercube": HypercubeEpisodes}


@dataclass(frozen=True)
class Grid:
    """What a configuration asks for."""

    cells: list[Cell]
    replications: int
    seed: int


def read_grid(path: Path) -> Grid:
    """The grid in a TOML file; every error names the file and the entry."""
    try:
        text = path.read_text()
        config = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path} is not TOML: {error}") from None
    try:
        return grid_of(config)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def grid_of(config: Mapping[str, Any]) -> Grid:
    """The grid of a configuration that is already a dictionary."""
    _known(config, TOP, "the file")
    if not config.get("policies"):
        raise InputError("[policies] is empty: at least one policy is needed, for instance [policies.LinUCB]")
    policies = {name: _contender(name, options) for name, options in config["policies"].items()}
    for contender in policies.values():
        contender.maker()
    environment = dict(config.get("environment", {}))
    kind = environment.pop("kind", "paper")
    if kind not in KINDS:
        raise InputError(f"environment.kind must be one of {', '.join(KINDS)}, got {kind!r}")
    horizons = _choices("horizon", config.get("horizon", 500))
    cells = []
    for horizon, (words, world) in product(horizons, _worlds(kind, environment)):
        parts = [*words, *([f"horizon={horizon}"] if len(horizons) > 1 else [])]
        whole_number("horizon", horizon, 1)
        cells.append(Cell(_file_name(parts), world, horizon, policies))
    return Grid(
        cells,
        whole_number("replications", config.get("replications", 20), 2),
        whole_number("seed", config.get("seed", 0), 0),
    )


def _contender(name: str, options: Any) -> Contender:
    if not isinstance(options, Mapping):
        raise InputError(f"policies.{name} must be a table of options, got {options!r}")
    rest = dict(options)
    return Contender(str(rest.pop("kind", name)), rest)


def _worlds(kind: str, environment: dict[str, Any]) -> list[tuple[list[str], Any]]:
    """(what is particular about it, environment) for every combination of the lists."""
    inner = environment.pop("world", {})
    if kind != "paper" and inner:
        raise InputError(f"environment.world belongs to the kind 'paper', not to {kind!r}")
    outer_names = {field.name for field in fields(KINDS[kind])} - {"world"}
    _known(environment, outer_names, "environment")
    _known(inner, {field.name for field in fields(PaperWorld)}, "environment.world")
    choices = {("", name): _choices(name, value) for name, value in environment.items()}
    choices |= {("world.", name): _choices(name, value) for name, value in inner.items()}
    worlds = []
    for values in product(*choices.values()):
        settings = dict(zip(choices, values, strict=True))
        words = [f"{name}={_plain(value)}" for (_, name), value in settings.items() if len(choices[_, name]) > 1]
        outer = {name: value for (part, name), value in settings.items() if not part}
        if kind == "paper":
            outer["world"] = _built(PaperWorld, {name: value for (part, name), value in settings.items() if part})
        worlds.append((words, _built(KINDS[kind], outer)))
    return worlds


def _built(kind: Any, settings: dict[str, Any]) -> Any:
    try:
        return kind(**settings)
    except TypeError as error:
        raise InputError(f"environment: {error}") from None


def _choices(name: str, value: Any) -> list[Any]:
    """The values an entry may take: a list means each of them, but for entries that are sequences themselves."""
    if name in SEQUENCES:
        nested = isinstance(value, list) and value and isinstance(value[0], list)
        return [tuple(each) for each in value] if nested else [tuple(value)]
    if not isinstance(value, list):
        return [value]
    if not value:
        raise InputError(f"{name} is an empty list: at least one value is needed")
    return [tuple(each) if isinstance(each, list) else each for each in value]


def _known(given: Mapping[str, Any], names: set[str], where: str) -> None:
    unknown = sorted(set(given) - names)
    if unknown:
        raise InputError(f"{where} has no entry {unknown[0]!r}; it may have {', '.join(sorted(names))}")


def _plain(value: Any) -> str:
    return "-".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _file_name(parts: list[str]) -> str:
    return ",".join(parts).replace("/", "-") or "world"
