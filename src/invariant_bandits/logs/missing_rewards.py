"""Rewards that are missing: whether some contexts lack them more often than others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from invariant_bandits.checks import Array
from invariant_bandits.logs import decode
from invariant_bandits.logs.decode import is_number, is_text
from invariant_bandits.logs.log import Log
from invariant_bandits.logs.quality import RowProblems
from invariant_bandits.optional import pyarrow as pa

LEVEL = 1e-4
"""Probability of naming any column where rewards are missing by chance."""
LEAST_DIFFERENCE = 0.05
"""Difference of the shares of missing rewards that is worth a sentence."""
LEAST_ROWS = 50
"""Rows of a group that is named."""
MOST_NAMED = 3
"""Columns that are named."""


class Imbalance(NamedTuple):
    """A group of rows whose rewards are missing more often than those of the other rows.

    Attributes
    ----------
    words : str
        Which rows these are.
    share, others : float
        Shares of missing rewards among them and among the other rows.
    p_value : float
        How likely so large a difference would be by chance.
    """

    words: str
    share: float
    others: float
    p_value: float


def missing_rewards_note(log: Log) -> str | None:
    """Say in which contexts rewards are missing more often, by the first rows; None if it is in none."""
    rows = log.first_rows
    missing = decode.is_missing(rows.column(log.schema.reward).combine_chunks())
    if (
        log.schema.one_row_per_action
        or not LEAST_ROWS <= missing.sum() <= len(missing) - LEAST_ROWS
    ):
        return None
    columns = [*log.schema.features, *filter(None, [log.schema.arm])]
    tested = [found for name in columns for found in _imbalances(rows, name, missing)]
    clear = [
        found
        for found in tested
        if found.p_value * len(tested) < LEVEL
        and found.share - found.others > LEAST_DIFFERENCE
    ]
    if not clear:
        return None
    clear.sort(key=lambda found: found.others - found.share)
    words = [
        f"{found.words} ({found.share:.0%} against {found.others:.0%})"
        for found in clear[:MOST_NAMED]
    ]
    where = f"rewards are missing in {missing.mean():.0%} of the rows, more often where {', '.join(words)}"
    return f"{where}; effects, gains and mean rewards are those of the rounds with a reward"


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
        yield Imbalance(words=words, share=share, others=others, p_value=p_value)


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
