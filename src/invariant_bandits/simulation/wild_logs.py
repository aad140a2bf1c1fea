"""Logs as they come from other people's systems, drawn with a planted truth.

Every generator writes one file and returns a `WildLog`: the file, the role of its columns, the effects that
drift and the columns that give the reward away.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from invariant_bandits.optional import LazyModule
from invariant_bandits.optional import pyarrow as pa

pq: Any = LazyModule("pyarrow.parquet")

START = np.datetime64("2024-01-01T00:00:00", "s")


@dataclass
class WildLog:
    """A written log and its truth.

    Attributes
    ----------
    path : Path
        The file.
    roles : dict of str to str
        Role → column: time, arm, reward and propensity, as far as the log has them.
    drifting : set of (arm, column)
        Effects that drift: "level", or the column of the context.
    leaking : set of str
        Columns that are known only after the reward.
    options : dict of str to str
        What a user must say because it cannot be found; empty if everything can.
    candidates : set of str
        Columns that `fit` must offer where the action cannot be found.
    catalogue : Path or None
        What is known about the arms, in a file of its own.
    arms : tuple of str
        Labels of all arms.
    means : array, shape (n, A)
        Expected reward of every arm in every row of the file.
    order : array, shape (n,)
        Rows in the order of time.
    """

    path: Path
    roles: dict[str, str]
    drifting: set[tuple[str, str]]
    leaking: set[str] = field(default_factory=set)
    options: dict[str, str] = field(default_factory=dict)
    candidates: set[str] = field(default_factory=set)
    catalogue: Path | None = None
    arms: tuple[str, ...] = ()
    means: Any = None
    order: Any = None

    def knowing(self, arms: Any, means: Any, share: Any) -> "WildLog":
        """The same log with what every arm earns in every row."""
        return replace(
            self,
            arms=tuple(map(str, arms)),
            means=means,
            order=np.argsort(share, kind="stable"),
        )


def email_campaign(folder: Path, seed: int, rounds: int = 24_000) -> WildLog:
    """Subject lines in a CSV with AM/PM times and yes/no answers; the effect of past orders on one turns."""
    rng, share = _sorted_times(seed, rounds)
    labels = np.array(["discount", "emoji", "plain", "question"])
    orders, age = rng.poisson(3.0, rounds), rng.integers(18, 80, rounds)
    mobile, loyal = rng.random(rounds) < 0.55, rng.random(rounds) < 0.4
    chosen, chances = _choose(
        rng, 0.6 * loyal[:, None] * np.array([1.0, 0.0, -0.5, 0.0])
    )
    context = np.column_stack(
        [np.ones(rounds), (orders - 3.0) / 1.7, (age - 48.5) / 18.0, mobile, loyal]
    )
    truth = np.array(
        [
            [-0.9, 0.2, 0.0, 0.3, 0.2],
            [-1.2, 0.0, -0.3, 0.4, 0.0],
            [-1.1, 0.1, 0.2, 0.0, 0.3],
            [-0.8, 0.0, 0.0, -0.2, 0.1],
        ]
    )
    drift = np.zeros((rounds, 4, 5))
    drift[:, 1, 1] = 0.5 * np.cos(np.pi * share)
    drift[:, 3, 0] = np.where(share > 0.55, -0.7, 0.0)
    means = _sigmoid(_linear(context, truth, drift))
    opened = rng.random(rounds) < _of(chosen, means)
    table = {
        "customer_id": rng.integers(10**6, 10**7, rounds),
        "sent_at": [_american(time) for time in _times(share, 90)],
        "subject_variant": labels[chosen],
        "past_orders": orders,
        "age": age,
        "mobile_app": _yes_no(mobile),
        "loyalty_member": _yes_no(loyal),
        "send_probability": chances.round(6),
        "opened": _yes_no(opened),
    }
    path = _write_csv(folder / "campaign.csv", table)
    roles = {
        "time": "sent_at",
        "arm": "subject_variant",
        "reward": "opened",
        "propensity": "send_probability",
    }
    log = WildLog(
        path=path,
        roles=roles,
        drifting={("emoji", "past_orders"), ("question", "level")},
    )
    return log.knowing(labels, means, share)


def ride_pricing(folder: Path, seed: int, rounds: int = 200_000) -> WildLog:
    """Prices of rides in a CSV with semicolons, decimal commas and missing values; rain's effect changes."""
    rng, share = _sorted_times(seed, rounds)
    distance, rain = rng.gamma(2.0, 3.0, rounds), rng.exponential(1.0, rounds)
    airport, rating = rng.random(rounds) < 0.2, rng.normal(4.6, 0.2, rounds)
    chosen, chances = _choose(rng, 0.3 * airport[:, None] * np.arange(4.0))
    context = np.column_stack(
        [
            np.ones(rounds),
            (distance - 6.0) / 4.2,
            rain - 1.0,
            airport,
            (rating - 4.6) / 0.2,
        ]
    )
    truth = np.array(
        [
            [1.8, 0.6, 0.0, 0.1, 0.0],
            [2.1, 0.8, 0.1, 0.2, 0.1],
            [2.2, 0.7, 0.2, 0.5, 0.0],
            [1.9, 0.5, 0.3, 0.8, 0.0],
        ]
    )
    drift = np.zeros((rounds, 4, 5))
    drift[:, 2, 2] = 0.35 * np.sin(2.0 * np.pi * share)
    drift[:, 3, 1] = -0.4 * share
    means = _linear(context, truth, drift)
    profit = _of(chosen, means) + rng.normal(0.0, 2.0, rounds)
    table = {
        "ride_id": np.arange(500_000, 500_000 + rounds),
        "requested": [str(time).replace("T", " ") for time in _times(share, 120)],
        "distance_km": _commas(distance.round(2)),
        "rain_mm": _without(_commas(rain.round(2)), rng, 0.03),
        "airport": airport.astype(int),
        "driver_rating": _without(_commas(rating.round(2)), rng, 0.015),
        "price_level": chosen + 1,
        "shown_prob": _commas(chances.round(5)),
        "profit_eur": _commas(profit.round(2)),
    }
    path = _write_csv(folder / "rides.csv", table, ";")
    roles = {
        "time": "requested",
        "arm": "price_level",
        "reward": "profit_eur",
        "propensity": "shown_prob",
    }
    log = WildLog(
        path=path, roles=roles, drifting={("3", "rain_mm"), ("4", "distance_km")}
    )
    return log.knowing(range(1, 5), means, share)


