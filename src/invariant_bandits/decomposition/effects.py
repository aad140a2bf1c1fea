"""Effects: what every coefficient of a model was, window by window, whether it drifts, and from what to what.

All numbers are in units of the reward. An effect of labelled arms is a level, what an arm earns in the mean
context, or a slope, what one standard deviation of a column adds to that. Where rewards are 0 or 1 both are
probabilities. An effect of feature rows is what one standard deviation of a feature adds, or of the mixture
of features that a direction is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import is_
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from scipy import special

from invariant_bandits.checks import Array
from invariant_bandits.decomposition.arm_deviations import (
    fit_deviations,
    shared_statistics,
    statistics_by_arm,
)
from invariant_bandits.decomposition.arm_effects import (
    ConditionedWindows,
    condition_windows,
    effect_path,
)
from invariant_bandits.decomposition.arm_population import DriftEvidence, Effect
from invariant_bandits.decomposition.arm_statistics import ArmStatistics
from invariant_bandits.decomposition.drift_prior import DriftPrior
from invariant_bandits.decomposition.estimator import (
    DRIFTS,
    LEAST_WEIGHT,
    NOT_DETECTED,
    SUPPORTED,
    InvariantSubspaceDecomposition,
    block_verdict,
    direction_weights,
    mixture_name,
    readable_directions,
)
from invariant_bandits.decomposition.fit_constants import PRIOR
from invariant_bandits.decomposition.paths import CoefficientPaths, detectable_drift
from invariant_bandits.decomposition.split import constancy_test
from invariant_bandits.features.arm_maps import TIMES, ArmFeatures, one_arm
from invariant_bandits.features.catalogue import EVERY_ARM
from invariant_bandits.features.sharing import has_binary_rewards

BREAK_LEVEL = 0.01
"""Of the test that one break, or a line, explains the path."""
MOVING_LEVEL = 0.01
"""Of the test that decides whether a drifting mixture bears the name of a feature; its block was tested at a
stricter level."""
INTERVAL = 1.959964
"""Standard errors to either side of a 95 % interval: the 97.5 % quantile of a normal."""
LEVEL, SHARED = "level", "all arms"
WITH_ITS_BLOCK = "drifts with its block"
"""Of a direction that shows no drift by itself: directions are defined, and tested, as a block."""
REWARD = "reward"
PROBABILITY = "probability"
POINTS = "probability points"
DISPLAY = {
    REWARD: (1.0, ""),
    PROBABILITY: (100.0, " %"),
    POINTS: (100.0, " points"),
}
"""Factor and words with which people read a number of each unit."""


@dataclass(frozen=True, eq=False)
class EffectPath(DriftEvidence):
    """One effect over the windows, in units of the reward.

    Attributes
    ----------
    arm, name : str
        Whose effect, and of what.
    values, low, high : arrays, shape (m,)
        In every window, with its 95 % interval; NaN where a window does not inform the effect.
    before, after : float
        From what to what. NaN without drift.
    windows : tuple of int
        When: (first window after the break,), or the windows of the two values if the path is a line or no
        single break explains it; empty without drift. Windows count from 0.
    last, last_error : float
        Value in the last window that informs the effect, and its standard error. NaN if no window does.
    unit : "reward", "probability" or "probability points"
        What the numbers are: rewards, probabilities of 1, or differences of these.
    is_level : bool
        Whether it is a level, and not what one standard deviation adds.
    of_block : str
        The verdict on the block of directions that it belongs to, as in the summary of the decomposition;
        empty where there are no blocks.
    """

    arm: str
    name: str
    values: Array
    low: Array
    high: Array
    before: float = np.nan
    after: float = np.nan
    windows: tuple[int, ...] = ()
    last: float = np.nan
    last_error: float = np.nan
    unit: str = REWARD
    is_level: bool = False
    of_block: str = ""

    @property
    def axis_label(self) -> str:
        """What the numbers are, for the axis of a picture."""
        words = {REWARD: REWARD, PROBABILITY: "probability, %", POINTS: "points"}[
            self.unit
        ]
        return words if self.is_level else f"{words} per sd"

    @property
    def verdict(self) -> str:
        """What is known of its drift, in words."""
        if self.of_block:
            return self.of_block
        if self.drifts:
            return "drifts"
        if np.isnan(self.p_value):
            return "cannot tell"
        return (
            "stable"
            if self.detectable <= SUPPORTED * abs(self.estimate)
            else NOT_DETECTED
        )

    @property
    def title(self) -> str:
        """Whose effect it is, and of what."""
        return f"{self.arm}{TIMES}{self.name}" if self.arm else self.name

    def changed(self, edges: Any) -> str:
        """When it changed: where windows begin, or their numbers from 1; empty without drift."""
        return " to ".join(_begins(edges, window) for window in self.windows)

    def in_words(self, edges: Any) -> str:
        """The verdict and, of a drifting effect, from what to what, when, and where it ended."""
        words = self.change_in_words(edges)
        informed = np.flatnonzero(np.isfinite(self.values))
        if not self.windows or self.windows[1:] == (informed[-1],):
            return words  # the second value is that of the last window
        factor, unit = DISPLAY[self.unit]
        sign = "" if self.unit == PROBABILITY else "+"
        return (
            f"{words}; last window {factor * self.last:{sign}.3g}"
            f" ± {factor * self.last_error:.2g}{unit}"
        )

    def change_in_words(self, edges: Any) -> str:
        """The verdict and, of a drifting effect, from what to what and when."""
        factor, words = DISPLAY[self.unit]
        if self.drifts and not self.windows:
            return WITH_ITS_BLOCK
        if not self.windows:
            bound = (
                f" above {factor * self.detectable:.2g}{words}"
                if self.verdict == NOT_DETECTED
                else ""
            )
            return f"{self.verdict}{bound}"
        sign = "" if self.unit == PROBABILITY else "+"
        change = (
            f"{factor * self.before:{sign}.3g} → {factor * self.after:{sign}.3g}{words}"
        )
        return f"{change}, {self.changed(edges)}"


def _begins(edges: Any, window: int) -> str:
    """When a window begins, as short as it can be said, or its number from 1."""
    if edges is None:
        return str(window + 1)
    if isinstance(edges[window], np.datetime64):
        return (
            str(edges[window].astype("datetime64[m]"))
            .replace("T", " ")
            .removesuffix(" 00:00")
        )
    return f"{edges[window]:g}"


def effect_rows(paths: list[EffectPath], edges: Any) -> list[dict[str, Any]]:
    """One row per effect: the numbers of `EffectPath`, the verdict, and when it changed."""
    names = (
        "unit",
        "estimate",
        "error",
        "drift",
        "detectable",
        "p_value",
        "drifts",
        "before",
        "after",
        "last",
        "last_error",
    )
    return [
        {"arm": path.arm, "effect": path.name, "verdict": path.verdict}
        | {name: getattr(path, name) for name in names}
        | {"changed": path.changed(edges)}
        for path in paths
    ]


def window_rows(paths: list[EffectPath], edges: Any) -> list[dict[str, Any]]:
    """One row per effect and window: the value there and its 95 % interval; NaN where nothing is known."""
    return [
        {"arm": path.arm, "effect": path.name, "window": window + 1}
        | {"begins": None if edges is None else edges[window]}
        | {
            "value": float(value),
            "low": float(path.low[window]),
            "high": float(path.high[window]),
        }
        for path in paths
        for window, value in enumerate(path.values)
    ]


class _ComputedPaths(NamedTuple):
    """What the effects of a model were computed from, and the effects."""

    inputs: tuple[Any, ...]
    paths: list[EffectPath]


def effect_paths(model: Any) -> list[EffectPath]:
    """Every effect of a model, drifting ones first, then by their p-values."""
    if model.feature_map.has_levels:
        return list(_paths_of_arms(model))
    paths = direction_effects(model.decomposition)
    if has_binary_rewards(model.moments):  # differences of probabilities
        return [replace(path, unit=POINTS) for path in paths]
    return paths


_computed_paths: WeakKeyDictionary[Any, _ComputedPaths] = WeakKeyDictionary()
"""By model of labelled arms: a report asks for the paths five times."""


def _paths_of_arms(model: Any) -> list[EffectPath]:
    """Return the effects of labelled arms, computed again only if the model has changed."""
    inputs = (model.feature_map, model.moments, model.log_odds, model.policy)
    known = _computed_paths.get(model)
    if known is not None and all(map(is_, known.inputs, inputs)):
        return known.paths
    paths = []
    for evidence in model.arm_evidence():
        paths += _of_arms(*evidence)
    paths = _strongest_first(paths)
    _computed_paths[model] = _ComputedPaths(inputs, paths)
    return paths


def _strongest_first(paths: list[EffectPath]) -> list[EffectPath]:
    """Drifting effects first, then by their p-values."""
    return sorted(
        paths, key=lambda path: (not path.drifts, np.nan_to_num(path.p_value, nan=2.0))
    )


def effect_name(features: ArmFeatures, effect: Effect, dim: int) -> tuple[str, str]:
    """Whose effect it is, and of what; dim: number of coefficients p."""
    own = features.own
    names, slopes = (LEVEL, *features.context_names[1:]), features.width - 1
    if effect.arm >= 0:
        return features.labels[effect.arm], names[effect.coefficient]
    if effect.place < dim:
        owner = features.labels[0] if len(features.labels) == 1 else SHARED
        return owner, features.names[effect.place]
    terms, place = features.catalogue_terms[0], effect.place - dim
    if place < own * len(terms):
        return terms[place // own], names[place % own]
    term, slope = divmod(place - own * len(terms), slopes)
    return terms[term], names[1 + slope]


class ArmEvidence(NamedTuple):
    """What a log says of labelled arms that are fitted together.

    Attributes
    ----------
    features : ArmFeatures
        Of the arms.
    prior : DriftPrior
        Of their coefficients.
    statistics : ArmStatistics
        Per window.
    """

    features: ArmFeatures
    prior: DriftPrior
    statistics: ArmStatistics


def arm_evidence(
    features: ArmFeatures, statistics: ArmStatistics, known: Any
) -> tuple[ArmEvidence, ...]:
    """Return what a log says of its arms: of all together or, of many coefficients, arm by arm.

    Many coefficients are judged by the rounds of each arm alone, and by all rounds for what arms share.

    Parameters
    ----------
    features : ArmFeatures
        Of the arms.
    statistics : ArmStatistics
        Of the same coefficients.
    known : DriftPrior, or anything else
        The prior that the model's policy has; it is used if it is one of arms.
    """
    is_known = isinstance(known, DriftPrior) and known.population is not None
    if not features.is_wide:
        prior = known if is_known else DriftPrior.from_arms(statistics)
        return (ArmEvidence(features, prior, statistics),)
    deviations = fit_deviations(statistics)
    played = np.flatnonzero(statistics.rounds.sum(axis=0) > 0)
    alone = statistics_by_arm(statistics, deviations)
    # The rule of Holm holds within a part, and the level is split over the parts.
    level = PRIOR.drift_level / (1 + len(played))
    drift = np.zeros(statistics.layout.dim)
    evidence = []
    for arm in played.tolist():
        part = _evidence_of_part(features, features.labels[arm], alone[arm], level)
        own = drift[statistics.layout.arm(arm)]
        for effect in part.prior.effects:
            if effect.drifts:
                own[effect.place] = effect.drift**2
        evidence.append(part)
    shared = shared_statistics(statistics, deviations, drift)
    return (_evidence_of_part(features, EVERY_ARM, shared, level), *evidence)


def _evidence_of_part(
    features: ArmFeatures, label: str, statistics: ArmStatistics, level: float
) -> ArmEvidence:
    """Return what statistics of one arm say, its drift tested at this level."""
    prior = DriftPrior.from_arms(statistics)
    population = replace(prior.arms, drift_level=level)
    slopes = features.context_names[1 : statistics.layout.dim]
    return ArmEvidence(
        features=one_arm(label, slopes),
        prior=replace(prior, population=population),
        statistics=statistics,
    )


def _of_arms(
    features: ArmFeatures, prior: DriftPrior, statistics: ArmStatistics
) -> list[EffectPath]:
    windows = _windows_of_arms(prior, statistics)
    paths = []
    for effect in prior.effects:
        names = effect_name(features, effect, prior.layout.dim)
        path = _path(names, effect, *_path_of_arm(prior, windows, effect))
        is_level = _is_level(names, effect)
        path = replace(path, is_level=is_level)
        if prior.link == "logit":
            path = _as_probability(path, _base(prior, effect, is_level), is_level)
        paths.append(path)
    return paths


def _windows_of_arms(
    prior: DriftPrior, statistics: ArmStatistics
) -> ConditionedWindows:
    """What every window says of the coefficients, with the drift that was estimated."""
    population = prior.arms
    together = population.together
    dim = prior.layout.dim
    sizes = population.evidence.variance
    drift = np.diag(sizes[:dim]) + (together * sizes[dim:]) @ together.T
    return condition_windows(statistics, drift, prior.mean_precision(statistics))


def _path_of_arm(
    prior: DriftPrior, windows: ConditionedWindows, effect: Effect
) -> tuple[Array, Array]:
    """Values (m,) of one effect on the scale of the link, and their covariance (m, m)."""
    size = float(prior.arms.evidence.variance[effect.place])
    return effect_path(windows, *prior.arms.direction(effect.place), size)


def _is_level(names: tuple[str, str], effect: Effect) -> bool:
    """Whether the effect of these names is what an arm, or a group of arms, earns."""
    arm, name = names
    return name == LEVEL and (effect.arm >= 0 or arm == SHARED or "=" in arm)


def _base(prior: DriftPrior, effect: Effect, is_level: bool) -> float:
    """Log-odds to which the effect adds: the level of its arm, or that of the usual arm."""
    if is_level:
        return 0.0
    population = prior.arms
    levels = prior.layout.by_arm(population.evidence.estimate[: prior.layout.dim])[:, 0]
    if effect.arm >= 0:
        return float(levels[effect.arm])
    return float(population.plays @ levels / max(population.plays.sum(), 1.0))


@dataclass(frozen=True)
class FinalEffect:
    """One effect of labelled arms where the logs ended, on the scale of the link.

    Attributes
    ----------
    effect : Effect
        Whose effect, and of what.
    value, error : float
        Its value in the last window if it drifts, over all windows otherwise, and the standard error.
    unit : "reward", "probability" or "probability points"
        What `in_unit` returns.
    base : float
        Log-odds to which the effect adds; 0 for rewards that are not 0 or 1.
    """

    effect: Effect
    value: float
    error: float
    unit: str
    base: float

    def in_unit(self, value: float, error: float) -> tuple[float, float]:
        """Return a value of this effect on the scale of the link and its error in the unit of the effect."""
        if self.unit == REWARD:
            return value, error
        at = float(special.expit(self.base + value))
        rest = 0.0 if self.unit == PROBABILITY else float(special.expit(self.base))
        return at - rest, at * (1.0 - at) * error


def final_arm_effects(
    features: ArmFeatures, prior: DriftPrior, statistics: ArmStatistics
) -> list[FinalEffect]:
    """Every effect that is one coefficient, where the logs ended; features: those of the prior."""
    windows, dim = _windows_of_arms(prior, statistics), prior.layout.dim
    result = []
    for effect in prior.effects:
        if effect.place >= dim:  # along several coefficients
            continue
        value, error = effect.estimate, effect.error
        if effect.drifts:
            value, error = last_value(*_path_of_arm(prior, windows, effect))
        unit, base = REWARD, 0.0
        if prior.link == "logit":
            is_level = _is_level(effect_name(features, effect, dim), effect)
            unit = PROBABILITY if is_level else POINTS
            base = _base(prior, effect, is_level)
        result.append(
            FinalEffect(effect=effect, value=value, error=error, unit=unit, base=base)
        )
    return result


def last_value(value: Array, covariance: Array) -> tuple[float, float]:
    """Last known value of a path (m,) with its standard error; NaN if nothing is known."""
    known = np.flatnonzero(np.isfinite(value))
    if not len(known):
        return np.nan, np.nan
    last = known[-1]
    return float(value[last]), float(np.sqrt(covariance[last, last]))


def direction_effects(fit: InvariantSubspaceDecomposition) -> list[EffectPath]:
    """Effects along the directions of the blocks: what one standard deviation adds.

    The verdict on a direction is that on its block, `block_verdict`, as in the summary: directions within a
    block are defined only together. From what to what is said of those that show drift by themselves; in a
    drifting block that is at least the one with the strongest evidence.

    A direction bears the name of one feature, and then the feature's own coefficient, if that feature weighs
    more than twice as much as any other and its own coefficient does not contradict the verdict. Any other
    direction is shown as the mixture that it is.
    """
    basis = readable_directions(fit)
    weights = direction_weights(fit, basis)
    covariance = fit.window_covariances_.mean(axis=0)
    feature_scale = np.sqrt(np.diagonal(covariance))
    mixture_scale = np.sqrt(np.diagonal(basis.T @ covariance @ basis))
    mixtures = _Coefficients.of(
        fit.paths_.along(np.linalg.inv(basis).T * mixture_scale)
    )
    features = _Coefficients.of(fit.paths_.along(np.diag(feature_scale)))
    level = fit.alpha / len(fit.blocks_)
    # The windows of the published recipe overlap, so that these tests do not hold.
    tested = fit.recipe_used_ != "published"
    naming = _Naming(fit, weights, mixtures, features, np.log(level), tested)
    shown = naming.directions()
    paths = []
    for block, columns in enumerate(fit.blocks_):
        verdict, varies = block_verdict(fit, block), bool(fit.varies_[block])
        in_block = {j: shown[j] for j in columns.tolist() if j in shown}
        alone = {
            j: float(direction.table.log_p_values[direction.position])
            for j, direction in in_block.items()
        }
        if tested and (
            len(columns) == 1 or not varies
        ):  # the block was tested as a whole
            alone = dict.fromkeys(alone, float(fit.log_p_values_[block]))
        limit = max(float(np.log(level)), min(alone.values(), default=0.0))
        for j, log_p in alone.items():
            name, table, position = in_block[j]
            p_value = (
                float(np.exp(log_p)) if tested and fit.testable_[block] else np.nan
            )
            evidence = table.evidence(
                position, level, p_value, varies and log_p <= limit
            )
            path = _path(("", name), evidence, *table.path(position))
            paths.append(replace(path, drifts=verdict == DRIFTS, of_block=verdict))
    return _strongest_first(paths)


class _ShownDirection(NamedTuple):
    """A direction's name, and the table and the position in it of the coefficients that are shown."""

    name: str
    table: _Coefficients
    position: int


