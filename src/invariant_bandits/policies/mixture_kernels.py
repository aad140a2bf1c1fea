"""The compiled loops of a mixture of Kalman filters: how it learns and how it decides.

All filters stand in one array, the *buffer*, so that a call hands over one array instead of fifteen; `unpack`
returns its parts as Filters, which the loops take whole. Covariances are kept as lower triangles. Coordinates
of an action: z = [Vᵀφ, 1] if d = p + 1, else Vᵀφ. Signatures are explicit and input is checked here; a
refused call changes nothing.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import float64, int64, njit, types

from invariant_bandits.policies.kernels import (
    IN1,
    IN2,
    LARGEST_SQUARE,
    OPTIONS,
    REFUSED,
    SHORT,
    V1,
    V2,
    V3,
)

LEARNED, WINSORISED = 0, 1
"""Status of a round, beside REFUSED: learned; learned with its error or leverage cut in filters of more than
half of the weight."""
REASONS = ("greedy", "exploration", "test")
GREEDY, EXPLORATION, TEST = range(3)
"""Why an action is chosen: the largest mean; its standard deviation; to learn of it."""
IDENTITY, LOGIT = 0, 1
"""Links between coefficients and the expected reward."""
# The positions of `Filters.numbers`, the head of the buffer. Counts and flags are stored as floats, because a
# compiled loop takes one array of one type. FilterMixture fills them in.
#   sizes       C, p, d, and the rows of log_precision, which are d or 0
#   REFERENCE   index of the filter that knows online rounds alone
#   LINK        IDENTITY or LOGIT
#   SHARE       part of the weights that returns to the prior weights each round
#   FREEDOM     ν of Student's t; 0 if the noise is known
#   TRUST       exponent of the likelihoods
#   NOISE       noise variance that the mixture believes, changed by every round if it is learned
#   CAUTION     share of the gain that tests may cost, or NO_LIMIT
#   DEVIATIONS  standard deviations that a choice adds to the mean
# and eight constants of `constants.Learning` and `constants.Tests`.
SIZES = MEMBERS, FEATURES, COORDINATES, PRECISION_ROWS = range(4)
REFERENCE, LINK, SHARE, FREEDOM, TRUST, NOISE, CAUTION, DEVIATIONS = range(4, 12)
NOISE_PRIOR_ROUNDS, PARKED, REST = range(12, 15)
DOUBT, NEGLECT, PATIENCE, TEST_PRICE, TEST_ROUNDS = range(15, 20)
NUMBERS = 20

OUTLIER = 10.0
"""Standard deviations beyond which an error counts as so many: one round moves no filter further."""
LEVERAGE = 2.0
"""Weight of the leverage zᵀPz/S in what a round says of the noise: the alarm allows for directions that were
tried a few times only, whose squared errors are too few to be trusted."""
FARTHEST = 1e12
"""An action is refused if it is farther from 0 than a million times what is typical in the logs."""
STEEPEST = 1e10
"""One round lessens the variance along its action by this factor at most, far from where rounding matters."""
LEAST_NOISE = 1e-150
"""Of the noise variance, however exact the predictions are."""
NOISE_MEMORY = 1000.0
"""Online rounds after which the noise variance becomes an exponential average: the noise may change."""
MODERATION = 0.393
"""π/8: the mean of σ over N(m, v) is near σ(m/√(1 + πv/8)) (MacKay 1992)."""
LEAST_CLICK_VARIANCE = 1e-4
"""Of π(1 − π): one click at odds of one in ten thousand moves the log-odds by a finite step."""
ROUNDING = 1e-10
"""What is added to a unit diagonal, so that a Cholesky factor exists despite rounding."""


class Filters(NamedTuple):
    """C filters over d coordinates of p features, as views of one buffer.

    Attributes
    ----------
    numbers : array, shape (NUMBERS,)
        Sizes and settings, by their places.
    basis : array, shape (p, p)
        V, orthonormal columns.
    log_precision : array, shape (d, d) or (0, 0)
        Q, the inverse of the logs' mean of zzᵀ; empty if it is not known.
    logs_mean : array, shape (d,)
        What the logs expect of the coefficients.
    means, covariances, process : arrays, shapes (C, d), (C, d, d), (C, d)
        m and P of every filter, and the variances q by which it wanders each round.
    weights, prior_weights, noise, trusts_logs : arrays, shape (C,)
        Probabilities now and at the start, noise variances v, and 1 for filters that trust the logs' model.
    mean : array, shape (d,)
        The mixture's mean.
    online : array, shape (2, d + 1, d + 1)
        Sums of the online rounds for the alarm, lower triangles: first [Σzzᵀ; Σz·apart, count], then
        Σsquare·zzᵀ, where `apart` is how far a reward is from what the logs expect, and `square` what the
        round says of the variance of the noise; of clicks, both and zzᵀ are weighted by h.
    """

    numbers: Any
    basis: Any
    log_precision: Any
    logs_mean: Any
    means: Any
    covariances: Any
    process: Any
    weights: Any
    prior_weights: Any
    noise: Any
    trusts_logs: Any
    mean: Any
    online: Any


# The steps of `learn`: as calls that hand on thirteen arrays they would cost a twentieth of a round.
INLINED: dict[str, Any] = {**OPTIONS, "inline": "always"}
AWAKE = types.boolean[::1]
IN_CODES = types.Array(int64, 1, "C", readonly=True)
TWO_NUMBERS, CHOICE = types.UniTuple(float64, 2), types.UniTuple(int64, 2)  # type: ignore[no-untyped-call]
FILTERS = types.NamedTuple(
    (V1, V2, V2, V1, V2, V3, V2, V1, V1, V1, V1, V1, V3), Filters
)  # type: ignore[no-untyped-call]


def buffer_size(C: int, p: int, d: int, k: int) -> int:
    """Length of a buffer of C filters over d coordinates of p features, with a precision of k rows."""
    return NUMBERS + p * p + k * k + d + C * (2 * d + d * d + 4) + d + 2 * (d + 1) ** 2


@njit(FILTERS(V1), **OPTIONS)
def unpack(buffer: Any) -> Any:
    """The parts of a buffer, as views of it."""
    C, p = int(buffer[MEMBERS]), int(buffer[FEATURES])
    d, k = int(buffer[COORDINATES]), int(buffer[PRECISION_ROWS])
    rest = buffer[NUMBERS:]
    basis, rest = rest[: p * p].reshape((p, p)), rest[p * p :]
    log_precision, rest = rest[: k * k].reshape((k, k)), rest[k * k :]
    logs_mean, rest = rest[:d], rest[d:]
    means, rest = rest[: C * d].reshape((C, d)), rest[C * d :]
    covariances, rest = rest[: C * d * d].reshape((C, d, d)), rest[C * d * d :]
    process, rest = rest[: C * d].reshape((C, d)), rest[C * d :]
    weights = rest[:C]
    prior_weights = rest[C : 2 * C]
    rest = rest[2 * C :]
    noise = rest[:C]
    trusts_logs = rest[C : 2 * C]
    rest = rest[2 * C :]
    mean, online = rest[:d], rest[d:].reshape((2, d + 1, d + 1))
    return Filters(
        *(
            buffer[:NUMBERS],
            basis,
            log_precision,
            logs_mean,
            means,
            covariances,
            process,
        ),
        *(weights, prior_weights, noise, trusts_logs, mean, online),
    )


@njit(types.boolean(IN2, IN2, V2), **OPTIONS)
def rotate(X: Any, V: Any, Z: Any) -> Any:
    """Z (K, d) ← [XV, 1] or XV; whether the rows of X (K, p) are finite and can be squared.

    Four features at a time, so that a row of Z is read and written a quarter as often.
    """
    K, p = X.shape
    whole, usable = p - p % 4, True
    Z[:] = 1.0
    for k in range(K):
        size = 0.0
        for i in range(p):
            Z[k, i] = 0.0
            size += X[k, i] * X[k, i]
        usable = usable and size < LARGEST_SQUARE
        for j in range(0, whole, 4):
            a = X[k, j]
            b = X[k, j + 1]
            c = X[k, j + 2]
            e = X[k, j + 3]
            if (
                a != 0.0 or b != 0.0 or c != 0.0 or e != 0.0
            ):  # most are 0 where actions are labelled arms
                for i in range(p):
                    Z[k, i] += (
                        a * V[j, i]
                        + b * V[j + 1, i]
                        + c * V[j + 2, i]
                        + e * V[j + 3, i]
                    )
        for j in range(whole, p):
            for i in range(p):
                Z[k, i] += X[k, j] * V[j, i]
    return usable


@njit(float64(V1, IN2), **OPTIONS)
def form(z: Any, A: Any) -> Any:
    """zᵀAz of a symmetric matrix with len(z) columns, from its lower triangle."""
    total = 0.0
    for i in range(len(z)):
        if z[i] != 0.0:
            row = 0.0
            for j in range(i):
                row += A[i, j] * z[j]
            total += z[i] * (2.0 * row + A[i, i] * z[i])
    return total


@njit(types.boolean(V1, IN2), **OPTIONS)
def _is_too_far(z: Any, log_precision: Any) -> Any:
    """Whether zᵀQz > FARTHEST·d, Q the logs' precision if it is known; z·z·tr(Q) is an upper bound."""
    size = 0.0
    trace = 0.0
    d = len(z)
    for i in range(len(log_precision)):
        size += z[i] * z[i]
        trace += log_precision[i, i]
    return (
        not size * trace <= FARTHEST * d and not form(z, log_precision) <= FARTHEST * d
    )


