"""Optional packages, and what to install where one is missing."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires
from typing import Any


def install_line(module: str) -> str:
    """Return the command that installs a missing package.

    >>> print(install_line("pyarrow.parquet"), "or", install_line("s3fs"))
    pip install 'invariant-bandits[logs]' or pip install s3fs
    """
    package = module.partition(".")[0]
    wanted = re.compile(rf"{package.replace('_', '[-_]')}\b(?!-).*extra == .(\w+)")
    try:
        extras = [
            match[1]
            for each in requires("invariant-bandits") or ()
            if (match := wanted.match(each))
        ]
    except PackageNotFoundError:
        extras = []
    return (
        f"pip install 'invariant-bandits[{extras[0]}]'"
        if extras
        else f"pip install {package}"
    )


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
        if name.startswith(
            "__"
        ):  # those who look at every name of a module do not need the package
            raise AttributeError(name)
        value = vars(self)[name] = getattr(require(self._name, "reading a log"), name)
        return value


pyarrow: Any = LazyModule("pyarrow")
compute: Any = LazyModule("pyarrow.compute")
