"""The laws that every policy obeys, whatever its memory, exploration and invariant part.

`MAKERS` names one fresh policy per combination. A new policy joins by a line there; a law is a function of a maker.
"""

from __future__ import annotations

import numpy as np
import pytest

import invariant_bandits as ib

DIM, ACTIONS = 4, 3
MEMORIES = {
    "forever": ib.Forever(),
    "window": ib.SlidingWindow(7),
    "discount": ib.Discount(0.9),
    "restart": ib.Restart(9),
}
SPLIT = ib.Split.from_residual(np.linalg.qr(np.random.default_rng(5).normal(size=(DIM, 2)))[0])
COMPONENT = SPLIT.invariant @ np.array([0.7, -0.4])
PRECISION = np.array([[90.0, 20.0], [20.0, 60.0]])
TRUE_SPLIT = ib.Split(np.eye(DIM)[:, :3], np.eye(DIM)[:, 3:])
EVERYTHING = ib.Split(np.eye(DIM), np.zeros((DIM, 0)))
NOTHING = ib.Split(np.zeros((DIM, 0)), np.eye(DIM))


def history(seed: int = 3):
    """Logs whose covariances change over four windows, and one coefficient with them."""
    rng = np.random.default_rng(seed)
    scales = np.repeat(rng.uniform(0.4, 2.0, size=(4, DIM)), 150, axis=0)
    offered = rng.normal(size=(600, ACTIONS, DIM)) * scales[:, None]
    features = offered[:, 0]
    drifting = np.repeat([2.0, -1.0, 0.5, -2.0], 150)
    rewards = features @ [1.0, -1.0, 0.5, 0.0] + drifting * features[:, 3] + rng.normal(size=600)
    return ib.WindowedMoments.from_arrays(features, rewards, windows=4, offered=offered)


def _makers():
    makers = {}
    for name, memory in MEMORIES.items():
        makers[f"LinUCB, {name}"] = lambda m=memory: ib.LinUCB(DIM, memory=m)
        makers[f"LinTS, {name}"] = lambda m=memory: ib.LinTS(DIM, memory=m, seed=4)
        makers[f"Greedy, {name}"] = lambda m=memory: ib.Greedy(DIM, memory=m)
        makers[f"EpsilonGreedy, {name}"] = lambda m=memory: ib.EpsilonGreedy(DIM, epsilon=0.3, memory=m, seed=4)
        makers[f"ISDLinUCB both oracles, {name}"] = lambda m=memory: ib.ISDLinUCB(SPLIT, COMPONENT, memory=m)
        makers[f"ISDLinUCB, {name}"] = lambda m=memory: ib.ISDLinUCB(
            SPLIT, COMPONENT, component_precision=PRECISION, memory=m
        )
        makers[f"ISDLinTS, {name}"] = lambda m=memory: ib.ISDLinTS(
            SPLIT, COMPONENT, component_precision=PRECISION, memory=m, seed=4
        )
        makers[f"ISDLinUCB recomputing, {name}"] = lambda m=memory: ib.ISDLinUCB.from_history(
            history(), recompute_every=40, memory=m
        )
    return makers | {
        "AutoISD": lambda: ib.AutoISD.from_history(history()),
        "AutoISD without a baseline": lambda: ib.AutoISD.from_history(history(), intercept=False, share=0.01),
        "SWLinUCB": lambda: ib.SWLinUCB(DIM, window=12, feature_bound=2.0),
        "DLinUCB": lambda: ib.DLinUCB(DIM, discount=0.95),
        "RestartLinUCB": lambda: ib.RestartLinUCB(DIM, every=15, exploration=0.5),
        "DisjointLinUCB": lambda: ib.DisjointLinUCB(DIM, ACTIONS, ridge=0.3),
        "Uniform": lambda: ib.Uniform(DIM, seed=4),
        "BOBLinUCB": lambda: ib.BOBLinUCB(DIM, horizon=300, seed=4, noise_scale=0.5),
        "ISDLinUCB theorem": lambda: ib.ISDLinUCB.from_history(history(), radius="theorem", feature_bound=9.0),
        "ISDLinUCB known split": lambda: ib.ISDLinUCB.from_history(
            history(), split=TRUE_SPLIT, recompute_every=30, memory=ib.Discount(0.97)
        ),
        "ISDLinTS from history": lambda: ib.ISDLinTS.from_history(history(), recompute_every=50, seed=4),
        "ISDLinUCB all invariant": lambda: ib.ISDLinUCB(EVERYTHING, np.ones(DIM), component_precision=np.eye(DIM)),
        "ISDLinUCB none invariant": lambda: ib.ISDLinUCB(NOTHING, np.zeros(DIM)),
    }