TOPICS = np.array(["culture", "politics", "science", "sport"])


def news_articles(
    folder: Path, seed: int, rounds: int = 60_000, articles: int = 40
) -> WildLog:
    """Articles that come and go in nested JSON lines, with what happened after the click, and a catalogue.

    Two levels break, and sport loses the readers who visit often.
    """
    rng, share = _sorted_times(seed, rounds)
    names = np.array([f"article-{number:02d}" for number in range(articles)])
    topic = np.arange(articles) % len(TOPICS)
    first, last = rng.uniform(-0.6, 0.8, articles), np.full(articles, np.inf)
    last[10:] = (first + rng.uniform(0.3, 0.6, articles))[10:]
    first[:10] = -1.0
    active = (share[:, None] >= first) & (share[:, None] <= last)
    chosen, chances = _choose(rng, np.zeros((rounds, articles)), active)
    age = rng.integers(16, 75, rounds)
    visits = rng.poisson(5.0, rounds)
    phone = rng.random(rounds) < 0.6
    context = np.column_stack(
        [np.ones(rounds), (age - 45.0) / 17.0, (visits - 5.0) / 2.2, phone]
    )
    truth = np.tile(np.array([-1.3, 0.2, 0.3, -0.2]), (articles, 1))
    truth[:, 0] += rng.normal(0.0, 0.4, articles)
    drift = np.zeros((rounds, articles, 4))
    drift[:, 2, 0] = np.where(share > 0.5, 1.3, 0.0)
    drift[:, 7, 0] = np.where(share > 0.4, -1.4, 0.0)
    drift[:, topic == 3, 2] = np.where(share > 0.6, -0.8, 0.0)[:, None]
    means = _sigmoid(_linear(context, truth, drift))
    click = rng.random(rounds) < _of(chosen, means)
    dwell = np.where(click, rng.gamma(2.0, 20.0, rounds), 0.0).round(1)
    stamps = _times(share, 60).astype("datetime64[ms]").astype(np.int64) + rng.integers(
        0, 1000, rounds
    )
    path, catalogue = folder / "news.jsonl", folder / "articles.csv"
    _write_csv(catalogue, {"article": names, "topic": TOPICS[topic]})
    with path.open("w") as file:
        for row in range(rounds):
            event = {
                "event": {
                    "id": f"e{row:07d}",
                    "ts": int(stamps[row]),
                    "received": int(stamps[row]) + 40,
                },
                "user": {
                    "age": int(age[row]),
                    "visits": int(visits[row]),
                    "phone": bool(phone[row]),
                },
                "shown": {
                    "article": str(names[chosen[row]]),
                    "prob": round(float(chances[row]), 6),
                },
                "feedback": {
                    "click": int(click[row]),
                    "dwell_seconds": float(dwell[row]),
                },
            }
            file.write(json.dumps(event) + "\n")
    roles = {
        "time": "event.ts",
        "arm": "shown.article",
        "reward": "feedback.click",
        "propensity": "shown.prob",
        "round": "event.id",
    }
    drifting = {
        (str(names[2]), "level"),
        (str(names[7]), "level"),
        ("topic=sport", "user.visits"),
    }
    log = WildLog(
        path=path,
        roles=roles,
        drifting=drifting,
        leaking={"feedback.dwell_seconds"},
        catalogue=catalogue,
    )
    return log.knowing(names, means, stamps)


