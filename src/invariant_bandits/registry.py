"""One way for things to make themselves known: a policy, an estimator, a log format, an environment.

Each registers itself where it is defined, with one decorator; commands, grids, files, laws and pages find it
here. The modules of the rooms that may define such things are imported at the first lookup, and so are the
modules that installed packages name under the entry point group of the registry.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import entry_points
from threading import RLock
from typing import Any, Generic, TypeVar

from invariant_bandits.checks import InputError

Entry = TypeVar("Entry", bound=Any)
"""Anything with a `name` that it is asked for by."""


class Registry(Generic[Entry]):
    """Entries by name, in the order in which they were registered.

    Parameters
    ----------
    what : str
        What an entry is, in the singular, for messages: "policy". The plural is the entry point group's last
        word.
    room : str
        The package whose modules define the built-in entries.

    >>> from types import SimpleNamespace
    >>> colours = Registry("colour", "invariant_bandits.moments")
    >>> colours.add(SimpleNamespace(name="teal")).name
    'teal'
    >>> "teal" in colours, "puce" in colours
    (True, False)
    """

    def __init__(self, what: str, room: str) -> None:
        self.what, self.room = what, room
        self._entries: dict[str, Entry] = {}
        self._searching, self._searched = RLock(), False

    def add(self, entry: Entry) -> Entry:
        """Register an entry; a module that is imported anew replaces its own, another's name is refused."""
        if not _origin(entry).startswith(f"{self.room}."):
            self._search()  # built-in entries come first
        before = self._entries.get(entry.name)
        if before is not None and _origin(before) != _origin(entry):
            raise InputError(
                f"{self.what} {entry.name!r} is registered already, by {_origin(before)}"
            )
        self._entries[entry.name] = entry
        return entry

    def remove(self, name: str) -> None:
        """Forget an entry."""
        self._entries.pop(name, None)

    def find(self, name: str) -> Entry:
        """The entry of this name, in any case of letters, or InputError that lists the known ones."""
        self._search()
        for known in (name, str(name).lower()):
            if known in self._entries:
                return self._entries[known]
        raise InputError(
            f"{self.what} must be one of {', '.join(sorted(self._entries))}, got {name!r}"
        )

    def __iter__(self) -> Iterator[Entry]:
        self._search()
        return iter(tuple(self._entries.values()))

    def __contains__(self, name: object) -> bool:
        self._search()
        return name in self._entries

    def _search(self) -> None:
        """Import what may register itself: the modules of the room, then those of installed packages."""
        with self._searching:  # other threads wait until everything is known
            # It is done, or was begun by this thread: what it imports registers itself meanwhile.
            if self._searched:
                return
            self._searched = True
            room = import_module(self.room)
            for module in pkgutil.iter_modules(room.__path__, f"{self.room}."):
                if not module.name.endswith("kernels"):
                    import_module(module.name)
            for point in entry_points(
                group=f"invariant_bandits.{self.what.replace(' ', '_')}"
            ):
                point.load()


def _origin(entry: object) -> str:
    """Where the thing behind an entry is defined."""
    thing = getattr(entry, "kind", entry)
    return f"{getattr(thing, '__module__', '?')}.{getattr(thing, '__qualname__', type(thing).__qualname__)}"
