"""The commands that make models of logs and read them: fit, evaluate, update, inspect, arms; and sample,
which writes logs.

Every option that says what a log is comes from LogOptions; a command is arguments and printing.
"""

from __future__ import annotations

import shlex
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from invariant_bandits.checks import InputError, escape_control_chars
from invariant_bandits.cli import common
from invariant_bandits.cli.common import plain_console as console
from invariant_bandits.cli.log_options import (
    LogOptions,
    NewWindowOptions,
    WindowOptions,
    split_words,
)
from invariant_bandits.storage import replace_file

WeightMissing = Annotated[
    list[str] | None,
    Option(
        metavar="COLUMNS",
        help=(
            "Columns on which it depends whether a reward is missing: gains and effects then hold for all"
            " rounds, not only for those with a reward."
        ),
    ),
]


def fit(
    log: LogOptions,
    cut: WindowOptions,
    out: Annotated[
        Path, Option("--out", "-o", metavar="MODEL", help="Where the model goes.")
    ],
    policy: Annotated[
        str,
        Option(
            help=(
                "auto-isd; isd-linucb, isd-lints; linucb, lints, greedy, which learn all logs;"
                " linucb-cold; or any other registered policy."
            )
        ),
    ] = "auto-isd",
    edges: Annotated[
        str | None,
        Option(
            help="Times that bound the windows, separated by commas: dates or numbers."
        ),
    ] = None,
    exploration: Annotated[
        float | None,
        Option(
            help="Factor on confidence widths of policies that have them (auto-isd has --caution instead)."
        ),
    ] = None,
    caution: Annotated[
        str,
        Option(
            help=(
                "Share of the believed gain that auto-isd may spend on tests of neglected"
                " actions; none: no limit, for a few arms that are always offered."
            )
        ),
    ] = "0",
    horizon: Annotated[
        int | None,
        Option(
            min=1,
            help="How many rounds will be served; tests that cannot pay are left out.",
        ),
    ] = None,
    delta: Annotated[
        float, Option(help="Probability of failure of the confidence sets.")
    ] = 0.01,
    report: common.ReportPath = None,
    value: Annotated[
        bool,
        Option(
            help="Ask what the policy would have earned, if the log can tell; takes seconds."
        ),
    ] = True,
    weight_missing: WeightMissing = None,
    ask: Annotated[
        bool,
        Option(
            "--ask",
            help=(
                "Show every column with its role, in a terminal; roles can be changed before"
                " the log is read."
            ),
        ),
    ] = False,
    force: common.Force = False,
    as_json: common.AsJson = False,
) -> None:
    """Learn from a log what is stable and what drifts: writes a model to serve and a report to read.

    The meaning of the columns is guessed from names and types, and shown; options correct it.
    """
    common.announce_compiling()
    page_path = out.with_suffix(".html") if report is None else report
    common.check_targets(out, page_path, force=force)
    if ask:
        agreed = log.ask()
        words = [word for word in sys.argv[1:] if word != "--ask"]
        words += agreed.said_beside(log)
        console.print(
            f"the same without --ask:\n  invariant-bandits {shlex.join(words)}\n"
        )
        log = agreed
    began = time.perf_counter()
    opened = log.open({"--out": out, "--report": page_path})
    options = log.reading_options()
    with common.reading() as progress:
        from invariant_bandits.features.arm_maps import SharedSlopesWarning
        from invariant_bandits.model.fit import fit_logs

        # The report says first what SharedSlopesWarning says.
        with warnings.catch_warnings(action="ignore", category=SharedSlopesWarning):
            model = fit_logs(
                opened,
                policy=policy,
                edges=None if edges is None else _edges(edges),
                exploration=exploration,
                caution=_caution(caution),
                horizon=horizon,
                delta=delta,
                progress=progress,
                weight_missing=split_words(weight_missing),
                **vars(cut),
                **options,
            )
    if value:
        with console.status("asking what the policy would have earned"):
            from invariant_bandits.evaluation.comparison import expected_value

            value_of_model = expected_value(
                model,
                opened,
                exploration=exploration,
                delta=delta,
                features=options["features"],
                weight_missing=split_words(weight_missing),
            )
            model = replace(model, value=value_of_model)
    model.save(out)
    from invariant_bandits.reports import model_page, values

    console.print(
        f"{model_page.text(model, columns=False, width=common.width())}\n\nmodel: "
        f"{out}\n{model.quality.rows:,} rows in {time.perf_counter() - began:.1f} s"
    )
    _answer(
        page_path,
        lambda: model_page.report(model),
        as_json,
        lambda: values.of_model(model),
        out,
    )


