"""Logs as most people keep them: contexts, the label of an arm, a click; arms come and go, effects drift."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError, one_of, whole_number
from invariant_bandits.decomposition.arm_statistics import ArmLayout, ArmStatistics
from invariant_bandits.moments.windowed import WindowedMoments
from invariant_bandits.policies.past import Past
from invariant_bandits.simulation.episodes import (
    KnownEpisode,
    SimulatedPast,
    register_environment,
)
from invariant_bandits.simulation.paper import check_counts

LATER = ("nothing new", "drift", "a new arm is best", "a new arm is worst")
LOGGING = ("uniform", "greedy", "deterministic")
INTERCEPT, SLOPE = 0.3, 0.2
"""Standard deviations of the arms' log-odds, and of what a context adds to them."""
BETTER, WORSE = 0.4, 0.6
"""How far, in log-odds, a new arm is above the best or below the worst of the others."""
EPSILON = 0.1
LAUNCHED_AFTER, RETIRED_AFTER = 7 / 12, 6 / 12
"""Parts of the logs after which an arm is launched, if nothing else is said, and another retired."""


@dataclass(frozen=True, eq=False)
class ArmLogs:
    """n logged rounds of labelled arms with the truth behind them.

    Parameters
    ----------
    contexts : array, shape (n, d)
        z, 1 first.
    arms : array of int, shape (n,)
        Which arm was played.
    rewards : array, shape (n,)
        Clicks, 0 or 1.
    windows : array of int, shape (n,)
        The month of every round.
    count : int
        Arms there are online, those never played included.
    truth : array, shape (A, d)
        Coefficients of the log-odds when the logs end.
    drifting : tuple of (int, int)
        Arm and coefficient of the effects that drift.
    """

    contexts: Array
    arms: Array
    rewards: Array
    windows: Array
    count: int
    truth: Array
    drifting: tuple[tuple[int, int], ...]

    @property
    def layout(self) -> ArmLayout:
        """Which coefficient is whose."""
        return ArmLayout.of(arms=self.count, width=self.contexts.shape[1])

    @cached_property
    def features(self) -> Array:
        """φ of the chosen arms (n, p)."""
        return self.layout.features(self.contexts, self.arms)

    def moments(self, windows: int | None = None) -> WindowedMoments:
        """Windowed moments of the chosen arms' features."""
        return WindowedMoments.from_arrays(self.features, self.rewards, windows=windows)

    def statistics(self, link: str = "logit") -> ArmStatistics:
        """What the months say of every arm."""
        return ArmStatistics.from_rounds(
            self.contexts,
            self.arms,
            self.rewards,
            windows=self.windows,
            link=link,
            count=self.count,
        )


@dataclass(frozen=True)
class ArmEpisode(KnownEpisode):
    """Logged and online rounds of labelled arms; `offered` holds those that may be played."""

    logs: Any
    active: tuple[int, ...] = ()

    @cached_property
    def past(self) -> Past:
        """What a policy may know before the first online round."""
        return SimulatedPast(
            self,
            logs=self.logs,
            windows=int(self.logs.windows.max()) + 1,
            horizon=self.horizon,
            actions=int(self.offered.shape[1]),
            delta=0.01,
            arm_statistics=self.logs.statistics,
        )


