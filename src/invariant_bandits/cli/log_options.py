"""Options that say what a log is and how it is cut into windows, for the commands that read one."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from invariant_bandits.checks import InputError
from invariant_bandits.cli import common
from invariant_bandits.cli.common import plain_console as console
from invariant_bandits.logs.column_names import ROLES
from invariant_bandits.logs.schema import toml_overrides

MOST_ARMS_SHOWN = 20
"""Arms in the list that a command prints: about a screen with the columns."""


column = partial(Option, metavar="COLUMN")
"""An option that names one column."""
columns = partial(Option, metavar="COLUMNS")
"""An option that names columns, separated by commas."""


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """What a command knows of its log; every field is an option of the command line."""

    time: Annotated[
        str | None,
        column(
            help=(
                "Time of a round: timestamps, dates, ISO 8601 text or numbers. 'none': there is"
                " none (all columns)."
            )
        ),
    ] = None
    reward: Annotated[str | None, column(help="Reward of the chosen action.")] = None
    propensity: Annotated[
        str | None, column(help="Probability with which the action was chosen.")
    ] = None
    action: Annotated[str | None, column(help="Chosen action: index or label.")] = None
    arm: Annotated[
        str | None,
        column(
            help="Label of the chosen arm; all other features are those of the context."
        ),
    ] = None
    arms_offered: Annotated[
        str | None,
        column(help="Labels of all offered arms: lists, or text such as 'a|b|c'."),
    ] = None
    position: Annotated[str | None, column(help="Position at which it was shown.")] = (
        None
    )
    round: Annotated[
        str | None, column(help="Identifies rounds where each has one row per action.")
    ] = None
    chosen: Annotated[
        str | None, column(help="Marks the row of the chosen action.")
    ] = None
    offered: Annotated[
        str | None, column(help="Features of all offered actions, lists of lists.")
    ] = None
    rewards: Annotated[
        str | None, column(help="Rewards of all offered actions, lists of numbers.")
    ] = None
    ranking: Annotated[
        str | None,
        column(
            help=(
                "Identifies the requests of a ranking, several rows with a position each;"
                " 'none': it is none."
            )
        ),
    ] = None
    logs: Annotated[
        list[str],
        Argument(
            metavar="LOGS",
            help="Files, a folder, or a pattern in quotes; see docs/how-to/logs.md.",
        ),
    ]
    strict: Annotated[
        bool,
        Option(
            "--strict", help="Refuse a log with any bad row instead of counting them."
        ),
    ] = False
    keep_going: Annotated[
        bool,
        Option(
            "--keep-going", help="Go on although most rounds of the log cannot be used."
        ),
    ] = False
    centre: Annotated[
        bool,
        Option(
            "--centre",
            help="Subtract the mean of the round's offered actions from their features.",
        ),
    ] = False
    standardise: Annotated[
        str, Option(help="none, scale (unit standard deviation), or 'scale and shift'.")
    ] = "none"
    interactions: Annotated[
        list[str] | None,
        Option(
            metavar="A:B",
            help="Products of columns, separated by commas, or several times.",
        ),
    ] = None
    max_categories: Annotated[
        int,
        Option(
            min=1,
            help="Categories per column, the most frequent; others count as none.",
        ),
    ] = 100
    impute: Annotated[
        bool,
        Option(
            "--impute/--no-impute",
            help="Fill in missing values of features and mark them, or leave such rounds out.",
        ),
    ] = True
    schema: Annotated[
        Path | None,
        Option(
            metavar="FILE.toml", help="What the columns mean; options go before it."
        ),
    ] = None
    features: Annotated[
        list[str] | None,
        columns(
            help="Columns or patterns ('x*'), separated by commas, or several times."
        ),
    ] = None
    one_hot: Annotated[
        list[str] | None,
        columns(help="Features that are categories although they hold numbers."),
    ] = None
    arms: Annotated[
        list[str] | None,
        Option(
            metavar="LABELS",
            help="All arms, separated by commas, if every round offered them all.",
        ),
    ] = None
    catalogue: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="Of labelled arms, one row each: label, features, perhaps valid_from and valid_until.",
        ),
    ] = None
    arm_model: Annotated[
        str,
        Option(
            help=(
                "own coefficients per arm, shared slopes, pooled levels of thousands of arms,"
                " or auto: as the log allows it."
            )
        ),
    ] = "auto"
    full_information: Annotated[
        bool,
        Option(
            "--full-information",
            help="One row per offered action, and every row has its reward.",
        ),
    ] = False
    day_first: Annotated[
        bool | None,
        Option(
            "--day-first/--month-first",
            help="How dates such as 03/04/2024 begin, if no date of the log shows it.",
        ),
    ] = None
    repeated: Annotated[
        str | None,
        Option(
            help=(
                "Which reward counts if rows repeat a decision: last, first, max, sum, or error"
                " to refuse such a log."
            )
        ),
    ] = None
    no_action: Annotated[
        bool,
        Option(
            "--no-action",
            help="No column is the action: the features are those of the chosen action.",
        ),
    ] = False
    ignore: Annotated[
        list[str] | None,
        columns(
            help="Columns that are not used, separated by commas, or several times."
        ),
    ] = None
    keep: Annotated[
        list[str] | None,
        columns(help="Features to keep although they seem to give the reward away."),
    ] = None
    minimise: Annotated[
        bool | None,
        Option(
            "--minimise/--maximise",
            help=(
                "Whether less of the reward column is better, such as a cost; asked for if its"
                " name says so."
            ),
        ),
    ] = None
    reward_values: Annotated[
        list[str] | None,
        Option(
            metavar="WORD=NUMBER",
            help="What words of the reward are worth, such as up=1,down=0.",
        ),
    ] = None
    missing: Annotated[
        list[str] | None,
        Option(
            metavar="VALUES",
            help=(
                "Values that stand for a missing one, such as -999, or age=-1 for one column;"
                " use --missing=-999."
            ),
        ),
    ] = None
    rename: Annotated[
        list[str] | None,
        Option(
            metavar="OLD=NEW",
            help="Another name of a column; gaps in the new column are filled from the old one.",
        ),
    ] = None
    levels: Annotated[
        int | None,
        Option(
            min=2,
            max=100,
            metavar="K",
            help="Cut the numbers of the arm column into K levels of equally many rows: the arms.",
        ),
    ] = None

    def reading_options(self) -> dict[str, Any]:
        """What to make of the columns and of bad rows, as the functions of the library take it."""
        from invariant_bandits.features.maps import FeatureOptions

        features = FeatureOptions(
            split_words(self.interactions),
            standardise=self.standardise,
            centre=self.centre,
            max_categories=self.max_categories,
            impute=self.impute,
            arm_model=self.arm_model,
        )
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
        renamed = split_words(self.rename)
        more = {
            "full_information": self.full_information or None,
            "day_first": self.day_first,
            "repeated": self.repeated,
            "features": split_words(self.features),
            "categorical": split_words(self.one_hot),
            "ignore": split_words(self.ignore),
            "keep": split_words(self.keep),
            "minimise": self.minimise,
            "reward_values": _worths(self.reward_values),
            "missing": split_words(self.missing),
            "rename": dict(_assigned("--rename OLD=NEW", word) for word in renamed),
            "levels": self.levels,
        }
        if self.no_action:
            if known.get("arm") is not None or known.get("action") is not None:
                raise InputError(
                    "--no-action says that no column is the action; leave out --arm and --action"
                )
            known |= {"arm": None, "action": None}
        # Options that were not given are None or empty.
        for name, value in more.items():
            if value is False or value:
                known[name] = value
        return known

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
            shown = f"{opened.schema.describe()}\n"
            if opened.schema.labelled:
                shown += f"\n{opened.arms.describe(MOST_ARMS_SHOWN)}\n"
        console.print(shown)
        return opened

    def _opened(self, overrides: Mapping[str, Any]) -> Any:
        from invariant_bandits.logs.log import open_log

        source = self.logs if len(self.logs) > 1 else self.logs[0]
        labels = split_words(self.arms) or None
        return open_log(source, overrides, catalogue=self.catalogue, arms=labels)

    def ask(self) -> LogOptions:
        """Show every column with its role until the user agrees; return the options that say the same."""
        if not sys.stdin.isatty():
            raise InputError(
                "--ask needs a terminal; name columns by options instead, such as --arm COLUMN"
            )
        from invariant_bandits.logs.formats.registry import open_source

        options = self
        columns = open_source(list(self.logs)).arrow_schema.names
        wide = max(map(len, columns))
        mistake = ""
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
            return replace(self, no_action=True, arm=None, action=None), ""
        known = (*OTHER_ROLES, *ROLES)
        numbered = {str(number): name for number, name in enumerate(columns, 1)}
        if len(answer) != 2 or answer[0] not in numbered or answer[1] not in known:
            return self, "type a number of the list and a role, such as: 3 arm"
        column = numbered[answer[0]]
        role = answer[1]
        new: dict[str, Any] = {}
        if roles.get(column) in ROLES:
            new[roles[column]] = "none"
        if role in ROLES:
            new[role] = column
        for name, of_role in (("ignore", "ignored"), ("keep", "feature")):
            others = [other for other in getattr(self, name) or () if other != column]
            new[name] = [*others, column] if role == of_role else others
        new["no_action"] = self.no_action and role not in ("arm", "action")
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


def _worths(words: Sequence[str] | None) -> dict[str, float]:
    """Return what the words of a reward are worth."""
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
    return worths


def _listed(value: Any) -> list[str]:
    return value if isinstance(value, list) else [value] if value else []


OTHER_ROLES = ("feature", "ignored")


@dataclass(frozen=True, kw_only=True)
class WindowOptions:
    """Into which windows a log is cut, and where it is read."""

    windows: Annotated[
        int | None,
        Option(min=2, help="Windows of equally many rows; 8 if nothing is said."),
    ] = None
    every: Annotated[
        str | None,
        Option(
            help="Windows of this length: 30min, 12h, 7d, 2w, 1mo, 1y; or a number."
        ),
    ] = None
    engine: Annotated[
        str, Option(help="Where the log is read: local, dask or spark.")
    ] = "local"
    address: Annotated[
        str | None,
        Option(
            help="Of the cluster, tcp://… or spark://…; without it one is started here."
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class NewWindowOptions(WindowOptions):
    """Into which windows the new rounds of a model are cut, and where they are read."""

    windows: Annotated[
        int | None,
        Option(min=1, help="Into how many windows the new rounds are cut."),
    ] = None
    every: Annotated[
        str | None,
        Option(
            help="Length of the new windows, such as 7d; as the model's if not given."
        ),
    ] = None


def split_words(words: Sequence[str] | None) -> tuple[str, ...]:
    """Words of options that may be repeated and may hold commas."""
    return tuple(
        word.strip() for line in words or () for word in line.split(",") if word.strip()
    )
