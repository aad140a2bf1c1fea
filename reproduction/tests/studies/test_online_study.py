"""The online study: paired and reproducible, goals that can be missed, a page that says which were."""

import numpy as np
import pytest
from typer.testing import CliRunner

import invariant_bandits as ib
from invariant_bandits.simulation.episodes import build_policy
from invariant_bandits_reproduction import regret_claims
from invariant_bandits_reproduction.claims import mean_of
from invariant_bandits_reproduction.contenders import LINUCB_WARM, NAMED
from invariant_bandits_reproduction.studies import __main__ as command
from invariant_bandits_reproduction.studies import online_study as study
from invariant_bandits_reproduction.studies.harness import (
    StudyOutcome,
    cell_seed,
    wrap_prose,
)
from invariant_bandits_reproduction.studies.stamps import Stamp, stamped

STAMP = Stamp("code", "run", 240)
"""Of a page that the command writes."""
ORACLES = (study.ISD_ORACLE, *(study.tuned_name(kind, True) for kind in study.MEMORIES))


@pytest.fixture(scope="module")
def outcome():
    """The whole study, two repetitions of everything."""
    return study.run(replications=2, tuning_replications=2, seed=11, jobs=2)


def planted():
    """A study in which every goal is reached: LinUCB 60, the others below, in pairs that differ a little."""
    pairs = np.array([-1.0, 0.0, 1.0, 0.0])
    level = {
        study.LINUCB: 60.0,
        study.LINUCB_TUNED: 25.0,
        study.GREEDY: 19.0,
        study.LINUCB_WARM: 90.0,
    }
    level |= {study.ISD_ORACLE: 18.0, study.ISD_ESTIMATED: 19.0}
    level |= {study.AUTO: 9.0, study.AUTO_FREE: 9.0}
    regret = {
        row.name: {name: level[name] + pairs for name in row.policies}
        for row in study.ROWS
    }
    tuned = study.best_of(
        study.tuning_grid(),
        {member.words: pairs + 30.0 for member in study.tuning_grid()},
    )
    for member in (member for pair in study.published_pairs() for member in pair):
        regret[study.SEVENTH.name][member.words] = pairs + (
            40.0 if member.lifted else 100.0
        )
    for kind in tuned:
        regret[study.SEVENTH.name][study.tuned_name(*kind)] = pairs + (
            15.0 if kind[1] else 30.0
        )
    more = {"tuned": tuned, "tuning_replications": study.TUNING_REPLICATIONS}
    return StudyOutcome(regret, replications=4, seed=0, more=more)


# -- one small run --


@pytest.mark.system
def test_every_row_is_played_by_its_policies_and_oracles_exist_where_something_drifts(
    outcome,
):
    assert list(outcome.values) == [row.name for row in study.ROWS]
    for row in study.ROWS:
        here = outcome.values[row.name]
        missing = {study.ISD_ORACLE} if row == study.NO_DRIFT else set()
        missing |= set() if row == study.FIXED_ACTIONS else {study.AUTO_FREE}
        assert set(study.CONTENDERS) - set(here) == missing
        assert all(
            values.shape == (2,) and (values >= 0.0).all() for values in here.values()
        )
    assert len(outcome.values[study.SEVENTH.name]) == len(study.CONTENDERS) - 1 + 6 + 8


@pytest.mark.system
def test_a_row_has_the_same_regret_alone_and_in_one_process(outcome):
    alone = study.run((study.NO_DRIFT,), replications=2, seed=11, jobs=1)
    assert alone.more["tuned"] == {}
    for name, values in alone.values[study.NO_DRIFT.name].items():
        np.testing.assert_array_equal(values, outcome.values[study.NO_DRIFT.name][name])


@pytest.mark.system
def test_the_page_shows_every_row_every_policy_every_goal_and_what_was_tuned(outcome):
    page = study.report(outcome, pictures="../figures")
    lines = page.splitlines()
    for row in study.ROWS:
        assert any(line.startswith(f"| {row.name} |") for line in lines)
    assert all(name in page for name in study.CONTENDERS)
    assert sum(
        line.endswith(("✓ |", "✗ |", "(✓) |", "(✗) |")) for line in lines
    ) == len(study.GOALS)
    for member, _ in outcome.more["tuned"].values():
        assert (
            f"| {member.name} | {member.memory_words}, exploration {member.exploration:g} |"
            in page
        )
    assert 'src="../figures/online-light.png"' in page


def test_no_two_rows_and_no_tuning_share_their_repetitions():
    seeds = {
        cell_seed(2026, place) for place in (*range(len(study.ROWS)), study.TUNING)
    }
    assert len(seeds) == len(study.ROWS) + 1


