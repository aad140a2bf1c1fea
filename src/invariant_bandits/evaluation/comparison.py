"""Would another policy have helped? Policies are fitted on a part of a log and evaluated on the others.

`compare` pairs policies in the same rounds; `expected_value` says what a fitted model would have earned,
as far as its log can tell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import comb
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from invariant_bandits import plotting
from invariant_bandits.checks import Array, InputError, one_of, whole_number
from invariant_bandits.evaluation.estimators import (
    ESTIMATORS,
    EvaluationTask,
    RegisteredEstimator,
    chosen_estimators,
    logged_value,
    predict_rewards,
)
from invariant_bandits.evaluation.intervals import Estimate
from invariant_bandits.evaluation.propensities import (
    Calibration,
    calibration,
    with_propensities,
)
from invariant_bandits.evaluation.tuning import SIMPLE, Tuning, tune
from invariant_bandits.features.arm_maps import ArmFeatures
from invariant_bandits.features.maps import FeatureOptions
from invariant_bandits.logs.feedback import Feedback
from invariant_bandits.logs.log import open_log
from invariant_bandits.logs.logged_feedback import LoggedFeedback
from invariant_bandits.logs.windows import edges_within
from invariant_bandits.model.fit import caution_of, fitted_spec
from invariant_bandits.model.model import Model
from invariant_bandits.moments.windowed import WindowedMoments
from invariant_bandits.optional import require
from invariant_bandits.parallel import map_unordered
from invariant_bandits.policies.past import Past
from invariant_bandits.policies.registry import PolicySpec, find_policy, policy_specs

if TYPE_CHECKING:
    import pandas


WITHOUT_PROPENSITIES = (
    "without propensities what other actions would have earned cannot be known from the log without an"
    " assumption; say that logging was uniform (--propensities uniform), have propensities estimated"
    " (--propensities estimated), or accept the direct method's assumption (--direct)"
)
FOLLOWED = (
    "every policy learns from the logged actions as it goes (in replay, from the accepted rounds only), so a"
    " policy that starts with nothing profits from the log's exploration"
)
ONE_AT_A_TIME = (
    "intervals of values hold for one policy at a time, those of differences between policies for all pairs"
    " at once; the best of many looks better than it is"
)


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
    value = difference.value
    interval = f"[{difference.low:+.3g}, {difference.high:+.3g}] per round"
    if difference.answer == "yes":
        words = f"yes, by {value:.3g} {interval}"
    elif difference.answer == "no":
        words = f"no, it would have lost {-value:.3g} {interval}"
    else:
        words = f"no difference can be seen: {value:+.3g} {interval}"
    return (
        f"if the {assuming} method's assumption holds: {words}" if assuming else words
    )


@dataclass(frozen=True, eq=False)
class PolicyEstimate:
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
        Paired difference to the reference policy, per round. Intervals of the differences of all pairs of
        policies hold at once.
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
        if self.estimator not in ESTIMATORS:
            return None
        return ESTIMATORS.find(self.estimator).assumption


def _word(value: Any) -> str:
    """A setting as a name with options has it."""
    # A discount near 1 keeps its digits.
    if isinstance(value, float) and value < 0.9:
        return f"{value:g}"
    return str(value).lower()


class Answers(NamedTuple):
    """Estimates of one policy, its share of agreement with the log, and why it failed."""

    lines: tuple[PolicyEstimate, ...] = ()
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
    doubt : str or None
        Why nothing that rests on the propensities can be concluded.
    reference : str or None
        The policy that the others are compared with, which must be evaluated first.
    keep_rounds : bool
        Whether estimates keep the contributions of their rounds.
    pairs : int
        How many pairs of policies there are, for whose differences the intervals hold at once.
    """

    asked: list[RegisteredEstimator]
    logged: Estimate
    doubt: str | None
    reference: str | None
    keep_rounds: bool
    pairs: int = 1
    _rivals: dict[str, Estimate] = field(default_factory=dict)

    def answers(self, name: str, task: EvaluationTask) -> Answers:
        """What is said of a policy."""
        try:
            lines = tuple(self._line(name, estimator, task) for estimator in self.asked)
            if task.later.offered_rewards is not None:
                return Answers(lines)
            return Answers(lines, float(task.later.of_logged(task.target).mean()))
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

    def _line(
        self, name: str, asked: RegisteredEstimator, task: EvaluationTask
    ) -> PolicyEstimate:
        """One estimator's answer, and its differences to the reference's and to the log."""
        value = asked.estimate(task)
        if asked.needs != "nothing" and self.doubt is not None:
            value = value.refused(self.doubt)
        if name == self.reference:
            self._rivals[asked.name] = value
        rival = self._rivals.get(asked.name)
        if rival is not None:
            against = value.minus(rival, self.pairs)
        else:
            missing = replace(value, value=np.nan, contributions=None)
            against = missing.refused(
                f"{self.reference or 'the reference'} has no such estimate"
            )
        return PolicyEstimate(
            policy=name,
            estimator=asked.name,
            value=self.without_rounds(value),
            against_reference=against,
            against_log=value.minus(self.logged),
        )


