"""Past: what a policy may know when it starts."""

from __future__ import annotations

import warnings
from copy import copy
from functools import cached_property, partial
from typing import Any, cast

import numpy as np

from invariant_bandits.checks import InputError, whole_number
from invariant_bandits.decomposition.arm_statistics import ArmStatistics
from invariant_bandits.decomposition.drift_prior import DriftPrior
from invariant_bandits.decomposition.estimator import InvariantSubspaceDecomposition
from invariant_bandits.decomposition.joint_diagonalization import ConvergenceWarning
from invariant_bandits.logs.feedback import Feedback
from invariant_bandits.moments.batches import window_of_times
from invariant_bandits.moments.windowed import WindowedMoments

DEFAULT_WINDOWS = 8
DEFAULT_DELTA = 0.01
WHOLE_HORIZON = "horizon"
"""The length of a memory that is to forget nothing on purpose, as in Figure 6 of the paper."""


class ForgetsNothingWarning(UserWarning):
    """The memory of a policy that forgets is as long as the run, so that it forgets nothing."""


class Past:
    """What is known before a policy plays its first round, such as logs and the number of rounds to play.

    Every policy class has the method `from_past(past, **options)`, which creates a policy from a Past object.
    Quantities that can be estimated from the logs are computed when they are first needed.

    Parameters
    ----------
    logs : Feedback, optional
        Logged rounds, row by row. Instead of Feedback, any object with `features`, `rewards` and
        `moments(windows)` is accepted, such as the logs of a simulated world.
    moments : WindowedMoments, optional
        Means and covariances of the logged features and rewards in each window (period of the log).
    windows : int
        Number of equal periods into which the logs are cut, if `moments` is not given.
    horizon : int, optional
        Number of rounds that the policy will play.
    actions : int, optional
        Number of actions per round, if every round offers the same number.
    baseline : float
        Constant that is subtracted from logged and from new rewards, because linear policies have no
        intercept.
    noise_scale : float, optional
        Standard deviation of the noise in a reward, if it is known.
    feature_bound : float, optional
        Largest norm of a feature vector, if it is known.
    delta : float, optional
        Allowed probability that a confidence bound fails.
    suggested_window : int, optional
        Default number of rounds that a forgetting policy, such as SWLinUCB, remembers.
    decomposition : InvariantSubspaceDecomposition, optional
        Decomposition into stable and drifting coefficients, if it was already fitted to `moments`.
    arm_statistics : ArmStatistics, or a function that returns them, optional
        Statistics of labelled arms (actions with an identity, such as adverts).

    >>> import numpy as np, invariant_bandits as ib
    >>> rng = np.random.default_rng(0)
    >>> features = rng.normal(size=(800, 3))
    >>> moments = ib.WindowedMoments.from_arrays(features, features @ [1.0, 0.0, -1.0] + rng.normal(size=800))
    >>> past = ib.Past(moments=moments, horizon=100)
    >>> past.dim, past.delta, round(past.noise_scale, 1)
    (3, 0.01, 1.0)
    >>> ib.LinUCB.from_past(past, warm=True)
    LinUCB(dim=3, memory=Forever(), rounds=800)
    """

    def __init__(
        self,
        *,
        logs: Any = None,
        moments: WindowedMoments | None = None,
        windows: int = DEFAULT_WINDOWS,
        horizon: int | None = None,
        actions: int | None = None,
        baseline: float = 0.0,
        noise_scale: float | None = None,
        feature_bound: float | None = None,
        delta: float | None = None,
        suggested_window: int | None = None,
        decomposition: InvariantSubspaceDecomposition | None = None,
        arm_statistics: Any = None,
    ) -> None:
        if logs is None and moments is None:
            raise InputError("a past needs logs or moments")
        self.logs, self.windows = logs, windows
        self.horizon = None if horizon is None else whole_number("horizon", horizon, 1)
        self.actions = actions
        self.suggested_window = suggested_window
        self.baseline = baseline
        self.known_noise_scale, self._arm_statistics = noise_scale, arm_statistics
        known = {
            "moments": moments,
            "decomposition": decomposition,
            "noise_scale": noise_scale,
        }
        known |= {"feature_bound": feature_bound, "delta": delta}
        vars(self).update(
            {name: value for name, value in known.items() if value is not None}
        )

    @classmethod
    def from_feedback(
        cls,
        feedback: Feedback,
        horizon: int | None = None,
        windows: int = DEFAULT_WINDOWS,
        edges: Any = None,
    ) -> Past:
        """Create a Past object from logged rounds, with their mean reward as the baseline to subtract.

        Labelled arms have the baseline 0, because every arm has a mean reward of its own. The parameters
        `windows` and `edges` are those of `Feedback.moments`.
        """
        labelled = feedback.arm_features is not None
        baseline = 0.0 if labelled else float(feedback.rewards.mean())
        shifted = feedback.shifted(baseline)
        moments = (
            shifted.moments(windows) if edges is None else shifted.moments(edges=edges)
        )
        least, most = int(feedback.counts.min()), int(feedback.counts.max())
        norms = (
            float(np.sqrt((part.offered**2).sum(axis=1).max()))
            for part in feedback.parts()
        )
        return cls(
            logs=shifted,
            moments=moments,
            windows=windows,
            horizon=horizon,
            actions=most if least == most else None,
            baseline=baseline,
            suggested_window=max(moments.rounds // moments.windows, 1),
            feature_bound=max(*norms, 1e-6),
            arm_statistics=partial(_of_arms, feedback, windows, edges)
            if labelled
            else None,
        )

    def in_windows(self, windows: int) -> Past:
        """Return a copy of this Past object with its logged rounds cut into `windows` periods."""
        if self.logs is None:
            raise InputError(
                "windows: the logged rounds are not at hand, only their moments"
            )
        past = copy(self)
        past.windows = windows
        estimated = ("noise_scale",) if self.known_noise_scale is None else ()
        for computed in (
            "moments",
            "decomposition",
            "arm_statistics",
            "drift_prior",
            *estimated,
        ):
            vars(past).pop(computed, None)
        if isinstance(self.logs, Feedback) and self.logs.arm_features is not None:
            past._arm_statistics = partial(_of_arms, self.logs, windows, None)
        return past

    def needed_horizon(self, option: str) -> int:
        """Return the horizon, or raise an InputError that asks for the missing `option`."""
        if self.horizon is None:
            raise InputError(
                f"{option} is missing: the past does not say how many rounds will be played"
            )
        return self.horizon

    def memory_length(
        self,
        option: str,
        length: int | str | None,
        *,
        share: float,
        warm: bool | int = False,
    ) -> int:
        """Return how many rounds a policy that forgets remembers, or warn if it would forget nothing.

        Parameters
        ----------
        option : str
            Name of the policy's option, such as "window".
        length : int, "horizon" or None
            What the caller asked for. "horizon" remembers all online rounds, without a warning.
        share : float
            Part of the horizon that is remembered by default, if no window is suggested or the suggested one
            is as long as the run.
        warm : bool or int
            Whether the policy learns the logged rounds first, or how many of them: it can forget these.
        """
        if isinstance(length, str) and length == WHOLE_HORIZON:
            return self.needed_horizon(option)
        if length is None:
            suggested = self.suggested_window
            if suggested is not None and not self._holds_all(suggested, warm):
                return suggested
            return max(1, int(share * self.needed_horizon(option)))
        asked = whole_number(option, length, 1)
        self.warn_if_nothing_is_forgotten(option, asked, warm)
        return asked

    def warn_if_nothing_is_forgotten(
        self, option: str, length: int, warm: bool | int = False
    ) -> None:
        """Warn if a memory of so many rounds holds all rounds that will be played."""
        if self._holds_all(length, warm):
            run = f"{option} is {length:,} rounds and only {self.horizon:,} will be played"
            shorter = (
                f"give a shorter one, or {option}={WHOLE_HORIZON!r} if this is meant"
            )
            message = f"{run}, so that nothing is ever forgotten: {shorter}"
            warnings.warn(message, ForgetsNothingWarning, stacklevel=4)

    def _holds_all(self, length: int, warm: bool | int) -> bool:
        """Whether a memory of so many rounds is full only after the last round, if that is known."""
        if self.horizon is None:
            return False
        learned = 0
        if warm is not False:
            learned = (
                self.moments.rounds if warm is True else min(warm, self.moments.rounds)
            )
        return length >= self.horizon + learned

    # -- what follows --

    @cached_property
    def moments(self) -> WindowedMoments:
        """Means and covariances of the logged features and rewards in each window (period of the log)."""
        return cast(WindowedMoments, self.logs.moments(self.windows))

    @cached_property
    def dim(self) -> int:
        """Number of features p."""
        if self.logs is None or "moments" in vars(self):
            return self.moments.dim
        return int(np.shape(self.logs.features)[1])

    @cached_property
    def arm_statistics(self) -> ArmStatistics | None:
        """Statistics of the labelled arms in the logs, or None if actions are not labelled arms."""
        known = self._arm_statistics
        return cast(ArmStatistics | None, known() if callable(known) else known)

    @cached_property
    def decomposition(self) -> InvariantSubspaceDecomposition:
        """Decomposition of the coefficients in the logs into a stable and a drifting part.

        A decomposition whose search has not converged is used without a warning.
        """
        with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
            intercept = self._arm_statistics is None  # labelled arms have levels
            names = getattr(getattr(self.logs, "arm_features", None), "names", None)
            decomposition = InvariantSubspaceDecomposition(
                intercept=intercept, feature_names=names
            )
            return decomposition.fit(self.moments)

    @cached_property
    def drift_prior(self) -> DriftPrior:
        """Estimated mean and drift of every coefficient in the logs."""
        if self.arm_statistics is not None:
            return DriftPrior.from_arms(self.arm_statistics)
        fit = self.decomposition
        return DriftPrior.from_moments(
            self.moments, fit.basis_, drifting=fit.drifting_directions
        )

    @cached_property
    def delta(self) -> float:
        """Allowed probability that a confidence bound fails.

        By default this probability is 1/horizon, or 0.01 if the horizon is not known.
        """
        return DEFAULT_DELTA if self.horizon is None else 1.0 / max(self.horizon, 2)

    @cached_property
    def noise_scale(self) -> float:
        """Standard deviation of the noise in a reward.

        By default the noise is estimated by a linear regression with one intercept per window (period of the
        log).
        """
        gram, cross = self.moments.gram.sum(axis=0), self.moments.cross.sum(axis=0)
        slopes = np.linalg.lstsq(gram, cross, rcond=None)[0]
        squares = float(self.moments.reward_square.sum() - slopes @ cross)
        freedom = max(self.moments.rounds - self.moments.windows - self.dim, 1)
        return float(np.sqrt(max(squares / freedom, 1e-12)))

    @cached_property
    def feature_bound(self) -> float:
        """Largest norm of a feature vector, 1 by default."""
        return 1.0


def _of_arms(feedback: Any, windows: int, edges: Any) -> ArmStatistics:
    """What logged rounds of labelled arms say of them."""
    cut = (
        windows
        if edges is None
        else window_of_times(feedback.rounds, feedback.times, np.asarray(edges))
    )
    return ArmStatistics.from_features(
        feedback.arm_features, feedback.features, feedback.rewards, cut
    )
