"""More logs of other people's systems with a planted truth, written before the code that reads them was seen.

`NEW_LOGS` were tried first, and what they showed was mended. `LATER_LOGS` were written at the same time and
tried once, after that.
"""

import gzip
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from invariant_bandits.optional import LazyModule
from invariant_bandits.optional import pyarrow as pa
from invariant_bandits.simulation.wild_logs import (
    WildLog,
    _choose,
    _commas,
    _of,
    _sigmoid,
    _sorted_times,
    _times,
    _without,
    _write_csv,
)

pq: Any = LazyModule("pyarrow.parquet")

Move = Callable[[Any], Any]


def world(
    rng: Any,
    share: Any,
    columns: dict[str, Any],
    truth: Any,
    moves: list[tuple[int, str, Move]],
    *,
    spread: float = 0.5,
    clicks: bool = True,
    noise: float = 1.0,
    uniform: bool = False,
) -> tuple[Any, Any, Any, Any]:
    """Draw chosen arms, their chances, all means and the rewards.

    Columns are centred, rows of the truth are levels and slopes, and moves say which of them drift, and how.
    """
    names = ["level", *columns]
    n, arms = len(share), len(truth)
    context = np.column_stack([np.ones(n), *columns.values()])
    tilt = np.linspace(-1, 1, arms) * spread
    util = np.zeros((n, arms)) if uniform else context[:, 1][:, None] * tilt
    chosen, chances = _choose(rng, util)
    means = context @ np.asarray(truth, float).T
    for arm, column, f in moves:
        means[:, arm] += f(share) * context[:, names.index(column)]
    if clicks:
        means = _sigmoid(means)
        reward = rng.random(n) < _of(chosen, means)
    else:
        reward = _of(chosen, means) + rng.normal(0, noise, n)
    return chosen, chances, means, reward


def jump(size: float, at: float = 0.5) -> Move:
    """A break."""
    return lambda s: np.where(s > at, size, 0.0)


def ramp(size: float) -> Move:
    """A steady change."""
    return lambda s: size * s


def wave(size: float) -> Move:
    """A change that comes and goes."""
    return lambda s: size * np.sin(2 * np.pi * s)


def std(x: Any) -> Any:
    """The values in standard deviations from their mean."""
    x = np.asarray(x, float)
    return (x - x.mean()) / x.std()


def jsonl(path: Path, rows: Iterable[Any]) -> Path:
    """Write JSON lines, packed if the path says so."""
    text = "".join(json.dumps(r) + "\n" for r in rows)
    if str(path).endswith(".gz"):
        path.write_bytes(gzip.compress(text.encode(), 1))
    else:
        path.write_text(text)
    return path


def game_offers(folder: Path, seed: int, rounds: int = 40_000) -> WildLog:
    """Offers of a game in tab-separated text: camelCase names, T and F, amounts with a dollar sign."""
    rng, share = _sorted_times(seed, rounds)
    labels = np.array(
        ["Starter Pack", "Gem Bundle", "Season Pass", "Skin Crate", "No Offer"]
    )
    level = rng.integers(1, 60, rounds)
    idle = rng.exponential(20, rounds)
    tier = rng.integers(0, 3, rounds)
    cols = {
        "playerLevel": std(level),
        "hrsSinceLogin": std(idle),
        "spendTier": (tier == 2) - (tier == 2).mean(),
    }
    truth = [
        [-1.2, 0.3, 0, 0.2],
        [-1.0, 0, 0.2, 0.5],
        [-1.1, -0.2, 0, 0],
        [-1.3, 0.1, -0.2, 0.3],
        [-1.6, 0, 0, 0],
    ]
    moves = [(1, "playerLevel", jump(0.7)), (3, "level", ramp(-1.0))]
    chosen, p, means, y = world(rng, share, cols, truth, moves)
    usd = np.where(
        y, np.char.add("$", rng.choice(["4.99", "9.99", "19.99"], rounds)), ""
    )
    table = {
        "sessionUuid": [
            f"{a:08x}-{b:04x}" for a, b in rng.integers(0, (2**32, 2**16), (rounds, 2))
        ],
        "tsUtc": _times(share, 70).astype("datetime64[s]").astype(np.int64),
        "buildChannel": ["prod"] * rounds,
        "playerLevel": level,
        "hrsSinceLogin": idle.round(2),
        "spendTier": np.array(["free", "minnow", "whale"])[tier],
        "offerShown": labels[chosen],
        "selProb": p.round(6),
        "purchaseAmountUsd": usd,
        "boughtOffer": np.where(y, "T", "F"),
    }
    path = _write_csv(folder / "offers.tsv", table, "\t")
    return WildLog(
        path=path,
        roles={
            "time": "tsUtc",
            "arm": "offerShown",
            "reward": "boughtOffer",
            "propensity": "selProb",
        },
        drifting={("Gem Bundle", "playerLevel"), ("Skin Crate", "level")},
        leaking={"purchaseAmountUsd"},
    ).knowing(labels, means, share)


