"""Mutation testing: does any test notice when one operator or one number of the source is changed?

A stated random sample of small changes is tried, one at a time, in copies of the tree; the working tree is
never touched. Each runs the tests of its package and every test that names its module, and stops at the first
failure. A change that no test notices has survived: either a test is missing, or the change makes no
difference.
"""

from __future__ import annotations

import argparse
import ast
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCE = Path("src/invariant_bandits")
PACKAGES = ("decomposition", "policies", "evaluation")
LEFT_BEHIND = shutil.ignore_patterns(
    ".git", ".venv", "results", ".hypothesis", ".*_cache"
)  # compiled code comes along

ARITHMETIC = {"+": "-", "-": "+", "*": "/", "/": "*"}
COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
SIGNS = ARITHMETIC | COMPARISONS | {"and": "or", "or": "and"}
SIGN = re.compile(rb"[-+*/<>=!]+|\b(and|or)\b")
EXTREMES = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum"}
NOT_CODE = ("annotation", "returns", "decorator_list")


@dataclass(frozen=True)
class Mutant:
    """Bytes start:stop of a file, on the line that reads `text`, read `old` and become `new`."""

    path: Path
    line: int
    text: str
    start: int
    stop: int
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}  {self.old} -> {self.new or 'nothing'}  in  {self.text:.80}"

    @property
    def package(self) -> str:
        """The package of the file."""
        return self.path.parts[2]

    def applied_to(self, source: bytes) -> bytes:
        """The changed file."""
        return source[: self.start] + self.new.encode() + source[self.stop :]


# -- which changes are possible --


def mutants_of(tree: Path, path: Path) -> Iterator[Mutant]:
    """Every change of one file that still parses."""
    source = (tree / path).read_bytes()
    for start, stop, new in changes(source):
        line = source[:start].count(b"\n")
        text = source.split(b"\n")[line].decode().strip()
        mutant = Mutant(
            path, line + 1, text, start, stop, source[start:stop].decode(), new
        )
        with suppress(SyntaxError):
            ast.parse(mutant.applied_to(source))
            yield mutant


