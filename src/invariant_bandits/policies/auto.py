"""AutoISD: a hedge over what may have changed since the logs, without anything to tune."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, NoReturn, Self

import numpy as np

from invariant_bandits import plotting, storage
from invariant_bandits.checks import (
    Array,
    InputError,
    one_of,
    probability,
    whole_number,
)
from invariant_bandits.decomposition.arm_statistics import ArmStatistics
from invariant_bandits.decomposition.drift_prior import DriftPrior
from invariant_bandits.decomposition.estimator import InvariantSubspaceDecomposition
from invariant_bandits.moments.windowed import WindowedMoments
from invariant_bandits.policies import alarm, base, mixture_kernels
from invariant_bandits.policies.base import (
    BasePolicy,
    Option,
    chosen_array,
    offered_array,
)
from invariant_bandits.policies.choice import Choice, choice_of
from invariant_bandits.policies.constants import LEARNING
from invariant_bandits.policies.kernels import WRONG_TYPE
from invariant_bandits.policies.mixture import (
    STATE_SPECS,
    FilterMixture,
    Member,
    default_members,
)
from invariant_bandits.policies.past import Past
from invariant_bandits.policies.registry import register_policy
from invariant_bandits.storage import (
    ArraySpec,
    StateSchema,
    counters,
    prefixed,
    truth_value,
    under,
)

kernels: Any = mixture_kernels  # compiled: its functions have no Python signature
NOISE = ("known", "learned")
NO_LIMIT_WORDS = ("none", "null")
LONG_ENOUGH = 1000
"""Rounds to come, where the horizon is not known."""
TIE = 1e-6
"""Bounds of a batch that are nearer, in units of the largest, are worked out again, one round at a time."""
MANY_CUT, SHARE_CUT = 10, 0.05
"""From how many winsorised rounds on, and from what share of all, a policy warns."""
OUTLIERS = (
    "{} of {} rounds were more than ten standard deviations from what was expected, or their actions far from"
    " any before, and were cut short: are rewards and features in the units of the logs?"
)
PRIOR = "prior."

MOVED_BASELINE = 3.0
"""From how many standard deviations on a moved baseline is reported."""


@dataclass(frozen=True)
class Belief(plotting.ShownInNotebooks):
    """What AutoISD believes at present.

    Attributes
    ----------
    hypotheses : dict
        Probability of each of the four.
    log_evidence : float
        Log of the likelihood ratio of broken against held invariance, the largest so far.
    alarm : bool
        Whether that ever passed log(1/alarm_level), if the logs can support an alarm.
    stable_moved, drifting_moved : str
        Main features of the stable direction whose move explains the alarm best; and of the drifting
        direction that moved further than in the logs, which is not broken invariance. Empty if none did.
    noticeable_levels : dict of str to float
        For the level of every labelled arm the value below which a fall would be noticed; NaN if these logs
        can tell no fall of it.
    shifts, errors : (p,)
        For every direction of the basis how far its coefficient stands from the mean of the logs, and the
        standard deviation of that.
    names : list of str
        The main features of every direction.
    noise_ratio : float
        Standard deviation of the noise over that of the logs.
    no_alarm_because : str
        Why the logs cannot support an alarm; empty if they can.
    baseline_shift : (float, float)
        How far the reward baseline stands from that of the logs; and a standard deviation, of what is left
        open and of how it varied in the logs.
    winsorised : int
        Rounds whose error was cut.
    caution : str
        Sentence that must be read first, such as that the context cannot change the choice; empty if none.
    scope : str
        What the beliefs are about, if not about all coefficients.
    """

    hypotheses: dict[str, float]
    log_evidence: float
    alarm: bool
    alarm_level: float
    shifts: Array
    errors: Array
    names: list[str]
    rounds: int
    noise_ratio: float = 1.0
    no_alarm_because: str = ""
    baseline_shift: tuple[float, float] = (0.0, 0.0)
    winsorised: int = 0
    caution: str = ""
    scope: str = ""
    stable_moved: str = ""
    drifting_moved: str = ""
    noticeable_levels: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [self.caution] if self.caution else []
        lines += [f"After {self.rounds:,} round{'s' if self.rounds != 1 else ''}:"]
        lines += [
            f"  {name:<22} {100.0 * share:5.1f} %"
            for name, share in self.hypotheses.items()
        ]
        lines += [f"  {self.scope}"] if self.scope else []
        if self.no_alarm_because:
            lines.append(
                f"  these logs cannot support an alarm: {self.no_alarm_because}"
            )
        else:
            verdict = "no alarm"
            if self.alarm:
                moved = f" (mainly {self.stable_moved})" * bool(self.stable_moved)
                verdict = f"ALARM: a stable coefficient moved{moved}"
            power = self.log_evidence / np.log(10.0)
            lines.append(
                f"  evidence against invariance: 10^{power:.1f} to 1, {verdict}"
            )
        if self.drifting_moved:
            moved = f"(mainly {self.drifting_moved})"
            lines.append(
                f"  a drifting coefficient moved further than in the logs {moved}:"
                " this is not broken invariance"
            )
        if not self.alarm and self.noticeable_levels:
            lines.append(f"  {alarm.falls_in_words(self.noticeable_levels)}")
        shift, error = self.baseline_shift
        if abs(shift) > MOVED_BASELINE * error:
            lines.append(
                f"  baseline: moved by {shift:+.3g} ± {error:.2g} since the logs"
            )
        if self.noise_ratio != 1.0:
            lines.append(f"  noise: {self.noise_ratio:.2f} × that of the logs")
        if self.winsorised:
            lines.append(f"  outliers: {self.winsorised:,} rounds cut short")
        size = np.abs(self.shifts) / self.errors
        furthest = [j for j in np.argsort(-size) if size[j] > 2.0][:5]
        where = "coefficient along a direction, mainly of the features named"
        lines += [f"  moved since the logs ({where}):"] if furthest else []
        lines += [
            f"    direction {j + 1:>2} ({self.names[j]}): {self.shifts[j]:+.3g} ± {self.errors[j]:.2g}"
            for j in furthest
        ]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return the beliefs as plain values; under `drift`, the direction that moved most comes first."""
        moved = zip(self.names, self.shifts.tolist(), self.errors.tolist(), strict=True)
        drift = [
            dict(zip(("direction", "shift", "error"), move, strict=True))
            for move in moved
        ]
        return {
            "caution": self.caution,
            "scope": self.scope,
            "beliefs": {name: float(share) for name, share in self.hypotheses.items()},
            "alarm": bool(self.alarm),
            "alarm_level": self.alarm_level,
            "log_evidence": float(self.log_evidence),
            "no_alarm_because": self.no_alarm_because,
            "stable_moved": self.stable_moved,
            "drifting_moved": self.drifting_moved,
            "noticeable_levels": {
                name: None if np.isnan(level) else level
                for name, level in self.noticeable_levels.items()
            },
            "drift": [
                drift[index] for index in np.argsort(-np.abs(self.shifts) / self.errors)
            ],
            "noise_ratio": float(self.noise_ratio),
            "baseline_shift": list(map(float, self.baseline_shift)),
        }

    def plot(self, axes: Any = None, *, most: int = 8, theme: str = "light") -> Any:
        """Draw the probabilities of the hypotheses beside the changes of the coefficients.

        Changes are since the logs, with intervals of two standard deviations. Needs matplotlib.

        Parameters
        ----------
        axes : two matplotlib Axes, optional
            Where to draw; a new figure if not given.
        most : int
            How many directions are shown, those that moved furthest first.
        theme : "light" or "dark"

        Returns
        -------
        array of Axes, shape (2,)
        """
        low, high = self.shifts - 2.0 * self.errors, self.shifts + 2.0 * self.errors
        furthest = np.argsort(-np.abs(self.shifts) / self.errors)[:most]
        moved = {
            f"{j + 1}: {self.names[j]}": (self.shifts[j], low[j], high[j])
            for j in furthest
        }
        with plotting.canvas(
            axes, theme, 9.6, 0.9 + 0.34 * max(len(moved), 4), columns=2
        ) as (pair, _):
            plotting.shares_chart(self.hypotheses, axes=pair[0], theme_name=theme)
            words = "change of the coefficient since the logs"
            plotting.difference_chart(
                moved, axes=pair[1], theme_name=theme, words=words
            )
        return np.asarray(pair)