@njit(types.void(V1), **OPTIONS)
def mix(buffer: Any) -> Any:
    """mean ← Σw m, and the believed noise ← Σw v where it is learned."""
    filters = unpack(buffer)
    mean = filters.mean
    weights = filters.weights
    M = filters.means
    noise = 0.0
    C, d = M.shape
    mean[:] = 0.0
    for c in range(C):
        noise += weights[c] * filters.noise[c]
        for i in range(d):
            mean[i] += weights[c] * M[c, i]
    if filters.numbers[FREEDOM] > 0.0:
        filters.numbers[NOISE] = noise


@njit(V2(V1), **OPTIONS)
def covariance(buffer: Any) -> Any:
    """Σw(P + (m − m̄)(m − m̄)ᵀ) (d, d) of the mixture, the lower triangle; filters that rest are left out."""
    filters = unpack(buffer)
    M = filters.means
    P = filters.covariances
    weights = filters.weights
    mean = filters.mean
    C, d = M.shape
    result = np.zeros((d, d))
    least = filters.numbers[PARKED] if filters.numbers[FREEDOM] > 0.0 else 0.0
    for c in range(C):
        w = weights[c]
        if w < least:
            continue
        for i in range(d):
            apart = w * (M[c, i] - mean[i])
            for j in range(i + 1):
                result[i, j] += w * P[c, i, j] + apart * (M[c, j] - mean[j])
    return result


