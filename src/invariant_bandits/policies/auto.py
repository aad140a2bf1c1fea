"""AutoISD: a hedge over what may have changed since the logs, for a user who has logs and wants to tune nothing."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn, Self, TypeVar

import numpy as np

from invariant_bandits.checks import Array, InputError, number_between, one_of, probability, whole_number
from invariant_bandits.decomposition.arm_statistics import ArmStatistics
from invariant_bandits.decomposition.drift_prior import LARGEST_MEAN, LARGEST_VARIANCE, LEAST_NOISE, DriftPrior
from invariant_bandits.decomposition.estimator import InvariantSubspaceDecomposition
from invariant_bandits.moments.windowed import WindowedMoments
from invariant_bandits.policies import alarm, belief, mixture_kernels
from invariant_bandits.policies.base import (
    BasePolicy,
    Scores,
    batch_array,
    certain,
    chosen_array,
    not_negative,
    offered_array,
    refuse_offered,
    refuse_round,
    reward_number,
)
from invariant_bandits.policies.belief import Belief
from invariant_bandits.policies.hypotheses import HYPOTHESES, Member, default_members, temper
from invariant_bandits.policies.kernels import WRONG_TYPE
from invariant_bandits.policies.past import OfferedSets, Past
from invariant_bandits.policies.registry import policy
from invariant_bandits.policies.rehearsal import Rehearsal, World, rehearse
from invariant_bandits.storage import (
    MOST_ROUNDS,
    ArraySpec,
    Check,
    StateSchema,
    adds_up_to_one,
    count,
    counters,
    no_variance_negative,
    prefixed,
    truth_value,
    under,
)

kernels: Any = mixture_kernels  # compiled: its functions have no Python signature
NOISE = ("known", "learned")
STUDENT_FREEDOM = 5.0
TESTS = {"none": (np.inf, np.inf), "patient": (3.0, 3.0), "eager": (1.0, 0.0)}
"""How neglected an action must be to be tested, and after how many rounds per coordinate tests begin."""

MANY_CUT, SHARE_CUT = 10, 0.05
"""From how many rounds that were cut short on, and from what share of all, a policy warns."""


class OutlierWarning(UserWarning):
    """Many rounds were so far from anything expected that they were not learned as they were told."""


class AutoLearning(BasePolicy):
    """A mixture of filters that learns, round by round; AutoISD says what its settings mean.

    Attributes
    ----------
    winsorised : int
        Rounds learned as if they had been nearer to what was expected. If they are many, a warning says so, once.
    refused : int
        Rounds, and offers, refused since it was made or loaded because an action was too far from anything in the logs.
    """

    prior: DriftPrior
    link: str
    dim: int
    intercept: bool
    exploration: float
    confidence: float
    share: float
    noise: str
    tests: str

    @property
    def members(self) -> int:
        """How many filters there are."""
        return len(self._owners)

    def _begin(self, members: Sequence[Member]) -> None:
        d = self.dim + self.intercept
        if not members or any(len(one.mean) != d for one in members):
            raise InputError(f"members must not be empty and must have {d} coordinates each")
        weights = np.array([one.weight for one in members])
        self._owners = np.array([HYPOTHESES.index(one.hypothesis) for one in members], dtype=np.int64)
        self._means = np.stack([one.mean for one in members])
        self._covariances = np.stack([one.covariance for one in members])
        self._process = np.stack([one.process for one in members])
        self._settled = np.array([one.trusts_logs for one in members], dtype=np.int64)
        self._prior_weights = weights / weights.sum()
        self._weights = self._prior_weights.copy()
        self._noise = np.full(len(weights), self.prior.noise_variance)
        self._online = np.zeros((2, d + 1, d + 1))
        self._rounds, self._peak_evidence = 0, 0.0
        self.winsorised, self.refused, self._warned = 0, 0, False
        self._derive()

    def _derive(self) -> None:
        """What follows from the state: the blend, the multiplier, and the filter that knows online rounds alone."""
        self._basis = np.ascontiguousarray(self.prior.basis)
        self._blend = np.empty((self._means.shape[1] + 1, self._means.shape[1]))
        kernels.blend_filters(self._means, self._covariances, self._weights, self._blend)
        self._radius = float(np.sqrt(2.0 * np.log(1.0 / self.confidence)) + 1.0)
        still = self._process.sum(axis=1) == 0.0
        widest = np.where(still, self._owners, -1)
        self._reference = int(np.argmax(widest)) if still.any() else int(np.argmax(self._owners))
        self._multiplier = self.exploration * self._radius
        # Actions hardly tried are judged more generously: as with exploration 0.25 at least, and 1 at most.
        most_lag = max(1.0, 1.0 / max(self.exploration, 1e-3) ** 2)
        # What the compiled loops take, put together once; arrays are changed in place.
        self._usually = self.prior.usual_precision(self.intercept)
        scored = (self._basis, self._blend, self._covariances, self._usually)
        self._scoring: Any = (*scored, self._reference, most_lag)
        self._testing: Any = (self._means, self._process, self._weights, self._settled)
        self._sharing = float(self.prior.layout.own) if self.prior.population is not None else 1.0
        self._when_to_test = TESTS[self.tests if self.exploration > 0.0 else "none"]
        filters = (self._means, self._covariances, self._process, self._weights, self._prior_weights)
        logs = np.append(self.prior.mean, self.prior.baseline)[: self._means.shape[1]]
        others = (self._blend, self._noise, self._online, logs, self._usually, self._reference)
        self._next_look = alarm.next_look(self._rounds, self._means.shape[1])
        self._learns_noise = self.noise == "learned"
        believed = temper(self.prior)
        trust = (STUDENT_FREEDOM, believed) if self._learns_noise else (0.0, 1.0)
        self._trust = (*trust, mixture_kernels.LOGIT if self.link == "logit" else mixture_kernels.IDENTITY)
        self._learning: Any = (self._basis, *filters, *others, self.share, *self._trust)
        self._noise_now = self._believed_noise()

    def update(self, features: Any, reward: float, *, offered: Any = None, action: int | None = None) -> None:
        """Learn the reward of the chosen action with features (p,)."""
        lock = self._lock
        try:
            lock.acquire()  # `with` would take twice as long
            try:
                row = features if type(features) is np.ndarray else chosen_array(features, self.dim)
                noise: float = kernels.learn(row, reward, *self._learning, float(self._rounds))
            except WRONG_TYPE:  # another type or layout than the compiled loop takes
                self.update(chosen_array(features, self.dim), reward_number(reward))
                return
            usual = noise > 0.0
            if not usual:
                noise = self._unusual(features, reward, noise)
            self._rounds += 1
            if self._learns_noise:
                self._noise_now = noise
            if self._rounds >= self._next_look:
                self._next_look = alarm.next_look(self._rounds, self._means.shape[1])
                self._peak_evidence = max(self._peak_evidence, self.log_evidence)
            if not usual:
                self._warn_once()
        finally:
            lock.release()

    def _unusual(self, features: Any, reward: Any, noise: float) -> float:
        """Refuse a round, or count one whose error the compiled loop has cut; returns the noise variance."""
        if noise != noise:
            self._refuse(features, reward)
        self.winsorised += 1
        return -noise

    def _warn_once(self) -> None:
        """Warn, once, if rounds that had to be cut short are no exception."""
        if self._warned or self.winsorised < max(MANY_CUT, SHARE_CUT * self._rounds):
            return
        self._warned = True
        warnings.warn(
            f"{self.winsorised} of {self._rounds} rounds were more than ten standard deviations from what was expected,"
            " or their actions far from any before, and were learned as if they had been nearer: are rewards and"
            " features in the units of the logs?",
            OutlierWarning,
            stacklevel=3,
        )

    def _refuse(self, features: Any, reward: Any) -> NoReturn:
        """Say what is wrong with a round (p,) that the compiled loop has refused."""
        if self.link == "logit":
            belief.refuse(reward)
        self._refuse_far(chosen_array(features, self.dim)[None])
        refuse_round(features, reward, self.dim)

    def _believed_noise(self) -> float:
        """Variance of a reward about its expectation: the mixture's, or that of the logs where it is not learned."""
        return float(self._weights @ self._noise if self._learns_noise else self.prior.noise_variance)

    @property
    def noise_scale(self) -> float:
        """Standard deviation of a reward about its expectation, as it is believed now."""
        variance = self._noise_now if self.link == "identity" else 1.0 / self._noise_now
        return float(np.sqrt(variance))

    @property
    def rounds(self) -> int:
        """Rounds learned online."""
        return self._rounds

    @property
    def log_evidence(self) -> float:
        """Log of the likelihood ratio of broken against held invariance, now; 0 in the first rounds."""
        with self._lock:
            return alarm.log_evidence(self._online, self.prior)

    def _refuse_far(self, features: Array) -> None:
        """Say which of the actions (K, p) is too far from anything in the logs, if one is."""
        if not len(self._usually) or not np.abs(features).max() < 1e100:
            return
        z = features @ self._basis
        z = np.column_stack([z, np.ones(len(z))]) if self.intercept else z
        far = np.sqrt(np.einsum("kd,de,ke->k", z, self._usually, z) / z.shape[1])
        if far.max() > np.sqrt(mixture_kernels.FARTHEST):
            with self._lock:
                self.refused += 1
            raise InputError(
                f"features of action {int(far.argmax())} are {far.max():.0e} times as large as usual in the logs, more"
                " than a million times: are they in other units?"
            )


