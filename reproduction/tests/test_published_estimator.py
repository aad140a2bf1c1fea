"""The published recipe behind the estimator: what it takes over, what it says, and what it refuses."""

import numpy as np
import pytest
from sklearn.base import clone

from invariant_bandits import (
    InputError,
    InvariantSubspaceDecomposition,
    ISDLinUCB,
    WindowedMoments,
)
from invariant_bandits.simulation.paper import PaperWorld
from invariant_bandits_reproduction.published import published_decomposition
from worlds import turning_world


def published_estimator(**parameters):
    return InvariantSubspaceDecomposition(recipe="published", **parameters)


def test_the_estimator_takes_over_what_the_recipe_finds():
    features, rewards, _, _ = turning_world(0)
    fit, found = (
        published_estimator().fit(features, rewards),
        published_decomposition(features, rewards),
    )
    np.testing.assert_array_equal(fit.split_.basis, found.split.basis)
    np.testing.assert_array_equal(fit.component_, found.component)
    np.testing.assert_array_equal(fit.statistics_, found.statistics)
    assert (fit.threshold_, fit.noise_scale_) == (found.threshold, found.noise_scale)
    assert fit.coefficients_.shape == (25, 5)
    assert fit.min_eigenvalue_ == pytest.approx(
        np.linalg.eigvalsh(features.T @ features / 12000)[0]
    )
    recent = fit.adapt(features[-200:], rewards[-200:])
    np.testing.assert_allclose(fit.split_.invariant.T @ recent, 0.0, atol=1e-12)


def test_a_clone_is_unfitted_and_fits_the_same():
    features, rewards, _, _ = turning_world(1)
    original = published_estimator().fit(features, rewards)
    copy = clone(original)
    assert copy.get_params()["recipe"] == "published"
    assert not hasattr(copy, "split_")
    np.testing.assert_array_equal(
        copy.fit(features, rewards).component_, original.component_
    )


def test_fitting_by_another_recipe_leaves_nothing_of_the_first():
    features, rewards, _, _ = turning_world(2)
    fit = published_estimator().fit(features, rewards)
    assert not hasattr(fit, "p_values_")
    fit.set_params(recipe="windowed").fit(features, rewards, windows=8)
    assert not hasattr(fit, "statistics_")
    assert len(fit.p_values_) == len(fit.blocks_)
    assert "p-value" in fit.summary()
    fit.set_params(recipe="published").fit(features, rewards)
    assert not hasattr(fit, "p_values_")


def test_the_summary_shows_statistics_and_says_that_nothing_was_tested():
    features, rewards, _, _ = turning_world(3)
    fit = published_estimator(
        feature_names=["price", "age", "hour", "rain", "wind"]
    ).fit(features, rewards)
    text = fit.summary()
    assert "published recipe" in text
    assert (
        "rounds 12,000 in 25 overlapping windows, 5 features, basis from chosen actions"
        in text
    )
    assert "drifting: 2 of 5 dimensions   no drift detected: 3" in text
    assert f"stable below {fit.threshold_:.3g}" in text
    assert "no p-values" in text
    rows = [
        line for line in text.splitlines() if " stable  " in line or " drifts  " in line
    ]
    assert len(rows) == len(fit.blocks_)
    for row, varies, statistic in zip(rows, fit.varies_, fit.statistics_, strict=True):
        assert ("drifts" in row) == varies
        assert f"{statistic:.3g}" in row
    assert "nothing counts as invariant" not in text
    set_aside = published_estimator().fit(features, np.ones(12000))
    assert "note: nothing counts as invariant" in set_aside.summary()


def test_a_selective_log_is_warned_of():
    log = PaperWorld(logging="greedy").log(2000, np.random.default_rng(13))
    fit = published_estimator().fit(log.features, log.rewards)
    assert any("far from centred" in finding for finding in fit.findings_)