@njit(types.void(V1, V2, V1), **OPTIONS)
def _product(z: Any, A: Any, g: Any) -> Any:
    """g ← Az of a symmetric matrix, from its lower triangle."""
    for i in range(len(z)):
        g[i] = 0.0
    for i in range(len(z)):
        row = 0.0
        zi = z[i]
        for j in range(i):
            row += A[i, j] * z[j]
            g[j] += A[i, j] * zi
        g[i] += row + A[i, i] * zi


@njit(types.void(V1, float64, V1, float64, V2), **OPTIONS)
def _absorb(g: Any, gain: float, q: Any, elapsed: float, A: Any) -> Any:
    """A ← A − gain·ggᵀ + elapsed·diag(q), the lower triangle."""
    for i in range(len(g)):
        scaled = g[i] * gain
        for j in range(i + 1):
            A[i, j] -= scaled * g[j]
        A[i, i] = max(A[i, i], 0.0) + elapsed * q[i]


@njit("UniTuple(f8, 4)(f8, f8, f8, f8)", **OPTIONS)
def click_evidence(reward: float, odds: float, variance: float, trust: float) -> Any:
    """Return what a click r says of log-odds N(odds, variance), as error, variance, log-likelihood and h.

    The error is (r − π)/h and its variance 1/h + variance, with π = σ(odds/√(1 + .393·variance)) and h =
    π(1 − π), at least 1e-4: the extended Kalman filter of a logistic model, linearised at π. The
    likelihood is that of the click under π, raised to `trust`.
    """
    chance = 1.0 / (1.0 + np.exp(-odds / np.sqrt(1.0 + MODERATION * variance)))
    chance = min(max(chance, LEAST_CLICK_VARIANCE), 1.0 - LEAST_CLICK_VARIANCE)
    h = max(chance * (1.0 - chance), LEAST_CLICK_VARIANCE)
    likelihood = (
        reward * np.log(chance) + (1.0 - reward) * np.log(1.0 - chance)
    ) * trust
    return (reward - chance) / h, 1.0 / h + variance, likelihood, h


