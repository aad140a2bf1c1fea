"""Threads that share a policy: no lost round, no torn answer, no crash; copies have locks of their own."""

import copy
import json
import multiprocessing
import pickle
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import invariant_bandits as ib
import policy_laws
import sharing_trials
import thread_laws
from invariant_bandits import testing
from invariant_bandits.storage import lock_of

SCRIPT = Path(sharing_trials.__file__)
HALVES = list(sharing_trials.MAKERS)[::2], list(sharing_trials.MAKERS)[1::2]


def tried(*given):
    """What the script found, or None if the interpreter crashed."""
    run = subprocess.run(
        [sys.executable, SCRIPT, *given], capture_output=True, text=True, timeout=300
    )
    return json.loads(run.stdout) if run.returncode == 0 else None


@pytest.mark.system
@pytest.mark.parametrize("makers", HALVES, ids=["one half", "the other half"])
def test_every_policy_can_be_shared(makers):
    assert len(sharing_trials.LAWS) == 2
    assert tried(*makers) == {words: [] for words in makers}


@pytest.mark.system
def test_the_laws_notice_a_missing_lock():
    """Each is noticed in nearly every try, most of them in all; one of three is enough here."""
    missing = {
        "linucb, window",
        "lints, forever",
        "auto-isd",
        "guarded",
    }
    for _ in range(3):
        found = tried("--without-locks", *sorted(missing))
        if found is None:  # crashed
            return
        missing -= {words for words, laws in found.items() if laws}
    assert not missing


class Tally(ib.LinUCB):
    """Adds to the state of LinUCB, and forgets the lock."""

    total = 0.0

    def update(self, features, reward, *, offered=None, action=None):
        super().update(features, reward)
        before = self.total
        time.sleep(1e-5)  # another thread runs here, also on a busy machine
        self.total = before + reward

    def arrays(self):
        return super().arrays() | {"total": np.array([self.total])}


class CarefulTally(Tally):
    """The same with the lock."""

    def update(self, features, reward, *, offered=None, action=None):
        with lock_of(self):
            super().update(features, reward)


LEARNING = {"learning": thread_laws.LAWS["threads learn as if one after another"]}


def test_a_policy_of_ones_own_needs_the_lock_for_what_it_adds():
    testing.check_policy(lambda: CarefulTally(testing.DIM), LEARNING)
    with pytest.raises(AssertionError, match="the same round"):
        testing.check_policy(lambda: Tally(testing.DIM), LEARNING)


def test_a_batch_that_fails_in_the_middle_is_never_seen():
    """While one thread's batches are rolled back, others see the state before them, and their rounds stay."""
    policy = ib.LinUCB(2)
    policy.update([1.0, 0.0], 1.0)
    before = testing.bits(policy)
    rows, rewards = np.ones((5, 2)), np.array([1.0, 1.0, 1.0, 1.0, 1e180])
    seen = []

    def fail():
        for _ in range(50):
            with pytest.raises(ib.InputError, match="squares"):
                policy.update_many(rows, rewards)

    def look():
        for _ in range(200):
            seen.append(
                (policy.scores(np.eye(2)).mean.tolist(), policy.select(np.eye(2)))
            )

    thread_laws.at_once(fail, fail, look, look)
    assert testing.bits(policy) == before
    assert len(seen) == 400
    assert seen.count(seen[0]) == 400


# -- copies and processes --


@pytest.mark.system
def test_spawned_processes_continue_every_policy_bit_for_bit():
    makers = {
        words: make
        for words, make in sharing_trials.MAKERS.items()
        if not words.endswith((", restart", "cold"))
    }
    policies = {words: make() for words, make in makers.items()}
    for policy in policies.values():
        testing.play(policy, 25, seed=0)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        there = pool.starmap(
            testing.play, [(policy, 25, 5) for policy in policies.values()]
        )
        states = pool.map(testing.bits, list(policies.values()))
    assert states == [testing.bits(policy) for policy in policies.values()]
    assert there == [testing.play(policy, 25, 5) for policy in policies.values()]


@pytest.mark.parametrize(
    "memory", policy_laws.MEMORIES.values(), ids=policy_laws.MEMORIES
)
def test_memories_are_copied_and_pickled(memory):
    state = memory.begin(2, 0.5)
    for _ in range(12):
        state.learn(np.array([1.0, -0.5]), 1.0, np.zeros((2, 0)))
    for copied in (copy.deepcopy(state), pickle.loads(pickle.dumps(state))):
        copied.learn(np.ones(2), 1.0, np.zeros((2, 0)))
        assert copied.rounds != state.rounds or not np.array_equal(
            copied.factor, state.factor
        )
        twin = copy.deepcopy(state)
        twin.learn(np.ones(2), 1.0, np.zeros((2, 0)))
        assert {name: one.tobytes() for name, one in twin.arrays().items()} == {
            name: one.tobytes() for name, one in copied.arrays().items()
        }
    assert pickle.loads(pickle.dumps(memory)) == copy.deepcopy(memory) == memory


def test_a_wrapper_and_what_it_wraps_have_one_lock_also_in_copies():
    policy = ib.Randomised(ib.Randomised(ib.LinUCB(2)))
    for one in (
        policy,
        copy.copy(policy),
        copy.deepcopy(policy),
        pickle.loads(pickle.dumps(policy)),
    ):
        assert lock_of(one) is lock_of(one.policy) is lock_of(one.policy.policy)
    assert lock_of(copy.deepcopy(policy)) is not lock_of(policy)
