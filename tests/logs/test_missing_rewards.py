"""Rewards that some contexts lack more often are named; a log with few rewards can update a model."""

import numpy as np
import pyarrow as pa
import pytest

import invariant_bandits as ib
from invariant_bandits import InputError


def thumbs(seed, share, rounds=6000):
    """Requests of two tasks; users rate a share of them, which depends on the task."""
    rng = np.random.default_rng(seed)
    task = rng.choice(["chat", "code"], rounds)
    model = rng.choice(["small", "large"], rounds)
    tokens = rng.normal(size=rounds)
    thumb = (rng.random(rounds) < np.where(model == "large", 0.6, 0.4)).astype(float)
    rated = rng.random(rounds) < np.where(task == "code", share["code"], share["chat"])
    table = {
        "task": task,
        "tokens": tokens,
        "model": model,
        "thumb": np.where(rated, thumb, np.nan),
    }
    table["thumb"] = pa.array(table["thumb"], from_pandas=True)
    return pa.table(table)


ROLES = {"reward": "thumb", "arm": "model"}


def test_contexts_whose_rewards_are_missing_more_often_are_named():
    model = ib.fit_logs(thumbs(0, {"code": 0.9, "chat": 0.6}), ROLES)
    note = next(note for note in model.notes if "missing" in note)
    assert "more often where task = chat" in note
    assert "tokens" not in note
    assert "rounds with a reward" in note


def test_rewards_that_are_missing_by_chance_are_not_blamed_on_a_column():
    """A false sentence in one of 20 logs has probability 0.002."""
    for seed in range(20):
        model = ib.fit_logs(thumbs(seed, {"code": 0.7, "chat": 0.7}), ROLES)
        assert not [note for note in model.notes if "rewards are missing" in note]


def test_a_model_can_be_updated_with_a_log_most_of_whose_rewards_are_missing():
    few = {"code": 0.3, "chat": 0.3}
    model = ib.fit_logs(thumbs(1, few), ROLES, keep_going=True)
    with pytest.raises(InputError, match="keep_going=True"):
        ib.update_model(model, thumbs(2, few))
    update = ib.update_model(model, thumbs(2, few), keep_going=True)
    assert update.model.moments.rounds == model.moments.rounds + update.new.rounds
