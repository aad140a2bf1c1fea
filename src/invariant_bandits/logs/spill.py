"""Temporary files: streams that can be read once, text that is parsed once, rounds and rows beyond memory."""

from __future__ import annotations

import mmap
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.features.columns import Categories
from invariant_bandits.logs import decode
from invariant_bandits.logs.decode import (
    batch_without_views,
    schema_without_views,
)
from invariant_bandits.logs.files import naming_file
from invariant_bandits.logs.schema import Schema
from invariant_bandits.logs.sources import (
    BATCH_ROWS,
    Batches,
    Source,
    SourceAround,
    Task,
    flattened,
    require_usable_names,
)
from invariant_bandits.optional import pyarrow as pa
from invariant_bandits.storage import FileError


def _temporary_folder(owner: Any) -> Path:
    """A new folder that is deleted with its owner."""
    folder = Path(tempfile.mkdtemp(prefix="invariant-bandits-"))
    weakref.finalize(owner, shutil.rmtree, folder, ignore_errors=True)
    return folder


BATCHES_PER_FILE = 8
"""Some half a million rows: a file is a task, and threads read tasks side by side."""


class SpooledFile(NamedTuple):
    """Batches of the same columns and types in a file of our own, and the first row of each."""

    path: Path
    arrow_schema: Any
    rows: list[int]


class SpooledSource(SourceAround):
    """A source of text that is parsed once: `record` writes typed columns, which later passes read.

    Another machine gets the source of text itself.

    Parameters
    ----------
    inner : Source
        The text.
    schema : Schema
        What the columns mean; only those that are used are written.
    dates : bool
        Whether times are dates, not numbers.
    """

    def __init__(self, inner: Source, schema: Schema, dates: bool) -> None:
        super().__init__(inner)
        self.arrow_schema = inner.arrow_schema
        self.columns = schema.used_columns
        self.categories = {*schema.categorical, *filter(None, [schema.arm])}
        numbers = {
            *schema.features,
            schema.reward,
            schema.propensity,
            schema.position,
        } - self.categories
        self.is_date = dict.fromkeys(filter(None, numbers), False) | {
            str(schema.time): dates
        }
        self._folder: Path | None = None
        self._files: dict[str, list[SpooledFile]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return copy, (self.inner,)

    def record(self, task: Task) -> Batches:
        """Yield typed batches of all columns of a file, and keep them."""
        if task.file in self._files:
            yield from self.batches(task, self.columns)
            return
        files: list[SpooledFile] | None = []
        with ExitStack() as written:
            for row, batch in self.inner.batches(task, self.columns):
                batch = self._typed(batch)
                yield row, batch
                if files is None:
                    continue
                try:
                    self._write(task, files, row, batch, written)
                except OSError:  # no space is left: the text is parsed again
                    for file in files:
                        file.path.unlink(missing_ok=True)
                    files = None
            with suppress(OSError):
                written.close()
                self._files |= {} if files is None else {task.file: files}

    def _write(
        self,
        task: Task,
        files: list[SpooledFile],
        row: int,
        batch: Any,
        written: ExitStack,
    ) -> None:
        """Append a batch to the last file, or to a new one."""
        last = files[-1] if files else None
        if (
            last is None
            or len(last.rows) == BATCHES_PER_FILE
            or last.arrow_schema != batch.schema
        ):
            written.close()
            path = self._new_path(task, len(files))
            self._writer = written.enter_context(
                pa.ipc.new_stream(str(path), batch.schema)
            )
            last = SpooledFile(path, batch.schema, [])
            files.append(last)
        self._writer.write_batch(batch)
        last.rows.append(row)

    def _new_path(self, task: Task, number: int) -> Path:
        self._folder = self._folder or _temporary_folder(self)
        return self._folder / f"{len(self._files)}-{number}.arrows"

    def _typed(self, batch: Any) -> Any:
        columns = []
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if name in self.categories:
                column = decode.as_dictionary(column)
            elif name in self.is_date and decode.is_text(column.type):
                column = decode.parsed_whole(column, dates=self.is_date[name])
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)

    def batches(self, task: Task, columns: Sequence[str]) -> Batches:
        """Yield what was recorded, or else batches of the text."""
        files = self._files.get(task.file)
        if files is None or not set(columns) <= set(self.columns):
            parsed = self.inner.batches(task, columns)
            yield from (
                pair for pair in parsed if task.first_row <= pair[0] < self._end(task)
            )
            return
        for file in files[task.part - 1 : task.part] if task.part else files:
            with (
                pa.memory_map(str(file.path)) as mapped,
                pa.ipc.open_stream(mapped) as stream,
            ):
                for row, batch in zip(file.rows, stream, strict=True):
                    yield row, batch.select(list(columns))

    def split(self, task: Task) -> Sequence[Task]:
        """Return a task per recorded file; part 0 of a text file is all of it."""
        files = self._files.get(task.file, [])
        if len(files) < 2:
            return [task]
        starts = [0, *(file.rows[0] for file in files[1:])]
        numbered = enumerate(starts, start=1)
        return [
            Task(task.file, part, row, task.position + row) for part, row in numbered
        ]

    def skipped(self, task: Task) -> dict[str, list[int]]:
        """Return the rows of a task that could not be parsed."""
        start = task.first_row
        end = self._end(task)
        skipped = self.inner.skipped(task).items()
        return {
            reason: [row for row in rows if start <= row < end]
            for reason, rows in skipped
        }

    def _end(self, task: Task) -> float:
        """Return the first row behind a task."""
        behind = (
            self._files.get(task.file, [])[task.part : task.part + 1]
            if task.part
            else []
        )
        return behind[0].rows[0] if behind else np.inf


