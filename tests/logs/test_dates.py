"""Times as people write them become the same windows as timestamps."""

import numpy as np
import pandas as pd
import pytest

import invariant_bandits as ib
from invariant_bandits.logs.decode import since_1970
from reading import read_moments
from worlds import assert_same_moments

RNG = np.random.default_rng(17)
N = 600
TIMES = np.datetime64("2024-02-27T03:00:00", "us") + np.sort(
    RNG.integers(0, 40 * 86400, N)
).astype("timedelta64[s]")
FRAME = pd.DataFrame(
    {"ts": TIMES, "reward": RNG.normal(size=N), "x": RNG.normal(size=N)}
)
WEEKS = read_moments(FRAME, every="1w").moments
UNITS = {"s": 1_000_000, "ms": 1000, "us": 1, "ns": 0.001}


def text_log(path, times):
    FRAME.assign(ts=times).to_csv(path, index=False, float_format="%.17g")
    return path


def assert_weeks(source, schema=None):
    log = ib.open_log(source, schema)
    assert log.schema.time == "ts"
    assert_same_moments(read_moments(log, every="1w").moments, WEEKS)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("kind", ["int", "float", "csv"])
def test_numbers_since_1970_are_times(unit, kind, tmp_path):
    numbers = (
        TIMES.astype("datetime64[ns]").astype(np.int64)
        // {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}[unit]
    )
    frame = FRAME.assign(ts=numbers.astype(float) if kind == "float" else numbers)
    assert_weeks(text_log(tmp_path / "log.csv", numbers) if kind == "csv" else frame)


def test_small_numbers_stay_numbers():
    log = ib.open_log(FRAME.assign(ts=np.arange(N)))
    assert not log.times_are_dates
    assert read_moments(log, every=200).moments.windows == 3


@pytest.mark.parametrize(
    "form",
    [
        "%d/%m/%Y %H:%M:%S",
        "%d.%m.%Y %H:%M:%S",
        "%d-%m-%Y %H:%M:%S",
        "%m/%d/%Y %H:%M:%S",
        "%m/%d/%Y %I:%M:%S %p",
        "%d/%m/%y %H:%M:%S",
        "%Y/%m/%d %H:%M:%S",
        "%d/%m/%Y, %H:%M:%S",
    ],
)
def test_the_order_of_day_and_month_is_recognised_where_some_day_tells(form, tmp_path):
    assert_weeks(text_log(tmp_path / "log.csv", FRAME["ts"].dt.strftime(form)))
    assert_weeks(FRAME.assign(ts=FRAME["ts"].dt.strftime(form)))


def span_of(log):
    times = log.survey(times=True).times
    return times.first, times.last


def test_a_day_above_twelve_is_found_far_behind_the_sample(tmp_path):
    """The first thousand rows are of days that may be months."""
    times = np.concatenate(
        [np.repeat(np.datetime64("2024-01-03"), 3000), [np.datetime64("2024-01-25")]]
    )
    log = pd.DataFrame(
        {
            "date": pd.Series(times).dt.strftime("%d/%m/%Y"),
            "reward": 1.0,
            "x": np.arange(3001.0) % 7,
        }
    )
    log.to_csv(tmp_path / "log.csv", index=False)
    assert span_of(ib.open_log(tmp_path / "log.csv")) == (times[0], times[-1])


def test_ambiguous_dates_are_asked_for_and_not_guessed(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(
        "date,reward,x\n"
        + "".join(f"0{1 + i % 9}/04/2024,{i % 2},{i % 5}\n" for i in range(60))
    )
    with pytest.raises(
        ib.InputError,
        match=r"such as 01/04/2024 may begin with the day or the month.*--day-first",
    ):
        ib.open_log(path)
    spans = [
        span_of(ib.open_log(path, {"day_first": first})) for first in (True, False)
    ]
    assert spans[0] == (np.datetime64("2024-04-01"), np.datetime64("2024-04-09"))
    assert spans[1] == (np.datetime64("2024-01-04"), np.datetime64("2024-09-04"))


def test_values_of_another_form_cost_their_row(tmp_path):
    times = FRAME["ts"].dt.strftime("%d/%m/%Y %H:%M").copy()
    times.iloc[[5, 9]] = ["soon", "45/01/2024 10:00"]
    read = read_moments(text_log(tmp_path / "log.csv", times), every="1w")
    assert read.quality.rounds == N - 2


def test_numbers_since_1970_that_are_no_numbers_are_missing():
    import pyarrow as pa

    found = since_1970(
        "s", pa.array(["1700000000.5", "soon", None, "1e300"])
    ).to_pylist()
    assert found[0] == pd.Timestamp("2023-11-14 22:13:20.5")
    assert found[1:] == [None, None, None]
