"""Rounds in a file are evaluated like rounds in memory: what is added up is rounded otherwise, nothing else differs."""

from dataclasses import replace

import numpy as np
import pytest

import invariant_bandits as ib
from invariant_bandits.evaluation.playing import played_rows, replayed_rounds
from invariant_bandits.evaluation.propensities import estimate_propensities
from invariant_bandits.logs import stored_rows
from invariant_bandits.logs.stored_rows import StoredRows, collected

POLICIES = ["auto-isd", "isd-linucb", "linucb-cold", "linucb-warm", "frozen", "uniform"]


@pytest.fixture
def little_memory(monkeypatch):
    """A part holds about 20 rounds."""
    monkeypatch.setattr(stored_rows, "IN_MEMORY", 1000)
    monkeypatch.setattr(stored_rows, "AT_ONCE", 300)


def rounds(propensities, n=1500, seed=0):
    """Ragged rounds whose logging prefers the first feature."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(2, 7, size=n)
    starts = np.cumsum(counts) - counts
    offered = rng.normal(size=(counts.sum(), 3))
    chances = np.exp(0.7 * offered[:, 0])
    chances /= np.repeat(np.add.reduceat(chances, starts), counts)
    uniform = np.repeat(rng.random(n), counts)
    below = np.cumsum(chances) - np.repeat(np.cumsum(chances)[starts] - chances[starts], counts)
    actions = np.minimum(np.add.reduceat(below < uniform, starts, dtype=np.int64), counts - 1)
    every = offered @ [1.0, -1.0, 0.5] + rng.normal(size=len(offered))
    given = {"logged": chances[starts + actions], "all": chances, "none": None}
    rewards = every[starts + actions]
    if propensities == "full":
        return ib.Feedback.from_full_information(offered, every, counts=counts, seed=1)
    return ib.Feedback.from_arrays(offered, actions, rewards, counts=counts, propensities=given[propensities])


def stored(feedback):
    """The same rounds, all that has a value per offered action in files."""
    names = ("offered", "offered_propensities", "offered_rewards")
    changes = {name: collected([getattr(feedback, name)]) for name in names if getattr(feedback, name) is not None}
    assert all(isinstance(rows, StoredRows) for rows in changes.values())
    return replace(feedback, **changes)


@pytest.mark.parametrize("propensities", ["logged", "all", "none", "full"])
def test_every_estimate_is_that_of_rounds_in_memory(monkeypatch, propensities):
    feedback = rounds(propensities)
    options = {"windows": 4, "with_direct": True, "propensities": "estimated" if propensities == "none" else "logged"}
    expected = ib.compare(feedback, POLICIES, **options)
    monkeypatch.setattr(stored_rows, "IN_MEMORY", 1000)
    monkeypatch.setattr(stored_rows, "AT_ONCE", 300)
    found = ib.compare(stored(feedback), POLICIES, **options)
    assert len(expected.rows()) == len(found.rows()) > 0
    for one, other in zip(expected.rows(), found.rows(), strict=True):
        for name in ("value", "low", "high", "standard_error", "effective_sample"):
            assert other[name] == pytest.approx(one[name], rel=1e-9, abs=1e-9), (one["policy"], one["estimator"], name)
    assert found.agreement == pytest.approx(expected.agreement)
    if expected.calibration is not None:
        for one, other in zip(expected.calibration.checks, found.calibration.checks, strict=True):
            assert one.name == other.name
            assert (one.expected, one.observed, one.standard_error) == pytest.approx(
                (other.expected, other.observed, other.standard_error), rel=1e-9, abs=1e-9
            )


def test_parts_are_whole_rounds_in_order(little_memory):
    feedback = stored(rounds("all"))
    parts = list(feedback.parts())
    assert len(parts) > 50
    assert all(isinstance(part.offered, np.ndarray) and part.offered.size <= 300 for part in parts)
    np.testing.assert_array_equal(np.concatenate([part.offered for part in parts]), np.asarray(feedback.offered))
    np.testing.assert_array_equal(np.concatenate([part.rewards for part in parts]), feedback.rewards)
    shares = np.concatenate([part.offered_propensities for part in parts])
    np.testing.assert_array_equal(shares, np.asarray(feedback.offered_propensities))


def test_a_round_larger_than_a_part_is_a_part(little_memory):
    offered = np.random.default_rng(0).normal(size=(5, 200, 3))
    feedback = stored(ib.Feedback.from_arrays(offered, [0] * 5, [0.0] * 5))
    assert [part.rounds for part in feedback.parts()] == [1] * 5


def test_choices_do_not_depend_on_where_the_rounds_are(monkeypatch):
    """Policies are the same, to the bit: so are the rounds they accept and the rows they play."""
    log, full = rounds("logged"), rounds("full")
    accepted = replayed_rounds(ib.LinUCB(3), log, seed=3)
    played = played_rows(ib.LinUCB(3), full)
    monkeypatch.setattr(stored_rows, "IN_MEMORY", 1000)
    monkeypatch.setattr(stored_rows, "AT_ONCE", 300)
    np.testing.assert_array_equal(replayed_rounds(ib.LinUCB(3), stored(log), seed=3), accepted)
    np.testing.assert_array_equal(played_rows(ib.LinUCB(3), stored(full)), played)


def test_estimated_propensities_are_those_of_rounds_in_memory(monkeypatch):
    log = rounds("none")
    expected = estimate_propensities(log)
    monkeypatch.setattr(stored_rows, "IN_MEMORY", 1000)
    monkeypatch.setattr(stored_rows, "AT_ONCE", 300)
    np.testing.assert_allclose(np.asarray(estimate_propensities(stored(log))), expected, rtol=1e-8)


def test_uniform_propensities_of_stored_rounds(little_memory):
    log = stored(rounds("none")).with_uniform_propensities()
    assert isinstance(log.offered_propensities, StoredRows)
    np.testing.assert_array_equal(log.propensities, 1.0 / log.counts)
