"""Contextual bandits that remember what lasts and relearn what changed.

The public names live here and are imported when first used, so that importing the package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from invariant_bandits.checks import InputError as InputError
    from invariant_bandits.confidence import logs_needed as logs_needed
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
    from invariant_bandits.evaluation.comparison import compare as compare
    from invariant_bandits.evaluation.feedback import Feedback as Feedback
    from invariant_bandits.evaluation.logged import read_feedback as read_feedback
    from invariant_bandits.evaluation.rolling import rolling_origins as rolling_origins
    from invariant_bandits.features import FeatureMap as FeatureMap
    from invariant_bandits.features import FeatureOptions as FeatureOptions
    from invariant_bandits.files import FileError as FileError
    from invariant_bandits.fitting import fit_logs as fit_logs
    from invariant_bandits.logs.reading import read_moments as read_moments
    from invariant_bandits.logs.reading import read_rounds as read_rounds
    from invariant_bandits.logs.schema import Schema as Schema
    from invariant_bandits.model import Model as Model
    from invariant_bandits.moments import WindowedMoments as WindowedMoments
    from invariant_bandits.policies.auto import AutoISD as AutoISD
    from invariant_bandits.policies.bandit_over_bandit import BOBLinUCB as BOBLinUCB
    from invariant_bandits.policies.base import Policy as Policy
    from invariant_bandits.policies.base import Scores as Scores
    from invariant_bandits.policies.baselines import DisjointLinUCB as DisjointLinUCB
    from invariant_bandits.policies.baselines import EpsilonGreedy as EpsilonGreedy
    from invariant_bandits.policies.baselines import Greedy as Greedy
    from invariant_bandits.policies.baselines import Uniform as Uniform
    from invariant_bandits.policies.isd import ISDLinTS as ISDLinTS
    from invariant_bandits.policies.isd import ISDLinUCB as ISDLinUCB
    from invariant_bandits.policies.isd import RecomputeWarning as RecomputeWarning
    from invariant_bandits.policies.linear import DLinUCB as DLinUCB
    from invariant_bandits.policies.linear import LinUCB as LinUCB
    from invariant_bandits.policies.linear import RestartLinUCB as RestartLinUCB
    from invariant_bandits.policies.linear import SWLinUCB as SWLinUCB
    from invariant_bandits.policies.memory import Discount as Discount
    from invariant_bandits.policies.memory import Forever as Forever
    from invariant_bandits.policies.memory import Restart as Restart
    from invariant_bandits.policies.memory import SlidingWindow as SlidingWindow
    from invariant_bandits.policies.state import load as load
    from invariant_bandits.policies.state import save as save
    from invariant_bandits.policies.thompson import LinTS as LinTS
    from invariant_bandits.prior import DriftPrior as DriftPrior
    from invariant_bandits.results import SimulationResult as SimulationResult
    from invariant_bandits.simulation import simulate as simulate

__version__ = "0.1.0"

_HOMES = {
    "AutoISD": "policies.auto",
    "BOBLinUCB": "policies.bandit_over_bandit",
    "ConvergenceWarning": "decomposition.joint_diagonalization",
    "DLinUCB": "policies.linear",
    "Discount": "policies.memory",
    "DisjointLinUCB": "policies.baselines",
    "DriftPrior": "prior",
    "EpsilonGreedy": "policies.baselines",
    "FeatureMap": "features",
    "FeatureOptions": "features",
    "Feedback": "evaluation.feedback",
    "FileError": "files",
    "Forever": "policies.memory",
    "Greedy": "policies.baselines",
    "ISDLinTS": "policies.isd",
    "ISDLinUCB": "policies.isd",
    "InputError": "checks",
    "InvariantSubspaceDecomposition": "decomposition.estimator",
    "LinTS": "policies.thompson",
    "LinUCB": "policies.linear",
    "Model": "model",
    "Policy": "policies.base",
    "RecomputeWarning": "policies.isd",
    "Restart": "policies.memory",
    "RestartLinUCB": "policies.linear",
    "SWLinUCB": "policies.linear",
    "Schema": "logs.schema",
    "Scores": "policies.base",
    "SimulationResult": "results",
    "SlidingWindow": "policies.memory",
    "Split": "decomposition.split",
    "Uniform": "policies.baselines",
    "WindowedMoments": "moments",
    "compare": "evaluation.comparison",
    "fit_logs": "fitting",
    "joint_diagonalize": "decomposition.joint_diagonalization",
    "load": "policies.state",
    "logs_needed": "confidence",
    "read_feedback": "evaluation.logged",
    "read_moments": "logs.reading",
    "read_rounds": "logs.reading",
    "rolling_origins": "evaluation.rolling",
    "save": "policies.state",
    "simulate": "simulation",
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
