"""What the policy that wrote one log would have earned in the rounds of another, beside what it earned in its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError
from invariant_bandits.evaluation.covering import student_quantile
from invariant_bandits.evaluation.estimators import UNSUPPORTED, doubly_robust, ips, snips
from invariant_bandits.evaluation.intervals import Estimate, estimated
from invariant_bandits.evaluation.logged import LoggedFeedback, read_feedback
from invariant_bandits.logs.features import FeatureOptions
from invariant_bandits.logs.feedback import Feedback
from invariant_bandits.logs.feedback_parts import in_parts
from invariant_bandits.logs.log import Log, open_log
from invariant_bandits.logs.quality import QualityReport
from invariant_bandits.logs.reader import reader_of
from invariant_bandits.logs.stored_rows import collected

ASKED = {"DR": doubly_robust, "SNIPS": snips, "IPS": ips}


@dataclass(frozen=True, eq=False)
class LoggedPolicyValue:
    """The value of a policy known by its log only.

    Attributes
    ----------
    earned : Estimate
        What it earned per round in its own log.
    estimates : estimator -> Estimate
        What it would have earned per round in the rounds of the other log, by DR, SNIPS and IPS.
    shares : position -> label -> float
        How often it chose each arm, by position; the key None stands for all positions together.
    notes : tuple of str
        What the numbers rest on.
    """

    earned: Estimate
    estimates: Mapping[str, Estimate]
    shares: Mapping[float | None, Mapping[str, float]] = field(repr=False)
    notes: tuple[str, ...] = ()

    def gap(self, estimator: str) -> tuple[float, float]:
        """Estimated value less what was earned, and its standard error: the logs are independent."""
        one = self.estimates[estimator]
        return one.value - self.earned.value, float(np.hypot(one.standard_error, self.earned.standard_error))

    def covers(self, estimator: str) -> bool:
        """Whether the interval of an estimator holds what was earned."""
        one = self.estimates[estimator]
        return bool(one.concludes and one.low <= self.earned.value <= one.high)

    @property
    def concludes(self) -> bool:
        """Whether any of the estimates may be used."""
        return any(one.concludes for one in self.estimates.values())

    def summary(self) -> str:
        """A table a person can read."""
        lines = [f"In its own log the policy earned {self.earned} per round ({self.earned.rounds:,} rounds)."]
        lines += [f"In the {next(iter(self.estimates.values())).rounds:,} rounds of the other log it would have earned"]
        for name, one in self.estimates.items():
            words = f"  {name:<6} {one}, effective rounds {one.effective_sample:,.0f}"
            if one.concludes:
                gap, error = self.gap(name)
                inside = "holds" if self.covers(name) else "does not hold"
                words += f"; {inside} what it earned (difference {gap:+.3g} ± {error:.2g})"
            lines.append(words)
        return "\n".join([*lines, "", *(f"Note: {note}." for note in self.notes)])

    def __str__(self) -> str:
        return self.summary()


def value_of_logged(
    policy_log: Any,
    from_log: Any,
    schema: Any = None,
    *,
    catalogue: Any = None,
    features: FeatureOptions | None = None,
    confidence: float = 0.95,
) -> LoggedPolicyValue:
    """Estimate from one log what the policy that wrote another would have earned.

    The policy is taken for one that chooses each arm as often as its log says, position by position if both logs have
    positions, whatever the context. That is right for policies that do not look at the context, whose rounds in both
    logs are alike. The error of these shares is part of the intervals.

    Parameters
    ----------
    policy_log : path, table, frame or Log with labels of arms
        Written by the policy in question.
    from_log : path, table, frame or Log with labels of arms and propensities
        Written by another policy, such as a random one.
    schema : Schema, mapping, path of a TOML file or None
        What the columns of both mean. What is not said is inferred.
    catalogue : path, table or None
        As in `open_log`, of both.
    features : FeatureOptions, optional
        What to make of the columns of `from_log`, for the reward model of DR.
    confidence : float
        Coverage of the intervals.

    Returns
    -------
    LoggedPolicyValue
        The estimates, and what the policy earned.

    >>> import numpy as np, pyarrow as pa, invariant_bandits as ib
    >>> rng = np.random.default_rng(0)
    >>> def log(chances):
    ...     arm = rng.choice(3, size=4000, p=chances)
    ...     click = rng.random(4000) < np.array([0.1, 0.2, 0.6])[arm]
    ...     columns = {"arm": np.array(["a", "b", "c"])[arm], "click": click, "propensity": np.array(chances)[arm]}
    ...     return pa.table(columns)
    >>> result = value_of_logged(log([0.1, 0.1, 0.8]), log([1 / 3, 1 / 3, 1 / 3]))
    >>> result.covers("DR"), result.covers("SNIPS")
    (True, True)
    """
    own = _PolicyLog(policy_log if isinstance(policy_log, Log) else open_log(policy_log, schema, catalogue=catalogue))
    opened = from_log if isinstance(from_log, Log) else open_log(from_log, schema, catalogue=catalogue)
    _require_labels("from_log", opened)
    read = read_feedback(opened, features=features, keep_going=True)
    if read.feedback.propensities is None:
        raise InputError("from_log has no propensities: what the policy would have earned in it cannot be known")
    labels = opened.arms.labels
    shares = own.shares(use_positions=read.positions is not None)
    target = _target(read, labels, shares)
    reasons = own.reasons(labels)
    doubt = own.error_of_shares(_mean_rewards(read, len(labels)), labels)
    estimates = {}
    for name, estimate in ASKED.items():
        one = _with_error(estimate(read.feedback, target, confidence=confidence), doubt)
        for reason in reasons:
            one = one.refused(reason)
        estimates[name] = one
    by_position = "position by position" if len(shares) > 1 else "in all rounds alike"
    note = f"the policy is taken to choose as often as its log says, {by_position}, whatever the context"
    return LoggedPolicyValue(own.earned(confidence), estimates, shares, (note, *read.notes))


class _PolicyLog:
    """The arms that a policy chose, where it showed them, and what they earned, in time order."""

    def __init__(self, log: Log) -> None:
        _require_labels("policy_log", log)
        self.labels = np.array(log.arms.labels)
        reader, quality = reader_of(log, FeatureOptions(standardise="none"), offered=False), QualityReport()
        batches = [batch for task in log.survey().tasks for batch in reader.rounds(task, quality)]
        quality.require_rounds(True)

        def joined(name: str) -> Any:
            parts = [getattr(batch, name) for batch in batches]
            return None if parts[0] is None else np.concatenate(parts)

        times = joined("times")
        order = slice(None) if times is None else np.argsort(times, kind="stable")
        self.arms, self.rewards = joined("arm")[order], joined("rewards")[order]
        positions = joined("position")
        self.positions = None if positions is None else positions[order]

    def shares(self, *, use_positions: bool) -> dict[float | None, dict[str, float]]:
        """How often each arm was chosen: in all rounds (None), and by position if there are any."""
        found: dict[float | None, dict[str, float]] = {None: self._shares(np.ones(len(self.arms), dtype=bool))}
        if use_positions and self.positions is not None:
            for position in np.unique(self.positions[np.isfinite(self.positions)]).tolist():
                found[position] = self._shares(self.positions == position)
        return found

    def _shares(self, inside: Array) -> dict[str, float]:
        counts = np.bincount(self.arms[inside], minlength=len(self.labels)) / inside.sum()
        return dict(zip(self.labels.tolist(), counts.tolist(), strict=True))

    def reasons(self, known: tuple[str, ...]) -> tuple[str, ...]:
        """Why nothing can be concluded: arms that the other log does not have."""
        missing = float(np.mean(~np.isin(self.labels[self.arms], known)))
        if missing <= UNSUPPORTED:
            return ()
        return (f"support missing: {100.0 * missing:.0f} % of what the policy plays is no arm of the other log",)

    def error_of_shares(self, means: Array, labels: tuple[str, ...]) -> float:
        """Standard error that shares from so many rounds cause in the value, arms being worth `means` (A,)."""
        worth = dict(zip(labels, means.tolist(), strict=True))
        values = np.array([worth.get(label, 0.0) for label in self.labels.tolist()])[self.arms]
        return float(values.std() / np.sqrt(len(values)))

    def earned(self, confidence: float) -> Estimate:
        """What the policy earned per round."""
        ones, n = np.ones(len(self.rewards)), float(len(self.rewards))
        return estimated(
            self.rewards, ones, effective_sample=n, confidence=confidence, rewards=self.rewards, reach=ones
        )


def _require_labels(name: str, log: Log) -> None:
    if not log.schema.labelled:
        raise InputError(f"{name} must have a column with labels of arms: which policy chose what is not in it")


def _target(read: LoggedFeedback, labels: tuple[str, ...], shares: Mapping[float | None, Mapping[str, float]]) -> Any:
    """Probabilities of all offered arms (rows,): the shares, among the offered ones; equal ones if none has any."""
    table = {key: np.array([one.get(label, 0.0) for label in labels]) for key, one in shares.items()}

    def of_part(start: int, part: Feedback, arms: Array) -> Array:
        own = np.empty((part.rounds, len(labels)))
        own[:] = table[None]
        for position in table:
            if position is not None and read.positions is not None:
                own[read.positions[start : start + part.rounds] == position] = table[position]
        chances = own[np.repeat(np.arange(part.rounds), part.counts), arms.astype(np.int64)]
        sums = np.repeat(part.sums_per_round(chances), part.counts)
        even = np.repeat(1.0 / part.counts, part.counts)
        return np.where(sums > 0.0, chances / np.where(sums > 0.0, sums, 1.0), even)

    return collected(of_part(*one) for one in in_parts(read.feedback, read.offered_arms))


def _mean_rewards(read: LoggedFeedback, arms: int) -> Array:
    """Mean reward of the logged rounds of every arm (A,), 0 for those that were never played."""
    chosen = read.feedback.of_logged(read.offered_arms).astype(np.int64)
    plays = np.bincount(chosen, minlength=arms)
    return np.asarray(np.bincount(chosen, weights=read.feedback.rewards, minlength=arms) / np.maximum(plays, 1))


def _with_error(one: Estimate, error: float) -> Estimate:
    """The same estimate with one more source of error, a standard error that is independent of its own."""
    beyond = student_quantile(one.rounds, one.confidence) * error
    low, high = one.value - np.hypot(one.value - one.low, beyond), one.value + np.hypot(one.high - one.value, beyond)
    both = float(np.hypot(one.standard_error, error))
    return replace(one, low=float(low), high=float(high), standard_error=both, contributions=None)
