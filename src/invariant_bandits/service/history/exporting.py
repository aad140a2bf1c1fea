"""A store's decisions as logs: Parquet that `fit`, `update` and `evaluate` read as it is, or dsjson."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

from invariant_bandits.checks import InputError
from invariant_bandits.service.history.dsjson import dsjson_line
from invariant_bandits.service.history.layout import layout_of
from invariant_bandits.service.history.parquet import write_parquet
from invariant_bandits.service.history.settled import Settled, settled
from invariant_bandits.service.replaying import restored
from invariant_bandits.service.served import Served
from invariant_bandits.storage import FileError, atomic_write

EVENT_SUFFIXES = (".dsjson", ".jsonl", ".json")


@dataclass(frozen=True)
class Exported:
    """What was written.

    Parameters
    ----------
    decisions, rows : int
        Settled decisions, and rows or lines they became.
    left_out : int
        Features that were too rare for a column of their own.
    """

    decisions: int
    rows: int
    left_out: int = 0


def export(
    store: Any,
    out: str | PathLike[str],
    *,
    model: str | None = None,
    since: float | None = None,
    until: float | None = None,
    force: bool = False,
) -> Exported:
    """Write the settled decisions of a model; the file appears when it is whole.

    Parameters
    ----------
    store : Store
        Opened for reading.
    out : path
        A file whose suffix says the form: .parquet, or .dsjson, .jsonl or .json for dsjson.
    model : str, optional
        Which model; may be left out if there is only one.
    since, until : float, optional
        Only decisions from this time on, and before that one; seconds since 1970.
    force : bool
        Whether a file that is there is replaced.
    """
    suffix = Path(out).suffix.lower()
    if suffix not in (".parquet", *EVENT_SUFFIXES):
        raise InputError(f"OUT must end in .parquet, or in .dsjson or .jsonl for dsjson, got {out}")
    target = _target(out, force)
    served = _served(store, model)
    last = store.head().seq
    decisions = partial(_between, partial(settled, store, served.name, last=last), since, until)
    with atomic_write(target) as scratch:
        if suffix in EVENT_SUFFIXES:
            return _write_events(scratch, decisions())
        layout = layout_of(decisions, served.learner)
        if not layout.decisions:
            raise InputError(f"model: {served.name!r} has no settled decisions in this time")
        return Exported(*write_parquet(scratch, layout, decisions()), layout.left_out)


def _target(out: str | PathLike[str], force: bool) -> Path:
    target = Path(os.path.realpath(out))
    if target.is_dir() or not target.parent.is_dir():
        raise FileError(f"OUT must be a file in a folder that is there, got {out}")
    if target.exists() and not force:
        raise InputError(f"OUT: {out} is there already; --force replaces it")
    return target


def _served(store: Any, model: str | None) -> Served:
    models = restored(store).models
    if model is None and len(models) == 1:
        return next(iter(models.values()))
    if model is None or model not in models:
        given = "is needed" if model is None else f"{model!r} is not in the store"
        raise InputError(f"model: {given}; there are {', '.join(sorted(models)) or 'none'}")
    return models[model]


def _between(decisions: Callable[[], Iterable[Settled]], since: float | None, until: float | None) -> Iterator[Settled]:
    for one in decisions():
        time = one.decided.time
        if (since is None or time >= since) and (until is None or time < until):
            yield one


def _write_events(path: Path, decisions: Iterable[Settled]) -> Exported:
    written = 0
    with path.open("wb") as file:
        for written, one in enumerate(decisions, start=1):  # noqa: B007 - how many there are
            file.write(dsjson_line(one))
    if not written:
        raise InputError("model: there are no settled decisions in this time")
    return Exported(written, written)
