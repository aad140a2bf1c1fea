"""The public names: type checkers read them here, and the package imports each when it is first used."""

from . import evaluation as evaluation
from . import simulation as simulation
from .checks import InputError as InputError
from .decomposition.drift_prior import DriftPrior as DriftPrior
from .decomposition.estimator import (
    InvariantSubspaceDecomposition as InvariantSubspaceDecomposition,
)
from .decomposition.joint_diagonalization import joint_diagonalize as joint_diagonalize
from .decomposition.split import Split as Split
from .evaluation.comparison import compare as compare
from .evaluation.estimators import register_estimator as register_estimator
from .evaluation.logged import value_of_logged as value_of_logged
from .features.maps import FeatureMap as FeatureMap
from .features.maps import FeatureOptions as FeatureOptions
from .logs.formats.registry import register_log_format as register_log_format
from .logs.log import Log as Log
from .logs.log import open_log as open_log
from .logs.schema import Schema as Schema
from .model.decisions import Decision as Decision
from .model.fit import fit_logs as fit_logs
from .model.model import Model as Model
from .model.model import load as load
from .model.model import save as save
from .moments.windowed import WindowedMoments as WindowedMoments
from .policies.auto import AutoISD as AutoISD
from .policies.base import BasePolicy as BasePolicy
from .policies.base import Option as Option
from .policies.base import Scores as Scores
from .policies.baselines import DisjointLinUCB as DisjointLinUCB
from .policies.baselines import EpsilonGreedy as EpsilonGreedy
from .policies.baselines import Frozen as Frozen
from .policies.baselines import Greedy as Greedy
from .policies.baselines import Uniform as Uniform
from .policies.choice import Choice as Choice
from .policies.choice import Policy as Policy
from .policies.guarded import Guarded as Guarded
from .policies.isd import ISDLinTS as ISDLinTS
from .policies.isd import ISDLinUCB as ISDLinUCB
from .policies.linear import DLinUCB as DLinUCB
from .policies.linear import LinTS as LinTS
from .policies.linear import LinUCB as LinUCB
from .policies.linear import RestartLinUCB as RestartLinUCB
from .policies.linear import SWLinUCB as SWLinUCB
from .policies.memory import Discount as Discount
from .policies.memory import Forever as Forever
from .policies.memory import Restart as Restart
from .policies.memory import SlidingWindow as SlidingWindow
from .policies.past import Past as Past
from .policies.radii import logs_needed as logs_needed
from .policies.randomised import Randomised as Randomised
from .policies.registry import register_policy as register_policy
from .simulation.episodes import register_environment as register_environment
from .simulation.loop import SimulationResult as SimulationResult
from .simulation.loop import simulate as simulate
from .storage import FileError as FileError

__version__: str