COMPARED = (
    *("auto-isd", "isd-linucb", "linucb-cold", "linucb-warm"),
    *("sw-linucb", "d-linucb", "frozen", "uniform"),
)
"""The policies that are compared if none are named. Cold LinUCB begins with nothing, warm LinUCB has learned
every logged round, SW-LinUCB and D-LinUCB have learned those that they remember, frozen is a regression
on the logged rounds that never learns again. As published, SW-LinUCB and D-LinUCB begin with nothing and
remember about one window of the moments.
"""
REFERENCE = "linucb-cold"
"""The policy that differences are taken to where no simple policy was tuned."""
NUMBERS = (
    "value",
    "low",
    "high",
    "standard_error",
    "effective_sample",
    "rounds",
    "concludes",
)
"""Of every estimate in the rows of a comparison."""


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(plotting.ShownInNotebooks):
    """Every policy by every estimator that the log allows.

    Attributes
    ----------
    lines : tuple of PolicyEstimate
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
    settings : policy -> options
        Of the policies whose settings were chosen on the rounds that policies are fitted on.
    simple : tuple of str
        The simple policies among these, the one that earned most in those rounds first.
    """

    lines: tuple[PolicyEstimate, ...]
    logged: Estimate
    reference: str | None
    agreement: Mapping[str, float | None]
    fitted_rounds: int
    calibration: Calibration | None
    notes: tuple[str, ...]
    failures: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    simple: tuple[str, ...] = ()

    @property
    def policies(self) -> tuple[str, ...]:
        """Names in the order given."""
        return tuple(self.agreement)

    def line(self, policy: str, estimator: str | None = None) -> PolicyEstimate | None:
        """One line, without `estimator` that of the preferred one. None if nothing can be estimated."""
        if policy not in self.agreement:
            raise InputError(
                f"policy must be one of {', '.join(self.policies)}, got {policy!r}"
            )
        for line in self.lines:
            if line.policy == policy and estimator in (None, line.estimator):
                return line
        return None

    def verdict(self, policy: str) -> str:
        """Would it have helped? In plain words."""
        line = self.line(policy)
        if policy in self.failures:
            return f"not evaluated: {policy} could not be fitted or played, because {self.failures[policy]}"
        if line is None:
            return "cannot be known, because the log has no propensities"
        return verdict(
            line.against_log, line.estimator if line.assumption is not None else None
        )

    def settings_of(self, policy: str) -> str:
        """The settings that were chosen for a policy, as words. Empty if none were."""
        return ", ".join(
            f"{name} {_word(value)}"
            for name, value in self.settings.get(policy, {}).items()
        )

    def with_settings(self, policy: str) -> str:
        """The name of a policy, with the settings that were chosen for it."""
        settings = self.settings_of(policy)
        return f"{policy} ({settings})" if settings else policy

    def assumptions(self) -> dict[str, str]:
        """Estimator -> what it assumes, for those in the comparison that assume anything."""
        return {
            line.estimator: line.assumption
            for line in self.lines
            if line.assumption is not None
        }

    def rows(self) -> list[dict[str, Any]]:
        """Tidy rows: one per policy, estimator and quantity (value, against log, against reference)."""
        rows = []
        for line in self.lines:
            estimates = {
                "value": line.value,
                "against log": line.against_log,
                "against reference": line.against_reference,
            }
            for quantity, estimate in estimates.items():
                row: dict[str, Any] = {
                    "policy": line.policy,
                    "settings": self.settings_of(line.policy),
                    "estimator": line.estimator,
                    "quantity": quantity,
                }
                row |= {number: getattr(estimate, number) for number in NUMBERS}
                row["reasons"] = "; ".join(estimate.reasons)
                rows.append(row)
        return rows

    def to_frame(self) -> pandas.DataFrame:
        """The `rows` as a pandas frame. Needs pandas."""
        return require("pandas", "to_frame").DataFrame(self.rows())

    def plot(self, axes: Any = None, *, theme: str = "light") -> Any:
        """Draw the gains over the log with their intervals, a line per policy by its preferred estimator.

        Policies of which nothing is known have a line without an interval. Parameters and what is returned as
        in `SimulationResult.plot`.
        """
        rows: dict[str, tuple[float, float, float] | None] = dict.fromkeys(
            self.policies
        )
        # The preferred estimator of a policy comes last.
        for line in reversed(self.lines):
            gain = line.against_log
            interval = (gain.value, gain.low, gain.high)
            rows[line.policy] = interval if gain.concludes else None
        return plotting.difference_chart(rows, axes=axes, theme_name=theme)

    def headline(self) -> list[str]:
        """How the first policy compares with the best simple one and with the log, in a few sentences."""
        first = self.policies[0]
        rounds = f"{self.fitted_rounds:,} rounds"
        return [
            *self._against_simple(),
            f"{first} against what the log did: {self.verdict(first)}.",
            f"Fitted on the first {rounds}, evaluated on the next {self.logged.rounds:,}.",
            f"The log itself earned {self.logged} per round.",
        ]

    def _against_simple(self) -> list[str]:
        """Who is ahead, the first policy or the reference. First of all whether a simple policy is."""
        first = self.policies[0]
        rival = self.reference
        line = self.line(first)
        if (
            line is None
            or rival is None
            or rival == first
            or not line.against_reference.concludes
        ):
            return []
        gain = line.against_reference
        name = self.with_settings(rival)
        if rival in self.simple[:1]:
            name += ", the best simple policy of the rounds before"
        ends = (gain.low, gain.high) if gain.value >= 0.0 else (-gain.high, -gain.low)
        amount = f"by {abs(gain.value):.3g} [{ends[0]:+.3g}, {ends[1]:+.3g}] per round"
        chance = "" if gain.answer in ("yes", "no") else ", which may be chance"
        if gain.value < 0.0:
            simple = "A simple policy is ahead: " if rival in self.simple else ""
            return [f"{simple}{name}, beats {first} {amount}{chance}."]
        sentences = [f"{first} is ahead of {name}, {amount}{chance}."]
        best = first
        above = 0.0
        for other in self.simple:
            its_line = None if other in (first, rival) else self.line(other)
            if its_line and its_line.value.value - line.value.value > above:
                best = other
                above = its_line.value.value - line.value.value
        if best != first:
            sentences.insert(
                0,
                f"A simple policy may be ahead: {self.with_settings(best)} has the highest "
                f"estimate, {above:.3g} above {first}. It is picked afterwards, so it looks "
                "better than it is.",
            )
        return sentences

    def summary(self) -> str:
        """Tables a person can read, a verdict per policy, and what the numbers rest on."""
        lines = self.headline()
        if self.lines:
            lines += ["", *self._table()]
        lines += ["", "Would it have helped?"]
        for name, share in self.agreement.items():
            line = f"  {self.with_settings(name)}: {self.verdict(name)}"
            if share is not None:
                line += (
                    f" (it agrees with the log in {100.0 * share:.0f} % of the rounds)"
                )
            lines.append(line)
        if self.calibration is not None:
            lines += ["", f"Propensities: {self.calibration.words}."]
        lines.append("")
        lines += [f"Note: {note}." for note in self.notes]
        for name, words in self.assumptions().items():
            lines.append(f"Note: {name}: {words}.")
        return "\n".join(lines)

    def _table(self) -> list[str]:
        wide = max(20, *(len(name) for name in self.policies))
        against = f"against {self.reference}" if self.reference else ""
        lines = [
            f"{'policy':<{wide}} {'by':<7} {'value per round':<28} {'against the log':<28} "
            f"{against:<28} {'eff. rounds':>11}"
        ]
        for line in self.lines:
            rival = ""
            if self.reference not in (None, line.policy):
                rival = line.against_reference.interval
            lines.append(
                f"{line.policy:<{wide}} {line.estimator:<7} {line.value.interval:<28} "
                f"{line.against_log.interval:<28} {rival:<28} "
                f"{line.value.effective_sample:>11,.0f}"
            )
        return lines

    __str__ = summary

    def __repr__(self) -> str:
        estimators = ", ".join(dict.fromkeys(line.estimator for line in self.lines))
        return (
            f"Comparison({', '.join(self.policies)}; by {estimators or 'nothing'};"
            f" {self.logged.rounds:,} rounds)"
        )


