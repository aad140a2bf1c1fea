"""Rows of plain numbers are read at once, and become what they become one by one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import invariant_bandits as ib
from invariant_bandits.checks import InputError
from invariant_bandits_service.learners import FittedLearner
from invariant_bandits_service.responses import RefusedError, decode
from invariant_bandits_service.routes.decisions import DecisionRequest


@pytest.fixture(scope="module")
def learner() -> FittedLearner:
    rng = np.random.default_rng(0)
    features = rng.normal(2.0, 3.0, size=(4_000, 4))
    table = {f"x{j}": features[:, j] for j in range(4)} | {
        "reward": features[:, 0] + rng.normal(size=4_000)
    }
    return FittedLearner(ib.fit_logs(pa.table(table)))


def test_lists_and_mappings_become_the_same_bits(learner: FittedLearner) -> None:
    rows = np.random.default_rng(1).normal(size=(5, 4)).tolist()
    rows[0][0] = 3
    named = [{f"x{j}": value for j, value in enumerate(row)} for row in rows]
    at_once, one_by_one = (
        learner.round_of(None, [], rows),
        learner.round_of(None, [], named),
    )
    assert at_once.features.tobytes() == one_by_one.features.tobytes()
    assert learner.plain is not None


@pytest.mark.parametrize("wrong", [[1.0, 2.0, 3.0], [1.0, 2.0, 3.0, "4"], "abcd", 5.0])
def test_what_is_no_row_of_numbers_is_refused_by_name(
    learner: FittedLearner, wrong: object
) -> None:
    with pytest.raises(InputError, match=r"arms\[1\]"):
        learner.round_of(None, [], [[1.0, 2.0, 3.0, 4.0], wrong])


@pytest.mark.parametrize(
    "wrong", [b"true", b"null", b'"4"', b"1e13", b"-2e12", b"[1.0]"]
)
def test_requests_have_rows_of_numbers_within_bounds_only(wrong: bytes) -> None:
    with pytest.raises(RefusedError, match="arms"):
        decode(b'{"arms": [[1.0, 2.0], [1.0, %s]]}' % wrong, DecisionRequest).command(
            "default"
        )
