"""An environment of your own: a news site whose readers change their minds overnight.

It has no true split, and policies need none. Run it with `python examples/own_environment.py`.
"""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np

import invariant_bandits as ib


@ib.register_environment("news")
@dataclass(frozen=True)
class News:
    """Five stories per visit, six topics; topic 0 is always worth reading, the others change every day."""

    logged: int = 2000
    day: int = 250

    def draw(self, horizon, rng):
        """Logged visits with stories shown at random, then `horizon` visits to play."""
        visits = self.logged + horizon
        stories = rng.normal(size=(visits, 5, 6))
        taste = np.repeat(
            rng.normal(size=(visits // self.day + 1, 6)), self.day, axis=0
        )[:visits]
        taste[:, 0] = 1.0
        means = np.einsum("tkp,tp->tk", stories, taste)
        rewards = means + rng.normal(size=(visits, 1))
        shown = rng.integers(5, size=self.logged)
        past = slice(self.logged)
        ahead = slice(self.logged, None)
        seen = rewards[np.arange(self.logged), shown]
        logs = ib.evaluation.Feedback.from_arrays(
            stories[past], shown, seen, propensities=np.full(self.logged, 0.2)
        )
        return SimpleNamespace(
            offered=stories[ahead],
            rewards=rewards[ahead],
            means=means[ahead],
            logs=logs,
        )


if __name__ == "__main__":
    print(
        ib.simulate(
            ["auto-isd", "linucb", "sw-linucb"],
            News(),
            horizon=500,
            replications=4,
            seed=0,
        )
    )
