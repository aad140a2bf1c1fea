"""The command `invariant-bandits`: argument parsing and printing only."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from invariant_bandits import __version__
from invariant_bandits.checks import InputError
from invariant_bandits.cli import logs as cli_logs
from invariant_bandits.files import replace_file

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Contextual bandits that remember what lasts and relearn what changed.",
)
study = typer.Typer(no_args_is_help=True, help="Studies over many repetitions; slower than the tests.")
app.command("fit")(cli_logs.fit)
app.command("inspect")(cli_logs.inspect_model)
app.command("evaluate")(cli_logs.evaluate)
app.add_typer(study, name="study")
console = Console()

PROCESSORS = os.cpu_count() or 1
Seed = Annotated[int, typer.Option(help="Seed of all randomness.")]
Jobs = Annotated[int, typer.Option(min=1, help="Processes to use.")]


def _show_version(wanted: bool) -> None:
    if wanted:
        console.print(f"invariant-bandits {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


@app.command()
def reproduce(
    experiments: Annotated[
        list[str] | None, typer.Argument(metavar="[EXPERIMENT]...", help="Which ones; all if none is named.")
    ] = None,
    paper: Annotated[bool, typer.Option("--paper", help="The paper's 20 repetitions.")] = False,
    replications: Annotated[int | None, typer.Option(min=2, help="Repetitions per cell; 200 if not given.")] = None,
    jobs: Jobs = PROCESSORS,
    out: Annotated[Path, typer.Option(help="Folder for cells, figures and report.")] = Path("results"),
    seed: Seed = 20261116,
) -> None:
    """Reproduce the paper: play its experiments and ours, test every claim, draw every figure, write report.html.

    A run that was interrupted goes on where it stopped: finished cells are not played again.
    """
    from invariant_bandits.experiments import run as reproduction
    from invariant_bandits.experiments.figures import catalogue

    _one_thread_each()
    if paper and replications is not None:
        raise InputError("give either --paper or --replications, not both")
    repeated = 20 if paper else replications or 200
    names = [experiment.name for experiment in catalogue.chosen(experiments or [])]
    with _progress() as bar:
        task = bar.add_task("compiling (once after installation)", total=None)
        reproduction.play(
            names,
            out,
            replications=repeated,
            seed=seed,
            jobs=jobs,
            progress=lambda cell, done, total: bar.update(
                task, description=cell, completed=done, total=total, refresh=True
            ),
        )
    _report(out, jobs)


@app.command("compile")
def compile_loops() -> None:
    """Compile the inner loops now and keep them on disk, rather than at first use (about half a minute, once)."""
    from invariant_bandits.experiments import cells
    from invariant_bandits.experiments.figures import catalogue

    _one_thread_each()
    with console.status("compiling"):
        cells.load_compiled_code(catalogue.cells_of(catalogue.chosen([])))
    console.print("the inner loops are compiled")


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="Folder of a finished run of `reproduce`.")],
    jobs: Jobs = PROCESSORS,
) -> None:
    """Judge the claims and draw the figures and the report again, without playing anything."""
    _report(folder, jobs)


def _report(folder: Path, jobs: int) -> None:
    from invariant_bandits.experiments import report as report_page
    from invariant_bandits.experiments import run as reproduction

    with console.status("judging claims and drawing figures"):
        found = reproduction.read(folder, jobs)
        reproduction.write_claims(found, folder)
        reproduction.write_figures(found, folder, jobs)
        page = report_page.write(found, folder)
    times = Table(title="Time", title_justify="left")
    for heading in ("experiment", "cells", "seconds", "ms per repetition"):
        times.add_column(heading, justify="left" if heading == "experiment" else "right")
    for experiment in found.experiments:
        seconds = sum(found.seconds.get(cell.name, 0.0) for cell in experiment.cells)
        each = 1e3 * seconds / found.run.replications / len(experiment.cells)
        times.add_row(experiment.name, str(len(experiment.cells)), f"{seconds:.1f}", f"{each:.0f}")
    console.print(times)
    table = Table(title="Tests that do not hold, or are not decided", title_justify="left")
    for heading in ("verdict", "claim", "value", "95 % interval", "bound"):
        table.add_column(heading, justify="left" if heading in ("claim", "verdict") else "right")
    for judged in found.verdicts.values():
        for claim, verdict in judged:
            if verdict.word != "holds":
                word = f"[{'bold red' if verdict.word == 'fails' else 'yellow'}]{verdict.word}[/]"
                interval = f"{verdict.low:.3g} to {verdict.high:.3g}"
                table.add_row(word, claim.name, f"{verdict.statistic:.3g}", interval, str(claim.bound))
    if table.row_count:
        console.print(table)
    console.print(report_page.headline(found), highlight=False)
    console.print(f"report: {page}\nfigures: {folder / reproduction.FIGURES} (PNG light and dark, SVG, PDF)")


@app.command("simulate")
def simulate_grid(
    config: Annotated[Path, typer.Argument(help="A TOML file; see docs/experiments.md.")],
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("simulation"),
    jobs: Jobs = PROCESSORS,
    replications: Annotated[int | None, typer.Option(min=2, help="Instead of the file's.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Instead of the file's.")] = None,
) -> None:
    """Play one's own grid of worlds and policies; finished cells are not played again."""
    from invariant_bandits.experiments import cells
    from invariant_bandits.experiments.grid import read_grid
    from invariant_bandits.reports import plots

    _one_thread_each()
    grid = read_grid(config)
    with _progress() as bar:
        task = bar.add_task("compiling (once after installation)", total=None)
        results = cells.run(
            grid.cells,
            out,
            replications=replications or grid.replications,
            seed=grid.seed if seed is None else seed,
            jobs=jobs,
            progress=lambda cell, done, total: bar.update(
                task, description=cell, completed=done, total=total, refresh=True
            ),
        )
    names = list(grid.cells[0].policies)
    table = Table(title="Regret: mean ± standard error (worst run)", title_justify="left")
    table.add_column("cell")
    for name in names:
        table.add_column(name, justify="right")
    chart = {}
    for cell, result in results.items():
        finals = {name: result.final(name) for name in names}
        table.add_row(
            cell,
            *(f"{v.mean():.1f} ± {v.std(ddof=1) / len(v) ** 0.5:.1f} ({v.max():.0f})" for v in finals.values()),
        )
        chart[cell] = {name: (float(v.mean()), float(v.max())) for name, v in finals.items() if v.mean() > 0.0}
    console.print(table)
    console.print(f"one Parquet file per cell: {out}")
    if len(names) <= plots.MOST_SERIES:
        picture = plots.save(plots.regret_chart(chart), out / "regret")
        console.print(f"picture: {picture[0]} (and .svg, .pdf)")


