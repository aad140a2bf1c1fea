"""What may have changed since the logs: the hypotheses that AutoISD weighs, and the filters that follow them.

A hypothesis has one or more members, each a Gaussian belief that may wander. Coordinates: along the columns
of the prior's basis, then the reward baseline, if it is kept. FilterMixture runs one Kalman filter per member
and weighs them by how well they predicted so far.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, NamedTuple, cast

import numpy as np
from scipy import special

from invariant_bandits.checks import Array, InputError
from invariant_bandits.decomposition.coefficient_specs import (
    LARGEST_MEAN,
    LARGEST_VARIANCE,
    LEAST_NOISE,
)
from invariant_bandits.decomposition.drift_prior import DriftPrior
from invariant_bandits.policies import constants, mixture_kernels
from invariant_bandits.policies.constants import HYPOTHESES, INVARIANCE_HOLDS, Members
from invariant_bandits.storage import ArraySpec, StateSchema

kernels: Any = mixture_kernels  # compiled: its functions have no Python signature


@dataclass(frozen=True, eq=False)
class Member:
    """Coefficients start as N(mean, covariance) and wander by N(0, diag(process)) each round.

    Parameters
    ----------
    hypothesis : str
        Which of HYPOTHESES it belongs to.
    weight : float
        Its prior probability.
    mean : (d,)
    covariance : (d, d)
    process : (d,)
        Variances of the steps.
    """

    hypothesis: str
    weight: float
    mean: Array
    covariance: Array
    process: Array


class Baseline(NamedTuple):
    """One way in which the reward baseline of a member may behave.

    share: its part of the weight of the member; step, doubt: variance of the steps per round, and what the
    first round adds to the variance, in units of the noise variance.
    """

    share: float
    step: float = 0.0
    doubt: float = 0.0


STILL_BASELINE = (Baseline(1.0),)
"""A baseline that stays, with certainty."""


def _core_baselines(moved: bool) -> tuple[Baseline, ...]:
    """How the baseline of the likeliest members may behave, if it `moved` in the logs or not."""
    sizes = constants.BASELINES
    if moved:
        moving, still = sizes.moving
        return Baseline(moving, step=sizes.step), Baseline(still)
    still, moving, jumped = sizes.still
    return (
        Baseline(still),
        Baseline(moving, step=sizes.step),
        Baseline(jumped, doubt=sizes.doubt),
    )


def _other_baseline(moved: bool) -> tuple[Baseline, ...]:
    """How the baseline of less likely members behaves."""
    return (Baseline(1.0, step=constants.BASELINES.step),) if moved else STILL_BASELINE


def _broken_baseline(moved: bool) -> tuple[Baseline, ...]:
    """How the baseline behaves where invariance is broken: it may have jumped as well."""
    sizes = constants.BASELINES
    step = sizes.step if moved else 0.0
    return (Baseline(1.0, step=step, doubt=sizes.broken_doubt),)


class CoefficientBelief(NamedTuple):
    """What a member believes of the coefficients, and how its baseline may behave.

    mean (p,), covariance (p, p), process: variances of the steps (p,); share: its part of the weight of its
    hypothesis, up to a factor.
    """

    mean: Array
    covariance: Array
    process: Array
    baselines: Sequence[Baseline]
    share: float = 1.0


def trust(prior: DriftPrior) -> float:
    """How far likelihoods may be trusted to tell the hypotheses apart, from 0.1 to 1.

    The weaker the logs' signal is against their noise, the more greedy choices mislead the likelihoods. The
    signal is that of the mean coefficients, or what drift along one direction adds up to over ten rounds, if
    that is larger: n rounds like those of the logs determine one coefficient up to a variance s²/(n·v), v the
    variance of the features along its direction, and n·v·ω/s² is what they say of a drift ω against what
    noise leaves open. 1 if there is no signal to protect.
    """
    if prior.signal_variance is None or _has_no_signal(prior):
        return 1.0
    signal = max(
        prior.signal_variance,
        constants.TRUST.drift_rounds * (prior.drift_signal or 0.0),
    )
    ratio = (signal / prior.noise_variance) ** 2
    return float(np.clip(ratio, constants.TRUST.least, 1.0))


def _has_no_signal(prior: DriftPrior) -> bool:
    """Whether the logs' pooled coefficients could all be 0."""
    size = float(
        prior.pooled
        @ np.linalg.pinv(prior.pooled_covariance, hermitian=True)
        @ prior.pooled
    )
    # The quantile of χ²_p is twice that of the gamma distribution with shape p/2.
    quantile = special.gammaincinv(
        0.5 * len(prior.pooled), constants.TRUST.signal_level
    )
    return size < 2.0 * float(quantile)


