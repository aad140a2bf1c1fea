"""Policies in the loops of other packages earn what they earn in ours on the same rounds, and the other way round."""

import copy
import importlib.util
import re
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import invariant_bandits as ib
from invariant_bandits.adapters.environments import CobaEpisodes, GymnasiumEpisodes
from invariant_bandits.adapters.learners import (
    CobaLearner,
    FeatureAdapter,
    MabwiserPolicy,
    ObpPolicy,
)
from invariant_bandits.logs.formats.table import cross_features
from invariant_bandits.policies.registry import POLICIES
from reading import read_feedback

T, K, D, P = 120, 3, 2, 4
RNG = np.random.default_rng(0)
CONTEXTS = RNG.normal(size=(T, D))
REWARDS = np.round(
    CONTEXTS @ RNG.normal(size=(D, K)) + 0.3 * RNG.normal(size=(T, K)), 6
)
LABELLED = SimpleNamespace(offered=cross_features(CONTEXTS, np.eye(K)), rewards=REWARDS)
ROWS = RNG.normal(size=(T, K, P))
FEATURED = SimpleNamespace(
    offered=ROWS,
    rewards=np.round(ROWS @ RNG.normal(size=P) + RNG.normal(size=(T, 1)), 6),
)
DIM = LABELLED.offered.shape[2]


def policies(dim):
    """Fresh policies that decide in different ways: with certainty, by draws, with what the arms are."""
    return {
        "linucb": ib.LinUCB(dim, exploration=0.5),
        "drawn": ib.Randomised(ib.LinUCB(dim), floor=0.3, seed=1),
        "disjoint": ib.DisjointLinUCB(dim, arms=K),
    }


def earned_in_ours(policy, episode):
    """Rewards (T,) of our own loop."""
    world = SimpleNamespace(draw=lambda horizon, rng: episode)
    regret = ib.simulate({"it": lambda: copy.deepcopy(policy)}, world, T, 1, 0).regret[
        "it"
    ][0]
    return episode.rewards.max(axis=1) - np.diff(regret, prepend=0.0)


@pytest.fixture(params=["linucb", "drawn", "disjoint"])
def name(request):
    return request.param


# -- coba --


def coba_environment(cb, episode, labelled):
    contexts = CONTEXTS.tolist() if labelled else [None] * T
    actions = (
        [list(range(K))] * T
        if labelled
        else [list(map(tuple, rows)) for rows in episode.offered.tolist()]
    )
    rounds = [
        cb.SimulatedInteraction(context, choices, rewards)
        for context, choices, rewards in zip(
            contexts, actions, episode.rewards.tolist(), strict=True
        )
    ]
    return type(
        "Rounds", (cb.Environment,), {"params": {}, "read": lambda self: iter(rounds)}
    )()


@pytest.mark.parametrize("labelled", [True, False])
def test_coba_experiments_give_the_rewards_of_our_simulation(name, labelled):
    cb = pytest.importorskip("coba")
    episode = LABELLED if labelled else FEATURED
    policy = policies(episode.offered.shape[2])[name]
    evaluator = cb.SequentialCB(record=["reward", "probability"])
    played = list(
        evaluator.evaluate(coba_environment(cb, episode, labelled), CobaLearner(policy))
    )
    rewards = np.array([each["reward"] for each in played])
    np.testing.assert_array_equal(
        rewards,
        earned_in_ours(policies(episode.offered.shape[2])[name], episode).round(6),
    )
    assert all(0.0 < each["probability"] <= 1.0 for each in played)


def test_coba_learners_are_copied_per_environment_and_named():
    cb = pytest.importorskip("coba")
    worlds = [coba_environment(cb, FEATURED, False) for _ in range(2)]
    learner = CobaLearner("linucb,exploration=0.5")
    result = cb.Experiment(worlds, [learner]).run(quiet=True)
    frame = result.interactions.to_pandas()
    first, second = (frame[frame.environment_id == k].reward.to_numpy() for k in (0, 1))
    np.testing.assert_array_equal(first, second)
    assert result.learners.to_pandas().family.tolist() == ["linucb,exploration=0.5"]


