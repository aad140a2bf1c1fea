"""A log of many labelled arms with a planted truth: levels about a catalogue, shared slopes, one that breaks."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

SLOPES = (0.6, -0.4, 0.8)
BREAK = -1.2
"""By how much the last slope changes half-way."""
SPORT = 0.4
"""What sport adds to the level, and to the first slope."""


@dataclass
class ManyArms:
    """Truth, and tables of the log and of the catalogue."""

    log: pa.Table
    catalogue: pa.Table
    labels: list[str]
    levels: np.ndarray
    own: np.ndarray
    sport: np.ndarray
    plays: np.ndarray


def many_arms(seed, *, rounds=30_000, arms=800, clicks=True, spread=0.5, walk=0.0):
    """Arms are played ever more rarely; levels are N(−1 + 0.4·sport, spread²) and walk by `walk` in every
    eighth of the log.
    """
    rng = np.random.default_rng(seed)
    sport = rng.random(arms) < 0.4
    own = spread * rng.normal(size=arms)
    levels = -1.0 + SPORT * sport + own
    shares = rng.permutation(1.0 / np.arange(1, arms + 1))
    played = rng.choice(arms, rounds, p=shares / shares.sum())
    contexts, eighth = rng.normal(size=(rounds, 3)), np.arange(rounds) * 8 // rounds
    slopes = np.tile(SLOPES, (rounds, 1))
    slopes[rounds // 2 :, 2] += BREAK
    slopes[:, 0] += SPORT * sport[played]
    walks = np.cumsum(walk * rng.normal(size=(8, arms)), axis=0)
    odds = levels[played] + walks[eighth, played] + (slopes * contexts).sum(axis=1)
    rewards = odds + rng.normal(size=rounds)
    if clicks:
        rewards = (rng.random(rounds) < 1.0 / (1.0 + np.exp(-odds))).astype(float)
    labels = [f"item{arm:04d}" for arm in range(arms)]
    log = pa.table({"x0": contexts[:, 0], "x1": contexts[:, 1], "x2": contexts[:, 2]})
    log = log.append_column("item", pa.array(np.array(labels)[played]))
    log = log.append_column("reward", pa.array(rewards))
    kinds = pa.table({"item": labels, "topic": np.where(sport, "sport", "news")})
    plays = np.bincount(played, minlength=arms)
    return ManyArms(
        log,
        kinds,
        labels,
        levels + walks[-1],
        own + walks[-1],
        sport.astype(float),
        plays,
    )
