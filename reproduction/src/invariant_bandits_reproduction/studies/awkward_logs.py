"""Logs as real systems write them, with the worth of every action in fresh contexts.

Five kinds rebuild the logs of a data scientist who tried the package (a gateway to language models, a German
price list, push notifications in two JSON files, a dosing trial, a ranking). Five other kinds were written
before their author had seen how the code fares on them.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from invariant_bandits.checks import Array
from invariant_bandits.simulation.wild_logs import START, _commas, _sigmoid, _write_csv

FRESH = 3_000
"""Contexts after the end of a log on which decisions are judged."""
MONTH, QUARTER = 30.0, 91.0
RIDGE = 1.0
"""Penalty of the ridge regression per arm, on standardised columns."""


@dataclass
class AwkwardLog:
    """A written log, what its user knows, and the worth of every action after its end.

    Attributes
    ----------
    paths : list of Path
        The files.
    answers : mapping of str to mapping
        Option that a message may name -> fields of the schema or arguments of `fit_logs` that answer it.
    arms : tuple of str
        Labels of the arms, in the order of `worth`.
    contexts : list of dict
        Fresh contexts, as a service would send them; for a ranking one dict of lists per page.
    worth : array, shape (n, A)
        Expected reward of every arm in every fresh context, more is better.
    logged : float
        Expected reward per fresh round of the policy that wrote the log.
    design, fresh_design : array, shape (m, q), (n, q)
        Columns of the logged and of the fresh rounds as a user would prepare them by hand.
    chosen, reward : array, shape (m,)
        Arms and rewards of the logged rounds; more is better, NaN if missing.
    days : array, shape (m,)
        Time of the logged rounds.
    drifting : set of (arm, column)
        Effects that may drift: "level", where the mean over the contexts moves, or a column; of every arm if
        the arm is "".
    leaking : set of str
        Columns that are known only after the choice.
    ranking : Ranking or None
        For a ranking, what its pages are worth.
    """

    paths: list[Path]
    answers: Mapping[str, Mapping[str, Any]]
    arms: tuple[str, ...]
    contexts: list[dict[str, Any]]
    worth: Array
    logged: float
    design: Array
    fresh_design: Array
    chosen: Array
    reward: Array
    days: Array
    drifting: set[tuple[str, str]] = field(default_factory=set)
    leaking: set[str] = field(default_factory=set)
    ranking: Ranking | None = None

    def gain(self, chosen: Array) -> float:
        """Return what these choices (n,) in the fresh contexts earn beside the policy that wrote the log."""
        return float(self.worth[np.arange(len(chosen)), chosen].mean()) - self.logged

    def constant_gain(self) -> float:
        """Return the gain of the best arm that is played in every context; NaN for a ranking."""
        if self.ranking is not None:
            return float("nan")
        return float(self.worth.mean(axis=0).max()) - self.logged

    def hindsight_gain(self) -> float:
        """Return the gain of the best of three ridge regressions per arm: all, last quarter, last month."""
        return max(self._ridge_gain(days) for days in (np.inf, QUARTER, MONTH))

    def _ridge_gain(self, days: float) -> float:
        recent = (self.days > self.days.max() - days) & np.isfinite(self.reward)
        if self.ranking is not None:
            scores = ridge(self.design[recent], self.reward[recent], self.fresh_design)
            return self.ranking.value(scores.reshape(self.worth.shape)) - self.logged
        scores = np.full(self.worth.shape, -np.inf)
        for arm in range(len(self.arms)):
            rows = recent & (self.chosen == arm)
            if rows.any():
                scores[:, arm] = ridge(
                    self.design[rows], self.reward[rows], self.fresh_design
                )
        return self.gain(scores.argmax(axis=1))


@dataclass
class Ranking:
    """Pages of items of which the user clicks at most one.

    Attributes
    ----------
    attraction : array, shape (n, K)
        Probability of a click on an item that the user examines.
    examined : array, shape (K,)
        Probability that the user examines the item at a position.
    """

    attraction: Array
    examined: Array

    def value(self, scores: Array) -> float:
        """Return the clicks per page if items (n, K) are shown by falling score."""
        order = np.argsort(-scores, axis=1, kind="stable")
        shown = np.take_along_axis(self.attraction, order, axis=1)
        return float((1.0 - np.prod(1.0 - self.examined * shown, axis=1)).mean())


def ridge(design: Array, reward: Array, fresh: Array) -> Array:
    """Return the predictions of a ridge regression with an intercept for fresh rows."""
    centre = design.mean(axis=0)
    scale = np.where(design.std(axis=0) > 0.0, design.std(axis=0), 1.0)
    x = (design - centre) / scale
    normal = x.T @ x + RIDGE * np.eye(x.shape[1])
    slopes = np.linalg.solve(normal, x.T @ (reward - reward.mean()))
    return np.asarray(reward.mean() + ((fresh - centre) / scale) @ slopes)


@dataclass(frozen=True)
class Clock:
    """The rounds of a log in time order, and FRESH ones after its end.

    Attributes
    ----------
    rng : numpy.random.Generator
        Of all that is drawn for them.
    rounds : int
        Logged rounds.
    days : float
        Length of the log.
    share : array, shape (n,)
        Time of every round as a share of the log; 1 for the fresh ones.
    """

    rng: np.random.Generator
    rounds: int
    days: float
    share: Array

    @classmethod
    def draw(cls, seed: int, rounds: int, days: float, fresh: int = FRESH) -> Clock:
        """Draw the times of the logged rounds."""
        rng = np.random.default_rng(seed)
        share = np.concatenate([np.sort(rng.random(rounds)), np.ones(fresh)])
        return cls(rng, rounds, days, share)

    def later(self, share: float, change: float) -> Array:
        """Return a change that comes after this share of the log (n,), and 0 before it."""
        return np.where(self.share > share, change, 0.0)

    def stamps(self) -> Array:
        """Return the times of the rounds, in seconds."""
        return START + (self.share * self.days * 86_400).astype("timedelta64[s]")

    def written(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        """Return the logged rounds of columns (n,)."""
        return {name: values[: self.rounds] for name, values in columns.items()}

    def log(
        self,
        *,
        context: Mapping[str, Any],
        design: Array,
        worth: Array,
        chances: Array,
        chosen: Array,
        reward: Array,
        **files: Any,
    ) -> AwkwardLog:
        """Return the log of a policy that drew its arms with chances (n, A); files: its other fields."""
        end = self.rounds
        earned = (chances * worth)[end:].sum(axis=1)
        return AwkwardLog(
            contexts=_rows(context)[end:],
            worth=worth[end:],
            logged=float(earned.mean()),
            design=design[:end],
            fresh_design=design[end:],
            chosen=chosen[:end],
            reward=reward[:end].astype(float),
            days=self.share[:end] * self.days,
            **files,
        )


def _draw(rng: Any, chances: Array) -> Array:
    """Draw one arm per row of chances (n, A)."""
    above = rng.random(len(chances))[:, None] > np.cumsum(chances, axis=1)[:, :-1]
    return np.asarray(above.sum(axis=1))


def _softmax(utilities: Array, floor: float) -> Array:
    """Return softmax probabilities mixed with a uniform share."""
    weights = np.exp(utilities - utilities.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    return np.asarray((1.0 - floor) * weights + floor / utilities.shape[1])


def _with_effects(start: Array, *effects: tuple[Any, float, float, Any]) -> Array:
    """Return start (n, A) plus effects on every arm: column (n,), its mean and deviation, slopes (A,)."""
    for column, mean, deviation, slopes in effects:
        start = start + ((column - mean) / deviation)[:, None] * np.asarray(slopes)
    return start


def _picked(values: Array, chosen: Array) -> Array:
    return values[np.arange(len(chosen)), chosen]


def _one_hot(codes: Array, count: int) -> Array:
    return np.eye(count)[codes]


def _rows(columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of columns, with plain values."""
    lists = [np.asarray(values).tolist() for values in columns.values()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*lists, strict=True)]


