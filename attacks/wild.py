"""Wild values: what no file should hold, and what it may hold in another place."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

WILD_FLOATS = (
    *(
        np.nan,
        np.inf,
        -np.inf,
        0.0,
        -0.0,
        -1.0,
        1e308,
        -1e308,
        1e-308,
        5e-324,
        1e-160,
        1e16,
        -1e16,
        1e100,
        -1e100,
    ),
    *(1e150, 1e200, 0.5, 2.0, 1e-12),
)
WILD_INTS = (
    0,
    -1,
    1,
    2,
    7,
    255,
    2**31 - 1,
    -(2**31),
    2**31,
    2**53,
    2**62,
    2**63 - 1,
    -(2**63),
)
WILD_VALUES = (
    *WILD_FLOATS,
    *WILD_INTS,
    *(
        2**63,
        10**30,
        10**400,
        True,
        False,
        None,
        "",
        "x",
        "NaN",
        "1",
        "a" * 5000,
        "\u202e\x1b[2J\x00",
    ),
    *(
        [],
        {},
        [1],
        [[]],
        [None],
        {"a": 1},
        [1e308] * 50,
        list(range(2000)),
        "linucb",
        "auto-isd",
        "SlidingWindow",
    ),
)
WILD_HEADERS = (
    *(
        b"[]",
        b"{}",
        b"1",
        b'"x"',
        b"null",
        b"[" * 100_000,
        b'{"a":' * 5000,
        b'{"__metadata__":[]}',
        b'{"__metadata__":{}}',
    ),
    *(
        b'{"__metadata__":{"product":1}}',
        b"\xff\xfe{}",
        b'{"__metadata__":null,"x":{}}',
    ),
)


def wild(value: Any, rng: np.random.Generator) -> Any:
    """Another value: a wild one, or one near by."""
    if (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and rng.random() < 0.5
    ):
        near = (
            value + 1,
            value - 1,
            -value,
            10 * value,
            value / 10,
            1000 * value,
            1e6 * value,
            int(value),
            value * 2**20,
        )
        return near[rng.integers(len(near))]
    return copy.deepcopy(WILD_VALUES[rng.integers(len(WILD_VALUES))])
