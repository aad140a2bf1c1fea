"""FeatureMap: raw columns → feature vectors, learned once from the logs and applied unchanged when serving.

The steps, in their order: numeric columns as they are and categorical ones as indicators of their categories;
products of columns that the user named; differences to the mean of the round; the features that are kept;
shift and scale. Everything after the products is linear, so it can also be applied to moments, exactly.

ArmFeatures: context and label → φ(x, a). The context is z = [1, x], x standardised on the log. "own": φ(x, a)
= e_a ⊗ z, every arm has coefficients of its own, and no arm is a reference. "shared": φ(x, a) = [e_a, x, f(a)
⊗ x], a level per arm, slopes shared, f(a) of a catalogue. "partial": φ(x, a) = [e_a ⊗ [1, y], w], x = [y, w],
arms have slopes of their own on y and share those on w. In all three every feature is one entry of z times a
number that depends on the arm alone, so moments of φ follow exactly from moments of z, arm by arm. "pooled",
for thousands of arms: φ(x, a) = [a, x, f(a), f(a) ⊗ x], the place of the arm and what all arms share.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain, compress, product
from typing import Annotated, Any

import numpy as np

from invariant_bandits.checks import (
    Array,
    InputError,
    finite_array,
    one_of,
    whole_number,
)
from invariant_bandits.logs.arms import Catalogue, Places, is_category_of
from invariant_bandits.logs.decode import Categories
from invariant_bandits.logs.schema import format_names
from invariant_bandits.moments.batches import checked_counts
from invariant_bandits.moments.power_sums import PowerSums
from invariant_bandits.moments.windowed import WindowedMoments
from invariant_bandits.storage import ArraySpec


@dataclass(frozen=True)
class Column:
    """One raw column: numbers, categories, or a vector of numbers per row.

    Parameters
    ----------
    name : str
        Name of the column.
    categories : tuple of str or None
        Its categories, if it is categorical.
    width : int or None
        How many numbers each row has, if it holds vectors.
    filler : tuple of float or None
        What stands for a missing value: one number, `width` numbers, or the shares of the categories, () for
        none of them; None if a missing value cannot be used.
    marks_missing : bool
        Whether one more feature says that the value was missing.

    >>> Column("country", categories=("DE", "FR")).features
    ('country=DE', 'country=FR')
    >>> Column("age", filler=(40.0,), marks_missing=True).encode([31.0, None], rows=2)
    array([[31.,  0.],
           [40.,  1.]])
    """

    name: str
    categories: tuple[str, ...] | None = None
    width: int | None = None
    filler: tuple[float, ...] | None = None
    marks_missing: bool = False

    @cached_property
    def features(self) -> tuple[str, ...]:
        """Names of the features that it becomes."""
        names = [self.name]
        if self.categories is not None:
            names = [f"{self.name}={category}" for category in self.categories]
        elif self.width is not None:
            names = [f"{self.name}[{index}]" for index in range(self.width)]
        return (*names, f"{self.name} missing") if self.marks_missing else tuple(names)

    def encode(self, values: Any, rows: int) -> Array:
        """Return its features (rows, number of features) from values (rows,) or (rows, width); missing:
        None, NaN.
        """
        block, missing = (
            self._numbers(values, rows)
            if self.categories is None
            else self._indicators(values)
        )
        return np.column_stack([block, missing]) if self.marks_missing else block

    def unknown(self, values: Sequence[Any]) -> set[str]:
        """Return the values that are none of its categories, missing ones aside."""
        words = {str(word) for word in values if word is not None and word == word}
        return words.difference(self.categories or words)

    def _numbers(self, values: Any, rows: int) -> tuple[Array, Array]:
        """Numbers (rows, 1 or width), missing ones filled where that is possible, and a mask (rows,) of
        those.
        """
        try:
            raw = np.asarray(values)
            objects = raw.flat if raw.dtype.kind == "O" else ()
            dates = any(
                isinstance(value, np.datetime64 | np.timedelta64) for value in objects
            )
            if raw.dtype.kind in "Mm" or dates:
                raise ValueError("dates and durations are not numbers")
            array = np.asarray(raw, dtype=np.float64)
        except (TypeError, ValueError, OverflowError, Warning) as error:
            raise InputError(f"column {self.name!r} must be numbers: {error}") from None
        wanted = (rows,) if self.width is None else (rows, self.width)
        if array.shape != wanted:
            raise InputError(
                f"column {self.name!r} must have shape {wanted}, got {array.shape}"
            )
        array = array.reshape(rows, -1)
        missing = np.isnan(array)
        if self.filler is not None and missing.any():
            array = np.where(missing, self.filler, array)
        return array, np.asarray(missing.any(axis=1))

    def _indicators(self, values: Any) -> tuple[Array, Array]:
        """Indicators (rows, categories), zeros where the category is unknown, and a mask (rows,) of
        missing values.
        """
        assert self.categories is not None
        places, missing = _places(values, self.categories)
        one_hot = np.vstack(
            [np.eye(len(self.categories)), np.zeros(len(self.categories))]
        )
        block = one_hot.take(places, axis=0)  # −1 is the last row
        if self.filler and missing.any():
            block[missing] = self.filler
        return block, missing


def _length(values: Any) -> tuple[int, ...]:
    """(rows,) of a column, () of a scalar."""
    return np.shape(values[0] if isinstance(values, Categories) else values)[:1]


def _places(values: Any, categories: Sequence[str]) -> Categories:
    """Find values among the categories; those of a log were found when they were decoded."""
    if isinstance(values, Categories):
        return values
    words: list[Any] = np.asarray(values).tolist()
    index = {category: place for place, category in enumerate(categories)}
    places = [index.get(str(word), -1) for word in words]
    missing = [word is None or word != word for word in words]
    return Categories(np.array(places, dtype=np.int64), np.array(missing, dtype=bool))


TOLERANCE = 1e-9
"""Share of a feature's variance that must be left by the earlier ones."""
LEAST_SCALE = 1e-150
"""Of a unit that features can be divided by."""
ROUNDING = 1e-12
"""Standard deviation, relative to the mean, below which a feature counts as constant."""
MOST_TERMS = 6
"""Longer combinations are described by their first terms and the number of the others."""
LEAST_SHARE = 1e-6
"""Terms of a combination that explain less of the standard deviation are left out of its description."""


