"""Split: orthonormal at birth, immutable, and a distance between subspaces."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from invariant_bandits import InputError, Split
from worlds import random_basis


@st.composite
def splits(draw, count=1):
    """`count` random splits of one space, of one dimension each side."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    p = draw(st.integers(1, 6))
    invariant = draw(st.integers(0, p))
    return [Split(*np.hsplit(random_basis(p, rng), [invariant])) for _ in range(count)]


@given(splits(count=3))
def test_distance_is_a_metric_between_zero_and_one(three):
    a, b, c = three
    assert a.distance(a) == pytest.approx(0.0, abs=1e-12)
    assert a.distance(b) == pytest.approx(b.distance(a), abs=1e-12)
    assert 0.0 <= a.distance(b) <= 1.0 + 1e-12
    assert a.distance(c) <= a.distance(b) + b.distance(c) + 1e-12


@given(splits(count=2))
def test_distance_is_the_norm_of_the_difference_of_the_projections(two):
    a, b = two
    for part in ("residual", "invariant"):
        U, V = getattr(a, part), getattr(b, part)
        assert a.distance(b) == pytest.approx(
            np.linalg.norm(U @ U.T - V @ V.T, ord=2), abs=1e-12
        )


def test_splits_of_different_dimensions_are_at_distance_one():
    a, b = (
        Split(np.eye(3)[:, :1], np.eye(3)[:, 1:]),
        Split(np.eye(3)[:, :2], np.eye(3)[:, 2:]),
    )
    assert a.distance(b) == 1.0


@given(splits())
def test_the_parts_fill_the_space(one):
    (split,) = one
    assert split.invariant_dim + split.residual_dim == split.dim
    np.testing.assert_allclose(
        split.basis @ split.basis.T, np.eye(split.dim), atol=1e-12
    )


def test_from_residual_spans_the_given_columns_and_their_complement():
    rng = np.random.default_rng(0)
    columns = rng.standard_normal((5, 2))
    split = Split.from_residual(columns)
    np.testing.assert_allclose(split.invariant.T @ columns, 0.0, atol=1e-12)
    np.testing.assert_allclose(
        split.residual @ (split.residual.T @ columns), columns, atol=1e-12
    )
    assert Split.from_residual(np.zeros((3, 0))).invariant_dim == 3
    assert Split.from_residual(rng.standard_normal((3, 3))).residual_dim == 3


def test_a_split_does_not_change():
    basis = np.eye(2)
    split = Split(basis[:, :1], basis[:, 1:])
    basis[:] = 7.0
    np.testing.assert_array_equal(split.basis, np.eye(2))
    with pytest.raises(ValueError, match="read-only"):
        split.invariant[0, 0] = 2.0
    with pytest.raises(AttributeError):
        split.invariant = np.eye(2)


BAD = {
    "a vector": (
        r"invariant must have shape \(p, columns\)",
        lambda: Split(np.ones(3), np.eye(3)),
    ),
    "missing columns": (
        r"residual must have shape \(3, 2\)",
        lambda: Split(np.eye(3)[:, :1], np.eye(3)[:, :1]),
    ),
    "not unit": (
        "must be orthonormal, they are off by 3",
        lambda: Split(2.0 * np.eye(2)[:, :1], np.eye(2)[:, 1:]),
    ),
    "not quite unit": (
        "must be orthonormal",
        lambda: Split((1.0 + 1e-7) * np.eye(2)[:, :1], np.eye(2)[:, 1:]),
    ),
    "not orthogonal": (
        "must be orthonormal",
        lambda: Split(np.eye(2)[:, :1], np.eye(2)[:, :1]),
    ),
    "not finite": (
        "invariant must be finite",
        lambda: Split(np.full((1, 1), np.nan), np.zeros((1, 0))),
    ),
    "dependent": (
        "residual must be linearly independent",
        lambda: Split.from_residual(np.ones((3, 2))),
    ),
    "too many": (
        "residual must be linearly independent",
        lambda: Split.from_residual(np.ones((1, 2))),
    ),
    "residual a vector": (
        r"residual must have shape \(p, columns\)",
        lambda: Split.from_residual(np.ones(2)),
    ),
    "other space": (
        "other must have dim 2, got 3",
        lambda: Split(np.eye(2), np.zeros((2, 0))).distance(
            Split(np.eye(3), np.zeros((3, 0)))
        ),
    ),
}


@pytest.mark.parametrize(("message", "call"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_named(message, call):
    with pytest.raises(InputError, match=message):
        call()