def _one_thread_each() -> None:
    """Linear algebra keeps to one thread: the processes have the cores, and the bits do not depend on their number."""
    import numpy  # noqa: F401  (its library must be loaded to be limited)
    from threadpoolctl import threadpool_limits

    threadpool_limits(limits=1, user_api="blas")


def _progress() -> Progress:
    """A bar with the time left; no thread of its own, because workers are forked."""
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    return Progress(*columns, console=console, auto_refresh=False)


@app.command()
def decompose(
    moments: Annotated[Path, typer.Argument(help="A file written by WindowedMoments.save.")],
    plot: Annotated[Path | None, typer.Option(help="Also draw the overview here (.png, .svg or .pdf).")] = None,
    metric: Annotated[str, typer.Option(help="euclidean or whitened.")] = "euclidean",
    covariances: Annotated[str, typer.Option(help="auto, offered or chosen.")] = "auto",
    alpha: Annotated[float, typer.Option(help="Level of the tests that call a block varying.")] = 0.002,
    windows: Annotated[int | None, typer.Option(help="Merge the windows into this many first.")] = None,
    theme: Annotated[str, typer.Option(help="light or dark.")] = "light",
) -> None:
    """Say what is stable and what drifts in stored moments."""
    from invariant_bandits.decomposition.estimator import InvariantSubspaceDecomposition
    from invariant_bandits.moments.windowed import WindowedMoments

    stored = WindowedMoments.load(moments)
    if windows is not None:
        stored = stored.coarsen(windows)
    fit = InvariantSubspaceDecomposition(metric=metric, covariances=covariances, alpha=alpha)
    with console.status("fitting (the first time after installation: compiling)"):
        fit.fit(stored)
    console.print(fit.summary(), highlight=False)
    if plot is not None:
        from invariant_bandits.reports import plots

        plots.save(plots.overview(fit, theme_name=theme), plot.with_suffix(""), [plot.suffix.lstrip(".") or "png"])
        console.print(f"picture: {plot}")


@study.command("offline")
def study_offline(
    out: Annotated[Path, typer.Option(help="Where the Markdown page goes.")] = Path("docs/studies/offline.md"),
    replications: Annotated[int, typer.Option(min=20, help="Repetitions per cell.")] = 400,
    seed: Seed = 20261115,
    jobs: Jobs = PROCESSORS,
) -> None:
    """How often the offline phase is right, and how accurate, on the paper's generator and beyond."""
    _one_thread_each()
    from invariant_bandits.experiments.studies import offline as offline_study

    cells = offline_study.settings()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("cells", total=len(cells))
        results = offline_study.run(
            cells,
            replications=replications,
            seed=seed,
            jobs=jobs,
            progress=lambda done, _: bar.update(task, completed=done),
        )
    page = offline_study.report(results, replications=replications, seed=seed)
    out.parent.mkdir(parents=True, exist_ok=True)
    replace_file(out, page.encode())
    console.print(page, highlight=False)
    missed = sum(not fine for _, _, reached in offline_study.verdicts(results) for fine in reached)
    console.print(f"written to {out}; bounds missed: {missed}")