@dataclass(frozen=True)
class Dropped:
    """A feature that was left out: constant, or the combination of others.

    Parameters
    ----------
    name : str
        Name of the feature.
    combination : mapping of str to float
        Coefficients of the features that it is a combination of; empty if it is constant.

    >>> print(Dropped("cents", {"euros": 100.0}))
    cents = +100·euros + a constant per window
    """

    name: str
    combination: Mapping[str, float]

    def __str__(self) -> str:
        if not self.combination:
            return f"{self.name} is constant within every window"
        shown = list(self.combination.items())
        shown = shown if len(shown) <= MOST_TERMS else shown[: MOST_TERMS - 2]
        terms = " ".join(f"{value:+.4g}·{name}" for name, value in shown)
        more = len(self.combination) - len(shown)
        terms += f" … and {more} more" if more else ""
        return f"{self.name} = {terms} + a constant per window"


def collinear_features(moments: WindowedMoments, names: Sequence[str]) -> list[Dropped]:
    """Features whose variance within windows is explained by earlier ones.

    Both the chosen and the offered actions must leave some of it.

    Parameters
    ----------
    moments : WindowedMoments
        Moments of p features.
    names : sequence of str, length p
        Their names.

    >>> import numpy as np
    >>> euros = np.random.default_rng(0).normal(size=50)
    >>> moments = WindowedMoments.from_arrays(np.column_stack([euros, 100.0 * euros]), euros, windows=2)
    >>> [str(feature) for feature in collinear_features(moments, ["euros", "cents"])]
    ['cents = +100·euros + a constant per window']
    """
    dropped: list[Dropped] = []
    kept = list(range(moments.dim))
    for sums in (moments.offered, moments.chosen):
        if sums is not None:
            kept, dependent = _independent(sums, kept, names)
            dropped += dependent
    return dropped


def _independent(
    sums: PowerSums, candidates: list[int], names: Any
) -> tuple[list[int], list[Dropped]]:
    """(indices of the candidates that are kept, the others with the reason).

    Cholesky of the pooled correlation matrix, row by row in the order of the features: a pivot is the share
    of a feature's variance that the earlier, kept ones leave.
    """
    from scipy.linalg import solve_triangular

    p = len(names)
    gram = sums.scatter[:, :p, :p].sum(axis=0)
    level = np.abs(sums.mean[:, :p]).max(axis=0)
    alive = (
        np.diagonal(gram) > sums.count.sum() * (ROUNDING * level) ** 2
    )  # not constant within every window
    size = np.sqrt(np.where(alive, np.diagonal(gram), 1.0))
    correlation = gram / np.outer(size, size)
    dropped = [Dropped(names[j], {}) for j in candidates if not alive[j]]
    kept: list[int] = []
    factor = np.zeros((0, 0))
    for j in (j for j in candidates if alive[j]):
        row = (
            solve_triangular(factor, correlation[kept, j], lower=True)
            if kept
            else np.zeros(0)
        )
        pivot = 1.0 - row @ row
        if pivot <= TOLERANCE:
            weights = (
                solve_triangular(factor.T, row, lower=False) * size[j] / size[kept]
            )
            shares = np.abs(weights) * size[kept] / size[j]
            terms = zip(kept, weights.tolist(), shares, strict=True)
            combination = {
                names[k]: value for k, value, share in terms if share > LEAST_SHARE
            }
            dropped.append(Dropped(names[j], combination))
            continue
        factor = np.block(
            [[factor, np.zeros((len(kept), 1))], [row[None, :], np.sqrt(pivot)]]
        )
        kept.append(j)
    return kept, dropped


MOST_CATEGORIES = 100
"""Categories of a column that become features by default: as many as a column of text may have to be one."""
STANDARDISE = ("none", "scale", "scale and shift")
ARM_MODELS = ("auto", "own", "shared", "pooled")


@dataclass(frozen=True)
class FeatureOptions:
    """Options for turning the columns of a log into features.

    Parameters
    ----------
    interactions : tuple of str
        Products of columns to add as features, such as "price:weekend".
    standardise : str
        Standardisation of the features: "none", "scale" (divide every feature by its standard deviation in
        the log) or "scale and shift" (also subtract its mean).
    centre : bool
        Whether to subtract from every feature its mean over the actions offered in the same round.
    max_categories : int
        Largest number of categories of a column that become features; rarer categories get no feature.
    drop_collinear : bool
        Whether to leave out features that are constant or linear combinations of other features.
    arm_model : str
        Which coefficients differ between labelled arms: "own", "shared", "pooled" or "auto". With
        `arm_model="own"`, each arm has its own intercept and slopes. With `arm_model="shared"`, each arm has
        its own intercept, and all arms have the same slopes. With `arm_model="pooled"`, meant for thousands
        of arms, the arms' intercepts are shrunk towards their mean. With `arm_model="auto"`, each arm has as
        many own coefficients as the log can estimate.
    impute : bool
        Whether missing values of features are filled in; otherwise rounds with missing values are left out.
        Missing values are replaced by the mean of the column in the first rows of the log. For a column
        where missing values are not rare, an additional feature indicates the missing values.

    >>> FeatureOptions(interactions=("price:country",), standardise="scale").standardise
    'scale'
    """

    interactions: tuple[str, ...] = ()
    standardise: str = "none"
    centre: bool = False
    max_categories: int = MOST_CATEGORIES
    drop_collinear: bool = True
    impute: bool = True
    arm_model: str = "auto"

    def __post_init__(self) -> None:
        if isinstance(self.interactions, str):
            raise InputError(
                f"interactions must be a list such as ('a:b',), got {self.interactions!r}"
            )
        one_of("standardise", self.standardise, STANDARDISE)
        one_of("arm_model", self.arm_model, ARM_MODELS)
        whole_number("max_categories", self.max_categories, 1)