MOST_SPOOLED = 2 << 30
"""Bytes of rounds that are written to files between two passes over a log."""
MISSING = -2
"""Stands for a missing category among indices, which are at least −1."""


class RoundSpool:
    """Decoded rounds of clicks on labelled arms, in one file per task.

    The first pass over a log writes them, the second one reads them. The files are deleted with this
    object.
    """

    def __init__(self) -> None:
        self.folder = _temporary_folder(self)
        self.names: list[str] = []
        self._bytes = 0
        self._paths: dict[Task, Path] | None = {}

    @property
    def is_whole(self) -> bool:
        """Whether it holds rounds, and all of them."""
        return bool(self._paths)

    def give_up(self) -> None:
        """Keep nothing, because a reward is not a click or there is no space for all rounds."""
        self._paths = None

    @contextmanager
    def writing(self, task: Task) -> Iterator[Callable[..., None]]:
        """Yield a function that writes the columns, rewards, arms and windows of rounds of a task."""
        path = self.folder / f"{abs(hash(task))}"
        if self._paths is not None:
            self._paths[task] = path
        with open(path, "wb") as file:

            def write(columns: Mapping[str, Any], *arrays: Array) -> None:
                if self._paths is None:
                    return
                self.names = list(columns)
                for values in (*columns.values(), *arrays):
                    packed = _packed(values)
                    self._bytes += packed.nbytes
                    try:
                        np.save(file, packed, allow_pickle=False)
                    except OSError:  # no space is left
                        self.give_up()
                if self._bytes > MOST_SPOOLED:
                    self.give_up()

            yield write

    def read(self, task: Task) -> Iterator[tuple[dict[str, Any], Array, Array, Array]]:
        """Yield columns, rewards, arms and windows of the rounds of a task."""
        with open((self._paths or {})[task], "rb") as file:
            while file.peek(1):
                columns = {name: _unpacked(np.load(file)) for name in self.names}
                rewards, arms, windows = (np.load(file) for _ in range(3))
                yield (
                    columns,
                    rewards.astype(np.float64),
                    arms.astype(np.int64),
                    windows.astype(np.int64),
                )


def _packed(values: Any) -> Array:
    """Numbers as they are; whole numbers and categories in the narrowest type that holds them."""
    if isinstance(values, Categories):
        values = np.where(values.missing, MISSING, values.places)
    if values.dtype.kind != "i":
        return np.asarray(values)
    return np.asarray(
        values.astype(np.min_scalar_type(-1 - int(values.max(initial=1))))
    )


def _unpacked(values: Array) -> Any:
    """Categories of whole numbers, or numbers as they are."""
    if values.dtype.kind != "i":
        return values
    return Categories(np.maximum(values, -1).astype(np.int64), values == MISSING)


class SpillSource(Source):
    """Rows in Arrow files of our own, one task each, which are deleted with the source."""

    in_files = False

    def __init__(self) -> None:
        self.folder = _temporary_folder(self)

    def path(self, part: int) -> str:
        """Where the rows of a part are."""
        return str(self.folder / f"{part}.arrow")

    def batches(self, task: Task, columns: Sequence[str]) -> Batches:
        """Batches of one part."""
        row = 0
        with (
            pa.memory_map(self.path(task.part)) as file,
            pa.ipc.open_file(file) as reader,
        ):
            for index in range(reader.num_record_batches):
                batch = reader.get_batch(index).select(list(columns))
                yield row, batch
                row += len(batch)


class StreamSource(SpillSource):
    """Rows of a stream that can be read once; a batch at a time is in memory.

    Parameters
    ----------
    reader : pyarrow.RecordBatchReader
        The stream. Objects within objects become columns such as "user.age".
    """

    def __init__(self, reader: Any) -> None:
        super().__init__()
        self.arrow_schema = schema_without_views(
            flattened(reader.schema.empty_table()).schema
        )
        require_usable_names("stream", self.arrow_schema.names)
        self.tasks = (Task("stream", 0, 0, 0),)
        self.total_rows = 0
        with (
            naming_file(self.path(0)),
            pa.ipc.new_file(self.path(0), self.arrow_schema) as writer,
        ):
            for batch in reader:
                flat = flattened(pa.Table.from_batches([batch]))
                for part in flat.to_batches(BATCH_ROWS):
                    writer.write_batch(batch_without_views(part))
                self.total_rows += len(batch)


