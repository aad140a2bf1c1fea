"""Wide vector columns: the planted directions are found, and a model with them decides, learns and is stored."""

import numpy as np
import pyarrow as pa
import pytest

import invariant_bandits as ib
from invariant_bandits.features.columns import Column
from invariant_bandits.features.wide_columns import (
    MOST_DIRECTIONS,
    cross_fitted,
    reduced_columns,
    wide_directions,
)
from invariant_bandits.moments.windowed import WindowedMoments

WINDOWS, ARMS = 8, 4


def planted_cells(numbers, rank, rng, *, rounds=16_000, drift=0.0):
    """Moments per window and arm, the coefficients (numbers, ARMS), and the direction that drifts for arm 0."""
    vectors = rng.normal(size=(rounds, numbers))
    arms = rng.integers(ARMS, size=rounds)
    window = np.arange(rounds) * WINDOWS // rounds
    left, right = rng.normal(size=(numbers, rank)), rng.normal(size=(rank, ARMS))
    coefficients = left @ right / np.sqrt(numbers)
    direction = rng.normal(size=numbers)
    direction /= np.linalg.norm(direction)
    rewards = (vectors * coefficients[:, arms].T).sum(axis=1) + rng.normal(size=rounds)
    course = np.tile([1.0, -1.0], WINDOWS // 2)[window]
    rewards += drift * course * (arms == 0) * (vectors @ direction)
    encoded = np.column_stack([np.ones(rounds), vectors])
    cells = WindowedMoments.empty(numbers + 1, WINDOWS * ARMS)
    cells.update(encoded, rewards, window=window * ARMS + arms)
    return cells.chosen, coefficients, direction


def explained(directions, vectors):
    """Share of the squares of `vectors` that lies in the span of `directions`."""
    basis, _ = np.linalg.qr(directions)
    return float(((basis.T @ vectors) ** 2).sum() / (vectors**2).sum())


def test_the_planted_rank_and_its_directions_are_found():
    # Each coefficient of a direction has the variance 1 / rounds of an arm, so that a direction loses about
    # numbers / rounds of the squares; half as much again is five standard deviations.
    lost = 2 * 96 / 4000
    for seed in range(5):
        sums, coefficients, _ = planted_cells(96, 2, np.random.default_rng(seed))
        [found] = wide_directions(sums, ARMS, [np.arange(1, 97)])
        assert found.directions.shape == (96, 2)
        assert found.drifting == 0
        share_lost = 1.0 - explained(found.directions, coefficients)
        assert share_lost < 1.5 * lost / (coefficients**2).sum()


def test_a_direction_that_drifts_for_one_arm_is_found_beside_those_that_last():
    for seed in range(5):
        rng = np.random.default_rng(seed)
        sums, coefficients, direction = planted_cells(96, 1, rng, drift=0.8)
        [found] = wide_directions(sums, ARMS, [np.arange(1, 97)])
        assert found.drifting == 1
        assert explained(found.directions, direction[:, None]) > 0.9
        assert explained(found.directions, coefficients) > 0.9


def test_noise_has_no_drifting_direction():
    # The edge leaves less than one of a thousand matrices: 20 of them all pass with probability above .98.
    for seed in range(20):
        rng = np.random.default_rng(seed)
        sums, _, _ = planted_cells(48, 1, rng, rounds=8000)
        [found] = wide_directions(sums, ARMS, [np.arange(1, 49)])
        assert found.drifting == 0


def test_no_more_directions_than_allowed_however_many_arms():
    rng = np.random.default_rng(0)
    arms = 80
    vectors = rng.normal(size=(24_000, 100))
    arm = rng.integers(arms, size=len(vectors))
    coefficients = rng.normal(size=(100, arms))
    rewards = (vectors * coefficients[:, arm].T).sum(axis=1)
    cells = WindowedMoments.empty(100, 2 * arms)
    cells.update(vectors, rewards, window=np.arange(24_000) // 12_000 * arms + arm)
    [found] = wide_directions(cells.chosen, arms, [np.arange(100)])
    assert found.directions.shape[1] == MOST_DIRECTIONS


def test_cross_fitted_sums_do_not_promise_what_noise_promised():
    """Rewards that do not depend on the column seem to, in the rounds that chose its directions."""
    rng = np.random.default_rng(1)
    cells = WindowedMoments.empty(201, WINDOWS * ARMS)
    vectors = rng.normal(size=(3000, 200))
    cell = rng.integers(WINDOWS * ARMS, size=3000)
    encoded = np.column_stack([np.ones(3000), vectors])
    cells.update(encoded, rng.normal(size=3000), window=cell)
    column = Column("text", width=200)
    [reduced], changes = reduced_columns([column], cells.chosen, ARMS, of_arms=True)
    whole = np.zeros((len(changes[0]), 202))
    whole[0, 0] = whole[-1, -1] = 1.0
    whole[1:-1, 1:-1] = reduced.directions.T

    def correlation(sums):
        products = sums.scatter.sum(axis=0)
        return products[1, -1] / np.sqrt(products[1, 1] * products[-1, -1])

    plain = cross_fitted(
        cells.chosen, sums_like(cells.chosen, whole), ARMS, [whole] * 4
    )
    honest = cross_fitted(cells.chosen, sums_like(cells.chosen, whole), ARMS, changes)
    assert abs(correlation(honest)) < 0.5 * abs(correlation(plain)) + 0.04


def sums_like(sums, change):
    """Sums over the changed variables, by which `cross_fitted` only goes for shapes."""
    return sums.rescaled(
        np.zeros(len(change), dtype=np.int64),
        np.zeros(len(change)),
        np.ones(len(change)),
    )


def embedding_log(rounds, rng, *, numbers=64, arms=3, clicks=False):
    vectors = rng.normal(size=(rounds, numbers)) / np.sqrt(numbers)
    coefficients = 2.0 * rng.normal(size=(numbers, arms))
    arm = rng.integers(arms, size=rounds)
    mean = (vectors * coefficients[:, arm].T).sum(axis=1)
    rewards = mean + rng.normal(size=rounds)
    if clicks:
        rewards = (rng.random(rounds) < 1.0 / (1.0 + np.exp(-mean))).astype(float)
    table = pa.table(
        {
            "embedding": vectors.tolist(),
            "hour": rng.normal(size=rounds),
            "arm": [f"arm{index}" for index in arm],
            "reward": rewards,
        }
    )
    return table, coefficients


@pytest.mark.parametrize("clicks", [False, True], ids=["amounts", "clicks"])
def test_a_model_of_an_embedding_earns_nearly_what_the_truth_would(clicks):
    rng = np.random.default_rng(3)
    table, coefficients = embedding_log(12_000, rng, clicks=clicks)
    model = ib.fit_logs(table, reward="reward", arm="arm")
    [note] = [note for note in model.notes if note.startswith("embedding: 64 numbers")]
    assert "reduced to" in note
    vectors = rng.normal(size=(400, 64)) / 8.0
    means = vectors @ coefficients
    chosen = [
        int(model.decide({"embedding": row.tolist(), "hour": 0.0}).action[3:])
        for row in vectors
    ]
    gain = means[np.arange(400), chosen].mean() - means.mean()
    assert gain > 0.9 * (means.max(axis=1).mean() - means.mean())


def test_directions_survive_a_file(tmp_path):
    rng = np.random.default_rng(4)
    table, _ = embedding_log(3000, rng)
    model = ib.fit_logs(table, reward="reward", arm="arm")
    ib.save(model, tmp_path / "model")
    again = ib.load(tmp_path / "model")
    for row in rng.normal(size=(50, 64)):
        context = {"embedding": row.tolist(), "hour": 0.0}
        assert again.decide(context).scores == model.decide(context).scores


def test_a_vector_of_another_length_is_refused():
    table, _ = embedding_log(3000, np.random.default_rng(5))
    model = ib.fit_logs(table, reward="reward", arm="arm")
    with pytest.raises(ib.InputError, match="embedding"):
        model.decide({"embedding": [0.0] * 63, "hour": 0.0})


def test_rows_of_several_hundred_numbers_are_reduced_as_well():
    rng = np.random.default_rng(6)
    features = rng.normal(size=(6000, 300))
    coefficients = rng.normal(size=300) / np.sqrt(300)
    rewards = features @ coefficients + rng.normal(size=6000)
    table = pa.table({"phi": features.tolist(), "reward": rewards})
    model = ib.fit_logs(table, reward="reward")
    assert model.feature_map.dim < 10
    offered = rng.normal(size=(200, 5, 300))
    chosen = [model.select({"phi": actions.tolist()}) for actions in offered]
    means = offered @ coefficients
    assert means[np.arange(200), chosen].mean() > 0.9 * means.max(axis=1).mean()
