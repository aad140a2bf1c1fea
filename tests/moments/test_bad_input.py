"""WindowedMoments refuse bad input by name and stay as they were."""

from copy import deepcopy

import numpy as np
import pytest

from invariant_bandits import InputError, WindowedMoments
from worlds import draw_log

GOOD = draw_log(13, 6)
BAD_UPDATES = {
    "rows that are no matrix": (
        r"features must have shape \(n, 3\), got \(6,\)",
        {"features": GOOD[1]},
    ),
    "another number of features": (
        r"features must have shape \(n, 3\), got \(6, 2\)",
        {"features": GOOD[0][:, :2]},
    ),
    "no rows": ("features is empty", {"features": np.zeros((0, 3))}),
    "not numbers": ("features must be numbers", {"features": [["a", "b", "c"]] * 6}),
    "complex numbers": ("features must be numbers", {"features": GOOD[0] + 0j}),
    "a missing feature": (
        r"features must be finite, got nan at index \(0, 0\)",
        {"features": GOOD[0] * np.nan},
    ),
    "overflowing powers": ("features must lie within", {"features": GOOD[0] * 1e80}),
    "too few rewards": (
        r"rewards must have shape \(6,\), got \(5,\)",
        {"rewards": GOOD[1][:5]},
    ),
    "an infinite reward": (
        r"rewards must be finite, got inf",
        {"rewards": np.full(6, np.inf)},
    ),
    "overflowing rewards": ("rewards must lie within", {"rewards": np.full(6, -1e71)}),
    "no offered actions": ("offered is missing", {"offered": None}),
    "offered of another length": (
        r"offered must have shape \(6, K, 3\)",
        {"offered": GOOD[2][:5]},
    ),
    "an offered NaN": ("offered must be finite", {"offered": GOOD[2] * np.nan}),
    "a window too many": (r"window must lie in 0\.\.1, got 2\.\.2", {"window": 2}),
    "a negative window": (
        r"window must lie in 0\.\.1",
        {"window": np.array([0, 0, 0, 0, 0, -1])},
    ),
    "fractional windows": ("window must be whole numbers", {"window": np.full(6, 0.5)}),
    "too few windows": (
        r"window must be an int or have shape \(6,\)",
        {"window": np.zeros(5, dtype=int)},
    ),
    "times without edges": (
        "times were given, but these moments have no edges",
        {"window": None, "times": GOOD[1]},
    ),
    "neither window nor times": ("give either window", {"window": None}),
}


@pytest.mark.parametrize(
    ("message", "change"), BAD_UPDATES.values(), ids=BAD_UPDATES.keys()
)
def test_a_bad_batch_is_named_and_changes_nothing(message, change):
    features, rewards, offered = draw_log(14, 20)
    moments = WindowedMoments.from_arrays(features, rewards, windows=2, offered=offered)
    before = deepcopy(moments)
    good = {"features": GOOD[0], "rewards": GOOD[1], "offered": GOOD[2], "window": 0}
    with pytest.raises(InputError, match=message):
        moments.update(**(good | change))
    assert moments == before
    assert moments.update(**good).rounds == 26


def test_a_missing_entry_is_named_where_the_caller_put_it():
    """Rows are sorted by window before they are summed; the message counts them as they were given."""
    features, rewards, offered = draw_log(15, 6)
    for name, array, place, index in (
        ("features", features, (4, 1), r"\(4, 1\)"),
        ("rewards", rewards, 4, r"\(4\)"),
        ("offered", offered, (4, 2, 0), r"\(4, 2, 0\)"),
    ):
        batch = {"features": features, "rewards": rewards, "offered": offered}
        broken = array.copy()
        broken[place] = np.nan
        with pytest.raises(
            InputError, match=f"{name} must be finite, got nan at index {index}"
        ):
            WindowedMoments.empty(3, 3, offered=True).update(
                **(batch | {name: broken}), window=[2, 1, 2, 0, 0, 1]
            )


