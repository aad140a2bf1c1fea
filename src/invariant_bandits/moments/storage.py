"""Moments as the content of a checked file, and back. The names of the arrays are the format: they do not change."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from invariant_bandits import files
from invariant_bandits.checks import Array, InputError, whole_number
from invariant_bandits.description import Description, Numbers, increasing, prefixed
from invariant_bandits.moments.power_sums import PowerSums

if TYPE_CHECKING:
    from invariant_bandits.moments.windowed import WindowedMoments

KIND = "windowed-moments"
TIMES = re.compile(r"datetime64\[(Y|M|W|D|h|m|s|ms|us|ns)\]")


def named_arrays(moments: WindowedMoments) -> dict[str, Array]:
    """All sums by name: chosen.count, chosen.mean, … and offered.count, … where there are offered actions."""
    arrays = {f"chosen.{name}": array for name, array in moments.chosen.arrays().items()}
    if moments.offered is not None:
        arrays |= {f"offered.{name}": array for name, array in moments.offered.arrays().items()}
    return arrays


def described_sums(windows: int | str, dim: str, *, offered: bool, prefix: str = "") -> Description:
    """What the arrays of moments must be, by the names of `named_arrays` after a prefix, for sizes as in `Numbers`."""
    parts = {f"{prefix}chosen.": f"{dim}+1"} | ({f"{prefix}offered.": dim} if offered else {})
    arrays: dict[str, Numbers] = {}
    for part, width in parts.items():
        arrays |= prefixed(part, PowerSums.described(windows, width))
    return Description(arrays, laws=tuple(partial(_wrong_sums, part) for part in parts))


def _wrong_sums(part: str, arrays: Mapping[str, Array]) -> str:
    wrong = PowerSums(**files.under(arrays, part)).wrong()
    return f"{part}{wrong}" if wrong else ""


def described(about: Mapping[str, Any], names: Collection[str]) -> Description:
    """What a file of moments must hold."""
    sums = described_sums("m", "p", offered=any(name.startswith("offered.") for name in names))
    arrays, kind = dict(sums.arrays), str(about.get("edges"))
    if "edges" in names:
        if kind not in ("float64", "int64") and not TIMES.fullmatch(kind):
            raise InputError(f"edges must be numbers or datetimes, got {kind!r}")
        largest = float(2**63 - 1024)
        dtype = "float64" if kind == "float64" else "int64"
        arrays["edges"] = Numbers(("m+1",), dtype, -largest, largest, law=increasing)
    sizes = {"p": whole_number("dim", about["dim"], 1), "m": whole_number("windows", about["windows"], 1)}
    return Description(arrays, sizes=sizes, laws=sums.laws)


def encoded(moments: WindowedMoments) -> bytes:
    """The content of a file; InputError if no rounds have these moments."""
    arrays: dict[str, Any] = dict(named_arrays(moments))
    about: dict[str, Any] = {"dim": moments.dim, "windows": moments.windows, "rounds": moments.rounds}
    if moments.edges is not None:
        about["edges"] = str(moments.edges.dtype)
        arrays["edges"] = moments.edges.view("int64") if moments.edges.dtype.kind == "M" else moments.edges
    try:
        described(about, arrays).check(arrays)
    except InputError as error:
        raise InputError(f"moments cannot be stored: {error}") from None
    return files.encode(KIND, arrays, about)


def decoded(cls: type[WindowedMoments], content: bytes | bytearray, name: str) -> WindowedMoments:
    """The moments in the content of a file; `name` is for messages."""
    arrays, about = files.decode(content, KIND, name, described)
    parts: dict[str, dict[str, Array]] = {"chosen": {}, "offered": {}}
    edges = None
    for key, array in arrays.items():
        if key == "edges":
            edges = array.view(about["edges"])
        else:
            part, field = key.split(".")
            parts[part][field] = array
    offered = PowerSums(**parts["offered"]) if parts["offered"] else None
    return cls(PowerSums(**parts["chosen"]), offered, edges)