@dataclass(frozen=True, eq=False)
class FeatureMap:
    """Rule that turns raw columns into feature vectors, the same for logs and for live decisions.

    Parameters
    ----------
    columns : tuple of Column
        Raw columns from which the features are computed.
    interactions : tuple of str
        Products of columns or of their features, such as "price:country".
    centre : bool
        Whether to subtract from every feature its mean over the actions offered in the same round.
    kept : array of int, shape (q,), or None
        Indices of the encoded features (numbers, one-hot categories, products) that are kept; None keeps all.
    shift : array, shape (q,), or None
        Number that is subtracted from each of the q kept features.
    scale : array, shape (q,), or None
        Number by which each of the q kept features is divided after subtracting `shift`.

    >>> columns = Column("price"), Column("country", ("DE", "FR"))
    >>> kinds = FeatureMap(columns, interactions=("price:country",))
    >>> kinds.names
    ('price', 'country=DE', 'country=FR', 'price:country=DE', 'price:country=FR')
    >>> kinds.apply({"price": [2.0, 3.0], "country": ["FR", "IT"]})
    array([[2., 0., 1., 0., 2.],
           [3., 0., 0., 0., 0.]])
    """

    columns: tuple[Column, ...]
    interactions: tuple[str, ...] = ()
    centre: bool = False
    kept: Annotated[Array, ArraySpec(("q",), "int64", 0)] | None = None
    shift: Annotated[Array, ArraySpec(("q",))] | None = None
    scale: Annotated[Array, ArraySpec(("q",), least=LEAST_SCALE)] | None = None
    _blocks: dict[str, slice] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        start = 0
        for column in self.columns:
            self._blocks[column.name] = slice(start, start + len(column.features))
            start += len(column.features)
        for index, name in enumerate(self._single_names):
            self._blocks.setdefault(name, slice(index, index + 1))
        for interaction in self.interactions:
            unknown = [
                part for part in interaction.split(":") if part not in self._blocks
            ]
            if unknown:
                what = f"{unknown[0]!r} in {interaction!r}"
                raise InputError(
                    f"interactions: {what} is not a feature column, got {self._single_names}"
                )
            if ":" not in interaction:
                raise InputError(
                    f"interactions must join columns by ':', got {interaction!r}"
                )

    # -- names --

    @cached_property
    def _single_names(self) -> list[str]:
        return [name for column in self.columns for name in column.features]

    @cached_property
    def encoded_names(self) -> tuple[str, ...]:
        """Names of all features before any is left out."""
        single = self._single_names
        products = []
        for interaction in self.interactions:
            blocks = [single[self._blocks[part]] for part in interaction.split(":")]
            products += [":".join(parts) for parts in product(*blocks)]
        return (*single, *products)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the q features."""
        names = self.encoded_names
        return (
            names if self.kept is None else tuple(names[index] for index in self.kept)
        )

    @property
    def dim(self) -> int:
        """Number of features q."""
        return len(self.names)

    # -- applying --

    def apply(self, columns: Mapping[str, Any], counts: Any = None) -> Array:
        """Compute a vector of q features from every row of raw columns, and return an array (rows, q).

        Parameters
        ----------
        columns : mapping of str to array, shape (rows,), or (rows, width) for a vector column
            Values of the raw columns by name. Unknown categories are encoded as zeros. Missing values (None
            or NaN) are replaced by values that were learned from the log.
        counts : array of int, shape (rounds,), optional
            Number of rows in each round, for centring; by default all rows belong to one round.
        """
        return self.standardise(self.encode(columns, counts))

    def encode(
        self, columns: Mapping[str, Any], counts: Any = None, *, level: bool = False
    ) -> Array:
        """All features (rows, len(encoded_names)), centred within rounds if that is asked for, not yet
        scaled; with `level`, behind a column of ones.
        """
        rows = self._rows(columns)
        whole = np.ones((rows, level + len(self.encoded_names)))
        features = whole[:, int(level) :]
        for column in self.columns:
            features[:, self._blocks[column.name]] = column.encode(
                columns[column.name], rows
            )
        start = len(self._single_names)
        for interaction in self.interactions:
            block = np.ones((rows, 1))
            for part in interaction.split(":"):
                factor = features[:, self._blocks[part]]
                block = (block[:, :, None] * factor[:, None, :]).reshape(rows, -1)
            features[:, start : start + block.shape[1]] = block
            start += block.shape[1]
        if self.centre:
            features[:] = centre_rounds(features, counts)
        return whole

    @property
    def is_plain(self) -> bool:
        """Whether every column is one number that becomes one feature."""
        return not self.interactions and all(
            column.features == (column.name,) for column in self.columns
        )

    def apply_numbers(self, numbers: Array) -> Array:
        """The same as `apply` for a plain map and the offered actions of one round, without missing values.

        Parameters
        ----------
        numbers : array of float, shape (rows, columns)
        """
        return self.standardise(
            centre_rounds(numbers, None) if self.centre else numbers
        )

    def standardise(self, encoded: Array) -> Array:
        """Return features (rows, q) of encoded rows: some left out, the others shifted and scaled."""
        features = encoded if self.kept is None else encoded[:, self.kept]
        if self.shift is not None:
            features = features - self.shift
        return features if self.scale is None else features / self.scale

    def standardise_moments(self, moments: WindowedMoments) -> WindowedMoments:
        """Return moments of the features from moments of encoded rows."""
        return moments.rescaled(*self.standardisation())

    def standardisation(self) -> tuple[Array, Array, Array]:
        """Return which encoded features stay, what is subtracted from them and what divides them, each
        (q,).
        """
        kept = np.arange(len(self.encoded_names)) if self.kept is None else self.kept
        shift = np.zeros(len(kept)) if self.shift is None else self.shift
        return kept, shift, np.ones(len(kept)) if self.scale is None else self.scale

    def cross(self, features: Array, arms: Array | None = None) -> Array:
        """Return the features themselves: they depend on the action already, not on its label."""
        return features

    def _rows(self, columns: Mapping[str, Any]) -> int:
        require_columns("columns", [column.name for column in self.columns], columns)
        lengths = {
            column.name: _length(columns[column.name]) for column in self.columns
        }
        if len(set(lengths.values())) != 1 or () in lengths.values():
            raise InputError(
                f"columns must have one value per row, got lengths {lengths}"
            )
        return int(next(iter(lengths.values()))[0])

    # -- learning --

    def with_missing_indicators(self, missing: Collection[str]) -> FeatureMap:
        """Return this map, nothing learned yet, with indicators of missing values of these columns as
        well.
        """
        columns = (
            replace(c, marks_missing=c.marks_missing or c.name in missing)
            for c in self.columns
        )
        return FeatureMap(tuple(columns), self.interactions, self.centre)

    def learned(
        self, moments: WindowedMoments, options: FeatureOptions
    ) -> tuple[FeatureMap, list[Dropped]]:
        """(this map with what to keep, shift and scale, the features that are left out).

        Parameters
        ----------
        moments : WindowedMoments
            Moments of the expanded features of this map.
        options : FeatureOptions
            What to learn from them.
        """
        dropped = (
            collinear_features(moments, self.encoded_names)
            if options.drop_collinear
            else []
        )
        gone = {feature.name for feature in dropped}
        kept = np.array(
            [i for i, name in enumerate(self.encoded_names) if name not in gone],
            dtype=np.int64,
        )
        if not len(kept):
            raise InputError(
                "features: none is left, all are constant within every window of the logs"
            )
        learned = replace(self, kept=kept if gone else None, shift=None, scale=None)
        if options.standardise == "none":
            return learned, dropped
        mean, scale = _standardisation(moments.offered or moments.chosen, kept)
        shift = mean if options.standardise == "scale and shift" else None
        return replace(learned, shift=shift, scale=scale), dropped

    def without(self, gone: Collection[str]) -> FeatureMap:
        """This map without the features of these names."""
        stays = np.array([name not in gone for name in self.names])
        shift = None if self.shift is None else self.shift[stays]
        scale = None if self.scale is None else self.scale[stays]
        return replace(
            self, kept=self.standardisation()[0][stays], shift=shift, scale=scale
        )

    def shifted(self, mean: Array) -> FeatureMap:
        """This map with `mean` (q,) taken off its features."""
        _, before, scale = self.standardisation()
        return replace(
            self, shift=before + scale * finite_array("mean", mean, (self.dim,))
        )


def _standardisation(
    sums: PowerSums, kept: Array, groups: Any = ()
) -> tuple[Array, Array]:
    """(mean, standard deviation) of the kept variables, each (q,); a group has one of each."""
    whole = sums.grouped(np.array([0]))
    mean, variance = whole.mean[0], np.diagonal(whole.covariance()[0]).copy()
    for group in groups:
        middle = mean[group].mean()
        variance[group] = (variance[group] + (mean[group] - middle) ** 2).mean()
        mean[group] = middle
    deviation = np.sqrt(variance[kept])
    return mean[kept], np.where(deviation > 0.0, deviation, 1.0)


def centre_rounds(rows: Array, counts: Any = None) -> Array:
    """Rows minus the mean of their round.

    Parameters
    ----------
    rows : array, shape (n, p)
        Features of offered actions, round after round.
    counts : array of int, shape (rounds,), optional
        Rows per round; None if all belong to one round.

    >>> import numpy as np
    >>> centre_rounds(np.array([[1.0], [3.0], [7.0]]), [2, 1])
    array([[-1.],
           [ 1.],
           [ 0.]])
    """
    counts = checked_counts(
        "counts", [len(rows)] if counts is None else counts, len(rows)
    )
    starts = np.cumsum(counts) - counts
    means = np.add.reduceat(rows, starts, axis=0) / counts[:, None]
    return np.asarray(rows - np.repeat(means, counts, axis=0))


CODINGS = ("own", "partial", "shared", "pooled")
MOST_COEFFICIENTS = 600
"""Coefficients of a model whose arms share none: 600 take about 10 seconds to fit and 8 ms per round."""
MOST_PARTIAL_COEFFICIENTS = 400
"""Coefficients of a model whose arms share some: these fits cannot go arm by arm and take longer."""
ROUNDS_PER_COEFFICIENT = 10
"""Rounds per coefficient from which on own slopes are estimated whatever the log shows."""
FEWEST_ROUNDS_PER_COEFFICIENT = 2
"""The same where the log shows that the slopes of arms differ. In simulated logs with 2 rounds for each
of 105 coefficients own slopes then earned .6 of what the best linear policy could, shared ones nothing. Where
slopes did not differ, own ones cost 0.14 standard deviations of the noise with 4 rounds per coefficient.
"""
MOST_CROSSED_COEFFICIENTS = 150
"""Coefficients of a model with products of slopes and features of arms."""
TIMES = " × "
EVERY_ARM = "all arms"
BINARY_ROUNDING = 1e-9
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
        "own": p = A·d, arm after arm, level first. "partial": level and own slopes, arm after arm, then the
        shared slopes. "shared": levels, then slopes, then products with the catalogue. "pooled": the place of
        the arm, then slopes, features of the catalogue, and products.
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
        """Names of an arm's own coefficients (d,): the level, slopes of the context, of what belongs to
        the arm.
        """
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
        slopes, factors = self.context_names[1:], self.catalogue_names[: self.crossed]
        own, shared = slopes[: self.own - 1], slopes[self.own - 1 :]
        products = (f"{name}{TIMES}{slope}" for name in factors for slope in shared)
        if self.coding == "pooled":
            return ("level", *slopes, *self.catalogue_names, *products)
        of_arms = (
            (label, *(f"{label}{TIMES}{slope}" for slope in own))
            for label in self.labels
        )
        return (*chain.from_iterable(of_arms), *shared, *products)

    @property
    def population(self) -> ArmFeatures:
        """Of the "pooled" coding: what all arms share, as features of one arm; of another, these features."""
        if self.coding != "pooled":
            return self
        return ArmFeatures(
            FeatureMap(tuple(map(Column, self.names[1:]))), (EVERY_ARM,), "shared"
        )

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
        place = {name: index for index, name in enumerate(self.context.names, start=1)}
        groups = [
            [place[name] for name in names] for names in (self.matched or {}).values()
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
        names, k = self.catalogue_names, len(self.catalogue_names)
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
        own, shared = self.own_entries[:, : self.own], self.own_entries[:, self.own :]
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
        n, arms = len(codes), len(self.labels)
        own, shared = z[:, : self.own], z[:, self.own :]
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
        arms, own = len(source.labels), source.own
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
        arms = len(self.labels)
        if arms * self.width <= MOST_COEFFICIENTS:
            return replace(self, coding="own", own_slopes=0)
        own = (MOST_COEFFICIENTS - self.width) // (arms - 1)
        return (
            self
            if own <= self.own
            else replace(self, coding="partial", own_slopes=own - 1)
        )

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
        """Place of an arm; InputError names the known ones."""
        return self._places[str(label)]

    @cached_property
    def _places(self) -> Places:
        return Places(self.labels)

    # -- learning, growing and storing --

    def with_missing_indicators(self, missing: Collection[str]) -> ArmFeatures:
        """Return these features, nothing learned yet, with indicators of missing values of these columns
        as well.
        """
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
        labels, names = self.labels, self.context.encoded_names
        is_pooled = self.coding == "pooled"
        matched = {} if is_pooled else matched_features(names, labels, arm)
        owned = {name for group in matched.values() for name in group}
        pooled = (
            cells
            if is_pooled
            else cells.regrouped(np.arange(0, cells.windows, len(labels)))
        )
        plain = np.array(
            [0, *(j + 1 for j, name in enumerate(names) if name not in owned)]
        )
        shared = pooled.rescaled(plain, np.zeros(len(plain)), np.ones(len(plain)))
        collinear = collinear_features(shared, [("", *names)[j] for j in plain])
        dropped = [feature for feature in collinear if feature.name]
        gone = {feature.name for feature in dropped}
        kept = np.array(
            [j for j, name in enumerate(names) if name not in gone], dtype=np.int64
        )
        groups = [
            [1 + names.index(name) for name in group] for group in matched.values()
        ]
        shift, scale = _standardisation(pooled.chosen, 1 + kept, groups)
        context = replace(self.context, kept=kept, shift=shift, scale=scale)
        width = 1 + len(kept) - len(owned) + len(matched)
        rounds = effective_rounds(cells)
        described = 0 if catalogue is None else len(catalogue.names)
        taken = described if is_pooled else len(labels)  # by what is not a slope
        crossed = crossings(taken, width - 1, described, rounds)
        free = [j for j, place in enumerate(kept) if names[place] not in owned]
        coding, own = "pooled", 1
        why = f"{len(labels):,} arms have a level each, pooled towards their population"
        if not is_pooled:
            differ = partial(slopes_differ, cells, 1 + kept[free])
            products = 0
            if (
                catalogue is not None
                and crossed
                and not differ(catalogue.features_of(labels)[:, :crossed])
            ):
                products = crossed
            coding, own, why = chosen_coding(
                options.arm_model,
                len(labels),
                width,
                rounds,
                crossed=products,
                differ=differ(np.zeros((len(labels), 0))),
            )
        if coding == "partial":
            # The slopes that differ most between arms become the first ones, which arms have of their own.
            ranked = most_different_slopes(cells, len(labels), 1 + kept[free], own - 1)
            first = [free[j] for j in ranked]
            order = np.array(
                [*first, *(j for j in range(len(kept)) if j not in set(first))],
                dtype=np.int64,
            )
            context = replace(
                context, kept=kept[order], shift=shift[order], scale=scale[order]
            )
        slopes = own - 1 if coding == "partial" else 0
        learned = ArmFeatures(
            context, labels, coding, matched=matched, own_slopes=slopes
        )
        if catalogue is None or not catalogue.names:
            return learned, dropped, why
        learned = replace(
            learned,
            catalogue=catalogue.features_of(labels),
            catalogue_names=catalogue.names,
            catalogue_shift=catalogue.shift,
            catalogue_scale=catalogue.scale,
            catalogue_references=catalogue.references,
            crossed=crossed if coding in ("shared", "pooled") else 0,
        )
        return learned, dropped, why

    def arm_features(self, features: Mapping[str, Any]) -> Array:
        """Standardised features (k,) of an arm, from values by the columns of the catalogue; the mean
        where none is.
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
        for place, name in enumerate(self.catalogue_names):
            column, _, level = name.partition("=")
            if column in features:
                value = features[column]
                raw[place] = (
                    str(value) == level
                    if level
                    else finite_array(f"features: {column}", value, ())
                )
        return np.asarray((raw - self.catalogue_shift) / self.catalogue_scale)

    def with_arm(self, label: str, catalogue: Array | None = None) -> ArmFeatures:
        """These features with one more arm, the last; its features of the catalogue (k,) are the mean if
        not given.
        """
        if label in self.labels:
            raise InputError(
                f"arm {label!r} is there already, or was: labels are never used again"
            )
        if self.matched:
            columns = format_names(list(self.matched))
            raise InputError(
                f"arm {label!r} would need columns of its own for {columns}"
            )
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
        return replace(self, labels=(*self.labels, label), catalogue=table)


