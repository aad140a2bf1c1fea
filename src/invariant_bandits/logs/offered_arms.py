"""What was offered in the rounds of a labelled log: lists, a catalogue, what was told, or the log itself say it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from invariant_bandits.checks import InputError
from invariant_bandits.logs.arm_uses import by_label, span_of
from invariant_bandits.logs.arms import Arm, ArmTable, is_active, ordered
from invariant_bandits.logs.catalogue import Catalogue
from invariant_bandits.logs.schema import Schema, listed


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
