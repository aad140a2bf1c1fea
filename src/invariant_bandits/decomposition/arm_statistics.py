"""Labelled arms: where their coefficients stand, and what a log says of them, window by window, in additive
sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from invariant_bandits.checks import (
    Array,
    InputError,
    finite_array,
    one_of,
    whole_number,
)
from invariant_bandits.decomposition.fit_constants import ARM, TINY
from invariant_bandits.decomposition.paths import (
    CONSTANT,
    EXACT,
    MissingColumn,
    missing_columns,
)
from invariant_bandits.features.arm_maps import ArmFeatures
from invariant_bandits.features.arm_moments import ArmSample
from invariant_bandits.features.maps import CoefficientGroups
from invariant_bandits.features.sharing import needs_blocks
from invariant_bandits.moments.windowed import WindowedMoments


@dataclass(frozen=True)
class ArmLayout(CoefficientGroups):
    """Coordinates of A arms, in the groups that their feature map says.

    >>> ArmLayout.of(arms=3, width=2, coding="own"), ArmLayout.of(arms=3, width=2, coding="shared").dim
    (ArmLayout(arms=3, own=2, shared=0), 4)
    """

    @classmethod
    def of(
        cls, *, arms: int, width: int, coding: str = "own", catalogue: int = 0
    ) -> ArmLayout:
        """The layout of arms with contexts z of `width` numbers, 1 first, and `catalogue` features of every
        arm.

        own: φ = e_a ⊗ z. shared: φ = [e_a, x], z = [1, x]; with features f of the arms φ = [e_a, x, f(a) ⊗
        x].
        """
        if one_of("coding", coding, ("own", "shared")) == "own":
            return cls(arms, width)
        return cls(arms, 1, (width - 1) * (1 + catalogue))

    @classmethod
    def of_features(cls, features: ArmFeatures) -> ArmLayout:
        """The layout of the features φ(x, a) that a log was read with."""
        groups = features.groups()
        return cls(groups.arms, groups.own, groups.shared)

    @property
    def is_wide(self) -> bool:
        """Whether covariances are kept in one block per arm."""
        return needs_blocks(self.arms, self.own)

    @property
    def groups(self) -> Array:
        """Common directions (p, own): column k is one for the k-th own coefficient of every arm."""
        result = np.zeros((self.dim, self.own))
        result[: self.own_dim] = np.tile(np.eye(self.own), (self.arms, 1))
        return result

    @property
    def to_one_arm(self) -> Array:
        """The linear map (p, own + shared) of coefficients that are the same for all arms."""
        result = np.zeros((self.dim, self.own + self.shared))
        result[:, : self.own] = self.groups
        result[self.own_dim :, self.own :] = np.eye(self.shared)
        return result

    def by_arm(self, values: Array) -> Array:
        """The own part of coefficients (..., p) as (..., A, own)."""
        own = values[..., : self.own_dim]
        return own.reshape(*own.shape[:-1], self.arms, self.own)

    def features(
        self,
        contexts: Array,
        arms: np.ndarray[Any, Any],
        catalogue: Array | None = None,
    ) -> Array:
        """φ (n, p) of rounds with contexts z (n, d), 1 first, and arms (n,); catalogue: features of the arms
        (A, c).
        """
        n = len(contexts)
        result = np.zeros((n, self.dim))
        own = np.arange(self.own)
        result[np.arange(n)[:, None], arms[:, None] * self.own + own] = contexts[:, own]
        if self.shared:
            slopes = contexts[:, self.own :]
            crossed = self.own_dim + slopes.shape[1]
            result[:, self.own_dim : crossed] = slopes
            if catalogue is not None and catalogue.size:
                result[:, crossed:] = (
                    catalogue[arms][:, :, None] * slopes[:, None, :]
                ).reshape(n, -1)
        return result

    def coordinates_without(self, arm: int) -> np.ndarray[Any, Any]:
        """Coordinates that are left without an arm."""
        if not 0 <= arm < self.arms:
            raise InputError(f"arm must be from 0 to {self.arms - 1}, got {arm!r}")
        if self.arms < 2:
            raise InputError("the last arm cannot be taken out")
        every = np.arange(self.dim)
        return np.delete(every, every[self.arm(arm)])

    def insertion(self, weights: Array) -> Array:
        """The linear map (p', p) that puts the mean of the arms with these weights (A,) behind them as a new
        arm.
        """
        new = np.zeros((self.own, self.dim))
        new[:, : self.own_dim] = np.kron(weights[None, :], np.eye(self.own))
        return np.insert(np.eye(self.dim), np.full(self.own, self.own_dim), new, axis=0)


class LogitSums(NamedTuple):
    """One pass over the rounds at coefficients θ: π = σ(φᵀθ), h = π(1 − π).

    Attributes
    ----------
    theta : array, shape (p,)
        Where the pass was made.
    information : array, shape (m, p, p)
        Σhφφᵀ of every window.
    gradient : array, shape (m, p)
        Σφ(r − π).
    log_likelihood : float
        Σ r·log π + (1 − r)·log(1 − π).
    variance : float
        Σh.
    """

    theta: Array
    information: Array
    gradient: Array
    log_likelihood: float
    variance: float


def sum_logit(
    rounds: Iterable[tuple[Array, Array, Array]], theta: Array, windows: int
) -> LogitSums:
    """One pass over chunks of rounds: features (n, p), rewards from 0 to 1 (n,) and windows (n,)."""
    p = len(theta)
    log_likelihood = 0.0
    variance = 0.0
    information, gradient = np.zeros((windows, p, p)), np.zeros((windows, p))
    for features, rewards, window in rounds:
        odds = np.clip(features @ theta, -ARM.largest_odds, ARM.largest_odds)
        chance = 1.0 / (1.0 + np.exp(-odds))
        spread = chance * (1.0 - chance)
        for i in np.unique(window):
            at = window == i
            rows = features[at]
            information[i] += rows.T @ (rows * spread[at, None])
            gradient[i] += rows.T @ (rewards - chance)[at]
        log_likelihood += float(rewards @ odds - np.logaddexp(0.0, odds).sum())
        variance += float(spread.sum())
    return LogitSums(theta, information, gradient, log_likelihood, variance)


def fit_logistic(
    evaluate: Callable[[Array], LogitSums], layout: ArmLayout
) -> LogitSums:
    """The last pass of a ridge fit by Newton's method with halved steps.

    evaluate: one pass over all rounds at coefficients (p,), however they are read. Every arm's own
    coefficients are drawn to the mean of the arms with ridge 1, so that an arm with few clicks has a finite
    fit.
    """
    penalty = _logistic_penalty(layout)

    def value(sums: LogitSums) -> float:
        return sums.log_likelihood - 0.5 * float(sums.theta @ penalty @ sums.theta)

    sums = evaluate(np.zeros(layout.dim))
    for _ in range(ARM.most_passes):
        slope = sums.gradient.sum(axis=0) - penalty @ sums.theta
        step = np.linalg.solve(sums.information.sum(axis=0) + penalty, slope)
        if np.abs(step).max() < ARM.smallest_step:
            break
        before = value(sums)
        for _ in range(ARM.halvings):
            ahead = evaluate(sums.theta + step)
            if value(ahead) > before:
                break
            step = 0.5 * step
        else:
            break
        sums = ahead
    return sums


def _logistic_penalty(layout: ArmLayout) -> Array:
    """Precision (p, p) of the ridge fit: arms about their mean, shared coefficients about 0, all about 0."""
    penalty = ARM.faint_ridge * np.eye(layout.dim)
    groups, own = layout.groups, layout.own_dim
    penalty[:own, :own] += ARM.ridge * (
        np.eye(own) - (groups @ groups.T)[:own, :own] / layout.arms
    )
    penalty[own:, own:] += ARM.ridge * np.eye(layout.shared)
    return penalty


def logistic_bias(
    rounds: Iterable[tuple[Array, Array, Array]], fitted: LogitSums, layout: ArmLayout
) -> Array:
    """Return by how much a logistic fit overstates its coefficients (p,), to first order.

    With few rounds per coefficient the likeliest log-odds are too large. With A = Σhφφᵀ, h = π(1 − π), the
    bias is A⁻¹Σφ·l(π − ½), where l = hφᵀA⁻¹φ is the leverage of a round (McCullagh and Nelder 1989, section
    15.2). It is 0 where arms share nothing: their coefficients are drawn to those of other arms instead.

    Parameters
    ----------
    rounds : iterable of (features (n, p), rewards (n,), windows (n,))
        Those of the fit.
    fitted : LogitSums
        The last pass of the fit.
    """
    if not layout.shared:
        return np.zeros(layout.dim)
    known = np.linalg.inv(fitted.information.sum(axis=0) + _logistic_penalty(layout))
    excess = np.zeros(layout.dim)
    for features, _, _ in rounds:
        chance = special.expit(features @ fitted.theta)
        leverage = chance * (1.0 - chance) * ((features @ known) * features).sum(axis=1)
        excess += features.T @ (leverage * (chance - 0.5))
    return np.asarray(known @ excess)


class StandardizedCatalogue(NamedTuple):
    """Features of the arms (A, c) with mean 0 and variance 1, and their means and scales (c,)."""

    features: Array
    mean: Array
    scale: Array


def standardize_catalogue(catalogue: Array) -> StandardizedCatalogue:
    """Standardise the features of the arms (A, c); a column that never varies becomes 0."""
    center = catalogue.mean(axis=0)
    scale = catalogue.std(axis=0)
    scale = np.where(scale > 0.0, scale, 1.0)
    return StandardizedCatalogue((catalogue - center) / scale, center, scale)


LINKS = ("identity", "logit")
DEFAULT_WINDOWS = 8
"""As for moments: enough for a drift variance, few enough for a fit in each."""
CHUNK = 65_536
"""Rows whose features are made at once, which bounds the memory."""


@dataclass(frozen=True, eq=False)
class ArmStatistics:
    """Information in a log about the coefficients of labelled arms, per window (period of the log).

    The log-likelihood of the rewards in window i is ηᵢᵀθ − ½θᵀΛᵢθ plus a constant, with the coefficients θ
    (p,) of all arms, the score vector ηᵢ and the information matrix Λᵢ. The quadratic log-likelihood is exact
    for rewards with normal noise, and a second-order approximation for clicks. Create an ArmStatistics with
    the method `from_rounds`.

    Parameters
    ----------
    layout : ArmLayout
        Positions of each arm's coefficients in the coefficient vector θ.
    information : array, shape (m, p, p)
        Information matrix Λ of the coefficients in each of the m time windows.
    scores : array, shape (m, p)
        Vector η, the linear term of the log-likelihood, in each of the m time windows.
    rounds : array, shape (m, A)
        Number of rounds in which each of the A arms was played, per time window.
    noise_variance : float
        Variance of a reward about its expectation. For clicks, the variance is on the scale of log-odds:
        1 divided by the mean of π(1 − π), with the click probability π.
    context_square : array, shape (d, d)
        Mean of zzᵀ over the log, where z are the d numbers of a context, beginning with 1.
    link : "identity" or "logit"
        Quantity that is linear in the context: the expected reward ("identity") or its log-odds ("logit").
    scale : float
        Mean squared reward; 1 for the logit link.
    catalogue : array, shape (A, c)
        Features of the arms from a catalogue (a table with one row per arm).
    terms : array, shape (g, 1 + c)
        Each of the g rows holds the weights of a linear combination of the constant 1 and the c arm features.
        Arms may drift together in proportion to a linear combination of arm features.
    missing : tuple of MissingColumn
        Context features that indicate missing values of other context features.
    noise_inflation : array, shape (p,)
        By which sampling variances exceed those of equal noise (`unequal_noise`); empty if that is not known.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> contexts = np.column_stack([np.ones(9000), rng.normal(size=9000)])
    >>> arms = rng.integers(3, size=9000)
    >>> rewards = contexts[:, 1] * np.array([1.0, 0.0, -1.0])[arms] + rng.normal(size=9000)
    >>> statistics = ArmStatistics.from_rounds(contexts, arms, rewards, windows=6)
    >>> statistics.information.shape, round(statistics.noise_variance, 1)
    ((6, 6, 6), 1.0)
    """

    layout: ArmLayout
    information: Array
    scores: Array
    rounds: Array
    noise_variance: float
    context_square: Array
    link: str = "identity"
    scale: float = 1.0
    catalogue: Array = field(default_factory=lambda: np.zeros((0, 0)))
    terms: Array = field(default_factory=lambda: np.zeros((0, 0)))
    missing: tuple[MissingColumn, ...] = ()
    noise_inflation: Array = field(default_factory=lambda: np.zeros(0))

    @property
    def blocks(self) -> tuple[Array, Array]:
        """Λ and η of the arms' own coefficients, (m, A, own, own) and (m, A, own)."""
        arms, own, count = self.layout.arms, self.layout.own, self.layout.own_dim
        inside = self.information[:, :count, :count]
        whole = inside.reshape(-1, arms, own, arms, own)
        blocks = np.ascontiguousarray(np.einsum("makal->makl", whole))
        return blocks, self.layout.by_arm(self.scores)

    @property
    def common_directions(self) -> Array:
        """Directions (p, e) in which arms move together: for every term its own coefficients, then the slopes
        that it has in the shared coding with a catalogue.
        """
        layout, catalogue = self.layout, self.catalogue.reshape(self.layout.arms, -1)
        standard = standardize_catalogue(catalogue).features
        terms = self.terms if self.terms.size else np.eye(1 + catalogue.shape[1])
        crossed = terms.shape[1] - 1
        together = (
            np.column_stack([np.ones(layout.arms), standard[:, :crossed]]) @ terms.T
        )
        result = np.zeros((layout.dim, layout.own * len(terms)))
        result[: layout.own_dim] = np.kron(together, np.eye(layout.own))
        if not (layout.shared and crossed):
            return result
        slopes = np.kron(terms.T, np.eye(layout.shared // (1 + crossed)))
        return np.hstack(
            [result, np.vstack([np.zeros((layout.own_dim, slopes.shape[1])), slopes])]
        )

    @classmethod
    def from_rounds(
        cls,
        contexts: Any,
        arms: Any,
        rewards: Any,
        *,
        windows: Any = DEFAULT_WINDOWS,
        link: str | None = None,
        coding: str = "own",
        count: int | None = None,
        catalogue: Any = None,
    ) -> ArmStatistics:
        """Compute the statistics of n rounds in time order.

        Parameters
        ----------
        contexts : array, shape (n, d)
            Contexts of the rounds: 1 in the first column, standardised features in the other columns.
        arms : array of int, shape (n,)
            Index of the arm that was played in each round.
        rewards : array, shape (n,)
            Reward of each round.
        windows : int, or array of int, shape (n,)
            Number of time windows with equally many rounds, or the index of the window of every round.
        link : "identity", "logit" or None
            Quantity that is linear in the context: the expected reward ("identity") or its log-odds
            ("logit"). By default, the link is "logit" if all rewards are 0 or 1, else "identity".
        coding : "own" or "shared"
            Whether every arm has slopes of its own, or all arms share the slopes.
        count : int, optional
            Number of arms A, needed if some arms were never played.
        catalogue : array, shape (A, c), optional
            Features of the A arms.
        """
        z = finite_array("contexts", contexts, ("n", "d"))
        n, width = z.shape
        r = finite_array("rewards", rewards, (n,))
        if not (z[:, 0] == 1.0).all():
            raise InputError("contexts must have 1 in its first column")
        played = _whole("arms", arms, n)
        least = int(played.max()) + 1
        total = least if count is None else whole_number("count", count, least)
        window = _window_of(windows, n)
        table = (
            np.zeros((total, 0))
            if catalogue is None
            else finite_array("catalogue", catalogue, (total, "c"))
        )
        layout = ArmLayout.of(
            arms=total, width=width, coding=coding, catalogue=table.shape[1]
        )
        return cls._of_rounds(layout, z, played, r, window, table, link)

    @classmethod
    def _of_rounds(
        cls,
        layout: ArmLayout,
        z: Array,
        played: np.ndarray[Any, Any],
        r: Array,
        window: np.ndarray[Any, Any],
        table: Array,
        link: str | None,
    ) -> ArmStatistics:
        """From checked rounds: contexts (n, d), arms, rewards and windows (n,), and the catalogue (A, c)."""
        n, total = len(z), layout.arms
        if link is None:
            link = "logit" if bool(np.isin(r, (0.0, 1.0)).all()) else "identity"
        rounds = np.zeros((int(window.max()) + 1, total))
        np.add.at(rounds, (window, played), 1.0)
        frame = _Frame(layout, rounds, z.T @ z / n, table)

        def chunks() -> Iterator[tuple[Array, Array, Array]]:
            for first in range(0, n, CHUNK):
                part = slice(first, first + CHUNK)
                yield (
                    layout.features(z[part], played[part], table),
                    r[part],
                    window[part],
                )

        if one_of("link", link, LINKS) == "logit":
            if (r < 0.0).any() or (r > 1.0).any():
                raise InputError(
                    f"link='logit' needs rewards from 0 to 1, got {r.min():g} to {r.max():g}"
                )
            sums = fit_logistic(
                lambda theta: sum_logit(chunks(), theta, len(rounds)), layout
            )
            corrected = sums.theta - logistic_bias(chunks(), sums, layout)
            scores = sums.information @ corrected + sums.gradient
            return cls._of_clicks(sums.information, scores, sums.variance, frame)
        gram = np.zeros((len(rounds), layout.dim, layout.dim))
        cross = np.zeros((len(rounds), layout.dim))
        for features, reward, index in chunks():
            for i in np.unique(index):
                own = features[index == i]
                gram[i] += own.T @ own
                cross[i] += own.T @ reward[index == i]
        statistics = cls._of_rewards(gram, cross, float(r @ r), frame)
        return statistics.with_unequal_noise(ArmSample(z, played, r, 1.0, window))

    def with_unequal_noise(self, sample: ArmSample) -> ArmStatistics:
        """Return the statistics with what some of the rounds say of noise that is not equal everywhere."""
        slopes = sample.contexts.shape[1] - self.layout.own
        crossed = self.layout.shared // max(slopes, 1) - 1
        table = self.catalogue[:, : max(crossed, 0)]
        inflation = unequal_noise(self.layout, sample, table, self.noise_variance)
        return replace(self, noise_inflation=inflation)

    @classmethod
    def from_features(
        cls, features: ArmFeatures, rows: Any, rewards: Any, windows: Any
    ) -> ArmStatistics:
        """From rounds given as φ(x, a) of the played arms (n, p); rewards and windows as in `from_rounds`."""
        phi = finite_array("rows", rows, ("n", features.dim))
        r = finite_array("rewards", rewards, (len(phi),))
        layout = ArmLayout.of_features(features)
        arms = phi[:, : layout.own_dim : layout.own].argmax(axis=1)
        shared = phi[:, layout.own_dim : layout.own_dim + features.width - layout.own]
        contexts = np.hstack([layout.by_arm(phi).sum(axis=1), shared])
        table = features.explaining
        window = _window_of(windows, len(phi))
        statistics = cls._of_rounds(layout, contexts, arms, r, window, table, None)
        return replace(
            statistics,
            terms=features.catalogue_terms[1],
            missing=missing_columns(features.context, features.context_names),
        )

    @classmethod
    def from_moments(
        cls,
        features: ArmFeatures,
        moments: WindowedMoments,
        odds: LogOdds | None = None,
    ) -> ArmStatistics:
        """From moments of φ(x, a); with `odds`, for rewards that are 0 or 1, on the scale of their
        log-odds.
        """
        gram, cross, reward_square = _sums_of(moments)
        layout = ArmLayout.of_features(features)
        levels = np.arange(layout.arms) * layout.own
        rounds = np.diagonal(gram, axis1=1, axis2=2)[:, levels]
        # z of a round is the sum of the arms' blocks of φ, all but one of which are 0, and what follows.
        to_context = np.zeros((features.width, layout.dim))
        to_context[: layout.own] = layout.groups.T
        to_context[layout.own :, layout.own_dim :] = np.eye(
            features.width - layout.own, layout.shared
        )
        square = to_context @ gram.sum(axis=0) @ to_context.T / rounds.sum()
        frame = _Frame(
            layout=layout,
            rounds=np.round(rounds),
            context_square=square,
            catalogue=features.catalogue,
            terms=features.catalogue_terms[1],
            missing=missing_columns(features.context, features.context_names),
        )
        if odds is None:
            return cls._of_rewards(gram, cross, reward_square, frame)
        information, scores, _ = _sums_of(odds.moments)
        variance = float(np.diagonal(information, axis1=1, axis2=2)[:, levels].sum())
        return cls._of_clicks(information, scores, variance, frame)

    @classmethod
    def _of_rewards(
        cls, gram: Array, cross: Array, reward_square: float, frame: _Frame
    ) -> ArmStatistics:
        """Return the statistics of Σφφᵀ (m, p, p) and Σφr (m, p) per window, and Σr² of the whole log.

        The noise is what coefficients of their own in every window leave unexplained. Neighbouring windows
        are merged for it where they are too short to leave anything; drift between these counts as noise.
        """
        total = float(frame.rounds.sum())
        layout = frame.layout
        explained, used = _explained(gram, cross, layout)
        parts = len(gram)
        while total - used < ARM.least_freedom * total and parts > 1:
            parts = (parts + 1) // 2
            starts = np.arange(parts) * len(gram) // parts
            explained, used = _explained(
                np.add.reduceat(gram, starts), np.add.reduceat(cross, starts), layout
            )
        if total <= used:
            raise InputError(
                f"{total:.0f} rounds are too few for {used} coefficients in the windows"
            )
        unexplained = (reward_square - explained) / (total - used)
        noise = max(unexplained, EXACT * reward_square / total) or EXACT
        return frame.statistics(
            information=gram / noise,
            scores=cross / noise,
            noise_variance=noise,
            link="identity",
            scale=max(reward_square / total, TINY),
        )

    @classmethod
    def _of_clicks(
        cls, information: Array, scores: Array, variance: float, frame: _Frame
    ) -> ArmStatistics:
        """Return the statistics of Λ (m, p, p) and η (m, p) about a logistic fit, and of Σπ(1 − π)."""
        noise = float(frame.rounds.sum()) / max(variance, TINY)
        return frame.statistics(
            information=information,
            scores=scores,
            noise_variance=noise,
            link="logit",
            scale=1.0,
        )


def unequal_noise(
    layout: ArmLayout, sample: ArmSample, catalogue: Array, noise_variance: float
) -> Array:
    """Return how far noise that depends on context or arm raises sampling variances (p,), at least 1.

    The profit of a loan varies with its amount. Least squares leaves e in every window. With A = (Σφφᵀ)⁻¹
    the variance of coefficient j is (A Σe²φφᵀ A)_jj (White 1980), and s²A_jj if all rounds have noise s².
    """
    robust, equal = np.zeros((2, layout.dim))
    used = np.arange(0, len(sample.arms), max(len(sample.arms) // ARM.noise_rounds, 1))
    for at, rows in _independent_fits(layout, sample, used):
        phi = layout.features(sample.contexts[rows], sample.arms[rows], catalogue)
        phi = phi[:, at]
        left = len(rows) - phi.shape[1]
        if left < phi.shape[1]:
            continue
        rewards = sample.rewards[rows]
        A = np.linalg.pinv(phi.T @ phi, hermitian=True)
        errors = rewards - phi @ (A @ (phi.T @ rewards))
        # The coefficients take their share of the noise.
        squares = errors**2 * (len(rows) / left)
        robust[at] += squares @ (phi @ A) ** 2
        equal[at] += noise_variance * np.diagonal(A)
    ratio = np.divide(robust, equal, out=np.ones(layout.dim), where=equal > 0.0)
    return np.maximum(ratio, 1.0)


def _independent_fits(
    layout: ArmLayout, sample: ArmSample, used: np.ndarray[Any, Any]
) -> Iterator[tuple[slice, np.ndarray[Any, Any]]]:
    """Yield coefficients that are fitted together and their rows: arms that share nothing one by one, and
    every window by itself if it has enough rounds.
    """
    everything = [(slice(0, layout.dim), used)]
    of_arms = [
        (layout.arm(arm), used[sample.arms[used] == arm]) for arm in range(layout.arms)
    ]
    for at, rows in everything if layout.shared else of_arms:
        windows = sample.windows[rows]
        count = windows.max(initial=0) + 1
        if len(rows) < ARM.rounds_per_column * (at.stop - at.start) * count:
            yield at, rows
            continue
        for window in range(count):
            yield at, rows[windows == window]


class _Frame(NamedTuple):
    """What statistics hold beside the likelihood; fields as in ArmStatistics."""

    layout: ArmLayout
    rounds: Array
    context_square: Array
    catalogue: Array
    terms: Array = np.zeros((0, 0))
    missing: tuple[MissingColumn, ...] = ()

    def statistics(
        self,
        *,
        information: Array,
        scores: Array,
        noise_variance: float,
        link: str,
        scale: float,
    ) -> ArmStatistics:
        """Return the statistics with this likelihood."""
        return ArmStatistics(
            layout=self.layout,
            information=information,
            scores=scores,
            rounds=self.rounds,
            noise_variance=noise_variance,
            context_square=self.context_square,
            link=link,
            scale=scale,
            catalogue=self.catalogue,
            terms=self.terms,
            missing=self.missing,
        )


def _sums_of(moments: WindowedMoments) -> tuple[Array, Array, float]:
    """Σφφᵀ (m, p, p) and Σφr (m, p) of every window, and Σr² of the whole log."""
    whole = moments.chosen.products()
    return whole[:, :-1, :-1], whole[:, :-1, -1], float(whole[:, -1, -1].sum())


def _explained(gram: Array, cross: Array, layout: ArmLayout) -> tuple[float, int]:
    """Sum of squares that coefficients of their own in every window (m, p) explain, and how many they are."""
    explained, used = 0.0, 0
    # A column that is 0 in a window but for rounding would be scaled up to noise there.
    least = CONSTANT * np.diagonal(gram.sum(axis=0))
    # Arms that share nothing are regressed one by one.
    parts = [slice(None)]
    if not layout.shared:
        parts = [layout.arm(arm) for arm in range(layout.arms)]
    for G, b in zip(gram, cross, strict=True):
        informed = np.diagonal(G) > least
        for part in parts:
            seen = np.arange(layout.dim)[part][informed[part]]
            if not len(seen):
                continue
            solution, rank = _least_squares(G[np.ix_(seen, seen)], b[seen])
            explained += float(solution @ b[seen])
            used += rank
    return explained, used


def _least_squares(gram: Array, cross: Array) -> tuple[Array, int]:
    """A solution of gram·x = cross (p,), and the rank of gram."""
    size = np.sqrt(np.maximum(np.diagonal(gram), 1e-300))
    values, vectors = np.linalg.eigh(gram / np.outer(size, size))
    known = values > ARM.least_variation * max(float(values[-1]), 1e-300)
    along = vectors[:, known]
    return along @ ((along.T @ (cross / size)) / values[known]) / size, int(known.sum())


def _whole(name: str, values: Any, n: int) -> np.ndarray[Any, Any]:
    array = np.asarray(values)
    if (
        array.shape != (n,)
        or array.dtype.kind not in "iu"
        or (len(array) and array.min() < 0)
    ):
        got = f"{array.dtype} of shape {array.shape}"
        raise InputError(f"{name} must be {n} whole numbers of at least 0, got {got}")
    return array.astype(np.int64)


def _window_of(windows: Any, n: int) -> np.ndarray[Any, Any]:
    """The window of every round (n,)."""
    if np.ndim(windows) == 0:
        m = whole_number("windows", windows, 2)
        if n < m:
            raise InputError(
                f"windows must be at most the number of rounds {n}, got {m}"
            )
        return np.arange(n) * m // n
    of_rounds = _whole("windows", windows, n)
    if not (np.bincount(of_rounds) > 0).all() or of_rounds.max() < 1:
        raise InputError(
            "windows must number at least two windows from 0 on, none of them empty"
        )
    return of_rounds


@dataclass(frozen=True, eq=False)
class LogOdds:
    """Windows of clicks, expanded about coefficients θ⁰ on the logit scale.

    Parameters
    ----------
    theta : array, shape (p,)
        θ⁰; π = σ(φᵀθ⁰), h = π(1 − π).
    moments : WindowedMoments
        Of √h·φ and √h·(φᵀθ⁰ + (r − π)/h): its sums of squares and products are Σhφφᵀ and Σhφφᵀθ⁰ + Σφ(r − π).
    """

    theta: Array
    moments: WindowedMoments

    def padded(self, places: Any) -> LogOdds:
        """With coefficients of arms that were never played, 0 so far, before those at `places`."""
        return LogOdds(np.insert(self.theta, places, 0.0), self.moments.padded(places))
