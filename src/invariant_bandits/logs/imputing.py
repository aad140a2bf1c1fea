"""What stands for a missing value of a column, and whether a feature of its own says that it was missing.

With such a mark a linear model gives the same predictions whatever number is filled in; without one, the mean does the
least harm. So the mean of the first rows is good enough, of categories their shares, and rare gaps, which could not
teach a coefficient anyway, get no mark.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.logs import decoding
from invariant_bandits.logs.arrow_types import is_vector
from invariant_bandits.logs.columns import Column
from invariant_bandits.logs.features import FeatureMap
from invariant_bandits.logs.log import Log
from invariant_bandits.logs.quality import QualityReport, RowProblems

RARE = 0.005
"""Share of rows with a missing value from which on it is marked."""


def imputing(column: Column, log: Log) -> Column:
    """The column with what the log says about its missing values: all rows for categories, else the first ones."""
    if column.categories is not None:
        survey = log.survey()
        rows = survey.total_rows or 0
        counts = survey.categories[column.name]
        missing, shares = rows - counts.total(), tuple(counts[one] / counts.total() for one in column.categories)
        return replace(column, filler=shares, marks_missing=missing > 0 and missing >= RARE * rows)
    values = _first_values(column, log)
    known = ~np.isnan(values)
    with np.errstate(over="ignore", invalid="ignore"):  # numbers that large are refused when they are read
        mean = np.where(known, values, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    share = float((~known).any(axis=1).mean()) if len(values) else 0.0
    return replace(column, filler=tuple(mean.tolist()), marks_missing=share >= RARE)


def _first_values(column: Column, log: Log) -> Array:
    """Usable values (rows, 1 or width) in the first rows of the log, NaN where they are missing."""
    sample = log.sample.column(column.name).combine_chunks()
    if column.width is None:
        problems = RowProblems(len(sample))
        values = decoding.numbers(sample, column.name, problems, impute=True)
        return values[problems.usable, None]
    nested = sample if is_vector(sample.type) else sample.flatten()
    problems = RowProblems(len(nested))
    return decoding.vectors(nested, column.width, column.name, problems, impute=True)[problems.usable]


def often_missing(feature_map: FeatureMap, report: QualityReport) -> list[str]:
    """Columns without a mark whose values turned out to be missing too often to go without one."""
    marked = {column.name for column in feature_map.columns if column.marks_missing}
    return [name for name, count in report.imputed.items() if name not in marked and count >= RARE * report.rows]
