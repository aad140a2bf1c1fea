"""results/report.html: claims with verdicts, figures, levels, settings, seeds, versions and run time on one
page.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from invariant_bandits.experiments.claims import (
    FAILS,
    HOLDS,
    RESAMPLES,
    UNDECIDED,
    Claim,
    ClaimVerdict,
    Sample,
)
from invariant_bandits.experiments.figures.experiment import Experiment
from invariant_bandits.experiments.run import FIGURES, REPORT, Reproduction
from invariant_bandits.reports import page
from invariant_bandits.reports.page import Mark
from invariant_bandits.storage import replace_file

PLURALS = {FAILS: "fail"}
KINDS = {HOLDS: "good", FAILS: "bad", UNDECIDED: "unsure"}
METHOD = (
    "A claim holds if the whole 95 % interval of its statistic meets the bound (percentile bootstrap over"
    f" repetitions, {RESAMPLES:,} draws, policies paired), fails if none of the interval does, and is"
    " undecided otherwise. No repetition is discarded: where a line counts only runs with the right split,"
    " the line says so and how many there are."
)
LEVELS = (
    "Beside the mean regret of the authors' implementation over 20 repetitions. The distance is in standard"
    " errors of the difference, theirs taken as the spread of ours over √20; beyond two it is marked."
)


def write(reproduction: Reproduction, folder: Path) -> Path:
    """Write the page beside its figures, which must be there; returns its path."""
    path = folder / REPORT
    replace_file(
        path, page.page("invariant-bandits: the paper, reproduced", parts(reproduction, folder)).encode()
    )
    return path


def parts(reproduction: Reproduction, folder: Path) -> Iterator[str]:
    """The page from top to bottom; its figures are those that `write_figures` left in the folder."""
    run = reproduction.run
    yield page.heading("The paper, reproduced", level=1)
    yield page.paragraph(headline(reproduction))
    yield page.paragraph(
        f"{run.replications} repetitions per cell, seed {run.seed}, {len(reproduction.results)} cells;"
        f" {_time_words(sum(reproduction.seconds.get(name, 0.0) for name in reproduction.results))} of"
        f" simulation with {run.processes} {'process' if run.processes == 1 else 'processes'}. Within a"
        " repetition all policies play the same logs, features and noise. Regret is dynamic and cumulative.",
        soft=True,
    )
    yield page.contents(
        {experiment.name: experiment.text("title") for experiment in reproduction.experiments}
    )
    judged = [pair for of in reproduction.verdicts.values() for pair in of]
    yield page.heading("What does not hold, or is not decided", anchor="claims")
    yield page.paragraph(METHOD, soft=True)
    yield claims_table([(claim, verdict) for claim, verdict in judged if verdict.word != HOLDS])
    yield page.details(f"All {len(judged)} tests", [claims_table(judged)])
    for experiment in reproduction.experiments:
        yield from _section(reproduction, experiment, folder)
    yield from _appendix(reproduction)


SOURCES = {
    "paper": "the paper's claims, all runs kept",
    "recipe": "the same claims with the published estimation recipe",
    "ours": "our own claims",
}


def headline(reproduction: Reproduction) -> str:
    """How many tests hold, of the paper's claims, of those claims with its own estimation recipe, and of
    ours.
    """
    words = []
    for source, whose in SOURCES.items():
        counts = Counter(
            verdict.word
            for judged in reproduction.verdicts.values()
            for claim, verdict in judged
            if claim.source == source
        )
        if total := counts.total():
            rest = ", ".join(f"{n} {PLURALS.get(word, word)}" for word, n in counts.items() if word != HOLDS)
            words.append(f"{counts[HOLDS]} of {total} tests of {whose} hold" + (f" ({rest})" if rest else ""))
    return "; ".join(words) + "."


def claims_table(judged: list[tuple[Claim, ClaimVerdict]]) -> str:
    """One line per claim: statistic, interval, bound, verdict."""
    rows = [
        (
            Mark(verdict.word, KINDS.get(verdict.word, "unsure")),
            claim.name,
            Mark(_number(verdict.value), "number"),
            Mark(f"{_number(verdict.low)} to {_number(verdict.high)}", "number"),
            Mark(str(claim.bound), "number"),
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
    yield claims_table(reproduction.verdicts[experiment.name])
    statements = dict.fromkeys(claim.statement for claim in experiment.claims)
    yield page.paragraph("In words: " + " ".join(statements), soft=True)
    yield _means(reproduction, experiment)
    if experiment.table is not None:
        yield from _own_table(reproduction, experiment)
    if experiment.levels:
        yield from _levels(reproduction, experiment)


def _means(reproduction: Reproduction, experiment: Experiment) -> str:
    """Mean ± standard error (worst) of every policy in every cell, and what a repetition costs."""
    sample = Sample(reproduction.results)
    policies = list(dict.fromkeys(name for cell in experiment.cells for name in cell.policies))
    rows = []
    for policy in policies:
        row: list[page.Cell] = [policy]
        for cell in experiment.cells:
            if policy in cell.policies:
                values = sample.final(cell.name, policy)
                error = values.std(ddof=1) / len(values) ** 0.5
                row.append(Mark(f"{values.mean():.1f} ± {error:.1f} ({values.max():.0f})", "number"))
            else:
                row.append(Mark("–", "number"))
        rows.append(row)
    cost: list[page.Cell] = ["milliseconds per repetition, all policies"]
    for cell in experiment.cells:
        seconds = reproduction.seconds.get(cell.name, float("nan"))
        cost.append(Mark(f"{1e3 * seconds / reproduction.run.replications:.0f}", "number"))
    headings = ("policy", *(cell.name for cell in experiment.cells))
    table = page.table(headings, [*rows, cost], "Regret at the horizon: mean ± standard error (worst run).")
    return page.details("All numbers of this experiment", [table])


def _own_table(reproduction: Reproduction, experiment: Experiment) -> Iterator[str]:
    assert experiment.table is not None
    table = experiment.table(reproduction.results)
    columns = list(dict.fromkeys(column for row in table.values() for column in row))
    yield page.table(
        ("", *columns), [(name, *(row.get(c, "–") for c in columns)) for name, row in table.items()]
    )


def _levels(reproduction: Reproduction, experiment: Experiment) -> Iterator[str]:
    rows: list[tuple[page.Cell, ...]] = []
    reasons: dict[str, None] = {}
    for level in experiment.levels:
        mean, error, distance = level.compare(reproduction.results)
        far = not abs(distance) <= 2.0
        policy = level.policy + (", right split only" if level.right_only else "")
        rows.append(
            (
                level.cell,
                policy,
                Mark(f"{mean:.1f} ± {error:.1f}", "number"),
                Mark(f"{level.published:g}", "number"),
                Mark(f"{distance:+.1f}", "number"),
                Mark("differs", "unsure") if far else Mark("agrees", "good"),
            )
        )
        if far and level.why:
            reasons[level.why] = None
    table = page.table(("cell", "policy", "ours", "authors'", "distance", ""), rows, LEVELS)
    yield page.details("Levels beside the authors' implementation", [table])
    for reason in reasons:
        yield page.paragraph(reason, soft=True)


def _appendix(reproduction: Reproduction) -> Iterator[str]:
    run = reproduction.run
    yield page.heading("Settings, seeds and versions", anchor="settings")
    rows = [(name, number) for name, number in run.versions.items()]
    yield page.table(("", "version"), rows)
    times = [
        (name, Mark(f"{seconds:.1f}", "number"), Mark(f"{1e3 * seconds / run.replications:.0f}", "number"))
        for name, seconds in reproduction.seconds.items()
        if name in reproduction.results
    ]
    yield page.table(("cell", "seconds", "ms per repetition"), times)
    settings = {name: result.settings for name, result in reproduction.results.items()}
    text = json.dumps(settings, indent=1, ensure_ascii=False, default=str)
    yield page.details("Settings of every cell, as stored in its file", [page.preformatted(text)])


def _number(value: float) -> str:
    if value != value:
        return "–"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _time_words(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.1f} min"