# Compiled: their functions have no Python signature.
choosing: Any = mixture_kernels
rehearsing: Any = mixture_kernels
LONG_ENOUGH = 1000
"""Rounds to come, where nobody said how many."""


class AutoDeciding(AutoLearning):
    """Chooses by what the filters believe."""

    horizon: int | None

    @property
    def _remaining(self) -> float:
        """Rounds to come, as far as known; who plays longer than he said is taken to go on for as long as before.

        What a test tells of an arm with several coefficients of its own pays in contexts like this one alone: the
        rounds are shared among them.
        """
        if self.horizon is not None and self._rounds < self.horizon:
            return (self.horizon - self._rounds) / self._sharing
        return max(LONG_ENOUGH, self._rounds) / self._sharing

    def select(self, features: Any) -> int:
        """Index of the action to play, given features (K, p)."""
        lock = self._lock
        try:
            lock.acquire()  # `with` would take twice as long
            if type(features) is not np.ndarray:  # such as a masked array, which the loop would take as it is
                features = offered_array(features, self.dim)
            now = (self._noise_now, float(self._rounds), self._multiplier)
            action: int = choosing.choose(
                features, *self._scoring, *now, *self._testing, self._remaining, *self._when_to_test
            )
        except WRONG_TYPE:  # another type or layout than the compiled loop takes
            return self.select(offered_array(features, self.dim))
        finally:
            lock.release()
        return action if action >= 0 else self._refuse_offered(features)

    def _refuse_offered(self, features: Any) -> NoReturn:
        self._refuse_far(offered_array(features, self.dim))
        refuse_offered(features, self.dim)

    def scores(self, features: Any) -> Scores:
        """Expected rewards and widths (K,); `select` maximises mean + exploration · width.

        The width of an action that is played for a test is what it takes to be chosen. Where rewards are clicks, mean
        is the probability at the mean of the log-odds, and mean + exploration · width that at their upper end.
        """
        features = offered_array(features, self.dim)
        parts = np.empty((3, len(features)))
        with self._lock:
            if choosing.score(features, *self._scoring, self._noise_now, float(self._rounds), parts) < 0:
                self._refuse_offered(features)
            chosen = self.select(features)
        mean, width = parts[0], self._radius * parts[1]
        if self.link == "logit":
            mean, width = belief.mean_and_width(mean, width, self.exploration)
        values = mean + self.exploration * width
        if self.exploration and chosen != np.argmax(values):
            width[chosen] = (values.max() - mean[chosen]) / self.exploration * (1.0 + 1e-9) + 1e-300
        return Scores(mean, width)

    def contrasts(self, features: Any) -> tuple[Array, Array]:
        """Differences of the expected rewards (K − 1,) from the first action's, and their standard deviations.

        Where rewards are clicks, of their log-odds.
        """
        features = offered_array(features, self.dim)
        apart = (features[1:] - features[0]) @ self._basis
        with self._lock:
            middle, lower = self._blend[0, : self.dim].copy(), np.tril(self._blend[1:, : self.dim][: self.dim])
        covariance = lower + np.tril(lower, -1).T
        variances = np.einsum("kd,de,ke->k", apart, covariance, apart)
        return apart @ middle, np.sqrt(np.maximum(variances, 0.0))

    def select_many(self, features: Any) -> np.ndarray[Any, Any]:
        """Actions (N,) for N rounds (N, K, p) in the present state."""
        features = batch_array(features, self.dim)
        with self._lock:
            return np.array([self.select(offered) for offered in features], dtype=np.int64)

    def propensities(self, features: Any) -> Array:
        """Probabilities (K,) of the next choice: one for the action that `select` returns, the policy being certain."""
        return certain(self.select(features), len(features))

    def rehearsed(self, world: World, offered: OfferedSets, candidate: tuple[float, str], horizon: int) -> float:
        """Regret in a drawn world with another exploration and other tests; the policy stays as it is."""
        exploration, tests = candidate
        with self._lock:
            filters = (self._means.copy(), self._covariances.copy(), self._process, self._weights.copy())
            noise = self._noise.copy()
        when = (max(1.0, 1.0 / exploration**2), exploration * self._radius, *TESTS[tests])
        regret: float = rehearsing.rehearse(
            *(offered.rows, offered.starts, world.order, world.truth, world.luck, self.prior.baseline, self._basis),
            *(*filters, noise, self._settled, self._prior_weights),
            *(self._usually, self._reference, *when),
            *(self.share, *self._trust, float(horizon)),
        )
        return regret