def trial(folder: Path, seed: int, rounds: int = 16_000) -> WildLog:
    """Visits of a trial: abbreviated names, treatments as numbers, a laboratory value taken later."""
    rng, share = _sorted_times(seed, rounds)
    bmi, sbp = rng.normal(27, 4, rounds), rng.normal(135, 15, rounds)
    sex, smk = rng.random(rounds) < 0.5, rng.random(rounds) < 0.3
    cols = {"bmi": std(bmi), "sbp": std(sbp), "sex": sex - 0.5, "smk": smk - 0.3}
    truth = [
        [0.2, 0.2, 0, 0, 0],
        [0.4, 0, -0.3, 0.2, 0],
        [0.3, -0.2, 0, 0, -0.4],
        [0.5, 0, 0.2, 0, 0],
    ]
    moves = [(2, "sbp", jump(0.55, 0.6))]
    chosen, p, means, y = world(rng, share, cols, truth, moves, clicks=False, noise=1.2)
    times = [f"{t}+02:00" for t in _times(share, 400)]
    table = {
        "subj": rng.integers(1, 2500, rounds),
        "visit_dt": times,
        "site": rng.integers(1, 9, rounds),
        "trt": chosen + 1,
        "p_sel": p.round(5),
        "bmi": _without([f"{v:.1f}" for v in bmi], rng, 0.02),
        "sbp": sbp.round(0).astype(int),
        "sex": np.where(sex, "F", "M"),
        "smk": np.where(smk, "Y", "N"),
        "resp": y.round(3),
        "lab_d14": (y * 2 + 10 + rng.normal(0, 0.3, rounds)).round(2),
    }
    path = _write_csv(folder / "trial.csv", table)
    return WildLog(
        path=path,
        roles={
            "time": "visit_dt",
            "arm": "trt",
            "reward": "resp",
            "propensity": "p_sel",
        },
        drifting={("3", "sbp")},
        leaking={"lab_d14"},
    ).knowing(range(1, 5), means, share)


def notifications(folder: Path, seed: int, rounds: int = 40_000) -> WildLog:
    """Hours for notifications in nested JSON lines; the delay of the tap is missing without one."""
    rng, share = _sorted_times(seed, rounds)
    slots = np.array(["morning", "noon", "evening", "late night"])
    days = rng.geometric(0.02, rounds)
    opens = rng.poisson(4, rounds)
    ios = rng.random(rounds) < 0.45
    cols = {
        "ctx.opens7d": std(opens),
        "ctx.daysSinceInstall": std(days),
        "ctx.platform": ios - 0.45,
    }
    truth = [
        [-1.5, 0.3, 0, 0.1],
        [-1.8, 0.2, 0, 0],
        [-1.2, 0.1, -0.1, 0.3],
        [-1.7, 0, 0.2, 0],
    ]
    moves = [(2, "level", jump(-0.7, 0.4)), (0, "ctx.opens7d", ramp(-0.6))]
    chosen, p, means, y = world(rng, share, cols, truth, moves)
    delay = rng.gamma(1.5, 200, rounds).round(1)
    iso = [str(t) + ".000Z" for t in _times(share, 50)]
    rows = (
        {
            "msgId": f"m-{i:06d}",
            "ctx": {
                "daysSinceInstall": int(days[i]),
                "opens7d": int(opens[i]),
                "platform": "ios" if ios[i] else "android",
                "appBuild": 4410,
            },
            "decision": {
                "slot": str(slots[chosen[i]]),
                "probOfChoice": round(float(p[i]), 6),
                "at": iso[i],
            },
            "outcome": {
                "tapped": bool(y[i]),
                "tapDelaySec": float(delay[i]) if y[i] else None,
            },
        }
        for i in range(rounds)
    )
    path = jsonl(folder / "push.jsonl", rows)
    return WildLog(
        path=path,
        roles={
            "time": "decision.at",
            "arm": "decision.slot",
            "reward": "outcome.tapped",
            "propensity": "decision.probOfChoice",
        },
        drifting={("evening", "level"), ("morning", "ctx.opens7d")},
        leaking={"outcome.tapDelaySec"},
    ).knowing(slots, means, share)


