"""RowFeatures: raw columns → features, learned once from the logs and applied unchanged when serving.

The steps, in their order: numeric columns as they are and categorical ones as indicators of their categories;
products of columns that the user named; differences to the mean of the round; the features that are kept;
shift and scale. Everything after the products is linear, so it can also be applied to moments, exactly.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Annotated, Any, ClassVar

import numpy as np

from invariant_bandits.checks import Array, InputError, finite_array
from invariant_bandits.features.catalogue import LEAST_SCALE, Catalogue
from invariant_bandits.features.collinearity import collinear_features
from invariant_bandits.features.columns import Column, column_length
from invariant_bandits.features.maps import FeatureMap, FeatureOptions, LearnedMap
from invariant_bandits.features.serving import require_columns
from invariant_bandits.moments.batches import checked_counts
from invariant_bandits.moments.power_sums import PowerSums
from invariant_bandits.moments.windowed import WindowedMoments
from invariant_bandits.storage import ArraySpec


@dataclass(frozen=True, eq=False)
class RowFeatures(FeatureMap):
    """Raw columns that describe an action → its features; also the context of labelled arms.

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
    >>> kinds = RowFeatures(columns, interactions=("price:country",))
    >>> kinds.names
    ('price', 'country=DE', 'country=FR', 'price:country=DE', 'price:country=FR')
    >>> kinds.design({"price": [2.0, 3.0], "country": ["FR", "IT"]})
    array([[2., 0., 1., 0., 2.],
           [3., 0., 0., 0., 0.]])
    """

    labels: ClassVar[tuple[str, ...]] = ()
    arm: ClassVar[str | None] = None
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

    @property
    def encoded_names(self) -> tuple[str, ...]:
        """Names of all features before any is left out."""
        return self._encoded_names

    @cached_property
    def _encoded_names(self) -> tuple[str, ...]:
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

    # -- applying --

    def encode(
        self, columns: Mapping[str, Any], counts: Any = None, *, level: bool = False
    ) -> Array:
        """Return all features (rows, len(encoded_names)), not yet scaled.

        They are centred within rounds if that is asked for; with `level`, they stand behind a column of
        ones.
        """
        rows = self._rows(columns)
        whole = np.ones((rows, level + len(self._encoded_names)))
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
        # A derived class may encode columns in another way.
        is_usual = type(self) is RowFeatures and not self.interactions
        return is_usual and all(
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
        """Return which encoded features stay, their shifts and their scales, each (q,)."""
        kept = np.arange(len(self.encoded_names)) if self.kept is None else self.kept
        shift = np.zeros(len(kept)) if self.shift is None else self.shift
        return kept, shift, np.ones(len(kept)) if self.scale is None else self.scale

    def missing_shares(self, mean: Array | None = None) -> dict[str, float]:
        """Return the share of rows with a missing value, by the features that indicate missing values."""
        if self.centre:
            return {}
        _, shift, scale = self.standardisation()
        means = shift + scale * (0.0 if mean is None else mean)
        shares = dict(zip(self.names, means.tolist(), strict=True))
        indicators = [c.features[-1] for c in self.columns if c.marks_missing]
        return {name: shares[name] for name in indicators if name in shares}

    def _rows(self, columns: Mapping[str, Any]) -> int:
        require_columns("columns", [column.name for column in self.columns], columns)
        lengths = {
            column.name: column_length(columns[column.name]) for column in self.columns
        }
        if len(set(lengths.values())) != 1 or () in lengths.values():
            raise InputError(
                f"columns must have one value per row, got lengths {lengths}"
            )
        return int(next(iter(lengths.values()))[0])

    # -- learning --

    def with_missing_indicators(self, missing: Collection[str]) -> RowFeatures:
        """Return this map, nothing learned yet, with indicators of missing values of these columns."""
        columns = (
            replace(c, marks_missing=c.marks_missing or c.name in missing)
            for c in self.columns
        )
        return replace(self, columns=tuple(columns))

    def learned(
        self,
        moments: WindowedMoments,
        options: FeatureOptions,
        catalogue: Catalogue | None = None,
    ) -> LearnedMap:
        """Return this map with what to keep, shift and scale, learned from moments of encoded rows."""
        dropped = []
        if options.drop_collinear:
            dropped = collinear_features(moments, self.encoded_names)
        gone = {feature.name for feature in dropped}
        kept = np.flatnonzero([name not in gone for name in self.encoded_names])
        if not len(kept):
            raise InputError(
                "features: none is left, all are constant within every window of the logs"
            )
        learned = replace(self, kept=kept if gone else None, shift=None, scale=None)
        if options.standardise != "none":
            mean, scale = means_and_scales(moments.offered or moments.chosen, kept)
            shift = mean if options.standardise == "scale and shift" else None
            learned = replace(learned, shift=shift, scale=scale)
        return LearnedMap(learned, tuple(dropped))

    def without(self, gone: Collection[str]) -> RowFeatures:
        """This map without the features of these names."""
        stays = np.array([name not in gone for name in self.names])
        shift = None if self.shift is None else self.shift[stays]
        scale = None if self.scale is None else self.scale[stays]
        return replace(
            self, kept=self.standardisation()[0][stays], shift=shift, scale=scale
        )

    def reordered(self, first: Array) -> RowFeatures:
        """This map with the features of these indices first, and the others after them in their order."""
        kept, shift, scale = self.standardisation()
        others = np.setdiff1d(np.arange(len(kept)), first)
        order = np.concatenate([first, others]).astype(np.int64)
        return replace(self, kept=kept[order], shift=shift[order], scale=scale[order])

    def shifted(self, mean: Array) -> RowFeatures:
        """This map with `mean` (q,) taken off its features."""
        _, before, scale = self.standardisation()
        return replace(
            self, shift=before + scale * finite_array("mean", mean, (self.dim,))
        )


def means_and_scales(
    sums: PowerSums, kept: Array, groups: Any = ()
) -> tuple[Array, Array]:
    """(mean, standard deviation) of the kept variables, each (q,); a group has one of each."""
    whole = sums.grouped(np.array([0]))
    mean = whole.mean[0]
    variance = np.diagonal(whole.covariance()[0]).copy()
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
