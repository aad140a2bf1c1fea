"""What several commands share: consoles, progress, options that appear again, and where results go."""

from __future__ import annotations

import inspect
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from functools import cache, wraps
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import progress
from rich.console import Console
from typer import Option

from invariant_bandits import __version__
from invariant_bandits.checks import InputError, escape_control_chars
from invariant_bandits.storage import kind_of, read_toml


class Terminal(Console):
    """A console that escapes control characters and prints markup as it stands."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)

    def print(self, *words: Any, **options: Any) -> None:
        """Print words, or what rich can draw."""
        super().print(
            *(
                escape_control_chars(word) if isinstance(word, str) else word
                for word in words
            ),
            **options,
        )


console = Terminal()
plain_console = Terminal(soft_wrap=True, highlight=False)


SECONDS_BETWEEN_LINES = 30.0
PROCESSORS = os.cpu_count() or 1
FAILED = 1
"""Exit code of a command that did its work but could not draw its report."""
NO_ANSWER = 3
"""Exit code of a command whose input was good but cannot answer the question."""
COMPILING = (
    "compiling the inner loops, once after installation; this takes up to a minute"
)

ReportPath = Annotated[
    Path | None, Option(metavar="FILE.html", help="Where the HTML report goes.")
]
Force = Annotated[
    bool,
    Option(
        "--force",
        help="Also overwrite files of another kind, but never a file that is read.",
    ),
]
AsJson = Annotated[
    bool,
    Option(
        "--json",
        help="One JSON object on standard output; words and progress go to standard error.",
    ),
]
Jobs = Annotated[int, Option(min=1, help="Processes to use.")]
Seed = Annotated[int, Option(min=0, help="Seed of all randomness.")]


def as_command(function: Callable[..., None]) -> Callable[..., None]:
    """Return the function as typer takes a command.

    A parameter whose type is a dataclass stands for all its fields, whose annotations are options. With
    --json, words and bars go to standard error: standard output is for one JSON object.
    """
    signature = inspect.signature(function, eval_str=True)
    parameters = list(signature.parameters.values())
    groups: dict[str, Any] = {
        item.name: item.annotation
        for item in parameters
        if is_dataclass(item.annotation)
    }
    expanded = [item for item in parameters if item.name not in groups]
    for group in groups.values():
        expanded += inspect.signature(group, eval_str=True).parameters.values()

    @wraps(function)
    def command(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(
                **{field.name: values.pop(field.name) for field in fields(group)}
            )
        console.stderr = plain_console.stderr = bool(values.get("as_json"))
        try:
            function(**values)
        finally:
            console.stderr = plain_console.stderr = False

    command.__signature__ = signature.replace(parameters=expanded)  # type: ignore[attr-defined]
    command.__annotations__ = {item.name: item.annotation for item in expanded}
    return command


def take_defaults(context: typer.Context, path: Path | None) -> Path | None:
    """Take options from a TOML file; the command line and environment variables go before it."""
    if path is not None:
        values = {
            name.replace("-", "_"): value for name, value in read_toml(path).items()
        }
        known = {str(parameter.name) for parameter in context.command.params}
        for name in sorted(values.keys() - known):
            raise InputError(
                f"{path}: {name} is not an option; there are {', '.join(sorted(known))}"
            )
        context.default_map = values
    return path


def register(app: typer.Typer, *functions: Callable[..., None]) -> None:
    """Make functions commands of an app, under their names."""
    for function in functions:
        # The first paragraph, whole: typer would cut it after eight words.
        summary = " ".join(str(inspect.getdoc(function)).partition("\n\n")[0].split())
        name = function.__name__.strip("_")
        app.command(name, short_help=summary)(as_command(function))


def one_thread_each() -> None:
    """Limit linear algebra to one thread: the processes use the cores, and results do not depend on their
    number.
    """
    import numpy  # noqa: F401  (its library must be loaded to be limited)
    from threadpoolctl import threadpool_limits

    threadpool_limits(limits=1, user_api="blas")


def width() -> int:
    """Return the width of lines: that of the terminal, from 60 to 140; 100 without a terminal."""
    return max(60, min(shutil.get_terminal_size((100, 24)).columns, 140))


def print_json(values: dict[str, Any]) -> None:
    """Print the answer for programs on standard output."""
    from invariant_bandits.reports.values import as_json

    print(as_json(values), flush=True)


@contextmanager
def counting(
    words: str, *, transient: bool = False
) -> Iterator[Callable[[str, float, int], None]]:
    """A bar with the time left, as a function of (what is being done, done, total).

    It has no thread of its own, because workers are forked. Without a terminal a line every half minute says
    the same.
    """
    if not console.is_terminal:
        yield _lines_of_progress()
        return
    with progress.Progress(
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeRemainingColumn(),
        progress.TextColumn("{task.description}"),
        console=console,
        auto_refresh=False,
        transient=transient,
    ) as bar:
        task = bar.add_task(words, total=None)
        yield lambda words, done, total: bar.update(
            task, description=words, completed=done, total=total, refresh=True
        )


def _lines_of_progress() -> Callable[[str, float, int], None]:
    start = last = time.monotonic()

    def say(words: str, done: float, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= SECONDS_BETWEEN_LINES and done > 0:
            last = now
            minutes = (now - start) * (total - done) / done / 60.0
            console.print(
                f"{done:.0f} of {total}, about {minutes:.1f} minutes left: {words}"
            )

    return say


@contextmanager
def reading() -> Iterator[Callable[[int, int | None, float], None]]:
    """A bar with rows and rows per second, as a function of (rows, total or None, seconds)."""
    words = ""
    with progress.Progress(
        progress.SpinnerColumn(),
        progress.BarColumn(),
        progress.TextColumn("{task.description}"),
        progress.TimeElapsedColumn(),
        console=plain_console,
        transient=True,
    ) as bar:
        task = bar.add_task("reading", total=None)

        def show(rows: int, total: int | None, seconds: float) -> None:
            nonlocal words
            words = f"{rows:,} rows, {rows / max(seconds, 1e-9):,.0f} rows/s"
            fitting = ", fitting" if rows == total else ""
            bar.update(
                task, completed=rows, total=total, description=f"{words}{fitting}"
            )

        yield show
    plain_console.print(f"{words}\n")


@cache
def announce_compiling() -> None:
    """Announce the first compilation by this version on this machine, once, on standard error."""
    from numba.core import event

    events: Any = event
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    mark = caches / "invariant-bandits" / f"compiled-{__version__}"

    class Announcement(events.Listener):  # type: ignore[misc]
        def on_start(self, event: Any) -> None:
            with suppress(
                OSError
            ):  # already marked, perhaps by another worker; or it cannot be
                mark.parent.mkdir(parents=True, exist_ok=True)
                mark.touch(exist_ok=False)
                print(COMPILING, file=sys.stderr, flush=True)

        def on_end(self, event: Any) -> None:
            pass

    events.register("numba:compile", Announcement())


def check_targets(
    out: Path, report: Path, *, force: bool, reads: Iterable[object] = ()
) -> None:
    """Check the model and the report that a command will write, which must be two files."""
    check_target(out, "--out", "model", force=force)
    check_target(report, "--report", "page", force=force, reads=reads)
    if report == out:
        raise InputError(
            f"--out and --report must be different files, got {out} for both"
        )


def check_target(
    path: Path,
    option: str,
    what: str,
    *,
    force: bool | None = False,
    reads: Iterable[object] = (),
) -> None:
    """Check before hours of reading that a result can be written, and overwrites no other file.

    what: the kind of file that will be there, "model" or one of STARTS; files of another kind are replaced
    with `force` only. None says that the command has no such option. reads: paths that the command reads,
    None among them or not: they are never written over.
    """
    if not os.access(path.parent, os.W_OK):
        raise InputError(
            f"{option}: the folder {path.parent} does not exist or cannot be written to"
        )
    if not path.exists():
        return
    if not path.is_file():
        raise InputError(f"{option}: {path} is not a file and is not written to")
    check_not_read(path, option, reads)
    if not force and path.stat().st_size and not _is_kind(path, what):
        how = "" if force is None else " without --force"
        raise InputError(
            f"{option}: {path} exists and is not a {what}; it is not overwritten{how}"
        )


def check_not_read(path: Path, option: str, reads: Iterable[object]) -> None:
    """InputError if a path is one of the files that the command reads, also under another name."""
    files = [Path(str(read)) for read in reads if read is not None]
    if path.exists() and any(file.exists() and path.samefile(file) for file in files):
        raise InputError(
            f"{option}: {path} is read by this command; it is never written over"
        )


def _is_kind(path: Path, what: str) -> bool:
    """Whether a file is of a kind that a command writes."""
    if what == "model":
        return kind_of(path) == "model"
    with path.open("rb") as file:
        return (
            file.read(200)
            .removeprefix(b"\xef\xbb\xbf")
            .lstrip()
            .lower()
            .startswith(STARTS[what])
        )


STARTS = {
    "page": (b"<!doctype html", b"<html"),
    "Markdown page": (b"# ",),
    "table of regrets": (b"cell,",),
    "picture": (b"\x89png", b"<?xml", b"<svg", b"%pdf"),
}
"""How files of each kind begin."""
