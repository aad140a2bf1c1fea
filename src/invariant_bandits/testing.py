"""Laws that every policy obeys, and what they are tried on: a past, fresh policies, rounds of their own."""

from __future__ import annotations

import copy
import pickle
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from invariant_bandits.checks import Array, InputError
from invariant_bandits.logs.feedback import Feedback
from invariant_bandits.model.model import load, save
from invariant_bandits.policies.base import BasePolicy
from invariant_bandits.policies.choice import draw_action
from invariant_bandits.policies.past import Past
from invariant_bandits.policies.registry import policy_spec

DIM, ACTIONS = 4, 3
"""Features and actions of the rounds that laws are checked on: few, so that all laws take seconds."""
Make: TypeAlias = Callable[[], Any]


def example_past(seed: int = 3) -> Past:
    """Return logs of 600 rounds; their covariances and one of four coefficients change over four windows."""
    rng = np.random.default_rng(seed)
    scales = np.repeat(rng.uniform(0.4, 2.0, size=(4, DIM)), 150, axis=0)
    offered = rng.normal(size=(600, ACTIONS, DIM)) * scales[:, None]
    features = offered[:, 0]
    drifting = np.repeat([2.0, -1.0, 0.5, -2.0], 150)
    rewards = (
        features @ [1.0, -1.0, 0.5, 0.0]
        + drifting * features[:, 3]
        + rng.normal(size=600)
    )
    logs = Feedback.from_arrays(offered, np.zeros(600, dtype=np.int64), rewards)
    return Past(logs=logs, windows=4, horizon=300, actions=ACTIONS, suggested_window=12)


def maker_of(policy: Any) -> Make:
    """Return a function that makes a fresh policy from a fresh past."""
    spec = policy_spec("policy", policy)
    return lambda: spec.build(example_past())


def play(policy: Any, rounds: int, seed: int, spoil: bool = False) -> list[int]:
    """Let the policy play rounds of its own; with `spoil`, arrays handed over are overwritten afterwards."""
    rng = np.random.default_rng(seed)
    coefficients = np.array([1.0, -0.5, 0.3, 0.8])
    actions = []
    for _ in range(rounds):
        features, noise = rng.normal(size=(ACTIONS, DIM)), rng.normal()
        action = policy.select(features)
        chosen = features[action].copy()
        reward = as_it_takes(policy, chosen @ coefficients + noise)
        policy.update(chosen, float(reward), offered=features, action=action)
        if spoil:
            chosen[:] = np.nan
            features[:] = np.nan
        actions.append(action)
    return actions


def as_it_takes(policy: Any, rewards: Any) -> Array:
    """Return rewards, or clicks for a policy that takes nothing else."""
    clicks = getattr(policy, "link", "identity") == "logit"
    return np.where(rewards > 0.0, 1.0, 0.0) if clicks else np.asarray(rewards)


def bits(policy: Any) -> dict[str, Any]:
    """The whole state, comparable to the last bit."""
    state = {name: array.tobytes() for name, array in policy.arrays().items()}
    return state | {"settings": repr(sorted(policy.settings().items()))}


def some_rounds(count: int, seed: int = 1) -> Array:
    """Features (count, K, p) of rounds that no policy has learned."""
    return np.random.default_rng(seed).normal(size=(count, ACTIONS, DIM))


def played(make: Make, rounds: int) -> Any:
    """A fresh policy that has played so many rounds."""
    policy = make()
    play(policy, rounds, seed=0)
    return policy


def refused(words: str, call: Callable[[], Any]) -> None:
    """Assert that a call raises InputError with these words in it."""
    try:
        call()
    except InputError as error:
        said = str(error)
    else:
        raise AssertionError(f"bad {words} must be refused with InputError")
    assert words in said, f"the refusal must name {words}, got: {said}"


Law: TypeAlias = Callable[[Make], None]
LAWS: dict[str, Law] = {}
"""Law in words -> check of a function that makes fresh policies."""