def test_progress_ends_when_all_repetitions_are_done():
    heard = []
    study.run(
        (study.NO_DRIFT,),
        replications=2,
        seed=0,
        jobs=1,
        progress=lambda *at: heard.append(at),
    )
    assert heard == [(study.NO_DRIFT.name, 1, 2), (study.NO_DRIFT.name, 2, 2)]


def test_one_repetition_has_no_standard_error_and_is_refused():
    with pytest.raises(
        ib.InputError, match="replications must be a whole number of at least 2, got 1"
    ):
        study.run(replications=1)


# -- the policies are what the page says --


def test_the_rows_are_those_of_the_method_and_three_with_few_features():
    worlds = {row.name: row for row in study.ROWS}
    assert len(worlds) == 14
    assert [row.environment.logged for row in study.PAPER_ROWS] == [1000, 3500, 8000]
    assert [row.horizon for row in study.ROWS].count(500) == 10
    assert study.SEVENTH.environment.online == "rotating"
    assert (
        study.FIXED_ACTIONS.environment.fixed_actions,
        study.FIXED_ACTIONS.horizon,
    ) == (20, 1000)
    assert (
        study.SMALL_JUMP.environment.violation,
        study.LARGE_JUMP.environment.violation,
    ) == (0.5, 2.0)
    few = [(row.environment.world.dim, row.horizon) for row in study.FEW_FEATURES]
    assert few == [(3, 100), (4, 100), (5, 100)]


def test_policies_have_the_papers_settings_and_the_seventh_remembers_25_rounds():
    episode = study.SEVENTH.environment.draw(50, np.random.default_rng(0))
    made = {
        name: build_policy(make, episode.past)
        for name, make in study.SEVENTH.policies.items()
    }
    for name, policy in made.items():
        if "AutoISD" not in name:
            assert policy.delta == 1 / 50
            assert (policy.ridge, policy.noise_scale, policy.norm_bound) == (
                0.1,
                1.0,
                1.0,
            )
    assert (
        made[study.ISD_ORACLE].memory
        == made[study.ISD_ESTIMATED].memory
        == ib.SlidingWindow(25)
    )
    assert made[study.ISD_ORACLE].split.distance(episode.logs.split) < 1e-12
    assert 0 < made[study.ISD_ESTIMATED].split.distance(episode.logs.split) < 0.5
    explorations = [
        made[name].exploration
        for name in (study.LINUCB, study.LINUCB_TUNED, study.GREEDY)
    ]
    assert explorations == [1.0, 0.3, 0.0]
    assert made[study.AUTO].caution == 0.0


def test_the_warm_policy_starts_from_ridge_regression_on_all_logs():
    episode = study.PAPER_ROWS[0].environment.draw(5, np.random.default_rng(3))
    X, y = episode.logs.features, episode.logs.rewards
    policy = NAMED[LINUCB_WARM].build(episode.past)
    assert policy.rounds == len(y) == 1000
    np.testing.assert_allclose(
        policy.coefficients,
        np.linalg.solve(X.T @ X + 0.1 * np.eye(10), X.T @ y),
        rtol=1e-9,
    )


def test_tuning_takes_the_lowest_mean_of_each_kind():
    grid = study.tuning_grid()
    assert len(grid) == len({member.words for member in grid}) == 2 * (5 + 6 + 5) * 3
    regret = {member.words: np.array([50.0, 52.0]) for member in grid}
    wanted = study.Forgetful("D-linUCB", True, ib.Discount(0.95), 0.3)
    regret[wanted.words] = np.array([10.0, 20.0])
    best = study.best_of(grid, regret)
    assert best["D-linUCB", True] == (wanted, mean_of(np.array([10.0, 20.0])))
    assert best["D-linUCB", False][1].value == 51.0
    assert len(best) == 6


# -- goals --


def test_a_comparison_of_means_is_paired_and_takes_the_best_rival():
    ours, weak, strong = (
        np.array([10.0, 30.0, 50.0]),
        np.array([90.0, 90.0, 90.0]),
        np.array([12.0, 31.0, 53.0]),
    )
    regret = {"row": {"ours": ours, "weak": weak, "strong": strong}}
    verdict = regret_claims.mean_at_most("", "row", "ours", ("weak", "strong")).judge(
        regret
    )
    assert verdict.reached
    assert verdict.margin.value == pytest.approx(-2.0)
    assert verdict.margin.error == pytest.approx(1.0 / np.sqrt(3.0))
    assert not verdict.close
    assert "(strong)" in verdict.numbers
    half = regret_claims.mean_at_most("", "row", "ours", ("strong",), 0.5).judge(regret)
    assert not half.reached
    assert half.numbers == "30.0, bound 16.0 = 0.5 × 32.0"