def insurance(folder: Path, seed: int, rounds: int = 30_000) -> WildLog:
    """Quotes with decimal commas, amounts in euros, propensities in percent and the start of the policy."""
    rng, share = _sorted_times(seed, rounds)
    tiers = np.array([0, 5, 10, 15])
    age = rng.integers(18, 80, rounds)
    value = rng.gamma(4, 5000, rounds)
    bonus = rng.integers(0, 10, rounds)
    cols = {
        "Driver Age": std(age),
        "Vehicle Value": std(value),
        "Bonus Class": std(bonus),
    }
    truth = [
        [-1.4, 0.1, 0, 0.2],
        [-1.1, 0.2, -0.2, 0],
        [-0.9, 0, 0.1, 0.1],
        [-0.7, -0.2, 0, 0],
    ]
    moves = [(3, "Vehicle Value", jump(-0.65)), (0, "level", ramp(0.9))]
    chosen, p, means, y = world(rng, share, cols, truth, moves)
    when = _times(share, 240)
    start = [
        (t + np.timedelta64(int(k), "D")).item().strftime("%d.%m.%Y") if s else ""
        for t, s, k in zip(when, y, rng.integers(1, 30, rounds), strict=True)
    ]
    table = {
        "Quote No": [f"Q{v:07d}" for v in np.arange(rounds) + 4000],
        "Quote Date": [t.item().strftime("%d.%m.%Y %H:%M") for t in when],
        "Driver Age": age,
        "Vehicle Value": [
            f"€ {v:,.2f}".replace(",", "_").replace(".", ",").replace("_", ".")
            for v in value
        ],
        "Bonus Class": bonus,
        "Discount Tier": tiers[chosen],
        "Selection %": _commas((100 * p).round(3)),
        "Accepted": np.where(y, "Yes", "No"),
        "Policy Start": start,
    }
    path = _write_csv(folder / "quotes.csv", table, ";")
    return WildLog(
        path=path,
        roles={
            "time": "Quote Date",
            "arm": "Discount Tier",
            "reward": "Accepted",
            "propensity": "Selection %",
        },
        drifting={("15", "Vehicle Value"), ("0", "level")},
        leaking={"Policy Start"},
    ).knowing(tiers, means, share)


def energy(folder: Path, seed: int, rounds: int = 36_000) -> WildLog:
    """Tariffs in Parquet with a date and an hour; a credit follows from the reward."""
    rng, share = _sorted_times(seed, rounds)
    temp = rng.normal(12, 8, rounds)
    size = rng.integers(1, 7, rounds)
    solar = rng.random(rounds) < 0.25
    cols = {"temp_c": std(temp), "hh_size": std(size), "has_pv": solar - 0.25}
    truth = np.array(
        [
            [0.5, 0.1, 0.2, 0],
            [0.7, 0, 0.1, 0.3],
            [0.6, -0.2, 0, 0],
            [0.4, 0, 0.3, 0.4],
            [0.8, 0.1, 0, -0.3],
            [0.55, 0.2, 0.1, 0],
        ]
    )
    moves = [(1, "temp_c", wave(0.5)), (4, "level", jump(-0.8, 0.55))]
    chosen, p, means, y = world(rng, share, cols, truth, moves, clicks=False, noise=1.0)
    when = _times(share, 200)
    days = when.astype("datetime64[D]")
    hours = (when - days).astype("timedelta64[h]").astype(int)
    table = {
        "meter": rng.integers(10**6, 2 * 10**6, rounds),
        "d": pa.array(days.astype("datetime64[D]")),
        "hr": hours,
        "temp_c": pa.array(temp.round(1), mask=rng.random(rounds) < 0.04),
        "hh_size": size,
        "has_pv": solar,
        "tariff_code": chosen + 1,
        "p_assign": p,
        "kwh_shifted": y.round(3),
        "bill_credit_eur": np.maximum(0, 0.3 * y).round(2),
    }
    path = folder / "tariffs.parquet"
    pq.write_table(pa.table(table), path)
    return WildLog(
        path=path,
        roles={
            "time": "d",
            "arm": "tariff_code",
            "reward": "kwh_shifted",
            "propensity": "p_assign",
        },
        drifting={("2", "temp_c"), ("5", "level")},
        leaking={"bill_credit_eur"},
        options={"reward": "kwh_shifted"},
        candidates={"kwh_shifted", "bill_credit_eur"},
    ).knowing(range(1, 7), means, share)