def hypothesis_weights(prior: DriftPrior) -> Array:
    """Return the prior probabilities of HYPOTHESES.

    The less rewards can tell them apart, the more likely is "nothing changed".
    """
    members, least = members_for(prior), constants.TRUST.least
    share = (trust(prior) - least) / (1.0 - least)
    strong = share * np.array(members.weights)
    return strong + (1.0 - share) * np.array(members.weak_signal_weights)


def default_members(prior: DriftPrior, *, intercept: bool) -> list[Member]:
    """The members of AutoISD's four hypotheses, each with what it believes of the reward baseline.

    Sizes are in units of the data: drift in those of the logs, breaks and flat priors in `prior.unit`, the
    typical squared coefficient along each direction, and in that which the noise could hide, where the logs'
    signal is weaker than their noise. The first member of "logs useless" knows online rounds alone, and
    nothing in it moves.
    """
    grid = members_for(prior)
    beliefs = (
        _unchanged(prior),
        _drifting(prior, grid),
        _broken(prior, grid),
        _useless(prior, grid),
    )
    result: list[Member] = []
    for hypothesis, weight, members in zip(
        HYPOTHESES, hypothesis_weights(prior), beliefs, strict=True
    ):
        coefficients = list(members)
        total = sum(belief.share for belief in coefficients)
        for belief in coefficients:
            share = float(weight) * belief.share / total
            if intercept:
                result += _with_baseline(hypothesis, share, belief, prior)
            else:
                result.append(Member(hypothesis, share, *belief[:3]))
    return result


def members_for(prior: DriftPrior) -> Members:
    """Return the constants for coefficients of features, or those for labelled arms."""
    return constants.FEATURES if prior.population is None else constants.ARMS


def _with_baseline(
    hypothesis: str, weight: float, belief: CoefficientBelief, prior: DriftPrior
) -> Iterator[Member]:
    """Members with these coefficients, one for each way in which their baseline may behave."""
    noise = prior.level_unit
    level, doubt = prior.baseline, prior.baseline_error
    if hypothesis == "logs useless":
        level = 0.0
        doubt = members_for(prior).useless_baseline * noise + prior.baseline**2
    elif hypothesis != "nothing changed":
        doubt += prior.baseline_variance
    if prior.present_level is not None and hypothesis != "logs useless":
        # At the mean features every member expects what the logs earned when they ended.
        level = prior.present_level - float(prior.feature_mean @ belief.mean)
    d = len(belief.mean) + 1
    for kind in belief.baselines:
        wide = np.zeros((d, d))
        wide[:-1, :-1] = belief.covariance
        wide[-1, -1] = doubt + kind.doubt * noise
        process = np.append(belief.process, kind.step * noise)
        yield Member(
            hypothesis,
            weight * kind.share,
            np.append(belief.mean, level),
            wide,
            process,
        )


def _unchanged(prior: DriftPrior) -> Iterator[CoefficientBelief]:
    """The regression on all windows, moved to where the logs ended as far as drift persists."""
    mean, covariance = prior.where_logs_ended(
        prior.pooled, prior.pooled_covariance + prior.common_drift
    )
    yield CoefficientBelief(
        mean, covariance, np.zeros(len(mean)), _core_baselines(prior.baseline_moves)
    )