class AutoExplaining(AutoDeciding):
    """Says which hypotheses it trusts, how far the coefficients have moved, and whether invariance broke."""

    alarm_level: float
    rehearsal: Rehearsal | None

    @property
    def alarm(self) -> bool:
        """Whether invariance was ever rejected, at `alarm_level` over all rounds together.

        The evidence is looked at after 10·d rounds, then at every quarter more. Never, if not `alarm_supported`.
        """
        return self.alarm_supported and self._peak_evidence >= float(np.log(1.0 / self.alarm_level))

    @property
    def alarm_supported(self) -> bool:
        """Whether the logs tell enough of drift for an alarm: five windows at least, and drift along the basis."""
        return not alarm.unsupported(self.prior)

    @property
    def coefficients(self) -> Array:
        """The mixture's mean of γ (p,)."""
        with self._lock:
            return np.asarray(self.prior.basis @ self._blend[0, : self.dim])

    def beliefs(self) -> dict[str, float]:
        """What a simulation traces: the probability of each hypothesis, and the log evidence against invariance."""
        with self._lock:
            return self._hypothesis_weights() | {"log evidence": max(self.log_evidence, self._peak_evidence)}

    def _hypothesis_weights(self) -> dict[str, float]:
        weights = np.bincount(self._owners, weights=self._weights, minlength=len(HYPOTHESES))
        return dict(zip(HYPOTHESES, weights.tolist(), strict=True))

    def explain(self, feature_names: Sequence[str] | None = None) -> Belief:
        """What the policy believes now; print it for a text, read its fields for numbers."""
        names = [f"x{j}" for j in range(self.dim)] if feature_names is None else list(feature_names)
        if len(names) != self.dim:
            raise InputError(f"feature_names must have {self.dim} entries, got {len(names)}")
        main = [_main_features(column) for column in self.prior.basis.T]
        with self._lock:
            return Belief(
                hypotheses=self._hypothesis_weights(),
                log_evidence=max(self.log_evidence, self._peak_evidence),
                alarm=self.alarm,
                alarm_level=self.alarm_level,
                shifts=self._blend[0, : self.dim] - self.prior.mean,
                errors=np.sqrt(np.diagonal(self._blend[1:])[: self.dim]),
                names=[", ".join(names[i] for i in ones) for ones in main],
                rounds=self.rounds,
                noise_ratio=float(np.sqrt(self._noise_now / self.prior.noise_variance)),
                rehearsal=self.rehearsal,
                no_alarm_because=alarm.unsupported(self.prior),
                baseline_shift=self._baseline_shift(),
                winsorised=self.winsorised,
                refused=self.refused,
            )

    def _baseline_shift(self) -> tuple[float, float]:
        """How far the baseline stands from that of the logs, and its standard deviation if it did not move."""
        if not self.intercept:
            return 0.0, 0.0
        doubt = float(self._blend[-1, -1]) + self.prior.baseline_error + self.prior.baseline_variance
        return float(self._blend[0, -1]) - self.prior.baseline, float(np.sqrt(doubt))