class OutlierWarning(UserWarning):
    """Many rounds were so far from anything expected that they were learned as if they had been nearer."""


@register_policy("auto-isd")
class AutoISD(BasePolicy):
    """Policy that weighs four hypotheses about what has changed since the logs were recorded.

    The hypotheses are: nothing changed; drift as in the logs; invariance broken (stable coefficients have
    changed); logs useless. Each hypothesis has several Kalman filters, which estimate the coefficients and
    the mean reward. A filter gains weight when it predicts rewards well. The weaker the signal and the drift
    in the logs are compared with the noise, the slower the filters' weights change.

    The policy plays the action with the highest upper confidence bound (expected reward plus a width). By
    default the width of the bound is half the standard deviation that the expected reward would have if
    nothing had changed. For labelled arms (actions with an identity, such as adverts), the width of the bound
    is the whole standard deviation. If the hypotheses "invariance broken" and "logs useless" together hold
    more than half of the weight, the width of the bound is the standard deviation over all Kalman filters.
    The policy tests a rarely played action if a wrong estimate would cost more than the test, within the
    limit set by the parameter `caution`.

    Create the policy with `from_history` or `from_past`.

    Parameters
    ----------
    prior : DriftPrior
        Means and drift of the coefficients, estimated from the logs. If `prior.link` is "logit", rewards are
        clicks (numbers from 0 to 1), and the policy estimates and compares the log-odds of a click.
    intercept : bool
        Whether the filters learn the mean reward (the baseline) as an additional coefficient.
    caution : float or None
        Largest share of the expected gain that may be spent on tests of rarely played actions. With the
        default, `caution=0`, there are no such tests while AutoISD trusts the logs: where contexts vary, all
        actions get played without tests. With `caution=None` there may be any number of tests, which suits a
        few fixed actions whose rewards may change; where options are text, `none` means the same.
    delta : float
        Probability η of a false alarm over all rounds together, if no stable coefficient moves further than
        the logs allow. Drifting coefficients may move as far as they like.
    share : float
        Share of the filters' weights that returns to the initial weights in each round.
    noise : "learned" or "known"
        Whether filters learn the noise variance online or use that of the logs. With `noise="learned"`,
        Student's t distribution with five degrees of freedom limits the effect of outliers on the filters'
        weights.
    horizon : int, optional
        Number of rounds that will be played, so that rarely played actions are not tested too late to pay
        off.
    members : sequence of Member, optional
        Kalman filters to use instead of the default ones, or the stored state of a FilterMixture.

    Attributes
    ----------
    mixture : FilterMixture
        The Kalman filters and their weights, to be read only while no other thread changes the policy.
    winsorised : int
        Number of outliers: rounds whose reward or features were so unusual that the policy limited their
        effect. If outliers are frequent, the policy warns once.

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

    rounds: int
    keeps_baseline = True
    shown = ("dim", "members")
    options: ClassVar[Mapping[str, Option]] = {
        "intercept": Option(True, truth_value),
        "caution": Option(0.0, lambda _, value: checked_caution(value)),
        "delta": Option(0.01, probability),
        "share": Option(LEARNING.share, partial(base.not_negative, most=1.0)),
        "noise": Option("learned", partial(one_of, allowed=NOISE)),
        "horizon": Option(
            None,
            lambda name, value: None if value is None else whole_number(name, value, 1),
        ),
    }
    starting = ("windows", "members")
    needs = ("horizon",)
    intercept: bool
    caution: float | None
    delta: float
    share: float
    noise: str
    horizon: int | None

    def __init__(
        self,
        prior: DriftPrior,
        *,
        members: Sequence[Member] | Mapping[str, Array] | None = None,
        **options: Any,
    ) -> None:
        if not isinstance(prior, DriftPrior):
            raise InputError(
                f"prior must be a DriftPrior, got {type(prior).__name__}: use from_history"
            )
        self.prior = prior
        self.link = prior.link
        self.dim = len(prior.mean)
        self._take_options(options)
        self.rounds = 0
        self.winsorised = 0
        self._warned = False
        # A test of an arm with several coefficients pays in contexts like the present one only.
        self._coefficients_per_arm = (
            1.0 if prior.population is None else float(prior.layout.own)
        )
        coordinates = self.dim + self.intercept
        if isinstance(members, Mapping):
            state = members
        else:
            starts = (
                default_members(prior, intercept=self.intercept)
                if members is None
                else list(members)
            )
            state = FilterMixture.initial_state(prior, starts, coordinates)
        self.mixture = FilterMixture(prior, state, self.share, self.noise, self.caution)
        self._peak_evidence, self._next_look = 0.0, alarm.next_look(0, coordinates)

    @classmethod
    def from_history(
        cls,
        moments: WindowedMoments,
        **options: Any,
    ) -> Self:
        """Estimate stable and drifting coefficients from logs and return an AutoISD policy.

        Parameters
        ----------
        moments : WindowedMoments
            Means and covariances of the logged features and rewards in each window (period of the log).
        **options :
            Parameters of the AutoISD constructor.

        >>> import numpy as np, invariant_bandits as ib
        >>> from invariant_bandits.simulation.episodes import PaperEpisodes
        >>> episode = PaperEpisodes(logged=2000).draw(300, np.random.default_rng(0))
        >>> ib.AutoISD.from_history(episode.moments, caution=0.01, horizon=300)
        AutoISD(dim=10, members=26, rounds=0)
        """
        fit = InvariantSubspaceDecomposition().fit(moments)
        prior = DriftPrior.from_moments(
            moments, fit.basis_, drifting=fit.drifting_directions
        )
        return cls(prior, **options)

    @classmethod
    def from_arms(cls, statistics: ArmStatistics, **options: Any) -> Self:
        """Return an AutoISD policy for labelled arms (actions with an identity, such as adverts).

        The policy learns from the logs what the arms have in common and how they drift. The options are
        parameters of the AutoISD constructor.
        """
        return cls(DriftPrior.from_arms(statistics), **options)

    @classmethod
    def from_past(
        cls, past: Past, *, windows: int | None = None, **options: Any
    ) -> Self:
        """Estimate the drift of coefficients from the logs of a Past object and return an AutoISD policy.

        The parameter `windows` is the number of periods into which the logged rounds are cut, by default as
        in the Past object. All other options are parameters of the AutoISD constructor. Labelled arms with
        more coefficients than one covariance matrix carries start as PooledArms.
        """
        if windows is not None:
            past = past.in_windows(windows)
        known = {**cls.known_from(past), **options}
        statistics = past.arm_statistics
        if statistics is not None and statistics.layout.is_wide:
            from invariant_bandits.policies.pooled_arms import PooledArms

            return PooledArms.from_statistics(statistics, **known)  # type: ignore[return-value]
        return cls(past.drift_prior, **known)

    # -- deciding --

    @property
    def remaining_rounds(self) -> float:
        """Number of rounds to come, divided by the number of coefficients of an arm.

        Without a horizon, or past it, as many rounds are assumed to remain as were played, and at least
        1,000.
        """
        if self.horizon is not None and self.rounds < self.horizon:
            return float((self.horizon - self.rounds) / self._coefficients_per_arm)
        return float(max(LONG_ENOUGH, self.rounds) / self._coefficients_per_arm)

    def select(self, features: Any) -> int:
        """Return the index of the action to play, given the features (K, p) of K actions."""
        lock = self._lock
        try:
            lock.acquire()  # `with` would take twice as long
            if (
                type(features) is not np.ndarray
            ):  # such as a masked array, which the loop would take as it is
                features = offered_array(features, self.dim)
            buffer, rounds = self.mixture.buffer, float(self.rounds)
            action: int = kernels.choose(
                features, buffer, rounds, self.remaining_rounds
            )[0]
        except WRONG_TYPE:  # another type or layout than the compiled loop takes
            return AutoISD.select(self, offered_array(features, self.dim))
        finally:
            lock.release()
        return action if action >= 0 else self._refuse(features)

    def decide(self, offered: Any, *, draw: float | None = None) -> Choice:
        """Choose the action with the highest upper confidence bound, or one worth a test.

        The expected rewards and widths of K actions are posterior means and standard deviations. While the
        policy trusts the logs, it ignores these widths and computes widths as if nothing had changed since
        the logs. For clicks, `means` are the click probabilities at the mean log-odds, and `means + widths`
        those at log-odds one standard deviation higher.
        """
        rows = offered_array(offered, self.dim)
        with self._lock:
            buffer, rounds = self.mixture.buffer, float(self.rounds)
            action, reason = kernels.choose(rows, buffer, rounds, self.remaining_rounds)
            if action < 0:
                self._refuse(rows)
            means, widths = self._predict(rows)
        if self.link == "logit":
            widths = chance(means + widths) - chance(means)
            means = chance(means)
        return choice_of(action, means, widths, reason=kernels.REASONS[reason])

    def select_many(self, features: Any) -> np.ndarray[Any, Any]:
        """Return the actions (N,) that `select` would choose for N rounds with features (N, K, p).

        The policy learns nothing in between.
        """
        batch = base.batch_array(features, self.dim)
        with self._lock:
            mixture = self.mixture
            if mixture.may_test(self.rounds) or not mixture.are_near(batch):
                return super().select_many(batch)
            variances, directions = np.linalg.eigh(mixture.left_open())
            deviations = (
                1.0 if mixture.doubts_logs else mixture.buffer[kernels.DEVIATIONS]
            )
            root = directions * (deviations * np.sqrt(np.maximum(variances, 0.0)))
            # Rows: the mean, then a root of the covariance, so that ‖root·z‖ is the width.
            rows = np.vstack([mixture.filters.mean, root.T])
            panel = rows[:, : self.dim] @ self.prior.basis.T
            # The last coordinate is that of the baseline, if there is one, and always 1.
            offset = rows[:, self.dim :].sum(axis=1, keepdims=True)
            chosen = np.empty(len(batch), dtype=np.int64)
            for block, bounds in base.upper_bounds(
                batch, panel, [(slice(1, None), 1.0)], offset
            ):
                best = bounds.max(axis=1, keepdims=True)
                chosen[block] = bounds.argmax(axis=1)
                close = (bounds > best - TIE * np.abs(bounds).max()).sum(axis=1) > 1
                for index in block.start + np.flatnonzero(close):
                    chosen[index] = self.select(batch[index])
            return chosen

    def _means(self, rows: Array) -> Array:
        """Return the means (K,) of actions with features (K, p); of log-odds where rewards are clicks."""
        means = np.empty(len(rows))
        rounds, remaining = float(self.rounds), self.remaining_rounds
        chosen, _ = kernels.decide(rows, self.mixture.buffer, rounds, remaining, means)
        if chosen < 0:
            self._refuse(rows)
        return means

    def _predict(self, rows: Array) -> Array:
        """Return means and posterior standard deviations (2, K) of actions with features (K, p).

        They are those of log-odds where rewards are clicks.
        """
        parts = np.empty((2, len(rows)))
        with self._lock:
            if kernels.score(rows, self.mixture.buffer, parts) < 0:
                self._refuse(rows)
        return parts

    # -- learning --

    def update(
        self,
        features: Any,
        reward: float,
        *,
        offered: Any = None,
        action: int | None = None,
    ) -> None:
        """Learn the reward of the played action with features (p,)."""
        self.update_with_offset(features, reward, 0.0, 0.0)

    def update_with_offset(
        self, features: Any, reward: float, offset: float, offset_variance: float
    ) -> None:
        """Learn a round in which a part of the expected reward is known beside the features.

        Parameters
        ----------
        features, reward :
            As in `update`.
        offset : float
            The known part of the expected reward, or of the log-odds of a click.
        offset_variance : float
            Its variance.
        """
        lock = self._lock
        try:
            lock.acquire()  # `with` would take twice as long
            try:
                row = (
                    features
                    if type(features) is np.ndarray
                    else chosen_array(features, self.dim)
                )
                buffer, rounds = self.mixture.buffer, float(self.rounds)
                status: int = kernels.learn(
                    row, reward, buffer, rounds, offset, offset_variance
                )
            except WRONG_TYPE:  # another type or layout than the compiled loop takes
                row = chosen_array(features, self.dim)
                value = base.reward_number(reward)
                return self.update_with_offset(row, value, offset, offset_variance)
            if status == kernels.REFUSED:
                self._refuse(features, reward)
            self.rounds += 1
            if self.rounds >= self._next_look:
                self._look(self.peak_evidence)
            if status == kernels.WINSORISED:
                self.winsorised += 1
                if not self._warned and self.winsorised >= max(
                    MANY_CUT, SHARE_CUT * self.rounds
                ):
                    self._warned = True
                    warnings.warn(
                        OUTLIERS.format(self.winsorised, self.rounds),
                        OutlierWarning,
                        stacklevel=2,
                    )
        finally:
            lock.release()

    def _look(self, evidence: float) -> None:
        """Note the largest evidence so far, and when to look again."""
        self._peak_evidence = evidence
        self._next_look = alarm.next_look(self.rounds, len(self.mixture.filters.mean))

    def _refuse(self, features: Any, reward: Any = None) -> NoReturn:
        """Raise an InputError that says why the compiled loop refused its input.

        `features` are those of offered actions (K, p), or with a reward those of the played one (p,). Above
        all the error names the action that is too far from anything in the logs.
        """
        if reward is None:
            rows = offered_array(features, self.dim)
        else:
            rows = chosen_array(features, self.dim)[None]
            if (
                self.link == "logit"
                and not 0.0 <= base.reward_number(reward) <= 1.0
                and abs(reward) < 1e100
            ):
                raise InputError(
                    f"reward must be from 0 to 1, a click as in the logs, got {reward:g}"
                )
        far = (
            self.mixture.distances(rows) if np.abs(rows).max() < 1e100 else np.zeros(0)
        )
        if far.max(initial=0.0) > np.sqrt(kernels.FARTHEST):
            size = f"{far.max():.0e} times as large as usual in the logs, more than a million times"
            raise InputError(
                f"features of action {int(far.argmax())} are {size}: are they in other units?"
            )
        base.refuse(features, self.dim, reward)

    # -- explaining --

    @property
    def members(self) -> int:
        """Number of Kalman filters in the policy."""
        return len(self.mixture)

    @property
    def noise_scale(self) -> float:
        """Current estimate of the standard deviation of the noise in a reward."""
        variance = self.mixture.believed_noise
        return float(np.sqrt(variance if self.link == "identity" else 1.0 / variance))

    @property
    def log_evidence(self) -> float:
        """Current evidence that stable coefficients have moved further than the logs allow.

        A log-likelihood ratio, 0 in the first rounds.
        """
        with self._lock:
            online = self.mixture.filters.online
            return alarm.stable_evidence(online, self.prior).log_ratio

    @property
    def peak_evidence(self) -> float:
        """Largest evidence so far that stable coefficients have changed.

        The maximum is over the current round and all rounds in which the policy checked for an alarm.
        """
        with self._lock:
            return max(self.log_evidence, self._peak_evidence)

    @property
    def alarm(self) -> bool:
        """Whether stable coefficients have ever moved significantly further than the logs allow.

        The significance level of the alarm over all rounds together is the parameter `delta`. A drifting
        coefficient that moves further than in the logs raises no alarm: `explain` reports it.
        """
        return self.alarm_supported and self._peak_evidence >= float(
            np.log(1.0 / self.delta)
        )

    @property
    def alarm_supported(self) -> bool:
        """Whether the logs suffice to raise an alarm when stable coefficients change.

        An alarm needs a stable direction, and at least five windows (periods of the log), which must not
        contradict the estimated directions of drift.
        """
        return not alarm.why_no_alarm(self.prior)

    @property
    def coefficients(self) -> Array:
        """Current estimate of the coefficients γ (p,), the weighted mean of all Kalman filters."""
        with self._lock:
            return np.asarray(self.prior.basis @ self.mixture.filters.mean[: self.dim])

    def explain(self, feature_names: Sequence[str] | None = None) -> Belief:
        """Return what the policy currently believes about changes since the logs.

        Print the result of `explain` for a text, or read its fields for numbers.
        """
        names = (
            [f"x{j}" for j in range(self.dim)]
            if feature_names is None
            else list(feature_names)
        )
        if len(names) != self.dim:
            raise InputError(
                f"feature_names must have {self.dim} entries, got {len(names)}"
            )
        main = [_main_features(column) for column in self.prior.basis.T]
        with self._lock:
            mean, covariance = self.mixture.mean_and_covariance()
            shift, variance = self._baseline_shift(mean, covariance)
            return Belief(
                hypotheses=self.mixture.hypothesis_weights(),
                log_evidence=self.peak_evidence,
                alarm=self.alarm,
                alarm_level=self.delta,
                shifts=mean[: self.dim] - self.prior.mean,
                errors=np.sqrt(np.maximum(np.diagonal(covariance), 0.0)[: self.dim]),
                names=[", ".join(names[i] for i in indices) for indices in main],
                rounds=self.rounds,
                noise_ratio=float(
                    np.sqrt(self.mixture.believed_noise / self.prior.noise_variance)
                ),
                no_alarm_because=alarm.why_no_alarm(self.prior),
                **self._moved_parts(names),
                baseline_shift=(shift, float(np.sqrt(variance)))
                if self.intercept
                else (0.0, 0.0),
                winsorised=self.winsorised,
            )

    def _moved_parts(self, names: Sequence[str]) -> dict[str, Any]:
        """Fields of `Belief` that say which part moved, and which falls of arms would be noticed."""
        prior, online = self.prior, self.mixture.filters.online
        if alarm.why_no_alarm(prior):
            return {}

        def name(direction: int) -> str:
            direct = prior.basis @ prior.drift_bounds.directions[:, direction]
            return ", ".join(names[i] for i in _main_features(direct))

        result: dict[str, Any] = {}
        stable = alarm.stable_evidence(online, prior)
        drifting = alarm.drifting_evidence(online, prior)
        if self.alarm and stable.direction >= 0:
            result["stable_moved"] = name(stable.direction)
        if drifting.log_ratio >= np.log(1.0 / self.delta):
            result["drifting_moved"] = name(drifting.direction)
        if prior.population is not None:
            levels = prior.layout.by_arm(prior.mean)[:, 0]
            least = levels - alarm.noticeable_falls(prior, self.delta)
            least = np.where(np.isfinite(least), least, np.nan)
            shown = chance(least) if self.link == "logit" else least
            indices = range(0, prior.layout.arms * prior.layout.own, prior.layout.own)
            result["noticeable_levels"] = dict(
                zip([names[j] for j in indices], shown.tolist(), strict=True)
            )
        return result

    def _baseline_shift(self, mean: Array, covariance: Array) -> tuple[float, float]:
        """Return the change of the mean reward since the end of the logs, and its variance.

        It is the reward at the mean features; at features 0 if the end of the logs is not known.
        """
        prior = self.prior
        between = prior.baseline_error + prior.baseline_variance
        if prior.present_level is None or not self.intercept:
            return float(mean[-1]) - prior.baseline, float(covariance[-1, -1]) + between
        at_mean = np.append(prior.feature_mean, 1.0)
        return float(at_mean @ mean) - prior.present_level, float(
            at_mean @ covariance @ at_mean
        ) + between

    # -- arms that come and go --

    def with_arm(self, features: Sequence[float] | None = None) -> Self:
        """Return a copy of this policy with one additional labelled arm, after the other arms.

        The coefficients of the new arm start from the distribution of coefficients over the known arms. The
        parameter `features` (c,) describes the new arm, if the logs have features of arms. Feature vectors
        for the new policy have additional entries for the coefficients of the new arm.
        """
        with self._lock:
            prior = self.prior.with_arm(features)
            starts = default_members(prior, intercept=self.intercept)
            return self.from_state(
                *self._state(prior, self.mixture.grown(self.prior, starts))
            )

    def without_arm(self, arm: int) -> Self:
        """Return a copy of this policy without one arm and without that arm's entries in feature vectors.

        The copy keeps what the policy has learned about the other arms.
        """
        with self._lock:
            shrunk = self.mixture.shrunk(self.prior, arm)
            return self.from_state(*self._state(self.prior.without_arm(arm), shrunk))

    # -- storing --

    def settings(self) -> dict[str, Any]:
        """What the constructor was given, as plain values."""
        return {"prior": storage.to_state(self.prior)[0], **super().settings()}

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """The prior's arrays, the state of every filter, and the counters."""
        with self._lock:
            return self._state(self.prior, self.mixture.arrays())[1]

    def _state(
        self, prior: DriftPrior, filters: Mapping[str, Array]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Settings and arrays of this policy with this prior and these filters."""
        numbers, arrays = storage.to_state(prior)
        own = {
            "peak_evidence": np.array([self._peak_evidence]),
            "counters": np.array([self.rounds, self.winsorised], dtype=np.int64),
        }
        return {**self.settings(), "prior": numbers}, {
            **prefixed(PRIOR, arrays),
            **filters,
            **own,
        }

    @classmethod
    def state_schema(
        cls, settings: Mapping[str, Any], names: Collection[str]
    ) -> StateSchema:
        """The arrays of C filters over d coordinates, and those of the prior."""
        prior = storage.schema_of(DriftPrior, list(under(dict.fromkeys(names), PRIOR)))
        own = {"peak_evidence": ArraySpec((1,), least=0.0), "counters": counters(2)}
        return StateSchema({**STATE_SPECS, **own}, parts={PRIOR: prior})

    @classmethod
    def from_state(
        cls, settings: Mapping[str, Any], arrays: Mapping[str, np.ndarray[Any, Any]]
    ) -> Self:
        """The policy that had these settings and arrays."""
        options = dict(settings)
        prior = storage.from_state(
            DriftPrior, options.pop("prior"), under(arrays, PRIOR)
        )
        if arrays["means"].shape[1] != len(prior.mean) + bool(options["intercept"]):
            raise InputError(
                "means must have a coordinate for each of the prior, and for a baseline"
            )
        state: Any = {name: arrays[name] for name in STATE_SPECS}
        policy = cls(prior, members=state, **options)
        policy.rounds, policy.winsorised = arrays["counters"].tolist()
        policy._look(float(arrays["peak_evidence"][0]))
        return policy


def checked_caution(caution: Any) -> float | None:
    """Return the caution as a number, or None for no limit, which commands, names and grids spell "none"."""
    if caution is None or (
        isinstance(caution, str) and caution.strip().lower() in NO_LIMIT_WORDS
    ):
        return None
    try:
        return base.not_negative("caution", caution)
    except InputError:
        raise InputError(
            f"caution must be a number of at least 0, or none, got {caution!r}"
        ) from None


def chance(odds: Array) -> Array:
    """σ(odds), without overflow."""
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * odds)))


def _main_features(direction: Array) -> list[int]:
    """Return the indices of the two largest features of a direction (p,).

    Only the largest counts if the second is below a third of it.
    """
    size = np.abs(direction)
    first, *second = np.argsort(-size)[:2].tolist()
    return [first, *(i for i in second if size[i] >= size[first] / 3.0)]
