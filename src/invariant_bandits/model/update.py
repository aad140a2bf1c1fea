"""New rounds for a model: their windows follow its windows, and what changed is said.

Moments add, so the result is that of all logs at once with the same windows; none of the old logs is read
again.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import stats

from invariant_bandits.checks import Array, InputError, whole_number
from invariant_bandits.decomposition.arm_statistics import ArmStatistics, LogOdds
from invariant_bandits.decomposition.effects import (
    POINTS,
    REWARD,
    EffectPath,
    FinalEffect,
    effect_paths,
    final_arm_effects,
)
from invariant_bandits.decomposition.estimator import InvariantSubspaceDecomposition
from invariant_bandits.decomposition.paths import informed_directions
from invariant_bandits.features.arm_maps import TIMES, ArmCoefficients, ArmFeatures
from invariant_bandits.features.sharing import has_binary_rewards
from invariant_bandits.logs.log import Log, open_log
from invariant_bandits.logs.quality import QualityReport
from invariant_bandits.logs.scan import (
    Progress,
    Scan,
    open_scan,
    read_arm_sample,
)
from invariant_bandits.logs.schema import SchemaLike
from invariant_bandits.logs.windows import (
    continued_edges,
    join_short_ends,
    with_new_windows,
)
from invariant_bandits.model.fit import (
    caution_of,
    fitted_spec,
    logistic_start,
    model_of,
    read_log_odds,
)
from invariant_bandits.model.model import Model, new_places
from invariant_bandits.moments.windowed import WindowedMoments
from invariant_bandits.policies.registry import PolicySpec
from invariant_bandits.policies.wrapper import unwrapped

SILENT = 1e-9
"""Share of a feature's variance before below which the new rounds do not vary it."""
NOTABLE = 4.0
"""Standard errors from which on a single coefficient is said to have moved: 1 in 16,000 does so by chance."""
UNESTIMATED = 0.01
"""Share of a coefficient that the new rounds may leave unestimated."""


@dataclass(frozen=True)
class Move:
    """A coefficient where the logs ended and in the new windows.

    Attributes
    ----------
    name : str
        Feature of the coefficient.
    before, before_error : float
        Value where the logs ended, and its standard error: that of the last window if the coefficient drifts,
        that of all windows otherwise.
    now, now_error : float
        Value in the new windows, and its standard error.
    z : float
        Difference in standard errors; of 0/1 rewards of labelled arms, that of the log-odds.
    unit : "reward", "probability" or "probability points"
        Unit of the values, as in `effect_paths`.
    """

    name: str
    before: float
    before_error: float
    now: float
    now_error: float
    z: float
    unit: str = REWARD

    @property
    def moved(self) -> bool:
        """Whether the value changed by more than chance allows a single coefficient."""
        return abs(self.z) > NOTABLE


def _difference(before: float, before_error: float, now: float, error: float) -> float:
    """How far two estimates differ, in standard errors."""
    return float((now - before) / np.hypot(before_error, error))


def _where_logs_ended(fit: InvariantSubspaceDecomposition) -> tuple[Array, Array]:
    """Coefficients (p,) where the logs ended, and their covariance (p, p).

    Along directions without detected drift they are those of all windows, along the others those of the last
    one: γ = Sĝ + Dĝ_m, S and D the projections. The error of the mean ĝ is part of that of ĝ_m, so that
    their covariance is that of ĝ.
    """
    mean, covariance = fit.paths_.weighted_mean()
    drifting: Array = np.zeros(0, dtype=np.int64)
    for columns, varies in zip(fit.blocks_, fit.varies_, strict=True):
        if varies:
            drifting = np.append(drifting, columns)
    # D, along the drifting columns of a basis that need not be orthonormal, and S = I − D.
    dual = np.linalg.inv(fit.basis_)
    of_drift = fit.basis_[:, drifting] @ dual[drifting]
    of_stable = np.eye(len(mean)) - of_drift
    last = fit.coefficients_[-1]
    last_covariance = fit.coefficient_covariances_[-1]
    # Cov(Sĝ, Dĝ_m) = S Cov(ĝ) Dᵀ, because ĝ_m = ĝ and an independent deviation of the last window.
    shared = of_stable @ covariance @ of_drift.T
    error = (
        of_stable @ covariance @ of_stable.T + of_drift @ last_covariance @ of_drift.T
    )
    return of_stable @ mean + of_drift @ last, error + shared + shared.T


