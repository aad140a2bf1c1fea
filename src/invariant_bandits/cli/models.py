"""The commands that make models of logs and read them: fit, evaluate, update, inspect, arms; and sample,
which writes logs.

Every option that says what a log is comes from LogOptions; the rest of a command is arguments and printing.
"""

from __future__ import annotations

import shlex
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, make_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import typer

from invariant_bandits.checks import InputError, escape_control_chars
from invariant_bandits.cli import common
from invariant_bandits.cli.common import plain_console as console
from invariant_bandits.logs.column_names import ROLES
from invariant_bandits.logs.schema import toml_overrides
from invariant_bandits.storage import replace_file

MOST_ARMS_SHOWN = 20


COLUMNS: list[Any] = [(role, str | None, None) for role in ROLES]
LogColumns: Any = make_dataclass("LogColumns", COLUMNS, frozen=True, kw_only=True)
"""What the columns of a log are called, by their roles; 'none' says that the log has no such column."""


@dataclass(frozen=True, kw_only=True)
class LogOptions(LogColumns):  # type: ignore[misc]
    """What a command knows of its log; every field is an option of the command line."""

    logs: list[str]
    strict: bool = False
    keep_going: bool = False
    centre: bool = False
    standardise: str = "none"
    interactions: list[str] | None = None
    max_categories: int = 100
    impute: bool = True
    schema: Path | None = None
    features: list[str] | None = None
    one_hot: list[str] | None = None
    arms: list[str] | None = None
    catalogue: Path | None = None
    arm_model: str = "auto"
    full_information: bool = False
    day_first: bool | None = None
    repeated: str | None = None
    no_action: bool = False
    ignore: list[str] | None = None
    keep: list[str] | None = None
    minimise: bool | None = None
    reward_values: list[str] | None = None
    missing: list[str] | None = None
    rename: list[str] | None = None
    levels: int | None = None

    def reading_options(self) -> dict[str, Any]:
        """What to make of the columns and of bad rows, as the functions of the library take it."""
        from invariant_bandits.logs.feature_maps import FeatureOptions

        names = ("standardise", "centre", "max_categories", "impute", "arm_model")
        same = {name: getattr(self, name) for name in names}
        features = FeatureOptions(split_words(self.interactions), **same)
        return {
            "features": features,
            "strict": self.strict,
            "keep_going": self.keep_going,
        }

    def overrides(self) -> dict[str, Any]:
        """Fields of a Schema that the file or options give."""
        known = {} if self.schema is None else toml_overrides(self.schema)
        for role in ROLES:
            if (column := getattr(self, role)) is not None:
                known[role] = None if column == "none" else column
        more = {
            "full_information": self.full_information or None,
            "day_first": self.day_first,
            "repeated": self.repeated,
            "features": split_words(self.features) or None,
            "categorical": split_words(self.one_hot) or None,
            "ignore": split_words(self.ignore) or None,
            "keep": split_words(self.keep) or None,
            "minimise": self.minimise,
            "reward_values": _worths(self.reward_values),
            "missing": split_words(self.missing) or None,
            "rename": dict(
                _assigned("--rename OLD=NEW", word) for word in split_words(self.rename)
            )
            or None,
            "levels": self.levels,
        }
        if self.no_action:
            if known.get("arm") is not None or known.get("action") is not None:
                words = "--no-action says that no column is the action"
                raise InputError(f"{words}; leave out --arm and --action")
            known |= {"arm": None, "action": None}
        return known | {
            name: value for name, value in more.items() if value is not None
        }

    def open(self, targets: Mapping[str, Path]) -> Any:
        """Open the log, once for everything that follows, and print what its columns were taken for.

        targets: option -> file that will be written, which must be none of those that are read.
        """
        with console.status("looking at the columns"):
            opened = self._opened(self.overrides())
            reads = [
                self.schema,
                self.catalogue,
                *(task.file for task in opened.source.tasks),
            ]
            for option, path in targets.items():
                common.check_not_read(path, option, reads)
            arms = (
                f"\n{opened.arms.describe(MOST_ARMS_SHOWN)}\n"
                if opened.schema.labelled
                else ""
            )
        console.print(f"{opened.schema.describe()}\n{arms}")
        return opened

    def _opened(self, overrides: Mapping[str, Any]) -> Any:
        from invariant_bandits.logs.log import open_log

        source, labels = (
            self.logs if len(self.logs) > 1 else self.logs[0],
            split_words(self.arms) or None,
        )
        return open_log(source, overrides, catalogue=self.catalogue, arms=labels)

    def ask(self) -> LogOptions:
        """Show every column with its role until the user agrees; return the options that say the same."""
        if not sys.stdin.isatty():
            raise InputError(
                "--ask needs a terminal; name columns by options instead, such as --arm COLUMN"
            )
        from invariant_bandits.logs.formats.registry import open_source

        options, columns = self, open_source(list(self.logs)).arrow_schema.names
        wide, mistake = max(map(len, columns)), ""
        console.print(f"roles: {', '.join(OTHER_ROLES)}, {', '.join(ROLES)}\n")
        while True:
            problem, shown = options._rows_or_problem()
            for number, name in enumerate(columns, 1):
                role, why = shown.get(name, ("?", ""))
                console.print(
                    f"{number:>3}  {name:<{wide}}  {role:<12}  {why}".rstrip()
                )
            console.print("\n".join(["", *filter(None, (problem, mistake))]))
            answer = input(
                "number of a column and its role, no-action, or Enter to go on: "
            ).split()
            if not answer and not problem:
                return options
            options, mistake = options.changed(
                columns, answer, {name: role for name, (role, _) in shown.items()}
            )

    def _rows_or_problem(self) -> tuple[str, dict[str, tuple[str, str]]]:
        """(what is missing or wrong, column -> (role, why))."""
        shown: dict[str, tuple[str, str]] = {}
        try:
            schema = self._opened(self.overrides()).schema
            shown = {column: (role, why) for role, column, why in schema.rows()}
            schema.require_action()
        except InputError as error:
            return str(error), shown
        return "", shown

    def changed(
        self, columns: Sequence[str], answer: Sequence[str], roles: Mapping[str, str]
    ) -> tuple[LogOptions, str]:
        """(options after one answer, what was wrong with it); `roles` are the present ones, by column."""
        if list(answer) == ["no-action"]:
            none: dict[str, Any] = {
                "no_action": True,
                "arm": None,
                "action": None,
            }  # LogColumns has no types
            return replace(self, **none), ""
        known = (*OTHER_ROLES, *ROLES)
        places = {str(number): name for number, name in enumerate(columns, 1)}
        if len(answer) != 2 or answer[0] not in places or answer[1] not in known:
            return self, "type a number of the list and a role, such as: 3 arm"
        column, role = places[answer[0]], answer[1]
        new: dict[str, Any] = (
            {} if roles.get(column) not in ROLES else {roles[column]: "none"}
        )
        ignored, kept = (
            [name for name in each or () if name != column]
            for each in (self.ignore, self.keep)
        )
        new |= {"ignore": [*ignored, column] if role == "ignored" else ignored}
        new |= {"keep": [*kept, column] if role == "feature" else kept}
        new |= {} if role in OTHER_ROLES else {role: column}
        new |= {"no_action": self.no_action and role not in ("arm", "action")}
        return replace(self, **new), ""

    def said_beside(self, before: LogOptions) -> list[str]:
        """Words of the command line that say what these options have beside others."""
        words = ["--no-action"] if self.no_action and not before.no_action else []
        for name in (*ROLES, "ignore", "keep"):
            new, old = (_listed(getattr(options, name)) for options in (self, before))
            option = f"--{name.replace('_', '-')}"
            words += [
                word for column in new if column not in old for word in (option, column)
            ]
        return words