def _answer(
    report: Path | None,
    draw: Callable[[], str],
    as_json: bool,
    values: Callable[[], dict[str, Any]],
    model: Path | None = None,
) -> None:
    """Store the report, if a path is given, and print the answer for programs, if it is wanted.

    A report that cannot be drawn costs nothing of what was stored before; the exit code is FAILED then.
    """
    page = None
    if report is not None:
        try:
            with console.status("drawing the report"):
                page = draw()
        except Exception as error:
            words = f"error: the report could not be drawn ({type(error).__name__}: {error})"
            print(escape_control_chars(words), file=sys.stderr)
        else:
            replace_file(report, page.encode())
            console.print(f"report: {report}")
    if as_json:
        written = {} if model is None else {"model": str(model)}
        common.print_json(
            values() | written | {"report": None if page is None else str(report)}
        )
    if report is not None and page is None:
        raise typer.Exit(common.FAILED)


def _caution(word: str) -> float | None:
    from invariant_bandits.policies.auto import checked_caution

    try:
        return checked_caution(float(word))
    except ValueError:  # not a number: none, or refused by name
        return checked_caution(word)


def _edges(line: str) -> list[Any]:
    words = [word.strip() for word in line.split(",")]
    try:
        return [float(word) for word in words]
    except ValueError:
        return words


def evaluate(
    log: LogOptions,
    fit_fraction: Annotated[
        float, Option(help="Share of the rounds that policies are fitted on.")
    ] = 0.5,
    policy: Annotated[
        list[str] | None,
        Option(
            help="A registered policy to evaluate, several times; eight of them if not given."
        ),
    ] = None,
    propensities: Annotated[
        str,
        Option(
            help="logged; estimated, by a logistic model; uniform, if you know that logging was."
        ),
    ] = "logged",
    direct: Annotated[
        bool,
        Option(
            "--direct", help="Also by a reward model alone, which must then be right."
        ),
    ] = False,
    settings: Annotated[
        str,
        Option(
            help="Of simple policies: tuned, on earlier rounds; published; both, side by side."
        ),
    ] = "tuned",
    latest: Annotated[
        int | None, Option(min=20, help="Only so many of the last rounds.")
    ] = None,
    windows: Annotated[
        int, Option(min=2, help="Windows of the rounds that policies are fitted on.")
    ] = 8,
    policy_log: Annotated[
        Path | None,
        Option(
            help="Another log with the same labels: what the policy that wrote it would have earned here."
        ),
    ] = None,
    weight_missing: WeightMissing = None,
    report: common.ReportPath = None,
    jobs: common.Jobs = common.PROCESSORS,
    seed: common.Seed = 0,
    force: common.Force = False,
    as_json: common.AsJson = False,
) -> None:
    """Would it have helped? Fits policies on the first part of a log and evaluates them on the rest, once.

    The log must have its offered actions. What cannot be known from it is refused, with the reason; if
    nothing can be known about any policy, the exit code is 3.
    """
    common.announce_compiling()
    if report is not None:
        common.check_target(report, "--report", "page", force=force, reads=[policy_log])
    opened = log.open({} if report is None else {"--report": report})
    if policy_log is not None:
        _evaluate_policy_log(opened, policy_log, log, as_json)
        return
    shared: dict[str, Any] = {"fit_fraction": fit_fraction, "seed": seed}
    with common.reading() as progress:
        began = time.perf_counter()
        read = opened.feedback(
            windows=windows,
            latest=latest,
            weight_missing=split_words(weight_missing),
            progress=lambda rows: progress(rows, None, time.perf_counter() - began),
            **shared,
            **log.reading_options(),
        )
    with common.counting("playing policies", transient=True) as show:
        from invariant_bandits.evaluation.comparison import compare

        result = compare(
            read.feedback,
            policy or None,
            windows=read.windows,
            propensities=propensities,
            with_direct=direct,
            settings=settings,
            jobs=jobs,
            progress=lambda done, total: show("plays", done, total),
            **shared,
        )
    from invariant_bandits.reports import evaluation_page, values

    console.print(evaluation_page.text(result, read, common.width()))
    numbers = partial(values.of_comparison, result, read)
    _answer(report, lambda: evaluation_page.report(result, read), as_json, numbers)
    if not any(line.against_log.concludes for line in result.lines):
        raise typer.Exit(common.NO_ANSWER)