def moved(model: Model, new: WindowedMoments) -> tuple[tuple[Move, ...], float | None]:
    """Return how the coefficients moved since the logs ended, and the p-value of no stable move.

    The p-value is None if the new rounds cannot tell of the stable part.
    """
    fit = model.decomposition
    unit = POINTS if has_binary_rewards(model.moments) else REWARD
    mean, covariance = fit.paths_.weighted_mean()
    before, before_covariance = _where_logs_ended(fit)
    gram = new.gram.sum(axis=0)
    cross = new.cross.sum(axis=0)
    variances = fit.window_covariances_.mean(axis=0).diagonal()
    varied = np.flatnonzero(np.diagonal(gram) > SILENT * new.rounds * variances)
    if not len(varied) or new.rounds <= new.windows + new.dim:
        return (), None
    # Least squares of the new rounds; features that they do not vary stay where the logs ended.
    inside = np.ix_(varied, varied)
    inverse = np.linalg.pinv(gram[inside], rcond=SILENT, hermitian=True)
    current = inverse @ (cross - gram @ before)[varied] + before[varied]
    left = (
        new.reward_square.sum()
        - 2.0 * current @ cross[varied]
        + current @ gram[inside] @ current
    )
    noise = max(float(left), 0.0) / (new.rounds - new.windows - len(varied))
    errors = np.sqrt(before_covariance.diagonal())[varied]
    new_errors = np.sqrt(noise * inverse.diagonal())
    moves = [
        Move(
            name=model.names[j],
            before=float(before[j]),
            before_error=float(errors[place]),
            now=float(current[place]),
            now_error=float(new_errors[place]),
            z=_difference(before[j], errors[place], current[place], new_errors[place]),
            unit=unit,
        )
        for place, j in enumerate(varied.tolist())
    ]
    p_value = None
    if fit.split_.invariant_dim and len(varied) == new.dim:
        p_value = _stable_p_value(
            fit, current - mean, covariance[inside] + noise * inverse
        )
    return tuple(moves), p_value


def _stable_p_value(
    fit: InvariantSubspaceDecomposition, shift: Array, covariance: Array
) -> float:
    """Return the p-value of a shift (p,) of covariance (p, p) along the stable directions.

    The split is an estimate, so a little of the drift is in its stable part: the old windows say how much
    their coefficients differ there beyond sampling error, and Fisher's F allows for how little they know
    about that.
    """
    stable = fit.split_.invariant
    inside = fit.paths_.along(stable)
    precisions = inside.precisions()
    error = inside.coefficients - inside.weighted_mean()[0]
    # Σ eᵀPe over the old windows is χ² with `freedom` degrees if they differ by sampling error only.
    deviance = float(np.einsum("mi,mij,mj->", error, precisions, error))
    dim = stable.shape[1]
    freedom = informed_directions(precisions) - dim
    moved = stable.T @ shift
    if freedom < 1:
        return 1.0
    statistic = float(moved @ np.linalg.solve(stable.T @ covariance @ stable, moved))
    return float(
        stats.f.sf(statistic / dim / max(deviance / freedom, 1.0), dim, freedom)
    )


