"""What a caller says about names and values of a log, and what a log is asked about."""

import json

import numpy as np
import pyarrow as pa
import pytest

import invariant_bandits as ib
from invariant_bandits.logs.column_names import less_is_better
from invariant_bandits.reports import values
from invariant_bandits.simulation.wild_logs import OTHER_LOGS, WILD_LOGS
from invariant_bandits.simulation.wild_more import LATER_LOGS, NEW_LOGS
from reading import read_feedback

ROUNDS = 3000


def doses(seed=0, rounds=ROUNDS):
    """A trial of three doses: the high one hurts least, most of all with a small crp."""
    rng = np.random.default_rng(seed)
    dose, crp = (
        rng.choice(["low", "standard", "high"], rounds),
        rng.uniform(1.0, 60.0, rounds),
    )
    effect = {"low": 0.0, "standard": -4.0, "high": -9.0}
    pain = (
        45.0
        + np.array([effect[each] for each in dose])
        + 0.1 * crp
        + rng.normal(0.0, 5.0, rounds)
    )
    return {"visit": np.arange(rounds), "dose": dose, "crp": crp, "pain_week8": pain}


KNOWN = {"time": "visit", "arm": "dose", "reward": "pain_week8"}


def test_a_reward_whose_name_says_that_less_is_better_is_not_maximised_in_silence():
    table = pa.table(doses())
    for function in (ib.fit_logs, read_feedback):
        with pytest.raises(
            ib.InputError,
            match=r"pain_week8.*--minimise.*learns −pain_week8.*--maximise",
        ):
            function(table, KNOWN)
    with pytest.raises(ib.InputError, match="--minimise"):
        ib.fit_logs(table, ib.Schema("pain_week8", ("crp",), time="visit", arm="dose"))
    turned = table.set_column(
        3, "pain_week8", pa.array(-table.column("pain_week8").to_numpy())
    )
    assert ib.fit_logs(turned, KNOWN).decide({"crp": 20.0}).action == "high"
    worst = ib.fit_logs(table, {**KNOWN, "minimise": False})
    assert worst.decide({"crp": 20.0}).action == "low"


def test_a_minimised_reward_is_learned_with_its_sign_turned_everywhere(tmp_path):
    """In fit, update, a stored model, learning online and evaluate; rewards are always given as they are."""
    table = pa.table(doses())
    model = ib.fit_logs(table.slice(0, 2000), {**KNOWN, "minimise": True})
    assert "less of pain_week8 is better: rewards are −pain_week8" in model.notes[0]
    model.save(tmp_path / "model.ib")
    model = ib.load(tmp_path / "model.ib").update_from(table.slice(2000)).model
    pain = float(np.mean(doses()["pain_week8"]))
    mean = (
        float(model.moments.counts @ model.moments.reward_mean) / model.moments.rounds
    )
    assert mean == pytest.approx(-pain)
    decision = model.decide({"crp": 20.0})
    assert decision.action == "high"
    for _ in range(300):
        model.learn(model.decide({"crp": 20.0}, ["high"]), 90.0)
    assert model.decide({"crp": 20.0}).action != "high"
    feedback = read_feedback(table, {**KNOWN, "minimise": True}).feedback
    assert feedback.rewards.mean() == pytest.approx(-pain)


def test_a_minimised_reward_of_zero_and_one_stays_one_of_zero_and_one():
    columns = doses()
    columns["churned"] = (columns.pop("pain_week8") > 40.0).astype(int)
    known = {"time": "visit", "arm": "dose", "reward": "churned", "minimise": True}
    model = ib.fit_logs(pa.table(columns), known)
    assert model.log_odds is not None
    assert model.schema.reward_words == "1 − churned"
    assert model.decide({"crp": 20.0}).action == "high"


