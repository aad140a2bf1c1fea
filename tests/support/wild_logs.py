"""Logs as they come from other people's systems, drawn with a planted truth.

Every generator writes one file and returns a `WildLog`: the file, the role of its columns, the effects that drift
and the columns that give the reward away.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

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
    """

    path: Path
    roles: dict[str, str]
    drifting: set[tuple[str, str]]
    leaking: set[str] = field(default_factory=set)
    options: dict[str, str] = field(default_factory=dict)
    candidates: set[str] = field(default_factory=set)


def email_campaign(folder: Path, seed: int, rounds: int = 24_000) -> WildLog:
    """Subject lines in a CSV with AM/PM times and yes/no answers; the effect of past orders on one line turns."""
    rng = np.random.default_rng(seed)
    share = np.sort(rng.random(rounds))
    labels = np.array(["discount", "emoji", "plain", "question"])
    orders, age = rng.poisson(3.0, rounds), rng.integers(18, 80, rounds)
    mobile, loyal = rng.random(rounds) < 0.55, rng.random(rounds) < 0.4
    chosen, chances = _choose(rng, 0.6 * loyal[:, None] * np.array([1.0, 0.0, -0.5, 0.0]))
    context = np.column_stack([np.ones(rounds), (orders - 3.0) / 1.7, (age - 48.5) / 18.0, mobile, loyal])
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
    opened = rng.random(rounds) < _sigmoid(_linear(context, truth, drift, chosen))
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
    path = _write_csv(Path(folder) / "campaign.csv", table)
    roles = {
        "time": "sent_at",
        "arm": "subject_variant",
        "reward": "opened",
        "propensity": "send_probability",
    }
    return WildLog(path, roles, {("emoji", "past_orders"), ("question", "level")})