def _answers(**fields: Any) -> dict[str, dict[str, Any]]:
    """Return what answers the options --reward, --arm and so on, by the names of their fields."""
    return {
        f"--{name.replace('_', '-')}": {name: value} for name, value in fields.items()
    }


def _json_lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    packed = path.suffix == ".gz"
    path.write_bytes(gzip.compress(text.encode(), 1) if packed else text.encode())
    return path


def llm_gateway(folder: Path, seed: int, rounds: int = 26_000) -> AwkwardLog:
    """Requests to six language models in packed JSON lines; a thumb for 30 %, more often for code.

    The user has added thumb − 15 · cost. The embedding is a list, times have four UTC offsets. The effect of
    one number of the embedding on mini-2 turns, and the level of opus-large falls.
    """
    clock = Clock.draw(seed, rounds, days=150.0)
    rng = clock.rng
    n = len(clock.share)
    models = ("flash-3", "haiku-s", "llama-70b", "mini-2", "opus-large", "sonar-m")
    tasks = np.array(["chat", "code", "extract", "summarise"])
    task, tenant = rng.integers(0, 4, n), rng.integers(0, 14, n)
    tokens = np.exp(rng.normal(6.0, 0.9, n)).round()
    stream, embedding = rng.random(n) < 0.7, rng.normal(0.0, 1.0, (n, 8)).round(4)
    long = (np.log(tokens) - 6.0) / 0.9
    basic = np.array([0.5, 0.3, 1.2, 0.4, 1.3, 0.2])
    of_task = np.array(
        [
            [0.8, -0.8, 0.2, 0.0],
            [0.3, -0.6, 0.0, 0.3],
            [0.2, 0.2, 0.0, 0.0],
            [0.0, -0.5, 0.9, 0.2],
            [0.0, 0.9, 0.0, 0.0],
            [0.0, -0.4, 0.0, 1.2],
        ]
    )
    slopes = np.zeros((6, 8))
    slopes[[0, 1, 3, 4, 5], [0, 1, 3, 0, 2]] = [0.6, -0.6, 0.9, -0.6, 0.7]
    logits = basic + of_task[:, task].T + embedding @ slopes.T
    logits += long[:, None] * np.array([-0.3, -0.2, 0.1, -0.2, 0.3, 0.0])
    logits[:, 3] += clock.later(0.69, -1.8) * embedding[:, 3]
    logits[:, 4] += clock.later(0.83, -0.9)
    price = np.array([0.6, 0.4, 2.0, 0.8, 9.0, 1.0]) * 1e-6
    cost = price * (tokens[:, None] + 400.0)
    worth = _sigmoid(logits) - 15.0 * cost
    chances = _softmax(np.column_stack([0.8 * (task == t % 4) for t in range(6)]), 0.4)
    chosen = _draw(rng, chances)
    thumb = rng.random(n) < _picked(_sigmoid(logits), chosen)
    rated = rng.random(n) < np.where(task == 1, 0.46, 0.25)
    paid = _picked(cost, chosen) * np.exp(rng.normal(0.0, 0.1, n))
    offsets = ("Z", "+02:00", "-05:00", "+09:00")
    hours = (0, 2, -5, 9)
    zone = rng.integers(0, 4, n)
    local = clock.stamps() + np.array(hours)[zone].astype("timedelta64[h]")
    context = {
        "tenant": np.array([f"tenant-{t:02d}" for t in range(14)])[tenant],
        "task_type": tasks[task],
        "prompt_tokens": tokens.astype(int),
        "stream": stream,
        "embedding": embedding,
    }
    rows = _rows(context)
    logged = [
        {
            "request_id": f"req_{row:08x}",
            "created_at": f"{local[row]}{offsets[zone[row]]}",
            **rows[row],
            "model": models[chosen[row]],
            "router_prob": round(float(_picked(chances, chosen)[row]), 6),
            "latency_ms": int(400 * (1 + chosen[row]) * np.exp(0.2 * long[row])),
            "cost_usd": round(float(paid[row]), 7),
            "thumbs": ("up" if thumb[row] else "down") if rated[row] else None,
            "net_value": (
                round(float(thumb[row] - 15.0 * paid[row]), 6) if rated[row] else None
            ),
        }
        for row in range(rounds)
    ]
    path = _json_lines(folder / "gateway.jsonl.gz", logged)
    design = np.column_stack([_one_hot(task, 4), long, embedding])
    net = np.where(rated, thumb - 15.0 * paid, np.nan)
    return clock.log(
        paths=[path],
        answers=_answers(reward="net_value", arm="model", keep_going=True),
        arms=models,
        context=context,
        chances=chances,
        worth=worth,
        chosen=chosen,
        reward=net,
        design=design,
        drifting={("mini-2", "embedding[3]"), ("opus-large", "level")},
        leaking={"cost_usd", "thumbs", "latency_ms"},
    )


