"""The filters of AutoISD, and how they learn: one Kalman filter per member, weighed by how well it predicts."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from invariant_bandits.checks import Array, InputError
from invariant_bandits.decomposition.arm_prior import ArmPrior
from invariant_bandits.decomposition.prior import DriftPrior
from invariant_bandits.policies import alarm, clicks, mixture_kernels
from invariant_bandits.policies.base import BasePolicy, chosen_array, refuse_round, reward_number
from invariant_bandits.policies.hypotheses import HYPOTHESES, Member, temper
from invariant_bandits.policies.kernels import WRONG_TYPE

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

    prior: DriftPrior | ArmPrior
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
        self._settled = np.array([one.settled for one in members], dtype=np.int64)
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
        self._sharing = float(self.prior.layout.own) if isinstance(self.prior, ArmPrior) else 1.0
        self._when_to_test = TESTS[self.tests if self.exploration > 0.0 else "none"]
        filters = (self._means, self._covariances, self._process, self._weights, self._prior_weights)
        logs = np.append(self.prior.mean, self.prior.baseline)[: self._means.shape[1]]
        others = (self._blend, self._noise, self._online, logs, self._usually, self._reference)
        self._next_look = alarm.next_look(self._rounds, self._means.shape[1])
        self._learns_noise = self.noise == "learned"
        believed = temper(self.prior) if isinstance(self.prior, DriftPrior) else 1.0
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
            clicks.refuse(reward)
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
            return alarm.log_evidence(self._online, self.prior) if isinstance(self.prior, DriftPrior) else 0.0

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
