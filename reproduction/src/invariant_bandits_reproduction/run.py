"""One run of the experiments in one folder: cells, claims, figures and the report; redrawn without rerunning.

folder/run.json says what was asked for; folder/cells holds one Parquet file per cell; folder/regret.csv a row
per cell and policy; folder/figures every figure as PNG (light and dark), SVG and PDF; folder/tables LaTeX if
wanted; folder/claims.json the verdicts; folder/report.html the page: claims with verdicts, figures, levels,
settings, seeds, versions and run time.
"""

from __future__ import annotations

import json
import platform
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

from invariant_bandits import parallel
from invariant_bandits.checks import InputError, whole_number, whole_seed
from invariant_bandits.plotting import THEMES
from invariant_bandits.reports import page
from invariant_bandits.reports.page import Mark, number
from invariant_bandits.reports.plots import save
from invariant_bandits.simulation import cells
from invariant_bandits.storage import FileError, replace_file
from invariant_bandits_reproduction.claims import (
    CHECK,
    ESTIMATOR,
    FAILS,
    HOLDS,
    OURS,
    PAPER,
    REBUILT,
    Judged,
    Verdict,
    findings,
    judge_all,
)
from invariant_bandits_reproduction.figures.experiment import (
    Experiment,
    cells_of,
    chosen,
)
from invariant_bandits_reproduction.regret_claims import RESAMPLES, Results, Sample

RUN = "run.json"
CLAIMS = "claims.json"
REPORT = "report.html"
REGRET = "regret.csv"
CELLS = "cells"
FIGURES = "figures"
TABLES = "tables"
LATEX = {
    "‖Π̂−Π‖": r"$\|\hat\Pi-\Pi\|$",
    "√T0": r"$\sqrt{T_0}$",
    "R²": "$R^2$",
    "√": r"$\surd$",
    "±": r"$\pm$",
    "×": r"$\times$",
    "≤": r"$\le$",
    "≥": r"$\ge$",
    "ε": r"$\varepsilon$",
    "η": r"$\eta$",
    "–": "--",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}
"""What LaTeX writes otherwise, longer signs first."""
SOURCES = {
    PAPER: "the paper's claims about its policies",
    REBUILT: "its claims about an estimated split, with our rebuild of its estimator,",
    ESTIMATOR: "the same claims with our own estimator",
    OURS: "our own claims",
    CHECK: "the lower bound, which only a mistake of the code can miss,",
}
"""Whose the claims are, in the order of the headline."""
LABELS = {
    PAPER: "paper",
    REBUILT: "paper, rebuilt estimator",
    ESTIMATOR: "paper, our estimator",
    OURS: "ours",
    CHECK: "check",
}
"""The same in a column of a table."""
LIBRARIES = ("invariant-bandits", "numpy", "scipy", "numba", "pyarrow", "matplotlib")
DEFAULT_SEED = 20261116
"""The seed of the numbers that README and the site show."""
FAR = 2.0
"""Standard errors beyond which a level is said to differ: chance alone gives one in twenty."""
ABOUT_PAPER = (
    'The paper is "Invariance-based dynamic regret minimization" by Margherita '
    "Lazzaretto, Jonas Peters and Niklas Pfister. AutoISD, Greedy, LinUCB with "
    'exploration 0.3 and every claim of source "ours" are not in the paper.'
)


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
    verdicts: dict[str, Judged]

    @property
    def judged(self) -> Judged:
        """All claims of all experiments with their verdicts."""
        return [pair for pairs in self.verdicts.values() for pair in pairs]


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
    versions = {
        "python": platform.python_version(),
        **{name: version(name) for name in LIBRARIES},
    }
    run = Run(
        experiments=[experiment.name for experiment in experiments],
        replications=replications,
        seed=seed,
        versions=versions,
        processes=jobs,
    )
    with cells.only_run_in(folder):
        _write_run(folder, run)
        options |= {
            "replications": replications,
            "seed": seed,
            "jobs": jobs,
            "force": force,
        }
        cells.run(cells_of(experiments), folder / CELLS, **options)
        _write_run(folder, replace(run, seconds=time.perf_counter() - started))


