"""A feature map of one's own: one class, which fitting, deciding and storing know."""

import numpy as np
import pyarrow as pa

import invariant_bandits as ib
from invariant_bandits import storage
from invariant_bandits.features.arm_maps import OwnCoefficients, PooledLevels
from invariant_bandits.features.columns import Column
from invariant_bandits.features.rows import RowFeatures


class WithSquares(RowFeatures):
    """Every feature and its square."""

    @property
    def encoded_names(self):
        names = super().encoded_names
        return (*names, *(f"{name} squared" for name in names))

    def encode(self, columns, counts=None, *, level=False):
        rows = super().encode(columns, counts, level=level)
        return np.column_stack([rows, rows[:, int(level) :] ** 2])


def parabola(rounds=4000):
    """The reward is 6x − x² and noise: largest at 3, which no linear model of x finds."""
    rng = np.random.default_rng(0)
    x = rng.uniform(1.0, 5.0, rounds)
    return pa.table({"x": x, "reward": 6.0 * x - x**2 + rng.normal(size=rounds)})


def test_a_model_of_an_own_map_decides_and_survives_storing():
    model = ib.fit_logs(parabola(), features=WithSquares((Column("x"),)))
    assert model.names == ("x", "x squared")
    offered = {"x": [1.0, 3.0, 5.0]}
    assert model.select(offered) == 1
    again = ib.Model.from_bytes(model.to_bytes(), "again")
    assert type(again.feature_map) is WithSquares
    np.testing.assert_array_equal(
        again.scores(offered).mean, model.scores(offered).mean
    )


def test_an_own_map_can_be_the_context_of_labelled_arms():
    features = OwnCoefficients(WithSquares((Column("x"),)), ("a", "b"))
    assert features.names == (
        "a",
        "a × x",
        "a × x squared",
        "b",
        "b × x",
        "b × x squared",
    )
    design = features.design({"x": [3.0], "arm": ["b"]})
    np.testing.assert_array_equal(design, [[0.0, 0.0, 0.0, 1.0, 3.0, 9.0]])


def test_a_state_names_the_class_of_its_map():
    """PooledLevels has the fields of OwnCoefficients: only the name tells them apart."""
    for kind in (OwnCoefficients, PooledLevels):
        features = kind(RowFeatures((Column("x"),)), ("a", "b"))
        assert storage.to_state(features)[0]["class"] == kind.__name__
