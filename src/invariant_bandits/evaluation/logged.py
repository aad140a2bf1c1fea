"""From a log, as it lies there, to Feedback: features learned from the rounds that policies are fitted on, only."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError, whole_number
from invariant_bandits.logs.arm_features import ArmFeatures
from invariant_bandits.logs.collinearity import Dropped
from invariant_bandits.logs.features import FeatureMap, FeatureOptions
from invariant_bandits.logs.feedback import Feedback
from invariant_bandits.logs.log import open_log
from invariant_bandits.logs.pruning import fewest_rounds, prune
from invariant_bandits.logs.quality import QualityReport
from invariant_bandits.logs.reading import read_feature_map, read_rounds
from invariant_bandits.logs.rounds import Rounds
from invariant_bandits.logs.schema import Schema, SchemaLike

CHOSEN_ONLY = (
    "the log has the chosen actions only: which others were offered is not in it, so it cannot be known what another"
    " policy would have done, let alone earned. Log all offered actions (a column of lists, or one row per action with"
    " a round id); `fit` still says what is stable in this log and what drifts"
)
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
    """

    feedback: Feedback
    schema: Schema
    feature_map: FeatureMap | ArmFeatures
    quality: QualityReport
    windows: int
    dropped: tuple[Dropped, ...]
    notes: tuple[str, ...]


def read_feedback(
    source: Any,
    schema: SchemaLike = None,
    *,
    features: FeatureOptions | None = None,
    fit_fraction: float = 0.5,
    windows: int = 8,
    latest: int | None = None,
    strict: bool = False,
    keep_going: bool = False,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> LoggedFeedback:
    """Read the rounds of a log into memory, in time order. The log must have its offered actions.

    Parameters
    ----------
    source : path, folder, pattern, list of these, Arrow table, frame, obp dictionary or Log
        Where the rows come from.
    schema : Schema, mapping, path of a TOML file or None
        What the columns mean. What is not said is inferred.
    features : FeatureOptions, optional
        What to make of the columns.
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
    log = open_log(source, schema)
    if not log.schema.has_offered:
        raise InputError(CHOSEN_ONLY)
    options = features or FeatureOptions()
    expanding = read_feature_map(log, options=options)
    quality, notes = QualityReport(), list[str]()
    batches = _latest(read_rounds(log, feature_map=expanding, report=quality), latest, quality, progress)
    if strict:
        quality.refuse_problems()
    quality.require_rounds(keep_going)
    if latest is not None and quality.rounds > latest:
        notes.append(f"only the last {latest:,} of {quality.rounds:,} rounds were taken")
    raw = _feedback(batches, latest, seed, notes)
    earlier, _ = raw.split(fit_fraction)
    windows = _bearable_windows(earlier.rounds, len(expanding.names), windows, notes)
    if isinstance(expanding, ArmFeatures):
        return LoggedFeedback(raw, log.schema, expanding, quality, windows, (), tuple(notes))
    pruned = prune(earlier.moments(min(windows, earlier.rounds)), expanding, options)
    return LoggedFeedback(
        replace(raw, offered=np.ascontiguousarray(pruned.feature_map.finish(raw.offered))),
        log.schema,
        pruned.feature_map,
        quality,
        windows,
        pruned.dropped,
        (*notes, *pruned.notes),
    )


def _bearable_windows(rounds: int, dim: int, windows: int, notes: list[str]) -> int:
    """The number of windows, or fewer if the rounds are too few for so many, which `notes` then say."""
    bearable = rounds // fewest_rounds(dim)
    if not 2 <= bearable < whole_number("windows", windows, 2):
        return windows
    notes.append(f"{windows} windows are too many for the rounds to fit on; {bearable} were made")
    return bearable


def _latest(
    batches: Iterable[Rounds], latest: int | None, quality: QualityReport, progress: Callable[[int], None] | None
) -> list[Rounds]:
    """The batches that hold the last `latest` rounds; earlier ones are let go as soon as they are not needed."""
    kept: deque[Rounds] = deque()
    rounds = 0
    for batch in batches:
        kept.append(batch)
        rounds += len(batch)
        while latest is not None and rounds - len(kept[0]) >= latest:
            rounds -= len(kept.popleft())
        if progress is not None:
            progress(quality.rows)
    return list(kept)


def _feedback(batches: list[Rounds], latest: int | None, seed: int, notes: list[str]) -> Feedback:
    """The rounds as Feedback in time order; sorted by time, if they are not, which `notes` then say."""

    order = _time_order(_joined(batches, "times"), sum(map(len, batches)), latest, notes)
    counts = _joined(batches, "offered_counts")
    assert counts is not None
    starts, sizes = (np.cumsum(counts) - counts)[order], counts[order]
    rows = np.arange(sizes.sum()) + np.repeat(starts - (np.cumsum(sizes) - sizes), sizes)

    def ordered(name: str, index: Array) -> Array | None:
        array = _joined(batches, name)
        return None if array is None else array[index]

    offered, actions, times = ordered("offered", rows), ordered("action", order), ordered("times", order)
    every = ordered("all_rewards", rows)
    if actions is None:
        notes.append(UNIFORM_LOG)
        return Feedback.from_full_information(offered, every, seed=seed, counts=sizes, times=times)
    return Feedback.from_arrays(
        offered,
        actions,
        ordered("rewards", order),
        counts=sizes,
        times=times,
        propensities=ordered("propensity", order),
        offered_rewards=every,
    )


def _joined(batches: list[Rounds], name: str) -> Array | None:
    parts = [getattr(batch, name) for batch in batches]
    return None if parts[0] is None else np.concatenate(parts)


def _time_order(times: Array | None, rounds: int, latest: int | None, notes: list[str]) -> Array:
    """Indices of the last `latest` rounds, sorted by time if they are not."""
    order = np.arange(rounds)[-latest if latest else 0 :]
    if times is None or not (times[order][1:] < times[order][:-1]).any():
        return order
    notes.append("the rounds were not in the order of time and have been sorted by it")
    return order[np.argsort(times[order], kind="stable")]
