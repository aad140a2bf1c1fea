"""Environments by name: registered where they are defined, found by grids and experiments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any, TypeVar

from invariant_bandits.checks import InputError
from invariant_bandits.registry import Registry

Kind = TypeVar("Kind", bound=type)


@dataclass(frozen=True, eq=False)
class RegisteredEnvironment:
    """A class of environments under a name; `seeded_as` is what the seeds of its runs are derived from."""

    name: str
    kind: Any
    seeded_as: str


ENVIRONMENTS: Registry[RegisteredEnvironment] = Registry("environment", "invariant_bandits.simulation")


def environment(name: str, *, seeded_as: str | None = None) -> Callable[[Kind], Kind]:
    """Register a class of environments, a dataclass with `draw(horizon, rng) -> Episode`, under a name.

    seeded_as: runs of one seed draw the same worlds as long as this stays the same, wherever the class moves; the name
    if not given.
    """

    def registered(kind: Kind) -> Kind:
        if not is_dataclass(kind) or not callable(getattr(kind, "draw", None)):
            raise InputError(f"environment must be a dataclass with draw(horizon, rng), got {kind.__name__}")
        ENVIRONMENTS.add(RegisteredEnvironment(name, kind, seeded_as or name))
        return kind

    return registered


def described(environment: Any) -> dict[str, Any]:
    """What an environment is and its settings, as plain data: equal for equal worlds, and what seeds come from."""
    for entry in ENVIRONMENTS:
        if entry.kind is type(environment):
            return {"kind": entry.seeded_as, **asdict(environment)}
    kind = type(environment)
    return {"kind": f"{kind.__module__}.{kind.__qualname__}", **asdict(environment)}
