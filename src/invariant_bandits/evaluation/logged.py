"""From a log, as it lies there, to Feedback: features learned from the rounds that policies are fitted on, only."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError, whole_number
from invariant_bandits.logs.features import Dropped, FeatureMap, FeatureOptions
from invariant_bandits.logs.feedback import Feedback
from invariant_bandits.logs.opening import open_source
from invariant_bandits.logs.pruning import fewest_rounds, make_estimable
from invariant_bandits.logs.quality import QualityReport
from invariant_bandits.logs.reading import SchemaLike, read_feature_map, read_rounds, read_schema
from invariant_bandits.logs.rounds import Rounds
from invariant_bandits.logs.schema import Schema

CHOSEN_ONLY = (
    "the log has the chosen actions only: which others were offered is not in it, so it cannot be known what another"
    " policy would have done, let alone earned. Log all offered actions (a column of lists, or one row per action with"
    " a round id); `fit` still says what is stable in this log and what drifts"
)
UNIFORM_LOG = "the log does not say which action was chosen; 'the log' is here a choice at random among the offered"


@dataclass(frozen=True, eq=False)
class LoggedFeedback:
    """Rounds of a log ready for `compare`, and how they came about.

    windows: how many the rounds that are fitted on can bear, at most what was asked for; notes: what was done.
    """

    feedback: Feedback
    schema: Schema
    feature_map: FeatureMap
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
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> LoggedFeedback:
    """Read the rounds of a log into memory, in time order; the log must have its offered actions.

    What features are left out, and their scales, come from the first `fit_fraction` of the rounds. latest: only so
    many of the last rounds; seed: draws the logged action where all rewards are known and none is marked as chosen;
    progress(rows) is called after every batch.
    """
    opened = open_source(source)
    known = read_schema(opened, schema)
    if not known.has_offered:
        raise InputError(CHOSEN_ONLY)
    options = features or FeatureOptions()
    expanding = read_feature_map(opened, known, options)
    quality, notes = QualityReport(), list[str]()
    batches = _latest(read_rounds(opened, known, expanding, report=quality), latest, quality, progress)
    if strict:
        quality.refuse_problems()
    if not batches:
        raise InputError(f"the log has no usable round:\n{quality.describe()}")
    if latest is not None and quality.rounds > latest:
        notes.append(f"only the last {latest:,} of {quality.rounds:,} rounds were taken")
    raw = _feedback(batches, latest, seed, notes)
    earlier, _ = raw.split(fit_fraction)
    bearable = earlier.rounds // fewest_rounds(len(expanding.names))
    if 2 <= bearable < whole_number("windows", windows, 2):
        notes.append(f"{windows} windows are too many for the rounds to fit on; {bearable} were made")
        windows = bearable
    usable = make_estimable(earlier.moments(min(windows, earlier.rounds)), expanding, options)
    return LoggedFeedback(
        replace(raw, offered=np.ascontiguousarray(usable.feature_map.finish(raw.offered))),
        known,
        usable.feature_map,
        quality,
        windows,
        usable.dropped,
        (*notes, *usable.notes),
    )


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

    def joined(name: str) -> Array | None:
        parts = [getattr(batch, name) for batch in batches]
        return None if parts[0] is None else np.concatenate(parts)

    counts, offered = joined("offered_counts"), joined("offered")
    assert counts is not None
    assert offered is not None
    times = joined("times")
    order = np.arange(len(counts))[-latest if latest else 0 :]
    if times is not None and (times[order][1:] < times[order][:-1]).any():
        order = order[np.argsort(times[order], kind="stable")]
        notes.append("the rounds were not in the order of time and have been sorted by it")
    starts, sizes = (np.cumsum(counts) - counts)[order], counts[order]
    rows = np.arange(sizes.sum()) + np.repeat(starts - (np.cumsum(sizes) - sizes), sizes)

    def ordered(name: str, index: Array) -> Array | None:
        array = joined(name)
        return None if array is None else array[index]

    actions, every = ordered("action", order), ordered("all_rewards", rows)
    when = None if times is None else times[order]
    if actions is None:
        notes.append(UNIFORM_LOG)
        return Feedback.from_full_information(offered[rows], every, seed=seed, counts=sizes, times=when)
    return Feedback.from_arrays(
        offered[rows],
        actions,
        ordered("rewards", order),
        counts=sizes,
        times=when,
        propensities=ordered("propensity", order),
        offered_rewards=every,
    )
