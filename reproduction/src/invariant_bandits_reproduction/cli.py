"""The commands of the reproduction: reproduce, report. The command `invariant-bandits` finds them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from invariant_bandits.checks import InputError
from invariant_bandits.cli import say_how_to_go_on
from invariant_bandits.cli.common import (
    PROCESSORS,
    Force,
    Jobs,
    Seed,
    counting,
    one_thread_each,
    register,
    width,
)
from invariant_bandits.cli.common import plain_console as console
from invariant_bandits.cli.grids import COMPILING, GOING_ON

Latex = Annotated[
    bool,
    Option(
        "--latex",
        help="Also write every table as LaTeX (booktabs) into tables/.",
    ),
]


def reproduce(
    experiments: Annotated[
        list[str] | None,
        Argument(metavar="[EXPERIMENT]...", help="Which ones; all if none is named."),
    ] = None,
    paper: Annotated[
        bool, Option("--paper", help="The paper's 20 repetitions.")
    ] = False,
    replications: Annotated[
        int | None, Option(min=2, help="Repetitions per cell; 200 if not given.")
    ] = None,
    jobs: Jobs = PROCESSORS,
    out: Annotated[Path, Option(help="Folder for cells, figures and report.")] = Path(
        "results"
    ),
    seed: Seed = 20261116,
    latex: Latex = False,
    force: Force = False,
) -> None:
    """Reproduce the paper: play its experiments and ours, test every claim, draw every figure, write
    report.html.

    A run that was interrupted goes on where it stopped: finished cells are not played again.
    """
    from invariant_bandits_reproduction import run
    from invariant_bandits_reproduction.figures.experiment import chosen

    one_thread_each()
    if paper and replications is not None:
        raise InputError("give either --paper or --replications, not both")
    repeated = 20 if paper else replications or 200
    names = [experiment.name for experiment in chosen(experiments or [])]
    say_how_to_go_on(GOING_ON)
    how: dict[str, Any] = {
        "seed": seed,
        "jobs": jobs,
        "notice": console.print,
        "force": force,
    }
    with counting(COMPILING) as progress:
        run.play(names, out, replications=repeated, progress=progress, **how)
    report(out, jobs, latex)


def report(
    folder: Annotated[Path, Argument(help="Folder of a finished run of `reproduce`.")],
    jobs: Jobs = PROCESSORS,
    latex: Latex = False,
) -> None:
    """Judge the claims and draw the figures and the report again, without playing anything."""
    from invariant_bandits.reports.page import table_lines
    from invariant_bandits_reproduction import run

    with console.status("judging claims and drawing figures"):
        reproduction = run.read(folder, jobs)
        run.write_claims(reproduction, folder)
        run.write_figures(reproduction, folder, jobs)
        run.write_tables(reproduction, folder, latex=latex)
        page = run.write_report(reproduction, folder)
    open_claims = run.open_claims(reproduction)
    if open_claims:
        lines = table_lines(*run.claims_table(open_claims, quantity=False), width())
        console.print("Tests that do not hold, or are not decided:", *lines, sep="\n")
    console.print(run.headline(reproduction), highlight=False)
    console.print(
        f"report: {page}\nfigures: {folder / run.FIGURES} (PNG light and dark, SVG, PDF)"
    )
    written = f" and LaTeX in {folder / run.TABLES}" if latex else ""
    console.print(
        f"regret of every policy in every cell: {folder / run.REGRET}{written}"
    )


commands = typer.Typer(rich_markup_mode=None)
register(commands, reproduce, report)
