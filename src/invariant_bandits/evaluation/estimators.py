"""Estimators by name: registered where they are defined, asked by `compare`; and how a policy meets logged
rounds: following the log, replaying it by rejection, or playing with full information. `predict_rewards`
predicts from the past only: ridge regression within blocks of time, with a baseline that may move.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from invariant_bandits.checks import Array, InputError, finite_array, one_of, whole_seed
from invariant_bandits.evaluation.intervals import (
    BLOCKS,
    Estimate,
    block_starts,
    effective_size,
    estimated,
    mean_and_error,
)
from invariant_bandits.logs.feedback import Feedback, in_parts
from invariant_bandits.logs.spill import StoredRows, collect_rows
from invariant_bandits.policies.choice import Policy, as_policy
from invariant_bandits.policies.past import Past
from invariant_bandits.policies.registry import PolicySpec
from invariant_bandits.registry import Registry

Function = TypeVar("Function", bound=Callable[..., Estimate])
NOT_PROBABILITIES = "propensities must be {} probabilities that add up to 1, got {}"
OPTIONS = ("earlier", "predictions", "weights", "baseline", "seed", "confidence")
"""What of an EvaluationTask an estimator gets if it has a parameter of that name."""


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predicted rewards of all offered actions, each block's from the blocks before it.

    Attributes
    ----------
    values : array or StoredRows, shape (rows,)
        Predicted rewards, 0 where nothing came before.
    logged : array, shape (n,)
        Those of the logged actions.
    known : array of bool, shape (n,)
        Whether a round has a prediction.
    block : array of int, shape (n,)
        The block of each round.
    covariances : array, shape (blocks, p, p)
        Of the coefficients that predict each block, 0 for the first if nothing came before.
    centers : array, shape (blocks, p)
        Features at which the baseline was taken.
    """

    values: Any
    logged: Array
    known: Array
    block: Array
    covariances: Array
    centers: Array

    def under(self, feedback: Feedback, target: Any) -> Array:
        """Predicted rewards (n,) of the rounds under a target policy with probabilities (rows,)."""
        return feedback.per_round(
            lambda part, chances, model: part.sums_per_round(chances * model),
            target,
            self.values,
        )

    def errors_under(self, feedback: Feedback, target: Any) -> Array:
        """What the coefficients' errors cause in the mean prediction under a target policy.

        Parameters
        ----------
        feedback : Feedback
            The rounds that were predicted.
        target : array, shape (rows,)
            Probabilities of all offered actions under the target policy.

        Returns
        -------
        array, shape (blocks, p)
            Row b holds independent standard errors. Coefficients of neighbouring blocks share their past, so
            the rows are to be added up as if fully dependent.
        """
        # Σ over the rounds of a block of the features that the target expects to play (blocks, p)
        sums = np.zeros_like(self.centers)
        for start, part, chances in in_parts(feedback, target):
            expected = part.sums_per_round(chances[:, None] * part.offered)
            block = self.block[start : start + part.rounds]
            for b in np.unique(block):
                sums[b] += expected[block == b].sum(axis=0)
        result = np.zeros_like(self.centers)
        for b in np.unique(self.block[self.known]):
            rounds = (self.block == b).sum()
            # C = V·diag(λ)·Vᵀ: along each column of V the mean prediction errs by √λ times the distance.
            values, vectors = np.linalg.eigh(self.covariances[b])
            away = sums[b] / rounds - self.centers[b]
            share = float(rounds / self.known.sum())
            # Rounding may leave an eigenvalue just below 0.
            result[b] = share * np.sqrt(np.maximum(values, 0.0)) * (vectors.T @ away)
        return result


