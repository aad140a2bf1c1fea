"""compare: would another policy have helped? Fit on the first part of a log, play the rest once, pair the
policies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from invariant_bandits.checks import InputError, one_of, whole_number
from invariant_bandits.evaluation.estimators import (
    ESTIMATORS,
    Question,
    RegisteredEstimator,
    chosen_estimators,
    logged_value,
)
from invariant_bandits.evaluation.intervals import Estimate
from invariant_bandits.evaluation.propensities import Calibration, calibration, estimate_propensities
from invariant_bandits.evaluation.reward_model import predict_rewards
from invariant_bandits.logs.feedback import Feedback
from invariant_bandits.optional import frame_of
from invariant_bandits.parallel import map_unordered
from invariant_bandits.policies.past import Past
from invariant_bandits.policies.registry import Maker, checked_makers

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure


def verdict(difference: Estimate, assuming: str | None = None) -> str:
    """Would it have helped? In plain words.

    Parameters
    ----------
    difference : Estimate
        Paired difference to the log.
    assuming : str, optional
        The estimator that gave it, if it assumes more than the log.
    """
    if not difference.concludes:
        return f"cannot be known, because {'; '.join(difference.reasons)}"
    interval = f"[{difference.low:+.3g}, {difference.high:+.3g}] per round"
    if difference.low > 0.0:
        words = f"yes, by {difference.value:.3g} {interval}"
    elif difference.high < 0.0:
        words = f"no, it would have lost {-difference.value:.3g} {interval}"
    else:
        words = f"no difference can be seen: {difference.value:+.3g} {interval}"
    return words if assuming is None else f"if the {assuming} method's assumption holds: {words}"


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
    """What all estimators say of one policy, how often it would have done what the log did, and why it
    failed.
    """

    lines: tuple[Line, ...] = ()
    agreement: float | None = None
    failure: str | None = None


@dataclass(frozen=True, eq=False)
class PolicyEvaluation:
    """One log and what is asked of every policy.

    Parameters
    ----------
    asked : list of RegisteredEstimator
        The preferred one first.
    logged : Estimate
        What the log earned in the later rounds.
    checked : Calibration or None
        Of the propensities, if there are any.
    reference : str or None
        The policy that the others are compared with, which must be evaluated first.
    keep_rounds : bool
        Whether estimates keep the contributions of their rounds.
    """

    asked: list[RegisteredEstimator]
    logged: Estimate
    checked: Calibration | None
    reference: str | None
    keep_rounds: bool
    _rivals: dict[str, Estimate] = field(default_factory=dict)

    def answers(self, name: str, question: Question) -> Answers:
        """What is said of a policy."""
        try:
            lines = tuple(self._line(name, estimator, question) for estimator in self.asked)
            if question.later.offered_rewards is not None:
                return Answers(lines)
            return Answers(lines, float(question.later.of_logged(question.target).mean()))
        except InputError as error:
            if name == self.reference:
                self._rivals.clear()
            return Answers(failure=str(error))
        except Exception as error:
            error.add_note(f"while evaluating policy {name!r}")
            raise

    def without_rounds(self, estimate: Estimate) -> Estimate:
        """The estimate without the contributions of its rounds, unless they are kept."""
        return estimate if self.keep_rounds else replace(estimate, contributions=None)

    def _line(self, name: str, asked: RegisteredEstimator, question: Question) -> Line:
        """One estimator's answer, and its differences to the reference's and to the log."""
        value, worst = asked.estimate(question), None
        if asked.needs != "nothing" and self.checked is not None and self.checked.flagged:
            worst = self.checked.worst
        if worst is not None:
            value = value.refused(f"the propensities are wrong: {worst.name} is off by {worst.gap_in_words}")
        if name == self.reference:
            self._rivals[asked.name] = value
        rival = self._rivals.get(asked.name)
        if rival is not None:
            against = value.minus(rival)
        else:
            missing = "there is no reference policy"
            words = missing if self.reference is None else f"{self.reference} has no such estimate"
            against = replace(value, value=np.nan, contributions=None).refused(words)
        return Line(name, asked.name, self.without_rounds(value), against, value.minus(self.logged))


COMPARED = (
    *("auto-isd", "isd-linucb", "linucb-cold", "linucb-warm"),
    *("sw-linucb", "d-linucb", "frozen", "uniform"),
)
"""The policies that are compared if none are named. Cold LinUCB begins with nothing, warm LinUCB has learned
every logged round, sliding window and discount are cold and remember about one window of the moments, frozen
is a regression on the logged rounds that never learns again.
"""
REFERENCE = "LinUCB cold"
SOURCES = ("logged", "estimated", "uniform")
NO_PROPENSITIES = "the log has no propensities"
WITHOUT_PROPENSITIES = (
    "without propensities what other actions would have earned cannot be known from the log without an"
    " assumption; say that logging was uniform, have propensities estimated, or accept the direct method's"
    " assumption"
)
FOLLOWED = (
    "every policy learns from the logged actions as it goes (in replay, from the accepted rounds only), so a"
    " policy that starts with nothing profits from the log's exploration"
)
ONE_AT_A_TIME = "intervals hold for one policy at a time; the best of many looks better than it is"


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Every policy by every estimator that the log allows.

    Attributes
    ----------
    lines : tuple of Line
        Policy by estimator, the preferred estimator first.
    logged : Estimate
        What the logging policy earned in the same rounds, per round.
    reference : str or None
        The policy that differences are taken to.
    agreement : policy -> float or None
        Share of the rounds in which it would have done what the log did. None with full information.
    fitted_rounds : int
        How many rounds the policies were fitted on.
    calibration : Calibration or None
        Of the propensities, if there are any.
    notes : tuple of str
        What can and cannot be known.
    failures : policy -> str
        Why policies could not be fitted or played. They have no lines.
    """

    lines: tuple[Line, ...]
    logged: Estimate
    reference: str | None
    agreement: Mapping[str, float | None]
    fitted_rounds: int
    calibration: Calibration | None
    notes: tuple[str, ...]
    failures: Mapping[str, str] = field(default_factory=dict)

    @property
    def policies(self) -> tuple[str, ...]:
        """Names in the order given."""
        return tuple(self.agreement)

    def line(self, policy: str, estimator: str | None = None) -> Line | None:
        """One line, without `estimator` that of the preferred one. None if nothing can be estimated."""
        if policy not in self.agreement:
            raise InputError(
                f"policy must be one of those compared, {', '.join(self.policies)}, got {policy!r}"
            )
        return next((x for x in self.lines if x.policy == policy and estimator in (None, x.estimator)), None)

    def verdict(self, policy: str) -> str:
        """Would it have helped? In plain words."""
        line = self.line(policy)
        if policy in self.failures:
            return f"not evaluated: {policy} could not be fitted or played, because {self.failures[policy]}"
        if line is None:
            return f"cannot be known, because {NO_PROPENSITIES}"
        return verdict(line.against_log, line.estimator if line.assumption is not None else None)

    def assumptions(self) -> dict[str, str]:
        """Estimator -> what it assumes, for those in the comparison that assume anything."""
        return {line.estimator: line.assumption for line in self.lines if line.assumption is not None}

    def rows(self) -> list[dict[str, Any]]:
        """Tidy rows: one per policy, estimator and quantity (value, against log, against reference)."""
        return [
            {
                "policy": line.policy,
                "estimator": line.estimator,
                "quantity": quantity,
                "value": estimate.value,
                "low": estimate.low,
                "high": estimate.high,
                "standard_error": estimate.standard_error,
                "effective_sample": estimate.effective_sample,
                "rounds": estimate.rounds,
                "concludes": estimate.concludes,
                "reasons": "; ".join(estimate.reasons),
            }
            for line in self.lines
            for quantity, estimate in (
                ("value", line.value),
                ("against log", line.against_log),
                ("against reference", line.against_reference),
            )
        ]

    def to_frame(self) -> pandas.DataFrame:
        """The `rows` as a pandas frame. Needs pandas."""
        return frame_of(self.rows(), "to_frame")

    def plot(self, *, theme: str = "light") -> Figure:
        """Gains over the log with their intervals, a line per policy by its preferred estimator. Needs
        matplotlib.

        Policies of which nothing is known have a line without an interval. The caller shows it.
        """
        from invariant_bandits import plotting

        rows: dict[str, tuple[float, float, float] | None] = dict.fromkeys(self.policies)
        for name in self.policies:
            line = self.line(name)
            if line is not None and line.against_log.concludes:
                rows[name] = (line.against_log.value, line.against_log.low, line.against_log.high)
        return plotting.difference_chart(rows, theme_name=theme)

    def summary(self) -> str:
        """Tables a person can read, a verdict per policy, and what the numbers rest on."""
        first = self.policies[0]
        lines = [
            f"{first} against what the log did: {self.verdict(first)}.",
            f"Fitted on the first {self.fitted_rounds:,} rounds, evaluated on the next"
            f" {self.logged.rounds:,}.",
            f"The log itself earned {self.logged} per round.",
        ]
        if self.lines:
            lines += ["", *self._table()]
        lines += ["", "Would it have helped?"]
        for name, share in self.agreement.items():
            agrees = (
                "" if share is None else f" (it agrees with the log in {100.0 * share:.0f} % of the rounds)"
            )
            lines.append(f"  {name}: {self.verdict(name)}{agrees}")
        if self.calibration is not None:
            lines += ["", f"Propensities: {self.calibration.words}."]
        assumed = [f"{name}: {words}" for name, words in self.assumptions().items()]
        return "\n".join([*lines, "", *(f"Note: {note}." for note in [*self.notes, *assumed])])

    def _table(self) -> list[str]:
        wide = max(20, *(len(name) for name in self.policies))
        against = f"against {self.reference}" if self.reference else ""
        heads = f"{'value per round':<28} {'against the log':<28} {against:<28}"
        lines = [f"{'policy':<{wide}} {'by':<7} {heads} {'eff. rounds':>11}"]
        for line in self.lines:
            rival = "" if self.reference in (None, line.policy) else line.against_reference.interval
            cells = f"{line.value.interval:<28} {line.against_log.interval:<28} {rival:<28}"
            rounds = f"{line.value.effective_sample:>11,.0f}"
            lines.append(f"{line.policy:<{wide}} {line.estimator:<7} {cells} {rounds}")
        return lines

    def _repr_html_(self) -> str:
        """What a notebook shows: the summary and the picture."""
        from invariant_bandits import plotting

        return plotting.notebook_html(self.summary(), self.plot)

    def __str__(self) -> str:
        return self.summary()

    def __repr__(self) -> str:
        estimators = ", ".join(dict.fromkeys(line.estimator for line in self.lines)) or "nothing"
        return f"Comparison({', '.join(self.policies)}; by {estimators}; {self.logged.rounds:,} rounds)"


