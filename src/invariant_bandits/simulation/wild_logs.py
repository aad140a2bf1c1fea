"""Logs as they come from other people's systems, drawn with a planted truth.

Every generator writes one file and returns a `WildLog`: the file, the role of its columns, the effects that
drift and the columns that give the reward away.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from invariant_bandits.optional import LazyModule
from invariant_bandits.optional import pyarrow as pa

pq: Any = LazyModule("pyarrow.parquet")

START = np.datetime64("2024-01-01T00:00:00", "s")
Change: TypeAlias = Callable[[Any], Any]
"""Times (n,) as shares of the log's length -> what is added to a coefficient (n,)."""


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


class World:
    """A log that is being drawn: its times, then contexts, then what was chosen and earned.

    Numbers are drawn in the order of the calls, so a seed always makes the same log.

    Parameters
    ----------
    seed, rounds : int
        Seed of all randomness, and the number of rounds n.
    labels : sequence
        What the log calls its A arms.
    in_order : bool
        Whether rounds are in the order of time.

    Attributes
    ----------
    rng : numpy.random.Generator
        Draws everything.
    share : array, shape (n,)
        Times as shares of the log's length.
    chosen, arm, chances : arrays, shape (n,)
        Once arms are chosen: their indices, their labels and their probabilities.
    means : array, shape (n, A)
        Once arms are chosen: what every arm earns on average.
    """

    def __init__(
        self, seed: int, rounds: int, labels: Any, *, in_order: bool = True
    ) -> None:
        self.rng = np.random.default_rng(seed)
        self.share = self.rng.random(rounds)
        if in_order:
            self.share.sort()
        self.labels = np.asarray(labels)
        self.arms = tuple(map(str, self.labels))

    def times(self, days: int) -> Any:
        """Return the times (n,) of a log of so many days."""
        return START + (self.share * days * 86_400).astype("timedelta64[s]")

    def choose(
        self,
        columns: Mapping[str, Any],
        truth: Any,
        changes: Sequence[tuple[int, str, Change]],
        utilities: Any = None,
    ) -> None:
        """Choose an arm in every round, and say what each would earn on average.

        Parameters
        ----------
        columns : mapping of str to array, shape (n,)
            Context by column, about 0.
        truth : array, shape (A, 1 + columns)
            Level and slopes of every arm when the log begins.
        changes : sequence of (arm, column or "level", change)
            Coefficients that drift.
        utilities : array, shape (n, A), optional
            What the logging policy prefers; nothing if not given.
        """
        truth = np.asarray(truth, float)
        context = np.column_stack([np.ones(len(self.share)), *columns.values()])
        names = ["level", *columns]
        if utilities is None:
            utilities = np.zeros((len(self.share), len(truth)))
        self.chosen, self.chances = _choose(self.rng, utilities)
        self.arm = self.labels[self.chosen]
        self.means = context @ truth.T
        for arm, name, change in changes:
            self.means[:, arm] += change(self.share) * context[:, names.index(name)]
        self.drifting = {(self.arms[arm], name) for arm, name, _ in changes}

    def clicks(self, *ingredients: Any, **more: Any) -> Any:
        """Choose as `choose` does, and return rewards (n,) of 0 or 1 with a logistic mean."""
        self.choose(*ingredients, **more)
        self.means = _sigmoid(self.means)
        return self.rng.random(len(self.share)) < _of(self.chosen, self.means)

    def amounts(self, noise: float, *ingredients: Any, **more: Any) -> Any:
        """Choose as `choose` does, and return rewards (n,) with noise of this standard deviation."""
        self.choose(*ingredients, **more)
        drawn = self.rng.normal(0, noise, len(self.share))
        return _of(self.chosen, self.means) + drawn

    def log(self, path: Path, *roles: str, times: Any = None, **more: Any) -> WildLog:
        """Return the log that was written; `roles` are the columns of time, arm, reward and propensity.

        times: by which rows are in order; those that were drawn if not given. more: fields of WildLog.
        """
        known = zip(("time", "arm", "reward", "propensity"), roles, strict=False)
        return WildLog(
            path=path,
            roles=dict(known) | more.pop("roles", {}),
            drifting=self.drifting,
            arms=self.arms,
            means=self.means,
            order=np.argsort(self.share if times is None else times, kind="stable"),
            **more,
        )