PRICE_LEVELS = 5
"""Levels into which the user has `fit_logs` cut thousands of prices."""


def price_list(folder: Path, seed: int, rounds: int = 18_000) -> AwkwardLog:
    """Quotes of a German system: semicolons, decimal commas, Latin-1, day first, thousands of prices.

    The user wants the contribution margin; `gekauft` is known only after the quote. High prices sell worse
    from month nine on.
    """
    clock = Clock.draw(seed, rounds, days=365.0)
    rng = clock.rng
    n = len(clock.share)
    segments = np.array(["Großkunde", "Händler", "Privat"])
    segment, demand = rng.integers(0, 3, n), rng.normal(0.0, 1.0, n).round(2)
    rival = (50.0 + 4.0 * rng.normal(0.0, 1.0, n)).round(2)
    ratio = rng.uniform(0.75, 1.35, n)
    price = (rival * ratio).round(2)
    unit = 12.0

    def chance(price: Array, rows: slice) -> Array:
        share = clock.share[rows]
        falling = np.where(share > 0.75, 1.2 * (share - 0.75) / 0.25, 0.0)
        relative = price / rival[rows] - 1.0
        steep = np.array([9.0, 5.5, 3.0])[segment[rows]]
        logit = 1.0 - steep * relative + 0.6 * demand[rows]
        return np.asarray(_sigmoid(logit - falling * (relative > 0.05)))

    bought = rng.random(n) < chance(price, slice(None))
    margin = np.where(bought, price - unit, 0.0).round(2)
    cuts = np.quantile(price[:rounds], np.linspace(0, 1, PRICE_LEVELS + 1)[1:-1])
    level = np.searchsorted(cuts, price)
    fresh = slice(rounds, n)
    worth = np.column_stack(
        [
            np.mean(
                [(p - unit) * chance(np.full(FRESH, p), fresh) for p in prices], axis=0
            )
            for prices in (
                np.quantile(
                    price[:rounds][level[:rounds] == k], (0.1, 0.3, 0.5, 0.7, 0.9)
                )
                for k in range(PRICE_LEVELS)
            )
        ]
    )
    context = {
        "Segment": segments[segment],
        "Nachfrageindex": demand,
        "Wettbewerbspreis": rival,
    }
    stamps = clock.stamps()
    table = {
        "Angebotsnr": [f"A-{row:06d}" for row in range(rounds)],
        "Datum": [t.item().strftime("%d.%m.%Y %H:%M") for t in stamps],
        "Segment": segments[segment],
        "Nachfrageindex": _commas(demand),
        "Wettbewerbspreis": _commas(rival),
        "Preis": _commas(price),
        "gekauft": np.where(bought, "ja", "nein"),
        "Deckungsbeitrag": _commas(margin),
    }
    path = _write_csv(
        folder / "angebote.csv", clock.written(table), ";", "latin-1", "", "\r\n"
    )
    design = np.column_stack([_one_hot(segment, 3), demand, rival])
    logged = (price[fresh] - unit) * chance(price[fresh], fresh)
    return AwkwardLog(
        paths=[path],
        answers=_answers(reward="Deckungsbeitrag", arm="Preis", levels=PRICE_LEVELS)
        | {"--ignore gekauft": {"ignore": ["gekauft"]}},
        arms=tuple(f"level {k}" for k in range(PRICE_LEVELS)),
        contexts=_rows(context)[rounds:],
        worth=worth,
        logged=float(logged.mean()),
        design=design[:rounds],
        fresh_design=design[rounds:],
        chosen=level[:rounds],
        reward=margin[:rounds],
        days=clock.share[:rounds] * clock.days,
        drifting={
            ("", column)
            for column in ("level", "Segment", "Nachfrageindex", "Wettbewerbspreis")
        },
        leaking={"gekauft"},
    )


