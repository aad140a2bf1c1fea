"""Laws of policies that threads share: no lost round, and no answer from the middle of one."""

import copy
import pickle
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from threading import Barrier, Event
from time import sleep
from types import FrameType
from typing import Any

import numpy as np

from invariant_bandits.policies.base import to_bytes
from invariant_bandits.testing import (
    Law,
    Make,
    as_it_takes,
    bits,
    can_be_found,
    played,
    some_rounds,
)

LAWS: dict[str, Law] = {}
"""Law in words -> check of a function that makes fresh policies."""


def law(check: Law) -> Law:
    """Add a law."""
    LAWS[check.__name__.replace("_", " ")] = check
    return check


POLICY_CODE = "invariant_bandits.policies"
THREADS = 4
SHORTEST_TURN = 1e-6
"""Seconds after which a thread has to let another one go on; Python's default is 0.005."""
LINES, REST = 37, 5e-4
"""After so many lines of all threads one of them rests for so many seconds: long enough for a round of
the others.
"""
LONGEST_WAIT = 60.0
"""Seconds after which threads are taken to wait for each other for ever."""
LEARNED_EACH = 25


def at_once(*jobs: Callable[[], None], code: tuple[str, ...] = (POLICY_CODE,)) -> None:
    """Run every job in a thread of its own, beginning together; raises what the first of them raised.

    code: modules, or packages of such, in whose lines threads rest now and then, so that others overtake them
    there.
    """
    together, lines, pool = Barrier(len(jobs)), count(), ThreadPoolExecutor(len(jobs))

    def let_go(frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_globals.get("__name__", "").startswith(code):
            return None
        if event == "line" and next(lines) % LINES == 0:
            sleep(REST)
        return let_go

    def run(job: Callable[[], None]) -> None:
        together.wait(LONGEST_WAIT)
        sys.settrace(let_go)
        job()

    before = sys.getswitchinterval()
    sys.setswitchinterval(SHORTEST_TURN)
    try:
        for future in [pool.submit(run, job) for job in jobs]:
            future.result(LONGEST_WAIT)
    except TimeoutError:
        raise AssertionError("threads wait for each other") from None
    finally:
        sys.setswitchinterval(before)
        pool.shutdown(wait=False)


def _code_of(policy: Any) -> tuple[str, ...]:
    """Where policies stand, and where the class of this one and what it inherits do."""
    return (
        POLICY_CODE,
        *{kind.__module__ for kind in type(policy).__mro__ if kind is not object},
    )


def _learn(policy: Any, offered: Any, times: int) -> None:
    """Learn one and the same round several times."""
    row, reward = offered[1].copy(), float(as_it_takes(policy, 0.25))
    for _ in range(times):
        policy.update(row, reward, offered=offered, action=1)


@law
def threads_learn_as_if_one_after_another(make: Make) -> None:
    """The same round many times: its order means nothing."""
    offered = some_rounds(1, seed=7)[0]
    shared, alone = played(make, 20), played(make, 20)
    at_once(
        *[partial(_learn, shared, offered, LEARNED_EACH)] * THREADS,
        code=_code_of(shared),
    )
    _learn(alone, offered, THREADS * LEARNED_EACH)
    assert bits(shared) == bits(alone), (
        f"after {THREADS * LEARNED_EACH} times the same round"
    )


def _questions(features: Any, kind: type) -> dict[str, Callable[[Any], Any]]:
    """Return what readers ask a policy; every answer must come from a single state."""

    def scored(policy: Any) -> bytes:
        scores = policy.scores(features[0])
        return np.stack([scores.mean, scores.width]).tobytes()

    questions: dict[str, Callable[[Any], Any]] = {
        "scores": scored,
        "select": lambda policy: policy.select(features[0]),
        "propensities": lambda policy: np.asarray(
            policy.propensities(features[0])
        ).tobytes(),
        "select_many": lambda policy: policy.select_many(features).tolist(),
        "the saved policy": to_bytes,
        "the copied policy": lambda policy: bits(copy.deepcopy(policy)),
    }
    if can_be_found(kind):
        questions["the pickled policy"] = lambda policy: bits(
            pickle.loads(pickle.dumps(policy))
        )
    return questions


@law
def a_thread_is_answered_in_a_state_that_was(make: Make) -> None:
    """Two threads ask while another one learns: no answer comes from the middle of a round."""
    features = some_rounds(20, seed=8)
    shared, alone = played(make, 20), played(make, 20)
    questions = _questions(features, type(shared))
    possible: dict[str, list[Any]] = {
        words: [ask(alone)] for words, ask in questions.items()
    }
    for _ in range(LEARNED_EACH):
        _learn(alone, features[1], 1)
        for words, ask in questions.items():
            possible[words].append(ask(alone))
    ended = Event()

    def ask_all() -> None:
        last = False
        while not last:
            last = ended.is_set()  # once more in the last state
            for words, ask in questions.items():
                assert ask(shared) in possible[words], (
                    f"{words}: the answer of no state"
                )

    def learn() -> None:
        try:
            _learn(shared, features[1], LEARNED_EACH)
        finally:
            ended.set()

    at_once(ask_all, ask_all, learn, code=_code_of(shared))
    assert bits(shared) == bits(alone)
