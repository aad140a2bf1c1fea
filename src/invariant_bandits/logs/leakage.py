"""Leakage: evidence that a column gives the reward away, or is known only after it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.logs import decode

LEAST_ROWS = 100
"""Rows with a reward below which nothing is said."""
EXPLAINED = 0.95
"""Share of the variance of the reward that no single column known before the choice explains."""
EXPLAINED_OF_TWO = 0.6
"""The same of a reward of two values, most of which is chance."""
CERTAIN = 0.99
"""Share of equal rewards from which on a group of rows counts as certain."""
CHANCE = 1e-9
"""Probability below which certain rows are not an accident."""
MOST_REWARDS = 16
"""The most frequent rewards whose certainty is looked for: ratings have fewer."""
LEAST_REWARD_SHARE = 0.005
"""Share of the rows that these must have: half of 1 %, because a log in which 1 % of the rows have a reward
may show fewer of them in its first rows.
"""
LEAST_CERTAIN_SHARE = 0.1
"""Share of the rows whose reward is the usual one for certain that is worth a question."""
BINS = 16
"""Groups of equally many rows into which numbers are cut."""
MOST_GROUPS = 64
"""Different values beyond which numbers are cut, and words say nothing."""
IMBALANCED = 5.0
"""Standard errors by which no column known before the choice differs between actions, weighted by 1/p."""
FEWEST_PLAYS = 20
"""Rounds of a label, and rows of a word, from which on they are compared."""
MOST_LEVELS = 8
"""The most frequent words that are compared."""


@dataclass(frozen=True, eq=False)
class RewardedRows:
    """Values of a column in the n rows that have a reward.

    Parameters
    ----------
    values : array, shape (n,)
        Numbers, or codes of words; NaN where missing.
    groups : array, shape (n,)
        Codes from 0 of equal or near values; the missing ones are a group, too.
    sizes : array, shape (k,)
        Rows of each group.
    rewards : array, shape (n,)
        The rewards, of which some differ.
    usual : float
        The most frequent reward.
    """

    values: Array
    groups: Array
    sizes: Array
    rewards: Array
    usual: float

    @staticmethod
    def of(
        column: Any,
        rewards: Array,
        words: bool,
    ) -> RewardedRows | None:
        """Return the rows that have a reward; None if they can say nothing.

        They are too few, their rewards are all equal, or their words differ too much.
        """
        rewarded = np.isfinite(rewards)
        rewards = rewards[rewarded]
        if len(rewards) < LEAST_ROWS or np.ptp(rewards) == 0.0:
            return None
        values = _values(column, words)[rewarded]
        groups = _groups(values, words)
        if groups is None:
            return None
        _, groups, sizes = np.unique(groups, return_inverse=True, return_counts=True)
        levels, counts = np.unique(rewards, return_counts=True)
        return RewardedRows(
            values=values,
            groups=groups,
            sizes=sizes,
            rewards=rewards,
            usual=float(levels[counts.argmax()]),
        )

    def rows_of_groups(self, rewards: Array, share: float) -> int:
        """Return the rows of all groups of which such a share has the rewards in a mask (n,)."""
        counts = np.bincount(self.groups, weights=rewards)
        return int(self.sizes[counts >= share * self.sizes].sum())

    def are_usual_by_chance(self, rows: int) -> bool:
        """Whether so many rows may all have the usual reward by chance."""
        unusual = float((self.rewards != self.usual).mean())
        return bool(rows * np.log1p(-unusual) >= np.log(CHANCE))


# Numbers too large to square are not evidence.
@np.errstate(over="ignore", invalid="ignore")
def leak_evidence(
    column: Any,
    rewards: Array,
    words: bool = False,
) -> str | None:
    """Say how a column gives the reward away; None if it does not.

    The column may explain nearly all of the variance of the reward, by a line, by ranks or by groups of its
    values. Or some reward is frequent, such as 0, and the column says of some rows with certainty that theirs
    is another, as the seconds after a click do, or, where other rewards are more frequent, that theirs is
    that one, as the answer "no" to "sold" does. Or it is missing where the reward is the usual one.

    Parameters
    ----------
    column : pyarrow.Array
        The first values of the column, n of them.
    rewards : array, shape (n,)
        Their rewards, NaN where there is none.
    words : bool
        Whether the values are categories; else they are numbers, even where a text format gives them as text.

    >>> import numpy as np, pyarrow as pa
    >>> rng = np.random.default_rng(0)
    >>> click = (rng.random(1000) < 0.2).astype(float)
    >>> leak_evidence(pa.array(click * rng.gamma(2.0, 20.0, 1000)), click)
    'gives the reward away: it explains 100 % of it'
    >>> leak_evidence(pa.array(rng.normal(size=1000)), click) is None
    True
    """
    rows = RewardedRows.of(column, rewards, words)
    if rows is None:
        return None
    explained = explained_by_groups(rows.groups, rows.rewards)
    if not words:
        explained = max(explained, _squared_correlation(rows))
    is_binary = len(np.unique(rows.rewards)) == 2
    if explained >= (EXPLAINED_OF_TWO if is_binary else EXPLAINED):
        return f"gives the reward away: it explains {100 * explained:.3g} % of it"
    return _missing_with_reward(rows) or _certain_rows(rows)


@np.errstate(over="ignore", invalid="ignore")
def imbalance(
    column: Any,
    labels: Array,
    weights: Array,
    words: bool = False,
) -> float:
    """Return by how many standard errors a column differs most between actions, beyond how they were chosen.

    What is known before a choice has the same mean for every label, weighted by 1/p, as in all rounds in
    which the label was offered: those from its first to its last use. What follows the choice need not.

    Parameters
    ----------
    column : pyarrow.Array
        The first values of the column, n of them.
    labels : array, shape (n,)
        Codes of the chosen labels.
    weights : array, shape (n,)
        1/p; 0 in rows without a propensity, which do not count.
    words : bool
        As in `leak_evidence`.
    """
    values = _values(column, words)
    missing = np.isnan(values)
    present = values[~missing]
    parts = [missing]
    if words:
        parts += [values == level for level in _frequent_levels(present)]
    elif len(present):
        parts.append(np.where(missing, present.mean(), values))
    worst = 0.0
    usable = weights > 0.0
    for label in np.unique(labels[usable]):
        rows = np.flatnonzero((labels == label) & usable)
        if len(rows) < FEWEST_PLAYS:
            continue
        offered = np.flatnonzero(usable[rows[0] : rows[-1] + 1]) + rows[0]
        for part in parts:
            # Σ (x − mean of x where offered) / p has the mean 0 if x was known before the choice.
            terms = (part[rows] - part[offered].mean()) * weights[rows]
            error = float(np.sqrt((terms**2).sum()))
            if error > 0.0:
                worst = max(worst, abs(float(terms.sum())) / error)
    return worst


def _frequent_levels(values: Array) -> Array:
    """Return the most frequent values, if they are frequent."""
    levels, counts = np.unique(values, return_counts=True)
    most_frequent = np.argsort(-counts)[:MOST_LEVELS]
    return levels[most_frequent[counts[most_frequent] >= FEWEST_PLAYS]]


def leaks_by_product(columns: Mapping[str, Array], rewards: Array) -> dict[str, str]:
    """Return columns that give the reward away together with another one, as a product or a ratio, and why.

    Of a number of things, the minutes that they took and their number per hour, one was computed from the
    others: in logarithms, the one that varies most.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> lines, speed = rng.integers(3, 60, 500), rng.normal(90.0, 9.0, 500)
    >>> leaks_by_product({"lines": lines, "minutes": 60 * lines / speed, "age": lines + 20.0}, speed)
    {'minutes': 'gives the reward away: with lines it explains 100 % of it'}
    """
    positive = {
        name: values
        for name, values in columns.items()
        if np.mean(values > 0.0) > CERTAIN
    }
    usable = np.isfinite(rewards) & (rewards > 0.0)
    for values in positive.values():
        usable &= values > 0.0
    if usable.sum() < LEAST_ROWS or usable.mean() < 0.5 or len(positive) > MOST_GROUPS:
        return {}
    reward = np.log(rewards[usable])
    logs = {name: np.log(values[usable]) for name, values in positive.items()}
    leaks = dict[str, str]()
    for name, other in combinations(logs, 2):
        explained = _explained_by_product(logs[name], logs[other], reward)
        if explained < EXPLAINED:
            continue
        pairs = [(name, other), (other, name)]
        pairs.sort(key=lambda pair: -float(logs[pair[0]].var()))
        # The one that varies most was computed from the other two. If that is the reward, both are leaks.
        if logs[pairs[0][0]].var() > reward.var():
            pairs.pop()
        for leak, beside in pairs:
            leaks[leak] = (
                f"gives the reward away: with {beside}"
                f" it explains {100 * explained:.3g} % of it"
            )
    return leaks


def _explained_by_product(
    first: Array,
    second: Array,
    reward: Array,
) -> float:
    """Return the share of a reward that a product or a ratio explains, all in logarithms."""
    if min(first.var(), second.var(), reward.var()) == 0.0:
        return 0.0
    left = min(
        (reward - first - second).var(),
        (reward - first + second).var(),
        (reward + first - second).var(),
    )
    return 1.0 - float(left / reward.var())


@np.errstate(over="ignore", invalid="ignore")
def always_usual(
    column: Any,
    rewards: Array,
    words: bool = False,
) -> str | None:
    """Say of which values of a column all rewards are the usual one, such as 0; None if there are none.

    Such a value may be known before the choice, as the type of a user who never buys, or after it, as the
    answer "no" to "opened" is where clicks are the reward: only the caller knows which. What is said is what
    chance could not do, of at least a tenth of the rows.

    Parameters
    ----------
    column, rewards, words :
        As in `leak_evidence`.
    """
    rows = RewardedRows.of(column, rewards, words)
    if rows is None:
        return None
    total = len(rows.rewards)
    certain = rows.rows_of_groups(rows.rewards == rows.usual, share=1.0)
    if certain < LEAST_CERTAIN_SHARE * total or rows.are_usual_by_chance(certain):
        return None
    return (
        f"in {certain:,} of the first {total:,} rows it says alone"
        f" that the reward is {rows.usual:g}"
    )


def _values(column: Any, words: bool) -> Array:
    """Numbers (n,), or codes of words where the column holds words; NaN where missing."""
    if not words:
        return decode.numbers_or_nan(column)
    codes = decode.value_codes(column).astype(float)
    return np.where(decode.is_missing(column), np.nan, codes)


def _groups(values: Array, words: bool) -> Array | None:
    """Codes (n,) of groups of equal or near values, −1 where missing; None if words differ too much."""
    is_present = ~np.isnan(values)
    present = values[is_present]
    levels, codes, counts = np.unique(present, return_inverse=True, return_counts=True)
    if len(levels) == 0 or (words and len(levels) > MOST_GROUPS):
        return None
    if len(levels) > MOST_GROUPS:
        # The most frequent number, such as 0, is a group of its own; the others are cut at quantiles.
        usual = codes == counts.argmax()
        edges = np.quantile(present[~usual], np.arange(1, BINS) / BINS)
        codes = np.where(usual, BINS, np.searchsorted(edges, present))
    groups = np.full(len(values), -1)
    groups[is_present] = codes
    return groups


def explained_by_groups(groups: Array, rewards: Array) -> float:
    """Share of the variance of the rewards between groups, adjusted for their number."""
    _, codes, counts = np.unique(groups, return_inverse=True, return_counts=True)
    means = np.bincount(codes, weights=rewards) / counts
    freedom = max(len(rewards) - len(counts), 1)
    within = float(((rewards - means[codes]) ** 2).sum()) / freedom
    return 1.0 - within / float(rewards.var(ddof=1))


def _squared_correlation(rows: RewardedRows) -> float:
    """Squared correlation of values or ranks with the rewards, times the share of rows that have both."""
    present = ~np.isnan(rows.values)
    values = rows.values[present]
    rewards = rows.rewards[present]
    if len(values) < LEAST_ROWS or np.ptp(values) == 0.0 or np.ptp(rewards) == 0.0:
        return 0.0
    correlation = np.corrcoef(values, rewards)[0, 1] ** 2
    if len(np.unique(rewards)) > BINS:
        of_ranks = np.corrcoef(_ranks(values), _ranks(rewards))[0, 1] ** 2
        correlation = max(correlation, of_ranks)
    return float(correlation) * len(values) / len(rows.rewards)


def _ranks(values: Array) -> Array:
    return np.argsort(np.argsort(values, kind="stable"), kind="stable")


def _missing_with_reward(rows: RewardedRows) -> str | None:
    """Say that the column is missing where the reward is the usual one."""
    rewards = rows.rewards[np.isnan(rows.values)]
    if (rewards != rows.usual).any() or rows.are_usual_by_chance(len(rewards)):
        return None
    return (
        f"known only after the reward: missing in {len(rewards):,} rows,"
        f" and the reward of all is {rows.usual:g}"
    )


def _certain_rows(rows: RewardedRows) -> str | None:
    """Say which rows have one reward, or another than this one, for certain.

    Of a reward and its opposite, only the rarer one is evidence: that nobody of a group buys may well be
    known before the choice where few buy anyway, that all of them buy is not.
    """
    levels, counts = np.unique(rows.rewards, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:MOST_REWARDS]
    for level, count in zip(levels[order], counts[order], strict=True):
        if count < LEAST_REWARD_SHARE * len(rows.rewards):
            break
        rare = rows.rewards == level
        what = f"a reward of {level:g}"
        if rare.mean() > 0.5:
            rare = ~rare
            what = f"a reward other than {level:g}"
        rate = float(rare.mean())
        certain = rows.rows_of_groups(rare, share=CERTAIN)
        if certain and certain * np.log(rate) < np.log(CHANCE):
            return (
                f"gives the reward away: by it alone {certain:,} rows"
                f" surely have {what}, of all {100 * rate:.2g} %"
            )
    return None
