"""Rewards that are missing: whether some contexts lack them more often than others, and weights for that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from scipy import special

from invariant_bandits.checks import Array, InputError
from invariant_bandits.logs import decode
from invariant_bandits.logs.decode import is_number, is_text
from invariant_bandits.logs.quality import RowProblems
from invariant_bandits.logs.reader import Rounds
from invariant_bandits.optional import pyarrow as pa

if TYPE_CHECKING:
    from invariant_bandits.logs.log import Log

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
        f" --weight-missing {columns} weights them for all rounds"
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

    Attributes
    ----------
    note : str
        What is weighted.
    efficiency : float
        How many rounds of equal weight a unit of weight is worth: Σw / Σw² (Kish 1965).
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
        codes: dict[Group, int] = {}
        parts: list[_Part] = []
        reward = log.schema.reward
        for task in log.survey().tasks:
            for row, batch in log.source.batches(task, [reward, *columns]):
                groups = self._groups(batch)
                part = _Part(
                    file=task.file,
                    rows=row + np.arange(len(groups)),
                    groups=np.array([codes.setdefault(g, len(codes)) for g in groups]),
                    observed=~decode.is_missing(batch.column(reward)),
                )
                parts.append(part)
        groups_of_rows = np.concatenate([part.groups for part in parts])
        is_known = np.concatenate([part.observed for part in parts])
        counts = np.bincount(groups_of_rows)
        observed = np.bincount(groups_of_rows, weights=is_known)
        for group, code in codes.items():
            if observed[code] < FEWEST_OBSERVED:
                pairs = zip(columns, group, strict=True)
                named = ", ".join(f"{name} {value}" for name, value in pairs)
                raise InputError(
                    f"weight_missing: {observed[code]:g} of {counts[code]:,} rewards are there for {named};"
                    f" at least {FEWEST_OBSERVED} are needed, so name fewer columns"
                )
        weights = counts / observed
        self.efficiency = float(counts.sum() / (observed @ weights**2))
        self.note = (
            "rounds with a reward are weighted for those without one that have the same"
            f" {', '.join(columns)}"
        )
        self._weights: dict[str, tuple[Array, Array]] = {}
        for file in {part.file for part in parts}:
            of_file = [part for part in parts if part.file == file]
            rows = np.concatenate([part.rows for part in of_file])
            groups_of_rows = np.concatenate([part.groups for part in of_file])
            order = np.argsort(rows, kind="stable")
            self._weights[file] = (rows[order], weights[groups_of_rows[order]])

    def of(self, rounds: Rounds) -> Array:
        """Return the weights (n,) of rounds of the log."""
        rows, weights = self._weights[rounds.file]
        return np.asarray(weights[np.searchsorted(rows, rounds.rows)])

    def weighted(self, rounds: Rounds) -> Rounds:
        """Return rounds of the log with their weights."""
        return replace(rounds, round_weights=self.of(rounds))

    def _groups(self, batch: Any) -> list[Group]:
        """Return the group of every row."""
        parts = []
        for name, edges in self._edges.items():
            column = batch.column(name)
            if edges is None:
                parts.append(column.cast(pa.string()).to_pylist())
                continue
            values, _ = _numbers(column)
            level = np.searchsorted(edges, values, side="right")
            parts.append(np.where(np.isfinite(values), level, -1).tolist())
        return list(zip(*parts, strict=True))


@dataclass(frozen=True, eq=False)
class _Part:
    """Some rows of a file, their groups, and whether they have a reward, each (n,)."""

    file: str
    rows: Array
    groups: Array
    observed: Array


def _numbers(column: Any) -> tuple[Array, Array]:
    """Return the numbers (n,) of a column, and a mask of the usable ones."""
    problems = RowProblems(len(column))
    values = decode.numbers(column, "", problems, impute=True)
    return values, problems.usable & np.isfinite(values)


def _level_edges(log: Log, name: str) -> Array | None:
    """Edges of the levels of a column of numbers; None for categories."""
    column = log.first_rows.column(name).combine_chunks()
    if not is_number(column.type) or name in (log.schema.arm, *log.schema.categorical):
        return None
    values, _ = _numbers(column)
    return np.quantile(values[np.isfinite(values)], np.arange(1, LEVELS) / LEVELS)


def _compare_groups(
    column: Any,
    name: str,
    missing: Array,
) -> Iterator[MissingMore]:
    """Compare the rows of every group with the others."""
    overall = float(missing.mean())
    for words, inside in _groups(column, name):
        count = int(inside.sum())
        others = len(missing) - count
        if min(count, others) < LEAST_ROWS:
            continue
        share = float(missing[inside].mean())
        of_others = float(missing[~inside].mean())
        # Two shares differ: a normal test with the variance of both together.
        variance = overall * (1.0 - overall) * (1.0 / count + 1.0 / others)
        scaled = abs(share - of_others) / np.sqrt(2.0 * variance)
        yield MissingMore(
            column=name,
            words=words,
            share=share,
            of_others=of_others,
            p_value=float(special.erfc(scaled)),
        )


def _groups(column: Any, name: str) -> Iterator[tuple[str, Array]]:
    """Yield groups of rows: those of a category, or those above or below the median.

    Each has words that describe it and a mask (n,).
    """
    if is_text(column.type) or pa.types.is_boolean(column.type):
        words = decode.as_dictionary(column.cast(pa.string()))
        codes = decode.dictionary_codes(words, missing=-1)
        for code, word in enumerate(words.dictionary.to_pylist()):
            yield f"{name} = {word}", codes == code
    elif is_number(column.type):
        values, usable = _numbers(column)
        if usable.any():
            median = float(np.median(values[usable]))
            yield f"{name} > {median:.4g}", usable & (values > median)
            yield f"{name} <= {median:.4g}", usable & (values <= median)
