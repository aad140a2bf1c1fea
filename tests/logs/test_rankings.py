"""Logs of rankings: recognised by their positions, read item by item, and never taken for full information."""

import numpy as np
import pyarrow as pa
import pytest

import invariant_bandits as ib
from invariant_bandits import InputError
from reading import read_feedback

ITEMS = 5


def pages(count=4000, seed=0, most_clicks=1):
    """Pages of five items in the order of `margin`, which no visitor cares for; the first places are seen."""
    rng = np.random.default_rng(seed)
    margin = -np.sort(-rng.normal(size=(count, ITEMS)), axis=1)
    rating = rng.normal(size=(count, ITEMS))
    seen = 0.6 / (1.0 + np.arange(ITEMS))
    clicked = rng.random((count, ITEMS)) < seen * (0.4 + 0.3 * np.tanh(rating))
    clicked &= np.cumsum(clicked, axis=1) <= most_clicks
    return pa.table(
        {
            "ts": np.repeat(np.arange(count), ITEMS),
            "request_id": np.repeat([f"q{page}" for page in range(count)], ITEMS),
            "position": np.tile(np.arange(1, ITEMS + 1), count),
            "rating": rating.ravel(),
            "margin": margin.ravel(),
            "clicked": clicked.ravel().astype(int),
        }
    )


def standardised_effect(model, name):
    """Mean of a coefficient over the windows, in its standard errors."""
    fit, index = model.decomposition, list(model.names).index(name)
    variance = fit.coefficient_covariances_[:, index, index].sum()
    return fit.coefficients_[:, index].sum() / np.sqrt(variance)


@pytest.mark.parametrize("most_clicks", [1, ITEMS])
def test_a_ranking_is_recognised_and_its_position_is_a_feature(most_clicks):
    """Pages are sorted by margin, so that margin seems to attract clicks unless the position is known.

    The effect of margin misses zero by more than 3.3 standard errors in 1 of 1,000 draws.
    """
    model = ib.fit_logs(pages(most_clicks=most_clicks))
    assert model.schema.ranking == "request_id"
    assert model.schema.position == "position"
    assert "is a ranking" in model.notes[0]
    assert "position=1" in model.names
    assert abs(standardised_effect(model, "margin")) < 3.3
    none = {"ranking": None, "round": None, "arm": None}
    blind = ib.fit_logs(pages(most_clicks=most_clicks), none)
    assert blind.moments.rounds == model.moments.rounds == 4000 * ITEMS
    assert standardised_effect(blind, "margin") > 10.0


def test_items_of_a_ranking_are_compared_at_one_position():
    model = ib.fit_logs(pages())
    items = {"rating": [-1.0, 2.0, 0.0], "margin": [0.0, 0.0, 0.0]}
    assert model.select(items) == 1
    assert model.select({**items, "position": [1, 1, 1]}) == 1


def test_full_information_is_refused_for_a_ranking():
    roles = {"reward": "clicked", "round": "request_id", "full_information": True}
    with pytest.raises(
        InputError, match=r"are a ranking by 'position'.*--ranking none"
    ):
        ib.open_log(pages(), roles)
    assert ib.open_log(pages(), {**roles, "ranking": None}).schema.full_information


def test_evaluation_of_a_ranking_says_why_it_cannot_be():
    with pytest.raises(InputError, match="is a ranking"):
        read_feedback(pages())


def test_a_position_that_a_choice_was_shown_at_is_not_a_ranking():
    rng = np.random.default_rng(1)
    table = pa.table(
        {
            "user_id": rng.integers(0, 400, 4000),
            "position": rng.integers(1, 4, 4000),
            "banner": rng.choice(["a", "b"], 4000),
            "age": rng.normal(size=4000),
            "clicked": rng.integers(0, 2, 4000),
        }
    )
    schema = ib.open_log(table).schema
    assert schema.ranking is None
    assert schema.features == ("age",)
