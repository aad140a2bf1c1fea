"""The laws that every policy obeys: for those of this library and for anybody's own.

    import invariant_bandits.testing as laws

    def test_my_policy_obeys_the_laws():
        laws.check_policy("linucb-decaying")          # a registered name, a class, or a maker: past -> policy

or law by law, each a test of its own:

    @pytest.mark.parametrize("law", laws.LAWS)
    def test_my_policy(law):
        laws.LAWS[law](lambda: MyPolicy.from_past(laws.example_past()))

A class may say that a law cannot hold for it: `exempt_laws = {"the law": "why"}`; one that draws its actions says
`randomised = True`.
"""

from __future__ import annotations

import copy
import pickle
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from invariant_bandits.checks import Array, InputError
from invariant_bandits.logs.feedback import Feedback
from invariant_bandits.policies.base import Policy
from invariant_bandits.policies.memory import Discount, Forever, Restart, SlidingWindow
from invariant_bandits.policies.past import Past
from invariant_bandits.policies.registry import POLICIES, Contender, build_policy, find_policy
from invariant_bandits.policies.state import load, save

DIM, ACTIONS = 4, 3
MEMORIES = {
    "forever": Forever(),
    "window": SlidingWindow(7),
    "discount": Discount(0.9),
    "restart": Restart(9),
}
Make: TypeAlias = Callable[[], Any]
Law: TypeAlias = Callable[[Make], None]
LAWS: dict[str, Law] = {}
"""Law in words -> check of a function that makes fresh policies."""


def example_past(seed: int = 3, horizon: int = 300) -> Past:
    """Logs of 600 rounds whose covariances change over four windows, and one of four coefficients with them."""
    rng = np.random.default_rng(seed)
    scales = np.repeat(rng.uniform(0.4, 2.0, size=(4, DIM)), 150, axis=0)
    offered = rng.normal(size=(600, ACTIONS, DIM)) * scales[:, None]
    features = offered[:, 0]
    drifting = np.repeat([2.0, -1.0, 0.5, -2.0], 150)
    rewards = features @ [1.0, -1.0, 0.5, 0.0] + drifting * features[:, 3] + rng.normal(size=600)
    logs = Feedback.from_arrays(offered, np.zeros(600, dtype=np.int64), rewards)
    return Past(logs=logs, windows=4, horizon=horizon, actions=ACTIONS, remembered=12)


def registered_makers() -> dict[str, Make]:
    """Words -> maker of every registered policy, with every memory where it takes one."""
    makers: dict[str, Make] = {}
    for entry in POLICIES:
        for words, memory in MEMORIES.items() if entry.takes("memory") else [("", None)]:
            options = {} if memory is None else {"memory": memory}
            label = f"{entry.name}, {words}" if words else entry.name
            makers[label] = _maker(Contender(entry.name, options))
    return makers


def _maker(contender: Contender) -> Make:
    return lambda: contender(example_past())


def check_policy(policy: Any, laws: Mapping[str, Law] | None = None) -> None:
    """Raise AssertionError, which names the law, unless the policy obeys every law that it is not exempt from.

    policy: a registered name, a class with `from_past`, or a maker: Past -> policy, or nothing -> policy.
    """
    maker = Contender(find_policy(policy).name) if isinstance(policy, str) else policy

    def make() -> Any:
        return build_policy(maker, example_past())

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


def law(words: str) -> Callable[[Law], Law]:
    """Add a law under its words."""

    def added(check: Law) -> Law:
        LAWS[words] = check
        return check

    return added


# -- playing ----------------------------------------------------------------------------------------------------------


def play(policy: Any, rounds: int, seed: int, spoil: bool = False) -> list[int]:
    """Let the policy play rounds of its own; with `spoil`, arrays handed over are overwritten afterwards."""
    rng = np.random.default_rng(seed)
    coefficients = np.array([1.0, -0.5, 0.3, 0.8])
    actions = []
    for _ in range(rounds):
        features = rng.normal(size=(ACTIONS, DIM))
        noise = rng.normal()
        action = policy.select(features)
        chosen = features[action].copy()
        reward = _as_it_takes(policy, chosen @ coefficients + noise)
        policy.update(chosen, float(reward), offered=features, action=action)
        if spoil:
            chosen[:] = np.nan
            features[:] = np.nan
        actions.append(action)
    return actions


def _as_it_takes(policy: Any, rewards: Any) -> Array:
    """Rewards, or clicks for a policy that takes nothing else."""
    clicks = getattr(policy, "link", "identity") == "logit"
    return np.where(rewards > 0.0, 1.0, 0.0) if clicks else np.asarray(rewards)


def bits(policy: Any) -> dict[str, Any]:
    """The whole state, comparable to the last bit."""
    state = {name: array.tobytes() for name, array in policy.arrays().items()}
    return state | {"settings": repr(sorted(policy.settings().items()))}