def check_folder(folder: Path, *, force: bool = False) -> None:
    """Raise InputError if a folder does not hold a run but has files that a run would overwrite."""
    with suppress(FileError):
        _read_run(folder)
        return
    existing = [
        str(folder / name)
        for name in (RUN, CLAIMS, REPORT, REGRET)
        if (folder / name).exists()
    ]
    if existing and not force:
        raise InputError(cells.OVERWRITING.format(", ".join(existing)))


def _read_run(folder: Path) -> Run:
    try:
        return Run(**json.loads((folder / RUN).read_text()))
    except (FileNotFoundError, NotADirectoryError):
        raise FileError(
            f"{folder} holds no {RUN}: it is not the folder of a run"
        ) from None
    except (TypeError, ValueError) as error:
        raise FileError(f"{folder / RUN} is damaged: {error}") from None


def _write_run(folder: Path, run: Run) -> None:
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
        if stored is None or not cells.belongs(
            cell, stored, run.replications, run.seed
        ):
            raise InputError(
                f"{path} is missing, damaged or of another run: this one is not"
                f" finished; reproduce into {folder} to go on"
            )
        results[cell.name] = stored

    def judge(experiment: Experiment) -> list[Verdict]:
        # A claim holds functions, which no process can send back: only verdicts travel.
        judged = judge_all(experiment.claims, results, resamples=resamples)
        return [verdict for _, verdict in judged]

    by_index = dict(parallel.map_unordered(judge, experiments, jobs))
    verdicts = {
        experiment.name: list(zip(experiment.claims, by_index[index], strict=True))
        for index, experiment in enumerate(experiments)
    }
    return Reproduction(run, experiments, results, verdicts)


def write_claims(reproduction: Reproduction, folder: Path) -> Path:
    """The verdicts as plain data."""
    table = [
        {
            "experiment": experiment.name,
            "claim": claim.name,
            "bound": str(verdict.bound),
            "in_the_paper": experiment.paper,
            "statement": claim.statement,
            "source": claim.source,
            "quantity": claim.quantity,
            "word": verdict.word,
            "value": verdict.measured.value,
            "low": verdict.measured.low,
            "high": verdict.measured.high,
            "repetitions": verdict.repetitions,
        }
        for experiment in reproduction.experiments
        for claim, verdict in reproduction.verdicts[experiment.name]
    ]
    replace_file(
        folder / CLAIMS, json.dumps(table, indent=1, ensure_ascii=False).encode()
    )
    return folder / CLAIMS


def write_figures(
    reproduction: Reproduction, folder: Path, jobs: int = 1
) -> list[Path]:
    """Every figure as PNG, SVG and PDF in the light theme, and as PNG in the dark one."""
    tasks = [
        (experiment, theme)
        for experiment in reproduction.experiments
        for theme in THEMES
    ]

    def draw(task: tuple[Experiment, str]) -> list[Path]:
        experiment, theme = task
        formats = ("png", "svg", "pdf") if theme == "light" else ("png",)
        figure = experiment.draw(reproduction.results, theme)
        return save(figure, folder / FIGURES / f"{experiment.name}-{theme}", formats)

    return [
        path for _, paths in parallel.map_unordered(draw, tasks, jobs) for path in paths
    ]


def write_tables(
    reproduction: Reproduction, folder: Path, *, latex: bool = False
) -> list[Path]:
    """Write regret.csv, a row per cell and policy; with `latex` also two LaTeX tables per experiment, for the
    package booktabs: its regrets and its claims.
    """
    paths = [cells.write_tidy(reproduction.results, folder / REGRET)]
    for experiment in reproduction.experiments if latex else ():
        judged = reproduction.verdicts[experiment.name]
        where = f"{experiment.title} ({experiment.paper})."
        for name, caption, table in (
            ("regret", f"{where} {MEANS}", _means(reproduction.results, experiment)),
            ("claims", where, claims_table(judged, quantity=False)),
        ):
            paths.append(folder / TABLES / f"{experiment.name}-{name}.tex")
            paths[-1].parent.mkdir(parents=True, exist_ok=True)
            replace_file(
                paths[-1], latex_table(*table, caption, paths[-1].stem).encode()
            )
    return paths