@njit(types.boolean(V1, FILTERS, float64, float64, AWAKE, V2, V1, V1), **INLINED)
def _predict(
    z: Any,
    filters: Any,
    target: float,
    offset_variance: float,
    awake: Any,
    G: Any,
    variances: Any,
    errors: Any,
) -> Any:
    """Fill in what every awake filter expects of a round; whether all squares are finite.

    With g = Pz, the row of G (C, d): the variance zᵀg + offset_variance of the expectation, and the error
    e = target − zᵀm. A variance below 0 is a rounding error.
    """
    M = filters.means
    C, d = M.shape
    for c in range(C):
        if not awake[c]:
            continue
        g = G[c]
        _product(z, filters.covariances[c], g)
        variance = offset_variance
        e = target
        for i in range(d):
            variance += g[i] * z[i]
            e -= M[c, i] * z[i]
        variances[c] = max(variance, 0.0)
        errors[c] = e
        if not (variances[c] < LARGEST_SQUARE and e * e < LARGEST_SQUARE):
            return False
    return True


@njit(float64(FILTERS, AWAKE, V1, float64), **INLINED)
def _reweigh(filters: Any, awake: Any, log_weights: Any, largest: float) -> Any:
    """Replace the weights of awake filters by exp(log_weights − largest); returns the sum of all weights.

    The largest exponent is 0, so that nothing overflows. Filters that rest are scaled like the sum of the
    others, as if they had predicted what the others did.
    """
    weights = filters.weights
    before = 0.0
    after = 0.0
    for c in range(len(weights)):
        if awake[c]:
            before += weights[c]
            weights[c] = np.exp(log_weights[c] - largest)
            after += weights[c]
    resting_factor = after / before
    total = 0.0
    for c in range(len(weights)):
        if not awake[c]:
            weights[c] *= resting_factor
        total += weights[c]
    return total


@njit(types.void(V1, FILTERS, float64, float64, float64), **INLINED)
def _add_to_alarm(
    z: Any, filters: Any, weight: float, square: float, score: float
) -> Any:
    """Add a round to the sums of the alarm: weight·zzᵀ, square·zzᵀ, score·z, and 1 to the count."""
    online = filters.online
    d = len(z)
    for i in range(d):
        for j in range(i + 1):
            product = z[i] * z[j]
            online[0, i, j] += weight * product
            online[1, i, j] += square * product
        online[0, d, i] += z[i] * score
    online[0, d, d] += 1.0


