"""The command `python -m invariant_bandits_reproduction.studies`: runs a study, writes its page and pictures.

It says which goals were missed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from invariant_bandits.cli.common import (
    PROCESSORS,
    check_target,
    console,
    counting,
    one_thread_each,
)
from invariant_bandits.plotting import THEMES
from invariant_bandits.storage import replace_file
from invariant_bandits_reproduction.studies.harness import wrap_prose
from invariant_bandits_reproduction.studies.stamps import mark_all, stamp_of, stamped

study = typer.Typer(
    no_args_is_help=True, help="Studies over many repetitions; slower than the tests."
)


def _checked_page(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    check_target(path, "--out", "Markdown page", force=None)
    return path


def _checked_folder(context: typer.Context, folder: Path) -> Path:
    for path in folder.glob(f"{context.info_name}-*"):
        check_target(path, "--figures", "picture", force=None)
    return folder


Page = Annotated[
    Path, typer.Option(help="Where the Markdown page goes.", callback=_checked_page)
]
Figures = Annotated[
    Path, typer.Option(help="Folder for its pictures.", callback=_checked_folder)
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of all randomness.")]
Jobs = Annotated[int, typer.Option(min=1, help="Processes to use.")]
PerWorld = Annotated[int, typer.Option(min=2, help="Repetitions per world.")]


def run_study(
    name: str, out: Path, figures: Path | None = None, **options: Any
) -> None:
    """Run a study, and write its page and, into `figures`, its pictures."""
    from invariant_bandits.reports import plots

    file = f"{name.replace('-', '_')}_study"
    module: Any = import_module(f"invariant_bandits_reproduction.studies.{file}")
    one_thread_each()
    stamp = stamp_of(name)  # of the code that plays, which may change while it does
    with counting("starting") as progress:
        outcome = module.run(progress=progress, **options)
    if figures is None:
        page, pictures = module.report(outcome), ""
    else:
        for theme in THEMES:
            plots.save(
                module.draw(outcome, theme), figures / f"{name}-{theme}", ["png"]
            )
        folder = Path(
            os.path.relpath(figures, out.parent)
        ).as_posix()  # as the page links to it
        page = module.report(outcome, pictures=folder)
        pictures = f", pictures to {figures}"
    replace_file(out, stamped(wrap_prose(page), stamp).encode())
    console.print(page, highlight=False)
    missed = sum(not verdict.reached for _, verdict in module.verdicts(outcome))
    console.print(f"written to {out}{pictures}; goals missed: {missed}")


@study.command()
def offline(
    out: Page = Path("docs/studies/offline.md"),
    replications: Annotated[
        int, typer.Option(min=20, help="Repetitions per cell.")
    ] = 400,
    seed: Seed = 20261115,
    jobs: Jobs = PROCESSORS,
) -> None:
    """How often the offline phase is right, and how accurate, on the paper's generator and beyond."""
    run_study("offline", out, replications=replications, seed=seed, jobs=jobs)


@study.command()
def online(
    out: Page = Path("docs/studies/online.md"),
    figures: Figures = Path("docs/figures"),
    replications: Annotated[
        int, typer.Option(min=2, help="Repetitions per row.")
    ] = 200,
    seed: Seed = 20270115,
    jobs: Jobs = PROCESSORS,
) -> None:
    """Regret of every policy on the paper's simulations and beyond, and what it must show."""
    run_study("online", out, figures, replications=replications, seed=seed, jobs=jobs)


@study.command()
def stress(
    out: Page = Path("docs/studies/stress.md"),
    replications: PerWorld = 60,
    seed: Seed = 20270112,
    jobs: Jobs = PROCESSORS,
) -> None:
    """Regret, widths and alarm of AutoISD where the logs mislead, and with arms that never change."""
    run_study("stress", out, replications=replications, seed=seed, jobs=jobs)


@study.command()
def arms(
    out: Page = Path("docs/studies/arms.md"),
    replications: PerWorld = 40,
    logs: Annotated[
        int, typer.Option(min=2, help="Logs to name drifting effects in.")
    ] = 200,
    seed: Seed = 20261231,
    jobs: Jobs = PROCESSORS,
) -> None:
    """Logs of contexts, a label and a click: regret, drifting effects named, new arms found."""
    run_study("arms", out, replications=replications, logs=logs, seed=seed, jobs=jobs)


@study.command()
def alarm(
    out: Page = Path("docs/studies/alarm.md"),
    replications: Annotated[
        int, typer.Option(min=6, help="Repetitions of the first worlds.")
    ] = 300,
    seed: Seed = 20261121,
    jobs: Jobs = PROCESSORS,
) -> None:
    """The alarm: how often it is false, and how often it finds what breaks."""
    run_study("alarm", out, replications=replications, seed=seed, jobs=jobs)


@study.command()
def drift_level(
    out: Page = Path("docs/studies/drift-level.md"),
    replications: Annotated[
        int, typer.Option(min=20, help="Logs per cell; fewer where fits are large.")
    ] = 100,
    seed: Seed = 20270301,
    jobs: Jobs = PROCESSORS,
) -> None:
    """Many columns and no drift: how often drift is said, whether intervals hold, and the power."""
    run_study("drift-level", out, replications=replications, seed=seed, jobs=jobs)


@study.command()
def real(
    out: Page = Path("docs/studies/real.md"),
    figures: Figures = Path("docs/figures"),
    replications: Annotated[
        int, typer.Option(min=2, help="Draws of the logged actions.")
    ] = 4,
    dates: Annotated[
        int, typer.Option(min=3, help="Starting dates in the second half.")
    ] = 24,
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="A data set, several times; those of every field if not given."
        ),
    ] = None,
    seed: Seed = 20270113,
    jobs: Jobs = PROCESSORS,
) -> None:
    """Public data, played as logs first and then online; needs the extra "real"."""
    names = data or ()
    run_study(
        "real",
        out,
        figures,
        names=names,
        replications=replications,
        dates=dates,
        seed=seed,
        jobs=jobs,
    )


