"""The command `invariant-bandits`: argument parsing and printing only."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from invariant_bandits import __version__
from invariant_bandits.checks import InputError
from invariant_bandits.files import replace_file

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Contextual bandits that remember what lasts and relearn what changed.",
)
study = typer.Typer(no_args_is_help=True, help="Studies over many repetitions; slower than the tests.")
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
    out: Annotated[Path, typer.Option(help="Folder for the pictures.")] = Path("results"),
    seed: Seed = 1,
    replications: Annotated[int, typer.Option(min=2, help="Repetitions of the online phase; the paper has 20.")] = 20,
    jobs: Jobs = PROCESSORS,
) -> None:
    """Fit the paper's simulated logs, compare what was found with what was planted, then play the online phase."""
    _reproduce_offline(out, seed)
    _reproduce_online(out, seed, replications, jobs)


def _reproduce_offline(out: Path, seed: int) -> None:
    from invariant_bandits import plots
    from invariant_bandits.experiments.recovery import LOGGED_ROUNDS, Setting, recover

    table = Table(title="What the logs reveal: recovered against planted", title_justify="left")
    for heading in ("logged rounds", "stable + drifting", "planted", "‖Π̂−Π‖", "× √T0", "‖β̂−β‖", "fit"):
        table.add_column(heading, justify="right")
    with console.status("compiling (once after installation) and fitting"):
        recover(Setting("first", LOGGED_ROUNDS[0]), (seed, 0))
        for rounds in LOGGED_ROUNDS:
            fit, found = recover(Setting("paper", rounds), (seed, rounds))
            table.add_row(
                f"{rounds:,}",
                "{} + {}".format(*found.found),
                "{} + {}".format(*found.planted),
                f"{found.projection_error:.4f}",
                f"{found.projection_error * rounds**0.5:.2f}",
                f"{found.component_error:.3f}",
                f"{1e3 * found.seconds:.0f} ms",
            )
            for theme in plots.THEMES:
                picture = plots.overview(fit, theme_name=theme, title=f"{rounds:,} logged rounds")
                plots.save(picture, out / f"offline-{rounds}-{theme}")
    console.print(table)
    console.print(fit.summary(), highlight=False)
    console.print(f"\nPictures: {out}/offline-*.png, .svg and .pdf, each light and dark\n")


def _reproduce_online(out: Path, seed: int, replications: int, jobs: int) -> None:
    from invariant_bandits import plots
    from invariant_bandits.experiments import online_study
    from invariant_bandits.experiments.online_rows import LARGE_JUMP, PAPER_ROWS

    with _progress() as bar:
        task = bar.add_task("starting", total=None)
        outcome = online_study.run(
            (*PAPER_ROWS, LARGE_JUMP),
            replications=replications,
            seed=seed,
            jobs=jobs,
            progress=lambda row, done, total: bar.update(
                task, description=row, completed=done, total=total, refresh=True
            ),
        )
    chart = online_study.charted(outcome)
    table = Table(title=f"Regret after 500 rounds: mean (worst) of {replications} runs", title_justify="left")
    table.add_column("logs → online")
    for name in online_study.CHARTED:
        table.add_column(name, justify="right")
    for row, here in chart.items():
        table.add_row(row, *(f"{here[name][0]:.1f} ({here[name][1]:.0f})" for name in online_study.CHARTED))
    console.print(table)
    for theme in plots.THEMES:
        plots.save(plots.regret_chart(chart, theme_name=theme), out / f"online-{theme}")
    console.print(f"\nPictures: {out}/online-*.png, .svg and .pdf, each light and dark")


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
    from invariant_bandits.moments import WindowedMoments

    stored = WindowedMoments.load(moments)
    if windows is not None:
        stored = stored.coarsen(windows)
    fit = InvariantSubspaceDecomposition(metric=metric, covariances=covariances, alpha=alpha)
    with console.status("fitting (the first time after installation: compiling)"):
        fit.fit(stored)
    console.print(fit.summary(), highlight=False)
    if plot is not None:
        from invariant_bandits import plots

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
    from invariant_bandits.experiments import offline_study

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
    from invariant_bandits import plots
    from invariant_bandits.experiments import online_goals, online_study

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
    from invariant_bandits import plots, plots_real
    from invariant_bandits.experiments import real_data, real_goals, real_report, real_study
    from invariant_bandits.experiments.real_policies import AUTO_TUNED

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
        console.print(f"error: {error}", style="bold red", highlight=False)
        sys.exit(2)