@njit(int64(IN1, float64, V1, float64, float64, float64), **OPTIONS)
def learn(
    x: Any,
    reward: float,
    buffer: Any,
    rounds: float,
    offset: float,
    offset_variance: float,
) -> Any:
    """Learn one round, features x (p,) and reward, in every filter of a buffer; returns its status.

    `rounds` were learned before. `offset` is a part of the expected reward, or of its log-odds, that is known
    beside the features up to the variance `offset_variance`; both are 0 below. The weights and the mean of
    the mixture follow the filters.

    Filter c is a Kalman filter. With S = v + zᵀPz and e = r − zᵀm, m += Pz·e/S, P −= (Pz)(Pz)ᵀ/S, then P +=
    diag(q). With FREEDOM ν > 0 weights follow Student's t, w ∝ w·[S(1 + e²/νS)^(ν+1)]^(−η/2), which outliers
    cannot rule, and the noise variance moves towards its expectation given the round, v·zᵀPz/S + (v/S)²e², by
    one part in 30 + min(`rounds`, 1000). Errors beyond ten standard deviations count as ten. With ν = 0 the
    noise is known: w ∝ w·N(e; 0, S). A SHARE of the weights returns to the prior weights. The alarm gathers
    v(e²/S + 2zᵀPz/S) of the filter REFERENCE, what the round says of the variance of the noise, as Σ(…)zzᵀ
    beside Σzzᵀ, and how far the reward is from what the logs expect.

    With link LOGIT the reward is a click, from 0 to 1, and z·m its log-odds: S and e are those of
    `click_evidence`, weights follow the likelihood of the click, and 1/v moves towards π(1 − π) in the same
    way. The alarm then gathers Σhzzᵀ, as the variance of the noise as well, and Σz(r − π + h·zᵀ(m̄ − m₀)), π
    and h at the mixture's mean m̄ before the round, m₀ that of the logs.

    Variances stay positive: no round lessens one by more than STEEPEST, and an action too far from anything
    in the logs is refused. So is a round whose squares would overflow, before anything is changed.

    With learned noise, filters of weight below PARKED learn every REST-th round only, except for REFERENCE.
    In the other rounds they predict what the others predict, so that their weight stays (Freund et al. 1997).
    """
    filters = unpack(buffer)
    numbers = filters.numbers
    V = filters.basis
    M = filters.means
    v = filters.noise
    weights = filters.weights
    reference = int(numbers[REFERENCE])
    link = int(numbers[LINK])
    share = numbers[SHARE]
    freedom = numbers[FREEDOM]
    trust = numbers[TRUST]
    parked_below = numbers[PARKED]
    C, d = M.shape

    # Refuse what would leave a broken state, before anything is changed.
    rotated = np.empty((1, d))
    if len(x) != V.shape[0] or not rotate(x.reshape((1, len(x))), V, rotated):
        return REFUSED
    z = rotated[0]
    if _is_too_far(z, filters.log_precision):
        return REFUSED
    if not reward * reward < LARGEST_SQUARE or (
        link == LOGIT and not 0.0 <= reward <= 1.0
    ):
        return REFUSED
    all_awake = freedom <= 0.0 or int(rounds) % int(numbers[REST]) == 0
    awake = np.zeros(C, dtype=np.bool_)
    for c in range(C):
        awake[c] = all_awake or weights[c] >= parked_below or c == reference
    G = np.empty((C, d))
    notes = np.empty((4, C))
    variances = notes[0]
    errors = notes[1]
    gains = notes[2]
    log_weights = notes[3]
    target = reward - offset
    if not _predict(z, filters, target, offset_variance, awake, G, variances, errors):
        return REFUSED

    # Correct means and noise variances, and gather the likelihoods.
    counted = numbers[NOISE_PRIOR_ROUNDS] + min(rounds, NOISE_MEMORY)
    largest = -np.inf
    score = 0.0
    square = 0.0
    weight = 1.0
    cut = 0.0
    for c in range(C):
        if not awake[c]:
            continue
        g = G[c]
        variance = variances[c]
        e = errors[c]
        S = variance + max(v[c], variance / STEEPEST)
        likelihood = 0.0
        h = 0.0
        if link == LOGIT:
            e, S, likelihood, h = click_evidence(reward, reward - e, variance, trust)
        gain = 1.0 / S
        if freedom > 0.0 and link == IDENTITY:
            furthest = OUTLIER * np.sqrt(S)
            if abs(e) > furthest or variance > STEEPEST * v[c]:
                cut += weights[c]
            e = min(max(e, -furthest), furthest)
        if c == reference and link == IDENTITY:
            # r − zᵀm₀ = e + zᵀ(m − m₀), with e cut where it is an outlier.
            square = v[c] * (e * e * gain + LEVERAGE * (1.0 - v[c] * gain))
            score = e
            for i in range(d):
                score += z[i] * (M[c, i] - filters.logs_mean[i])
        for i in range(d):
            M[c, i] += g[i] * e * gain
        surprise = e * e * gain
        if link == LOGIT:
            v[c] = 1.0 / (1.0 / v[c] + (h - 1.0 / v[c]) / counted)
        elif freedom > 0.0:
            likelihood = (
                -0.5
                * (np.log(S) + (freedom + 1.0) * np.log(1.0 + surprise / freedom))
                * trust
            )
            noise_part = v[c] * gain  # of the variance S
            v[c] = max(
                v[c]
                + (v[c] * (1.0 - noise_part) + noise_part * noise_part * e * e - v[c])
                / counted,
                LEAST_NOISE,
            )
        else:
            likelihood = -0.5 * (np.log(S) + surprise)
        gains[c] = gain
        log_weights[c] = np.log(weights[c]) + likelihood
        largest = max(largest, log_weights[c])

    # Weights, and the covariances: P −= gain·ggᵀ, then the steps of the rounds until the next lesson.
    total = _reweigh(filters, awake, log_weights, largest)
    for c in range(C):
        parked = (
            all_awake
            and freedom > 0.0
            and weights[c] < parked_below * total
            and c != reference
        )
        returned = share * filters.prior_weights[c]
        weights[c] = (1.0 - share) * weights[c] / total + returned
        if awake[c]:
            elapsed = numbers[REST] if parked else 1.0
            _absorb(G[c], gains[c], filters.process[c], elapsed, filters.covariances[c])

    # The alarm sees clicks at the mixture's mean before the round, so that comes before `mix`.
    if link == LOGIT:
        odds = offset
        expected = offset
        for i in range(d):
            odds += z[i] * filters.mean[i]
            expected += z[i] * filters.logs_mean[i]
        error, _, _, weight = click_evidence(reward, odds, 0.0, 1.0)
        score = weight * (error + odds - expected)
        square = weight
    mix(buffer)
    _add_to_alarm(z, filters, weight, square, score)
    return WINSORISED if cut > 0.5 else LEARNED


