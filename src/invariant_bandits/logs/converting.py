"""A log in one format written in another."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from invariant_bandits.checks import InputError
from invariant_bandits.files import FileError
from invariant_bandits.logs.formats.registry import LogFormat, format_to_write
from invariant_bandits.logs.log_events import events_of
from invariant_bandits.logs.opening import open_source
from invariant_bandits.logs.quality import QualityReport
from invariant_bandits.logs.schema import SchemaLike
from invariant_bandits.logs.sources import Source, skipped_by_reason
from invariant_bandits.logs.storage import COMPRESSIONS, is_remote
from invariant_bandits.logs.typed import TypedRows
from invariant_bandits.replacing import replacing


@dataclass(frozen=True)
class Conversion:
    """What was written, and what was not.

    Parameters
    ----------
    label : str
        What the format is called.
    quality : QualityReport
        Rows or events that were read, those that were written (its rounds), and the others by reason.
    unreadable : mapping of str to int
        By column, values that were not of its type and are missing now.
    """

    label: str
    quality: QualityReport
    unreadable: Mapping[str, int]

    def describe(self) -> str:
        """A few lines a person can read."""
        lines = [f"{self.label}: {self.quality.rounds:,} written of {self.quality.rows:,} read"]
        lines += [
            f"{problem.count:>11,}  {reason}"
            for reason, problem in sorted(self.quality.problems.items())
            if problem.count
        ]
        lines += [
            f"{count:>11,}  values of {name} are not of its type: missing" for name, count in self.unreadable.items()
        ]
        return "\n".join(lines)


def convert(source: Any, out: str | PathLike[str], schema: SchemaLike = None, *, force: bool = False) -> Conversion:
    """Write a log in the format that the suffix of `out` says; the file appears when it is whole.

    Tables keep their columns and types. Vowpal's forms (.vw, .dsjson) get an event per round, from a log with one row
    per offered action or with labels of arms, and with propensities.

    Parameters
    ----------
    source : path, folder, pattern, list of these, Arrow table, frame or Source
        Where the rows come from; see `open_source`.
    out : path
        Where they go.
    schema : Schema, mapping, path of a TOML file or None
        What the columns mean, for events; what is not said is inferred.
    force : bool
        Whether a file that is there is replaced; one that is read is never.

    >>> import pyarrow as pa, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> convert(pa.table({"reward": [1.0, 0.0], "price": [2.5, 3.0]}), f"{folder}/log.csv").describe()
    'CSV: 2 written of 2 read'
    """
    kind = format_to_write(str(out))
    target = _checked_target(str(out), force)
    opened = open_source(source)
    if target.exists() and any(_same_file(task.file, target) for task in opened.tasks):
        raise InputError(f"OUT must not be a file that is read, got {out}")
    import pyarrow as pa

    try:
        with replacing(target) as scratch:
            return _write(kind, opened, str(out), scratch, schema)
    except pa.ArrowException as error:
        raise FileError(f"{out} could not be written: {' '.join(str(error).split())}") from error


def _checked_target(out: str, force: bool) -> Path:
    if is_remote(out):
        raise InputError(f"OUT must be a file of this machine, got {out}")
    target = Path(os.path.realpath(out))
    if target.is_dir() or not target.parent.is_dir():
        raise FileError(f"OUT must be a file in a folder that is there, got {out}")
    if target.exists() and not force:
        raise InputError(f"OUT: {out} is there already; --force (force=True) replaces it")
    return target


def _same_file(path: str, target: Path) -> bool:
    return not is_remote(path) and Path(path).exists() and os.path.samefile(path, target)


def _write(kind: LogFormat, source: Source, out: str, scratch: Path, schema: SchemaLike) -> Conversion:
    report, unreadable = QualityReport(), dict[str, int]()
    with _open_sink(scratch, out if kind.packed else "") as sink:
        if kind.event_writer is not None:
            kind.event_writer(sink, events_of(source, schema, report))
            return Conversion(kind.label, report, unreadable)
        rows = TypedRows(source)
        assert kind.table_writer is not None
        kind.table_writer(sink, out, rows.arrow_schema, rows.batches())
    report.rows = report.rounds = rows.rows
    for task in source.tasks:
        for reason, lines in skipped_by_reason(source, task).items():
            if lines and not report.is_kept(reason):
                report.add(reason, task.file, lines)
                report.rows += len(lines)
    return Conversion(kind.label, report, {name: count for name, count in rows.unreadable.items() if count})


def _open_sink(scratch: Path, out: str) -> Any:
    """Where bytes go, compressed if the suffix of `out` says so."""
    import pyarrow as pa

    codec = next((name for suffix, name in COMPRESSIONS.items() if out.endswith(suffix)), None)
    return pa.OSFile(str(scratch), "wb") if codec is None else pa.CompressedOutputStream(str(scratch), codec)