def jump(size: float, at: float = 0.5) -> Change:
    """Return a break."""
    return lambda share: np.where(share > at, size, 0.0)


def ramp(size: float) -> Change:
    """Return a steady change."""
    return lambda share: size * share


def wave(size: float) -> Change:
    """Return a change that comes and goes."""
    return lambda share: size * np.sin(2 * np.pi * share)


def turn(size: float) -> Change:
    """Return a change from one sign to the other."""
    return lambda share: size * np.cos(np.pi * share)


def email_campaign(folder: Path, seed: int, rounds: int = 24_000) -> WildLog:
    """Subject lines in a CSV with AM/PM times and yes/no answers; the effect of past orders on one turns."""
    world = World(seed, rounds, ["discount", "emoji", "plain", "question"])
    rng = world.rng
    orders = rng.poisson(3.0, rounds)
    age = rng.integers(18, 80, rounds)
    mobile = rng.random(rounds) < 0.55
    loyal = rng.random(rounds) < 0.4
    reward = world.clicks(
        {
            "past_orders": (orders - 3.0) / 1.7,
            "age": (age - 48.5) / 18.0,
            "mobile_app": mobile,
            "loyalty_member": loyal,
        },
        [
            [-0.9, 0.2, 0.0, 0.3, 0.2],
            [-1.2, 0.0, -0.3, 0.4, 0.0],
            [-1.1, 0.1, 0.2, 0.0, 0.3],
            [-0.8, 0.0, 0.0, -0.2, 0.1],
        ],
        [(1, "past_orders", turn(0.5)), (3, "level", jump(-0.7, 0.55))],
        utilities=0.6 * loyal[:, None] * np.array([1.0, 0.0, -0.5, 0.0]),
    )
    table = {
        "customer_id": rng.integers(10**6, 10**7, rounds),
        "sent_at": written(world.times(90), "%m/%d/%Y %I:%M %p"),
        "subject_variant": world.arm,
        "past_orders": orders,
        "age": age,
        "mobile_app": _yes_no(mobile),
        "loyalty_member": _yes_no(loyal),
        "send_probability": world.chances.round(6),
        "opened": _yes_no(reward),
    }
    path = _write_csv(folder / "campaign.csv", table)
    return world.log(path, "sent_at", "subject_variant", "opened", "send_probability")


def ride_pricing(folder: Path, seed: int, rounds: int = 200_000) -> WildLog:
    """Prices of rides in a CSV with semicolons, decimal commas and missing values; rain's effect changes."""
    world = World(seed, rounds, range(1, 5))
    rng = world.rng
    distance = rng.gamma(2.0, 3.0, rounds)
    rain = rng.exponential(1.0, rounds)
    airport = rng.random(rounds) < 0.2
    rating = rng.normal(4.6, 0.2, rounds)
    reward = world.amounts(
        2.0,
        {
            "distance_km": (distance - 6.0) / 4.2,
            "rain_mm": rain - 1.0,
            "airport": airport,
            "driver_rating": (rating - 4.6) / 0.2,
        },
        [
            [1.8, 0.6, 0.0, 0.1, 0.0],
            [2.1, 0.8, 0.1, 0.2, 0.1],
            [2.2, 0.7, 0.2, 0.5, 0.0],
            [1.9, 0.5, 0.3, 0.8, 0.0],
        ],
        [(2, "rain_mm", wave(0.35)), (3, "distance_km", ramp(-0.4))],
        utilities=0.3 * airport[:, None] * np.arange(4.0),
    )
    table = {
        "ride_id": np.arange(500_000, 500_000 + rounds),
        "requested": written(world.times(120)),
        "distance_km": _commas(distance.round(2)),
        "rain_mm": _without(_commas(rain.round(2)), rng, 0.03),
        "airport": airport.astype(int),
        "driver_rating": _without(_commas(rating.round(2)), rng, 0.015),
        "price_level": world.arm,
        "shown_prob": _commas(world.chances.round(5)),
        "profit_eur": _commas(reward.round(2)),
    }
    path = _write_csv(folder / "rides.csv", table, ";")
    return world.log(path, "requested", "price_level", "profit_eur", "shown_prob")


TOPICS = np.array(["culture", "politics", "science", "sport"])


