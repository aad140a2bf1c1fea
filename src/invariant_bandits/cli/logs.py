"""The commands that take a log: fit, inspect, evaluate; argument parsing and printing only."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from invariant_bandits.checks import InputError
from invariant_bandits.files import replace_file

console = Console(soft_wrap=True, highlight=False, markup=False)

Logs = Annotated[
    list[str],
    typer.Argument(metavar="LOGS...", help="Parquet or CSV: files, a folder, or a pattern in quotes."),
]
TIME = "Time of a round: timestamps, dates, ISO 8601 text or numbers."
Column = typer.Option
Time = Annotated[str | None, Column("--time", metavar="COLUMN", help=f"{TIME} 'none': there is none (all columns).")]
Reward = Annotated[str | None, Column("--reward", metavar="COLUMN", help="Reward of the chosen action.")]
Features = Annotated[
    list[str] | None,
    Column("--features", metavar="COLUMNS", help="Columns or patterns ('x*'), separated by commas, or several times."),
]
OneHot = Annotated[
    list[str] | None,
    Column("--one-hot", metavar="COLUMNS", help="Features that are categories although they hold numbers."),
]
Action = Annotated[str | None, Column("--action", metavar="COLUMN", help="Chosen action: index or label.")]
Propensity = Annotated[
    str | None, Column("--propensity", metavar="COLUMN", help="Probability with which the action was chosen.")
]
Position = Annotated[str | None, Column("--position", metavar="COLUMN", help="Position at which it was shown.")]
RoundId = Annotated[
    str | None, Column("--round", metavar="COLUMN", help="Tells rounds apart where each has one row per action.")
]
Chosen = Annotated[str | None, Column("--chosen", metavar="COLUMN", help="Marks the row of the chosen action.")]
Offered = Annotated[
    str | None, Column("--offered", metavar="COLUMN", help="Features of all offered actions, lists of lists.")
]
Rewards = Annotated[
    str | None, Column("--rewards", metavar="COLUMN", help="Rewards of all offered actions, lists of numbers.")
]
FullInformation = Annotated[
    bool, typer.Option("--full-information", help="One row per offered action, and every row has its reward.")
]
SchemaFile = Annotated[
    Path | None, typer.Option("--schema", metavar="FILE.toml", help="What the columns mean; options go before it.")
]
Strict = Annotated[bool, typer.Option("--strict", help="Refuse a log with any bad row instead of counting them.")]
Centre = Annotated[
    bool, typer.Option("--centre", help="Subtract the mean of the round's offered actions from their features.")
]
Standardise = Annotated[
    str, typer.Option("--standardise", help="none, scale (unit standard deviation), or 'scale and shift'.")
]
Interactions = Annotated[
    list[str] | None,
    typer.Option("--interactions", metavar="A:B", help="Products of columns, separated by commas, or several times."),
]
MaxCategories = Annotated[
    int, typer.Option("--max-categories", min=1, help="Categories per column, the most frequent; others count as none.")
]
Report = Annotated[Path | None, typer.Option("--report", metavar="FILE.html", help="Where the HTML report goes.")]


def fit(
    logs: Logs,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="MODEL", help="Where the model goes.")],
    policy: Annotated[
        str,
        typer.Option(help="auto-isd, isd-linucb, isd-lints, linucb, lints (these two learn all logs), linucb-cold."),
    ] = "auto-isd",
    windows: Annotated[
        int | None, typer.Option(min=2, help="Windows of equally many rows; 8 if nothing is said.")
    ] = None,
    every: Annotated[
        str | None, typer.Option(help="Windows of this length: 30min, 12h, 7d, 2w, 1mo, 1y; or a number.")
    ] = None,
    edges: Annotated[
        str | None, typer.Option(help="Times that bound the windows, separated by commas: dates or numbers.")
    ] = None,
    exploration: Annotated[
        float | None, typer.Option(help="Factor on confidence widths; the policy's own if not given.")
    ] = None,
    confidence: Annotated[float, typer.Option(help="Probability of failure of the confidence sets.")] = 0.01,
    report: Report = None,
    value: Annotated[
        bool, typer.Option(help="Ask what the policy would have earned, if the log can tell; takes seconds.")
    ] = True,
    engine: Annotated[str, typer.Option(help="Where the log is read: local, dask or spark.")] = "local",
    address: Annotated[
        str | None, typer.Option(help="Of the cluster, tcp://… or spark://…; without it one is started here.")
    ] = None,
    strict: Strict = False,
    centre: Centre = False,
    standardise: Standardise = "none",
    interactions: Interactions = None,
    max_categories: MaxCategories = 50,
    schema: SchemaFile = None,
    time_column: Time = None,
    reward: Reward = None,
    features: Features = None,
    one_hot: OneHot = None,
    action: Action = None,
    propensity: Propensity = None,
    position: Position = None,
    round_id: RoundId = None,
    chosen: Chosen = None,
    offered: Offered = None,
    rewards: Rewards = None,
    full_information: FullInformation = False,
) -> None:
    """Learn from a log what is stable and what drifts: writes a model to serve and a report to read.

    The meaning of the columns is guessed from names and types, and shown; options correct it.
    """
    page_path = out.with_suffix(".html") if report is None else report
    _check_target(out, "--out")
    _check_target(page_path, "--report")
    if page_path == out:
        raise InputError(f"--out and --report must be different files, got {out} for both")
    began = time.perf_counter()
    with _working("looking at the columns"):
        from invariant_bandits.fitting import fit_logs
        from invariant_bandits.logs.features import FeatureOptions
        from invariant_bandits.logs.log import open_log
        from invariant_bandits.reports import model_page

        options = FeatureOptions(_split(interactions), standardise, centre, max_categories)
        roles = _roles(
            time_column, reward, action, propensity, position, round_id, chosen, offered, rewards, full_information
        )
        log = open_log(_source(logs), _overrides(schema, roles, features, one_hot))
    console.print(f"{log.schema.describe()}\n")
    with _reading() as progress:
        model = fit_logs(
            log,
            policy=policy,
            windows=windows,
            every=every,
            edges=None if edges is None else _edges(edges),
            features=options,
            engine=engine,
            address=address,
            strict=strict,
            exploration=exploration,
            confidence=confidence,
            progress=progress,
        )
    if value:
        with _working("asking what the policy would have earned"):
            from invariant_bandits.evaluation.expected import expected_value

            model = replace(model, value=expected_value(log, log.schema, policy, features=options))
    with _working("writing the model and its report"):
        page = model_page.report(model)
        model.save(out)
        replace_file(page_path, page.encode())
    console.print(model_page.text(model, columns=False))
    seconds = time.perf_counter() - began
    console.print(f"\nmodel: {out}\nreport: {page_path}\n{model.quality.rows:,} rows in {seconds:.1f} s")


def inspect_model(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A file written by `fit`.")],
    report: Report = None,
) -> None:
    """Say what a model knows: what is stable, what drifts and how far, the evidence, the quality of its log."""
    from invariant_bandits.model import Model
    from invariant_bandits.reports import model_page

    loaded = Model.load(model)
    console.print(model_page.text(loaded))
    if report is not None:
        _check_target(report, "--report")
        replace_file(report, model_page.report(loaded).encode())
        console.print(f"\nreport: {report}")


def evaluate(
    logs: Logs,
    fit_fraction: Annotated[float, typer.Option(help="Share of the rounds that policies are fitted on.")] = 0.5,
    propensities: Annotated[
        str, typer.Option(help="logged; estimated, by a logistic model; uniform, if you know that logging was.")
    ] = "logged",
    direct: Annotated[
        bool, typer.Option("--direct", help="Also by a reward model alone, which must then be right.")
    ] = False,
    latest: Annotated[int | None, typer.Option(min=20, help="Only so many of the last rounds.")] = None,
    windows: Annotated[int, typer.Option(min=2, help="Windows of the rounds that policies are fitted on.")] = 8,
    report: Report = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes to use.")] = os.cpu_count() or 1,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all randomness.")] = 0,
    strict: Strict = False,
    centre: Centre = False,
    standardise: Standardise = "none",
    interactions: Interactions = None,
    max_categories: MaxCategories = 50,
    schema: SchemaFile = None,
    time_column: Time = None,
    reward: Reward = None,
    features: Features = None,
    one_hot: OneHot = None,
    action: Action = None,
    propensity: Propensity = None,
    position: Position = None,
    round_id: RoundId = None,
    chosen: Chosen = None,
    offered: Offered = None,
    rewards: Rewards = None,
    full_information: FullInformation = False,
) -> None:
    """Would it have helped? Fits eight policies on the first part of a log and evaluates them on the rest, once.

    The log must have its offered actions. What cannot be known from it is refused, with the reason.
    """
    if report is not None:
        _check_target(report, "--report")
    with _working("looking at the columns"):
        from invariant_bandits.evaluation.comparison import compare
        from invariant_bandits.evaluation.logged import read_feedback
        from invariant_bandits.logs.features import FeatureOptions
        from invariant_bandits.logs.log import open_log
        from invariant_bandits.reports import evaluation_page

        options = FeatureOptions(_split(interactions), standardise, centre, max_categories)
        roles = _roles(
            time_column, reward, action, propensity, position, round_id, chosen, offered, rewards, full_information
        )
        log = open_log(_source(logs), _overrides(schema, roles, features, one_hot))
    console.print(f"{log.schema.describe()}\n")
    with _reading() as progress:
        began = time.perf_counter()
        read = read_feedback(
            log,
            features=options,
            fit_fraction=fit_fraction,
            windows=windows,
            latest=latest,
            strict=strict,
            seed=seed,
            progress=lambda rows: progress(rows, None, time.perf_counter() - began),
        )
    with Progress(
        BarColumn(), TextColumn("{task.description}"), console=console, auto_refresh=False, transient=True
    ) as bar:
        task = bar.add_task("playing policies", total=None)
        result = compare(
            read.feedback,
            fit_fraction=fit_fraction,
            windows=read.windows,
            propensities=propensities,
            with_direct=direct,
            seed=seed,
            jobs=jobs,
            progress=lambda done, total: bar.update(
                task, completed=done, total=total, description=f"{done} of {total} policies", refresh=True
            ),
        )
    console.print(evaluation_page.text(result, read))
    if report is not None:
        replace_file(report, evaluation_page.report(result, read).encode())
        console.print(f"\nreport: {report}")


def _check_target(path: Path, option: str) -> None:
    """Fail before hours of reading, not after."""
    if path.is_dir():
        raise InputError(f"{option} must be a file, but {path} is a folder")
    if not path.parent.is_dir():
        raise InputError(f"{option}: the folder {path.parent} does not exist")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"{option}: the folder {path.parent} cannot be written to")


def _source(logs: Sequence[str]) -> str | list[str]:
    return logs[0] if len(logs) == 1 else list(logs)


def _split(given: Sequence[str] | None) -> tuple[str, ...]:
    """Words of options that may be repeated and may hold commas."""
    return tuple(word.strip() for one in given or () for word in one.split(",") if word.strip())


def _roles(*given: Any) -> dict[str, Any]:
    """Fields of a Schema that options gave; 'none' says that the log has no such column."""
    names = ("time", "reward", "action", "propensity", "position", "round", "chosen", "offered", "rewards")
    *columns, full_information = given
    roles: dict[str, Any] = {
        name: None if column == "none" else column
        for name, column in zip(names, columns, strict=True)
        if column is not None
    }
    return roles | ({"full_information": True} if full_information else {})


def _overrides(
    file: Path | None, roles: dict[str, Any], features: Sequence[str] | None, one_hot: Sequence[str] | None
) -> dict[str, Any]:
    from invariant_bandits.logs.schema import toml_overrides

    told = {} if file is None else toml_overrides(file)
    told |= roles
    if features:
        told["features"] = _split(features)
    if one_hot:
        told["categorical"] = _split(one_hot)
    return told


def _edges(given: str) -> list[Any]:
    words = [word.strip() for word in given.split(",")]
    try:
        return [float(word) for word in words]
    except ValueError:
        return words


@contextmanager
def _working(what: str) -> Iterator[None]:
    """A spinner for what takes longer than a moment."""
    with console.status(what):
        yield


@contextmanager
def _reading() -> Iterator[Callable[[int, int | None, float], None]]:
    """A bar with rows and rows per second, as a function of (rows, total or None, seconds)."""
    columns = (SpinnerColumn(), BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    said = ""
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("reading", total=None)

        def show(rows: int, total: int | None, seconds: float) -> None:
            nonlocal said
            said = f"{rows:,} rows, {rows / max(seconds, 1e-9):,.0f} rows/s"
            done = ", fitting" if rows == total else ""
            bar.update(task, completed=rows, total=total, description=f"{said}{done}")

        yield show
    console.print(f"{said}\n")