def dosing(folder: Path, seed: int, rounds: int = 30_000) -> WildLog:
    """Doses in Parquet, not in the order of time; a laboratory value was taken after the response."""
    rng = np.random.default_rng(seed)
    share = rng.random(rounds)
    weight, age = rng.normal(75.0, 14.0, rounds), rng.normal(58.0, 15.0, rounds)
    creatinine, carrier = rng.gamma(9.0, 0.11, rounds), rng.random(rounds) < 0.3
    standard = (weight - 75.0) / 14.0
    chosen, chances = _choose(rng, 0.5 * standard[:, None] * np.array([-1.0, 0.0, 1.0]))
    context = np.column_stack(
        [
            np.ones(rounds),
            standard,
            (age - 58.0) / 15.0,
            creatinine - 1.0,
            carrier - 0.3,
        ]
    )
    truth = np.array(
        [
            [0.3, -0.5, 0.1, 0.0, 0.0],
            [0.5, 0.0, -0.1, 0.3, -0.2],
            [0.4, 0.5, -0.2, 0.0, -0.6],
        ]
    )
    drift = np.zeros((rounds, 3, 5))
    drift[:, 2, 4] = np.where(share > 0.6, 0.9, 0.0)
    means = _linear(context, truth, drift)
    response = _of(chosen, means) + rng.normal(0.0, 1.0, rounds)
    table = {
        "patient_id": rng.integers(0, 4000, rounds),
        "visit_time": _times(share, 300).astype("datetime64[us]"),
        "weight_kg": weight.round(1),
        "age_years": age.round(0),
        "creatinine": creatinine.round(3),
        "genotype": np.where(carrier, "variant carrier", "wild type"),
        "dose_mg": np.array([20, 40, 60])[chosen],
        "assigned_with": chances,
        "followup_score": (response + rng.normal(0.0, 0.05, rounds)).round(3),
        "response": response.round(3),
    }
    path = folder / "dosing.parquet"
    pq.write_table(pa.table(table), path, row_group_size=10_000)
    roles = {
        "time": "visit_time",
        "arm": "dose_mg",
        "reward": "response",
        "propensity": "assigned_with",
    }
    log = WildLog(
        path=path,
        roles=roles,
        drifting={("60", "genotype")},
        leaking={"followup_score"},
    )
    return log.knowing((20, 40, 60), means, _times(share, 300))


def call_centre(
    folder: Path, seed: int, rounds: int = 20_000, drifts: float = 1.0
) -> WildLog:
    """Scripts of a call centre as a spreadsheet exports them; two columns may be the action.

    Nothing says which of them it is. `drifts` scales how far the two effects move.
    """
    rng, share = _sorted_times(seed, rounds)
    guides = np.array(["Kurz", "Länger", "Persönlich"])
    regions = np.array(["Nord", "Ost", "Süd", "West"])
    tenure, calls = rng.gamma(2.0, 18.0, rounds), rng.poisson(1.2, rounds)
    region = rng.integers(0, 4, rounds)
    chosen, _ = _choose(rng, np.zeros((rounds, 3)))
    context = np.column_stack(
        [np.ones(rounds), (tenure - 36.0) / 25.0, (calls - 1.2) / 1.1]
    )
    truth = np.array([[-1.4, 0.2, -0.2], [-1.2, 0.0, 0.0], [-1.0, 0.3, -0.1]])
    drift = np.zeros((rounds, 3, 3))
    drift[:, 2, 0] = np.where(share > 0.5, -0.9 * drifts, 0.0)
    drift[:, 0, 1] = 0.55 * drifts * np.cos(np.pi * share)
    means = _sigmoid(_linear(context, truth, drift))
    sale = rng.random(rounds) < _of(chosen, means)
    minutes = np.where(sale, rng.gamma(6.0, 2.0, rounds), 0.0)
    table = {
        "Call ID": np.arange(1, rounds + 1) + 70_000,
        "Call date": [_german(time) for time in _times(share, 180)],
        "Guide": guides[chosen],
        "Region": regions[region],
        "Tenure (months)": _commas(tenure.round(1)),
        "Earlier calls": calls,
        "Contract minutes": _commas(minutes.round(1)),
        "Sale": _yes_no(sale),
    }
    path = _write_csv(folder / "calls.csv", table, ";", "cp1252", "sep=;\r\n", "\r\n")
    roles = {"time": "Call date", "arm": "Guide", "reward": "Sale", "round": "Call ID"}
    drifting = {("Persönlich", "level"), ("Kurz", "Tenure (months)")}
    options = {"arm": "Guide"}
    log = WildLog(
        path=path,
        roles=roles,
        drifting=drifting,
        leaking={"Contract minutes"},
        options=options,
        candidates={"Guide", "Region"},
    )
    return log.knowing(guides, means, share)


