"""A store's decisions as logs: Parquet that `fit`, `update` and `evaluate` read as it is, or dsjson."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from invariant_bandits.checks import InputError
from invariant_bandits.service.events import Decided
from invariant_bandits.service.history.decisions import Layout, SettledDecision, layout_of, settled_decisions
from invariant_bandits.service.replay import restore
from invariant_bandits.service.state import ServedModel
from invariant_bandits.storage import FileError, atomic_write


def dsjson_line(settled: SettledDecision) -> bytes:
    """A decision as one line of dsjson: probabilities of all actions, the chosen one first."""
    decided = settled.decided
    order = [decided.place, *(place for place in range(len(decided.propensities)) if place != decided.place)]
    line = {
        "_label_cost": 0.0 - settled.reward,
        "_label_probability": settled.propensity,
        "_label_Action": decided.place + 1,
        "_labelIndex": decided.place,
        "o": [{"v": settled.reward, "EventId": decided.id, "ActionTaken": True}],
        "Timestamp": datetime.fromtimestamp(decided.time, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "Version": "1",
        "EventId": decided.id,
        "a": [place + 1 for place in order],
        "c": {**_shared(decided.context), "_multi": [_action(decided, place) for place in range(len(order))]},
        "p": [decided.propensities[place] for place in order],
        "VWState": {"m": decided.version},
    }
    return (json.dumps(line, separators=(",", ":"), ensure_ascii=False) + "\n").encode()


def _shared(context: Any) -> dict[str, Any]:
    """Features of the context; keys with a leading bar would be taken for something else."""
    return {key.lstrip("_") or "feature": value for key, value in (context or {}).items()}


def _action(decided: Decided, place: int) -> dict[str, Any]:
    own = None if decided.actions is None else decided.actions[place]
    named = {"_tag": decided.labels[place]} if decided.labels else {}
    if own is None:
        return {**named, "arm": decided.labels[place]}
    if isinstance(own, dict):
        return {**named, **_shared(own)}
    if all(isinstance(part, dict) for part in own):  # a list of objects with features
        return {**named, **{f"f{number}": part for number, part in enumerate(own)}}
    return {**named, "features": own}


BATCH_ROUNDS = 8_192
"""Decisions that are written at once."""


def write_parquet(path: Path, layout: Layout, decisions: Iterable[SettledDecision]) -> tuple[int, int]:
    """Write decisions as rows, a few thousand at a time; how many decisions and rows there were."""
    import pyarrow as pa
    from pyarrow import parquet

    kinds = {"number": pa.float64(), "word": pa.string(), "list": pa.list_(pa.float64())}
    schema = pa.schema([*_known(layout), *((name, kinds[layout.features[name]]) for name in layout.features)])
    written, rows, source = 0, 0, iter(decisions)
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        while some := list(islice(source, BATCH_ROUNDS)):
            batch = pa.RecordBatch.from_pylist(
                [row for settled in some for row in _rows(layout, settled)], schema
            )
            writer.write_batch(batch)
            written, rows = written + len(some), rows + len(batch)
    return written, rows


def _known(layout: Layout) -> list[tuple[str, Any]]:
    """Columns beside the features."""
    import pyarrow as pa

    roles = layout.roles
    offer = (roles.chosen, pa.bool_()) if layout.rows else (roles.offered, pa.list_(pa.string()))
    when, numbers = (roles.time, pa.timestamp("us", tz="UTC")), (roles.reward, roles.propensity)
    texts = [(name, pa.string()) for name in (roles.round, "version_id", roles.arm)]
    return [texts[0], when, *texts[1:], offer, *((name, pa.float64()) for name in numbers)]


def _rows(layout: Layout, settled: SettledDecision) -> Iterator[dict[str, Any]]:
    roles, decided = layout.roles, settled.decided
    when = datetime.fromtimestamp(decided.time, UTC)
    for place, features in enumerate(layout.rows_of(settled)):
        if layout.chosen_only and place != decided.place:
            continue
        known: dict[str, Any] = {roles.round: decided.id, roles.time: when, "version_id": decided.version}
        if layout.rows:
            label = decided.labels[place] if decided.labels else str(place)
            chosen = place == decided.place
            known |= {
                roles.arm: label,
                roles.chosen: chosen,
                roles.reward: settled.reward if chosen else None,
            }
            known |= {roles.propensity: decided.propensities[place]}
        else:
            known |= {roles.arm: decided.labels[decided.place], roles.offered: decided.labels}
            known |= {roles.reward: settled.reward, roles.propensity: settled.propensity}
        absent = 0.0 if layout.named and layout.rows else None
        yield {
            name: _value(features.get(name, absent), kind) for name, kind in layout.features.items()
        } | known


def _value(value: Any, kind: str) -> Any:
    """A value as its column holds it."""
    if value is None or isinstance(value, str) or kind == "list":
        return value
    return f"{value:g}" if kind == "word" else float(value)


EVENT_SUFFIXES = (".dsjson", ".jsonl", ".json")


class Exported(NamedTuple):
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
    start, end = -math.inf if since is None else since, math.inf if until is None else until

    def decisions() -> Iterator[SettledDecision]:
        every = settled_decisions(store, served.name, last=last)
        return (settled for settled in every if start <= settled.decided.time < end)

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


def _served(store: Any, model: str | None) -> ServedModel:
    models = restore(store).models
    if model is None and len(models) == 1:
        return next(iter(models.values()))
    if model is None or model not in models:
        problem = "is needed" if model is None else f"{model!r} is not in the store"
        raise InputError(f"model: {problem}; there are {', '.join(sorted(models)) or 'none'}")
    return models[model]


def _write_events(path: Path, decisions: Iterable[SettledDecision]) -> Exported:
    written = 0
    with path.open("wb") as file:
        for written, settled in enumerate(decisions, start=1):  # noqa: B007 - how many there are
            file.write(dsjson_line(settled))
    if not written:
        raise InputError("model: there are no settled decisions in this time")
    return Exported(written, written)
