"""Logs whose rewards are known in expectation, so that what any policy would have earned is known as well."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from invariant_bandits.logs.feedback import Feedback
from invariant_bandits.simulation.paper import PaperWorld
from reading import read_feedback

START = np.datetime64("2025-01-01T00:00:00", "us")


@dataclass(frozen=True)
class KnownLog:
    """Logged rounds as `compare` takes them, the windows they bear, and expected rewards of all rows."""

    feedback: object
    windows: int
    means: np.ndarray

    def value(self, target, rounds):
        """What probabilities (rows,) earn per round in the last so many rounds, as the truth has it."""
        means = self.means[self.feedback.starts[self.feedback.rounds - rounds] :]
        return float(np.asarray(target) @ means) / rounds


@dataclass(frozen=True)
class ArmWorld:
    """Labelled arms, a level and slopes of three context columns each, of which some break half-way.

    Parameters
    ----------
    arms : int
        How many there are.
    click_rate : float or None
        Mean log-odds of a click. None: rewards are numbers with noise 1.
    spread : float
        Standard deviation of levels and slopes between arms.
    breaking : int
        How many slopes are drawn afresh after 30, 55 and 80 % of the rounds.
    lifetime : float
        Share of the rounds in which an arm is offered. Below 1 arms come and go.
    """

    arms: int = 5
    click_rate: float | None = None
    spread: float = 0.5
    breaking: int = 2
    lifetime: float = 1.0

    def log(self, rounds, seed):
        """The rounds; the log prefers some arms, and shows any in half of the rounds."""
        rng = np.random.default_rng(seed)
        share = np.arange(rounds) / rounds
        context = np.column_stack(
            [np.ones(rounds), rng.normal(size=(rounds, 2)), rng.random(rounds) < 0.4]
        )
        effects = np.repeat(
            rng.normal(0.0, self.spread, (1, self.arms, 4)), rounds, axis=0
        )
        for arm in range(self.breaking):
            for since in (0.3, 0.55, 0.8):
                effects[share >= since, arm, 1 + arm % 3] = rng.normal(
                    0.0, 2.0 * self.spread
                )
        offered = np.ones((rounds, self.arms), dtype=bool)
        if self.lifetime < 1.0:
            births = np.linspace(
                -0.5 * self.lifetime, 1.0 - 0.5 * self.lifetime, self.arms
            )
            offered = (share[:, None] >= births) & (
                share[:, None] < births + self.lifetime
            )
        liked = offered * (1.0 + np.arange(self.arms) % 3)
        chances = 0.5 * offered / offered.sum(axis=1, keepdims=True)
        chances += 0.5 * liked / liked.sum(axis=1, keepdims=True)
        shown = (
            (rng.random((rounds, 1)) > np.cumsum(chances, axis=1))
            .sum(axis=1)
            .clip(max=self.arms - 1)
        )
        means = np.einsum("nad,nd->na", effects, context) + (self.click_rate or 0.0)
        every = np.arange(rounds)
        if self.click_rate is None:
            rewards = means[every, shown] + rng.normal(size=rounds)
        else:
            means = 1.0 / (1.0 + np.exp(-means))
            rewards = (rng.random(rounds) < means[every, shown]).astype(np.int64)
        labels = np.array([f"arm_{arm:02d}" for arm in range(self.arms)])
        columns = {
            "time": START + np.arange(rounds) * np.timedelta64(600, "s"),
            "arm": labels[shown],
            "reward": rewards,
            "propensity": chances[every, shown],
            "offered_arms": [labels[row].tolist() for row in offered],
        }
        columns |= {
            name: context[:, j]
            for j, name in enumerate(("", "age", "income", "phone"))
            if j
        }
        read = read_feedback(pa.table(columns))
        rows = np.repeat(every, read.feedback.counts)
        places = np.array([int(label[4:]) for label in read.feature_map.labels])
        arms = places[np.asarray(read.offered_arms).astype(np.int64)]
        return KnownLog(read.feedback, read.windows, means[rows, arms])


@dataclass(frozen=True)
class RowWorld:
    """The paper's world: five actions per round, each a row of ten features, shown uniformly."""

    def log(self, rounds, seed):
        """The rounds with their truth."""
        logs = PaperWorld().log(rounds, np.random.default_rng(seed))
        n, K, _ = logs.offered.shape
        chances = np.full(n, 1.0 / K)
        feedback = Feedback.from_arrays(
            logs.offered, logs.actions, logs.rewards, propensities=chances
        )
        return KnownLog(
            feedback,
            8,
            np.einsum("nkp,np->nk", logs.offered, logs.coefficients).reshape(-1),
        )


WORLDS = {
    "rows": RowWorld(),
    "prices": ArmWorld(arms=5),
    "mails": ArmWorld(arms=4, click_rate=-1.0, breaking=1),
    "news": ArmWorld(arms=16, click_rate=-1.0, breaking=4, lifetime=0.4),
    "rare clicks": ArmWorld(arms=4, click_rate=-3.0, breaking=1),
}
