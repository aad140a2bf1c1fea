"""The example logs: three forms of the same rounds, from which the planted split is found."""

import runpy
from pathlib import Path

import invariant_bandits as ib
from worlds import assert_same_moments

WRITE_LOGS = runpy.run_path(str(Path(__file__).parents[1] / "examples" / "write_logs.py"))["write_logs"]


def test_the_forms_agree_and_the_planted_split_is_found(tmp_path):
    truth = WRITE_LOGS(tmp_path, rounds=4000)
    chosen, lists, rows = (
        ib.read_moments(tmp_path / f"{name}.parquet", every="7d", strict=True).moments
        for name in ("chosen", "lists", "rows")
    )
    assert (chosen.windows, chosen.rounds) == (8, 4000)
    assert_same_moments(lists, rows)
    assert_same_moments(ib.WindowedMoments(lists.chosen, None, lists.edges), chosen)
    fit = ib.InvariantSubspaceDecomposition().fit(rows)
    assert fit.split_.invariant.shape == truth.split.invariant.shape
    assert fit.split_.distance(truth.split) < 0.1