def hotels(folder: Path, seed: int, rounds: int = 15_000) -> WildLog:
    """Hotels of a search, a row each, with a flag of the first; the effect of the price turns."""
    rng, share = _sorted_times(seed, rounds)
    k = 5
    stars, price = rng.integers(2, 6, (rounds, k)), rng.gamma(4, 30, (rounds, k))
    dist, promo = rng.exponential(3, (rounds, k)), rng.random((rounds, k)) < 0.3
    z = np.stack(
        [(stars - 3.5) / 1.12, (price - 120) / 60, (dist - 3) / 3, promo - 0.3], -1
    )
    beta = np.tile([0.4, -0.4, -0.2, 0.3], (rounds, 1))
    beta[:, 1] += np.where(share > 0.5, 0.8, 0)
    means = _sigmoid(-1.0 + np.einsum("nkd,nd->nk", z, beta))
    chosen, p = _choose(rng, 0.5 * z[:, :, 0])
    booked = rng.random(rounds) < _of(chosen, means)
    first = np.arange(k)[None] == chosen[:, None]
    when = np.repeat([str(t) + "Z" for t in _times(share, 30)], k)
    flat = first.reshape(-1)
    table = {
        "search_id": np.repeat(np.arange(rounds) + 90_000, k),
        "srch_time": when,
        "hotel_id": rng.integers(1, 3000, rounds * k),
        "stars": stars.reshape(-1),
        "price_usd": price.reshape(-1).round(2),
        "dist_km": dist.reshape(-1).round(2),
        "on_promo": promo.reshape(-1).astype(int),
        "shown_first": flat.astype(int),
        "p_first": np.where(flat, np.repeat(p.round(6), k).astype(str), ""),
        "booked": np.where(flat, np.repeat(booked.astype(int), k).astype(str), ""),
    }
    path = _write_csv(folder / "hotels.csv", table)
    return WildLog(
        path=path,
        roles={
            "time": "srch_time",
            "round": "search_id",
            "chosen": "shown_first",
            "reward": "booked",
            "propensity": "p_first",
        },
        drifting={("", "price_usd")},
    )


def chatbot(folder: Path, seed: int, rounds: int = 30_000) -> WildLog:
    """Styles of answers in packed JSON lines; what was not wanted stands beside the reward."""
    rng, share = _sorted_times(seed, rounds)
    labels = np.array(["concise", "step by step", "with example"])
    intents = np.array(["billing", "howto", "outage", "refund"])
    length = rng.gamma(2, 40, rounds).round()
    turns = rng.integers(1, 9, rounds)
    intent = rng.integers(0, 4, rounds)
    cols = {
        "msg_len": std(length),
        "n_turns": std(turns),
        "intent": (intent == 3) - 0.25,
    }
    truth = [[0.2, 0.2, -0.2, 0], [0.4, 0, 0, -0.3], [0.1, 0.1, -0.1, 0.3]]
    moves = [(1, "n_turns", jump(-0.6, 0.45)), (2, "intent", jump(-1.4))]
    chosen, p, means, y = world(rng, share, cols, truth, moves)
    ms = _times(share, 25).astype("datetime64[ms]").astype(np.int64) + rng.integers(
        0, 999, rounds
    )
    rows = (
        {
            "conv": f"c{i:06x}",
            "created": int(ms[i]),
            "model_rev": "v7",
            "intent": str(intents[intent[i]]),
            "msg_len": int(length[i]),
            "n_turns": int(turns[i]),
            "lang": str(["en", "de", "fr"][i * 7919 % 3]),
            "answer_style": str(labels[chosen[i]]),
            "sampling_prob": round(float(p[i]), 5),
            "thumbs_up": bool(y[i]),
            "escalated": bool((not y[i]) and (i * 31 % 10 < 6)),
        }
        for i in range(rounds)
    )
    path = jsonl(folder / "chat.jsonl.gz", rows)
    return WildLog(
        path=path,
        roles={
            "time": "created",
            "arm": "answer_style",
            "reward": "thumbs_up",
            "propensity": "sampling_prob",
        },
        drifting={("step by step", "n_turns"), ("with example", "intent")},
        leaking={"escalated"},
    ).knowing(labels, means, ms)


