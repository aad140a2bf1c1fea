"""JSON lines: one object per line. Objects within objects become columns such as "user.age"."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from invariant_bandits.checks import format_names
from invariant_bandits.logs.formats.registry import register_log_format
from invariant_bandits.logs.json_values import too_deep, value_of
from invariant_bandits.logs.sources import (
    Batches,
    Task,
    flattened,
    require_usable_names,
)
from invariant_bandits.logs.text_files import TextSource, first_lines
from invariant_bandits.optional import LazyModule
from invariant_bandits.optional import pyarrow as pa
from invariant_bandits.storage import FileError, flatten

arrow_json: Any = LazyModule("pyarrow.json")

DEEPEST = 16
"""How deep objects may stand within objects."""


@register_log_format(
    "json", label="JSON lines", suffixes=(".jsonl", ".ndjson", ".json"), packed=True
)
@dataclass
class JsonLinesSource(TextSource):
    """One JSON object per line.

    Types are those of the first lines. A line that is not an object is skipped and counted. A value of
    another type than the others of its column makes its block text, so that it costs its row only. A column
    that a file lacks is missing there.
    """

    _nested: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._nested = _seen_schema(self.paths[0])
        for path in self.paths[1:]:
            self._nested = _both(path, self._nested, _seen_schema(path))
        self.arrow_schema = _flat(self._nested)
        require_usable_names(self.paths[0], self.arrow_schema.names)

    def batches(self, task: Task, columns: Sequence[str]) -> Batches:
        """Batches of one file, or of a part of it."""

        def parse(block: bytes, wanted: Any) -> tuple[Any, Any, list[int]]:
            table, wanted, bad = _parsed(
                block, wanted or as_written(_only(self._nested, columns))
            )
            return table.select(list(columns)).combine_chunks(), wanted, bad

        return self.parsed_batches(task, parse, quoted=False)

    def skipped(self, task: Task) -> Mapping[str, Sequence[int]]:
        """Return the lines that are not JSON objects."""
        return {"line that is no JSON object": self.unparsed_rows(task)}


def _seen_schema(path: str) -> Any:
    """Names and types in the first lines of a file, objects as structs."""
    sample = first_lines(path)
    start = sample.lstrip()[:1]
    if start == b"[":
        raise FileError(
            f"{path} is one JSON array; what is needed is one object per line (JSON lines)"
        )
    if start != b"{":
        why = "it does not begin with a JSON object" if start else "it is empty"
        raise FileError(f"{path} is not readable: {why}")
    too_nested = f"{path} has objects within objects, deeper than {DEEPEST}: that is not a log of rows"
    try:
        schema = read_json(sample, None, others="infer").schema
        if max(map(depth_of, schema.types), default=0) > DEEPEST:
            raise FileError(too_nested)
        return schema
    except pa.ArrowInvalid:
        objects = [flatten(row) for row in _objects(sample) if row is not None]
    if not objects and too_deep(sample):
        raise FileError(too_nested)
    if not objects:
        raise FileError(
            f"{path} is not readable: none of its first lines is a JSON object"
        )
    names = dict.fromkeys(name for row in objects for name in row)
    return pa.schema(
        [(name, _usual_type([row.get(name) for row in objects])) for name in names]
    )


def depth_of(kind: Any) -> int:
    """How deep objects and lists stand within one another; counted to just above DEEPEST."""
    depth = 0
    inside = [kind]
    while inside and depth <= DEEPEST:
        fields = [
            [nested.field(index).type for index in range(nested.num_fields)]
            for nested in inside
        ]
        inside = [nested for several in fields for nested in several]
        depth += bool(inside)
    return depth


def _both(path: str, known: Any, more: Any) -> Any:
    """Return the schema of the files before, with what one more file has.

    FileError if they have nothing in common.
    """
    if not set(known.names) & set(more.names):
        names = format_names(list(known.names))
        raise FileError(f"{path} has none of the columns of the files before: {names}")
    fields = []
    for column in known:
        other = more.field(column.name) if column.name in more.names else column
        both = [pa.schema([column]), pa.schema([other])]
        with suppress(pa.ArrowInvalid, pa.ArrowTypeError):
            column = pa.unify_schemas(both, promote_options="permissive").field(0)
        fields.append(column)
    return pa.schema(
        [*fields, *(column for column in more if column.name not in known.names)]
    )


def _usual_type(values: Sequence[Any]) -> Any:
    """The type of at least nine in ten values, text if there is none."""
    present = [value for value in values if value is not None]
    numbers = [value for value in present if isinstance(value, int | float)]
    if len(numbers) < len(present) and len(numbers) >= 0.9 * len(present):
        return pa.float64()
    try:
        return pa.array(present).type
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.string()


def _flat(schema: Any) -> Any:
    """The schema with the fields of objects as columns of their own; what was always missing is text."""
    flat = flattened(schema.empty_table()).schema
    return pa.schema(
        [c.with_type(pa.string()) if pa.types.is_null(c.type) else c for c in flat]
    )


def _only(schema: Any, columns: Sequence[str]) -> Any:
    """The part of a nested schema that holds these flat columns."""
    return pa.schema(
        [
            c
            for c in schema
            if any(f"{name}.".startswith(f"{c.name}.") for name in columns)
        ]
    )


def _with_types(schema: Any, changed: Any) -> Any:
    """The schema with every type that is not a struct replaced by what `changed` makes of it."""

    def inside(kind: Any) -> Any:
        if not pa.types.is_struct(kind):
            return changed(kind)
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return pa.struct([nested.with_type(inside(nested.type)) for nested in fields])

    return pa.schema([column.with_type(inside(column.type)) for column in schema])


def as_written(schema: Any) -> Any:
    """Times as the text that they are in JSON; columns that were always missing are text as well."""
    of = pa.types
    return _with_types(
        schema, lambda a: pa.string() if of.is_timestamp(a) or of.is_null(a) else a
    )


def _parsed(block: bytes, wanted: Any) -> tuple[Any, Any, list[int]]:
    """(flat table, what to expect of the next block, skipped lines) of a block."""
    wider = _with_types(
        wanted, lambda kind: pa.float64() if pa.types.is_integer(kind) else kind
    )
    for schema in (wanted, wider):
        with suppress(pa.ArrowInvalid):
            return flattened(read_json(block, schema)), schema, []
    objects = _objects(block)
    bad = [line for line, entry in enumerate(objects) if entry is None]
    rows = [flatten(entry) for entry in objects if entry is not None]
    kinds = {entry.name: entry.type for entry in _flat(wanted)}
    arrays = {
        name: _fitting([row.get(name) for row in rows], kind)
        for name, kind in kinds.items()
    }
    return pa.table(arrays), wanted, bad


def read_json(text: bytes, schema: Any, others: str = "ignore") -> Any:
    """Return a table of whole lines.

    `others` says what becomes of fields that are not in the schema: "ignore" or "infer".
    """
    if too_deep(text):
        raise pa.ArrowInvalid("lists and objects stand too deep within one another")
    reading = arrow_json.ReadOptions(use_threads=False, block_size=len(text) + 1)
    parsing = arrow_json.ParseOptions(
        explicit_schema=schema, unexpected_field_behavior=others
    )
    return arrow_json.read_json(pa.BufferReader(text), reading, parsing)


def _objects(text: bytes) -> list[dict[str, Any] | None]:
    """One object per line that is not empty, None where a line is none."""
    objects: list[dict[str, Any] | None] = []
    for line in filter(bytes.strip, text.splitlines()):
        objects.append(None)
        with suppress(ValueError):
            value = value_of(line)
            objects[-1] = value if isinstance(value, dict) else None
    return objects


def _fitting(values: list[Any], kind: Any) -> Any:
    """The values as an array of this type, or as text if one of them has another."""
    try:
        return pa.array(values, type=kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        words = [
            value if value is None or isinstance(value, str) else json.dumps(value)
            for value in values
        ]
        return pa.array(words, type=pa.string())
