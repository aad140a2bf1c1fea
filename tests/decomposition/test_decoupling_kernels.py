"""The compiled loops of the decoupling against plain linear algebra."""

import numpy as np
import pytest

from invariant_bandits.decomposition import kernels
from worlds import random_spd


def random_system(q, s, terms=3):
    """Symmetric positive definite L (k, q, q) and R (k, s, s), and a right side G (q, s)."""
    rng = np.random.default_rng(10 * q + s)
    L, R = (np.stack([random_spd(size, rng) for _ in range(terms)]) for size in (q, s))
    return L, R, rng.standard_normal((q, s))


@pytest.mark.parametrize("size", [1, 4, 9])
def test_the_inverse_is_the_inverse(size):
    matrix = random_spd(size, np.random.default_rng(size))
    found = kernels.inverse(kernels.factor(matrix))
    np.testing.assert_allclose(found, np.linalg.inv(matrix), rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_allclose(
        kernels.factor(matrix), np.linalg.cholesky(matrix), rtol=1e-12
    )


def test_a_singular_matrix_has_a_factor_without_nan():
    assert np.isfinite(kernels.factor(np.ones((3, 3)))).all()


@pytest.mark.parametrize(
    ("q", "s", "accuracy"),
    [(1, 1, 1e-10), (4, 3, 1e-10), (15, 20, 1e-10), (16, 20, 1e-3)],
)
def test_the_rotation_solves_its_equation(q, s, accuracy):
    """Up to 300 unknowns exactly; beyond, conjugate gradients until the squared residual has fallen to
    1e-8.
    """
    L, R, G = random_system(q, s)
    E = kernels.solve_rotation(L, R, G, 0.7)
    image = np.einsum("kab,bc,kcd->ad", L, E, R) + 0.7 * E
    np.testing.assert_allclose(image, G, atol=accuracy * np.linalg.norm(G))


@pytest.mark.parametrize(("q", "s"), [(1, 1), (3, 2), (2, 5)])
def test_the_cayley_rotation_is_the_cayley_transform(q, s):
    E = np.random.default_rng(q + s).standard_normal((q, s))
    X = np.block([[np.zeros((q, q)), E], [-E.T, np.zeros((s, s))]])
    identity = np.eye(q + s)
    Q = kernels.cayley(E)
    np.testing.assert_allclose(
        Q, np.linalg.solve(identity - X / 2.0, identity + X / 2.0), atol=1e-12
    )
    np.testing.assert_allclose(Q.T @ Q, identity, atol=1e-12)


def test_the_step_is_half_the_gradient_and_curvature_of_the_dependence_of_uncorrelated_groups():
    """Central differences along one random rotation: first order anywhere, second order at an uncoupled
    stack.
    """
    rng = np.random.default_rng(1)
    first, second = np.array([0, 2, 4]), np.array([1, 3])
    both = np.concatenate([first, second])
    sizes = np.array([10.0, 20.0, 30.0, 5.0])
    coupled = np.stack([random_spd(5, rng) for _ in sizes])
    uncoupled = coupled.copy()
    uncoupled[:, first[:, None], second] = uncoupled[:, second[:, None], first] = 0.0
    E = rng.standard_normal((3, 2))
    E /= np.linalg.norm(E)

    def dependence(stack, step):
        turn = np.eye(5)
        turn[np.ix_(both, both)] = kernels.cayley(step * E)
        return kernels.dependence(
            np.ascontiguousarray(turn.T @ stack @ turn), sizes, first, second
        )

    G, _, _ = kernels.decoupling_step(coupled, sizes, first, second)
    slope = (dependence(coupled, 1e-5) - dependence(coupled, -1e-5)) / 2e-5
    assert slope == pytest.approx(2.0 * np.sum(G * E), rel=1e-5)
    G, L, R = kernels.decoupling_step(uncoupled, sizes, first, second)
    np.testing.assert_allclose(G, 0.0, atol=1e-12)
    bend = (
        dependence(uncoupled, 1e-3)
        - 2.0 * dependence(uncoupled, 0.0)
        + dependence(uncoupled, -1e-3)
    ) / 1e-6
    assert bend == pytest.approx(
        2.0 * np.einsum("ad,kab,bc,kcd->", E, L, E, R), rel=1e-4
    )


@pytest.mark.parametrize("size", [1, 32, 33, 101])
def test_inverses_of_small_and_large_matrices(size):
    rng = np.random.default_rng(size)
    rows = rng.normal(size=(2 * size + 3, size))
    matrix = rows.T @ rows
    inverse = kernels.invert(matrix)
    np.testing.assert_allclose(inverse @ matrix, np.eye(size), atol=1e-11)
    np.testing.assert_allclose(inverse, inverse.T, rtol=1e-9, atol=1e-14)


def test_products_of_large_matrices_are_those_of_small_ones():
    rng = np.random.default_rng(0)
    left, right = rng.normal(size=(70, 50)), rng.normal(size=(50, 60))
    np.testing.assert_allclose(kernels.product(left, right), left @ right, rtol=1e-10)


def test_turning_two_groups_turns_whole_matrices():
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(3, 20, 9))
    matrices = rows.transpose(0, 2, 1) @ rows
    both = np.array([1, 4, 5, 8])
    corner = kernels.cayley(0.3 * rng.normal(size=(1, 3)))
    turn = np.eye(9)
    turn[np.ix_(both, both)] = corner
    expected = turn.T @ matrices @ turn
    work = np.ascontiguousarray(matrices.transpose(1, 2, 0))
    kernels._rotate(work, both, corner)
    np.testing.assert_allclose(work.transpose(2, 0, 1), expected, atol=1e-12)