def warehouse(folder: Path, seed: int, rounds: int = 24_000) -> WildLog:
    """Routes of pickers, drawn evenly without propensities; the zone may be the action as well."""
    rng, share = _sorted_times(seed, rounds)
    lines_ = rng.integers(3, 60, rounds)
    weight = rng.gamma(3, 6, rounds)
    exper = rng.gamma(2, 10, rounds)
    zone = rng.integers(0, 4, rounds)
    cols = {
        "n_lines": std(lines_),
        "weight_kg": std(weight),
        "picker_exp_m": std(exper),
    }
    truth = np.array(
        [[90, 6, -4, 5], [95, 0, -6, 4], [93, 4, 0, 6], [88, -5, -3, 5]], float
    )
    moves = [(1, "n_lines", jump(-10.0)), (3, "level", ramp(14.0))]
    chosen, _, means, y = world(
        rng, share, cols, truth, moves, clicks=False, noise=15.0, uniform=True
    )
    begin = _times(share, 100)
    minutes = 60 * lines_ / np.maximum(y, 5)
    end = begin + (minutes * 60).astype("timedelta64[s]")
    table = {
        "order_no": np.arange(rounds) + 880_000,
        "start": [str(t).replace("T", " ") for t in begin],
        "finish": [str(t).replace("T", " ") for t in end],
        "zone": np.array(["A", "B", "C", "D"])[zone],
        "n_lines": lines_,
        "weight_kg": weight.round(1),
        "picker_exp_m": exper.round(1),
        "route_alg": np.array(["R1", "R2", "R3", "R4"])[chosen],
        "pick_min": minutes.round(2),
        "picks_per_hr": y.round(1),
    }
    path = _write_csv(folder / "picks.csv", table, "|")
    return WildLog(
        path=path,
        roles={"time": "start", "arm": "route_alg", "reward": "picks_per_hr"},
        drifting={("R2", "n_lines"), ("R4", "level")},
        leaking={"finish", "pick_min"},
        options={"arm": "route_alg", "reward": "picks_per_hr"},
        candidates={"picks_per_hr"},
    ).knowing(["R1", "R2", "R3", "R4"], means, share)


def churn(folder: Path, seed: int, rounds: int = 24_000) -> WildLog:
    """What was done to keep a customer, with propensities in percent and a reward in days."""
    rng, share = _sorted_times(seed, rounds)
    labels = np.array(["call", "gift card", "nothing", "upgrade"])
    ten = rng.gamma(2, 14, rounds)
    tickets = rng.poisson(1, rounds)
    spend = rng.gamma(3, 15, rounds)
    cols = {"tenure_mths": std(ten), "tickets_90d": std(tickets), "mrr": std(spend)}
    truth = np.array(
        [[60, 6, -8, 0], [66, 0, -5, 5], [50, 4, -6, 0], [64, 0, 0, 8]], float
    )
    moves = [(1, "mrr", jump(-9.0, 0.6)), (0, "level", jump(12.0, 0.4))]
    chosen, p, means, y = world(
        rng, share, cols, truth, moves, clicks=False, noise=16.0
    )
    day = _times(share, 360).astype("datetime64[D]")
    table = {
        "acct": [f"A-{v}" for v in rng.integers(10_000, 99_999, rounds)],
        "contacted_on": day,
        "tenure_mths": ten.round(1),
        "tickets_90d": tickets,
        "mrr": [f"${v:.2f}" for v in spend],
        "retention_play": labels[chosen],
        "play_pct": (100 * p).round(2),
        "days_to_churn": y.round(0),
        "churned_on": day + y.round(0).astype("timedelta64[D]"),
    }
    path = _write_csv(folder / "retention.csv", table)
    return WildLog(
        path=path,
        roles={
            "time": "contacted_on",
            "arm": "retention_play",
            "reward": "days_to_churn",
            "propensity": "play_pct",
        },
        drifting={("gift card", "mrr"), ("call", "level")},
        leaking={"churned_on"},
    ).knowing(labels, means, day)