def _drifting(prior: DriftPrior, grid: Members) -> Iterator[CoefficientBelief]:
    """Coefficients drawn afresh like those of a window, or drifting on from where the logs ended."""
    core = _core_baselines(prior.baseline_moves)
    other = _other_baseline(prior.baseline_moves)
    for factor, rate in grid.drifts:
        likeliest = rate == 0.0 and factor in grid.likeliest_factors
        covariance = (
            prior.mean_covariance + factor * prior.drift_covariance + prior.common_drift
        )
        yield CoefficientBelief(
            prior.mean,
            covariance,
            rate * factor * prior.drift,
            core if likeliest else other,
        )
    # The share of drift that goes on is between the two constants, by how far drift persists.
    persistence = prior.persistence.max(initial=0.0)
    continuing = grid.continuing + persistence * (grid.persistent - grid.continuing)
    scenarios = prior.last_steps.shape[0] * prior.last_steps.shape[1]
    share = 0.0
    if scenarios:
        share = len(grid.drifts) * continuing / (1.0 - continuing) / scenarios
    ends = zip(prior.last_means, prior.last_covariances, prior.last_steps, strict=True)
    for mean, covariance, steps in ends:
        for step in steps:
            yield CoefficientBelief(mean, covariance, step, other, share)


def _broken(prior: DriftPrior, grid: Members) -> Iterator[CoefficientBelief]:
    """Coefficients as far as drift may have taken them, and a break of every size on top."""
    still = np.zeros(len(prior.mean))
    mean = prior.mean
    known = (
        prior.mean_covariance
        + grid.break_drift * prior.drift_covariance
        + prior.common_drift
    )
    if grid.breaks_at_end:
        mean, known = prior.where_logs_ended(mean, known)
    *sizes, largest = grid.break_sizes
    units = break_units(prior)
    breaks = [(size, unit) for size in sizes for unit in units]
    breaks.append((largest, prior.unit))
    for size, unit in breaks:
        covariance = known + size * np.diag(unit)
        yield CoefficientBelief(
            mean, covariance, still, _broken_baseline(prior.baseline_moves)
        )


def _useless(prior: DriftPrior, grid: Members) -> Iterator[CoefficientBelief]:
    """Coefficients around 0 of any size, first the widest: still, or wandering."""
    still = np.zeros(len(prior.mean))
    other = _other_baseline(prior.baseline_moves)
    typical, *hidden = break_units(prior)
    mean, widest = prior.unlogged([typical, *hidden][-1])
    yield CoefficientBelief(mean, grid.widest * widest, still, STILL_BASELINE)
    _, covariance = prior.unlogged(typical)
    for factor in grid.narrower:
        yield CoefficientBelief(mean, factor * covariance, still, other)
    for rate in grid.useless_rates:
        yield CoefficientBelief(mean, grid.walking * covariance, rate * typical, other)
    for unit in hidden:
        wide = grid.walking * prior.unlogged(unit)[1]
        yield CoefficientBelief(mean, wide, still, other)


def break_units(prior: DriftPrior) -> list[Array]:
    """Return typical squared coefficients (p,), and those of a signal that the noise could hide."""
    signal = prior.signal_variance
    if signal is None or prior.noise_variance <= signal:
        return [prior.unit]
    least = members_for(prior).weakest_signal * prior.noise_variance
    weakest = max(signal, least)
    return [prior.unit, prior.unit * (prior.noise_variance / weakest)]


NEGLIGIBLE = 1e-10
"""Eigenvalues below this share of the largest count as 0 in a pseudo-inverse: they are rounding errors."""
STATE = (
    "means",
    "covariances",
    "process",
    "weights",
    "prior_weights",
    "noise",
    "trusts_logs",
    "online",
)
"""Parts of the buffer that rounds change, or that differ between mixtures of one prior."""
STATE_SPECS: Mapping[str, ArraySpec] = {
    "hypothesis_index": ArraySpec(("C",), "int64", 0, len(HYPOTHESES) - 1),
    "means": ArraySpec(("C", "d"), least=-LARGEST_MEAN, most=LARGEST_MEAN),
    "covariances": ArraySpec(
        ("C", "d", "d"), least=-LARGEST_VARIANCE, most=LARGEST_VARIANCE
    ),
    "process": ArraySpec(("C", "d"), least=0.0, most=LARGEST_VARIANCE),
    "weights": ArraySpec(("C",), least=0.0, most=1.0),
    "prior_weights": ArraySpec(("C",), least=0.0, most=1.0),
    "noise": ArraySpec(("C",), least=LEAST_NOISE, most=LARGEST_VARIANCE),
    "trusts_logs": ArraySpec(("C",), "int64", 0, 1),
    "online": ArraySpec((2, "d+1", "d+1")),
}