def moved_arms(
    model: Model, statistics: ArmStatistics | None, names: Sequence[str]
) -> tuple[tuple[Move, ...], float | None]:
    """The same for labelled arms, effect by effect, in the units of `effect_paths`.

    Effects that drift from window to window are expected to; the others may move as far as the logs allow,
    and the least of their p-values counts for all of them (Bonferroni).

    Parameters
    ----------
    model : Model
        What was known.
    statistics, names : ArmStatistics, names (q,)
        What the new rounds say alone, if they are enough, and the names of its coordinates.
    """
    if statistics is None:
        return (), None
    information = statistics.information.sum(axis=0)
    scores = statistics.scores.sum(axis=0)
    inverse = np.linalg.pinv(information, rcond=SILENT, hermitian=True)
    estimable = np.abs(np.diagonal(inverse @ information) - 1.0) < UNESTIMATED
    estimate, place = inverse @ scores, {name: j for j, name in enumerate(names)}
    moves, p_values = [], []
    for name, final in _final_effects(model):
        effect = final.effect
        if name not in place:
            continue
        j = place[name]
        if not estimable[j]:
            continue
        now = float(estimate[j])
        error = float(np.sqrt(inverse[j, j]))
        before_shown, before_error_shown = final.in_unit(final.value, final.error)
        now_shown, now_error_shown = final.in_unit(now, error)
        moves.append(
            Move(
                name=name,
                before=before_shown,
                before_error=before_error_shown,
                now=now_shown,
                now_error=now_error_shown,
                z=_difference(final.value, final.error, now, error),
                unit=final.unit,
            )
        )
        if not effect.drifts:
            # Both errors, and the drift that the logs leave possible.
            allowed = np.sqrt(effect.error**2 + error**2 + effect.drift**2)
            p_values.append(
                2.0 * float(stats.norm.sf(abs(now - effect.estimate) / allowed))
            )
    p_value = min(1.0, len(p_values) * min(p_values)) if p_values else None
    return tuple(moves), p_value


def _final_effects(model: Model) -> Iterator[tuple[str, FinalEffect]]:
    """Yield every effect that is one coefficient where the logs ended, with the name of the coefficient."""
    assert model.arms is not None
    for evidence in model.arm_evidence():
        features = evidence.features
        is_part = features.labels != model.arms.labels
        for final in final_arm_effects(*evidence):
            name = features.names[final.effect.place]
            if is_part and final.effect.place:
                name = f"{features.labels[0]}{TIMES}{name}"
            yield name, final


def reward_shift(
    old: WindowedMoments, new: WindowedMoments
) -> tuple[float, float, float]:
    """(mean before, mean now, difference in standard errors: of both means, and between the old windows)."""
    before = float(old.counts @ old.reward_mean) / old.rounds
    after = float(new.counts @ new.reward_mean) / new.rounds
    sampling = sum(
        float(part.reward_square.sum()) / part.rounds**2 for part in (old, new)
    )
    between = 0.0
    if (old.counts > 0).sum() > 1:
        between = float(np.var(old.reward_mean[old.counts > 0], ddof=1))
    error = float(np.sqrt(sampling + between * (1.0 / old.windows + 1.0 / new.windows)))
    return before, after, (after - before) / error if error > 0.0 else 0.0


ALARM_LEVEL = 0.01
"""What was stable is said to have moved if the new rounds were less likely than this without a move."""


