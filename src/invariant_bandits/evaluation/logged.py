"""What the policy that wrote one log would have earned in the rounds of another log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError
from invariant_bandits.evaluation.estimators import (
    UNSUPPORTED,
    doubly_robust,
    ips,
    mean_reward,
    snips,
)
from invariant_bandits.evaluation.intervals import Estimate, student_quantile
from invariant_bandits.features.maps import FeatureOptions
from invariant_bandits.logs.external_sort import in_time_order
from invariant_bandits.logs.feedback import (
    Feedback as Feedback,  # `ib.evaluation` names it
)
from invariant_bandits.logs.feedback import in_parts
from invariant_bandits.logs.log import Log, open_log
from invariant_bandits.logs.logged_feedback import LoggedFeedback
from invariant_bandits.logs.quality import QualityReport
from invariant_bandits.logs.reader import reader_of
from invariant_bandits.logs.spill import (
    collect_rows,
)

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

    def covers(self, estimator: str) -> bool:
        """Whether the interval of an estimator holds what was earned."""
        estimate = self.estimates[estimator]
        return bool(
            estimate.concludes and estimate.low <= self.earned.value <= estimate.high
        )

    @property
    def concludes(self) -> bool:
        """Whether any of the estimates may be used."""
        return any(estimate.concludes for estimate in self.estimates.values())

    def summary(self) -> str:
        """A table a person can read."""
        rounds = next(iter(self.estimates.values())).rounds
        lines = [
            f"In its own log the policy earned {self.earned} per round ({self.earned.rounds:,} rounds)."
        ]
        lines += [f"In the {rounds:,} rounds of the other log it would have earned"]
        for name, estimate in self.estimates.items():
            words = f"  {name:<6} {estimate}, effective rounds {estimate.effective_sample:,.0f}"
            if estimate.concludes:
                gap = estimate.value - self.earned.value
                # The logs are independent, so their variances add up.
                error = np.hypot(estimate.standard_error, self.earned.standard_error)
                inside = "holds" if self.covers(name) else "does not hold"
                words += (
                    f"; {inside} what it earned (difference {gap:+.3g} ± {error:.2g})"
                )
            lines.append(words)
        return "\n".join([*lines, "", *(f"Note: {note}." for note in self.notes)])

    __str__ = summary


def value_of_logged(
    policy_log: Any,
    from_log: Any,
    schema: Any = None,
    *,
    catalogue: Any = None,
    features: FeatureOptions | None = None,
    confidence: float = 0.95,
) -> LoggedPolicyValue:
    """Estimate the mean reward of the policy that wrote one log (`policy_log`) from another log (`from_log`).

    The estimate assumes that the policy ignores the context and chooses each arm as often as in `policy_log`,
    and that the rounds of both logs are alike. If both logs have positions (such as slots of a page), the
    shares of the arms are counted per position. The confidence intervals include the sampling error of the
    arms' shares.

    Parameters
    ----------
    policy_log : path, table, frame or Log with labels of arms
        Log that the policy in question wrote.
    from_log : path, table, frame or Log with labels of arms and propensities
        Log that another policy wrote, such as a random one.
    schema : Schema, mapping, path of a TOML file or None
        Roles of the columns of both logs. Roles of columns that `schema` does not give are inferred.
    catalogue : path, table or None
        Table of arm features for both logs, as in `open_log`.
    features : FeatureOptions, optional
        How columns of `from_log` become features of the reward model of the doubly robust estimator (DR).
    confidence : float
        Coverage of the confidence intervals.

    Returns
    -------
    LoggedPolicyValue
        Estimated values, and the reward that the policy earned in its own log.

    >>> import numpy as np, pyarrow as pa, invariant_bandits as ib
    >>> rng = np.random.default_rng(0)
    >>> def log(chances):
    ...     arm = rng.choice(3, size=4000, p=chances)
    ...     click = rng.random(4000) < np.array([0.1, 0.2, 0.6])[arm]
    ...     columns = {"arm": np.array(["a", "b", "c"])[arm], "click": click}
    ...     return pa.table(columns | {"propensity": np.array(chances)[arm]})
    >>> result = value_of_logged(log([0.1, 0.1, 0.8]), log([1 / 3, 1 / 3, 1 / 3]))
    >>> result.covers("DR"), result.covers("SNIPS")
    (True, True)
    """
    own_log, opened = (
        source
        if isinstance(source, Log)
        else open_log(source, schema, catalogue=catalogue)
        for source in (policy_log, from_log)
    )
    for name, log in (("policy_log", own_log), ("from_log", opened)):
        if not log.schema.labelled:
            raise InputError(
                f"{name} must have a column with labels of arms, to say what was chosen"
            )
    policy_log_rounds = _PolicyLog(own_log)
    read = opened.feedback(features=features, keep_going=True)
    if read.feedback.propensities is None:
        raise InputError(
            "from_log has no propensities, so nothing can be estimated from it"
        )
    labels = opened.arms.labels
    shares = policy_log_rounds.shares(use_positions=read.positions is not None)
    target = _target(read, labels, shares)
    reason = policy_log_rounds.reason(labels)
    doubt = policy_log_rounds.error_of_shares(_mean_rewards(read, len(labels)), labels)
    estimates = {}
    for name, estimate in ASKED.items():
        answer = _with_error(
            estimate(read.feedback, target, confidence=confidence), doubt
        )
        estimates[name] = answer if reason is None else answer.refused(reason)
    by_position = "position by position" if len(shares) > 1 else "in all rounds alike"
    note = f"the policy is taken to choose as often as its log says, {by_position}, whatever the context"
    return LoggedPolicyValue(
        mean_reward(policy_log_rounds.rewards, confidence),
        estimates,
        shares,
        (note, *read.notes),
    )


class _PolicyLog:
    """The arms that a policy chose, where it showed them, and what they earned, in time order."""

    def __init__(self, log: Log) -> None:
        log = in_time_order(log)
        self.labels = np.array(log.arms.labels)
        reader = reader_of(log, FeatureOptions(standardise="none"), offered=False)
        quality = QualityReport()
        batches = [
            batch
            for task in log.survey().tasks
            for batch in reader.rounds(task, quality)
        ]
        quality.check(keep_going=True)
        self.arms: Any = np.concatenate([batch.arm for batch in batches])
        self.rewards = np.concatenate([batch.rewards for batch in batches])
        shown: list[Any] = [batch.position for batch in batches]
        self.positions = None if shown[0] is None else np.concatenate(shown)

    def shares(self, *, use_positions: bool) -> dict[float | None, dict[str, float]]:
        """How often each arm was chosen: in all rounds (None), and by position if there are any."""
        groups: dict[float | None, Array] = {None: self.arms}
        if use_positions and self.positions is not None:
            shown = self.positions[np.isfinite(self.positions)]
            for position in np.unique(shown).tolist():
                groups[position] = self.arms[self.positions == position]
        labels = self.labels.tolist()
        shares = {}
        for key, arms in groups.items():
            counts = np.bincount(arms, minlength=len(labels))
            shares[key] = dict(zip(labels, (counts / len(arms)).tolist(), strict=True))
        return shares

    def reason(self, known: tuple[str, ...]) -> str | None:
        """Why nothing can be concluded: arms that the other log does not have."""
        missing = float(np.mean(~np.isin(self.labels[self.arms], known)))
        if missing <= UNSUPPORTED:
            return None
        return (
            f"support missing: {100.0 * missing:.0f} % of what the policy plays is not an arm of "
            "the other log"
        )

    def error_of_shares(self, means: Array, labels: tuple[str, ...]) -> float:
        """Standard error of the value due to the estimated shares, arms being worth `means` (A,)."""
        worth = dict(zip(labels, means.tolist(), strict=True))
        of_labels = [worth.get(label, 0.0) for label in self.labels.tolist()]
        values = np.array(of_labels)[self.arms]
        return float(values.std() / np.sqrt(len(values)))


def _target(
    read: LoggedFeedback,
    labels: tuple[str, ...],
    shares: Mapping[float | None, Mapping[str, float]],
) -> Any:
    """Return probabilities of all offered arms (rows,): their shares among those offered with them.

    They are equal where no offered arm has a share.
    """
    table = {
        key: np.array([of.get(label, 0.0) for label in labels])
        for key, of in shares.items()
    }

    def of_part(start: int, part: Feedback, arms: Array) -> Array:
        shares_of_arms = np.empty((part.rounds, len(labels)))
        shares_of_arms[:] = table[None]
        for position in table:
            if position is not None and read.positions is not None:
                shares_of_arms[
                    read.positions[start : start + part.rounds] == position
                ] = table[position]
        chances = shares_of_arms[
            np.repeat(np.arange(part.rounds), part.counts), arms.astype(np.int64)
        ]
        sums = np.repeat(part.sums_per_round(chances), part.counts)
        even = np.repeat(1.0 / part.counts, part.counts)
        return np.where(sums > 0.0, chances / np.where(sums > 0.0, sums, 1.0), even)

    return collect_rows(
        of_part(*of_labels) for of_labels in in_parts(read.feedback, read.offered_arms)
    )


def _mean_rewards(read: LoggedFeedback, arms: int) -> Array:
    """Mean reward of the logged rounds of every arm (A,), 0 for those that were never played."""
    chosen = read.feedback.of_logged(read.offered_arms).astype(np.int64)
    rewards = read.feedback.rewards
    earned = np.bincount(chosen, weights=rewards, minlength=arms)
    return earned / np.maximum(np.bincount(chosen, minlength=arms), 1)


def _with_error(estimate: Estimate, error: float) -> Estimate:
    """The same estimate with one more source of error, a standard error that is independent of its own."""
    beyond = student_quantile(estimate.rounds, estimate.confidence) * error
    low = estimate.value - float(np.hypot(estimate.value - estimate.low, beyond))
    high = estimate.value + float(np.hypot(estimate.high - estimate.value, beyond))
    both = float(np.hypot(estimate.standard_error, error))
    return replace(
        estimate, low=low, high=high, standard_error=both, contributions=None
    )
