"""What an Arrow type holds: numbers, times, text or lists."""

from __future__ import annotations

from typing import Any


def is_number(kind: Any) -> bool:
    """Whether an Arrow type is a number or a truth value."""
    from pyarrow import types

    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind))


def is_time(kind: Any) -> bool:
    """Whether an Arrow type is a timestamp or a date."""
    from pyarrow import types

    return bool(types.is_timestamp(kind) or types.is_date(kind))


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is text, or a dictionary of text."""
    from pyarrow import types

    if types.is_dictionary(kind):
        return is_text(kind.value_type)
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def is_list(kind: Any) -> bool:
    """Whether an Arrow type is a list of any form."""
    from pyarrow import types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def is_vector(kind: Any) -> bool:
    """Whether an Arrow type is a list of numbers."""
    return is_list(kind) and is_number(kind.value_type)


def without_views(kind: Any) -> Any:
    """The type with plain text instead of string views, which most of Arrow's functions do not know."""
    import pyarrow as pa

    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, without_views(kind.value_type), kind.ordered)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = without_views(kind.value_type)
        return kind if inner == kind.value_type else pa.list_(inner)
    return kind


def schema_without_views(schema: Any) -> Any:
    """The schema with plain text instead of string views."""
    import pyarrow as pa

    return pa.schema([one.with_type(without_views(one.type)) for one in schema])


def batch_without_views(batch: Any) -> Any:
    """The record batch with plain text instead of string views."""
    import pyarrow as pa

    wanted = schema_without_views(batch.schema)
    if wanted == batch.schema:
        return batch
    columns = [_plain(batch.column(index), one.type) for index, one in enumerate(wanted)]
    return pa.RecordBatch.from_arrays(columns, names=wanted.names)


def _plain(column: Any, kind: Any) -> Any:
    import pyarrow as pa

    if column.type == kind:
        return column
    if pa.types.is_dictionary(kind):
        return pa.DictionaryArray.from_arrays(column.indices, column.dictionary.cast(kind.value_type))
    return column.cast(kind)
