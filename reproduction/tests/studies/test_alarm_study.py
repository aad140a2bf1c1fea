"""The study of the alarm: its worlds break what they say, and a small run makes a page."""

import numpy as np

from invariant_bandits_reproduction.studies import alarm_study
from invariant_bandits_reproduction.studies.alarm_study import (
    POWER,
    BreakingArms,
    cells,
)


def test_the_strong_effect_is_stable_in_the_logs():
    world = cells()[POWER].world
    episode = world.draw(1, np.random.default_rng(0))
    place = world.stable(episode.logs.drifting)
    assert place not in episode.logs.drifting
    assert episode.logs.truth[place] == alarm_study.STRONG


def test_a_small_run_makes_a_page(monkeypatch):
    small = BreakingArms("drift", logged=3000, contexts=2)
    rows = {
        name: alarm_study.AlarmCell(small, 90) for name in (*alarm_study.LEVELS, POWER)
    }
    monkeypatch.setattr(alarm_study, "cells", lambda: rows)
    outcome = alarm_study.run(replications=6, feature_replications=2, seed=1, jobs=1)
    labelled = [len(values) for values in outcome.values.values()][:3]
    assert labelled == [6, 6, 4]
    supported = [values[:, 1].all() for values in outcome.values.values()]
    assert all(supported[:3])
    page = alarm_study.report(outcome)
    assert "| 3 % of clicks | 0.000 (0.000–0.390) | 6 | 100.0% |" in page
    assert len(alarm_study.verdicts(outcome)) == 6
