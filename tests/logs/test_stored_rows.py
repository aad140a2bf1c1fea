"""Rows too many for memory are the rows that were added, in every process and for every slice."""

import errno
import gc
import io
import weakref

import numpy as np
import pytest

from invariant_bandits.logs import spill
from invariant_bandits.logs.spill import (
    RowCollector,
    StoredRows,
    collect_rows,
    expanded_rows,
)
from invariant_bandits.parallel import map_unordered
from invariant_bandits.storage import FileError
from linear_logs import SCHEMA, linear_log
from reading import read_feedback


@pytest.fixture
def little_memory(monkeypatch):
    monkeypatch.setattr(spill, "IN_MEMORY", 40)
    monkeypatch.setattr(spill, "AT_ONCE", 12)


def batches_of(rows, rng):
    cuts = np.sort(rng.integers(0, len(rows) + 1, size=7))
    return np.split(rows, cuts)


@pytest.mark.parametrize("shape", [(200, 3), (200,)])
def test_many_rows_go_to_a_file_and_come_back_to_the_bit(little_memory, shape):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=shape)
    stored = collect_rows(batches_of(rows, rng))
    assert isinstance(stored, StoredRows)
    assert stored.shape == rows.shape
    np.testing.assert_array_equal(np.asarray(stored), rows)
    for start, stop in rng.integers(0, 201, size=(50, 2)):
        np.testing.assert_array_equal(stored[start:stop], rows[start:stop])
    np.testing.assert_array_equal(stored.between(30, 170)[5:-7], rows[30:170][5:-7])


def test_few_rows_stay_in_memory(little_memory):
    rows = np.arange(39.0).reshape(13, 3)
    assert isinstance(collect_rows([rows[:4], rows[4:]]), np.ndarray)
    np.testing.assert_array_equal(collect_rows([rows[:4], rows[4:]]), rows)


@pytest.mark.parametrize("after", [5, 60])
def test_rows_that_are_dropped_are_the_first_ones(little_memory, after):
    """Whether they are still in memory (after 5 rows) or in the file already (60)."""
    rows = np.arange(300.0).reshape(100, 3)
    collector = RowCollector()
    for row in rows[:after]:
        collector.append(row[None])
    collector.drop(4)
    for row in rows[after:]:
        collector.append(row[None])
    np.testing.assert_array_equal(np.asarray(collector.rows()), rows[4:])


def test_changes_follow_each_other_as_rows_are_read(little_memory):
    rows = np.random.default_rng(1).normal(size=(100, 3))
    changed = (
        collect_rows([rows])
        .mapped(lambda part: part[:, [2, 0]])
        .between(10, 90)
        .mapped(lambda part: 2.0 * part)
    )
    assert changed.shape == (80, 2)
    np.testing.assert_array_equal(changed[20:30], 2.0 * rows[30:40, [2, 0]])


@pytest.mark.system
def test_forked_processes_read_side_by_side(little_memory):
    rows = np.random.default_rng(3).normal(size=(400, 2))
    stored = collect_rows([rows])
    sums = dict(
        map_unordered(
            lambda k: sum(stored[i : i + 3].sum() for i in range(k, 400, 3)),
            [0, 1, 2, 3],
            jobs=2,
        )
    )
    for k in range(4):
        assert sums[k] == sum(rows[i : i + 3].sum() for i in range(k, 400, 3))


def test_the_file_is_gone_with_the_rows(little_memory, tmp_path, monkeypatch):
    monkeypatch.setattr(spill.tempfile, "tempdir", str(tmp_path))
    stored = collect_rows([np.ones((100, 3))])
    mapped = weakref.ref(stored.mapped_file)
    assert not list(tmp_path.iterdir())
    del stored
    gc.collect()
    assert mapped() is None


def test_a_full_disk_is_said_in_one_line(little_memory, monkeypatch):
    class FullFile(io.BytesIO):
        def write(self, content):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(spill.tempfile, "TemporaryFile", FullFile)
    with pytest.raises(FileError, match=r"No space left on device.*TMPDIR.*latest"):
        collect_rows([np.ones((100, 3))])


@pytest.mark.parametrize("in_memory", [40, 2**24])
def test_features_of_arms_are_stored_as_contexts(monkeypatch, in_memory):
    """Every arm has own slopes, so that features would take as many times more as there are arms."""
    log = linear_log(0, rounds=60, arms=4, columns=3).log
    expected = np.asarray(read_feedback(log, SCHEMA).feedback.offered)
    monkeypatch.setattr(spill, "IN_MEMORY", in_memory)
    offered = read_feedback(log, SCHEMA).feedback.offered
    np.testing.assert_array_equal(np.asarray(offered), expected)
    np.testing.assert_array_equal(offered[7:90], expected[7:90])
    if in_memory == 40:
        # The level, three columns and the position of the arm.
        assert offered.raw.shape[1] == 1 + 3 + 1


def test_rows_that_become_large_when_they_are_read_are_changed_slice_by_slice(
    little_memory,
):
    rows = np.arange(30.0).reshape(15, 2)
    stored = expanded_rows(rows, lambda part: np.tile(part, (1, 5)), width=10)
    assert isinstance(stored, StoredRows)
    assert stored.shape == (15, 10)
    np.testing.assert_array_equal(stored[3:8], np.tile(rows[3:8], (1, 5)))
    few = expanded_rows(rows, lambda part: part + 1.0, width=2)
    np.testing.assert_array_equal(few, rows + 1.0)
    assert isinstance(few, np.ndarray)