def timed(**change):
    arguments = {
        "features": GOOD[0],
        "rewards": GOOD[1],
        "times": np.arange(6.0),
        "edges": [0.0, 3.0, 6.0],
    }
    return lambda: WindowedMoments.from_arrays(**(arguments | change))


DAYS = np.array(["2024-01-01", "2024-01-02"], dtype="datetime64[D]")
FEW = WindowedMoments.from_arrays(GOOD[0], GOOD[1], windows=2)
BAD_CALLS = {
    "falling edges": (
        r"edges must increase strictly .*got 3\.0 before 1\.0 at index 1",
        timed(edges=[0.0, 3.0, 1.0]),
    ),
    "repeated edges": (
        "edges must increase strictly",
        timed(edges=[0.0, 3.0, 3.0, 6.0]),
    ),
    "one edge": ("edges must be at least two times", timed(edges=[0.0])),
    "edges with NaN": ("edges must be finite", timed(edges=[0.0, np.nan, 6.0])),
    "an undefined date": (
        "edges must be finite",
        timed(edges=np.array(["2024-01-01", "NaT"], "datetime64[D]")),
    ),
    "edges of words": ("edges must be numbers or datetimes", timed(edges=["a", "b"])),
    "times outside": (
        "times must lie within the edges 0.0 to 3.0: 2 of 6 do not, the first 4",
        timed(edges=[0.0, 3.0]),
    ),
    "times with NaN": ("times must be finite", timed(times=np.full(6, np.nan))),
    "times of words": ("times must be numbers or datetimes", timed(times=["a"] * 6)),
    "too few times": (
        r"times must have shape \(6,\), got \(5,\)",
        timed(times=np.arange(5.0)),
    ),
    "dates against numbers": ("times and edges must be of one kind", timed(edges=DAYS)),
    "times without edges": ("times and edges belong together", timed(edges=None)),
    "edges and windows": ("give either windows .*or edges", timed(windows=3)),
    "more windows than rounds": (
        "windows must be at most the number of rounds, 6, got 7",
        lambda: WindowedMoments.from_arrays(GOOD[0], GOOD[1], windows=7),
    ),
    "no windows": (
        "windows must be a whole number of at least 1, got 0",
        lambda: WindowedMoments.from_arrays(GOOD[0], GOOD[1], windows=0),
    ),
    "no dimension": (
        "dim must be a whole number of at least 1",
        lambda: WindowedMoments.empty(0, 2),
    ),
    "empty of neither": (
        "either windows .* or edges",
        lambda: WindowedMoments.empty(3),
    ),
    "shards of other windows": (
        "the same windows, got 2 and 3",
        lambda: FEW + WindowedMoments.empty(3, 3),
    ),
    "shards of other features": (
        "the same dim, got 3 and 4",
        lambda: FEW + WindowedMoments.empty(4, 2),
    ),
    "shards of other edges": (
        "the same window edges",
        lambda: FEW + WindowedMoments.empty(3, edges=[0, 1, 2]),
    ),
    "shards with and without offered": (
        "either both or neither",
        lambda: FEW + WindowedMoments.empty(3, 2, offered=True),
    ),
    "coarsening to more": (
        "windows must be at most the present 2, got 3",
        lambda: FEW.coarsen(3),
    ),
    "an empty range of windows": (
        "start and stop must satisfy",
        lambda: FEW.between(1, 1),
    ),
    "a transformation of other size": (
        r"change must have shape \(3, 3\)",
        lambda: FEW.transformed(np.eye(2)),
    ),
    "a component of other size": (
        r"component must have shape \(3,\)",
        lambda: FEW.residual_after([1.0]),
    ),
}


@pytest.mark.parametrize(("message", "call"), BAD_CALLS.values(), ids=BAD_CALLS.keys())
def test_bad_arguments_are_named(message, call):
    with pytest.raises(InputError, match=message):
        call()
