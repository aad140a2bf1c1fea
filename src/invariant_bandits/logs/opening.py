"""Which source is behind what the user gave: paths, tables, frames or dictionaries."""

from __future__ import annotations

import glob
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from invariant_bandits.checks import InputError
from invariant_bandits.files import FileError
from invariant_bandits.logs.obp import ObpSource
from invariant_bandits.logs.sources import SAMPLE_ROWS, CsvSource, ParquetSource, Source, TableSource


def open_source(source: Any) -> Source:
    """The source behind a path, folder or pattern (Parquet, CSV), an Arrow table, a frame or an obp feedback dict."""
    import pyarrow as pa

    if isinstance(source, ParquetSource | CsvSource | TableSource | ObpSource):
        return source
    if isinstance(source, str | PathLike):
        return _open_paths(str(source), _files_of(str(source)))
    if isinstance(source, list | tuple) and source and all(isinstance(one, str | PathLike) for one in source):
        return _open_paths("source", [name for one in source for name in _files_of(str(one))])
    if isinstance(source, Mapping):
        return ObpSource(source)
    if isinstance(source, pa.Table):
        return TableSource(source)
    if isinstance(source, pa.RecordBatch):
        return TableSource(pa.Table.from_batches([source]))
    if type(source).__module__.partition(".")[0] == "pandas":
        return TableSource(pa.Table.from_pandas(source, preserve_index=False), "frame")
    if hasattr(source, "__arrow_c_stream__"):
        return TableSource(pa.table(source), "frame")
    raise InputError(
        "source must be a path, a folder, a pattern, an Arrow table, a pandas or Polars frame or an obp feedback"
        f" dictionary, got {type(source).__name__}"
    )


def sample_of(source: Source, rows: int = SAMPLE_ROWS) -> Any:
    """The first rows, an Arrow table."""
    import pyarrow as pa

    for task in source.tasks:
        for _, batch in source.batches(task, source.arrow_schema.names):
            return pa.Table.from_batches([batch.slice(0, rows)])
    raise InputError(f"the log is empty: {', '.join(task.file for task in source.tasks[:3]) or 'no rows'}")


def _files_of(given: str) -> list[str]:
    path = Path(given)
    if path.is_dir():
        found = sorted(str(one) for one in path.rglob("*") if one.is_file() and not _is_hidden(one.relative_to(path)))
        found = [name for name in found if _kind(name) is not None]
    elif path.is_file():
        found = [given]
    else:
        found = sorted(name for name in glob.glob(given, recursive=True) if Path(name).is_file())
    if not found:
        raise FileError(f"{given}: no Parquet or CSV file is there")
    return found


def _is_hidden(path: Path) -> bool:
    """Spark and others leave files such as _SUCCESS and .crc beside the data."""
    return any(part.startswith(("_", ".")) for part in path.parts)


def _open_paths(given: str, paths: list[str]) -> Source:
    kinds = {_kind(path) for path in paths}
    if kinds == {"parquet"}:
        return ParquetSource(tuple(paths))
    if kinds == {"csv"}:
        return CsvSource(tuple(paths))
    raise FileError(f"{given}: files must be all Parquet (.parquet, .pq) or all CSV (.csv, .csv.gz), got {paths[:3]}")


def _kind(path: str) -> str | None:
    if path.endswith((".parquet", ".pq")):
        return "parquet"
    return "csv" if path.endswith((".csv", ".csv.gz")) else None