def thumbnails(folder: Path, seed: int, rounds: int = 40_000) -> WildLog:
    """Pictures of films in Parquet; the minutes watched follow from the play."""
    rng, share = _sorted_times(seed, rounds)
    arms = np.array(["face_closeup", "group shot", "logo", "scenery"])
    hrs = rng.gamma(2, 3, rounds)
    rec = rng.random(rounds)
    tv = rng.random(rounds) < 0.4
    cols = {"wk_hrs": std(hrs), "recency": std(rec), "dev": tv - 0.4}
    truth = [
        [-1, 0.2, 0.1, 0],
        [-1.2, 0, 0, 0.3],
        [-1.5, 0.2, 0, 0],
        [-1.1, 0, 0.3, -0.2],
    ]
    moves = [(0, "wk_hrs", jump(-0.6)), (2, "level", jump(0.8, 0.6))]
    chosen, p, means, y = world(rng, share, cols, truth, moves)
    mins = np.where(y, rng.gamma(3, 15, rounds), 0).round(1)
    table = {
        "profile": rng.integers(1, 10**8, rounds),
        "impr_time": _times(share, 40).astype("datetime64[ms]"),
        "wk_hrs": hrs.round(2),
        "recency": rec.round(4),
        "dev": np.where(tv, "tv", "mobile"),
        "art": arms[chosen],
        "logged_p": p,
        "played": y,
        "mins_watched": mins,
        "schema_ver": np.full(rounds, 3),
    }
    path = folder / "art.parquet"
    pq.write_table(pa.table(table), path)
    return WildLog(
        path=path,
        roles={
            "time": "impr_time",
            "arm": "art",
            "reward": "played",
            "propensity": "logged_p",
        },
        drifting={("face_closeup", "wk_hrs"), ("logo", "level")},
        leaking={"mins_watched"},
    ).knowing(arms, means, share)


def parking(folder: Path, seed: int, rounds: int = 30_000) -> WildLog:
    """Fees of garages: a date and an hour apart, amounts with a dollar sign, one of them the reward."""
    rng, share = _sorted_times(seed, rounds)
    fees = np.array([1.5, 2.0, 2.5, 3.0])
    occ = rng.beta(3, 2, rounds)
    temp = rng.normal(14, 7, rounds)
    event = rng.random(rounds) < 0.15
    cols = {"occ_rate": std(occ), "temp": std(temp), "event_nearby": event - 0.15}
    truth = np.array(
        [
            [3, 0.6, 0, 0.5],
            [3.4, 0.3, 0.2, 0.8],
            [3.6, 0, 0.1, 0.6],
            [3.3, -0.4, 0, 1.2],
        ]
    )
    moves = [(2, "occ_rate", jump(0.9)), (0, "temp", wave(0.8))]
    chosen, p, means, y = world(rng, share, cols, truth, moves, clicks=False, noise=1.8)
    when = _times(share, 150)
    table = {
        "date": [t.item().strftime("%Y-%m-%d") for t in when],
        "hour": [t.item().hour for t in when],
        "garage": np.array([f"G{g:02d}" for g in rng.integers(1, 30, rounds)]),
        "occ_rate": occ.round(3),
        "temp": _without([f"{v:.1f}" for v in temp], rng, 0.05),
        "event_nearby": np.where(event, "true", "false"),
        "hourly_fee": fees[chosen],
        "pi": p.round(5),
        "net_take": [f"${v:.2f}" if v >= 0 else f"-${-v:.2f}" for v in y],
    }
    path = _write_csv(folder / "parking.csv", table)
    return WildLog(
        path=path,
        roles={
            "time": "date",
            "arm": "hourly_fee",
            "reward": "net_take",
            "propensity": "pi",
        },
        drifting={("2.5", "occ_rate"), ("1.5", "temp")},
    ).knowing(["1.5", "2", "2.5", "3"], means, share)


