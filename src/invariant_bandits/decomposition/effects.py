"""Effects: what every coefficient of a model was, window by window, whether it drifts, and from what to what.

All numbers are in units of the reward. An effect of labelled arms is a level, what an arm earns in the mean
context, or a slope, what one standard deviation of a column adds to that. Where rewards are 0 or 1 both are
probabilities. An effect of feature rows is what one standard deviation along a direction adds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import special

from invariant_bandits.checks import Array
from invariant_bandits.decomposition.arm_statistics import ArmStatistics
from invariant_bandits.decomposition.drift_prior import (
    DriftEvidence,
    DriftPrior,
    Effect,
    condition_windows,
    effect_path,
)
from invariant_bandits.decomposition.estimator import (
    DRIFTS,
    NOT_DETECTED,
    SUPPORTED,
    InvariantSubspaceDecomposition,
    block_verdict,
    direction_names,
    principal_directions,
)
from invariant_bandits.decomposition.paths import detectable_drift
from invariant_bandits.decomposition.split import constancy_test
from invariant_bandits.logs.features import TIMES, ArmFeatures

BREAK_LEVEL = 0.01
"""Of the test that one break explains the path."""
INTERVAL = 1.959964
LEVEL, SHARED = "level", "all arms"
WITH_ITS_BLOCK = "drifts with its block"
"""Of a direction that shows no drift by itself: directions are defined, and tested, as a block."""
REWARD, PROBABILITY, POINTS = "reward", "probability", "probability points"


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
        When: (first window after the break,), or the windows of the two values if no single break explains
        the path; empty without drift. Windows count from 0.
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
        """The verdict and, of a drifting effect, from what to what and when."""
        factor, words = {
            REWARD: (1.0, ""),
            PROBABILITY: (100.0, " %"),
            POINTS: (100.0, " points"),
        }[self.unit]
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


def effect_paths(model: Any) -> list[EffectPath]:
    """Every effect of a model, drifting ones first, then by their p-values."""
    if isinstance(model.feature_map, ArmFeatures):
        return _strongest_first(
            _of_arms(model.feature_map.population, *model.arm_evidence())
        )
    return direction_effects(model.decomposition)


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
        return SHARED, features.names[effect.place]
    terms, place = features.catalogue_terms[0], effect.place - dim
    if place < own * len(terms):
        return terms[place // own], names[place % own]
    term, slope = divmod(place - own * len(terms), slopes)
    return terms[term], names[1 + slope]


def _of_arms(
    features: ArmFeatures, prior: DriftPrior, statistics: ArmStatistics
) -> list[EffectPath]:
    population = prior.arms
    together, dim, sizes = population.together, prior.layout.dim, population.evidence[2]
    drift = np.diag(sizes[:dim]) + (together * sizes[dim:]) @ together.T
    windows = condition_windows(statistics, drift, prior.mean_precision(statistics))
    levels = prior.layout.by_arm(population.evidence[0, :dim])[:, 0]
    usual = float(population.plays @ levels / max(population.plays.sum(), 1.0))
    paths = []
    for effect in prior.effects:
        size, (arm, name) = (
            float(sizes[effect.place]),
            effect_name(features, effect, dim),
        )
        path = _path(
            (arm, name),
            effect,
            *effect_path(windows, *population.direction(effect.place), size),
        )
        is_level = name == LEVEL and (effect.arm >= 0 or arm == SHARED or "=" in arm)
        path = replace(path, is_level=is_level)
        if prior.link == "logit":
            base = (
                0.0
                if is_level
                else usual
                if effect.arm < 0
                else float(levels[effect.arm])
            )
            path = _as_probability(path, base, is_level)
        paths.append(path)
    return paths


def direction_effects(fit: InvariantSubspaceDecomposition) -> list[EffectPath]:
    """Effects along the directions of the blocks: what one standard deviation adds.

    The verdict on a direction is that on its block, `block_verdict`, as in the summary: directions within a
    block are defined only together. From what to what is said of those that show drift by themselves; in a
    drifting block that is at least the one with the strongest evidence.
    """
    basis = principal_directions(fit)
    scale = np.sqrt(np.diagonal(basis.T @ fit.window_covariances_.mean(axis=0) @ basis))
    along = fit.paths_.along(np.linalg.inv(basis).T * scale)
    values, variances = along.marginals()
    mean, error = along.weighted_mean()
    paths, names = [], direction_names(fit, basis)
    level = fit.alpha / len(fit.blocks_)
    tested = (
        fit.recipe_used_ != "published"
    )  # its windows overlap, so that these tests do not hold
    for block, columns in enumerate(fit.blocks_):
        verdict = block_verdict(fit, block)
        alone = {
            int(j): constancy_test(along.along(np.eye(len(basis))[:, [j]])).log_p
            for j in columns
        }
        if tested and (
            len(columns) == 1 or not fit.varies_[block]
        ):  # the block was tested as a whole
            alone = dict.fromkeys(alone, float(fit.log_p_values_[block]))
        limit = max(float(np.log(level)), min(alone.values()))
        for j, log_p in alone.items():
            known = np.isfinite(variances[:, j])
            h = variances[known, j]
            drift = (
                float(np.sqrt(max(values[known, j].var(ddof=1) - h.mean(), 0.0)))
                if len(h) > 1
                else 0.0
            )
            contrasts = np.sort(1.0 / h)[1:] if len(h) > 1 else np.zeros(0)
            seen = detectable_drift(contrasts, 0.5 * level)
            numbers = (float(mean[j]), float(np.sqrt(error[j, j])), drift, seen)
            p_value = (
                float(np.exp(log_p)) if tested and fit.testable_[block] else np.nan
            )
            shows_drift = bool(fit.varies_[block] and log_p <= limit)
            evidence = DriftEvidence(*numbers, p_value, shows_drift)
            value = np.where(known, values[:, j], np.nan)
            path = _path(("", names[j]), evidence, value, np.diag(variances[:, j]))
            paths.append(replace(path, drifts=verdict == DRIFTS, of_block=verdict))
    return _strongest_first(paths)


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
    path = EffectPath(
        *numbers, effect.drifts, *names, value, value - half, value + half
    )
    known = np.flatnonzero(np.isfinite(value))
    if not effect.drifts or len(known) < 2:
        return path
    before, after, windows = _change(value[known], covariance[np.ix_(known, known)])
    return replace(
        path,
        before=before,
        after=after,
        windows=tuple(int(known[window]) for window in windows),
    )


def _change(value: Array, covariance: Array) -> tuple[float, float, tuple[int, ...]]:
    """(from, to, when) of a path (m,): the likeliest single break or, if it does not explain the path, the
    lowest and the highest value in their order.
    """
    precision, m = np.linalg.inv(covariance), len(value)
    best = (np.inf, value[0], value[-1], 1)
    for window in range(1, m):
        design = np.column_stack(
            [np.arange(m) < window, np.arange(m) >= window]
        ).astype(np.float64)
        level = np.linalg.solve(
            design.T @ precision @ design, design.T @ precision @ value
        )
        rest = value - design @ level
        best = min(
            best,
            (float(rest @ precision @ rest), float(level[0]), float(level[1]), window),
        )
    misfit, before, after, window = best
    if m < 4 or special.gammaincc((m - 3) / 2.0, misfit / 2.0) > BREAK_LEVEL:
        return float(before), float(after), (window,)
    error = np.sqrt(np.diagonal(covariance))
    sure = np.flatnonzero(error <= 2.0 * np.median(error))
    first, last = sorted(
        (int(sure[value[sure].argmin()]), int(sure[value[sure].argmax()]))
    )
    return float(value[first]), float(value[last]), (first, last)


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
        for name in ("estimate", "before", "after")
    }
    spreads: dict[str, Any] = {
        name: slope * getattr(path, name) for name in ("error", "drift", "detectable")
    }
    curves = {
        name: probability(getattr(path, name)) for name in ("values", "low", "high")
    }
    return replace(
        path, **numbers, **spreads, **curves, unit=PROBABILITY if is_level else POINTS
    )
