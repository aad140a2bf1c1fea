"""Optional packages, and what to install where one is missing."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires
from typing import Any

HOUSES = (
    "invariant-bandits",
    "invariant-bandits-service",
    "invariant-bandits-reproduction",
)
"""Packages of this project, whose extras are looked through in this order."""


def install_line(module: str) -> str:
    """Return the command that installs a missing package.

    >>> print(install_line("pyarrow.parquet"), "or", install_line("s3fs"))
    pip install 'invariant-bandits[logs]' or pip install s3fs
    """
    package = module.partition(".")[0]
    wanted = re.compile(rf"{package.replace('_', '[-_]')}\b(?!-).*extra == .(\w+)")
    for house in HOUSES:
        try:
            requirements = requires(house) or ()
        except PackageNotFoundError:
            continue
        for requirement in requirements:
            match = wanted.match(requirement)
            if match:
                return f"pip install '{house}[{match[1]}]'"
    return f"pip install {package}"


def install_house(name: str) -> str:
    """Return how to install another package of this project, by its folder.

    >>> install_house("service")
    'pip install invariant-bandits-service, in a checkout pip install ./service'
    """
    return f"pip install invariant-bandits-{name}, in a checkout pip install ./{name}"


def require(module: str, caller: str) -> Any:
    """Import a module, or raise ImportError that says what needs it and how to install it."""
    package = module.partition(".")[0]
    try:
        return import_module(module)
    except ImportError:
        words = (
            f"{caller} needs {package}, which is not installed: {install_line(package)}"
        )
        raise ImportError(words) from None


class LazyModule:
    """A module of an optional package, imported when something in it is first used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        # Those who look at every name of a module do not need the package.
        if name.startswith("__"):
            raise AttributeError(name)
        value = vars(self)[name] = getattr(require(self._name, "reading a log"), name)
        return value


pyarrow: Any = LazyModule("pyarrow")
compute: Any = LazyModule("pyarrow.compute")
