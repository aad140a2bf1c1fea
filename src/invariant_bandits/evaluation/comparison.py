"""compare: would another policy have helped? Fit on the first part of a log, play the rest once, pair the policies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError, one_of, whole_number
from invariant_bandits.evaluation.calibration import Calibration, calibration
from invariant_bandits.evaluation.contenders import COLD, Maker, Past, checked_policies, made
from invariant_bandits.evaluation.estimators import direct, doubly_robust, exact, ips, logged_value, replay, snips
from invariant_bandits.evaluation.intervals import Estimate, estimated
from invariant_bandits.evaluation.playing import follow
from invariant_bandits.evaluation.propensities import estimate_propensities
from invariant_bandits.evaluation.report import report, verdict
from invariant_bandits.logs.feedback import Feedback
from invariant_bandits.parallel import finished

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


@dataclass(frozen=True, eq=False)
class Line:
    """One policy by one estimator: its value, and its paired differences to the reference policy and to the log."""

    policy: str
    estimator: str
    value: Estimate
    against_reference: Estimate
    against_log: Estimate


@dataclass(frozen=True, eq=False)
class Comparison:
    """Every policy by every estimator that the log allows.

    lines: policy by estimator, the estimator to believe first; agreement: policy -> how often it would have done what
    the log did (None with full information); logged: what the logging policy earned in the same rounds; calibration:
    of the propensities, if there are any; notes: what can and cannot be known.
    """

    lines: tuple[Line, ...]
    logged: Estimate
    reference: str | None
    agreement: Mapping[str, float | None]
    fitted_rounds: int
    calibration: Calibration | None
    notes: tuple[str, ...]

    @property
    def policies(self) -> tuple[str, ...]:
        """Names in the order given."""
        return tuple(self.agreement)

    def line(self, policy: str, estimator: str | None = None) -> Line | None:
        """One line; without `estimator` that of the one to believe first, None if nothing can be estimated."""
        return next((x for x in self.lines if x.policy == policy and estimator in (None, x.estimator)), None)

    def verdict(self, policy: str) -> str:
        """Would it have helped? In plain words."""
        line = self.line(policy)
        if line is None:
            return f"cannot be known, because {NO_PROPENSITIES}"
        return verdict(line.against_log, assumed=line.estimator == "direct")

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

    def summary(self) -> str:
        """Tables a person can read, a verdict per policy, and what the numbers rest on."""
        return report(self)


def compare(
    feedback: Feedback,
    policies: Mapping[str, Maker] | None = None,
    *,
    fit_fraction: float = 0.5,
    fit_until: Any = None,
    windows: int = 8,
    propensities: str = "logged",
    with_direct: bool = False,
    reference: str = COLD,
    confidence: float = 0.95,
    seed: int = 0,
    jobs: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> Comparison:
    """Fit every policy on the first part of the log and evaluate it on the rest, in time order, once.

    policies: name -> maker, called with the Past and returning a fresh policy; the default ones if not given.
    fit_fraction of the rounds are the first part, or those before the time fit_until. propensities: "logged";
    "estimated", by a conditional logistic model; or "uniform", if the caller knows that logging was. With full
    information policies are simply played (`exact`); with propensities they are estimated by DR, SNIPS, IPS and replay;
    with_direct adds the direct method. reference: the policy that differences are taken to, where it is among them.
    jobs: processes, forked; progress: called with (policies done, all).
    """
    one_of("propensities", propensities, SOURCES)
    makers = checked_policies(policies)
    whole_number("jobs", jobs, 1)
    earlier, later = feedback.split(fit_fraction) if fit_until is None else feedback.split(time=fit_until)
    past, baseline = Past.of(earlier, later.rounds, windows)
    full = later.offered_rewards is not None
    checked, notes = None, list[str]()
    if not full:
        later, notes = _with_propensities(earlier, later, propensities)
        checked = None if later.propensities is None else calibration(later)
        if later.propensities is None:
            notes.append(WITHOUT_PROPENSITIES)
    logged = logged_value(later, confidence=confidence)

    def evaluated(name: str) -> tuple[dict[str, Estimate], float | None]:
        try:
            if full:
                return {"exact": exact(later, made(makers[name], past), baseline=baseline, confidence=confidence)}, None
            target = follow(made(makers[name], past), later, baseline=baseline)
            result = {}
            if later.propensities is not None:
                other = made(makers[name], past)
                result = _weighted_estimates(earlier, later, target, confidence)
                result["replay"] = replay(later, other, seed=seed, baseline=baseline, confidence=confidence)
            if with_direct:
                result["direct"] = direct(later, target, earlier=earlier, confidence=confidence)
            return result, float(target[later.logged_rows].mean())
        except InputError as error:
            return {"none": _impossible(later, f"{name} could not be fitted or played: {error}", confidence)}, None
        except Exception as error:
            error.add_note(f"while evaluating policy {name!r}")
            raise

    found: list[tuple[dict[str, Estimate], float | None]] = [({}, None)] * len(makers)
    for done, (index, outcome) in enumerate(finished(evaluated, list(makers), jobs), start=1):
        found[index] = outcome
        if progress is not None:
            progress(done, len(makers))
    estimates = {name: result for name, (result, _) in zip(makers, found, strict=True)}
    if checked is not None and checked.flagged and checked.worst is not None:
        reason = f"the propensities are wrong: {checked.worst.name} is off by {checked.worst.gap_in_words}"
        estimates = {
            name: {kind: one if kind == "direct" else one.refused(reason) for kind, one in result.items()}
            for name, result in estimates.items()
        }
    chosen = reference if reference in makers else None
    return Comparison(
        lines=tuple(_lines(estimates, logged, chosen)),
        logged=logged,
        reference=chosen,
        agreement={name: share for name, (_, share) in zip(makers, found, strict=True)},
        fitted_rounds=earlier.rounds,
        calibration=checked,
        notes=(*notes, *([] if full else [FOLLOWED]), ONE_AT_A_TIME),
    )


def _with_propensities(earlier: Feedback, later: Feedback, source: str) -> tuple[Feedback, list[str]]:
    if source == "uniform":
        return later.with_uniform_propensities(), ["propensities: taken as uniform, as the caller says"]
    if source == "estimated":
        fitted = estimate_propensities(later, earlier=earlier)
        words = "propensities: estimated by a conditional logistic model from earlier choices; they assume that the"
        return later.with_propensities(fitted), [f"{words} log shows all that the logging policy looked at"]
    return later, []


def _weighted_estimates(earlier: Feedback, later: Feedback, target: Array, confidence: float) -> dict[str, Estimate]:
    """The estimators that use propensities, the one to believe first."""
    return {
        "DR": doubly_robust(later, target, earlier=earlier, confidence=confidence),
        "SNIPS": snips(later, target, confidence=confidence),
        "IPS": ips(later, target, confidence=confidence),
    }


def _impossible(later: Feedback, reason: str, confidence: float) -> Estimate:
    """An estimate that only says why there is none."""
    nothing = np.zeros(later.rounds)
    return estimated([nothing], [nothing], effective_sample=0.0, confidence=confidence, reasons=(reason,))


def _lines(estimates: Mapping[str, Mapping[str, Estimate]], logged: Estimate, reference: str | None) -> list[Line]:
    lines = []
    for name, result in estimates.items():
        for kind, one in result.items():
            rival = estimates[reference].get(kind) if reference is not None else None
            against = _no_reference(one, reference) if rival is None else one.minus(rival)
            lines.append(Line(name, kind, one, against, one.minus(logged)))
    return lines


def _no_reference(one: Estimate, reference: str | None) -> Estimate:
    words = "there is no reference policy" if reference is None else f"{reference} has no such estimate"
    return replace(one, value=np.nan).refused(words)
