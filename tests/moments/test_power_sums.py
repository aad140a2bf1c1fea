"""PowerSums: power sums against direct computation, and what rows that share a round are worth."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from invariant_bandits.moments.power_sums import PowerSums, power_sums_of_rows


def sums_of_rounds(rows, actions):
    """Sums over rounds that offer so many actions each."""
    return power_sums_of_rows(rows, None, np.full(len(rows) // actions, actions))


def skewed_rows(rng, rounds, dim=4):
    """Rows with skewed, heavy-tailed columns about distant means."""
    return rng.exponential(size=(rounds, dim)) ** 1.5 * rng.uniform(
        0.1, 10.0, dim
    ) + rng.normal(0.0, 30.0, dim)


def centred_powers(rows):
    centred = rows - rows.mean(axis=0)
    return centred.T @ centred, (centred**3).sum(axis=0), (centred**4).sum(axis=0)


@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.integers(0, 59))
def test_third_and_fourth_powers_survive_merging(seed, rounds, cut):
    rng = np.random.default_rng(seed)
    rows = skewed_rows(rng, rounds)
    cut = min(cut, rounds)
    merged = PowerSums.empty(1, 4)
    for part in (rows[:cut], rows[cut:]):
        if len(part):
            merged = merged.merged(
                power_sums_of_rows(part[:, :3].copy(), part[:, 3].copy())
            )
    scatter, cubes, quartics = centred_powers(rows)
    size = np.sqrt(np.diagonal(scatter)) + 1e-6
    np.testing.assert_allclose(
        merged.mean[0], rows.mean(axis=0), rtol=1e-12, atol=1e-10
    )
    np.testing.assert_allclose(
        merged.scatter[0] / np.outer(size, size),
        scatter / np.outer(size, size),
        atol=1e-9,
    )
    np.testing.assert_allclose(merged.cubes[0] / size**3, cubes / size**3, atol=1e-9)
    np.testing.assert_allclose(
        merged.quartics[0] / size**4, quartics / size**4, atol=1e-9
    )


def test_fourth_powers_keep_their_digits_at_a_distant_mean():
    rng = np.random.default_rng(0)
    rows = np.round(rng.standard_normal((400, 2)) * 2**10) / 2**10
    near = power_sums_of_rows(rows, None)
    far = power_sums_of_rows(rows + 1e8, None)
    np.testing.assert_allclose(far.quartics, near.quartics, rtol=1e-11)
    np.testing.assert_allclose(far.cubes, near.cubes, atol=1e-10 * near.quartics.max())


def test_tail_weight_is_one_for_gaussian_rows_and_the_kurtosis_ratio_for_student_rows():
    rng = np.random.default_rng(1)
    normal = power_sums_of_rows(rng.standard_normal((200_000, 5)), None)
    # The sample kurtosis has standard deviation √(24/n): the mean of five thirds of it is within 5
    # deviations.
    assert abs(normal.tail_weight(5)[0] - 1.0) < 5 * np.sqrt(24 / 200_000 / 5) / 3
    student = power_sums_of_rows(rng.standard_t(12, size=(200_000, 5)), None)
    assert student.tail_weight(5)[0] == pytest.approx((12 - 2) / (12 - 4), rel=0.05)


def test_a_variable_that_never_changes_counts_as_gaussian_and_as_shared_by_its_round():
    rng = np.random.default_rng(6)
    rows = np.column_stack([np.full(120, 7.0), rng.standard_normal(120)])
    sums = sums_of_rounds(rows, 4)
    assert sums.tail_weight(1)[0] == 1.0
    assert sums.tail_weight(2)[0] == pytest.approx(
        0.5 + 0.5 * sums_of_rounds(rows[:, 1:].copy(), 4).tail_weight(1)[0]
    )
    alone = sums_of_rounds(rows[:, :1].copy(), 4)
    np.testing.assert_allclose(alone.independent_rows(np.array([30.0])), [30.0])


def offered_rows(rng, rounds, actions, correlation):
    """Rounds of `actions` Gaussian rows (rounds·actions, 3) whose rows share a context with this
    correlation.
    """
    shared = rng.standard_normal((rounds, 1, 3))
    own = rng.standard_normal((rounds, actions, 3))
    return (np.sqrt(correlation) * shared + np.sqrt(1.0 - correlation) * own).reshape(
        -1, 3
    )


def test_identical_offered_rows_are_worth_one_row_per_round():
    rng = np.random.default_rng(2)
    sums = sums_of_rounds(offered_rows(rng, 500, 6, 1.0), 6)
    np.testing.assert_allclose(
        sums.independent_rows(np.array([500.0])), [500.0], rtol=1e-9
    )


@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.7])
def test_rows_that_share_a_context_are_worth_what_the_variance_of_their_products_says(
    correlation,
):
    rng = np.random.default_rng(3)
    rounds, actions = 20_000, 6
    rows = offered_rows(rng, rounds, actions, correlation)
    sums = sums_of_rounds(rows, actions)
    worth = float(sums.independent_rows(np.array([float(rounds)]))[0])
    # A sample covariance of n independent rows with correlation 0 has variance 1/n: measure it over the
    # rounds.
    products = (rows[:, 0] * rows[:, 1]).reshape(rounds, actions).mean(axis=1)
    assert worth == pytest.approx(rounds / products.var(), rel=0.06)


def test_merging_batches_keeps_the_worth_of_their_rounds():
    rng = np.random.default_rng(4)
    rows = offered_rows(rng, 400, 5, 0.5) + 7.0
    whole = sums_of_rounds(rows, 5)
    parts = sums_of_rounds(rows[:500], 5).merged(sums_of_rounds(rows[500:], 5))
    np.testing.assert_allclose(parts.between, whole.between, rtol=1e-10)
    np.testing.assert_allclose(
        parts.independent_rows(np.array([400.0])),
        whole.independent_rows(np.array([400.0])),
        rtol=1e-10,
    )


def test_a_single_offered_action_is_worth_itself():
    rng = np.random.default_rng(5)
    sums = power_sums_of_rows(rng.standard_normal((100, 3)), None)
    np.testing.assert_array_equal(sums.independent_rows(np.array([100.0])), [100.0])