class FilterMixture:
    """C filters over d coordinates: those along the prior's basis, then the reward baseline if it is kept.

    Parameters
    ----------
    prior : DriftPrior
        What the logs teach.
    state : mapping of str to array
        `hypothesis_index` (C,) and the parts STATE.
    share : float
        Part of the weights that returns to the prior weights each round.
    noise : "learned" or "known"
        Whether every filter learns its noise variance.
    caution : float or None
        Share of the believed gain that may be spent on tests; None: no limit.

    Attributes
    ----------
    buffer : array, one-dimensional
        The filter state as one flat float64 array, in the layout that `mixture_kernels.Filters` documents.
    hypothesis_index : array of int, shape (C,)
        Which of HYPOTHESES each filter belongs to.
    """

    def __init__(
        self,
        prior: DriftPrior,
        state: Mapping[str, Array],
        share: float,
        noise: str,
        caution: float | None,
    ) -> None:
        (C, d), p = state["means"].shape, len(prior.mean)
        precision = prior.usual_precision(d > p)
        self.hypothesis_index = np.array(state["hypothesis_index"], dtype=np.int64)
        self.buffer = np.zeros(kernels.buffer_size(C, p, d, len(precision)))
        self.buffer[list(kernels.SIZES)] = C, p, d, len(precision)
        filters = self.filters
        filters.basis[:], filters.log_precision[:] = prior.basis, precision
        filters.logs_mean[:] = np.append(prior.mean, prior.baseline)[:d]
        for name in STATE:
            getattr(filters, name)[:] = state[name]
        numbers = filters.numbers
        numbers[kernels.REFERENCE] = self._reference(filters.process)
        numbers[kernels.LINK] = (
            kernels.LOGIT if prior.link == "logit" else kernels.IDENTITY
        )
        numbers[kernels.SHARE] = share
        numbers[kernels.CAUTION] = kernels.NO_LIMIT if caution is None else caution
        # With ν = 0 the noise is known and likelihoods are normal.
        numbers[kernels.FREEDOM] = 0.0
        numbers[kernels.TRUST] = 1.0
        if noise == "learned":
            # Greedy choices mislead the likelihoods; tests without limit do not.
            numbers[kernels.FREEDOM] = constants.LEARNING.student_freedom
            numbers[kernels.TRUST] = 1.0 if caution is None else trust(prior)
        numbers[kernels.NOISE] = prior.noise_variance
        numbers[kernels.DEVIATIONS] = members_for(prior).deviations
        numbers[kernels.NOISE_PRIOR_ROUNDS] = constants.LEARNING.noise_prior_rounds
        numbers[kernels.PARKED] = constants.LEARNING.parked
        numbers[kernels.REST] = constants.LEARNING.rest
        # DOUBT, NEGLECT, PATIENCE, TEST_PRICE and TEST_ROUNDS stand in the order of the fields.
        numbers[kernels.DOUBT :] = astuple(constants.TESTS)
        kernels.mix(self.buffer)

    @staticmethod
    def initial_state(
        prior: DriftPrior, members: Sequence[Member], d: int
    ) -> dict[str, Array]:
        """The state of a mixture that starts from these members over d coordinates."""
        if not members or any(len(member.mean) != d for member in members):
            raise InputError(
                f"members must not be empty and must have {d} coordinates each"
            )
        weights = np.array([member.weight for member in members])
        trusts_logs = [member.hypothesis in INVARIANCE_HOLDS for member in members]
        state = {
            "hypothesis_index": np.array(
                [HYPOTHESES.index(member.hypothesis) for member in members]
            ),
            "means": np.stack([member.mean for member in members]),
            "covariances": np.stack([member.covariance for member in members]),
            "process": np.stack([member.process for member in members]),
            "weights": weights / weights.sum(),
            "prior_weights": weights / weights.sum(),
            "noise": np.full(len(weights), prior.noise_variance),
            "trusts_logs": np.array(trusts_logs, dtype=np.int64),
            "online": np.zeros((2, d + 1, d + 1)),
        }
        StateSchema(STATE_SPECS).check(state)
        return state

    def _reference(self, process: Array) -> int:
        """Return the index of the filter that knows online rounds alone.

        It is the first filter that does not wander, of the last hypothesis that has one.
        """
        still = process.sum(axis=1) == 0.0
        widest = np.where(still, self.hypothesis_index, -1)
        return (
            int(np.argmax(widest))
            if still.any()
            else int(np.argmax(self.hypothesis_index))
        )

    @property
    def filters(self) -> mixture_kernels.Filters:
        """Views of the buffer by name."""
        return cast(mixture_kernels.Filters, kernels.unpack(self.buffer))

    @property
    def reference(self) -> int:
        """Index of the filter that knows online rounds alone."""
        return int(self.buffer[kernels.REFERENCE])

    @property
    def believed_noise(self) -> float:
        """Variance of the noise that the mixture believes, or that of the logs if it is not learned."""
        return float(self.buffer[kernels.NOISE])

    def __len__(self) -> int:
        return len(self.hypothesis_index)

    def mean_and_covariance(self) -> tuple[Array, Array]:
        """Mean (d,) and covariance (d, d) of the mixture."""
        lower = kernels.covariance(self.buffer)
        return self.filters.mean.copy(), lower + np.tril(lower, -1).T

    @property
    def doubts_logs(self) -> bool:
        """Whether filters that do not trust the logs hold more than half of the weight."""
        filters = self.filters
        return bool(filters.weights[filters.trusts_logs == 0.0].sum() > 0.5)

    def left_open(self) -> Array:
        """Return the covariance (d, d) of what the logs leave open.

        It is that of the first filter, or that of the mixture once the logs are doubted.
        """
        if self.doubts_logs:
            return self.mean_and_covariance()[1]
        lower = np.tril(self.filters.covariances[0])
        return np.asarray(lower + np.tril(lower, -1).T)

    def may_test(self, rounds: int) -> bool:
        """Whether a neglected action can be tested after so many rounds."""
        numbers = self.filters.numbers
        patient = rounds >= numbers[kernels.PATIENCE] * numbers[kernels.COORDINATES]
        return bool(patient and (self.doubts_logs or numbers[kernels.CAUTION] != 0.0))

    def are_near(self, features: Array) -> bool:
        """Whether no action of these features (N, K, p) can be too far from anything in the logs.

        ‖z‖²·tr(Q) is an upper bound of the squared distance zᵀQz.
        """
        size = (
            float(np.vdot(features, features)) + features.shape[0] * features.shape[1]
        )
        trace = float(np.trace(self.filters.log_precision))
        return bool(size * trace <= kernels.FARTHEST * len(self.filters.mean))

    def hypothesis_weights(self) -> dict[str, float]:
        """Probability of each hypothesis."""
        weights = np.bincount(
            self.hypothesis_index,
            weights=self.filters.weights,
            minlength=len(HYPOTHESES),
        )
        return dict(zip(HYPOTHESES, weights.tolist(), strict=True))

    def coordinates(self, features: Array) -> Array:
        """z (K, d) of actions (K, p): along the basis, and 1 if there is a baseline."""
        filters = self.filters
        z = features @ filters.basis
        if len(filters.logs_mean) == z.shape[1]:
            return np.asarray(z)
        return np.column_stack([z, np.ones(len(z))])

    def distances(self, features: Array) -> Array:
        """Return how far actions (K, p) are from 0 in units of a typical action of the logs (K,).

        The result is empty if the features of the logs are not known.
        """
        filters = self.filters
        if not len(filters.log_precision):
            return np.zeros(0)
        z = self.coordinates(features)
        return np.asarray(
            np.sqrt(np.einsum("kd,de,ke->k", z, filters.log_precision, z) / z.shape[1])
        )

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """The state as arrays by name."""
        filters = self.filters
        state = {name: getattr(filters, name).copy() for name in STATE}
        trusts_logs = filters.trusts_logs.astype(np.int64)
        return {
            **state,
            "trusts_logs": trusts_logs,
            "hypothesis_index": self.hypothesis_index.copy(),
        }

    # -- arms that come and go --

    def grown(self, before: DriftPrior, starts: Sequence[Member]) -> dict[str, Array]:
        """The state with the coordinates of one arm more, after the others.

        Every filter believes of the new arm what it believes of the arms: `starts` are the members that would
        start with it, and the new coordinates follow from the old ones by the regression of their Gaussians.
        """
        filters, d = self.filters, len(starts[0].mean)
        new = before.layout.arms * before.layout.own + np.arange(before.layout.own)
        old = np.delete(np.arange(d), new)
        beliefs = zip(starts, filters.means, filters.covariances, strict=True)
        grown = [_with_coordinates(*belief, new, old) for belief in beliefs]
        process = np.stack([member.process for member in starts])
        process[:, old] = filters.process
        online, at = np.zeros((2, d + 1, d + 1)), np.append(old, d)
        online[np.ix_(np.arange(2), at, at)] = filters.online
        means, covariances = (np.stack(part) for part in zip(*grown, strict=True))
        changed = {
            "means": means,
            "covariances": covariances,
            "process": process,
            "online": online,
        }
        return {**self.arrays(), **changed}

    def shrunk(self, before: DriftPrior, arm: int) -> dict[str, Array]:
        """The state without the coordinates of an arm; what was learned of the others stays."""
        filters, d = self.filters, len(self.filters.logs_mean)
        kept = np.append(
            before.layout.coordinates_without(arm), np.arange(before.layout.dim, d)
        )
        return {
            **self.arrays(),
            "means": filters.means[:, kept],
            "covariances": filters.covariances[:, kept][:, :, kept],
            "process": filters.process[:, kept],
            "online": np.tril(marginal_sums(filters.online, kept)),
        }