@pytest.mark.parametrize("labelled", [True, False])
def test_a_coba_environment_plays_in_our_simulation(labelled):
    cb = pytest.importorskip("coba")
    episode = LABELLED if labelled else FEATURED
    drawn = CobaEpisodes(coba_environment(cb, episode, labelled)).draw(
        T, np.random.default_rng(0)
    )
    np.testing.assert_array_equal(drawn.offered, episode.offered)
    np.testing.assert_array_equal(drawn.rewards, episode.rewards)
    synthetic = CobaEpisodes(
        lambda seed: cb.Environments.from_linear_synthetic(60, n_actions=4, seed=seed)[
            0
        ]
    )
    result = ib.simulate(["linucb", "uniform"], synthetic, 60, replications=3, seed=0)
    assert result.final("linucb").mean() < result.final("uniform").mean()
    assert len(set(result.final("uniform"))) == 3
    with pytest.raises(ib.InputError, match="at least 200 interactions, got 60"):
        ib.simulate(["linucb"], synthetic, 200, replications=1, seed=0)


# -- obp --


def obp_loop(policy):
    """The actions chosen in obp's own loop.

    From 0.5 on it plays rounds whose rewards are all known. Before, it replays a log; this one has the
    policy's own choices, so that every round is learned.
    """
    simulator = pytest.importorskip(
        "obp.simulator", reason="obp needs PyTorch and is dormant: not installed"
    )
    if not hasattr(simulator, "run_bandit_simulation"):
        loop = simulator.simulator.BanditPolicySimulator(policy)
        rounds = simulator.simulator.BanditRounds(
            T, K, CONTEXTS, np.eye(K), REWARDS, REWARDS, None
        )
        loop.steps(batch_bandit_rounds=rounds)
        return loop.selected_actions
    twin, logged = copy.deepcopy(policy), []
    for context, rewards in zip(CONTEXTS, REWARDS, strict=True):
        logged.append(int(twin.select_action(context[None])[0]))
        twin.update_params(logged[-1], rewards[logged[-1]], context[None])
    action = np.array(logged)
    feedback = {
        "n_rounds": T,
        "n_actions": K,
        "context": CONTEXTS,
        "action": action,
        "position": None,
    }
    feedback |= {"reward": REWARDS[np.arange(T), action], "pscore": np.full(T, 1.0 / K)}
    return simulator.run_bandit_simulation(feedback, policy).argmax(axis=1)[:, 0]


def test_obp_simulations_choose_as_our_simulation_does(name):
    chosen = obp_loop(ObpPolicy(policies(DIM)[name], K))
    earned = REWARDS[np.arange(T), chosen]
    np.testing.assert_array_equal(
        earned, earned_in_ours(policies(DIM)[name], LABELLED).round(6)
    )


def test_methods_of_obp_give_the_rewards_of_our_simulation(name):
    policy, earned = ObpPolicy(policies(DIM)[name], K), []
    for context, rewards in zip(CONTEXTS, REWARDS, strict=True):
        (action,) = policy.select_action(context[None])
        earned.append(rewards[action])
        policy.update_params(action, rewards[action], context[None])
    np.testing.assert_array_equal(
        earned, earned_in_ours(policies(DIM)[name], LABELLED).round(6)
    )


def test_a_dataset_of_obp_is_a_log():
    feedback = {
        "n_rounds": T,
        "n_actions": K,
        "context": CONTEXTS,
        "action": RNG.integers(K, size=T),
        "pscore": np.full(T, 1.0 / K),
    }
    feedback["reward"] = REWARDS[np.arange(T), feedback["action"]]
    dataset = SimpleNamespace(obtain_batch_bandit_feedback=lambda: feedback)
    read = read_feedback(dataset).feedback
    np.testing.assert_array_equal(
        read.offered, read_feedback(feedback).feedback.offered
    )


# -- mabwiser --