def push_hours(folder: Path, seed: int, rounds: int = 40_000) -> AwkwardLog:
    """Hours of push notifications in two JSON files with a stream's faults; students tire of late hours.

    The second file renames `seg`, writes true for 1, and rows are not in order. A seventh of the rows come
    twice, the second time with the click. Propensities are text.
    """
    clock = Clock.draw(seed, rounds, days=160.0)
    rng = clock.rng
    n = len(clock.share)
    hours = tuple(f"{hour:02d}h" for hour in range(8, 23, 2))
    groups = np.array(["family", "retired", "student", "worker"])
    group, opens = rng.integers(0, 4, n), rng.poisson(3.0, n)
    weekend, android = rng.random(n) < 2 / 7, rng.random(n) < 0.6
    truth = np.zeros((8, 4))
    truth[:, 0] = np.linspace(0.1, -0.3, 8)
    truth[:, 1] = np.array([0.5, 0.6, 0.3, 0.1, -0.1, -0.3, -0.7, -1.2])
    truth[:, 2] = np.array([-1.2, -0.8, -0.3, 0.0, 0.1, 0.4, 0.9, 1.0])
    truth[:, 3] = np.array([0.1, -0.4, 0.4, -0.5, -0.4, 0.5, 0.4, 0.0])
    logits = _with_effects(
        -0.9 + truth[:, group].T,
        (opens, 3.0, 1.7, np.linspace(0.1, 0.4, 8)),
        (weekend, 0.0, 1.0, [-0.5, -0.2, 0.2, 0.2, 0.1, 0.0, 0.0, 0.2]),
    )
    logits[:, 6:] += (clock.later(0.7, -1.6) * (group == 2))[:, None]
    worth = _sigmoid(logits)
    favourite = np.array([1, 0, 6, 5])[group]
    chances = np.full((n, 8), 0.3 / 8)
    chances[np.arange(n), np.where(rng.random(n) < 0.5, favourite, 5)] += 0.7
    chosen = _draw(rng, chances)
    opened = rng.random(n) < _picked(worth, chosen)
    context = {
        "segment": groups[group],
        "opens_30d": opens,
        "weekend": weekend,
        "platform": np.where(android, "android", "ios"),
    }
    rows = _rows(context)
    stamps = clock.stamps()
    prob = _picked(chances, chosen)
    files: tuple[list[Any], list[Any]] = ([], [])
    for row in range(rounds):
        second = int(clock.share[row] > 0.5)
        event = {
            "notification_id": f"n{row:07d}",
            "sent_at": f"{stamps[row]}Z",
            **rows[row],
            "hour": hours[chosen[row]],
            "propensity": f"{prob[row]:.4f}",
            "opened": bool(opened[row]) if second else int(opened[row]),
        }
        if second:
            event["weekend"] = bool(weekend[row])
        else:
            event["weekend"] = int(weekend[row])
            event["seg"] = event.pop("segment")
        if rng.random() < 1 / 7:
            files[second].append(event | {"opened": False if second else 0})
        files[second].append(event)
    for events in files:
        # Swap neighbours: rows arrive nearly in order, and copies keep theirs.
        for row in range(0, len(events) - 1, 9):
            first, next_event = events[row], events[row + 1]
            if first["notification_id"] != next_event["notification_id"]:
                events[row], events[row + 1] = next_event, first
    paths = [
        _json_lines(folder / f"push-{number}.jsonl", events)
        for number, events in enumerate(files, 1)
    ]
    design = np.column_stack([_one_hot(group, 4), opens, weekend, android])
    return clock.log(
        paths=paths,
        answers=_answers(rename={"seg": "segment"}, arm="hour", reward="opened"),
        arms=hours,
        context=context,
        chances=chances,
        worth=worth,
        chosen=chosen,
        reward=opened,
        design=design,
        drifting={
            (hour, column) for hour in ("20h", "22h") for column in ("segment", "level")
        },
    )


