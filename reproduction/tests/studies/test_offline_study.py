"""The offline study: reproducible for any number of processes, honest intervals, a page that says what
missed.
"""

from dataclasses import replace

import numpy as np
import pytest

from invariant_bandits.checks import InputError
from invariant_bandits_reproduction.claims import share_of
from invariant_bandits_reproduction.studies import offline_study
from invariant_bandits_reproduction.studies.harness import StudyOutcome
from invariant_bandits_reproduction.studies.offline_study import (
    LOGGED_ROUNDS,
    OfflineCell,
    Recovery,
    recover,
)


def outcome(found=(7, 3), **changes):
    plain = Recovery((7, 3), found, 0.01, 0.1, (1, 2, 3, 4), 0.007, True)
    return replace(plain, **changes)


def test_the_planted_split_is_recovered():
    _, found = recover(OfflineCell("paper", 3500), (1, 2))
    assert found.right
    assert found.block_sizes == (1, 2, 3, 4)
    assert found.projection_error * np.sqrt(3500) < 1.5
    assert found.component_error < 0.2


@pytest.mark.system
def test_results_do_not_depend_on_the_number_of_processes():
    cells = offline_study.settings(["uniform logs"])[:2]
    one, two = (
        offline_study.run(cells, replications=3, seed=7, jobs=jobs) for jobs in (1, 2)
    )

    def forget(outcome):
        return {
            key: [replace(fit, seconds=0.0) for fit in fits]
            for key, fits in outcome.values.items()
        }

    assert forget(one) == forget(two)


def test_shares_and_medians_carry_their_intervals():
    outcomes = [outcome()] * 95 + [outcome((10, 0))] * 3 + [outcome((5, 5))] * 2
    right = offline_study.figure(outcomes, 1000, "right")
    assert right.value == 0.95
    assert right.low < 0.9 < 0.95 < right.high < 1.0
    assert offline_study.figure(outcomes, 1000, "overestimated").value == 0.03
    errors = [outcome(component_error=value) for value in np.linspace(0, 1, 101)]
    assert offline_study.figure(errors, 1000, "component").value == pytest.approx(0.5)


def test_the_interval_of_a_share_covers_it_about_as_often_as_promised():
    rng = np.random.default_rng(0)
    hits = rng.binomial(200, 0.97, size=2000)
    shares = [share_of(int(count), 200) for count in hits]
    covered = np.mean([share.low <= 0.97 <= share.high for share in shares])
    assert covered > 0.93


def test_the_page_marks_what_misses_its_bound():
    def page_of(results):
        return offline_study.report(StudyOutcome(results, replications=50, seed=0))

    def all_right(kind):
        return (
            outcome((10, 0), planted=(10, 0))
            if kind.startswith("no drift")
            else outcome(projection_error=0.005)
        )

    good = {
        (kind, rounds): [all_right(kind)] * 50
        for kind in offline_study.KINDS
        for rounds in LOGGED_ROUNDS
    }
    good = {
        key: [replace(run, component_error=0.05) for run in runs]
        for key, runs in good.items()
    }
    marks = [line for line in page_of(good).splitlines() if "✓" in line or "✗" in line]
    assert len(marks) == len(offline_study.GOALS) == 13
    assert all(line.count("✓") == 3 and "✗" not in line for line in marks)

    bad = good | {
        ("greedy logs", 8000): [
            outcome((10, 0), projection_error=0.005, component_error=0.05)
        ]
        * 50
    }
    missed = [line for line in page_of(bad).splitlines() if "✗" in line]
    assert [line.split("|")[1].strip() for line in missed] == [
        "right dimension, greedy logs, offered actions",
        "p_inv overestimated, greedy logs",
    ]
    assert all(
        line.count("✓") == 2 and line.rstrip().endswith("✗ |") for line in missed
    )  # at T0 = 8000 only
    assert "| greedy logs | 1.000" in page_of(bad)


def test_logs_that_are_refused_count_as_wrong_and_are_not_left_out(monkeypatch):
    def refuse(setting, seed):
        raise InputError("features are collinear")

    monkeypatch.setattr(offline_study, "recover", refuse)
    found = offline_study.judge(OfflineCell("paper", 200), (1,))
    assert found.refused
    assert not found.right
    assert not found.overestimates_invariance
    assert found.projection_error == 1.0
    assert found.component_error > 0.5