def latex_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[page.Cell]],
    caption: str,
    label: str,
) -> str:
    """A table in LaTeX, numbers to the right, in plain ASCII."""

    def escaped(words: page.Cell) -> str:
        plain = words.words if isinstance(words, Mark) else words
        return re.sub(
            "|".join(map(re.escape, LATEX)), lambda sign: LATEX[sign[0]], plain
        )

    def line(words: Sequence[page.Cell]) -> str:
        return " & ".join(map(escaped, words)) + r" \\"

    columns = "".join(
        "r" if getattr(word, "kind", "") == "number" else "l" for word in rows[0]
    )
    head = [
        r"\begin{table}",
        r"\centering",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        line(headings),
    ]
    body = [r"\midrule", *map(line, rows), r"\bottomrule", r"\end{tabular}"]
    tail = [
        rf"\caption{{{escaped(caption)}}}",
        rf"\label{{tab:{label}}}",
        r"\end{table}",
        "",
    ]
    return "\n".join([*head, *body, *tail])


def write_report(reproduction: Reproduction, folder: Path) -> Path:
    """Write the page beside its figures, which must be there; returns its path."""
    parts = page.page(
        "invariant-bandits: the paper, reproduced", _parts(reproduction, folder)
    )
    replace_file(folder / REPORT, parts.encode())
    return folder / REPORT


def headline(reproduction: Reproduction) -> str:
    """Return how many tests hold, one count per source of the claims; checks do not count as claims."""
    parts = []
    for source, owner in SOURCES.items():
        counts = Counter(
            verdict.word
            for claim, verdict in reproduction.judged
            if claim.source == source
        )
        total = counts.total()
        if total:
            held = counts.pop(HOLDS, 0)
            remainder = ", ".join(
                f"{count} {word.removesuffix('s')}" for word, count in counts.items()
            )
            words = f"{held} of {total} tests of {owner} hold"
            parts.append(f"{words} ({remainder})" if remainder else words)
    return "; ".join(parts) + "."


def _parts(reproduction: Reproduction, folder: Path) -> Iterator[str]:
    """The page from top to bottom; its figures are those that `write_figures` left in the folder."""
    run = reproduction.run
    yield page.heading("The paper, reproduced", level=1)
    yield page.paragraph(ABOUT_PAPER)
    yield page.paragraph(headline(reproduction))
    yield page.paragraph(
        f"{run.replications} repetitions per cell, seed {run.seed},"
        f" {len(reproduction.results)} cells; the last run of it took"
        f" {run.seconds / 60:.1f} minutes, processes: {run.processes}. Within a"
        " repetition all policies play the same logs, features and noise. Regret is"
        " dynamic and cumulative.",
        soft=True,
    )
    titles = {
        each.name: f"{each.title} ({each.paper})" for each in reproduction.experiments
    }
    yield page.contents(titles)
    judged = reproduction.judged
    yield page.heading("What does not hold, or is not decided", anchor="claims")
    yield page.paragraph(
        "A claim holds if the whole 95 % interval of its statistic meets the bound"
        f" (percentile bootstrap over repetitions, {RESAMPLES:,} draws, policies"
        " paired), fails if none of the interval does, and is undecided otherwise. No"
        " repetition is discarded: where a line counts only runs with the right"
        " dimensions, the line says so and how many there are.",
        soft=True,
    )
    yield page.table(*claims_table(open_claims(reproduction)))
    yield page.details(f"All {len(judged)} tests", [page.table(*claims_table(judged))])
    for experiment in reproduction.experiments:
        yield from _section(reproduction, experiment, folder)
    yield page.heading("Settings, seeds and versions", anchor="settings")
    yield page.table(("", "version"), list(run.versions.items()))
    settings = {name: result.settings for name, result in reproduction.results.items()}
    text = json.dumps(settings, indent=1, ensure_ascii=False, default=str)
    yield page.details(
        "Settings of every cell, as stored in its file", [page.preformatted(text)]
    )


Table: TypeAlias = tuple[Sequence[str], Sequence[Sequence[page.Cell]]]
"""Headings and rows."""


def open_claims(reproduction: Reproduction) -> Judged:
    """What does not hold, or is not decided."""
    return [pair for pair in reproduction.judged if not pair[1].reached]


