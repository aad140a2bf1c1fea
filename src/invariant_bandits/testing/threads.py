"""Laws of sharing: what threads do to one policy at the same time, they could have done one after another."""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count, permutations
from threading import Barrier, Event, Thread
from time import sleep
from types import FrameType
from typing import Any

import numpy as np

from invariant_bandits.policies.state import to_bytes
from invariant_bandits.testing.checking import law
from invariant_bandits.testing.keeping import can_be_found
from invariant_bandits.testing.playing import Make, as_it_takes, bits, played, some_rounds

POLICIES = "invariant_bandits.policies"
THREADS = 4
SHORTEST_TURN = 1e-6
"""Seconds after which a thread has to let another one go on, 0.005 if nobody says so."""
LINES, REST = 37, 5e-4
"""After so many lines of all threads one of them rests for so many seconds: long enough for a round of the others."""
LONGEST_WAIT = 60.0
"""Seconds after which threads are taken to wait for each other for ever."""
LEARNED_EACH, ANSWERED_EACH, TRIALS = 25, 15, 6


@contextmanager
def shortest_turns() -> Iterator[None]:
    """Threads take turns as often as the interpreter can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SHORTEST_TURN)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def at_once(*jobs: Callable[[], None], code: tuple[str, ...] = (POLICIES,)) -> None:
    """Run every job in a thread of its own, beginning together; raises what the first of them raised.

    code: modules, or packages of such, in whose lines threads rest now and then, so that others overtake them there.
    """
    together, lines, errors = Barrier(len(jobs)), count(), []

    def let_go(frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_globals.get("__name__", "").startswith(code):
            return None
        if event == "line" and next(lines) % LINES == 0:
            sleep(REST)
        return let_go

    def run(job: Callable[[], None]) -> None:
        try:
            together.wait(LONGEST_WAIT)
            sys.settrace(let_go)
            job()
        except BaseException as error:
            errors.append(error)

    threads = [Thread(target=run, args=(job,), daemon=True) for job in jobs]
    with shortest_turns():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LONGEST_WAIT)
    assert not any(thread.is_alive() for thread in threads), "threads wait for each other"
    if errors:
        raise errors[0]


def _code_of(policy: Any) -> tuple[str, ...]:
    """Where policies stand, and where the class of this one and what it inherits do."""
    return (POLICIES, *{kind.__module__ for kind in type(policy).__mro__ if kind is not object})


def _learner(policy: Any, offered: Any, action: int) -> Callable[[], None]:
    """Learns one and the same round again whenever it is called."""
    row, reward = offered[action].copy(), float(as_it_takes(policy, 0.5 - 0.25 * action))
    return lambda: policy.update(row, reward, offered=offered, action=action)


def _repeated(job: Callable[[], Any], times: int) -> Callable[[], None]:
    def run() -> None:
        for _ in range(times):
            job()

    return run


@law("threads learn as if one after another")
def threads_learn_as_if_one_after_another(make: Make) -> None:
    """The same round many times: its order means nothing. Four rounds once each: one of their orders it must be."""
    offered = some_rounds(THREADS, seed=7)
    shared, alone = played(make, 20), played(make, 20)
    at_once(*[_repeated(_learner(shared, offered[0], 1), LEARNED_EACH)] * THREADS, code=_code_of(shared))
    _repeated(_learner(alone, offered[0], 1), THREADS * LEARNED_EACH)()
    assert bits(shared) == bits(alone), f"after {THREADS * LEARNED_EACH} times the same round"

    base, possible = played(make, 20), []
    for order in permutations(range(THREADS)):
        one = copy.deepcopy(base)
        for number in order:
            _learner(one, offered[number], number % 3)()
        possible.append(bits(one))
    trials, together = [copy.deepcopy(base) for _ in range(TRIALS)], Barrier(THREADS)

    def learn(number: int) -> None:
        for one in trials:
            job = _learner(one, offered[number], number % 3)
            together.wait(LONGEST_WAIT)
            job()

    at_once(*[lambda number=number: learn(number) for number in range(THREADS)], code=_code_of(base))
    for one in trials:
        assert bits(one) in possible, "after four different rounds, in no order whatsoever"


def _questions(features: Any, kind: type) -> dict[str, Callable[[Any], Any]]:
    """What readers ask a policy: every answer tells of one state."""

    def scored(policy: Any) -> list[Any]:
        scores = policy.scores(features[0])
        parts = (scores.mean, scores.width, scores.propensities)
        return [None if part is None else np.asarray(part).tobytes() for part in parts]

    questions: dict[str, Callable[[Any], Any]] = {
        "scores": scored,
        "select": lambda policy: policy.select(features[0]),
        "propensities": lambda policy: np.asarray(policy.propensities(features[0])).tobytes(),
        "select_many": lambda policy: policy.select_many(features).tolist(),
        "the saved policy": to_bytes,
        "the copied policy": lambda policy: bits(copy.deepcopy(policy)),
    }
    if can_be_found(kind):
        questions["the pickled policy"] = lambda policy: bits(pickle.loads(pickle.dumps(policy)))
    return questions


@law("a thread is answered in a state that was")
def a_thread_is_answered_in_a_state_that_was(make: Make) -> None:
    """Two threads ask while two others learn: nobody sees half of a round."""
    features = some_rounds(20, seed=8)
    shared, alone = played(make, 20), played(make, 20)
    questions = _questions(features, type(shared))
    possible: dict[str, list[Any]] = {words: [ask(alone)] for words, ask in questions.items()}
    for _ in range(2 * ANSWERED_EACH):
        _learner(alone, features[1], 1)()
        for words, ask in questions.items():
            possible[words].append(ask(alone))
    answers: list[tuple[str, Any]] = []
    ended = Event()
    learned = Barrier(2, action=ended.set)

    def ask_all() -> None:
        last = False
        while not last:
            last = ended.is_set()  # once more in the last state
            answers.extend((words, ask(shared)) for words, ask in questions.items())

    def learn() -> None:
        try:
            _repeated(_learner(shared, features[1], 1), ANSWERED_EACH)()
        finally:
            learned.wait(LONGEST_WAIT)

    at_once(ask_all, ask_all, learn, learn, code=_code_of(shared))
    assert len(answers) >= 2 * len(questions)
    for words, answer in answers:
        assert answer in possible[words], f"{words}: the answer of no state"
    assert bits(shared) == bits(alone)
