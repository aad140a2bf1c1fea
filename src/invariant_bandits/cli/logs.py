"""The commands that take a log: fit, inspect, evaluate; argument parsing and printing only."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from invariant_bandits.checks import InputError
from invariant_bandits.cli.common import (
    FAILED,
    NO_ANSWER,
    PROCESSORS,
    AsJson,
    Force,
    check_not_read,
    check_target,
    print_json,
    width,
    words_on_stderr,
    write_report,
)
from invariant_bandits.cli.common import plain_console as console
from invariant_bandits.cli.compiling import say_when_compiling
from invariant_bandits.cli.log_options import LogOptions, split_words, with_log_options
from invariant_bandits.cli.progress import playing, reading

if TYPE_CHECKING:
    from invariant_bandits.logs.log import Log

MOST_ARMS_SHOWN = 20
Report = Annotated[Path | None, typer.Option("--report", metavar="FILE.html", help="Where the HTML report goes.")]


@with_log_options
def fit(
    log: LogOptions,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="MODEL", help="Where the model goes.")],
    policy: Annotated[
        str,
        typer.Option(
            help="auto-isd; isd-linucb, isd-lints; linucb, lints, greedy, which learn all logs; linucb-cold; or any"
            " other registered policy."
        ),
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
        str | None,
        typer.Option(
            help="Factor on confidence widths, or 'rehearsed': what does best on the log's offered actions against the"
            " policy's own doubts (auto-isd does so by itself if the log has them)."
        ),
    ] = None,
    horizon: Annotated[
        int | None, typer.Option(min=1, help="How many rounds will be served; tests that cannot pay are left out.")
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
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Learn from a log what is stable and what drifts: writes a model to serve and a report to read.

    The meaning of the columns is guessed from names and types, and shown; options correct it.
    """
    page_path = out.with_suffix(".html") if report is None else report
    check_target(out, "--out", "model", force=force)
    check_target(page_path, "--report", "page", force=force)
    if page_path == out:
        raise InputError(f"--out and --report must be different files, got {out} for both")
    factor = None if exploration is None else _factor(exploration)
    began = time.perf_counter()
    opened = _opened(log, {"--out": out, "--report": page_path})
    with reading() as progress:
        from invariant_bandits.model.fit import fit_logs

        model = fit_logs(
            opened,
            policy=policy,
            windows=windows,
            every=every,
            edges=None if edges is None else _edges(edges),
            features=log.feature_options(),
            engine=engine,
            address=address,
            strict=log.strict,
            keep_going=log.keep_going,
            exploration=factor,
            horizon=horizon,
            confidence=confidence,
            progress=progress,
        )
    if value:
        with console.status("asking what the policy would have earned"):
            from invariant_bandits.evaluation.expected import expected_value

            value_words = expected_value(
                model, opened, exploration=factor, confidence=confidence, features=log.feature_options()
            )
            model = replace(model, value=value_words)
    model.save(out)
    from invariant_bandits.reports import model_page, values

    written = write_report(page_path, lambda: model_page.report(model))
    console.print(model_page.text(model, columns=False, width=width()))
    console.print(f"\nmodel: {out}")
    console.print(f"{model.quality.rows:,} rows in {time.perf_counter() - began:.1f} s")
    if as_json:
        print_json(values.of_model(model) | {"model": str(out), "report": written})
    if written is None:
        raise typer.Exit(FAILED)


def _factor(words: str) -> float | str:
    """The factor on widths, or the word that asks for a rehearsal."""
    if words == "rehearsed":
        return words
    try:
        return float(words)
    except ValueError:
        raise InputError(f"--exploration must be a number or 'rehearsed', got {words!r}") from None


