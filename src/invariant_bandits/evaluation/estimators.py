"""Off-policy estimators: what a target policy would have earned per round, from rounds that another policy chose.

The target is given as `target` (rows,), its probability of every offered action in every round, as
`playing.target_probabilities` returns it: the value estimated is then the mean over rounds of the value of the policy
as it was in that round, having learned from the log up to there. `replay` and `exact` take the policy itself. All
assume that the log holds everything that the logging policy looked at.

An estimator refuses to conclude, with an infinite interval and its reasons, if
* the weighted rounds are worth fewer than MIN_EFFECTIVE rounds of the target's own, or one round carries more than
  LARGEST_SHARE of the weight;
* the mean weight, whose expectation is 1, differs from 1 by more than UNSUPPORTED and by more than four standard
  errors: below, the target plays what the log never plays; above, the propensities are too small;
* the rewards do not say how large others may be (`reasons_in_rewards`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError, finite_array
from invariant_bandits.evaluation.blocks import mean_and_error
from invariant_bandits.evaluation.intervals import Estimate, estimated
from invariant_bandits.evaluation.playing import Player, Progress, played_rewards, replayed_rounds
from invariant_bandits.evaluation.registry import estimator
from invariant_bandits.evaluation.reward_model import Predictions, predict_rewards
from invariant_bandits.logs.feedback import Feedback, Whole
from invariant_bandits.logs.stored_rows import StoredRows

MIN_EFFECTIVE = 50.0
LARGEST_SHARE = 0.1
UNSUPPORTED = 0.05

DIRECT_ASSUMPTION = (
    "assumes that rewards are linear in the features, with coefficients that hold for actions the log does not choose"
    " and that change slowly; where this fails the interval is wrong however many rounds there are, and a policy that"
    " learned from the same rewards looks better than it is"
)


@estimator("IPS", rank=2)
def ips(feedback: Feedback, target: Array, *, weights: Array | None = None, confidence: float = 0.95) -> Estimate:
    """Inverse propensity scoring (Horvitz & Thompson 1952): mean of w·r, w = target / propensity.

    Unbiased if the propensities are right. Its variance grows with the weights and with the mean reward.

    Parameters
    ----------
    feedback : Feedback
        n rounds with propensities.
    target : array, shape (rows,)
        Probabilities of all offered actions under the target policy.
    weights : array, shape (n,), optional
        Their `importance_weights`, if they are known.
    confidence : float
        Coverage of the interval.

    Returns
    -------
    Estimate
        Reward per round.
    """
    weights = importance_weights(feedback, target) if weights is None else weights
    effective, reasons = support(weights)
    return estimated(
        weights * feedback.rewards,
        ones(feedback.rounds),
        effective_sample=effective,
        confidence=confidence,
        reasons=reasons,
        rewards=feedback.rewards,
        expected=0.0,
        reach=weights,
    )


@estimator("SNIPS", rank=1)
def snips(feedback: Feedback, target: Array, *, weights: Array | None = None, confidence: float = 0.95) -> Estimate:
    """Self-normalised IPS (Swaminathan & Joachims 2015): Σ w·r / Σ w. Parameters as in `ips`.

    Consistent if the propensities are right up to a factor. A constant added to all rewards moves it by that constant.
    """
    weights = importance_weights(feedback, target) if weights is None else weights
    effective, reasons = support(weights)
    return estimated(
        weights * feedback.rewards,
        weights,
        effective_sample=effective,
        confidence=confidence,
        reasons=reasons,
        rewards=feedback.rewards,
        reach=weights,
    )


@estimator("DR", rank=0)
def doubly_robust(
    feedback: Feedback,
    target: Array,
    *,
    earlier: Feedback | None = None,
    predictions: Predictions | None = None,
    weights: Array | None = None,
    confidence: float = 0.95,
) -> Estimate:
    """Doubly robust (Dudík, Langford & Li 2011): mean of Σ_a target·q̂ + w·(r − q̂ of the logged action).

    Right if the propensities are right or the reward model q̂ is (see `predict_rewards`: linear, past blocks only).

    Parameters
    ----------
    feedback : Feedback
        n rounds with propensities.
    target : array, shape (rows,)
        Probabilities of all offered actions under the target policy.
    earlier : Feedback, optional
        Rounds before these. The first block has no other past: without them q̂ = 0 there, which is IPS.
    predictions : Predictions, optional
        What `predict_rewards` made of both, if that was done before.
    weights : array, shape (n,), optional
        Their `importance_weights`, if they are known.
    confidence : float
        Coverage of the interval.

    Returns
    -------
    Estimate
        Reward per round.
    """
    weights = importance_weights(feedback, target) if weights is None else weights
    effective, reasons = support(weights)
    model = predict_rewards(feedback, earlier) if predictions is None else predictions
    expected = model.logged
    return estimated(
        model.under(feedback, target) + weights * (feedback.rewards - expected),
        ones(feedback.rounds),
        effective_sample=effective,
        confidence=confidence,
        reasons=reasons,
        rewards=feedback.rewards,
        expected=expected,
        reach=weights,
    )


@estimator("direct", needs="nothing", rank=9, assumption=DIRECT_ASSUMPTION)
def direct(
    feedback: Feedback,
    target: Array,
    *,
    earlier: Feedback | None = None,
    predictions: Predictions | None = None,
    confidence: float = 0.95,
) -> Estimate:
    """Direct method: mean of Σ_a target·q̂, for logs without propensities. See DIRECT_ASSUMPTION.

    The interval includes the sampling error of a linear model, not what a wrong one gets wrong. A reward
    raises the predicted baseline of the block after its own by its share, so that its reach is 1.

    Parameters
    ----------
    feedback : Feedback
        n rounds.
    target : array, shape (rows,)
        Probabilities of all offered actions under the target policy.
    earlier : Feedback, optional
        Rounds before these. The first block has no other past: without them its rounds are left out.
    predictions : Predictions, optional
        What `predict_rewards` made of both, if that was done before.
    confidence : float
        Coverage of the interval.

    Returns
    -------
    Estimate
        Reward per round.
    """
    target = checked_target(feedback, target)
    model = predict_rewards(feedback, earlier) if predictions is None else predictions
    known = model.known.astype(np.float64)
    expected = np.where(model.known, model.logged, feedback.rewards.mean())
    return estimated(
        known * model.under(feedback, target),
        known,
        effective_sample=float(known.sum()),
        confidence=confidence,
        notes=(DIRECT_ASSUMPTION,),
        rewards=feedback.rewards,
        expected=expected,
        reach=known,
        model_errors=model.errors_under(feedback, target),
    )


@estimator("replay", takes="policy", rank=3)
def replay(
    feedback: Feedback,
    policy: Player,
    *,
    seed: int = 0,
    baseline: float = 0.0,
    confidence: float = 0.95,
    progress: Progress | None = None,
) -> Estimate:
    """Mean reward of the accepted rounds, in which the policy, learning from these only, chose as the log did.

    Right if the propensities are and the environment does not change with time. What is estimated is the policy's mean
    reward over as many rounds of its own as were accepted.

    Parameters
    ----------
    feedback : Feedback
        n rounds with propensities.
    policy : Player
        It learns: hand over a fresh one.
    seed : int
        Draws which matching rounds are accepted.
    baseline : float
        Taken off the rewards that the policy is told.
    confidence : float
        Coverage of the interval.
    progress : callable, optional
        Called with the rounds of every part of a long log that has been played.

    Returns
    -------
    Estimate
        Reward per round.
    """
    accepted = replayed_rounds(policy, feedback, seed=seed, baseline=baseline, progress=progress)
    return accepted_value(feedback, accepted, confidence=confidence)


def accepted_value(feedback: Feedback, accepted: Whole, *, confidence: float = 0.95) -> Estimate:
    """Mean reward of the rounds (m,) that a replay has accepted."""
    weights = np.zeros(feedback.rounds)
    weights[accepted] = 1.0
    return estimated(
        weights * feedback.rewards,
        weights,
        effective_sample=float(len(accepted)),
        confidence=confidence,
        reasons=replay_support(feedback, len(accepted)),
        notes=(f"mean over the policy's first {len(accepted):,} rounds",),
        rewards=feedback.rewards,
        reach=weights,
    )


@estimator("exact", needs="rewards", takes="policy", rank=0)
def exact(
    feedback: Feedback,
    policy: Player,
    *,
    baseline: float = 0.0,
    confidence: float = 0.95,
    progress: Progress | None = None,
) -> Estimate:
    """Mean reward of the policy playing and learning from its own choices: every reward is known, nothing assumed.

    The interval says how far other rounds like these could differ.

    Parameters
    ----------
    feedback : Feedback
        n rounds with the rewards of all offered actions.
    policy : Player
        It learns: hand over a fresh one.
    baseline : float
        Taken off the rewards that the policy is told.
    confidence : float
        Coverage of the interval.
    progress : callable, optional
        Called with the rounds of every part of a long log that has been played.

    Returns
    -------
    Estimate
        Reward per round.
    """
    return _mean_reward(played_rewards(policy, feedback, baseline=baseline, progress=progress), confidence)


def logged_value(feedback: Feedback, *, confidence: float = 0.95) -> Estimate:
    """What the logging policy itself earned per round."""
    return _mean_reward(feedback.rewards, confidence)


def _mean_reward(rewards: Array, confidence: float) -> Estimate:
    """Of rewards (n,) that the policy in question earned itself."""
    n, once = len(rewards), ones(len(rewards))
    return estimated(rewards, once, effective_sample=float(n), confidence=confidence, rewards=rewards, reach=once)


def ones(rounds: int) -> Array:
    """The weight 1 of every round (n,), in no memory."""
    return np.broadcast_to(np.float64(1.0), (rounds,))


def importance_weights(feedback: Feedback, target: Array) -> Array:
    """w (n,): probability of the logged action under the target over that under the log."""
    if feedback.propensities is None:
        raise InputError(
            "propensities are missing: estimate them, say that logging was uniform, or use the direct method"
        )
    return np.asarray(feedback.of_logged(checked_target(feedback, target)) / feedback.propensities)


def checked_target(feedback: Feedback, target: Any) -> Any:
    """Probabilities (rows,) that add up to 1 in every round, or InputError; stored ones have been checked."""
    if isinstance(target, StoredRows) and len(target) == len(feedback.offered):
        return target
    target = finite_array("target", target, (len(feedback.offered),))
    if (target < 0.0).any() or (np.abs(feedback.sums_per_round(target) - 1.0) > 1e-6).any():
        raise InputError("target must be probabilities that add up to 1 in every round")
    return target


def replay_support(feedback: Feedback, accepted: int) -> tuple[str, ...]:
    """Reasons not to conclude from so many accepted rounds: each of n is accepted with probability p_min, if any."""
    rate = 0.0 if feedback.propensities is None else float(feedback.propensities.min())
    expected = feedback.rounds * rate
    missing = 1.0 - accepted / expected
    reasons = []
    if missing > max(UNSUPPORTED, 4.0 * np.sqrt((1.0 - rate) / expected)):
        reasons.append(f"support missing: {100.0 * missing:.0f} % of what the target plays is never played in the log")
    if accepted < MIN_EFFECTIVE:
        reasons.append(f"{accepted} of {feedback.rounds:,} rounds were accepted, {MIN_EFFECTIVE:g} are needed")
    return tuple(reasons)


def support(weights: Array) -> tuple[float, tuple[str, ...]]:
    """Effective sample size (Σw)²/Σw² (Kish 1965), and the reasons not to conclude from these weights (n,)."""
    total, squares = float(weights.sum()), float(weights @ weights)
    if total == 0.0:
        return 0.0, ("support missing: the log never plays what the target plays",)
    effective = total * total / squares
    reasons = []
    mean, error = mean_and_error(weights)
    gap = mean - 1.0
    if gap < -max(UNSUPPORTED, 4.0 * error):
        reasons.append(f"support missing: {-100.0 * gap:.0f} % of what the target plays is never played in the log")
    if gap > max(UNSUPPORTED, 4.0 * error):
        reasons.append(f"the mean weight is {mean:.2f} instead of 1: the propensities are too small")
    if effective < MIN_EFFECTIVE:
        reasons.append(f"the effective sample is {effective:.0f} rounds, {MIN_EFFECTIVE:g} are needed")
    share = float(weights.max()) / total
    if share > LARGEST_SHARE:
        reasons.append(
            f"one round carries {100.0 * share:.0f} % of the weight, {100.0 * LARGEST_SHARE:g} % are allowed"
        )
    return effective, tuple(reasons)
