"""Contextual bandits that remember what lasts and relearn what changed.

The public names live here and are imported when first used, so that importing the package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from invariant_bandits.checks import InputError as InputError
    from invariant_bandits.decomposition.estimator import (
        InvariantSubspaceDecomposition as InvariantSubspaceDecomposition,
    )
    from invariant_bandits.decomposition.joint_diagonalization import (
        ConvergenceWarning as ConvergenceWarning,
    )
    from invariant_bandits.decomposition.joint_diagonalization import (
        joint_diagonalize as joint_diagonalize,
    )
    from invariant_bandits.decomposition.split import Split as Split
    from invariant_bandits.files import FileError as FileError
    from invariant_bandits.moments import WindowedMoments as WindowedMoments

__version__ = "0.1.0"

_HOMES = {
    "ConvergenceWarning": "decomposition.joint_diagonalization",
    "FileError": "files",
    "InputError": "checks",
    "InvariantSubspaceDecomposition": "decomposition.estimator",
    "Split": "decomposition.split",
    "WindowedMoments": "moments",
    "joint_diagonalize": "decomposition.joint_diagonalization",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
