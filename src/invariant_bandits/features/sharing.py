"""Which coefficients every arm has of its own, as far as a log can estimate them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from invariant_bandits.checks import (
    Array,
)
from invariant_bandits.features.catalogue import LEAST_SCALE
from invariant_bandits.features.collinearity import TOLERANCE
from invariant_bandits.moments.windowed import WindowedMoments

MOST_DENSE_COEFFICIENTS = 200
"""Own coefficients of all arms together up to which their covariances are one matrix: a round then takes at
most 1 ms. Beyond, every arm has a covariance of its own, and a catalogue no longer relates arms."""
MOST_COEFFICIENTS = 1500
"""Coefficients of a model of labelled arms: the moments of 8 windows then take 150 MB."""
ROUNDS_PER_COEFFICIENT = 10
"""Rounds per coefficient from which on own slopes are estimated whatever the log shows."""
FEWEST_ROUNDS_PER_COEFFICIENT = 2
"""The same where the log shows that the slopes of arms differ. In simulated logs with 2 rounds for each
of 105 coefficients own slopes then earned .6 of what the best linear policy could, shared ones nothing. Where
slopes did not differ, own ones cost 0.14 standard deviations of the noise with 4 rounds per coefficient.
"""
MOST_CROSSED_COEFFICIENTS = 150
"""Coefficients of a model with products of slopes and features of arms."""
BINARY_ROUNDING = 1e-9
"""Relative error of sums of powers of rewards that are 0 or 1."""


def has_binary_rewards(moments: WindowedMoments) -> bool:
    """Return whether every reward is 0 or 1: Σ r²(r − 1)² = 0."""
    sums = moments.chosen.grouped(np.array([0])).about_zero()
    squares = sums.scatter[0, -1, -1]
    cubes = sums.cubes[0, -1]
    quartics = sums.quartics[0, -1]
    # Of 0 and 1 all powers are equal; the sums are accurate up to rounding.
    excess = quartics - 2.0 * cubes + squares
    return bool(abs(excess) <= BINARY_ROUNDING * squares)


def effective_rounds(moments: WindowedMoments) -> int:
    """Return the number of rounds or, of n binary rewards with mean π, 4nπ(1 − π): as many with mean ½."""
    if not has_binary_rewards(moments):
        return int(moments.rounds)
    mean = moments.chosen.grouped(np.array([0])).mean[0, -1]
    return int(4.0 * moments.rounds * mean * (1.0 - mean))


def crossings(arms: int, slopes: int, names: int, rounds: float) -> int:
    """Return how many catalogue features get products with the slopes.

    As many as a log of `rounds` can estimate, at most `names`.

    >>> log = {"arms": 34, "slopes": 20, "names": 4}
    >>> crossings(**log, rounds=5000), crossings(**log, rounds=600)
    (4, 0)
    """
    most = min(MOST_CROSSED_COEFFICIENTS, int(rounds) // ROUNDS_PER_COEFFICIENT)
    left = most - arms - slopes
    per_feature = max(slopes, 1)
    return min(max(left // per_feature, 0), names)


def needs_blocks(arms: int, own: int) -> bool:
    """Whether arms with so many coefficients of their own have a covariance each, not one matrix for all."""
    return arms > 1 and own > 1 and arms * own > MOST_DENSE_COEFFICIENTS


def most_own_coefficients(arms: int, width: int) -> int:
    """Return how many of `width` coefficients every arm can have of its own in a model that can be fitted."""
    if arms * width <= MOST_COEFFICIENTS:
        return width
    return (MOST_COEFFICIENTS - width) // (arms - 1)


class Coding(NamedTuple):
    """Which coefficients arms share.

    Attributes
    ----------
    coding : str
        "own" or "shared", or "partial": some slopes are own, the others shared.
    own : int
        Number of coefficients that every arm has of its own, the level included.
    reason : str
        Why.
    """

    coding: str
    own: int
    reason: str


def chosen_coding(
    arm_model: str,
    arms: int,
    width: int,
    rounds: int,
    *,
    crossed: int = 0,
    differ: bool = True,
) -> Coding:
    """Return which of their d = `width` coefficients arms share.

    Own slopes are drawn to those of the other arms, so they cost little where arms do not differ. If arms
    have a covariance each, that is left to the fit: differences that cannot be seen are shrunk away. Of
    rewards that are 0 or 1, n rounds with mean π count for 4nπ(1 − π): what as many with mean ½ would tell.

    Parameters
    ----------
    arm_model : str
        What the caller asked for: "own", "shared" or "auto".
    arms, width, rounds : int
        Number of arms, coefficients of each, and rounds of the log.
    crossed : int
        Number of catalogue features whose products with shared slopes explain how the slopes of arms differ.
    differ : bool
        Whether the log shows that the slopes of arms differ.

    >>> chosen_coding("auto", 8, 19, 40_000)
    Coding(coding='own', own=19, reason='8 arms × 19 coefficients')
    >>> chosen_coding("auto", 6, 257, 40_000)[:2]
    ('partial', 248)
    """
    if arm_model != "auto":
        return Coding(arm_model, width if arm_model == "own" else 1, "as asked for")
    coefficients = arms * width
    product = f"{arms} arms × {width} coefficients"
    is_plenty = rounds >= ROUNDS_PER_COEFFICIENT * coefficients
    if crossed and not (is_plenty and coefficients <= MOST_CROSSED_COEFFICIENTS):
        explained = "features of the arms explain how slopes differ"
        return Coding("shared", 1, f"{explained}, {crossed} of them are crossed")
    if arms < 2:
        return Coding("own", width, product)
    supported = rounds // (FEWEST_ROUNDS_PER_COEFFICIENT * arms)
    carried = most_own_coefficients(arms, width)
    is_judged = needs_blocks(arms, width) and width <= supported
    if not (is_judged or is_plenty or differ):
        unseen = "no difference between the slopes of arms can be seen"
        few = f"fewer than {ROUNDS_PER_COEFFICIENT} per coefficient, {coefficients:,} of them"
        return Coding("shared", 1, f"{unseen} in {rounds:,} rounds, {few}")
    if width <= min(supported, carried):
        return Coding("own", width, product)
    why = f"{product} are {coefficients:,}, more than {MOST_COEFFICIENTS:,}"
    if supported < carried:
        few = f"fewer than {FEWEST_ROUNDS_PER_COEFFICIENT} per coefficient, {coefficients:,} of them"
        why = f"{rounds:,} rounds are {few}"
    own = min(supported, carried)
    if own < 2:
        return Coding("shared", 1, why)
    why += f"; own slopes for the {own - 1} of {width - 1} that differ most"
    return Coding("partial", own, why)


def sums_by_arm(
    cells: WindowedMoments, arms: int, columns: Array
) -> tuple[Array, Array, Array]:
    """Return Σxxᵀ (A, k, k), Σxr (A, k) and Σr² (A,) of columns x of the contexts.

    They are about the means of every window and arm.
    """
    size = cells.dim + 1
    by_window = cells.chosen.scatter.reshape(-1, arms, size, size)
    sums = by_window.sum(axis=0)
    gram = sums[:, columns[:, None], columns]
    cross = sums[:, columns, -1]
    return gram, cross, sums[:, -1, -1]


CLEARLY_MORE = 3.0
"""Standard errors by which own slopes must explain more than shared ones; by chance one log in 300 does."""


def slopes_differ(cells: WindowedMoments, columns: Array, catalogue: Array) -> bool:
    """Return whether own slopes explain more of the rewards than slopes that are linear in the catalogue.

    What more they explain is χ² with as many degrees of freedom as they have coefficients more, if the slopes
    of arms are linear in the catalogue's features or, if it has none, the same for all arms.

    Parameters
    ----------
    cells : WindowedMoments
        Moments of contexts, a window per window and arm.
    columns : array of int, shape (k,)
        Entries of the contexts that have slopes.
    catalogue : array, shape (A, c)
        Features of the arms.
    """
    arms, crossed = catalogue.shape
    slopes = len(columns)
    if not slopes:
        return False
    gram, cross, squares = sums_by_arm(cells, arms, columns)
    own = sum(_explained(G, c) for G, c in zip(gram, cross, strict=True))
    kinds = np.column_stack([np.ones(arms), catalogue])
    # Normal equations of slopes that are B f(a): the rows of their design are f(a) ⊗ x.
    size = kinds.shape[1] * slopes
    joint = np.zeros((size, size))
    pull = np.zeros(size)
    for f, G, c in zip(kinds, gram, cross, strict=True):
        joint += np.kron(np.outer(f, f), G)
        pull += np.kron(f, c)
    # One level for every window and arm with rounds, and the slopes.
    estimated = int((cells.counts > 0).sum()) + arms * slopes
    freedom = float(cells.counts.sum()) - estimated
    more = slopes * (arms - 1 - crossed)
    total = float(squares.sum())
    left = total - own
    if more <= 0 or freedom <= 0.0:
        return False
    if left <= TOLERANCE * total:
        return True  # rewards without noise leave nothing to chance
    gain = own - _explained(joint, pull)
    excess = gain * freedom / left - more
    return bool(excess > CLEARLY_MORE * np.sqrt(2.0 * more))


def _explained(gram: Array, cross: Array) -> float:
    """Sum of squares that the least-squares coefficients explain; a faint ridge makes the sums regular."""
    level = max(float(np.diagonal(gram).mean()), LEAST_SCALE)
    ridge = TOLERANCE * level * np.eye(len(gram))
    solved = np.linalg.solve(gram + ridge, cross)
    return float(cross @ solved)


def most_different_slopes(
    cells: WindowedMoments, arms: int, columns: Array, count: int
) -> list[int]:
    """Return the indices in `columns` of the slopes that differ most between arms, at most `count`.

    One after the other, the column is taken whose own slopes explain more of the rewards than one shared
    slope by the largest sum of squares; then it is regressed out of the others, arm by arm.

    Parameters
    ----------
    cells : WindowedMoments
        Moments of contexts, a window per window and arm.
    arms : int
        Number of arms A.
    columns : array of int, shape (k,)
        Entries of the contexts to choose from.
    count : int
        Number of columns to take.
    """
    gram, cross, _ = sums_by_arm(cells, arms, columns)
    least = TOLERANCE * np.einsum("akk->ak", gram).max(axis=0)
    taken: list[int] = []
    for _ in range(min(count, len(columns))):
        size = np.einsum("akk->ak", gram)
        known = size > np.maximum(least, 0.0)
        pull = np.where(known, cross, 0.0)
        size = np.where(known, size, 1.0)
        total = np.where(known, size, 0.0).sum(axis=0)
        # Sums of squares that one shared slope explains, and what own slopes explain more.
        divisor = np.where(total > 0.0, total, 1.0)
        shared = pull.sum(axis=0) ** 2 / divisor
        own = (pull**2 / size).sum(axis=0)
        gain = own - shared
        gain[taken] = -np.inf
        best = int(gain.argmax())
        taken.append(best)
        # Gram-Schmidt: regress the column out of the others and of the rewards.
        pivot = size[:, [best]]
        along = np.where(known[:, [best]], gram[:, best] / pivot, 0.0)
        cross = cross - along * cross[:, [best]]
        explained = along[:, :, None] * gram[:, None, best]
        gram = gram - explained
    return taken
