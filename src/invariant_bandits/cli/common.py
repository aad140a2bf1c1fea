"""What several commands share: the consoles, progress, options that appear again, and where results go."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from invariant_bandits.checks import InputError, escape_control_chars
from invariant_bandits.storage import kind_of, replace_file


class Terminal(Console):
    """A console that takes nothing in the words it is given for markup, pictures or orders to the terminal."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)

    def print(self, *words: Any, **options: Any) -> None:
        """Print words, or what rich can draw."""
        super().print(*(escape_control_chars(one) if isinstance(one, str) else one for one in words), **options)


console = Terminal()
plain_console = Terminal(soft_wrap=True, highlight=False)

PROCESSORS = os.cpu_count() or 1
Seed = Annotated[int, typer.Option(min=0, help="Seed of all randomness.")]
FAILED = 1
"""Exit code of a command that did its work but could not draw its report."""
NO_ANSWER = 3
"""Exit code of a command whose input was good but cannot answer the question."""
AsJson = Annotated[
    bool, typer.Option("--json", help="One JSON object on standard output; words and progress go to standard error.")
]
Jobs = Annotated[int, typer.Option(min=1, help="Processes to use.")]


def one_thread_each() -> None:
    """Linear algebra keeps to one thread: the processes have the cores, and the bits do not depend on their number."""
    import numpy  # noqa: F401  (its library must be loaded to be limited)
    from threadpoolctl import threadpool_limits

    threadpool_limits(limits=1, user_api="blas")


def width() -> int:
    """How wide lines may be: as the terminal is, 60 at least and 140 at most; 100 where there is none."""
    told = os.environ.get("COLUMNS", "")
    if not told.isdigit() and not plain_console.is_terminal:
        return 100
    return max(60, min(int(told) if told.isdigit() else plain_console.width, 140))


@contextmanager
def words_on_stderr(wanted: bool) -> Iterator[None]:
    """Words and bars go to standard error meanwhile, if that is wanted: standard output is for one JSON object."""
    before = [one.stderr for one in (console, plain_console)]
    for one in (console, plain_console):
        one.stderr = wanted or one.stderr
    try:
        yield
    finally:
        for one, stderr in zip((console, plain_console), before, strict=True):
            one.stderr = stderr


def print_json(values: dict[str, Any]) -> None:
    """The answer for programs, on standard output."""
    from invariant_bandits.reports.values import as_json

    print(as_json(values), flush=True)


def write_report(path: Path, draw: Callable[[], str]) -> str | None:
    """Draw a page and store it; its path, None if drawing failed, which costs nothing of what was stored before."""
    try:
        with plain_console.status("drawing the report"):
            page = draw()
    except Exception as error:
        words = escape_control_chars(f"error: the report could not be drawn ({type(error).__name__}: {error})")
        print(words, file=sys.stderr)
        return None
    replace_file(path, page.encode())
    plain_console.print(f"report: {path}")
    return str(path)


class Bar:
    """A bar with the time left and what is being done; it has no thread of its own, because workers are forked."""

    def __init__(self, words: str) -> None:
        columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
        self._progress = Progress(*columns, console=console, auto_refresh=False)
        self._task = self._progress.add_task(words, total=None)

    def __enter__(self) -> Callable[[str, int, int], None]:
        self._progress.__enter__()
        return lambda words, done, total: self._progress.update(
            self._task, description=words, completed=done, total=total, refresh=True
        )

    def __exit__(self, *error: object) -> None:
        self._progress.stop()


def check_target(
    path: Path, option: str, what: str, *, force: bool | None = False, reads: Iterable[object] = ()
) -> None:
    """Fail before hours of reading, not after; and write over nothing that would be missed.

    what: the kind of file that will be there, one of KINDS; files of another kind are replaced with `force` only.
    None says that the command has no such option.
    reads: paths that the command reads, None among them or not: they are never written over.
    """
    if path.is_dir():
        raise InputError(f"{option} must be a file, but {path} is a folder")
    if not path.parent.is_dir():
        raise InputError(f"{option}: the folder {path.parent} does not exist")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"{option}: the folder {path.parent} cannot be written to")
    if not path.exists():
        return
    if not path.is_file():
        raise InputError(f"{option}: {path} is not a file and is not written to")
    check_not_read(path, option, reads)
    if not force and path.stat().st_size and not KINDS[what](path):
        how = "" if force is None else " without --force"
        raise InputError(f"{option}: {path} is there already and is no {what}; it is not written over{how}")


def check_not_read(path: Path, option: str, reads: Iterable[object]) -> None:
    """InputError if a path is one of the files that the command reads, by whatever name."""
    if path.exists() and any(_same_file(path, str(one)) for one in reads if one is not None):
        raise InputError(f"{option}: {path} is read by this command; it is never written over")


def _same_file(path: Path, other: str) -> bool:
    return Path(other).exists() and path.samefile(other)


def _begins(*starts: bytes) -> Callable[[Path], bool]:
    def check(path: Path) -> bool:
        with path.open("rb") as file:
            return file.read(200).removeprefix(b"\xef\xbb\xbf").lstrip().lower().startswith(starts)

    return check


KINDS: Mapping[str, Callable[[Path], bool]] = {
    "model": lambda path: kind_of(path) == "model",
    "page": _begins(b"<!doctype html", b"<html"),
    "Markdown page": _begins(b"# "),
    "picture": _begins(b"\x89png", b"<?xml", b"<svg", b"%pdf"),
}
"""How a file of each kind is told from others."""
Force = Annotated[bool, typer.Option("--force", help="Write over files of another kind, too; never over what is read.")]


def write_page(page: str, path: Path) -> None:
    """Store a Markdown page and show it."""
    replace_file(path, page.encode())
    console.print(page, highlight=False)
