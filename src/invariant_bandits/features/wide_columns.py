"""Wide vector columns: the few directions along which some arm's coefficients differ from zero.

An embedding of q numbers has q coefficients per arm, far more than a log can follow through time. A ridge
regression per arm shrinks them; the ridge is chosen by windows that the regression has not seen. The
coefficients of A arms span at most A directions, of which reduced-rank regression (Izenman 1975) keeps those
that predict the windows left out. To these come directions along which coefficients change between windows
by more than noise does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import linalg

from invariant_bandits.checks import Array
from invariant_bandits.features.columns import Column
from invariant_bandits.moments.power_sums import PowerSums

WIDE, WIDE_FOR_ROWS = 16, 128
"""Numbers of a vector column from which on it is reduced, where labelled arms have coefficients of their own,
and where all actions share theirs: of fewer a log can follow each coefficient through time.
"""
MOST_DIRECTIONS = 64
"""Directions that a wide column is reduced to at most."""
FOLDS = 4
"""Parts of the log, every fourth window each, that are left out in turn."""
RIDGES = np.geomspace(1e-4, 1e2, 13)
"""Candidates for the ridge, in units of the variance that the rounds of an arm have along a usual number."""
NEARLY_FREE = 1e-8
"""Ridge, in the same units, of the other features: it only keeps the equations solvable."""
NOISE_SCALES = 4.0
"""How far beyond the usual largest squared singular value of noise a direction of drift must be, in scales of
its Tracy–Widom law: noise is further in less than one of a thousand logs.
"""


@dataclass(frozen=True, eq=False)
class WideDirections:
    """Directions that a wide column is reduced to.

    Attributes
    ----------
    directions : array, shape (q, k)
        Columns are directions: first of coefficients that last, then of coefficients that drift.
    by_fold : array, shape (folds, q, k)
        The same, with lasting coefficients that are estimated without the windows of each fold.
    drifting : int
        How many of them, the last, are directions of drift.
    """

    directions: Array
    by_fold: Array
    drifting: int


@dataclass(frozen=True, eq=False)
class _CellSums:
    """Sums of d regressors over the rounds of A arms in m windows: Σzzᵀ, Σzr and rounds."""

    gram: Array
    cross: Array
    rounds: Array


def window_folds(windows: int) -> Array:
    """Which fold each window belongs to (m,)."""
    return np.arange(windows) % min(FOLDS, windows)


def wide_directions(
    sums: PowerSums,
    arms: int,
    columns: Sequence[Array],
) -> list[WideDirections]:
    """Find the directions of wide columns that predict the rewards of some arm in some window.

    Parameters
    ----------
    sums : PowerSums of d + 1 variables in m·A cells
        Of d encoded features and, last, the reward; cell i·A + a holds arm a in window i.
    arms : int
        A; 1 if the features tell actions apart.
    columns : sequence of arrays of int, shape (q,)
        Which of the d features are the numbers of each wide column.

    Returns
    -------
    list of WideDirections
        One for each column.
    """
    cells = _sums_about_mean(sums, arms)
    wide = np.concatenate(columns)
    folds = window_folds(len(cells.gram))
    whole = _added(cells, np.ones(len(folds), dtype=bool))
    left_out = [_added(cells, folds == fold) for fold in range(folds.max() + 1)]
    others = [_without(whole, part) for part in left_out]
    if len(others) == 1:
        others = [whole]
    ridge = _best_ridge(others, left_out, wide)
    coefficients = _ridge_coefficients(whole, wide, ridge)
    without_fold = [_ridge_coefficients(part, wide, ridge) for part in others]
    by_fold = np.stack(without_fold)
    result = []
    for column in columns:
        lasting = _predictive_combinations(
            whole, left_out, coefficients, by_fold, column
        )
        drift = _drifting_directions(cells, coefficients, sums, column)
        drift = drift[:, : MOST_DIRECTIONS - lasting.shape[1]]
        repeated = np.broadcast_to(drift, (len(by_fold), *drift.shape))
        lasting_by_fold = by_fold[:, column] @ lasting
        found = WideDirections(
            directions=np.hstack([coefficients[column] @ lasting, drift]),
            by_fold=np.concatenate([lasting_by_fold, repeated], axis=2),
            drifting=drift.shape[1],
        )
        result.append(found)
    return result


def _sums_about_mean(
    sums: PowerSums,
    arms: int,
) -> _CellSums:
    """Sums about the mean of the whole log, of a level and the d features."""
    share = sums.count / sums.count.sum()
    apart = sums.mean - share @ sums.mean
    n = sums.count[:, None]
    products = sums.scatter + (n * apart)[:, :, None] * apart[:, None, :]
    d = apart.shape[1] - 1
    gram = np.empty((len(n), d + 1, d + 1))
    gram[:, :d, :d] = products[:, :d, :d]
    # The level is the last regressor: Σ1·x = n·(mean − μ).
    gram[:, :d, d] = n * apart[:, :d]
    gram[:, d, :d] = gram[:, :d, d]
    gram[:, d, d] = sums.count
    cross = np.append(products[:, :d, d], n * apart[:, d:], axis=1)
    return _CellSums(
        gram.reshape(-1, arms, d + 1, d + 1),
        cross.reshape(-1, arms, d + 1),
        sums.count.reshape(-1, arms),
    )


def _added(
    cells: _CellSums,
    windows: Array,
) -> _CellSums:
    """Sums of every arm over some windows."""
    gram = cells.gram[windows].sum(axis=0)
    cross = cells.cross[windows].sum(axis=0)
    rounds = cells.rounds[windows].sum(axis=0)
    return _CellSums(gram, cross, rounds)


def _without(
    whole: _CellSums,
    part: _CellSums,
) -> _CellSums:
    gram = whole.gram - part.gram
    cross = whole.cross - part.cross
    return _CellSums(gram, cross, whole.rounds - part.rounds)


def _ridge_coefficients(
    sums: _CellSums,
    wide: Array,
    ridge: float,
) -> Array:
    """Coefficients (d + 1, A) by ridge regression, arm by arm; only wide columns feel the ridge."""
    _, _, width = sums.gram.shape
    total = sums.gram.sum(axis=0)
    usual = total.diagonal()[wide].mean() / max(sums.rounds.sum(), 1.0)
    penalty = np.full(width, NEARLY_FREE * (usual + total.diagonal().max()))
    variance_of_arm = usual * sums.rounds.mean()
    penalty[wide] = ridge * variance_of_arm + NEARLY_FREE * usual
    solutions = [
        linalg.solve(gram + np.diag(penalty), cross, assume_a="pos")
        for gram, cross in zip(sums.gram, sums.cross, strict=True)
    ]
    return np.stack(solutions, axis=1)


def _loss(
    left_out: _CellSums,
    coefficients: Array,
) -> float:
    """Squared error of coefficients (d + 1, A) in rounds that were left out, up to the rewards' own."""
    image = np.einsum("aij,ja->ia", left_out.gram, coefficients)
    return float(((image - 2.0 * left_out.cross.T) * coefficients).sum())


