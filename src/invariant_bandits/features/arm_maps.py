"""Feature maps of labelled arms: context and label → φ(x, a).

The context is z = [1, x], x standardised on the log. OwnCoefficients: φ(x, a) = e_a ⊗ z, every arm has
coefficients of its own, and no arm is a reference. SharedSlopes: φ(x, a) = [e_a ⊗ [1, y], w, f(a) ⊗ w],
x = [y, w]: arms have slopes of their own on y, if there is any, and share those on w; f(a) are features of a
catalogue. In both every feature is one entry of z times a number that depends on the arm alone, so moments of
φ follow exactly from moments of z, arm by arm. PooledLevels, for thousands of arms: φ(x, a) = [a, x, f(a),
f(a) ⊗ x], the position of the arm and what all arms share.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import chain, compress
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from invariant_bandits.checks import Array, InputError, format_names
from invariant_bandits.features.arm_moments import ArmMoments
from invariant_bandits.features.catalogue import (
    EVERY_ARM,
    ArmTraits,
    Catalogue,
    Places,
    matched_features,
)
from invariant_bandits.features.collinearity import Dropped, collinear_features
from invariant_bandits.features.columns import Column
from invariant_bandits.features.maps import (
    CoefficientGroups,
    FeatureMap,
    FeatureOptions,
    LearnedMap,
)
from invariant_bandits.features.rows import RowFeatures, means_and_scales
from invariant_bandits.features.serving import require_columns
from invariant_bandits.features.sharing import (
    Coding,
    chosen_coding,
    crossings,
    effective_rounds,
    most_different_slopes,
    most_own_coefficients,
    needs_blocks,
    slopes_differ,
)
from invariant_bandits.moments.windowed import WindowedMoments

Kind = TypeVar("Kind", bound="ArmFeatures")
TIMES = " × "
SAMPLE_ROUNDS = 200_000
"""Sampled rounds of clicks, from which their first coefficients are fitted."""
POOLED_NUMBERS = 50_000_000
"""Numbers in the contexts of sampled rounds of pooled arms, which are all that is known of these: four
million rounds with ten columns.
"""
SILENT_CONTEXT = (
    "the context cannot change the choice, every context gets the same arm: all {arms} arms share the slopes"
    " of {names}, and nothing else of an arm depends on the context"
)
SILENT_COLUMNS = "these columns cannot change the choice, because all {arms} arms share their slopes: {names}"
SLOPES_REMEDY = (
    "; own slopes would be {arms} arms × {width} coefficients. Use fewer columns (--ignore), give features of"
    " the arms (catalogue=, --catalogue), or ask for own slopes all the same (arm_model='own',"
    " --arm-model own)"
)
POOLED_REMEDY = "; give features of the arms (catalogue=, --catalogue), which slopes are then crossed with"


class SharedSlopesWarning(UserWarning):
    """Arms share slopes, so some or all of the context cannot change which of them is chosen."""


@dataclass(frozen=True, eq=False)
class ArmFeatures(FeatureMap):
    """Context columns and labels → feature vectors φ(x, a) of length p; base of the maps of labelled arms.

    Parameters
    ----------
    context : RowFeatures
        Raw columns → x (q,), standardised on the log.
    labels : tuple of str
        The A arms.
    arm : str
        Name of the column of labels.
    traits : ArmTraits
        Features of the arms from a catalogue.
    crossed : int
        How many of them, the first, have products with the slopes that arms share.
    matched : mapping of str to tuple of str
        Groups of context features that belong to one arm each, in the order of the labels: an arm has its own
        only.
    """

    has_levels: ClassVar[bool] = True
    remedy: ClassVar[str] = SLOPES_REMEDY

    context: RowFeatures
    labels: tuple[str, ...]
    arm: str = "arm"
    traits: ArmTraits = field(default_factory=ArmTraits)
    crossed: int = 0
    matched: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    # -- what they are --

    @property
    def columns(self) -> tuple[Column, ...]:
        """Raw columns of the context."""
        return self.context.columns

    @property
    def centre(self) -> bool:
        """Whether the context map subtracts the mean of a round."""
        return self.context.centre

    @property
    def catalogue(self) -> Array:
        """Features (A, k) of the arms."""
        return self.traits.values.reshape(len(self.labels), -1)

    @property
    def explaining(self) -> Array:
        """Features (A, c) of the arms that explain how coefficients of arms differ."""
        return self.catalogue[:, : self.crossed]

    @cached_property
    def context_names(self) -> tuple[str, ...]:
        """Names of an arm's own coefficients (d,): level, slopes of the context, features of the arm."""
        slopes = [self.context.names[entry - 1] for entry in self._plain]
        return ("1", *slopes, *self.matched)

    @property
    def width(self) -> int:
        """Length d of an arm's context z, the leading 1 included."""
        return len(self.context_names)

    @property
    def own(self) -> int:
        """Number of coefficients that every arm has of its own, the level included; arms share the others."""
        return 1

    def groups(self) -> CoefficientGroups:
        """Return which coefficients belong to which arm, and which are shared."""
        arms = len(self.labels)
        shared = self.dim - arms * self.own
        return CoefficientGroups(arms=arms, own=self.own, shared=shared)

    @property
    def is_wide(self) -> bool:
        """Whether arms have so many coefficients of their own that each has a covariance of its own."""
        return False

    @property
    def population(self) -> ArmFeatures:
        """What all arms share, as features of one arm, if it is fitted apart; else these features."""
        return self

    @property
    def silent_columns(self) -> tuple[str, ...]:
        """Names of the context features that cannot change which arm is best: all arms share their slopes."""
        if self.crossed or len(self.labels) < 2:
            return ()
        shared = self.context_names[self.own :]
        return tuple(name for name in shared if name not in self.matched)

    def silent_context(self) -> str | None:
        """Return in words which columns cannot change the choice and what to do; None if all of them can."""
        silent = self.silent_columns
        if not silent:
            return None
        words = SILENT_COLUMNS
        if len(silent) == self.width - 1:
            words = SILENT_CONTEXT
        names = format_names(silent)
        return (words + self.remedy).format(
            arms=len(self.labels), width=self.width, names=names
        )

    @property
    def _shared_names(self) -> tuple[str, ...]:
        """Names of the slopes that arms share, then of their products with the catalogue."""
        shared = self.context_names[self.own :]
        products = [
            f"{name}{TIMES}{slope}"
            for name in self.traits.names[: self.crossed]
            for slope in shared
        ]
        return (*shared, *products)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the features (p,)."""
        own = self.context_names[1 : self.own]
        of_arms = (
            (label, *(f"{label}{TIMES}{slope}" for slope in own))
            for label in self.labels
        )
        return (*chain.from_iterable(of_arms), *self._shared_names)

    @cached_property
    def _plain(self) -> list[int]:
        """Entries of the whole context [1, x], the 1 aside, that belong to no arm."""
        owned = set(chain.from_iterable(self.matched.values()))
        names = enumerate(self.context.names, start=1)
        return [entry for entry, name in names if name not in owned]

    @cached_property
    def own_entries(self) -> Array:
        """Which entries of the whole context [1, x] make up z of each arm (A, d)."""
        entry = {name: 1 + index for index, name in enumerate(self.context.names)}
        plain = np.tile([0, *self._plain], (len(self.labels), 1))
        matched = [[entry[name] for name in group] for group in self.matched.values()]
        return np.column_stack([plain, *matched]).astype(np.int64)

    @cached_property
    def catalogue_terms(self) -> tuple[tuple[str, ...], Array]:
        """Names (g,) of what arms may have in common, and their weights (g, 1 + c) on 1 and `explaining`."""
        names, weights = self.traits.terms()
        size = 1 + self.explaining.shape[1]
        known = np.asarray(~weights[:, size:].any(axis=1))
        return tuple(compress(names, known.tolist())), weights[known, :size]

    # -- applying --

    @property
    def encoded_names(self) -> tuple[str, ...]:
        """Names of the entries of an encoded context: the level, then what the context map encodes to."""
        return ("1", *self.context.encoded_names)

    def encode(self, columns: Mapping[str, Any], counts: Any = None) -> Array:
        """Return encoded contexts [1, encoded columns] (rows, 1 + encoded features) of raw columns."""
        return self.context.encode(columns, counts, level=True)

    def standardise(self, encoded: Array) -> Array:
        """Return whole contexts [1, x] (n, 1 + q) of encoded ones."""
        standard = self.context.standardise(encoded[:, 1:])
        return np.column_stack([encoded[:, 0], standard])

    def standardise_moments(self, moments: WindowedMoments) -> WindowedMoments:
        """Return moments of whole contexts [1, x] from moments of encoded ones."""
        kept, shift, scale = self.context.standardisation()
        return moments.rescaled(
            np.append(0, kept + 1), np.append(0.0, shift), np.append(1.0, scale)
        )

    def design(self, offered: Mapping[str, Any], counts: Any = None) -> Array:
        """Return φ (K, p) of columns with one value per offered action, among them the labels."""
        require_columns("offered", [self.arm], offered)
        codes = np.array(
            [self.index(label) for label in offered[self.arm]], dtype=np.int64
        )
        contexts = np.ones((len(codes), 1))
        if self.columns:
            contexts = self.standardise(self.encode(offered, counts))
        return self.cross(contexts, codes)

    def own_contexts(self, contexts: Array, codes: Array) -> Array:
        """Return z (n, d) of arms `codes` (n,) from whole contexts (n, 1 + q)."""
        if not self.matched:
            return contexts
        return np.asarray(np.take_along_axis(contexts, self.own_entries[codes], axis=1))

    def cross(self, rows: Array, arms: Any = None) -> Array:
        """Return φ (n, p) of the arms with these indices (n,) in whole contexts (n, 1 + q)."""
        return self._features(self.own_contexts(rows, arms), arms)

    def cross_rows(self, rows: Array) -> Array:
        """Return φ (n, p) of rows (n, 2 + q): a whole context, and the position of an arm behind it."""
        return self.cross(rows[:, :-1], rows[:, -1].astype(np.int64))

    def _features(self, z: Array, codes: Any) -> Array:
        """φ (n, p) of arms `codes` (n,) with contexts z (n, d): their blocks, then what all arms share."""
        n = len(codes)
        own_dim = len(self.labels) * self.own
        features = np.zeros((n, self.dim))
        blocks = features[:, :own_dim].reshape(n, len(self.labels), self.own)
        blocks[np.arange(n), codes] = z[:, : self.own]
        features[:, own_dim:] = self._shared(z, codes)
        return features

    def _shared(self, z: Array, codes: Any) -> Array:
        """Slopes that arms share, then their products with the catalogue."""
        shared = z[:, self.own :]
        factors = self.catalogue[codes, : self.crossed]
        products = factors[:, :, None] * shared[:, None, :]
        size = self.crossed * shared.shape[1]
        return np.hstack([shared, products.reshape(len(z), size)])

    def recode(self, rows: Array, source: ArmFeatures) -> Array:
        """Return φ (n, p) of the same contexts and arms as `rows` (n, p'), which are features of `source`."""
        own_dim = len(source.labels) * source.own
        shape = len(rows), len(source.labels), source.own
        blocks = rows[:, :own_dim].reshape(shape)
        shared = rows[:, own_dim : own_dim + source.width - source.own]
        z = np.hstack([blocks.sum(axis=1), shared])
        return self._features(z, blocks[:, :, 0].argmax(axis=1))

    def with_own_slopes(self) -> ArmFeatures:
        """Return these features with own slopes for all columns, or for as many as a model carries.

        The features themselves, if every column can change the choice already.
        """
        return self

    def turned_into(self, kind: type[Kind], **others: Any) -> Kind:
        """Return a map of another kind, of the same context and arms, with these `others` of its fields."""
        same = {each.name: getattr(self, each.name) for each in fields(ArmFeatures)}
        return kind(**(same | others))

    def index(self, label: str) -> int:
        """Return the index of an arm; InputError names the known ones."""
        return self._places[str(label)]

    @cached_property
    def _places(self) -> Places:
        return Places(self.labels)

    # -- reading a log --

    @property
    def sample_size(self) -> int:
        """Number of rounds to sample from a log while its moments are summed."""
        return SAMPLE_ROUNDS

    def with_missing_indicators(self, missing: Collection[str]) -> Self:
        """Return these features, nothing learned yet, with indicators of missing values."""
        return replace(self, context=self.context.with_missing_indicators(missing))

    def most_crossed(self, taken: int, moments: WindowedMoments) -> int:
        """Return how many features of the catalogue the log lets have products with the slopes.

        `taken` is the number of coefficients beside slopes and products.
        """
        names = len(self.traits.names)
        return crossings(taken, self.width - 1, names, effective_rounds(moments))

    def _with_context(
        self,
        moments: WindowedMoments,
        matched: Mapping[str, tuple[str, ...]],
        catalogue: Catalogue | None,
    ) -> tuple[Self, tuple[Dropped, ...]]:
        """Return this map with the standardised context and the catalogue, and what was left out.

        Parameters
        ----------
        moments : WindowedMoments
            Moments of encoded contexts [1, x], all arms together.
        matched : mapping of str to tuple of str
            Groups of features that belong to one arm each: they stay, and have one mean and scale.
        catalogue : Catalogue, optional
            Features of the arms.
        """
        names = self.encoded_names
        owned = set(chain.from_iterable(matched.values()))
        plain = np.flatnonzero([name not in owned for name in names])
        shared = moments.rescaled(plain, np.zeros(len(plain)), np.ones(len(plain)))
        # The level is a feature that is constant, so it is always left out: its name is empty.
        known = ["", *names[1:]]
        collinear = collinear_features(shared, [known[j] for j in plain])
        dropped = tuple(feature for feature in collinear if feature.name)
        gone = {feature.name for feature in dropped}
        kept = np.flatnonzero([name not in gone for name in names[1:]])
        groups = [[names.index(name) for name in group] for group in matched.values()]
        shift, scale = means_and_scales(moments.chosen, 1 + kept, groups)
        context = replace(self.context, kept=kept, shift=shift, scale=scale)
        traits = ArmTraits()
        if catalogue is not None:
            traits = catalogue.features_of(self.labels)
        start = replace(self, context=context, matched=matched, traits=traits)
        return start, dropped

    # -- growing --

    def with_arm(
        self, label: str, features: Mapping[str, Any] | None = None
    ) -> ArmFeatures:
        """Return these features with one more arm, the last.

        Its features are values by the columns of the catalogue, the mean where none is given.
        """
        if label in self.labels:
            raise InputError(
                f"arm {label!r} is there already, or was: labels are never used again"
            )
        grown = self
        for group in self.matched:
            grown = grown._with_effects_of(label, group)
        traits = self.traits.with_arm(features)
        return replace(grown, labels=(*self.labels, label), traits=traits)

    def _with_effects_of(self, label: str, group: str) -> Self:
        """Return these features with the feature of a new arm in a group of effects of categories, all 0."""
        names = self.matched[group]
        context = self.context
        coded = [column for column in context.columns if column.parts == names]
        if not coded or context.kept is None or context.shift is None:
            raise InputError(
                f"arm {label!r} would need a column of its own for {group}"
            )
        name = f"{names[0].removesuffix(self.labels[0])}{label}"
        grown = replace(
            coded[0],
            parts=(*names, name),
            codes=tuple((*numbers, 0.0) for numbers in coded[0].codes),
        )
        # The new feature stands behind those of the group, and is kept and scaled as they are.
        place = context.encoded_names.index(names[-1]) + 1
        like = context.names.index(names[0])
        scale = np.asarray(context.scale)
        context = replace(
            context,
            columns=tuple(
                grown if column is coded[0] else column for column in context.columns
            ),
            kept=np.append(context.kept + (context.kept >= place), place),
            shift=np.append(context.shift, context.shift[like]),
            scale=np.append(scale, scale[like]),
        )
        matched = {**self.matched, group: (*names, name)}
        return replace(self, context=context, matched=matched)

    def with_labels(self, labels: Sequence[str]) -> ArmFeatures:
        """Return these features with those labels as new arms that they lack."""
        features = self
        for label in labels:
            if label not in self.labels:
                features = features.with_arm(label)
        return features


@dataclass(frozen=True, eq=False)
class ArmCoefficients(ArmFeatures):
    """Maps in which every arm has coefficients: a log is read as moments per window and arm.

    Parameters are those of ArmFeatures.
    """

    @property
    def is_wide(self) -> bool:
        """Whether arms have so many coefficients of their own that each has a covariance of its own."""
        return needs_blocks(len(self.labels), self.own)

    @property
    def population(self) -> ArmFeatures:
        """What all arms share, as features of one arm, if each arm has a covariance; else these features."""
        return one_arm(EVERY_ARM, self.context_names[1:]) if self.is_wide else self

    @cached_property
    def entries(self) -> Array:
        """Which entry of the whole context [1, x] each feature is made of, by arm (A, p)."""
        own = np.tile(self.own_entries[:, : self.own], (1, len(self.labels)))
        shared = np.tile(self.own_entries[:, self.own :], (1, 1 + self.crossed))
        return np.hstack([own, shared])

    @cached_property
    def factors(self) -> Array:
        """What each feature multiplies that entry by, by arm (A, p)."""
        arms = len(self.labels)
        own = np.repeat(np.eye(arms), self.own, axis=1)
        multiples = np.column_stack([np.ones(arms), self.catalogue[:, : self.crossed]])
        return np.hstack([own, np.repeat(multiples, self.width - self.own, axis=1)])

    @property
    def cells(self) -> int:
        """Number of moments per window: one per arm."""
        return len(self.labels)

    def cell_of(self, window: Array, arms: Any) -> Array:
        """Return to which moments rounds (n,) are added: arm a of A in window i to number i·A + a."""
        return np.asarray(window * self.cells + arms)

    def arm_moments(self, moments: WindowedMoments, edges: Any) -> ArmMoments | None:
        """Return moments of whole contexts by arm."""
        return ArmMoments(moments, self, edges)

    def learned(
        self,
        moments: WindowedMoments,
        options: FeatureOptions,
        catalogue: Catalogue | None = None,
    ) -> LearnedMap:
        """Return the map of arms that share what the log cannot tell apart."""
        arms = len(self.labels)
        pooled = moments.regrouped(np.arange(0, moments.windows, arms))
        matched = matched_features(self.context.encoded_names, self.labels, self.arm)
        start, dropped = self._with_context(pooled, matched, catalogue)
        # What an arm has beside slopes is its level.
        crossed = start.most_crossed(arms, moments)
        columns = np.array(start._plain, dtype=np.int64) - 1
        entries = 1 + start.context.standardisation()[0][columns]
        choice = start._coding(moments, options.arm_model, entries, crossed)
        features: ArmCoefficients
        if choice.coding == "own":
            features = start.turned_into(OwnCoefficients)
        elif choice.coding == "shared":
            features = start.turned_into(SharedSlopes, crossed=crossed)
        else:
            # The slopes that differ most become the first ones, which arms have of their own.
            most = choice.own - 1
            ranked = most_different_slopes(moments, arms, entries, most)
            context = start.context.reordered(columns[ranked])
            features = start.turned_into(SharedSlopes, context=context, own_slopes=most)
        return LearnedMap(features, dropped, f"{choice.coding}, {choice.reason}")

    def _coding(
        self, cells: WindowedMoments, arm_model: str, entries: Array, crossed: int
    ) -> Coding:
        """Return which coefficients arms share, from moments of encoded contexts per window and arm.

        Parameters
        ----------
        cells : WindowedMoments
            The moments.
        arm_model : str
            What the caller asked for.
        entries : array of int, shape (k,)
            Entries of encoded contexts that have slopes and belong to no arm.
        crossed : int
            How many features of the catalogue can have products with the slopes.
        """
        arms = len(self.labels)
        if crossed and slopes_differ(cells, entries, self.catalogue[:, :crossed]):
            crossed = 0
        differ = slopes_differ(cells, entries, np.zeros((arms, 0)))
        rounds = effective_rounds(cells)
        return chosen_coding(
            arm_model, arms, self.width, rounds, crossed=crossed, differ=differ
        )


@dataclass(frozen=True, eq=False)
class OwnCoefficients(ArmCoefficients):
    """Every arm has coefficients of its own: φ(x, a) = e_a ⊗ [1, x], p = A·d.

    Parameters are those of ArmFeatures.

    >>> context = RowFeatures((Column("hour"),))
    >>> features = OwnCoefficients(context, ("A", "B"), arm="banner")
    >>> features.names
    ('A', 'A × hour', 'B', 'B × hour')
    >>> features.design({"hour": [9.0, 9.0], "banner": ["B", "A"]})
    array([[0., 0., 1., 9.],
           [1., 9., 0., 0.]])
    """

    @property
    def own(self) -> int:
        """Number of coefficients of every arm: all."""
        return self.width

    @property
    def explaining(self) -> Array:
        """Features (A, k) of the arms, all of which may explain how coefficients of arms differ."""
        return self.catalogue


@dataclass(frozen=True, eq=False)
class SharedSlopes(ArmCoefficients):
    """Arms have levels, and perhaps some slopes, of their own, and share the other slopes.

    Parameters are those of ArmFeatures, and:

    Parameters
    ----------
    own_slopes : int
        Number of slopes, the first ones, that every arm has of its own.

    >>> context = RowFeatures((Column("hour"), Column("age")))
    >>> SharedSlopes(context, ("A", "B"), own_slopes=1).names
    ('A', 'A × hour', 'B', 'B × hour', 'age')
    """

    own_slopes: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.own_slopes < self.width:
            raise InputError(
                f"own_slopes must be from 0 to {self.width - 1}, got {self.own_slopes!r}"
            )

    @property
    def own(self) -> int:
        """Number of coefficients that every arm has of its own, the level included."""
        return 1 + self.own_slopes

    def with_own_slopes(self) -> ArmFeatures:
        """Return these features with own slopes for all columns, or for as many as a model carries."""
        own = most_own_coefficients(len(self.labels), self.width)
        if not self.silent_columns or own <= self.own:
            return self
        if own < self.width:
            return replace(self, own_slopes=own - 1)
        return self.turned_into(OwnCoefficients)


@dataclass(frozen=True, eq=False)
class PooledLevels(ArmFeatures):
    """Thousands of arms: φ(x, a) is the position of the arm, then slopes, features of the arm, and products.

    The levels of the arms are no features: they are shrunk towards what `population` explains. Parameters are
    those of ArmFeatures.
    """

    remedy: ClassVar[str] = POOLED_REMEDY

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the features (p,)."""
        slopes = self.width - 1
        shared = self._shared_names
        return ("level", *shared[:slopes], *self.traits.names, *shared[slopes:])

    def groups(self) -> CoefficientGroups:
        """Return the groups of the population: one arm, to which the levels are shrunk."""
        return CoefficientGroups(arms=1, own=1, shared=self.dim - 1)

    @property
    def population(self) -> SharedSlopes:
        """What all arms share, as features of one arm."""
        return one_arm(EVERY_ARM, self.names[1:])

    @property
    def sample_size(self) -> int:
        """Number of rounds to sample from a log."""
        return POOLED_NUMBERS // len(self.encoded_names)

    def with_labels(self, labels: Sequence[str]) -> ArmFeatures:
        """Raise InputError: an update would need the levels of all arms in every window."""
        raise InputError(
            "update: levels of pooled arms are not kept by window; fit both logs together"
        )

    def _features(self, z: Array, codes: Any) -> Array:
        """φ (n, p) of arms `codes` (n,) with contexts z (n, d)."""
        slopes = self.width - 1
        shared = self._shared(z, codes)
        parts = [shared[:, :slopes], self.catalogue[codes], shared[:, slopes:]]
        return np.hstack([np.asarray(codes, dtype=np.float64)[:, None], *parts])

    def learned(
        self,
        moments: WindowedMoments,
        options: FeatureOptions,
        catalogue: Catalogue | None = None,
    ) -> LearnedMap:
        """Return this map with its context and the catalogue, from moments per window."""
        start, dropped = self._with_context(moments, {}, catalogue)
        crossed = start.most_crossed(len(start.traits.names), moments)
        why = f"{len(self.labels):,} arms have a level each, pooled towards their population"
        return LearnedMap(replace(start, crossed=crossed), dropped, f"pooled, {why}")


def one_arm(label: str, names: Sequence[str]) -> SharedSlopes:
    """Return the features of one arm with slopes of these names."""
    return SharedSlopes(RowFeatures(tuple(map(Column, names))), (label,))
