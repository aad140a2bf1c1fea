"""Traced beliefs are what the policy would have said at that round, and asking changes nothing."""

import numpy as np
import pytest

import invariant_bandits as ib
from invariant_bandits.simulation.episodes import PaperEpisodes

EPISODES = PaperEpisodes(logged=1000, violation=2.0)
MAKERS = {
    "LinUCB": lambda episode: ib.LinUCB(episode.dim),
    "AutoISD": lambda episode: ib.AutoISD.from_history(episode.moments),
}


def test_beliefs_are_those_of_the_policy_at_the_traced_rounds_and_only_of_policies_that_have_some():
    result = ib.simulate(MAKERS, EPISODES, horizon=40, replications=2, seed=3, trace=[40, 1, 15])
    assert {row.policy for row in result.beliefs} == {"AutoISD"}
    expected = []
    for replication in range(2):
        episode = EPISODES.draw(40, np.random.default_rng((3, replication)))
        policy = MAKERS["AutoISD"](episode)
        for t in range(40):
            action = policy.select(episode.offered[t])
            policy.update(episode.offered[t, action], episode.means[t, action] + episode.noise[t])
            if t + 1 in (1, 15, 40):
                expected += [
                    ("AutoISD", replication, t + 1, name, value) for name, value in policy.beliefs().items()
                ]
    assert list(result.beliefs) == expected


def test_the_traced_probabilities_add_up_and_agree_with_the_explanation():
    episode = EPISODES.draw(30, np.random.default_rng(4))
    policy = MAKERS["AutoISD"](episode)
    for t in range(30):
        policy.update(episode.offered[t, 0], episode.means[t, 0] + episode.noise[t])
    beliefs, explained = policy.beliefs(), policy.explain()
    assert beliefs.pop("log evidence") == explained.log_evidence
    assert beliefs == explained.hypotheses
    assert sum(beliefs.values()) == pytest.approx(1.0)


@pytest.mark.system
def test_tracing_does_not_change_the_regret_and_neither_does_the_number_of_processes():
    settings = {"horizon": 30, "replications": 3, "seed": 8}
    silent = ib.simulate(MAKERS, EPISODES, **settings)
    one, two = (ib.simulate(MAKERS, EPISODES, trace=range(1, 31), jobs=jobs, **settings) for jobs in (1, 2))
    assert silent.beliefs == ()
    assert one.beliefs == two.beliefs
    assert len(one.beliefs) == 3 * 30 * 5
    for name in MAKERS:
        np.testing.assert_array_equal(silent.regret[name], one.regret[name])


def test_over_the_rounds_a_planted_violation_is_believed():
    result = ib.simulate(
        {"AutoISD": MAKERS["AutoISD"]}, EPISODES, horizon=200, replications=3, seed=9, trace=[1, 200]
    )
    doubted = ("invariance broken", "logs useless")
    for replication in range(3):
        early, late = (
            sum(
                row.value
                for row in result.beliefs
                if (row.replication, row.round) == (replication, number) and row.belief in doubted
            )
            for number in (1, 200)
        )
        assert late > 0.99 > 0.9 > early


@pytest.mark.parametrize(
    ("trace", "message"),
    [([0], "trace must be a whole number of at least 1, got 0"), ([6], "from 1 to the horizon 5, got 6")],
)
def test_traced_rounds_must_be_played(trace, message):
    with pytest.raises(ib.InputError, match=message):
        ib.simulate(MAKERS, EPISODES, horizon=5, replications=1, seed=0, trace=trace)