IN_MEMORY = 2**24
"""So many numbers (128 MB) are kept in memory; more go to a file."""
AT_ONCE = 2**21
"""So many numbers (16 MB) are read from it at once."""


@dataclass(frozen=True, eq=False)
class StoredRows:
    """Rows of which a slice at a time is an array, as `change` makes them of what RowCollector stored.

    They lie in memory or in an unnamed temporary file, which is gone with the last object that
    holds it. Forked processes may read at the same time.

    Parameters
    ----------
    mapped_file : mmap or None
        The file; None if the rows are in memory.
    raw : array, shape (rows, p), or (rows,)
        These rows of it.
    change : callable, optional
        What is made of rows as they are read; one row in, one row out.
    shape : tuple of int
        (rows, p) after `change`, or (rows,).
    """

    mapped_file: mmap.mmap | None
    raw: Array
    shape: tuple[int, ...]
    change: Callable[[Array], Array] | None = None

    def __len__(self) -> int:
        return len(self.raw)

    def __getitem__(self, part: slice) -> Array:
        """The rows of a slice, as an array."""
        rows = self.raw[part].copy()
        if self.mapped_file is not None:
            # or the file would count as memory of this process
            self.mapped_file.madvise(mmap.MADV_DONTNEED)
        return rows if self.change is None else np.ascontiguousarray(self.change(rows))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """All of them, in memory."""
        return np.asarray(self[:], dtype=dtype)

    def between(self, start: int, stop: int) -> StoredRows:
        """The rows from `start` up to, not including, `stop`; nothing is read."""
        raw = self.raw[start:stop]
        return replace(self, raw=raw, shape=(len(raw), *self.shape[1:]))

    def mapped(self, change: Callable[[Array], Array]) -> StoredRows:
        """`change` of every row as it is read."""
        before = self.change
        both = change if before is None else lambda rows: change(before(rows))
        return replace(
            self, change=both, shape=(len(self), *change(self[:1]).shape[1:])
        )


class RowCollector:
    """Collects rows batch by batch: in memory as long as they are few, then in a file."""

    def __init__(self) -> None:
        self._held: list[Array] = []
        self._file: Any = None
        self._shape: tuple[int, ...] = ()
        self._dropped = 0

    def append(self, rows: Array) -> None:
        """Add rows (n, p) or numbers (n,)."""
        self._held.append(rows)
        self._shape = rows.shape[1:]
        if self._file is None and sum(held.size for held in self._held) <= IN_MEMORY:
            return
        try:
            self._file = self._file or tempfile.TemporaryFile()  # noqa: SIM115 - closed by rows
            while self._held:
                self._file.write(
                    np.ascontiguousarray(self._held.pop(0), dtype=np.float64)
                )
            self._file.flush()
        except OSError as error:
            raise FileError(
                f"{tempfile.gettempdir()} cannot hold all offered actions ({error.strerror}); "
                "set TMPDIR to a larger folder, or take fewer rounds (latest)"
            ) from None

    def drop(self, rows: int) -> None:
        """Forget the first so many."""
        if self._file is not None:
            self._dropped += rows
            return
        while self._held and rows >= len(self._held[0]):
            rows -= len(self._held.pop(0))
        self._held[:1] = [held[rows:] for held in self._held[:1]]

    @property
    def used(self) -> bool:
        """Whether anything was added."""
        return bool(self._held) or self._file is not None

    def rows(self) -> Array | StoredRows:
        """All that were added, an array if they are few; nothing can be added afterwards."""
        if self._file is None:
            return self._held[0] if len(self._held) == 1 else np.concatenate(self._held)
        with self._file as file:
            mapped_file = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        raw = np.frombuffer(mapped_file).reshape(-1, *self._shape)[self._dropped :]
        return StoredRows(mapped_file, raw, raw.shape)


def expanded_rows(
    rows: Array | StoredRows, change: Callable[[Array], Array], width: int
) -> Array | StoredRows:
    """Return `change` of every row, `width` numbers each: an array if they are few."""
    if isinstance(rows, StoredRows):
        return rows.mapped(change)
    if len(rows) * width <= IN_MEMORY:
        return np.ascontiguousarray(change(rows))
    return StoredRows(None, rows, rows.shape).mapped(change)


def collect_rows(batches: Iterable[Array]) -> Array | StoredRows:
    """The rows of all batches: an array if they are few."""
    collector = RowCollector()
    for rows in batches:
        collector.append(rows)
    return collector.rows()


def release_memory() -> None:
    """Give back what reading a log has left in Arrow's pool."""
    pa.default_memory_pool().release_unused()