def _rounds(count: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).normal(size=(count, ACTIONS, DIM))


def _played(make: Make, rounds: int) -> Any:
    policy = make()
    play(policy, rounds, seed=0)
    return policy


def _is_randomised(policy: Any) -> bool:
    return bool(getattr(policy, "randomised", False))


def _refused(words: str, call: Callable[[], Any]) -> None:
    """Assert that a call raises InputError with these words in it."""
    try:
        call()
    except InputError as error:
        said = str(error)
    else:
        raise AssertionError(f"bad {words} must be refused with InputError")
    assert words in said, f"the refusal must name {words}, got: {said}"


# -- the laws ---------------------------------------------------------------------------------------------------------


@law("the interface is whole")
def the_interface_is_whole(make: Make) -> None:
    """Every method of Policy is there."""
    policy = make()
    assert isinstance(policy, Policy), f"{type(policy).__name__} lacks some of the methods of Policy"
    assert policy.dim == DIM
    assert policy.rounds >= 0


@law("deciding never changes the policy")
def deciding_never_changes_the_policy(make: Make) -> None:
    """Nor does asking for scores and propensities."""
    policy, features = _played(make, 25), _rounds(6)
    before, first = bits(policy), [policy.select(x) for x in features]
    policy.scores(features[0])
    policy.select_many(features)
    policy.propensities(features[0])
    assert [policy.select(x) for x in features] == first
    assert bits(policy) == before


@law("learning keeps no hold on the caller's arrays")
def learning_keeps_no_hold_on_the_callers_arrays(make: Make) -> None:
    """What the caller does to its arrays afterwards has no effect."""
    left, right = make(), make()
    assert play(left, 60, seed=0) == play(right, 60, seed=0, spoil=True)
    assert bits(left) == bits(right)


@law("the same seed gives the same decisions")
def the_same_seed_gives_the_same_decisions(make: Make) -> None:
    """No randomness but the policy's own."""
    assert play(make(), 60, seed=2) == play(make(), 60, seed=2)


@law("a loaded policy decides like the saved one")
def a_loaded_policy_decides_like_the_saved_one(make: Make) -> None:
    """For the next thousand rounds, bit for bit."""
    policy = _played(make, 45)
    with tempfile.TemporaryDirectory() as folder:
        save(policy, Path(folder) / "policy")
        loaded = load(Path(folder) / "policy")
    assert type(loaded) is type(policy)
    assert bits(loaded) == bits(policy)
    assert play(loaded, 1000, seed=1) == play(policy, 1000, seed=1)
    assert bits(loaded) == bits(policy)


def _can_be_found(kind: type) -> bool:
    """Whether a class can be imported by its name: others, such as one typed into a prompt, cannot be pickled."""
    return getattr(sys.modules.get(kind.__module__), kind.__qualname__, None) is kind


@law("a copy goes on by itself")
def a_copy_goes_on_by_itself(make: Make) -> None:
    """Copied, deeply copied or pickled, it decides and learns as the original would, and leaves that alone."""
    policy, twin = _played(make, 25), _played(make, 25)
    wanted = play(twin, 25, seed=5)
    before = bits(policy)
    copies = [copy.copy(policy), copy.deepcopy(policy)]
    if _can_be_found(type(policy)):
        copies.append(pickle.loads(pickle.dumps(policy)))
    for copied in copies:
        assert play(copied, 25, seed=5) == wanted
        assert bits(copied) == bits(twin)
        assert bits(policy) == before


@law("many rounds are learned like one after another")
def many_rounds_are_learned_like_one_after_another(make: Make) -> None:
    """Bit for bit, and all of them or none; for policies that have `update_many`, as all of the library's do."""
    one_by_one, at_once, rng = _played(make, 10), _played(make, 10), np.random.default_rng(4)
    if not hasattr(at_once, "update_many"):
        return
    offered, rewards = rng.normal(size=(30, ACTIONS, DIM)), _as_it_takes(at_once, rng.normal(size=30))
    actions = rng.integers(ACTIONS, size=30)
    rows = offered[np.arange(30), actions]
    for row, reward, others, action in zip(rows, rewards, offered, actions, strict=True):
        one_by_one.update(row, reward, offered=others, action=action)
    at_once.update_many(rows, rewards, offered=offered, actions=actions)
    assert bits(at_once) == bits(one_by_one)
    spoiled = rewards.copy()
    spoiled[-1] = np.nan
    _refused("rewards", lambda: at_once.update_many(rows, spoiled, offered=offered, actions=actions))
    _refused("rewards", lambda: at_once.update_many(rows, rewards[:-1], offered=offered, actions=actions))
    _refused("features", lambda: at_once.update_many(rows[:, :-1], rewards, offered=offered, actions=actions))
    if "numbers too large to square are refused" not in exemptions(at_once):  # only found out when its turn has come
        spoiled[-1] = 1e180
        _refused("squares", lambda: at_once.update_many(rows, spoiled, offered=offered, actions=actions))
    assert bits(at_once) == bits(one_by_one)
    assert play(at_once, 50, seed=5) == play(one_by_one, 50, seed=5)