def dosing_trial(folder: Path, seed: int, rounds: int = 1_200) -> AwkwardLog:
    """A trial of three doses: 1,200 patients, 33 columns, pain after eight weeks; −999 stands for missing.

    Seven columns matter, and the effect of egfr under the high dose turns. Less pain is better.
    """
    clock = Clock.draw(seed, rounds, days=720.0)
    rng = clock.rng
    n = len(clock.share)
    doses = ("low", "standard", "high")
    age, egfr = rng.normal(60.0, 12.0, n).round(), rng.normal(80.0, 18.0, n).round(1)
    weight, pain = rng.normal(78.0, 14.0, n).round(1), rng.normal(55.0, 12.0, n).round()
    crp, albumin = rng.gamma(2.0, 4.0, n).round(1), rng.normal(40.0, 4.0, n).round(1)
    female, site = rng.random(n) < 0.5, rng.integers(0, 8, n)
    x = np.column_stack(
        [
            (age - 60.0) / 12.0,
            (egfr - 80.0) / 18.0,
            (weight - 78.0) / 14.0,
            (pain - 55.0) / 12.0,
            (crp - 8.0) / 5.7,
            (albumin - 40.0) / 4.0,
            female - 0.5,
        ]
    )
    slopes = np.array(
        [
            [3.3, -1.0, 4.0, 4.0, 1.0, 0.0, 0.0],
            [3.3, 0.0, 0.0, 4.0, 0.0, 0.0, -2.0],
            [3.3, -3.0, -4.0, 4.0, 0.0, -1.0, 3.0],
        ]
    )
    expected = np.array([44.0, 42.5, 43.0]) + x @ slopes.T
    expected[:, 2] += clock.later(0.5, 9.0) * x[:, 1]
    chances = np.tile([0.25, 0.5, 0.25], (n, 1))
    chosen = _draw(rng, chances)
    outcome = _picked(expected, chosen) + rng.normal(0.0, 8.0, n)
    labs = rng.normal(0.0, 1.0, (n, 22)).round(2)
    context = {
        "site": np.array([f"S{s + 1}" for s in range(8)])[site],
        "age": age,
        "sex": np.where(female, "f", "m"),
        "weight_kg": weight,
        "egfr": egfr,
        "pain_week0": pain,
        "crp": crp,
        "albumin": albumin,
        **{f"lab_{k + 1:02d}": labs[:, k] for k in range(22)},
    }
    gone = {name: rng.random(n) < 0.015 for name in ("crp", "albumin")}
    written = {
        name: np.where(gone[name], -999.0, values) if name in gone else values
        for name, values in context.items()
    }
    table = {
        "visit": [str(t)[:10] for t in clock.stamps()],
        **written,
        "dose": np.array(doses)[chosen],
        "pain_week8": outcome.round(1),
    }
    path = _write_csv(folder / "trial.csv", clock.written(table))
    return clock.log(
        paths=[path],
        answers=_answers(
            minimise=True, missing=["-999"], arm="dose", reward="pain_week8"
        ),
        arms=doses,
        context=context,
        chances=chances,
        worth=-expected,
        chosen=chosen,
        reward=-outcome,
        design=x,
        drifting={("high", "egfr")},
    )


def search_ranking(folder: Path, seed: int, rounds: int = 40_000) -> AwkwardLog:
    """Impressions of search pages with ten items each and at most one click; novelty stops to attract.

    The page that wrote the log ranks by margin, which attracts nobody; `rating` is a feature, not a reward.
    """
    items = 10
    pages, fresh_pages = rounds // items, FRESH // 3
    clock = Clock.draw(seed, pages, 90.0, fresh_pages)
    rng = clock.rng
    n = len(clock.share)
    relevance, margin = rng.normal(0, 1, (n, items)), rng.normal(0, 1, (n, items))
    rating = rng.integers(20, 51, (n, items)) / 10.0
    is_new, price = rng.random((n, items)) < 0.3, rng.gamma(4.0, 10.0, (n, items))
    relevance = relevance.round(3)
    margin = margin.round(3)
    price = price.round(2)
    of_new = np.where(clock.share > 0.6, -1.2, 1.2)[:, None]
    logit = -2.2 + 0.9 * relevance + 0.5 * (rating - 3.5) - 0.4 * (price - 40.0) / 20.0
    attraction = _sigmoid(logit + of_new * is_new)
    examined = 1.0 / np.arange(1, items + 1) ** 0.9
    score = margin + 0.4 * relevance + rng.normal(0.0, 0.6, (n, items))
    order = np.argsort(-score, axis=1)
    position = np.argsort(order, axis=1)
    clicks = rng.random((n, items)) < examined * np.take_along_axis(
        attraction, order, 1
    )
    first = np.where(clicks.any(axis=1), clicks.argmax(axis=1), -1)
    device = rng.choice(["app", "desktop", "mobile"], n)
    features = {
        "relevance": relevance,
        "margin": margin,
        "rating": rating,
        "is_new": is_new.astype(int),
        "price": price,
    }
    stamps = clock.stamps()
    table: dict[str, list[Any]] = {
        name: []
        for name in (
            "impression_id",
            "request_id",
            "ts",
            "device",
            *features,
            "position",
            "clicked",
        )
    }
    for page in range(pages):
        for rank, item in enumerate(order[page]):
            table["impression_id"].append(f"i{page * items + rank:07d}")
            table["request_id"].append(f"r{page:06d}")
            table["ts"].append(f"{stamps[page]}Z")
            table["device"].append(device[page])
            for name, values in features.items():
                table[name].append(values[page, item])
            table["position"].append(rank + 1)
            table["clicked"].append(int(first[page] == rank))
    path = _write_csv(folder / "impressions.csv", table)
    flat = np.stack(list(features.values()), axis=-1).astype(float)
    shown = _one_hot(position, items)
    logged_rows = np.concatenate([flat, shown], axis=-1)[:pages]
    top = np.zeros((fresh_pages, items, items))
    top[:, :, 0] = 1.0
    fresh_rows = np.concatenate([flat[pages:], top], axis=-1)
    ranking = Ranking(attraction[pages:], examined)
    contexts = [
        {name: values[page].tolist() for name, values in features.items()}
        | {"device": [device[page]] * items}
        for page in range(pages, n)
    ]
    return AwkwardLog(
        paths=[path],
        answers=_answers(reward="clicked", ranking="request_id")
        | {"--no-action": {"arm": None, "action": None}},
        arms=tuple(map(str, range(items))),
        contexts=contexts,
        worth=attraction[pages:],
        logged=ranking.value(score[pages:]),
        design=logged_rows.reshape(-1, logged_rows.shape[-1]),
        fresh_design=fresh_rows.reshape(-1, fresh_rows.shape[-1]),
        chosen=np.zeros(rounds, dtype=int),
        reward=(first[:pages, None] == position[:pages]).reshape(-1).astype(float),
        days=np.repeat(clock.share[:pages] * clock.days, items),
        # Where novelty stops to attract, pages have fewer clicks, and the effects of
        # all that attracts and of positions shrink in probability points.
        drifting={
            ("", column)
            for column in ("is_new", "relevance", "rating", "price", "position")
        },
        ranking=ranking,
    )


