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
Replications = Annotated[
    int | None,
    typer.Option(min=2, help="Repetitions per row; those of the page if not given."),
]
Seed = Annotated[
    int | None,
    typer.Option(min=0, help="Seed; that of the page if not given."),
]
Jobs = Annotated[int, typer.Option(min=1, help="Processes to use.")]
PAGES = Path("docs/studies")
PICTURES = Path("docs/figures")


def run_study(
    name: str, out: Path, figures: Path | None = None, **options: Any
) -> None:
    """Run a study, and write its page and, into `figures`, its pictures.

    options: those of the study's `run`, which has the page's own for those that are None.
    """
    from invariant_bandits.reports import plots

    file = f"{name.replace('-', '_')}_study"
    module: Any = import_module(f"invariant_bandits_reproduction.studies.{file}")
    one_thread_each()
    stamp = stamp_of(name)  # of the code that plays, which may change while it does
    given = {option: value for option, value in options.items() if value is not None}
    with counting("starting") as progress:
        outcome = module.run(progress=progress, **given)
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


def add_study(name: str, words: str, jobs: int = PROCESSORS) -> None:
    """Add the command of a study that has a page and no options of its own."""

    def command(
        out: Page = PAGES / f"{name}.md",
        replications: Replications = None,
        seed: Seed = None,
        jobs: Jobs = jobs,
    ) -> None:
        run_study(name, out, replications=replications, seed=seed, jobs=jobs)

    study.command(name, help=words)(command)


def add_pictured_study(name: str, words: str) -> None:
    """Add the command of a study that has pictures, too."""

    def command(
        out: Page = PAGES / f"{name}.md",
        figures: Figures = PICTURES,
        replications: Replications = None,
        seed: Seed = None,
        jobs: Jobs = PROCESSORS,
    ) -> None:
        run_study(name, out, figures, replications=replications, seed=seed, jobs=jobs)

    study.command(name, help=words)(command)


add_study("offline", "How often the offline phase is right, and how accurate.")
add_study("stress", "AutoISD where the logs mislead: regret, widths and alarm.")
add_study("alarm", "The alarm: how often it is false, and what it finds.")
add_study("drift-level", "Many columns and no drift: how often drift is said.")
add_study("intervals", "How often off-policy intervals cover, and when they refuse.")
add_study(
    "constants",
    "Every constant of AutoISD halved and doubled, and the price of caution.",
    1,
)
add_pictured_study("online", "Regret of every policy, and what it must show.")
add_pictured_study(
    "randomised", "What randomised decisions cost, and what their log tells."
)
add_pictured_study(
    "related", "Related methods, each in its own world and in the others'."
)


@study.command()
def arms(
    out: Page = PAGES / "arms.md",
    replications: Replications = None,
    logs: Annotated[
        int | None, typer.Option(min=2, help="Logs to name drifting effects in.")
    ] = None,
    seed: Seed = None,
    jobs: Jobs = PROCESSORS,
) -> None:
    """Logs of contexts, a label and a click: regret, drifting effects named, new arms found."""
    run_study("arms", out, replications=replications, logs=logs, seed=seed, jobs=jobs)


@study.command()
def real(
    out: Page = PAGES / "real.md",
    figures: Figures = PICTURES,
    replications: Replications = None,
    dates: Annotated[
        int | None, typer.Option(min=3, help="Starting dates in the second half.")
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="A data set, several times; those of every field if not given."
        ),
    ] = None,
    seed: Seed = None,
    jobs: Jobs = PROCESSORS,
) -> None:
    """Public data, played as logs first and then online; needs the extra "real"."""
    options: dict[str, Any] = {
        "replications": replications,
        "seed": seed,
        "jobs": jobs,
    }
    run_study("real", out, figures, names=data, dates=dates, **options)


@study.command()
def wild(
    out: Page = PAGES / "wild.md",
    replications: Replications = None,
    compared: Annotated[
        int | None, typer.Option(min=1, help="Logs per kind to compare policies on.")
    ] = None,
    first: Annotated[
        int | None, typer.Option(min=2, help="Wide logs, and first models, per kind.")
    ] = None,
    seed: Seed = None,
    jobs: Jobs = 1,
    kept: Annotated[
        Path | None, typer.Option(help="File that keeps every draw, to go on with.")
    ] = None,
) -> None:
    """Logs as other systems write them: roles, leaks, drift, first models, the order of policies."""
    options: dict[str, Any] = {
        "replications": replications,
        "seed": seed,
        "jobs": jobs,
    }
    run_study("wild", out, compared=compared, first=first, kept=kept, **options)


@study.command()
def peers(
    out: Page = PAGES / "peers.md",
    figures: Figures = PICTURES,
    replications: Replications = None,
    seed: Seed = None,
    jobs: Jobs = PROCESSORS,
    cache: Annotated[
        Path | None,
        typer.Option(help="Folder that keeps finished worlds if the run is stopped."),
    ] = None,
) -> None:
    """The same rounds through our policies and those of other packages; needs "peers" and "real"."""
    options: dict[str, Any] = {
        "replications": replications,
        "seed": seed,
        "jobs": jobs,
    }
    run_study("peers", out, figures, cache=cache, **options)


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
    figures: Figures = PICTURES,
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
def autoisd(figures: Figures = PICTURES) -> None:
    """Draw the pictures of docs/method/autoisd.md."""
    from invariant_bandits_reproduction.studies.autoisd_pictures import PICTURES

    pictures = {f"autoisd-{name}": draw for name, draw in PICTURES.items()}
    save_pictures(pictures, figures)


@study.command()
def concepts(figures: Figures = PICTURES) -> None:
    """Draw the pictures of docs/concepts."""
    from invariant_bandits_reproduction.studies.concept_pictures import PICTURES

    pictures = {f"concept-{name}": draw for name, draw in PICTURES.items()}
    save_pictures(pictures, figures, "svg")


@study.command()
def proofs(figures: Figures = PICTURES) -> None:
    """Draw the picture of docs/method/proofs.md."""
    from invariant_bandits_reproduction.studies.proofs import draw

    save_pictures({"proofs": draw}, figures)


if __name__ == "__main__":
    study()
