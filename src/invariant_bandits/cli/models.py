"""The commands that take a model or stored moments: inspect, update, arms, decompose."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import typer

from invariant_bandits.checks import InputError
from invariant_bandits.cli.common import (
    FAILED,
    announce_compiling,
    check_not_read,
    check_target,
    check_targets,
    print_json,
    reading,
    show_model,
    width,
    words_on_stderr,
    write_report,
)
from invariant_bandits.cli.common import plain_console as console


def inspect(model: Path, report: Path | None = None, force: bool = False, as_json: bool = False) -> None:
    """Say what a model knows: what is stable, what drifts how far, the evidence, the quality of its log."""
    from invariant_bandits.model.model import Model
    from invariant_bandits.reports import model_page, values

    if report is not None:
        check_target(report, "--report", "page", force=force, reads=[model])
    announce_compiling()
    loaded = Model.load(model)
    with words_on_stderr(as_json):
        if not as_json:
            console.print(model_page.text(loaded, width=width()))
        written = None if report is None else write_report(report, lambda: model_page.report(loaded))
    if as_json:
        print_json(values.of_model(loaded) | {"model": str(model), "report": written})
    if report is not None and written is None:
        raise typer.Exit(FAILED)


def update(
    model: Path,
    logs: list[str],
    out: Path | None = None,
    windows: int | None = None,
    every: str | None = None,
    horizon: int | None = None,
    report: Path | None = None,
    strict: bool = False,
    engine: str = "local",
    address: str | None = None,
    force: bool = False,
    as_json: bool = False,
) -> None:
    """Add this week's log to a model: its rounds become further windows, and what changed since is said.

    The result is that of fitting all logs at once with the same windows; the old logs are not read. Columns
    mean what they meant, and features stay as they were learned. Give new rounds only: nothing may be counted
    twice.
    """
    target = model if out is None else out
    page_path = target.with_suffix(".html") if report is None else report
    check_targets(target, page_path, force=force, reads=[model])
    began = time.perf_counter()
    announce_compiling()
    with words_on_stderr(as_json):
        from invariant_bandits.logs.sources import find_files
        from invariant_bandits.model.model import Model
        from invariant_bandits.model.update import update_model
        from invariant_bandits.reports import update_page

        loaded = Model.load(model)
        reads = [path for source in logs for path in find_files(source)[1]]
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
        show_model(
            *(target, page_path, lambda: update_page.report(changed), update_page.text(changed, width())),
            f"{changed.quality.rows:,} rows in {time.perf_counter() - began:.1f} s",
            update_page.as_values(changed) if as_json else None,
        )


def arms(
    model: Path,
    add: str | None = None,
    feature: list[str] | None = None,
    retire: list[str] | None = None,
    out: Path | None = None,
    force: bool = False,
    as_json: bool = False,
) -> None:
    """List the arms of a model, add one or retire some."""
    if feature and add is None:
        raise InputError("--feature describes a new arm: give --add, too")
    target = model if out is None else out
    check_target(target, "--out", "model", force=force)
    with words_on_stderr(as_json):
        from invariant_bandits.model.model import Model
        from invariant_bandits.reports import values

        loaded = Model.load(model)
        if loaded.arms is None:
            raise InputError(f"{model} is a model of feature rows: it has no labelled arms")
        for label in retire or ():
            loaded.retire_arm(label)
        if add is not None:
            loaded.add_arm(add, dict(map(_pair, feature)) if feature else None)
        if add is not None or retire:
            loaded.save(target)
        if not as_json:
            console.print(loaded.arms.describe())
        if add is not None or retire:
            console.print(f"\nmodel: {target}, version {loaded.identity}")
    if as_json:
        print_json({"model": str(target), "version": loaded.identity, "arms": values.of_arms(loaded.arms)})


def _pair(words: str) -> tuple[str, Any]:
    name, sign, value = words.partition("=")
    if not sign or not name:
        raise InputError(f"--feature must be NAME=VALUE, got {words!r}")
    return name, value


def decompose(
    moments: Path,
    plot: Path | None = None,
    metric: str = "euclidean",
    covariances: str = "auto",
    alpha: float = 0.002,
    windows: int | None = None,
    theme: str = "light",
    force: bool = False,
) -> None:
    """Say what is stable and what drifts in stored moments."""
    from invariant_bandits.decomposition.estimator import InvariantSubspaceDecomposition
    from invariant_bandits.moments.windowed import WindowedMoments

    if plot is not None:
        check_target(plot, "--plot", "picture", force=force, reads=[moments])
        if not plot.suffix:
            plot = plot.with_suffix(".png")
            check_target(plot, "--plot", "picture", force=force, reads=[moments])
    stored = WindowedMoments.load(moments)
    if windows is not None:
        stored = stored.coarsen(windows)
    fit = InvariantSubspaceDecomposition(metric=metric, covariances=covariances, alpha=alpha)
    announce_compiling()
    with console.status("fitting"):
        fit.fit(stored)
    console.print(fit.summary(), highlight=False)
    if plot is not None:
        from invariant_bandits.reports import plots

        plots.save(plots.overview(fit, theme_name=theme), plot.with_suffix(""), [plot.suffix.lstrip(".")])
        console.print(f"picture: {plot}")