def _best_ridge(
    others: Sequence[_CellSums],
    left_out: Sequence[_CellSums],
    wide: Array,
) -> float:
    """Return the ridge whose coefficients predict the windows left out best."""
    losses = np.zeros(len(RIDGES))
    for index, ridge in enumerate(RIDGES):
        for training, test in zip(others, left_out, strict=True):
            coefficients = _ridge_coefficients(training, wide, ridge)
            losses[index] += _loss(test, coefficients)
    best = int(np.argmin(losses))
    return float(RIDGES[best])


def _predictive_combinations(
    whole: _CellSums,
    left_out: Sequence[_CellSums],
    coefficients: Array,
    by_fold: Array,
    column: Array,
) -> Array:
    """Combinations (A, k) of the arms' coefficients for a column that suffice to predict windows left out.

    Coefficients are weighted by the rounds of their arms and by the covariance of the column, so that
    singular values measure what a direction adds to the predictions.
    """
    weight = np.sqrt(np.maximum(whole.rounds, 1.0))
    covariance = whole.gram.sum(axis=0)[np.ix_(column, column)] / whole.rounds.sum()
    values, vectors = np.linalg.eigh(covariance)
    root = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
    strengths = root @ coefficients[column] * weight
    _, _, right = np.linalg.svd(strengths, full_matrices=False)
    losses = []
    most = min(len(right), MOST_DIRECTIONS)
    for rank in range(1, most + 1):
        combine = weight[:, None] * right[:rank].T
        project = combine @ (right[:rank] / weight)
        reduced = by_fold.copy()
        reduced[:, column] = by_fold[:, column] @ project
        losses.append(sum(map(_loss, left_out, reduced)))
    rank = 1 + int(np.argmin(losses))
    return np.asarray(weight[:, None] * right[:rank].T)


