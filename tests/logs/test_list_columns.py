"""Columns of lists beside other columns, and the table of roles, which has every column of the log."""

import numpy as np
import pyarrow as pa
import pytest

import invariant_bandits as ib
from invariant_bandits.logs.log import open_log
from invariant_bandits.reports import values

COLUMNS = (
    "time",
    "model",
    "embedding",
    "task",
    "tokens_in",
    "user_id",
    "tags",
    "reward",
)


@pytest.fixture(scope="module")
def log():
    """Model a is better for code, b where the first number of the embedding is large, a for many tokens."""
    rng = np.random.default_rng(0)
    n = 3000
    embedding, tokens = rng.normal(size=(n, 3)), rng.exponential(size=n)
    task, arm = rng.choice(["code", "chat"], n), rng.choice(["a", "b"], n)
    worth = np.where(arm == "a", 2.0 * (task == "code") + tokens, 3.0 * embedding[:, 0])
    columns = [
        np.arange(n),
        arm,
        embedding.tolist(),
        task,
        tokens,
        rng.integers(2000, size=n),
        [list(range(length)) for length in rng.integers(1, 5, size=n)],
        worth + rng.normal(size=n),
    ]
    return pa.table(dict(zip(COLUMNS, columns, strict=True)))


def test_lists_numbers_and_text_are_features_together(log):
    model = ib.fit_logs(log, {"arm": "model"})
    assert model.feature_map.context_names[1:4] == (
        "embedding[0]",
        "embedding[1]",
        "embedding[2]",
    )
    assert {"task=chat", "tokens_in"} <= set(model.feature_map.context_names)
    context = {"embedding": [1.0, 0.0, 0.0], "task": "chat", "tokens_in": 0.1}
    best = {
        name: model.decide({**context, **change}).action
        for name, change in {
            "as it is": {},
            "task": {"task": "code", "embedding": [0.3, 0.0, 0.0]},
            "tokens": {"tokens_in": 6.0},
            "embedding": {"embedding": [-1.0, 0.0, 0.0]},
        }.items()
    }
    assert best == {"as it is": "b", "task": "a", "tokens": "a", "embedding": "a"}


@pytest.mark.parametrize(
    "given", [{"arm": "model"}, {"arm": "model", "features": ["task"]}]
)
def test_every_column_has_a_role_and_an_ignored_one_its_reason(log, given):
    rows = open_log(log, given).schema.rows()
    assert sorted(column for _, column, _ in rows) == sorted(COLUMNS)
    assert all(why for role, _, why in rows if role == "ignored")
    full = open_log(log, ib.Schema("reward", ("task",), arm="model")).schema
    assert sorted(column for _, column, _ in full.rows()) == sorted(COLUMNS)


def test_reasons_name_what_is_wrong_with_a_column(log):
    why = {
        column: why for _, column, why in open_log(log, {"arm": "model"}).schema.rows()
    }
    assert why["tags"] == "its lists differ in length"
    assert why["embedding"].startswith("lists of numbers")


def test_the_answer_for_programs_lists_every_column(log):
    listed = values.of_model(ib.fit_logs(log, {"arm": "model"}))["columns"]
    assert sorted(row["column"] for row in listed) == sorted(COLUMNS)
    assert {row["role"] for row in listed if row["column"] in ("user_id", "tags")} == {
        "ignored"
    }


def test_columns_beside_lists_of_offered_actions_are_listed():
    rng = np.random.default_rng(1)
    offered = rng.normal(size=(50, 3, 2)).tolist()
    table = pa.table(
        {
            "reward": rng.normal(size=50),
            "action": [1] * 50,
            "offered": offered,
            "hour": [1.0] * 50,
        }
    )
    assert ("ignored", "hour", "features are those in offered") in open_log(
        table
    ).schema.rows()
