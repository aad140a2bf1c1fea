"""FeatureMap: raw columns → feature vectors, learned once from the logs and applied unchanged when serving.

The steps, in their order: numeric columns as they are and categorical ones as indicators of their categories;
products of columns that the user named; differences to the mean of the round; the features that are kept; shift and
scale. Everything after the products is linear, so it can also be applied to moments, exactly.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError, finite_array, one_of, whole_number
from invariant_bandits.logs.collinearity import Dropped, collinear_features
from invariant_bandits.logs.columns import Column
from invariant_bandits.moments.windowed import WindowedMoments

STANDARDISE = ("none", "scale", "scale and shift")
ARM_MODELS = ("auto", "own", "shared")


@dataclass(frozen=True)
class FeatureOptions:
    """What to make of the columns; what depends on the logs is learned from them.

    Parameters
    ----------
    interactions : tuple of str
        Products of columns, such as "price:weekend".
    standardise : str
        "none", "scale" (unit pooled standard deviation) or "scale and shift" (pooled mean zero, too).
    centre : bool
        Whether to subtract the mean of the round's offered actions: only differences matter to the choice.
    max_categories : int
        How many categories a categorical column may have; the most frequent are taken.
    drop_collinear : bool
        Whether to leave out features that are constant, or combinations of earlier ones.
    arm_model : str
        "own" coefficients per labelled arm, a level per arm and "shared" slopes, or "auto": own if the log allows.
    impute : bool
        Whether a missing value of a feature is filled in, by the mean of the column in the first rows of the log, and
        marked by a feature of its own where that is not rare; rounds with a missing value are left out otherwise.

    >>> FeatureOptions(interactions=("price:country",), standardise="scale").standardise
    'scale'
    """

    interactions: tuple[str, ...] = ()
    standardise: str = "none"
    centre: bool = False
    max_categories: int = 50
    drop_collinear: bool = True
    impute: bool = True
    arm_model: str = "auto"

    def __post_init__(self) -> None:
        if isinstance(self.interactions, str):
            raise InputError(f"interactions must be several names such as ('a:b',), got {self.interactions!r}")
        one_of("standardise", self.standardise, STANDARDISE)
        one_of("arm_model", self.arm_model, ARM_MODELS)
        whole_number("max_categories", self.max_categories, 1)


@dataclass(frozen=True, eq=False)
class FeatureMap:
    """Raw columns → feature vectors, the same for logs and when serving.

    Parameters
    ----------
    columns : tuple of Column
        The raw columns.
    interactions : tuple of str
        Products of columns or of their features, such as "price:country".
    centre : bool
        Whether the mean of the round's offered actions is subtracted.
    kept : array of int, shape (q,), or None
        Which of the expanded features (`expanded_names`) remain; None stands for all.
    shift : array, shape (q,), or None
        What is subtracted from them.
    scale : array, shape (q,), or None
        What they are then divided by.

    >>> kinds = FeatureMap((Column("price"), Column("country", ("DE", "FR"))), interactions=("price:country",))
    >>> kinds.names
    ('price', 'country=DE', 'country=FR', 'price:country=DE', 'price:country=FR')
    >>> kinds.apply({"price": [2.0, 3.0], "country": ["FR", "IT"]})
    array([[2., 0., 1., 0., 2.],
           [3., 0., 0., 0., 0.]])
    """

    columns: tuple[Column, ...]
    interactions: tuple[str, ...] = ()
    centre: bool = False
    kept: Array | None = None
    shift: Array | None = None
    scale: Array | None = None
    _blocks: dict[str, slice] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        start = 0
        for column in self.columns:
            self._blocks[column.name] = slice(start, start + len(column.features))
            start += len(column.features)
        for index, name in enumerate(self._single_names):
            self._blocks.setdefault(name, slice(index, index + 1))
        for interaction in self.interactions:
            self._check_interaction(interaction)

    def _check_interaction(self, interaction: str) -> None:
        for part in interaction.split(":"):
            if part not in self._blocks:
                names = self._single_names
                raise InputError(f"interactions: {part!r} in {interaction!r} is no feature column, got {names}")
        if ":" not in interaction:
            raise InputError(f"interactions must join columns by ':', got {interaction!r}")

    # -- names --

    @property
    def _single_names(self) -> list[str]:
        return [name for column in self.columns for name in column.features]

    @property
    def expanded_names(self) -> tuple[str, ...]:
        """Names of all features before any is left out."""
        single = self._single_names
        products = []
        for interaction in self.interactions:
            blocks = [single[self._blocks[part]] for part in interaction.split(":")]
            products += [":".join(parts) for parts in product(*blocks)]
        return (*single, *products)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features (q,)."""
        names = self.expanded_names
        return names if self.kept is None else tuple(names[index] for index in self.kept)

    @property
    def dim(self) -> int:
        """Number of features q."""
        return len(self.names)

    # -- applying --

    def apply(self, columns: Mapping[str, Any], counts: Any = None) -> Array:
        """Feature vectors (rows, q) of raw columns.

        Parameters
        ----------
        columns : mapping of str to array, shape (rows,), or (rows, width) for a vector column
            Values of the raw columns; categories that the map does not know become zeros, missing values (None or NaN)
            what the map has learned for them.
        counts : array of int, shape (rounds,), optional
            For centring: rows per round; None if all are the offered actions of one round.
        """
        return self.finish(self.expand(columns, counts))

    def expand(self, columns: Mapping[str, Any], counts: Any = None) -> Array:
        """All features (rows, len(expanded_names)), centred within rounds if that is asked for, not yet scaled."""
        rows = self._rows(columns)
        features = np.empty((rows, len(self.expanded_names)))
        for column in self.columns:
            features[:, self._blocks[column.name]] = column.expanded(columns[column.name], rows)
        start = len(self._single_names)
        for interaction in self.interactions:
            block = self._product(interaction, features)
            features[:, start : start + block.shape[1]] = block
            start += block.shape[1]
        return centred(features, counts) if self.centre else features

    @property
    def is_plain(self) -> bool:
        """Whether every column is one number that becomes one feature."""
        return not self.interactions and all(
            one.categories is None and one.width is None and not one.marks_missing for one in self.columns
        )

    def apply_numbers(self, numbers: Array) -> Array:
        """The same as `apply` for a plain map and the offered actions of one round, without missing values.

        Parameters
        ----------
        numbers : array of float, shape (rows, columns)
        """
        return self.finish(centred(numbers, None) if self.centre else numbers)

    def _product(self, interaction: str, features: Array) -> Array:
        """All products of the features of the columns that an interaction joins."""
        block = np.ones((len(features), 1))
        for part in interaction.split(":"):
            factor = features[:, self._blocks[part]]
            block = (block[:, :, None] * factor[:, None, :]).reshape(len(features), -1)
        return block

    def finish(self, expanded: Array) -> Array:
        """Features (rows, q): what `expand` gave, (rows, len(expanded_names)), left out, shifted and scaled."""
        features = expanded if self.kept is None else expanded[:, self.kept]
        if self.shift is not None:
            features = features - self.shift
        return features if self.scale is None else features / self.scale

    def finish_moments(self, moments: WindowedMoments) -> WindowedMoments:
        """The same for moments of what `expand` gave."""
        if self.kept is None and self.scale is None and self.shift is None:
            return moments
        kept = np.arange(moments.dim) if self.kept is None else self.kept
        shift = np.zeros(len(kept)) if self.shift is None else self.shift
        return moments.rescaled(kept, shift, np.ones(len(kept)) if self.scale is None else self.scale)

    def _rows(self, columns: Mapping[str, Any]) -> int:
        if not self.columns:
            raise InputError("columns is empty: at least one feature column is needed")
        missing = [column.name for column in self.columns if column.name not in columns]
        if missing:
            raise InputError(f"columns lack {', '.join(missing)}; needed: {', '.join(c.name for c in self.columns)}")
        lengths = {column.name: np.shape(columns[column.name])[:1] for column in self.columns}
        if len(set(lengths.values())) > 1 or () in lengths.values():
            raise InputError(f"columns must have one value per row, got lengths {lengths}")
        return int(next(iter(lengths.values()))[0])

    # -- learning --

    def marking(self, missing: Collection[str]) -> FeatureMap:
        """This map, nothing learned yet, with a mark of missing values for the columns of these names, too."""
        columns = tuple(replace(one, marks_missing=True) if one.name in missing else one for one in self.columns)
        return FeatureMap(columns, self.interactions, self.centre)

    def learned(self, moments: WindowedMoments, options: FeatureOptions) -> tuple[FeatureMap, list[Dropped]]:
        """(this map with what to keep, shift and scale, the features that are left out).

        Parameters
        ----------
        moments : WindowedMoments
            Moments of the expanded features of this map.
        options : FeatureOptions
            What to learn from them.
        """
        dropped = collinear_features(moments, self.expanded_names) if options.drop_collinear else []
        gone = {one.name for one in dropped}
        kept = np.array([i for i, name in enumerate(self.expanded_names) if name not in gone], dtype=np.int64)
        if not len(kept):
            raise InputError("features: none is left, all are constant within every window of the logs")
        shift, scale = _standardisation(moments, kept, options.standardise)
        return replace(self, kept=kept if gone else None, shift=shift, scale=scale), dropped

    def without(self, gone: Collection[str]) -> FeatureMap:
        """This map without the features of these names."""
        stays = np.array([name not in gone for name in self.names])
        if not stays.any():
            raise InputError("features: none is left")
        kept = np.arange(len(self.expanded_names)) if self.kept is None else self.kept
        shift = None if self.shift is None else self.shift[stays]
        return replace(self, kept=kept[stays], shift=shift, scale=None if self.scale is None else self.scale[stays])

    def shifted(self, mean: Array) -> FeatureMap:
        """This map with `mean` (q,) taken off its features."""
        scale = np.ones(self.dim) if self.scale is None else self.scale
        before = np.zeros(self.dim) if self.shift is None else self.shift
        return replace(self, shift=before + scale * finite_array("mean", mean, (self.dim,)))

    # -- storing --

    def describe(self) -> dict[str, Any]:
        """Everything but the arrays, as plain JSON-able values."""
        columns = [asdict(column) for column in self.columns]
        return {"columns": columns, "interactions": list(self.interactions), "centre": self.centre}

    def arrays(self) -> dict[str, Array]:
        """The arrays, by name; those that are None are left out."""
        named = {"kept": self.kept, "shift": self.shift, "scale": self.scale}
        return {name: array for name, array in named.items() if array is not None}

    @classmethod
    def rebuilt(cls, described: Mapping[str, Any], arrays: Mapping[str, Array]) -> FeatureMap:
        """The map that `describe` and `arrays` came from."""
        columns = tuple(Column.rebuilt(one) for one in described["columns"])
        return cls(columns, tuple(described["interactions"]), bool(described["centre"]), **arrays)


