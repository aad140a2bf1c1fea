"""The offline study: reproducible for any number of processes, honest intervals, a page that says what missed."""

from dataclasses import replace

import numpy as np
import pytest

from invariant_bandits.checks import InputError
from invariant_bandits.experiments.studies import offline as offline_study
from invariant_bandits.experiments.studies import recovery
from invariant_bandits.experiments.studies.recovery import LOGGED_ROUNDS, Recovery, Setting, recover


def outcome(found=(7, 3), **changes):
    plain = Recovery((7, 3), found, 0.01, 0.1, (1, 2, 3, 4), 0.007, True)
    return replace(plain, **changes)


def test_the_planted_split_is_recovered():
    _, found = recover(Setting("paper", 3500), (1, 2))
    assert found.right
    assert found.block_sizes == (1, 2, 3, 4)
    assert found.projection_error * np.sqrt(3500) < 1.5
    assert found.component_error < 0.2


def test_results_do_not_depend_on_the_number_of_processes():
    cells = offline_study.settings(["uniform logs"])[:2]
    one, two = (offline_study.run(cells, replications=3, seed=7, jobs=jobs) for jobs in (1, 2))
    forget = lambda results: {key: [replace(r, seconds=0.0) for r in rows] for key, rows in results.items()}  # noqa: E731
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
    shares = [offline_study._share(int(count), 200) for count in hits]
    covered = np.mean([share.low <= 0.97 <= share.high for share in shares])
    assert covered > 0.93


def test_the_page_marks_what_misses_its_bound():
    good = {(kind, rounds): [outcome()] * 50 for kind in offline_study.KINDS for rounds in LOGGED_ROUNDS}
    page = offline_study.report(good, replications=50, seed=0)
    assert "✗" not in page.replace("‖", "").split("## All settings")[0].split("median projection")[0]
    bad = good | {("greedy logs", 8000): [outcome((10, 0))] * 50}
    missed = [
        (goal.words, fine)
        for goal, _, reached in offline_study.verdicts(bad)
        for fine in reached
        if goal.kind == "greedy logs" and not fine
    ]
    assert ("p_inv overestimated, greedy logs", False) in missed
    assert "1.000" in offline_study.report(bad, replications=50, seed=0)


def test_logs_that_are_refused_count_as_wrong_and_are_not_left_out(monkeypatch):
    def refuse(setting, seed):
        raise InputError("features are collinear")

    monkeypatch.setattr(recovery, "recover", refuse)
    found = recovery.judge(Setting("paper", 200), (1,))
    assert found.refused
    assert not found.right
    assert not found.overestimates_invariance
    assert found.projection_error == 1.0
    assert found.component_error > 0.5
