"""Options that every command with a log has: which files, what their columns mean, what becomes of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from invariant_bandits.cli.common import words_on_stderr
from invariant_bandits.cli.compiling import say_when_compiling

if TYPE_CHECKING:
    from invariant_bandits.logs.features import FeatureOptions

COLUMN_ROLES = (
    *("time", "reward", "action", "arm", "arms_offered", "propensity", "position", "round", "chosen", "offered"),
    "rewards",
)


def _column(option: str, words: str) -> Any:
    return typer.Option(option, metavar="COLUMN", help=words)


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """What a command was told about its log; every field is an option of the command line."""

    logs: Annotated[
        list[str], typer.Argument(metavar="LOGS", help="Files, a folder, or a pattern in quotes; see docs/logs.md.")
    ]
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse a log with any bad row instead of counting them.")
    ] = False
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Go on although most rounds of the log cannot be used.")
    ] = False
    centre: Annotated[
        bool, typer.Option("--centre", help="Subtract the mean of the round's offered actions from their features.")
    ] = False
    standardise: Annotated[
        str, typer.Option("--standardise", help="none, scale (unit standard deviation), or 'scale and shift'.")
    ] = "none"
    interactions: Annotated[
        list[str] | None,
        typer.Option(
            "--interactions", metavar="A:B", help="Products of columns, separated by commas, or several times."
        ),
    ] = None
    max_categories: Annotated[
        int,
        typer.Option("--max-categories", min=1, help="Categories per column, the most frequent; others count as none."),
    ] = 50
    impute: Annotated[
        bool,
        typer.Option(
            "--impute/--no-impute", help="Fill in missing values of features and mark them, or leave such rounds out."
        ),
    ] = True
    schema: Annotated[
        Path | None, typer.Option("--schema", metavar="FILE.toml", help="What the columns mean; options go before it.")
    ] = None
    time: Annotated[
        str | None,
        _column(
            "--time",
            "Time of a round: timestamps, dates, ISO 8601 text or numbers. 'none': there is none (all columns).",
        ),
    ] = None
    reward: Annotated[str | None, _column("--reward", "Reward of the chosen action.")] = None
    features: Annotated[
        list[str] | None,
        typer.Option(
            "--features", metavar="COLUMNS", help="Columns or patterns ('x*'), separated by commas, or several times."
        ),
    ] = None
    one_hot: Annotated[
        list[str] | None,
        typer.Option("--one-hot", metavar="COLUMNS", help="Features that are categories although they hold numbers."),
    ] = None
    action: Annotated[str | None, _column("--action", "Chosen action: index or label.")] = None
    arm: Annotated[
        str | None, _column("--arm", "Label of the chosen arm; all other features are those of the context.")
    ] = None
    arms_offered: Annotated[
        str | None, _column("--arms-offered", "Labels of all offered arms: lists, or text such as 'a|b|c'.")
    ] = None
    arms: Annotated[
        list[str] | None,
        typer.Option(
            "--arms", metavar="LABELS", help="All arms, separated by commas, if every round offered them all."
        ),
    ] = None
    catalogue: Annotated[
        Path | None,
        typer.Option(
            "--catalogue",
            metavar="FILE",
            help="Of labelled arms, one row each: label, features, perhaps valid_from and valid_until.",
        ),
    ] = None
    arm_model: Annotated[
        str,
        typer.Option(
            "--arm-model", help="own coefficients per arm, shared slopes, or auto: own as long as the log allows it."
        ),
    ] = "auto"
    propensity: Annotated[str | None, _column("--propensity", "Probability with which the action was chosen.")] = None
    position: Annotated[str | None, _column("--position", "Position at which it was shown.")] = None
    round: Annotated[str | None, _column("--round", "Tells rounds apart where each has one row per action.")] = None
    chosen: Annotated[str | None, _column("--chosen", "Marks the row of the chosen action.")] = None
    offered: Annotated[str | None, _column("--offered", "Features of all offered actions, lists of lists.")] = None
    rewards: Annotated[str | None, _column("--rewards", "Rewards of all offered actions, lists of numbers.")] = None
    full_information: Annotated[
        bool, typer.Option("--full-information", help="One row per offered action, and every row has its reward.")
    ] = False

    day_first: Annotated[
        bool | None,
        typer.Option(
            "--day-first/--month-first", help="How dates such as 03/04/2024 begin, if no date of the log tells."
        ),
    ] = None

    @property
    def source(self) -> str | list[str]:
        """The files as the library takes them."""
        return self.logs[0] if len(self.logs) == 1 else list(self.logs)

    def feature_options(self) -> FeatureOptions:
        """What to make of the columns."""
        from invariant_bandits.logs.features import FeatureOptions

        return FeatureOptions(
            split_words(self.interactions),
            self.standardise,
            self.centre,
            self.max_categories,
            impute=self.impute,
            arm_model=self.arm_model,
        )

    def overrides(self) -> dict[str, Any]:
        """Fields of a Schema that the file or options give; 'none' says that the log has no such column."""
        from invariant_bandits.logs.schema import toml_overrides

        told = {} if self.schema is None else toml_overrides(self.schema)
        for role in COLUMN_ROLES:
            column = getattr(self, role)
            if column is not None:
                told[role] = None if column == "none" else column
        if self.full_information:
            told["full_information"] = True
        if self.day_first is not None:
            told["day_first"] = self.day_first
        if self.features:
            told["features"] = split_words(self.features)
        if self.one_hot:
            told["categorical"] = split_words(self.one_hot)
        return told


def split_words(given: Sequence[str] | None) -> tuple[str, ...]:
    """Words of options that may be repeated and may hold commas."""
    return tuple(word.strip() for one in given or () for word in one.split(",") if word.strip())


def with_log_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the fields of LogOptions as parameters of its own, handed over together as its `log`."""
    shared, hints = fields(LogOptions), get_type_hints(LogOptions, include_extras=True)
    own = [one for one in inspect.signature(command, eval_str=True).parameters.values() if one.name != "log"]

    @wraps(command)
    def whole(**given: Any) -> None:
        say_when_compiling()
        log = LogOptions(**{one.name: given.pop(one.name) for one in shared})
        with words_on_stderr(bool(given.get("as_json"))):
            command(log=log, **given)

    described = [
        inspect.Parameter(
            one.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if one.name == "logs" else one.default,
            annotation=hints[one.name],
        )
        for one in shared
    ]
    parameters = [described[0], *(one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own), *described[1:]]
    whole.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    whole.__annotations__ = {one.name: one.annotation for one in parameters}
    return whole
