"""The expected reward of a model has the level of the end of its log, also where effects drift."""

import numpy as np
import pyarrow as pa
import pytest

import invariant_bandits as ib

ROUNDS = 12_000
PRICE = np.linspace(0.8, 1.5, ROUNDS)


def quotes(seed, moving):
    """Prices as features, not centred; from 60 to 90 % of the log the slope falls from −0.7 to −1.3, or the
    level falls by 0.2.
    """
    rng = np.random.default_rng(seed)
    share = np.arange(ROUNDS) / ROUNDS
    ramp = np.clip((share - 0.6) / 0.3, 0.0, 1.0)
    price, demand = rng.permutation(PRICE), rng.normal(size=ROUNDS)
    slope = -0.7 - (0.6 * ramp if moving == "slope" else 0.0)
    level = 1.2 - (0.2 * ramp if moving == "level" else 0.0)
    chance = np.clip(level + slope * (price - 0.6) + 0.05 * demand, 0.01, 0.99)
    bought = (rng.random(ROUNDS) < chance).astype(float)
    columns = {
        "time": np.arange(ROUNDS),
        "price": price,
        "demand": demand,
        "bought": bought,
    }
    return pa.table(columns), chance


@pytest.mark.parametrize("standardise", ["none", "scale and shift"])
@pytest.mark.parametrize("moving", ["slope", "level"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_scores_have_the_present_level(seed, moving, standardise):
    """Within 0.04 of the truth in the last tenth: the error of the mean of a window is 0.013, of which
    three fit; the average level of the log is off by 0.09 to 0.16.
    """
    table, chance = quotes(seed, moving)
    known = {"reward": "bought", "arm": None}
    model = ib.fit_logs(
        table, known, features=ib.FeatureOptions(standardise=standardise)
    )
    last = {name: table.column(name).to_numpy()[-1200:] for name in ("price", "demand")}
    scores = model.scores(last).mean
    assert scores.mean() == pytest.approx(chance[-1200:].mean(), abs=0.04)


def test_a_level_that_stays_is_the_mean_of_the_log_and_nothing_has_moved():
    table, chance = quotes(3, "nothing")
    model = ib.fit_logs(table, {"reward": "bought", "arm": None})
    rows = {name: table.column(name).to_numpy() for name in ("price", "demand")}
    assert model.scores(rows).mean.mean() == pytest.approx(chance.mean(), abs=0.02)
    shift, error = model.policy.explain().baseline_shift
    assert abs(shift) < error
