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
    """A class of environments under a name.

    Parameters
    ----------
    name : str
        What it is asked for by.
    kind : type
        The class.
    seeded_as : str
        What the seeds of its runs are derived from.
    """

    name: str
    kind: Any
    seeded_as: str


ENVIRONMENTS: Registry[RegisteredEnvironment] = Registry("environment", "invariant_bandits.simulation")


def environment(name: str, *, seeded_as: str | None = None) -> Callable[[Kind], Kind]:
    """Register a class of environments under a name.

    The class is a dataclass with `draw(horizon, rng) -> Episode`.

    Parameters
    ----------
    name : str
        What grids and experiments ask for it by.
    seeded_as : str, optional
        Runs of one seed draw the same episodes as long as this stays the same, wherever the class moves. The name if
        not given.

    >>> from dataclasses import dataclass
    >>> import invariant_bandits as ib
    >>> from invariant_bandits.simulation.registry import ENVIRONMENTS
    >>> @ib.environment("quiet")
    ... @dataclass(frozen=True)
    ... class QuietEpisodes:
    ...     def draw(self, horizon, rng):
    ...         return ib.PaperEpisodes(world=ib.PaperWorld(varying=None)).draw(horizon, rng)
    >>> ENVIRONMENTS.find("quiet").kind.__name__
    'QuietEpisodes'
    >>> ENVIRONMENTS.remove("quiet")
    """

    def registered(kind: Kind) -> Kind:
        if not is_dataclass(kind) or not callable(getattr(kind, "draw", None)):
            raise InputError(f"environment must be a dataclass with draw(horizon, rng), got {kind.__name__}")
        ENVIRONMENTS.add(RegisteredEnvironment(name, kind, seeded_as or name))
        return kind

    return registered


def described(environment: Any) -> dict[str, Any]:
    """An environment and its settings as plain data: equal for equal environments, and what seeds come from."""
    for entry in ENVIRONMENTS:
        if entry.kind is type(environment):
            return {"kind": entry.seeded_as, **asdict(environment)}
    kind = type(environment)
    return {"kind": f"{kind.__module__}.{kind.__qualname__}", **asdict(environment)}