NO_LIMIT = -1.0
"""The caution of a policy whose tests have no limit."""
SMALLEST_GAP = 1e-6
"""Least gap of two means in units of the noise's standard deviation: it divides."""
UNLIKELY = 1e-5
"""Weight below which a filter is left out of the value of a test, for speed."""
IMPOSSIBLE = 1e-12
"""Probability of being better below which an action is not tested: it divides."""
# Of the normal distribution: Φ(x) = erfc(−x/√2)/2, with density exp(−x²/2)/√(2π).
ROOT_TWO, ROOT_TWO_PI = math.sqrt(2.0), math.sqrt(2.0 * math.pi)


@njit(int64(IN2, FILTERS, V2, V1), **OPTIONS)
def _expect(X: Any, filters: Any, Z: Any, means: Any) -> Any:
    """Coordinates Z (K, d) and the mixture's means (K,) of the actions X (K, p); returns 0 or REFUSED."""
    K, d = Z.shape
    if X.shape[1] != len(filters.basis) or K == 0 or not rotate(X, filters.basis, Z):
        return REFUSED
    for k in range(K):
        if _is_too_far(Z[k], filters.log_precision):
            return REFUSED
        means[k] = 0.0
        for i in range(d):
            means[k] += filters.mean[i] * Z[k, i]
    return 0


@njit(int64(IN2, V1, V2), **SHORT)
def score(X: Any, buffer: Any, parts: Any) -> Any:
    """Mean and posterior standard deviation of the actions X (K, p) to parts (2, K); 0 or REFUSED."""
    filters = unpack(buffer)
    Z, spread = np.empty((X.shape[0], len(filters.mean))), covariance(buffer)
    if _expect(X, filters, Z, parts[0]) < 0:
        return REFUSED
    for k in range(len(Z)):
        parts[1, k] = np.sqrt(max(form(Z[k], spread), 0.0))
    return 0


@njit(V1(V2, FILTERS, float64), **OPTIONS)
def _neglect(Z: Any, filters: Any, rounds: float) -> Any:
    """t·zᵀP_u z/(s²·zᵀQz) (K,) of actions with coordinates Z (K, d) after t rounds.

    P_u is of the filter REFERENCE, which knows online rounds alone, and Q the logs' precision: how much less
    is known of the action than t rounds like those of the logs would have taught. For an action hardly tried
    it grows with t. Where none of the offered is well known it is in units of the best known one: new
    contexts neglect nothing. If Q is not known, zᵀQz is taken as d.
    """
    log_precision, numbers = filters.log_precision, filters.numbers
    known, (K, d) = filters.covariances[int(numbers[REFERENCE])], Z.shape
    neglect, least = np.empty(K), np.inf
    for k in range(K):
        usual = form(Z[k], log_precision) if len(log_precision) else float(d)
        # s²/(t·zᵀQz) is what t logged rounds leave of the variance along z.
        neglect[k] = (
            rounds * max(form(Z[k], known), 0.0) / (numbers[NOISE] * max(usual, 1.0))
        )
        least = min(least, neglect[k])
    if len(log_precision) and least > 1.0:
        for k in range(K):
            neglect[k] /= least
    return neglect


@njit(TWO_NUMBERS(V1, V1, FILTERS, float64), **OPTIONS)
def _advantage(z: Any, best: Any, filters: Any, least: float) -> Any:
    """P(advantage > 0) and E[max(advantage, 0)] of the action z over `best`.

    The filter that knows online rounds alone weighs at least `least`.
    """
    M = filters.means
    P = filters.covariances
    weights = filters.weights
    d, reference = len(z), int(filters.numbers[REFERENCE])
    apart = z - best
    better = 0.0
    gain = 0.0
    for c in range(len(weights)):
        w = max(weights[c], least) if c == reference else weights[c]
        if w < UNLIKELY:
            continue
        mean = 0.0
        for i in range(d):
            mean += apart[i] * M[c, i]
        deviation = np.sqrt(max(form(apart, P[c]), 1e-300))
        # For N(mean, deviation²): P(> 0) = Φ(size), E[max(·, 0)] = deviation·φ(size) + mean·Φ(size).
        size = mean / deviation
        likely = 0.5 * math.erfc(-size / ROOT_TWO)
        better += w * likely
        gain += w * max(
            0.0, deviation * math.exp(-0.5 * size * size) / ROOT_TWO_PI + mean * likely
        )
    return better, gain