def subject_lines(folder: Path, seed: int, rounds: int = 12_000) -> AwkwardLog:
    """A marketing tool's test of four subject lines; its weights change by week and are not written.

    The tool writes Opened and Not opened, a flag of the click, and a bounce reason. The urgent line wears
    off.
    """
    clock = Clock.draw(seed, rounds, days=84.0)
    rng = clock.rng
    n = len(clock.share)
    lines = ("A - Sale ends tonight", "B - Your picks", "C - 20 % off", "D - News")
    tiers = np.array(["Bronze", "Gold", "Silver"])
    tier, idle = rng.integers(0, 3, n), rng.exponential(40.0, n).round()
    basket, age = rng.gamma(2.0, 30.0, n).round(2), rng.integers(18, 80, n)
    logits = _with_effects(
        np.array([-0.4, -0.7, -0.6, -0.9]),
        (age, 49.0, 18.0, [-0.5, 0.4, 0.0, 0.5]),
        (basket, 60.0, 42.0, [-0.3, 0.6, 0.0, 0.1]),
        (idle, 40.0, 40.0, [-0.1, -0.4, 0.3, -0.2]),
        (tier == 1, 0.0, 1.0, [0.0, 0.5, -0.5, 0.3]),
    )
    logits[:, 0] -= clock.later(0.5, 1.0)
    worth = _sigmoid(logits)
    week = np.minimum((clock.share * 12).astype(int), 11)
    weights = rng.dirichlet(np.full(4, 5.0), 12) * 0.6 + 0.1
    chances = weights[week]
    chosen = _draw(rng, chances)
    opened = rng.random(n) < _picked(worth, chosen)
    clicked = opened & (rng.random(n) < 0.3)
    context = {
        "Loyalty tier": tiers[tier],
        "Days since last order": idle.astype(int),
        "Average basket": basket,
        "Age": age,
    }
    stamps = clock.stamps()
    table = {
        "Contact ID": rng.integers(10**7, 10**8, rounds),
        "Campaign": ["Spring 2024"] * rounds,
        "Send date": [t.item().strftime("%m/%d/%Y %I:%M %p") for t in stamps],
        **context,
        "Subject line": np.array(lines)[chosen],
        "Open status": np.where(opened, "Opened", "Not opened"),
        "Link clicked": np.where(clicked, "Y", "N"),
        "Bounce reason": [""] * rounds,
    }
    path = _write_csv(
        folder / "campaign_export.csv", clock.written(table), ",", "utf-8-sig"
    )
    design = np.column_stack([_one_hot(tier, 3), idle, basket, age])
    return clock.log(
        paths=[path],
        answers=_answers(
            reward_values={"Opened": 1.0, "Not opened": 0.0}, reward="Open status"
        )
        | {"--ignore 'Open status'": {"reward": "Open status"}}
        | _answers(arm="Subject line")
        | {"--ignore 'Link clicked'": {"ignore": ["Link clicked"]}},
        arms=lines,
        context=context,
        chances=chances,
        worth=worth,
        chosen=chosen,
        reward=opened,
        design=design,
        drifting={(lines[0], "level")},
        leaking={"Link clicked"},
    )


def ticket_router(folder: Path, seed: int, rounds: int = 16_000) -> AwkwardLog:
    """Support tickets to six teams; 45 % of the customers answer with a satisfaction of 1 to 5.

    Hours to resolution are known only afterwards. Enterprise customers lose patience with one team.
    """
    clock = Clock.draw(seed, rounds, days=300.0)
    rng = clock.rng
    n = len(clock.share)
    teams = ("apps", "billing", "cloud", "core", "field", "night")
    topics = np.array(["account", "bug", "invoice", "outage", "setup"])
    plans = np.array(["enterprise", "free", "pro"])
    topic, plan = rng.integers(0, 5, n), rng.integers(0, 3, n)
    words, urgent = rng.gamma(2.0, 60.0, n).round(), rng.integers(1, 5, n)
    fit = rng.permuted(np.tile([0.8, 0.3, 0.0, -0.3, -0.6], (6, 1)), axis=1)
    mean = _with_effects(
        3.3 + fit[:, topic].T + 0.2 * rng.normal(0.0, 1.0, 6),
        (words, 120.0, 85.0, [0.2, -0.2, 0, 0.1, 0, -0.1]),
        (urgent, 2.5, 1.1, [-0.2, 0, 0.2, 0, 0, 0.1]),
    )
    mean[:, 3] -= clock.later(0.55, 1.4) * (plan == 0)
    fine = np.stack(
        [np.clip(mean + z, 0.5, 5.5) for z in (-1.3, -0.6, 0.0, 0.6, 1.3)], -1
    )
    worth = np.clip(fine, 1.0, 5.0).mean(axis=-1)
    chances = _softmax(0.8 * fit[:, topic].T * rng.choice([-1, 1], 6), 0.4)
    chosen = _draw(rng, chances)
    noise = rng.integers(0, 5, n)
    score = np.clip(fine[np.arange(n), chosen, noise] + rng.uniform(-0.5, 0.5, n), 1, 5)
    score = score.round().astype(int)
    rated = rng.random(n) < np.where(plan == 1, 0.3, 0.55)
    context = {
        "Topic": topics[topic],
        "Plan": plans[plan],
        "Word count": words.astype(int),
        "Priority": np.array(["P1", "P2", "P3", "P4"])[urgent - 1],
    }
    stamps = clock.stamps()
    hours = (rng.gamma(2.0, 5.0, n) * (6 - score)).round(1)
    table = {
        "Ticket": [f"#{row + 48_000}" for row in range(rounds)],
        "Created": [str(t).replace("T", " ") for t in stamps],
        **context,
        "Assigned team": np.array(teams)[chosen],
        "Hours to resolution": hours,
        "Satisfaction": np.where(rated, score.astype(str), ""),
    }
    path = _write_csv(folder / "tickets.csv", clock.written(table), ";", "cp1252")
    design = np.column_stack(
        [_one_hot(topic, 5), _one_hot(plan, 3), words, _one_hot(urgent - 1, 4)]
    )
    return clock.log(
        paths=[path],
        answers=_answers(keep_going=True, reward="Satisfaction", arm="Assigned team")
        | {
            "--maximise": {"minimise": False},
            "--ignore 'Hours to resolution'": {"ignore": ["Hours to resolution"]},
        },
        arms=teams,
        context=context,
        chances=chances,
        worth=worth,
        chosen=chosen,
        reward=np.where(rated, score, np.nan),
        design=design,
        drifting={("core", "Plan"), ("core", "level")},
        leaking={"Hours to resolution"},
    )