def test_names_of_costs_ask_and_names_of_gains_do_not(tmp_path):
    costs = (
        "pain",
        "cost_usd",
        "Latenz_ms",
        "error",
        "churned",
        "daysLost",
        "Rückerstattung Kosten",
        "retraso",
        "handle_time_s",
        "Hours to resolution",
        "call duration",
    )
    gains = (
        "clicked",
        "profit_eur",
        "days_to_churn",
        "cost_saved",
        "no_refund",
        "rating",
        "survival_days",
        "watch_time",
        "minutes_played",
        "on_time",
    )
    assert all(map(less_is_better, costs))
    assert not any(map(less_is_better, gains))
    for kind, write in (WILD_LOGS | OTHER_LOGS | NEW_LOGS | LATER_LOGS).items():
        reward = write(tmp_path, 0, rounds=2000).roles.get("reward")
        assert not less_is_better(reward), kind


def test_a_value_far_outside_that_repeats_is_named_first_and_can_be_missing():
    columns = doses()
    broken = np.random.default_rng(1).random(ROUNDS) < 0.015
    columns["crp"] = np.where(broken, -999.0, columns["crp"])
    table, known = pa.table(columns), {**KNOWN, "minimise": True}
    first = ib.fit_logs(table, known).notes[0]
    assert "'crp' is -999 in 1." in first
    assert "--missing=crp=-999" in first
    for missing in ("-999", "crp=-999"):
        model = ib.fit_logs(table, {**known, "missing": [missing]})
        assert not any("-999" in note for note in model.notes)
        assert model.quality.imputed == {"crp": int(broken.sum())}
        assert model.scores({"crp": -999.0}).mean == pytest.approx(
            model.scores({"crp": None}).mean
        )


@pytest.mark.parametrize("seed", range(20))
def test_ordinary_columns_have_no_value_far_outside(seed):
    rng = np.random.default_rng(seed)
    columns = {
        "x": rng.normal(size=ROUNDS),
        "heavy": rng.standard_t(2.0, ROUNDS).round(2),
        "counts": rng.poisson(3.0, ROUNDS),
        "zeros": np.where(rng.random(ROUNDS) < 0.2, 0.0, rng.gamma(3.0, 10.0, ROUNDS)),
        "flag": rng.random(ROUNDS) < 0.01,
        "arm": rng.choice(["a", "b"], ROUNDS),
        "click": rng.random(ROUNDS) < 0.1,
    }
    assert ib.open_log(pa.table(columns)).schema.doubts == ()


