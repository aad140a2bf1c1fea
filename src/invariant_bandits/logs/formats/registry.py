"""Log formats by name: registered where they are defined, found by the suffix of a file or by what is in memory.

    @log_format("pairs", suffixes=(".pairs",))
    class PairsSource: ...

is all it takes for `read_moments`, `fit_logs`, folders, patterns and messages to know files that end in ".pairs".
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, TypeAlias, TypeVar

from invariant_bandits.checks import InputError
from invariant_bandits.logs.sources import Source

ROOM = __name__.rpartition(".")[0]
Opener: TypeAlias = Callable[[Any], Source]
Kind = TypeVar("Kind", bound=Opener)


@dataclass(frozen=True)
class LogFormat:
    """A way to open logs.

    Parameters
    ----------
    name : str
        What the format is known by.
    kind : callable, returns a Source
        Called with a tuple of paths, or with the object that `accepts` knows.
    label : str
        What messages call it.
    suffixes : tuple of str
        How its files end; empty for what is in memory.
    accepts : callable, object -> bool, or None
        Whether an object in memory is of this format; None for files.
    """

    name: str
    kind: Opener
    label: str
    suffixes: tuple[str, ...] = ()
    accepts: Callable[[Any], bool] | None = None


_FORMATS: dict[str, LogFormat] = {}


def log_format(
    name: str, *, label: str | None = None, suffixes: Sequence[str] = (), accepts: Callable[[Any], bool] | None = None
) -> Callable[[Kind], Kind]:
    """Register a class of sources, or a function that returns a source, as a format of logs.

    Parameters
    ----------
    name : str
        What the format is known by; another format's name is refused.
    label : str, optional
        What messages call it; the name if not given.
    suffixes : sequence of str
        How the files of the format end, such as (".csv", ".csv.gz"). What is decorated is called with a tuple of paths,
        in the order of the log.
    accepts : callable, object -> bool
        For what is in memory: whether an object is of this format. What is decorated is called with the object. The
        format that was registered last is asked first.

    >>> import pyarrow as pa, invariant_bandits as ib
    >>> from invariant_bandits.logs.formats.table import TableSource
    >>> @log_format("pair of lists", accepts=lambda source: isinstance(source, tuple) and len(source) == 2)
    ... def open_pair(source):
    ...     return TableSource(pa.table({"x": source[0], "reward": source[1]}))
    >>> ib.read_moments(([1.0, 2.0, 4.0], [0.0, 1.0, 0.0]), windows=1).moments
    WindowedMoments(dim=1, windows=1, rounds=3, of chosen actions)
    >>> forget_format("pair of lists")
    """
    if isinstance(suffixes, str) or bool(suffixes) == (accepts is not None):
        raise InputError(f"log format {name!r} needs either suffixes, such as ('.csv',), or accepts, got {suffixes!r}")

    def registered(kind: Kind) -> Kind:
        if not kind.__module__.startswith(f"{ROOM}."):
            _import_room()
        _add(LogFormat(name, kind, label or name, tuple(suffixes), accepts))
        return kind

    return registered


def forget_format(name: str) -> None:
    """Undo a registration."""
    _FORMATS.pop(name, None)


def log_formats() -> tuple[LogFormat, ...]:
    """All formats in the order of their registration, those of this package first."""
    _import_room()
    return tuple(_FORMATS.values())


def format_of_file(path: str) -> LogFormat | None:
    """The format whose suffix the path has; the longest suffix, if it has several."""
    fitting = [(len(suffix), one) for one in log_formats() for suffix in one.suffixes if path.endswith(suffix)]
    return max(fitting, key=lambda pair: pair[0])[1] if fitting else None


def format_of_object(source: Any) -> LogFormat | None:
    """The format that accepts what is in memory."""
    for one in reversed(log_formats()):
        if one.accepts is not None and one.accepts(source):
            return one
    return None


@cache
def _import_room() -> None:
    for module in pkgutil.iter_modules(import_module(ROOM).__path__, f"{ROOM}."):
        import_module(module.name)


def _add(new: LogFormat) -> None:
    """A module that is imported anew replaces its own formats; names and suffixes of others are refused."""
    for there in _FORMATS.values():
        if _origin(there) == _origin(new) and there.name == new.name:
            continue
        taken = sorted({there.name} & {new.name} | set(there.suffixes) & set(new.suffixes))
        if taken:
            raise InputError(f"log format {new.name!r}: {taken[0]!r} is registered already, by {_origin(there)}")
    _FORMATS[new.name] = new


def _origin(one: LogFormat) -> str:
    return f"{one.kind.__module__}.{getattr(one.kind, '__qualname__', '?')}"
