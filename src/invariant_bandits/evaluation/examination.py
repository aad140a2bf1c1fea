"""What every policy would have earned in a log: policy by policy, so that only one's rounds are held at a time."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from invariant_bandits.checks import InputError
from invariant_bandits.evaluation.calibration import Calibration
from invariant_bandits.evaluation.intervals import Estimate
from invariant_bandits.evaluation.registry import ESTIMATORS, Question, RegisteredEstimator
from invariant_bandits.evaluation.reward_model import predict_rewards
from invariant_bandits.logs.feedback import Feedback
from invariant_bandits.parallel import map_unordered
from invariant_bandits.policies.past import Past
from invariant_bandits.policies.registry import Maker

MOST_KEPT = 100_000
"""Estimates over more rounds are returned without the contributions of the rounds."""
Progress = Callable[[float, int], None]


@dataclass(frozen=True, eq=False)
class Line:
    """One policy by one estimator.

    Attributes
    ----------
    policy : str
        Name of the policy.
    estimator : str
        Name of the estimator.
    value : Estimate
        Reward per round.
    against_reference : Estimate
        Paired difference to the reference policy, per round.
    against_log : Estimate
        Paired difference to what the log earned, per round.
    """

    policy: str
    estimator: str
    value: Estimate
    against_reference: Estimate
    against_log: Estimate

    @property
    def assumption(self) -> str | None:
        """What the numbers rest on beyond the log. None where they rest on the log alone."""
        return ESTIMATORS.find(self.estimator).assumption if self.estimator in ESTIMATORS else None


class Answers(NamedTuple):
    """What all estimators say of one policy, how often it would have done what the log did, and why it failed."""

    lines: tuple[Line, ...] = ()
    agreement: float | None = None
    failure: str | None = None


class Examination:
    """One log and what is asked of every policy.

    Parameters
    ----------
    past : Past
        What policies start from.
    earlier, later : Feedback
        The rounds that they are fitted and evaluated on.
    asked : list of RegisteredEstimator
        The preferred one first.
    logged : Estimate
        What the log earned in the later rounds.
    checked : Calibration or None
        Of the propensities, if there are any.
    confidence : float
        Coverage of the intervals.
    seed : int
        Of what an estimator draws.
    """

    def __init__(
        self,
        past: Past,
        earlier: Feedback,
        later: Feedback,
        asked: list[RegisteredEstimator],
        *,
        logged: Estimate,
        checked: Calibration | None,
        confidence: float,
        seed: int,
    ) -> None:
        self.past, self.earlier, self.later, self.asked = past, earlier, later, asked
        self.logged, self.checked, self.confidence, self.seed = logged, checked, confidence, seed
        modelled = any(one.wants("predictions") for one in asked)
        self._predictions = predict_rewards(later, earlier) if modelled else None
        self._plays = sum(one.takes == "policy" for one in asked) + (later.offered_rewards is None)
        self._reference: str | None = None
        self._rivals: dict[str, Estimate] = {}

    def answers(
        self, makers: Mapping[str, Maker], reference: str, jobs: int = 1, progress: Progress | None = None
    ) -> dict[str, Answers]:
        """What is said of every policy, by name. The reference is examined first: all others are compared with it.

        Parameters
        ----------
        makers : name -> maker
            As `checked_makers` returns them.
        reference : str
            One of the names, or there is no reference.
        jobs : int
            Processes, forked.
        progress : callable, optional
            Called with (policies done, all), long ones that are under way counted in part.
        """
        names, found = list(makers), dict[str, Answers]()
        watch = _Watch(names, self._plays * self.later.rounds, progress)

        def examined(name: str) -> Answers:
            return self._examined(name, makers[name], watch.of(name))

        if reference in makers:
            self._reference = reference
            found[reference] = examined(reference)
            watch.finish(reference)
        rest = [name for name in names if name not in found]
        for index, outcome in map_unordered(examined, rest, jobs, waiting=watch.report):
            found[rest[index]] = outcome
            watch.finish(rest[index])
        return {name: found[name] for name in names}

    def without_rounds(self, estimate: Estimate) -> Estimate:
        """The estimate without the contributions of its rounds, if they are many."""
        return estimate if self.later.rounds <= MOST_KEPT else replace(estimate, contributions=None)

    def _examined(self, name: str, maker: Maker, progress: Callable[[int], None]) -> Answers:
        question = Question(
            maker,
            self.past,
            self.earlier,
            self.later,
            confidence=self.confidence,
            seed=self.seed,
            predictions=self._predictions,
            progress=progress,
        )
        try:
            lines = tuple(self._line(name, one, question) for one in self.asked)
            if self.later.offered_rewards is not None:
                return Answers(lines)
            return Answers(lines, float(self.later.of_logged(question.target).mean()))
        except InputError as error:
            if name == self._reference:
                self._rivals.clear()
            return Answers(failure=str(error))
        except Exception as error:
            error.add_note(f"while evaluating policy {name!r}")
            raise

    def _line(self, name: str, asked: RegisteredEstimator, question: Question) -> Line:
        """One estimator's answer, and its differences to the reference's and to the log."""
        value = self._trusted(asked, asked.estimate(question))
        if name == self._reference:
            self._rivals[asked.name] = value
        rival = self._rivals.get(asked.name)
        against = self._no_reference(value) if rival is None else value.minus(rival)
        return Line(name, asked.name, self.without_rounds(value), against, value.minus(self.logged))

    def _trusted(self, asked: RegisteredEstimator, answer: Estimate) -> Estimate:
        """The answer, refused if it rests on propensities that were found to be wrong."""
        checked = self.checked
        if asked.needs == "nothing" or checked is None or not checked.flagged or checked.worst is None:
            return answer
        return answer.refused(
            f"the propensities are wrong: {checked.worst.name} is off by {checked.worst.gap_in_words}"
        )

    def _no_reference(self, one: Estimate) -> Estimate:
        missing = "there is no reference policy"
        words = missing if self._reference is None else f"{self._reference} has no such estimate"
        return replace(one, value=np.nan, contributions=None).refused(words)


class _Watch:
    """How far all policies are, in whatever process they are played."""

    def __init__(self, names: list[str], rounds: int, progress: Progress | None) -> None:
        self._names, self._rounds, self._progress = names, rounds, progress
        self._shares = multiprocessing.RawArray("d", len(names))
        self._process = os.getpid()

    def of(self, name: str) -> Callable[[int], None]:
        """Called with the rounds that this policy has played since the last call."""
        place = self._names.index(name)

        def played(rounds: int) -> None:
            self._shares[place] += rounds / self._rounds
            if os.getpid() == self._process:
                self.report()

        return played

    def finish(self, name: str) -> None:
        """This policy is done."""
        self._shares[self._names.index(name)] = 1.0
        self.report()

    def report(self) -> None:
        """Say how many policies are done."""
        if self._progress is not None:
            self._progress(sum(self._shares), len(self._names))