def mabwiser_loop(mab):
    """The loop of mabwiser's documentation: predict, observe, partial_fit; rewards (T − K,) after K first rounds."""
    mab.fit(
        list("abc"), REWARDS[np.arange(K), np.arange(K)].tolist(), CONTEXTS[:K].tolist()
    )
    earned = []
    for context, rewards in zip(
        CONTEXTS[K:].tolist(), REWARDS[K:].tolist(), strict=True
    ):
        arm = mab.predict([context])
        earned.append(rewards["abc".index(arm)])
        mab.partial_fit([arm], [earned[-1]], [context])
    return earned


def test_mabwisers_loop_gives_the_rewards_of_our_simulation(name):
    ours = policies(DIM)[name]
    for t in range(K):
        ours.update(
            LABELLED.offered[t, t], REWARDS[t, t], action=t, offered=LABELLED.offered[t]
        )
    expected = []
    for features, rewards in zip(LABELLED.offered[K:], REWARDS[K:], strict=True):
        action = ours.select(features)
        expected.append(rewards[action])
        ours.update(features[action], rewards[action], offered=features, action=action)
    assert mabwiser_loop(MabwiserPolicy("abc", policies(DIM)[name])) == expected


def test_answers_have_the_form_of_mabwisers():
    mabwiser = pytest.importorskip("mabwiser.mab")
    theirs = mabwiser.MAB(list("abc"), mabwiser.LearningPolicy.LinUCB(alpha=0.5))
    ours = MabwiserPolicy("abc", "disjoint-linucb,exploration=0.5")
    assert len(mabwiser_loop(theirs)) == len(mabwiser_loop(ours))
    for method in ("predict", "predict_expectations"):
        for contexts in (CONTEXTS[:1].tolist(), CONTEXTS[:4]):
            answers = [getattr(mab, method)(contexts) for mab in (theirs, ours)]
            assert type(answers[0]) is type(answers[1])
            if isinstance(answers[0], dict):
                assert list(answers[0]) == list(answers[1])
            assert len(answers[0]) == len(answers[1])
    before = ours.predict(CONTEXTS)
    mabwiser_loop(ours)
    assert ours.predict(CONTEXTS) == before, "fit starts anew"


# -- river --


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_rivers_evaluation_gives_the_rewards_of_our_simulation(name):
    pytest.importorskip("river")
    from river.bandit import evaluate_offline

    from invariant_bandits.adapters.river import RiverPolicy

    rewards = earned_in_ours(policies(DIM)[name], LABELLED).round(6)
    logged = [
        int(np.flatnonzero(row == reward)[0])
        for row, reward in zip(REWARDS, rewards, strict=True)
    ]
    history = (
        (list(range(K)), {"x": x, "y": y}, arm, REWARDS[t, arm])
        for t, ((x, y), arm) in enumerate(zip(CONTEXTS.tolist(), logged, strict=True))
    )
    total, matches = evaluate_offline(RiverPolicy(policies(DIM)[name]), history)
    assert matches == T, "it chooses in every round as in our simulation"
    assert total.get() == pytest.approx(rewards.sum(), rel=1e-12)
    clone = RiverPolicy(policies(DIM)[name]).clone()
    assert clone.pull(list(range(K)), context={"x": 0.0, "y": 1.0}) in range(K)


# -- gymnasium --


def test_a_gymnasium_environment_plays_in_our_simulation():
    gymnasium = pytest.importorskip("gymnasium")

    class Clicks(gymnasium.Env):
        """Contexts and rewards of the rounds above."""

        observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (D,))
        action_space = gymnasium.spaces.Discrete(K)
        round = 0

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return CONTEXTS[self.round], {}

        def step(self, action):
            reward = REWARDS[self.round, action]
            self.round += 1
            return CONTEXTS[self.round % T], reward, self.round % 50 == 0, False, {}

    drawn = GymnasiumEpisodes(Clicks).draw(T, np.random.default_rng(0))
    np.testing.assert_array_equal(drawn.offered, LABELLED.offered)
    np.testing.assert_array_equal(drawn.rewards, REWARDS)
    result = ib.simulate(
        {"linucb": lambda: policies(DIM)["linucb"]},
        GymnasiumEpisodes(Clicks()),
        T,
        1,
        0,
    )
    expected = REWARDS.max(axis=1) - earned_in_ours(policies(DIM)["linucb"], LABELLED)
    np.testing.assert_allclose(
        result.regret["linucb"][0], np.cumsum(expected), atol=1e-12
    )


