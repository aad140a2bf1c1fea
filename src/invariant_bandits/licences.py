"""Licences of what is installed: this package, what it needs, and what that needs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import metadata

PRODUCT = "invariant-bandits"
CLASSIFIER = "License :: OSI Approved :: "
UNKNOWN = "not stated"
LONGEST = 60
NAME = re.compile(r"[A-Za-z0-9._-]+")
MARKED = re.compile(r";.*\bextra\b")


@dataclass(frozen=True)
class Licence:
    """A package that is installed, and the licence that it states.

    Parameters
    ----------
    package, version : str
        Its name and version.
    words : str
        The licence, as an SPDX expression where the package has one.
    needed : bool
        Whether the library needs it; otherwise some extra of it does.
    """

    package: str
    version: str
    words: str
    needed: bool


def licences() -> list[Licence]:
    """Licences of this package and of everything it needs as far as it is installed, extras included, by name.

    >>> [one.words for one in licences() if one.package == "invariant-bandits"]
    ['BSD-3-Clause']
    """
    needed = _reached(extras=False)
    found = [_licence(one, name in needed) for name, one in _reached(extras=True).items()]
    return sorted(found, key=lambda one: (not one.needed, one.package.lower()))


def _reached(*, extras: bool) -> dict[str, metadata.Distribution]:
    """Normalised name -> package, of all that can be reached by requirements; `extras` are those of this package."""
    found: dict[str, metadata.Distribution] = {}
    waiting = [PRODUCT]
    while waiting:
        name = _normal(waiting.pop())
        if name in found:
            continue
        try:
            package = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        found[name] = package
        for requirement in package.requires or ():
            told = NAME.match(requirement)
            if told and (not MARKED.search(requirement) or (extras and name == PRODUCT)):
                waiting.append(told.group())
    return found


def _licence(package: metadata.Distribution, needed: bool) -> Licence:
    about = package.metadata
    classified = [one.removeprefix(CLASSIFIER) for one in about.get_all("Classifier") or () if CLASSIFIER in one]
    expression, told = (str(about[key]).strip() if key in about else "" for key in ("License-Expression", "License"))
    words = expression or (told if len(told) <= LONGEST and "\n" not in told else "") or ", ".join(classified)
    return Licence(str(about["Name"]), package.version, words or UNKNOWN, needed)


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