def news_articles(
    folder: Path, seed: int, rounds: int = 60_000, articles: int = 40
) -> WildLog:
    """Articles that come and go in nested JSON lines, with what happened after the click, and a catalogue.

    Two levels break, and sport loses the readers who visit often.
    """
    world = World(seed, rounds, [f"article-{number:02d}" for number in range(articles)])
    rng = world.rng
    share = world.share
    topic = np.arange(articles) % len(TOPICS)
    first = rng.uniform(-0.6, 0.8, articles)
    last = np.full(articles, np.inf)
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
    drift[:, 2, 0] = jump(1.3)(share)
    drift[:, 7, 0] = jump(-1.4, 0.4)(share)
    drift[:, topic == 3, 2] = jump(-0.8, 0.6)(share)[:, None]
    moved = np.einsum("nd,nad->na", context, drift)
    world.means = _sigmoid(context @ truth.T + moved)
    click = rng.random(rounds) < _of(chosen, world.means)
    dwell = np.where(click, rng.gamma(2.0, 20.0, rounds), 0.0).round(1)
    stamps = milliseconds(world.times(60)) + rng.integers(0, 1000, rounds)
    columns = {
        "event.id": [f"e{row:07d}" for row in range(rounds)],
        "event.ts": stamps,
        "event.received": stamps + 40,
        "user.age": age,
        "user.visits": visits,
        "user.phone": phone,
        "shown.article": world.labels[chosen],
        "shown.prob": chances.round(6),
        "feedback.click": click.astype(int),
        "feedback.dwell_seconds": dwell,
    }
    catalogue = {"article": world.labels, "topic": TOPICS[topic]}
    world.drifting = {
        (world.arms[2], "level"),
        (world.arms[7], "level"),
        ("topic=sport", "user.visits"),
    }
    return world.log(
        write_json_lines(folder / "news.jsonl", columns),
        *("event.ts", "shown.article", "feedback.click", "shown.prob"),
        roles={"round": "event.id"},
        times=stamps,
        leaking={"feedback.dwell_seconds"},
        catalogue=_write_csv(folder / "articles.csv", catalogue),
    )


def dosing(folder: Path, seed: int, rounds: int = 30_000) -> WildLog:
    """Doses in Parquet, not in the order of time; a laboratory value was taken after the response."""
    world = World(seed, rounds, [20, 40, 60], in_order=False)
    rng = world.rng
    weight = rng.normal(75.0, 14.0, rounds)
    age = rng.normal(58.0, 15.0, rounds)
    creatinine = rng.gamma(9.0, 0.11, rounds)
    carrier = rng.random(rounds) < 0.3
    standard = (weight - 75.0) / 14.0
    reward = world.amounts(
        1.0,
        {
            "weight_kg": standard,
            "age_years": (age - 58.0) / 15.0,
            "creatinine": creatinine - 1.0,
            "genotype": carrier - 0.3,
        },
        [
            [0.3, -0.5, 0.1, 0.0, 0.0],
            [0.5, 0.0, -0.1, 0.3, -0.2],
            [0.4, 0.5, -0.2, 0.0, -0.6],
        ],
        [(2, "genotype", jump(0.9, 0.6))],
        utilities=0.5 * standard[:, None] * np.array([-1.0, 0.0, 1.0]),
    )
    table = {
        "patient_id": rng.integers(0, 4000, rounds),
        "visit_time": world.times(300).astype("datetime64[us]"),
        "weight_kg": weight.round(1),
        "age_years": age.round(0),
        "creatinine": creatinine.round(3),
        "genotype": np.where(carrier, "variant carrier", "wild type"),
        "dose_mg": world.arm,
        "assigned_with": world.chances,
        "followup_score": (reward + rng.normal(0.0, 0.05, rounds)).round(3),
        "response": reward.round(3),
    }
    return world.log(
        write_parquet(folder / "dosing.parquet", table, row_group_size=10_000),
        *("visit_time", "dose_mg", "response", "assigned_with"),
        times=world.times(300),
        leaking={"followup_score"},
    )


