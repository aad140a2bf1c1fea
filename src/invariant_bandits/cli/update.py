"""The command that adds new rounds to a model; arguments and printing only."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from invariant_bandits.checks import InputError
from invariant_bandits.cli.common import (
    FAILED,
    AsJson,
    Force,
    check_not_read,
    check_target,
    print_json,
    width,
    words_on_stderr,
    write_report,
)
from invariant_bandits.cli.common import plain_console as console
from invariant_bandits.cli.compiling import say_when_compiling
from invariant_bandits.cli.progress import reading


def update(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A file written by `fit` or `update`.")],
    logs: Annotated[list[str], typer.Argument(metavar="LOGS", help="The new rounds only: files, a folder, a pattern.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="MODEL", help="Where the new model goes; replaces MODEL if not given."),
    ] = None,
    windows: Annotated[int | None, typer.Option(min=1, help="Into how many windows the new rounds are cut.")] = None,
    every: Annotated[
        str | None, typer.Option(help="Length of the new windows, such as 7d; as the model's if not given.")
    ] = None,
    horizon: Annotated[int | None, typer.Option(min=1, help="How many rounds will be served.")] = None,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE.html", help="Where the HTML report goes.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse a log with any bad row.")] = False,
    engine: Annotated[str, typer.Option(help="Where the log is read: local, dask or spark.")] = "local",
    address: Annotated[str | None, typer.Option(help="Of the cluster.")] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Add this week's log to a model: its rounds become further windows, and what changed since is said.

    The result is that of fitting all logs at once with the same windows; the old logs are not read. Columns mean what
    they meant, and features stay as they were learned. Give new rounds only: nothing may be counted twice.
    """
    target = model if out is None else out
    page_path = target.with_suffix(".html") if report is None else report
    check_target(target, "--out", "model", force=force)
    check_target(page_path, "--report", "page", force=force, reads=[model])
    if page_path == target:
        raise InputError(f"--out and --report must be different files, got {target} for both")
    began = time.perf_counter()
    say_when_compiling()
    with words_on_stderr(as_json):
        from invariant_bandits.logs.sources import find_files
        from invariant_bandits.model.model import Model
        from invariant_bandits.model.update import update_model
        from invariant_bandits.reports import values

        loaded = Model.load(model)
        reads = [path for given in logs for path in find_files(given)[1]]
        check_not_read(target, "--out", reads)
        check_not_read(page_path, "--report", reads)
        with reading() as progress:
            changed = update_model(
                loaded,
                logs[0] if len(logs) == 1 else list(logs),
                windows=windows,
                every=every,
                horizon=horizon,
                engine=engine,
                address=address,
                strict=strict,
                progress=progress,
            )
        changed.model.save(target)
        written = write_report(page_path, lambda: values.report(changed))
        console.print(values.text(changed, width()))
        console.print(f"\nmodel: {target}")
        console.print(f"{changed.quality.rows:,} rows in {time.perf_counter() - began:.1f} s")
    if as_json:
        print_json(values.as_values(changed) | {"model": str(target), "report": written})
    if written is None:
        raise typer.Exit(FAILED)


COMMANDS: tuple[Callable[..., None], ...] = (update,)
