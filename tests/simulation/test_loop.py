"""The simulation: paired rounds, regret as computed by hand, the same bits for any number of processes."""

import sys
import time
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest

import invariant_bandits as ib
from invariant_bandits import parallel
from invariant_bandits.policies.choice import choice_of
from invariant_bandits.policies.past import ForgetsNothingWarning
from invariant_bandits.policies.registry import PolicySpec
from invariant_bandits.simulation import loop as simulation
from invariant_bandits.simulation.episodes import PaperEpisodes
from invariant_bandits.simulation.paper import PaperWorld

EPISODES = PaperEpisodes(PaperWorld(blocks=(2, 1), varying=1), logged=200)


@dataclass
class Scripted(ib.BasePolicy):
    """Plays the actions it was given and keeps all it was told; may spoil the features it sees."""

    needs = ()
    actions: np.ndarray
    spoils: bool = False
    told: list = field(default_factory=list)

    def decide(self, offered, *, draw=None):
        nothing = np.zeros(len(offered))
        return choice_of(int(self.actions[len(self.told)]), nothing, nothing)

    def update(self, features, reward, *, offered=None, action=None):
        self.told.append((features.copy(), float(reward), offered.copy(), action))
        if self.spoils:
            offered[:] = np.nan


def oracle(past):
    return Scripted(past.truth.means.argmax(axis=1))


def worst(past):
    return Scripted(past.truth.means.argmin(axis=1))


def linucb(past):
    return ib.LinUCB(past.dim, delta=1 / past.horizon)


def episode_of(seed, repetition, horizon):
    return EPISODES.draw(horizon, np.random.default_rng((seed, repetition)))


def test_a_policy_that_knows_the_means_has_no_regret():
    result = ib.simulate(
        {"oracle": oracle}, EPISODES, horizon=40, replications=3, seed=0
    )
    assert (result.regret["oracle"] == 0.0).all()


def test_the_regret_of_the_worst_policy_is_the_sum_of_the_ranges_of_the_means():
    result = ib.simulate({"worst": worst}, EPISODES, horizon=30, replications=2, seed=5)
    assert result.regret["worst"].shape == (2, 30)
    for repetition in range(2):
        episode = episode_of(5, repetition, 30)
        by_hand = [0.0]
        for features, coefficients in zip(
            episode.offered, episode.coefficients, strict=True
        ):
            expected = [
                sum(x * c for x, c in zip(row, coefficients, strict=True))
                for row in features
            ]
            by_hand.append(by_hand[-1] + max(expected) - min(expected))
        np.testing.assert_allclose(
            result.regret["worst"][repetition], by_hand[1:], rtol=1e-12
        )
        assert (
            result.final("worst")[repetition] == result.regret["worst"][repetition, -1]
        )


def test_a_policy_is_told_the_noisy_reward_of_its_action_and_the_whole_round():
    episode = episode_of(1, 0, 20)
    policy = worst(episode.past)
    simulation.play(policy, episode)
    assert len(policy.told) == 20
    for t, (features, reward, offered, action) in enumerate(policy.told):
        assert action == episode.means[t].argmin()
        np.testing.assert_array_equal(offered, episode.offered[t])
        np.testing.assert_array_equal(features, episode.offered[t, action])
        assert reward == episode.means[t, action] + episode.noise[t]


def test_all_policies_play_the_same_rounds_whatever_the_others_do():
    seen = {}

    def watched(name, **settings):
        def make(past):
            seen.setdefault(name, []).append(
                Scripted(np.zeros(25, dtype=int), **settings)
            )
            return seen[name][-1]

        return make

    makers = {
        "spoiler": watched("spoiler", spoils=True),
        "between": linucb,
        "after": watched("after"),
    }
    together = ib.simulate(makers, EPISODES, horizon=25, replications=2, seed=9)
    for item, other in zip(seen["spoiler"], seen["after"], strict=True):
        for first, second in zip(item.told, other.told, strict=True):
            for mine, theirs in zip(first, second, strict=True):
                np.testing.assert_array_equal(mine, theirs)
    alone = ib.simulate(
        {"between": linucb}, EPISODES, horizon=25, replications=2, seed=9
    )
    np.testing.assert_array_equal(together.regret["between"], alone.regret["between"])


@pytest.mark.system
def test_the_number_of_processes_does_not_change_a_bit_and_makers_may_be_lambdas():
    makers = {
        "LinUCB": lambda past: ib.LinUCB(past.dim),
        "LinTS": lambda past: ib.LinTS(past.dim, seed=3),
        "ISD": lambda past: ib.ISDLinUCB.from_history(
            past.moments, split=past.truth.split
        ),
    }
    one, two = (
        ib.simulate(makers, EPISODES, horizon=50, replications=5, seed=2, jobs=jobs)
        for jobs in (1, 2)
    )
    assert list(one.regret) == list(two.regret) == list(makers)
    for name in makers:
        np.testing.assert_array_equal(one.regret[name], two.regret[name])


