"""What is no number is refused in one line, wherever it comes in; settings beyond all floats, too."""

import datetime
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import invariant_bandits as ib
from invariant_bandits.checks import finite_array, whole_number, whole_seed

HUGE = 10**400
LOGGED = np.random.default_rng(0).normal(size=(60, 2))
NO_NUMBERS = {
    "masked": np.ma.array([1.0, 2.0], mask=[False, True]),
    "masked, nothing hidden": np.ma.array([1.0, 2.0]),
    "date": np.array(["2024-01-01", "2024-01-02"], dtype="datetime64[D]"),
    "duration": np.array([1, 2], dtype="timedelta64[s]"),
    "complex": np.array([1j, 2.0]),
    "text": ["1.0", "2.0"],
    "bytes": [b"1", b"2"],
    "objects": np.array([1.0, 2.0], dtype=object),
    "moments in time": [datetime.datetime(2024, 1, 1)] * 2,
    "nothing": [None, 1.0],
    "beyond all floats": [HUGE, 1.0],
    "record": np.zeros(2, dtype=[("a", "f8")]),
    "ragged": [[1.0], [1.0, 2.0]],
    "long double": np.array([1.0, 2.0], dtype=np.longdouble) * np.longdouble(10) ** 400,
}


@pytest.mark.parametrize("value", NO_NUMBERS.values(), ids=NO_NUMBERS)
def test_an_array_of_anything_else_than_numbers_is_refused_in_one_line(value):
    with pytest.raises(
        ib.InputError, match=r"features must be (numbers of shape|finite)"
    ) as refusal:
        finite_array("features", value, (2,))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "value", [[True, 2], [np.float16(1), 2], [Decimal(1), Fraction(4, 2)], (1, 2)]
)
def test_numbers_of_every_kind_are_taken(value):
    np.testing.assert_array_equal(finite_array("features", value, (2,)), [1.0, 2.0])
    assert finite_array("reward", 10**30, ()) == 1e30


def test_masks_are_found_in_lists_of_rows_and_of_rounds():
    row = np.ma.array([1.0, 2.0])
    for value, shape in (
        ([row, row], (2, 2)),
        ([[row], [row]], (2, 1, 2)),
        ([[1.0, 2.0], row], (2, 2)),
    ):
        with pytest.raises(ib.InputError, match="masked entries have no value"):
            finite_array("features", value, shape)


SETTINGS = {
    "dim": lambda value: ib.LinUCB(value),
    "ridge": lambda value: ib.LinUCB(2, ridge=value),
    "delta": lambda value: ib.LinUCB(2, delta=value),
    "exploration": lambda value: ib.LinUCB(2, exploration=value),
    "window": lambda value: ib.SWLinUCB(2, window=value),
    "every": lambda value: ib.RestartLinUCB(2, every=value),
    "discount": lambda value: ib.DLinUCB(2, discount=value),
    "seed": lambda value: ib.LinTS(2, seed=value),
    "epsilon": lambda value: ib.EpsilonGreedy(2, epsilon=value),
    "floor": lambda value: ib.Randomised(ib.LinUCB(2), floor=value),
    "kind": lambda value: ib.Randomised(ib.LinUCB(2), kind=value),
    "arms": lambda value: ib.DisjointLinUCB(2, value),
    "action": lambda value: ib.DisjointLinUCB(2, 2).update(
        [1.0, 1.0], 1.0, action=value
    ),
    "windows": lambda value: ib.WindowedMoments.from_arrays(
        LOGGED, LOGGED[:, 0], windows=value
    ),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_beyond_all_floats_and_arrays_as_settings_are_refused_by_name(name):
    for value in (HUGE, np.zeros(2), np.ones(2)):
        with pytest.raises(ib.InputError, match=name) as refusal:
            SETTINGS[name](value)
        assert len(str(refusal.value)) < 250


def test_seeds_may_be_as_large_as_numpy_makes_them_and_sizes_as_memory_counts():
    assert whole_seed(2**127) == 2**127
    assert whole_number("window", 2**63 - 1, 1) == 2**63 - 1
    for call in (
        lambda: whole_seed(2**128),
        lambda: whole_number("window", 2**63, 1),
        lambda: whole_seed(-1),
    ):
        with pytest.raises(ib.InputError):
            call()


@pytest.mark.parametrize(
    "value",
    [
        HUGE,
        np.datetime64("2024-01-01"),
        datetime.datetime(2024, 1, 1),
        1j,
        np.ma.masked,
    ],
)
def test_a_model_refuses_such_values_by_the_name_of_their_column(value):
    table = pa.table(
        {"reward": LOGGED[:, 0], "price": LOGGED[:, 0] + 3.0, "hour": LOGGED[:, 1]}
    )
    model = ib.fit_logs(table, policy="linucb", windows=2)
    before = model.to_bytes()
    for call in (
        lambda: model.decide({"hour": value}, [{"price": 1.0}, {"price": 2.0}]),
        lambda: model.select({"hour": [1.0, value], "price": [1.0, 2.0]}),
        lambda: model.update({"hour": value, "price": [1.0, 2.0]}, 0, 1.0),
    ):
        with pytest.raises(ib.InputError, match="hour"):
            call()
    assert model.to_bytes() == before
