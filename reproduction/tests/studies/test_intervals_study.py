"""The study of intervals: worlds with the values they claim, results for any number of processes, an honest
page.
"""

import numpy as np
import pytest

from invariant_bandits.evaluation.estimators import (
    importance_weights,
    logged_value,
    replay,
)
from invariant_bandits_reproduction.studies import intervals_study as study
from invariant_bandits_reproduction.studies.harness import StudyOutcome
from invariant_bandits_reproduction.studies.intervals_study import (
    DIM,
    LINES,
    LOGGING,
    TARGET,
    WORLDS,
    BothRules,
    Intervals,
    LoggedWorld,
    draw_log,
    true_values,
)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("logging", LOGGING)
def test_logs_earn_what_is_claimed_and_their_weights_average_to_one(world, logging):
    """Of 60,000 rounds. Off by 5 standard errors over 30 blocks with probability 3e-5 per case, Gaussian
    blocks.
    """
    log = draw_log(
        world, logging, 60_000, np.random.default_rng((3, list(WORLDS).index(world)))
    )
    value = logged_value(log.feedback)
    assert (
        abs(value.value - true_values()[world, logging][1]) < 5.0 * value.standard_error
    )
    weights = importance_weights(log.feedback, log.target)
    assert abs(weights.mean() - 1.0) < 5.0 * weights.std() / np.sqrt(60_000)


class Target:
    dim = DIM

    def select(self, features):
        return int((features @ TARGET).argmax())

    def update(self, features, reward, *, offered=None, action=None):
        """Nothing is learned."""


def test_accepted_rounds_are_those_of_a_replay():
    """As many as the library's own replay accepts, within 5 standard deviations of either count."""
    log = draw_log("Gaussian", "softmax", 20_000, np.random.default_rng(1))
    accepted = replay(log.feedback, Target()).effective_sample
    assert abs(len(log.accepted) - accepted) < 5.0 * np.sqrt(2.0 * accepted)
    assert (log.target[log.feedback.logged_rows][log.accepted] == 1.0).all()


@pytest.mark.system
def test_results_do_not_depend_on_the_number_of_processes_nor_on_the_other_cells():
    cells = [
        LoggedWorld("clicks 5 %", "softmax", 4000),
        LoggedWorld("Gaussian", "uniform", 4000),
    ]
    one, two = (study.run(cells, replications=3, seed=7, jobs=jobs) for jobs in (1, 2))
    alone = study.run(cells[1:], replications=3, seed=7, jobs=1)
    alone = alone.values
    for results in (one.values, two.values):
        assert list(results) == cells
        np.testing.assert_array_equal(
            results[cells[1]].now.low, alone[cells[1]].now.low
        )
        np.testing.assert_array_equal(
            results[cells[1]].before.high, alone[cells[1]].before.high
        )


def test_every_cell_is_one_world_logged_in_one_way():
    assert (
        len(set(study.settings()))
        == len(study.settings())
        == len(WORLDS) * len(LOGGING) * len(study.ROUNDS)
    )


def planted(low, high, truth):
    """The same interval in every line of 100 logs."""
    return Intervals(
        np.full((100, len(LINES)), low),
        np.full((100, len(LINES)), high),
        np.full(len(LINES), truth),
    )


def test_coverage_refusals_and_wrong_verdicts_are_counted_among_those_that_conclude():
    now = planted(0.0, 2.0, 1.0)
    now.low[:10], now.high[:10] = np.nan, np.nan
    now.high[10:19] = 0.5
    now.low[19:22], now.high[19:22] = -2.0, -1.0
    results = {
        LoggedWorld("clicks 1 %", "uniform", 4000): BothRules(
            now, planted(0.5, 1.5, 1.0)
        )
    }
    now, before = (
        study.summary(results, "clicks 1 %", "DR", rule) for rule in ("now", "before")
    )
    assert now.lowest.value == pytest.approx(78 / 90)
    assert before.lowest.value == 1.0
    assert (now.refused, before.refused) == pytest.approx((0.1, 0.0))
    assert (now.wrong, before.wrong) == pytest.approx((3 / 90, 0.0))
    (both,) = results.values()
    for line, (name, _) in enumerate(LINES):
        if name == "DR":
            assert study.width_ratio(both, line) == pytest.approx(2.0)
    assert "uniform, 4,000 rounds" in now.where


def test_the_page_marks_what_misses_and_leaves_out_cells_that_hardly_conclude():
    good, bad = planted(0.0, 2.0, 1.0), planted(0.0, 2.0, 1.0)
    bad.high[:20] = 0.5
    results = {
        LoggedWorld("Gaussian", "uniform", 4000): BothRules(good, good),
        LoggedWorld("clicks 1 %", "uniform", 4000): BothRules(bad, good),
        LoggedWorld("clicks 5 %", "uniform", 4000): BothRules(
            planted(np.nan, np.nan, 1.0), good
        ),
    }
    outcome = StudyOutcome(results, replications=100, seed=5)
    judged = {
        (goal.name, goal.statement): verdict.reached
        for goal, verdict in study.verdicts(outcome)
    }
    assert judged == {
        (world, name): world == "Gaussian"
        for world in ("Gaussian", "clicks 1 %")
        for name in study.PROMISED
    }
    page = study.report(outcome)
    assert page.count("✗") == 3
    assert "| clicks 5 % | – | – | – |" in page
    assert "| clicks 1 % | uniform | 4,000 | value | 0.800 / 1.000, × 1.00 |" in page


def test_true_values_are_those_of_a_quadrature():
    """E max of four standard normals is 1.0294; the target's share of the first feature 0.6; 2e6 rounds: ±
    0.0005.
    """
    values = true_values()
    assert values["Gaussian", "uniform"][0] == pytest.approx(
        1.0 + 0.5 * 0.6 * 1.02938, abs=0.002
    )
    assert values["lognormal", "uniform"][1] == pytest.approx(
        np.exp(0.125 + 1.125), rel=0.002
    )
