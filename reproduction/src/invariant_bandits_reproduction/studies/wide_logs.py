"""Wide logs: other systems' logs with columns that say nothing, and labelled arms with many coefficients.

`python -m invariant_bandits_reproduction.studies.wide_logs` plays the second kind: what a model's choices are
worth beside those of a ridge regression per arm, whose ridge is the best on held-out rounds.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from invariant_bandits.model.fit import fit_logs
from invariant_bandits.simulation.wild_logs import (
    WildLog,
    call_centre,
    dosing,
    email_campaign,
    ride_pricing,
)

WIDE_ROUNDS = 20_000
"""Rounds of a wide log."""


def widened(
    write: Callable[..., WildLog], columns: int, folder: Path, seed: int
) -> WildLog:
    """Write a log, and add columns of whole numbers to its file that nothing depends on."""
    log = write(folder, seed, rounds=WIDE_ROUNDS)
    rng = np.random.default_rng([seed, columns])
    numbers = (100.0 * rng.normal(size=(WIDE_ROUNDS, columns))).astype(np.int64)
    names = [f"metric_{number:03d}" for number in range(columns)]
    if log.path.suffix == ".parquet":
        table = pq.read_table(log.path)
        for name, values in zip(names, numbers.T, strict=True):
            table = table.append_column(name, pa.array(values))
        pq.write_table(table, log.path)
    else:
        _widen_text(log.path, names, numbers)
    return log


def _widen_text(path: Path, names: list[str], numbers: Any) -> None:
    """Append columns to a CSV; the bytes of its other columns stay as they are."""
    end = b"\r\n" if b"\r\n" in path.read_bytes() else b"\n"
    lines = path.read_bytes().rstrip(end).split(end)
    first = int(lines[0].startswith(b"sep="))
    sign = b";" if b";" in lines[first] else b","
    added = [[name.encode() for name in names]]
    added += [[b"%d" % number for number in row] for row in numbers.tolist()]
    for line, words in enumerate(added, first):
        lines[line] = sign.join([lines[line], *words])
    path.write_bytes(end.join(lines) + end)


ADDED = {email_campaign: 30, ride_pricing: 60, dosing: 90, call_centre: 120}
"""Columns that are added to a kind of log."""
WIDE_LOGS: dict[str, Callable[..., WildLog]] = {
    f"{maker.__name__}_with_{columns}_columns": partial(widened, maker, columns)
    for maker, columns in ADDED.items()
}


# -- labelled arms with many coefficients --

LOGGED, FRESH = 40_000, 1000
"""Rounds of a log with uniformly random arms, and contexts in which arms are chosen."""
RIDGES = np.geomspace(0.1, 1000.0, 13)
"""Ridges that are compared on held-out rounds."""
HELD_OUT = 5
"""One round in so many is held out to choose the ridge."""


@dataclass(frozen=True)
class WideWorld:
    """Arms whose rewards are linear in the context, with noise of variance 1.

    Parameters
    ----------
    arms, columns : int
        How many arms and columns of numbers. Slopes of an arm add up to a variance of 1.
    categories : int
        Levels of one column, in place of numbers; each adds N(0, 1) to the reward of an arm.
    """

    arms: int
    columns: int = 0
    categories: int = 0

    def contexts(self, rounds: int, rng: np.random.Generator) -> Any:
        """Numbers (rounds, columns), or levels (rounds,)."""
        if self.categories:
            return rng.integers(self.categories, size=rounds)
        return rng.normal(size=(rounds, self.columns))

    def raw(self, contexts: Any) -> dict[str, Any]:
        """Columns of a log with these contexts."""
        if self.categories:
            return {"country": [f"c{level:04d}" for level in contexts]}
        return {f"x{j:03d}": contexts[:, j] for j in range(self.columns)}


WIDE_WORLDS = {
    "8 × 18": WideWorld(8, 18),
    "10 × 40": WideWorld(10, 40),
    "10 × 64": WideWorld(10, 64),
    "50 × 20": WideWorld(50, 20),
    "4 × one category of 1,000": WideWorld(4, categories=1000),
}


@dataclass(frozen=True)
class WideResult:
    """What a model's choices are worth, as shares, and the processor time of a fit and of a round."""

    of_ridge: float
    of_best: float
    fit_seconds: float
    policy_milliseconds: float
    model_milliseconds: float