def _evaluate_policy_log(
    opened: Any, policy_log: Path, log: LogOptions, as_json: bool
) -> None:
    """What the policy that wrote another log would have earned in this one."""
    with console.status("reading both logs"):
        from invariant_bandits.evaluation.logged import value_of_logged
        from invariant_bandits.logs.log import open_log
        from invariant_bandits.reports import values

        of_policy = open_log(policy_log, log.overrides(), catalogue=log.catalogue)
        result = value_of_logged(
            of_policy, opened, features=log.reading_options()["features"]
        )
    console.print(result.summary())
    if as_json:
        common.print_json(values.of_logged_policy(result))
    if not result.concludes:
        raise typer.Exit(common.NO_ANSWER)


def inspect(
    model: Annotated[Path, Argument(metavar="MODEL", help="A file written by `fit`.")],
    report: common.ReportPath = None,
    force: common.Force = False,
    as_json: common.AsJson = False,
) -> None:
    """Say what a model knows: what is stable, what drifts how far, the evidence, the quality of its log."""
    from invariant_bandits.model.model import Model
    from invariant_bandits.reports import model_page, values

    if report is not None:
        common.check_target(report, "--report", "page", force=force, reads=[model])
    common.announce_compiling()
    loaded = Model.load(model)
    if not as_json:
        console.print(model_page.text(loaded, width=common.width()))
    _answer(
        report,
        lambda: model_page.report(loaded),
        as_json,
        lambda: values.of_model(loaded),
        model,
    )


def update(
    model: Annotated[
        Path, Argument(metavar="MODEL", help="A file written by `fit` or `update`.")
    ],
    logs: Annotated[
        list[str],
        Argument(
            metavar="LOGS", help="The new rounds only: files, a folder, a pattern."
        ),
    ],
    cut: NewWindowOptions,
    out: Annotated[
        Path | None,
        Option(
            "--out",
            "-o",
            metavar="MODEL",
            help="Where the new model goes; replaces MODEL if not given.",
        ),
    ] = None,
    horizon: Annotated[
        int | None, Option(min=1, help="How many rounds will be served.")
    ] = None,
    report: common.ReportPath = None,
    strict: Annotated[
        bool, Option("--strict", help="Refuse a log with any bad row.")
    ] = False,
    keep_going: Annotated[
        bool,
        Option(
            "--keep-going", help="Go on although most of the new rounds cannot be used."
        ),
    ] = False,
    force: common.Force = False,
    as_json: common.AsJson = False,
) -> None:
    """Add this week's log to a model: its rounds become further windows, and what changed since is said.

    The result is that of fitting all logs at once with the same windows; the old logs are not read. Columns
    mean what they meant, and features stay as they were learned. Give new rounds only: nothing may be counted
    twice.
    """
    target = model if out is None else out
    page_path = target.with_suffix(".html") if report is None else report
    common.check_targets(target, page_path, force=force, reads=[model])
    began = time.perf_counter()
    common.announce_compiling()
    from invariant_bandits.logs.files import find_files
    from invariant_bandits.model.model import Model
    from invariant_bandits.reports import model_page, values

    loaded = Model.load(model)
    reads = [path for source in logs for path in find_files(source)[1]]
    common.check_not_read(target, "--out", reads)
    common.check_not_read(page_path, "--report", reads)
    with common.reading() as progress:
        changed = loaded.update_from(
            logs[0] if len(logs) == 1 else list(logs),
            horizon=horizon,
            strict=strict,
            keep_going=keep_going,
            progress=progress,
            **vars(cut),
        )
    changed.model.save(target)
    console.print(
        f"{model_page.text(changed.model, changed, width=common.width())}\n\nmodel: "
        f"{target}\n{changed.quality.rows:,} rows in {time.perf_counter() - began:.1f} s"
    )
    numbers = partial(values.of_model, changed.model, changed)
    _answer(
        page_path,
        lambda: model_page.report(changed.model, changed),
        as_json,
        numbers,
        target,
    )


