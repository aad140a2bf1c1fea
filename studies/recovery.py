"""Does the offline phase find the planted split? One repetition of the paper's simulated logs, measured."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, field

import numpy as np

from invariant_bandits.checks import InputError
from invariant_bandits.decomposition.estimator import InvariantSubspaceDecomposition
from invariant_bandits.decomposition.joint_diagonalization import ConvergenceWarning
from invariant_bandits.moments.windowed import WindowedMoments
from invariant_bandits.simulation.paper import LoggedRounds, PaperWorld

LOGGED_ROUNDS = (1000, 3500, 8000)
REFUSED = (-1, -1)


@dataclass(frozen=True)
class Setting:
    """One way to generate and to read logs."""

    name: str
    rounds: int
    world: PaperWorld = field(default_factory=PaperWorld)
    windows: int = 8
    covariances: str = "offered"


@dataclass(frozen=True)
class Recovery:
    """How one fit compares with the truth behind its logs; a refused one found REFUSED and nothing of the component."""

    planted: tuple[int, int]
    found: tuple[int, int]
    projection_error: float
    component_error: float
    block_sizes: tuple[int, ...]
    seconds: float
    converged: bool

    @property
    def right(self) -> bool:
        """Both dimensions as planted."""
        return self.found == self.planted

    @property
    def refused(self) -> bool:
        """The logs were called collinear: the generator now and then draws a block that is singular to rounding."""
        return self.found == REFUSED

    @property
    def overestimates_invariance(self) -> bool:
        """The dangerous error: something that moves was called stable."""
        return self.found[0] > self.planted[0]


def draw(setting: Setting, seed: tuple[int, ...]) -> tuple[LoggedRounds, WindowedMoments]:
    """The logs of one repetition, and their moments."""
    logs = setting.world.log(setting.rounds, np.random.default_rng(seed))
    moments = WindowedMoments.from_arrays(logs.features, logs.rewards, windows=setting.windows, offered=logs.offered)
    return logs, moments


def recover(setting: Setting, seed: tuple[int, ...]) -> tuple[InvariantSubspaceDecomposition, Recovery]:
    """Fit one repetition and compare with the truth."""
    logs, moments = draw(setting, seed)
    fit = InvariantSubspaceDecomposition(covariances=setting.covariances)
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fit.fit(moments)
    seconds = time.perf_counter() - started
    return fit, Recovery(
        planted=(logs.split.invariant_dim, logs.split.residual_dim),
        found=(fit.split_.invariant_dim, fit.split_.residual_dim),
        projection_error=fit.split_.distance(logs.split),
        component_error=float(np.linalg.norm(fit.component_ - logs.component)),
        block_sizes=tuple(sorted(len(block) for block in fit.blocks_)),
        seconds=seconds,
        converged=fit.converged_,
    )


def judge(setting: Setting, seed: tuple[int, ...]) -> Recovery:
    """`recover` without the fit; logs that the estimator refuses count as wrong, they are not left out."""
    try:
        return recover(setting, seed)[1]
    except InputError:
        truth, _ = draw(setting, seed)
        planted = (truth.split.invariant_dim, truth.split.residual_dim)
        return Recovery(planted, REFUSED, 1.0, float(np.linalg.norm(truth.component)), (), 0.0, False)