def check_policy(policy: Any, laws: Mapping[str, Law] | None = None) -> None:
    """Raise AssertionError, which names the law, unless the policy obeys all laws without an exemption.

    policy: a registered name, a PolicySpec, a class, or a maker: Past -> policy, or nothing -> policy.
    """
    make = maker_of(policy)
    for words, law in (LAWS if laws is None else laws).items():
        if words in exemptions(make()):
            continue
        try:
            law(make)
        except Exception as error:
            raise AssertionError(f"the law is broken: {words}: {error!r}") from error


def exemptions(policy: Any) -> Mapping[str, str]:
    """Law -> why it cannot hold for this policy."""
    return getattr(policy, "exempt_laws", {})


def law(check: Law) -> Law:
    """Add a law; its name in words is what policies are exempt from."""
    LAWS[check.__name__.replace("_", " ")] = check
    return check


@law
def the_interface_is_whole(make: Make) -> None:
    """The policy is a BasePolicy, which models and files need."""
    policy = make()
    kind = type(getattr(policy, "policy", policy))
    assert isinstance(policy, BasePolicy), f"{kind.__name__} must be a BasePolicy"
    assert policy.dim == DIM
    assert policy.rounds >= 0


@law
def deciding_never_changes_the_policy(make: Make) -> None:
    """Nor does asking for scores and propensities."""
    policy, features = played(make, 25), some_rounds(6)
    before, first = bits(policy), [policy.select(x) for x in features]
    policy.scores(features[0])
    policy.select_many(features)
    policy.propensities(features[0])
    policy.decide(features[0], draw=0.5)
    assert [policy.decide(x).action for x in features] == first
    assert bits(policy) == before


@law
def select_propensities_scores_and_why_are_views_of_decide(make: Make) -> None:
    """All of them say the same, to the last bit."""
    policy = played(make, 40)
    for features in some_rounds(10):
        choice = policy.decide(features)
        assert choice.action == policy.select(features)
        assert choice.reason == policy.why(features)
        assert np.array_equal(choice.propensities, policy.propensities(features))
        scores = policy.scores(features)
        assert np.array_equal(choice.means, scores.mean)
        assert np.array_equal(choice.widths, scores.width)


@law
def a_number_draws_the_action_by_the_cumulative_propensities(make: Make) -> None:
    """Any number from 0 to 1, and no action of propensity 0."""
    policy, features = played(make, 40), some_rounds(1)[0]
    for draw in (0.0, 0.3, 0.999999, *np.random.default_rng(3).random(5).tolist()):
        choice = policy.decide(features, draw=draw)
        assert choice.action == draw_action(choice.propensities.tolist(), draw)
        assert choice.propensities[choice.action] > 0.0
        below = choice.propensities[: choice.action].sum()
        assert (
            below - 1e-12 <= draw <= below + choice.propensities[choice.action] + 1e-12
        )


@law
def the_same_seed_gives_the_same_decisions(make: Make) -> None:
    """No randomness but the policy's own."""
    assert play(make(), 60, seed=2) == play(make(), 60, seed=2)


@law
def permuting_actions_permutes_the_choice(make: Make) -> None:
    """The place of an action in the list means nothing."""
    policy, rng = played(make, 30), np.random.default_rng(1)
    for _ in range(20):
        features, order = rng.normal(size=(ACTIONS, DIM)), rng.permutation(ACTIONS)
        if policy.randomised:
            assert np.array_equal(
                policy.propensities(features[order]),
                policy.propensities(features)[order],
            )
        else:
            assert order[policy.select(features[order])] == policy.select(features)