@pytest.mark.parametrize("first", [0, 3])
def test_discrete_actions_of_gymnasium_may_begin_at_any_number(first):
    gymnasium = pytest.importorskip("gymnasium")

    class Shifted(gymnasium.Env):
        action_space = gymnasium.spaces.Discrete(2, start=first)

        def reset(self, *, seed=None, options=None):
            return np.ones(1), {}

        def step(self, action):
            assert self.action_space.contains(action)
            return np.ones(1), float(action - first), False, False, {}

    assert (
        GymnasiumEpisodes(Shifted).draw(3, np.random.default_rng(0)).rewards.tolist()
        == [[0.0, 1.0]] * 3
    )


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "river_bandits/CandyCaneContest-v0",
            "arrays of numbers as observations, got a dict",
        ),
        ("Pendulum-v1", "a Discrete action space, got Box"),
    ],
)
def test_gymnasium_environments_that_are_no_bandits_of_numbers_are_refused(name, words):
    gymnasium = pytest.importorskip("gymnasium")
    if name.startswith("river"):
        pytest.importorskip("river.bandit.envs")  # registers its environments
    with pytest.raises(ib.InputError, match=words):
        ib.simulate(
            ["linucb"],
            GymnasiumEpisodes(lambda: gymnasium.make(name)),
            5,
            replications=1,
            seed=0,
        )


# -- mlflow --


@pytest.mark.filterwarnings("ignore")  # of MLflow itself
def test_a_model_saved_as_a_pyfunc_decides_as_the_model(tmp_path):
    mlflow = pytest.importorskip(
        "mlflow", reason="mlflow-skinny is in the extra peers, not in test"
    )
    pd = pytest.importorskip("pandas")
    from invariant_bandits.adapters.mlflow import save_pyfunc

    arm = RNG.choice(["a", "b"], 1500)
    age = RNG.normal(40.0, 10.0, 1500)
    click = (
        RNG.random(1500) < np.where((arm == "a") == (age > 40.0), 0.5, 0.2)
    ).astype(int)
    model = ib.fit_logs(pd.DataFrame({"age": age, "arm": arm, "click": click}))
    save_pyfunc(model, tmp_path / "pyfunc")
    served = mlflow.pyfunc.load_model(str(tmp_path / "pyfunc"))
    frame = pd.DataFrame({"age": [20.0, 60.0, 35.0]})
    assert (
        served.predict(frame).action.tolist()
        == model.decide_many(frame).action.tolist()
        == ["b", "a", "b"]
    )


def test_mlflow_that_is_missing_is_named(monkeypatch, tmp_path):
    from invariant_bandits.adapters.mlflow import save_pyfunc

    monkeypatch.setitem(sys.modules, "mlflow.pyfunc", None)
    monkeypatch.setitem(sys.modules, "mlflow", ModuleType("mlflow"))
    with pytest.raises(ImportError, match="save_pyfunc needs mlflow"):
        save_pyfunc(None, tmp_path / "pyfunc")


# -- features --


def cold(name):
    """Every way in which a peer is given a policy by its name."""
    yield lambda: CobaLearner(name)
    yield lambda: MabwiserPolicy("ab", name)
    yield lambda: ObpPolicy(name, 2)
    if importlib.util.find_spec("river") is not None:
        from invariant_bandits.adapters.river import RiverPolicy

        yield lambda: RiverPolicy(name)


@pytest.mark.parametrize(
    "name", ["auto-isd", "randomised", "isd-linucb", "auto-isd,caution=none"]
)
def test_a_name_that_needs_logs_is_refused_at_once_and_says_what_to_hand_over(name):
    for make in cold(name):
        with pytest.raises(
            ib.InputError, match=r"needs logs .* ib\.AutoISD\.from_history\(moments\)"
        ):
            make()


NEEDS_MORE = "needs logs|is missing|simulations only"


def plays_cold(name):
    try:
        learner = CobaLearner(name)
        for _ in range(3):
            action, chance, about = learner.predict([0.5], ["a", "b"])
            learner.learn([0.5], action, 1.0, chance, **about)
    except ib.InputError as error:
        return re.search(NEEDS_MORE, str(error)) is not None
    return learner.policy.rounds == 3


