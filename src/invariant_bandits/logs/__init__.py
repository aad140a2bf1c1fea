"""Logs as people have them (Parquet, CSV, frames) → moments per window and rounds, with what was wrong counted.

The names are imported when first used; pyarrow is needed for all of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from invariant_bandits.logs.quality import QualityReport as QualityReport
    from invariant_bandits.logs.reading import LogMoments as LogMoments
    from invariant_bandits.logs.reading import read_feature_map as read_feature_map
    from invariant_bandits.logs.reading import read_moments as read_moments
    from invariant_bandits.logs.reading import read_rounds as read_rounds
    from invariant_bandits.logs.reading import read_schema as read_schema
    from invariant_bandits.logs.rounds import Rounds as Rounds
    from invariant_bandits.logs.schema import Schema as Schema
    from invariant_bandits.logs.schema import infer_schema as infer_schema

_HOMES = {
    "LogMoments": "reading",
    "QualityReport": "quality",
    "Rounds": "rounds",
    "Schema": "schema",
    "infer_schema": "schema",
    "read_feature_map": "reading",
    "read_moments": "reading",
    "read_rounds": "reading",
    "read_schema": "reading",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