@dataclass(frozen=True, eq=False)
class Update:
    """Result of `Model.update_from`: the model with the rounds of a new log, and what changed.

    Attributes
    ----------
    model, before : Model
        Model with the new rounds, and model before the update.
    new : WindowedMoments
        Counts, means and sums of products of features and rewards in the new rounds, per window (period of
        the log). Short windows of `new` are not joined to their neighbours.
    quality : QualityReport
        Quality of the new log alone.
    moves : tuple of Move
        Value of each coefficient where the old rounds ended and in the new rounds. The coefficient with the
        strongest evidence of a change comes first.
    stable_p_value : float or None
        p-value of the new rounds under the hypothesis that no stable coefficient has changed, or None if no
        coefficient is stable.
    reward_shift : (before, now, z)
        Mean reward per round before the update and in the new rounds, and the z-score of their difference.
        The standard error of the difference in mean reward includes the spread between old windows (periods
        of the log).

    >>> import numpy as np, pyarrow as pa, invariant_bandits as ib
    >>> rng = np.random.default_rng(0)
    >>> def week(coefficient):
    ...     x = rng.normal(size=(1000, 2))
    ...     reward = coefficient * x[:, 0] + rng.normal(size=1000)
    ...     return pa.table({"x0": x[:, 0], "x1": x[:, 1], "reward": reward})
    >>> model = ib.fit_logs(pa.concat_tables([week(1.0) for _ in range(4)]), windows=4)
    >>> update = model.update_from(week(-1.0))  # what lasted for four weeks has turned
    >>> update.alarm, update.moves[0].name
    (True, 'x0')
    """

    model: Model
    before: Model
    new: WindowedMoments
    quality: QualityReport
    moves: tuple[Move, ...]
    stable_p_value: float | None
    reward_shift: tuple[float, float, float]

    @cached_property
    def new_drift(self) -> tuple[EffectPath, ...]:
        """Effects of labelled arms that showed no drift before and changed within the new windows."""
        if self.before.arms is None:
            return ()
        # Rounds that were added to the last old window are new ones, too.
        windows = self.model.moments.windows
        first = min(self.before.moments.windows, windows - 1)
        drifted = {path.title for path in effect_paths(self.before) if path.drifts}
        return tuple(
            path
            for path in effect_paths(self.model)
            if path.drifts
            and path.title not in drifted
            and path.windows
            and path.windows[-1] >= first
        )

    @property
    def stable_part_moved(self) -> bool:
        """Whether the new rounds differ as a whole from what was stable, by a test at level 0.01."""
        return self.stable_p_value is not None and self.stable_p_value < ALARM_LEVEL

    @property
    def alarm(self) -> bool:
        """Whether something that showed no drift before has changed.

        The new rounds as a whole differ from it, or an effect drifts (Holm's test at level 0.05) and changed
        within the new windows, of which the mean over all new rounds may say nothing.
        """
        return self.stable_part_moved or bool(self.new_drift)


def drifting(model: Model) -> tuple[int, int]:
    """(how many drift, of how many): dimensions, or effects of labelled arms."""
    if model.arms is None:
        split = model.decomposition.split_
        return split.residual_dim, split.dim
    effects = [
        effect for evidence in model.arm_evidence() for effect in evidence.prior.effects
    ]
    return sum(effect.drifts for effect in effects), len(effects)


def update_model(
    model: Model,
    source: Any,
    schema: SchemaLike = None,
    *,
    windows: int | None = None,
    every: Any = None,
    exploration: float | None = None,
    horizon: int | None = None,
    engine: Any = "local",
    address: str | None = None,
    strict: bool = False,
    keep_going: bool = False,
    progress: Progress | None = None,
) -> Update:
    """Return what `Model.update_from` does."""
    log = open_log(source, model.schema if schema is None else schema)
    spec = _spec_of(model, exploration)
    edges, count = _windows(model, log, windows, every)
    features, table = model.feature_map, model.arms
    if table is not None:
        # New labels become arms, retired ones stay retired.
        features = features.with_labels(log.arms.labels)
        for label in features.labels[len(table) :]:
            table = table.with_arm(label)
        log = open_log(log.source, log.schema, arms=table.labels)
        table = table.followed_by(log.arms)
    scan = open_scan(
        log,
        windows=count,
        edges=edges,
        engine=engine,
        address=address,
        strict=strict,
        keep_going=keep_going,
        progress=progress,
    )
    read = scan.moments(features)
    places = new_places(model.moments, features)
    old = model.moments.padded(places) if len(places) else model.moments
    _require_new(old, read.moments)
    all_windows = with_new_windows(old, read.moments)
    ends = join_short_ends(all_windows.counts)
    odds, new_odds = _log_odds(model, scan, features, places)
    odds = None if odds is None else replace(odds, moments=ends.join(odds.moments))
    sample = None
    if isinstance(features, ArmCoefficients) and odds is None:
        sample = read_arm_sample(log, features)
    quality = copy.deepcopy(model.quality)
    quality.merge(read.quality)
    after = model_of(
        ends.join(all_windows),
        features,
        spec,
        horizon,
        log_odds=odds,
        sample=sample,
        dropped=model.dropped,
        notes=model.notes,
        schema=model.schema,
        ledger=model.ledger,
        quality=quality,
        arms=table,
    )
    if isinstance(features, ArmFeatures):
        new = read.moments
        statistics = None
        if new_odds is not None or new.rounds > new.windows * features.dim:
            statistics = ArmStatistics.from_moments(features, new, new_odds)
        moves, p_value = moved_arms(model, statistics, features.names)
    else:
        moves, p_value = moved(model, read.moments)
    moves = tuple(sorted(moves, key=lambda move: -abs(move.z)))
    return Update(
        model=after,
        before=model,
        new=read.moments,
        quality=read.quality,
        moves=moves,
        stable_p_value=p_value,
        reward_shift=reward_shift(old, read.moments),
    )


