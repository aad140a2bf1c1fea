"""The stress study: all worlds and goals are consistent, and a small run makes a page."""

import numpy as np

import invariant_bandits as ib
from invariant_bandits.simulation.stress_worlds import FixedArms, StressEpisodes
from invariant_bandits_reproduction.studies import stress_study


def test_goals_name_worlds_and_players_that_exist():
    names = [world.name for world in stress_study.WORLDS]
    assert len(set(names)) == len(names)
    for goal in stress_study.goals():
        assert goal.name in names
    assert {world.name for world in stress_study.FIXED} <= set(names)


def test_a_linear_policy_with_a_baseline_learns_an_arm_coded_as_zero():
    episode = FixedArms(arms=2, changed=0.0).draw(10, np.random.default_rng(0))
    policy = stress_study.Linear(0.1, warm=True)(episode.past)
    assert policy.select(episode.offered[0]) == int(episode.means[0].argmax())


def test_a_small_run_makes_a_page():
    worlds = [
        stress_study.world(
            "as the logs say", StressEpisodes(logged=400, dim=3, residual_dim=1), 60
        ),
        stress_study.world("5 arms, all arms change", FixedArms(5, logged=400), 60),
    ]
    seen = []
    outcome = stress_study.run(
        worlds,
        replications=2,
        alarm_replications=0,
        seed=1,
        jobs=1,
        progress=lambda *step: seen.append(step),
    )
    assert seen[-1] == ("5 arms, all arms change", 4, 4)
    page = stress_study.report(outcome)
    assert (
        "AutoISD, caution None: worst run ≤ 2 × LinUCB's | 5 arms, all arms change"
        in page
    )
    assert "| as the logs say |" in page
    for quantity in ("beyond 2", "beyond 3"):
        assert outcome.more["seen"]["as the logs say"][quantity].shape == (2,)
        assert (outcome.more["seen"]["as the logs say"][quantity] <= 1.0).all()
    again = stress_study.run(
        worlds, replications=2, alarm_replications=0, seed=1, jobs=1
    )
    np.testing.assert_array_equal(
        again.values["as the logs say"]["AutoISD"],
        outcome.values["as the logs say"]["AutoISD"],
    )


def test_the_alarm_has_worlds_in_which_it_is_false_and_in_which_it_is_right():
    held = stress_study.HELD[:1]
    outcome = stress_study.run(
        [], replications=2, alarm_replications=2, held=held, seed=1, jobs=1
    )
    assert list(outcome.more["alarms"]) == [
        "as the logs say",
        "invariance broken by 0.5",
        "invariance broken by 1",
    ]
    assert outcome.more["alarms"]["invariance broken by 1"] == (1.0, 1.0)
    assert "| invariance broken by 1 | 100.0% | 100% | ✓ |" in stress_study.report(
        outcome
    )


def test_contrasts_are_those_of_the_mixture():
    episode = StressEpisodes(logged=1000).draw(30, np.random.default_rng(2))
    policy = ib.AutoISD.from_history(episode.moments)
    for offered, rewards in zip(episode.offered, episode.rewards, strict=True):
        action = policy.select(offered)
        policy.update(offered[action], float(rewards[action]))
    apart, deviation = stress_study.contrasts(policy, episode.offered[0])
    scores = policy.scores(episode.offered[0])
    np.testing.assert_allclose(apart, scores.mean[1:] - scores.mean[0], atol=1e-9)
    assert (deviation > 0).all()