def _assigned(option: str, words: str) -> tuple[str, str]:
    """Return (name, value) of NAME=VALUE; `option` is what messages call it."""
    name, _, value = words.rpartition("=")
    if not name.strip() or not value.strip():
        raise InputError(f"{option}: = must stand between two words, got {words!r}")
    return name.strip(), value.strip()


def _worths(words: Sequence[str] | None) -> dict[str, float] | None:
    """Return what the words of a reward are worth; None if nothing is said."""
    worths = dict[str, float]()
    for name, value in (
        _assigned("--reward-values WORD=NUMBER", word) for word in split_words(words)
    ):
        try:
            worths[name] = float(value)
        except ValueError:
            raise InputError(
                f"--reward-values: {value!r} of {name!r} is not a number"
            ) from None
    return worths or None


def _listed(value: Any) -> list[str]:
    return value if isinstance(value, list) else [value] if value else []


OTHER_ROLES = ("feature", "ignored")


@dataclass(frozen=True, kw_only=True)
class WindowOptions:
    """Into which windows a log is cut, and where it is read."""

    windows: int | None = None
    every: str | None = None
    engine: str = "local"
    address: str | None = None


def split_words(words: Sequence[str] | None) -> tuple[str, ...]:
    """Words of options that may be repeated and may hold commas."""
    return tuple(
        word.strip() for line in words or () for word in line.split(",") if word.strip()
    )


