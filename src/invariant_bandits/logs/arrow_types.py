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
