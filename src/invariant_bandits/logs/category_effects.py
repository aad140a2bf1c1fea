"""Categories with many levels: what each level adds to every arm, as a random effect.

Indicators of a thousand countries are too many features. The effect of a level on the rewards of an arm is
one number instead, drawn to the arm's mean as far as the log cannot tell it from that. The
column then becomes one feature per arm, which only that arm's rewards depend on.

A regression on effects that the same rounds have shown would take their errors for signal. So the regression
is given what the rounds of each level say, undrawn; that has the coefficient 1 by construction. Decisions and
later logs are given the drawn effects, whose coefficient is 1 where the rounds are new.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.features.arm_maps import ArmCoefficients, PooledLevels
from invariant_bandits.features.collinearity import Dropped
from invariant_bandits.features.columns import Codes, Column
from invariant_bandits.features.maps import MOST_CATEGORIES
from invariant_bandits.features.rows import RowFeatures

if TYPE_CHECKING:
    from invariant_bandits.logs.scan import Scan

MOST_EFFECTS = 1_000_000
"""Levels times arms: some 100 MB while they are fitted."""
LEAST_SHARE = 0.1
"""Mean share of a level's own rounds in its effect below which the column says nothing."""


class LevelEffects(NamedTuple):
    """Effects of the levels of a column on the rewards of arms, each (L, A).

    Attributes
    ----------
    undrawn : array
        Mean reward of the level's rounds less that of the arm; 0 without rounds.
    drawn : array
        The same, drawn to 0, when the log ended.
    share : float
        Mean share of a level's own rounds in its effect.
    """

    undrawn: Array
    drawn: Array
    share: float


class CodedCategories(NamedTuple):
    """Features with columns of many categories coded or left out.

    Attributes
    ----------
    features : ArmCoefficients
        The features, with the codes that a regression is given.
    serving : dict of str to codes
        The codes that decisions are given, by column.
    dropped : list of Dropped
        Columns that were left out.
    """

    features: ArmCoefficients
    serving: dict[str, Codes]
    dropped: list[Dropped]


def code_categories(
    scan: Scan, features: ArmCoefficients, max_categories: int
) -> CodedCategories:
    """Replace columns of many categories by their effects on the rewards of every arm.

    They are left out if the scan is not for a fit, or if their effects cannot be seen.

    Parameters
    ----------
    scan : Scan
        Of a log with labelled arms; its `fit_levels` fits the effects.
    features : ArmCoefficients
        That nothing was learned for yet.
    max_categories : int
        Columns with up to so many categories, and at least 100, have indicators.
    """
    survey = scan.log.survey()
    arm = str(scan.log.schema.arm)
    columns = []
    dropped = []
    serving: dict[str, Codes] = {}
    for column in features.columns:
        count = len(survey.categories.get(column.name, ()))
        if count <= max(MOST_CATEGORIES, max_categories):
            columns.append(column)
            continue
        if scan.fit_levels is None:
            note = f"{column.name} is left out: only a fit learns the effects of its {count:,} categories"
            if note not in scan.log.notes:
                scan.log.notes += (note,)
            continue
        most = MOST_EFFECTS // len(features.labels)
        categories = survey.most_frequent(column.name, most)
        effects = _level_effects(scan, features.labels, column.name, categories)
        if effects.share < LEAST_SHARE:
            why = f"no effect of its {count:,} categories on any arm can be seen"
            dropped.append(Dropped(column.name, {}, why))
            continue
        names = tuple(f"{column.name} of {arm} {label}" for label in features.labels)
        codes = _codes(effects.undrawn)
        columns.append(Column(column.name, categories, codes=codes, parts=names))
        serving[column.name] = _codes(effects.drawn)
    context = replace(features.context, columns=tuple(columns))
    return CodedCategories(replace(features, context=context), serving, dropped)


def category_notes(serving: Mapping[str, Codes]) -> list[str]:
    """Say of which columns the categories are coded by their effects."""
    return [
        f"the {len(codes):,} categories of {name} are one feature per arm: their effect on its rewards, drawn"
        " to the mean of the arm"
        for name, codes in serving.items()
    ]


def with_codes(
    features: ArmCoefficients, codes: Mapping[str, Codes]
) -> ArmCoefficients:
    """Return the features with other codes of these columns."""
    columns = tuple(
        replace(column, codes=codes.get(column.name, column.codes))
        for column in features.columns
    )
    return replace(features, context=replace(features.context, columns=columns))


def _codes(effects: Array) -> Codes:
    return tuple(tuple(row) for row in effects.tolist())


def _level_effects(
    scan: Scan, labels: tuple[str, ...], name: str, categories: tuple[str, ...]
) -> LevelEffects:
    """Return the effects of these categories of a column, from one pass over the log."""
    # The column as one number, the index of the category from 1; 0 where it is missing.
    index = tuple((float(place),) for place in range(1, 1 + len(categories)))
    column = Column(name, categories, codes=index, parts=(name,))
    sample = scan.sampled_rounds(PooledLevels(RowFeatures((column,)), labels))
    codes = sample.contexts[:, 1].astype(np.int64) - 1
    arms = np.asarray(sample.arms)
    plays = np.bincount(arms, minlength=len(labels))
    means = np.bincount(arms, sample.rewards, len(labels)) / np.maximum(plays, 1)
    known = codes >= 0
    rewards = (sample.rewards - means[arms])[known]
    cells = codes[known] * len(labels) + arms[known]
    rounds = (np.ones((len(cells), 1)), rewards, cells, sample.windows[known])
    size = len(categories) * len(labels)
    assert scan.fit_levels is not None
    fit = scan.fit_levels(
        lambda: [rounds],
        dim=1,
        arms=size,
        windows=scan.windows.count,
        clicks=False,
    )
    count = np.bincount(cells, minlength=size)
    undrawn = np.bincount(cells, rewards, size) / np.maximum(count, 1)
    # A level with n rounds has the variance l, and the share 1 − l/τ² comes from these.
    own_share = 1.0 - fit.covariances[:, 0, 0] / fit.spread[0]
    shape = (len(categories), len(labels))
    return LevelEffects(
        undrawn=undrawn.reshape(shape),
        drawn=fit.means[:, 0].reshape(shape),
        share=float(own_share @ count / max(count.sum(), 1)),
    )
