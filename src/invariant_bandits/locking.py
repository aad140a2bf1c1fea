"""Things that threads share: each has one lock, never copied, never stored, never left locked by a fork."""

from __future__ import annotations

import copy
import os
from contextlib import AbstractContextManager, nullcontext
from threading import RLock, get_ident
from time import monotonic
from typing import Any, NoReturn, Self
from weakref import WeakValueDictionary

SECONDS_BEFORE_FORK = 1.0


class ForkError(RuntimeError):
    """A thread was at work on this object when the process forked: the child's copy may be half changed."""


class ThreadSafe:
    """Has a re-entrant lock, `_lock`, that every method holds while it changes the state or reads it.

    A class of your own does the same with the state that it adds:

        def update(self, features, reward, *, offered=None, action=None):
            with self._lock:
                super().update(features, reward)
                self.total += reward

    Copies and what is unpickled have locks of their own; they are made while nobody changes the original. A fork waits
    up to a second for the locks of all objects, so that the child has them whole and unlocked; where a thread holds one
    for longer, using the child's object raises ForkError.
    """

    _lock: Any

    def __new__(cls, *_given: Any, **_named: Any) -> Self:
        """An empty one with its lock, which is there whatever the constructors of derived classes do."""
        made = super().__new__(cls)
        made._lock = RLock()
        with _listing:
            _alive[id(made)] = made
        return made

    def _unlocked(self) -> dict[str, Any]:
        """The attributes that make up the state."""
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def _put_back(self, state: dict[str, Any]) -> None:
        """Become what `state` says; no moment without any attributes, which others may read."""
        vars(self).update(state)
        for name in vars(self).keys() - state.keys() - {"_lock"}:
            delattr(self, name)

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            return copy.deepcopy(self._unlocked())

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        with self._lock:
            made = type(self).__new__(type(self))
            memo[id(self)] = made
            made.__setstate__(copy.deepcopy(self._unlocked(), memo))
            return made

    def __copy__(self) -> Self:
        """One of its own: two that share arrays would learn from each other's rounds."""
        return copy.deepcopy(self)


def lock_of(thing: Any) -> AbstractContextManager[Any]:
    """What to hold while several calls must see one state; nothing, if the thing is not ThreadSafe."""
    return thing._lock if isinstance(thing, ThreadSafe) else nullcontext()


# -- forks ------------------------------------------------------------------------------------------------------------


class _Lost:
    """In the place of a lock that a thread held which the child does not have."""

    def acquire(self, *_given: Any) -> NoReturn:
        raise ForkError("another thread was using this when the process forked: load it anew, or spawn processes")

    def release(self) -> None:
        """It was never held."""

    __enter__ = acquire

    def __exit__(self, *_given: Any) -> None:
        """It was never entered."""


_listing = RLock()
_alive: WeakValueDictionary[int, ThreadSafe] = WeakValueDictionary()
_held: dict[int, list[tuple[ThreadSafe, Any, bool]]] = {}


def _before_fork() -> None:
    """Hold all locks, as far as they can be had in time."""
    with _listing:
        things = list(_alive.values())
    latest = monotonic() + SECONDS_BEFORE_FORK
    locks = [(one, one._lock) for one in things]
    _held[get_ident()] = [(one, lock, _had_by(lock, latest)) for one, lock in locks]


def _had_by(lock: Any, latest: float) -> bool:
    return not isinstance(lock, _Lost) and bool(lock.acquire(timeout=max(0.0, latest - monotonic())))


def _after_in_parent() -> None:
    for _, lock, held in _held.pop(get_ident()):
        if held:
            lock.release()


def _after_in_child() -> None:
    global _listing
    _listing = RLock()
    lost = [one for one, _, held in _held[get_ident()] if not held]
    _after_in_parent()
    _held.clear()
    for one in lost:
        one._lock = _Lost()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
