"""Estimators by name: registered where they are defined, asked by `compare`."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from invariant_bandits.checks import Array, one_of
from invariant_bandits.evaluation.intervals import Estimate
from invariant_bandits.evaluation.playing import Player, target_probabilities
from invariant_bandits.evaluation.reward_model import Predictions, predict_rewards
from invariant_bandits.logs.feedback import Feedback
from invariant_bandits.policies.past import Past
from invariant_bandits.policies.registry import Maker, build_policy
from invariant_bandits.registry import Registry

Function = TypeVar("Function", bound=Callable[..., Estimate])
NEEDS = ("rewards", "propensities", "nothing")
TAKES = ("target", "policy")
GIVEN = ("earlier", "predictions", "weights", "baseline", "seed", "confidence", "progress")
"""What of a Question an estimator is given if it takes a parameter of that name."""


class Question:
    """What would this policy have earned in the later rounds of a log? Asked of every estimator that can answer.

    Parameters
    ----------
    maker : Maker
        Makes the policy from the past. It is called once, and every play gets a copy of what it made.
    past : Past
        What the policy starts from.
    earlier : Feedback
        The rounds the policy was fitted on.
    later : Feedback
        The rounds it is evaluated on.
    confidence : float
        Coverage of the intervals.
    seed : int
        Of what an estimator draws.
    predictions : Predictions, optional
        Of the later rewards from earlier ones, the same for all policies; made when first asked for if not given.
    progress : callable, optional
        Called while a policy is played, with the rounds played since the last call.
    """

    def __init__(
        self,
        maker: Maker,
        past: Past,
        earlier: Feedback,
        later: Feedback,
        *,
        confidence: float,
        seed: int,
        predictions: Predictions | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        self.maker, self.past, self.earlier, self.later, self.progress = maker, past, earlier, later, progress
        self.confidence, self.seed, self.baseline = confidence, seed, past.baseline
        if predictions is not None:
            self.predictions = predictions

    @cached_property
    def predictions(self) -> Predictions:
        """Predicted rewards of the later rounds."""
        return predict_rewards(self.later, self.earlier)

    @cached_property
    def _built(self) -> Player:
        policy: Player = build_policy(self.maker, self.past)
        return policy

    def policy(self) -> Player:
        """A policy that knows the past and nothing else."""
        return copy.deepcopy(self._built)

    @cached_property
    def target(self) -> Any:
        """Its probability of every offered action (rows,), following the log."""
        return target_probabilities(self.policy(), self.later, baseline=self.baseline, progress=self.progress)

    @cached_property
    def weights(self) -> Array:
        """Importance weights (n,) of the logged actions."""
        return np.asarray(self.later.of_logged(self.target) / self.later.propensities)


@dataclass(frozen=True, eq=False)
class RegisteredEstimator:
    """A function that answers questions, under a name.

    Parameters
    ----------
    name : str
        What tables call it.
    kind : callable, returns an Estimate
        The function.
    needs : "propensities", "rewards" or "nothing"
        What the log must have.
    takes : "target" or "policy"
        Whether the function is called with the target's probabilities or the policy itself.
    rank : int
        The lowest that can answer is preferred.
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

    def estimate(self, question: Question) -> Estimate:
        """The answer. The function is given those of GIVEN that it takes."""
        names = [name for name in GIVEN if self.wants(name)]
        given = question.target if self.takes == "target" else question.policy()
        return self.kind(question.later, given, **{name: getattr(question, name) for name in names})


ESTIMATORS: Registry[RegisteredEstimator] = Registry("estimator", "invariant_bandits.evaluation")


def estimator(
    name: str, *, needs: str = "propensities", takes: str = "target", rank: int = 5, assumption: str | None = None
) -> Callable[[Function], Function]:
    """Register a function as an estimator.

    Parameters
    ----------
    name : str
        What tables call it.
    needs : "propensities", "rewards" or "nothing"
        What the log must have. "rewards" are those of all offered actions.
    takes : "target" or "policy"
        Whether the function is called with (feedback, target) or (feedback, policy). It is given those of GIVEN that
        it has as parameters. Where there are very many offered actions, target and feedback.offered are StoredRows, see
        `Feedback.parts`.
    rank : int
        The lowest that can answer is preferred.
    assumption : str, optional
        What the answer rests on beyond the log. Such an estimator answers only when it is asked for.

    >>> import numpy as np, invariant_bandits as ib
    >>> from invariant_bandits.evaluation.estimators import importance_weights
    >>> from invariant_bandits.evaluation.intervals import estimated
    >>> from invariant_bandits.evaluation.registry import ESTIMATORS
    >>> @ib.estimator("clipped", rank=4)
    ... def clipped(feedback, target, *, confidence=0.95):
    ...     weights = np.minimum(importance_weights(feedback, target), 10.0)
    ...     gains, ones = weights * feedback.rewards, np.ones(feedback.rounds)
    ...     return estimated([gains], [ones], effective_sample=float(feedback.rounds), confidence=confidence)
    >>> ESTIMATORS.find("clipped").needs
    'propensities'
    >>> ESTIMATORS.remove("clipped")
    """
    one_of("needs", needs, NEEDS)
    one_of("takes", takes, TAKES)

    def registered(function: Function) -> Function:
        ESTIMATORS.add(RegisteredEstimator(name, function, needs, takes, rank, assumption))
        return function

    return registered


def chosen_estimators(names: Any, feedback: Feedback, assuming: bool) -> list[RegisteredEstimator]:
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
    if names is None:
        found = [one for one in ESTIMATORS if assuming or one.assumption is None]
    else:
        found = [ESTIMATORS.find(name) for name in names]
    return sorted((one for one in found if one.can_answer(feedback)), key=lambda one: one.rank)