@pytest.mark.system
def test_a_slow_repetition_keeps_its_place_among_the_others():
    slow = episode_of(7, 0, 10).noise[0]

    def late(past):
        if past.truth.noise[0] == slow:
            time.sleep(0.5)
        return worst(past)

    makers, settings = {"worst": late}, {"horizon": 10, "replications": 3, "seed": 7}
    one, two = (
        ib.simulate(makers, EPISODES, jobs=jobs, **settings).final("worst")
        for jobs in (1, 2)
    )
    np.testing.assert_array_equal(one, two)


def test_more_repetitions_continue_the_same_sequence_and_another_seed_is_another():
    few, more, other = (
        ib.simulate(
            {"worst": worst}, EPISODES, horizon=10, replications=count, seed=seed
        ).final("worst")
        for count, seed in ((2, 7), (4, 7), (2, 8))
    )
    np.testing.assert_array_equal(few, more[:2])
    assert len(np.unique(np.concatenate([more, other]))) == 6


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.system)])
def test_progress_counts_every_repetition_once(jobs):
    heard = []
    ib.simulate(
        {"oracle": oracle},
        EPISODES,
        horizon=5,
        replications=4,
        seed=0,
        jobs=jobs,
        progress=lambda *at: heard.append(at),
    )
    assert heard == [(1, 4), (2, 4), (3, 4), (4, 4)]


@pytest.mark.system
def test_without_forking_one_process_does_the_same(monkeypatch):
    settings = {"horizon": 10, "replications": 3, "seed": 1}
    forked = ib.simulate({"worst": worst}, EPISODES, jobs=2, **settings)
    monkeypatch.setattr(
        parallel.multiprocessing, "get_all_start_methods", lambda: ["spawn"]
    )
    monkeypatch.setattr(parallel, "ProcessPoolExecutor", None)
    alone = ib.simulate({"worst": worst}, EPISODES, jobs=2, **settings)
    np.testing.assert_array_equal(forked.regret["worst"], alone.regret["worst"])


def test_a_maker_that_needs_nothing_of_the_logs_takes_nothing():
    makers = {
        "with": lambda past: ib.LinUCB(past.dim),
        "without": lambda: ib.LinUCB(EPISODES.world.dim),
    }
    result = ib.simulate(makers, EPISODES, horizon=30, replications=2, seed=1)
    np.testing.assert_array_equal(result.regret["with"], result.regret["without"])


def test_a_frame_has_one_row_per_policy_or_one_per_policy_repetition_and_round():
    result = ib.simulate(
        {"worst": worst, "LinUCB": linucb}, EPISODES, horizon=4, replications=3, seed=1
    )
    tidy = result.to_frame()
    assert tidy.policy.tolist() == ["LinUCB", "worst"]
    assert tidy["mean"].tolist() == [result.final(name).mean() for name in tidy.policy]
    assert tidy.worst.tolist() == [result.final(name).max() for name in tidy.policy]
    assert tidy.replications.tolist() == [3, 3]
    frame = result.to_frame(by_round=True)
    assert list(frame) == ["policy", "replication", "round", "regret"]
    lines = list(frame.itertuples(index=False, name=None))
    assert len(lines) == len({line[:3] for line in lines}) == 2 * 3 * 4
    for policy, replication, number, regret in lines:
        assert regret == result.regret[policy][replication, number - 1]


def test_a_frame_without_pandas_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    result = ib.simulate(
        {"oracle": oracle}, EPISODES, horizon=2, replications=1, seed=0
    )
    with pytest.raises(
        ImportError, match="to_frame needs pandas, which is not installed"
    ):
        result.to_frame()


BAD = {
    "not a mapping": ("policy must be one of", {"policies": ["linubc"]}),
    "no policies": ("policies is empty", {"policies": {}}),
    "a policy itself": (
        r"policies\['LinUCB'\] must be callable, past -> policy, or a registered name, got LinUCB",
        {"policies": {"LinUCB": ib.LinUCB(3)}},
    ),
    "not an environment": (
        r"environment must have draw\(horizon, rng\)",
        {"environment": "paper"},
    ),
    "no rounds": (
        "horizon must be a whole number of at least 1, got 0",
        {"horizon": 0},
    ),
    "no repetitions": (
        "replications must be a whole number of at least 1, got 0",
        {"replications": 0},
    ),
    "half a process": (
        "jobs must be a whole number of at least 1, got 0.5",
        {"jobs": 0.5},
    ),
    "a negative seed": (
        "seed must be a whole number of at least 0, got -1",
        {"seed": -1},
    ),
    "no policy made": (
        "policy must have the methods select, update, got None",
        {"policies": {"none": lambda past: None}},
    ),
    "an action that is not offered": (
        "select must return an action from 0 to 4, got -1",
        {"policies": {"scripted": lambda past: Scripted(np.full(5, -1))}},
    ),
    "an environment of other length": (
        r"offered must have shape \(5, K, p\), got \(6, 5, 3\)",
        {
            "environment": SimpleNamespace(
                draw=lambda horizon, rng: EPISODES.draw(6, rng)
            )
        },
    ),
}


