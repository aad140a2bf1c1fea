"""What a fitted decomposition says in words: the summary table and the things to be careful about."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.decomposition.paths import CoefficientPaths

if TYPE_CHECKING:
    from invariant_bandits.decomposition.estimator import InvariantSubspaceDecomposition
    from invariant_bandits.moments.windowed import WindowedMoments

SELECTIVE_SHIFT = 0.1
HEAVY_TAILS = 1.5
ROUNDS_PER_FEATURE = 5


def findings(fit: InvariantSubspaceDecomposition, moments: WindowedMoments) -> list[str]:
    """Reasons for care, in words; empty when there are none."""
    found = []
    p = moments.dim
    if fit.covariances_used_ == "chosen":
        found = _selection_finding(moments)
        if not found and moments.offered is None:
            found.append("the log has chosen actions only; offered actions would give a more accurate basis")
    fewest = int(moments.counts.min())
    if fewest < ROUNDS_PER_FEATURE * p:
        found.append(f"few rounds per window: {fewest} for {p} features; {ROUNDS_PER_FEATURE * p} or more are better")
    if float(fit.tail_weights_.mean()) > HEAVY_TAILS:
        found.append(
            f"heavy-tailed features: the variance of correlations is inflated {fit.tail_weights_.mean():.1f}-fold;"
            " the tests allow for it, extreme rows still weigh much"
        )
    undecided = np.flatnonzero(
        (fit.log_p_values_ > np.log(0.01 * fit.alpha / len(fit.blocks_))) & (fit.log_p_values_ < np.log(0.05))
    )
    if len(undecided):
        listed = ", ".join(str(block + 1) for block in undecided)
        found.append(f"weak evidence: block {listed} is close to the line between stable and varying")
    return found + _convergence_finding(fit)


def published_findings(fit: InvariantSubspaceDecomposition, moments: WindowedMoments) -> list[str]:
    """Reasons for care after the published recipe, which has no tests to be in doubt about."""
    found = _selection_finding(moments)
    if fit.varies_.all():
        found.append("nothing counts as invariant: the result is an ordinary linear policy")
    return found + _convergence_finding(fit)


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
    return [] if fit.converged_ else ["the search for the basis has not converged; treat the blocks with care"]


def _selection_shift(moments: WindowedMoments) -> float:
    """Mean over windows of the squared Mahalanobis distance of the mean chosen features from zero, less its noise."""
    mean, covariance = moments.feature_mean, moments.gram / moments.counts[:, None, None]
    solved = np.linalg.solve(covariance, mean[:, :, None])[:, :, 0]
    return float((np.einsum("mi,mi->m", mean, solved) - moments.dim / moments.counts).mean())


def block_spread(fit: InvariantSubspaceDecomposition, block: int) -> tuple[float, float]:
    """How far the coefficients of a block move from window to window, and their sampling error, per direction.

    The first is the standard deviation τ over windows beyond sampling noise, by moments: the Wald statistic exceeds
    its degrees of freedom by τ²·(Σ tr P_i − tr((ΣP_i)⁻¹ΣP_i²)), P_i the precisions (DerSimonian & Laird 1986). The
    second is the standard error in one window of a direction of average precision.
    """
    inside = direction_paths(fit, fit.blocks_[block])
    precisions = np.linalg.inv(inside.covariances)
    m, d = inside.coefficients.shape
    error = inside.coefficients - inside.weighted_mean()[0]
    excess = np.einsum("mi,mij,mj->", error, precisions, error) - (m - 1) * d
    total = precisions.sum(axis=0)
    leverage = np.trace(total) - np.trace(np.linalg.solve(total, (precisions @ precisions).sum(axis=0)))
    return float(np.sqrt(max(excess / leverage, 0.0))), float(np.sqrt(m * d / np.trace(total)))


def direction_paths(fit: InvariantSubspaceDecomposition, columns: Array) -> CoefficientPaths:
    """Paths of the coordinates of γ along the given columns of the basis: γ_t = basis · coordinates.

    The basis of a whitened fit is not orthogonal, hence its inverse.
    """
    dual = np.linalg.inv(fit.basis_).T
    return CoefficientPaths(fit.coefficients_, fit.coefficient_covariances_).along(dual[:, columns])


def p_value_words(log_p: float) -> str:
    """A p-value for people, also far below what a float can hold."""
    if log_p > np.log(1e-4):
        return f"{np.exp(log_p):.3g}"
    exponent = int(np.floor(log_p / np.log(10.0)))
    leading = round(float(np.exp(log_p - exponent * np.log(10.0))))
    return f"{leading}e{exponent}" if leading < 10 else f"1e{exponent + 1}"


def summarize(fit: InvariantSubspaceDecomposition) -> str:
    """The table behind `summary()`."""
    lines = _heading(fit, "Invariant subspace decomposition", "windows")
    lines += ["", "  block  dim  verdict   p-value   drift sd   error sd   main features"]
    for index in range(len(fit.blocks_)):
        drift, error = block_spread(fit, index)
        lines.append(
            f"{_verdict(fit, index)}  {p_value_words(fit.log_p_values_[index]):>7}   {drift:>8.3g}   {error:>8.3g}"
            f"   {main_features(fit, index)}"
        )
    lines += ["", f"  p-values: equal coefficients in all windows; level {fit.alpha:g} shared by the blocks"]
    lines += [f"  note: {finding}" for finding in fit.findings_]
    return "\n".join(lines)


def summarize_published(fit: InvariantSubspaceDecomposition) -> str:
    """The table behind `summary()` for recipe="published"; overlapping windows give no p-values and no drift sd."""
    lines = _heading(fit, "Invariant subspace decomposition, published recipe", "overlapping windows")
    lines += ["", "  block  dim  verdict   statistic   main features"]
    for index in range(len(fit.blocks_)):
        lines.append(f"{_verdict(fit, index)}  {fit.statistics_[index]:>9.3g}   {main_features(fit, index)}")
    lines += [
        "",
        f"  statistic: mean |correlation| of rest and prediction; stable below {fit.threshold_:.3g} (cross-validated)",
        "  no p-values: this recipe does not test",
    ]
    lines += [f"  note: {finding}" for finding in fit.findings_]
    return "\n".join(lines)


def _heading(fit: InvariantSubspaceDecomposition, title: str, windows: str) -> list[str]:
    split = fit.split_
    return [
        title,
        f"  rounds {fit.rounds_:,} in {fit.windows_} {windows}, {split.dim} features,"
        f" basis from {fit.covariances_used_} actions",
        f"  stable: {split.invariant_dim} of {split.dim} dimensions"
        f"   drifting: {split.residual_dim}   noise sd {fit.noise_scale_:.3g}"
        f"   λ0 {fit.min_eigenvalue_:.3g}",
    ]


def _verdict(fit: InvariantSubspaceDecomposition, block: int) -> str:
    return f"  {block + 1:>5}  {len(fit.blocks_[block]):>3}  {'varies' if fit.varies_[block] else 'stable':<8}"


def main_features(fit: InvariantSubspaceDecomposition, block: int) -> str:
    """Names of the features that weigh most in a block, at most five."""
    columns = fit.blocks_[block]
    weight = (fit.basis_[:, columns] ** 2).sum(axis=1)
    main = np.argsort(-weight, kind="stable")[: max(len(columns), 3)]
    names = fit.names(len(weight))
    return ", ".join(names[j] for j in main[:5])
