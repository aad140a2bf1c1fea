"""More logs of other people's systems with a planted truth, written before the code that reads them was seen.

`NEW_LOGS` were tried first, and what they showed was mended. `LATER_LOGS` were written at the same time and
tried once, after that.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from invariant_bandits.optional import pyarrow as pa
from invariant_bandits.simulation.wild_logs import (
    WildLog,
    World,
    _choose,
    _commas,
    _of,
    _sigmoid,
    _without,
    _write_csv,
    by_name,
    jump,
    milliseconds,
    ramp,
    wave,
    write_json_lines,
    write_parquet,
    written,
)


def standard(values: Any) -> Any:
    """Return the values in standard deviations from their mean."""
    values = np.asarray(values, float)
    return (values - values.mean()) / values.std()


def _tilted(columns: dict[str, Any], arms: int) -> Any:
    """Utilities (n, A) that grow with the first column, the more the later the arm."""
    first = next(iter(columns.values()))
    return first[:, None] * (np.linspace(-1, 1, arms) * 0.5)


def game_offers(folder: Path, seed: int, rounds: int = 40_000) -> WildLog:
    """Offers of a game in tab-separated text: camelCase names, T and F, amounts with a dollar sign."""
    world = World(
        seed,
        rounds,
        ["Starter Pack", "Gem Bundle", "Season Pass", "Skin Crate", "No Offer"],
    )
    rng = world.rng
    level = rng.integers(1, 60, rounds)
    idle = rng.exponential(20, rounds)
    tier = rng.integers(0, 3, rounds)
    columns = {
        "playerLevel": standard(level),
        "hrsSinceLogin": standard(idle),
        "spendTier": (tier == 2) - (tier == 2).mean(),
    }
    truth = [
        [-1.2, 0.3, 0, 0.2],
        [-1.0, 0, 0.2, 0.5],
        [-1.1, -0.2, 0, 0],
        [-1.3, 0.1, -0.2, 0.3],
        [-1.6, 0, 0, 0],
    ]
    changes = [(1, "playerLevel", jump(0.7)), (3, "level", ramp(-1.0))]
    bought = world.clicks(columns, truth, changes, _tilted(columns, 5))
    amounts = np.char.add("$", rng.choice(["4.99", "9.99", "19.99"], rounds))
    ids = rng.integers(0, (2**32, 2**16), (rounds, 2))
    table = {
        "sessionUuid": [f"{a:08x}-{b:04x}" for a, b in ids],
        "tsUtc": world.times(70).astype(np.int64),
        "buildChannel": ["prod"] * rounds,
        "playerLevel": level,
        "hrsSinceLogin": idle.round(2),
        "spendTier": np.array(["free", "minnow", "whale"])[tier],
        "offerShown": world.arm,
        "selProb": world.chances.round(6),
        "purchaseAmountUsd": np.where(bought, amounts, ""),
        "boughtOffer": np.where(bought, "T", "F"),
    }
    return world.log(
        _write_csv(folder / "offers.tsv", table, "\t"),
        *("tsUtc", "offerShown", "boughtOffer", "selProb"),
        leaking={"purchaseAmountUsd"},
    )


def trial(folder: Path, seed: int, rounds: int = 16_000) -> WildLog:
    """Visits of a trial: abbreviated names, treatments as numbers, a laboratory value taken later."""
    world = World(seed, rounds, range(1, 5))
    rng = world.rng
    bmi = rng.normal(27, 4, rounds)
    sbp = rng.normal(135, 15, rounds)
    sex = rng.random(rounds) < 0.5
    smokes = rng.random(rounds) < 0.3
    columns = {
        "bmi": standard(bmi),
        "sbp": standard(sbp),
        "sex": sex - 0.5,
        "smk": smokes - 0.3,
    }
    truth = [
        [0.2, 0.2, 0, 0, 0],
        [0.4, 0, -0.3, 0.2, 0],
        [0.3, -0.2, 0, 0, -0.4],
        [0.5, 0, 0.2, 0, 0],
    ]
    changes = [(2, "sbp", jump(0.55, 0.6))]
    response = world.amounts(1.2, columns, truth, changes, _tilted(columns, 4))
    table = {
        "subj": rng.integers(1, 2500, rounds),
        "visit_dt": written(world.times(400), "%Y-%m-%dT%H:%M:%S+02:00"),
        "site": rng.integers(1, 9, rounds),
        "trt": world.arm,
        "p_sel": world.chances.round(5),
        "bmi": _without([f"{value:.1f}" for value in bmi], rng, 0.02),
        "sbp": sbp.round(0).astype(int),
        "sex": np.where(sex, "F", "M"),
        "smk": np.where(smokes, "Y", "N"),
        "resp": response.round(3),
        "lab_d14": (response * 2 + 10 + rng.normal(0, 0.3, rounds)).round(2),
    }
    path = _write_csv(folder / "trial.csv", table)
    return world.log(path, "visit_dt", "trt", "resp", "p_sel", leaking={"lab_d14"})


def notifications(folder: Path, seed: int, rounds: int = 40_000) -> WildLog:
    """Hours for notifications in nested JSON lines; the delay of the tap is missing without one."""
    world = World(seed, rounds, ["morning", "noon", "evening", "late night"])
    rng = world.rng
    days = rng.geometric(0.02, rounds)
    opens = rng.poisson(4, rounds)
    ios = rng.random(rounds) < 0.45
    columns = {
        "ctx.opens7d": standard(opens),
        "ctx.daysSinceInstall": standard(days),
        "ctx.platform": ios - 0.45,
    }
    truth = [
        [-1.5, 0.3, 0, 0.1],
        [-1.8, 0.2, 0, 0],
        [-1.2, 0.1, -0.1, 0.3],
        [-1.7, 0, 0.2, 0],
    ]
    changes = [(2, "level", jump(-0.7, 0.4)), (0, "ctx.opens7d", ramp(-0.6))]
    tapped = world.clicks(columns, truth, changes, _tilted(columns, 4))
    delay = rng.gamma(1.5, 200, rounds).round(1)
    table = {
        "msgId": [f"m-{row:06d}" for row in range(rounds)],
        "ctx.daysSinceInstall": days,
        "ctx.opens7d": opens,
        "ctx.platform": np.where(ios, "ios", "android"),
        "ctx.appBuild": [4410] * rounds,
        "decision.slot": world.arm,
        "decision.probOfChoice": world.chances.round(6),
        "decision.at": written(world.times(50), "%Y-%m-%dT%H:%M:%S.000Z"),
        "outcome.tapped": tapped,
        "outcome.tapDelaySec": _only(tapped, delay),
    }
    return world.log(
        write_json_lines(folder / "push.jsonl", table),
        *("decision.at", "decision.slot", "outcome.tapped", "decision.probOfChoice"),
        leaking={"outcome.tapDelaySec"},
    )


def insurance(folder: Path, seed: int, rounds: int = 30_000) -> WildLog:
    """Quotes with decimal commas, amounts in euros, propensities in percent and the start of the policy."""
    world = World(seed, rounds, [0, 5, 10, 15])
    rng = world.rng
    age = rng.integers(18, 80, rounds)
    value = rng.gamma(4, 5000, rounds)
    bonus = rng.integers(0, 10, rounds)
    columns = {
        "Driver Age": standard(age),
        "Vehicle Value": standard(value),
        "Bonus Class": standard(bonus),
    }
    truth = [
        [-1.4, 0.1, 0, 0.2],
        [-1.1, 0.2, -0.2, 0],
        [-0.9, 0, 0.1, 0.1],
        [-0.7, -0.2, 0, 0],
    ]
    changes = [(3, "Vehicle Value", jump(-0.65)), (0, "level", ramp(0.9))]
    accepted = world.clicks(columns, truth, changes, _tilted(columns, 4))
    when = world.times(240)
    later = when + rng.integers(1, 30, rounds).astype("timedelta64[D]")
    # 1,234.50 becomes 1.234,50.
    swapped = str.maketrans(",.", ".,")
    table = {
        "Quote No": [f"Q{number:07d}" for number in np.arange(rounds) + 4000],
        "Quote Date": written(when, "%d.%m.%Y %H:%M"),
        "Driver Age": age,
        "Vehicle Value": [f"€ {amount:,.2f}".translate(swapped) for amount in value],
        "Bonus Class": bonus,
        "Discount Tier": world.arm,
        "Selection %": _commas((100 * world.chances).round(3)),
        "Accepted": np.where(accepted, "Yes", "No"),
        "Policy Start": np.where(accepted, written(later, "%d.%m.%Y"), ""),
    }
    return world.log(
        _write_csv(folder / "quotes.csv", table, ";"),
        *("Quote Date", "Discount Tier", "Accepted", "Selection %"),
        leaking={"Policy Start"},
    )


def energy(folder: Path, seed: int, rounds: int = 36_000) -> WildLog:
    """Tariffs in Parquet with a date and an hour; a credit follows from the reward."""
    world = World(seed, rounds, range(1, 7))
    rng = world.rng
    temperature = rng.normal(12, 8, rounds)
    size = rng.integers(1, 7, rounds)
    solar = rng.random(rounds) < 0.25
    columns = {
        "temp_c": standard(temperature),
        "hh_size": standard(size),
        "has_pv": solar - 0.25,
    }
    truth = [
        [0.5, 0.1, 0.2, 0],
        [0.7, 0, 0.1, 0.3],
        [0.6, -0.2, 0, 0],
        [0.4, 0, 0.3, 0.4],
        [0.8, 0.1, 0, -0.3],
        [0.55, 0.2, 0.1, 0],
    ]
    changes = [(1, "temp_c", wave(0.5)), (4, "level", jump(-0.8, 0.55))]
    shifted = world.amounts(1.0, columns, truth, changes, _tilted(columns, 6))
    when = world.times(200)
    days = when.astype("datetime64[D]")
    table = {
        "meter": rng.integers(10**6, 2 * 10**6, rounds),
        "d": pa.array(days),
        "hr": (when - days).astype("timedelta64[h]").astype(int),
        "temp_c": pa.array(temperature.round(1), mask=rng.random(rounds) < 0.04),
        "hh_size": size,
        "has_pv": solar,
        "tariff_code": world.arm,
        "p_assign": world.chances,
        "kwh_shifted": shifted.round(3),
        "bill_credit_eur": np.maximum(0, 0.3 * shifted).round(2),
    }
    return world.log(
        write_parquet(folder / "tariffs.parquet", table),
        *("d", "tariff_code", "kwh_shifted", "p_assign"),
        leaking={"bill_credit_eur"},
        options={"reward": "kwh_shifted"},
        candidates={"kwh_shifted", "bill_credit_eur"},
    )


def hotels(folder: Path, seed: int, rounds: int = 15_000) -> WildLog:
    """Hotels of a search, a row each, with a flag of the first; the effect of the price turns."""
    world = World(seed, rounds, [])
    rng = world.rng
    shape = (rounds, 5)
    stars = rng.integers(2, 6, shape)
    price = rng.gamma(4, 30, shape)
    distance = rng.exponential(3, shape)
    promoted = rng.random(shape) < 0.3
    z = np.stack(
        [
            (stars - 3.5) / 1.12,
            (price - 120) / 60,
            (distance - 3) / 3,
            promoted - 0.3,
        ],
        -1,
    )
    beta = np.tile([0.4, -0.4, -0.2, 0.3], (rounds, 1))
    beta[:, 1] += jump(0.8)(world.share)
    first, chances, booked = _of_rows(rng, -1.0, z, beta, 0.5 * z[:, :, 0])
    flat = first.ravel()
    per_row = {
        "stars": stars,
        "price_usd": price.round(2),
        "dist_km": distance.round(2),
        "on_promo": promoted.astype(int),
    }
    table = {
        "search_id": np.repeat(np.arange(rounds) + 90_000, 5),
        "srch_time": np.repeat(written(world.times(30), "%Y-%m-%dT%H:%M:%SZ"), 5),
        "hotel_id": rng.integers(1, 3000, rounds * 5),
        **{name: values.ravel() for name, values in per_row.items()},
        "shown_first": flat.astype(int),
        "p_first": np.where(flat, np.repeat(chances.round(6), 5).astype(str), ""),
        "booked": np.where(flat, np.repeat(booked.astype(int), 5).astype(str), ""),
    }
    return WildLog(
        path=_write_csv(folder / "hotels.csv", table),
        roles={
            "time": "srch_time",
            "round": "search_id",
            "chosen": "shown_first",
            "reward": "booked",
            "propensity": "p_first",
        },
        drifting={("", "price_usd")},
    )


def _of_rows(rng: Any, level: float, z: Any, beta: Any, utilities: Any) -> Any:
    """Choose one of the actions of every round by their features z (n, K, d).

    Returns which of them it is (n, K), its probability (n,) and whether it was a success (n,), with logistic
    mean level + zᵀβ, β (n, d).
    """
    means = _sigmoid(level + np.einsum("nkd,nd->nk", z, beta))
    chosen, chances = _choose(rng, utilities)
    success = rng.random(len(z)) < _of(chosen, means)
    return np.arange(z.shape[1]) == chosen[:, None], chances, success


def _only(flags: Any, values: Any) -> list[Any]:
    """Return the values (n,) where the flags are true, None elsewhere."""
    pairs = zip(flags.tolist(), values.tolist(), strict=True)
    return [value if flag else None for flag, value in pairs]


def chatbot(folder: Path, seed: int, rounds: int = 30_000) -> WildLog:
    """Styles of answers in packed JSON lines; what was not wanted stands beside the reward."""
    world = World(seed, rounds, ["concise", "step by step", "with example"])
    rng = world.rng
    intents = np.array(["billing", "howto", "outage", "refund"])
    length = rng.gamma(2, 40, rounds).round()
    turns = rng.integers(1, 9, rounds)
    intent = rng.integers(0, 4, rounds)
    columns = {
        "msg_len": standard(length),
        "n_turns": standard(turns),
        "intent": (intent == 3) - 0.25,
    }
    truth = [[0.2, 0.2, -0.2, 0], [0.4, 0, 0, -0.3], [0.1, 0.1, -0.1, 0.3]]
    changes = [(1, "n_turns", jump(-0.6, 0.45)), (2, "intent", jump(-1.4))]
    liked = world.clicks(columns, truth, changes, _tilted(columns, 3))
    stamps = milliseconds(world.times(25)) + rng.integers(0, 999, rounds)
    row = np.arange(rounds)
    table = {
        "conv": [f"c{number:06x}" for number in range(rounds)],
        "created": stamps,
        "model_rev": ["v7"] * rounds,
        "intent": intents[intent],
        "msg_len": length.astype(int),
        "n_turns": turns,
        "lang": np.array(["en", "de", "fr"])[row * 7919 % 3],
        "answer_style": world.arm,
        "sampling_prob": world.chances.round(5),
        "thumbs_up": liked,
        "escalated": ~liked & (row * 31 % 10 < 6),
    }
    return world.log(
        write_json_lines(folder / "chat.jsonl.gz", table),
        *("created", "answer_style", "thumbs_up", "sampling_prob"),
        times=stamps,
        leaking={"escalated"},
    )


def warehouse(folder: Path, seed: int, rounds: int = 24_000) -> WildLog:
    """Routes of pickers, drawn evenly without propensities; the zone may be the action as well."""
    world = World(seed, rounds, ["R1", "R2", "R3", "R4"])
    rng = world.rng
    lines = rng.integers(3, 60, rounds)
    weight = rng.gamma(3, 6, rounds)
    experience = rng.gamma(2, 10, rounds)
    zone = rng.integers(0, 4, rounds)
    columns = {
        "n_lines": standard(lines),
        "weight_kg": standard(weight),
        "picker_exp_m": standard(experience),
    }
    truth = [[90, 6, -4, 5], [95, 0, -6, 4], [93, 4, 0, 6], [88, -5, -3, 5]]
    changes = [(1, "n_lines", jump(-10.0)), (3, "level", ramp(14.0))]
    speed = world.amounts(15.0, columns, truth, changes)
    begin = world.times(100)
    minutes = 60 * lines / np.maximum(speed, 5)
    table = {
        "order_no": np.arange(rounds) + 880_000,
        "start": written(begin),
        "finish": written(begin + (minutes * 60).astype("timedelta64[s]")),
        "zone": np.array(["A", "B", "C", "D"])[zone],
        "n_lines": lines,
        "weight_kg": weight.round(1),
        "picker_exp_m": experience.round(1),
        "route_alg": world.arm,
        "pick_min": minutes.round(2),
        "picks_per_hr": speed.round(1),
    }
    return world.log(
        _write_csv(folder / "picks.csv", table, "|"),
        *("start", "route_alg", "picks_per_hr"),
        leaking={"finish", "pick_min"},
        options={"arm": "route_alg", "reward": "picks_per_hr"},
        candidates={"picks_per_hr"},
    )


def churn(folder: Path, seed: int, rounds: int = 24_000) -> WildLog:
    """What was done to keep a customer, with propensities in percent and a reward in days."""
    world = World(seed, rounds, ["call", "gift card", "nothing", "upgrade"])
    rng = world.rng
    tenure = rng.gamma(2, 14, rounds)
    tickets = rng.poisson(1, rounds)
    spend = rng.gamma(3, 15, rounds)
    columns = {
        "tenure_mths": standard(tenure),
        "tickets_90d": standard(tickets),
        "mrr": standard(spend),
    }
    truth = [[60, 6, -8, 0], [66, 0, -5, 5], [50, 4, -6, 0], [64, 0, 0, 8]]
    changes = [(1, "mrr", jump(-9.0, 0.6)), (0, "level", jump(12.0, 0.4))]
    days = world.amounts(16.0, columns, truth, changes, _tilted(columns, 4)).round(0)
    contacted = world.times(360).astype("datetime64[D]")
    table = {
        "acct": [f"A-{number}" for number in rng.integers(10_000, 99_999, rounds)],
        "contacted_on": contacted,
        "tenure_mths": tenure.round(1),
        "tickets_90d": tickets,
        "mrr": [f"${amount:.2f}" for amount in spend],
        "retention_play": world.arm,
        "play_pct": (100 * world.chances).round(2),
        "days_to_churn": days,
        "churned_on": contacted + days.astype("timedelta64[D]"),
    }
    return world.log(
        _write_csv(folder / "retention.csv", table),
        *("contacted_on", "retention_play", "days_to_churn", "play_pct"),
        leaking={"churned_on"},
    )


def thumbnails(folder: Path, seed: int, rounds: int = 40_000) -> WildLog:
    """Pictures of films in Parquet; the minutes watched follow from the play."""
    world = World(seed, rounds, ["face_closeup", "group shot", "logo", "scenery"])
    rng = world.rng
    hours = rng.gamma(2, 3, rounds)
    recency = rng.random(rounds)
    tv = rng.random(rounds) < 0.4
    columns = {
        "wk_hrs": standard(hours),
        "recency": standard(recency),
        "dev": tv - 0.4,
    }
    truth = [
        [-1, 0.2, 0.1, 0],
        [-1.2, 0, 0, 0.3],
        [-1.5, 0.2, 0, 0],
        [-1.1, 0, 0.3, -0.2],
    ]
    changes = [(0, "wk_hrs", jump(-0.6)), (2, "level", jump(0.8, 0.6))]
    played = world.clicks(columns, truth, changes, _tilted(columns, 4))
    minutes = rng.gamma(3, 15, rounds)
    table = {
        "profile": rng.integers(1, 10**8, rounds),
        "impr_time": world.times(40).astype("datetime64[ms]"),
        "wk_hrs": hours.round(2),
        "recency": recency.round(4),
        "dev": np.where(tv, "tv", "mobile"),
        "art": world.arm,
        "logged_p": world.chances,
        "played": played,
        "mins_watched": np.where(played, minutes, 0).round(1),
        "schema_ver": np.full(rounds, 3),
    }
    path = write_parquet(folder / "art.parquet", table)
    return world.log(
        path, "impr_time", "art", "played", "logged_p", leaking={"mins_watched"}
    )


def parking(folder: Path, seed: int, rounds: int = 30_000) -> WildLog:
    """Fees of garages: a date and an hour apart, amounts with a dollar sign, one of them the reward."""
    world = World(seed, rounds, [1.5, 2.0, 2.5, 3.0])
    world.arms = ("1.5", "2", "2.5", "3")
    rng = world.rng
    occupied = rng.beta(3, 2, rounds)
    temperature = rng.normal(14, 7, rounds)
    event = rng.random(rounds) < 0.15
    columns = {
        "occ_rate": standard(occupied),
        "temp": standard(temperature),
        "event_nearby": event - 0.15,
    }
    truth = [
        [3, 0.6, 0, 0.5],
        [3.4, 0.3, 0.2, 0.8],
        [3.6, 0, 0.1, 0.6],
        [3.3, -0.4, 0, 1.2],
    ]
    changes = [(2, "occ_rate", jump(0.9)), (0, "temp", wave(0.8))]
    income = world.amounts(1.8, columns, truth, changes, _tilted(columns, 4))
    when = world.times(150)
    signs = np.where(income >= 0, "", "-")
    pairs = zip(signs, np.abs(income), strict=True)
    table = {
        "date": written(when, "%Y-%m-%d"),
        "hour": [time.hour for time in when.tolist()],
        "garage": [f"G{number:02d}" for number in rng.integers(1, 30, rounds)],
        "occ_rate": occupied.round(3),
        "temp": _without([f"{value:.1f}" for value in temperature], rng, 0.05),
        "event_nearby": np.where(event, "true", "false"),
        "hourly_fee": world.arm,
        "pi": world.chances.round(5),
        "net_take": [f"{sign}${amount:.2f}" for sign, amount in pairs],
    }
    path = _write_csv(folder / "parking.csv", table)
    return world.log(path, "date", "hourly_fee", "net_take", "pi")


def jobs_match(folder: Path, seed: int, rounds: int = 14_000) -> WildLog:
    """Jobs offered to a person, a nested JSON line each."""
    world = World(seed, rounds, [])
    rng = world.rng
    shape = (rounds, 4)
    salary = rng.normal(60, 12, shape)
    skill = rng.random(shape)
    remote = rng.random(shape) < 0.4
    z = np.stack([(salary - 60) / 12, (skill - 0.5) / 0.289, remote - 0.4], -1)
    beta = np.tile([0.3, 0.5, 0.2], (rounds, 1))
    beta[:, 2] += jump(1.3, 0.55)(world.share)
    picked, chances, applied = _of_rows(rng, -1.1, z, beta, 0.4 * z[:, :, 1])
    flat = picked.ravel()
    seconds = world.times(60).astype(np.int64)
    table = {
        "req.uid": np.repeat([f"r{number}" for number in range(rounds)], 4),
        "req.epoch": np.repeat(seconds, 4),
        "job.salaryK": salary.ravel().round(1),
        "job.skillMatch": skill.ravel().round(3),
        "job.remote": remote.ravel(),
        "pick.isPicked": flat,
        "pick.pickProb": _only(flat, np.repeat(chances.round(6), 4)),
        "result.applied": _only(flat, np.repeat(applied.astype(int), 4)),
    }
    return WildLog(
        path=write_json_lines(folder / "jobs.jsonl", table),
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
    world = World(seed, rounds, range(1, 6))
    rng = world.rng
    accuracy = rng.beta(5, 3, rounds)
    gap = rng.gamma(1.5, 2, rounds)
    grade = rng.integers(4, 10, rounds)
    columns = {
        "prior_acc": standard(accuracy),
        "days_gap": standard(gap),
        "grade": standard(grade),
    }
    truth = [
        [0.3, 0.5, -0.1, 0],
        [0.2, 0.3, 0, 0.2],
        [0.4, 0.2, -0.2, 0],
        [0.1, 0.6, 0, 0.1],
        [0.25, 0.4, 0, 0],
    ]
    changes = [(4, "grade", jump(0.6)), (1, "level", ramp(-0.9))]
    correct = world.clicks(columns, truth, changes, _tilted(columns, 5))
    table = {
        "rowid": np.arange(rounds),
        "t": written(world.times(80), "%Y/%m/%d %H:%M:%S"),
        "learner": rng.integers(1, 5000, rounds),
        "prior_acc": accuracy.round(3),
        "days_gap": gap.round(2),
        "grade": grade,
        "hint_type": world.arm,
        "prob_pct": [f"{percent:.2f}%" for percent in 100 * world.chances],
        "correct": np.where(correct, "Y", "N"),
        "points": np.where(correct, rng.integers(5, 11, rounds), 0),
    }
    path = _write_csv(folder / "hints.csv", table)
    return world.log(path, "t", "hint_type", "correct", "prob_pct", leaking={"points"})


NEW_LOGS = by_name(
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
LATER_LOGS = by_name(thumbnails, parking, jobs_match, tutoring)
