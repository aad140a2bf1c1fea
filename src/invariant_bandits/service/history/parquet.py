"""Decisions as Parquet that is read with no schema by hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from invariant_bandits.service.history.layout import Layout
from invariant_bandits.service.history.settled import Settled

BATCH_ROUNDS = 8_192
"""Decisions that are written at once."""


def write_parquet(path: Path, layout: Layout, decisions: Iterable[Settled]) -> tuple[int, int]:
    """Write decisions as rows, a few thousand at a time; how many decisions and rows there were."""
    import pyarrow as pa
    from pyarrow import parquet

    kinds = {"number": pa.float64(), "word": pa.string(), "list": pa.list_(pa.float64())}
    schema = pa.schema([*_known(layout), *((name, kinds[layout.features[name]]) for name in layout.features)])
    written, rows, source = 0, 0, iter(decisions)
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        while some := list(islice(source, BATCH_ROUNDS)):
            batch = pa.RecordBatch.from_pylist([row for one in some for row in _rows(layout, one)], schema)
            writer.write_batch(batch)
            written, rows = written + len(some), rows + len(batch)
    return written, rows


def _known(layout: Layout) -> list[tuple[str, Any]]:
    """Columns beside the features."""
    import pyarrow as pa

    roles = layout.roles
    columns = [(roles.round, pa.string()), (roles.time, pa.timestamp("us", tz="UTC")), ("version_id", pa.string())]
    columns += [(roles.arm, pa.string())]
    columns += [(roles.chosen, pa.bool_())] if layout.rows else [(roles.offered, pa.list_(pa.string()))]
    return [*columns, (roles.reward, pa.float64()), (roles.propensity, pa.float64())]


def _rows(layout: Layout, one: Settled) -> Iterator[dict[str, Any]]:
    roles, decided = layout.roles, one.decided
    when = datetime.fromtimestamp(decided.time, UTC)
    for place, features in enumerate(layout.rows_of(one)):
        if layout.chosen_only and place != decided.place:
            continue
        known: dict[str, Any] = {roles.round: decided.id, roles.time: when, "version_id": decided.version}
        if layout.rows:
            label = decided.labels[place] if decided.labels else str(place)
            chosen = place == decided.place
            known |= {roles.arm: label, roles.chosen: chosen, roles.reward: one.reward if chosen else None}
            known |= {roles.propensity: decided.propensities[place]}
        else:
            known |= {roles.arm: decided.labels[decided.place], roles.offered: decided.labels}
            known |= {roles.reward: one.reward, roles.propensity: one.propensity}
        absent = 0.0 if layout.named and layout.rows else None
        yield {name: _value(features.get(name, absent), kind) for name, kind in layout.features.items()} | known


def _value(value: Any, kind: str) -> Any:
    """A value as its column holds it."""
    if value is None or isinstance(value, str) or kind == "list":
        return value
    return f"{value:g}" if kind == "word" else float(value)
