"""A policy of your own, from scratch: `select` and `update` are enough to play and to be compared.

Run it with `python examples/own_policy.py`.
"""

import numpy as np

import invariant_bandits as ib


@ib.register_policy("gradient")
class Gradient:
    """Online gradient descent on the squared error, with ε-greedy choices.

    Grids and names set its options: "gradient,rate=0.02". What it needs is known before the first round.
    """

    options = ("rate", "epsilon", "seed")
    needs = ("dim",)

    def __init__(self, dim, rate=0.05, epsilon=0.05, seed=0):
        self.rate = rate
        self.epsilon = epsilon
        self.seed = seed
        self.weights, self.rounds = np.zeros(dim), 0

    def select(self, features):
        """Index of the story to show, given features (K, p)."""
        rng = np.random.default_rng((self.seed, self.rounds))
        if rng.random() < self.epsilon:
            return int(rng.integers(len(features)))
        return int(np.argmax(features @ self.weights))

    def update(self, features, reward):
        """One step towards the reward of the chosen features (p,)."""
        self.rounds += 1
        self.weights += self.rate * (reward - features @ self.weights) * features


if __name__ == "__main__":
    players = ["gradient", "gradient,rate=0.02", "linucb"]
    print(
        ib.simulate(
            players,
            ib.simulation.PaperEpisodes(logged=500),
            horizon=300,
            replications=4,
            seed=0,
        )
    )