class _Naming(NamedTuple):
    """What names directions: weights (p, d) of features, coefficients of both, and a test's level."""

    fit: InvariantSubspaceDecomposition
    weights: Array
    mixtures: _Coefficients
    features: _Coefficients
    log_level: float
    tested: bool

    def directions(self) -> dict[int, _ShownDirection]:
        """Return the directions that are shown; the drift of one that is left out is told by others."""
        single = self._single_features()
        shown = {j: self._as_feature(feature) for j, feature in single.items()}
        named = set(single.values())
        names = self.fit.names(len(self.weights))
        moves = self.features.log_p_values <= np.log(MOVING_LEVEL)
        drifting = np.repeat(self.fit.varies_, [len(b) for b in self.fit.blocks_])
        order = np.concatenate(self.fit.blocks_).tolist()
        for j, varies in zip(order, drifting.tolist(), strict=True):
            if j in single:
                continue
            parts = self.weights[:, j]
            if varies and self.tested:
                parts = _moving_parts(parts, moves)
                # Other directions may bear the names of the features that move.
                untold = set(np.flatnonzero(parts).tolist()) - named
                if len(untold) == 1:
                    shown[j] = self._as_feature(*untold)
                    named |= untold
                if len(untold) < 2:
                    continue
            shown[j] = _ShownDirection(mixture_name(parts, names), self.mixtures, j)
        return shown

    def _as_feature(self, feature: int) -> _ShownDirection:
        name = self.fit.names(len(self.weights))[feature]
        return _ShownDirection(name, self.features, feature)

    def _single_features(self) -> dict[int, int]:
        """Features that directions are named by, unless their own coefficients contradict the blocks."""
        candidates = _single_features(self.weights)
        return {
            j: candidates[j]
            for block, columns in enumerate(self.fit.blocks_)
            for j in columns.tolist()
            if j in candidates and not self._contradicts(candidates[j], block)
        }

    def _contradicts(self, feature: int, block: int) -> bool:
        """Whether a feature's own coefficient says another thing than the block.

        One feature of several may stay as it is in a block that drifts.
        """
        varies = bool(self.fit.varies_[block])
        if not self.tested or not self.fit.testable_[block]:
            return False
        if varies and len(self.fit.blocks_[block]) > 1:
            return False
        drifts = self.features.log_p_values[feature] <= self.log_level
        return bool(drifts != varies)