def has_binary_rewards(moments: WindowedMoments) -> bool:
    """Return whether every reward is 0 or 1: Σ r²(r − 1)² = 0."""
    sums = moments.chosen.grouped(np.array([0])).about_zero()
    squares = sums.scatter[0, -1, -1]
    cubes = sums.cubes[0, -1]
    quartics = sums.quartics[0, -1]
    return bool(abs(quartics - 2.0 * cubes + squares) <= BINARY_ROUNDING * squares)


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
    most = min(MOST_CROSSED_COEFFICIENTS, int(rounds) // ROUNDS_PER_COEFFICIENT)
    return min(max((most - arms - slopes) // max(slopes, 1), 0), names)


def chosen_coding(
    arm_model: str,
    arms: int,
    width: int,
    rounds: int,
    *,
    crossed: int = 0,
    differ: bool = True,
) -> tuple[str, int, str]:
    """Return (coding, own coefficients of every arm, why) of arms with d = `width` coefficients each.

    Slopes are own wherever the log can estimate them: they are drawn to those of the other arms, so they cost
    little where arms do not differ. Of rewards that are 0 or 1, n rounds with mean π count for 4nπ(1 − π):
    what as many with mean ½ would tell.

    Parameters
    ----------
    arm_model : str
        What the caller asked for: "own", "shared" or "auto".
    arms, width, rounds : int
        Number of arms, coefficients of each, and rounds of the log.
    crossed : int
        Number of catalogue features whose products with shared slopes explain how the slopes of arms differ.
    differ : bool
        Whether the log shows that the slopes of arms differ.

    >>> chosen_coding("auto", 8, 19, 40_000)
    ('own', 19, '8 arms × 19 coefficients')
    >>> chosen_coding("auto", 6, 257, 40_000)[:2]
    ('partial', 28)
    """
    if arm_model != "auto":
        return arm_model, width if arm_model == "own" else 1, "as asked for"
    coefficients = arms * width
    is_plenty = rounds >= ROUNDS_PER_COEFFICIENT * arms * width
    if crossed and not (is_plenty and coefficients <= MOST_CROSSED_COEFFICIENTS):
        return (
            "shared",
            1,
            f"features of the arms explain how slopes differ, {crossed} of them are crossed",
        )
    product = f"{arms} arms × {width} coefficients"
    if arms < 2:
        return "own", width, product
    if not (is_plenty or differ):
        unseen = (
            f"no difference between the slopes of arms can be seen in {rounds:,} rounds"
        )
        return (
            "shared",
            1,
            f"{unseen}, fewer than {ROUNDS_PER_COEFFICIENT} per coefficient, {coefficients:,} of them",
        )
    supported = rounds // (FEWEST_ROUNDS_PER_COEFFICIENT * arms)
    if width <= min(supported, MOST_COEFFICIENTS // arms):
        return "own", width, product
    why = f"{product} are {coefficients:,}, more than {MOST_COEFFICIENTS}"
    if width > supported:
        few = f"{rounds:,} rounds are fewer than {FEWEST_ROUNDS_PER_COEFFICIENT} per coefficient"
        why = f"{few}, {coefficients:,} of them"
    own = min(supported, (MOST_PARTIAL_COEFFICIENTS - width) // (arms - 1))
    if own < 2:
        return "shared", 1, why
    return (
        "partial",
        own,
        f"{why}; own slopes for the {own - 1} of {width - 1} that differ most",
    )


def sums_by_arm(
    cells: WindowedMoments, arms: int, columns: Array
) -> tuple[Array, Array, Array]:
    """Return Σxxᵀ (A, k, k), Σxr (A, k) and Σr² (A,) of columns x of the contexts, about the means of every
    window and arm.
    """
    sums = cells.chosen.scatter.reshape(-1, arms, cells.dim + 1, cells.dim + 1).sum(
        axis=0
    )
    return sums[:, columns[:, None], columns], sums[:, columns, -1], sums[:, -1, -1]


CLEARLY_MORE = 3.0
"""Standard errors by which own slopes must explain more than shared ones; by chance one log in 300 does."""


def slopes_differ(cells: WindowedMoments, columns: Array, catalogue: Array) -> bool:
    """Return whether own slopes explain more of the rewards than slopes that are linear in the catalogue.

    What more they explain is χ² with as many degrees of freedom as they have coefficients more, if the slopes
    of arms are linear in the catalogue's features or, if it has none, the same for all arms.

    Parameters
    ----------
    cells : WindowedMoments
        Moments of contexts, a window per window and arm.
    columns : array of int, shape (k,)
        Entries of the contexts that have slopes.
    catalogue : array, shape (A, c)
        Features of the arms.
    """
    arms, crossed = catalogue.shape
    if not len(columns):
        return False
    gram, cross, squares = sums_by_arm(cells, arms, columns)
    own = sum(_explained(G, c) for G, c in zip(gram, cross, strict=True))
    kinds = np.column_stack([np.ones(arms), catalogue])
    joint = np.sum(
        [np.kron(np.outer(f, f), G) for f, G in zip(kinds, gram, strict=True)], axis=0
    )
    pull = np.sum([np.kron(f, c) for f, c in zip(kinds, cross, strict=True)], axis=0)
    levels = int((cells.counts > 0).sum())
    freedom = float(cells.counts.sum()) - levels - arms * len(columns)
    more = len(columns) * (arms - 1 - crossed)
    left = float(squares.sum()) - own
    if more <= 0 or freedom <= 0.0 or left <= TOLERANCE * float(squares.sum()):
        return bool(
            more > 0 and freedom > 0.0
        )  # rewards without noise leave nothing to chance
    excess = (own - _explained(joint, pull)) * freedom / left - more
    return bool(excess > CLEARLY_MORE * np.sqrt(2.0 * more))


def _explained(gram: Array, cross: Array) -> float:
    """Sum of squares that the least-squares coefficients explain; a faint ridge makes the sums regular."""
    ridge = TOLERANCE * max(float(np.diagonal(gram).mean()), LEAST_SCALE)
    return float(cross @ np.linalg.solve(gram + ridge * np.eye(len(gram)), cross))


def most_different_slopes(
    cells: WindowedMoments, arms: int, columns: Array, count: int
) -> list[int]:
    """Return the places in `columns` of the slopes that differ most between arms, at most `count`.

    One after the other, the column is taken whose own slopes explain more of the rewards than one shared
    slope by the largest sum of squares; then it is regressed out of the others, arm by arm.

    Parameters
    ----------
    cells : WindowedMoments
        Moments of contexts, a window per window and arm.
    arms : int
        Number of arms A.
    columns : array of int, shape (k,)
        Entries of the contexts to choose from.
    count : int
        Number of columns to take.
    """
    gram, cross, _ = sums_by_arm(cells, arms, columns)
    least = TOLERANCE * np.einsum("akk->ak", gram).max(axis=0)
    taken: list[int] = []
    for _ in range(min(count, len(columns))):
        size = np.einsum("akk->ak", gram)
        known = size > np.maximum(least, 0.0)
        pull = np.where(known, cross, 0.0)
        size = np.where(known, size, 1.0)
        total = np.where(known, size, 0.0).sum(axis=0)
        shared = pull.sum(axis=0) ** 2 / np.where(total > 0.0, total, 1.0)
        gain = (pull**2 / size).sum(axis=0) - shared
        gain[taken] = -np.inf
        best = int(gain.argmax())
        taken.append(best)
        along = np.where(known[:, [best]], gram[:, best] / size[:, [best]], 0.0)
        cross = cross - along * cross[:, [best]]
        gram = gram - along[:, :, None] * gram[:, None, best]
    return taken


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


HARDLY_ANY = 10
"""Rounds below which a window is not worth one of its own."""


@dataclass(frozen=True)
class Pruned:
    """Moments that can be estimated, and what had to be done for it.

    Parameters
    ----------
    moments : WindowedMoments
        Moments of the features of `feature_map`.
    feature_map : FeatureMap
        The map without the features that were left out.
    dropped : tuple of Dropped
        Which features were left out and why.
    notes : tuple of str
        What was done, in words.
    """

    moments: WindowedMoments
    feature_map: FeatureMap
    dropped: tuple[Dropped, ...]
    notes: tuple[str, ...]


def fewest_rounds(dim: int) -> int:
    """Rounds that a window of `dim` features should have at least: three per coefficient, intercept
    included.
    """
    return 3 * (dim + 1)


def prune(
    moments: WindowedMoments,
    feature_map: FeatureMap,
    options: FeatureOptions | None = None,
) -> Pruned:
    """Join windows with hardly any rounds to a neighbour, learn the map, leave out what no window can
    estimate.

    A category that does not occur in a window is constant there: that window is silent about it, the others
    are not.

    Parameters
    ----------
    moments : WindowedMoments
        Moments of the features that `feature_map` expands to or, without `options`, of its features.
    feature_map : FeatureMap
        What the features are.
    options : FeatureOptions, optional
        What to learn from the moments; None if the map has been learned before.

    >>> import numpy as np
    >>> from invariant_bandits.logs.features import Column
    >>> rng = np.random.default_rng(0)
    >>> features = rng.normal(size=(90, 3))
    >>> features[:30, 1], features[:, 2] = 5.0, 1.0
    >>> moments = WindowedMoments.from_arrays(features, features[:, 0], windows=3)
    >>> pruned = prune(moments, FeatureMap((Column("price"), Column("discount"), Column("tax"))))
    >>> pruned.feature_map.names, str(pruned.dropped[0])
    (('price', 'discount'), 'tax is constant within every window')
    """
    joined, notes = _joined(moments)
    dropped: list[Dropped] = []
    if options is not None:
        feature_map, dropped = feature_map.learned(joined, options)
        joined = feature_map.standardise_moments(joined)
    unusable = {
        feature.name: feature
        for feature in collinear_features(joined, feature_map.names)
    }
    if len(unusable) == joined.dim:
        raise InputError("features: none varies within any window; use fewer windows")
    if unusable:
        stays = np.array(
            [j for j, name in enumerate(feature_map.names) if name not in unusable]
        )
        joined = joined.rescaled(stays, np.zeros(len(stays)), np.ones(len(stays)))
        feature_map = feature_map.without(unusable)
    return Pruned(joined, feature_map, (*dropped, *unusable.values()), tuple(notes))


def _joined(moments: WindowedMoments) -> tuple[WindowedMoments, list[str]]:
    """Moments without windows of hardly any rounds, and what was done in words; at least two windows must
    remain.

    What is hardly any: fewer than ten, if at least two windows have three rounds per coefficient and these
    have most of the rounds; otherwise what is fewer than that. Neighbours are merged from the first window on
    until each has enough rounds; what is left joins the last.
    """
    enough, counts = fewest_rounds(moments.dim), moments.counts
    long = counts >= enough
    carried = long.sum() >= 2 and 2.0 * float(counts[long].sum()) >= moments.rounds
    least = min(HARDLY_ANY, enough) if carried else enough
    starts, rounds = [0], 0.0
    for window, count in enumerate(counts):
        if rounds >= least:
            starts.append(window)
            rounds = 0.0
        rounds += count
    if rounds < least and len(starts) > 1:
        starts.pop()
    many, left = moments.windows, len(starts)
    if left < 2:
        needed = (
            f"at least 2 with {least} rounds each are needed for {moments.dim} features"
        )
        raise InputError(
            f"windows: {needed}, the log has {moments.rounds:,} usable rounds in {many}"
        )
    if left == many:
        return moments, []
    short = (
        f"{int((counts < least).sum())} of {many} windows had fewer than {least} rounds"
    )
    note = f"{short} and were joined to a neighbour: {left} windows remain"
    return moments.regrouped(np.array(starts)), [note]


FORMS = "a mapping of columns, a list of rows (mappings), or a frame"


def offered_columns(
    context: Any = None, actions: Any = None, *, vectors: Collection[str] = ()
) -> dict[str, list[Any]]:
    """Columns with one value per offered action, all of the same length.

    Parameters
    ----------
    context : mapping of str to value, optional
        What all actions share: one value per column. Lists are taken as one value per action.
    actions : mapping of str to list, list of mappings, or frame, optional
        What differs from action to action.
    vectors : names of columns whose values are themselves lists of numbers.

    >>> offered_columns({"hour": 9}, [{"price": 2.0}, {"price": 3.0}])
    {'hour': [9, 9], 'price': [2.0, 3.0]}
    >>> offered_columns({"hour": 9, "price": [2.0, 3.0]})
    {'hour': [9, 9], 'price': [2.0, 3.0]}
    """
    columns = {**_columns(_row(context), "context"), **_columns(actions, "actions")}
    masked = [name for name, value in columns.items() if _is_masked(value)]
    if masked:
        raise InputError(
            f"column {masked[0]!r} has masked entries: give None for what is missing"
        )
    several = {
        name: value
        for name, value in columns.items()
        if _is_many(value, name in vectors)
    }
    lengths = {name: len(value) for name, value in several.items()}
    if len(set(lengths.values())) > 1:
        raise InputError(
            f"columns must have one value per action, or one for all, got lengths {lengths}"
        )
    count = next(iter(lengths.values()), 1)
    if not columns or not count:
        raise InputError(f"nothing is offered: give {FORMS}")
    return {
        name: list(value) if name in several else [value] * count
        for name, value in columns.items()
    }


def require_columns(name: str, needed: Sequence[str], there: Collection[str]) -> None:
    """Raise InputError, which begins with the argument's name, unless all needed columns are there."""
    missing = [column for column in needed if column not in there]
    if missing:
        raise InputError(
            f"{name}: no value for {format_names(missing)}; needed: {format_names(needed)}"
        )


def one_context(context: Any) -> dict[str, Any]:
    """One value per column of a context: a mapping, a row of a frame, or a frame of one row."""
    context = _row(context)
    columns = _columns(context, "context")
    if isinstance(context, Mapping) or context is None:
        return columns
    if any(len(values) != 1 for values in columns.values()):
        raise InputError(
            "context must be one row: a mapping of columns to values, or a frame of one row"
        )
    return {name: values[0] for name, values in columns.items()}


def rows_of(contexts: Any) -> list[dict[str, Any]]:
    """Rows of a frame, of columns, or of a list of rows."""
    columns = _columns(contexts, "contexts")
    count = len(next(iter(columns.values()), ()))
    return [
        {name: values[row] for name, values in columns.items()} for row in range(count)
    ]


def like(frame: Any, columns: dict[str, list[Any]], otherwise: Any) -> Any:
    """Columns as a frame of the same kind as `frame`, or `otherwise` if that is not a frame."""
    if isinstance(frame, Mapping | Sequence):
        return otherwise
    if hasattr(frame, "column_names"):
        return type(frame).from_pydict(columns)
    index = {"index": frame.index} if hasattr(frame, "index") else {}
    return type(frame)(columns, **index)


def plain(value: Any) -> Any:
    """Return a value, or values, as numbers, text, booleans, None and lists of these: what can be written."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return (
        [plain(entry) for entry in value] if isinstance(value, list | tuple) else value
    )


def _row(source: Any) -> Any:
    """A row of a frame, as pandas gives it (a Series, a named tuple), as a mapping; any other value as it
    is.
    """
    if hasattr(source, "_asdict"):
        return source._asdict()
    is_series = (
        hasattr(source, "to_dict")
        and hasattr(source, "index")
        and not hasattr(source, "columns")
    )
    return source.to_dict() if is_series else source


def _columns(source: Any, name: str) -> dict[str, Any]:
    """Return columns from a mapping, a frame, an Arrow table or a list of rows."""
    if source is None:
        return {}
    if isinstance(source, Mapping):
        return {str(key): value for key, value in source.items()}
    if hasattr(source, "column_names"):  # Arrow
        return {key: source.column(key).to_pylist() for key in source.column_names}
    if hasattr(source, "columns"):  # pandas, polars
        return {str(key): source[key].to_numpy().tolist() for key in source.columns}
    if isinstance(source, Sequence) and not isinstance(source, str | bytes):
        return _of_rows(source, name)
    raise InputError(f"{name} must be {FORMS}, got {type(source).__name__}")


def _of_rows(rows: Sequence[Any], name: str) -> dict[str, Any]:
    if not all(isinstance(row, Mapping) for row in rows):
        raise InputError(f"{name} must be {FORMS}")
    keys = list(dict.fromkeys(str(key) for row in rows for key in row))
    for index, row in enumerate(rows):
        lacking = [key for key in keys if key not in row]
        if lacking:
            raise InputError(
                f"{name}: row {index} lacks {', '.join(lacking)}, which other rows have"
            )
    return {key: [row[key] for row in rows] for key in keys}


def _is_masked(value: Any) -> bool:
    """Whether a column, or one of its values, is a masked array."""
    entries = value if isinstance(value, list | tuple) else (value,)
    return any(isinstance(entry, np.ma.MaskedArray) for entry in entries)


def _is_many(value: Any, is_vector: bool) -> bool:
    """Whether a value of a column is one per action, not one for all."""
    has_several = (
        hasattr(value, "__len__")
        and hasattr(value, "__iter__")
        and getattr(value, "ndim", 1) > 0
    )
    if isinstance(value, str | bytes | Mapping) or not has_several:
        return False
    return not is_vector or (len(value) > 0 and not np.isscalar(value[0]))