def ride_pricing(folder: Path, seed: int, rounds: int = 200_000) -> WildLog:
    """Prices of rides in a CSV with semicolons, decimal commas and missing values; rain changes its effect."""
    rng = np.random.default_rng(seed)
    share = np.sort(rng.random(rounds))
    distance, rain = rng.gamma(2.0, 3.0, rounds), rng.exponential(1.0, rounds)
    airport, rating = rng.random(rounds) < 0.2, rng.normal(4.6, 0.2, rounds)
    chosen, chances = _choose(rng, 0.3 * airport[:, None] * np.arange(4.0))
    context = np.column_stack(
        [np.ones(rounds), (distance - 6.0) / 4.2, rain - 1.0, airport, (rating - 4.6) / 0.2]
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
    profit = _linear(context, truth, drift, chosen) + rng.normal(0.0, 2.0, rounds)
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
    path = _write_csv(Path(folder) / "rides.csv", table, ";")
    roles = {"time": "requested", "arm": "price_level", "reward": "profit_eur", "propensity": "shown_prob"}
    return WildLog(path, roles, {("3", "rain_mm"), ("4", "distance_km")})


def news_articles(folder: Path, seed: int, rounds: int = 60_000, articles: int = 40) -> WildLog:
    """Articles that come and go in nested JSON lines, with what happened after the click; two levels break."""
    rng = np.random.default_rng(seed)
    share = np.sort(rng.random(rounds))
    names = np.array([f"article-{number:02d}" for number in range(articles)])
    first, last = rng.uniform(-0.6, 0.8, articles), np.full(articles, np.inf)
    last[10:] = (first + rng.uniform(0.3, 0.6, articles))[10:]
    first[:10] = -1.0
    active = (share[:, None] >= first) & (share[:, None] <= last)
    chosen, chances = _choose(rng, np.zeros((rounds, articles)), active)
    age, visits, phone = rng.integers(16, 75, rounds), rng.poisson(5.0, rounds), rng.random(rounds) < 0.6
    context = np.column_stack([np.ones(rounds), (age - 45.0) / 17.0, (visits - 5.0) / 2.2, phone])
    truth = np.tile(np.array([-1.3, 0.2, 0.3, -0.2]), (articles, 1))
    truth[:, 0] += rng.normal(0.0, 0.4, articles)
    drift = np.zeros((rounds, articles, 4))
    drift[:, 2, 0] = np.where(share > 0.5, 1.3, 0.0)
    drift[:, 7, 0] = np.where(share > 0.4, -1.4, 0.0)
    click = rng.random(rounds) < _sigmoid(_linear(context, truth, drift, chosen))
    dwell = np.where(click, rng.gamma(2.0, 20.0, rounds), 0.0).round(1)
    stamps = _times(share, 60).astype("datetime64[ms]").astype(np.int64) + rng.integers(0, 1000, rounds)
    path = Path(folder) / "news.jsonl"
    with path.open("w") as file:
        for row in range(rounds):
            event = {
                "event": {"id": f"e{row:07d}", "ts": int(stamps[row]), "received": int(stamps[row]) + 40},
                "user": {"age": int(age[row]), "visits": int(visits[row]), "phone": bool(phone[row])},
                "shown": {"article": str(names[chosen[row]]), "prob": round(float(chances[row]), 6)},
                "feedback": {"click": int(click[row]), "dwell_seconds": float(dwell[row])},
            }
            file.write(json.dumps(event) + "\n")
    roles = {
        "time": "event.ts",
        "arm": "shown.article",
        "reward": "feedback.click",
        "propensity": "shown.prob",
    }
    drifting = {(str(names[2]), "level"), (str(names[7]), "level")}
    return WildLog(path, roles, drifting, {"feedback.dwell_seconds"})


def dosing(folder: Path, seed: int, rounds: int = 30_000) -> WildLog:
    """Doses in Parquet, not in the order of time; a laboratory value was taken after the response."""
    rng = np.random.default_rng(seed)
    share = rng.random(rounds)
    weight, age = rng.normal(75.0, 14.0, rounds), rng.normal(58.0, 15.0, rounds)
    creatinine, carrier = rng.gamma(9.0, 0.11, rounds), rng.random(rounds) < 0.3
    standard = (weight - 75.0) / 14.0
    chosen, chances = _choose(rng, 0.5 * standard[:, None] * np.array([-1.0, 0.0, 1.0]))
    context = np.column_stack(
        [np.ones(rounds), standard, (age - 58.0) / 15.0, creatinine - 1.0, carrier - 0.3]
    )
    truth = np.array([[0.3, -0.5, 0.1, 0.0, 0.0], [0.5, 0.0, -0.1, 0.3, -0.2], [0.4, 0.5, -0.2, 0.0, -0.6]])
    drift = np.zeros((rounds, 3, 5))
    drift[:, 2, 4] = np.where(share > 0.6, 0.9, 0.0)
    response = _linear(context, truth, drift, chosen) + rng.normal(0.0, 1.0, rounds)
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
    path = Path(folder) / "dosing.parquet"
    pq.write_table(pa.table(table), path, row_group_size=10_000)
    roles = {"time": "visit_time", "arm": "dose_mg", "reward": "response", "propensity": "assigned_with"}
    return WildLog(path, roles, {("60", "genotype")}, {"followup_score"})


def call_centre(folder: Path, seed: int, rounds: int = 20_000) -> WildLog:
    """Scripts of a call centre as a spreadsheet exports them; two columns may be the action, nothing says which."""
    rng = np.random.default_rng(seed)
    share = np.sort(rng.random(rounds))
    guides, regions = np.array(["Kurz", "Länger", "Persönlich"]), np.array(["Nord", "Ost", "Süd", "West"])
    tenure, calls = rng.gamma(2.0, 18.0, rounds), rng.poisson(1.2, rounds)
    region = rng.integers(0, 4, rounds)
    chosen, _ = _choose(rng, np.zeros((rounds, 3)))
    context = np.column_stack([np.ones(rounds), (tenure - 36.0) / 25.0, (calls - 1.2) / 1.1])
    truth = np.array([[-1.4, 0.2, -0.2], [-1.2, 0.0, 0.0], [-1.0, 0.3, -0.1]])
    drift = np.zeros((rounds, 3, 3))
    drift[:, 2, 0] = np.where(share > 0.5, -0.9, 0.0)
    drift[:, 0, 1] = 0.55 * np.cos(np.pi * share)
    sale = rng.random(rounds) < _sigmoid(_linear(context, truth, drift, chosen))
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
    path = _write_csv(Path(folder) / "calls.csv", table, ";", "cp1252", "sep=;\r\n", "\r\n")
    roles = {"time": "Call date", "arm": "Guide", "reward": "Sale"}
    drifting = {("Persönlich", "level"), ("Kurz", "Tenure (months)")}
    options = {"arm": "Guide"}
    return WildLog(path, roles, drifting, {"Contract minutes"}, options, {"Guide", "Region"})


WILD_LOGS: dict[str, Callable[..., WildLog]] = {
    maker.__name__: maker for maker in (email_campaign, ride_pricing, news_articles, dosing, call_centre)
}


def _choose(rng: Any, utilities: Any, active: Any = None) -> tuple[Any, Any]:
    """Draw an arm per row from a softmax with a floor; (its place, its probability)."""
    weights = np.exp(utilities) * (1.0 if active is None else active)
    allowed = np.ones_like(weights) if active is None else active.astype(float)
    chances = 0.7 * weights / weights.sum(axis=1, keepdims=True) + 0.3 * allowed / allowed.sum(
        axis=1, keepdims=True
    )
    chosen = (rng.random(len(chances))[:, None] > np.cumsum(chances, axis=1)[:, :-1]).sum(axis=1)
    return chosen, chances[np.arange(len(chances)), chosen]


def _linear(context: Any, truth: Any, drift: Any, chosen: Any) -> Any:
    rows = np.arange(len(chosen))
    return np.einsum("nd,nd->n", context, truth[chosen] + drift[rows, chosen])


def _sigmoid(values: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-values))


def _times(share: Any, days: int) -> Any:
    return START + (share * days * 86_400).astype("timedelta64[s]")


def _american(time: Any) -> str:
    return time.item().strftime("%m/%d/%Y %I:%M %p")


def _german(time: Any) -> str:
    return time.item().strftime("%d.%m.%Y %H:%M")


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
