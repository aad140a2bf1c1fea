"""The commands that make models of logs and read them: fit, evaluate, update, inspect, arms, decompose; and
convert and sample, which write logs.

Every option that says what a log is comes from LogOptions; the rest of a command is arguments and printing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from invariant_bandits.checks import InputError
from invariant_bandits.cli.common import (
    FAILED,
    NO_ANSWER,
    PROCESSORS,
    announce_compiling,
    check_not_read,
    check_target,
    check_targets,
    counting,
    print_json,
    reading,
    width,
    write_report,
)
from invariant_bandits.cli.common import plain_console as console

if TYPE_CHECKING:
    from invariant_bandits.logs.log import Log

MOST_ARMS_SHOWN = 20


@dataclass(frozen=True, kw_only=True)
class LogColumns:
    """What the columns of a log are called, by their roles; 'none' says that the log has no such column."""

    time: str | None = None
    reward: str | None = None
    action: str | None = None
    arm: str | None = None
    arms_offered: str | None = None
    propensity: str | None = None
    position: str | None = None
    round: str | None = None
    chosen: str | None = None
    offered: str | None = None
    rewards: str | None = None


@dataclass(frozen=True, kw_only=True)
class LogOptions(LogColumns):
    """What a command knows of its log; every field is an option of the command line."""

    logs: list[str]
    strict: bool = False
    keep_going: bool = False
    centre: bool = False
    standardise: str = "none"
    interactions: list[str] | None = None
    max_categories: int = 50
    impute: bool = True
    schema: Path | None = None
    features: list[str] | None = None
    one_hot: list[str] | None = None
    arms: list[str] | None = None
    catalogue: Path | None = None
    arm_model: str = "auto"
    full_information: bool = False
    day_first: bool | None = None

    def reading_options(self) -> dict[str, Any]:
        """What to make of the columns and of bad rows, as the functions of the library take it."""
        from invariant_bandits.logs.features import FeatureOptions

        features = FeatureOptions(
            split_words(self.interactions),
            *(self.standardise, self.centre, self.max_categories),
            impute=self.impute,
            arm_model=self.arm_model,
        )
        return {"features": features, "strict": self.strict, "keep_going": self.keep_going}

    def overrides(self) -> dict[str, Any]:
        """Fields of a Schema that the file or options give."""
        from invariant_bandits.logs.schema import toml_overrides

        known = {} if self.schema is None else toml_overrides(self.schema)
        for role in fields(LogColumns):
            if (column := getattr(self, role.name)) is not None:
                known[role.name] = None if column == "none" else column
        more = {
            "full_information": self.full_information or None,
            "day_first": self.day_first,
            "features": split_words(self.features) or None,
            "categorical": split_words(self.one_hot) or None,
        }
        return known | {name: value for name, value in more.items() if value is not None}

    def open(self, targets: Mapping[str, Path]) -> Log:
        """Open the log, once for everything that follows, and print what its columns were taken for.

        targets: option -> file that will be written, which must be none of those that are read.
        """
        with console.status("looking at the columns"):
            from invariant_bandits.logs.log import open_log

            opened = open_log(
                self.logs[0] if len(self.logs) == 1 else list(self.logs),
                self.overrides(),
                catalogue=self.catalogue,
                arms=split_words(self.arms) if self.arms else None,
            )
            reads = [self.schema, self.catalogue, *(task.file for task in opened.source.tasks)]
            for option, path in targets.items():
                check_not_read(path, option, reads)
            arms = f"\n{opened.arms.describe(MOST_ARMS_SHOWN)}\n" if opened.schema.labelled else ""
        console.print(f"{opened.schema.describe()}\n{arms}")
        return opened


@dataclass(frozen=True, kw_only=True)
class WindowOptions:
    """Into which windows a log is cut, and where it is read."""

    windows: int | None = None
    every: str | None = None
    engine: str = "local"
    address: str | None = None


def split_words(words: Sequence[str] | None) -> tuple[str, ...]:
    """Words of options that may be repeated and may hold commas."""
    return tuple(word.strip() for line in words or () for word in line.split(",") if word.strip())


def fit(
    log: LogOptions,
    cut: WindowOptions,
    out: Path,
    policy: str = "auto-isd",
    edges: str | None = None,
    exploration: float | None = None,
    horizon: int | None = None,
    confidence: float = 0.01,
    report: Path | None = None,
    value: bool = True,
    force: bool = False,
    as_json: bool = False,
) -> None:
    """Learn from a log what is stable and what drifts: writes a model to serve and a report to read.

    The meaning of the columns is guessed from names and types, and shown; options correct it.
    """
    announce_compiling()
    page_path = out.with_suffix(".html") if report is None else report
    check_targets(out, page_path, force=force)
    began = time.perf_counter()
    opened, options = log.open({"--out": out, "--report": page_path}), log.reading_options()
    with reading() as progress:
        from invariant_bandits.model.fit import fit_logs

        model = fit_logs(
            opened,
            policy=policy,
            edges=None if edges is None else _edges(edges),
            exploration=exploration,
            horizon=horizon,
            confidence=confidence,
            progress=progress,
            **vars(cut),
            **options,
        )
    if value:
        with console.status("asking what the policy would have earned"):
            from invariant_bandits.evaluation.comparison import expected_value

            asked = {"exploration": exploration, "confidence": confidence, "features": options["features"]}
            model = replace(model, value=expected_value(model, opened, **asked))
    model.save(out)
    from invariant_bandits.reports import model_page, values

    written = write_report(page_path, lambda: model_page.report(model))
    cost = f"{model.quality.rows:,} rows in {time.perf_counter() - began:.1f} s"
    console.print(f"{model_page.text(model, columns=False, width=width())}\n\nmodel: {out}\n{cost}")
    _answer(out, page_path, written, lambda: values.of_model(model), as_json)


def _answer(
    model: Path, report: Path | None, written: str | None, values: Callable[[], dict[str, Any]], as_json: bool
) -> None:
    """Print the answer of a command about a model for programs; a report that could not be drawn ends it with
    FAILED.
    """
    if as_json:
        print_json(values() | {"model": str(model), "report": written})
    if report is not None and written is None:
        raise typer.Exit(FAILED)


def _edges(line: str) -> list[Any]:
    words = [word.strip() for word in line.split(",")]
    try:
        return [float(word) for word in words]
    except ValueError:
        return words


def evaluate(
    log: LogOptions,
    fit_fraction: float = 0.5,
    policy: list[str] | None = None,
    propensities: str = "logged",
    direct: bool = False,
    latest: int | None = None,
    windows: int = 8,
    policy_log: Path | None = None,
    report: Path | None = None,
    jobs: int = PROCESSORS,
    seed: int = 0,
    force: bool = False,
    as_json: bool = False,
) -> None:
    """Would it have helped? Fits policies on the first part of a log and evaluates them on the rest, once.

    The log must have its offered actions. What cannot be known from it is refused, with the reason; if
    nothing can be known about any policy, the exit code is 3.
    """
    announce_compiling()
    if report is not None:
        check_target(report, "--report", "page", force=force, reads=[policy_log])
    opened, options = log.open({} if report is None else {"--report": report}), log.reading_options()
    if policy_log is not None:
        _evaluate_policy_log(opened, policy_log, log, as_json)
        return
    with reading() as progress:
        from invariant_bandits.evaluation.logged import read_feedback

        began = time.perf_counter()
        read = read_feedback(
            opened,
            fit_fraction=fit_fraction,
            windows=windows,
            latest=latest,
            seed=seed,
            progress=lambda rows: progress(rows, None, time.perf_counter() - began),
            **options,
        )
    with counting("playing policies", transient=True) as show:
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
            progress=lambda done, total: show("policies", done, total),
        )
    from invariant_bandits.reports import evaluation_page, values

    console.print(evaluation_page.text(result, read, width()))
    written = write_report(report, lambda: evaluation_page.report(result, read))
    if as_json:
        print_json(values.of_comparison(result, read) | {"report": written})
    if report is not None and written is None:
        raise typer.Exit(FAILED)
    if not any(line.against_log.concludes for line in result.lines):
        raise typer.Exit(NO_ANSWER)


def _evaluate_policy_log(opened: Log, policy_log: Path, log: LogOptions, as_json: bool) -> None:
    """What the policy that wrote another log would have earned in this one."""
    with console.status("reading both logs"):
        from invariant_bandits.evaluation.logged import value_of_logged
        from invariant_bandits.logs.log import open_log
        from invariant_bandits.reports import values

        own = open_log(policy_log, log.overrides(), catalogue=log.catalogue)
        result = value_of_logged(own, opened, features=log.reading_options()["features"])
    console.print(result.summary())
    if as_json:
        print_json(values.of_logged_policy(result))
    if not result.concludes:
        raise typer.Exit(NO_ANSWER)


def inspect(model: Path, report: Path | None = None, force: bool = False, as_json: bool = False) -> None:
    """Say what a model knows: what is stable, what drifts how far, the evidence, the quality of its log."""
    from invariant_bandits.model.model import Model
    from invariant_bandits.reports import model_page, values

    if report is not None:
        check_target(report, "--report", "page", force=force, reads=[model])
    announce_compiling()
    loaded = Model.load(model)
    if not as_json:
        console.print(model_page.text(loaded, width=width()))
    written = write_report(report, lambda: model_page.report(loaded))
    _answer(model, report, written, lambda: values.of_model(loaded), as_json)


def update(
    model: Path,
    logs: list[str],
    cut: WindowOptions,
    out: Path | None = None,
    horizon: int | None = None,
    report: Path | None = None,
    strict: bool = False,
    force: bool = False,
    as_json: bool = False,
) -> None:
    """Add this week's log to a model: its rounds become further windows, and what changed since is said.

    The result is that of fitting all logs at once with the same windows; the old logs are not read. Columns
    mean what they meant, and features stay as they were learned. Give new rounds only: nothing may be counted
    twice.
    """
    target = model if out is None else out
    page_path = target.with_suffix(".html") if report is None else report
    check_targets(target, page_path, force=force, reads=[model])
    began = time.perf_counter()
    announce_compiling()
    from invariant_bandits.logs.sources import find_files
    from invariant_bandits.model.model import Model
    from invariant_bandits.model.update import update_model
    from invariant_bandits.reports import model_page, values

    loaded = Model.load(model)
    reads = [path for source in logs for path in find_files(source)[1]]
    check_not_read(target, "--out", reads)
    check_not_read(page_path, "--report", reads)
    with reading() as progress:
        source = logs[0] if len(logs) == 1 else list(logs)
        options: dict[str, Any] = {"horizon": horizon, "strict": strict, "progress": progress}
        changed = update_model(loaded, source, **vars(cut), **options)
    changed.model.save(target)
    written = write_report(page_path, lambda: model_page.report(changed.model, changed))
    cost = f"{changed.quality.rows:,} rows in {time.perf_counter() - began:.1f} s"
    said = model_page.text(changed.model, changed, width=width())
    console.print(f"{said}\n\nmodel: {target}\n{cost}")
    _answer(target, page_path, written, lambda: values.of_model(changed.model, changed), as_json)


def arms(
    model: Path,
    add: str | None = None,
    feature: list[str] | None = None,
    retire: list[str] | None = None,
    out: Path | None = None,
    force: bool = False,
    as_json: bool = False,
) -> None:
    """List the arms of a model, add one or retire some."""
    if feature and add is None:
        raise InputError("--feature describes a new arm: give --add, too")
    target = model if out is None else out
    check_target(target, "--out", "model", force=force)
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
        print_json({"model": str(target), "version": loaded.identity, "arms": listed})


def _pair(words: str) -> tuple[str, Any]:
    name, sign, value = words.partition("=")
    if not sign or not name:
        raise InputError(f"--feature must be NAME=VALUE, got {words!r}")
    return name, value


def decompose(
    moments: Path,
    plot: Path | None = None,
    metric: str = "euclidean",
    covariances: str = "auto",
    alpha: float = 0.002,
    windows: int | None = None,
    theme: str = "light",
    force: bool = False,
) -> None:
    """Say what is stable and what drifts in stored moments."""
    from invariant_bandits.decomposition.estimator import InvariantSubspaceDecomposition
    from invariant_bandits.moments.windowed import WindowedMoments

    if plot is not None:
        check_target(plot, "--plot", "picture", force=force, reads=[moments])
        if not plot.suffix:
            plot = plot.with_suffix(".png")
            check_target(plot, "--plot", "picture", force=force, reads=[moments])
    stored = WindowedMoments.load(moments)
    if windows is not None:
        stored = stored.coarsen(windows)
    fit = InvariantSubspaceDecomposition(metric=metric, covariances=covariances, alpha=alpha)
    announce_compiling()
    with console.status("fitting"):
        fit.fit(stored)
    console.print(fit.summary(), highlight=False)
    if plot is not None:
        from invariant_bandits.reports import plots

        plots.save(plots.overview(fit, theme_name=theme), plot.with_suffix(""), [plot.suffix.lstrip(".")])
        console.print(f"picture: {plot}")


def convert(source: str, out: Path, schema: Path | None = None, force: bool = False) -> None:
    """Write a log in another format; the suffixes of the files say which."""
    from invariant_bandits.logs.convert import convert as converted

    console.print(f"{out}: {converted(source, out, schema, force=force).describe()}")


def sample(folder: Path, rounds: int = 4000, seed: int = 0, force: bool = False) -> None:
    """Write sample logs with known truth: labelled banners, and features of actions in three layouts."""
    from invariant_bandits.simulation.sample_logs import write_samples

    for path, words in write_samples(folder, rounds, seed, replace=force).items():
        console.print(f"{path}: {words}")