@njit(int64(V2, FILTERS, float64, float64, float64, V1), **OPTIONS)
def _find_test(
    Z: Any, filters: Any, rounds: float, remaining: float, doubted: float, means: Any
) -> Any:
    """Return the neglected action of Z (K, d) that is most worth a test, or −1, given the means (K,).

    gap: how far its mean is below the best one; h = E[max(advantage, 0)], p = P(advantage > 0), the filter
    that knows online rounds alone weighing DOUBT + `doubted` at least. It takes n = 3(1 + 8s²/δ²) rounds to
    see an advantage of δ = gap + h/p: the action is worth a test if remaining·h > n·gap.

    What tests of neglected actions have cost, Σ n_k·gap_k with n_k = s²/zᵀP_u z rounds of action k, stays
    below CAUTION times the believed gain of all rounds so far. There is no such limit if the logs are doubted
    by more than half of the weight.
    """
    numbers, K = filters.numbers, len(Z)
    noise = numbers[NOISE]
    caution = numbers[CAUTION]
    price = numbers[TEST_PRICE]
    test_rounds = numbers[TEST_ROUNDS]
    known = filters.covariances[int(numbers[REFERENCE])]
    neglected = numbers[NEGLECT]
    neglect = _neglect(Z, filters, rounds)
    leader = np.argmax(means)
    account = np.inf
    if caution != NO_LIMIT and doubted <= 0.5:
        account = rounds * caution * (means[leader] - means.mean())
        for k in range(K):
            if neglect[k] >= neglected:
                account -= (
                    noise
                    / max(form(Z[k], known), LEAST_NOISE)
                    * (means[leader] - means[k])
                )
    top, chosen = 1.0, -1
    for k in range(K):
        if k == leader or neglect[k] < neglected or neglect[k] < neglect[leader]:
            continue
        gap = max(means[leader] - means[k], SMALLEST_GAP * np.sqrt(noise))
        if gap > account:
            continue
        better, gain = _advantage(
            Z[k], Z[leader], filters, min(1.0, numbers[DOUBT] + doubted)
        )
        if better < IMPOSSIBLE:
            continue
        reach = gap + gain / better
        ratio = (
            remaining
            * gain
            / (price * (1.0 + test_rounds * noise / (reach * reach)) * gap)
        )
        if ratio > top:
            top, chosen = ratio, k
    return chosen


@njit(int64(V2, V2, V1, int64, float64), **OPTIONS)
def _most_promising(Z: Any, P: Any, means: Any, leader: int, deviations: float) -> Any:
    """The first action with the largest mean + deviations·√(zᵀPz).

    Z (K, d): coordinates; means (K,): the largest is that of `leader`.

    zᵀPz ≤ z·z·tr(P): most actions cannot win, and their forms are not worked out.
    """
    (K, d), trace = Z.shape, 0.0
    for i in range(d):
        trace += P[i, i]
    chosen = leader
    top = means[leader] + deviations * np.sqrt(max(form(Z[leader], P), 0.0))
    for k in range(K):
        size = 0.0
        for i in range(d):
            size += Z[k, i] * Z[k, i]
        if k == leader or top - means[k] > deviations * np.sqrt(size * trace):
            continue
        bound = means[k] + deviations * np.sqrt(max(form(Z[k], P), 0.0))
        if bound > top or (bound == top and k < chosen):
            chosen, top = k, bound
    return chosen