def arms(
    model: Annotated[
        Path,
        Argument(
            metavar="MODEL", help="A file written by `fit` for a log of labelled arms."
        ),
    ],
    add: Annotated[
        str | None,
        Option(
            metavar="LABEL",
            help="Make a new arm known; it starts from the prior over arms.",
        ),
    ] = None,
    feature: Annotated[
        list[str] | None,
        Option(
            metavar="NAME=VALUE",
            help="Of the new arm, by a column of the catalogue; several times.",
        ),
    ] = None,
    retire: Annotated[
        list[str] | None,
        Option(
            metavar="LABEL",
            help="Never choose an arm again; its name stays known. Several times.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        Option(
            "--out",
            "-o",
            metavar="MODEL",
            help="Where the changed model goes; replaces MODEL if not given.",
        ),
    ] = None,
    force: common.Force = False,
    as_json: common.AsJson = False,
) -> None:
    """List the arms of a model, add one or retire some."""
    if feature and add is None:
        raise InputError("--feature describes a new arm: give --add as well")
    target = model if out is None else out
    common.check_target(target, "--out", "model", force=force)
    from invariant_bandits.model.model import Model

    loaded = Model.load(model)
    if loaded.arms is None:
        raise InputError(f"{model} is a model of feature rows: it has no labelled arms")
    for label in retire or ():
        loaded.retire_arm(label)
    if add is not None:
        loaded.add_arm(add, dict(map(_pair, feature)) if feature else None)
    if not as_json:
        console.print(loaded.arms.describe())
    if add is not None or retire:
        loaded.save(target)
        console.print(f"\nmodel: {target}, version {loaded.identity}")
    if as_json:
        listed = [asdict(arm) for arm in loaded.arms.arms]
        common.print_json(
            {"model": str(target), "version": loaded.identity, "arms": listed}
        )


def _pair(words: str) -> tuple[str, Any]:
    name, sign, value = words.partition("=")
    if not sign or not name:
        raise InputError(f"--feature must be NAME=VALUE, got {words!r}")
    return name, value


def sample(
    folder: Annotated[
        Path,
        Argument(metavar="DIR", help="Where the logs go; made if it is not there."),
    ],
    rounds: Annotated[
        int | None,
        Option(
            min=200,
            help="Rounds per log; 20,000 of banners.csv and 4,000 of the others if not given.",
        ),
    ] = None,
    seed: common.Seed = 0,
    force: Annotated[
        bool, Option("--force", help="Replace files of the same names.")
    ] = False,
) -> None:
    """Write sample logs with known truth: labelled banners, and features of actions in three layouts."""
    from invariant_bandits.simulation.sample_logs import TRUTH, write_samples

    for path, words in write_samples(folder, rounds, seed, replace=force).items():
        console.print(f"{path}: {words}")
    console.print("\n".join(["", "What is planted in them:", *TRUTH]))
