"""What an observer notes of each policy is kept per repetition, stored, continued, and the same in any
process.
"""

from dataclasses import replace

import numpy as np
import pytest

import invariant_bandits as ib
from invariant_bandits.simulation.episodes import PaperEpisodes
from invariant_bandits.simulation.paper import PaperWorld

EPISODES = PaperEpisodes(
    PaperWorld(blocks=(2, 1), varying=1, regimes=2), logged=60, windows=2
)
MAKERS = {
    "LinUCB": lambda episode: ib.LinUCB(episode.dim),
    "Uniform": lambda episode: ib.Uniform(episode.dim),
}
SETTINGS = {"horizon": 12, "seed": 3}


def note(policy, episode):
    """Something of the policy and something of the truth; nothing for a policy that cannot be asked."""
    if isinstance(policy, ib.Uniform):
        return {}
    return {"rounds": policy.rounds, "first mean": episode.means[0, 0]}


def test_observations_are_those_of_the_finished_policy_and_its_own_episode():
    result = ib.simulate(MAKERS, EPISODES, replications=4, observe=note, **SETTINGS)
    truth = [
        EPISODES.draw(12, np.random.default_rng((3, index))).means[0, 0]
        for index in range(4)
    ]
    assert list(result.observations) == ["LinUCB"]
    np.testing.assert_array_equal(
        result.observations["LinUCB"]["rounds"], np.full(4, 12.0)
    )
    np.testing.assert_array_equal(result.observations["LinUCB"]["first mean"], truth)


@pytest.mark.system
def test_they_survive_storing_and_other_processes(tmp_path):
    whole = ib.simulate(
        MAKERS, EPISODES, replications=4, observe=note, jobs=2, **SETTINGS
    )
    alone = ib.simulate(MAKERS, EPISODES, replications=4, observe=note, **SETTINGS)
    path = tmp_path / "result.parquet"
    replace(whole, settings=whole.settings | {"why": "a test"}).save(path)
    stored = ib.SimulationResult.load(path)
    assert stored.settings["why"] == "a test"
    for result in (alone, stored):
        for quantity, values in whole.observations["LinUCB"].items():
            np.testing.assert_array_equal(
                result.observations["LinUCB"][quantity], values
            )


def test_without_an_observer_there_are_none():
    assert ib.simulate(MAKERS, EPISODES, replications=2, **SETTINGS).observations == {}


def test_an_observer_that_fails_names_the_policy_and_the_repetition():
    def broken(policy, episode):
        raise RuntimeError("no")

    with pytest.raises(RuntimeError) as caught:
        ib.simulate(MAKERS, EPISODES, replications=2, observe=broken, **SETTINGS)
    assert "policy 'LinUCB'" in caught.value.__notes__[0]


def test_over_the_rounds_a_planted_violation_is_believed():
    def doubted(policy, _):
        shares = policy.explain().hypotheses
        assert sum(shares.values()) == pytest.approx(1.0)
        return {"doubted": shares["invariance broken"] + shares["logs useless"]}

    world, settings = (
        PaperEpisodes(logged=1000, violation=2.0),
        {"replications": 3, "seed": 9},
    )
    early, late = (
        ib.simulate(["auto-isd"], world, rounds, observe=doubted, **settings)
        for rounds in (1, 200)
    )
    assert (late.observations["auto-isd"]["doubted"] > 0.99).all()
    assert (early.observations["auto-isd"]["doubted"] < 0.9).all()
