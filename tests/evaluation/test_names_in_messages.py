"""Doubts about propensities name the arm and the column, not their numbers."""

import numpy as np
import pyarrow as pa
import pytest

import invariant_bandits as ib
from reading import read_feedback


def wrong_trial(rounds=6000, seed=0):
    """Doses drawn by age, with propensities that do not say so."""
    rng = np.random.default_rng(seed)
    age = rng.normal(size=rounds)
    high = rng.random(rounds) < 1.0 / (1.0 + np.exp(-1.5 * age))
    return {
        "visit": np.arange(rounds),
        "dose": np.where(high, "high", "low"),
        "age": age,
        "propensity": np.full(rounds, 0.5),
        "response": rng.normal(size=rounds) + high,
    }


def test_of_labelled_arms_the_arm_and_the_column_are_named():
    read = read_feedback(
        pa.table(wrong_trial()), {"time": "visit", "arm": "dose", "keep": ["age"]}
    )
    doubt = ib.compare(read.feedback, ["greedy"]).calibration.doubt
    assert "high × age" in doubt or "low × age" in doubt


@pytest.mark.parametrize("named", [True, False])
def test_of_feature_rows_the_column_is_named(named):
    columns = wrong_trial()
    chosen = columns["dose"] == "high"
    rows = {
        name: np.repeat(columns[name], 2)
        for name in ("visit", "age", "propensity", "response")
    }
    is_high = np.tile([True, False], len(chosen))
    rows |= {
        "round": np.repeat(np.arange(len(chosen)), 2),
        "is_high": is_high.astype(float),
    }
    rows |= {
        "chosen": is_high == np.repeat(chosen, 2),
        "high_age": is_high * rows.pop("age"),
    }
    read = read_feedback(pa.table(rows), {"time": "visit"})
    feedback = (
        read.feedback
        if named
        else ib.evaluation.Feedback.from_arrays(
            np.asarray(read.feedback.offered).reshape(len(chosen), 2, -1),
            read.feedback.actions,
            read.feedback.rewards,
            propensities=read.feedback.propensities,
        )
    )
    doubt = ib.compare(feedback, ["greedy"]).calibration.doubt
    assert ("high_age" in doubt) is named
    assert ("feature" in doubt) is not named
