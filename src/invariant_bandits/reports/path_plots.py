"""The coefficient along each direction over the windows, one panel each; drawing only."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib import dates
from matplotlib.ticker import MaxNLocator

from invariant_bandits.charts import literal
from invariant_bandits.checks import Array
from invariant_bandits.decomposition.estimator import InvariantSubspaceDecomposition
from invariant_bandits.decomposition.invariance import constancy_test
from invariant_bandits.decomposition.joint_diagonalization import with_fixed_signs
from invariant_bandits.decomposition.paths import CoefficientPaths
from invariant_bandits.decomposition.summary import direction_paths, p_value_words

calendar: Any = dates  # has no types

COLUMNS = 4
ROW_HEIGHT = 1.75
LONGEST_NAME = 26
NOTE = "Coefficient along each direction, named by its main feature; bands: 95 % sampling error; p-value: of the block"


def principal_directions(fit: InvariantSubspaceDecomposition) -> Array:
    """The basis with each block turned to the axes along which its coefficients are known best: (p, p).

    Directions within a block are only defined as a group; this choice is the one people can read.
    """
    basis = np.array(fit.basis_)
    for block in fit.blocks_:
        precision = direction_paths(fit, block).precisions().sum(axis=0)
        _, vectors = np.linalg.eigh(precision)
        basis[:, block] = with_fixed_signs(basis[:, block] @ vectors[:, ::-1])
    return basis


def draw_paths(
    figure: Any, fit: InvariantSubspaceDecomposition, directions: int, colours: dict[str, str], edges: Any = None
) -> None:
    """One panel per direction, the strongest evidence of drift first; blocks have the numbers of the tables."""
    basis = principal_directions(fit)
    scale = np.sqrt(np.diagonal(basis.T @ fit.window_covariances_.mean(axis=0) @ basis))
    paths = fit.paths_.along(np.linalg.inv(basis).T * scale)
    values, variances = paths.singly()
    told = np.isfinite(variances)
    values, errors = np.where(told, values, np.nan), np.sqrt(np.where(told, variances, np.nan))  # gaps where silent
    order = _order(fit, paths)[:directions]
    columns = min(COLUMNS, directions)
    axes = figure.subplots(-(-directions // columns), columns, squeeze=False, sharex=True, sharey=True)
    time, name_of_time = _times(len(fit.coefficients_), edges)
    main = np.abs(basis * np.sqrt(np.diagonal(fit.window_covariances_.mean(axis=0)))[:, None]).argmax(axis=0)
    for axis, (block, j) in zip(axes.flat, order, strict=False):
        varies = bool(fit.varies_[block])
        colour = colours["varies" if varies else "stable"]
        value, error = values[:, j], 1.96 * errors[:, j]
        axis.axhline(0.0, color=colours["faint"], lw=0.8)
        axis.fill_between(time, value - error, value + error, color=colour, alpha=0.22, lw=0)
        axis.plot(time, value, color=colour, lw=1.6, ls="--" if varies else "-", marker="o", ms=2.6)
        if not varies:
            axis.axhline(_single(paths, j).weighted_mean()[0][0], color=colour, lw=0.8, ls=":")
        name = literal(fit.names(len(basis))[main[j]], LONGEST_NAME)
        verdict = f"block {block + 1} {'drifts' if varies else 'stable'}, p = {p_value_words(fit.log_p_values_[block])}"
        axis.set_title(f"{name}\n{verdict}", color=colour, fontsize=8.0)
    for axis in axes.flat[directions:]:
        axis.set_visible(False)
    axes[0, 0].set_ylim(*_readable_range(values[told], errors[told]))
    _label(axes, name_of_time)
    hidden = f" ({directions} of {len(basis)} shown)" if directions < len(basis) else ""
    figure.suptitle(NOTE + hidden, x=0.01, ha="left", fontsize=9.0)


def _order(fit: InvariantSubspaceDecomposition, paths: CoefficientPaths) -> list[tuple[int, int]]:
    """(block, direction) by the p-value of the block, then by that of the direction alone."""
    alone = [constancy_test(_single(paths, j)).log_p for j in range(paths.coefficients.shape[1])]
    every = [(block, int(j)) for block, members in enumerate(fit.blocks_) for j in members]
    return sorted(every, key=lambda pair: (fit.log_p_values_[pair[0]], pair[0], alone[pair[1]]))


def _times(windows: int, edges: Any) -> tuple[Any, str]:
    """Where the windows stand on the axis (m,), and what the axis is called."""
    if edges is None or len(edges) != windows + 1:
        return np.arange(1, windows + 1), "window"
    edges = np.asarray(edges)
    middle = edges[:-1] + np.diff(edges) / 2
    return middle, "" if edges.dtype.kind == "M" else "time"


def _label(axes: Any, name_of_time: str) -> None:
    """Names of the axes, once per row and column, and few ticks: dates, or whole numbers of windows."""
    first = axes[0, 0]
    if name_of_time == "":
        locator: Any = calendar.AutoDateLocator(minticks=2, maxticks=4)
        first.xaxis.set_major_locator(locator)
        first.xaxis.set_major_formatter(calendar.ConciseDateFormatter(locator))
    else:
        first.xaxis.set_major_locator(MaxNLocator(5, integer=name_of_time == "window"))
    for axis in axes[:, 0]:
        axis.set_ylabel("reward per sd")
    for column in axes.T:
        lowest = [axis for axis in column if axis.get_visible()][-1]
        lowest.set_xlabel(name_of_time)
        lowest.tick_params(labelbottom=True)


def _readable_range(values: Array, errors: Array) -> tuple[float, float]:
    """Limits that hold all bands of usual width: a window that knows nothing must not flatten the others."""
    sure = errors <= 4.0 * np.median(errors)
    low, high = float((values - 2.0 * errors)[sure].min()), float((values + 2.0 * errors)[sure].max())
    margin = 0.08 * (high - low)
    return min(low, 0.0) - margin, max(high, 0.0) + margin


def _single(paths: CoefficientPaths, j: int) -> CoefficientPaths:
    return paths.along(np.eye(paths.coefficients.shape[1])[:, [j]])