def weak_call_centre(folder: Path, seed: int, rounds: int = 20_000) -> WildLog:
    """The call centre with drift of two thirds the size."""
    return call_centre(folder, seed, rounds, drifts=2.0 / 3.0)


def weaker_call_centre(folder: Path, seed: int, rounds: int = 20_000) -> WildLog:
    """The call centre with drift of two fifths the size."""
    return call_centre(folder, seed, rounds, drifts=0.4)


def loyalty_coupons(folder: Path, seed: int, rounds: int = 40_000) -> WildLog:
    """Coupons that a till prints, with what they were worth when they came back; families tire of points."""
    rng, share = _sorted_times(seed, rounds)
    coupons = np.array(["10 % off", "2 for 1", "double points"])
    formats = np.array(["city", "express", "hypermarket"])
    basket, weeks = rng.gamma(3.0, 14.0, rounds), rng.geometric(0.35, rounds)
    household, store = rng.integers(1, 6, rounds), rng.integers(0, 3, rounds)
    chosen, chances = _choose(
        rng, 0.4 * (household >= 3)[:, None] * np.array([0.0, 1.0, 0.5])
    )
    context = np.column_stack(
        [
            np.ones(rounds),
            (basket - 42.0) / 24.0,
            (weeks - 2.9) / 2.3,
            (household - 3.0) / 1.4,
            store == 2,
        ]
    )
    truth = np.array(
        [
            [-1.2, 0.3, -0.1, 0.0, 0.2],
            [-1.0, 0.1, 0.0, 0.4, 0.0],
            [-1.1, 0.2, 0.1, 0.3, 0.1],
        ]
    )
    drift = np.zeros((rounds, 3, 5))
    drift[:, 2, 3] = np.where(share > 0.45, -0.6, 0.0)
    drift[:, 0, 0] = -0.8 * share
    means = _sigmoid(_linear(context, truth, drift))
    redeemed = rng.random(rounds) < _of(chosen, means)
    worth = np.where(redeemed, rng.gamma(4.0, 1.2, rounds).round(2).astype(str), "")
    table = {
        "card_number": rng.integers(10**9, 10**10, rounds),
        "printed_at": [str(time).replace("T", " ")[:16] for time in _times(share, 200)],
        "store_format": formats[store],
        "basket_eur": basket.round(2),
        "weeks_since_visit": weeks,
        "household_size": household,
        "coupon": coupons[chosen],
        "coupon_chance": chances.round(5),
        "redeemed": redeemed.astype(int),
        "redeemed_value": worth,
    }
    path = _write_csv(folder / "coupons.csv", table)
    roles = {
        "time": "printed_at",
        "arm": "coupon",
        "reward": "redeemed",
        "propensity": "coupon_chance",
    }
    drifting = {("double points", "household_size"), ("10 % off", "level")}
    return WildLog(
        path=path, roles=roles, drifting=drifting, leaking={"redeemed_value"}
    ).knowing(coupons, means, share)


