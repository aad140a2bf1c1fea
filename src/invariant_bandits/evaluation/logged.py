"""From a log to Feedback, with features learned from the rounds that policies are fitted on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError, require_finite, whole_number
from invariant_bandits.evaluation.estimators import (
    UNSUPPORTED,
    doubly_robust,
    ips,
    mean_reward,
    snips,
)
from invariant_bandits.evaluation.intervals import Estimate, student_quantile
from invariant_bandits.logs.arm_features import ArmFeatures
from invariant_bandits.logs.collinearity import Dropped
from invariant_bandits.logs.external_sort import in_time_order
from invariant_bandits.logs.feature_maps import FeatureMap, FeatureOptions
from invariant_bandits.logs.feedback import (
    Feedback as Feedback,  # `ib.evaluation` names it
)
from invariant_bandits.logs.feedback import in_parts
from invariant_bandits.logs.log import Log, open_log
from invariant_bandits.logs.missing_rewards import (
    MissingWeights,
    missing_rewards_note,
)
from invariant_bandits.logs.pruning import fewest_rounds, prune
from invariant_bandits.logs.quality import QualityReport
from invariant_bandits.logs.read import encoded_rounds, read_feature_map, read_rounds
from invariant_bandits.logs.reader import Rounds, reader_of, with_contexts
from invariant_bandits.logs.schema import Schema, SchemaLike, named_features
from invariant_bandits.logs.spill import (
    RowCollector,
    collect_rows,
    expanded_rows,
    release_memory,
)

PER_ROUND = (
    "rewards",
    "times",
    "action",
    "propensity",
    "offered_counts",
    "position",
    "round_weights",
)
PER_ROW = ("offered", "all_rewards", "offered_arms")


@dataclass(frozen=True, eq=False)
class LoggedFeedback:
    """Rounds of a log ready for `compare`, and how they came about.

    Attributes
    ----------
    feedback : Feedback
        The rounds in time order.
    schema : Schema
        What the columns mean.
    feature_map : FeatureMap or ArmFeatures
        Takes the columns to features.
    quality : QualityReport
        What was found while reading.
    windows : int
        How many the rounds that are fitted on can bear, at most what was asked for.
    dropped : tuple of Dropped
        Features that were left out.
    notes : tuple of str
        What was done.
    positions : array, shape (n,), or None
        Where the logged actions were shown, NaN where it is not known; None if the log does not say.
    offered_arms : array or StoredRows, shape (rows,), or None
        Of a log with labels: places of the offered arms among `feature_map.labels`.
    """

    feedback: Feedback
    schema: Schema
    feature_map: FeatureMap | ArmFeatures
    quality: QualityReport
    windows: int
    dropped: tuple[Dropped, ...]
    notes: tuple[str, ...]
    positions: Array | None = None
    offered_arms: Any = None


def read_feedback(
    source: Any,
    schema: SchemaLike = None,
    *,
    features: FeatureOptions | Sequence[str] | None = None,
    fit_fraction: float = 0.5,
    windows: int = 8,
    latest: int | None = None,
    strict: bool = False,
    keep_going: bool = False,
    seed: int = 0,
    weight_missing: Sequence[str] = (),
    progress: Callable[[int], None] | None = None,
) -> LoggedFeedback:
    """Read the rounds of a log in time order; the log must have the offered actions.

    Features of the offered actions are kept in memory up to 128 MB, and else in a temporary file in TMPDIR.

    Parameters
    ----------
    source : path, folder, pattern, list of these, Arrow table, frame, Open Bandit Pipeline dictionary or Log
        Log to read.
    schema : Schema, mapping, path of a TOML file or None
        Roles of the columns. Roles of columns that `schema` does not give are inferred.
    features : FeatureOptions or list of str, optional
        How columns become features, or a list of the names or patterns of the feature columns.
    fit_fraction : float
        Share of the rounds, from the beginning of the log, that determines the scales of features and which
        features are left out.
    windows : int
        Number of windows (periods) into which the rounds of `fit_fraction` are cut, at least 2. Short logs
        are cut into fewer windows.
    latest : int, optional
        Number of rounds to read, from the end of the log, by default all rounds.
    strict : bool
        Whether to refuse a log with any bad row.
    keep_going : bool
        Whether to accept a log although most of its rounds cannot be used.
    seed : int
        Seed that draws a logged action for each round if the log has the rewards of all actions and marks
        none as chosen.
    weight_missing : sequence of str
        Columns on which it depends whether a reward is missing. Rounds with a reward then stand for all
        rounds with the same values of these columns, so that estimates hold for all rounds of the log.
    progress : callable (rows), optional
        Function that is called after every batch with the number of rows read.

    Returns
    -------
    LoggedFeedback
        Rounds of the log, and remarks about how the log was read.

    >>> import numpy as np, pyarrow as pa, invariant_bandits as ib
    >>> rng = np.random.default_rng(0)
    >>> offered = rng.normal(size=(200, 3, 2))
    >>> table = pa.table({"reward": rng.normal(size=200), "action": [1] * 200, "offered": offered.tolist()})
    >>> ib.evaluation.read_feedback(table).feedback
    Feedback(rounds=200, dim=2, 3 actions, without propensities)
    """
    schema, selected = named_features(schema, features)
    opened = open_log(source, schema)
    opened.schema.require_action()
    if opened.schema.ranking is not None:
        raise InputError(
            f"the log is a ranking: rows of one {opened.schema.ranking} are items at different positions, and"
            " what another order would have earned is not in it. `fit` says which features attract clicks at"
            " the same position; if positions do not matter, say --ranking none"
        )
    opened.schema.require_direction()
    if not opened.schema.has_offered:
        raise InputError(
            "the log has the chosen actions only: which others were offered is not in it, so it cannot be"
            " known what another policy would have done, let alone earned. Log all offered actions (a column"
            " of lists, or one row per action with a round id); `fit` still says what is stable in this log"
            " and what drifts"
        )
    log = in_time_order(opened)
    options = selected or FeatureOptions()
    expanding = read_feature_map(log, options=options)
    quality = QualityReport()
    notes = list(log.notes)
    if log is not opened:
        notes.append(
            "the rounds were not in the order of time and have been sorted by it"
        )
    gathered = _Gathered(latest, expanding)
    weights, said = _missing_weights(log, weight_missing)
    notes += said
    for batch in _rounds_to_keep(log, expanding, quality, latest):
        gathered.add(batch if weights is None else weights.weighted(batch))
        if progress is not None:
            progress(quality.rows)
    if strict:
        quality.refuse_problems()
    quality.require_rounds(keep_going)
    quality.require_choices(keep_going)
    if latest is not None and quality.rounds > latest:
        wider = np.sqrt(quality.rounds / latest)
        notes.append(
            f"only the last {latest:,} of {quality.rounds:,} rounds were taken: intervals are about"
            f" {wider:.2g} times as wide as all would make them, and say nothing of the time before"
        )
    raw = gathered.feedback(seed, notes)
    release_memory()
    earlier, _ = raw.split(fit_fraction)
    windows = _bearable_windows(earlier.rounds, len(expanding.names), windows, notes)
    feature_map, dropped = expanding, tuple[Dropped, ...]()
    if isinstance(expanding, ArmFeatures):
        raw = replace(raw, arm_features=expanding)
    else:
        pruned = prune(
            earlier.moments(min(windows, earlier.rounds)), expanding, options
        )
        raw = raw.mapped(pruned.feature_map.standardise)
        feature_map, dropped = pruned.feature_map, pruned.dropped
        notes += pruned.notes
        raw = replace(raw, feature_names=tuple(feature_map.names))
    return LoggedFeedback(
        feedback=raw,
        schema=log.schema,
        feature_map=feature_map,
        quality=quality,
        windows=windows,
        dropped=dropped,
        notes=tuple(notes),
        positions=gathered.positions,
        offered_arms=gathered.offered_arms,
    )


def _rounds_to_keep(
    log: Log,
    features: FeatureMap | ArmFeatures,
    quality: QualityReport,
    latest: int | None,
) -> Iterator[Rounds]:
    """Yield rounds whose offered rows are features or, of labelled arms, contexts and arms."""
    if not isinstance(features, ArmFeatures):
        yield from read_rounds(log, None, features, report=quality, latest=latest)
        return
    for rounds in encoded_rounds(log, features, quality, latest):
        yield with_contexts(rounds, features)


def _missing_weights(
    log: Log, columns: Sequence[str]
) -> tuple[MissingWeights | None, list[str]]:
    """Weights for rewards that are missing, if columns for them are named, and what is to be said of it."""
    if not columns:
        unequal = missing_rewards_note(log)
        return None, [] if unequal is None else [unequal]
    return MissingWeights(log, columns), [
        "rounds with a reward are weighted for those without one that have the same "
        f"{', '.join(columns)}"
    ]


def _bearable_windows(rounds: int, dim: int, windows: int, notes: list[str]) -> int:
    """The number of windows, or fewer if the rounds are too few for so many, which `notes` then say."""
    bearable = rounds // fewest_rounds(dim)
    if not 2 <= bearable < whole_number("windows", windows, 2):
        return windows
    notes.append(
        f"{windows} windows are too many for the rounds to fit on; {bearable} were made"
    )
    return bearable


class _Gathered:
    """Rounds as they are read: the last `latest`, or all.

    Parameters
    ----------
    latest : int or None
        Earlier rounds are let go as soon as they are not needed.
    features : FeatureMap or ArmFeatures
        Features of labelled arms are made from contexts and arms, which take less space.

    Attributes
    ----------
    positions, offered_arms :
        As of LoggedFeedback, once the feedback is made.
    """

    def __init__(self, latest: int | None, features: FeatureMap | ArmFeatures) -> None:
        self.latest, self.rounds = latest, 0
        self.features = features
        self._per_round: deque[dict[str, Any]] = deque()
        self._per_row = {name: RowCollector() for name in PER_ROW}

    def add(self, batch: Rounds) -> None:
        """Keep a batch."""
        self._per_round.append({name: getattr(batch, name) for name in PER_ROUND})
        self.rounds += len(batch)
        for name, collector in self._per_row.items():
            rows = getattr(batch, name)
            if rows is not None:
                require_finite(name, rows)
                collector.append(np.asarray(rows, dtype=np.float64))
        while (
            self.latest is not None
            and self.rounds - len(self._per_round[0]["rewards"]) >= self.latest
        ):
            first = self._per_round.popleft()
            self.rounds -= len(first["rewards"])
            for collector in self._per_row.values():
                if collector.used:
                    collector.drop(int(first["offered_counts"].sum()))

    def feedback(self, seed: int, notes: list[str]) -> Feedback:
        """The rounds; `notes` say if their actions were drawn."""
        parts = {name: [held[name] for held in self._per_round] for name in PER_ROUND}
        joined: dict[str, Any] = {
            name: None if of[0] is None else np.concatenate(of)
            for name, of in parts.items()
        }
        before = max(0, self.rounds - self.latest) if self.latest else 0
        earlier = int(np.sum(joined["offered_counts"][:before]))
        joined = {
            name: None if of is None else of[before:] for name, of in joined.items()
        }
        for collector in self._per_row.values():
            if collector.used:
                collector.drop(earlier)
        rows = {
            name: of.rows() if of.used else None for name, of in self._per_row.items()
        }
        if isinstance(self.features, ArmFeatures) and rows["offered"] is not None:
            rows["offered"] = expanded_rows(
                rows["offered"], self.features.cross_rows, self.features.dim
            )
        self.positions, self.offered_arms = joined["position"], rows["offered_arms"]
        if joined["action"] is None:
            notes.append(
                "the log does not say which action was chosen; 'the log' is here a choice at random among the"
                " offered"
            )
            return Feedback.from_full_information(
                rows["offered"],
                rows["all_rewards"],
                seed=seed,
                counts=joined["offered_counts"],
                times=joined["times"],
            )
        read = Feedback.from_arrays(
            rows["offered"],
            joined["action"],
            joined["rewards"],
            counts=joined["offered_counts"],
            times=joined["times"],
            propensities=joined["propensity"],
            offered_rewards=rows["all_rewards"],
        )
        return replace(read, round_weights=joined["round_weights"])


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
    own = _PolicyLog(own_log)
    read = read_feedback(opened, features=features, keep_going=True)
    if read.feedback.propensities is None:
        raise InputError(
            "from_log has no propensities, so nothing can be estimated from it"
        )
    labels = opened.arms.labels
    shares = own.shares(use_positions=read.positions is not None)
    target = _target(read, labels, shares)
    reason = own.reason(labels)
    doubt = own.error_of_shares(_mean_rewards(read, len(labels)), labels)
    estimates = {}
    for name, estimate in ASKED.items():
        answer = _with_error(
            estimate(read.feedback, target, confidence=confidence), doubt
        )
        estimates[name] = answer if reason is None else answer.refused(reason)
    by_position = "position by position" if len(shares) > 1 else "in all rounds alike"
    note = f"the policy is taken to choose as often as its log says, {by_position}, whatever the context"
    return LoggedPolicyValue(
        mean_reward(own.rewards, confidence), estimates, shares, (note, *read.notes)
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
        quality.require_rounds(True)
        self.arms: Any = np.concatenate([batch.arm for batch in batches])
        self.rewards = np.concatenate([batch.rewards for batch in batches])
        shown: list[Any] = [batch.position for batch in batches]
        self.positions = None if shown[0] is None else np.concatenate(shown)

    def shares(self, *, use_positions: bool) -> dict[float | None, dict[str, float]]:
        """How often each arm was chosen: in all rounds (None), and by position if there are any."""
        groups: dict[float | None, Array] = {None: self.arms}
        if use_positions and self.positions is not None:
            for position in np.unique(
                self.positions[np.isfinite(self.positions)]
            ).tolist():
                groups[position] = self.arms[self.positions == position]
        labels, shares = self.labels.tolist(), {}
        for key, arms in groups.items():
            counts = np.bincount(arms, minlength=len(labels))
            shares[key] = dict(zip(labels, (counts / len(arms)).tolist(), strict=True))
        return shares

    def reason(self, known: tuple[str, ...]) -> str | None:
        """Why nothing can be concluded: arms that the other log does not have."""
        missing = float(np.mean(~np.isin(self.labels[self.arms], known)))
        words = (
            f"support missing: {100.0 * missing:.0f} % of what the policy plays is not an arm of "
            "the other log"
        )
        return words if missing > UNSUPPORTED else None

    def error_of_shares(self, means: Array, labels: tuple[str, ...]) -> float:
        """Standard error of the value due to the estimated shares, arms being worth `means` (A,)."""
        worth = dict(zip(labels, means.tolist(), strict=True))
        values = np.array([worth.get(label, 0.0) for label in self.labels.tolist()])[
            self.arms
        ]
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
        own = np.empty((part.rounds, len(labels)))
        own[:] = table[None]
        for position in table:
            if position is not None and read.positions is not None:
                own[read.positions[start : start + part.rounds] == position] = table[
                    position
                ]
        chances = own[
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
    return np.asarray(earned / np.maximum(np.bincount(chosen, minlength=arms), 1))


def _with_error(estimate: Estimate, error: float) -> Estimate:
    """The same estimate with one more source of error, a standard error that is independent of its own."""
    beyond = student_quantile(estimate.rounds, estimate.confidence) * error
    low = estimate.value - float(np.hypot(estimate.value - estimate.low, beyond))
    high = estimate.value + float(np.hypot(estimate.high - estimate.value, beyond))
    both = float(np.hypot(estimate.standard_error, error))
    return replace(
        estimate, low=low, high=high, standard_error=both, contributions=None
    )