def call_centre(
    folder: Path, seed: int, rounds: int = 20_000, drifts: float = 1.0
) -> WildLog:
    """Scripts of a call centre as a spreadsheet exports them; two columns may be the action.

    Nothing says which of them it is. `drifts` scales how far the two effects move.
    """
    world = World(seed, rounds, ["Kurz", "Länger", "Persönlich"])
    rng = world.rng
    regions = np.array(["Nord", "Ost", "Süd", "West"])
    tenure = rng.gamma(2.0, 18.0, rounds)
    calls = rng.poisson(1.2, rounds)
    region = rng.integers(0, 4, rounds)
    reward = world.clicks(
        {
            "Tenure (months)": (tenure - 36.0) / 25.0,
            "Earlier calls": (calls - 1.2) / 1.1,
        },
        [[-1.4, 0.2, -0.2], [-1.2, 0.0, 0.0], [-1.0, 0.3, -0.1]],
        [
            (2, "level", jump(-0.9 * drifts)),
            (0, "Tenure (months)", turn(0.55 * drifts)),
        ],
    )
    minutes = np.where(reward, rng.gamma(6.0, 2.0, rounds), 0.0)
    table = {
        "Call ID": np.arange(1, rounds + 1) + 70_000,
        "Call date": written(world.times(180), "%d.%m.%Y %H:%M"),
        "Guide": world.arm,
        "Region": regions[region],
        "Tenure (months)": _commas(tenure.round(1)),
        "Earlier calls": calls,
        "Contract minutes": _commas(minutes.round(1)),
        "Sale": _yes_no(reward),
    }
    return world.log(
        _write_csv(folder / "calls.csv", table, ";", "cp1252", "sep=;\r\n", "\r\n"),
        *("Call date", "Guide", "Sale"),
        roles={"round": "Call ID"},
        leaking={"Contract minutes"},
        options={"arm": "Guide"},
        candidates={"Guide", "Region"},
    )


def weak_call_centre(folder: Path, seed: int, rounds: int = 20_000) -> WildLog:
    """The call centre with drift of two thirds the size."""
    return call_centre(folder, seed, rounds, drifts=2.0 / 3.0)


def weaker_call_centre(folder: Path, seed: int, rounds: int = 20_000) -> WildLog:
    """The call centre with drift of two fifths the size."""
    return call_centre(folder, seed, rounds, drifts=0.4)


def loyalty_coupons(folder: Path, seed: int, rounds: int = 40_000) -> WildLog:
    """Coupons that a till prints, with what they were worth when they came back; families tire of points."""
    world = World(seed, rounds, ["10 % off", "2 for 1", "double points"])
    rng = world.rng
    formats = np.array(["city", "express", "hypermarket"])
    basket = rng.gamma(3.0, 14.0, rounds)
    weeks = rng.geometric(0.35, rounds)
    household = rng.integers(1, 6, rounds)
    store = rng.integers(0, 3, rounds)
    reward = world.clicks(
        {
            "basket_eur": (basket - 42.0) / 24.0,
            "weeks_since_visit": (weeks - 2.9) / 2.3,
            "household_size": (household - 3.0) / 1.4,
            "store_format": store == 2,
        },
        [
            [-1.2, 0.3, -0.1, 0.0, 0.2],
            [-1.0, 0.1, 0.0, 0.4, 0.0],
            [-1.1, 0.2, 0.1, 0.3, 0.1],
        ],
        [(2, "household_size", jump(-0.6, 0.45)), (0, "level", ramp(-0.8))],
        utilities=0.4 * (household >= 3)[:, None] * np.array([0.0, 1.0, 0.5]),
    )
    worth = rng.gamma(4.0, 1.2, rounds).round(2).astype(str)
    table = {
        "card_number": rng.integers(10**9, 10**10, rounds),
        "printed_at": written(world.times(200), "%Y-%m-%d %H:%M"),
        "store_format": formats[store],
        "basket_eur": basket.round(2),
        "weeks_since_visit": weeks,
        "household_size": household,
        "coupon": world.arm,
        "coupon_chance": world.chances.round(5),
        "redeemed": reward.astype(int),
        "redeemed_value": np.where(reward, worth, ""),
    }
    return world.log(
        _write_csv(folder / "coupons.csv", table),
        *("printed_at", "coupon", "redeemed", "coupon_chance"),
        leaking={"redeemed_value"},
    )