def _moving_parts(weights: Array, moves: Array) -> Array:
    """Return the weights (p,) of a drifting mixture, 0 where a feature's own coefficient stays as it is.

    All of them are returned if no feature of the log moves by itself.
    """
    named = np.abs(weights) >= LEAST_WEIGHT * np.abs(weights).max()
    return weights * (named & moves) if moves.any() else weights


def _single_features(weights: Array) -> dict[int, int]:
    """Feature of each direction in which one weighs more than twice as much as any other; weights (p, d).

    A feature names one direction only, that in which it weighs most.
    """
    size = np.abs(weights)
    main = size.argmax(axis=0)
    single: dict[int, int] = {}
    for j in np.argsort(-size.max(axis=0), kind="stable").tolist():
        others = np.delete(size[:, j], main[j])
        alone = others.max(initial=0.0) < 0.5 * size[main[j], j]
        if alone and int(main[j]) not in single.values():
            single[j] = int(main[j])
    return single


@dataclass(frozen=True, eq=False)
class _Coefficients:
    """Coefficients along some directions, window by window, each by itself.

    Attributes
    ----------
    values, variances : arrays, shape (m, d)
        Variances are infinite where a window does not inform the coefficient.
    mean, error : arrays, shape (d,)
        Weighted mean over the windows, and its standard error.
    log_p_values : array, shape (d,)
        Of the tests that a coefficient is the same in all windows.
    """

    values: Array
    variances: Array
    mean: Array
    error: Array
    log_p_values: Array

    @classmethod
    def of(cls, along: CoefficientPaths) -> _Coefficients:
        """Take each of the coordinates of these paths by itself."""
        values, variances = along.marginals()
        mean, covariance = along.weighted_mean()
        axes = np.eye(len(mean))
        log_p = [
            constancy_test(along.along(axes[:, [j]])).log_p for j in range(len(axes))
        ]
        return cls(
            values=values,
            variances=variances,
            mean=mean,
            error=np.sqrt(np.diagonal(covariance)),
            log_p_values=np.asarray(log_p, dtype=np.float64),
        )

    def evidence(
        self, place: int, level: float, p_value: float, drifts: bool
    ) -> DriftEvidence:
        """Evidence on the coefficient at a place, for a test of this level."""
        known = np.isfinite(self.variances[:, place])
        errors = self.variances[known, place]
        drift = 0.0
        contrasts = np.zeros(0)
        if len(errors) > 1:
            excess = self.values[known, place].var(ddof=1) - errors.mean()
            drift = float(np.sqrt(max(excess, 0.0)))
            contrasts = np.sort(1.0 / errors)[1:]
        return DriftEvidence(
            estimate=float(self.mean[place]),
            error=float(self.error[place]),
            drift=drift,
            detectable=detectable_drift(contrasts, 0.5 * level),
            p_value=p_value,
            drifts=bool(drifts),
        )

    def path(self, place: int) -> tuple[Array, Array]:
        """Values (m,) of the coefficient at a place, NaN where unknown, and their covariance (m, m)."""
        variances = self.variances[:, place]
        values = np.where(np.isfinite(variances), self.values[:, place], np.nan)
        return values, np.diag(variances)


