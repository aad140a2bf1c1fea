"""Propensities that the log does not hold, estimated: a conditional logistic model of which action was chosen."""

from __future__ import annotations

from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError, number_between, whole_number
from invariant_bandits.logs.feedback import Feedback
from invariant_bandits.logs.stored_rows import RowCollector

MOST_STEPS = 100
SMALL_GAIN = 1e-10
BENDING_PARTS = 8
CONSTANT = (
    1e-20  # of its mean square: a feature that varies less within rounds, such as one of the context, says nothing
)


def estimate_propensities(
    feedback: Feedback, *, earlier: Feedback | None = None, blocks: int = 5, floor: float = 1e-3
) -> Any:
    """Propensities of all offered actions, softmax(θᵀφ) within each round (McFadden 1974).

    Every block of rounds gets the θ of all blocks before it and of `earlier`. Without `earlier` the first gets that of
    the second (choices are predicted here, never rewards). Assumes that the logging policy saw nothing but these
    features and chose by a score linear in them: look at `calibration` of the result.

    Parameters
    ----------
    feedback : Feedback
        n rounds with `rows` offered actions.
    earlier : Feedback, optional
        Rounds before these.
    blocks : int
        Into how many stretches the rounds are cut, at least 2.
    floor : float
        No action gets less. For a round of K actions it is at most 1/K.

    Returns
    -------
    array, shape (rows,)
        They add up to 1 in every round. StoredRows if they are too many for memory.

    >>> import numpy as np
    >>> from invariant_bandits.logs.feedback import Feedback
    >>> from invariant_bandits.evaluation.propensities import estimate_propensities
    >>> rng = np.random.default_rng(0)
    >>> offered = rng.normal(size=(5000, 3, 2))
    >>> actions = (offered[:, :, 0] + rng.gumbel(size=(5000, 3))).argmax(axis=1)
    >>> feedback = Feedback.from_arrays(offered, actions, np.zeros(5000))
    >>> right = np.exp(offered[-1, :, 0]) / np.exp(offered[-1, :, 0]).sum()
    >>> bool(np.abs(estimate_propensities(feedback)[-3:] - right).max() < 0.05)
    True
    """
    number_between("floor", floor, 0.0, 1.0)
    whole_number("blocks", blocks, 2)
    if feedback.rounds < 2 * blocks:
        raise InputError(f"at least {2 * blocks} rounds are needed for {blocks} blocks, got {feedback.rounds}")
    edges = np.linspace(0, feedback.rounds, blocks + 1).round().astype(int)
    chances = RowCollector()
    theta = np.zeros(feedback.dim)
    for b in range(blocks):
        known = [] if earlier is None else [earlier]
        if b > 0:
            known.append(feedback.between(0, int(edges[b])))
        elif earlier is None:
            known.append(feedback.between(int(edges[1]), int(edges[2])))
        theta = fit_choices(known, start=theta)
        for part in feedback.between(int(edges[b]), int(edges[b + 1])).parts():
            least = np.repeat(np.minimum(floor, 1.0 / part.counts), part.counts)
            spare = 1.0 - least * np.repeat(part.counts, part.counts)
            chances.append(least + spare * _choice_chances(part, theta))
    return chances.rows()


def fit_choices(parts: list[Feedback], *, start: Array | None = None) -> Array:
    """θ of the conditional logistic model of the logged actions, by Newton's method.

    The penalty on every coefficient is worth one round in which its feature has its usual spread, so that choices that
    a feature predicts perfectly do not send it to infinity. Of rounds in many parts, a few parts say how the likelihood
    bends, all of them how it slopes: steps are a little less good, the maximum is the same.

    Parameters
    ----------
    parts : list of Feedback
        The rounds to fit on.
    start : array, shape (p,), optional
        Where the search starts, 0 if not given.

    Returns
    -------
    array, shape (p,)
        θ.
    """
    p = parts[0].dim
    rows = sum(len(part.offered) for part in parts)
    spread, squares = np.zeros(p), np.zeros(p)
    for part in (part for whole in parts for part in whole.parts()):
        spread = spread + ((part.offered - _round_means(part)) ** 2).sum(axis=0)
        squares = squares + np.einsum("np,np->p", part.offered, part.offered)
    penalty = np.where(spread > CONSTANT * squares, spread / rows, 1.0)
    theta = np.zeros(p) if start is None else start.copy()
    value, gradient, curvature = _likelihood(parts, theta, penalty)
    for _ in range(MOST_STEPS):
        step = np.linalg.solve(curvature, gradient)
        promised = float(gradient @ step)
        if promised <= SMALL_GAIN * (1.0 + abs(value)):
            break
        size = 1.0
        while size > 1e-6:
            tried = _likelihood(parts, theta + size * step, penalty)
            if tried[0] >= value + 0.1 * size * promised:
                break
            size *= 0.5
        else:
            break
        theta = theta + size * step
        value, gradient, curvature = tried
    return theta


def _choice_chances(feedback: Feedback, theta: Array) -> Array:
    """softmax(φᵀθ) within each round (rows,)."""
    score = feedback.offered @ theta
    score -= np.repeat(np.maximum.reduceat(score, feedback.starts[:-1]), feedback.counts)
    raised = np.exp(score)
    return np.asarray(raised / np.repeat(feedback.sums_per_round(raised), feedback.counts))


def _round_means(feedback: Feedback) -> Array:
    """Mean features of the round, for every row (rows, p)."""
    mean = feedback.sums_per_round(feedback.offered) / feedback.counts[:, None]
    return np.repeat(mean, feedback.counts, axis=0)


def _likelihood(parts: list[Feedback], theta: Array, penalty: Array) -> tuple[float, Array, Array]:
    """Penalised log-likelihood, its gradient (p,) and minus its second derivatives (p, p)."""
    value = -0.5 * float(penalty @ theta**2)
    gradient, curvature = -penalty * theta, np.diag(penalty)
    rows, seen, bent = sum(len(part.offered) for part in parts), 0, 0
    for part in (part for whole in parts for part in whole.parts()):
        chances = _choice_chances(part, theta)
        with np.errstate(divide="ignore"):
            value += float(np.log(chances[part.logged_rows]).sum())
        before, seen = seen, seen + len(part.offered)
        if before * BENDING_PARTS // rows == seen * BENDING_PARTS // rows:
            gradient = gradient + part.features.sum(axis=0) - chances @ part.offered
            continue
        mean = part.sums_per_round(chances[:, None] * part.offered)
        away = part.offered - np.repeat(mean, part.counts, axis=0)
        gradient = gradient + (part.features - mean).sum(axis=0)
        curvature = curvature + away.T @ (chances[:, None] * away)
        bent += len(part.offered)
    if bent < rows:
        curvature = curvature + (curvature - np.diag(penalty)) * (rows / bent - 1.0)
    return value, gradient, curvature