@njit(CHOICE(IN2, V1, float64, float64, V1), **SHORT)
def decide(X: Any, buffer: Any, rounds: float, remaining: float, means: Any) -> Any:
    """Return the index of the action of X (K, p) to play, or REFUSED, and that of its reason in REASONS.

    `rounds` were learned and `remaining` are to come. The mixture's means (K,) go to `means`.

    An action worth a test, where tests are allowed; else the largest mean plus DEVIATIONS standard deviations
    of what the logs leave open, by the first filter, in which nothing changed; plus one of the whole mixture
    once filters that do not trust the logs hold more than half of the weight.
    """
    filters, doubted = unpack(buffer), 0.0
    d = len(filters.mean)
    Z = np.empty((X.shape[0], d))
    if _expect(X, filters, Z, means) < 0:
        return REFUSED, GREEDY
    for c in range(len(filters.weights)):
        if filters.trusts_logs[c] == 0.0:
            doubted += filters.weights[c]
    may_test = doubted > 0.5 or filters.numbers[CAUTION] != 0.0
    if may_test and rounds >= filters.numbers[PATIENCE] * d:
        tested = _find_test(Z, filters, rounds, remaining, doubted, means)
        if tested >= 0:
            return tested, TEST
    leader = int(np.argmax(means))
    if doubted > 0.5:
        chosen = _most_promising(Z, covariance(buffer), means, leader, 1.0)
    else:
        deviations = filters.numbers[DEVIATIONS]
        chosen = _most_promising(Z, filters.covariances[0], means, leader, deviations)
    return chosen, GREEDY if chosen == leader else EXPLORATION


@njit(CHOICE(IN2, V1, float64, float64), **SHORT)
def choose(X: Any, buffer: Any, rounds: float, remaining: float) -> Any:
    """What `decide` returns, where the means are not asked for."""
    return decide(X, buffer, rounds, remaining, np.empty(X.shape[0]))


# -- arms with coefficients of their own beside the mixture --


@njit(V2(IN_CODES, V2, V2, V3, IN1, V1), **SHORT)
def deviation_moments(
    codes: Any, Z: Any, means: Any, covariances: Any, steps: Any, elapsed: Any
) -> Any:
    """Mean zᵀδ and variance zᵀ(P + elapsed·diag(steps))z of what K arms add (2, K).

    codes (K,): indices of the arms, whose δ and P are in `means` (A, w) and `covariances` (A, w, w). z: the
    first w entries of the rows of Z.
    """
    w = means.shape[1]
    result = np.zeros((2, len(codes)))
    for k in range(len(codes)):
        z = Z[k]
        P = covariances[codes[k]]
        for i in range(w):
            product = elapsed[k] * steps[i] * z[i]
            for j in range(w):
                product += P[i, j] * z[j]
            result[0, k] += means[codes[k], i] * z[i]
            result[1, k] += z[i] * product
        result[1, k] = max(result[1, k], 0.0)
    return result


# -- likelihoods of the alarm --


@njit(float64(V2, V1, V2, V2), **OPTIONS)
def half_solved(G: Any, w: Any, rest: Any, U: Any) -> Any:
    """Turn U into L⁻¹U, and return log N(u; 0, LLᵀ) for its last column u.

    LLᵀ = rest + G·diag(w)·Gᵀ (p, p), G is (p, q), and the logarithm is up to a constant. Rows and columns
    are scaled to a unit diagonal, which is raised a little, so that directions never tried do no harm.
    """
    p = len(rest)
    M = np.empty((p, p))
    scales = np.empty(p)
    total = 0.0
    for i in range(p):
        row = G[i] * w
        for j in range(i + 1):
            product = 0.0
            for k in range(len(w)):
                product += row[k] * G[j, k]
            M[i, j] = product + rest[i, j]
        scales[i] = np.sqrt(M[i, i]) if M[i, i] > 0.0 else 1.0
        total += np.log(scales[i])
    for i in range(p):
        for j in range(i + 1):
            M[i, j] /= scales[i] * scales[j]
        M[i, i] += ROUNDING
    # Cholesky, row by row, with the forward substitution of each row of U as soon as its pivot is known.
    for i in range(p):
        for j in range(i + 1):
            product = M[i, j]
            for k in range(j):
                product -= M[i, k] * M[j, k]
            if j < i:
                M[i, j] = product / M[j, j]
            else:
                M[i, i] = np.sqrt(max(product, ROUNDING * ROUNDING))
        total += np.log(M[i, i])
        U[i] /= scales[i]
        for k in range(i):
            for c in range(U.shape[1]):
                U[i, c] -= M[i, k] * U[k, c]
        U[i] /= M[i, i]
    # −½ log det(LLᵀ) − ½‖L⁻¹u‖²; `total` has the logarithms of scales and pivots.
    result = -total
    for i in range(p):
        result -= 0.5 * U[i, -1] * U[i, -1]
    return result


@njit(float64(V1, V2, V1, V2), **OPTIONS)
def log_normal(u: Any, G: Any, w: Any, rest: Any) -> Any:
    """log N(u; 0, rest + G·diag(w)·Gᵀ) up to a constant."""
    return half_solved(G, w, rest, u.copy().reshape(-1, 1))