@pytest.mark.parametrize("drifting", [True, False])
def test_a_policy_can_be_built_from_the_fit(drifting):
    features, rewards, _, component = turning_world(4)
    if not drifting:
        rewards = features @ component
    fit = published_estimator().fit(features, rewards)
    policy = ISDLinUCB.from_fit(fit, ridge=0.1)
    scores = policy.scores(features[:4])
    np.testing.assert_allclose(scores.mean, features[:4] @ fit.component_, atol=1e-10)
    assert (scores.width > 0.0).all()
    if drifting:
        coordinates = (
            fit.split_.invariant.T @ fit.component_covariance_ @ fit.split_.invariant
        )
        np.testing.assert_allclose(
            policy.component_precision @ coordinates, np.eye(3), atol=1e-9
        )


# -- what is refused --

X, R, TRUE_SPLIT, _ = turning_world(5, rounds=400)
BAD = {
    "moments": (
        "needs rows: .* got WindowedMoments alone",
        {},
        (WindowedMoments.from_arrays(X, R),),
        {},
    ),
    "no rewards": ("needs rows: .* got ndarray alone", {}, (X,), {}),
    "windows": ("own windows .* give no windows", {}, (X, R), {"windows": 8}),
    "offered": (
        "uses chosen actions only",
        {},
        (X, R),
        {"offered": np.stack([X, X], axis=1)},
    ),
    "a vector": (r"features must have shape \(n, p\), got \(400,\)", {}, (R, R), {}),
    "a missing feature": (
        r"features must be finite, got nan at index \(7, 2\)",
        {},
        (np.where(np.arange(2000).reshape(400, 5) == 37, np.nan, X), R),
        {},
    ),
    "too few rewards": (
        r"rewards must have shape \(400,\), got \(399,\)",
        {},
        (X, R[1:]),
        {},
    ),
    "an infinite reward": (
        r"rewards must be finite, got inf at index \(3\)",
        {},
        (X, np.where(np.arange(400) == 3, np.inf, R)),
        {},
    ),
    "too few rows": (
        r"at least 20\(p \+ 1\) = 120 rows .* got 119",
        {},
        (X[:119], R[:119]),
        {},
    ),
    "a constant feature": (
        "features are constant: wind;",
        {"feature_names": ["price", "age", "hour", "rain", "wind"]},
        (np.where(np.arange(5) == 4, 2.0, X), R),
        {},
    ),
    "a repeated feature": (
        "features are collinear: x0, x1 satisfy",
        {},
        (X[:, [0, 0, 2, 3, 4]], R),
        {},
    ),
    "names of other features": (
        "feature_names must have 5 entries, got 2",
        {"feature_names": ["a", "b"]},
        (X, R),
        {},
    ),
    "whitened": (
        "metric with recipe='published' must be one of 'euclidean'",
        {"metric": "whitened"},
        (X, R),
        {},
    ),
    "offered covariances": (
        "covariances with recipe='published'",
        {"covariances": "offered"},
        (X, R),
        {},
    ),
    "a fixed dimension": (
        "invariant_dim cannot be fixed",
        {"invariant_dim": 3},
        (X, R),
        {},
    ),
    "fixed blocks": (
        "blocks cannot be fixed",
        {"blocks": [[0, 1], [2, 3, 4]]},
        (X, R),
        {},
    ),
    "a fixed split": ("split cannot be fixed", {"split": TRUE_SPLIT}, (X, R), {}),
    "an unknown recipe": (
        "recipe must be one of 'windowed', 'published', got 'own'",
        {"recipe": "own"},
        (X, R),
        {},
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_used_is_refused_by_name_and_changes_nothing(case):
    message, parameters, positional, named = BAD[case]
    fit = published_estimator().fit(X, R).set_params(**parameters)
    before = dict(vars(fit))
    with pytest.raises(InputError, match=message):
        fit.fit(*positional, **named)
    assert vars(fit).keys() == before.keys()
    assert all(vars(fit)[name] is value for name, value in before.items())


def test_exactly_enough_rows_are_enough():
    assert published_decomposition(X[:120], R[:120]).split.dim == 5
