"""AutoISD: a hedge over what may have changed since the logs, for a user who has logs and wants to tune nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Self

import numpy as np

from invariant_bandits.checks import InputError, one_of, probability, whole_number
from invariant_bandits.decomposition.arm_prior import ArmPrior, ArmStatistics
from invariant_bandits.decomposition.estimator import InvariantSubspaceDecomposition
from invariant_bandits.decomposition.prior import DriftPrior
from invariant_bandits.description import Description
from invariant_bandits.moments.windowed import WindowedMoments
from invariant_bandits.policies import arm_growth, auto_storage
from invariant_bandits.policies.arm_hypotheses import members_of
from invariant_bandits.policies.auto_deciding import LONG_ENOUGH
from invariant_bandits.policies.auto_explaining import AutoExplaining
from invariant_bandits.policies.auto_learning import NOISE, TESTS
from invariant_bandits.policies.auto_storage import ARRAYS, prior_of, prior_parts, renamed
from invariant_bandits.policies.base import not_negative
from invariant_bandits.policies.hypotheses import HYPOTHESES, Member
from invariant_bandits.policies.offered_sets import OfferedSets
from invariant_bandits.policies.past import Past
from invariant_bandits.policies.registry import policy
from invariant_bandits.policies.rehearsal import Rehearsal, rehearse

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
    prior : DriftPrior or ArmPrior
        What the logs teach; of labelled arms, an ArmPrior. If its link is "logit", rewards are clicks, from 0 to 1, the
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
        prior: DriftPrior | ArmPrior,
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
        if not isinstance(prior, DriftPrior | ArmPrior):
            raise InputError(
                f"prior must be a DriftPrior or ArmPrior, got {type(prior).__name__}; from_history makes one"
            )
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
        self._begin(list(members_of(prior, intercept=self.intercept) if members is None else members))

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
        prior = ArmPrior.from_statistics(statistics)
        sets = None if offered is None else OfferedSets.of(offered, prior.layout.dim)
        factor = DEFAULT_EXPLORATION if exploration is None else exploration
        return cls._started(prior, sets, factor, options.pop("tests", None), options)

    @classmethod
    def from_past(cls, past: Past, *, windows: int | None = None, **options: Any) -> Self:
        """Learn the drift prior along the directions of the past's decomposition, rehearse if it has offered sets.

        windows: into how many to cut the logged rounds, where they are at hand; as the past has them if not given.
        """
        if windows is not None:
            past = past.in_windows(windows)
        statistics = past.arm_statistics
        if statistics is not None:
            given = {"confidence": past.confidence, "horizon": past.horizon, **options}
            return cls.from_arms(statistics, offered=past.offered_sets, **given)
        prior = DriftPrior.from_moments(past.moments, past.decomposition.basis_)
        given = {"confidence": past.confidence, "horizon": past.horizon, **options}
        exploration, tests = given.pop("exploration", None), given.pop("tests", None)
        return cls._started(prior, past.offered_sets, exploration, tests, given)

    @classmethod
    def _started(
        cls,
        prior: DriftPrior | ArmPrior,
        offered: OfferedSets | None,
        exploration: float | str | None,
        tests: str | None,
        options: Mapping[str, Any],
    ) -> Self:
        """A fresh policy, with a rehearsal if it is asked for, or can be had and nothing else was asked for."""
        if exploration is None and tests is None:
            exploration = DEFAULT_EXPLORATION if offered is None else REHEARSED
        if exploration != REHEARSED:
            factor: Any = DEFAULT_EXPLORATION if exploration is None else exploration
            return cls(prior, exploration=factor, tests="patient" if tests is None else tests, **options)
        if offered is None:
            raise InputError('exploration="rehearsed" needs offered sets: offered=… of shape (K, p) or (n, K, p)')
        policy = cls(prior, **options)
        members = options.get("members") or members_of(prior, intercept=policy.intercept)
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
            return arm_growth.rebuilt_with_arm(self, features)

    def without_arm(self, arm: int) -> Self:
        """This policy without an arm and its coordinates; what it learned of the others stays."""
        with self._lock:
            return arm_growth.rebuilt_without_arm(self, arm)

    # -- storing --

    def settings(self) -> dict[str, Any]:
        """What the constructor was given, as plain values."""
        prior, _ = prior_parts(self.prior)
        own = ("intercept", "exploration", "confidence", "share", "alarm_level", "noise", "tests", "horizon")
        rehearsal = None if self.rehearsal is None else self.rehearsal.to_dict()
        return {"prior": prior, **{name: getattr(self, name) for name in own}, "rehearsal": rehearsal}

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """The prior's arrays and the state of every filter."""
        _, prior = prior_parts(self.prior)
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
    def described(cls, settings: Mapping[str, Any], names: Collection[str]) -> Description:
        """The arrays of the filters and of the prior; see `auto_storage`."""
        return auto_storage.described(settings, names)

    @classmethod
    def rebuilt(cls, settings: Mapping[str, Any], arrays: Mapping[str, np.ndarray[Any, Any]]) -> Self:
        """The policy that had these settings and arrays."""
        given: dict[str, Any] = {"noise": "known", "tests": "none", **settings}
        arrays, rehearsal = renamed(arrays, settings), given.pop("rehearsal", None)
        first = Member(HYPOTHESES[0], 1.0, arrays["means"][0], arrays["covariances"][0], arrays["process"][0])
        policy = cls(prior_of(given.pop("prior"), arrays), members=[first], **given)
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
