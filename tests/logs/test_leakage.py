"""Columns that give the reward away are found at every rate of success; ordinary features stay."""

import numpy as np
import pyarrow as pa
import pytest

import invariant_bandits as ib
from invariant_bandits.logs.leakage import leak_evidence

RATES = (0.01, 0.1, 0.3, 0.5, 0.6, 0.75, 0.9, 0.99)
ROUNDS = 6000


def sales(rate, seed=0, rounds=ROUNDS):
    """Quotes of five price levels; profit is 0 exactly where nothing was sold."""
    rng = np.random.default_rng(seed)
    segment, demand = rng.choice(["small", "large"], rounds), rng.normal(size=rounds)
    level = rng.integers(0, 5, rounds)
    odds = np.log(rate / (1.0 - rate)) + 0.3 * demand + 0.3 * (segment == "large")
    sold = rng.random(rounds) < 1.0 / (1.0 + np.exp(-odds))
    margin = 10.0 * np.array([0.9, 1.0, 1.1, 1.2, 1.3])[level] + rng.normal(
        0.0, 2.0, rounds
    )
    return {
        "level": [f"L{place}" for place in level],
        "segment": segment,
        "demand": demand,
        "list_price": np.array([9.0, 10.0, 11.0, 12.0, 13.0])[level],
        "sold": np.where(sold, "yes", "no"),
        "profit": np.where(sold, margin.round(2), 0.0),
    }


@pytest.mark.parametrize("rate", RATES)
def test_a_flag_of_the_outcome_is_left_out_at_every_rate_and_what_is_known_before_stays(
    rate,
):
    """As words, as a number of units, and against a list price that the arm determines."""
    columns = sales(rate)
    units = np.where(np.array(columns["sold"]) == "yes", 1 + np.arange(ROUNDS) % 3, 0)
    known = {"arm": "level", "reward": "profit"}
    schema = ib.open_log(pa.table(columns | {"units": units}), known).schema
    assert {"!sold", "!units"} <= set(schema.reasons)
    assert all(
        "gives the reward away" in schema.reasons[name] for name in ("!sold", "!units")
    )
    assert set(schema.features) == {"segment", "demand", "list_price"}


def test_rewards_of_a_few_values_are_given_away_by_a_flag_as_well():
    """Nothing sold is not the most frequent profit here: each of four prices is."""
    rng = np.random.default_rng(1)
    sold = rng.random(ROUNDS) < 0.9
    profit = pa.array(np.where(sold, rng.choice([4.0, 5.0, 6.0, 7.0], ROUNDS), 0.0))
    evidence = leak_evidence(pa.array(sold.astype(float)), np.asarray(profit))
    assert evidence is not None
    assert "surely have a reward of 0" in evidence


@pytest.mark.parametrize("rate", RATES)
def test_features_that_predict_a_reward_well_are_no_leaks(rate):
    """Twenty logs a rate: categories with rates from half to one and a half times the odds, and numbers.

    The chance that fewer than ten rows of one group agree is what could raise a false alarm: below 1e-9 each.
    """
    rng = np.random.default_rng(2)
    for _ in range(20):
        group, x = rng.integers(0, 30, ROUNDS), rng.normal(size=ROUNDS)
        odds = np.log(rate / (1.0 - rate)) + rng.normal(0.0, 0.5, 30)[group] + 0.5 * x
        sold = rng.random(ROUNDS) < 1.0 / (1.0 + np.exp(-odds))
        profit = np.where(sold, rng.choice([4.0, 5.0, 6.0], ROUNDS), 0.0)
        for rewards in (sold.astype(float), profit, -profit):
            assert leak_evidence(pa.array(group), rewards) is None
            assert leak_evidence(pa.array(x), rewards) is None
            assert (
                leak_evidence(pa.array(group.astype(str)), rewards, words=True) is None
            )


@pytest.mark.parametrize(("longer", "doubted"), [(1.6, True), (1.0, False)])
def test_how_long_a_call_took_is_doubted_where_it_goes_with_the_reward(longer, doubted):
    """The time is known after the call; where it says nothing of the sale it does no harm."""
    rng = np.random.default_rng(0)
    agent = rng.integers(3, size=ROUNDS)
    sold = rng.random(ROUNDS) < 0.2 + 0.05 * agent
    talk = rng.gamma(3.0, 80.0, ROUNDS) * np.where(sold, longer, 1.0)
    columns = {"tenure": rng.exponential(4.0, ROUNDS), "talk_time_s": talk.round()}
    log = pa.table({"agent": agent.astype(str), "sold": sold, **columns})
    notes = " ".join(ib.open_log(log, reward="sold", arm="agent").notes)
    assert ("--ignore talk_time_s" in notes) == doubted