@study.command("online")
def study_online(
    out: Annotated[Path, typer.Option(help="Where the Markdown page goes.")] = Path("docs/studies/online.md"),
    figures: Annotated[Path, typer.Option(help="Folder for its pictures.")] = Path("docs/figures"),
    replications: Annotated[int, typer.Option(min=2, help="Repetitions per row.")] = 200,
    seed: Seed = 20261115,
    jobs: Jobs = PROCESSORS,
) -> None:
    """Regret of every policy on the paper's simulations and beyond, and what it must show."""
    _one_thread_each()
    from invariant_bandits.experiments.studies import online as online_study
    from invariant_bandits.experiments.studies import online_goals
    from invariant_bandits.reports import plots

    with _progress() as bar:
        task = bar.add_task("starting", total=None)
        outcome = online_study.run(
            replications=replications,
            seed=seed,
            jobs=jobs,
            progress=lambda row, done, total: bar.update(
                task, description=row, completed=done, total=total, refresh=True
            ),
        )
    for theme in plots.THEMES:
        picture = plots.regret_chart(online_study.charted(outcome), theme_name=theme)
        plots.save(picture, figures / f"online-{theme}", ["png"])
    page = online_study.report(outcome, pictures=Path(os.path.relpath(figures, out.parent)).as_posix())
    out.parent.mkdir(parents=True, exist_ok=True)
    replace_file(out, page.encode())
    console.print(page, highlight=False, markup=False)
    missed = sum(not verdict.reached for _, verdict in online_goals.verdicts(outcome.regret))
    console.print(f"written to {out}, pictures to {figures}; goals missed: {missed}")


@study.command("real")
def study_real(
    out: Annotated[Path, typer.Option(help="Where the Markdown page goes.")] = Path("docs/studies/real.md"),
    figures: Annotated[Path, typer.Option(help="Folder for its pictures.")] = Path("docs/figures"),
    replications: Annotated[int, typer.Option(min=2, help="Draws of the logged actions.")] = 4,
    dates: Annotated[int, typer.Option(min=2, help="Starting dates in the second half.")] = 24,
    seed: Seed = 20261116,
    jobs: Jobs = PROCESSORS,
) -> None:
    """Flights and film ratings, played as logs first and then online; needs the extra "real"."""
    _one_thread_each()
    from invariant_bandits.experiments.studies import real as real_study
    from invariant_bandits.experiments.studies import real_data, real_goals, real_report
    from invariant_bandits.experiments.studies.real_policies import AUTO_TUNED
    from invariant_bandits.reports import gain_chart as plots_real
    from invariant_bandits.reports import plots

    outcomes = {}
    with _progress() as bar:
        task = bar.add_task("starting", total=None)
        for name, load in real_data.DATA.items():
            outcomes[name] = real_study.run(
                load(),
                replications=replications,
                dates=dates,
                seed=seed,
                jobs=jobs,
                progress=lambda words, done, total: bar.update(
                    task, description=words, completed=done, total=total, refresh=True
                ),
            )
    charts = {outcome.name: real_goals.charted(outcome) for outcome in outcomes.values()}
    for theme in plots.THEMES:
        picture = plots_real.gain_chart(charts, ours=real_goals.OURS, reference=AUTO_TUNED, theme_name=theme)
        plots.save(picture, figures / f"real-{theme}", ["png"])
    page = real_report.report(outcomes, pictures=Path(os.path.relpath(figures, out.parent)).as_posix())
    out.parent.mkdir(parents=True, exist_ok=True)
    replace_file(out, page.encode())
    console.print(page, highlight=False, markup=False)
    judged = outcomes[real_report.JUDGED]
    missed = {policy: sum(not one.reached for one in real_goals.verdicts(judged, policy)) for policy in real_goals.OURS}
    shown = ", ".join(f"{policy}: {count}" for policy, count in missed.items())
    console.print(f"written to {out}, pictures to {figures}; goals missed, {shown}")


def main() -> None:
    """Run the command; errors of input become one line and exit code 2."""
    try:
        app()
    except (InputError, OSError) as error:
        _fail(str(error))
    except ModuleNotFoundError as error:
        _fail(f"the package {error.name!r} is needed for this and is not installed")


def _fail(words: str) -> NoReturn:
    console.print(f"error: {words}", style="bold red", highlight=False, markup=False, soft_wrap=True)
    sys.exit(2)