def compare(
    feedback: Any,
    policies: Mapping[str, Any] | Sequence[Any] | None = None,
    *,
    fit_fraction: float = 0.5,
    fit_until: Any = None,
    windows: int = 8,
    edges: Any = None,
    propensities: str = "logged",
    estimators: Sequence[str] | None = None,
    with_direct: bool = False,
    reference: str | None = None,
    settings: str = "tuned",
    confidence: float = 0.95,
    seed: int = 0,
    jobs: int = 1,
    progress: Callable[[int, int], None] | None = None,
    keep_rounds: int = 100_000,
) -> Comparison:
    """Fit every policy on the first part of a log, and evaluate the policy on the rest, in time order.

    Parameters
    ----------
    feedback : Feedback, LoggedFeedback, or a log as `open_log` takes it
        The logged rounds.
    policies : name -> maker, or registered names, optional
        Policies to compare: registered names, with options as in "linucb-warm,exploration=0.3", or makers
        (functions that return a new policy). The argument of a maker is the `Past` (the rounds to fit on). By
        default eight policies are compared, from "auto-isd" to "uniform".
    fit_fraction : float
        Share of the rounds, from the beginning of the log, on which policies are fitted.
    fit_until : number or datetime, optional
        Time before which rounds are used to fit policies, instead of `fit_fraction`.
    windows : int
        Number of windows (periods) into which the rounds for fitting are cut.
    edges : array, shape (m + 1,), optional
        Times at which the m windows (periods) of the rounds for fitting begin and end, instead of
        the parameter `windows`.
    propensities : "logged", "estimated" or "uniform"
        Source of the choice probabilities: a column of the log ("logged"), a conditional logistic model of
        the logged choices ("estimated"), or equal probabilities for all actions ("uniform").
    estimators : sequence of str, optional
        Names of registered estimators of a policy's value. The default estimators are DR, SNIPS, IPS and
        replay for logs with propensities (choice probabilities), and "exact" for logs with the rewards of all
        actions.
    with_direct : bool
        Whether to add estimators that rest on an assumption, such as the direct method.
    reference : str, optional
        Policy with which the other policies are compared. By default the reference is the simple policy that
        earned most in the rounds for fitting.
    settings : "tuned", "published" or "both"
        Whether the exploration and the memory (window length or discount) of policies are tuned on the rounds
        for fitting, or set as in the literature ("published"). The parameter `settings` concerns ISD-linUCB
        and the simple policies: LinUCB, SW-LinUCB, D-LinUCB and "frozen" (a regression on the rounds for
        fitting). A policy with options in its name keeps these options. With `settings="both"` the results
        have two entries per policy, such as "linucb-warm" and "linucb-warm, published".
    confidence : float
        Coverage of the confidence intervals, such as 0.95.
    seed : int
        Seed of estimators that draw random numbers.
    jobs : int
        Number of processes that evaluate policies in parallel.
    progress : callable, optional
        Function that is called with the number of finished and of all evaluations.
    keep_rounds : int
        Largest number of rounds for which estimates keep the contribution of each round.

    Returns
    -------
    Comparison
        Estimated values of all policies, paired differences between policies, and verdicts.

    >>> import numpy as np, invariant_bandits as ib
    >>> rng = np.random.default_rng(0)
    >>> offered = rng.normal(size=(600, 3, 2))
    >>> feedback = ib.evaluation.Feedback.from_full_information(offered, offered @ [1.0, -1.0], seed=0)
    >>> result = ib.compare(feedback, ["linucb-warm", "uniform"], windows=4)
    >>> result.verdict("linucb-warm").startswith("yes, by")
    True
    >>> result.with_settings("linucb-warm")
    'linucb-warm (exploration 0)'
    """
    one_of("propensities", propensities, ("logged", "estimated", "uniform"))
    one_of("settings", settings, ("tuned", "published", "both"))
    specs = policy_specs(COMPARED if policies is None else policies)
    whole_number("jobs", jobs, 1)
    feedback, windows = _rounds_of(feedback, fit_fraction, windows, seed)
    coding = feedback.arm_features
    feedback = (
        feedback if coding is None else feedback.recoded(coding.with_own_slopes())
    )
    earlier, later = (
        feedback.split(fit_fraction)
        if fit_until is None
        else feedback.split(time=fit_until)
    )
    past = Past.from_feedback(earlier, later.rounds, windows, edges)
    full = later.offered_rewards is not None
    checked = None
    notes = _shared_slopes(coding)
    if not full:
        later, about_propensities = with_propensities(earlier, later, propensities)
        notes += about_propensities
        checked = (
            None if later.propensities is None else calibration(later.recoded(coding))
        )
        if later.propensities is None:
            notes.append(WITHOUT_PROPENSITIES)
    asked = chosen_estimators(estimators, later, with_direct)
    modelled = any(estimator.wants("predictions") for estimator in asked)
    predictions = predict_rewards(later, earlier) if modelled else None
    logged = logged_value(later, confidence=confidence)
    tuning = Tuning()
    if asked and settings != "published":
        count = len(specs)
        tuning = tune(
            specs,
            earlier,
            asked[0],
            windows=windows,
            propensities=propensities,
            seed=seed,
            jobs=jobs,
            progress=progress and (lambda done, total: progress(done, total + count)),
        )
        specs = tuning.applied(specs, beside=settings == "both")
        notes += tuning.notes
    simple = tuning.simple()
    wanted = (*simple, REFERENCE)[0] if reference is None else reference
    named = wanted if wanted in specs else None
    doubt = None if checked is None else checked.doubt
    pairs = max(comb(len(specs), 2), 1)
    evaluation = PolicyEvaluation(
        asked=asked,
        logged=logged,
        doubt=doubt,
        reference=named,
        keep_rounds=later.rounds <= keep_rounds,
        pairs=pairs,
    )

    # Simple policies have own slopes; the others learn the rounds in the log's own coding.
    coded_earlier = earlier
    coded_later = later
    coded_past = past
    if feedback.arm_features is not coding:
        coded_earlier = earlier.recoded(coding)
        coded_later = later.recoded(coding)
        coded_past = Past.from_feedback(coded_earlier, later.rounds, windows, edges)

    def answers_of(name: str) -> Answers:
        simple = _is_simple(specs[name])
        task = EvaluationTask(
            spec=specs[name],
            past=past if simple else coded_past,
            earlier=earlier if simple else coded_earlier,
            later=later if simple else coded_later,
            predictions=predictions,
            confidence=confidence,
            seed=seed,
        )
        return evaluation.answers(name, task)

    answers: dict[str, Answers] = {}
    first = [name for name in specs if name == named]
    others = [name for name in specs if name != named]
    # The others are compared with the reference, which must have its answers before.
    for names, processes in ((first, 1), (others, jobs)):
        for index, outcome in map_unordered(answers_of, names, processes):
            answers[names[index]] = outcome
            if progress is not None:
                progress(tuning.plays + len(answers), tuning.plays + len(specs))
    answers = {name: answers[name] for name in specs}
    return Comparison(
        lines=tuple(line for answer in answers.values() for line in answer.lines),
        logged=evaluation.without_rounds(logged),
        reference=named,
        agreement={name: answer.agreement for name, answer in answers.items()},
        fitted_rounds=earlier.rounds,
        calibration=checked,
        notes=(
            *notes,
            *([] if full else [FOLLOWED]),
            ONE_AT_A_TIME,
        ),
        failures={
            name: answer.failure
            for name, answer in answers.items()
            if answer.failure is not None
        },
        settings={name: setting.options for name, setting in tuning.settings.items()},
        simple=simple,
    )


