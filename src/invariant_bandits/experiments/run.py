"""One run of the experiments in one folder: cells, claims, figures and the report; redrawn without rerunning.

folder/run.json says what was asked for; folder/cells holds one Parquet file per cell; folder/figures every
figure as PNG (light and dark), SVG and PDF; folder/claims.json the verdicts; folder/report.html the page.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from invariant_bandits import parallel
from invariant_bandits.checks import InputError, whole_number, whole_seed
from invariant_bandits.experiments import cells
from invariant_bandits.experiments.claims import RESAMPLES, Claim, ClaimVerdict, Results
from invariant_bandits.experiments.figures.experiment import Experiment, cells_of, chosen
from invariant_bandits.plotting import THEMES
from invariant_bandits.reports.plots import save
from invariant_bandits.storage import FileError, replace_file

RUN, CLAIMS, REPORT, CELLS, FIGURES = "run.json", "claims.json", "report.html", "cells", "figures"
LIBRARIES = ("invariant-bandits", "numpy", "scipy", "numba", "pyarrow", "matplotlib")
DEFAULT_SEED = 20261116


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
    run = Run([experiment.name for experiment in experiments], replications, seed, _versions(), jobs)
    with cells.only_run_in(folder):
        _write_run(folder, run)
        options |= {"replications": replications, "seed": seed, "jobs": jobs, "force": force}
        cells.run(cells_of(experiments), folder / CELLS, **options)
        _write_run(folder, replace(run, seconds=time.perf_counter() - started))


def check_folder(folder: Path, *, force: bool = False) -> None:
    """InputError if a folder is no run's and has files that a run would write over."""
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
        fields: dict[str, Any] = json.loads((folder / RUN).read_text())
        run = Run(**fields)
        whole_number("replications", run.replications, 2)
        whole_seed(run.seed)
        whole_number("processes", run.processes, 1)
        if not (isinstance(fields["experiments"], list) and isinstance(fields["versions"], dict)):
            raise TypeError("experiments must be a list, versions a table")
        return replace(run, seconds=float(run.seconds))
    except (FileNotFoundError, NotADirectoryError):
        raise FileError(f"{folder} holds no {RUN}: it is not the folder of a run") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise FileError(f"{folder / RUN} is damaged: {error}") from None


def read(
    folder: Path, jobs: int = 1, notice: Callable[[str], None] | None = None, *, resamples: int = RESAMPLES
) -> Reproduction:
    """A run with its claims judged, from its folder; nothing is played.

    notice: hears of harmless damage; resamples: draws of the bootstrap that judges a claim.
    """
    run = _read_run(folder)
    experiments = chosen(run.experiments)
    results = {}
    for cell in cells_of(experiments):
        path = folder / CELLS / f"{cell.name}.parquet"
        stored = cells.stored(path)
        if stored is None:
            raise InputError(
                f"{path} is missing or damaged: the run is not finished; reproduce into {folder} to go on"
            )
        foreign = cells.belongs(cell, stored, run.replications, run.seed)
        if foreign is not None:
            raise InputError(
                f"{path} does not belong to this run: {foreign}; reproduce into {folder} to play it again"
            )
        results[cell.name] = stored

    def judged(experiment: Experiment) -> list[ClaimVerdict]:
        return [claim.judge(results, resamples=resamples) for claim in experiment.claims]

    of = dict(parallel.map_unordered(judged, experiments, jobs))
    verdicts = {
        experiment.name: list(zip(experiment.claims, of[index], strict=True))
        for index, experiment in enumerate(experiments)
    }
    return Reproduction(run, experiments, results, cells.timings(folder / CELLS, notice), verdicts)


def write_claims(reproduction: Reproduction, folder: Path) -> Path:
    """The verdicts as plain data."""
    table = [
        {
            "experiment": name,
            "claim": claim.name,
            "statement": claim.statement,
            "source": claim.source,
            "quantity": claim.quantity,
            "bound": str(claim.bound),
            "word": verdict.word,
            "statistic": verdict.value,
            "low": verdict.low,
            "high": verdict.high,
            "repetitions": verdict.repetitions,
        }
        for name, judged in reproduction.verdicts.items()
        for claim, verdict in judged
    ]
    path = folder / CLAIMS
    replace_file(path, json.dumps(table, indent=1, ensure_ascii=False).encode())
    return path


def write_figures(reproduction: Reproduction, folder: Path, jobs: int = 1) -> list[Path]:
    """Every figure as PNG, SVG and PDF in the light theme, and as PNG in the dark one."""
    tasks = [(experiment, theme) for experiment in reproduction.experiments for theme in THEMES]

    def draw(task: tuple[Experiment, str]) -> list[Path]:
        experiment, theme = task
        formats = ("png", "svg", "pdf") if theme == "light" else ("png",)
        figure = experiment.draw(reproduction.results, theme)
        return save(figure, folder / FIGURES / f"{experiment.name}-{theme}", formats)

    return [path for _, paths in parallel.map_unordered(draw, tasks, jobs) for path in paths]


def _write_run(folder: Path, run: Run) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / RUN, json.dumps(asdict(run), indent=1).encode())


def _versions() -> dict[str, str]:
    return {"python": platform.python_version(), **{name: version(name) for name in LIBRARIES}}
