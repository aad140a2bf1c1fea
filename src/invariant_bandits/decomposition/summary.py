"""What a fitted decomposition says in words: the summary table and the things to be careful about."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.decomposition.paths import EXACT, CoefficientPaths, informed_directions, singular_roots

if TYPE_CHECKING:
    from invariant_bandits.decomposition.estimator import InvariantSubspaceDecomposition
    from invariant_bandits.moments.windowed import WindowedMoments

SELECTIVE_SHIFT = 0.1
HEAVY_TAILS = 1.5
ROUNDS_PER_FEATURE = 5
LEAST_LEVERAGE = 1e-9
MOST_NAMED, MOST_NOTES = 4, 8
SEEN, INVOLVED = 1e-6, 1e-4
"""Of features scaled to one size: directions that a window sees, and features that are part of one it does
not see.
"""


def findings(fit: InvariantSubspaceDecomposition, moments: WindowedMoments) -> list[str]:
    """Reasons for care, in words; empty when there are none."""
    notes = []
    p = moments.dim
    if fit.covariances_used_ == "chosen":
        notes = _selection_finding(moments)
        if not notes and moments.offered is None:
            notes.append("the log has chosen actions only; offered actions would give a more accurate basis")
    fewest = int(moments.counts.min())
    if fewest < ROUNDS_PER_FEATURE * p:
        notes.append(
            f"few rounds per window: {fewest} for {p} features; {ROUNDS_PER_FEATURE * p} or more are better"
        )
    if float(fit.tail_weights_.mean()) > HEAVY_TAILS:
        notes.append(
            f"heavy-tailed features: the variance of correlations is inflated"
            f" {fit.tail_weights_.mean():.1f}-fold; the tests allow for it, extreme rows still weigh much"
        )
    notes += exactness_findings(fit.noise_scale_**2, moments)
    notes += partial_findings(fit.paths_, fit.names(p), moments.counts)
    untested = np.flatnonzero(~fit.testable_)
    if len(untested):
        notes.append(
            f"block {_numbers(untested)} cannot be tested, because fewer than two windows inform some"
            " direction of it; it counts as varying"
        )
    lower, upper = np.log(0.01 * fit.alpha / len(fit.blocks_)), np.log(0.05)
    undecided = np.flatnonzero(fit.testable_ & (fit.log_p_values_ > lower) & (fit.log_p_values_ < upper))
    if len(undecided):
        notes.append(
            f"weak evidence: block {_numbers(undecided)} is close to the line between stable and varying"
        )
    if not fit.distinct_:
        notes.append(
            "the windows do not distinguish directions: their covariances are alike, so that other blocks fit"
            " them as well"
        )
    return notes + _convergence_finding(fit)


def exactness_findings(noise_variance: float, moments: WindowedMoments, *, levels: bool = False) -> list[str]:
    """Whether the rewards leave no noise at all; levels: their mean was to be explained, too."""
    varied = float(moments.reward_square.sum()) / moments.rounds
    level = float(moments.counts @ moments.reward_mean**2) / moments.rounds
    if varied <= EXACT * level:
        return ["rewards hardly vary within any window: there is nothing to learn from them"]
    if noise_variance > 4.0 * EXACT * (varied + levels * level):
        return []
    return [
        "rewards are an exact function of the features, no noise is left: were they computed from them, or"
        " does a feature give the reward away?"
    ]


def partial_findings(paths: CoefficientPaths, names: Sequence[str], counts: Array) -> list[str]:
    """Which coefficients windows do not inform, in words; counts (m,): how many rounds each has."""
    p, uninformed, notes = len(names), uninformed_features(paths), []
    short = int((counts < p + 2).sum())
    if short:
        notes.append(f"{short} of {len(counts)} windows have fewer than {p + 2} rounds: they tell little")
    by_features: dict[tuple[int, ...], list[int]] = {}
    for window in np.flatnonzero(uninformed.any(axis=1) & (counts >= p + 2)).tolist():
        by_features.setdefault(tuple(np.flatnonzero(uninformed[window])), []).append(window)
    for features, windows in list(by_features.items())[:MOST_NOTES]:
        named = ", ".join(names[j] for j in features[:MOST_NAMED])
        more = f" and {len(features) - MOST_NAMED} more" if len(features) > MOST_NAMED else ""
        named = "single features" if len(features) == p else f"{named}{more}"
        which = f"window {_numbers(windows)} does" if len(windows) == 1 else f"windows {_numbers(windows)} do"
        notes.append(f"{which} not tell the coefficients of {named}; the others do")
    if len(by_features) > MOST_NOTES:
        rest = sum(len(windows) for windows in list(by_features.values())[MOST_NOTES:])
        notes.append(f"{rest} more windows do not tell some coefficients")
    return notes


def uninformed_features(paths: CoefficientPaths) -> np.ndarray[Any, Any]:
    """Which coefficients each window does not inform, because its features do not vary by themselves: (m,
    p).
    """
    result = np.zeros(paths.coefficients.shape, dtype=bool)
    if paths.partial is not None:
        for window, root in zip(paths.partial.windows, paths.partial.roots, strict=True):
            size = np.sqrt((root**2).sum(axis=1))
            scaled = root / np.where(size > 0.0, size, 1.0)[:, None]
            left, values, _ = np.linalg.svd(scaled, full_matrices=True)
            rank = int((values > SEEN).sum())
            result[window] = np.abs(left[:, rank:]).max(axis=1, initial=0.0) > INVOLVED
    return result


def _numbers(places: Iterable[int]) -> str:
    return ", ".join(str(int(place) + 1) for place in places)


def published_findings(fit: InvariantSubspaceDecomposition, moments: WindowedMoments) -> list[str]:
    """Reasons for care after the published recipe, which has no tests to be in doubt about."""
    notes = _selection_finding(moments)
    if fit.varies_.all():
        notes.append("nothing counts as invariant: the result is an ordinary linear policy")
    return notes + _convergence_finding(fit)


def _selection_finding(moments: WindowedMoments) -> list[str]:
    shift = _selection_shift(moments)
    if shift <= SELECTIVE_SHIFT:
        return []
    return [
        "only chosen actions were used, and their features are far from centred"
        f" (mean shift {np.sqrt(shift):.1f} standard deviations): if the logging policy preferred"
        " some actions, the basis is distorted; log the offered actions"
    ]


def _convergence_finding(fit: InvariantSubspaceDecomposition) -> list[str]:
    return (
        [] if fit.converged_ else ["the search for the basis has not converged; treat the blocks with care"]
    )


def _selection_shift(moments: WindowedMoments) -> float:
    """Mean over windows of the squared Mahalanobis distance of the mean chosen features from zero, less its
    noise.

    Over the windows that vary in every direction.
    """
    singular = singular_roots(moments.chosen, moments.dim)
    regular = [window for window in range(moments.windows) if window not in singular]
    if not regular:
        return 0.0
    mean, counts = moments.feature_mean[regular], moments.counts[regular]
    solved = np.linalg.solve(moments.gram[regular] / counts[:, None, None], mean[:, :, None])[:, :, 0]
    return float((np.einsum("mi,mi->m", mean, solved) - moments.dim / counts).mean())


def block_spread(fit: InvariantSubspaceDecomposition, block: int) -> tuple[float, float]:
    """How far the coefficients of a block move from window to window, and their sampling error, per
    direction.

    The first is the standard deviation τ over windows beyond sampling noise, by moments: the Wald statistic
    exceeds its degrees of freedom by τ²·(Σ tr P_i − tr((ΣP_i)⁻¹ΣP_i²)), P_i the precisions (DerSimonian &
    Laird 1986). The second is the standard error in one window of a direction of average precision.
    """
    inside = direction_paths(fit, fit.blocks_[block])
    precisions = inside.precisions()
    m, d = inside.coefficients.shape
    known = m * d if inside.partial is None else informed_directions(precisions)
    error = inside.coefficients - inside.weighted_mean()[0]
    excess = np.einsum("mi,mij,mj->", error, precisions, error) - (known - d)
    total = precisions.sum(axis=0)
    leverage = np.trace(total) - np.trace(np.linalg.solve(total, (precisions @ precisions).sum(axis=0)))
    moved = excess / leverage if leverage > LEAST_LEVERAGE * np.trace(total) else 0.0
    return float(np.sqrt(max(moved, 0.0))), float(np.sqrt(known / np.trace(total)))


def direction_paths(fit: InvariantSubspaceDecomposition, columns: Array) -> CoefficientPaths:
    """Paths of the coordinates of γ along the given columns of the basis: γ_t = basis · coordinates.

    The basis of a whitened fit is not orthogonal, hence its inverse.
    """
    dual = np.linalg.inv(fit.basis_).T
    return fit.paths_.along(dual[:, columns])


def p_value_words(log_p: float) -> str:
    """A p-value for people, also far below what a float can hold."""
    if log_p > np.log(1e-4):
        return f"{np.exp(log_p):.3g}"
    exponent = int(np.floor(log_p / np.log(10.0)))
    leading = round(float(np.exp(log_p - exponent * np.log(10.0))))
    return f"{leading}e{exponent}" if leading < 10 else f"1e{exponent + 1}"


def summarize(fit: InvariantSubspaceDecomposition) -> str:
    """The table behind `summary()`; the overlapping windows of recipe="published" give no p-values and no
    drift sd.
    """
    published, split = fit.recipe_used_ == "published", fit.split_
    columns = "statistic" if published else "p-value   drift sd   error sd"
    lines = [
        "Invariant subspace decomposition" + (", published recipe" if published else ""),
        f"  rounds {fit.rounds_:,} in {fit.windows_} {'overlapping ' * published}windows, {split.dim}"
        f" features, basis from {fit.covariances_used_} actions",
        f"  stable: {split.invariant_dim} of {split.dim} dimensions"
        f"   drifting: {split.residual_dim}   noise sd {fit.noise_scale_:.3g}"
        f"   λ0 {fit.min_eigenvalue_:.3g}",
        "",
        f"  block  dim  verdict   {columns}   main features",
    ]
    for index, block in enumerate(fit.blocks_):
        if published:
            evidence = f"{fit.statistics_[index]:>9.3g}"
        else:
            drift, error = block_spread(fit, index)
            evidence = f"{p_value_words(fit.log_p_values_[index]):>7}   {drift:>8.3g}   {error:>8.3g}"
        verdict = "varies" if fit.varies_[index] else "stable"
        lines.append(
            f"  {index + 1:>5}  {len(block):>3}  {verdict:<8}  {evidence}   {main_features(fit, index)}"
        )
    if published:
        lines += [
            "",
            "  statistic: mean |correlation| of rest and prediction;"
            f" stable below {fit.threshold_:.3g} (cross-validated)",
            "  no p-values: this recipe does not test",
        ]
    else:
        lines += [
            "",
            f"  p-values: equal coefficients in all windows; level {fit.alpha:g} shared by the blocks",
        ]
    return "\n".join(lines + [f"  note: {finding}" for finding in fit.findings_])


def main_features(fit: InvariantSubspaceDecomposition, block: int) -> str:
    """Names of the features that weigh most in a block, at most five."""
    columns = fit.blocks_[block]
    weight = (fit.basis_[:, columns] ** 2).sum(axis=1)
    main = np.argsort(-weight, kind="stable")[: max(len(columns), 3)]
    names = fit.names(len(weight))
    return ", ".join(names[j] for j in main[:5])