def test_a_mean_at_its_bound_is_reached_but_close():
    regret = {"row": {"ours": np.array([1.0, 3.0]), "rival": np.array([3.0, 1.0])}}
    verdict = regret_claims.mean_at_most("", "row", "ours", ("rival",)).judge(regret)
    assert verdict.reached
    assert verdict.close


def test_worst_runs_are_compared_strictly_where_below_was_said():
    regret = {"row": {"ours": np.array([1.0, 60.0]), "rival": np.array([60.0, 2.0])}}
    assert regret_claims.worst_at_most("", "row", "ours", "rival").judge(regret).reached
    assert (
        not regret_claims.worst_at_most("", "row", "ours", "rival", strictly=True)
        .judge(regret)
        .reached
    )
    assert not regret_claims.worst_below("", "row", "ours", 60.0).judge(regret).reached
    assert regret_claims.worst_below("", "row", "ours", 60.1).judge(regret).reached


@pytest.mark.system
def test_the_estimated_policy_must_stay_below_and_autoisd_not_above_the_worst_run_of_linucb():
    outcome = planted()
    for policy in (study.ISD_ESTIMATED, study.AUTO):
        here = outcome.values[study.PAPER_ROWS[0].name]
        here[policy] = np.array([here[study.LINUCB].max(), 0.0, 0.0, 0.0])
    missed = [goal for goal, verdict in study.verdicts(outcome) if not verdict.reached]
    assert [goal.statement for goal in missed] == [
        f"{study.ISD_ESTIMATED}: worst run below LinUCB's"
    ]


def test_a_study_that_reaches_everything_says_so():
    page = study.report(planted())
    assert f"{len(study.GOALS)} of {len(study.GOALS)} goals reached." in page
    assert "✗" not in page


@pytest.mark.system
@pytest.mark.parametrize(
    "goal", study.GOALS, ids=lambda goal: f"{goal.statement}; {goal.name}"
)
def test_every_goal_can_be_missed_and_the_page_names_it(goal):
    outcome = planted()
    outcome.values[goal.name][goal.policy] = (
        outcome.values[goal.name][goal.policy] + 500.0
    )
    missed = [
        other for other, verdict in study.verdicts(outcome) if not verdict.reached
    ]
    assert goal in missed
    assert all(
        (other.name, other.policy) == (goal.name, goal.policy) for other in missed
    )
    assert f"- {goal.statement}; {goal.name}: " in study.report(outcome)


def test_losses_are_listed_for_policies_that_know_no_truth():
    fair = planted()
    for name in ORACLES:
        fair.values[study.SEVENTH.name][name] = np.full(4, 1.0)
    assert list(study.losses(fair)) == []
    assert (
        "In no row has a policy without knowledge of the truth a lower mean."
        in study.report(fair)
    )
    fair.values[study.NO_DRIFT.name][study.LINUCB_WARM] = (
        fair.values[study.NO_DRIFT.name][study.AUTO] - 3.0
    )
    ((row, rival, difference),) = study.losses(fair)
    assert (row, rival) == (study.NO_DRIFT.name, study.LINUCB_WARM)
    assert (difference.value, difference.error) == (-3.0, 0.0)
    assert f"| {row} | {rival} | −3.0 ± 0.0 |" in study.report(fair)


def test_the_command_writes_the_page_and_both_pictures(tmp_path, monkeypatch):
    heard = {}

    def run(*, progress, **settings):
        heard.update(settings)
        progress("a row", 1, 2)
        return planted()

    monkeypatch.setattr(study, "run", run)
    monkeypatch.setattr(command, "stamp_of", lambda _: STAMP)
    page, figures = (
        tmp_path / "docs" / "studies" / "online.md",
        tmp_path / "docs" / "figures",
    )
    words = ["online", "--replications", "4", "--seed", "3", "--jobs", "1"]
    result = CliRunner().invoke(
        command.study, [*words, "--out", str(page), "--figures", str(figures)]
    )
    assert result.exit_code == 0, result.output
    assert heard == {"replications": 4, "seed": 3, "jobs": 1}
    measured = wrap_prose(study.report(planted(), pictures="../figures"))
    assert page.read_text() == stamped(measured, STAMP)
    assert sorted(path.name for path in figures.iterdir()) == [
        "online-dark.png",
        "online-light.png",
    ]
    assert "goals missed: 0" in result.output
