"""Input of a decision: mappings, lists of rows and frames as columns with one value per action."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from invariant_bandits.checks import InputError, format_names

FORMS = "a mapping of columns, a list of rows (mappings), or a frame"


def offered_columns(
    context: Any = None, actions: Any = None, *, vectors: Collection[str] = ()
) -> dict[str, list[Any]]:
    """Columns with one value per offered action, all of the same length.

    Parameters
    ----------
    context : mapping of str to value, optional
        What all actions share: one value per column. Lists are taken as one value per action.
    actions : mapping of str to list, list of mappings, or frame, optional
        What differs from action to action.
    vectors : names of columns whose values are themselves lists of numbers.

    >>> offered_columns({"hour": 9}, [{"price": 2.0}, {"price": 3.0}])
    {'hour': [9, 9], 'price': [2.0, 3.0]}
    >>> offered_columns({"hour": 9, "price": [2.0, 3.0]})
    {'hour': [9, 9], 'price': [2.0, 3.0]}
    """
    columns = {**_columns(_row(context), "context"), **_columns(actions, "actions")}
    masked = [name for name, value in columns.items() if _is_masked(value)]
    if masked:
        raise InputError(
            f"column {masked[0]!r} has masked entries: give None for what is missing"
        )
    several = {
        name: value
        for name, value in columns.items()
        if _is_many(value, name in vectors)
    }
    lengths = {name: len(value) for name, value in several.items()}
    if len(set(lengths.values())) > 1:
        raise InputError(
            f"columns must have one value per action, or one for all, got lengths {lengths}"
        )
    count = next(iter(lengths.values()), 1)
    if not columns or not count:
        raise InputError(f"nothing is offered: give {FORMS}")
    return {
        name: list(value) if name in several else [value] * count
        for name, value in columns.items()
    }


def require_columns(name: str, needed: Sequence[str], there: Collection[str]) -> None:
    """Raise InputError, which begins with the argument's name, unless all needed columns are there."""
    missing = [column for column in needed if column not in there]
    if missing:
        raise InputError(
            f"{name}: no value for {format_names(missing)}; needed: {format_names(needed)}"
        )


def one_context(context: Any) -> dict[str, Any]:
    """One value per column of a context: a mapping, a row of a frame, or a frame of one row."""
    context = _row(context)
    columns = _columns(context, "context")
    if isinstance(context, Mapping) or context is None:
        return columns
    if any(len(values) != 1 for values in columns.values()):
        raise InputError(
            "context must be one row: a mapping of columns to values, or a frame of one row"
        )
    return {name: values[0] for name, values in columns.items()}


def rows_of(contexts: Any) -> list[dict[str, Any]]:
    """Rows of a frame, of columns, or of a list of rows."""
    columns = _columns(contexts, "contexts")
    count = len(next(iter(columns.values()), ()))
    return [
        {name: values[row] for name, values in columns.items()} for row in range(count)
    ]


def like(frame: Any, columns: dict[str, list[Any]], otherwise: Any) -> Any:
    """Columns as a frame of the same kind as `frame`, or `otherwise` if that is not a frame."""
    if isinstance(frame, Mapping | Sequence):
        return otherwise
    if hasattr(frame, "column_names"):
        return type(frame).from_pydict(columns)
    index = {"index": frame.index} if hasattr(frame, "index") else {}
    return type(frame)(columns, **index)


def plain(value: Any) -> Any:
    """Return a value, or values, as numbers, text, booleans, None and lists of these: what can be written."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return (
        [plain(entry) for entry in value] if isinstance(value, list | tuple) else value
    )


def _row(source: Any) -> Any:
    """Return a row of a frame (a Series, a named tuple) as a mapping; any other value as it is."""
    if hasattr(source, "_asdict"):
        return source._asdict()
    is_series = (
        hasattr(source, "to_dict")
        and hasattr(source, "index")
        and not hasattr(source, "columns")
    )
    return source.to_dict() if is_series else source


def _columns(source: Any, name: str) -> dict[str, Any]:
    """Return columns from a mapping, a frame, an Arrow table or a list of rows."""
    if source is None:
        return {}
    if isinstance(source, Mapping):
        return {str(key): value for key, value in source.items()}
    if hasattr(source, "column_names"):  # Arrow
        return {key: source.column(key).to_pylist() for key in source.column_names}
    if hasattr(source, "columns"):  # pandas, polars
        return {str(key): source[key].to_numpy().tolist() for key in source.columns}
    if isinstance(source, Sequence) and not isinstance(source, str | bytes):
        return _of_rows(source, name)
    raise InputError(f"{name} must be {FORMS}, got {type(source).__name__}")


def _of_rows(rows: Sequence[Any], name: str) -> dict[str, Any]:
    if not all(isinstance(row, Mapping) for row in rows):
        raise InputError(f"{name} must be {FORMS}")
    keys = list(dict.fromkeys(str(key) for row in rows for key in row))
    for index, row in enumerate(rows):
        lacking = [key for key in keys if key not in row]
        if lacking:
            raise InputError(
                f"{name}: row {index} lacks {', '.join(lacking)}, which other rows have"
            )
    return {key: [row[key] for row in rows] for key in keys}


def _is_masked(value: Any) -> bool:
    """Whether a column, or one of its values, is a masked array."""
    entries = value if isinstance(value, list | tuple) else (value,)
    return any(isinstance(entry, np.ma.MaskedArray) for entry in entries)


def _is_many(value: Any, is_vector: bool) -> bool:
    """Whether a value of a column is one per action, not one for all."""
    has_several = (
        hasattr(value, "__len__")
        and hasattr(value, "__iter__")
        and getattr(value, "ndim", 1) > 0
    )
    if isinstance(value, str | bytes | Mapping) or not has_several:
        return False
    return not is_vector or (len(value) > 0 and not np.isscalar(value[0]))