def _standardisation(moments: WindowedMoments, kept: Array, how: str) -> tuple[Array | None, Array | None]:
    """(shift, scale), each (q,) or None, from the offered actions or, if there are none, the chosen ones."""
    if how == "none":
        return None, None
    pooled = (moments.offered or moments.chosen).grouped(np.array([0]))
    deviation = np.sqrt(np.diagonal(pooled.covariance()[0]))[kept]
    shift = pooled.mean[0, kept] if how == "scale and shift" else None
    return shift, np.where(deviation > 0.0, deviation, 1.0)


def centred(rows: Array, counts: Any = None) -> Array:
    """Rows minus the mean of their round.

    Parameters
    ----------
    rows : array, shape (n, p)
        Features of offered actions, round after round.
    counts : array of int, shape (rounds,), optional
        Rows per round; None if all belong to one round.

    >>> import numpy as np
    >>> centred(np.array([[1.0], [3.0], [7.0]]), [2, 1])
    array([[-1.],
           [ 1.],
           [ 0.]])
    """
    counts = np.array([len(rows)]) if counts is None else np.asarray(counts)
    if counts.ndim != 1 or counts.dtype.kind not in "iu" or (counts < 1).any() or counts.sum() != len(rows):
        raise InputError(f"counts must be positive whole numbers that add up to the {len(rows)} rows, got {counts}")
    starts = np.cumsum(counts) - counts
    means = np.add.reduceat(rows, starts, axis=0) / counts[:, None]
    return np.asarray(rows - np.repeat(means, counts, axis=0))