def _main_features(direction: Array) -> list[int]:
    """Places of the two largest features of a direction (p,); of one, if the second is below a third of it."""
    size = np.abs(direction)
    first, *second = np.argsort(-size)[:2].tolist()
    return [first, *(i for i in second if size[i] >= size[first] / 3.0)]


PRIOR = "prior."
LARGEST_FACTOR = 1e50
ARRAYS = (
    *("owners", "means", "covariances", "process", "weights", "prior_weights", "noise"),
    *("settled", "online"),
)
MOST_MEMBERS = 10_000
SETTINGS: dict[str, Check] = {
    **dict.fromkeys(("exploration", "share"), lambda name, value: number_between(name, value, -1e-300, LARGEST_FACTOR)),
    **dict.fromkeys(("confidence", "alarm_level"), probability),
    "horizon": lambda name, value: None if value is None else count(name, value),
    "rehearsal": lambda name, value: None if value is None else Rehearsal.from_dict(value),
}


def state_schema(settings: Mapping[str, Any], names: Collection[str]) -> StateSchema:
    """What the arrays must be: those of C filters over d coordinates, and those of the prior.

    Files of version 0.1 have owners as "families", weights and prior weights in a "table" (4, C), and the peak of the
    evidence and the counter in a "clock" (2,).
    """
    stored = settings["prior"]
    if not isinstance(stored, Mapping):
        raise InputError(f"prior must be a dictionary, got {type(stored).__name__}")
    inside = [name.removeprefix(PRIOR) for name in names if name.startswith(PRIOR)]
    prior = DriftPrior.state_schema(stored, inside)
    prior.check_settings(stored)
    belief = ArraySpec(("C", "d", "d"), least=-LARGEST_VARIANCE, most=LARGEST_VARIANCE, constraint=no_variance_negative)
    share = ArraySpec(("C",), least=0.0, most=1.0, constraint=adds_up_to_one)
    owner = ArraySpec(("C",), "int64", 0, len(HYPOTHESES) - 1)
    arrays = {
        "means": ArraySpec(("C", "d"), least=-LARGEST_MEAN, most=LARGEST_MEAN),
        "covariances": belief,
        "process": ArraySpec(("C", "d"), least=0.0, most=LARGEST_VARIANCE),
    }
    if "table" in names:
        arrays |= {
            "families": owner,
            "table": ArraySpec((4, "C"), constraint=_wrong_table),
            "clock": ArraySpec((2,), least=0.0, constraint=_wrong_clock),
        }
    else:
        arrays |= {"owners": owner, "weights": share, "prior_weights": share, "counters": counters(1)}
        arrays |= {"noise": ArraySpec(("C",), least=LEAST_NOISE, most=LARGEST_VARIANCE)}
        arrays |= {"peak_evidence": ArraySpec((1,), least=0.0)}
    later = {
        "settled": ArraySpec(("C",), "int64", 0, 1),
        "online": ArraySpec((2, "d+1", "d+1"), constraint=_wrong_online),
        "blend": ArraySpec(("d+1", "d"), least=-LARGEST_VARIANCE, most=LARGEST_VARIANCE, constraint=_wrong_blend),
        "noise_now": ArraySpec((1,), least=LEAST_NOISE, most=LARGEST_VARIANCE),
        "winsorised": counters(1),
    }
    arrays |= {name: numbers for name, numbers in later.items() if name in names}
    intercept = truth_value("intercept", settings.get("intercept", True))
    arrays |= prefixed(PRIOR, prior.arrays)
    law = partial(_wrong_together, intercept)
    return StateSchema(arrays, SETTINGS, prior.sizes, constraints=(law,))