MAKERS = _makers()
RANDOMISED_BY_POSITION = ("EpsilonGreedy", "Uniform")
RANDOMISED = (*RANDOMISED_BY_POSITION, "LinTS", "ISDLinTS")


def play(policy, rounds: int, seed: int, spoil: bool = False) -> list[int]:
    """Let the policy play; with `spoil`, arrays handed over are overwritten afterwards."""
    rng = np.random.default_rng(seed)
    coefficients = np.array([1.0, -0.5, 0.3, 0.8])
    actions = []
    for _ in range(rounds):
        features = rng.normal(size=(ACTIONS, DIM))
        noise = rng.normal()
        action = policy.select(features)
        chosen = features[action].copy()
        policy.update(chosen, float(chosen @ coefficients + noise), offered=features, action=action)
        if spoil:
            chosen[:] = np.nan
            features[:] = np.nan
        actions.append(action)
    return actions


def bits(policy) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in policy.arrays().items()} | {"settings": repr(policy.settings())}


# -- the laws ---------------------------------------------------------------------------------------------------------


def law_deciding_never_changes_the_policy(make) -> None:
    policy = make()
    play(policy, 25, seed=0)
    features = np.random.default_rng(1).normal(size=(6, ACTIONS, DIM))
    before, first = bits(policy), [policy.select(x) for x in features]
    policy.scores(features[0])
    policy.select_many(features)
    policy.propensities(features[0])
    assert [policy.select(x) for x in features] == first
    assert bits(policy) == before


def law_learning_keeps_no_hold_on_the_callers_arrays(make) -> None:
    left, right = make(), make()
    assert play(left, 60, seed=0) == play(right, 60, seed=0, spoil=True)
    assert bits(left) == bits(right)


def law_the_same_seed_gives_the_same_decisions(make) -> None:
    assert play(make(), 60, seed=2) == play(make(), 60, seed=2)


def law_a_loaded_policy_decides_like_the_saved_one(make, path) -> None:
    policy = make()
    play(policy, 45, seed=0)
    ib.save(policy, path)
    loaded = ib.load(path)
    assert type(loaded) is type(policy)
    assert bits(loaded) == bits(policy)
    assert play(loaded, 1000, seed=1) == play(policy, 1000, seed=1)
    assert bits(loaded) == bits(policy)


def law_permuting_actions_permutes_the_choice(make) -> None:
    policy = make()
    play(policy, 30, seed=0)
    rng = np.random.default_rng(1)
    for _ in range(20):
        features, order = rng.normal(size=(ACTIONS, DIM)), rng.permutation(ACTIONS)
        if type(policy).__name__ in RANDOMISED_BY_POSITION:
            assert np.array_equal(policy.propensities(features[order]), policy.propensities(features)[order])
        else:
            assert order[policy.select(features[order])] == policy.select(features)


def law_bad_input_is_refused_and_changes_nothing(make) -> None:
    policy = make()
    play(policy, 20, seed=0)
    good = np.random.default_rng(1).normal(size=(ACTIONS, DIM))
    before = bits(policy)

    def spoiled(value):
        bad = good.copy()
        bad[1, 2] = value
        return bad

    offered = [spoiled(np.nan), spoiled(np.inf), spoiled(-np.inf), good[:, :-1], good[:0], good[0], good[None]]
    offered += ["features", None, good.astype(complex), [[1.0, 2.0], [3.0]]]
    for features in offered:
        for method in (policy.select, policy.scores, policy.propensities):
            with pytest.raises(ib.InputError, match="features"):
                method(features)
    many = np.stack([good, good])
    for features in (good, many[:, :, :-1], many[:0], np.stack([good, spoiled(np.nan)]), "features", None):
        with pytest.raises(ib.InputError, match="features"):
            policy.select_many(features)
    for row in (spoiled(np.nan)[1], spoiled(np.inf)[1], good[0, :-1], good, np.array([]), "row", None):
        with pytest.raises(ib.InputError, match="features"):
            policy.update(row, 1.0, offered=good, action=0)
    for reward in (np.nan, np.inf, -np.inf, "one", None, np.ones(2), 1j):
        with pytest.raises(ib.InputError, match="reward"):
            policy.update(good[0], reward, offered=good, action=0)
    assert bits(policy) == before


