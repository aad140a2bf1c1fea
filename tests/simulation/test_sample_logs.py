"""The sample logs: their forms agree, and what was planted is in them."""

from datetime import timedelta

import numpy as np
import pytest
from pyarrow import csv

import invariant_bandits as ib
from invariant_bandits.simulation.sample_logs import (
    BANNERS,
    WORDS,
    banner_log,
    paper_logs,
    write_samples,
)
from reading import read_moments
from worlds import assert_same_moments


def test_the_forms_agree_and_the_planted_split_is_found(tmp_path):
    write_samples(tmp_path)
    truth = paper_logs()[1]
    chosen, lists, rows = (
        read_moments(tmp_path / f"{name}.parquet", every="7d", strict=True).moments
        for name in ("chosen", "lists", "rows")
    )
    assert (chosen.windows, chosen.rounds) == (8, 4000)
    assert_same_moments(lists, rows)
    assert_same_moments(ib.WindowedMoments(lists.chosen, None, lists.edges), chosen)
    fit = ib.InvariantSubspaceDecomposition().fit(rows)
    assert fit.split_.invariant.shape == truth.split.invariant.shape
    assert fit.split_.distance(truth.split) < 0.1


def test_banners_are_shown_as_often_as_their_propensities_say_and_only_while_they_run():
    log = banner_log(20_000, seed=1).columns
    share = np.arange(20_000) / 20_000
    assert share[log["banner"] == "banner_A"].max() <= 0.75
    assert share[log["banner"] == "banner_E"].min() >= 0.4
    for banner in BANNERS[1:4]:
        shown = log["banner"] == banner
        promised = 1.0 / log["propensity"][shown]
        error = np.sqrt((promised * (promised - 1.0)).sum())
        assert (
            abs(promised.sum() - 20_000) < 4.5 * error
        )  # weights of shown rounds add up to all of them


def test_clicks_follow_the_planted_log_odds():
    log, n = banner_log(40_000, seed=2), 40_000
    columns = log.columns
    known = ~np.isnan(columns["age"])
    assert 0.03 < 1.0 - known.mean() < 0.05
    shown = np.array([BANNERS.index(banner) for banner in columns["banner"]])
    context = np.column_stack(
        [
            np.ones(n),
            (columns["age"] - 40.0) / 10.0,
            columns["device"] == "phone",
            columns["hour"] >= 18,
        ]
    )
    odds = np.einsum(
        "nd,nd->n", log.coefficients[np.arange(n), shown], np.nan_to_num(context)
    )
    chance = 1.0 / (1.0 + np.exp(-odds))
    error = (columns["clicked"] - chance)[known]
    for column in context[known].T:
        z = (column * error).sum() / np.sqrt(
            (column**2 * (chance * (1.0 - chance))[known]).sum()
        )
        assert abs(z) < 4.5


def test_the_next_week_goes_on_where_the_banners_end(tmp_path):
    """3,200 rounds of eight weeks and 400 more; banner_A is retired, and drift has gone on."""
    write_samples(tmp_path, rounds=3200)
    before, after = (
        csv.read_csv(tmp_path / name) for name in ("banners.csv", "next-week.csv")
    )
    assert (len(before), len(after)) == (3200, 400)
    assert (
        after["time"][0].as_py() - before["time"][-1].as_py()
        == timedelta(days=56) / 3200
    )
    assert "banner_A" not in after["banner"].to_pylist()
    last, first = (
        banner_log(3200).coefficients[-1],
        banner_log(3200, next_week=True).coefficients[0],
    )
    assert np.abs(last - first).max() < 0.01
    model = ib.fit_logs(tmp_path / "banners.csv", every="7d")
    assert model.update_from(tmp_path / "next-week.csv").model.moments.windows == 9


def test_samples_are_the_same_again_and_replace_nothing_unasked(tmp_path):
    paths = write_samples(tmp_path / "new", rounds=300, seed=4)
    assert sorted(path.name for path in paths) == sorted(WORDS)
    before = {path: path.read_bytes() for path in paths}
    with pytest.raises(ib.InputError, match="would be overwritten"):
        write_samples(tmp_path / "new", rounds=300)
    write_samples(tmp_path / "new", rounds=300, seed=4, replace=True)
    assert {path: path.read_bytes() for path in paths} == before
    assert csv.read_csv(tmp_path / "new" / "banners.csv").column_names[-3:] == [
        "banner",
        "clicked",
        "propensity",
    ]