def _wrong_together(intercept: bool, arrays: Mapping[str, Array]) -> str:
    """What must hold of the arrays together."""
    members, d = arrays["means"].shape
    p = len(arrays[f"{PRIOR}mean"])
    if d != p + intercept or not 0 < members <= MOST_MEMBERS:
        return (
            f"means must be of 1 to {MOST_MEMBERS:,} filters over {p + intercept} coordinates, got {members} over {d}"
        )
    if ("blend" in arrays) != ("noise_now" in arrays):
        return "blend and noise_now belong together"
    if intercept and "online" in arrays and abs(arrays["online"][0, p, p] - arrays["online"][0, d, d]) > 0.5:
        return "online must count its rounds"
    return ""


def _wrong_table(values: Array) -> str:
    """Weights and prior weights, then what is worked out anew."""
    inside = (values[:2] >= 0.0).all() and (values[:2] <= 1.0).all()
    return (adds_up_to_one(values[0]) or adds_up_to_one(values[1])) if inside else "must begin with weights"


def _wrong_clock(values: Array) -> str:
    whole = values[0] <= MOST_ROUNDS and values[0] == np.floor(values[0])
    return "" if whole else "must begin with the number of rounds"


def _wrong_blend(values: Array) -> str:
    return no_variance_negative(values[1:])


def _wrong_online(values: Array) -> str:
    """Sums of squares of as many rounds as the last entry counts."""
    count = values[0, -1, -1]
    if not 0.0 <= count <= MOST_ROUNDS or count != np.floor(count):
        return "must count its rounds"
    return no_variance_negative(values[:, :-1, :-1])


def renamed(arrays: Mapping[str, Array], settings: Mapping[str, Any]) -> Mapping[str, Array]:
    """The arrays under their names of today; files of version 0.1 packed several into a "table" and a "clock"."""
    d = arrays["means"].shape[-1]
    online = np.zeros((2, d + 1, d + 1))
    if "table" not in arrays:
        return {"settled": np.zeros(len(arrays["owners"]), dtype=np.int64), "online": online, **arrays}
    rest = {name: array for name, array in arrays.items() if name not in ("table", "clock", "families")}
    table, clock = arrays["table"], arrays["clock"]
    return rest | {
        "owners": arrays["families"],
        "settled": np.zeros(table.shape[1], dtype=np.int64),
        "online": online,
        "weights": table[0],
        "prior_weights": table[1],
        "noise": np.full(table.shape[1], float(settings["prior"]["noise_variance"])),
        "peak_evidence": clock[1:],
        "counters": clock[:1].astype(np.int64),
    }


def _with_prefix(arrays: Mapping[str, Array]) -> dict[str, Array]:
    return {f"{PRIOR}{name}": array for name, array in arrays.items()}


