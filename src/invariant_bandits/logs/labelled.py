"""The labelled forms of a log: one row per round with the label of the chosen arm, or one row per offered arm.

Rounds get whole contexts [1, x] as features, and arms by their places in the table; φ(x, a) is made of them later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.logs import labels
from invariant_bandits.logs.arm_features import with_level
from invariant_bandits.logs.arms import ArmTable
from invariant_bandits.logs.forms import Form, RowPerAction
from invariant_bandits.logs.quality import RowProblems
from invariant_bandits.logs.rounds import Rounds
from invariant_bandits.logs.whole_rounds import run_starts

UNKNOWN_ARM = "label of no known arm"
NOT_OFFERED = "chosen action outside the offered"


@dataclass(frozen=True, kw_only=True)
class Labelled(Form):
    """What the labelled forms share.

    Parameters
    ----------
    arms : ArmTable
        The arms, and when each was offered.
    with_offered : bool
        Whether rounds get the arms that were offered.
    """

    arms: ArmTable
    with_offered: bool = True

    def _contexts(self, batch: Any, problems: RowProblems) -> Array:
        """[1, what the context map expands to] (n, 1 + q)."""
        if not self.feature_map.columns:
            return np.ones((len(batch), 1))
        return with_level(self.feature_map.expand(self._raw_columns(batch, problems)))

    def _codes(self, batch: Any, problems: RowProblems) -> Array:
        """Places (n,) of the labels in the table; the first, and a problem, where a label is missing or not known."""
        column = batch.column(str(self.schema.arm))
        codes = self.arms.codes(column)
        problems.leave_out(np.asarray(column.is_null().to_numpy(zero_copy_only=False)), f"missing {self.schema.arm}")
        problems.leave_out(codes < 0, UNKNOWN_ARM)
        return np.maximum(codes, 0)


@dataclass(frozen=True, kw_only=True)
class LabelledArms(Labelled):
    """One row per round: its context, and the label of the chosen arm.

    Parameters
    ----------
    file_starts : mapping of str to int
        Place in the log of the first row of every file; needed where arms are bounded by rows.
    """

    file_starts: Mapping[str, int] = field(default_factory=dict)

    def decoded(self, file: str, row: int, batch: Any) -> tuple[Rounds, RowProblems]:
        """The rounds of a batch that begins at `row` of `file`, bad ones included, and their problems."""
        problems = RowProblems(len(batch))
        contexts = self._contexts(batch, problems)
        codes = self._codes(batch, problems)
        rounds = Rounds(file, row + np.arange(len(batch)), contexts, self._rewards(batch, problems), arm=codes)
        rounds = self._with_optional(rounds, batch, problems)
        if not self.with_offered:
            return rounds, problems
        mask = self._offered_mask(rounds, batch)
        problems.leave_out(~mask[np.arange(len(codes)), codes], NOT_OFFERED)
        return rounds.offering(mask), problems

    def _offered_mask(self, rounds: Rounds, batch: Any) -> Array:
        """Which arms each round offered (n, arms)."""
        if self.schema.arms_offered is None:
            when = self.file_starts.get(rounds.file, 0) + rounds.rows if rounds.times is None else rounds.times
            return self.arms.offered_at(when)
        words, of_row = labels.flattened(batch.column(self.schema.arms_offered))
        codes = labels.places(words, self.arms.labels)
        mask = np.zeros((len(batch), len(self.arms)), dtype=bool)
        mask[of_row[codes >= 0], codes[codes >= 0]] = True
        return mask


@dataclass(frozen=True, kw_only=True)
class LabelledRows(Labelled, RowPerAction):
    """One row per offered arm; a batch holds whole rounds, and the rows of a round have one context."""

    def decoded(self, file: str, row: int, batch: Any) -> tuple[Rounds, RowProblems]:
        """The rounds of a batch that begins at `row` of `file`, bad ones included, and their problems."""
        starts = run_starts(batch.column(self.schema.round))
        rows = RowProblems(len(batch))
        codes = self._codes(batch, rows)
        mask = np.zeros((len(starts), len(self.arms)), dtype=bool)
        mask[np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(batch)))), codes] = True
        problems = rows.of_groups(starts)
        at = self._chosen_rows(batch, starts, problems)
        of_chosen = batch.take(at)
        contexts = self._contexts(of_chosen, problems)
        rounds = Rounds(file, row + starts, contexts, self._rewards(of_chosen, problems), arm=codes[at])
        rounds = self._with_optional(rounds, of_chosen, problems)
        return (rounds.offering(mask) if self.with_offered else rounds), problems