def wide_result(world: WideWorld, seed: int) -> WideResult:
    """Draw a log, fit a model and a ridge per arm, and compare their choices in fresh contexts."""
    rng = np.random.default_rng(seed)
    logged = world.contexts(LOGGED, rng)
    fresh = world.contexts(FRESH, rng)
    levels = 0.2 * rng.normal(size=world.arms)
    size = world.categories or world.columns
    slopes = rng.normal(size=(size, world.arms)) / np.sqrt(world.columns or 1)

    def worth(contexts: Any) -> Any:
        return levels + (slopes[contexts] if world.categories else contexts @ slopes)

    arms = rng.integers(world.arms, size=LOGGED)
    rewards = worth(logged)[np.arange(LOGGED), arms] + rng.normal(size=LOGGED)
    labels = np.array([f"arm{arm:02d}" for arm in range(world.arms)])
    roles = {"arm": labels[arms], "reward": rewards, "time": np.arange(LOGGED)}
    log = pa.table({**world.raw(logged), **roles})
    began = time.process_time()
    model = fit_logs(log, arm="arm", reward="reward", time="time")
    fit_seconds = time.process_time() - began

    raw = world.raw(fresh)
    contexts = [
        dict(zip(raw, row, strict=True)) for row in zip(*raw.values(), strict=True)
    ]
    rows = [model.features(context) for context in contexts]
    chosen = [int(model.policy.select(row)) for row in rows]
    values = worth(fresh)

    def value(actions: Any) -> float:
        return float(values[np.arange(FRESH), actions].mean())

    ridge = _ridge_choices(world, logged, arms, rewards, fresh)
    began = time.process_time()
    for row in rows[:200]:
        action = model.policy.select(row)
        model.policy.update(row[action], 0.0)
    of_policy = (time.process_time() - began) / 200
    began = time.process_time()
    for context in contexts[:200]:
        model.learn(model.decide(context), 0.0)
    of_model = (time.process_time() - began) / 200
    return WideResult(
        of_ridge=value(chosen) / value(ridge),
        of_best=value(chosen) / value(values.argmax(axis=1)),
        fit_seconds=fit_seconds,
        policy_milliseconds=1000.0 * of_policy,
        model_milliseconds=1000.0 * of_model,
    )


def _ridge_choices(
    world: WideWorld, logged: Any, arms: Any, rewards: Any, fresh: Any
) -> Any:
    """Choices in fresh contexts by a ridge per arm about the arm's mean, the best on held-out rounds."""
    learned = np.arange(LOGGED) % HELD_OUT > 0

    def predictions(ridge: float, known: Any, contexts: Any) -> Any:
        result = np.zeros((len(contexts), world.arms))
        for arm in range(world.arms):
            of_arm = known & (arms == arm)
            mean = rewards[of_arm].mean()
            apart = rewards[of_arm] - mean
            x = logged[of_arm]
            if world.categories:
                total = np.bincount(x, apart, world.categories)
                effect = total / (np.bincount(x, minlength=world.categories) + ridge)
                result[:, arm] = mean + effect[contexts]
            else:
                gram = x.T @ x + ridge * np.eye(world.columns)
                result[:, arm] = mean + contexts @ np.linalg.solve(gram, x.T @ apart)
        return result

    held_out = np.flatnonzero(~learned)
    errors = []
    for ridge in RIDGES:
        expected = predictions(ridge, learned, logged[held_out])
        error = rewards[held_out] - expected[np.arange(len(held_out)), arms[held_out]]
        errors.append(float((error**2).mean()))
    best = RIDGES[int(np.argmin(errors))]
    return predictions(best, np.ones(LOGGED, dtype=bool), fresh).argmax(axis=1)


def main(draws: int = 10, first_seed: int = 5200) -> None:
    """Print one line per world: means over the draws, and the worst share."""
    for name, world in WIDE_WORLDS.items():
        results = [wide_result(world, first_seed + draw) for draw in range(draws)]
        shares = [result.of_ridge for result in results]
        seconds = max(result.fit_seconds for result in results)
        print(
            f"{name}: {np.mean(shares):.3f} of the best ridge (worst {min(shares):.3f}),"
            f" {np.mean([result.of_best for result in results]):.3f} of the best linear policy;"
            f" fit at most {seconds:.1f} s,"
            f" a round {np.median([result.policy_milliseconds for result in results]):.2f} ms"
            f" ({np.median([result.model_milliseconds for result in results]):.2f} with raw columns)",
            flush=True,
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
