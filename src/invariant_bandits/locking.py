"""ThreadSafe: an object that threads may share has one re-entrant lock, which is never copied or stored."""

from __future__ import annotations

import copy
from contextlib import AbstractContextManager, nullcontext
from threading import RLock
from typing import Any, Self


class ThreadSafe:
    """Has a re-entrant lock, `_lock`, that every method holds while it changes the state or reads it.

    A derived class does the same with the state that it adds:

        def update(self, features, reward, *, offered=None, action=None):
            with self._lock:
                super().update(features, reward)
                self.total += reward

    Copies and unpickled objects have locks of their own; the original's lock is held while they are made. A
    lock that another thread holds during a fork stays locked in the child: spawn processes, or load the
    object in the child.
    """

    _lock: Any

    def __new__(cls, *_positional: Any, **_named: Any) -> Self:
        """Make an object with its lock, even if the constructors of derived classes do not call this
        class's.
        """
        made = super().__new__(cls)
        made._lock = RLock()
        return made

    def _unlocked(self) -> dict[str, Any]:
        """The attributes that make up the state."""
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def _put_back(self, state: dict[str, Any]) -> None:
        """Restore `state`; at no moment are there no attributes, since other threads may read them."""
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
        """Copy deeply: two objects that shared arrays would learn from each other's rounds."""
        return copy.deepcopy(self)


def lock_of(thing: Any) -> AbstractContextManager[Any]:
    """Return what to hold while several calls must see one state; nothing, if the thing is not ThreadSafe."""
    return thing._lock if isinstance(thing, ThreadSafe) else nullcontext()
