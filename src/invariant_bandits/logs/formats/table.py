"""Rows in memory and streams of rows.

In memory: Arrow tables, frames, lists of mappings. Streams: Arrow readers, Polars LazyFrames, DuckDB
relations, pyarrow datasets, and any other object with `__arrow_c_stream__`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError, finite_array, whole_number
from invariant_bandits.logs.decode import batch_without_views, schema_without_views
from invariant_bandits.logs.formats.registry import register_log_format
from invariant_bandits.logs.schema import Schema
from invariant_bandits.logs.sources import (
    BATCH_ROWS,
    Batches,
    Source,
    Task,
    flattened,
    require_usable_names,
)
from invariant_bandits.logs.spill import StreamSource
from invariant_bandits.optional import pyarrow as pa


@dataclass
class TableSource(Source):
    """An Arrow table as a source of rows.

    Parameters
    ----------
    table : pyarrow.Table
        The rows.
    name : str
        What messages call it.
    """

    table: Any
    name: str = "table"
    in_files = False

    def __post_init__(self) -> None:
        require_usable_names(self.name, self.table.schema.names)
        self.arrow_schema = schema_without_views(self.table.schema)
        self.total_rows = self.table.num_rows
        self.tasks = (Task(self.name, 0, 0, 0),)

    def batches(self, task: Task, columns: Sequence[str]) -> Batches:
        """Batches of the table."""
        row = 0
        for batch in self.table.select(list(columns)).to_batches(BATCH_ROWS):
            yield row, batch_without_views(batch)
            row += len(batch)


def _library(source: Any) -> str:
    return type(source).__module__.partition(".")[0]


def _is_table(source: Any) -> bool:
    if isinstance(source, pa.Table | pa.RecordBatch):
        return True
    is_frame = _library(source) in ("pandas", "polars") and not hasattr(
        source, "collect"
    )
    return is_frame and hasattr(source, "columns")


def _are_rows(source: Any) -> bool:
    return isinstance(source, list | tuple) and isinstance(
        next(iter(source), 0), Mapping
    )


@register_log_format(
    "stream",
    label="a stream of Arrow batches",
    accepts=lambda x: hasattr(x, "__arrow_c_stream__"),
)
def open_stream(source: Any) -> StreamSource:
    """Keep what an object gives that speaks Arrow: a reader, a DuckDB relation."""
    # Of DuckDB: batches of the size that is asked for.
    if hasattr(source, "to_arrow_reader"):
        return StreamSource(source.to_arrow_reader(BATCH_ROWS))
    return StreamSource(pa.RecordBatchReader.from_stream(source))


@register_log_format(
    "lazy frame",
    label="a Polars LazyFrame",
    accepts=lambda x: hasattr(x, "collect_batches"),
)
def open_lazy_frame(source: Any) -> StreamSource:
    """Keep the rows of a Polars LazyFrame, which Polars computes part by part."""
    empty = pa.table(source.clear().collect())
    parts = source.collect_batches(chunk_size=BATCH_ROWS, maintain_order=True)
    batches = (
        batch
        for part in parts
        for batch in pa.table(part).cast(empty.schema).to_batches()
    )
    return StreamSource(pa.RecordBatchReader.from_batches(empty.schema, batches))


@register_log_format(
    "dataset",
    label="a pyarrow dataset",
    accepts=lambda source: hasattr(source, "get_fragments"),
)
def open_dataset(source: Any) -> StreamSource:
    """Keep the rows of a `pyarrow.dataset.Dataset`."""
    ahead = {"batch_readahead": 1, "fragment_readahead": 1}
    return StreamSource(source.scanner(batch_size=BATCH_ROWS, **ahead).to_reader())


@register_log_format("rows", label="a list of mappings", accepts=_are_rows)
def open_rows(source: Any) -> TableSource:
    """The table of a list of mappings; what a row lacks is missing there."""
    names = dict.fromkeys(str(name) for row in source for name in row)
    try:
        columns = {name: pa.array([row.get(name) for row in source]) for name in names}
    except (pa.ArrowException, TypeError, AttributeError) as error:
        raise InputError(f"source: the rows cannot be read: {error}") from None
    return TableSource(flattened(pa.table(columns)), "rows")


@register_log_format(
    "table", label="an Arrow table, a pandas or Polars frame", accepts=_is_table
)
def open_table(source: Any) -> TableSource:
    """The table behind an Arrow table, a record batch or a frame."""
    if isinstance(source, pa.Table | pa.RecordBatch):
        return TableSource(pa.table(source))
    if _library(source) != "pandas":
        return TableSource(pa.table(source), "frame")
    require_usable_names("frame", [str(name) for name in source.columns])
    try:
        return TableSource(pa.Table.from_pandas(source, preserve_index=False), "frame")
    except (pa.ArrowException, TypeError, ValueError) as error:
        # A column holds values of several types.
        raise InputError(
            f"source: the frame cannot be read: {' '.join(map(str, error.args))}"
        ) from None


CELLS_AT_ONCE = 4_000_000
"""Numbers (32 MB) in the features of a batch of rounds."""
NEEDED = ("n_rounds", "n_actions", "context", "action", "reward")


def cross_features(context: Array, kinds: Array) -> Array:
    """φ(x, a) = [a, x ⊗ a] of every context x (n, d) and action a (K, e), of shape (n, K, e·(1 + d))."""
    n, (K, e) = len(context), kinds.shape
    crossed = context[:, None, :, None] * kinds[None, :, None, :]
    return np.concatenate(
        [np.broadcast_to(kinds, (n, K, e)), crossed.reshape(n, K, -1)], axis=2
    )


LOADER = "obtain_batch_bandit_feedback"
"""What obp's datasets have, such as that of the Open Bandit Dataset: it returns a feedback dictionary."""