@law
def any_array_like_of_the_right_shape_will_do(make: Make) -> None:
    """Lists, other number types, other memory layouts, frozen arrays."""
    policy, plain = make(), make()
    rng = np.random.default_rng(1)
    for _ in range(10):
        features = rng.integers(-3, 4, size=(ACTIONS, DIM)).astype(float) + 0.25
        frozen = features.copy()
        frozen.flags.writeable = False
        action = plain.select(features)
        rare = np.asfortranarray(features)
        strided = np.repeat(features, 2, axis=1)[:, ::2]
        for same in (
            features.tolist(),
            features.astype(np.float32),
            rare,
            strided,
            frozen,
        ):
            assert policy.select(same) == action
        policy.update(
            strided[action],
            np.float32(0.5),
            offered=features.tolist(),
            action=np.int64(action),
        )
        plain.update(features[action], 0.5, offered=features, action=action)
    assert bits(policy) == bits(plain)


@law
def a_batch_is_decided_like_its_rounds(make: Make) -> None:
    """The first as `select` decides it; all, unless the policy draws."""
    policy, batch = played(make, 40), some_rounds(50)
    chosen = policy.select_many(batch)
    assert chosen.shape == (50,)
    assert chosen[0] == policy.select(batch[0])
    if not policy.randomised:
        assert chosen.tolist() == [policy.select(features) for features in batch]
    else:
        likely = policy.propensities(batch[0]).max()
        drawn = policy.select_many(np.repeat(batch[:1], 500, axis=0))
        assert len(set(drawn.tolist())) > 1 or likely > 0.98


@law
def scores_explain_the_choice(make: Make) -> None:
    """`select` maximises mean + exploration · width, unless the policy draws or tests a neglected action."""
    policy = played(make, 40)
    for features in some_rounds(20):
        scores = policy.scores(features)
        assert scores.mean.shape == scores.width.shape == (ACTIONS,)
        assert (scores.width >= 0).all()
        if not policy.randomised:
            if policy.why(features) == "test":
                continue
            inner = getattr(policy, "exploration", 1.0)
            assert policy.select(features) == np.argmax(
                scores.mean + inner * scores.width
            )


@law
def propensities_are_a_distribution(make: Make) -> None:
    """Not negative, adding up to one, and all on the choice of a policy that does not draw."""
    policy = played(make, 40)
    for features in some_rounds(5):
        propensities = policy.propensities(features)
        assert propensities.shape == (ACTIONS,)
        assert (propensities >= 0).all()
        assert abs(propensities.sum() - 1.0) <= 1e-12
        if not policy.randomised:
            assert propensities[policy.select(features)] == 1.0


@law
def learning_keeps_no_hold_on_the_callers_arrays(make: Make) -> None:
    """What the caller does to its arrays afterwards has no effect."""
    left, right = make(), make()
    assert play(left, 60, seed=0) == play(right, 60, seed=0, spoil=True)
    assert bits(left) == bits(right)


@law
def a_loaded_policy_decides_like_the_saved_one(make: Make) -> None:
    """For the next thousand rounds, bit for bit."""
    policy = played(make, 45)
    with tempfile.TemporaryDirectory() as folder:
        save(policy, Path(folder) / "policy")
        loaded = load(Path(folder) / "policy")
    assert type(loaded) is type(policy)
    assert bits(loaded) == bits(policy)
    assert play(loaded, 1000, seed=1) == play(policy, 1000, seed=1)
    assert bits(loaded) == bits(policy)


def can_be_found(kind: type) -> bool:
    """Return whether a class can be imported by its name: one typed into a prompt cannot be pickled."""
    return getattr(sys.modules.get(kind.__module__), kind.__qualname__, None) is kind


@law
def a_copy_goes_on_by_itself(make: Make) -> None:
    """A copy, deep copy or pickle decides and learns as the original would, and leaves that alone."""
    policy, twin = played(make, 25), played(make, 25)
    wanted = play(twin, 25, seed=5)
    before = bits(policy)
    copies = [copy.copy(policy), copy.deepcopy(policy)]
    if can_be_found(type(policy)):
        copies.append(pickle.loads(pickle.dumps(policy)))
    for copied in copies:
        assert play(copied, 25, seed=5) == wanted
        assert bits(copied) == bits(twin)
        assert bits(policy) == before


