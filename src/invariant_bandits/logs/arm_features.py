"""ArmFeatures: context and label → feature vector φ(x, a), the same for logs and when serving.

The context is z = [1, x], x standardised on the log. "own": φ(x, a) = e_a ⊗ z, every arm has coefficients of
its own, and no arm is a reference. "shared": φ(x, a) = [e_a, x, f(a) ⊗ x], a level per arm, slopes shared,
f(a) of a catalogue. Either way every feature is one entry of z times a number that depends on the arm alone,
so moments of φ follow exactly from moments of z, arm by arm.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any

import numpy as np

from invariant_bandits.checks import Array, InputError, finite_array, one_of
from invariant_bandits.logs.arms import Catalogue, place_of
from invariant_bandits.logs.features import (
    LEAST_SCALE,
    Column,
    Dropped,
    FeatureMap,
    FeatureOptions,
    collinear_features,
)
from invariant_bandits.logs.schema import format_names
from invariant_bandits.moments.windowed import WindowedMoments
from invariant_bandits.storage import ArraySpec

CODINGS = ("own", "shared")
MOST_COEFFICIENTS = 150
"""More coefficients than these are shared between the arms, unless the user says otherwise."""
ROUNDS_PER_COEFFICIENT = 10
"""Fewer rounds than these per coefficient, and slopes are shared between the arms."""
TIMES = " × "
ROUNDING = 1e-9
"""Relative error of sums of powers of rewards that are 0 or 1."""


@dataclass(frozen=True, eq=False)
class ArmFeatures:
    """Context columns and labels → feature vectors φ(x, a) of length p.

    Parameters
    ----------
    context : FeatureMap
        Raw columns → x (q,), standardised on the log.
    labels : tuple of str
        The A arms.
    coding : str
        "own": p = A·d, arm after arm, level first. "shared": levels, then slopes, then products with the
        catalogue.
    catalogue : array, shape (A, k), or None
        Features of the arms, mean 0 and standard deviation 1.
    catalogue_names : tuple of str
        Their names.
    catalogue_shift, catalogue_scale : arrays, shape (k,), or None
        How they were standardised.
    crossed : int
        How many of them, the first, have products with the slopes; only in the "shared" coding.
    matched : mapping of str to tuple of str
        Groups of context features that belong to one arm each, in the order of the labels: an arm has its own
        only.

    >>> features = ArmFeatures(FeatureMap((Column("hour"),)), ("banner_A", "banner_B"))
    >>> features.names
    ('banner_A', 'banner_A × hour', 'banner_B', 'banner_B × hour')
    >>> features.rows({"hour": 9.0}, ["banner_B", "banner_A"])
    array([[0., 0., 1., 9.],
           [1., 9., 0., 0.]])
    """

    context: FeatureMap
    labels: tuple[str, ...]
    coding: str = "own"
    catalogue: Annotated[Array, ArraySpec(("A", "k"))] | None = None
    catalogue_names: tuple[str, ...] = ()
    matched: Mapping[str, tuple[str, ...]] | None = None
    catalogue_shift: Annotated[Array, ArraySpec(("k",))] | None = None
    catalogue_scale: Annotated[Array, ArraySpec(("k",), least=LEAST_SCALE)] | None = None
    crossed: int = 0

    def __post_init__(self) -> None:
        one_of("coding", self.coding, CODINGS)
        if self.catalogue is not None:
            finite_array("catalogue", self.catalogue, (len(self.labels), len(self.catalogue_names)))

    # -- what they are --

    @property
    def columns(self) -> tuple[Column, ...]:
        """Raw columns of the context."""
        return self.context.columns

    @cached_property
    def context_names(self) -> tuple[str, ...]:
        """Names of an arm's own coefficients (d,): the level, slopes of the context, of what belongs to
        the arm.
        """
        return ("1", *(self.context.names[index - 1] for index in self._plain), *(self.matched or {}))

    @property
    def width(self) -> int:
        """Length d of an arm's context z, the leading 1 included."""
        return len(self.context_names)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the features (p,)."""
        slopes = self.context_names[1:]
        if self.coding == "own":
            return tuple(
                n for label in self.labels for n in (label, *(f"{label}{TIMES}{slope}" for slope in slopes))
            )
        products = (
            f"{name}{TIMES}{slope}" for name in self.catalogue_names[: self.crossed] for slope in slopes
        )
        return (*self.labels, *slopes, *products)

    @property
    def dim(self) -> int:
        """Number of features p."""
        return len(self.names)

    @cached_property
    def _plain(self) -> list[int]:
        """Entries of the whole context [1, x], the 1 aside, that belong to no arm."""
        owned = {name for names in (self.matched or {}).values() for name in names}
        return [index for index, name in enumerate(self.context.names, start=1) if name not in owned]

    @cached_property
    def own_entries(self) -> Array:
        """Which entries of the whole context [1, x] make up z of each arm (A, d)."""
        place = {name: index for index, name in enumerate(self.context.names, start=1)}
        of_arms = [
            [place[names[arm]] for names in (self.matched or {}).values()] for arm in range(len(self.labels))
        ]
        return np.array([[0, *self._plain, *own] for own in of_arms], dtype=np.int64)

    @cached_property
    def entries(self) -> Array:
        """Which entry of the whole context [1, x] each feature is made of, by arm (A, p)."""
        own = self.own_entries
        if self.coding == "own":
            return np.tile(own, (1, len(self.labels)))
        levels = np.zeros((len(own), len(own)), dtype=np.int64)
        return np.hstack([levels, np.tile(own[:, 1:], (1, 1 + self.crossed))])

    @cached_property
    def factors(self) -> Array:
        """What each feature multiplies that entry by, by arm (A, p)."""
        arms = np.eye(len(self.labels))
        if self.coding == "own":
            return np.repeat(arms, self.width, axis=1)
        slopes = np.ones((len(arms), self.width - 1))
        products = [slopes * np.asarray(self.catalogue)[:, [j]] for j in range(self.crossed)]
        return np.hstack([arms, slopes, *products])

    # -- applying --

    @property
    def encoded_names(self) -> tuple[str, ...]:
        """Names of the entries of an encoded context: the level, then what the context map encodes to."""
        return ("1", *self.context.encoded_names)

    @property
    def centre(self) -> bool:
        """Whether the context map subtracts the mean of a round."""
        return self.context.centre

    def encode(self, columns: Mapping[str, Any], counts: Any = None) -> Array:
        """Return encoded contexts [1, encoded columns] (rows, 1 + encoded features) of raw columns."""
        return with_level(self.context.encode(columns, counts))

    def standardise(self, encoded: Array) -> Array:
        """Return whole contexts [1, x] (n, 1 + q) of encoded ones."""
        return with_level(self.context.standardise(encoded[:, 1:])) if self.columns else encoded

    def standardise_moments(self, cells: WindowedMoments) -> WindowedMoments:
        """Return moments of whole contexts [1, x] from moments of encoded ones."""
        kept, shift, scale = self.context.standardisation()
        return cells.rescaled(np.append(0, kept + 1), np.append(0.0, shift), np.append(1.0, scale))

    def contexts(self, columns: Mapping[str, Any], rows: int | None = None) -> Array:
        """Return whole contexts [1, x] (rows, 1 + q) of raw columns with one value per row."""
        return self.standardise(self.encode(columns)) if self.columns else np.ones((rows or 1, 1))

    def own_contexts(self, contexts: Array, codes: Array) -> Array:
        """z (n, d) of arms `codes` (n,) from whole contexts (n, 1 + q)."""
        if not self.matched:
            return contexts
        return np.asarray(np.take_along_axis(contexts, self.own_entries[codes], axis=1))

    def cross(self, contexts: Array, codes: Array | None) -> Array:
        """Return φ (n, p) of arms `codes` (n,) in whole contexts (n, 1 + q)."""
        assert codes is not None
        n, arms, z = len(codes), len(self.labels), self.own_contexts(contexts, codes)
        if self.coding == "own":
            features = np.zeros((n, arms, self.width))
            features[np.arange(n), codes] = z
            return features.reshape(n, -1)
        levels = np.zeros((n, arms))
        levels[np.arange(n), codes] = 1.0
        kinds = np.zeros((n, 0)) if self.catalogue is None else self.catalogue[codes, : self.crossed]
        products = (kinds[:, :, None] * z[:, None, 1:]).reshape(n, self.crossed * (self.width - 1))
        return np.hstack([levels, z[:, 1:], products])

    def apply(self, columns: Mapping[str, Any], labels: Sequence[str]) -> Array:
        """φ (rows, p) of raw columns with one value per row, and the label of every row."""
        codes = np.array([self.index(label) for label in labels], dtype=np.int64)
        return self.cross(self.contexts(columns, len(codes)), codes)

    def rows(self, context: Mapping[str, Any], labels: Sequence[str] | None = None) -> Array:
        """φ (K, p) of some arms, or of all, in one context of scalars; InputError for an unknown label."""
        wanted = self.labels if labels is None else tuple(labels)
        codes = np.array([self.index(label) for label in wanted], dtype=np.int64)
        missing = [column.name for column in self.columns if column.name not in context]
        if missing:
            raise InputError(
                f"context lacks {format_names(missing)}; needed: "
                f"{format_names([one.name for one in self.columns])}"
            )
        whole = self.contexts(
            {column.name: _one_row(column, context[column.name]) for column in self.columns}
        )
        return self.cross(np.repeat(whole, len(codes), axis=0), codes)

    def index(self, label: str) -> int:
        """Place of an arm; InputError names the known ones."""
        return place_of(label, self.labels)

    # -- learning, growing and storing --

    def with_missing_indicators(self, missing: Collection[str]) -> ArmFeatures:
        """Return these features, nothing learned yet, with indicators of missing values of these columns
        as well.
        """
        return ArmFeatures(self.context.with_missing_indicators(missing), self.labels)

    def learned(
        self, cells: WindowedMoments, options: FeatureOptions, *, arm: str, catalogue: Catalogue | None
    ) -> tuple[ArmFeatures, list[Dropped], str]:
        """Return (features, what was left out of the context, why arms share slopes or not).

        Parameters
        ----------
        cells : WindowedMoments
            Moments of encoded contexts, a window per window and arm.
        options : FeatureOptions
            Whether arms share slopes.
        arm : str
            Column of the labels.
        catalogue : Catalogue or None
            Features of the arms.
        """
        labels, names = self.labels, self.context.encoded_names
        matched = matched_features(names, labels, arm)
        owned = {name for group in matched.values() for name in group}
        pooled = cells.regrouped(np.arange(0, cells.windows, len(labels)))
        plain = np.array([0, *(j + 1 for j, name in enumerate(names) if name not in owned)])
        shared = pooled.rescaled(plain, np.zeros(len(plain)), np.ones(len(plain)))
        collinear = collinear_features(shared, [("", *names)[j] for j in plain])
        dropped = [feature for feature in collinear if feature.name]
        gone = {feature.name for feature in dropped}
        kept = np.array([j for j, name in enumerate(names) if name not in gone], dtype=np.int64)
        groups = [[names.index(name) for name in group] for group in matched.values()]
        shift, scale = _standardisation(pooled, kept, groups)
        context = replace(self.context, kept=kept, shift=shift, scale=scale)
        width = 1 + len(kept) - len(owned) + len(matched)
        rounds = effective_rounds(cells)
        coding, why = chosen_coding(options.arm_model, len(labels), width, rounds)
        learned = ArmFeatures(context, labels, coding, matched=matched)
        if catalogue is None or not catalogue.names:
            return learned, dropped, why
        crossed = crossings(len(labels), width - 1, len(catalogue.names), rounds) if coding == "shared" else 0
        described = replace(
            learned,
            catalogue=catalogue.features_of(labels),
            catalogue_names=catalogue.names,
            catalogue_shift=catalogue.shift,
            catalogue_scale=catalogue.scale,
            crossed=crossed,
        )
        return described, dropped, why

    def arm_features(self, features: Mapping[str, Any]) -> Array:
        """Standardised features (k,) of an arm, from values by the columns of the catalogue; the mean
        where none is.
        """
        if self.catalogue_shift is None or self.catalogue_scale is None:
            raise InputError("features: the arms of this log have none, it was read without a catalogue")
        columns = {name.partition("=")[0] for name in self.catalogue_names}
        unknown = [name for name in features if name not in columns]
        if unknown:
            raise InputError(
                f"features: {format_names(unknown)} are not of the catalogue, which has "
                f"{format_names(sorted(columns))}"
            )
        raw = self.catalogue_shift.copy()
        for place, name in enumerate(self.catalogue_names):
            column, _, level = name.partition("=")
            if column in features:
                raw[place] = (
                    float(str(features[column]) == level) if level else _number(column, features[column])
                )
        return np.asarray((raw - self.catalogue_shift) / self.catalogue_scale)

    def with_arm(self, label: str, catalogue: Array | None = None) -> ArmFeatures:
        """These features with one more arm, the last; its features of the catalogue (k,) are the mean if
        not given.
        """
        if label in self.labels:
            raise InputError(f"arm {label!r} is there already, or was: labels are never used again")
        if self.matched:
            raise InputError(
                f"arm {label!r} would need columns of its own for {format_names(list(self.matched))}"
            )
        table = None
        if self.catalogue is not None:
            own = np.zeros(len(self.catalogue_names)) if catalogue is None else catalogue
            table = np.vstack([self.catalogue, finite_array("catalogue", own, (len(self.catalogue_names),))])
        return replace(self, labels=(*self.labels, label), catalogue=table)


def _standardisation(pooled: WindowedMoments, kept: Array, groups: list[list[int]]) -> tuple[Array, Array]:
    """Return (mean, standard deviation) of the kept features, each (q,); a group has one of each."""
    whole = pooled.chosen.grouped(np.array([0]))
    mean, variance = whole.mean[0, 1:-1].copy(), np.diagonal(whole.covariance()[0])[1:-1].copy()
    for group in groups:
        middle = mean[group].mean()
        variance[group] = (variance[group] + (mean[group] - middle) ** 2).mean()
        mean[group] = middle
    deviation = np.sqrt(variance[kept])
    return mean[kept], np.where(deviation > 0.0, deviation, 1.0)


def has_binary_rewards(moments: WindowedMoments) -> bool:
    """Return whether every reward is 0 or 1: Σ r²(r − 1)² = 0."""
    pooled = moments.chosen.grouped(np.array([0]))
    n, mean = pooled.count[0], pooled.mean[0, -1]
    second, third, fourth = pooled.scatter[0, -1, -1], pooled.cubes[0, -1], pooled.quartics[0, -1]
    squares = second + n * mean**2
    cubes = third + 3.0 * mean * second + n * mean**3
    quartics = fourth + 4.0 * mean * third + 6.0 * mean**2 * second + n * mean**4
    return bool(abs(quartics - 2.0 * cubes + squares) <= ROUNDING * max(squares, 1.0))


def effective_rounds(moments: WindowedMoments) -> int:
    """Return the number of rounds or, of n binary rewards with mean π, 4nπ(1 − π): as many with mean ½."""
    if not has_binary_rewards(moments):
        return int(moments.rounds)
    mean = moments.chosen.grouped(np.array([0])).mean[0, -1]
    return int(4.0 * moments.rounds * mean * (1.0 - mean))


def crossings(arms: int, slopes: int, names: int, rounds: float) -> int:
    """How many of so many catalogue features get products with the slopes: as many as a log of `rounds` can
    estimate.

    >>> log = {"arms": 34, "slopes": 20, "names": 4}
    >>> crossings(**log, rounds=5000), crossings(**log, rounds=600)
    (4, 0)
    """
    most = min(MOST_COEFFICIENTS, int(rounds) // ROUNDS_PER_COEFFICIENT)
    return min(max((most - arms - slopes) // max(slopes, 1), 0), names)


def chosen_coding(arm_model: str, arms: int, width: int, rounds: int) -> tuple[str, str]:
    """(coding, why) of so many arms with d = `width` coefficients each, in a log of so many rounds.

    Of rewards that are 0 or 1, n rounds with mean π count for 4nπ(1 − π): what as many with mean ½ would
    tell.
    """
    own = arms * width
    if arm_model != "auto":
        return arm_model, "as asked for"
    if own > MOST_COEFFICIENTS:
        return "shared", f"{arms} arms × {width} coefficients are {own}, more than {MOST_COEFFICIENTS}"
    if own * ROUNDS_PER_COEFFICIENT > rounds:
        return (
            "shared",
            f"{rounds:,} rounds are fewer than {ROUNDS_PER_COEFFICIENT} per coefficient, {own} of them",
        )
    return "own", f"{arms} arms × {width} coefficients"


def matched_features(names: Sequence[str], labels: Sequence[str], arm: str) -> dict[str, tuple[str, ...]]:
    """Groups of features that name the arm's column and end in exactly the labels: one for each arm, by its
    name.

    >>> matched_features(["age", "item_affinity_0", "item_affinity_1"], ["0", "1"], "item_id")
    {'item_affinity': ('item_affinity_0', 'item_affinity_1')}
    """
    stem = arm.lower().removesuffix("id").strip("_-. ")
    groups: dict[str, dict[str, str]] = {}
    for name in names:
        prefix, label = _split_label(name, labels)
        if stem and stem in prefix.lower():
            groups.setdefault(prefix, {})[label] = name
    whole = {
        prefix: group for prefix, group in groups.items() if len(labels) > 1 and group.keys() == set(labels)
    }
    return {prefix.rstrip("_-. "): tuple(group[label] for label in labels) for prefix, group in whole.items()}


def _split_label(name: str, labels: Collection[str]) -> tuple[str, str]:
    """(all before the label that a name ends in, the label), or ("", "")."""
    for mark in "_-. ":
        prefix, _, end = name.rpartition(mark)
        if prefix and end in labels:
            return prefix + mark, end
    fitting = [
        label
        for label in labels
        if name.endswith(label) and name[: -len(label)].endswith(("_", "-", ".", " "))
    ]
    label = max(fitting, key=len, default="")
    return (name.removesuffix(label), label) if label else ("", "")


def with_level(rows: Array) -> Array:
    """[1, rows] (n, 1 + q)."""
    return np.column_stack([np.ones(len(rows)), rows])


def _number(name: str, value: Any) -> float:
    try:
        return float(finite_array(name, float(value), ()))
    except (InputError, TypeError, ValueError):
        raise InputError(f"features: {name!r} must be a number, got {value!r}") from None


def _one_row(column: Column, value: Any) -> Any:
    """A scalar, or the vector of a vector column, as a column of one row."""
    if np.ndim(value) != (0 if column.width is None else 1):
        raise InputError(
            f"context: {column.name!r} must be one {'value' if column.width is None else 'list'}"
        )
    return [value]