def ad_bidding(folder: Path, seed: int, rounds: int = 80_000) -> WildLog:
    """Factors on bids for advertisements in Parquet; a lost auction has no price and no margin."""
    world = World(seed, rounds, [0.8, 1.0, 1.25])
    world.arms = ("0.8", "1", "1.25")
    rng = world.rng
    sites = np.array(["forum", "games", "news", "weather"])
    floor = rng.gamma(4.0, 0.3, rounds)
    seen = rng.poisson(2.0, rounds)
    site = rng.integers(0, 4, rounds)
    phone = rng.random(rounds) < 0.65
    world.choose(
        {
            "floor_cpm": floor - 1.2,
            "seen_today": (seen - 2.0) / 1.4,
            "device": phone - 0.65,
            "site_category": site == 1,
        },
        [
            [0.5, 0.1, 0.0, 0.1, 0.0],
            [0.6, -0.2, -0.1, 0.0, 0.2],
            [0.5, -0.4, -0.2, 0.2, 0.4],
        ],
        [(1, "floor_cpm", jump(-0.6)), (2, "device", wave(0.4))],
        utilities=0.4 * phone[:, None] * np.array([0.5, 0.0, -0.5]),
    )
    wins = rng.random(rounds) < 0.5
    won = 2.0 * _of(world.chosen, world.means) + rng.normal(0.0, 0.6, rounds)
    price = (floor + rng.gamma(2.0, 0.4, rounds)).round(3)
    table = {
        "auction_id": [f"{value:016x}" for value in rng.integers(0, 2**62, rounds)],
        "bid_ts": world.times(45).astype("datetime64[us]"),
        "site_category": sites[site],
        "floor_cpm": floor.round(3),
        "seen_today": seen,
        "device": np.where(phone, "phone", "desktop"),
        "bid_factor": world.arm,
        "exploration_prob": world.chances,
        "clearing_cpm": pa.array(price, mask=~wins),
        "margin": np.where(wins, won, 0.0).round(4),
    }
    return world.log(
        write_parquet(folder / "bids.parquet", table),
        *("bid_ts", "bid_factor", "margin", "exploration_prob"),
        leaking={"clearing_cpm"},
    )


def by_name(*makers: Callable[..., WildLog]) -> dict[str, Callable[..., WildLog]]:
    """Return generators under their names."""
    return {maker.__name__: maker for maker in makers}


WILD_LOGS = by_name(email_campaign, ride_pricing, news_articles, dosing, call_centre)
OTHER_LOGS = by_name(weak_call_centre, weaker_call_centre, loyalty_coupons, ad_bidding)
"""Weaker drift, and two kinds whose column names were chosen without regard to the usual names of roles."""


def _choose(rng: Any, utilities: Any, active: Any = None) -> tuple[Any, Any]:
    """Draw an arm per row from a softmax with a floor; (its index, its probability)."""
    allowed = np.ones_like(utilities) if active is None else active.astype(float)
    weights = np.exp(utilities) * allowed
    chances = 0.7 * weights / weights.sum(axis=1, keepdims=True)
    chances += 0.3 * allowed / allowed.sum(axis=1, keepdims=True)
    beyond = rng.random(len(chances))[:, None] > np.cumsum(chances, axis=1)[:, :-1]
    chosen = beyond.sum(axis=1)
    return chosen, _of(chosen, chances)


def _of(chosen: Any, means: Any) -> Any:
    return means[np.arange(len(chosen)), chosen]


def _sigmoid(values: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-values))


def written(times: Any, form: str = "%Y-%m-%d %H:%M:%S") -> list[str]:
    """Return times as text in a form of strftime."""
    return [time.strftime(form) for time in times.tolist()]


def milliseconds(times: Any) -> Any:
    """Return times (n,) in milliseconds since 1970."""
    return times.astype("datetime64[ms]").astype(np.int64)


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


def write_parquet(path: Path, table: dict[str, Any], **options: Any) -> Path:
    """Write columns to a Parquet file."""
    pq.write_table(pa.table(table), path, **options)
    return path


def write_json_lines(path: Path, columns: dict[str, Any]) -> Path:
    """Write a JSON line per row, packed if the path says so.

    A name such as "user.age" is the field "age" of the object "user".
    """
    values = [
        column.tolist() if isinstance(column, np.ndarray) else column
        for column in columns.values()
    ]
    lines = []
    for row in zip(*values, strict=True):
        line: dict[str, Any] = {}
        for name, value in zip(columns, row, strict=True):
            group, _, last = name.rpartition(".")
            inside = line.setdefault(group, {}) if group else line
            inside[last] = value
        lines.append(f"{json.dumps(line)}\n")
    text = "".join(lines).encode()
    path.write_bytes(gzip.compress(text, 1) if path.suffix == ".gz" else text)
    return path
