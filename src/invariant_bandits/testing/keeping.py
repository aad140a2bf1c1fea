"""Laws of learning and keeping: rounds one by one or many at once, files, copies."""

from __future__ import annotations

import copy
import pickle
import sys
import tempfile
from pathlib import Path

import numpy as np

from invariant_bandits.policies.state import load, save
from invariant_bandits.testing.checking import exemptions, law
from invariant_bandits.testing.playing import ACTIONS, DIM, Make, as_it_takes, bits, play, played, refused


@law("learning keeps no hold on the caller's arrays")
def learning_keeps_no_hold_on_the_callers_arrays(make: Make) -> None:
    """What the caller does to its arrays afterwards has no effect."""
    left, right = make(), make()
    assert play(left, 60, seed=0) == play(right, 60, seed=0, spoil=True)
    assert bits(left) == bits(right)


@law("a loaded policy decides like the saved one")
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
    """Whether a class can be imported by its name: others, such as one typed into a prompt, cannot be pickled."""
    return getattr(sys.modules.get(kind.__module__), kind.__qualname__, None) is kind


@law("a copy goes on by itself")
def a_copy_goes_on_by_itself(make: Make) -> None:
    """Copied, deeply copied or pickled, it decides and learns as the original would, and leaves that alone."""
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


@law("many rounds are learned like one after another")
def many_rounds_are_learned_like_one_after_another(make: Make) -> None:
    """Bit for bit, and all of them or none; for policies that have `update_many`, as all of the library's do."""
    one_by_one, at_once, rng = played(make, 10), played(make, 10), np.random.default_rng(4)
    if not hasattr(at_once, "update_many"):
        return
    offered, rewards = rng.normal(size=(30, ACTIONS, DIM)), as_it_takes(at_once, rng.normal(size=30))
    actions = rng.integers(ACTIONS, size=30)
    rows = offered[np.arange(30), actions]
    for row, reward, others, action in zip(rows, rewards, offered, actions, strict=True):
        one_by_one.update(row, reward, offered=others, action=action)
    at_once.update_many(rows, rewards, offered=offered, actions=actions)
    assert bits(at_once) == bits(one_by_one)
    spoiled = rewards.copy()
    spoiled[-1] = np.nan
    refused("rewards", lambda: at_once.update_many(rows, spoiled, offered=offered, actions=actions))
    refused("rewards", lambda: at_once.update_many(rows, rewards[:-1], offered=offered, actions=actions))
    refused("features", lambda: at_once.update_many(rows[:, :-1], rewards, offered=offered, actions=actions))
    if "numbers too large to square are refused" not in exemptions(at_once):  # only found out when its turn has come
        spoiled[-1] = 1e180
        refused("squares", lambda: at_once.update_many(rows, spoiled, offered=offered, actions=actions))
    assert bits(at_once) == bits(one_by_one)
    assert play(at_once, 50, seed=5) == play(one_by_one, 50, seed=5)
