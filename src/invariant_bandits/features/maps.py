"""FeatureMap: what every map from (context, action) to φ can be asked, and the options to learn one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from invariant_bandits.checks import Array, InputError, one_of, whole_number
from invariant_bandits.features.catalogue import Catalogue
from invariant_bandits.features.collinearity import Dropped
from invariant_bandits.features.columns import Column
from invariant_bandits.moments.windowed import WindowedMoments

if TYPE_CHECKING:
    from invariant_bandits.features.arm_moments import ArmMoments

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


@dataclass(frozen=True)
class CoefficientGroups:
    """Which of p coefficients belong to which arm: first `own` ones of every arm, then `shared` ones.

    Parameters
    ----------
    arms : int
        Number of arms A; 0 if actions have no labels.
    own : int
        Number of coefficients that every arm has of its own, its intercept first.
    shared : int
        Number of coefficients that all arms, or all actions, have in common.

    >>> groups = CoefficientGroups(arms=3, own=2, shared=4)
    >>> groups.dim, groups.arm(1)
    (10, slice(2, 4, None))
    """

    arms: int
    own: int
    shared: int = 0

    @property
    def own_dim(self) -> int:
        """Number of coefficients that belong to an arm; the shared ones stand behind them."""
        return self.arms * self.own

    @property
    def dim(self) -> int:
        """Number of coefficients p."""
        return self.own_dim + self.shared

    def arm(self, index: int) -> slice:
        """Return the own coefficients of an arm."""
        return slice(index * self.own, (index + 1) * self.own)


class LearnedMap(NamedTuple):
    """A feature map that was learned from a log.

    Attributes
    ----------
    features : FeatureMap
        The map.
    dropped : tuple of Dropped
        Features that were left out, with the reason.
    reason : str
        Which coefficients arms share and why; empty if actions have no labels.
    """

    features: FeatureMap
    dropped: tuple[Dropped, ...]
    reason: str = ""


class FeatureMap(Protocol):
    """Rule that turns raw columns, and the label of an arm, into q features, for logs and live decisions.

    Derive from this class, or from one of the four maps of the library. A log is read in three steps: the
    columns of every row are encoded, encoded rows are standardised, and `cross` makes φ of them. Moments are
    summed of encoded rows, because everything that follows is linear.

    >>> from invariant_bandits.features.columns import Column
    >>> from invariant_bandits.features.rows import RowFeatures
    >>> features = RowFeatures((Column("price"), Column("country", categories=("DE", "FR"))))
    >>> features.names
    ('price', 'country=DE', 'country=FR')
    >>> features.design({"price": [1.0, 2.0], "country": ["FR", "DE"]}).tolist()
    [[1.0, 0.0, 1.0], [2.0, 1.0, 0.0]]
    """

    has_levels: ClassVar[bool] = False
    """Whether the features hold an intercept, so that a model needs no other."""

    if TYPE_CHECKING:  # fields of some maps, properties of others

        @property
        def columns(self) -> tuple[Column, ...]:
            """Raw columns from which the features are computed."""
            ...

        @property
        def centre(self) -> bool:
            """Whether the mean over the actions offered in a round is subtracted."""
            ...

        @property
        def labels(self) -> tuple[str, ...]:
            """Labels of the arms; none if the columns describe the actions."""
            ...

        @property
        def arm(self) -> str | None:
            """Column of the labels of arms; None if the columns describe the actions."""
            ...

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the q features."""
        ...

    @property
    def encoded_names(self) -> tuple[str, ...]:
        """Names of the numbers in an encoded row, before any is left out."""
        ...

    @property
    def dim(self) -> int:
        """Number of features q."""
        return len(self.names)

    def groups(self) -> CoefficientGroups:
        """Return which coefficients belong to which arm, and which are shared."""
        return CoefficientGroups(arms=0, own=0, shared=self.dim)

    # -- one round, or many --

    def design(self, offered: Mapping[str, Any], counts: Any = None) -> Array:
        """Return the q features of every offered action, as an array (K, q).

        Parameters
        ----------
        offered : mapping of str to array, shape (K,), or (K, width) for a vector column
            Values of the raw columns by name, one per action. Unknown categories are encoded as zeros.
            Missing values (None or NaN) are replaced by values that were learned from the log.
        counts : array of int, shape (rounds,), optional
            Number of actions of each round, for centring; by default all belong to one round.
        """
        return self.standardise(self.encode(offered, counts))

    def encode(self, columns: Mapping[str, Any], counts: Any = None) -> Array:
        """Return encoded rows (rows, len(encoded_names)) of raw columns."""
        ...

    def standardise(self, encoded: Array) -> Array:
        """Return encoded rows without what is left out, shifted and scaled."""
        ...

    def cross(self, rows: Array, arms: Any = None) -> Array:
        """Return φ (n, q) of standardised rows and of the indices (n,) of the arms."""
        return rows

    def cross_rows(self, rows: Array) -> Array:
        """Return φ (n, q) of standardised rows; of labelled arms with the position of an arm behind them."""
        return rows

    def own_contexts(self, contexts: Array, codes: Array) -> Array:
        """Return standardised rows (n, d) with only what concerns the arms of these indices (n,)."""
        return contexts

    # -- reading a log --

    @property
    def cells(self) -> int:
        """Number of moments per window: one per arm where each arm has its own."""
        return 1

    def cell_of(self, window: Array, arms: Any) -> Array:
        """Return to which moments rounds (n,) of these windows and arms are added."""
        return window

    @property
    def sample_size(self) -> int:
        """Number of rounds to sample from a log while its moments are summed."""
        return 0

    def standardise_moments(self, moments: WindowedMoments) -> WindowedMoments:
        """Return moments of standardised rows from those of encoded rows."""
        ...

    def arm_moments(self, moments: WindowedMoments, edges: Any) -> ArmMoments | None:
        """Return moments of standardised rows by arm, if there are such."""
        return None

    def with_missing_indicators(self, missing: Collection[str]) -> FeatureMap:
        """Return this map, nothing learned yet, with indicators of missing values of these columns."""
        ...

    def learned(
        self,
        moments: WindowedMoments,
        options: FeatureOptions,
        catalogue: Catalogue | None = None,
    ) -> LearnedMap:
        """Return this map with what to keep, shift and scale.

        Parameters
        ----------
        moments : WindowedMoments
            Moments of encoded rows, `cells` per window.
        options : FeatureOptions
            What to learn from them.
        catalogue : Catalogue, optional
            Features of the arms.
        """
        return LearnedMap(self, ())

    def without(self, gone: Collection[str]) -> FeatureMap:
        """Return this map without the features of these names; asked of maps without levels only."""
        raise TypeError(f"{type(self).__name__} keeps all its features")

    def shifted(self, mean: Array) -> FeatureMap:
        """Return this map with `mean` (q,) taken off its features; asked of maps without levels only."""
        raise TypeError(f"{type(self).__name__} keeps its levels")

    def with_labels(self, labels: Sequence[str]) -> FeatureMap:
        """Return this map with those labels as new arms that it lacks; asked of labelled arms only."""
        return self

    # -- saying what a model can do --

    def missing_shares(self, mean: Array | None = None) -> dict[str, float]:
        """Return the share of rows with a missing value, by the features that indicate missing values.

        mean: of all features, shape (q,); 0 if not given, as after standardising.
        """
        return {}

    def silent_context(self) -> str | None:
        """Return in words which columns cannot change the choice and what to do; None if all of them can."""
        return None