def predict_rewards(feedback: Feedback, earlier: Feedback | None = None) -> Predictions:
    """Predict every block of rounds from the logged actions and rewards of the blocks before it.

    Slopes: ridge regression on features and rewards centred within blocks, so that a drifting mean reward
    does not bend them. The ridge is worth p rounds. Baseline: mean reward of the block before.

    Parameters
    ----------
    feedback : Feedback
        n rounds with `rows` offered actions.
    earlier : Feedback, optional
        Rounds before these, which also predict.

    Returns
    -------
    Predictions
        Of all offered actions.
    """
    p = feedback.dim
    first = block_starts(feedback.rounds)
    moments = feedback.moments(len(first), offered=False)
    before = 0
    if earlier is not None:
        before = min(BLOCKS, earlier.rounds // 2)
        moments = earlier.moments(before, offered=False).followed_by(moments)
    # Sums within blocks, added up over the past of each block.
    gram = np.cumsum(moments.gram, axis=0)
    cross = np.cumsum(moments.cross, axis=0)
    squares = np.cumsum(moments.reward_square)
    counts = np.cumsum(moments.counts)
    block = np.searchsorted(first, np.arange(feedback.rounds), side="right") - 1
    slopes = np.zeros((len(first), p))
    bases = np.zeros(len(first))
    covariances = np.zeros((len(first), p, p))
    centers = np.zeros((len(first), p))
    for b in range(len(first)):
        past = before + b
        if past == 0:
            continue
        G = gram[past - 1]
        c = cross[past - 1]
        n = counts[past - 1]
        # (G + Λ)⁻¹c, Λ worth p rounds of each feature: its scale does not matter.
        scale = np.diagonal(G) / n
        ridge = np.diag(np.where(scale > 0.0, p * scale, 1.0))
        inverse = np.linalg.inv(G + ridge)
        slopes[b] = inverse @ c
        # Each block's mean and each slope take one degree of freedom.
        left = max(float(squares[past - 1] - slopes[b] @ c), 0.0)
        noise = left / max(n - past - p, 1.0)
        bases[b] = moments.reward_mean[past - 1]
        centers[b] = moments.feature_mean[past - 1]
        covariances[b] = noise * inverse

    def predicted(part: Feedback, start: int) -> Array:
        values = np.empty(len(part.offered))
        block_of_round = block[start : start + part.rounds]
        for b in np.unique(block_of_round):
            inside = np.flatnonzero(block_of_round == b)
            rows = slice(part.starts[inside[0]], part.starts[inside[-1] + 1])
            values[rows] = bases[b] + (part.offered[rows] - centers[b]) @ slopes[b]
        return values

    known = np.ones(feedback.rounds, dtype=bool) if before else block > 0
    values = collect_rows(predicted(part, start) for start, part in in_parts(feedback))
    return Predictions(
        values=values,
        logged=feedback.of_logged(values),
        known=known,
        block=block,
        covariances=covariances,
        centers=centers,
    )


@dataclass(frozen=True, eq=False)
class EvaluationTask:
    """A policy and the rounds in which estimators say what it would have earned.

    Parameters
    ----------
    spec : PolicySpec
        Makes the policy from the past once; every play gets a copy of it.
    past : Past
        What the policy starts from.
    earlier : Feedback
        The rounds the policy was fitted on.
    later : Feedback
        The rounds it is evaluated on.
    predictions : Predictions or None
        Of the later rewards from earlier ones, the same for all policies; None if no estimator wants them.
    confidence : float
        Coverage of the intervals.
    seed : int
        Of what an estimator draws.
    """

    spec: PolicySpec
    past: Past
    earlier: Feedback
    later: Feedback
    predictions: Predictions | None
    confidence: float
    seed: int

    @property
    def baseline(self) -> float:
        """Subtracted from the rewards that the policy learns."""
        return self.past.baseline

    @cached_property
    def _built(self) -> Any:
        return self.spec.build(self.past)

    def policy(self) -> Any:
        """A policy that knows the past and nothing else."""
        return copy.deepcopy(self._built)

    @cached_property
    def target(self) -> Any:
        """Its probability of every offered action (rows,), following the log."""
        return target_probabilities(self.policy(), self.later, baseline=self.baseline)

    @cached_property
    def weights(self) -> Array:
        """Importance weights (n,) of the logged actions."""
        return self.later.of_logged(self.target) / self.later.propensities


@dataclass(frozen=True, eq=False)
class RegisteredEstimator:
    """A function that answers questions, under a name.

    Parameters
    ----------
    name : str
        Name of the estimator in tables.
    kind : callable, returns an Estimate
        The function.
    needs : "propensities", "rewards" or "nothing"
        What the log must have.
    takes : "target" or "policy"
        Whether the function is called with the target's probabilities or the policy itself.
    rank : int
        Rank of the estimator: verdicts use the estimator with the lowest rank that the log allows.
    assumption : str or None
        What the answer rests on beyond the log, for those that must be asked for.
    """

    name: str
    kind: Callable[..., Estimate]
    needs: str
    takes: str
    rank: int
    assumption: str | None

    def can_answer(self, feedback: Feedback) -> bool:
        """Whether the log has what it needs. Where all rewards are known nothing has to be estimated."""
        if self.needs == "rewards" or feedback.offered_rewards is not None:
            return self.needs == "rewards" and feedback.offered_rewards is not None
        return self.needs == "nothing" or feedback.propensities is not None

    def wants(self, name: str) -> bool:
        """Whether the function takes a parameter of this name."""
        return name in inspect.signature(self.kind).parameters

    def estimate(self, task: EvaluationTask) -> Estimate:
        """The answer. The function gets those of OPTIONS that it takes."""
        options = {name: getattr(task, name) for name in OPTIONS if self.wants(name)}
        argument = task.target if self.takes == "target" else task.policy()
        return self.kind(task.later, argument, **options)


ESTIMATORS: Registry[RegisteredEstimator] = Registry(
    "estimator", "invariant_bandits.evaluation"
)


def register_estimator(
    name: str,
    *,
    needs: str = "propensities",
    takes: str = "target",
    rank: int = 5,
    assumption: str | None = None,
) -> Callable[[Function], Function]:
    """Register a function as an estimator.

    Parameters
    ----------
    name : str
        Name of the estimator in tables.
    needs : "propensities", "rewards" or "nothing"
        What the log must have for this estimator, where "rewards" means the rewards of all offered actions.
    takes : "target" or "policy"
        Second argument of the function, after the logged rounds: the new policy's probability of each offered
        action ("target"), or the policy itself ("policy"). The function also gets `earlier` (the rounds for
        fitting), `predictions` (of rewards), importance `weights`, `baseline`, `seed` and `confidence`, if it
        has parameters with these names. For very large logs the probabilities and the offered features are
        StoredRows (rows in a file), which the method `Feedback.parts` reads.
    rank : int
        Rank of the estimator: verdicts use the estimator with the lowest rank that the log allows.
    assumption : str, optional
        Assumption, in words, that the estimator needs in addition to the logged data. An estimator with an
        assumption is used only if the caller of `compare` asks for it.

    >>> import numpy as np, invariant_bandits as ib
    >>> from invariant_bandits.evaluation.estimators import importance_weights
    >>> from invariant_bandits.evaluation.intervals import estimated
    >>> from invariant_bandits.evaluation.estimators import ESTIMATORS
    >>> @ib.register_estimator("clipped", rank=4)
    ... def clipped(feedback, target, *, confidence=0.95):
    ...     weights = np.minimum(importance_weights(feedback, target), 10.0)
    ...     gains, ones = weights * feedback.rewards, np.ones(feedback.rounds)
    ...     return estimated(gains, ones, effective_sample=float(feedback.rounds), confidence=confidence)
    >>> ESTIMATORS.find("clipped").needs
    'propensities'
    >>> ESTIMATORS.remove("clipped")
    """
    one_of("needs", needs, ("rewards", "propensities", "nothing"))
    one_of("takes", takes, ("target", "policy"))

    def registered(function: Function) -> Function:
        ESTIMATORS.add(
            RegisteredEstimator(
                name=name,
                kind=function,
                needs=needs,
                takes=takes,
                rank=rank,
                assumption=assumption,
            )
        )
        return function

    return registered


def chosen_estimators(
    names: Any, feedback: Feedback, assuming: bool
) -> list[RegisteredEstimator]:
    """The registered estimators that can answer, the preferred one first.

    Parameters
    ----------
    names : sequence of str or None
        Only these. None: all.
    feedback : Feedback
        The rounds to evaluate on.
    assuming : bool
        Whether those that assume something are among all.
    """
    if names is not None:
        entries = [ESTIMATORS.find(name) for name in names]
    else:
        entries = [entry for entry in ESTIMATORS if assuming or not entry.assumption]
    able = [entry for entry in entries if entry.can_answer(feedback)]
    return sorted(able, key=lambda entry: entry.rank)


def target_probabilities(
    policy: Policy, feedback: Feedback, *, baseline: float = 0.0
) -> Any:
    """Probabilities with which the policy would have chosen each offered action.

    In every round it decides with what it has learned from the *logged* actions and rewards of all earlier
    rounds, and then learns the logged one.

    Parameters
    ----------
    policy : Policy
        It learns: hand over a fresh one.
    feedback : Feedback
        n rounds with `rows` offered actions.
    baseline : float
        Subtracted from the rewards that the policy learns.

    Returns
    -------
    array, shape (rows,)
        They add up to 1 in every round. StoredRows if they are too many for memory.
    """
    policy = as_policy(policy)
    return collect_rows(_followed(policy, part, baseline) for part in feedback.parts())


def _followed(policy: Any, feedback: Feedback, baseline: float) -> Array:
    """Probabilities (rows,) of one part; they are checked all at once."""
    result = np.empty(len(feedback.offered))
    starts = feedback.starts.tolist()
    logged = zip(feedback.actions.tolist(), feedback.rewards.tolist(), strict=True)
    for t, (action, reward) in enumerate(logged):
        features = feedback.offered[starts[t] : starts[t + 1]]
        chances = policy.propensities(features)
        if np.shape(chances) != (len(features),):
            raise InputError(NOT_PROBABILITIES.format(len(features), chances))
        result[starts[t] : starts[t + 1]] = chances
        gain = reward - baseline
        policy.update(features[action], gain, offered=features, action=action)
    sums = feedback.sums_per_round(result)
    negative = np.minimum.reduceat(result, feedback.starts[:-1]) < 0.0
    wrong = np.flatnonzero(~(np.abs(sums - 1.0) < 1e-6) | negative)
    if len(wrong):
        chances = result[starts[wrong[0]] : starts[wrong[0] + 1]]
        raise InputError(NOT_PROBABILITIES.format(len(chances), chances))
    return result


def replayed_rounds(
    policy: Policy, feedback: Feedback, *, seed: int = 0, baseline: float = 0.0
) -> Array:
    """Rounds in which the policy's choice was the logged one and was accepted. It learns from these only.

    Rejection sampling (Li et al. 2011): a matching round is accepted with probability p_min / p_t, p_t the
    propensity of the logged action and p_min the smallest in the log, so that every round is accepted with
    the same probability whatever it offers. Under uniform logging over K actions every match is accepted.

    Parameters
    ----------
    policy, feedback, baseline :
        As in `target_probabilities`; the rounds must have propensities.
    seed : int
        Draws which matching rounds are accepted.

    Returns
    -------
    array of int, shape (m,)
        Indices of the accepted rounds, from 0.
    """
    if feedback.propensities is None:
        raise InputError("propensities are missing: replay accepts rounds by them")
    policy = as_policy(policy)
    rng = np.random.default_rng(whole_seed(seed))
    # u·p_t < p_min, up to rounding of the propensities
    drawn = rng.random(feedback.rounds) * feedback.propensities
    lucky = drawn < feedback.propensities.min() * (1.0 + 1e-12)
    accepted = []
    for start, part in in_parts(feedback):
        tried = np.flatnonzero(lucky[start : start + part.rounds])
        accepted.append(start + _accepted(policy, part, tried, baseline))
    return np.concatenate(accepted)


def _accepted(policy: Any, feedback: Feedback, tried: Array, baseline: float) -> Array:
    """Those of the rounds `tried` (m,) of one part in which the policy chooses as the log did, and learns."""
    starts = feedback.starts.tolist()
    actions = feedback.actions.tolist()
    rewards = feedback.rewards.tolist()
    accepted = []
    for t in tried.tolist():
        features = feedback.offered[starts[t] : starts[t + 1]]
        if policy.select(features) == actions[t]:
            policy.update(
                features[actions[t]],
                rewards[t] - baseline,
                offered=features,
                action=actions[t],
            )
            accepted.append(t)
    return np.array(accepted, dtype=np.int64)


def played_rows(policy: Policy, feedback: Feedback, *, baseline: float = 0.0) -> Array:
    """Rows of the offered actions that the policy chooses, learning from these alone.

    Parameters
    ----------
    policy : Policy
        It learns: hand over a fresh one.
    feedback : Feedback
        n rounds with the rewards of all offered actions.
    baseline : float
        Subtracted from the rewards that the policy learns.

    Returns
    -------
    array of int, shape (n,)
        Rows of feedback.offered.
    """
    if feedback.offered_rewards is None:
        raise InputError(
            "offered_rewards are missing: playing needs the rewards of all offered actions"
        )
    policy = as_policy(policy)
    rows = [
        feedback.starts[start] + _played(policy, part, baseline)
        for start, part in in_parts(feedback)
    ]
    return np.concatenate(rows)


def _played(policy: Any, feedback: Feedback, baseline: float) -> Array:
    """Rows (n,) of one part that the policy chooses."""
    starts = feedback.starts.tolist()
    rewards = feedback.offered_rewards.tolist()
    rows = []
    for t in range(feedback.rounds):
        features = feedback.offered[starts[t] : starts[t + 1]]
        action = policy.select(features)
        if not 0 <= action < len(features):
            raise InputError(
                f"select must return an action from 0 to {len(features) - 1}, got {action!r}"
            )
        rows.append(starts[t] + action)
        policy.update(
            features[action],
            rewards[rows[t]] - baseline,
            offered=features,
            action=action,
        )
    return np.array(rows, dtype=np.int64)


MIN_EFFECTIVE = 50.0
LARGEST_SHARE = 0.1
UNSUPPORTED = 0.05
"""An estimate is refused below so many effective rounds, if one round carries a larger share of the weight,
or if a larger share of what the target plays is missing in the log. With fewer rounds, or one that counts for
more, intervals over 30 blocks hold less often than they say; a missing share biases by as much of the reward.
"""
MISSING = (
    "support missing: {:.0f} % of what the target plays is never played in the log"
)


@register_estimator("IPS", rank=2)
def ips(
    feedback: Feedback,
    target: Array,
    *,
    weights: Array | None = None,
    confidence: float = 0.95,
) -> Estimate:
    """Estimate the mean reward of a policy by inverse propensity scoring (Horvitz & Thompson 1952).

    With reward r_t and importance weight w_t = target / propensity of the logged action::

        V = 1/n · Σ w_t·r_t

    IPS is unbiased if the propensities (the logging policy's probabilities) are right. The
    variance of IPS grows with the weights and with the mean reward.

    Parameters
    ----------
    feedback : Feedback
        Logged rounds with propensities.
    target : array, shape (rows,)
        Probability of every offered action under the evaluated policy.
    weights : array, shape (n,), optional
        Importance weights of the logged actions, if they are already computed.
    confidence : float
        Coverage of the confidence interval.

    Returns
    -------
    Estimate
        Mean reward per round, with its confidence interval.
    """
    weights = importance_weights(feedback, target) if weights is None else weights
    return _weighted(
        feedback,
        weights,
        weights * feedback.rewards,
        ones(feedback.rounds),
        confidence,
        0.0,
    )


@register_estimator("SNIPS", rank=1)
def snips(
    feedback: Feedback,
    target: Array,
    *,
    weights: Array | None = None,
    confidence: float = 0.95,
) -> Estimate:
    """Estimate the mean reward of a policy by self-normalised IPS (Swaminathan & Joachims 2015).

    With reward r_t and importance weight w_t of the logged action::

        V = Σ w_t·r_t / Σ w_t

    SNIPS is consistent if the
    propensities (the logging policy's probabilities) are right, or wrong by one constant factor. A constant
    added to all rewards changes the estimate by the same constant.

    The function `ips` documents the parameters.
    """
    weights = importance_weights(feedback, target) if weights is None else weights
    return _weighted(feedback, weights, weights * feedback.rewards, weights, confidence)


@register_estimator("DR", rank=0)
def doubly_robust(
    feedback: Feedback,
    target: Array,
    *,
    earlier: Feedback | None = None,
    predictions: Predictions | None = None,
    weights: Array | None = None,
    confidence: float = 0.95,
) -> Estimate:
    """Estimate the mean reward of a policy by the doubly robust method (Dudík, Langford & Li 2011).

    With r̂_t(a) the predicted reward of action a, π_t(a) its probability under the policy, a_t the logged
    action and w_t its importance weight::

        V = 1/n · Σ_t [Σ_a π_t(a)·r̂_t(a) + w_t·(r_t − r̂_t(a_t))]

    The estimate is right if either the propensities or the predicted rewards are right. A
    linear regression on earlier rounds predicts the rewards (`predict_rewards`).

    Parameters
    ----------
    feedback, target, weights, confidence :
        The parameters of the same names in `ips`.
    earlier : Feedback, optional
        Rounds before those of `feedback`, which help to predict rewards. Without `earlier` rounds, the
        predicted reward is 0 in the first block of rounds.
    predictions : Predictions, optional
        Result of `predict_rewards(feedback, earlier)`, if it is already computed.
    """
    weights = importance_weights(feedback, target) if weights is None else weights
    model = predict_rewards(feedback, earlier) if predictions is None else predictions
    gains = model.under(feedback, target) + weights * (feedback.rewards - model.logged)
    return _weighted(
        feedback, weights, gains, ones(feedback.rounds), confidence, model.logged
    )


def _weighted(
    feedback: Feedback,
    weights: Array,
    gains: Array,
    totals: Array,
    confidence: float,
    expected: Array | float | None = None,
) -> Estimate:
    """Return Σ gains / Σ totals of rounds whose rewards count by importance weights (n,).

    It is inconclusive where the weights have no support.
    """
    return estimated(
        gains,
        totals,
        confidence=confidence,
        reasons=support(weights)[1],
        rewards=feedback.rewards,
        expected=expected,
        reach=weights,
        round_weights=feedback.round_weights,
    )


LINEAR_REWARDS = (
    "assumes that rewards are linear in the features, with coefficients that hold for actions the log does"
    " not choose and that change slowly; where this fails the interval is wrong however many rounds there"
    " are, and a policy that learned from the same rewards looks better than it is"
)
"""What the direct method assumes."""


@register_estimator("direct", needs="nothing", rank=9, assumption=LINEAR_REWARDS)
def direct(
    feedback: Feedback,
    target: Array,
    *,
    earlier: Feedback | None = None,
    predictions: Predictions | None = None,
    confidence: float = 0.95,
) -> Estimate:
    """Estimate the mean reward of a policy from predicted rewards alone, for logs without propensities.

    With r̂_t(a) the predicted reward of action a and π_t(a) its probability under the policy::

        V = 1/n · Σ_t Σ_a π_t(a)·r̂_t(a)

    The confidence interval covers the sampling error of the linear prediction, but not the error if
    rewards are not linear. Without `earlier` rounds, the first block of rounds is left out, because nothing
    before it predicts its rewards.

    The function `doubly_robust` documents the parameters.
    """
    target = checked_target(feedback, target)
    model = predict_rewards(feedback, earlier) if predictions is None else predictions
    # A reward raises the predicted baseline of the next block by its share, so the reach is 1.
    known = model.known.astype(np.float64)
    expected = np.where(model.known, model.logged, feedback.rewards.mean())
    return estimated(
        known * model.under(feedback, target),
        known,
        confidence=confidence,
        notes=(LINEAR_REWARDS,),
        rewards=feedback.rewards,
        expected=expected,
        reach=known,
        model_errors=model.errors_under(feedback, target),
        round_weights=feedback.round_weights,
    )


@register_estimator("replay", takes="policy", rank=3)
def replay(
    feedback: Feedback,
    policy: Policy,
    *,
    seed: int = 0,
    baseline: float = 0.0,
    confidence: float = 0.95,
) -> Estimate:
    """Estimate the mean reward of a learning policy by replaying the rounds in which it agrees with the log.

    A round is accepted only if the policy chooses the logged action, and the policy learns from accepted
    rounds only. The estimate is right if the propensities are right and the environment does not change with
    time. If n rounds are accepted, the estimate is the mean reward of the policy in its first n rounds.

    Parameters
    ----------
    feedback : Feedback
        Logged rounds with propensities (the logging policy's probabilities).
    policy : Policy
        A new policy, which learns during the replay.
    seed : int
        Seed of the random acceptance of rounds in which the policy agrees with the log.
    baseline : float
        Constant that is subtracted from the rewards that the policy learns.
    confidence : float
        Coverage of the confidence interval.

    Returns
    -------
    Estimate
        Mean reward of the accepted rounds, with its confidence interval.
    """
    accepted = replayed_rounds(policy, feedback, seed=seed, baseline=baseline)
    return accepted_value(feedback, accepted, confidence=confidence)


def accepted_value(
    feedback: Feedback, accepted: Array, *, confidence: float = 0.95
) -> Estimate:
    """Mean reward of the rounds (m,) that a replay has accepted."""
    weights = np.zeros(feedback.rounds)
    weights[accepted] = 1.0
    return estimated(
        weights * feedback.rewards,
        weights,
        confidence=confidence,
        reasons=replay_support(feedback, len(accepted)),
        notes=(f"mean over the policy's first {len(accepted):,} rounds",),
        rewards=feedback.rewards,
        reach=weights,
        round_weights=feedback.round_weights,
    )


@register_estimator("exact", needs="rewards", takes="policy", rank=0)
def exact(
    feedback: Feedback,
    policy: Policy,
    *,
    baseline: float = 0.0,
    confidence: float = 0.95,
) -> Estimate:
    """Return the mean reward of a policy that plays a log in which the rewards of all actions are known.

    The policy learns from its own choices, so that no assumption is needed. The confidence interval says how
    much the mean reward could differ in other rounds of the same kind.

    The function `replay` documents the parameters.
    """
    chosen = played_rows(policy, feedback, baseline=baseline)
    return mean_reward(np.asarray(feedback.offered_rewards)[chosen], confidence)


def logged_value(feedback: Feedback, *, confidence: float = 0.95) -> Estimate:
    """What the logging policy itself earned per round."""
    return mean_reward(feedback.rewards, confidence, feedback.round_weights)


def mean_reward(
    rewards: Array, confidence: float, round_weights: Array | None = None
) -> Estimate:
    """Mean of rewards (n,) that the policy in question earned itself, of rounds with these weights."""
    once = ones(len(rewards))
    return estimated(
        rewards,
        once,
        confidence=confidence,
        rewards=rewards,
        reach=once,
        round_weights=round_weights,
    )


def ones(rounds: int) -> Array:
    """Return unit weights (n,) as a read-only broadcast view."""
    return np.broadcast_to(np.float64(1.0), (rounds,))


def importance_weights(feedback: Feedback, target: Array) -> Array:
    """w (n,): probability of the logged action under the target over that under the log."""
    if feedback.propensities is None:
        raise InputError(
            "propensities are missing: estimate them, say that logging was uniform, or use the direct method"
        )
    return feedback.of_logged(checked_target(feedback, target)) / feedback.propensities


def checked_target(feedback: Feedback, target: Any) -> Any:
    """Probabilities (rows,) that add up to 1 in every round, or InputError; stored ones have been checked."""
    if isinstance(target, StoredRows) and len(target) == len(feedback.offered):
        return target
    target = finite_array("target", target, (len(feedback.offered),))
    sums = feedback.sums_per_round(target)
    if (target < 0.0).any() or (np.abs(sums - 1.0) > 1e-6).any():
        raise InputError("target must be probabilities that add up to 1 in every round")
    return target


def replay_support(feedback: Feedback, accepted: int) -> tuple[str, ...]:
    """Return reasons not to conclude from so many accepted rounds.

    Each of the n rounds in which the policy agrees with the log is accepted with probability p_min, so
    that n·p_min are expected.
    """
    assert feedback.propensities is not None
    rate = float(feedback.propensities.min())
    expected = feedback.rounds * rate
    missing = 1.0 - accepted / expected
    reasons = []
    if missing > max(UNSUPPORTED, 4.0 * np.sqrt((1.0 - rate) / expected)):
        reasons.append(MISSING.format(100.0 * missing))
    if accepted < MIN_EFFECTIVE:
        reasons.append(
            f"{accepted} of {feedback.rounds:,} rounds were accepted, {MIN_EFFECTIVE:g} are "
            "needed"
        )
    return tuple(reasons)


def support(weights: Array) -> tuple[float, tuple[str, ...]]:
    """Effective sample size (Σw)²/Σw² (Kish 1965), and why weights (n,) do not allow a conclusion."""
    effective = effective_size(weights)
    reasons = []
    if effective == 0.0:
        return 0.0, ("support missing: the log never plays what the target plays",)
    mean, error = mean_and_error(weights)
    gap = mean - 1.0
    if gap < -max(UNSUPPORTED, 4.0 * error):
        reasons.append(MISSING.format(-100.0 * gap))
    if gap > max(UNSUPPORTED, 4.0 * error):
        reasons.append(
            f"the mean weight is {mean:.2f} instead of 1: the propensities are too small"
        )
    if effective < MIN_EFFECTIVE:
        reasons.append(
            f"the effective sample is {effective:.0f} rounds, {MIN_EFFECTIVE:g} are needed"
        )
    share = float(weights.max() / weights.sum())
    if share > LARGEST_SHARE:
        reasons.append(
            f"one round carries {100.0 * share:.0f} % of the weight, {100.0 * LARGEST_SHARE:g} % are allowed"
        )
    return effective, tuple(reasons)