def compare(
    feedback: Feedback,
    policies: Mapping[str, Maker | str] | Sequence[str] | None = None,
    *,
    fit_fraction: float = 0.5,
    fit_until: Any = None,
    windows: int = 8,
    edges: Any = None,
    propensities: str = "logged",
    estimators: Sequence[str] | None = None,
    with_direct: bool = False,
    reference: str = REFERENCE,
    confidence: float = 0.95,
    seed: int = 0,
    jobs: int = 1,
    progress: Callable[[int, int], None] | None = None,
    keep_rounds: int = 100_000,
) -> Comparison:
    """Fit every policy on the first part of the log and evaluate it on the rest, in time order, once.

    Parameters
    ----------
    feedback : Feedback
        The logged rounds.
    policies : name -> maker, or registered names, optional
        A maker is called with the Past and returns a fresh policy. The name of a registered policy will do
        for one. COMPARED if not given.
    fit_fraction : float
        Share of the rounds, the first ones, that policies are fitted on.
    fit_until : number or datetime, optional
        Policies are fitted on the rounds before this time, instead of `fit_fraction`.
    windows : int
        Into how many the first part is cut.
    edges : array, shape (m + 1,), optional
        Times that bound the windows, instead of `windows`.
    propensities : "logged", "estimated" or "uniform"
        "estimated" by a conditional logistic model. "uniform" if the caller knows that logging was.
    estimators : sequence of str, optional
        Which registered estimators to ask. If not given all that the log allows and that assume nothing
        beyond it: with full information policies are simply played (exact), with propensities DR, SNIPS, IPS
        and replay.
    with_direct : bool
        Ask also those that assume something, such as the direct method.
    reference : str
        The policy that differences are taken to, where it is among them.
    confidence : float
        Coverage of the intervals, such as 0.95.
    seed : int
        Of what an estimator draws.
    jobs : int
        Processes, forked.
    progress : callable, optional
        Called with (policies done, all).
    keep_rounds : int
        Estimates over more rounds are returned without the contributions of the rounds.

    Returns
    -------
    Comparison
        With values, paired differences and verdicts.

    >>> import numpy as np, invariant_bandits as ib
    >>> rng = np.random.default_rng(0)
    >>> offered = rng.normal(size=(600, 3, 2))
    >>> feedback = ib.Feedback.from_full_information(offered, offered @ [1.0, -1.0], seed=0)
    >>> result = ib.compare(feedback, ["linucb-warm", "uniform"], windows=4)
    >>> result.verdict("LinUCB warm").startswith("yes, by")
    True
    """
    one_of("propensities", propensities, SOURCES)
    makers = checked_makers(COMPARED if policies is None else policies)
    whole_number("jobs", jobs, 1)
    earlier, later = feedback.split(fit_fraction) if fit_until is None else feedback.split(time=fit_until)
    past = Past.from_feedback(earlier, later.rounds, windows, edges)
    full = later.offered_rewards is not None
    checked, notes = None, list[str]()
    if not full:
        later, notes = _with_propensities(earlier, later, propensities)
        checked = None if later.propensities is None else calibration(later)
        if later.propensities is None:
            notes.append(WITHOUT_PROPENSITIES)
    asked = chosen_estimators(estimators, later, with_direct)
    modelled = any(estimator.wants("predictions") for estimator in asked)
    predictions = predict_rewards(later, earlier) if modelled else None
    logged = logged_value(later, confidence=confidence)
    named = reference if reference in makers else None
    evaluation = PolicyEvaluation(asked, logged, checked, named, later.rounds <= keep_rounds)

    def answers_of(name: str) -> Answers:
        question = Question(makers[name], past, earlier, later, predictions, confidence, seed)
        return evaluation.answers(name, question)

    answers, first = dict[str, Answers](), [name for name in makers if name == named]
    rest = [name for name in makers if name != named]
    for names, processes in ((first, 1), (rest, jobs)):  # the others are compared with the reference
        for index, outcome in map_unordered(answers_of, names, processes):
            answers[names[index]] = outcome
            if progress is not None:
                progress(len(answers), len(makers))
    answers = {name: answers[name] for name in makers}
    return Comparison(
        lines=tuple(line for answer in answers.values() for line in answer.lines),
        logged=evaluation.without_rounds(logged),
        reference=named,
        agreement={name: answer.agreement for name, answer in answers.items()},
        fitted_rounds=earlier.rounds,
        calibration=checked,
        notes=(*notes, *([] if full else [FOLLOWED]), ONE_AT_A_TIME),
        failures={name: answer.failure for name, answer in answers.items() if answer.failure is not None},
    )


def _with_propensities(earlier: Feedback, later: Feedback, source: str) -> tuple[Feedback, list[str]]:
    if source == "uniform":
        return later.with_uniform_propensities(), ["propensities: taken as uniform, as the caller says"]
    if source == "estimated":
        fitted = estimate_propensities(later, earlier=earlier)
        words = (
            "propensities: estimated by a conditional logistic model from earlier choices; they assume that"
            " the log shows all that the logging policy looked at"
        )
        return later.with_propensities(fitted), [words]
    return later, []
