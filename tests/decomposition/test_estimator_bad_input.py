"""What cannot be fitted is refused by name, and a fitted object stays as it was."""

import numpy as np
import pytest

from invariant_bandits import (
    InputError,
    InvariantSubspaceDecomposition,
    Split,
    WindowedMoments,
)
from invariant_bandits.decomposition import estimator as estimator_module
from worlds import piecewise_world

WORLD = piecewise_world(np.random.default_rng(0), rounds=100)
X, R = WORLD.features, WORLD.rewards


def with_column(column, values, rows=slice(None)):
    changed = X.copy()
    changed[rows, column] = values
    return changed


def repeated():
    """Offered actions: the chosen one twice, constant in feature x1."""
    return np.stack([with_column(1, 2.0)] * 2, axis=1)


BAD_DATA = {
    "no rewards": (
        "fit takes WindowedMoments, or features and rewards, got ndarray alone",
        (X,),
        {},
    ),
    "moments and rewards": ("go with arrays, not with moments", (WORLD.moments, R), {}),
    "moments and windows": (
        "go with arrays, not with moments",
        (WORLD.moments,),
        {"windows": 4},
    ),
    "a vector of features": (
        r"features must have shape \(n, p\), got \(600,\)",
        (R, R),
        {},
    ),
    "too few rewards": (
        r"rewards must have shape \(600,\), got \(599,\)",
        (X, R[1:]),
        {},
    ),
    "a missing feature": (
        r"features must be finite, got nan at index \(7, 2\)",
        (with_column(2, np.nan, [7]), R),
        {},
    ),
    "an infinite reward": (
        "rewards must be finite, got inf",
        (X, np.full(600, np.inf)),
        {},
    ),
    "offered of other features": (
        r"offered must have shape \(600, K, 5\), got \(600, 2, 4\)",
        (X, R),
        {"offered": np.zeros((600, 2, 4))},
    ),
    "one window": ("at least 2 windows to compare, got 1", (X, R), {"windows": 1}),
    "short windows": (
        r"at least p \+ 2 = 7 rounds, but window 0 has 6 \(100 of 100 windows are too short\)",
        (X, R),
        {"windows": 100},
    ),
    "one window that is not short": (
        r"at least 2 windows need at least p \+ 2 = 7 rounds, but window 1 has 5 \(2 of 3 windows",
        (X[:310], R[:310]),
        {"times": np.arange(310), "edges": [0, 300, 305, 310]},
    ),
    "falling edges": (
        "edges must increase strictly",
        (X, R),
        {"times": np.arange(600), "edges": [0, 500, 400, 600]},
    ),
    "a constant feature": (
        "features are constant: x3;",
        (with_column(3, 0.1), R),
        {"windows": 6},
    ),
    "two constant features": (
        "features are constant: x0, x3;",
        (np.where(np.isin(np.arange(5), [0, 3]), 1e8, X), R),
        {"windows": 6},
    ),
    "a feature that is another constant in every window": (
        "features are constant: x4;",
        (with_column(4, np.repeat(np.arange(6.0), 100)), R),
        {"windows": 6},
    ),
    "a feature that only rounding moves": (
        "features are constant: x3;",
        (with_column(3, (X[:, 0] + 0.1) - X[:, 0]), R),
        {},
    ),
    "a repeated feature": (
        "features are collinear: x1, x2 satisfy",
        (with_column(2, 3.0 * X[:, 1] - 5.0), R),
        {},
    ),
    "a sum of features": (
        "features are collinear: x0, x1, x4 satisfy 1 exact linear relation;",
        (with_column(4, X[:, 0] + X[:, 1]), R),
        {"windows": 6},
    ),
    "indicators of all cases": (
        "features are collinear: x0, x1, x2, x3, x4 satisfy",
        (np.eye(5)[np.random.default_rng(1).integers(5, size=600)], R),
        {"windows": 6},
    ),
    "constant offered feature": (
        "offered features are constant: x1;",
        (X, R),
        {"windows": 6, "offered": repeated()},
    ),
}


@pytest.mark.parametrize(
    ("message", "arguments", "options"), BAD_DATA.values(), ids=BAD_DATA.keys()
)
def test_bad_data_is_named_and_leaves_the_estimator_as_it_was(
    message, arguments, options
):
    fresh = InvariantSubspaceDecomposition()
    with pytest.raises(InputError, match=message):
        fresh.fit(*arguments, **options)
    assert not hasattr(fresh, "split_")
    fit = InvariantSubspaceDecomposition().fit(WORLD.moments)
    before = dict(vars(fit))
    with pytest.raises(InputError, match=message):
        fit.fit(*arguments, **options)
    assert vars(fit).keys() == before.keys()
    assert all(vars(fit)[name] is value for name, value in before.items())


