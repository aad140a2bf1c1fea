"""What new rounds say against what was known: coefficients that moved, what was stable and is not, mean rewards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from invariant_bandits.checks import Array
from invariant_bandits.decomposition.arm_prior import ArmPrior, ArmStatistics
from invariant_bandits.decomposition.estimator import InvariantSubspaceDecomposition
from invariant_bandits.decomposition.silence import informed_directions
from invariant_bandits.model import Model
from invariant_bandits.moments.windowed import WindowedMoments

SILENT = 1e-9
"""Share of a feature's variance before below which the new rounds do not vary it."""
TOLD = 0.01
"""How far from 1 the share may be that the new rounds tell of a coefficient."""


@dataclass(frozen=True)
class Move:
    """A feature's coefficient before and in the new windows, with standard errors; z: the difference in these."""

    name: str
    before: float
    before_error: float
    now: float
    now_error: float

    @property
    def z(self) -> float:
        """Difference in standard errors."""
        return (self.now - self.before) / float(np.hypot(self.before_error, self.now_error))


def moved(model: Model, new: WindowedMoments) -> tuple[tuple[Move, ...], float | None]:
    """How the coefficients of the new rounds differ from before, and the p-value of no move in the stable part."""
    fit = model.decomposition
    before, covariance = fit.paths_.weighted_mean()
    gram, cross = new.gram.sum(axis=0), new.cross.sum(axis=0)
    varied = np.flatnonzero(np.diagonal(gram) > SILENT * new.rounds * fit.window_covariances_.mean(axis=0).diagonal())
    if not len(varied) or new.rounds <= new.windows + new.dim:
        return (), None
    inverse = np.linalg.pinv(gram[np.ix_(varied, varied)], rcond=SILENT, hermitian=True)
    now = inverse @ (cross - gram @ before)[varied] + before[varied]
    left = float(new.reward_square.sum() - 2.0 * now @ cross[varied] + now @ gram[np.ix_(varied, varied)] @ now)
    noise = max(left, 0.0) / (new.rounds - new.windows - len(varied))
    own, names = covariance[np.ix_(varied, varied)], model.names
    moves = [
        Move(
            names[j], float(before[j]), float(np.sqrt(own[i, i])), float(now[i]), float(np.sqrt(noise * inverse[i, i]))
        )
        for i, j in enumerate(varied)
    ]
    p_value = None
    if fit.split_.invariant_dim and len(varied) == new.dim:
        p_value = _stable_p_value(fit, now - before, own + noise * inverse)
    return tuple(sorted(moves, key=lambda move: -abs(move.z))), p_value


def _stable_p_value(fit: InvariantSubspaceDecomposition, shift: Array, covariance: Array) -> float:
    """How likely a shift (p,) of this covariance (p, p) is along the stable directions if nothing moved there.

    The split is an estimate, so a little of the drift is in its stable part: the old windows say how much their
    coefficients differ there beyond sampling error, and Fisher's F allows for how little they know about that.
    """
    stable = fit.split_.invariant
    inside = fit.paths_.along(stable)
    precisions, error = inside.precisions(), inside.coefficients - inside.weighted_mean()[0]
    spread = float(np.einsum("mi,mij,mj->", error, precisions, error))
    dim = stable.shape[1]
    freedom = informed_directions(precisions) - dim
    moved = stable.T @ shift
    if freedom < 1:
        return 1.0
    statistic = float(moved @ np.linalg.solve(stable.T @ covariance @ stable, moved))
    return float(stats.f.sf(statistic / dim / max(spread / freedom, 1.0), dim, freedom))


def moved_arms(
    prior: ArmPrior, before: Sequence[str], statistics: ArmStatistics, now: Sequence[str]
) -> tuple[tuple[Move, ...], float | None]:
    """The same for labelled arms, effect by effect, on the scale of the link.

    Effects that drift from window to window are expected to; the others may move as far as the logs allow, and the
    least of their p-values counts for all of them (Bonferroni).

    Parameters
    ----------
    prior, before : ArmPrior, names (p,)
        What was known, and the names of its coordinates.
    statistics, now : ArmStatistics, names (q,)
        What the new rounds say alone, and the names of its coordinates.
    """
    information, scores = statistics.information.sum(axis=0), statistics.scores.sum(axis=0)
    inverse = np.linalg.pinv(information, rcond=SILENT, hermitian=True)
    told = np.abs(np.diagonal(inverse @ information) - 1.0) < TOLD
    estimate, place = inverse @ scores, {name: j for j, name in enumerate(now)}
    moves, p_values = [], []
    for one in prior.effects:
        name = before[one.arm * prior.layout.own + one.coefficient]
        j = place[name]
        if not told[j]:
            continue
        move = Move(name, one.estimate, one.error, float(estimate[j]), float(np.sqrt(inverse[j, j])))
        moves.append(move)
        if not one.drifts:
            allowed = np.sqrt(one.error**2 + inverse[j, j] + one.drift**2)
            p_values.append(2.0 * float(stats.norm.sf(abs(move.now - move.before) / allowed)))
    p_value = min(1.0, len(p_values) * min(p_values)) if p_values else None
    return tuple(sorted(moves, key=lambda move: -abs(move.z))), p_value


def reward_shift(old: WindowedMoments, new: WindowedMoments) -> tuple[float, float, float]:
    """(mean before, mean now, difference in standard errors: of both means, and between the old windows)."""
    before, now = (float(one.counts @ one.reward_mean) / one.rounds for one in (old, new))
    sampling = sum(float(one.reward_square.sum()) / one.rounds**2 for one in (old, new))
    between = float(np.var(old.reward_mean[old.counts > 0], ddof=1)) if (old.counts > 0).sum() > 1 else 0.0
    error = float(np.sqrt(sampling + between * (1.0 / old.windows + 1.0 / new.windows)))
    return before, now, (now - before) / error if error > 0.0 else 0.0
