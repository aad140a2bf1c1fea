"""Randomised logs of labelled arms whose rewards are linear in the context, with the planted truth."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

SCHEMA = {"arm": "arm", "reward": "reward", "time": "time", "propensity": "propensity"}


@dataclass
class LinearLog:
    """A log, and what every arm is worth in fresh contexts."""

    log: pa.Table
    contexts: list[dict]
    worth: np.ndarray

    def share_of_best(self, model):
        """What the model's choices are worth, as a share of the best choices."""
        chosen = np.array([model.select(context) for context in self.contexts])
        return (
            self.worth[np.arange(len(chosen)), chosen].mean()
            / self.worth.max(axis=1).mean()
        )


def linear_log(
    seed, *, rounds, arms, columns=0, categories=0, differing=None, fresh=300
):
    """Arms differ in the slopes of the first `differing` columns, by default of all, or in every category.

    Each difference adds up to a standard deviation of 1, as the noise has; levels have one of 0.2.
    """
    rng = np.random.default_rng(seed)
    n = rounds + fresh
    if categories:
        codes = rng.integers(categories, size=n)
        z = np.eye(categories)[codes]
        raw = {
            "country": np.array([f"c{place:02d}" for place in range(categories)])[codes]
        }
    else:
        z = rng.normal(size=(n, columns))
        raw = {f"x{j:03d}": z[:, j] for j in range(columns)}
    width = z.shape[1]
    changing = width if differing is None else differing
    slopes = np.tile(rng.normal(size=width) / np.sqrt(width), (arms, 1))
    if changing:
        scale = 1.0 if categories else 1.0 / np.sqrt(changing)
        slopes[:, :changing] = scale * rng.normal(size=(arms, changing))
    worth = 0.2 * rng.normal(size=arms) + z @ slopes.T
    arm = rng.integers(arms, size=rounds)
    reward = worth[np.arange(rounds), arm] + rng.normal(size=rounds)
    log = {name: values[:rounds] for name, values in raw.items()}
    log |= {
        "arm": np.array([f"arm{place:02d}" for place in range(arms)])[arm],
        "reward": reward,
    }
    log |= {"time": np.arange(rounds), "propensity": np.full(rounds, 1.0 / arms)}
    rows = [
        dict(zip(raw, row, strict=True))
        for row in zip(*(v[rounds:] for v in raw.values()), strict=True)
    ]
    return LinearLog(pa.table(log), rows, worth[rounds:])