def law_numbers_too_large_to_square_are_refused(make) -> None:
    policy = make()
    play(policy, 20, seed=0)
    good = np.random.default_rng(1).normal(size=(ACTIONS, DIM))
    before, huge = bits(policy), good * 1e180
    for call in (
        lambda: policy.select(huge),
        lambda: policy.scores(huge),
        lambda: policy.propensities(huge),
        lambda: policy.select_many(huge[None]),
        lambda: policy.update(huge[0], 1.0, offered=good, action=0),
        lambda: policy.update(good[0], 1e180, offered=good, action=0),
    ):
        with pytest.raises(ib.InputError, match="squares"):
            call()
    assert bits(policy) == before


def law_any_array_like_of_the_right_shape_will_do(make) -> None:
    policy, plain = make(), make()
    rng = np.random.default_rng(1)
    for _ in range(10):
        features = rng.integers(-3, 4, size=(ACTIONS, DIM)).astype(float) + 0.25
        frozen = features.copy()
        frozen.flags.writeable = False
        action = plain.select(features)
        for same in (features.tolist(), features.astype(np.float32), np.asfortranarray(features), frozen):
            assert policy.select(same) == action
        wide = np.repeat(features, 2, axis=1)
        assert policy.select(wide[:, ::2]) == action
        policy.update(wide[action, ::2], np.float32(0.5), offered=features.tolist(), action=np.int64(action))
        plain.update(features[action], 0.5, offered=features, action=action)
    assert bits(policy) == bits(plain)


def law_a_batch_is_decided_like_its_rounds(make) -> None:
    policy = make()
    play(policy, 40, seed=0)
    batch = np.random.default_rng(1).normal(size=(50, ACTIONS, DIM))
    chosen = policy.select_many(batch)
    assert chosen.shape == (50,)
    assert chosen[0] == policy.select(batch[0])
    if type(policy).__name__ not in RANDOMISED:
        assert chosen.tolist() == [policy.select(features) for features in batch]
    elif not isinstance(policy, ib.Greedy):
        assert len(set(policy.select_many(np.repeat(batch[:1], 500, axis=0)).tolist())) > 1


def law_scores_explain_the_choice(make) -> None:
    policy = make()
    play(policy, 40, seed=0)
    for features in np.random.default_rng(1).normal(size=(20, ACTIONS, DIM)):
        scores = policy.scores(features)
        assert scores.mean.shape == scores.width.shape == (ACTIONS,)
        assert (scores.width >= 0).all()
        if type(policy).__name__ not in RANDOMISED:
            inner = getattr(policy, "exploration", 1.0)
            assert policy.select(features) == np.argmax(scores.mean + inner * scores.width)


def law_propensities_are_a_distribution(make) -> None:
    policy = make()
    play(policy, 40, seed=0)
    for features in np.random.default_rng(1).normal(size=(5, ACTIONS, DIM)):
        propensities = policy.propensities(features)
        assert propensities.shape == (ACTIONS,)
        assert (propensities >= 0).all()
        assert propensities.sum() == pytest.approx(1.0, abs=1e-12)
        if type(policy).__name__ not in RANDOMISED:
            assert propensities[policy.select(features)] == 1.0


LAWS = [law for name, law in list(globals().items()) if name.startswith("law_") and "loaded" not in name]
EXEMPT = {
    (law_permuting_actions_permutes_the_choice, "DisjointLinUCB"): "a model per position: positions have a meaning",
    (law_numbers_too_large_to_square_are_refused, "Uniform"): "it computes nothing from features",
}
CASES = [(law, name) for law in LAWS for name in MAKERS if (law, name) not in EXEMPT]
