"""What randomised decisions cost, and what their log is worth: regret against the width of a later evaluation."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, whole_number
from invariant_bandits.evaluation import estimators
from invariant_bandits.logs.feedback import Feedback
from invariant_bandits.parallel import map_unordered
from invariant_bandits.policies.auto import AutoISD
from invariant_bandits.policies.baselines import Frozen
from invariant_bandits.policies.randomised import DEFAULT_FLOOR, DEFAULT_SHARPNESS, INVERSE_GAP, UNIFORM, Randomised
from invariant_bandits.simulation.episodes import Episode
from invariant_bandits.simulation.stress import StressEpisodes
from studies.intervals import Ends

ROUNDS = 4000
CONFIDENCE = 0.95
WORLD = StressEpisodes(drift="walk", step=0.01)
SIGNAL = 0.3  # of that world's coefficients, so that noise is larger than differences between actions, as in most logs
TRUTH_ROUNDS = 20_000  # of contexts, for their covariance
BEST_OF_FIVE = 1.162964473640519  # expected largest of five standard normal numbers
LINES = ("DR, value", "DR, difference", "SNIPS, value", "SNIPS, difference")


@dataclass(frozen=True)
class Setting:
    """How AutoISD is randomised."""

    kind: str
    amount: float

    @property
    def name(self) -> str:
        """What tables call it."""
        return f"floor {self.amount:g}" if self.kind == UNIFORM else f"inverse gap, {self.amount:g}"

    def wrapped(self, policy: AutoISD, seed: int) -> Randomised:
        """The policy, randomised."""
        if self.kind == UNIFORM:
            return Randomised(policy, self.amount, seed=seed)
        return Randomised(policy, kind=self.kind, sharpness=self.amount, seed=seed)


SETTINGS = (
    *(Setting(UNIFORM, floor) for floor in (0.0, 0.01, 0.02, 0.05, 0.1, 0.2)),
    *(Setting(INVERSE_GAP, sharpness) for sharpness in (1000.0, 300.0, 100.0, 30.0, 10.0)),
)
DEFAULTS = (Setting(UNIFORM, DEFAULT_FLOOR[UNIFORM]), Setting(INVERSE_GAP, DEFAULT_SHARPNESS))
"""The settings whose coverage is judged: they play every world, the others only some."""


@dataclass(frozen=True, eq=False)
class Measured(Ends):
    """One setting over all logs, (n, 4): DR and SNIPS, each of the challenger's value and of its difference to the log.

    regret (n,): per round.
    """

    regret: Array


def run(
    settings: Sequence[Setting] = SETTINGS,
    *,
    replications: int = 300,
    others: int = 100,
    rounds: int = ROUNDS,
    seed: int = 20261217,
    jobs: int = 2,
    progress: Callable[[int, int], None] | None = None,
) -> dict[Setting, Measured]:
    """All settings on the same worlds, logs, contexts and luck; the same for any number of `jobs`.

    others: in how many of the worlds settings other than DEFAULTS play.
    """
    whole_number("replications", replications, 2)

    def one(replication: int) -> dict[Setting, tuple[float, Array]]:
        playing = [setting for setting in settings if setting in DEFAULTS or replication < others]
        return _replication(playing, rounds, np.random.default_rng((seed, replication)))

    found: list[Any] = [None] * replications
    for done, (index, outcome) in enumerate(map_unordered(one, range(replications), jobs), start=1):
        found[index] = outcome
        if progress is not None:
            progress(done, replications)
    result = {}
    for setting in settings:
        played = [outcome[setting] for outcome in found if setting in outcome]
        ends = np.stack([intervals for _, intervals in played])
        low, high, truth = np.moveaxis(ends, 2, 0)
        result[setting] = Measured(low, high, truth, np.array([regret for regret, _ in played]))
    return result


def _replication(
    settings: Sequence[Setting], rounds: int, rng: np.random.Generator
) -> dict[Setting, tuple[float, Array]]:
    """Regret per round and intervals (4, 3) of every setting in one world."""
    drawn = fainter(WORLD.draw(rounds + TRUTH_ROUNDS, rng), SIGNAL)
    contexts, episode = drawn.offered[rounds:], _first(drawn, rounds)
    first = Feedback.from_arrays(episode.logs.offered, episode.logs.actions, episode.logs.rewards)
    auto, challenger = AutoISD.from_past(episode.past), Frozen.from_past(episode.past).coefficients
    seed = int(rng.integers(2**62))
    value = true_value(challenger, contexts, episode.coefficients)
    outcomes = {}
    for setting in settings:
        log = written_log(setting.wrapped(copy.deepcopy(auto), seed), episode)
        chosen = episode.means[np.arange(rounds), log.actions]
        regret = float((episode.means.max(axis=1) - chosen).mean())
        outcomes[setting] = (regret, _intervals(log, first, challenger, value - float(chosen.mean()), value))
    return outcomes


def fainter(episode: Episode, factor: float) -> Episode:
    """The same episode with all coefficients times `factor` and the same noise."""
    logs, expected, outcomes = episode.logs, episode.means, episode.rewards
    shift = (factor - 1.0) * np.einsum("tp,tp->t", logs.features, logs.coefficients)
    calmer = replace(
        logs,
        rewards=logs.rewards + shift,
        coefficients=factor * logs.coefficients,
        component=factor * logs.component,
    )
    return replace(
        episode,
        logs=calmer,
        coefficients=factor * episode.coefficients,
        expected=factor * expected,
        outcomes=outcomes + (factor - 1.0) * expected,
    )


def _first(episode: Episode, rounds: int) -> Episode:
    """The first online rounds of an episode."""
    parts = ("offered", "coefficients", "noise", "expected", "outcomes")
    return replace(episode, **{name: getattr(episode, name)[:rounds] for name in parts})


def written_log(policy: Randomised, episode: Episode) -> Feedback:
    """What the policy logs while it plays: features of all actions, its choices, rewards and propensities."""
    rewards = episode.rewards
    actions, propensities = np.empty(episode.horizon, dtype=np.int64), np.empty(rewards.shape)
    for t, offered in enumerate(episode.offered):
        actions[t], propensities[t] = policy.choose(offered)
        policy.update(offered[actions[t]], float(rewards[t, actions[t]]))
    own = propensities[np.arange(episode.horizon), actions]
    return Feedback.from_arrays(
        episode.offered, actions, rewards[np.arange(episode.horizon), actions], propensities=own
    )


def true_value(challenger: Array, contexts: Array, coefficients: Array) -> float:
    """Expected reward per round of playing the largest φᵀθ of five, over contexts as in `contexts` (n, 5, p).

    They are N(0, Σ), so the mean of the chosen features is m·Σθ/√(θᵀΣθ), m the expected largest of five standard
    normal numbers; the reward is linear, with the coefficients (T, p) of every round.
    """
    flat = contexts.reshape(-1, contexts.shape[2])
    covariance = flat.T @ flat / len(flat)
    pull = covariance @ challenger
    return float(coefficients.mean(axis=0) @ pull * BEST_OF_FIVE / np.sqrt(challenger @ pull))


def _intervals(log: Feedback, first: Feedback, challenger: Array, difference: float, value: float) -> Array:
    """(4, 3): low, high and truth by DR and SNIPS, of the challenger's value and its difference to the log."""
    scores = (log.offered @ challenger).reshape(log.rounds, -1)
    target = np.eye(scores.shape[1])[scores.argmax(axis=1)].ravel()
    logged = estimators.logged_value(log, confidence=CONFIDENCE)
    robust = estimators.doubly_robust(log, target, earlier=first, confidence=CONFIDENCE)
    rows = []
    for found in (robust, estimators.snips(log, target, confidence=CONFIDENCE)):
        for one, truth in ((found, value), (found.minus(logged), difference)):
            ends = (one.low, one.high) if one.concludes else (np.nan, np.nan)
            rows.append((*ends, truth))
    return np.array(rows)
