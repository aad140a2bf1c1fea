"""What a process does in a fleet: everything, learn, or decide; and the engine that does it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal, get_args

from invariant_bandits.checks import InputError
from invariant_bandits.service.decider import Decider
from invariant_bandits.service.engine import Engine
from invariant_bandits.service.store.beginning import Begun
from invariant_bandits.service.store.chain import EmptyStoreError
from invariant_bandits.service.store.opening import open_store
from invariant_bandits.service.store.postgres_connection import is_address
from invariant_bandits.service.store.verifying import verify

Role = Literal["alone", "learner", "decider"]
"""Alone: decides and learns, and a second such process is refused. A learner waits for its turn instead, and
publishes what it has learned; deciders decide from that, as many as are wanted."""
PUBLISH_EVERY = 1.0
"""Seconds between two published states."""
PAUSE = 0.25
"""Seconds between two looks whether it is one's turn."""

Say = Callable[[str], None]


def engine_for(role: Role, address: str, say: Say, begun: Begun | None = None) -> Engine:
    """The engine of a process with this role on the store under an address, or on one that is begun; not started."""
    if role not in get_args(Role):
        raise InputError(f"role must be one of {', '.join(get_args(Role))}, got {role!r}")
    if role != "alone" and not is_address(address):
        raise InputError(f"role: a {role} needs a store that processes can share (--store postgresql://…)")
    if begun is not None:
        return _finished(begun)
    store = _with_something_published(address, say) if role == "decider" else opened_store(address, role, say)
    try:
        if role == "decider":
            return Decider(store)
        return Engine(store, publish_every=PUBLISH_EVERY) if role == "learner" else Engine(store)
    except BaseException:
        store.close()
        raise


def _finished(begun: Begun) -> Engine:
    """The engine on a store whose check goes on while the state is restored; what the check finds is told first."""
    try:
        try:
            engine = Engine(begun.store)
        finally:
            begun.finish()
    except BaseException:
        begun.store.close()
        raise
    return engine


def opened_store(address: str, role: Role, say: Say) -> Any:
    """The store under a path or `postgresql://…`, every event of it checked."""
    waiting: dict[str, Any] = (
        {"wait": Patience(say, "another process learns: waiting for its turn")} if role == "learner" else {}
    )
    return open_store(address, check=verify, **waiting)


def _with_something_published(address: str, say: Say) -> Any:
    """The store, as soon as a learner has published something in it."""
    pause = Patience(say, "waiting for a learner to publish its first model")
    while True:
        try:
            store = open_store(address, learning=False)
            if store.snapshot_seq() is not None:
                return store
            store.close()
        except EmptyStoreError:
            pass
        pause()


class Patience:
    """Waits a little each time it is called, and says once why."""

    def __init__(self, say: Say, why: str) -> None:
        self._say, self._why, self._is_said = say, why, False

    def __call__(self) -> None:
        """Wait."""
        if not self._is_said:
            self._say(self._why)
        self._is_said = True
        time.sleep(PAUSE)
