"""One run of the experiments in one folder: cells, claims, figures and the report; redrawn without rerunning.

folder/run.json says what was asked for; folder/cells holds one Parquet file per cell; folder/figures every
figure as PNG (light and dark), SVG and PDF; folder/claims.json the verdicts; folder/report.html the page:
claims with verdicts, figures, levels, settings, seeds, versions and run time.
"""

from __future__ import annotations

import json
import platform
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from invariant_bandits import parallel
from invariant_bandits.checks import InputError, whole_number, whole_seed
from invariant_bandits.experiments import cells
from invariant_bandits.experiments.claims import FAILS, HOLDS, RESAMPLES, Claim, ClaimVerdict, Results, Sample
from invariant_bandits.experiments.figures.experiment import TEXTS, Experiment, cells_of, chosen
from invariant_bandits.plotting import THEMES
from invariant_bandits.reports import page
from invariant_bandits.reports.page import Mark, number
from invariant_bandits.reports.plots import save
from invariant_bandits.storage import FileError, replace_file

RUN, CLAIMS, REPORT, CELLS, FIGURES = "run.json", "claims.json", "report.html", "cells", "figures"
LIBRARIES = ("invariant-bandits", "numpy", "scipy", "numba", "pyarrow", "matplotlib")
DEFAULT_SEED = 20261116
SOURCES = {
    "paper": "the paper's claims, all runs kept",
    "recipe": "the same claims with the published estimation recipe",
    "ours": "our own claims",
}


@dataclass(frozen=True)
class Run:
    """What was asked for, with what, and how long it took: stored as run.json."""

    experiments: list[str]
    replications: int
    seed: int
    versions: dict[str, str]
    processes: int
    seconds: float = 0.0


@dataclass(frozen=True, eq=False)
class Reproduction:
    """Everything a report needs: read from a folder, nothing is played."""

    run: Run
    experiments: list[Experiment]
    results: Results
    seconds: dict[str, float]
    verdicts: dict[str, list[tuple[Claim, ClaimVerdict]]]


def play(
    names: Sequence[str],
    folder: Path,
    *,
    replications: int = 200,
    seed: int = DEFAULT_SEED,
    jobs: int = 1,
    force: bool = False,
    **options: Any,
) -> None:
    """Play every cell of the named experiments (all if none is named) that is not stored yet.

    Files that no run has written are not written over, unless `force` is given. The other options are those
    of `cells.run`: client, progress and notice.
    """
    check_folder(folder, force=force)
    whole_number("replications", replications, 2)
    whole_seed(seed)
    experiments = chosen(names)
    started = time.perf_counter()
    versions = {"python": platform.python_version(), **{name: version(name) for name in LIBRARIES}}
    run = Run([experiment.name for experiment in experiments], replications, seed, versions, jobs)
    with cells.only_run_in(folder):
        _write_run(folder, run)
        options |= {"replications": replications, "seed": seed, "jobs": jobs, "force": force}
        cells.run(cells_of(experiments), folder / CELLS, **options)
        _write_run(folder, replace(run, seconds=time.perf_counter() - started))


def check_folder(folder: Path, *, force: bool = False) -> None:
    """Raise InputError if a folder does not hold a run but has files that a run would overwrite."""
    with suppress(FileError):
        _read_run(folder)
        return
    there = [str(folder / name) for name in (RUN, CLAIMS, REPORT) if (folder / name).exists()]
    if there and not force:
        raise InputError(
            f"{', '.join(there)} would be overwritten, and no run wrote it; use another folder or --force"
        )


def _read_run(folder: Path) -> Run:
    try:
        return Run(**json.loads((folder / RUN).read_text()))
    except (FileNotFoundError, NotADirectoryError):
        raise FileError(f"{folder} holds no {RUN}: it is not the folder of a run") from None
    except (TypeError, ValueError) as error:
        raise FileError(f"{folder / RUN} is damaged: {error}") from None


def _write_run(folder: Path, run: Run) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / RUN, json.dumps(asdict(run), indent=1).encode())


