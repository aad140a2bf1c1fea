"""Log: an opened log and its first pass, shared by all questions that are asked of it."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from os import PathLike
from typing import Any

from invariant_bandits.checks import InputError
from invariant_bandits.logs.arms import ArmTable, Catalogue, arm_table, read_catalogue
from invariant_bandits.logs.casting import with_timestamps
from invariant_bandits.logs.decode import is_text, is_time
from invariant_bandits.logs.external_sort import with_whole_rounds
from invariant_bandits.logs.formats.registry import open_source
from invariant_bandits.logs.schema import Schema, SchemaLike, checked_overrides, infer_schema, toml_overrides
from invariant_bandits.logs.sources import Source, first_rows, own_schema
from invariant_bandits.logs.survey import Survey, survey


class Log:
    """An opened log: its source, what its columns mean, its first rows, and what a first pass over it found.

    Every question about a log takes a `Log` where it takes a source; files are then opened once, their first
    rows read once, and the first pass made once. Make it with `open_log`.

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
        self,
        source: Source,
        schema: SchemaLike = None,
        catalogue: Any = None,
        arms: Sequence[str] | None = None,
    ) -> None:
        self.source = source
        self.schema = self.resolved(schema)
        self._see_timestamps()
        self._survey: Survey | None = None
        self.notes: tuple[str, ...] = ()
        self._catalogue, self._arms = catalogue, arms
        if not self.schema.labelled and (catalogue is not None or arms is not None):
            raise InputError(
                "schema: arm is missing; a catalogue and arms need the column of their labels (--arm)"
            )

    def resolved(self, schema: SchemaLike) -> Schema:
        """What `schema` says about the columns of this log, the rest inferred."""
        if isinstance(schema, Schema):
            return schema.resolved(self.source.arrow_schema)
        overrides = toml_overrides(schema) if isinstance(schema, str | PathLike) else dict(schema or {})
        own = own_schema(self.source)
        if own is None:
            return infer_schema(self.source.arrow_schema, self.sample, **overrides)
        checked_overrides(overrides, "schema")
        names = self.source.arrow_schema.names
        if own.labelled and overrides.get("arm", own.arm) is None and "features" not in overrides:
            free = set(names) - set(own.roles().values())
            overrides["features"] = [name for name in names if name in free and not name.startswith("__")]
        changed = replace(own, **overrides).resolved(self.source.arrow_schema)
        if own.labelled and changed.arm in (own.arm, None) and not set(changed.features) <= set(own.features):
            return replace(changed, arm=None, action=own.arm)  # features of arms: the actions are rows
        return changed

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
        return first_rows(self.source)

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
        return read_catalogue(
            self._catalogue, arm=str(self.schema.arm), used=used, dates=self.times_are_dates
        )

    @cached_property
    def arms(self) -> ArmTable:
        """The arms, and when each of them was offered; InputError if the log has no labels."""
        if not self.schema.labelled:
            raise InputError("schema: arm is missing; the log has no column with labels of arms")
        return arm_table(self.survey().arm_uses, self.schema, self.catalogue, self._arms)

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
        self._survey = survey(
            self.source, self.schema, dates=dates, times=times, rows=rows, known=self._survey
        )
        if self._survey.split_rounds is None:
            return self._survey
        self.source = with_whole_rounds(self.source, self.schema, self._survey.split_rounds)
        self.notes += (
            f"the rows of a round do not stand together; they were put together by {self.schema.round!r}",
        )
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
        What the columns mean: all of it, the fields that are known, or nothing. A `Log` keeps its own; for
        one, `schema` must be None or the same.
    catalogue : path, table or None
        Of a log with labels of arms, one row per arm: a column of labels, features, and perhaps valid_from
        and valid_until.
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
        raise InputError("catalogue and arms belong to opening a log; this one is open already")
    if schema is not None and source.resolved(schema) != source.schema:
        raise InputError(
            "schema must be None or the same for a log that is open; to change it, open the source anew"
        )
    return source


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