Auto = TypeVar("Auto", bound=Any)
NEGLIGIBLE = 1e-10


def rebuilt_with_arm(policy: Auto, features: Sequence[float] | None) -> Auto:
    """A copy of AutoISD with one arm more."""
    before = policy.prior
    prior = before.with_arm(features)
    starts = default_members(prior, intercept=policy.intercept)
    arrays = policy.arrays()
    if len(starts) != policy.members:
        raise InputError("an arm can be added to the default members only, this policy has others")
    place = before.layout.arms * before.layout.own
    new = np.arange(place, place + before.layout.own)
    old = np.delete(np.arange(prior.layout.dim + policy.intercept), new)
    grown = [_extended(*one, new, old) for one in zip(starts, arrays["means"], arrays["covariances"], strict=True)]
    process = np.stack([one.process for one in starts])
    process[:, old] = arrays["process"]
    online = np.zeros((2, len(new) + len(old) + 1, len(new) + len(old) + 1))
    at = np.append(old, len(new) + len(old))
    online[np.ix_(np.arange(2), at, at)] = arrays["online"]
    return _rebuilt(
        policy,
        prior,
        {
            "means": np.stack([mean for mean, _ in grown]),
            "covariances": np.stack([covariance for _, covariance in grown]),
            "process": process,
            "online": online,
        },
    )


def rebuilt_without_arm(policy: Auto, arm: int) -> Auto:
    """A copy of AutoISD without an arm."""
    before = policy.prior
    prior, arrays = before.without_arm(arm), policy.arrays()
    kept = before.layout.coordinates_without(arm)
    if policy.intercept:
        kept = np.append(kept, before.layout.dim)
    at = np.append(kept, before.layout.dim + policy.intercept)
    return _rebuilt(
        policy,
        prior,
        {
            "means": arrays["means"][:, kept],
            "covariances": arrays["covariances"][:, kept][:, :, kept],
            "process": arrays["process"][:, kept],
            "online": arrays["online"][:, at][:, :, at],
        },
    )


def _extended(start: Member, mean: Array, lower: Array, new: Array, old: Array) -> tuple[Array, Array]:
    """Mean and covariance of a filter with the new coordinates; `start` is what it would start from with them."""
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


def _rebuilt(policy: Auto, prior: DriftPrior, changed: dict[str, Array]) -> Auto:
    """The policy with another prior and some other arrays."""

    numbers, own = prior.to_state()
    arrays = {
        **policy.arrays(),
        **_with_prefix(own),
        **{name: np.ascontiguousarray(one) for name, one in changed.items()},
    }
    for name in ("blend", "noise_now"):
        del arrays[name]
    result: Auto = type(policy).from_state({**policy.settings(), "prior": numbers}, arrays)
    return result


REHEARSED = "rehearsed"
DEFAULT_EXPLORATION = 0.25
DEFAULT_SHARE = 1e-5