@law("permuting actions permutes the choice")
def permuting_actions_permutes_the_choice(make: Make) -> None:
    """The place of an action in the list means nothing."""
    policy, rng = _played(make, 30), np.random.default_rng(1)
    for _ in range(20):
        features, order = rng.normal(size=(ACTIONS, DIM)), rng.permutation(ACTIONS)
        if _is_randomised(policy):
            assert np.array_equal(policy.propensities(features[order]), policy.propensities(features)[order])
        else:
            assert order[policy.select(features[order])] == policy.select(features)


def _spoiled(good: Array, value: float) -> Array:
    bad = good.copy()
    bad[1, 2] = value
    return bad


def _bad_offered(good: Array) -> Iterator[Any]:
    yield from (_spoiled(good, value) for value in (np.nan, np.inf, -np.inf))
    yield from (
        good[:, :-1],
        good[:0],
        good[0],
        good[None],
        "features",
        None,
        good.astype(complex),
        [[1.0, 2.0], [3.0]],
    )


@law("bad input is refused and changes nothing")
def bad_input_is_refused_and_changes_nothing(make: Make) -> None:
    """NaN, infinity, wrong shapes, text."""
    policy, good = _played(make, 20), _rounds(1)[0]
    before = bits(policy)
    for features in _bad_offered(good):
        for method in (policy.select, policy.scores, policy.propensities):
            _refused("features", partial(method, features))
    many = np.stack([good, good])
    for batch in (good, many[:, :, :-1], many[:0], np.stack([good, _spoiled(good, np.nan)]), "features", None):
        _refused("features", partial(policy.select_many, batch))
    rows = (_spoiled(good, np.nan)[1], _spoiled(good, np.inf)[1], good[0, :-1], good, np.array([]), "row", None)
    for row in rows:
        _refused("features", partial(policy.update, row, 1.0, offered=good, action=0))
    for reward in (np.nan, np.inf, -np.inf, "one", None, np.ones(2), 1j):
        _refused("reward", partial(policy.update, good[0], reward, offered=good, action=0))
    assert bits(policy) == before


@law("numbers too large to square are refused")
def numbers_too_large_to_square_are_refused(make: Make) -> None:
    """Finite numbers whose squares overflow would end in NaN."""
    policy, good = _played(make, 20), _rounds(1)[0]
    before, huge = bits(policy), good * 1e180
    for call in (
        lambda: policy.select(huge),
        lambda: policy.scores(huge),
        lambda: policy.propensities(huge),
        lambda: policy.select_many(huge[None]),
        lambda: policy.update(huge[0], 1.0, offered=good, action=0),
        lambda: policy.update(good[0], 1e180, offered=good, action=0),
    ):
        _refused("squares", call)
    assert bits(policy) == before


@law("any array-like of the right shape will do")
def any_array_like_of_the_right_shape_will_do(make: Make) -> None:
    """Lists, other number types, other memory layouts, frozen arrays."""
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


@law("a batch is decided like its rounds")
def a_batch_is_decided_like_its_rounds(make: Make) -> None:
    """The first as `select` decides it; all, unless the policy draws."""
    policy, batch = _played(make, 40), _rounds(50)
    chosen = policy.select_many(batch)
    assert chosen.shape == (50,)
    assert chosen[0] == policy.select(batch[0])
    if not _is_randomised(policy):
        assert chosen.tolist() == [policy.select(features) for features in batch]
    else:
        likely = policy.propensities(batch[0]).max()
        drawn = policy.select_many(np.repeat(batch[:1], 500, axis=0))
        assert len(set(drawn.tolist())) > 1 or likely > 0.98


@law("scores explain the choice")
def scores_explain_the_choice(make: Make) -> None:
    """`select` maximises mean + exploration · width, unless the policy draws."""
    policy = _played(make, 40)
    for features in _rounds(20):
        scores = policy.scores(features)
        assert scores.mean.shape == scores.width.shape == (ACTIONS,)
        assert (scores.width >= 0).all()
        if not _is_randomised(policy):
            inner = getattr(policy, "exploration", 1.0)
            assert policy.select(features) == np.argmax(scores.mean + inner * scores.width)


@law("propensities are a distribution")
def propensities_are_a_distribution(make: Make) -> None:
    """Not negative, adding up to one, and all on the choice of a policy that does not draw."""
    policy = _played(make, 40)
    for features in _rounds(5):
        propensities = policy.propensities(features)
        assert propensities.shape == (ACTIONS,)
        assert (propensities >= 0).all()
        assert abs(propensities.sum() - 1.0) <= 1e-12
        if not _is_randomised(policy):
            assert propensities[policy.select(features)] == 1.0
