"""Sample logs with known truth, which `invariant-bandits sample` writes.

`banners.csv` is the log that most people have: a context, the label of what was shown, whether it was
clicked. The others are rounds of the paper's simulation as features of actions, in each of the three forms
that such logs have. `Shop` is the world of `invariant-bandits demo`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError, whole_number, whole_seed
from invariant_bandits.optional import require
from invariant_bandits.simulation.paper import LoggedRounds, PaperWorld
from invariant_bandits.storage import atomic_write

BEGINNING, DAYS = np.datetime64("2024-01-01", "us"), 56
BANNER_ROUNDS, ROUNDS = 20_000, 4000
"""Of the labelled log, whose clicks say little each: a fifth of them would leave the order of policies to
chance. And of the others.
"""
BANNERS = ("banner_A", "banner_B", "banner_C", "banner_D", "banner_E")
DEVICES = ("desktop", "phone", "tablet")
RETIRED_AFTER, LAUNCHED_IN = 0.75, 0.4
"""Shares of the log after which banner_A was shown no more, and in which banner_E was launched."""
LEAST_SHOWN = 0.5
"""Share of the rounds in which the banner was drawn uniformly among the active ones."""
MISSING_AGES = 0.04
ROWS_PER_GROUP = 1000
WORDS = {
    "banners.csv": "a row per decision, eight weeks: time, age, device, hour, banner, clicked, propensity",
    "next-week.csv": "the week after, for update",
    "rows.parquet": "a row per offered action, with round ids and propensities",
    "lists.parquet": "a row per round, all offered actions as lists",
    "chosen.parquet": "a row per round, features of the chosen action only",
}
TRUTH = (
    "banners: the effect of age on banner_B turns from +0.6 to -0.6 per ten years in the log-odds of a click,"
    " that of phones on banner_C swings by 0.7; all others last. banner_A is retired after week 6, banner_E"
    " launched in week 4.",
    "rows, lists, chosen: ten features, five actions; effects last in seven directions and drift in the other"
    " three (truth: invariant_bandits.simulation.sample_logs.paper_logs()[1].split).",
)
"""What is planted in the sample logs."""


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


def banner_log(
    rounds: int = BANNER_ROUNDS, seed: int = 0, *, next_week: bool = False
) -> BannerLog:
    """Clicks on five banners over eight weeks, or in the week after; two effects drift, all others stay.

    The effect of age on banner_B turns around in the course of the log, that of phones on banner_C comes and
    goes. banner_A is retired after three quarters of the time, banner_E launched after two fifths.
    """
    rng = np.random.default_rng((seed, 1) if next_week else seed)
    before, rows = (rounds, rounds // 8) if next_week else (0, rounds)
    share = (before + np.arange(rows)) / rounds
    times = _times(rounds, before, rows)
    rounds = rows
    age = rng.normal(40.0, 12.0, rounds)
    device = rng.choice(3, rounds, p=(0.35, 0.5, 0.15))
    hour = (
        (times - times.astype("datetime64[D]"))
        .astype("timedelta64[h]")
        .astype(np.int64)
    )
    evening = (hour >= 18).astype(float)
    context = np.column_stack(
        [np.ones(rounds), (age - 40.0) / 10.0, device == 1, evening]
    )
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
    shown = (
        (rng.random(rounds)[:, None] > np.cumsum(chances, axis=1))
        .sum(axis=1)
        .clip(max=4)
    )
    shown = np.where(active[np.arange(rounds), shown], shown, active.argmax(axis=1))
    odds = np.einsum("nd,nd->n", coefficients[np.arange(rounds), shown], context)
    clicked = rng.random(rounds) < 1.0 / (1.0 + np.exp(-odds))
    columns = {
        "time": times,
        "age": np.where(rng.random(rounds) < MISSING_AGES, np.nan, age.round(1)),
        "device": np.array(DEVICES)[device],
        "hour": hour,
        "banner": np.array(BANNERS)[shown],
        "clicked": clicked.astype(np.int64),
        "propensity": chances[np.arange(rounds), shown].round(6),
    }
    return BannerLog(columns, coefficients)


def paper_logs(
    rounds: int = 4000, seed: int = 0
) -> tuple[dict[str, Any], LoggedRounds]:
    """Return Arrow tables (chosen, lists and rows) of the same rounds over 56 days, and their truth."""
    pa = require("pyarrow", "paper_logs")
    logs = PaperWorld().log(rounds, np.random.default_rng(seed))
    n, K, p = logs.offered.shape
    names = [f"x{j}" for j in range(p)]
    common = {
        "time": _times(n),
        "reward": logs.rewards,
        "propensity": np.full(n, 1.0 / K),
    }
    chosen = common | {name: logs.features[:, j] for j, name in enumerate(names)}
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(logs.offered.reshape(-1)), p)
    lists = common | {
        "action": logs.actions,
        "offered": pa.FixedSizeListArray.from_arrays(vectors, K),
    }
    tables = {"chosen": pa.table(chosen), "lists": pa.table(lists)}
    rows = _row_per_action(
        logs.offered, logs.actions, logs.rewards, common["time"], names
    )
    return tables | {"rows": rows}, logs


def write_samples(
    folder: str | Path,
    rounds: int | None = None,
    seed: int = 0,
    *,
    replace: bool = False,
) -> dict[Path, str]:
    """Write all sample logs; path -> what is in it.

    Parameters
    ----------
    folder : path
        Made if it is not there.
    rounds : int, optional
        Rounds per log, at least 200. If not given 20,000 of the labelled one and 4,000 of the others.
    seed : int
        Seed of all randomness.
    replace : bool
        Whether files of the same names are replaced; InputError otherwise, and nothing is written.
    """
    csv = require("pyarrow.csv", "write_samples")
    parquet = require("pyarrow.parquet", "write_samples")
    pa = require("pyarrow", "write_samples")
    folder = Path(folder)
    rounds = None if rounds is None else whole_number("rounds", rounds, 200)
    paths = {name: folder / name for name in WORDS}
    existing = [str(path) for path in paths.values() if path.exists()]
    if existing and not replace:
        raise InputError(
            f"{', '.join(existing)} would be overwritten; choose another folder or --force"
        )
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("banners.csv", "next-week.csv"):
        banners = banner_log(
            rounds or BANNER_ROUNDS, seed, next_week=name == "next-week.csv"
        ).columns
        banners["age"] = pa.array(banners["age"], from_pandas=True)
        with atomic_write(paths[name]) as scratch:
            csv.write_csv(pa.table(banners), scratch)
    for name, table in paper_logs(rounds or ROUNDS, seed)[0].items():
        with atomic_write(paths[f"{name}.parquet"]) as scratch:
            parquet.write_table(table, scratch, row_group_size=ROWS_PER_GROUP)
    return {path: WORDS[name] for name, path in paths.items()}


def _times(rounds: int, before: int = 0, rows: int | None = None) -> Any:
    """Times of rounds that fill eight weeks, or of so many `rows` after those `before`."""
    step = np.timedelta64(DAYS, "D").astype("timedelta64[us]") // rounds
    return BEGINNING + step * (before + np.arange(rounds if rows is None else rows))


def _row_per_action(
    offered: Array, actions: Any, rewards: Array, times: Any, names: Any
) -> Any:
    """An Arrow table with a row per offered action (n, K, p); the chosen one was drawn uniformly."""
    pa = require("pyarrow", "sample logs")
    n, K, p = offered.shape
    chosen = np.arange(K) == np.asarray(actions)[:, None]
    columns = {
        "round_id": np.repeat(np.arange(n), K),
        "time": np.repeat(times, K),
        "chosen": chosen.reshape(-1),
        "reward": pa.array(
            np.where(chosen, rewards[:, None], np.nan).reshape(-1), from_pandas=True
        ),
        "propensity": np.full(n * K, 1.0 / K),
    }
    return pa.table(columns | dict(zip(names, offered.reshape(-1, p).T, strict=True)))


FEATURES = (
    "price",
    "rating",
    "delivery_days",
    "discount",
    "novelty",
    "season",
    "colour",
)
LASTING = np.array([-0.5, 0.6, -0.4, 0.3, 0.1, 0.0, 0.0])
"""Euros per standard unit of each feature, as long as invariance holds."""
AFTER_BREAK = np.array([0.5, -0.2, 0.4, -0.3, 0.1, 0.0, 0.0])
"""The same afterwards: people suddenly buy what is dear and slow to arrive."""
FASHION = (5, 6)
FASHION_SCALE = 0.5
NOISE = 0.7
BASELINE = 2.0
OPENING = datetime(2026, 1, 5)
WEEKS = 10
PRODUCTS = 6
LEAST_SPREAD, MOST_SPREAD = 0.5, 1.6
SHOP_BANNERS = ("spring sale", "new arrivals", "gift cards", "outlet")
SHOP_DEVICES = ("phone", "desktop", "tablet")
CLICKS = {
    "phone": (0.12, 0.30, 0.08, 0.10),
    "desktop": (0.28, 0.10, 0.08, 0.14),
    "tablet": (0.10, 0.12, 0.26, 0.08),
}
"""Probability of a click on each banner, by device."""


class Shop:
    """A shop that sells what it shows: tastes drift from week to week, some wishes last, until they do not.

    Every visit offers some products, rows of features in standard units. What a visit brings, in euros, is
    linear in them. Season and colour are fashion: their worth is drawn anew every week. Price, rating,
    delivery and the others last, until `break_invariance` is called.

    Parameters
    ----------
    seed : int
        Of everything that chance does.

    Attributes
    ----------
    worth : array, shape (7,)
        What each feature is worth now, in euros per standard unit.

    >>> shop = Shop(seed=0)
    >>> products = shop.visit()
    >>> len(products), sorted(products[0]) == sorted(FEATURES)
    (6, True)
    >>> before = shop.worth
    >>> shop.break_invariance()
    >>> (before != shop.worth).nonzero()[0].tolist()
    [0, 1, 2, 3]
    """

    def __init__(self, seed: int = 0) -> None:
        self._rng = np.random.default_rng(whole_seed(seed))
        self.worth, self.spread = self._new_week()

    def _new_week(self) -> tuple[Array, Array]:
        """What features are worth in a week, and how much products differ in each."""
        worth = LASTING.copy()
        worth[list(FASHION)] = self._rng.normal(scale=FASHION_SCALE, size=len(FASHION))
        return worth, self._rng.uniform(LEAST_SPREAD, MOST_SPREAD, len(FEATURES))

    def log(self, rounds: int = 6000) -> Any:
        """The past: an Arrow table with a row per offered product, shown at random, over ten weeks."""
        offered = []
        shown = []
        rewards = []
        for visit in range(rounds):
            if visit * WEEKS // rounds > (visit - 1) * WEEKS // rounds:
                self.worth, self.spread = self._new_week()
            offered.append(self._offered())
            shown.append(int(self._rng.integers(PRODUCTS)))
            rewards.append(self._brings(offered[-1][shown[-1]]))
        times = [
            OPENING + timedelta(weeks=WEEKS * visit / rounds) for visit in range(rounds)
        ]
        times_of = np.array(times, dtype="datetime64[us]")
        return _row_per_action(
            np.stack(offered), shown, np.array(rewards), times_of, FEATURES
        )

    def visit(self) -> list[dict[str, float]]:
        """Products that are offered to the next visitor, one mapping of features each."""
        return [
            dict(zip(FEATURES, row, strict=True))
            for row in self._offered().round(3).tolist()
        ]

    def brings(self, product: dict[str, float]) -> float:
        """What showing this product brings, in euros, with the luck of the day."""
        return round(self._brings(np.array([product[name] for name in FEATURES])), 2)

    def person(self) -> dict[str, str]:
        """The next visitor, for the choice of a banner."""
        return {"device": str(self._rng.choice(SHOP_DEVICES, p=(0.55, 0.35, 0.10)))}

    def clicks(self, person: dict[str, str], banner: str) -> float:
        """1 if this visitor clicks on that banner, else 0."""
        return float(
            self._rng.random() < CLICKS[person["device"]][SHOP_BANNERS.index(banner)]
        )

    def break_invariance(self) -> None:
        """From now on other things are wanted than ever before."""
        self.worth = np.where(LASTING != 0.0, AFTER_BREAK, self.worth)

    def _offered(self) -> Array:
        return self._rng.standard_normal((PRODUCTS, len(FEATURES))) * self.spread

    def _brings(self, product: Array) -> float:
        return (
            BASELINE
            + float(product @ self.worth)
            + NOISE * float(self._rng.standard_normal())
        )