def _path(
    names: tuple[str, str], effect: DriftEvidence, value: Array, covariance: Array
) -> EffectPath:
    """An effect with its values (m,) and their covariance (m, m); NaN values are unknown."""
    half = INTERVAL * np.sqrt(np.diagonal(covariance))
    numbers = (
        effect.estimate,
        effect.error,
        effect.drift,
        effect.detectable,
        effect.p_value,
    )
    last, last_error = last_value(value, covariance)
    path = EffectPath(
        *numbers,
        effect.drifts,
        *names,
        value,
        value - half,
        value + half,
        last=last,
        last_error=last_error,
    )
    known = np.flatnonzero(np.isfinite(value))
    if not effect.drifts or len(known) < 2:
        return path
    before, after, windows = _change(
        value[known], covariance[np.ix_(known, known)], known
    )
    return replace(
        path,
        before=before,
        after=after,
        windows=tuple(int(known[window]) for window in windows),
    )


def _change(
    value: Array, covariance: Array, times: Array
) -> tuple[float, float, tuple[int, ...]]:
    """(from, to, when) of a path (m,) at these times (m,), by the first of these that explains it.

    A line, if it fits better than the likeliest single break: its first and its last value. That break. Else
    the lowest and the highest value in their order.
    """
    precision, m = np.linalg.inv(covariance), len(value)
    last = m - 1
    misfit = np.inf
    before = float(value[0])
    after = float(value[-1])
    window = 1
    for candidate in range(1, m):
        steps = np.column_stack([np.arange(m) < candidate, np.arange(m) >= candidate])
        levels, rest = _weighted_fit(steps.astype(np.float64), precision, value)
        if rest < misfit:
            misfit, window = rest, candidate
            before, after = levels.tolist()
    line = np.column_stack([np.ones(m), times]).astype(np.float64)
    coefficients, line_misfit = _weighted_fit(line, precision, value)
    if m > 2 and line_misfit < misfit and _explains(line_misfit, m - 2):
        ends = line[[0, last]] @ coefficients
        return float(ends[0]), float(ends[1]), (0, last)
    if m < 4 or _explains(misfit, m - 3):
        return before, after, (window,)
    error = np.sqrt(np.diagonal(covariance))
    sure = np.flatnonzero(error <= 2.0 * np.median(error))
    first, last = sorted(
        (int(sure[value[sure].argmin()]), int(sure[value[sure].argmax()]))
    )
    return float(value[first]), float(value[last]), (first, last)


