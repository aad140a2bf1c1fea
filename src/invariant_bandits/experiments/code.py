"""Which code a result depends on: a changed policy must not be mistaken for the one whose result is stored."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

PACKAGE = "invariant_bandits"
PLAYED_BY = (f"{PACKAGE}.simulation.loop", f"{PACKAGE}.experiments.observing")


@cache
def fingerprint(modules: tuple[str, ...] = ()) -> str:
    """A digest of the sources of `modules`, of the loop that plays, and of everything in the package they import."""
    digest = hashlib.sha256()
    for path in sorted(sources((*PLAYED_BY, *modules))):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def sources(modules: tuple[str, ...]) -> set[Path]:
    """Files of these modules and of all modules of the package that they import, directly or not."""
    found: dict[str, Path] = {}
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        path = _file_of(name)
        if name in found or path is None:
            continue
        found[name] = path
        waiting += [imported for imported in _imports(path) if imported.partition(".")[0] == PACKAGE]
    return set(found.values())


def _imports(path: Path) -> Iterator[str]:
    """Names of modules that a source imports, anywhere in it; names within a module are among them."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)


def _file_of(module: str) -> Path | None:
    """The source of a module; None if there is no such module, as for the names that a module defines."""
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return None
    return Path(spec.origin)