def renamed_lines(folder, copied=0):
    """Two files of JSON lines: the column `seg` is called `segment` in the second. The first `copied` rows of
    each come twice, with the same `event_id`.
    """
    columns = doses()
    segment = np.random.default_rng(2).choice(["north", "south", "west"], ROUNDS)
    reward = columns["pain_week8"] - 12.0 * (
        (columns["dose"] == "low") & (segment == "south")
    )
    for number, name in enumerate(("seg", "segment")):
        rows = range(number * ROUNDS // 2, (number + 1) * ROUNDS // 2)
        identified = {"event_id": "e{}"} if copied else {}
        lines = [
            {
                "visit": int(columns["visit"][row]),
                **{key: words.format(row) for key, words in identified.items()},
                "dose": columns["dose"][row],
                name: segment[row],
                "pain_week8": float(reward[row]),
            }
            for row in rows
        ]
        lines = lines[:copied] + lines
        (folder / f"part{number}.jsonl").write_text(
            "".join(f"{json.dumps(line)}\n" for line in lines)
        )
    return str(folder)


def test_a_renamed_column_is_suspected_and_can_be_read_as_one(tmp_path):
    known = {**KNOWN, "minimise": True}
    halves = ib.fit_logs(renamed_lines(tmp_path), known)
    assert any("--rename seg=segment" in note for note in halves.notes)
    model = ib.fit_logs(str(tmp_path), {**known, "rename": {"seg": "segment"}})
    assert model.schema.features == ("segment",)
    assert not model.quality.imputed
    assert not any(effect["drifts"] for effect in values.effects(model))
    assert model.decide({"segment": "south"}).action == "low"
    assert model.decide({"segment": "north"}).action == "high"


def test_a_renamed_column_is_suspected_where_rows_repeat_decisions(tmp_path):
    known = {**KNOWN, "minimise": True}
    halves = ib.fit_logs(renamed_lines(tmp_path, copied=ROUNDS // 8), known)
    assert halves.quality.merged == 2 * (ROUNDS // 8)
    assert any("--rename seg=segment" in note for note in halves.notes)


def test_wrong_words_about_a_log_are_refused():
    table = pa.table(doses())
    for words, message in [
        ({"rename": {"nothing": "crp2"}}, "column 'nothing' is not in the log"),
        ({"missing": "-999"}, "missing must be a list of texts"),
        ({"reward_values": {"up": "1"}}, "reward_values must be numbers by words"),
        (
            {"levels": 5},
            "'dose' cannot be cut into 5 levels, it has 0 different numbers",
        ),
        ({"levels": 500, "arm": "crp"}, "levels must be at most 100"),
        ({"minimise": 1}, "minimise must be true or false"),
    ]:
        with pytest.raises(ib.InputError, match=message):
            ib.open_log(table, {**KNOWN, **words})


def quotes(seed=0, rounds=6000):
    """Prices drawn freely around a customer's; the best is about 10 + 2 · large."""
    rng = np.random.default_rng(seed)
    large = rng.random(rounds) < 0.5
    price = rng.uniform(6.0, 16.0, rounds).round(2)
    chance = 1.0 / (1.0 + np.exp(price - 10.0 - 3.0 * large))
    profit = (price - 5.0) * (rng.random(rounds) < chance)
    segment = np.where(large, "large", "small")
    return {
        "day": np.arange(rounds),
        "Preis": price,
        "segment": segment,
        "Deckungsbeitrag": profit,
    }


def true_profit(price, segment):
    return (price - 5.0) / (1.0 + np.exp(price - 10.0 - 3.0 * (segment == "large")))


PRICES = {"time": "day", "arm": "Preis", "reward": "Deckungsbeitrag"}


def test_a_column_of_amounts_as_arm_stops_and_names_what_works():
    with pytest.raises(
        ib.InputError,
        match=r"(?s)different numbers.*--arm Preis --levels 5.*--no-action",
    ):
        ib.fit_logs(pa.table(quotes()), PRICES)
    cents = quotes()
    cents["Preis"] = (100 * cents["Preis"]).astype(int)
    with pytest.raises(ib.InputError, match="different numbers"):
        ib.fit_logs(pa.table(cents), PRICES)
    grid = quotes()
    grid["Preis"] = grid["Preis"].round()  # eleven prices are labels
    assert ib.open_log(pa.table(grid), PRICES).arms.labels[0] in ("6", "6.0")


def test_levels_of_an_amount_are_arms_that_earn_nearly_what_the_best_price_does(
    tmp_path,
):
    """At least 85 % of the profit of the best price in either segment; the levels are 1.25 wide."""
    table = pa.table(quotes())
    model = ib.fit_logs(table.slice(0, 5000), {**PRICES, "levels": 8})
    assert "the arms are 8 levels of Preis" in model.notes[0]
    assert len(model.arms.labels) == 8
    model.save(tmp_path / "prices.ib")
    loaded = ib.load(tmp_path / "prices.ib").update_from(table.slice(5000)).model
    assert loaded.arms.labels == model.arms.labels
    chosen = {
        name: float(loaded.decide({"segment": name}).action)
        for name in ("large", "small")
    }
    grid = np.linspace(6.0, 16.0, 1001)
    for segment, price in chosen.items():
        best = true_profit(grid, segment).max()
        assert true_profit(price, segment) > 0.85 * best
