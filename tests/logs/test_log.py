"""Log: opened and surveyed once, whatever is asked of it and in which order; the answers are those of the
source.
"""

from collections import Counter
from itertools import permutations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

import invariant_bandits as ib
from invariant_bandits.logs.formats.columnar import ParquetSource
from invariant_bandits.logs.formats.delimited import CsvSource
from invariant_bandits.logs.formats.registry import FORMATS, register_log_format
from invariant_bandits.logs.scan import read_feature_map
from invariant_bandits.logs.spill import SpooledSource
from log_tables import lists_of_offered, planted_log, rows_per_action, wide
from reading import read_feedback, read_moments, read_rounds, read_schema

LOG = planted_log(seed=9, rounds=500)
KINDS = pa.array(np.random.default_rng(0).choice(["red", "green"], len(LOG.offered)))
LABELLED = rows_per_action(LOG).append_column("kind", KINDS)
EVERYTHING = tuple(LABELLED.column_names)
WITH_TIMES = ("round_id", "chosen", "kind", "time")


@pytest.fixture(params=[ParquetSource, CsvSource], ids=["Parquet", "CSV"])
def counted(request, tmp_path):
    """Files of one row per action in a format that counts what is done: "opened", and the columns of
    every pass.
    """
    done = Counter()

    @register_log_format("counted", suffixes=(".counted",))
    class CountedSource(request.param):
        def __post_init__(self):
            super().__post_init__()
            done["opened"] += 1

        def batches(self, task, columns):
            if task == self.tasks[0]:
                done[tuple(columns)] += 1
            return super().batches(task, columns)

    write = csv.write_csv if request.param is CsvSource else pq.write_table
    middle = int(LOG.starts[250])
    write(LABELLED.slice(0, middle), tmp_path / "0.counted")
    write(LABELLED.slice(middle), tmp_path / "1.counted")
    yield tmp_path, done
    FORMATS.remove("counted")


def test_moments_and_feedback_open_and_survey_a_log_once(counted):
    folder, done = counted
    log = ib.open_log(folder)
    moments = read_moments(log)
    feedback = read_feedback(log)
    used = log.schema.used_columns
    assert moments.quality.rounds == feedback.feedback.rounds == 500
    is_text = isinstance(
        log.source, SpooledSource
    )  # text is parsed once, typed columns are read each time
    passes = {used: 1} if is_text else {WITH_TIMES: 1, used: 2}
    assert done == {"opened": 1, EVERYTHING: 1, **passes}


def test_a_model_is_fitted_without_opening_the_log_again(counted):
    folder, done = counted
    log = ib.open_log(folder)
    assert ib.fit_logs(log, windows=4).moments.rounds == 500
    assert ib.fit_logs(log, windows=3).moments.windows == 3
    surveyed = done[
        log.schema.used_columns if isinstance(log.source, SpooledSource) else WITH_TIMES
    ]
    assert (done["opened"], done[EVERYTHING], surveyed) == (1, 1, 1)


def test_a_question_that_needs_more_reads_only_what_is_missing(counted):
    folder, done = counted
    log = ib.open_log(folder)
    read_feature_map(log)
    surveyed = (
        log.schema.used_columns if isinstance(log.source, SpooledSource) else WITH_TIMES
    )
    assert done[surveyed] == 1
    for _ in range(2):
        read_moments(log, every="1d")
        read_moments(log, windows=3)
        next(read_rounds(log))
    assert (done[WITH_TIMES] <= 1, done["time",]) == (True, 0)


def test_rows_are_counted_once_where_nothing_else_needs_a_pass(tmp_path):
    csv.write_csv(wide(LOG), tmp_path / "log.csv")
    log = ib.open_log(tmp_path / "log.csv")
    assert log.survey().total_rows is None
    assert log.survey(rows=True).total_rows == 500
    assert log.survey() is log.survey(rows=True)


QUESTIONS = {
    "windows": lambda source: read_moments(source, windows=3).moments,
    "calendar": lambda source: read_moments(source, every="2d").moments,
    "edges": lambda source: (
        read_moments(source, edges=["2024-01-01", "2024-01-04", "2024-01-08"]).moments
    ),
    "rounds": lambda source: [batch.features.tolist() for batch in read_rounds(source)],
    "schema": read_schema,
}


def written(table, path):
    csv.write_csv(table, path)
    return path


@pytest.mark.parametrize("form", [wide, rows_per_action, lists_of_offered])
def test_an_open_log_answers_like_its_source_in_any_order(form, tmp_path):
    table = form(LOG)
    source = table if form is lists_of_offered else written(table, tmp_path / "log.csv")
    expected = {name: ask(source) for name, ask in QUESTIONS.items()}
    for order in list(permutations(QUESTIONS))[::17]:
        log = ib.open_log(source)
        assert all(QUESTIONS[name](log) == expected[name] for name in order)


def test_an_open_log_keeps_its_schema():
    log = ib.open_log(wide(LOG), {"features": ["x0", "x2"]})
    assert log.schema == ib.Schema("reward", ("x0", "x2"), time="time")
    assert ib.open_log(log) is log
    assert ib.open_log(log, log.schema) is log
    assert ib.open_log(log, {"features": ["x0", "x2"]}) is log
    for other in ({"features": ["x1"]}, {}, ib.Schema("reward", ("x*",))):
        with pytest.raises(ib.InputError, match="schema must be None or the same"):
            read_moments(log, other)


def test_the_first_rows_are_kept_without_the_batch_they_came_from():
    log = ib.open_log(
        pa.table({"reward": np.arange(50_000.0), "x": np.arange(50_000.0) % 7.5})
    )
    assert log.sample.num_rows == 1000
    assert log.sample.get_total_buffer_size() < 20_000


def test_columns_are_named_when_a_log_is_opened_not_when_it_is_read():
    table = wide(LOG)
    assert ib.open_log(table, features=["x0"]).moments().feature_map.names == ("x0",)
    for ask in (
        ib.open_log(table).moments,
        ib.open_log(lists_of_offered(LOG)).feedback,
    ):
        with pytest.raises(
            ib.InputError, match="columns are named when a log is opened"
        ):
            ask(features=["x0"])
