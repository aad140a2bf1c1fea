"""LoggedFeedback: the rounds of a log in time order, ready for policies to be compared on them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from invariant_bandits.checks import Array, InputError, require_finite
from invariant_bandits.features.arm_maps import ArmFeatures
from invariant_bandits.features.collinearity import Dropped
from invariant_bandits.features.maps import FeatureMap, FeatureOptions
from invariant_bandits.logs.feedback import Feedback
from invariant_bandits.logs.pruning import prune
from invariant_bandits.logs.quality import QualityReport
from invariant_bandits.logs.reader import (
    Rounds,
    encoded_rounds,
    standardised_rounds,
)
from invariant_bandits.logs.schema import Schema
from invariant_bandits.logs.spill import RowCollector
from invariant_bandits.logs.windows import estimable_windows

if TYPE_CHECKING:
    from invariant_bandits.logs.log import Log

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
    feature_map : FeatureMap
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
    feature_map: FeatureMap
    quality: QualityReport
    windows: int
    dropped: tuple[Dropped, ...]
    notes: tuple[str, ...]
    positions: Array | None = None
    offered_arms: Any = None

    def with_estimable_features(
        self, options: FeatureOptions, fit_fraction: float
    ) -> LoggedFeedback:
        """Return these rounds with the features, and in the number of windows, that earlier rounds can bear.

        Parameters
        ----------
        options : FeatureOptions
            What to learn from the earlier rounds, unless the features are those of labelled arms.
        fit_fraction : float
            Share of the rounds that are earlier.
        """
        notes = list(self.notes)
        features = self.feature_map
        earlier, _ = self.feedback.split(fit_fraction)
        windows = estimable_windows(self.windows, earlier.rounds, len(features.names))
        if windows < self.windows:
            notes.append(
                f"{self.windows} windows are too many for the rounds to fit on; {windows} were made"
            )
        if isinstance(features, ArmFeatures):
            coded = replace(self.feedback, arm_features=features)
            return replace(self, feedback=coded, windows=windows, notes=tuple(notes))
        moments = earlier.moments(min(windows, earlier.rounds))
        pruned = prune(moments, features, options)
        standardised = self.feedback.mapped(pruned.feature_map.standardise)
        return replace(
            self,
            feedback=replace(
                standardised, feature_names=tuple(pruned.feature_map.names)
            ),
            feature_map=pruned.feature_map,
            windows=windows,
            dropped=pruned.dropped,
            notes=(*notes, *pruned.notes),
        )


def require_offered(schema: Schema) -> None:
    """Raise InputError unless a log says what else was offered when an action was chosen."""
    schema.require_action()
    if schema.ranking is not None:
        raise InputError(
            f"the log is a ranking: rows of one {schema.ranking} are items at different positions, and"
            " what another order would have earned is not in it. `fit` says which features attract clicks at"
            " the same position; if positions do not matter, say --ranking none"
        )
    schema.require_direction()
    if not schema.has_offered:
        raise InputError(
            "the log has the chosen actions only: which others were offered is not in it, so it cannot be"
            " known what another policy would have done, let alone earned. Log all offered actions (a column"
            " of lists, or one row per action with a round id); `fit` still says what is stable in this log"
            " and what drifts"
        )


def rounds_to_keep(
    log: Log,
    features: FeatureMap,
    quality: QualityReport,
    latest: int | None,
) -> Iterator[Rounds]:
    """Yield rounds whose offered rows are features or, of labelled arms, contexts and arms."""
    for rounds in encoded_rounds(log, features, quality, latest):
        yield standardised_rounds(rounds, features)


class GatheredRounds:
    """Rounds as they are read: the last `latest`, or all.

    Parameters
    ----------
    latest : int or None
        Earlier rounds are let go as soon as they are not needed.
    """

    def __init__(self, latest: int | None) -> None:
        self.most = np.inf if latest is None else latest
        self.rounds = 0
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
        while self.rounds - len(self._per_round[0]["rewards"]) >= self.most:
            first = self._per_round.popleft()
            self.rounds -= len(first["rewards"])
            self._drop_rows(first["offered_counts"])

    def _drop_rows(self, counts: Array) -> None:
        """Let go of the rows of the first rounds, which offered `counts` (n,) actions."""
        for collector in self._per_row.values():
            collector.drop(int(counts.sum()))

    def values(self) -> dict[str, Any]:
        """Return what the rounds hold by name, arrays or stored rows; None for what they do not have."""
        too_many = int(max(0, self.rounds - self.most))
        values: dict[str, Any] = {}
        for name, first in self._per_round[0].items():
            parts = [batch[name] for batch in self._per_round]
            values[name] = None if first is None else np.concatenate(parts)[too_many:]
        self._drop_rows(self._per_round[0]["offered_counts"][:too_many])
        for name, collector in self._per_row.items():
            values[name] = collector.rows() if collector.used else None
        return values


def feedback_of(values: Mapping[str, Any], seed: int) -> Feedback:
    """Return gathered rounds as Feedback; a seed draws the logged actions where the log marks none."""
    offered = values["offered"]
    shared = {"counts": values["offered_counts"], "times": values["times"]}
    if values["action"] is None:
        return Feedback.from_full_information(
            offered, values["all_rewards"], seed=seed, **shared
        )
    read = Feedback.from_arrays(
        offered,
        values["action"],
        values["rewards"],
        propensities=values["propensity"],
        offered_rewards=values["all_rewards"],
        **shared,
    )
    return replace(read, round_weights=values["round_weights"])
