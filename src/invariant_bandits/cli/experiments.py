"""The commands that play: reproduce, report, simulate, compile."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from invariant_bandits.checks import InputError
from invariant_bandits.cli import say_how_to_go_on
from invariant_bandits.cli.common import PROCESSORS, check_target, console, counting, one_thread_each

if TYPE_CHECKING:
    from invariant_bandits.experiments.run import Reproduction
    from invariant_bandits.simulation.loop import SimulationResult

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
    with counting(COMPILING) as progress:
        run.play(
            names,
            out,
            replications=repeated,
            seed=seed,
            jobs=jobs,
            progress=progress,
            notice=console.print,
            force=force,
        )
    _report(out, jobs)


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


def report(folder: Path, jobs: int = PROCESSORS) -> None:
    """Judge the claims and draw the figures and the report again, without playing anything."""
    _report(folder, jobs)


def _report(folder: Path, jobs: int) -> None:
    from invariant_bandits.experiments import run

    with console.status("judging claims and drawing figures"):
        reproduction = run.read(folder, jobs)
        run.write_claims(reproduction, folder)
        run.write_figures(reproduction, folder, jobs)
        page = run.write_report(reproduction, folder)
    console.print(_times(reproduction))
    table = _open_claims(reproduction)
    if table.row_count:
        console.print(table)
    console.print(run.headline(reproduction), highlight=False)
    console.print(f"report: {page}\nfigures: {folder / run.FIGURES} (PNG light and dark, SVG, PDF)")


def _table(title: str, words: Iterable[str], numbers: Iterable[str], rows: Iterable[Sequence[Any]]) -> Table:
    """A table whose first columns hold words and whose others hold numbers."""
    table = Table(title=title, title_justify="left")
    for heading in words:
        table.add_column(heading)
    for heading in numbers:
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(*row)
    return table


def _times(reproduction: Reproduction) -> Table:
    """How long every experiment took."""
    rows = []
    for experiment in reproduction.experiments:
        seconds = sum(reproduction.seconds.get(cell.name, 0.0) for cell in experiment.cells)
        each = 1e3 * seconds / reproduction.run.replications / len(experiment.cells)
        rows.append((experiment.name, str(len(experiment.cells)), f"{seconds:.1f}", f"{each:.0f}"))
    return _table("Time", ["experiment"], ["cells", "seconds", "ms per repetition"], rows)


def _open_claims(reproduction: Reproduction) -> Table:
    """What does not hold, or is not decided."""
    rows = []
    for claim, verdict in (pair for judged in reproduction.verdicts.values() for pair in judged):
        if not verdict.reached:
            word = Text(verdict.word, style="bold red" if verdict.word == "fails" else "yellow")
            interval = f"{verdict.low:.3g} to {verdict.high:.3g}"
            rows.append((word, claim.name, f"{verdict.value:.3g}", interval, str(claim.bound)))
    title = "Tests that do not hold, or are not decided"
    return _table(title, ["verdict", "claim"], ["value", "95 % interval", "bound"], rows)


def simulate(
    config: Path,
    out: Path = Path("simulation"),
    jobs: int = PROCESSORS,
    replications: int | None = None,
    seed: int | None = None,
    allow_code: bool = False,
    force: bool = False,
) -> None:
    """Play one's own grid of worlds and policies; finished cells are not played again."""
    from invariant_bandits.experiments import cells
    from invariant_bandits.reports import plots

    one_thread_each()
    if allow_code:
        sys.path.insert(0, "")  # a console script does not look in the present folder by itself
    say_how_to_go_on(GOING_ON)
    grid = cells.read_grid(config, allow_code=allow_code)
    out.mkdir(parents=True, exist_ok=True)
    for suffix in PICTURES:
        check_target(out / f"regret.{suffix}", "--out", "picture", force=force)
    with counting(COMPILING) as progress:
        results = cells.run(
            grid.cells,
            out,
            replications=replications or grid.replications,
            seed=grid.seed if seed is None else seed,
            jobs=jobs,
            progress=progress,
            notice=console.print,
            force=force,
        )
    names = list(grid.cells[0].policies)
    console.print(_regret_table(results, names))
    console.print(f"one Parquet file per cell: {out}")
    if len(names) <= plots.MOST_SERIES:
        chart = {
            cell: {
                name: (float(v.mean()), float(v.max()))
                for name in names
                if (v := result.final(name)).mean() > 0.0
            }
            for cell, result in results.items()
        }
        picture = plots.save(plots.regret_chart(chart), out / "regret", PICTURES)
        console.print(f"picture: {picture[0]} (and .svg, .pdf)")


def _regret_table(results: Mapping[str, SimulationResult], names: list[str]) -> Table:
    rows = []
    for cell, result in results.items():
        finals = [result.final(name) for name in names]
        shown = (f"{v.mean():.1f} ± {v.std(ddof=1) / len(v) ** 0.5:.1f} ({v.max():.0f})" for v in finals)
        rows.append((cell, *shown))
    return _table("Regret: mean ± standard error (worst run)", ["cell"], names, rows)