def _weighted_fit(design: Array, precision: Array, value: Array) -> tuple[Array, float]:
    """Generalised least squares: coefficients, and the weighted square of what they leave."""
    weighted = design.T @ precision
    coefficients = np.linalg.solve(weighted @ design, weighted @ value)
    rest = value - design @ coefficients
    return coefficients, float(rest @ precision @ rest)


def _explains(misfit: float, freedom: int) -> bool:
    """Whether a misfit with this many degrees of freedom is no larger than noise makes it."""
    return bool(special.gammaincc(freedom / 2.0, misfit / 2.0) > BREAK_LEVEL)


def _as_probability(path: EffectPath, base: float, is_level: bool) -> EffectPath:
    """The same effect of log-odds as a probability, for a level, or as what it adds to one of log-odds
    `base`.
    """
    rest = 0.0 if is_level else float(special.expit(base))

    def probability(odds: Any) -> Any:
        return special.expit(base + np.asarray(odds)) - rest

    at = float(special.expit(base + path.estimate))
    slope = at * (1.0 - at)
    numbers: dict[str, Any] = {
        name: float(probability(getattr(path, name)))
        for name in ("estimate", "before", "after", "last")
    }
    end = float(special.expit(base + path.last))
    spreads: dict[str, Any] = {
        name: slope * getattr(path, name) for name in ("error", "drift", "detectable")
    }
    spreads["last_error"] = end * (1.0 - end) * path.last_error
    curves = {
        name: probability(getattr(path, name)) for name in ("values", "low", "high")
    }
    return replace(
        path, **numbers, **spreads, **curves, unit=PROBABILITY if is_level else POINTS
    )
