"""FeatureMap: raw columns → feature vectors, learned once from the logs and applied unchanged when serving.

The steps, in their order: numeric columns as they are and categorical ones as indicators of their categories;
products of columns that the user named; differences to the mean of the round; the features that are kept; shift and
scale. Everything after the products is linear, so it can also be applied to moments, exactly.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError, finite_array, one_of, whole_number
from invariant_bandits.moments.windowed import WindowedMoments

STANDARDISE = ("none", "scale", "scale and shift")


@dataclass(frozen=True)
class FeatureOptions:
    """What to make of the columns; what depends on the logs is learned from them.

    interactions: products of columns, such as "price:weekend"; standardise: "none", "scale" (unit pooled standard
    deviation) or "scale and shift" (and pooled mean zero); centre: subtract the mean of the round's offered actions;
    max_categories: how many categories a categorical column may have, the most frequent are taken;
    drop_collinear: leave out features that are constant, or combinations of earlier ones.
    """

    interactions: tuple[str, ...] = ()
    standardise: str = "none"
    centre: bool = False
    max_categories: int = 50
    drop_collinear: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.interactions, str):
            raise InputError(f"interactions must be several names such as ('a:b',), got {self.interactions!r}")
        one_of("standardise", self.standardise, STANDARDISE)
        whole_number("max_categories", self.max_categories, 1)


@dataclass(frozen=True)
class Column:
    """One raw column: numeric (both None), categorical (its categories) or a vector of `width` numbers per row."""

    name: str
    categories: tuple[str, ...] | None = None
    width: int | None = None

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features that it becomes."""
        if self.categories is not None:
            return tuple(f"{self.name}={category}" for category in self.categories)
        if self.width is not None:
            return tuple(f"{self.name}[{index}]" for index in range(self.width))
        return (self.name,)