@policy("auto-isd", label="AutoISD")
class AutoISD(AutoExplaining):
    """Weighs four hypotheses of what changed since the logs, and acts on all of them.

    Nothing changed; drift as in the logs, at several sizes and speeds; invariance broken; logs useless. Each is one or
    more Kalman filters over the coefficients (and the reward baseline), weighted by how well they predicted so far. The
    score of an action is the mixture's mean plus exploration · (√(2 log 1/η) + 1) standard deviations of the mixture
    (law of total variance), more where the online rounds say little about the action. A neglected action is tested when
    being wrong about it would cost more, over the rounds to come, than finding out. Start it with `from_history`.

    Parameters
    ----------
    prior : DriftPrior
        What the logs teach. If its link is "logit", rewards are clicks, from 0 to 1, the
        filters are of their log-odds, and choices are made on that scale.
    intercept : bool
        Keep the reward baseline as a coordinate of its own.
    exploration : float
        Factor on the widths. `from_history` takes "rehearsed", too.
    confidence : float
        η, the probability of failure.
    share : float
        Part of the weights that returns to the prior weights each round.
    alarm_level : float
        Probability of a false alarm, over all rounds together, if invariance holds; see `policies.alarm`.
    noise : "learned" or "known"
        Learned: every filter learns its own noise variance, and hypotheses are weighed by Student's t with five degrees
        of freedom, so that outliers cannot rule them. Known: rewards vary as they did in the logs.
    tests : "patient", "eager" or "none"
        Which neglected actions are tested, if exploration is above 0. Patient: those that the online rounds have left
        three times less known than as many rounds of the logs would have, after three rounds per coordinate; where
        contexts vary there are few.
        Eager: from the start, for a few actions that are always the same.
    horizon : int, optional
        How many rounds will be played; tests that can no longer pay are left out.
    members : sequence of Member, optional
        Others than the default ones.

    >>> import numpy as np, invariant_bandits as ib
    >>> from invariant_bandits.simulation.episodes import PaperEpisodes
    >>> episode = PaperEpisodes(logged=2000).draw(300, np.random.default_rng(0))
    >>> policy = ib.AutoISD.from_history(episode.moments)
    >>> regret = 0.0
    >>> for features, means, noise in zip(episode.offered, episode.means, episode.noise):
    ...     action = policy.select(features)
    ...     policy.update(features[action], means[action] + noise)
    ...     regret += means.max() - means[action]
    >>> bool(regret < 30)
    True
    """

    keeps_baseline = True

    def __init__(
        self,
        prior: DriftPrior,
        *,
        intercept: bool = True,
        exploration: float = DEFAULT_EXPLORATION,
        confidence: float = 0.01,
        share: float = DEFAULT_SHARE,
        alarm_level: float = 0.01,
        noise: str = "learned",
        tests: str = "patient",
        horizon: int | None = None,
        members: Sequence[Member] | None = None,
    ) -> None:
        if not isinstance(prior, DriftPrior):
            raise InputError(f"prior must be a DriftPrior, got {type(prior).__name__}; from_history makes one")
        self.prior = prior
        self.link = prior.link
        self.dim = len(prior.mean)
        self.intercept = bool(intercept)
        self.exploration = not_negative("exploration", exploration)
        self.confidence = probability("confidence", confidence)
        self.share = not_negative("share", share)
        if self.share >= 1.0:
            raise InputError(f"share must be below 1, got {share!r}")
        self.alarm_level = probability("alarm_level", alarm_level)
        self.noise = one_of("noise", noise, NOISE)
        self.tests = one_of("tests", tests, tuple(TESTS))
        self.horizon = None if horizon is None else whole_number("horizon", horizon, 1)
        self.rehearsal: Rehearsal | None = None
        self._begin(list(default_members(prior, intercept=self.intercept) if members is None else members))

    @classmethod
    def from_history(
        cls,
        moments: WindowedMoments,
        *,
        intercept: bool = True,
        exploration: float | str | None = None,
        confidence: float = 0.01,
        share: float = DEFAULT_SHARE,
        alarm_level: float = 0.01,
        noise: str = "learned",
        tests: str | None = None,
        offered: Any = None,
        horizon: int | None = None,
    ) -> Self:
        """Learn the basis and the drift prior from the logs, rehearse if there are offered sets, then start.

        Parameters
        ----------
        moments : WindowedMoments
            Of the logs.
        exploration : float, "rehearsed" or None
            Factor on the widths. Rehearsed: what does best on the offered sets against the policy's own doubts, and
            whether tests should be eager. None: rehearsed if `offered` is given, else 0.25.
        offered : array of shape (K, p) or (n, K, p), or sequence of arrays (K_i, p), optional
            Actions that rounds to come may offer: fixed ones, or some of the logs' offered sets.
        horizon : int, optional
            How many rounds will be played.
        intercept, confidence, share, alarm_level, noise, tests :
            As of the class.

        >>> import numpy as np, invariant_bandits as ib
        >>> from invariant_bandits.simulation.episodes import PaperEpisodes
        >>> episode = PaperEpisodes(logged=2000).draw(300, np.random.default_rng(0))
        >>> policy = ib.AutoISD.from_history(
        ...     episode.moments, exploration="rehearsed", offered=episode.logs.offered, horizon=300
        ... )
        >>> policy.exploration <= 0.25, policy.rehearsal.sets
        (True, 256)
        """
        basis = InvariantSubspaceDecomposition().fit(moments).basis_
        given = {"intercept": intercept, "confidence": confidence, "share": share, "alarm_level": alarm_level}
        return cls._started(
            DriftPrior.from_moments(moments, basis),
            None if offered is None else OfferedSets.of(offered, moments.dim),
            exploration,
            tests,
            {**given, "noise": noise, "horizon": horizon},
        )

    @classmethod
    def from_arms(
        cls, statistics: ArmStatistics, *, offered: Any = None, exploration: float | str | None = None, **options: Any
    ) -> Self:
        """Learn what labelled arms have in common and how they drift, then start; options as of the class.

        exploration: "rehearsed" needs `offered`, as in `from_history`; 0.25 if not given.
        """
        prior = DriftPrior.from_arms(statistics)
        sets = None if offered is None else OfferedSets.of(offered, prior.layout.dim)
        return cls._started(prior, sets, exploration, options.pop("tests", None), options)

    @classmethod
    def from_past(cls, past: Past, *, windows: int | None = None, **options: Any) -> Self:
        """Learn the drift prior along the directions of the past's decomposition, rehearse if it has offered sets.

        windows: into how many to cut the logged rounds, where they are at hand; as the past has them if not given.
        """
        if windows is not None:
            past = past.in_windows(windows)
        prior = past.drift_prior
        given = {"confidence": past.confidence, "horizon": past.horizon, **options}
        exploration, tests = given.pop("exploration", None), given.pop("tests", None)
        return cls._started(prior, past.offered_sets, exploration, tests, given)

    @classmethod
    def _started(
        cls,
        prior: DriftPrior,
        offered: OfferedSets | None,
        exploration: float | str | None,
        tests: str | None,
        options: Mapping[str, Any],
    ) -> Self:
        """A fresh policy, with a rehearsal if it is asked for, or can be had and nothing else was asked for.

        Labelled arms are rehearsed only if that is asked for.
        """
        if exploration is None and tests is None and offered is not None and prior.population is None:
            exploration = REHEARSED
        if exploration != REHEARSED:
            factor: Any = DEFAULT_EXPLORATION if exploration is None else exploration
            return cls(prior, exploration=factor, tests="patient" if tests is None else tests, **options)
        if offered is None:
            raise InputError('exploration="rehearsed" needs offered sets: offered=… of shape (K, p) or (n, K, p)')
        policy = cls(prior, **options)
        members = options.get("members") or default_members(prior, intercept=policy.intercept)
        found = rehearse(policy, members, offered, policy.horizon or LONG_ENOUGH)
        policy = cls(prior, exploration=found.exploration, tests=found.tests if tests is None else tests, **options)
        policy.rehearsal = found
        return policy

    # -- arms that come and go --

    def with_arm(self, features: Sequence[float] | None = None) -> Self:
        """This policy with one arm more, after the others: every filter believes of it what it believes of the arms.

        features: of the new arm (c,), where the arms of the logs have some. Offered features then have the coordinates
        of the new arm, too.
        """
        with self._lock:
            return rebuilt_with_arm(self, features)

    def without_arm(self, arm: int) -> Self:
        """This policy without an arm and its coordinates; what it learned of the others stays."""
        with self._lock:
            return rebuilt_without_arm(self, arm)

    # -- storing --

    def settings(self) -> dict[str, Any]:
        """What the constructor was given, as plain values."""
        prior, _ = self.prior.to_state()
        own = ("intercept", "exploration", "confidence", "share", "alarm_level", "noise", "tests", "horizon")
        rehearsal = None if self.rehearsal is None else self.rehearsal.to_dict()
        return {"prior": prior, **{name: getattr(self, name) for name in own}, "rehearsal": rehearsal}

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """The prior's arrays and the state of every filter."""
        prior = _with_prefix(self.prior.to_state()[1])
        with self._lock:
            state = {name: getattr(self, f"_{name}").copy() for name in (*ARRAYS, "blend")}
            return prior | {
                **state,
                "noise_now": np.array([self._noise_now]),
                "peak_evidence": np.array([self._peak_evidence]),
                "counters": np.array([self._rounds], dtype=np.int64),
                "winsorised": np.array([self.winsorised], dtype=np.int64),
            }

    @classmethod
    def state_schema(cls, settings: Mapping[str, Any], names: Collection[str]) -> StateSchema:
        """The arrays of the filters and of the prior; see `auto_storage`."""
        return state_schema(settings, names)

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], arrays: Mapping[str, np.ndarray[Any, Any]]) -> Self:
        """The policy that had these settings and arrays."""
        given: dict[str, Any] = {"noise": "known", "tests": "none", **settings}
        arrays, rehearsal = renamed(arrays, settings), given.pop("rehearsal", None)
        first = Member(HYPOTHESES[0], 1.0, arrays["means"][0], arrays["covariances"][0], arrays["process"][0])
        policy = cls(DriftPrior.from_state(given.pop("prior"), under(arrays, PRIOR)), members=[first], **given)
        for name in ARRAYS:
            setattr(policy, f"_{name}", arrays[name].copy())
        policy._rounds, policy._peak_evidence = int(arrays["counters"][0]), float(arrays["peak_evidence"][0])
        policy.winsorised = int(arrays["winsorised"][0]) if "winsorised" in arrays else 0
        policy.rehearsal = None if rehearsal is None else Rehearsal.from_dict(rehearsal)
        policy._derive()
        if "blend" in arrays:  # as it was summed up, to the last bit
            policy._blend[:], policy._noise_now = arrays["blend"], float(arrays["noise_now"][0])
        return policy

    def __repr__(self) -> str:
        return f"AutoISD(dim={self.dim}, members={self.members}, rounds={self.rounds})"
