"""Moments as the content of a checked file, and back. The names of the arrays are the format: they do not change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from invariant_bandits import files
from invariant_bandits.checks import Array
from invariant_bandits.moments.power_sums import PowerSums

if TYPE_CHECKING:
    from invariant_bandits.moments.windowed import WindowedMoments

KIND = "windowed-moments"


def named_arrays(moments: WindowedMoments) -> dict[str, Array]:
    """All sums by name: chosen.count, chosen.mean, … and offered.count, … where there are offered actions."""
    arrays = {f"chosen.{name}": array for name, array in moments.chosen.arrays().items()}
    if moments.offered is not None:
        arrays |= {f"offered.{name}": array for name, array in moments.offered.arrays().items()}
    return arrays


def encoded(moments: WindowedMoments) -> bytes:
    """The content of a file."""
    arrays: dict[str, Any] = dict(named_arrays(moments))
    about: dict[str, Any] = {"dim": moments.dim, "windows": moments.windows, "rounds": moments.rounds}
    if moments.edges is not None:
        about["edges"] = str(moments.edges.dtype)
        arrays["edges"] = moments.edges.view("int64") if moments.edges.dtype.kind == "M" else moments.edges
    return files.encode(KIND, arrays, about)


def decoded(cls: type[WindowedMoments], content: bytes, name: str) -> WindowedMoments:
    """The moments in the content of a file; `name` is for messages."""
    arrays, about = files.decode(content, KIND, name)
    edges = None
    if "edges" in arrays:
        stored = arrays.pop("edges")
        edges = stored.view(about["edges"]) if str(about["edges"]).startswith("datetime") else stored
    parts: dict[str, dict[str, Array]] = {"chosen": {}, "offered": {}}
    for key, array in arrays.items():
        part, field = key.split(".")
        parts[part][field] = array
    offered = PowerSums(**parts["offered"]) if parts["offered"] else None
    return cls(PowerSums(**parts["chosen"]), offered, edges)