def claims_table(judged: Judged, *, quantity: bool = True) -> Table:
    """One row per claim: verdict, statistic, interval, bound, and, unless it would be too wide, what the
    statistic is.
    """
    kinds = {HOLDS: "good", FAILS: "bad"}
    rows: list[tuple[page.Cell, ...]] = [
        (
            Mark(verdict.word, kinds.get(verdict.word, "unsure")),
            claim.name,
            LABELS[claim.source],
            number(f"{verdict.measured.value:.4g}"),
            number(f"{verdict.measured.low:.4g} to {verdict.measured.high:.4g}"),
            number(str(verdict.bound)),
            *([claim.quantity] if quantity else []),
            verdict.repetitions,
        )
        for claim, verdict in judged
    ]
    measured = ["measured by"] if quantity else []
    return (
        "verdict",
        "claim",
        "source",
        "value",
        "95 % interval",
        "bound",
        *measured,
        "runs",
    ), rows


def _section(
    reproduction: Reproduction, experiment: Experiment, folder: Path
) -> Iterator[str]:
    yield page.heading(experiment.title, anchor=experiment.name)
    yield page.paragraph(f"In the paper: {experiment.paper}.", soft=True)
    yield page.paragraph(experiment.question)
    drawing = (folder / FIGURES / f"{experiment.name}-light.svg").read_text()
    yield page.picture(drawing, experiment.name, experiment.title, experiment.caption)
    yield page.table(*claims_table(reproduction.verdicts[experiment.name]))
    yield page.paragraph(
        "In words: " + " ".join(findings(reproduction.verdicts[experiment.name])),
        soft=True,
    )
    numbers = page.table(*_means(reproduction.results, experiment), MEANS)
    yield page.details("All numbers of this experiment", [numbers])
    if experiment.table is not None:
        table = experiment.table(reproduction.results)
        columns = next(iter(table.values()))
        yield page.table(
            ("", *columns), [(name, *row.values()) for name, row in table.items()]
        )
    if experiment.levels:
        yield from _levels(reproduction.results, experiment)


MEANS = "Regret at the horizon: mean ± standard error (worst run)."


def _means(results: Results, experiment: Experiment) -> Table:
    """Headings, and the mean ± standard error (worst) of every policy in every cell, one row per policy."""

    def regret(cell: cells.Cell, policy: str) -> page.Cell:
        if policy not in cell.policies:
            return number("–")
        return number(cells.regret_words(Sample(results).final(cell.name, policy)))

    policies = dict.fromkeys(
        name for cell in experiment.cells for name in cell.policies
    )
    rows = [
        [policy, *(regret(cell, policy) for cell in experiment.cells)]
        for policy in policies
    ]
    headings = (f"{cell.name}, T = {cell.horizon:,}" for cell in experiment.cells)
    return ("policy", *headings), rows


def _levels(results: Results, experiment: Experiment) -> Iterator[str]:
    """Our levels beside the published ones, and why they may differ."""
    rows: list[tuple[page.Cell, ...]] = []
    reasons: dict[str, None] = {}
    distances = []
    for level in experiment.levels:
        mean, error, distance = level.compare(results)
        far = not abs(distance) <= FAR
        distances.append(distance)
        policy = level.policy + (", right dimensions only" if level.right_only else "")
        ours = number(f"{mean:.1f} ± {error:.1f}")
        theirs = number(f"{level.published:g}")
        mark = Mark("differs", "unsure") if far else Mark("agrees", "good")
        rows.append(
            (level.cell, policy, ours, theirs, number(f"{distance:+.1f}"), mark)
        )
        if far and level.why:
            reasons[level.why] = None
    headings = ("cell", "policy", "ours", "authors'", "distance", "")
    caption = (
        "Beside the mean regret of the authors' implementation over 20 repetitions."
        " The distance is in standard errors of the difference, theirs taken as the"
        " spread of ours over √20; beyond two it is marked."
    )
    table = page.table(headings, rows, caption)
    yield page.details("Levels beside the authors' implementation", [table])
    far_levels = sum(not abs(distance) <= FAR for distance in distances)
    above = sum(distance > 0.0 for distance in distances)
    yield page.paragraph(
        f"{far_levels} of {len(distances)} levels differ by more than two standard"
        " errors, of which chance alone gives about one in twenty; ours are above the"
        f" authors' in {above} of {len(distances)}.",
        soft=True,
    )
    for reason in reasons:
        yield page.paragraph(reason, soft=True)