def ad_bidding(folder: Path, seed: int, rounds: int = 80_000) -> WildLog:
    """Factors on bids for advertisements in Parquet; a lost auction has no price and no margin."""
    rng, share = _sorted_times(seed, rounds)
    factors = np.array([0.8, 1.0, 1.25])
    sites = np.array(["forum", "games", "news", "weather"])
    floor = rng.gamma(4.0, 0.3, rounds)
    seen = rng.poisson(2.0, rounds)
    site = rng.integers(0, 4, rounds)
    phone = rng.random(rounds) < 0.65
    chosen, chances = _choose(rng, 0.4 * phone[:, None] * np.array([0.5, 0.0, -0.5]))
    context = np.column_stack(
        [np.ones(rounds), floor - 1.2, (seen - 2.0) / 1.4, phone - 0.65, site == 1]
    )
    truth = np.array(
        [
            [0.5, 0.1, 0.0, 0.1, 0.0],
            [0.6, -0.2, -0.1, 0.0, 0.2],
            [0.5, -0.4, -0.2, 0.2, 0.4],
        ]
    )
    drift = np.zeros((rounds, 3, 5))
    drift[:, 1, 1] = np.where(share > 0.5, -0.6, 0.0)
    drift[:, 2, 3] = 0.4 * np.sin(2.0 * np.pi * share)
    means, wins = _linear(context, truth, drift), rng.random(rounds) < 0.5
    margin = np.where(
        wins, 2.0 * _of(chosen, means) + rng.normal(0.0, 0.6, rounds), 0.0
    )
    price = (floor + rng.gamma(2.0, 0.4, rounds)).round(3)
    table = {
        "auction_id": [f"{value:016x}" for value in rng.integers(0, 2**62, rounds)],
        "bid_ts": _times(share, 45).astype("datetime64[us]"),
        "site_category": sites[site],
        "floor_cpm": floor.round(3),
        "seen_today": seen,
        "device": np.where(phone, "phone", "desktop"),
        "bid_factor": factors[chosen],
        "exploration_prob": chances,
        "clearing_cpm": pa.array(price, mask=~wins),
        "margin": margin.round(4),
    }
    path = folder / "bids.parquet"
    pq.write_table(pa.table(table), path)
    roles = {
        "time": "bid_ts",
        "arm": "bid_factor",
        "reward": "margin",
        "propensity": "exploration_prob",
    }
    drifting = {("1", "floor_cpm"), ("1.25", "device")}
    return WildLog(
        path=path, roles=roles, drifting=drifting, leaking={"clearing_cpm"}
    ).knowing(("0.8", "1", "1.25"), means, share)


WILD_LOGS: dict[str, Callable[..., WildLog]] = {
    maker.__name__: maker
    for maker in (email_campaign, ride_pricing, news_articles, dosing, call_centre)
}
OTHER_LOGS: dict[str, Callable[..., WildLog]] = {
    maker.__name__: maker
    for maker in (weak_call_centre, weaker_call_centre, loyalty_coupons, ad_bidding)
}
"""Weaker drift, and two kinds whose column names were chosen without regard to the usual names of roles."""


def _sorted_times(seed: int, rounds: int) -> tuple[Any, Any]:
    """Return a generator and the times (n,) of the rounds, as shares of the log's length."""
    rng = np.random.default_rng(seed)
    return rng, np.sort(rng.random(rounds))


def _choose(rng: Any, utilities: Any, active: Any = None) -> tuple[Any, Any]:
    """Draw an arm per row from a softmax with a floor; (its place, its probability)."""
    weights = np.exp(utilities) * (1.0 if active is None else active)
    allowed = np.ones_like(weights) if active is None else active.astype(float)
    chances = 0.7 * weights / weights.sum(
        axis=1, keepdims=True
    ) + 0.3 * allowed / allowed.sum(axis=1, keepdims=True)
    chosen = (
        rng.random(len(chances))[:, None] > np.cumsum(chances, axis=1)[:, :-1]
    ).sum(axis=1)
    return chosen, chances[np.arange(len(chances)), chosen]


def _linear(context: Any, truth: Any, drift: Any) -> Any:
    return context @ truth.T + np.einsum("nd,nad->na", context, drift)


def _of(chosen: Any, means: Any) -> Any:
    return means[np.arange(len(chosen)), chosen]


def _sigmoid(values: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-values))


def _times(share: Any, days: int) -> Any:
    return START + (share * days * 86_400).astype("timedelta64[s]")


def _american(time: Any) -> str:
    return str(time.item().strftime("%m/%d/%Y %I:%M %p"))


def _german(time: Any) -> str:
    return str(time.item().strftime("%d.%m.%Y %H:%M"))


def _yes_no(flags: Any) -> Any:
    return np.where(flags, "yes", "no")


def _commas(values: Any) -> list[str]:
    return [str(value).replace(".", ",") for value in values.tolist()]


def _without(words: list[str], rng: Any, rate: float) -> list[str]:
    missing = rng.random(len(words)) < rate
    return ["" if gone else word for word, gone in zip(words, missing, strict=True)]


def _write_csv(
    path: Path,
    table: dict[str, Any],
    sign: str = ",",
    encoding: str = "utf-8",
    head: str = "",
    end: str = "\n",
) -> Path:
    columns = [list(map(str, values)) for values in table.values()]
    lines = [sign.join(table), *map(sign.join, zip(*columns, strict=True))]
    path.write_bytes((head + end.join(lines) + end).encode(encoding))
    return path