def jobs_match(folder: Path, seed: int, rounds: int = 14_000) -> WildLog:
    """Jobs offered to a person, a nested JSON line each."""
    rng, share = _sorted_times(seed, rounds)
    k = 4
    sal = rng.normal(60, 12, (rounds, k))
    skill = rng.random((rounds, k))
    rem = rng.random((rounds, k)) < 0.4
    z = np.stack([(sal - 60) / 12, (skill - 0.5) / 0.289, rem - 0.4], -1)
    beta = np.tile([0.3, 0.5, 0.2], (rounds, 1))
    beta[:, 2] += np.where(share > 0.55, 1.3, 0)
    means = _sigmoid(-1.1 + np.einsum("nkd,nd->nk", z, beta))
    chosen, p = _choose(rng, 0.4 * z[:, :, 1])
    applied = rng.random(rounds) < _of(chosen, means)
    sec = _times(share, 60).astype("datetime64[s]").astype(np.int64)
    rows = (
        {
            "req": {"uid": f"r{i}", "epoch": int(sec[i])},
            "job": {
                "salaryK": round(float(sal[i, j]), 1),
                "skillMatch": round(float(skill[i, j]), 3),
                "remote": bool(rem[i, j]),
            },
            "pick": {
                "isPicked": bool(j == chosen[i]),
                "pickProb": round(float(p[i]), 6) if j == chosen[i] else None,
            },
            "result": {"applied": int(applied[i]) if j == chosen[i] else None},
        }
        for i in range(rounds)
        for j in range(k)
    )
    path = jsonl(folder / "jobs.jsonl", rows)
    return WildLog(
        path=path,
        roles={
            "time": "req.epoch",
            "round": "req.uid",
            "chosen": "pick.isPicked",
            "reward": "result.applied",
            "propensity": "pick.pickProb",
        },
        drifting={("", "job.remote")},
    )


def tutoring(folder: Path, seed: int, rounds: int = 30_000) -> WildLog:
    """Hints for learners as numbers, propensities with a percent sign, points for a right answer."""
    rng, share = _sorted_times(seed, rounds)
    acc = rng.beta(5, 3, rounds)
    gap = rng.gamma(1.5, 2, rounds)
    grade = rng.integers(4, 10, rounds)
    cols = {"prior_acc": std(acc), "days_gap": std(gap), "grade": std(grade)}
    truth = [
        [0.3, 0.5, -0.1, 0],
        [0.2, 0.3, 0, 0.2],
        [0.4, 0.2, -0.2, 0],
        [0.1, 0.6, 0, 0.1],
        [0.25, 0.4, 0, 0],
    ]
    moves = [(4, "grade", jump(0.6, 0.5)), (1, "level", ramp(-0.9))]
    chosen, p, means, y = world(rng, share, cols, truth, moves)
    when = _times(share, 80)
    table = {
        "rowid": np.arange(rounds),
        "t": [t.item().strftime("%Y/%m/%d %H:%M:%S") for t in when],
        "learner": rng.integers(1, 5000, rounds),
        "prior_acc": acc.round(3),
        "days_gap": gap.round(2),
        "grade": grade,
        "hint_type": chosen + 1,
        "prob_pct": [f"{v:.2f}%" for v in 100 * p],
        "correct": np.where(y, "Y", "N"),
        "points": np.where(y, rng.integers(5, 11, rounds), 0),
    }
    path = _write_csv(folder / "hints.csv", table)
    return WildLog(
        path=path,
        roles={
            "time": "t",
            "arm": "hint_type",
            "reward": "correct",
            "propensity": "prob_pct",
        },
        drifting={("5", "grade"), ("2", "level")},
        leaking={"points"},
    ).knowing(range(1, 6), means, share)


NEW_LOGS: dict[str, Callable[..., WildLog]] = {
    maker.__name__: maker
    for maker in (
        game_offers,
        trial,
        notifications,
        insurance,
        energy,
        hotels,
        chatbot,
        warehouse,
        churn,
    )
}
LATER_LOGS: dict[str, Callable[..., WildLog]] = {
    maker.__name__: maker for maker in (thumbnails, parking, jobs_match, tutoring)
}
