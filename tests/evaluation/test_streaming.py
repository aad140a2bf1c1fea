"""Rounds in a file are evaluated like rounds in memory: what is added up is rounded otherwise, nothing else
differs.
"""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import invariant_bandits as ib
from invariant_bandits.evaluation.estimators import played_rows, replayed_rounds
from invariant_bandits.evaluation.propensities import estimate_propensities
from invariant_bandits.logs import spill
from invariant_bandits.logs.spill import StoredRows, collect_rows
from reading import read_feedback

POLICIES = ["auto-isd", "isd-linucb", "linucb-cold", "linucb-warm", "frozen", "uniform"]


@pytest.fixture
def little_memory(monkeypatch):
    """A part holds about 20 rounds."""
    monkeypatch.setattr(spill, "IN_MEMORY", 1000)
    monkeypatch.setattr(spill, "AT_ONCE", 300)


def rounds(propensities, n=1500, seed=0):
    """Ragged rounds whose logging prefers the first feature."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(2, 7, size=n)
    starts = np.cumsum(counts) - counts
    offered = rng.normal(size=(counts.sum(), 3))
    chances = np.exp(0.7 * offered[:, 0])
    chances /= np.repeat(np.add.reduceat(chances, starts), counts)
    uniform = np.repeat(rng.random(n), counts)
    below = np.cumsum(chances) - np.repeat(
        np.cumsum(chances)[starts] - chances[starts], counts
    )
    actions = np.minimum(
        np.add.reduceat(below < uniform, starts, dtype=np.int64), counts - 1
    )
    every = offered @ [1.0, -1.0, 0.5] + rng.normal(size=len(offered))
    given = {"logged": chances[starts + actions], "all": chances, "none": None}
    rewards = every[starts + actions]
    if propensities == "full":
        return ib.evaluation.Feedback.from_full_information(
            offered, every, counts=counts, seed=1
        )
    return ib.evaluation.Feedback.from_arrays(
        offered, actions, rewards, counts=counts, propensities=given[propensities]
    )


def stored(feedback):
    """The same rounds, all that has a value per offered action in files."""
    names = ("offered", "offered_propensities", "offered_rewards")
    changes = {
        name: collect_rows([getattr(feedback, name)])
        for name in names
        if getattr(feedback, name) is not None
    }
    assert all(isinstance(rows, StoredRows) for rows in changes.values())
    return replace(feedback, **changes)


@pytest.mark.parametrize("propensities", ["logged", "all", "estimated", "full"])
def test_every_estimate_is_that_of_rounds_in_memory(monkeypatch, propensities):
    feedback = rounds("none" if propensities == "estimated" else propensities)
    if propensities == "estimated":
        feedback = feedback.with_propensities(estimate_propensities(feedback))
    expected = ib.compare(feedback, POLICIES, windows=4, with_direct=True)
    monkeypatch.setattr(spill, "IN_MEMORY", 1000)
    monkeypatch.setattr(spill, "AT_ONCE", 300)
    result = ib.compare(stored(feedback), POLICIES, windows=4, with_direct=True)
    assert len(expected.rows()) == len(result.rows()) > 0
    for row, other in zip(expected.rows(), result.rows(), strict=True):
        for name in ("value", "low", "high", "standard_error", "effective_sample"):
            where = (row["policy"], row["estimator"], name)
            assert other[name] == pytest.approx(row[name], rel=1e-9, abs=1e-9), where
    assert result.agreement == pytest.approx(expected.agreement)
    if expected.calibration is not None:
        for check, other in zip(
            expected.calibration.checks, result.calibration.checks, strict=True
        ):
            assert check.name == other.name
            assert (
                check.expected,
                check.observed,
                check.standard_error,
            ) == pytest.approx(
                (other.expected, other.observed, other.standard_error),
                rel=1e-9,
                abs=1e-9,
            )


def test_parts_are_whole_rounds_in_order(little_memory):
    feedback = stored(rounds("all"))
    parts = list(feedback.parts())
    assert len(parts) > 50
    assert all(
        isinstance(part.offered, np.ndarray) and part.offered.size <= 300
        for part in parts
    )
    np.testing.assert_array_equal(
        np.concatenate([part.offered for part in parts]), np.asarray(feedback.offered)
    )
    np.testing.assert_array_equal(
        np.concatenate([part.rewards for part in parts]), feedback.rewards
    )
    shares = np.concatenate([part.offered_propensities for part in parts])
    np.testing.assert_array_equal(shares, np.asarray(feedback.offered_propensities))


def test_a_round_larger_than_a_part_is_a_part(little_memory):
    offered = np.random.default_rng(0).normal(size=(5, 200, 3))
    feedback = stored(ib.evaluation.Feedback.from_arrays(offered, [0] * 5, [0.0] * 5))
    assert [part.rounds for part in feedback.parts()] == [1] * 5


def test_choices_do_not_depend_on_where_the_rounds_are(monkeypatch):
    """Policies are the same, to the bit: so are the rounds they accept and the rows they play."""
    log, full = rounds("logged"), rounds("full")
    accepted = replayed_rounds(ib.LinUCB(3), log, seed=3)
    played = played_rows(ib.LinUCB(3), full)
    monkeypatch.setattr(spill, "IN_MEMORY", 1000)
    monkeypatch.setattr(spill, "AT_ONCE", 300)
    np.testing.assert_array_equal(
        replayed_rounds(ib.LinUCB(3), stored(log), seed=3), accepted
    )
    np.testing.assert_array_equal(played_rows(ib.LinUCB(3), stored(full)), played)


def test_estimated_propensities_are_those_of_rounds_in_memory(monkeypatch):
    log = rounds("none")
    expected = estimate_propensities(log)
    monkeypatch.setattr(spill, "IN_MEMORY", 1000)
    monkeypatch.setattr(spill, "AT_ONCE", 300)
    np.testing.assert_allclose(
        np.asarray(estimate_propensities(stored(log))), expected, rtol=1e-3
    )
    monkeypatch.setattr(
        "invariant_bandits.evaluation.propensities.CURVATURE_PARTS", 10_000
    )
    every_part = estimate_propensities(stored(log))
    np.testing.assert_allclose(np.asarray(every_part), expected, rtol=1e-8)


def table(feedback, order):
    """A log with one row per round, its rounds in this order."""
    lists = np.split(np.asarray(feedback.offered), feedback.starts[1:-1])
    columns = {
        "time": order.astype(float),
        "action": feedback.actions[order],
        "reward": feedback.rewards[order],
        "propensity": feedback.propensities[order],
        "offered": [lists[t].tolist() for t in order],
    }
    return pa.table(columns)


@pytest.mark.parametrize("latest", [None, 400])
@pytest.mark.parametrize("sorted_by_time", [True, False])
def test_a_log_that_is_read_into_a_file_is_the_log(monkeypatch, latest, sorted_by_time):
    order = (
        np.arange(1500)
        if sorted_by_time
        else np.random.default_rng(5).permutation(1500)
    )
    log = table(rounds("logged"), order)
    log = pa.concat_tables(
        log.slice(start, 97) for start in range(0, log.num_rows, 97)
    )  # many batches
    expected = read_feedback(log, latest=latest, windows=4)
    monkeypatch.setattr(spill, "IN_MEMORY", 1000)
    monkeypatch.setattr(spill, "AT_ONCE", 300)
    found = read_feedback(log, latest=latest, windows=4)
    assert isinstance(expected.feedback.offered, np.ndarray)
    assert isinstance(found.feedback.offered, StoredRows)
    assert found.notes == expected.notes
    for name in ("counts", "actions", "rewards", "times", "propensities"):
        np.testing.assert_array_equal(
            getattr(found.feedback, name), getattr(expected.feedback, name)
        )
    np.testing.assert_allclose(
        np.asarray(found.feedback.offered), expected.feedback.offered, rtol=1e-12
    )


def test_the_price_of_a_sample_is_said():
    notes = read_feedback(
        table(rounds("logged"), np.arange(1500)), latest=375, windows=4
    ).notes
    assert (
        "only the last 375 of 1,500 rounds were taken: intervals are about 2 times as wide"
        in notes[0]
    )


def test_contributions_of_many_rounds_are_let_go():
    log = rounds("logged")
    expected = ib.compare(log, ["linucb-cold", "frozen"], windows=4)
    result = ib.compare(log, ["linucb-cold", "frozen"], windows=4, keep_rounds=100)
    assert result.rows() == expected.rows()
    assert all(line.value.contributions is not None for line in expected.lines)
    assert all(line.value.contributions is None for line in result.lines)
    with pytest.raises(ValueError, match="rounds are kept"):
        result.lines[0].value.minus(result.logged)


def test_uniform_propensities_of_stored_rounds(little_memory):
    log = stored(rounds("none")).with_uniform_propensities()
    assert isinstance(log.offered_propensities, StoredRows)
    np.testing.assert_array_equal(log.propensities, 1.0 / log.counts)
