"""The commands that play: simulate, compile."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from invariant_bandits.cli import say_how_to_go_on
from invariant_bandits.cli.common import (
    PROCESSORS,
    Force,
    Jobs,
    check_target,
    counting,
    one_thread_each,
    width,
)
from invariant_bandits.cli.common import plain_console as console

PICTURES = ("png", "svg", "pdf")
GOING_ON = "finished cells are kept, the same command goes on from there"
COMPILING = "compiling (once after installation)"
COMPILED = (
    *("linucb", "linucb-warm", "greedy", "sw-linucb", "d-linucb"),
    *("isd-linucb", "auto-isd"),
)
"""Policies whose inner loops `compile` compiles: together they use all of them."""


def simulate(
    config: Annotated[
        Path, Argument(help="A TOML file; see docs/method/experiments.md.")
    ],
    out: Annotated[Path, Option(help="Folder for the results.")] = Path("simulation"),
    jobs: Jobs = PROCESSORS,
    replications: Annotated[
        int | None, Option(min=2, help="Instead of the file's.")
    ] = None,
    seed: Annotated[int | None, Option(min=0, help="Instead of the file's.")] = None,
    force: Force = False,
) -> None:
    """Play a grid of your own worlds and policies; finished cells are not played again."""
    from invariant_bandits.reports import plots
    from invariant_bandits.reports.page import number, table_lines
    from invariant_bandits.simulation import cells

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


def compile_() -> None:
    """Compile the inner loops now and keep them on disk, rather than at first use (about half a minute,
    once).
    """
    from invariant_bandits.policies.registry import PolicySpec
    from invariant_bandits.simulation import cells
    from invariant_bandits.simulation.episodes import PaperEpisodes

    one_thread_each()
    played = {name: PolicySpec(name) for name in COMPILED}
    with console.status("compiling"):
        cells.load_compiled_code([cells.Cell("compile", PaperEpisodes(), 30, played)])
    console.print("the inner loops are compiled")
