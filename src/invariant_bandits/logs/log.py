"""Log: a log that has been opened and looked at once, whatever is asked of it afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from os import PathLike
from typing import Any

from invariant_bandits.checks import InputError
from invariant_bandits.logs.arms import Arm, ArmTable, Catalogue, is_active, ordered, read_catalogue
from invariant_bandits.logs.casting import with_timestamps
from invariant_bandits.logs.decode import is_text, is_time
from invariant_bandits.logs.external_sort import with_whole_rounds
from invariant_bandits.logs.formats.registry import open_source
from invariant_bandits.logs.schema import Schema, SchemaLike, checked_overrides, infer_schema, listed, toml_overrides
from invariant_bandits.logs.sources import Source, own_schema, sample_of
from invariant_bandits.logs.survey import Survey, by_label, span_of, survey


def arm_table(
    uses: tuple[Arm, ...], schema: Schema, catalogue: Catalogue | None, told: Sequence[str] | None
) -> ArmTable:
    """The arms of a log, from the first of these that is there: lists, catalogue, what was told, the log.

    Parameters
    ----------
    uses : tuple of Arm
        First and last use and plays of every label in the log.
    schema : Schema
        Whether the log says itself what was offered.
    catalogue : Catalogue, optional
        Arms with validity; labels of the log that it lacks are known from the log.
    told : sequence of str, optional
        Labels of the arms that were offered in every round.
    """
    used = by_label(uses)
    begin, end = span_of(uses)
    if schema.arms_offered is not None or schema.one_row_per_action:
        return ArmTable(tuple(replace(arm, active=is_active(arm, begin, end)) for arm in uses), "lists")
    if catalogue is not None:
        valid = dict(zip(catalogue.labels, zip(catalogue.valid_from, catalogue.valid_until, strict=True), strict=True))
        names = ordered([*catalogue.labels, *(label for label in used if label not in valid)])
        return ArmTable(tuple(_catalogued(used, valid, label, begin, end) for label in names), "catalogue")
    if told is not None:
        return ArmTable(tuple(used.get(label, Arm(label)) for label in _checked(told, used)), "told")
    _require_overlap(uses, schema)
    return ArmTable(tuple(replace(arm, active=is_active(arm, begin, end)) for arm in uses), "log")


def _require_overlap(uses: tuple[Arm, ...], schema: Schema) -> None:
    """Raise InputError if no two arms were in use at the same time: then the log cannot say what was offered."""
    in_turn = sorted(uses, key=lambda arm: (arm.first, arm.last))
    overlap = any(later.first <= earlier.last for earlier, later in pairwise(in_turn))
    if len(uses) > 1 and not overlap:
        where = "at the same time" if schema.time is not None else "in the same stretch of rows (is a time missing?)"
        raise InputError(
            f"column {schema.arm!r}: no two arms were in use {where}, so the log does not say what was offered; tell:"
            " arms (--arms), a catalogue (--catalogue), a column of lists (--arms-offered), or the time (--time)"
        )


def _catalogued(used: Mapping[str, Arm], valid: Mapping[str, tuple[Any, Any]], label: str, begin: Any, end: Any) -> Arm:
    arm = used.get(label, Arm(label))
    if label not in valid:  # as if the log were all that is known
        bounded = replace(arm, valid_from=arm.first, valid_until=arm.last)
        return replace(bounded, active=is_active(arm, begin, end))
    bounded = replace(arm, valid_from=valid[label][0], valid_until=valid[label][1])
    return replace(bounded, active=bounded.valid_until is None or bool(bounded.valid_until >= end))


def _checked(told: Sequence[str], used: Mapping[str, Arm]) -> list[str]:
    if isinstance(told, str):
        raise InputError(f"arms must be a list of labels, got the text {told!r}")
    labels = [str(label) for label in told]
    if not set(labels) & set(used):
        raise InputError(f"arms: none of {listed(labels)} is a label of the log, which has {listed(list(used))}")
    return labels


class Log:
    """An opened log: its source, what its columns mean, its first rows, and what a first pass over it found.

    Every question about a log takes a `Log` where it takes a source; files are then opened once, their first rows read
    once, and the first pass made once. Make it with `open_log`.

    Parameters
    ----------
    source : Source
        Where the rows come from.
    schema : Schema, mapping, path of a TOML file or None
        What the columns mean; what is not said is inferred.
    catalogue : path, table or None
        Of a log with labels of arms: their features, and when each could be chosen.
    arms : sequence of str, optional
        Of such a log: the labels of all arms, each of which was offered in every round.

    Attributes
    ----------
    schema : Schema
        All of it, patterns replaced by columns.
    notes : tuple of str
        What was done to the log.
    """

    def __init__(
        self, source: Source, schema: SchemaLike = None, catalogue: Any = None, arms: Sequence[str] | None = None
    ) -> None:
        self.source = source
        self.schema = self.resolved(schema)
        self._see_timestamps()
        self._survey: Survey | None = None
        self.notes: tuple[str, ...] = ()
        self._catalogue, self._told_arms = catalogue, arms
        if not self.schema.labelled and (catalogue is not None or arms is not None):
            raise InputError("schema: arm is missing; a catalogue and arms need the column of their labels (--arm)")

    def resolved(self, schema: SchemaLike) -> Schema:
        """What `schema` says about the columns of this log, the rest inferred."""
        if isinstance(schema, Schema):
            return schema.resolved(self.source.arrow_schema)
        told = toml_overrides(schema) if isinstance(schema, str | PathLike) else dict(schema or {})
        own = own_schema(self.source)
        if own is not None:
            checked_overrides(told, "schema")
            return self._over(own, told)
        return infer_schema(self.source.arrow_schema, self.sample, **told)

    def _over(self, own: Schema, told: dict[str, Any]) -> Schema:
        """The schema of the source itself with what was told instead; who asks for features of arms wants no arms."""
        names = self.source.arrow_schema.names
        if own.labelled and "arm" in told and told["arm"] is None and "features" not in told:
            free = set(names) - set(own.roles().values())
            told = {"features": [name for name in names if name in free and not name.startswith("__")], **told}
        schema = replace(own, **told).resolved(self.source.arrow_schema)
        if own.labelled and schema.arm in (own.arm, None) and not set(schema.features) <= set(own.features):
            return replace(schema, arm=None, action=own.arm)
        return schema

    def _see_timestamps(self) -> None:
        """Have times since 1970, and dates with the day or the month first, as timestamps from here on."""
        name = self.schema.time
        if name is None or is_time(self.source.arrow_schema.field(name).type):
            return
        dated = with_timestamps(self.source, self.schema, self.sample)
        if dated is not self.source:
            self.source = dated
            del self.sample

    @cached_property
    def sample(self) -> Any:
        """The first rows, an Arrow table."""
        return sample_of(self.source)

    @cached_property
    def times_are_dates(self) -> bool:
        """Whether the times are dates, not numbers."""
        if self.schema.time is None:
            return False
        kind = self.source.arrow_schema.field(self.schema.time).type
        if not is_text(kind):
            return is_time(kind)
        first = next(iter(self.sample.column(self.schema.time).drop_null().to_pylist()), "")
        return not _is_number(first)

    @cached_property
    def catalogue(self) -> Catalogue | None:
        """What is known about the arms beside the log."""
        if self._catalogue is None:
            return None
        used = [arm.label for arm in self.survey().arm_uses]
        return read_catalogue(self._catalogue, arm=str(self.schema.arm), used=used, dates=self.times_are_dates)

    @cached_property
    def arms(self) -> ArmTable:
        """The arms, and when each of them was offered; InputError if the log has no labels."""
        if not self.schema.labelled:
            raise InputError("schema: arm is missing; the log has no column with labels of arms")
        return arm_table(self.survey().arm_uses, self.schema, self.catalogue, self._told_arms)

    def survey(self, *, times: bool = False, rows: bool = False) -> Survey:
        """What a first pass found; only what is asked for and not known yet is read.

        Parameters
        ----------
        times : bool
            Whether the earliest and the latest time are needed.
        rows : bool
            Whether the number of rows is needed.
        """
        dates = (times or self.schema.labelled) and self.times_are_dates
        self._survey = survey(self.source, self.schema, dates=dates, times=times, rows=rows, known=self._survey)
        if self._survey.torn is None:
            return self._survey
        self.source = with_whole_rounds(self.source, self.schema, self._survey.torn)
        self.notes += (f"the rows of a round do not stand together; they were put together by {self.schema.round!r}",)
        self._survey = None
        return self.survey(times=times, rows=rows)

    def with_source(self, source: Source) -> Log:
        """This log with its rows in another order."""
        other = copy(self)
        other.source, other._survey = source, None
        other.__dict__.pop("arms", None)
        return other

    def __repr__(self) -> str:
        tasks = len(self.source.tasks)
        return f"Log({type(self.source).__name__} in {tasks} part{'s' if tasks > 1 else ''}, {self.schema!r})"


def open_log(
    source: Any, schema: SchemaLike = None, *, catalogue: Any = None, arms: Sequence[str] | None = None
) -> Log:
    """Open a log, to ask several things of it without opening and surveying it each time.

    Parameters
    ----------
    source : path, folder, pattern, list of these, Arrow table, frame, obp dictionary or Log
        Where the rows come from; see `open_source`.
    schema : Schema, mapping, path of a TOML file or None
        What the columns mean: all of it, the fields that are known, or nothing. A `Log` keeps its own; for one,
        `schema` must be None or the same.
    catalogue : path, table or None
        Of a log with labels of arms, one row per arm: a column of labels, features, and perhaps valid_from and
        valid_until.
    arms : sequence of str, optional
        Of such a log: the labels of all arms, each of which was offered in every round.

    >>> import pyarrow as pa, invariant_bandits as ib
    >>> log = ib.open_log(pa.table({"reward": [1.0, 0.0, 1.0], "price": [2.0, 3.0, 7.0]}))
    >>> log.schema
    Schema(reward='reward', features=('price',), ...)
    >>> ib.read_moments(log, windows=1).moments.rounds
    3
    """
    if not isinstance(source, Log):
        return Log(open_source(source), schema, catalogue, arms)
    if catalogue is not None or arms is not None:
        raise InputError("catalogue and arms are told when a log is opened; this one is open already")
    if schema is not None and source.resolved(schema) != source.schema:
        raise InputError("schema must be None or the same for a log that is open; to change it, open the source anew")
    return source


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
