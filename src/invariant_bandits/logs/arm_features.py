"""ArmFeatures: context and label → φ(x, a).

The context is z = [1, x], x standardised on the log. "own": φ(x, a) = e_a ⊗ z, every arm has coefficients of
its own, and no arm is a reference. "shared": φ(x, a) = [e_a, x, f(a) ⊗ x], a level per arm, slopes shared,
f(a) of a catalogue. "partial": φ(x, a) = [e_a ⊗ [1, y], w], x = [y, w], arms have slopes of their own on y
and share those on w. In all three every feature is one entry of z times a number that depends on the arm
alone, so moments of φ follow exactly from moments of z, arm by arm. "pooled", for thousands of arms: φ(x, a)
= [a, x, f(a), f(a) ⊗ x], the position of the arm and what all arms share.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, compress
from typing import Annotated, Any

import numpy as np

from invariant_bandits.checks import (
    Array,
    InputError,
    finite_array,
    one_of,
)
from invariant_bandits.logs.arm_coding import (
    Coding,
    chosen_coding,
    crossings,
    effective_rounds,
    most_different_slopes,
    most_own_coefficients,
    needs_blocks,
    slopes_differ,
)
from invariant_bandits.logs.arms import Catalogue, Places, is_category_of
from invariant_bandits.logs.collinearity import Dropped, collinear_features
from invariant_bandits.logs.columns import Column
from invariant_bandits.logs.feature_maps import (
    LEAST_SCALE,
    FeatureMap,
    FeatureOptions,
    means_and_scales,
)
from invariant_bandits.logs.schema import format_names
from invariant_bandits.logs.serving_input import require_columns
from invariant_bandits.moments.windowed import WindowedMoments
from invariant_bandits.storage import ArraySpec

CODINGS = ("own", "partial", "shared", "pooled")
TIMES = " × "
EVERY_ARM = "all arms"


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
        "own": p = A·d, arm after arm, level first. "partial": level and own slopes, arm after arm, then the
        shared slopes. "shared": levels, then slopes, then products with the catalogue. "pooled": the position
        of the arm, then slopes, features of the catalogue, and products.
    catalogue : array, shape (A, k), or None
        Features of the arms, mean 0 and standard deviation 1.
    catalogue_names : tuple of str
        Their names.
    catalogue_shift, catalogue_scale : arrays, shape (k,), or None
        How they were standardised.
    crossed : int
        How many of them, the first, have products with the slopes; not in the "own" coding.
    catalogue_references : tuple of str
        Categories of the catalogue without a feature, as in `Catalogue`.
    matched : mapping of str to tuple of str
        Groups of context features that belong to one arm each, in the order of the labels: an arm has its own
        only.
    own_slopes : int
        Number of slopes, the first ones, that every arm has of its own in the "partial" coding.

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
    catalogue_scale: Annotated[Array, ArraySpec(("k",), least=LEAST_SCALE)] | None = (
        None
    )
    crossed: int = 0
    catalogue_references: tuple[str, ...] = ()
    own_slopes: int = 0

    def __post_init__(self) -> None:
        one_of("coding", self.coding, CODINGS)
        if not 0 <= self.own_slopes < self.width:
            raise InputError(
                f"own_slopes must be from 0 to {self.width - 1}, got {self.own_slopes!r}"
            )

    # -- what they are --

    @property
    def columns(self) -> tuple[Column, ...]:
        """Raw columns of the context."""
        return self.context.columns

    @cached_property
    def context_names(self) -> tuple[str, ...]:
        """Names of an arm's own coefficients (d,): level, slopes of the context, features of the arm."""
        return (
            "1",
            *(self.context.names[index - 1] for index in self._plain),
            *(self.matched or {}),
        )

    @property
    def width(self) -> int:
        """Length d of an arm's context z, the leading 1 included."""
        return len(self.context_names)

    @property
    def own(self) -> int:
        """Number of coefficients that every arm has of its own, the level included; arms share the others."""
        counts = {"own": self.width, "partial": 1 + self.own_slopes}
        return counts.get(self.coding, 1)

    @property
    def silent_columns(self) -> tuple[str, ...]:
        """Names of the context features that cannot change which arm is best: all arms share their slopes."""
        if self.crossed or len(self.labels) < 2:
            return ()
        matched = self.matched or {}
        return tuple(
            name for name in self.context_names[self.own :] if name not in matched
        )

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the features (p,)."""
        slopes = self.context_names[1:]
        factors = self.catalogue_names[: self.crossed]
        own = slopes[: self.own - 1]
        shared = slopes[self.own - 1 :]
        products = (f"{name}{TIMES}{slope}" for name in factors for slope in shared)
        if self.coding == "pooled":
            return ("level", *slopes, *self.catalogue_names, *products)
        of_arms = (
            (label, *(f"{label}{TIMES}{slope}" for slope in own))
            for label in self.labels
        )
        return (*chain.from_iterable(of_arms), *shared, *products)

    @property
    def is_wide(self) -> bool:
        """Whether arms have so many coefficients of their own that each has a covariance of its own."""
        return self.coding != "pooled" and needs_blocks(len(self.labels), self.own)

    @property
    def population(self) -> ArmFeatures:
        """What all arms share, as features of one arm, if it is fitted apart; else these features."""
        if self.coding == "pooled":
            return one_arm(EVERY_ARM, self.names[1:])
        if self.is_wide:
            return one_arm(EVERY_ARM, self.context_names[1:])
        return self

    @property
    def dim(self) -> int:
        """Number of features p."""
        return len(self.names)

    @cached_property
    def _plain(self) -> list[int]:
        """Entries of the whole context [1, x], the 1 aside, that belong to no arm."""
        owned = {name for names in (self.matched or {}).values() for name in names}
        return [
            index
            for index, name in enumerate(self.context.names, start=1)
            if name not in owned
        ]

    @cached_property
    def own_entries(self) -> Array:
        """Which entries of the whole context [1, x] make up z of each arm (A, d)."""
        position = {
            name: index for index, name in enumerate(self.context.names, start=1)
        }
        groups = [
            [position[name] for name in names]
            for names in (self.matched or {}).values()
        ]
        own = [
            [0, *self._plain, *(group[arm] for group in groups)]
            for arm in range(len(self.labels))
        ]
        return np.array(own, dtype=np.int64)

    @cached_property
    def catalogue_terms(self) -> tuple[tuple[str, ...], Array]:
        """Names (g,) of what arms may have in common, and their weights (g, 1 + k) on 1 and the catalogue:
        all arms, every number, and every category, as an indicator. In the "shared" coding k is `crossed`.
        """
        names = self.catalogue_names
        k = len(self.catalogue_names)
        terms = [np.eye(1 + k)[0]]
        shift = np.zeros(k) if self.catalogue_shift is None else self.catalogue_shift
        scale = np.ones(k) if self.catalogue_scale is None else self.catalogue_scale
        for j, name in enumerate(names):
            indicator = np.where(
                np.arange(1 + k) == 0, shift[j], scale[j] * np.eye(1 + k)[1 + j]
            )
            terms.append(indicator if "=" in name else np.eye(1 + k)[1 + j])
        for reference in self.catalogue_references:
            others = [
                j + 1 for j, name in enumerate(names) if is_category_of(name, reference)
            ]
            terms.append(terms[0] - np.sum([terms[j] for j in others], axis=0))
        every = ("all arms", *names, *self.catalogue_references)
        weights = np.array(terms)
        if self.coding == "own":
            return every, weights
        known = np.asarray(~weights[:, 1 + self.crossed :].any(axis=1))
        return tuple(compress(every, known.tolist())), weights[
            known, : 1 + self.crossed
        ]

    @cached_property
    def entries(self) -> Array:
        """Which entry of the whole context [1, x] each feature is made of, by arm (A, p)."""
        own = self.own_entries[:, : self.own]
        shared = self.own_entries[:, self.own :]
        return np.hstack(
            [
                np.tile(own, (1, len(self.labels))),
                np.tile(shared, (1, 1 + self.crossed)),
            ]
        )

    @cached_property
    def factors(self) -> Array:
        """What each feature multiplies that entry by, by arm (A, p)."""
        arms = np.eye(len(self.labels))
        shared = np.ones((len(arms), self.width - self.own))
        products = [
            shared * np.asarray(self.catalogue)[:, [j]] for j in range(self.crossed)
        ]
        return np.hstack([np.repeat(arms, self.own, axis=1), shared, *products])

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
        return self.context.encode(columns, counts, level=True)

    def standardise(self, encoded: Array) -> Array:
        """Return whole contexts [1, x] (n, 1 + q) of encoded ones."""
        return np.column_stack(
            [encoded[:, 0], self.context.standardise(encoded[:, 1:])]
        )

    def standardise_moments(self, cells: WindowedMoments) -> WindowedMoments:
        """Return moments of whole contexts [1, x] from moments of encoded ones."""
        kept, shift, scale = self.context.standardisation()
        return cells.rescaled(
            np.append(0, kept + 1), np.append(0.0, shift), np.append(1.0, scale)
        )

    def contexts(self, columns: Mapping[str, Any], rows: int | None = None) -> Array:
        """Return whole contexts [1, x] (rows, 1 + q) of raw columns with one value per row."""
        return (
            self.standardise(self.encode(columns))
            if self.columns
            else np.ones((rows or 1, 1))
        )

    def own_contexts(self, contexts: Array, codes: Array) -> Array:
        """z (n, d) of arms `codes` (n,) from whole contexts (n, 1 + q)."""
        if not self.matched:
            return contexts
        return np.asarray(np.take_along_axis(contexts, self.own_entries[codes], axis=1))

    def cross(self, contexts: Array, codes: Any) -> Array:
        """Return φ (n, p) of arms `codes` (n,) in whole contexts (n, 1 + q)."""
        return self._code(self.own_contexts(contexts, codes), codes)

    def cross_rows(self, rows: Array) -> Array:
        """Return φ (n, p) of rows (n, 2 + q): a whole context, and the position of an arm behind it."""
        return self.cross(rows[:, :-1], rows[:, -1].astype(np.int64))

    def _code(self, z: Array, codes: Any) -> Array:
        """φ (n, p) of arms `codes` (n,) with contexts z (n, d)."""
        n = len(codes)
        arms = len(self.labels)
        own = z[:, : self.own]
        shared = z[:, self.own :]
        kinds = np.zeros((n, 0)) if self.catalogue is None else self.catalogue[codes]
        crossed = kinds[:, : self.crossed, None] * shared[:, None, :]
        products = crossed.reshape(n, self.crossed * shared.shape[1])
        if self.coding == "pooled":
            return np.hstack(
                [np.asarray(codes, dtype=np.float64)[:, None], shared, kinds, products]
            )
        features = np.zeros((n, self.dim))
        of_arms = features[:, : arms * self.own].reshape(n, arms, self.own)
        of_arms[np.arange(n), codes] = own
        features[:, arms * self.own :] = np.hstack([shared, products])
        return features

    def recode(self, rows: Array, source: ArmFeatures) -> Array:
        """Return φ (n, p) of the same contexts and arms as `rows` (n, p'), which are features of `source`."""
        arms = len(source.labels)
        own = source.own
        blocks = rows[:, : arms * own].reshape(len(rows), arms, own)
        shared = rows[:, arms * own : arms * own + source.width - own]
        return self._code(
            np.hstack([blocks.sum(axis=1), shared]), blocks[:, :, 0].argmax(axis=1)
        )

    def with_own_slopes(self) -> ArmFeatures:
        """Return these features with own slopes for all columns, or for as many as a model carries.

        The features themselves, if every column can change the choice already.
        """
        if not self.silent_columns or self.coding == "pooled":
            return self
        own = most_own_coefficients(len(self.labels), self.width)
        if own == self.width:
            return replace(self, coding="own", own_slopes=0)
        if own <= self.own:
            return self
        return replace(self, coding="partial", own_slopes=own - 1)

    def apply(self, columns: Mapping[str, Any], labels: Sequence[str]) -> Array:
        """φ (rows, p) of raw columns with one value per row, and the label of every row."""
        codes = np.array([self.index(label) for label in labels], dtype=np.int64)
        return self.cross(self.contexts(columns, len(codes)), codes)

    def rows(
        self, context: Mapping[str, Any], labels: Sequence[str] | None = None
    ) -> Array:
        """φ (K, p) of some arms, or of all, in one context of scalars; InputError for an unknown label."""
        wanted = self.labels if labels is None else tuple(labels)
        codes = np.array([self.index(label) for label in wanted], dtype=np.int64)
        require_columns("context", [column.name for column in self.columns], context)
        columns = {
            column.name: _one_row(column, context[column.name])
            for column in self.columns
        }
        return self.cross(np.repeat(self.contexts(columns), len(codes), axis=0), codes)

    def index(self, label: str) -> int:
        """Return the index of an arm; InputError names the known ones."""
        return self._places[str(label)]

    @cached_property
    def _places(self) -> Places:
        return Places(self.labels)

    # -- learning, growing and storing --

    def with_missing_indicators(self, missing: Collection[str]) -> ArmFeatures:
        """Return these features, nothing learned yet, with indicators of missing values."""
        return ArmFeatures(
            self.context.with_missing_indicators(missing), self.labels, self.coding
        )

    def learned(
        self,
        cells: WindowedMoments,
        options: FeatureOptions,
        *,
        arm: str,
        catalogue: Catalogue | None,
    ) -> tuple[ArmFeatures, list[Dropped], str]:
        """Return (features, what was left out of the context, why arms share slopes or not).

        Parameters
        ----------
        cells : WindowedMoments
            Moments of encoded contexts, a window per window and arm; per window alone if they are pooled.
        options : FeatureOptions
            Whether arms share slopes.
        arm : str
            Column of the labels.
        catalogue : Catalogue or None
            Features of the arms.
        """
        is_pooled = self.coding == "pooled"
        pooled = cells
        matched: dict[str, tuple[str, ...]] = {}
        if not is_pooled:
            pooled = cells.regrouped(np.arange(0, cells.windows, len(self.labels)))
            matched = matched_features(self.context.encoded_names, self.labels, arm)
        context, dropped = self._learned_context(pooled, matched)
        start = ArmFeatures(context, self.labels, self.coding, matched=matched)
        crossed = 0
        if catalogue is not None and catalogue.names:
            start = replace(
                start,
                catalogue=catalogue.features_of(self.labels),
                catalogue_names=catalogue.names,
                catalogue_shift=catalogue.shift,
                catalogue_scale=catalogue.scale,
                catalogue_references=catalogue.references,
            )
            # What an arm has beside slopes: its level or, of pooled arms, its catalogue.
            taken = len(catalogue.names) if is_pooled else len(self.labels)
            slopes = start.width - 1
            rounds = effective_rounds(cells)
            crossed = crossings(taken, slopes, len(catalogue.names), rounds)
        columns = np.array(start._plain, dtype=np.int64) - 1
        entries = 1 + context.standardisation()[0][columns]
        choice = start._chosen_coding(cells, options.arm_model, entries, crossed)
        if choice.coding == "partial":
            # The slopes that differ most become the first ones, which arms have of their own.
            most = choice.own - 1
            ranked = most_different_slopes(cells, len(self.labels), entries, most)
            context = context.reordered(columns[ranked])
        learned = replace(
            start,
            context=context,
            coding=choice.coding,
            own_slopes=choice.own - 1 if choice.coding == "partial" else 0,
            crossed=crossed if choice.coding in ("shared", "pooled") else 0,
        )
        return learned, dropped, choice.reason

    def _learned_context(
        self, pooled: WindowedMoments, matched: Mapping[str, tuple[str, ...]]
    ) -> tuple[FeatureMap, list[Dropped]]:
        """Return the standardised context, and which of its features were left out.

        Parameters
        ----------
        pooled : WindowedMoments
            Moments of encoded contexts [1, x], all arms together.
        matched : mapping of str to tuple of str
            Groups of features that belong to one arm each: they stay, and have one mean and scale.
        """
        names = self.context.encoded_names
        owned = {name for group in matched.values() for name in group}
        plain = np.array(
            [0, *(j for j, name in enumerate(names, start=1) if name not in owned)]
        )
        # The level is a feature that is constant, so it is always left out: its name is empty.
        shared = pooled.rescaled(plain, np.zeros(len(plain)), np.ones(len(plain)))
        collinear = collinear_features(shared, [("", *names)[j] for j in plain])
        dropped = [feature for feature in collinear if feature.name]
        gone = {feature.name for feature in dropped}
        kept = np.array(
            [j for j, name in enumerate(names) if name not in gone], dtype=np.int64
        )
        groups = []
        for group in matched.values():
            groups.append([1 + names.index(name) for name in group])
        shift, scale = means_and_scales(pooled.chosen, 1 + kept, groups)
        return replace(self.context, kept=kept, shift=shift, scale=scale), dropped

    def _chosen_coding(
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
        if self.coding == "pooled":
            why = f"{arms:,} arms have a level each, pooled towards their population"
            return Coding("pooled", 1, why)
        if self.catalogue is not None and crossed:
            kinds = self.catalogue[:, :crossed]
            crossed = 0 if slopes_differ(cells, entries, kinds) else crossed
        differ = slopes_differ(cells, entries, np.zeros((arms, 0)))
        rounds = effective_rounds(cells)
        return chosen_coding(
            arm_model, arms, self.width, rounds, crossed=crossed, differ=differ
        )

    def arm_features(self, features: Mapping[str, Any]) -> Array:
        """Return standardised features (k,) of an arm from values by the columns of the catalogue.

        A column without a value counts as the mean.
        """
        if self.catalogue_shift is None or self.catalogue_scale is None:
            raise InputError(
                "features: the arms of this log have none, it was read without a catalogue"
            )
        columns = {name.partition("=")[0] for name in self.catalogue_names}
        unknown = format_names([name for name in features if name not in columns])
        if unknown:
            known = format_names(sorted(columns))
            raise InputError(
                f"features: {unknown} are not of the catalogue, which has {known}"
            )
        raw = self.catalogue_shift.copy()
        for index, name in enumerate(self.catalogue_names):
            column, _, level = name.partition("=")
            if column in features:
                value = features[column]
                raw[index] = (
                    str(value) == level
                    if level
                    else finite_array(f"features: {column}", value, ())
                )
        return np.asarray((raw - self.catalogue_shift) / self.catalogue_scale)

    def with_arm(self, label: str, catalogue: Array | None = None) -> ArmFeatures:
        """Return these features with one more arm, the last.

        Its features of the catalogue (k,) are the mean if not given.
        """
        if label in self.labels:
            raise InputError(
                f"arm {label!r} is there already, or was: labels are never used again"
            )
        grown = self
        for name in self.matched or {}:
            grown = grown._with_effects_of(label, name)
        table = None
        if self.catalogue is not None:
            own = (
                np.zeros(len(self.catalogue_names)) if catalogue is None else catalogue
            )
            table = np.vstack(
                [
                    self.catalogue,
                    finite_array("catalogue", own, (len(self.catalogue_names),)),
                ]
            )
        return replace(grown, labels=(*self.labels, label), catalogue=table)

    def _with_effects_of(self, label: str, group: str) -> ArmFeatures:
        """Return these features with the feature of a new arm in a group of effects of categories, all 0."""
        names = dict(self.matched or {})[group]
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
        matched = {**(self.matched or {}), group: (*names, name)}
        return replace(self, context=context, matched=matched)


def one_arm(label: str, names: Sequence[str]) -> ArmFeatures:
    """Return the features of one arm with slopes of these names."""
    return ArmFeatures(FeatureMap(tuple(map(Column, names))), (label,), "shared")


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


def in_sentence(note: str) -> str:
    """Return a note with a capital and a full stop, if it does not end with a question mark.

    >>> in_sentence("is a unit wrong?"), in_sentence("units differ")
    ('Is a unit wrong?', 'Units differ.')
    """
    end = "" if note.endswith("?") else "."
    return f"{note[0].upper()}{note[1:]}{end}"


class SharedSlopesWarning(UserWarning):
    """Arms share slopes, so some or all of the context cannot change which of them is chosen."""


def silent_context(features: ArmFeatures) -> str | None:
    """Return in words what of the context cannot change the choice and what to do; None if all of it can."""
    silent = features.silent_columns
    if not silent:
        return None
    is_all = len(silent) == features.width - 1
    about = {
        "arms": len(features.labels),
        "width": features.width,
        "names": format_names(silent),
    }
    remedy = POOLED_REMEDY if features.coding == "pooled" else SLOPES_REMEDY
    return ((SILENT_CONTEXT if is_all else SILENT_COLUMNS) + remedy).format(**about)


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


def _one_row(column: Column, value: Any) -> Any:
    """A scalar, or the vector of a vector column, as a column of one row."""
    if np.ndim(value) != (0 if column.width is None else 1):
        wanted = "value" if column.width is None else "list"
        raise InputError(f"context: {column.name!r} must be one {wanted}")
    return [value]