def code_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes but messages, annotations, decorators, `__repr__`, and what only raises or warns."""
    if (
        isinstance(node, ast.Raise | ast.JoinedStr)
        or getattr(node, "name", None) == "__repr__"
    ):
        return
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "warn"
    ):
        return
    yield node
    for field, value in ast.iter_fields(node):
        if field not in NOT_CODE:
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from code_nodes(child)


def changes(source: bytes) -> Iterator[tuple[int, int, str]]:
    """Where (start, stop) and what may be written there instead."""
    lines = [0, *accumulate(len(line) for line in source.splitlines(keepends=True))]

    def span(node: Any) -> tuple[int, int]:
        return lines[node.lineno - 1] + node.col_offset, lines[
            node.end_lineno - 1
        ] + node.end_col_offset

    def between(left: ast.expr, right: ast.expr) -> Iterator[tuple[int, int, str]]:
        sign = SIGN.search(source, span(left)[1], span(right)[0])
        if sign is not None and sign[0].decode() in SIGNS:
            yield *sign.span(), SIGNS[sign[0].decode()]

    for node in code_nodes(ast.parse(source)):
        match node:
            case ast.BinOp(left, _, right):
                yield from between(left, right)
            case ast.Compare(left, _, comparators):
                for pair in pairwise([left, *comparators]):
                    yield from between(*pair)
            case ast.BoolOp(_, values):
                for pair in pairwise(values):
                    yield from between(*pair)
            case ast.UnaryOp(ast.Not()):
                yield span(node)[0], span(node)[0] + len("not "), ""
            case ast.Constant(value) if isinstance(
                value, int | float
            ) and not isinstance(value, bool):
                yield *span(node), repr(value + 1 if value in (0, 1) else 2 * value)
            case ast.Call(ast.Name(name) | ast.Attribute(attr=name)) if (
                name in EXTREMES
            ):
                yield span(node.func)[1] - len(name), span(node.func)[1], EXTREMES[name]
            case ast.FunctionDef(returns=ast.Name("bool"), body=body):
                returned = [
                    part.value
                    for line in body
                    for part in ast.walk(line)
                    if isinstance(part, ast.Return)
                ]
                for start, stop in map(span, filter(None, returned)):
                    yield start, stop, f"not ({source[start:stop].decode()})"


# -- who notices --


def tests_for(path: Path, tree: Path) -> list[str]:
    """Test files, most likely ones first: named after the module, of its package, and others that import
    it.
    """
    package, module = path.parts[2], path.stem
    named = re.compile(rf"invariant_bandits\.{package}(\.| import .*\b){module}\b")
    files = sorted(
        file.relative_to(tree) for file in (tree / "tests").rglob("test_*.py")
    )
    chosen = [
        file
        for file in files
        if package in file.parts or named.search((tree / file).read_text())
    ]
    return [
        str(file)
        for file in sorted(
            chosen,
            key=lambda file: (module not in file.stem, package not in file.parts),
        )
    ]


def outcome(tree: Path, tests: list[str], seconds: float) -> str:
    """What the tests say in this copy: "passed", "failed", or "timed out"."""
    # No bytecode: a change within one second may leave size and time of a file as they were.
    settings = {
        "PYTHONPATH": str(tree / "src"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    environment = os.environ | settings | {"MPLBACKEND": "Agg"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        *tests,
    ]
    process = subprocess.Popen(
        command,
        cwd=tree,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        return "failed" if process.wait(seconds) else "passed"
    except subprocess.TimeoutExpired:
        return "timed out"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def tried(mutant: Mutant, tree: Path, seconds: float) -> str:
    """The outcome with the change in place; the copy is left as it was, down to the time of the file."""
    file = tree / mutant.path
    source, stamp = file.read_bytes(), file.stat()
    file.write_bytes(mutant.applied_to(source))
    try:
        return outcome(tree, tests_for(mutant.path, tree), seconds)
    finally:
        file.write_bytes(source)
        os.utime(file, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))


def measured_limits(
    mutants: list[Mutant], tree: Path, least: float
) -> dict[str, float]:
    """Seconds that a mutant of each package may take: three times what its tests take unchanged, which
    must pass.
    """
    limits = {}
    for package in sorted({mutant.package for mutant in mutants}):
        paths = {mutant.path for mutant in mutants if mutant.package == package}
        tests = sorted({test for path in paths for test in tests_for(path, tree)})
        began = time.monotonic()
        if outcome(tree, tests, 3600.0) != "passed":
            sys.exit(f"unchanged tests do not pass; try: pytest -x {' '.join(tests)}")
        limits[package] = max(least, 3.0 * (time.monotonic() - began))
        print(
            f"{package}: unchanged tests pass in {time.monotonic() - began:.0f} s",
            flush=True,
        )
    return limits


# -- the run --


def wilson(hits: int, total: int) -> tuple[float, float]:
    """95 % interval of a share."""
    z, misses = 1.96, total - hits
    half = z * math.sqrt(hits * misses / total + z * z / 4)
    return (hits + z * z / 2 - half) / (total + z * z), (hits + z * z / 2 + half) / (
        total + z * z
    )


def run(mutants: list[Mutant], trees: list[Path], timeout: float) -> dict[Mutant, str]:
    """The outcome of every mutant, one at a time in each copy of the tree."""
    limits = measured_limits(mutants, trees[0], timeout)
    free = list(trees)

    def judged(mutant: Mutant) -> str:
        tree = free.pop()  # there are as many as threads
        try:
            found = tried(mutant, tree, limits[mutant.package])
        finally:
            free.append(tree)
        print(f"{'SURVIVED' if found == 'passed' else found:9} {mutant}", flush=True)
        return found

    with ThreadPoolExecutor(len(trees)) as pool:
        return dict(zip(mutants, pool.map(judged, mutants), strict=True))


def table(outcomes: dict[Mutant, str]) -> str:
    rows = [
        "",
        f"{'package':16} {'mutants':>8} {'killed':>7} {'timed out':>10} {'survived':>9}",
    ]
    for package in (*sorted({mutant.package for mutant in outcomes}), "all"):
        part = Counter(
            found
            for mutant, found in outcomes.items()
            if package in (mutant.package, "all")
        )
        killed = part.total() - part["passed"]
        rows.append(
            f"{package:16} {part.total():8} {killed:7} {part['timed out']:10} {part['passed']:9}"
        )
    survivors = [mutant for mutant, found in outcomes.items() if found == "passed"]
    low, high = wilson(len(survivors), len(outcomes))
    rows += [
        "",
        f"survived: {len(survivors) / len(outcomes):.1%} (95 % interval {low:.1%} to {high:.1%})",
    ]
    return "\n".join(rows + [f"  {mutant}" for mutant in survivors])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--packages",
        nargs="+",
        default=PACKAGES,
        help=f"packages to change ({' '.join(PACKAGES)})",
    )
    parser.add_argument(
        "--sample",
        type=int,
        default=60,
        help="number of mutants, drawn at random (%(default)s)",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=1,
        help="the same seed, the same mutants (%(default)s)",
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=2,
        help="copies of the tree at work (%(default)s)",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=120.0,
        help="seconds until it counts as killed (%(default)s)",
    )
    parser.add_argument(
        "--kernels",
        action="store_true",
        help="change compiled files, too: each is compiled again",
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copies = [f"{folder}/{worker}" for worker in range(given.workers)]
        trees = [
            Path(shutil.copytree(ROOT, copy, ignore=LEFT_BEHIND)) for copy in copies
        ]
        files = sorted(
            file
            for name in given.packages
            for file in (trees[0] / SOURCE / name).rglob("*.py")
        )
        paths = [
            file.relative_to(trees[0])
            for file in files
            if given.kernels or "kernels" not in file.name
        ]
        possible = [mutant for path in paths for mutant in mutants_of(trees[0], path)]
        chosen = random.Random(given.seed).sample(
            possible, min(given.sample, len(possible))
        )
        print(
            f"{len(chosen)} of {len(possible)} mutants in {len(paths)} files, seed {given.seed}",
            flush=True,
        )
        print(table(run(chosen, trees, given.timeout)))


if __name__ == "__main__":
    main()
