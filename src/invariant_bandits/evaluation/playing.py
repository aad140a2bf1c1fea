"""How a policy meets logged rounds: following the log, replaying it by rejection, or playing with full
information.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol

import numpy as np

from invariant_bandits.checks import Array, InputError, whole_seed
from invariant_bandits.logs.external_sort import collect_rows
from invariant_bandits.logs.feedback import Feedback, Whole, in_parts
from invariant_bandits.policies.base import own_propensities


class Player(Protocol):
    """What evaluation needs of a policy: no more than `simulate` does.

    If it also has `propensities`, they are its chances of each action; else it is taken to be certain of what
    `select` returns. If it has `dim`, that must be the number of the log's features.
    """

    def select(self, features: Any) -> int:
        """Index of the action to play, given features (K, p)."""

    def update(self, features: Any, reward: float, *, offered: Any = None, action: int | None = None) -> None:
        """Learn the reward of the chosen action with features (p,)."""


def target_probabilities(policy: Player, feedback: Feedback, *, baseline: float = 0.0) -> Any:
    """Probabilities with which the policy would have chosen each offered action.

    In every round it decides with what it has learned from the *logged* actions and rewards of all earlier
    rounds, and then learns the logged one.

    Parameters
    ----------
    policy : Player
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
    _check_dim(policy, feedback)
    return collect_rows(_followed(policy, part, baseline) for part in feedback.parts())


def _followed(policy: Player, feedback: Feedback, baseline: float) -> Array:
    """Probabilities (rows,) of one part; they are checked all at once."""
    result = np.empty(len(feedback.offered))
    starts = feedback.starts.tolist()
    propensities = getattr(policy, "propensities", None) or partial(own_propensities, policy)
    logged = zip(feedback.actions.tolist(), feedback.rewards.tolist(), strict=True)
    for t, (action, reward) in enumerate(logged):
        features = feedback.offered[starts[t] : starts[t + 1]]
        chances = propensities(features)
        if np.shape(chances) != (len(features),):
            raise _not_probabilities(len(features), chances)
        result[starts[t] : starts[t + 1]] = chances
        policy.update(features[action], reward - baseline, offered=features, action=action)
    sums = feedback.sums_per_round(result)
    negative = np.minimum.reduceat(result, feedback.starts[:-1]) < 0.0
    wrong = np.flatnonzero(~(np.abs(sums - 1.0) < 1e-6) | negative)
    if len(wrong):
        chances = result[starts[wrong[0]] : starts[wrong[0] + 1]]
        raise _not_probabilities(len(chances), chances)
    return result


def _not_probabilities(actions: int, values: Any) -> InputError:
    return InputError(f"propensities must be {actions} probabilities that add up to 1, got {values}")


def replayed_rounds(policy: Player, feedback: Feedback, *, seed: int = 0, baseline: float = 0.0) -> Whole:
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
    _check_dim(policy, feedback)
    rng = np.random.default_rng(whole_seed(seed))
    lucky = rng.random(feedback.rounds) * feedback.propensities < feedback.propensities.min() * (1.0 + 1e-12)
    return np.concatenate(
        [
            start + _accepted(policy, part, np.flatnonzero(lucky[start : start + part.rounds]), baseline)
            for start, part in in_parts(feedback)
        ]
    )


def _accepted(policy: Player, feedback: Feedback, tried: Whole, baseline: float) -> Whole:
    """Those of the rounds `tried` (m,) of one part in which the policy chooses as the log did, and learns."""
    starts, actions, rewards = feedback.starts.tolist(), feedback.actions.tolist(), feedback.rewards.tolist()
    accepted = []
    for t in tried.tolist():
        features = feedback.offered[starts[t] : starts[t + 1]]
        if policy.select(features) == actions[t]:
            policy.update(features[actions[t]], rewards[t] - baseline, offered=features, action=actions[t])
            accepted.append(t)
    return np.array(accepted, dtype=np.int64)


def played_rewards(policy: Player, feedback: Feedback, *, baseline: float = 0.0) -> Array:
    """Rewards (n,) of the policy's own choices. Parameters as in `played_rows`."""
    _check_playable(policy, feedback)
    parts = feedback.parts()
    return np.concatenate([part.offered_rewards[_played(policy, part, baseline)] for part in parts])


def played_rows(policy: Player, feedback: Feedback, *, baseline: float = 0.0) -> Whole:
    """Rows of the offered actions that the policy chooses, learning from these alone.

    Parameters
    ----------
    policy : Player
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
    _check_playable(policy, feedback)
    rows = [feedback.starts[start] + _played(policy, part, baseline) for start, part in in_parts(feedback)]
    return np.concatenate(rows)


def _played(policy: Player, feedback: Feedback, baseline: float) -> Whole:
    """Rows (n,) of one part that the policy chooses."""
    starts, rewards = feedback.starts.tolist(), feedback.offered_rewards.tolist()
    rows = []
    for t in range(feedback.rounds):
        features = feedback.offered[starts[t] : starts[t + 1]]
        action = policy.select(features)
        if not 0 <= action < len(features):
            raise InputError(f"select must return an action from 0 to {len(features) - 1}, got {action!r}")
        rows.append(starts[t] + action)
        policy.update(features[action], rewards[rows[t]] - baseline, offered=features, action=action)
    return np.array(rows, dtype=np.int64)


def _check_playable(policy: Player, feedback: Feedback) -> None:
    if feedback.offered_rewards is None:
        raise InputError("offered_rewards are missing: playing needs the rewards of all offered actions")
    _check_dim(policy, feedback)


def _check_dim(policy: Player, feedback: Feedback) -> None:
    taken = getattr(policy, "dim", feedback.dim)
    if taken != feedback.dim:
        raise InputError(
            f"policy must take {feedback.dim} features, as the log has, got one that takes {taken}"
        )