@register_environment("labelled-arms")
@dataclass(frozen=True)
class LabelledArms:
    """Simulated clicks on labelled arms, where the log-odds of a click are linear in the context.

    Every arm has an intercept and slopes of its own. By default the logs cover twelve months, and two slopes
    drift. One arm is retired after the sixth of twelve months and not offered in the online rounds. One arm
    is launched after the seventh of twelve months.

    Parameters
    ----------
    later : "nothing new", "drift", "a new arm is best" or "a new arm is worst"
        What is new in the online rounds. With `later="nothing new"`, all coefficients stay as at the end of
        the logs. With `later="drift"`, the drifting slopes drift on. With `later="a new arm is best"`, the
        online rounds add an arm whose intercept is 0.4 above the best other arm. With `later="a new arm is
        worst"`, the online rounds add an arm whose intercept is 0.6 below the worst other arm.
    arms, contexts : int
        Number of arms in the logs (at least 4), and number of context features (standard normal).
    rate : float
        Probability of a click on an arm of average intercept when all context features are 0.
    logged, months : int
        Number of logged rounds, and number of months (windows) that the logs cover.
    step : float
        Standard deviation of the change of a drifting slope in one month, in log-odds.
    drifting : int
        Number of slopes that drift.
    logging : "uniform", "greedy" or "deterministic"
        How the arms of the logged rounds were chosen. With `logging="uniform"`, arms were chosen uniformly at
        random. With `logging="deterministic"`, an inaccurate model chose its best arm in every round. With
        `logging="greedy"`, an inaccurate model chose its best arm in 90 % of the rounds, and the other rounds
        have a random arm.
    lead : float, optional
        Distance of the new arm's intercept from the best or worst other arm; 0.4 or 0.6 by default.
    launched_after : float
        Fraction of the logged rounds after which one arm is launched.

    >>> import numpy as np
    >>> episode = LabelledArms(later="a new arm is best", logged=2000).draw(10, np.random.default_rng(0))
    >>> episode.offered.shape, episode.active
    ((10, 5, 42), (0, 1, 2, 3, 5))
    """

    later: str = "nothing new"
    arms: int = 5
    contexts: int = 6
    rate: float = 0.3
    logged: int = 50_000
    months: int = 12
    step: float = 0.25
    drifting: int = 2
    logging: str = "uniform"
    lead: float | None = None
    launched_after: float = LAUNCHED_AFTER

    def __post_init__(self) -> None:
        one_of("later", self.later, LATER)
        one_of("logging", self.logging, LOGGING)
        check_counts(self, arms=4, contexts=1, months=2, logged=self.months)
        most = (self.arms - 2) * self.contexts
        if not 0 <= self.drifting <= most:
            raise InputError(f"drifting must be from 0 to {most}, got {self.drifting}")

    @property
    def width(self) -> int:
        """Number of coefficients d of an arm."""
        return 1 + self.contexts

    def draw(self, horizon: int, rng: np.random.Generator) -> ArmEpisode:
        """Draw coefficients, logged rounds and online rounds; `horizon` is the number of online rounds."""
        whole_number("horizon", horizon, 1)
        start = self._coefficients(self.arms, rng)
        slopes = rng.choice(
            (self.arms - 2) * self.contexts, self.drifting, replace=False
        )
        effects = tuple(
            (arm, 1 + k)
            for arm, k in (divmod(j, self.contexts) for j in sorted(slopes.tolist()))
        )
        # A random walk whose steps of a month have the standard deviation `step`.
        per_round = self.step / np.sqrt(self.logged / self.months)
        size = (self.logged + horizon, self.drifting)
        walks = np.cumsum(rng.normal(scale=per_round, size=size), axis=0)
        logs = self._logs(start, effects, walks[: self.logged], rng)
        active = [arm for arm in range(logs.count) if arm != self.arms - 1]
        contexts = self._contexts(horizon, rng)
        odds = contexts @ logs.truth.T
        if self.later == "drift":
            since = walks[self.logged :] - walks[self.logged - 1]
            for (arm, k), moved in zip(effects, since.T, strict=True):
                odds[:, arm] += moved * contexts[:, k]
        means = 1.0 / (1.0 + np.exp(-odds[:, active]))
        each = np.repeat(contexts, len(active), axis=0)
        rows = logs.layout.features(each, np.tile(active, horizon))
        offered = np.ascontiguousarray(rows.reshape(horizon, len(active), -1))
        coefficients = np.tile(logs.truth.ravel(), (horizon, 1))
        clicks = (rng.random(horizon)[:, None] < means).astype(np.float64)
        return ArmEpisode(
            logs=logs,
            offered=offered,
            coefficients=coefficients,
            noise=np.zeros(horizon),
            windows=self.months,
            expected=means,
            outcomes=clicks,
            active=tuple(active),
        )

    def _contexts(self, count: int, rng: np.random.Generator) -> Array:
        return np.column_stack(
            [np.ones(count), rng.standard_normal((count, self.contexts))]
        )

    def _coefficients(self, arms: int, rng: np.random.Generator) -> Array:
        """Coefficients of the log-odds (arms, 1 + contexts)."""
        sizes = np.append(INTERCEPT, np.full(self.contexts, SLOPE))
        result = rng.standard_normal((arms, 1 + self.contexts)) * sizes
        result[:, 0] += np.log(self.rate / (1.0 - self.rate))
        return np.asarray(result)

    def _logs(
        self, start: Array, effects: Any, walks: Array, rng: np.random.Generator
    ) -> ArmLogs:
        n = self.logged
        launched = self.arms - 2
        retired = self.arms - 1
        contexts = self._contexts(n, rng)
        odds = contexts @ start.T
        truth = start.copy()
        for i, (arm, k) in enumerate(effects):
            odds[:, arm] += walks[:, i] * contexts[:, k]
            truth[arm, k] += walks[-1, i]
        played = np.ones((n, self.arms), dtype=bool)
        played[: int(self.launched_after * n), launched] = False
        played[int(RETIRED_AFTER * n) :, retired] = False
        arms = self._chosen(contexts, start, played, rng)
        chances = 1.0 / (1.0 + np.exp(-odds[np.arange(n), arms]))
        rewards = (rng.random(n) < chances).astype(np.float64)
        truth = np.vstack([truth, *self._new_arm(truth[:retired], rng)])
        windows = np.arange(n) * self.months // n
        return ArmLogs(
            contexts=contexts,
            arms=arms,
            rewards=rewards,
            windows=windows,
            count=len(truth),
            truth=truth,
            drifting=effects,
        )

    def _new_arm(self, others: Array, rng: np.random.Generator) -> list[Array]:
        if self.later not in LATER[2:]:
            return []
        new = self._coefficients(1, rng)[0]
        best = self.later == LATER[2]
        lead = self.lead if self.lead is not None else BETTER if best else WORSE
        new[0] = others[:, 0].max() + lead if best else others[:, 0].min() - lead
        return [new]

    def _chosen(
        self, contexts: Array, start: Array, played: Array, rng: np.random.Generator
    ) -> Any:
        """Arms of the logged rounds (n,), among those that were there."""
        n = len(contexts)
        drawn = np.where(played, rng.random((n, self.arms)), -1.0).argmax(axis=1)
        if self.logging == "uniform":
            return drawn
        stale = start + rng.normal(scale=SLOPE, size=start.shape)
        best = np.where(played, contexts @ stale.T, -np.inf).argmax(axis=1)
        return (
            np.where(rng.random(n) < EPSILON, drawn, best)
            if self.logging == "greedy"
            else best
        )
