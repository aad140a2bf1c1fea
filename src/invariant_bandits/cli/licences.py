"""The command that lists the licences of what is installed: this package, what it requires, and what that
requires.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from importlib import metadata

from invariant_bandits.cli.common import plain_console as console
from invariant_bandits.cli.common import print_json, width

PRODUCT = "invariant-bandits"
CLASSIFIER = "License :: OSI Approved :: "
UNKNOWN = "not stated"
LONGEST = 60
"""Characters of a licence field that is a name; some packages put the whole text there."""
NAME = re.compile(r"[A-Za-z0-9._-]+")
EXTRA_MARKER = re.compile(r";.*\bextra\b")


@dataclass(frozen=True)
class Licence:
    """An installed package and the licence that it states.

    Parameters
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
    """List the licences of this package and of all its installed requirements, extras included, by name.

    >>> [licence.words for licence in installed_licences() if licence.package == "invariant-bandits"]
    ['BSD-3-Clause']
    """
    needed = _requirements(extras=False)
    licences = [_licence(package, name in needed) for name, package in _requirements(extras=True).items()]
    return sorted(licences, key=lambda licence: (not licence.needed, licence.package.lower()))


def _requirements(*, extras: bool) -> dict[str, metadata.Distribution]:
    """Normalised name -> package, of all transitive requirements; `extras` are those of this package."""
    packages: dict[str, metadata.Distribution] = {}
    pending = [PRODUCT]
    while pending:
        name = re.sub(r"[-_.]+", "-", pending.pop()).lower()
        if name in packages:
            continue
        try:
            packages[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        for requirement in packages[name].requires or ():
            required = NAME.match(requirement)
            if required and (not EXTRA_MARKER.search(requirement) or (extras and name == PRODUCT)):
                pending.append(required.group())
    return packages


def _licence(package: metadata.Distribution, needed: bool) -> Licence:
    about = package.metadata
    classified = [
        line.removeprefix(CLASSIFIER) for line in about.get_all("Classifier") or () if CLASSIFIER in line
    ]
    expression, text = (
        str(about[key]).strip() if key in about else "" for key in ("License-Expression", "License")
    )
    words = expression or (text if len(text) <= LONGEST and "\n" not in text else "") or ", ".join(classified)
    return Licence(str(about["Name"]), package.version, words or UNKNOWN, needed)


def licences(as_json: bool = False) -> None:
    """List the licences of this package and of everything it needs that is installed."""
    from invariant_bandits.reports.page import table_lines

    installed = installed_licences()
    if as_json:
        print_json({"packages": [asdict(licence) for licence in installed]})
        return
    rows = [
        [item.package, item.version, item.words, "needed" if item.needed else "extra"] for item in installed
    ]
    console.print("\n".join(table_lines(("package", "version", "licence", ""), rows, width())))
