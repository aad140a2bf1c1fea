"""Bars for what takes long: reading a log, playing policies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from invariant_bandits.cli.common import plain_console as console


@contextmanager
def playing() -> Iterator[Callable[[float, int], None]]:
    """A bar with policies done, as a function of (done, all)."""
    columns = (BarColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, auto_refresh=False, transient=True) as bar:
        task = bar.add_task("playing policies", total=None)
        yield lambda done, total: bar.update(
            task, completed=done, total=total, description=f"{done:.0f} of {total} policies", refresh=True
        )


@contextmanager
def reading() -> Iterator[Callable[[int, int | None, float], None]]:
    """A bar with rows and rows per second, as a function of (rows, total or None, seconds)."""
    columns = (SpinnerColumn(), BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    said = ""
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("reading", total=None)

        def show(rows: int, total: int | None, seconds: float) -> None:
            nonlocal said
            said = f"{rows:,} rows, {rows / max(seconds, 1e-9):,.0f} rows/s"
            done = ", fitting" if rows == total else ""
            bar.update(task, completed=rows, total=total, description=f"{said}{done}")

        yield show
    console.print(f"{said}\n")
