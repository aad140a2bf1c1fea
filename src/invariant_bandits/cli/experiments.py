"""The commands that play: reproduce, report, simulate, compile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from invariant_bandits.checks import InputError
from invariant_bandits.cli import say_how_to_go_on
from invariant_bandits.cli.common import (
    PROCESSORS,
    check_target,
    counting,
    one_thread_each,
    width,
)
from invariant_bandits.cli.common import plain_console as console

PICTURES = ("png", "svg", "pdf")
GOING_ON = "finished cells are kept, the same command goes on from there"
COMPILING = "compiling (once after installation)"


def reproduce(
    experiments: list[str] | None = None,
    paper: bool = False,
    replications: int | None = None,
    jobs: int = PROCESSORS,
    out: Path = Path("results"),
    seed: int = 20261116,
    latex: bool = False,
    force: bool = False,
) -> None:
    """Reproduce the paper: play its experiments and ours, test every claim, draw every figure, write
    report.html.

    A run that was interrupted goes on where it stopped: finished cells are not played again.
    """
    from invariant_bandits.experiments import run
    from invariant_bandits.experiments.figures.experiment import chosen

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


def compile_() -> None:
    """Compile the inner loops now and keep them on disk, rather than at first use (about half a minute,
    once).
    """
    from invariant_bandits.experiments import cells
    from invariant_bandits.experiments.figures.experiment import cells_of, chosen

    one_thread_each()
    with console.status("compiling"):
        cells.load_compiled_code(cells_of(chosen([])))
    console.print("the inner loops are compiled")


def report(folder: Path, jobs: int = PROCESSORS, latex: bool = False) -> None:
    """Judge the claims and draw the figures and the report again, without playing anything."""
    from invariant_bandits.experiments import run
    from invariant_bandits.reports.page import table_lines

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


def simulate(
    config: Path,
    out: Path = Path("simulation"),
    jobs: int = PROCESSORS,
    replications: int | None = None,
    seed: int | None = None,
    force: bool = False,
) -> None:
    """Play a grid of your own worlds and policies; finished cells are not played again."""
    from invariant_bandits.experiments import cells
    from invariant_bandits.reports import plots
    from invariant_bandits.reports.page import number, table_lines

    one_thread_each()
    say_how_to_go_on(GOING_ON)
    grid = cells.read_grid(config)
    out.mkdir(parents=True, exist_ok=True)
    for suffix in PICTURES:
        check_target(out / f"regret.{suffix}", "--out", "picture", force=force)
    check_target(out / "regret.csv", "--out", "table of regrets", force=force)
    how: dict[str, Any] = {
        "seed": grid.seed if seed is None else seed,
        "jobs": jobs,
        "force": force,
    }
    how |= {"replications": replications or grid.replications, "notice": console.print}
    with counting(COMPILING) as progress:
        results = cells.run(grid.cells, out, progress=progress, **how)
    names = list(grid.cells[0].policies)
    finals = {
        cell: {name: result.final(name) for name in names}
        for cell, result in results.items()
    }
    rows: Any = [
        [cell, *map(number, map(cells.regret_words, ends.values()))]
        for cell, ends in finals.items()
    ]
    lines = table_lines(["cell", *names], rows, width())
    console.print("Regret: mean ± standard error (worst run)", *lines, sep="\n")
    tidy = cells.write_tidy(results, out / "regret.csv")
    console.print(
        f"one Parquet file per cell: {out}\none row per cell and policy: {tidy}"
    )
    if len(names) <= plots.MOST_SERIES:
        chart = {
            cell: {
                name: (float(v.mean()), float(v.max()))
                for name, v in ends.items()
                if v.mean() > 0.0
            }
            for cell, ends in finals.items()
        }
        picture = plots.save(plots.regret_chart(chart), out / "regret", PICTURES)
        console.print(f"picture: {picture[0]} (and .svg, .pdf)")