def _spec_of(model: Model, exploration: float | None) -> PolicySpec:
    """Return what makes the policy of a model anew, by default with the model's exploration and caution."""
    settings = unwrapped(model.policy).settings()
    if exploration is None and PolicySpec(model.policy_name).takes("exploration"):
        exploration = settings.get("exploration")
    return fitted_spec(
        model.policy_name,
        exploration=exploration,
        delta=float(settings.get("delta", 0.01)),
        caution=caution_of(model),
    )


def _log_odds(
    model: Model, scan: Scan, features: Any, places: Array
) -> tuple[LogOdds | None, LogOdds | None]:
    """Log-odds of all windows and of the new ones, where the model has them.

    Old windows say nothing of new arms: any point of expansion will do for these.
    """
    before = model.log_odds
    if before is None:
        return None, None
    theta = before.theta
    if len(places):
        before, of_new = before.padded(places), places[0] + np.arange(len(places))
        theta = before.theta.copy()
        start = logistic_start(read_arm_sample(scan.log, features), features)
        theta[of_new] = start.theta[of_new]
    new = read_log_odds(scan, features, theta)
    return LogOdds(theta, with_new_windows(before.moments, new.moments)), new


def _windows(
    model: Model, log: Log, windows: int | None, every: Any
) -> tuple[Array | None, int | None]:
    """(edges, None) where windows are bounded by time, else (None, how many)."""
    if windows is not None and every is not None:
        raise InputError("give only one of windows and every")
    edges = model.moments.edges
    if edges is None:
        if every is not None:
            raise InputError(
                "every: the windows of this model are not bounded by time; give windows"
            )
        rows = log.survey(rows=True).total_rows or 0
        usual = max(model.quality.rows // model.moments.windows, 1)
        return None, whole_number("windows", windows or max(round(rows / usual), 1), 1)
    times = log.survey(times=True).times
    if times is None or times.first is None:
        raise InputError(
            "the new log has no usable time, but the windows of this model are bounded by time"
        )
    if times.first < edges[-2]:
        order = f"at {times.first}, before the last window of the model, which begins at {edges[-2]}"
        raise InputError(
            f"the new log begins {order}: rounds must not be counted twice"
        )
    return continued_edges(edges, times.first, times.last, windows, every), None


def _require_new(old: WindowedMoments, new: WindowedMoments) -> None:
    """InputError if the new rounds are those that the model has."""
    if new.windows > old.windows:
        return
    end = old.between(old.windows - new.windows, old.windows)
    same_rewards = np.allclose(end.reward_mean, new.reward_mean, rtol=1e-12, atol=0.0)
    if np.array_equal(end.counts, new.counts) and same_rewards:
        words = "the new log holds the rounds that the model ends with"
        raise InputError(f"{words}: they must not be counted twice")