def inspect(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A file written by `fit`.")],
    report: Report = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Say what a model knows: what is stable, what drifts and how far, the evidence, the quality of its log."""
    from invariant_bandits.model.model import Model
    from invariant_bandits.reports import model_page, values

    if report is not None:
        check_target(report, "--report", "page", force=force, reads=[model])
    say_when_compiling()
    loaded = Model.load(model)
    with words_on_stderr(as_json):
        if not as_json:
            console.print(model_page.text(loaded, width=width()))
        written = None if report is None else write_report(report, lambda: model_page.report(loaded))
    if as_json:
        print_json(values.of_model(loaded) | {"model": str(model), "report": written})
    if report is not None and written is None:
        raise typer.Exit(FAILED)


@with_log_options
def evaluate(
    log: LogOptions,
    fit_fraction: Annotated[float, typer.Option(help="Share of the rounds that policies are fitted on.")] = 0.5,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="A registered policy to evaluate, several times; eight of them if not given."),
    ] = None,
    propensities: Annotated[
        str, typer.Option(help="logged; estimated, by a logistic model; uniform, if you know that logging was.")
    ] = "logged",
    direct: Annotated[
        bool, typer.Option("--direct", help="Also by a reward model alone, which must then be right.")
    ] = False,
    latest: Annotated[int | None, typer.Option(min=20, help="Only so many of the last rounds.")] = None,
    windows: Annotated[int, typer.Option(min=2, help="Windows of the rounds that policies are fitted on.")] = 8,
    policy_log: Annotated[
        Path | None,
        typer.Option(help="Another log with the same labels: what the policy that wrote it would have earned here."),
    ] = None,
    report: Report = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes to use.")] = PROCESSORS,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all randomness.")] = 0,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Would it have helped? Fits policies on the first part of a log and evaluates them on the rest, once.

    The log must have its offered actions. What cannot be known from it is refused, with the reason; if nothing can be
    known about any policy, the exit code is 3.
    """
    if report is not None:
        check_target(report, "--report", "page", force=force, reads=[policy_log])
    opened = _opened(log, {} if report is None else {"--report": report})
    if policy_log is not None:
        _evaluate_policy_log(opened, policy_log, log, as_json)
        return
    with reading() as progress:
        from invariant_bandits.evaluation.logged import read_feedback

        began = time.perf_counter()
        read = read_feedback(
            opened,
            features=log.feature_options(),
            fit_fraction=fit_fraction,
            windows=windows,
            latest=latest,
            strict=log.strict,
            keep_going=log.keep_going,
            seed=seed,
            progress=lambda rows: progress(rows, None, time.perf_counter() - began),
        )
    with playing() as played:
        from invariant_bandits.evaluation.comparison import compare

        result = compare(
            read.feedback,
            policy or None,
            fit_fraction=fit_fraction,
            windows=read.windows,
            propensities=propensities,
            with_direct=direct,
            seed=seed,
            jobs=jobs,
            progress=played,
        )
    from invariant_bandits.reports import evaluation_page, values

    console.print(evaluation_page.text(result, read, width()))
    written = None if report is None else write_report(report, lambda: evaluation_page.report(result, read))
    if as_json:
        print_json(values.of_comparison(result, read) | {"report": written})
    if report is not None and written is None:
        raise typer.Exit(FAILED)
    if not values.concludes(result):
        raise typer.Exit(NO_ANSWER)


def _evaluate_policy_log(opened: Log, policy_log: Path, log: LogOptions, as_json: bool) -> None:
    """What the policy that wrote another log would have earned in this one."""
    with console.status("reading both logs"):
        from invariant_bandits.evaluation.logged import value_of_logged
        from invariant_bandits.logs.log import open_log
        from invariant_bandits.reports import values

        own = open_log(policy_log, log.overrides(), catalogue=log.catalogue)
        result = value_of_logged(own, opened, features=log.feature_options())
    console.print(result.summary())
    if as_json:
        print_json(values.of_logged_policy(result))
    if not result.concludes:
        raise typer.Exit(NO_ANSWER)


COMMANDS: tuple[Callable[..., None], ...] = (fit, inspect, evaluate)


def _opened(log: LogOptions, targets: Mapping[str, Path]) -> Log:
    """The log, opened once for everything that follows; says what its columns were taken for.

    targets: option -> file that will be written, which must be none of those that are read.
    """
    with console.status("looking at the columns"):
        from invariant_bandits.logs.log import open_log

        opened = open_log(
            log.source, log.overrides(), catalogue=log.catalogue, arms=split_words(log.arms) if log.arms else None
        )
        reads = [log.schema, log.catalogue, *(task.file for task in opened.source.tasks)]
        for option, path in targets.items():
            check_not_read(path, option, reads)
        arms = f"\n{opened.arms.describe(MOST_ARMS_SHOWN)}\n" if opened.schema.labelled else ""
    console.print(f"{opened.schema.describe()}\n{arms}")
    return opened


def _edges(given: str) -> list[Any]:
    words = [word.strip() for word in given.split(",")]
    try:
        return [float(word) for word in words]
    except ValueError:
        return words