def read(folder: Path, jobs: int = 1, *, resamples: int = RESAMPLES) -> Reproduction:
    """A run with its claims judged, from its folder; nothing is played.

    resamples: draws of the bootstrap that judges a claim.
    """
    run = _read_run(folder)
    experiments, results = chosen(run.experiments), {}
    for cell in cells_of(experiments):
        path = folder / CELLS / f"{cell.name}.parquet"
        stored = cells.stored(path)
        if stored is None or not cells.belongs(cell, stored, run.replications, run.seed):
            raise InputError(
                f"{path} is missing, damaged or of another run: this one is not finished; reproduce into"
                f" {folder} to go on"
            )
        results[cell.name] = stored

    def judged(experiment: Experiment) -> list[ClaimVerdict]:
        return [claim.judge(results, resamples=resamples) for claim in experiment.claims]

    of = dict(parallel.map_unordered(judged, experiments, jobs))
    verdicts = {
        experiment.name: list(zip(experiment.claims, of[index], strict=True))
        for index, experiment in enumerate(experiments)
    }
    return Reproduction(run, experiments, results, cells.timings(folder / CELLS), verdicts)


def write_claims(reproduction: Reproduction, folder: Path) -> Path:
    """The verdicts as plain data."""
    table = [
        {"experiment": name, "claim": claim.name, "bound": str(claim.bound)}
        | {part: getattr(claim, part) for part in ("statement", "source", "quantity")}
        | asdict(verdict)
        for name, judged in reproduction.verdicts.items()
        for claim, verdict in judged
    ]
    replace_file(folder / CLAIMS, json.dumps(table, indent=1, ensure_ascii=False).encode())
    return folder / CLAIMS


def write_figures(reproduction: Reproduction, folder: Path, jobs: int = 1) -> list[Path]:
    """Every figure as PNG, SVG and PDF in the light theme, and as PNG in the dark one."""
    tasks = [(experiment, theme) for experiment in reproduction.experiments for theme in THEMES]

    def draw(task: tuple[Experiment, str]) -> list[Path]:
        experiment, theme = task
        formats = ("png", "svg", "pdf") if theme == "light" else ("png",)
        figure = experiment.draw(reproduction.results, theme)
        return save(figure, folder / FIGURES / f"{experiment.name}-{theme}", formats)

    return [path for _, paths in parallel.map_unordered(draw, tasks, jobs) for path in paths]


def write_report(reproduction: Reproduction, folder: Path) -> Path:
    """Write the page beside its figures, which must be there; returns its path."""
    parts = page.page("invariant-bandits: the paper, reproduced", _parts(reproduction, folder))
    replace_file(folder / REPORT, parts.encode())
    return folder / REPORT


def headline(reproduction: Reproduction) -> str:
    """How many tests hold, of the paper's claims, of those claims with its own estimation recipe, and of
    ours.
    """
    words = []
    judged = [pair for of in reproduction.verdicts.values() for pair in of]
    for source, whose in SOURCES.items():
        counts = Counter(verdict.word for claim, verdict in judged if claim.source == source)
        if total := counts.total():
            rest = ", ".join(f"{n} {word.removesuffix('s')}" for word, n in counts.items() if word != HOLDS)
            words.append(f"{counts[HOLDS]} of {total} tests of {whose} hold" + (f" ({rest})" if rest else ""))
    return "; ".join(words) + "."


def _parts(reproduction: Reproduction, folder: Path) -> Iterator[str]:
    """The page from top to bottom; its figures are those that `write_figures` left in the folder."""
    run, minutes = reproduction.run, sum(reproduction.seconds.values()) / 60
    yield page.heading("The paper, reproduced", level=1)
    yield page.paragraph(headline(reproduction))
    yield page.paragraph(
        f"{run.replications} repetitions per cell, seed {run.seed}, {len(reproduction.results)} cells;"
        f" {minutes:.1f} minutes of simulation, processes: {run.processes}. Within a"
        " repetition all policies play the same logs, features and noise. Regret is dynamic and cumulative.",
        soft=True,
    )
    titles = {experiment.name: experiment.text("title") for experiment in reproduction.experiments}
    yield page.contents(titles)
    judged = [pair for of in reproduction.verdicts.values() for pair in of]
    yield page.heading("What does not hold, or is not decided", anchor="claims")
    yield page.paragraph(TEXTS["report"]["method"].format(draws=RESAMPLES), soft=True)
    yield _claims_table([(claim, verdict) for claim, verdict in judged if not verdict.reached])
    yield page.details(f"All {len(judged)} tests", [_claims_table(judged)])
    for experiment in reproduction.experiments:
        yield from _section(reproduction, experiment, folder)
    yield page.heading("Settings, seeds and versions", anchor="settings")
    yield page.table(("", "version"), list(run.versions.items()))
    times = [
        (name, number(f"{seconds:.1f}"), number(f"{1e3 * seconds / run.replications:.0f}"))
        for name, seconds in reproduction.seconds.items()
        if name in reproduction.results
    ]
    yield page.table(("cell", "seconds", "ms per repetition"), times)
    settings = {name: result.settings for name, result in reproduction.results.items()}
    text = json.dumps(settings, indent=1, ensure_ascii=False, default=str)
    yield page.details("Settings of every cell, as stored in its file", [page.preformatted(text)])