@dataclass(frozen=True, eq=False)
class FeatureMap:
    """Raw columns → feature vectors.

    kept (q,) indexes the expanded features (`expanded_names`) that remain; shift and scale (q,) are applied to them.
    None stands for all of them, unshifted and unscaled.

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
        if not self.columns:
            raise InputError("columns is empty: at least one feature column is needed")
        names = [name for column in self.columns for name in column.features]
        start = 0
        for column in self.columns:
            self._blocks[column.name] = slice(start, start + len(column.features))
            start += len(column.features)
        for index, name in enumerate(names):
            self._blocks.setdefault(name, slice(index, index + 1))
        for interaction in self.interactions:
            for part in interaction.split(":"):
                if part not in self._blocks:
                    raise InputError(f"interactions: {part!r} in {interaction!r} is no feature column, got {names}")
            if ":" not in interaction:
                raise InputError(f"interactions must join columns by ':', got {interaction!r}")

    # -- names --

    @property
    def expanded_names(self) -> tuple[str, ...]:
        """Names of all features before any is left out."""
        single = [name for column in self.columns for name in column.features]
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
        """Feature vectors (rows, q) of the raw columns, each (rows,), or (rows, width) for a vector column.

        With centring, the rows are the offered actions of one round, or of several with so many rows (`counts`) each.
        """
        return self.finish(self.expand(columns, counts))

    def expand(self, columns: Mapping[str, Any], counts: Any = None) -> Array:
        """All features (rows, len(expanded_names)), centred within rounds if that is asked for, not yet scaled."""
        rows = self._rows(columns)
        single = sum(len(column.features) for column in self.columns)
        features = np.empty((rows, len(self.expanded_names)))
        for column in self.columns:
            features[:, self._blocks[column.name]] = _block(column, columns[column.name], rows)
        start = single
        for interaction in self.interactions:
            block = np.ones((rows, 1))
            for part in interaction.split(":"):
                factor = features[:, self._blocks[part]]
                block = (block[:, :, None] * factor[:, None, :]).reshape(rows, -1)
            features[:, start : start + block.shape[1]] = block
            start += block.shape[1]
        return centred(features, counts) if self.centre else features

    def finish(self, expanded: Array) -> Array:
        """Leave out, shift and scale what `expand` gave."""
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

    def unseen(self, columns: Mapping[str, Any]) -> dict[str, int]:
        """How many rows have a category that this map does not know, per categorical column; they become zeros."""
        found = {}
        for column in self.columns:
            if column.categories is not None:
                known = set(column.categories)
                found[column.name] = sum(word not in known for word in _texts(columns[column.name]))
        return found

    def _rows(self, columns: Mapping[str, Any]) -> int:
        missing = [column.name for column in self.columns if column.name not in columns]
        if missing:
            raise InputError(f"columns lack {', '.join(missing)}; needed: {', '.join(c.name for c in self.columns)}")
        lengths = {column.name: np.shape(columns[column.name])[:1] for column in self.columns}
        if len(set(lengths.values())) > 1 or () in lengths.values():
            raise InputError(f"columns must have one value per row, got lengths {lengths}")
        return int(next(iter(lengths.values()))[0])

    # -- learning --

    def learned(self, moments: WindowedMoments, options: FeatureOptions) -> tuple[FeatureMap, list[Dropped]]:
        """This map with what the moments of its expanded features say: which to keep, shift and scale."""
        dropped = collinear_features(moments, self.expanded_names) if options.drop_collinear else []
        gone = {one.name for one in dropped}
        kept = np.array([i for i, name in enumerate(self.expanded_names) if name not in gone], dtype=np.int64)
        if not len(kept):
            raise InputError("features: none is left, all are constant within every window of the logs")
        shift = scale = None
        if options.standardise != "none":
            pooled = (moments.offered or moments.chosen).grouped(np.array([0]))
            deviation = np.sqrt(np.diagonal(pooled.covariance()[0]))[kept]
            scale = np.where(deviation > 0.0, deviation, 1.0)
            shift = pooled.mean[0, kept] if options.standardise == "scale and shift" else None
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
        columns = [{"name": c.name, "categories": c.categories, "width": c.width} for c in self.columns]
        return {"columns": columns, "interactions": list(self.interactions), "centre": self.centre}

    def arrays(self) -> dict[str, Array]:
        """The arrays, by name; those that are None are left out."""
        named = {"kept": self.kept, "shift": self.shift, "scale": self.scale}
        return {name: array for name, array in named.items() if array is not None}

    @classmethod
    def rebuilt(cls, described: Mapping[str, Any], arrays: Mapping[str, Array]) -> FeatureMap:
        """The map that `describe` and `arrays` came from."""
        columns = tuple(
            Column(c["name"], None if c["categories"] is None else tuple(c["categories"]), c["width"])
            for c in described["columns"]
        )
        return cls(columns, tuple(described["interactions"]), bool(described["centre"]), **arrays)


@dataclass(frozen=True)
class Dropped:
    """A feature that was left out: constant, or the combination of others (name → coefficient).

    window: the first one in which that is so, counted from 0; None if it is so in all of them.
    """

    name: str
    combination: Mapping[str, float]
    window: int | None = None

    def __str__(self) -> str:
        if not self.combination:
            where = "every window" if self.window is None else f"window {self.window + 1}"
            return f"{self.name} is constant within {where}"
        terms = " ".join(f"{value:+.4g}·{name}" for name, value in self.combination.items())
        where = "per window" if self.window is None else f"in window {self.window + 1}"
        return f"{self.name} = {terms} + a constant {where}"


def collinear_features(moments: WindowedMoments, names: Sequence[str], tolerance: float = 1e-9) -> list[Dropped]:
    """Features whose variance within windows is explained by earlier ones up to a share of `tolerance`.

    Cholesky of the pooled correlation matrix, row by row in the order of the features: a pivot is the share of a
    feature's variance that the earlier, kept ones leave. Both the chosen and the offered actions must leave some.
    """
    dropped: list[Dropped] = []
    kept = list(range(moments.dim))
    all_sums = [moments.chosen] if moments.offered is None else [moments.offered, moments.chosen]
    for sums in all_sums:
        gram = sums.scatter[:, : moments.dim, : moments.dim].sum(axis=0)
        level = np.abs(sums.mean[:, : moments.dim]).max(axis=0)
        least = sums.count.sum() * (1e-12 * level) ** 2
        alive = np.diagonal(gram) > least
        dropped += [Dropped(names[j], {}) for j in kept if not alive[j]]
        kept, candidates = [], [j for j in kept if alive[j]]
        size = np.sqrt(np.where(alive, np.diagonal(gram), 1.0))
        correlation = gram / np.outer(size, size)
        factor = np.zeros((0, 0))
        for j in candidates:
            row = _forward(factor, correlation[kept, j])
            pivot = 1.0 - row @ row
            if pivot <= tolerance:
                weights = _backward(factor, row) * size[j] / size[kept]
                share = np.abs(weights) * size[kept] / size[j]
                terms = {names[k]: float(weights[i]) for i, k in enumerate(kept) if share[i] > 1e-6}
                dropped.append(Dropped(names[j], terms))
                continue
            factor = np.block([[factor, np.zeros((len(kept), 1))], [row[None, :], np.sqrt(pivot)]])
            kept.append(j)
    return dropped


def _forward(factor: Array, values: Array) -> Array:
    from scipy.linalg import solve_triangular

    return np.asarray(solve_triangular(factor, values, lower=True)) if len(values) else np.zeros(0)


def _backward(factor: Array, values: Array) -> Array:
    from scipy.linalg import solve_triangular

    return np.asarray(solve_triangular(factor.T, values, lower=False))


def _block(column: Column, values: Any, rows: int) -> Array:
    """The features of one column (rows, its number of features)."""
    if column.categories is not None:
        index = {category: place for place, category in enumerate(column.categories)}
        places = np.array([index.get(word, -1) for word in _texts(values)], dtype=np.int64)
        block = np.zeros((rows, len(column.categories)))
        known = np.flatnonzero(places >= 0)
        block[known, places[known]] = 1.0
        return block
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"column {column.name!r} must be numbers: {error}") from None
    wanted = (rows,) if column.width is None else (rows, column.width)
    if array.shape != wanted:
        raise InputError(f"column {column.name!r} must have shape {wanted}, got {array.shape}")
    return array.reshape(rows, -1)


def _texts(values: Any) -> list[str]:
    """Categories as text, whatever they are."""
    words: list[Any] = np.asarray(values).tolist()
    return [word if isinstance(word, str) else str(word) for word in words]


def centred(rows: Array, counts: Any = None) -> Array:
    """Rows (n, p) minus the mean of their round; counts: rows per round, None if all belong to one round."""
    counts = np.array([len(rows)]) if counts is None else np.asarray(counts)
    if counts.ndim != 1 or counts.dtype.kind not in "iu" or (counts < 1).any() or counts.sum() != len(rows):
        raise InputError(f"counts must be positive whole numbers that add up to the {len(rows)} rows, got {counts}")
    starts = np.cumsum(counts) - counts
    means = np.add.reduceat(rows, starts, axis=0) / counts[:, None]
    return np.asarray(rows - np.repeat(means, counts, axis=0))
