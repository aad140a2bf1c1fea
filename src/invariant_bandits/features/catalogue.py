"""Features of arms: a catalogue's, and columns of the context that belong to one arm each."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np

from invariant_bandits.checks import Array, InputError, finite_array, format_names
from invariant_bandits.storage import ArraySpec

LEAST_SCALE = 1e-150
"""Of a unit that features can be divided by."""
EVERY_ARM = "all arms"


class Places(dict[str, int]):
    """Places of labels among the known ones; InputError names these where one is not known."""

    def __init__(self, labels: Sequence[str]) -> None:
        super().__init__((label, place) for place, label in enumerate(labels))

    def __missing__(self, label: str) -> int:
        raise InputError(
            f"arm {label!r} is not known; the arms are {format_names(list(self))}"
        )


@dataclass(frozen=True, eq=False)
class ArmTraits:
    """The k features that a catalogue has of A arms.

    Parameters
    ----------
    names : tuple of str
        Their names.
    values : array, shape (A, k)
        The features, mean 0 and standard deviation 1 over the arms.
    shift, scale : arrays, shape (k,)
        What was subtracted from them, and what they were then divided by.
    references : tuple of str
        Categories without a feature, named as features are: arms have them if they have no other one.
    """

    names: tuple[str, ...] = ()
    values: Annotated[Array, ArraySpec(("A", "k"))] = field(
        default_factory=lambda: np.zeros((0, 0))
    )
    shift: Annotated[Array, ArraySpec(("k",))] = field(
        default_factory=lambda: np.zeros(0)
    )
    scale: Annotated[Array, ArraySpec(("k",), least=LEAST_SCALE)] = field(
        default_factory=lambda: np.ones(0)
    )
    references: tuple[str, ...] = ()

    def terms(self) -> tuple[tuple[str, ...], Array]:
        """Return names (g,) of what arms may have in common, and weights (g, 1 + k) on 1 and the features.

        These are all arms, every number, and every category, as an indicator.
        """
        unit = np.eye(1 + len(self.names))
        rows = list(unit)
        for j, name in enumerate(self.names):
            if "=" in name:
                rows[1 + j] = self.shift[j] * unit[0] + self.scale[j] * unit[1 + j]
        for reference in self.references:
            others = [
                rows[1 + j]
                for j, name in enumerate(self.names)
                if is_category_of(name, reference)
            ]
            rows.append(unit[0] - np.sum(others, axis=0))
        return (EVERY_ARM, *self.names, *self.references), np.array(rows)

    def with_arm(self, features: Mapping[str, Any] | None) -> ArmTraits:
        """Return these features with those of one more arm, from values by the columns of the catalogue.

        A column without a value counts as the mean.
        """
        given = features or {}
        if features is not None and not self.names:
            raise InputError(
                "features: the arms of this log have none, it was read without a catalogue"
            )
        columns = {name.partition("=")[0] for name in self.names}
        unknown = format_names([name for name in given if name not in columns])
        if unknown:
            known = format_names(sorted(columns))
            raise InputError(
                f"features: {unknown} are not of the catalogue, which has {known}"
            )
        raw = self.shift.copy()
        for index, name in enumerate(self.names):
            column, _, level = name.partition("=")
            if column in given and level:
                raw[index] = str(given[column]) == level
            elif column in given:
                raw[index] = finite_array(f"features: {column}", given[column], ())
        standard = (raw - self.shift) / self.scale
        return replace(self, values=np.vstack([self.values, standard]))


@dataclass(frozen=True, eq=False)
class Catalogue:
    """Features of A arms, and when each of them could be chosen.

    Parameters
    ----------
    labels : tuple of str
        The arms.
    traits : ArmTraits
        Their features.
    valid_from, valid_until : sequences of A times or None
        When each could be chosen; None is not bounded.
    """

    labels: tuple[str, ...]
    traits: ArmTraits
    valid_from: tuple[Any, ...]
    valid_until: tuple[Any, ...]

    def features_of(self, wanted: Sequence[str]) -> ArmTraits:
        """Return features of some arms; zeros, the mean, for those that are not in the catalogue."""
        known = dict(zip(self.labels, self.traits.values, strict=True))
        mean = np.zeros(len(self.traits.names))
        values = np.array([known.get(label, mean) for label in wanted])
        return replace(self.traits, values=values)


def is_category_of(name: str, other: str) -> bool:
    """Return whether two features, such as topic=sport and topic=science, are categories of one column."""
    column, equals, _ = name.partition("=")
    return bool(equals) and other.startswith(f"{column}=")


def matched_features(
    names: Sequence[str], labels: Sequence[str], arm: str
) -> dict[str, tuple[str, ...]]:
    """Return groups of features that belong to one arm each, by the name of the group.

    Their names contain that of the arm's column and end in exactly the labels.

    >>> matched_features(["age", "item_affinity_0", "item_affinity_1"], ["0", "1"], "item_id")
    {'item_affinity': ('item_affinity_0', 'item_affinity_1')}
    """
    stem = arm.lower().removesuffix("id").strip("_-. ")
    groups: dict[str, dict[str, str]] = {}
    for name in names:
        prefix, label = _split_label(name, labels)
        if stem and stem in prefix.lower():
            groups.setdefault(prefix, {})[label] = name
    if len(labels) < 2:
        return {}
    whole = {
        prefix: group for prefix, group in groups.items() if group.keys() == set(labels)
    }
    return {
        prefix.rstrip("_-. "): tuple(group[label] for label in labels)
        for prefix, group in whole.items()
    }


def _split_label(name: str, labels: Collection[str]) -> tuple[str, str]:
    """(all before the label that a name ends in, the label), or ("", "")."""
    for mark in "_-. ":
        prefix, _, end = name.rpartition(mark)
        if prefix and end in labels:
            return prefix + mark, end
    fitting = [
        label
        for label in labels
        if name.endswith(tuple(f"{mark}{label}" for mark in "_-. "))
    ]
    label = max(fitting, key=len, default="")
    return (name.removesuffix(label), label) if label else ("", "")
