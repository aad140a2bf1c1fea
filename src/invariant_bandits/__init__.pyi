"""The public names: type checkers read them here, and the package imports each when it is first used."""

from invariant_bandits.checks import InputError as InputError
from invariant_bandits.decomposition.arm_statistics import (
    ArmStatistics as ArmStatistics,
)
from invariant_bandits.decomposition.drift_prior import DriftPrior as DriftPrior
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
from invariant_bandits.evaluation.estimators import (
    register_estimator as register_estimator,
)
from invariant_bandits.evaluation.logged import read_feedback as read_feedback
from invariant_bandits.evaluation.logged import value_of_logged as value_of_logged
from invariant_bandits.logs.feature_maps import FeatureMap as FeatureMap
from invariant_bandits.logs.feature_maps import FeatureOptions as FeatureOptions
from invariant_bandits.logs.feedback import Feedback as Feedback
from invariant_bandits.logs.formats.registry import (
    register_log_format as register_log_format,
)
from invariant_bandits.logs.log import Log as Log
from invariant_bandits.logs.log import open_log as open_log
from invariant_bandits.logs.read import read_moments as read_moments
from invariant_bandits.logs.read import read_rounds as read_rounds
from invariant_bandits.logs.schema import Schema as Schema
from invariant_bandits.model.decisions import Decision as Decision
from invariant_bandits.model.fit import fit_logs as fit_logs
from invariant_bandits.model.model import Model as Model
from invariant_bandits.model.model import load as load
from invariant_bandits.model.model import save as save
from invariant_bandits.moments.windowed import WindowedMoments as WindowedMoments
from invariant_bandits.policies.auto import AutoISD as AutoISD
from invariant_bandits.policies.base import Policy as Policy
from invariant_bandits.policies.base import Scores as Scores
from invariant_bandits.policies.baselines import DisjointLinUCB as DisjointLinUCB
from invariant_bandits.policies.baselines import EpsilonGreedy as EpsilonGreedy
from invariant_bandits.policies.baselines import Frozen as Frozen
from invariant_bandits.policies.baselines import Greedy as Greedy
from invariant_bandits.policies.baselines import Uniform as Uniform
from invariant_bandits.policies.isd import ISDLinTS as ISDLinTS
from invariant_bandits.policies.isd import ISDLinUCB as ISDLinUCB
from invariant_bandits.policies.isd import RecomputeWarning as RecomputeWarning
from invariant_bandits.policies.linear import DLinUCB as DLinUCB
from invariant_bandits.policies.linear import LinTS as LinTS
from invariant_bandits.policies.linear import LinUCB as LinUCB
from invariant_bandits.policies.linear import RestartLinUCB as RestartLinUCB
from invariant_bandits.policies.linear import SWLinUCB as SWLinUCB
from invariant_bandits.policies.memory import Discount as Discount
from invariant_bandits.policies.memory import Forever as Forever
from invariant_bandits.policies.memory import Restart as Restart
from invariant_bandits.policies.memory import SlidingWindow as SlidingWindow
from invariant_bandits.policies.past import Past as Past
from invariant_bandits.policies.radii import logs_needed as logs_needed
from invariant_bandits.policies.randomised import Randomised as Randomised
from invariant_bandits.policies.registry import Contender as Contender
from invariant_bandits.policies.registry import register_policy as register_policy
from invariant_bandits.simulation.episodes import Environment as Environment
from invariant_bandits.simulation.episodes import Episode as Episode
from invariant_bandits.simulation.episodes import PaperEpisodes as PaperEpisodes
from invariant_bandits.simulation.episodes import (
    register_environment as register_environment,
)
from invariant_bandits.simulation.labelled_arms import LabelledArms as LabelledArms
from invariant_bandits.simulation.loop import SimulationResult as SimulationResult
from invariant_bandits.simulation.loop import simulate as simulate
from invariant_bandits.simulation.paper import PaperWorld as PaperWorld
from invariant_bandits.storage import FileError as FileError

__version__: str
from invariant_bandits.model.update import Update as Update
from invariant_bandits.model.update import update_model as update_model
