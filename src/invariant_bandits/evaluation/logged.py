"""From a log, as it lies there, to Feedback: features learned from the rounds that policies are fitted on, only."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError, require_finite, whole_number
from invariant_bandits.logs.arm_features import ArmFeatures
from invariant_bandits.logs.collinearity import Dropped
from invariant_bandits.logs.features import FeatureMap, FeatureOptions
from invariant_bandits.logs.feedback import Feedback
from invariant_bandits.logs.log import open_log
from invariant_bandits.logs.pruning import fewest_rounds, prune
from invariant_bandits.logs.quality import QualityReport
from invariant_bandits.logs.reading import read_feature_map, read_rounds
from invariant_bandits.logs.rearranging import in_time_order
from invariant_bandits.logs.rounds import Rounds
from invariant_bandits.logs.schema import Schema, SchemaLike, named_features
from invariant_bandits.logs.stored_rows import RowCollector, release_memory

CHOSEN_ONLY = (
    "the log has the chosen actions only: which others were offered is not in it, so it cannot be known what another"
    " policy would have done, let alone earned. Log all offered actions (a column of lists, or one row per action with"
    " a round id); `fit` still says what is stable in this log and what drifts"
)
PER_ROUND = ("rewards", "times", "action", "propensity", "offered_counts", "position")
PER_ROW = ("offered", "all_rewards", "offered_arms")
SORTED = "the rounds were not in the order of time and have been sorted by it"
UNIFORM_LOG = "the log does not say which action was chosen; 'the log' is here a choice at random among the offered"


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
    progress: Callable[[int], None] | None = None,
) -> LoggedFeedback:
    """Read the rounds of a log, in time order. The log must have its offered actions.

    What belongs to a round is kept in memory. So are features of the offered actions if they are at most 128 MB; else
    they are kept in a temporary file (in TMPDIR) until nobody needs them any more, and are read part by part.

    Parameters
    ----------
    source : path, folder, pattern, list of these, Arrow table, frame, obp dictionary or Log
        Where the rows come from.
    schema : Schema, mapping, path of a TOML file or None
        What the columns mean. What is not said is inferred.
    features : FeatureOptions or list of str, optional
        What to make of the columns, or names or patterns of those to take.
    fit_fraction : float
        Share of the rounds, the first ones, that says which features are left out, and their scales.
    windows : int
        Windows of these rounds, at least 2. Fewer are made if the rounds are too few for so many.
    latest : int, optional
        Only so many of the last rounds.
    strict : bool
        Whether to refuse a log with any problem.
    keep_going : bool
        Whether to go on although most rounds cannot be used.
    seed : int
        Draws the logged action where all rewards are known and none is marked as chosen.
    progress : callable (rows), optional
        Called after every batch.

    Returns
    -------
    LoggedFeedback
        The rounds, and how they came about.

    >>> import numpy as np, pyarrow as pa, invariant_bandits as ib
    >>> rng = np.random.default_rng(0)
    >>> offered = rng.normal(size=(200, 3, 2))
    >>> table = pa.table({"reward": rng.normal(size=200), "action": [1] * 200, "offered": offered.tolist()})
    >>> ib.read_feedback(table).feedback
    Feedback(rounds=200, dim=2, 3 actions, without propensities)
    """
    schema, told = named_features(schema, features)
    given = open_log(source, schema)
    if not given.schema.has_offered:
        raise InputError(CHOSEN_ONLY)
    log = in_time_order(given)
    options = told or FeatureOptions()
    expanding = read_feature_map(log, options=options)
    quality, notes = QualityReport(), [*log.notes, *([SORTED] if log is not given else [])]
    gathered = _Gathered(latest)
    for batch in read_rounds(log, feature_map=expanding, report=quality, latest=latest):
        gathered.add(batch)
        if progress is not None:
            progress(quality.rows)
    if strict:
        quality.refuse_problems()
    quality.require_rounds(keep_going)
    quality.require_choices(keep_going)
    if latest is not None and quality.rounds > latest:
        notes.append(_price(latest, quality.rounds))
    raw = gathered.feedback(seed, notes)
    release_memory()
    earlier, _ = raw.split(fit_fraction)
    windows = _bearable_windows(earlier.rounds, len(expanding.names), windows, notes)
    if isinstance(expanding, ArmFeatures):
        raw = replace(raw, arm_features=expanding)
        arms = gathered.offered_arms
        return LoggedFeedback(raw, log.schema, expanding, quality, windows, (), tuple(notes), gathered.positions, arms)
    pruned = prune(earlier.moments(min(windows, earlier.rounds)), expanding, options)
    return LoggedFeedback(
        raw.mapped(pruned.feature_map.finish),
        log.schema,
        pruned.feature_map,
        quality,
        windows,
        pruned.dropped,
        (*notes, *pruned.notes),
        gathered.positions,
    )


def _bearable_windows(rounds: int, dim: int, windows: int, notes: list[str]) -> int:
    """The number of windows, or fewer if the rounds are too few for so many, which `notes` then say."""
    bearable = rounds // fewest_rounds(dim)
    if not 2 <= bearable < whole_number("windows", windows, 2):
        return windows
    notes.append(f"{windows} windows are too many for the rounds to fit on; {bearable} were made")
    return bearable


def _price(latest: int, rounds: int) -> str:
    """What a sample costs, in words."""
    wider = np.sqrt(rounds / latest)
    return (
        f"only the last {latest:,} of {rounds:,} rounds were taken: intervals are about {wider:.2g} times as wide as"
        " all would make them, and say nothing of the time before"
    )


class _Gathered:
    """Rounds as they are read: the last `latest`, or all.

    Parameters
    ----------
    latest : int or None
        Earlier rounds are let go as soon as they are not needed.

    Attributes
    ----------
    positions, offered_arms :
        As of LoggedFeedback, once the feedback is made.
    """

    def __init__(self, latest: int | None) -> None:
        self.latest, self.rounds = latest, 0
        self.positions: Array | None = None
        self.offered_arms: Any = None
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
        while self.latest is not None and self.rounds - len(self._per_round[0]["rewards"]) >= self.latest:
            self._forget_first()

    def _forget_first(self) -> None:
        first = self._per_round.popleft()
        self.rounds -= len(first["rewards"])
        for collector in self._per_row.values():
            if collector.used:
                collector.drop(int(first["offered_counts"].sum()))

    def feedback(self, seed: int, notes: list[str]) -> Feedback:
        """The rounds in time order; sorted by time, if they are not, which `notes` then say."""
        times, counts = self._joined("times"), self._joined("offered_counts")
        assert counts is not None
        order = _time_order(times, self.rounds, self.latest, notes)
        starts, sizes = (np.cumsum(counts) - counts)[order], counts[order]
        per_round = {name: self._joined(name, order) for name in ("rewards", "action", "propensity")}
        per_row = {name: one.taken(starts, sizes) if one.used else None for name, one in self._per_row.items()}
        times = None if times is None else times[order]
        self.positions, self.offered_arms = self._joined("position", order), per_row["offered_arms"]
        if per_round["action"] is None:
            notes.append(UNIFORM_LOG)
            offered, every = per_row["offered"], per_row["all_rewards"]
            return Feedback.from_full_information(offered, every, seed=seed, counts=sizes, times=times)
        return Feedback.from_arrays(
            per_row["offered"],
            per_round["action"],
            per_round["rewards"],
            counts=sizes,
            times=times,
            propensities=per_round["propensity"],
            offered_rewards=per_row["all_rewards"],
        )

    def _joined(self, name: str, order: Any = slice(None)) -> Array | None:
        parts = [held.pop(name) for held in self._per_round]
        return None if parts[0] is None else np.concatenate(parts)[order]


def _time_order(times: Array | None, rounds: int, latest: int | None, notes: list[str]) -> Array:
    """Indices of the last `latest` rounds, sorted by time if they are not."""
    order = np.arange(rounds)[-latest if latest else 0 :]
    if times is None or not (times[order][1:] < times[order][:-1]).any():
        return order
    notes.append(SORTED)
    return order[np.argsort(times[order], kind="stable")]
