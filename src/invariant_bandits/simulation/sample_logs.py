"""Sample logs with known truth, so that everything can be tried at once: what `invariant-bandits sample`
writes.

`banners.csv` is the log that most people have: a context, the label of what was shown, whether it was
clicked. The others are rounds of the paper's simulation as features of actions, in each of the three forms
that such logs have.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError, whole_number
from invariant_bandits.optional import require
from invariant_bandits.simulation.paper import LoggedRounds, PaperWorld
from invariant_bandits.storage import atomic_write

BEGINNING, DAYS = np.datetime64("2024-01-01", "us"), 56
BANNERS = ("banner_A", "banner_B", "banner_C", "banner_D", "banner_E")
DEVICES = ("desktop", "phone", "tablet")
RETIRED_AFTER, LAUNCHED_IN = 0.75, 0.4
"""Shares of the log after which banner_A was shown no more, and in which banner_E was launched."""
LEAST_SHOWN = 0.5
"""Share of the rounds in which the banner was drawn uniformly among the active ones."""
MISSING_AGES = 0.04
ROWS_PER_GROUP = 1000
WORDS = {
    "banners.csv": "a row per decision: time, age, device, hour, banner, clicked, propensity",
    "rows.parquet": "a row per offered action, with round ids and propensities",
    "lists.parquet": "a row per round, all offered actions as lists",
    "chosen.parquet": "a row per round, features of the chosen action only",
}


@dataclass(frozen=True)
class BannerLog:
    """The labelled log and its truth.

    Attributes
    ----------
    columns : dict of str to array, shape (n,)
        As written; `age` is NaN where it is missing.
    coefficients : array, shape (n, 5, 4)
        Log-odds of a click in every round, per banner: intercept, age (per ten years from 40), phone,
        evening.
    """

    columns: dict[str, Any]
    coefficients: Array


def banner_log(rounds: int = 4000, seed: int = 0) -> BannerLog:
    """Clicks on five banners over eight weeks; two effects drift, all others stay.

    The effect of age on banner_B turns around in the course of the log, that of phones on banner_C comes and
    goes. banner_A is retired after three quarters of the time, banner_E launched after two fifths.
    """
    rng = np.random.default_rng(seed)
    share = np.arange(rounds) / rounds
    age, device, hour = (
        rng.normal(40.0, 12.0, rounds),
        rng.choice(3, rounds, p=(0.35, 0.5, 0.15)),
        _hours(rounds),
    )
    evening = (hour >= 18).astype(float)
    context = np.column_stack([np.ones(rounds), (age - 40.0) / 10.0, device == 1, evening])
    truth = np.array(
        [
            [-1.0, 0.1, 0.2, 0.0],
            [-1.1, 0.0, 0.0, 0.3],
            [-1.2, 0.2, 0.0, 0.0],
            [-0.9, -0.2, -0.3, 0.1],
            [-0.8, 0.0, 0.4, -0.2],
        ]
    )
    coefficients = np.repeat(truth[None], rounds, axis=0)
    coefficients[:, 1, 1] += 0.6 * np.cos(np.pi * share)
    coefficients[:, 2, 2] += 0.7 * np.sin(2.0 * np.pi * share)
    active = np.ones((rounds, 5), dtype=bool)
    active[share > RETIRED_AFTER, 0] = False
    active[share < LAUNCHED_IN, 4] = False
    preferred = np.where(active, np.array([1.0, 2.0, 1.0, 3.0, 2.0]), 0.0)
    chances = LEAST_SHOWN * active / active.sum(axis=1, keepdims=True)
    chances += (1.0 - LEAST_SHOWN) * preferred / preferred.sum(axis=1, keepdims=True)
    shown = (rng.random(rounds)[:, None] > np.cumsum(chances, axis=1)).sum(axis=1).clip(max=4)
    shown = np.where(active[np.arange(rounds), shown], shown, active.argmax(axis=1))
    odds = np.einsum("nd,nd->n", coefficients[np.arange(rounds), shown], context)
    clicked = rng.random(rounds) < 1.0 / (1.0 + np.exp(-odds))
    columns = {
        "time": _times(rounds),
        "age": np.where(rng.random(rounds) < MISSING_AGES, np.nan, age.round(1)),
        "device": np.array(DEVICES)[device],
        "hour": hour,
        "banner": np.array(BANNERS)[shown],
        "clicked": clicked.astype(np.int64),
        "propensity": chances[np.arange(rounds), shown].round(6),
    }
    return BannerLog(columns, coefficients)


def paper_logs(rounds: int = 4000, seed: int = 0) -> tuple[dict[str, Any], LoggedRounds]:
    """(Arrow tables by name: chosen, lists and rows, the same rounds over 56 days; the rounds with their
    truth).
    """
    pa = require("pyarrow", "paper_logs")
    logs = PaperWorld().log(rounds, np.random.default_rng(seed))
    n, K, p = logs.offered.shape
    names = [f"x{j}" for j in range(p)]
    common = {"time": _times(n), "reward": logs.rewards, "propensity": np.full(n, 1.0 / K)}
    chosen = common | {name: logs.features[:, j] for j, name in enumerate(names)}
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(logs.offered.reshape(-1)), p)
    lists = common | {"action": logs.actions, "offered": pa.FixedSizeListArray.from_arrays(vectors, K)}
    flags = np.arange(K) == logs.actions[:, None]
    rows = {
        "round_id": np.repeat(np.arange(n), K),
        "time": np.repeat(common["time"], K),
        "chosen": flags.reshape(-1),
        "reward": pa.array(np.where(flags, logs.rewards[:, None], np.nan).reshape(-1), from_pandas=True),
        "propensity": np.repeat(common["propensity"], K),
        **{name: logs.offered[:, :, j].reshape(-1) for j, name in enumerate(names)},
    }
    return {
        name: pa.table(columns) for name, columns in (("chosen", chosen), ("lists", lists), ("rows", rows))
    }, logs


def write_samples(
    folder: str | Path, rounds: int = 4000, seed: int = 0, *, replace: bool = False
) -> dict[Path, str]:
    """Write all sample logs; path -> what is in it.

    Parameters
    ----------
    folder : path
        Made if it is not there.
    rounds : int
        Rounds per log, at least 200.
    seed : int
        Seed of all randomness.
    replace : bool
        Whether files of the same names are replaced; InputError otherwise, and nothing is written.
    """
    csv, parquet = require("pyarrow.csv", "write_samples"), require("pyarrow.parquet", "write_samples")
    pa = require("pyarrow", "write_samples")
    folder, rounds = Path(folder), whole_number("rounds", rounds, 200)
    paths = {name: folder / name for name in WORDS}
    there = [str(path) for path in paths.values() if path.exists()]
    if there and not replace:
        raise InputError(f"{', '.join(there)} would be overwritten; choose another folder or --force")
    folder.mkdir(parents=True, exist_ok=True)
    banners = banner_log(rounds, seed).columns
    banners["age"] = pa.array(banners["age"], from_pandas=True)
    with atomic_write(paths["banners.csv"]) as scratch:
        csv.write_csv(pa.table(banners), scratch)
    for name, table in paper_logs(rounds, seed)[0].items():
        with atomic_write(paths[f"{name}.parquet"]) as scratch:
            parquet.write_table(table, scratch, row_group_size=ROWS_PER_GROUP)
    return {path: WORDS[name] for name, path in paths.items()}


def _times(rounds: int) -> Any:
    step = np.timedelta64(DAYS, "D").astype("timedelta64[us]") // rounds
    return BEGINNING + step * np.arange(rounds)


def _hours(rounds: int) -> Any:
    times = _times(rounds)
    return (times - times.astype("datetime64[D]")).astype("timedelta64[h]").astype(np.int64)
