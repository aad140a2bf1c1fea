"""Licences of our packages and of everything they need that is installed: python benchmarks/licences.py."""

from __future__ import annotations

import re
from contextlib import suppress
from importlib import metadata
from typing import Any, NamedTuple

PRODUCTS = (
    "invariant-bandits",
    "invariant-bandits-service",
    "invariant-bandits-reproduction",
)
CLASSIFIER = "License :: OSI Approved :: "
UNKNOWN = "not stated"
LONGEST = 60
"""Characters of a licence field that is a name; some packages put the whole text there."""
NAME = re.compile(r"[A-Za-z0-9._-]+")
EXTRA_MARKER = re.compile(r";.*\bextra\b")


class Licence(NamedTuple):
    """An installed package and the licence that it states.

    Attributes
    ----------
    package, version : str
        Its name and version.
    words : str
        The licence, as an SPDX expression where the package has one.
    needed : bool
        Whether the library requires it; otherwise one of its extras does.
    """

    package: str
    version: str
    words: str
    needed: bool


def installed_licences() -> list[Licence]:
    """List the licences of our packages and of all their installed requirements, extras included, by name."""
    needed = _requirements(extras=False)
    licences = [
        _licence(package, name in needed)
        for name, package in _requirements(extras=True).items()
    ]
    return sorted(
        licences, key=lambda licence: (not licence.needed, licence.package.lower())
    )


def _requirements(*, extras: bool) -> dict[str, metadata.Distribution]:
    """Normalised name -> package, of all transitive requirements; `extras` are those of our packages."""
    packages: dict[str, metadata.Distribution] = {}
    pending = [*PRODUCTS]
    while pending:
        name = re.sub(r"[-_.]+", "-", pending.pop()).lower()
        if name not in packages:
            with suppress(metadata.PackageNotFoundError):
                packages[name] = metadata.distribution(name)
                wanted = packages[name].requires or ()
                if not extras or name not in PRODUCTS:
                    wanted = [
                        requirement
                        for requirement in wanted
                        if not EXTRA_MARKER.search(requirement)
                    ]
                pending += [NAME.findall(requirement)[0] for requirement in wanted]
    return packages


def _licence(package: metadata.Distribution, needed: bool) -> Licence:
    about: Any = package.metadata
    classifiers = [
        line for line in about.get_all("Classifier") or () if CLASSIFIER in line
    ]
    listed = ", ".join(line.removeprefix(CLASSIFIER) for line in classifiers)
    stated = [about.get("License-Expression"), about.get("License"), listed]
    words = next(
        (text for text in stated if text and len(text) <= LONGEST and "\n" not in text),
        UNKNOWN,
    )
    return Licence(str(about["Name"]), package.version, words, needed)


if __name__ == "__main__":
    for licence in installed_licences():
        need = "needed" if licence.needed else "extra"
        print(f"{licence.package:30} {licence.version:16} {licence.words:62} {need}")