def test_every_registered_name_plays_or_says_why_not():
    assert [entry.name for entry in POLICIES if not plays_cold(entry.name)] == []


def test_auto_isd_fitted_on_logs_plays_for_a_peer():
    """Action (1,) is worth x and action (−1,) is worth −x, in the logs as well as here."""
    rng, adapter = np.random.default_rng(4), FeatureAdapter(None)
    arms, contexts = [(-1.0,), (1.0,)], rng.normal(size=(600, 1))
    played = rng.integers(2, size=600)
    rewards = (2.0 * played - 1.0) * contexts[:, 0] + 0.1 * rng.normal(size=600)
    offered = np.array([adapter.features(x, arms) for x in contexts])
    chosen = offered[np.arange(600), played]
    moments = ib.WindowedMoments.from_arrays(
        chosen, rewards, windows=6, offered=offered
    )
    learner = CobaLearner(ib.AutoISD.from_history(moments))
    assert [learner.predict([x], arms)[0] for x in (-1.0, 1.0)] == arms
    mab = MabwiserPolicy(arms, ib.AutoISD.from_history(moments))
    assert mab.predict([[-1.0], [1.0]]) == arms
    assert mab.partial_fit([(1.0,)], [1.0], [[1.0]]).policy.rounds == 1


def test_labels_that_are_named_at_the_beginning_may_come_later():
    adapter = FeatureAdapter("linucb", ["a", "b", "c"])
    assert adapter.choose([1.0], ["a", "b"])[1].shape == (2, 6)
    assert (
        adapter.choose([1.0], ["c", "b"])[1].tolist()
        == adapter.features([1.0], ["c", "b"]).tolist()
    )
    with pytest.raises(
        ib.InputError, match="got d: give all that will ever be offered as `labels`"
    ):
        adapter.choose([1.0], ["a", "d"])


def test_arms_of_river_may_appear_later_and_one_that_was_not_offered_is_refused():
    pytest.importorskip("river")
    from invariant_bandits.adapters.river import RiverPolicy

    policy, x = RiverPolicy("linucb,exploration=0", arms=["a", "b", "new"]), {"x": 1.0}
    for arm, reward in (("a", 0.2), ("b", 0.1)):
        policy.pull(["a", "b"], context=x)
        policy.update(arm, x, reward)
    policy.pull(["a", "b", "new"], context=x)
    policy.update("new", x, 1.0)
    assert policy.pull(["a", "b", "new"], context=x) == "new"
    with pytest.raises(
        ib.InputError, match="arm_id must be one of a, b, new, got 'zz'"
    ):
        policy.update("zz", x, 1.0)
    assert policy.clone().pull(["b", "new"], context=x) in ("b", "new")


def test_an_arm_that_mabwiser_does_not_have_is_refused_and_nothing_is_learned():
    mab = MabwiserPolicy("ab", "linucb").fit(["a"], [1.0], [[1.0]])
    before = mab.predict_expectations([[1.0]])
    with pytest.raises(ib.InputError, match="decisions must be one of a, b, got 'zz'"):
        mab.partial_fit(["a", "zz"], [5.0, 1.0], [[1.0], [1.0]])
    assert mab.predict_expectations([[1.0]]) == before


def test_a_new_label_is_refused():
    adapter = FeatureAdapter("linucb")
    adapter.choose([1.0], ["a", "b"])
    with pytest.raises(
        ib.InputError, match="among those of the first round, a, b; got c"
    ):
        adapter.choose([1.0], ["a", "c"])


def test_rounds_that_offer_different_numbers_of_actions_are_refused():
    rounds = [
        {"actions": [(1.0,), (2.0,)], "rewards": [0.0, 1.0]},
        {"actions": [(1.0,)], "rewards": [0.0]},
    ]
    world = CobaEpisodes(SimpleNamespace(read=lambda: iter(rounds)))
    with pytest.raises(ib.InputError, match="every round must offer as many actions"):
        world.draw(2, np.random.default_rng(0))