@study.command()
def intervals(
    out: Page = Path("docs/studies/intervals.md"),
    replications: Annotated[int, typer.Option(min=2, help="Logs per cell.")] = 400,
    seed: Seed = 20261216,
    jobs: Jobs = PROCESSORS,
) -> None:
    """How often off-policy intervals cover, how wide they are, when they refuse, for many kinds of reward."""
    run_study("intervals", out, replications=replications, seed=seed, jobs=jobs)


@study.command()
def randomised(
    out: Page = Path("docs/studies/randomised.md"),
    figures: Figures = Path("docs/figures"),
    replications: Annotated[
        int, typer.Option(min=2, help="Logs; a third where not default.")
    ] = 300,
    seed: Seed = 20261217,
    jobs: Jobs = PROCESSORS,
) -> None:
    """What randomised decisions cost, and how much their log tells about another policy later."""
    run_study(
        "randomised", out, figures, replications=replications, seed=seed, jobs=jobs
    )


@study.command()
def constants(
    out: Page = Path("docs/studies/constants.md"),
    replications: PerWorld = 40,
    seed: Seed = 20270114,
    jobs: Jobs = 1,
) -> None:
    """Every constant of AutoISD halved and doubled, and the price of caution."""
    run_study("constants", out, replications=replications, seed=seed, jobs=jobs)


@study.command()
def wild(
    out: Page = Path("docs/studies/wild.md"),
    replications: Annotated[int, typer.Option(min=2, help="Logs per kind.")] = 40,
    compared: Annotated[
        int, typer.Option(min=1, help="Logs per kind to compare policies on.")
    ] = 20,
    first: Annotated[
        int, typer.Option(min=2, help="Wide logs, and first models, per kind.")
    ] = 10,
    seed: Seed = 20261119,
    jobs: Jobs = 1,
    kept: Annotated[
        Path | None, typer.Option(help="File that keeps every draw, to go on with.")
    ] = None,
) -> None:
    """Logs as other systems write them: roles, leaks, drift, first models, the order of policies."""
    run_study(
        "wild",
        out,
        replications=replications,
        compared=compared,
        first=first,
        seed=seed,
        jobs=jobs,
        kept=kept,
    )


@study.command()
def related(
    out: Page = Path("docs/studies/related.md"),
    figures: Figures = Path("docs/figures"),
    replications: PerWorld = 100,
    seed: Seed = 20270202,
    jobs: Jobs = PROCESSORS,
) -> None:
    """Related methods of the literature, each in its own world and in those of the others."""
    run_study("related", out, figures, replications=replications, seed=seed, jobs=jobs)


@study.command()
def peers(
    out: Page = Path("docs/studies/peers.md"),
    figures: Figures = Path("docs/figures"),
    replications: PerWorld = 20,
    seed: Seed = 20270201,
    jobs: Jobs = PROCESSORS,
    cache: Annotated[
        Path | None,
        typer.Option(help="Folder that keeps finished worlds if the run is stopped."),
    ] = None,
) -> None:
    """The same rounds through our policies and those of other packages; needs "peers" and "real"."""
    run_study(
        "peers",
        out,
        figures,
        replications=replications,
        seed=seed,
        jobs=jobs,
        cache=cache,
    )


@study.command()
def stamps() -> None:
    """Mark every page of a study whose numbers are older than the present code."""
    for name, mark in mark_all().items():
        console.print(f"{name}: {mark.strip('*')}", highlight=False)


@study.command()
def pictures(
    results: Annotated[
        Path, typer.Option(help="Folder of a finished `invariant-bandits reproduce`.")
    ] = Path("results"),
    figures: Figures = Path("docs/figures"),
) -> None:
    """Draw README's pictures of experiments and store the numbers that they show."""
    from invariant_bandits_reproduction.studies.experiment_pictures import (
        write_pictures,
    )

    written = write_pictures(results, figures)
    console.print(f"{len(written)} files to {figures}")


def save_pictures(
    pictures: Mapping[str, Callable[[str], Any]], folder: Path, form: str = "png"
) -> None:
    """Save pictures, name -> drawing of a theme, in both themes."""
    from invariant_bandits.reports import plots

    for name, draw in pictures.items():
        for theme in THEMES:
            plots.save(draw(theme), folder / f"{name}-{theme}", [form])
    console.print(f"pictures to {folder}")


@study.command()
def autoisd(figures: Figures = Path("docs/figures")) -> None:
    """Draw the pictures of docs/method/autoisd.md."""
    from invariant_bandits_reproduction.studies.autoisd_pictures import PICTURES

    pictures = {f"autoisd-{name}": draw for name, draw in PICTURES.items()}
    save_pictures(pictures, figures)


@study.command()
def concepts(figures: Figures = Path("docs/figures")) -> None:
    """Draw the pictures of docs/concepts."""
    from invariant_bandits_reproduction.studies.concept_pictures import PICTURES

    pictures = {f"concept-{name}": draw for name, draw in PICTURES.items()}
    save_pictures(pictures, figures, "svg")


@study.command()
def proofs(figures: Figures = Path("docs/figures")) -> None:
    """Draw the picture of docs/method/proofs.md."""
    from invariant_bandits_reproduction.studies.proofs import draw

    save_pictures({"proofs": draw}, figures)


if __name__ == "__main__":
    study()