def _is_obp(source: Any) -> bool:
    return isinstance(source, Mapping) or hasattr(source, LOADER)


@register_log_format("obp", label="an obp feedback dictionary", accepts=_is_obp)
class ObpSource(Source):
    """Rounds of a feedback dictionary, expanded to offered actions a batch at a time.

    Parameters
    ----------
    feedback : mapping, or a dataset of obp, which is asked for one
        n_rounds (n) and n_actions (K), whole numbers; context (n, d); action and reward (n,); where it has
        them, action_context (K, e), pscore and position (n,).
    """

    in_files = False

    def __init__(self, feedback: Any) -> None:
        feedback = getattr(feedback, LOADER, lambda: feedback)()
        missing = [name for name in NEEDED if name not in feedback]
        if missing:
            keys = ", ".join(map(str, feedback))
            raise InputError(
                f"feedback lacks {', '.join(missing)}; got the keys {keys}"
            )
        self.rounds = whole_number("n_rounds", feedback["n_rounds"], 1)
        actions = whole_number("n_actions", feedback["n_actions"], 1)
        self.context = finite_array("context", feedback["context"], (self.rounds, "d"))
        kinds = feedback.get("action_context")
        kinds = np.eye(actions) if kinds is None else kinds
        self.kinds = finite_array("action_context", kinds, (actions, "e"))
        self.columns = self._per_round(feedback)
        names = {"propensity": "pscore", "position": "position"}
        roles: dict[str, Any] = {
            role: name for role, name in names.items() if name in self.columns
        }
        self.schema = Schema("reward", offered="offered", action="action", **roles)
        self.width = self.kinds.shape[1] * (1 + self.context.shape[1])
        self.tasks = (Task("feedback", 0, 0, 0),)
        self.total_rows = self.rounds
        self.arrow_schema = self._batch(slice(0, 1), [*self.columns, "offered"]).schema

    def _per_round(self, feedback: Mapping[str, Any]) -> dict[str, Array]:
        """Columns with one value per round."""
        names = ("action", "reward", "pscore", "position")
        columns = {
            name: np.asarray(feedback[name])
            for name in names
            if feedback.get(name) is not None
        }
        columns["reward"] = columns["reward"].astype(float)
        for name, column in columns.items():
            if column.shape != (self.rounds,):
                raise InputError(
                    f"{name} must have shape ({self.rounds},), got {column.shape}"
                )
        return columns

    def batches(self, task: Task, columns: Sequence[str]) -> Batches:
        """Batches of rounds."""
        size = max(1, CELLS_AT_ONCE // (len(self.kinds) * self.width))
        for row in range(0, self.rounds, size):
            yield row, self._batch(slice(row, min(row + size, self.rounds)), columns)

    def _batch(self, rows: slice, columns: Sequence[str]) -> Any:
        arrays = {
            name: pa.array(self.columns[name][rows])
            for name in columns
            if name != "offered"
        }
        if "offered" in columns:
            features = cross_features(self.context[rows], self.kinds)
            vectors = pa.FixedSizeListArray.from_arrays(
                pa.array(features.reshape(-1)), self.width
            )
            arrays["offered"] = pa.FixedSizeListArray.from_arrays(
                vectors, len(self.kinds)
            )
        return pa.RecordBatch.from_arrays(
            [arrays[name] for name in columns], list(columns)
        )
