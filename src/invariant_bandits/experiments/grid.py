"""One's own grid of worlds and policies, from a TOML file: every combination of the lists in it is a cell.

replications = 50
horizon = 500
seed = 1

[environment]                    # kind = "paper" if nothing is said; its fields; a list means: each of these
logged = [1000, 8000]
violation = [0.0, 2.0]
[environment.world]              # fields of a part of it
drift = 1.0

[policies.linucb]                # the name is that of a registered policy, unless `kind` says otherwise
[policies."LinUCB, tuned"]
kind = "linucb"
exploration = 0.3
[policies.mine]
kind = "my_module:make"          # code of one's own: only where it is allowed, by allow_code or --allow-code
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from importlib import import_module
from inspect import isclass
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from invariant_bandits.checks import InputError, whole_number, whole_seed
from invariant_bandits.experiments.cells import Cell
from invariant_bandits.policies.registry import POLICIES, Contender, RegisteredPolicy, find_policy
from invariant_bandits.simulation.episodes import ENVIRONMENTS
from invariant_bandits.storage import read_toml

MOST_CELLS = 10_000
TOP = {"replications", "horizon", "seed", "environment", "policies"}


@dataclass(frozen=True)
class Grid:
    """What a configuration asks for."""

    cells: list[Cell]
    replications: int
    seed: int


def read_grid(path: Path, *, allow_code: bool = False) -> Grid:
    """The grid in a TOML file; every error names the file and the entry.

    allow_code: whether the `kind` of a policy may be "module:function", which is imported and runs with your
    rights.
    """
    config = read_toml(path)
    try:
        return grid_of(config, allow_code=allow_code)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def grid_of(config: Mapping[str, Any], *, allow_code: bool = False) -> Grid:
    """The grid of a configuration that is already a dictionary."""
    _known(config, TOP, "the file")
    for name in ("policies", "environment"):
        _require_table(config.get(name, {}), name)
    if not config.get("policies"):
        raise InputError("[policies] is empty: at least one policy is needed, for instance [policies.LinUCB]")
    policies = {name: _contender(name, options, allow_code) for name, options in config["policies"].items()}
    environment = dict(config.get("environment", {}))
    kind = ENVIRONMENTS.find(environment.pop("kind", "paper")).kind
    horizons = config.get("horizon", 500)
    horizons = horizons if isinstance(horizons, list) else [horizons]
    worlds = _worlds(kind, environment)
    _require_few(len(worlds) * len(horizons))
    cells = []
    for horizon, (words, world) in product(horizons, worlds):
        parts = [*words, *([f"horizon={horizon}"] if len(horizons) > 1 else [])]
        whole_number("horizon", horizon, 1)
        cells.append(Cell(_file_name(parts), world, horizon, policies))
    return Grid(
        cells,
        whole_number("replications", config.get("replications", 20), 2),
        whole_seed(config.get("seed", 0)),
    )


def _contender(name: str, options: Any, allow_code: bool) -> Contender:
    _require_table(options, f"policies.{name}")
    rest = dict(options)
    kind = str(rest.pop("kind", name))
    if ":" in kind and not allow_code:
        raise InputError(
            f"policies.{name}: {kind!r} names code, which runs with your rights; --allow-code allows it"
        )
    policy = _imported(kind) if ":" in kind else find_policy(kind)
    policy.check(rest)
    return Contender(policy.name, rest)


def _imported(address: str) -> RegisteredPolicy:
    """The class of policies, or the function of (past, options) that returns one, at "module:name";
    registered so.
    """
    module, _, name = address.partition(":")
    try:
        kind = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"{address!r} cannot be imported: {error}") from None
    if not callable(kind):
        raise InputError(
            f"{address!r} must be a class of policies or a function that returns one, got {kind!r}"
        )
    if not isclass(kind):
        kind = type(name, (), {"from_past": staticmethod(kind), "__module__": module})
    return POLICIES.add(RegisteredPolicy(address, kind, address))


def _worlds(kind: Any, environment: dict[str, Any]) -> list[tuple[list[str], Any]]:
    """(what is particular about it, environment) for every combination of the lists."""
    parts = {field.name: type(_default(field)) for field in fields(kind) if is_dataclass(_default(field))}
    tables = {name: environment.pop(name) for name in parts if name in environment}
    _known(environment, {field.name for field in fields(kind)}, "environment")
    choices = {("", name): _choices(kind, name, value) for name, value in environment.items()}
    for part, table in tables.items():
        _require_table(table, f"environment.{part}")
        _known(table, {field.name for field in fields(parts[part])}, f"environment.{part}")
        choices |= {(part, name): _choices(parts[part], name, value) for name, value in table.items()}
    _require_few(prod(map(len, choices.values())))
    worlds = []
    for values in product(*choices.values()):
        settings = dict(zip(choices, values, strict=True))
        words = [f"{key[1]}={_plain(value)}" for key, value in settings.items() if len(choices[key]) > 1]
        own = {name: value for (part, name), value in settings.items() if not part}
        for part in tables:
            inner = {name: value for (where, name), value in settings.items() if where == part}
            own[part] = _built(parts[part], inner)
        worlds.append((words, _built(kind, own)))
    return worlds


def _default(field: Any) -> Any:
    """What a field of a dataclass is if nothing is said."""
    return field.default_factory() if field.default_factory is not MISSING else field.default


def _built(kind: Any, settings: dict[str, Any]) -> Any:
    try:
        return kind(**settings)
    except (TypeError, ValueError, AttributeError) as error:
        raise InputError(f"environment: {error}") from None


def _choices(kind: Any, name: str, value: Any) -> list[Any]:
    """The values an entry may take: a list means each of them, unless the entry is itself a sequence."""
    if any(field.name == name and isinstance(_default(field), tuple) for field in fields(kind)):
        nested = isinstance(value, list) and value and any(isinstance(each, list) for each in value)
        if not isinstance(value, list) or (nested and not all(isinstance(each, list) for each in value)):
            raise InputError(f"{name} must be a list, or a list of lists, got {value!r}")
        return [tuple(each) for each in value] if nested else [tuple(value)]
    if not isinstance(value, list):
        return [value]
    if not value:
        raise InputError(f"{name} is an empty list: at least one value is needed")
    return [tuple(each) if isinstance(each, list) else each for each in value]


def _require_few(cells: int) -> None:
    if cells > MOST_CELLS:
        raise InputError(f"the lists of the file make {cells:,} cells; at most {MOST_CELLS:,} can be played")


def _require_table(value: Any, name: str) -> None:
    if not isinstance(value, Mapping):
        raise InputError(f"{name} must be a table, [{name}], got {value!r}")


def _known(table: Mapping[str, Any], names: set[str], where: str) -> None:
    unknown = sorted(set(table) - names)
    if unknown:
        raise InputError(f"{where} has no entry {unknown[0]!r}; it may have {', '.join(sorted(names))}")


def _plain(value: Any) -> str:
    return "-".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _file_name(parts: list[str]) -> str:
    return ",".join(parts).replace("/", "-") or "world"