def marginal_sums(online: Array, kept: Array) -> Array:
    """Return the sums of the alarm for some coordinates (k,), with the others projected out.

    With G the Gram matrix, and a and b the coordinates kept and removed, the regression on b is removed:
    every sum M becomes L·M·Lᵀ for the rows L = [I, −G_ab·G_bb⁻¹]. The sums are `Filters.online`, whose
    lower triangles count; the result (2, k + 1, k + 1) is symmetric.
    """
    d = online.shape[1] - 1
    sums = np.tril(online) + np.tril(online, -1).swapaxes(1, 2)
    removed = np.delete(np.arange(d), kept)
    G = sums[0]
    # The pseudo-inverse: removed directions that never varied take nothing away.
    inverse = np.linalg.pinv(
        G[np.ix_(removed, removed)], rcond=NEGLIGIBLE, hermitian=True
    )
    projection = np.eye(d + 1)[np.append(kept, d)]
    projection[:-1, removed] = -G[np.ix_(kept, removed)] @ inverse
    return np.asarray(projection @ sums @ projection.T)


def _with_coordinates(
    start: Member, mean: Array, lower: Array, new: Array, old: Array
) -> tuple[Array, Array]:
    """Return mean and covariance of a filter with new coordinates, as `start` relates them to the old.

    With B = S_no·S_oo⁻¹, the regression of the new on the old coordinates in `start`, the new ones have mean
    μ_n + B(m − μ_o) and covariance S_nn − B·S_on + B·P·Bᵀ, and covariance B·P with the old ones.
    """
    P = np.tril(lower) + np.tril(lower, -1).T
    among_old = start.covariance[np.ix_(old, old)]
    across = start.covariance[np.ix_(new, old)]
    B = across @ np.linalg.pinv(among_old, rcond=NEGLIGIBLE, hermitian=True)
    remainder = start.covariance[np.ix_(new, new)] - B @ across.T
    d = len(new) + len(old)
    grown_mean = np.empty(d)
    grown_mean[old] = mean
    grown_mean[new] = start.mean[new] + B @ (mean - start.mean[old])
    covariance = np.empty((d, d))
    covariance[np.ix_(old, old)] = P
    covariance[np.ix_(new, old)] = B @ P
    covariance[np.ix_(old, new)] = (B @ P).T
    # Rounding makes the remainder asymmetric, and a covariance is symmetric.
    covariance[np.ix_(new, new)] = 0.5 * (remainder + remainder.T) + B @ P @ B.T
    return grown_mean, covariance
