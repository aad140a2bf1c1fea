"""What may have changed since the logs: the hypotheses that AutoISD weighs, and the filters that follow them.

A hypothesis has one or more members, each a Gaussian belief that may wander. Coordinates: along the columns
of the prior's basis, then the reward baseline, if it is kept. FilterMixture runs one Kalman filter per member
and weighs them by how well they predicted so far.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from invariant_bandits.policies import mixture_kernels
from invariant_bandits.storage import ArraySpec, StateSchema

kernels: Any = mixture_kernels  # compiled: its functions have no Python signature

HYPOTHESES = (
    "nothing changed",
    "drift as in the logs",
    "invariance broken",
    "logs useless",
)
HYPOTHESIS_WEIGHTS = (0.1, 0.6, 0.2, 0.1)
INVARIANCE_HOLDS = HYPOTHESES[:2]

DRIFTS = (
    *((0.25, 0.0), (1.0, 0.0), (4.0, 0.0), (16.0, 0.0), (1.0, 1e-3)),
    *((1.0, 1e-2), (4.0, 1e-2), (4.0, 5e-2), (16.0, 5e-2)),
)
"""(factor on the logs' drift, steps per round in units of it)."""
BREAK_SIZES = (0.05, 0.5)
LARGE_BREAK = 2.0
FLAT, VERY_FLAT = 10.0, 30.0
USELESS_RATES = (1e-3, 1e-2)


class Sizes(NamedTuple):
    """What was chosen by a study of its own for coefficients of features, and for those of labelled arms.

    continuing, persistent: part of the weight of drift that goes to drift which goes on from where the logs
    ended, if the windows do not speak of persistence, and if they leave no doubt of it. The arms that are not
    played teach nothing online, so that their start matters more. breaks_at_end: whether "invariance broken"
    starts where the logs ended, as "nothing changed" does. widest, others: factors on the typical square of a
    coefficient in the still members of "logs useless", the first and the rest. deviations: how many standard
    deviations of what the logs leave open a choice adds to the mean.
    """

    continuing: float
    persistent: float
    breaks_at_end: bool
    widest: float
    others: tuple[float, ...]
    deviations: float


FEATURE_SIZES = Sizes(
    0.1, 0.1, breaks_at_end=False, widest=VERY_FLAT, others=(1.0,), deviations=0.5
)
ARM_SIZES = Sizes(0.5, 0.95, breaks_at_end=True, widest=FLAT, others=(), deviations=1.0)

BASELINE_RATE = 0.02
BASELINE_DOUBT = 10.0
BROKEN_BASELINE_DOUBT = 0.5

LEAST_TRUST = 0.1
DRIFT_ROUNDS = 10.0
"""Online rounds after which drift counts as a signal: as many per coordinate as the alarm waits for."""
SIGNAL_LEVEL = 0.9
WEAKEST_SIGNAL = 1e-9
WEAK_SIGNAL_WEIGHTS = (0.8, 0.17, 0.02, 0.01)


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
    """One way in which the reward baseline of a member may behave; step and doubt in units of the noise
    variance.
    """

    share: float
    step: float = 0.0
    doubt: float = 0.0


CORE_BASELINES = {
    False: (
        Baseline(0.6),
        Baseline(0.3, step=BASELINE_RATE),
        Baseline(0.1, doubt=BASELINE_DOUBT),
    ),
    True: (Baseline(0.8, step=BASELINE_RATE), Baseline(0.2)),
}
STILL_BASELINE = (Baseline(1.0),)
OTHER_BASELINES = {False: STILL_BASELINE, True: (Baseline(1.0, step=BASELINE_RATE),)}
BROKEN_BASELINES = {
    False: (Baseline(1.0, doubt=BROKEN_BASELINE_DOUBT),),
    True: (Baseline(1.0, step=BASELINE_RATE, doubt=BROKEN_BASELINE_DOUBT),),
}
"""Whether the baseline moved in the logs -> how it may behave: in the likeliest members, others, broken ones.
"""


class CoefficientBelief(NamedTuple):
    """Coefficients of a member: mean (p,), covariance (p, p), process variances (p,); and how its baseline
    behaves.

    share: its part of the weight of its hypothesis, up to a factor.
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
    signal = max(prior.signal_variance, DRIFT_ROUNDS * (prior.drift_signal or 0.0))
    return float(np.clip((signal / prior.noise_variance) ** 2, LEAST_TRUST, 1.0))


def _has_no_signal(prior: DriftPrior) -> bool:
    """Whether the logs' pooled coefficients could all be 0."""
    size = float(
        prior.pooled
        @ np.linalg.pinv(prior.pooled_covariance, hermitian=True)
        @ prior.pooled
    )
    return size < 2.0 * float(
        special.gammaincinv(0.5 * len(prior.pooled), SIGNAL_LEVEL)
    )  # of χ²_p


def hypothesis_weights(prior: DriftPrior) -> Array:
    """Prior probabilities of HYPOTHESES; the less the trust in what tells them apart, the more "nothing
    changed".
    """
    share = (trust(prior) - LEAST_TRUST) / (1.0 - LEAST_TRUST)
    return share * np.array(HYPOTHESIS_WEIGHTS) + (1.0 - share) * np.array(
        WEAK_SIGNAL_WEIGHTS
    )


def default_members(prior: DriftPrior, *, intercept: bool) -> list[Member]:
    """The members of AutoISD's four hypotheses, each with what it believes of the reward baseline.

    Sizes are in units of the data: drift in those of the logs, breaks and flat priors in `prior.unit`, the
    typical squared coefficient along each direction, and in that which the noise could hide, where the logs'
    signal is weaker than their noise. The first member of "logs useless" knows online rounds alone, and
    nothing in it moves.
    """
    sizes = sizes_for(prior)
    beliefs = (
        _unchanged(prior),
        _drifting(prior, sizes),
        _broken(prior, sizes),
        _useless(prior, sizes),
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


def sizes_for(prior: DriftPrior) -> Sizes:
    """Those of features, or those of labelled arms."""
    return FEATURE_SIZES if prior.population is None else ARM_SIZES


def _with_baseline(
    hypothesis: str, weight: float, belief: CoefficientBelief, prior: DriftPrior
) -> Iterator[Member]:
    noise = prior.level_unit
    level, doubt = prior.baseline, prior.baseline_error
    if hypothesis == "logs useless":
        level, doubt = 0.0, VERY_FLAT * noise + prior.baseline**2
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
    mean, spread = prior.where_logs_ended(
        prior.pooled, prior.pooled_covariance + prior.common_drift
    )
    yield CoefficientBelief(
        mean, spread, np.zeros(len(mean)), CORE_BASELINES[prior.baseline_moves]
    )


def _drifting(prior: DriftPrior, sizes: Sizes) -> Iterator[CoefficientBelief]:
    """Coefficients drawn afresh as those of a window; and going on from where the logs ended, if that is
    known.
    """
    core = CORE_BASELINES[prior.baseline_moves]
    other = OTHER_BASELINES[prior.baseline_moves]
    for factor, rate in DRIFTS:
        likeliest = rate == 0.0 and factor in (1.0, 4.0)
        spread = (
            prior.mean_covariance + factor * prior.drift_covariance + prior.common_drift
        )
        yield CoefficientBelief(
            prior.mean,
            spread,
            rate * factor * prior.drift,
            core if likeliest else other,
        )
    persistence = prior.persistence.max(initial=0.0)
    continuing = sizes.continuing + persistence * (sizes.persistent - sizes.continuing)
    ways = prior.last_steps.shape[0] * prior.last_steps.shape[1]
    share = len(DRIFTS) * continuing / (1.0 - continuing) / ways if ways else 0.0
    ends = zip(prior.last_means, prior.last_covariances, prior.last_steps, strict=True)
    for mean, covariance, steps in ends:
        yield from (
            CoefficientBelief(mean, covariance, step, other, share) for step in steps
        )


def _broken(prior: DriftPrior, sizes: Sizes) -> Iterator[CoefficientBelief]:
    still, units = np.zeros(len(prior.mean)), break_units(prior)
    breaks = [(size, unit) for size in BREAK_SIZES for unit in units]
    mean = prior.mean
    known = prior.mean_covariance + 4.0 * prior.drift_covariance + prior.common_drift
    if sizes.breaks_at_end:
        mean, known = prior.where_logs_ended(mean, known)
    for size, unit in [*breaks, (LARGE_BREAK, prior.unit)]:
        spread = known + size * np.diag(unit)
        yield CoefficientBelief(
            mean, spread, still, BROKEN_BASELINES[prior.baseline_moves]
        )


def _useless(prior: DriftPrior, sizes: Sizes) -> Iterator[CoefficientBelief]:
    still, other = np.zeros(len(prior.mean)), OTHER_BASELINES[prior.baseline_moves]
    typical, *hidden = break_units(prior)
    mean, widest = prior.unlogged([typical, *hidden][-1])
    yield CoefficientBelief(mean, sizes.widest * widest, still, STILL_BASELINE)
    _, spread = prior.unlogged(typical)
    for factor in sizes.others:
        yield CoefficientBelief(mean, factor * spread, still, other)
    for rate in USELESS_RATES:
        yield CoefficientBelief(mean, FLAT * spread, rate * typical, other)
    for unit in hidden:
        yield CoefficientBelief(mean, FLAT * prior.unlogged(unit)[1], still, other)


def break_units(prior: DriftPrior) -> list[Array]:
    """Typical squared coefficients (p,): the logs', and those that would be as strong as noise that hides
    them.
    """
    signal = prior.signal_variance
    if signal is None or prior.noise_variance <= signal:
        return [prior.unit]
    weakest = max(signal, WEAKEST_SIGNAL * prior.noise_variance)
    return [prior.unit, prior.unit * (prior.noise_variance / weakest)]


STUDENT_FREEDOM = 5.0
NEGLIGIBLE = 1e-10
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
        All of it but `hypothesis_index`, as the compiled loops take it.
    hypothesis_index : array of int, shape (C,)
        Places in HYPOTHESES.
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
        # Greedy choices mislead the likelihoods; tests without limit do not.
        weighing = STUDENT_FREEDOM, 1.0 if caution is None else trust(prior)
        numbers[kernels.FREEDOM], numbers[kernels.TRUST] = (
            weighing if noise == "learned" else (0.0, 1.0)
        )
        numbers[kernels.NOISE] = prior.noise_variance
        numbers[kernels.DEVIATIONS] = sizes_for(prior).deviations
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
        """The filter that knows online rounds alone: the first still one of the last hypothesis that has
        such.
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
        """Place of the filter that knows online rounds alone."""
        return int(self.buffer[kernels.REFERENCE])

    @property
    def believed_noise(self) -> float:
        """Variance of a reward about its expectation: the mixture's, or that of the logs where it is not
        learned.
        """
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
        """Covariance (d, d) of what the logs leave open: of the first filter, or of the mixture once the logs
        are doubted.
        """
        if self.doubts_logs:
            return self.mean_and_covariance()[1]
        lower = np.tril(self.filters.covariances[0])
        return np.asarray(lower + np.tril(lower, -1).T)

    def may_test(self, rounds: int) -> bool:
        """Whether a neglected action can be tested after so many rounds."""
        numbers = self.filters.numbers
        patient = rounds >= kernels.PATIENCE * numbers[kernels.COORDINATES]
        return bool(patient and (self.doubts_logs or numbers[kernels.CAUTION] != 0.0))

    def are_near(self, features: Array) -> bool:
        """Whether no action of these features (N, K, p) can be too far from anything in the logs: ‖z‖²·tr(Q)
        is an upper bound of how far.
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

    def distances(self, features: Array) -> Array:
        """How far actions (K, p) are from 0, in units of what is usual in the logs (K,); empty if that is
        not known.
        """
        filters = self.filters
        if not len(filters.log_precision):
            return np.zeros(0)
        z = features @ filters.basis
        z = (
            np.column_stack([z, np.ones(len(z))])
            if len(filters.logs_mean) > z.shape[1]
            else z
        )
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
        rest = np.append(
            before.layout.coordinates_without(arm), np.arange(before.layout.dim, d)
        )
        return {
            **self.arrays(),
            "means": filters.means[:, rest],
            "covariances": filters.covariances[:, rest][:, :, rest],
            "process": filters.process[:, rest],
            "online": np.tril(marginal_sums(filters.online, rest)),
        }


def marginal_sums(online: Array, places: Array) -> Array:
    """What the sums of the alarm, `Filters.online`, say of some coordinates (k,) if nothing is known of the
    others: these are projected out. Whole matrices (2, k + 1, k + 1).
    """
    d = online.shape[1] - 1
    whole = np.tril(online) + np.tril(online, -1).swapaxes(1, 2)
    gone = np.delete(np.arange(d), places)
    G, line = whole[0], np.eye(d + 1)[np.append(places, d)]
    inverse = np.linalg.pinv(G[np.ix_(gone, gone)], rcond=NEGLIGIBLE, hermitian=True)
    line[:-1, gone] = -G[np.ix_(places, gone)] @ inverse
    return np.asarray(line @ whole @ line.T)


def _with_coordinates(
    start: Member, mean: Array, lower: Array, new: Array, old: Array
) -> tuple[Array, Array]:
    """Mean and covariance of a filter with the new coordinates; `start` is what it would start from with
    them.
    """
    P = np.tril(lower) + np.tril(lower, -1).T
    known = start.covariance[np.ix_(old, old)]
    across = start.covariance[np.ix_(new, old)]
    line = across @ np.linalg.pinv(known, rcond=NEGLIGIBLE, hermitian=True)
    rest = start.covariance[np.ix_(new, new)] - line @ across.T
    d = len(new) + len(old)
    center, spread = np.empty(d), np.empty((d, d))
    center[old], center[new] = mean, start.mean[new] + line @ (mean - start.mean[old])
    spread[np.ix_(old, old)] = P
    spread[np.ix_(new, old)] = line @ P
    spread[np.ix_(old, new)] = (line @ P).T
    spread[np.ix_(new, new)] = 0.5 * (rest + rest.T) + line @ P @ line.T
    return center, spread