def test_a_fit_that_fails_at_the_very_end_changes_nothing(monkeypatch):
    fit = InvariantSubspaceDecomposition().fit(WORLD.moments)
    before = dict(vars(fit))

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(estimator_module, "findings", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fit.fit(X[:, :3], R, windows=4)
    assert vars(fit).keys() == before.keys()
    assert all(vars(fit)[name] is value for name, value in before.items())


def test_a_feature_that_hardly_moves_beside_its_level_is_no_constant():
    """A milligram on a ton: its variance is 1e-18 of its square, far above what rounding leaves."""
    faint = with_column(3, 1e6 + np.round(X[:, 3] * 2**10) / 2**20)
    fit = InvariantSubspaceDecomposition(blocks=[[0], [1], [2], [3], [4]]).fit(
        faint, R, windows=6
    )
    assert fit.n_features_in_ == 5


def test_given_names_stand_in_the_message():
    named = InvariantSubspaceDecomposition(
        feature_names=["price", "age", "hour", "rain", "wind"]
    )
    with pytest.raises(InputError, match="features are constant: rain;"):
        named.fit(with_column(3, 1.0), R)
    with pytest.raises(InputError, match="features are collinear: age, hour satisfy"):
        named.fit(with_column(2, -X[:, 1]), R)


BAD_PARAMETERS = {
    "metric": (
        "metric must be one of 'euclidean', 'whitened', got 'cosine'",
        {"metric": "cosine"},
    ),
    "covariances": ("covariances must be one of", {"covariances": "all"}),
    "offered without offered": (
        "covariances='offered' needs the offered actions",
        {"covariances": "offered"},
    ),
    "component": ("component must be one of", {"component": "ridge"}),
    "alpha": ("alpha must lie strictly between 0 and 1, got 0", {"alpha": 0.0}),
    "alpha of words": ("alpha must be a number", {"alpha": "small"}),
    "block_alpha": (
        "block_alpha must lie strictly between 0 and 1, got nan",
        {"block_alpha": float("nan")},
    ),
    "invariant_dim": (
        "invariant_dim must be a whole number of at least 0, got -1",
        {"invariant_dim": -1},
    ),
    "too large": (
        "invariant_dim must be at most the number of features, 5, got 6",
        {"invariant_dim": 6},
    ),
    "blocks that overlap": (
        "blocks must name each of the 5 features exactly once",
        {"blocks": [[0, 1, 2], [2, 3]]},
    ),
    "blocks with gaps": (
        "blocks must name each of the 5 features exactly once",
        {"blocks": [[0, 1], [2, 3]]},
    ),
    "blocks beyond": (
        "each of blocks must be feature indices below 5",
        {"blocks": [[0, 1, 2, 3, 5]]},
    ),
    "blocks of names": (
        "each of blocks must be feature indices",
        {"blocks": ["x0", "x1"]},
    ),
    "blocks that are not quite orthonormal": (
        "orthonormal bases that fill R",
        {"blocks": [np.eye(5)[:, :2] + 1e-6, np.eye(5)[:, 2:]]},
    ),
    "no sequence of blocks": ("blocks must be a sequence", {"blocks": 3}),
    "a matrix as split": (
        "split must be a Split of dim 5, got array",
        {"split": np.eye(5)},
    ),
    "a split of other dim": (
        r"split must be a Split of dim 5, got Split\(invariant_dim=3",
        {"split": Split(np.eye(3), np.zeros((3, 0)))},
    ),
    "split and dimension": (
        "split fixes everything",
        {"split": Split(np.eye(5), np.zeros((5, 0))), "invariant_dim": 5},
    ),
    "split and whitening": (
        "metric='whitened' finds its own subspaces",
        {"split": Split(np.eye(5), np.zeros((5, 0))), "metric": "whitened"},
    ),
    "names": (
        "feature_names must have 5 entries, got 2",
        {"feature_names": ["a", "b"]},
    ),
}


@pytest.mark.parametrize(
    ("message", "parameters"), BAD_PARAMETERS.values(), ids=BAD_PARAMETERS.keys()
)
def test_bad_parameters_are_named_when_fitting(message, parameters):
    fit = InvariantSubspaceDecomposition(**parameters)
    with pytest.raises(InputError, match=message):
        fit.fit(WORLD.moments)
    assert not hasattr(fit, "split_")


def test_unknown_parameters_are_refused_before_any_is_set():
    fit = InvariantSubspaceDecomposition()
    with pytest.raises(InputError, match=r"parameter must be one of .* got 'level'"):
        fit.set_params(alpha=0.5, level=3)
    assert fit.alpha == InvariantSubspaceDecomposition().alpha


def test_empty_moments_are_refused():
    with pytest.raises(InputError, match="moments hold no rounds"):
        InvariantSubspaceDecomposition().fit(WindowedMoments.empty(5, 4))


@pytest.mark.parametrize("call", ["predict", "adapt", "summary"])
def test_nothing_can_be_asked_before_fitting(call):
    arguments = {"predict": (X,), "adapt": (X, R), "summary": ()}[call]
    with pytest.raises(InputError, match="is not fitted yet: call fit first"):
        getattr(InvariantSubspaceDecomposition(), call)(*arguments)


BAD_USES = {
    "other features": (
        r"features must have shape \(n, 5\)",
        lambda fit: fit.predict(X[:, :4]),
    ),
    "missing features": (
        "features must be finite",
        lambda fit: fit.predict(X * np.nan),
    ),
    "other residual": (
        r"residual must have shape \(5,\)",
        lambda fit: fit.predict(X, [1.0]),
    ),
    "too few rewards": (
        r"rewards must have shape \(600,\)",
        lambda fit: fit.adapt(X, R[1:]),
    ),
    "no rows": ("features is empty", lambda fit: fit.adapt(X[:0], R[:0])),
    "no ridge": (
        "ridge must lie strictly between 0 and inf, got 0",
        lambda fit: fit.adapt(X, R, ridge=0.0),
    ),
    "ridge of words": (
        "ridge must be a number",
        lambda fit: fit.adapt(X, R, ridge="much"),
    ),
}


@pytest.mark.parametrize(("message", "use"), BAD_USES.values(), ids=BAD_USES.keys())
def test_bad_uses_are_named(message, use):
    fit = InvariantSubspaceDecomposition().fit(WORLD.moments)
    with pytest.raises(InputError, match=message):
        use(fit)