def ad_server(folder: Path, seed: int, rounds: int = 30_000) -> AwkwardLog:
    """An export of an ad server in Parquet: epoch milliseconds, creatives as 64-bit numbers, money in micros.

    The reward is revenue, mostly zero; clicks and costs are known only after the choice. Sports pages lose
    interest in one creative.
    """
    clock = Clock.draw(seed, rounds, days=45.0)
    rng = clock.rng
    n = len(clock.share)
    creatives = 138_000_000_001 + np.array([0, 170, 351, 912, 1377])
    sites = np.array(["news", "recipes", "sports", "weather"])
    site, hour = rng.integers(0, 4, n), rng.integers(0, 24, n)
    seen, phone = rng.poisson(2.0, n), rng.random(n) < 0.65
    viewable = rng.beta(4.0, 2.0, n).round(3)
    of_site = np.array(
        [
            [0.6, -0.4, 0.0, 0.0],
            [-0.4, 0.9, 0.0, 0.2],
            [0.0, -0.5, 1.2, 0.0],
            [0.0, 0.0, 0.2, 0.6],
            [0.2, 0.2, -0.3, -0.2],
        ]
    )
    logits = _with_effects(
        -1.9 + of_site[:, site].T,
        (phone, 0.0, 1.0, [0.5, -0.4, 0.2, -0.2, 0.0]),
        (seen, 2.0, 1.4, [-0.4, 0, -0.1, -0.2, 0.1]),
        (viewable, 0.67, 0.18, 0.3),
    )
    logits[:, 2] -= clock.later(0.6, 1.8) * (site == 2)
    paid = np.array([1.0, 1.1, 0.9, 1.2, 1.0])
    worth = _sigmoid(logits) * paid
    chances = _softmax(0.5 * of_site[:, site].T * np.array([-1, 1, 1, -1, 1]), 0.5)
    chosen = _draw(rng, chances)
    click = rng.random(n) < _picked(_sigmoid(logits), chosen)
    revenue = np.where(click, paid[chosen] * rng.gamma(20.0, 1 / 20.0, n), 0.0)
    context = {
        "site_section": sites[site],
        "hour_of_day": hour,
        "frequency": seen,
        "is_mobile": phone,
        "viewability": viewable,
    }
    millis = clock.stamps().astype("datetime64[ms]").astype(np.int64)
    table = {
        "impression_id": [f"{v:016x}" for v in rng.integers(0, 2**62, rounds)],
        "event_time_ms": millis,
        "advertiser_id": np.full(rounds, 778_812),
        **context,
        "creative_id": creatives[chosen],
        "serving_share": _picked(chances, chosen),
        "media_cost_micros": (1e6 * rng.gamma(9.0, 0.002, rounds)).astype(np.int64),
        "clicks": click.astype(int),
        "revenue_micros": (1e6 * revenue).round().astype(np.int64),
    }
    path = folder / "delivery.parquet"
    pq.write_table(pa.table(clock.written(table)), path)
    design = np.column_stack([_one_hot(site, 4), hour, seen, phone, viewable])
    return clock.log(
        paths=[path],
        answers={"--reward revenue_micros": {"reward": "revenue_micros"}}
        | _answers(reward="revenue_micros", arm="creative_id")
        | {"--ignore media_cost_micros": {"ignore": ["media_cost_micros"]}},
        arms=tuple(map(str, creatives)),
        context=context,
        chances=chances,
        worth=worth,
        chosen=chosen,
        reward=revenue,
        design=design,
        drifting={(str(creatives[2]), column) for column in ("site_section", "level")},
        leaking={"clicks"},
    )


