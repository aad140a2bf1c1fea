"""What several commands share: the consoles, progress, options that appear again, and where results go."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from invariant_bandits.checks import InputError
from invariant_bandits.files import replace_file

console = Console()
plain_console = Console(soft_wrap=True, highlight=False, markup=False)

PROCESSORS = os.cpu_count() or 1
Seed = Annotated[int, typer.Option(min=0, help="Seed of all randomness.")]
Jobs = Annotated[int, typer.Option(min=1, help="Processes to use.")]


def one_thread_each() -> None:
    """Linear algebra keeps to one thread: the processes have the cores, and the bits do not depend on their number."""
    import numpy  # noqa: F401  (its library must be loaded to be limited)
    from threadpoolctl import threadpool_limits

    threadpool_limits(limits=1, user_api="blas")


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


def check_target(path: Path, option: str) -> None:
    """Fail before hours of reading, not after."""
    if path.is_dir():
        raise InputError(f"{option} must be a file, but {path} is a folder")
    if not path.parent.is_dir():
        raise InputError(f"{option}: the folder {path.parent} does not exist")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"{option}: the folder {path.parent} cannot be written to")


def write_page(page: str, path: Path) -> None:
    """Store a Markdown page and show it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, page.encode())
    console.print(page, highlight=False, markup=False)