@law
def many_rounds_are_learned_like_one_after_another(make: Make) -> None:
    """Many rounds are learned bit for bit, and all or none, by policies that have `update_many`."""
    one_by_one = played(make, 10)
    at_once = played(make, 10)
    rng = np.random.default_rng(4)
    if not hasattr(at_once, "update_many"):
        return
    offered = rng.normal(size=(30, ACTIONS, DIM))
    rewards = as_it_takes(at_once, rng.normal(size=30))
    actions = rng.integers(ACTIONS, size=30)
    rows = offered[np.arange(30), actions]
    for row, reward, others, action in zip(
        rows, rewards, offered, actions, strict=True
    ):
        one_by_one.update(row, reward, offered=others, action=action)
    at_once.update_many(rows, rewards, offered=offered, actions=actions)
    assert bits(at_once) == bits(one_by_one)
    spoiled = rewards.copy()
    spoiled[-1] = np.nan
    learn = partial(at_once.update_many, offered=offered, actions=actions)
    refused("rewards", lambda: learn(rows, spoiled))
    refused("rewards", lambda: learn(rows, rewards[:-1]))
    refused("features", lambda: learn(rows[:, :-1], rewards))
    # A number too large to square is noticed when its round is learned.
    if "numbers too large to square are refused" not in exemptions(at_once):
        spoiled[-1] = 1e180
        refused("squares", lambda: learn(rows, spoiled))
    assert bits(at_once) == bits(one_by_one)
    assert play(at_once, 50, seed=5) == play(one_by_one, 50, seed=5)


def _bad_features(good: Array) -> list[Any]:
    """Features (K, p) or (p,) with something that no policy may take."""
    spoiled = [
        np.where(np.arange(good.size).reshape(good.shape) == 2, bad, good)
        for bad in NO_NUMBERS[:3]
    ]
    shapes = [
        good[..., :-1],
        good[:0],
        good[0],
        good[None],
        "features",
        None,
        [[1.0, 2.0], [3.0]],
    ]
    kinds = [
        good.astype(kind) for kind in (complex, str, "datetime64[s]", "timedelta64[s]")
    ]
    return [
        *spoiled,
        *shapes,
        *kinds,
        np.ma.array(good),
        np.full(good.shape, 10**400, dtype=object).tolist(),
    ]


# Each is refused where a number is expected, the first whole numbers because no float holds them.
NO_NUMBERS = (
    np.nan,
    np.inf,
    -np.inf,
    10**400,
    "1.0",
    None,
    np.ones(2),
    np.datetime64(1, "s"),
    np.ma.masked,
)


@law
def bad_input_is_refused_and_changes_nothing(make: Make) -> None:
    """NaN, infinity, wrong shapes, text, dates, masked arrays, whole numbers beyond all floats."""
    policy, good = played(make, 20), some_rounds(1)[0]
    before = bits(policy)
    for features in _bad_features(good):
        for method in (policy.select, policy.scores, policy.propensities):
            refused("features", partial(method, features))
        refused("features", partial(policy.select_many, [good, features]))
    for row in _bad_features(good[0]):
        refused("features", partial(policy.update, row, 1.0, offered=good, action=0))
    for reward in NO_NUMBERS:
        refused(
            "reward",
            partial(policy.update, good[0], reward, offered=good, action=0),
        )
    assert bits(policy) == before


@law
def numbers_too_large_to_square_are_refused(make: Make) -> None:
    """Finite numbers whose squares overflow would end in NaN."""
    policy, good = played(make, 20), some_rounds(1)[0]
    before, huge = bits(policy), good * 1e180
    for ask in (policy.select, policy.scores, policy.propensities):
        refused("squares", partial(ask, huge))
    refused("squares", lambda: policy.select_many(huge[None]))
    refused("squares", lambda: policy.update(huge[0], 1.0, offered=good, action=0))
    refused("squares", lambda: policy.update(good[0], 1e180, offered=good, action=0))
    assert bits(policy) == before
