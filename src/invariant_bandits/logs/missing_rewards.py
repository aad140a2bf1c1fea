"""Rewards that are missing: whether some contexts lack them more often than others, and weights for that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from invariant_bandits.checks import Array, InputError
from invariant_bandits.logs import decode
from invariant_bandits.logs.decode import is_number, is_text
from invariant_bandits.logs.log import Log
from invariant_bandits.logs.quality import RowProblems
from invariant_bandits.logs.reader import Rounds
from invariant_bandits.optional import pyarrow as pa

LEVEL = 1e-4
"""Probability of naming any column where rewards are missing by chance."""
LEAST_DIFFERENCE = 0.05
"""Difference of the shares of missing rewards that is worth a sentence."""
LEAST_ROWS = 50
"""Rows of a group that is named."""
MOST_NAMED = 3
"""Columns that are named."""
LEVELS = 5
"""Levels of equally many rows into which numbers are cut for weights."""
FEWEST_OBSERVED = 10
"""Rewards that a group of rows needs so that they can stand for those it lacks."""


@dataclass(frozen=True)
class MissingMore:
    """A group of rows whose rewards are missing more often than those of the other rows.

    Attributes
    ----------
    column, words : str
        By which column the group is made, and which rows these are.
    share, of_others : float
        Shares of missing rewards among them and among the other rows.
    p_value : float
        How likely so large a difference would be by chance.
    """

    column: str
    words: str
    share: float
    of_others: float
    p_value: float

    @property
    def difference(self) -> float:
        """How much larger the share of missing rewards is."""
        return self.share - self.of_others


def missing_rewards_note(log: Log) -> str | None:
    """Say in which contexts rewards are missing more often, by the first rows; None if it is in none."""
    if log.schema.one_row_per_action:
        return None
    rows = log.first_rows
    missing = decode.is_missing(rows.column(log.schema.reward).combine_chunks())
    if not LEAST_ROWS <= missing.sum() <= len(missing) - LEAST_ROWS:
        return None
    tested: list[MissingMore] = []
    for name in _context_columns(log):
        tested += _compare_groups(rows.column(name).combine_chunks(), name, missing)
    # Bonferroni: the level is for all groups together.
    clear = [
        group
        for group in tested
        if group.p_value * len(tested) < LEVEL and group.difference > LEAST_DIFFERENCE
    ]
    if not clear:
        return None
    clear.sort(key=lambda group: -group.difference)
    named = clear[:MOST_NAMED]
    where = ", ".join(
        f"{group.words} ({group.share:.0%} against {group.of_others:.0%})"
        for group in named
    )
    columns = ",".join(dict.fromkeys(group.column for group in named))
    return (
        f"rewards are missing in {missing.mean():.0%} of the rows, more often where {where};"
        " effects, gains and mean rewards are those of the rounds with a reward;"
        f" evaluate --weight-missing {columns} weights them for all rounds"
    )


def _context_columns(log: Log) -> list[str]:
    """Return the features and the arm."""
    columns = list(log.schema.features)
    if log.schema.arm is not None:
        columns.append(log.schema.arm)
    return columns


Group: TypeAlias = tuple[Any, ...]
"""A value or a level per column."""


class MissingWeights:
    """Weights with which the rounds that have a reward stand for all rounds of a log.

    A round weighs 1/q, q the share of rewards that are there among the rows with the same values of some
    columns: inverse probability weighting, right if rewards are missing by chance among these rows (Little &
    Rubin 2019, chapter 3). Numbers are cut into five levels.

    Parameters
    ----------
    log : Log
        A log with one row per round.
    columns : sequence of str
        Columns, each a feature or the arm, on which it depends whether a reward is missing.
    """

    def __init__(self, log: Log, columns: Sequence[str]) -> None:
        if log.schema.one_row_per_action:
            raise InputError(
                "weight_missing needs a log with one row per round; here a round has several rows"
            )
        known = _context_columns(log)
        for name in columns:
            if name not in known:
                raise InputError(
                    f"weight_missing must name features or the arm, got {name!r}; known: {', '.join(known)}"
                )
        self._edges = {name: _level_edges(log, name) for name in columns}
        rows: Counter[Group] = Counter()
        observed: Counter[Group] = Counter()
        groups: dict[str, dict[int, Group]] = {}
        reward = log.schema.reward
        for task in log.survey().tasks:
            for row, batch in log.source.batches(task, [reward, *columns]):
                of_rows = self._groups(batch)
                there = ~decode.is_missing(batch.column(reward))
                rows.update(of_rows)
                observed.update(compress(of_rows, there))
                of_file = groups.setdefault(task.file, {})
                of_file.update(enumerate(of_rows, start=row))
        _require_rewards(columns, rows, observed)
        self._weights = {
            file: {row: rows[group] / observed[group] for row, group in of_file.items()}
            for file, of_file in groups.items()
        }

    def weighted(self, rounds: Rounds) -> Rounds:
        """Return rounds of the log with their weights."""
        places, weights = self._weights[rounds.file]
        own = np.asarray(weights[np.searchsorted(places, rounds.rows)])
        return replace(rounds, round_weights=own)

    def _groups(self, batch: Any) -> list[tuple[Any, ...]]:
        """The group of every row, a value or a level per column."""
        parts = []
        for name, edges in self._edges.items():
            column = batch.column(name)
            if edges is None:
                parts.append(column.cast(pa.string()).to_pylist())
                continue
            problems = RowProblems(len(column))
            values = decode.numbers(column, name, problems, impute=True)
            level = np.searchsorted(edges, values, side="right")
            parts.append(np.where(np.isfinite(values), level, -1).tolist())
        return list(zip(*parts, strict=True))


def _level_edges(log: Log, name: str) -> Array | None:
    """Edges of the levels of a column of numbers; None for categories."""
    column = log.first_rows.column(name).combine_chunks()
    if not is_number(column.type) or name in (log.schema.arm, *log.schema.categorical):
        return None
    values = decode.numbers(column, name, RowProblems(len(column)), impute=True)
    return np.quantile(values[np.isfinite(values)], np.arange(1, LEVELS) / LEVELS)


def _imbalances(rows: Any, name: str, missing: Array) -> Iterator[Imbalance]:
    """Compare the rows of every category with the others, or those above the median with those below."""
    column = rows.column(name).combine_chunks()
    for words, inside in _groups(column, name):
        count = int(inside.sum())
        if not LEAST_ROWS <= count <= len(missing) - LEAST_ROWS:
            continue
        share = float(missing[inside].mean())
        others = float(missing[~inside].mean())
        # Two shares differ: a normal test with the variance of both together.
        overall = float(missing.mean())
        variance = (
            overall * (1.0 - overall) * (1.0 / count + 1.0 / (len(missing) - count))
        )
        p_value = float(special.erfc(abs(share - others) / np.sqrt(2.0 * variance)))
        yield Imbalance(
            column=name, words=words, share=share, others=others, p_value=p_value
        )


def _groups(column: Any, name: str) -> Iterator[tuple[str, Array]]:
    """Yield names and masks (n,) of groups of rows."""
    if is_text(column.type) or pa.types.is_boolean(column.type):
        words = decode.as_dictionary(column.cast(pa.string()))
        codes = np.asarray(words.indices.fill_null(-1))
        for code, word in enumerate(words.dictionary.to_pylist()):
            yield f"{name} = {word}", codes == code
    elif is_number(column.type):
        problems = RowProblems(len(column))
        values = decode.numbers(column, name, problems, impute=True)
        usable = problems.usable & np.isfinite(values)
        if usable.any():
            middle = float(np.median(values[usable]))
            yield f"{name} > {middle:.4g}", usable & (values > middle)
            yield f"{name} <= {middle:.4g}", usable & (values <= middle)
