"""compare: would another policy have helped? Fit on the first part of a log, play the rest once, pair the policies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from invariant_bandits.checks import InputError, one_of, whole_number
from invariant_bandits.evaluation.calibration import Calibration, calibration
from invariant_bandits.evaluation.estimators import logged_value
from invariant_bandits.evaluation.examination import Examination, Line
from invariant_bandits.evaluation.intervals import Estimate
from invariant_bandits.evaluation.propensities import estimate_propensities
from invariant_bandits.evaluation.registry import chosen_estimators
from invariant_bandits.evaluation.report import report, verdict
from invariant_bandits.extras import frame_of
from invariant_bandits.logs.feedback import Feedback
from invariant_bandits.policies.past import Past
from invariant_bandits.policies.registry import Maker, checked_makers

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

COMPARED = (
    *("auto-isd", "isd-linucb", "linucb-cold", "linucb-warm"),
    *("sw-linucb", "d-linucb", "frozen", "uniform"),
)
"""The policies that are compared if none are named. Cold LinUCB begins with nothing, warm LinUCB has learned every
logged round, sliding window and discount are cold and remember about one window of the moments, frozen is a regression
on the logged rounds that never learns again."""
REFERENCE = "LinUCB cold"
SOURCES = ("logged", "estimated", "uniform")
NO_PROPENSITIES = "the log has no propensities"
WITHOUT_PROPENSITIES = (
    "without propensities what other actions would have earned cannot be told from the log without an assumption;"
    " say that logging was uniform, have propensities estimated, or accept the direct method's assumption"
)
FOLLOWED = (
    "every policy learns from the logged actions as it goes (in replay, from the accepted rounds only), so a policy"
    " that starts with nothing profits from the log's exploration"
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
            raise InputError(f"policy must be one of those compared, {', '.join(self.policies)}, got {policy!r}")
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
                "value": one.value,
                "low": one.low,
                "high": one.high,
                "standard_error": one.standard_error,
                "effective_sample": one.effective_sample,
                "rounds": one.rounds,
                "concludes": one.concludes,
                "reasons": "; ".join(one.reasons),
            }
            for line in self.lines
            for quantity, one in (
                ("value", line.value),
                ("against log", line.against_log),
                ("against reference", line.against_reference),
            )
        ]

    def to_frame(self) -> pandas.DataFrame:
        """The `rows` as a pandas frame. Needs pandas."""
        return frame_of(self.rows(), "to_frame")

    def plot(self, *, theme: str = "light") -> Figure:
        """Gains over the log with their intervals, a line per policy by its preferred estimator. Needs matplotlib.

        Policies of which nothing is known have a line without an interval. The caller shows it.
        """
        from invariant_bandits import charts

        found = {name: self.line(name) for name in self.policies}
        gains = {name: None if line is None else line.against_log for name, line in found.items()}
        known = {name: one if one is not None and one.concludes else None for name, one in gains.items()}
        rows = {name: None if one is None else (one.value, one.low, one.high) for name, one in known.items()}
        return charts.difference_chart(rows, theme_name=theme)

    def summary(self) -> str:
        """Tables a person can read, a verdict per policy, and what the numbers rest on."""
        return report(self)

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
    progress: Callable[[float, int], None] | None = None,
) -> Comparison:
    """Fit every policy on the first part of the log and evaluate it on the rest, in time order, once.

    Parameters
    ----------
    feedback : Feedback
        The logged rounds.
    policies : name -> maker, or registered names, optional
        A maker is called with the Past and returns a fresh policy. The name of a registered policy will do for one.
        COMPARED if not given.
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
        Which registered estimators to ask. If not given all that the log allows and that assume nothing beyond it:
        with full information policies are simply played (exact), with propensities DR, SNIPS, IPS and replay.
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
        Called with (policies done, all), long ones that are under way counted in part.

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

    logged = logged_value(later, confidence=confidence)
    examination = Examination(
        past, earlier, later, asked, logged=logged, checked=checked, confidence=confidence, seed=seed
    )
    answers = examination.answers(makers, reference, jobs, progress)
    return Comparison(
        lines=tuple(line for one in answers.values() for line in one.lines),
        logged=examination.without_rounds(logged),
        reference=reference if reference in makers else None,
        agreement={name: one.agreement for name, one in answers.items()},
        fitted_rounds=earlier.rounds,
        calibration=checked,
        notes=(*notes, *([] if full else [FOLLOWED]), ONE_AT_A_TIME),
        failures={name: one.failure for name, one in answers.items() if one.failure is not None},
    )


def _with_propensities(earlier: Feedback, later: Feedback, source: str) -> tuple[Feedback, list[str]]:
    if source == "uniform":
        return later.with_uniform_propensities(), ["propensities: taken as uniform, as the caller says"]
    if source == "estimated":
        fitted = estimate_propensities(later, earlier=earlier)
        words = "propensities: estimated by a conditional logistic model from earlier choices; they assume that the"
        return later.with_propensities(fitted), [f"{words} log shows all that the logging policy looked at"]
    return later, []
