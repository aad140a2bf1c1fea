"""Leakage: evidence that a column gives the reward away, or is known only after it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.logs import decode
from invariant_bandits.logs.quality import RowProblems

LEAST_ROWS = 100
"""Rows with a reward below which nothing is said."""
EXPLAINED, EXPLAINED_OF_TWO = 0.95, 0.6
"""Share of the variance of the reward that no single column known before the choice explains, and of a reward
of two values, most of which is chance.
"""
CERTAIN = 0.99
"""Share of equal rewards from which on a group of rows counts as certain."""
CHANCE = 1e-9
"""Probability below which certain rows are not an accident."""
MOST_REWARDS, LEAST_REWARD_SHARE = 16, 0.005
"""The most frequent rewards whose certainty is looked for, if so many rows have them: half of 1 %, because
a log in which 1 % of the rows have a reward may show fewer of them in its first rows.
"""
LEAST_CERTAIN_SHARE = 0.1
"""Share of the rows whose reward is the usual one for certain that is worth a question."""
BINS = 16
MOST_GROUPS = 64
IMBALANCED = 5.0
"""Standard errors by which no column known before the choice differs between actions, weighted by 1/p."""
FEWEST_PLAYS, MOST_LEVELS = 20, 8
"""Rounds of a label from which on it is compared, and the most frequent levels of words that are."""


@np.errstate(
    over="ignore", invalid="ignore"
)  # numbers too large to square are no evidence
def leak_evidence(column: Any, rewards: Array, words: bool = False) -> str | None:
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
    rewarded = np.isfinite(rewards)
    rewards = rewards[rewarded]
    if len(rewards) < LEAST_ROWS or rewards.min() == rewards.max():
        return None
    values, missing = _values(column, words)
    values, missing = values[rewarded], missing[rewarded]
    groups = _groups(values, missing, words)
    if groups is None:
        return None
    explained = explained_by_groups(groups, rewards)
    if not words:
        present = ~missing
        explained = max(
            explained, _correlation(values[present], rewards[present], len(rewards))
        )
    if explained >= (EXPLAINED_OF_TWO if len(np.unique(rewards)) == 2 else EXPLAINED):
        return f"gives the reward away: it explains {100 * explained:.3g} % of it"
    return _certain_rows(groups, missing, rewards)


@np.errstate(over="ignore", invalid="ignore")
def imbalance(column: Any, labels: Array, weights: Array, words: bool = False) -> float:
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
    values, missing = _values(column, words)
    parts = [
        np.where(missing, values[~missing].mean() if (~missing).any() else 0.0, values)
    ]
    if words:
        levels, counts = np.unique(values[~missing], return_counts=True)
        usual = [
            place
            for place in np.argsort(-counts)[:MOST_LEVELS]
            if counts[place] >= FEWEST_PLAYS
        ]
        parts = [values == level for level in levels[usual]]
    worst, usable = 0.0, weights > 0.0
    for label in np.unique(labels[usable]):
        rows = np.flatnonzero((labels == label) & usable)
        if len(rows) < FEWEST_PLAYS:
            continue
        offered = np.flatnonzero(usable[rows[0] : rows[-1] + 1]) + rows[0]
        for part in (*parts, missing):
            terms = (part[rows] - part[offered].mean()) * weights[rows]
            scale = float(np.sqrt((terms**2).sum()))
            worst = (
                max(worst, abs(float(terms.sum())) / scale) if scale > 0.0 else worst
            )
    return worst


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
    usable = np.isfinite(rewards) & (rewards > 0.0)
    columns = {
        name: values
        for name, values in columns.items()
        if np.mean(values > 0.0) > CERTAIN
    }
    for values in columns.values():
        usable &= values > 0.0
    if usable.sum() < LEAST_ROWS or usable.mean() < 0.5 or len(columns) > MOST_GROUPS:
        return {}
    logs = {name: np.log(values[usable]) for name, values in columns.items()}
    reward, leaks = np.log(rewards[usable]), dict[str, str]()
    for pair in combinations(logs, 2):
        first, second = (logs[name] for name in pair)
        left = min(
            (reward - first - second).var(),
            (reward - first + second).var(),
            (reward + first - second).var(),
        )
        if (
            min(first.var(), second.var(), reward.var()) > 0.0
            and left <= (1.0 - EXPLAINED) * reward.var()
        ):
            derived = max(pair, key=lambda name: float(logs[name].var()))
            for name in [derived] if logs[derived].var() > reward.var() else pair:
                other = pair[1] if name == pair[0] else pair[0]
                share = 100 * (1.0 - left / reward.var())
                leaks[name] = (
                    f"gives the reward away: with {other} it explains {share:.3g} % of it"
                )
    return leaks


@np.errstate(over="ignore", invalid="ignore")
def always_usual(column: Any, rewards: Array, words: bool = False) -> str | None:
    """Say of which values of a column all rewards are the usual one, such as 0; None if there are none.

    Such a value may be known before the choice, as the type of a user who never buys, or after it, as the
    answer "no" to "opened" is where clicks are the reward: only the caller knows which. What is said is what
    chance could not do, of at least a tenth of the rows.

    Parameters
    ----------
    column, rewards, words :
        As in `leak_evidence`.
    """
    rewarded = np.isfinite(rewards)
    rewards = rewards[rewarded]
    if len(rewards) < LEAST_ROWS or rewards.min() == rewards.max():
        return None
    values, missing = _values(column, words)
    values, missing = values[rewarded], missing[rewarded]
    groups = _groups(values, missing, words)
    if groups is None:
        return None
    levels, counts = np.unique(rewards, return_counts=True)
    usual = float(levels[counts.argmax()])
    other = rewards != usual
    _, codes, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    certain = np.bincount(codes, weights=other) == 0
    rows = int(sizes[certain].sum())
    if rows < LEAST_CERTAIN_SHARE * len(rewards):
        return None
    if rows * np.log1p(-float(other.mean())) > np.log(CHANCE):
        return None
    return f"in {rows:,} of the first {len(rewards):,} rows it says alone that the reward is {usual:g}"


def _values(column: Any, words: bool) -> tuple[Array, Array]:
    """Numbers (n,), codes of words where the column holds words, and a mask of the missing ones."""
    missing = decode.is_missing(column)
    if words:
        return decode.value_codes(column).astype(float), missing
    problems = RowProblems(len(column))
    values = decode.numbers(column, "", problems)
    return values, missing | ~problems.usable


def _groups(values: Array, missing: Array, words: bool) -> Array | None:
    """Codes (n,) of groups of equal or near values, −1 where missing; None if words differ too much."""
    levels, codes, counts = np.unique(
        values[~missing], return_inverse=True, return_counts=True
    )
    if len(levels) == 0:
        return None
    if len(levels) > MOST_GROUPS:
        if words:
            return None
        usual = codes == counts.argmax()
        ranks = np.searchsorted(
            np.quantile(values[~missing][~usual], np.arange(1, BINS) / BINS), levels
        )
        codes = np.where(usual, BINS, ranks[codes])
    groups = np.full(len(values), -1)
    groups[~missing] = codes
    return groups


def explained_by_groups(groups: Array, rewards: Array) -> float:
    """Share of the variance of the rewards between groups, adjusted for their number."""
    _, codes, counts = np.unique(groups, return_inverse=True, return_counts=True)
    means = np.bincount(codes, weights=rewards) / counts
    within = float(((rewards - means[codes]) ** 2).sum()) / max(
        len(rewards) - len(counts), 1
    )
    return 1.0 - within / float(rewards.var(ddof=1))


def _correlation(values: Array, rewards: Array, rows: int) -> float:
    """Squared correlation of values or ranks with the rewards, times the share of rows that have both."""
    if (
        len(values) < LEAST_ROWS
        or values.min() == values.max()
        or rewards.min() == rewards.max()
    ):
        return 0.0
    ranks = (
        np.argsort(np.argsort(each, kind="stable"), kind="stable")
        for each in (values, rewards)
    )
    pairs = (
        (values, rewards),
        tuple(ranks) if len(np.unique(rewards)) > BINS else (values, rewards),
    )
    return (
        max(float(np.corrcoef(*pair)[0, 1]) ** 2 for pair in pairs) * len(values) / rows
    )


def _certain_rows(groups: Array, missing: Array, rewards: Array) -> str | None:
    """Say which rows have one reward, or not the usual one, for certain, or that the column is missing where
    the reward is the usual one.

    Of a reward and its opposite, only the rarer one is evidence: that nobody of a group buys may well be
    known before the choice where few buy anyway, that all of them buy is not.
    """
    levels, counts = np.unique(rewards, return_counts=True)
    usual = levels[counts.argmax()]
    other = rewards != usual
    without = int(missing.sum())
    never_missing_by_chance = without * np.log1p(-float(other.mean())) < np.log(CHANCE)
    if without and never_missing_by_chance and not other[missing].any():
        return f"known only after the reward: missing in {without:,} rows, and the reward of all is {usual:g}"
    _, codes, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    frequent = np.argsort(-counts, kind="stable")[:MOST_REWARDS]
    for place in frequent[counts[frequent] >= LEAST_REWARD_SHARE * len(rewards)]:
        equal = rewards == levels[place]
        is_rare = bool(equal.mean() <= 0.5)
        rare = equal if is_rare else ~equal
        rate = float(rare.mean())
        certain = np.bincount(codes, weights=rare) >= CERTAIN * sizes
        rows = int(sizes[certain].sum())
        if rows and rows * np.log(rate) < np.log(CHANCE):
            what = (
                f"a reward of {levels[place]:g}"
                if is_rare
                else f"a reward other than {levels[place]:g}"
            )
            share = f"{100 * rate:.2g} %"
            return f"gives the reward away: by it alone {rows:,} rows surely have {what}, of all {share}"
    return None