def fit(
    log: LogOptions,
    cut: WindowOptions,
    out: Path,
    policy: str = "auto-isd",
    edges: str | None = None,
    exploration: float | None = None,
    caution: str = "0",
    horizon: int | None = None,
    delta: float = 0.01,
    report: Path | None = None,
    value: bool = True,
    weight_missing: list[str] | None = None,
    ask: bool = False,
    force: bool = False,
    as_json: bool = False,
) -> None:
    """Learn from a log what is stable and what drifts: writes a model to serve and a report to read.

    The meaning of the columns is guessed from names and types, and shown; options correct it.
    """
    common.announce_compiling()
    page_path = out.with_suffix(".html") if report is None else report
    common.check_targets(out, page_path, force=force)
    if ask:
        agreed = log.ask()
        words = [word for word in sys.argv[1:] if word != "--ask"] + agreed.said_beside(
            log
        )
        console.print(
            f"the same without --ask:\n  invariant-bandits {shlex.join(words)}\n"
        )
        log = agreed
    began = time.perf_counter()
    opened, options = (
        log.open({"--out": out, "--report": page_path}),
        log.reading_options(),
    )
    how: dict[str, Any] = {
        "policy": policy,
        "exploration": exploration,
        "delta": delta,
    }
    with common.reading() as progress:
        from invariant_bandits.logs.arm_features import SharedSlopesWarning
        from invariant_bandits.model.fit import fit_logs

        how |= {"horizon": horizon, "edges": None if edges is None else _edges(edges)}
        how["caution"] = _caution(caution)
        with warnings.catch_warnings(
            action="ignore", category=SharedSlopesWarning
        ):  # the report says it first
            model = fit_logs(opened, progress=progress, **how, **vars(cut), **options)
    if value:
        with console.status("asking what the policy would have earned"):
            from invariant_bandits.evaluation.comparison import expected_value

            asked = {
                "exploration": exploration,
                "delta": delta,
                "features": options["features"],
                "weight_missing": split_words(weight_missing),
            }
            model = replace(model, value=expected_value(model, opened, **asked))
    model.save(out)
    from invariant_bandits.reports import model_page, values

    cost = f"{model.quality.rows:,} rows in {time.perf_counter() - began:.1f} s"
    console.print(
        f"{model_page.text(model, columns=False, width=common.width())}\n\nmodel: {out}\n{cost}"
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
        own = {} if model is None else {"model": str(model)}
        common.print_json(
            values() | own | {"report": None if page is None else str(report)}
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
    fit_fraction: float = 0.5,
    policy: list[str] | None = None,
    propensities: str = "logged",
    direct: bool = False,
    settings: str = "tuned",
    latest: int | None = None,
    windows: int = 8,
    policy_log: Path | None = None,
    weight_missing: list[str] | None = None,
    report: Path | None = None,
    jobs: int = common.PROCESSORS,
    seed: int = 0,
    force: bool = False,
    as_json: bool = False,
) -> None:
    """Would it have helped? Fits policies on the first part of a log and evaluates them on the rest, once.

    The log must have its offered actions. What cannot be known from it is refused, with the reason; if
    nothing can be known about any policy, the exit code is 3.
    """
    common.announce_compiling()
    if report is not None:
        common.check_target(report, "--report", "page", force=force, reads=[policy_log])
    opened, options = (
        log.open({} if report is None else {"--report": report}),
        log.reading_options(),
    )
    if policy_log is not None:
        _evaluate_policy_log(opened, policy_log, log, as_json)
        return
    with common.reading() as progress:
        from invariant_bandits.evaluation.logged import read_feedback

        began, shared = (
            time.perf_counter(),
            dict[str, Any](fit_fraction=fit_fraction, seed=seed),
        )
        options |= {
            "progress": lambda rows: progress(rows, None, time.perf_counter() - began)
        }
        options |= {"weight_missing": split_words(weight_missing)}
        read = read_feedback(
            opened, windows=windows, latest=latest, **shared, **options
        )
    with common.counting("playing policies", transient=True) as show:
        from invariant_bandits.evaluation.comparison import compare

        shared |= {
            "jobs": jobs,
            "progress": lambda done, total: show("plays", done, total),
        }
        shared |= {
            "windows": read.windows,
            "propensities": propensities,
            "with_direct": direct,
        }
        shared["settings"] = settings
        result = compare(read.feedback, policy or None, **shared)
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

        own = open_log(policy_log, log.overrides(), catalogue=log.catalogue)
        result = value_of_logged(
            own, opened, features=log.reading_options()["features"]
        )
    console.print(result.summary())
    if as_json:
        common.print_json(values.of_logged_policy(result))
    if not result.concludes:
        raise typer.Exit(common.NO_ANSWER)


def inspect(
    model: Path, report: Path | None = None, force: bool = False, as_json: bool = False
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
    model: Path,
    logs: list[str],
    cut: WindowOptions,
    out: Path | None = None,
    horizon: int | None = None,
    report: Path | None = None,
    strict: bool = False,
    keep_going: bool = False,
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
    common.check_targets(target, page_path, force=force, reads=[model])
    began = time.perf_counter()
    common.announce_compiling()
    from invariant_bandits.logs.files import find_files
    from invariant_bandits.model.model import Model
    from invariant_bandits.model.update import update_model
    from invariant_bandits.reports import model_page, values

    loaded = Model.load(model)
    reads = [path for source in logs for path in find_files(source)[1]]
    common.check_not_read(target, "--out", reads)
    common.check_not_read(page_path, "--report", reads)
    with common.reading() as progress:
        source = logs[0] if len(logs) == 1 else list(logs)
        options: dict[str, Any] = {
            "horizon": horizon,
            "strict": strict,
            "keep_going": keep_going,
        }
        changed = update_model(
            loaded, source, progress=progress, **vars(cut), **options
        )
    changed.model.save(target)
    cost = f"{changed.quality.rows:,} rows in {time.perf_counter() - began:.1f} s"
    said = model_page.text(changed.model, changed, width=common.width())
    console.print(f"{said}\n\nmodel: {target}\n{cost}")
    numbers = partial(values.of_model, changed.model, changed)
    _answer(
        page_path,
        lambda: model_page.report(changed.model, changed),
        as_json,
        numbers,
        target,
    )


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
    folder: Path, rounds: int | None = None, seed: int = 0, force: bool = False
) -> None:
    """Write sample logs with known truth: labelled banners, and features of actions in three layouts."""
    from invariant_bandits.simulation.sample_logs import TRUTH, write_samples

    for path, words in write_samples(folder, rounds, seed, replace=force).items():
        console.print(f"{path}: {words}")
    console.print("\n".join(["", "What is planted in them:", *TRUTH]))