@pytest.mark.parametrize(("message", "changes"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_named(message, changes):
    good = {
        "policies": {"oracle": oracle},
        "environment": EPISODES,
        "horizon": 5,
        "replications": 1,
        "seed": 0,
    }
    ib.simulate(**good)
    with pytest.raises(ib.InputError, match=message):
        ib.simulate(**good | changes)


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.system)])
def test_an_error_says_which_policy_and_repetition_it_comes_from(jobs):
    def make(past):
        raise ZeroDivisionError("planted")

    with pytest.raises(ZeroDivisionError, match="planted") as caught:
        ib.simulate(
            {"oracle": oracle, "broken": make},
            EPISODES,
            horizon=5,
            replications=2,
            seed=4,
            jobs=jobs,
        )
    assert any(
        "policy 'broken' in repetition" in note for note in caught.value.__notes__
    )


def test_an_error_of_the_environment_says_which_repetition_it_comes_from():
    def draw(horizon, rng):
        raise ZeroDivisionError("planted")

    with pytest.raises(ZeroDivisionError, match="planted") as caught:
        ib.simulate(
            {"oracle": oracle},
            SimpleNamespace(draw=draw),
            horizon=5,
            replications=2,
            seed=4,
        )
    assert caught.value.__notes__ == [
        "while drawing the episode of repetition 0 of seed 4"
    ]


def test_a_list_may_hold_contenders_names_and_classes():
    tuned = PolicySpec("linucb", {"exploration": 0.3})
    free = PolicySpec("auto-isd", {"caution": None})
    listed = ib.simulate(
        [tuned, free, PolicySpec("uniform"), "linucb"], EPISODES, 20, 2, 0
    )
    assert list(listed.regret) == [
        "linucb,exploration=0.3",
        "auto-isd,caution=none",
        "uniform",
        "linucb",
    ]
    named = ib.simulate({"tuned": tuned, "free": free}, EPISODES, 20, 2, 0)
    for label, name in (
        ("linucb,exploration=0.3", "tuned"),
        ("auto-isd,caution=none", "free"),
    ):
        np.testing.assert_array_equal(listed.regret[label], named.regret[name])
        again = ib.simulate([label], EPISODES, 20, 2, 0)
        np.testing.assert_array_equal(again.regret[label], named.regret[name])
    assert list(ib.simulate([ib.LinUCB], EPISODES, 20, 2, 0).regret) == ["LinUCB"]


def test_a_list_of_makers_without_names_is_refused_and_says_how():
    with pytest.raises(ib.InputError, match="as a mapping"):
        ib.simulate([Scripted(np.zeros(3))], EPISODES, 20, 2, 0)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_window_as_long_as_the_run_warns_once_from_any_process(jobs):
    names = [
        "sw-linucb,window=20",
        "restart-linucb,every=25",
        "sw-linucb,window=horizon",
        "sw-linucb",
    ]
    with pytest.warns(ForgetsNothingWarning) as caught:
        ib.simulate(names, EPISODES, 20, replications=4, seed=0, jobs=jobs)
    assert sorted(str(warning.message).split(":")[0] for warning in caught) == [
        "policy 'restart-linucb,every=25'",
        "policy 'sw-linucb,window=20'",
    ]
    assert all(warning.filename == __file__ for warning in caught)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_result_says_what_was_played_also_after_it_was_stored(jobs, tmp_path):
    policies = {
        "window": "sw-linucb",
        "tuned": PolicySpec("linucb", {"exploration": 0.3}),
        "stable": "isd-linucb,window=5",
        "drawn": "randomised-linucb,floor=0.2",
        "mine": lambda past: Scripted(np.zeros(20, dtype=int)),
    }
    result = ib.simulate(policies, EPISODES, 20, replications=3, seed=0, jobs=jobs)
    played = result.settings["policies"]
    assert list(played) == list(policies)
    assert played["window"]["resolved"]["memory.window"] == 5
    assert played["tuned"]["options"] == {"exploration": 0.3}
    assert (played["tuned"]["kind"], played["tuned"]["resolved"]["exploration"]) == (
        "linucb",
        0.3,
    )
    assert played["tuned"]["resolved"]["ridge"] == 0.1, "defaults are stored as well"
    assert played["stable"]["resolved"]["memory.window"] == 5
    assert played["stable"]["resolved"]["min_eigenvalue"] == "by repetition"
    assert played["drawn"]["resolved"]["floor"] == 0.2
    assert played["drawn"]["resolved"]["settings.memory.kind"] == "Forever"
    assert (played["mine"]["kind"].split(".")[-1], played["mine"]["resolved"]) == (
        "Scripted",
        {},
    )
    result.save(tmp_path / "result.parquet")
    assert (
        ib.SimulationResult.load(tmp_path / "result.parquet").settings
        == result.settings
    )