def _drifting_directions(
    cells: _CellSums,
    coefficients: Array,
    sums: PowerSums,
    column: Array,
) -> Array:
    """Directions (q, k) along which coefficients of some arm change between windows by more than noise.

    The scores of a cell, Σ(x − x̄)(r − r̄ − ẑᵀb), have covariance n·s²·Σ if nothing drifts. Whitened, they are
    noise whose largest singular value is about √q + √cells (Johnstone 2001). Cells with fewer than q rounds
    say nothing: the scores of so few need not be normal.
    """
    m, arms, _ = cells.cross.shape
    d = len(coefficients) - 1
    slopes = np.tile(coefficients[:d].T, (m, 1))
    expected = np.einsum("cij,cj->ci", sums.scatter[:, column, :d], slopes)
    scores = sums.scatter[:, column, d] - expected
    explained = (sums.scatter[:, :d, d] * slopes).sum()
    unexplained = sums.scatter[:, d, d].sum() - explained
    # A ridge leaves some of an arm's lasting coefficients: what all its windows share is not drift.
    by_arm = scores.reshape(m, arms, -1)
    share = cells.rounds / np.maximum(cells.rounds.sum(axis=0), 1.0)
    by_arm = by_arm - share[:, :, None] * by_arm.sum(axis=0)
    used = cells.rounds >= len(column)
    within = sums.scatter[:, column[:, None], column].sum(axis=0) / sums.count.sum()
    values, vectors = np.linalg.eigh(within)
    informed = values > 1e-9 * values[-1]
    whiten = vectors[:, informed] / np.sqrt(values[informed])
    noise = np.sqrt(max(unexplained, 0.0) / sums.count.sum())
    if not used.any() or noise == 0.0:
        return np.zeros((len(column), 0))
    deviation = noise * np.sqrt(cells.rounds[used])
    scaled = by_arm[used] / deviation[:, None]
    left, strength, _ = np.linalg.svd(whiten.T @ scaled.T, full_matrices=False)
    roots = np.sqrt([informed.sum(), used.sum()])
    usual = roots.sum() ** 2
    scale = roots.sum() * (1.0 / roots).sum() ** (1.0 / 3.0)
    beyond_noise = strength**2 > usual + NOISE_SCALES * scale
    return np.asarray(whiten @ left[:, beyond_noise])


def cross_fitted(
    sums: PowerSums,
    refitted: PowerSums,
    arms: int,
    changes: Sequence[Array],
) -> PowerSums:
    """Sums over the reduced features, each window with directions that were found without it.

    Directions found in the same rounds would fit their noise, and what they promise would not last.

    Parameters
    ----------
    sums : PowerSums of d + 1 variables
        Of the features before they are reduced.
    refitted : PowerSums of d' + 1 variables
        Of the reduced features, with the directions of the whole log; its higher powers stay.
    arms : int
        A; cell i·A + a holds arm a in window i.
    changes : sequence of arrays, shape (d' + 1, d + 1)
        For every fold, what makes reduced features of the others.
    """
    fold = np.repeat(window_folds(len(sums.count) // arms), arms)
    mean = refitted.mean.copy()
    scatter = refitted.scatter.copy()
    for index, change in enumerate(changes):
        cells = fold == index
        mean[cells] = sums.mean[cells] @ change.T
        scatter[cells] = change @ sums.scatter[cells] @ change.T
    return replace(refitted, mean=mean, scatter=scatter)


def is_wide(column: Column, *, of_arms: bool) -> bool:
    """Whether a column is reduced: a vector of many numbers, not reduced yet."""
    least = WIDE if of_arms else WIDE_FOR_ROWS
    return column.directions is None and (column.width or 0) >= least


def reduced_columns(
    columns: Sequence[Column],
    sums: PowerSums,
    arms: int,
    *,
    of_arms: bool,
) -> tuple[tuple[Column, ...], list[Array]]:
    """Return the columns, wide ones with directions, and for every fold what makes their features.

    Parameters
    ----------
    columns : sequence of Column
        Columns whose features, in their order, are the variables of `sums` before the reward.
    sums : PowerSums of d + 1 variables
        As in `wide_directions`.
    arms : int
        A.
    of_arms : bool
        Whether the log has labelled arms, whose contexts begin with a 1.
    """
    level = int(of_arms)
    ends = level + np.cumsum([len(column.features) for column in columns])
    numbers = [
        np.arange(column.width or 0) + end - len(column.features)
        for column, end in zip(columns, ends, strict=True)
        if is_wide(column, of_arms=of_arms)
    ]
    reductions = iter(wide_directions(sums, arms, numbers))
    reduced: list[Column] = []
    # What each fold does to the variables, block by block; the last is the reward.
    blocks: list[list[Array]] = [[np.eye(level)] for _ in range(FOLDS)]
    for column in columns:
        kept = len(column.features)
        if is_wide(column, of_arms=of_arms):
            kept = int(column.marks_missing)
            reduction = next(reductions)
            column = replace(column, directions=reduction.directions)
            for fold, directions in zip(blocks, reduction.by_fold, strict=False):
                fold.append(directions.T)
        reduced.append(column)
        for fold in blocks:
            fold.append(np.eye(kept))
    folds = blocks[: window_folds(len(sums.count) // arms).max() + 1]
    changes = [linalg.block_diag(*fold, np.eye(1)) for fold in folds]
    return tuple(reduced), changes


def reduction_notes(columns: Sequence[Column]) -> list[str]:
    """Return what became of wide columns, in words."""
    notes = []
    for column in columns:
        if column.directions is not None:
            count = column.directions.shape[1]
            reduced = "1 direction" if count == 1 else f"{count} directions"
            notes.append(
                f"{column.name}: {column.width} numbers reduced to {reduced}"
                " along which the reward of some action changes"
            )
    return notes
