"""Log formats by name: registered where they are defined, found by the suffix of a file or by what is in memory.

    @log_format("pairs", suffixes=(".pairs",))
    class PairsSource: ...

is all it takes for `read_moments`, `fit_logs`, folders, patterns and messages to know files that end in ".pairs".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from invariant_bandits.checks import InputError
from invariant_bandits.logs.sources import Source
from invariant_bandits.registry import Registry

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


FORMATS: Registry[LogFormat] = Registry("log format", __name__.rpartition(".")[0])


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
    >>> FORMATS.remove("pair of lists")
    """
    if isinstance(suffixes, str) or bool(suffixes) == (accepts is not None):
        raise InputError(f"log format {name!r} needs either suffixes, such as ('.csv',), or accepts, got {suffixes!r}")

    def registered(kind: Kind) -> Kind:
        for there in FORMATS.known():
            taken = sorted(set(there.suffixes) & set(suffixes))
            if taken and there.name != name:
                raise InputError(f"log format {name!r}: {taken[0]!r} is registered already, by {there.name!r}")
        FORMATS.add(LogFormat(name, kind, label or name, tuple(suffixes), accepts))
        return kind

    return registered


def format_of_file(path: str) -> LogFormat | None:
    """The format whose suffix the path has; the longest suffix, if it has several."""
    fitting = [(len(suffix), one) for one in FORMATS for suffix in one.suffixes if path.endswith(suffix)]
    return max(fitting, key=lambda pair: pair[0])[1] if fitting else None


def format_of_object(source: Any) -> LogFormat | None:
    """The format that accepts what is in memory."""
    for one in reversed(tuple(FORMATS)):
        if one.accepts is not None and one.accepts(source):
            return one
    return None
