"""Joint diagonalisation: recovers what it can identify, reproducibly, and says when it has not converged."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from invariant_bandits import InputError, joint_diagonalize
from invariant_bandits.decomposition import kernels
from invariant_bandits.decomposition.joint_diagonalization import ConvergenceWarning
from worlds import random_basis, random_spd


def diagonalisable(rng, p, m):
    """A planted basis (p, p) and matrices (m, p, p) that it diagonalises, spectra distinct in every
    direction.
    """
    basis = random_basis(p, rng)
    spectra = rng.uniform(0.5, 2.0, (m, p)) * np.arange(1, p + 1)
    return basis, np.stack([basis @ np.diag(values) @ basis.T for values in spectra])


def criterion(stack, basis, weights):
    """Σ w_i [Σ_a log (UᵀS_iU)_aa − log det S_i] / Σ w_i, computed directly."""
    diagonal = np.diagonal(basis.T @ stack @ basis, axis1=1, axis2=2)
    return float(
        weights
        @ (np.log(diagonal).sum(axis=1) - np.linalg.slogdet(stack)[1])
        / weights.sum()
    )


@given(st.integers(0, 2**32 - 1), st.integers(2, 8), st.integers(2, 6))
def test_a_planted_basis_is_recovered_up_to_order_and_sign(seed, p, m):
    basis, stack = diagonalisable(np.random.default_rng(seed), p, m)
    found = joint_diagonalize(stack)
    overlap = np.abs(found.basis.T @ basis)
    assert found.converged
    np.testing.assert_allclose(np.sort(overlap, axis=1)[:, -1], 1.0, atol=1e-8)
    np.testing.assert_allclose(np.sort(overlap, axis=1)[:, :-1], 0.0, atol=1e-4)
    assert found.criterion == pytest.approx(0.0, abs=1e-8)


def test_directions_with_a_common_spectrum_are_recovered_as_a_subspace():
    rng = np.random.default_rng(0)
    basis = random_basis(5, rng)
    spectra = rng.uniform(0.5, 2.0, (4, 5))
    spectra[:, 1] = spectra[:, 0]
    found = joint_diagonalize([basis @ np.diag(values) @ basis.T for values in spectra])
    inside = np.linalg.norm(found.basis.T @ basis[:, :2], axis=1)
    np.testing.assert_allclose(np.sort(inside), [0, 0, 0, 1, 1], atol=1e-5)
    alone = np.abs(found.basis.T @ basis[:, 2:]).max(axis=0)
    np.testing.assert_allclose(alone, 1.0, atol=1e-8)
    assert found.criterion == pytest.approx(0.0, abs=1e-8)


def test_one_matrix_gives_its_eigenvectors():
    rng = np.random.default_rng(1)
    matrix = random_spd(6, rng)
    found = joint_diagonalize(matrix[None])
    values, vectors = np.linalg.eigh(matrix)
    np.testing.assert_allclose(
        np.abs(found.basis.T @ vectors[:, ::-1]), np.eye(6), atol=1e-5
    )
    np.testing.assert_allclose(np.diagonal(found.stack[0]), values[::-1], rtol=1e-9)


@given(st.integers(0, 2**32 - 1))
def test_the_result_is_consistent_with_itself(seed):
    rng = np.random.default_rng(seed)
    stack = np.stack([random_spd(5, rng) for _ in range(4)])
    weights = rng.uniform(1.0, 100.0, 4)
    found = joint_diagonalize(stack, weights)
    np.testing.assert_allclose(found.basis.T @ found.basis, np.eye(5), atol=1e-12)
    np.testing.assert_allclose(
        found.stack, found.basis.T @ stack @ found.basis, atol=1e-12
    )
    assert found.criterion == pytest.approx(
        criterion(stack, found.basis, weights), abs=1e-12
    )
    assert 0.0 < found.criterion < criterion(stack, np.eye(5), weights)


@given(st.integers(0, 2**32 - 1))
def test_no_small_rotation_improves_the_result(seed):
    rng = np.random.default_rng(seed)
    stack = np.stack([random_spd(4, rng) for _ in range(3)])
    weights = rng.uniform(1.0, 10.0, 3)
    found = joint_diagonalize(stack, weights)
    for a in range(4):
        for b in range(a):
            for angle in (-1e-3, 1e-3):
                turn = np.eye(4)
                turn[[a, b], [a, b]] = np.cos(angle)
                turn[a, b], turn[b, a] = np.sin(angle), -np.sin(angle)
                assert (
                    criterion(stack, found.basis @ turn, weights)
                    >= found.criterion - 1e-12
                )


def test_likelihood_sweeps_never_increase_the_criterion():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        stack = np.stack([random_spd(6, rng) for _ in range(5)])
        weights = rng.uniform(1.0, 10.0, 5)
        work, basis = np.ascontiguousarray(stack.transpose(1, 2, 0)), np.eye(6)
        values = [criterion(stack, basis, weights)]
        for _ in range(12):
            kernels.jacobi_sweeps(
                work, basis, weights / weights.sum(), True, 1e-6, 1, 0.0, 1
            )
            values.append(criterion(stack, basis, weights))
        assert (np.diff(values) <= 1e-12).all()
        assert values[-1] < 0.9 * values[0]


def test_the_same_matrices_give_the_same_bits():
    rng = np.random.default_rng(2)
    stack = np.stack([random_spd(7, rng) for _ in range(5)])
    first, second = joint_diagonalize(stack), joint_diagonalize(stack.copy())
    np.testing.assert_array_equal(first.basis, second.basis)
    assert first.criterion == second.criterion


@given(st.integers(0, 2**32 - 1))
def test_columns_come_by_decreasing_mean_diagonal_with_positive_leading_entries(seed):
    _, stack = diagonalisable(np.random.default_rng(seed), 5, 3)
    found = joint_diagonalize(stack)
    mean = np.diagonal(found.stack.mean(axis=0))
    assert (np.diff(mean) <= 1e-8 * mean[0]).all()
    leading = found.basis[np.abs(found.basis).argmax(axis=0), np.arange(5)]
    assert (leading > 0).all()


def test_columns_of_equal_mean_come_in_an_order_that_rounding_does_not_decide():
    """After whitening all mean diagonals are equal: the first matrix decides, whatever the coordinates."""
    rng = np.random.default_rng(6)
    spectra = rng.uniform(0.5, 1.5, (3, 4))
    spectra = np.concatenate([spectra, 2.0 - spectra])
    for seed in range(10):
        basis = random_basis(4, np.random.default_rng(seed))
        found = joint_diagonalize(
            [basis @ np.diag(values) @ basis.T for values in spectra]
        )
        np.testing.assert_allclose(
            np.diagonal(found.stack[0]), np.sort(spectra[0])[::-1], rtol=1e-6
        )


def test_turning_the_matrices_turns_the_basis():
    for seed in range(10):
        rng = np.random.default_rng(seed)
        _, stack = diagonalisable(rng, 5, 6)
        stack = stack + 0.02 * np.stack([random_spd(5, rng) for _ in range(6)])
        turn = random_basis(5, rng)
        straight, turned = (
            joint_diagonalize(stack),
            joint_diagonalize(turn @ stack @ turn.T),
        )
        np.testing.assert_allclose(
            np.abs(turned.basis.T @ turn @ straight.basis), np.eye(5), atol=1e-5
        )
        assert turned.criterion == pytest.approx(straight.criterion, rel=1e-9)


def test_scaling_one_matrix_or_all_weights_changes_nothing():
    rng = np.random.default_rng(3)
    stack = np.stack([random_spd(4, rng) for _ in range(3)])
    weights = np.array([1.0, 2.0, 3.0])
    plain = joint_diagonalize(stack, weights)
    one = stack * np.array([1e-9, 1.0, 1.0])[:, None, None]
    for scaled in (
        joint_diagonalize(stack, 1e6 * weights),
        joint_diagonalize(one, weights),
    ):
        np.testing.assert_allclose(scaled.basis, plain.basis, atol=1e-6)
        assert scaled.criterion == pytest.approx(plain.criterion, rel=1e-9)


def test_a_weight_counts_like_repeated_matrices():
    rng = np.random.default_rng(4)
    a, b = random_spd(4, rng), random_spd(4, rng)
    weighted, repeated = (
        joint_diagonalize([a, b], [3.0, 1.0]),
        joint_diagonalize([a, a, a, b]),
    )
    assert weighted.criterion == pytest.approx(repeated.criterion, rel=1e-8)
    np.testing.assert_allclose(weighted.basis, repeated.basis, atol=1e-5)


def test_stopping_early_is_said():
    rng = np.random.default_rng(5)
    stack = np.stack([random_spd(8, rng) for _ in range(5)])
    with pytest.warns(ConvergenceWarning, match="not converged after 1 sweeps"):
        found = joint_diagonalize(stack, max_sweeps=1)
    assert not found.converged


def test_one_dimension_needs_no_rotation():
    found = joint_diagonalize([[[2.0]], [[3.0]]])
    np.testing.assert_array_equal(found.basis, [[1.0]])
    assert found.converged
    assert found.criterion == pytest.approx(0.0, abs=1e-15)


SYMMETRIC = np.stack([np.eye(3), 2.0 * np.eye(3)])
BAD = {
    "one matrix": (
        r"matrices must have shape \(m, p, p\), got \(3, 3\)",
        {"matrices": np.eye(3)},
    ),
    "not square": ("matrices must be square", {"matrices": np.ones((2, 3, 4))}),
    "not symmetric": (
        "matrices must be symmetric",
        {"matrices": [np.triu(np.ones((3, 3)))]},
    ),
    "not quite symmetric": (
        "matrices must be symmetric",
        {"matrices": [[[1.0, 0.5], [0.5 + 1e-6, 1.0]]]},
    ),
    "singular": ("matrices must be positive definite", {"matrices": [np.ones((3, 3))]}),
    "indefinite": (
        "matrices must be positive definite",
        {"matrices": [np.diag([1.0, -1.0])]},
    ),
    "missing": ("matrices must be finite", {"matrices": [np.diag([1.0, np.nan])]}),
    "none": ("matrices is empty", {"matrices": np.zeros((0, 3, 3))}),
    "too few weights": (
        r"weights must have shape \(2,\)",
        {"matrices": SYMMETRIC, "weights": [1.0]},
    ),
    "no weight": (
        "weights must be positive",
        {"matrices": SYMMETRIC, "weights": [1.0, 0.0]},
    ),
    "no sweeps": (
        "max_sweeps must be a whole number of at least 1",
        {"matrices": SYMMETRIC, "max_sweeps": 0},
    ),
    "no tolerance": (
        "tolerance must lie strictly between 0 and 1",
        {"matrices": SYMMETRIC, "tolerance": 0.0},
    ),
}


@pytest.mark.parametrize(("message", "arguments"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_named(message, arguments):
    with pytest.raises(InputError, match=message):
        joint_diagonalize(**arguments)
