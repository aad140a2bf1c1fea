"""Logs of other systems with columns added that say nothing, as wide exports have them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from invariant_bandits.simulation.wild_logs import (
    WildLog,
    call_centre,
    dosing,
    email_campaign,
    ride_pricing,
)

WIDE_ROUNDS = 20_000
"""Rounds of a wide log."""


def widened(
    write: Callable[..., WildLog], columns: int, folder: Path, seed: int
) -> WildLog:
    """Write a log, and add columns of whole numbers to its file that nothing depends on."""
    log = write(folder, seed, rounds=WIDE_ROUNDS)
    rng = np.random.default_rng([seed, columns])
    numbers = (100.0 * rng.normal(size=(WIDE_ROUNDS, columns))).astype(np.int64)
    names = [f"metric_{number:03d}" for number in range(columns)]
    if log.path.suffix == ".parquet":
        table = pq.read_table(log.path)
        for name, values in zip(names, numbers.T, strict=True):
            table = table.append_column(name, pa.array(values))
        pq.write_table(table, log.path)
    else:
        _widen_text(log.path, names, numbers)
    return log


def _widen_text(path: Path, names: list[str], numbers: Any) -> None:
    """Append columns to a CSV; the bytes of its other columns stay as they are."""
    end = b"\r\n" if b"\r\n" in path.read_bytes() else b"\n"
    lines = path.read_bytes().rstrip(end).split(end)
    first = int(lines[0].startswith(b"sep="))
    sign = b";" if b";" in lines[first] else b","
    added = [[name.encode() for name in names]]
    added += [[b"%d" % number for number in row] for row in numbers.tolist()]
    for line, words in enumerate(added, first):
        lines[line] = sign.join([lines[line], *words])
    path.write_bytes(end.join(lines) + end)


ADDED = {email_campaign: 30, ride_pricing: 60, dosing: 90, call_centre: 120}
"""Columns that are added to a kind of log."""
WIDE_LOGS: dict[str, Callable[..., WildLog]] = {
    f"{maker.__name__}_with_{columns}_columns": partial(widened, maker, columns)
    for maker, columns in ADDED.items()
}
