"""The commands that read a log: fit, evaluate, convert, and sample, which writes logs to try them on.

Every option that says what the log is comes from LogOptions; the rest of a command is arguments and printing.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

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
    playing,
    print_json,
    reading,
    show_model,
    width,
    words_on_stderr,
    write_report,
)
from invariant_bandits.cli.common import plain_console as console

if TYPE_CHECKING:
    from invariant_bandits.logs.log import Log

MOST_ARMS_SHOWN = 20
COLUMN_ROLES = (
    *(
        "time",
        "reward",
        "action",
        "arm",
        "arms_offered",
        "propensity",
        "position",
        "round",
        "chosen",
        "offered",
    ),
    "rewards",
)


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """What a command knows of its log; every field is an option of the command line, every column another
    one.
    """

    logs: list[str]
    columns: Mapping[str, str | None] = field(default_factory=dict)
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
        """Fields of a Schema that the file or options give; 'none' says that the log has no such column."""
        from invariant_bandits.logs.schema import toml_overrides

        known = {} if self.schema is None else toml_overrides(self.schema)
        for role, column in self.columns.items():
            if column is not None:
                known[role] = None if column == "none" else column
        if self.full_information:
            known["full_information"] = True
        if self.day_first is not None:
            known["day_first"] = self.day_first
        if self.features:
            known["features"] = split_words(self.features)
        if self.one_hot:
            known["categorical"] = split_words(self.one_hot)
        return known

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


def split_words(words: Sequence[str] | None) -> tuple[str, ...]:
    """Words of options that may be repeated and may hold commas."""
    return tuple(word.strip() for line in words or () for word in line.split(",") if word.strip())


def with_log_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the options of LogOptions as its own parameters, handed over as its `log`."""
    hints = get_type_hints(LogOptions)
    defaults = {option.name: option.default for option in fields(LogOptions) if option.name != "columns"}
    own = [
        item for item in inspect.signature(command, eval_str=True).parameters.values() if item.name != "log"
    ]

    @wraps(command)
    def whole(**values: Any) -> None:
        announce_compiling()
        columns = {role: values.pop(role) for role in COLUMN_ROLES}
        log = LogOptions(columns=columns, **{name: values.pop(name) for name in defaults})
        with words_on_stderr(bool(values.get("as_json"))):
            command(log=log, **values)

    keyword = inspect.Parameter.KEYWORD_ONLY
    logs, *options = (
        inspect.Parameter(
            name,
            keyword,
            default=inspect.Parameter.empty if name == "logs" else default,
            annotation=hints[name],
        )
        for name, default in defaults.items()
    )
    columns = [inspect.Parameter(role, keyword, default=None, annotation=str | None) for role in COLUMN_ROLES]
    parameters = [logs, *(item.replace(kind=keyword) for item in own), *columns, *options]
    whole.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return whole


@with_log_options
def fit(
    log: LogOptions,
    out: Path,
    policy: str = "auto-isd",
    windows: int | None = None,
    every: str | None = None,
    edges: str | None = None,
    exploration: str | None = None,
    horizon: int | None = None,
    confidence: float = 0.01,
    report: Path | None = None,
    value: bool = True,
    engine: str = "local",
    address: str | None = None,
    force: bool = False,
    as_json: bool = False,
) -> None:
    """Learn from a log what is stable and what drifts: writes a model to serve and a report to read.

    The meaning of the columns is guessed from names and types, and shown; options correct it.
    """
    page_path = out.with_suffix(".html") if report is None else report
    check_targets(out, page_path, force=force)
    factor = None if exploration is None else _factor(exploration)
    began = time.perf_counter()
    opened, options = log.open({"--out": out, "--report": page_path}), log.reading_options()
    with reading() as progress:
        from invariant_bandits.model.fit import fit_logs

        model = fit_logs(
            opened,
            policy=policy,
            windows=windows,
            every=every,
            edges=None if edges is None else _edges(edges),
            engine=engine,
            address=address,
            exploration=factor,
            horizon=horizon,
            confidence=confidence,
            progress=progress,
            **options,
        )
    if value:
        with console.status("asking what the policy would have earned"):
            from invariant_bandits.evaluation.expected import expected_value

            asked = {"exploration": factor, "confidence": confidence, "features": options["features"]}
            model = replace(model, value=expected_value(model, opened, **asked))
    model.save(out)
    from invariant_bandits.reports import model_page, values

    show_model(
        *(out, page_path, lambda: model_page.report(model)),
        model_page.text(model, columns=False, width=width()),
        f"{model.quality.rows:,} rows in {time.perf_counter() - began:.1f} s",
        values.of_model(model) if as_json else None,
    )


def _factor(words: str) -> float | str:
    """The factor on widths, or the word that asks for a rehearsal."""
    if words == "rehearsed":
        return words
    try:
        return float(words)
    except ValueError:
        raise InputError(f"--exploration must be a number or 'rehearsed', got {words!r}") from None


def _edges(line: str) -> list[Any]:
    words = [word.strip() for word in line.split(",")]
    try:
        return [float(word) for word in words]
    except ValueError:
        return words


@with_log_options
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
        result = value_of_logged(own, opened, features=log.reading_options()["features"])
    console.print(result.summary())
    if as_json:
        print_json(values.of_logged_policy(result))
    if not result.concludes:
        raise typer.Exit(NO_ANSWER)


def convert(source: str, out: Path, schema: Path | None = None, force: bool = False) -> None:
    """Write a log in another format; the suffixes of the files say which."""
    from invariant_bandits.logs.convert import convert as converted

    console.print(f"{out}: {converted(source, out, schema, force=force).describe()}")


def sample(folder: Path, rounds: int = 4000, seed: int = 0, force: bool = False) -> None:
    """Write sample logs with known truth: labelled banners, and features of actions in three layouts."""
    from invariant_bandits.simulation.sample_logs import write_samples

    for path, words in write_samples(folder, rounds, seed, replace=force).items():
        console.print(f"{path}: {words}")