def game_difficulty(folder: Path, seed: int, rounds: int = 15_000) -> AwkwardLog:
    """Difficulty settings 1 to 5 of a game in nested JSON lines; the outcome is churn, so less is better.

    Beginners bear hard settings worse after an update of the game.
    """
    clock = Clock.draw(seed, rounds, days=120.0)
    rng = clock.rng
    n = len(clock.share)
    settings = np.arange(1, 6)
    skill, deaths = rng.normal(0.0, 1.0, n).round(3), rng.poisson(4.0, n)
    hours, source = rng.exponential(12.0, n).round(2), rng.integers(0, 3, n)
    distance = settings[None] - 3.0 - 1.1 * skill[:, None]
    logits = _with_effects(
        -1.2 + 0.22 * distance**2,
        (deaths, 4.0, 2.0, 0.1),
        (source == 1, 0.0, 1.0, [0.4, 0.2, 0.0, -0.2, -0.4]),
    )
    logits[:, 3] += clock.later(0.5, -0.8) * skill
    churn = _sigmoid(logits)
    chances = _softmax(-0.3 * (settings[None] - 3.0) ** 2 + np.zeros((n, 5)), 0.4)
    chosen = _draw(rng, chances)
    left = rng.random(n) < _picked(churn, chosen)
    context = {
        "skill": skill,
        "deaths_last_level": deaths,
        "hours_played": hours,
        "install_source": np.array(["ads", "friend", "store"])[source],
    }
    rows = _rows(context)
    stamps = clock.stamps()
    prob = _picked(chances, chosen)
    logged = [
        {
            "session": f"s-{row:06d}",
            "t": f"{stamps[row]}.000Z",
            "player": rows[row],
            "cfg": {"difficulty": int(settings[chosen[row]]), "build": "1.8"},
            "assign_prob": round(float(prob[row]), 5),
            "churned_d7": bool(left[row]),
        }
        for row in range(rounds)
    ]
    path = _json_lines(folder / "sessions.ndjson", logged)
    design = np.column_stack([skill, deaths, hours, _one_hot(source, 3)])
    return clock.log(
        paths=[path],
        answers=_answers(minimise=True, reward="churned_d7", arm="cfg.difficulty"),
        arms=tuple(map(str, settings)),
        context={f"player.{name}": values for name, values in context.items()},
        chances=chances,
        worth=-churn,
        design=design,
        chosen=chosen,
        reward=-left.astype(float),
        drifting={("4", "player.skill")},
    )


def call_routing(folder: Path, seed: int, rounds: int = 12_000) -> AwkwardLog:
    """Calls to four skill groups, tab-separated; handling time in seconds, long-tailed, so less is better.

    Transfers are known only afterwards. A new system slows one group down for long-standing customers.
    """
    clock = Clock.draw(seed, rounds, days=200.0)
    rng = clock.rng
    n = len(clock.share)
    groups = ("contracts", "general", "retention", "technical")
    reasons = np.array(["bill", "cancel", "fault", "move"])
    reason, years = rng.integers(0, 4, n), rng.gamma(2.0, 3.0, n).round(1)
    waited, repeat = rng.exponential(90.0, n).round(), rng.random(n) < 0.25
    of_reason = np.array(
        [
            [-120.0, 40.0, 80.0, -60.0],
            [0.0, 60.0, 60.0, 0.0],
            [60.0, -150.0, 110.0, 40.0],
            [80.0, 90.0, -160.0, 30.0],
        ]
    )
    seconds = _with_effects(
        420.0 + of_reason[:, reason].T,
        (waited, 90.0, 90.0, 15.0),
        (repeat, 0.0, 1.0, [40.0, 60.0, 20.0, -20.0]),
        (years, 6.0, 4.2, [-30.0, 0.0, 10.0, 20.0]),
    )
    seconds[:, 0] += clock.later(0.5, 90.0) * (years - 6.0) / 4.2
    seconds = np.maximum(seconds, 30.0)
    chances = _softmax(-0.005 * of_reason[:, reason].T, 0.3)
    chosen = _draw(rng, chances)
    handled = _picked(seconds, chosen) * rng.gamma(4.0, 0.25, n)
    context = {
        "call_reason": reasons[reason],
        "customer_years": years,
        "queue_wait_s": waited.astype(int),
        "repeat_caller": np.where(repeat, "Y", "N"),
    }
    stamps = clock.stamps()
    table = {
        "call_ref": [f"{row:09d}" for row in range(rounds)],
        "answered": [t.item().strftime("%Y/%m/%d %H:%M:%S") for t in stamps],
        **context,
        "skill_group": np.array(groups)[chosen],
        "handle_time_s": handled.round().astype(int),
        "transferred": (rng.random(n) < _sigmoid((handled - 700) / 150)) * 1,
    }
    path = _write_csv(folder / "calls.tsv", clock.written(table), "\t")
    design = np.column_stack([_one_hot(reason, 4), years, waited, repeat])
    return clock.log(
        paths=[path],
        answers=_answers(minimise=True, reward="handle_time_s", arm="skill_group")
        | {
            "--ignore handle_time_s": {"reward": "handle_time_s"},
            "--ignore transferred": {"ignore": ["transferred"]},
        },
        arms=groups,
        context=context,
        chances=chances,
        worth=-seconds,
        chosen=chosen,
        reward=-handled,
        design=design,
        drifting={("contracts", "customer_years")},
        leaking={"transferred"},
    )


TRIED_LOGS: dict[str, Callable[..., AwkwardLog]] = {
    maker.__name__: maker
    for maker in (llm_gateway, price_list, push_hours, dosing_trial, search_ranking)
}
OTHER_KINDS: dict[str, Callable[..., AwkwardLog]] = {
    maker.__name__: maker
    for maker in (
        subject_lines,
        ticket_router,
        ad_server,
        game_difficulty,
        call_routing,
    )
}
AWKWARD_LOGS = TRIED_LOGS | OTHER_KINDS