def _claims_table(judged: list[tuple[Claim, ClaimVerdict]]) -> str:
    """One line per claim: statistic, interval, bound, verdict."""
    kinds = {HOLDS: "good", FAILS: "bad"}
    rows = [
        (
            Mark(verdict.word, kinds.get(verdict.word, "unsure")),
            claim.name,
            number(f"{verdict.value:.4g}"),
            number(f"{verdict.low:.4g} to {verdict.high:.4g}"),
            number(str(claim.bound)),
            claim.quantity,
            verdict.repetitions,
        )
        for claim, verdict in judged
    ]
    return page.table(("verdict", "claim", "value", "95 % interval", "bound", "measured by", "runs"), rows)


def _section(reproduction: Reproduction, experiment: Experiment, folder: Path) -> Iterator[str]:
    yield page.heading(experiment.text("title"), anchor=experiment.name)
    yield page.paragraph(experiment.text("question"))
    drawing = (folder / FIGURES / f"{experiment.name}-light.svg").read_text()
    yield page.picture(drawing, experiment.name, experiment.text("title"), experiment.text("caption"))
    yield _claims_table(reproduction.verdicts[experiment.name])
    statements = dict.fromkeys(claim.statement for claim in experiment.claims)
    yield page.paragraph("In words: " + " ".join(statements), soft=True)
    yield page.details("All numbers of this experiment", [_means(reproduction.results, experiment)])
    if experiment.table is not None:
        table = experiment.table(reproduction.results)
        columns = next(iter(table.values()))
        yield page.table(("", *columns), [(name, *row.values()) for name, row in table.items()])
    if experiment.levels:
        yield from _levels(reproduction.results, experiment)


def _means(results: Results, experiment: Experiment) -> str:
    """A table of the mean ± standard error (worst) of every policy in every cell."""

    def regret(cell: cells.Cell, policy: str) -> page.Cell:
        if policy not in cell.policies:
            return number("–")
        values = Sample(results).final(cell.name, policy)
        error = values.std(ddof=1) / len(values) ** 0.5
        return number(f"{values.mean():.1f} ± {error:.1f} ({values.max():.0f})")

    policies = dict.fromkeys(name for cell in experiment.cells for name in cell.policies)
    rows = [[policy, *(regret(cell, policy) for cell in experiment.cells)] for policy in policies]
    headings = ("policy", *(cell.name for cell in experiment.cells))
    return page.table(headings, rows, "Regret at the horizon: mean ± standard error (worst run).")


def _levels(results: Results, experiment: Experiment) -> Iterator[str]:
    """Our levels beside the published ones, and why they may differ."""
    rows, reasons = list[tuple[page.Cell, ...]](), dict[str, None]()
    for level in experiment.levels:
        mean, error, distance = level.compare(results)
        far = not abs(distance) <= 2.0
        policy = level.policy + (", right split only" if level.right_only else "")
        ours, theirs = number(f"{mean:.1f} ± {error:.1f}"), number(f"{level.published:g}")
        mark = Mark("differs", "unsure") if far else Mark("agrees", "good")
        rows.append((level.cell, policy, ours, theirs, number(f"{distance:+.1f}"), mark))
        if far and level.why:
            reasons[level.why] = None
    headings = ("cell", "policy", "ours", "authors'", "distance", "")
    table = page.table(headings, rows, TEXTS["report"]["levels"])
    yield page.details("Levels beside the authors' implementation", [table])
    yield from (page.paragraph(reason, soft=True) for reason in reasons)
