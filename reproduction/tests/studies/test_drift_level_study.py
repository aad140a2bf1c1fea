"""The study of drift where nothing drifts: its logs are what they say, and a small run makes a page."""

import numpy as np
import pytest

from invariant_bandits_reproduction.studies import drift_level_study as study
from invariant_bandits_reproduction.studies.drift_level_study import LevelCell


@pytest.mark.parametrize("kind", study.KINDS)
def test_the_planted_effects_are_those_of_the_log(kind):
    cell = LevelCell(kind, clicks=False, columns=4, rounds=40_000)
    log = study.draw(cell, np.random.default_rng(0), reversed_effect=False)
    for arm in range(study.ARMS):
        rows = log.arms == arm
        found = np.linalg.lstsq(
            np.column_stack([np.ones(rows.sum()), log.features[rows]]),
            log.rewards[rows],
            rcond=None,
        )[0][1:]
        # 13,000 rounds with noise 8: errors of .07
        assert found == pytest.approx(log.effects[arm], abs=0.35)


def test_the_effects_of_clicks_on_rows_are_those_of_least_squares():
    cell = LevelCell(study.ROWS, clicks=True, columns=4, rounds=200_000)
    log = study.draw(cell, np.random.default_rng(0), reversed_effect=False)
    found = np.linalg.lstsq(
        np.column_stack([np.ones(cell.rounds), log.features]), log.rewards, rcond=None
    )[0][1:]
    assert found == pytest.approx(log.effects[0], abs=0.006)  # errors of .0011


def test_a_small_run_makes_a_page(monkeypatch):
    monkeypatch.setattr(
        study, "SIZES", {kind: {(12, 400): 1.0} for kind in study.KINDS}
    )
    outcome = study.run(replications=4, seed=1, jobs=1)
    assert all(values.shape == (4, 4) for values in outcome.values.values())
    page = study.report(outcome)
    assert "| own, clicks, 12 columns, 400 rounds | 4 | " in page
    assert len(study.verdicts(outcome)) == 13
