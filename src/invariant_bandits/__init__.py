"""Contextual bandits that remember what lasts and relearn what changed.

The public names are listed in `__init__.pyi` and imported when first used, so that importing the package
costs next to nothing.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

from invariant_bandits.version import __version__ as __version__

_LISTED = re.compile(r"^from (\S+) import \(?\s*(\w+) as \2,?\s*\)?$", re.MULTILINE)
_HOMES = {
    name: home
    for home, name in _LISTED.findall(Path(__file__).with_suffix(".pyi").read_text())
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