def _is_simple(spec: PolicySpec) -> bool:
    """Whether a policy is one that other policies are measured by: it has own slopes in every comparison."""
    return spec.kind is None and spec.name in (*SIMPLE, "linucb")


def _shared_slopes(coding: ArmFeatures | None) -> list[str]:
    """What the context cannot change in the policies that are not simple, as notes."""
    silent = None if coding is None else coding.silent_context()
    if silent is None:
        return []
    return [f"{silent}. The simple policies that it is compared with have own slopes"]


def _rounds_of(
    source: Any, fit_fraction: float, windows: int, seed: int
) -> tuple[Feedback, int]:
    """The rounds of a log that may still have to be read, and how many windows they bear."""
    if isinstance(source, Feedback):
        return source, windows
    read = source
    if not isinstance(read, LoggedFeedback):
        read = open_log(source).feedback(
            fit_fraction=fit_fraction, windows=windows, seed=seed
        )
    return read.feedback, min(windows, read.windows)


def expected_value(
    model: Model,
    source: Any,
    *,
    exploration: float | None = None,
    delta: float = 0.01,
    features: FeatureOptions | None = None,
    weight_missing: Sequence[str] = (),
    latest: int = 20_000,
) -> dict[str, Any]:
    """Return what the model's policy would have earned in the later half of its log, as plain values.

    It is fitted on the earlier half as the model was on all of it: same options, same windows. A regression
    that never learns again is evaluated beside it.

    Parameters
    ----------
    model : Model
        As `fit_logs` returned it.
    source : path, folder, pattern, list of these, Arrow table, frame, Open Bandit Pipeline dictionary or Log
        Its log.
    exploration : float, optional
        As `fit_logs` was given it.
    delta : float
        As `fit_logs` was given it.
    features : FeatureOptions, optional
        As `fit_logs` was given them.
    weight_missing : sequence of str
        Columns on which it depends whether a reward is missing, as in `Log.feedback`.
    latest : int
        How many of the last rounds to look at.

    Returns
    -------
    dict
        `known` says whether there is an answer. If not, `reason` says why.
    """
    schema = model.schema
    if not schema.has_offered:
        reason = "the log has the chosen actions only, so what others would have earned cannot be known"
        return {"known": False, "reason": reason}
    if not (schema.propensity or schema.rewards or schema.full_information):
        return {"known": False, "reason": WITHOUT_PROPENSITIES}
    name = find_policy(model.policy_name).name
    spec = fitted_spec(
        name, exploration=exploration, delta=delta, caution=caution_of(model)
    )
    chosen: dict[str, Any] = {name: spec}
    chosen.setdefault("frozen", "frozen")
    try:
        read = open_log(source, schema).feedback(
            features=features,
            windows=model.moments.windows,
            latest=latest,
            keep_going=True,
            weight_missing=weight_missing,
        )
        feedback = read.feedback
        if not (spec.keeps_baseline or model.feature_map.has_levels):
            # Features count from the mean of the earlier choices, as the model's do.
            mean = feedback.split(0.5)[0].features.mean(axis=0)
            feedback = feedback.mapped(lambda rows: rows - mean)
        edges = _edges_of_half(model.moments, feedback)
        result = compare(
            feedback, chosen, settings="published", windows=read.windows, edges=edges
        )
    except InputError as error:
        return {"known": False, "reason": str(error)}
    return {
        "known": True,
        "fitted_rounds": result.fitted_rounds,
        "played_rounds": result.logged.rounds,
        "windows": read.windows if edges is None else len(edges) - 1,
        "logged": str(result.logged),
        "lines": [_plain_line(result, name) for name in chosen],
    }


def _plain_line(result: Comparison, name: str) -> dict[str, Any]:
    line = result.line(name)
    gain = None
    if line is not None and line.against_log.concludes:
        gain = line.against_log
    return {
        "policy": name,
        "estimator": "" if line is None else line.estimator,
        "gain": gain and float(gain.value),
        "low": gain and float(gain.low),
        "high": gain and float(gain.high),
        "verdict": result.verdict(name),
    }


def _edges_of_half(moments: WindowedMoments, feedback: Feedback) -> Array | None:
    """Return edges in time of the windows of the earlier half.

    None if the windows of the model are equal shares of the log: not by time, or ending with it and holding
    equally many rounds.
    """
    edges = moments.edges
    if edges is None or feedback.times is None:
        return None
    if edges[-1] == feedback.times[-1] and np.ptp(moments.counts) <= 2:
        return None
    half = feedback.split(0.5)[0]
    return edges_within(moments, np.asarray(half.times), feedback.dim)
