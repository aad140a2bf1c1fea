"""What stored feature maps must be: of rows, and of labelled arms. Features are counted before any is made."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from math import prod
from typing import Any

from invariant_bandits.checks import InputError, whole_number
from invariant_bandits.description import Numbers, finite_number, prefixed, truth_value
from invariant_bandits.logs.columns import Column

MOST_FEATURES = 200_000
MOST_NUMBERS = 100_000_000
"""Of the features of all arms at once."""
LEAST_SCALE = 1e-150


def described_map(said: Any, names: Collection[str]) -> tuple[dict[str, Numbers], int]:
    """What the arrays of a FeatureMap must be that says this of itself, and how many features it expands to."""
    if not isinstance(said, Mapping) or said.keys() != {"columns", "interactions", "centre"}:
        raise InputError("features must be columns, interactions and centre")
    truth_value("centre", said["centre"])
    sizes = dict(_column_size(one) for one in _several(said["columns"], "columns"))
    products = [
        prod(sizes.get(part, 1) for part in one.split(":")) for one in texts("interactions", said["interactions"])
    ]
    total = sum(sizes.values()) + sum(products)
    if total > MOST_FEATURES:
        raise InputError(f"features must be at most {MOST_FEATURES:,}, got {total:.3g}")
    q: int | str = "q" if "kept" in names else total
    known = {
        "kept": Numbers((q,), "int64", 0, total - 1),
        "shift": Numbers((q,)),
        "scale": Numbers((q,), least=LEAST_SCALE),
    }
    return {name: one for name, one in known.items() if name in names}, total


def described_arms(said: Any, names: Collection[str]) -> dict[str, Numbers]:
    """What the arrays of ArmFeatures must be that say this of themselves."""
    needed = {"context", "labels", "coding", "crossed", "catalogue_names", "matched"}
    if not isinstance(said, Mapping) or said.keys() != needed:
        raise InputError(f"features of labelled arms must be {', '.join(sorted(needed))}")
    inside = [name.removeprefix("context.") for name in names if name.startswith("context.")]
    context, expanded = described_map(said["context"], inside)
    labels, described = texts("labels", said["labels"]), texts("catalogue_names", said["catalogue_names"])
    if not labels or len(set(labels)) < len(labels):
        raise InputError("labels must be different ones")
    crossed = whole_number("crossed", said["crossed"], 0)
    if crossed > len(described) or (crossed and "catalogue" not in names):
        raise InputError(f"crossed must be at most the {len(described)} features of the catalogue, got {crossed}")
    if not isinstance(said["matched"], Mapping):
        raise InputError("matched must be groups of features")
    for name, group in said["matched"].items():
        if len(texts(f"matched {name}", group)) != len(labels):
            raise InputError(f"matched {name!r:.80} must have a feature for each of {len(labels)} arms")
    if len(labels) ** 2 * (1 + expanded) > MOST_NUMBERS:
        raise InputError(f"{len(labels):,} arms with {expanded:,} features each are too many")
    k = len(described)
    own = {
        "catalogue": Numbers((len(labels), k)),
        "catalogue_shift": Numbers((k,)),
        "catalogue_scale": Numbers((k,), least=LEAST_SCALE),
    }
    return prefixed("context.", context) | {name: one for name, one in own.items() if name in names}


def texts(name: str, value: Any) -> Sequence[str]:
    """Return `value` if it is a list of texts, or raise."""
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
        raise InputError(f"{name} must be a list of texts, got {value!r:.80}")
    return value


def _several(value: Any, name: str) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        raise InputError(f"{name} must be a list, got {value!r:.80}")
    return value


def _column_size(said: Any) -> tuple[str, int]:
    """Name of a column and the number of its features."""
    if not isinstance(said, Mapping) or not said.keys() <= {one.name for one in fields(Column)}:
        raise InputError(f"a column must be its name and what it holds, got {said!r:.80}")
    (name,) = texts("name", [said["name"]])
    categories, width, filler = (said.get(key) for key in ("categories", "width", "filler"))
    size = 1 if width is None else whole_number("width", width, 1)
    if categories is not None:
        size = len(texts("categories", categories))
    if filler is not None:
        given = [finite_number("filler", one) for one in _several(filler, "filler")]
        if len(given) != size and (given or categories is None):
            raise InputError(f"filler of column {name!r:.80} must have {size} numbers, got {len(given)}")
    return name, size + truth_value("marks_missing", said.get("marks_missing", False))
